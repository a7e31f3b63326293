#pragma once
// Lanes: one scalar operation on up to kLanes elements at once. The meaning of each operation is that of
// ir/program/scalar.h.
//
// A register holds the lanes of one scalar in one of four classes. Floats of 16 bits and fewer live as f32 that has
// been rounded to their type; bool and all integers live as int64 in the range of their type (u64 as its bits); strings
// and complex numbers are only moved: a lane is the address of the element.

#include <cstdint>
#include <string>

#include "ir/program/scalar.h"
#include "ir/types.h"

namespace optc::evaluate_detail {

inline constexpr int kLanes = 256;

enum class LaneClass : uint8_t { kF32, kF64, kInt, kHandle };
LaneClass lane_class(ElementType type);

struct alignas(64) Register {
  union {
    float f32[kLanes];
    double f64[kLanes];
    int64_t i64[kLanes];
    const void *handle[kLanes];
  };
  // A lane is poisoned when its value comes from an index out of range, or from memory without a value. That is a fault
  // only if the lane is stored: the arm of a select that is not taken may read anywhere.
  bool poisoned;
  uint8_t poison[kLanes];  // of kPoison...; 0: good
};
inline constexpr uint8_t kPoisonRange = 1, kPoisonUnwritten = 2;

// Addresses of n elements, in elements: `start + lane * step`, or `vector[lane]` when it is not null.
struct Offsets {
  int64_t start = 0, step = 0;
  const int64_t *vector = nullptr;
  int64_t at(int lane) const { return vector ? vector[lane] : start + lane * step; }
};

// Bytes of one element as the evaluator stores it: sub-byte types take one byte, strings one std::string.
int64_t cell_bytes(ElementType type);

void load_lanes(ElementType type, const uint8_t *data, const Offsets &offsets, int n, Register &out);
// `mask` (bool lanes) may be null. Values are converted from their class to the type of the memory, rounding floats.
void store_lanes(ElementType type, uint8_t *data, const Offsets &offsets, int n, const Register &value,
                 const Register *mask);

// Operands by position; `from` is the type of the first one (of the second for kSelect's result nothing is needed).
void apply_lanes(ScalarOp op, ElementType type, ElementType from, uint8_t flag, const Register *a, const Register *b,
                 const Register *c, int n, Register &out);
void fill_constant(ElementType type, uint64_t bits, Register &out);
// Rounds or wraps lanes of the right class to `type`.
void normalize_lanes(ElementType type, int n, Register &out);
int64_t wrap_integer(ElementType type, int64_t value);
float round_small(ElementType type, float value, bool saturate);

}  // namespace optc::evaluate_detail
