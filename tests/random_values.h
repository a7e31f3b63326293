#pragma once
// Random inputs for small graphs in tests.

#include <cstring>
#include <random>
#include <string>

#include "ir/constant.h"
#include "support/diagnostics.h"

namespace optc {

inline std::string said(const Diagnostics &d) {
  std::string text;
  for (const Diagnostic &one : d.all()) text += format(one);
  return text;
}

inline Constant random_tensor(const Type &type, const DimValues &values, std::mt19937 &random) {
  std::vector<int64_t> dims;
  int64_t count = 1;
  for (const Dim &d : *type.shape) {
    dims.push_back(*evaluate(d, values));
    count *= dims.back();
  }
  if (type.element == ElementType::kFloat32) {
    std::vector<uint8_t> bytes(static_cast<size_t>(count) * 4);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < count; ++i) {
      const float v = normal(random);
      std::memcpy(bytes.data() + 4 * i, &v, 4);
    }
    return Constant::owned(type.element, dims, std::move(bytes));
  }
  std::vector<uint8_t> bytes(static_cast<size_t>(*storage_bytes(type.element, count)));
  const size_t width = bytes.size() / static_cast<size_t>(count ? count : 1);
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) bytes[i * width] = static_cast<uint8_t>(random() % 3);
  return Constant::owned(type.element, dims, std::move(bytes));
}

}  // namespace optc
