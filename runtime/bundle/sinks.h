// sinks.h: what receives the finished sums of a contraction (runtime/cpu/gemm.h), made of a lambda. Included inside an instruction-set
// namespace (runtime/cpu/foreach_isa.h) after lanes.h.

// Light: the body is a few instructions, to be unrolled on the registers.
template <int Light, class Body>
struct GemmSink {
  enum { kLight = Light };
  Body body;
  OPTC_MEMBER void operator()(vf sum, int64_t row, int64_t column, int n) const { body(sum, row, column, Part{n}); }
};
template <int Light, class Body>
OPTC_INLINE GemmSink<Light, Body> gemm_sink(const Body &body) { return {body}; }

// For products whose sums need no place between blocks of k: never read or written. (A null pointer makes compilers warn of the path
// that is not taken.)
OPTC_INLINE float *no_partial(const float *any) { return const_cast<float *>(any); }
