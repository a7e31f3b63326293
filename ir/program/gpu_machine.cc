#include "ir/program/gpu_machine.h"

namespace optc {

namespace {

// Multiprocessors, clocks, shared memory and memory by NVIDIA's data sheets and programming guide; the second cache by
// measurement on an H200 (bench/gpu), on the others by the same bytes a multiprocessor.
constexpr double kCacheBytes = 4830.0 / 132;
constexpr GpuMachine kMachines[] = {
    {"sm_80", "A100", 80, false, 108, 1.41, 164 << 10, 163 << 10, 108 * kCacheBytes, 1555, false, false},
    {"sm_86", "A40", 86, false, 84, 1.74, 100 << 10, 99 << 10, 84 * kCacheBytes, 696, false, false},
    {"sm_87", "Orin", 87, false, 16, 1.3, 164 << 10, 163 << 10, 16 * kCacheBytes, 204, false, false},
    {"sm_89", "L40S", 89, false, 142, 2.52, 100 << 10, 99 << 10, 142 * kCacheBytes, 864, false, false},
    {"sm_90", "H200", 90, false, 132, 1.755, 228 << 10, 227 << 10, 4830, 4800, false, true},
    {"sm_90a", "H200", 90, true, 132, 1.755, 228 << 10, 227 << 10, 4830, 4800, true, true},
};

}  // namespace

std::span<const GpuMachine> gpu_machines() { return kMachines; }

const GpuMachine *find_gpu_machine(std::string_view target) {
  for (const GpuMachine &machine : kMachines)
    if (machine.target == target) return &machine;
  return nullptr;
}

std::string gpu_target_names() {
  std::string names;
  for (const GpuMachine &machine : kMachines) names += (names.empty() ? "" : ", ") + std::string(machine.target);
  return names;
}

const GpuMachine &machine_of(const std::vector<std::string> &targets) {
  const GpuMachine *found = nullptr;
  for (const GpuMachine &machine : kMachines)
    for (const std::string &target : targets)
      if (machine.target == target) found = &machine;
  return found ? *found : kMachines[std::size(kMachines) - 1];
}

bool all_have_warpgroups(const std::vector<std::string> &targets) {
  bool any = false;
  for (const std::string &target : targets)
    if (const GpuMachine *machine = find_gpu_machine(target)) {
      if (!machine->warpgroups) return false;
      any = true;
    }
  return any;
}

}  // namespace optc
