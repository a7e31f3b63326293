#include "driver/bundle.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <optional>
#include <thread>

#include "driver/places.h"
#include "driver/process.h"
#include "driver/toolchain.h"
#include "runtime/optc.h"

namespace optc {

Result<std::string> build_bundle(const std::string &bundle, const std::string &name, const std::string &build,
                                 Diagnostics &diagnostics) {
  if (!on_path("cmake"))
    return diagnostics.error(ErrorKind::kIo, "cmake is not on PATH: it builds the bundle", {},
                             "install cmake and a C++17 compiler, or use --engine=evaluate");
  const std::string folder = build + "/lib";
  if (!exists(build + "/CMakeCache.txt")) {
    std::vector<std::string> configure = {"cmake",
                                          "-S",
                                          bundle,
                                          "-B",
                                          build,
                                          "-DCMAKE_BUILD_TYPE=Release",
                                          "-DBUILD_SHARED_LIBS=ON",
                                          "-DCMAKE_LIBRARY_OUTPUT_DIRECTORY=" + folder};
    if (on_path("ninja")) configure.insert(configure.end(), {"-G", "Ninja"});
    OPTC_ASSIGN(const ProcessResult configured, run_process(configure, diagnostics));
    if (configured.status != 0) {
      Diagnostic d{.kind = ErrorKind::kIo,
                   .message = "CMake could not configure the bundle in " + bundle,
                   .file = {},
                   .node = {},
                   .places = {},
                   .notes = {last_lines(configured.output, 12)},
                   .help = {}};
      return diagnostics.add(std::move(d));
    }
  }
  const int jobs = std::max(1u, std::thread::hardware_concurrency());
  OPTC_ASSIGN(
      const ProcessResult built,
      run_process({"cmake", "--build", build, "--target", name, "--parallel", std::to_string(jobs)}, diagnostics));
  if (built.status != 0) {
    Diagnostic d{.kind = ErrorKind::kInternal,
                 .message = "the bundle in " + bundle + " does not compile",
                 .file = {},
                 .node = {},
                 .places = {},
                 .notes = {last_lines(built.output, 12)},
                 .help = {}};
    return diagnostics.add(std::move(d));
  }
  return folder + "/lib" + name + ".so";
}

bool has_gpu_half(const std::string &bundle) { return exists(bundle + "/src/cuda.cpp"); }

struct Bundle::Impl {
  void *library = nullptr;
  const optc_api *api = nullptr;
  optc_weights *weights = nullptr;
  optc_context *context = nullptr;
  std::string name, weights_path;

  std::vector<std::vector<uint8_t>> bytes;           // of the outputs
  const std::vector<RuntimeValue> *given = nullptr;  // the inputs of the run
  // What inputs that are strings or objects point to.
  std::deque<std::vector<optc_string>> strings;
  std::deque<std::vector<optc_value>> items;
  std::deque<optc_object> objects;
  std::vector<optc_value> in, out;

  ErrorKind kind_of(optc_status status) const {
    switch (status) {
      case OPTC_INVALID_ARGUMENT:
        return ErrorKind::kUsage;
      case OPTC_MODEL_FAULT:
        return ErrorKind::kFault;
      case OPTC_IO:
      case OPTC_DEVICE:
      case OPTC_OUT_OF_MEMORY:
        return ErrorKind::kIo;
      default:
        return ErrorKind::kInternal;
    }
  }
  // `text`: the bundle's own words.
  Failure failed(const std::string &what, optc_status status, const char *text, Diagnostics &diagnostics) const {
    return diagnostics.error(
        kind_of(status), fmt::format("{}: {}", what, text && *text ? text : "no reason given"), {},
        status == OPTC_OUT_OF_MEMORY ? "smaller inputs need less: --dim NAME=N sets a dimension" : "");
  }

  // `value` as the ABI has it; it points into `from`, which must outlive the run.
  Status give(const RuntimeValue &from, optc_value &value, Diagnostics &diagnostics) {
    if (from.kind == RuntimeValue::Kind::kAbsent) return {};
    if (from.kind != RuntimeValue::Kind::kTensor) {
      const bool map = from.kind == RuntimeValue::Kind::kMap;
      items.emplace_back(from.items.size() + (map ? 1 : 0));
      std::vector<optc_value> &list = items.back();
      if (map) OPTC_TRY(give(RuntimeValue::of(from.tensor), list[0], diagnostics));
      for (size_t i = 0; i < from.items.size(); ++i)
        OPTC_TRY(give(from.items[i], list[i + (map ? 1 : 0)], diagnostics));
      objects.push_back({from.kind == RuntimeValue::Kind::kSequence ? 1 : map ? 3 : 2, list.size(), list.data()});
      value.object = &objects.back();
      return {};
    }
    const Constant &tensor = from.tensor;
    optc_tensor &t = value.tensor;
    t.type = static_cast<int32_t>(tensor.type());
    if (tensor.rank() > OPTC_MAX_RANK)
      return diagnostics.error(ErrorKind::kUsage,
                               fmt::format("an input has rank {}, at most {} fit", tensor.rank(), OPTC_MAX_RANK));
    if (tensor.type() == ElementType::kString) {
      strings.emplace_back();
      for (const std::string &s : tensor.string_values()) strings.back().push_back({s.data(), s.size()});
      t.data = strings.back().data();
      t.capacity_bytes = t.needed_bytes = strings.back().size() * sizeof(optc_string);
    } else {
      t.data = const_cast<uint8_t *>(tensor.data());
      t.capacity_bytes = t.needed_bytes = tensor.size();
    }
    t.rank = tensor.rank();
    std::copy(tensor.dims().begin(), tensor.dims().end(), t.dims);
    t.device_type = OPTC_CPU;
    return {};
  }

  // The value of an output; the bytes of a tensor are copied from where it points.
  static RuntimeValue take(const optc_value &value) {
    if (const optc_object *object = value.object) {
      RuntimeValue result;
      result.kind = object->kind == 1   ? RuntimeValue::Kind::kSequence
                    : object->kind == 3 ? RuntimeValue::Kind::kMap
                                        : RuntimeValue::Kind::kOptional;
      size_t first = 0;
      if (object->kind == 3 && object->count > 0) {
        result.tensor = take(object->items[0]).tensor;
        first = 1;
      }
      for (size_t i = first; i < object->count; ++i) result.items.push_back(take(object->items[i]));
      if (!result.items.empty())
        result.element = result.items[0].kind == RuntimeValue::Kind::kTensor ? result.items[0].tensor.type()
                                                                             : result.items[0].element;
      return result;
    }
    const optc_tensor &t = value.tensor;
    if (t.type == 0) return RuntimeValue();
    const std::vector<int64_t> dims(t.dims, t.dims + t.rank);
    int64_t count = 1;
    for (const int64_t d : dims) count *= d;
    if (t.type == static_cast<int32_t>(ElementType::kString)) {
      std::vector<std::string> values;
      const auto *from = static_cast<const optc_string *>(t.data);
      for (int64_t i = 0; i < count; ++i) values.emplace_back(from[i].data ? from[i].data : "", from[i].size);
      return RuntimeValue::of(Constant::strings(dims, std::move(values)));
    }
    const ElementType type = static_cast<ElementType>(t.type);
    std::vector<uint8_t> data(static_cast<size_t>(storage_bytes(type, count).value_or(0)));
    if (!data.empty()) std::memcpy(data.data(), t.data, data.size());
    return RuntimeValue::of(Constant::owned(type, dims, std::move(data)));
  }

  Status prepare(const std::vector<RuntimeValue> &inputs, Diagnostics &diagnostics) {
    if (inputs.size() != api->input_count())
      return diagnostics.error(ErrorKind::kUsage,
                               fmt::format("{} inputs given, the bundle has {}", inputs.size(), api->input_count()));
    in.assign(inputs.size(), {});
    strings.clear();
    items.clear();
    objects.clear();
    for (size_t i = 0; i < inputs.size(); ++i) OPTC_TRY(give(inputs[i], in[i], diagnostics));
    out.assign(api->output_count(), {});
    bytes.assign(out.size(), {});
    for (optc_value &value : out) value.tensor.device_type = OPTC_CPU;
    if (const optc_status status = api->output_dims(context, in.data(), out.data()); status != OPTC_OK)
      return failed("the outputs' dims cannot be told", status, api->last_error(nullptr), diagnostics);
    for (size_t i = 0; i < out.size(); ++i) {
      const optc_tensor &t = out[i].tensor;
      int64_t count = 1;
      for (int32_t k = 0; k < t.rank; ++k)
        if (t.dims[k] < 0)
          count = 0;  // known after the run
        else if (__builtin_mul_overflow(count, t.dims[k], &count))
          count = INT64_MAX;
      const ElementType type = static_cast<ElementType>(api->output_info(i)->type);
      const auto size = type == ElementType::kString ? std::optional<int64_t>(0)
                        : count > INT64_MAX / 16     ? std::optional<int64_t>(INT64_MAX)
                                                     : storage_bytes(type, count);
      OPTC_TRY(provide(i, std::max<size_t>(size.value_or(0), t.needed_bytes), diagnostics));
    }
    given = &inputs;
    return provide_states(diagnostics);
  }
  // A state is one memory, with more room than a run needs where it grows.
  Status provide_states(Diagnostics &diagnostics) {
    constexpr int64_t kRoom = 3;
    int64_t steps = 0;
    for (size_t s = 0; s < alias_count(); ++s) {
      const optc_alias &alias = *api->alias_info(s);
      if (alias.axis >= 0) steps = std::max(steps, out[alias.output].tensor.dims[alias.axis] + kRoom);
    }
    for (size_t s = 0; s < alias_count(); ++s) {
      const optc_alias &alias = *api->alias_info(s);
      if (alias.axis >= 0) {
        const StateRows rows = rows_of(alias, in[alias.input].tensor);
        OPTC_TRY(provide(alias.output, static_cast<size_t>(rows.count * steps) * rows.step_bytes, diagnostics));
      }
      in[alias.input].tensor.data = out[alias.output].tensor.data;
      in[alias.input].tensor.capacity_bytes = out[alias.output].tensor.capacity_bytes;
    }
    fill_states();
    return {};
  }
  // What the run begins with.
  void fill_states() {
    for (size_t s = 0; s < alias_count(); ++s) {
      const optc_alias &alias = *api->alias_info(s);
      const Constant &value = (*given)[alias.input].tensor;
      if (value.size() == 0) continue;
      const StateRows rows = rows_of(alias, in[alias.input].tensor);
      const size_t length = value.size() / static_cast<size_t>(rows.count);
      const size_t stride = alias.axis < 0 ? length : bytes[alias.output].size() / static_cast<size_t>(rows.count);
      for (size_t r = 0; r < static_cast<size_t>(rows.count); ++r)
        std::memcpy(bytes[alias.output].data() + r * stride, value.data() + r * length, length);
    }
  }
  // A tensor of a state as rows that each lie along its axis.
  struct StateRows {
    int64_t count = 1;
    size_t step_bytes = 1;  // of one step along the axis
  };
  static StateRows rows_of(const optc_alias &alias, const optc_tensor &t) {
    StateRows rows;
    int64_t inner = 1;
    for (int32_t k = 0; k < t.rank; ++k)
      if (k < alias.axis)
        rows.count *= t.dims[k];
      else if (k > alias.axis && alias.axis >= 0)
        inner *= t.dims[k];
    rows.step_bytes = static_cast<size_t>(storage_bytes(static_cast<ElementType>(t.type), inner).value_or(0));
    return rows;
  }
  size_t alias_count() const { return api->alias_count(); }
  // The bytes of output i, packed.
  std::vector<uint8_t> packed(size_t i, size_t size) {
    for (size_t s = 0; s < alias_count(); ++s) {
      const optc_alias &alias = *api->alias_info(s);
      if (alias.output != i || alias.axis < 0 || size == 0) continue;
      const StateRows rows = rows_of(alias, out[i].tensor);
      const size_t count = static_cast<size_t>(rows.count), length = size / count, stride = bytes[i].size() / count;
      for (size_t r = 0; r < count; ++r)
        std::memmove(bytes[i].data() + r * length, bytes[i].data() + r * stride, length);
    }
    bytes[i].resize(size);
    return std::move(bytes[i]);
  }
  // Memory of `size` bytes for output i.
  Status provide(size_t i, size_t size, Diagnostics &diagnostics) {
    if (size > static_cast<size_t>(memory_bytes())) {
      const optc_tensor &t = out[i].tensor;
      std::string dims;
      double needed = std::max(bit_width(static_cast<ElementType>(api->output_info(i)->type)), 1) / 8.0;
      for (int32_t k = 0; k < t.rank; ++k) {
        dims += (k ? "," : "") + std::to_string(t.dims[k]);
        needed *= static_cast<double>(t.dims[k]);
      }
      return diagnostics.error(
          ErrorKind::kIo,
          fmt::format("output '{}' of dims [{}] needs {}, this machine has {}", api->output_info(i)->name, dims,
                      format_bytes(needed), format_bytes(static_cast<double>(memory_bytes()))),
          {}, "smaller inputs need less: --dim NAME=N sets a dimension");
    }
    bytes[i].resize(std::max<size_t>(size, 1));  // never a null pointer
    out[i].tensor.data = bytes[i].data();
    out[i].tensor.capacity_bytes = bytes[i].size();
    return {};
  }

  // Upper bounds are not always known before the run: grows what was too small, as often as a run finds some.
  Status run(Diagnostics &diagnostics) {
    for (;;) {
      const optc_status status = api->run(context, in.data(), out.data());
      if (status == OPTC_OK) return {};
      bool grown = false;
      if (status == OPTC_BUFFER_TOO_SMALL)
        for (size_t i = 0; i < out.size(); ++i) {
          if (out[i].tensor.needed_bytes <= bytes[i].size()) continue;
          OPTC_TRY(provide(i, out[i].tensor.needed_bytes, diagnostics));
          grown = true;
        }
      if (grown) fill_states();
      if (!grown) return failed("the run failed", status, api->last_error(context), diagnostics);
    }
  }
};

Bundle::Bundle() : impl_(std::make_unique<Impl>()) {}

Bundle::~Bundle() {
  if (impl_->context) impl_->api->context_destroy(impl_->context);
  if (impl_->weights) impl_->api->weights_release(impl_->weights);
  if (impl_->library) dlclose(impl_->library);
}

Result<std::unique_ptr<Bundle>> Bundle::load(const std::string &library, const std::string &name,
                                             const BundleRunOptions &options, Diagnostics &diagnostics) {
  std::unique_ptr<Bundle> bundle(new Bundle());
  Impl &impl = *bundle->impl_;
  impl.library = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!impl.library) return diagnostics.error(ErrorKind::kIo, fmt::format("cannot load {}: {}", library, dlerror()));
  using ModelFunction = const optc_model *();
  auto *model_function = reinterpret_cast<ModelFunction *>(dlsym(impl.library, (name + "_model").c_str()));
  if (!model_function)
    return diagnostics.error(ErrorKind::kIo, fmt::format("{} has no symbol {}_model", library, name));
  const optc_model *model = model_function();
  if (model->abi_version != OPTC_ABI_VERSION)
    return diagnostics.error(ErrorKind::kIo, fmt::format("{} speaks ABI version {}, this optc {}", library,
                                                         model->abi_version, OPTC_ABI_VERSION));
  impl.api = model->api;
  impl.name = name;
  impl.weights_path = options.weights_path;
  optc_options o = {};
  o.struct_size = sizeof(o);
  o.device_type = options.cuda ? OPTC_CUDA : OPTC_CPU;
  o.threads = options.threads;
  o.weights_path = impl.weights_path.empty() ? nullptr : impl.weights_path.c_str();
  o.check_weights = 1;
  if (const optc_status status = impl.api->weights_load(&o, &impl.weights); status != OPTC_OK)
    return impl.failed("the weights cannot be loaded", status, impl.api->last_error(nullptr), diagnostics);
  if (const optc_status status = impl.api->context_create(impl.weights, &o, &impl.context); status != OPTC_OK)
    return impl.failed("the bundle cannot start", status, impl.api->last_error(nullptr), diagnostics);
  return bundle;
}

Status Bundle::watch(void (*function)(void *user, const ProbeEvent *event), void *user, Diagnostics &diagnostics) {
  using Setter = void(void (*)(void *, const ProbeEvent *), void *);
  auto *set = reinterpret_cast<Setter *>(dlsym(impl_->library, (impl_->name + "_set_probe").c_str()));
  if (!set) return diagnostics.error(ErrorKind::kUsage, "the bundle '" + impl_->name + "' has no probe");
  set(function, user);
  return {};
}

Result<std::vector<RuntimeValue>> Bundle::run(const std::vector<RuntimeValue> &inputs, Diagnostics &diagnostics) {
  OPTC_TRY(impl_->prepare(inputs, diagnostics));
  OPTC_TRY(impl_->run(diagnostics));
  std::vector<RuntimeValue> results;
  for (size_t i = 0; i < impl_->out.size(); ++i) {
    const optc_tensor &t = impl_->out[i].tensor;
    const optc_value_info &info = *impl_->api->output_info(i);
    const ElementType type = static_cast<ElementType>(info.type);
    if (info.kind != 0 || type == ElementType::kString) {
      results.push_back(Impl::take(impl_->out[i]));
      if (results.back().kind != RuntimeValue::Kind::kTensor) results.back().element = type;
      continue;
    }
    std::vector<int64_t> dims(t.dims, t.dims + t.rank);
    int64_t count = 1;
    for (const int64_t d : dims) count *= d;
    const size_t size = static_cast<size_t>(storage_bytes(type, count).value_or(0));
    if (size > impl_->bytes[i].size())
      return diagnostics.error(ErrorKind::kInternal, "an output is larger than its memory");
    results.push_back(RuntimeValue::of(Constant::owned(type, std::move(dims), impl_->packed(i, size))));
  }
  return results;
}

Result<std::vector<double>> Bundle::time(const std::vector<RuntimeValue> &inputs, int warmup, int iterations,
                                         double seconds, Diagnostics &diagnostics) {
  using Clock = std::chrono::steady_clock;
  OPTC_TRY(impl_->prepare(inputs, diagnostics));
  for (int i = 0; i < warmup + 1; ++i) OPTC_TRY(impl_->run(diagnostics));
  std::vector<double> times;
  const auto begin = Clock::now();
  while (static_cast<int>(times.size()) < iterations) {
    const auto start = Clock::now();
    OPTC_TRY(impl_->run(diagnostics));
    const auto stop = Clock::now();
    times.push_back(std::chrono::duration<double, std::milli>(stop - start).count());
    if (times.size() >= 3 && std::chrono::duration<double>(stop - begin).count() > seconds) break;
  }
  return times;
}

Result<std::string> Bundle::profile(const std::vector<RuntimeValue> &inputs, int iterations, Diagnostics &diagnostics) {
  if (!impl_->api->profile) return std::string();
  OPTC_TRY(impl_->prepare(inputs, diagnostics));
  OPTC_TRY(impl_->run(diagnostics));
  const char *json = nullptr;
  if (const optc_status status = impl_->api->profile(impl_->context, 1, &json); status != OPTC_OK)
    return impl_->failed("no profile", status, impl_->api->last_error(impl_->context), diagnostics);
  for (int i = 0; i < iterations; ++i) OPTC_TRY(impl_->run(diagnostics));
  if (const optc_status status = impl_->api->profile(impl_->context, 0, &json); status != OPTC_OK)
    return impl_->failed("no profile", status, impl_->api->last_error(impl_->context), diagnostics);
  return std::string(json ? json : "");
}

std::string Bundle::manifest() const {
  const char *text = impl_->api->manifest_json ? impl_->api->manifest_json() : nullptr;
  return text ? text : "";
}

}  // namespace optc
