// Schedules as one line of text, and back.
//   NAME FIELD=VALUE; FIELD=VALUE; ...
// A field of a part is PART.FIELD. Lists stand in brackets, a loop is SYMBOL<EXTENT, a buffer its name (quoted where it
// has other characters than letters, digits and _./:-, with \ before a quote or backslash), "_" is no buffer. A tile of
// a tensor core is "128x64x32 warps 4x2x1 stages 3 splits 1", one of warpgroups "128x128 stages 6 warpgroups 2 in
// turns".
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "ir/program/program.h"
#include "ir/program/schedule_fields.h"
#include "ir/program/state.h"
#include "ir/program/tensor_core.h"

namespace optc {

// A state as it is printed.
struct StateText {
  BufferId input, output;
  int64_t axis = -1;
  Dim capacity;
  bool in_place = false;
};
template <SameAs<StateText> S, typename V>
void fields(S &s, V &&v) {
  v("input", s.input), v("output", s.output), v("axis", s.axis), v("capacity", s.capacity), v("in_place", s.in_place);
}

namespace {

constexpr std::string_view kPartial[] = {"none", "output", "scratch"};
constexpr std::string_view kMaskedRows[] = {"nan", "zero_probabilities", "zero_result"};

bool plain_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_./:-").find(c) != std::string_view::npos;
}

std::string quoted(const std::string &name) {
  bool plain = !name.empty() && name != "_";
  for (char c : name) plain = plain && plain_character(c);
  if (plain) return name;
  std::string text = "\"";
  for (char c : name) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + "\"";
}

// --- printing

struct Printer {
  const Program &program;
  std::string prefix, out;

  template <typename T>
  void operator()(const char *name, const T &value) {
    if constexpr (HasFields<T>) {
      const std::string outer = prefix;
      prefix += std::string(name) + ".";
      fields(value, *this);
      prefix = outer;
    } else {
      out += (out.empty() ? "" : "; ") + prefix + name + "=" + text(value);
    }
  }
  void operator()(const char *name, const std::vector<RecurrentSchedule::Layer> &layers) {
    (*this)(name, static_cast<int64_t>(layers.size()));
    for (size_t i = 0; i < layers.size(); ++i) (*this)((name + std::to_string(i)).c_str(), layers[i]);
  }

  std::string text(int64_t n) { return std::to_string(n); }
  std::string text(bool b) { return b ? "true" : "false"; }
  std::string text(float f) {
    char digits[40];
    snprintf(digits, sizeof digits, "%.9g", static_cast<double>(f));
    return digits;
  }
  std::string text(Dim d) { return d.str(); }
  std::string text(ElementType type) { return std::string(to_string(type)); }
  std::string text(GemmSchedule::Partial partial) { return std::string(kPartial[static_cast<size_t>(partial)]); }
  std::string text(MaskedRows rows) { return std::string(kMaskedRows[static_cast<size_t>(rows)]); }
  std::string text(TensorCoreType type) { return std::string(to_string(type)); }
  std::string text(const TensorCoreChoice &c) {
    char line[160];
    snprintf(line, sizeof line, "%dx%dx%d warps %dx%dx%d stages %d splits %d", c.tile.m, c.tile.n, c.tile.k,
             c.tile.warps_m, c.tile.warps_n, c.tile.warps_k, c.tile.stages, c.splits);
    return line;
  }
  std::string text(const WarpgroupTile &t) {
    char line[96];
    snprintf(line, sizeof line, "%dx%d stages %d warpgroups %d%s", t.m, t.n, t.stages, t.warpgroups,
             t.turns ? " in turns" : "");
    return line;
  }
  std::string text(BufferId id) { return id.valid() ? quoted(program.buffer(id).name) : "_"; }
  std::string text(const Packed &p) { return text(p.buffer); }
  std::string text(const Scratch &s) { return text(s.buffer); }
  std::string text(const Loop &l) { return l.index->name + "<" + l.extent.str(); }
  template <typename List>
  std::string text(const List &list) {
    std::string all;
    for (const auto &item : list) all += (all.empty() ? "" : ", ") + text(item);
    return "[" + all + "]";
  }
};

// --- parsing

// Parts of a text between separators that stand outside of parentheses, brackets and quotes; without spaces around.
std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  int depth = 0;
  bool quote = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote) {
      parts.back() += c;
      if (c == '\\' && i + 1 < text.size()) parts.back() += text[++i];
      if (c == '"') quote = false;
      continue;
    }
    if (c == separator && depth == 0) {
      parts.emplace_back();
      continue;
    }
    quote = c == '"';
    depth += (c == '(' || c == '[') - (c == ')' || c == ']');
    if (c != ' ' || !parts.back().empty()) parts.back() += c;
  }
  for (std::string &part : parts)
    while (!part.empty() && part.back() == ' ') part.pop_back();
  return parts;
}

struct Parser {
  const Program &program;
  std::vector<std::string> rest;  // "FIELD=VALUE", the next one last
  std::string prefix, wrong;      // wrong: what the first mistake is

  bool fail(const std::string &what) {
    if (wrong.empty()) wrong = what;
    return false;
  }

  template <typename T>
  void operator()(const char *name, T &value) {
    if constexpr (HasFields<T>) {
      const std::string outer = prefix;
      prefix += std::string(name) + ".";
      fields(value, *this);
      prefix = outer;
    } else {
      const std::string field = prefix + name;
      if (rest.empty()) return (void)fail("the field '" + field + "' is missing");
      const std::string given = rest.back();
      rest.pop_back();
      if (given.compare(0, field.size() + 1, field + "=") != 0)
        return (void)fail("expected the field '" + field + "', found '" + given + "'");
      const std::string text = given.substr(field.size() + 1);
      if (!read(text, value)) fail("'" + text + "' is no value of the field '" + field + "'");
    }
  }
  void operator()(const char *name, std::vector<RecurrentSchedule::Layer> &layers) {
    int64_t count = 0;
    (*this)(name, count);
    if (count < 0 || count > 2) return (void)fail("a recurrent layer has one or two directions");
    layers.resize(static_cast<size_t>(count));
    for (size_t i = 0; i < layers.size(); ++i) (*this)((name + std::to_string(i)).c_str(), layers[i]);
  }

  static bool read(const std::string &text, int64_t &n) {
    char *end = nullptr;
    n = strtoll(text.c_str(), &end, 10);
    return !text.empty() && *end == 0;
  }
  static bool read(const std::string &text, bool &b) {
    b = text == "true";
    return b || text == "false";
  }
  static bool read(const std::string &text, float &f) {
    char *end = nullptr;
    f = strtof(text.c_str(), &end);
    return !text.empty() && *end == 0;
  }
  bool read(const std::string &text, Dim &d) {
    const size_t known = program.dims->symbol_count();
    const auto parsed = parse_dim(text, *program.dims);
    if (parsed) d = *parsed;
    return parsed.has_value() && program.dims->symbol_count() == known;
  }
  static bool read(const std::string &text, ElementType &type) {
    for (int i = 0; i <= static_cast<int>(ElementType::kInt2); ++i)
      if (to_string(static_cast<ElementType>(i)) == text) {
        type = static_cast<ElementType>(i);
        return true;
      }
    return false;
  }
  template <typename T, size_t N>
  static bool read_one_of(const std::string_view (&names)[N], const std::string &text, T &value) {
    for (size_t i = 0; i < N; ++i)
      if (names[i] == text) {
        value = static_cast<T>(i);
        return true;
      }
    return false;
  }
  static bool read(const std::string &text, GemmSchedule::Partial &partial) {
    return read_one_of(kPartial, text, partial);
  }
  static bool read(const std::string &text, MaskedRows &rows) { return read_one_of(kMaskedRows, text, rows); }
  static bool read(const std::string &text, TensorCoreType &type) {
    for (int i = 0; i <= static_cast<int>(TensorCoreType::kThreeTF32); ++i)
      if (to_string(static_cast<TensorCoreType>(i)) == text) {
        type = static_cast<TensorCoreType>(i);
        return true;
      }
    return false;
  }
  static bool read(const std::string &text, TensorCoreChoice &c) {
    int end = 0;
    return sscanf(text.c_str(), "%5dx%5dx%5d warps %3dx%3dx%3d stages %3d splits %5d%n", &c.tile.m, &c.tile.n,
                  &c.tile.k, &c.tile.warps_m, &c.tile.warps_n, &c.tile.warps_k, &c.tile.stages, &c.splits, &end) == 8 &&
           static_cast<size_t>(end) == text.size();
  }
  static bool read(const std::string &text, WarpgroupTile &t) {
    int end = 0;
    if (sscanf(text.c_str(), "%5dx%5d stages %3d warpgroups %3d%n", &t.m, &t.n, &t.stages, &t.warpgroups, &end) != 4)
      return false;
    t.turns = text.substr(static_cast<size_t>(end)) == " in turns";
    return t.turns || static_cast<size_t>(end) == text.size();
  }
  bool read(const std::string &text, BufferId &id) {
    id = BufferId();
    if (text == "_") return true;
    std::string name = text;
    if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
      name.clear();
      for (size_t i = 1; i + 1 < text.size(); ++i) name += text[i] == '\\' ? text[++i] : text[i];
    }
    for (size_t i = 0; i < program.buffers.size(); ++i) {
      if (program.buffers[i].name != name) continue;
      if (id.valid()) return fail("two buffers are named '" + name + "'");
      id = BufferId(i);
    }
    return id.valid();
  }
  bool read(const std::string &text, Packed &p) { return read(text, p.buffer); }
  bool read(const std::string &text, Scratch &s) { return read(text, s.buffer); }
  bool read(const std::string &text, Loop &loop) {
    const size_t at = text.find('<');
    if (at == std::string::npos) return false;
    const DimSymbol *symbol = program.dims->find(text.substr(0, at));
    loop.index = symbol;
    return symbol && symbol->kind == SymbolKind::kLoop && read(text.substr(at + 1), loop.extent);
  }
  bool read(const std::string &text, std::array<int64_t, 3> &triple) {
    std::vector<int64_t> list;
    if (!read(text, list) || list.size() != 3) return false;
    triple = {list[0], list[1], list[2]};
    return true;
  }
  template <typename T>
  bool read(const std::string &text, std::vector<T> &list) {
    list.clear();
    if (text.size() < 2 || text.front() != '[' || text.back() != ']') return false;
    if (text == "[]") return true;
    for (const std::string &part : split(std::string_view(text).substr(1, text.size() - 2), ',')) {
      T item{};
      if (!read(part, item)) return false;
      list.push_back(item);
    }
    return true;
  }
};

template <size_t I = 0>
bool make(std::string_view name, Schedule &schedule) {
  if constexpr (I == std::variant_size_v<Schedule>) {
    return false;
  } else {
    using S = std::variant_alternative_t<I, Schedule>;
    if constexpr (!std::is_same_v<S, std::monostate>)
      if (S::kName == name) {
        schedule = S();
        return true;
      }
    return make<I + 1>(name, schedule);
  }
}

}  // namespace

std::string print(const Program &program, const Schedule &schedule) {
  return std::visit(
      [&](const auto &s) -> std::string {
        using S = std::decay_t<decltype(s)>;
        if constexpr (std::is_same_v<S, std::monostate>) {
          return "";
        } else {
          Printer printer{program, "", ""};
          fields(s, printer);
          return std::string(S::kName) + (printer.out.empty() ? "" : " ") + printer.out;
        }
      },
      schedule);
}

Result<Schedule> parse_schedule(std::string_view text, const Program &program, Diagnostics &diagnostics) {
  const size_t space = text.find(' ');
  const std::string_view name = text.substr(0, space);
  Schedule schedule;
  Parser parser{program, {}, "", ""};
  if (!make(name, schedule)) {
    parser.fail("'" + std::string(name) + "' is no schedule");
  } else {
    if (space != std::string_view::npos) parser.rest = split(text.substr(space + 1), ';');
    std::reverse(parser.rest.begin(), parser.rest.end());
    std::visit([&](auto &s) { fields(s, parser); }, schedule);
    if (!parser.rest.empty()) parser.fail("'" + parser.rest.back() + "' is one field too many");
  }
  if (!parser.wrong.empty()) return diagnostics.error(ErrorKind::kInvalid, "schedule: " + parser.wrong);
  return schedule;
}

std::string print(const Program &program, const State &state) {
  StateText text{program.inputs[state.input], program.outputs[state.output], state.axis, 0, state.in_place};
  if (state.capacity) text.capacity = program.dims->symbol_value(state.capacity);
  Printer printer{program, "", ""};
  fields(text, printer);
  return printer.out;
}

Result<State> parse_state(std::string_view text, const Program &program, Diagnostics &diagnostics) {
  StateText read;
  Parser parser{program, split(text, ';'), "", ""};
  std::reverse(parser.rest.begin(), parser.rest.end());
  fields(read, parser);
  if (!parser.rest.empty()) parser.fail("'" + parser.rest.back() + "' is one field too many");
  State state;
  const auto position = [&](const std::vector<BufferId> &list, BufferId b, const char *what) {
    const auto found = std::find(list.begin(), list.end(), b);
    if (found == list.end()) parser.fail(std::string("the Program has no such ") + what);
    return static_cast<uint32_t>(found - list.begin());
  };
  state.input = position(program.inputs, read.input, "input");
  state.output = position(program.outputs, read.output, "output");
  state.axis = static_cast<int>(read.axis);
  state.capacity = single_symbol(read.capacity);
  state.in_place = read.in_place;
  if (!parser.wrong.empty()) return diagnostics.error(ErrorKind::kInvalid, "state: " + parser.wrong);
  return state;
}

}  // namespace optc
