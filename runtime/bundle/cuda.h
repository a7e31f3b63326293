// cuda.h: the C ABI of a bundle that also has code for NVIDIA GPUs. A context runs either on one GPU or on the CPU,
// decided when it is made: device_type OPTC_CPU takes the CPU, OPTC_CUDA the GPU or fails, 0 the GPU where a driver and
// a fitting card are found.
//
// M has, besides what model.h asks for: kCudaWeights (where the GPU's weights lie in the bundle's weights); cuda() (the
// tables). X is M, or, where some kernels of the GPU's Program run on the host, the model with that schedule (mixed.h).
#pragma once
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/bundle/model.h"
#include "runtime/cuda/session.h"

namespace optc {

template <class M, class X = M>
struct CudaBundle {
  using Cpu = Bundle<M>;
  using Host = Bundle<X>;
  static constexpr bool kMixed = !std::is_same<M, X>::value;
  struct Context {
    optc_context *cpu = nullptr;   // always there: it keeps the weights
    optc_context *host = nullptr;  // of X, when kMixed and on the GPU
    std::unique_ptr<cuda::Session> gpu;
    std::vector<std::vector<uint64_t>> staged;  // tensors that the caller has on the card
    std::string error, profile_text;
    bool failed_on_gpu = false;
  };
  static Context *context(optc_context *c) { return reinterpret_cast<Context *>(c); }

  static optc_status context_create(optc_weights *weights, const optc_options *given, optc_context **out) {
    thread_error()[0] = 0;
    if (!out) return Cpu::missing("context_create", "the place of the context");
    *out = nullptr;
    optc_options options;
    if (const optc_status status = read_options(given, &options, thread_error(), kErrorSize)) return status;
    const int32_t wish = options.device_type, device = options.device_id;
    options.device_type = OPTC_CPU;  // of the parts that run on the host
    options.device_id = 0;
    std::unique_ptr<Context> c(new (std::nothrow) Context);
    if (!c) return OPTC_OUT_OF_MEMORY;
    if (wish != OPTC_CPU) {
      optc_options quiet = options;  // a context that only holds the weights: no threads
      quiet.threads = 1;
      quiet.parallel_for = nullptr;
      if (const optc_status status = Cpu::context_create(weights, &quiet, &c->cpu)) return status;
      optc_status status = OPTC_OK;
      std::string error;
      const uint8_t *data = Cpu::context(c->cpu)->weights->data;
      c->gpu = cuda::Session::create(M::cuda(), data ? data + M::kCudaWeights : nullptr, device, &status, &error);
      if (c->gpu && kMixed) {
        status =
            Host::context_create(reinterpret_cast<optc_weights *>(Cpu::context(c->cpu)->weights), &options, &c->host);
        if (status != OPTC_OK) {
          c->gpu.reset();
          Cpu::context_destroy(c->cpu);
          return status;
        }
        Host::context(c->host)->run().device = c->gpu.get();
      }
      if (c->gpu) {
        *out = reinterpret_cast<optc_context *>(c.release());
        return OPTC_OK;
      }
      Cpu::context_destroy(c->cpu);
      c->cpu = nullptr;
      if (wish == OPTC_CUDA) {
        snprintf(thread_error(), kErrorSize, "%s", error.c_str());
        return status;
      }
    }
    if (const optc_status status = Cpu::context_create(weights, &options, &c->cpu)) return status;
    *out = reinterpret_cast<optc_context *>(c.release());
    return OPTC_OK;
  }
  static void context_destroy(optc_context *handle) {
    Context *c = context(handle);
    if (!c) return;
    if (c->host) Host::context_destroy(c->host);
    c->gpu.reset();
    Cpu::context_destroy(c->cpu);
    delete c;
  }
  static optc_status output_dims(const optc_context *, const optc_value *inputs, optc_value *outputs) {
    return Cpu::output_dims(nullptr, inputs, outputs);
  }
  static optc_status run(optc_context *handle, const optc_value *inputs, optc_value *outputs) {
    if (!handle) return Cpu::missing("run", "the context");
    Context *c = context(handle);
    c->failed_on_gpu = false;
    if (!c->gpu) return Cpu::run(c->cpu, inputs, outputs);
    if (const optc_status status = accept(c, inputs, outputs)) return status;
    if (kMixed) return run_mixed(c, inputs, outputs);
    const optc_status status = c->gpu->run(Cpu::context(c->cpu)->run().inputs, outputs);
    return status == OPTC_OK ? status : device_failed(c, status);
  }
  // The checks of a bundle's run, for a context on a GPU: afterwards the CPU context's run has the inputs, defaults
  // included.
  static optc_status accept(Context *c, const optc_value *inputs, const optc_value *outputs) {
    Run<M> &run = Cpu::context(c->cpu)->run();
    run.status = OPTC_OK;
    run.error[0] = 0;
    run.outputs = const_cast<optc_value *>(outputs);
    optc_status status = Cpu::check_outputs(run, outputs, true);
    if (status == OPTC_OK) status = Cpu::bind(run, inputs, true, true);
    if (status == OPTC_OK) return status;
    c->failed_on_gpu = true;
    c->error = run.error;
    return status;
  }
  // The schedule on the host wants host memory: tensors on the card are copied to it and back.
  static optc_status run_mixed(Context *c, const optc_value *inputs, optc_value *outputs) {
    std::vector<optc_value> in(inputs, inputs + (inputs ? M::kInputs : 0)), out(outputs, outputs + M::kOutputs);
    c->staged.resize(in.size() + out.size());
    for (size_t i = 0; i < in.size(); ++i) {
      optc_tensor &t = in[i].tensor;
      if (t.device_type != OPTC_CUDA || !t.data) continue;
      const size_t bytes = tensor_bytes(t.type, count_of(t));
      c->staged[i].resize(bytes / 8 + 1);
      if (const optc_status status = c->gpu->fetch(t.data, c->staged[i].data(), bytes)) return device_failed(c, status);
      t.data = c->staged[i].data();
      t.device_type = OPTC_CPU;
    }
    for (size_t i = 0; i < out.size(); ++i) {
      optc_tensor &t = out[i].tensor;
      if (t.device_type != OPTC_CUDA || !t.data) continue;
      c->staged[in.size() + i].resize(t.capacity_bytes / 8 + 1);
      t.data = c->staged[in.size() + i].data();
      t.device_type = OPTC_CPU;
    }
    if (const optc_status status = share_states(c, inputs, outputs, in, out)) return status;
    const optc_status status = Host::run(c->host, in.data(), out.data());
    for (size_t i = 0; i < out.size(); ++i) {
      void *const data = outputs[i].tensor.data;
      const int32_t type = outputs[i].tensor.device_type;
      const bool on_card = type == OPTC_CUDA && data;
      const size_t bytes = is_state(i) ? out[i].tensor.capacity_bytes : out[i].tensor.needed_bytes;
      if (on_card && status == OPTC_OK && bytes)
        if (const optc_status moved = c->gpu->give(data, out[i].tensor.data, bytes)) return device_failed(c, moved);
      outputs[i] = out[i];
      outputs[i].tensor.data = data;
      outputs[i].tensor.device_type = type;
    }
    return status;
  }
  // What is one memory on the card is one on the host, with all that it has room for.
  static optc_status share_states(Context *c, const optc_value *inputs, const optc_value *outputs,
                                  std::vector<optc_value> &in, const std::vector<optc_value> &out) {
    for (size_t s = 0; s < M::kStates; ++s) {
      const optc_tensor &given = inputs[M::states[s].input].tensor, &staged = out[M::states[s].output].tensor;
      if (given.device_type == OPTC_CUDA && given.data)
        if (const optc_status status =
                c->gpu->fetch(outputs[M::states[s].output].tensor.data, staged.data, staged.capacity_bytes))
          return device_failed(c, status);
      optc_tensor &t = in[M::states[s].input].tensor;
      t.data = staged.data;
      t.device_type = staged.device_type;
    }
    return OPTC_OK;
  }
  static bool is_state(size_t output) {
    for (size_t s = 0; s < M::kStates; ++s)
      if (M::states[s].output == output) return true;
    return false;
  }
  static optc_status device_failed(Context *c, optc_status status) {
    c->failed_on_gpu = true;
    c->error = c->gpu->error();
    return status;
  }
  static optc_status run_async(optc_context *handle, const optc_value *inputs, optc_value *outputs, void *stream) {
    if (!handle) return Cpu::missing("run_async", "the context");
    Context *c = context(handle);
    c->failed_on_gpu = false;
    optc_status status = OPTC_DEVICE;
    if (!c->gpu)
      c->error = "run_async: this context runs on the CPU";
    else if (kMixed)
      c->error = "run_async: some kernels of this model run on the CPU; run takes tensors on the device, too";
    else if ((status = accept(c, inputs, outputs)) == OPTC_OK &&
             (status = all_on_card(c, inputs, outputs)) == OPTC_OK &&
             (status = c->gpu->run_async(Cpu::context(c->cpu)->run().inputs, outputs, stream)) != OPTC_OK)
      c->error = c->gpu->error();
    c->failed_on_gpu = status != OPTC_OK;
    return status;
  }
  static optc_status all_on_card(Context *c, const optc_value *inputs, const optc_value *outputs) {
    const char *what = nullptr, *name = nullptr;
    for (size_t i = 0; i < M::kInputs && !what; ++i)
      if (!Cpu::absent(inputs, i) && inputs[i].tensor.device_type != OPTC_CUDA)
        what = "input", name = M::inputs[i].name;
    for (size_t i = 0; i < M::kOutputs && !what; ++i)
      if (outputs[i].tensor.device_type != OPTC_CUDA) what = "output", name = M::outputs[i].name;
    if (!what) return OPTC_OK;
    c->error = std::string("run_async: ") + what + " '" + name + "' does not lie on the GPU";
    return OPTC_INVALID_ARGUMENT;
  }
  static optc_status cancel(optc_context *handle) {
    if (!handle) return Cpu::missing("cancel", "the context");
    Context *c = context(handle);
    return c->host ? Host::cancel(c->host) : Cpu::cancel(c->cpu);
  }
  static optc_status profile(optc_context *handle, int32_t on, const char **json) {
    if (!handle) return Cpu::missing("profile", "the context");
    Context *c = context(handle);
    if (!c->gpu) return Cpu::profile(c->cpu, on, json);
    if (c->host) return Host::profile(c->host, on, json);
    if (json) {
      std::vector<double> microseconds;
      constexpr int kTimes = 10;
      const auto now = [] {
        timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return 1e6 * static_cast<double>(t.tv_sec) + 1e-3 * static_cast<double>(t.tv_nsec);
      };
      if (const optc_status status = c->gpu->profile(&microseconds, kTimes, now)) {
        c->failed_on_gpu = true;
        c->error = c->gpu->error();
        return status;
      }
      c->profile_text = "[";
      for (size_t i = 0; i < microseconds.size(); ++i) {
        char item[320];
        snprintf(item, sizeof item, "%s{\"kernel\":\"%.200s\",\"calls\":%d,\"ns\":%.0f}", i ? "," : "",
                 M::cuda().launches[i].function, kTimes, 1e3 * microseconds[i] * kTimes);
        c->profile_text += item;
      }
      c->profile_text += "]";
      *json = c->profile_text.c_str();
    }
    return OPTC_OK;
  }
  static const char *last_error(const optc_context *handle) {
    if (!handle) return Cpu::last_error(nullptr);
    const Context *c = reinterpret_cast<const Context *>(handle);
    if (c->failed_on_gpu) return c->error.c_str();
    return c->host ? Host::last_error(c->host) : Cpu::last_error(c->cpu);
  }
};

template <class M, class X = M>
static const optc_model *cuda_bundle() {
  using B = Bundle<M>;
  using C = CudaBundle<M, X>;
  static const optc_api api = {
      sizeof(optc_api), B::input_count,     B::output_count,   B::input_info,      B::output_info, B::manifest_json,
      B::weights_load,  B::weights_release, C::context_create, C::context_destroy, C::output_dims, B::workspace_bytes,
      C::run,           C::run_async,       C::cancel,         C::profile,         C::last_error,  B::workspace_peak,
      B::alias_count,   B::alias_info};
  static const optc_model model = {sizeof(optc_model), OPTC_ABI_VERSION, &api};
  return &model;
}

}  // namespace optc
