#include <algorithm>

#include "convert/internal_floats.h"

namespace optc {
namespace {

// The tensor of a Constant; null: of another node, or of a form that holds no floats.
onnx::TensorProto *constant_of(onnx::NodeProto &node) {
  if (node.op_type() != "Constant" || !node.domain().empty() || node.output_size() != 1 || node.attribute_size() != 1)
    return nullptr;
  onnx::AttributeProto &attribute = *node.mutable_attribute(0);
  if (attribute.name() == "value_float" || attribute.name() == "value_floats") (void)constant_as_tensor(node);
  return attribute.name() == "value" && attribute.has_t() ? attribute.mutable_t() : nullptr;
}

class Indexer {
 public:
  Indexer(FloatModel &m, ModelFile &file) : m_(m), file_(file) {}

  // `typed`: the same graph with ONNX's inference written into it.
  int graph(onnx::GraphProto &proto, const onnx::GraphProto &typed, int parent, int owner) {
    const int id = static_cast<int>(m_.graphs.size());
    m_.graphs.emplace_back();
    m_.graphs[id].proto = &proto;
    m_.graphs[id].parent = parent;
    m_.graphs[id].owner = owner;
    m_.graphs[id].types = types_in(typed);
    for (const auto &info : proto.input()) {
      const int v = value(id, info.name(), FloatValue::Kind::kInput, -1);
      m_.graphs[id].inputs.push_back(v);
    }
    // Before IR 4 every initializer is an input, too, and no runtime lets callers replace it.
    const bool inputs_are_weights = id == 0 && file_.proto.ir_version() < 4;
    for (auto &tensor : *proto.mutable_initializer()) {
      const auto it = m_.graphs[id].values.find(tensor.name());
      if (it != m_.graphs[id].values.end() && !inputs_are_weights) continue;
      const int v =
          it != m_.graphs[id].values.end() ? it->second : value(id, tensor.name(), FloatValue::Kind::kConstant, -1);
      m_.values[v].kind = FloatValue::Kind::kConstant;
      m_.values[v].tensor = &tensor;
    }
    for (const auto &sparse : proto.sparse_initializer())
      value(id, sparse.values().name(), FloatValue::Kind::kInput, -1);
    for (int i = 0; i < proto.node_size(); ++i) node(id, *proto.mutable_node(i), typed.node(i));
    for (const auto &info : proto.output()) {
      const int v = find(id, info.name());
      m_.graphs[id].outputs.push_back(v);
      if (v >= 0) m_.values[v].is_output = true;
    }
    return id;
  }

 private:
  int value(int graph, const std::string &name, FloatValue::Kind kind, int producer) {
    const int id = static_cast<int>(m_.values.size());
    FloatValue &v = m_.values.emplace_back();
    v.name = name;
    v.graph = graph;
    v.kind = kind;
    v.producer = producer;
    const TypesByName &here = m_.graphs[graph].types;
    const TypesByName &all = m_.types;
    const auto type = here.find(name), anywhere = all.find(name);
    if (type != here.end())
      v.type = &type->second;
    else if (anywhere != all.end())
      v.type = &anywhere->second;
    m_.graphs[graph].values[name] = id;
    return id;
  }

  int find(int graph, const std::string &name) const {
    for (; graph >= 0; graph = m_.graphs[graph].parent)
      if (const auto it = m_.graphs[graph].values.find(name); it != m_.graphs[graph].values.end()) return it->second;
    return -1;
  }

  static TypesByName types_in(const onnx::GraphProto &typed) {
    TypesByName types;
    for (const auto *list : {&typed.input(), &typed.output(), &typed.value_info()})
      for (const auto &info : *list)
        if (info.has_type() && !type_text(info.type()).empty()) types.emplace(info.name(), info.type());
    return types;
  }

  void node(int graph, onnx::NodeProto &proto, const onnx::NodeProto &typed) {
    const int id = static_cast<int>(m_.nodes.size());
    m_.nodes.emplace_back();
    FloatNode made;
    made.proto = &proto;
    made.graph = graph;
    for (const auto &name : proto.input()) {
      const int v = name.empty() ? -1 : find(graph, name);
      made.inputs.push_back(v);
      if (v >= 0) m_.values[v].readers.push_back(id);
    }
    for (int i = 0; i < proto.attribute_size(); ++i) {
      onnx::AttributeProto &attribute = *proto.mutable_attribute(i);
      if (attribute.has_g())
        made.graphs.push_back(this->graph(*attribute.mutable_g(), typed.attribute(i).g(), graph, id));
      for (int k = 0; k < attribute.graphs_size(); ++k)
        made.graphs.push_back(this->graph(*attribute.mutable_graphs(k), typed.attribute(i).graphs(k), graph, id));
    }
    onnx::TensorProto *tensor = constant_of(proto);
    for (const auto &name : proto.output()) {
      const int v = name.empty() ? -1 : value(graph, name, FloatValue::Kind::kNodeOutput, id);
      made.outputs.push_back(v);
      if (v >= 0 && tensor) {
        m_.values[v].kind = FloatValue::Kind::kConstant;
        m_.values[v].tensor = tensor;
      }
    }
    m_.graphs[graph].nodes.push_back(id);
    m_.nodes[id] = std::move(made);
  }

  FloatModel &m_;
  ModelFile &file_;
};

}  // namespace

const FloatValue *FloatModel::input(const FloatNode &node, size_t i) const {
  return i < node.inputs.size() && node.inputs[i] >= 0 ? &values[node.inputs[i]] : nullptr;
}

bool FloatModel::is_standard(const FloatNode &node) const {
  return node.proto->domain().empty() || node.proto->domain() == "ai.onnx";
}

ElementType element_of(const FloatValue &value) {
  if (value.tensor) return static_cast<ElementType>(value.tensor->data_type());
  if (!value.type || !value.type->has_tensor_type()) return ElementType::kUndefined;
  return static_cast<ElementType>(value.type->tensor_type().elem_type());
}

bool is_changed_by(ElementType from, ElementType to) {
  return from != to &&
         (from == ElementType::kFloat32 || from == ElementType::kFloat16 || from == ElementType::kBFloat16);
}

FloatModel index_floats(ModelFile &model, ElementType to) {
  FloatModel m;
  m.file = &model;
  m.to = to;
  const onnx::ModelProto typed = with_types(model.proto);
  NameSet ambiguous;
  m.types = infer_types(model.proto, &ambiguous);
  add_types_of_file(model.path, ambiguous, m.types);
  Indexer(m, model).graph(*model.proto.mutable_graph(), typed.graph(), -1, -1);
  for (FloatValue &value : m.values) value.changes = is_changed_by(element_of(value), to);
  return m;
}

}  // namespace optc
