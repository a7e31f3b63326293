#pragma once
// What 16-bit storage (--precision) costs: the outputs with it against those without, on sample inputs, both on the
// evaluator. Tensors that cost too much stay f32, by name.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "driver/samples.h"
#include "lowering/lower.h"

namespace optc {

// Of an output's range, max |f32|: what 16-bit storage may change on the samples. Half of what `verify` allows.
inline constexpr double kStorageBound = 1e-2;

using KeptTensors = std::vector<std::pair<std::string, std::string>>;  // names of buffers, and why they stay f32

struct StorageCost {
  double difference = 0;   // the largest |difference| of an output over its range; infinity: a NaN or an infinity where
                           // f32 has none
  std::string output;      // where
  int64_t rows = 0;        // along the last axis of float outputs, all samples
  int64_t moved = 0;       // of them, those whose largest element is another one (a classifier's label)
  std::string samples;     // "random inputs, N=1" or the folder
  KeptTensors kept;        // tensors that stay f32 so that `difference` is within the bound, if that is possible
  std::string unmeasured;  // why nothing was measured; empty: it was
};
std::string describe(const StorageCost &cost);  // one line

// The Program in 16-bit storage, the tensors of the list left f32.
using LowerNarrow = std::function<Result<Program>(const KeptTensors &kept, PrecisionReport &report)>;

// Takes two sets of inputs: random ones of a fixed seed, or the one in the folder `samples`. If all of `narrow`
// together changes an output by more than the bound, finds by halving which must stay f32, in
// at most some fifty evaluations. The same Program gives the same answer.
StorageCost measure_storage(const Graph &graph, const std::string &samples, const Program &plain,
                            const LowerNarrow &narrow);

}  // namespace optc
