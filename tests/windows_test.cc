// lowering/layout/windows.cc: convolutions of few channels on a GPU read a copy of their image in runs, and still
// compute the same.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/lowered.h"

namespace optc {
namespace {

struct Case {
  int64_t channels, height, width, filters;
  int64_t kernel[2], strides[2], begin[2], end[2];
  int64_t dilation = 1;  // between lines
};

std::string two(const int64_t *n) { return "ints [" + std::to_string(n[0]) + ", " + std::to_string(n[1]) + "]"; }

std::string text(const Case &c, const std::string &type = "f32") {
  const auto n = [](int64_t v) { return std::to_string(v); };
  return "graph \"g\" (x: " + type + "[N," + n(c.channels) + "," + n(c.height) + "," + n(c.width) +
         "]) -> (y) {\n  const w: " + type + "[" + n(c.filters) + "," + n(c.channels) + "," + n(c.kernel[0]) + "," +
         n(c.kernel[1]) + "] = hash \"a\"\n  const b: " + type + "[" + n(c.filters) +
         "] = hash \"b\"\n  a = Conv(x, w, b) {dilations = ints [" + n(c.dilation) +
         ", 1], group = 1, kernel_shape = " + two(c.kernel) + ", pads = ints [" + n(c.begin[0]) + ", " + n(c.begin[1]) +
         ", " + n(c.end[0]) + ", " + n(c.end[1]) + "], strides = " + two(c.strides) +
         ", auto_pad = \"NOTSET\"}\n  y = Relu(a) }";
}

LoweringOptions options() {
  LoweringOptions o;
  o.target = LoweringOptions::Target::kGpu;
  o.least_window_products = 0;
  o.warpgroups = true;
  o.precision = ElementType::kFloat16;
  return o;
}

bool made(const Lowered &lowered) {
  return std::any_of(lowered.report.steps.begin(), lowered.report.steps.end(),
                     [](const LoweringStep &s) { return s.name == "layout.windows"; });
}

TEST(Windows, OfEveryShape) {
  const Case cases[] = {
      {3, 16, 18, 8, {7, 7}, {2, 2}, {3, 3}, {3, 3}},   {3, 12, 12, 16, {4, 4}, {4, 4}, {0, 0}, {0, 0}},
      {1, 9, 11, 8, {3, 3}, {1, 1}, {1, 1}, {1, 1}},    {5, 9, 10, 6, {3, 2}, {1, 3}, {0, 1}, {2, 0}},
      {12, 6, 7, 9, {1, 3}, {2, 1}, {0, 2}, {0, 2}},    {3, 7, 9, 8, {3, 1}, {1, 2}, {1, 0}, {1, 0}},
      {4, 10, 8, 8, {3, 3}, {1, 1}, {2, 1}, {2, 1}, 2}, {3, 32, 32, 8, {16, 16}, {16, 16}, {0, 0}, {0, 0}},
      {3, 5, 6, 1, {5, 3}, {1, 1}, {0, 1}, {0, 1}},   // one line, one filter
      {3, 6, 4, 8, {3, 4}, {1, 1}, {1, 0}, {1, 0}}};  // one column
  for (const Case &c : cases)
    for (int64_t images : {1, 3}) {
      SCOPED_TRACE(text(c));
      const Lowered lowered = lower_text(text(c), options());
      EXPECT_TRUE(made(lowered)) << lowered.text;
      expect_same_results(
          lowered, [images](const DimSymbol &) { return std::optional<int64_t>(images); }, 5e-3);
    }
}

TEST(Windows, OnlyWhereTheyPay) {
  const Case stem{3, 16, 18, 8, {7, 7}, {2, 2}, {3, 3}, {3, 3}};
  LoweringOptions o = options();
  o.least_window_products = 1 << 20;
  EXPECT_FALSE(made(lower_text(text(stem), o)));
  o = options();
  o.precision = ElementType::kFloat32;
  EXPECT_FALSE(made(lower_text(text(stem), o)));
  o = options();
  o.target = LoweringOptions::Target::kCpu;
  EXPECT_FALSE(made(lower_text(text(stem), o)));
  Case wide = stem;
  wide.channels = 16;
  EXPECT_FALSE(made(lower_text(text(wide), options())));
  EXPECT_TRUE(made(lower_text(text(stem, "f16"), options())));
}

}  // namespace
}  // namespace optc
