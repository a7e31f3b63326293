// optc convert MODEL -o OUT: the same model in another form, without compiling it.

#include "convert/convert.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/common.h"
#include "emit/report/report.h"

namespace optc::cli {
namespace {

struct ConvertVerbOptions : CommonOptions {
  ConvertOptions convert;
  std::string to, external;
};

Result<ConvertOptions> read_options(const ConvertVerbOptions &o, Diagnostics &diagnostics) {
  ConvertOptions options = o.convert;
  options.input = o.model;
  for (const ModelForm form : {ModelForm::kBinary, ModelForm::kText, ModelForm::kJson, ModelForm::kTextProto})
    if (o.to == to_string(form)) options.form = form;
  if (o.external == "none") {
    options.weights = WeightsPlace::kInside;
  } else if (!o.external.empty()) {
    options.weights = WeightsPlace::kExternal;
    options.external_file = o.external;
  }
  if (options.external_threshold < 0)
    return diagnostics.error(ErrorKind::kUsage, "--threshold: a number of bytes from 0 on");
  return options;
}

void tell(const ConvertVerbOptions &o, const ConvertFacts &facts) {
  if (o.format == "json") {
    nlohmann::ordered_json opsets = nlohmann::ordered_json::object(), files = nlohmann::ordered_json::array();
    for (const auto &[domain, version] : facts.opsets) opsets[domain] = version;
    for (const auto &[path, bytes] : facts.files) files.push_back({{"path", path}, {"bytes", bytes}});
    print(nlohmann::ordered_json{{"schema_version", 1},
                                 {"read_as", to_string(facts.read_as)},
                                 {"form", to_string(facts.form)},
                                 {"nodes", facts.nodes},
                                 {"tensors", facts.tensors},
                                 {"tensor_bytes", facts.tensor_bytes},
                                 {"opsets", opsets},
                                 {"files", files}}
              .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
          "\n");
    return;
  }
  if (o.quiet) return;
  std::string opsets;
  for (const auto &[domain, version] : facts.opsets)
    opsets += fmt::format("{}{} {}", opsets.empty() ? "" : ", ", domain == "ai.onnx" ? "opset" : domain, version);
  print(fmt::format("{} → {}: {}, {} nodes, {} tensors\n", to_string(facts.read_as), to_string(facts.form), opsets,
                    facts.nodes, facts.tensors));
  for (const auto &[path, bytes] : facts.files) print(fmt::format("wrote {} ({})\n", path, format_bytes(bytes)));
}

Status convert(const ConvertVerbOptions &o, Diagnostics &diagnostics) {
  OPTC_ASSIGN(const ConvertOptions options, read_options(o, diagnostics));
  ConvertFacts facts;
  OPTC_TRY(convert_model(options, facts, diagnostics));
  tell(o, facts);
  return {};
}

}  // namespace

void add_convert(CommandLine &line, int &code) {
  auto o = std::make_shared<ConvertVerbOptions>();
  Verb *verb = line.add_verb("convert", "write a model in another form: text, JSON, weights inside or beside it");
  verb->footer("Example: optc convert model.onnx -o model.onnxtxt --external-data model.weights");
  add_model(*verb, *o);
  verb->add_option("-o,--output", o->convert.output,
                   "the file to write; its ending says the form: .onnx (binary), .onnxtxt (ONNX's text), .json, "
                   ".textproto")
      ->required()
      ->type_name("FILE");
  verb->add_option("--to", o->to, "the form, whatever the file's ending")
      ->one_of({"binary", "text", "json", "textproto"})
      ->type_name("FORM");
  verb->add_option("--external-data", o->external,
                   "the weights into this file, relative to the output's folder; none: all inside the model "
                   "(default: as the model has them, beside it in OUT.data)")
      ->type_name("FILE");
  verb->add_option("--threshold", o->convert.external_threshold,
                   "bytes from which on a tensor goes into the file of --external-data (default 1024)")
      ->type_name("N");
  verb->add_flag("--allow-loss", o->convert.allow_loss,
                 "leave out what the form cannot hold (a warning says what) instead of refusing");
  verb->add_flag("--force", o->convert.force, "replace files that the model is read from");
  add_output_options(*verb, *o);
  on_parsed(*verb, o, code, [o](Diagnostics &diagnostics) { return convert(*o, diagnostics); });
}

}  // namespace optc::cli
