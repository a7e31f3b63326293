// Shape, Size, Reshape, Flatten, Squeeze, Unsqueeze: the bytes stay, the shape changes or becomes data.

#include "ops/build.h"
#include "ops/conditions.h"
#include "ops/elements.h"
#include "ops/registry.h"
#include "ops/steps.h"
#include "ops/util.h"

namespace optc {
namespace {

using Dims = std::vector<Dim>;

// A view keeps the elements of a small integer tensor.
void keep_elements(InferContext &c, const Shape &shape) {
  if (const Dims *elements = c.elements(0); elements && (shape.size() <= 1 || is_static(shape)))
    c.set_elements(0, *elements);
}

Status infer_shape(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  const Shape &shape = c.shape(0);
  const int64_t rank = c.rank(0);
  int64_t start = c.node().int_or("start", 0), end = c.node().int_or("end", rank);
  if (start < 0) start += rank;
  if (end < 0) end += rank;
  start = start < 0 ? 0 : start > rank ? rank : start;
  end = end < start ? start : end > rank ? rank : end;
  Dims elements(shape.begin() + start, shape.begin() + end);
  c.set_tensor(0, ElementType::kInt64, {end - start});
  set_sizes(c, 0, std::move(elements));
  return {};
}

Status infer_size(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  c.set_tensor(0, ElementType::kInt64, {});
  set_sizes(c, 0, {element_count(c.shape(0))});
  return {};
}
// The product of dims, where it is no expression that a Dim states.
Status build_size(BuildContext &c) {
  if (c.graph().value(c.node().output(0)).elements) return build_elements(c);
  NestBuilder nest(c, "size");
  Expr count = nest.index(1);
  for (Dim d : c.shape(0)) count = count * nest.index(d);
  nest.store(c.output(0), {}, count);
  nest.finish();
  return {};
}

Status infer_reshape(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  if (!c.has_input(1)) return c.invalid("Reshape needs a shape");
  const Shape in = c.shape(0);
  const Dims *wanted = c.elements(1);
  Shape out;
  if (!wanted) {
    OPTC_ASSIGN(int64_t length, input_length(c, 1));
    const auto entries = known_entries(c.graph(), c.node().input(1), length);
    for (size_t k = 0; k < entries.size(); ++k) {
      const bool fixed = entries[k] && entries[k]->is_constant() && entries[k]->value() > 0;
      out.push_back(fixed ? *entries[k] : c.run_time_size(0, k));
    }
    c.set_tensor(0, c.element(0), std::move(out));
    return {};
  }
  const bool allow_zero = c.node().int_or("allowzero", 0) != 0;
  const Dim total = element_count(in);
  int inferred = -1;
  for (size_t k = 0; k < wanted->size(); ++k) {
    Dim d = (*wanted)[k];
    if (d.is(-1)) {
      if (inferred >= 0) return c.invalid("the shape has more than one -1");
      inferred = static_cast<int>(k);
      out.push_back(1);
    } else if (d.is(0) && !allow_zero) {
      if (k >= in.size())
        return c.invalid("the shape's 0 at position " + std::to_string(k) + " has no dimension to copy from");
      out.push_back(in[k]);
    } else if (d.is_constant() && d.value() < 0) {
      return c.invalid("the shape has the entry " + d.str());
    } else if (allow_zero || lower_bound(d) > 0 || exact_div(total, d) || (k < in.size() && exact_div(in[k], d))) {
      out.push_back(d);  // where it is 0, so is the number of elements, or what would be copied
    } else if (k < in.size()) {
      out.push_back(d + in[k] * max(Dim(1) - d, 0));  // in[k] where d is 0
    } else {
      OPTC_TRY(at_most(c, 1, d, "an entry of the shape without a dimension to copy from"));
      out.push_back(d);
    }
  }
  Dim rest = element_count(out);
  if (inferred >= 0) {
    if (rest.is(0)) {
      if (!total.is(0) || allow_zero) return c.invalid("the -1 of a shape with no elements cannot be found");
      out[static_cast<size_t>(inferred)] = 0;
    } else if (auto quotient = exact_div(total, rest)) {
      out[static_cast<size_t>(inferred)] = *quotient;
    } else {
      OPTC_TRY(at_most(c, 1, rest, "the product of the sizes beside a -1"));
      Dim quotient_floor = floor_div(total, rest);
      out[static_cast<size_t>(inferred)] = quotient_floor;
      if (total.is_constant() && rest.is_constant() && total.value() % rest.value() != 0)
        return c.invalid("a tensor of " + total.str() + " elements cannot take the shape " + to_string(Shape(*wanted)));
      OPTC_TRY(c.same(total, quotient_floor * rest, "the number of elements"));
    }
  } else {
    OPTC_TRY(c.same(total, rest, "the number of elements"));
  }
  c.set_tensor(0, c.element(0), out);
  keep_elements(c, out);
  return {};
}

Status build_reshape(BuildContext &c) {
  if (!c.elements(1))
    c.library("reshape_sizes", {c.input(0), c.input(1)}, {}, {{"allowzero", c.node().int_or("allowzero", 0)}},
              output_symbols(c, 0));
  c.alias(0, c.input(0));
  return {};
}

Status infer_flatten(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  const int64_t rank = c.rank(0);
  int64_t axis = c.node().int_or("axis", 1);
  if (axis < 0) axis += rank;
  if (axis < 0 || axis > rank) return c.invalid("axis is out of range for rank " + std::to_string(rank));
  const Shape &in = c.shape(0);
  const size_t split = static_cast<size_t>(axis);
  c.set_tensor(0, c.element(0), {product(in, 0, split), product(in, split, in.size())});
  return {};
}

bool run_time_axes(InferContext &c) { return c.has_input(1) && !c.elements(1) && !c.constant(1); }

// Which of `rank` axes are listed; axes absent: nullopt.
Result<std::optional<std::vector<bool>>> listed_axes(InferContext &c, size_t input, int64_t rank) {
  std::optional<std::vector<bool>> marks;
  if (!c.has_input(input)) return marks;
  auto axes = static_ints(c.elements(input));
  if (!axes) axes = constant_ints(c.constant(input));
  if (!axes) return c.unsupported("the axes are known only at run time", "make input 'axes' a constant");
  marks.emplace(static_cast<size_t>(rank), false);
  for (int64_t value : *axes) {
    OPTC_ASSIGN(int64_t axis, c.axis(value, rank, "axes"));
    if ((*marks)[static_cast<size_t>(axis)]) return c.invalid("axis " + std::to_string(axis) + " is listed twice");
    (*marks)[static_cast<size_t>(axis)] = true;
  }
  return marks;
}

// The rank is known, the dims are found by a library function.
Status set_run_time_shape(InferContext &c, int64_t rank) {
  Shape out;
  for (int64_t k = 0; k < rank; ++k) out.push_back(c.run_time_size(0, static_cast<size_t>(k)));
  c.set_tensor(0, c.element(0), std::move(out));
  return {};
}

Status build_axes_view(BuildContext &c) {
  if (c.has_input(1) && !c.elements(1) && !c.constant(1))
    c.library(c.node().op == "Squeeze" ? "squeeze_sizes" : "unsqueeze_sizes", {c.input(0), c.input(1)}, {}, {},
              output_symbols(c, 0));
  c.alias(0, c.input(0));
  return {};
}

Status infer_squeeze(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  const Shape in = c.shape(0);
  if (run_time_axes(c)) {
    OPTC_ASSIGN(int64_t dropped, input_length(c, 1));
    if (dropped > c.rank(0)) return c.invalid("there are more axes than dimensions");
    return set_run_time_shape(c, c.rank(0) - dropped);
  }
  OPTC_ASSIGN(auto marks, listed_axes(c, 1, c.rank(0)));
  Shape out;
  for (size_t i = 0; i < in.size(); ++i) {
    if (marks) {
      if ((*marks)[i]) {
        OPTC_TRY(c.same(in[i], 1, "a squeezed dimension"));
        continue;
      }
    } else {
      if (in[i].is(1)) continue;
      // A dim that is 1 only in some runs decides the rank. It is taken to be another number, since who means a dim of
      // 1 writes it. For a symbol of the inputs that is a bound, which the signature shows; each run checks it.
      if (!in[i].is_constant() && lower_bound(in[i]) <= 1 && upper_bound(in[i]) >= 1) {
        const DimSymbol *symbol = single_symbol(in[i]);
        if (upper_bound(in[i]) < 2)
          return c.unsupported("the rank of the result depends on whether dimension " + in[i].str() + " is 1",
                               "give Squeeze its axes, or fix that dimension with --dim");
        if (symbol && symbol->kind == SymbolKind::kModel && c.node().region == Graph::main())
          c.dims().set_bounds(symbol, 2, symbol->max);
        else
          c.constrain(
              min(max(in[i] - 1, Dim(1) - in[i]), 1), 1, false,
              "without axes, dimension " + std::to_string(i) + " must not become 1, which would change the rank");
      }
    }
    out.push_back(in[i]);
  }
  c.set_tensor(0, c.element(0), out);
  keep_elements(c, out);
  return {};
}

Status infer_unsqueeze(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  const Shape in = c.shape(0);
  OPTC_ASSIGN(int64_t added, c.has_input(1) ? input_length(c, 1) : Result<int64_t>(c.invalid("Unsqueeze needs axes")));
  const int64_t rank = c.rank(0) + added;
  if (run_time_axes(c)) return set_run_time_shape(c, rank);
  OPTC_ASSIGN(auto marks, listed_axes(c, 1, rank));
  Shape out;
  size_t next = 0;
  for (int64_t i = 0; i < rank; ++i) out.push_back((*marks)[static_cast<size_t>(i)] ? Dim(1) : in[next++]);
  c.set_tensor(0, c.element(0), out);
  keep_elements(c, out);
  return {};
}

Status axes_to_input(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  return attribute_to_input(graph, node, "axes", 1, diagnostics);
}
Status axes_to_attribute(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  return input_to_attribute(graph, node, 1, "axes", diagnostics);
}
Status shape_to_input(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  graph.remove_attribute(node, "consumed_inputs");
  return attribute_to_input(graph, node, "shape", 1, diagnostics);
}
Status shape_to_attribute(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  return input_to_attribute(graph, node, 1, "shape", diagnostics);
}
Status no_allow_zero(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  if (graph.node(node).int_or("allowzero", 0) != 0) return cannot_lower(graph, node, "allowzero", 14, diagnostics);
  graph.remove_attribute(node, "allowzero");
  return {};
}
Status no_start_end(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  if (graph.node(node).int_or("start", 0) != 0 || graph.node(node).attribute("end"))
    return cannot_lower(graph, node, "start and end of Shape", 15, diagnostics);
  graph.remove_attribute(node, "start");
  return {};
}

const VersionStep kAxesSteps[] = {{13, axes_to_input, axes_to_attribute}};
const VersionStep kReshapeSteps[] = {{5, shape_to_input, shape_to_attribute}, {14, nullptr, no_allow_zero}};
const VersionStep kShapeSteps[] = {{15, nullptr, no_start_end}};

const OpDef kOps[] = {
    {"Shape", OpForm::kIndex, 25, infer_shape, build_elements, kShapeSteps},
    {"Size", OpForm::kIndex, 25, infer_size, build_size},
    {"Reshape", OpForm::kIndex, 25, infer_reshape, build_reshape, kReshapeSteps},
    {"Flatten", OpForm::kIndex, 25, infer_flatten, build_view},
    {"Squeeze", OpForm::kIndex, 25, infer_squeeze, build_axes_view, kAxesSteps},
    {"Unsqueeze", OpForm::kIndex, 25, infer_unsqueeze, build_axes_view, kAxesSteps},
};

}  // namespace

std::span<const OpDef> shape_ops() { return kOps; }

}  // namespace optc
