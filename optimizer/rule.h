#pragma once
// Rule: one rewrite of a node and what hangs together with it. To add one: write its function and its row in the table
// of its family's file in rules/, and a golden that fires and one that must not in testdata/rules.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/graph/rewriter.h"
#include "optimizer/optimize.h"

namespace optc {

class RuleContext {
 public:
  RuleContext(Rewriter &rewriter, const OptimizeOptions &options, Diagnostics &diagnostics)
      : rewriter_(rewriter), options_(options), diagnostics_(diagnostics), growth_left_(bytes_of_constants() / 100) {
    note_factors_of_reshapes();
  }
  Rewriter &rewriter() { return rewriter_; }
  const Graph &graph() const { return rewriter_.graph(); }
  const OptimizeOptions &options() const { return options_; }
  Diagnostics &diagnostics() { return diagnostics_; }

  // --- matching
  // ---------------------------------------------------------------------------------------------------------------
  const Node &node(NodeId id) const { return graph().node(id); }
  ValueId input(NodeId id, size_t i) const { return node(id).input(i); }
  ValueId output(NodeId id, size_t i = 0) const { return node(id).output(i); }
  const Type &type(ValueId v) const { return graph().value(v).type; }
  const Shape &shape(ValueId v) const { return *graph().value(v).type.shape; }
  // The node that makes `v`, if it is an `op`; invalid otherwise.
  NodeId producer(ValueId v, std::string_view op = {}) const;
  // Read exactly once, by an operand (not a graph output).
  bool single_use(ValueId v) const;
  // All uses are operands of the given nodes: the value may disappear with them.
  bool used_only_by(ValueId v, std::span<const NodeId> nodes) const;
  // f32, f16 or bf16: what networks are stated in.
  bool is_model_float(ValueId v) const {
    const ElementType e = type(v).element;
    return e == ElementType::kFloat32 || e == ElementType::kFloat16 || e == ElementType::kBFloat16;
  }
  // The value of a constant with one element (any rank whose dims are all 1).
  std::optional<double> scalar(ValueId v) const;
  bool is_scalar(ValueId v, double value, double relative = 0) const;
  const Constant *constant(ValueId v) const { return v.valid() ? graph().constant(v) : nullptr; }
  // Whether the rule may put an operator on elements of this type in the place of what it matched at `n`; if not, the
  // rewrite is noted as missed. Asked once all else is right.
  bool may_make(std::string_view rule, NodeId n, std::string_view op, ElementType of) {
    const OperatorSet &operators = options_.operators;
    if (!operators.has || operators.has(op, of)) return true;
    rewriter_.missed(rule, n, operators.name + " has no " + std::string(op) + " of " + std::string(to_string(of)));
    return false;
  }
  // Bytes by which folding may still enlarge the constants beyond what pays anyway: 1 % of what they were at first.
  int64_t growth_left() const { return growth_left_; }
  void grow(int64_t bytes) { growth_left_ -= bytes; }
  // Whether every run in which `d` is 0 fails for another reason: a Reshape of the model as it was at first, which each
  // run reaches, finds a size beside it (-1), and beside 0 no size can be found.
  bool fails_at_zero(Dim d) const;
  // The two operands of a commutative node, the one that `is` accepts second.
  template <typename Is>
  std::optional<std::pair<ValueId, ValueId>> commuted(NodeId n, Is is) const {
    const ValueId a = input(n, 0), b = input(n, 1);
    if (is(b)) return std::make_pair(a, b);
    if (is(a)) return std::make_pair(b, a);
    return std::nullopt;
  }

 private:
  int64_t bytes_of_constants() const;
  void note_factors_of_reshapes();

  Rewriter &rewriter_;
  const OptimizeOptions &options_;
  Diagnostics &diagnostics_;
  int64_t growth_left_;
  std::vector<Dim> factors_of_reshapes_;  // the sizes beside a -1, each once
};

struct Rule {
  std::string_view name;  // family.rule
  NumericsClass numerics;
  std::string_view ops;  // operators that it anchors on, separated by spaces; "*": any
  std::string_view summary, precondition;
  // Looks at one node; makes at most one change. true: changed.
  Result<bool> (*apply)(RuleContext &context, NodeId node);
};

// The families, one file each in rules/.
std::span<const Rule> fold_rules();
std::span<const Rule> identity_rules();
std::span<const Rule> view_rules();
std::span<const Rule> transpose_rules();
std::span<const Rule> activation_rules();
std::span<const Rule> norm_rules();
std::span<const Rule> matmul_rules();
std::span<const Rule> recurrent_rules();
std::span<const Rule> convolution_rules();
std::span<const Rule> attention_rules();

}  // namespace optc
