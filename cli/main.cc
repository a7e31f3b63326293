// optc: the command line. One file a verb; `optc MODEL -o DIR` is `optc compile MODEL -o DIR`.

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <set>
#include <thread>

#include "cli/cache.h"
#include "cli/common.h"
#include "cli/config_file.h"
#include "driver/places.h"
#include "support/staging.h"

namespace {

using optc::cli::CommandLine;
using optc::cli::kVersion;

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

// A signal that ends the process takes what is half written with it. Signals are taken by a thread of their own, so
// that files may be removed; every other thread has them blocked.
void clean_up_on_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before = {};
    if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) sigaddset(&signals, signal);
  }
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals] {
    int taken = 0;
    while (sigwait(&signals, &taken) != 0) {
    }
    optc::remove_unfinished();
    if (isatty(STDERR_FILENO)) std::fputs("\r\x1b[K", stderr);
    signal(taken, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
    raise(taken);
  }).detach();
}

// What the words ask for of errors, though they were not understood.
optc::cli::CommonOptions asked_format(const std::vector<std::string> &words) {
  optc::cli::CommonOptions options;
  for (size_t i = 0; i < words.size(); ++i)
    if (words[i] == "--format=json" || (words[i] == "json" && i > 0 && words[i - 1] == "--format"))
      options.format = "json";
  return options;
}

// An error of the command line.
int wrong_words(const std::vector<std::string> &words, const std::string &message, const std::string &help) {
  const optc::cli::CommonOptions options = asked_format(words);
  if (options.format != "json") return optc::cli::run_usage_error(message, help);
  optc::Diagnostics diagnostics;
  return optc::cli::report(diagnostics, diagnostics.error(optc::ErrorKind::kUsage, message, {}, help), options);
}

// What is wrong with the words, with what the user may have meant.
int usage_error(const CommandLine &line, const std::vector<std::string> &words, std::string message) {
  if (words.empty()) return wrong_words(words, "no verb and no model", "`optc --help` lists the verbs");
  if (!line.has_verb(words[0])) return wrong_words(words, message, "`optc --help` lists the verbs");
  for (char &c : message)
    if (c == '\n') c = ' ';
  std::string help = fmt::format("`optc {} --help` lists its options", words[0]);
  // An option that does not exist says more than what is missing because of it.
  const std::vector<std::string> options = line.options(words[0]);
  for (const std::string &word : words) {
    const std::string name = word.substr(0, word.find('='));
    if (name.size() < 3 || name.rfind("--", 0) != 0) continue;
    if (std::find(options.begin(), options.end(), name) != options.end()) continue;
    const std::string near = optc::cli::nearest(name, options);
    message = fmt::format("optc {} has no option {}", words[0], name);
    if (!near.empty()) help = fmt::format("did you mean {}?", near);
    break;
  }
  return wrong_words(words, message, help);
}

int run(int argc, char **argv) {
  CommandLine line("optc", kVersion,
                   "optc compiles ONNX models into C++ and PTX source that needs no framework.\n"
                   "`optc MODEL -o DIR` writes the bundle DIR; `optc VERB --help` says more of a verb.");
  int code = 0;
  optc::cli::add_compile(line, code);
  optc::cli::add_opt(line, code);
  optc::cli::add_run(line, code);
  optc::cli::add_verify(line, code);
  optc::cli::add_inspect(line, code);
  optc::cli::add_bench(line, code);
  optc::cli::add_tune(line, code);
  optc::cli::add_convert(line, code);
  optc::cli::add_diff(line, code);
  optc::cli::add_reduce(line, code);
  optc::cli::add_explain(line, code);
  optc::cli::add_ops(line, code);
  optc::cli::add_cache(line, code);
  optc::cli::add_doctor(line, code, kVersion);
  optc::cli::add_completion(line, code);
  optc::cli::add_man(line, code, kVersion);

  std::vector<std::string> words(argv + 1, argv + argc);
  // Asked of no model: the names that --disable-pass takes.
  if (std::find(words.begin(), words.end(), "--list-passes") != words.end()) {
    words = {"explain"};
  }
  const std::set<std::string> own_flags = {"-h", "--help", "--version"};
  if (!words.empty() && !line.has_verb(words[0])) {
    // A word that is no verb and no file was meant to be a verb.
    if (words[0][0] != '-' && !optc::exists(words[0]) && words[0].find_first_of("./") == std::string::npos) {
      const std::string near = optc::cli::nearest(words[0], line.verbs());
      return wrong_words(words, fmt::format("'{}' is neither a verb nor a model", words[0]),
                         near.empty() ? "`optc --help` lists the verbs" : fmt::format("did you mean `optc {}`?", near));
    }
    if (!own_flags.count(words[0])) words.insert(words.begin(), "compile");
  }
  optc::Diagnostics diagnostics;
  optc::Result<std::vector<std::string>> all = optc::cli::with_config(line, words, diagnostics);
  if (!all) return optc::cli::report(diagnostics, all.failure(), asked_format(words));
  words = std::move(*all);
  const std::string wrong = line.parse(words);
  return wrong.empty() ? code : usage_error(line, words, wrong);
}

}  // namespace

int main(int argc, char **argv) {
  int code = 101;
  clean_up_on_signals();
  try {
    code = run(argc, argv);
  } catch (const std::bad_alloc &) {
    std::fprintf(stderr, "error[io]: out of memory\n");
    return 2;
  } catch (const std::exception &e) {
    std::fprintf(stderr, "error[internal]: %s\n", e.what());
  }
  if (code == 101) write_reproducer(argc, argv);
  errno = 0;
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && code == 0) {
    // A result that did not reach its file is no result. Where an earlier flush failed, the reason is asked for again.
    if (errno == 0 && write(STDOUT_FILENO, "\n", 1) > 0) errno = 0;
    std::fprintf(stderr, "error[io]: the output cannot be written%s%s\n", errno ? ": " : "",
                 errno ? std::strerror(errno) : "");
    code = 2;
  }
  return code;
}
