#pragma once
// A coarse bound of values by how they are made: |value| <= scale * R^degree, R being what the tensors of a model
// ordinarily stay below (256). Loads have degree 1, constants degree 0 and their own size; a square doubles the degree,
// a root halves it, a division by a norm takes it away; a product of two tensors counts as the larger one (gates). It
// answers one question: may the value be stored in f16?

#include <unordered_map>
#include <vector>

#include "ir/program/program.h"

namespace optc {

struct Magnitude {
  double degree = 0, scale = 0;
  bool counts = false;  // an integer as a float, of any size: f16 holds whole numbers up to 2048
};
bool fits_half(const Magnitude &magnitude);

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

  const Program &program_;
  std::vector<Magnitude> buffers_, locals_;
  std::unordered_map<uint32_t, Magnitude> known_;
};

// max |x| of an f32 constant; infinities aside, NaN aside.
double largest_magnitude(const Constant &constant);

}  // namespace optc
