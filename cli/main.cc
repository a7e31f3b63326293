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
  const auto is_verb = [&](const std::string &word) {
    return !app.get_subcommands([&](CLI::App *verb) { return verb->get_name() == word; }).empty();
  };
  const std::set<std::string> own_flags = {"-h", "--help", "--version"};
  if (!arguments.empty() && !is_verb(arguments[0]) && !own_flags.count(arguments[0]))
    arguments.insert(arguments.begin(), "compile");
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 wants them
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp &e) {
    return app.exit(e, std::cout, std::cerr);
  } catch (const CLI::CallForVersion &e) {
    return app.exit(e, std::cout, std::cerr);
  } catch (const CLI::ParseError &e) {
    std::string message = e.what();
    if (arguments.empty()) message = "no verb and no model; `optc --help` lists the verbs";
    return optc::cli::run_usage_error(message);
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
