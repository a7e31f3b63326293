#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <unordered_map>

#include "ir/graph/text.h"

namespace optc {
namespace {

class GraphParser {
 public:
  GraphParser(std::string_view text, Diagnostics &diagnostics) : text_(text), diagnostics_(diagnostics) {}

  Result<Graph> run() {
    std::string name;
    if (!word("graph") || !string(name) || !symbol("(")) return failure();
    graph_.info().name = name;
    while (!symbol(")")) {
      std::string value;
      Type type;
      if (!identifier(value) || !symbol(":") || !this->type(type)) return failure();
      const ValueId id = graph_.add_input(Graph::main(), value, type);
      if (!define(value, id)) return failure();
      if (word("default")) {
        Constant c;
        if (!constant(type, c)) return failure();
        graph_.set_default(graph_.region(Graph::main()).inputs.size() - 1, std::move(c));
      }
      symbol(",");
    }
    std::vector<std::string> outputs;
    if (!symbol("->") || !names(outputs) || !symbol("{") || !body(Graph::main(), 0)) return failure();
    if (!finish(Graph::main(), outputs)) return failure();
    skip();
    if (at_ != text_.size()) {
      error("text behind the graph");
      return failure();
    }
    return std::move(graph_);
  }

 private:
  // --- lexing
  // -------------------------------------------------------------------------------------------------------------
  void skip() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r') {
        ++at_;
      } else {
        return;
      }
    }
  }
  bool symbol(std::string_view s) {
    skip();
    if (text_.substr(at_, s.size()) != s) {
      expected_ = std::string(s);
      return false;
    }
    at_ += s.size();
    return true;
  }
  static bool name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  }
  bool word(std::string_view w) {
    skip();
    if (text_.substr(at_, w.size()) != w) {
      expected_ = std::string(w);
      return false;
    }
    if (at_ + w.size() < text_.size() && name_char(text_[at_ + w.size()])) return false;
    at_ += w.size();
    return true;
  }
  bool identifier(std::string &out) {
    skip();
    out.clear();
    expected_ = "a name";
    if (at_ < text_.size() && text_[at_] == '`') {
      for (++at_; at_ < text_.size() && text_[at_] != '`'; ++at_) {
        if (text_[at_] == '\\') ++at_;
        if (at_ < text_.size()) out += text_[at_];
      }
      return symbol("`");
    }
    while (at_ < text_.size() && name_char(text_[at_])) out += text_[at_++];
    return !out.empty();
  }
  bool string(std::string &out) {
    out.clear();
    if (!symbol("\"")) return false;
    for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
        ++at_;
        if (text_[at_] == 'x' && at_ + 2 < text_.size()) {
          out += static_cast<char>(strtol(std::string(text_.substr(at_ + 1, 2)).c_str(), nullptr, 16));
          at_ += 2;
          continue;
        }
      }
      out += text_[at_];
    }
    return symbol("\"");
  }
  bool number(double &value, bool &is_integer, int64_t &integer) {
    skip();
    size_t end = at_;
    while (end < text_.size() && (name_char(text_[end]) || text_[end] == '-' || text_[end] == '+')) ++end;
    const std::string token(text_.substr(at_, end - at_));
    if (token.empty()) {
      expected_ = "a number";
      return false;
    }
    char *rest = nullptr;
    value = strtod(token.c_str(), &rest);
    if (*rest != 0) {
      expected_ = "a number";
      return false;
    }
    is_integer = token.find_first_of(".eni") == std::string::npos;
    integer = is_integer ? (token[0] == '-' ? strtoll(token.c_str(), nullptr, 10)
                                            : static_cast<int64_t>(strtoull(token.c_str(), nullptr, 10)))
                         : 0;
    at_ = end;
    return true;
  }

  // --- types and values
  // ---------------------------------------------------------------------------------------------------
  bool type(Type &out, int depth = 0) {
    if (depth > 32) return false;
    std::string name;
    if (!identifier(name)) return false;
    if (name == "none") {
      out = Type();
      return true;
    }
    if (name == "seq" || name == "opt" || name == "map") {
      if (!symbol("(")) return false;
      ElementType key = ElementType::kUndefined;
      if (name == "map") {
        std::string k;
        if (!identifier(k) || !symbol(",")) return false;
        key = element_type_from_string(k);
      }
      Type inner;
      if (!type(inner, depth + 1) || !symbol(")")) return false;
      out = name == "seq" ? Type::sequence(inner) : name == "opt" ? Type::optional(inner) : Type::map(key, inner);
      return true;
    }
    const ElementType element = element_type_from_string(name);
    if (element == ElementType::kUndefined && name != "undefined") {
      error("unknown element type '" + name + "'");
      return false;
    }
    if (!symbol("[")) return false;
    if (symbol("?")) {
      out = Type::tensor(element, std::nullopt);
      return symbol("]");
    }
    Shape shape;
    while (!symbol("]")) {
      // A dim ends at the comma or bracket of its own level.
      skip();
      size_t end = at_;
      int nesting = 0;
      while (end < text_.size() && (nesting > 0 || (text_[end] != ',' && text_[end] != ']'))) {
        nesting += text_[end] == '(' ? 1 : text_[end] == ')' ? -1 : 0;
        ++end;
      }
      if (!dim(end, shape.emplace_back())) return false;
      symbol(",");
    }
    out = Type::tensor(element, std::move(shape));
    return true;
  }

  // The dimension that the text up to `end` says.
  bool dim(size_t end, Dim &out) {
    const std::string_view text = text_.substr(at_, end - at_);
    const auto parsed = parse_dim(text, *graph_.dims());
    if (!parsed) return error("'" + std::string(text) + "' is not a dimension"), false;
    out = *parsed;
    at_ = end;
    return true;
  }
  bool condition(RegionId region) {
    Condition c;
    c.region = region;
    const size_t line = std::min(text_.find('\n', at_), text_.size()), equal = text_.find(" == ", at_);
    if (equal >= line) return error("a condition needs ' == '"), false;
    if (!dim(equal, c.constraint.left)) return false;
    at_ = equal + 4;
    const size_t where = text_.find(" @ ", at_), one = text_.find(" or 1 @ ", at_);
    if (where >= line) return error("a condition needs ' @ ' and the node that states it"), false;
    c.constraint.or_one = one < where;
    if (!dim(std::min(one, where), c.constraint.right)) return false;
    at_ = where + 3;
    if (!string(c.constraint.where)) return false;
    std::vector<Condition> all = graph_.conditions();
    all.push_back(std::move(c));
    graph_.set_conditions(std::move(all));
    return true;
  }

  bool constant(const Type &type, Constant &out) {
    if (!type.has_shape()) return error("a constant needs a shape"), false;
    std::vector<int64_t> dims;
    int64_t count = 1;
    for (const Dim &d : *type.shape) {
      if (!d.is_constant() || d.value() < 0 || __builtin_mul_overflow(count, d.value(), &count) ||
          count > (int64_t{1} << 31))
        return error("a constant's dims must be numbers"), false;
      dims.push_back(d.value());
    }
    if (word("hash")) {
      std::string hash;
      if (!string(hash)) return false;
      const auto bytes = storage_bytes(type.element, count);
      if (!bytes) return error("no bytes for this type"), false;
      // The text does not hold the values: small pseudo-random ones, the same for the same hash.
      uint64_t state = 1469598103934665603ull;
      for (char c : hash) state = (state ^ static_cast<unsigned char>(c)) * 1099511628211ull;
      std::vector<uint8_t> data(static_cast<size_t>(*bytes));
      if (type.element == ElementType::kFloat32) {
        for (int64_t i = 0; i < count; ++i) {
          state = state * 6364136223846793005ull + 1442695040888963407ull;
          const float v = static_cast<float>(static_cast<int64_t>(state >> 40) - (1 << 23)) / (1 << 23);
          std::memcpy(data.data() + 4 * i, &v, 4);
        }
      } else {
        for (uint8_t &b : data) {
          state = state * 6364136223846793005ull + 1442695040888963407ull;
          b = static_cast<uint8_t>((state >> 56) & 1);
        }
      }
      out = Constant::owned(type.element, std::move(dims), std::move(data));
      return true;
    }
    const bool splat = word("splat");
    if (!splat && !symbol("[")) return false;
    std::vector<uint8_t> bytes(static_cast<size_t>(storage_bytes(type.element, count).value_or(0)));
    std::vector<std::string> strings;
    const int bits = bit_width(type.element);
    for (int64_t i = 0; i < count; ++i) {
      if (splat && i > 0) {
        if (type.element == ElementType::kString) {
          strings.push_back(strings[0]);
        } else if (bits >= 8) {
          const size_t width = static_cast<size_t>(bits / 8);
          std::memcpy(bytes.data() + static_cast<size_t>(i) * width, bytes.data(), width);
        } else {
          put_small(bytes, bits, i, (bytes[0] & ((1 << bits) - 1)));
        }
        continue;
      }
      if (i && !symbol(",")) return false;
      if (type.element == ElementType::kString) {
        std::string s;
        if (!string(s)) return false;
        strings.push_back(s);
        continue;
      }
      double v;
      bool integral;
      int64_t integer;
      if (!number(v, integral, integer)) return false;
      if (is_float(type.element)) {
        const Constant one = Constant::scalar(type.element, v);
        if (bits >= 8)
          std::memcpy(bytes.data() + static_cast<size_t>(i) * one.size(), one.data(), one.size());
        else
          put_small(bytes, bits, i, one.data()[0]);
      } else if (bits >= 8) {
        std::memcpy(bytes.data() + static_cast<size_t>(i) * static_cast<size_t>(bits / 8), &integer,
                    static_cast<size_t>(bits / 8));
      } else {
        put_small(bytes, bits, i, static_cast<int>(integer));
      }
    }
    out = type.element == ElementType::kString ? Constant::strings(std::move(dims), std::move(strings))
                                               : Constant::owned(type.element, std::move(dims), std::move(bytes));
    return splat || symbol("]");
  }
  static void put_small(std::vector<uint8_t> &bytes, int bits, int64_t i, int value) {
    const int per_byte = 8 / bits, shift = static_cast<int>(i % per_byte) * bits, mask = (1 << bits) - 1;
    uint8_t &b = bytes[static_cast<size_t>(i / per_byte)];
    b = static_cast<uint8_t>((b & ~(mask << shift)) | ((value & mask) << shift));
  }

  bool attribute(Attribute &out) {
    auto list = [&](auto one) {
      if (!symbol("[")) return false;
      while (!symbol("]")) {
        if (!one()) return false;
        symbol(",");
      }
      return true;
    };
    double v;
    bool integral;
    int64_t integer;
    if (word("ints")) {
      std::vector<int64_t> values;
      if (!list([&] { return number(v, integral, integer) && (values.push_back(integer), true); })) return false;
      out = std::move(values);
      return true;
    }
    if (word("floats")) {
      std::vector<float> values;
      if (!list([&] { return number(v, integral, integer) && (values.push_back(static_cast<float>(v)), true); }))
        return false;
      out = std::move(values);
      return true;
    }
    if (word("strings")) {
      std::vector<std::string> values;
      std::string s;
      if (!list([&] { return string(s) && (values.push_back(s), true); })) return false;
      out = std::move(values);
      return true;
    }
    if (word("tensor")) {
      Type t;
      Constant c;
      if (!type(t) || !constant(t, c)) return false;
      out = std::move(c);
      return true;
    }
    if (word("type")) {
      Type t;
      if (!type(t)) return false;
      out = std::move(t);
      return true;
    }
    skip();
    if (at_ < text_.size() && text_[at_] == '"') {
      std::string s;
      if (!string(s)) return false;
      out = std::move(s);
      return true;
    }
    if (!number(v, integral, integer)) return false;
    if (integral)
      out = integer;
    else
      out = static_cast<float>(v);
    return true;
  }

  // --- structure
  // ----------------------------------------------------------------------------------------------------------
  bool define(const std::string &name, ValueId id) {
    if (graph_.value(id).name != name || !values_.emplace(name, id).second) {
      error("the name '" + name + "' is defined twice");
      return false;
    }
    return true;
  }
  bool names(std::vector<std::string> &out) {
    if (!symbol("(")) return false;
    while (!symbol(")")) {
      std::string name;
      if (!identifier(name)) return false;
      out.push_back(name);
      symbol(",");
    }
    return true;
  }
  bool finish(RegionId region, const std::vector<std::string> &outputs) {
    std::vector<ValueId> ids;
    for (const std::string &name : outputs) {
      auto it = values_.find(name);
      if (it == values_.end()) return error("output '" + name + "' is not defined"), false;
      ids.push_back(it->second);
    }
    graph_.set_outputs(region, std::move(ids));
    return true;
  }

  bool body(RegionId region, int depth) {
    if (depth > 200) return error("regions nest too deep"), false;
    while (!symbol("}")) {
      if (word("opset")) {
        std::string domain;
        double v;
        bool integral;
        int64_t version;
        if (!string(domain) || !number(v, integral, version)) return false;
        graph_.info().opset_imports.emplace_back(domain, version);
        continue;
      }
      if (word("require")) {
        if (!condition(region)) return false;
        continue;
      }
      if (word("const")) {
        std::string name;
        Type t;
        Constant c;
        if (!identifier(name) || !symbol(":") || !type(t) || !symbol("=") || !constant(t, c)) return false;
        if (!define(name, graph_.add_constant(name, std::move(c)))) return false;
        continue;
      }
      if (!node(region, depth)) return false;
    }
    return true;
  }

  bool node(RegionId region, int depth) {
    std::vector<std::pair<std::string, Type>> outputs;
    do {
      std::string name;
      Type t;
      if (!identifier(name)) return false;
      if (name == "_") {
        outputs.emplace_back("", Type());
        continue;
      }
      if (symbol(":") && !type(t)) return false;
      outputs.emplace_back(name, t);
    } while (symbol(","));
    std::string op;
    if (!symbol("=") || !identifier(op) || !symbol("(")) return false;
    std::vector<ValueId> inputs;
    while (!symbol(")")) {
      std::string name;
      if (!identifier(name)) return false;
      if (name == "_") {
        inputs.emplace_back();
      } else {
        auto it = values_.find(name);
        if (it == values_.end()) return error("'" + name + "' is not defined"), false;
        inputs.push_back(it->second);
      }
      symbol(",");
    }
    std::vector<std::pair<std::string, Attribute>> attributes;
    if (symbol("{")) {
      while (!symbol("}")) {
        std::string name;
        Attribute a;
        if (!identifier(name) || !symbol("=") || !attribute(a)) return false;
        attributes.emplace_back(name, std::move(a));
        symbol(",");
      }
    }
    std::vector<std::string> origin;
    if (symbol("@")) do {
        std::string name;
        if (!string(name)) return false;
        origin.push_back(name);
      } while (symbol(","));
    const std::string node_name = origin.empty() ? outputs.front().first : origin.front();
    const NodeId id = graph_.add_node(region, op, node_name, std::move(inputs), outputs, std::move(attributes));
    for (size_t i = 0; i < outputs.size(); ++i)
      if (!outputs[i].first.empty() && !define(outputs[i].first, graph_.node(id).outputs[i])) return false;
    std::vector<uint32_t> ids;
    if (origin.empty()) origin.push_back(node_name);
    for (const std::string &name : origin) {
      auto [it, fresh] = origins_.emplace(name, 0);
      if (fresh) it->second = graph_.add_origin({name, op, static_cast<int64_t>(graph_.origins().size())});
      ids.push_back(it->second);
    }
    graph_.set_origin(id, std::move(ids));
    while (word("region")) {
      std::string name;
      if (!identifier(name) || !symbol("(")) return false;
      const RegionId nested = graph_.add_region(id);
      graph_.attach_region(id, name, nested);
      while (!symbol(")")) {
        std::string value;
        Type t;
        if (!identifier(value) || !symbol(":") || !type(t)) return false;
        if (!define(value, graph_.add_input(nested, value, t))) return false;
        symbol(",");
      }
      std::vector<std::string> results;
      if (!symbol("->") || !names(results) || !symbol("{") || !body(nested, depth + 1) || !finish(nested, results))
        return false;
    }
    return true;
  }

  void error(std::string message) {
    if (message_.empty()) message_ = std::move(message);
  }
  Failure failure() {
    size_t line = 1;
    for (size_t i = 0; i < at_ && i < text_.size(); ++i) line += text_[i] == '\n';
    return diagnostics_.error(ErrorKind::kInvalid, "graph text, line " + std::to_string(line) + ": " +
                                                       (message_.empty() ? "expected " + expected_ : message_));
  }

  std::string_view text_;
  Diagnostics &diagnostics_;
  size_t at_ = 0;
  std::string expected_, message_;
  Graph graph_;
  std::unordered_map<std::string, ValueId> values_;
  std::unordered_map<std::string, uint32_t> origins_;
};

}  // namespace

Result<Graph> parse_graph(std::string_view text, Diagnostics &diagnostics) {
  return GraphParser(text, diagnostics).run();
}

}  // namespace optc
