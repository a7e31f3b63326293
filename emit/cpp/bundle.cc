// The files of a bundle.
#include <fmt/format.h>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "emit/cpp/bundle_writer.h"
#include "emit/cpp/manifest.h"
#include "emit/cpp/names.h"
#include "emit/cpp/text_lines.h"
#include "support/file.h"

namespace optc {
namespace {

namespace fs = std::filesystem;

// Quoted includes of a file, as written.
std::vector<std::string> quoted_includes(const std::string &text) {
  std::vector<std::string> found;
  for (size_t at = 0; (at = text.find("#include \"", at)) != std::string::npos;) {
    at += 10;
    const size_t end = text.find('"', at);
    if (end == std::string::npos) break;
    found.push_back(text.substr(at, end - at));
  }
  return found;
}

constexpr std::string_view kLibraryMark = "@LIBRARY@";  // of model_source.cc
constexpr size_t kMaxRank = 8;                          // OPTC_MAX_RANK of runtime/optc.h

std::string workspace_text(const MemoryPlan &plan) {
  return plan.arena_bytes >= 0  ? fmt::format("workspace {} bytes", plan.arena_bytes)
         : plan.peak_bytes >= 0 ? fmt::format(
                                      "workspace by dims, at most {} bytes with one thread (workspace_bytes and "
                                      "workspace_peak of the API tell)",
                                      plan.peak_bytes)
                                : "workspace by dims (workspace_bytes of the API tells)";
}

}  // namespace

BundleWriter::BundleWriter(const Program &program, const BundleOptions &options, StagedDirectory &directory,
                           Diagnostics &diagnostics)
    : program_(program), options_(options), directory_(directory), diagnostics_(diagnostics) {
  name_ = bundle_name(options.name.empty() ? (program.name.empty() ? "model" : program.name) : options.name);
}

// Every entry is printed before the first file is written: the weights are those of all.
Result<BundleReport> BundleWriter::write() {
  facts_.externs = extern_functions(program_, name_);
  ModelPrinter model(program_, name_, weights_, diagnostics_, options_.probe);
  model.externs = facts_.externs;
  OPTC_TRY(model.print());
  std::vector<ModelEntry> others;
  if (options_.cuda && options_.cuda->schedule.by_host()) {  // some of its kernels run here, or all are watched
    printers_.push_back(std::make_unique<ModelPrinter>(*options_.cuda->program, name_ + "_host", weights_, diagnostics_,
                                                       options_.probe,
                                                       GpuHost{&options_.cuda->schedule, &options_.cuda->buffers}));
    printers_.back()->externs = facts_.externs;
    OPTC_TRY(printers_.back()->print());
    others.push_back({printers_.back().get(), "Mixed", "host_",
                      "The same model where a GPU takes part: its kernels run there, those without a GPU form here.",
                      "", ""});
  }
  for (const BundleVariant &variant : options_.variants) OPTC_TRY(print_variant(variant, model, others));
  facts_.name = name_;
  facts_.compiler = options_.compiler.empty() ? "optc" : options_.compiler;
  facts_.source = fs::path(program_.info.source_path).filename().string();
  if (facts_.source.empty()) facts_.source = program_.info.name.empty() ? "a model" : program_.info.name;
  if (!program_.info.source_hash.empty()) facts_.source += " (xxh3 " + program_.info.source_hash.substr(0, 16) + ")";
  weights_bytes_ = weights_.bytes();
  if (options_.cuda) {
    facts_.sources.push_back("cuda.cpp");
    OPTC_TRY(put("src/cuda.cpp", options_.cuda->source));
    for (const auto &[file, text] : options_.cuda->ptx) OPTC_TRY(put("kernels/" + file, text));
    cuda_weights_ = (std::max<uint64_t>(weights_bytes_, 64) + 255) / 256 * 256;
    model.cuda_weights = static_cast<int64_t>(cuda_weights_);
    weights_bytes_ = cuda_weights_ + options_.cuda->weights_bytes;
  }
  facts_.weights_file = weights_bytes_ > 0 && options_.weights == BundleOptions::Weights::kFile;
  facts_.sizes = size_lines(program_);
  std::vector<VariantFacts> variants;
  for (const ModelEntry &other : others) {
    if (other.sizes.empty()) continue;
    const BundleVariant &variant = options_.variants[variants.size()];
    variants.push_back({other.sizes, variant.program, other.printer});
    facts_.sizes.push_back(fmt::format("variant {}: code of its own for these sizes, {}", other.sizes,
                                       workspace_text(other.printer->memory_plan())));
  }

  facts_.variants = !variants.empty();

  OPTC_TRY(write_weights());
  OPTC_TRY(write_kernels(model, name_, ""));
  for (const ModelEntry &other : others) OPTC_TRY(write_kernels(*other.printer, other.printer->name(), other.prefix));
  OPTC_TRY(put("include/" + name_ + ".h", c_header(program_, facts_)));
  OPTC_TRY(put("include/" + name_ + ".hpp", cpp_header(program_, facts_)));
  const std::string manifest = manifest_json(program_, model, options_, name_, {weights_bytes_, hash_text_}, variants);
  OPTC_TRY(put("manifest.json", manifest));
  if (options_.weights == BundleOptions::Weights::kEmbed) OPTC_TRY(embed_manifest(manifest));
  places_.name = name_;
  ModelSources sources = model.model_sources(name_, places_, others);
  facts_.functions.insert(model.library_functions.begin(), model.library_functions.end());
  for (const auto &printer : printers_)
    facts_.functions.insert(printer->library_functions.begin(), printer->library_functions.end());
  OPTC_TRY(library_includes(facts_.functions, sources));
  if (!sources.header.empty()) OPTC_TRY(put("src/model.h", sources.header));
  for (const auto &[file, text] : sources.files) {
    OPTC_TRY(put("src/" + file, text));
    facts_.sources.push_back(file);
  }
  OPTC_TRY(put("CMakeLists.txt", cmake_lists(facts_)));
  OPTC_TRY(put("examples/main.cpp", example_main(facts_)));
  OPTC_TRY(put("python/" + name_ + ".py", python_module(program_, facts_)));
  OPTC_TRY(put("README.md",
               readme(program_, facts_,
                      fmt::format("{}, weights {} bytes", workspace_text(model.memory_plan()), weights_bytes_))));
  OPTC_TRY(runtime_files());
  BundleReport report;
  report.kernels = model.kernels.size();
  report.files = files_;
  report.weights_bytes = weights_bytes_;
  report.memory = model.memory_plan();
  for (const ModelEntry &other : others)
    if (!other.sizes.empty()) report.variants.push_back(other.printer->memory_plan());
  return report;
}

Status BundleWriter::print_variant(const BundleVariant &variant, ModelPrinter &model, std::vector<ModelEntry> &others) {
  const std::string sizes = to_string(variant.sizes), guard = model.guard(variant.sizes);
  if (guard.empty())
    return diagnostics_.error(ErrorKind::kUsage,
                              fmt::format("variant {}: not every name is the size of an input's dim", sizes), {},
                              "`optc inspect MODEL` shows the inputs; a dim that --dim sets cannot vary");
  const Program &program = *variant.program;
  if (program.input_names != program_.input_names || program.output_names != program_.output_names)
    return diagnostics_.error(ErrorKind::kInternal,
                              fmt::format("variant {} has another signature than the model", sizes));
  std::string wish;
  for (const SizeRange &range : variant.sizes) {
    wish += (wish.empty() ? "" : "_") + range.name + std::to_string(range.min);
    if (range.max != range.min) wish += "to" + std::to_string(range.max);
  }
  std::transform(wish.begin(), wish.end(), wish.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  const std::string id = titles_.unique(wish);
  printers_.push_back(
      std::make_unique<ModelPrinter>(program, name_ + "_" + id, weights_, diagnostics_, options_.probe));
  printers_.back()->externs = facts_.externs;
  OPTC_TRY(printers_.back()->print());
  others.push_back({printers_.back().get(), "Variant_" + id, id + "_",
                    fmt::format("The same model for {} alone.", comment_text(sizes)), sizes, guard});
  return {};
}

std::string to_string(const std::vector<SizeRange> &sizes) {
  std::string text;
  for (const SizeRange &range : sizes) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", range.name, range.min);
    if (range.max != range.min) text += fmt::format("..{}", range.max);
  }
  return text;
}

Status BundleWriter::put(const std::string &path, const std::string &text) {
  ++files_;
  if (path.compare(0, 4, "src/") == 0)
    for (const std::string &include : quoted_includes(text)) wanted_.insert(include);
  const std::string kind = fs::path(path).extension().string();
  const bool code = kind == ".cpp" || kind == ".inc" || kind == ".h" || kind == ".hpp";
  return directory_.write(path, code ? wrap_code(text) : text, diagnostics_);
}

// Library functions live in runtime/cpu/lib_*.h: the header that defines each.
Status BundleWriter::library_includes(const std::set<std::string> &functions, ModelSources &sources) {
  std::set<std::string> headers;
  for (const std::string &function : functions) {
    bool found = false;
    std::error_code failed;
    std::vector<fs::path> files;
    for (const auto &entry : fs::directory_iterator(fs::path(options_.runtime_folder) / "cpu", failed))
      files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const fs::path &path : files) {
      const std::string file = path.filename().string();
      if (file.compare(0, 4, "lib_") != 0 || path.extension() != ".h") continue;
      OPTC_ASSIGN(const std::string text, read_file(path.string(), diagnostics_));
      if (text.find("int optc_lib_" + function + "(") == std::string::npos) continue;
      headers.insert(file);
      found = true;
      break;
    }
    if (!found)
      return diagnostics_.error(ErrorKind::kUnsupported,
                                fmt::format("the runtime has no library operator '{}'", function));
  }
  std::string includes;
  for (const std::string &h : headers) includes += "#include \"runtime/cpu/" + h + "\"\n";
  const auto fill = [&](std::string &text) {
    const size_t at = text.find(kLibraryMark);
    if (at != std::string::npos) text.replace(at, kLibraryMark.size(), includes);
  };
  fill(sources.header);
  for (auto &[file, text] : sources.files) fill(text);
  return {};
}

// The runtime headers that the sources include, and theirs.
Status BundleWriter::runtime_files() {
  std::vector<std::string> queue(wanted_.begin(), wanted_.end());
  std::set<std::string> done;
  OPTC_ASSIGN(const std::string abi, read_file(options_.runtime_folder + "/optc.h", diagnostics_));
  OPTC_TRY(put("include/optc.h", abi));
  while (!queue.empty()) {
    const std::string include = queue.back();
    queue.pop_back();
    if (include.compare(0, 8, "runtime/") != 0 || !done.insert(include).second || include == "runtime/optc.h") continue;
    OPTC_ASSIGN(std::string text, read_file(options_.runtime_folder + include.substr(7), diagnostics_));
    for (std::string next : quoted_includes(text)) {
      if (next.compare(0, 8, "runtime/") != 0) next = include.substr(0, include.rfind('/') + 1) + next;
      queue.push_back(next);
    }
    // In a bundle the ABI is the public header.
    for (size_t at; (at = text.find("\"runtime/optc.h\"")) != std::string::npos;) text.replace(at, 16, "\"optc.h\"");
    ++files_;
    OPTC_TRY(directory_.write("src/" + include, text, diagnostics_));
  }
  return {};
}

Result<BundleReport> emit_bundle(const Program &program, const BundleOptions &options, StagedDirectory &directory,
                                 Diagnostics &diagnostics) {
  for (const auto *list : {&program.inputs, &program.outputs})
    for (BufferId id : *list) {
      const Buffer &b = program.buffer(id);
      if (b.type.is_tensor() && b.shape().size() > kMaxRank)
        return diagnostics.error(ErrorKind::kUnsupported,
                                 fmt::format("'{}' has rank {}: a bundle takes and gives tensors up to rank {}", b.name,
                                             b.shape().size(), kMaxRank),
                                 {}, "reshape it in the model");
    }
  return BundleWriter(program, options, directory, diagnostics).write();
}

Result<std::string> print_kernel(const Program &program, const Kernel &kernel, Diagnostics &diagnostics) {
  if (!kernel.nest()) return diagnostics.error(ErrorKind::kUnsupported, "only loop nests are printed as one function");
  FaultPlaces places;
  OPTC_ASSIGN(const KernelText text, NestPrinter(program, kernel, places).print(diagnostics));
  return text.text;
}

}  // namespace optc
