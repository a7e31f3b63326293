// optc tune MODEL -o FILE: measures how the model's kernels run best on this machine.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/common.h"
#include "driver/tune.h"
#include "ir/program/gpu_machine.h"
#include "support/staging.h"

namespace optc::cli {
namespace {

struct Options : CommonOptions {
  std::string output = "tuning.json";
  double seconds = 20;
};

std::string way_line(const FormTimes &f, size_t w) {
  const FormTimes::Way &way = f.ways[w], &model = f.ways[0];
  std::string line = way.microseconds < 0
                         ? fmt::format("{:>11}  {:>6}  {}", "-", "", way.what)
                         : fmt::format("{:>11.1f}  {:>4.1f} %  {}", way.microseconds, 100 * way.noise, way.what);
  if (w == 0) line += "  (model)";
  if (w == f.chosen && w > 0)
    line += fmt::format("  chosen, {:.2f} of the model's", way.microseconds / model.microseconds);
  return line;
}

std::string table(const TuneReport &report) {
  if (report.forms.empty()) return "";
  std::string text = "         µs   noise  way\n";
  for (const FormTimes &f : report.forms) {
    text += fmt::format("{} kernel{}: {}\n", f.kernels, f.kernels == 1 ? "" : "s", f.note);
    for (size_t w = 0; w < f.ways.size(); ++w) text += way_line(f, w) + "\n";
  }
  return text;
}

std::string verdict(const TuneReport &report) {
  if (report.forms.empty()) return "";
  std::string text =
      fmt::format("{} of {} forms run by another way than the cost model's\n", report.changed, report.forms.size());
  if (report.changed == 0) return text;
  text += fmt::format("the model: {:.3f} ms before, {:.3f} ms after ({:.3f} times as fast; the noise is {:.1f} %)\n",
                      report.before_ms, report.after_ms, report.before_ms / report.after_ms, 100 * report.noise);
  if (std::abs(report.before_ms - report.after_ms) <= report.noise * std::min(report.before_ms, report.after_ms))
    text +=
        "that difference is within the noise: of the whole model nothing is shown (a quieter machine, more "
        "--seconds)\n";
  if (report.dropped) text += "together they made it slower: the cache has the cost model's choices\n";
  return text;
}

std::string json_of(const TuneReport &report, const Options &o) {
  nlohmann::ordered_json forms = nlohmann::ordered_json::array();
  for (const FormTimes &f : report.forms) {
    nlohmann::ordered_json ways = nlohmann::ordered_json::array();
    for (const FormTimes::Way &w : f.ways)
      ways.push_back(
          {{"way", w.what},
           {"microseconds", w.microseconds < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(w.microseconds)},
           {"noise", w.noise}});
    forms.push_back({{"form", f.form},
                     {"note", f.note},
                     {"kernels", f.kernels},
                     {"ways", ways},
                     {"chosen", f.ways[f.chosen].what}});
  }
  const auto measured = [&](double ms) {
    return report.changed ? nlohmann::ordered_json(ms) : nlohmann::ordered_json();
  };
  return nlohmann::ordered_json{{"schema_version", 1},
                                {"model", o.model},
                                {"cache", o.output},
                                {"target", report.cache.target},
                                {"processor", report.cache.processor},
                                {"threads", report.cache.threads},
                                {"rounds", report.rounds},
                                {"forms", forms},
                                {"changed", report.changed},
                                {"before_ms", measured(report.before_ms)},
                                {"after_ms", measured(report.after_ms)},
                                {"noise", measured(report.noise)},
                                {"dropped", report.dropped}}
             .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

Status tune(const Options &o, Diagnostics &diagnostics) {
  if (!o.variants.empty())
    return diagnostics.error(ErrorKind::kUsage, "--variant: one entry is tuned at a time", {},
                             "tune each size by --dim, with --tuning-cache of the one before; the bundle takes all");
  const std::unique_ptr<Listener> listener = make_listener(o);
  OPTC_ASSIGN(Prepared prepared, prepare(o, *listener, diagnostics));
  TuneOptions tune;
  tune.threads = o.threads;
  tune.seconds = o.seconds;
  const std::string target =
      has_gpu_target(prepared.options) ? std::string(machine_of(o.targets).target) : std::string("cpu");
  std::vector<TunedForm> known;
  for (const std::string &path : o.tuning) {
    OPTC_ASSIGN(const TuningCache cache, read_tuning(path, diagnostics));
    if (cache.target != target) continue;
    for (const TunedForm &form : cache.forms)  // of two files that have a form, the first counts (load_tuning)
      if (std::none_of(known.begin(), known.end(), [&](const TunedForm &k) { return k.form == form.form; }))
        known.push_back(form);
  }
  OPTC_ASSIGN(const TuneReport report, tune_model(o.model, prepared.model, prepared.options, known, prepared.inputs,
                                                  tune, *listener, diagnostics));
  OPTC_TRY(write_file(o.output, print(report.cache), diagnostics));
  if (o.format == "json") {
    print(json_of(report, o));
  } else if (!o.quiet) {
    print(table(report) + verdict(report));
    print(fmt::format("wrote {}: {} forms   next: optc {} -o DIR --tuning-cache {}\n", o.output,
                      report.cache.forms.size(), o.model, o.output));
  }
  return {};
}

}  // namespace

void add_tune(CommandLine &line, int &code) {
  auto o = std::make_shared<Options>();
  Verb *verb = line.add_verb("tune", "measure how the model's kernels run best on this machine, for --tuning-cache");
  verb->footer(
      "Example: optc tune model.onnx -o tuning.json --dim N=1; optc model.onnx -o DIR --dim N=1 --tuning-cache "
      "tuning.json");
  add_model(*verb, *o);
  verb->add_option("-o,--output", o->output, "the file to write (default tuning.json)")
      ->type_name("FILE")
      ->check([](const std::string &text) { return text.empty() ? "the file has no name" : ""; });
  verb->add_option("--seconds", o->seconds,
                   "of measuring (default 20); a bundle is built for each way of running a kernel, which comes on top")
      ->not_negative()
      ->type_name("SECONDS");
  add_run_options(*verb, *o);
  add_compile_options(*verb, *o);
  add_shape_options(*verb, *o);
  add_step_options(*verb, *o);
  add_output_options(*verb, *o);
  on_parsed(*verb, o, code, [o](Diagnostics &diagnostics) { return tune(*o, diagnostics); });
}

}  // namespace optc::cli
