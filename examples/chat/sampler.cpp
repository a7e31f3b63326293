#include "sampler.h"

#include <algorithm>
#include <cmath>

int Sampler::next(const std::vector<float> &logits) {
  const auto likeliest = std::max_element(logits.begin(), logits.end());
  if (how_.temperature <= 0) return static_cast<int>(likeliest - logits.begin());

  chances_.clear();
  for (size_t i = 0; i < logits.size(); ++i)
    chances_.emplace_back(std::exp((double{logits[i]} - *likeliest) / how_.temperature), static_cast<int>(i));
  // Of equal chances the smaller token comes first, so that the order is one.
  std::sort(chances_.begin(), chances_.end(),
            [](const auto &a, const auto &b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  if (how_.top_k > 0) chances_.resize(std::min(chances_.size(), static_cast<size_t>(how_.top_k)));
  double sum = 0;
  for (const auto &[chance, token] : chances_) sum += chance;
  if (how_.top_p < 1) {
    size_t count = 0;
    double taken = 0;
    while (count < chances_.size() && (count == 0 || taken < how_.top_p * sum)) taken += chances_[count++].first;
    chances_.resize(count);
    sum = taken;
  }
  // 53 bits of the generator: std::uniform_real_distribution is another one in each library.
  double left = static_cast<double>(random_() >> 11) * 0x1p-53 * sum;
  for (const auto &[chance, token] : chances_) {
    left -= chance;
    if (left < 0) return token;
  }
  return chances_.back().second;
}
