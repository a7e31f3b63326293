#pragma once
// Functions that the application supplies (optc.Extern of ops/extern.h): what a bundle declares and calls.

#include <string>
#include <string_view>
#include <vector>

#include "ir/program/program.h"

namespace optc {

struct ExternFunction {
  std::string operation;   // "my.ops::Foo"
  std::string name;        // of the C function, which begins with the bundle's
  std::string parameters;  // of its declaration; says which calls go to it
};

bool is_extern(const LibraryCall &call);
std::string extern_operation(const LibraryCall &call);
// The parameters that a call needs: the node's name, data and dims of each operand that is present, the attributes.
std::string extern_parameters(const Program &program, const LibraryCall &call);
// One for each operator, and for each signature of it; by operator and signature. The same for all Programs of a model.
std::vector<ExternFunction> extern_functions(const Program &program, std::string_view bundle);
// Its declaration in C, of several lines where it is long.
std::string declare_extern(const ExternFunction &function);

}  // namespace optc
