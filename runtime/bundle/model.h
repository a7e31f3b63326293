// model.h: the part of the C ABI that is the same for every model. A bundle's model.cpp describes the model in a struct
// M (in an unnamed namespace, so that bundles do not meet in one program) and exports bundle<M>().
//
// M has: kInputs, kOutputs; inputs[], outputs[] (optc_value_info); defaults[] (offset in the weights of an input's
// value, -1: required); default_strings[] (that value where it is strings, else null); struct Dims; bind(run) ->
// status, from input dims to Dims; output_dims(dims, outputs); scratch(dims, bytes): row scratch of each kernel that
// needs some, for one task; plan(dims, threads, scratch, offsets) -> bytes of the arena, where its buffers lie and then
// the row scratch of each kernel for all threads; kPlaced, kScratch, kGrowing (how many); execute(run) -> status;
// kStates, states[]: the inputs and outputs that are one memory; laid_out(dims): those that
// the arena is laid out for, which take as much or more of each size; open_dims: the dims without an upper bound on
// which the arena depends, as text, or null; kRanged: the arena depends on dims, and all of them have one: then
// plan_largest and largest_scratch do as plan and scratch do, for the largest sizes; places; weights; manifest()
// (embedded, or null); faults[]; kKernels, kernel_names[]; Objects: ObjectRegion (objects.h) where it has strings,
// sequences, optionals or maps, else NoObjects.
//
// A bundle may have variants: further such structs V of the same signature and weights, for some sizes alone. V has
// also: json_sizes ("N=1,S=128" as a JSON string); takes(dims of M) -> whether it takes a run of these dims. The first
// that does runs it.
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <tuple>
#include <type_traits>

#include "runtime/bundle/options.h"
#include "runtime/bundle/run.h"

namespace optc {

// What a context keeps of one of the bundle's schedules.
template <class M>
struct Entry {
  Run<M> run;
  bool planned = false;               // the offsets of `run` are those of
  typename M::Dims planned_for = {};  // these dims
};

template <class M, class... V>
struct Context {
  std::tuple<Entry<M>, Entry<V>...> entries;
  template <class E>
  Run<E> &run_of() {
    return std::get<Entry<E>>(entries).run;
  }
  Run<M> &run() { return run_of<M>(); }  // of the general schedule, which every call binds first
  template <class F>
  void each(const F &function) {
    std::apply([&](auto &...entry) { (function(entry), ...); }, entries);
  }
  Weights *weights = nullptr;
  ThreadPool *threads = nullptr;
  uint8_t *memory = nullptr;  // of the arena and the row scratch, of whichever schedule runs
  size_t memory_bytes = 0;
  bool own_memory = false, fixed_memory = false;
  std::string profile_text;
  char error[kErrorSize] = "";
};

// Which schedule a call is for, as an argument of a lambda.
template <class E>
struct Chosen {
  using Model = E;
};

template <class M, class... V>
struct Bundle {
  using Context = optc::Context<M, V...>;
  static Context *context(optc_context *c) { return reinterpret_cast<Context *>(c); }
  // function(Chosen<E>()) of the schedule E that takes runs of these dims.
  template <size_t I = 0, class F>
  static optc_status choose([[maybe_unused]] const typename M::Dims &d, const F &function) {
    if constexpr (I == sizeof...(V)) {
      return function(Chosen<M>());
    } else {
      using E = std::tuple_element_t<I, std::tuple<V...>>;
      return E::takes(d) ? function(Chosen<E>()) : choose<I + 1>(d, function);
    }
  }
  static size_t input_count() { return M::kInputs; }
  static size_t output_count() { return M::kOutputs; }
  static const optc_value_info *input_info(size_t i) { return i < M::kInputs ? &M::inputs[i] : nullptr; }
  static const optc_value_info *output_info(size_t i) { return i < M::kOutputs ? &M::outputs[i] : nullptr; }
  static size_t alias_count() { return M::kStates; }
  static const optc_alias *alias_info(size_t i) { return i < M::kStates ? &M::states[i] : nullptr; }
  static const char *manifest_json() {
    static std::string text;  // read by the first call that finds it
    static std::atomic<bool> read{false};
    static std::mutex reading;
    if (!read.load(std::memory_order_acquire)) {
      const std::lock_guard<std::mutex> lock(reading);
      if (text.empty()) text = manifest_text(M::places, M::manifest(), &M::weights, thread_error(), kErrorSize);
      if (text.empty()) return nullptr;
      read.store(true, std::memory_order_release);
    }
    return text.c_str();
  }

  // Says in the thread's error that a required argument is null.
  static optc_status missing(const char *function, const char *argument) {
    return null_argument(function, argument, thread_error(), kErrorSize);
  }

  static optc_status weights_load(const optc_options *given, optc_weights **out) {
    thread_error()[0] = 0;
    if (!out) return missing("weights_load", "the place of the weights");
    *out = nullptr;
    optc_options options;
    if (const optc_status status = read_options(given, &options, thread_error(), kErrorSize)) return status;
    Weights *w = nullptr;
    const optc_status status =
        load_weights(M::weights, M::places, &options, &M::weights, &w, thread_error(), kErrorSize);
    if (status == OPTC_OK) *out = reinterpret_cast<optc_weights *>(w);
    return status;
  }
  static void weights_release(optc_weights *w) { release(reinterpret_cast<Weights *>(w)); }

  static optc_status context_create(optc_weights *weights, const optc_options *given, optc_context **out) {
    thread_error()[0] = 0;
    if (!out) return missing("context_create", "the place of the context");
    *out = nullptr;
    optc_options options;
    if (const optc_status status = read_options(given, &options, thread_error(), kErrorSize)) return status;
    if (options.device_type == OPTC_CUDA) {
      snprintf(thread_error(), kErrorSize, "this bundle has no code for CUDA devices: it runs on the CPU");
      return OPTC_DEVICE;
    }
    Context *c = new (std::nothrow) Context;
    if (!c) {
      snprintf(thread_error(), kErrorSize, "out of memory: %zu bytes for a context", sizeof *c);
      return OPTC_OUT_OF_MEMORY;
    }
    if (weights) {
      c->weights = reinterpret_cast<Weights *>(weights);
      if (c->weights->hash_low != M::weights.hash_low || c->weights->hash_high != M::weights.hash_high) {
        delete c;
        snprintf(thread_error(), kErrorSize, "the weights are not those that this code was made for");
        return OPTC_INVALID_ARGUMENT;
      }
      c->weights->users.fetch_add(1);
    } else {
      const optc_status status =
          load_weights(M::weights, M::places, &options, &M::weights, &c->weights, thread_error(), kErrorSize);
      if (status != OPTC_OK) {
        delete c;
        return status;
      }
    }
    const int threads = options.threads > 0 ? options.threads : processor_count();
    if (!options.parallel_for && threads > 1) c->threads = thread_pool_create(threads);
    c->each([&](auto &entry) {
      auto &run = entry.run;
      run.error = c->error;
      run.env.fault = &run.fault;
      run.weights_data = c->weights->data;
      if (!options.parallel_for && !c->threads) return;
      run.env.parallel_for = options.parallel_for ? options.parallel_for : thread_pool_run;
      run.env.pool = options.parallel_for ? options.pool : c->threads;
      run.env.threads = threads;
    });
    if (options.workspace) {
      c->memory = static_cast<uint8_t *>(options.workspace);
      c->memory_bytes = options.workspace_bytes;
      c->fixed_memory = true;
    }
    *out = reinterpret_cast<optc_context *>(c);
    return OPTC_OK;
  }
  static void context_destroy(optc_context *handle) {
    Context *c = context(handle);
    if (!c) return;
    if (c->threads) thread_pool_destroy(c->threads);
    if (c->own_memory) free(c->memory);
    c->each([](auto &entry) {
      for (void *p : entry.run.grown) free(p);
      entry.run.objects.release();
    });
    release(c->weights);
    delete c;
  }

  static bool may_lie_on(int32_t device_type, bool on_card) {
    return device_type == 0 || device_type == OPTC_CPU || (on_card && device_type == OPTC_CUDA);
  }
  template <class E>
  static optc_status wrong_device(Run<E> &run, const char *what, const char *name, int32_t device_type, bool on_card) {
    return run.fail(OPTC_INVALID_ARGUMENT, "%s '%s' lies on a device of type %d, this context runs on %s", what, name,
                    device_type, on_card ? "a GPU" : "the CPU");
  }
  static optc_status check_outputs(Run<M> &run, const optc_value *outputs, bool on_card) {
    if (!outputs && M::kOutputs) return run.fail(OPTC_INVALID_ARGUMENT, "run: outputs is null");
    for (size_t i = 0; i < M::kOutputs; ++i)
      if (!may_lie_on(outputs[i].tensor.device_type, on_card))
        return wrong_device(run, "output", M::outputs[i].name, outputs[i].tensor.device_type, on_card);
    return OPTC_OK;
  }
  // Whether the caller leaves the tensor of input i out.
  static bool absent(const optc_value *inputs, size_t i) {
    return !inputs || (!inputs[i].tensor.data && inputs[i].tensor.type == 0);
  }

  // Types, ranks and pointers of the inputs, then M's own reading of the dims. Tensors lie on the host or, where
  // `on_card` says so, on a GPU; what the caller leaves out is the default, which lies on the host.
  template <class E>
  static optc_status bind(Run<E> &run, const optc_value *inputs, bool need_data, bool on_card = false) {
    static const uint64_t nothing[8] = {};
    run.dims = {};  // what the last run found is not of this one
    for (size_t i = 0; i < E::kInputs; ++i) {
      const optc_value_info &info = E::inputs[i];
      optc_tensor &t = run.inputs[i];
      if (info.kind != 0) {  // what it holds is checked where it is read
        t = optc_tensor{};
        if (info.kind != 2 && (!inputs || (!inputs[i].object && !inputs[i].tensor.type)))
          return run.fail(OPTC_INVALID_ARGUMENT, "input '%s' is missing", info.name);
        continue;
      }
      if (inputs) t = inputs[i].tensor;
      if (absent(inputs, i) && E::defaults[i] >= 0) {
        t = optc_tensor{};
        t.type = info.type;
        t.rank = info.rank;
        for (int32_t k = 0; k < info.rank; ++k) t.dims[k] = info.dims[k].value;
        if (E::default_strings[i]) {
          t.data = const_cast<optc_string *>(E::default_strings[i]);
          continue;
        }
        t.data = const_cast<uint8_t *>(run.weights_data ? run.weights_data + E::defaults[i]
                                                        : reinterpret_cast<const uint8_t *>(nothing));
        continue;
      }
      if (absent(inputs, i)) return run.fail(OPTC_INVALID_ARGUMENT, "input '%s' is missing", info.name);
      if (need_data && !may_lie_on(t.device_type, on_card))
        return wrong_device(run, "input", info.name, t.device_type, on_card);
      if (t.type != info.type)
        return run.fail(OPTC_INVALID_ARGUMENT, "input '%s' has type %d, expected %d", info.name, t.type, info.type);
      if (t.rank != info.rank)
        return run.fail(OPTC_INVALID_ARGUMENT, "input '%s' has %d dims, expected %s", info.name, t.rank, E::shapes[i]);
      for (int32_t k = 0; k < t.rank; ++k)
        if (t.dims[k] < 0 || t.dims[k] > INT32_MAX)
          return run.fail(OPTC_INVALID_ARGUMENT, "input '%s': dim %d is %lld", info.name, k,
                          static_cast<long long>(t.dims[k]));
      if (need_data) {
        const size_t bytes = tensor_bytes(t.type, count_of(t));
        if (bytes && !t.data) return run.fail(OPTC_INVALID_ARGUMENT, "input '%s' has no data", info.name);
        if (t.capacity_bytes && t.capacity_bytes < bytes)
          return run.fail(OPTC_INVALID_ARGUMENT, "input '%s' has %zu bytes, its dims need %zu", info.name,
                          t.capacity_bytes, bytes);
        if (!bytes) t.data = const_cast<uint64_t *>(nothing);  // an index of a faulty model may read one element
      }
    }
    if (const optc_status status = bind_states(run, inputs, need_data)) return status;
    return E::bind(run);
  }
  // That each state is one memory, and how many steps those that grow have room for. Sizes alone (`running` false) need
  // no memory.
  template <class E>
  static optc_status bind_states(Run<E> &run, const optc_value *inputs, bool running) {
    for (size_t s = 0; s < E::kStates; ++s) {
      const optc_alias &alias = E::states[s];
      const char *const in_name = E::inputs[alias.input].name, *const out_name = E::outputs[alias.output].name;
      const optc_tensor &in = inputs[alias.input].tensor;
      size_t bytes = in.capacity_bytes;
      if (running) {
        const optc_tensor &out = run.outputs[alias.output].tensor;
        if (in.data != out.data || in.device_type != out.device_type || in.device_id != out.device_id)
          return run.fail(OPTC_INVALID_ARGUMENT,
                          "input '%s' and output '%s' are one memory (--alias): give both the same data pointer",
                          in_name, out_name);
        if (in.capacity_bytes && in.capacity_bytes != out.capacity_bytes)
          return run.fail(OPTC_INVALID_ARGUMENT, "the memory of '%s' and '%s' has %zu bytes here, %zu there", in_name,
                          out_name, in.capacity_bytes, out.capacity_bytes);
        bytes = out.capacity_bytes;
      }
      if (alias.axis < 0) continue;
      int64_t step = 1;
      for (int32_t k = 0; k < run.inputs[alias.input].rank; ++k)
        if (k != alias.axis) step = times(step, run.inputs[alias.input].dims[k]);
      const size_t step_bytes = tensor_bytes(run.inputs[alias.input].type, step);
      if (step_bytes && bytes % step_bytes)
        return run.fail(
            OPTC_INVALID_ARGUMENT,
            "the memory of '%s' has %zu bytes, which is no whole number of steps along dim %d (%zu bytes each)",
            in_name, bytes, alias.axis, step_bytes);
      run.capacities[s] = step_bytes ? static_cast<int64_t>(bytes / step_bytes) : 0;
    }
    return OPTC_OK;
  }

  static optc_status output_dims(const optc_context *, const optc_value *inputs, optc_value *outputs) {
    thread_error()[0] = 0;
    if (!outputs && M::kOutputs) return missing("output_dims", "outputs");
    Run<M> run;
    run.error = thread_error();
    if (const optc_status status = bind(run, inputs, false)) return status;
    return choose(run.dims, [&]([[maybe_unused]] auto chosen) {
      using E = typename decltype(chosen)::Model;
      Run<E> own;
      own.error = run.error;
      if (const optc_status status = bind(own, inputs, false)) return status;
      E::output_dims(own.dims, outputs);
      return OPTC_OK;
    });
  }
  static optc_status workspace_bytes(const optc_value *inputs, size_t *bytes) {
    thread_error()[0] = 0;
    if (!bytes) return missing("workspace_bytes", "the place of the bytes");
    Run<M> run;
    run.error = thread_error();
    if (const optc_status status = bind(run, inputs, false)) return status;
    return choose(run.dims, [&]([[maybe_unused]] auto chosen) {
      Run<typename decltype(chosen)::Model> own;
      own.error = run.error;
      if (const optc_status status = bind(own, inputs, false)) return status;
      // Exact for as many threads as there are processors.
      *bytes = own.lay_out(processor_count()) + 64;
      return OPTC_OK;
    });
  }

  static optc_status workspace_peak(int32_t threads, size_t *bytes) {
    thread_error()[0] = 0;
    if (!bytes) return missing("workspace_peak", "the place of the bytes");
    if (threads < 0 || threads > 4096) {
      snprintf(thread_error(), kErrorSize, "workspace_peak: threads is %d", threads);
      return OPTC_INVALID_ARGUMENT;
    }
    int64_t most = 0;
    const auto add = [&](auto chosen) {
      using E = typename decltype(chosen)::Model;
      const std::unique_ptr<Run<E>> own(new (std::nothrow) Run<E>);
      if (!own) return OPTC_OUT_OF_MEMORY;
      const int64_t needed = own->largest_arena(threads ? threads : processor_count());
      if (needed < 0) {
        const char *open = E::open_dims;  // null where all have a bound: then there is a most
        snprintf(thread_error(), kErrorSize, "workspace_peak: no upper bound on %s: --dim NAME=MIN..MAX sets one",
                 open ? open : "a dim");
        return OPTC_INVALID_ARGUMENT;
      }
      most = most > needed ? most : needed;
      return OPTC_OK;
    };
    optc_status status = add(Chosen<M>());
    ((status = status == OPTC_OK ? add(Chosen<V>()) : status), ...);
    if (status == OPTC_OK) *bytes = static_cast<size_t>(most) + 64;
    return status;
  }

  // Lays the arena out for the dims of the run, where it is not, in memory that is large enough.
  template <class E>
  static optc_status prepare(Context &c, Entry<E> &entry) {
    Run<E> &run = entry.run;
    const typename E::Dims laid_out = E::laid_out(run.dims);
    const bool same = entry.planned && (std::is_empty<typename E::Dims>::value ||
                                        memcmp(&entry.planned_for, &laid_out, sizeof laid_out) == 0);
    entry.planned = false;
    const size_t needed =
        (same ? static_cast<size_t>(run.arena_bytes + Run<E>::kGuard) : run.lay_out(run.env.threads)) + 64;
    if (needed > c.memory_bytes || !c.memory) {
      if (c.fixed_memory)
        return run.fail(OPTC_OUT_OF_MEMORY, "the workspace has %zu bytes, these dims need %zu", c.memory_bytes, needed);
      if (c.own_memory) free(c.memory);
      c.memory = static_cast<uint8_t *>(aligned_alloc(64, (needed + 63) / 64 * 64));
      c.memory_bytes = c.memory ? needed : 0;
      c.own_memory = true;
      if (!c.memory) return run.fail(OPTC_OUT_OF_MEMORY, "out of memory: %zu bytes of workspace", needed);
    }
    run.arena = reinterpret_cast<uint8_t *>((reinterpret_cast<uintptr_t>(c.memory) + 63) / 64 * 64);
    run.guard(run.arena + run.arena_bytes, true);
    entry.planned_for = laid_out;
    entry.planned = true;
    return OPTC_OK;
  }

  static optc_status run(optc_context *handle, const optc_value *inputs, optc_value *outputs) {
    if (!handle) return missing("run", "the context");
    Context &c = *context(handle);
    c.each([](auto &entry) {
      entry.run.status = OPTC_OK;
      entry.run.fault = 0;
      entry.run.current = -1;
    });
    c.error[0] = 0;
    if (const optc_status status = check_outputs(c.run(), outputs, false)) return status;
    c.run().outputs = outputs;
    if (const optc_status status = bind(c.run(), inputs, true)) return status;
    return choose(c.run().dims, [&]([[maybe_unused]] auto chosen) {
      using E = typename decltype(chosen)::Model;
      return run_entry(c, std::get<Entry<E>>(c.entries), inputs, outputs);
    });
  }
  // The general schedule's inputs have been checked, which are those of all.
  template <class E>
  static optc_status run_entry(Context &c, Entry<E> &entry, const optc_value *inputs, optc_value *outputs) {
    Run<E> &run = entry.run;
    run.outputs = outputs;
    if (!std::is_same<E, M>::value)
      if (const optc_status status = bind(run, inputs, true)) return status;
    run.given = inputs;
    run.objects.reset();
    if (const optc_status status = prepare(c, entry)) return status;
    if (c.threads) c.threads->begin_run();
    optc_status status = E::execute(run);
    if (c.threads) c.threads->end_run();
    run.step(-1);
    if (status == OPTC_OK) status = run.status;
    c.each([](auto &other) { other.run.cancelled = 0; });
    return status;
  }
  static optc_status run_async(optc_context *handle, const optc_value *, optc_value *, void *) {
    if (!handle) return missing("run_async", "the context");
    return context(handle)->run().fail(OPTC_DEVICE, "this bundle has no code for a device");
  }
  static optc_status cancel(optc_context *handle) {
    if (!handle) return missing("cancel", "the context");
    context(handle)->each([](auto &entry) { __atomic_store_n(&entry.run.cancelled, 1, __ATOMIC_RELAXED); });
    return OPTC_OK;
  }
  static optc_status profile(optc_context *handle, int32_t on, const char **json) {
    if (!handle) return missing("profile", "the context");
    Context &c = *context(handle);
    if (json) {
      c.profile_text.clear();
      c.each([&](const auto &entry) { add_profile(entry, c.profile_text); });
      c.profile_text += c.profile_text.empty() ? "[]" : "]";
      *json = c.profile_text.c_str();
    }
    c.each([&](auto &entry) {
      if (on && !entry.run.profiling) {
        memset(entry.run.nanoseconds, 0, sizeof entry.run.nanoseconds);
        memset(entry.run.calls, 0, sizeof entry.run.calls);
      }
      entry.run.profiling = on != 0;
    });
    return OPTC_OK;
  }
  template <class E>
  static void add_profile(const Entry<E> &entry, std::string &text) {
    std::string variant;
    if constexpr (!std::is_same<E, M>::value) variant = std::string(",\"variant\":") + E::json_sizes;
    for (size_t i = 0; i < E::kKernels; ++i) {
      char item[320];
      snprintf(item, sizeof item, "%s{\"kernel\":\"%.200s\",\"calls\":%llu,\"ns\":%.0f", text.empty() ? "[" : ",",
               E::kernel_names[i], static_cast<unsigned long long>(entry.run.calls[i]), entry.run.nanoseconds[i]);
      text += item + variant + "}";
    }
  }
  static const char *last_error(const optc_context *handle) {
    return handle ? reinterpret_cast<const Context *>(handle)->error : thread_error();
  }
};

template <class M, class... V>
static const optc_model *bundle() {
  using B = Bundle<M, V...>;
  static const optc_api api = {
      sizeof(optc_api), B::input_count,     B::output_count,   B::input_info,      B::output_info, B::manifest_json,
      B::weights_load,  B::weights_release, B::context_create, B::context_destroy, B::output_dims, B::workspace_bytes,
      B::run,           B::run_async,       B::cancel,         B::profile,         B::last_error,  B::workspace_peak,
      B::alias_count,   B::alias_info};
  static const optc_model model = {sizeof(optc_model), OPTC_ABI_VERSION, &api};
  return &model;
}

}  // namespace optc
