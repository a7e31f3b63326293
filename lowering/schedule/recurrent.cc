// runtime/cpu/rnn.h: LSTM, GRU and RNN of f32 with constant weights, all steps live and no clip. Else the library
// function runs.
#include "evaluate/pack.h"
#include "lowering/schedule/schedule.h"

namespace optc {
namespace {

template <typename T>
const T *attribute(const LibraryCall &call, std::string_view name) {
  for (const auto &[key, value] : call.attributes)
    if (key == name) return std::get_if<T>(&value);
  return nullptr;
}
int64_t integer(const LibraryCall &call, std::string_view name, int64_t fallback) {
  const auto *n = attribute<int64_t>(call, name);
  return n ? *n : fallback;
}

}  // namespace

std::optional<RecurrentSchedule> recurrent_schedule(const Program &program, const Kernel &kernel) {
  const LibraryCall &call = *kernel.library();
  if (call.function != "rnn") return std::nullopt;
  const auto plain = [&](BufferId id) {
    const Buffer &b = program.buffer(id);
    return is_f32(program, id) && b.order.empty() && b.padded.empty();
  };
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (!call.inputs[i].valid()) continue;
    if (i == 4 || !plain(call.inputs[i])) return std::nullopt;
    const Buffer &b = program.buffer(call.inputs[i]);
    if (i >= 1 && i <= 3 && (b.kind != BufferKind::kConstant || b.alias.valid())) return std::nullopt;
  }
  for (BufferId o : call.outputs)
    if (o.valid() && !plain(o)) return std::nullopt;
  if (const auto *clip = attribute<float>(call, "clip"); clip && *clip > 0) return std::nullopt;
  const auto *direction = attribute<std::string>(call, "direction");
  const Constant &w = program.buffer(call.inputs[1]).constant, &r = program.buffer(call.inputs[2]).constant;
  RecurrentSchedule schedule;
  schedule.gates = integer(call, "gates", 1);
  schedule.input = w.dims()[2];
  schedule.hidden = r.dims()[2];
  schedule.batch_first = integer(call, "layout", 0) != 0;
  schedule.reverse = direction && *direction == "reverse";
  if (schedule.input < 1 || schedule.hidden < 1) return std::nullopt;
  schedule.layers.resize(static_cast<size_t>(w.dims()[0]));
  constexpr int64_t kRows = 16;  // kRnnRows of runtime/cpu/rnn_plan.h
  schedule.scratch_bytes = Dim(4 * kRows * schedule.hidden * (schedule.gates + 3));
  return schedule;
}

void prepare(Program &program, const Kernel &kernel, const AddConstant &add, RecurrentSchedule &schedule) {
  const LibraryCall call = *kernel.library();
  const RecurrentShape shape{schedule.gates, schedule.input, schedule.hidden,
                             integer(call, "linear_before_reset", 0) != 0};
  const std::string w_name = program.buffer(call.inputs[1]).name, r_name = program.buffer(call.inputs[2]).name;
  for (size_t d = 0; d < schedule.layers.size(); ++d) {
    const Buffer *bias = call.inputs.size() > 3 && call.inputs[3].valid() ? &program.buffer(call.inputs[3]) : nullptr;
    PackedRecurrent packed = pack_recurrent(shape, static_cast<int64_t>(d), program.buffer(call.inputs[1]).constant,
                                            program.buffer(call.inputs[2]).constant, bias ? &bias->constant : nullptr);
    RecurrentSchedule::Layer &layer = schedule.layers[d];
    layer.w.buffer = add(w_name, std::move(packed.w));
    layer.r.buffer = add(r_name, std::move(packed.r));
    layer.bias.buffer = add(w_name + "_bias", std::move(packed.bias));
  }
  const Shape x = program.buffer(call.inputs[0]).shape();
  Buffer sums;
  sums.name = kernel.name + "_sums";
  sums.kind = BufferKind::kScratch;
  sums.type = Type::tensor(ElementType::kFloat32, Shape{x[0] * x[1], Dim(schedule.gates * schedule.hidden)});
  schedule.sums.buffer = program.add_buffer(std::move(sums));
}

}  // namespace optc
