#include "driver/tuning_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "driver/processor.h"
#include "ir/program/gpu_machine.h"
#include "support/file.h"

namespace optc {
namespace {

using Json = nlohmann::ordered_json;

// Of a file: what no tuned model comes near.
constexpr size_t kMostBytes = size_t{16} << 20, kMostForms = 50000, kMostText = 400;
constexpr const char *kKind = "optc tuning cache";

double rounded(double value) { return std::round(value * 1000) / 1000; }

// Reads the members of one object; the first thing that is wrong stays in `problem`.
struct Reader {
  const Json &json;
  std::string &problem;

  void text(const char *key, std::string &value) {
    const Json *found = member(key);
    if (!found) return;
    const auto *string = found->get_ptr<const std::string *>();
    if (!string || string->size() > kMostText ||
        std::any_of(string->begin(), string->end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }))
      return fail(key, "is no short text");
    value = *string;
  }
  void number(const char *key, double &value) {
    const Json *found = member(key);
    if (!found) return;
    if (!found->is_number() || !(found->get<double>() >= 0 && found->get<double>() <= 1e12))
      return fail(key, "is no number from 0 to 1e12");
    value = found->get<double>();
  }

 private:
  const Json *member(const char *key) {
    if (!json.is_object() || !json.contains(key)) {
      fail(key, "is missing");
      return nullptr;
    }
    return &json[key];
  }
  void fail(const char *key, const char *what) {
    if (problem.empty()) problem = fmt::format("'{}' {}", key, what);
  }
};

std::string read_form(const Json &json, TunedForm &form) {
  std::string problem;
  Reader reader{json, problem};
  reader.text("form", form.form);
  reader.text("note", form.note);
  reader.text("way", form.way);
  reader.text("model", form.model);
  reader.number("microseconds", form.microseconds);
  reader.number("model_microseconds", form.model_microseconds);
  reader.number("noise", form.noise);
  const auto digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (problem.empty() && (form.form.size() != 32 || !std::all_of(form.form.begin(), form.form.end(), digit)))
    problem = "'form' is no 32 hexadecimal digits";
  if (problem.empty() && form.way.empty()) problem = "'way' is empty";
  return problem;
}

}  // namespace

TuningCache tuning_of_here(const std::string &target, int threads) {
  TuningCache cache;
  cache.target = target;
  cache.threads = threads;
  if (target == "cpu") cache.processor = processor_name(), cache.instructions = instruction_set();
  return cache;
}

std::string print(const TuningCache &cache) {
  const Json head = {{"kind", kKind},
                     {"schedules", kSchedulesVersion},
                     {"target", cache.target},
                     {"processor", cache.processor},
                     {"instructions", cache.instructions},
                     {"threads", cache.threads}};
  std::string text = "{\n";
  for (const auto &[key, value] : head.items())
    text += fmt::format("\"{}\": {},\n", key, value.dump(-1, ' ', true, Json::error_handler_t::replace));
  std::vector<TunedForm> forms = cache.forms;
  std::sort(forms.begin(), forms.end(), [](const TunedForm &a, const TunedForm &b) { return a.form < b.form; });
  text += "\"forms\": [";
  for (const TunedForm &f : forms) {
    const Json line = {{"form", f.form},
                       {"note", f.note.substr(0, kMostText)},
                       {"way", f.way},
                       {"microseconds", rounded(f.microseconds)},
                       {"model", f.model},
                       {"model_microseconds", rounded(f.model_microseconds)},
                       {"noise", rounded(f.noise)}};
    text += (&f == &forms.front() ? "\n" : ",\n") + line.dump(-1, ' ', true, Json::error_handler_t::replace);
  }
  return text + "\n]\n}\n";
}

Result<TuningCache> parse_tuning(std::string_view text, const std::string &name, Diagnostics &diagnostics) {
  const auto damaged = [&](const std::string &what) {
    return diagnostics.error(ErrorKind::kUsage, fmt::format("{} is no tuning cache: {}", name, what), {},
                             "`optc tune MODEL -o FILE` writes one");
  };
  if (text.size() > kMostBytes) return damaged(fmt::format("it has {} bytes", text.size()));
  // Nothing lies deeper than a member of a form.
  const auto shallow = [](int depth, Json::parse_event_t, Json &) { return depth <= 3; };
  const Json json = Json::parse(text.begin(), text.end(), shallow, false);
  if (json.is_discarded() || !json.is_object()) return damaged("it is no JSON object");
  if (!json.contains("kind") || json["kind"] != kKind) return damaged("'kind' does not say so");
  if (!json.contains("schedules") || !json["schedules"].is_number_integer()) return damaged("'schedules' is no number");
  if (json["schedules"] != kSchedulesVersion)
    return diagnostics.error(ErrorKind::kUsage,
                             fmt::format("{} was measured with version {} of the schedules, this optc has version {}",
                                         name, json["schedules"].dump(), kSchedulesVersion),
                             {}, "`optc tune` measures anew");
  TuningCache cache;
  std::string problem;
  Reader reader{json, problem};
  double threads = 0;
  reader.text("target", cache.target);
  reader.text("processor", cache.processor);
  reader.text("instructions", cache.instructions);
  reader.number("threads", threads);
  if (problem.empty() && (threads < 1 || threads > 4096 || threads != std::floor(threads)))
    problem = "'threads' is no number of threads";
  if (problem.empty() && cache.target != "cpu" && !find_gpu_machine(cache.target)) problem = "'target' is not known";
  if (!problem.empty()) return damaged(problem);
  cache.threads = static_cast<int>(threads);
  if (!json.contains("forms") || !json["forms"].is_array()) return damaged("'forms' is no list");
  if (json["forms"].size() > kMostForms) return damaged(fmt::format("it has {} forms", json["forms"].size()));
  std::set<std::string> known;
  for (const Json &entry : json["forms"]) {
    TunedForm form;
    problem = read_form(entry, form);
    if (problem.empty() && !known.insert(form.form).second) problem = "it stands there twice";
    if (!problem.empty()) return damaged(fmt::format("form {}: {}", cache.forms.size() + 1, problem));
    cache.forms.push_back(std::move(form));
  }
  return cache;
}

Result<TuningCache> read_tuning(const std::string &path, Diagnostics &diagnostics) {
  OPTC_ASSIGN(const auto file, MappedFile::open(path, diagnostics));
  return parse_tuning(file->text(), path, diagnostics);
}

Result<std::shared_ptr<const TuningTable>> load_tuning(const std::vector<std::string> &paths,
                                                       const std::vector<std::string> &targets, bool foreign,
                                                       Diagnostics &diagnostics) {
  auto table = std::make_shared<TuningTable>();
  for (const std::string &path : paths) {
    OPTC_ASSIGN(const TuningCache cache, read_tuning(path, diagnostics));
    const TuningCache here = tuning_of_here("cpu", 1);
    if (cache.target == "cpu" && !foreign &&
        (cache.processor != here.processor || cache.instructions != here.instructions))
      return diagnostics.error(
          ErrorKind::kUsage,
          fmt::format("{} was measured on another machine: {} ({}), this is {} ({})", path, cache.processor,
                      cache.instructions, here.processor, here.instructions),
          {}, "measure here by `optc tune`; or --foreign-tuning, where the bundle is to run on that machine");
    if (cache.target != "cpu" && (std::find(targets.begin(), targets.end(), cache.target) == targets.end() ||
                                  machine_of(targets).target != cache.target))
      return diagnostics.error(
          ErrorKind::kUsage,
          fmt::format("{} was measured for {}, which is not what --target makes choices for", path, cache.target), {},
          "--target " + cache.target);
    for (const TunedForm &form : cache.forms) table->ways.try_emplace(form.form, form.way);
  }
  return std::shared_ptr<const TuningTable>(std::move(table));
}

}  // namespace optc
