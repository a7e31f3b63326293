// optc convert MODEL -o OUT: the same model in another form, without compiling it.

#include "convert/convert.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "cli/common.h"
#include "emit/report/report.h"

namespace optc::cli {
namespace {

struct ConvertVerbOptions : CommonOptions {
  ConvertOptions convert;
  std::string to, external, float_type;
  std::vector<std::string> connect, rename;
};

Result<ConvertOptions> read_options(const ConvertVerbOptions &o, Diagnostics &diagnostics) {
  ConvertOptions options = o.convert;
  options.input = o.model;
  for (const ModelForm form : {ModelForm::kBinary, ModelForm::kText, ModelForm::kJson, ModelForm::kTextProto})
    if (o.to == to_string(form)) options.form = form;
  if (!o.float_type.empty()) options.float_type = element_type_from_string(o.float_type);
  if (o.float_type.empty() && (options.float_io || !options.keep_float.empty()))
    return diagnostics.error(ErrorKind::kUsage, "--float-io and --keep-float are for --float TYPE");
  if (o.external == "none") {
    options.weights = WeightsPlace::kInside;
  } else if (!o.external.empty()) {
    options.weights = WeightsPlace::kExternal;
    options.external_file = o.external;
  }
  const auto pairs = [&](const std::vector<std::string> &texts, const char *option,
                         std::vector<std::pair<std::string, std::string>> &list) -> Status {
    for (const std::string &text : texts) {
      const size_t at = text.find('=');
      if (at == std::string::npos || at == 0 || at + 1 == text.size())
        return diagnostics.error(ErrorKind::kUsage, fmt::format("{} {}: expected two names, A=B", option, text));
      list.emplace_back(text.substr(0, at), text.substr(at + 1));
    }
    return {};
  };
  OPTC_TRY(pairs(o.connect, "--connect", options.connect));
  OPTC_TRY(pairs(o.rename, "--rename", options.rename));
  if (options.output.empty() && options.weights_to.empty())
    return diagnostics.error(ErrorKind::kUsage, "-o FILE is required, or --weights-to FILE");
  if (options.merge.empty() && (!options.connect.empty() || !options.merge_prefix.empty()))
    return diagnostics.error(ErrorKind::kUsage, "--connect and --merge-prefix are for --merge OTHER");
  if (options.external_threshold < 0)
    return diagnostics.error(ErrorKind::kUsage, "--threshold: a number of bytes from 0 on");
  return options;
}

// Two lines: what has the new type; what has not, and why.
std::string float_text(const std::string &type, const FloatFacts &facts) {
  std::string text =
      fmt::format("{}: {} nodes and {} constants, {} casts\n", type, facts.nodes, facts.constants, facts.casts);
  std::map<std::string, std::map<std::string, int64_t>> reasons;
  for (const auto &[node, op, why] : facts.stays) ++reasons[why][op];
  std::string list;
  for (const auto &[why, ops] : reasons) {
    std::string names;
    int64_t count = 0;
    for (const auto &[op, n] : ops) {
      names += fmt::format("{}{}{}", names.empty() ? "" : ", ", n > 1 ? fmt::format("{} ", n) : "", op);
      count += n;
    }
    list += fmt::format("  {} {} ({})\n", count, why, names);
  }
  if (!facts.stays.empty()) text += fmt::format("{} nodes stay as they are:\n{}", facts.stays.size(), list);
  return text;
}

void tell(const ConvertVerbOptions &o, const ConvertFacts &facts) {
  if (o.format == "json") {
    nlohmann::ordered_json opsets = nlohmann::ordered_json::object(), files = nlohmann::ordered_json::array();
    for (const auto &[domain, version] : facts.opsets) opsets[domain] = version;
    for (const auto &[path, bytes] : facts.files) files.push_back({{"path", path}, {"bytes", bytes}});
    nlohmann::ordered_json floats;
    if (facts.floats) {
      nlohmann::ordered_json stays = nlohmann::ordered_json::array();
      for (const auto &[node, op, why] : facts.floats->stays)
        stays.push_back({{"node", node}, {"op", op}, {"why", why}});
      floats = {{"to", o.float_type},
                {"nodes", facts.floats->nodes},
                {"casts", facts.floats->casts},
                {"constants", facts.floats->constants},
                {"stays", stays}};
    }
    print(nlohmann::ordered_json{{"schema_version", 1},
                                 {"read_as", to_string(facts.read_as)},
                                 {"form", to_string(facts.form)},
                                 {"nodes", facts.nodes},
                                 {"tensors", facts.tensors},
                                 {"tensor_bytes", facts.tensor_bytes},
                                 {"opsets", opsets},
                                 {"files", files},
                                 {"float", floats}}
              .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
          "\n");
    return;
  }
  if (o.quiet) return;
  std::string opsets;
  for (const auto &[domain, version] : facts.opsets)
    opsets += fmt::format("{}{} {}", opsets.empty() ? "" : ", ", domain == "ai.onnx" ? "opset" : domain, version);
  if (!o.convert.output.empty())
    print(fmt::format("{} → {}: {}, {} nodes, {} tensors\n", to_string(facts.read_as), to_string(facts.form), opsets,
                      facts.nodes, facts.tensors));
  if (facts.floats) print(float_text(o.float_type, *facts.floats));
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
  constexpr const char *kChanges = "Changes";
  verb->add_option(
          "--float", o->float_type,
          "compute in this type what f32, f16 or bf16 do now; what has no such form, positions, coordinates and "
          "sums of squares stay, inputs and outputs too")
      ->one_of({"f32", "f16", "bf16"})
      ->type_name("TYPE")
      ->group(kChanges);
  verb->add_flag("--float-io", o->convert.float_io, "--float for the model's inputs and outputs, too")->group(kChanges);
  verb->add_option("--keep-float", o->convert.keep_float,
                   "an operator or node:NAME (node:PREFIX*) that --float leaves as it is (repeatable)")
      ->type_name("WHAT")
      ->group(kChanges);
  verb->add_option("--opset", o->convert.opset,
                   "bring every node to its form in version N of ai.onnx; nodes whose definition is the same stay")
      ->type_name("N")
      ->between(1, 1000)
      ->group(kChanges);
  verb->add_option("--extract", o->convert.extract,
                   "the part of the graph between values: a,b..c,d; an empty side is the model's own inputs or outputs")
      ->type_name("IN..OUT")
      ->group(kChanges);
  verb->add_option("--rename", o->rename,
                   "a new name for a value, or with dim: or node: before OLD for a dimension or a node (repeatable)")
      ->type_name("OLD=NEW")
      ->group(kChanges);
  verb->add_option("--merge", o->convert.merge, "put this model behind MODEL; --connect says how they meet")
      ->type_name("OTHER")
      ->group(kChanges);
  verb->add_option("--connect", o->connect, "a value of MODEL that is an input of OTHER (repeatable)")
      ->type_name("VALUE=INPUT")
      ->group(kChanges);
  verb->add_option("--merge-prefix", o->convert.merge_prefix, "stands before all other names of OTHER")
      ->type_name("TEXT")
      ->group(kChanges);
  verb->add_option("--weights-from", o->convert.weights_from,
                   "take initializers from this file of safetensors, by name; types and shapes must be the model's")
      ->type_name("FILE")
      ->group(kChanges);
  verb->add_option("--weights-to", o->convert.weights_to, "also write the initializers as safetensors; needs no -o")
      ->type_name("FILE");
  verb->add_flag("--allow-loss", o->convert.allow_loss,
                 "leave out what the form cannot hold (a warning says what) instead of refusing");
  verb->add_flag("--force", o->convert.force, "replace files that the model is read from");
  add_output_options(*verb, *o);
  on_parsed(*verb, o, code, [o](Diagnostics &diagnostics) { return convert(*o, diagnostics); });
}

}  // namespace optc::cli
