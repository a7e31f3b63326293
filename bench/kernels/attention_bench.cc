// One-thread times of runtime/cpu/attention.h.
#define OPTC_KERNELS "bench/kernels/attention_kernels.inc"
#include "bench/kernels/bench.h"
#include "runtime/cpu/attention_plan.h"

#include "runtime/cpu/foreach_isa.h"

int main() {
  const OptcAttention shapes[] = {{1, 12, 12, 128, 128, 64, 64, 0.125f, 0, false, 0},
                                  {1, 12, 12, 512, 512, 64, 64, 0.125f, 0, false, 0},
                                  {1, 12, 12, 1, 256, 64, 64, 0.125f, 0, false, 0},
                                  {1, 8, 8, 197, 197, 64, 64, 0.125f, 0, false, 0}};
  for (const OptcAttention &a : shapes) {
    float *q = bench_floats(a.heads * a.queries * a.d), *k = bench_floats(a.heads * a.keys * a.d),
          *v = bench_floats(a.heads * a.keys * a.d);
    float *out = bench_floats(a.heads * a.queries * a.d), *scratch = bench_floats(optc_attention_scratch_floats(a));
    const double t = bench_best(0.3, [&] { OPTC_PICK(run_attention)(a, q, k, v, scratch, out); });
    printf("attention %ldx%ld %ld queries %ld keys %ld: %.1f us (%.0f GF/s)\n", long(a.batch), long(a.heads),
           long(a.queries), long(a.keys), long(a.d), t * 1e6, 4e-9 * a.heads * a.queries * a.keys * a.d / t);
    free(q), free(k), free(v), free(out), free(scratch);
  }
}
