// optc diff A [B]: what is different between two models, or between a model and what optc makes of it.

#include <fmt/format.h>

#include <algorithm>

#include "cli/common.h"
#include "emit/report/diff.h"
#include "importer/importer.h"
#include "importer/provenance.h"
#include "support/staging.h"

namespace optc::cli {
namespace {

constexpr size_t kLines = 40;  // patterns, and changes, that are printed without -v

struct DiffOptions : CommonOptions {
  std::string other, html;
  std::vector<std::string> ignored;
  bool exit_code = false;
};

Status write_page(const DiffOptions &o, const Graph &before, const Graph &after, const GraphDiff &diff,
                  const std::string &title, Diagnostics &diagnostics) {
  if (o.html.empty()) return {};
  const std::string page = diff_html(before, after, diff, title);
  OPTC_TRY(write_file(o.html, page, diagnostics));
  if (!o.quiet && o.format == "text")
    print(fmt::format("wrote {} ({}, opens offline)\n", o.html, format_bytes(static_cast<int64_t>(page.size()))));
  return {};
}

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
            Diagnostics &diagnostics) {
  uint32_t ignored = 0;
  for (const ChangeKind kind : kChangeKinds)
    if (std::find(o.ignored.begin(), o.ignored.end(), to_string(kind)) != o.ignored.end()) ignored |= bit_of(kind);
  if (ignored) ignore_changes(before, after, result, ignored);
  const size_t lines = o.verbose ? 0 : kLines;
  print(o.format == "json"       ? diff_json(before, after, result)
        : o.format == "markdown" ? diff_markdown(before, after, result, title, lines)
                                 : diff_text(before, after, result, lines));
  OPTC_TRY(write_page(o, before, after, result, title, diagnostics));
  if (o.exit_code && !result.equal()) return diagnostics.error(ErrorKind::kMismatch, "the models differ");
  return {};
}

// Two files are read, not compiled: they may hold any operators.
Status diff_files(const DiffOptions &o, Diagnostics &diagnostics) {
  if (!o.dims.empty() || !o.shapes.empty() || !o.custom_ops.empty() || !o.externs.empty() || !o.disabled.empty())
    return diagnostics.error(
        ErrorKind::kUsage, "two models are compared as their files have them", {},
        "--dim, --shape, --custom-op, --extern and --disable-pass say how A is optimized, where B is absent");
  OPTC_ASSIGN(const Graph before, read_graph(o.model, diagnostics));
  diagnostics.set_file(o.other);
  OPTC_ASSIGN(const Graph after, read_graph(o.other, diagnostics));
  OPTC_ASSIGN(const Provenance noted, noted_in(o.other, diagnostics));
  return tell(o, before, after, diff_graphs(before, after, noted), file_name(o.model) + " → " + file_name(o.other),
              diagnostics);
}

Status diff(const DiffOptions &o, Diagnostics &diagnostics) {
  if (!o.other.empty()) return diff_files(o, diagnostics);
  OPTC_ASSIGN(const CompileOptions options, compile_options(o, diagnostics));
  CommonOptions silent = o;
  silent.quiet = true;
  const std::unique_ptr<Listener> listener = make_listener(silent);
  OPTC_ASSIGN(const Graph before, load_model(o.model, options, *listener, diagnostics));
  OPTC_ASSIGN(const Optimized optimized, optimize_model(before.clone(), options, *listener, diagnostics));
  return tell(o, before, optimized.graph, diff_optimized(before, optimized, optimized.graph, options, *listener),
              file_name(o.model) + " → optimized", diagnostics);
}

}  // namespace

void add_diff(CommandLine &line, int &code) {
  auto o = std::make_shared<DiffOptions>();
  Verb *verb =
      line.add_verb("diff", "what is different between two models, or between a model and what optc makes of it");
  verb->footer("Example: optc diff before.onnx after.onnx --html diff.html");
  verb->add_option("A", o->model, "the model before")->required()->type_name("");
  verb->add_option("B", o->other, "the model after; without it: A as optc optimizes it")->type_name("");
  verb->add_option("--html", o->html, "also write a page that opens offline")->type_name("FILE");
  std::vector<std::string> kinds;
  for (const ChangeKind kind : kChangeKinds) kinds.emplace_back(to_string(kind));
  verb->add_option("--ignore", o->ignored,
                   "kinds of changes that count as none, comma-separated: opset, input, output, operator, attribute, "
                   "edge, type, weight")
      ->delimiter(',')
      ->one_of(kinds)
      ->type_name("KIND");
  verb->add_flag("--exit-code", o->exit_code, "exit with 1 when the models differ");
  add_disable_pass(*verb, *o);
  add_shape_options(*verb, *o);
  add_output_options(*verb, *o, {"text", "json", "markdown"});
  on_parsed(*verb, o, code, [o](Diagnostics &diagnostics) { return diff(*o, diagnostics); });
}

}  // namespace optc::cli
