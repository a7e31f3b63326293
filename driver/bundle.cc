#include "driver/bundle.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "driver/places.h"
#include "driver/process.h"
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

struct Bundle::Impl {
  void *library = nullptr;
  const optc_api *api = nullptr;
  optc_weights *weights = nullptr;
  optc_context *context = nullptr;
  std::string weights_path;

  std::vector<std::vector<uint8_t>> bytes;  // of the outputs
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
  Failure failed(const std::string &what, optc_status status, Diagnostics &diagnostics) const {
    const char *text = api->last_error(context);
    return diagnostics.error(kind_of(status), fmt::format("{}: {}", what, text && *text ? text : "no reason given"));
  }

  Status prepare(const std::vector<RuntimeValue> &inputs, Diagnostics &diagnostics) {
    if (inputs.size() != api->input_count())
      return diagnostics.error(ErrorKind::kUsage,
                               fmt::format("{} inputs given, the bundle has {}", inputs.size(), api->input_count()));
    in.assign(inputs.size(), {});
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].kind == RuntimeValue::Kind::kAbsent) continue;
      if (inputs[i].kind != RuntimeValue::Kind::kTensor || inputs[i].tensor.type() == ElementType::kString)
        return diagnostics.error(ErrorKind::kUnsupported,
                                 "strings, sequences and optionals are not passed to bundles yet", {},
                                 "use --engine=evaluate");
      const Constant &tensor = inputs[i].tensor;
      optc_tensor &t = in[i].tensor;
      t.data = const_cast<uint8_t *>(tensor.data());
      t.capacity_bytes = t.needed_bytes = tensor.size();
      t.type = static_cast<int32_t>(tensor.type());
      if (tensor.rank() > OPTC_MAX_RANK)
        return diagnostics.error(ErrorKind::kUsage,
                                 fmt::format("input {} has rank {}, at most {} fit", i, tensor.rank(), OPTC_MAX_RANK));
      t.rank = tensor.rank();
      std::copy(tensor.dims().begin(), tensor.dims().end(), t.dims);
      t.device_type = OPTC_CPU;
    }
    out.assign(api->output_count(), {});
    bytes.assign(out.size(), {});
    for (optc_value &value : out) value.tensor.device_type = OPTC_CPU;
    if (const optc_status status = api->output_dims(context, in.data(), out.data()); status != OPTC_OK)
      return failed("the outputs' dims cannot be told", status, diagnostics);
    for (size_t i = 0; i < out.size(); ++i) {
      const optc_tensor &t = out[i].tensor;
      int64_t count = 1;
      for (int32_t k = 0; k < t.rank; ++k) count = t.dims[k] < 0 ? 0 : count * t.dims[k];
      const auto size = storage_bytes(static_cast<ElementType>(api->output_info(i)->type), count);
      bytes[i].resize(std::max<size_t>(size.value_or(0), t.needed_bytes));
      attach(i);
    }
    return {};
  }
  void attach(size_t i) {
    if (bytes[i].empty()) bytes[i].resize(1);  // never a null pointer
    out[i].tensor.data = bytes[i].data();
    out[i].tensor.capacity_bytes = bytes[i].size();
  }

  // Upper bounds are not always known before the run: grows what was too small.
  Status run(Diagnostics &diagnostics) {
    for (int attempt = 0;; ++attempt) {
      const optc_status status = api->run(context, in.data(), out.data());
      if (status == OPTC_OK) return {};
      if (status != OPTC_BUFFER_TOO_SMALL || attempt == 3) return failed("the run failed", status, diagnostics);
      for (size_t i = 0; i < out.size(); ++i)
        if (out[i].tensor.needed_bytes > bytes[i].size()) {
          bytes[i].resize(out[i].tensor.needed_bytes);
          attach(i);
        }
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
  impl.weights_path = options.weights_path;
  optc_options o = {};
  o.struct_size = sizeof(o);
  o.device_type = options.cuda ? OPTC_CUDA : OPTC_CPU;
  o.threads = options.threads;
  o.weights_path = impl.weights_path.empty() ? nullptr : impl.weights_path.c_str();
  o.check_weights = 1;
  if (const optc_status status = impl.api->weights_load(&o, &impl.weights); status != OPTC_OK)
    return impl.failed("the weights cannot be loaded", status, diagnostics);
  if (const optc_status status = impl.api->context_create(impl.weights, &o, &impl.context); status != OPTC_OK)
    return impl.failed("the bundle cannot start", status, diagnostics);
  return bundle;
}

Result<std::vector<RuntimeValue>> Bundle::run(const std::vector<RuntimeValue> &inputs, Diagnostics &diagnostics) {
  OPTC_TRY(impl_->prepare(inputs, diagnostics));
  OPTC_TRY(impl_->run(diagnostics));
  std::vector<RuntimeValue> results;
  for (size_t i = 0; i < impl_->out.size(); ++i) {
    const optc_tensor &t = impl_->out[i].tensor;
    std::vector<int64_t> dims(t.dims, t.dims + t.rank);
    int64_t count = 1;
    for (const int64_t d : dims) count *= d;
    const ElementType type = static_cast<ElementType>(impl_->api->output_info(i)->type);
    const size_t size = static_cast<size_t>(storage_bytes(type, count).value_or(0));
    if (size > impl_->bytes[i].size())
      return diagnostics.error(ErrorKind::kInternal, "an output is larger than its memory");
    impl_->bytes[i].resize(size);
    results.push_back(RuntimeValue::of(Constant::owned(type, std::move(dims), std::move(impl_->bytes[i]))));
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
    return impl_->failed("no profile", status, diagnostics);
  for (int i = 0; i < iterations; ++i) OPTC_TRY(impl_->run(diagnostics));
  if (const optc_status status = impl_->api->profile(impl_->context, 0, &json); status != OPTC_OK)
    return impl_->failed("no profile", status, diagnostics);
  return std::string(json ? json : "");
}

std::string Bundle::manifest() const {
  const char *text = impl_->api->manifest_json ? impl_->api->manifest_json() : nullptr;
  return text ? text : "";
}

}  // namespace optc
