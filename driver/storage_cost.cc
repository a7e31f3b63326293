#include "driver/storage_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "driver/compare.h"
#include "driver/places.h"

namespace optc {
namespace {

constexpr uint64_t kSeed = 20;

struct Sample {
  std::vector<RuntimeValue> inputs, outputs;  // outputs in f32
};

constexpr int64_t kRuns = 16;  // that `most_work` is enough for, whatever the samples are

// Adds the work to `work`; `most` of it, 0: any.
Result<std::vector<RuntimeValue>> run(const Program &program, const std::vector<RuntimeValue> &inputs, int64_t most,
                                      int64_t &work, Diagnostics &diagnostics) {
  EvaluateOptions options;
  options.seed = kSeed;
  options.max_bytes = memory_bytes();
  options.max_work = most;
  options.work = &work;
  return evaluate(program, inputs, options, diagnostics);
}

struct Samples {
  std::vector<Sample> sets;
  std::string described;
  std::string unmeasured;  // why there are none
  bool too_large = false;  // it is memory or work
};

// One or two sets, and what `plain` gives for them.
Samples draw_samples(const Graph &graph, const Program &plain, const InputSource &source, int64_t most_work) {
  InputSets sets(graph, source);
  Samples drawn;
  const bool made = source.folder.empty();
  drawn.described = made ? "random inputs" : source.folder;
  for (int set = 0; set < (made ? 2 : 1); ++set) {
    Sample sample;
    Diagnostics said;
    const auto once = [&](const InputSet &tried, Diagnostics &diagnostics) -> Status {
      int64_t work = 0;
      OPTC_ASSIGN(sample.outputs, run(plain, tried.values, made ? most_work / kRuns : 0, work, diagnostics));
      return {};
    };
    Result<InputSet> inputs = sets.fitting(graph, set, once, said);
    if (!inputs) {
      drawn.too_large = inputs.failure().kind == ErrorKind::kIo && made;
      if (set > 0 && drawn.too_large) break;
      for (const Diagnostic &d : said.all())
        if (d.severity == Severity::kError) drawn.unmeasured = d.message;
      if (drawn.unmeasured.empty()) drawn.unmeasured = "the samples could not be run";
      break;
    }
    sample.inputs = std::move(inputs->values);
    if (!inputs->sizes.empty()) drawn.described += (set == 0 ? ", " : "; ") + describe(inputs->sizes);
    drawn.sets.push_back(std::move(sample));
  }
  return drawn;
}

// Of floats the difference over the range, of exact types the part of the elements that differ.
double cost_of(const Comparison &c, const RuntimeValue &expected) {
  const bool exact = expected.kind == RuntimeValue::Kind::kTensor && !is_float(expected.tensor.type()) &&
                     !is_complex(expected.tensor.type());
  if (exact && c.count > 0) return static_cast<double>(c.differing) / static_cast<double>(c.count);
  if (!c.problem.empty()) return std::numeric_limits<double>::infinity();
  return c.max_difference == 0 ? 0 : c.max_difference / std::max(c.range, 1e-30);
}

// Rows along the last axis, and those whose largest element is at another place.
void count_rows(const RuntimeValue &actual, const RuntimeValue &expected, StorageCost &cost) {
  if (expected.kind != RuntimeValue::Kind::kTensor || actual.kind != RuntimeValue::Kind::kTensor) return;
  const Constant &a = actual.tensor, &e = expected.tensor;
  if (!is_float(e.type()) || e.rank() == 0 || e.dims().back() < 2 || a.dims() != e.dims()) return;
  const int64_t width = e.dims().back();
  for (int64_t row = 0; row < e.count(); row += width) {
    int64_t best_a = row, best_e = row;
    for (int64_t i = row; i < row + width; ++i) {
      if (a.as_double(i) > a.as_double(best_a)) best_a = i;
      if (e.as_double(i) > e.as_double(best_e)) best_e = i;
    }
    ++cost.rows;
    cost.moved += best_a != best_e;
  }
}

class Search {
 public:
  Search(const Program &plain, const LowerNarrow &lower, const std::vector<Sample> &samples, const StorageTrial &trial)
      : plain_(plain), lower_(lower), samples_(samples), trial_(trial) {}

  // All tensors that can be narrow are, but for `kept`.
  StorageCost cost(const KeptTensors &kept, std::vector<std::string> *names = nullptr) {
    StorageCost cost;
    ++evaluations_;
    std::vector<std::string> narrow;
    const Result<Program> program = lower_(kept, narrow);
    if (names) *names = std::move(narrow);
    for (const Sample &sample : samples_) {
      Diagnostics quiet;
      const auto outputs = program.ok() ? run(*program, sample.inputs, 0, work_, quiet) : program.failure();
      if (!outputs) {  // an index that a rounding moved, say
        cost.difference = std::numeric_limits<double>::infinity();
        cost.output = quiet.all().empty() ? "" : quiet.all().front().message;
        return cost;
      }
      for (size_t i = 0; i < outputs->size(); ++i) {
        const Comparison c = compare((*outputs)[i], sample.outputs[i], {});
        const double by = cost_of(c, sample.outputs[i]);
        if (by > cost.difference || cost.output.empty()) {
          cost.difference = by;
          cost.output = i < plain_.output_names.size() ? plain_.output_names[i] : "";
        }
        count_rows((*outputs)[i], sample.outputs[i], cost);
      }
    }
    return cost;
  }

  // Names to keep as they were so that the rest is within the bound; `all` costs `known`. What a tensor costs depends
  // on the others (an operand of a product stays f32 with the other one), so they become narrow one after the other:
  // halving finds the first with which the cost leaves the bound, that one stays f32, and so on.
  KeptTensors find(const std::vector<std::string> &names, double known) {
    KeptTensors kept;
    size_t good = 0;  // so many of them may be narrow, but for `kept`
    double at_good = 0;
    while (known > trial_.bound) {
      size_t bad = names.size();
      double at_bad = known;
      while (bad - good > 1 && !is_spent()) {
        const size_t middle = good + (bad - good) / 2;
        const double by = cost(without_tail(kept, names, middle)).difference;
        (by > trial_.bound ? bad : good) = middle;
        (by > trial_.bound ? at_bad : at_good) = by;
      }
      for (size_t i = good; i < bad; ++i) kept.emplace_back(names[i], reason(at_good, at_bad, bad - good));
      good = bad;
      if (good == names.size()) break;
      if (is_spent()) {
        for (; good < names.size(); ++good)
          kept.emplace_back(names[good], "the tensors before it already change an output by as much as is allowed");
        break;
      }
      known = cost(kept).difference;
    }
    return kept;
  }

  // Names that alone, all others as they were, cost more than the bound; `all` together cost `known`.
  KeptTensors find_alone(const std::vector<std::string> &all, double known) {
    KeptTensors kept;
    struct Group {
      size_t begin, end;
      double cost;  // of its tensors together; beyond the bound
    };
    std::vector<Group> groups = {{0, all.size(), known}};
    while (!groups.empty()) {
      const Group g = groups.back();
      groups.pop_back();
      if (g.end - g.begin == 1 || is_spent()) {
        for (size_t i = g.begin; i < g.end; ++i) kept.emplace_back(all[i], reason(0, g.cost, g.end - g.begin));
        continue;
      }
      const size_t middle = g.begin + (g.end - g.begin) / 2;
      for (const auto &[begin, end] : {std::pair(middle, g.end), std::pair(g.begin, middle)}) {
        const double by = cost(outside(all, begin, end)).difference;
        if (by > trial_.bound) groups.push_back({begin, end, by});
      }
    }
    std::sort(kept.begin(), kept.end(), [&](const auto &a, const auto &b) {
      const auto at = [&](const auto &t) { return std::find(all.begin(), all.end(), t.first); };
      return at(a) < at(b);
    });
    return kept;
  }

 private:
  bool is_spent() const { return evaluations_ >= trial_.evaluations || work_ >= trial_.most_work; }
  static KeptTensors outside(const std::vector<std::string> &names, size_t begin, size_t end) {
    KeptTensors kept;
    for (size_t i = 0; i < names.size(); ++i)
      if (i < begin || i >= end) kept.emplace_back(names[i], "not measured yet");
    return kept;
  }
  // All from `narrow` on stay.
  static KeptTensors without_tail(KeptTensors kept, const std::vector<std::string> &names, size_t narrow) {
    for (size_t i = narrow; i < names.size(); ++i) kept.emplace_back(names[i], "not measured yet");
    return kept;
  }
  std::string reason(double without, double with, size_t tensors) const {
    const auto amount = [](double by) {
      return std::isinf(by) ? std::string("to NaN or infinity") : fmt::format("by {:.1e} of its range", by);
    };
    const std::string others = tensors == 1 ? "" : fmt::format(" with {} others", tensors - 1);
    if (trial_.alone)
      return fmt::format("in {}{} it changes an output {} on the samples", trial_.form, others, amount(with));
    return fmt::format("in {}{} it changes an output {} on the samples, without it {}", trial_.form, others,
                       amount(with), amount(without));
  }

  const Program &plain_;
  const LowerNarrow &lower_;
  const std::vector<Sample> &samples_;
  const StorageTrial &trial_;
  int evaluations_ = 0;
  int64_t work_ = 0;
};

}  // namespace

std::string describe(const StorageCost &cost) {
  if (!cost.unmeasured.empty()) return "not measured: " + cost.unmeasured;
  std::string text = std::isinf(cost.difference) ? fmt::format("makes NaN or infinity in '{}'", cost.output)
                     : cost.difference == 0
                         ? "changes no output"
                         : fmt::format("changes outputs by up to {:.1e} of their range", cost.difference);
  if (cost.rows > 0)
    text += fmt::format(", the largest element of {} of {} row{}", cost.moved, cost.rows, cost.rows == 1 ? "" : "s");
  text += " (" + cost.samples + ")";
  for (size_t i = 0; i < cost.kept.size() && i < 3; ++i)
    text += (i == 0 ? "; " + cost.kept_as + " for their cost: " : ", ") + cost.kept[i].first;
  if (cost.kept.size() > 3) text += fmt::format(" and {} more", cost.kept.size() - 3);
  if (cost.bound > 0 && cost.difference > cost.bound) text += fmt::format("; beyond {:.0e}", cost.bound);
  return text;
}

StorageCost measure_storage(const Graph &graph, const std::string &samples_folder, const Program &plain,
                            const LowerNarrow &lower, const StorageTrial &trial) {
  InputSource source;
  source.folder = samples_folder;
  source.seed = kSeed;
  Samples samples = draw_samples(graph, plain, source, trial.most_work);
  if (samples.sets.empty() && samples.too_large) {
    source.smallest = true;
    samples = draw_samples(graph, plain, source, trial.most_work);
  }
  if (samples.sets.empty()) {
    StorageCost nothing;
    nothing.unmeasured = samples.unmeasured;
    return nothing;
  }

  Search search(plain, lower, samples.sets, trial);
  std::vector<std::string> names;
  KeptTensors kept;
  StorageCost cost = search.cost(kept, &names);
  if (cost.difference > trial.bound && !names.empty()) {
    // Weights first: of a product's operands the computed one is to blame.
    const auto is_constant = [&](const std::string &name) {
      return std::any_of(plain.buffers.begin(), plain.buffers.end(),
                         [&](const Buffer &b) { return b.kind == BufferKind::kConstant && b.name == name; });
    };
    if (!trial.alone) std::stable_partition(names.begin(), names.end(), is_constant);
    kept = trial.alone ? search.find_alone(names, cost.difference) : search.find(names, cost.difference);
    cost = search.cost(kept);
  }
  cost.samples = samples.described;
  cost.bound = trial.alone ? 0 : trial.bound;
  cost.kept_as = trial.kept_as;
  cost.kept = std::move(kept);
  return cost;
}

}  // namespace optc
