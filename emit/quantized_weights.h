#pragma once
// What --quantize-weights made of the weights of a model's products, for the manifest, the report and summaries.

#include <cstdint>
#include <string>
#include <vector>

namespace optc {

struct QuantizedWeights {
  struct Weight {
    std::string name;                     // as the model has it
    std::string stored;                   // the type of its codes, "u4"; empty: it stayed as it was
    std::string kept;                     // why it stayed
    int64_t bytes_before = 0, bytes = 0;  // of the matrix; of its codes, scales and zero points
  };
  std::string format;           // "int4:32"; empty: none was asked for
  std::string cost;             // what that changes on sample inputs, or why it was not measured; empty: nothing
  std::vector<Weight> weights;  // in the order of their first product
  int64_t activations = 0;  // products whose other operand is rounded to 8 bits in the same blocks while the model runs
};

// {"format", "cost", "activations", "weights": [{"name", "stored", "bytes_before", "bytes"}], "kept": [{"name", "why",
// "bytes"}]}
std::string weights_json(const QuantizedWeights &weights);

}  // namespace optc
