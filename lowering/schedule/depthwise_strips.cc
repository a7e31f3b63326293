// emit/ptx/depthwise.cc: depthwise convolutions on a GPU: how many channels and pixels a thread has, and how a block's
// threads lie on the image.

#include <algorithm>
#include <cmath>
#include <set>

#include "ir/program/contraction_view.h"
#include "ir/program/gpu_machine.h"
#include "lowering/schedule/schedule.h"

namespace optc {
namespace {

constexpr int64_t kMostStrip = 8, kThreads = 256;
// Registers that hold sums, pixels and what is fetched of the next row: of 128 a thread, with those for addresses.
constexpr int64_t kRegisters = 112;

// The pixels of a strip's reach that some tap reads.
int64_t pixels_read(const ConvolutionGeometry &g, int64_t strip) {
  std::set<int64_t> read;
  for (int64_t t = 0; t < strip; ++t)
    for (int64_t k = 0; k < g.kernel[2]; ++k) read.insert(t * g.strides[2] + k * g.dilations[2]);
  return static_cast<int64_t>(read.size());
}

// A model of the time: instructions of a thread, by the warps that a scheduler of a multiprocessor has. Fewer than a
// few do not fill it.
double modelled_time(const ConvolutionStripsSchedule &s, unsigned size, Dim lines, Dim width, int multiprocessors) {
  constexpr double kFewWarps = 3, kManyLines = 1 << 16;
  const ConvolutionGeometry &g = s.image.geometry;
  const auto v = static_cast<double>(s.vector), t = static_cast<double>(s.strip);
  const auto taps = static_cast<double>(g.kernel[2]), pixels = static_cast<double>(pixels_read(g, s.strip));
  const double row = taps * v * t + (size == 4 ? 0 : pixels * v) + 3 * pixels + taps * std::ceil(v / 4) + 14;
  const double thread = row * static_cast<double>(g.kernel[1]) + t * (8 + 2 * v) + 60;
  const double strips = width.is_constant() ? std::ceil(static_cast<double>(width.value()) / t) : 64 / t + 0.5;
  const double count = lines.is_constant() ? static_cast<double>(lines.value()) : kManyLines;
  const double warps = count * strips * std::ceil(static_cast<double>(g.channels) / v) / 32;
  return thread * std::max(kFewWarps, warps / (4.0 * multiprocessors));
}

int64_t power_of_two_from(int64_t n, int64_t most) {
  int64_t p = 1;
  while (p < n && p < most) p *= 2;
  return p;
}

// Neighbouring threads have neighbouring vectors of channels where those lie together, else neighbouring strips.
void choose_block(ConvolutionStripsSchedule &s, Dim width) {
  const int64_t channels = s.image.channel_stride.is(1) ? s.image.geometry.channels : 1;
  s.block_vectors = power_of_two_from((channels + s.vector - 1) / s.vector, 8);
  const int64_t strips = width.is_constant() ? (width.value() + s.strip - 1) / s.strip : 4;
  s.block_strips = power_of_two_from(strips, 32 / s.block_vectors);
  s.block_lines = kThreads / (s.block_vectors * s.block_strips);
}

}  // namespace

std::optional<ConvolutionStripsSchedule> strips_schedule(const Program &program, const Kernel &kernel,
                                                         const LoweringOptions &options) {
  const auto found = depthwise_view(program, kernel);
  if (!found) return std::nullopt;
  ConvolutionStripsSchedule s;
  s.image = convolution_operands(found->view, storage_strides(program.buffer(found->view.input)), false);
  s.images = found->images;
  s.channels = found->channels;
  s.rows = found->rows;
  s.columns = found->columns;
  s.taps = found->taps;
  const unsigned size = static_cast<unsigned>(bit_width(found->element)) / 8;
  const Dim width = total_extent(s.columns), lines = total_extent(s.images) * total_extent(s.rows);
  std::optional<ConvolutionStripsSchedule> best;
  double best_time = 0;
  for (s.vector = found->together; s.vector >= 1; s.vector /= 2)
    for (s.strip = kMostStrip; s.strip >= 1; --s.strip) {
      const int64_t pixels = pixels_read(s.image.geometry, s.strip);
      if (s.vector * (pixels + s.strip) + s.vector * pixels * size / 4 > kRegisters) continue;
      choose_block(s, width);
      if (!is_strip(s)) continue;
      const double time = modelled_time(s, size, lines, width, options.machine->multiprocessors);
      if (best && time >= best_time) continue;
      best = s;
      best_time = time;
    }
  return best;
}

}  // namespace optc
