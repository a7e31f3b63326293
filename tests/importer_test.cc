// What a right model becomes: constants in every stored form, defaults, symbols, functions, subgraphs, order.
#include "importer/importer.h"

#include <gtest/gtest.h>
#include <onnx/defs/parser.h>
#include <onnx/onnx_pb.h>

#include <cmath>
#include <cstring>

#include "importer/wire.h"
#include "ir/graph/text.h"

namespace optc {
namespace {

struct Imported {
  Diagnostics diagnostics;
  Result<Graph> graph = Failure{};
  std::string text() const {
    std::string all;
    for (const auto &d : diagnostics.all()) all += format(d);
    return all;
  }
};

Imported import_proto(const onnx::ModelProto &model, const ImportOptions &options = {}) {
  Imported result;
  auto bytes = std::make_shared<std::string>(model.SerializeAsString());
  result.graph = import_bytes(*bytes, bytes, "", options, result.diagnostics);
  return result;
}

onnx::ModelProto parse(const char *text) {
  onnx::ModelProto model;
  onnx::OnnxParser parser(text);
  const auto status = parser.Parse(model);
  EXPECT_TRUE(status.IsOK()) << status.ErrorMessage();
  return model;
}

Imported import_text(const char *text, const ImportOptions &options = {}) { return import_proto(parse(text), options); }

std::string printed(const Graph &graph) {
  PrintOptions options;
  options.origins = false;
  return print(graph, options);
}

TEST(Importer, DefaultsAreFilledIn) {
  auto r = import_text(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (float[N, 4] x) => (float[N, 4] y) { y = Softmax(x) })");
  ASSERT_TRUE(r.graph.ok()) << r.text();
  const Graph &g = *r.graph;
  const NodeId node = g.nodes(Graph::main()).at(0);
  ASSERT_NE(g.node(node).attribute("axis"), nullptr);
  EXPECT_EQ(g.node(node).int_or("axis", 99), -1);
  EXPECT_EQ(to_string(g.value(g.node(node).outputs[0]).type), "f32[N,4]");
}

TEST(Importer, ConstantNodesOfEveryForm) {
  auto r = import_text(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (int64[3] x) => (int64[3] a, int64[3] b, int64 c, float[2] d, float e, int64[3] f) {
      k = Constant <value = int64[3] {1, 2, 3}> ()
      a = Add(x, k)
      i = Constant <value_ints = [4, 5, 6]> ()
      b = Add(x, i)
      c = Constant <value_int = 7> ()
      d = Constant <value_floats = [0.5, -1.0]> ()
      e = Constant <value_float = 2.5> ()
      f = Identity(k)
    })");
  ASSERT_TRUE(r.graph.ok()) << r.text();
  const Graph &g = *r.graph;
  for (NodeId n : g.nodes(Graph::main())) EXPECT_NE(g.node(n).op, "Constant");
  EXPECT_EQ(g.constant(g.find_value("i"))->as_int64(2), 6);
  EXPECT_EQ(g.constant(g.find_value("c"))->rank(), 0);
  EXPECT_EQ(g.constant(g.find_value("c"))->as_int64(0), 7);
  EXPECT_EQ(g.constant(g.find_value("d"))->as<float>()[1], -1.0f);
  EXPECT_EQ(g.constant(g.find_value("e"))->as<float>()[0], 2.5f);
}

TEST(Importer, SparseInitializerBecomesDense) {
  auto model =
      parse(R"(<ir_version: 8, opset_import: ["" : 17]> g (float[2, 3] x) => (float[2, 3] y) { y = Add(x, w) })");
  auto *sparse = model.mutable_graph()->add_sparse_initializer();
  for (int64_t d : {2, 3}) sparse->add_dims(d);
  sparse->mutable_values()->set_name("w");
  sparse->mutable_values()->set_data_type(onnx::TensorProto::FLOAT);
  sparse->mutable_values()->add_dims(2);
  for (float f : {1.5f, 2.5f}) sparse->mutable_values()->add_float_data(f);
  sparse->mutable_indices()->set_data_type(onnx::TensorProto::INT64);
  for (int64_t d : {2, 2}) sparse->mutable_indices()->add_dims(d);
  for (int64_t i : {0, 2, 1, 0}) sparse->mutable_indices()->add_int64_data(i);
  auto r = import_proto(model);
  ASSERT_TRUE(r.graph.ok()) << r.text();
  const Constant *w = r.graph->constant(r.graph->find_value("w"));
  ASSERT_NE(w, nullptr);
  const float want[6] = {0, 0, 1.5f, 2.5f, 0, 0};
  EXPECT_EQ(0, std::memcmp(w->as<float>(), want, sizeof(want)));
}

TEST(Importer, TypedFieldsOfNarrowTypes) {
  auto model = parse(R"(<ir_version: 10, opset_import: ["" : 21]> g (float[3] x) => (float[3] y) { y = Identity(x) })");
  auto add = [&](const char *name, int type, std::initializer_list<int> data) {
    auto *t = model.mutable_graph()->add_initializer();
    t->set_name(name);
    t->set_data_type(type);
    t->add_dims(3);
    for (int d : data) t->add_int32_data(d);
    auto *n = model.mutable_graph()->add_node();
    n->set_op_type("Identity");
    n->add_input(name);
    n->add_output(std::string(name) + "_out");
    auto *o = model.mutable_graph()->add_output();
    o->set_name(std::string(name) + "_out");
  };
  add("half", onnx::TensorProto::FLOAT16, {0x3C00, 0xC000, 0x7C00});
  add("nibble", onnx::TensorProto::INT4, {0xF1, 0x07});  // 1, -1, 7
  add("flag", onnx::TensorProto::BOOL, {0, 2, 1});
  add("byte", onnx::TensorProto::INT8, {-1, 127, -128});
  auto r = import_proto(model);
  ASSERT_TRUE(r.graph.ok()) << r.text();
  auto at = [&](const char *name, int i) { return r.graph->constant(r.graph->find_value(name))->as_double(i); };
  EXPECT_EQ(at("half", 0), 1.0);
  EXPECT_EQ(at("half", 1), -2.0);
  EXPECT_TRUE(std::isinf(at("half", 2)));
  EXPECT_EQ(at("nibble", 0), 1);
  EXPECT_EQ(at("nibble", 1), -1);
  EXPECT_EQ(at("nibble", 2), 7);
  EXPECT_EQ(at("flag", 1), 1);
  EXPECT_EQ(at("byte", 2), -128);
}

TEST(Importer, RawDataIsMappedNotCopied) {
  auto model = parse(
      R"(<ir_version: 8, opset_import: ["" : 17]> g (float[1024, 512] x) => (float[1024, 512] y) { y = Add(x, w) })");
  auto *w = model.mutable_graph()->add_initializer();
  w->set_name("w");
  w->set_data_type(onnx::TensorProto::FLOAT);
  for (int64_t d : {1024, 512}) w->add_dims(d);
  std::vector<float> values(1024 * 512);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  w->set_raw_data(values.data(), values.size() * 4);
  auto bytes = std::make_shared<std::string>(model.SerializeAsString());
  Diagnostics diagnostics;
  auto graph = import_bytes(*bytes, bytes, "", {}, diagnostics);
  ASSERT_TRUE(graph.ok());
  const Constant *c = graph->constant(graph->find_value("w"));
  const auto *begin = reinterpret_cast<const uint8_t *>(bytes->data());
  EXPECT_TRUE(c->data() >= begin && c->data() + c->size() <= begin + bytes->size());
  EXPECT_EQ(0, std::memcmp(c->data(), values.data(), c->size()));
}

TEST(Importer, InitializerThatIsAnInputIsADefault) {
  auto model = parse(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) })");
  auto r = import_proto(model);
  ASSERT_TRUE(r.graph.ok()) << r.text();
  EXPECT_EQ(r.graph->region(Graph::main()).inputs.size(), 2u);
  EXPECT_FALSE(r.graph->defaults()[0].valid());
  ASSERT_TRUE(r.graph->defaults()[1].valid());
  EXPECT_EQ(r.graph->defaults()[1].as_double(1), 2.0);
  ImportOptions constant;
  constant.constant_defaults = true;
  r = import_proto(model, constant);
  ASSERT_TRUE(r.graph.ok()) << r.text();
  EXPECT_EQ(r.graph->region(Graph::main()).inputs.size(), 1u);
  EXPECT_TRUE(r.graph->is_constant(r.graph->find_value("w")));
  model.set_ir_version(3);  // there the list of inputs had to repeat every weight
  r = import_proto(model);
  ASSERT_TRUE(r.graph.ok()) << r.text();
  EXPECT_EQ(r.graph->region(Graph::main()).inputs.size(), 1u);
  EXPECT_TRUE(r.graph->is_constant(r.graph->find_value("w")));
}

TEST(Importer, DimensionNames) {
  auto model = parse(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (float[past, 4] p, float[N, 4] x, float[N, 4] z) => (float[N, 4] y) { y = Add(x, z)  q = Identity(p) })");
  auto dim = [&](int input, int axis) {
    return model.mutable_graph()
        ->mutable_input(input)
        ->mutable_type()
        ->mutable_tensor_type()
        ->mutable_shape()
        ->mutable_dim(axis);
  };
  dim(0, 0)->set_dim_param("past + 1");  // no input says what `past` is: a name like any other
  dim(0, 1)->set_dim_param("-1");
  dim(1, 1)->set_dim_param("2*N + 1");  // N is known
  dim(2, 1)->set_dim_param("2*N + 1");
  model.mutable_graph()->mutable_output(0)->clear_type();
  auto r = import_proto(model);
  ASSERT_TRUE(r.graph.ok()) << r.text();
  const auto &inputs = r.graph->region(Graph::main()).inputs;
  EXPECT_EQ(to_string(r.graph->value(inputs[0]).type), "f32[past_1,p_d1]");
  EXPECT_EQ(to_string(r.graph->value(inputs[1]).type), "f32[N,2*N + 1]");
  ImportOptions pins;
  pins.dims.push_back({"N", 3, 3});
  r = import_proto(model, pins);
  ASSERT_TRUE(r.graph.ok()) << r.text();
  EXPECT_EQ(to_string(r.graph->value(r.graph->find_value("y")).type), "f32[3,7]");
  pins.dims[0].name = "M";
  r = import_proto(model, pins);
  ASSERT_FALSE(r.graph.ok());
  EXPECT_EQ(r.graph.failure().kind, ErrorKind::kUsage);
  EXPECT_NE(r.text().find("no dimension named 'M'"), std::string::npos) << r.text();
}

TEST(Importer, UnsortedNodesAreSorted) {
  auto r = import_text(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (float[2] x) => (float[2] y) { y = Neg(b)  b = Abs(a)  a = Exp(x) })");
  ASSERT_TRUE(r.graph.ok()) << r.text();
  std::string ops;
  for (NodeId n : r.graph->nodes(Graph::main())) ops += r.graph->node(n).op + " ";
  EXPECT_EQ(ops, "Exp Abs Neg ");
}

TEST(Importer, AnOutputMayBeListedAgain) {
  auto r = import_text(R"(<ir_version: 8, opset_import: ["" : 17]>
    twice (float[n] x) => (float[n] y, float[n] z, float[n] y) {
      y = Exp(x)
      z = Neg(y)
    })");
  ASSERT_TRUE(r.graph.ok()) << r.text();
  const auto &outputs = r.graph->region(Graph::main()).outputs;
  ASSERT_EQ(outputs.size(), 3u);
  EXPECT_EQ(outputs[0], outputs[2]);
}

TEST(Importer, FunctionsAreInlinedWithNestedAttributeReferences) {
  auto r = import_text(R"(<ir_version: 9, opset_import: ["" : 18, "local" : 1]>
    g (float[N, 4] x) => (float[N, 4] y, float[N, 4] z) {
      y = local.outer <slope: float = 0.25> (x)
      z = local.outer (x)
    }
    <domain: "local", opset_import: ["" : 18, "local" : 1]>
    outer <slope: float = 0.5> (a) => (b) { t = local.inner <alpha: float = @slope> (a)  b = Neg(t) }
    <domain: "local", opset_import: ["" : 18]>
    inner <alpha> (a) => (b) { b = LeakyRelu <alpha: float = @alpha> (a) })");
  ASSERT_TRUE(r.graph.ok()) << r.text();
  const Graph &g = *r.graph;
  const auto nodes = g.nodes(Graph::main());
  ASSERT_EQ(nodes.size(), 4u) << printed(g);
  EXPECT_EQ(g.node(nodes[0]).op, "LeakyRelu");
  EXPECT_EQ(g.node(nodes[0]).float_or("alpha", 0), 0.25f);
  EXPECT_EQ(g.node(nodes[2]).float_or("alpha", 0), 0.5f);
  EXPECT_EQ(g.value(g.region(Graph::main()).outputs[0]).name, "y");
  EXPECT_EQ(to_string(g.value(g.region(Graph::main()).outputs[1]).type), "f32[N,4]");
}

TEST(Importer, OldOperatorVersionsAreBroughtUp) {
  auto r = import_text(R"(<ir_version: 6, opset_import: ["" : 9]>
    g (float[2, 3] x) => (float[1, 2, 3] y) { y = Unsqueeze <axes = [0]> (x) })");
  ASSERT_TRUE(r.graph.ok()) << r.text();
  const Graph &g = *r.graph;
  const Node &node = g.node(g.nodes(Graph::main()).back());
  EXPECT_EQ(node.op, "Unsqueeze");
  EXPECT_EQ(node.attribute("axes"), nullptr);
  ASSERT_EQ(node.inputs.size(), 2u);
  EXPECT_EQ(to_string(g.value(node.outputs[0]).type), "f32[1,2,3]");
}

TEST(Wire, ReducedStreamHoldsEverythingButRawData) {
  auto model = parse(R"(<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Add(x, w) })");
  auto *w = model.mutable_graph()->add_initializer();
  w->set_name("w");
  w->set_data_type(1);
  w->add_dims(2);
  w->set_raw_data(std::string("\1\2\3\4\5\6\7\10", 8));
  const std::string bytes = model.SerializeAsString();
  Diagnostics diagnostics;
  auto scan = scan_model(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size(), diagnostics);
  ASSERT_TRUE(scan.ok());
  ASSERT_EQ(scan->raw.size(), 1u);
  EXPECT_EQ(bytes.substr(scan->raw[0].offset, scan->raw[0].length), w->raw_data());
  onnx::ModelProto reduced;
  ASSERT_TRUE(reduced.ParseFromString(scan->reduced));
  EXPECT_EQ(reduced.graph().initializer(0).raw_data().size(), 4u);
  reduced.mutable_graph()->mutable_initializer(0)->set_raw_data(w->raw_data());
  EXPECT_EQ(reduced.SerializeAsString(), bytes);
}

}  // namespace
}  // namespace optc
