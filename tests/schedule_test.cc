// Schedules: what lowering chooses, that it is said and read back, that the verifier sees a wrong one and emit refuses
// it. (The memory that it asks for: schedule_scratch_test.cc.)
#include "ir/program/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "emit/cpp/emit.h"
#include "ir/program/gpu_machine.h"
#include "ir/program/tensor_core.h"
#include "tests/schedule_graphs.h"

namespace optc {
namespace {

TEST(Schedule, IsChosenSaidAndReadBack) {
  for (const auto &[schedule, text, options] : all_cases()) {
    SCOPED_TRACE(text);
    const Lowered lowered = lower_text(text, options);
    ASSERT_TRUE(find(lowered.program, schedule)) << lowered.text;
    for (KernelId k : lowered.program.order) {
      const Schedule &chosen = lowered.program.kernel(k).schedule;
      const std::string line = print(lowered.program, chosen);
      Diagnostics diagnostics;
      const Result<Schedule> read = parse_schedule(line, lowered.program, diagnostics);
      ASSERT_TRUE(read.ok()) << line << "\n" << said(diagnostics);
      EXPECT_EQ(read->index(), chosen.index());
      EXPECT_EQ(print(lowered.program, *read), line);
      EXPECT_NE(lowered.text.find("schedule " + line + "\n"), std::string::npos) << line;
    }
  }
}

TEST(Schedule, WrongTextIsAnError) {
  const Lowered lowered = lower_text(kGraphs[4].second, {});
  const std::string line = print(lowered.program, find(lowered.program, "gemm")->schedule);
  const auto error = [&](std::string text) {
    Diagnostics diagnostics;
    EXPECT_FALSE(parse_schedule(text, lowered.program, diagnostics).ok()) << text;
    return said(diagnostics);
  };
  const auto with = [&](const std::string &from, const std::string &to) {
    std::string text = line;
    EXPECT_NE(text.find(from), std::string::npos) << line;
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_NE(error("gem").find("'gem' is no schedule"), std::string::npos);
  EXPECT_NE(error("gemm").find("the field 'view.batch' is missing"), std::string::npos);
  EXPECT_NE(error(line + "; more=1").find("one field too many"), std::string::npos);
  EXPECT_NE(error(with("view.rows=", "view.row=")).find("expected the field 'view.rows'"), std::string::npos);
  EXPECT_NE(error(with("view.rows=N", "view.rows=N +")).find("no value of the field 'view.rows'"), std::string::npos);
  EXPECT_NE(error(with("view.rows=N", "view.rows=M")).find("no value of the field 'view.rows'"), std::string::npos);
  EXPECT_NE(error(with("packed=w_packed", "packed=other")).find("no value of the field 'packed'"), std::string::npos);
  EXPECT_NE(error(with("partial=none", "partial=some")).find("no value of the field 'partial'"), std::string::npos);
  for (size_t i = 0; i < line.size(); ++i) {  // cut anywhere: never a schedule, never a crash
    Diagnostics diagnostics;
    const auto read = parse_schedule(line.substr(0, i), lowered.program, diagnostics);
    EXPECT_TRUE(!read.ok() || print(lowered.program, *read) != line) << i;
  }
}

// Each of these makes a schedule that says something else than its nest.
TEST(Schedule, TheVerifierSeesAWrongOne) {
  const auto plant = [](const std::string &schedule, const std::string &number, const auto &fault, size_t which = 0) {
    for (const auto &[wanted, text, options] : all_cases()) {
      if (wanted != schedule || which-- > 0) continue;
      SCOPED_TRACE(text);
      Lowered lowered = lower_text(text, options);
      const Kernel *kernel = find(lowered.program, schedule);
      ASSERT_TRUE(kernel);
      fault(lowered.program, const_cast<Kernel *>(kernel)->schedule);
      Diagnostics diagnostics;
      EXPECT_FALSE(verify(lowered.program, diagnostics).ok()) << print(lowered.program, *kernel);
      EXPECT_NE(said(diagnostics).find("verifier " + number), std::string::npos) << said(diagnostics);
      return;
    }
    ADD_FAILURE() << "no graph";
  };
  const auto gemm = [](Schedule &s) -> GemmSchedule & { return std::get<GemmSchedule>(s); };
  plant("gemm", "S1", [](Program &, Schedule &s) { s = LibrarySchedule{}; });
  plant("library", "S1", [](Program &, Schedule &s) { s = MapSchedule{}; });
  plant("pointwise", "S1", [](Program &, Schedule &s) { s = GemmSchedule{}; });
  plant("gemm", "S2", [&](Program &, Schedule &s) { gemm(s).view.a_row = 9; });
  plant("gemm", "S2", [&](Program &, Schedule &s) { gemm(s).view.a.offset = 1; });
  plant("gemm", "S2", [&](Program &, Schedule &s) { gemm(s).view.b_inner = 8; });
  plant("gemm", "S2", [&](Program &, Schedule &s) { gemm(s).view.columns = 15; });
  plant("gemm", "S2", [&](Program &, Schedule &s) { std::swap(gemm(s).view.a.buffer, gemm(s).view.b.buffer); });
  plant("gemm", "S3", [&](Program &, Schedule &s) { gemm(s).view.m.clear(), gemm(s).view.rows = 1; });
  plant(
      "gemm", "S3", [&](Program &, Schedule &s) { gemm(s).view.batch.pop_back(); }, 1);
  plant("gemm", "S4", [&](Program &p, Schedule &s) { gemm(s).packed.buffer = p.inputs[0]; });
  // Products of bytes are the fifth and sixth.
  plant(
      "gemm", "S2", [&](Program &, Schedule &s) { gemm(s).view.b_column = 8; }, 4);
  plant(
      "gemm", "S2", [&](Program &, Schedule &s) { gemm(s).view.a.element = ElementType::kInt16; }, 4);
  plant(
      "gemm", "S2", [&](Program &, Schedule &s) { std::swap(gemm(s).view.a, gemm(s).view.b); }, 5);
  plant(
      "gemm", "S4", [&](Program &p, Schedule &s) { gemm(s).packed.buffer = p.inputs[0]; }, 4);
  plant(
      "gemm", "S2", [&](Program &, Schedule &s) { gemm(s).zeros.a.from.buffer = BufferId(); }, 4);
  plant(
      "gemm", "S2", [&](Program &, Schedule &s) { gemm(s).zeros.b.value = 1; }, 4);
  // Those of double are the last.
  plant(
      "gemm", "S2", [&](Program &, Schedule &s) { gemm(s).view.a.element = ElementType::kFloat32; }, 10);
  plant(
      "gemm", "S2", [&](Program &, Schedule &s) { gemm(s).view.a_inner = 1; }, 12);
  const auto blocks = [](Schedule &s) -> GemmBlocksSchedule & { return std::get<GemmBlocksSchedule>(s); };
  plant("gemm", "S1", [](Program &, Schedule &s) { s = GemmBlocksSchedule{}; });
  plant("gemm.blocks", "S2", [&](Program &, Schedule &s) { blocks(s).scales.block = 16; });
  plant("gemm.blocks", "S2", [&](Program &, Schedule &s) { blocks(s).scales.scale.strides[0] = 1; });
  plant("gemm.blocks", "S2", [&](Program &, Schedule &s) { blocks(s).scales.zero.strides[1] = 2; });
  plant("gemm.blocks", "S2", [&](Program &, Schedule &s) { blocks(s).scales.zero.buffer = BufferId(); });
  plant("gemm.blocks", "S2", [&](Program &, Schedule &s) { blocks(s).scales.zero_value = 1; });
  plant("gemm.blocks", "S2", [&](Program &, Schedule &s) { blocks(s).view.b_inner = 47; });
  plant("gemm.blocks", "S3", [&](Program &, Schedule &s) { blocks(s).view.m.clear(), blocks(s).view.rows = 1; });
  plant("gemm.blocks", "S4", [&](Program &p, Schedule &s) { blocks(s).codes.buffer = p.inputs[0]; });
  plant(
      "gemm.blocks", "S2", [&](Program &, Schedule &s) { blocks(s).scales.rounded = ElementType::kFloat32; }, 1);
  // Activations of bytes are the third.
  const auto activations = [&](const std::string &number, const auto &fault) {
    plant(
        "gemm.blocks", number, [&](Program &p, Schedule &s) { fault(p, blocks(s).activations); }, 2);
  };
  activations("S1", [](Program &, RowScales &a) { a.scale.buffer = BufferId(); });
  activations("S2", [](Program &p, RowScales &a) { a.scale.buffer = p.inputs[0]; });
  activations("S2", [](Program &, RowScales &a) { a.scale.strides[0] = 3; });
  activations("S2", [](Program &, RowScales &a) { a.scale.strides.back() = 2; });
  activations("S2", [](Program &, RowScales &a) { a.scale.strides.pop_back(); });
  activations("S2", [](Program &, RowScales &a) { a.scale.offset = 1; });
  activations("S2", [](Program &, RowScales &a) { a.row = 1; });
  const auto integers = [](Schedule &s) -> ConvolutionIntegerSchedule & {
    return std::get<ConvolutionIntegerSchedule>(s);
  };
  plant("conv.integer", "S2", [&](Program &, Schedule &s) { integers(s).zeros.b.step = 2; });
  plant("conv.integer", "S2", [&](Program &, Schedule &s) { integers(s).operands.geometry.dilations[2] = 1; });
  plant("conv.integer", "S1", [&](Program &, Schedule &s) { integers(s).depthwise = true; });
  plant("conv.direct", "S1", [&](Program &, Schedule &s) {
    s = ConvolutionIntegerSchedule{*convolution(s), {}, false, task_scratch(s)};
  });
  plant(
      "conv.integer", "S2", [&](Program &, Schedule &s) { integers(s).zeros.a.value = 4; }, 1);
  plant("conv.direct", "S2", [](Program &, Schedule &s) { convolution(s)->height = 7; });
  plant("conv.direct", "S2", [](Program &, Schedule &s) { convolution(s)->geometry.pads_begin[1] = 0; });
  plant("conv.direct", "S2", [](Program &, Schedule &s) { convolution(s)->channel_stride = 3; });
  plant(
      "conv.direct", "S2", [](Program &, Schedule &s) { convolution(s)->width = 2; }, 1);
  plant("conv.transposed", "S2", [](Program &, Schedule &s) { convolution(s)->geometry.pads_end[2] = 0; });
  plant("conv.transposed", "S2", [](Program &, Schedule &s) { convolution(s)->geometry.strides[1] = 3; });
  plant("conv.transposed", "S1", [](Program &, Schedule &s) {
    s = ConvolutionDirectSchedule{*convolution(s), task_scratch(s)};
  });
  plant("conv.direct", "S1", [](Program &, Schedule &s) {
    s = ConvolutionTransposedSchedule{*convolution(s), task_scratch(s)};
  });
  plant(
      "conv.direct", "S2", [](Program &, Schedule &s) { convolution(s)->plane_stride = 1; }, 2);
  plant("conv.winograd4", "S2", [](Program &, Schedule &s) { convolution(s)->geometry.channels = 16; });
  const auto attention = [](Schedule &s) -> AttentionSchedule & { return std::get<AttentionSchedule>(s); };
  plant("attention", "S2", [&](Program &, Schedule &s) { attention(s).query.head = 8; });
  plant("attention", "S2", [&](Program &, Schedule &s) { attention(s).key.row = 7; });
  plant("attention", "S2", [&](Program &, Schedule &s) { attention(s).mask.query = 0; });
  plant("attention", "S2", [&](Program &, Schedule &s) { attention(s).mask.buffer = BufferId(); });
  plant("attention", "S2", [&](Program &, Schedule &s) { attention(s).output.batch = 1; });
  plant("attention", "S2", [&](Program &, Schedule &s) { attention(s).keys = attention(s).queries; });
  const auto product = [](Schedule &s) -> GemmTensorCoreSchedule & { return std::get<GemmTensorCoreSchedule>(s); };
  plant("pointwise", "S1", [](Program &, Schedule &s) { s = GemmTensorCoreSchedule{}; });
  plant("gemm.tensor_core", "S2", [&](Program &, Schedule &s) { product(s).type = TensorCoreType::kF16; });
  plant("gemm.tensor_core", "S3", [&](Program &, Schedule &s) { product(s).a.outer.clear(); });
  plant("gemm.tensor_core", "S3", [&](Program &, Schedule &s) { std::swap(product(s).a, product(s).b); });
  plant("gemm.tensor_core", "S3", [&](Program &, Schedule &s) { product(s).exchanged = true; });
  plant("gemm.tensor_core", "S4", [&](Program &, Schedule &s) { product(s).a.constant = true; });
  plant("gemm.tensor_core", "S5", [&](Program &, Schedule &s) { product(s).tiles.clear(); });
  plant("gemm.tensor_core", "S5", [&](Program &, Schedule &s) { product(s).tiles[0].tile.m = 24; });
  plant("gemm.tensor_core", "S5", [&](Program &, Schedule &s) { product(s).tiles[3].tile.warps_k = 3; });
  plant("gemm.tensor_core", "S5", [&](Program &, Schedule &s) { product(s).tiles[0].splits = 0; });
  plant("gemm.tensor_core", "S5", [&](Program &, Schedule &s) { product(s).tiles[0].tile.stages = 1; });
  plant("gemm.tensor_core", "S5", [&](Program &, Schedule &s) {
    product(s).tiles[0].tile = TensorCoreTile{16, 16, 256, 1, 1, 8, 0};  // of f32
  });
  plant("gemm.tensor_core", "S5", [&](Program &, Schedule &s) { product(s).a.k_contiguous = false; });
  plant("gemm.tensor_core", "S5", [&](Program &, Schedule &s) { product(s).b.chunk_bytes = 32; });
  plant(
      "gemm.tensor_core", "S5", [&](Program &, Schedule &s) { product(s).a.group = 8; }, 1);
  const auto strips = [](Schedule &s) -> ConvolutionStripsSchedule & { return std::get<ConvolutionStripsSchedule>(s); };
  const std::string depthwise = "conv.depthwise.strips";
  plant("pointwise", "S1", [](Program &, Schedule &s) { s = ConvolutionStripsSchedule{}; });
  plant(depthwise, "S2", [&](Program &, Schedule &s) { strips(s).image.height = 7; });
  plant(depthwise, "S2", [&](Program &, Schedule &s) { strips(s).image.pixel_stride = 7; });
  plant(depthwise, "S2", [&](Program &, Schedule &s) { strips(s).image.geometry.dilations[2] = 1; });
  plant(depthwise, "S3", [&](Program &, Schedule &s) { std::swap(strips(s).rows, strips(s).columns); });
  plant(depthwise, "S3", [&](Program &, Schedule &s) { strips(s).images.clear(); });
  plant(depthwise, "S3", [&](Program &, Schedule &s) { strips(s).taps.pop_back(); });
  plant(depthwise, "S5", [&](Program &, Schedule &s) { strips(s).block_lines = 7, strips(s).block_strips = 1; });
  plant(depthwise, "S5", [&](Program &, Schedule &s) { strips(s).strip = 40; });
  plant(
      depthwise, "S5", [&](Program &, Schedule &s) { strips(s).vector = 4; }, 1);
  const auto recurrent = [](Schedule &s) -> RecurrentSchedule & { return std::get<RecurrentSchedule>(s); };
  plant("rnn", "S4", [&](Program &p, Schedule &s) { recurrent(s).sums.buffer = p.outputs[0]; });
  plant("rnn", "S1", [&](Program &, Schedule &s) { recurrent(s).weights = ElementType::kInt8; });
  plant(
      "rnn", "S2", [&](Program &, Schedule &s) { recurrent(s).weights = ElementType::kUInt8; }, 1);
  plant(
      "rnn", "S4", [&](Program &, Schedule &s) { recurrent(s).layers[1].r_scale.buffer = BufferId(); }, 1);
  const auto steps = [](Schedule &s) -> RecurrentStepsSchedule & { return std::get<RecurrentStepsSchedule>(s); };
  plant("rnn.steps", "S1", [](Program &, Schedule &s) { s = RecurrentSchedule{}; });
  plant("rnn.steps", "S2", [&](Program &, Schedule &s) { steps(s).hidden = 4; });
  plant("rnn.steps", "S2", [&](Program &, Schedule &s) { steps(s).weights = ElementType::kFloat16; });
  plant("rnn.steps", "S4", [&](Program &p, Schedule &s) { steps(s).r.buffer = p.inputs[0]; });
  plant("rnn.steps", "S5", [&](Program &, Schedule &s) { steps(s).chunks = 0; });
  plant("rnn.steps", "S5", [&](Program &, Schedule &s) { steps(s).cached = steps(s).chunks + 1; });
  const auto groups = [](Schedule &s) -> GemmWarpgroupSchedule & { return std::get<GemmWarpgroupSchedule>(s); };
  plant("gemm.warpgroup", "S2", [&](Program &, Schedule &s) { groups(s).map_a.strides[1] = 72; });
  plant("gemm.warpgroup", "S2", [&](Program &, Schedule &s) { groups(s).map_b.extents[0] = 40; });
  plant("gemm.warpgroup", "S2", [&](Program &, Schedule &s) { groups(s).map_b.offset = 8; });
  plant("gemm.warpgroup", "S2", [&](Program &, Schedule &s) { groups(s).map_a.buffer = groups(s).map_b.buffer; });
  plant(
      "gemm.warpgroup", "S2", [&](Program &, Schedule &s) { groups(s).map_a.strides[2] = 64; }, 1);
  plant("gemm.warpgroup", "S3", [&](Program &, Schedule &s) { groups(s).a.outer.clear(); });
  plant("gemm.warpgroup", "S5", [&](Program &, Schedule &s) { groups(s).tiles.clear(); });
  plant("gemm.warpgroup", "S5", [&](Program &, Schedule &s) { groups(s).tiles[0].m = 96; });
  plant("gemm.warpgroup", "S5", [&](Program &, Schedule &s) { groups(s).tiles[1].stages = 40; });
  plant("gemm.warpgroup", "S5", [&](Program &, Schedule &s) { groups(s).blocks = 0; });
  const auto walks = [](Schedule &s) -> ConvolutionWarpgroupSchedule & {
    return std::get<ConvolutionWarpgroupSchedule>(s);
  };
  plant("conv.warpgroup", "S2", [&](Program &, Schedule &s) { walks(s).image.lower[0] = -1; });
  plant("conv.warpgroup", "S2", [&](Program &, Schedule &s) { walks(s).image.upper[1] += 1; });
  plant("conv.warpgroup", "S2", [&](Program &, Schedule &s) { walks(s).image.steps[0] = 1; });
  plant("conv.warpgroup", "S2", [&](Program &, Schedule &s) { walks(s).image.dilations[1] = 1; });
  plant("conv.warpgroup", "S2", [&](Program &, Schedule &s) { walks(s).image.taps[1] = 2; });
  plant("conv.warpgroup", "S2", [&](Program &, Schedule &s) { walks(s).image.pixels[1] = 9; });
  plant("conv.warpgroup", "S2", [&](Program &, Schedule &s) { walks(s).image.strides[2] = 64; });
  plant("conv.warpgroup", "S2", [&](Program &, Schedule &s) { walks(s).filters.strides[3] = 64; });
  plant("conv.warpgroup", "S3", [&](Program &, Schedule &s) { walks(s).a.outer.pop_back(); });
  plant("conv.warpgroup", "S5", [&](Program &, Schedule &s) {
    walks(s).k.insert(walks(s).k.begin(), walks(s).k.back());
    walks(s).k.pop_back();
  });
  plant("conv.warpgroup", "S5", [&](Program &, Schedule &s) { walks(s).tiles[0].n = 32; });
  plant("gemm.warpgroup", "S3", [&](Program &, Schedule &s) { s = ConvolutionWarpgroupSchedule{}; });
}

// No printer falls back to another form: what it cannot print is a fault of optc.
TEST(Schedule, EmitRefusesANestOfAnotherForm) {
  Lowered lowered = lower_text(kGraphs[4].second, {});
  Kernel kernel = *find(lowered.program, "gemm");
  kernel.nest()->sequential = true;
  Diagnostics diagnostics;
  const auto text = print_kernel(lowered.program, kernel, diagnostics);
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.failure().kind, ErrorKind::kInternal);
  EXPECT_NE(said(diagnostics).find("kernel " + kernel.name), std::string::npos) << said(diagnostics);
}

// What was weighed is reported, the chosen way first, and does not cost more than its runners-up; what fewer
// multiprocessors make of it is another choice; no tile needs more shared memory than the smallest of the cards has.
TEST(Schedule, TilesAreChosenByTheMachine) {
  LoweringOptions options = gpu_options();
  std::set<std::string> first;
  for (const GpuMachine &machine : gpu_machines()) {
    options.machine = &machine;
    const Lowered lowered = lower_text(R"(graph "g" (x: f16[512,768]) -> (y) { const w: f16[768,3072] = hash "a"
      y = MatMul(x, w) })",
                                       options);
    ASSERT_EQ(lowered.report.choices.size(), 1u);
    const ScheduleChoice &choice = lowered.report.choices[0];
    EXPECT_EQ(choice.kernel, find(lowered.program, "gemm.tensor_core")->name);
    ASSERT_EQ(choice.ranked.size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_GE(choice.ranked[i].microseconds, choice.ranked[0].microseconds);
      EXPECT_GT(choice.ranked[i].microseconds, 1) << machine.target;
    }
    first.insert(choice.ranked[0].what);
    const auto &chosen = std::get<GemmTensorCoreSchedule>(find(lowered.program, "gemm.tensor_core")->schedule);
    ASSERT_EQ(chosen.tiles.size(), static_cast<size_t>(kMostJoinedKernels));
    for (size_t i = 0; i < chosen.tiles.size(); ++i) {
      EXPECT_LE(tensor_core_shared_bytes(chosen.type, chosen.tiles[i].tile), 99u << 10);
      EXPECT_TRUE(i == 0 || chosen.tiles[i].splits == 1);
    }
  }
  EXPECT_GT(first.size(), 1u);
}

// Of the ways that a product can have, the quickest by the model; on warpgroups only where all targets have them.
TEST(Schedule, ProductsRunOnWarpgroupsWhereThatIsQuicker) {
  const auto chosen = [](const std::string &sizes, bool warpgroups) {
    LoweringOptions options = gpu_options();
    options.warpgroups = warpgroups;
    const Lowered lowered = lower_text("graph \"g\" (x: f16[" + sizes.substr(0, sizes.find(' ')) + "], w: f16[" +
                                           sizes.substr(sizes.find(' ') + 1) + "]) -> (y) { y = MatMul(x, w) }",
                                       options);
    EXPECT_EQ(lowered.report.choices.size(), 1u);
    for (const ScheduleChoice &choice : lowered.report.choices)
      for (const ScheduleChoice::Way &way : choice.ranked)
        EXPECT_GE(way.microseconds, choice.ranked[0].microseconds) << way.what;
    return name(lowered.program.kernel(lowered.program.order[0]).schedule);
  };
  EXPECT_EQ(chosen("2048,2048 2048,2048", true), "gemm.warpgroup");
  EXPECT_EQ(chosen("2048,2048 2048,2048", false), "gemm.tensor_core");
  EXPECT_EQ(chosen("1,4096 4096,4096", true), "gemm.tensor_core");
  EXPECT_EQ(chosen("16,4096 4096,64", true), "gemm.tensor_core");
}

TEST(Schedule, ImagesAreWalkedWhereMapsCanNameThem) {
  const auto chosen = [](const std::string &text) {
    LoweringOptions options = gpu_options();
    options.warpgroups = true;
    options.disabled = {"schedule.gemm.tensor_core"};
    const Lowered lowered = lower_text(text, options);
    for (KernelId k : lowered.program.order)
      if (const std::string schedule = name(lowered.program.kernel(k).schedule); schedule == "conv.warpgroup")
        return true;
    return false;
  };
  EXPECT_TRUE(chosen(conv("f16[N,64,9,14]", "f16[48,64,3,3]", 1, 3, 1, 1, 1, 1)));
  EXPECT_TRUE(chosen(conv("f16[N,64,H,W]", "f16[48,64,3,3]", 1, 3, 1, 1, 1, 1)));
  EXPECT_FALSE(chosen(conv("f16[N,64,9,14]", "f16[48,32,3,3]", 2, 3, 1, 1, 1, 1)));  // groups
  EXPECT_FALSE(chosen(conv("f16[N,60,9,14]", "f16[48,60,3,3]", 1, 3, 1, 1, 1, 1)));
  EXPECT_FALSE(chosen(conv("f16[N,64,9,14]", "f16[48,64,3,3]", 1, 3, 1, 1, 130, 1)));
}

// A kernel that runs on the host is not given a schedule of the card.
TEST(Schedule, WhatHasNoGpuFormStaysPlain) {
  LoweringOptions options = gpu_options();
  const Lowered lowered = lower_text(R"(graph "g" (x: f32[4096,8,131072]) -> (y) { const w: f32[8,4] = hash "a"
    t = Transpose(x) {perm = ints [0, 2, 1]}
    y = MatMul(t, w) })",
                                     options);
  EXPECT_FALSE(find(lowered.program, "gemm.tensor_core")) << lowered.text;
  options.disabled = {"schedule.gemm.tensor_core"};
  EXPECT_FALSE(find(lower_text(kGpuGraphs[0].second, options).program, "gemm.tensor_core"));
}

// A fusion that would leave a product to plain loops is not made.
TEST(Schedule, FusionsLeaveAProductItsTemplate) {
  const char *const graphs[] = {
      R"(graph "g" (x: f32[N,8]) -> (y) { const w: f32[8,16] = hash "a"
        a = MatMul(x, w)
        y = Cast(a) {to = 7} })",
      R"(graph "g" (x: f32[N,8], r: f32[16,N]) -> (y) { const w: f32[8,16] = hash "a"
        t = Transpose(r) {perm = ints [1, 0]}
        a = MatMul(x, w)
        y = Add(a, t) })",
      R"(graph "g" (x: f32[N,8], i: i64[N,16]) -> (y) { const w: f32[8,16] = hash "a"
        a = MatMul(x, w)
        c = Cast(i) {to = 1}
        y = Mul(a, c) })",
  };
  for (const char *text : graphs) {
    const Lowered lowered = lower_text(text, {});
    EXPECT_TRUE(find(lowered.program, "gemm")) << lowered.text;
    expect_same_results(
        lowered, [](const DimSymbol &) { return std::optional<int64_t>(5); }, 1e-5);
  }
}

}  // namespace
}  // namespace optc
