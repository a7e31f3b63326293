#pragma once
// The grammar of the command line: verbs with their options and flags. CLI11 does the work, in arguments.cc alone: its
// headers take longer to compile than all else that a verb's file needs.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace optc::cli {

// An option or a flag of a verb. Each function returns the option itself.
class Option {
 public:
  Option *required();
  Option *type_name(const std::string &name);  // stands behind the option's name in the help
  Option *group(const std::string &section);   // of the help
  Option *delimiter(char c);                   // between the values in one word
  // Any other value is a usage error.
  Option *one_of(std::vector<std::string> values);
  Option *between(int low, int high);
  Option *check(std::function<std::string(const std::string &)> problem);  // what is wrong with a value; empty: nothing
  Option *not_negative();                                                  // a finite number from 0 on

 private:
  friend class Verb;
  friend class CommandLine;
  void *option_ = nullptr;  // CLI::Option
  std::vector<std::string> choices_;
};

// Names are as CLI11 takes them: "-o,--output", "MODEL" for a word without a dash, "--x,!--no-x" for a flag and its
// opposite. What is parsed is written to `value`, which must live until CommandLine::parse has returned.
class Verb {
 public:
  Option *add_option(const std::string &names, std::string &value, const std::string &help);
  Option *add_option(const std::string &names, std::vector<std::string> &value, const std::string &help);
  Option *add_option(const std::string &names, int &value, const std::string &help);
  Option *add_option(const std::string &names, int64_t &value, const std::string &help);
  Option *add_option(const std::string &names, uint64_t &value, const std::string &help);
  Option *add_option(const std::string &names, double &value, const std::string &help);
  Option *add_flag(const std::string &names, bool &value, const std::string &help);
  Option *add_flag(const std::string &names, int &count, const std::string &help);
  void footer(const std::string &text);  // the last lines of the verb's help
  void callback(std::function<void()> chosen);
  std::string name() const;
  // The options that were given, in the table's order, by long name ("dim"; "O" where there is only a short one), each
  // with its values; a flag has true or false. Words without a dash are left out.
  std::vector<std::pair<std::string, std::vector<std::string>>> given() const;

 private:
  friend class CommandLine;
  Option *keep(void *option);
  void *app_ = nullptr;  // CLI::App
  std::vector<std::unique_ptr<Option>> options_;
};

// The grammar as data: what completions and the manual page are written of.
struct OptionInfo {
  std::string shorter, longer;       // "-o", "--output"; both empty: a word without a dash
  std::string name;                  // of such a word: "MODEL"
  std::string value;                 // what stands behind the name: "FILE"; empty: nothing, it is a flag
  std::string help, group;           // group: the section of the help; empty: the verb's own
  std::vector<std::string> choices;  // one_of
  std::string opposite;              // of a flag: "--no-external"
  bool required = false;
};
struct VerbInfo {
  std::string name, help, footer;
  std::vector<OptionInfo> options;
};

class CommandLine {
 public:
  CommandLine(const std::string &program, const std::string &version, const std::string &description);
  ~CommandLine();
  Verb *add_verb(const std::string &name, const std::string &help);

  std::vector<std::string> verbs() const;
  bool has_verb(const std::string &name) const;
  std::vector<std::string> options(const std::string &verb) const;  // the long names, with their dashes
  std::string description() const;
  std::vector<VerbInfo> table() const;

  // Parses the words behind the program's name and runs the callback of the verb chosen, or prints the help or the
  // version. Returns what is wrong with the words; empty when nothing is.
  std::string parse(const std::vector<std::string> &words);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace optc::cli
