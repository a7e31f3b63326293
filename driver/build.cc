// build_model: a compiled and built bundle in the cache folder.

#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "driver/bundle.h"
#include "driver/cache.h"
#include "driver/places.h"
#include "driver/step.h"
#include "driver/toolchain.h"
#include "support/file.h"

namespace optc {
namespace {

std::string stamp(const std::string &path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return path;
  return fmt::format("{} {} {}.{}", path, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

// What the result depends on: the bytes of the model, the state of its external data, the options, and optc itself.
Result<std::string> cache_key(const std::string &path, const CompileOptions &options, Diagnostics &diagnostics) {
  OPTC_ASSIGN(const auto file, MappedFile::open(path, diagnostics));
  std::string key = xxh3_128(file->data(), file->size());
  // External data is named by an entry with this key; hashing it would take longer than compiling.
  static constexpr char kLocation[] = "\x0a\x08location";
  if (file->size() > 0 && memmem(file->data(), file->size(), kLocation, sizeof(kLocation) - 1)) {
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::absolute(path, error).parent_path();
    std::vector<std::string> stamps;
    for (const auto &entry : std::filesystem::directory_iterator(folder, error))
      stamps.push_back(stamp(entry.path().string()));
    std::sort(stamps.begin(), stamps.end());
    for (const std::string &s : stamps) key += "\n" + s;
  }
  key += "\n" + stamp(install_prefix() + "/bin/optc");
  for (const std::string &target : options.targets) key += " target=" + target;
  if (!options.samples.empty()) {
    std::error_code error;
    std::vector<std::string> stamps;
    for (const auto &entry : std::filesystem::directory_iterator(options.samples, error))
      stamps.push_back(stamp(entry.path().string()));
    std::sort(stamps.begin(), stamps.end());
    for (const std::string &s : stamps) key += "\nsample " + s;
  }
  for (const std::string &rule : options.disabled) key += " without=" + rule;
  for (const DimPin &pin : options.import.dims) key += fmt::format(" {}={}..{}", pin.name, pin.min, pin.max);
  for (const auto &[name, dims] : options.import.shapes) {
    key += " " + name + "=";
    for (const std::string &dim : dims) key += dim + "x";
  }
  key += fmt::format(" level={} f32={} precision={} embed={} probe={} stop={} name={}", options.level, options.f32,
                     to_string(options.precision), options.embed_weights, options.probe, options.stop_after_rewrites,
                     options.name);
  return xxh3_128(key.data(), key.size()).substr(0, 16);
}

constexpr int64_t kYoung = 3600;  // seconds: what was used since is not removed unasked

}  // namespace

Result<BuiltBundle> build_model(const std::string &path, const CompileOptions &options, Listener &listener,
                                Diagnostics &diagnostics) {
  BuiltBundle built;
  built.name = options.name.empty() ? name_of_model(path) : options.name;
  OPTC_ASSIGN(const std::string key, cache_key(path, options, diagnostics));
  const std::string base = fmt::format("{}/{}-{}", bundle_cache_path(), built.name, key);
  built.folder = base + "/bundle";
  built.library = base + "/build/lib/lib" + built.name + ".so";
  std::error_code error;
  std::filesystem::create_directories(bundle_cache_path(), error);
  const FileLock lock(base + ".lock");  // of two processes that want the same bundle, the second finds it made
  if (exists(built.folder + "/manifest.json") && exists(built.library)) {
    utimensat(AT_FDCWD, base.c_str(), nullptr, 0);  // used now
    return built;
  }
  (void)prune_cache(cache_limit(), kYoung);
  std::filesystem::remove_all(base, error);
  std::filesystem::create_directories(base, error);
  if (error) return diagnostics.error(ErrorKind::kIo, fmt::format("cannot make {}: {}", base, error.message()));
  OPTC_TRY(compile_model(path, built.folder, options, listener, diagnostics));
  Step step(listener, "build");
  OPTC_ASSIGN(built.library, build_bundle(built.folder, built.name, base + "/build", diagnostics));
  step.end("shared library by the system's C++ compiler");
  return built;
}

}  // namespace optc
