#pragma once
// For tests of runtime/cpu: runs a kernel of a file included by foreach_isa.h on every instruction set that this
// machine has.
#include <vector>

#include "runtime/cpu/isa.h"

template <class Function>
struct IsaFunction {
  const char *isa;
  Function function;
};

#if OPTC_X86
#define OPTC_ISA_FUNCTIONS(name)                                       \
  supported_isas(std::vector<IsaFunction<decltype(&optc_base::name)>>{ \
      {"base", &optc_base::name}, {"avx2", &optc_avx2::name}, {"avx512", &optc_avx512::name}})
#else
#define OPTC_ISA_FUNCTIONS(name) \
  supported_isas(std::vector<IsaFunction<decltype(&optc_base::name)>>{{"base", &optc_base::name}})
#endif

template <class Function>
std::vector<IsaFunction<Function>> supported_isas(std::vector<IsaFunction<Function>> all) {
  const size_t have = static_cast<size_t>(optc_isa_detect()) + 1;
  if (all.size() > have) all.resize(have);
  return all;
}
