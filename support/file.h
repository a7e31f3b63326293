#pragma once
// Files: reading. Output that appears whole or not at all: support/staging.h.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

// A file mapped read-only. Shared by whatever points into it (constants of a Graph).
class MappedFile {
 public:
  // Maps the whole file. An empty file gives size() 0 and data() null. Directories and devices are refused.
  static Result<std::shared_ptr<const MappedFile>> open(const std::string &path, Diagnostics &diagnostics);
  ~MappedFile();
  MappedFile(const MappedFile &) = delete;
  MappedFile &operator=(const MappedFile &) = delete;
  const uint8_t *data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view text() const { return {reinterpret_cast<const char *>(data_), size_}; }  // lives as long as the file
  const std::string &path() const { return path_; }

 private:
  MappedFile() = default;
  const uint8_t *data_ = nullptr;
  size_t size_ = 0;
  std::string path_;
};

Result<std::string> read_file(const std::string &path, Diagnostics &diagnostics);

// XXH3-128 of bytes, as 32 lower-case hexadecimal digits.
std::string xxh3_128(const void *data, size_t size);

}  // namespace optc
