#pragma once
// Two products of few rows that read the same ones, where the epilogue of the second reads the result of the first and
// nothing else does (the gate and what it gates in a decoder's feed-forward layer): one launch whose blocks sum both at
// the same columns. What the first would have stored, rounded to its type, stays in registers.

#include <optional>
#include <vector>

#include "ir/program/program.h"

namespace optc::ptx {

// Whether `second` can sum `first`, too: the root that `first` leaves, and that nobody stores then (`second` may store
// its own result there). Products on tensor cores of equal sizes, operands and fetches; the result is a temporary that
// only the epilogue of `second` reads, at the place that it stores. That nothing between the two writes what `first`
// reads is not asked here.
std::optional<BufferId> pair_result(const Program &program, const Kernel &first, const Kernel &second);
// The tile of both: that of two such products in one launch, or of one; nullopt: it cannot be shared by two.
std::optional<TensorCoreTile> pair_tile(const GemmTensorCoreSchedule &second);
// The loads of that result in the epilogue of `second`.
std::vector<ScalarId> loads_of_pair(const Program &program, const Kernel &second, const Kernel &first);

}  // namespace optc::ptx
