#pragma once
// The registry of operators: all that optc knows of an operator stands in one file of this folder, as an OpDef. Shape
// inference, folding, the verifier, lowering, import and export (version steps) and the operator table in docs read it.
//
// To add an operator: write its OpDef in the file of its family (or a new file), and if the file is new add one line to
// ops/list.h.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/graph/rewriter.h"
#include "ir/program/program.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

class InferContext;
class BuildContext;

// How the meaning of an operator is said (docs/architecture.md "Operators: said once").
// kBody: by standard operators that take its place when a model is read (ops/body.h).
enum class OpForm : uint8_t { kPointwise, kIndex, kReduction, kContraction, kExpansion, kLibrary, kControlFlow, kBody };
std::string_view to_string(OpForm form);

// One change of an operator's definition between opset versions. `up` brings a node written for a version below
// `version` to the form of `version` (attributes that became inputs, changed defaults); `down` is its inverse for
// export, or fails with kUnsupported when the older version cannot say it. Both get a graph whose other nodes may still
// be of any version. Null: nothing to do.
struct VersionStep {
  int version;
  Status (*up)(Graph &graph, NodeId node, Diagnostics &diagnostics);
  Status (*down)(Graph &graph, NodeId node, Diagnostics &diagnostics);
};

class Body;

// What a node must look like of an operator that ONNX has no schema of. Names are separated by blanks and may end in
// '?' (may be absent) or, the last one, '*' (any number). An attribute is "name:k" with k one of i, b, f, s, is, fs, ss
// (int, int that is 0 or 1, float, string, ints, floats, strings), and ends in '!' when it is required. An attribute
// that is not named is an error: what it asks for would be lost in silence.
struct Signature {
  std::string_view inputs, outputs, attributes;
};

struct OpDef {
  std::string_view name;  // as Node::op spells it
  OpForm form;
  int version;  // the opset version (of its domain) at which this definition became what it says here
  // Checks operand types and attributes as far as ONNX's schema does not, and gives the outputs' types (and their
  // elements, where they compute shapes). Total: every wrong model that reaches it ends in one clear error.
  Status (*infer)(InferContext &context);
  // Emits the kernels that compute the outputs.
  Status (*build)(BuildContext &context);
  std::span<const VersionStep> steps = {};  // ascending
  bool pure =
      true;  // same inputs, same outputs, no state: may be folded, shared and dropped (random operators are not)
  // OpForm::kBody, which has neither `infer` nor `build`.
  Signature signature = {};
  Status (*body)(Body &body) = nullptr;
};

// Null when optc does not know the operator.
const OpDef *find_op(std::string_view name);
std::vector<const OpDef *> all_ops();  // by name

// TypeInference over the registry, for the Rewriter.
class OpInference : public TypeInference {
 public:
  Status infer(Graph &graph, NodeId node, Diagnostics &diagnostics) const override;
};
// kTentative: the operands' types may not be the last ones (the importer's first look into a body, a loop before its
// carried types hold), so what they forbid says nothing about the model and nothing is taken out of the Graph for it.
enum class InferMode : uint8_t { kFinal, kTentative };
// Infers one node / every node of the main region in order (bodies: by the `infer` of the node that owns them, which
// knows the types of their inputs). Called by the importer after version steps. What could not be proved and must be
// checked at run time is appended to `constraints` when given.
Status infer_node(Graph &graph, NodeId node, Diagnostics &diagnostics,
                  std::vector<DimConstraint> *constraints = nullptr, InferMode mode = InferMode::kFinal);
Status infer_graph(Graph &graph, Diagnostics &diagnostics);

inline constexpr int64_t kMaxElements = 64;
// The elements of an integer or bool constant of rank 0 or 1 and at most kMaxElements elements, else null.
std::shared_ptr<const std::vector<Dim>> constant_elements(const Constant &constant);

// What an operator's `infer` sees and sets.
class InferContext {
 public:
  InferContext(Graph &graph, NodeId node, Diagnostics &diagnostics, std::vector<DimConstraint> *constraints = nullptr,
               InferMode mode = InferMode::kFinal);

  Graph &graph() { return graph_; }
  InferMode mode() const { return mode_; }
  const Node &node() const { return graph_.node(node_); }
  NodeId id() const { return node_; }
  DimTable &dims() { return *graph_.dims(); }
  size_t input_count() const { return node().inputs.size(); }
  size_t output_count() const { return node().outputs.size(); }
  bool has_input(size_t i) const { return node().input(i).valid(); }
  bool has_output(size_t i) const { return node().output(i).valid(); }
  const Type &input(size_t i) const;  // kNone when absent
  ElementType element(size_t i) const { return input(i).element; }
  bool has_shape(size_t i) const { return input(i).has_shape(); }
  const Shape &shape(size_t i) const { return *input(i).shape; }  // has_shape(i) only
  int rank(size_t i) const { return input(i).rank(); }
  const Constant *constant(size_t i) const;  // null when absent or not constant
  // The elements of an integer (or bool: 0, 1) input as Dims: from a constant, or by value propagation. Null when not
  // known.
  const std::vector<Dim> *elements(size_t i) const;

  // The tensor input i must be there with a known rank; otherwise an error that says which node needs it and how to pin
  // it.
  Status require_shape(size_t i);
  void set(size_t output, Type type);  // ignored for absent outputs
  void set_tensor(size_t output, ElementType element, Shape shape);
  void set_elements(
      size_t output,
      std::vector<Dim> elements);  // row-major, after set_tensor; kept where they obey the type (ops/elements.h)
  // A size that only the run decides: the symbol of its own that the output already has on that axis, or a new kData
  // symbol named after the node.
  Dim run_time_size(size_t output, size_t axis, int64_t max = kDimOverflow);

  Failure invalid(std::string message, std::string help = {});
  Failure unsupported(std::string message, std::string help = {});

  // Infers the nodes of a body in order; its inputs' types must be set (control flow). Tentative where this node is.
  Status infer_region(RegionId region, InferMode mode = InferMode::kFinal);
  // The same, what is wrong said to `diagnostics`; its constraints are dropped.
  Status infer_region(RegionId region, Diagnostics &diagnostics);

  // NumPy broadcasting: of two dims the one that cannot be 1, else what both give for every size (0 with 1 gives 0);
  // that they do broadcast is checked at run time where it is not proved. Dims proved different are an error.
  Result<Shape> broadcast(const std::vector<Shape> &shapes);
  // a and b must be equal: an error if they cannot be, nothing if they are, else a run-time constraint; returns the one
  // to go on with.
  Result<Dim> same(Dim a, Dim b, std::string_view what);
  // left == right (or right == 1) is checked when the Program runs. `what`: said with the node when it does not hold.
  void constrain(Dim left, Dim right, bool or_one = false, std::string_view what = {});
  // Brings an axis in [-rank, rank) to [0, rank).
  Result<int64_t> axis(int64_t value, int64_t rank, std::string_view what = "axis");

 private:
  Graph &graph_;
  NodeId node_;
  Diagnostics &diagnostics_;
  std::vector<DimConstraint> *constraints_;
  InferMode mode_;
};

}  // namespace optc
