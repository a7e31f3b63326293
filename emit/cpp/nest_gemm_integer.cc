// Products and convolutions of 8-bit integers by runtime/cpu/gemm_i8.h and conv_i8.h.
#include <fmt/format.h>

#include "emit/cpp/nest.h"

namespace optc {

std::string NestPrinter::zero_point_text(const ZeroPoint &zero, const std::vector<Loop> &batch) {
  if (!zero.from.buffer.valid()) return fmt::format("gemm_zero({})", zero.value);
  return fmt::format("gemm_zero({}, {})", batch_base(buffer_name(zero.from.buffer), zero.from, batch), dim(zero.step));
}

bool NestPrinter::print_integer_gemm(const GemmSchedule &schedule) {
  const GemmView &view = schedule.view;
  const bool packed = schedule.packed.buffer.valid();
  const ZeroPoints &zeros = schedule.zeros;
  if (!plan_epilogue(view.batch, view.m, view.n)) return false;
  std::vector<Loop> batch = view.batch;
  drop_unit_loops(batch);
  text_.headers = {"runtime/cpu/gemm_i8.h", "runtime/bundle/sinks.h"};
  text_.plan_headers = {"runtime/cpu/gemm_i8_plan.h"};
  text_.panels = kNoPanels;
  const size_t row_loops = outer_.size() - batch.size() - 1;
  const std::string a = buffer_name(view.a.buffer);
  for (const ZeroPoint *zero : {&zeros.a, &zeros.b})
    if (zero->from.buffer.valid()) buffer_name(zero->from.buffer);
  name_loads(1);
  const std::string b = buffer_name(packed ? schedule.packed.buffer : view.b.buffer);
  name_stores();
  use_task_scratch(schedule.scratch_bytes);

  const auto zero_text = [&](const ZeroPoint &zero) { return zero_point_text(zero, view.batch); };
  const Dim copies = iterations(batch);
  line(fmt::format("const OptcGemmI8 plan = optc_gemm_i8_plan({}, {}, {}, env.threads{});", dim(view.rows),
                   dim(view.columns), dim(view.inner), copies.is(1) ? "" : ", " + dim(copies)));
  const std::string tile = open_tiles("optc_gemm_i8_tasks", batch, row_loops, "scratch");
  const std::string columns =
      packed ? fmt::format("gemm_i8_packed({}, {}, {})", b, view.b.element == ElementType::kInt8, zero_text(zeros.b))
             : fmt::format("gemm_i8_columns({}, {}, {}, {})", batch_base(b, view.b, view.batch), dim(view.b_inner),
                           dim(view.b_column), zero_text(zeros.b));
  line(fmt::format("gemm_i8(plan, {}, gemm_i8_rows({}, {}, {}, {}),", tile, batch_base(a, view.a, view.batch),
                   dim(view.a_row), dim(view.a_inner), zero_text(zeros.a)));
  line(fmt::format("        {}, scratch, tile_sink<int32_t>(epilogue), optc_isa_dot());", columns));
  close();
  close("});");
  return true;
}

bool NestPrinter::print_as(const ConvolutionIntegerSchedule &s) {
  for (const ZeroPoint *zero : {&s.zeros.a, &s.zeros.b})
    if (zero->from.buffer.valid()) buffer_name(zero->from.buffer);
  text_.panels = kNoPanels;
  const bool is_signed = program_.buffer(convolution_view(program_, kernel_)->weight).element() == ElementType::kInt8;
  return print_convolution(s.operands, s.depthwise ? "runtime/cpu/conv_i8_depthwise.h" : "runtime/cpu/conv_i8.h",
                           s.depthwise ? "convolve_i8_depthwise" : "convolve_i8", s.scratch_bytes, &s.zeros, is_signed);
}

}  // namespace optc
