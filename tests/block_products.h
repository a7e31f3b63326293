#pragma once
// Sizes of products by weights in blocks: one to many rows, columns and sums that fill no panel, block or run of
// blocks.

#include <cstdint>

namespace optc {

struct BlockProductShape {
  int64_t m, n, k, block;
};
inline constexpr BlockProductShape kBlockProductShapes[] = {
    {1, 1, 1, 16},       {1, 9, 80, 32},      {1, 64, 256, 32},   {2, 17, 33, 16},    {3, 100, 129, 128},
    {4, 130, 1500, 256}, {5, 16, 24, 8},      {7, 96, 300, 32},   {1, 200, 2100, 64}, {13, 31, 2049, 64},
    {200, 65, 40, 16},   {1, 80, 1030, 1030}, {6, 33, 1030, 1032}};

}  // namespace optc
