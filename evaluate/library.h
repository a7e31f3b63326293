#pragma once
// Calls of library operators: the functions of runtime/cpu/lib_*.h on values of a running Program.

#include <string>
#include <string_view>
#include <vector>

#include "evaluate/evaluate.h"
#include "evaluate/storage.h"
#include "ir/program/program.h"

struct OptcLibCall;

namespace optc::evaluate_detail {

using LibraryFunction = int (*)(OptcLibCall *);
// Null: there is none of that name. ImageDecoder's stands in a module beside optc, with the libraries that it needs;
// when that cannot be loaded the result is null and `error` says why.
LibraryFunction find_library_function(std::string_view name, std::string &error);

// What a buffer holds while the Program runs: a tensor, or an object.
struct Slot {
  Tensor tensor;
  RuntimeValue object;
  bool is_object = false;
  bool valid() const { return is_object || tensor.valid(); }
};

struct LibraryOutput {
  bool wanted = false;
  bool is_object = false;
  Type type;
  Tensor tensor;  // valid: memory of the known size, dense and row-major; else the function finds the size
};

constexpr int kLibraryMemory = 4;  // OPTC_OUT_OF_MEMORY of runtime/optc.h

// Runs a function. On success `outputs` hold the results (tensor outputs with their dims) and `sizes` what it found.
// On failure `error` says why; the result is the optc_status.
int call_library(LibraryFunction function, const LibraryCall &call, const std::vector<const Slot *> &inputs,
                 std::vector<LibraryOutput> &outputs, std::vector<RuntimeValue> &objects, std::vector<int64_t> &sizes,
                 std::string &error);

}  // namespace optc::evaluate_detail
