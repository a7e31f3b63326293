// Kernels of emit/ptx without tensor cores: run by the emulator against references in double.

#include <gtest/gtest.h>

#include <cmath>

#include "tests/ptx_machine.h"

namespace optc::testing {
namespace {

// --- Pointwise

using Function = double (*)(double);
void check_function(ScalarOp op, Function f, double low, double high, double tolerance) {
  NestProgram n;
  const int64_t count = 1000;
  n.pointwise(kF32, kF32, {count}, [&](ScalarPool &p, ScalarId x) { return p.unary(op, x); });
  Machine m(n.program);
  m.fill(1);
  const BufferId x = n.program.inputs[0], y = n.program.outputs[0];
  for (int64_t i = 0; i < count; ++i)
    m.put(x, static_cast<size_t>(i), low + (high - low) * static_cast<double>(i) / static_cast<double>(count - 1));
  m.run();
  double worst = 0, where = 0;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const double in = m.get(x, i), want = f(in), got = m.get(y, i);
    const double error = std::fabs(got - want) / std::max(std::fabs(want), 1e-30);
    if (!(error <= worst)) {
      worst = error;
      where = in;
    }
  }
  EXPECT_LE(worst, tolerance) << to_string(op) << " at " << where;
}

TEST(PtxMath, FunctionsMeetTheirTolerance) {
  const double ulp = 1.2e-7;
  check_function(
      ScalarOp::kExp, [](double x) { return std::exp(x); }, -80, 88, 3 * ulp);
  check_function(
      ScalarOp::kExpm1, [](double x) { return std::expm1(x); }, -3, 3, 4 * ulp);
  check_function(
      ScalarOp::kLog, [](double x) { return std::log(x); }, 0.01, 30, 3 * ulp);
  check_function(
      ScalarOp::kLog1p, [](double x) { return std::log1p(x); }, -0.9, 5, 4 * ulp);
  check_function(
      ScalarOp::kTanh, [](double x) { return std::tanh(x); }, -5, 5, 3 * ulp);
  check_function(
      ScalarOp::kErf, [](double x) { return std::erf(x); }, -5, 5, 3 * ulp);
  check_function(
      ScalarOp::kSigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -30, 30, 4 * ulp);
  check_function(
      ScalarOp::kSqrt, [](double x) { return std::sqrt(x); }, 0, 30, ulp);
  check_function(
      ScalarOp::kSin, [](double x) { return std::sin(x); }, 0.1, 3, 3 * ulp);
  check_function(
      ScalarOp::kCos, [](double x) { return std::cos(x); }, 100, 101.5, 3 * ulp);
  check_function(
      ScalarOp::kAtan, [](double x) { return std::atan(x); }, -10, 10, 3 * ulp);
  check_function(
      ScalarOp::kAsin, [](double x) { return std::asin(x); }, -1, 1, 4 * ulp);
  check_function(
      ScalarOp::kAcos, [](double x) { return std::acos(x); }, -1, 0.999, 4 * ulp);
  check_function(
      ScalarOp::kSinh, [](double x) { return std::sinh(x); }, -5, 5, 2 * ulp);
  check_function(
      ScalarOp::kAsinh, [](double x) { return std::asinh(x); }, -5, 5, 2 * ulp);
  check_function(
      ScalarOp::kAtanh, [](double x) { return std::atanh(x); }, -0.99, 0.99, 2 * ulp);
}

// The short forms, of every f16 number: the nearest f16 or a neighbour of it; zeros, infinities and NaN as they are.
TEST(PtxMath, ShortFormsAreRoundedToTheNearestOrItsNeighbour) {
  struct Case {
    ScalarOp op;
    Function f;
  };
  const Case cases[] = {{ScalarOp::kExp, [](double x) { return std::exp(x); }},
                        {ScalarOp::kTanh, [](double x) { return std::tanh(x); }},
                        {ScalarOp::kSigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }},
                        {ScalarOp::kDiv, [](double x) { return 3.3f / x; }}};
  const int64_t count = 1 << 16;
  for (const Case &c : cases) {
    NestProgram n;
    n.pointwise(kF16, kF16, {count}, [&](ScalarPool &p, ScalarId x) {
      Scalar s;
      s.op = c.op;
      s.type = kF32;
      s.flag = kRounded;
      const bool quotient = c.op == ScalarOp::kDiv;
      s.args[0] = quotient ? p.constant(kF32, 3.3f) : x;
      if (quotient) s.args[1] = x;
      return p.add_node(std::move(s));
    });
    Machine m(n.program);
    m.fill(1);
    const BufferId x = n.program.inputs[0], y = n.program.outputs[0];
    for (int64_t i = 0; i < count; ++i)
      m.put(x, static_cast<size_t>(i), static_cast<double>(half_to_float(static_cast<uint16_t>(i))));
    m.run();
    size_t other = 0;
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      const double in = m.get(x, i), got = m.get(y, i), exact = c.f(in);
      const uint16_t bits = float_to_half(static_cast<float>(exact));
      const double want = static_cast<double>(half_to_float(bits));
      if (std::isnan(want) ? std::isnan(got) : got == want) continue;
      ++other;
      const double up = static_cast<double>(half_to_float(static_cast<uint16_t>(bits + 1))),
                   down = static_cast<double>(half_to_float(static_cast<uint16_t>(bits - 1)));
      EXPECT_TRUE(got == up || got == down) << to_string(c.op) << " " << in << ": " << got << ", not " << want;
    }
    EXPECT_LE(other, 64u) << to_string(c.op);
  }
}

TEST(PtxMath, EdgesFollowTheCLibrary) {
  const float inf = INFINITY, nan = NAN;
  const float inputs[] = {0.0f, -0.0f, inf, -inf, nan, 1e-40f, -104.5f, 89.5f};
  struct Case {
    ScalarOp op;
    float (*f)(float);
  };
  const Case cases[] = {{ScalarOp::kExp, [](float x) { return std::exp(x); }},
                        {ScalarOp::kLog, [](float x) { return std::log(x); }},
                        {ScalarOp::kTanh, [](float x) { return std::tanh(x); }},
                        {ScalarOp::kErf, [](float x) { return std::erf(x); }}};
  for (const Case &c : cases) {
    NestProgram n;
    n.pointwise(kF32, kF32, {8}, [&](ScalarPool &p, ScalarId x) { return p.unary(c.op, x); });
    Machine m(n.program);
    m.fill(1);
    for (size_t i = 0; i < 8; ++i) m.put(n.program.inputs[0], i, inputs[i]);
    m.run();
    for (size_t i = 0; i < 8; ++i) {
      const double want = c.f(inputs[i]), got = m.get(n.program.outputs[0], i);
      if (std::isnan(want))
        EXPECT_TRUE(std::isnan(got)) << to_string(c.op) << " " << inputs[i];
      else if (std::isinf(want) || want == 0)
        EXPECT_EQ(got, want) << to_string(c.op) << " " << inputs[i];
      else
        EXPECT_NEAR(got, want, std::fabs(want) * 1e-5 + 2e-45) << to_string(c.op) << " " << inputs[i];
    }
  }
}

TEST(PtxPointwise, EveryElementOnceForOddAndSymbolicShapes) {
  for (ElementType type : {kF32, kF16, kBF16})
    for (Shape shape : {Shape{3, 5, 7}, Shape{64, 49}, Shape{1}, Shape{33, 8}}) {
      NestProgram n;
      n.pointwise(type, type, shape,
                  [](ScalarPool &p, ScalarId x) { return p.binary(ScalarOp::kMul, x, p.constant(kF32, 2)); });
      Machine m(n.program);
      m.fill(2);
      m.run();
      const size_t count = static_cast<size_t>(element_count(shape).value());
      for (size_t i = 0; i < count; ++i)
        ASSERT_EQ(m.get(n.program.outputs[0], i), 2 * m.get(n.program.inputs[0], i))
            << to_string(type) << to_string(shape) << i;
    }
  NestProgram n;
  Dim rows = n.program.dims->model_symbol("N");
  n.pointwise(kF32, kF16, {rows, 12}, [](ScalarPool &p, ScalarId x) { return p.unary(ScalarOp::kNeg, x); });
  n.program.sources.push_back({single_symbol(rows), 0, 0});
  Machine m(n.program);
  m.fill(2, [](const DimSymbol &) { return 37; });
  m.run();
  for (size_t i = 0; i < 37 * 12; ++i)
    ASSERT_NEAR(m.get(n.program.outputs[0], i), -m.get(n.program.inputs[0], i), 1e-3);
}

// Large tensors: a thread takes several groups, in consecutive rows (whose column vector is read once) or a block
// apart.
TEST(PtxPointwise, SeveralGroupsAThread) {
  for (bool by_column : {true, false}) {
    NestProgram n;
    const int64_t rows = 2164, cols = 4096;
    BufferId x = n.input("x", kF16, {rows, cols}), g = n.input("g", kF16, {cols}),
             y = n.output("y", kF16, {rows, cols});
    LoopNest nest;
    Dim i = n.loop(nest.loops, "i", rows), j = n.loop(nest.loops, "j", cols);
    ScalarId value = n.load(x, {i, j}), other = by_column ? n.load(g, {j}) : n.pool().constant(kF32, 0.5);
    Stage stage;
    stage.outputs.push_back(n.store(y, {i, j}, n.pool().binary(ScalarOp::kMul, value, other)));
    nest.stages = {stage};
    n.add("scaled", nest);
    Machine m(n.program);
    const int64_t threads = rows * cols / 8 / 4;
    EXPECT_EQ(m.output.kernels[0].launches[0].grid[0].value(), (threads + 255) / 256);
    m.fill(5);
    m.run();
    for (size_t r = 0; r < rows; r += 7)
      for (size_t c = r % 3; c < cols; c += 3) {
        const double want = m.get(x, r * cols + c) * (by_column ? m.get(g, c) : 0.5);
        ASSERT_NEAR(m.get(y, r * cols + c), want, std::fabs(want) * 1e-3 + 1e-7) << r << "," << c;
      }
  }
}

TEST(PtxPointwise, APermutedViewWithPadding) {
  // y[i, j] = j in range of x's row j - 2 ? x[j - 2, i] : 0: a transposition with a guard around the load.
  NestProgram n;
  BufferId x = n.input("x", kF32, {5, 9}), y = n.output("y", kF32, {9, 8});
  LoopNest nest;
  Dim i = n.loop(nest.loops, "i", 9), j = n.loop(nest.loops, "j", 8);
  ScalarPool &p = n.pool();
  ScalarId low = p.binary(ScalarOp::kLe, p.constant_int(ElementType::kInt64, 0), p.index(j - Dim(2)));
  ScalarId high = p.binary(ScalarOp::kLt, p.index(j - Dim(2)), p.constant_int(ElementType::kInt64, 5));
  Stage stage;
  stage.outputs.push_back(n.store(
      y, {i, j}, p.select(p.binary(ScalarOp::kAnd, low, high), n.load(x, {j - Dim(2), i}), p.constant(kF32, 0))));
  nest.stages = {stage};
  n.add("pad", nest);
  Machine m(n.program);
  m.fill(3);
  m.run();
  for (size_t a = 0; a < 9; ++a)
    for (size_t b = 0; b < 8; ++b)
      EXPECT_EQ(m.get(y, a * 8 + b), b >= 2 && b < 7 ? m.get(x, (b - 2) * 9 + a) : 0) << a << "," << b;
}

// y[i, j] = x[t[i, j], j] and z[i] = the sum of them: what lies beside an element is not the next one, for each has an
// index of its own.
TEST(PtxGather, NeighboursWithIndicesOfTheirOwn) {
  const int64_t rows = 6, columns = 64, table = 5;
  for (bool summed : {false, true}) {
    NestProgram n;
    BufferId x = n.input("x", kF32, {table, columns}), t = n.input("t", ElementType::kInt32, {rows, columns}),
             y = n.output("y", kF32, summed ? Shape{rows} : Shape{rows, columns});
    LoopNest nest;
    Stage stage, last;
    Dim i = n.loop(nest.loops, "i", rows), j = n.loop(summed ? stage.loops : nest.loops, "j", columns);
    const ScalarId index = n.pool().cast(n.load(t, {i, j}), ElementType::kInt64);
    const ScalarId element = n.load(x, {n.program.dims->scalar_symbol(index.index, table), j});
    if (summed) {
      LocalId sum = n.local(nest, "sum", kF32);
      stage.outputs.push_back(n.reduce(sum, Combine::kSum, element));
      last.outputs.push_back(n.store(y, {i}, n.pool().local(sum, kF32, {})));
      nest.stages = {stage, last};
    } else {
      stage.outputs.push_back(n.store(y, {i, j}, element));
      nest.stages = {stage};
    }
    n.add("gather", nest);
    Machine m(n.program);
    m.fill(3);
    for (size_t k = 0; k < static_cast<size_t>(rows * columns); ++k) m.put(t, k, static_cast<double>(k * 7 % 5));
    m.run();
    EXPECT_FALSE(m.index_outside);
    for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
      double sum = 0;
      for (size_t c = 0; c < static_cast<size_t>(columns); ++c) {
        const size_t at = r * static_cast<size_t>(columns) + c;
        const double want = m.get(x, at * 7 % 5 * static_cast<size_t>(columns) + c);
        sum += want;
        if (!summed) {
          ASSERT_EQ(m.get(y, at), want) << r << "," << c;
        }
      }
      if (summed) {
        ASSERT_NEAR(m.get(y, r), sum, 1e-4) << r;
      }
    }
    for (const double outside : {-1.0, 5.0}) {
      m.put(t, 77, outside);
      m.index_outside = false;
      m.run();
      EXPECT_TRUE(m.index_outside) << outside;
    }
  }
}

// y[i] = x[t[i]] where t[i] is inside, else -1: no index is wrong that nobody needs.
TEST(PtxGather, AnIndexBehindAConditionIsCheckedWhereItHolds) {
  const int64_t rows = 100, table = 5;
  NestProgram n;
  BufferId x = n.input("x", kF32, {table}), t = n.input("t", ElementType::kInt32, {rows}),
           y = n.output("y", kF32, {rows});
  LoopNest nest;
  Dim i = n.loop(nest.loops, "i", rows);
  ScalarPool &pool = n.pool();
  const ScalarId index = pool.cast(n.load(t, {i}), ElementType::kInt64);
  const ScalarId inside = pool.binary(ScalarOp::kLt, index, pool.constant_int(ElementType::kInt64, table));
  const ScalarId element = n.load(x, {n.program.dims->scalar_symbol(index.index, table)});
  Stage stage;
  stage.outputs.push_back(n.store(y, {i}, pool.select(inside, element, pool.constant(kF32, -1))));
  nest.stages = {stage};
  n.add("gather", nest);
  Machine m(n.program);
  m.fill(3);
  for (size_t k = 0; k < static_cast<size_t>(rows); ++k) m.put(t, k, static_cast<double>(k % 9));
  m.run();
  EXPECT_FALSE(m.index_outside);
  for (size_t k = 0; k < static_cast<size_t>(rows); ++k) EXPECT_EQ(m.get(y, k), k % 9 < 5 ? m.get(x, k % 9) : -1) << k;
  m.put(t, 7, -3);
  m.run();
  EXPECT_TRUE(m.index_outside);
}

// --- Rows

TEST(PtxRows, LayerNorm) {
  for (ElementType type : {kF32, kF16})
    for (int64_t width : {40, 97, 768, 4096}) {
      NestProgram n;
      const int64_t rows = 5;
      n.layer_norm(type, rows, width);
      Machine m(n.program);
      EXPECT_EQ(m.output.kernels[0].form, "rows");
      m.fill(4);
      m.run(static_cast<uint64_t>(width));
      const auto &in = n.program.inputs;
      const size_t w = static_cast<size_t>(width);
      for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
        double mean = 0, square = 0;
        auto at = [&](size_t c) { return m.get(in[0], r * w + c) + m.get(in[1], r * w + c); };
        for (size_t c = 0; c < w; ++c) mean += at(c) / static_cast<double>(w);
        for (size_t c = 0; c < w; ++c) square += std::pow(at(c) - mean, 2) / static_cast<double>(w);
        for (size_t c = 0; c < w; ++c) {
          const double want = (at(c) - mean) / std::sqrt(square + 1e-5) * m.get(in[2], c) + m.get(in[3], c);
          ASSERT_NEAR(m.get(n.program.outputs[0], r * w + c), want, 4 * rounding(type) * (1 + std::fabs(want)))
              << width << " row " << r << " column " << c;
        }
      }
    }
}

TEST(PtxRows, SoftmaxWithScratchRowsAndManyRows) {
  for (int64_t width : {33, 128, 1000})
    for (int64_t rows : {3, 530}) {
      if (rows > 500 && width > 128) continue;
      NestProgram n;
      n.softmax(kF32, rows, width);
      Machine m(n.program);
      m.fill(5);
      m.run(7);
      const size_t w = static_cast<size_t>(width);
      for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
        double total = 0;
        for (size_t c = 0; c < w; ++c) total += std::exp(m.get(n.program.inputs[0], r * w + c));
        for (size_t c = 0; c < w; ++c) {
          const double want = std::exp(m.get(n.program.inputs[0], r * w + c)) / total;
          ASSERT_NEAR(m.get(n.program.outputs[0], r * w + c), want, 2e-6 * want) << width << "x" << rows;
        }
      }
    }
}

// What a narrow signed type leaves in a wider register is extended by its sign: LLVM divides in 8 bits where the range
// of a number allows it.
TEST(PtxEmulator, NarrowSignedResultsAreExtended) {
  PtxEmulator emulator(R"(.visible .entry narrow(
	.param .u64 narrow_param_0
)
{
	.reg .b16 %rs<6>;
	.reg .b32 %r<3>;
	.reg .f32 %f<2>;
	.reg .b64 %rd<3>;
	ld.param.u64 	%rd1, [narrow_param_0];
	ld.global.u64 	%rd2, [%rd1];
	cvt.s8.s64 	%rs1, %rd2;
	mul.lo.s16 	%rs2, %rs1, 86;
	shr.u16 	%rs3, %rs2, 15;
	shr.u16 	%rs4, %rs2, 8;
	add.s16 	%rs5, %rs4, %rs3;
	cvt.s32.s8 	%r1, %rs5;
	st.global.u32 	[%rd1], %r1;
	ld.global.f32 	%f1, [%rd1+8];
	cvt.rzi.s16.f32 	%rs1, %f1;
	cvt.s32.s16 	%r2, %rs1;
	st.global.u32 	[%rd1+4], %r2;
	ret;
}
)");
  const float given = -2.75f;
  for (const int64_t n : {int64_t{-9}, int64_t{-3}, int64_t{7}}) {
    alignas(8) int32_t memory[3] = {};
    std::memcpy(memory, &n, 8);
    std::memcpy(memory + 2, &given, 4);
    emulator.add_memory(memory, sizeof memory, true);
    PtxEmulator::Launch launch;
    launch.function = "narrow";
    launch.arguments = {reinterpret_cast<uint64_t>(memory)};
    emulator.run(launch);
    EXPECT_EQ(memory[0], n / 3);
    EXPECT_EQ(memory[1], -2);
  }
}

// A block with a register of its own on one line, and a field put into a register: nothing is passed over in silence.
TEST(PtxEmulator, BlocksOnOneLineAndBitFields) {
  PtxEmulator emulator(R"(.visible .entry split(
	.param .u64 split_param_0
)
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<3>;
	ld.param.u64 	%rd1, [split_param_0];
	ld.global.u64 	%rd2, [%rd1];
	{ .reg .b32 tmp; mov.b64 {tmp, %r1}, %rd2; }
	cvt.u32.u64 	%r2, %rd2;
	bfi.b32 	%r3, %r2, %r1, 8, 16;
	st.global.u32 	[%rd1], %r1;
	st.global.u32 	[%rd1+4], %r3;
	ret;
}
)");
  alignas(8) uint32_t memory[2] = {0x11223344, 0xAABBCCDD};
  emulator.add_memory(memory, sizeof memory, true);
  PtxEmulator::Launch launch;
  launch.function = "split";
  launch.arguments = {reinterpret_cast<uint64_t>(memory)};
  emulator.run(launch);
  EXPECT_EQ(memory[0], 0xAABBCCDDu);
  EXPECT_EQ(memory[1], 0xAA3344DDu);
}

}  // namespace
}  // namespace optc::testing
