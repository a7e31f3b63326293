// What builds and explains a bundle: CMakeLists.txt, the example, README.md.
#include <fmt/format.h>

#include <algorithm>

#include "emit/cpp/abi_files.h"
#include "emit/cpp/system_libraries.h"
#include "emit/cpp/text_lines.h"

namespace optc {

std::string cmake_lists(const AbiFacts &f) {
  std::string sources;
  for (const std::string &s : f.sources) sources += "\n  src/" + s;
  std::string out = fmt::format(
      R"CMAKE({3}
cmake_minimum_required(VERSION 3.16)
project({0} LANGUAGES C CXX)
include(GNUInstallDirs)
find_package(Threads REQUIRED)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()
add_library(${{PROJECT_NAME}}{1})
add_library(${{PROJECT_NAME}}::${{PROJECT_NAME}} ALIAS ${{PROJECT_NAME}})
target_compile_features(${{PROJECT_NAME}} PRIVATE cxx_std_17)
target_compile_options(${{PROJECT_NAME}} PRIVATE -O2 -Wall -Wextra -ffp-contract=off -fno-math-errno)
set_target_properties(${{PROJECT_NAME}} PROPERTIES CXX_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON)
target_include_directories(${{PROJECT_NAME}}
  PUBLIC $<BUILD_INTERFACE:${{CMAKE_CURRENT_SOURCE_DIR}}/include> $<INSTALL_INTERFACE:${{CMAKE_INSTALL_INCLUDEDIR}}>
  PRIVATE src)
target_link_libraries(${{PROJECT_NAME}} PRIVATE Threads::Threads ${{CMAKE_DL_LIBS}})
{4}
# Where the library finds its files: in this folder, and where they are installed, seen from the library.
file(RELATIVE_PATH share "${{CMAKE_INSTALL_FULL_LIBDIR}}" "${{CMAKE_INSTALL_FULL_DATADIR}}/${{PROJECT_NAME}}")
target_compile_definitions(${{PROJECT_NAME}} PRIVATE
  OPTC_BUNDLE_FOLDER="${{CMAKE_CURRENT_SOURCE_DIR}}"
  OPTC_INSTALL_FOLDER="${{CMAKE_INSTALL_FULL_DATADIR}}/${{PROJECT_NAME}}"
  OPTC_SHARE="${{share}}")

{6}if(CMAKE_SOURCE_DIR STREQUAL PROJECT_SOURCE_DIR{7})
  add_executable(${{PROJECT_NAME}}_example examples/main.cpp)
  target_compile_features(${{PROJECT_NAME}}_example PRIVATE cxx_std_17)
  target_link_libraries(${{PROJECT_NAME}}_example PRIVATE ${{PROJECT_NAME}}::${{PROJECT_NAME}})
endif()

install(TARGETS ${{PROJECT_NAME}} EXPORT ${{PROJECT_NAME}}-targets
  LIBRARY DESTINATION ${{CMAKE_INSTALL_LIBDIR}} ARCHIVE DESTINATION ${{CMAKE_INSTALL_LIBDIR}})
install(FILES include/optc.h include/${{PROJECT_NAME}}.h include/${{PROJECT_NAME}}.hpp DESTINATION ${{CMAKE_INSTALL_INCLUDEDIR}})
install(FILES python/${{PROJECT_NAME}}.py manifest.json{2} DESTINATION ${{CMAKE_INSTALL_DATADIR}}/${{PROJECT_NAME}})
install(EXPORT ${{PROJECT_NAME}}-targets NAMESPACE ${{PROJECT_NAME}}:: DESTINATION ${{CMAKE_INSTALL_LIBDIR}}/cmake/${{PROJECT_NAME}})
file(WRITE ${{CMAKE_CURRENT_BINARY_DIR}}/${{PROJECT_NAME}}-config.cmake "include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(\"\${{CMAKE_CURRENT_LIST_DIR}}/${{PROJECT_NAME}}-targets.cmake\")
")
install(FILES ${{CMAKE_CURRENT_BINARY_DIR}}/${{PROJECT_NAME}}-config.cmake DESTINATION ${{CMAKE_INSTALL_LIBDIR}}/cmake/${{PROJECT_NAME}})
# Both packages go by their own place, so that what is installed may be moved.
set(libraries "-lstdc++ -lm -lpthread")
foreach(library ${{CMAKE_DL_LIBS}})
  string(APPEND libraries " -l${{library}}")
endforeach()
{5}file(RELATIVE_PATH headers "${{CMAKE_INSTALL_FULL_LIBDIR}}/pkgconfig" "${{CMAKE_INSTALL_FULL_INCLUDEDIR}}")
file(WRITE ${{CMAKE_CURRENT_BINARY_DIR}}/${{PROJECT_NAME}}.pc "Name: ${{PROJECT_NAME}}
Description: ${{PROJECT_NAME}}, compiled by optc
Version: 1
Cflags: -I\${{pcfiledir}}/${{headers}}
Libs: -L\${{pcfiledir}}/.. -l${{PROJECT_NAME}} ${{libraries}}
")
install(FILES ${{CMAKE_CURRENT_BINARY_DIR}}/${{PROJECT_NAME}}.pc DESTINATION ${{CMAKE_INSTALL_LIBDIR}}/pkgconfig)
)CMAKE",
      f.name, sources, f.weights_file ? " ${PROJECT_NAME}.weights" : "",
      wrap_words(
          fmt::format("{0}: add_subdirectory() this folder, or install it and find_package({0}). Target {0}::{0}.",
                      f.name),
          "# ", "# "),
      find_system_libraries(f.functions),
      needs_system_libraries(f.functions) ? "string(APPEND libraries \"${system_libraries}\")\n" : "",
      f.externs.empty()
          ? ""
          : fmt::format("# Functions of the application (include/{0}.h): sources of theirs that become a part of this "
                        "library;\n# else what links it has them.\nset({0}_EXTERNS \"\" CACHE STRING \"Sources that "
                        "define what {0}.h leaves to the application\")\ntarget_sources(${{PROJECT_NAME}} PRIVATE "
                        "${{{0}_EXTERNS}})\n\n",
                        f.name),
      f.externs.empty() ? "" : fmt::format(" AND {}_EXTERNS", f.name));
  return out;
}

std::string example_main(const AbiFacts &f) {
  std::string text =
      R"EXAMPLE(// Runs @NAME@ once on zeros, empty strings and empty sequences, and prints what it gives.
// Dims that the model leaves open are the arguments, in order of appearance (the least that fits where none is given).
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "@NAME@.hpp"

namespace {

using Sizes = std::vector<std::pair<std::string, int64_t>>;

// The size of an open dim: one for each name.
int64_t size_of(const optc_dim &dim, Sizes &sizes, int argc, char **argv) {
  if (!dim.symbol) return dim.value;
  for (const auto &[name, size] : sizes)
    if (name == dim.symbol) return size;
  const size_t argument = sizes.size() + 1;
  const bool given = argument < static_cast<size_t>(argc);
  sizes.emplace_back(dim.symbol, given ? std::atoll(argv[argument]) : dim.min > 1 ? dim.min : 1);
  return sizes.back().second;
}

void print(const optc_value &value) {
  if (value.object) {
    std::printf(value.object->kind == 2 ? " optional of %zu" : " %zu values", value.object->count);
    for (size_t i = 0; i < value.object->count && i < 4; ++i) print(value.object->items[i]);
    return;
  }
  const optc_tensor &t = value.tensor;
  int64_t count = 1;
  std::printf(" [");
  for (int32_t k = 0; k < t.rank; ++k) {
    std::printf(k ? ", %lld" : "%lld", static_cast<long long>(t.dims[k]));
    count *= t.dims[k];
  }
  std::printf("]");
  for (int64_t k = 0; k < count && k < 8; ++k) {
    if (t.type == 1) std::printf(" %g", static_cast<double>(static_cast<const float *>(t.data)[k]));
    if (t.type == 6) std::printf(" %d", static_cast<int>(static_cast<const int32_t *>(t.data)[k]));
    if (t.type == 7) std::printf(" %lld", static_cast<long long>(static_cast<const int64_t *>(t.data)[k]));
    if (t.type == 8) {
      const optc_string &s = static_cast<const optc_string *>(t.data)[k];
      std::printf(" \"%.*s\"", static_cast<int>(s.size), s.data ? s.data : "");
    }
    if (t.type == 9) std::printf(static_cast<const uint8_t *>(t.data)[k] ? " true" : " false");
    if (t.type == 11) std::printf(" %g", static_cast<const double *>(t.data)[k]);
  }
}

}  // namespace

int main(int argc, char **argv) {
  try {
    @NAME@::Model model;
    const optc_api &api = @NAME@::Model::api();
    std::vector<optc_value> inputs(api.input_count()), outputs(api.output_count());
    std::vector<std::vector<double>> memory;  // doubles: aligned for every element type
    std::vector<optc_object> nothing(inputs.size());
    Sizes sizes;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const optc_value_info &info = *api.input_info(i);
      if (info.kind != 0) {  // a sequence, an optional or a map of no elements
        nothing[i] = {info.kind, 0, nullptr};
        inputs[i].object = &nothing[i];
        continue;
      }
      optc_tensor &t = inputs[i].tensor;
      t.type = info.type;
      t.rank = info.rank;
      size_t count = 1;
      for (int32_t k = 0; k < info.rank; ++k) {
        t.dims[k] = size_of(info.dims[k], sizes, argc, argv);
        if (t.dims[k] < 0) throw @NAME@::Error(OPTC_INVALID_ARGUMENT, "a size is negative");
        count *= static_cast<size_t>(t.dims[k]);
      }
      memory.emplace_back(count * 2 + 1);
      t.data = memory.back().data();
    }
    if (const optc_status status = api.output_dims(model.context(), inputs.data(), outputs.data()))
      throw @NAME@::Error(status, api.last_error(nullptr));
    // What is an input and an output is one memory, here with room for this run.
    for (size_t i = 0; i < api.alias_count(); ++i) {
      const optc_alias &alias = *api.alias_info(i);
      optc_tensor &t = inputs[alias.input].tensor;
      memory.emplace_back(outputs[alias.output].tensor.needed_bytes / sizeof(double) + 1);
      t.data = outputs[alias.output].tensor.data = memory.back().data();
      t.capacity_bytes = outputs[alias.output].tensor.capacity_bytes = outputs[alias.output].tensor.needed_bytes;
    }
    // Some sizes are known when the model has run: then it says by needed_bytes what was too small.
    for (bool again = true; again;) {
      for (optc_value &output : outputs) {
        optc_tensor &t = output.tensor;
        if (output.object || (t.data && t.capacity_bytes >= t.needed_bytes)) continue;
        memory.emplace_back(t.needed_bytes / sizeof(double) + 64);
        t.data = memory.back().data();
        t.capacity_bytes = memory.back().size() * sizeof(double);
      }
      const optc_status status = api.run(model.context(), inputs.data(), outputs.data());
      again = false;
      for (const optc_value &output : outputs)
        again = again || (!output.object && output.tensor.needed_bytes > output.tensor.capacity_bytes);
      again = again && status == OPTC_BUFFER_TOO_SMALL;
      if (!again && status != OPTC_OK) throw @NAME@::Error(status, api.last_error(model.context()));
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      std::printf("%s", api.output_info(i)->name);
      print(outputs[i]);
      std::printf("\n");
    }
  } catch (const @NAME@::Error &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
)EXAMPLE";
  for (size_t at; (at = text.find("@NAME@")) != std::string::npos;) text.replace(at, 6, f.name);
  return text;
}

std::string readme(const Program &p, const AbiFacts &f, const std::string &memory) {
  std::string out =
      fmt::format("# {}\n\n", f.name) +
      wrap_words(fmt::format("Generated by {} from {}. Needs a C++17 compiler and {}.", f.compiler, f.source,
                             needs_system_libraries(f.functions)
                                 ? describe_system_libraries(f.functions) +
                                       "; CMake's OPTC_SYSTEM_LIBRARIES says which of them are left out"
                                 : std::string("nothing else")),
                 "", "") +
      "\n\n";
  for (const std::string &line : signature(p)) out += wrap_words(line, "- ", "  ") + "\n";
  for (const std::string &line : f.sizes) out += wrap_words(line, "- ", "  ") + "\n";
  std::string externs;
  for (const ExternFunction &e : f.externs)
    externs += fmt::format("{}{} ({})", externs.empty() ? "" : ", ", e.name, e.operation);
  if (!externs.empty())
    out +=
        wrap_words(fmt::format("functions of yours, which include/{0}.h declares: {1}. Define them in a program that "
                               "links the static library, or give CMake their sources: "
                               "-D{0}_EXTERNS=/path/functions.cpp",
                               f.name, externs),
                   "- ", "  ") +
        "\n";
  out += "- " + memory + "\n\n";
  out += fmt::format(
      R"(Build:

    cmake -S . -B build && cmake --build build -j        # static library, and the example build/{0}_example
    cmake -S . -B build -DBUILD_SHARED_LIBS=ON           # lib{0}.so, which python/{0}.py loads

{3}

| file | what |
|---|---|
| include/optc.h, NAME.h, NAME.hpp | the interface: C ABI of every bundle, this model in C, in C++ |
| src/model.cpp | the schedule: every kernel call in order (a long one in parts, model_*.cpp) |
| src/kernels_*.inc | the kernels' functions (one for all kernels of one form), compiled for each instruction set by kernels_*.cpp{4} |
{2}| src/runtime/ | the runtime headers that are used |
{1}| examples/main.cpp, python/NAME.py | a program that runs it once; the same from Python with NumPy |
| report.html, graph.html | what the optimizer did, kernels and memory; the graph before and after, drawn |
| manifest.json | signature, kernels with origin and cost, memory plan; found as the weights are |
)",
      f.name,
      f.weights_file ? std::string("| NAME.weights | the weights; found beside the library, in this folder, or where "
                                   "`weights_path` says |\n")
                     : std::string(),
      std::count(f.sources.begin(), f.sources.end(), "cuda.cpp")
          ? "| kernels/*.ptx, src/cuda.cpp | the kernels of GPUs and their launches; the driver is loaded when the "
            "model runs, and without one the CPU takes it |\n"
          : "",
      wrap_words(fmt::format("Use: `add_subdirectory` this folder or install it and `find_package({0})`, link "
                             "`{0}::{0}`, include `{0}.hpp` (C++) or `{0}.h` (C). NAME is {0} below.",
                             f.name),
                 "", ""),
      f.variants ? "; a variant's: SIZES_kernels_*" : "");
  return out;
}

}  // namespace optc
