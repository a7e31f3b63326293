// optc reduce MODEL --check CMD: the smallest part of a model that a command still says the same of.

#include "convert/reduce.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/common.h"
#include "driver/process.h"
#include "emit/report/report.h"

namespace optc::cli {
namespace {

struct ReduceVerbOptions : CommonOptions {
  ReduceOptions reduce;
  std::string check;
  int64_t seconds = 300;
};

constexpr int64_t kNotFound = 127, kNotExecutable = 126;  // of a shell

// The command with the model in the place of each {}, or behind it, by the shell. A run of more than the given time
// ends with 124, as `timeout` of the system says it.
Result<int64_t> ask(const ReduceVerbOptions &o, const std::string &path, std::string &output,
                    Diagnostics &diagnostics) {
  std::string command = o.check;
  bool named = false;
  for (size_t at = 0; (at = command.find("{}", at)) != std::string::npos; at += 4, named = true)
    command.replace(at, 2, "\"$1\"");
  if (!named) command += " \"$1\"";
  std::vector<std::string> words = {"/bin/sh", "-c", command, "check", path};
  if (o.seconds > 0 && on_path("timeout")) {
    const std::vector<std::string> bound = {"timeout", std::to_string(o.seconds)};
    words.insert(words.begin(), bound.begin(), bound.end());
  }
  OPTC_ASSIGN(const ProcessResult result, run_process(words, diagnostics));
  output = result.output;
  return static_cast<int64_t>(result.status);
}

std::string count(int64_t n, const char *one) { return fmt::format("{} {}{}", n, one, n == 1 ? "" : "s"); }

std::string operators(const std::vector<std::pair<std::string, int64_t>> &list) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, list.size()); ++i)
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ",
                        list[i].second > 1 ? fmt::format("{} ", list[i].second) : "", list[i].first);
  if (list.size() > kShown) text += ", " + count(static_cast<int64_t>(list.size() - kShown), "other kind");
  return text;
}

void tell(const ReduceVerbOptions &o, const ReduceFacts &facts) {
  if (o.format == "json") {
    const auto list = [](const std::vector<std::pair<std::string, int64_t>> &ops) {
      nlohmann::ordered_json map = nlohmann::ordered_json::object();
      for (const auto &[op, n] : ops) map[op] = n;
      return map;
    };
    print(nlohmann::ordered_json{{"schema_version", 1},
                                 {"file", facts.files[0].first},
                                 {"bytes", facts.files[0].second},
                                 {"exit_code", facts.status},
                                 {"nodes_before", facts.nodes},
                                 {"nodes", facts.nodes_left},
                                 {"body_nodes_before", facts.body_nodes},
                                 {"body_nodes", facts.body_nodes_left},
                                 {"inputs", facts.inputs},
                                 {"new_inputs", facts.new_inputs},
                                 {"outputs", facts.outputs},
                                 {"initializers_before", facts.tensors},
                                 {"initializers", facts.tensors_left},
                                 {"operators", list(facts.left)},
                                 {"removed", list(facts.removed)},
                                 {"runs", facts.runs},
                                 {"refused", facts.refused},
                                 {"minimal", !facts.stopped},
                                 {"valid", facts.was_valid}}
              .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
          "\n");
    return;
  }
  if (o.quiet) return;
  print(fmt::format(
      "{} → {}: {}{}\n", count(facts.nodes, "node"), facts.nodes_left, operators(facts.left),
      facts.body_nodes > 0 ? fmt::format("; {} in bodies, of {}", facts.body_nodes_left, facts.body_nodes) : ""));
  if (!facts.removed.empty()) print(fmt::format("removed: {}\n", operators(facts.removed)));
  print(fmt::format("{}{}, {}, {} of {}\n", count(facts.inputs, "input"),
                    facts.new_inputs ? fmt::format(" ({} of removed nodes)", facts.new_inputs) : "",
                    count(facts.outputs, "output"), count(facts.tensors_left, "initializer"), facts.tensors));
  print(fmt::format("{} of the check, which ends with {} as on the model{}{}\n", count(facts.runs, "run"), facts.status,
                    facts.refused ? fmt::format("; {} refused as no valid model", count(facts.refused, "part")) : "",
                    facts.stopped ? "; stopped by --max-runs, a smaller part may do" : ""));
  print(
      fmt::format("wrote {} ({}){}\n", facts.files[0].first, format_bytes(facts.files[0].second),
                  facts.was_valid ? ", valid to ONNX's checker" : ", as little valid to ONNX's checker as the model"));
}

Status reduce(const ReduceVerbOptions &o, Diagnostics &diagnostics) {
  if (o.check.empty() || o.reduce.output.empty())
    return diagnostics.error(ErrorKind::kUsage, "--check CMD and -o FILE are required", {},
                             "optc reduce model.onnx --check 'optc verify' -o small.onnx");
  if (o.reduce.max_runs < 2 || o.seconds < 0)
    return diagnostics.error(ErrorKind::kUsage, "--max-runs: from 2 on; --timeout: seconds from 0 (no limit) on");
  ReduceOptions options = o.reduce;
  options.input = o.model;
  const std::unique_ptr<Listener> listener = make_listener(o);
  listener->begin("reduce");
  bool first = true;
  const auto check = [&](const std::string &path) -> Result<int64_t> {
    std::string output;
    OPTC_ASSIGN(const int64_t status, ask(o, path, output, diagnostics));
    if (first && (status == kNotFound || status == kNotExecutable))
      return diagnostics.error(ErrorKind::kUsage, fmt::format("--check: the shell cannot run '{}'", o.check), {},
                               last_lines(output, 1));
    first = false;
    return status;
  };
  int64_t nodes = 0;
  const auto progress = [&](int64_t left, int64_t runs) {
    nodes = left;
    listener->progress(runs, options.max_runs);
  };
  ReduceFacts facts;
  OPTC_TRY(reduce_model(options, check, progress, facts, diagnostics));
  tell(o, facts);
  return {};
}

}  // namespace

void add_reduce(CommandLine &line, int &code) {
  auto o = std::make_shared<ReduceVerbOptions>();
  Verb *verb = line.add_verb("reduce", "the smallest part of a model that a command still says the same of");
  verb->footer("Example: optc reduce model.onnx --check 'optc verify' -o small.onnx");
  add_model(*verb, *o);
  verb->add_option("--check", o->check,
                   "a command of the shell, with {} for the model's file (else it is the last word); parts for which "
                   "it ends with the exit code that it has on MODEL are kept")
      ->type_name("CMD");
  verb->add_option("-o,--output", o->reduce.output, "the file to write; its ending says the form")->type_name("FILE");
  verb->add_option("--max-runs", o->reduce.max_runs, "stop after so many runs of the command (default 500)")
      ->type_name("N");
  verb->add_option("--timeout", o->seconds,
                   "seconds that a run may take, then it counts as exit code 124 (default 300; 0: any)")
      ->type_name("N");
  verb->add_flag("--force", o->reduce.force, "replace files that the model is read from");
  add_step_options(*verb, *o);
  add_output_options(*verb, *o);
  on_parsed(*verb, o, code, [o](Diagnostics &diagnostics) { return reduce(*o, diagnostics); });
}

}  // namespace optc::cli
