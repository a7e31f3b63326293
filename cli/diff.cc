// optc diff A B: what is different between two models.

#include <fmt/format.h>

#include "cli/common.h"
#include "emit/report/diff.h"
#include "support/file.h"

namespace optc::cli {
namespace {

struct DiffOptions : CommonOptions {
  std::string other, html;
  bool exit_code = false;
};

Status diff(const DiffOptions &o, Diagnostics &diagnostics) {
  OPTC_ASSIGN(const CompileOptions options, compile_options(o, diagnostics));
  CommonOptions silent = o;
  silent.quiet = true;
  const std::unique_ptr<Listener> listener = make_listener(silent);
  OPTC_ASSIGN(const Graph before, load_model(o.model, options, *listener, diagnostics));
  diagnostics.set_file(o.other);
  OPTC_ASSIGN(const Graph after, load_model(o.other, options, *listener, diagnostics));
  const GraphDiff result = diff_graphs(before, after);
  print(o.format == "json" ? diff_json(before, after, result) : diff_text(before, after, result));
  if (!o.html.empty()) {
    const auto base = [](const std::string &path) { return path.substr(path.find_last_of('/') + 1); };
    const std::string page = diff_html(before, after, result, base(o.model) + " → " + base(o.other));
    OPTC_TRY(write_file(o.html, page, diagnostics));
    if (!o.quiet && o.format == "text")
      print(fmt::format("wrote {} ({}, opens offline)\n", o.html, format_bytes(static_cast<int64_t>(page.size()))));
  }
  if (o.exit_code && !result.patterns.empty()) return diagnostics.error(ErrorKind::kMismatch, "the models differ");
  return {};
}

}  // namespace

void add_diff(CLI::App &app, int &code) {
  auto o = std::make_shared<DiffOptions>();
  CLI::App *verb = app.add_subcommand("diff", "what is different between two models");
  verb->add_option("A", o->model, "the model before")->required();
  verb->add_option("B", o->other, "the model after")->required();
  verb->add_option("--html", o->html, "also write a page that opens offline");
  verb->add_flag("--exit-code", o->exit_code, "exit with 1 when the models differ");
  add_output_options(*verb, *o);
  verb->callback([o, &code] {
    Diagnostics diagnostics(o->model);
    const Status status = diff(*o, diagnostics);
    if (!status.ok())
      code = report(diagnostics, status.failure(), *o);
    else
      print_warnings(diagnostics, *o);
  });
}

}  // namespace optc::cli
