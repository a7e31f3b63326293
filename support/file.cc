#include "support/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace optc {

namespace fs = std::filesystem;

namespace {

std::string reason(int error) { return std::generic_category().message(error); }

// An open file descriptor, closed at the end of its scope.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

// The name under which a file or folder is made before it is renamed to `path`: in the same folder, so that the rename
// stays on one file system, and with the process id, so that two compilers do not meet.
std::string staging_name(const std::string &path) {
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  return trimmed + ".tmp" + std::to_string(::getpid());
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

Status write_plain(const std::string &path, std::string_view text, Diagnostics &diagnostics) {
  Descriptor file{::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)};
  if (file.fd < 0) return diagnostics.error(ErrorKind::kIo, "cannot write " + path + ": " + reason(errno));
  if (!write_all(file.fd, text)) {
    const int error = errno;
    ::unlink(path.c_str());
    return diagnostics.error(ErrorKind::kIo, "cannot write " + path + ": " + reason(error));
  }
  return {};
}

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

Status write_file(const std::string &path, std::string_view text, Diagnostics &diagnostics) {
  const std::string staging = staging_name(path);
  OPTC_TRY(write_plain(staging, text, diagnostics));
  if (::rename(staging.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(staging.c_str());
    return diagnostics.error(ErrorKind::kIo, "cannot write " + path + ": " + reason(error));
  }
  return {};
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

Result<std::unique_ptr<StagedDirectory>> StagedDirectory::create(const std::string &final_path,
                                                                 Diagnostics &diagnostics) {
  std::unique_ptr<StagedDirectory> directory(new StagedDirectory);
  directory->final_ = final_path;
  const std::string staging = staging_name(final_path);
  std::error_code error;
  const fs::path parent = fs::path(staging).parent_path();
  if (!parent.empty()) fs::create_directories(parent, error);
  if (!error) fs::remove_all(staging, error);  // left by a process of the same id that was killed
  if (!error) fs::create_directory(staging, error);
  if (error)
    return diagnostics.error(ErrorKind::kIo, "cannot create the folder " + final_path + ": " + error.message());
  directory->staging_ = staging;
  return directory;
}

StagedDirectory::~StagedDirectory() {
  if (committed_ || staging_.empty()) return;
  std::error_code ignored;
  fs::remove_all(staging_, ignored);
}

Status StagedDirectory::write(const std::string &relative_path, std::string_view text, Diagnostics &diagnostics) {
  const fs::path path = fs::path(staging_) / relative_path;
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) {
    return diagnostics.error(ErrorKind::kIo, "cannot create " + path.parent_path().string() + ": " + error.message());
  }
  return write_plain(path.string(), text, diagnostics);
}

namespace {

// Whether a folder is a bundle that optc wrote: many programs call a file manifest.json.
bool is_bundle(const std::string &folder) {
  std::ifstream file(fs::path(folder) / "manifest.json", std::ios::binary);
  std::string head(4096, 0);
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<size_t>(file.gcount()));
  return head.find("\"compiler\": \"optc ") != std::string::npos;
}

}  // namespace

Status StagedDirectory::commit(Diagnostics &diagnostics) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(final_, error);
  if (fs::exists(status)) {
    if (!fs::is_directory(status)) {
      return diagnostics.error(ErrorKind::kIo, "cannot write " + final_ + ": it exists and is not a folder");
    }
    if (!fs::is_empty(final_, error) && !is_bundle(final_)) {
      return diagnostics.error(
          ErrorKind::kIo,
          "will not replace the folder " + final_ + ": it holds no manifest.json of optc, so it is no bundle", {},
          "give another folder, or remove this one");
    }
    // The old folder steps aside first and is removed last, so that a failure leaves one of the two whole.
    const std::string old = staging_name(final_) + ".old";
    fs::remove_all(old, error);
    fs::rename(final_, old, error);
    if (error) return diagnostics.error(ErrorKind::kIo, "cannot replace " + final_ + ": " + error.message());
    fs::rename(staging_, final_, error);
    if (error) {
      std::error_code ignored;
      fs::rename(old, final_, ignored);
      return diagnostics.error(ErrorKind::kIo, "cannot write " + final_ + ": " + error.message());
    }
    std::error_code ignored;
    fs::remove_all(old, ignored);
  } else {
    fs::rename(staging_, final_, error);
    if (error) return diagnostics.error(ErrorKind::kIo, "cannot write " + final_ + ": " + error.message());
  }
  committed_ = true;
  return {};
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
