// optc.Extern, as extern.h says.

#include "ops/extern.h"

#include "ops/build.h"
#include "ops/registry.h"
#include "ops/util.h"

namespace optc {
namespace {

// What has a plain C type.
bool has_c_type(const Type &type) {
  return type.is_tensor() && type.element != ElementType::kString && !is_complex(type.element) &&
         bit_width(type.element) >= 8;
}

Status infer_extern(InferContext &c) {
  const std::string name(c.node().string_or(kExternOperator, ""));
  for (size_t i = 0; i < c.input_count(); ++i) {
    if (!c.has_input(i)) continue;
    OPTC_TRY(c.require_shape(i));
    if (!has_c_type(c.input(i)))
      return c.unsupported("input " + std::to_string(i) + " of " + name + " is " + to_string(c.input(i)) +
                           ": functions of the application take tensors of numbers of 8 bits and more");
  }
  for (size_t i = 0; i < c.output_count(); ++i) {
    if (!c.has_output(i)) continue;
    const Type &type = c.graph().value(c.node().output(i)).type;
    if (!type.has_shape() || !has_c_type(type))
      return c.unsupported("output " + std::to_string(i) + " of " + name + " is " + to_string(type) +
                           ": functions of the application give tensors of numbers of 8 bits and more");
  }
  for (const auto &[attribute, value] : c.node().attributes)
    if (std::holds_alternative<Constant>(value) || std::holds_alternative<Type>(value))
      return c.unsupported("attribute '" + attribute + "' of " + name + " is a tensor or a type",
                           "numbers, strings and lists of them are passed to functions of the application");
  if (!c.node().regions.empty()) return c.unsupported(name + " has a graph as an attribute");
  return {};
}

Status build_extern(BuildContext &c) {
  std::vector<BufferId> inputs, outputs;
  for (size_t i = 0; i < c.node().inputs.size(); ++i) inputs.push_back(c.has_input(i) ? c.input(i) : BufferId());
  for (size_t i = 0; i < c.node().outputs.size(); ++i) outputs.push_back(c.has_output(i) ? c.output(i) : BufferId());
  c.library(std::string(kExternFunction), inputs, outputs, c.node().attributes);
  return {};
}

const OpDef kOps[] = {{"optc.Extern", OpForm::kLibrary, 1, infer_extern, build_extern, {}, false}};

}  // namespace

std::span<const OpDef> extern_ops() { return kOps; }

}  // namespace optc
