#include "driver/tolerance.h"

#include <algorithm>

#include "ops/registry.h"

namespace optc {
namespace {

// What is stored in 16 bits on the way to a value, as the tolerance of that type; 0: nothing.
class Paths {
 public:
  explicit Paths(const Graph &graph) : graph_(graph), coarsest_(graph.value_capacity()) { visit(Graph::main()); }
  double of(ValueId v) const { return v.valid() ? coarsest_[v.index] : 0; }

 private:
  // The coarsest of all that the region computes.
  double visit(RegionId region) {
    double all = 0;
    for (const NodeId id : graph_.nodes(region)) {
      const Node &node = graph_.node(id);
      double here = 0;
      for (const ValueId input : node.inputs) here = std::max(here, of(input));
      for (const auto &[name, body] : node.regions) here = std::max(here, visit(body));
      for (const ValueId output : node.outputs) {
        if (!output.valid()) continue;
        const ElementType type = graph_.value(output).type.element;
        const bool narrow = type == ElementType::kFloat16 || type == ElementType::kBFloat16;
        coarsest_[output.index] = std::max(here, narrow && rounds(node) ? default_tolerance(type) : 0.0);
        all = std::max(all, of(output));
      }
    }
    return all;
  }
  // What only moves elements rounds nothing.
  static bool rounds(const Node &node) {
    const OpDef *op = find_op(node.op);
    const bool interpolates = node.op == "Resize" || node.op == "Upsample" || node.op == "AffineGrid";
    return !op || op->form != OpForm::kIndex || interpolates;
  }

  const Graph &graph_;
  std::vector<double> coarsest_;  // by value
};

}  // namespace

std::vector<Tolerance> value_tolerances(const Graph &model, const Tolerance &given, ElementType storage) {
  const Paths paths(model);
  const double stored = storage == ElementType::kFloat32 ? 0.0 : default_tolerance(storage);
  std::vector<Tolerance> all(model.value_capacity(), given);
  for (size_t i = 0; i < all.size(); ++i) all[i].floor = std::max(paths.of(ValueId(i)), stored);
  return all;
}

std::vector<Tolerance> output_tolerances(const Graph &model, const Tolerance &given, ElementType storage) {
  const std::vector<Tolerance> of_values = value_tolerances(model, given, storage);
  std::vector<Tolerance> all;
  for (const ValueId output : model.region(Graph::main()).outputs) all.push_back(of_values[output.index]);
  return all;
}

}  // namespace optc
