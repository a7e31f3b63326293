#pragma once
// The kernels of a bundle by their time: what each moves and computes, and with --roofline how near it comes to what
// the machine can do.

#include <string>

#include "cli/common.h"
#include "driver/bundle.h"

namespace optc::cli {

struct KernelTimes {
  std::string text;  // tables, without a last newline
  std::string json;  // an object: kernels; with the roofline also strategies and roofline
};
// Profiles some runs of `bundle`, of what `prepared` was made for, on these inputs. roofline: for the CPU alone.
Result<KernelTimes> time_kernels(Bundle &bundle, const Prepared &prepared, const std::vector<RuntimeValue> &inputs,
                                 int iterations, int threads, bool roofline, Listener &listener,
                                 Diagnostics &diagnostics);

}  // namespace optc::cli
