#pragma once
// Other programs: the C++ compiler of the system, CMake, Python with ONNX Runtime.

#include <string>
#include <vector>

#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

struct ProcessResult {
  int status = 0;      // exit status, or 128 + signal
  std::string output;  // stdout and stderr, in the order in which they were written
};

// Runs arguments[0], looked up on PATH, without a shell, and waits for it. kIo when it cannot be started.
Result<ProcessResult> run_process(const std::vector<std::string> &arguments, Diagnostics &diagnostics);
bool on_path(const std::string &program);
// The last `count` lines of a text, for messages.
std::string last_lines(const std::string &text, int count);

}  // namespace optc
