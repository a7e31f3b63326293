// optc: the command line. One file a verb; `optc MODEL -o DIR` is `optc compile MODEL -o DIR`.

#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <set>

#include "cli/common.h"
#include "driver/places.h"
#include "support/file.h"

namespace {

constexpr const char *kVersion = "0.1.0";

// An error of optc itself leaves a file that says how to see it again.
void write_reproducer(int argc, char **argv) {
  std::string text = fmt::format("optc {}\ncommand:", kVersion);
  for (int i = 0; i < argc; ++i) text += fmt::format(" '{}'", argv[i]);
  text += "\n";
  const std::string path = "optc-internal-error.txt";
  optc::Diagnostics ignored;
  if (optc::write_file(path, text, ignored).ok())
    std::fprintf(stderr, "  note: this is a fault of optc; how to see it again stands in %s\n", path.c_str());
}

const CLI::App *find_verb(const CLI::App &app, const std::string &word) {
  const auto found = app.get_subcommands([&](const CLI::App *verb) { return verb->get_name() == word; });
  return found.empty() ? nullptr : found.front();
}

// What CLI11 found wrong, with what the user may have meant.
int usage_error(const CLI::App &app, const std::vector<std::string> &arguments, std::string message) {
  if (arguments.empty()) return optc::cli::run_usage_error("no verb and no model", "`optc --help` lists the verbs");
  const CLI::App *verb = find_verb(app, arguments[0]);
  if (!verb) return optc::cli::run_usage_error(message, "`optc --help` lists the verbs");
  for (char &c : message)
    if (c == '\n') c = ' ';
  std::string help = fmt::format("`optc {} --help` lists its options", arguments[0]);
  if (message == "--output is required")
    message = "-o DIR is required, the folder to write", help = "or a verb before the model: `optc --help` lists them";
  // An option that does not exist says more than what is missing because of it.
  for (const std::string &word : arguments) {
    const std::string name = word.substr(0, word.find('='));
    if (name.size() < 3 || name.rfind("--", 0) != 0 || verb->get_option_no_throw(name)) continue;
    std::vector<std::string> names;
    for (const CLI::Option *option : verb->get_options())
      for (const std::string &known : option->get_lnames()) names.push_back("--" + known);
    const std::string near = optc::cli::nearest(name, names);
    message = fmt::format("optc {} has no option {}", arguments[0], name);
    if (!near.empty()) help = fmt::format("did you mean {}?", near);
    break;
  }
  return optc::cli::run_usage_error(message, help);
}

int run(int argc, char **argv) {
  CLI::App app{
      "optc compiles ONNX models into C++ and PTX source that needs no framework.\n"
      "`optc MODEL -o DIR` writes the bundle DIR; `optc VERB --help` says more of a verb."};
  app.name("optc");
  app.set_version_flag("--version", kVersion);
  app.require_subcommand(1);
  int code = 0;
  optc::cli::add_compile(app, code);
  optc::cli::add_opt(app, code);
  optc::cli::add_run(app, code);
  optc::cli::add_verify(app, code);
  optc::cli::add_inspect(app, code);
  optc::cli::add_bench(app, code);
  optc::cli::add_diff(app, code);
  optc::cli::add_explain(app, code);
  optc::cli::add_ops(app, code);

  std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::set<std::string> own_flags = {"-h", "--help", "--version"};
  // A word that is no verb and no file was meant to be a verb.
  if (!arguments.empty() && arguments[0][0] != '-' && !find_verb(app, arguments[0]) && !optc::exists(arguments[0]) &&
      arguments[0].find_first_of("./") == std::string::npos) {
    std::vector<std::string> verbs;
    for (const CLI::App *verb : app.get_subcommands([](CLI::App *) { return true; })) verbs.push_back(verb->get_name());
    const std::string near = optc::cli::nearest(arguments[0], verbs);
    return optc::cli::run_usage_error(
        fmt::format("'{}' is neither a verb nor a model", arguments[0]),
        near.empty() ? "`optc --help` lists the verbs" : fmt::format("did you mean `optc {}`?", near));
  }
  if (!arguments.empty() && !find_verb(app, arguments[0]) && !own_flags.count(arguments[0]))
    arguments.insert(arguments.begin(), "compile");
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 wants them
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp &e) {
    return app.exit(e, std::cout, std::cerr);
  } catch (const CLI::CallForVersion &e) {
    return app.exit(e, std::cout, std::cerr);
  } catch (const CLI::ParseError &e) {
    return usage_error(app, arguments, e.what());
  }
  return code;
}

}  // namespace

int main(int argc, char **argv) {
  int code = 101;
  try {
    code = run(argc, argv);
  } catch (const std::bad_alloc &) {
    std::fprintf(stderr, "error[io]: out of memory\n");
    return 2;
  } catch (const std::exception &e) {
    std::fprintf(stderr, "error[internal]: %s\n", e.what());
  }
  if (code == 101) write_reproducer(argc, argv);
  if (std::fflush(stdout) != 0 && code == 0) code = 2;
  return code;
}
