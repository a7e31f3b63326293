// optc_conformance: evaluates models on data sets of the ONNX test layout.
//
//   optc_conformance MODEL INPUTS_DIR OUTPUTS_DIR     one data set; exits with the code of the first error's kind
//   optc_conformance [--timeout S] [--no-products] [--lowered]
//                                                     jobs from the standard input, one a line: ID, MODEL, INPUTS_DIR,
//   OUTPUTS_DIR
//                                                     with tabs between; each in a process of its own. One line of
//                                                     answer a job: ID, "ok" or what went wrong, and its text
//
// INPUTS_DIR holds input_0.pb, ... in the order of the graph's inputs; those missing keep their initializer.
// OUTPUTS_DIR gets output_0.pb, ...
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "evaluate/evaluate.h"
#include "importer/importer.h"
#include "lowering/lower.h"
#include "onnx/onnx_pb.h"
#include "ops/build.h"
#include "support/file.h"
#include "support/staging.h"
#include "tests/conformance/answers.h"
#include "tests/proto_io.h"

namespace optc {
namespace {

struct Settings {
  EvaluateOptions evaluate;
  unsigned timeout = 60;
  bool lowered = false;  // the Program is lowered, and runs as it is
};

Status run_data_set(const Program &program, const std::string &inputs_dir, const std::string &outputs_dir,
                    const Settings &settings, Diagnostics &diagnostics) {
  std::vector<RuntimeValue> inputs;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const std::string path = inputs_dir + "/input_" + std::to_string(i) + ".pb";
    if (!std::filesystem::exists(path)) {
      inputs.emplace_back();
      continue;
    }
    OPTC_ASSIGN(const std::string bytes, read_file(path, diagnostics));
    OPTC_ASSIGN(RuntimeValue value,
                testing::parse_value(bytes, program.buffer(program.inputs[i]).type, path, diagnostics));
    inputs.push_back(std::move(value));
  }
  OPTC_ASSIGN(const std::vector<RuntimeValue> outputs, evaluate(program, inputs, settings.evaluate, diagnostics));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Type &type = program.buffer(program.outputs[i]).type;
    OPTC_TRY(write_file(outputs_dir + "/output_" + std::to_string(i) + ".pb",
                        testing::serialize_value(outputs[i], type, program.output_names[i]), diagnostics));
  }
  return {};
}

Status run_model(const std::string &model, const std::string &inputs_dir, const std::string &outputs_dir,
                 const Settings &settings, Diagnostics &diagnostics) {
  OPTC_ASSIGN(const Graph graph, import_model(model, {}, diagnostics));
  OPTC_ASSIGN(Program program, build_program(graph, diagnostics));
  OPTC_TRY(verify(program, diagnostics));
  LoweringReport report;
  if (settings.lowered) OPTC_TRY(lower_program(program, {}, report, diagnostics));
  return run_data_set(program, inputs_dir, outputs_dir, settings, diagnostics);
}

// Runs the job in this process and says its answer.
void answer(const std::vector<std::string> &job, const Settings &settings) {
  Diagnostics diagnostics(job[1]);
  const Status status = run_model(job[1], job[2], job[3], settings, diagnostics);
  const char *word = status.ok() ? "ok" : to_string(status.failure().kind);
  std::printf("%s\t%s\t%s\n", job[0].c_str(), word, status.ok() ? "" : one_line(diagnostics).c_str());
  std::fflush(stdout);
}

std::vector<std::string> split(const std::string &line) {
  std::vector<std::string> parts(1);
  for (const char c : line) {
    if (c == '\t')
      parts.emplace_back();
    else if (c != '\n')
      parts.back() += c;
  }
  return parts;
}

// ONNX's library fills its tables of schemas at the first import: here once, not in every process of a job.
bool warm_up() {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  onnx::GraphProto &graph = *model.mutable_graph();
  graph.set_name("warm_up");
  for (onnx::ValueInfoProto *value : {graph.add_input(), graph.add_output()}) {
    onnx::TypeProto::Tensor &type = *value->mutable_type()->mutable_tensor_type();
    type.set_elem_type(onnx::TensorProto::FLOAT);
    type.mutable_shape()->add_dim()->set_dim_value(1);
  }
  graph.mutable_input(0)->set_name("x");
  graph.mutable_output(0)->set_name("y");
  onnx::NodeProto &node = *graph.add_node();
  node.set_op_type("Abs");
  node.add_input("x");
  node.add_output("y");
  Diagnostics diagnostics("warm_up");
  const std::string bytes = model.SerializeAsString();
  const bool good = import_bytes(bytes, nullptr, "", {}, diagnostics).ok();
  for (const Diagnostic &d : diagnostics.all()) std::fputs(format(d).c_str(), stderr);
  return good;
}

int run_jobs(const Settings &settings) {
  if (!warm_up()) return 101;
  char buffer[16384];
  while (std::fgets(buffer, sizeof(buffer), stdin)) {
    const std::vector<std::string> job = split(buffer);
    if (job.size() != 4) {
      std::fprintf(stderr, "a job needs 4 fields: %s", buffer);
      return 2;
    }
    const pid_t child = ::fork();
    if (child < 0) return 101;
    if (child == 0) {
      ::alarm(settings.timeout);  // the default action of SIGALRM ends the process
      answer(job, settings);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) {
      const bool late = WTERMSIG(status) == SIGALRM;
      std::printf("%s\t%s\t%s\n", job[0].c_str(), late ? "timeout" : "crash",
                  late ? "no end in time" : ::strsignal(WTERMSIG(status)));
    } else if (WEXITSTATUS(status) != 0) {
      std::printf("%s\tcrash\texit code %d\n", job[0].c_str(), WEXITSTATUS(status));
    }
    std::fflush(stdout);
  }
  return 0;
}

int main_with(int argc, char **argv) {
  Settings settings;
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--lowered")
      settings.lowered = settings.evaluate.as_lowered = true;
    else if (argument == "--no-products")
      settings.evaluate.use_runtime_kernels = false;
    else if (argument == "--timeout" && i + 1 < argc)
      settings.timeout = static_cast<unsigned>(std::atoi(argv[++i]));
    else
      paths.push_back(argument);
  }
  if (paths.empty()) return run_jobs(settings);
  if (paths.size() != 3) {
    std::fprintf(stderr, "usage: optc_conformance MODEL INPUTS_DIR OUTPUTS_DIR\n");
    return 2;
  }
  Diagnostics diagnostics(paths[0]);
  const Status status = run_model(paths[0], paths[1], paths[2], settings, diagnostics);
  for (const Diagnostic &d : diagnostics.all()) std::fputs(format(d).c_str(), stderr);
  return status.ok() ? 0 : exit_code(status.failure().kind);
}

}  // namespace
}  // namespace optc

int main(int argc, char **argv) { return optc::main_with(argc, argv); }
