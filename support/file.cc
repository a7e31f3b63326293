#include "support/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace optc {

namespace {

std::string reason(int error) { return std::generic_category().message(error); }

// An open file descriptor, closed at the end of its scope.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

// Opens a regular file for reading and tells its size.
Result<int> open_regular(const std::string &path, size_t &size, Diagnostics &diagnostics) {
  // O_NONBLOCK: a FIFO must not hold the open; it is refused just below.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return diagnostics.error(ErrorKind::kIo, "cannot read " + path + ": " + reason(errno));
  struct stat info;
  if (::fstat(fd, &info) != 0) {
    const int error = errno;
    ::close(fd);
    return diagnostics.error(ErrorKind::kIo, "cannot read " + path + ": " + reason(error));
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return diagnostics.error(
        ErrorKind::kIo,
        "cannot read " + path + ": " + (S_ISDIR(info.st_mode) ? "it is a folder" : "it is not a regular file"));
  }
  size = static_cast<size_t>(info.st_size);
  return fd;
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string &path, Diagnostics &diagnostics) {
  size_t size = 0;
  OPTC_ASSIGN(const int fd, open_regular(path, size, diagnostics));
  Descriptor file{fd};
  std::shared_ptr<MappedFile> mapped(new MappedFile);
  mapped->path_ = path;
  if (size > 0) {
    void *data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
    if (data == MAP_FAILED) return diagnostics.error(ErrorKind::kIo, "cannot map " + path + ": " + reason(errno));
    mapped->data_ = static_cast<const uint8_t *>(data);
    mapped->size_ = size;
  }
  return std::shared_ptr<const MappedFile>(std::move(mapped));
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<uint8_t *>(data_), size_);
}

Result<std::string> read_file(const std::string &path, Diagnostics &diagnostics) {
  size_t size = 0;
  OPTC_ASSIGN(const int fd, open_regular(path, size, diagnostics));
  Descriptor file{fd};
  std::string text(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(file.fd, text.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return diagnostics.error(ErrorKind::kIo, "cannot read " + path + ": " + reason(errno));
    if (n == 0) break;  // the file became shorter
    done += static_cast<size_t>(n);
  }
  text.resize(done);
  return text;
}

std::string xxh3_128(const void *data, size_t size) {
  static const char empty = 0;
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(data ? data : &empty, size));
  static const char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(32);
  for (const unsigned char byte : canonical.digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace optc
