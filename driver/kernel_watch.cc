#include "driver/kernel_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "driver/bisect.h"
#include "driver/gpu.h"
#include "driver/kernel_compare.h"
#include "driver/places.h"
#include "emit/cpp/emit.h"
#include "runtime/bundle/probe.h"
#include "support/file.h"

namespace optc {
namespace {

class Watch {
 public:
  Watch(const WatchedProgram &made_of, const WatchOptions &options, WatchReport &report)
      : made_of_(made_of), program_(*made_of.program), uses_(program_), options_(options), report_(report) {
    const Program &program = program_;
    for (size_t i = 0; i < program.order.size(); ++i) step_of_[program.order[i].index] = i;
    for (const Placement &p : program.placements) last_step_[p.buffer.index] = p.last;
    std::set<uint32_t> by_constructs;  // what copies of control flow change, too
    for (size_t k = 0; k < program.kernels.size(); ++k) {
      const Kernel &kernel = program.kernels[k];
      if (!kernel.alive || step_of_.count(static_cast<uint32_t>(k))) {
        if (!kernel.alive || !kernel.control()) continue;
      }
      for (const BufferId b : writes(program, kernel)) by_constructs.insert(root(b).index);
    }
    shared_ = std::move(by_constructs);
  }

  static void on_event(void *user, const ProbeEvent *event) { static_cast<Watch *>(user)->handle(*event); }
  // A difference that ended in the evaluator's refusal counts when the bundle ran through.
  void finish() {
    if (refused_ && !report_.difference) report_.difference = std::move(refused_);
  }
  void run_failed() {
    if (!running_) return;
    report_.ended = finding(*running_, {}, nullptr);
    report_.ended->problem = "the run ends in it";
  }
  std::string wrong_program;  // not empty: the bundle is of another Program

 private:
  BufferId root(BufferId b) const { return uses_.root(b); }

  void handle(const ProbeEvent &event) {
    const size_t number = static_cast<size_t>(event.kernel);
    if (number >= program_.kernels.size() || program_.kernels[number].name != event.name) {
      wrong_program =
          fmt::format("the bundle runs kernel {} '{}', which the Program does not have", number, event.name);
      return;
    }
    const bool compare = options_.compare && !report_.difference && !refused_;
    if (!wrong_program.empty() || (!compare && !options_.numerics)) return;
    const Kernel &kernel = program_.kernels[number];
    std::vector<BufferId> roots = probed_buffers(program_, uses_, kernel);
    if (roots.size() != event.buffer_count) {
      wrong_program = fmt::format("the bundle has other buffers for kernel '{}'", event.name);
      return;
    }
    SymbolValueList symbols;
    for (size_t i = 0; i < event.dim_count; ++i)
      symbols.emplace_back(static_cast<uint32_t>(event.symbols[i]), event.dims[i]);
    std::map<uint32_t, const uint8_t *> at;
    for (size_t i = 0; i < roots.size(); ++i) at[roots[i].index] = static_cast<const uint8_t *>(event.buffers[i]);
    isa_ = event.isa;
    running_ = event.after ? nullptr : &kernel;
    watch_over(kernel, event);
    if (kernel.control()) {
      if (!event.after) begin_step(static_cast<uint32_t>(number));
      if (compare && options_.constructs) construct(KernelId(number), event, symbols, at);
      return;
    }
    if (!event.after) {
      begin_step(static_cast<uint32_t>(number));
      if (options_.numerics) note_specials(kernel, symbols, at);
      if (compare) before(KernelId(number), kernel, symbols, at);
      return;
    }
    if (compare && event.overrun) {
      KernelFinding f = finding(kernel, {}, nullptr);
      f.problem = std::string("it ") + event.overrun;
      differs(std::move(f));
    } else if (compare) {
      after(KernelId(number), kernel, symbols, at);
    }
    if (options_.numerics) check_specials(kernel, symbols, at);
  }

  void differs(KernelFinding f) {
    report_.difference = std::move(f);
    if (options_.before_crash) options_.before_crash(*report_.difference);
  }

  // Before a kernel runs, and behind a construct, which ends with what it does itself.
  void watch_over(const Kernel &kernel, const ProbeEvent &event) const {
    if (!options_.before_crash || report_.difference || (event.after && !kernel.control())) return;
    KernelFinding f = finding(kernel, {}, nullptr);
    f.problem = event.after ? "the bundle crashes when it has run" : "the bundle crashes in it, or before the next one";
    options_.before_crash(f);
  }

  KernelFinding finding(const Kernel &kernel, BufferId output, const Constant *value) const {
    KernelFinding f;
    f.kernel = kernel.name;
    f.note = kernel.note;
    f.isa = isa_;
    for (const uint32_t o : kernel.origin)
      if (o < program_.origins.size())
        f.nodes.push_back(
            fmt::format("{} '{}' (#{})", program_.origins[o].op, program_.origins[o].name, program_.origins[o].index));
    f.strategy = gpu_form(kernel);
    const ControlFlow *control = kernel.control();
    if (control) f.strategy = control->kind == ControlFlow::Kind::kIf ? "if" : "loop";
    if (f.strategy.empty()) f.strategy = kernel.library() ? kernel.library()->function : name(kernel.schedule);
    if (output.valid()) {
      const Buffer &b = program_.buffer(output);
      f.output = b.name + " " + (value ? std::string(to_string(value->type())) + to_string(value->shape()) : "");
    }
    return f;
  }

  // "" where it runs on the CPU.
  std::string gpu_form(const Kernel &kernel) const {
    const auto step = step_of_.find(static_cast<uint32_t>(&kernel - program_.kernels.data()));
    return step != step_of_.end() && step->second < made_of_.gpu_forms.size() ? made_of_.gpu_forms[step->second] : "";
  }

  static DimValues values_of(const SymbolValueList &symbols) {
    return [&symbols](const DimSymbol &s) -> std::optional<int64_t> {
      for (const auto &[symbol, value] : symbols)
        if (symbol == s.id) return value;
      return std::nullopt;
    };
  }

  // --- comparison

  std::string reason_against(const Kernel &kernel) const {
    std::vector<BufferId> all = reads(program_, kernel);
    const std::vector<BufferId> written = writes(program_, kernel);
    all.insert(all.end(), written.begin(), written.end());
    for (const BufferId b : all) {
      const Type &type = program_.buffer(b).type;
      if (program_.buffer(b).kind == BufferKind::kConstant) continue;
      if (!type.is_tensor()) return "it works on sequences, optionals or maps";
      if (type.element == ElementType::kString) return "it works on strings";
    }
    const LibraryCall *call = kernel.library();
    if (call && (call->function.rfind("random_", 0) == 0 || call->function == "dropout")) return "it is random";
    return {};
  }

  void before(KernelId id, const Kernel &kernel, const SymbolValueList &symbols,
              const std::map<uint32_t, const uint8_t *> &at) {
    expected_.clear();
    if (const std::string reason = reason_against(kernel); !reason.empty()) {
      const std::pair<std::string, std::string> entry(kernel.name, reason);
      if (skipped_.insert(id.index).second &&
          std::find(report_.not_compared.begin(), report_.not_compared.end(), entry) == report_.not_compared.end())
        report_.not_compared.push_back(entry);
      return;
    }
    for (const BufferId b : reads(program_, kernel)) {
      const auto kept = kept_.find(root(b).index);
      if (kept == kept_.end() || !at.count(kept->first) || unchanged(kept->second, at.at(kept->first))) continue;
      KernelFinding f = finding(kernel, b, nullptr);
      f.problem = fmt::format("'{}' has changed since kernel '{}' wrote it", program_.buffer(root(b)).name,
                              kept->second.writer);
      differs(std::move(f));
      return;
    }
    std::vector<StoredBuffer> memory;
    for (const auto &[buffer, bytes] : at) memory.push_back({BufferId(size_t{buffer}), bytes});
    Diagnostics diagnostics;
    EvaluateOptions evaluate_options;
    auto values = evaluate_kernel(program_, id, symbols, memory, evaluate_options, diagnostics);
    if (values.ok()) {
      expected_ = std::move(*values);
      return;
    }
    KernelFinding f = finding(kernel, {}, nullptr);
    f.problem = "the evaluator refuses it: " + (diagnostics.all().empty() ? "" : diagnostics.all().back().message);
    refused_ = std::move(f);
  }

  void after(KernelId id, const Kernel &kernel, const SymbolValueList &symbols,
             const std::map<uint32_t, const uint8_t *> &at) {
    if (skipped_.count(id.index)) return;
    ++report_.compared;
    report_.kernels.insert(id.index);
    Exactness exactness = exactness_of(program_, kernel, values_of(symbols));
    exactness.tf32 = made_of_.tf32 && exactness.kind == Exactness::Kind::kSums && !gpu_form(kernel).empty();
    for (const BufferValue &wanted : expected_)
      if (!same(kernel, wanted, symbols, at, exactness)) return;
    check_others(id, kernel);
    keep(id, kernel, symbols, at);
  }

  // Whether a buffer holds what it should; where not, that is the difference.
  bool same(const Kernel &kernel, const BufferValue &wanted, const SymbolValueList &symbols,
            const std::map<uint32_t, const uint8_t *> &at, const Exactness &exactness) {
    const auto bytes = at.find(root(wanted.buffer).index);
    const auto got = bytes == at.end() ? std::nullopt : stored_value(program_, wanted.buffer, symbols, bytes->second);
    KernelFinding f = finding(kernel, wanted.buffer, &wanted.value);
    if (!got) {
      f.problem = "it has no place, or its size is not known";
      differs(std::move(f));
      return false;
    }
    const KernelDifference d = compare_elements(*got, wanted.value, exactness);
    if (!kernel.control() && is_float(wanted.value.type())) note_drift(kernel, f.output, d);
    if (d.differing == 0) return true;
    f.problem = d.problem.empty() ? fmt::format("{} of {} elements differ", d.differing, d.count) : d.problem;
    f.index = d.index;
    f.got = d.got;
    f.expected = d.expected;
    f.allowed = d.allowed;
    differs(std::move(f));
    return false;
  }

  void note_drift(const Kernel &kernel, const std::string &output, const KernelDifference &d) {
    const auto number = static_cast<uint32_t>(&kernel - program_.kernels.data());
    const double relative = d.range > 0 ? d.largest / d.range : d.largest > 0 ? 1 : 0;
    const auto [it, first] = report_.drift.try_emplace(number, KernelDrift{kernel.name, output, d.largest, relative});
    if (!first && relative > it->second.relative) it->second = {kernel.name, output, d.largest, relative};
  }

  // An If or a loop as a whole, beside the evaluator on what it reads. What the evaluator cannot run alone is passed
  // over.
  void construct(KernelId id, const ProbeEvent &event, const SymbolValueList &symbols,
                 const std::map<uint32_t, const uint8_t *> &at) {
    const Kernel &kernel = program_.kernel(id);
    if (!event.after) {
      std::set<uint32_t> outputs;
      for (const BufferId b : kernel.control()->outputs)
        if (b.valid()) outputs.insert(root(b).index);
      std::vector<StoredBuffer> memory;
      for (const auto &[buffer, bytes] : at)
        if (!outputs.count(buffer)) memory.push_back({BufferId(size_t{buffer}), bytes});
      Diagnostics quiet;
      auto values = evaluate_kernel(program_, id, symbols, memory, {}, quiet);
      constructs_[id.index] = values.ok() ? std::move(*values) : std::vector<BufferValue>();
      return;
    }
    if (event.overrun) {
      KernelFinding f = finding(kernel, {}, nullptr);
      f.problem = std::string("it ") + event.overrun;
      differs(std::move(f));
      return;
    }
    constexpr Exactness kOfMany{Exactness::Kind::kSums, 4096};
    for (const BufferValue &wanted : constructs_[id.index])
      if (!same(kernel, wanted, symbols, at, kOfMany)) return;
  }

  // --- memory that a kernel must leave alone

  // A run that found its outputs' memory too small is run again from its first kernel.
  void begin_step(uint32_t kernel) {
    const auto step = step_of_.find(kernel);
    if (step == step_of_.end()) return;
    if (step->second <= step_) kept_.clear();
    step_ = step->second;
  }

  struct Kept {
    std::string writer, hash;
    const uint8_t *bytes;
    size_t size, last_step;
  };
  static bool unchanged(const Kept &kept, const uint8_t *now) {
    return now != kept.bytes || xxh3_128(kept.bytes, kept.size) == kept.hash;
  }

  void check_others(KernelId id, const Kernel &kernel) {
    const auto step = step_of_.find(id.index);
    if (step == step_of_.end()) return;
    std::set<uint32_t> written;
    for (const BufferId b : writes(program_, kernel)) written.insert(root(b).index);
    for (auto it = kept_.begin(); it != kept_.end();) {
      if (it->second.last_step < step->second) {
        it = kept_.erase(it);
        continue;
      }
      if (!written.count(it->first) && !unchanged(it->second, it->second.bytes)) {
        KernelFinding f = finding(kernel, {}, nullptr);
        f.problem =
            fmt::format("it changes '{}', which it does not write", program_.buffer(BufferId(size_t{it->first})).name);
        differs(std::move(f));
        return;
      }
      ++it;
    }
  }

  // What the kernel wrote must stay until its last reader.
  void keep(KernelId id, const Kernel &kernel, const SymbolValueList &symbols,
            const std::map<uint32_t, const uint8_t *> &at) {
    if (!step_of_.count(id.index)) return;
    const DimValues values = values_of(symbols);
    for (const BufferId b : writes(program_, kernel)) {
      const uint32_t r = root(b).index;
      const auto bytes = at.find(r);
      const Buffer &buffer = program_.buffer(root(b));
      if (bytes == at.end() || !bytes->second || shared_.count(r)) continue;
      const auto count = evaluate(storage_count(buffer), values);
      const int64_t size = count ? storage_bytes(buffer.element(), *count).value_or(-1) : -1;
      const auto last = last_step_.find(r);
      if (size < 0 || (last == last_step_.end() && buffer.kind != BufferKind::kOutput)) continue;
      const size_t bytes_written = static_cast<size_t>(size);
      kept_[r] = {kernel.name, xxh3_128(bytes->second, bytes_written), bytes->second, bytes_written,
                  last == last_step_.end() ? SIZE_MAX : last->second};
    }
  }

  // --- NaNs and infinities

  void note_specials(const Kernel &kernel, const SymbolValueList &symbols,
                     const std::map<uint32_t, const uint8_t *> &at) {
    had_nan_ = had_infinity_ = false;
    for (const BufferId b : reads(program_, kernel)) {
      const Buffer &buffer = program_.buffer(b);
      if (!buffer.type.is_tensor() || !is_float(buffer.element())) continue;
      std::optional<Constant> value;
      if (program_.buffer(root(b)).kind == BufferKind::kConstant) {
        value = program_.buffer(root(b)).constant;
      } else if (const auto bytes = at.find(root(b).index); bytes != at.end() && bytes->second) {
        value = stored_value(program_, b, symbols, bytes->second);
      }
      if (!value || !value->valid()) continue;
      const Specials s = find_specials(*value);
      had_nan_ = had_nan_ || s.nan;
      had_infinity_ = had_infinity_ || s.infinity;
    }
  }

  void check_specials(const Kernel &kernel, const SymbolValueList &symbols,
                      const std::map<uint32_t, const uint8_t *> &at) {
    for (const BufferId b : writes(program_, kernel)) {
      const auto bytes = at.find(root(b).index);
      if (bytes == at.end() || !bytes->second || (report_.nan && report_.infinity)) continue;
      const auto value = stored_value(program_, b, symbols, bytes->second);
      if (!value) continue;
      // Of a result with several writers, what others did not write yet has no values.
      const auto written = written_elements(kernel, b, values_of(symbols));
      if (!written && uses_.writers(b).size() > 1) continue;
      const Specials s = find_specials(*value, written);
      auto note = [&](std::optional<KernelFinding> &to, const std::string &index, const char *what) {
        KernelFinding f = finding(kernel, b, &*value);
        f.index = index;
        f.problem = what;
        to = std::move(f);
      };
      if (s.nan && !had_nan_ && !report_.nan) note(report_.nan, s.nan_index, "makes a NaN of inputs that have none");
      if (s.infinity && !had_infinity_ && !report_.infinity && !has_infinite_constant(program_, kernel))
        note(report_.infinity, s.infinity_index, "makes an infinity of inputs that have none");
    }
  }

  const WatchedProgram &made_of_;
  const Program &program_;
  const Uses uses_;
  const WatchOptions &options_;
  WatchReport &report_;
  std::map<uint32_t, size_t> step_of_, last_step_;
  std::set<uint32_t> shared_;  // roots that control flow writes
  std::map<uint32_t, Kept> kept_;
  size_t step_ = 0;                  // the last one that began
  const Kernel *running_ = nullptr;  // null: none, control flow aside
  std::set<uint32_t> skipped_;
  std::vector<BufferValue> expected_;
  std::map<uint32_t, std::vector<BufferValue>> constructs_;  // outputs that are expected of Ifs and loops
  std::optional<KernelFinding> refused_;
  std::string isa_;
  bool had_nan_ = false, had_infinity_ = false;
};

}  // namespace

Status watch_bundle(const WatchedProgram &made_of, Bundle &bundle, const std::vector<RuntimeValue> &inputs,
                    const WatchOptions &options, WatchReport &report, Diagnostics &diagnostics) {
  Watch watch(made_of, options, report);
  OPTC_TRY(bundle.watch(Watch::on_event, &watch, diagnostics));
  const auto outputs = bundle.run(inputs, diagnostics);
  OPTC_TRY(bundle.watch(nullptr, nullptr, diagnostics));
  if (!watch.wrong_program.empty()) return diagnostics.error(ErrorKind::kInternal, watch.wrong_program);
  if (!outputs.ok() && !report.difference) {
    watch.run_failed();
    return outputs.failure();
  }
  watch.finish();
  return {};
}

Result<WatchedBundle> build_watched(const std::string &path, CompileOptions options, int threads, Listener &listener,
                                    Diagnostics &diagnostics) {
  options.probe = true;
  OPTC_ASSIGN(const BuiltBundle built, build_model(path, options, listener, diagnostics));
  // The same steps from the same file: kernels, buffers and dims have the same numbers.
  struct Silent : Listener {
    void begin(std::string_view) override {}
    void progress(int64_t, int64_t) override {}
    void end(std::string_view, const std::string &, double) override {}
  } silent;
  WatchedBundle watched;
  OPTC_ASSIGN(Graph model, load_model(path, options, silent, diagnostics));
  OPTC_ASSIGN(const Optimized optimized, optimize_model(std::move(model), options, silent, diagnostics));
  const CompileOptions rest = after_rewrites(options, optimized);
  BundleRunOptions run_options;
  run_options.threads = threads;
  run_options.cuda = has_gpu_half(built.folder);
  if (run_options.cuda) {
    OPTC_ASSIGN(std::optional<BundleCuda> half, gpu_half(optimized.graph, built.name, rest, silent, diagnostics));
    if (!half) return diagnostics.error(ErrorKind::kInternal, "the bundle has a GPU half, the model has none");
    watched.made_of = {half->program, half->forms, options.f32 == "tf32"};
  } else {
    OPTC_ASSIGN(Program program, lower_model(optimized.graph, rest, silent, diagnostics));
    watched.made_of.program = std::make_shared<const Program>(std::move(program));
  }
  const std::string weights = built.folder + "/" + built.name + ".weights";
  if (exists(weights)) run_options.weights_path = weights;
  OPTC_ASSIGN(watched.bundle, Bundle::load(built.library, built.name, run_options, diagnostics));
  return watched;
}

}  // namespace optc
