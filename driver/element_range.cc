#include "driver/element_range.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

namespace optc {
namespace {

constexpr int kDeepest = 24;

class Walk {
 public:
  Walk(const Graph &graph, ElementRange &range) : graph_(graph), range_(range) {}

  // `value` holds the input's elements plus `offset`.
  void follow(ValueId value, int64_t offset, int depth) {
    if (depth > kDeepest || !seen_.insert(value.index).second) return;
    const ElementType type = graph_.value(value).type.element;
    for (const Use &use : graph_.value(value).uses) {
      if (use.kind != UseKind::kOperand) {
        leave(use, offset, depth);
        continue;
      }
      const Node &node = graph_.node(use.node);
      pass_on(node, use.index, offset, depth);
      if (is_integer(type)) {
        indices(node, use.index, offset);
        lengths(node, use.index, offset);
      }
      if (type == ElementType::kString) text(node, use.index);
      if (node.op == "Equal") equal_to(node, use.index, offset);
    }
  }

 private:
  void limit(Dim low, Dim below, int64_t offset) { range_.limits.push_back({low - offset, below - offset}); }
  const Type *type_of(ValueId id) const {
    return id.valid() && graph_.value(id).type.has_shape() ? &graph_.value(id).type : nullptr;
  }
  // The dimension of `id` that an axis attribute or a constant names; nullptr: not known.
  const Dim *dim(ValueId id, int64_t axis) const {
    const Type *type = type_of(id);
    if (!type) return nullptr;
    if (axis < 0) axis += type->rank();
    return axis >= 0 && axis < type->rank() ? &(*type->shape)[axis] : nullptr;
  }
  void index_of(ValueId table, int64_t axis, int64_t offset) {
    if (const Dim *rows = dim(table, axis)) limit(0, *rows, offset);
  }

  void pass_on(const Node &node, uint32_t operand, int64_t offset, int depth) {
    static const std::set<std::string_view> kKeeps = {"Cast",    "Identity", "Reshape", "Squeeze",       "Unsqueeze",
                                                      "Flatten", "Slice",    "Expand",  "Tile",          "Transpose",
                                                      "Gather",  "Split",    "Pad",     "GatherElements"};
    const std::string_view op = node.op;
    const auto next = [&](int64_t by) {
      for (const ValueId out : node.outputs)
        if (out.valid()) follow(out, by, depth + 1);
    };
    if (operand == 0 && kKeeps.count(op)) next(offset);
    if (op == "Concat" || (op == "Where" && operand > 0)) next(offset);
    if (op == "Add" || (op == "Sub" && operand == 0)) {
      const Constant *by = graph_.constant(node.input(op == "Add" ? 1 - operand : 1));
      if (by && by->count() == 1 && is_integer(by->type())) next(offset + (op == "Add" ? 1 : -1) * by->as_int64(0));
    }
    // Bodies see the carried and the scanned values as their inputs: Loop's begin with its number and its condition.
    for (const auto &[name, region] : node.regions) {
      const auto &inputs = graph_.region(region).inputs;
      if ((op == "Scan" || (op == "Loop" && operand >= 2)) && operand < inputs.size())
        follow(inputs[operand], offset, depth + 1);
    }
  }

  // A result of a body is a result of its node: Loop's begin with the condition, and both Loop's and Scan's carried and
  // stacked ones hold the same elements.
  void leave(const Use &use, int64_t offset, int depth) {
    const NodeId owner = graph_.region(use.region).owner;
    if (!owner.valid()) return;
    const Node &node = graph_.node(owner);
    const size_t skipped = node.op == "Loop" ? 1 : 0;
    if (use.index < skipped || use.index - skipped >= node.outputs.size()) return;
    const ValueId out = node.outputs[use.index - skipped];
    if (out.valid()) follow(out, offset, depth + 1);
  }

  void equal_to(const Node &node, uint32_t operand, int64_t offset) {
    const Constant *with = graph_.constant(node.input(1 - operand));
    for (int64_t i = 0; with && i < std::min<int64_t>(with->count(), 16); ++i) {
      if (is_integer(with->type()))
        range_.compared.push_back(with->as_int64(i) - offset);
      else if (with->type() == ElementType::kString)
        range_.words.push_back(with->string_values()[i]);
    }
  }

  void indices(const Node &node, uint32_t operand, int64_t offset) {
    const std::string_view op = node.op;
    if (op == "Gather" && operand == 1) index_of(node.input(0), node.int_or("axis", 0), offset);
    if ((op == "GatherElements" || op == "ScatterElements" || op == "Scatter") && operand == 1)
      index_of(node.input(0), node.int_or("axis", 0), offset);
    if ((op == "GatherND" || op == "ScatterND") && operand == 1) {
      // Each position of the last axis indexes a dimension of its own: the smallest bounds all.
      const Dim *width = dim(node.input(1), -1);
      const int64_t first = op == "GatherND" ? node.int_or("batch_dims", 0) : 0;
      for (int64_t i = 0; width && width->is_constant() && i < std::min<int64_t>(width->value(), 8); ++i)
        index_of(node.input(0), first + i, offset);
    }
    if (op == "OneHot" && operand == 0) {
      const Constant *depth = graph_.constant(node.input(1));
      if (depth && depth->count() == 1) limit(0, depth->as_int64(0), offset);
    }
    if (op == "com.microsoft.EmbedLayerNormalization" && operand < 2) index_of(node.input(2 + 2 * operand), 0, offset);
    if (op == "RotaryEmbedding" && operand == 3) index_of(node.input(1), 0, offset);
    if (op == "com.microsoft.RotaryEmbedding" && operand == 1) index_of(node.input(2), 0, offset);
    if (op == "TensorScatter" && operand == 2) limit(0, 1, offset);
    if (op == "NegativeLogLikelihoodLoss" && operand == 1) index_of(node.input(0), 1, offset);
    if (op == "SoftmaxCrossEntropyLoss" && operand == 1) index_of(node.input(0), 1, offset);
  }

  // Sizes, counts and lengths: positive and small, or up to the dimension that they cut.
  void lengths(const Node &node, uint32_t operand, int64_t offset) {
    const std::string_view op = node.op;
    const auto up_to = [&](const Dim *dim) {
      if (dim) limit(1, *dim + 1, offset);
    };
    if (op == "Slice" && (operand == 1 || operand == 2)) {
      const Constant *axes = graph_.constant(node.input(3));
      const Dim *cut = dim(node.input(0), axes && axes->count() > 0 ? axes->as_int64(0) : 0);
      if (operand == 2)
        up_to(cut);
      else
        limit(0, 1, offset);
    }
    if ((op == "LSTM" || op == "GRU" || op == "RNN") && operand == 4)
      up_to(dim(node.input(0), node.int_or("layout", 0) == 1 ? 1 : 0));
    if (op == "TopK" && operand == 1) up_to(dim(node.input(0), node.int_or("axis", -1)));
    if (op == "Attention" && operand == 6) up_to(dim(node.input(1), -2));
    if (op == "Less" || op == "LessOrEqual" || op == "Greater" || op == "GreaterOrEqual") {
      // A mask of positions: Less(Range(n), length).
      const ValueId other = node.input(1 - operand);
      if (other.valid() && made_by(other, "Range")) up_to(dim(other, -1));
    }
    const auto small = [&](int64_t low, int64_t below) { limit(low, below, offset); };
    if ((op == "Expand" && operand == 1) || (op == "ConstantOfShape" && operand == 0) || (op == "Tile" && operand == 1))
      small(1, 3);
    if (op == "Range") {
      if (operand == 0) small(0, 1);
      if (operand == 1) small(2, 9);
      if (operand == 2) small(1, 2);
    }
    if (op == "Loop" && operand == 0) small(1, 5);
    if (op == "OneHot" && operand == 1) small(2, 9);
    if (op == "Pad" && operand == 1) small(0, 2);
    if ((op == "Mod" || op == "Div") && operand == 1) small(1, 5);
    if (op == "NonMaxSuppression" && operand == 2) small(1, 9);
    if (operand == 1 && (op == "Squeeze" || op == "CumSum" || op.substr(0, 6) == "Reduce")) small(0, 1);
    if (operand == 1 && op == "Unsqueeze") small(0, 1);
    if (op == "BitShift" && operand == 1) small(0, 4);
  }

  void text(const Node &node, uint32_t operand) {
    if (operand != 0) return;
    if (node.op == "Cast") range_.numeric_text = true;
    for (const char *name :
         {"keys_strings", "cats_strings", "string_vocabulary", "pool_strings", "stopwords", "classlabels_strings"})
      if (const Attribute *a = node.attribute(name))
        if (const auto *list = std::get_if<std::vector<std::string>>(a))
          range_.words.insert(range_.words.end(), list->begin(), list->begin() + std::min<size_t>(list->size(), 64));
  }

  // Whether `op` made the value, seen through operators that only move elements.
  bool made_by(ValueId id, std::string_view op) const {
    for (int i = 0; i < kDeepest && graph_.value(id).kind == ValueKind::kNodeOutput; ++i) {
      const Node &node = graph_.node(graph_.value(id).producer);
      if (node.op == op) return true;
      if (node.op != "Cast" && node.op != "Unsqueeze" && node.op != "Reshape" && node.op != "Expand" &&
          node.op != "Identity" && node.op != "Squeeze" && node.op != "Transpose")
        return false;
      id = node.inputs[0];
    }
    return false;
  }

  const Graph &graph_;
  ElementRange &range_;
  std::set<uint32_t> seen_;
};

}  // namespace

ElementRange element_range(const Graph &graph, ValueId input) {
  ElementRange range;
  Walk(graph, range).follow(input, 0, 0);
  std::sort(range.compared.begin(), range.compared.end());
  range.compared.erase(std::unique(range.compared.begin(), range.compared.end()), range.compared.end());
  return range;
}

}  // namespace optc
