#pragma once
// Names of kernels and buffers: C identifiers made of ONNX names, unique among those given so far.

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace optc {

// A C and C++ identifier that reads like `name`: other characters become single underscores, keywords get one behind;
// never empty, never longer than 80 characters (the end of a path says more than its start).
std::string identifier(std::string_view name);

class UniqueNames {
 public:
  std::string unique(std::string_view name);

 private:
  std::unordered_set<std::string> taken_;
  std::unordered_map<std::string, int> next_;
};

}  // namespace optc
