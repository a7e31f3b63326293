#pragma once
// From the logits of a model to the next token.

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

struct Sampling {
  double temperature = 0;  // 0: always the likeliest token, whatever stands below
  int top_k = 0;           // only so many of the likeliest; 0: all
  double top_p = 1;        // of these only as many as together have this share of the chance
  uint64_t seed = 1;
};

class Sampler {
 public:
  explicit Sampler(const Sampling &how) : how_(how), random_(how.seed) {}
  // The same seed and logits give the same tokens on every machine.
  int next(const std::vector<float> &logits);

 private:
  Sampling how_;
  std::mt19937_64 random_;
  std::vector<std::pair<double, int>> chances_;  // and the token
};
