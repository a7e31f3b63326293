#pragma once
// What a launch of a kernel on a GPU is given, and whether a kernel can be one. Lowering asks before it chooses how a
// kernel runs, emit/ptx when it makes the launches.

#include <string>
#include <vector>

#include "ir/program/program.h"

namespace optc {

inline constexpr size_t kMostParameterBytes = 4096;  // of one launch, in every driver and on every card

// The symbols whose values a kernel's launches get: those of the model's inputs, and sizes found at run time.
std::vector<const DimSymbol *> launch_symbols(const Program &program, const Kernel &kernel);
// The roots of what a kernel touches: its launches get a pointer to each.
std::vector<BufferId> launch_roots(const Program &program, const Kernel &kernel);
// The parameters of a launch that does the work of `kernels` kernels like this one: pointers, symbols, workspace,
// the word of bad indices.
size_t parameter_bytes(const Program &program, const Kernel &kernel, size_t kernels = 1);

// The first reason why a kernel cannot run on a GPU: what it is, a type or an operation that GPU code lacks, sizes
// beyond 32-bit offsets, more parameters than a launch holds. "" when nothing speaks against it.
std::string reason_against_gpu(const Program &program, const Kernel &kernel);

}  // namespace optc
