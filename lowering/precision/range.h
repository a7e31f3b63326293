#pragma once
// A coarse bound of values by how they are made: |value| <= scale * R^degree, R being what the tensors of a model
// ordinarily stay below (256). Loads have degree 1, constants degree 0 and their own size; a square doubles the degree,
// a root halves it, a division by a norm takes it away; a product of two tensors counts as the larger one (gates); an
// exponential has no bound, unless its argument is x - max(x) over the same elements. It answers one question: may the
// value be stored in f16, or in bf16?

#include <unordered_map>
#include <vector>

#include "ir/program/program.h"

namespace optc {

struct Magnitude {
  double degree = 0, scale = 0;
  bool counts = false;  // an integer as a float, of any size: f16 holds whole numbers up to 2048
};
bool fits_half(const Magnitude &magnitude);
// bf16 has the range of f32 but for its last two hundredths: what lies there (a fill with the lowest f32) would become
// infinite.
bool fits_bfloat16(const Magnitude &magnitude);
constexpr double kLargestBFloat16 = 0x1.fep127;

// The magnitudes of what the kernels of a Program store, in order of execution.
class RangeAnalysis {
 public:
  explicit RangeAnalysis(const Program &program)
      : program_(program), buffers_(program.buffers.size(), Magnitude{1, 1, false}) {}
  // What a load of the buffer is believed to be.
  void set(BufferId buffer, const Magnitude &magnitude) { buffers_[buffer.index] = magnitude; }
  // Walks a nest; the magnitude of each output that goes to a buffer, merged by buffer.
  std::unordered_map<uint32_t, Magnitude> stores(const Kernel &kernel);

 private:
  Magnitude scalar(ScalarId id);
  Magnitude compute(const Scalar &s);
  // Whether x - y is x - max(x): y a maximum, made by an earlier stage of this nest, over values that x is one of.
  bool shifted_by_its_maximum(const Scalar &difference) const;
  bool same(ScalarId a, ScalarId b, const DimSubstitution &loops) const;  // b with its loops replaced is a

  const Program &program_;
  const LoopNest *nest_ = nullptr;
  size_t stage_ = 0;  // that is walked
  std::vector<Magnitude> buffers_, locals_;
  std::unordered_map<uint32_t, Magnitude> known_;
};

// max |x| of an f32 constant; infinities aside, NaN aside.
double largest_magnitude(const Constant &constant);

}  // namespace optc
