#pragma once
// Names of emitted code: C identifiers made of ONNX names, of which none is a word that the code around them needs.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace optc {

// Whether a name cannot stand in emitted code, in whatever scope: keywords of C and C++, macros of the headers that a
// bundle includes, what emitted code and the runtime's headers name themselves.
bool is_reserved(std::string_view name);

// A C identifier that is not reserved: other characters become '_', runs of them one; of a path, a part that the next
// one repeats ("layer/layer.1") goes. "/layer/layer.1/conv/Conv_output_0" -> "layer_1_conv_Conv_output_0". Long names
// keep their end. Never empty.
std::string identifier(std::string_view name, size_t longest = 64);

// Names of kernels and buffers, unique among those given so far.
class UniqueNames {
 public:
  std::string unique(std::string_view name);

 private:
  std::unordered_set<std::string> taken_;
  std::unordered_map<std::string, int> next_;
};

}  // namespace optc
