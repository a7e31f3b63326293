#pragma once
// Graph: an ONNX model in tensor SSA form. Nodes, values and regions are known by 32-bit ids; region 0 is the main
// graph, the others are bodies of If, Loop, Scan and SequenceMap, which use outer values directly (their captures).
//
// Only the importer (which fills a new Graph through GraphBuilder-like calls below) and the Rewriter
// (ir/graph/rewriter.h) change it. Erased nodes and values keep their ids; alive() tells.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ir/constant.h"
#include "ir/types.h"
#include "support/id.h"

namespace optc {

struct NodeTag;
struct ValueTag;
struct RegionTag;
using NodeId = Id<NodeTag>;
using ValueId = Id<ValueTag>;
using RegionId = Id<RegionTag>;

// The value of an attribute. After import every attribute that ONNX gives a default is present.
using Attribute = std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<float>,
                               std::vector<std::string>, Constant, Type>;

// Where a node came from: a node of the model file. Kept by every rewrite, so that kernels and the diff can name it.
struct Origin {
  std::string name;   // the node's name in the file, or "Op_index" when it has none
  std::string op;     // its operator there
  int64_t index = 0;  // its position in the file, counted over subgraphs in order
};

enum class UseKind : uint8_t { kOperand, kRegionOutput };
struct Use {
  UseKind kind = UseKind::kOperand;
  NodeId node;         // kOperand
  RegionId region;     // kRegionOutput
  uint32_t index = 0;  // operand index, or position among the region's outputs
  friend bool operator==(const Use &, const Use &) = default;
};

enum class ValueKind : uint8_t { kNodeOutput, kRegionInput, kConstant };

struct Value {
  std::string name;  // unique in the Graph
  Type type;
  ValueKind kind = ValueKind::kNodeOutput;
  NodeId producer;     // kNodeOutput
  RegionId region;     // kRegionInput: whose input; kConstant: the region that declares it (main for shared ones)
  uint32_t index = 0;  // output position of the producer, or position among the region's inputs
  Constant constant;   // kConstant
  // Value propagation: the elements of a small (<= 64) integer tensor, row-major, as Dims; empty pointer: not known. Of
  // rank 2 and more only where the shape is static.
  std::shared_ptr<const std::vector<Dim>> elements;
  std::vector<Use> uses;
  bool alive = true;
};

struct Node {
  std::string op;  // "Conv"; other domains than ai.onnx are prefixed: "ai.onnx.ml.Scaler", "com.microsoft.FusedConv"
  std::string name;
  std::vector<ValueId> inputs;   // an absent optional input is an invalid id; no trailing absent ones
  std::vector<ValueId> outputs;  // an unused optional output is an invalid id
  std::vector<std::pair<std::string, Attribute>> attributes;  // sorted by name
  std::vector<std::pair<std::string, RegionId>> regions;      // "then_branch", "else_branch", "body"
  std::vector<uint32_t> origin;                               // indices into Graph::origins(), sorted, unique
  RegionId region;                                            // where it lies
  NodeId previous, next;                                      // order inside the region
  bool alive = true;

  const Attribute *attribute(std::string_view attribute_name) const;
  int64_t int_or(std::string_view attribute_name, int64_t fallback) const;
  float float_or(std::string_view attribute_name, float fallback) const;
  std::string_view string_or(std::string_view attribute_name, std::string_view fallback) const;
  const std::vector<int64_t> *ints(std::string_view attribute_name) const;  // null when absent
  const std::vector<float> *floats(std::string_view attribute_name) const;
  RegionId region_named(std::string_view region_name) const;  // invalid when absent
  ValueId input(size_t i) const { return i < inputs.size() ? inputs[i] : ValueId(); }
  ValueId output(size_t i) const { return i < outputs.size() ? outputs[i] : ValueId(); }
};

struct Region {
  NodeId owner;  // invalid for the main region
  std::vector<ValueId>
      inputs;  // main region: the model's inputs in order (those with an initializer too: see Graph::defaults)
  std::vector<ValueId> outputs;
  NodeId first, last;
};

// A condition that the model states between sizes: left == right, or (or_one: an operand that broadcasts) left == right
// or right == 1.
struct DimConstraint {
  Dim left, right;
  bool or_one = false;
  std::string where;  // "node 'add' (Add #3)"
  friend bool operator==(const DimConstraint &, const DimConstraint &) = default;
};
// What nodes demanded that are no more and that no node left demands: holds whenever `region` runs.
struct Condition {
  DimConstraint constraint;
  RegionId region;
};

struct ModelInfo {
  std::string name, producer, producer_version, domain, doc;
  int64_t ir_version = 0;
  int64_t model_version = 0;
  std::vector<std::pair<std::string, int64_t>> opset_imports;  // as the file declared them
  std::vector<std::pair<std::string, std::string>> metadata;
  std::string source_hash;  // XXH3-128 of the model file
  std::string source_path;
};

class Graph {
 public:
  Graph();
  Graph(Graph &&) = default;
  Graph &operator=(Graph &&) = default;
  Graph clone() const;  // shares constants and the DimTable

  const std::shared_ptr<DimTable> &dims() const { return dims_; }
  ModelInfo &info() { return info_; }
  const ModelInfo &info() const { return info_; }

  static constexpr RegionId main() { return RegionId(size_t{0}); }
  const Node &node(NodeId id) const { return nodes_[id.index]; }
  const Value &value(ValueId id) const { return values_[id.index]; }
  const Region &region(RegionId id) const { return regions_[id.index]; }
  const std::vector<Origin> &origins() const { return origins_; }
  size_t node_capacity() const { return nodes_.size(); }  // ids run below these
  size_t value_capacity() const { return values_.size(); }
  size_t region_capacity() const { return regions_.size(); }
  size_t live_node_count() const;

  std::vector<NodeId> nodes(RegionId region) const;  // in order
  std::vector<NodeId> all_nodes() const;             // every region, bodies before the node that owns them
  std::vector<ValueId> captures(
      RegionId region) const;  // outer values used inside, in order of first use, nested regions included
  bool is_constant(ValueId id) const { return id.valid() && value(id).kind == ValueKind::kConstant; }
  const Constant *constant(ValueId id) const { return is_constant(id) ? &value(id).constant : nullptr; }
  ValueId find_value(std::string_view name) const;  // invalid when there is none (linear)
  // Initial values of main inputs that the caller may leave out; parallel to region(main()).inputs, invalid Constant:
  // none.
  const std::vector<Constant> &defaults() const { return defaults_; }
  const std::vector<Condition> &conditions() const { return conditions_; }
  std::string describe(NodeId id) const;  // "node 'name' (Op #index)", for messages
  std::string unique_name(std::string_view base) const;

  // --- Construction: for the importer, the text parser and the Rewriter only.
  // -------------------------------------------------
  uint32_t add_origin(Origin origin);
  RegionId add_region(NodeId owner);
  ValueId add_input(RegionId region, std::string name, Type type);
  ValueId add_constant(std::string name, Constant constant, RegionId region = main());
  // Appends to `region`, or inserts before `before` when it is valid. Outputs are created with the names and types
  // given; an empty name gives an absent output. Attributes need not be sorted.
  NodeId add_node(RegionId region, std::string op, std::string name, std::vector<ValueId> inputs,
                  std::vector<std::pair<std::string, Type>> outputs,
                  std::vector<std::pair<std::string, Attribute>> attributes, NodeId before = {});
  void attach_region(NodeId node, std::string name, RegionId region);
  void set_origin(NodeId node, std::vector<uint32_t> origin);
  void set_outputs(RegionId region, std::vector<ValueId> outputs);
  void set_default(size_t main_input, Constant value);
  void set_conditions(std::vector<Condition> conditions);
  void move_conditions(RegionId from, RegionId to);
  void set_type(ValueId value, Type type);
  void set_elements(ValueId value, std::shared_ptr<const std::vector<Dim>> elements);
  void set_attribute(NodeId node, std::string_view name, Attribute value);
  void remove_attribute(NodeId node, std::string_view name);
  void set_input(NodeId node, size_t index,
                 ValueId value);  // extends with absent inputs when needed, trims trailing absent
  void set_op(NodeId node, std::string op);
  void rename_value(ValueId value, std::string name);
  void replace_uses(ValueId from, ValueId to);  // operands in every region and region outputs
  void erase_node(NodeId node);                 // its outputs must have no uses; its regions go with it
  void erase_value(ValueId value);              // a constant or an unused region input without uses
  void move_before(NodeId node, NodeId before);

 private:
  void add_use(ValueId value, Use use);
  void drop_use(ValueId value, const Use &use);
  void link(NodeId node, RegionId region, NodeId before);
  void unlink(NodeId node);

  std::shared_ptr<DimTable> dims_;
  ModelInfo info_;
  std::vector<Node> nodes_;
  std::vector<Value> values_;
  std::vector<Region> regions_;
  std::vector<Origin> origins_;
  std::vector<Constant> defaults_;
  std::vector<Condition> conditions_;
  // names in use, with the next free suffix of each
  std::shared_ptr<struct NameTable> names_;
};

}  // namespace optc
