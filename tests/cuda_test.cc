// The GPU half of a bundle, end to end without a card: tables and PTX are printed, compiled by a C++ compiler and run
// by runtime/cuda on a CUDA driver made of the emulator.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>

#include "emit/ptx/cuda_source.h"
#include "lowering/buffers/buffers.h"
#include "lowering/schedule/schedule.h"
#include "tests/ptx_programs.h"
#include "tests/shell.h"

namespace optc::testing {
namespace {

void write_tensor(std::ofstream &out, std::vector<int64_t> dims, const std::vector<float> &values) {
  std::vector<int64_t> head{1, static_cast<int64_t>(dims.size()), static_cast<int64_t>(values.size() * 4)};
  head.insert(head.end(), dims.begin(), dims.end());
  out.write(reinterpret_cast<const char *>(head.data()), static_cast<std::streamsize>(8 * head.size()));
  out.write(reinterpret_cast<const char *>(values.data()), static_cast<std::streamsize>(4 * values.size()));
}

// Prints a Program's GPU half into a new folder and compiles it to FOLDER/run; returns the folder, "" on failure.
std::string build_runner(Program program, size_t launches, std::vector<std::string> targets = {"sm_80", "sm_90a"}) {
  place_buffers(program);
  Diagnostics diagnostics;
  std::unique_ptr<PtxEmitter> emitter(optc_make_ptx_emitter());
  PtxOptions options;
  options.targets = std::move(targets);
  auto ptx = emitter->emit(program, options, diagnostics);
  if (!ptx.ok()) return {};
  auto source = print_cuda(program, *ptx, "model", diagnostics);
  if (!source.ok()) return {};
  EXPECT_EQ(source->launches, launches);
  char folder[] = "/tmp/optc-cuda-XXXXXX";
  if (!mkdtemp(folder)) return {};
  const std::string dir = folder;
  std::ofstream(dir + "/cuda.cpp") << source->source;
  std::ofstream weights(dir + "/cuda.weights", std::ios::binary);
  each_cuda_weight(program, *source, [&](const void *data, uint64_t size) {
    weights.write(static_cast<const char *>(data), static_cast<std::streamsize>(size));
  });
  weights.close();
  int status = 0;
  const std::string root = OPTC_SOURCE_DIR;
  const std::string log = run_command("c++ -std=c++17 -Wall -Wextra -Werror -I" + root + " " + root +
                                          "/bench/gpu/run_model.cpp " + dir + "/cuda.cpp -o " + dir + "/run -ldl",
                                      &status);
  EXPECT_EQ(status, 0) << log;
  return status ? std::string() : dir;
}

// y = softmax(x * 2) over rows with a symbolic number of rows: an intermediate in the arena, a constant, two kernels.
TEST(CudaBundle, RunsOnTheEmulatedDriver) {
  NestProgram n;
  const int64_t width = 40;
  Dim rows = n.program.dims->model_symbol("N");
  n.program.sources.push_back({single_symbol(rows), 0, 0});
  const ElementType f = ElementType::kFloat32;
  BufferId x = n.input("x", f, {rows, width}), scale = n.buffer("scale", BufferKind::kConstant, f, {width});
  n.program.buffer(scale).constant = Constant::floats(std::vector<float>(static_cast<size_t>(width), 2.0f));
  BufferId middle = n.buffer("middle", BufferKind::kTemporary, f, {rows, width});
  {
    LoopNest nest;
    Dim i = n.loop(nest.loops, "i", rows), j = n.loop(nest.loops, "j", width);
    Stage stage;
    stage.outputs.push_back(
        n.store(middle, {i, j}, n.pool().binary(ScalarOp::kMul, n.load(x, {i, j}), n.load(scale, {j}))));
    nest.stages = {stage};
    n.add("doubled", nest);
  }
  n.softmax(f, rows, width);
  // softmax made an input of its own; it reads the intermediate instead
  Buffer &second = n.program.buffer(n.program.inputs.back());
  second.kind = BufferKind::kTemporary;
  second.alias = middle;
  n.program.inputs.pop_back();
  n.program.input_names = {"x"};
  n.program.output_names = {"y"};

  const std::string dir = build_runner(n.program, 2);
  ASSERT_FALSE(dir.empty());
  int status = 0;
  for (size_t count : {3u, 17u}) {
    std::vector<float> in(count * static_cast<size_t>(width)), want(in.size());
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(static_cast<int>(i * 7919 % 200) - 100) / 50;
    for (size_t r = 0; r < count; ++r) {
      double total = 0;
      for (size_t c = 0; c < static_cast<size_t>(width); ++c)
        total += std::exp(2.0 * in[r * static_cast<size_t>(width) + c]);
      for (size_t c = 0; c < static_cast<size_t>(width); ++c)
        want[r * static_cast<size_t>(width) + c] =
            static_cast<float>(std::exp(2.0 * in[r * static_cast<size_t>(width) + c]) / total);
    }
    const int64_t one = 1;
    for (const auto &[file, values] : {std::make_pair("/inputs.bin", &in), std::make_pair("/expected.bin", &want)}) {
      std::ofstream out(dir + file, std::ios::binary);
      out.write(reinterpret_cast<const char *>(&one), 8);
      write_tensor(out, {static_cast<int64_t>(count), width}, *values);
    }
    const std::string result = run_command("OPTC_LIBCUDA=" OPTC_FAKE_DRIVER " " + dir + "/run " + dir +
                                               "/cuda.weights " + dir + "/inputs.bin " + dir + "/expected.bin 1e-6",
                                           &status);
    EXPECT_EQ(status, 0) << result;
  }
  const std::string none = run_command("OPTC_LIBCUDA=/nowhere/libcuda.so " + dir + "/run " + dir + "/cuda.weights " +
                                           dir + "/inputs.bin " + dir + "/expected.bin",
                                       &status);
  EXPECT_NE(status, 0);
  EXPECT_NE(none.find("no CUDA driver"), std::string::npos) << none;
  run_command("rm -r " + dir, &status);
}

void write_half(std::ofstream &out, std::vector<int64_t> dims, const std::vector<float> &values) {
  std::vector<int64_t> head{10, static_cast<int64_t>(dims.size()), static_cast<int64_t>(values.size() * 2)};
  head.insert(head.end(), dims.begin(), dims.end());
  out.write(reinterpret_cast<const char *>(head.data()), static_cast<std::streamsize>(8 * head.size()));
  for (float v : values) {
    const uint16_t bits = float_to_half(v);
    out.write(reinterpret_cast<const char *>(&bits), 2);
  }
}

// Chooses the schedules for a GPU with warpgroups, mma.sync left out; returns the first kernel's.
std::string choose_warpgroups(Program &program) {
  LoweringOptions lowering;
  lowering.target = LoweringOptions::Target::kGpu;
  lowering.warpgroups = true;
  LoweringReport report;
  Steps steps({"schedule.gemm.tensor_core"}, INT64_MAX, report.steps);
  Diagnostics diagnostics;
  EXPECT_TRUE(choose_schedules(program, lowering, steps, report.choices, diagnostics).ok());
  return name(program.kernels[0].schedule);
}

// y = relu(x * w + b) on warpgroups, of a symbolic number of rows: tensor maps are made anew with the dims.
TEST(CudaBundle, TensorMapsFollowTheDims) {
  NestProgram n;
  const int64_t width = 40, columns = 72;
  n.given_in_f32 = false;
  Dim rows = n.program.dims->model_symbol("N");
  n.program.sources.push_back({single_symbol(rows), 0, 1});
  n.matmul(ElementType::kFloat16, 1, rows, columns, width, false, false);
  n.program.input_names = {"a", "w", "bias"};
  n.program.output_names = {"y"};
  ASSERT_EQ(choose_warpgroups(n.program), "gemm.warpgroup");
  Diagnostics diagnostics;
  std::unique_ptr<PtxEmitter> emitter(optc_make_ptx_emitter());
  PtxOptions two;
  two.targets = {"sm_80", "sm_90a"};  // what only one of them can run is a fault
  EXPECT_FALSE(emitter->emit(n.program, two, diagnostics).ok());
  const std::string dir = build_runner(n.program, 1, {"sm_90a"});
  ASSERT_FALSE(dir.empty());
  int status = 0;
  for (size_t count : {130u, 7u}) {
    const size_t K = static_cast<size_t>(width), N = static_cast<size_t>(columns);
    std::vector<float> a(count * K), w(K * N), bias(N), want(count * N);  // multiples of an eighth: exact
    for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(static_cast<int>(i * 7919 % 17) - 8) / 8;
    for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(static_cast<int>(i * 104729 % 13) - 6) / 8;
    for (size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i % 5) - 2;
    for (size_t r = 0; r < count; ++r)
      for (size_t c = 0; c < N; ++c) {
        float sum = 0;
        for (size_t k = 0; k < K; ++k) sum += a[r * K + k] * w[k * N + c];
        want[r * N + c] = std::max(sum + bias[c], 0.0f);
      }
    const int64_t three = 3, one = 1;
    std::ofstream in(dir + "/inputs.bin", std::ios::binary), out(dir + "/expected.bin", std::ios::binary);
    in.write(reinterpret_cast<const char *>(&three), 8);
    out.write(reinterpret_cast<const char *>(&one), 8);
    write_half(in, {1, static_cast<int64_t>(count), width}, a);
    write_half(in, {width, columns}, w);
    write_tensor(in, {columns}, bias);
    write_half(out, {1, static_cast<int64_t>(count), columns}, want);
    in.close();
    out.close();
    const std::string result = run_command("OPTC_LIBCUDA=" OPTC_FAKE_DRIVER " " + dir + "/run " + dir +
                                               "/cuda.weights " + dir + "/inputs.bin " + dir + "/expected.bin 1e-3",
                                           &status);
    EXPECT_EQ(status, 0) << result;
  }
  run_command("rm -r " + dir, &status);
}

// A convolution whose image is walked by im2col, of a symbolic number of images, with pads, steps and dilations that
// differ between its dims.
TEST(CudaBundle, ImagesAreWalked) {
  NestProgram n;
  NestProgram::Convolution c;
  c.size = {9, 12};
  c.channels = 72;
  c.out = 40;
  c.strides = {2, 1};
  c.dilations = {1, 2};
  c.begin = {1, 2};
  c.end = {0, 3};
  Dim images = n.program.dims->model_symbol("N");
  n.program.sources.push_back({single_symbol(images), 0, 0});
  n.convolution(c, images);
  n.program.input_names = {"x", "w"};
  n.program.output_names = {"y"};
  ASSERT_EQ(choose_warpgroups(n.program), "conv.warpgroup");
  const std::string dir = build_runner(n.program, 1, {"sm_90a"});
  ASSERT_FALSE(dir.empty());
  const int64_t P = c.outputs(0), Q = c.outputs(1);
  const auto value = [](int64_t i) { return static_cast<float>(static_cast<int>(i * 7919 % 17) - 8) / 8; };  // exact
  int status = 0;
  for (int64_t count : {3, 1}) {
    std::vector<float> x, w, want;
    for (int64_t i = 0; i < count * c.size[0] * c.size[1] * c.channels; ++i) x.push_back(value(i));
    for (int64_t i = 0; i < c.out * 9 * c.channels; ++i) w.push_back(value(i + 5));
    for (int64_t i = 0; i < count * P * Q * c.out; ++i) {
      const int64_t o = i % c.out, q = i / c.out % Q, p = i / c.out / Q % P, image = i / c.out / Q / P;
      float sum = 0;
      for (int64_t r = 0; r < 3; ++r)
        for (int64_t s = 0; s < 3; ++s) {
          const int64_t h = p * 2 + r - 1, v = q + s * 2 - 2;
          if (h < 0 || v < 0 || h >= c.size[0] || v >= c.size[1]) continue;
          const int64_t pixel = ((image * c.size[0] + h) * c.size[1] + v) * c.channels,
                        tap = ((o * 3 + r) * 3 + s) * c.channels;
          for (int64_t k = 0; k < c.channels; ++k)
            sum += x[static_cast<size_t>(pixel + k)] * w[static_cast<size_t>(tap + k)];
        }
      want.push_back(sum);
    }
    const int64_t two = 2, one = 1;
    std::ofstream in(dir + "/inputs.bin", std::ios::binary), out(dir + "/expected.bin", std::ios::binary);
    in.write(reinterpret_cast<const char *>(&two), 8);
    out.write(reinterpret_cast<const char *>(&one), 8);
    write_half(in, {count, c.size[0], c.size[1], c.channels}, x);
    write_half(in, {c.out, 3, 3, c.channels}, w);
    write_half(out, {count, P, Q, c.out}, want);
    in.close();
    out.close();
    const std::string result = run_command("OPTC_LIBCUDA=" OPTC_FAKE_DRIVER " " + dir + "/run " + dir +
                                               "/cuda.weights " + dir + "/inputs.bin " + dir + "/expected.bin 1e-3",
                                           &status);
    EXPECT_EQ(status, 0) << result;
  }
  run_command("rm -r " + dir, &status);
}

// Where one size is symbolic lowering places nothing, not even buffers of fixed sizes: the session does it at run time.
// y = x0 + x1 + ... over `count` inputs, in one kernel.
BufferId sum_of_many(NestProgram &n, int count, int64_t width) {
  LoopNest nest;
  Dim i = n.loop(nest.loops, "i", width);
  ScalarId sum;
  for (int k = 0; k < count; ++k) {
    const ScalarId term = n.load(n.input("x" + std::to_string(k), ElementType::kFloat32, {width}), {i});
    sum = sum.valid() ? n.pool().binary(ScalarOp::kAdd, sum, term) : term;
    n.program.input_names.push_back("x" + std::to_string(k));
  }
  const BufferId y = n.output("y", ElementType::kFloat32, {width});
  n.program.output_names = {"y"};
  Stage stage;
  stage.outputs.push_back(n.store(y, {i}, sum));
  nest.stages = {stage};
  n.add("sum", nest);
  return y;
}

TEST(CudaBundle, AKernelTakesAsManyTensorsAsALaunchHolds) {
  const int64_t count = 300, width = 5;
  NestProgram n;
  sum_of_many(n, count, width);
  const std::string dir = build_runner(n.program, 1);
  ASSERT_FALSE(dir.empty());
  std::ofstream in(dir + "/inputs.bin", std::ios::binary), out(dir + "/expected.bin", std::ios::binary);
  const int64_t one = 1;
  in.write(reinterpret_cast<const char *>(&count), 8);
  out.write(reinterpret_cast<const char *>(&one), 8);
  std::vector<float> want(width, 0.0f);
  for (int64_t k = 0; k < count; ++k) {
    std::vector<float> x;
    for (int64_t i = 0; i < width; ++i) x.push_back(static_cast<float>(k * 7 % 11 + i));
    for (size_t i = 0; i < want.size(); ++i) want[i] += x[i];
    write_tensor(in, {width}, x);
  }
  write_tensor(out, {width}, want);
  in.close();
  out.close();
  int status = 0;
  const std::string result = run_command("OPTC_LIBCUDA=" OPTC_FAKE_DRIVER " " + dir + "/run " + dir + "/cuda.weights " +
                                             dir + "/inputs.bin " + dir + "/expected.bin 1e-6",
                                         &status);
  EXPECT_EQ(status, 0) << result;
}

TEST(CudaBundle, AKernelOfMoreTensorsThanALaunchHoldsRunsOnTheHost) {
  NestProgram n;
  sum_of_many(n, 600, 5);
  Diagnostics diagnostics;
  std::unique_ptr<PtxEmitter> emitter(optc_make_ptx_emitter());
  PtxOptions options;
  options.targets = {"sm_90a"};
  auto ptx = emitter->emit(n.program, options, diagnostics);
  ASSERT_TRUE(ptx.ok());
  EXPECT_FALSE(ptx->kernels[0].on_gpu);
  EXPECT_NE(ptx->kernels[0].reason.find("bytes of kernel parameters"), std::string::npos) << ptx->kernels[0].reason;
}

TEST(CudaSource, OffsetsThatLoweringLeftOpenAreNoOffsets) {
  NestProgram n;
  const ElementType f = ElementType::kFloat32;
  BufferId x = n.input("x", f, {8}), middle = n.buffer("middle", BufferKind::kTemporary, f, {8}),
           y = n.output("y", f, {8});
  for (auto [from, to] : {std::make_pair(x, middle), std::make_pair(middle, y)}) {
    LoopNest nest;
    Dim i = n.loop(nest.loops, "i", 8);
    Stage stage;
    ScalarId value = n.load(from, {i});
    stage.outputs.push_back(n.store(to, {i}, n.pool().binary(ScalarOp::kAdd, value, value)));
    nest.stages = {stage};
    n.add("doubled_" + n.program.buffer(to).name, nest);
  }
  Placement placement;
  placement.buffer = middle;
  placement.bytes = 32;
  placement.offset = kDimOverflow;
  placement.last = 1;
  n.program.placements = {placement};
  Diagnostics diagnostics;
  std::unique_ptr<PtxEmitter> emitter(optc_make_ptx_emitter());
  PtxOptions options;
  options.targets = {"sm_80"};
  auto ptx = emitter->emit(n.program, options, diagnostics);
  ASSERT_TRUE(ptx.ok());
  auto source = print_cuda(n.program, *ptx, "model", diagnostics);
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(source->source.find(std::to_string(kDimOverflow)), std::string::npos);
  EXPECT_NE(source->source.find("{\"middle\", Region::kArena, 0, 0u, size_32, nullptr, 0, 1}"), std::string::npos);
}

}  // namespace
}  // namespace optc::testing
