#include "emit/cpp/abi_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "emit/cpp/names.h"
#include "emit/cpp/text_lines.h"
#include "emit/cpp/types.h"
#include "ir/dim/range.h"

namespace optc {
namespace {

std::string upper(std::string s) {
  for (char &c : s)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return s;
}

std::string dims_text(const Shape &shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + shape[i].str();
  return out + "]";
}

bool plain(const Program &p) {  // tensors only, and the outputs' dims follow from the inputs'
  auto tensor = [&](BufferId id) {
    return p.buffer(id).type.has_shape() && p.buffer(id).element() != ElementType::kString &&
           !is_complex(p.buffer(id).element());
  };
  for (BufferId b : p.inputs)
    if (!tensor(b)) return false;
  for (BufferId b : p.outputs) {
    if (!tensor(b)) return false;
    for (const Dim &d : p.buffer(b).shape()) {
      std::vector<const DimSymbol *> symbols;
      collect_symbols(d, symbols);
      for (const DimSymbol *s : symbols) {
        const bool read = std::any_of(p.sources.begin(), p.sources.end(),
                                      [&](const SymbolSource &source) { return source.symbol == s; });
        if (!read) return false;
      }
    }
  }
  return true;
}

const char *c_type(ElementType type) { return type == ElementType::kBool ? "uint8_t" : cpp_type(type).storage; }

using DimNames = std::vector<std::pair<const DimSymbol *, std::string>>;
std::string dim_expression(Dim d, const DimNames &names);

// Empty, as below.
std::string atom_expression(const DimAtom &a, const DimNames &names) {
  if (a.kind == AtomKind::kSymbol) {
    const auto it = std::find_if(names.begin(), names.end(), [&](const auto &n) { return n.first == a.symbol; });
    return it == names.end() ? "" : it->second;
  }
  const std::string left = dim_expression(a.a, names), right = dim_expression(a.b, names);
  if (left.empty() || right.empty()) return "";
  const bool divides = a.kind == AtomKind::kFloorDiv || a.kind == AtomKind::kMod;
  // C truncates: the same for a dividend that is not negative.
  if (divides && (lower_bound(a.a) < 0 || lower_bound(a.b) < 1)) return "";
  if (divides)
    return fmt::format("(({}) {} {})", left, a.kind == AtomKind::kMod ? "%" : "/",
                       a.b.is_constant() ? right : "(" + right + ")");
  return fmt::format("(({0}) {2} ({1}) ? ({0}) : ({1}))", left, right, a.kind == AtomKind::kMin ? "<" : ">");
}

// A C expression of a dim over parameters named like the symbols; empty where there is none.
std::string dim_expression(Dim d, const DimNames &names) {
  if (d.is_constant()) return std::to_string(d.value());
  std::string out;
  for (const DimTerm &t : d.node()->terms) {
    std::string term = t.coefficient == 1 ? "" : std::to_string(t.coefficient);
    for (const DimAtom *a : t.atoms) {
      const std::string factor = atom_expression(*a, names);
      if (factor.empty()) return "";
      term += (term.empty() ? "" : " * ") + factor;
    }
    out += (out.empty() ? "" : " + ") + term;
  }
  if (d.node()->constant != 0) out += " + " + std::to_string(d.node()->constant);
  return out;
}

struct TypedSignature {
  bool possible = false;
  DimNames dims;
  std::vector<std::string> inputs, outputs;  // parameter names; an output that is one memory with an input has its name
  std::vector<std::vector<std::string>> input_dims, output_dims;
  std::vector<std::vector<std::string>> input_room, output_room;  // the dims that the memory has
  std::vector<bool> input_is_state, output_is_state;
};

TypedSignature typed_signature(const Program &p, const std::string &bundle) {
  TypedSignature s;
  if (!plain(p)) return s;
  NameScope names(NameScope::Use::kHeader);
  for (const char *own : {"", "_run", "_model", "_header"}) names.take(bundle + own);
  for (const SymbolSource &source : p.sources)
    s.dims.emplace_back(source.symbol, names.unique(source.symbol->name, 24));
  for (const std::string &n : p.input_names) s.inputs.push_back(names.unique(n, 32));
  for (const std::string &n : p.output_names) s.outputs.push_back(names.unique(n, 32));
  s.input_is_state.resize(p.inputs.size());
  s.output_is_state.resize(p.outputs.size());
  for (const State &state : p.states) {
    s.input_is_state[state.input] = s.output_is_state[state.output] = true;
    s.outputs[state.output] = s.inputs[state.input];
  }
  auto all = [&](const std::vector<BufferId> &buffers, std::vector<std::vector<std::string>> &out, bool room) {
    for (BufferId b : buffers) {
      std::vector<std::string> list;
      const Buffer &buffer = p.buffer(b);
      for (const Dim &d : room && !buffer.padded.empty() ? buffer.padded : buffer.shape()) {
        list.push_back(dim_expression(d, s.dims));
        if (list.back().empty()) return false;
      }
      out.push_back(std::move(list));
    }
    return true;
  };
  s.possible = all(p.inputs, s.input_dims, false) && all(p.outputs, s.output_dims, false) &&
               all(p.inputs, s.input_room, true) && all(p.outputs, s.output_room, true);
  return s;
}

std::string join(const std::vector<std::string> &items, const char *separator = ", ") {
  std::string out;
  for (const std::string &i : items) out += (out.empty() ? "" : separator) + i;
  return out;
}

std::string byte_count(const Buffer &b, const std::vector<std::string> &dims) {
  std::string count;
  for (const std::string &d : dims) count += (count.empty() ? "(size_t)(" : " * (size_t)(") + d + ")";
  if (count.empty()) count = "(size_t)1";
  const int bits = bit_width(b.element());
  if (bits >= 8) return bits == 8 ? count : count + " * " + std::to_string(bits / 8);
  return fmt::format("({} * {} + 7) / 8", count, bits);
}

// How many elements of its storage a tensor has (a byte holds several of a sub-byte type), as C++ of type `type`.
std::string elements(const char *type, const Buffer &b, const std::vector<std::string> &dims) {
  std::string count;
  for (const std::string &d : dims) count += (count.empty() ? "" : " * ") + fmt::format("static_cast<{}>({})", type, d);
  if (count.empty()) count = "1";
  const int per = cpp_type(b.element()).per_byte;
  return per == 1 ? count : fmt::format("({} + {}) / {}", count, per - 1, per);
}

}  // namespace

std::vector<std::string> signature(const Program &p) {
  std::vector<std::string> lines;
  auto add = [&](const char *role, const std::vector<BufferId> &buffers, const std::vector<std::string> &names) {
    for (size_t i = 0; i < buffers.size(); ++i) {
      const Buffer &b = p.buffer(buffers[i]);
      const std::string type =
          b.type.has_shape() ? std::string(onnx_name(b.element())) + " " + dims_text(b.shape()) : to_string(b.type);
      const bool optional = &buffers == &p.inputs && i < p.input_defaults.size() && p.input_defaults[i].valid();
      lines.push_back(fmt::format("{} {}: {}{}", role, comment_text(names[i]), type,
                                  optional ? ", or null data for the model's own value" : ""));
    }
  };
  add("input", p.inputs, p.input_names);
  add("output", p.outputs, p.output_names);
  for (const State &state : p.states) {
    std::string room;
    if (state.axis >= 0) room = fmt::format(", {}", dims_text(p.buffer(p.outputs[state.output]).padded));
    lines.push_back(fmt::format("one memory: {} and {}{}", comment_text(p.input_names[state.input]),
                                comment_text(p.output_names[state.output]), room));
  }
  return lines;
}

std::vector<std::string> size_lines(const Program &p) {
  std::vector<std::string> lines;
  for (const SymbolSource &source : p.sources)
    if (source.symbol->min > 1 || source.symbol->max < kDimOverflow || source.symbol->multiple > 1)
      lines.push_back(fmt::format("dim {}: {}", comment_text(source.symbol->name), range_text(*source.symbol)));
  return lines;
}

std::string c_header(const Program &p, const AbiFacts &f) {
  std::string out =
      fmt::format("/* {}: generated by {} from {}.\n", f.name, comment_text(f.compiler), comment_text(f.source));
  std::vector<std::string> lines = signature(p);
  lines.insert(lines.end(), f.sizes.begin(), f.sizes.end());
  for (std::string line : lines) {
    for (const char *mark : {"*/", "/*"})  // of names of the model
      for (size_t at; (at = line.find(mark)) != std::string::npos;) line[at] = ' ';
    out += wrap_words(line, " *   ", " *     ") + "\n";
  }
  out += " */\n";
  out +=
      fmt::format("#ifndef {0}_H\n#define {0}_H\n#include \"optc.h\"\n#ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n",
                  "OPTC_MODEL_" + upper(f.name));
  out += fmt::format(
      "#if defined(__GNUC__)\n__attribute__((visibility(\"default\")))\n#endif\nconst optc_model *{}_model(void);\n",
      f.name);
  out += fmt::format(R"(
#if defined(__ELF__) && !defined(OPTC_BUNDLE_SOURCE)
/* Where this header lies: a static library does not know its own place, and finds the files beside it from here. */
extern const char *const {0}_header __attribute__((weak));
const char *const {0}_header = __FILE__;
#endif
)",
                     f.name);
  if (!f.externs.empty()) {
    out +=
        "\n/* Functions that the application defines, for operators of its own: the model calls them from the thread "
        "that\n"
        "   runs it. node: its name. x0, x1, ...: operands, row-major; y0, y1, ...: results, whose memory has the size "
        "that\n"
        "   their dims say. The dims are those of each tensor (of a scalar one number that means nothing); "
        "attribute_NAME is\n"
        "   an attribute of the node, attribute_NAME_count the length of a list. What is not OPTC_OK ends the run. "
        "*/\n";
    for (const ExternFunction &function : f.externs)
      out += fmt::format("/* {} */\n", comment_text(function.operation)) + declare_extern(function);
  }
  const TypedSignature s = typed_signature(p, f.name);
  if (s.possible) {
    std::string parameters = "optc_context *context";
    for (const auto &[symbol, name] : s.dims) parameters += ", int64_t " + name;
    for (size_t i = 0; i < s.inputs.size(); ++i)
      parameters += fmt::format(", {}{} *{}", s.input_is_state[i] ? "" : "const ",
                                c_type(p.buffer(p.inputs[i]).element()), s.inputs[i]);
    for (size_t i = 0; i < s.outputs.size(); ++i)
      if (!s.output_is_state[i])
        parameters += fmt::format(", {} *{}", c_type(p.buffer(p.outputs[i]).element()), s.outputs[i]);
    out +=
        "\n/* Runs the model on tensors of this signature; the outputs must have room for their dims. optc_run is the "
        "general form. */\n";
    if (!p.states.empty())
      out += "/* What is one memory is given once, as the input, and is the output after the run. */\n";
    out += fmt::format("static inline optc_status {}_run({}) {{\n", f.name, parameters);
    auto tensors = [&](const char *array, const std::vector<std::string> &names, const std::vector<BufferId> &buffers,
                       const std::vector<std::vector<std::string>> &dims,
                       const std::vector<std::vector<std::string>> &room, bool input) {
      std::string items;
      for (size_t i = 0; i < names.size(); ++i) {
        const Buffer &b = p.buffer(buffers[i]);
        items += fmt::format("{}\n      {{{{{}{}, {}, 0, {}, {}, {{{}}}, OPTC_CPU, 0}}, NULL}}", i ? "," : "",
                             input ? "(void *)" : "", names[i], byte_count(b, room[i]), static_cast<int>(b.element()),
                             b.shape().size(), dims[i].empty() ? "0" : join(dims[i]));
      }
      return fmt::format("  {}optc_value {}[] = {{{}}};\n", input ? "const " : "", array, items);
    };
    if (!p.inputs.empty()) out += tensors("in", s.inputs, p.inputs, s.input_dims, s.input_room, true);
    if (!p.outputs.empty()) out += tensors("out", s.outputs, p.outputs, s.output_dims, s.output_room, false);
    out += fmt::format("  return optc_run({}_model(), context, {}, {});\n}}\n", f.name,
                       p.inputs.empty() ? "NULL" : "in", p.outputs.empty() ? "NULL" : "out");
  }
  out += "\n#ifdef __cplusplus\n}\n#endif\n#endif\n";
  return out;
}

std::string cpp_header(const Program &p, const AbiFacts &f) {
  std::string out = fmt::format(
      "// {0}: C++ interface. Model owns a context; run() gives owned outputs. Errors are thrown as "
      "{0}::Error.\n#pragma once\n",
      f.name);
  out +=
      "#include <cstdint>\n#include <stdexcept>\n#include <string>\n#include "
      "<type_traits>\n#include <utility>\n#include <vector>\n\n";
  out += fmt::format("#include \"{}.h\"\n\nnamespace {} {{\n\n", f.name, f.name);
  out += R"(struct Error : std::runtime_error {
  Error(optc_status code, const std::string &text) : std::runtime_error(text), status(code) {}
  optc_status status;
};

)";
  const TypedSignature s = typed_signature(p, f.name);
  if (s.possible) {
    out += "struct Outputs {\n";
    for (size_t i = 0; i < s.outputs.size(); ++i)
      if (!s.output_is_state[i])
        out += fmt::format("  std::vector<{}> {};  // {}\n", c_type(p.buffer(p.outputs[i]).element()), s.outputs[i],
                           dims_text(p.buffer(p.outputs[i]).shape()));
    out += "};\n\n";
  }
  out += fmt::format(R"(class Model {{
  template <class... T>
  using Elements = std::void_t<decltype(std::declval<const T &>().data())...>;

 public:
  // Options of optc.h: threads, weights_path, ... ; struct_size is set here.
  explicit Model(optc_options options = optc_options()) {{
    options.struct_size = sizeof options;
    const optc_status status = api().context_create(nullptr, &options, &context_);
    if (status != OPTC_OK) throw Error(status, api().last_error(nullptr));
  }}
  ~Model() {{
    if (context_) api().context_destroy(context_);
  }}
  Model(Model &&other) noexcept : context_(std::exchange(other.context_, nullptr)) {{}}
  Model &operator=(Model &&other) noexcept {{
    std::swap(context_, other.context_);
    return *this;
  }}
  Model(const Model &) = delete;
  Model &operator=(const Model &) = delete;

  static const optc_api &api() {{ return *{}_model()->api; }}
  optc_context *context() const {{ return context_; }}
  // The general form: tensors as optc.h has them.
  void run(const optc_value *inputs, optc_value *outputs) {{ check(api().run(context_, inputs, outputs)); }}
)",
                     f.name);
  if (s.possible) {
    std::string templates, parameters, constraint, arguments = "context_";
    for (size_t i = 0; i < s.inputs.size(); ++i) {
      templates += fmt::format("class OptcInput{}, ", i);
      constraint += fmt::format("{}OptcInput{}", i ? ", " : "", i);
      parameters +=
          fmt::format("{}{}OptcInput{} &{}", i ? ", " : "", s.input_is_state[i] ? "" : "const ", i, s.inputs[i]);
    }
    for (const auto &[symbol, name] : s.dims) {
      parameters += ", int64_t " + name;
      arguments += ", " + name;
    }
    for (size_t i = 0; i < s.inputs.size(); ++i)
      arguments += fmt::format(", data({}, {}, \"{}\")", s.inputs[i],
                               elements("int64_t", p.buffer(p.inputs[i]), s.input_room[i]), s.inputs[i]);
    for (size_t i = 0; i < s.outputs.size(); ++i)
      if (!s.output_is_state[i]) arguments += ", outputs." + s.outputs[i] + ".data()";
    if (!s.inputs.empty())
      out += fmt::format(
          "\n  // Any contiguous containers (data(), size()) of the inputs' elements.{}\n  template <{}class = "
          "Elements<{}>>\n",
          p.states.empty() ? ""
                           : " What is one memory with an output is\n  // written: it has room for all steps, of which "
                             "so many hold values as the dims say.",
          templates, constraint);
    else
      out += "\n";
    out += fmt::format("  Outputs run({}) {{\n    Outputs outputs;\n", parameters);
    for (size_t i = 0; i < s.outputs.size(); ++i)
      if (!s.output_is_state[i])
        out += fmt::format("    outputs.{}.resize({});\n", s.outputs[i],
                           elements("size_t", p.buffer(p.outputs[i]), s.output_dims[i]));
    out += fmt::format("    check({}_run({}));\n    return outputs;\n  }}\n", f.name, arguments);
  }
  out += R"(
 private:
  void check(optc_status status) const {
    if (status != OPTC_OK) throw Error(status, api().last_error(context_));
  }
  template <class T>
  static auto data(T &container, int64_t count, const char *name) -> decltype(container.data()) {
    if (count < 0 || static_cast<uint64_t>(container.size()) < static_cast<uint64_t>(count))
      throw Error(OPTC_INVALID_ARGUMENT, std::string("input '") + name + "' has too few elements");
    return container.data();
  }
  optc_context *context_ = nullptr;
};

)";
  out += fmt::format("}}  // namespace {}\n", f.name);
  return out;
}

}  // namespace optc
