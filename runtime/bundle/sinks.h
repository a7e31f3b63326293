// sinks.h: what receives the finished sums of a contraction (runtime/cpu/gemm.h), made of a lambda. Included inside an
// instruction-set namespace (runtime/cpu/foreach_isa.h) after lanes.h.
#include "runtime/cpu/gemm.h"

// body(sums, row, column, n) for each vector of a tile.
template <class T, class Body>
static OPTC_KERNEL void finish_tile(const void *argument, const T *sums, int64_t ld, int64_t row, int64_t column,
                                    int64_t rows, int64_t columns) {
  const Body &body = *static_cast<const Body *>(argument);
  for (int64_t i = 0; i < rows; ++i, sums += ld) {
    int64_t j = 0;
    for (; j + OPTC_VW <= columns; j += OPTC_VW) body(load(sums + j), row + i, column + j, Full<0>{});
    if (j < columns) body(load_n(sums + j, (int)(columns - j)), row + i, column + j, Part{(int)(columns - j)});
  }
}
template <class T = float, class Body>
OPTC_INLINE TileSinkOf<T> tile_sink(const Body &body) {
  return {finish_tile<T, Body>, &body};
}
