#pragma once
// Output that appears whole or not at all: files and folders that are filled beside their final place and renamed
// there. A final place that is a link is followed. What a killed process left is removed by the next one that stages at
// the same place (scratch folders: by any).

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

// A file that is filled beside its final place and renamed there by commit(); removed by the destructor otherwise. What
// exists and is no regular file (a pipe, /dev/stdout) is written to directly.
class StagedFile {
 public:
  static Result<std::unique_ptr<StagedFile>> create(const std::string &path, Diagnostics &diagnostics);
  ~StagedFile();
  StagedFile(const StagedFile &) = delete;
  StagedFile &operator=(const StagedFile &) = delete;
  void write(const void *data, size_t size);  // an error is remembered until commit()
  Status commit(Diagnostics &diagnostics);

 private:
  StagedFile() = default;
  std::string path_, final_, staging_;  // as it was given; without links; empty: written directly
  std::FILE *file_ = nullptr;
  int error_ = 0;  // errno of the first write that failed
};

// The whole of `text`, as a StagedFile.
Status write_file(const std::string &path, std::string_view text, Diagnostics &diagnostics);

// A folder that is filled beside its final place and renamed there by commit(); removed by the destructor otherwise.
//
// The file manifest.json of a staged folder is a JSON object; commit() adds to it the key "files", the hash of every
// other file by its path. By that list a later commit() over the same place knows what it may replace: it replaces an
// empty folder, or one whose manifest.json is of optc. Files that are not on the old list stay, with the folders that
// hold nothing but such files. Files that were changed since, and others where a new file must stand, are refused by
// name unless `force`. The new folder takes the place of the old one in one step, but where the old one must stay: the
// current folder, a mounted one, one whose parent cannot be written. There its files are replaced one by one.
class StagedDirectory {
 public:
  static Result<std::unique_ptr<StagedDirectory>> create(const std::string &final_path, Diagnostics &diagnostics);
  // A folder that no file is made of: what would be written is counted. commit() does nothing.
  static std::unique_ptr<StagedDirectory> nowhere();
  ~StagedDirectory();
  StagedDirectory(const StagedDirectory &) = delete;
  StagedDirectory &operator=(const StagedDirectory &) = delete;
  const std::string &path() const { return staging_; }
  Status write(const std::string &relative_path, std::string_view text, Diagnostics &diagnostics);  // makes sub-folders
  // A file in pieces: `give` hands them to the sink, which is false where it takes no more, and is false then itself.
  // `head`, if there is one, tells afterwards what the file begins with: `give` handed over as many bytes in its place.
  using Sink = std::function<bool(const void *data, uint64_t size)>;
  using Give = std::function<bool(const Sink &)>;
  using Head = std::function<std::string()>;
  Status write(const std::string &relative_path, const Give &give, const Head &head, Diagnostics &diagnostics);
  const std::map<std::string, uint64_t> &sizes() const { return sizes_; }  // bytes of the files so far, by path
  Status commit(Diagnostics &diagnostics, bool force = false);

 private:
  StagedDirectory() = default;
  Result<std::string> manifest_with_files(const std::string &text, Diagnostics &diagnostics) const;
  Status replace(bool force, Diagnostics &diagnostics);
  Status exchange(const std::vector<std::string> &kept, Diagnostics &diagnostics);
  Status refill(const std::vector<std::string> &old_files, Diagnostics &diagnostics);
  std::string final_, staging_;
  std::map<std::string, std::string> hashes_;  // of the files, by path
  std::map<std::string, uint64_t> sizes_;
  bool inside_ = false;  // staged inside the final folder, which cannot change places with another
  bool committed_ = false;
  bool counts_ = false;   // nowhere()
  std::string manifest_;  // of nowhere()
  int marker_ = -1;       // the open file that says whose folder it is
};

// A new folder below $TMPDIR or /tmp that goes with the object.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder &) = delete;
  ScratchFolder &operator=(const ScratchFolder &) = delete;
  const std::string &path() const { return path_; }  // empty: it could not be made

 private:
  std::string path_;
  int marker_ = -1;  // as in a StagedDirectory
};

// Removes what is staged at this moment, and stages nothing more: for a process that a signal ends.
void remove_unfinished();

}  // namespace optc
