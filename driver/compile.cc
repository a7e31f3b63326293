// compile_model: model file to bundle folder.

#include <fmt/format.h>

#include <optional>

#include "driver/bisect.h"
#include "driver/gpu.h"
#include "driver/places.h"
#include "driver/step.h"
#include "driver/toolchain.h"
#include "emit/cpp/emit.h"
#include "emit/report/diff.h"
#include "emit/report/report.h"
#include "ir/program/gpu_machine.h"
#include "support/staging.h"

namespace optc {
namespace {

constexpr const char *kCompiler = "optc 0.1.0";

}  // namespace

Result<BundleFacts> compile_model(const std::string &path, const std::string &folder, const CompileOptions &options,
                                  Listener &listener, Diagnostics &diagnostics) {
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

  OPTC_ASSIGN(Graph model, load_model(path, options, listener, diagnostics));
  const Graph original = model.clone();
  OPTC_ASSIGN(const Optimized optimized, optimize_model(std::move(model), options, listener, diagnostics));
  std::vector<std::pair<std::string, std::string>> kept, gpu_kept;
  OPTC_ASSIGN(const Program program,
              lower_model(optimized.graph, after_rewrites(options, optimized), listener, diagnostics, false, &kept));

  std::optional<BundleCuda> cuda;
  if (gpu) {
    OPTC_ASSIGN(cuda, gpu_half(optimized.graph, facts.name, after_rewrites(options, optimized), listener, diagnostics,
                               &gpu_kept));
  }

  Step step(listener, "emit");
  OPTC_ASSIGN(const auto directory, StagedDirectory::create(folder, diagnostics));
  BundleOptions bundle;
  bundle.name = facts.name;
  bundle.weights = options.embed_weights ? BundleOptions::Weights::kEmbed : BundleOptions::Weights::kFile;
  bundle.runtime_folder = resource_path("runtime");
  bundle.compiler = kCompiler;
  const std::vector<RuleSummary> rules = summarize_rules(optimized.records);
  for (const RuleSummary &rule : rules) bundle.passes.push_back(fmt::format("{} x{}", rule.rule, rule.count));
  if (cuda) bundle.cuda = &*cuda;
  bundle.precision = to_string(options.precision);
  bundle.probe = options.probe;
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
  page.kept = std::move(kept);
  page.gpu_kept = std::move(gpu_kept);
  page.records = &optimized.records;
  page.missed = &optimized.missed;
  page.program = &program;
  page.memory = &report.memory;
  if (cuda && cuda->program) {
    page.gpu_program = cuda->program.get();
    page.gpu_schedule = &cuda->schedule;
    page.gpu_forms = &cuda->forms;
  }
  OPTC_TRY(directory->write("report.html", report_html(page), diagnostics));
  GraphDiff changes = diff_by_origin(original, optimized.graph, optimized.records);
  name_kernels(changes, optimized.graph, program);
  OPTC_TRY(directory->write("graph.html", diff_html(original, optimized.graph, changes, page.model + " → optimized"),
                            diagnostics));
  OPTC_TRY(directory->commit(diagnostics, options.force));

  facts.files = static_cast<int64_t>(report.files) + 2;  // and the two pages
  facts.kernels = static_cast<int64_t>(report.kernels);
  facts.weight_bytes = static_cast<int64_t>(report.weights_bytes);
  facts.arena_bytes = report.memory.arena_bytes;
  facts.bound_bytes = report.memory.lower_bound_bytes;
  const std::string arena = facts.arena_bytes < 0 ? "arena by the dims"
                                                  : fmt::format("arena {} (bound {})", format_bytes(facts.arena_bytes),
                                                                format_bytes(facts.bound_bytes));
  step.end(fmt::format("cpu (AVX-512, AVX2, baseline), {} files, {} of packed weights, {}", facts.files,
                       format_bytes(facts.weight_bytes), arena));
  return facts;
}

}  // namespace optc
