#pragma once
// What the attention operators of com.microsoft share: everything ends in ai.onnx's Attention.

#include "ops/body.h"

namespace optc {

// One call of Attention. q, k and v are all [batch, length, heads * width] or all [batch, heads, length, width].
struct AttentionCall {
  ValueId q, k, v;
  int64_t heads = 0, key_heads = 0;
  ValueId mask;                  // added to the scores, or bool; broadcasts to [batch, heads, length, total]
  ValueId past_key, past_value;  // [batch, key_heads, past, width]; both or none
  bool causal = false;           // query i sees the keys up to past + i
  float scale = 0;               // 0: 1 / sqrt(width)
  float softcap = 0;             // 0: none
};
struct AttentionResult {
  ValueId y;                           // [batch, length, heads * width]
  ValueId present_key, present_value;  // invalid unless they were asked for
};
AttentionResult attention(Body &body, const AttentionCall &call, bool wants_present);

// [batch, length, heads * width] as [batch, heads, length, width], and back.
ValueId split_heads(Body &body, ValueId v, int64_t heads);
ValueId join_heads(Body &body, ValueId v);

}  // namespace optc
