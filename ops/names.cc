#include "ops/names.h"

namespace optc {
namespace {

constexpr size_t kLongest = 80;

const std::unordered_set<std::string_view> &reserved() {
  static const std::unordered_set<std::string_view> words = {
      "alignas",   "alignof",  "and",      "and_eq",   "asm",      "auto",     "bitand",  "bitor",    "bool",
      "break",     "case",     "catch",    "char",     "class",    "compl",    "concept", "const",    "constexpr",
      "continue",  "decltype", "default",  "delete",   "do",       "double",   "else",    "enum",     "explicit",
      "export",    "extern",   "false",    "float",    "for",      "friend",   "goto",    "if",       "inline",
      "int",       "int8_t",   "int16_t",  "int32_t",  "int64_t",  "long",     "main",    "mutable",  "namespace",
      "new",       "noexcept", "not",      "not_eq",   "nullptr",  "operator", "or",      "or_eq",    "private",
      "protected", "public",   "register", "requires", "return",   "short",    "signed",  "size_t",   "sizeof",
      "static",    "struct",   "switch",   "template", "this",     "throw",    "true",    "try",      "typedef",
      "typeid",    "typename", "uint8_t",  "uint16_t", "uint32_t", "uint64_t", "union",   "unsigned", "using",
      "virtual",   "void",     "volatile", "wchar_t",  "while",    "xor",      "xor_eq"};
  return words;
}

bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::string identifier(std::string_view name) {
  std::string text;
  for (char c : name) {
    if (letter(c) || digit(c)) {
      text += c;
    } else if (!text.empty() && text.back() != '_') {
      text += '_';
    }
  }
  if (text.size() > kLongest) text = text.substr(text.size() - kLongest);
  while (!text.empty() && text.front() == '_') text.erase(text.begin());
  while (!text.empty() && text.back() == '_') text.pop_back();
  if (text.empty()) text = "value";
  if (digit(text.front())) text = "k" + text;
  if (reserved().count(text)) text += "_";
  return text;
}

std::string UniqueNames::unique(std::string_view name) {
  const std::string base = identifier(name);
  std::string candidate = base;
  int &next = next_[base];
  while (!taken_.insert(candidate).second)
    candidate = base + (base.back() == '_' ? "" : "_") + std::to_string(++next + 1);
  return candidate;
}

}  // namespace optc
