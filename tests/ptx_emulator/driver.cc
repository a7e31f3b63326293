// A CUDA driver made of the emulator: the functions that runtime/cuda/driver.h looks up, so that a bundle's GPU half
// runs end to end without a card. Loaded through OPTC_LIBCUDA. Copies are immediate, launches wait in the graph that
// captures them.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cuda/driver.h"
#include "tests/ptx_emulator/emulator.h"
#include "tests/ptx_emulator/tensor_map.h"

namespace {

using optc::testing::EmulatedTensorMap;
using optc::testing::PtxEmulator;

struct LoadedModule {
  std::unique_ptr<PtxEmulator> emulator;
  std::map<std::string, std::vector<unsigned>> arguments;  // the sizes of each entry's parameters
};
struct LoadedFunction {
  LoadedModule *module = nullptr;
  std::string name;
};
struct Recorded {
  LoadedModule *module = nullptr;
  PtxEmulator::Launch launch;
  std::shared_ptr<std::vector<EmulatedTensorMap>> maps;  // what its parameters of 128 bytes point to
};
using RecordedGraph = std::vector<Recorded>;

struct State {
  std::map<unsigned long long, size_t> memory;
  std::vector<std::unique_ptr<LoadedModule>> modules;
  std::vector<std::unique_ptr<LoadedFunction>> functions;
  std::unique_ptr<RecordedGraph> capture;
  uint64_t seed = 1;
  bool chained = false;  // the launch at hand
  void *last = nullptr;  // the node that was captured last
};
State &state() {
  static State s;
  return s;
}

int execute(Recorded r) {
  r.launch.seed = ++state().seed;
  try {
    r.module->emulator->run(r.launch);
  } catch (const std::exception &e) {
    std::fprintf(stderr, "emulated launch: %s\n", e.what());
    return 719;  // CUDA_ERROR_LAUNCH_FAILED
  }
  return 0;
}

// The sizes of an entry's parameters in bytes.
std::vector<unsigned> parameters_of(const std::string &text, const std::string &name) {
  std::vector<unsigned> sizes;
  const size_t from = text.find(".entry " + name + "("), to = text.find(')', from);
  for (size_t at = from; (at = text.find(".param ", at)) != std::string::npos && at < to; ++at)
    sizes.push_back(text.compare(at + 7, 4, ".u64") == 0 ? 8 : text.compare(at + 7, 9, ".align 64") == 0 ? 128 : 4);
  return sizes;
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return 0; }
int cuDeviceGetCount(int *n) { return *n = 1, 0; }
int cuDeviceGet(int *d, int) { return *d = 0, 0; }
int cuDeviceGetAttribute(int *v, int attribute, int) { return *v = attribute == 75 ? 9 : 0, 0; }
int cuDevicePrimaryCtxRetain(void **c, int) { return *c = &state(), 0; }
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxPushCurrent_v2(void *) { return 0; }
int cuCtxPopCurrent_v2(void **) { return 0; }
int cuModuleLoadDataEx(void **m, const void *image, unsigned, int *, void **) {
  auto module = std::make_unique<LoadedModule>();
  const std::string text(static_cast<const char *>(image));
  try {
    module->emulator = std::make_unique<PtxEmulator>(text);
  } catch (const std::exception &e) {
    std::fprintf(stderr, "emulated module: %s\n", e.what());
    return 218;  // CUDA_ERROR_INVALID_PTX
  }
  for (size_t at = 0; (at = text.find(".entry ", at)) != std::string::npos;) {
    at += 7;
    const std::string name = text.substr(at, text.find('(', at) - at);
    module->arguments[name] = parameters_of(text, name);
  }
  for (const auto &[base, size] : state().memory)
    module->emulator->add_memory(reinterpret_cast<void *>(base), size, true);
  *m = module.get();
  state().modules.push_back(std::move(module));
  return 0;
}
int cuModuleUnload(void *) { return 0; }
int cuModuleGetFunction(void **f, void *m, const char *name) {
  auto *module = static_cast<LoadedModule *>(m);
  if (!module->arguments.count(name)) return 500;  // CUDA_ERROR_NOT_FOUND
  auto function = std::make_unique<LoadedFunction>();
  function->module = module;
  function->name = name;
  *f = function.get();
  state().functions.push_back(std::move(function));
  return 0;
}
int cuFuncSetAttribute(void *, int, int bytes) { return bytes <= 227 * 1024 ? 0 : 1; }
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned threads, unsigned ty, unsigned tz,
                   unsigned shared, void *, void **arguments, void **) {
  auto *function = static_cast<LoadedFunction *>(f);
  if (ty != 1 || tz != 1 || threads > 1024 || gy > 65535 || gz > 65535) return 1;
  Recorded r;
  r.module = function->module;
  r.launch.function = function->name;
  r.launch.grid[0] = gx;
  r.launch.grid[1] = gy;
  r.launch.grid[2] = gz;
  r.launch.threads = threads;
  r.launch.shared_bytes = shared;
  r.launch.chained = state().chained;
  const std::vector<unsigned> &wide = function->module->arguments[function->name];
  unsigned parameter_bytes = 0;
  for (unsigned w : wide) {
    const unsigned align = std::min(w, 64u);
    parameter_bytes = (parameter_bytes + align - 1) / align * align + w;
  }
  if (parameter_bytes > 4096) return 1;  // as real drivers
  r.maps = std::make_shared<std::vector<EmulatedTensorMap>>(wide.size());
  for (size_t i = 0; i < wide.size(); ++i) {
    uint64_t v = 0;
    if (wide[i] == sizeof(optc::cuda::TensorMap)) {
      std::memcpy(&(*r.maps)[i], arguments[i], sizeof(EmulatedTensorMap));
      v = reinterpret_cast<uint64_t>(&(*r.maps)[i]);
    } else {
      std::memcpy(&v, arguments[i], wide[i]);
    }
    r.launch.arguments.push_back(v);
  }
  if (state().capture) {
    state().capture->push_back(r);
    return 0;
  }
  return execute(r);
}
int cuLaunchKernelEx(const optc::cuda::LaunchConfig *c, void *f, void **arguments, void **extra) {
  state().chained = c->attribute_count > 0 && c->attributes[0].id == optc::cuda::kProgrammaticSerialization &&
                    c->attributes[0].value.allowed != 0;
  const int code = cuLaunchKernel(f, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2],
                                  c->shared_bytes, c->stream, arguments, extra);
  state().chained = false;
  return code;
}
int cuTensorMapEncodeTiled(optc::cuda::TensorMap *map, int type, unsigned rank, void *address, const uint64_t *extents,
                           const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                           int swizzle, int cache, int fill) {
  if (type != optc::cuda::kTensorMapF16 && type != optc::cuda::kTensorMapBF16) return 1;
  if (interleave != 0 || swizzle != optc::cuda::kTensorMapSwizzle128 || cache != optc::cuda::kTensorMapCache256 || fill)
    return 1;
  for (unsigned d = 0; d < rank; ++d)
    if (steps[d] != 1) return 1;
  EmulatedTensorMap made;
  if (!optc::testing::encode_tensor_map(made, rank, reinterpret_cast<uint64_t>(address), extents, strides, box))
    return 1;
  std::memcpy(map, &made, sizeof made);
  return 0;
}
int cuTensorMapEncodeIm2col(optc::cuda::TensorMap *map, int type, unsigned rank, void *address, const uint64_t *extents,
                            const uint64_t *strides, const int *lower, const int *upper, uint32_t channels,
                            uint32_t pixels, const uint32_t *steps, int interleave, int swizzle, int cache, int fill) {
  if (type != optc::cuda::kTensorMapF16 && type != optc::cuda::kTensorMapBF16) return 1;
  if (interleave != 0 || swizzle != optc::cuda::kTensorMapSwizzle128 || cache != optc::cuda::kTensorMapCache256 || fill)
    return 1;
  EmulatedTensorMap made;
  if (!optc::testing::encode_image_map(made, rank, reinterpret_cast<uint64_t>(address), extents, strides, lower, upper,
                                       channels, pixels, steps))
    return 1;
  std::memcpy(map, &made, sizeof made);
  return 0;
}
int cuMemAlloc_v2(unsigned long long *p, size_t bytes) {
  void *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(memory, 0xFF, bytes);
  *p = reinterpret_cast<unsigned long long>(memory);
  state().memory[*p] = bytes;
  for (auto &m : state().modules) m->emulator->add_memory(memory, bytes, true);
  return 0;
}
int cuMemFree_v2(unsigned long long p) {
  state().memory.erase(p);
  std::free(reinterpret_cast<void *>(p));
  return 0;
}
int cuMemHostAlloc(void **p, size_t bytes, unsigned) {
  unsigned long long address = 0;
  const int code = cuMemAlloc_v2(&address, bytes);
  return *p = reinterpret_cast<void *>(address), code;
}
int cuMemHostGetDevicePointer_v2(unsigned long long *device, void *host, unsigned) {
  return *device = reinterpret_cast<unsigned long long>(host), 0;
}
int cuMemFreeHost(void *p) { return cuMemFree_v2(reinterpret_cast<unsigned long long>(p)); }
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t n, void *) {
  for (auto &m : state().modules) m->emulator->written_by_copy(to, n);
  return std::memcpy(reinterpret_cast<void *>(to), from, n), 0;
}
int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t n, void *) {
  return std::memcpy(to, reinterpret_cast<void *>(from), n), 0;
}
int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t n, void *) {
  for (auto &m : state().modules) m->emulator->written_by_copy(to, n);
  return std::memcpy(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), n), 0;
}
int cuStreamCreate(void **s, unsigned) { return *s = &state(), 0; }
int cuStreamDestroy_v2(void *) { return 0; }
int cuStreamSynchronize(void *) { return 0; }
int cuStreamBeginCapture_v2(void *, int) { return state().capture = std::make_unique<RecordedGraph>(), 0; }
int cuStreamEndCapture(void *, void **graph) { return *graph = state().capture.release(), 0; }
// Nodes are numbers: the place of the launch, from 1 on.
int cuStreamGetCaptureInfo_v2(void *, int *status, unsigned long long *id, void **graph, void *const **last,
                              size_t *n) {
  *status = state().capture ? 1 : 0;
  *id = 1;
  *graph = state().capture.get();
  state().last = state().capture ? reinterpret_cast<void *>(state().capture->size()) : nullptr;
  return *last = &state().last, *n = state().last ? 1 : 0, 0;
}
int cuGraphExecKernelNodeSetParams(void *exec, void *node, const optc::cuda::KernelNode *k) {
  auto &graph = *static_cast<RecordedGraph *>(exec);
  const size_t at = reinterpret_cast<size_t>(node) - 1;
  if (at >= graph.size()) return 1;
  // Recorded as a launch is, in the node's place.
  auto others = std::exchange(state().capture, std::make_unique<RecordedGraph>());
  state().chained = graph[at].launch.chained;
  const int code = cuLaunchKernel(k->function, k->grid[0], k->grid[1], k->grid[2], k->block[0], k->block[1],
                                  k->block[2], k->shared_bytes, nullptr, k->arguments, k->extra);
  state().chained = false;
  std::swap(others, state().capture);
  if (!code) graph[at] = others->back();
  return code;
}
int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long) {
  return *exec = new RecordedGraph(*static_cast<RecordedGraph *>(graph)), 0;
}
int cuGraphLaunch(void *exec, void *) {
  for (const Recorded &r : *static_cast<RecordedGraph *>(exec))
    if (const int code = execute(r)) return code;
  return 0;
}
int cuGraphDestroy(void *graph) { return delete static_cast<RecordedGraph *>(graph), 0; }
int cuGraphExecDestroy(void *exec) { return delete static_cast<RecordedGraph *>(exec), 0; }
int cuGetErrorName(int, const char **text) { return *text = "CUDA_ERROR_EMULATED", 0; }
int cuGetErrorString(int, const char **text) { return *text = "see stderr", 0; }

}  // extern "C"
