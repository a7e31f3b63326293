#include "ops/block_rounding.h"

namespace optc {

ValueId rounded_in_blocks(const NodeSink &to, ValueId x, int rank, int64_t inner, int64_t block) {
  constexpr float kMost = 127;  // of the steps of int8 on either side of 0
  const int64_t count = (inner + block - 1) / block, missing = count * block - inner;
  const size_t last = static_cast<size_t>(rank - 1);
  ValueId whole = x;
  if (missing > 0) {
    std::vector<int64_t> pads(2 * static_cast<size_t>(rank), 0);
    pads.back() = missing;
    whole = to.node("Pad", {x, to.constant(Constant::int64s(std::move(pads)))}, {{"mode", std::string("constant")}});
  }
  std::vector<int64_t> sizes(last, 0);  // as they are
  sizes.push_back(count);
  sizes.push_back(block);
  whole = to.node("Reshape", {whole, to.constant(Constant::int64s(std::move(sizes)))}, {{"allowzero", int64_t{0}}});
  const ValueId magnitude = to.node("Abs", {whole}, {});
  const ValueId largest = to.node("ReduceMax", {magnitude, to.constant(Constant::int64s({-1}))},
                                  {{"keepdims", int64_t{0}}, {"noop_with_empty_axes", int64_t{0}}});
  const ValueId scale = to.node("Div", {largest, to.constant(Constant::scalar(ElementType::kFloat32, kMost))}, {});
  const NodeSink::Attributes blocks = {{"axis", int64_t{rank - 1}}, {"block_size", block}};
  NodeSink::Attributes bytes = blocks, floats = blocks;
  bytes.emplace_back("output_dtype", static_cast<int64_t>(ElementType::kInt8));
  floats.emplace_back("output_dtype", int64_t{0});
  const ValueId q = to.node("QuantizeLinear", {x, scale}, std::move(bytes));
  return to.node("DequantizeLinear", {q, scale}, std::move(floats));
}

}  // namespace optc
