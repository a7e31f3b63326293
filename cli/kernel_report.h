#pragma once
// What watching a bundle's kernels found, as text and as JSON (optc verify --per-kernel, --check-numerics).

#include <string>

#include "driver/kernel_watch.h"

namespace optc::cli {

std::string kernel_text(const WatchReport &report, bool compared, bool numerics, bool quiet);
std::string kernel_json(const WatchReport &report, bool compared, bool numerics);  // an object
// Of a run that ended in an error; empty where it did so in no kernel.
std::string ended_text(const WatchReport &report);
// What to say when the bundle crashes after `known`; all_ran: behind a run to its end in which each kernel agreed.
std::string crash_text(const KernelFinding &known, bool all_ran);
std::string kernel_summary(const WatchReport &report);  // one sentence

}  // namespace optc::cli
