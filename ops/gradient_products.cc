// Derivatives of products, convolutions and poolings.

#include <algorithm>

#include "ops/gradient.h"

namespace optc {
namespace {

// The last two axes swapped.
ValueId turned(Body &b, ValueId v) {
  std::vector<int64_t> perm;
  for (int64_t k = 0; k < b.rank(v); ++k) perm.push_back(k);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return b.transpose(v, std::move(perm));
}

// Vectors are a row (the left operand) or a column (the right one) of a matrix.
Status matmul(Derivative &d) {
  Body &b = d.b;
  const bool row = b.rank(d.in(0)) == 1, column = b.rank(d.in(1)) == 1;
  const ValueId left = row ? b.unsqueeze(d.in(0), {0}) : d.in(0), right = column ? b.unsqueeze(d.in(1), {1}) : d.in(1);
  ValueId adjoint = d.d();
  if (column) adjoint = b.unsqueeze(adjoint, {-1});
  if (row) adjoint = b.unsqueeze(adjoint, {-2});
  for (size_t i : {0, 1}) {
    if (!d.wants(i)) continue;
    ValueId part = i == 0 ? b.matmul(adjoint, turned(b, right)) : b.matmul(turned(b, left), adjoint);
    if (i == 0 && row) part = b.squeeze(part, {-2});
    if (i == 1 && column) part = b.squeeze(part, {-1});
    OPTC_TRY(d.give(i, part));
  }
  return {};
}

Status gemm(Derivative &d) {
  Body &b = d.b;
  const bool ta = d.node.int_or("transA", 0) != 0, tb = d.node.int_or("transB", 0) != 0;
  const auto scaled = [&](ValueId v, float by) { return by == 1 ? v : b.mul(v, b.like(v, static_cast<double>(by))); };
  const ValueId adjoint = scaled(d.d(), d.node.float_or("alpha", 1));
  const ValueId left = ta ? turned(b, d.in(0)) : d.in(0), right = tb ? turned(b, d.in(1)) : d.in(1);
  if (d.wants(0)) {
    const ValueId part = b.matmul(adjoint, turned(b, right));
    OPTC_TRY(d.give(0, ta ? turned(b, part) : part));
  }
  if (d.wants(1)) {
    const ValueId part = b.matmul(turned(b, left), adjoint);
    OPTC_TRY(d.give(1, tb ? turned(b, part) : part));
  }
  return d.wants(2) ? d.give(2, scaled(d.d(), d.node.float_or("beta", 1))) : Status();
}

// An operand's adjoint is the product of the result's with the other operands, summed over the letters that it lacks.
Status einsum(Derivative &d) {
  Body &b = d.b;
  std::string equation;
  for (char c : d.node.string_or("equation", ""))
    if (c != ' ') equation += c;
  const size_t arrow = equation.find("->");
  if (arrow == std::string::npos || equation.find('.') != std::string::npos)
    return d.unsupported("Einsum with an ellipsis or without a result's letters");
  std::vector<std::string> letters(1);
  for (char c : equation.substr(0, arrow)) {
    if (c == ',') letters.emplace_back();
    if (c != ',') letters.back() += c;
  }
  const std::string result = equation.substr(arrow + 2);
  if (letters.size() != d.node.inputs.size()) return d.unsupported("Einsum of this equation");
  for (size_t i = 0; i < letters.size(); ++i) {
    if (!d.wants(i)) continue;
    std::string terms = result, around = result;
    std::vector<ValueId> inputs{d.d()};
    for (size_t k = 0; k < letters.size(); ++k) {
      if (k == i) continue;
      terms += "," + letters[k];
      around += letters[k];
      inputs.push_back(d.in(k));
    }
    for (size_t k = 0; k < letters[i].size(); ++k)
      if (around.find(letters[i][k]) == std::string::npos || letters[i].find(letters[i][k], k + 1) != std::string::npos)
        return d.unsupported("Einsum by an operand with a letter of its own, or twice the same");
    OPTC_TRY(d.give(i, b.op("Einsum", std::move(inputs), {{"equation", terms + "->" + letters[i]}})));
  }
  return {};
}

// Where windows of `kernel` lie on x: explicit pads.
struct Windows {
  std::vector<int64_t> kernel, strides, dilations, pads;  // pads: begins, then ends
};

Result<Windows> windows_of(Derivative &d, ValueId x, std::vector<int64_t> kernel) {
  Windows w;
  const size_t n = kernel.size();
  const auto list = [&](std::string_view name, int64_t fallback, size_t count) {
    const std::vector<int64_t> *given = d.node.ints(name);
    return given && given->size() == count ? *given : std::vector<int64_t>(count, fallback);
  };
  w.kernel = std::move(kernel);
  w.strides = list("strides", 1, n);
  w.dilations = list("dilations", 1, n);
  w.pads = list("pads", 0, 2 * n);
  const std::string_view automatic = d.node.string_or("auto_pad", "NOTSET");
  if (automatic == "VALID") w.pads.assign(2 * n, 0);
  if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER")
    for (size_t k = 0; k < n; ++k) {
      const auto size = d.b.fixed(x, static_cast<int>(k) + 2);
      if (!size) return d.unsupported(d.node.op + " with auto_pad, of sizes that only the run decides");
      const int64_t places = (*size + w.strides[k] - 1) / w.strides[k];
      const int64_t extent = w.dilations[k] * (w.kernel[k] - 1) + 1;
      const int64_t all = std::max<int64_t>((places - 1) * w.strides[k] + extent - *size, 0);
      const int64_t less = all / 2, more = all - less;
      w.pads[k] = automatic == "SAME_UPPER" ? less : more;
      w.pads[n + k] = automatic == "SAME_UPPER" ? more : less;
    }
  return w;
}

Body::Attributes attributes_of(const Windows &w, int64_t group) {
  return {{"strides", w.strides},
          {"dilations", w.dilations},
          {"pads", w.pads},
          {"kernel_shape", w.kernel},
          {"group", group}};
}

// The adjoint of x where `adjoint` is that of a convolution of x by `weights`: [.., in channels of a group, ...].
Result<ValueId> spread(Derivative &d, ValueId x, ValueId adjoint, ValueId weights, const Windows &w, int64_t group) {
  Body &b = d.b;
  Body::Attributes attributes = attributes_of(w, group);
  std::vector<int64_t> rest;  // what the last window leaves at the end
  for (size_t k = 0; k < w.kernel.size(); ++k) {
    if (w.strides[k] == 1) {
      rest.push_back(0);
      continue;
    }
    const auto size = b.fixed(x, static_cast<int>(k) + 2);
    if (!size) return d.unsupported(d.node.op + " with strides, of sizes that only the run decides");
    const int64_t extent = w.dilations[k] * (w.kernel[k] - 1) + 1;
    rest.push_back((*size + w.pads[k] + w.pads[w.kernel.size() + k] - extent) % w.strides[k]);
  }
  attributes.emplace_back("output_padding", std::move(rest));
  return b.op("ConvTranspose", {adjoint, weights}, std::move(attributes));
}

// The adjoint of the weights [channels of `small`, channels of `large` in a group, kernel] of a convolution that makes
// `small` of `large`: a convolution over the batch, whose steps are the kernel's dilations.
ValueId weights_adjoint(Derivative &d, ValueId large, ValueId small, const Windows &w, int64_t group) {
  Body &b = d.b;
  const int64_t spatial = static_cast<int64_t>(w.kernel.size());
  // [batch, group * n, ...] as [n, group * batch, ...].
  std::vector<ValueId> sizes{b.dim(large, 0), b.ints({group}), b.ints({-1})};
  std::vector<int64_t> perm{2, 1, 0};
  for (int64_t k = 0; k < spatial; ++k) {
    sizes.push_back(b.dim(large, 2 + k));
    perm.push_back(3 + k);
  }
  const ValueId apart = b.transpose(b.op("Reshape", {large, b.concat(sizes, 0)}), std::move(perm));
  std::vector<ValueId> joined{b.dim(apart, 0), b.ints({-1})};
  std::vector<int64_t> swapped{1, 0}, axes, ends, begins;
  for (int64_t k = 0; k < spatial; ++k) {
    joined.push_back(b.dim(large, 2 + k));
    swapped.push_back(2 + k);
    axes.push_back(2 + k);
    begins.push_back(0);
  }
  const ValueId rows = b.op("Reshape", {apart, b.concat(joined, 0)});
  Body::Attributes attributes{{"strides", w.dilations}, {"dilations", w.strides}, {"pads", w.pads}, {"group", group}};
  ValueId y = b.op("Conv", {rows, b.transpose(small, swapped)}, std::move(attributes));
  // Where the windows leave a rest at the end there are more places than the kernel has.
  y = b.op("Slice", {y, b.ints(std::move(begins)), b.ints(w.kernel), b.ints(std::move(axes))});
  return b.transpose(y, swapped);
}

Result<std::vector<int64_t>> kernel_of(Derivative &d) {
  std::vector<int64_t> kernel;
  for (int k = 2; k < d.b.rank(d.in(1)); ++k) {
    const auto size = d.b.fixed(d.in(1), k);
    if (!size) return d.unsupported(d.node.op + " with a kernel whose size only the run decides");
    kernel.push_back(*size);
  }
  return kernel;
}

Status conv_bias(Derivative &d) {
  if (!d.wants(2)) return {};
  std::vector<int64_t> axes{0};
  for (int64_t k = 2; k < d.b.rank(d.d()); ++k) axes.push_back(k);
  return d.give(2, sum_over(d.b, d.d(), std::move(axes), false));
}

Status conv(Derivative &d) {
  const int64_t group = d.node.int_or("group", 1);
  OPTC_ASSIGN(std::vector<int64_t> kernel, kernel_of(d));
  OPTC_ASSIGN(const Windows w, windows_of(d, d.in(0), std::move(kernel)));
  if (d.wants(0)) {
    OPTC_ASSIGN(const ValueId part, spread(d, d.in(0), d.d(), d.in(1), w, group));
    OPTC_TRY(d.give(0, part));
  }
  if (d.wants(1)) OPTC_TRY(d.give(1, weights_adjoint(d, d.in(0), d.d(), w, group)));
  return conv_bias(d);
}

Status conv_transpose(Derivative &d) {
  const int64_t group = d.node.int_or("group", 1);
  if (d.node.string_or("auto_pad", "NOTSET") != "NOTSET" || d.node.ints("output_shape"))
    return d.unsupported("ConvTranspose with auto_pad or output_shape");
  OPTC_ASSIGN(std::vector<int64_t> kernel, kernel_of(d));
  OPTC_ASSIGN(const Windows w, windows_of(d, d.in(0), std::move(kernel)));
  if (d.wants(0)) {
    // With an output padding as large as a stride there are more places than x has.
    const ValueId part = d.b.op("Conv", {d.d(), d.in(1)}, attributes_of(w, group));
    std::vector<int64_t> begins, axes;
    for (int64_t k = 0; k < static_cast<int64_t>(w.kernel.size()); ++k) {
      begins.push_back(0);
      axes.push_back(2 + k);
    }
    const ValueId size = d.b.op("Shape", {d.in(0)}, {{"start", int64_t{2}}});
    OPTC_TRY(d.give(0, d.b.op("Slice", {part, d.b.ints(std::move(begins)), size, d.b.ints(std::move(axes))})));
  }
  if (d.wants(1)) OPTC_TRY(d.give(1, weights_adjoint(d, d.d(), d.in(0), w, group)));
  return conv_bias(d);
}

// The adjoint goes to the element of each window that was the largest.
Status max_pool(Derivative &d) {
  Body &b = d.b;
  Body::Attributes attributes = d.node.attributes;
  std::erase_if(attributes, [](const auto &a) { return a.first == "storage_order"; });
  const std::vector<ValueId> made = b.ops("MaxPool", {d.in(0)}, 2, std::move(attributes));
  const ValueId size = b.unsqueeze(b.op("Size", {d.in(0)}), {0});
  const ValueId none = b.op("Expand", {b.like(d.d(), 0), size});
  const ValueId flat = b.op("ScatterElements", {none, b.reshape(made[1], {-1}), b.reshape(d.d(), {-1})},
                            {{"axis", int64_t{0}}, {"reduction", std::string("add")}});
  return d.give(0, b.op("Reshape", {flat, b.op("Shape", {d.in(0)})}));
}

// Each window spreads its part of the adjoint evenly.
Status average_pool(Derivative &d) {
  Body &b = d.b;
  const auto channels = b.fixed(d.in(0), 1);
  const std::vector<int64_t> *kernel = d.node.ints("kernel_shape");
  if (!channels || !kernel) return d.unsupported("AveragePool of channels that only the run decides");
  if (d.node.int_or("ceil_mode", 0) != 0) return d.unsupported("AveragePool with ceil_mode");
  OPTC_ASSIGN(const Windows w, windows_of(d, d.in(0), *kernel));
  std::vector<int64_t> sizes{*channels, 1};
  sizes.insert(sizes.end(), kernel->begin(), kernel->end());
  const ValueId ones = b.op("Expand", {b.like(d.d(), 1), b.ints(sizes)});
  ValueId count;
  if (d.node.int_or("count_include_pad", 0) != 0) {
    double all = 1;
    for (int64_t k : *kernel) all *= static_cast<double>(k);
    count = b.like(d.d(), all);
  } else {
    const ValueId there = b.op("Expand", {b.like(d.d(), 1), b.op("Shape", {d.in(0)})});
    count = b.op("Conv", {there, ones}, attributes_of(w, *channels));
  }
  OPTC_ASSIGN(const ValueId part, spread(d, d.in(0), b.div(d.d(), count), ones, w, *channels));
  return d.give(0, part);
}

constexpr DerivativeRow kRows[] = {
    {"AveragePool", average_pool},
    {"Conv", conv},
    {"ConvTranspose", conv_transpose},
    {"Einsum", einsum},
    {"Gemm", gemm},
    {"MatMul", matmul},
    {"MaxPool", max_pool},
};

}  // namespace

std::span<const DerivativeRow> product_derivatives() { return kRows; }

}  // namespace optc
