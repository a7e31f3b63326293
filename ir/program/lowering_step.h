#pragma once
// What lowering decided, one step each, in the order in which it was decided (lowering/steps.h): for bisection, for
// `optc opt --opt-report` and for the page that steps through them.

#include <cstdint>
#include <string>
#include <vector>

namespace optc {

struct LoweringStep {
  std::string name;              // "fuse.epilogue"
  std::string where;             // the kernels or the buffer that it was about
  std::vector<uint32_t> origin;  // what those compute: indices into Program::origins; empty: the whole Program
};

}  // namespace optc
