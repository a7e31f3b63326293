// optc explain [RULE | FILE:NODE | BUNDLE:KERNEL]: what a rewrite rule does and when; where a node of an optimized
// model or a kernel of a bundle comes from, and where it runs.

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "cli/common.h"
#include "driver/places.h"
#include "importer/importer.h"
#include "importer/provenance.h"
#include "lowering/steps.h"
#include "optimizer/optimize.h"
#include "support/file.h"

namespace optc::cli {
namespace {

// What optc opt noted at a node of the model that it wrote.
Status explain_node(const std::string &file, const std::string &node, Diagnostics &diagnostics) {
  OPTC_ASSIGN(const Graph graph, read_graph(file, diagnostics));
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

std::string joined(const nlohmann::json &list, const std::function<std::string(const nlohmann::json &)> &text) {
  std::string out;
  for (const nlohmann::json &item : list) out += (out.empty() ? "" : "\n         ") + text(item);
  return out;
}

// "2.1 MiB", or the expression of the dims.
std::string amount(const nlohmann::json &number, bool bytes) {
  if (number.is_string()) return number.get<std::string>() + (bytes ? " B" : " operations");
  const int64_t value = number.is_number() ? number.get<int64_t>() : 0;
  return bytes ? format_bytes(value) : format_count(value) + " operations";
}

// `variant`: the one whose kernel it is; empty: the general entry's.
std::string kernel_text(const nlohmann::json &kernel, const nlohmann::json &manifest, const std::string &variant) {
  const std::string name = kernel.value("name", "");
  std::string text = fmt::format("{}  {}\n", name, kernel.value("note", ""));
  if (!variant.empty()) text += "  of     variant " + variant + "\n";
  const nlohmann::json none = nlohmann::json::array();
  const std::string from = joined(kernel.value("origin", none), [](const nlohmann::json &o) {
    return fmt::format("{}  {} (#{})", o.value("op", ""), o.value("node", ""), o.value("index", int64_t{0}));
  });
  if (!from.empty()) text += "  from   " + from + "\n";
  const std::string rules = joined(kernel.value("rules", none), [](const nlohmann::json &r) {
    return r.is_string() ? r.get<std::string>() : r.dump();
  });
  if (!rules.empty()) text += "  by     " + rules + "\n";
  if (const auto cost = kernel.find("cost"); cost != kernel.end())
    text += fmt::format("  costs  reads {}, writes {}, {}\n", amount(cost->value("bytes_read", none), true),
                        amount(cost->value("bytes_written", none), true), amount(cost->value("flops", none), false));
  text += fmt::format("  cpu    {}\n", kernel.value("strategy", "loops"));
  if (const auto gpu = manifest.find("gpu"); gpu != manifest.end() && variant.empty())
    for (const nlohmann::json &k : gpu->value("kernels", none))
      if (k.value("name", "") == name)
        text += k.value("placement", "") == "gpu"
                    ? fmt::format("  gpu    {}, in segment {}\n", k.value("form", ""), k.value("segment", 0))
                    : fmt::format("  gpu    runs on the CPU: {}\n", k.value("reason", ""));
  return text;
}

// The kernels of a bundle that have this name or that compute the node of this name; all kernels when it is empty.
Status explain_kernels(const std::string &folder, const std::string &what, Diagnostics &diagnostics) {
  OPTC_ASSIGN(const std::string text, read_file(folder + "/manifest.json", diagnostics));
  const nlohmann::json manifest = nlohmann::json::parse(text, nullptr, false);
  if (!manifest.is_object() || !manifest.contains("kernels") || !manifest["kernels"].is_array())
    return diagnostics.error(ErrorKind::kUsage, "the folder is no bundle of optc");
  std::string found;
  std::vector<std::string> names;
  const auto search = [&](const nlohmann::json &entry, const std::string &variant) {
    for (const nlohmann::json &kernel : entry.value("kernels", nlohmann::json::array())) {
      bool meant = what.empty() || kernel.value("name", "") == what;
      names.push_back(kernel.value("name", ""));
      for (const nlohmann::json &origin : kernel.value("origin", nlohmann::json::array())) {
        meant = meant || origin.value("node", "") == what;
        names.push_back(origin.value("node", ""));
      }
      if (meant) found += kernel_text(kernel, manifest, variant);
    }
  };
  search(manifest, "");
  for (const nlohmann::json &entry : manifest.value("variants", nlohmann::json::array()))
    search(entry, entry.value("name", ""));
  if (found.empty()) {
    const std::string near = nearest(what, names);
    return diagnostics.error(ErrorKind::kUsage, fmt::format("the bundle has no kernel of the name or node '{}'", what),
                             {}, near.empty() ? "" : fmt::format("did you mean '{}'?", near));
  }
  print(found);
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
  for (const LoweringStepInfo &info : lowering_steps()) {
    names.emplace_back(info.name);
    if (!what.empty() && !names_step(what, info.name)) continue;
    found = true;
    print(what.empty()
              ? fmt::format("{:<26} {:<14} {}\n", info.name, "lowering", info.summary)
              : fmt::format("{} (a step of lowering)\n  {}\n  when: {}\n", info.name, info.summary, info.precondition));
  }
  if (found) return 0;
  const std::string near = nearest(what, names);
  return run_usage_error(fmt::format("no rule '{}'", what),
                         near.empty() ? "`optc explain` lists them" : fmt::format("did you mean {}?", near));
}

}  // namespace

void add_explain(CommandLine &line, int &code) {
  auto what = std::make_shared<std::string>();
  Verb *verb = line.add_verb(
      "explain",
      "what a rewrite rule does and when; where a node of an optimized model or a kernel of a bundle comes from");
  verb->footer(
      "Example: optc explain norm.layer\n         optc explain bert.opt.onnx:/encoder/layer.0/Add\n         "
      "optc explain bert:/encoder/layer.0/Add");
  verb->add_option(
          "WHAT", *what,
          "a rule or a family, as --opt-report names it, FILE:NODE of a model that opt wrote, or BUNDLE:KERNEL or "
          "BUNDLE:NODE; without it: all rules")
      ->type_name("");
  verb->callback([what, &code] {
    for (size_t at = what->find(':'); at != std::string::npos; at = what->find(':', at + 1)) {
      const std::string file = what->substr(0, at);
      if (!exists(file)) continue;
      Diagnostics diagnostics(file);
      const std::string name = what->substr(at + 1);
      const Status status =
          is_folder(file) ? explain_kernels(file, name, diagnostics) : explain_node(file, name, diagnostics);
      if (!status.ok()) code = report(diagnostics, status.failure(), {});
      return;
    }
    code = explain_rules(*what);
  });
}

}  // namespace optc::cli
