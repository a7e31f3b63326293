#pragma once
// Where the kernels of a Program run when some have a GPU form and some do not, and which buffers cross between the two
// memories. Made from the placement that emit/ptx decided; read by emit/ptx (tables for the GPU) and emit/cpp (the
// schedule on the host).

#include <string>
#include <vector>

#include "ir/program/program.h"

namespace optc {

struct DeviceCopy {
  BufferId buffer;  // a root: no alias
  bool to_device = false;
};

struct DeviceSchedule {
  // By position in Program::order: the number of the GPU segment (consecutive GPU kernels) or -1 for the CPU.
  std::vector<int> segment;
  std::vector<std::string> reason;  // why a kernel is on the CPU; "" on the GPU
  int segments = 0;
  // What is copied before the kernel at that position runs; the last entry: after all of them.
  std::vector<std::vector<DeviceCopy>> copies;
  // Sizes found while the model runs that GPU kernels need, in order of first use.
  std::vector<const DimSymbol *> data_symbols;
  // Of a schedule that is watched (optc verify --per-kernel): each GPU kernel is a segment of its own, and what lies on
  // the device and is still needed is copied to the host after it. By position in Program::order; else empty.
  std::vector<std::vector<DeviceCopy>> shown;

  bool mixed() const;  // both kinds of kernels are there
  bool watched() const { return !shown.empty(); }
  bool by_host() const { return mixed() || watched(); }  // the host launches the segments one by one
  size_t copy_count() const;
};

// `on_gpu` is parallel to Program::order. Inputs and outputs of the model lie on the host, constants in both memories.
DeviceSchedule plan_devices(const Program &program, const std::vector<bool> &on_gpu,
                            const std::vector<std::string> &reasons, bool watched = false);

// The sizes of kind kData that a loop nest depends on, in order of first appearance.
std::vector<const DimSymbol *> data_symbols(const Program &program, const Kernel &kernel);
// Whether a loop nest reads or writes at an index that the model computes (SymbolKind::kScalar): it may leave its
// dimension, and the kernel then says so.
bool computes_indices(const Program &program, const Kernel &kernel);

// Whether a size is found while the model runs.
bool found_at_run_time(Dim d);

}  // namespace optc
