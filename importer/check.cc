#include <algorithm>
#include <functional>
#include <stdexcept>

#include "importer/internal_converter.h"
#include "importer/internal_order.h"

namespace optc {
namespace {

constexpr int64_t kMinIr = 3;

std::string domain_label(const std::string &domain) { return domain.empty() ? "ai.onnx" : domain; }

// The first line of an exception's text, without a full stop.
std::string first_line(const char *text) {
  std::string line(text);
  const size_t end = line.find('\n');
  if (end != std::string::npos) line.resize(end);
  while (!line.empty() && (line.back() == '.' || line.back() == ' ')) line.pop_back();
  return line;
}

// As ONNX's schemas spell types; empty for types that they spell in more than one way.
std::string schema_type(const Type &type) {
  switch (type.kind) {
    case Type::Kind::kTensor:
      if (type.element == ElementType::kUndefined) return {};
      return "tensor(" + std::string(onnx_name(type.element)) + ")";
    case Type::Kind::kSequence: {
      const std::string inner = schema_type(*type.inner);
      return inner.empty() ? inner : "seq(" + inner + ")";
    }
    case Type::Kind::kOptional: {
      const std::string inner = schema_type(*type.inner);
      return inner.empty() ? inner : "optional(" + inner + ")";
    }
    default:
      return {};
  }
}

// The number of nodes once local functions are inlined, saturating; recursion, and what is called too deep, counts as
// none (both are reported at the call).
class NodeCounter {
 public:
  NodeCounter(const std::map<std::string, const onnx::FunctionProto *> &functions, int64_t limit)
      : functions_(functions), limit_(limit) {}

  int64_t count(const NodeList &nodes) {
    int64_t sum = 0;
    for (const auto &node : nodes) {
      auto local = functions_.find(function_key(node.domain(), node.op_type(), node.overload()));
      sum += local == functions_.end() ? 1 : called(local->second);
      for (const auto &attribute : node.attribute()) {
        if (attribute.has_g()) sum += count(attribute.g().node());
        for (const auto &graph : attribute.graphs()) sum += count(graph.node());
      }
      if (sum > limit_) return limit_ + 1;
    }
    return sum;
  }

 private:
  int64_t called(const onnx::FunctionProto *function) {
    auto [it, fresh] = known_.try_emplace(function, 0);
    if (!fresh || depth_ > kMaxCallDepth) return it->second;
    ++depth_;
    const int64_t n = count(function->node());
    --depth_;
    return known_[function] = n;
  }

  const std::map<std::string, const onnx::FunctionProto *> &functions_;
  std::map<const onnx::FunctionProto *, int64_t> known_;
  const int64_t limit_;
  int depth_ = 0;  // of calls
};

// Operators that optc cannot compile, gathered over the whole model.
class Unsupported {
 public:
  using IsExtern = std::function<bool(const onnx::NodeProto &)>;
  Unsupported(const std::map<std::string, const onnx::FunctionProto *> &functions, IsExtern is_extern)
      : functions_(functions), is_extern_(std::move(is_extern)) {}

  void walk(const NodeList &nodes, const std::map<std::string, int64_t> &opsets, bool count, int depth) {
    if (depth > 200) return;
    for (const auto &node : nodes) {
      const int64_t index = count ? index_++ : index_;
      auto local = functions_.find(function_key(node.domain(), node.op_type(), node.overload()));
      if (local != functions_.end()) {
        if (!seen_.insert(local->second).second) continue;
        std::map<std::string, int64_t> inner;
        for (const auto &opset : local->second->opset_import())
          inner[normal_domain(opset.domain())] =
              std::max(inner[normal_domain(opset.domain())], static_cast<int64_t>(opset.version()));
        inner.insert(opsets.begin(), opsets.end());
        walk(local->second->node(), inner, false, depth + 1);
        continue;
      }
      if (is_extern_(node)) continue;
      const std::string reason = reason_of(node, opsets, 0);
      if (!reason.empty()) {
        auto [it, fresh] = places_.try_emplace(reason, places_.size(), "");
        if (fresh) {
          order_.push_back(reason);
          it->second.second = "node '" + node_label(node, index) + "' (#" + std::to_string(index) + ")";
        }
        ++counts_[reason];
      }
      for (const auto &attribute : node.attribute()) {
        if (attribute.has_g()) walk(attribute.g().node(), opsets, count, depth + 1);
        for (const auto &graph : attribute.graphs()) walk(graph.node(), opsets, count, depth + 1);
      }
    }
  }

  bool empty() const { return order_.empty(); }
  size_t size() const { return order_.size(); }
  bool all_unknown() const { return all_unknown_; }
  std::vector<std::string> places() const {
    std::vector<std::string> list;
    for (const std::string &reason : order_) {
      const int64_t n = counts_.at(reason);
      list.push_back(places_.at(reason).second + ": " + reason + (n > 1 ? ", " + std::to_string(n) + " nodes" : ""));
    }
    return list;
  }

 private:
  // Empty when optc can compile the operator, itself or through its ONNX function body.
  std::string reason_of(const onnx::NodeProto &node, const std::map<std::string, int64_t> &opsets, int depth) {
    const std::string domain = normal_domain(node.domain());
    auto opset = opsets.find(domain);
    if (opset == opsets.end()) return {};  // said when the node is converted
    const std::string label = domain_label(domain) + "." + node.op_type() + "-" + std::to_string(opset->second);
    const OpDef *def = find_op(op_name(domain, node.op_type()));
    if (def && def->body) return {};
    const auto &domains = onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map();
    const bool known = domains.count(domain) > 0;
    const onnx::OpSchema *schema =
        find_schema(node.op_type(), version_of(node.op_type(), opset->second, domain), domain);
    if (known && !schema) {
      const onnx::OpSchema *other = onnx::OpSchemaRegistry::Schema(node.op_type(), domain);
      if (!other) return label + " (" + domain_label(domain) + " has no operator of this name)";
      return label + " (" + domain_label(domain) + " has it from a later version on)";
    }
    if (domain.empty() && node.op_type() == "Constant") return {};
    if (def) return {};
    all_unknown_ = false;
    if (!schema || depth > 8) return label;
    if (const onnx::FunctionProto *function = schema->GetFunction(static_cast<int>(opset->second), false)) {
      std::map<std::string, int64_t> inner;
      for (const auto &import : function->opset_import()) inner[normal_domain(import.domain())] = import.version();
      inner.insert(opsets.begin(), opsets.end());
      for (const auto &part : function->node())
        if (!reason_of(part, inner, depth + 1).empty()) return label;
      return {};
    }
    return schema->HasContextDependentFunction() ? std::string() : label;
  }

  const std::map<std::string, const onnx::FunctionProto *> &functions_;
  const IsExtern is_extern_;
  std::unordered_set<const onnx::FunctionProto *> seen_;
  std::map<std::string, std::pair<size_t, std::string>> places_;
  std::map<std::string, int64_t> counts_;
  std::vector<std::string> order_;
  int64_t index_ = 0;
  bool all_unknown_ = true;
};

}  // namespace

std::string normal_domain(const std::string &domain) { return domain == "ai.onnx" ? std::string() : domain; }

std::string op_name(const std::string &domain, const std::string &op) {
  return domain.empty() || domain == "ai.onnx" ? op : domain + "." + op;
}

std::string function_key(const std::string &domain, const std::string &name, const std::string &overload) {
  return normal_domain(domain) + '\n' + name + '\n' + overload;
}

const onnx::OpSchema *find_schema(const std::string &op, int64_t version, const std::string &domain) {
  if (version < 1 || version > INT32_MAX) return nullptr;
  return onnx::OpSchemaRegistry::Schema(op, static_cast<int>(version), domain);
}

int64_t version_of(const std::string &op, int64_t opset, const std::string &domain) {
  return domain.empty() && op == "LayerNormalization" ? std::max<int64_t>(opset, 17) : opset;
}

int64_t inlined_nodes(const onnx::ModelProto &model, int64_t limit) {
  std::map<std::string, const onnx::FunctionProto *> functions;
  for (const auto &function : model.functions())
    functions.emplace(function_key(function.domain(), function.name(), function.overload()), &function);
  return NodeCounter(functions, limit).count(model.graph().node());
}

const onnx::OpSchema *current_schema(std::string_view graph_op, int version) {
  const size_t dot = graph_op.rfind('.');
  const std::string domain(dot == std::string_view::npos ? std::string_view() : graph_op.substr(0, dot));
  const std::string op(dot == std::string_view::npos ? graph_op : graph_op.substr(dot + 1));
  return find_schema(op, version, domain);
}

const onnx::FunctionProto *Converter::local_function(const onnx::NodeProto &node) const {
  if (functions_.empty()) return nullptr;
  auto it = functions_.find(function_key(node.domain(), node.op_type(), node.overload()));
  return it == functions_.end() ? nullptr : it->second;
}

Status Converter::check_model() {
  auto invalid = [&](const std::string &text, const std::string &help = {}) {
    return diagnostics_.error(ErrorKind::kInvalid, text, {}, help);
  };
  if (!model_.has_graph()) return invalid("the model has no graph", "is this an ONNX model?");
  if (!model_.has_ir_version()) return invalid("the model has no IR version");
  const int64_t ir = model_.ir_version();
  if (ir < kMinIr || ir > onnx::Version::IR_VERSION)
    return diagnostics_.error(ErrorKind::kUnsupported, "IR version " + std::to_string(ir) + "; optc reads " +
                                                           std::to_string(kMinIr) + " to " +
                                                           std::to_string(onnx::Version::IR_VERSION));
  Frame &frame = frames_.front();
  const auto &domains = onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map();
  for (const auto &opset : model_.opset_import()) {
    const std::string domain = normal_domain(opset.domain());
    int64_t &version = frame.opsets[domain];
    version = std::max(version, static_cast<int64_t>(opset.version()));
    auto range = domains.find(domain);
    if (opset.version() < 1 && range != domains.end())
      return invalid("opset version " + std::to_string(opset.version()) + " of " + domain_label(domain));
    if (reading_ == Reading::kCompile && range != domains.end() && opset.version() > range->second.second)
      return diagnostics_.error(ErrorKind::kUnsupported, "opset version " + std::to_string(opset.version()) + " of " +
                                                             domain_label(domain) + "; optc reads versions up to " +
                                                             std::to_string(range->second.second));
  }
  if (frame.opsets.empty()) return invalid("the model imports no operator set");
  for (const auto &function : model_.functions()) {
    const std::string key = function_key(function.domain(), function.name(), function.overload());
    if (!functions_.emplace(key, &function).second)
      return invalid("function " + domain_label(function.domain()) + "." + function.name() + " is defined twice");
  }
  return {};
}

Status Converter::check_size() {
  if (NodeCounter(functions_, options_.max_nodes).count(model_.graph().node()) > options_.max_nodes)
    return diagnostics_.error(
        ErrorKind::kUnsupported,
        "the model has more than " + std::to_string(options_.max_nodes) + " nodes once its functions are inlined", {},
        "functions that call one another many times grow without bound");
  return {};
}

Status Converter::list_unsupported() {
  Unsupported found(functions_, [this](const onnx::NodeProto &node) { return extern_of(node) != nullptr; });
  found.walk(model_.graph().node(), frames_.front().opsets, true, 0);
  if (found.empty()) return {};
  Diagnostic diagnostic;
  diagnostic.kind = found.all_unknown() ? ErrorKind::kInvalid : ErrorKind::kUnsupported;
  const std::string count = found.size() == 1 ? "1 operator" : std::to_string(found.size()) + " operators";
  diagnostic.message =
      count + (found.all_unknown() ? " of the model are unknown to ONNX" : " of the model have no implementation");
  if (found.size() == 1)
    diagnostic.message.replace(diagnostic.message.find(" are ") != std::string::npos
                                   ? diagnostic.message.find(" are ")
                                   : diagnostic.message.find(" have "),
                               found.all_unknown() ? 5 : 6, found.all_unknown() ? " is " : " has ");
  diagnostic.places = found.places();
  diagnostic.help = "`optc ops` lists what is supported";
  if (!found.all_unknown())
    diagnostic.help +=
        "; --custom-op FILE gives an operator of a domain of your own a body in standard operators, "
        "--extern DOMAIN::OP leaves it to a C function of the application";
  return diagnostics_.add(std::move(diagnostic));
}

Status Converter::check_schema(const onnx::NodeProto &node, const onnx::OpSchema &schema, const std::string &where) {
  try {
    schema.Verify(node);
  } catch (const std::exception &error) {
    return diagnostics_.error(ErrorKind::kInvalid,
                              "the node does not fit " + schema.Name() + "-" + std::to_string(schema.SinceVersion()) +
                                  ": " + first_line(error.what()),
                              where);
  }
  if (schema.domain().empty())
    if (std::string why = unknown_choice(node); !why.empty())
      return diagnostics_.error(ErrorKind::kInvalid, std::move(why), where);
  return {};
}

Status Converter::check_types(NodeId id, const onnx::OpSchema &schema) {
  const Node &node = graph_.node(id);
  const auto &formals = schema.inputs();
  std::map<std::string, std::pair<std::string, std::string>> bound;  // type variable -> type, operand
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!node.inputs[i].valid() || formals.empty()) continue;
    const Value &value = graph_.value(node.inputs[i]);
    const std::string type = schema_type(value.type);
    if (type.empty()) continue;
    const auto &formal = formals[std::min(i, formals.size() - 1)];
    const bool allowed = std::any_of(formal.GetTypes().begin(), formal.GetTypes().end(),
                                     [&](const std::string *t) { return *t == type; });
    const std::string operand = "input '" + value.name + "' (" + formal.GetName() + ")";
    if (!allowed) {
      const bool tensors =
          value.type.is_tensor() || std::any_of(formal.GetTypes().begin(), formal.GetTypes().end(),
                                                [](const std::string *t) { return t->rfind("tensor", 0) != 0; });
      return diagnostics_.error(ErrorKind::kInvalid,
                                operand + " is " + type + ", which " + schema.Name() + "-" +
                                    std::to_string(schema.SinceVersion()) + " does not take" +
                                    (tensors ? "" : ": it takes tensors"),
                                graph_.describe(id));
    }
    const bool variadic = formal.GetOption() == onnx::OpSchema::Variadic;
    if (schema.typeConstraintMap().count(formal.GetTypeStr()) == 0 || (variadic && !formal.GetIsHomogeneous()))
      continue;
    auto [it, fresh] = bound.try_emplace(formal.GetTypeStr(), type, operand);
    if (!fresh && it->second.first != type)
      return diagnostics_.error(ErrorKind::kInvalid,
                                operand + " is " + type + ", but " + it->second.second + " is " + it->second.first +
                                    ", and " + schema.Name() + "-" + std::to_string(schema.SinceVersion()) +
                                    " wants them equal",
                                graph_.describe(id), "insert a Cast before one of them");
  }
  return {};
}

}  // namespace optc
