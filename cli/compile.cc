// optc compile MODEL -o DIR: a model becomes a bundle.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/common.h"

namespace optc::cli {

void add_compile(CommandLine &line, int &code) {
  struct Options : CommonOptions {
    std::string output;
    bool embed = false, force = false;
  };
  auto o = std::make_shared<Options>();
  Verb *verb = line.add_verb("compile", "compile a model to a bundle (the verb may be left out)");
  verb->footer("Example: optc resnet50.onnx -o resnet50 --dim N=1 --target cpu,sm_90a");
  add_model(*verb, *o);
  verb->add_option("-o,--output", o->output, "the folder to write")
      ->required()
      ->type_name("DIR")
      ->check([](const std::string &text) { return text.empty() ? "the folder has no name" : ""; });
  verb->add_flag("--embed-weights,!--no-embed-weights", o->embed,
                 "weights inside the library instead of a file beside it");
  verb->add_flag("--force", o->force, "replace files in DIR that were changed since optc wrote them");
  add_compile_options(*verb, *o);
  add_shape_options(*verb, *o);
  add_output_options(*verb, *o);
  verb->callback([o, &code] {
    Diagnostics diagnostics(o->model);
    Result<CompileOptions> options = compile_options(*o, diagnostics);
    if (!options) {
      code = report(diagnostics, options.failure(), *o);
      return;
    }
    options->embed_weights = o->embed;
    options->force = o->force;
    const std::unique_ptr<Listener> listener = make_listener(*o);
    Result<BundleFacts> facts = compile_model(o->model, o->output, *options, *listener, diagnostics);
    if (!facts) {
      code = report(diagnostics, facts.failure(), *o);
      return;
    }
    print_warnings(diagnostics, *o);
    if (o->format == "json") {
      const auto known = [](int64_t bytes) {
        return bytes < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(bytes);
      };
      nlohmann::ordered_json json = {{"schema_version", 1},
                                     {"bundle", facts->folder},
                                     {"name", facts->name},
                                     {"kernels", facts->kernels},
                                     {"arena_bytes", known(facts->arena_bytes)},
                                     {"lower_bound_bytes", known(facts->bound_bytes)},
                                     {"peak_bytes", known(facts->peak_bytes)},
                                     {"weight_bytes", facts->weight_bytes},
                                     {"files", facts->files}};
      for (const BundleFacts::Variant &variant : facts->variants)
        json["variants"].push_back(
            {{"sizes", variant.sizes}, {"kernels", variant.kernels}, {"arena_bytes", known(variant.arena_bytes)}});
      print(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
    } else if (!o->quiet) {
      const std::string &folder = facts->folder;
      print(fmt::format("wrote {}/   next: cmake -S {} -B build && cmake --build build, or see {}/README.md\n", folder,
                        folder, folder));
    }
  });
}

}  // namespace optc::cli
