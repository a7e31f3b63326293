#include "driver/weight_cost.h"

#include <fmt/format.h>

#include <algorithm>

#include "driver/step.h"

namespace optc {
namespace {

constexpr int kMostEvaluations = 24;

struct Candidate {
  ProductWeight weight;
  std::string name;
  QuantizedWeight quantized;
  std::string kept;  // why it stays; empty: it does not
};

// Whether the name is of the pattern, in which each * stands for any text.
bool fits(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, from = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1, n = ++from;  // the last * takes one letter more
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

Status keep_named(std::vector<Candidate> &candidates, const WeightQuantization &weights, Diagnostics &diagnostics) {
  for (const std::string &pattern : weights.keep) {
    bool any = false;
    for (Candidate &c : candidates) {
      if (c.name != pattern && !fits(pattern, c.name)) continue;
      any = true;
      if (c.kept.empty()) c.kept = "--keep-weights " + pattern;
    }
    if (any || !weights.measure) continue;
    std::string names;
    for (size_t i = 0; i < candidates.size() && i < 8; ++i) names += (i ? ", " : "") + candidates[i].name;
    return diagnostics.error(
        ErrorKind::kUsage, "--keep-weights " + pattern + ": no weight of a product has that name", {},
        candidates.empty()
            ? "the model has none that can be quantized"
            : "they are " + names + (candidates.size() > 8 ? fmt::format(" and {} more", candidates.size() - 8) : ""));
  }
  return {};
}

// Whatever the options are, so that -O0 and --disable-pass do not change which weights stay.
Result<Program> lower_quietly(const Graph &graph) {
  const LoweringOptions lowering;
  LoweringReport report;
  Diagnostics quiet;  // what is wrong with it is said where the model itself is lowered
  return lower(graph, lowering, report, quiet);
}

// All of them that do not stay, in place of the weights. Adds to `activations` the products whose left operand is
// rounded, too.
Status replace_weights(Graph &graph, const std::vector<Candidate> &candidates, const KeptTensors &kept,
                       const WeightFormat &format, int64_t &activations, Diagnostics &diagnostics) {
  for (const Candidate &c : candidates) {
    const bool stays = !c.kept.empty() || std::any_of(kept.begin(), kept.end(),
                                                      [&](const auto &tensor) { return tensor.first == c.name; });
    if (stays) continue;
    if (format.activations) {
      OPTC_ASSIGN(const int64_t products, round_activations(graph, c.weight, format, diagnostics));
      activations += products;
    }
    OPTC_TRY(replace_weight(graph, c.weight, c.quantized, diagnostics));
  }
  return {};
}

StorageCost measure(const Graph &graph, const std::vector<Candidate> &candidates, const CompileOptions &options) {
  StorageCost nothing;
  const Result<Program> plain = lower_quietly(graph);
  if (!plain.ok()) {
    nothing.unmeasured = "the model could not be lowered";
    return nothing;
  }
  StorageTrial trial;
  trial.form = to_string(options.weights.format);
  trial.kept_as = "unquantized";
  trial.bound = bound_of(options.weights.format);
  trial.alone = true;
  trial.evaluations = kMostEvaluations;
  const LowerNarrow narrow = [&](const KeptTensors &kept, std::vector<std::string> &names) -> Result<Program> {
    Graph tried = graph.clone();
    Diagnostics quiet;
    int64_t activations = 0;
    OPTC_TRY(replace_weights(tried, candidates, kept, options.weights.format, activations, quiet));
    for (const Candidate &c : candidates)
      if (c.kept.empty()) names.push_back(c.name);
    return lower_quietly(tried);
  };
  return measure_storage(graph, options.samples, *plain, narrow, trial);
}

int64_t bytes_of(const Candidate &c, const Graph &graph) {
  return static_cast<int64_t>(graph.value(c.weight.value).constant.size());
}

std::string line_of(const Candidate &c, const Constant &weight) {
  if (!c.kept.empty()) return fmt::format("{}: stays {}: {}", c.name, to_string(weight.type()), c.kept);
  return fmt::format("{}: {}x{}, {}{}, {} → {}, rounding is {:.1e} of it", c.name, weight.dims()[0], weight.dims()[1],
                     to_string(c.quantized.codes.type()), c.quantized.zero.valid() ? " with zero points" : "",
                     format_bytes(static_cast<double>(weight.size())),
                     format_bytes(static_cast<double>(c.quantized.bytes())), c.quantized.error);
}

QuantizedWeights what_came(const std::vector<Candidate> &candidates, const Graph &graph, const WeightFormat &format) {
  QuantizedWeights made;
  made.format = to_string(format);
  for (const Candidate &c : candidates) {
    QuantizedWeights::Weight weight{c.name, "", c.kept, bytes_of(c, graph), 0};
    if (c.kept.empty()) {
      weight.stored = to_string(c.quantized.codes.type());
      weight.bytes = c.quantized.bytes();
    }
    made.weights.push_back(std::move(weight));
  }
  return made;
}

}  // namespace

Status quantize_weights(Graph &graph, const CompileOptions &options, Listener &listener, Diagnostics &diagnostics,
                        WeightQuantization *settled) {
  WeightFormat of_weights = options.weights.format;
  of_weights.activations = false;  // which the line says of products
  Step step(listener, to_string(of_weights));
  std::vector<Candidate> candidates;
  for (ProductWeight &weight : find_product_weights(graph)) {
    std::string name = graph.value(weight.value).name, problem = weight.problem;
    candidates.push_back({std::move(weight), std::move(name), {}, std::move(problem)});
  }
  OPTC_TRY(keep_named(candidates, options.weights, diagnostics));
  for (Candidate &c : candidates) {
    if (!c.kept.empty()) continue;
    auto quantized = quantize(graph.value(c.weight.value).constant, c.weight.axis, options.weights.format);
    if (quantized)
      c.quantized = std::move(*quantized);
    else
      c.kept = "an element of it is not finite";
  }
  std::string cost;
  const bool any = std::any_of(candidates.begin(), candidates.end(), [](const Candidate &c) { return c.kept.empty(); });
  if (options.weights.measure && any) {
    const StorageCost measured = measure(graph, candidates, options);
    if (!options.samples.empty() && !measured.unmeasured.empty())
      return diagnostics.error(ErrorKind::kUsage, "--calibrate " + options.samples + ": " + measured.unmeasured, {},
                               "a folder of inputs has input_0.pb or input_0.npy, ..., or NAME.npy");
    cost = describe(measured);
    if (!measured.unmeasured.empty())
      diagnostics.warning(
          fmt::format("what --quantize-weights={} changes was {}", to_string(options.weights.format), cost));
    for (const auto &[name, reason] : measured.kept)
      for (Candidate &c : candidates)
        if (c.name == name) c.kept = reason;
  }
  int64_t before = 0, after = 0, count = 0;
  std::vector<std::string> lines;
  for (const Candidate &c : candidates) {
    before += bytes_of(c, graph);
    after += c.kept.empty() ? c.quantized.bytes() : bytes_of(c, graph);
    count += c.kept.empty();
    lines.push_back(line_of(c, graph.value(c.weight.value).constant));
  }
  QuantizedWeights made = what_came(candidates, graph, options.weights.format);  // while the matrices are there
  made.cost = options.weights.measure ? cost : options.weights.made.cost;
  OPTC_TRY(replace_weights(graph, candidates, {}, options.weights.format, made.activations, diagnostics));
  const int64_t activations = made.activations;
  if (settled) {
    *settled = options.weights;
    settled->measure = false;
    settled->made = std::move(made);
    settled->keep.clear();
    for (const Candidate &c : candidates)
      if (!c.kept.empty()) settled->keep.push_back(c.name);
  }
  step.end(candidates.empty()
               ? fmt::format("no weight of a product has {} elements: nothing to quantize", kLeastQuantized)
               : fmt::format("{} of {} weights of products, {} → {}{}{}", count, candidates.size(),
                             format_bytes(static_cast<double>(before)), format_bytes(static_cast<double>(after)),
                             options.weights.format.activations
                                 ? fmt::format("; activations of {} products in 8 bits", activations)
                                 : "",
                             cost.empty() ? "" : "; " + cost));
  if (listener.wants_details())
    for (const std::string &line : lines) listener.end("", line, 0);
  return {};
}

}  // namespace optc
