#include "ops/registry.h"

#include <algorithm>

#include "ir/dim/saturation.h"
#include "ops/conditions.h"
#include "ops/elements.h"
#include "ops/list.h"
#include "ops/util.h"

namespace optc {

#define OPTC_X(name) std::span<const OpDef> name##_ops();
OPTC_OP_FILES(OPTC_X)
#undef OPTC_X

namespace {

const std::vector<const OpDef *> &sorted_ops() {
  static const std::vector<const OpDef *> ops = [] {
    std::vector<const OpDef *> all;
    [[maybe_unused]] auto append = [&](std::span<const OpDef> part) {
      for (const OpDef &op : part) all.push_back(&op);
    };
#define OPTC_X(name) append(name##_ops());
    OPTC_OP_FILES(OPTC_X)
#undef OPTC_X
    std::sort(all.begin(), all.end(), [](const OpDef *a, const OpDef *b) { return a->name < b->name; });
    return all;
  }();
  return ops;
}

const Type &no_type() {
  static const Type none;
  return none;
}

// Sizes that no tensor can have, and ranks that no model needs: a few bytes of a model can ask for either.
Status check_bounds(const Graph &graph, NodeId node, Diagnostics &diagnostics) {
  for (ValueId v : graph.node(node).outputs) {
    if (!v.valid() || !graph.value(v).type.has_shape()) continue;
    const Shape &shape = *graph.value(v).type.shape;
    if (shape.size() > static_cast<size_t>(kMaxRank))
      return diagnostics.error(ErrorKind::kUnsupported,
                               "the result has rank " + std::to_string(shape.size()) + "; at most " +
                                   std::to_string(kMaxRank) + " is supported",
                               graph.describe(node));
    for (size_t k = 0; k < shape.size(); ++k) {
      if (shape[k].is_constant() && shape[k].value() < 0)
        return diagnostics.error(
            ErrorKind::kInvalid,
            "dimension " + std::to_string(k) + " of '" + graph.value(v).name + "' would be " + shape[k].str(),
            graph.describe(node));
      if (is_saturated(shape[k]))
        return diagnostics.error(ErrorKind::kUnsupported,
                                 "dimension " + std::to_string(k) + " of '" + graph.value(v).name +
                                     "' is too large, or an expression of too many parts",
                                 graph.describe(node), "fix symbolic dimensions with --dim");
    }
  }
  return {};
}

// States for each dim of a result that it is not negative, where that is not proved: a size of a ConstantOfShape or of
// an Expand may be an expression like n - 2.
Status no_dim_is_negative(InferContext &context) {
  for (ValueId v : context.node().outputs) {
    if (!v.valid() || !context.graph().value(v).type.has_shape()) continue;
    const Shape shape = *context.graph().value(v).type.shape;
    for (size_t k = 0; k < shape.size(); ++k)
      if (lower_bound(shape[k]) < 0)
        OPTC_TRY(
            at_most(context, 0, shape[k], "0, the least size of dimension " + std::to_string(k) + " of a result,"));
  }
  return {};
}

}  // namespace

std::string_view to_string(OpForm form) {
  switch (form) {
    case OpForm::kPointwise:
      return "pointwise";
    case OpForm::kIndex:
      return "index";
    case OpForm::kReduction:
      return "reduction";
    case OpForm::kContraction:
      return "contraction";
    case OpForm::kExpansion:
      return "expansion";
    case OpForm::kLibrary:
      return "library";
    case OpForm::kControlFlow:
      return "control flow";
    case OpForm::kBody:
      return "body";
  }
  return "";
}

const OpDef *find_op(std::string_view name) {
  const auto &ops = sorted_ops();
  auto it =
      std::lower_bound(ops.begin(), ops.end(), name, [](const OpDef *op, std::string_view n) { return op->name < n; });
  return it != ops.end() && (*it)->name == name ? *it : nullptr;
}

std::vector<const OpDef *> all_ops() { return sorted_ops(); }

Status infer_node(Graph &graph, NodeId node, Diagnostics &diagnostics, std::vector<DimConstraint> *constraints,
                  InferMode mode) {
  const OpDef *op = find_op(graph.node(node).op);
  if (!op)
    return diagnostics.error(ErrorKind::kUnsupported, "operator " + graph.node(node).op + " is not supported",
                             graph.describe(node));
  if (op->body)
    return diagnostics.error(ErrorKind::kUnsupported,
                             "operator " + graph.node(node).op + " exists in model files only, not in a Graph",
                             graph.describe(node));
  // A rank that inference cannot find may have been declared by the model (the importer sets it): it is kept. Not in
  // bodies, whose owners infer them several times with changing operands.
  std::vector<Type> before;
  if (graph.node(node).region == Graph::main())
    for (ValueId v : graph.node(node).outputs) before.push_back(v.valid() ? graph.value(v).type : Type());
  InferContext context(graph, node, diagnostics, constraints, mode);
  OPTC_TRY(op->infer(context));
  OPTC_TRY(check_bounds(graph, node, diagnostics));
  OPTC_TRY(no_dim_is_negative(context));
  for (size_t i = 0; i < before.size(); ++i) {
    const ValueId v = graph.node(node).outputs[i];
    if (!v.valid() || !before[i].has_shape()) continue;
    const Type &now = graph.value(v).type;
    if (now.is_tensor() && !now.shape && now.element == before[i].element) graph.set_type(v, before[i]);
  }
  return {};
}

Status infer_graph(Graph &graph, Diagnostics &diagnostics) {
  for (NodeId node : graph.nodes(Graph::main())) OPTC_TRY(infer_node(graph, node, diagnostics));
  return {};
}

Status OpInference::infer(Graph &graph, NodeId node, Diagnostics &diagnostics) const {
  return infer_node(graph, node, diagnostics);
}

// --- InferContext --------------------------------------------------------------------------------------------

InferContext::InferContext(Graph &graph, NodeId node, Diagnostics &diagnostics, std::vector<DimConstraint> *constraints,
                           InferMode mode)
    : graph_(graph), node_(node), diagnostics_(diagnostics), constraints_(constraints), mode_(mode) {
  // What an earlier inference knew of the elements may no longer hold.
  for (ValueId v : this->node().outputs)
    if (v.valid() && graph_.value(v).elements) graph_.set_elements(v, nullptr);
}

const Type &InferContext::input(size_t i) const {
  const ValueId v = node().input(i);
  return v.valid() ? graph_.value(v).type : no_type();
}

const Constant *InferContext::constant(size_t i) const { return graph_.constant(node().input(i)); }

const std::vector<Dim> *InferContext::elements(size_t i) const {
  const ValueId v = node().input(i);
  if (!v.valid()) return nullptr;
  if (!graph_.value(v).elements) {
    const Constant *c = graph_.constant(v);
    if (!c) return nullptr;
    auto elements = constant_elements(*c);
    if (!elements) return nullptr;
    graph_.set_elements(v, std::move(elements));
  }
  return graph_.value(v).elements.get();
}

Status InferContext::require_shape(size_t i) {
  const Type &type = input(i);
  if (!type.is_tensor()) return invalid("input " + std::to_string(i) + " must be a tensor");
  if (!type.shape)
    return unsupported("the rank of input " + std::to_string(i) + " ('" + graph_.value(node().input(i)).name +
                           "') is not known before the model runs",
                       "give the shape of the model's inputs with --shape or --dim");
  return {};
}

void InferContext::set(size_t output, Type type) {
  const ValueId v = node().output(output);
  if (!v.valid()) return;
  if (type.is_tensor() && type.element == ElementType::kUndefined) return;  // the operand has no type yet
  graph_.set_type(v, std::move(type));
}

void InferContext::set_tensor(size_t output, ElementType element, Shape shape) {
  set(output, Type::tensor(element, std::move(shape)));
}

void InferContext::set_elements(size_t output, std::vector<Dim> elements) {
  const ValueId v = node().output(output);
  if (!v.valid() || elements.size() > static_cast<size_t>(kMaxElements)) return;
  const ElementType type = graph_.value(v).type.element;
  std::vector<TypedElement> typed;
  for (Dim d : elements) {
    const auto element = typed_element(type, d);
    if (!element) return;
    typed.push_back(*element);
  }
  for (size_t i = 0; i < typed.size(); ++i) {
    elements[i] = typed[i].value;
    if (typed[i].at_least) constrain(min(elements[i], *typed[i].at_least), *typed[i].at_least);
    if (typed[i].at_most) constrain(max(elements[i], *typed[i].at_most), *typed[i].at_most);
  }
  graph_.set_elements(v, std::make_shared<const std::vector<Dim>>(std::move(elements)));
}

Dim InferContext::run_time_size(size_t output, size_t axis, int64_t max) {
  const ValueId v = node().output(output);
  std::string name = "size";
  if (v.valid()) {
    const Type &type = graph_.value(v).type;
    if (type.has_shape() && axis < type.shape->size()) {
      const DimSymbol *symbol = single_symbol((*type.shape)[axis]);
      if (symbol && is_size_of(*symbol, graph_.value(v).name, axis)) {
        if (max < symbol->max) dims().set_bounds(symbol, 0, max);
        return (*type.shape)[axis];
      }
    }
    name = size_name(graph_.value(v).name, axis);
  }
  return dims().new_symbol(SymbolKind::kData, name, 0, max);
}

Status InferContext::infer_region(RegionId region, InferMode mode) {
  if (mode_ == InferMode::kTentative) mode = mode_;
  for (NodeId node : graph_.nodes(region)) OPTC_TRY(infer_node(graph_, node, diagnostics_, constraints_, mode));
  return {};
}

Status InferContext::infer_region(RegionId region, Diagnostics &diagnostics) {
  for (NodeId node : graph_.nodes(region)) OPTC_TRY(infer_node(graph_, node, diagnostics, nullptr, mode_));
  return {};
}

Failure InferContext::invalid(std::string message, std::string help) {
  return diagnostics_.error(ErrorKind::kInvalid, std::move(message), graph_.describe(node_), std::move(help));
}
Failure InferContext::unsupported(std::string message, std::string help) {
  return diagnostics_.error(ErrorKind::kUnsupported, std::move(message), graph_.describe(node_), std::move(help));
}

void InferContext::constrain(Dim left, Dim right, bool or_one, std::string_view what) {
  if (!constraints_) return;
  std::string where = graph_.describe(node_);
  if (!what.empty()) where += ": " + std::string(what);
  constraints_->push_back({left, right, or_one, std::move(where)});
}

namespace {

// A symbolic dim with what is known of it: which other node asks for that, its name does not tell.
std::string with_bounds(Dim d) {
  if (d.is_constant()) return d.str();
  const int64_t low = lower_bound(d), high = upper_bound(d);
  std::string text = d.str();
  if (low > 1) text += " (" + std::to_string(low) + " or more, as other nodes or the caller need it)";
  if (high < (int64_t{1} << 31))
    text += " (" + std::to_string(high) + " at most, as other nodes or the caller need it)";
  return text;
}

}  // namespace

Result<Dim> InferContext::same(Dim a, Dim b, std::string_view what) {
  if (a == b) return a;
  if ((a.is_constant() && b.is_constant()) || proved_less(a, b) || proved_less(b, a))
    return invalid(std::string(what) + " must be equal: " + with_bounds(a) + " against " + with_bounds(b));
  if (is_saturated(a) || is_saturated(b))  // not the values they stand for: no run could be checked
    return unsupported(std::string(what) + " is an expression of too many parts", "fix symbolic dimensions with --dim");
  constrain(a, b);
  return b.is_constant() ? b : a;
}

Result<int64_t> InferContext::axis(int64_t value, int64_t rank, std::string_view what) {
  if (value < -rank || value >= rank)
    return invalid(std::string(what) + " " + std::to_string(value) + " is out of range for rank " +
                   std::to_string(rank));
  return value < 0 ? value + rank : value;
}

}  // namespace optc
