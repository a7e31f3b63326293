// conv_transposed.h: transposed convolutions of float or double, by the direct convolutions of their parts
// (conv_transposed_plan.h). Included inside an instruction-set namespace (foreach_isa.h). The sink as in conv.h: row is
// the output pixel, each output once.
#ifndef OPTC_CPU_CONV_TRANSPOSED_H
#define OPTC_CPU_CONV_TRANSPOSED_H
#include "runtime/cpu/conv.h"
#include "runtime/cpu/conv_transposed_plan.h"

// Hands the sums of a part on, each run of filters to its own output pixel.
template <class T>
struct TransposedSink {
  const TileSinkOf<T> &to;
  const OptcConvShape &s;
  const OptcTransposedPart &part;
  int64_t qd, qh, qw;  // pixels of the part
  int64_t od, oh, ow;  // of the output
};
template <class T>
static OPTC_KERNEL void transposed_finish(const void *body, const T *sums, int64_t ld, int64_t row, int64_t column,
                                          int64_t rows, int64_t columns) {
  const TransposedSink<T> &b = *static_cast<const TransposedSink<T> *>(body);
  const OptcTransposedPart &p = b.part;
  const int64_t filters = b.s.oc / b.s.groups, per_group = p.direct.oc / b.s.groups;
  const int64_t x0 = row % b.qw, y0 = row / b.qw % b.qh, plane0 = row / b.qw / b.qh;
  for (int64_t j = 0; j < columns;) {
    const int64_t own = (column + j) % per_group, piece = own / filters, filter = own % filters;
    const int64_t n = optc_clamp(filters - filter, 0, columns - j),
                  channel = (column + j) / per_group * filters + filter;
    const int64_t rz = p.z.first + piece / (p.x.count * p.y.count), ry = p.y.first + piece / p.x.count % p.y.count,
                  rx = p.x.first + piece % p.x.count;
    for (int64_t i = 0, qx = x0, qy = y0, plane = plane0; i < rows;) {
      const int64_t image = plane / b.qd, z = plane % b.qd * b.s.sd + rz, y = qy * b.s.sh + ry;
      const int64_t end = optc_clamp(i + b.qw - qx, 0, rows);  // of the pixels in this row of the part
      const bool inside = z < b.od && y < b.oh;
      const int64_t at = ((image * b.od + z) * b.oh + y) * b.ow;
      for (; i < end; ++i, ++qx) {
        const int64_t x = qx * b.s.sw + rx;
        if (inside && x < b.ow) b.to(sums + i * ld + j, ld, at + x, channel, 1, n);
      }
      qx = 0;
      if (++qy == b.qh) qy = 0, ++plane;
    }
    j += n;
  }
}

// Tasks [begin, end) of one part. scratch: optc_transposed_scratch_floats(s) elements of the running thread. packed:
// the part's own weights.
template <class T>
static OPTC_KERNEL void conv_transposed(const OptcConvShape &s, const OptcTransposedPart &part, int64_t begin,
                                        int64_t end, const ConvSourceOf<T> &x, const T *packed, GemmElement<T> *scratch,
                                        const TileSinkOf<T> &sink) {
  const OptcConvShape &t = part.direct;
  const TransposedSink<T> body = {sink,
                                  s,
                                  part,
                                  optc_conv_od(t),
                                  optc_conv_oh(t),
                                  optc_conv_ow(t),
                                  optc_transposed_od(s),
                                  optc_transposed_oh(s),
                                  optc_transposed_ow(s)};
  const TileSinkOf<T> pixels = {transposed_finish<T>, &body};
  if (t.kh == 0) {
    const T zeros[OPTC_VW] = {};
    for (int64_t i = begin * body.qw; i < end * body.qw; ++i)
      for (int64_t j = 0; j < t.oc; j += OPTC_VW) pixels(zeros, OPTC_VW, i, j, 1, optc_clamp(t.oc - j, 0, OPTC_VW));
    return;
  }
  const OptcDirect d = optc_direct_plan(t);
  for (int64_t i = begin; i < end; ++i) conv_direct(t, d, i, x, packed, scratch, pixels);
}

// All tasks of all parts. Weights by optc_transposed_pack.
template <class Env, class T>
static OPTC_KERNEL void convolve_transposed(const Env &env, const OptcConvShape &s, const ConvSourceOf<T> &x,
                                            const T *packed, const TileSinkOf<T> &sink) {
  const OptcTransposedPart first = optc_transposed_part(s, 0, 0, 0);
  int64_t tasks = 0;
  for (OptcTransposedPart p = first;;) {
    tasks += optc_transposed_part_tasks(p);
    if (!optc_transposed_next(s, p)) break;
  }
  parallel(env, tasks, 1, [&](int64_t begin, int64_t end, uint8_t *scratch) {
    const T *weights = packed;
    int64_t before = 0;  // tasks of earlier parts
    for (OptcTransposedPart p = first;;) {
      const int64_t own = optc_transposed_part_tasks(p), from = optc_clamp(begin - before, 0, own),
                    to = optc_clamp(end - before, 0, own);
      conv_transposed(s, p, from, to, x, weights, reinterpret_cast<T *>(scratch), sink);
      before += own;
      weights += optc_transposed_part_floats(p);
      if (before >= end || !optc_transposed_next(s, p)) break;
    }
  });
}
#endif  // OPTC_CPU_CONV_TRANSPOSED_H
