#include "emit/cpp/extern_functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "emit/cpp/types.h"
#include "ops/extern.h"

namespace optc {
namespace {

std::string identifier(std::string_view text) {
  std::string name;
  for (char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (plain || name.empty() || name.back() != '_') name += plain ? c : '_';
  }
  return name;
}

}  // namespace

bool is_extern(const LibraryCall &call) { return call.function == kExternFunction; }

std::string extern_operation(const LibraryCall &call) {
  for (const auto &[name, value] : call.attributes)
    if (const auto *text = std::get_if<std::string>(&value); text && name == kExternOperator) return *text;
  return {};
}

std::string extern_parameters(const Program &program, const LibraryCall &call) {
  std::string text = "const char *node";
  const auto tensors = [&](const std::vector<BufferId> &buffers, const char *letter, const char *constness) {
    for (size_t i = 0; i < buffers.size(); ++i) {
      if (!buffers[i].valid()) continue;
      const Buffer &b = program.buffer(buffers[i]);
      text += fmt::format(", {}{} *{}{}, const int64_t {}{}_dims[{}]", constness, cpp_type(b.element()).storage, letter,
                          i, letter, i, std::max<size_t>(b.shape().size(), 1));
    }
  };
  tensors(call.inputs, "x", "const ");
  tensors(call.outputs, "y", "");
  for (const auto &[name, value] : call.attributes) {
    if (name == kExternOperator) continue;
    const std::string parameter = "attribute_" + identifier(name);
    if (std::holds_alternative<int64_t>(value)) text += ", int64_t " + parameter;
    if (std::holds_alternative<float>(value)) text += ", float " + parameter;
    if (std::holds_alternative<std::string>(value)) text += ", const char *" + parameter;
    if (std::holds_alternative<std::vector<int64_t>>(value)) text += ", const int64_t *" + parameter;
    if (std::holds_alternative<std::vector<float>>(value)) text += ", const float *" + parameter;
    if (std::holds_alternative<std::vector<std::string>>(value)) text += ", const char *const *" + parameter;
    if (value.index() >= 3) text += ", size_t " + parameter + "_count";
  }
  return text;
}

std::vector<ExternFunction> extern_functions(const Program &program, std::string_view bundle) {
  std::set<std::pair<std::string, std::string>> found;
  for (const Kernel &kernel : program.kernels)
    if (const LibraryCall *call = kernel.library(); kernel.alive && call && is_extern(*call))
      found.emplace(extern_operation(*call), extern_parameters(program, *call));
  std::vector<ExternFunction> functions;
  std::set<std::string> names;
  for (const auto &[operation, parameters] : found) {
    const std::string base = std::string(bundle) + "_" + identifier(operation);
    std::string name = base;
    for (int n = 2; !names.insert(name).second; ++n) name = fmt::format("{}_{}", base, n);
    functions.push_back({operation, name, parameters});
  }
  return functions;
}

std::string declare_extern(const ExternFunction &function) {
  std::string text, line = "optc_status " + function.name + "(";
  for (size_t at = 0; at < function.parameters.size();) {
    const size_t end = std::min(function.parameters.find(", ", at), function.parameters.size());
    const bool last = end == function.parameters.size();
    const std::string parameter = function.parameters.substr(at, end - at) + (last ? ");" : ",");
    if (line.size() + parameter.size() > 119) {
      text += line + "\n";
      line = "   ";
    }
    line += (line.back() == '(' ? "" : " ") + parameter;
    at = end + 2;
  }
  return text + line + "\n";
}

}  // namespace optc
