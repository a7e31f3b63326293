// Products on warpgroups (emit/ptx/warpgroup.h): run by the emulator against references in double, and what the
// emulator says of kernels that wait too little.

#include <gtest/gtest.h>

#include <cmath>

#include "tests/ptx_machine.h"

namespace optc::testing {
namespace {

const std::vector<std::string> kNoOther = {"schedule.gemm.tensor_core"};

void check(const Product &c, int tile, uint64_t seed, int multiprocessors = 0) {
  NestProgram n;
  n.matmul(c.type, c.batch, c.m, c.n, c.k, c.transposed, c.batched);
  Machine m(n.program, "3xtf32", "sm_90a", 0, kNoOther, tile, multiprocessors);
  ASSERT_EQ(m.output.kernels.size(), 1u);
  const std::string form = m.output.kernels[0].form;
  ASSERT_NE(form.find(" wgmma "), std::string::npos) << form;
  m.fill(6);
  m.run(seed);
  expect_product(m, n.program, c, 3 * rounding(c.type), form);
}

constexpr int kTiles = 6;  // of lowering/schedule/warpgroup.cc

TEST(PtxWarpgroup, EveryTileInBothLayouts) {
  for (int tile = 0; tile < kTiles; ++tile)
    for (bool transposed : {false, true}) check({kF16, 1, 128, 128, 192, transposed, false}, tile, 3);
}

TEST(PtxWarpgroup, RaggedShapesAndShortSums) {
  for (int tile = 0; tile < kTiles; ++tile) {
    check({kF16, 1, 70, 200, 104, true, false}, tile, 5);
    check({kBF16, 1, 137, 72, 40, false, false}, tile, 7);
    check({kF16, 1, 8, 8, 16, true, false}, tile, 8);
  }
}

TEST(PtxWarpgroup, ManyStepsAndManyTiles) {
  for (int tile = 0; tile < kTiles; ++tile) check({kF16, 1, 64, 64, 1032, false, false}, tile, 2);
  for (int tile = 1; tile < kTiles; tile += 2) check({kF16, 1, 520, 264, 1000, tile % 4 == 1, false}, tile, 11);
  // More tiles than blocks: each walks several, with the ring in any state, and groups of rows of tiles that end early.
  for (int tile = 0; tile < kTiles; ++tile) {
    check({kF16, 1, 650, 200, 136, true, false}, tile, 4, 3);
    check({kF16, 1, 300, 520, 72, false, false}, tile, 9, 2);
    check({kF16, 2, 200, 264, 200, false, true}, tile, 10, 1);
  }
}

TEST(PtxWarpgroup, Batches) {
  for (bool transposed : {false, true}) {
    check({kF16, 3, 40, 72, 64, transposed, true}, 0, 4);
    check({kBF16, 3, 130, 136, 80, transposed, true}, 3, 4);
    check({kF16, 3, 40, 72, 64, transposed, false}, 2, 4);  // rows of one product
  }
}

// The kernel's text with every place of `what` taken by `by`, in the emulator.
std::string fault_of(const std::string &what, const std::string &by) {
  NestProgram n;
  n.matmul(kF16, 1, 256, 128, 768, true, false);  // more steps than the ring has stages
  Machine m(n.program, "3xtf32", "sm_90a", 0, kNoOther, 2);
  m.fill(6);
  EXPECT_EQ(m.fault(), "");
  std::string &text = m.output.modules[0].text;
  size_t count = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size(), ++count)
    text.replace(at, what.size(), by);
  EXPECT_GT(count, 0u) << what;
  for (uint64_t seed = 1; seed < 9; ++seed)  // some orders are lucky
    if (std::string said = m.fault(seed); !said.empty()) return said;
  return "";
}

TEST(PtxWarpgroup, TheEmulatorFindsWaitsThatAreMissing) {
  const auto expect = [](const std::string &what, const std::string &by, const std::string &said) {
    const std::string fault = fault_of(what, by);
    EXPECT_NE(fault.find(said), std::string::npos) << what << ": '" << fault << "'";
  };
  expect("wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 1;",
         "a register that a product still holds");
  expect("wgmma.wait_group.sync.aligned 1;", "wgmma.wait_group.sync.aligned 7;",
         "a copy to what a product still reads");
  expect("wgmma.fence.sync.aligned;", "wgmma.wait_group.sync.aligned 7;", "without wgmma.fence");
  expect("fence.mbarrier_init.release.cluster;", "griddepcontrol.launch_dependents;",
         "a copy before the barriers' making");
  EXPECT_NE(fault_of("@!p bra W", "// "), "");
  expect("], 24576;", "], 24592;", "hangs");
}

// A product that tensor maps cannot name goes the other way, and a bundle that serves an older card too.
TEST(PtxWarpgroup, OnlyWhereTensorMapsCanNameTheOperands) {
  struct Case {
    ElementType type;
    int64_t m, n, k;
    bool transposed;
    const char *target;
  };
  for (const Case &c : {Case{kF16, 256, 256, 100, true, "sm_90a"}, Case{kF16, 256, 250, 128, false, "sm_90a"},
                        Case{kF32, 256, 256, 128, true, "sm_90a"}, Case{kF16, 256, 256, 128, true, "sm_90"}}) {
    NestProgram n;
    n.matmul(c.type, 1, c.m, c.n, c.k, c.transposed, false);
    Machine m(n.program, "3xtf32", c.target);
    EXPECT_EQ(m.output.kernels[0].form.find(" wgmma "), std::string::npos) << m.output.kernels[0].form;
    EXPECT_EQ(m.output.kernels[0].form.rfind("gemm.", 0), 0u);
  }
}

}  // namespace
}  // namespace optc::testing
