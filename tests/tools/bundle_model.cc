// bundle_model MODEL FOLDER [--unfused] [--embed] [--name NAME]: a model file as a bundle, without the optimizer. For
// tests of emit/cpp.
#include <cstdio>
#include <cstring>
#include <string>

#include "emit/cpp/emit.h"
#include "importer/importer.h"
#include "lowering/buffers/buffers.h"
#include "lowering/lower.h"
#include "ops/build.h"

using namespace optc;

namespace {

Status make(int argc, char **argv, Diagnostics &diagnostics) {
  BundleOptions options;
  options.name = "m";
  options.runtime_folder = OPTC_SOURCE_DIR "/runtime";
  options.compiler = "optc";
  bool fused = true;
  for (int i = 3; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--unfused")) fused = false;
    if (!std::strcmp(argv[i], "--embed")) options.weights = BundleOptions::Weights::kEmbed;
    if (!std::strcmp(argv[i], "--name") && i + 1 < argc) options.name = argv[++i];
  }
  OPTC_ASSIGN(Graph graph, import_model(argv[1], {}, diagnostics));
  LoweringReport report;
  auto program = fused ? lower(graph, {}, report, diagnostics) : build_program(graph, diagnostics);
  if (!program.ok()) return program.failure();
  if (!fused) place_buffers(*program);
  OPTC_ASSIGN(auto directory, StagedDirectory::create(argv[2], diagnostics));
  OPTC_ASSIGN(const BundleReport bundle, emit_bundle(*program, options, *directory, diagnostics));
  std::printf("%zu kernels, %zu files, %llu bytes of weights, arena %lld\n", bundle.kernels, bundle.files,
              static_cast<unsigned long long>(bundle.weights_bytes), static_cast<long long>(bundle.memory.arena_bytes));
  return directory->commit(diagnostics);
}

}  // namespace

int main(int argc, char **argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: bundle_model MODEL FOLDER [--unfused] [--embed] [--name NAME]\n");
    return 2;
  }
  Diagnostics diagnostics(argv[1]);
  const Status status = make(argc, argv, diagnostics);
  for (const Diagnostic &d : diagnostics.all()) std::fputs(format(d).c_str(), stderr);
  return status.ok() ? 0 : exit_code(status.failure().kind);
}
