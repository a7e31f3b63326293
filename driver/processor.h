#pragma once
// The processor of this machine.

#include <string>

namespace optc {

std::string processor_name();   // as the system calls it: "Intel(R) Xeon(R) Platinum 8480+"; empty where it is not said
std::string instruction_set();  // the highest that bundles use here: "base", "avx2", "avx512", "vnni" or "amx"

}  // namespace optc
