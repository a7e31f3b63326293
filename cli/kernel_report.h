#pragma once
// What watching a bundle's kernels found, as text and as JSON (optc verify --per-kernel, --check-numerics).

#include <string>

#include "driver/kernel_watch.h"

namespace optc::cli {

std::string kernel_text(const WatchReport &report, bool compared, bool numerics, bool quiet);
std::string kernel_json(const WatchReport &report, bool compared, bool numerics);  // an object
// What to say when the bundle crashes after `known`.
std::string crash_text(const KernelFinding &known);
std::string kernel_summary(const WatchReport &report);                             // one sentence

}  // namespace optc::cli
