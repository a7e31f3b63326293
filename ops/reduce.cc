// Reductions over axes, ArgMax, ArgMin, CumSum, CumProd.

#include <algorithm>
#include <cmath>

#include "ops/conditions.h"
#include "ops/pointwise.h"
#include "ops/rows.h"
#include "ops/steps.h"
#include "ops/util.h"

namespace optc {
namespace {

enum class Reduction : uint8_t { kSum, kMean, kMax, kMin, kProd, kL1, kL2, kLogSum, kLogSumExp, kSumSquare };

// Which dimensions are reduced; nullopt when the axes are known only at run time.
std::optional<std::vector<bool>> reduced_axes(const Node &node, const std::vector<Dim> *given, bool has_axes, bool none,
                                              int64_t rank, std::string &error) {
  std::vector<bool> reduced(static_cast<size_t>(rank), false);
  if (has_axes) {
    auto axes = static_ints(given);
    if (!axes && none) axes.emplace();
    if (!axes) return std::nullopt;
    for (int64_t axis : *axes) {
      if (axis < -rank || axis >= rank) {
        error = "axis " + std::to_string(axis) + " is out of range for rank " + std::to_string(rank);
        return reduced;
      }
      reduced[static_cast<size_t>(axis < 0 ? axis + rank : axis)] = true;
    }
    if (!axes->empty()) return reduced;
  }
  if (!node.int_or("noop_with_empty_axes", 0)) reduced.assign(static_cast<size_t>(rank), true);
  return reduced;
}

// Reductions of a vector of sizes: the element count of a shape is the commonest.
void propagate_reduction(InferContext &c, Reduction kind, const std::vector<bool> &reduced) {
  const std::vector<Dim> *x = c.elements(0);
  if (!x || reduced.size() != 1 || !reduced[0] || x->empty()) return;
  Dim result = (*x)[0];
  for (size_t i = 1; i < x->size(); ++i) {
    const Dim d = (*x)[i];
    switch (kind) {
      case Reduction::kSum:
        result = result + d;
        break;
      case Reduction::kProd:
        result = result * d;
        break;
      case Reduction::kMax:
        result = max(result, d);
        break;
      case Reduction::kMin:
        result = min(result, d);
        break;
      default:
        return;
    }
  }
  if (kind == Reduction::kSum || kind == Reduction::kProd || kind == Reduction::kMax || kind == Reduction::kMin)
    c.set_elements(0, {result});
}

template <Reduction kind>
Status infer_reduce(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  const int64_t rank = c.rank(0);
  const bool keep = c.node().int_or("keepdims", 1) != 0;
  if (c.has_input(1) && c.has_shape(1) && c.rank(1) > 1) return c.invalid("axes must have one dimension");
  std::string error;
  const auto reduced = reduced_axes(c.node(), c.elements(1), c.has_input(1),
                                    c.has_input(1) && c.has_shape(1) && element_count(c.shape(1)).is(0), rank, error);
  if (!error.empty()) return c.invalid(error);
  Shape shape;
  if (!reduced) {
    int64_t out_rank = rank;
    if (!keep) {
      OPTC_ASSIGN(const int64_t count, input_length(c, 1));
      out_rank = count == 0 ? (c.node().int_or("noop_with_empty_axes", 0) ? rank : 0) : rank - count;
      if (out_rank < 0) return c.invalid("there are more axes than dimensions");
    }
    for (int64_t k = 0; k < out_rank; ++k) shape.push_back(c.run_time_size(0, static_cast<size_t>(k)));
    c.set_tensor(0, c.element(0), std::move(shape));
    return {};
  }
  for (size_t k = 0; k < reduced->size(); ++k) {
    if (!(*reduced)[k]) {
      shape.push_back(c.shape(0)[k]);
    } else if (keep) {
      shape.push_back(1);
    }
  }
  c.set_tensor(0, c.element(0), std::move(shape));
  propagate_reduction(c, kind, *reduced);
  return {};
}

Combine combine_of(Reduction kind, ElementType type) {
  switch (kind) {
    case Reduction::kMax:
      return type == ElementType::kBool ? Combine::kOr : Combine::kMax;
    case Reduction::kMin:
      return type == ElementType::kBool ? Combine::kAnd : Combine::kMin;
    case Reduction::kProd:
      return Combine::kProduct;
    default:
      return Combine::kSum;
  }
}

// The value that enters the sum. What is no integer itself, the root or the logarithm of a sum of integers, is computed
// of a sum that cannot wrap.
Expr before(Reduction kind, Expr x) {
  if (!is_float(x.type()) && (kind == Reduction::kL2 || kind == Reduction::kLogSum)) x = cast(x, ElementType::kFloat64);
  switch (kind) {
    case Reduction::kL1:
      return absolute(x);
    case Reduction::kL2:
    case Reduction::kSumSquare:
      return x * x;
    default:
      return x;
  }
}

Expr after(Reduction kind, Expr sum, Expr count) {
  switch (kind) {
    case Reduction::kMean:
      return sum / cast(count, sum.type());
    case Reduction::kL2:
      return square_root(sum);
    case Reduction::kLogSum:
      return logarithm(sum);
    default:
      return sum;
  }
}

// The mean of `count` integers over the loops of the open stage, of those that are `inside` where it is given: rounded
// towards zero, and right also where their sum is no number of their type. Of 64 bits quotients and remainders are
// summed.
Expr mean_of_integers(NestBuilder &nest, Expr x, Expr count, Expr inside) {
  const bool wide = bit_width(x.type()) == 64;
  if (!wide) x = cast(x, ElementType::kInt64);
  const Expr n = cast(count, x.type()), zero = x.constant(0);
  const auto counted = [&](Expr value) { return inside.valid() ? select(inside, value, zero) : value; };
  if (!wide) return nest.reduce(Combine::kSum, counted(x)) / n;
  const Expr quotient = x / n;
  const std::vector<Expr> sums =
      nest.reduce_all({{Combine::kSum, counted(quotient)}, {Combine::kSum, counted(x - quotient * n)}});
  const Expr carried = sums[1] / n, rest = sums[1] - carried * n, mean = sums[0] + carried;
  const Expr down = both(less(zero, mean), less(rest, zero)), up = both(less(mean, zero), less(zero, rest));
  return select(down, mean - 1, select(up, mean + 1, mean));
}

// Of an empty set: the least (greatest) value of the stored type, not of the type it is computed in.
Expr start_of(NestBuilder &nest, Reduction kind, ElementType storage, ElementType type) {
  if ((kind != Reduction::kMax && kind != Reduction::kMin) || storage == type || !is_integer(storage)) return {};
  const int width = bit_width(storage);
  const bool is_signed = is_signed_integer(storage);
  const double low = is_signed ? -std::pow(2.0, width - 1) : 0, high = std::pow(2.0, is_signed ? width - 1 : width) - 1;
  return nest.constant(type, kind == Reduction::kMax ? low : high);
}

// The axes are a run-time input. Which input dimension each output dimension is goes to a small vector (-1: a reduced
// one of length 1), the lengths to the symbols of the output's dims.
BufferId emit_run_time_axes(BuildContext &c) {
  const int64_t rank = static_cast<int64_t>(c.output_shape(0).size());
  const BufferId from = c.temporary("axes_left", ElementType::kInt64, {std::max<int64_t>(rank, 1)});
  c.library("reduce_sizes", {c.input(0), c.input(1)}, {from},
            {{"keepdims", c.node().int_or("keepdims", 1) != 0 ? 1 : 0},
             {"noop", c.node().int_or("noop_with_empty_axes", 0) != 0 ? 1 : 0},
             {"rank", rank}},
            output_symbols(c, 0));
  return from;
}

template <Reduction kind>
Status build_run_time_axes(BuildContext &c) {
  const Shape shape = c.shape(0), out = c.output_shape(0);
  const BufferId from = emit_run_time_axes(c);
  NestBuilder nest(c, c.node().op);
  const std::vector<Dim> o = nest.outer(out);
  // Input index i belongs to output index o when they agree in each dimension that is left.
  auto inside = [&](const std::vector<Dim> &i) {
    Expr condition;
    for (size_t p = 0; p < out.size(); ++p)
      for (size_t d = 0; d < shape.size(); ++d) {
        const Expr other = apply(ScalarOp::kNe, nest.load(from, {Dim(static_cast<int64_t>(p))}),
                                 nest.index(Dim(static_cast<int64_t>(d))));
        condition = both(condition, apply(ScalarOp::kOr, other, equal(nest.index(i[d]), nest.index(o[p]))));
      }
    return condition;
  };
  std::vector<Dim> i = nest.stage_loops(shape);
  Expr x = nest.load(c.input(0), i), shift;
  if (kind == Reduction::kLogSumExp) {
    const Expr highest = nest.reduce(Combine::kMax, x, {}, inside(i));
    shift = select(apply(ScalarOp::kIsInf, highest), highest.constant(0), highest);
    i = nest.stage_loops(shape);
    x = exponential(nest.load(c.input(0), i) - shift);
  }
  const Expr count = nest.index(element_count(shape)) / nest.index(element_count(out));
  Expr result;
  if (kind == Reduction::kMean && is_integer(x.type())) {
    result = mean_of_integers(nest, x, count, inside(i));
  } else {
    x = before(kind, x);
    result =
        nest.reduce(combine_of(kind, x.type()), x, start_of(nest, kind, c.input_type(0).element, x.type()), inside(i));
    result = kind == Reduction::kLogSumExp ? logarithm(result) + shift : after(kind, result, count);
  }
  nest.store(c.output(0), o, result);
  nest.finish();
  return {};
}

template <Reduction kind>
Status build_reduce(BuildContext &c) {
  const Shape shape = c.shape(0);
  std::string error;
  const auto reduced =
      reduced_axes(c.node(), c.elements(1), c.has_input(1), c.has_input(1) && element_count(c.shape(1)).is(0),
                   static_cast<int64_t>(shape.size()), error);
  if (!reduced) return build_run_time_axes<kind>(c);
  const bool keep = c.node().int_or("keepdims", 1) != 0;
  const BufferId x = c.input(0);
  NestBuilder nest(c, c.node().op);
  Rows rows(nest, shape, *reduced);
  bool any = false;
  for (bool r : *reduced) any |= r;
  Expr value = nest.load(x, rows.open()), shift, result;
  if (kind == Reduction::kLogSumExp) {
    const bool whole = !is_float(value.type());
    auto real = [&](Expr v) { return whole ? cast(v, ElementType::kFloat64) : v; };
    Expr highest = real(value);
    if (any) highest = nest.reduce(Combine::kMax, highest);
    shift = select(apply(ScalarOp::kIsInf, highest), highest.constant(0), highest);
    Expr sum = exponential(real(nest.load(x, any ? rows.open() : rows.outer(true))) - shift);
    if (any) sum = nest.reduce(Combine::kSum, sum);
    result = cast(logarithm(sum) + shift, value.type());
  } else if (kind == Reduction::kMean && any && is_integer(value.type())) {
    result = mean_of_integers(nest, value, nest.index(rows.count()), {});
  } else {
    value = before(kind, value);
    if (any)
      value = nest.reduce(combine_of(kind, value.type()), value,
                          start_of(nest, kind, c.input_type(0).element, value.type()));
    result = after(kind, value, nest.index(rows.count()));
  }
  nest.store(c.output(0), rows.outer(keep), result);
  nest.finish();
  return {};
}

Status axes_to_input(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  return attribute_to_input(graph, node, "axes", 1, diagnostics);
}
Status axes_to_attribute(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  if (graph.node(node).int_or("noop_with_empty_axes", 0))
    return cannot_lower(graph, node, "noop_with_empty_axes", 13, diagnostics);
  graph.remove_attribute(node, "noop_with_empty_axes");
  return input_to_attribute(graph, node, 1, "axes", diagnostics);
}

// --- ArgMax, ArgMin ------------------------------------------------------------------------------------------

Status infer_arg(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  OPTC_ASSIGN(const int64_t axis, c.axis(c.node().int_or("axis", 0), c.rank(0)));
  OPTC_TRY(at_most(c, 1, c.shape(0)[static_cast<size_t>(axis)], "one element and the axis"));
  const bool keep = c.node().int_or("keepdims", 1) != 0;
  Shape shape;
  for (int64_t k = 0; k < c.rank(0); ++k) {
    if (k != axis) {
      shape.push_back(c.shape(0)[static_cast<size_t>(k)]);
    } else if (keep) {
      shape.push_back(1);
    }
  }
  c.set_tensor(0, ElementType::kInt64, std::move(shape));
  return {};
}

template <bool largest>
Status build_arg(BuildContext &c) {
  const Shape shape = c.shape(0);
  const int64_t rank = static_cast<int64_t>(shape.size()), given = c.node().int_or("axis", 0);
  const size_t axis = static_cast<size_t>(given < 0 ? given + rank : given);
  const bool keep = c.node().int_or("keepdims", 1) != 0, last = c.node().int_or("select_last_index", 0) != 0;
  NestBuilder nest(c, c.node().op);
  Rows rows(nest, shape, inside_axis(shape.size(), static_cast<int64_t>(axis)));
  const Expr best = nest.reduce(largest ? Combine::kMax : Combine::kMin, nest.load(c.input(0), rows.open()));
  const std::vector<Dim> at = rows.open();
  const Expr value = nest.load(c.input(0), at);
  Expr hit = apply(ScalarOp::kEq, value, best);
  if (is_float(value.type())) hit = apply(ScalarOp::kOr, hit, apply(ScalarOp::kIsNan, value));  // NaN is the extreme
  const Expr result = nest.reduce(last ? Combine::kMax : Combine::kMin, nest.position(at[axis], shape[axis]), {}, hit);
  nest.store(c.output(0), rows.outer(keep), result);
  nest.finish();
  return {};
}

// --- CumSum, CumProd -----------------------------------------------------------------------------------------

Status infer_scan(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  if (const auto axis = static_ints(c.elements(1)); axis && axis->size() == 1) {
    OPTC_ASSIGN([[maybe_unused]] int64_t checked, c.axis((*axis)[0], c.rank(0)));
  }
  c.set(0, c.input(0));
  return {};
}

// A running value kept in its wide type: y[i] = y[i - 1] op x[i], in order.
void emit_scan(BuildContext &c, size_t axis, bool product) {
  const Shape shape = c.shape(0);
  const bool exclusive = c.node().int_or("exclusive", 0) != 0, reverse = c.node().int_or("reverse", 0) != 0;
  const ElementType storage = c.output_type(0).element, type = compute_type(storage);
  const bool narrow = storage != type;
  const BufferId running = narrow || exclusive ? c.temporary("running", type, shape) : c.output(0);
  NestBuilder nest(c, c.node().op);
  nest.nest().sequential = true;
  std::vector<Dim> at(shape.size());
  for (size_t k = 0; k < shape.size(); ++k) at[k] = nest.outer(k == axis ? "step" : "i" + std::to_string(k), shape[k]);
  const Dim step = at[axis];
  const Dim i = reverse ? shape[axis] - Dim(1) - step : step;
  at[axis] = i;
  std::vector<Dim> before = at;
  before[axis] = reverse ? min(i + Dim(1), shape[axis] - Dim(1)) : max(i - Dim(1), 0);
  const Expr x = nest.load(c.input(0), at);
  const Expr neutral = x.constant(product ? 1 : 0);
  const Expr first = apply(ScalarOp::kEq, nest.index(step), nest.constant(ElementType::kInt64, 0));
  const Expr previous = select(first, neutral, nest.load_raw(running, before));
  const Expr value = product ? previous * x : previous + x;
  nest.store(running, at, value);
  if (exclusive) {
    nest.store(c.output(0), at, previous);
  } else if (narrow) {
    nest.store(c.output(0), at, value);
  }
  nest.finish();
}

template <bool product>
Status build_scan(BuildContext &c) {
  const Shape shape = c.shape(0);
  const auto given = static_ints(c.elements(1));
  const int64_t rank = static_cast<int64_t>(shape.size());
  if (rank == 0) {
    c.alias(0, c.input(0));
    return {};
  }
  if (given && given->size() == 1) {
    const int64_t axis = (*given)[0];
    emit_scan(c, static_cast<size_t>(axis < 0 ? axis + rank : axis), product);
    return {};
  }
  if (rank == 1) {  // the one axis there is: only whether it is meant is asked
    c.library("axis", {c.input(1)}, {}, {{"rank", rank}, {"where", c.node().op}});
    emit_scan(c, 0, product);
    return {};
  }
  // The axis is known only at run time: element o takes every i that agrees with it off the axis and does not come
  // after it on it.
  const bool exclusive = c.node().int_or("exclusive", 0) != 0, reverse = c.node().int_or("reverse", 0) != 0;
  const BufferId counted = c.temporary("axis", ElementType::kInt64, {Dim(1)});
  c.library("axis", {c.input(1)}, {counted}, {{"rank", rank}, {"where", c.node().op}});
  NestBuilder nest(c, c.node().op);
  const std::vector<Dim> o = nest.outer(shape);
  const std::vector<Dim> i = nest.stage_loops(shape);
  const Expr axis = nest.load(counted, {Dim(0)});
  Expr condition;
  for (size_t k = 0; k < shape.size(); ++k) {
    const Expr a = nest.index(i[k]), b = nest.index(o[k]);
    const Expr on = exclusive ? (reverse ? less(b, a) : less(a, b)) : (reverse ? less_equal(b, a) : less_equal(a, b));
    condition = both(condition, select(equal(axis, axis.constant(static_cast<double>(k))), on, equal(a, b)));
  }
  const Expr result = nest.reduce(product ? Combine::kProduct : Combine::kSum, nest.load(c.input(0), i), {}, condition);
  nest.store(c.output(0), o, result);
  nest.finish();
  return {};
}

constexpr VersionStep kAxes13[] = {{13, axes_to_input, axes_to_attribute}};
constexpr VersionStep kAxes18[] = {{18, axes_to_input, axes_to_attribute}};

constexpr auto kForm = OpForm::kReduction;
using enum Reduction;
const OpDef kOps[] = {
    {"ArgMax", kForm, 13, infer_arg, build_arg<true>},
    {"ArgMin", kForm, 13, infer_arg, build_arg<false>},
    {"CumProd", kForm, 26, infer_scan, build_scan<true>},
    {"CumSum", kForm, 14, infer_scan, build_scan<false>},
    {"ReduceL1", kForm, 18, infer_reduce<kL1>, build_reduce<kL1>, kAxes18},
    {"ReduceL2", kForm, 18, infer_reduce<kL2>, build_reduce<kL2>, kAxes18},
    {"ReduceLogSum", kForm, 18, infer_reduce<kLogSum>, build_reduce<kLogSum>, kAxes18},
    {"ReduceLogSumExp", kForm, 18, infer_reduce<kLogSumExp>, build_reduce<kLogSumExp>, kAxes18},
    {"ReduceMax", kForm, 20, infer_reduce<kMax>, build_reduce<kMax>, kAxes18},
    {"ReduceMean", kForm, 18, infer_reduce<kMean>, build_reduce<kMean>, kAxes18},
    {"ReduceMin", kForm, 20, infer_reduce<kMin>, build_reduce<kMin>, kAxes18},
    {"ReduceProd", kForm, 18, infer_reduce<kProd>, build_reduce<kProd>, kAxes18},
    {"ReduceSum", kForm, 13, infer_reduce<kSum>, build_reduce<kSum>, kAxes13},
    {"ReduceSumSquare", kForm, 18, infer_reduce<kSumSquare>, build_reduce<kSumSquare>, kAxes18},
};

}  // namespace

std::span<const OpDef> reduce_ops() { return kOps; }

}  // namespace optc
