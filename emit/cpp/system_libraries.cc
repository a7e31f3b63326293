#include "emit/cpp/system_libraries.h"

#include <fmt/format.h>

#include <vector>

namespace optc {
namespace {

constexpr SystemLibrary kLibraries[] = {
    {"image_decoder", "JPEG", "jpeglib.h", "jpeg", "libjpeg-dev"},
    {"image_decoder", "PNG", "png.h", "png", "libpng-dev"},
    {"image_decoder", "TIFF", "tiffio.h", "tiff", "libtiff-dev"},
    {"image_decoder", "WEBP", "webp/decode.h", "webp", "libwebp-dev"},
    {"image_decoder", "JPEG2000", "openjpeg.h", "openjp2", "libopenjp2-7-dev",
     "openjpeg-2.5 openjpeg-2.4 openjpeg-2.3"},
};

std::vector<const SystemLibrary *> needed(const std::set<std::string> &functions) {
  std::vector<const SystemLibrary *> found;
  for (const SystemLibrary &l : kLibraries)
    if (functions.count(std::string(l.function))) found.push_back(&l);
  return found;
}

}  // namespace

std::span<const SystemLibrary> system_libraries() { return kLibraries; }

bool needs_system_libraries(const std::set<std::string> &functions) { return !needed(functions).empty(); }

std::string describe_system_libraries(const std::set<std::string> &functions) {
  std::string text;
  for (const SystemLibrary *l : needed(functions))
    text += fmt::format("{}lib{} (Debian: {})", text.empty() ? "" : ", ", l->library, l->package);
  return text;
}

std::string find_system_libraries(const std::set<std::string> &functions) {
  const auto libraries = needed(functions);
  if (libraries.empty()) return {};
  std::string features, rows;
  for (const SystemLibrary *l : libraries) {
    features += fmt::format("{}{}", features.empty() ? "" : ";", l->feature);
    rows += fmt::format("optc_system_library({} {} {} {}{}{})\n", l->feature, l->header, l->library, l->package,
                        l->folders.empty() ? "" : " ", l->folders);
  }
  return fmt::format(R"CMAKE(
# Libraries of the system, by what they are for: what OPTC_SYSTEM_LIBRARIES does not name is left out.
set(OPTC_SYSTEM_LIBRARIES "{}" CACHE STRING "What bundles of optc use libraries of the system for")
set(system_libraries "")
macro(optc_system_library feature header library package)
  if("${{feature}}" IN_LIST OPTC_SYSTEM_LIBRARIES)
    find_path(OPTC_${{feature}}_HEADERS ${{header}} PATH_SUFFIXES ${{ARGN}})
    find_library(OPTC_${{feature}}_LIBRARY ${{library}})
    if(NOT OPTC_${{feature}}_HEADERS OR NOT OPTC_${{feature}}_LIBRARY)
      message(FATAL_ERROR "${{PROJECT_NAME}} needs lib${{library}} for ${{feature}}, which is not found: install it (Debian: ${{package}}), "
        "or leave it out by -DOPTC_SYSTEM_LIBRARIES=..., a list of what to keep of ${{OPTC_SYSTEM_LIBRARIES}}")
    endif()
    target_include_directories(${{PROJECT_NAME}} SYSTEM PRIVATE ${{OPTC_${{feature}}_HEADERS}})
    target_link_libraries(${{PROJECT_NAME}} PRIVATE ${{OPTC_${{feature}}_LIBRARY}})
    string(APPEND system_libraries " -l${{library}}")
  else()
    target_compile_definitions(${{PROJECT_NAME}} PRIVATE OPTC_WITHOUT_${{feature}})
  endif()
endmacro()
{})CMAKE",
                     features, rows);
}

}  // namespace optc
