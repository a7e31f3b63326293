// Operators that the application supplies (ImportOptions::externs): their nodes become optc.Extern (ops/extern.cc).
// What they give is not computed here, so its types are those that the model declares, or that the caller says.

#include <algorithm>

#include "importer/internal_converter.h"
#include "ops/extern.h"

namespace optc {

const ExternOperator *Converter::extern_of(const onnx::NodeProto &node) const {
  for (const ExternOperator &external : options_.externs)
    if (external.name == node.op_type() && external.domain == normal_domain(node.domain())) return &external;
  return nullptr;
}

Status Converter::check_externs() {
  const auto &standard = onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map();
  for (const ExternOperator &external : options_.externs) {
    const std::string text = external.domain + "::" + external.name;
    if (external.domain.empty() || standard.count(external.domain) || find_op(op_name(external.domain, external.name)))
      return diagnostics_.error(ErrorKind::kUsage, "--extern " + text + ": optc knows this operator, or its domain", {},
                                "it is for operators of a domain of your own");
    if (used_externs_.count(text) == 0)
      return diagnostics_.error(ErrorKind::kUsage, "--extern " + text + ": the model has no such node");
  }
  return {};
}

Status Converter::type_extern(NodeId id) {
  const std::string text(graph_.node(id).string_or(kExternOperator, ""));
  const auto external = std::find_if(options_.externs.begin(), options_.externs.end(),
                                     [&](const ExternOperator &e) { return e.domain + "::" + e.name == text; });
  const std::string help =
      "declare it in the model (value_info), or give the types of its outputs: --extern '" + text + "=float[1,3]'";
  const auto of_inputs = [&](Dim d) {
    std::vector<const DimSymbol *> symbols;
    collect_symbols(d, symbols);
    for (const DimSymbol *symbol : symbols) {
      bool found = false;
      for (ValueId input : graph_.region(Graph::main()).inputs) {
        std::vector<const DimSymbol *> known;
        if (graph_.value(input).type.has_shape())
          for (Dim e : *graph_.value(input).type.shape) collect_symbols(e, known);
        found = found || std::find(known.begin(), known.end(), symbol) != known.end();
      }
      if (!found) return false;
    }
    return true;
  };
  for (size_t i = 0; i < graph_.node(id).outputs.size(); ++i) {
    const ValueId output = graph_.node(id).outputs[i];
    if (!output.valid()) continue;
    const std::string what = "output '" + graph_.value(output).name + "' of " + text;
    Type type;
    if (external != options_.externs.end() && !external->outputs.empty()) {
      if (i >= external->outputs.size())
        return diagnostics_.error(ErrorKind::kUsage,
                                  "--extern " + text + " gives " + std::to_string(external->outputs.size()) +
                                      " types, the node has more outputs",
                                  graph_.describe(id));
      const auto &[element, dims] = external->outputs[i];
      Shape shape;
      for (const std::string &dim : dims) {
        const std::optional<Dim> parsed = parse_dim(dim, *graph_.dims());
        if (!parsed || (parsed->is_constant() && parsed->value() < 0) || !of_inputs(*parsed))
          return diagnostics_.error(ErrorKind::kUsage,
                                    "--extern " + text + ": '" + dim + "' is no size that the model's inputs have");
        shape.push_back(*parsed);
      }
      type = Type::tensor(element, std::move(shape));
    } else if (const auto declared = declared_.find(output.index); declared != declared_.end()) {
      OPTC_ASSIGN(type, namer_.inner_type(*declared->second, graph_.value(output).name, diagnostics_));
    }
    if (!type.is_tensor() || !type.has_shape() || type.element == ElementType::kUndefined)
      return diagnostics_.error(ErrorKind::kUnsupported, "the type and shape of " + what + " are not known",
                                graph_.describe(id), help);
    for (Dim d : *type.shape)
      if (!of_inputs(d))
        return diagnostics_.error(ErrorKind::kUnsupported,
                                  "dimension " + d.str() + " of " + what + " is none of the model's inputs",
                                  graph_.describe(id), help);
    graph_.set_type(output, std::move(type));
  }
  return {};
}

}  // namespace optc
