// Operands of convolutions as TMA's tensor maps name them: the image as im2col walks it, and the filters.

#include <algorithm>

#include "ir/program/access.h"
#include "ir/program/contraction_view.h"
#include "ir/program/tensor_core.h"

namespace optc {
namespace {

// A condition of the padding: 0 <= at, or at < below.
struct Guard {
  Dim at;
  std::optional<Dim> below;
};

std::optional<Dim> integer(const Program &program, ScalarId id) {
  const Scalar &s = program.scalars.at(id);
  if (s.op == ScalarOp::kIndex) return s.index_value;
  if (s.op == ScalarOp::kConstant && s.type == ElementType::kInt64) return Dim(static_cast<int64_t>(s.bits));
  return std::nullopt;
}

// All of them hold where `id` does; false: something else is asked too.
bool collect_guards(const Program &program, ScalarId id, std::vector<Guard> &guards) {
  const Scalar &s = program.scalars.at(id);
  if (s.op == ScalarOp::kAnd)
    return collect_guards(program, s.args[0], guards) && collect_guards(program, s.args[1], guards);
  if (s.op != ScalarOp::kLe && s.op != ScalarOp::kLt) return false;
  const auto left = integer(program, s.args[0]), right = integer(program, s.args[1]);
  if (!left || !right) return false;
  if (s.op == ScalarOp::kLe && left->is(0)) {
    guards.push_back({*right, std::nullopt});
    return true;
  }
  guards.push_back({*left, s.op == ScalarOp::kLt ? *right : *right + 1});
  return true;
}

// A dim of the image that loops walk: lower + step * pixel + dilation * tap.
struct Axis {
  Dim extent, stride;
  std::optional<size_t> pixel, tap;  // places in side.outer and in k
  Dim pixels = 1;
  int64_t lower = 0, step = 1, taps = 1, dilation = 1;
  bool plain() const { return pixel && !tap && lower == 0 && step == 1 && pixels == extent; }
};

// The index of dim `d`, without what keeps it inside where the conditions fail. nullopt: it is another one there.
std::optional<Dim> index_of(const Scalar &load, size_t d, Dim extent, const std::vector<Guard> &guards) {
  const Dim index = load.index[d];
  if (index.is_constant()) return index;  // of one element any guard's would be kept at it
  for (const Guard &g : guards) {
    if (g.at == index || !(index == max(min(g.at, extent - 1), 0) || index == min(g.at, extent - 1) ||
                           index == max(g.at, 0) || index == min(max(g.at, 0), extent - 1)))
      continue;
    bool low = lower_bound(g.at) >= 0, high = proved_less(g.at, extent);
    for (const Guard &other : guards)
      if (other.at == g.at) (other.below ? high : low) = true;
    return low && high ? std::optional<Dim>(g.at) : std::nullopt;
  }
  return index;
}

// `at` over the loops. false: it is no such sum.
bool set_walk(Dim at, const TensorCoreProduct &product, const TensorCoreProduct::Operand &side, Axis &axis) {
  for (size_t i = 0; i < side.outer.size() + product.k.size(); ++i) {
    const bool outer = i < side.outer.size();
    const size_t place = outer ? i : i - side.outer.size();
    const Loop &loop = outer ? side.outer[place] : product.k[place];
    const auto part = affine_in(at, loop.index);
    if (!part || !part->coefficient.is_constant()) return false;
    if (part->coefficient.is(0)) continue;
    if (outer ? axis.pixel.has_value() : axis.tap.has_value() || !loop.extent.is_constant()) return false;
    (outer ? axis.pixel : axis.tap) = place;
    (outer ? axis.step : axis.dilation) = part->coefficient.value();
    if (outer)
      axis.pixels = loop.extent;
    else
      axis.taps = loop.extent.value();
    at = part->rest;
  }
  if (!at.is_constant()) return false;
  axis.lower = at.value();
  return true;
}

// Whether loops run in the order of the dims, the first dim innermost: their places in the list fall.
bool in_order(const std::vector<Axis> &axes, std::optional<size_t> Axis::*loop) {
  std::optional<size_t> last;
  for (const Axis &a : axes) {
    if (!(a.*loop)) continue;
    if (last && *(a.*loop) >= *last) return false;
    last = a.*loop;
  }
  return true;
}

bool within(int64_t value, int64_t least, int64_t most) { return value >= least && value <= most; }

}  // namespace

std::optional<ImageMap> image_map(const Program &program, const TensorCoreProduct &product,
                                  const TensorCoreProduct::Operand &side, const ProductOperand &operand) {
  if (!operand.load.valid() || product.k.empty() || !product.batch.empty() || !side.k_contiguous) return std::nullopt;
  const Scalar &load = program.scalars.at(operand.load);
  const Buffer &buffer = program.buffer(load.buffer);
  const std::vector<Dim> strides = storage_strides(buffer);
  std::vector<Guard> guards;
  for (ScalarId c : operand.conditions)
    if (!collect_guards(program, c, guards)) return std::nullopt;

  ImageMap map;
  map.buffer = load.buffer;
  map.offset = 0;
  std::vector<Axis> axes;  // all but the channels
  std::vector<bool> used(guards.size(), false);
  size_t walked = 0, windows = 0;
  bool channels = false;
  for (size_t d = 0; d < load.index.size(); ++d) {
    Axis axis;
    axis.extent = buffer.shape()[d];
    axis.stride = strides[d];
    const auto at = index_of(load, d, axis.extent, guards);
    if (!at || !set_walk(*at, product, side, axis)) return std::nullopt;
    const bool moves = axis.pixel || axis.tap, channel = axis.tap == product.k.size() - 1;
    for (size_t g = 0; g < guards.size(); ++g)
      if (guards[g].at == *at && (!guards[g].below || *guards[g].below == axis.extent)) used[g] = moves && !channel;
    if (!moves || channel) {
      map.offset = map.offset + Dim(axis.lower) * axis.stride;
      if (!moves) continue;
      if (channels || axis.dilation != 1) return std::nullopt;
      channels = true;
      map.extents = {product.k.back().extent};
      map.strides = {axis.stride};
      if (!axis.pixel) continue;
      // Runs of channels that begin `step` apart, and may overlap: a dim of their own.
      axis.extent = axis.pixels;
      axis.stride = axis.stride * Dim(axis.step);
      axis.tap.reset();
      axis.lower = 0;
      axis.taps = axis.step = 1;
    }
    walked += axis.pixel.has_value();
    windows += axis.tap.has_value();
    axes.push_back(axis);
  }
  if (!channels || walked != side.outer.size() || windows + 1 != product.k.size() ||
      std::find(used.begin(), used.end(), false) != used.end())
    return std::nullopt;

  // The images are the slowest rows; what is left is space, the inner one first.
  std::stable_sort(axes.begin(), axes.end(), [](const Axis &a, const Axis &b) {
    if (a.pixel && b.pixel) return *a.pixel > *b.pixel;
    if (!a.pixel && !b.pixel) return a.tap > b.tap;
    return a.pixel.has_value();
  });
  const auto slowest = std::find_if(axes.begin(), axes.end(), [](const Axis &a) { return a.pixel == size_t{0}; });
  std::optional<Axis> images;
  if (axes.size() > 1 && slowest != axes.end() && slowest->plain()) {
    images = *slowest;
    axes.erase(slowest);
  }
  if (axes.empty() || axes.size() > 2) return std::nullopt;
  if (axes.size() == 2 && !in_order(axes, &Axis::tap)) std::swap(axes[0], axes[1]);
  if (!in_order(axes, &Axis::pixel) || !in_order(axes, &Axis::tap)) return std::nullopt;
  const auto one = [](const Axis &inside) {  // a dim of one element
    Axis axis;
    axis.extent = 1;
    axis.stride = inside.stride * inside.extent;
    return axis;
  };
  if (axes.size() == 1) axes.push_back(one(axes[0]));
  if (!images) images = one(axes[1]);

  for (const Axis &a : axes) {
    const Dim upper = Dim(a.lower) + (a.pixels - 1) * Dim(a.step) - (a.extent - 1);
    if (!upper.is_constant() || !within(upper.value(), -128, 127) || !within(a.lower, -128, 127) ||
        !within(a.step, 1, 8) || a.taps < 1 || a.dilation < 1 || a.dilation > 255 ||
        !within((a.taps - 1) * a.dilation, 0, 255))
      return std::nullopt;
    map.extents.push_back(a.extent);
    map.strides.push_back(a.stride);
    map.pixels.push_back(a.pixels);
    map.lower.push_back(a.lower);
    map.steps.push_back(a.step);
    map.taps.push_back(a.taps);
    map.dilations.push_back(a.dilation);
    map.upper.push_back(upper.value());
  }
  map.extents.push_back(images->extent);
  map.strides.push_back(images->stride);
  if (!is_tensor_map(program, map)) return std::nullopt;
  return map;
}

std::optional<TensorMap> filter_map(const Program &program, const TensorCoreProduct &product,
                                    const TensorCoreProduct::Operand &side, const ProductOperand &operand) {
  if (!operand.load.valid() || !operand.conditions.empty() || side.outer.empty() || product.k.empty() ||
      !product.batch.empty())
    return std::nullopt;
  std::vector<Loop> loops{product.k.back()};
  loops.insert(loops.end(), product.k.rbegin() + 1, product.k.rend());
  const size_t first = loops.size();
  loops.insert(loops.end(), side.outer.begin(), side.outer.end());
  const auto view = affine_operand(program, operand.load, loops);
  if (!view) return std::nullopt;
  const auto strides = view->strides.begin();
  const auto outer = uniform_stride(side.outer, {strides + static_cast<std::ptrdiff_t>(first), view->strides.end()});
  if (!outer) return std::nullopt;
  TensorMap map;
  map.buffer = view->buffer;
  map.offset = view->offset;
  map.extents = {product.k.back().extent, total_extent(side.outer)};
  map.strides = {view->strides[0], *outer};
  if (!side.k_contiguous) {
    std::swap(map.extents[0], map.extents[1]);
    std::swap(map.strides[0], map.strides[1]);
  }
  for (size_t i = 1; i < first; ++i) {
    map.extents.push_back(loops[i].extent);
    map.strides.push_back(view->strides[i]);
  }
  if (!is_tensor_map(program, map)) return std::nullopt;
  return map;
}

bool same(const ImageMap &a, const ImageMap &b) {
  return same(static_cast<const TensorMap &>(a), static_cast<const TensorMap &>(b)) && a.pixels == b.pixels &&
         a.lower == b.lower && a.steps == b.steps && a.taps == b.taps && a.dilations == b.dilations &&
         a.upper == b.upper;
}

}  // namespace optc
