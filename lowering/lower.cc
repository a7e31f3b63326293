#include "lowering/lower.h"

#include "lowering/buffers/buffers.h"
#include "lowering/fusion/fusion.h"
#include "lowering/layout/layout.h"
#include "lowering/precision/precision.h"
#include "lowering/schedule/schedule.h"
#include "lowering/state/state.h"
#include "ops/build.h"

namespace optc {

Result<Program> lower(const Graph &graph, const LoweringOptions &options, LoweringReport &report,
                      Diagnostics &diagnostics) {
  OPTC_ASSIGN(Program program, build_program(graph, diagnostics));
  OPTC_TRY(lower_program(program, options, report, diagnostics));
  return program;
}

Status lower_program(Program &program, const LoweringOptions &options, LoweringReport &report,
                     Diagnostics &diagnostics) {
  report.kernels_before = static_cast<int64_t>(program.order.size());
  Steps steps(options.disabled, options.max_steps, report.steps);
  tidy(program, steps);
  sum_integers(program, options, steps);
  if (options.target == LoweringOptions::Target::kGpu) split_recurrent(program, steps);
  // Before fusion: whether a chain fits behind a convolution depends on how its tensors lie.
  if (options.channels_last) choose_layout(program, options, steps);
  if (options.fuse) {
    // Epilogues first: a bias that went into the transpose behind it could not join the product any more. Each round
    // can open the way for the next; every merge removes a kernel, so this ends.
    Uses uses(program);
    for (;;) {
      const int64_t merged = fuse_epilogues(program, uses, options, steps),
                    inlined = inline_producers(program, uses, options, steps);
      report.inlined += inlined;
      report.epilogues += merged;
      if (inlined + merged == 0) break;
    }
    if (keep_blocks(program, options, steps)) {
      // A table that a product read, too, has its gathers alone now: they dequantize the rows that they take.
      remove_dead_kernels(program);
      Uses left(program);
      report.inlined += inline_producers(program, left, options, steps);
    }
    fold_weights(program, options, steps);
  }
  remove_dead_kernels(program);
  if (options.fuse && options.target == LoweringOptions::Target::kCpu) split_loops(program, steps);
  if (options.target == LoweringOptions::Target::kGpu) recompute_rows(program, steps);
  OPTC_TRY(verify(program, diagnostics));
  if (options.target == LoweringOptions::Target::kGpu && options.channels_last) order_weights(program, steps);
  choose_storage(program, options, steps, report.precision);
  if (options.target == LoweringOptions::Target::kGpu && options.channels_last)
    lay_out_windows(program, options, steps);
  if (options.target == LoweringOptions::Target::kGpu) shorten_rounded(program, steps);
  OPTC_TRY(bind_states(program, options, steps, report.states, diagnostics));
  OPTC_TRY(choose_schedules(program, options, steps, report.choices, diagnostics));
  remove_dead_kernels(program);
  place_buffers(program, steps);
  estimate_costs(program);
  OPTC_TRY(verify(program, diagnostics));
  report.kernels_after = static_cast<int64_t>(program.order.size());
  return {};
}

}  // namespace optc
