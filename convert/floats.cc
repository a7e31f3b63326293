#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <sstream>

#include "convert/internal_floats.h"

namespace optc {
namespace {

// A constant in another float type. Rounding moves no number by more than half a step of the tensor's largest; what
// does (numbers beyond the range, numbers that would become 0 and are not small beside the others) is a loss.
struct Rounded {
  Constant value;  // not valid: as it was
  int64_t lost = 0;
  double example = 0;  // the first that is lost
};

float to_float(const Constant &value, int64_t i) {
  if (value.type() == ElementType::kFloat32) return value.as<float>()[i];
  return static_cast<float>(value.as_double(i));
}

bool is_half(ElementType type) { return type == ElementType::kFloat16; }
float largest_of(ElementType type) { return is_half(type) ? half_to_float(0x7BFF) : bfloat16_to_float(0x7F7F); }
float smallest_of(ElementType type) { return is_half(type) ? half_to_float(1) : bfloat16_to_float(1); }
// Half a step of the significand, beside the number.
double half_step(ElementType type) { return is_half(type) ? 0x1.000001p-11 : 0x1.000001p-8; }

// To f16 or bf16; never from a finite number to infinity, nor to 0 from one that is lost by that.
Rounded narrowed(const Constant &in, ElementType to) {
  Rounded out;
  const int64_t count = in.count();
  float largest = 0;
  for (int64_t i = 0; i < count; ++i)
    if (const float x = std::fabs(to_float(in, i)); std::isfinite(x)) largest = std::max(largest, x);
  const double allowed = static_cast<double>(largest) * half_step(to);
  std::vector<uint8_t> bytes(static_cast<size_t>(count) * sizeof(uint16_t));
  auto *halves = reinterpret_cast<uint16_t *>(bytes.data());
  const auto put = [&](int64_t i, float x) {
    halves[i] = is_half(to) ? float_to_half(x) : float_to_bfloat16(x);
    return is_half(to) ? half_to_float(halves[i]) : bfloat16_to_float(halves[i]);
  };
  for (int64_t i = 0; i < count; ++i) {
    const float x = to_float(in, i);
    float y = put(i, x);
    if (!std::isfinite(x)) continue;
    if (!std::isfinite(y)) y = put(i, std::copysign(largest_of(to), x));
    if (std::fabs(static_cast<double>(x) - static_cast<double>(y)) <= allowed) continue;
    if (y == 0) put(i, std::copysign(smallest_of(to), x));
    if (out.lost++ == 0) out.example = static_cast<double>(x);
  }
  out.value = Constant::owned(to, in.dims(), std::move(bytes));
  return out;
}

Constant widened(const Constant &in) {
  std::vector<uint8_t> bytes(static_cast<size_t>(in.count()) * sizeof(float));
  auto *floats = reinterpret_cast<float *>(bytes.data());
  for (int64_t i = 0; i < in.count(); ++i) floats[i] = to_float(in, i);
  return Constant::owned(ElementType::kFloat32, in.dims(), std::move(bytes));
}

// An f32 constant whose finite numbers have a finite one in `to`.
Rounded clamped(const Constant &in, ElementType to) {
  Rounded out;
  if (in.type() != ElementType::kFloat32) return out;
  const double largest = static_cast<double>(largest_of(to));
  std::vector<float> values(in.as<float>(), in.as<float>() + in.count());
  bool changed = false;
  for (float &x : values) {
    const double size = std::fabs(static_cast<double>(x));
    if (!std::isfinite(size) || size <= largest) continue;
    if (size - largest > size * half_step(to) && out.lost++ == 0) out.example = static_cast<double>(x);
    x = std::copysign(largest_of(to), x);
    changed = true;
  }
  if (!changed) return out;
  const auto *data = reinterpret_cast<const uint8_t *>(values.data());
  out.value = Constant::owned(in.type(), in.dims(), std::vector<uint8_t>(data, data + values.size() * sizeof(float)));
  return out;
}

class FloatChange {
 public:
  FloatChange(FloatModel &m, const ConvertOptions &options, FloatFacts &facts, Diagnostics &diagnostics)
      : m_(m), options_(options), facts_(facts), diagnostics_(diagnostics) {}

  Status run() {
    suffix_ = "_" + std::string(to_string(m_.to));
    values_ = value_names(m_.file->proto.graph());
    nodes_ = node_names(m_.file->proto.graph());
    names_.resize(m_.values.size());
    of_model_.resize(m_.values.size());
    for (const int value : m_.graphs[0].outputs)
      if (value >= 0) of_model_[value] = true;
    decide();
    collect_uses();
    if (m_.to != ElementType::kFloat32) {
      find_fills();
      collect_uses();
    }
    OPTC_TRY(make_constants());
    name_values();
    OPTC_TRY(change_attributes());
    OPTC_TRY(report_loss());
    count();  // while the nodes stand where they were
    for (FloatNode &node : m_.nodes) rename_operands(node);
    for (FloatGraph &graph : m_.graphs) declare(graph);
    for (auto graph = m_.graphs.rbegin(); graph != m_.graphs.rend(); ++graph) rebuild(*graph);
    return {};
  }

 private:
  // A value in its own type, in the new one, and, of constants, in its own within the range of the new one.
  enum Version : uint8_t { kOld, kNew, kClamped };
  struct Names {
    bool wanted[3] = {false, false, false};
    std::string name[3];
    int alias = -1;  // an idle Cast's result: another value, in the version that the result has
    Version alias_version = kOld;
    std::string given[3];  // the name of a result that is this value by now
  };

  bool converts(const FloatNode &node) const { return node.stay == FloatStay::kNot; }
  // The type that a graph's output or input has.
  bool border_changes(const FloatGraph &graph) const {
    if (graph.owner < 0) return options_.float_io;
    return m_.nodes[graph.owner].control && converts(m_.nodes[graph.owner]);
  }
  Version own(int value) const { return m_.values[value].changed ? kNew : kOld; }
  Version wanted_by(const FloatNode &node, size_t i) const {
    const int value = node.inputs[i];
    if (!m_.values[value].changes) return kOld;
    if (converts(node) && node.input_may[i]) return kNew;
    return fills_.count({&node, i}) ? kClamped : kOld;
  }

  void decide() {
    for (const FloatGraph &graph : m_.graphs)
      for (const int value : graph.inputs)
        if (value >= 0 && !m_.is_constant(value))
          m_.values[value].changed = m_.values[value].changes && border_changes(graph);
    for (const FloatNode &node : m_.nodes)
      for (size_t i = 0; i < node.outputs.size(); ++i)
        if (const int value = node.outputs[i]; value >= 0 && !m_.is_constant(value))
          m_.values[value].changed = m_.values[value].changes && converts(node) && node.output_may[i];
  }

  void collect_uses() {
    for (Names &names : names_) names = Names();
    for (const FloatNode &node : m_.nodes)
      for (size_t i = 0; i < node.inputs.size(); ++i)
        if (node.inputs[i] >= 0) names_[node.inputs[i]].wanted[wanted_by(node, i)] = true;
    for (const FloatGraph &graph : m_.graphs)
      for (const int value : graph.outputs)
        if (value >= 0) names_[value].wanted[m_.values[value].changes && border_changes(graph) ? kNew : kOld] = true;
  }

  // Constants such as the -3.4e38 of a mask in nodes that stay: what is computed of them is narrowed for other nodes,
  // and would become infinite there.
  void find_fills() {
    std::vector<bool> seen(m_.nodes.size());
    std::vector<int> open;
    const auto visit = [&](int value) {
      const int producer = m_.values[value].producer;
      if (m_.values[value].changed || !m_.values[value].changes || producer < 0 || seen[producer]) return;
      seen[producer] = true;
      if (!m_.nodes[producer].control) open.push_back(producer);
    };
    for (size_t i = 0; i < m_.values.size(); ++i)
      if (names_[i].wanted[kNew] && !m_.is_constant(static_cast<int>(i))) visit(static_cast<int>(i));
    while (!open.empty()) {
      const FloatNode &node = m_.nodes[open.back()];
      open.pop_back();
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const int value = node.inputs[i];
        if (value < 0 || !m_.values[value].changes) continue;
        if (!m_.is_constant(value)) {
          visit(value);
          continue;
        }
        Diagnostics ignored;
        const Result<Constant> constant = tensor_value(*m_.file, *m_.values[value].tensor, "", ignored);
        if (!constant.ok() || !clamped(*constant, m_.to).value.valid()) continue;
        fills_.insert({&node, i});
      }
    }
  }

  void note_loss(const Rounded &rounded, const std::string &what) {
    if (rounded.lost == 0) return;
    if (lost_++ >= 3) return;
    std::ostringstream text;
    const double size = std::fabs(rounded.example);
    text << what << ": " << rounded.example << " is "
         << (size > static_cast<double>(largest_of(m_.to))    ? "beyond the largest"
             : size < static_cast<double>(smallest_of(m_.to)) ? "below the smallest"
                                                              : "too near to the smallest");
    examples_ += (examples_.empty() ? "" : "; ") + text.str();
  }

  Result<Constant> in_version(const Constant &value, Version version, const std::string &what) {
    if (version == kNew && m_.to == ElementType::kFloat32) return widened(value);
    Rounded rounded = version == kNew ? narrowed(value, m_.to) : clamped(value, m_.to);
    note_loss(rounded, what);
    return rounded.value.valid() ? rounded.value : value;
  }

  // The first version that is asked for takes the constant's place, the others stand beside it.
  Status make_constants() {
    for (size_t i = 0; i < m_.values.size(); ++i) {
      FloatValue &value = m_.values[i];
      if (value.kind != FloatValue::Kind::kConstant || !value.changes) continue;
      Names &names = names_[i];
      const std::string what = (value.producer < 0 ? "initializer '" : "constant '") + value.name + "'";
      OPTC_ASSIGN(const Constant before, tensor_value(*m_.file, *value.tensor, what, diagnostics_));
      bool placed = false;
      std::vector<Version> order = {kOld, kNew, kClamped};
      if (options_.float_io && of_model_[i]) order = {kNew, kOld, kClamped};  // the output has the name
      for (const Version version : order) {
        if (!names.wanted[version]) continue;
        OPTC_ASSIGN(const Constant after, version == kOld ? before : in_version(before, version, what));
        if (version == kNew) ++facts_.constants;
        if (!placed) {
          names.name[version] = value.name;
          value.changed = version == kNew;
          if (version != kOld) set_weight(*m_.file, *value.tensor, after);
          placed = true;
          continue;
        }
        const std::string suffix = version == kNew   ? suffix_
                                   : version == kOld ? "_" + std::string(to_string(before.type()))
                                                     : suffix_ + "_range";
        names.name[version] = fresh_name(value.name + suffix, values_);
        add_initializer(m_.graphs[value.graph], names.name[version], after);
      }
    }
    return {};
  }

  void add_initializer(FloatGraph &graph, const std::string &name, const Constant &value) {
    onnx::TensorProto tensor;
    tensor.set_name(name);
    set_weight(*m_.file, tensor, value);
    if (graph.owner < 0 && m_.file->proto.ir_version() < 4) {  // an initializer is an input there
      onnx::ValueInfoProto &info = *graph.proto->add_input();
      info.set_name(name);
      auto &type = *info.mutable_type()->mutable_tensor_type();
      type.set_elem_type(static_cast<int32_t>(value.type()));
      for (const int64_t d : value.dims()) type.mutable_shape()->add_dim()->set_dim_value(d);
    }
    added_[graph.proto].push_back(std::move(tensor));
  }

  // A value's own version has its name, but where the model's output has the other: the name is the output's.
  void name_values() {
    for (const FloatNode &node : m_.nodes) find_idle(node);
    for (size_t i = 0; i < m_.values.size(); ++i) {
      const FloatValue &value = m_.values[i];
      Names &names = names_[i];
      if (!value.changes || value.kind == FloatValue::Kind::kConstant) {
        if (!value.changes) names.name[kOld] = names.given[kOld].empty() ? value.name : names.given[kOld];
        continue;
      }
      const Version have = own(static_cast<int>(i)), other = have == kNew ? kOld : kNew;
      const bool swapped = of_model_[i] && value.graph == 0 && (options_.float_io ? kNew : kOld) == other;
      const std::string suffix = other == kNew ? suffix_ : "_" + std::string(to_string(element_of(value)));
      const std::string own_suffix = have == kNew ? suffix_ : "_" + std::string(to_string(element_of(value)));
      names.name[have] = swapped                      ? fresh_name(value.name + own_suffix, values_)
                         : !names.given[have].empty() ? names.given[have]
                                                      : value.name;
      if (swapped) names.wanted[other] = true;
      if (names.wanted[other]) names.name[other] = swapped ? value.name : fresh_name(value.name + suffix, values_);
    }
  }

  // A Cast of the model whose operand has the result's type by now.
  void find_idle(const FloatNode &node) {
    if (node.proto->op_type() != "Cast" || !m_.is_standard(node) || node.inputs.size() != 1 || node.outputs.size() != 1)
      return;
    const int in = node.inputs[0], out = node.outputs[0];
    if (in < 0 || out < 0) return;
    const ElementType in_old = element_of(m_.values[in]), out_old = element_of(m_.values[out]);
    if (in_old == ElementType::kUndefined || in_old == out_old) return;
    const Version version = wanted_by(node, 0);
    const ElementType in_now = version == kNew ? m_.to : in_old;
    const ElementType out_now = m_.values[out].changed ? m_.to : out_old;
    if (in_now != out_now) return;
    if (m_.values[out].is_output) {  // the operand gets the name of the result, where it may have another one
      const FloatValue &operand = m_.values[in];
      const bool free = operand.kind == FloatValue::Kind::kNodeOutput && !operand.is_output &&
                        operand.graph == m_.values[out].graph && version == own(in) && names_[in].alias < 0;
      const bool out_free = !names_[out].wanted[own(out) == kNew ? kOld : kNew];
      if (!free || !out_free || !names_[in].given[version].empty()) return;
      names_[in].given[version] = m_.values[out].name;
    }
    names_[out].alias = in;
    names_[out].alias_version = version;
  }

  const std::string &name_of(int value, Version version) const {
    const Names &names = names_[value];
    if (names.alias >= 0 && version == own(value)) return name_of(names.alias, names.alias_version);
    return names.name[m_.values[value].changes ? version : kOld];
  }

  Status change_attributes() {
    for (FloatNode &node : m_.nodes) {
      if (!converts(node) || node.outputs.empty() || node.outputs[0] < 0 || !m_.values[node.outputs[0]].changed)
        continue;
      if (!m_.is_standard(node)) continue;
      if (node.proto->op_type() == "Cast") {
        for (auto &attribute : *node.proto->mutable_attribute())
          if (attribute.name() == "to") attribute.set_i(static_cast<int64_t>(m_.to));
      } else if (node.proto->op_type() == "ConstantOfShape") {
        OPTC_TRY(change_fill(*node.proto));
      }
    }
    return {};
  }

  Status change_fill(onnx::NodeProto &node) {
    onnx::AttributeProto *found = nullptr;
    for (auto &attribute : *node.mutable_attribute())
      if (attribute.name() == "value") found = &attribute;
    if (!found) {
      found = node.add_attribute();
      found->set_name("value");
      found->set_type(onnx::AttributeProto::TENSOR);
      found->mutable_t()->set_data_type(onnx::TensorProto::FLOAT);
      found->mutable_t()->add_dims(1);
      found->mutable_t()->add_float_data(0);
    }
    const std::string what = "value of '" + (node.name().empty() ? node.output(0) : node.name()) + "'";
    OPTC_ASSIGN(const Constant before, tensor_value(*m_.file, found->t(), what, diagnostics_));
    OPTC_ASSIGN(const Constant after, in_version(before, kNew, what));
    set_weight(*m_.file, *found->mutable_t(), after);
    return {};
  }

  Status report_loss() {
    if (lost_ == 0) return {};
    std::ostringstream text;
    const std::string type(to_string(m_.to));
    text << (lost_ == 1 ? "a constant does" : std::to_string(lost_) + " constants do") << " not fit " << type << ": "
         << examples_ << (lost_ > 3 ? "; ..." : "");
    if (options_.allow_loss) {
      diagnostics_.warning(text.str() + ": the nearest that " + type + " has are taken");
      return {};
    }
    return diagnostics_.error(ErrorKind::kUnsupported, text.str(), {},
                              "--allow-loss takes the nearest that " + type +
                                  " has, neither 0 nor infinite; --keep-float OP or node:NAME keeps what reads them");
  }

  void rename_operands(FloatNode &node) {
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i] >= 0) node.proto->set_input(static_cast<int>(i), name_of(node.inputs[i], wanted_by(node, i)));
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] >= 0 && names_[node.outputs[i]].alias < 0)
        node.proto->set_output(static_cast<int>(i), name_of(node.outputs[i], own(node.outputs[i])));
  }

  void set_type(onnx::ValueInfoProto &info, int value, Version version) const {
    if (version != kNew || !m_.values[value].changes || !info.type().has_tensor_type()) return;
    info.mutable_type()->mutable_tensor_type()->set_elem_type(static_cast<int32_t>(m_.to));
  }

  void declare(FloatGraph &graph) {
    const bool changes = border_changes(graph);
    for (int i = 0; i < graph.proto->input_size() && i < static_cast<int>(graph.inputs.size()); ++i)
      if (const int value = graph.inputs[i]; value >= 0) set_type(*graph.proto->mutable_input(i), value, own(value));
    for (int i = 0; i < graph.proto->output_size(); ++i) {
      const int value = graph.outputs[i];
      if (value < 0 || !m_.values[value].changes) continue;
      const Version version = changes ? kNew : kOld;
      set_type(*graph.proto->mutable_output(i), value, version);
      if (graph.owner >= 0) graph.proto->mutable_output(i)->set_name(name_of(value, version));
    }
    google::protobuf::RepeatedPtrField<onnx::ValueInfoProto> infos;
    for (auto &info : *graph.proto->mutable_value_info()) {
      const auto it = graph.values.find(info.name());
      if (it != graph.values.end()) {
        const Names &names = names_[it->second];
        if (names.alias >= 0) continue;
        bool there = false;
        for (const Version version : {kOld, kNew, kClamped}) {
          if (names.name[version] != info.name()) continue;
          there = true;
          set_type(info, it->second, version);
        }
        if (!there) continue;
      }
      *infos.Add() = std::move(info);
    }
    graph.proto->mutable_value_info()->Swap(&infos);
  }

  using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;
  void add_cast(int value, Nodes &nodes) {
    if (!m_.values[value].changes || m_.is_constant(value)) return;
    const Version have = own(value), other = have == kNew ? kOld : kNew;
    if (!names_[value].wanted[other]) return;
    onnx::NodeProto &cast = *nodes.Add();
    cast.set_op_type("Cast");
    cast.add_input(name_of(value, have));
    cast.add_output(names_[value].name[other]);
    cast.set_name(fresh_name("Cast_" + cast.output(0), nodes_));
    onnx::AttributeProto &to = *cast.add_attribute();
    to.set_name("to");
    to.set_type(onnx::AttributeProto::INT);
    to.set_i(static_cast<int64_t>(other == kNew ? m_.to : element_of(m_.values[value])));
    ++facts_.casts;
  }

  void rebuild(FloatGraph &graph) {
    Nodes nodes;
    std::vector<int> made;
    for (const auto &[name, value] : graph.values)
      if (m_.values[value].producer < 0) made.push_back(value);
    std::sort(made.begin(), made.end());
    for (const int value : made) add_cast(value, nodes);
    for (const int id : graph.nodes) {
      const FloatNode &node = m_.nodes[id];
      const bool idle = !node.outputs.empty() && node.outputs[0] >= 0 && names_[node.outputs[0]].alias >= 0;
      if (!idle) *nodes.Add() = std::move(*node.proto);
      for (const int value : node.outputs)
        if (value >= 0) add_cast(value, nodes);
    }
    for (int i = 0; i < graph.proto->output_size(); ++i) outside(graph, i, nodes);
    graph.proto->mutable_node()->Swap(&nodes);
    for (onnx::TensorProto &tensor : added_[graph.proto]) *graph.proto->add_initializer() = std::move(tensor);
  }

  // A result of an inner graph that is made outside of it and has another name by now passes through an Identity.
  void outside(FloatGraph &graph, int i, Nodes &nodes) {
    const int value = graph.outputs[i];
    if (graph.owner < 0 || value < 0 || &m_.graphs[m_.values[value].graph] == &graph) return;
    if (graph.proto->output(i).name() == m_.values[value].name) return;
    onnx::NodeProto &copy = *nodes.Add();
    copy.set_op_type("Identity");
    copy.add_input(graph.proto->output(i).name());
    copy.add_output(fresh_name(graph.proto->output(i).name() + "_out", values_));
    copy.set_name(fresh_name(copy.output(0), nodes_));
    graph.proto->mutable_output(i)->set_name(copy.output(0));
  }

  void count() {
    for (const FloatNode &node : m_.nodes) {
      if (node.stay == FloatStay::kNoFloats) continue;
      if (converts(node)) {
        ++facts_.nodes;
        continue;
      }
      // What only asks a value that stays for its shape, or makes integers of it, needs no mention.
      const bool spread = node.stay != FloatStay::kNoForm && node.stay != FloatStay::kAsked &&
                          node.stay != FloatStay::kUnknown && node.stay != FloatStay::kOtherTypes;
      const bool makes = std::any_of(node.outputs.begin(), node.outputs.end(),
                                     [&](int value) { return value >= 0 && m_.values[value].changes; });
      if (spread && !makes) continue;
      const std::string domain = m_.is_standard(node) ? "" : node.proto->domain() + ".";
      const bool named = !node.proto->name().empty() || node.proto->output_size() == 0;
      facts_.stays.push_back({named ? node.proto->name() : node.proto->output(0), domain + node.proto->op_type(),
                              std::string(to_string(node.stay))});
    }
  }

  FloatModel &m_;
  const ConvertOptions &options_;
  FloatFacts &facts_;
  Diagnostics &diagnostics_;
  std::string suffix_;
  NameSet values_, nodes_;
  std::vector<Names> names_;
  std::vector<bool> of_model_;  // values that are outputs of the model
  std::set<std::pair<const FloatNode *, size_t>> fills_;
  std::unordered_map<const onnx::GraphProto *, std::vector<onnx::TensorProto>> added_;
  int64_t lost_ = 0;
  std::string examples_;
};

}  // namespace

Status set_float_type(ModelFile &model, const ConvertOptions &options, ConvertFacts &facts, Diagnostics &diagnostics) {
  const ElementType to = options.float_type;
  int64_t opset = 0;
  for (const auto &import : model.proto.opset_import())
    if (import.domain().empty() || import.domain() == "ai.onnx") opset = std::max(opset, import.version());
  const int64_t since = to == ElementType::kBFloat16 ? 13 : 6;  // of Cast
  if (opset < since)
    return diagnostics.error(ErrorKind::kUnsupported,
                             "opset " + std::to_string(opset) + " has no Cast to " + std::string(to_string(to)), {},
                             "--opset " + std::to_string(since) + " or later brings the model to one that has");
  if (model.proto.functions_size() > 0)
    OPTC_TRY(inline_functions(model.proto, "their bodies name no types", diagnostics));
  const bool was_right = type_fault(model.proto).empty();
  FloatModel index = index_floats(model, to);
  OPTC_TRY(choose_floats(index, options.keep_float, diagnostics));
  FloatFacts floats;
  OPTC_TRY(FloatChange(index, options, floats, diagnostics).run());
  if (!facts.floats) facts.floats = std::move(floats);
  if (!was_right) return {};
  if (const std::string wrong = type_fault(model.proto); !wrong.empty())
    return diagnostics.error(ErrorKind::kInternal, "types do not fit after their change: " + wrong);
  return {};
}

}  // namespace optc
