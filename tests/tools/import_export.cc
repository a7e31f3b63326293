// import_export MODEL [-o OUT.onnx] [--opset N] [--external] [--print] [--dim NAME=N]: reads a model and writes it back
// without any pass between. For tests/python; ends with the exit codes of the command line.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "emit/onnx/export.h"
#include "importer/importer.h"
#include "ir/graph/text.h"

int main(int argc, char **argv) {
  std::string input, output;
  optc::ImportOptions import;
  optc::ExportOptions options;
  bool print = false;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const bool more = i + 1 < argc;
    if (arg == "-o" && more) {
      output = argv[++i];
    } else if (arg == "--opset" && more) {
      options.opset = std::atoll(argv[++i]);
    } else if (arg == "--external") {
      options.external = true;
    } else if (arg == "--print") {
      print = true;
    } else if (arg == "--dim" && more) {
      const std::string pin = argv[++i];
      const size_t equals = pin.find('=');
      if (equals == std::string::npos) return 2;
      const long long value = std::atoll(pin.c_str() + equals + 1);
      import.dims.push_back({pin.substr(0, equals), value, value});
    } else if (input.empty()) {
      input = arg;
    } else {
      std::fprintf(stderr, "import_export: unexpected '%s'\n", arg.c_str());
      return 2;
    }
  }
  optc::Diagnostics diagnostics;
  auto finish = [&](int code) {
    for (const auto &d : diagnostics.all()) std::fputs(optc::format(d).c_str(), stderr);
    return code;
  };
  auto graph = optc::import_model(input, import, diagnostics);
  if (!graph.ok()) return finish(optc::exit_code(graph.failure().kind));
  if (print) std::fputs(optc::print(*graph).c_str(), stdout);
  if (!output.empty()) {
    const optc::Status status = optc::export_file(*graph, output, options, diagnostics);
    if (!status.ok()) return finish(optc::exit_code(status.failure().kind));
  }
  return finish(0);
}
