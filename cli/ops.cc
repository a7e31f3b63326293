// optc ops: the operators that optc knows; docs/operators.md is its output.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/common.h"
#include "ops/registry.h"

namespace optc::cli {

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
      nlohmann::ordered_json list = nlohmann::ordered_json::array();
      for (const OpDef *op : ops)
        list.push_back({{"name", op->name},
                        {"version", op->version},
                        {"form", to_string(op->form)},
                        {"version_steps", op->steps.size()}});
      print(nlohmann::ordered_json{{"schema_version", 1}, {"operators", list}}.dump(
                2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
            "\n");
      return;
    }
    std::string text;
    if (o->format == "markdown") text = "| operator | since opset | form |\n|---|---|---|\n";
    for (const OpDef *op : ops)
      text += o->format == "markdown" ? fmt::format("| {} | {} | {} |\n", op->name, op->version, to_string(op->form))
                                      : fmt::format("{:<40} {:>3}  {}\n", op->name, op->version, to_string(op->form));
    if (o->format == "text") text += fmt::format("{} operators\n", ops.size());
    print(text);
  });
}

}  // namespace optc::cli
