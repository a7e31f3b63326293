#pragma once
// A Program's kernels of emit/ptx in the emulator.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>

#include "emit/ptx/ptx.h"
#include "lowering/schedule/schedule.h"
#include "tests/ptx_emulator/emulator.h"
#include "tests/ptx_emulator/tensor_map.h"
#include "tests/ptx_programs.h"

namespace optc::testing {

inline constexpr ElementType kF32 = ElementType::kFloat32, kF16 = ElementType::kFloat16, kBF16 = ElementType::kBFloat16;

// A Program's kernels in the emulator, on random inputs.
class Machine {
 public:
  explicit Machine(Program &program, std::string f32 = "3xtf32", std::string target = "sm_80", int splits = 0,
                   std::vector<std::string> disabled = {}, int warpgroup_tile = -1, int multiprocessors = 0,
                   bool watched = false)
      : program_(program), chained_(target.compare(0, 4, "sm_9") == 0) {
    Diagnostics diagnostics;
    std::unique_ptr<PtxEmitter> emitter(optc_make_ptx_emitter());
    LoweringOptions lowering;
    lowering.target = LoweringOptions::Target::kGpu;
    GpuMachine card = machine_of({target});
    if (multiprocessors > 0) card.multiprocessors = multiprocessors;
    lowering.machine = &card;
    lowering.f32 = f32 == "ieee" ? F32Products::kIEEE : f32 == "tf32" ? F32Products::kTF32 : F32Products::kThreeTF32;
    lowering.warpgroups = all_have_warpgroups({target});
    lowering.splits = splits;
    lowering.warpgroup_tile = warpgroup_tile;
    LoweringReport report;
    Steps steps(disabled, INT64_MAX, report.steps);
    EXPECT_TRUE(choose_schedules(program, lowering, steps, report.choices, diagnostics).ok());
    EXPECT_TRUE(verify(program, diagnostics).ok());
    PtxOptions options;
    options.targets = {target};
    options.watched = watched;
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

  // Behind fill: the constants as they are.
  void load_constants() {
    for (size_t i = 0; i < program_.buffers.size(); ++i)
      if (const Constant &c = program_.buffers[i].constant; c.valid()) std::memcpy(base(i), c.data(), c.size());
  }

  void run(uint64_t seed = 1) { ASSERT_EQ(fault(seed), ""); }
  // What the emulator says against the kernels; "" when nothing.
  std::string fault(uint64_t seed = 1) {
    if (output.modules.empty()) return "no kernels";
    PtxEmulator emulator(output.modules[0].text);
    for (size_t i = 0; i < memory_.size(); ++i)
      emulator.add_memory(base(i), memory_[i].size() - 16, program_.buffers[i].kind != BufferKind::kInput);
    int64_t workspace_bytes = 0;
    for (const PtxKernel &kernel : output.kernels)
      for (const PtxLaunch &launch : kernel.launches)
        workspace_bytes = std::max(workspace_bytes, launch.workspace_bytes);
    const size_t counters = kWorkspaceCounters;
    std::vector<uint32_t> workspace(counters + static_cast<size_t>(workspace_bytes) / 4 + 8, 0xFFFFFFFF);
    uint32_t *const work = workspace.data() + (16 - reinterpret_cast<uintptr_t>(workspace.data()) % 16) % 16 / 4;
    std::fill(work, work + counters, 0);
    emulator.add_memory(work, 4 * counters + static_cast<size_t>(workspace_bytes), true);
    alignas(16) uint32_t fault = 0;
    emulator.add_memory(&fault, sizeof fault, true);
    bool first = true;
    for (const PtxKernel &kernel : output.kernels) {
      if (!kernel.on_gpu) return kernel.reason;
      for (const PtxLaunch &launch : kernel.launches) {
        PtxEmulator::Launch l;
        l.function = launch.function;
        for (int a = 0; a < 3; ++a) l.grid[a] = number(launch.grid[a]);
        l.threads = launch.threads;
        l.shared_bytes = launch.shared_bytes;
        l.seed = seed;
        l.chained = chained_ && !first;
        first = false;
        std::vector<EmulatedTensorMap> maps(launch.arguments.size());
        for (const PtxArgument &argument : launch.arguments)
          l.arguments.push_back(
              argument.kind == PtxArgument::Kind::kWorkspace   ? reinterpret_cast<uint64_t>(work)
              : argument.kind == PtxArgument::Kind::kFault     ? reinterpret_cast<uint64_t>(&fault)
              : argument.kind == PtxArgument::Kind::kUnread    ? 0x7fffffff  // read, it leads far beside everything
              : argument.kind == PtxArgument::Kind::kTensorMap ? encode(argument.map, maps[l.arguments.size()])
              : argument.kind == PtxArgument::Kind::kBuffer    ? reinterpret_cast<uint64_t>(base(argument.buffer.index))
                                                               : static_cast<uint64_t>(symbols_(*argument.symbol)));
        try {
          emulator.run(l);
        } catch (const std::exception &e) {
          return e.what();
        }
        index_outside = index_outside || fault != 0;
        if (std::any_of(work, work + counters, [](uint32_t v) { return v != 0; }))
          return "a counter of " + launch.function + " is not zero";
      }
    }
    return "";
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
  bool index_outside = false;  // a launch reported one (PtxArgument::kFault)

 private:
  uint64_t encode(const PtxTensorMap &m, EmulatedTensorMap &to) {
    std::vector<uint64_t> extents, strides;
    for (Dim d : m.extents) extents.push_back(static_cast<uint64_t>(number(d)));
    for (size_t d = 1; d < m.byte_strides.size(); ++d)
      strides.push_back(static_cast<uint64_t>(number(m.byte_strides[d])));
    const std::vector<uint32_t> box(m.box.begin(), m.box.end());
    const uint32_t rank = static_cast<uint32_t>(extents.size());
    const uint64_t address =
        reinterpret_cast<uint64_t>(base(m.buffer.index)) + static_cast<uint64_t>(number(m.byte_offset));
    if (m.walk) {
      const std::vector<int> lower(m.walk->lower.begin(), m.walk->lower.end()),
          upper(m.walk->upper.begin(), m.walk->upper.end());
      const uint32_t steps[4] = {1, static_cast<uint32_t>(m.walk->steps[0]), static_cast<uint32_t>(m.walk->steps[1]),
                                 1};
      EXPECT_TRUE(encode_image_map(to, rank, address, extents.data(), strides.data(), lower.data(), upper.data(),
                                   box[0], box[1], steps));
    } else {
      EXPECT_TRUE(encode_tensor_map(to, rank, address, extents.data(), strides.data(), box.data()));
    }
    return reinterpret_cast<uint64_t>(&to);
  }
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
  bool chained_;
  std::vector<std::vector<uint8_t>> memory_;
  std::function<int64_t(const DimSymbol &)> symbols_;
};

inline double rounding(ElementType type) { return type == kF32 ? 1e-6 : type == kF16 ? 1e-3 : 8e-3; }

// relu(x w + b), as NestProgram::matmul has it.
struct Product {
  ElementType type;
  int64_t batch, m, n, k;
  bool transposed, batched, given_in_f32 = false;
  int splits = 0;
};

// What the machine has computed, beside sums in double. `tolerance` is of the sum of the terms' sizes; `what` names the
// kernel.
inline void expect_product(Machine &machine, const Program &program, const Product &c, double tolerance,
                           const std::string &what) {
  const auto &in = program.inputs;
  const size_t M = static_cast<size_t>(c.m), N = static_cast<size_t>(c.n), K = static_cast<size_t>(c.k);
  for (size_t b = 0; b < static_cast<size_t>(c.batch); ++b)
    for (size_t i = 0; i < M; ++i)
      for (size_t j = 0; j < N; ++j) {
        double sum = machine.get(in[2], j), size = 1;
        for (size_t k = 0; k < K; ++k) {
          const size_t at = (c.batched ? b * K * N : 0) + (c.transposed ? j * K + k : k * N + j);
          const double term = machine.get(in[0], (b * M + i) * K + k) * machine.get(in[1], at);
          sum += term;
          size += std::fabs(term);
        }
        ASSERT_NEAR(machine.get(program.outputs[0], (b * M + i) * N + j), std::max(sum, 0.0), tolerance * size)
            << what << " at " << b << "," << i << "," << j;
      }
}

// The same of a convolution with its images' own number: sums over its windows in double.
inline void expect_convolution(Machine &machine, const Program &program, const NestProgram::Convolution &c,
                               const std::string &what) {
  const BufferId x = program.inputs[0], w = program.inputs[1], y = program.outputs[0];
  const auto at = [](std::initializer_list<std::pair<int64_t, int64_t>> dims) {  // index and extent, outermost first
    int64_t place = 0;
    for (const auto &[index, extent] : dims) place = place * extent + index;
    return static_cast<size_t>(place);
  };
  const int64_t P = c.outputs(0), Q = c.outputs(1), C = c.channels, R = c.kernel[0], S = c.kernel[1];
  for (int64_t n = 0; n < c.batch; ++n)
    for (int64_t p = 0; p < P; ++p)
      for (int64_t q = 0; q < Q; ++q)
        for (int64_t o = 0; o < c.out; ++o) {
          const size_t place = c.images_last ? at({{n, c.batch}, {o, c.out}, {p, P}, {q, Q}})
                                             : at({{n, c.batch}, {p, P}, {q, Q}, {o, c.out}});
          double sum = 0, size = 1;
          for (int64_t r = 0; r < R; ++r)
            for (int64_t s = 0; s < S; ++s) {
              const int64_t h = p * c.strides[0] + r * c.dilations[0] - c.begin[0],
                            v = q * c.strides[1] + s * c.dilations[1] - c.begin[1];
              if (h < 0 || v < 0 || h >= c.size[0] || v >= c.size[1]) continue;
              for (int64_t k = 0; k < C; ++k) {
                const size_t filter = c.filters_last ? at({{r, R}, {s, S}, {k, C}, {o, c.out}})
                                                     : at({{o, c.out}, {r, R}, {s, S}, {k, C}});
                const double term =
                    machine.get(x, at({{n, c.batch}, {h, c.size[0]}, {v, c.size[1]}, {k, C}})) * machine.get(w, filter);
                sum += term;
                size += std::fabs(term);
              }
            }
          if (c.residual) sum = std::max(sum + machine.get(program.inputs[2], place), 0.0);
          ASSERT_NEAR(machine.get(y, place), sum, 3 * rounding(c.type) * size)
              << what << " at " << n << "," << p << "," << q << "," << o;
        }
}

}  // namespace optc::testing
