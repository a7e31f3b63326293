#pragma once
// ModelProto -> Graph in two phases. Seen by importer/ only.
//  1. convert (converter.cc, functions.cc): every node, region, constant and input; model-local functions are inlined.
//  Nodes still
//     have the form of their own opset version and no types.
//  2. finish (finish.cc): in order, each node is checked against its schema's types, brought to optc's version by its
//  operator's steps, or
//     replaced by its ONNX function body where optc has no such operator; then its types are inferred.

#include <onnx/defs/schema.h>
#include <onnx/onnx_pb.h>

#include <array>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "importer/importer.h"
#include "importer/internal_tensor.h"
#include "importer/internal_types.h"
#include "ops/registry.h"

namespace optc {

// An attribute that a call passes to a function's body; `direct`: tensors in it hold their bytes themselves.
struct PassedAttribute {
  const onnx::AttributeProto *proto = nullptr;
  bool direct = false;
};

// What the nodes of one body are read with: the model's own graph, or one call of a function.
inline constexpr int kMaxCallDepth = 64;  // of functions in functions

struct Frame {
  const Frame *caller = nullptr;
  const onnx::FunctionProto *function = nullptr;  // null: the model's graph
  std::map<std::string, int64_t> opsets;          // domain ("" = ai.onnx) -> version
  std::map<std::string, PassedAttribute> attributes;
  std::string prefix;   // of names: "call/"
  bool direct = false;  // a body that ONNX's library holds
  int64_t origin = -1;  // index of the call, inherited by the body's nodes
  int depth = 0;
};

struct Scope {
  const Scope *parent = nullptr;
  const Frame *frame = nullptr;
  RegionId region;
  NodeId before;                                         // where nodes are inserted; invalid: at the end
  std::unordered_map<std::string, ValueId> values;       // an invalid id: an absent argument of a function
  std::unordered_map<std::string, std::string> renamed;  // outputs of a function body -> names at the call
  int depth = 0;
};

// The file's node behind a Graph node that is not finished yet.
struct NodeSource {
  const onnx::NodeProto *proto = nullptr;
  const Frame *frame = nullptr;
  const onnx::OpSchema *schema = nullptr;  // null: a domain that ONNX does not know
  int64_t version = 0;
};

// What a Graph is read for (importer.h: import_model, read_graph). The second phase is left out where it is read as
// written, and so is whatever else asks what an operator is.
enum class Reading : uint8_t { kCompile, kAsWritten };

class Converter {
 public:
  Converter(const onnx::ModelProto &model, const TensorSource &source, const ImportOptions &options, Reading reading,
            Diagnostics &diagnostics);
  Result<Graph> run();

 private:
  // check.cc
  Status check_model();
  Status list_unsupported();
  Status check_size();
  void declare_lists(const onnx::GraphProto &body, RegionId region);
  Status check_schema(const onnx::NodeProto &node, const onnx::OpSchema &schema, const std::string &where);
  Status check_types(NodeId node, const onnx::OpSchema &schema);
  const onnx::FunctionProto *local_function(const onnx::NodeProto &node) const;

  // custom_ops.cc
  Status read_custom_ops();
  bool is_custom(const onnx::FunctionProto &function) const;

  // externs.cc
  const ExternOperator *extern_of(const onnx::NodeProto &node) const;  // null: it is none
  Status check_externs();                                              // that each is one, and is in the model
  Status type_extern(NodeId id);

  // converter.cc
  Status convert_main();
  void warn_of_defaults();
  Result<Type> main_input_type(const onnx::ValueInfoProto &input);
  void declare_types();
  Status convert_region(const onnx::GraphProto &graph, RegionId region, const Scope &parent);
  Status check_names(const google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes, const Scope &scope);
  Status convert_nodes(const google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes, Scope &scope);
  Status convert_node(const onnx::NodeProto &node, Scope &scope);
  Status check_required(const onnx::OpSchema &schema, const std::vector<ValueId> &inputs, const std::string &where);
  Status convert_initializers(const onnx::GraphProto &graph, Scope &scope);
  Status convert_constant(const onnx::NodeProto &node, bool direct, Scope &scope, const std::string &where);
  Result<Attribute> convert_attribute(const onnx::AttributeProto &attribute, bool direct, const std::string &where);
  Status define(Scope &scope, const std::string &name, ValueId value, const std::string &where);
  Result<ValueId> resolve(const Scope &scope, const std::string &name, const std::string &where);
  std::string value_name(const Scope &scope, const std::string &name);
  const TensorSource &source(bool direct) const { return direct ? direct_source_ : source_; }

  // functions.cc
  Result<PassedAttribute> passed(const onnx::AttributeProto &attribute, const Frame &frame, const std::string &where);
  Status inline_call(const onnx::NodeProto &node, const onnx::FunctionProto &function, Scope &scope,
                     const std::string &where);
  Status expand(NodeId node, const NodeSource &node_source);
  Status write_body(NodeId node, const NodeSource &node_source);
  void replace_node(NodeId node, const std::vector<ValueId> &results, const std::vector<ValueId> &arguments);

  // finish.cc
  Status finish_region(RegionId region, bool strict);
  Status finish_node(NodeId node, const NodeSource &node_source);
  void seed_body_inputs(NodeId owner);
  void fill_defaults(NodeId node, const onnx::OpSchema &schema);
  void name_squeezed_axes(NodeId id);
  bool name_gathered_depth(NodeId id);
  void close_dead_branches();
  Status check_branches();
  Status check_outputs();

  // rank_forms.cc
  struct Forms {
    ValueId condition;
    std::array<ValueId, 2> values;  // what is there when the condition is true, and false
    NodeId holder;                  // defines the value of two forms until nothing uses it
    std::string name;
  };
  bool split_branches(NodeId node);
  Result<bool> write_of_forms(NodeId node);
  Status close_forms(RegionId region, bool strict);
  void give_forms(NodeId node, NodeId choice, const std::vector<ValueId> &values);
  NodeId add_choice(NodeId before, ValueId condition, const std::vector<ValueId> &values);
  ValueId filled(RegionId region, const Type &type, const std::vector<uint32_t> &origin);

  // carried.cc
  Status free_unread_carried(NodeId loop);
  Status type_body(NodeId loop);
  ValueId start_of_rank(NodeId loop, size_t carried, const Type &type);

  // branch_ranks.cc
  bool align_branches(NodeId node);  // true: an If whose branches had other ranks has been changed
  std::set<uint32_t> aligned_values() const;
  Status check_aligned();

  const onnx::ModelProto &model_;
  TensorSource source_, direct_source_;
  const ImportOptions &options_;
  const Reading reading_;
  Diagnostics &diagnostics_;
  Graph graph_;
  DimNamer namer_;
  std::deque<Frame> frames_;
  std::map<std::string, const onnx::FunctionProto *> functions_;  // by function_key
  std::deque<onnx::FunctionProto> custom_;                        // that the caller gave
  std::deque<onnx::FunctionProto> built_;                         // bodies that ONNX built for one node
  std::deque<onnx::NodeProto> resolved_;              // nodes of function bodies with their attributes filled in
  std::deque<onnx::AttributeProto> items_;            // of attributes that are lists
  std::unordered_map<uint32_t, NodeSource> sources_;  // by NodeId
  std::map<uint32_t, Forms> forms_;                   // by ValueId
  std::unordered_map<uint32_t, const onnx::TypeProto *> declared_;  // by ValueId
  std::unordered_set<std::string> used_externs_;                    // "DOMAIN::OP"
  std::vector<ValueId> aligned_;                                    // results of Ifs that align_branches changed
  std::unordered_set<std::string> main_names_;
  int64_t next_index_ = 0;
};

std::string op_name(const std::string &domain, const std::string &op);  // as Node::op spells it
std::string normal_domain(const std::string &domain);                   // "" for "ai.onnx"
std::string function_key(const std::string &domain, const std::string &name, const std::string &overload);
const onnx::OpSchema *find_schema(const std::string &op, int64_t version, const std::string &domain);
// The version by which a node is read in a model of that opset: ONNX Runtime writes LayerNormalization into models of
// any opset, as ONNX has it from 17 on.
int64_t version_of(const std::string &op, int64_t opset, const std::string &domain);
// The schema that optc's definition of a Graph operator follows.
const onnx::OpSchema *current_schema(std::string_view graph_op, int version);
// What is wrong with an attribute of an ai.onnx operator that names one of a few ways; "" when nothing is (choices.cc).
std::string unknown_choice(const onnx::NodeProto &node);

}  // namespace optc
