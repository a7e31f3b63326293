#pragma once
// What it costs to store tensors in fewer bits (--precision, --quantize-weights): the outputs with it against those
// without, on sample inputs, both on the evaluator. Tensors that cost too much stay as they were, by name.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "driver/samples.h"
#include "lowering/lower.h"

namespace optc {

// Of an output's range, max |f32|: what 16-bit storage may change on the samples. Half of what `verify` allows.
inline constexpr double kStorageBound = 1e-2;

// Names of buffers or weights, and why they stay as they were.
using KeptTensors = std::vector<std::pair<std::string, std::string>>;

// What is measured.
struct StorageTrial {
  std::string form = "16 bits";  // for reasons: "in 16 bits it changes an output ..."
  std::string kept_as = "f32";
  double bound = kStorageBound;
  bool alone = false;               // the bound is for each tensor by itself, not for all together
  int evaluations = 56;             // at most, of both samples
  int64_t most_work = 60000000000;  // of all evaluations, as EvaluateOptions::work counts it: a minute or two
};

struct StorageCost {
  double difference = 0;  // the largest |difference| of an output over its range; infinity: a NaN or an infinity where
                          // f32 has none
  std::string output;     // where
  int64_t rows = 0;       // along the last axis of float outputs, all samples
  int64_t moved = 0;      // of them, those whose largest element is another one (a classifier's label)
  std::string samples;    // "random inputs, N=1" or the folder
  double bound = 0;       // for all together; 0: there is none
  std::string kept_as;
  // Tensors that stay as they were: so that `difference` is within the bound, if that is possible; or those that alone
  // are beyond it.
  KeptTensors kept;
  std::string unmeasured;  // why nothing was measured; empty: it was
};
std::string describe(const StorageCost &cost);  // one line

// The Program in that storage, the tensors of the list left as they were; `narrow` gets the names of the others.
using LowerNarrow = std::function<Result<Program>(const KeptTensors &kept, std::vector<std::string> &narrow)>;

// Takes two sets of inputs: random ones of a fixed seed, or the one in the folder `samples`. If all of `narrow`
// together changes an output by more than the bound, finds by halving which must stay as they were. Where the bound is
// for tensors alone, a group within it has none that is beyond it. The same Program gives the same answer.
// What it takes is bounded by trial.most_work: random inputs with which a run takes more than a 16th of it, or more
// memory than there is, give way to smaller ones; where those do, too, nothing is measured; and the search ends when
// the work is done. Inputs of a folder are run once each way, whatever that takes.
StorageCost measure_storage(const Graph &graph, const std::string &samples, const Program &plain,
                            const LowerNarrow &narrow, const StorageTrial &trial = {});

}  // namespace optc
