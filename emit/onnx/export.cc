#include "emit/onnx/export.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "emit/onnx/internal_export.h"
#include "support/staging.h"

namespace optc {
namespace {

constexpr size_t kMaxProtobuf = INT32_MAX - (size_t{1} << 20);
constexpr size_t kExternalAlignment = 4096;  // as ONNX recommends for mapping

// A piece of the output: text, then bytes of a constant.
struct Chunk {
  std::string text;
  Constant constant;
};

struct Output {
  std::vector<Chunk> model;
  std::vector<std::pair<size_t, Constant>> external;  // offset in the data file
  size_t model_size = 0;
  FileFacts facts;
};

bool same_attribute(const onnx::AttributeProto &a, const onnx::AttributeProto &b) {
  if (a.type() != b.type()) return false;
  switch (a.type()) {
    case onnx::AttributeProto::INT:
      return a.i() == b.i();
    case onnx::AttributeProto::FLOAT:
      return a.f() == b.f();
    case onnx::AttributeProto::STRING:
      return a.s() == b.s();
    case onnx::AttributeProto::INTS:
      return std::equal(a.ints().begin(), a.ints().end(), b.ints().begin(), b.ints().end());
    case onnx::AttributeProto::FLOATS:
      return std::equal(a.floats().begin(), a.floats().end(), b.floats().begin(), b.floats().end());
    case onnx::AttributeProto::STRINGS:
      return std::equal(a.strings().begin(), a.strings().end(), b.strings().begin(), b.strings().end());
    default:
      return false;
  }
}

using RulesByOrigin = std::unordered_map<uint32_t, std::vector<std::string>>;

class Exporter {
 public:
  Exporter(Graph &graph, int64_t opset, const RulesByOrigin &rules, Diagnostics &diagnostics)
      : g_(graph), opset_(opset), rules_(rules), diagnostics_(diagnostics) {}

  Result<Output> run(bool external, int64_t threshold, const std::string &data_name) {
    OPTC_TRY(lower_own_operators(g_, diagnostics_));
    OPTC_TRY(lower_normalizations(g_, opset_, diagnostics_));
    OPTC_TRY(lower_later_forms(g_, opset_, diagnostics_));
    OPTC_TRY(lower_versions(g_, opset_, diagnostics_));
    onnx::ModelProto model;
    const ModelInfo &info = g_.info();
    // metadata_props of nodes came with IR 10, defaults of inputs and constants that are no inputs with IR 4.
    model.set_ir_version(std::max({info.ir_version, ir_of_opset(opset_), int64_t{4}}));
    if (!info.producer.empty()) model.set_producer_name(info.producer);
    if (!info.producer_version.empty()) model.set_producer_version(info.producer_version);
    if (!info.domain.empty()) model.set_domain(info.domain);
    if (info.model_version) model.set_model_version(info.model_version);
    if (!info.doc.empty()) model.set_doc_string(info.doc);
    for (const auto &[key, value] : info.metadata) {
      auto *entry = model.add_metadata_props();
      entry->set_key(key);
      entry->set_value(value);
    }
    onnx::GraphProto graph;
    graph.set_name(info.name.empty() ? "graph" : info.name);
    OPTC_TRY(region(Graph::main(), graph));
    domains_.insert("");
    for (const std::string &domain : domains_) {
      auto *opset = model.add_opset_import();
      opset->set_domain(domain);
      opset->set_version(domain.empty() ? opset_ : version_of(domain));
    }
    Output out;
    out.facts.opset = opset_;
    count(graph, out.facts);
    OPTC_TRY(assemble(model, graph, external, threshold, data_name, out));
    return out;
  }

 private:
  static void count(const onnx::GraphProto &graph, FileFacts &facts) {
    for (const onnx::NodeProto &node : graph.node()) {
      if (node.op_type() != "Constant" || !node.domain().empty()) {
        ++facts.nodes;
        ++facts.operators[node.domain().empty() ? node.op_type() : node.domain() + "." + node.op_type()];
      }
      for (const onnx::AttributeProto &attribute : node.attribute())
        if (attribute.has_g()) count(attribute.g(), facts);
    }
    for (const onnx::TensorProto &tensor : graph.initializer())
      facts.parameter_bytes += static_cast<int64_t>(tensor.raw_data().size());
  }

  int64_t version_of(const std::string &domain) const {
    int64_t version = 1;
    for (const auto &[name, v] : g_.info().opset_imports)
      if (name == domain) version = std::max(version, v);
    return version;
  }

  // Runtimes want the names of nodes distinct, though ONNX does not.
  std::string unique_node_name(const std::string &name) {
    if (node_names_.insert(name).second) return name;
    for (int &n = next_suffix_[name];;) {
      std::string candidate = name + "_" + std::to_string(++n);
      if (node_names_.insert(candidate).second) return candidate;
    }
  }

  std::string use(ValueId id) {
    if (!id.valid()) return {};
    const Value &value = g_.value(id);
    if (value.kind == ValueKind::kConstant && used_.insert(id.index).second) constants_.push_back(id);
    return value.name;
  }

  void identity(const std::string &from, const std::string &to, onnx::GraphProto &out) {
    auto *node = out.add_node();
    node->set_op_type("Identity");
    node->set_name(unique_node_name(to));
    node->add_input(from);
    node->add_output(to);
  }

  Status region(RegionId id, onnx::GraphProto &out) {
    const bool main = id == Graph::main();
    for (ValueId input : g_.region(id).inputs) {
      auto *info = out.add_input();
      info->set_name(g_.value(input).name);
      if (g_.value(input).type.kind != Type::Kind::kNone) write_type(g_.value(input).type, *info->mutable_type());
    }
    for (NodeId n = g_.region(id).first; n.valid(); n = g_.node(n).next) OPTC_TRY(node(n, out));
    std::unordered_set<std::string> seen;
    for (ValueId output : g_.region(id).outputs) {
      std::string name = use(output);
      const Value &value = g_.value(output);
      // A graph's output is made inside it: what comes from outside passes through an Identity.
      const bool inside = value.kind == ValueKind::kNodeOutput    ? g_.node(value.producer).region == id
                          : value.kind == ValueKind::kRegionInput ? value.region == id
                                                                  : main;
      if (!inside || !seen.insert(name).second) {
        const std::string copy = g_.unique_name(name + "_out");
        identity(name, copy, out);
        seen.insert(copy);
        name = copy;
      }
      auto *info = out.add_output();
      info->set_name(name);
      if (value.type.kind != Type::Kind::kNone) write_type(value.type, *info->mutable_type());
    }
    return {};
  }

  // A node that is no longer the model's own says what it came from, and by which rules.
  void note_origin(const Node &node, onnx::NodeProto &proto) {
    if (node.origin.empty()) return;
    if (node.origin.size() == 1) {
      const Origin &own = g_.origins()[node.origin[0]];
      if (own.name == node.name && own.op == node.op) return;
    }
    std::string origin, rules;
    std::vector<std::string> names;
    for (uint32_t o : node.origin) {
      origin += (origin.empty() ? "" : "\n") + g_.origins()[o].name;
      if (const auto it = rules_.find(o); it != rules_.end())
        for (const std::string &rule : it->second)
          if (std::find(names.begin(), names.end(), rule) == names.end()) names.push_back(rule);
    }
    for (const std::string &rule : names) rules += (rules.empty() ? "" : "\n") + rule;
    for (const auto &[key, value] : {std::pair{"optc.origin", &origin}, std::pair{"optc.rules", &rules}}) {
      if (value->empty()) continue;
      auto *entry = proto.add_metadata_props();
      entry->set_key(key);
      entry->set_value(*value);
    }
  }

  // Types came later than the operators that take them (4-bit integers with opset 21, 2-bit ones with 25).
  Status check_types(NodeId id, const onnx::OpSchema &schema, int64_t version) {
    const Node &node = g_.node(id);
    const auto fits = [&](ValueId v, const std::vector<onnx::OpSchema::FormalParameter> &formals, size_t i) {
      if (!v.valid() || formals.empty()) return true;
      const Type &type = g_.value(v).type;
      if (!type.is_tensor() || type.element == ElementType::kUndefined) return true;
      const auto &allowed = formals[std::min(i, formals.size() - 1)].GetTypes();
      const std::string name = "tensor(" + std::string(onnx_name(type.element)) + ")";
      return std::any_of(allowed.begin(), allowed.end(), [&](const std::string *t) { return *t == name; });
    };
    for (size_t i = 0; i < node.inputs.size() + node.outputs.size(); ++i) {
      const bool in = i < node.inputs.size();
      const ValueId v = in ? node.inputs[i] : node.outputs[i - node.inputs.size()];
      if (fits(v, in ? schema.inputs() : schema.outputs(), in ? i : i - node.inputs.size())) continue;
      return diagnostics_.error(ErrorKind::kUnsupported,
                                "opset " + std::to_string(version) + " has no " + schema.Name() + " of " +
                                    std::string(onnx_name(g_.value(v).type.element)),
                                g_.describe(id));
    }
    return {};
  }

  Status node(NodeId id, onnx::GraphProto &out) {
    const Node &node = g_.node(id);
    const auto [domain, op] = split_op(node.op);
    domains_.insert(domain);
    onnx::NodeProto proto;
    proto.set_op_type(op);
    if (!domain.empty()) proto.set_domain(domain);
    proto.set_name(unique_node_name(node.name));
    for (ValueId input : node.inputs) proto.add_input(use(input));
    for (ValueId output : node.outputs) proto.add_output(output.valid() ? g_.value(output).name : "");
    note_origin(node, proto);
    const int64_t version = domain.empty() ? opset_ : version_of(domain);
    const onnx::OpSchema *schema = schema_at(domain, op, version);
    // Absent operands at the end, where the schema counts them (a Loop without a condition).
    while (schema && proto.input_size() < schema->min_input()) proto.add_input("");
    const bool standard = onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map().count(domain) > 0;
    const onnx::OpSchema *newest = standard ? onnx::OpSchemaRegistry::Schema(op, domain) : nullptr;
    for (const auto &[name, attribute] : node.attributes) {
      onnx::AttributeProto value;
      if (!write_attribute(name, attribute, value))
        return diagnostics_.error(ErrorKind::kInternal, "attribute '" + name + "' cannot be written", g_.describe(id));
      const onnx::OpSchema *reference = schema ? schema : newest;
      if (reference) {
        auto known = reference->attributes().find(name);
        if (known == reference->attributes().end()) {
          auto later = newest->attributes().find(name);
          if (later != newest->attributes().end() && same_attribute(value, later->second.default_value)) continue;
          return diagnostics_.error(ErrorKind::kUnsupported,
                                    "opset " + std::to_string(version) + " has no attribute '" + name + "' of " + op,
                                    g_.describe(id));
        }
        // ONNX's own inference takes STFT for two-sided where the attribute is left out, against its default.
        const bool misread = op == "STFT" && name == "onesided";
        if (same_attribute(value, known->second.default_value) && !misread) continue;
      }
      *proto.add_attribute() = std::move(value);
    }
    for (const auto &[name, nested] : node.regions) {
      auto *attribute = proto.add_attribute();
      attribute->set_name(name);
      attribute->set_type(onnx::AttributeProto::GRAPH);
      attribute->mutable_g()->set_name(node.name + "/" + name);
      OPTC_TRY(region(nested, *attribute->mutable_g()));
    }
    if (standard && !schema) {
      std::vector<onnx::TypeProto> types;
      for (ValueId input : node.inputs) {
        types.emplace_back();
        if (input.valid()) write_type(g_.value(input).type, types.back());
      }
      std::vector<onnx::NodeProto> body;
      if (domain.empty()) body = function_body(proto, types, opset_);
      if (body.empty())
        return diagnostics_.error(
            ErrorKind::kUnsupported,
            "opset " + std::to_string(version) + " has no operator " + node.op + ", nor operators that say it",
            g_.describe(id), "export with a newer opset");
      std::unordered_map<std::string, ElementType> known;
      for (ValueId input : node.inputs)
        if (input.valid() && g_.value(input).type.is_tensor())
          known[g_.value(input).name] = g_.value(input).type.element;
      for (onnx::TensorProto &tensor : take_constants(body, known)) *out.add_initializer() = std::move(tensor);
      for (auto &part : body) {
        part.set_name(unique_node_name(part.name()));
        *out.add_node() = std::move(part);
      }
      return {};
    }
    if (schema) {
      OPTC_TRY(check_types(id, *schema, version));
      try {
        schema->Verify(proto);
      } catch (const std::exception &error) {
        const std::string text(error.what());
        return diagnostics_.error(
            ErrorKind::kUnsupported,
            "opset " + std::to_string(version) + " cannot say the node: " + text.substr(0, text.find('\n')),
            g_.describe(id));
      }
    }
    *out.add_node() = std::move(proto);
    return {};
  }

  static void put_varint(std::string &out, uint64_t value) {
    for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
    out.push_back(static_cast<char>(value));
  }

  // Serializes the model around its constants: GraphProto (field 7) = its own fields + initializers (field 5), each a
  // TensorProto = its own fields + raw_data (field 9), so that constants are written from where they lie.
  Status assemble(const onnx::ModelProto &model, const onnx::GraphProto &graph, bool external, int64_t threshold,
                  const std::string &data_name, Output &out) {
    struct Tensor {
      std::string name;
      Constant constant;
    };
    std::vector<Tensor> tensors;
    const std::vector<ValueId> &inputs = g_.region(Graph::main()).inputs;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (g_.defaults()[i].valid()) tensors.push_back({g_.value(inputs[i]).name, g_.defaults()[i]});
    for (ValueId id : constants_) tensors.push_back({g_.value(id).name, g_.value(id).constant});
    std::vector<Chunk> parts;
    size_t body = 0, data_end = 0;
    for (const Tensor &tensor : tensors) {
      out.facts.parameter_bytes += static_cast<int64_t>(tensor.constant.size());
      onnx::TensorProto proto;
      bool raw = write_tensor_header(tensor.name, tensor.constant, proto);
      if (raw && external && static_cast<int64_t>(tensor.constant.size()) >= threshold) {
        data_end = (data_end + kExternalAlignment - 1) / kExternalAlignment * kExternalAlignment;
        proto.set_data_location(onnx::TensorProto::EXTERNAL);
        auto put = [&](const char *key, const std::string &value) {
          auto *entry = proto.add_external_data();
          entry->set_key(key);
          entry->set_value(value);
        };
        put("location", data_name);
        put("offset", std::to_string(data_end));
        put("length", std::to_string(tensor.constant.size()));
        out.external.emplace_back(data_end, tensor.constant);
        data_end += tensor.constant.size();
        raw = false;
      }
      std::string header, tail;
      if (!proto.SerializeToString(&header))
        return diagnostics_.error(ErrorKind::kInternal, "a tensor cannot be serialized");
      size_t length = header.size();
      if (raw) {
        put_varint(tail, 9 << 3 | 2);
        put_varint(tail, tensor.constant.size());
        length += tail.size() + tensor.constant.size();
      }
      Chunk chunk;
      put_varint(chunk.text, 5 << 3 | 2);
      put_varint(chunk.text, length);
      chunk.text += header + tail;
      body += chunk.text.size();
      if (raw) {
        body += tensor.constant.size();
        chunk.constant = tensor.constant;
      }
      parts.push_back(std::move(chunk));
    }
    Chunk head;
    std::string graph_bytes;
    if (!model.SerializePartialToString(&head.text) || !graph.SerializePartialToString(&graph_bytes))
      return diagnostics_.error(ErrorKind::kInternal, "the model cannot be serialized");
    put_varint(head.text, 7 << 3 | 2);
    put_varint(head.text, graph_bytes.size() + body);
    head.text += graph_bytes;
    out.model_size = head.text.size() + body;
    out.model.push_back(std::move(head));
    for (Chunk &chunk : parts) out.model.push_back(std::move(chunk));
    return {};
  }

  Graph &g_;
  int64_t opset_;
  const RulesByOrigin &rules_;
  Diagnostics &diagnostics_;
  std::unordered_set<uint32_t> used_;
  std::vector<ValueId> constants_;
  std::set<std::string> domains_;
  std::unordered_set<std::string> node_names_;
  std::unordered_map<std::string, int> next_suffix_;
};

// Exports at the wished opset; without a wish at the model's own, or the lowest above it that can say the Graph.
Result<Output> export_graph(const Graph &graph, const ExportOptions &options, bool external,
                            const std::string &data_name, Diagnostics &diagnostics) {
  if (options.opset > kNewestOpset || options.opset < 0)
    return diagnostics.error(ErrorKind::kUsage, "opset " + std::to_string(options.opset) + "; versions 1 to " +
                                                    std::to_string(kNewestOpset) + " can be written");
  if (options.opset) {
    Graph copy = graph.clone();
    return Exporter(copy, options.opset, options.rules, diagnostics)
        .run(external, options.external_threshold, data_name);
  }
  const int64_t own = opset_of(graph);
  std::string reason;
  for (int64_t opset = own;; ++opset) {
    Graph copy = graph.clone();
    Diagnostics attempt;
    Result<Output> output =
        Exporter(copy, opset, options.rules, attempt).run(external, options.external_threshold, data_name);
    if (output.ok()) {
      if (opset != own)
        diagnostics.warning("written with opset " + std::to_string(opset) + " instead of the model's own " +
                            std::to_string(own) + ": " + reason);
      return output;
    }
    if (opset >= kNewestOpset || output.failure().kind != ErrorKind::kUnsupported) {
      for (const Diagnostic &d : attempt.all()) (void)diagnostics.add(d);
      return output.failure();
    }
    if (reason.empty() && !attempt.all().empty()) reason = attempt.all().front().message;
  }
}

}  // namespace

Result<std::string> export_model(const Graph &graph, const ExportOptions &options, Diagnostics &diagnostics) {
  OPTC_ASSIGN(const Output output, export_graph(graph, options, false, "", diagnostics));
  if (output.model_size > kMaxProtobuf)
    return diagnostics.error(ErrorKind::kUnsupported, "the model has more than 2 GB and needs external data");
  std::string bytes;
  bytes.reserve(output.model_size);
  for (const Chunk &chunk : output.model) {
    bytes += chunk.text;
    if (chunk.constant.valid())
      chunk.constant.give([&](const void *data, size_t size) {
        bytes.append(static_cast<const char *>(data), size);
        return true;
      });
  }
  return bytes;
}

int64_t ir_of_opset(int64_t opset) {
  struct Row {
    int64_t opset, ir;
  };
  constexpr Row kRows[] = {{28, 14}, {25, 13}, {24, 12}, {23, 11}, {21, 10},
                           {19, 9},  {15, 8},  {12, 7},  {11, 6},  {10, 5}};
  for (const Row &row : kRows)
    if (opset >= row.opset) return row.ir;
  return 4;
}

int64_t opset_of(const Graph &graph) {
  int64_t own = 0;
  for (const auto &[domain, version] : graph.info().opset_imports)
    if (domain.empty()) own = std::max(own, version);
  return own ? own : kNewestOpset;
}

bool opset_has(int64_t opset, std::string_view op, ElementType of) {
  const auto [domain, name] = split_op(op);
  if (!domain.empty()) return false;
  const onnx::OpSchema *schema = schema_at("", name, opset);
  if (!schema || schema->inputs().empty()) return schema != nullptr;
  const auto &allowed = schema->inputs()[0].GetTypes();
  const std::string type = "tensor(" + std::string(onnx_name(of)) + ")";
  return std::any_of(allowed.begin(), allowed.end(), [&](const std::string *t) { return *t == type; });
}

FileFacts facts_of_file(const Graph &graph) {
  FileFacts facts;
  for (const auto &[domain, version] : graph.info().opset_imports)
    if (domain.empty()) facts.opset = std::max(facts.opset, version);
  for (const NodeId n : graph.all_nodes()) {
    ++facts.nodes;
    ++facts.operators[graph.node(n).op];
  }
  for (size_t i = 0; i < graph.value_capacity(); ++i)
    if (const Value &v = graph.value(ValueId(i)); v.alive && v.kind == ValueKind::kConstant)
      facts.parameter_bytes += static_cast<int64_t>(v.constant.size());
  for (const Constant &constant : graph.defaults())
    if (constant.valid()) facts.parameter_bytes += static_cast<int64_t>(constant.size());
  return facts;
}

Status export_file(const Graph &graph, const std::string &path, const ExportOptions &options, Diagnostics &diagnostics,
                   FileFacts *facts) {
  const std::string data_path = path + ".data";
  const size_t slash = data_path.rfind('/');
  const std::string data_name = slash == std::string::npos ? data_path : data_path.substr(slash + 1);
  OPTC_ASSIGN(Output output, export_graph(graph, options, options.external, data_name, diagnostics));
  if (output.model_size > kMaxProtobuf && !options.external) {
    OPTC_ASSIGN(output, export_graph(graph, options, true, data_name, diagnostics));
  }
  if (output.model_size > kMaxProtobuf)
    return diagnostics.error(ErrorKind::kUnsupported, "the model has more than 2 GB besides its large constants");
  if (facts) *facts = output.facts;
  if (path.empty()) return {};
  const auto write = [](StagedFile &to, const Constant &constant) {
    constant.give([&](const void *data, size_t size) {
      to.write(data, size);
      return true;
    });
  };
  OPTC_ASSIGN(const auto file, StagedFile::create(path, diagnostics));
  if (!output.external.empty()) {
    OPTC_ASSIGN(const auto data, StagedFile::create(data_path, diagnostics));
    size_t at = 0;
    const std::string zeros(kExternalAlignment, '\0');
    for (const auto &[offset, constant] : output.external) {
      data->write(zeros.data(), offset - at);
      write(*data, constant);
      at = offset + constant.size();
    }
    OPTC_TRY(data->commit(diagnostics));
  }
  for (const Chunk &chunk : output.model) {
    file->write(chunk.text.data(), chunk.text.size());
    if (chunk.constant.valid()) write(*file, chunk.constant);
  }
  return file->commit(diagnostics);
}

}  // namespace optc
