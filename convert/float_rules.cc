#include <algorithm>
#include <set>

#include "convert/internal_floats.h"

namespace optc {
namespace {

// Operands that keep their type though the schema has another one: numbers that count or place something, and bits.
bool keeps_operand(const FloatNode &node, size_t i, bool narrower) {
  const std::string &op = node.proto->op_type();
  if (op == "BitCast") return true;
  return narrower && ((op == "GridSample" && i == 1) || (op == "OneHot" && i < 2));
}

bool reads_coordinates(const std::string &op) { return op == "RoiAlign" || op == "MaxRoiPool" || op == "AffineGrid"; }

// Operators that add up many products: what comes out of them is data, whatever went in.
bool contracts(const FloatModel &m, const FloatNode &node) {
  static const std::set<std::string> kOps = {"Conv", "ConvTranspose", "DeformConv", "Gemm",     "LSTM",
                                             "GRU",  "RNN",           "Einsum",     "Attention"};
  if (kOps.count(node.proto->op_type())) return true;
  if (node.proto->op_type() != "MatMul") return false;
  for (size_t i = 0; i < 2; ++i)
    if (const FloatValue *value = m.input(node, i); value && value->tensor) {
      const auto &dims = value->tensor->dims();
      const int rank = dims.size();
      // Of an outer product the summed dim is 1: frequencies by positions.
      if (rank < 2 || dims.Get(i == 0 ? rank - 1 : rank - 2) != 1) return true;
    }
  return false;
}

bool is_reduction(const std::string &op) { return op.rfind("Reduce", 0) == 0; }

bool is_two(const FloatModel &m, const FloatValue *value) {
  if (!value || !value->tensor) return false;
  Diagnostics ignored;
  const Result<Constant> number = tensor_value(*m.file, *value->tensor, "exponent", ignored);
  return number.ok() && number->count() == 1 && number->type() != ElementType::kString && number->as_double(0) == 2;
}

class Rules {
 public:
  Rules(FloatModel &m, const std::vector<std::string> &keep, Diagnostics &diagnostics)
      : m_(m), keep_(keep), diagnostics_(diagnostics), narrower_(m.to != ElementType::kFloat32) {}

  Status run() {
    for (FloatNode &node : m_.nodes) forms(node);
    OPTC_TRY(asked());
    if (narrower_) {
      for (FloatNode &node : m_.nodes) begin(node);
      spread();
    }
    settle_graphs();
    return {};
  }

 private:
  bool changes(int value) const { return value >= 0 && m_.values[value].changes; }

  const onnx::OpSchema *schema_of(const FloatNode &node) const {
    const std::string domain = m_.is_standard(node) ? "" : node.proto->domain();
    for (const auto &opset : m_.file->proto.opset_import())
      if (opset.domain() == domain || (domain.empty() && opset.domain() == "ai.onnx"))
        return onnx::OpSchemaRegistry::Schema(node.proto->op_type(), static_cast<int>(opset.version()), domain);
    return nullptr;
  }

  // An operand of If, Loop or Scan and the value inside that it becomes, or a result and the value inside it is.
  static bool is_control(const std::string &op) { return op == "If" || op == "Loop" || op == "Scan"; }
  bool pair(int outer, int inner) {
    if (outer < 0) return inner < 0 || !m_.values[inner].changes;
    if (inner < 0) return !m_.values[outer].changes;
    FloatValue &a = m_.values[outer], &b = m_.values[inner];
    if (!a.type) a.type = b.type, a.changes = b.changes;
    if (!b.type && !b.tensor) b.type = a.type, b.changes = a.changes;
    return a.changes == b.changes && (!a.changes || element_of(a) == element_of(b));
  }
  bool borders_agree(const FloatNode &node) {
    const std::string &op = node.proto->op_type();
    bool agree = true;
    for (const int g : node.graphs) {
      const FloatGraph &graph = m_.graphs[g];
      if (op != "If")
        for (size_t i = op == "Loop" ? 2 : 0; i < graph.inputs.size(); ++i)
          agree = pair(i < node.inputs.size() ? node.inputs[i] : -1, graph.inputs[i]) && agree;
      const size_t shift = op == "Loop" ? 1 : 0;
      if (graph.outputs.size() != node.outputs.size() + shift) return false;
      for (size_t i = 0; i < node.outputs.size(); ++i)
        if (node.outputs[i] >= 0) agree = pair(node.outputs[i], graph.outputs[i + shift]) && agree;
    }
    return agree;
  }

  // Where the node's schema has the new type, and whether it can be asked.
  void forms(FloatNode &node) {
    node.input_may.assign(node.inputs.size(), false);
    node.output_may.assign(node.outputs.size(), false);
    const onnx::OpSchema *schema = schema_of(node);
    if (schema && is_control(schema->Name()) && m_.is_standard(node) &&
        !(schema->Name() == "Scan" && schema->SinceVersion() < 9)) {
      node.control = true;
      if (!borders_agree(node)) node.stay = FloatStay::kUnknown;
    }
    bool any = false, known = true, tensors = true;
    const auto look = [&](int value) {
      if (value < 0) return;
      const FloatValue &v = m_.values[value];
      any = any || v.changes;
      known = known && (v.type || v.tensor);
      tensors = tensors && (!v.type || v.type->has_tensor_type());
    };
    for (const int v : node.inputs) look(v);
    for (const int v : node.outputs) look(v);
    if (node.stay != FloatStay::kNot) return;
    if (node.control) {
      for (size_t i = 0; i < node.inputs.size(); ++i) node.input_may[i] = changes(node.inputs[i]);
      for (size_t i = 0; i < node.outputs.size(); ++i) node.output_may[i] = changes(node.outputs[i]);
      return;
    }
    if (!known || (any && !schema)) {
      node.stay = FloatStay::kUnknown;
    } else if (!any || node.proto->op_type() == "Constant") {
      node.stay = FloatStay::kNoFloats;
    } else if (!tensors || !node.graphs.empty()) {
      node.stay = FloatStay::kOtherTypes;
    } else if (narrower_ && reads_coordinates(node.proto->op_type())) {
      node.stay = FloatStay::kCoordinates;
    } else {
      ask_schema(node, *schema);
    }
  }

  bool has_form(const onnx::OpSchema::FormalParameter &formal) const {
    const std::string wanted = "tensor(" + std::string(onnx_name(m_.to)) + ")";
    return std::any_of(formal.GetTypes().begin(), formal.GetTypes().end(),
                       [&](onnx::DataType type) { return *type == wanted; });
  }

  void ask_schema(FloatNode &node, const onnx::OpSchema &schema) {
    const auto formal = [](const std::vector<onnx::OpSchema::FormalParameter> &list, size_t i) {
      return list.empty() ? nullptr : &list[std::min(i, list.size() - 1)];
    };
    std::set<std::string> changed;  // type variables
    bool any = false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const auto *parameter = formal(schema.inputs(), i);
      if (!changes(node.inputs[i]) || !parameter || !has_form(*parameter) || keeps_operand(node, i, narrower_))
        continue;
      node.input_may[i] = any = true;
      changed.insert(parameter->GetTypeStr());
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const auto *parameter = formal(schema.outputs(), i);
      if (!changes(node.outputs[i]) || !parameter || !has_form(*parameter)) continue;
      node.output_may[i] = changed.count(parameter->GetTypeStr()) || follows(node);
      any = any || node.output_may[i];
    }
    if (!any) node.stay = FloatStay::kNoForm;
  }

  // The type of the result is said by an attribute that is set with the change, or is that of an operand where the
  // attribute is left out.
  bool follows(const FloatNode &node) const {
    const std::string &op = node.proto->op_type();
    if (op == "Cast" || op == "ConstantOfShape") return true;
    const auto absent = [&](const char *name) {
      return std::none_of(node.proto->attribute().begin(), node.proto->attribute().end(),
                          [&](const auto &attribute) { return attribute.name() == name; });
    };
    if (op == "DequantizeLinear") return absent("output_dtype") && node.input_may.size() > 1 && node.input_may[1];
    if (op == "EyeLike" || op == "RandomNormalLike" || op == "RandomUniformLike" || op == "Bernoulli")
      return absent("dtype") && !node.input_may.empty() && node.input_may[0];
    return false;
  }

  // --keep-float: an operator, or nodes by name.
  Status asked() {
    for (const std::string &text : keep_) {
      const bool by_name = text.rfind("node:", 0) == 0;
      std::string name = by_name ? text.substr(5) : text;
      const bool prefix = by_name && !name.empty() && name.back() == '*';
      if (prefix) name.pop_back();
      bool found = false;
      for (FloatNode &node : m_.nodes) {
        const std::string &domain = node.proto->domain();
        const std::string op = m_.is_standard(node) ? node.proto->op_type() : domain + "." + node.proto->op_type();
        const bool fits = !by_name ? op == name
                          : prefix ? node.proto->name().compare(0, name.size(), name) == 0
                                   : node.proto->name() == name;
        if (!fits) continue;
        found = true;
        if (node.stay == FloatStay::kNot) node.stay = FloatStay::kAsked;
      }
      if (!found)
        return diagnostics_.error(
            ErrorKind::kUsage,
            "--keep-float " + text + ": the model has no " + (by_name ? "node of that name" : "operator " + text), {},
            by_name ? "" : "node:NAME keeps a node, node:PREFIX* those whose names begin so");
    }
    return {};
  }

  bool wide_integers(const FloatValue *value) const {
    if (!value) return false;
    const ElementType type = element_of(*value);
    return type == ElementType::kFloat64 || (is_integer(type) && bit_width(type) > 8);
  }

  // Nodes that stay for what they are, and hand that on.
  void begin(FloatNode &node) {
    if (node.stay != FloatStay::kNot && node.stay != FloatStay::kNoForm) return;
    const std::string &op = node.proto->op_type();
    const FloatValue *first = m_.input(node, 0);
    const bool cast = op == "Cast" || op == "CastLike";
    if ((cast && wide_integers(first)) || op == "Range") {
      node.stay = FloatStay::kIntegers;
      node.spreads = true;
      // Sums of 8-bit products are no positions: they leave the range until they are scaled.
      const int producer = first ? first->producer : -1;
      if (cast && producer >= 0 && m_.nodes[producer].proto->op_type().find("Integer") != std::string::npos) {
        node.spreads = false;
        for (const int out : node.outputs) {
          if (out < 0) continue;
          for (const int reader : m_.values[out].readers)
            if (m_.nodes[reader].stay == FloatStay::kNot && !m_.nodes[reader].control)
              m_.nodes[reader].stay = FloatStay::kIntegers;
        }
      }
      return;
    }
    if (node.stay != FloatStay::kNot) return;
    if (cast && first && element_of(*first) != ElementType::kFloat32 && is_float(element_of(*first)) &&
        bit_width(element_of(*first)) == 16 && !node.outputs.empty() && changes(node.outputs[0]) &&
        element_of(m_.values[node.outputs[0]]) == ElementType::kFloat32) {
      node.stay = FloatStay::kOwnCast;
      node.spreads = true;
    } else if (m_.to == ElementType::kFloat16 && sums_squares(node)) {
      node.stay = FloatStay::kSquares;
      node.spreads = true;
    }
  }

  bool sums_squares(const FloatNode &node) const {
    const std::string &op = node.proto->op_type();
    if (op == "ReduceSumSquare" || op == "ReduceL2") return true;
    const bool square = (op == "Mul" && node.inputs.size() == 2 && node.inputs[0] == node.inputs[1]) ||
                        (op == "Pow" && is_two(m_, m_.input(node, 1)));
    if (!square || node.outputs.empty() || node.outputs[0] < 0) return false;
    const std::vector<int> &readers = m_.values[node.outputs[0]].readers;
    return !readers.empty() && std::all_of(readers.begin(), readers.end(),
                                           [&](int reader) { return is_reduction(m_.nodes[reader].proto->op_type()); });
  }

  // Values that a run does not decide, but for their sizes.
  std::vector<bool> constant_like() const {
    static const std::set<std::string> kMoves = {"Expand", "Reshape",  "Unsqueeze", "Squeeze",         "Transpose",
                                                 "Tile",   "Identity", "Slice",     "ConstantOfShape", "Concat"};
    std::vector<bool> constant(m_.values.size());
    for (size_t i = 0; i < m_.values.size(); ++i) constant[i] = m_.is_constant(static_cast<int>(i));
    for (const FloatNode &node : m_.nodes) {
      const bool moves = kMoves.count(node.proto->op_type()) > 0;
      const bool all = std::all_of(node.inputs.begin(), node.inputs.end(), [&](int value) {
        return value < 0 || constant[value] || (moves && !m_.values[value].changes);
      });
      if (!node.graphs.empty() || !all || node.proto->op_type().rfind("Random", 0) == 0) continue;
      for (const int out : node.outputs)
        if (out >= 0) constant[out] = true;
    }
    return constant;
  }

  // A Cast of the model to another of the types that change.
  bool leaves(const FloatNode &node) const {
    return node.proto->op_type() == "Cast" && node.outputs.size() == 1 && changes(node.outputs[0]) &&
           node.output_may[0] && element_of(m_.values[node.outputs[0]]) != element_of(*m_.input(node, 0));
  }

  // What is computed from such results and constants alone stays, too; then, what is moved for readers that stay.
  void spread() {
    const std::vector<bool> constant = constant_like();
    for (FloatNode &node : m_.nodes) {
      if (node.stay != FloatStay::kNot || node.control || contracts(m_, node)) continue;
      const FloatNode *from = nullptr;
      bool all = true;
      for (const int value : node.inputs) {
        if (!changes(value)) continue;
        const int producer = m_.values[value].producer;
        if (producer >= 0 && m_.nodes[producer].spreads)
          from = &m_.nodes[producer];
        else if (!constant[value])
          all = false;
      }
      if (!from || !all) continue;
      if (leaves(node)) {
        node.input_may[0] = false;
        continue;
      }
      node.stay = from->stay;
      node.spreads = true;
    }
    for (auto node = m_.nodes.rbegin(); node != m_.nodes.rend(); ++node) {
      if (node->stay != FloatStay::kNot || node->control) continue;
      FloatStay readers = FloatStay::kNot;
      bool all = true;
      for (const int out : node->outputs) {
        if (!changes(out)) continue;
        all = all && constant[out] && !m_.values[out].is_output;
        for (const int reader : m_.values[out].readers) {
          readers = m_.nodes[reader].stay;
          all = all && readers != FloatStay::kNot;
        }
      }
      if (all && readers != FloatStay::kNot) node->stay = readers;
    }
  }

  // Graphs of nodes that stay do so, too.
  void settle_graphs() {
    for (FloatNode &node : m_.nodes) {
      const int owner = m_.graphs[node.graph].owner;
      if (owner < 0) continue;
      const FloatNode &outer = m_.nodes[owner];
      const bool open = outer.control && outer.stay == FloatStay::kNot;
      if (!open && node.stay == FloatStay::kNot) node.stay = outer.stay;
    }
  }

  FloatModel &m_;
  const std::vector<std::string> &keep_;
  Diagnostics &diagnostics_;
  const bool narrower_;
};

}  // namespace

std::string_view to_string(FloatStay stay) {
  switch (stay) {
    case FloatStay::kNot:
      return "converted";
    case FloatStay::kNoFloats:
      return "without such values";
    case FloatStay::kAsked:
      return "asked for";
    case FloatStay::kNoForm:
      return "of operators without that type";
    case FloatStay::kUnknown:
      return "of types not known";
    case FloatStay::kOtherTypes:
      return "of sequences or optionals";
    case FloatStay::kIntegers:
      return "computed from integers";
    case FloatStay::kCoordinates:
      return "reading coordinates";
    case FloatStay::kSquares:
      return "sums of squares";
    case FloatStay::kOwnCast:
      return "behind the model's own casts";
  }
  return "";
}

Status choose_floats(FloatModel &model, const std::vector<std::string> &keep, Diagnostics &diagnostics) {
  return Rules(model, keep, diagnostics).run();
}

}  // namespace optc
