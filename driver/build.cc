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

// The state of the files in `folder` and, when `deep`, below it.
std::string stamps(const std::string &folder, bool deep) {
  std::error_code error;
  std::vector<std::string> all;
  for (std::filesystem::recursive_directory_iterator at(folder, error), end; at != end; at.increment(error)) {
    if (error) break;
    if (!deep) at.disable_recursion_pending();
    all.push_back(stamp(at->path().string()));
  }
  std::sort(all.begin(), all.end());
  std::string text;
  for (const std::string &s : all) text += "\n" + s;
  return text;
}

// Every option, with the state of the files that it names. The fields are named one by one, so that one which is added
// does not compile until it stands here.
std::string text_of(const CompileOptions &options) {
  [[maybe_unused]] const auto &[import, level, disabled, targets, name, f32, precision, samples, weights, force,
                                dry_run, embed_weights, probe, stop_after_rewrites, variants, aliases, tuning, only,
                                start_from, stop_after, after_pass, opset] = options;
  const auto &[dims, shapes, custom_ops, externs, max_nodes, constant_defaults] = import;
  std::string text = fmt::format(
      "level={} f32={} precision={} embed={} probe={} stop={} opset={} nodes={} defaults={} name={} passes={}..{}",
      level, f32, to_string(precision), embed_weights, probe, stop_after_rewrites, opset, max_nodes, constant_defaults,
      name, start_from, stop_after);
  for (const std::string &target : targets) text += "\ntarget " + target;
  for (const std::string &rule : disabled) text += "\nwithout " + rule;
  for (const std::string &rule : only) text += "\nonly " + rule;
  for (const std::string &file : custom_ops) text += "\ncustom " + stamp(file);
  for (const ExternOperator &external : externs) {
    text += fmt::format("\nextern {}::{}", external.domain, external.name);
    for (const auto &[element, sizes] : external.outputs)
      text += fmt::format(" {}[{}]", to_string(element), fmt::join(sizes, ","));
  }
  for (const DimPin &pin : dims) text += fmt::format("\n{}={}..{}", pin.name, pin.min, pin.max);
  for (const auto &[input, sizes] : shapes) text += fmt::format("\n{}={}", input, fmt::join(sizes, "x"));
  for (const std::string &alias : aliases) text += "\nalias " + alias;
  for (const std::vector<DimPin> &sizes : variants) text += "\nvariant " + describe(sizes);
  if (tuning) text += "\ntuned";
  for (const auto &[form, way] : tuning ? tuning->ways : decltype(tuning->ways)()) text += "\n" + form + " " + way;
  text += "\nweights " + to_string(weights.format) + (weights.measure ? " measured" : "");
  for (const std::string &kept : weights.keep) text += "\nkept " + kept;
  if (!samples.empty()) text += "\nsamples" + stamps(samples, false);
  return text;
}

// What the result depends on: the bytes of the model, the state of its external data, the options, and optc itself with
// the runtime that it copies.
Result<std::string> cache_key(const std::string &path, const CompileOptions &options, Diagnostics &diagnostics) {
  OPTC_ASSIGN(const auto file, MappedFile::open(path, diagnostics));
  std::string key = xxh3_128(file->data(), file->size());
  // External data is named by an entry with this key; hashing it would take longer than compiling.
  static constexpr char kLocation[] = "\x0a\x08location";
  if (file->size() > 0 && memmem(file->data(), file->size(), kLocation, sizeof(kLocation) - 1)) {
    std::error_code error;
    key += stamps(std::filesystem::absolute(path, error).parent_path().string(), false);
  }
  key +=
      "\n" + stamp(install_prefix() + "/bin/optc") + stamps(resource_path("runtime"), true) + "\n" + text_of(options);
  return xxh3_128(key.data(), key.size()).substr(0, 16);
}

constexpr int64_t kYoung = 3600;  // seconds: what was used since is not removed unasked

}  // namespace

Status check_runnable(const CompileOptions &options, Diagnostics &diagnostics) {
  if (options.import.externs.empty()) return {};
  const ExternOperator &first = options.import.externs.front();
  return diagnostics.error(
      ErrorKind::kUnsupported,
      fmt::format("the model needs {}::{}, which --extern leaves to an application: optc cannot run it", first.domain,
                  first.name),
      {}, "compile it by `optc MODEL -o DIR --extern ...`; or give the operator a body by --custom-op, to run it here");
}

Result<BuiltBundle> build_model(const std::string &path, const CompileOptions &options, Listener &listener,
                                Diagnostics &diagnostics) {
  OPTC_TRY(check_runnable(options, diagnostics));
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
