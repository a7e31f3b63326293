// runtime/cpu/gemm_blocks.h: products in f32 by constants of 2 to 8 bits that are quantized in blocks along the sum,
// and gemm_blocks_i8.h: the same where A is quantized in those blocks, too.
#include "runtime/cpu/gemm_blocks_plan.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "ir/program/block_view.h"
#include "ir/program/nest_plan.h"
#include "lowering/schedule/schedule.h"

namespace optc {
namespace {

constexpr int64_t kTaskRows = 192;                   // of a task at most (runtime/cpu/gemm_plan.h)
constexpr int64_t kMostElements = int64_t{1} << 40;  // of the weights: products of sizes stay numbers

bool is_plain_constant(const Program &program, const OperandView &view) {
  const Buffer &b = program.buffer(view.buffer);
  return b.kind == BufferKind::kConstant && !b.alias.valid() && view.offset.is_constant() &&
         std::all_of(view.strides.begin(), view.strides.end(), [](Dim d) { return d.is_constant(); });
}

// The element of a block and a column.
int64_t at_block(const OperandView &view, int64_t block, int64_t column) {
  return view.offset.value() + view.strides[0].value() * block + view.strides[1].value() * column;
}

// A sum over a block is scaled once: that is the sum of scaled products where nothing is infinite that was not before.
bool are_moderate(const Program &program, const OperandView &view, double most) {
  const Constant &c = program.buffer(view.buffer).constant;
  for (int64_t i = 0; i < c.count(); ++i)
    if (!(std::fabs(c.as_double(i)) <= most)) return false;
  return true;
}

Dim scratch_of(const GemmView &view, bool partial) {
  const bool known = view.rows.is_constant();
  const int64_t rows = known ? std::min(kTaskRows, view.rows.value()) : kTaskRows;
  return 4 * optc_gemm_blocks_floats(rows, view.columns.value(), view.inner.value(),
                                     known && view.rows.value() <= kOptcBlockFewRows, partial);
}

}  // namespace

std::optional<GemmBlocksSchedule> gemm_blocks_schedule(const Program &program, const Kernel &kernel) {
  const auto product = block_product(program, kernel);
  if (!product) return std::nullopt;
  const GemmView &view = product->view;
  const BlockScales &scales = product->scales;
  const Contraction &c = *kernel.nest()->contraction;
  const ElementType a = view.a.element;
  const bool bytes = product->activations.scale.buffer.valid();
  if ((!bytes && a != ElementType::kFloat32 && a != ElementType::kFloat16 && a != ElementType::kBFloat16) ||
      program.scalars.at(kernel.nest()->stages[c.stage].outputs[0].value).type != ElementType::kFloat32)
    return std::nullopt;
  if (!is_plain_constant(program, view.b) || !is_plain_constant(program, scales.scale) ||
      (scales.zero.buffer.valid() && !is_plain_constant(program, scales.zero)))
    return std::nullopt;
  for (size_t i = 0; i < view.batch.size(); ++i)
    if (!view.b.strides[i].is(0)) return std::nullopt;
  if (!view.columns.is_constant() || !view.inner.is_constant() || !view.b_inner.is_constant() ||
      !view.b_column.is_constant() || view.columns.value() < 1 || view.inner.value() < 1 ||
      view.columns.value() > kMostElements / view.inner.value())
    return std::nullopt;
  if (bytes && (scales.rounded != ElementType::kFloat32 || scales.block > kOptcBlockI8Longest)) return std::nullopt;
  const int64_t codes = optc_block_codes(packed_bits(view.b.element));
  if (scales.block % codes != 0 && scales.block != view.inner.value()) return std::nullopt;
  const bool float_zero = scales.zero.buffer.valid() && is_float(scales.zero.element);
  if (bytes && float_zero) return std::nullopt;
  constexpr double kMost = 256;  // larger than any difference of numbers of 8 bits
  if (!are_moderate(program, scales.scale, FLT_MAX / (4 * kMost)) ||
      (float_zero && !are_moderate(program, scales.zero, kMost)))
    return std::nullopt;
  // Zero points are stored as int8 less the center.
  const int64_t zero = scales.zero_value - packed_center(view.b.element);
  if (scales.zero.buffer.valid() ? !float_zero && scales.zero.element != view.b.element
                                 : zero < INT8_MIN || zero > INT8_MAX)
    return std::nullopt;
  NestPlan plan(program, kernel);
  if (!plan.plan_epilogue(view.batch, view.m, view.n)) return std::nullopt;
  GemmBlocksSchedule schedule;
  schedule.view = view;
  schedule.scales = scales;
  schedule.activations = product->activations;
  if (bytes) {
    const int64_t rows = view.rows.is_constant() ? std::min(kTaskRows, view.rows.value()) : kTaskRows;
    schedule.scratch_bytes = optc_gemm_blocks_i8_bytes(rows, view.inner.value(), scales.block);
    return schedule;
  }
  const bool few = view.rows.is_constant() && view.rows.value() <= kOptcBlockFewRows;
  if (few || view.inner.value() <= optc_gemm_kc(view.inner.value())) {
    schedule.scratch_bytes = scratch_of(view, false);
    return schedule;
  }
  const bool batched = std::any_of(view.batch.begin(), view.batch.end(), [](const Loop &l) { return !l.extent.is(1); });
  schedule.partial = !batched && plan.stores_plain_rows(view.columns) ? GemmSchedule::Partial::kOutput
                                                                      : GemmSchedule::Partial::kScratch;
  schedule.scratch_bytes = scratch_of(view, schedule.partial == GemmSchedule::Partial::kScratch);
  return schedule;
}

void prepare(const Program &program, const Kernel &, const AddConstant &add, GemmBlocksSchedule &schedule) {
  const GemmView &view = schedule.view;
  const BlockScales &scales = schedule.scales;
  const Buffer &b = program.buffer(view.b.buffer);
  const std::string name = b.name;  // adding a constant moves the buffers
  const Constant codes = b.constant, scale = program.buffer(scales.scale.buffer).constant;
  const int64_t k = view.inner.value(), n = view.columns.value(), block = scales.block,
                center = packed_center(view.b.element);
  const int bits = packed_bits(view.b.element);
  const int64_t first = view.b.offset.value(), step = view.b_inner.value(), column = view.b_column.value();
  std::vector<uint8_t> bytes(static_cast<size_t>(optc_block_words(n, k, bits)) * 4);
  const auto code = [&](int64_t i, int64_t j) {
    return static_cast<int32_t>(codes.as_int64(first + i * step + j * column) - center);
  };
  if (schedule.activations.scale.buffer.valid())
    optc_pack_block_bytes(reinterpret_cast<uint32_t *>(bytes.data()), k, n, bits, code);
  else
    optc_pack_block_codes(reinterpret_cast<uint32_t *>(bytes.data()), k, n, bits, code);
  const int64_t words = static_cast<int64_t>(bytes.size() / 4), count = optc_block_scales(n, k, block);
  schedule.codes.buffer = add(name, Constant::owned(ElementType::kUInt32, {words}, std::move(bytes)));

  std::vector<uint8_t> floats(static_cast<size_t>(count) * 4);
  optc_pack_of_blocks(reinterpret_cast<float *>(floats.data()), k, n, block,
                      [&](int64_t i, int64_t j) { return scale.as_double(at_block(scales.scale, i, j)); });
  schedule.packed_scales.buffer =
      add(name + "_scale", Constant::owned(ElementType::kFloat32, {count}, std::move(floats)));

  if (!scales.zero.buffer.valid()) {
    if (scales.zero_value == center) return;
    std::vector<uint8_t> same(static_cast<size_t>(count), static_cast<uint8_t>(scales.zero_value - center));
    schedule.packed_zeros.buffer = add(name + "_zero", Constant::owned(ElementType::kInt8, {count}, std::move(same)));
    return;
  }
  const Constant zero = program.buffer(scales.zero.buffer).constant;
  const auto value = [&](int64_t i, int64_t j) { return zero.as_double(at_block(scales.zero, i, j)); };
  if (is_float(scales.zero.element)) {
    std::vector<uint8_t> own(static_cast<size_t>(count) * 4);
    optc_pack_of_blocks(reinterpret_cast<float *>(own.data()), k, n, block, value);
    schedule.packed_zeros.buffer = add(name + "_zero", Constant::owned(ElementType::kFloat32, {count}, std::move(own)));
    return;
  }
  std::vector<uint8_t> own(static_cast<size_t>(count));
  bool all_center = true;
  optc_pack_of_blocks(reinterpret_cast<int8_t *>(own.data()), k, n, block, [&](int64_t i, int64_t j) {
    const int64_t less = static_cast<int64_t>(value(i, j)) - center;
    all_center = all_center && less == 0;
    return less;
  });
  if (!all_center)
    schedule.packed_zeros.buffer = add(name + "_zero", Constant::owned(ElementType::kInt8, {count}, std::move(own)));
}

}  // namespace optc
