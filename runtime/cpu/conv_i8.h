// conv_i8.h: convolutions of 8-bit integers into int32, exactly, as products of gathered rows (conv_i8_plan.h,
// gemm_i8.h). Included inside an instruction-set namespace (foreach_isa.h). The sink as in conv.h: row is the output
// pixel, column the filter.
#ifndef OPTC_CPU_CONV_I8_H
#define OPTC_CPU_CONV_I8_H
#include "runtime/cpu/conv_i8_plan.h"
#include "runtime/cpu/gemm_i8.h"

// An image by strides in bytes, and the zero point of all its bytes.
struct ConvI8Source {
  const uint8_t *p;
  int64_t image, row, pixel, channel, plane;
  bool is_signed;
  GemmZero zero;
};
OPTC_INLINE ConvI8Source conv_i8_source(const uint8_t *p, int64_t image, int64_t row, int64_t pixel, int64_t channel,
                                        int64_t plane, GemmZero zero) {
  return {p, image, row, pixel, channel, plane, false, zero};
}
OPTC_INLINE ConvI8Source conv_i8_source(const int8_t *p, int64_t image, int64_t row, int64_t pixel, int64_t channel,
                                        int64_t plane, GemmZero zero) {
  return {(const uint8_t *)p, image, row, pixel, channel, plane, true, zero};
}

// Output pixels as rows of a product: the bytes under the kernel, the zero point where they lie outside.
struct ConvI8Rows {
  const OptcConvShape &s;
  const uint8_t *p;  // of the group's first channel
  const ConvI8Source &x;
  bool is_signed;
  GemmZero zero;
  int64_t row = 0;
  OPTC_MEMBER bool in_place(int64_t, int64_t) const { return false; }

  // The taps of one kernel row, which begins at column x0 of the image's row.
  OPTC_MEMBER void lay_out_row(const uint8_t *line, int64_t x0, int64_t c, uint8_t flip, uint8_t outside,
                               uint8_t *to) const {
    if (s.dw == 1) {  // a run of taps inside
      const int64_t first = optc_clamp(-x0, 0, s.kw), last = optc_clamp(s.w - x0, first, s.kw);
      if (first > 0) memset(to, outside, (size_t)(first * c));
      const uint8_t *from = line + (x0 + first) * x.pixel;
      uint8_t *inside = to + first * c;
      if (x.channel == 1 && x.pixel == c) {
        copy_flipped(inside, from, (last - first) * c, flip);
      } else {
        for (int64_t t = first; t < last; ++t, from += x.pixel, inside += c) lay_out_tap(from, c, flip, inside);
      }
      if (last < s.kw) memset(to + last * c, outside, (size_t)((s.kw - last) * c));
      return;
    }
    for (int64_t t = 0; t < s.kw; ++t, to += c) {
      const int64_t at = x0 + t * s.dw;
      if (at < 0 || at >= s.w)
        memset(to, outside, (size_t)c);
      else
        lay_out_tap(line + at * x.pixel, c, flip, to);
    }
  }
  OPTC_MEMBER void lay_out_tap(const uint8_t *from, int64_t c, uint8_t flip, uint8_t *to) const {
    if (x.channel == 1) return copy_flipped(to, from, c, flip);
    for (int64_t i = 0; i < c; ++i) to[i] = from[i * x.channel] ^ flip;
  }

  OPTC_MEMBER void lay_out(int64_t m0, int64_t rows, int64_t, int64_t ld, uint8_t *out) const {
    const int64_t c = s.c / s.groups, od = optc_conv_od(s), oh = optc_conv_oh(s), ow = optc_conv_ow(s);
    const uint8_t flip = is_signed ? 0x80 : 0, outside = (uint8_t)(uint8_t(zero.at(0)) ^ flip);
    int64_t ox = m0 % ow, oy = m0 / ow % oh, oz = m0 / ow / oh % od, image = m0 / ow / oh / od;
    for (int64_t i = 0; i < rows; ++i, out += ld) {
      uint8_t *to = out;
      for (int64_t z = 0; z < s.kd; ++z) {
        const int64_t iz = oz * s.sd - s.pad_front + z * s.dd;
        for (int64_t y = 0; y < s.kh; ++y, to += s.kw * c) {
          const int64_t iy = oy * s.sh - s.pad_top + y * s.dh;
          if (iz < 0 || iz >= s.d || iy < 0 || iy >= s.h)
            memset(to, outside, (size_t)(s.kw * c));
          else
            lay_out_row(p + image * x.image + iz * x.plane + iy * x.row, ox * s.sw - s.pad_left, c, flip, outside, to);
        }
      }
      if (++ox < ow) continue;
      ox = 0;
      if (++oy < oh) continue;
      oy = 0;
      if (++oz < od) continue;
      oz = 0, ++image;
    }
  }
};

// Whether the output pixels are the input's, one after the other.
OPTC_INLINE bool conv_i8_is_product(const OptcConvShape &s, const ConvI8Source &x) {
  return optc_conv_i8_taps(s) == 1 && s.sd == 1 && s.sh == 1 && s.sw == 1 && s.pad_front == 0 && s.pad_back == 0 &&
         s.pad_top == 0 && s.pad_bottom == 0 && s.pad_left == 0 && s.pad_right == 0 && x.channel == 1 &&
         (s.h == 1 || x.row == s.w * x.pixel) && (s.d == 1 || x.plane == s.h * s.w * x.pixel) &&
         (s.n == 1 || x.image == s.d * s.h * s.w * x.pixel);
}

// The sink of a group, whose columns begin behind those of the groups before.
struct ConvI8Group {
  const TileSinkOf<int32_t> &sink;
  int64_t first;
};
static OPTC_KERNEL void conv_i8_finish_group(const void *body, const int32_t *sums, int64_t ld, int64_t row,
                                             int64_t column, int64_t rows, int64_t columns) {
  const ConvI8Group &g = *static_cast<const ConvI8Group *>(body);
  g.sink(sums, ld, row, g.first + column, rows, columns);
}

// All tasks. scratch of a task: optc_gemm_i8_scratch(pixels of all images, optc_conv_i8_inner(s), true) bytes.
template <class Env>
static OPTC_KERNEL void convolve_i8(const Env &env, const OptcConvShape &s, const ConvI8Source &x,
                                    const uint8_t *packed, bool is_signed, const GemmZero &zero,
                                    const TileSinkOf<int32_t> &sink) {
  const int64_t oc = s.oc / s.groups, c = s.c / s.groups;
  const OptcGemmI8 plan = optc_gemm_i8_plan(s.n * optc_conv_od(s) * optc_conv_oh(s) * optc_conv_ow(s), oc,
                                            optc_conv_i8_inner(s), env.threads, s.groups);
  const int64_t tasks = optc_gemm_i8_tasks(plan);
  const bool product = conv_i8_is_product(s, x);
  parallel(env, tasks * s.groups, 1, [&](int64_t begin, int64_t end, uint8_t *scratch) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t g = t / tasks;
      const ConvI8Group group = {sink, g * oc};
      GemmZero columns = zero;
      if (columns.p) columns.p += g * oc * columns.step;
      const GemmI8Columns b = gemm_i8_packed(packed + g * optc_conv_i8_group_bytes(s), is_signed, columns);
      const TileSinkOf<int32_t> to = {conv_i8_finish_group, &group};
      const uint8_t *p = x.p + g * c * x.channel;
      if (product)
        gemm_i8(plan, t % tasks, GemmI8Rows{p, x.pixel, 1, x.is_signed, x.zero}, b, scratch, to, optc_isa_dot());
      else
        gemm_i8(plan, t % tasks, ConvI8Rows{s, p, x, x.is_signed, x.zero}, b, scratch, to, optc_isa_dot());
    }
  });
}
#endif  // OPTC_CPU_CONV_I8_H
