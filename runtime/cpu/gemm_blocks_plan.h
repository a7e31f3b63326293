// gemm_blocks_plan.h: how weights of 4 and 8 bits, quantized in blocks along the sum, are laid out for gemm_blocks.h.
// The same for every instruction set and for the compiler, which packs constants with it (C++17; usable from C++20).
//
// B[k][n] = (q[k][n] - zero[k / block][n]) * scale[k / block][n]. The panels of columns are those of gemm_plan.h; each
// has all its k, one panel after another:
//   codes   [groups][columns] words of 32 bits: a word has the 8 (of 4 bits) or 4 (of 8 bits) neighbouring k of its
//           column, the lowest first, each as a two's complement number: q less `center`
//   scales  [blocks][columns] float
//   zeros   [blocks][columns] int8_t, less `center`, or float as they are; none: they are all `center`
// A group lies in one block: blocks are whole groups, or there is one. Columns beyond N, and k beyond K, have zeros.
//
// For products by activations of 8 bits (gemm_blocks_i8.h) a word's numbers are unsigned, q less `center` plus 2^bits /
// 2, and those of 4 bits lie so that the low halves of its bytes are its first four k, the high halves its last four.
#pragma once
#include "runtime/cpu/gemm_plan.h"

// Numbers of a word.
constexpr int optc_block_codes(int bits) { return 32 / bits; }
constexpr int64_t optc_block_groups(int64_t k, int bits) { return optc_ceil_div(k, optc_block_codes(bits)); }
constexpr int64_t optc_block_count(int64_t k, int64_t block) { return optc_ceil_div(k, block); }

// Words of codes; elements of scales (and of zeros).
constexpr int64_t optc_block_words(int64_t n, int64_t k, int bits) {
  return optc_panel_columns(optc_gemm_panels(n)) * optc_block_groups(k, bits);
}
constexpr int64_t optc_block_scales(int64_t n, int64_t k, int64_t block) {
  return optc_panel_columns(optc_gemm_panels(n)) * optc_block_count(k, block);
}

// Products of so few rows decode weights in registers, each once; of more, a panel at a time is decoded into the cache.
constexpr int64_t kOptcBlockFewRows = 4;

// Floats of scratch of a task: its rows of A, and where there are many rows (`few`: there never are) a panel of B and,
// unless they have a place, the partial sums.
constexpr int64_t optc_gemm_blocks_floats(int64_t rows, int64_t columns, int64_t k, bool few, bool partial) {
  const int64_t own = (rows < kOptcBlockFewRows ? rows : kOptcBlockFewRows) * optc_round_up(k, 16);
  if (few) return own;
  const int64_t many = optc_gemm_stored_floats(rows, columns, k, partial);
  return many > own ? many : own;
}

// Bytes of scratch of a task of gemm_blocks_i8.h: its rows of A, of each block their scale and the sum of the bytes.
constexpr int64_t optc_gemm_blocks_i8_row(int64_t k) { return optc_round_up(k, 64); }
constexpr int64_t optc_gemm_blocks_i8_bytes(int64_t rows, int64_t k, int64_t block) {
  return rows * (optc_gemm_blocks_i8_row(k) + 8 * optc_block_count(k, block));
}
// Longest block whose sum int32 holds: products are at most 128 * 383 (a zero point of -128 less the center among
// weights of 8 bits).
constexpr int64_t kOptcBlockI8Longest = 32768;

// Packs codes, `code(k, n)` giving q less center, and what is one a block, `of_block(block, n)`.
template <class Code>
static inline void optc_pack_block_codes(uint32_t *out, int64_t k, int64_t n, int bits, const Code &code) {
  const OptcPanels panels = optc_gemm_panels(n);
  const int64_t each = optc_block_codes(bits), groups = optc_block_groups(k, bits);
  const uint32_t mask = (1u << bits) - 1;
  for (int64_t p = 0; p < optc_panel_count(panels); ++p)
    for (int64_t g = 0; g < groups; ++g)
      for (int64_t j = optc_panel_begin(panels, p); j < optc_panel_begin(panels, p + 1); ++j) {
        uint32_t word = 0;
        for (int64_t u = 0; u < each && j < n; ++u)
          if (g * each + u < k) word |= ((uint32_t)code(g * each + u, j) & mask) << (u * bits);
        *out++ = word;
      }
}
// The same for gemm_blocks_i8.h.
template <class Code>
static inline void optc_pack_block_bytes(uint32_t *out, int64_t k, int64_t n, int bits, const Code &code) {
  const OptcPanels panels = optc_gemm_panels(n);
  const int64_t each = optc_block_codes(bits), groups = optc_block_groups(k, bits);
  const int32_t half = 1 << (bits - 1);
  for (int64_t p = 0; p < optc_panel_count(panels); ++p)
    for (int64_t g = 0; g < groups; ++g)
      for (int64_t j = optc_panel_begin(panels, p); j < optc_panel_begin(panels, p + 1); ++j) {
        uint32_t word = 0;
        for (int64_t u = 0; u < each && j < n; ++u)
          if (g * each + u < k) word |= (uint32_t)(code(g * each + u, j) + half) << (8 * (u % 4) + 4 * (u / 4));
        *out++ = word;
      }
}
template <class T, class Value>
static inline void optc_pack_of_blocks(T *out, int64_t k, int64_t n, int64_t block, const Value &of_block) {
  const OptcPanels panels = optc_gemm_panels(n);
  for (int64_t p = 0; p < optc_panel_count(panels); ++p)
    for (int64_t b = 0; b < optc_block_count(k, block); ++b)
      for (int64_t j = optc_panel_begin(panels, p); j < optc_panel_begin(panels, p + 1); ++j)
        *out++ = j < n ? (T)of_block(b, j) : T(0);
}
