// optc compile MODEL -o DIR: a model becomes a bundle.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/common.h"
#include "cli/internal_json.h"
#include "cli/pass_watch.h"

namespace optc::cli {
namespace {

// What the bundle would be, for a user who has not decided yet.
std::string dry_run_text(const BundleFacts &facts) {
  const auto known = [](int64_t bytes) { return bytes < 0 ? std::string("by the dims") : format_bytes(bytes); };
  std::string arena = facts.arena_bytes >= 0  ? format_bytes(facts.arena_bytes)
                      : facts.peak_bytes >= 0 ? "by the dims, at most " + format_bytes(facts.peak_bytes)
                                              : "by the dims (--dim NAME=LOW..HIGH bounds them)";
  for (const BundleFacts::Variant &variant : facts.variants)
    arena += fmt::format("; {} for {}", known(variant.arena_bytes), variant.sizes);
  return fmt::format(
      "bundle  {} in {} files: {} of weights, {} of code for a compiler\n"
      "memory  {} of weights, mapped once for all processes; a context's arena {}\n"
      "build   about {:.0f} s of one core (g++, optimized; {} kernels)\n"
      "nothing was written\n",
      format_bytes(facts.bytes), facts.files, format_bytes(facts.weight_bytes), format_bytes(facts.code_bytes),
      format_bytes(facts.weight_bytes), arena, std::max(1.0, facts.build_seconds), facts.kernels);
}

struct CompileVerbOptions : CommonOptions {
  std::string output;
  bool embed = false, force = false, dry_run = false;
  PassOptions watched;
};

// `passes`: a JSON list, empty: nobody asked.
std::string facts_json(const BundleFacts &facts, bool written, const std::string &passes) {
  const auto known = [](int64_t bytes) { return bytes < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(bytes); };
  nlohmann::ordered_json json = {{"schema_version", 1},
                                 {"bundle", facts.folder},
                                 {"name", facts.name},
                                 {"kernels", facts.kernels},
                                 {"arena_bytes", known(facts.arena_bytes)},
                                 {"lower_bound_bytes", known(facts.bound_bytes)},
                                 {"peak_bytes", known(facts.peak_bytes)},
                                 {"weight_bytes", facts.weight_bytes},
                                 {"files", facts.files},
                                 {"bytes", facts.bytes},
                                 {"code_bytes", facts.code_bytes},
                                 {"build_seconds", std::round(facts.build_seconds * 10) / 10},
                                 {"written", written}};
  if (!facts.weights.format.empty())
    json["quantized_weights"] = nlohmann::ordered_json::parse(weights_json(facts.weights));
  for (const BundleFacts::Variant &variant : facts.variants)
    json["variants"].push_back(
        {{"sizes", variant.sizes}, {"kernels", variant.kernels}, {"arena_bytes", known(variant.arena_bytes)}});
  if (!passes.empty()) json["passes"] = nlohmann::ordered_json::parse(passes);
  return json_text(json);
}

Status compile(const CompileVerbOptions &o, Diagnostics &diagnostics) {
  if (o.output.empty() && !o.dry_run)
    return diagnostics.error(ErrorKind::kUsage, "-o DIR is required, the folder to write", {},
                             "or a verb before the model: `optc --help` lists them; -n only says what it would be");
  OPTC_ASSIGN(CompileOptions options, compile_options(o, diagnostics));
  options.embed_weights = o.embed;
  options.force = o.force;
  options.dry_run = o.dry_run;
  PassWatch watch(o.watched, diagnostics);
  OPTC_TRY(watch.prepare(options));
  const std::unique_ptr<Listener> listener = make_listener(o);
  OPTC_ASSIGN(const BundleFacts facts, compile_model(o.model, o.output, options, *listener, diagnostics));
  if (o.format == "json")
    print(facts_json(facts, !o.dry_run, o.watched.times ? watch.json() : ""));
  else if (o.dry_run)
    print(watch.text() + dry_run_text(facts));
  else if (!o.quiet)
    print(watch.text() +
          fmt::format("wrote {0}/   next: cmake -S {0} -B build && cmake --build build, or see {0}/README.md\n",
                      facts.folder));
  return {};
}

}  // namespace

void add_compile(CommandLine &line, int &code) {
  auto o = std::make_shared<CompileVerbOptions>();
  Verb *verb = line.add_verb("compile", "compile a model to a bundle (the verb may be left out)");
  verb->footer("Example: optc resnet50.onnx -o resnet50 --dim N=1 --target cpu,sm_90a");
  add_model(*verb, *o);
  verb->add_option("-o,--output", o->output, "the folder to write")->type_name("DIR");
  verb->add_flag("--embed-weights,!--no-embed-weights", o->embed,
                 "weights inside the library instead of a file beside it");
  verb->add_flag("--force", o->force, "replace files in DIR that were changed since optc wrote them");
  verb->add_flag("-n,--dry-run", o->dry_run,
                 "write nothing: say how large the bundle, its memory and, about, its build would be");
  add_compile_options(*verb, *o);
  add_pass_options(*verb, o->watched);
  add_shape_options(*verb, *o);
  add_step_options(*verb, *o);
  add_output_options(*verb, *o);
  on_parsed(*verb, o, code, [o](Diagnostics &diagnostics) { return compile(*o, diagnostics); });
}

}  // namespace optc::cli
