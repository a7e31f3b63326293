// Kernels of emit/ptx: run by the emulator against references in double, and through ptxas where the CUDA toolkit is
// present.

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>

#include "emit/ptx/ptx.h"
#include "tests/ptx_emulator/emulator.h"
#include "tests/ptx_programs.h"

namespace optc::testing {
namespace {

constexpr ElementType kF32 = ElementType::kFloat32, kF16 = ElementType::kFloat16, kBF16 = ElementType::kBFloat16;

std::string find_ptxas() {
  for (const char *dir : {"/usr/local/cuda/bin", "/usr/bin", "/usr/local/bin"}) {
    std::string path = std::string(dir) + "/ptxas";
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

// What ptxas says of a module; fails the test on an error, on a spill and on any of its performance diagnostics
// (C75xx).
void ptxas_gate(const PtxModule &module) {
  const std::string ptxas = find_ptxas();
  if (ptxas.empty()) GTEST_SKIP() << "ptxas of the CUDA toolkit is not installed";
  char name[] = "/tmp/optc-ptx-XXXXXX";
  int fd = mkstemp(name);
  ASSERT_GE(fd, 0);
  close(fd);
  std::ofstream(name) << module.text;
  const std::string command = ptxas + " -v -arch=" + module.target + " -o /dev/null " + name + " 2>&1";
  std::string log;
  FILE *pipe = popen(command.c_str(), "r");
  char line[512];
  while (fgets(line, sizeof line, pipe)) log += line;
  const int status = pclose(pipe);
  unlink(name);
  EXPECT_EQ(status, 0) << log;
  EXPECT_EQ(log.find("(C75"), std::string::npos) << log;
  size_t at = 0;
  while ((at = log.find(" bytes spill stores", at)) != std::string::npos) {
    EXPECT_EQ(log[at - 1], '0') << log;
    EXPECT_EQ(log[at - 2], ' ') << log;
    ++at;
  }
}

// A Program's kernels in the emulator, on random inputs.
class Machine {
 public:
  explicit Machine(Program &program, std::string f32 = "3xtf32", std::string target = "sm_80") : program_(program) {
    Diagnostics diagnostics;
    std::unique_ptr<PtxEmitter> emitter(optc_make_ptx_emitter());
    EXPECT_TRUE(verify(program, diagnostics).ok());
    PtxOptions options;
    options.targets = {target};
    options.f32 = f32;
    auto result = emitter->emit(program, options, diagnostics);
    for (const Diagnostic &d : diagnostics.all()) ADD_FAILURE() << format(d);
    if (!result.ok()) return;
    output = std::move(*result);
  }

  // Buffers filled with values in [-1, 1]; outputs with NaN.
  void fill(uint64_t seed, const std::function<int64_t(const DimSymbol &)> &symbols = {}) {
    symbols_ = symbols;
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> uniform(-1, 1);
    memory_.clear();
    for (const Buffer &b : program_.buffers) {
      const size_t count = static_cast<size_t>(number(storage_count(b)));
      std::vector<uint8_t> bytes(count * static_cast<size_t>(bit_width(b.element()) / 8) + 16);
      if (b.kind != BufferKind::kOutput)
        for (size_t i = 0; i < count; ++i) set(b.element(), bytes, i, uniform(random));
      else
        std::fill(bytes.begin(), bytes.end(), 0xFF);
      memory_.push_back(std::move(bytes));
    }
  }

  void run(uint64_t seed = 1) {
    ASSERT_FALSE(output.modules.empty());
    PtxEmulator emulator(output.modules[0].text);
    for (size_t i = 0; i < memory_.size(); ++i)
      emulator.add_memory(base(i), memory_[i].size() - 16, program_.buffers[i].kind != BufferKind::kInput);
    for (const PtxKernel &kernel : output.kernels) {
      ASSERT_TRUE(kernel.on_gpu) << kernel.reason;
      for (const PtxLaunch &launch : kernel.launches) {
        PtxEmulator::Launch l;
        l.function = launch.function;
        for (int a = 0; a < 3; ++a) l.grid[a] = number(launch.grid[a]);
        l.threads = launch.threads;
        l.shared_bytes = launch.shared_bytes;
        l.seed = seed;
        for (const PtxArgument &argument : launch.arguments)
          l.arguments.push_back(argument.kind == PtxArgument::Kind::kBuffer
                                    ? reinterpret_cast<uint64_t>(base(argument.buffer.index))
                                    : static_cast<uint64_t>(symbols_(*argument.symbol)));
        try {
          emulator.run(l);
        } catch (const std::exception &e) {
          FAIL() << e.what();
        }
      }
    }
  }

  double get(BufferId id, size_t i) {
    const uint8_t *p = base(id.index);
    switch (program_.buffer(id).element()) {
      case ElementType::kFloat32: {
        float v;
        std::memcpy(&v, p + 4 * i, 4);
        return v;
      }
      case ElementType::kFloat16: {
        uint16_t v;
        std::memcpy(&v, p + 2 * i, 2);
        return half_to_float(v);
      }
      case ElementType::kBFloat16: {
        uint16_t v;
        std::memcpy(&v, p + 2 * i, 2);
        return bfloat16_to_float(v);
      }
      case ElementType::kInt32: {
        int32_t v;
        std::memcpy(&v, p + 4 * i, 4);
        return v;
      }
      default:
        return p[i];
    }
  }
  void put(BufferId id, size_t i, double v) { set(program_.buffer(id).element(), memory_[id.index], i, v); }
  int64_t number(Dim d) {
    return *evaluate(d, [this](const DimSymbol &s) -> std::optional<int64_t> { return symbols_(s); });
  }

  PtxOutput output;

 private:
  uint8_t *base(size_t i) {  // 16-byte aligned, as device memory is
    const uintptr_t p = reinterpret_cast<uintptr_t>(memory_[i].data());
    return memory_[i].data() + (16 - p % 16) % 16;
  }
  void set(ElementType type, std::vector<uint8_t> &bytes, size_t i, double v) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(bytes.data());
    uint8_t *p = bytes.data() + (16 - at % 16) % 16;
    const float f = static_cast<float>(v);
    const uint16_t h = type == kF16 ? float_to_half(f) : float_to_bfloat16(f);
    const int32_t n = static_cast<int32_t>(v);
    if (type == kF32) std::memcpy(p + 4 * i, &f, 4);
    if (type == kF16 || type == kBF16) std::memcpy(p + 2 * i, &h, 2);
    if (type == ElementType::kInt32) std::memcpy(p + 4 * i, &n, 4);
  }

  Program &program_;
  std::vector<std::vector<uint8_t>> memory_;
  std::function<int64_t(const DimSymbol &)> symbols_;
};

double rounding(ElementType type) { return type == kF32 ? 1e-6 : type == kF16 ? 1e-3 : 8e-3; }

// --- Pointwise
// -------------------------------------------------------------------------------------------------------------------

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

// --- Rows
// ------------------------------------------------------------------------------------------------------------------------

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

// --- Products
// --------------------------------------------------------------------------------------------------------------------

struct Product {
  ElementType type;
  int64_t batch, m, n, k;
  bool transposed, batched, given_in_f32 = false;
};

void check_product(const Product &c, const std::string &f32 = "3xtf32") {
  NestProgram n;
  n.given_in_f32 = c.given_in_f32;
  n.matmul(c.type, c.batch, c.m, c.n, c.k, c.transposed, c.batched);
  Machine m(n.program, f32);
  ASSERT_EQ(m.output.kernels.size(), 1u);
  const std::string form = m.output.kernels[0].form;
  EXPECT_EQ(form.rfind("gemm.", 0), 0u) << form;
  m.fill(6);
  m.run(11);
  const auto &in = n.program.inputs;
  const size_t M = static_cast<size_t>(c.m), N = static_cast<size_t>(c.n), K = static_cast<size_t>(c.k);
  const double tolerance = f32 == "tf32" && c.type == kF32 ? 2e-3 : 3 * rounding(c.type);
  for (size_t b = 0; b < static_cast<size_t>(c.batch); ++b)
    for (size_t i = 0; i < M; ++i)
      for (size_t j = 0; j < N; ++j) {
        double sum = m.get(in[2], j), size = 1;
        for (size_t k = 0; k < K; ++k) {
          const size_t at = (c.batched ? b * K * N : 0) + (c.transposed ? j * K + k : k * N + j);
          const double term = m.get(in[0], (b * M + i) * K + k) * m.get(in[1], at);
          sum += term;
          size += std::fabs(term);
        }
        ASSERT_NEAR(m.get(n.program.outputs[0], (b * M + i) * N + j), std::max(sum, 0.0), tolerance * size)
            << form << " at " << b << "," << i << "," << j;
      }
}

TEST(PtxGemm, AllTypesLayoutsAndRaggedShapes) {
  for (ElementType type : {kF16, kBF16, kF32})
    for (bool transposed : {false, true}) {
      check_product({type, 1, 64, 64, 128, transposed, false});
      check_product({type, 1, 37, 41, 19, transposed, false});  // nothing divides anything
      check_product({type, 1, 24, 72, 40, transposed, false});
      check_product({type, 3, 17, 40, 24, transposed, true});
      check_product({type, 2, 5, 48, 64, transposed, false});  // batch becomes rows
    }
}

TEST(PtxGemm, OperandsInF32AreRoundedAsTheyAreRead) {
  for (ElementType type : {kF16, kBF16}) {
    check_product({type, 1, 40, 48, 96, false, false, true});  // eight at a time
    check_product({type, 1, 1, 24, 784, true, false, true});
    check_product({type, 1, 37, 41, 19, false, false, true});  // one at a time
    check_product({type, 2, 17, 40, 72, true, true, true});
  }
  NestProgram n;
  n.given_in_f32 = true;
  n.matmul(kF16, 1, 40, 48, 96, false, false);
  Machine m(n.program);
  EXPECT_NE(m.output.kernels[0].form.find("0x8k"), std::string::npos) << m.output.kernels[0].form;
}

TEST(PtxGemm, LongKIsPromotedAndShortKIsOneBlock) {
  check_product({kF32, 1, 16, 32, 1100, false, false});
  check_product({kF32, 1, 16, 32, 8, false, false});
  check_product({kF16, 1, 130, 70, 16, true, false});
  check_product({kF16, 1, 16, 32, 144, true, false});
  check_product({kBF16, 1, 16, 32, 700, false, false});
  check_product({kF32, 1, 16, 32, 96, true, false}, "tf32");
  for (bool transposed : {false, true}) {  // one row: many warps along k
    check_product({kF16, 1, 1, 64, 1600, transposed, false});
    check_product({kF16, 1, 3, 40, 776, transposed, false});
  }
}

TEST(PtxGemm, ConvolutionAsImplicitProduct) {
  struct Case {
    ElementType type;
    int64_t batch, size, channels, out, kernel, stride, pad;
  };
  for (const Case &c :
       {Case{kF16, 1, 8, 16, 24, 3, 1, 1}, Case{kF32, 2, 7, 8, 16, 3, 2, 1}, Case{kF32, 1, 9, 3, 8, 3, 2, 1},
        Case{kF16, 1, 6, 3, 10, 3, 1, 0}, Case{kF32, 1, 6, 20, 12, 1, 1, 0}}) {
    NestProgram n;
    n.convolution(c.type, c.batch, c.size, c.channels, c.out, c.kernel, c.stride, c.pad);
    Machine m(n.program);
    EXPECT_EQ(m.output.kernels[0].form.rfind("gemm.", 0), 0u) << m.output.kernels[0].form;
    m.fill(8);
    m.run(3);
    const int64_t q = (c.size + 2 * c.pad - c.kernel) / c.stride + 1;
    const BufferId x = n.program.inputs[0], w = n.program.inputs[1], y = n.program.outputs[0];
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t i = 0; i < q; ++i)
        for (int64_t j = 0; j < q; ++j)
          for (int64_t o = 0; o < c.out; ++o) {
            double sum = 0, size = 1;
            for (int64_t r = 0; r < c.kernel; ++r)
              for (int64_t s = 0; s < c.kernel; ++s)
                for (int64_t k = 0; k < c.channels; ++k) {
                  const int64_t h = i * c.stride + r - c.pad, v = j * c.stride + s - c.pad;
                  if (h < 0 || v < 0 || h >= c.size || v >= c.size) continue;
                  const double term =
                      m.get(x, static_cast<size_t>(((b * c.size + h) * c.size + v) * c.channels + k)) *
                      m.get(w, static_cast<size_t>(((o * c.kernel + r) * c.kernel + s) * c.channels + k));
                  sum += term;
                  size += std::fabs(term);
                }
            EXPECT_NEAR(m.get(y, static_cast<size_t>(((b * q + i) * q + j) * c.out + o)), sum,
                        3 * rounding(c.type) * size)
                << m.output.kernels[0].form << " at " << i << "," << j << "," << o;
          }
  }
}

TEST(PtxAttention, MaskedRaggedAndSingleQueries) {
  struct Case {
    ElementType type;
    int64_t batch, heads, queries, keys, inner, width;
    bool given_in_f32 = false;
  };
  for (const Case &c :
       {Case{kF32, 1, 2, 70, 45, 16, 16}, Case{kF32, 2, 1, 1, 100, 64, 64}, Case{kF32, 1, 1, 5, 33, 10, 7},
        Case{kF16, 1, 2, 70, 150, 64, 32}, Case{kBF16, 1, 1, 3, 64, 32, 16}, Case{kF32, 1, 1, 9, 40, 128, 128},
        Case{kF16, 1, 2, 1, 130, 64, 64, true}, Case{kBF16, 1, 1, 20, 37, 16, 24, true}}) {
    NestProgram n;
    n.given_in_f32 = c.given_in_f32;
    n.attention(c.type, c.batch, c.heads, c.queries, c.keys, c.inner, c.width);
    Machine m(n.program);
    EXPECT_EQ(m.output.kernels[0].form.rfind("attention.", 0), 0u) << m.output.kernels[0].form;
    m.fill(9);
    const auto &in = n.program.inputs;
    const size_t S = static_cast<size_t>(c.queries), T = static_cast<size_t>(c.keys), D = static_cast<size_t>(c.inner),
                 E = static_cast<size_t>(c.width);
    // Row 0 sees nothing, row 1 only the last key, the others all but the first three.
    for (size_t i = 0; i < S; ++i)
      for (size_t j = 0; j < T; ++j) {
        const bool hidden = S > 1 && (i == 0 || (i == 1 && j + 1 < T) || (i > 1 && j < 3));
        if (hidden) m.put(in[3], i * T + j, -INFINITY);
      }
    m.run(5);
    for (size_t g = 0; g < static_cast<size_t>(c.batch * c.heads); ++g)
      for (size_t i = 0; i < S; ++i) {
        std::vector<double> p(T);
        double top = -INFINITY, total = 0;
        for (size_t j = 0; j < T; ++j) {
          for (size_t d = 0; d < D; ++d) p[j] += m.get(in[0], (g * S + i) * D + d) * m.get(in[1], (g * T + j) * D + d);
          p[j] = 0.25 * p[j] + m.get(in[3], i * T + j);
          top = std::max(top, p[j]);
        }
        for (size_t j = 0; j < T; ++j) total += p[j] = std::exp(p[j] - top);
        for (size_t e = 0; e < E; ++e) {
          double want = 0;
          for (size_t j = 0; j < T; ++j) want += p[j] / total * m.get(in[2], (g * T + j) * E + e);
          if (std::isinf(top)) want = 0;
          ASSERT_NEAR(m.get(n.program.outputs[0], (g * S + i) * E + e), want, 3 * rounding(c.type))
              << m.output.kernels[0].form << " head " << g << " query " << i << " column " << e;
        }
      }
  }
}

// --- ptxas
// ------------------------------------------------------------------------------------------------------------------------

TEST(PtxGate, KernelsOfRealShapesAssembleWithoutSpills) {
  struct Case {
    const char *name;
    std::function<void(NestProgram &)> make;
  };
  std::vector<Case> cases;
  for (ElementType type : {kF32, kF16}) {
    cases.push_back({"norm", [type](NestProgram &n) { n.layer_norm(type, 8192, 4096); }});
    cases.push_back({"softmax", [type](NestProgram &n) { n.softmax(type, 1536, 128); }});
    for (auto [m, nn, k] : {std::tuple<int64_t, int64_t, int64_t>{128, 768, 768},
                            {128, 3072, 768},
                            {4096, 4096, 4096},
                            {1000, 512, 512},
                            {1, 768, 3072},
                            {197, 768, 3072}})
      for (bool transposed : {false, true})
        cases.push_back({"matmul", [type, m = m, nn = nn, k = k, transposed](NestProgram &n) {
                           n.matmul(type, 1, m, nn, k, transposed, false);
                         }});
    cases.push_back({"attention", [type](NestProgram &n) { n.attention(type, 1, 12, 128, 128, 64, 64); }});
    cases.push_back({"attention of f32", [type](NestProgram &n) {
                       n.given_in_f32 = type == kF16;
                       n.attention(type, 1, 12, 1, 128, 64, 64);
                     }});
    cases.push_back({"patches of f32", [type](NestProgram &n) {
                       n.given_in_f32 = type == kF16;
                       n.matmul(type, 1, 196, 768, 768, true, false);
                     }});
    cases.push_back({"conv", [type](NestProgram &n) { n.convolution(type, 1, 56, 64, 64, 3, 1, 1); }});
    cases.push_back({"stem", [type](NestProgram &n) { n.convolution(type, 1, 224, 3, 64, 7, 2, 3); }});
  }
  for (const char *target : {"sm_80"})
    for (const Case &c : cases) {
      NestProgram n;
      c.make(n);
      Machine m(n.program, "3xtf32", target);
      ASSERT_FALSE(m.output.modules.empty());
      SCOPED_TRACE(std::string(c.name) + " " + m.output.kernels[0].form);
      ptxas_gate(m.output.modules[0]);
      if (IsSkipped()) return;
    }
}

TEST(PtxOutput, SameBytesTwiceAndEqualKernelsOnce) {
  auto text = [] {
    NestProgram n;
    n.layer_norm(kF16, 64, 768);
    Kernel twin = n.program.kernels[0];
    twin.name = "layer_norm_2";
    n.program.order.push_back(n.program.add_kernel(twin));
    Machine m(n.program);
    EXPECT_EQ(m.output.kernels[0].launches[0].function, m.output.kernels[1].launches[0].function);
    return m.output.modules[0].text;
  };
  const std::string first = text();
  EXPECT_EQ(first, text());
  EXPECT_EQ(first.find("layer_norm_2"), std::string::npos);
}

TEST(PtxOutput, UnknownTargetsAreUsageErrors) {
  NestProgram n;
  n.softmax(kF32, 4, 64);
  Diagnostics diagnostics;
  std::unique_ptr<PtxEmitter> emitter(optc_make_ptx_emitter());
  PtxOptions options;
  options.targets = {"sm_12"};
  auto result = emitter->emit(n.program, options, diagnostics);
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.failure().kind, ErrorKind::kUsage);
}

// --- Launches that overlap

// Kernels for sm_90 wait for those before them ahead of any access to memory that a kernel may have written; weights
// may come earlier.
TEST(Chained, KernelsWaitBeforeTheyTouchWhatOthersWrite) {
  for (const bool constant : {false, true}) {
    NestProgram n;
    n.matmul(kF16, 1, 96, 64, 128, false, false);
    if (constant) {
      Buffer &w = n.program.buffers[1];
      w.kind = BufferKind::kConstant;
      w.constant = Constant::owned(kF16, {128, 64}, std::vector<uint8_t>(128 * 64 * 2));
      std::erase(n.program.inputs, BufferId(1));
    }
    Machine m(n.program, "3xtf32", "sm_90a");
    const std::string &text = m.output.modules[0].text;
    const size_t wait = text.find("griddepcontrol.wait");
    ASSERT_NE(wait, std::string::npos);
    EXPECT_GT(text.find("ld.global"), wait);
    EXPECT_GT(text.find("st.global"), wait);
    EXPECT_EQ(text.find("cp.async.cg") < wait, constant);
  }
  NestProgram rows;
  rows.layer_norm(kF16, 5, 64);
  Machine m(rows.program, "3xtf32", "sm_90");
  const std::string &text = m.output.modules[0].text;
  ASSERT_NE(text.find("griddepcontrol.wait"), std::string::npos);
  EXPECT_GT(text.find("ld.global"), text.find("griddepcontrol.wait"));
  NestProgram older;
  older.layer_norm(kF16, 5, 64);
  EXPECT_EQ(Machine(older.program).output.modules[0].text.find("griddepcontrol"), std::string::npos);
}

}  // namespace
}  // namespace optc::testing
