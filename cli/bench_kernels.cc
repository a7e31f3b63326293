#include "cli/bench_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "cli/internal_json.h"
#include "driver/machine_peak.h"

namespace optc::cli {
namespace {

// What computes a kernel: whose peak is above it. kInteger: integers in lanes, whose peak is not measured.
enum class Unit : uint8_t { kFloat32, kFloat64, kBytes, kInteger };
constexpr std::string_view kUnits[] = {"f32", "f64", "int8", ""};

// What a kernel does in a run with these sizes; negative: it depends on what the run finds.
struct Work {
  double bytes = -1, operations = -1;
  Unit unit = Unit::kFloat32;
};

// Of the products or sums of a kernel, where it has any, else of what it stores.
Unit unit_of(const Program &program, const Kernel &kernel) {
  const auto bytes = [&](BufferId b) { return b.valid() && bit_width(program.buffer(b).element()) == 8; };
  if (const auto *gemm = std::get_if<GemmSchedule>(&kernel.schedule); gemm && bytes(gemm->view.a.buffer))
    return Unit::kBytes;
  if (const auto *conv = std::get_if<ConvolutionIntegerSchedule>(&kernel.schedule))
    return conv->depthwise ? Unit::kInteger : Unit::kBytes;
  const LoopNest *nest = kernel.nest();
  bool floats = false;
  for (const Stage &stage : nest ? nest->stages : std::vector<Stage>())
    for (const StageOutput &o : stage.outputs) {
      const ElementType type = program.scalars.at(o.value).type;
      if (type == ElementType::kFloat64) return Unit::kFloat64;
      floats = floats || is_float(type);
    }
  return floats || !nest ? Unit::kFloat32 : Unit::kInteger;
}

// By kernel name. Costs are expressions of the dims: the same lowering as the bundle's gives them.
Result<std::map<std::string, Work>> work_of_kernels(const Graph &model, const CompileOptions &options,
                                                    const std::vector<RuntimeValue> &inputs, Listener &listener,
                                                    Diagnostics &diagnostics) {
  OPTC_ASSIGN(const Optimized optimized, optimize_model(model.clone(), options, listener, diagnostics));
  OPTC_ASSIGN(const Program program, lower_model(optimized.graph, options, listener, diagnostics));
  std::map<const DimSymbol *, int64_t> sizes;
  for (const SymbolSource &source : program.sources)
    if (source.input < inputs.size() && inputs[source.input].kind == RuntimeValue::Kind::kTensor)
      sizes[source.symbol] = inputs[source.input].tensor.dims()[source.axis];
  const DimValues values = [&sizes](const DimSymbol &symbol) -> std::optional<int64_t> {
    const auto at = sizes.find(&symbol);
    if (at == sizes.end()) return std::nullopt;
    return at->second;
  };
  std::map<std::string, Work> work;
  for (const Kernel &kernel : program.kernels) {
    const auto read = evaluate(kernel.cost.bytes_read, values), written = evaluate(kernel.cost.bytes_written, values),
               operations = evaluate(kernel.cost.flops, values);
    Work &w = work[kernel.name];
    if (read && written) w.bytes = static_cast<double>(*read) + static_cast<double>(*written);
    if (operations) w.operations = static_cast<double>(*operations);
    w.unit = unit_of(program, kernel);
  }
  return work;
}

// "12.3", in 10^9 a second; empty where it is not known or nothing.
std::string rate(double amount, double us) {
  return amount > 0 && us > 0 ? fmt::format("{:.3g}", amount / us / 1000) : std::string();
}

nlohmann::ordered_json known(double number) {
  return number < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(number);
}

struct Row {
  std::string name, note, strategy;
  double us = 0;
  Work work;
  double limit = -1;       // µs that the machine would need at least; negative: not known
  bool by_memory = false;  // which line of the roof is above it
  double share() const { return limit >= 0 && us > 0 ? limit / us : -1; }
};

// Operations a second of a unit at most; 0: not measured, so that the memory alone is above its kernels.
double peak_of(Unit unit, const MachinePeak &peak) {
  switch (unit) {
    case Unit::kFloat32:
      return peak.flops;
    case Unit::kFloat64:
      return peak.double_flops;
    case Unit::kBytes:
      return peak.byte_operations;
    case Unit::kInteger:
      return 0;
  }
  return 0;
}

void set_limit(Row &row, const MachinePeak &peak) {
  if (row.work.bytes < 0 || row.work.operations < 0) return;
  const double memory = row.work.bytes > 0 ? 1e6 * row.work.bytes / peak.bandwidth_of(row.work.bytes) : 0;
  const double rate = peak_of(row.work.unit, peak);
  const double compute = rate > 0 ? 1e6 * row.work.operations / rate : 0;
  row.limit = std::max(memory, compute);
  row.by_memory = memory >= compute;
}

// Notes and strategies by variant and name.
struct Described {
  std::map<std::pair<std::string, std::string>, std::pair<std::string, std::string>> of;
  explicit Described(const nlohmann::json &manifest) {
    add(manifest, "");
    if (manifest.is_object() && manifest.contains("variants"))
      for (const auto &entry : manifest["variants"]) add(entry, entry.value("name", std::string()));
  }
  void add(const nlohmann::json &entry, const std::string &variant) {
    if (!entry.is_object() || !entry.contains("kernels")) return;
    for (const auto &k : entry["kernels"])
      of[{variant, k.value("name", std::string())}] = {k.value("note", std::string()),
                                                       k.value("strategy", std::string("loops"))};
  }
};

std::string percent(double share) { return share < 0 ? "" : fmt::format("{:.0f}", 100 * share); }

std::string roof_table(const std::vector<Row> &rows, double total) {
  std::string text = "\n        µs      %  GFLOP/s   GB/s  limit µs  of it %  by       kernel";
  for (const Row &row : rows)
    text += fmt::format(
        "\n{:>10.1f}  {:>5.1f}  {:>7}  {:>5}  {:>8}  {:>7}  {:<7}  {}", row.us, 100 * row.us / total,
        rate(row.work.operations, row.us), rate(row.work.bytes, row.us),
        row.limit < 0 ? "" : fmt::format("{:.3g}", row.limit), percent(row.share()),
        row.limit < 0 ? std::string_view() : (row.by_memory ? "memory" : kUnits[static_cast<size_t>(row.work.unit)]),
        row.name);
  return text;
}

std::string plain_table(const std::vector<Row> &rows, double total) {
  std::string text = "\n        µs      %  GFLOP/s   GB/s  kernel";
  for (const Row &row : rows)
    text += fmt::format("\n{:>10.1f}  {:>5.1f}  {:>7}  {:>5}  {}", row.us, 100 * row.us / total,
                        rate(row.work.operations, row.us), rate(row.work.bytes, row.us),
                        row.note.empty() ? row.name : row.name + "  " + row.note);
  return text;
}

struct Sum {
  size_t kernels = 0;
  double us = 0, limit = 0, us_of_limit = 0;  // the last: of the kernels whose limit is known
  double share() const { return us_of_limit > 0 ? limit / us_of_limit : -1; }
};

void add_strategies(const std::vector<Row> &rows, double total, KernelTimes &times, nlohmann::ordered_json &json) {
  std::map<std::string, Sum> sums;
  for (const Row &row : rows) {
    Sum &sum = sums[row.strategy];
    ++sum.kernels;
    sum.us += row.us;
    if (row.limit < 0) continue;
    sum.limit += row.limit;
    sum.us_of_limit += row.us;
  }
  std::vector<std::pair<std::string, Sum>> list(sums.begin(), sums.end());
  std::stable_sort(list.begin(), list.end(), [](const auto &a, const auto &b) { return a.second.us > b.second.us; });
  times.text += "\n        µs      %  kernels  of limit %  strategy";
  json["strategies"] = nlohmann::ordered_json::array();
  for (const auto &[name, sum] : list) {
    times.text += fmt::format("\n{:>10.1f}  {:>5.1f}  {:>7}  {:>10}  {}", sum.us, 100 * sum.us / total, sum.kernels,
                              percent(sum.share()), name);
    json["strategies"].push_back(
        {{"strategy", name}, {"kernels", sum.kernels}, {"us", sum.us}, {"share_of_limit", known(sum.share())}});
  }
}

// Of f64 and of 8-bit integers only where a kernel computes in them.
void add_peak(const MachinePeak &peak, const std::vector<Row> &rows, int threads, KernelTimes &times,
              nlohmann::ordered_json &json) {
  const auto used = [&](Unit unit) {
    return std::any_of(rows.begin(), rows.end(), [&](const Row &row) { return row.work.unit == unit; });
  };
  nlohmann::ordered_json bandwidth = nlohmann::ordered_json::array();
  times.text +=
      fmt::format("\npeak of {} thread{}: {:.0f} GFLOP/s in f32", threads, threads == 1 ? "" : "s", peak.flops / 1e9);
  if (used(Unit::kFloat64)) times.text += fmt::format(", {:.0f} in f64", peak.double_flops / 1e9);
  if (used(Unit::kBytes) && peak.byte_operations > 0)
    times.text += fmt::format(", {:.0f} in int8 ({})", peak.byte_operations / 1e9, peak.byte_unit);
  times.text += "\nGB/s read:";
  for (const auto &[bytes, bytes_a_second] : peak.bandwidth) {
    bandwidth.push_back({{"bytes", bytes}, {"bytes_per_second", bytes_a_second}});
    const int64_t kib = static_cast<int64_t>(bytes) >> 10;
    times.text += fmt::format("{} {:.0f} of {} {}", bytes == peak.bandwidth.front().first ? "" : ",",
                              bytes_a_second / 1e9, kib < 1024 ? kib : kib >> 10, kib < 1024 ? "KiB" : "MiB");
  }
  json["roofline"] = {{"threads", threads},
                      {"flops_per_second", peak.flops},
                      {"f64_flops_per_second", peak.double_flops},
                      {"int8_operations_per_second", peak.byte_operations},
                      {"int8_unit", peak.byte_unit},
                      {"bandwidth", bandwidth}};
}

}  // namespace

Result<KernelTimes> time_kernels(Bundle &bundle, const Prepared &prepared, const std::vector<RuntimeValue> &inputs,
                                 int iterations, int threads, bool roofline, Listener &listener,
                                 Diagnostics &diagnostics) {
  OPTC_ASSIGN(const std::string profile, bundle.profile(inputs, iterations, diagnostics));
  const nlohmann::json kernels = nlohmann::json::parse(profile, nullptr, false);
  if (!kernels.is_array()) return diagnostics.error(ErrorKind::kUnsupported, "the bundle gives no profile by kernel");
  const Described described(nlohmann::json::parse(bundle.manifest(), nullptr, false));
  OPTC_ASSIGN(const auto work, work_of_kernels(prepared.model, prepared.options, inputs, listener, diagnostics));
  const MachinePeak peak = roofline ? measure_peak(threads) : MachinePeak();
  std::vector<Row> rows;
  double total = 1e-9;
  for (const auto &k : kernels) {
    if (!prepared.options.variants.empty() && k.value("calls", 0.0) == 0) continue;  // of another entry
    Row row;
    row.name = k.value("kernel", std::string());
    row.us = k.value("ns", 0.0) / std::max(1.0, k.value("calls", 1.0)) / 1000;
    const std::string variant = k.value("variant", std::string());
    if (const auto at = described.of.find({variant, row.name}); at != described.of.end())
      std::tie(row.note, row.strategy) = at->second;
    const auto counted = variant.empty() ? work.find(row.name) : work.end();  // the general Program's
    if (counted != work.end()) row.work = counted->second;
    if (roofline) set_limit(row, peak);
    total += row.us;
    rows.push_back(std::move(row));
  }
  KernelTimes times;
  nlohmann::ordered_json json;
  json["kernels"] = nlohmann::ordered_json::array();
  for (const Row &row : rows) {
    nlohmann::ordered_json one = {{"name", row.name},
                                  {"us", row.us},
                                  {"note", row.note},
                                  {"strategy", row.strategy},
                                  {"bytes", known(row.work.bytes)},
                                  {"flops", known(row.work.operations)}};
    if (roofline) {
      one["limit_us"] = known(row.limit);
      one["share_of_limit"] = known(row.share());
      one["unit"] = kUnits[static_cast<size_t>(row.work.unit)];
      one["limited_by"] = row.limit < 0 ? "" : row.by_memory ? "memory" : "compute";
    }
    json["kernels"].push_back(std::move(one));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row &a, const Row &b) { return a.us > b.us; });
  times.text = roofline ? roof_table(rows, total) : plain_table(rows, total);
  if (roofline) {
    add_strategies(rows, total, times, json);
    add_peak(peak, rows, threads, times, json);
  }
  times.json = json_text(json);
  return times;
}

}  // namespace optc::cli
