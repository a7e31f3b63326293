// CausalConvWithState: a depthwise convolution over the last axis of [batch, channels, length] that looks back only;
// the positions before the first come from a state. Any dim may be symbolic, the kernel's length too.

#include <string>

#include "ops/build.h"
#include "ops/conditions.h"
#include "ops/registry.h"
#include "ops/util.h"

namespace optc {
namespace {

using Dims = std::vector<Dim>;

Status infer_causal_conv(InferContext &c) {
  for (size_t i = 0; i < 4; ++i) {
    if (!c.has_input(i)) continue;
    OPTC_TRY(c.require_shape(i));
    if (c.rank(i) != (i == 2 ? 1 : 3))
      return c.invalid("input " + std::to_string(i) + " must have rank " + std::to_string(i == 2 ? 1 : 3));
    if (c.element(i) != c.element(0)) return c.invalid("the inputs differ in element type");
  }
  const std::string_view activation = c.node().string_or("activation", "none");
  if (activation != "none" && activation != "silu" && activation != "swish")
    return c.invalid("activation '" + std::string(activation) + "' is not known");
  const Shape &x = c.shape(0), &weight = c.shape(1);
  OPTC_TRY(c.same(x[1], weight[0], "the channels of input and weight"));
  OPTC_TRY(c.same(weight[1], 1, "the second dim of weight"));
  OPTC_TRY(at_most(c, 1, weight[2], "1, the least length of the kernel,"));
  const Dim state = weight[2] - 1;
  if (c.has_input(2)) OPTC_TRY(c.same(c.shape(2)[0], x[1], "the length of bias and the channels"));
  if (c.has_input(3)) {
    OPTC_TRY(c.same(c.shape(3)[0], x[0], "the batch of past_state and input"));
    OPTC_TRY(c.same(c.shape(3)[1], x[1], "the channels of past_state and input"));
    OPTC_TRY(c.same(c.shape(3)[2], state, "the length of past_state and of the kernel less one"));
  }
  c.set_tensor(0, c.element(0), x);
  c.set_tensor(1, c.element(0), {x[0], x[1], state});
  return {};
}

Status build_causal_conv(BuildContext &c) {
  const Shape x = c.shape(0);
  const Dim kernel = c.shape(1)[2], state = kernel - 1;
  const bool silu = c.node().string_or("activation", "none") != "none";
  // State and input in one line: every window then lies inside.
  const BufferId line = c.temporary("line", c.input_type(0).element, {x[0], x[1], state + x[2]});
  if (c.has_input(3)) {
    OPTC_TRY(copy_into(c, "state", c.input(3), line, [](const Dims &i) { return i; }));
  } else {
    NestBuilder nest(c, "state");
    const Dims i = nest.outer({x[0], x[1], state});
    nest.store(line, i, nest.constant(compute_type(c.input_type(0).element), 0));
    nest.finish();
  }
  OPTC_TRY(copy_into(c, "input", c.input(0), line, [&](const Dims &i) { return Dims{i[0], i[1], i[2] + state}; }));
  if (c.has_output(0)) {
    NestBuilder nest(c, "causal convolution");
    const Dims i = nest.outer(x);
    const Dim k = nest.stage_loop("k", kernel);
    Expr y = nest.reduce(Combine::kSum, nest.load(line, {i[0], i[1], i[2] + k}) * nest.load(c.input(1), {i[1], 0, k}));
    if (c.has_input(2)) y = y + nest.load(c.input(2), {i[1]});
    nest.store(c.output(0), i, silu ? y / (apply(ScalarOp::kExp, -y) + 1) : y);
    nest.finish();
  }
  if (!c.has_output(1)) return {};
  return c.index_map(line, c.output(1), [&](const Dims &i) { return Dims{i[0], i[1], i[2] + x[2]}; });
}

const OpDef kOps[] = {
    {"CausalConvWithState", OpForm::kReduction, 27, infer_causal_conv, build_causal_conv},
};

}  // namespace

std::span<const OpDef> causal_conv_ops() { return kOps; }

}  // namespace optc
