// Depthwise convolutions (emit/ptx/depthwise.cc): run by the emulator against references in double.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/ptx_machine.h"

namespace optc::testing {
namespace {

struct Convolution {
  ElementType type = kF16;
  int64_t batch = 1, channels = 8, height = 9, width = 11;
  int64_t kernel[2] = {3, 3}, strides[2] = {1, 1}, dilations[2] = {1, 1};
  int64_t pads[4] = {1, 1, 1, 1};                 // top, left, bottom, right
  bool innermost = true;                          // channels of the input
  bool result_innermost = true;                   // and of the result
  bool line = false;                              // one dimension, the width
  bool symbolic = false;                          // batch, height and width are known at run time only
  ElementType weights = ElementType::kUndefined;  // of another type than the input
  int64_t reach(int i) const { return (kernel[i] - 1) * dilations[i] + 1; }
  int64_t outputs(int i) const { return ((i ? width : height) + pads[i] + pads[2 + i] - reach(i)) / strides[i] + 1; }
};

// y = convolution + bias[c] + r, all in the layouts that `c` names.
class Depthwise {
 public:
  explicit Depthwise(const Convolution &c) : c_(c) {
    Program &p = n_.program;
    uint32_t axis = 0;
    const auto size = [&](const char *name, int64_t value) {
      if (!c.symbolic) return Dim(value);
      const Dim d = p.dims->model_symbol(name);
      p.sources.push_back({single_symbol(d), 0, axis});
      axis = axis == 0 ? 2 : axis + 1;
      return d;
    };
    const Dim batch = size("N", c.batch), height = size("H", c.height), width = size("W", c.width);
    const auto outputs = [&](Dim in, int i) {
      return floor_div(in + Dim(c.pads[i] + c.pads[2 + i] - c.reach(i)), c.strides[i]) + 1;
    };
    const Dim oh = outputs(height, 0), ow = outputs(width, 1);
    const auto shape = [&](Dim h, Dim w) {
      return c.line ? Shape{batch, c.channels, w} : Shape{batch, c.channels, h, w};
    };
    x = n_.input("x", c.type, shape(height, width));
    const Shape kernel = c.line ? Shape{c.channels, 1, c.kernel[1]} : Shape{c.channels, 1, c.kernel[0], c.kernel[1]};
    w = n_.input("w", c.weights == ElementType::kUndefined ? c.type : c.weights, kernel);
    bias = n_.input("bias", kF32, {c.channels});
    r = n_.input("r", c.type, shape(oh, ow));
    y = n_.output("y", c.type, shape(oh, ow));
    const std::vector<int> last = c.line ? std::vector<int>{0, 2, 1} : std::vector<int>{0, 2, 3, 1};
    if (c.innermost) p.buffer(x).order = {last.begin(), last.end()};
    if (c.result_innermost)
      for (BufferId b : {r, y}) p.buffer(b).order = {last.begin(), last.end()};

    LoopNest nest;
    Stage products, finish;
    Contraction k;
    k.kind = ContractionKind::kConvolution;
    const auto loop = [&](std::vector<Loop> &loops, const char *name, Dim extent, auto &role) {
      if (extent.is(1)) return Dim(0);
      const Dim d = n_.loop(loops, name, extent);
      role.push_back(single_symbol(d));
      return d;
    };
    const Dim in = loop(nest.loops, "n", batch, k.batch), g = loop(nest.loops, "g", c.channels, k.batch);
    const Dim p0 = c.line ? Dim(0) : loop(nest.loops, "p", oh, k.m), q = loop(nest.loops, "q", ow, k.m);
    const Dim k0 = c.line ? Dim(0) : loop(products.loops, "k0", c.kernel[0], k.k),
              k1 = loop(products.loops, "k1", c.kernel[1], k.k);
    const auto &pool = [&]() -> ScalarPool & { return n_.pool(); };
    ScalarId condition;
    const auto at = [&](Dim o, Dim tap, int i, Dim extent) {
      const Dim d = o * Dim(c.strides[i]) + tap * Dim(c.dilations[i]) - Dim(c.pads[i]);
      ScalarId low = pool().binary(ScalarOp::kLe, pool().constant_int(ElementType::kInt64, 0), pool().index(d));
      ScalarId high = pool().binary(ScalarOp::kLt, pool().index(d), pool().index(extent));
      ScalarId both = pool().binary(ScalarOp::kAnd, low, high);
      condition = condition.valid() ? pool().binary(ScalarOp::kAnd, condition, both) : both;
      return max(min(d, extent - Dim(1)), 0);
    };
    std::vector<Dim> index{in, g}, taps{g, 0}, result{in, g};
    if (!c.line) index.push_back(at(p0, k0, 0, height)), taps.push_back(k0), result.push_back(p0);
    index.push_back(at(q, k1, 1, width)), taps.push_back(k1), result.push_back(q);
    k.lhs = n_.load(x, index);
    k.rhs = n_.load(w, taps);
    for (int i = c.line ? 1 : 0; i < 2; ++i) {
      k.kernel.push_back(c.kernel[i]), k.strides.push_back(c.strides[i]), k.dilations.push_back(c.dilations[i]);
      k.pads_begin.push_back(c.pads[i]), k.pads_end.push_back(c.pads[2 + i]);
    }
    k.group = c.channels;
    const ScalarId padded = pool().select(condition, k.lhs, pool().constant(kF32, 0));
    const LocalId sum = n_.local(nest, "sum", kF32);
    products.outputs.push_back(n_.reduce(sum, Combine::kSum, pool().binary(ScalarOp::kMul, padded, k.rhs)));
    ScalarId v = pool().binary(ScalarOp::kAdd, pool().local(sum, kF32, {}), n_.load(bias, {g}));
    finish.outputs.push_back(n_.store(y, result, pool().binary(ScalarOp::kAdd, v, n_.load(r, result))));
    nest.contraction = k;
    nest.stages = {products, finish};
    n_.add("depthwise", std::move(nest));
  }

  int64_t symbol(const DimSymbol &s) const { return s.name == "N" ? c_.batch : s.name == "H" ? c_.height : c_.width; }
  // The element [n, c, h, w] of a tensor of that size, as it lies.
  size_t place(bool innermost, int64_t n, int64_t c, int64_t h, int64_t w, int64_t height, int64_t width) const {
    return static_cast<size_t>(innermost ? ((n * height + h) * width + w) * c_.channels + c
                                         : ((n * c_.channels + c) * height + h) * width + w);
  }
  size_t input_at(int64_t n, int64_t c, int64_t h, int64_t w) const {
    return place(c_.innermost, n, c, h, w, c_.height, c_.width);
  }
  size_t result_at(int64_t n, int64_t c, int64_t h, int64_t w) const {
    return place(c_.result_innermost, n, c, h, w, outputs(0), c_.outputs(1));
  }
  int64_t outputs(int i) const { return c_.line && i == 0 ? 1 : c_.outputs(i); }

  void check(Machine &m) const {
    const int64_t oh = outputs(0), ow = outputs(1), rows = c_.line ? 1 : c_.kernel[0];
    for (int64_t n = 0; n < c_.batch; ++n)
      for (int64_t c = 0; c < c_.channels; ++c)
        for (int64_t i = 0; i < oh; ++i)
          for (int64_t j = 0; j < ow; ++j) {
            double sum = 0, size = 1;
            for (int64_t a = 0; a < rows; ++a)
              for (int64_t b = 0; b < c_.kernel[1]; ++b) {
                const int64_t h = c_.line ? 0 : i * c_.strides[0] + a * c_.dilations[0] - c_.pads[0],
                              v = j * c_.strides[1] + b * c_.dilations[1] - c_.pads[1];
                const bool inside = h >= 0 && v >= 0 && h < (c_.line ? 1 : c_.height) && v < c_.width;
                const double term = (inside ? m.get(x, c_.line ? line_at(n, c, v) : input_at(n, c, h, v)) : 0) *
                                    m.get(w, static_cast<size_t>((c * rows + a) * c_.kernel[1] + b));
                sum += term;
                size += std::fabs(term);
              }
            const size_t to = result_at(n, c, i, j);
            sum += m.get(bias, static_cast<size_t>(c)) + m.get(r, to);
            const double got = m.get(y, to);
            if (std::isfinite(sum)) {
              ASSERT_NEAR(got, sum, 3 * rounding(c_.type) * size) << n << "," << c << "," << i << "," << j;
            } else {
              ASSERT_TRUE(std::isnan(sum) ? std::isnan(got) : got == sum)
                  << got << " for " << sum << " at " << n << "," << c << "," << i << "," << j;
            }
          }
  }
  size_t line_at(int64_t n, int64_t c, int64_t v) const { return place(c_.innermost, n, c, 0, v, 1, c_.width); }

  Program &program() { return n_.program; }
  BufferId x, w, bias, r, y;

 private:
  Convolution c_;
  NestProgram n_;
};

void check(const Convolution &c, const std::string &target = "sm_80", const std::string &form = "depthwise ") {
  SCOPED_TRACE(::testing::Message() << "type " << static_cast<int>(c.type) << " batch " << c.batch << " channels "
                                    << c.channels << " of " << c.height << "x" << c.width << ", kernel " << c.kernel[0]
                                    << "x" << c.kernel[1] << (c.innermost ? " innermost" : "")
                                    << (c.line ? " line" : "") << (c.symbolic ? " symbolic" : ""));
  Depthwise d(c);
  Machine m(d.program(), "3xtf32", target);
  ASSERT_EQ(m.output.kernels.size(), 1u);
  EXPECT_EQ(m.output.kernels[0].form.rfind(form, 0), 0u) << m.output.kernels[0].form;
  m.fill(5, [&](const DimSymbol &s) { return d.symbol(s); });
  m.run(2);
  d.check(m);
}

TEST(PtxDepthwise, AllTypesLayoutsAndNumbersOfChannels) {
  for (ElementType type : {kF16, kBF16, kF32})
    for (int64_t channels : {40, 6, 5}) {  // four, two and one at a time; 40: two blocks, the second is not full
      check({.type = type, .channels = channels});
      check({.type = type, .channels = channels, .innermost = false, .result_innermost = false});
    }
  check({.innermost = false});
  check({.result_innermost = false});
  check({.weights = kF32});
  check({.type = kF32, .weights = kF16});
}

TEST(PtxDepthwise, KernelsStridesDilationsAndPads) {
  for (bool innermost : {true, false}) {
    const auto of = [&](Convolution c) {
      c.innermost = c.result_innermost = innermost;
      check(c);
    };
    of({.batch = 2, .height = 8, .width = 15, .kernel = {7, 7}, .pads = {3, 3, 3, 3}});
    of({.batch = 3, .kernel = {5, 5}, .strides = {2, 2}, .pads = {2, 2, 2, 2}});
    of({.strides = {2, 2}, .pads = {0, 0, 1, 1}});
    of({.height = 12, .strides = {2, 1}, .dilations = {1, 2}, .pads = {0, 3, 2, 1}});
    of({.width = 20, .strides = {1, 3}, .dilations = {3, 1}, .pads = {4, 0, 0, 2}});
    of({.kernel = {1, 7}, .pads = {0, 3, 0, 3}});
    of({.kernel = {7, 1}, .pads = {3, 0, 3, 0}});
    of({.kernel = {11, 11}, .pads = {5, 5, 5, 5}});
    of({.kernel = {2, 2}, .pads = {0, 0, 0, 0}});
    of({.kernel = {3, 3}, .pads = {5, 6, 4, 7}});                            // whole lines of padding
    of({.height = 7, .width = 7, .kernel = {7, 7}, .pads = {0, 0, 0, 0}});   // one pixel
    of({.height = 3, .width = 40, .kernel = {3, 3}, .pads = {0, 1, 0, 1}});  // one line
    of({.width = 3, .kernel = {3, 3}, .pads = {1, 0, 1, 0}});                // one column
  }
}

TEST(PtxDepthwise, Lines) {
  for (bool innermost : {true, false}) {
    Convolution c{.batch = 3, .channels = 12, .width = 37, .kernel = {1, 5}, .pads = {0, 4, 0, 1}};
    c.line = true;
    c.innermost = c.result_innermost = innermost;
    check(c);
    c.strides[1] = 2;
    c.type = kF32;
    check(c);
    c.kernel[1] = 23;
    c.pads[1] = 11;
    check(c);
  }
}

TEST(PtxDepthwise, SizesKnownAtRunTime) {
  for (bool innermost : {true, false})
    for (int64_t width : {1, 16, 37}) {
      Convolution c{.batch = 3, .channels = 8, .height = 5, .width = width};
      c.symbolic = true;
      c.innermost = c.result_innermost = innermost;
      check(c);
      c.strides[0] = c.strides[1] = 2;
      check(c, "sm_90a");
    }
}

TEST(PtxDepthwise, WhatIsNotFiniteReachesWhereItIsSummedAndNoFurther) {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (ElementType type : {kF16, kBF16, kF32})
    for (bool innermost : {true, false}) {
      Convolution c{.type = type, .batch = 2, .channels = 8, .height = 10, .width = 17, .kernel = {3, 5}};
      c.pads[1] = c.pads[3] = 2;
      c.innermost = c.result_innermost = innermost;
      Depthwise d(c);
      Machine m(d.program());
      m.fill(5);
      m.put(d.x, d.input_at(0, 1, 0, 0), infinity);
      m.put(d.x, d.input_at(0, 2, 9, 16), nan);
      m.put(d.x, d.input_at(1, 3, 4, 8), -infinity);
      m.put(d.x, d.input_at(0, 4, 0, 16), -infinity);
      m.put(d.w, static_cast<size_t>(5 * 15), infinity);  // times the padding: NaN, as the nest has it
      m.run(2);
      d.check(m);
    }
}

TEST(PtxDepthwise, OtherConvolutionsGoOtherWays) {
  const auto form = [](const Convolution &c) {
    Depthwise d(c);
    return Machine(d.program()).output.kernels[0].form;
  };
  Convolution wide{.width = 200, .kernel = {1, 150}, .pads = {0, 0, 0, 0}};
  EXPECT_NE(form(wide).rfind("depthwise ", 0), 0u);
  Convolution far{.width = 200, .dilations = {1, 40}, .pads = {0, 0, 0, 0}};
  EXPECT_NE(form(far).rfind("depthwise ", 0), 0u);
}

}  // namespace
}  // namespace optc::testing
