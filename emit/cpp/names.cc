#include "emit/cpp/names.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace optc {
namespace {

// What the code around the names uses itself, by where they stand.
const std::vector<const char *> &around(NameScope::Use use) {
  static const std::vector<const char *> kernel = {"plan", "s",   "sink",  "epilogue", "part",   "partial",
                                                   "a",    "env", "begin", "end",      "scratch"},
                                         schedule = {"d",       "k",      "run",        "env",      "bytes",
                                                     "sizes",   "in",     "out",        "gpu",      "state",
                                                     "memory",  "places", "attributes", "Model",    "Mixed",
                                                     "Dims",    "State",  "Run",        "inputs",   "outputs",
                                                     "weights", "shapes", "faults",     "manifest", "cuda",
                                                     "list",    "values", "processor",  "status",   "Places",
                                                     "Objects", "probe"},
                                         header = {"context", "in",     "out",     "status",   "model",   "options",
                                                   "outputs", "inputs", "Outputs", "Model",    "Error",   "data",
                                                   "check",   "api",    "check_",  "context_", "other",   "error",
                                                   "count",   "name",   "text",    "code",     "Elements"};
  return use == NameScope::Use::kSchedule ? schedule : use == NameScope::Use::kHeader ? header : kernel;
}

}  // namespace

NameScope::NameScope(Use use) {
  for (const char *name : around(use)) take(name);
}

std::string bundle_name(std::string_view wish) {
  static const std::unordered_set<std::string_view> taken = {
      // CMake's and its generators' targets
      "all", "ALL_BUILD", "clean", "depend", "edit_cache", "help", "install", "package", "package_source", "preinstall",
      "rebuild_cache", "RUN_TESTS", "test", "ZERO_CHECK",
      // headers of C and POSIX: NAME.h must not stand before them
      "aio", "alloca", "assert", "byteswap", "complex", "cpio", "crypt", "ctype", "dirent", "dlfcn", "elf", "endian",
      "errno", "error", "fcntl", "features", "fenv", "float", "fnmatch", "ftw", "getopt", "glob", "grp", "iconv",
      "inttypes", "langinfo", "libgen", "limits", "link", "locale", "malloc", "math", "memory", "monetary", "mqueue",
      "netdb", "nl_types", "paths", "poll", "pthread", "pwd", "regex", "resolv", "sched", "search", "semaphore",
      "setjmp", "signal", "spawn", "stdarg", "stdatomic", "stdbool", "stddef", "stdint", "stdio", "stdlib", "string",
      "strings", "syslog", "tar", "termios", "tgmath", "threads", "time", "uchar", "ucontext", "ulimit", "unistd",
      "utime", "values", "wait", "wchar", "wctype", "wordexp", "xxh3",
      // functions of the C library, which a namespace would hide
      "abort", "accept", "access", "acct", "alarm", "atexit", "atof", "atoi", "atol", "bind", "brk", "bsearch", "bzero",
      "calloc", "cbrt", "clock", "clone", "close", "connect", "copysign", "creat", "daemon", "div", "drem", "dup",
      "encrypt", "erfc", "exit", "exp10", "exp2", "fabs", "fork", "free", "gamma", "getc", "getenv", "gets", "hypot",
      "index", "ioctl", "isalpha", "isatty", "j0", "j1", "jn", "kill", "labs", "lgamma", "listen", "log10", "log2",
      "logb", "longjmp", "lseek", "mblen", "mkdir", "mktime", "modf", "mount", "nan", "nice", "open", "pause", "perror",
      "pipe", "pread", "printf", "profil", "putc", "puts", "qsort", "raise", "rand", "random", "read", "realloc",
      "recv", "remainder", "remove", "rename", "rewind", "rindex", "rint", "rmdir", "round", "scanf", "select", "send",
      "setenv", "shutdown", "significand", "sleep", "socket", "splice", "srand", "stat", "swab", "symlink", "sync",
      "system", "tee", "tgamma", "times", "tolower", "toupper", "truncate", "umask", "unlink", "usleep", "vfork",
      "write", "y0", "y1", "yn",
      // modules that python/NAME.py needs, and namespaces of C++
      "ctypes", "json", "numpy", "onnxruntime", "os", "pathlib", "pybind11", "sys", "torch", "typing", "std"};
  std::string name = identifier(wish, 64);
  if (name == "v" && wish != "v") name = "model";                        // no letter of the wish is left
  if (!wish.empty() && wish[0] >= '0' && wish[0] <= '9') name[0] = 'm';  // and not "v50"
  if (taken.count(name)) name += '_';
  return name;
}

std::string NameScope::unique(std::string_view wish, size_t longest) {
  const std::string base = identifier(wish, longest);
  if (taken_.insert(base).second) return base;
  for (size_t k = 2;; ++k) {
    std::string name = base + (base.back() >= '0' && base.back() <= '9' ? "_" : "") + std::to_string(k);
    if (is_reserved(name)) name.insert(0, "v_");  // "T0_2" is spelled as macros are
    if (taken_.insert(name).second) return name;
  }
}

namespace {

bool is_letter(char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Where the token of C++ that begins at `i` ends: a comment up to the end of its line, a string, a word or a character.
size_t token_end(std::string_view code, size_t i) {
  const char c = code[i];
  size_t end = i + 1;
  if (c == '/' && end < code.size() && code[end] == '/') return std::min(code.find('\n', i), code.size());
  if (c == '"') {
    while (end < code.size() && code[end] != '"') end += code[end] == '\\' ? 2 : 1;
    return std::min(end + 1, code.size());
  }
  if (is_letter(c) || is_digit(c))
    while (end < code.size() && (is_letter(code[end]) || is_digit(code[end]))) ++end;
  return end;
}

// `own` or what begins with "own_".
bool is_own(std::string_view token, const std::string &own) {
  return token.compare(0, own.size(), own) == 0 && (token.size() == own.size() || token[own.size()] == '_');
}

}  // namespace

std::string without_names(std::string_view code, const NameScope &names, const std::string &own) {
  std::string out;
  std::unordered_map<std::string, size_t> numbers;
  for (size_t i = 0, end = 0; i < code.size(); i = end) {
    end = token_end(code, i);
    const std::string token(code.substr(i, end - i));
    if (token.compare(0, 2, "//") == 0) continue;
    if (!is_letter(token[0]) || (!out.empty() && out.back() == '.')) {
      out += token;
    } else if (is_own(token, own)) {
      out += "OWN" + token.substr(own.size());
    } else if (names.has(token)) {
      out += "$" + std::to_string(numbers.emplace(token, numbers.size()).first->second);
    } else {
      out += token;
    }
  }
  return out;
}

std::string with_own_name(std::string_view code, const std::string &own, const std::string &name) {
  std::string out;
  for (size_t i = 0, end = 0; i < code.size(); i = end) {
    end = token_end(code, i);
    const std::string_view token = code.substr(i, end - i);
    const bool renamed = is_letter(token[0]) && is_own(token, own) && (out.empty() || out.back() != '.');
    out += renamed ? name + std::string(token.substr(own.size())) : std::string(token);
  }
  return out;
}

std::string role_name(const Buffer &buffer, bool written) {
  if (written) return "y";
  const std::string_view name = buffer.name;
  const auto ends_with = [&](std::string_view end) {
    return name.size() >= end.size() && name.substr(name.size() - end.size()) == end;
  };
  if (ends_with("_packed")) return "weights";
  for (const char *role : {"bias", "weight", "scale", "gamma", "beta"})
    if (ends_with(role)) return role;
  return buffer.kind == BufferKind::kConstant ? "constant" : "x";
}

std::string string_literal(std::string_view text) {
  static const char digits[] = "01234567";
  std::string out = "\"";
  for (char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (u < 32 || u == 127 || c == '?') {  // '?': no trigraph
      out += '\\';
      out += digits[u >> 6];
      out += digits[(u >> 3) & 7];
      out += digits[u & 7];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string string_items(const std::vector<std::string> &texts) {
  std::string items;
  for (const std::string &text : texts)
    items +=
        (items.empty() ? "\n      {" : ",\n      {") + string_literal(text) + ", " + std::to_string(text.size()) + "}";
  return items.empty() ? "{nullptr, 0}" : items;
}

std::string comment_text(std::string_view text) {
  std::string out;
  for (char c : text) {
    const auto u = static_cast<unsigned char>(c);
    out += u < 32 || u == 127 ? ' ' : c;
  }
  while (!out.empty() && (out.back() == '\\' || out.back() == ' ')) out.pop_back();  // a backslash would join lines
  return out;
}

}  // namespace optc
