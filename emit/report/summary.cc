#include <algorithm>
#include <map>

#include "emit/report/report.h"

namespace optc {

std::vector<RuleSummary> summarize_rules(const std::vector<RewriteRecord> &records) {
  std::map<std::string, RuleSummary> by_rule;
  for (const RewriteRecord &record : records) {
    RuleSummary &s = by_rule[record.rule];
    if (s.count++ == 0) {
      s.rule = record.rule;
      s.pass = record.pass;
      s.example = !record.removed.empty()   ? record.removed[0].name
                  : !record.created.empty() ? record.created[0].name
                                            : "";
    }
    s.numerics = std::max(s.numerics, record.numerics);
    s.removed += static_cast<int64_t>(record.removed.size());
    s.created += static_cast<int64_t>(record.created.size());
  }
  std::vector<RuleSummary> list;
  for (auto &[rule, summary] : by_rule) list.push_back(std::move(summary));
  std::stable_sort(list.begin(), list.end(),
                   [](const RuleSummary &a, const RuleSummary &b) { return a.count > b.count; });
  return list;
}

std::vector<MissedSummary> summarize_missed(const std::vector<MissedRewrite> &missed) {
  std::map<std::pair<std::string, std::string>, MissedSummary> by_reason;
  for (const MissedRewrite &m : missed) {
    MissedSummary &s = by_reason[{m.rule, m.reason}];
    if (s.count++ == 0) s = {m.rule, m.reason, m.node, 1};
  }
  std::vector<MissedSummary> list;
  for (auto &[key, summary] : by_reason) list.push_back(std::move(summary));
  std::stable_sort(list.begin(), list.end(),
                   [](const MissedSummary &a, const MissedSummary &b) { return a.count > b.count; });
  return list;
}

}  // namespace optc
