// probe.h: a bundle that is made to be watched (optc verify --per-kernel) tells of each kernel before and after it
// runs. Other bundles do not include it.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <initializer_list>

#include "runtime/cpu/isa.h"

namespace optc {

struct ProbeEvent {
  int32_t kernel;          // of the Program, counted from 0
  const char *name;        // of the kernel
  bool after;              // it has run
  const char *isa;         // what its code is made for: "avx512", "avx2", "base", or a GPU's "sm_90a"
  const int32_t *symbols;  // numbers of the dims that are known or will be
  const int64_t *dims;     // their values
  size_t dim_count;
  const void *const *buffers;  // where the roots of what it reads and writes lie, constants and objects left out
  size_t buffer_count;
  const char *overrun;  // after it has run: how it wrote beyond its memory ("writes beyond the arena"), else null
};
using ProbeFunction = void (*)(void *user, const ProbeEvent *event);

// One of each library.
inline __attribute__((visibility("hidden"))) ProbeFunction probe_function = nullptr;
inline __attribute__((visibility("hidden"))) void *probe_user = nullptr;

static inline __attribute__((unused)) const char *probe_isa() {
#if OPTC_X86
  const int isa = optc_isa();
  return isa == OPTC_ISA_AVX512 ? "avx512" : isa == OPTC_ISA_AVX2 ? "avx2" : "base";
#else
  return "base";
#endif
}

template <class R>
static inline void probe(R &run, int32_t kernel, const char *name, bool after,
                         std::initializer_list<const void *> buffers, const char *isa = probe_isa()) {
  if (!probe_function) return;
  const ProbeEvent event = {kernel,
                            name,
                            after,
                            isa,
                            R::Model::kProbeSymbols,
                            reinterpret_cast<const int64_t *>(&run.dims),
                            R::Model::kProbeDims,
                            buffers.begin(),
                            buffers.size(),
                            after ? run.overrun() : nullptr};
  probe_function(probe_user, &event);
}

}  // namespace optc
