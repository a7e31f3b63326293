// optc bench MODEL: how fast is the bundle, and where does the time go?

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "cli/bench_kernels.h"
#include "cli/common.h"
#include "cli/internal_json.h"
#include "driver/bundle.h"
#include "driver/doctor.h"
#include "driver/machine_peak.h"
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
  bool per_node = false, roofline = false;
  int streams = 1;
};

struct Times {
  double median = 0, min = 0, p90 = 0, p95 = 0, p99 = 0;
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
  t.p90 = percentile(ms, 90);
  t.p95 = percentile(ms, 95);
  t.p99 = percentile(ms, 99);
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
  return {{"model_hash", model_hash}, {"device", gpu ? "gpu" : "cpu"}, {"threads", o.threads},
          {"streams", o.streams},     {"precision", precision},        {"dims", dims}};
}

// An earlier `bench --format=json`: its median, once it is known to be of the same setting.
Result<double> baseline_median(const std::string &path, const nlohmann::ordered_json &now, Diagnostics &diagnostics) {
  OPTC_ASSIGN(const auto file, MappedFile::open(path, diagnostics));
  auto then = nlohmann::ordered_json::parse(file->data(), file->data() + file->size(), nullptr, false);
  if (!then.is_object() || !then.contains("median_ms") || !then["median_ms"].is_number() || then["median_ms"] <= 0 ||
      !then.contains("setting"))
    return diagnostics.error(ErrorKind::kUsage, path + " is no result of optc bench", {},
                             "`optc bench MODEL --format=json > " + path + "` makes one");
  if (then["setting"].is_object() && !then["setting"].contains("streams")) then["setting"]["streams"] = 1;
  for (const auto &[key, value] : now.items())
    if (!then["setting"].contains(key) || then["setting"][key] != value)
      return diagnostics.error(
          ErrorKind::kUsage,
          fmt::format("{} was measured with another {}: {}, here {}", path, key == "model_hash" ? "model" : key,
                      then["setting"].contains(key) ? then["setting"][key].dump() : "none", value.dump()),
          {}, "measure it anew, or with the same options");
  return then["median_ms"].get<double>();
}

nlohmann::ordered_json to_json(const Times &t) {
  nlohmann::ordered_json json = {{"median_ms", t.median}, {"min_ms", t.min}, {"p90_ms", t.p90},
                                 {"p95_ms", t.p95},       {"p99_ms", t.p99}, {"runs", t.runs}};
  for (const auto &[percent, ms] : t.percentiles) json["percentiles_ms"][percent] = ms;
  return json;
}

// Runs of several contexts at the same time.
struct Streams {
  std::vector<double> milliseconds;  // of each run, of all streams
  double runs_per_second = 0;        // of all together
};
Result<Streams> time_streams(const std::vector<std::unique_ptr<Bundle>> &bundles,
                             const std::vector<RuntimeValue> &inputs, const BenchOptions &o, Diagnostics &diagnostics) {
  struct One {
    std::vector<double> milliseconds;
    Diagnostics said;
    Status status;
  };
  std::vector<One> all(bundles.size());
  const auto run = [&](size_t i) {
    Result<std::vector<double>> times = bundles[i]->time(inputs, o.warmup, o.iterations, o.duration, all[i].said);
    if (times)
      all[i].milliseconds = std::move(*times);
    else
      all[i].status = times.failure();
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < bundles.size(); ++i) others.emplace_back(run, i);
  run(0);
  for (std::thread &t : others) t.join();
  Streams result;
  for (const One &one : all) {
    for (const Diagnostic &d : one.said.all()) (void)diagnostics.add(d);
    if (!one.status.ok()) return one.status.failure();
    double seconds = 0;
    for (const double ms : one.milliseconds) seconds += ms / 1000;
    if (seconds > 0) result.runs_per_second += static_cast<double>(one.milliseconds.size()) / seconds;
    result.milliseconds.insert(result.milliseconds.end(), one.milliseconds.begin(), one.milliseconds.end());
  }
  return result;
}

// 0 threads: those of the machine.
int used_threads(const BenchOptions &o) {
  return o.threads > 0 ? o.threads : static_cast<int>(std::thread::hardware_concurrency());
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
  if (o.roofline && run_options.cuda)
    return diagnostics.error(ErrorKind::kUnsupported, "--roofline: what a GPU can do at most is not measured", {},
                             "without a GPU among the targets it tells of the CPU's kernels; --per-node tells of both");
  std::vector<std::unique_ptr<Bundle>> bundles;  // a context each; weights are mapped once
  for (int i = 0; i < o.streams; ++i) {
    OPTC_ASSIGN(std::unique_ptr<Bundle> one, Bundle::load(built.library, built.name, run_options, diagnostics));
    bundles.push_back(std::move(one));
  }
  const auto once = [&](const InputSet &tried, Diagnostics &said) -> Status {
    OPTC_TRY(bundles.front()->run(tried.values, said));
    return {};
  };
  OPTC_ASSIGN(const InputSet set, prepared.inputs.fitting(model, 0, once, diagnostics));
  report_inputs(set, o);
  const std::vector<RuntimeValue> &inputs = set.values;
  const SizeByName &chosen = set.sizes;
  listener->begin("measure");
  OPTC_ASSIGN(const Streams measured, time_streams(bundles, inputs, o, diagnostics));
  const Times own = summarize(measured.milliseconds, o.percentiles);
  std::string dims;
  for (const auto &[name, value] : chosen) dims += fmt::format(" {}={}", name, value);
  nlohmann::ordered_json json = {{"schema_version", 1},
                                 {"model", o.model},
                                 {"device", run_options.cuda ? "gpu" : "cpu"},
                                 {"threads", o.threads},
                                 {"streams", o.streams},
                                 {"dims", chosen},
                                 {"processor", processor_name()},
                                 {"cores", std::thread::hardware_concurrency()},
                                 {"runs_per_second", measured.runs_per_second}};
  for (const auto &[key, value] : machine_record()) json["machine"][key] = value;
  if (run_options.cuda)
    for (const Finding &card : driver_and_cards()) json["machine"]["gpu"].push_back(card.name + ": " + card.what);
  json.update(to_json(own));
  OPTC_ASSIGN(const auto model_file, MappedFile::open(o.model, diagnostics));
  json["setting"] = setting(o, chosen, run_options.cuda, xxh3_128(model_file->data(), model_file->size()));
  const std::string where = run_options.cuda ? "GPU" : fmt::format("{} thread{}", o.threads, o.threads == 1 ? "" : "s");
  std::string text = fmt::format("{}{}  {}   {:.3f} ms median (min {:.3f}, p90 {:.3f}, p99 {:.3f}, {} runs)",
                                 built.name, dims, where, own.median, own.min, own.p90, own.p99, own.runs);
  if (o.streams > 1) text += fmt::format("   {} streams: {:.4g} runs/s together", o.streams, measured.runs_per_second);
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
  if (o.per_node || o.roofline) {
    OPTC_ASSIGN(const KernelTimes kernels,
                time_kernels(*bundles.front(), prepared, inputs, std::max(3, std::min(o.iterations, 20)),
                             used_threads(o), o.roofline, *listener, diagnostics));
    json.update(nlohmann::ordered_json::parse(kernels.json));
    text += kernels.text;
  }
  print(o.format == "json" ? json_text(json) : text + "\n");
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
  verb->add_flag("--roofline", o->roofline,
                 "by kernel also the least time that its operations and bytes need on this processor, by the peak and "
                 "the bandwidths measured in the same run, and sums by strategy");
  verb->add_option("--streams", o->streams, "contexts that run at the same time, of --threads each (default 1)")
      ->between(1, 256)
      ->type_name("N");
  add_run_options(*verb, *o);
  add_shape_options(*verb, *o);
  add_compile_options(*verb, *o);
  add_step_options(*verb, *o);
  add_output_options(*verb, *o);
  on_parsed(*verb, o, code, [o](Diagnostics &diagnostics) { return bench(*o, diagnostics); });
}

}  // namespace optc::cli
