// 16-bit storage: which tensors are stored in f16, which stay f32 and why, and that the lowered Program still computes
// what the f32 one does. Both run on the evaluator, by their loop nests.
#include "lowering/precision/precision.h"

#include <gtest/gtest.h>

#include "lowering/precision/range.h"
#include "tests/lowered.h"

namespace optc {
namespace {

struct Narrowed : Lowered {
  bool narrow(const std::string &name) const {
    return type_of(name) == ElementType::kFloat16 || type_of(name) == ElementType::kBFloat16;
  }
  ElementType type_of(const std::string &name) const {
    for (const Buffer &b : program.buffers)
      if (b.name == name) return b.element();
    ADD_FAILURE() << "no buffer '" << name << "'\n" << text;
    return ElementType::kUndefined;
  }
  std::string why(const std::string &name) const {
    for (const auto &[buffer, reason] : report.precision.kept)
      if (buffer == name) return reason;
    return {};
  }
};

Narrowed narrowed(const std::string &text, LoweringOptions::Target target = LoweringOptions::Target::kGpu,
                  ElementType precision = ElementType::kFloat16, double tolerance = 5e-3) {
  LoweringOptions options;
  options.target = target;
  options.precision = precision;
  Narrowed result{lower_text(text, options)};
  expect_same_results(
      result, [](const DimSymbol &) { return std::optional<int64_t>(3); }, tolerance);
  return result;
}

constexpr const char *kMlp = R"(graph "mlp" (x: f32[N,16]) -> (y) {
    const w1: f32[16,24] = hash "a"
    const b1: f32[24] = hash "b"
    const w2: f32[24,8] = hash "c"
    h: f32[N,24] = MatMul(x, w1)
    a: f32[N,24] = Add(h, b1)
    r: f32[N,24] = Relu(a)
    y: f32[N,8] = MatMul(r, w2)
  })";

TEST(Precision, WeightsAndTemporariesOfProductsAreStoredInF16OnAGpu) {
  const Narrowed r = narrowed(kMlp);
  EXPECT_TRUE(r.narrow("w1"));
  EXPECT_TRUE(r.narrow("w2"));
  EXPECT_TRUE(r.narrow("r"));
  // The caller's memory keeps its type, and a small bias is not worth a rounding.
  EXPECT_EQ(r.type_of("x"), ElementType::kFloat32);
  EXPECT_EQ(r.type_of("y"), ElementType::kFloat32);
  EXPECT_EQ(r.why("b1"), "a small constant");
  EXPECT_EQ(r.report.precision.temporaries, 1);
  EXPECT_EQ(r.report.precision.constants, 2);
  // The f32 input is rounded as it is read, beside 16-bit weights.
  EXPECT_NE(r.text.find("f16"), std::string::npos);
}

TEST(Precision, F32StaysAsItWas) {
  const Narrowed r = narrowed(kMlp, LoweringOptions::Target::kGpu, ElementType::kFloat32, 1e-6);
  for (const Buffer &b : r.program.buffers) EXPECT_EQ(b.element(), ElementType::kFloat32) << b.name;
  EXPECT_TRUE(r.report.precision.kept.empty());
}

TEST(Precision, BF16IsStoredByTheSameRules) {
  const Narrowed r = narrowed(kMlp, LoweringOptions::Target::kGpu, ElementType::kBFloat16, 3e-2);
  EXPECT_EQ(r.type_of("w1"), ElementType::kBFloat16);
  EXPECT_EQ(r.type_of("r"), ElementType::kBFloat16);
}

TEST(Precision, OperandsOfCpuKernelsStayF32) {
  const Narrowed r = narrowed(kMlp, LoweringOptions::Target::kCpu);
  EXPECT_EQ(r.type_of("r"), ElementType::kFloat32);
  EXPECT_NE(r.why("r").find("CPU"), std::string::npos);
  for (const Buffer &b : r.program.buffers)
    if (b.kind == BufferKind::kConstant) {
      EXPECT_EQ(b.element(), ElementType::kFloat32) << b.name;
    }
}

TEST(Precision, RowsBetweenProductsAreStoredInF16OnACpuToo) {
  const Narrowed r = narrowed(R"(graph "rows" (x: f32[N,32], z: f32[N,32]) -> (y) {
    a: f32[N,32] = Add(x, z)
    s: f32[N,32] = Softmax(a) {axis = -1}
    t: f32[N,32] = Softmax(s) {axis = 0}
    y: f32[N,32] = Neg(t)
  })",
                              LoweringOptions::Target::kCpu);
  EXPECT_TRUE(r.narrow("s"));
}

TEST(Precision, MasksOfLowestF32StayF32AndSoftmaxIsRight) {
  const Narrowed r = narrowed(R"(graph "mask" (x: f32[3,8], keep: bool[3,8]) -> (y, z) {
    const w: f32[8,8] = hash "a"
    const low: f32[] = [-3.4028235e38]
    const zero: f32[] = [0]
    p: f32[3,8] = MatMul(x, w)
    m: f32[3,8] = Where(keep, zero, low)
    q: f32[3,8] = Add(p, m)
    y: f32[3,8] = Softmax(q) {axis = -1}
    z: f32[3,8] = Softmax(m) {axis = 0}
  })");
  for (const Buffer &b : r.program.buffers)
    if (b.name == "m" || b.name == "q") {
      EXPECT_EQ(b.element(), ElementType::kFloat32) << b.name << "\n" << r.text;
    }
}

TEST(Precision, ConstantsBeyondF16StayF32WithWhatTheyMultiply) {
  const Narrowed r = narrowed(R"(graph "large" (x: f32[4,2]) -> (y) {
    const w: f32[2,2] = [1, 100000, 3, 4]
    const v: f32[2,2] = [1, 2, 3, 4]
    a: f32[4,2] = MatMul(x, v)
    b: f32[4,2] = Relu(a)
    y: f32[4,2] = MatMul(b, w)
  })");
  EXPECT_EQ(r.type_of("w"), ElementType::kFloat32);
  EXPECT_NE(r.why("w").find("range"), std::string::npos);
  EXPECT_EQ(r.type_of("b"), ElementType::kFloat32);
  EXPECT_TRUE(r.narrow("v"));
}

TEST(Precision, SumsOfSquaresAndWholeNumbersStayF32) {
  const Narrowed r = narrowed(R"(graph "sums" (x: f32[3,8,64], p: i64[3,8]) -> (y, c) {
    const axis: i64[1] = [2]
    const w: f32[8,4] = hash "a"
    const u: f32[8,4] = hash "b"
    q: f32[3,8,64] = Mul(x, x)
    s: f32[3,8] = ReduceSum(q, axis) {keepdims = 0}
    y: f32[3,4] = MatMul(s, w)
    f: f32[3,8] = Cast(p) {to = 1}
    c: f32[3,4] = MatMul(f, u)
  })");
  EXPECT_EQ(r.why("s"), "values that may leave f16's range") << r.text;
  EXPECT_EQ(r.why("f"), "whole numbers as floats") << r.text;
  EXPECT_EQ(r.type_of("s"), ElementType::kFloat32);
  EXPECT_EQ(r.type_of("w"), ElementType::kFloat32);
}

// A sum that each iteration reads, adds to and stores loses a digit each time in 16 bits.
TEST(Precision, RunningValuesStayF32) {
  for (const ElementType type : {ElementType::kFloat16, ElementType::kBFloat16}) {
    const Narrowed r = narrowed(R"(graph "sums" (x: f32[1000]) -> (y) {
      const axis: i64[] = [0]
      y: f32[1000] = CumSum(x, axis) {exclusive = 1}
    })",
                                LoweringOptions::Target::kGpu, type, 1e-5);
    EXPECT_EQ(r.why("y_running"), "a running value") << r.text;
  }
}

TEST(Precision, AttentionReadsOneTypeOfQueryKeyAndValue) {
  // The caller's keys and values are rounded as they are read, beside a query in f16.
  const Narrowed r = narrowed(R"(graph "attention" (x: f32[1,2,4,8], k: f32[1,2,5,8], v: f32[1,2,5,8]) -> (y) {
    const w: f32[8,8] = hash "a"
    q: f32[1,2,4,8] = MatMul(x, w)
    y: f32[1,2,4,8] = Attention(q, k, v)
  })");
  EXPECT_TRUE(r.narrow("q")) << r.text;
  EXPECT_EQ(r.type_of("k"), ElementType::kFloat32);
  // Rows of 6 cannot be read eight at a time: all three stay f32.
  const Narrowed odd = narrowed(R"(graph "attention" (x: f32[1,2,4,6], k: f32[1,2,5,6], v: f32[1,2,5,6]) -> (y) {
    const w: f32[6,6] = hash "a"
    q: f32[1,2,4,6] = MatMul(x, w)
    y: f32[1,2,4,6] = Attention(q, k, v)
  })");
  EXPECT_EQ(odd.type_of("q"), ElementType::kFloat32) << odd.text;
  const Narrowed all = narrowed(R"(graph "attention" (x: f32[1,2,4,8]) -> (y) {
    const w: f32[8,8] = hash "a"
    const u: f32[8,8] = hash "b"
    q: f32[1,2,4,8] = MatMul(x, w)
    k: f32[1,2,4,8] = MatMul(x, u)
    v: f32[1,2,4,8] = Add(q, k)
    y: f32[1,2,4,8] = Attention(q, k, v)
  })");
  EXPECT_TRUE(all.narrow("q")) << all.text;
  EXPECT_TRUE(all.narrow("k"));
}

TEST(Precision, LibraryCallsReadF32) {
  const Narrowed r = narrowed(R"(graph "top" (x: f32[4,8]) -> (y, i) {
    const w: f32[8,8] = hash "a"
    const k: i64[1] = [3]
    a: f32[4,8] = MatMul(x, w)
    y: f32[4,3], i: i64[4,3] = TopK(a, k) {axis = -1, largest = 1, sorted = 1}
  })");
  EXPECT_EQ(r.type_of("a"), ElementType::kFloat32) << r.text;
  EXPECT_NE(r.why("a").find("library"), std::string::npos);
}

TEST(Precision, ConvolutionWeightsAreChannelsLastOnAGpu) {
  const Narrowed r = narrowed(R"(graph "conv" (x: f32[N,8,6,6]) -> (y) {
    const w1: f32[8,8,3,3] = hash "a"
    const w2: f32[8,8,3,3] = hash "c"
    a: f32[N,8,6,6] = Conv(x, w1) {dilations = ints [1, 1], group = 1, kernel_shape = ints [3, 3], pads = ints [1, 1, 1, 1], strides = ints [1, 1], auto_pad = "NOTSET"}
    ra: f32[N,8,6,6] = Relu(a)
    y: f32[N,8,6,6] = Conv(ra, w2) {dilations = ints [1, 1], group = 1, kernel_shape = ints [3, 3], pads = ints [1, 1, 1, 1], strides = ints [1, 1], auto_pad = "NOTSET"}
  })");
  EXPECT_TRUE(r.narrow("w1"));
  EXPECT_TRUE(r.narrow("ra"));
  for (const Buffer &b : r.program.buffers)
    if (b.name == "w1" || b.name == "w2") {
      // The first one reads the caller's row-major image.
      EXPECT_EQ(b.order, b.name == "w2" ? (std::vector<int>{0, 2, 3, 1}) : std::vector<int>()) << b.name;
    }
}

TEST(PrecisionRange, BoundsByHowAValueIsMade) {
  EXPECT_TRUE(fits_half({1, 1, false}));
  EXPECT_TRUE(fits_half({1, 200, false}));
  EXPECT_FALSE(fits_half({1, 300, false}));   // a sum of 300 terms
  EXPECT_FALSE(fits_half({2, 1, false}));     // a square
  EXPECT_TRUE(fits_half({0, 60000, false}));  // a constant's own size
  EXPECT_FALSE(fits_half({0, 1, true}));      // whole numbers
}

TEST(PrecisionRange, Bf16HoldsNoLowestF32) {
  EXPECT_TRUE(fits_bfloat16({1, 1, false}));
  EXPECT_TRUE(fits_bfloat16({0, kLargestBFloat16, false}));
  EXPECT_FALSE(fits_bfloat16({0, 3.4028235e38, false}));
  EXPECT_FALSE(fits_bfloat16({0, 1, true}));
}

// exp of a difference has no bound; exp of x - max(x) over the same row has.
TEST(Precision, OnlyADifferenceFromItsOwnMaximumBoundsAnExponential) {
  for (const auto target : {LoweringOptions::Target::kGpu, LoweringOptions::Target::kCpu}) {
    const Narrowed r = narrowed(R"(graph "exp" (x: f32[N,32], c: f32[N,32]) -> (y, z) {
    const w: f32[32,32] = hash "a"
    const v: f32[32,32] = hash "b"
    const one: i64[1] = [1]
    m: f32[N,32] = MatMul(x, w)
    d: f32[N,32] = Sub(m, c)
    e: f32[N,32] = Exp(d)
    y: f32[N,32] = MatMul(e, v)
    s: f32[N,32] = Softmax(m) {axis = -1}
    z: f32[N,32] = MatMul(s, v)
  })",
                                target);
    EXPECT_FALSE(r.narrow("e")) << r.text;
  }
  // The maximum of another row, of another tensor and of a part bound nothing.
  const Narrowed r = narrowed(R"(graph "rows" (x: f32[32,32], c: f32[32,32]) -> (y) {
    const w: f32[32,32] = hash "a"
    const axes: i64[1] = [0]
    top: f32[1,32] = ReduceMax(c, axes) {keepdims = 1}
    d: f32[32,32] = Sub(x, top)
    e: f32[32,32] = Exp(d)
    y: f32[32,32] = MatMul(e, w)
  })");
  EXPECT_FALSE(r.narrow("e")) << r.text;
}

// A rounding must not make an infinity or a NaN where f32 has none: what a divisor or a root's argument is a difference
// of stays f32, also where it was stored before.
TEST(PrecisionPoles, WhatMayCancelIsNotRounded) {
  for (const auto type : {ElementType::kFloat16, ElementType::kBFloat16}) {
    const Narrowed r = narrowed(R"(graph "poles" (x: f32[N,32]) -> (y, z, q, o) {
    const w: f32[32,32] = hash "a"
    const v: f32[32,32] = hash "b"
    const u: f32[32,32] = hash "c"
    const half: f32[1] = [0.5]
    const one: f32[1] = [7.0]
    a: f32[N,32] = MatMul(x, w)
    b: f32[N,32] = MatMul(x, v)
    c: f32[N,32] = MatMul(x, u)
    ah: f32[N,32] = Mul(a, half)
    ao: f32[N,32] = Add(ah, one)
    y: f32[N,32] = Reciprocal(ao)
    by: f32[N,32] = Tanh(b)
    z: f32[N,32] = MatMul(by, w)
    bs: f32[N,32] = Sub(one, b)
    q: f32[N,32] = Sqrt(bs)
    ce: f32[N,32] = Relu(c)
    o: f32[N,32] = MatMul(ce, v)
  })",
                                LoweringOptions::Target::kGpu, type, 4e-2);
    for (const char *name : {"a", "ah", "ao", "b", "bs"})
      for (const Buffer &buffer : r.program.buffers)
        if (buffer.name == name && buffer.kind == BufferKind::kTemporary) {
          EXPECT_FALSE(r.narrow(name)) << name << r.text;
        }
    EXPECT_TRUE(r.narrow("ce")) << r.text;
  }
}

// A divisor that is only scaled keeps its sign in bf16; in f16 it may underflow.
TEST(PrecisionPoles, ADivisorUnderflowsInF16Only) {
  for (const auto type : {ElementType::kFloat16, ElementType::kBFloat16}) {
    const Narrowed r = narrowed(R"(graph "scaled" (x: f32[N,32]) -> (y, z) {
    const w: f32[32,32] = hash "a"
    const v: f32[32,32] = hash "b"
    const half: f32[1] = [0.5]
    a: f32[N,32] = MatMul(x, w)
    t: f32[N,32] = Tanh(a)
    y: f32[N,32] = MatMul(t, v)
    s: f32[N,32] = Mul(t, half)
    z: f32[N,32] = Reciprocal(s)
  })",
                                LoweringOptions::Target::kGpu, type, 1e9);
    EXPECT_EQ(r.narrow("t"), type == ElementType::kBFloat16) << r.text;
    if (type == ElementType::kFloat16) {
      EXPECT_EQ(r.why("t"), "a divisor");
    }
  }
}

// Norms and softmaxes have no pole: nothing of a network's usual rows stays f32 because of them.
TEST(PrecisionPoles, PositiveDivisorsKeepNothing) {
  const Narrowed r = narrowed(R"(graph "norm" (x: f32[N,16]) -> (y) {
    const w: f32[16,32] = hash "a"
    const v: f32[32,8] = hash "b"
    const g: f32[32] = hash "c"
    const h: f32[32] = hash "d"
    a: f32[N,32] = MatMul(x, w)
    n: f32[N,32] = LayerNormalization(a, g, h) {axis = -1}
    e: f32[N,32] = Sigmoid(n)
    m: f32[N,32] = Mul(n, e)
    s: f32[N,32] = Softmax(m) {axis = -1}
    y: f32[N,8] = MatMul(s, v)
  })");
  EXPECT_TRUE(r.narrow("a")) << r.text;
  EXPECT_TRUE(r.narrow("s")) << r.text;
}

TEST(Precision, RowsOfASoftmaxAreStoredInSixteenBits) {
  const Narrowed r = narrowed(R"(graph "softmax" (x: f32[N,16]) -> (y) {
    const w: f32[16,32] = hash "a"
    const v: f32[32,8] = hash "b"
    a: f32[N,32] = MatMul(x, w)
    s: f32[N,32] = Softmax(a) {axis = -1}
    y: f32[N,8] = MatMul(s, v)
  })");
  EXPECT_TRUE(r.narrow("s")) << r.text;
}

TEST(Precision, WhatCostsTooMuchStaysF32ByName) {
  LoweringOptions options;
  options.target = LoweringOptions::Target::kGpu;
  options.precision = ElementType::kFloat16;
  options.keep_f32 = {{"r", "it costs too much"}};
  Narrowed r{lower_text(kMlp, options)};
  EXPECT_EQ(r.type_of("r"), ElementType::kFloat32);
  EXPECT_EQ(r.why("r"), "it costs too much");
  EXPECT_TRUE(std::find(r.report.precision.narrow.begin(), r.report.precision.narrow.end(), "w1") !=
              r.report.precision.narrow.end());
}

}  // namespace
}  // namespace optc
