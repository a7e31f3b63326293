#pragma once
// Operators of other domains whose meaning is said in standard operators: a row has a signature, since ONNX knows no
// schema of them, and a body, which writes those operators in the node's place when a model is read
// (importer/finish.cc). What follows - inference, rules, every emitter, the written model - then sees standard
// operators alone.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/registry.h"

namespace optc {

constexpr OpDef body_row(std::string_view name, Signature signature, Status (*body)(Body &)) {
  return {name, OpForm::kBody, 1, nullptr, nullptr, {}, true, signature, body};
}

// Writes the operators of one node in front of it. Values made so far have types as far as inference could find them;
// sizes that are not constant are taken with dim(), never from a type, since the types inside the body of a Loop are
// not final yet. Errors are given by invalid() and unsupported() and name the node.
class Body {
 public:
  using Attributes = std::vector<std::pair<std::string, Attribute>>;

  Body(Graph &graph, NodeId node, Diagnostics &diagnostics);
  // Checks the signature and writes. The values of the node's outputs, invalid where an output is absent.
  static Result<std::vector<ValueId>> write(Graph &graph, NodeId node, const OpDef &def, Diagnostics &diagnostics);

  // Whether a node of an operator that ONNX has no schema of looks as its row says.
  static Status check(Graph &graph, NodeId node, const OpDef &def, Diagnostics &diagnostics) {
    return Body(graph, node, diagnostics).check(def.signature);
  }

  const Graph &graph() const { return graph_; }
  const Node &node() const { return graph_.node(node_); }
  ValueId in(size_t i) const { return node().input(i); }  // invalid when absent
  bool has(size_t i) const { return in(i).valid(); }
  bool wants(size_t output) const { return node().output(output).valid(); }
  size_t input_count() const { return node().inputs.size(); }
  int64_t i(std::string_view name, int64_t fallback) const { return node().int_or(name, fallback); }
  float f(std::string_view name, float fallback) const { return node().float_or(name, fallback); }
  std::string_view s(std::string_view name, std::string_view fallback) const {
    return node().string_or(name, fallback);
  }

  // Those of the node's attributes that have one of these names.
  Attributes pass(std::initializer_list<std::string_view> names) const;

  const Type &type(ValueId v) const { return graph_.value(v).type; }
  ElementType element(ValueId v) const { return type(v).element; }
  int rank(ValueId v) const { return type(v).has_shape() ? type(v).rank() : -1; }  // -1: not known
  const Constant *constant(ValueId v) const { return graph_.constant(v); }
  // A dimension that is the same number whatever the model is run on; nullopt when it is not known to be.
  std::optional<int64_t> fixed(ValueId v, int axis) const;

  // Whether two dimensions are the same whatever the model is run on.
  bool same_dim(ValueId a, int axis_a, ValueId b, int axis_b) const;

  // A node of a standard operator with one output, or with `outputs` of them.
  ValueId op(std::string_view op, std::vector<ValueId> inputs, Attributes attributes = {});
  std::vector<ValueId> ops(std::string_view op, std::vector<ValueId> inputs, size_t outputs,
                           Attributes attributes = {});

  ValueId value(Constant constant);
  ValueId number(ElementType type, double value);                              // a scalar
  ValueId like(ValueId v, double value) { return number(element(v), value); }  // a scalar of v's element type
  ValueId ints(std::vector<int64_t> values);                                   // int64[n]
  ValueId add(ValueId a, ValueId b) { return op("Add", {a, b}); }
  ValueId sub(ValueId a, ValueId b) { return op("Sub", {a, b}); }
  ValueId mul(ValueId a, ValueId b) { return op("Mul", {a, b}); }
  ValueId div(ValueId a, ValueId b) { return op("Div", {a, b}); }
  ValueId matmul(ValueId a, ValueId b) { return op("MatMul", {a, b}); }
  ValueId cast(ValueId v, ElementType to);  // v itself when it has that type
  ValueId dim(ValueId v, int64_t axis);     // int64[1]
  ValueId concat(std::vector<ValueId> parts, int64_t axis);
  // Target sizes as ONNX's Reshape has them: 0 keeps, -1 is inferred.
  ValueId reshape(ValueId v, std::vector<int64_t> sizes) { return op("Reshape", {v, ints(std::move(sizes))}); }
  ValueId transpose(ValueId v, std::vector<int64_t> perm);
  ValueId unsqueeze(ValueId v, std::vector<int64_t> axes) { return op("Unsqueeze", {v, ints(std::move(axes))}); }
  ValueId squeeze(ValueId v, std::vector<int64_t> axes) { return op("Squeeze", {v, ints(std::move(axes))}); }
  ValueId slice(ValueId v, int64_t axis, int64_t begin, int64_t end);
  // 0, 1, ... count - 1 of that type; count: int64[1].
  ValueId iota(ValueId count, ElementType type);
  // Channels from the last axis to the second, and back.
  ValueId channels_first(ValueId v);
  ValueId channels_last(ValueId v);

  // Where operators are written: before the node, or inside of a region that becomes the body of one of them.
  struct Place {
    RegionId region;
    NodeId before;  // invalid: at the end
  };
  Place enter(Place place) { return std::exchange(place_, place); }
  RegionId new_region() { return graph_.add_region(node_); }
  const Region &region(RegionId region) const { return graph_.region(region); }
  // A new input, typed as `like` until its owner is inferred.
  ValueId region_input(RegionId region, std::string_view name, const Type &like);
  void set_outputs(RegionId region, std::vector<ValueId> outputs) { graph_.set_outputs(region, std::move(outputs)); }
  // Moves here what a graph that the node has as an attribute computes of `inputs`; its outputs. Once a graph.
  std::vector<ValueId> splice(RegionId graph, const std::vector<ValueId> &inputs);
  // A node with bodies.
  std::vector<ValueId> control(std::string_view op, std::vector<ValueId> inputs, size_t outputs,
                               std::vector<std::pair<std::string, RegionId>> bodies);

  void give(size_t output, ValueId value) { results_[output] = value; }
  // An error when the rank of input i is not known, or not one of `ranks` where they are given.
  Status need_rank(size_t i, std::vector<int> ranks = {});
  std::string input_name(size_t i) const;  // "input 2 (bias)"
  Failure invalid(std::string message, std::string help = {});
  Failure unsupported(std::string message, std::string help = {});

 private:
  Status check(const Signature &signature);
  NodeId add(std::string_view op, std::vector<ValueId> inputs, size_t outputs, Attributes attributes);

  Graph &graph_;
  NodeId node_;
  Place place_;
  Diagnostics &diagnostics_;
  std::string_view inputs_;  // of the signature
  std::vector<ValueId> results_;
};

}  // namespace optc
