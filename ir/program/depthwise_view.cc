#include <algorithm>

#include "ir/program/access.h"
#include "ir/program/contraction_view.h"
#include "ir/program/tensor_core.h"

namespace optc {
namespace {

bool stored_float(ElementType type) {
  return type == ElementType::kFloat32 || type == ElementType::kFloat16 || type == ElementType::kBFloat16;
}

// How many neighbouring channels lie together at every pixel, aligned to their size: 4, 2 or 1.
int64_t channels_together(const Program &program, const ConvolutionView &view) {
  std::vector<Dim> strides = storage_strides(program.buffer(view.input));
  if (!strides[1].is(1)) return 1;
  strides[1] = view.in_channels;
  strides.push_back(root_of(program, view.input).offset);
  for (const int64_t together : {4, 2})
    if (std::all_of(strides.begin(), strides.end(), [&](Dim d) { return divisible_by(d, together); })) return together;
  return 1;
}

}  // namespace

std::optional<DepthwiseView> depthwise_view(const Program &program, const Kernel &kernel) {
  const LoopNest *nest = kernel.nest();
  ProductSum sum;
  if (!nest || !product_sum(program, *nest, sum)) return std::nullopt;
  const auto view = convolution_view(program, kernel);
  if (!view || view->integer || view->info->transposed) return std::nullopt;
  const Contraction &c = *view->info;
  if (c.kernel.size() > 2 || c.group < 2 || !view->in_channels.is(c.group) || !view->out_channels.is(c.group))
    return std::nullopt;
  // The input is the load itself: the only conditions around it are those that the padding put there.
  const ProductOperand input = peel(program, c.lhs), padded = peel(program, sum.lhs), weight = peel(program, sum.rhs);
  if (!input.load.valid() || !input.conditions.empty() || input.load != padded.load || !weight.load.valid() ||
      !weight.conditions.empty() || !stored_float(padded.stored) || !stored_float(weight.stored))
    return std::nullopt;
  for (ScalarId factor : {sum.lhs, sum.rhs})
    if (program.scalars.at(factor).type != ElementType::kFloat32) return std::nullopt;

  DepthwiseView d;
  d.view = *view;
  d.element = padded.stored;
  d.together = channels_together(program, *view);
  const auto role = [](const std::vector<Loop> &loops, const DimSymbol *symbol, std::vector<Loop> &out) {
    const Loop *loop = find_loop(loops, symbol);
    if (loop) out.push_back(*loop);
  };
  role(nest->loops, c.batch.back(), d.channels);
  if (c.batch.size() > 1) role(nest->loops, c.batch[0], d.images);
  size_t pixel = 0;
  for (size_t i = 0; i < c.kernel.size(); ++i) {
    if (view->out_spatial[i].is(1) || pixel == c.m.size()) continue;
    role(nest->loops, c.m[pixel++], i + 1 == c.kernel.size() ? d.columns : d.rows);
  }
  for (const DimSymbol *symbol : c.k) role(nest->stages[0].loops, symbol, d.taps);
  if (d.channels.size() != 1) return std::nullopt;
  return d;
}

int64_t strip_reach(const ConvolutionStripsSchedule &s) {
  const ConvolutionGeometry &g = s.image.geometry;
  return (s.strip - 1) * g.strides[2] + (g.kernel[2] - 1) * g.dilations[2] + 1;
}

bool is_strip(const ConvolutionStripsSchedule &s) {
  const ConvolutionGeometry &g = s.image.geometry;
  for (const int64_t n : {s.vector, s.strip, s.block_vectors, s.block_strips, s.block_lines})
    if (n < 1 || n > 256) return false;
  const int64_t threads = s.block_vectors * s.block_strips * s.block_lines;
  for (size_t i = 1; i < 3; ++i)
    if (g.kernel[i] < 1 || g.kernel[i] > 128 || g.strides[i] < 1 || g.strides[i] > 128 || g.dilations[i] < 1 ||
        g.dilations[i] > 128)
      return false;
  return threads <= 256 && threads % 32 == 0 && strip_reach(s) <= 31 && s.strip * s.vector <= 64 &&
         g.kernel[1] * g.kernel[2] * (s.block_vectors * s.vector + 4) * 4 <= 32768;
}

}  // namespace optc
