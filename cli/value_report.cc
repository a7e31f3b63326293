#include "cli/value_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "cli/internal_json.h"

namespace optc::cli {
namespace {

constexpr size_t kRows = 40;       // of the table without -v
constexpr size_t kNameWidth = 34;  // columns of a name without -v: the table has 79

// How much of what is allowed a value takes; beyond 1 it is wrong.
double share(const Comparison &c) {
  if (!c.problem.empty()) return INFINITY;
  if (c.allowed > 0) return c.max_difference / c.allowed;
  return c.ok ? 0 : INFINITY;
}

// The last columns of a name: exporters put the module first.
std::string tail(const std::string &name, size_t most) {
  if (name.size() <= most) return name;
  size_t from = name.size() - most + 1;
  while (from < name.size() && (name[from] & 0xC0) == 0x80) ++from;
  return "…" + name.substr(from);
}

std::string row(const ValueFinding &f, bool whole) {
  const Comparison &c = f.comparison;
  const std::string name = whole ? f.value : tail(f.value, kNameWidth);
  const char *verdict = c.ok ? "ok" : "FAIL";
  if (!c.problem.empty()) return fmt::format("{:<4}  {:>37}  {}\n", verdict, c.problem, name);
  if (c.max_difference == 0 && c.differing == 0) return fmt::format("{:<4}  {:>37}  {}\n", verdict, "the same", name);
  return fmt::format("{:<4}  {:>8.1e}  {:>8.1e}  {:>8.3g}  {:>7.0e}  {}\n", verdict, c.max_difference, relative(c),
                     c.max_ulp, 1 - c.cosine, name);
}

// What is shown, in the model's order: the first that is wrong, and those that take most of what is allowed.
std::vector<size_t> shown_rows(const ValueReport &report, bool all) {
  std::vector<size_t> rows(report.values.size());
  std::iota(rows.begin(), rows.end(), size_t{0});
  if (all || rows.size() <= kRows) return rows;
  const ValueFinding *first = report.first();
  std::stable_sort(rows.begin(), rows.end(), [&](size_t a, size_t b) {
    const ValueFinding &x = report.values[a], &y = report.values[b];
    if ((&x == first) != (&y == first)) return &x == first;
    return share(x.comparison) > share(y.comparison);
  });
  rows.resize(kRows);
  std::sort(rows.begin(), rows.end());
  return rows;
}

}  // namespace

std::string value_text(const ValueReport &report, bool all, bool quiet) {
  std::string text;
  const std::vector<size_t> rows = shown_rows(report, all);
  if (!rows.empty() && !quiet) text += "       max |Δ|  of range   max ulp   1-cos  value\n";
  for (const size_t i : rows)
    if (!quiet || !report.values[i].comparison.ok) text += row(report.values[i], all);
  if (rows.size() < report.values.size() && !quiet)
    text += fmt::format("the {} of {} values that take most of their bound; -v shows all\n", rows.size(),
                        report.values.size());
  if (quiet) return text;
  const size_t wrong = static_cast<size_t>(std::count_if(report.values.begin(), report.values.end(),
                                                         [](const ValueFinding &f) { return !f.comparison.ok; }));
  text += fmt::format("{} values inside the model beside {}: {} of {} within their bound", report.values.size(),
                      report.reference, report.values.size() - wrong, report.values.size());
  text += fmt::format("; {} gone by rewrites", report.removed);
  if (report.not_compared) text += fmt::format(", {} not compared", report.not_compared);
  return text + "\n" + (report.first() ? value_summary(report) + "\n" : "");
}

std::string value_json(const ValueReport &report) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ValueFinding &f : report.values) {
    const Comparison &c = f.comparison;
    list.push_back({{"value", f.value},
                    {"node", f.node},
                    {"op", f.op},
                    {"ok", c.ok},
                    {"max_difference", c.max_difference},
                    {"allowed", c.allowed},
                    {"range", c.range},
                    {"relative", relative(c)},
                    {"max_ulp", c.max_ulp},
                    {"median_ulp", c.median_ulp},
                    {"cosine", c.cosine},
                    {"differing", c.differing},
                    {"count", c.count},
                    {"problem", c.problem}});
  }
  nlohmann::ordered_json first;
  if (report.first()) first = report.first()->value;
  return json_text(
      {{"removed", report.removed}, {"not_compared", report.not_compared}, {"first", first}, {"each", list}});
}

std::string value_summary(const ValueReport &report) {
  const ValueFinding &f = *report.first();
  return fmt::format("value '{}' of node '{}' ({}) is the first beyond its bound: {}, allowed {:.2g}", f.value, f.node,
                     f.op, describe(f.comparison), f.comparison.allowed);
}

}  // namespace optc::cli
