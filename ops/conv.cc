// Conv, ConvInteger, QLinearConv, ConvTranspose.

#include <algorithm>

#include "ops/build.h"
#include "ops/conditions.h"
#include "ops/registry.h"
#include "ops/util.h"

namespace optc {
namespace {

using Dims = std::vector<Dim>;

Dims spatial(const Shape &shape) { return Dims(shape.begin() + 2, shape.end()); }

// kernel_shape where given, else the weight's own dims (which must agree).
Dims kernel_dims(const Node &node, const Shape &weight) {
  if (const auto *given = node.ints("kernel_shape"); given && !given->empty())
    return Dims(given->begin(), given->end());
  return spatial(weight);
}

// x, w: input numbers. Bias and zero points are checked by the callers.
Result<Window> conv_window(InferContext &c, size_t x, size_t w) {
  OPTC_TRY(c.require_shape(x));
  OPTC_TRY(c.require_shape(w));
  if (c.rank(x) < 3) return c.invalid("the input must have rank 3 or more, but has rank " + std::to_string(c.rank(x)));
  if (c.rank(w) != c.rank(x))
    return c.invalid("the weight has rank " + std::to_string(c.rank(w)) + ", the input rank " +
                     std::to_string(c.rank(x)));
  const Dims kernel = kernel_dims(c.node(), c.shape(w)), stored = spatial(c.shape(w));
  if (kernel.size() != stored.size()) return c.invalid("kernel_shape must have one entry a spatial dimension");
  for (size_t i = 0; i < kernel.size(); ++i)
    OPTC_TRY(c.same(kernel[i], stored[i], "kernel_shape and the weight's dimension"));
  if (c.node().int_or("group", 1) < 1) return c.invalid("group must be positive");
  std::string error;
  auto window = resolve_window(c.node(), spatial(c.shape(x)), kernel, WindowCount::kWhole, error);
  if (!window) return c.invalid(error);
  const bool same = c.node().string_or("auto_pad", "NOTSET").substr(0, 4) == "SAME";  // fits by its pads
  for (size_t i = 0; !same && i < window->out.size(); ++i)
    OPTC_TRY(at_most(c, (window->kernel[i] - 1) * window->dilations[i] + 1,
                     c.shape(x)[i + 2] + window->pads_begin[i] + window->pads_end[i], "the extent of the window"));
  return window;
}

Status infer_conv_like(InferContext &c, size_t x, size_t w, std::optional<size_t> bias, ElementType type) {
  OPTC_ASSIGN(Window window, conv_window(c, x, w));
  const int64_t group = c.node().int_or("group", 1);
  OPTC_TRY(
      c.same(c.shape(x)[1], c.shape(w)[1] * group, "the channel count of the input and of the weight times group"));
  const Dim channels = c.shape(w)[0];
  if (channels.is_constant() && channels.value() % group != 0)
    return c.invalid("the number of filters is no multiple of group");
  OPTC_TRY(c.same(channels, floor_div(channels, group) * group, "the number of filters and a multiple of group"));
  if (bias && c.has_input(*bias)) {
    OPTC_TRY(c.require_shape(*bias));
    if (c.rank(*bias) != 1) return c.invalid("the bias must be a vector");
    OPTC_TRY(c.same(c.shape(*bias)[0], channels, "the length of the bias"));
  }
  Shape out = {c.shape(x)[0], channels};
  out.insert(out.end(), window.out.begin(), window.out.end());
  c.set_tensor(0, type, std::move(out));
  return {};
}
Status infer_conv(InferContext &c) { return infer_conv_like(c, 0, 1, 2, c.element(0)); }
Status infer_conv_integer(InferContext &c) {
  OPTC_TRY(infer_conv_like(c, 0, 1, std::nullopt, ElementType::kInt32));
  OPTC_TRY(one_or_each(c, 2, 1, "x_zero_point"));
  return one_or_each(c, 3, c.shape(1)[0], "w_zero_point");
}
Status infer_qlinear_conv(InferContext &c) {
  OPTC_TRY(infer_conv_like(c, 0, 3, 8, c.element(7)));
  OPTC_TRY(one_or_each(c, 1, 1, "x_scale"));
  OPTC_TRY(one_or_each(c, 2, 1, "x_zero_point"));
  OPTC_TRY(one_or_each(c, 4, c.shape(3)[0], "w_scale"));
  OPTC_TRY(one_or_each(c, 5, c.shape(3)[0], "w_zero_point"));
  OPTC_TRY(one_or_each(c, 6, 1, "y_scale"));
  return one_or_each(c, 7, 1, "y_zero_point");
}

// A loop of extent 1 is none and has no role.
void note_role(std::vector<const DimSymbol *> &list, Dim d) {
  if (const DimSymbol *symbol = single_symbol(d)) list.push_back(symbol);
}

// A convolution's sum as one reduction. `x_shift`, `w_shift`: zero points that are subtracted from what is loaded
// (invalid: none). The result is the accumulator; `channel` and `index` say where it belongs.
struct ConvSum {
  Expr sum;
  Dim channel;
  Dims index;
};
using Shift = std::function<Expr(NestBuilder &, Dim channel)>;

Result<ConvSum> emit_conv(BuildContext &c, NestBuilder &nest, size_t x, size_t w, ElementType accumulator,
                          const Shift &x_shift, const Shift &w_shift) {
  const Shape in = c.shape(x), weight = c.shape(w), out = c.output_shape(0);
  const int64_t group = c.node().int_or("group", 1);
  std::string error;
  auto resolved = resolve_window(c.node(), spatial(in), kernel_dims(c.node(), weight), WindowCount::kWhole, error);
  if (!resolved) return c.invalid(error);
  const Window &window = *resolved;
  const Dim filters = group == 1 ? out[1] : floor_div(out[1], group);

  Contraction roles;
  roles.kind = ContractionKind::kConvolution;
  roles.group = group;
  Dim n = nest.outer("n", out[0]);
  note_role(roles.batch, n);
  Dim g = 0;
  if (group > 1) {
    g = nest.outer("g", group);
    note_role(roles.batch, g);
  }
  Dim m = nest.outer("m", filters);
  note_role(roles.n, m);
  Dims o, k;
  for (size_t i = 0; i < window.out.size(); ++i) {
    o.push_back(nest.outer("o" + std::to_string(i), out[2 + i]));
    note_role(roles.m, o.back());
  }
  Dim channel_in = nest.stage_loop("c", weight[1]);
  note_role(roles.k, channel_in);
  for (size_t i = 0; i < window.kernel.size(); ++i) {
    k.push_back(nest.stage_loop("k" + std::to_string(i), window.kernel[i]));
    note_role(roles.k, k.back());
  }
  const Dim filter = group > 1 ? g * filters + m : m;
  Dims at = {n, group > 1 ? g * weight[1] + channel_in : channel_in}, from = {filter, channel_in};
  Expr inside;
  for (size_t i = 0; i < k.size(); ++i) {
    Dim position = window.at(i, o[i], k[i]);
    inside = both(inside, in_range(nest, position, in[2 + i]));
    at.push_back(proved_in_range(position, in[2 + i]) ? position : clamp(position, 0, in[2 + i] - 1));
    from.push_back(k[i]);
  }
  Expr a = cast(nest.load(c.input(x), at), accumulator), b = cast(nest.load(c.input(w), from), accumulator);
  if (x_shift) a = a - x_shift(nest, filter);
  if (w_shift) b = b - w_shift(nest, filter);
  const bool integers = accumulator == ElementType::kInt32;
  roles.lhs = integers ? a.id() : nest.load_raw(c.input(x), at).id();
  roles.rhs = integers ? b.id() : nest.load_raw(c.input(w), from).id();
  if (inside.valid()) a = select(inside, a, a.constant(0));
  roles.stage = nest.stage_index();
  bool is_plain = true;
  for (size_t i = 0; i < k.size(); ++i) {
    is_plain = is_plain && window.kernel[i].is_constant() && window.pads_begin[i].is_constant() &&
               window.pads_end[i].is_constant();
    if (!is_plain) break;
    roles.kernel.push_back(window.kernel[i].value());
    roles.strides.push_back(window.strides[i]);
    roles.dilations.push_back(window.dilations[i]);
    roles.pads_begin.push_back(window.pads_begin[i].value());
    roles.pads_end.push_back(window.pads_end[i].value());
  }
  if (is_plain) nest.nest().contraction = roles;
  Expr sum = nest.reduce(Combine::kSum, a * b);
  Dims index = {n, filter};
  index.insert(index.end(), o.begin(), o.end());
  return ConvSum{sum, filter, index};
}

Status build_conv(BuildContext &c) {
  NestBuilder nest(c, "convolution");
  const ElementType type = compute_type(c.input_type(0).element);
  OPTC_ASSIGN(ConvSum conv, emit_conv(c, nest, 0, 1, type, nullptr, nullptr));
  Expr value = conv.sum;
  if (c.has_input(2)) value = value + nest.load(c.input(2), {conv.channel});
  nest.store(c.output(0), conv.index, value);
  nest.finish();
  return {};
}

// A scalar, or one entry a filter.
Expr per_channel(BuildContext &c, NestBuilder &nest, size_t input, Dim channel) {
  const Shape &shape = c.shape(input);
  if (shape.empty()) return nest.load(c.input(input), {});
  return nest.load(c.input(input), {shape[0].is(1) ? Dim(0) : channel});
}

Shift zero_point(BuildContext &c, size_t input) {
  if (!c.has_input(input)) return nullptr;
  return [&c, input](NestBuilder &nest, Dim channel) {
    return cast(per_channel(c, nest, input, channel), ElementType::kInt32);
  };
}

Status build_conv_integer(BuildContext &c) {
  NestBuilder nest(c, "integer convolution");
  OPTC_ASSIGN(ConvSum conv, emit_conv(c, nest, 0, 1, ElementType::kInt32, zero_point(c, 2), zero_point(c, 3)));
  nest.store(c.output(0), conv.index, conv.sum);
  nest.finish();
  return {};
}

Status build_qlinear_conv(BuildContext &c) {
  NestBuilder nest(c, "quantized convolution");
  OPTC_ASSIGN(ConvSum conv, emit_conv(c, nest, 0, 3, ElementType::kInt32, zero_point(c, 2), zero_point(c, 5)));
  Expr sum = conv.sum;
  if (c.has_input(8)) sum = sum + nest.load(c.input(8), {conv.channel});
  Expr scale = per_channel(c, nest, 1, conv.channel) * per_channel(c, nest, 4, conv.channel) /
               per_channel(c, nest, 6, conv.channel);
  const ElementType type = c.output_type(0).element;
  const bool is_signed = is_signed_integer(type);
  const double low = is_signed ? -128 : 0, high = is_signed ? 127 : 255;
  Expr value = apply(ScalarOp::kRound, cast(sum, ElementType::kFloat32) * scale);
  if (c.has_input(7)) value = value + cast(per_channel(c, nest, 7, conv.channel), ElementType::kFloat32);
  value = apply(ScalarOp::kMin, apply(ScalarOp::kMax, value, value.constant(low)), value.constant(high));
  nest.store(c.output(0), conv.index, cast(value, ElementType::kInt32));
  nest.finish();
  return {};
}

// --- ConvTranspose
// --------------------------------------------------------------------------------------------------------------

struct TransposeWindow {
  Dims kernel, begin, out;
  std::vector<int64_t> strides, dilations;
};

Result<TransposeWindow> transpose_window(const Node &node, const Shape &x, const Shape &w, std::string &error) {
  const auto fail = [&](const char *message) {
    error = message;
    return Failure{ErrorKind::kInvalid};
  };
  const size_t n = x.size() - 2;
  TransposeWindow window;
  window.kernel = kernel_dims(node, w);
  window.strides = ints_or(node, "strides", n, 1);
  window.dilations = ints_or(node, "dilations", n, 1);
  const std::vector<int64_t> pads = ints_or(node, "pads", 2 * n, 0), extra = ints_or(node, "output_padding", n, 0);
  const std::vector<int64_t> *wanted = node.ints("output_shape");
  if (wanted && wanted->empty()) wanted = nullptr;
  if (window.kernel.size() != n) return fail("kernel_shape must have one entry a spatial dimension");
  if (window.strides.size() != n) return fail("strides must have one entry a spatial dimension");
  if (window.dilations.size() != n) return fail("dilations must have one entry a spatial dimension");
  if (pads.size() != 2 * n) return fail("pads must have two entries a spatial dimension");
  if (extra.size() != n) return fail("output_padding must have one entry a spatial dimension");
  if (wanted && wanted->size() != n && wanted->size() != n + 2)
    return fail("output_shape must have one entry a spatial dimension");
  const std::string_view auto_pad = node.string_or("auto_pad", "NOTSET");
  const bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
  for (size_t i = 0; i < n; ++i) {
    const int64_t stride = window.strides[i];
    if (stride <= 0 || window.dilations[i] <= 0) return fail("strides and dilations must be positive");
    if (extra[i] < 0 || extra[i] >= std::max(stride, window.dilations[i]))
      return fail("an output_padding is not smaller than its stride or dilation, or is negative");
    const Dim full = (x[2 + i] - 1) * stride + extra[i] + (window.kernel[i] - 1) * window.dilations[i] + 1;
    if (wanted || same) {
      const Dim out = wanted ? Dim((*wanted)[wanted->size() - n + i]) : x[2 + i] * stride;
      const Dim total = full - out, half = floor_div(total, 2);
      window.begin.push_back(auto_pad == "SAME_UPPER" ? half : total - half);
      window.out.push_back(out);
    } else {
      const bool valid = auto_pad == "VALID";
      window.begin.push_back(valid ? 0 : pads[i]);
      window.out.push_back(valid ? full : full - pads[i] - pads[n + i]);
    }
    if (window.out[i].is_constant() && window.out[i].value() < 0)
      return fail("the output would have a negative dimension");
  }
  return window;
}

Status infer_conv_transpose(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  OPTC_TRY(c.require_shape(1));
  if (c.rank(0) < 3 || c.rank(1) != c.rank(0)) return c.invalid("input and weight must have one rank of 3 or more");
  const int64_t group = c.node().int_or("group", 1);
  if (group < 1) return c.invalid("group must be positive");
  std::string error;
  auto window = transpose_window(c.node(), c.shape(0), c.shape(1), error);
  if (!window) return c.invalid(error);
  OPTC_TRY(c.same(c.shape(0)[1], c.shape(1)[0], "the channel count of the input and of the weight"));
  const Dims stored = spatial(c.shape(1));
  for (size_t i = 0; i < stored.size(); ++i)
    OPTC_TRY(c.same(window->kernel[i], stored[i], "kernel_shape and the weight's dimension"));
  Shape out = {c.shape(0)[0], c.shape(1)[1] * group};
  if (c.has_input(2)) {
    OPTC_TRY(c.require_shape(2));
    if (c.rank(2) != 1) return c.invalid("the bias must be a vector");
    OPTC_TRY(c.same(c.shape(2)[0], out[1], "the length of the bias"));
  }
  out.insert(out.end(), window->out.begin(), window->out.end());
  c.set_tensor(0, c.element(0), std::move(out));
  return {};
}

// Each output gathers the inputs that reach it: input (o + begin - k * dilation) / stride where that is whole.
Status build_conv_transpose(BuildContext &c) {
  const Shape in = c.shape(0), weight = c.shape(1), out = c.output_shape(0);
  const int64_t group = c.node().int_or("group", 1);
  std::string error;
  auto window = transpose_window(c.node(), in, weight, error);
  if (!window) return c.invalid(error);
  NestBuilder nest(c, "transposed convolution");
  const Dim filters = weight[1], channels = group == 1 ? in[1] : floor_div(in[1], group);
  Dim n = nest.outer("n", out[0]), g = group > 1 ? nest.outer("g", group) : Dim(0), m = nest.outer("m", filters);
  Contraction roles;
  roles.kind = ContractionKind::kConvolution;
  roles.transposed = true;
  roles.group = group;
  note_role(roles.batch, n);
  note_role(roles.batch, g);
  note_role(roles.n, m);
  Dims o;
  for (size_t i = 2; i < out.size(); ++i) {
    o.push_back(nest.outer("o" + std::to_string(i - 2), out[i]));
    note_role(roles.m, o.back());
  }
  Dim channel_in = nest.stage_loop("c", channels), channel = g * channels + channel_in;
  note_role(roles.k, channel_in);
  Dims at = {n, channel}, from = {channel, m};
  Expr inside;
  for (size_t i = 0; i < o.size(); ++i) {
    Dim k = nest.stage_loop("k" + std::to_string(i), window->kernel[i]);
    note_role(roles.k, k);
    Dim reach = o[i] + window->begin[i] - k * window->dilations[i], position = floor_div(reach, window->strides[i]);
    if (window->strides[i] > 1) inside = both(inside, equal(nest.index(mod(reach, window->strides[i])), nest.index(0)));
    inside = both(inside, in_range(nest, position, in[2 + i]));
    at.push_back(proved_in_range(position, in[2 + i]) ? position : clamp(position, 0, in[2 + i] - 1));
    from.push_back(k);
  }
  Expr value = nest.load(c.input(0), at) * nest.load(c.input(1), from);
  if (inside.valid()) value = select(inside, value, value.constant(0));
  roles.lhs = nest.load_raw(c.input(0), at).id();
  roles.rhs = nest.load_raw(c.input(1), from).id();
  roles.stage = nest.stage_index();
  bool is_plain = true;
  for (size_t i = 0; i < o.size() && is_plain; ++i) {
    // The pads behind the output, less output_padding, are what its size leaves.
    const Dim reach = (window->kernel[i] - 1) * window->dilations[i] + 1;
    const Dim end = (in[2 + i] - 1) * window->strides[i] + reach - window->begin[i] - window->out[i];
    is_plain = window->kernel[i].is_constant() && window->begin[i].is_constant() && end.is_constant();
    if (!is_plain) break;
    roles.kernel.push_back(window->kernel[i].value());
    roles.strides.push_back(window->strides[i]);
    roles.dilations.push_back(window->dilations[i]);
    roles.pads_begin.push_back(window->begin[i].value());
    roles.pads_end.push_back(end.value());
  }
  if (is_plain) nest.nest().contraction = roles;
  Expr sum = nest.reduce(Combine::kSum, value);
  const Dim filter = g * filters + m;
  if (c.has_input(2)) sum = sum + nest.load(c.input(2), {filter});
  Dims to = {n, filter};
  to.insert(to.end(), o.begin(), o.end());
  nest.store(c.output(0), to, sum);
  nest.finish();
  return {};
}

const OpDef kOps[] = {
    {"Conv", OpForm::kContraction, 22, infer_conv, build_conv},
    {"ConvInteger", OpForm::kContraction, 10, infer_conv_integer, build_conv_integer},
    {"QLinearConv", OpForm::kContraction, 10, infer_qlinear_conv, build_qlinear_conv},
    {"ConvTranspose", OpForm::kContraction, 22, infer_conv_transpose, build_conv_transpose},
};

}  // namespace

std::span<const OpDef> conv_ops() { return kOps; }

}  // namespace optc
