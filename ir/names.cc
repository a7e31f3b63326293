// The names that emitted code cannot give to what comes from a model.
#include <algorithm>
#include <string>

#include "ir/names.h"

namespace optc {
namespace {

const std::unordered_set<std::string_view> &words() {
  static const std::unordered_set<std::string_view> list = {
      "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break", "case", "catch", "char",
      "char8_t", "char16_t", "char32_t", "class", "compl", "concept", "const", "consteval", "constexpr", "constinit",
      "const_cast", "continue", "co_await", "co_return", "co_yield", "decltype", "default", "delete", "do", "double",
      "dynamic_cast", "else", "enum", "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "if",
      "inline", "int", "long", "mutable", "namespace", "new", "noexcept", "not", "not_eq", "nullptr", "operator", "or",
      "or_eq", "private", "protected", "public", "register", "reinterpret_cast", "requires", "return", "short",
      "signed", "sizeof", "static", "static_assert", "static_cast", "struct", "switch", "template", "this",
      "thread_local", "throw", "true", "try", "typedef", "typeid", "typename", "union", "unsigned", "using", "virtual",
      "void", "volatile", "wchar_t", "while", "xor", "xor_eq", "restrict",
      // types and functions of the C library that emitted code names, and the function that a program must have
      "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t", "size_t", "ptrdiff_t",
      "intptr_t", "uintptr_t", "memcpy", "memset", "memmove", "std", "main",
      // names that emitted code uses itself
      "env", "begin", "end", "scratch", "task", "vf", "vi", "vm", "vu", "load", "store", "splat", "splat_i", "select",
      "min", "max", "abs", "sign", "floor", "ceil", "trunc", "sqrt", "exp", "log", "tanh", "erf", "sigmoid", "pow",
      "sin", "cos", "fma", "lanes", "least", "most", "times", "plus", "checked", "parallel", "bits", "n", "run", "optc",
      "Env", "Kernels", "iota", "expm1", "log1p", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh",
      "atanh", "relu", "softplus", "by_place", "gather", "lane_int", "widen", "to_i64", "to_i32", "to_f32",
      "kUnbounded", "transpose"};
  return list;
}

// Macros of the C library, of compilers and of headers of the processor, which no scope hides. Whole families go by how
// they are spelled, since each system has more of them.
bool may_be_macro(std::string_view name) {
  static const std::unordered_set<std::string_view> macros = {
      "ACCESSPERMS",   "ALLPERMS",  "BUFSIZ",      "CMPLX",     "CMPLXF",      "CMPLXL",   "CSIGNAL",
      "DEFFILEMODE",   "DOMAIN",    "FAPPEND",     "FASYNC",    "FFSYNC",      "FNDELAY",  "FNONBLOCK",
      "HUGE",          "I",         "INFINITY",    "MAXFLOAT",  "MINSIGSTKSZ", "NAN",      "NFDBITS",
      "NGREG",         "NSIG",      "NULL",        "NZERO",     "SNAN",        "OVERFLOW", "PLOSS",
      "SING",          "SOMAXCONN", "TLOSS",       "UNDERFLOW", "alloca",      "assert",   "assert_perror",
      "errno",         "h_addr",    "h_errno",     "howmany",   "i386",        "isfinite", "isinf",
      "isnan",         "isnormal",  "issubnormal", "linux",     "major",       "makedev",  "math_errhandling",
      "minor",         "offsetof",  "roundup",     "setjmp",    "sigmask",     "signbit",  "sigsetjmp",
      "static_assert", "stderr",    "stdin",       "stdout",    "strdupa",     "strndupa", "unix"};
  static constexpr std::string_view families[] = {
      "L_",  "M_",  "PRI", "P_",     "SYS_",       "SCN",    "SNAN", "bit_", "htobe", "htole", "pthread_", "s6_", "sa_",
      "si_", "st_", "va_", "sched_", "signature_", "sigev_", "be16", "be32", "be64",  "le16",  "le32",     "le64"};
  if (macros.count(name)) return true;
  for (std::string_view family : families)
    if (name.size() > family.size() && name.compare(0, family.size(), family) == 0) return true;
  if (std::any_of(name.begin(), name.end(), [](char c) { return c >= 'a' && c <= 'z'; })) return false;
  // Written in capitals: several words, or an error (EINVAL), a signal (SIGINT), a status of a process (WNOHANG).
  return name.find('_') != std::string_view::npos || (name.size() > 2 && (name[0] == 'E' || name[0] == 'W')) ||
         name.compare(0, 3, "SIG") == 0;
}

// Whether all names that begin like this one are kept free.
bool in_family(std::string_view name) {
  const auto begins = [&](std::string_view with) { return name.compare(0, with.size(), with) == 0; };
  return begins("optc") || begins("Optc") || begins("OPTC") || may_be_macro(name);
}

}  // namespace

bool is_reserved(std::string_view name) { return words().count(name) || in_family(name); }

// "/layer/layer.1/conv/Conv" -> "layer.1/conv/Conv": exporters of PyTorch begin a module's name with that of its list.
static std::string without_repeats(std::string_view path) {
  std::string out;
  while (!path.empty()) {
    const size_t end = path.find('/');
    const std::string_view part = path.substr(0, end), rest = end < path.size() ? path.substr(end + 1) : "";
    const bool repeated = rest.size() > part.size() && rest.compare(0, part.size(), part) == 0 &&
                          rest[part.size()] == '.' && !part.empty();
    if (!repeated) out += std::string(part) + (end < path.size() ? "/" : "");
    path = rest;
  }
  return out;
}

std::string identifier(std::string_view name, size_t longest) {
  std::string out;
  for (char c : without_repeats(name)) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool digit = c >= '0' && c <= '9';
    if (letter || digit) {
      out += c;
    } else if (!out.empty() && out.back() != '_') {
      out += '_';
    }
  }
  while (!out.empty() && out.back() == '_') out.pop_back();
  if (out.size() > longest) {
    out.erase(0, out.size() - longest);
    // Not in the middle of a word when a border is near.
    const size_t border = out.find('_');
    if (border != std::string::npos && border < longest / 3) out.erase(0, border + 1);
  }
  if (out.empty()) out = "v";
  if (out[0] >= '0' && out[0] <= '9') out.insert(0, "v");
  if (in_family(out))
    out.insert(0, "v_");  // so that no number behind it makes another one of the family
  else if (words().count(out))
    out += '_';
  return out;
}

std::string UniqueNames::unique(std::string_view name) {
  constexpr size_t kLongest = 80;
  const std::string base = identifier(name, kLongest);
  std::string candidate = base;
  int &next = next_[base];
  while (!taken_.insert(candidate).second) {
    candidate = base + (base.back() == '_' ? "" : "_") + std::to_string(++next + 1);
    if (is_reserved(candidate)) candidate.insert(0, "v_");  // "T0_2" is spelled as macros are
  }
  return candidate;
}

}  // namespace optc
