// LSTM, GRU, RNN: library functions (runtime/cpu/lib_rnn.h).
#include <cstring>

#include "ops/build.h"
#include "ops/registry.h"
#include "ops/util.h"

namespace optc {
namespace {

int64_t gates_of(const Node &node) { return node.op == "LSTM" ? 4 : node.op == "GRU" ? 3 : 1; }

// Sizes of a layer of LSTM, GRU or RNN.
struct Layer {
  int64_t gates, directions, layout;
  Dim batch, hidden;
};

// The operands behind X, W and R that the three operators and DynamicQuantizeLSTM share.
Status check_operands(InferContext &c, const Layer &l) {
  if (c.has_input(3)) {
    OPTC_TRY(c.require_shape(3));
    if (c.rank(3) != 2) return c.invalid("B must have rank 2");
    OPTC_TRY(c.same(c.shape(3)[0], l.directions, "the number of directions of B"));
    OPTC_TRY(c.same(c.shape(3)[1], l.hidden * (2 * l.gates), "the length of B"));
  }
  for (size_t i = 5; i <= 6; ++i) {
    if (!c.has_input(i)) continue;
    OPTC_TRY(c.require_shape(i));
    if (c.rank(i) != 3) return c.invalid("an initial state must have rank 3");
    OPTC_TRY(c.same(c.shape(i)[l.layout ? 1 : 0], l.directions, "the directions of an initial state"));
    OPTC_TRY(c.same(c.shape(i)[l.layout ? 0 : 1], l.batch, "the batch of an initial state"));
    OPTC_TRY(c.same(c.shape(i)[2], l.hidden, "the size of an initial state"));
  }
  if (c.has_input(4)) {
    OPTC_TRY(c.require_shape(4));
    if (c.rank(4) != 1) return c.invalid("sequence_lens must be a vector");
    OPTC_TRY(c.same(c.shape(4)[0], l.batch, "the length of sequence_lens"));
  }
  if (c.has_input(7)) {
    OPTC_TRY(c.require_shape(7));
    if (c.rank(7) != 2) return c.invalid("P must have rank 2");
    OPTC_TRY(c.same(c.shape(7)[0], l.directions, "the number of directions of P"));
    OPTC_TRY(c.same(c.shape(7)[1], l.hidden * 3, "the length of P"));
  }
  return {};
}

Result<int64_t> directions_of(InferContext &c) {
  const std::string direction(c.node().string_or("direction", "forward"));
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    return c.invalid("direction '" + direction + "' is not known");
  return direction == "bidirectional" ? 2 : 1;
}

Status infer_recurrent(InferContext &c) {
  for (size_t i = 0; i < 3; ++i) {
    OPTC_TRY(c.require_shape(i));
    if (c.rank(i) != 3)
      return c.invalid("input " + std::to_string(i) + " must have rank 3, but has rank " + std::to_string(c.rank(i)));
  }
  const int64_t gates = gates_of(c.node()), layout = c.node().int_or("layout", 0);
  OPTC_ASSIGN(const int64_t directions, directions_of(c));
  const Dim steps = c.shape(0)[layout ? 1 : 0], batch = c.shape(0)[layout ? 0 : 1], input = c.shape(0)[2];
  OPTC_ASSIGN(Dim hidden,
              c.same(c.shape(2)[2],
                     c.node().int_or("hidden_size", 0) > 0 ? Dim(c.node().int_or("hidden_size", 0)) : c.shape(2)[2],
                     "hidden_size"));
  OPTC_TRY(c.same(c.shape(1)[0], directions, "the number of directions of W"));
  OPTC_TRY(c.same(c.shape(2)[0], directions, "the number of directions of R"));
  OPTC_TRY(c.same(c.shape(1)[1], hidden * gates, "the rows of W"));
  OPTC_TRY(c.same(c.shape(2)[1], hidden * gates, "the rows of R"));
  OPTC_TRY(c.same(c.shape(1)[2], input, "the input size"));
  OPTC_TRY(check_operands(c, {gates, directions, layout, batch, hidden}));
  c.set_tensor(0, c.element(0),
               layout ? Shape{batch, steps, directions, hidden} : Shape{steps, directions, batch, hidden});
  const Shape state = layout ? Shape{batch, directions, hidden} : Shape{directions, batch, hidden};
  c.set_tensor(1, c.element(0), state);
  c.set_tensor(2, c.element(0), state);
  return {};
}

Constant as_f32(const Constant &c) {
  std::vector<uint8_t> bytes(static_cast<size_t>(c.count()) * sizeof(float));
  for (int64_t i = 0; i < c.count(); ++i) {
    const float value = static_cast<float>(c.as_double(i));
    std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof value, &value, sizeof value);
  }
  return Constant::owned(ElementType::kFloat32, c.dims(), std::move(bytes));
}

// Layers of 16-bit floats are those of f32 on converted operands; the states between steps are f32 either way.
Status build_recurrent(BuildContext &c) {
  const int64_t gates = gates_of(c.node());
  const ElementType element = c.input_type(0).element;
  const bool narrow = element == ElementType::kFloat16 || element == ElementType::kBFloat16;
  const auto same = [](NestBuilder &, std::vector<Expr> v) { return v[0]; };
  std::vector<BufferId> inputs, outputs;
  for (size_t i = 0; i < (gates == 4 ? 8u : 6u); ++i) {
    if (!c.has_input(i) || !narrow || i == 4) {
      inputs.push_back(c.has_input(i) ? c.input(i) : BufferId());
    } else if (const Constant *constant = c.constant(i)) {
      inputs.push_back(c.constant_buffer("operand", as_f32(*constant)));
    } else {
      inputs.push_back(c.temporary("operand", ElementType::kFloat32, c.shape(i)));
      OPTC_TRY(c.pointwise_on({c.input(i)}, inputs.back(), same));
    }
  }
  for (size_t i = 0; i < (gates == 4 ? 3u : 2u); ++i) {
    if (!c.has_output(i) || !narrow)
      outputs.push_back(c.has_output(i) ? c.output(i) : BufferId());
    else
      outputs.push_back(c.temporary("result", ElementType::kFloat32, c.output_shape(i)));
  }
  std::vector<std::pair<std::string, Attribute>> attributes = {{"gates", gates}};
  for (const auto &attribute : c.node().attributes)
    if (attribute.first != "hidden_size") attributes.push_back(attribute);
  c.library("rnn", inputs, outputs, attributes);
  for (size_t i = 0; narrow && i < outputs.size(); ++i)
    if (outputs[i].valid()) OPTC_TRY(c.pointwise_on({outputs[i]}, c.output(i), same));
  return {};
}

// com.microsoft.DynamicQuantizeLSTM: W [directions, input, 4 * hidden] and R [directions, hidden, 4 * hidden] are 8-bit
// integers.
Status infer_dynamic_quantize_lstm(InferContext &c) {
  for (size_t i = 0; i < 3; ++i) {
    OPTC_TRY(c.require_shape(i));
    if (c.rank(i) != 3) return c.invalid("input " + std::to_string(i) + " must have rank 3");
  }
  OPTC_ASSIGN(const int64_t directions, directions_of(c));
  const Dim steps = c.shape(0)[0], batch = c.shape(0)[1], hidden = c.shape(2)[1];
  OPTC_TRY(c.same(c.shape(1)[0], directions, "the number of directions of W"));
  OPTC_TRY(c.same(c.shape(2)[0], directions, "the number of directions of R"));
  OPTC_TRY(c.same(c.shape(1)[1], c.shape(0)[2], "the input size"));
  OPTC_TRY(c.same(c.shape(1)[2], hidden * 4, "the columns of W"));
  OPTC_TRY(c.same(c.shape(2)[2], hidden * 4, "the columns of R"));
  if (const int64_t given = c.node().int_or("hidden_size", 0); given > 0)
    OPTC_TRY(c.same(hidden, given, "hidden_size"));
  OPTC_TRY(check_operands(c, {4, directions, 0, batch, hidden}));
  for (size_t i = 8; i < 12; ++i) {  // of each direction one number, or one for each column
    if (!c.has_input(i)) continue;
    OPTC_TRY(c.require_shape(i));
    const std::string what = std::string(i < 10 ? "W" : "R") + (i % 2 == 0 ? "_scale" : "_zero_point");
    if (c.rank(i) != 1 && c.rank(i) != 2) return c.invalid(what + " must have rank 1 or 2");
    OPTC_TRY(c.same(c.shape(i)[0], directions, "the directions of " + what));
    if (c.rank(i) == 2) OPTC_TRY(c.same(c.shape(i)[1], hidden * 4, "the columns of " + what));
  }
  c.set_tensor(0, ElementType::kFloat32, {steps, directions, batch, hidden});
  c.set_tensor(1, ElementType::kFloat32, {directions, batch, hidden});
  c.set_tensor(2, ElementType::kFloat32, {directions, batch, hidden});
  return {};
}

Status build_dynamic_quantize_lstm(BuildContext &c) {
  std::vector<BufferId> inputs, outputs;
  for (size_t i = 0; i < 12; ++i) inputs.push_back(c.has_input(i) ? c.input(i) : BufferId());
  for (size_t i = 0; i < 3; ++i) outputs.push_back(c.has_output(i) ? c.output(i) : BufferId());
  c.library("dynamic_quantize_lstm", inputs, outputs, c.node().attributes);
  return {};
}

const OpDef kOps[] = {
    {"com.microsoft.DynamicQuantizeLSTM",
     OpForm::kLibrary,
     1,
     infer_dynamic_quantize_lstm,
     build_dynamic_quantize_lstm,
     {},
     true,
     {"X W R B? sequence_lens? initial_h? initial_c? P? W_scale W_zero_point? R_scale R_zero_point?", "Y? Y_h? Y_c?",
      "activation_alpha:fs activation_beta:fs activations:ss clip:f direction:s hidden_size:i input_forget:b"}},
    {"LSTM", OpForm::kLibrary, 22, infer_recurrent, build_recurrent},
    {"GRU", OpForm::kLibrary, 22, infer_recurrent, build_recurrent},
    {"RNN", OpForm::kLibrary, 22, infer_recurrent, build_recurrent},
};

}  // namespace

std::span<const OpDef> recurrent_ops() { return kOps; }

}  // namespace optc
