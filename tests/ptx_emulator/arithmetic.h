#pragma once
// What an instruction makes of the values of one thread's registers. A register's value stands in the low bits; what
// has no form or no result throws PtxFault.

#include <cstdint>
#include <cstring>
#include <string>

#include "tests/ptx_emulator/program.h"

namespace optc::testing {

template <typename T>
T as(uint64_t bits) {
  T v;
  std::memcpy(&v, &bits, sizeof v);
  return v;
}
template <typename T>
uint64_t bits_of(T v) {
  uint64_t bits = 0;
  std::memcpy(&bits, &v, sizeof v);
  return bits;
}

inline bool is_real(PtxType t) {
  return t == PtxType::kF32 || t == PtxType::kF64 || t == PtxType::kF16 || t == PtxType::kBF16;
}
inline bool is_signed(PtxType t) {
  return t == PtxType::kS8 || t == PtxType::kS16 || t == PtxType::kS32 || t == PtxType::kS64;
}

inline uint64_t low_bits(uint64_t v, unsigned bytes) { return bytes == 8 ? v : v & ((uint64_t{1} << (8 * bytes)) - 1); }
inline int64_t signed_value(uint64_t v, unsigned bytes) {
  switch (bytes) {
    case 1:
      return static_cast<int8_t>(v);
    case 2:
      return static_cast<int16_t>(v);
    case 4:
      return static_cast<int32_t>(v);
    default:
      return static_cast<int64_t>(v);
  }
}

// One operation on f32 or f64 values, given and returned as bits.
template <typename T>
uint64_t real_op(const PtxInstruction &i, uint64_t x, uint64_t y, uint64_t z);
uint64_t integer_op(const PtxInstruction &i, uint64_t x, uint64_t y, uint64_t z);
uint64_t convert(const PtxInstruction &i, uint64_t x);

// setp's comparison `how` ("lt", "hs", "neu", ...); unordered: one of them is NaN.
template <typename T>
bool compare(const std::string &how, T x, T y, bool unordered) {
  if (how.back() == 'u' && how.size() == 3) return unordered || compare(how.substr(0, 2), x, y, false);
  if (how == "nan") return unordered;
  if (how == "num") return !unordered;
  if (unordered) return false;
  const std::string h = how == "lo" ? "lt" : how == "ls" ? "le" : how == "hi" ? "gt" : how == "hs" ? "ge" : how;
  if (h == "eq") return x == y;
  if (h == "ne") return x != y;
  if (h == "lt") return x < y;
  if (h == "le") return x <= y;
  if (h == "gt") return x > y;
  if (h == "ge") return x >= y;
  throw PtxFault("comparison " + how);
}

}  // namespace optc::testing
