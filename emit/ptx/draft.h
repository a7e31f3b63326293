#pragma once
// A launch before it is code: its shape, and a function that writes its body.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "emit/ptx/gemm.h"
#include "emit/ptx/scalars.h"

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
  std::function<void(KernelContext &)> body;
};

enum class F32Products : uint8_t { kThreeTF32, kTF32, kIEEE };

// Any loop nest: pointwise, rows and reductions, index kernels, scatters. `why` is set when it has no GPU form.
std::vector<Draft> draft_loops(const Program &program, const Kernel &kernel, std::string *why);
// Matrix products and convolutions on tensor cores; empty when the nest does not have that form.
// copies: how many such kernels one launch runs.
std::vector<Draft> draft_contraction(const Program &program, const Kernel &kernel, F32Products f32,
                                     const PtxOptions &options, int copies = 1);
// Attention as one kernel; empty when the nest does not have that form.
std::vector<Draft> draft_attention(const Program &program, const Kernel &kernel);

// An operand of a product as a load under conditions: c1 && c2 ? load : 0, with a cast from a 16-bit type taken off.
struct Operand {
  ScalarId whole;                    // the expression, in f32
  ScalarId load;                     // invalid: not of this form
  std::vector<ScalarId> conditions;  // all must hold
  ElementType stored = ElementType::kUndefined;
  // A load of f32 that is rounded to `stored`, a 16-bit type, as it is read; `load` is invalid then.
  ScalarId wide;
};
Operand peel(const Program &program, ScalarId id);
// The type whose products are exact for the operand: what it is stored or rounded as.
ElementType precision(const Program &program, const Operand &operand);
// How many elements from `loop`'s counter on lie together, aligned to their size: 16, 8 or 4 bytes' worth, 1 when only
// the stride is 1, 0 when it is not.
int together(const Program &program, const Operand &operand, const Loop &loop, unsigned size);

// Whether the f32 elements of `operand.wide` from `loop`'s counter on can be read eight at a time.
bool wide_together(const Program &program, const Operand &operand, const Loop &loop);
// Elements of an operand of 16 bits as they lie in shared memory: one, or the eight from the counter of `along` on as
// <4 x i32>. `scope` has the counters; `inside` says where they are in range: elsewhere the result is 0.
Value narrow_elements(Scope scope, const Operand &operand, GemmType type, const DimSymbol *along, int group,
                      Value inside);

// Sets loop counters from a flat index, the last loop fastest; returns the value of `wanted` (null when not among
// them).
Value delinearize(Scope &scope, const std::vector<Loop> &loops, Value flat, const DimSymbol *wanted = nullptr);
Dim product(const std::vector<Loop> &loops);

}  // namespace optc::ptx
