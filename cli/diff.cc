// optc diff A [B]: what is different between two models, or between a model and what optc makes of it.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/common.h"
#include "cli/optimized_diff.h"
#include "driver/bundle_diff.h"
#include "emit/report/diff.h"
#include "importer/importer.h"
#include "importer/provenance.h"
#include "support/staging.h"

namespace optc::cli {
namespace {

constexpr size_t kLines = 40;  // patterns, and changes, that are printed without -v

struct DiffOptions : CommonOptions {
  std::string other, html, explorer;
  std::vector<std::string> ignored;
  bool exit_code = false;
  double rtol = -1;
  std::string input_folder;
};

// "diff.json" -> "diff.mapping.json"
std::string mapping_file(const std::string &graphs) {
  const std::filesystem::path path(graphs);
  return (path.parent_path() / (path.stem().string() + ".mapping" + path.extension().string())).string();
}

Status write_page(const DiffOptions &o, const Graph &before, const Graph &after, const GraphDiff &diff,
                  const std::string &title, const PageFacts &facts, Diagnostics &diagnostics) {
  if (!o.explorer.empty()) {
    const ModelExplorerFiles files = model_explorer_files(before, after, diff, title, facts.scopes);
    const std::string mapping = mapping_file(o.explorer);
    OPTC_TRY(write_file(o.explorer, files.graphs, diagnostics));
    OPTC_TRY(write_file(mapping, files.mapping, diagnostics));
    if (!o.quiet && o.format == "text")
      print(fmt::format("wrote {} for Model Explorer, and {} for its synced navigation\n", o.explorer, mapping));
  }
  if (o.html.empty()) return {};
  const std::string page = diff_html(before, after, diff, title, facts);
  OPTC_TRY(write_file(o.html, page, diagnostics));
  if (!o.quiet && o.format == "text")
    print(fmt::format("wrote {} ({}, opens offline)\n", o.html, format_bytes(static_cast<int64_t>(page.size()))));
  return {};
}

bool draws(const DiffOptions &o) { return !o.html.empty() || !o.explorer.empty(); }

// Where the nodes of a model that optc wrote come from, and by which rules, as it noted at them.
Result<Provenance> noted_in(const std::string &path, Diagnostics &diagnostics) {
  OPTC_ASSIGN(const std::vector<NodeNote> notes, read_notes(path, diagnostics));
  Provenance noted;
  for (const NodeNote &note : notes) {
    auto *map = note.key == "optc.origin" ? &noted.origin : note.key == "optc.rules" ? &noted.rules : nullptr;
    if (!map) continue;
    std::vector<std::string> &list = (*map)[note.node];
    for (size_t from = 0; from <= note.value.size();) {
      const size_t to = std::min(note.value.find('\n', from), note.value.size());
      list.push_back(note.value.substr(from, to - from));
      from = to + 1;
    }
  }
  return noted;
}

Status tell(const DiffOptions &o, const Graph &before, const Graph &after, GraphDiff result, const std::string &title,
            const PageFacts &facts, Diagnostics &diagnostics) {
  uint32_t ignored = 0;
  for (const ChangeKind kind : kChangeKinds)
    if (std::find(o.ignored.begin(), o.ignored.end(), to_string(kind)) != o.ignored.end()) ignored |= bit_of(kind);
  if (ignored) ignore_changes(before, after, result, ignored);
  const size_t lines = o.verbose ? 0 : kLines;
  print(o.format == "json"       ? diff_json(before, after, result)
        : o.format == "markdown" ? diff_markdown(before, after, result, title, lines)
                                 : diff_text(before, after, result, lines));
  OPTC_TRY(write_page(o, before, after, result, title, facts, diagnostics));
  if (o.exit_code && !result.equal()) return diagnostics.error(ErrorKind::kMismatch, "the models differ");
  return {};
}

// Two files are read, not compiled: they may hold any operators.
Status diff_files(const DiffOptions &o, Diagnostics &diagnostics) {
  if (!o.dims.empty() || !o.shapes.empty() || o.constant_defaults || !o.custom_ops.empty() || !o.externs.empty() ||
      !o.disabled.empty())
    return diagnostics.error(ErrorKind::kUsage, "two models are compared as their files have them", {},
                             "--dim, --shape, --constant-defaults, --custom-op, --extern and --disable-pass say how A "
                             "is optimized, where B is absent");
  OPTC_ASSIGN(const Graph before, read_graph(o.model, diagnostics));
  diagnostics.set_file(o.other);
  OPTC_ASSIGN(const Graph after, read_graph(o.other, diagnostics));
  OPTC_ASSIGN(const Provenance noted, noted_in(o.other, diagnostics));
  PageFacts facts;
  if (draws(o)) {
    OPTC_ASSIGN(facts.scopes, noted_scopes(o.other, diagnostics));
    OPTC_ASSIGN(NodeScopes scopes, noted_scopes(o.model, diagnostics));
    facts.scopes.merge(scopes);
  }
  return tell(o, before, after, diff_graphs(before, after, noted), file_name(o.model) + " → " + file_name(o.other),
              facts, diagnostics);
}

// Two bundles are built and run.
Status diff_two_bundles(const DiffOptions &o, Diagnostics &diagnostics) {
  if (draws(o) || !o.ignored.empty() || !o.shapes.empty() || o.constant_defaults || !o.custom_ops.empty() ||
      !o.externs.empty() || !o.disabled.empty() || o.format == "markdown")
    return diagnostics.error(ErrorKind::kUsage, "two bundles are compared by what they compute", {},
                             "--dim, --inputs, --seed, --rtol, --exit-code and --format=json go with that");
  BundleDiffOptions options;
  options.inputs = o.input_folder;
  options.seed = o.seed;
  options.relative = std::max(0.0, o.rtol);
  OPTC_ASSIGN(const CompileOptions parsed, compile_options(o, diagnostics));
  for (const DimPin &pin : parsed.import.dims) {
    if (pin.min != pin.max)
      return diagnostics.error(ErrorKind::kUsage, fmt::format("--dim {}: a run has one size", pin.name));
    options.sizes[pin.name] = pin.min;
  }
  OPTC_ASSIGN(const BundleDiff result, diff_bundles(o.model, o.other, options, diagnostics));
  if (o.format == "json") {
    nlohmann::ordered_json outputs = nlohmann::ordered_json::array();
    for (const auto &[name, worst] : result.outputs)
      outputs.push_back({{"name", name},
                         {"equal", worst.ok},
                         {"max_difference", worst.max_difference},
                         {"range", worst.range},
                         {"median_ulp", worst.median_ulp},
                         {"problem", worst.problem}});
    print(nlohmann::ordered_json{{"schema_version", 1},
                                 {"equal", result.equal()},
                                 {"same_weights", result.same_weights},
                                 {"same_precision", result.same_precision},
                                 {"sets", result.sets},
                                 {"outputs", outputs}}
              .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
          "\n");
  } else {
    std::string sizes;
    for (const std::string &set : result.sets) sizes += (sizes.empty() ? "" : "; ") + (set.empty() ? "as given" : set);
    print(fmt::format("{} runs of both ({}){}{}\n", result.sets.size(), sizes,
                      result.same_weights ? "" : ", other weights", result.same_precision ? "" : ", other precision"));
    for (const auto &[name, worst] : result.outputs) {
      const bool bits = worst.problem.empty() && worst.max_difference == 0 && worst.ok;
      print(fmt::format("{} {}  {}\n",
                        bits       ? "same  "
                        : worst.ok ? "within"
                                   : "differs",
                        name, bits ? fmt::format("{} numbers", worst.count) : describe(worst)));
    }
  }
  if (o.exit_code && !result.equal()) return diagnostics.error(ErrorKind::kMismatch, "the bundles' results differ");
  return {};
}

Status diff(const DiffOptions &o, Diagnostics &diagnostics) {
  const bool bundle = is_bundle_folder(o.model), other_bundle = !o.other.empty() && is_bundle_folder(o.other);
  if (bundle != other_bundle)
    return diagnostics.error(ErrorKind::kUsage, "a bundle is compared with a bundle", {},
                             "`optc verify MODEL` compares what a model's bundle computes with ONNX Runtime");
  if (bundle) return diff_two_bundles(o, diagnostics);
  if (o.rtol >= 0 || !o.input_folder.empty())
    return diagnostics.error(ErrorKind::kUsage, "--rtol and --inputs are for two bundles", {},
                             "`optc verify A --against B` runs two models");
  if (!o.other.empty()) return diff_files(o, diagnostics);
  OPTC_ASSIGN(const CompileOptions options, compile_options(o, diagnostics));
  CommonOptions silent = o;
  silent.quiet = true;
  const std::unique_ptr<Listener> listener = make_listener(silent);
  OPTC_ASSIGN(const Graph before, load_model(o.model, options, *listener, diagnostics));
  OPTC_ASSIGN(const Optimized optimized, optimize_model(before.clone(), options, *listener, diagnostics));
  const LoweredGraph lowered = lower_if_possible(optimized.graph, options, *listener);
  PageFacts facts = facts_of_page(optimized, lowered);
  if (draws(o)) {
    OPTC_ASSIGN(facts.scopes, noted_scopes(o.model, diagnostics));
  }
  return tell(o, before, optimized.graph, diff_optimized(before, optimized, lowered),
              file_name(o.model) + " → optimized", facts, diagnostics);
}

}  // namespace

void add_diff(CommandLine &line, int &code) {
  auto o = std::make_shared<DiffOptions>();
  Verb *verb = line.add_verb(
      "diff", "what is different between two models, a model and what optc makes of it, or two bundles' results");
  verb->footer("Example: optc diff before.onnx after.onnx --html diff.html");
  verb->add_option("A", o->model, "the model before, or a bundle's folder")->required()->type_name("");
  verb->add_option("B", o->other, "the model after; without it: A as optc optimizes it")->type_name("");
  verb->add_option("--html", o->html, "also write a page that opens offline")->type_name("FILE");
  verb->add_option("--model-explorer", o->explorer,
                   "also write both graphs as a JSON file that Google's Model Explorer opens, and beside it as "
                   "NAME.mapping.json what its synced navigation reads")
      ->type_name("FILE");
  std::vector<std::string> kinds;
  for (const ChangeKind kind : kChangeKinds) kinds.emplace_back(to_string(kind));
  verb->add_option("--ignore", o->ignored,
                   "kinds of changes that count as none, comma-separated: opset, input, output, operator, attribute, "
                   "edge, type, weight")
      ->delimiter(',')
      ->one_of(kinds)
      ->type_name("KIND");
  verb->add_flag("--exit-code", o->exit_code, "exit with 1 when the models, or the bundles' results, differ");
  constexpr const char *kBundles = "Two bundles";
  verb->add_option("--inputs", o->input_folder, "a folder of input_0.npy or .pb, ... (default: two random sets)")
      ->type_name("DIR")
      ->group(kBundles);
  verb->add_option("--seed", o->seed, "of random inputs")->type_name("N")->group(kBundles);
  verb->add_option("--rtol", o->rtol, "differences up to this part of an output's largest number are none (default 0)")
      ->type_name("R")
      ->group(kBundles);
  add_disable_pass(*verb, *o);
  add_shape_options(*verb, *o);
  add_step_options(*verb, *o);
  add_output_options(*verb, *o, {"text", "json", "markdown"});
  on_parsed(*verb, o, code, [o](Diagnostics &diagnostics) { return diff(*o, diagnostics); });
}

}  // namespace optc::cli
