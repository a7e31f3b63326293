#include "cli/config_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/common.h"
#include "support/file.h"
#include "support/staging.h"

namespace optc::cli {
namespace {

constexpr size_t kMostBytes = 1 << 20;  // of a file of options

std::string trimmed(const std::string &text) {
  const size_t first = text.find_first_not_of(" \t\r");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

bool is_own(const std::string &name) { return name == "config" || name == "save-config"; }

// A value as it stands in a file: as it is, or where that would be read as another one between quotes, as JSON.
std::string quoted(const std::string &value) {
  const bool plain = !value.empty() && value == trimmed(value) && value[0] != '"' &&
                     std::none_of(value.begin(), value.end(), [](char c) { return c == '\n'; });
  return plain ? value : nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The value of --config among the words; empty: none.
std::string config_of(const std::vector<std::string> &words) {
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i].rfind("--config=", 0) == 0) return words[i].substr(9);
    if (words[i] == "--config" && i + 1 < words.size()) return words[i + 1];
  }
  return "";
}

// Whether the words give this option themselves.
bool gives(const std::vector<std::string> &words, const OptionInfo &option) {
  return std::any_of(words.begin() + 1, words.end(), [&](const std::string &word) {
    const std::string name = word.substr(0, word.find('='));
    return (!option.longer.empty() && name == option.longer) || (!option.opposite.empty() && name == option.opposite) ||
           (!option.shorter.empty() && word[0] == '-' && word[1] != '-' && word.rfind(option.shorter, 0) == 0);
  });
}

struct Reader {
  const std::string &path;
  const VerbInfo &verb;
  const std::vector<std::string> &verbs;
  Diagnostics &diagnostics;
  int line = 0;

  Failure wrong(const std::string &message, const std::string &help = {}) const {
    Diagnostic d;
    d.kind = ErrorKind::kUsage;
    d.message = fmt::format("{}:{}: {}", path, line, message);
    d.file = path;
    d.help = help;
    return diagnostics.add(std::move(d));
  }
  const OptionInfo *find(const std::string &name) const {
    for (const OptionInfo &option : verb.options)
      if (option.longer == "--" + name || (option.longer.empty() && option.shorter == "-" + name)) return &option;
    return nullptr;
  }
  // "[VERB]"; whether it is the verb of the command.
  Result<bool> section(const std::string &text) const {
    const std::string name = text.back() == ']' ? trimmed(text.substr(1, text.size() - 2)) : "";
    if (std::find(verbs.begin(), verbs.end(), name) == verbs.end()) {
      const std::string near = nearest(name, verbs);
      return wrong(fmt::format("{} names no verb of optc", text),
                   near.empty() ? "" : fmt::format("did you mean [{}]?", near));
    }
    return name == verb.name;
  }
  // "name = value"
  Status option(const std::string &text, const std::vector<std::string> &words, std::vector<std::string> &added) const {
    const size_t equals = text.find('=');
    const std::string name = trimmed(text.substr(0, equals));
    if (equals == std::string::npos || name.empty())
      return wrong(fmt::format("'{}' is no option", text), "a line is `name = value`; a flag's value is true or false");
    const OptionInfo *known = is_own(name) ? nullptr : find(name);
    if (!known) {
      std::vector<std::string> names;
      for (const OptionInfo &o : verb.options)
        if (!o.longer.empty() && !is_own(o.longer.substr(2))) names.push_back(o.longer.substr(2));
      const std::string near = nearest(name, names);
      return wrong(is_own(name) ? fmt::format("a file of options cannot have {}", name)
                                : fmt::format("optc {} has no option '{}'", verb.name, name),
                   near.empty() || is_own(name) ? "lines behind [VERB] are for that verb alone"
                                                : fmt::format("did you mean {}?", near));
    }
    std::string value = trimmed(text.substr(equals + 1));
    if (!value.empty() && value[0] == '"') {
      const nlohmann::json json = nlohmann::json::parse(value, nullptr, false);
      if (!json.is_string()) return wrong(fmt::format("{} is no text between quotes", value));
      value = json.get<std::string>();
    }
    if (gives(words, *known)) return {};
    if (known->longer.empty()) {
      added.push_back(known->shorter);
      added.push_back(value);
    } else {
      added.push_back(known->longer + "=" + value);
    }
    return {};
  }
};

}  // namespace

Result<std::vector<std::string>> with_config(const CommandLine &line, std::vector<std::string> words,
                                             Diagnostics &diagnostics) {
  const std::string path = words.empty() ? "" : config_of(words);
  const std::vector<VerbInfo> table = line.table();
  const auto verb = std::find_if(table.begin(), table.end(), [&](const VerbInfo &v) {
    return !words.empty() && v.name == words[0] &&
           std::any_of(v.options.begin(), v.options.end(), [](const OptionInfo &o) { return o.longer == "--config"; });
  });
  if (path.empty() || verb == table.end()) return words;
  OPTC_ASSIGN(const auto file, MappedFile::open(path, diagnostics));
  if (file->size() > kMostBytes)
    return diagnostics.error(ErrorKind::kUsage, fmt::format("{} is no file of options: it is too large", path));
  const std::vector<std::string> verbs = line.verbs();
  Reader reader{path, *verb, verbs, diagnostics};
  const std::string text(file->text());
  std::vector<std::string> added;
  bool here = true;
  for (size_t from = 0; from < text.size();) {
    const size_t to = std::min(text.find('\n', from), text.size());
    const std::string one = trimmed(text.substr(from, to - from));
    from = to + 1;
    ++reader.line;
    if (one.empty() || one[0] == '#') continue;
    if (one[0] == '[') {
      OPTC_ASSIGN(here, reader.section(one));
    } else if (here) {
      OPTC_TRY(reader.option(one, words, added));
    }
  }
  words.insert(words.end(), added.begin(), added.end());
  return words;
}

Status write_config(const Verb &verb, const std::string &path, Diagnostics &diagnostics) {
  std::string text = fmt::format("# options of optc {}, for --config\n[{}]\n", kVersion, verb.name());
  for (const auto &[name, values] : verb.given())
    for (const std::string &value : values)
      if (!is_own(name)) text += fmt::format("{} = {}\n", name, quoted(value));
  return write_file(path, text, diagnostics);
}

}  // namespace optc::cli
