// matmul.*: what stands around a matrix product and belongs into it.
#include "optimizer/rules/chain.h"

namespace optc {
namespace {

bool rank2(const RuleContext &context, ValueId v) {
  return v.valid() && context.type(v).has_shape() && context.type(v).rank() == 2;
}

// MatMul(a, b) + c -> Gemm(a, b, c), where c adds to the product without enlarging it.
Result<bool> bias(RuleContext &context, NodeId n) {
  for (size_t side = 0; side < 2; ++side) {
    const ValueId product = context.input(n, side), c = context.input(n, 1 - side);
    const NodeId matmul = context.producer(product, "MatMul");
    if (!matmul.valid() || !rank2(context, context.input(matmul, 0)) || !rank2(context, context.input(matmul, 1)))
      continue;
    if (context.type(product).element != ElementType::kFloat32 || !context.type(c).has_shape()) continue;
    if (context.type(c).rank() > 2 || !(context.type(product) == context.type(context.output(n)))) {
      context.rewriter().missed("matmul.bias", n, "the sum is larger than the product");
      continue;
    }
    if (!context.single_use(product)) {
      context.rewriter().missed("matmul.bias", n, "the product is used elsewhere too");
      continue;
    }
    auto change = context.rewriter().begin("matmul.bias", RewriteKind::kFuse, n);
    change.numerics(NumericsClass::kReassociating);
    const NodeId made =
        change.create("Gemm", {context.input(matmul, 0), context.input(matmul, 1), c},
                      {{"alpha", 1.0f}, {"beta", 1.0f}, {"transA", int64_t{0}}, {"transB", int64_t{0}}});
    change.replace(context.output(n), change.output(made));
    change.erase(n);
    change.erase(matmul);
    OPTC_TRY(change.commit());
    return true;
  }
  return false;
}

// Gemm of a transposed operand reads it as it lies.
Result<bool> transpose(RuleContext &context, NodeId n) {
  for (size_t side = 0; side < 2; ++side) {
    const NodeId inner = context.producer(context.input(n, side), "Transpose");
    if (!inner.valid() || !rank2(context, context.input(inner, 0))) continue;
    const auto *perm = context.node(inner).ints("perm");
    if (perm && *perm != std::vector<int64_t>{1, 0}) continue;
    const char *attribute = side == 0 ? "transA" : "transB";
    auto change = context.rewriter().begin("matmul.transpose", RewriteKind::kFuse, n);
    std::vector<std::pair<std::string, Attribute>> attributes = context.node(n).attributes;
    bool set = false;
    for (auto &[name, value] : attributes)
      if (name == attribute) {
        value = int64_t{1} - context.node(n).int_or(attribute, 0);
        set = true;
      }
    if (!set) attributes.emplace_back(attribute, int64_t{1});
    std::vector<ValueId> inputs = context.node(n).inputs;
    inputs[side] = context.input(inner, 0);
    const bool only = context.single_use(context.output(inner));
    const NodeId made = change.create("Gemm", std::move(inputs), std::move(attributes));
    change.replace(context.output(n), change.output(made));
    change.erase(n);
    if (only) change.erase(inner);
    OPTC_TRY(change.commit());
    return true;
  }
  return false;
}

constexpr Rule kRules[] = {
    {"matmul.bias", NumericsClass::kReassociating, "Add", "MatMul(a, b) + c -> Gemm(a, b, c)",
     "rank 2, f32 (in 16 bits the product is rounded before the sum: lowering fuses the two so), c broadcasts to the "
     "product's shape, the product used once",
     bias},
    {"matmul.transpose", NumericsClass::kExact, "Gemm",
     "Gemm of a transposed operand -> Gemm with transA or transB toggled", "the permutation is [1, 0]", transpose},
};

}  // namespace

std::span<const Rule> matmul_rules() { return kRules; }

}  // namespace optc
