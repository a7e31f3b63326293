// com.microsoft: products and convolutions with what follows them, and activations with the bias before them.

#include <algorithm>
#include <string>

#include "ops/body.h"

namespace optc {
namespace {

// The operand of a product with its last two axes exchanged, or (batch) its first axis moved behind the batch axes;
// nothing is done to a vector.
ValueId transposed(Body &b, ValueId v, bool swap, bool batch) {
  const int rank = b.rank(v);
  if (rank < 2 || (!swap && !batch)) return v;
  std::vector<int64_t> perm;
  for (int k = 0; k < rank; ++k) perm.push_back(k);
  if (batch) std::rotate(perm.begin(), perm.begin() + 1, perm.end() - 1);
  if (swap) std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return b.transpose(v, std::move(perm));
}

ValueId scaled(Body &b, ValueId v, float factor) {
  return factor == 1.0f ? v : b.mul(v, b.like(v, static_cast<double>(factor)));
}

Result<ValueId> fused_product(Body &b) {
  OPTC_TRY(b.need_rank(0));
  OPTC_TRY(b.need_rank(1));
  const ValueId left = transposed(b, b.in(0), b.i("transA", 0) != 0, b.i("transBatchA", 0) != 0);
  const ValueId right = transposed(b, b.in(1), b.i("transB", 0) != 0, b.i("transBatchB", 0) != 0);
  return scaled(b, b.matmul(left, right), b.f("alpha", 1));
}

struct ActivationParameters {
  float alpha, beta, gamma;
  int64_t axis;
};

// The activation that a fused operator names, with the defaults of the operator of that name; invalid when there is no
// such activation.
ValueId activated(Body &b, ValueId x, std::string_view name, const ActivationParameters &p) {
  if (name.empty()) return x;
  const Body::Attributes alpha{{"alpha", p.alpha}}, both{{"alpha", p.alpha}, {"beta", p.beta}};
  for (std::string_view plain : {"Relu", "Tanh", "Sigmoid", "Softplus", "Softsign", "HardSwish", "Mish", "Abs", "Neg"})
    if (name == plain) return b.op(plain, {x});
  for (std::string_view one : {"LeakyRelu", "ThresholdedRelu", "Elu", "Celu"})
    if (name == one) return b.op(one, {x}, alpha);
  if (name == "HardSigmoid") return b.op(name, {x}, both);
  if (name == "Selu") return b.op(name, {x}, {{"alpha", p.alpha}, {"gamma", p.gamma}});
  if (name == "Silu") return b.mul(x, b.op("Sigmoid", {x}));
  if (name == "Clip") {
    return b.op(name, {x, b.like(x, static_cast<double>(p.alpha)), b.like(x, static_cast<double>(p.beta))});
  }
  if (name == "Softmax" || name == "LogSoftmax") return b.op(name, {x}, {{"axis", p.axis}});
  return {};
}

// The parameters of FusedGemm and FusedMatMulActivation: absent ones have the default of the activation's operator.
Result<ValueId> activated_by_attributes(Body &b, ValueId x) {
  const std::string_view name = b.s("activation", "");
  const bool hard = name == "HardSigmoid", leaky = name == "LeakyRelu", selu = name == "Selu";
  ActivationParameters p;
  p.alpha = b.f("activation_alpha", leaky ? 0.01f : hard ? 0.2f : selu ? 1.67326319f : 1.0f);
  p.beta = b.f("activation_beta", hard ? 0.5f : 1.0f);
  p.gamma = b.f("activation_gamma", 1.05070102f);
  p.axis = b.i("activation_axis", -1);
  if (name == "Clip" || name == "Silu") return b.unsupported("activation '" + std::string(name) + "'");
  const ValueId y = activated(b, x, name, p);
  if (!y.valid()) return b.unsupported("activation '" + std::string(name) + "'");
  return y;
}

Status fused_matmul(Body &b) {
  OPTC_ASSIGN(const ValueId y, fused_product(b));
  b.give(0, y);
  return {};
}

Status fused_matmul_activation(Body &b) {
  OPTC_ASSIGN(const ValueId y, fused_product(b));
  OPTC_ASSIGN(const ValueId z, activated_by_attributes(b, y));
  b.give(0, z);
  return {};
}

Status fused_gemm(Body &b) {
  std::vector<ValueId> inputs{b.in(0), b.in(1)};
  if (b.has(2)) inputs.push_back(b.in(2));
  const ValueId y = b.op("Gemm", std::move(inputs), b.pass({"alpha", "beta", "transA", "transB"}));
  OPTC_ASSIGN(const ValueId z, activated_by_attributes(b, y));
  b.give(0, z);
  return {};
}

Status gemm_fast_gelu(Body &b) {
  ValueId y = b.matmul(b.in(0), b.in(1));
  if (b.has(2)) y = b.add(y, b.in(2));
  b.give(0, b.op("Gelu", {y}, {{"approximate", std::string("tanh")}}));
  return {};
}

// FusedConv and its forms with channels last (weights as Conv has them).
Result<ValueId> convolution(Body &b, bool last) {
  if (last) OPTC_TRY(b.need_rank(0, {3, 4, 5}));
  std::vector<ValueId> inputs{last ? b.channels_first(b.in(0)) : b.in(0), b.in(1)};
  if (b.has(2)) inputs.push_back(b.in(2));
  ValueId y =
      b.op("Conv", std::move(inputs), b.pass({"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"}));
  if (b.has(3)) y = b.add(y, last ? b.channels_first(b.in(3)) : b.in(3));
  const std::string_view name = b.s("activation", "");
  const std::vector<float> *given = b.node().floats("activation_params");
  const size_t wanted = name == "Clip" || name == "HardSigmoid" ? 2 : name == "LeakyRelu" ? 1 : 0;
  if (given ? given->size() < wanted : wanted > 0)
    return b.invalid("activation '" + std::string(name) + "' needs " + std::to_string(wanted) +
                     " numbers in activation_params");
  const auto parameter = [&](size_t k) { return given && k < given->size() ? (*given)[k] : 1.0f; };
  const bool known =
      wanted > 0 || name.empty() || name == "Relu" || name == "Tanh" || name == "Sigmoid" || name == "Silu";
  const ValueId z = known ? activated(b, y, name, {parameter(0), parameter(1), 1, -1}) : ValueId();
  if (!z.valid()) return b.unsupported("activation '" + std::string(name) + "'");
  return last ? b.channels_last(z) : z;
}
template <bool last>
Status fused_conv(Body &b) {
  OPTC_ASSIGN(const ValueId y, convolution(b, last));
  b.give(0, y);
  return {};
}

Status nhwc_max_pool(Body &b) {
  OPTC_TRY(b.need_rank(0, {3, 4, 5}));
  const ValueId y = b.op("MaxPool", {b.channels_first(b.in(0))},
                         b.pass({"auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides"}));
  b.give(0, b.channels_last(y));
  return {};
}

Status gelu(Body &b) {
  b.give(0, b.op("Gelu", {b.in(0)}));
  return {};
}
Status bias_gelu(Body &b) {
  b.give(0, b.op("Gelu", {b.add(b.in(0), b.in(1))}));
  return {};
}
Status fast_gelu(Body &b) {
  const ValueId x = b.has(1) ? b.add(b.in(0), b.in(1)) : b.in(0);
  b.give(0, b.op("Gelu", {x}, {{"approximate", std::string("tanh")}}));
  return {};
}
Status quick_gelu(Body &b) {
  const ValueId x = b.in(0);
  b.give(0, b.mul(x, b.op("Sigmoid", {scaled(b, x, b.f("alpha", 1.702f))})));
  return {};
}
Status bias_split_gelu(Body &b) {
  OPTC_TRY(b.need_rank(0, {3}));
  const ValueId sum = b.add(b.in(0), b.in(1));
  const std::vector<ValueId> halves = b.ops("Split", {sum}, 2, {{"axis", int64_t{-1}}, {"num_outputs", int64_t{2}}});
  b.give(0, b.mul(halves[0], b.op("Gelu", {halves[1]})));
  return {};
}
Status bias_add(Body &b) {
  b.give(0, b.add(b.add(b.in(0), b.in(1)), b.in(2)));
  return {};
}
// As inference has it: nothing is dropped.
Status bias_dropout(Body &b) {
  if (b.has(4)) {
    const Constant *training = b.constant(b.in(4));
    if (!training || training->count() != 1 || training->as_int64(0) != 0)
      return b.unsupported("BiasDropout in training mode");
  }
  ValueId y = b.add(b.in(0), b.in(1));
  if (b.has(2)) y = b.add(y, b.in(2));
  b.give(0, y);
  if (b.wants(1)) b.give(1, b.op("Expand", {b.number(ElementType::kBool, 1), b.op("Shape", {y})}));
  return {};
}

#define OPTC_CONV "auto_pad:s dilations:is group:i kernel_shape:is pads:is strides:is"
#define OPTC_ACTIVATION " activation_alpha:f activation_beta:f activation_gamma:f"
constexpr OpDef kOps[] = {
    body_row("com.microsoft.BiasAdd", {"X bias skip", "Y", ""}, bias_add),
    body_row("com.microsoft.BiasDropout", {"data bias residual? ratio? training_mode?", "output mask?", "seed:i"},
             bias_dropout),
    body_row("com.microsoft.BiasGelu", {"A B", "C", ""}, bias_gelu),
    body_row("com.microsoft.BiasSplitGelu", {"X bias", "Y", ""}, bias_split_gelu),
    body_row("com.microsoft.FastGelu", {"X bias?", "Y", ""}, fast_gelu),
    body_row("com.microsoft.FusedConv", {"X W B? Z?", "Y", OPTC_CONV " activation:s activation_params:fs"},
             fused_conv<false>),
    body_row("com.microsoft.FusedGemm",
             {"A B C?", "Y", "alpha:f beta:f transA:b transB:b activation:s" OPTC_ACTIVATION}, fused_gemm),
    body_row("com.microsoft.FusedMatMul", {"A B", "Y", "alpha:f transA:b transB:b transBatchA:b transBatchB:b"},
             fused_matmul),
    body_row("com.microsoft.FusedMatMulActivation",
             {"A B", "Y",
              "alpha:f transA:b transB:b transBatchA:b transBatchB:b activation:s! activation_axis:i" OPTC_ACTIVATION},
             fused_matmul_activation),
    body_row("com.microsoft.Gelu", {"X", "Y", ""}, gelu),
    body_row("com.microsoft.GemmFastGelu", {"X W bias?", "Y", ""}, gemm_fast_gelu),
    body_row("com.microsoft.NhwcConv", {"X W B?", "Y", OPTC_CONV}, fused_conv<true>),
    body_row("com.microsoft.NhwcFusedConv", {"X W B? Z?", "Y", OPTC_CONV " activation:s activation_params:fs"},
             fused_conv<true>),
    body_row("com.microsoft.NhwcMaxPool",
             {"x", "y", "auto_pad:s ceil_mode:b dilations:is kernel_shape:is! pads:is strides:is"}, nhwc_max_pool),
    body_row("com.microsoft.QuickGelu", {"X", "Y", "alpha:f"}, quick_gelu),
    body_row("com.microsoft.TransposeMatMul", {"A B", "Y", "alpha:f transA:b transB:b"}, fused_matmul),
};
#undef OPTC_ACTIVATION
#undef OPTC_CONV

}  // namespace

std::span<const OpDef> contrib_fused_ops() { return kOps; }

}  // namespace optc
