#include "cli/pass_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cli/internal_json.h"
#include "ir/graph/text.h"
#include "optimizer/optimize.h"
#include "support/staging.h"

namespace optc::cli {

void add_pass_options(Verb &verb, PassOptions &o) {
  constexpr const char *kPasses = "Passes";
  const std::vector<std::string> passes = list_passes();
  std::vector<std::string> dumped = {"changed", "all"};
  dumped.insert(dumped.end(), passes.begin(), passes.end());
  verb.add_flag("--time-passes", o.times, "how long each pass took, and how many rewrites it made")->group(kPasses);
  verb.add_option("--dump-ir-after", o.dump_after,
                  "write the graph as text behind each pass that changed it (changed), behind each (all), or behind "
                  "those of one name; with --dump-dir")
      ->one_of(dumped)
      ->type_name("WHAT")
      ->group(kPasses);
  verb.add_option("--dump-dir", o.dump_folder, "the folder of those texts: 01-fold.txt, 02-identity.txt, ...")
      ->type_name("DIR")
      ->group(kPasses);
}

PassWatch::PassWatch(const PassOptions &options, Diagnostics &diagnostics) : o_(options), diagnostics_(diagnostics) {}
PassWatch::~PassWatch() = default;

Status PassWatch::prepare(CompileOptions &compile) {
  if (o_.dump_after.empty() != o_.dump_folder.empty())
    return diagnostics_.error(ErrorKind::kUsage, "--dump-ir-after WHAT and --dump-dir DIR go together", {},
                              o_.dump_after.empty() ? "--dump-ir-after=changed writes what each pass left that changed "
                                                      "anything"
                                                    : "");
  if (!o_.dump_folder.empty()) {
    std::error_code error;
    std::filesystem::create_directories(o_.dump_folder, error);
    if (error)
      return diagnostics_.error(ErrorKind::kIo, fmt::format("--dump-dir {}: {}", o_.dump_folder, error.message()));
  }
  if (!o_.times && o_.dump_after.empty()) return {};
  compile.after_pass = [this, also = compile.after_pass](const PassRun &run) -> Status {
    if (also) OPTC_TRY(also(run));
    return heard(run);
  };
  return {};
}

Status PassWatch::heard(const PassRun &run) {
  auto known = std::find_if(times_.begin(), times_.end(), [&](const Time &t) { return t.pass == run.pass; });
  if (known == times_.end()) known = times_.insert(times_.end(), Time{std::string(run.pass)});
  ++known->runs;
  known->rewrites += run.rewrites;
  known->seconds += run.seconds;
  const bool dumped =
      o_.dump_after == "all" || (o_.dump_after == "changed" ? run.rewrites > 0 : o_.dump_after == run.pass);
  if (!dumped) return {};
  return write_file(fmt::format("{}/{:02}-{}.txt", o_.dump_folder, ++dumps_, run.pass), print(run.graph), diagnostics_);
}

std::string PassWatch::text() const {
  std::string text;
  if (o_.times) {
    double all = 0;
    for (const Time &t : times_) all += t.seconds;
    text = "      ms      %  rewrites  runs  pass\n";
    for (const Time &t : times_)
      text += fmt::format("{:>8.2f}  {:>5.1f}  {:>8}  {:>4}  {}\n", 1e3 * t.seconds,
                          100 * t.seconds / std::max(all, 1e-12), t.rewrites, t.runs, t.pass);
  }
  if (!o_.dump_after.empty())
    text += fmt::format("wrote {} graph{} to {}\n", dumps_, dumps_ == 1 ? "" : "s", o_.dump_folder);
  return text;
}

std::string PassWatch::json() const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Time &t : times_)
    list.push_back({{"pass", t.pass}, {"runs", t.runs}, {"rewrites", t.rewrites}, {"seconds", t.seconds}});
  return json_text(list);
}

}  // namespace optc::cli
