#pragma once
// A model becomes a smaller one that a check still says the same of: the input for a report of a fault. Parts of a
// graph are tried by delta debugging (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input",
// 2002), at the level of messages: operators need not be known, and nodes stay as they are.

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

struct ReduceOptions {
  std::string input, output;
  int64_t max_runs = 500;  // of the check; then the smallest part so far is the result
  bool force = false;      // the output may replace files that the model is read from
};

struct ReduceFacts {
  int64_t status = 0;                           // what the check said of the model
  int64_t nodes = 0, nodes_left = 0;            // of the main graph
  int64_t body_nodes = 0, body_nodes_left = 0;  // of bodies of If, Loop and Scan, and of functions
  int64_t inputs = 0, outputs = 0;              // that are left
  int64_t new_inputs = 0;                       // of those: values that a removed node made
  int64_t tensors = 0, tensors_left = 0;        // initializers
  int64_t runs = 0;                             // of the check
  int64_t refused = 0;                          // parts that were no valid model, so that the check did not run
  bool stopped = false;                         // by max_runs
  bool was_valid = true;                        // whether ONNX's checker takes the model; then it takes the result, too
  std::vector<std::pair<std::string, int64_t>> removed, left;  // operators, the most frequent first
  std::vector<std::pair<std::string, int64_t>> files;          // path, bytes; the model first
};

// Says what the check says of a model file, as a number; a failure ends the reduction.
using ReduceCheck = std::function<Result<int64_t>(const std::string &path)>;
// Told of each smaller part that is kept: nodes left, runs.
using ReduceProgress = std::function<void(int64_t nodes, int64_t runs)>;

// The check is asked of the whole model first, twice, and a part is kept where it says the same; all are written in
// ONNX's binary form. What is
// written is 1-minimal unless it was stopped: without any one node it is another model to the check, or none. Values
// that a removed node made become inputs; values that nothing reads any more become outputs. Then a body (of an If, a
// Loop, a Scan) takes the place of the model where the check says the same of it, and bodies that stay are reduced
// themselves: what a node removed there made is an input of the main graph. The same input and check give the same
// bytes. Errors: kUsage, kIo, kInvalid (the model); nothing is written then.
Status reduce_model(const ReduceOptions &options, const ReduceCheck &check, const ReduceProgress &progress,
                    ReduceFacts &facts, Diagnostics &diagnostics);

}  // namespace optc
