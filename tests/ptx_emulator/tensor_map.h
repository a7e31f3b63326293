#pragma once
// The emulated driver's tensor maps: what cuTensorMapEncodeTiled makes of its arguments, in the 128 bytes that a kernel
// is given.

#include <cstddef>
#include <cstdint>

namespace optc::testing {

struct EmulatedTensorMap {
  static constexpr uint64_t kMark = 0x50414D5F4F53;
  uint64_t mark = kMark, address = 0;
  uint64_t extents[5] = {1, 1, 1, 1, 1};
  uint64_t strides[5] = {0, 0, 0, 0, 0};  // in bytes; of the first: the element's size
  uint32_t box[5] = {1, 1, 1, 1, 1};
  uint32_t rank = 0;
};
static_assert(sizeof(EmulatedTensorMap) <= 128);

// As the driver checks them, for tensors of 16-bit elements in the 128-byte swizzle: false where it would refuse.
// extents, box: `rank` of them; strides: rank - 1, in bytes, of all but the first dim.
inline bool encode_tensor_map(EmulatedTensorMap &map, uint32_t rank, uint64_t address, const uint64_t *extents,
                              const uint64_t *strides, const uint32_t *box) {
  if (rank < 1 || rank > 5 || address % 16 != 0 || address == 0) return false;
  map = EmulatedTensorMap();
  map.address = address;
  map.rank = rank;
  map.strides[0] = 2;
  for (uint32_t d = 0; d < rank; ++d) {
    if (extents[d] < 1 || extents[d] > uint64_t{1} << 32 || box[d] < 1 || box[d] > 256) return false;
    map.extents[d] = extents[d];
    map.box[d] = box[d];
    if (d == 0) continue;
    if (strides[d - 1] % 16 != 0 || strides[d - 1] >= uint64_t{1} << 40) return false;
    map.strides[d] = strides[d - 1];
  }
  return box[0] * 2 == 128;
}

}  // namespace optc::testing
