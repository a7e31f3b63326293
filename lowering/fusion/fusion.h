#pragma once
// Fusion by substitution of index expressions.
//
// inline_producers: a kernel that only maps (each element of its result is an expression of loads) disappears into its
// readers: where a reader loads result[index], the expression stands instead, its loop counters replaced by `index`.
// Views, casts, broadcasts and pointwise chains then cost no memory traffic. It never fuses where the model says that
// it loses:
//   * into a contraction's operands only views whose address stays affine (templates walk operands by strides);
//   * into a contraction, nothing that makes its template impossible (lowering/schedule);
//   * arithmetic is not computed twice: one reader, one stage of it, and no more evaluations there than elements
//     (except a few cheap operations that are broadcast);
//   * nothing that gathers goes into the inner loop of a reduction.
// fuse_epilogues: a map whose only link is the result of a contraction, reduction or row kernel runs on the accumulator
// instead: bias, activation, residual. The fused kernel takes the place of the reader, where all its other inputs
// exist; a template that could run the contraction still can. A map that stores its result in parts (a rotation's
// halves) takes its only reader in, too, an append to a cache say.
// Whether a fusion may be made is asked of legality.h.

#include "ir/program/program.h"
#include "ir/program/uses.h"
#include "lowering/lower.h"

namespace optc {

void tidy(Program &program, Steps &steps);  // loops of extent 1, views
// Products and convolutions of what is dequantized of 8-bit integers become sums of integers, where a template of the
// target has them; what is dequantized of constants otherwise becomes a constant.
void sum_integers(Program &program, const LoweringOptions &options, Steps &steps);
// Products read quantized weights as they are, where a template of the target has them (behind the other fusions:
// weights are seen through their views): whether one does now. What is left then of dequantized constants becomes
// constants.
bool keep_blocks(Program &program, const LoweringOptions &options, Steps &steps);
void fold_weights(Program &program, const LoweringOptions &options, Steps &steps);
// Recurrent layers whose steps have a form on a GPU: the part of the inputs becomes a product, the steps the library
// call "rnn_steps" (ir/program/recurrent.h).
void split_recurrent(Program &program, Steps &steps);
// Both keep `uses` true. They give the number of producers that disappeared and of maps merged.
int64_t inline_producers(Program &program, Uses &uses, const LoweringOptions &options, Steps &steps);
int64_t fuse_epilogues(Program &program, Uses &uses, const LoweringOptions &options, Steps &steps);
void split_loops(Program &program, Steps &steps);     // of a CPU's kernels, where an index divides their counters
void recompute_rows(Program &program, Steps &steps);  // of a GPU's, whose scratch its shared memory cannot hold
void remove_dead_kernels(Program &program);           // whose results nobody reads

// --- shared by the two
// --------------------------------------------------------------------------------------------------------

// A kernel whose iterations each store expressions of loads: one stage, no locals, no combination, no condition, not
// sequential.
bool is_map(const Kernel &kernel);
// The scalar result of a map for output `o` at `index` of its buffer; nullopt when the store's index cannot be
// inverted.
std::optional<DimSubstitution> invert_store(const std::vector<Loop> &loops, const std::vector<Dim> &store_index,
                                            const std::vector<Dim> &index, const Shape &shape);
// Calls `f` for the main sequence of kernels and for each body of control flow; f may drop kernels from the order it is
// given.
void for_each_sequence(Program &program, const std::function<void(std::vector<KernelId> &)> &f);
std::vector<Loop> all_loops(const LoopNest &nest, const Stage &stage);
// Every load of a stage: of its values, starts and conditions, and behind the indices of its stores.
std::vector<ScalarId> loads_of(const Program &program, const Stage &stage);
inline bool row_major(const Buffer &buffer) { return buffer.order.empty() && buffer.padded.empty(); }
bool has_quotient(Dim d);  // a division or remainder survives in it
// Replaces every scalar and index of a nest (contraction remark included).
void substitute_nest(Program &program, LoopNest &nest, const ScalarSubstitution &substitution);

}  // namespace optc
