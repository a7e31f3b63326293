#pragma once
// The CUDA driver, loaded at run time: no CUDA header and no link against it. Names are those that cuda.h's macros
// expand to (cuMemAlloc_v2, ...), so that the declarations here are the functions'. OPTC_LIBCUDA in the environment
// names another library (tests).

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <string>

namespace optc {
namespace cuda {

using Result = int;  // CUresult; 0 is success
using Device = int;
using Address = unsigned long long;  // CUdeviceptr
using Context = void *;
using Module = void *;
using Function = void *;
using Stream = void *;
using Graph = void *;
using GraphExec = void *;
using GraphNode = void *;
using Event = void *;

constexpr int kComputeCapabilityMajor = 75, kComputeCapabilityMinor = 76;                    // CUdevice_attribute
constexpr int kMaxDynamicSharedBytes = 8;                                                    // CUfunction_attribute
constexpr int kJitInfoLog = 3, kJitInfoLogSize = 4, kJitErrorLog = 5, kJitErrorLogSize = 6;  // CUjit_option
constexpr int kCaptureRelaxed = 2;                                                           // CUstreamCaptureMode
constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kHostPortable = 1, kHostMapped = 2;  // CU_MEMHOSTALLOC_*

constexpr int kProgrammaticSerialization = 6;  // CUlaunchAttributeID

// CUtensorMap, and the values of its enumerations that are used: types, 128-byte swizzle, 256-byte fetches into the
// second cache.
struct alignas(64) TensorMap {
  unsigned long long opaque[16];
};
constexpr int kTensorMapF16 = 6, kTensorMapBF16 = 9, kTensorMapSwizzle128 = 3, kTensorMapCache256 = 3;

// CUlaunchAttribute and CUlaunchConfig.
struct LaunchAttribute {
  int id;
  char unused[8 - sizeof(int)];
  union {
    char space[64];
    int allowed;
  } value;
};
struct LaunchConfig {
  unsigned grid[3], block[3], shared_bytes;
  Stream stream;
  LaunchAttribute *attributes;
  unsigned attribute_count;
};

// CUDA_KERNEL_NODE_PARAMS, as cuGraphExecKernelNodeSetParams without a suffix takes it.
struct KernelNode {
  Function function;
  unsigned grid[3], block[3], shared_bytes;
  void **arguments, **extra;
};

struct Driver {
  Result (*init)(unsigned);
  Result (*device_count)(int *);
  Result (*device_get)(Device *, int);
  Result (*device_attribute)(int *, int, Device);
  Result (*context_retain)(Context *, Device);
  Result (*context_release)(Device);
  Result (*context_push)(Context);
  Result (*context_pop)(Context *);
  Result (*module_load)(Module *, const void *, unsigned, int *, void **);
  Result (*module_unload)(Module);
  Result (*module_function)(Function *, Module, const char *);
  Result (*function_attribute)(Function, int, int);
  Result (*launch)(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream, void **,
                   void **);
  Result (*launch_with)(const LaunchConfig *, Function, void **, void **);  // null in drivers before 12.0
  // Null in drivers before 12.0. Map, type, rank, address, extents, strides in bytes (of all but the first dim), box,
  // steps, interleave, swizzle, cache, fill.
  Result (*tensor_map)(TensorMap *, int, unsigned, void *, const uint64_t *, const uint64_t *, const uint32_t *,
                       const uint32_t *, int, int, int, int);
  // The same of an image. Map, type, rank, address, extents, strides, lower and upper corner (of all but the first and
  // last dim), channels, pixels, steps, interleave, swizzle, cache, fill.
  Result (*image_map)(TensorMap *, int, unsigned, void *, const uint64_t *, const uint64_t *, const int *, const int *,
                      uint32_t, uint32_t, const uint32_t *, int, int, int, int);
  Result (*allocate)(Address *, size_t);
  Result (*release)(Address);
  Result (*host_allocate)(void **, size_t, unsigned);
  Result (*host_address)(Address *, void *, unsigned);  // as the device sees it
  Result (*host_release)(void *);
  Result (*to_device)(Address, const void *, size_t, Stream);
  Result (*to_host)(void *, Address, size_t, Stream);
  Result (*on_device)(Address, Address, size_t, Stream);
  Result (*stream_create)(Stream *, unsigned);
  Result (*stream_destroy)(Stream);
  Result (*stream_wait)(Stream);
  Result (*capture_begin)(Stream, int);
  Result (*capture_end)(Stream, Graph *);
  Result (*graph_instantiate)(GraphExec *, Graph, unsigned long long);
  Result (*graph_launch)(GraphExec, Stream);
  Result (*graph_destroy)(Graph);
  Result (*graph_exec_destroy)(GraphExec);
  // Null in drivers before 11.3. Stream, CUstreamCaptureStatus, id, graph, the nodes that the next one will come after,
  // their number.
  Result (*capture_info)(Stream, int *, unsigned long long *, Graph *, const GraphNode **, size_t *);
  Result (*graph_set_kernel)(GraphExec, GraphNode, const KernelNode *);
  Result (*error_name)(Result, const char **);
  Result (*error_string)(Result, const char **);

  // The driver of this process, initialized; null with a reason when there is none.
  static const Driver *get(std::string *why) {
    static std::string reason;
    static const Driver *const driver = load(&reason);
    if (!driver) *why = reason;
    return driver;
  }

  std::string describe(Result code) const {
    const char *name = nullptr, *text = nullptr;
    error_name(code, &name);
    error_string(code, &text);
    return std::string(name ? name : "CUDA error " + std::to_string(code)) +
           (text ? std::string(" (") + text + ")" : "");
  }

 private:
  template <typename F>
  static bool find(void *library, const char *name, F **out, std::string *why) {
    *out = reinterpret_cast<F *>(dlsym(library, name));
    if (!*out) *why = std::string("the CUDA driver has no ") + name;
    return *out != nullptr;
  }

  static const Driver *load(std::string *why) {
    const char *other = getenv("OPTC_LIBCUDA");
    void *library = dlopen(other && *other ? other : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      *why = "no CUDA driver: " + std::string(dlerror());
      return nullptr;
    }
    static Driver d;
    const bool all =
        find(library, "cuInit", &d.init, why) && find(library, "cuDeviceGetCount", &d.device_count, why) &&
        find(library, "cuDeviceGet", &d.device_get, why) &&
        find(library, "cuDeviceGetAttribute", &d.device_attribute, why) &&
        find(library, "cuDevicePrimaryCtxRetain", &d.context_retain, why) &&
        find(library, "cuDevicePrimaryCtxRelease_v2", &d.context_release, why) &&
        find(library, "cuCtxPushCurrent_v2", &d.context_push, why) &&
        find(library, "cuCtxPopCurrent_v2", &d.context_pop, why) &&
        find(library, "cuModuleLoadDataEx", &d.module_load, why) &&
        find(library, "cuModuleUnload", &d.module_unload, why) &&
        find(library, "cuModuleGetFunction", &d.module_function, why) &&
        find(library, "cuFuncSetAttribute", &d.function_attribute, why) &&
        find(library, "cuLaunchKernel", &d.launch, why) && find(library, "cuMemAlloc_v2", &d.allocate, why) &&
        find(library, "cuMemFree_v2", &d.release, why) && find(library, "cuMemHostAlloc", &d.host_allocate, why) &&
        find(library, "cuMemHostGetDevicePointer_v2", &d.host_address, why) &&
        find(library, "cuMemFreeHost", &d.host_release, why) &&
        find(library, "cuMemcpyHtoDAsync_v2", &d.to_device, why) &&
        find(library, "cuMemcpyDtoHAsync_v2", &d.to_host, why) &&
        find(library, "cuMemcpyDtoDAsync_v2", &d.on_device, why) &&
        find(library, "cuStreamCreate", &d.stream_create, why) &&
        find(library, "cuStreamDestroy_v2", &d.stream_destroy, why) &&
        find(library, "cuStreamSynchronize", &d.stream_wait, why) &&
        find(library, "cuStreamBeginCapture_v2", &d.capture_begin, why) &&
        find(library, "cuStreamEndCapture", &d.capture_end, why) &&
        find(library, "cuGraphInstantiateWithFlags", &d.graph_instantiate, why) &&
        find(library, "cuGraphLaunch", &d.graph_launch, why) &&
        find(library, "cuGraphDestroy", &d.graph_destroy, why) &&
        find(library, "cuGraphExecDestroy", &d.graph_exec_destroy, why) &&
        find(library, "cuGraphExecKernelNodeSetParams", &d.graph_set_kernel, why) &&
        find(library, "cuGetErrorName", &d.error_name, why) && find(library, "cuGetErrorString", &d.error_string, why);
    if (!all) return nullptr;
    std::string not_needed;
    find(library, "cuLaunchKernelEx", &d.launch_with, &not_needed);
    find(library, "cuStreamGetCaptureInfo_v2", &d.capture_info, &not_needed);
    find(library, "cuTensorMapEncodeTiled", &d.tensor_map, &not_needed);
    find(library, "cuTensorMapEncodeIm2col", &d.image_map, &not_needed);
    if (const Result code = d.init(0)) {
      *why = "the CUDA driver does not start: " + d.describe(code);
      return nullptr;
    }
    return &d;
  }
};

}  // namespace cuda
}  // namespace optc
