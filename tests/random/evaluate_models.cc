// optc_random: runs small models in several ways on the evaluator, many in one process; tests/random/run.py drives it.
//
//   optc_random [--timeout S] < jobs      one job a line: ID, MODEL, INPUTS_DIR, OUTPUTS_DIR, WAYS, with tabs between;
//                                         WAYS with commas between. Each job runs in a process of its own.
//
//   unfused   build_program of the graph as it was imported: what the operators mean
//   eval      optimized and lowered for the CPU
//   f16, bf16 the same with 16-bit storage
//   gpu       optimized and lowered for a GPU
//   opt       the optimized graph as a model: OUTPUTS_DIR/opt.onnx
//
// Answers, a line each with tabs between: ID, way, "ok" or what went wrong, its text; then ID, "cells", and the cells
// that the lowered Program for the CPU covers (coverage.h). A way's outputs are OUTPUTS_DIR/WAY_0.pb, ... A job that
// crashed has fewer answers than ways, and the line ID, "end", "crash" or "timeout", the signal.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "emit/onnx/export.h"
#include "evaluate/evaluate.h"
#include "importer/importer.h"
#include "lowering/lower.h"
#include "ops/build.h"
#include "optimizer/optimize.h"
#include "support/file.h"
#include "support/staging.h"
#include "tests/conformance/answers.h"
#include "tests/proto_io.h"
#include "tests/random/coverage.h"

namespace optc {
namespace {

struct Job {
  std::string id, model, inputs, outputs;
  std::vector<std::string> ways;
};

std::vector<std::string> split(const std::string &text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator)
      parts.emplace_back();
    else if (c != '\n')
      parts.back() += c;
  }
  return parts;
}

Result<std::vector<RuntimeValue>> read_inputs(const Graph &graph, const std::string &folder, Diagnostics &diagnostics) {
  std::vector<RuntimeValue> inputs;
  const std::vector<ValueId> &declared = graph.region(Graph::main()).inputs;
  for (size_t i = 0; i < declared.size(); ++i) {
    const std::string path = folder + "/input_" + std::to_string(i) + ".pb";
    if (!std::filesystem::exists(path)) {
      inputs.emplace_back();
      continue;
    }
    OPTC_ASSIGN(const std::string bytes, read_file(path, diagnostics));
    OPTC_ASSIGN(RuntimeValue value, testing::parse_value(bytes, graph.value(declared[i]).type, path, diagnostics));
    inputs.push_back(std::move(value));
  }
  return inputs;
}

// One job: the model is imported once, optimized once.
class Runner {
 public:
  explicit Runner(const Job &job) : job_(job) {}

  void run() {
    for (const std::string &way : job_.ways) {
      Diagnostics diagnostics(job_.model);
      const Status status = run_way(way, diagnostics);
      say(way, status.ok() ? "ok" : to_string(status.failure().kind), status.ok() ? "" : one_line(diagnostics));
    }
    std::string line;
    for (const std::string &cell : cells_) line += (line.empty() ? "" : " ") + cell;
    say("cells", "ok", line);
  }

 private:
  void say(const std::string &way, const std::string &word, const std::string &text) const {
    std::printf("%s\t%s\t%s\t%s\n", job_.id.c_str(), way.c_str(), word.c_str(), text.c_str());
    std::fflush(stdout);
  }

  Status run_way(const std::string &way, Diagnostics &diagnostics) {
    if (!imported_) {
      OPTC_ASSIGN(Graph graph, import_model(job_.model, {}, diagnostics));
      imported_.emplace(std::move(graph));
      OPTC_ASSIGN(inputs_, read_inputs(*imported_, job_.inputs, diagnostics));
    }
    if (way == "unfused") {
      OPTC_ASSIGN(const Program program, build_program(*imported_, diagnostics));
      OPTC_TRY(verify(program, diagnostics));
      return evaluate_and_write(program, way, diagnostics);
    }
    if (way == "opt") {
      Graph graph = imported_->clone();
      OptimizeOptions options;
      const int64_t opset = opset_of(graph);
      options.operators = {"", [opset](std::string_view op, ElementType of) { return opset_has(opset, op, of); }};
      OptimizeReport report;
      OPTC_TRY(optimize(graph, options, report, diagnostics));
      return export_file(graph, job_.outputs + "/opt.onnx", {}, diagnostics);
    }
    if (!optimized_) {
      Graph graph = imported_->clone();
      OptimizeReport report;
      OPTC_TRY(optimize(graph, {}, report, diagnostics));
      optimized_.emplace(std::move(graph));
    }
    LoweringOptions options;
    if (way == "f16") options.precision = ElementType::kFloat16;
    if (way == "bf16") options.precision = ElementType::kBFloat16;
    if (way == "gpu") options.target = LoweringOptions::Target::kGpu;
    if (way != "eval" && options.precision == ElementType::kFloat32 && way != "gpu")
      return diagnostics.error(ErrorKind::kUsage, "no such way: " + way);
    LoweringReport report;
    OPTC_ASSIGN(const Program program, lower(*optimized_, options, report, diagnostics));
    if (way == "eval") cells_ = testing::coverage_cells(program);
    return evaluate_and_write(program, way, diagnostics);
  }

  Status evaluate_and_write(const Program &program, const std::string &way, Diagnostics &diagnostics) {
    EvaluateOptions options;
    options.max_bytes = int64_t{1} << 30;
    options.as_lowered = way != "unfused";
    OPTC_ASSIGN(const std::vector<RuntimeValue> outputs, evaluate(program, inputs_, options, diagnostics));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Type &type = program.buffer(program.outputs[i]).type;
      OPTC_TRY(write_file(job_.outputs + "/" + way + "_" + std::to_string(i) + ".pb",
                          testing::serialize_value(outputs[i], type, program.output_names[i]), diagnostics));
    }
    return {};
  }

  const Job &job_;
  std::optional<Graph> imported_, optimized_;
  std::vector<RuntimeValue> inputs_;
  std::vector<std::string> cells_;
};

int run_jobs(unsigned timeout) {
  char buffer[16384];
  while (std::fgets(buffer, sizeof(buffer), stdin)) {
    const std::vector<std::string> fields = split(buffer, '\t');
    if (fields.size() != 5) {
      std::fprintf(stderr, "a job needs 5 fields: %s", buffer);
      return 2;
    }
    const Job job{fields[0], fields[1], fields[2], fields[3], split(fields[4], ',')};
    const pid_t child = ::fork();
    if (child < 0) return 101;
    if (child == 0) {
      ::alarm(timeout);  // the default action of SIGALRM ends the process
      Runner(job).run();
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    const char *word = "ok", *text = "";
    if (WIFSIGNALED(status)) {
      word = WTERMSIG(status) == SIGALRM ? "timeout" : "crash";
      text = ::strsignal(WTERMSIG(status));
    } else if (WEXITSTATUS(status) != 0) {
      word = "crash";
      text = "ended by itself";
    }
    std::printf("%s\tend\t%s\t%s\n", job.id.c_str(), word, text);
    std::fflush(stdout);
  }
  return 0;
}

int main_with(int argc, char **argv) {
  unsigned timeout = 60;
  if (argc == 3 && !std::strcmp(argv[1], "--timeout")) {
    timeout = static_cast<unsigned>(std::atoi(argv[2]));
  } else if (argc != 1) {
    std::fprintf(stderr, "usage: optc_random [--timeout S] < jobs\n");
    return 2;
  }
  return run_jobs(timeout);
}

}  // namespace
}  // namespace optc

int main(int argc, char **argv) { return optc::main_with(argc, argv); }
