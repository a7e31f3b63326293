#include "driver/gpu.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "driver/bisect.h"
#include "driver/places.h"
#include "driver/step.h"
#include "ir/program/gpu_machine.h"
#ifdef OPTC_HAS_PTX
#include "emit/ptx/cuda_source.h"
#include "emit/ptx/ptx.h"
#endif

namespace optc {

bool is_gpu_target(const std::string &target) { return find_gpu_machine(target) != nullptr; }
bool has_gpu_target(const CompileOptions &options) {
  return std::any_of(options.targets.begin(), options.targets.end(), is_gpu_target);
}

#ifdef OPTC_HAS_PTX

namespace {

// Keeps the module loaded as long as its emitter lives.
class LoadedEmitter {
 public:
  static Result<std::unique_ptr<LoadedEmitter>> load(Diagnostics &diagnostics) {
    std::unique_ptr<LoadedEmitter> loaded(new LoadedEmitter());
    const std::string path = module_path("optc-ptx.so");
    loaded->library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!loaded->library_)
      return diagnostics.error(ErrorKind::kIo,
                               fmt::format("the module for GPU targets cannot be loaded: {}", dlerror()));
    auto *make = reinterpret_cast<PtxEmitter *(*)()>(dlsym(loaded->library_, "optc_ptx_emitter"));
    if (!make) return diagnostics.error(ErrorKind::kIo, path + " is not a module of this optc");
    loaded->emitter_.reset(make());
    return loaded;
  }
  ~LoadedEmitter() {
    emitter_.reset();
    if (library_) dlclose(library_);
  }
  LoadedEmitter(const LoadedEmitter &) = delete;
  LoadedEmitter &operator=(const LoadedEmitter &) = delete;
  PtxEmitter &operator*() { return *emitter_; }

 private:
  LoadedEmitter() = default;
  void *library_ = nullptr;
  std::unique_ptr<PtxEmitter> emitter_;
};

}  // namespace

Result<std::optional<BundleCuda>> gpu_half(const Graph &graph, const std::string &name, const CompileOptions &options,
                                           Listener &listener, Diagnostics &diagnostics,
                                           std::vector<std::pair<std::string, std::string>> *kept_f32) {
  OPTC_ASSIGN(const auto emitter, LoadedEmitter::load(diagnostics));
  LoweringReport report;
  OPTC_ASSIGN(Program lowered, lower_reported(graph, options, listener, diagnostics, true, report));
  if (kept_f32) *kept_f32 = std::move(report.precision.kept);
  auto kept = std::make_shared<const Program>(std::move(lowered));
  const Program &program = *kept;
  Step step(listener, "emit gpu");
  PtxOptions ptx_options;
  BundleCuda half;
  for (const std::string &target : options.targets)
    if (is_gpu_target(target)) half.targets.push_back(target);
  ptx_options.targets = half.targets;
  ptx_options.watched = options.probe;
  OPTC_ASSIGN(const PtxOutput ptx, (**emitter).emit(program, ptx_options, diagnostics));
  Diagnostics problems;
  Result<CudaSource> source = print_cuda(program, ptx, name, problems, options.probe);
  if (!source) {
    if (source.failure().kind != ErrorKind::kUnsupported) {
      for (const Diagnostic &d : problems.all()) (void)diagnostics.add(d);
      return source.failure();
    }
    std::string why;
    for (const Diagnostic &d : problems.all()) {
      why += (why.empty() ? "" : "; ") + d.message;
      for (const std::string &place : d.places) why += ", " + place;
    }
    diagnostics.warning("no GPU half was written: " + why);
    step.end("none: no kernel has a GPU form");
    return std::optional<BundleCuda>();
  }
  half.source = std::move(source->source);
  half.weights_bytes = source->weights_bytes;
  for (const auto &[id, offset] : source->constants) half.constants.emplace_back(program.buffer(id).constant, offset);
  size_t ptx_bytes = 0;
  for (const PtxModule &module : ptx.modules) {
    ptx_bytes += module.text.size();
    half.ptx.emplace_back(fmt::format("{}.{}.ptx", name, module.target), module.text);
  }
  half.program = kept;
  half.choices = std::move(report.choices);
  half.schedule = std::move(source->schedule);
  half.buffers = std::move(source->buffers);
  for (const PtxKernel &kernel : ptx.kernels) half.forms.push_back(kernel.on_gpu ? kernel.form : "");
  std::string on_cpu;
  if (half.schedule.mixed()) {
    size_t count = 0;
    for (size_t i = 0; i < half.schedule.segment.size(); ++i) {
      if (half.schedule.segment[i] >= 0) continue;
      if (++count <= 3) on_cpu += (count == 1 ? " (" : ", ") + program.kernel(program.order[i]).name;
    }
    on_cpu =
        fmt::format(" in {} segments, {} {} on the CPU{}{}, {} copies", half.schedule.segments, count,
                    count == 1 ? "kernel" : "kernels", on_cpu, count > 3 ? ", ...)" : ")", half.schedule.copy_count());
  }
  step.end(fmt::format("{}: {} launches{}, {} of PTX, {} of weights", fmt::join(half.targets, ", "), source->launches,
                       on_cpu, format_bytes(static_cast<int64_t>(ptx_bytes)),
                       format_bytes(static_cast<int64_t>(half.weights_bytes))));
  return std::optional<BundleCuda>(std::move(half));
}

#else

Result<std::optional<BundleCuda>> gpu_half(const Graph &, const std::string &, const CompileOptions &, Listener &,
                                           Diagnostics &diagnostics,
                                           std::vector<std::pair<std::string, std::string>> *) {
  return diagnostics.error(ErrorKind::kUnsupported, "this optc was built without GPU targets (OPTC_PTX)");
}

#endif

}  // namespace optc
