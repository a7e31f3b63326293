// One-thread times of runtime/cpu/{conv,winograd,depthwise}.h, bias and ReLU included. OPTC_ISA=base|avx2|avx512 picks
// the instruction set. X(number, n, h, w, c, oc, kh, kw, sh, sw, dh, dw, top, left, bottom, right, groups)
#define OPTC_CONV_SHAPES(X)                                     \
  X(0, 1, 56, 56, 64, 64, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1)      \
  X(1, 1, 28, 28, 128, 128, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1)    \
  X(2, 1, 14, 14, 256, 256, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1)    \
  X(3, 1, 7, 7, 512, 512, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1)      \
  X(4, 1, 224, 224, 3, 64, 7, 7, 2, 2, 1, 1, 3, 3, 3, 3, 1)     \
  X(5, 1, 224, 224, 3, 32, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1)     \
  X(6, 1, 56, 56, 128, 128, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1)    \
  X(7, 1, 56, 56, 128, 128, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 32)   \
  X(8, 1, 112, 112, 32, 32, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 32)   \
  X(9, 1, 56, 56, 144, 144, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 144)  \
  X(10, 1, 14, 14, 576, 576, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 576) \
  X(11, 1, 112, 112, 96, 96, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 96)  \
  X(12, 1, 28, 28, 240, 240, 5, 5, 1, 1, 1, 1, 2, 2, 2, 2, 240)
#define OPTC_KERNELS "bench/kernels/conv_kernels.inc"
#include "bench/kernels/bench.h"
#include "runtime/cpu/conv_plan.h"

#include "runtime/cpu/foreach_isa.h"

int main() {
#define OPTC_SHAPE(index, ...) {__VA_ARGS__},
  const OptcConvShape shapes[] = {OPTC_CONV_SHAPES(OPTC_SHAPE)};
  for (int i = 0; i < int(sizeof shapes / sizeof *shapes); ++i) {
    const OptcConvShape &s = shapes[i];
    const int64_t oh = optc_conv_oh(s), ow = optc_conv_ow(s);
    float *x = bench_floats(s.h * s.w * s.c), *w = bench_floats(s.oc * s.c / s.groups * s.kh * s.kw),
          *bias = bench_floats(s.oc), *out = bench_floats(oh * ow * s.oc);
    printf("%ldx%ld %3ld -> %3ld, %ldx%ld s%ld g%ld:", long(s.h), long(s.w), long(s.c), long(s.oc), long(s.kh),
           long(s.kw), long(s.sh), long(s.groups));
    const char *names[] = {"1x1", "direct", "depthwise", "F(2,3)", "F(4,3)"};
    for (int a = OPTC_CONV_DIRECT; a <= OPTC_CONV_WINOGRAD4; ++a) {
      const bool depthwise = s.groups == s.c && s.groups > 1, winograd = s.kh == 3 && s.sh == 1 && s.groups == 1;
      if ((a == OPTC_CONV_DEPTHWISE) != depthwise) continue;
      if (a > OPTC_CONV_DEPTHWISE && !winograd) continue;
      const int m = a == OPTC_CONV_WINOGRAD4 ? 4 : 2;
      float *packed = bench_floats(a == OPTC_CONV_DIRECT      ? optc_direct_packed_floats(s)
                                   : a == OPTC_CONV_DEPTHWISE ? s.c * s.kh * s.kw
                                                              : optc_winograd_packed_floats(s, m));
      float *scratch = bench_floats(a == OPTC_CONV_DIRECT      ? optc_direct_plan(s).scratch_floats
                                    : a == OPTC_CONV_DEPTHWISE ? 0
                                                               : optc_winograd_plan(s, m).scratch_floats);
      if (a == OPTC_CONV_DIRECT) optc_direct_pack(s, w, packed);
      if (a == OPTC_CONV_DEPTHWISE) optc_depthwise_pack(s, w, packed);
      if (a > OPTC_CONV_DEPTHWISE) optc_winograd_pack(s, m, w, packed);
      const bool first = s.c == 3;
      const double t = bench_best(0.2, [&] { OPTC_PICK(run_conv)(s, a, first, x, packed, bias, scratch, out); });
      printf("  %s %.1f us (%.0f GF/s)%s", names[a], t * 1e6, 2e-9 * oh * ow * s.oc * s.c / s.groups * s.kh * s.kw / t,
             optc_conv_algorithm(s, false) == a ? "*" : "");
      free(packed), free(scratch);
    }
    printf("\n");
    free(x), free(w), free(bias), free(out);
  }
}
