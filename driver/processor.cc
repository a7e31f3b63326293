#include "driver/processor.h"

#include <fstream>

#include "runtime/cpu/isa.h"

namespace optc {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");  // of all its processors' lines the first of that kind
  for (std::string line; std::getline(file, line);)
    if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos)
      return line.substr(line.find(": ") + 2);
  return {};
}

std::string instruction_set() {
  const int isa = optc_isa(), dot = optc_isa_dot();
  return isa == OPTC_ISA_BASE   ? "base"
         : isa == OPTC_ISA_AVX2 ? "avx2"
         : dot == OPTC_DOT_AMX  ? "amx"
         : dot == OPTC_DOT_VNNI ? "vnni"
                                : "avx512";
}

}  // namespace optc
