#include "ir/program/recurrent.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "ir/program/access.h"

namespace optc {
namespace {

struct Known {
  std::string_view name;
  bool has_alpha, has_beta;
  float alpha, beta;  // ONNX's defaults
};
// In the order of CellActivation.
constexpr Known kKnown[] = {
    {"sigmoid", false, false, 0, 0},      {"tanh", false, false, 0, 0},
    {"relu", false, false, 0, 0},         {"affine", true, true, 1, 0},
    {"leakyrelu", true, false, 0.01f, 0}, {"thresholdedrelu", true, false, 1, 0},
    {"scaledtanh", true, true, 1, 1},     {"hardsigmoid", true, true, 0.2f, 0.5f},
    {"elu", true, false, 1, 0},           {"softsign", false, false, 0, 0},
    {"softplus", false, false, 0, 0},
};

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

bool same_name(std::string_view given, std::string_view known) {  // without case
  return std::equal(given.begin(), given.end(), known.begin(), known.end(),
                    [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; });
}

}  // namespace

std::optional<RecurrentCell> recurrent_cell(const LibraryCall &call, int64_t direction) {
  RecurrentCell cell;
  cell.gates = call.function == "dynamic_quantize_lstm" ? 4 : integer(call, "gates", 1);
  cell.linear_before_reset = cell.gates == 3 && integer(call, "linear_before_reset", 0) != 0;
  cell.input_forget = cell.gates == 4 && integer(call, "input_forget", 0) != 0;
  if (const auto *clip = attribute<float>(call, "clip"); clip && *clip > 0) cell.clip = *clip;
  const auto *way = attribute<std::string>(call, "direction");
  cell.reverse = direction == 1 || (way && *way == "reverse");
  const size_t per = cell.gates == 4 ? 3 : cell.gates == 3 ? 2 : 1;
  if (cell.gates != 1) cell.functions[0].kind = CellActivation::kSigmoid;
  const auto *names = attribute<std::vector<std::string>>(call, "activations");
  if (!names || names->empty()) return cell;
  // alpha and beta are listed for those activations that take them, all directions in a row.
  const auto *alphas = attribute<std::vector<float>>(call, "activation_alpha"),
             *betas = attribute<std::vector<float>>(call, "activation_beta");
  size_t next_alpha = 0, next_beta = 0;
  for (size_t i = 0; i < per * static_cast<size_t>(direction + 1); ++i) {
    if (i >= names->size()) return std::nullopt;
    const auto *known = std::find_if(std::begin(kKnown), std::end(kKnown),
                                     [&](const Known &k) { return same_name((*names)[i], k.name); });
    if (known == std::end(kKnown)) return std::nullopt;
    CellFunction &f = cell.functions[i % per];
    f = {static_cast<CellActivation>(known - kKnown), known->alpha, known->beta};
    if (known->has_alpha && alphas && next_alpha < alphas->size()) f.alpha = (*alphas)[next_alpha++];
    if (known->has_beta && betas && next_beta < betas->size()) f.beta = (*betas)[next_beta++];
  }
  return cell;
}

bool is_batch_first(const LibraryCall &call) { return integer(call, "layout", 0) != 0; }

std::string reason_against_steps(const Program &program, const LibraryCall &call) {
  constexpr int64_t kMostHidden = 2048;  // states and sums of a block in shared memory
  const bool summed = call.function == "rnn_steps";
  if (!summed && call.function != "rnn") return "library function '" + call.function + "' has no GPU form";
  const auto given = [&](size_t i) -> const Buffer * {
    return i < call.inputs.size() && call.inputs[i].valid() ? &program.buffer(call.inputs[i]) : nullptr;
  };
  const auto row_major = [](const Buffer &b) { return b.order.empty() && b.padded.empty(); };
  const auto plain = [&](BufferId id) {
    return program.buffer(id).element() == ElementType::kFloat32 && row_major(program.buffer(id)) &&
           row_major(program.buffer(root_of(program, id).buffer));
  };
  const auto weights = [&](const Buffer *b, bool narrow) {
    return !b || (b->kind == BufferKind::kConstant && !b->alias.valid() && row_major(*b) &&
                  (b->element() == ElementType::kFloat32 ||
                   (narrow && (b->element() == ElementType::kFloat16 || b->element() == ElementType::kBFloat16))));
  };
  const size_t r = summed ? size_t{RecurrentSteps::kR} : 2;
  if (!weights(given(r), summed) || (!summed && (!weights(given(1), false) || !weights(given(3), false))))
    return "weights that are no constants of f32";
  if (!summed && given(4)) return "sequences of different lengths";
  for (size_t i = 0; i < call.inputs.size(); ++i)
    if (given(i) && i != r && !plain(call.inputs[i])) return "operands that are not f32";
  for (BufferId o : call.outputs)
    if (o.valid() && !plain(o)) return "results that are not f32";
  const Constant &of_r = given(r)->constant;
  if (of_r.dims()[2] < 1 || of_r.dims()[2] > kMostHidden)
    return std::to_string(of_r.dims()[2]) + " units, a block of threads has room for " + std::to_string(kMostHidden);
  const auto first = recurrent_cell(call, 0), last = recurrent_cell(call, of_r.dims()[0] - 1);
  if (!first || !last) return "an activation is missing or not known";
  if (first->functions != last->functions) return "directions with different activations";
  return {};
}

RecurrentStepsMemory recurrent_steps_memory(const RecurrentStepsSchedule &s, bool linear_before_reset) {
  RecurrentStepsMemory m;
  m.padded = s.splits * s.chunks * s.chunk_elements();
  m.bytes = 4 * s.rows * m.padded;
  const auto take = [&](int64_t bytes) {
    const int64_t at = m.bytes;
    m.bytes += (bytes + 15) / 16 * 16;
    return at;
  };
  if (s.gates == 3 && !linear_before_reset) m.reset = take(4 * s.rows * m.padded);
  if (s.gates == 4) m.cell = take(4 * s.rows * s.hidden);
  m.sums = take(4 * s.splits * s.rows * s.gates * s.hidden);
  m.weights = take(16 * s.splits * s.cached * s.gates * s.hidden);
  return m;
}

}  // namespace optc
