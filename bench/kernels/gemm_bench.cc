// One-thread rates of runtime/cpu/gemm.h, of float and (F64) double. OPTC_ISA=base|avx2|avx512 picks the instruction
// set; an argument the first shape.
#define OPTC_GEMM_SHAPES(X) \
  X(0, 16, 768, 768)        \
  X(1, 128, 768, 768)       \
  X(2, 128, 768, 3072)      \
  X(3, 128, 3072, 768)      \
  X(4, 512, 512, 512)       \
  X(5, 1024, 1024, 1024)    \
  X(6, 3136, 64, 64)        \
  X(7, 3136, 64, 256)       \
  X(8, 784, 512, 128)       \
  X(9, 49, 2048, 512)       \
  X(10, 196, 1024, 256)     \
  X(11, 1, 256, 1024) X(12, 1, 768, 768) X(13, 1, 768, 3072) X(14, 1, 4096, 4096) X(15, 4, 768, 768)
#define OPTC_KERNELS "bench/kernels/gemm_kernels.inc"
#include <vector>
#include "bench/kernels/bench.h"

#include "runtime/cpu/gemm_plan.h"

#include "runtime/cpu/foreach_isa.h"

int main(int argc, char **argv) {
  struct Shape {
    int64_t m, k, n;
  };
#define OPTC_SHAPE(index, m, k, n) {m, k, n},
  const Shape shapes[] = {OPTC_GEMM_SHAPES(OPTC_SHAPE)};
  const int lanes = optc_isa() == OPTC_ISA_AVX512 ? 16 : optc_isa() == OPTC_ISA_AVX2 ? 8 : 4;
  for (int s = argc > 1 ? atoi(argv[1]) : 0; s < int(sizeof shapes / sizeof *shapes); ++s) {
    const int64_t m = shapes[s].m, k = shapes[s].k, n = shapes[s].n;
    float *a = bench_floats(m * k), *b = bench_floats(k * n), *packed = bench_floats(optc_gemm_packed_floats(n, k)),
          *c = bench_floats(m * n);
    optc_pack_b(packed, b, k, n, n, 1);
    double peak = 0;
    volatile float sum = 0;
    const double best = bench_best(0.15, [&] {
      static int r = 0;
      if (r++ % 4 == 0) {
        const double t = bench_now();
        sum = sum + OPTC_PICK(fma_loop)(20000);
        const double p = 20000.0 * 16 * 2 * lanes / (bench_now() - t);
        if (p > peak) peak = p;
      }
      OPTC_PICK(run_gemm)(m, n, k, a, packed, c);
    });
    const double net = bench_best(0.15, [&] { OPTC_PICK(run_gemm)(m, n, k, a, packed, c); });
    const double time = net < best ? net : best;
    const std::vector<double> da(a, a + m * k), db(b, b + k * n);
    std::vector<double> wide(optc_gemm_packed_floats(n, k, 8)), dc(m * n);
    optc_pack_b(wide.data(), db.data(), k, n, n, 1);
    const double f64 = bench_best(0.15, [&] {
      OPTC_PICK(run_gemm_double)
      (m, n, k, da.data(), wide.data(), dc.data());
    });
    const double flops = 2e-9 * double(m * n * k);
    printf("%5ld x %5ld x %5ld  %9.1f us  %6.1f GF/s  FMA loop %.0f GF/s  F64 %9.1f us  %6.1f GF/s\n", long(m), long(k),
           long(n), time * 1e6, flops / time, peak * 1e-9, f64 * 1e6, flops / f64);
    free(a), free(b), free(packed), free(c);
  }
}
