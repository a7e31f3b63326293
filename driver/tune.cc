#include "driver/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "driver/bisect.h"
#include "driver/bundle.h"
#include "driver/doctor.h"
#include "driver/step.h"
#include "ir/program/gpu_machine.h"

namespace optc {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kLeastGain = 0.01;  // a smaller one is not worth a choice
constexpr size_t kMostWays = 6;      // of a form that are measured, the first by the cost model
constexpr int kLeastRounds = 8, kMostRounds = 400;

class Quiet : public Listener {
 public:
  void begin(std::string_view) override {}
  void progress(int64_t, int64_t) override {}
  void end(std::string_view, const std::string &, double) override {}
};

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// The least time of even and of odd rounds.
struct Least {
  double half[2] = {kNever, kNever};
  void add(int round, double time) { half[round % 2] = std::min(half[round % 2], time); }
  double time() const { return std::min(half[0], half[1]); }
  double noise() const { return std::abs(half[0] - half[1]) / std::max(time(), 1e-9); }
  bool measured() const { return half[0] < kNever && half[1] < kNever; }
};

class Tuner {
 public:
  Tuner(const std::string &path, const Graph &model, const CompileOptions &options, const TuneOptions &tune,
        Listener &listener, Diagnostics &diagnostics)
      : path_(path),
        model_(model),
        options_(options),
        tune_(tune),
        listener_(listener),
        diagnostics_(diagnostics),
        gpu_(has_gpu_target(options)) {
    if (options.tuning) known_ = *options.tuning;
  }

  Result<TuneReport> run(const std::vector<TunedForm> &known, InputSets &sets) {
    report_.cache = tuning_of_here(gpu_ ? std::string(machine_of(options_.targets).target) : "cpu", tune_.threads);
    report_.cache.forms = known;
    if (gpu_) OPTC_TRY(find_card());
    OPTC_TRY(enumerate());
    if (!report_.forms.empty()) {
      OPTC_TRY(build(sets));
      OPTC_TRY(measure());
      choose();
      if (report_.changed > 0) OPTC_TRY(prove());
    }
    for (const FormTimes &f : report_.forms) {
      const FormTimes::Way &way = f.ways[f.chosen], &first = f.ways[0];
      if (way.microseconds >= 0)
        report_.cache.forms.push_back(
            {f.form, f.note, way.what, first.what, way.microseconds, first.microseconds, way.noise});
    }
    return std::move(report_);
  }

 private:
  // Before anything is built for it.
  Status find_card() {
    const std::vector<Finding> found = driver_and_cards();
    const Finding &last = found.back();
    if (!last.there || found.size() < 2)
      return diagnostics_.error(ErrorKind::kIo, "kernels of a GPU are tuned on one, and there is none: " + last.what,
                                {}, last.help.empty() ? "`optc doctor` says what is there" : last.help);
    report_.cache.processor = found[1].what;  // the one that bundles take
    return {};
  }

  // The forms with more than one way that are not known yet, and which kernels have them.
  Status enumerate() {
    Quiet quiet;
    Step step(listener_, "ways");
    CompileOptions options = options_;
    options.tuning = std::make_shared<TuningTable>(known_);
    OPTC_ASSIGN(const Optimized optimized, optimize_model(model_.clone(), options, quiet, diagnostics_));
    LoweringReport lowered;
    OPTC_ASSIGN(const Program program, lower_reported(optimized.graph, options, quiet, diagnostics_, gpu_, lowered));
    std::map<std::string, std::string> notes;
    for (const Kernel &k : program.kernels) notes[k.name] = k.note;
    std::map<std::string, size_t> place;
    size_t most = 0;
    for (const ScheduleChoice &choice : lowered.choices) {
      if (choice.form.empty() || choice.ranked.size() < 2 || choice.measured) continue;
      const auto [at, fresh] = place.try_emplace(choice.form, report_.forms.size());
      if (fresh) {
        FormTimes &form = report_.forms.emplace_back();
        form.form = choice.form;
        form.note = notes[choice.kernel].empty() ? choice.kernel : notes[choice.kernel];
        for (size_t i = 0; i < std::min(choice.ranked.size(), kMostWays); ++i)
          form.ways.push_back({choice.ranked[i].what, -1, 0});
        most = std::max(most, form.ways.size());
      }
      ++report_.forms[at->second].kernels;
      form_of_[choice.kernel] = at->second;
    }
    report_.bundles = most;
    step.end(report_.forms.empty() ? "no kernel has more than one that is not measured yet"
                                   : fmt::format("{} forms of {} kernels have more than one, {} at most",
                                                 report_.forms.size(), form_of_.size(), most));
    return {};
  }

  // The options by which form f runs by way[f].
  CompileOptions with(const std::vector<size_t> &way) const {
    auto table = std::make_shared<TuningTable>(known_);
    for (size_t f = 0; f < report_.forms.size(); ++f)
      table->ways[report_.forms[f].form] = report_.forms[f].ways[way[f]].what;
    CompileOptions options = options_;
    options.tuning = std::move(table);
    return options;
  }

  Result<std::unique_ptr<Bundle>> built(const std::vector<size_t> &way) {
    Quiet quiet;
    OPTC_ASSIGN(const BuiltBundle made, build_model(path_, with(way), quiet, diagnostics_));
    if (gpu_ && !has_gpu_half(made.folder))
      return diagnostics_.error(ErrorKind::kUnsupported,
                                "no kernel of the model has a GPU form: there is nothing to tune");
    BundleRunOptions run;
    run.threads = tune_.threads;
    run.cuda = gpu_;
    run.weights_path = made.folder + "/" + made.name + ".weights";
    return Bundle::load(made.library, made.name, run, diagnostics_);
  }

  // One bundle for each way; a form that has fewer runs by the model's again, which is not counted.
  Status build(InputSets &sets) {
    for (size_t n = 0; n < report_.bundles; ++n) {
      Step step(listener_, fmt::format("bundle {} of {}", n + 1, report_.bundles));
      std::vector<size_t> way;
      size_t forms = 0;
      for (const FormTimes &f : report_.forms) {
        way.push_back(n < f.ways.size() ? n : 0);
        forms += n < f.ways.size();
      }
      OPTC_ASSIGN(std::unique_ptr<Bundle> bundle, built(way));
      if (n == 0) {
        const auto once = [&](const InputSet &tried, Diagnostics &said) -> Status {
          OPTC_TRY(bundle->run(tried.values, said));
          return {};
        };
        OPTC_ASSIGN(inputs_, sets.fitting(model_, 0, once, diagnostics_));
      }
      bundles_.push_back(std::move(bundle));
      step.end(n == 0 ? "as the cost model has it" : fmt::format("{} forms by their way {}", forms, n + 1));
    }
    return {};
  }

  // A run under the profile: the time of each form's kernels.
  Status profile(size_t n, int round, std::vector<std::vector<std::map<std::string, Least>>> &times) {
    OPTC_ASSIGN(const std::string text, bundles_[n]->profile(inputs_.values, 1, diagnostics_));
    const nlohmann::json kernels = nlohmann::json::parse(text, nullptr, false);
    if (!kernels.is_array()) return diagnostics_.error(ErrorKind::kInternal, "the bundle gives no profile by kernel");
    for (const auto &k : kernels) {
      const std::string name = k.value("kernel", std::string());
      const auto at = form_of_.find(name);
      const double calls = k.value("calls", 0.0);
      if (at == form_of_.end() || calls == 0 || n >= report_.forms[at->second].ways.size()) continue;
      times[at->second][n][name].add(round, k.value("ns", 0.0) / calls / 1000);
    }
    return {};
  }

  Status measure() {
    Step step(listener_, "measure");
    std::vector<std::vector<std::map<std::string, Least>>> times(report_.forms.size());
    for (size_t f = 0; f < times.size(); ++f) times[f].resize(report_.forms[f].ways.size());
    const double seconds = tune_.seconds * 2 / 3;
    const auto begin = Clock::now();
    int round = 0;
    for (; round < kMostRounds && (round < kLeastRounds || seconds_since(begin) < seconds); ++round) {
      listener_.progress(static_cast<int64_t>(std::min(seconds, seconds_since(begin)) * 100),
                         static_cast<int64_t>(seconds * 100));
      // Each bundle is the first as often.
      for (size_t i = 0; i < bundles_.size(); ++i)
        OPTC_TRY(profile((i + static_cast<size_t>(round)) % bundles_.size(), round, times));
    }
    report_.rounds = static_cast<size_t>(round);
    for (size_t f = 0; f < times.size(); ++f)
      for (size_t w = 0; w < times[f].size(); ++w) sum_up(times[f][w], report_.forms[f].ways[w]);
    std::stable_sort(report_.forms.begin(), report_.forms.end(), [](const FormTimes &a, const FormTimes &b) {
      return static_cast<double>(a.kernels) * a.ways[0].microseconds >
             static_cast<double>(b.kernels) * b.ways[0].microseconds;
    });
    step.end(fmt::format("{} runs of {} bundles in turns", round, bundles_.size()));
    return {};
  }

  // The mean of the form's kernels.
  static void sum_up(const std::map<std::string, Least> &kernels, FormTimes::Way &way) {
    Least all{{0, 0}};
    for (const auto &[name, least] : kernels) {
      if (!least.measured()) return;
      for (const size_t half : {0, 1}) all.half[half] += least.half[half] / static_cast<double>(kernels.size());
    }
    if (kernels.empty()) return;
    way.microseconds = all.time();
    way.noise = all.noise();
  }

  void choose() {
    for (FormTimes &f : report_.forms) {
      const FormTimes::Way &first = f.ways[0];
      size_t best = 0;
      for (size_t w = 1; w < f.ways.size(); ++w)
        if (f.ways[w].microseconds >= 0 && f.ways[w].microseconds < f.ways[best].microseconds) best = w;
      const double margin = std::max(kLeastGain, first.noise + f.ways[best].noise);
      if (f.ways[best].microseconds < first.microseconds * (1 - margin)) f.chosen = best, ++report_.changed;
    }
  }

  // The whole model as the cost model has it and as it was measured, in turns.
  Status prove() {
    Step step(listener_, "prove");
    std::vector<size_t> way;
    for (const FormTimes &f : report_.forms) way.push_back(f.chosen);
    bundles_.resize(1);
    OPTC_ASSIGN(std::unique_ptr<Bundle> tuned, built(way));
    bundles_.push_back(std::move(tuned));
    Least least[2];
    const auto begin = Clock::now();
    int round = 0;
    for (; round < kMostRounds && (round < kLeastRounds || seconds_since(begin) < tune_.seconds / 3); ++round)
      for (size_t i = 0; i < 2; ++i) {
        const size_t n = (i + static_cast<size_t>(round)) % 2;
        OPTC_ASSIGN(const std::vector<double> ms, bundles_[n]->time(inputs_.values, 0, 3, 10, diagnostics_));
        least[n].add(round, *std::min_element(ms.begin(), ms.end()));
      }
    report_.before_ms = least[0].time();
    report_.after_ms = least[1].time();
    report_.noise = least[0].noise() + least[1].noise();
    report_.dropped = report_.after_ms > report_.before_ms * (1 + report_.noise);
    if (report_.dropped)
      for (FormTimes &f : report_.forms) f.chosen = 0;
    step.end(fmt::format("{} runs of two bundles in turns", round));
    return {};
  }

  const std::string &path_;
  const Graph &model_;
  const CompileOptions &options_;
  const TuneOptions &tune_;
  Listener &listener_;
  Diagnostics &diagnostics_;
  const bool gpu_;
  TuningTable known_;
  TuneReport report_;
  std::map<std::string, size_t> form_of_;  // by kernel
  std::vector<std::unique_ptr<Bundle>> bundles_;
  InputSet inputs_;
};

}  // namespace

Result<TuneReport> tune_model(const std::string &path, const Graph &model, const CompileOptions &options,
                              const std::vector<TunedForm> &known, InputSets &inputs, const TuneOptions &tune,
                              Listener &listener, Diagnostics &diagnostics) {
  return Tuner(path, model, options, tune, listener, diagnostics).run(known, inputs);
}

}  // namespace optc
