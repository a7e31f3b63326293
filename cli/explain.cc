// optc explain [RULE]: what a rewrite rule does and when.

#include <fmt/format.h>

#include "cli/common.h"
#include "optimizer/optimize.h"

namespace optc::cli {

void add_explain(CLI::App &app, int &code) {
  auto rule = std::make_shared<std::string>();
  CLI::App *verb = app.add_subcommand("explain", "what a rewrite rule does and when; without a name: all rules");
  verb->add_option("RULE", *rule, "a rule or a family, as --opt-report names it");
  verb->callback([rule, &code] {
    bool found = false;
    for (const RuleInfo &info : list_rules()) {
      const bool family = info.name.rfind(*rule + ".", 0) == 0;
      if (!rule->empty() && info.name != *rule && !family) continue;
      found = true;
      print(rule->empty() ? fmt::format("{:<30} {:<14} {}\n", info.name, to_string(info.numerics), info.summary)
                          : fmt::format("{} (pass {}, {})\n  {}\n  when: {}\n", info.name, info.pass,
                                        to_string(info.numerics), info.summary, info.precondition));
    }
    if (!found) code = run_usage_error(fmt::format("no rule '{}'; `optc explain` lists them", *rule));
  });
}

}  // namespace optc::cli
