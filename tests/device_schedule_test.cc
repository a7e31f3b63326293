// Which buffers cross between host and GPU, and when: ir/program/device_schedule.h.
#include "ir/program/device_schedule.h"

#include <gtest/gtest.h>

#include "tests/ptx_programs.h"

namespace optc::testing {
namespace {

constexpr ElementType kF32 = ElementType::kFloat32;

// x -> a -> b -> c -> y, each twice the one before; y also reads a.
struct Chain : NestProgram {
  BufferId x, a, b, c, y;
  Chain() {
    x = input("x", kF32, {8});
    a = buffer("a", BufferKind::kTemporary, kF32, {8});
    b = buffer("b", BufferKind::kTemporary, kF32, {8});
    c = buffer("c", BufferKind::kTemporary, kF32, {8});
    y = output("y", kF32, {8});
    doubled({x}, a);
    doubled({a}, b);
    doubled({b}, c);
    doubled({c, a}, y);
  }
  void doubled(std::vector<BufferId> from, BufferId to) {
    LoopNest nest;
    Dim i = loop(nest.loops, "i", 8);
    ScalarId sum = load(from[0], {i});
    for (size_t k = 0; k < from.size(); ++k) sum = pool().binary(ScalarOp::kAdd, sum, load(from[k], {i}));
    Stage stage;
    stage.outputs.push_back(store(to, {i}, sum));
    nest.stages = {stage};
    add("make_" + program.buffer(to).name, nest);
  }
  std::string plan(std::vector<bool> on_gpu) {
    const DeviceSchedule s = plan_devices(program, on_gpu, std::vector<std::string>(on_gpu.size()));
    std::string text;
    for (size_t i = 0; i < s.copies.size(); ++i) {
      for (const DeviceCopy &copy : s.copies[i])
        text += program.buffer(copy.buffer).name + (copy.to_device ? ">" : "<") + std::to_string(i) + " ";
    }
    return text + "| " + std::to_string(s.segments) + (s.mixed() ? " mixed" : "");
  }
};

TEST(DeviceSchedule, CopiesWhatCrossesOnceAndAtTheSegmentsStart) {
  Chain n;
  EXPECT_EQ(n.plan({true, true, true, true}), "x>0 y<4 | 1");
  EXPECT_EQ(n.plan({false, false, false, false}), "| 0");
  // a is made on the GPU and read there again: it stays; b and c cross
  EXPECT_EQ(n.plan({true, true, false, true}), "x>0 b<2 c>3 y<4 | 2 mixed");
  EXPECT_EQ(n.plan({true, false, true, false}), "x>0 a<1 b>2 c<3 | 2 mixed");
  // one segment reads two buffers of the host: both go before its first kernel
  EXPECT_EQ(n.plan({false, false, true, true}), "b>2 a>2 y<4 | 1 mixed");
}

// Of a schedule that is watched the host gets what a kernel wrote, and what lies on the device for later kernels.
TEST(DeviceSchedule, AWatchedScheduleShowsEachKernelsResults) {
  Chain n;
  const auto shown = [&](std::vector<bool> on_gpu) {
    const DeviceSchedule s = plan_devices(n.program, on_gpu, std::vector<std::string>(on_gpu.size()), true);
    EXPECT_TRUE(s.watched() && s.by_host());
    std::string text;
    for (size_t i = 0; i < s.shown.size(); ++i) {
      for (const DeviceCopy &copy : s.shown[i]) text += n.program.buffer(copy.buffer).name + std::to_string(i) + " ";
      text += s.segment[i] < 0 ? "cpu " : "";
    }
    for (size_t i = 0; i < s.copies.size(); ++i)
      for (const DeviceCopy &copy : s.copies[i])
        text += n.program.buffer(copy.buffer).name + (copy.to_device ? ">" : "<") + std::to_string(i) + " ";
    return text + "| " + std::to_string(s.segments);
  };
  EXPECT_EQ(shown({true, true, true, true}), "a0 a1 b1 a2 b2 c2 a3 c3 y3 x>0 | 4");
  EXPECT_EQ(shown({true, false, true, true}), "a0 cpu a2 b2 c2 a3 c3 y3 x>0 b>2 | 3");
}

TEST(DeviceSchedule, AViewIsItsRootAndConstantsAreOnBothSides) {
  Chain n;
  Buffer view = n.program.buffer(n.b);
  view.alias = n.a;
  view.alias_offset = 0;
  n.program.buffer(n.b) = view;  // b is written into a's bytes
  EXPECT_EQ(n.plan({true, false, true, true}), "x>0 a<1 a>2 y<4 | 2 mixed");
  n.program.buffer(n.x).kind = BufferKind::kConstant;
  EXPECT_EQ(n.plan({true, true, true, true}), "y<4 | 1");
}

TEST(DeviceSchedule, SizesThatAKernelFindsAreListedWhereTheGpuNeedsThem) {
  NestProgram n;
  Dim count = n.program.dims->new_symbol(SymbolKind::kData, "count");
  n.pointwise(kF32, kF32, {count, 4}, [](ScalarPool &, ScalarId x) { return x; });
  const Kernel &kernel = n.program.kernel(n.program.order[0]);
  EXPECT_EQ(data_symbols(n.program, kernel), std::vector<const DimSymbol *>{single_symbol(count)});
  EXPECT_EQ(plan_devices(n.program, {true}, {""}).data_symbols.size(), 1u);
  EXPECT_TRUE(plan_devices(n.program, {false}, {"why"}).data_symbols.empty());
  EXPECT_TRUE(found_at_run_time(count * Dim(4)));
  EXPECT_FALSE(found_at_run_time(Dim(4)));
}

}  // namespace
}  // namespace optc::testing
