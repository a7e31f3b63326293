#include "cli/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <utility>

namespace optc::cli {
namespace {

CLI::Option *of(void *option) { return static_cast<CLI::Option *>(option); }
CLI::App *app_of(void *app) { return static_cast<CLI::App *>(app); }
// No text is no value: `-o ""`, as a shell writes where a variable is not set, is not as if -o were left out.
std::string emptiness(const std::string &text) { return text.empty() ? "'' is no value" : ""; }

constexpr size_t kHelpWidth = 79, kHelpColumn = 30;  // of a line; where texts begin

// Lines of whole words; those behind the first begin at `column`, where the first is.
std::string wrapped(const std::string &text, size_t column) {
  std::string out, line;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (!line.empty() && column + line.size() + 1 + word.size() > kHelpWidth) {
      out += line + "\n" + std::string(column, ' ');
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return out + line + "\n";
}
std::string wrapped_lines(const std::string &text) {
  std::string out, line;
  std::istringstream lines(text);
  while (std::getline(lines, line)) {
    const size_t indent = std::min(line.find_first_not_of(' '), line.size());
    out += std::string(indent, ' ') + wrapped(line, indent);
  }
  return out;
}

// `name` at the left, `text` behind it.
std::string help_entry(const std::string &name, const std::string &text) {
  std::string out = "  " + name;
  if (out.size() + 2 > kHelpColumn) out += "\n" + std::string(kHelpColumn, ' ');
  out.resize(std::max(out.size(), kHelpColumn), ' ');
  return out + wrapped(text, kHelpColumn);
}

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() {
    label("Positionals", "Arguments");
    label("SUBCOMMAND", "VERB");
  }
  std::string make_option(const CLI::Option *option, bool positional) const override {
    std::string name = positional ? option->get_single_name() : option->get_name(false, true);
    for (size_t at = 0; (at = name.find("{false}")) != std::string::npos;) name.erase(at, 7);  // of a flag's opposite
    std::string text = option->get_description();
    if (option->get_type_size() != 0) {
      const std::string type = option->get_type_name();  // what it may be stands behind a colon
      const size_t colon = std::min(type.find(':'), type.size());
      if (!positional && colon > 0) name += " " + type.substr(0, colon);
      if (const size_t open = type.find('{', colon);
          open != std::string::npos && !names_all(text, type.substr(open + 1)))
        text += " " + spaced(type.substr(open));
    }
    return help_entry(name, text);
  }
  std::string make_description(const CLI::App *app) const override { return wrapped_lines(app->get_description()); }
  std::string make_footer(const CLI::App *app) const override {
    return app->get_footer().empty() ? "" : "\n" + wrapped_lines(app->get_footer());
  }
  std::string make_subcommand(const CLI::App *verb) const override {
    return help_entry(verb->get_name(), verb->get_description());
  }

 private:
  // Whether the text has each of "a,b}".
  static bool names_all(const std::string &text, const std::string &list) {
    std::istringstream choices(list.substr(0, list.find('}')));
    for (std::string choice; std::getline(choices, choice, ',');)
      if (text.find(choice) == std::string::npos) return false;
    return true;
  }
  static std::string spaced(const std::string &list) {
    std::string text;
    for (const char c : list) text += c == ',' ? std::string(", ") : std::string(1, c);
    return text;
  }
};

}  // namespace

Option *Option::required() {
  of(option_)->required();
  return this;
}
Option *Option::type_name(const std::string &name) {
  of(option_)->type_name(name);
  return this;
}
Option *Option::group(const std::string &section) {
  of(option_)->group(section);
  return this;
}
Option *Option::delimiter(char c) {
  of(option_)->delimiter(c);
  return this;
}
Option *Option::one_of(std::vector<std::string> values) {
  choices_ = values;
  of(option_)->check(CLI::IsMember(std::move(values)));
  return this;
}
Option *Option::between(int low, int high) {
  of(option_)->check(CLI::Range(low, high));
  return this;
}
Option *Option::check(std::function<std::string(const std::string &)> problem) {
  of(option_)->check(CLI::Validator([problem](std::string &text) { return problem(text); }, ""));
  return this;
}

Option *Option::not_negative() {
  of(option_)->check(CLI::Validator(
      [](std::string &text) {
        char *end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        return *end == 0 && end != text.c_str() && value >= 0 && value < 1e300 ? "" : "expected a number from 0 on";
      },
      ""));
  return this;
}

Option *Verb::keep(void *option) {
  options_.push_back(std::make_unique<Option>());
  options_.back()->option_ = option;
  return options_.back().get();
}
Option *Verb::add_option(const std::string &names, std::string &value, const std::string &help) {
  return keep(app_of(app_)->add_option(names, value, help))->check(emptiness);
}
Option *Verb::add_option(const std::string &names, std::vector<std::string> &value, const std::string &help) {
  return keep(app_of(app_)->add_option(names, value, help))->check(emptiness);
}
Option *Verb::add_option(const std::string &names, int &value, const std::string &help) {
  return keep(app_of(app_)->add_option(names, value, help));
}
Option *Verb::add_option(const std::string &names, int64_t &value, const std::string &help) {
  return keep(app_of(app_)->add_option(names, value, help));
}
Option *Verb::add_option(const std::string &names, uint64_t &value, const std::string &help) {
  return keep(app_of(app_)->add_option(names, value, help));
}
Option *Verb::add_option(const std::string &names, double &value, const std::string &help) {
  return keep(app_of(app_)->add_option(names, value, help));
}
Option *Verb::add_flag(const std::string &names, bool &value, const std::string &help) {
  return keep(app_of(app_)->add_flag(names, value, help));
}
Option *Verb::add_flag(const std::string &names, int &count, const std::string &help) {
  return keep(app_of(app_)->add_flag(names, count, help));
}
void Verb::footer(const std::string &text) { app_of(app_)->footer(text); }
void Verb::callback(std::function<void()> chosen) { app_of(app_)->callback(std::move(chosen)); }

std::string Verb::name() const { return app_of(app_)->get_name(); }
std::vector<std::pair<std::string, std::vector<std::string>>> Verb::given() const {
  std::vector<std::pair<std::string, std::vector<std::string>>> list;
  for (const CLI::Option *option : app_of(app_)->get_options()) {
    if (option->count() == 0 || option->get_positional()) continue;
    const auto &names = option->get_lnames().empty() ? option->get_snames() : option->get_lnames();
    list.emplace_back(names.front(), option->results());
  }
  return list;
}

struct CommandLine::Parts {
  CLI::App app;
  std::vector<std::unique_ptr<Verb>> verbs;
  explicit Parts(const std::string &description) : app(description) {}
};

CommandLine::CommandLine(const std::string &program, const std::string &version, const std::string &description)
    : parts_(std::make_unique<Parts>(description)) {
  parts_->app.name(program);
  parts_->app.formatter(std::make_shared<HelpFormatter>());
  parts_->app.set_help_flag("-h,--help", "print this and end");
  parts_->app.set_version_flag("--version", version, "print the version and end");
  parts_->app.require_subcommand(1);
}
CommandLine::~CommandLine() = default;

Verb *CommandLine::add_verb(const std::string &name, const std::string &help) {
  parts_->verbs.push_back(std::make_unique<Verb>());
  parts_->verbs.back()->app_ = parts_->app.add_subcommand(name, help)->group("Verbs");
  return parts_->verbs.back().get();
}

std::vector<std::string> CommandLine::verbs() const {
  std::vector<std::string> names;
  for (const auto &verb : parts_->verbs) names.push_back(app_of(verb->app_)->get_name());
  return names;
}

bool CommandLine::has_verb(const std::string &name) const {
  const std::vector<std::string> names = verbs();
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<std::string> CommandLine::options(const std::string &verb) const {
  std::vector<std::string> names;
  for (const CLI::Option *option : parts_->app.get_subcommand(verb)->get_options())
    for (const std::string &name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::string CommandLine::description() const { return parts_->app.get_description(); }

std::vector<VerbInfo> CommandLine::table() const {
  std::vector<VerbInfo> verbs;
  for (const auto &verb : parts_->verbs) {
    const CLI::App *app = app_of(verb->app_);
    VerbInfo info{app->get_name(), app->get_description(), app->get_footer(), {}};
    for (const CLI::Option *option : app->get_options()) {
      OptionInfo one;
      if (!option->get_snames().empty()) one.shorter = "-" + option->get_snames().front();
      if (!option->get_lnames().empty()) one.longer = "--" + option->get_lnames().front();
      if (option->get_positional()) one.name = option->get_single_name();
      const bool flag = option->get_expected_min() == 0 && !option->get_positional();
      if (!flag) one.value = option->get_type_name();
      if (const size_t colon = one.value.find(':'); colon != std::string::npos) one.value.resize(colon);
      // A flag and its opposite are two names of one option.
      for (const std::string &name : option->get_lnames())
        if (flag && "--" + name != one.longer) one.opposite = "--" + name;
      one.help = option->get_description();
      one.group = option->get_group() == "Options" ? "" : option->get_group();
      one.required = option->get_required();
      for (const auto &known : verb->options_)
        if (known->option_ == option) one.choices = known->choices_;
      info.options.push_back(std::move(one));
    }
    verbs.push_back(std::move(info));
  }
  return verbs;
}

std::string CommandLine::parse(const std::vector<std::string> &words) {
  std::vector<std::string> reversed(words.rbegin(), words.rend());  // as CLI11 wants them
  try {
    parts_->app.parse(reversed);
  } catch (const CLI::CallForHelp &help) {
    parts_->app.exit(help, std::cout, std::cerr);
  } catch (const CLI::CallForVersion &version) {
    parts_->app.exit(version, std::cout, std::cerr);
  } catch (const CLI::ParseError &error) {
    return *error.what() ? error.what() : "the command line is not understood";
  }
  return "";
}

}  // namespace optc::cli
