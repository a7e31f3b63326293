// gpu_bundle MODEL.onnx -o DIR [--target sm_90a]... [--f32 3xtf32|tf32|ieee] [--precision f32|f16|bf16] [--dim NAME=N]
// [--tile I] [--splits N] [--no-weights]:
// the GPU half of a bundle alone, for measurements and for tests on the emulated driver: DIR/cuda.cpp (tables and PTX),
// DIR/cuda.weights, DIR/kernels.ptx, DIR/launches.json.
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#include "emit/ptx/cuda_source.h"
#include "emit/ptx/ptx.h"
#include "importer/importer.h"
#include "lowering/lower.h"
#include "optimizer/optimize.h"

namespace {

// The launches of a Program whose sizes are all known, as JSON: buffers (name, kind, bytes, where in cuda.weights) and
// launches (entry, grid, threads, shared bytes, arguments as buffer numbers). Empty when a size is symbolic.
std::string launches_json(const optc::Program &program, const optc::PtxOutput &ptx, const optc::CudaSource &source) {
  std::vector<uint32_t> buffers;
  std::string launches;
  for (const optc::PtxKernel &k : ptx.kernels)
    for (const optc::PtxLaunch &l : k.launches) {
      std::string arguments;
      for (const optc::PtxArgument &a : l.arguments) {
        if (a.kind == optc::PtxArgument::Kind::kSymbol || a.kind == optc::PtxArgument::Kind::kUnread ||
            a.kind == optc::PtxArgument::Kind::kTensorMap)
          return {};
        if (a.kind == optc::PtxArgument::Kind::kWorkspace || a.kind == optc::PtxArgument::Kind::kFault) {
          arguments += ", -1";  // no index of a benchmark is outside its dimension
          continue;
        }
        size_t at = 0;
        while (at < buffers.size() && buffers[at] != a.buffer.index) ++at;
        if (at == buffers.size()) buffers.push_back(a.buffer.index);
        arguments += (arguments.empty() ? "" : ", ") + std::to_string(at);
      }
      launches += (launches.empty() ? "\n" : ",\n") + std::string("  {\"entry\": \"") + l.function +
                  "\", \"form\": \"" + k.form + "\", \"grid\": [";
      for (int axis = 0; axis < 3; ++axis) {
        if (!l.grid[axis].is_constant()) return {};
        launches += (axis ? ", " : "") + std::to_string(l.grid[axis].value());
      }
      launches += "], \"threads\": " + std::to_string(l.threads) +
                  ", \"workspace\": " + std::to_string(l.workspace_bytes) +
                  ", \"shared\": " + std::to_string(l.shared_bytes) + ", \"arguments\": [" + arguments + "]}";
    }
  static const char *const kKinds[] = {"input", "output", "constant", "temporary", "scratch", "object"};
  std::string list;
  for (uint32_t index : buffers) {
    const optc::Buffer &b = program.buffers[index];
    const optc::Dim count = optc::storage_count(b);
    if (!count.is_constant()) return {};
    uint64_t offset = 0;
    for (const auto &[id, at] : source.constants)
      if (b.kind == optc::BufferKind::kConstant && program.buffer(id).constant.data() == b.constant.data()) offset = at;
    list += (list.empty() ? "\n" : ",\n") + std::string("  {\"name\": \"") + b.name + "\", \"kind\": \"" +
            kKinds[static_cast<size_t>(b.kind)] + "\", \"type\": " + std::to_string(static_cast<int>(b.element())) +
            ", \"bytes\": " + std::to_string(count.value() * std::max(8, optc::bit_width(b.element())) / 8) +
            ", \"offset\": " + std::to_string(offset) + "}";
  }
  return "{\"buffers\": [" + list + "],\n\"launches\": [" + launches + "]}\n";
}

}  // namespace

int main(int argc, char **argv) {
  std::string input, output;
  optc::ImportOptions import;
  optc::PtxOptions ptx_options;
  optc::LoweringOptions lowering;
  bool print = false, write_weights = true;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const bool more = i + 1 < argc;
    if (arg == "-o" && more) {
      output = argv[++i];
    } else if (arg == "--target" && more) {
      ptx_options.targets.push_back(argv[++i]);
    } else if (arg == "--f32" && more) {
      const std::string f32 = argv[++i];
      lowering.f32 = f32 == "ieee"   ? optc::F32Products::kIEEE
                     : f32 == "tf32" ? optc::F32Products::kTF32
                                     : optc::F32Products::kThreeTF32;
    } else if (arg == "--tile" && more) {  // for all products that can have it: bench/gpu/tiles.py
      lowering.tile = std::atoi(argv[++i]);
    } else if (arg == "--warpgroup-tile" && more) {  // the same on warpgroups, wherever they can have the product
      lowering.warpgroup_tile = std::atoi(argv[++i]);
      lowering.disabled.push_back("schedule.gemm.tensor_core");
    } else if (arg == "--splits" && more) {
      lowering.splits = std::atoi(argv[++i]);
    } else if (arg == "--precision" && more) {
      const std::string precision = argv[++i];
      if (precision == "f16") lowering.precision = optc::ElementType::kFloat16;
      if (precision == "bf16") lowering.precision = optc::ElementType::kBFloat16;
    } else if (arg == "--no-weights") {
      write_weights = false;
    } else if (arg == "--print") {
      print = true;
    } else if (arg == "--dim" && more) {
      const std::string pin = argv[++i];
      const size_t equals = pin.find('=');
      if (equals == std::string::npos) return 2;
      const long long value = std::atoll(pin.c_str() + equals + 1);
      import.dims.push_back({pin.substr(0, equals), value, value});
    } else if (input.empty()) {
      input = arg;
    } else {
      std::fprintf(stderr, "gpu_bundle: unexpected '%s'\n", arg.c_str());
      return 2;
    }
  }
  if (ptx_options.targets.empty()) ptx_options.targets = {"sm_80"};
  optc::Diagnostics diagnostics;
  auto finish = [&](int code) {
    for (const auto &d : diagnostics.all()) std::fputs(optc::format(d).c_str(), stderr);
    return code;
  };
  auto graph = optc::import_model(input, import, diagnostics);
  if (!graph.ok()) return finish(optc::exit_code(graph.failure().kind));
  optc::OptimizeReport optimized;
  if (optc::Status s = optc::optimize(*graph, {}, optimized, diagnostics); !s.ok())
    return finish(optc::exit_code(s.failure().kind));
  lowering.target = optc::LoweringOptions::Target::kGpu;
  lowering.machine = &optc::machine_of(ptx_options.targets);
  lowering.warpgroups = optc::all_have_warpgroups(ptx_options.targets);
  optc::LoweringReport lowered;
  auto program = optc::lower(*graph, lowering, lowered, diagnostics);
  if (!program.ok()) return finish(optc::exit_code(program.failure().kind));
  for (const auto &[name, why] : lowered.precision.kept) std::printf("f32: %s: %s\n", name.c_str(), why.c_str());
  if (print) std::fputs(optc::print(*program).c_str(), stdout);
  std::unique_ptr<optc::PtxEmitter> emitter(optc_make_ptx_emitter());
  auto ptx = emitter->emit(*program, ptx_options, diagnostics);
  if (!ptx.ok()) return finish(optc::exit_code(ptx.failure().kind));
  for (const optc::PtxKernel &k : ptx->kernels) {
    std::printf("%-48s %s", program->kernel(k.kernel).name.c_str(),
                k.on_gpu ? k.form.c_str() : ("CPU: " + k.reason).c_str());
    for (const optc::PtxLaunch &l : k.launches)
      std::printf("  [%s %s %s] x %u %s", l.grid[0].str().c_str(), l.grid[1].str().c_str(), l.grid[2].str().c_str(),
                  l.threads, l.function == program->kernel(k.kernel).name ? "" : l.function.c_str());
    std::printf("\n");
  }
  auto source = optc::print_cuda(*program, *ptx, "model", diagnostics);
  if (!source.ok()) return finish(optc::exit_code(source.failure().kind));
  if (!output.empty()) {
    mkdir(output.c_str(), 0777);
    std::ofstream(output + "/cuda.cpp") << source->source;
    std::ofstream(output + "/kernels.ptx") << ptx->modules[0].text;
    std::ofstream(output + "/launches.json") << launches_json(*program, *ptx, *source);
    if (!write_weights) return finish(0);
    std::ofstream weights(output + "/cuda.weights", std::ios::binary);
    optc::each_cuda_weight(*program, *source, [&](const void *data, uint64_t n) {
      weights.write(static_cast<const char *>(data), static_cast<std::streamsize>(n));
    });
  }
  std::printf("%zu launches, %llu bytes of weights\n", source->launches,
              static_cast<unsigned long long>(source->weights_bytes));
  return finish(0);
}
