// Lowered Programs compute what the unfused ones do, with fewer kernels. Both run on the evaluator; the lowered one
// without runtime kernels, so that the loop nests that fusion made are what is tested.
#include "lowering/lower.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ir/program/address.h"
#include "ir/program/contraction_view.h"
#include "tests/lowered.h"

namespace optc {
namespace {

// Lowers the text, compares with the unfused Program at the given sizes of N and S.
Lowered check(const std::string &text, const std::vector<std::pair<int64_t, int64_t>> &sizes = {{2, 5}}) {
  Lowered result = lower_text(text, {});
  for (const auto &[n, s] : sizes)
    expect_same_results(
        result,
        [n = n, s = s](const DimSymbol &symbol) {
          return std::optional<int64_t>(symbol.name == "N" ? n : symbol.name == "S" ? s : 3);
        },
        1e-5);
  return result;
}

TEST(Lowering, ResidualBlockIsOneKernelAConvolution) {
  const Lowered r = check(R"(graph "block" (x: f32[N,8,6,6]) -> (y) {
    const w1: f32[8,8,3,3] = hash "a"
    const b1: f32[8] = hash "b"
    const w2: f32[8,8,3,3] = hash "c"
    a: f32[N,8,6,6] = Conv(x, w1, b1) {dilations = ints [1, 1], group = 1, kernel_shape = ints [3, 3], pads = ints [1, 1, 1, 1], strides = ints [1, 1], auto_pad = "NOTSET"}
    ra: f32[N,8,6,6] = Relu(a)
    c: f32[N,8,6,6] = Conv(ra, w2) {dilations = ints [1, 1], group = 1, kernel_shape = ints [3, 3], pads = ints [1, 1, 1, 1], strides = ints [1, 1], auto_pad = "NOTSET"}
    s: f32[N,8,6,6] = Add(c, ra)
    y: f32[N,8,6,6] = Relu(s)
  })",
                          {{1, 1}, {2, 1}});
  // Two convolutions and the way back to row-major.
  EXPECT_EQ(r.report.kernels_after, 3) << r.text;
}

TEST(Lowering, DepthwiseWithStrideKeepsItsChannels) {
  const Lowered r = check(R"(graph "dw" (x: f32[N,6,7,5]) -> (y) {
    const w: f32[6,1,3,3] = hash "a"
    const w1: f32[4,6,1,1] = hash "c"
    a: f32[N,6,4,3] = Conv(x, w) {dilations = ints [1, 1], group = 6, kernel_shape = ints [3, 3], pads = ints [1, 1, 1, 1], strides = ints [2, 2], auto_pad = "NOTSET"}
    ra: f32[N,6,4,3] = HardSwish(a)
    c: f32[N,4,4,3] = Conv(ra, w1) {dilations = ints [1, 1], group = 1, kernel_shape = ints [1, 1], pads = ints [0, 0, 0, 0], strides = ints [1, 1], auto_pad = "NOTSET"}
    y: f32[N,4,4,3] = Sigmoid(c)
  })",
                          {{1, 1}, {3, 1}});
  EXPECT_LE(r.report.kernels_after, 4) << r.text;
}

TEST(Lowering, ChannelsOfADepthwiseConvolutionAreColumnsForOneImageToo) {
  const Lowered r = check(R"(graph "dw" (x: f32[1,6,7,5]) -> (y) {
    const w: f32[6,1,3,3] = hash "a"
    a: f32[1,6,7,5] = Conv(x, w) {dilations = ints [1, 1], group = 6, kernel_shape = ints [3, 3], pads = ints [1, 1, 1, 1], strides = ints [1, 1], auto_pad = "NOTSET"}
    y: f32[1,6,7,5] = Relu(a)
  })");
  bool found = false;
  for (KernelId k : r.program.order) {
    if (!std::holds_alternative<ConvolutionDepthwiseSchedule>(r.program.kernel(k).schedule)) continue;
    found = true;
    const LoopNest &nest = *r.program.kernel(k).nest();
    ASSERT_EQ(column_loops(nest).size(), 1u) << r.text;
    EXPECT_TRUE(column_loops(nest)[0].extent.is(6));
    EXPECT_EQ(pixel_loops(nest).size(), 2u);
  }
  EXPECT_TRUE(found) << r.text;
}

TEST(Lowering, PadsAreNoWorkOfAConvolution) {
  const Lowered r = check(R"(graph "conv" (x: f32[1,8,6,6]) -> (y) {
    const w: f32[16,8,3,3] = hash "a"
    a: f32[1,16,6,6] = Conv(x, w) {dilations = ints [1, 1], group = 1, kernel_shape = ints [3, 3], pads = ints [1, 1, 1, 1], strides = ints [1, 1], auto_pad = "NOTSET"}
    y: f32[1,16,6,6] = Relu(a)
  })");
  int64_t most = 0;
  for (KernelId k : r.program.order) {
    const Dim flops = r.program.kernel(k).cost.flops;
    ASSERT_TRUE(flops.is_constant()) << r.text;
    most = std::max(most, flops.value());
  }
  // A product and a sum for each tap.
  EXPECT_EQ(most, 16 * 36 * 2 * 8 * 9) << r.text;
}

TEST(Lowering, PointwiseChainIsOneKernel) {
  const Lowered r = check(R"(graph "chain" (x: f32[N,S], b: f32[S]) -> (y) {
    a: f32[N,S] = Add(x, b)
    t: f32[N,S] = Tanh(a)
    u: f32[N,S] = Mul(t, x)
    y: f32[N,S] = Neg(u)
  })",
                          {{2, 5}, {1, 1}});
  EXPECT_EQ(r.report.kernels_after, 1) << r.text;
}

TEST(Lowering, AValueThatIsAlsoAnOutputIsStored) {
  const Lowered r = check(R"(graph "both" (x: f32[N,S]) -> (y, t) {
    t: f32[N,S] = Tanh(x)
    y: f32[N,S] = Neg(t)
  })");
  EXPECT_EQ(r.report.kernels_after, 2) << r.text;
}

TEST(Lowering, ViewsAreReadThrough) {
  const Lowered r = check(R"(graph "views" (x: f32[N,S,12]) -> (y) {
    const shape: i64[4] = [0, 0, 3, 4]
    v: f32[N,S,3,4] = Reshape(x, shape) {allowzero = 0}
    t: f32[N,3,S,4] = Transpose(v) {perm = ints [0, 2, 1, 3]}
    y: f32[N,3,S,4] = Tanh(t)
  })",
                          {{2, 5}, {1, 3}});
  EXPECT_EQ(r.report.kernels_after, 1) << r.text;
}

TEST(Lowering, ArenaIsWithinTenPercentOfTheBound) {
  const Lowered r = check(R"(graph "arena" (x: f32[2,8,6,6]) -> (y) {
    const w1: f32[8,8,3,3] = hash "a"
    a: f32[2,8,6,6] = Conv(x, w1) {dilations = ints [1, 1], group = 1, kernel_shape = ints [3, 3], pads = ints [1, 1, 1, 1], strides = ints [1, 1], auto_pad = "NOTSET"}
    c: f32[2,8,6,6] = Conv(a, w1) {dilations = ints [1, 1], group = 1, kernel_shape = ints [3, 3], pads = ints [1, 1, 1, 1], strides = ints [1, 1], auto_pad = "NOTSET"}
    d: f32[2,8,6,6] = Conv(c, w1) {dilations = ints [1, 1], group = 1, kernel_shape = ints [3, 3], pads = ints [1, 1, 1, 1], strides = ints [1, 1], auto_pad = "NOTSET"}
    s: f32[2,8,6,6] = Add(d, a)
    y: f32[2,8,6,6] = Relu(s)
  })");
  ASSERT_TRUE(r.program.arena_bytes.is_constant()) << r.text;
  EXPECT_LE(static_cast<double>(r.program.arena_bytes.value()),
            1.10 * static_cast<double>(r.program.lower_bound_bytes.value()));
  for (const Placement &p : r.program.placements)
    for (const Placement &q : r.program.placements) {
      if (p.buffer == q.buffer || p.last < q.first || q.last < p.first) continue;
      const bool apart = p.offset.value() + p.bytes.value() <= q.offset.value() ||
                         q.offset.value() + q.bytes.value() <= p.offset.value();
      EXPECT_TRUE(apart) << r.program.buffer(p.buffer).name << " and " << r.program.buffer(q.buffer).name;
    }
}

// Where tensor cores multiply f32, the weights of a product that one kernel reads lie with k innermost; others stay.
TEST(Lowering, F32WeightsOfProductsOnAGpuHaveTheSummedDimInnermost) {
  LoweringOptions options;
  options.target = LoweringOptions::Target::kGpu;
  const Lowered r = lower_text(R"(graph "mlp" (x: f32[N,16], i: i64[N]) -> (y, g) {
    const w1: f32[16,40] = hash "a"
    const w2: f32[40,24] = hash "b"
    h: f32[N,40] = MatMul(x, w1)
    r: f32[N,40] = Relu(h)
    y: f32[N,24] = MatMul(r, w2)
    g: f32[N,24] = Gather(w2, i) {axis = 0}
  })",
                               options);
  expect_same_results(
      r, [](const DimSymbol &) { return std::optional<int64_t>(3); }, 1e-6);
  for (const Buffer &b : r.program.buffers) {
    if (b.name == "w1") {
      EXPECT_EQ(b.order, (std::vector<int>{1, 0})) << r.text;
    }
    if (b.name == "w2") {
      EXPECT_TRUE(b.order.empty()) << r.text;
    }
  }
}

// A tensor that several kernels write part by part is no value of any of them: its reader stays behind all of them.
TEST(Lowering, PartsOfATensorFromSeveralKernelsAreKept) {
  check(R"(graph "dense" (x: f32[N,4,5,5]) -> (y) {
    const w: f32[3,4,3,3] = hash "a"
    const s: f32[7,1,1] = hash "b"
    c = Conv(x, w) {dilations = ints [1, 1], group = 1, kernel_shape = ints [3, 3], pads = ints [1, 1, 1, 1], strides = ints [1, 1]}
    k = Concat(x, c) {axis = 1}
    m = Mul(k, s)
    y = Relu(m)
  })",
        {{1, 1}, {2, 1}});
  check(R"(graph "rows" (x: f32[4,S]) -> (y) {
    const i: i64[2,1] = [3, 1]
    const w: f32[2,2] = hash "b"
    const a: i64[1] = [0]
    const b: i64[1] = [2]
    h = Slice(x, a, b, a)
    t = Softmax(h) {axis = 0}
    d = ScatterND(x, i, t) {reduction = "none"}
    y = Relu(d)
  })");
}

// What reads a tensor behind all its writers may still fuse: a product over a concatenation takes its epilogue.
TEST(Lowering, AProductOverAConcatenationTakesItsEpilogue) {
  const Lowered r = check(R"(graph "head" (x: f32[N,4], z: f32[N,3]) -> (y) {
    const w: f32[7,6] = hash "a"
    const b: f32[6] = hash "b"
    k = Concat(x, z) {axis = 1}
    p = MatMul(k, w)
    s = Add(p, b)
    y = Relu(s)
  })");
  EXPECT_EQ(r.report.kernels_after, 3) << r.text;  // the two parts and the product
}

// A rotation stores its halves; each is appended where it is made, in the type of the cache.
TEST(Lowering, ARotationIsAppendedToItsCacheInOneKernel) {
  const Lowered r = check(R"(graph "decode" (x: f32[N,2,3,8], c: f32[N,3,4], s: f32[N,3,4], past: f64[N,2,S,8]) -> (y) {
    t = RotaryEmbedding(x, c, s)
    w = Cast(t) {to = 11}
    y = Concat(past, w) {axis = 2}
  })",
                          {{2, 5}, {1, 1}});
  EXPECT_EQ(r.report.kernels_after, 2) << r.text;
  // Not where somebody else reads it, or only some of it is read.
  const Lowered both =
      check(R"(graph "both" (x: f32[N,2,3,8], c: f32[N,3,4], s: f32[N,3,4], past: f32[N,2,S,8]) -> (y, m) {
    const axes: i64[1] = [3]
    t = RotaryEmbedding(x, c, s)
    y = Concat(past, t) {axis = 2}
    m = ReduceMax(t, axes) {keepdims = 0}
  })",
            {{2, 5}});
  EXPECT_EQ(both.report.kernels_after, 4) << both.text;
  const Lowered some =
      check(R"(graph "some" (x: f32[N,2,3,8], c: f32[N,3,4], s: f32[N,3,4], past: f32[N,2,S,8]) -> (y) {
    const a: i64[1] = [1]
    const b: i64[1] = [3]
    const axes: i64[1] = [2]
    t = RotaryEmbedding(x, c, s)
    p = Slice(t, a, b, axes)
    y = Concat(past, p) {axis = 2}
  })",
            {{2, 5}});
  EXPECT_EQ(some.report.kernels_after, 3) << some.text;
}

// A convolution takes its sizes from the dims of what it reads: that must be the operand in its own shape.
TEST(Lowering, AConvolutionOverAViewReadsTheViewsShape) {
  const Lowered r = check(R"(graph "audio" (x: f32[N,6,5,1]) -> (y) {
    const w: f32[4,1,3,3] = hash "a"
    const shape: i64[4] = [-1, 1, 6, 5]
    v = Reshape(x, shape) {allowzero = 0}
    y = Conv(v, w) {dilations = ints [1, 1], group = 1, kernel_shape = ints [3, 3], pads = ints [1, 1, 1, 1], strides = ints [1, 1]}
  })",
                          {{1, 1}, {2, 1}});
  bool found = false;
  for (KernelId k : r.program.order) {
    const auto view = convolution_view(r.program, r.program.kernel(k));
    if (!view) continue;
    found = true;
    EXPECT_TRUE(view->in_channels.is(1) && view->in_spatial[0].is(6) && view->in_spatial[1].is(5)) << r.text;
  }
  EXPECT_TRUE(found) << r.text;
  // Read under the shape of what the view is of, it has no such form.
  Program plain = r.plain;
  const BufferId root = plain.inputs[0];
  ScalarSubstitution through;
  through.on_load = [&](const Scalar &load) {
    return plain.buffer(load.buffer).alias == root
               ? plain.scalars.load(root, load.type, {load.index[0], load.index[2], load.index[3], load.index[1]})
               : ScalarId();
  };
  bool lost = false;
  for (KernelId k : plain.order) {
    if (!convolution_view(plain, plain.kernel(k))) continue;
    LoopNest nest = *plain.kernel(k).nest();
    for (ScalarId *factor : {&nest.contraction->lhs, &nest.contraction->rhs})
      *factor = substitute(plain, *factor, through);
    plain.kernel(k).body = std::move(nest);
    EXPECT_FALSE(convolution_view(plain, plain.kernel(k)).has_value()) << print(plain);
    lost = true;
  }
  EXPECT_TRUE(lost);
}

TEST(Lowering, ConvolutionsOfEveryFormHaveTheirView) {
  struct Form {
    const char *x, *w, *attributes;
  };
  for (const Form &form : std::vector<Form>{
           {"[N,8,S,S]", "[4,8,3,3]",
            "group = 1, kernel_shape = ints [3, 3], pads = ints [1, 1, 1, 1], strides = ints [2, 2]"},
           {"[1,8,S,7]", "[8,1,3,3]",
            "group = 8, kernel_shape = ints [3, 3], pads = ints [0, 0, 1, 1], strides = ints [1, 2]"},
           {"[N,8,S]", "[4,4,3]", "group = 2, kernel_shape = ints [3], pads = ints [0, 0], strides = ints [1]"},
           {"[1,1,5,5]", "[1,1,1,5]",
            "group = 1, kernel_shape = ints [1, 5], pads = ints [0, 0, 0, 0], strides = ints [3, 1]"},
           {"[N,6,1,1]", "[5,6,1,1]",
            "group = 1, kernel_shape = ints [1, 1], pads = ints [0, 0, 0, 0], strides = ints [1, 1]"}}) {
    const std::string text = std::string("graph \"conv\" (x: f32") + form.x + ") -> (y) {\n  const w: f32" + form.w +
                             " = hash \"a\"\n  y = Conv(x, w) {" + form.attributes + "}\n}";
    const Lowered r = check(text, {{1, 9}, {2, 5}});
    EXPECT_TRUE(std::any_of(r.program.order.begin(), r.program.order.end(), [&](KernelId k) {
      return convolution_view(r.program, r.program.kernel(k)).has_value();
    })) << text;
  }
}

// Library calls see row-major tensors: what one reads keeps its order.
// A value of each channel beside a normalization over groups of four channels: its loop is cut, so that no address
// divides its counter any more.
TEST(Lowering, LoopsAreCutWhereAnIndexDividesTheirCounter) {
  const Lowered r = check(R"(graph "groups" (x: f32[N,8,6,8]) -> (y, z) {
    const s: f32[2] = hash "a"
    const b: f32[2] = hash "b"
    const c: f32[8,1,1] = hash "c"
    const to: i64[3] = [0, 2, 192]
    const back: i64[4] = [0, 8, 6, 8]
    g: f32[N,2,192] = Reshape(x, to) {allowzero = 0}
    n: f32[N,2,192] = InstanceNormalization(g, s, b) {epsilon = 1e-5}
    r: f32[N,8,6,8] = Reshape(n, back) {allowzero = 0}
    y: f32[N,8,6,8] = Add(r, c)
    z: f32[N,8,6,8] = Sigmoid(y)
  })",
                          {{1, 1}, {3, 1}});
  const auto &steps = r.report.steps;
  EXPECT_TRUE(std::any_of(steps.begin(), steps.end(), [](const auto &s) { return s.name == "loops.split"; })) << r.text;
  EXPECT_EQ(r.text.find("/ 48"), std::string::npos) << r.text;
}

// The exponentials of rows that no bound fits into a GPU's shared memory; those of 64 are kept.
TEST(Lowering, RowsWithoutABoundKeepNothingOnAGpu) {
  LoweringOptions gpu;
  gpu.target = LoweringOptions::Target::kGpu;
  for (const bool open : {true, false}) {
    const std::string s = open ? "S" : "64";
    const Lowered r = lower_text("graph \"rows\" (x: f32[N," + s + "], m: f32[" + s + "]) -> (y, z) {\n  t: f32[N," +
                                     s + "] = Mul(x, m)\n  y: f32[N," + s + "] = Softmax(t) {axis = -1}\n  z: f32[N," +
                                     s + "] = LogSoftmax(x) {axis = -1}\n}",
                                 gpu);
    const auto &steps = r.report.steps;
    EXPECT_EQ(std::any_of(steps.begin(), steps.end(), [](const auto &t) { return t.name == "rows.recompute"; }), open)
        << r.text;
    bool kept = false;
    for (const Kernel &kernel : r.program.kernels)
      if (kernel.alive && kernel.nest())
        for (const Local &local : kernel.nest()->locals) kept = kept || !local.shape.empty();
    EXPECT_EQ(kept, !open) << r.text;
    for (const int64_t length : {1, 5, 300})
      expect_same_results(
          r, [&](const DimSymbol &symbol) { return std::optional<int64_t>(symbol.name == "N" ? 3 : length); }, 1e-6);
  }
}

// Of the values of these chains f16 alone is kept: constants meet, products that are added are fused multiply-adds, and
// 1 + tanh is a sigmoid. What f32 also sees, what picks an element and what is compared stays as it was.
TEST(Lowering, ValuesThatAreRoundedTakeShorterFormulasOnAGpu) {
  LoweringOptions gpu;
  gpu.target = LoweringOptions::Target::kGpu;
  const DimValues sizes = [](const DimSymbol &) { return std::optional<int64_t>(40); };
  const auto shortened = [&](const std::string &text, double tolerance) {
    const Lowered r = lower_text(text, gpu);
    expect_same_results(r, sizes, tolerance);
    const auto &steps = r.report.steps;
    EXPECT_EQ(std::any_of(steps.begin(), steps.end(), [](const auto &t) { return t.name == "math.rounded"; }),
              r.text.find("_rounded") != std::string::npos || r.text.find("fma(") != std::string::npos)
        << r.text;
    return r.text;
  };
  const std::string gelu =
      shortened("graph \"g\" (x: f16[N]) -> (y) {\n  y: f16[N] = Gelu(x) {approximate = \"tanh\"}\n}", 2e-3);
  EXPECT_NE(gelu.find("sigmoid_rounded"), std::string::npos) << gelu;
  EXPECT_NE(gelu.find("fma("), std::string::npos) << gelu;
  EXPECT_EQ(gelu.find("tanh"), std::string::npos) << gelu;
  EXPECT_NE(shortened("graph \"g\" (x: bf16[N]) -> (y) {\n  y: bf16[N] = Exp(x)\n}", 1e-2).find("exp_rounded"),
            std::string::npos);
  for (const char *text : {"graph \"g\" (x: f32[N]) -> (y) {\n  y: f32[N] = Gelu(x) {approximate = \"tanh\"}\n}",
                           "graph \"g\" (x: f16[N]) -> (y, z) {\n  w: f32[N] = Cast(x) {to = 1}\n  y: f32[N] = Exp(w)\n"
                           "  z: f16[N] = Cast(y) {to = 10}\n}",
                           "graph \"g\" (x: f16[N]) -> (y) {\n  w: f32[N] = Cast(x) {to = 1}\n  e: f32[N] = Exp(w)\n"
                           "  c: bool[N] = Less(e, w)\n  y: f16[N] = Cast(c) {to = 10}\n}"}) {
    const std::string kept = shortened(text, 2e-3);
    EXPECT_EQ(kept.find("_rounded"), std::string::npos) << kept;
  }
}

TEST(Lowering, WhatALibraryCallReadsIsNotReordered) {
  const Lowered r = check(R"(graph "top" (q: f32[N,2,3,4], k: f32[N,2,5,4], v: f32[N,2,5,4]) -> (y) {
    const one: i64[1] = [1]
    a = optc.Attention(q, k, v) {scale = 0.5}
    y, i = TopK(a, one) {axis = 1, largest = 1, sorted = 1}
  })");
  for (const Buffer &b : r.program.buffers) EXPECT_TRUE(b.order.empty()) << b.name << "\n" << r.text;
}

// P10: a part of a tensor that nobody wrote is a fault of the Program, told without running it.
TEST(Lowering, TheVerifierMissesALostPartOfATensor) {
  const Lowered r = check(R"(graph "parts" (x: f32[N,2], z: f32[N,3]) -> (y) {
    t = Tanh(x)
    k = Concat(t, z) {axis = 1}
    y = Softmax(k) {axis = 1}
  })");
  Program lost = r.plain;
  ASSERT_EQ(lost.order.size(), 4u) << print(lost);
  lost.kernel(lost.order[2]).alive = false;  // the part of z
  lost.order.erase(lost.order.begin() + 2);
  Diagnostics diagnostics;
  EXPECT_FALSE(verify(lost, diagnostics).ok());
  EXPECT_NE(said(diagnostics).find("P10"), std::string::npos) << said(diagnostics);
}

// P13: a size that two kernels find is the later one's where the earlier one's was meant.
TEST(Lowering, TheVerifierMissesASizeOfItsOwn) {
  const Lowered r = check(R"(graph "sizes" (x: f32[N], c: bool[N], d: bool[N]) -> (y, z) {
    y = Compress(x, c) {axis = 0}
    z = Compress(x, d) {axis = 0}
  })");
  Program shared = r.plain;
  std::vector<LibraryCall *> calls;
  for (Kernel &kernel : shared.kernels)
    if (LibraryCall *call = std::get_if<LibraryCall>(&kernel.body); call && kernel.alive) calls.push_back(call);
  ASSERT_EQ(calls.size(), 2u) << print(shared);
  calls[1]->defines = calls[0]->defines;
  Diagnostics diagnostics;
  EXPECT_FALSE(verify(shared, diagnostics).ok());
  EXPECT_NE(said(diagnostics).find("P13"), std::string::npos) << said(diagnostics);
}

// P16: an offset of too many parts saturates, and would be taken for a number.
TEST(Lowering, TheVerifierMissesAnOffsetThatIsNoValue) {
  const Lowered r = check(R"(graph "rows" (x: f32[N,M]) -> (y) {
    y = Tanh(x)
  })");
  Program large = r.plain;
  Dim parts = 0;
  for (int k = 0; k < 40; ++k) parts = parts + large.dims->model_symbol("p" + std::to_string(k));
  LoopNest &nest = *large.kernel(large.order[0]).nest();
  Dim &row = nest.stages[0].outputs[0].index[0];
  row = row + parts * parts;
  EXPECT_TRUE(addressable(large, nest));
  row = row * parts * parts;
  EXPECT_FALSE(addressable(large, nest));
  Diagnostics diagnostics;
  EXPECT_FALSE(verify(large, diagnostics).ok());
  EXPECT_NE(said(diagnostics).find("P16"), std::string::npos) << said(diagnostics);
}

}  // namespace
}  // namespace optc
