// optc opt MODEL -o OUT.onnx: the optimized model, in standard operators.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/common.h"
#include "cli/internal_json.h"
#include "cli/optimized_diff.h"
#include "cli/pass_watch.h"
#include "emit/onnx/export.h"
#include "emit/report/report.h"
#include "importer/importer.h"
#include "importer/provenance.h"
#include "support/staging.h"

namespace optc::cli {
namespace {

struct OptOptions : CommonOptions {
  std::string output, html;
  int64_t opset = 0;
  bool external = false, report = false, force = false;
  PassOptions watched;
};

// The model that was read is not replaced by accident.
Status check_output(const OptOptions &o, Diagnostics &diagnostics) {
  std::error_code ignored;
  if (o.output.empty() || o.force || !std::filesystem::equivalent(o.model, o.output, ignored)) return {};
  return diagnostics.error(ErrorKind::kUsage, fmt::format("-o {} is the model itself", o.output), {},
                           "another name keeps the model; --force replaces it");
}

// "5 → 1": nodes of one application, where all are alike.
std::string nodes_text(const RuleSummary &r) {
  if (r.removed == 0 && r.created == 0) return "-";
  if (r.removed % r.count == 0 && r.created % r.count == 0)
    return fmt::format("{} → {}", r.removed / r.count, r.created / r.count);
  return fmt::format("{} → {} in all", r.removed, r.created);
}

// What lowering for the CPU makes of the model, by the names of its steps; nothing where it cannot be lowered.
std::string steps_text(const LoweredGraph &lowered) {
  if (!lowered.program) return "";
  const LoweringReport &report = lowered.report;
  std::map<std::string, std::pair<int64_t, std::string>> counts;
  for (const LoweringStep &step : report.steps) {
    auto &[count, first] = counts[step.name];
    if (count++ == 0) first = step.where;
  }
  std::string text = fmt::format("lowered for the CPU: {} → {} kernels\n", report.kernels_before, report.kernels_after);
  if (!counts.empty()) text += " count  step                      first at\n";
  for (const auto &[name, what] : counts) text += fmt::format("{:>6}  {:<24}  {}\n", what.first, name, what.second);
  return text;
}

std::string rules_text(const Optimized &optimized) {
  const auto rules = summarize_rules(optimized.records);
  std::string text = rules.empty() ? "no rule was applied\n"
                                   : "applied\n count  rule                        class           nodes of each    "
                                     "first at\n";
  for (const RuleSummary &r : rules) {
    std::string line = fmt::format("{:>6}  {:<26}  {:<14}  {:<15}  {}", r.count, r.rule, to_string(r.numerics),
                                   nodes_text(r), r.example);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  const auto missed = summarize_missed(optimized.missed);
  if (!missed.empty()) text += "not applied\n";
  for (const MissedSummary &m : missed)
    text += fmt::format("{:>6}  {:<26}  {}; first at {}\n", m.count, m.rule, m.reason, m.example);
  return text;
}

Result<FileFacts> file_facts(const OptOptions &o, Diagnostics &diagnostics) {
  OPTC_ASSIGN(const Graph written, read_graph(o.model, diagnostics));
  return facts_of_file(written);
}

Status opt(const OptOptions &o, Diagnostics &diagnostics) {
  OPTC_ASSIGN(CompileOptions options, compile_options(o, diagnostics));
  const std::unique_ptr<Listener> listener = make_listener(o);
  OPTC_ASSIGN(Graph model, load_model(o.model, options, *listener, diagnostics, &options.weights));
  OPTC_TRY(check_output(o, diagnostics));
  // What is told is what stands in the two files, not what optc makes of them inside.
  OPTC_ASSIGN(const FileFacts before, file_facts(o, diagnostics));
  const Graph original = model.clone();
  CompileOptions whole = options;
  whole.only.clear();
  whole.start_from.clear();
  whole.stop_after.clear();
  PassWatch watch(o.watched, diagnostics);
  OPTC_TRY(watch.prepare(options));
  options.opset = o.opset ? o.opset : opset_of(model);
  OPTC_ASSIGN(const Optimized optimized, optimize_model(std::move(model), options, *listener, diagnostics));
  ExportOptions export_options;
  export_options.opset = o.opset;
  export_options.external = o.external;
  export_options.rules = rules_by_origin(optimized.records);
  FileFacts after;
  OPTC_TRY(export_file(optimized.graph, o.output, export_options, diagnostics, &after));
  GraphDiff changes;
  LoweredGraph lowered;
  if (o.report || !o.html.empty()) {
    CommonOptions silent = o;
    silent.quiet = true;
    // As a bundle is made of it: by all passes, with the operators that no opset has.
    OPTC_ASSIGN(const Optimized compiled, optimize_model(original.clone(), whole, *make_listener(silent), diagnostics));
    lowered = lower_if_possible(compiled.graph, whole, *listener);
    changes = diff_optimized(original, optimized, lowered);
  }
  size_t page_bytes = 0;
  if (!o.html.empty()) {
    PageFacts facts = facts_of_page(optimized, lowered);
    OPTC_ASSIGN(facts.scopes, noted_scopes(o.model, diagnostics));
    const std::string page = diff_html(original, optimized.graph, changes, file_name(o.model) + " → optimized", facts);
    page_bytes = page.size();
    OPTC_TRY(write_file(o.html, page, diagnostics));
  }
  if (o.format == "json") {
    nlohmann::ordered_json rules = nlohmann::ordered_json::array(), missed = nlohmann::ordered_json::array();
    for (const RuleSummary &r : summarize_rules(optimized.records))
      rules.push_back({{"rule", r.rule},
                       {"pass", r.pass},
                       {"class", to_string(r.numerics)},
                       {"count", r.count},
                       {"removed", r.removed},
                       {"created", r.created}});
    for (const MissedSummary &m : summarize_missed(optimized.missed))
      missed.push_back({{"rule", m.rule}, {"count", m.count}, {"reason", m.reason}, {"node", m.example}});
    nlohmann::ordered_json json{{"schema_version", 1},
                                {"opset", after.opset},
                                {"nodes_before", before.nodes},
                                {"nodes_after", after.nodes},
                                {"parameter_bytes_before", before.parameter_bytes},
                                {"parameter_bytes_after", after.parameter_bytes},
                                {"operators_before", before.operators},
                                {"operators_after", after.operators},
                                {"rules", rules},
                                {"missed", missed}};
    if (!options.weights.made.format.empty())
      json["quantized_weights"] = nlohmann::ordered_json::parse(weights_json(options.weights.made));
    if (o.watched.times) json["passes"] = nlohmann::ordered_json::parse(watch.json());
    print(json_text(json));
    return {};
  }
  if (o.quiet) return {};
  print(fmt::format("{} → {} nodes, parameters {} → {}\n", before.nodes, after.nodes,
                    format_bytes(static_cast<double>(before.parameter_bytes)),
                    format_bytes(static_cast<double>(after.parameter_bytes))));
  struct Row {
    std::string op;
    int64_t before, after;
  };
  std::vector<Row> rows;
  std::map<std::string, int64_t> all = before.operators;
  all.insert(after.operators.begin(), after.operators.end());
  const auto count = [](const FileFacts &facts, const std::string &op) {
    const auto it = facts.operators.find(op);
    return it == facts.operators.end() ? 0 : it->second;
  };
  for (const auto &[op, unused] : all) {
    const Row row{op, count(before, op), count(after, op)};
    if (row.before != row.after) rows.push_back(row);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row &a, const Row &b) {
    return std::abs(a.before - a.after) > std::abs(b.before - b.after);
  });
  for (const Row &row : rows) print(fmt::format("  {:<26} {:>5} → {}\n", row.op, row.before, row.after));
  print(watch.text());
  if (o.report) {
    print(rules_text(optimized));
    print(steps_text(lowered));
    const std::string text = diff_text(original, optimized.graph, changes, o.verbose ? 0 : 20);
    print("what became of the nodes, of " + text);
  }
  if (!o.output.empty()) print(fmt::format("wrote {}\n", o.output));
  if (!o.html.empty())
    print(fmt::format("wrote {} ({}, opens offline)\n", o.html, format_bytes(static_cast<int64_t>(page_bytes))));
  return {};
}

}  // namespace

void add_opt(CommandLine &line, int &code) {
  auto o = std::make_shared<OptOptions>();
  Verb *verb = line.add_verb("opt", "write the optimized model as .onnx");
  verb->footer("Example: optc opt bert.onnx -o bert.opt.onnx --opt-report --html bert.html");
  add_model(*verb, *o);
  verb->add_option("-o,--output", o->output, "the .onnx file to write; without it only the report is printed")
      ->type_name("FILE");
  verb->add_option("--opset", o->opset,
                   "version of ai.onnx to write (default: the model's own, or the lowest above that can say it)")
      ->type_name("N")
      ->between(1, 1000);
  verb->add_flag("--force", o->force, "replace the model itself when -o names it");
  verb->add_flag("--external,!--no-external", o->external, "weights in OUT.onnx.data beside the model");
  verb->add_flag("--opt-report", o->report,
                 "which rules were applied and which were not, with reasons, and what became of the nodes");
  verb->add_option("--html", o->html,
                   "write a page that draws the model before and after, with the rules and the kernels; opens offline")
      ->type_name("FILE");
  verb->add_option("-O", o->level, "0: no rewrites; 1..3: all (default 2)")->between(0, 3)->type_name("LEVEL");
  add_pass_options(*verb, o->watched);
  add_disable_pass(*verb, *o);
  add_pass_choice(*verb, *o);
  add_weight_options(*verb, *o);
  add_shape_options(*verb, *o);
  add_step_options(*verb, *o);
  add_output_options(*verb, *o);
  on_parsed(*verb, o, code, [o](Diagnostics &diagnostics) { return opt(*o, diagnostics); });
}

}  // namespace optc::cli
