// The PTX of emit/ptx as a text: through ptxas where the CUDA toolkit is present, and what launches that overlap need.

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <stdexcept>

#include "tests/ptx_machine.h"
#include "tests/shell.h"

namespace optc::testing {
namespace {

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
  int status = 0;
  const std::string log = run_command(ptxas + " -v -arch=" + module.target + " -o /dev/null " + name, &status);
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

// --- ptxas

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
    Kernel twin = n.program.kernels[0];  // writes what the first does: not in one launch with it
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

// Equal kernels that are independent of one another share a launch; what depends on another does not.
TEST(PtxOutput, IndependentKernelsOfEqualCodeAreOneLaunch) {
  const size_t rows = 21, columns = 36, depth = 40;
  NestProgram n;
  for (int i = 0; i < 3; ++i) n.matmul(kF32, 1, rows, columns, depth, false, false);
  Program &p = n.program;
  const BufferId last = n.output("z", kF32, {1, rows, columns}), turned = n.output("u", kF32, {1, rows, columns});
  auto negate = [&](BufferId from, BufferId to, const char *name) {
    LoopNest nest;
    Dim i = n.loop(nest.loops, "i", rows), j = n.loop(nest.loops, "j", columns);
    Stage stage;
    stage.outputs.push_back(n.store(to, {0, i, j}, n.pool().unary(ScalarOp::kNeg, n.load(from, {0, i, j}))));
    nest.stages = {stage};
    n.add(name, nest);
  };
  const BufferId products[] = {p.outputs[0], p.outputs[1], p.outputs[2]};
  negate(products[2], last, "first");
  negate(last, turned, "second");
  for (const char *target : {"sm_80", "sm_90a"}) {
    Machine m(p, "3xtf32", target);
    std::vector<size_t> launches;
    for (const PtxKernel &k : m.output.kernels) launches.push_back(k.launches.size());
    EXPECT_EQ(launches, (std::vector<size_t>{1, 0, 0, 1, 1}));
    EXPECT_EQ(m.output.kernels[0].launches[0].grid[2].value(), 3);
    EXPECT_NE(m.output.kernels[1].form.find("in the launch of"), std::string::npos);
    m.fill(12);
    m.run();
    for (size_t part = 0; part < 3; ++part) {
      const BufferId a = p.inputs[3 * part], w = p.inputs[3 * part + 1], bias = p.inputs[3 * part + 2];
      for (size_t i = 0; i < rows; ++i)
        for (size_t j = 0; j < columns; ++j) {
          double sum = m.get(bias, j);
          for (size_t k = 0; k < depth; ++k) sum += m.get(a, i * depth + k) * m.get(w, k * columns + j);
          ASSERT_NEAR(m.get(products[part], i * columns + j), std::max(sum, 0.0), 1e-5) << target << part;
        }
    }
    for (size_t at = 0; at < rows * columns; ++at) ASSERT_EQ(m.get(turned, at), m.get(products[2], at));
  }
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
    Machine m(n.program, "3xtf32", "sm_90");
    const std::string &text = m.output.modules[0].text;
    const size_t wait = text.find("griddepcontrol.wait");
    ASSERT_NE(wait, std::string::npos);
    EXPECT_GT(text.find("ld.global"), wait);
    EXPECT_GT(text.find("st.global"), wait);
    EXPECT_EQ(text.find("cp.async.cg") < wait, constant);
    Machine by_tma(n.program, "3xtf32", "sm_90a");
    const std::string &tiles = by_tma.output.modules[0].text;
    ASSERT_NE(tiles.find("cp.async.bulk.tensor"), std::string::npos);
    EXPECT_GT(tiles.find("cp.async.bulk.tensor"), tiles.find("griddepcontrol.wait"));
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

// What an earlier kernel stored is read by ordinary loads alone: PTX promises no view of it to ld.global.nc. The
// emulator faults on one, and on what comes before the wait.
TEST(Chained, ReadsOfTemporariesAreOrdinaryLoads) {
  NestProgram n;
  n.layer_norm(kF32, 5, 64);
  Program &p = n.program;
  const BufferId middle = p.outputs[0];
  p.buffers[middle.index].kind = BufferKind::kTemporary;
  const BufferId y = n.output("y", kF32, {5, 64});
  p.outputs = {y};
  LoopNest nest;
  Dim i = n.loop(nest.loops, "i", 5), j = n.loop(nest.loops, "j", 64);
  Stage stage;
  stage.outputs.push_back(n.store(y, {i, j}, n.pool().unary(ScalarOp::kNeg, n.load(middle, {i, j}))));
  nest.stages = {stage};
  n.add("negative", nest);
  Machine m(p, "3xtf32", "sm_90a");
  m.fill(3);
  m.run();
  for (size_t at = 0; at < 5 * 64; ++at) ASSERT_EQ(m.get(y, at), -m.get(middle, at));
  const std::string &text = m.output.modules[0].text;
  EXPECT_NE(text.find("ld.global.nc"), std::string::npos);  // the model's inputs
  EXPECT_EQ(text.find("ld.global.nc", text.find(".entry negative")), std::string::npos);
}

TEST(Chained, TheEmulatorFaultsOnReadsThatMayBeStale) {
  const std::string head = ".version 8.0\n.target sm_90a\n.address_size 64\n";
  const std::string entry = "(\n.param .u64 p\n)\n{\n.reg .b64 %rd<2>;\n.reg .b32 %r<2>;\nld.param.u64 %rd1, [p];\n";
  PtxEmulator emulator(head + ".visible .entry store" + entry + "st.global.u32 [%rd1], 7;\nret;\n}\n" +
                       ".visible .entry cached" + entry +
                       "griddepcontrol.wait;\nld.global.nc.u32 %r1, [%rd1];\nret;\n}\n" + ".visible .entry early" +
                       entry + "ld.global.u32 %r1, [%rd1];\ngriddepcontrol.wait;\nret;\n}\n" + ".visible .entry plain" +
                       entry + "griddepcontrol.wait;\nld.global.u32 %r1, [%rd1];\nret;\n}\n");
  alignas(16) uint32_t word[4] = {};
  emulator.add_memory(word, sizeof word, true);
  auto run = [&](const char *function, bool chained) {
    PtxEmulator::Launch l;
    l.function = function;
    l.arguments = {reinterpret_cast<uint64_t>(word)};
    l.chained = chained;
    emulator.run(l);
  };
  run("store", false);
  EXPECT_EQ(word[0], 7u);
  EXPECT_NO_THROW(run("plain", true));
  EXPECT_THROW(run("cached", true), std::runtime_error);
  EXPECT_THROW(run("early", true), std::runtime_error);
  EXPECT_THROW(run("store", true), std::runtime_error);  // without a wait
  EXPECT_NO_THROW(run("cached", false));                 // after the end of the store
}

}  // namespace
}  // namespace optc::testing
