#include "cli/kernel_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

namespace optc::cli {
namespace {

std::string finding_text(const KernelFinding &f, bool values) {
  std::string text = fmt::format("  kernel           {}\n", f.kernel);
  if (!f.note.empty() && f.note != f.kernel) text += fmt::format("  computes         {}\n", f.note);
  for (size_t i = 0; i < f.nodes.size(); ++i) text += fmt::format("  {:<16} {}\n", i ? "" : "nodes", f.nodes[i]);
  if (!f.strategy.empty()) text += fmt::format("  strategy         {}\n", f.strategy);
  text += fmt::format("  instruction set  {}\n", f.isa);
  if (!f.output.empty()) text += fmt::format("  output           {}\n", f.output);
  text += fmt::format("  fault            {}\n", f.problem);
  if (values && !f.index.empty())
    text += fmt::format("  worst element    {}: got {:.9g}, expected {:.9g}, allowed difference {:.2g}\n", f.index,
                        f.got, f.expected, f.allowed);
  else if (!f.index.empty())
    text += fmt::format("  first at         {}\n", f.index);
  return text;
}

nlohmann::ordered_json number(double value) {
  if (value != value) return "NaN";
  if (value - value != 0) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

nlohmann::ordered_json finding_json(const std::optional<KernelFinding> &finding, bool values) {
  if (!finding) return nullptr;
  const KernelFinding &f = *finding;
  nlohmann::ordered_json json{{"kernel", f.kernel},     {"note", f.note},  {"nodes", f.nodes},
                              {"strategy", f.strategy}, {"isa", f.isa},    {"output", f.output},
                              {"problem", f.problem},   {"index", f.index}};
  if (values && !f.index.empty()) {
    json["got"] = number(f.got);
    json["expected"] = number(f.expected);
    json["allowed"] = number(f.allowed);
  }
  return json;
}

const KernelDrift &farthest(const WatchReport &report) {
  return std::max_element(report.drift.begin(), report.drift.end(),
                          [](const auto &x, const auto &y) { return x.second.relative < y.second.relative; })
      ->second;
}

}  // namespace

std::string kernel_text(const WatchReport &report, bool compared, bool numerics, bool quiet) {
  std::string text;
  if (compared && report.difference)
    text += "the first kernel that differs from the evaluator on the same inputs:\n" +
            finding_text(*report.difference, true);
  if (compared && !report.difference && !quiet)
    text += fmt::format("each of {} kernels computes what the evaluator computes of the same inputs ({} runs)\n",
                        report.kernels.size(), report.compared);
  if (compared && !quiet && !report.difference && !report.drift.empty()) {
    const KernelDrift &far = farthest(report);
    text += far.relative > 0 ? fmt::format("farthest of them is {}, by {:.1e} of the range of {}\n", far.kernel,
                                           far.relative, far.output)
                             : "all of them give the evaluator's bits\n";
  }
  if (compared && !quiet) {
    std::map<std::string, std::string> by_reason;
    for (const auto &[kernel, reason] : report.not_compared)
      by_reason[reason] += (by_reason[reason].empty() ? "" : ", ") + kernel;
    for (const auto &[reason, kernels] : by_reason)
      text += fmt::format("not compared, since {}: {}\n", reason, kernels);
  }
  if (numerics && report.nan) text += "the first kernel that makes a NaN:\n" + finding_text(*report.nan, false);
  if (numerics && report.infinity)
    text += "the first kernel that makes an infinity:\n" + finding_text(*report.infinity, false);
  if (numerics && !report.nan && !report.infinity && !quiet)
    text += "no kernel makes a NaN or an infinity of inputs that have none\n";
  return text;
}

std::string ended_text(const WatchReport &report) {
  return report.ended ? "the kernel in which the run ended:\n" + finding_text(*report.ended, false) : "";
}

std::string crash_text(const KernelFinding &known, bool all_ran) {
  if (all_ran)
    return "error[internal]: the bundle crashed after a run in which each kernel agreed, of which this was the "
           "last:\n" +
           finding_text(known, true);
  return "error[internal]: the bundle crashed; what was seen of its kernels last:\n" + finding_text(known, true);
}

std::string kernel_json(const WatchReport &report, bool compared, bool numerics) {
  nlohmann::ordered_json json;
  if (compared) {
    json["compared"] = report.kernels.size();
    json["runs"] = report.compared;
    json["not_compared"] = nlohmann::ordered_json::array();
    for (const auto &[kernel, reason] : report.not_compared)
      json["not_compared"].push_back({{"kernel", kernel}, {"reason", reason}});
    json["each"] = nlohmann::ordered_json::array();
    for (const auto &[number, d] : report.drift)
      json["each"].push_back(
          {{"kernel", d.kernel}, {"output", d.output}, {"max_difference", d.largest}, {"relative", d.relative}});
    json["first_difference"] = finding_json(report.difference, true);
  }
  if (numerics) {
    json["first_nan"] = finding_json(report.nan, false);
    json["first_infinity"] = finding_json(report.infinity, false);
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string kernel_summary(const WatchReport &report) {
  if (report.difference)
    return fmt::format("kernel '{}' is the first that differs: {}", report.difference->kernel,
                       report.difference->problem);
  const auto &made = report.nan ? report.nan : report.infinity;
  if (made) return fmt::format("kernel '{}' {}", made->kernel, made->problem);
  return "each kernel computes what the evaluator computes of the same inputs: the fault lies before the kernels, in a "
         "rewrite or in lowering";
}

}  // namespace optc::cli
