// If whose branches give different ranks. Where nothing that follows can tell a tensor from the same one with
// dimensions of 1 before it (it is broadcast into something of the higher rank, or only its elements count), the branch
// of the lower rank gets those dimensions, and the rank is known. Whether that is so is asked twice: before, of the
// operators that use the result, and when all types are known, of the ranks that meet there.

#include <algorithm>
#include <numeric>
#include <set>

#include "importer/internal_converter.h"
#include "ops/util.h"

namespace optc {
namespace {

constexpr std::string_view kBroadcasting[] = {"Add",        "And",         "BitShift", "BitwiseAnd", "BitwiseOr",
                                              "BitwiseXor", "Div",         "Equal",    "Greater",    "GreaterOrEqual",
                                              "Less",       "LessOrEqual", "Max",      "Mean",       "Min",
                                              "Mod",        "Mul",         "Or",       "Pow",        "Sub",
                                              "Sum",        "Where",       "Xor"};
constexpr std::string_view kKeepingRank[] = {"Abs",
                                             "Acos",
                                             "Acosh",
                                             "Asin",
                                             "Asinh",
                                             "Atan",
                                             "Atanh",
                                             "BitwiseNot",
                                             "Cast",
                                             "Ceil",
                                             "Cos",
                                             "Cosh",
                                             "Elu",
                                             "Erf",
                                             "Exp",
                                             "Floor",
                                             "Gelu",
                                             "HardSigmoid",
                                             "HardSwish",
                                             "Identity",
                                             "IsInf",
                                             "IsNaN",
                                             "LeakyRelu",
                                             "Log",
                                             "Mish",
                                             "Neg",
                                             "Not",
                                             "Reciprocal",
                                             "Relu",
                                             "Round",
                                             "Selu",
                                             "Sigmoid",
                                             "Sign",
                                             "Sin",
                                             "Sinh",
                                             "Softplus",
                                             "Softsign",
                                             "Sqrt",
                                             "Tan",
                                             "Tanh",
                                             "ThresholdedRelu"};

bool is_one_of(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Whether a value may have more leading dimensions of 1 than the model gives it: it is one of `aligned`, or follows
// from one without an operand that has the rank for itself.
bool has_spare_ones(const Graph &graph, ValueId value, const std::set<uint32_t> &aligned) {
  if (!value.valid() || aligned.count(value.index)) return value.valid();
  const Value &v = graph.value(value);
  if (v.kind != ValueKind::kNodeOutput || aligned.empty()) return false;
  const Node &node = graph.node(v.producer);
  if (node.op == "If") {
    const auto at =
        static_cast<size_t>(std::find(node.outputs.begin(), node.outputs.end(), value) - node.outputs.begin());
    return std::any_of(node.regions.begin(), node.regions.end(), [&](const auto &branch) {
      return has_spare_ones(graph, graph.region(branch.second).outputs[at], aligned);
    });
  }
  if (is_one_of(kKeepingRank, node.op) || node.op == "CastLike") return has_spare_ones(graph, node.input(0), aligned);
  if (!is_one_of(kBroadcasting, node.op)) return false;
  return std::none_of(node.inputs.begin(), node.inputs.end(), [&](ValueId other) {
    return graph.value(other).type.has_shape() && graph.value(other).type.rank() >= v.type.rank() &&
           !has_spare_ones(graph, other, aligned);
  });
}

// Whether `value`, whose rank is `rank` with or without leading dimensions of 1, is used only where those do not
// matter. Before all types are known an operand without a type is taken to have the rank. `open`: the values of which
// this is asked; `aligned`: those that got such dimensions.
bool leading_ones_vanish(const Graph &graph, ValueId value, int rank, bool types_known, std::set<uint32_t> &open,
                         const std::set<uint32_t> &aligned) {
  if (!open.insert(value.index).second) return true;
  for (const Use &use : graph.value(value).uses) {
    if (use.kind == UseKind::kRegionOutput) {
      const NodeId owner = graph.region(use.region).owner;
      if (!owner.valid() || graph.node(owner).op != "If") return false;
      const ValueId out = graph.node(owner).output(use.index);
      if (out.valid() && !leading_ones_vanish(graph, out, rank, types_known, open, aligned)) return false;
      continue;
    }
    const Node &node = graph.node(use.node);
    if (node.op == "Size" || node.op == "If" || (node.op == "CastLike" && use.index == 1)) continue;
    if (node.op == "Reshape" && use.index == 0 && node.int_or("allowzero", 0) == 0) {
      // A 0 copies a dimension by its place.
      const Constant *shape = graph.constant(node.input(1));
      bool copies = !shape && types_known;
      for (int64_t i = 0; shape && i < shape->count(); ++i) copies = copies || shape->as_int64(i) == 0;
      if (copies) return false;
      continue;
    }
    if (is_one_of(kBroadcasting, node.op)) {
      bool absorbed = false;
      for (ValueId other : node.inputs) {
        if (!other.valid() || open.count(other.index)) continue;
        const Type &type = graph.value(other).type;
        absorbed = absorbed ||
                   (type.has_shape() ? type.rank() >= rank && !has_spare_ones(graph, other, aligned) : !types_known);
      }
      if (absorbed) continue;
    } else if (!is_one_of(kKeepingRank, node.op) && !(node.op == "CastLike" && use.index == 0)) {
      return false;
    }
    for (ValueId out : node.outputs)
      if (out.valid() && !leading_ones_vanish(graph, out, rank, types_known, open, aligned)) return false;
  }
  return true;
}

}  // namespace

bool Converter::align_branches(NodeId id) {
  if (graph_.node(id).op != "If") return false;
  bool changed = false;
  for (size_t i = 0; i < graph_.node(id).outputs.size(); ++i) {
    const ValueId output = graph_.node(id).outputs[i];
    if (!output.valid() || !graph_.value(output).type.is_tensor() || graph_.value(output).type.shape) continue;
    const RegionId branches[2] = {graph_.node(id).region_named("then_branch"),
                                  graph_.node(id).region_named("else_branch")};
    int ranks[2];
    bool known = true;
    for (size_t b = 0; b < 2; ++b) {
      const Type &type = graph_.value(graph_.region(branches[b]).outputs[i]).type;
      known = known && type.is_tensor() && type.has_shape();
      ranks[b] = known ? type.rank() : 0;
    }
    if (!known || ranks[0] == ranks[1]) continue;
    std::set<uint32_t> open;
    const std::set<uint32_t> aligned = aligned_values();
    if (!leading_ones_vanish(graph_, output, std::max(ranks[0], ranks[1]), false, open, aligned)) continue;
    const RegionId lower = branches[ranks[0] < ranks[1] ? 0 : 1];
    std::vector<int64_t> axes(static_cast<size_t>(std::abs(ranks[0] - ranks[1])));
    std::iota(axes.begin(), axes.end(), 0);
    std::vector<ValueId> results = graph_.region(lower).outputs;
    const std::string name = graph_.unique_name(graph_.value(results[i]).name + "/aligned");
    const ValueId list = graph_.add_constant(graph_.unique_name(name + "_axes"), Constant::int64s(axes));
    const NodeId view = graph_.add_node(lower, "Unsqueeze", name, {results[i], list}, {{name, Type()}}, {});
    graph_.set_origin(view, graph_.node(id).origin);
    results[i] = graph_.node(view).output(0);
    graph_.set_outputs(lower, std::move(results));
    aligned_.push_back(output);
    changed = true;
  }
  return changed;
}

std::set<uint32_t> Converter::aligned_values() const {
  std::set<uint32_t> values;
  for (ValueId value : aligned_) values.insert(value.index);
  return values;
}

Status Converter::check_aligned() {
  const std::set<uint32_t> aligned = aligned_values();
  for (ValueId value : aligned_) {
    if (!graph_.value(value).alive || graph_.value(value).kind != ValueKind::kNodeOutput) continue;
    const NodeId id = graph_.value(value).producer;
    if (is_dead(graph_, graph_.node(id).region) || !graph_.value(value).type.has_shape()) continue;
    std::set<uint32_t> open;
    if (!leading_ones_vanish(graph_, value, graph_.value(value).type.rank(), true, open, aligned))
      return diagnostics_.error(ErrorKind::kUnsupported,
                                "the rank of '" + graph_.value(value).name + "' is not known before the model runs",
                                graph_.describe(id), "the branches give different ranks: reshape one of them");
  }
  return {};
}

}  // namespace optc
