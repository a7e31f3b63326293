#include "driver/value_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "convert/convert.h"
#include "driver/bisect.h"
#include "driver/oracle.h"
#include "driver/places.h"
#include "driver/step.h"
#include "driver/tensor_file.h"
#include "driver/tolerance.h"
#include "importer/importer.h"

namespace optc {
namespace {

constexpr int64_t kBytesAtOnce = int64_t{1} << 30;      // of values that are asked together
constexpr int64_t kBytesOfUnknown = int64_t{16} << 20;  // taken for a value whose size only a run decides
constexpr int kDraws = 2;                               // of weights changed in their last bits

// The steps of the parts are one step to the listener.
class ProgressOnly : public Listener {
 public:
  explicit ProgressOnly(Listener &to) : to_(to) {}
  void begin(std::string_view) override {}
  void progress(int64_t done, int64_t total) override { to_.progress(done, total); }
  void end(std::string_view, const std::string &, double) override {}

 private:
  Listener &to_;
};

struct Surviving {
  ValueId before, after;  // in the imported model; in the optimized one
};

// The tensors that the model's nodes make, in their order.
std::vector<ValueId> values_of(const Graph &model, size_t &not_compared) {
  std::vector<ValueId> values;
  for (const NodeId id : model.nodes(Graph::main()))
    for (const ValueId v : model.node(id).outputs) {
      if (!v.valid()) continue;
      const Type &type = model.value(v).type;
      if (type.is_tensor() && has_numpy_type(type.element))
        values.push_back(v);
      else
        ++not_compared;
    }
  return values;
}

// What some nodes make for others than themselves; nodes that were erased still know what they read and made.
std::vector<ValueId> made_for_others(const Graph &graph, const std::vector<NodeStamp> &nodes) {
  std::unordered_set<uint32_t> read;
  for (const NodeStamp &stamp : nodes)
    for (const ValueId v : graph.node(stamp.id).inputs)
      if (v.valid()) read.insert(v.index);
  std::vector<ValueId> made;
  for (const NodeStamp &stamp : nodes)
    for (const ValueId v : graph.node(stamp.id).outputs)
      if (v.valid() && !read.count(v.index) && std::find(made.begin(), made.end(), v) == made.end()) made.push_back(v);
  return made;
}

// Which value of the optimized Graph stands for each of the model's. Where nodes that made one value became nodes that
// make one, that one stands for it. A node that took over the meaning of a value behind it (a convolution with what was
// normalized after it) no longer makes what its own output was.
std::vector<Surviving> surviving(const std::vector<ValueId> &values, const Optimized &optimized) {
  const Graph &graph = optimized.graph;
  std::unordered_map<uint32_t, std::vector<ValueId>> standing;  // by value: those of the model that it stands for
  for (const ValueId v : values) standing[v.index] = {v};
  for (const RewriteRecord &record : optimized.records) {
    size_t kept = 0;  // nodes that were changed and stay
    for (const NodeStamp &was : record.removed)
      for (const NodeStamp &is : record.created) kept += was.id == is.id;
    if (kept == record.removed.size() && kept == record.created.size()) continue;  // each makes what it made
    const std::vector<ValueId> from = made_for_others(graph, record.removed),
                               to = made_for_others(graph, record.created);
    std::vector<ValueId> moved;
    if (from.size() == 1 && to.size() == 1) moved = standing[from[0].index];
    for (const std::vector<NodeStamp> *nodes : {&record.removed, &record.created})
      for (const NodeStamp &stamp : *nodes)
        for (const ValueId v : graph.node(stamp.id).outputs)
          if (v.valid()) standing.erase(v.index);
    if (!moved.empty()) standing[to[0].index] = moved;
  }
  std::unordered_map<uint32_t, ValueId> after;
  for (const auto &[to, from] : standing)
    for (const ValueId v : from) after[v.index] = ValueId(size_t{to});
  std::vector<Surviving> list;
  for (const ValueId v : values)
    if (const auto found = after.find(v.index); found != after.end()) {
      const Value &value = graph.value(found->second);
      const bool inside = value.kind == ValueKind::kNodeOutput && graph.node(value.producer).region != Graph::main();
      if (value.alive && !inside && value.type.element == graph.value(v).type.element)
        list.push_back({v, found->second});
    }
  return list;
}

// The bytes of each for these inputs.
std::vector<int64_t> bytes_of(const Graph &model, const std::vector<Surviving> &values,
                              const std::vector<RuntimeValue> &inputs) {
  std::map<const DimSymbol *, int64_t> sizes;
  const std::vector<ValueId> &ids = model.region(Graph::main()).inputs;
  for (size_t i = 0; i < ids.size() && i < inputs.size(); ++i) {
    const Type &type = model.value(ids[i]).type;
    if (inputs[i].kind != RuntimeValue::Kind::kTensor || !type.has_shape()) continue;
    for (size_t k = 0; k < type.shape->size() && k < inputs[i].tensor.dims().size(); ++k)
      if (const DimSymbol *symbol = single_symbol((*type.shape)[k])) sizes[symbol] = inputs[i].tensor.dims()[k];
  }
  const DimValues known = [&](const DimSymbol &symbol) -> std::optional<int64_t> {
    const auto at = sizes.find(&symbol);
    return at == sizes.end() ? std::nullopt : std::optional<int64_t>(at->second);
  };
  std::vector<int64_t> all;
  for (const Surviving &s : values) {
    const Type &type = model.value(s.before).type;
    double bytes = type.has_shape() ? bit_width(type.element) / 8.0 : static_cast<double>(kBytesOfUnknown);
    for (const Dim d : type.has_shape() ? *type.shape : Shape()) {
      const std::optional<int64_t> size = evaluate(d, known);
      bytes *= size ? static_cast<double>(*size) : 1;
      if (!size) bytes = std::max(bytes, static_cast<double>(kBytesOfUnknown));
    }
    all.push_back(static_cast<int64_t>(std::min(bytes, static_cast<double>(kBytesAtOnce))));
  }
  return all;
}

// What the evaluator computes of these values, parallel to `part`.
Result<std::vector<RuntimeValue>> evaluated(const Optimized &optimized, const std::vector<Surviving> &part,
                                            const std::vector<RuntimeValue> &inputs, const CompileOptions &options,
                                            Listener &listener, Diagnostics &diagnostics) {
  Graph shown = optimized.graph.clone();
  std::vector<ValueId> outputs = shown.region(Graph::main()).outputs;
  std::vector<size_t> place;
  for (const Surviving &s : part) {
    if (shown.is_constant(s.after)) {
      place.push_back(SIZE_MAX);
      continue;
    }
    const auto known = std::find(outputs.begin(), outputs.end(), s.after);
    place.push_back(static_cast<size_t>(known - outputs.begin()));
    if (known == outputs.end()) outputs.push_back(s.after);
  }
  shown.set_outputs(Graph::main(), outputs);
  OPTC_ASSIGN(const Program program, lower_model(shown, options, listener, diagnostics, has_gpu_target(options)));
  EvaluateOptions evaluate_options;
  evaluate_options.as_lowered = true;
  evaluate_options.max_bytes = memory_bytes();
  evaluate_options.progress = [&](int64_t done, int64_t total) { listener.progress(done, total); };
  OPTC_ASSIGN(const std::vector<RuntimeValue> made, evaluate(program, inputs, evaluate_options, diagnostics));
  std::vector<RuntimeValue> values;
  for (size_t i = 0; i < part.size(); ++i)
    values.push_back(place[i] == SIZE_MAX ? RuntimeValue::of(*shown.constant(part[i].after)) : made[place[i]]);
  return values;
}

std::vector<std::string> names_of(const Graph &model, const std::vector<Surviving> &part) {
  std::vector<std::string> names;
  for (const Surviving &s : part) names.push_back(model.value(s.before).name);
  return names;
}

// The findings of one part.
Status compare_part(const std::string &path, const Graph &model, const std::vector<RuntimeValue> &inputs,
                    const Optimized &optimized, const std::vector<Surviving> &part,
                    const std::vector<Tolerance> &tolerances, const CompileOptions &options, Listener &listener,
                    ValueReport &report, Diagnostics &diagnostics) {
  OracleOptions ask;
  ask.values = names_of(model, part);
  OPTC_ASSIGN(const OracleResult expected, run_oracle(path, model, inputs, ask, diagnostics));
  report.reference = "ONNX Runtime " + expected.version;
  OPTC_ASSIGN(const std::vector<RuntimeValue> actual,
              evaluated(optimized, part, inputs, options, listener, diagnostics));
  const size_t first = report.values.size();
  std::vector<Tolerance> used;
  bool all_right = true;
  for (size_t i = 0; i < part.size(); ++i) {
    const auto answer = expected.values.find(ask.values[i]);
    if (answer == expected.values.end()) {
      ++report.not_compared;
      continue;
    }
    const Node &node = model.node(model.value(part[i].before).producer);
    used.push_back(tolerances[part[i].before.index]);
    report.values.push_back(
        {ask.values[i], node.name, node.op, compare(actual[i], RuntimeValue::of(answer->second), used.back())});
    all_right = all_right && report.values.back().comparison.ok;
  }
  // What rounding alone decides is no fault: ONNX Runtime itself shows it.
  for (int draw = 0; draw < kDraws && !all_right; ++draw) {
    ask.perturb = draw;
    Diagnostics quiet;
    const Result<OracleResult> other = run_oracle(path, model, inputs, ask, quiet);
    for (size_t i = first; other.ok() && i < report.values.size(); ++i) {
      const std::string &name = report.values[i].value;
      const auto changed = other->values.find(name);
      if (changed == other->values.end()) continue;
      const Comparison c =
          compare(RuntimeValue::of(changed->second), RuntimeValue::of(expected.values.at(name)), used[i - first]);
      // Both are that far from the exact one (sensitivity.cc).
      used[i - first].slack = std::max(used[i - first].slack, 2 * c.max_difference);
      used[i - first].slack_elements = std::max(used[i - first].slack_elements, c.differing);
    }
  }
  size_t at = first;
  for (size_t i = 0; i < part.size() && !all_right; ++i) {
    const auto answer = expected.values.find(ask.values[i]);
    if (answer == expected.values.end()) continue;
    report.values[at].comparison = compare(actual[i], RuntimeValue::of(answer->second), used[at - first]);
    ++at;
  }
  return {};
}

}  // namespace

const ValueFinding *ValueReport::first() const {
  const auto found = std::find_if(values.begin(), values.end(), [](const ValueFinding &f) { return !f.comparison.ok; });
  return found == values.end() ? nullptr : &*found;
}

Result<ValueReport> compare_values(const std::string &path, const Graph &model, const std::vector<RuntimeValue> &inputs,
                                   const CompileOptions &options, const Tolerance &given, ElementType storage,
                                   Listener &listener, Diagnostics &diagnostics) {
  ValueReport report;
  Step step(listener, "per node");
  ProgressOnly quiet(listener);
  OPTC_ASSIGN(const Optimized optimized, optimize_model(model.clone(), options, quiet, diagnostics));
  const std::vector<ValueId> values = values_of(model, report.not_compared);
  const std::vector<Surviving> all = surviving(values, optimized);
  report.removed = values.size() - all.size();
  const std::vector<Tolerance> tolerances = value_tolerances(model, given, storage);
  const std::vector<int64_t> bytes = bytes_of(model, all, inputs);
  for (size_t from = 0; from < all.size();) {
    int64_t sum = bytes[from];
    size_t to = from + 1;
    for (; to < all.size() && sum + bytes[to] <= kBytesAtOnce; ++to) sum += bytes[to];
    OPTC_TRY(compare_part(path, model, inputs, optimized, {all.begin() + from, all.begin() + to}, tolerances, options,
                          quiet, report, diagnostics));
    from = to;
  }
  step.end(fmt::format("{} values", report.values.size()));
  return report;
}

Result<int64_t> write_culprit(const std::string &path, const Graph &model, const std::vector<RuntimeValue> &inputs,
                              const ValueReport &report, const std::string &folder, Diagnostics &diagnostics) {
  const ValueFinding &wrong = *report.first();
  std::unordered_set<std::string> right;
  for (const ValueFinding &f : report.values)
    if (f.comparison.ok) right.insert(f.value);
  // Back from the wrong value to values that are right, and to the model's inputs.
  std::vector<ValueId> pending = {model.find_value(wrong.value)};
  std::set<std::string> ends;
  std::unordered_set<uint32_t> seen;
  while (!pending.empty()) {
    const ValueId v = pending.back();
    pending.pop_back();
    if (!v.valid() || !seen.insert(v.index).second || model.is_constant(v)) continue;
    const Value &value = model.value(v);
    if (value.kind == ValueKind::kRegionInput || right.count(value.name)) {
      ends.insert(value.name);
      continue;
    }
    const Node &node = model.node(value.producer);
    pending.insert(pending.end(), node.inputs.begin(), node.inputs.end());
    for (const auto &[name, body] : node.regions)
      for (const ValueId captured : model.captures(body)) pending.push_back(captured);
  }
  OracleOptions ask;
  ask.values = {ends.begin(), ends.end()};
  ask.values.push_back(wrong.value);
  OPTC_ASSIGN(const OracleResult answers, run_oracle(path, model, inputs, ask, diagnostics));
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return diagnostics.error(ErrorKind::kIo, fmt::format("cannot make {}: {}", folder, error.message()));
  ConvertOptions convert;
  convert.input = path;
  convert.output = folder + "/culprit.onnx";
  convert.extract = fmt::format("{}..{}", fmt::join(ends, ","), wrong.value);
  convert.force = true;
  ConvertFacts facts;
  OPTC_TRY(convert_model(convert, facts, diagnostics));
  OPTC_ASSIGN(const Graph part, read_graph(convert.output, diagnostics));
  const std::vector<ValueId> &own = model.region(Graph::main()).inputs;
  const std::vector<ValueId> &taken = part.region(Graph::main()).inputs;
  for (size_t i = 0; i < taken.size(); ++i) {
    const std::string &name = part.value(taken[i]).name;
    RuntimeValue value;
    if (const auto inside = answers.values.find(name); inside != answers.values.end())
      value = RuntimeValue::of(inside->second);
    for (size_t k = 0; k < own.size() && k < inputs.size(); ++k)
      if (model.value(own[k]).name == name) value = inputs[k];
    if (value.kind == RuntimeValue::Kind::kAbsent) continue;  // one with a default
    const bool numpy = value.kind == RuntimeValue::Kind::kTensor && has_numpy_type(value.tensor.type());
    OPTC_TRY(write_value(fmt::format("{}/input_{}.{}", folder, i, numpy ? "npy" : "pb"), value, diagnostics));
  }
  OPTC_TRY(write_value(folder + "/output_0.npy", RuntimeValue::of(answers.values.at(wrong.value)), diagnostics));
  return facts.nodes;
}

}  // namespace optc
