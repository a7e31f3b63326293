#pragma once
// Libraries of the system that library operators (runtime/cpu/lib_*.h) call: what a bundle that has such an operator
// links, and says in its CMakeLists.txt, .pc file and README.md. Another one: a row in system_libraries.cc.

#include <set>
#include <span>
#include <string>
#include <string_view>

namespace optc {

struct SystemLibrary {
  std::string_view function;                  // the library operator that calls it
  std::string_view feature;                   // what it is for: a bundle may be built without it (OPTC_WITHOUT_FEATURE)
  std::string_view header, library, package;  // <header>, -llibrary, Debian's package
  std::string_view folders = "";              // below the system's include folders, where the header may lie
};

std::span<const SystemLibrary> system_libraries();
// Whether a bundle with these library operators links any.
bool needs_system_libraries(const std::set<std::string> &functions);
// The part of its CMakeLists.txt that finds and links them; empty when there are none. It sets `system_libraries` to
// the words that a .pc file has of them.
std::string find_system_libraries(const std::set<std::string> &functions);
// "libjpeg (Debian: libjpeg-dev), ...".
std::string describe_system_libraries(const std::set<std::string> &functions);

}  // namespace optc
