// MaxPool, AveragePool, LpPool and their global forms; MaxUnpool.

#include <limits>

#include "ops/build.h"
#include "ops/conditions.h"
#include "ops/registry.h"
#include "ops/util.h"

namespace optc {
namespace {

using Dims = std::vector<Dim>;

Dims spatial(const Shape &shape) { return Dims(shape.begin() + 2, shape.end()); }

Result<Window> pool_window(const Node &node, const Shape &in, std::string &error) {
  const auto *kernel = node.ints("kernel_shape");
  if (!kernel) {
    error = "kernel_shape is missing";
    return Failure{ErrorKind::kInvalid};
  }
  return resolve_window(node, spatial(in), Dims(kernel->begin(), kernel->end()),
                        node.int_or("ceil_mode", 0) != 0 ? WindowCount::kCeil : WindowCount::kFloor, error);
}

Status infer_pool(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  if (c.rank(0) < 3) return c.invalid("the input must have rank 3 or more, but has rank " + std::to_string(c.rank(0)));
  std::string error;
  auto window = pool_window(c.node(), c.shape(0), error);
  if (!window) return c.invalid(error);
  const bool same = c.node().string_or("auto_pad", "NOTSET").substr(0, 4) == "SAME";  // fits by its pads
  const bool ceil_mode = c.node().int_or("ceil_mode", 0) != 0;
  for (size_t i = 0; !same && i < window->out.size(); ++i) {
    const Dim extent = (window->kernel[i] - 1) * window->dilations[i] + 1,
              padded = c.shape(0)[i + 2] + window->pads_begin[i] + window->pads_end[i];
    if (padded.is_constant()) continue;
    // With ceil_mode the first window may reach beyond the end by less than a stride.
    const Dim inside = ceil_mode ? extent - (window->strides[i] - 1) : extent;
    OPTC_TRY(at_most(c, inside, padded, ceil_mode ? "the least extent of the window" : "the extent of the window"));
  }
  Shape out = {c.shape(0)[0], c.shape(0)[1]};
  out.insert(out.end(), window->out.begin(), window->out.end());
  c.set_tensor(0, c.element(0), out);
  c.set_tensor(1, ElementType::kInt64, std::move(out));
  return {};
}

Status infer_global_pool(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  if (c.rank(0) < 2) return c.invalid("the input must have rank 2 or more");
  Shape out = {c.shape(0)[0], c.shape(0)[1]};
  out.resize(c.shape(0).size(), Dim(1));
  c.set_tensor(0, c.element(0), std::move(out));
  return {};
}

// What a pool's stage sees: the element at a window position and whether it lies inside the input (invalid: always).
struct Position {
  Dims index;
  Expr inside;
};

Position window_position(NestBuilder &nest, const Window &window, const Shape &in, const Dims &out) {
  Position position{{out[0], out[1]}, {}};
  for (size_t i = 0; i < window.kernel.size(); ++i) {
    Dim k = nest.stage_loop("k" + std::to_string(i), window.kernel[i]), at = window.at(i, out[2 + i], k);
    position.inside = both(position.inside, in_range(nest, at, in[2 + i]));
    position.index.push_back(proved_in_range(at, in[2 + i]) ? at : clamp(at, 0, in[2 + i] - 1));
  }
  return position;
}

Expr lowest(NestBuilder &nest, ElementType stored) {
  const ElementType type = compute_type(stored);
  double value = -std::numeric_limits<double>::infinity();
  if (stored == ElementType::kInt8) value = -128;
  if (stored == ElementType::kUInt8) value = 0;
  return nest.constant(type, value);
}

Status build_max_pool(BuildContext &c) {
  const Shape in = c.shape(0), out = c.output_shape(0);
  std::string error;
  auto window = pool_window(c.node(), in, error);
  if (!window) return c.invalid(error);
  NestBuilder nest(c, "max pool");
  Dims o = nest.outer(out);
  Position p = window_position(nest, *window, in, o);
  Expr floor_value = lowest(nest, c.input_type(0).element), value = nest.load(c.input(0), p.index);
  if (p.inside.valid()) value = select(p.inside, value, floor_value);
  Expr best = nest.reduce(Combine::kMax, value, floor_value);
  if (!c.has_output(1)) {
    nest.store(c.output(0), o, best);
    nest.finish();
    return {};
  }
  // The first position in row-major order that holds the maximum, as a flat index of the whole input.
  Position q = window_position(nest, *window, in, o);
  Dims at = spatial(q.index);
  Expr here = equal(nest.load(c.input(0), q.index), best);
  if (q.inside.valid()) here = both(here, q.inside);
  const Dims extents = spatial(in);
  Expr flat = nest.index(flatten_index(at, extents)), none = nest.index(product(extents, 0, extents.size()) - 1);
  Expr first = nest.reduce(Combine::kMin, select(here, flat, none), none);
  if (c.node().int_or("storage_order", 0) != 0) {  // column-major inside a plane
    Expr rest = first, transposed = nest.index(0);
    Dim stride = product(extents, 0, extents.size());
    for (size_t k = extents.size(); k-- > 0;) {
      stride = product(extents, 0, k);
      Expr extent = nest.index(max(extents[k], 1)), coordinate = apply(ScalarOp::kMod, rest, extent);
      transposed = transposed + coordinate * nest.index(stride);
      rest = rest / extent;
    }
    first = transposed;
  }
  nest.store(c.output(0), o, best);
  nest.store(c.output(1), o, first + nest.index((o[0] * in[1] + o[1]) * product(extents, 0, extents.size())));
  nest.finish();
  return {};
}

Status build_average_pool(BuildContext &c) {
  const Shape in = c.shape(0), out = c.output_shape(0);
  std::string error;
  auto window = pool_window(c.node(), in, error);
  if (!window) return c.invalid(error);
  const bool include = c.node().int_or("count_include_pad", 0) != 0, whole = !window->padded && !window->clipped;
  NestBuilder nest(c, "average pool");
  Dims o = nest.outer(out);
  Position p = window_position(nest, *window, in, o);
  Expr value = nest.load(c.input(0), p.index);
  if (p.inside.valid()) value = select(p.inside, value, value.constant(0));
  Expr sum = nest.reduce(Combine::kSum, value);
  // How many positions count, per dimension: those inside the input, or inside the padded input.
  Dim count = 1;
  for (size_t i = 0; i < window->kernel.size(); ++i) {
    if (whole) {
      count = count * window->kernel[i];
      continue;
    }
    const Dim start = o[2 + i] * window->strides[i] - window->pads_begin[i];
    const Dim end = include ? in[2 + i] + window->pads_end[i] : in[2 + i];
    Dim high = min(ceil_div(end - start, window->dilations[i]), window->kernel[i]);
    Dim low = include ? Dim(0) : max(ceil_div(-start, window->dilations[i]), 0);
    count = count * (high - low);
  }
  Expr divisor = count.is_constant() ? sum.constant(static_cast<double>(count.value()))
                                     : cast(nest.index(max(count, 1)), sum.type());
  nest.store(c.output(0), o, sum / divisor);
  nest.finish();
  return {};
}

// |x|^p and its root, for p = 1, 2 and others.
Expr power(Expr x, double p) {
  x = apply(ScalarOp::kAbs, x);
  return p == 1 ? x : p == 2 ? x * x : apply(ScalarOp::kPow, x, x.constant(p));
}
Expr root(Expr x, double p) {
  return p == 1 ? x : p == 2 ? apply(ScalarOp::kSqrt, x) : apply(ScalarOp::kPow, x, x.constant(1 / p));
}
double exponent(const Node &node) {  // a float in version 1, an integer since
  if (const Attribute *p = node.attribute("p"))
    if (const float *real = std::get_if<float>(p)) return *real;
  return static_cast<double>(node.int_or("p", 2));
}

Status build_lp_pool(BuildContext &c) {
  const Shape in = c.shape(0);
  std::string error;
  auto window = pool_window(c.node(), in, error);
  if (!window) return c.invalid(error);
  const double p = exponent(c.node());
  NestBuilder nest(c, "lp pool");
  Dims o = nest.outer(c.output_shape(0));
  Position at = window_position(nest, *window, in, o);
  Expr value = power(nest.load(c.input(0), at.index), p);
  if (at.inside.valid()) value = select(at.inside, value, value.constant(0));
  nest.store(c.output(0), o, root(nest.reduce(Combine::kSum, value), p));
  nest.finish();
  return {};
}

enum class Global { kMax, kAverage, kLp };
Status build_global(BuildContext &c, Global kind) {
  const Shape in = c.shape(0);
  const double p = exponent(c.node());
  NestBuilder nest(c, "global pool");
  Dim n = nest.outer("n", in[0]), channel = nest.outer("c", in[1]);
  Dims at = {n, channel}, to = {n, channel};
  for (size_t i = 2; i < in.size(); ++i) {
    at.push_back(nest.stage_loop("r" + std::to_string(i - 2), in[i]));
    to.push_back(0);
  }
  Expr value = nest.load(c.input(0), at);
  if (kind == Global::kMax) {
    nest.store(c.output(0), to, nest.reduce(Combine::kMax, value, lowest(nest, c.input_type(0).element)));
  } else if (kind == Global::kAverage) {
    Expr sum = nest.reduce(Combine::kSum, value);
    const Dim count = product(in, 2, in.size());
    nest.store(c.output(0), to,
               sum / (count.is_constant() ? sum.constant(static_cast<double>(count.value()))
                                          : cast(nest.index(count), sum.type())));
  } else {
    nest.store(c.output(0), to, root(nest.reduce(Combine::kSum, power(value, p)), p));
  }
  nest.finish();
  return {};
}
Status build_global_max(BuildContext &c) { return build_global(c, Global::kMax); }
Status build_global_average(BuildContext &c) { return build_global(c, Global::kAverage); }
Status build_global_lp(BuildContext &c) { return build_global(c, Global::kLp); }

// --- MaxUnpool
// ------------------------------------------------------------------------------------------------------------------

// The shape that the pool had, which the indices count in.
Shape unpooled(const Node &node, const Shape &in) {
  const size_t n = in.size() - 2;
  const std::vector<int64_t> kernel = ints_or(node, "kernel_shape", n, 1), strides = ints_or(node, "strides", n, 1),
                             pads = ints_or(node, "pads", 2 * n, 0);
  Shape out = {in[0], in[1]};
  for (size_t i = 0; i < n; ++i) out.push_back((in[2 + i] - 1) * strides[i] - pads[i] - pads[n + i] + kernel[i]);
  return out;
}

Status infer_max_unpool(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  OPTC_TRY(c.require_shape(1));
  if (c.rank(0) < 3) return c.invalid("the input must have rank 3 or more");
  const size_t n = static_cast<size_t>(c.rank(0)) - 2;
  if (ints_or(c.node(), "kernel_shape", n, 1).size() != n || ints_or(c.node(), "strides", n, 1).size() != n ||
      ints_or(c.node(), "pads", 2 * n, 0).size() != 2 * n)
    return c.invalid("kernel_shape, strides and pads do not fit the rank");
  if (c.rank(1) != c.rank(0)) return c.invalid("the values and their indices must have one rank");
  for (size_t k = 0; k < c.shape(0).size(); ++k)
    OPTC_TRY(c.same(c.shape(1)[k], c.shape(0)[k], "a dimension of the values and of their indices"));
  const Shape counted = unpooled(c.node(), c.shape(0));
  Shape out = counted;
  if (c.has_input(2)) {
    OPTC_TRY(has_length(c, 2, "output_shape", c.rank(0), "dimensions"));
    const Dims *wanted = c.elements(2);
    if (!wanted) {
      for (size_t k = 0; k < out.size(); ++k) out[k] = c.run_time_size(0, k);
    } else {
      out = *wanted;
    }
    for (size_t k = 0; k < out.size(); ++k)
      OPTC_TRY(at_most(c, counted[k], out[k], "what the window spans, in output_shape,"));
  }
  c.set_tensor(0, c.element(0), std::move(out));
  return {};
}

Status build_max_unpool(BuildContext &c) {
  if (c.has_input(2) && !c.elements(2))
    c.library("value_sizes", {c.input(0), c.input(2)}, {}, {}, output_symbols(c, 0));
  OPTC_TRY(fill(c, c.output(0), 0));
  const Shape counted = unpooled(c.node(), c.shape(0));
  NestBuilder nest(c, "max unpool");
  Dims i = nest.outer(c.shape(0));
  Dim flat = nest.as_index(nest.load(c.input(1), i), element_count(counted));
  nest.nest().sequential = true;
  nest.store(c.output(0), unflatten_index(flat, counted), nest.load_raw(c.input(0), i));
  nest.finish();
  return {};
}

const OpDef kOps[] = {
    {"MaxPool", OpForm::kReduction, 22, infer_pool, build_max_pool},
    {"AveragePool", OpForm::kReduction, 22, infer_pool, build_average_pool},
    {"LpPool", OpForm::kReduction, 22, infer_pool, build_lp_pool},
    {"GlobalMaxPool", OpForm::kReduction, 22, infer_global_pool, build_global_max},
    {"GlobalAveragePool", OpForm::kReduction, 22, infer_global_pool, build_global_average},
    {"GlobalLpPool", OpForm::kReduction, 22, infer_global_pool, build_global_lp},
    {"MaxUnpool", OpForm::kIndex, 22, infer_max_unpool, build_max_unpool},
};

}  // namespace

std::span<const OpDef> pool_ops() { return kOps; }

}  // namespace optc
