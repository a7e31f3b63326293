// Calls of library operators (runtime/cpu/lib_*.h).
#include "emit/cpp/model_printer.h"

#include <fmt/format.h>

#include <algorithm>

#include "emit/cpp/types.h"
#include "ops/extern.h"

namespace optc {
namespace {

bool uses_any(Dim extent, const std::set<const DimSymbol *> &symbols) {
  std::vector<const DimSymbol *> used;
  collect_symbols(extent, used);
  return std::any_of(used.begin(), used.end(), [&](const DimSymbol *s) { return symbols.count(s) != 0; });
}

}  // namespace

// A constant as a list of floats, integers or strings; prints the list. What follows the name in an OptcLibAttribute.
std::string ModelPrinter::constant_attribute(const Constant &c, size_t number) {
  std::string items, name = c.count() ? fmt::format("list{}", number) : "nullptr";
  const char *type = "int64_t", *places = "0, 0.0f, nullptr, {}, nullptr, nullptr, {}";
  if (c.type() == ElementType::kString) {
    type = "char *const";
    places = "0, 0.0f, nullptr, nullptr, nullptr, {}, {}";
    for (const std::string &s : c.string_values()) items += (items.empty() ? "" : ", ") + string_literal(s);
  } else if (is_float(c.type())) {
    type = "float";
    places = "0, 0.0f, nullptr, nullptr, {}, nullptr, {}";
    for (int64_t i = 0; i < c.count(); ++i) {
      const float x = static_cast<float>(c.as_double(i));
      uint32_t bits;
      __builtin_memcpy(&bits, &x, 4);
      items += (items.empty() ? "" : ", ") + constant_text(ElementType::kFloat32, bits).s;
    }
  } else {
    for (int64_t i = 0; i < c.count(); ++i)
      items += (items.empty() ? "" : ", ") + constant_text(ElementType::kInt64, static_cast<uint64_t>(c.as_int64(i))).s;
  }
  if (c.count()) line(fmt::format("static const {} list{}[] = {{{}}};", type, number, items));
  return fmt::format(fmt::runtime(places), name, c.count());
}

// A call of a function of the application.
void ModelPrinter::print_extern(const Kernel &kernel, const LibraryCall &call) {
  const std::string operation = extern_operation(call), parameters = extern_parameters(program_, call);
  std::string function;
  for (const ExternFunction &f : externs)
    if (f.operation == operation && f.parameters == parameters) function = f.name;
  line("// " + comment_text(operation));
  open("");
  const std::string node = kernel.origin.empty() ? kernel.name : program_.origins[kernel.origin.front()].name;
  std::string arguments = string_literal(node);
  const auto tensors = [&](const std::vector<BufferId> &buffers, const char *letter, bool written) {
    for (size_t i = 0; i < buffers.size(); ++i) {
      if (!buffers[i].valid()) continue;
      const Buffer &buffer = program_.buffer(buffers[i]);
      const std::string dims = buffer.shape().empty() ? "{0}" : dims_list(buffer.shape());
      line(fmt::format("const int64_t {}{}_dims[] = {};", letter, i, dims));
      arguments += fmt::format(", {}, {}{}_dims", pointer(buffers[i], written), letter, i);
    }
  };
  tensors(call.inputs, "x", false);
  tensors(call.outputs, "y", true);
  const auto number = [](float value) {
    uint32_t bits;
    __builtin_memcpy(&bits, &value, 4);
    return constant_text(ElementType::kFloat32, bits).s;
  };
  const auto integer = [](int64_t value) { return constant_text(ElementType::kInt64, static_cast<uint64_t>(value)).s; };
  for (size_t i = 0; i < call.attributes.size(); ++i) {
    const auto &[name, value] = call.attributes[i];
    if (name == kExternOperator) continue;
    if (const auto *n = std::get_if<int64_t>(&value)) arguments += ", " + integer(*n);
    if (const auto *f = std::get_if<float>(&value)) arguments += ", " + number(*f);
    if (const auto *s = std::get_if<std::string>(&value)) arguments += ", " + string_literal(*s);
    const auto list = [&](const auto &values, const char *type, const auto &text) {
      std::string items;
      for (const auto &v : values) items += (items.empty() ? "" : ", ") + text(v);
      if (!values.empty()) line(fmt::format("static const {} list{}[] = {{{}}};", type, i, items));
      arguments += values.empty() ? std::string(", nullptr, 0") : fmt::format(", list{}, {}", i, values.size());
    };
    if (const auto *ints = std::get_if<std::vector<int64_t>>(&value)) list(*ints, "int64_t", integer);
    if (const auto *floats = std::get_if<std::vector<float>>(&value)) list(*floats, "float", number);
    if (const auto *strings = std::get_if<std::vector<std::string>>(&value))
      list(*strings, "char *const", [](const std::string &v) { return string_literal(v); });
  }
  line(fmt::format("if (const optc_status status = {}({}); status != OPTC_OK)", function, arguments));
  line(
      fmt::format("  return run.fail(status, \"%s of node '%s' ended with status %d\", {}, {}, "
                  "static_cast<int>(status));",
                  string_literal(operation), string_literal(node)));
  close();
}

void ModelPrinter::print_library(const Kernel &kernel, const LibraryCall &call) {
  if (is_extern(call)) return print_extern(kernel, call);
  if (std::find(library_functions.begin(), library_functions.end(), call.function) == library_functions.end())
    library_functions.push_back(call.function);
  line("// " + comment_text(kernel.note.empty() ? call.function : kernel.note));
  auto tensor = [&](BufferId b, bool written) -> std::string {
    if (!b.valid()) return "no_tensor()";
    if (is_object(b)) return declare(root(b));
    const Buffer &buffer = program_.buffer(b);
    return fmt::format("lib_tensor({}, {}, {})", pointer(b, written), static_cast<int>(buffer.element()),
                       dims_list(buffer.shape()));
  };
  // Tensors that go into an object outlive the arena's next writer.
  const bool keep = std::any_of(call.outputs.begin(), call.outputs.end(),
                                [&](BufferId b) { return b.valid() && !program_.buffer(b).type.is_tensor(); });
  std::set<const DimSymbol *> found(call.defines.begin(), call.defines.end());
  open("");
  std::string list;
  for (BufferId b : call.inputs) {
    const std::string item = tensor(b, false);
    list += (list.empty() ? "" : ", ") + (keep && b.valid() && !is_object(b) ? "keep_tensor(run, " + item + ")" : item);
  }
  line(fmt::format("const OptcLibTensor in[] = {{{}}};", list.empty() ? "no_tensor()" : list));
  list.clear();
  std::string memory;
  std::vector<std::string> late;  // what the call decides
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const BufferId b = call.outputs[i];
    std::string item = "no_tensor()", place = "{nullptr, 0, -1, -1}";
    if (b.valid() && is_object(b)) {
      const Buffer &buffer = program_.buffer(b);
      place = "{nullptr, 0, kInRegion, -1}";
      late.push_back(fmt::format("{} = out[{}];", declare(root(b)), i));
      if (!buffer.type.is_tensor()) {
        item = fmt::format("lib_object({})", static_cast<int>(leaf_element(buffer.type)));
      } else {
        bool open_size = false;
        std::string dims;
        for (const Dim &extent : buffer.shape()) {
          const bool unknown = uses_any(extent, found);
          open_size = open_size || unknown;
          dims += (dims.empty() ? "" : ", ") + (unknown ? std::string("-1") : dim(extent));
        }
        item = open_size ? fmt::format("lib_tensor(nullptr, 8, {{{}}})", dims)
                         : fmt::format("new_strings(run, {{{}}})", dims);
      }
    } else if (b.valid()) {
      const Buffer &buffer = program_.buffer(b);
      const Shape &shape = buffer.shape();
      bool open_size = false;
      std::string dims;
      for (const Dim &extent : shape) {
        const bool unknown = uses_any(extent, found);
        open_size = open_size || unknown;
        dims += (dims.empty() ? "" : ", ") + (unknown ? std::string("-1") : dim(extent));
      }
      const BufferId r = root(b);
      const std::string pointer_text = pointer(b, true);
      if (!open_size) {
        if (const auto grown = grown_.find(r.index); grown != grown_.end()) {
          line(fmt::format("{} = run.grow<{}>({}, {});", pointer_text, cpp_type(buffer.element()).storage,
                           grown->second, size(buffer_bytes(r))));
          line(fmt::format("if (!{}) return run.status;", pointer_text));
        }
        item = fmt::format("lib_tensor({}, {}, {{{}}})", pointer_text, static_cast<int>(buffer.element()), dims);
      } else {
        item = fmt::format("lib_tensor(static_cast<void *>(nullptr), {}, {{{}}})", static_cast<int>(buffer.element()),
                           dims);
        if (const auto grown = grown_.find(r.index); grown != grown_.end()) {
          place = fmt::format("{{nullptr, 0, {}, -1}}", grown->second);
          late.push_back(fmt::format("{} = static_cast<{} *>(out[{}].data);", pointer_text,
                                     cpp_type(buffer.element()).storage, i));
        } else if (program_.buffer(r).kind == BufferKind::kOutput) {
          const auto at = std::find(program_.outputs.begin(), program_.outputs.end(), r) - program_.outputs.begin();
          place = fmt::format("{{nullptr, 0, -1, {}}}", at);
        }
      }
    }
    list += (list.empty() ? "" : ", ") + item;
    memory += (memory.empty() ? "" : ", ") + place;
  }
  line(fmt::format("OptcLibTensor out[] = {{{}}};", list.empty() ? "no_tensor()" : list));
  line(fmt::format("const LibMemory memory[] = {{{}}};", memory.empty() ? "{nullptr, 0, -1, -1}" : memory));
  list.clear();
  for (size_t i = 0; i < call.attributes.size(); ++i) {
    const auto &[attribute, v] = call.attributes[i];
    std::string fields = "0, 0.0f, nullptr, nullptr, nullptr, nullptr, 0";
    if (const auto *n = std::get_if<int64_t>(&v)) {
      fields = fmt::format("{}, 0.0f, nullptr, nullptr, nullptr, nullptr, 0",
                           constant_text(ElementType::kInt64, static_cast<uint64_t>(*n)).s);
    } else if (const auto *f = std::get_if<float>(&v)) {
      uint32_t bits;
      static_assert(sizeof bits == sizeof *f);
      __builtin_memcpy(&bits, f, 4);
      fields =
          fmt::format("0, {}, nullptr, nullptr, nullptr, nullptr, 0", constant_text(ElementType::kFloat32, bits).s);
    } else if (const auto *s = std::get_if<std::string>(&v)) {
      fields = fmt::format("0, 0.0f, {}, nullptr, nullptr, nullptr, 0", string_literal(*s));
    } else if (const auto *ints = std::get_if<std::vector<int64_t>>(&v)) {
      std::string items;
      for (int64_t x : *ints) items += (items.empty() ? "" : ", ") + std::to_string(x);
      if (!ints->empty()) line(fmt::format("static const int64_t list{}[] = {{{}}};", i, items));
      fields = fmt::format("0, 0.0f, nullptr, {}, nullptr, nullptr, {}",
                           ints->empty() ? "nullptr" : fmt::format("list{}", i), ints->size());
    } else if (const auto *floats = std::get_if<std::vector<float>>(&v)) {
      std::string items;
      for (float x : *floats) {
        uint32_t bits;
        __builtin_memcpy(&bits, &x, 4);
        items += (items.empty() ? "" : ", ") + constant_text(ElementType::kFloat32, bits).s;
      }
      if (!floats->empty()) line(fmt::format("static const float list{}[] = {{{}}};", i, items));
      fields = fmt::format("0, 0.0f, nullptr, nullptr, {}, nullptr, {}",
                           floats->empty() ? "nullptr" : fmt::format("list{}", i), floats->size());
    } else if (const auto *strings = std::get_if<std::vector<std::string>>(&v)) {
      std::string items;
      for (const std::string &x : *strings) items += (items.empty() ? "" : ", ") + string_literal(x);
      if (!strings->empty()) line(fmt::format("static const char *const list{}[] = {{{}}};", i, items));
      fields = fmt::format("0, 0.0f, nullptr, nullptr, nullptr, {}, {}",
                           strings->empty() ? "nullptr" : fmt::format("list{}", i), strings->size());
    } else if (const auto *c = std::get_if<Constant>(&v)) {
      fields = constant_attribute(*c, i);
    }
    list += fmt::format("{}{{{}, {}}}", list.empty() ? "" : ", ", string_literal(attribute), fields);
  }
  line(fmt::format("const OptcLibAttribute attributes[] = {{{}}};",
                   list.empty() ? "{\"\", 0, 0.0f, nullptr, nullptr, nullptr, nullptr, 0}" : list));
  line(fmt::format("int64_t sizes[{}] = {{}};", std::max<size_t>(1, call.defines.size())));
  line(fmt::format(
      "if (!call_library(run, optc_lib_{}, in, {}, out, {}, attributes, {}, sizes, memory)) return run.status;",
      call.function, call.inputs.size(), call.outputs.size(), call.attributes.size()));
  for (size_t i = 0; i < call.defines.size(); ++i)
    if (call.defines[i]) define(*call.defines[i], fmt::format("sizes[{}]", i));
  for (const std::string &text : late) line(text);
  close();
  after_definitions();
}

}  // namespace optc
