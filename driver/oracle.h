#pragma once
// The oracle: ONNX Runtime through its Python package, in a process of its own, with its optimizations off (results) or
// on (times). OpenVINO likewise, for times alone.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "evaluate/evaluate.h"
#include "ir/graph/graph.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

enum class Runtime : uint8_t { kOnnxRuntime, kOpenVino };
const char *to_string(Runtime runtime);  // "ONNX Runtime", "OpenVINO"

struct OracleOptions {
  Runtime runtime = Runtime::kOnnxRuntime;
  std::string precision;  // of OpenVINO's arithmetic: f32 where it is empty, bf16 or f16
  bool optimize = false;
  int perturb = -1;  // from 0 on: float weights and inputs changed in their last bits, drawn from this seed
  // Names of values of the main graph, tensors of types that NumPy knows: their values are asked, too (ONNX Runtime).
  std::vector<std::string> values;
  int threads = 1;
  int iterations = 0;  // > 0: also time this many runs, `seconds` at most
  double seconds = 10;
};

struct OracleResult {
  std::vector<RuntimeValue> outputs;       // in the model's order
  std::map<std::string, Constant> values;  // of OracleOptions::values those that the model has
  std::vector<double> milliseconds;        // one a timed run
  std::string version;                     // of ONNX Runtime
};

// The Python that has the runtime's package: $OPTC_PYTHON, else python3. kIo when it has none.
Result<std::string> oracle_python(Diagnostics &diagnostics, Runtime runtime = Runtime::kOnnxRuntime);
// kIo when the runtime cannot load the model, kUsage when it refuses the inputs, each with its own words.
// Runs `model` on inputs that match the main inputs of `graph` (its import). Only tensors of types that NumPy knows go
// in; anything comes out.
Result<OracleResult> run_oracle(const std::string &model, const Graph &graph, const std::vector<RuntimeValue> &inputs,
                                const OracleOptions &options, Diagnostics &diagnostics);

}  // namespace optc
