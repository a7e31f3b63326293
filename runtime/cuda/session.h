#pragma once
// Runs a bundle's model on one GPU: weights uploaded once, one arena, the launches captured in a CUDA graph
// (runtime/cuda/launcher.h). One run at a time in a session; sessions are independent of one another.
// A model some of whose kernels have no GPU form is run by its host schedule (runtime/bundle/mixed.h), which calls
// begin, upload, segment and download.

#include <string.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "runtime/bundle/place.h"
#include "runtime/cuda/driver.h"
#include "runtime/cuda/launcher.h"
#include "runtime/cuda/model.h"
#include "runtime/optc.h"

namespace optc {
namespace cuda {

class Session {
 public:
  // `weights` are the model's weights for the GPU (ModelTable::weights_bytes), needed during the call only.
  // On failure returns null, with a status and a text.
  static std::unique_ptr<Session> create(const ModelTable &model, const void *weights, int device, optc_status *status,
                                         std::string *error) {
    std::unique_ptr<Session> session(new Session(model));
    *status = session->open(weights, device);
    if (*status != OPTC_OK) {
      *error = session->error_;
      return nullptr;
    }
    return session;
  }

  ~Session() {
    if (!context_) return;
    d_->context_push(context_);
    if (stream_) d_->stream_wait(stream_);
    launcher_.drop_graphs();
    if (arena_) d_->release(arena_);
    for (const Grown &g : grown_)
      if (g.address) d_->release(g.address);
    if (weights_) d_->release(weights_);
    if (at_.workspace) d_->release(at_.workspace);
    if (faults_) d_->host_release(const_cast<uint32_t *>(faults_));
    if (module_) d_->module_unload(module_);
    if (stream_) d_->stream_destroy(stream_);
    Context old = nullptr;
    d_->context_pop(&old);
    d_->context_release(device_);
  }
  Session(const Session &) = delete;
  Session &operator=(const Session &) = delete;

  const std::string &error() const { return error_; }
  size_t arena_bytes() const { return arena_bytes_; }
  const char *target() const { return target_.c_str(); }  // of the kernels that it runs: "sm_90a"

  // Inputs fit the model (the bundle has checked that: runtime/bundle/model.h, bind). Tensors lie on the host or, with
  // device_type OPTC_CUDA, on this session's card. Returns when the outputs are there. OPTC_MODEL_FAULT where an index
  // that the model computes left its dimension.
  optc_status run(const optc_tensor *inputs, optc_value *outputs) {
    Entered entered(*this);
    if (entered.code) return fail(entered.code, "context");
    if (const optc_status status = enqueue(inputs, outputs, stream_)) return status;
    return wait_for("run");
  }

  // Puts a run into the caller's stream and returns; the caller's tensors lie on this session's card. The next run of
  // the session, on whatever stream, must come after it; it reports what was wrong with this one's indices.
  optc_status run_async(const optc_tensor *inputs, optc_value *outputs, void *stream) {
    Entered entered(*this);
    if (entered.code) return fail(entered.code, "context");
    return enqueue(inputs, outputs, stream);
  }

  // Launches the captured graphs `times` more times and waits: for measurements. After a run.
  optc_status repeat(int times) {
    Entered entered(*this);
    if (!prepared_) return OPTC_INVALID_ARGUMENT;
    for (int i = 0; i < times; ++i)
      for (int k = 0; k < model_.segment_count; ++k)
        if (const optc_status status = launch_segment(k, stream_)) return status;
    if (const Result code = d_->stream_wait(stream_)) return fail(code, "run");
    return OPTC_OK;
  }

  // --- For a host schedule. `symbols` are the model's dims, in the order of the table.
  optc_status begin(const int64_t *symbols, int count) {
    Entered entered(*this);
    if (entered.code) return fail(entered.code, "context");
    for (int i = 0; i < model_.symbol_count; ++i) at_.symbols[static_cast<size_t>(i)] = i < count ? symbols[i] : 0;
    bool same = prepared_;
    for (int i = 0; i < count && same; ++i) same = current_[static_cast<size_t>(i)] == symbols[i];
    return same ? OPTC_OK : prepare(stream_);
  }
  // A size that a kernel of the host found.
  void set_symbol(int index, int64_t value) { at_.symbols[static_cast<size_t>(index)] = value; }
  optc_status upload(int buffer, const void *from) {
    Entered entered(*this);
    if (entered.code) return fail(entered.code, "context");
    if (const optc_status status = grow(buffer)) return status;
    const size_t bytes = bytes_of(buffer);
    if (bytes == 0) return OPTC_OK;
    const Result code = d_->to_device(at_.address[static_cast<size_t>(buffer)], from, bytes, stream_);
    return code ? fail(code, std::string("copy of '") + model_.buffers[buffer].name + "' to the GPU") : OPTC_OK;
  }
  // Returns when the buffer is there.
  optc_status download(int buffer, void *to) {
    Entered entered(*this);
    if (entered.code) return fail(entered.code, "context");
    const size_t bytes = bytes_of(buffer);
    const std::string what = std::string("copy of '") + model_.buffers[buffer].name + "' from the GPU";
    if (bytes > 0)
      if (const Result code = d_->to_host(to, at_.address[static_cast<size_t>(buffer)], bytes, stream_))
        return fail(code, what);
    const Result code = d_->stream_wait(stream_);
    return code ? fail(code, what) : check_indices();
  }
  optc_status segment(int i) {
    Entered entered(*this);
    if (entered.code) return fail(entered.code, "context");
    return launch_segment(i, stream_);
  }
  // Copies of the caller's tensors on the card; they return when done.
  optc_status fetch(const void *from_device, void *to, size_t bytes) {
    Entered entered(*this);
    if (const Result code = d_->to_host(to, reinterpret_cast<Address>(from_device), bytes, stream_))
      return fail(code, "copy of an input");
    return wait_for("copy of an input");
  }
  optc_status give(void *to_device, const void *from, size_t bytes) {
    Entered entered(*this);
    if (const Result code = d_->to_device(reinterpret_cast<Address>(to_device), from, bytes, stream_))
      return fail(code, "copy of an output");
    return wait_for("copy of an output");
  }
  optc_status wait() {
    Entered entered(*this);
    return wait_for("run");
  }

  // Runs launch by launch instead of by the graph and gives the microseconds of each by host clock around a wait: for
  // profiles. After a run.
  template <typename Clock>
  optc_status profile(std::vector<double> *microseconds, int times, const Clock &now) {
    Entered entered(*this);
    microseconds->clear();
    for (int i = 0; i < model_.launch_count; ++i) {
      d_->stream_wait(stream_);
      const double start = now();
      for (int j = 0; j < times; ++j)
        if (const Result code = launcher_.launch(i, at_, stream_)) return fail(code, launcher_.failed());
      if (const Result code = d_->stream_wait(stream_)) return fail(code, model_.launches[i].function);
      microseconds->push_back((now() - start) / times);
    }
    return OPTC_OK;
  }

 private:
  explicit Session(const ModelTable &model) : model_(model), launcher_(model) {}

  optc_status enqueue(const optc_tensor *inputs, optc_value *outputs, Stream stream) {
    if (const optc_status status = check_indices()) return status;  // of a run_async before
    for (int i = 0; i < model_.symbol_count; ++i) {
      const SymbolTable &s = model_.symbols[i];
      if (s.input < 0) continue;
      at_.symbols[static_cast<size_t>(i)] = s.capacity ? capacity_of(s, inputs, outputs) : inputs[s.input].dims[s.axis];
    }
    if (optc_status status = set_outputs(outputs)) return status;
    bool moved = false;  // a state lies elsewhere than in the last run
    for (int i = 0; i < model_.state_count; ++i) {
      const optc_tensor &t = outputs[model_.states[i].output].tensor;
      const Address there = t.device_type == OPTC_CUDA ? reinterpret_cast<Address>(t.data) : 0;
      if (there % 16 != 0)  // what kernels fetch at once
        return refuse(std::string("the memory of output '") + model_.outputs[model_.states[i].output].name +
                      "' begins at no multiple of 16 bytes");
      moved = moved || states_[static_cast<size_t>(i)] != there;
      states_[static_cast<size_t>(i)] = there;
    }
    if (!prepared_ || moved || current_ != at_.symbols)
      if (const optc_status status = prepare(stream)) return status;
    for (int i = 0; i < model_.input_count; ++i) {
      const optc_tensor &t = inputs[i];
      const int buffer = model_.inputs[i];
      if (buffer < 0) continue;
      const size_t bytes = bytes_of(buffer);
      if (bytes == 0) continue;
      const Address to = at_.address[static_cast<size_t>(buffer)];
      const Result code = t.device_type == OPTC_CUDA
                              ? d_->on_device(to, reinterpret_cast<Address>(t.data), bytes, stream)
                              : d_->to_device(to, t.data, bytes, stream);
      if (code) return fail(code, "copy of an input");
    }
    if (const optc_status status = move_states(outputs, true, stream)) return status;
    for (int i = 0; i < model_.segment_count; ++i)
      if (const optc_status status = launch_segment(i, stream)) return status;
    if (const optc_status status = move_states(outputs, false, stream)) return status;
    for (int i = 0; i < model_.output_count; ++i) {
      const OutputTable &v = model_.outputs[i];
      optc_tensor &t = outputs[i].tensor;
      if (t.needed_bytes == 0 || is_state(i)) continue;
      const Address from =
          at_.address[static_cast<size_t>(v.buffer)] + static_cast<Address>(v.byte_offset(at_.symbols.data()));
      const Result code = t.device_type == OPTC_CUDA
                              ? d_->on_device(reinterpret_cast<Address>(t.data), from, t.needed_bytes, stream)
                              : d_->to_host(t.data, from, t.needed_bytes, stream);
      if (code) return fail(code, "copy of an output");
    }
    return OPTC_OK;
  }

  // The steps of a state's memory along its axis.
  int64_t capacity_of(const SymbolTable &symbol, const optc_tensor *inputs, const optc_value *outputs) const {
    for (int i = 0; i < model_.state_count; ++i) {
      const StateTable &s = model_.states[i];
      if (s.input != symbol.input) continue;
      const optc_tensor &t = inputs[s.input];
      uint64_t step_bits = element_bits(t.type);
      for (int32_t k = 0; k < t.rank; ++k)
        if (k != s.axis) step_bits *= static_cast<uint64_t>(t.dims[k]);
      return step_bits ? static_cast<int64_t>(outputs[s.output].tensor.capacity_bytes / (step_bits / 8)) : 0;
    }
    return 0;
  }
  // Whether the buffer is a state that the caller has on the card.
  bool on_card(int buffer) const {
    for (int i = 0; i < model_.state_count; ++i)
      if (model_.states[i].buffer == buffer && states_[static_cast<size_t>(i)]) return true;
    return false;
  }
  bool is_state(int output) const {
    for (int i = 0; i < model_.state_count; ++i)
      if (model_.states[i].output == output) return true;
    return false;
  }
  // States that lie on the card are used there; of others the whole memory goes to the card and comes back.
  optc_status move_states(const optc_value *outputs, bool to_device, Stream stream) {
    for (int i = 0; i < model_.state_count; ++i) {
      const StateTable &s = model_.states[i];
      if (s.buffer < 0 || states_[static_cast<size_t>(i)]) continue;
      const size_t bytes = bytes_of(s.buffer);
      if (bytes == 0) continue;
      void *const host = outputs[s.output].tensor.data;
      const Address there = at_.address[static_cast<size_t>(s.buffer)];
      const Result code =
          to_device ? d_->to_device(there, host, bytes, stream) : d_->to_host(host, there, bytes, stream);
      if (code) return fail(code, "copy of a state");
    }
    return OPTC_OK;
  }

  struct Entered {  // makes the context current for one call
    explicit Entered(Session &s) : session(s), code(s.d_->context_push(s.context_)) {}
    ~Entered() {
      Context old = nullptr;
      if (!code) session.d_->context_pop(&old);
    }
    Session &session;
    Result code;
  };

  optc_status wait_for(const char *what) {
    const Result code = d_->stream_wait(stream_);
    return code ? fail(code, what) : check_indices();
  }
  // Whether a kernel found an index outside its dimension, and which one did. Its word lies in memory of the host, to
  // which the card writes: nothing is copied, and where all is well nothing is written.
  optc_status check_indices() {
    if (!faults_) return OPTC_OK;
    const char *first = nullptr;
    for (int i = 0; i < model_.launch_count; ++i) {
      volatile uint32_t &word = faults_[static_cast<size_t>(i) * kFaultWords];
      if (word && !first) first = model_.launches[i].checks;
      word = 0;
    }
    if (!first) return OPTC_OK;
    error_ = std::string(first) + ": an index is outside its dimension";
    return OPTC_MODEL_FAULT;
  }
  optc_status fail(Result code, const std::string &what) {
    error_ = what + ": " + d_->describe(code);
    return code == 2 ? OPTC_OUT_OF_MEMORY : OPTC_DEVICE;
  }
  optc_status refuse(const std::string &what) {
    error_ = what;
    return OPTC_INVALID_ARGUMENT;
  }

  optc_status open(const void *weights, int device) {
    d_ = Driver::get(&error_);
    if (!d_) return OPTC_DEVICE;
    int count = 0;
    d_->device_count(&count);
    if (device < 0 || device >= count) {
      error_ = "no GPU number " + std::to_string(device) + " (" + std::to_string(count) + " found)";
      return OPTC_DEVICE;
    }
    if (const Result code = d_->device_get(&device_, device)) return fail(code, "device");
    int major = 0, minor = 0;
    d_->device_attribute(&major, kComputeCapabilityMajor, device_);
    d_->device_attribute(&minor, kComputeCapabilityMinor, device_);
    const ImageTable *best = nullptr;
    const int sm = 10 * major + minor;
    for (int i = 0; i < model_.image_count; ++i) {
      const ImageTable &image = model_.images[i];
      if (image.specific ? image.sm != sm : image.sm > sm) continue;
      if (!best || image.sm > best->sm || (image.sm == best->sm && image.specific)) best = &image;
    }
    if (!best) {
      error_ =
          "the bundle has no kernels for compute capability " + std::to_string(major) + "." + std::to_string(minor);
      return OPTC_DEVICE;
    }
    target_ = "sm_" + std::to_string(best->sm) + (best->specific ? "a" : "");
    const char *apart = getenv("OPTC_CUDA_OVERLAP");  // 0: each kernel after the end of the one before, to compare
    const bool chained = best->sm >= 90 && d_->launch_with && !(apart && apart[0] == '0');
    if (const Result code = d_->context_retain(&context_, device_)) return fail(code, "context");
    Entered entered(*this);
    if (entered.code) return fail(entered.code, "context");
    std::string text;
    for (const char *const *piece = best->pieces; *piece; ++piece) text += *piece;
    char log[8192] = "";
    int options[] = {kJitErrorLog, kJitErrorLogSize};
    void *values[] = {log, reinterpret_cast<void *>(sizeof log)};
    if (const Result code = d_->module_load(&module_, text.c_str(), 2, options, values)) {
      const optc_status status = fail(code, "kernels");
      if (log[0]) error_ += std::string("\n") + log;
      return status;
    }
    if (const Result code = launcher_.load(d_, module_, chained)) return fail(code, launcher_.failed());
    if (const Result code = d_->stream_create(&stream_, kStreamNonBlocking)) return fail(code, "stream");
    if (model_.weights_bytes) {
      if (const Result code = d_->allocate(&weights_, model_.weights_bytes))
        return fail(code, "memory for the weights");
      if (const Result code = d_->to_device(weights_, weights, model_.weights_bytes, stream_))
        return fail(code, "copy of the weights");
      if (const Result code = d_->stream_wait(stream_)) return fail(code, "copy of the weights");
    }
    if (model_.workspace_bytes) {
      const std::vector<char> zeros(model_.counter_bytes, 0);
      if (const Result code = d_->allocate(&at_.workspace, model_.counter_bytes + model_.workspace_bytes))
        return fail(code, "memory for partial results");
      if (const Result code = d_->to_device(at_.workspace, zeros.data(), zeros.size(), stream_))
        return fail(code, "counters");
      if (const Result code = d_->stream_wait(stream_)) return fail(code, "counters");
    }
    const auto checks = [](const LaunchTable &l) { return l.checks != nullptr; };
    if (std::any_of(model_.launches, model_.launches + model_.launch_count, checks)) {
      const size_t bytes = static_cast<size_t>(model_.launch_count) * kFaultWords * sizeof(uint32_t);
      void *words = nullptr;
      if (const Result code = d_->host_allocate(&words, bytes, kHostPortable | kHostMapped))
        return fail(code, "memory for bad indices");
      memset(words, 0, bytes);
      faults_ = static_cast<volatile uint32_t *>(words);
      if (const Result code = d_->host_address(&at_.faults, words, 0)) return fail(code, "memory for bad indices");
    }
    at_.symbols.assign(static_cast<size_t>(model_.symbol_count) + 1, 0);
    states_.assign(static_cast<size_t>(model_.state_count), 0);
    return OPTC_OK;
  }

  static size_t element_bits(int32_t type) {  // of the types that kernels store: onnx.TensorProto.DataType
    switch (type) {
      case 1:
      case 6:
      case 12:
        return 32;
      case 4:
      case 5:
      case 10:
      case 16:
        return 16;
      case 7:
      case 11:
      case 13:
        return 64;
      default:
        return 8;
    }
  }

  optc_status set_outputs(optc_value *outputs) {
    optc_status status = OPTC_OK;
    for (int i = 0; i < model_.output_count; ++i) {
      const OutputTable &v = model_.outputs[i];
      optc_tensor &t = outputs[i].tensor;
      t.type = v.type;
      t.rank = v.rank;
      uint64_t count = 1;
      for (int a = 0; a < v.rank; ++a) {
        t.dims[a] = v.dims[a](at_.symbols.data());
        count *= static_cast<uint64_t>(t.dims[a]);
      }
      t.needed_bytes = static_cast<size_t>(count * element_bits(v.type) / 8);
      if (t.needed_bytes > t.capacity_bytes || (!t.data && t.needed_bytes)) {
        error_ = std::string("output '") + v.name + "' needs " + std::to_string(t.needed_bytes) +
                 " bytes, its buffer has " + std::to_string(t.data ? t.capacity_bytes : 0);
        status = OPTC_BUFFER_TOO_SMALL;
      }
    }
    return status;
  }

  static uint64_t aligned(uint64_t v) { return (v + 255) / 256 * 256; }

  // Where the buffers lie: in the arena as the compiler says or, for sizes that it does not know, by the same search
  // (runtime/bundle/place.h); the caller's values have a place of their own above it. Returns the bytes of all.
  uint64_t place(std::vector<uint64_t> *offsets) {
    const size_t n = static_cast<size_t>(model_.buffer_count);
    std::vector<int64_t> bytes, found;
    std::vector<int32_t> first, last;
    std::vector<size_t> open;
    uint64_t end = 0;
    offsets->assign(n, 0);
    auto size_of = [&](size_t i) { return std::max<int64_t>(1, model_.buffers[i].bytes(at_.symbols.data())); };
    for (size_t i = 0; i < n; ++i) {
      const BufferTable &b = model_.buffers[i];
      if (b.region != Region::kArena) continue;
      if (b.offset) {
        (*offsets)[i] = static_cast<uint64_t>(b.offset(at_.symbols.data()));
        end = std::max(end, (*offsets)[i] + static_cast<uint64_t>(size_of(i)));
        continue;
      }
      open.push_back(i);
      bytes.push_back(size_of(i));
      first.push_back(b.first);
      last.push_back(b.last);
    }
    end = aligned(end);
    found.resize(open.size());
    const int64_t arena =
        optc::place(bytes.data(), first.data(), last.data(), static_cast<int32_t>(open.size()), found.data());
    for (size_t k = 0; k < open.size(); ++k) (*offsets)[open[k]] = end + static_cast<uint64_t>(found[k]);
    end = aligned(end + static_cast<uint64_t>(arena));
    for (size_t i = 0; i < n; ++i) {
      const Region r = model_.buffers[i].region;
      if ((r != Region::kInput && r != Region::kOutput) || on_card(static_cast<int>(i))) continue;
      (*offsets)[i] = end;
      end = aligned(end + static_cast<uint64_t>(size_of(i)));
    }
    return end;
  }

  // Memory for the dims of this run.
  optc_status prepare(Stream stream) {
    prepared_ = false;
    ++at_.version;
    std::vector<uint64_t> offsets;
    const uint64_t needed = place(&offsets);
    for (int i = 0; i < model_.buffer_count; ++i)
      if (model_.buffers[i].region != Region::kGrowing &&
          model_.buffers[i].bytes(at_.symbols.data()) > (int64_t{1} << 32))
        return refuse("a tensor is too large for this bundle's kernels");
    if (needed > arena_bytes_) {
      // Where it grows again it is for lengths that go on growing: with room for some more.
      const uint64_t wanted = arena_ ? aligned(needed + needed / 8) : needed;
      if (const Result code = d_->stream_wait(stream)) return fail(code, "run");
      if (arena_) d_->release(arena_);
      arena_ = 0;
      arena_bytes_ = 0;
      if (const Result code = d_->allocate(&arena_, wanted))
        return fail(code, "memory for " + std::to_string(wanted) + " bytes");
      arena_bytes_ = wanted;
    }
    at_.address.assign(static_cast<size_t>(model_.buffer_count), 0);
    for (size_t i = 0; i < at_.address.size(); ++i) {
      const BufferTable &b = model_.buffers[i];
      at_.address[i] = b.region == Region::kWeights   ? weights_ + b.weights_offset
                       : b.region == Region::kGrowing ? (grown_.empty() ? 0 : grown_[i].address)
                                                      : arena_ + offsets[i];
    }
    for (int i = 0; i < model_.state_count; ++i)
      if (model_.states[i].buffer >= 0 && states_[static_cast<size_t>(i)])
        at_.address[static_cast<size_t>(model_.states[i].buffer)] = states_[static_cast<size_t>(i)];
    if (const optc_status status = make_maps()) return status;
    current_ = at_.symbols;
    prepared_ = true;
    return OPTC_OK;
  }

  // The tensor maps for these dims and addresses. What is empty has none: its launches have no blocks.
  optc_status make_maps() {
    at_.maps.resize(static_cast<size_t>(model_.map_count));
    for (size_t i = 0; i < at_.maps.size(); ++i) {
      const TensorMapTable &m = model_.maps[i];
      uint64_t extents[5], strides[5];
      bool empty = false;
      for (int d = 0; d < m.rank; ++d) {
        const int64_t extent = m.extents[d](at_.symbols.data());
        empty = empty || extent <= 0;
        extents[d] = static_cast<uint64_t>(extent);
        if (d > 0) strides[d - 1] = static_cast<uint64_t>(m.byte_strides[d - 1](at_.symbols.data()));
      }
      if (empty) continue;
      if (!d_->tensor_map || !d_->image_map) {
        error_ = "the CUDA driver has no cuTensorMapEncodeTiled: kernels for sm_90a need a driver from 12.0 on";
        return OPTC_DEVICE;
      }
      const Address at =
          at_.address[static_cast<size_t>(m.buffer)] + static_cast<Address>(m.byte_offset(at_.symbols.data()));
      const int type = m.type == 16 ? kTensorMapBF16 : kTensorMapF16;
      const unsigned rank = static_cast<unsigned>(m.rank);
      uint32_t steps[5] = {1, 1, 1, 1, 1};
      for (int d = 0; d < 2 && m.walk; ++d) steps[1 + d] = m.walk->steps[d];
      const Result code =
          m.walk
              ? d_->image_map(&at_.maps[i], type, rank, reinterpret_cast<void *>(at), extents, strides, m.walk->lower,
                              m.walk->upper, m.box[0], m.box[1], steps, 0, kTensorMapSwizzle128, kTensorMapCache256, 0)
              : d_->tensor_map(&at_.maps[i], type, rank, reinterpret_cast<void *>(at), extents, strides, m.box, steps,
                               0, kTensorMapSwizzle128, kTensorMapCache256, 0);
      if (code) return fail(code, std::string("tensor map of '") + model_.buffers[m.buffer].name + "'");
    }
    return OPTC_OK;
  }

  size_t bytes_of(int buffer) const { return static_cast<size_t>(model_.buffers[buffer].bytes(at_.symbols.data())); }

  // Memory for a buffer whose size the run has just found; kept for later runs.
  optc_status grow(int buffer) {
    if (model_.buffers[buffer].region != Region::kGrowing) return OPTC_OK;
    if (grown_.empty()) grown_.resize(static_cast<size_t>(model_.buffer_count));
    Grown &g = grown_[static_cast<size_t>(buffer)];
    const size_t bytes = bytes_of(buffer);
    if (bytes > (size_t{1} << 32)) return refuse("a tensor is too large for this bundle's kernels");
    if (!g.address || g.bytes < bytes) {
      if (const Result code = d_->stream_wait(stream_)) return fail(code, "run");
      if (g.address) d_->release(g.address);
      g = Grown();
      const size_t wanted = static_cast<size_t>(aligned(bytes + bytes / 2 + 1));
      if (const Result code = d_->allocate(&g.address, wanted))
        return fail(code, "memory for " + std::to_string(wanted) + " bytes");
      g.bytes = wanted;
    }
    at_.address[static_cast<size_t>(buffer)] = g.address;
    return OPTC_OK;
  }

  optc_status launch_segment(int s, Stream stream) {
    const SegmentTable &segment = model_.segments[s];
    if (segment.open)
      for (int i = segment.first; i < segment.first + segment.count; ++i)
        for (int k = 0; k < model_.launches[i].argument_count; ++k)
          if (model_.launches[i].arguments[k].kind == ArgumentKind::kBuffer)
            if (const optc_status status = grow(model_.launches[i].arguments[k].index)) return status;
    const Result code =
        segment.open ? launcher_.launch_each(segment, at_, stream) : launcher_.run(s, at_, stream_, stream);
    return code ? fail(code, launcher_.failed()) : OPTC_OK;
  }

  const ModelTable &model_;
  const Driver *d_ = nullptr;
  Device device_ = 0;
  Context context_ = nullptr;
  Module module_ = nullptr;
  Stream stream_ = nullptr;
  struct Grown {  // kGrowing
    Address address = 0;
    size_t bytes = 0;
  };
  Launcher launcher_;
  Bindings at_;               // of the run at hand; prepare() makes them
  std::vector<Grown> grown_;  // by buffer
  bool prepared_ = false;     // memory for `current_`
  Address weights_ = 0, arena_ = 0;
  volatile uint32_t *faults_ = nullptr;  // by launch, on the host
  size_t arena_bytes_ = 0;
  std::vector<Address> states_;  // where the caller has each on the card; 0: on the host
  std::vector<int64_t> current_;
  std::string error_, target_;
};

}  // namespace cuda
}  // namespace optc
