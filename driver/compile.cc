// compile_model: model file to bundle folder.

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "driver/bisect.h"
#include "driver/gpu.h"
#include "driver/places.h"
#include "driver/step.h"
#include "driver/toolchain.h"
#include "emit/cpp/emit.h"
#include "emit/report/diff.h"
#include "emit/report/report.h"
#include "importer/provenance.h"
#include "ir/program/gpu_machine.h"
#include "support/staging.h"

namespace optc {
namespace {

constexpr const char *kCompiler = "optc 0.1.0";

class Quiet : public Listener {
 public:
  void begin(std::string_view) override {}
  void progress(int64_t, int64_t) override {}
  void end(std::string_view, const std::string &, double) override {}
};

std::vector<SizeRange> ranges(const std::vector<DimPin> &pins) {
  std::vector<SizeRange> list;
  for (const DimPin &pin : pins) list.push_back({pin.name, pin.min, pin.max});
  return list;
}

// What variants do not go with.
Status check_variants(const CompileOptions &options, bool gpu, Diagnostics &diagnostics) {
  if (options.variants.empty()) return {};
  if (gpu)
    return diagnostics.error(ErrorKind::kUnsupported, "--variant: a bundle with a GPU half has none yet", {},
                             "leave the GPU out of --target, or compile a bundle for each size by --dim");
  if (options.probe)
    return diagnostics.error(ErrorKind::kUsage, "--variant: kernels are watched in a bundle of one entry", {},
                             "give the variant's sizes by --dim");
  for (size_t i = 0; i < options.variants.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (describe(options.variants[i]) == describe(options.variants[k]))
        return diagnostics.error(ErrorKind::kUsage,
                                 fmt::format("--variant {} is given twice", describe(options.variants[i])));
  return {};
}

// Seconds of one core that g++ takes for a bundle, by the bytes of its kernels' sources, each of which is compiled for
// three instruction sets: fitted to seven models of 4 to 110 KB, within 20 % of it (bench/README.md has them).
constexpr double kSecondsOfAny = 5.5, kSecondsPerByte = 0.26 / 1024;

void weigh_files(const std::map<std::string, uint64_t> &sizes, BundleFacts &facts) {
  facts.build_seconds = kSecondsOfAny;
  for (const auto &[path, bytes] : sizes) {
    facts.bytes += static_cast<int64_t>(bytes);
    const size_t dot = path.rfind('.');
    const std::string ending = dot == std::string::npos ? "" : path.substr(dot);
    if (path.rfind("src/", 0) != 0 || (ending != ".cpp" && ending != ".h" && ending != ".inc")) continue;
    facts.code_bytes += static_cast<int64_t>(bytes);
    if (path.find('/', 4) == std::string::npos && path.find("kernels") != std::string::npos)
      facts.build_seconds += static_cast<double>(bytes) * kSecondsPerByte;
  }
}

}  // namespace

std::string describe(const std::vector<DimPin> &sizes) { return to_string(ranges(sizes)); }

Result<Program> lower_variant(const std::string &path, const CompileOptions &options, const std::vector<DimPin> &sizes,
                              Listener &listener, Diagnostics &diagnostics, std::vector<ScheduleChoice> *choices) {
  CompileOptions narrowed = options;
  narrowed.name.clear();
  narrowed.variants.clear();
  const std::string name = describe(sizes);
  for (const DimPin &pin : sizes) {
    const auto general = std::find_if(narrowed.import.dims.begin(), narrowed.import.dims.end(),
                                      [&](const DimPin &other) { return other.name == pin.name; });
    if (general == narrowed.import.dims.end()) {
      narrowed.import.dims.push_back(pin);
      continue;
    }
    if (general->min == general->max || pin.min < general->min || pin.max > general->max)
      return diagnostics.error(
          ErrorKind::kUsage, fmt::format("--variant {}: --dim {} leaves no such size open", name, describe({*general})),
          {}, "a variant is for some of the sizes that the bundle takes");
    *general = pin;
  }
  Quiet quiet;
  Step step(listener, name);
  OPTC_ASSIGN(Graph model, load_model(path, narrowed, quiet, diagnostics));
  OPTC_ASSIGN(const Optimized optimized, optimize_model(std::move(model), narrowed, quiet, diagnostics));
  LoweringReport report;
  OPTC_ASSIGN(Program program,
              lower_reported(optimized.graph, after_rewrites(narrowed, optimized), quiet, diagnostics, false, report));
  if (choices) *choices = std::move(report.choices);
  step.end(fmt::format("{} kernels for these sizes", program.order.size()));
  return program;
}

Result<BundleFacts> compile_model(const std::string &path, const std::string &folder, const CompileOptions &given,
                                  Listener &listener, Diagnostics &diagnostics) {
  CompileOptions options = given;
  BundleFacts facts;
  facts.folder = folder;
  facts.name = options.name.empty() ? name_of_model(path) : options.name;
  if (!is_bundle_name(facts.name))
    return diagnostics.error(ErrorKind::kUsage, fmt::format("'{}' cannot be a bundle's name", facts.name));
  bool gpu = false;
  for (const std::string &target : options.targets) {
    if (target != "cpu" && !is_gpu_target(target))
      return diagnostics.error(ErrorKind::kUnsupported, fmt::format("--target {}: not known", target), {},
                               "known are cpu, " + gpu_target_names());
    gpu = gpu || target != "cpu";
  }

  OPTC_TRY(check_variants(options, gpu, diagnostics));

  OPTC_ASSIGN(Graph model, load_model(path, given, listener, diagnostics, &options.weights));
  const Graph original = model.clone();
  OPTC_ASSIGN(const Optimized optimized, optimize_model(std::move(model), options, listener, diagnostics));
  std::vector<std::pair<std::string, std::string>> gpu_kept;
  LoweringReport lowered;
  OPTC_ASSIGN(const Program program, lower_reported(optimized.graph, after_rewrites(options, optimized), listener,
                                                    diagnostics, false, lowered));

  std::optional<BundleCuda> cuda;
  if (gpu) {
    OPTC_ASSIGN(cuda, gpu_half(optimized.graph, facts.name, after_rewrites(options, optimized), listener, diagnostics,
                               &gpu_kept));
  }

  std::vector<Program> variants;
  std::vector<std::vector<ScheduleChoice>> variant_choices;
  for (const std::vector<DimPin> &sizes : options.variants) {
    OPTC_ASSIGN(Program variant,
                lower_variant(path, options, sizes, listener, diagnostics, &variant_choices.emplace_back()));
    variants.push_back(std::move(variant));
  }

  Step step(listener, "emit");
  std::unique_ptr<StagedDirectory> directory;
  if (options.dry_run) {
    directory = StagedDirectory::nowhere();
  } else {
    OPTC_ASSIGN(directory, StagedDirectory::create(folder, diagnostics));
  }
  BundleOptions bundle;
  bundle.name = facts.name;
  bundle.weights = options.embed_weights ? BundleOptions::Weights::kEmbed : BundleOptions::Weights::kFile;
  bundle.runtime_folder = resource_path("runtime");
  bundle.compiler = kCompiler;
  const std::vector<RuleSummary> rules = summarize_rules(optimized.records);
  for (const RuleSummary &rule : rules) bundle.passes.push_back(fmt::format("{} x{}", rule.rule, rule.count));
  if (cuda) bundle.cuda = &*cuda;
  bundle.precision = to_string(options.precision);
  bundle.weights_quantized = options.weights.made;
  bundle.probe = options.probe;
  bundle.choices = std::move(lowered.choices);
  for (size_t i = 0; i < variants.size(); ++i)
    bundle.variants.push_back({ranges(options.variants[i]), &variants[i], std::move(variant_choices[i])});
  OPTC_ASSIGN(const BundleReport report, emit_bundle(program, bundle, *directory, diagnostics));

  ReportInput page;
  page.name = facts.name;
  page.model = path.substr(path.find_last_of('/') + 1);
  page.version = kCompiler + 5;  // without "optc "
  page.nodes_before = optimized.before.nodes;
  page.nodes_after = static_cast<int64_t>(optimized.graph.live_node_count());
  page.weight_bytes = static_cast<int64_t>(report.weights_bytes);
  page.targets = options.targets;
  page.precision = options.precision;
  page.weights = options.weights.made;
  page.kept = std::move(lowered.precision.kept);
  page.gpu_kept = std::move(gpu_kept);
  page.records = &optimized.records;
  page.missed = &optimized.missed;
  page.program = &program;
  page.memory = &report.memory;
  for (size_t i = 0; i < variants.size(); ++i)
    page.variants.push_back({describe(options.variants[i]), &variants[i], &report.variants[i]});
  if (cuda && cuda->program) {
    page.gpu_program = cuda->program.get();
    page.gpu_schedule = &cuda->schedule;
    page.gpu_forms = &cuda->forms;
  }
  OPTC_TRY(directory->write("report.html", report_html(page), diagnostics));
  GraphDiff changes = diff_by_origin(original, optimized.graph, optimized.records);
  name_kernels(changes, optimized.graph, program);
  PageFacts drawn;
  drawn.rewrites = &optimized.records;
  drawn.lowering = &lowered.steps;
  drawn.program = &program;
  OPTC_ASSIGN(drawn.scopes, noted_scopes(path, diagnostics));
  OPTC_TRY(directory->write(
      "graph.html", diff_html(original, optimized.graph, changes, page.model + " → optimized", drawn), diagnostics));
  OPTC_TRY(directory->commit(diagnostics, options.force));

  weigh_files(directory->sizes(), facts);
  facts.files = static_cast<int64_t>(report.files) + 2;  // and the two pages
  facts.kernels = static_cast<int64_t>(report.kernels);
  facts.weights = options.weights.made;
  facts.weight_bytes = static_cast<int64_t>(report.weights_bytes);
  facts.arena_bytes = report.memory.arena_bytes;
  facts.bound_bytes = report.memory.lower_bound_bytes;
  facts.peak_bytes = report.memory.peak_bytes;
  for (size_t i = 0; i < variants.size(); ++i)
    facts.variants.push_back({describe(options.variants[i]), static_cast<int64_t>(variants[i].order.size()),
                              report.variants[i].arena_bytes});
  const std::string arena =
      facts.arena_bytes < 0 && facts.peak_bytes >= 0
          ? fmt::format("arena by the dims, at most {}", format_bytes(facts.peak_bytes))
      : facts.arena_bytes < 0
          ? "arena by the dims"
          : fmt::format("arena {} (bound {})", format_bytes(facts.arena_bytes), format_bytes(facts.bound_bytes));
  const std::string entries =
      variants.empty() ? "" : fmt::format(", {} variant{}", variants.size(), variants.size() == 1 ? "" : "s");
  step.end(fmt::format("cpu (AVX-512, AVX2, baseline){}, {} files, {} of packed weights, {}", entries, facts.files,
                       format_bytes(facts.weight_bytes), arena));
  return facts;
}

}  // namespace optc
