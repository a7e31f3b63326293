#pragma once
// Another float type for a model's values (ConvertOptions::float_type), in three steps: the model by index, with each
// value's and node's types (float_index.cc); which nodes stay as they are, and why (float_rules.cc); the change
// (floats.cc). Seen by convert/ only.
//
// A node either gets the new type at all operands and results whose type variable in its schema allows it, or stays.
// A value has the type that its producer gives it; who wants the other one reads a Cast of it, or, of a constant, a
// copy.

#include <onnx/defs/schema.h>

#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "convert/internal_edit.h"

namespace optc {

// Why a node stays as it is.
enum class FloatStay : uint8_t {
  kNot,          // it gets the new type
  kNoFloats,     // nothing of it has one of the types that change
  kAsked,        // ConvertOptions::keep_float
  kNoForm,       // its operator has no form of that type in the model's opset
  kUnknown,      // no schema of it, or types that are not known
  kOtherTypes,   // sequences, optionals and graphs of such types
  kIntegers,     // computed from integers alone: positions, sizes, angles, masks
  kCoordinates,  // reads coordinates
  kSquares,      // sums of squares, which leave f16's range first
  kOwnCast,      // behind a Cast of the model from 16 bits
};
std::string_view to_string(FloatStay stay);  // words: "computed from integers"

struct FloatValue {
  enum class Kind : uint8_t { kInput, kConstant, kNodeOutput };
  std::string name;
  int graph = -1;
  Kind kind = Kind::kNodeOutput;
  int producer = -1;                      // node; of kInput and of initializers: -1
  const onnx::TypeProto *type = nullptr;  // null: not known
  bool changes = false;                   // a tensor of a type that is to change
  bool changed = false;                   // it has the new type then
  onnx::TensorProto *tensor = nullptr;    // of kConstant
  std::vector<int> readers;               // nodes, those in inner graphs too
  bool is_output = false;                 // of some graph
};

struct FloatNode {
  onnx::NodeProto *proto = nullptr;
  int graph = -1;
  std::vector<int> inputs, outputs;         // values; -1: left out, or a value that nothing in the model makes
  std::vector<bool> input_may, output_may;  // whether the schema has the new type there
  std::vector<int> graphs;                  // in its attributes
  FloatStay stay = FloatStay::kNot;
  bool spreads = false;  // what is computed from its results and constants alone stays, too
  bool control = false;  // If, Loop or Scan
};

struct FloatGraph {
  onnx::GraphProto *proto = nullptr;
  int parent = -1, owner = -1;  // graph and node; -1: the main graph
  std::vector<int> nodes, inputs, outputs;
  std::unordered_map<std::string, int> values;  // made in this graph
  TypesByName types;                            // of them, as far as ONNX's inference goes
};

struct FloatModel {
  ModelFile *file = nullptr;
  ElementType to = ElementType::kUndefined;
  TypesByName types;  // by names that stand for one type in all graphs
  std::vector<FloatValue> values;
  std::vector<FloatNode> nodes;
  std::deque<FloatGraph> graphs;  // outer ones first; 0: the main graph

  const FloatValue *input(const FloatNode &node, size_t i) const;  // null: left out
  // A value that no run decides: an initializer that no caller replaces, or a Constant.
  bool is_constant(int value) const { return value >= 0 && values[value].kind == FloatValue::Kind::kConstant; }
  bool is_standard(const FloatNode &node) const;  // of ai.onnx
};

// float_index.cc
ElementType element_of(const FloatValue &value);  // kUndefined: no tensor, or not known
bool is_changed_by(ElementType from, ElementType to);
FloatModel index_floats(ModelFile &model, ElementType to);

// float_rules.cc: sets FloatNode::stay.
Status choose_floats(FloatModel &model, const std::vector<std::string> &keep, Diagnostics &diagnostics);

}  // namespace optc
