// foreach_isa.h: includes the file that OPTC_KERNELS names once for each instruction set, inside namespace optc_base,
// optc_avx2 and optc_avx512 (macro OPTC_ISA), compiled for that set whatever the command line says. Include it once in
// a translation unit:
//
//     #define OPTC_KERNELS "kernels_0.inc"
//     #include "runtime/cpu/foreach_isa.h"
//     ... OPTC_PICK(kernel_name)(arguments) ...
//
// In the file: OPTC_VW float lanes a vector (16, 8, 4); the kernel headers (runtime/cpu/simd.h, math.h, gemm.h ...) are
// included there, inside the namespace, and it must include no other header (isa.h has the C library's). Functions that
// are called from outside carry OPTC_KERNEL; a lambda that takes or returns vectors carries OPTC_LAMBDA after its
// parameter list, because clang's attribute pragma does not reach lambdas.
#ifdef OPTC_FOREACH_ISA_H
#error "foreach_isa.h: once in a translation unit; let the file named by OPTC_KERNELS include the others"
#endif
#define OPTC_FOREACH_ISA_H

#include "runtime/cpu/isa.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors cross no call: all functions on them are inlined
#elif defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpsabi"
#pragma clang diagnostic ignored "-Wpass-failed"  // a loop of one iteration needs no unrolling
#endif

#define OPTC_VW 4
#define OPTC_ISA optc_base
#define OPTC_KERNEL __attribute__((noinline, unused))
#define OPTC_LAMBDA __attribute__((always_inline))
namespace optc_base {
#include OPTC_KERNELS
}
#undef OPTC_VW
#undef OPTC_ISA
#undef OPTC_KERNEL
#undef OPTC_LAMBDA
#include "runtime/cpu/isa_reset.h"

#if OPTC_X86
#define OPTC_VW 8
#define OPTC_ISA optc_avx2
#define OPTC_KERNEL __attribute__((noinline, unused))
#define OPTC_TARGET "avx,avx2,fma,f16c"
#if defined(__clang__)
#define OPTC_LAMBDA __attribute__((always_inline, target(OPTC_TARGET)))
#pragma clang attribute push(__attribute__((target(OPTC_TARGET))), apply_to = function)
#else
#define OPTC_LAMBDA __attribute__((always_inline))
#pragma GCC push_options
#pragma GCC target("avx,avx2,fma,f16c")
#endif
namespace optc_avx2 {
#include OPTC_KERNELS
}
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef OPTC_VW
#undef OPTC_ISA
#undef OPTC_KERNEL
#undef OPTC_LAMBDA
#undef OPTC_TARGET
#include "runtime/cpu/isa_reset.h"

#define OPTC_VW 16
#define OPTC_ISA optc_avx512
#define OPTC_TARGET "avx,avx2,fma,f16c,avx512f,avx512vl,avx512bw,avx512dq"
#if defined(__clang__)
// clang prefers 256-bit vectors on some processors and then splits the wide ones, unless it is told.
#define OPTC_KERNEL __attribute__((noinline, unused, min_vector_width(512)))
#define OPTC_LAMBDA __attribute__((always_inline, target(OPTC_TARGET)))
#pragma clang attribute push(__attribute__((target(OPTC_TARGET))), apply_to = function)
#else
#define OPTC_KERNEL __attribute__((noinline, unused))
#define OPTC_LAMBDA __attribute__((always_inline))
#pragma GCC push_options
#pragma GCC target("avx,avx2,fma,f16c,avx512f,avx512vl,avx512bw,avx512dq")
#endif
namespace optc_avx512 {
#include OPTC_KERNELS
}
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef OPTC_VW
#undef OPTC_ISA
#undef OPTC_KERNEL
#undef OPTC_LAMBDA
#undef OPTC_TARGET
#include "runtime/cpu/isa_reset.h"
#endif  // OPTC_X86

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#elif defined(__clang__)
#pragma clang diagnostic pop
#endif
