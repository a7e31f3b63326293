#pragma once
// Where a rounding makes an infinity, a NaN or another branch out of a finite value: a divisor or the argument of a
// logarithm that becomes zero, a root's argument that becomes negative, the bounds of atanh, a power's exponent, the
// operands of a remainder and of ==. What such a value is computed from stays f32, as far back as it matters:
//   * a value that is only scaled keeps its sign in any storage of f32's range; in f16 it may underflow to zero;
//   * a difference (a sum of unknown signs) may cancel: all that enters it must be exact, and what that is computed
//   from element by element;
//   * a sum of a positive constant and what is not negative has no zero.
// It ends at contractions and reductions: rounding of their operands is what storage in 16 bits means.

#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/program/program.h"

namespace optc {

class PoleAnalysis {
 public:
  using Keep = std::function<void(BufferId, const char *why)>;
  // `keep` is called for each buffer that has to stay f32 when others become `narrow` (f16 or bf16).
  PoleAnalysis(const Program &program, ElementType narrow, Keep keep);
  // To be called for all kernels until `changed` stays false: what one kernel needs concerns those that write it.
  void visit(const Kernel &kernel);
  bool changed = false;

 private:
  enum class Sign : uint8_t { kUnknown, kNotNegative, kPositive };  // kPositive: by more than any rounding
  enum Need : uint8_t { kSign = 1, kZero = 2, kExact = 3 };         // each more than the one before

  Sign sign(ScalarId id);
  Sign compute_sign(const Scalar &s);
  Sign sign_of_local(LocalId local);
  void poles(ScalarId id, std::unordered_set<uint32_t> &seen);
  void need(ScalarId id, Need what, const char *why);
  void need_load(const Scalar &load, Need what, const char *why);
  void need_local(LocalId local, Need what, const char *why);
  size_t root(BufferId b) const;

  const Program &program_;
  const bool underflows_;
  const Keep keep_;
  struct Needed {
    uint8_t what = 0;
    const char *why = "";
  };
  std::vector<Needed> buffers_;  // by root
  const LoopNest *nest_ = nullptr;
  std::unordered_map<uint32_t, Sign> signs_;
  std::unordered_map<uint32_t, uint8_t> visited_;
};

}  // namespace optc
