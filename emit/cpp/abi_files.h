#pragma once
// The files of a bundle that its users see: headers, build files, examples, Python.

#include <set>
#include <string>
#include <vector>

#include "emit/cpp/extern_functions.h"
#include "ir/program/program.h"

namespace optc {

struct AbiFacts {
  std::string name;                  // C identifier
  std::string compiler;              // "optc 0.1.0"
  std::string source;                // file name of the model and its hash
  bool weights_file = false;         // NAME.weights exists
  std::vector<std::string> sources;  // "model.cpp", "kernels_0.cpp", ...
  std::vector<std::string> sizes;    // lines on the sizes that the bundle takes, and its variants
  bool variants = false;
  std::set<std::string> functions;  // the library operators that it calls
  std::vector<ExternFunction> externs;
};

// The lines of a signature: "input image: float32 [N, 3, 224, 224]".
std::vector<std::string> signature(const Program &program);
// One on the range of each open dim that has one: "dim N: 1 to 8".
std::vector<std::string> size_lines(const Program &program);

std::string c_header(const Program &program, const AbiFacts &facts);
std::string cpp_header(const Program &program, const AbiFacts &facts);
std::string cmake_lists(const AbiFacts &facts);
std::string example_main(const AbiFacts &facts);
std::string python_module(const Program &program, const AbiFacts &facts);
std::string readme(const Program &program, const AbiFacts &facts, const std::string &memory);

}  // namespace optc
