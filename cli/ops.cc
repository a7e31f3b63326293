// optc ops: the operators that optc knows; docs/operators.md is its output as Markdown.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/common.h"
#include "ops/registry.h"

namespace optc::cli {
namespace {

// "ai.onnx.ml" of "ai.onnx.ml.Scaler"; optc's own operators stand in no model file.
std::string domain_of(const OpDef &op) {
  const size_t dot = op.name.rfind('.');
  return dot == std::string_view::npos ? "ai.onnx" : std::string(op.name.substr(0, dot));
}
std::string short_name(const OpDef &op) { return std::string(op.name.substr(op.name.rfind('.') + 1)); }

// Opset versions whose definitions differ and are read (written, too).
std::vector<int> older(const OpDef &op, bool written) {
  std::vector<int> versions;
  for (const VersionStep &step : op.steps)
    if (!written || step.down) versions.push_back(step.version);
  std::sort(versions.begin(), versions.end());
  return versions;
}

std::string_view on_gpu(const OpDef &op) {
  switch (op.form) {
    case OpForm::kLibrary:
    case OpForm::kControlFlow:
      return "on the CPU";
    case OpForm::kBody:
      return "as its operators";
    default:
      return "kernel";
  }
}

std::string list_text(const std::vector<int> &list) {
  std::string text;
  for (int v : list) text += (text.empty() ? "" : ", ") + std::to_string(v);
  return text;
}

nlohmann::ordered_json json_of(const std::vector<const OpDef *> &ops) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const OpDef *op : ops) {
    nlohmann::ordered_json row = {{"name", op->name},
                                  {"domain", domain_of(*op)},
                                  {"version", op->version},
                                  {"form", to_string(op->form)},
                                  {"gpu", on_gpu(*op)},
                                  {"changes_read", older(*op, false)},
                                  {"changes_written", older(*op, true)},
                                  {"pure", op->pure}};
    if (op->body) {
      row["inputs"] = op->signature.inputs;
      row["outputs"] = op->signature.outputs;
      row["attributes"] = op->signature.attributes;
    }
    list.push_back(std::move(row));
  }
  return {{"schema_version", 2}, {"operators", list}};
}

std::string row_text(const OpDef &op) {
  const std::vector<int> written = older(op, true);
  std::string changes;
  for (int v : older(op, false)) {
    const char *bold = std::find(written.begin(), written.end(), v) != written.end() ? "**" : "";
    changes += fmt::format("{}{}{}{}", changes.empty() ? "" : ", ", bold, v, bold);
  }
  return fmt::format("| {} | {} | {} | {} | {} |\n", short_name(op), op.version, changes, to_string(op.form),
                     on_gpu(op));
}
std::string body_row_text(const OpDef &op) {
  return fmt::format("| {} | {} | {} |\n", short_name(op), op.signature.inputs, op.signature.attributes);
}

std::string markdown_of(const std::vector<const OpDef *> &ops) {
  std::map<std::string, std::vector<const OpDef *>> domains;
  for (const OpDef *op : ops) domains[domain_of(*op)].push_back(op);
  std::string text = R"(# Operators

Written by `optc ops --format=markdown`. *Since*: the opset version of the definition that optc has. Nodes of older versions are brought to
it when a model is read, through the *changes* that came with the versions named; where one is bold, `optc opt` also writes the older form.
*Form*: pointwise, index, reduction, contraction and expansion are loop nests, which have kernels for CPU and GPU; library functions and
control flow run on the CPU. Other operators are said in standard ones when a model is read: an attribute that is not named is refused
("!": required, "?": may be absent, "*": any number).
)";
  for (const auto &[domain, rows] : domains) {
    if (domain == "optc") continue;
    text += fmt::format("\n## {}\n", domain);
    for (const bool bodies : {false, true}) {
      std::string table;
      for (const OpDef *op : rows)
        if ((op->body != nullptr) == bodies) table += bodies ? body_row_text(*op) : row_text(*op);
      if (table.empty()) continue;
      text += bodies ? "\n| said in standard operators | inputs | attributes |\n|---|---|---|\n"
                     : "\n| operator | since | changes | form | GPU |\n|---|---|---|---|---|\n";
      text += table;
    }
  }
  return text;
}

}  // namespace

void add_ops(CommandLine &line, int &code) {
  auto o = std::make_shared<CommonOptions>();
  Verb *verb = line.add_verb("ops", "list the operators that are supported");
  verb->add_option("--format", o->format, "text, json or markdown")
      ->one_of({"text", "json", "markdown"})
      ->type_name("FORM");
  verb->callback([o, &code] {
    code = 0;
    const std::vector<const OpDef *> ops = all_ops();
    if (o->format == "json") {
      print(json_of(ops).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
      return;
    }
    if (o->format == "markdown") {
      print(markdown_of(ops));
      return;
    }
    std::string text =
        fmt::format("{:<44} {:>5}  {:<13} {:<16} {}\n", "operator", "since", "form", "GPU", "changes read");
    for (const OpDef *op : ops)
      text += fmt::format("{:<44} {:>5}  {:<13} {:<16} {}\n", op->name, op->version, to_string(op->form), on_gpu(*op),
                          list_text(older(*op, false)));
    print(text + fmt::format("{} operators\n", ops.size()));
  });
}

}  // namespace optc::cli
