#include "driver/toolchain.h"

#include <fmt/format.h>

#include <algorithm>

#include "driver/aliases.h"
#include "driver/bisect.h"
#include "driver/step.h"
#include "driver/storage_cost.h"
#include "driver/weight_cost.h"
#include "emit/onnx/export.h"
#include "emit/report/report.h"
#include "lowering/lower.h"
#include "optimizer/optimize.h"

namespace optc {

Result<Graph> load_model(const std::string &path, const CompileOptions &options, Listener &listener,
                         Diagnostics &diagnostics, WeightQuantization *settled) {
  Step step(listener, path.substr(path.find_last_of('/') + 1));
  OPTC_ASSIGN(Graph graph, import_model(path, options.import, diagnostics));
  const GraphFacts facts = facts_of(graph);
  std::string opset;
  for (const auto &[domain, version] : graph.info().opset_imports)
    if (domain.empty() || domain == "ai.onnx") opset = fmt::format("opset {}, ", version);
  step.end(fmt::format("{}{} nodes, {} parameters ({}), input {}", opset, facts.nodes, format_count(facts.parameters),
                       format_bytes(facts.parameter_bytes), describe_inputs(graph)));
  if (options.weights.format.bits > 0) OPTC_TRY(quantize_weights(graph, options, listener, diagnostics, settled));
  return graph;
}

Result<Optimized> optimize_model(Graph graph, const CompileOptions &options, Listener &listener,
                                 Diagnostics &diagnostics, std::vector<RewriteRecord> *made) {
  Optimized result;
  result.before = facts_of(graph);
  if (options.level > 0) {
    Step step(listener, "optimize");
    OptimizeOptions optimize_options;
    // The names of lowering's steps are no rules; the optimizer refuses what is neither.
    for (const std::string &name : options.disabled)
      if (std::none_of(lowering_steps().begin(), lowering_steps().end(),
                       [&](const LoweringStepInfo &step) { return names_step(name, step.name); }))
        optimize_options.disabled.push_back(name);
    if (options.opset > 0) {
      optimize_options.operators.name = fmt::format("opset {}", options.opset);
      optimize_options.operators.has = [opset = options.opset](std::string_view op, ElementType of) {
        return opset_has(opset, op, of);
      };
    }
    optimize_options.only = options.only;
    optimize_options.start_from = options.start_from;
    optimize_options.stop_after = options.stop_after;
    optimize_options.after_pass = options.after_pass;
    if (options.stop_after_rewrites >= 0) optimize_options.max_rewrites = options.stop_after_rewrites;
    OptimizeReport report;
    const Status done = optimize(graph, optimize_options, report, diagnostics);
    if (made) *made = report.rewrites;
    OPTC_TRY(done);
    result.records = std::move(report.rewrites);
    result.missed = std::move(report.missed);
    const std::vector<RuleSummary> rules = summarize_rules(result.records);
    std::string facts = fmt::format("{} → {} nodes", result.before.nodes, graph.live_node_count());
    for (size_t i = 0; i < rules.size() && i < 3; ++i)
      facts += fmt::format("{}{} {}", i == 0 ? ": " : ", ", rules[i].count, rules[i].rule);
    if (!report.left_as_it_is.empty()) facts += ", left as they are: " + report.left_as_it_is;
    if (rules.size() > 3) facts += fmt::format(", {} more rules", rules.size() - 3);
    step.end(facts);
    if (listener.wants_details())
      for (const RuleSummary &rule : rules)
        listener.end("", fmt::format("{:>4}  {:<28} {} → {} nodes", rule.count, rule.rule, rule.removed, rule.created),
                     0);
  }
  result.graph = std::move(graph);
  return result;
}

namespace {

// How many kernels of more than one way run by what was measured, and which ones do not.
std::string describe_tuning(const std::vector<ScheduleChoice> &choices) {
  constexpr size_t kNamed = 3;
  size_t measured = 0;
  std::vector<std::string> others;
  for (const ScheduleChoice &c : choices) {
    if (c.form.empty() || c.ranked.size() < 2) continue;
    c.measured ? void(++measured) : others.push_back(c.kernel);
  }
  std::string text = fmt::format(", {} by measurement", measured);
  if (others.empty()) return text;
  text += fmt::format(", {} of other ways not measured (", others.size());
  for (size_t i = 0; i < others.size() && i < kNamed; ++i) text += (i ? ", " : "") + others[i];
  return text + (others.size() > kNamed ? ", ...)" : ")");
}

// The tensors that must stay f32 for the outputs to stay what they are, measured on sample inputs.
Result<KeptTensors> costly_tensors(const Graph &graph, const LoweringOptions &lowering, const std::string &samples,
                                   Listener &listener, Diagnostics &diagnostics) {
  const bool gpu = lowering.target == LoweringOptions::Target::kGpu;
  Step step(listener, fmt::format("{}{}", to_string(lowering.precision), gpu ? " gpu" : ""));
  LoweringOptions wide = lowering;
  wide.precision = ElementType::kFloat32;
  LoweringReport report;
  OPTC_ASSIGN(const Program plain, lower(graph, wide, report, diagnostics));
  const LowerNarrow narrow = [&](const KeptTensors &kept, std::vector<std::string> &made) -> Result<Program> {
    LoweringOptions tried = lowering;
    tried.keep_f32 = kept;
    LoweringReport said;
    Diagnostics quiet;  // what it says is said again when the choice is made
    Result<Program> program = lower(graph, tried, said, quiet);
    made = std::move(said.precision.narrow);
    return program;
  };
  StorageCost cost = measure_storage(graph, samples, plain, narrow);
  if (!samples.empty() && !cost.unmeasured.empty())
    return diagnostics.error(ErrorKind::kUsage, "--calibrate " + samples + ": " + cost.unmeasured, {},
                             "a folder of inputs has input_0.pb or input_0.npy, ..., or NAME.npy");
  if (!cost.unmeasured.empty())
    diagnostics.warning(fmt::format("what --precision={}{} changes was {}", to_string(lowering.precision),
                                    gpu ? " on a GPU" : "", describe(cost)));
  step.end(describe(cost));
  return std::move(cost.kept);
}

}  // namespace

Result<Program> lower_model(const Graph &graph, const CompileOptions &options, Listener &listener,
                            Diagnostics &diagnostics, bool gpu,
                            std::vector<std::pair<std::string, std::string>> *kept) {
  LoweringReport report;
  Result<Program> program = lower_reported(graph, options, listener, diagnostics, gpu, report);
  if (kept) *kept = std::move(report.precision.kept);
  return program;
}

Result<Program> lower_reported(const Graph &graph, const CompileOptions &options, Listener &listener,
                               Diagnostics &diagnostics, bool gpu, LoweringReport &report) {
  LoweringOptions lowering;
  lowering.target = gpu ? LoweringOptions::Target::kGpu : LoweringOptions::Target::kCpu;
  lowering.fuse = options.level > 0;
  lowering.channels_last = options.level > 0;
  lowering.precision = options.precision;
  lowering.disabled = options.disabled;
  OPTC_ASSIGN(lowering.states, resolve_aliases(graph, options.aliases, diagnostics));
  lowering.tuning = options.tuning.get();
  lowering.machine = &machine_of(options.targets);
  lowering.warpgroups = all_have_warpgroups(options.targets);
  lowering.f32 = options.f32 == "ieee"   ? F32Products::kIEEE
                 : options.f32 == "tf32" ? F32Products::kTF32
                                         : F32Products::kThreeTF32;
  if (options.precision != ElementType::kFloat32) {
    OPTC_ASSIGN(lowering.keep_f32, costly_tensors(graph, lowering, options.samples, listener, diagnostics));
  }
  Step step(listener, gpu ? "lower gpu" : "lower");
  // What storage costs was measured on the whole of it: the first steps are the same ones then.
  if (options.stop_after_rewrites >= 0) lowering.max_steps = options.stop_after_rewrites;
  OPTC_ASSIGN(Program program, lower(graph, lowering, report, diagnostics));
  std::string facts = fmt::format("{} kernel{} (from {})", program.order.size(), program.order.size() == 1 ? "" : "s",
                                  report.kernels_before);
  if (options.precision != ElementType::kFloat32)
    facts += fmt::format(", {} of {} tensors in {}", report.precision.temporaries + report.precision.constants,
                         report.precision.temporaries + report.precision.constants + report.precision.kept.size(),
                         to_string(options.precision));
  if (options.tuning && !options.tuning->ways.empty()) facts += describe_tuning(report.choices);
  const std::string states = describe_states(report.states);
  if (!states.empty()) facts += ", " + states;
  step.end(facts);
  for (const StateReport &state : report.states)
    for (const std::string &copy : state.copies) listener.end("", fmt::format("copied each run: {}", copy), 0);
  return program;
}

}  // namespace optc
