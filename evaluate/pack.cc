#include "evaluate/pack.h"

#include <type_traits>
#include <vector>

#include "runtime/cpu/conv_i8_plan.h"
#include "runtime/cpu/conv_plan.h"
#include "runtime/cpu/conv_transposed_plan.h"
#include "runtime/cpu/gemm_i8_plan.h"
#include "runtime/cpu/gemm_plan.h"
#include "runtime/cpu/rnn_plan.h"

namespace optc {
namespace {

OptcConvShape runtime_shape(const ConvolutionShape &s) {
  OptcConvShape r{};
  r.n = 1, r.d = s.depth, r.h = s.height, r.w = s.width, r.c = s.channels, r.oc = s.filters;
  r.kd = s.kernel[0], r.kh = s.kernel[1], r.kw = s.kernel[2];
  r.sd = s.strides[0], r.sh = s.strides[1], r.sw = s.strides[2];
  r.dd = s.dilations[0], r.dh = s.dilations[1], r.dw = s.dilations[2];
  r.pad_front = s.pads_begin[0], r.pad_top = s.pads_begin[1], r.pad_left = s.pads_begin[2];
  r.pad_back = s.pads_end[0], r.pad_bottom = s.pads_end[1], r.pad_right = s.pads_end[2];
  r.groups = s.groups, r.element = s.element;
  return r;
}

Constant owned_floats(std::vector<uint8_t> bytes) {
  const int64_t count = static_cast<int64_t>(bytes.size() / 4);
  return Constant::owned(ElementType::kFloat32, {count}, std::move(bytes));
}

}  // namespace

namespace {

// B's panels, about a megabyte at a time. T as optc_pack_b has it.
template <class T>
bool give_panels(const Constant &weight, int64_t offset, int64_t k, int64_t n, int64_t row_stride,
                 int64_t column_stride, const Constant::Sink &sink) {
  constexpr size_t kPiece = size_t{1} << 20;
  const OptcPanels panels = optc_gemm_panels(n, optc_multiplied<T>());
  const int64_t kc = optc_gemm_kc(k);
  const Constant b = weight.plain();
  std::vector<T> piece;
  const auto flush = [&](size_t from) {
    if (piece.size() * sizeof(T) < from) return true;
    const bool taken = sink(piece.data(), piece.size() * sizeof(T));
    piece.clear();
    return taken;
  };
  for (int64_t k0 = 0; k0 < k; k0 += kc)
    for (int64_t p = 0; p < optc_panel_count(panels); ++p) {
      const int64_t depth = std::min(kc, k - k0);
      const size_t at = piece.size();
      piece.resize(at + static_cast<size_t>(depth * optc_panel_width(panels, p)));
      optc_pack_panel(piece.data() + at, b.as<T>() + offset + k0 * row_stride, depth, n, panels, p, row_stride,
                      column_stride);
      if (!flush(kPiece)) return false;
    }
  return flush(1);
}

std::string form_of(const char *name, std::initializer_list<int64_t> numbers) {
  std::string text = name;
  for (const int64_t number : numbers) text += ' ' + std::to_string(number);
  return text;
}

}  // namespace

Constant pack_gemm(const Constant &b, int64_t offset, int64_t k, int64_t n, int64_t row_stride, int64_t column_stride) {
  const bool wide = b.type() == ElementType::kFloat64;
  return Constant::made(b.type(), {optc_gemm_packed_floats(n, k, wide ? 8 : 4)},
                        form_of("gemm", {offset, k, n, row_stride, column_stride}), {b},
                        [=](const Constant::Sink &sink) {
                          if (wide) return give_panels<double>(b, offset, k, n, row_stride, column_stride, sink);
                          if (b.type() == ElementType::kFloat32)
                            return give_panels<float>(b, offset, k, n, row_stride, column_stride, sink);
                          return give_panels<uint16_t>(b, offset, k, n, row_stride, column_stride, sink);
                        });
}

Constant pack_gemm_integer(const Constant &b, int64_t offset, int64_t k, int64_t n, int64_t row_stride,
                           int64_t column_stride) {
  const int64_t count = optc_gemm_i8_packed_bytes(n, k);
  return Constant::made(ElementType::kUInt8, {count}, form_of("gemm_i8", {offset, k, n, row_stride, column_stride}),
                        {b}, [=](const Constant::Sink &sink) {
                          std::vector<uint8_t> bytes(static_cast<size_t>(count));
                          if (b.type() == ElementType::kInt8)
                            optc_gemm_i8_pack(bytes.data(), b.as<int8_t>() + offset, k, n, row_stride, column_stride);
                          else
                            optc_gemm_i8_pack(bytes.data(), b.as<uint8_t>() + offset, k, n, row_stride, column_stride);
                          return sink(bytes.data(), bytes.size());
                        });
}

bool winograd_can(const ConvolutionShape &shape) { return optc_winograd_can(runtime_shape(shape)); }

ConvolutionAlgorithm convolution_algorithm(const ConvolutionShape &shape, bool strict) {
  switch (optc_conv_algorithm(runtime_shape(shape), strict)) {
    case OPTC_CONV_GEMM:
      return ConvolutionAlgorithm::kGemm;
    case OPTC_CONV_DIRECT:
      return ConvolutionAlgorithm::kDirect;
    case OPTC_CONV_DEPTHWISE:
      return ConvolutionAlgorithm::kDepthwise;
    case OPTC_CONV_WINOGRAD2:
      return ConvolutionAlgorithm::kWinograd2;
    case OPTC_CONV_WINOGRAD4:
      return ConvolutionAlgorithm::kWinograd4;
  }
  return ConvolutionAlgorithm::kDirect;
}

bool direct_convolution_skips(const ConvolutionShape &shape) {
  return shape.height > 0 && optc_direct_skips(runtime_shape(shape));
}

namespace {

int64_t packed_elements(const OptcConvShape &s, ConvolutionAlgorithm algorithm) {
  switch (algorithm) {
    case ConvolutionAlgorithm::kGemm:
      return optc_gemm_packed_floats(s.oc, s.c, s.element);
    case ConvolutionAlgorithm::kDirect:
      return optc_direct_packed_floats(s);
    case ConvolutionAlgorithm::kDepthwise:
      return s.c * s.kh * s.kw;
    case ConvolutionAlgorithm::kWinograd2:
      return optc_winograd_packed_floats(s, 2);
    case ConvolutionAlgorithm::kWinograd4:
      return optc_winograd_packed_floats(s, 4);
    case ConvolutionAlgorithm::kTransposed:
      return optc_transposed_packed_floats(s);
  }
  return 0;
}

template <class T>
bool pack(const OptcConvShape &s, ConvolutionAlgorithm algorithm, const Constant &weight, int64_t count,
          const Constant::Sink &sink) {
  std::vector<T> out(static_cast<size_t>(count));
  const Constant plain = weight.plain();
  const T *w = plain.as<T>();
  if (algorithm == ConvolutionAlgorithm::kGemm) optc_pack_b(out.data(), w, s.c, s.oc, 1, s.c);
  if (algorithm == ConvolutionAlgorithm::kDirect) optc_direct_pack(s, w, out.data());
  if (algorithm == ConvolutionAlgorithm::kTransposed) optc_transposed_pack(s, w, out.data());
  if constexpr (std::is_same_v<T, float>) {
    if (algorithm == ConvolutionAlgorithm::kDepthwise) optc_depthwise_pack(s, w, out.data());
    if (algorithm == ConvolutionAlgorithm::kWinograd2) optc_winograd_pack(s, 2, w, out.data());
    if (algorithm == ConvolutionAlgorithm::kWinograd4) optc_winograd_pack(s, 4, w, out.data());
  }
  return sink(out.data(), out.size() * sizeof(T));
}

}  // namespace

Constant pack_convolution(const Constant &weight, const ConvolutionShape &shape, ConvolutionAlgorithm algorithm) {
  const OptcConvShape s = runtime_shape(shape);
  const int64_t count = packed_elements(s, algorithm);
  const std::string form = form_of("convolution", {static_cast<int64_t>(algorithm),
                                                   s.d,
                                                   s.h,
                                                   s.w,
                                                   s.c,
                                                   s.oc,
                                                   s.kd,
                                                   s.kh,
                                                   s.kw,
                                                   s.sd,
                                                   s.sh,
                                                   s.sw,
                                                   s.dd,
                                                   s.dh,
                                                   s.dw,
                                                   s.pad_front,
                                                   s.pad_top,
                                                   s.pad_left,
                                                   s.pad_back,
                                                   s.pad_bottom,
                                                   s.pad_right,
                                                   s.groups});
  return Constant::made(weight.type(), {count}, form, {weight}, [=](const Constant::Sink &sink) {
    return s.element == 8 ? pack<double>(s, algorithm, weight, count, sink)
                          : pack<float>(s, algorithm, weight, count, sink);
  });
}

std::vector<TransposedPart> transposed_parts(const ConvolutionGeometry &geometry) {
  // Beyond these, walking over the parts costs more than it saves.
  constexpr int64_t kMostStride = 4096;
  constexpr size_t kMostParts = 1024;
  std::vector<TransposedPart> parts;
  for (int64_t stride : geometry.strides)
    if (stride > kMostStride) return parts;
  ConvolutionShape unknown;
  static_cast<ConvolutionGeometry &>(unknown) = geometry;
  const OptcConvShape s = runtime_shape(unknown);
  OptcTransposedPart part = optc_transposed_part(s, 0, 0, 0);
  do {
    if (parts.size() == kMostParts) return {};
    const OptcConvShape &t = part.direct;
    TransposedPart p;
    p.direct.channels = t.c, p.direct.filters = t.oc, p.direct.groups = t.groups;
    p.direct.kernel = {t.kd, t.kh, t.kw};
    p.direct.dilations = {t.dd, t.dh, t.dw};
    p.direct.pads_begin = {t.pad_front, t.pad_top, t.pad_left};
    p.first = {part.z.first, part.y.first, part.x.first};
    p.empty = t.kh == 0;
    parts.push_back(p);
  } while (optc_transposed_next(s, part));
  return parts;
}

namespace {

OptcRnn runtime_layer(const RecurrentShape &shape) {
  OptcRnn layer{};
  layer.kind = shape.gates == 4 ? OPTC_LSTM : shape.gates == 3 ? OPTC_GRU : OPTC_RNN;
  layer.input = shape.input;
  layer.hidden = shape.hidden;
  layer.linear_before_reset = shape.linear_before_reset;
  return layer;
}

template <typename Fill>
Constant packed(int64_t floats, const Fill &fill) {
  std::vector<uint8_t> bytes(static_cast<size_t>(floats) * 4);
  fill(reinterpret_cast<float *>(bytes.data()));
  return owned_floats(std::move(bytes));
}

Constant pack_bias(const OptcRnn &layer, int64_t direction, const Constant *bias) {
  const int64_t rows = optc_rnn_gates(layer) * layer.hidden;
  return packed(optc_rnn_packed_bias_floats(layer), [&](float *out) {
    optc_rnn_pack_bias(layer, bias ? bias->as<float>() + direction * 2 * rows : nullptr, out);
  });
}

}  // namespace

PackedRecurrent pack_recurrent(const RecurrentShape &shape, int64_t direction, const Constant &w, const Constant &r,
                               const Constant *bias) {
  const OptcRnn layer = runtime_layer(shape);
  const int64_t rows = shape.gates * shape.hidden;
  PackedRecurrent result;
  result.w = packed(optc_gemm_packed_floats(rows, shape.input),
                    [&](float *out) { optc_rnn_pack_w(layer, w.as<float>() + direction * rows * shape.input, out); });
  result.r = packed(optc_rnn_packed_r_floats(layer),
                    [&](float *out) { optc_rnn_pack_r(layer, r.as<float>() + direction * rows * shape.hidden, out); });
  result.bias = pack_bias(layer, direction, bias);
  return result;
}

PackedRecurrent pack_recurrent_integer(const RecurrentShape &shape, int64_t direction, const Constant &w,
                                       const Constant &r, const Constant *bias) {
  const int64_t columns = shape.gates * shape.hidden;
  const OptcRnn layer = runtime_layer(shape);
  // R with its columns as optc_rnn_row orders them; zeros beyond the last unit.
  const int64_t all = optc_rnn_blocks(layer) * optc_rnn_first_columns(layer);
  std::vector<uint8_t> ordered(static_cast<size_t>(shape.hidden * all));
  const uint8_t *from = r.as<uint8_t>() + direction * shape.hidden * columns;
  for (int64_t k = 0; k < shape.hidden; ++k)
    for (int64_t j = 0; j < all; ++j) {
      const int64_t column = recurrent_column(shape, j);
      if (column >= 0) ordered[static_cast<size_t>(k * all + j)] = from[k * columns + column];
    }
  return {pack_gemm_integer(w, direction * shape.input * columns, shape.input, columns, columns, 1),
          pack_gemm_integer(Constant::owned(r.type(), {shape.hidden, all}, std::move(ordered)), 0, shape.hidden, all,
                            all, 1),
          pack_bias(layer, direction, bias)};
}

int64_t recurrent_columns(const RecurrentShape &shape) {
  const OptcRnn layer = runtime_layer(shape);
  return optc_rnn_blocks(layer) * optc_rnn_first_columns(layer);
}
int64_t recurrent_column(const RecurrentShape &shape, int64_t ordered) {
  const OptcRnn layer = runtime_layer(shape);
  const int64_t columns = optc_rnn_first_columns(layer);
  return optc_rnn_row(layer, ordered / columns, 0, ordered % columns);
}

Constant pack_convolution_integer(const Constant &weight, const ConvolutionGeometry &geometry, bool depthwise) {
  ConvolutionShape shape;
  static_cast<ConvolutionGeometry &>(shape) = geometry;
  const OptcConvShape s = runtime_shape(shape);
  const auto pack = [&](const auto *w) {
    std::vector<uint8_t> bytes(
        static_cast<size_t>(depthwise ? optc_conv_i8_depthwise_bytes(s) : optc_conv_i8_packed_bytes(s)));
    if (depthwise)
      optc_conv_i8_depthwise_pack(s, w, reinterpret_cast<float *>(bytes.data()));
    else
      optc_conv_i8_pack(
          s, w, bytes.data(),
          std::vector<std::decay_t<decltype(*w)>>(static_cast<size_t>(optc_conv_i8_inner(s) * (s.oc / s.groups)))
              .data());
    return bytes;
  };
  std::vector<uint8_t> bytes =
      weight.type() == ElementType::kInt8 ? pack(weight.as<int8_t>()) : pack(weight.as<uint8_t>());
  const int64_t count = static_cast<int64_t>(bytes.size());
  if (depthwise) return owned_floats(std::move(bytes));
  return Constant::owned(ElementType::kUInt8, {count}, std::move(bytes));
}

}  // namespace optc
