// attention_plan.h: how an attention is divided into tasks. The same for every instruction set (C++17).
#pragma once
#include <stdint.h>

#include "runtime/cpu/gemm_plan.h"

// What a query gives whose probabilities are NaN (ir/program/schedule.h, MaskedRows).
enum OptcMaskedRows { OPTC_ROWS_NAN, OPTC_ROWS_ZERO_PROBABILITIES, OPTC_ROWS_ZERO_RESULT };

struct OptcAttention {
  int64_t batch, heads, kv_heads;  // query head h reads key/value head h / (heads / kv_heads)
  int64_t queries, keys, d, dv;    // d: of queries and keys, dv: of values
  float scale;
  float softcap;  // 0: none; else score = softcap * tanh(score / softcap), before the mask
  bool causal;    // key j is visible to query i when j <= i + causal_offset
  int64_t causal_offset;
  OptcMaskedRows masked_rows = OPTC_ROWS_NAN;
};

constexpr int64_t kAttentionQueries = 64;    // of a task at most
constexpr int64_t kAttentionFewQueries = 4;  // up to here a task takes all of them, one by one
constexpr int64_t kAttentionKeys = 1024;     // of a block; more than one block: online softmax

// Query blocks of one head: as even as vectors of 16 queries allow.
constexpr int64_t optc_attention_blocks(const OptcAttention &a) {
  return a.queries <= kAttentionFewQueries ? (a.queries > 0 ? 1 : 0)
                                           : optc_ceil_div(optc_ceil_div(a.queries, 16), kAttentionQueries / 16);
}
constexpr int64_t optc_attention_tasks(const OptcAttention &a) { return a.batch * a.heads * optc_attention_blocks(a); }
// Floats of scratch of one running task.
constexpr int64_t optc_attention_scratch_floats(const OptcAttention &a) {
  const int64_t block = a.keys < kAttentionKeys ? a.keys : kAttentionKeys;
  return (a.queries <= kAttentionFewQueries ? optc_round_up(a.keys, 16) : kAttentionQueries * (a.d + a.dv + block)) +
         64;
}
