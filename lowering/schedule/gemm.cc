// runtime/cpu/gemm.h and gemm_stored.h: products in f32 of f32, f16 and bf16, in f64 of f64; gemm_i8.h: of int8 and
// uint8.
#include <algorithm>

#include "evaluate/pack.h"
#include "ir/program/contraction_view.h"
#include "ir/program/nest_plan.h"
#include "lowering/schedule/schedule.h"
#include "runtime/cpu/gemm_i8_plan.h"
#include "runtime/cpu/gemm_plan.h"

namespace optc {
namespace {

// Of runtime/cpu/gemm_plan.h: rows of B in a block, panel columns (of f32), and rows of a task at most.
constexpr int64_t kBlock = 1024, kWidestPanel = 64, kTaskRows = 192;

// Whether B is laid out once, by the compiler.
bool packs(const Program &program, const GemmView &view) {
  if (program.buffer(view.b.buffer).kind != BufferKind::kConstant) return false;
  for (size_t i = 0; i < view.batch.size(); ++i)
    if (!view.b.strides[i].is(0)) return false;
  return view.b.offset.is_constant() && view.b_inner.is_constant() && view.b_column.is_constant();
}

// optc_gemm_stored_floats in bytes: exact for sizes that are known, else its bound. `element`: bytes of a sum.
Dim stored_scratch(const GemmView &view, bool partial, int64_t element) {
  const Dim rows = view.rows.is_constant() ? Dim(std::min(kTaskRows, view.rows.value())) : Dim(kTaskRows);
  if (view.inner.is_constant() && view.columns.is_constant())
    return 4 * optc_gemm_stored_floats(rows.value(), view.columns.value(), view.inner.value(), partial, element);
  const Dim block = ceil_div(max(min(view.inner, Dim(kBlock)), Dim(1)), Dim(16)) * Dim(16);
  return Dim(kOptcGemmPanelFloats * 4) + (rows * block + (partial ? rows * view.columns : Dim(0))) * Dim(element);
}

// Whether the templates multiply elements of `stored` in `sum`.
bool multiplies(ElementType stored, ElementType sum) {
  if (sum == ElementType::kFloat64) return stored == sum;
  return sum == ElementType::kFloat32 &&
         (stored == sum || stored == ElementType::kFloat16 || stored == ElementType::kBFloat16);
}

}  // namespace

Dim integer_gemm_scratch(Dim rows, Dim inner, bool packed) {
  if (rows.is_constant() && inner.is_constant()) return optc_gemm_i8_scratch(rows.value(), inner.value(), packed);
  const Dim row = ceil_div(max(inner, Dim(1)), Dim(64)) * Dim(64);
  const Dim of_rows = min(rows * row, max(Dim(262144), row * Dim(32)));
  const Dim column = ceil_div(inner, Dim(4)) * Dim(4) + Dim(4);
  return packed ? of_rows : of_rows + column * Dim(kOptcGemmI8Panel) + Dim(kOptcGemmI8Slack);
}

std::optional<GemmSchedule> gemm_schedule(const Program &program, const Kernel &kernel) {
  const auto view = gemm_view(program, kernel);
  if (const auto zeros = view ? zero_points(program, kernel, *view) : std::nullopt) {
    if (!NestPlan(program, kernel).plan_epilogue(view->batch, view->m, view->n)) return std::nullopt;
    GemmSchedule schedule;
    schedule.view = *view;
    schedule.zeros = *zeros;
    schedule.scratch_bytes = integer_gemm_scratch(view->rows, view->inner, packs(program, *view));
    return schedule;
  }
  if (!view) return std::nullopt;
  const Contraction &c = *kernel.nest()->contraction;
  const ElementType sum = program.scalars.at(kernel.nest()->stages[c.stage].outputs[0].value).type;
  if (!multiplies(view->a.element, sum) || !multiplies(view->b.element, sum)) return std::nullopt;
  const int64_t element = bit_width(sum) / 8;
  // Where sizes are known at run time only, B is given at run time too (attention-like products).
  if ((!view->columns.is_constant() || !view->inner.is_constant()) &&
      program.buffer(view->b.buffer).kind == BufferKind::kConstant)
    return std::nullopt;
  NestPlan plan(program, kernel);
  if (!plan.plan_epilogue(view->batch, view->m, view->n)) return std::nullopt;
  GemmSchedule schedule;
  schedule.view = *view;
  const bool stored = widens(*view);
  schedule.scratch_bytes = stored                  ? stored_scratch(*view, false, element)
                           : packs(program, *view) ? Dim(0)
                                                   : Dim(kBlock * kWidestPanel * 4);
  if (view->inner.is_constant() && view->inner.value() <= kBlock) return schedule;
  const bool batched =
      std::any_of(view->batch.begin(), view->batch.end(), [](const Loop &l) { return !l.extent.is(1); });
  if (!batched && plan.stores_plain_rows(view->columns)) {
    schedule.partial = GemmSchedule::Partial::kOutput;
    return schedule;
  }
  schedule.partial = GemmSchedule::Partial::kScratch;
  if (stored) {
    schedule.scratch_bytes = stored_scratch(*view, true, element);
    return schedule;
  }
  const Dim rows = view->rows.is_constant() ? Dim(std::min(kTaskRows, view->rows.value())) : Dim(kTaskRows);
  schedule.scratch_bytes =
      schedule.scratch_bytes + rows * ceil_div(view->columns, Dim(kWidestPanel)) * Dim(kWidestPanel * element);
  return schedule;
}

void prepare(const Program &program, const Kernel &, const AddConstant &add, GemmSchedule &schedule) {
  const GemmView &view = schedule.view;
  if (!packs(program, view)) return;
  const Buffer &b = program.buffer(view.b.buffer);
  const std::string name = b.name;
  const auto pack = is_byte(view.b.element) ? pack_gemm_integer : pack_gemm;
  schedule.packed.buffer = add(name, pack(b.constant, view.b.offset.value(), view.inner.value(), view.columns.value(),
                                          view.b_inner.value(), view.b_column.value()));
}

}  // namespace optc
