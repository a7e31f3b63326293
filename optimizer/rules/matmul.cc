// matmul.*: what stands around a matrix product and belongs into it.
#include <algorithm>
#include <vector>

#include "optimizer/rules/chain.h"
#include "optimizer/rules/zero_sign.h"

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

// A product of the value that others multiply too, with the bias that is added to it alone.
struct Sibling {
  NodeId product, sum;  // sum: invalid where there is no bias
  ValueId weights, bias;
  ValueId result(const RuleContext &context) const { return context.output(sum.valid() ? sum : product); }
};

// The one at `product`; nullopt: its weights are no constant matrix of its own.
std::optional<Sibling> sibling(const RuleContext &context, NodeId product) {
  Sibling s{product, {}, context.input(product, 1), {}};
  const ValueId out = context.output(product);
  const Constant *w = context.constant(s.weights);
  if (!w || w->dims().size() != 2 || w->count() == 0 || !is_float(w->type()) || bit_width(w->type()) < 16 ||
      !context.type(out).has_shape())
    return std::nullopt;
  if (context.graph().value(s.weights).uses.size() != 1) return std::nullopt;
  if (!context.single_use(out)) return s;
  const NodeId reader = context.graph().value(out).uses[0].node;
  if (context.node(reader).op != "Add") return s;
  const ValueId bias = context.input(reader, context.input(reader, 0) == out ? 1 : 0);
  const Constant *b = context.constant(bias);
  if (b && b->dims() == std::vector<int64_t>{w->dims()[1]} && b->type() == w->type()) {
    s.sum = reader;
    s.bias = bias;
  }
  return s;
}

// The products of the value that `first` multiplies from the left, in their order, where `first` begins it and no more
// than kFarthest nodes lie between: results of one product live as long as the last of them.
std::vector<Sibling> siblings(const RuleContext &context, NodeId first) {
  constexpr size_t kFarthest = 256;
  const ValueId x = context.input(first, 0);
  size_t open = 0, walked = 0;
  for (const Use &use : context.graph().value(x).uses)
    open += use.kind == UseKind::kOperand && use.index == 0 && context.node(use.node).op == "MatMul" &&
            context.node(use.node).region == context.node(first).region;
  std::vector<Sibling> all;
  for (NodeId n = first; n.valid() && open > 0 && walked <= kFarthest; n = context.node(n).next, ++walked) {
    if (context.node(n).op != "MatMul" || context.input(n, 0) != x) continue;
    --open;
    if (const auto s = sibling(context, n)) all.push_back(*s);
  }
  if (open > 0 || all.empty() || all[0].product != first) return {};
  for (const Sibling &s : all)
    if (context.constant(s.weights)->type() != context.constant(all[0].weights)->type()) return {};
  return all;
}

// Matrices [K, N0], [K, N1] ... beside each other; vectors behind each other.
Constant joined(std::vector<Constant> parts) {
  std::vector<int64_t> dims = parts[0].dims();
  dims.back() = 0;
  for (const Constant &part : parts) dims.back() += part.dims().back();
  const int64_t rows = dims.size() == 2 ? dims[0] : 1;
  return Constant::made(parts[0].type(), dims, "joined", parts, [=](const Constant::Sink &sink) {
    std::vector<Constant> plain;
    for (const Constant &part : parts) plain.push_back(part.plain());
    for (int64_t row = 0; row < rows; ++row)
      for (const Constant &part : plain) {
        const size_t bytes = part.size() / static_cast<size_t>(rows);
        if (!sink(part.data() + static_cast<size_t>(row) * bytes, bytes)) return false;
      }
    return true;
  });
}

// Products of one value by constant weights -> one product and a Split. Only what is written as a model gains by it:
// kernels of a bundle each store where their reader wants it, and their weights stay where they lie in the model.
Result<bool> join(RuleContext &context, NodeId n) {
  constexpr std::string_view kRule = "matmul.siblings";
  constexpr size_t kMost = 4;  // results of more would be kept for long
  if (!context.options().operators.has) return false;
  const std::vector<Sibling> all = siblings(context, n);
  const auto biased =
      static_cast<size_t>(std::count_if(all.begin(), all.end(), [](const Sibling &s) { return s.sum.valid(); }));
  const size_t left = biased ? 3 : 2;
  if (all.size() < 2 || all.size() > kMost || all.size() + biased < left + 2) return false;
  if (all.size() == 3 && biased == 3) {
    context.rewriter().missed(kRule, n, "three products with a bias each: runtimes know attention by them");
    return false;
  }
  for (const Sibling &s : all) {
    if (!biased || s.sum.valid()) continue;
    if (const std::string reader = tells_zeros_apart(context, context.output(s.product)); !reader.empty()) {
      context.rewriter().missed(kRule, n, "a product without a bias is read by " + reader + ", which sees -0 as such");
      return false;
    }
  }
  const ElementType type = context.constant(all[0].weights)->type();
  if (!context.may_make(kRule, n, "Split", type)) return false;
  std::vector<Constant> weights, biases;
  std::vector<int64_t> sizes;
  for (const Sibling &s : all) {
    weights.push_back(*context.constant(s.weights));
    sizes.push_back(weights.back().dims()[1]);
    const auto bytes = static_cast<size_t>(storage_bytes(type, sizes.back()).value_or(0));
    biases.push_back(s.sum.valid() ? *context.constant(s.bias)
                                   : Constant::owned(type, {sizes.back()}, std::vector<uint8_t>(bytes, 0)));
  }
  auto change = context.rewriter().begin(kRule, RewriteKind::kFuse, n);
  change.numerics(NumericsClass::kReassociating);
  const std::string name = context.graph().value(all[0].weights).name;
  NodeId made = change.create("MatMul", {context.input(n, 0), change.constant(name + ":joined", joined(weights))});
  if (biased)
    made = change.create("Add", {change.output(made), change.constant(name + ":bias", joined(biases).plain())});
  const NodeId parts =
      change.create("Split", {change.output(made), change.constant(name + ":sizes", Constant::int64s(sizes))},
                    {{"axis", int64_t{-1}}}, all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    change.replace(all[i].result(context), change.output(parts, i));
    if (all[i].sum.valid()) change.erase(all[i].sum);
    change.erase(all[i].product);
  }
  OPTC_TRY(change.commit());
  return true;
}

constexpr Rule kRules[] = {
    {"matmul.bias", NumericsClass::kReassociating, "Add", "MatMul(a, b) + c -> Gemm(a, b, c)",
     "rank 2, f32 (in 16 bits the product is rounded before the sum: lowering fuses the two so), c broadcasts to the "
     "product's shape, the product used once",
     bias},
    {"matmul.transpose", NumericsClass::kExact, "Gemm",
     "Gemm of a transposed operand -> Gemm with transA or transB toggled", "the permutation is [1, 0]", transpose},
    {"matmul.siblings", NumericsClass::kReassociating, "MatMul",
     "products of one value by two to four constant matrices, with a bias or without -> one product and a Split",
     "the result is to be a model and loses two nodes or more by it, each matrix [K, N] of one float type and read by "
     "its product alone; not three products with a bias each; what has no bias beside others that have one does not "
     "show the sign of a zero",
     join},
};

}  // namespace

std::span<const Rule> matmul_rules() { return kRules; }

}  // namespace optc
