#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "ir/graph/text.h"

namespace optc {
namespace {

constexpr int64_t kInlineElements = 64;

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 32) {
      char code[8];
      snprintf(code, sizeof code, "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += code;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

bool plain_name(std::string_view name) {
  if (name.empty() || (name[0] >= '0' && name[0] <= '9')) return false;
  for (char c : name)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.'))
      return false;
  return true;
}
// A name that is not an identifier is printed between back quotes.
std::string name_text(std::string_view name) {
  if (plain_name(name)) return std::string(name);
  std::string out = "`";
  for (char c : name) {
    if (c == '`' || c == '\\') out += '\\';
    out += c;
  }
  return out + "`";
}

std::string float_text(double v, bool single) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char text[40];
  // The shortest form that reads back.
  for (int digits = 1; digits <= 17; ++digits) {
    snprintf(text, sizeof text, "%.*g", digits, v);
    const double back = strtod(text, nullptr);
    if (single ? static_cast<float>(back) == static_cast<float>(v) : back == v) break;
  }
  std::string s = text;
  if (s.find_first_of(".en") == std::string::npos) s += ".0";
  return s;
}

std::string element_text(const Constant &c, int64_t i) {
  if (c.type() == ElementType::kString) return quoted(c.string_values()[static_cast<size_t>(i)]);
  if (is_float(c.type())) return float_text(c.as_double(i), c.type() != ElementType::kFloat64);
  if (c.type() == ElementType::kUInt64) return std::to_string(static_cast<uint64_t>(c.as_int64(i)));
  return std::to_string(c.as_int64(i));
}

std::string constant_text(const Constant &c, bool full) {
  if (is_complex(c.type())) return "hash " + quoted(c.hash());
  if (c.count() > 1 && c.type() != ElementType::kString) {
    const std::string first = element_text(c, 0);
    bool splat = true;
    // NaN payloads and -0 count as different: compare the bytes of whole elements.
    const int bits = bit_width(c.type());
    if (bits >= 8) {
      const size_t width = static_cast<size_t>(bits / 8);
      for (size_t at = width; at < c.size() && splat; at += width)
        splat = std::memcmp(c.data(), c.data() + at, width) == 0;
    } else {
      for (int64_t i = 1; i < c.count() && splat; ++i) splat = c.as_double(i) == c.as_double(0);
    }
    if (splat) return "splat " + first;
  }
  if (c.count() > kInlineElements && !full) return "hash " + quoted(c.hash());
  std::string text = "[";
  for (int64_t i = 0; i < c.count(); ++i) text += (i ? ", " : "") + element_text(c, i);
  return text + "]";
}

template <typename T, typename F>
std::string list_text(const std::vector<T> &list, F one) {
  std::string text = "[";
  for (size_t i = 0; i < list.size(); ++i) text += (i ? ", " : "") + one(list[i]);
  return text + "]";
}

class Printer {
 public:
  Printer(const Graph &graph, const PrintOptions &options) : g_(graph), options_(options) {}

  std::string run() {
    const Region &main = g_.region(Graph::main());
    text_ = "graph " + quoted(g_.info().name) + " (";
    for (size_t i = 0; i < main.inputs.size(); ++i) {
      if (i) text_ += ", ";
      typed(main.inputs[i]);
      if (g_.defaults()[i].valid()) text_ += " default " + constant_text(g_.defaults()[i], options_.full_constants);
    }
    text_ += ") -> (";
    for (size_t i = 0; i < main.outputs.size(); ++i)
      text_ += (i ? ", " : "") + name_text(g_.value(main.outputs[i]).name);
    text_ += ") {\n";
    std::vector<std::string> opsets;
    for (const auto &[domain, version] : g_.info().opset_imports)
      text_ += "  opset " + quoted(domain) + " " + std::to_string(version) + "\n";
    for (size_t i = 0; i < g_.value_capacity(); ++i) {
      const Value &v = g_.value(ValueId(i));
      if (!v.alive || v.kind != ValueKind::kConstant || v.uses.empty()) continue;
      text_ += "  const " + name_text(v.name) + ": " + to_string(v.type) + " = " +
               constant_text(v.constant, options_.full_constants) + "\n";
    }
    nodes(Graph::main(), "  ");
    text_ += "}\n";
    return std::move(text_);
  }

 private:
  void typed(ValueId id) {
    const Value &v = g_.value(id);
    text_ += name_text(v.name);
    if (options_.types) text_ += ": " + to_string(v.type);
  }

  std::string attribute_text(const Attribute &a) {
    if (const auto *i = std::get_if<int64_t>(&a)) return std::to_string(*i);
    if (const auto *f = std::get_if<float>(&a)) return float_text(static_cast<double>(*f), true);
    if (const auto *s = std::get_if<std::string>(&a)) return quoted(*s);
    if (const auto *is = std::get_if<std::vector<int64_t>>(&a))
      return "ints " + list_text(*is, [](int64_t v) { return std::to_string(v); });
    if (const auto *fs = std::get_if<std::vector<float>>(&a))
      return "floats " + list_text(*fs, [](float v) { return float_text(static_cast<double>(v), true); });
    if (const auto *ss = std::get_if<std::vector<std::string>>(&a))
      return "strings " + list_text(*ss, [](const std::string &v) { return quoted(v); });
    if (const auto *c = std::get_if<Constant>(&a))
      return "tensor " + to_string(Type::tensor(c->type(), c->shape())) + " " +
             constant_text(*c, options_.full_constants);
    return "type " + to_string(std::get<Type>(a));
  }

  void nodes(RegionId region, const std::string &indent) {
    for (const Condition &c : g_.conditions())
      if (c.region == region)
        text_ += indent + "require " + c.constraint.left.str() + " == " + c.constraint.right.str() +
                 (c.constraint.or_one ? " or 1" : "") + " @ " + quoted(c.constraint.where) + "\n";
    for (NodeId id : g_.nodes(region)) {
      const Node &n = g_.node(id);
      text_ += indent;
      for (size_t i = 0; i < n.outputs.size(); ++i) {
        if (i) text_ += ", ";
        if (n.outputs[i].valid())
          typed(n.outputs[i]);
        else
          text_ += "_";
      }
      text_ += " = " + n.op + "(";
      for (size_t i = 0; i < n.inputs.size(); ++i)
        text_ += (i ? ", " : "") + (n.inputs[i].valid() ? name_text(g_.value(n.inputs[i]).name) : std::string("_"));
      text_ += ")";
      if (!n.attributes.empty()) {
        text_ += " {";
        for (size_t i = 0; i < n.attributes.size(); ++i)
          text_ += (i ? ", " : "") + n.attributes[i].first + " = " + attribute_text(n.attributes[i].second);
        text_ += "}";
      }
      if (options_.origins) {
        text_ += " @ " + quoted(n.name);
        for (uint32_t o : n.origin)
          if (g_.origins()[o].name != n.name) text_ += ", " + quoted(g_.origins()[o].name);
      }
      text_ += "\n";
      for (const auto &[name, nested] : n.regions) {
        text_ += indent + "  region " + name + " (";
        const Region &r = g_.region(nested);
        for (size_t i = 0; i < r.inputs.size(); ++i) {
          if (i) text_ += ", ";
          typed(r.inputs[i]);
        }
        text_ += ") -> (";
        for (size_t i = 0; i < r.outputs.size(); ++i) text_ += (i ? ", " : "") + name_text(g_.value(r.outputs[i]).name);
        text_ += ") {\n";
        nodes(nested, indent + "    ");
        text_ += indent + "  }\n";
      }
    }
  }

  const Graph &g_;
  const PrintOptions &options_;
  std::string text_;
};

}  // namespace

std::string print(const Graph &graph, const PrintOptions &options) { return Printer(graph, options).run(); }

}  // namespace optc
