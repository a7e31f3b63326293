#pragma once
// A launch before it is code: its shape, and a function that writes its body.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "emit/ptx/gemm.h"
#include "emit/ptx/scalars.h"
#include "ir/program/contraction_view.h"
#include "ir/program/tensor_core.h"

namespace optc::ptx {

struct Draft {
  std::string form;
  Dim grid[3] = {Dim(1), Dim(1), Dim(1)};
  unsigned threads = 128;
  unsigned min_blocks = 1;  // blocks a multiprocessor should hold: bounds the registers a thread
  // For blocks that share work: this much of the workspace (Builder's last parameter), and its counters before it.
  int64_t workspace_bytes = 0;
  bool waits = false;  // the body calls Builder::wait_for_kernels_before itself, having fetched what no kernel writes
  bool early_next = false;  // Builder::let_next_start_early
  // The tensor maps that a kernel of this code is given, behind its buffers.
  std::function<std::vector<PtxTensorMap>(const Kernel &)> maps;
  std::function<void(KernelContext &)> body;
};

// Any loop nest: pointwise, rows and reductions, index kernels, scatters. `why` is set when it has no GPU form.
std::vector<Draft> draft_loops(const Program &program, const Kernel &kernel, std::string *why);
// A product or a convolution on tensor cores, as its schedule says. copies: how many such kernels one launch runs.
// rows: the kernel that writes the first factor, or null; each block then runs it and keeps what it writes in shared
// memory (launches.h). paired: the product whose result this one's epilogue reads, or null; each block then sums both
// (paired.h). nullopt: the nest has not the form of its schedule, a fault of optc.
std::optional<Draft> draft_tensor_core(const Program &program, const Kernel &kernel,
                                       const GemmTensorCoreSchedule &schedule, int copies = 1,
                                       const Kernel *rows = nullptr, const Kernel *paired = nullptr);
// The same on warpgroups (sm_90a).
std::optional<Draft> draft_warpgroup(const Program &program, const Kernel &kernel,
                                     const GemmWarpgroupSchedule &schedule, int copies = 1);
std::optional<Draft> draft_warpgroup(const Program &program, const Kernel &kernel,
                                     const ConvolutionWarpgroupSchedule &schedule, int copies = 1);
// A depthwise convolution as its schedule says.
std::optional<Draft> draft_depthwise(const Program &program, const Kernel &kernel,
                                     const ConvolutionStripsSchedule &schedule);
// The steps of a recurrent layer as its schedule says.
std::optional<Draft> draft_recurrent(const Program &program, const Kernel &kernel,
                                     const RecurrentStepsSchedule &schedule);
// Attention as one kernel; empty when the nest does not have that form.
std::vector<Draft> draft_attention(const Program &program, const Kernel &kernel);

// Elements of an operand of 16 bits as they lie in shared memory: one, or the eight from the counter of `along` on as
// <4 x i32>. `scope` has the counters; `inside` says where they are in range: elsewhere the result is 0.
Value narrow_elements(Scope scope, const ProductOperand &operand, TensorCoreType type, const DimSymbol *along,
                      int group, Value inside);

// What the stages behind the summing one (product_sum, ir/program/tensor_core.h) store of finished sums, one a lane of
// `scope`.
void store_sums(Scope scope, const LoopNest &nest, const Values &sums);
// What the first of these stages would store of one finished sum, as it is read again (a register of its type).
Value stored_sum(Scope scope, const LoopNest &nest, Value sum);

// Sets loop counters from a flat index, the last loop fastest; returns the value of `wanted` (null when not among
// them).
Value delinearize(Scope &scope, const std::vector<Loop> &loops, Value flat, const DimSymbol *wanted = nullptr);

}  // namespace optc::ptx
