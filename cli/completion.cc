// optc completion SHELL, optc man: what a shell completes and the manual page, written of the grammar itself.

#include <fmt/format.h>

#include <algorithm>

#include "cli/common.h"

namespace optc::cli {
namespace {

struct CompletionOptions : CommonOptions {
  std::string shell;
};

// Text between single quotes of a shell.
std::string quoted(const std::string &text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string joined(const std::vector<std::string> &words, const char *between = " ") {
  std::string text;
  for (const std::string &word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

bool is_folder(const std::string &value) { return value == "DIR" || value == "FOLDER"; }

// The words of an option: "--output -o", a flag's opposite too.
std::vector<std::string> words_of(const OptionInfo &option) {
  std::vector<std::string> words;
  for (const std::string *word : {&option.longer, &option.shorter, &option.opposite})
    if (!word->empty()) words.push_back(*word);
  return words;
}

std::string for_bash(const std::vector<VerbInfo> &verbs) {
  std::string names, cases, values;
  for (const VerbInfo &verb : verbs) {
    names += (names.empty() ? "" : " ") + verb.name;
    std::string words;
    for (const OptionInfo &option : verb.options) {
      for (const std::string &word : words_of(option)) words += (words.empty() ? "" : " ") + word;
      if (option.value.empty() || words_of(option).empty()) continue;
      std::string pattern;
      for (const std::string &word : words_of(option)) pattern += (pattern.empty() ? "" : "|") + verb.name + ":" + word;
      if (!option.choices.empty())
        values += fmt::format("    {}) COMPREPLY=($(compgen -W {} -- \"$word\")); return ;;\n", pattern,
                              quoted(joined(option.choices)));
      else if (is_folder(option.value))
        values += fmt::format("    {}) COMPREPLY=($(compgen -d -- \"$word\")); return ;;\n", pattern);
      else
        values += fmt::format("    {}) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n", pattern);
    }
    cases += fmt::format("    {}) options={} ;;\n", verb.name, quoted(words));
  }
  return fmt::format(
      R"(# bash completion of optc: source it, or put it into ~/.local/share/bash-completion/completions/optc
_optc() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} verb=compile options='' i
  COMPREPLY=()
  local verbs={}
  for ((i = 1; i < COMP_CWORD; i++)); do
    case " $verbs " in *" ${{COMP_WORDS[i]}} "*) verb=${{COMP_WORDS[i]}}; break ;; esac
  done
  if [[ $before == = ]]; then before=${{COMP_WORDS[COMP_CWORD-2]}}; fi
  if [[ $word == = ]]; then before=${{COMP_WORDS[COMP_CWORD-1]}} word=''; fi
  case "$verb:$before" in
{}  esac
  case $verb in
{}  esac
  if [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
  elif ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W "$verbs" -- "$word") $(compgen -f -- "$word"))
  else
    COMPREPLY=($(compgen -f -- "$word"))
  fi
}}
complete -o filenames -F _optc optc
)",
      quoted(names), values, cases);
}

std::string for_zsh(const std::vector<VerbInfo> &verbs) {
  // In a specification of _arguments colons and brackets mean something.
  const auto spec = [](const std::string &text) {
    std::string out;
    for (const char c : text) {
      if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
      out += c == '\n' ? ' ' : c;
    }
    return out;
  };
  std::string names, cases;
  for (const VerbInfo &verb : verbs) {
    names += "    " + quoted(spec(verb.name) + ":" + verb.help) + "\n";
    cases += fmt::format("      {})\n        _arguments -S", verb.name);
    for (const OptionInfo &option : verb.options) {
      std::string after;
      if (!option.value.empty() || words_of(option).empty()) {
        const std::string action = !option.choices.empty()   ? "(" + joined(option.choices) + ")"
                                   : is_folder(option.value) ? std::string("_files -/")
                                                             : std::string("_files");
        after = ":" + spec(option.value.empty() ? option.name : option.value) + ":" + action;
      }
      for (const std::string &word : words_of(option))
        cases += " \\\n          " +
                 quoted(fmt::format("*{}{}[{}]{}", word, after.empty() || word.rfind("--", 0) != 0 ? "" : "=",
                                    spec(option.help), after));
      if (words_of(option).empty()) cases += " \\\n          " + quoted("*" + after);
    }
    cases += "\n        ;;\n";
  }
  return fmt::format(R"(#compdef optc
# zsh completion of optc: put it as _optc into a folder of $fpath
_optc() {{
  local -a verbs
  verbs=(
{}  )
  local verb=compile
  if ((CURRENT == 2)); then
    _describe -t verbs verb verbs
    _files
    return
  fi
  if [[ -n ${{verbs[(r)${{words[2]}}:*]}} ]]; then
    verb=$words[2]
    shift words
    ((CURRENT--))
  fi
  case $verb in
{}  esac
}}
if [[ $funcstack[1] == _optc ]]; then _optc "$@"; else compdef _optc optc; fi
)",
                     names, cases);
}

std::string for_fish(const std::vector<VerbInfo> &verbs) {
  std::string text =
      "# fish completion of optc: put it into ~/.config/fish/completions/optc.fish\n"
      "complete -c optc -f -n __fish_use_subcommand -a '(__fish_complete_path)'\n";
  for (const VerbInfo &verb : verbs)
    text += fmt::format("complete -c optc -n __fish_use_subcommand -a {} -d {}\n", verb.name, quoted(verb.help));
  for (const VerbInfo &verb : verbs)
    for (const OptionInfo &option : verb.options) {
      if (words_of(option).empty()) continue;
      std::string line = fmt::format("complete -c optc -n '__fish_seen_subcommand_from {}'", verb.name);
      if (!option.longer.empty()) line += " -l " + option.longer.substr(2);
      if (!option.shorter.empty()) line += " -s " + option.shorter.substr(1);
      if (!option.choices.empty())
        line += " -x -a " + quoted(joined(option.choices));
      else if (is_folder(option.value))
        line += " -x -a '(__fish_complete_directories)'";
      else if (!option.value.empty())
        line += " -r -F";
      text += line + " -d " + quoted(option.help) + "\n";
      if (!option.opposite.empty())
        text += fmt::format("complete -c optc -n '__fish_seen_subcommand_from {}' -l {}\n", verb.name,
                            option.opposite.substr(2));
    }
  return text;
}

// Text of a manual page: a dash is a minus, and no line begins with a command by chance.
std::string roff(const std::string &text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
      continue;
    }
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    if (c == '-') out += '\\';
    out += c;
  }
  return out;
}

std::string manual(const CommandLine &line, const std::string &version) {
  std::string text = fmt::format(
      ".TH OPTC 1 \"\" \"optc {}\" \"User Commands\"\n.SH NAME\noptc \\- compile ONNX models into source code\n"
      ".SH SYNOPSIS\n.B optc\n.I MODEL\n\\fB\\-o\\fR \\fIDIR\\fR\n.br\n.B optc\n.I VERB\n[\\fIOPTION\\fR]...\n"
      ".SH DESCRIPTION\n{}\n",
      version, roff(line.description()));
  for (const VerbInfo &verb : line.table()) {
    text += fmt::format(".SH optc {}\n{}.\n", roff(verb.name), roff(verb.help));
    for (const OptionInfo &option : verb.options) {
      std::string head;
      for (const std::string &word : words_of(option))
        head += (head.empty() ? "" : ", ") + ("\\fB" + roff(word) + "\\fR");
      if (head.empty()) head = "\\fI" + roff(option.name) + "\\fR";
      if (!option.value.empty()) head += " \\fI" + roff(option.value) + "\\fR";
      text += ".TP\n" + head + "\n" + roff(option.help);
      if (!option.choices.empty()) text += roff(" (one of " + joined(option.choices, ", ") + ")");
      text += "\n";
    }
    if (!verb.footer.empty()) text += ".PP\n" + roff(verb.footer) + "\n";
  }
  text +=
      ".SH EXIT STATUS\n.TP\n0\ngood\n.TP\n1\na check failed\n.TP\n2\nusage or files\n.TP\n3\nan invalid model\n"
      ".TP\n4\nunsupported\n.TP\n101\na fault of optc\n";
  return text;
}

}  // namespace

void add_completion(CommandLine &line, int &code) {
  auto o = std::make_shared<CompletionOptions>();
  Verb *verb = line.add_verb("completion", "print what a shell needs to complete optc's verbs, options and values");
  verb->footer("Example: optc completion bash > ~/.local/share/bash-completion/completions/optc");
  verb->add_option("SHELL", o->shell, "the shell")->required()->one_of({"bash", "zsh", "fish"})->type_name("");
  on_parsed(*verb, o, code, [o, &line](Diagnostics &) -> Status {
    const std::vector<VerbInfo> verbs = line.table();
    print(o->shell == "bash" ? for_bash(verbs) : o->shell == "zsh" ? for_zsh(verbs) : for_fish(verbs));
    return {};
  });
}

void add_man(CommandLine &line, int &code, const std::string &version) {
  auto o = std::make_shared<CommonOptions>();
  Verb *verb = line.add_verb("man", "print the manual page");
  verb->footer("Example: optc man | man -l -");
  on_parsed(*verb, o, code, [&line, version](Diagnostics &) -> Status {
    print(manual(line, version));
    return {};
  });
}

}  // namespace optc::cli
