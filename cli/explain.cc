// optc explain [RULE | FILE:NODE]: what a rewrite rule does and when; where a node of an optimized model comes from.

#include <fmt/format.h>

#include <algorithm>

#include "cli/common.h"
#include "driver/places.h"
#include "importer/provenance.h"
#include "optimizer/optimize.h"

namespace optc::cli {
namespace {

// What optc opt noted at a node of the model that it wrote.
Status explain_node(const std::string &file, const std::string &node, Diagnostics &diagnostics) {
  CommonOptions silent;
  silent.quiet = true;
  const std::unique_ptr<Listener> listener = make_listener(silent);
  OPTC_ASSIGN(const Graph graph, load_model(file, {}, *listener, diagnostics));
  NodeId found;
  std::vector<std::string> names;
  for (const NodeId id : graph.all_nodes()) {
    names.push_back(graph.node(id).name);
    if (graph.node(id).name == node) found = id;
  }
  if (!found.valid()) {
    const std::string near = nearest(node, names);
    return diagnostics.error(ErrorKind::kUsage, fmt::format("the model has no node '{}'", node), {},
                             near.empty() ? "" : fmt::format("did you mean '{}'?", near));
  }
  OPTC_ASSIGN(const std::vector<NodeNote> notes, read_notes(file, diagnostics));
  std::string text = fmt::format("{}  {}\n", graph.node(found).op, node), origin, rules;
  for (const NodeNote &note : notes)
    if (note.node == node) (note.key == "optc.origin" ? origin : rules) = note.value;
  const auto list = [&](const char *title, const std::string &lines) {
    for (size_t from = 0; from <= lines.size();) {
      const size_t to = std::min(lines.find('\n', from), lines.size());
      text += fmt::format("  {:<6} {}\n", from == 0 ? title : "", lines.substr(from, to - from));
      from = to + 1;
    }
  };
  if (origin.empty())
    text += "  as it stands in the model that this one was made of: no rule changed it\n";
  else
    list("from", origin);
  if (!rules.empty()) list("by", rules);
  print(text);
  return {};
}

int explain_rules(const std::string &what) {
  bool found = false;
  std::vector<std::string> names;
  for (const RuleInfo &info : list_rules()) {
    names.push_back(info.name);
    const bool family = info.name.rfind(what + ".", 0) == 0;
    if (!what.empty() && info.name != what && !family) continue;
    found = true;
    print(what.empty() ? fmt::format("{:<26} {:<14} {}\n", info.name, to_string(info.numerics), info.summary)
                       : fmt::format("{} (pass {}, {})\n  {}\n  when: {}\n", info.name, info.pass,
                                     to_string(info.numerics), info.summary, info.precondition));
  }
  if (found) return 0;
  const std::string near = nearest(what, names);
  return run_usage_error(fmt::format("no rule '{}'", what),
                         near.empty() ? "`optc explain` lists them" : fmt::format("did you mean {}?", near));
}

}  // namespace

void add_explain(CommandLine &line, int &code) {
  auto what = std::make_shared<std::string>();
  Verb *verb =
      line.add_verb("explain", "what a rewrite rule does and when; where a node of an optimized model comes from");
  verb->footer("Example: optc explain norm.layer\n         optc explain bert.opt.onnx:/encoder/layer.0/Add");
  verb->add_option("WHAT", *what, "a rule or a family, as --opt-report names it, or FILE:NODE; without it: all rules")
      ->type_name("");
  verb->callback([what, &code] {
    for (size_t at = what->find(':'); at != std::string::npos; at = what->find(':', at + 1)) {
      const std::string file = what->substr(0, at);
      if (!exists(file)) continue;
      Diagnostics diagnostics(file);
      const Status status = explain_node(file, what->substr(at + 1), diagnostics);
      if (!status.ok()) code = report(diagnostics, status.failure(), {});
      return;
    }
    code = explain_rules(*what);
  });
}

}  // namespace optc::cli
