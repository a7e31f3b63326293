// optc_conformance_bundles: runs models on data sets of the ONNX test layout as bundles. All models of a call become
// one translation unit and one library, each in namespaces of its own, so that the runtime's headers are compiled once;
// with g++ for the instruction set that this machine (or the environment variable OPTC_ISA) takes, with clang++
// for all of them.
//
//   optc_conformance_bundles [--timeout S] [--compiler g++] [--optimize 1] [--target SM] [--sanitize] [--keep]
//                                         jobs and answers as optc_conformance has them
//
// --optimize is the compiler's level: 1 is soonest done, 2 is how users build.
//
// With --sanitize the unit is compiled with AddressSanitizer and UndefinedBehaviorSanitizer, whose libraries must be
// preloaded (LD_PRELOAD); what they say is the text of a "crash".
// With --target the bundles have kernels for that GPU and run on it: on a card, or on the driver that OPTC_LIBCUDA
// names (the emulator). Kernels without a GPU form run on the host.
// The words of the answers are optc_conformance's, and "build" where the compiler refuses what was emitted.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "driver/bundle.h"
#include "driver/places.h"
#include "driver/process.h"
#include "driver/toolchain.h"
#include "emit/cpp/system_libraries.h"
#include "runtime/cpu/isa.h"
#include "support/file.h"
#include "support/staging.h"
#include "tests/conformance/answers.h"
#include "tests/proto_io.h"

namespace optc {
namespace {

namespace fs = std::filesystem;

struct Job {
  std::string id, model, inputs, outputs;
};

struct Answer {
  std::string word, text;
};

struct Model {
  std::string path, name, folder;
  Answer compiled;  // word "ok" when its sources lie in `folder`
};

class Silent : public Listener {
 public:
  void begin(std::string_view) override {}
  void progress(int64_t, int64_t) override {}
  void end(std::string_view, const std::string &, double) override {}
};

Answer answer_of(const Status &status, const Diagnostics &diagnostics) {
  if (status.ok()) return {"ok", ""};
  return {to_string(status.failure().kind), one_line(diagnostics)};
}

// What a sanitizer wrote: its first line with the fault, and where it is.
std::string sanitizer_words(const std::string &path) {
  Diagnostics ignored;
  const auto text = read_file(path, ignored);
  if (!text) return {};
  size_t at = text->find("runtime error: ");
  if (at != std::string::npos)
    at = text->rfind('\n', at) + 1;  // from the file's name on; 0 in the first line
  else if ((at = text->find("ERROR: AddressSanitizer: ")) == std::string::npos)
    return {};
  std::string words = text->substr(at, 600);
  for (char &c : words)
    if (c == '\n' || c == '\t') c = ' ';
  return words;
}

// Runs `work` in a process of its own, so that a crash or an endless loop is an answer like any other. Its standard
// error goes to the file `errors`.
Answer apart(unsigned timeout, const std::string &errors, const std::function<Answer()> &work) {
  int channel[2];
  if (::pipe(channel) != 0) return {"crash", "no pipe"};
  const pid_t child = ::fork();
  if (child < 0) return {"crash", "no process"};
  if (child == 0) {
    ::close(channel[0]);
    if (!std::freopen(errors.c_str(), "w", stderr)) ::_exit(101);
    ::alarm(timeout);
    const Answer answer = work();
    const std::string bytes = answer.word + "\t" + answer.text;
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t n = ::write(channel[1], bytes.data() + sent, bytes.size() - sent);
      if (n <= 0) break;
      sent += static_cast<size_t>(n);
    }
    ::_exit(0);
  }
  ::close(channel[1]);
  std::string bytes;
  char buffer[4096];
  for (ssize_t n; (n = ::read(channel[0], buffer, sizeof buffer)) > 0;) bytes.append(buffer, static_cast<size_t>(n));
  ::close(channel[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (const std::string words = sanitizer_words(errors); !words.empty()) return {"crash", words};
  if (WIFSIGNALED(status)) {
    if (WTERMSIG(status) == SIGALRM) return {"timeout", "no end in time"};
    return {"crash", ::strsignal(WTERMSIG(status))};
  }
  const size_t tab = bytes.find('\t');
  if (tab == std::string::npos) return {"crash", "exit code " + std::to_string(WEXITSTATUS(status))};
  return {bytes.substr(0, tab), bytes.substr(tab + 1)};
}

Answer compile(const Model &model, const std::string &target) {
  Diagnostics diagnostics(model.path);
  Silent silent;
  CompileOptions options;
  options.name = model.name;
  if (!target.empty()) options.targets = {"cpu", target};
  const auto facts = compile_model(model.path, model.folder, options, silent, diagnostics);
  return answer_of(facts.ok() ? Status() : Status(facts.failure()), diagnostics);
}

// A source without its includes of the runtime, which go into `headers`.
std::string without_headers(const std::string &path, std::vector<std::string> &headers) {
  Diagnostics ignored;
  const auto text = read_file(path, ignored);
  if (!text) return "#error no " + path + "\n";
  std::string rest;
  for (size_t at = 0; at < text->size();) {
    size_t end = text->find('\n', at);
    if (end == std::string::npos) end = text->size();
    const std::string line = text->substr(at, end - at);
    at = end + 1;
    if (line.compare(0, 9, "#include ") != 0) {
      rest += line + "\n";
    } else if (line.find("\"runtime/") != std::string::npos) {
      bool known = false;
      for (const std::string &h : headers) known = known || h == line;
      if (!known) headers.push_back(line);
    }
  }
  return rest;
}

size_t kernel_files(const Model &model, const std::string &prefix) {
  size_t count = 0;
  while (exists(model.folder + "/src/" + prefix + "kernels_" + std::to_string(count) + ".inc")) ++count;
  return count;
}

// The sources of the schedule: one, or where it is long what its parts share, the parts, and the whole.
std::vector<std::string> schedule_files(const Model &model) {
  const std::string folder = model.folder + "/src/";
  std::vector<std::string> files;
  if (exists(folder + "model.h")) files.push_back(folder + "model.h");
  for (size_t i = 0; exists(folder + "model_" + std::to_string(i) + ".cpp"); ++i)
    files.push_back(folder + "model_" + std::to_string(i) + ".cpp");
  files.push_back(folder + "model.cpp");
  return files;
}

// Includes unit.inc for one instruction set, as runtime/cpu/foreach_isa.h does for each.
std::string one_isa() {
  static constexpr const char *kNames[] = {"optc_base", "optc_avx2", "optc_avx512"};
  static constexpr const char *kTargets[] = {"", "avx,avx2,fma,f16c",
                                             "avx,avx2,fma,f16c,avx512f,avx512vl,avx512bw,avx512dq"};
  const int isa = optc_isa();
  const std::string name = kNames[isa], target = kTargets[isa];
  std::string text =
      "#include \"runtime/cpu/attention_plan.h\"\n#include \"runtime/cpu/conv_plan.h\"\n#include "
      "\"runtime/cpu/gemm_i8_plan.h\"\n#include \"runtime/cpu/gemm_plan.h\"\n"
      "#include \"runtime/cpu/isa.h\"\n#include \"runtime/cpu/rnn_plan.h\"\n";
  text += "#define OPTC_VW " + std::to_string(4 << isa) + "\n#define OPTC_ISA " + name + "\n";
  text += "#define OPTC_KERNEL __attribute__((noinline))\n#define OPTC_LAMBDA __attribute__((always_inline))\n";
  if (isa > 0)
    text +=
        "#define OPTC_TARGET \"" + target + "\"\n#pragma GCC push_options\n#pragma GCC target(\"" + target + "\")\n";
  text += "namespace " + name + " {\n#include \"unit.inc\"\n}\n";
  if (isa > 0) text += "#pragma GCC pop_options\n";
  return text + "#undef OPTC_PICK\n#define OPTC_PICK(name) (" + name + "::name)\n";
}

// One translation unit of all models in `models`.
Status write_unit(const std::vector<const Model *> &models, bool all_isas, const std::string &work,
                  Diagnostics &diagnostics) {
  std::vector<std::string> kernel_headers, model_headers;
  std::string kernels, tables, schedules;
  for (const Model *m : models) {
    // A bundle for GPUs has a second table: of the kernels that its GPU's Program leaves on the host.
    for (const char *prefix : {"", "host_"}) {
      const std::string name = m->name + (*prefix ? "_host" : ""), folder = m->folder + "/src/";
      const size_t files = kernel_files(*m, prefix);
      if (files == 0 && !exists(folder + prefix + "kernels.h")) continue;
      std::string fill, each;
      for (size_t f = 0; f < files; ++f) {
        const std::string n = std::to_string(f), source = folder + prefix + "kernels_" + n + ".inc";
        const std::string text = without_headers(source, kernel_headers);
        kernels += "namespace " + name + "_" + n + " {\n#line 1 \"" + source + "\"\n" + text + "}\n";
        each += "void kernels_" + n + "(Kernels *table) { OPTC_PICK(" + name + "_" + n + "::optc_fill)(table); }\n";
        fill += "kernels_" + n + "(&filled); ";
      }
      tables += "#include \"" + folder + prefix + "kernels.h\"\n";
      schedules += "namespace " + name + "_code {\n" + each +
                   "const Kernels &kernels() {\n  static const Kernels table = [] { Kernels filled{}; " + fill +
                   "return filled; }();\n  return table;\n}\n}\n";
    }
    const std::string cuda = m->folder + "/src/cuda.cpp";
    schedules += "#undef OPTC_WEIGHTS_FOLDER\n#define OPTC_WEIGHTS_FOLDER \"" + m->folder + "\"\n";
    schedules += "namespace " + m->name + "_unit {\n";
    // model.cpp and cuda.cpp share a namespace, which here hides the one of the kernels.
    if (exists(cuda))
      schedules += "namespace " + m->name + "_code { using namespace ::" + m->name + "_code; }\n#line 1 \"" + cuda +
                   "\"\n" + without_headers(cuda, model_headers);
    schedules += "#include \"" + m->folder + "/include/" + m->name + ".h\"\n";
    for (const std::string &source : schedule_files(*m))
      schedules += "#line 1 \"" + source + "\"\n" + without_headers(source, model_headers);
    schedules += "}\n";
  }
  // The plans of the kernel headers and what a schedule needs come first, at the top.
  std::string unit =
      "#include <limits>\n#include \"runtime/bundle/env.h\"\n#include \"runtime/bundle/scalar.h\"\n#include "
      "\"runtime/bundle/model.h\"\n";
  for (const std::string &h : model_headers) unit += h + "\n";
  std::string inc;
  for (const std::string &h : kernel_headers) inc += h + "\n";
  inc += "using namespace optc;\n" + kernels;
  OPTC_TRY(write_file(work + "/unit.inc", inc, diagnostics));
  unit += tables +
          "#include \"runtime/cpu/attention_plan.h\"\n#include \"runtime/cpu/conv_plan.h\"\n#include "
          "\"runtime/cpu/rnn_plan.h\"\n" +
          (all_isas ? "#define OPTC_KERNELS \"unit.inc\"\n#include \"runtime/cpu/foreach_isa.h\"\n" : one_isa()) +
          schedules;
  return write_file(work + "/unit.cpp", unit, diagnostics);
}

// Compiles the unit; empty when all went well, else the compiler's words.
std::string compile_unit(const std::string &compiler, const std::string &level, bool sanitize,
                         const std::string &work) {
  Diagnostics diagnostics;
  const std::string share = resource_path("");
  std::vector<std::string> command = {compiler,
                                      "-std=c++17",
                                      "-O" + level,
                                      "-ffp-contract=off",
                                      "-fno-math-errno",
                                      "-fvisibility=hidden",
                                      "-fPIC",
                                      "-shared",
                                      "-w",
                                      "-I" + work,
                                      "-I" + share,
                                      "-I" + share + "runtime",
                                      work + "/unit.cpp",
                                      "-o",
                                      work + "/libunit.so",
                                      "-ldl",
                                      "-lpthread"};
  const auto unit = read_file(work + "/unit.cpp", diagnostics);
  for (const SystemLibrary &l : system_libraries()) {
    if (!unit || unit->find("/lib_" + std::string(l.function) + ".h\"") == std::string::npos) continue;
    command.push_back("-l" + std::string(l.library));
    for (size_t at = 0; at < l.folders.size();) {
      const size_t end = std::min(l.folders.find(' ', at), l.folders.size());
      command.push_back("-I/usr/include/" + std::string(l.folders.substr(at, end - at)));
      at = end + 1;
    }
  }
  if (sanitize)
    command.insert(command.end(),
                   {"-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g1"});
  const auto done = run_process(command, diagnostics);
  if (!done) return one_line(diagnostics);
  return done->status == 0 ? "" : done->output;
}

// Builds one library of all that compiles. A model whose sources the compiler names in an error leaves, and the rest is
// built again.
void build(std::vector<Model> &models, const std::string &compiler, const std::string &level, bool sanitize,
           const std::string &work) {
  for (;;) {
    std::vector<const Model *> good;
    for (const Model &m : models)
      if (m.compiled.word == "ok") good.push_back(&m);
    if (good.empty()) return;
    Diagnostics diagnostics;
    std::string errors = write_unit(good, compiler.find("clang") != std::string::npos, work, diagnostics).ok()
                             ? compile_unit(compiler, level, sanitize, work)
                             : one_line(diagnostics);
    if (errors.empty()) return;
    bool found = false;
    for (Model &m : models) {
      if (m.compiled.word != "ok") continue;
      for (size_t at = 0; (at = errors.find(m.folder + "/", at)) != std::string::npos; ++at) {
        const size_t end = errors.find('\n', at);
        const std::string line = errors.substr(at, end == std::string::npos ? end : end - at);
        const size_t error = line.find("error: ");
        if (error == std::string::npos) continue;
        m.compiled = {"build", line.substr(error + 7)};
        found = true;
        break;
      }
    }
    if (found) continue;
    const size_t error = errors.find("error: ");
    for (Model &m : models)
      if (m.compiled.word == "ok")
        m.compiled = {"build",
                      "the unit does not compile: " + errors.substr(error == std::string::npos ? 0 : error, 200)};
    for (Model &m : models)
      for (char &c : m.compiled.text)
        if (c == '\n' || c == '\t') c = ' ';
    return;
  }
}

Status run_data_set(const Model &model, const Job &job, const std::string &library, Diagnostics &diagnostics) {
  Silent silent;
  OPTC_ASSIGN(const Graph graph, load_model(model.path, {}, silent, diagnostics));
  const Region &main = graph.region(Graph::main());
  std::vector<RuntimeValue> inputs;
  for (size_t i = 0; i < main.inputs.size(); ++i) {
    const std::string path = job.inputs + "/input_" + std::to_string(i) + ".pb";
    if (!fs::exists(path)) {
      inputs.emplace_back();
      continue;
    }
    OPTC_ASSIGN(const std::string bytes, read_file(path, diagnostics));
    OPTC_ASSIGN(RuntimeValue value, testing::parse_value(bytes, graph.value(main.inputs[i]).type, path, diagnostics));
    inputs.push_back(std::move(value));
  }
  BundleRunOptions options;
  options.cuda = has_gpu_half(model.folder);
  const std::string weights = model.folder + "/" + model.name + ".weights";
  if (exists(weights)) options.weights_path = weights;
  OPTC_ASSIGN(const auto bundle, Bundle::load(library, model.name, options, diagnostics));
  OPTC_ASSIGN(const std::vector<RuntimeValue> outputs, bundle->run(inputs, diagnostics));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Value &value = graph.value(main.outputs[i]);
    OPTC_TRY(write_file(job.outputs + "/output_" + std::to_string(i) + ".pb",
                        testing::serialize_value(outputs[i], value.type, value.name), diagnostics));
  }
  return {};
}

std::vector<Job> read_jobs() {
  std::vector<Job> jobs;
  char buffer[16384];
  while (std::fgets(buffer, sizeof buffer, stdin)) {
    std::vector<std::string> parts(1);
    for (const char *c = buffer; *c && *c != '\n'; ++c) {
      if (*c == '\t')
        parts.emplace_back();
      else
        parts.back() += *c;
    }
    if (parts.size() == 4) jobs.push_back({parts[0], parts[1], parts[2], parts[3]});
  }
  return jobs;
}

int main_with(int argc, char **argv) {
  unsigned timeout = 60;
  std::string compiler = "g++", level = "1", target;
  bool keep = false, sanitize = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--timeout" && i + 1 < argc) {
      timeout = static_cast<unsigned>(std::atoi(argv[++i]));
    } else if (argument == "--compiler" && i + 1 < argc) {
      compiler = argv[++i];
    } else if (argument == "--optimize" && i + 1 < argc) {
      level = argv[++i];
    } else if (argument == "--target" && i + 1 < argc) {
      target = argv[++i];
    } else if (argument == "--sanitize") {
      sanitize = true;
    } else if (argument == "--keep") {
      keep = true;
    } else {
      std::fprintf(stderr,
                   "usage: optc_conformance_bundles [--timeout S] [--compiler CXX] [--optimize LEVEL] [--target SM] "
                   "[--sanitize] "
                   "[--keep] < jobs\n");
      return 2;
    }
  }
  if (sanitize) ::unsetenv("LD_PRELOAD");  // the compiler is to run without
  char pattern[] = "/tmp/optc_conformance_XXXXXX";
  if (!::mkdtemp(pattern)) return 101;
  const std::string work = pattern;
  const std::vector<Job> jobs = read_jobs();
  std::vector<Model> models;
  std::map<std::string, size_t> by_path;
  for (const Job &job : jobs) {
    if (!by_path.emplace(job.model, models.size()).second) continue;
    const std::string name = "t" + std::to_string(models.size());
    models.push_back({job.model, name, work + "/" + name, {}});
  }
  const std::string errors = work + "/stderr";
  for (Model &m : models) {
    m.compiled = apart(timeout, errors, [&] { return compile(m, target); });
    std::error_code ignored;
    fs::remove_all(m.folder + "/src/runtime", ignored);  // the unit takes them from the source
  }
  build(models, compiler, level, sanitize, work);
  for (const Job &job : jobs) {
    const Model &m = models[by_path[job.model]];
    Answer answer = m.compiled;
    if (answer.word == "ok")
      answer = apart(timeout, errors, [&] {
        Diagnostics diagnostics(m.path);
        const Status status = run_data_set(m, job, work + "/libunit.so", diagnostics);
        return answer_of(status, diagnostics);
      });
    std::printf("%s\t%s\t%s\n", job.id.c_str(), answer.word.c_str(), answer.text.c_str());
    std::fflush(stdout);
  }
  std::error_code ignored;
  if (keep)
    std::fprintf(stderr, "%s\n", work.c_str());
  else
    fs::remove_all(work, ignored);
  return 0;
}

}  // namespace
}  // namespace optc

int main(int argc, char **argv) { return optc::main_with(argc, argv); }
