#pragma once
// What the attention template needs to know of a nest.

#include <optional>
#include <vector>

#include "emit/ptx/draft.h"

namespace optc::ptx {

struct AttentionPlan {
  TensorCoreType type = TensorCoreType::kThreeTF32;
  std::vector<Loop> batch, rows;
  Loop keys, inner, width;  // j of the products, d, e of the values
  ProductOperand query, key, value;
  unsigned query_bytes = 0, key_bytes = 0, value_bytes = 0;  // fetched at once
  int padded_inner = 0, padded_width = 0, tile = 0;
  int row_warps = 4, key_warps = 1;  // 16 rows each; warps that share rows
  int block_rows() const { return 16 * row_warps; }
  LocalId product, top, weights, sum, result;
  bool zero_probabilities = false;  // the weights of a row whose sum is NaN count as 0
  const StageOutput *score = nullptr;
  const DimSymbol *score_key = nullptr, *value_key = nullptr, *result_width = nullptr;
  const Stage *last = nullptr;
};

// Reads a nest of the seven stages of attention (ops/fused_attention.cc); nullopt when it has another form.
std::optional<AttentionPlan> attention_plan(const Program &program, const LoopNest &nest);

}  // namespace optc::ptx
