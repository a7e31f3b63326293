#include "ops/float_elements.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace optc {
namespace {

using Numbers = std::optional<std::vector<double>>;

constexpr int64_t kMostElements = 64;
constexpr int kMostVisits = 256;

double rounded(ElementType type, double value) {
  return type == ElementType::kFloat32 ? static_cast<double>(static_cast<float>(value)) : value;
}

std::optional<double> of_one(std::string_view op, double x) {
  if (op == "Identity") return x;
  if (op == "Ceil") return std::ceil(x);
  if (op == "Floor") return std::floor(x);
  if (op == "Neg") return -x;
  if (op == "Abs") return std::fabs(x);
  if (op == "Relu" && !std::isnan(x)) return x > 0 ? x : 0;
  return std::nullopt;
}

// Of two f32 numbers, one operation in double and a rounding give the f32 result.
std::optional<double> of_two(std::string_view op, double x, double y) {
  if (op == "Add") return x + y;
  if (op == "Sub") return x - y;
  if (op == "Mul") return x * y;
  if (op == "Div") return x / y;
  if (std::isnan(x) || std::isnan(y)) return std::nullopt;
  if (op == "Max") return std::max(x, y);
  if (op == "Min") return std::min(x, y);
  return std::nullopt;
}

class Walk {
 public:
  explicit Walk(const Graph &graph) : graph_(graph) {}

  Numbers floats(ValueId id) {
    if (!id.valid() || ++visits_ > kMostVisits) return std::nullopt;
    const Value &value = graph_.value(id);
    const ElementType type = value.type.element;
    if (!value.type.is_tensor() || (type != ElementType::kFloat32 && type != ElementType::kFloat64))
      return std::nullopt;
    if (const Constant *constant = graph_.constant(id)) {
      if (constant->count() > kMostElements) return std::nullopt;
      std::vector<double> numbers;
      for (int64_t i = 0; i < constant->count(); ++i) numbers.push_back(constant->as_double(i));
      return numbers;
    }
    // Beyond lists the order of elements is for others to know.
    if (value.kind != ValueKind::kNodeOutput || !value.type.shape || value.type.rank() > 1) return std::nullopt;
    const Node &node = graph_.node(value.producer);
    if (node.outputs.size() != 1) return std::nullopt;
    Numbers numbers = result(node);
    if (!numbers || numbers->size() > static_cast<size_t>(kMostElements)) return std::nullopt;
    for (double &x : *numbers) x = rounded(type, x);
    return numbers;
  }

 private:
  Numbers result(const Node &node) {
    const std::string_view op = node.op;
    if (op == "Cast") return cast(node.input(0));
    if (op == "Unsqueeze" || op == "Squeeze" || op == "Reshape" || op == "Flatten") return floats(node.input(0));
    if (op == "Concat") return concat(node);
    if (op == "Gather") return gather(node);
    if (op == "Clip") return clip(node);
    if (node.inputs.size() == 1) {
      Numbers numbers = floats(node.input(0));
      if (!numbers) return std::nullopt;
      for (double &x : *numbers) {
        const auto y = of_one(op, x);
        if (!y) return std::nullopt;
        x = *y;
      }
      return numbers;
    }
    return node.inputs.size() == 2 ? pair(op, floats(node.input(0)), floats(node.input(1))) : std::nullopt;
  }

  // Operands of one length, or of which one has one element.
  static Numbers pair(std::string_view op, const Numbers &a, const Numbers &b) {
    if (!a || !b || a->empty() || b->empty()) return std::nullopt;
    const size_t n = std::max(a->size(), b->size());
    if ((a->size() != n && a->size() != 1) || (b->size() != n && b->size() != 1)) return std::nullopt;
    std::vector<double> numbers;
    for (size_t i = 0; i < n; ++i) {
      const auto y = of_two(op, (*a)[a->size() == 1 ? 0 : i], (*b)[b->size() == 1 ? 0 : i]);
      if (!y) return std::nullopt;
      numbers.push_back(*y);
    }
    return numbers;
  }

  Numbers clip(const Node &node) {
    Numbers numbers = floats(node.input(0));
    if (!node.input(1).valid() || !node.input(2).valid()) {  // an infinity becomes the largest number of the type
      if (!numbers || std::any_of(numbers->begin(), numbers->end(), [](double v) { return std::isinf(v); }))
        return std::nullopt;
    }
    if (node.input(1).valid()) numbers = pair("Max", numbers, floats(node.input(1)));
    if (node.input(2).valid()) numbers = pair("Min", numbers, floats(node.input(2)));
    return numbers;
  }

  Numbers cast(ValueId from) {
    if (!from.valid() || !graph_.value(from).type.is_tensor()) return std::nullopt;
    if (is_float(graph_.value(from).type.element)) return floats(from);
    const auto integers = known_integers(from);
    if (!integers) return std::nullopt;
    return std::vector<double>(integers->begin(), integers->end());
  }

  Numbers concat(const Node &node) {
    std::vector<double> all;
    for (const ValueId operand : node.inputs) {
      const Numbers part = floats(operand);
      if (!part || all.size() + part->size() > static_cast<size_t>(kMostElements)) return std::nullopt;
      all.insert(all.end(), part->begin(), part->end());
    }
    return all;
  }

  Numbers gather(const Node &node) {
    const ValueId table = node.input(0);
    if (!table.valid() || !graph_.value(table).type.has_shape() || graph_.value(table).type.rank() != 1)
      return std::nullopt;
    const Numbers rows = floats(table);
    const auto indices = known_integers(node.input(1));
    if (!rows || !indices) return std::nullopt;
    const int64_t n = static_cast<int64_t>(rows->size());
    std::vector<double> numbers;
    for (const int64_t index : *indices) {
      const int64_t at = index < 0 ? index + n : index;
      if (at < 0 || at >= n) return std::nullopt;
      numbers.push_back((*rows)[static_cast<size_t>(at)]);
    }
    return numbers;
  }

  // Of a double's exact range, so that one rounding leads to f32.
  std::optional<std::vector<int64_t>> known_integers(ValueId id) const {
    constexpr int64_t kExact = int64_t{1} << 53;
    if (!id.valid()) return std::nullopt;
    std::vector<int64_t> numbers;
    const auto add = [&](int64_t x) {
      numbers.push_back(x);
      return x >= -kExact && x <= kExact;
    };
    if (const Constant *constant = graph_.constant(id)) {
      if (constant->count() > kMostElements || !is_integer(constant->type())) return std::nullopt;
      for (int64_t i = 0; i < constant->count(); ++i)
        if (!add(constant->as_int64(i))) return std::nullopt;
      return numbers;
    }
    const auto &elements = graph_.value(id).elements;
    if (!elements) return std::nullopt;
    for (const Dim d : *elements)
      if (!d.is_constant() || !add(d.value())) return std::nullopt;
    return numbers;
  }

  const Graph &graph_;
  int visits_ = 0;
};

}  // namespace

std::optional<std::vector<double>> known_floats(const Graph &graph, ValueId value) { return Walk(graph).floats(value); }

}  // namespace optc
