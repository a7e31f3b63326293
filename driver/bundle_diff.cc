#include "driver/bundle_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "driver/bundle.h"
#include "driver/places.h"
#include "driver/samples.h"
#include "support/file.h"
#include "support/staging.h"

namespace optc {
namespace {

using Json = nlohmann::json;

struct Side {
  std::string folder;
  Json manifest;
  std::unique_ptr<Bundle> bundle;
};

Result<Json> read_manifest(const std::string &folder, Diagnostics &diagnostics) {
  OPTC_ASSIGN(const std::string text, read_file(folder + "/manifest.json", diagnostics));
  Json manifest = Json::parse(text, nullptr, false);
  const auto named = [&](const char *key) {
    return manifest.contains(key) && manifest[key].is_array() &&
           std::all_of(manifest[key].begin(), manifest[key].end(), [](const Json &value) {
             return value.is_object() && value.contains("name") && value["name"].is_string() &&
                    value.contains("type") && value["type"].is_string();
           });
  };
  if (!manifest.is_object() || !manifest.contains("name") || !manifest["name"].is_string() || !named("inputs") ||
      !named("outputs"))
    return diagnostics.error(ErrorKind::kUsage, folder + ": its manifest.json is not a bundle's");
  return manifest;
}

Result<ElementType> element_of(const Json &value, Diagnostics &diagnostics) {
  const std::string type = value["type"].get<std::string>();
  for (int i = 1; i <= static_cast<int>(ElementType::kInt2); ++i)
    if (onnx_name(static_cast<ElementType>(i)) == type) return static_cast<ElementType>(i);
  return diagnostics.error(ErrorKind::kUnsupported,
                           fmt::format("'{}' is a {}: bundles whose inputs are not tensors are not compared",
                                       value["name"].get<std::string>(), type));
}

// A Graph of the bundle's inputs alone, which inputs are drawn for.
Result<Graph> signature(const Json &manifest, Diagnostics &diagnostics) {
  Graph graph;
  for (const Json &input : manifest["inputs"]) {
    OPTC_ASSIGN(const ElementType element, element_of(input, diagnostics));
    Shape shape;
    for (const Json &dim : input.value("dims", Json::array())) {
      if (dim.is_number_integer()) {
        shape.push_back(Dim(dim.get<int64_t>()));
        continue;
      }
      const std::string text = dim.is_string() ? dim.get<std::string>() : "?";
      const std::optional<Dim> parsed = parse_dim(text, *graph.dims());
      shape.push_back(parsed ? *parsed : graph.dims()->model_symbol(text));
    }
    graph.add_input(Graph::main(), input["name"].get<std::string>(), Type::tensor(element, std::move(shape)));
  }
  return graph;
}

// What both must have in common: the inputs in order, the outputs by name.
Status check_signatures(const Side &a, const Side &b, Diagnostics &diagnostics) {
  const auto text = [](const Json &list) {
    std::string names;
    for (const Json &value : list)
      names += fmt::format("{}{} {}[{}]", names.empty() ? "" : ", ", value["name"].get<std::string>(),
                           value["type"].get<std::string>(), value.value("dims", Json::array()).size());
    return names;
  };
  const std::string ours = text(a.manifest["inputs"]), theirs = text(b.manifest["inputs"]);
  if (ours != theirs)
    return diagnostics.error(ErrorKind::kUsage, fmt::format("the bundles have other inputs: {} and {}", ours, theirs));
  for (const Json &output : a.manifest["outputs"])
    if (std::none_of(b.manifest["outputs"].begin(), b.manifest["outputs"].end(),
                     [&](const Json &other) { return other["name"] == output["name"]; }))
      return diagnostics.error(ErrorKind::kUsage,
                               fmt::format("{} has no output '{}'", b.folder, output["name"].get<std::string>()));
  return {};
}

Status open(Side &side, const std::string &build, Diagnostics &diagnostics) {
  const std::string name = side.manifest["name"].get<std::string>();
  OPTC_ASSIGN(const std::string library, build_bundle(side.folder, name, build, diagnostics));
  BundleRunOptions options;
  if (const std::string weights = side.folder + "/" + name + ".weights"; exists(weights))
    options.weights_path = weights;
  OPTC_ASSIGN(side.bundle, Bundle::load(library, name, options, diagnostics));
  return {};
}

void note_worst(Comparison &worst, const Comparison &now) {
  const bool other = !now.problem.empty();
  if (worst.count == 0 || (worst.problem.empty() && (other || now.max_difference > worst.max_difference))) {
    const bool ok = worst.count == 0 || worst.ok;
    worst = now;
    worst.ok = worst.ok && ok;
  } else {
    worst.ok = worst.ok && now.ok;
  }
}

}  // namespace

bool BundleDiff::equal() const {
  return std::all_of(outputs.begin(), outputs.end(), [](const Output &output) { return output.worst.ok; });
}

bool is_bundle_folder(const std::string &path) { return exists(path + "/manifest.json"); }

Result<BundleDiff> diff_bundles(const std::string &before, const std::string &after, const BundleDiffOptions &options,
                                Diagnostics &diagnostics) {
  Side a{before, {}, {}}, b{after, {}, {}};
  OPTC_ASSIGN(a.manifest, read_manifest(before, diagnostics));
  OPTC_ASSIGN(b.manifest, read_manifest(after, diagnostics));
  OPTC_TRY(check_signatures(a, b, diagnostics));
  OPTC_ASSIGN(const Graph graph, signature(a.manifest, diagnostics));
  const ScratchFolder scratch;
  if (scratch.path().empty()) return diagnostics.error(ErrorKind::kIo, "no folder for temporary files can be made");
  OPTC_TRY(open(a, scratch.path() + "/a", diagnostics));
  OPTC_TRY(open(b, scratch.path() + "/b", diagnostics));

  BundleDiff diff;
  const auto weights = [](const Json &manifest) {
    return manifest.value("weights", Json::object()).value("xxh3_128", "");
  };
  diff.same_weights = weights(a.manifest) == weights(b.manifest);
  diff.same_precision = a.manifest.value("precision", "") == b.manifest.value("precision", "");
  for (const Json &output : a.manifest["outputs"]) diff.outputs.push_back({output["name"].get<std::string>(), {}});
  InputSource source;
  source.folder = options.inputs;
  source.sizes = options.sizes;
  source.seed = options.seed;
  InputSets inputs(graph, source);
  const int sets = options.inputs.empty() ? options.sets : 1;
  for (int set = 0; set < sets; ++set) {
    std::vector<RuntimeValue> expected, actual;
    const auto run = [&](const InputSet &values, Diagnostics &said) -> Status {
      OPTC_ASSIGN(expected, a.bundle->run(values.values, said));
      OPTC_ASSIGN(actual, b.bundle->run(values.values, said));
      return {};
    };
    OPTC_ASSIGN(const InputSet used, inputs.fitting(graph, set, run, diagnostics));
    diff.sets.push_back(describe(used.sizes));
    for (size_t i = 0; i < diff.outputs.size() && i < expected.size(); ++i) {
      size_t k = 0;
      while (b.manifest["outputs"][k]["name"] != diff.outputs[i].name) ++k;
      Tolerance tolerance;
      tolerance.relative_to_range = options.relative;
      note_worst(diff.outputs[i].worst, compare(actual[k], expected[i], tolerance));
    }
  }
  return diff;
}

}  // namespace optc
