// isa.h: which instruction set to run, and the macros that the kernel headers are written with. C++17, no dependency
// but the C library.
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__unix__) || defined(__APPLE__)
#include <sched.h>
#endif

#if defined(__x86_64__)
#define OPTC_X86 1
#include <cpuid.h>
#include <immintrin.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#else
#define OPTC_X86 0
#endif
#if defined(__aarch64__)
#define OPTC_NEON 1
#include <arm_neon.h>
#else
#define OPTC_NEON 0
#endif

#if defined(__clang__)
// On every loop over registers, and on no other: its trip count is a constant, and the loop must disappear.
#define OPTC_UNROLL _Pragma("clang loop unroll(full)")
#define OPTC_UNROLL4 _Pragma("clang loop unroll_count(4)")
#else
#define OPTC_UNROLL _Pragma("GCC unroll 64")
#define OPTC_UNROLL4 _Pragma("GCC unroll 4")
#endif

// Everything in the instruction-set namespaces is static: a function compiled for AVX-512 must never be the copy that
// the linker keeps for another instruction set or for another bundle of the same program.
#define OPTC_INLINE static inline __attribute__((always_inline, unused))
#define OPTC_MEMBER inline __attribute__((always_inline))

// A thread that waits for another: for some cycles, or while others that want the processor have it.
OPTC_INLINE void optc_pause() {
#if OPTC_X86
  _mm_pause();
#elif OPTC_NEON
  __asm__ volatile("yield");
#endif
}
OPTC_INLINE void optc_yield() {
#if defined(__unix__) || defined(__APPLE__)
  sched_yield();
#endif
}

// Instruction sets, ordered: a higher one runs everything that a lower one does.
enum { OPTC_ISA_BASE = 0, OPTC_ISA_AVX2 = 1, OPTC_ISA_AVX512 = 2 };

// The best instruction set that both the processor and the operating system support.
static inline int optc_isa_detect(void) {
#if OPTC_X86
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return OPTC_ISA_BASE;
  const bool osxsave = (c >> 27) & 1, avx = (c >> 28) & 1, fma = (c >> 12) & 1, f16c = (c >> 29) & 1;
  if (!(osxsave && avx && fma && f16c)) return OPTC_ISA_BASE;
  unsigned lo, hi;
  __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
  if ((lo & 6) != 6) return OPTC_ISA_BASE;  // the system saves XMM and YMM
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !((b >> 5) & 1)) return OPTC_ISA_BASE;
  const unsigned avx512 = (1u << 16) | (1u << 17) | (1u << 30) | (1u << 31);  // F, DQ, BW, VL
  return (lo & 0xe6) == 0xe6 && (b & avx512) == avx512 ? OPTC_ISA_AVX512 : OPTC_ISA_AVX2;
#else
  return OPTC_ISA_BASE;
#endif
}

// The instruction set in use: what the machine has, or less if the environment variable OPTC_ISA (base, avx2, avx512,
// vnni, amx) says so. The last two are AVX-512 with what optc_isa_dot() says of them.
static inline int optc_isa(void) {
  static const int isa = [] {
    int found = optc_isa_detect();
    if (const char *wish = getenv("OPTC_ISA")) {
      const int most = !strcmp(wish, "base") ? OPTC_ISA_BASE : !strcmp(wish, "avx2") ? OPTC_ISA_AVX2 : OPTC_ISA_AVX512;
      if (most < found) found = most;
    }
    return found;
  }();
  return isa;
}

// What the machine has beyond AVX-512 for products of 8-bit integers, ordered: AVX512_VNNI, AMX-INT8.
enum { OPTC_DOT_NONE = 0, OPTC_DOT_VNNI = 1, OPTC_DOT_AMX = 2 };
static inline int optc_isa_dot_detect(void) {
#if OPTC_X86
  unsigned a, b, c, d;
  if (optc_isa_detect() != OPTC_ISA_AVX512 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !((c >> 11) & 1))
    return OPTC_DOT_NONE;
#if defined(__linux__) && defined(SYS_arch_prctl)
  unsigned lo, hi;
  __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
  const bool tiles = ((d >> 24) & 1) && ((d >> 25) & 1) && (lo & 0x60000) == 0x60000;
  // The system gives a process the registers of tiles when it asks for them (ARCH_REQ_XCOMP_PERM, XTILEDATA).
  if (tiles && syscall(SYS_arch_prctl, 0x1023, 18) == 0) return OPTC_DOT_AMX;
#endif
  return OPTC_DOT_VNNI;
#else
  return OPTC_DOT_NONE;
#endif
}
static inline int optc_isa_dot(void) {
  static const int dot = [] {
    const int found = optc_isa() == OPTC_ISA_AVX512 ? optc_isa_dot_detect() : OPTC_DOT_NONE;
    int most = found;
    if (const char *wish = getenv("OPTC_ISA"))
      most = !strcmp(wish, "avx512") ? OPTC_DOT_NONE : !strcmp(wish, "vnni") ? OPTC_DOT_VNNI : found;
    return most < found ? most : found;
  }();
  return dot;
}

// OPTC_PICK(name): the function (or constant) `name` of the namespace for the instruction set in use.
#if OPTC_X86
#define OPTC_PICK(name) \
  (optc_isa() == OPTC_ISA_AVX512 ? optc_avx512::name : optc_isa() == OPTC_ISA_AVX2 ? optc_avx2::name : optc_base::name)
#else
#define OPTC_PICK(name) (optc_base::name)
#endif
