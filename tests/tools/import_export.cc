// import_export [--opset N] [--external] [--optimize] [--print] [--dim NAME=N] MODEL [OUT.onnx]: reads a model and
// writes it back, without any pass between or after the rewrite rules. `import_export [options] -` reads
// "MODEL<tab>OUT" lines and answers each with "<exit code>" and the errors on one line. For tests/python; ends with the
// exit codes of the command line.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "emit/onnx/export.h"
#include "importer/importer.h"
#include "ir/graph/text.h"
#include "optimizer/optimize.h"

namespace {

struct Options {
  optc::ImportOptions import;
  optc::ExportOptions write;
  bool print = false, optimize = false;
};

int convert(const std::string &input, const std::string &output, const Options &options, std::string &said) {
  optc::Diagnostics diagnostics;
  auto finish = [&](int code) {
    for (const auto &d : diagnostics.all()) said += optc::format(d);
    return code;
  };
  auto graph = optc::import_model(input, options.import, diagnostics);
  if (!graph.ok()) return finish(optc::exit_code(graph.failure().kind));
  if (options.optimize) {
    optc::OptimizeReport report;
    const optc::Status status = optc::optimize(*graph, {}, report, diagnostics);
    if (!status.ok()) return finish(optc::exit_code(status.failure().kind));
    for (const auto &r : report.rewrites) said += "rewrite " + r.pass + " " + r.rule + "\n";
    for (const auto &m : report.missed) said += "missed " + m.rule + " at " + m.node + ": " + m.reason + "\n";
    said += "nodes " + std::to_string(report.nodes_before) + " " + std::to_string(report.nodes_after) + "\n";
  }
  if (options.print) std::fputs(optc::print(*graph).c_str(), stdout);
  if (!output.empty()) {
    const optc::Status status = optc::export_file(*graph, output, options.write, diagnostics);
    if (!status.ok()) return finish(optc::exit_code(status.failure().kind));
  }
  return finish(0);
}

int batch(const Options &options) {
  char line[8192];
  while (std::fgets(line, sizeof line, stdin)) {
    std::string text(line);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    const size_t tab = text.find('\t');
    if (tab == std::string::npos) return 2;
    std::string said;
    const int code = convert(text.substr(0, tab), text.substr(tab + 1), options, said);
    for (char &c : said)
      if (c == '\n') c = ' ';
    std::printf("%d %s\n", code, said.c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char **argv) {
  Options options;
  std::string paths[2];
  size_t count = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const bool more = i + 1 < argc;
    if (arg == "--opset" && more) {
      options.write.opset = std::atoll(argv[++i]);
    } else if (arg == "--external") {
      options.write.external = true;
    } else if (arg == "--optimize") {
      options.optimize = true;
    } else if (arg == "--print") {
      options.print = true;
    } else if (arg == "--dim" && more) {
      const std::string pin = argv[++i];
      const size_t equals = pin.find('=');
      if (equals == std::string::npos) return 2;
      const long long value = std::atoll(pin.c_str() + equals + 1);
      options.import.dims.push_back({pin.substr(0, equals), value, value});
    } else if (count < 2) {
      paths[count++] = arg;
    } else {
      std::fprintf(stderr, "import_export: unexpected '%s'\n", arg.c_str());
      return 2;
    }
  }
  if (paths[0] == "-") return batch(options);
  std::string said;
  const int code = convert(paths[0], paths[1], options, said);
  std::fputs(said.c_str(), stderr);
  return code;
}
