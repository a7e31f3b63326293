#include "optimizer/rules/zero_sign.h"

#include <algorithm>
#include <set>
#include <vector>

namespace optc {
namespace {

// Of a zero of either sign they make the same number, or a sum in which it is one of many terms.
constexpr std::string_view kBlind[] = {"Conv",
                                       "ConvTranspose",
                                       "MatMul",
                                       "Gemm",
                                       "optc.Attention",
                                       "ReduceMean",
                                       "ReduceSum",
                                       "ReduceL2",
                                       "ReduceSumSquare",
                                       "GlobalAveragePool",
                                       "AveragePool",
                                       "Sigmoid",
                                       "HardSigmoid",
                                       "Softmax",
                                       "Exp",
                                       "Cos",
                                       "Softplus",
                                       "Abs",
                                       "Equal",
                                       "Less",
                                       "Greater",
                                       "LessOrEqual",
                                       "GreaterOrEqual"};
// They pass a zero on: what reads them decides.
constexpr std::string_view kPass[] = {"Add",
                                      "Sub",
                                      "Mul",
                                      "Neg",
                                      "Relu",
                                      "LeakyRelu",
                                      "Gelu",
                                      "Tanh",
                                      "Swish",
                                      "HardSwish",
                                      "Erf",
                                      "Where",
                                      "Identity",
                                      "Dropout",
                                      "Reshape",
                                      "Flatten",
                                      "Squeeze",
                                      "Unsqueeze",
                                      "Transpose",
                                      "Expand",
                                      "Slice",
                                      "Split",
                                      "Concat",
                                      "Pad",
                                      "Gather",
                                      "Resize",
                                      "BatchNormalization",
                                      "LayerNormalization",
                                      "InstanceNormalization",
                                      "GroupNormalization",
                                      "RMSNormalization",
                                      "LogSoftmax"};

template <size_t N>
bool among(const std::string_view (&list)[N], const std::string &op) {
  return std::find(std::begin(list), std::end(list), op) != std::end(list);
}

}  // namespace

std::string tells_zeros_apart(const RuleContext &context, ValueId value) {
  constexpr size_t kMost = 64;
  std::vector<ValueId> open{value};
  std::set<uint32_t> seen{value.index};
  while (!open.empty()) {
    const ValueId v = open.back();
    open.pop_back();
    for (const Use &use : context.graph().value(v).uses) {
      if (use.kind != UseKind::kOperand) return "the output '" + context.graph().value(v).name + "'";
      const Node &reader = context.node(use.node);
      const bool first = use.index == 0;
      // Operands that are no data (the variance of a BatchNormalization, sizes) are read in ways of their own.
      const bool data = first || reader.op == "Add" || reader.op == "Sub" || reader.op == "Mul" ||
                        reader.op == "Concat" || (reader.op == "Where" && use.index > 0) || reader.op == "MatMul" ||
                        (reader.op == "Gemm" && use.index < 2) || (reader.op == "optc.Attention" && use.index < 3) ||
                        reader.op == "Equal" || reader.op == "Less" || reader.op == "Greater";
      if (data && among(kBlind, reader.op)) continue;
      if (!data || !among(kPass, reader.op) || seen.size() > kMost) return reader.op + " '" + reader.name + "'";
      for (const ValueId made : reader.outputs)
        if (made.valid() && seen.insert(made.index).second) open.push_back(made);
    }
  }
  return {};
}

}  // namespace optc
