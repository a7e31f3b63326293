// runtime/cpu/rnn.h: LSTM, GRU and RNN of f32 with constant weights, all steps live and no clip; rnn_i8.h: LSTM of
// 8-bit weights. Else the library function runs.
#include <algorithm>
#include <cstring>

#include "evaluate/pack.h"
#include "ir/program/recurrent.h"
#include "lowering/schedule/schedule.h"
#include "runtime/cpu/rnn_plan.h"

namespace optc {
namespace {

// Operands of DynamicQuantizeLSTM behind those of LSTM.
constexpr size_t kScaleW = 8, kZeroW = 9, kScaleR = 10, kZeroR = 11;

const Buffer *operand(const Program &program, const LibraryCall &call, size_t i) {
  return i < call.inputs.size() && call.inputs[i].valid() ? &program.buffer(call.inputs[i]) : nullptr;
}
bool is_plain(const Buffer &b) { return b.order.empty() && b.padded.empty(); }
bool is_whole_constant(const Buffer &b) { return b.kind == BufferKind::kConstant && !b.alias.valid() && is_plain(b); }

// One number, or one a column, of each direction.
bool is_per_column(const Buffer &b, int64_t directions, int64_t columns) {
  const int64_t count = b.constant.count();
  return is_whole_constant(b) && (count == directions || count == directions * columns);
}

bool is_f32_layer(const Program &program, const LibraryCall &call) {
  for (size_t i = 1; i <= 3; ++i)
    if (const Buffer *b = operand(program, call, i))
      if (!is_whole_constant(*b) || b->element() != ElementType::kFloat32) return false;
  return true;
}

bool is_integer_layer(const Program &program, const LibraryCall &call) {
  const Buffer &w = *operand(program, call, 1), &r = *operand(program, call, 2), *bias = operand(program, call, 3);
  if (!is_byte(w.element()) || w.element() != r.element() || !is_whole_constant(w) || !is_whole_constant(r))
    return false;
  if (bias && (!is_whole_constant(*bias) || bias->element() != ElementType::kFloat32)) return false;
  const int64_t directions = w.constant.dims()[0], columns = w.constant.dims()[2];
  for (size_t i : {kScaleW, kZeroW, kScaleR, kZeroR}) {
    const bool scale = i == kScaleW || i == kScaleR;
    const Buffer *b = operand(program, call, i);
    if (!b && scale) return false;
    if (b && (!is_per_column(*b, directions, columns) || b->element() != (scale ? ElementType::kFloat32 : w.element())))
      return false;
  }
  return true;
}

// The numbers of a direction: one, or one a column.
Constant of_direction(const Constant &all, int64_t directions, int64_t direction) {
  const int64_t count = all.count() / directions;
  const size_t size = all.size() / static_cast<size_t>(directions);
  const auto *from = static_cast<const uint8_t *>(all.data()) + static_cast<size_t>(direction) * size;
  return Constant::owned(all.type(), {count}, std::vector<uint8_t>(from, from + size));
}
// Those of R's columns, as its packed form orders them.
Constant ordered(const RecurrentShape &shape, const Constant &numbers) {
  if (numbers.count() == 1) return numbers;
  const size_t size = numbers.size() / static_cast<size_t>(numbers.count());
  const int64_t columns = recurrent_columns(shape);
  std::vector<uint8_t> bytes(size * static_cast<size_t>(columns));
  for (int64_t j = 0; j < columns; ++j)
    if (const int64_t from = recurrent_column(shape, j); from >= 0)
      std::memcpy(bytes.data() + size * static_cast<size_t>(j),
                  static_cast<const uint8_t *>(numbers.data()) + size * static_cast<size_t>(from), size);
  return Constant::owned(numbers.type(), {columns}, std::move(bytes));
}

}  // namespace

std::optional<RecurrentSchedule> recurrent_schedule(const Program &program, const Kernel &kernel) {
  const LibraryCall &call = *kernel.library();
  const bool integers = call.function == "dynamic_quantize_lstm";
  if (call.function != "rnn" && !integers) return std::nullopt;
  if (operand(program, call, 4)) return std::nullopt;
  for (size_t i : {0, 5, 6, 7})
    if (const Buffer *b = operand(program, call, i))
      if (b->element() != ElementType::kFloat32 || !is_plain(*b)) return std::nullopt;
  if (integers ? !is_integer_layer(program, call) : !is_f32_layer(program, call)) return std::nullopt;
  for (BufferId o : call.outputs)
    if (o.valid() && (!is_f32(program, o) || !is_plain(program.buffer(o)))) return std::nullopt;
  const Constant &w = program.buffer(call.inputs[1]).constant, &r = program.buffer(call.inputs[2]).constant;
  const auto cell = recurrent_cell(call, 0), last = recurrent_cell(call, w.dims()[0] - 1);
  if (!cell || !last || cell->clip > 0) return std::nullopt;
  RecurrentSchedule schedule;
  schedule.gates = cell->gates;
  schedule.weights = w.type();
  schedule.input = w.dims()[integers ? 1 : 2];
  schedule.hidden = r.dims()[integers ? 1 : 2];
  schedule.batch_first = is_batch_first(call);
  schedule.reverse = cell->reverse;
  if (schedule.input < 1 || schedule.hidden < 1) return std::nullopt;
  schedule.layers.resize(static_cast<size_t>(w.dims()[0]));
  const Shape &x = program.buffer(call.inputs[0]).shape();
  const Dim batch = x[schedule.batch_first ? 0 : 1];
  // optc_rnn_scratch, of the rows of a group.
  OptcRnn layer{};
  layer.kind = schedule.gates == 4 ? OPTC_LSTM : schedule.gates == 3 ? OPTC_GRU : OPTC_RNN;
  layer.hidden = schedule.hidden;
  layer.linear_before_reset = cell->linear_before_reset;
  const Dim states = ceil_div((integers ? batch : Dim(kOptcRnnRows)) * Dim(4 * schedule.hidden), Dim(16)) * Dim(64);
  schedule.scratch_bytes = Dim(optc_rnn_scratch(layer, 0)) + states;
  if (integers) {
    const Dim inputs = integer_gemm_scratch(x[0] * batch, schedule.input, true);
    const Dim bytes = ceil_div(batch * Dim(schedule.hidden), Dim(64)) * Dim(64);
    // optc_rnn_quantized_scratch
    schedule.scratch_bytes =
        max(inputs, schedule.scratch_bytes + bytes + integer_gemm_scratch(batch, schedule.hidden, true));
  }
  return schedule;
}

void prepare(Program &program, const Kernel &kernel, const AddConstant &add, RecurrentSchedule &schedule) {
  const LibraryCall call = *kernel.library();
  const RecurrentShape shape{schedule.gates, schedule.input, schedule.hidden,
                             recurrent_cell(call, 0)->linear_before_reset};
  const bool integers = schedule.weights != ElementType::kFloat32;
  const std::string w_name = program.buffer(call.inputs[1]).name, r_name = program.buffer(call.inputs[2]).name;
  const int64_t directions = static_cast<int64_t>(schedule.layers.size());
  for (int64_t d = 0; d < directions; ++d) {
    const Buffer *bias = operand(program, call, 3);
    PackedRecurrent packed = (integers ? pack_recurrent_integer : pack_recurrent)(
        shape, d, program.buffer(call.inputs[1]).constant, program.buffer(call.inputs[2]).constant,
        bias ? &bias->constant : nullptr);
    RecurrentSchedule::Layer &layer = schedule.layers[static_cast<size_t>(d)];
    layer.w.buffer = add(w_name, std::move(packed.w));
    layer.r.buffer = add(r_name, std::move(packed.r));
    layer.bias.buffer = add(w_name + "_bias", std::move(packed.bias));
    if (!integers) continue;
    const auto numbers = [&](size_t i) {
      Constant all = of_direction(program.buffer(call.inputs[i]).constant, directions, d);
      return i == kScaleR || i == kZeroR ? ordered(shape, all) : all;
    };
    const auto scale = [&](size_t i, const std::string &name) { return Packed{add(name + "_scale", numbers(i))}; };
    const auto zero = [&](size_t i, const std::string &name, Packed &many, int64_t &one) {
      const Buffer *b = operand(program, call, i);
      if (!b) return;
      const Constant given = of_direction(b->constant, directions, d);
      const uint8_t *p = static_cast<const uint8_t *>(given.data());
      if (std::all_of(p, p + given.count(), [&](uint8_t z) { return z == *p; }))
        one = given.type() == ElementType::kInt8 ? int64_t{static_cast<int8_t>(*p)} : int64_t{*p};
      else
        many.buffer = add(name + "_zero_points", numbers(i));
    };
    layer.w_scale = scale(kScaleW, w_name);
    layer.r_scale = scale(kScaleR, r_name);
    zero(kZeroW, w_name, layer.w_zeros, layer.w_zero);
    zero(kZeroR, r_name, layer.r_zeros, layer.r_zero);
  }
  const Shape x = program.buffer(call.inputs[0]).shape();
  const auto scratch = [&](const char *name, ElementType type, int64_t columns) {
    Buffer b;
    b.name = kernel.name + name;
    b.kind = BufferKind::kScratch;
    b.type = Type::tensor(type, Shape{x[0] * x[1], Dim(columns)});
    return program.add_buffer(std::move(b));
  };
  schedule.sums.buffer = scratch("_sums", ElementType::kFloat32, directions * schedule.gates * schedule.hidden);
  if (integers) schedule.bytes.buffer = scratch("_bytes", ElementType::kUInt8, schedule.input);
}

}  // namespace optc
