#pragma once
// What makes a fusion right: every fusion asks here whether it may, and decides itself whether it pays.
//
//   stable values  what a kernel reads has the same values where it is to run: no write in between, by anybody, the
//                  kernel that it joins included                                                  reads_same_values_at
//   order          nobody in between reads or writes what it writes                                         may_run_at
//   one writer     the value that disappears is the work of one kernel, which stores every element of it, always: a
//                  tensor that several kernels write part by part is no value of any of them             defines_whole
//   rounding       a stored value has its buffer's type (invariant P4), so that an expression in place of a load is
//                  rounded as memory would have rounded it
//
// The law, tested by tests/fusion_law_test.cc: a Program computes the same before and after.

#include "ir/program/program.h"
#include "ir/program/uses.h"

namespace optc {

// Whether all that `kernel` reads has at `place`, a later kernel of its sequence, the values that it has now.
bool reads_same_values_at(const Uses &uses, KernelId kernel, KernelId place);
// Whether `kernel` may run where `place` runs, and be one kernel with it: `place` alone may read what it writes.
bool may_run_at(const Uses &uses, KernelId kernel, KernelId place);
// Whether `store`, an output of `stage` of `kernel`, is all that is ever written into its buffer and the views of it,
// and writes each of its elements. Only a temporary that nobody outside of the kernels sees is asked for.
bool defines_whole(const Program &program, const Uses &uses, KernelId kernel, const Stage &stage,
                   const StageOutput &store);

// Whether the storage order of `buffer` is lowering's own matter: a temporary without views that only loop nests touch.
// Library calls, control flow and callers see row-major tensors.
bool may_be_reordered(const Program &program, const Uses &uses, BufferId buffer);

}  // namespace optc
