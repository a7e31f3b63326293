#include "support/staging.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <vector>

#include "support/file.h"

namespace optc {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

// What this process has staged: the one thing that a signal must find.
std::mutex unfinished_mutex;
std::set<std::string> unfinished;

void note_unfinished(const std::string &path) {
  const std::lock_guard lock(unfinished_mutex);
  unfinished.insert(path);
}

void note_finished(const std::string &path) {
  const std::lock_guard lock(unfinished_mutex);
  unfinished.erase(path);
}

constexpr const char *kManifest = "manifest.json";
constexpr size_t kHashDigits = 32;

std::string reason(int error) { return std::generic_category().message(error); }

// The place that `path` means when it is a link, without slashes at the end.
std::string final_place(const std::string &path) {
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  std::error_code error;
  const std::string last = fs::path(trimmed).filename().string();
  if (last != "." && last != ".." && !fs::is_symlink(fs::symlink_status(trimmed, error))) return trimmed;
  const fs::path target = fs::weakly_canonical(trimmed, error);
  return error ? trimmed : target.string();
}

std::string parent_of(const std::string &path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// Whether a folder exists and cannot change places with one beside it.
bool must_stay(const std::string &folder) {
  struct stat own, above;
  if (::stat(folder.c_str(), &own) != 0 || !S_ISDIR(own.st_mode)) return false;
  const std::string parent = (fs::path(folder) / "..").string();
  if (::stat(parent.c_str(), &above) != 0 || above.st_dev != own.st_dev || ::access(parent.c_str(), W_OK) != 0)
    return true;
  std::error_code error;
  return fs::equivalent(folder, fs::current_path(error), error);
}

// Held by one process at a time, until the end of the scope: commits to folders beside one another do not meet.
struct FolderLock {
  explicit FolderLock(const std::string &folder) : fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    while (fd >= 0 && ::flock(fd, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~FolderLock() {
    if (fd >= 0) ::close(fd);
  }
  const int fd;
};

// Where a file or folder is made before it is renamed to `path`: in the same folder, so that the rename stays on one
// file system, and with the process id, so that two compilers do not meet.
constexpr std::string_view kStaging = ".optc.tmp";
std::string staging_name(const std::string &path) { return path + std::string(kStaging) + std::to_string(::getpid()); }

// A folder that is being filled holds this file, with the id of the process that fills it and holds its lock. It goes
// when the folder takes its place: what has none is not ours to remove.
constexpr std::string_view kMarker = ".optc-staging";

int mark(const std::string &folder) {
  const int fd = ::open((folder + "/" + std::string(kMarker)).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return fd;
  ::flock(fd, LOCK_EX | LOCK_NB);
  const std::string id = std::to_string(::getpid());
  if (::write(fd, id.data(), id.size()) < 0) return fd;  // then nobody removes it
  return fd;
}

bool is_running(long id) { return id <= 0 || ::kill(static_cast<pid_t>(id), 0) == 0 || errno != ESRCH; }

// Whether the lock of a file is free, so that no process (of another container, say) has it open in this way.
bool is_free(const std::string &file, std::string *content) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat info;
  bool free = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  char text[32];
  const ssize_t n = free && content ? ::read(fd, text, sizeof text) : 0;
  if (n > 0) content->assign(text, static_cast<size_t>(n));
  ::close(fd);
  return free && n >= 0;
}

long number(std::string_view text) {
  if (text.empty() || text.size() > 10 || text.find_first_not_of("0123456789") != std::string_view::npos) return -1;
  return std::stol(std::string(text));
}

// Removes what processes that were killed left in `folder`: folders that they filled, and staged files, whose names
// begin with `begin`. Other processes may remove the same at the same time.
void remove_left(const std::string &folder, const std::string &begin) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string(), path = at->path().string();
    if (name.compare(0, begin.size(), begin) != 0) continue;
    std::error_code ignored;
    const fs::file_status status = at->symlink_status(ignored);
    std::string owner = name.substr(begin.size());
    const bool left = fs::is_directory(status) ? (owner.clear(), is_free(path + "/" + std::string(kMarker), &owner))
                                               : fs::is_regular_file(status) && is_free(path, nullptr);
    if (left && number(owner) > 0 && !is_running(number(owner))) fs::remove_all(path, ignored);
  }
}

}  // namespace

void remove_unfinished() {
  unfinished_mutex.lock();  // for good: nothing is staged any more
  std::error_code ignored;
  for (const std::string &path : unfinished) fs::remove_all(path, ignored);
}

Result<std::unique_ptr<StagedFile>> StagedFile::create(const std::string &path, Diagnostics &diagnostics) {
  std::unique_ptr<StagedFile> staged(new StagedFile);
  staged->path_ = path;
  staged->final_ = final_place(path);
  struct stat info;
  const bool there = ::stat(staged->final_.c_str(), &info) == 0;
  if (there && S_ISDIR(info.st_mode))
    return diagnostics.error(ErrorKind::kIo, "cannot write " + path + ": it is a folder");
  if (!there || S_ISREG(info.st_mode)) {
    staged->staging_ = staging_name(staged->final_);
    remove_left(parent_of(staged->final_), fs::path(staged->final_).filename().string() + std::string(kStaging));
    note_unfinished(staged->staging_);
  }
  staged->file_ = std::fopen((staged->staging_.empty() ? staged->final_ : staged->staging_).c_str(), "wbe");
  if (!staged->file_) return diagnostics.error(ErrorKind::kIo, "cannot write " + path + ": " + reason(errno));
  if (!staged->staging_.empty()) ::flock(::fileno(staged->file_), LOCK_EX | LOCK_NB);
  return staged;
}

StagedFile::~StagedFile() {
  if (file_) std::fclose(file_);
  if (staging_.empty()) return;
  ::unlink(staging_.c_str());
  note_finished(staging_);
}

void StagedFile::write(const void *data, size_t size) {
  if (error_ == 0 && size > 0 && std::fwrite(data, 1, size, file_) != size) error_ = errno ? errno : EIO;
}

Status StagedFile::commit(Diagnostics &diagnostics) {
  if (std::fclose(file_) != 0 && error_ == 0) error_ = errno;
  file_ = nullptr;
  if (error_ == 0 && !staging_.empty()) {
    if (::rename(staging_.c_str(), final_.c_str()) == 0) {
      note_finished(staging_);
      staging_.clear();
    } else {
      error_ = errno;
    }
  }
  if (error_ != 0) return diagnostics.error(ErrorKind::kIo, "cannot write " + path_ + ": " + reason(error_));
  return {};
}

Status write_file(const std::string &path, std::string_view text, Diagnostics &diagnostics) {
  OPTC_ASSIGN(const auto file, StagedFile::create(path, diagnostics));
  file->write(text.data(), text.size());
  return file->commit(diagnostics);
}

ScratchFolder::ScratchFolder() {
  const char *base = std::getenv("TMPDIR");
  const std::string folder = base && *base ? base : "/tmp";
  remove_left(folder, "optc-");
  std::string pattern = folder + "/optc-XXXXXX";
  if (!::mkdtemp(pattern.data())) return;
  path_ = pattern;
  note_unfinished(path_);
  marker_ = mark(path_);
}

ScratchFolder::~ScratchFolder() {
  if (path_.empty()) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  note_finished(path_);
  if (marker_ >= 0) ::close(marker_);
}

Result<std::unique_ptr<StagedDirectory>> StagedDirectory::create(const std::string &final_path,
                                                                 Diagnostics &diagnostics) {
  std::unique_ptr<StagedDirectory> directory(new StagedDirectory);
  directory->final_ = final_place(final_path);
  directory->inside_ = must_stay(directory->final_);
  const std::string place = directory->inside_ ? directory->final_ + "/" : directory->final_;
  const std::string staging = staging_name(place);
  std::error_code error;
  fs::create_directories(parent_of(staging), error);
  if (!error) remove_left(parent_of(staging), fs::path(place).filename().string() + std::string(kStaging));
  if (!error) fs::remove_all(staging, error);  // left by a process of the same id that was killed
  note_unfinished(staging);
  if (!error) fs::create_directory(staging, error);
  directory->staging_ = staging;
  if (error)
    return diagnostics.error(ErrorKind::kIo, "cannot create the folder " + final_path + ": " + error.message());
  directory->marker_ = mark(staging);
  return directory;
}

std::unique_ptr<StagedDirectory> StagedDirectory::nowhere() {
  std::unique_ptr<StagedDirectory> directory(new StagedDirectory);
  directory->counts_ = true;
  return directory;
}

StagedDirectory::~StagedDirectory() {
  if (counts_) return;
  std::error_code ignored;
  if (!committed_) fs::remove_all(staging_, ignored);
  note_finished(staging_);
  if (marker_ >= 0) ::close(marker_);
}

Status StagedDirectory::write(const std::string &relative_path, std::string_view text, Diagnostics &diagnostics) {
  sizes_[relative_path] = text.size();
  if (counts_) {
    if (relative_path == kManifest) manifest_ = text;
    hashes_[relative_path] = std::string(kHashDigits, '0');
    return {};
  }
  const fs::path path = fs::path(staging_) / relative_path;
  std::error_code error;
  const std::lock_guard lock(unfinished_mutex);  // not between a signal and the end
  fs::create_directories(path.parent_path(), error);
  if (error)
    return diagnostics.error(ErrorKind::kIo, "cannot create " + path.parent_path().string() + ": " + error.message());
  std::FILE *file = std::fopen(path.c_str(), "wbe");
  int failed = file ? 0 : errno;
  if (file && std::fwrite(text.data(), 1, text.size(), file) != text.size()) failed = errno;
  if (file && std::fclose(file) != 0 && !failed) failed = errno;
  if (failed) return diagnostics.error(ErrorKind::kIo, "cannot write " + path.string() + ": " + reason(failed));
  hashes_[relative_path] = xxh3_128(text.data(), text.size());
  return {};
}

Status StagedDirectory::write(const std::string &relative_path, const Give &give, const Head &head,
                              Diagnostics &diagnostics) {
  uint64_t &bytes = sizes_[relative_path] = 0;
  if (counts_) {
    (void)give([&](const void *, uint64_t size) {
      bytes += size;
      return true;
    });
    if (head) (void)head();
    hashes_[relative_path] = std::string(kHashDigits, '0');
    return {};
  }
  const fs::path path = fs::path(staging_) / relative_path;
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  std::FILE *file = std::fopen(path.c_str(), "wbe");
  bool good = file && give([&](const void *data, uint64_t size) {
                bytes += size;
                return std::fwrite(data, 1, size, file) == size;
              });
  if (good && head) {
    const std::string first = head();
    good = std::fseek(file, 0, SEEK_SET) == 0 && std::fwrite(first.data(), 1, first.size(), file) == first.size();
  }
  if (file && std::fclose(file) != 0) good = false;
  if (!good) return diagnostics.error(ErrorKind::kIo, "cannot write '" + relative_path + "': " + reason(errno));
  OPTC_ASSIGN(const auto mapped, MappedFile::open(path.string(), diagnostics));
  hashes_[relative_path] = xxh3_128(mapped->data(), mapped->size());
  return {};
}

namespace {

// The manifest of a folder that is a bundle of optc (many programs call a file manifest.json); else null.
Json bundle_manifest(const std::string &folder) {
  Diagnostics ignored;
  const Result<std::string> text = read_file(folder + "/" + kManifest, ignored);
  if (!text.ok()) return nullptr;
  Json manifest = Json::parse(*text, nullptr, false);
  if (!manifest.is_object() || !manifest.contains("compiler") || !manifest["compiler"].is_string()) return nullptr;
  return manifest["compiler"].get<std::string>().rfind("optc ", 0) == 0 ? manifest : Json(nullptr);
}

std::string hash_of(const fs::path &file) {
  Diagnostics ignored;
  const auto mapped = MappedFile::open(file.string(), ignored);
  return mapped.ok() ? xxh3_128((*mapped)->data(), (*mapped)->size()) : std::string();
}

// What stands in the old folder beside what optc wrote there.
struct Others {
  std::vector<std::string> changed;  // files of optc that are not as it wrote them
  std::vector<std::string> kept;     // other files and folders, by path
};

Others find_others(const std::string &folder, const Json &files, std::error_code &error) {
  std::set<std::string> folders;  // that hold files of optc
  for (const auto &[path, hash] : files.items())
    for (fs::path parent = fs::path(path).parent_path(); !parent.empty(); parent = parent.parent_path())
      folders.insert(parent.string());
  Others others;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string path = at->path().lexically_relative(folder).string();
    std::error_code ignored;
    const bool is_folder = at->is_directory(ignored) && !at->is_symlink(ignored);
    if (path == kManifest || (is_folder && folders.count(path))) continue;
    if (path.rfind(".optc.tmp", 0) == 0) {  // what is being staged
      at.disable_recursion_pending();
      continue;
    }
    if (is_folder) at.disable_recursion_pending();
    if (!files.contains(path))
      others.kept.push_back(path);
    else if (is_folder || !files[path].is_string() || files[path].get<std::string>() != hash_of(at->path()))
      others.changed.push_back(path);
  }
  return others;
}

}  // namespace

Status StagedDirectory::replace(bool force, Diagnostics &diagnostics) {
  std::error_code error;
  const Json manifest = bundle_manifest(final_);
  Others others;
  if (manifest.is_null()) {
    size_t entries = 0;
    for (fs::directory_iterator at(final_, error), end; !error && at != end; at.increment(error)) ++entries;
    if (entries > (inside_ ? 1u : 0u) || error)
      return diagnostics.error(
          ErrorKind::kIo,
          "will not replace the folder " + final_ + ": it holds no manifest.json of optc, so it is no bundle", {},
          "give another folder, or remove this one");
  } else {
    others = find_others(final_, manifest.value("files", Json::object()), error);
    if (error) return diagnostics.error(ErrorKind::kIo, "cannot read the folder " + final_ + ": " + error.message());
    std::vector<std::string> lost;
    for (const std::string &path : others.changed) {
      const auto mine = hashes_.find(path);
      if (mine == hashes_.end() || mine->second != hash_of(fs::path(final_) / path)) lost.push_back(path);
    }
    for (const std::string &path : others.kept)
      if (fs::exists(fs::symlink_status(fs::path(staging_) / path, error))) lost.push_back(path);
    if (!lost.empty() && !force) {
      Diagnostic d;
      d.kind = ErrorKind::kIo;
      d.message = "will not replace files in " + final_ + " that are not as optc wrote them";
      for (size_t i = 0; i < lost.size() && i < 8; ++i) d.places.push_back(final_ + "/" + lost[i]);
      if (lost.size() > 8) d.notes.push_back("and " + std::to_string(lost.size() - 8) + " more");
      d.help = "move them, give another folder, or let --force replace them";
      return diagnostics.add(std::move(d));
    }
  }
  if (!inside_) return exchange(others.kept, diagnostics);
  std::vector<std::string> old_files = {kManifest};
  if (manifest.contains("files"))
    for (const auto &[path, hash] : manifest["files"].items()) old_files.push_back(path);
  return refill(old_files, diagnostics);
}

// The two folders change places in one step, where the file system can; else the old one steps aside first. What is
// kept moves into the new one.
Status StagedDirectory::exchange(const std::vector<std::string> &kept, Diagnostics &diagnostics) {
  std::error_code error;
  std::string old = staging_;
  if (::renameat2(AT_FDCWD, staging_.c_str(), AT_FDCWD, final_.c_str(), RENAME_EXCHANGE) != 0) {
    old = staging_ + ".old";
    fs::remove_all(old, error);
    fs::rename(final_, old, error);
    if (error) return diagnostics.error(ErrorKind::kIo, "cannot replace " + final_ + ": " + error.message());
    fs::rename(staging_, final_, error);
    if (error) {
      std::error_code ignored;
      fs::rename(old, final_, ignored);
      return diagnostics.error(ErrorKind::kIo, "cannot write " + final_ + ": " + error.message());
    }
  }
  committed_ = true;
  note_finished(staging_);
  for (const std::string &path : kept) {
    const fs::path to = fs::path(final_) / path;
    if (fs::exists(fs::symlink_status(to, error))) continue;  // replaced by force
    fs::create_directories(to.parent_path(), error);
    fs::rename(fs::path(old) / path, to, error);
    if (error)
      return diagnostics.error(ErrorKind::kIo,
                               "cannot move " + path + " into the new " + final_ + ": " + error.message(), {},
                               "it lies in " + old);
  }
  fs::remove_all(old, error);
  return {};
}

// File by file, in the folder that is there.
Status StagedDirectory::refill(const std::vector<std::string> &old_files, Diagnostics &diagnostics) {
  std::error_code error;
  for (const std::string &path : old_files) {
    fs::remove_all(fs::path(final_) / path, error);
    for (fs::path parent = fs::path(path).parent_path(); !parent.empty(); parent = parent.parent_path())
      if (!fs::remove(fs::path(final_) / parent, error)) break;  // only an empty folder goes
  }
  std::vector<std::string> files = {kManifest};
  for (const auto &[path, hash] : hashes_) files.push_back(path);
  for (const std::string &path : files) {
    const fs::path to = fs::path(final_) / path;
    if (!fs::exists(fs::path(staging_) / path, error)) continue;
    fs::create_directories(to.parent_path(), error);
    fs::rename(fs::path(staging_) / path, to, error);
    if (error) return diagnostics.error(ErrorKind::kIo, "cannot write " + to.string() + ": " + error.message());
  }
  fs::remove_all(staging_, error);
  return {};
}

// The manifest with the key "files", the hash of every other file by its path.
Result<std::string> StagedDirectory::manifest_with_files(const std::string &manifest, Diagnostics &diagnostics) const {
  std::string text = manifest;
  const size_t end = text.rfind('}');
  if (end == std::string::npos || end == 0)
    return diagnostics.error(ErrorKind::kInternal, "the manifest is no JSON object");
  text.resize(text.find_last_not_of(" \n", end - 1) + 1);
  text += text.back() == '{' ? "\n \"files\": {" : ",\n \"files\": {";
  bool first = true;
  for (const auto &[path, hash] : hashes_) {
    text += (first ? "\n  " : ",\n  ") + Json(path).dump() + ": \"" + hash + "\"";
    first = false;
  }
  return text + "\n }\n}\n";
}

Status StagedDirectory::commit(Diagnostics &diagnostics, bool force) {
  if (hashes_.erase(kManifest)) {
    std::string text = manifest_;
    if (!counts_) {
      OPTC_ASSIGN(text, read_file(staging_ + "/" + kManifest, diagnostics));
    }
    OPTC_ASSIGN(text, manifest_with_files(text, diagnostics));
    OPTC_TRY(write(kManifest, text, diagnostics));
  }
  if (counts_) return {};
  const FolderLock lock(parent_of(final_));
  ::unlink((staging_ + "/" + std::string(kMarker)).c_str());
  // Another process may make the folder, or remove it, at the same time, where locks do not work.
  for (int attempt = 0;; ++attempt) {
    std::error_code error;
    const fs::file_status status = fs::symlink_status(final_, error);
    if (fs::is_directory(status)) return replace(force, diagnostics);
    if (fs::exists(status))
      return diagnostics.error(ErrorKind::kIo, "cannot write " + final_ + ": it exists and is not a folder");
    fs::rename(staging_, final_, error);
    if (!error) break;
    const bool lost_race = error == std::errc::directory_not_empty || error == std::errc::file_exists;
    if (!lost_race || attempt == 3)
      return diagnostics.error(ErrorKind::kIo, "cannot write " + final_ + ": " + error.message());
  }
  committed_ = true;
  note_finished(staging_);
  return {};
}

}  // namespace optc
