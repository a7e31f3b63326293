// Products by quantized weights, by runtime/cpu/gemm_blocks.h and gemm_blocks_i8.h.
#include <fmt/format.h>

#include "emit/cpp/nest.h"
#include "ir/program/block_view.h"
#include "runtime/cpu/gemm_blocks_plan.h"

namespace optc {
namespace {

const char *stored_rows(ElementType type) {
  return type == ElementType::kFloat16    ? "StoredRows<StoredF16>"
         : type == ElementType::kBFloat16 ? "StoredRows<StoredBF16>"
                                          : "StoredRows<StoredF32>";
}
const char *rounding(ElementType type) {
  return type == ElementType::kFloat16 ? "kF16" : type == ElementType::kBFloat16 ? "kBF16" : "kNone";
}

}  // namespace

bool NestPrinter::print_as(const GemmBlocksSchedule &schedule) {
  const GemmView &view = schedule.view;
  if (!schedule.codes.buffer.valid() || !schedule.packed_scales.buffer.valid() ||
      !plan_epilogue(view.batch, view.m, view.n))
    return false;
  std::vector<Loop> batch = view.batch;
  drop_unit_loops(batch);
  const OperandView &row_scale = schedule.activations.scale;
  const bool bytes = row_scale.buffer.valid();
  text_.headers = {bytes ? "runtime/cpu/gemm_blocks_i8.h" : "runtime/cpu/gemm_blocks.h", "runtime/bundle/sinks.h"};
  text_.plan_headers = {"runtime/cpu/gemm_blocks_plan.h"};
  text_.panels = panel_bits(optc_gemm_panels(view.columns.value()));
  const size_t row_loops = outer_.size() - batch.size() - 1;
  const std::string a = buffer_name(view.a.buffer), a_scale = bytes ? buffer_name(row_scale.buffer, "row_scales") : "";
  name_loads(1);
  const std::string codes = buffer_name(schedule.codes.buffer, "codes"),
                    scales = buffer_name(schedule.packed_scales.buffer, "scales");
  const BufferId zero_buffer = schedule.packed_zeros.buffer;
  const std::string zeros = zero_buffer.valid() ? buffer_name(zero_buffer, "zeros") : "nullptr";
  const char *zero = !zero_buffer.valid()                               ? "kCenter"
                     : is_float(program_.buffer(zero_buffer).element()) ? "kFloat"
                                                                        : "kByte";
  name_stores();
  use_task_scratch(schedule.scratch_bytes);
  const std::string columns = dim(view.columns);
  const Dim copies = iterations(batch);
  line(fmt::format("const OptcGemm plan = optc_gemm_plan({}, {}, {}, env.threads{});", dim(view.rows), columns,
                   dim(view.inner), copies.is(1) ? "" : ", " + dim(copies)));
  const std::string tile = open_tiles("optc_gemm_tasks", batch, row_loops, "scratch");
  if (bytes) {
    line("// codes, scales, zero points, block");
    line(fmt::format("const BlockBytes<{}, {}> weights = {{{}, {}, {}, {}}};", packed_bits(view.b.element),
                     zero_buffer.valid(), codes, scales, zeros, schedule.scales.block));
    line(fmt::format("gemm_blocks_i8(plan, {}, BlockRows{{{}, {}, {}, {}, {}, {}}}, weights,", tile,
                     batch_base(a, view.a, view.batch), dim(view.a_row), dim(view.a_inner),
                     batch_base(a_scale, row_scale, view.batch), dim(schedule.activations.row),
                     dim(row_scale.strides.back())));
    line("               scratch, tile_sink(epilogue), optc_isa_dot());");
    close();
    close("});");
    return true;
  }
  const std::string partial = schedule.partial == GemmSchedule::Partial::kOutput
                                  ? fmt::format("{}, {}", buffer_name(nest_.stages.back().outputs[0].buffer), columns)
                                  : "nullptr, 0";
  line("// codes, scales, zero points, block, center");
  line(fmt::format("const BlockWeights<{}, BlockZero::{}, BlockRound::{}> weights = {{{}, {}, {}, {}, {}}};",
                   packed_bits(view.b.element), zero, rounding(schedule.scales.rounded), codes, scales, zeros,
                   schedule.scales.block, packed_center(view.b.element)));
  line(fmt::format("gemm_blocks(plan, {}, {}{{{}, {}, {}}}, weights, {},", tile, stored_rows(view.a.element),
                   batch_base(a, view.a, view.batch), dim(view.a_row), dim(view.a_inner), partial));
  line("            reinterpret_cast<float *>(scratch), tile_sink(epilogue));");
  close();
  close("});");
  return true;
}

}  // namespace optc
