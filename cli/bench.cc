// optc bench MODEL: how fast is the bundle, and where does the time go?

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "cli/common.h"
#include "driver/bundle.h"
#include "driver/oracle.h"
#include "driver/processor.h"
#include "support/file.h"

namespace optc::cli {
namespace {

struct BenchOptions : CommonOptions {
  int warmup = 3, iterations = 200;
  double duration = 5;
  std::string baseline, slower;
  std::vector<std::string> against, percentiles;
  bool per_node = false;
};

struct Times {
  double median = 0, min = 0, p95 = 0;
  size_t runs = 0;
  std::vector<std::pair<std::string, double>> percentiles;  // "99.9": ms, as they were asked for
};

// The time that `percent` of the runs do not exceed (nearest rank), of sorted times.
double percentile(const std::vector<double> &ms, double percent) {
  const auto rank = static_cast<size_t>(std::ceil(percent / 100 * static_cast<double>(ms.size())));
  return ms[std::min(ms.size() - 1, rank == 0 ? 0 : rank - 1)];
}

Times summarize(std::vector<double> ms, const std::vector<std::string> &asked) {
  Times t;
  t.runs = ms.size();
  if (ms.empty()) return t;
  std::sort(ms.begin(), ms.end());
  t.min = ms.front();
  t.median = ms.size() % 2 ? ms[ms.size() / 2] : 0.5 * (ms[ms.size() / 2 - 1] + ms[ms.size() / 2]);
  t.p95 = percentile(ms, 95);
  for (const std::string &p : asked) t.percentiles.emplace_back(p, percentile(ms, std::strtod(p.c_str(), nullptr)));
  return t;
}

// A number from 0 to 100, with or without a percent sign.
std::optional<double> percent_of(std::string text) {
  if (!text.empty() && text.back() == '%') text.pop_back();
  char *end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != 0 || !(value >= 0 && value <= 1e6)) return std::nullopt;
  return value;
}

// What a time is of: two times can be compared where all of it is the same.
nlohmann::ordered_json setting(const BenchOptions &o, const SizeByName &dims, bool gpu, const std::string &model_hash) {
  const std::string precision = o.weights.empty() ? o.precision : o.precision + ", weights " + o.weights;
  return {{"model_hash", model_hash},
          {"device", gpu ? "gpu" : "cpu"},
          {"threads", o.threads},
          {"precision", precision},
          {"dims", dims}};
}

// An earlier `bench --format=json`: its median, once it is known to be of the same setting.
Result<double> baseline_median(const std::string &path, const nlohmann::ordered_json &now, Diagnostics &diagnostics) {
  OPTC_ASSIGN(const auto file, MappedFile::open(path, diagnostics));
  const auto then = nlohmann::ordered_json::parse(file->data(), file->data() + file->size(), nullptr, false);
  if (!then.is_object() || !then.contains("median_ms") || !then["median_ms"].is_number() || then["median_ms"] <= 0 ||
      !then.contains("setting"))
    return diagnostics.error(ErrorKind::kUsage, path + " is no result of optc bench", {},
                             "`optc bench MODEL --format=json > " + path + "` makes one");
  for (const auto &[key, value] : now.items())
    if (!then["setting"].contains(key) || then["setting"][key] != value)
      return diagnostics.error(
          ErrorKind::kUsage,
          fmt::format("{} was measured with another {}: {}, here {}", path, key == "model_hash" ? "model" : key,
                      then["setting"].contains(key) ? then["setting"][key].dump() : "none", value.dump()),
          {}, "measure it anew, or with the same options");
  return then["median_ms"].get<double>();
}

// What a kernel does in a run with these sizes; negative: it depends on what the run finds.
struct Work {
  double bytes = -1, operations = -1;
};

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
  }
  return work;
}

// "12.3", in 10^9 a second; empty where it is not known or nothing.
std::string rate(double amount, double us) {
  return amount > 0 && us > 0 ? fmt::format("{:.3g}", amount / us / 1000) : std::string();
}

nlohmann::ordered_json to_json(const Times &t) {
  nlohmann::ordered_json json = {{"median_ms", t.median}, {"min_ms", t.min}, {"p95_ms", t.p95}, {"runs", t.runs}};
  for (const auto &[percent, ms] : t.percentiles) json["percentiles_ms"][percent] = ms;
  return json;
}

Status bench(const BenchOptions &o, Diagnostics &diagnostics) {
  if (!o.slower.empty() && o.baseline.empty())
    return diagnostics.error(ErrorKind::kUsage, "--fail-if-slower needs --baseline FILE", {},
                             "FILE is an earlier `optc bench --format=json`");
  const std::unique_ptr<Listener> listener = make_listener(o);
  OPTC_ASSIGN(Prepared prepared, prepare(o, *listener, diagnostics));
  const Graph &model = prepared.model;
  if (!prepared.options.variants.empty() && prepared.inputs.made()) {  // the first variant is what is measured
    OPTC_ASSIGN(prepared.inputs, variant_inputs(o, prepared, prepared.options.variants[0], diagnostics));
  }
  OPTC_ASSIGN(const BuiltBundle built, build_model(o.model, prepared.options, *listener, diagnostics));
  BundleRunOptions run_options;
  run_options.threads = o.threads;
  run_options.cuda = has_gpu_half(built.folder);
  run_options.weights_path = built.folder + "/" + built.name + ".weights";
  OPTC_ASSIGN(const auto bundle, Bundle::load(built.library, built.name, run_options, diagnostics));
  const auto once = [&](const InputSet &tried, Diagnostics &said) -> Status {
    OPTC_TRY(bundle->run(tried.values, said));
    return {};
  };
  OPTC_ASSIGN(const InputSet set, prepared.inputs.fitting(model, 0, once, diagnostics));
  report_inputs(set, o);
  const std::vector<RuntimeValue> &inputs = set.values;
  const SizeByName &chosen = set.sizes;
  listener->begin("measure");
  OPTC_ASSIGN(const auto milliseconds, bundle->time(inputs, o.warmup, o.iterations, o.duration, diagnostics));
  const Times own = summarize(milliseconds, o.percentiles);
  std::string dims;
  for (const auto &[name, value] : chosen) dims += fmt::format(" {}={}", name, value);
  nlohmann::ordered_json json = {{"schema_version", 1},
                                 {"model", o.model},
                                 {"device", run_options.cuda ? "gpu" : "cpu"},
                                 {"threads", o.threads},
                                 {"dims", chosen},
                                 {"processor", processor_name()},
                                 {"cores", std::thread::hardware_concurrency()}};
  json.update(to_json(own));
  OPTC_ASSIGN(const auto model_file, MappedFile::open(o.model, diagnostics));
  json["setting"] = setting(o, chosen, run_options.cuda, xxh3_128(model_file->data(), model_file->size()));
  const std::string where = run_options.cuda ? "GPU" : fmt::format("{} thread{}", o.threads, o.threads == 1 ? "" : "s");
  std::string text = fmt::format("{}{}  {}   {:.3f} ms median (min {:.3f}, p95 {:.3f}, {} runs)", built.name, dims,
                                 where, own.median, own.min, own.p95, own.runs);
  for (const auto &[percent, ms] : own.percentiles) text += fmt::format("   p{} {:.3f}", percent, ms);
  double change = 0;
  if (!o.baseline.empty()) {
    OPTC_ASSIGN(const double then, baseline_median(o.baseline, json["setting"], diagnostics));
    change = 100 * (own.median / then - 1);
    json["baseline"] = {{"median_ms", then}, {"change_percent", change}};
    text += fmt::format("   baseline {:.3f} ({:+.1f} %)", then, change);
  }
  for (const std::string &name : o.against) {
    OracleOptions oracle;
    oracle.runtime = name == "openvino" ? Runtime::kOpenVino : Runtime::kOnnxRuntime;
    oracle.precision = o.precision;
    oracle.optimize = true;
    oracle.threads = o.threads;
    oracle.iterations = o.iterations;
    oracle.seconds = o.duration;
    OPTC_ASSIGN(const OracleResult rival, run_oracle(prepared.file, model, inputs, oracle, diagnostics));
    const Times theirs = summarize(rival.milliseconds, o.percentiles);
    const double ratio = theirs.median / own.median;
    const char *key = name == "openvino" ? "openvino" : "onnxruntime";
    json["against"][key] = to_json(theirs);
    json["against"][key]["version"] = rival.version;
    json["speedup"] = json.contains("speedup") ? std::min(json["speedup"].get<double>(), ratio) : ratio;
    text += fmt::format("   {} {:.3f} ({:.2f}×)", to_string(oracle.runtime), theirs.median, ratio);
  }
  if (o.per_node) {
    OPTC_ASSIGN(const std::string profile,
                bundle->profile(inputs, std::max(3, std::min(o.iterations, 20)), diagnostics));
    const nlohmann::json kernels = nlohmann::json::parse(profile, nullptr, false);
    if (!kernels.is_array()) return diagnostics.error(ErrorKind::kUnsupported, "the bundle gives no profile by kernel");
    const nlohmann::json manifest = nlohmann::json::parse(bundle->manifest(), nullptr, false);
    std::map<std::pair<std::string, std::string>, std::string> notes;  // by variant and name
    const auto add_notes = [&](const nlohmann::json &entry, const std::string &variant) {
      if (!entry.is_object() || !entry.contains("kernels")) return;
      for (const auto &k : entry["kernels"])
        notes[{variant, k.value("name", std::string())}] = k.value("note", std::string());
    };
    add_notes(manifest, "");
    if (manifest.is_object() && manifest.contains("variants"))
      for (const auto &entry : manifest["variants"]) add_notes(entry, entry.value("name", std::string()));
    OPTC_ASSIGN(const auto work, work_of_kernels(model, prepared.options, inputs, *listener, diagnostics));
    struct Row {
      double us;
      std::string name, operations, bytes;
    };
    std::vector<Row> rows;
    double total = 0;
    json["kernels"] = nlohmann::ordered_json::array();
    for (const auto &k : kernels) {
      const double us = k.value("ns", 0.0) / std::max(1.0, k.value("calls", 1.0)) / 1000;
      const std::string name = k.value("kernel", std::string()), variant = k.value("variant", std::string());
      if (!prepared.options.variants.empty() && k.value("calls", 0.0) == 0) continue;  // of another entry
      const auto known = variant.empty() ? work.find(name) : work.end();  // what was counted is the general Program's
      const Work w = known == work.end() ? Work() : known->second;
      const std::string &note = notes[{variant, name}];
      json["kernels"].push_back(
          {{"name", name},
           {"us", us},
           {"note", note},
           {"bytes", w.bytes < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(w.bytes)},
           {"flops", w.operations < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(w.operations)}});
      rows.push_back({us, note.empty() ? name : name + "  " + note, rate(w.operations, us), rate(w.bytes, us)});
      total += us;
    }
    std::stable_sort(rows.begin(), rows.end(), [](const Row &a, const Row &b) { return a.us > b.us; });
    text += "\n        µs      %  GFLOP/s   GB/s  kernel";
    for (const Row &row : rows)
      text += fmt::format("\n{:>10.1f}  {:>5.1f}  {:>7}  {:>5}  {}", row.us, 100 * row.us / std::max(total, 1e-9),
                          row.operations, row.bytes, row.name);
  }
  print(o.format == "json" ? json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n"
                           : text + "\n");
  if (!o.slower.empty() && change > *percent_of(o.slower))
    return diagnostics.error(ErrorKind::kMismatch, fmt::format("{:.1f} % slower than {}", change, o.baseline));
  return {};
}

}  // namespace

void add_bench(CommandLine &line, int &code) {
  auto o = std::make_shared<BenchOptions>();
  Verb *verb = line.add_verb("bench", "measure the bundle's time");
  verb->footer("Example: optc bench model.onnx --threads 2 --per-node --against ort");
  add_model(*verb, *o);
  verb->add_option("--warmup", o->warmup, "runs before measuring (default 3)")->type_name("N");
  verb->add_option("--iters", o->iterations, "most runs that are measured (default 200)")->type_name("N");
  verb->add_option("--duration", o->duration, "seconds after which measuring stops (default 5)")->type_name("SECONDS");
  verb->add_option("--against", o->against,
                   "also time ONNX Runtime with its optimizations on (ort), or OpenVINO on the CPU at the same "
                   "precision, one stream (repeatable)")
      ->delimiter(',')
      ->one_of({"ort", "openvino"})
      ->type_name("RIVAL");
  verb->add_option("--percentile", o->percentiles, "also the time that P % of the runs do not exceed (repeatable)")
      ->delimiter(',')
      ->check([](const std::string &text) {
        const auto value = percent_of(text);
        return value && *value > 0 && *value <= 100 && text.back() != '%' ? "" : "expected a number above 0, to 100";
      })
      ->type_name("P");
  verb->add_option("--baseline", o->baseline, "compare the median with that of an earlier `bench --format=json`")
      ->type_name("FILE");
  verb->add_option("--fail-if-slower", o->slower, "exit with 1 when the median is more than P % above the baseline's")
      ->check([](const std::string &text) { return percent_of(text) ? "" : "expected a percentage, as 5%"; })
      ->type_name("P%");
  verb->add_flag("--per-node", o->per_node, "time by kernel, with the operations and the bytes moved a second");
  add_run_options(*verb, *o);
  add_shape_options(*verb, *o);
  add_compile_options(*verb, *o);
  add_output_options(*verb, *o);
  on_parsed(*verb, o, code, [o](Diagnostics &diagnostics) { return bench(*o, diagnostics); });
}

}  // namespace optc::cli
