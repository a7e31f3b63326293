#pragma once
// What a GPU target is to the choice of kernels: one row a target, as data. Lowering costs candidates by it, the
// command line and emit/ptx know by it which targets there are.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace optc {

struct GpuMachine {
  std::string_view target;  // "sm_90a"
  std::string_view card;    // whose numbers these are
  int capability = 80;      // 10 * major + minor
  bool specific = false;    // code for that capability alone (the trailing a)
  int multiprocessors = 108;
  double clock_ghz = 1.41;         // at work
  int64_t shared_bytes = 0;        // of a multiprocessor
  int64_t block_shared_bytes = 0;  // of one block at most
  // Bytes a cycle that all multiprocessors together fetch through the second cache, and gigabytes a second of memory.
  double cache_bytes_per_cycle = 0;
  double memory_gb = 0;
  bool warpgroups = false;  // products by wgmma, tiles by TMA
  bool chained = false;     // kernels may start before the one in front of them ends (griddepcontrol)
};

// In ascending order of capability: the last of those asked for is what choices are made for where one list of launches
// serves several targets.
std::span<const GpuMachine> gpu_machines();
const GpuMachine *find_gpu_machine(std::string_view target);  // null: not known
std::string gpu_target_names();                               // "sm_80, sm_86, ..."
// The row that choices are made for: the last known one among `targets`; of none, the last row.
const GpuMachine &machine_of(const std::vector<std::string> &targets);
// Whether every GPU among `targets` has GpuMachine::warpgroups, and there is one: one list of launches serves them all.
bool all_have_warpgroups(const std::vector<std::string> &targets);

}  // namespace optc
