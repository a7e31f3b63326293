// Functions that the caller gives (ImportOptions::custom_ops) for operators of domains that neither ONNX nor optc
// knows.
#include <onnx/defs/parser.h>

#include <stdexcept>

#include "importer/internal_converter.h"
#include "importer/internal_parse.h"
#include "support/file.h"

namespace optc {

Status Converter::read_custom_ops() {
  for (const std::string &path : options_.custom_ops) {
    const auto wrong = [&](std::string text) {
      for (char &c : text)
        if (c == '\n') c = ' ';
      return diagnostics_.error(ErrorKind::kUsage, "--custom-op " + path + ": " + text, {},
                                "the file holds functions in ONNX's text form: <domain: \"my.domain\", opset_import: "
                                "[\"\" : 17]> Name <attribute> (x) => (y) { y = Relu (x) }");
    };
    OPTC_ASSIGN(const std::string text, read_file(path, diagnostics_));
    if (nests_too_deep(text)) return wrong("brackets nest too deep");
    try {
      onnx::OnnxParser parser(text.c_str());
      do {
        onnx::FunctionProto &function = custom_.emplace_back();
        const onnx::Common::Status status = parser.Parse(function);
        if (!status.IsOK()) return wrong(status.ErrorMessage());
        const std::string domain = normal_domain(function.domain());
        if (function.name().empty()) return wrong("a function has no name");
        if (onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map().count(domain) > 0)
          return wrong("function " + function.name() + " is of ONNX's own domain " +
                       (domain.empty() ? "ai.onnx" : domain));
        if (!functions_.emplace(function_key(domain, function.name(), function.overload()), &function).second)
          return wrong("function " + domain + "." + function.name() + " is defined already, here or in the model");
      } while (!parser.EndOfInput());
    } catch (const std::exception &error) {
      return wrong(error.what());
    }
  }
  return {};
}

bool Converter::is_custom(const onnx::FunctionProto &function) const {
  for (const onnx::FunctionProto &custom : custom_)
    if (&custom == &function) return true;
  return false;
}

}  // namespace optc
