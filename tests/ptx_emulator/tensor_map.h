#pragma once
// The emulated driver's tensor maps: what cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col make of their arguments,
// in the 128 bytes that a kernel is given.

#include <cstddef>
#include <cstdint>

namespace optc::testing {

struct EmulatedTensorMap {
  static constexpr uint32_t kMark = 0x50414D5F;
  uint32_t mark = kMark;
  uint8_t rank = 0;
  bool image = false;  // im2col: dims are channel, two of space, image
  uint64_t address = 0;
  uint64_t strides[5] = {0, 0, 0, 0, 0};  // in bytes; of the first: the element's size
  uint32_t extents[5] = {1, 1, 1, 1, 1};
  uint16_t box[5] = {1, 1, 1, 1, 1};  // image: of the first two, channels and pixels
  int8_t lower[2] = {0, 0}, upper[2] = {0, 0};
  uint8_t steps[2] = {1, 1};
};
static_assert(sizeof(EmulatedTensorMap) <= 128);

// As the driver checks them, for tensors of 16-bit elements in the 128-byte swizzle: false where it would refuse.
// extents, box: `rank` of them; strides: rank - 1, in bytes, of all but the first dim.
inline bool encode_tensor_map(EmulatedTensorMap &map, uint32_t rank, uint64_t address, const uint64_t *extents,
                              const uint64_t *strides, const uint32_t *box) {
  if (rank < 1 || rank > 5 || address % 16 != 0 || address == 0) return false;
  map = EmulatedTensorMap();
  map.address = address;
  map.rank = static_cast<uint8_t>(rank);
  map.strides[0] = 2;
  for (uint32_t d = 0; d < rank; ++d) {
    if (extents[d] < 1 || extents[d] >= uint64_t{1} << 32 || box[d] < 1 || box[d] > 256) return false;
    map.extents[d] = static_cast<uint32_t>(extents[d]);
    map.box[d] = static_cast<uint16_t>(box[d]);
    if (d == 0) continue;
    if (strides[d - 1] % 16 != 0 || strides[d - 1] >= uint64_t{1} << 40) return false;
    map.strides[d] = strides[d - 1];
  }
  return box[0] * 2 == 128;
}

// The same for images of two dims of space: lower, upper: corners of the walk in those; steps: of all four dims.
inline bool encode_image_map(EmulatedTensorMap &map, uint32_t rank, uint64_t address, const uint64_t *extents,
                             const uint64_t *strides, const int *lower, const int *upper, uint32_t channels,
                             uint32_t pixels, const uint32_t *steps) {
  const uint32_t box[4] = {channels, 1, 1, 1};
  if (rank != 4 || pixels < 1 || pixels > 1024 || !encode_tensor_map(map, rank, address, extents, strides, box))
    return false;
  map.image = true;
  map.box[1] = static_cast<uint16_t>(pixels);
  for (int d = 0; d < 2; ++d) {
    if (lower[d] < -128 || lower[d] > 127 || upper[d] < -128 || upper[d] > 127 || steps[1 + d] < 1 || steps[1 + d] > 8)
      return false;
    // A walk of no pixel.
    if (static_cast<int64_t>(extents[1 + d]) - 1 + upper[d] < lower[d]) return false;
    map.lower[d] = static_cast<int8_t>(lower[d]);
    map.upper[d] = static_cast<int8_t>(upper[d]);
    map.steps[d] = static_cast<uint8_t>(steps[1 + d]);
  }
  return steps[0] == 1 && steps[3] == 1;
}

}  // namespace optc::testing
