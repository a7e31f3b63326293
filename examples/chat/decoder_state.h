#pragma once
// The decoder with its caches: memory of this program, laid out once with room for `capacity` tokens, to which each run
// appends in place.

#include <decoder.hpp>

#include <cstdint>
#include <vector>

class DecoderState {
 public:
  DecoderState(int threads, int64_t capacity);

  // The logits of the token that follows these. The pointer is good until the next call.
  const std::vector<float> &run(const std::vector<int64_t> &tokens);
  int64_t length() const { return length_; }
  int64_t room() const { return capacity_ - length_; }
  void forget() { length_ = 0; }  // a new conversation

 private:
  decoder::Model model_;
  int64_t capacity_, length_ = 0;
  std::vector<std::vector<float>> caches_;
  std::vector<float> logits_;
  std::vector<optc_value> inputs_, outputs_;
};
