// Convolutions on warpgroups (TMA's im2col): run by the emulator against sums in double, and those that go another way.

#include <gtest/gtest.h>

#include "tests/ptx_machine.h"

namespace optc::testing {
namespace {

using Convolution = NestProgram::Convolution;

constexpr int kTiles = 6;  // of lowering/schedule/warpgroup.cc

// `symbolic`: the number of images is known at run time only.
void check(const Convolution &c, int tile = -1, uint64_t seed = 1, int multiprocessors = 0, bool symbolic = false) {
  NestProgram n;
  const Dim images = symbolic ? n.program.dims->model_symbol("N") : Dim(c.batch);
  if (symbolic) n.program.sources.push_back({single_symbol(images), 0, 0});
  n.convolution(c, images);
  Machine m(n.program, "3xtf32", "sm_90a", 0, {"schedule.gemm.tensor_core", "schedule.gemm.warpgroup"}, tile,
            multiprocessors);
  ASSERT_EQ(m.output.kernels.size(), 1u);
  const std::string form = m.output.kernels[0].form;
  ASSERT_EQ(form.rfind("conv.", 0), 0u) << form;
  ASSERT_NE(form.find(" image"), std::string::npos) << form;
  m.fill(6, [&](const DimSymbol &) { return c.batch; });
  m.run(seed);
  expect_convolution(m, n.program, c, form);
}

TEST(PtxConvolution, EveryTileInBothLayouts) {
  for (int tile = 0; tile < kTiles; ++tile)
    for (bool filters_last : {false, true}) {
      Convolution c;
      c.batch = 2;
      c.size = {7, 9};
      c.channels = 72;  // a step of 64 and one of 8
      c.out = 72;
      c.filters_last = filters_last;
      c.residual = true;
      check(c, tile, 3);
    }
}

TEST(PtxConvolution, StridesPadsAndDilationsOfEachDim) {
  Convolution c;
  c.size = {11, 13};
  c.channels = 16;
  c.out = 24;
  std::mt19937 random(5);
  const auto draw = [&](int least, int most) { return std::uniform_int_distribution<int64_t>(least, most)(random); };
  for (int i = 0; i < 24; ++i) {
    Convolution v = c;
    v.type = i % 3 == 0 ? kBF16 : kF16;
    v.batch = draw(1, 3);
    for (size_t d = 0; d < 2; ++d) {
      v.kernel[d] = draw(1, 4);
      v.strides[d] = draw(1, 3);
      v.dilations[d] = draw(1, 2);
      v.begin[d] = draw(0, 3);
      v.end[d] = draw(0, 3);
      v.size[d] = draw(7, 12);
    }
    if (v.kernel == std::array<int64_t, 2>{1, 1}) v.strides[1] = 2;  // else it is a plain product
    SCOPED_TRACE(i);
    check(v, i % kTiles, static_cast<uint64_t>(i + 1));
  }
}

TEST(PtxConvolution, DimsOfOneElement) {
  Convolution c;
  c.size = {1, 20};
  c.kernel = {1, 3};
  c.begin = c.end = {0, 1};
  c.channels = 24;
  {
    SCOPED_TRACE("a line");
    check(c, 0);
    c.batch = 3;
    check(c, 2);
  }
  c.batch = 5;
  c.size = {4, 3};
  c.begin = c.end = {0, 0};
  c.end = {0, 1};
  for (const auto &kernel : {std::array<int64_t, 2>{4, 4}, {4, 1}, {3, 4}, {1, 4}}) {
    SCOPED_TRACE(std::to_string(kernel[0]) + " x " + std::to_string(kernel[1]));
    c.kernel = kernel;
    check(c, static_cast<int>(kernel[0]));
  }
}

TEST(PtxConvolution, PointwiseWithStridesOrPads) {
  Convolution c;
  c.batch = 2;
  c.size = {9, 8};
  c.kernel = {1, 1};
  c.strides = {2, 2};
  c.begin = c.end = {0, 0};
  c.channels = 136;
  c.out = 64;
  check(c, 2);
  c.strides = {1, 1};
  c.begin = {1, 0};
  c.end = {0, 2};
  check(c, 3);
}

// More tiles than blocks, images that end inside of a tile, and their number known at run time.
TEST(PtxConvolution, ManyTilesAndImages) {
  for (int tile = 0; tile < kTiles; ++tile) {
    Convolution c;
    c.batch = 5;
    c.size = {10, 11};
    c.channels = 64;
    c.out = 136;
    c.strides = {1, 2};
    check(c, tile, 7, 3, true);
  }
}

// Results whose pixels lie together: the image is the product's second operand.
TEST(PtxConvolution, ImagesAlongTheColumns) {
  for (int tile = 0; tile < kTiles; ++tile) {
    Convolution c;
    c.batch = 2;
    c.size = {8, 8};
    c.channels = 40;
    c.out = 80;
    c.images_last = true;
    c.residual = true;
    check(c, tile, 11);
  }
}

// What lowering/layout/windows.cc makes of an image of few channels.
TEST(PtxConvolution, RunsThatOverlap) {
  for (int tile = 0; tile < kTiles; ++tile) {
    constexpr int64_t kImages = 2, kRows = 6, kColumns = 9, kLines = 3, kStep = 8, kRun = 32, kOut = 40;
    NestProgram n;
    n.runs(kImages, kRows, kColumns, kLines, kStep, kRun, kOut);
    Machine m(n.program, "3xtf32", "sm_90a", 0, {"schedule.gemm.tensor_core"}, tile, 2);
    ASSERT_EQ(m.output.kernels.size(), 1u);
    ASSERT_EQ(m.output.kernels[0].form.rfind("conv.", 0), 0u) << m.output.kernels[0].form;
    m.fill(6);
    m.run(4);
    constexpr int64_t kHeight = 2 * (kRows - 1) + kLines, kLine = (kColumns - 1) * kStep + kRun;
    for (int64_t i = 0; i < kImages * kRows * kColumns * kOut; ++i) {
      const int64_t o = i % kOut, q = i / kOut % kColumns, p = i / kOut / kColumns % kRows,
                    image = i / kOut / kColumns / kRows;
      double sum = 0, size = 1;
      for (int64_t r = 0; r < kLines; ++r)
        for (int64_t j = 0; j < kRun; ++j) {
          const int64_t x = (image * kHeight + 2 * p + r) * kLine + q * kStep + j, w = (o * kLines + r) * kRun + j;
          const double term =
              m.get(n.program.inputs[0], static_cast<size_t>(x)) * m.get(n.program.inputs[1], static_cast<size_t>(w));
          sum += term;
          size += std::fabs(term);
        }
      ASSERT_NEAR(m.get(n.program.outputs[0], static_cast<size_t>(i)), sum, 3e-3 * size) << i;
    }
  }
}

TEST(PtxConvolution, OnlyWhereTensorMapsCanNameTheOperands) {
  const auto form = [](Convolution c, const char *target = "sm_90a") {
    NestProgram n;
    n.convolution(c, c.batch);
    Machine m(n.program, "3xtf32", target);
    return m.output.kernels[0].form;
  };
  Convolution c;
  c.size = {64, 64};
  c.batch = 8;
  c.channels = c.out = 64;
  EXPECT_EQ(form(c).rfind("conv.f16 wgmma ", 0), 0u) << form(c);
  EXPECT_EQ(form(c, "sm_90").rfind("gemm.f16 ", 0), 0u);
  Convolution odd = c;
  odd.channels = 12;
  EXPECT_EQ(form(odd).rfind("gemm.f16 ", 0), 0u);
  Convolution far = c;  // farther than a window can reach
  far.dilations = {1, 130};
  far.begin = far.end = {1, 130};
  EXPECT_EQ(form(far).rfind("gemm.f16 ", 0), 0u);
  Convolution wide = c;
  wide.strides = {9, 1};
  EXPECT_EQ(form(wide).rfind("gemm.f16 ", 0), 0u);
  // TMA's border is 0, from the image's own end on.
  for (const auto border : {Convolution::Border::kEdge, Convolution::Border::kInside}) {
    Convolution other = c;
    other.border = border;
    EXPECT_EQ(form(other).rfind("gemm.f16 ", 0), 0u) << form(other);
  }
  Convolution single = c;
  single.type = kF32;
  EXPECT_EQ(form(single).find("wgmma"), std::string::npos);
}

}  // namespace
}  // namespace optc::testing
