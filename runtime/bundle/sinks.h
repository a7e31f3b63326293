// sinks.h: what receives the finished sums of a contraction (runtime/cpu/gemm.h), made of a lambda. Included inside an
// instruction-set namespace (runtime/cpu/foreach_isa.h) after lanes.h.

// Light: the body is a few instructions, to be unrolled on the registers.
template <int Light, class Body>
struct GemmSink {
  enum { kLight = Light };
  Body body;
  OPTC_MEMBER void operator()(vf sum, int64_t row, int64_t column, int n) const { body(sum, row, column, Part{n}); }
};
template <int Light, class Body>
OPTC_INLINE GemmSink<Light, Body> gemm_sink(const Body &body) {
  return {body};
}

// The same through one call for each tile of sums, so that kernels with different epilogues share the code of the
// products: what most kernels use, since it keeps the bundle's compile time down and costs a pass over registers that
// are in the first cache anyway.
struct TileSink {
  enum { kLight = 2 };
  void (*finish)(const void *body, const float *sums, int64_t ld, int64_t row, int64_t column, int64_t rows,
                 int64_t columns);
  const void *body;
  OPTC_MEMBER void tile(const float *sums, int64_t ld, int64_t row, int64_t column, int64_t rows,
                        int64_t columns) const {
    finish(body, sums, ld, row, column, rows, columns);
  }
  OPTC_MEMBER void operator()(vf sum, int64_t row, int64_t column, int n) const {
    float sums[OPTC_VW];
    store(sums, sum);
    finish(body, sums, OPTC_VW, row, column, 1, n);
  }
};
template <class Body>
static OPTC_KERNEL void finish_tile(const void *argument, const float *sums, int64_t ld, int64_t row, int64_t column,
                                    int64_t rows, int64_t columns) {
  const Body &body = *static_cast<const Body *>(argument);
  for (int64_t i = 0; i < rows; ++i, sums += ld) {
    int64_t j = 0;
    for (; j + OPTC_VW <= columns; j += OPTC_VW) body(load(sums + j), row + i, column + j, Full<0>{});
    if (j < columns) body(load_n(sums + j, (int)(columns - j)), row + i, column + j, Part{(int)(columns - j)});
  }
}
template <class Body>
OPTC_INLINE TileSink tile_sink(const Body &body) {
  return {finish_tile<Body>, &body};
}

// For products whose sums need no place between blocks of k: never read or written. (A null pointer makes compilers
// warn of the path that is not taken.)
OPTC_INLINE float *no_partial(const float *any) { return const_cast<float *>(any); }
