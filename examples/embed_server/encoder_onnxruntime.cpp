// The same network in ONNX Runtime, with its optimizations: what the bundle is compared with. PyPI's package brings the
// library without headers, so the functions that are needed are taken from the table of its C interface by their
// places, which are the same in every version (new functions come behind the old ones).
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "encoder.h"

namespace {

struct Status;
struct Environment;
struct Session;
struct SessionOptions;
struct MemoryInfo;
struct Value;

struct ApiBase {
  void *const *(*table)(uint32_t version);
  const char *(*version)();
};

constexpr uint32_t kFirstVersion = 1;
constexpr int kInt64 = 7, kFloat = 1;  // of a tensor's elements
constexpr int kWarning = 2, kAllOptimizations = 99, kDeviceAllocator = 0, kDefaultMemory = 0;

class OnnxRuntime {
 public:
  // ONNXRUNTIME_LIBRARY is the path that CMake was given.
  OnnxRuntime() {
    void *library = dlopen(ONNXRUNTIME_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(dlerror());
    const auto base = reinterpret_cast<const ApiBase *(*)()>(dlsym(library, "OrtGetApiBase"));
    if (!base) throw std::runtime_error(dlerror());
    version = base()->version();
    table_ = base()->table(kFirstVersion);
    error_text = at<const char *(const Status *)>(2);
    create_environment = at<Status *(int, const char *, Environment **)>(3);
    create_session = at<Status *(const Environment *, const char *, const SessionOptions *, Session **)>(7);
    run = at<Status *(Session *, const void *, const char *const *, const Value *const *, size_t, const char *const *,
                      size_t, Value **)>(9);
    create_session_options = at<Status *(SessionOptions **)>(10);
    set_optimizations = at<Status *(SessionOptions *, int)>(23);
    set_threads = at<Status *(SessionOptions *, int)>(24);
    wrap_tensor = at<Status *(const MemoryInfo *, void *, size_t, const int64_t *, size_t, int, Value **)>(49);
    cpu_memory = at<Status *(int, int, MemoryInfo **)>(69);
    release_status = at<void(Status *)>(93);
    release_value = at<void(Value *)>(96);
  }

  void check(Status *status) const {
    if (!status) return;
    const std::string text = error_text(status);
    release_status(status);
    throw std::runtime_error(text);
  }

  const char *version = nullptr;
  const char *(*error_text)(const Status *);
  Status *(*create_environment)(int, const char *, Environment **);
  Status *(*create_session)(const Environment *, const char *, const SessionOptions *, Session **);
  Status *(*run)(Session *, const void *, const char *const *, const Value *const *, size_t, const char *const *,
                 size_t, Value **);
  Status *(*create_session_options)(SessionOptions **);
  Status *(*set_optimizations)(SessionOptions *, int);
  Status *(*set_threads)(SessionOptions *, int);
  Status *(*wrap_tensor)(const MemoryInfo *, void *, size_t, const int64_t *, size_t, int, Value **);
  Status *(*cpu_memory)(int, int, MemoryInfo **);
  void (*release_status)(Status *);
  void (*release_value)(Value *);

 private:
  template <class Function>
  Function *at(size_t place) const {
    return reinterpret_cast<Function *>(table_[place]);
  }
  void *const *table_;
};

// One session serves all threads, as ONNX Runtime recommends; each of them computes on its own.
class SharedSession : public EncoderModel {
 public:
  explicit SharedSession(const std::string &model) {
    runtime.check(runtime.create_environment(kWarning, "embed_server", &environment_));
    SessionOptions *options = nullptr;
    runtime.check(runtime.create_session_options(&options));
    runtime.check(runtime.set_optimizations(options, kAllOptimizations));
    runtime.check(runtime.set_threads(options, 1));
    runtime.check(runtime.create_session(environment_, model.c_str(), options, &session));
    runtime.check(runtime.cpu_memory(kDeviceAllocator, kDefaultMemory, &memory));
    most_texts = ENCODER_TEXTS;
    longest = ENCODER_LENGTH;
    width = ENCODER_WIDTH;
    engine = std::string("ONNX Runtime ") + runtime.version;
  }
  std::unique_ptr<Encoder> encoder() override;

  OnnxRuntime runtime;
  Session *session = nullptr;
  MemoryInfo *memory = nullptr;

 private:
  Environment *environment_ = nullptr;
};

class SessionEncoder : public Encoder {
 public:
  explicit SessionEncoder(const SharedSession &model) : model_(model) {}

  void run(const Batch &batch, float *hidden) override {
    static const char *const kInputs[] = {"input_ids", "attention_mask", "token_type_ids"};
    static const char *const kOutputs[] = {"last_hidden_state"};
    const int64_t dims[] = {batch.texts, batch.length, model_.width};
    const size_t count = static_cast<size_t>(batch.texts * batch.length);
    const int64_t *const data[] = {batch.ids, batch.mask, batch.types};
    Values values{model_.runtime, {}};
    for (int i = 0; i < 3; ++i)
      values.wrap(model_.memory, const_cast<int64_t *>(data[i]), count * sizeof(int64_t), dims, 2, kInt64, i);
    values.wrap(model_.memory, hidden, count * static_cast<size_t>(model_.width) * sizeof(float), dims, 3, kFloat, 3);
    model_.runtime.check(
        model_.runtime.run(model_.session, nullptr, kInputs, values.all, 3, kOutputs, 1, values.all + 3));
  }

 private:
  struct Values {
    const OnnxRuntime &runtime;
    Value *all[4];
    void wrap(const MemoryInfo *memory, void *data, size_t bytes, const int64_t *dims, size_t rank, int type, int i) {
      runtime.check(runtime.wrap_tensor(memory, data, bytes, dims, rank, type, &all[i]));
    }
    ~Values() {
      for (Value *value : all)
        if (value) runtime.release_value(value);
    }
  };
  const SharedSession &model_;
};

std::unique_ptr<Encoder> SharedSession::encoder() { return std::make_unique<SessionEncoder>(*this); }

}  // namespace

std::unique_ptr<EncoderModel> open_encoder_model(const std::string &model) {
  if (model.empty()) throw std::runtime_error("--model FILE.onnx: the model, please");
  return std::make_unique<SharedSession>(model);
}
