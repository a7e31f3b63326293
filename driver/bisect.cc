#include "driver/bisect.h"

#include <algorithm>

namespace optc {

CompileOptions after_rewrites(CompileOptions options, const Optimized &optimized) {
  if (options.stop_after_rewrites >= 0)
    options.stop_after_rewrites =
        std::max<int64_t>(0, options.stop_after_rewrites - static_cast<int64_t>(optimized.records.size()));
  return options;
}

Result<std::vector<CompileStep>> list_steps(const Graph &model, const CompileOptions &options, Listener &listener,
                                            Diagnostics &diagnostics) {
  std::vector<RewriteRecord> made;
  Diagnostics unsaid;
  const auto optimized = optimize_model(model.clone(), options, listener, unsaid, &made);
  std::vector<CompileStep> steps;
  for (const RewriteRecord &r : made) {
    const std::vector<NodeStamp> &nodes = r.removed.empty() ? r.created : r.removed;
    steps.push_back({r.rule, nodes.empty() ? "" : nodes[0].name, false});
  }
  if (!optimized.ok()) {
    if (!steps.empty()) return steps;  // up to the one that inference or the Graph's verifier refuses
    for (const Diagnostic &d : unsaid.all()) (void)diagnostics.add(d);
    return optimized.failure();
  }
  LoweringReport report;
  const auto lowered = lower_reported(optimized->graph, after_rewrites(options, *optimized), listener, unsaid,
                                      has_gpu_target(options), report);
  // Where the verifier refuses what the steps made, they are the ones to search through.
  if (!lowered.ok() && (lowered.failure().kind != ErrorKind::kInternal || report.steps.empty())) {
    for (const Diagnostic &d : unsaid.all()) (void)diagnostics.add(d);
    return lowered.failure();
  }
  for (LoweringStep &step : report.steps) steps.push_back({std::move(step.name), std::move(step.where), true});
  return steps;
}

Result<int64_t> first_wrong_step(int64_t count, const std::function<Result<bool>(int64_t)> &agrees) {
  int64_t good = 0, bad = count;
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    OPTC_ASSIGN(const bool ok, agrees(middle));
    (ok ? good : bad) = middle;
  }
  return bad;
}

}  // namespace optc
