#pragma once
// Activations in 8 bits, in the blocks that the weights of a product have along its sum.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph/graph.h"

namespace optc {

// How nodes of standard operators, with one output each, and constants are added to a Graph.
struct NodeSink {
  using Attributes = std::vector<std::pair<std::string, Attribute>>;
  std::function<ValueId(std::string op, std::vector<ValueId> inputs, Attributes attributes)> node;
  std::function<ValueId(Constant)> constant;
};

// x f32 [.., inner] of that rank, rounded to 255 steps a block of its last axis:
//
//   scale = largest |x| of the block / 127,   y = scale * (x / scale, rounded to the nearest integer, ties to even)
//
// with the last block shorter where `inner` is no multiple. A block of zeros stays; one that holds an infinity or a NaN
// is NaN. These are the numbers that ONNX Runtime multiplies at accuracy_level 4, but for elements whose quotient
// lies within its last bits of a tie: those may be one step apart.
ValueId rounded_in_blocks(const NodeSink &to, ValueId x, int rank, int64_t inner, int64_t block);

}  // namespace optc
