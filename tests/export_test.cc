// Graph -> ONNX: names, attributes, captures, older opsets. Equal results under a runtime are checked by
// tests/python/test_roundtrip.py.
#include "emit/onnx/export.h"

#include <gtest/gtest.h>
#include <onnx/checker.h>
#include <onnx/defs/parser.h>
#include <onnx/onnx_pb.h>

#include <filesystem>

#include "importer/importer.h"
#include "ir/graph/text.h"

namespace optc {
namespace {

Result<Graph> import_text(const char *text) {
  onnx::ModelProto model;
  onnx::OnnxParser parser(text);
  const auto status = parser.Parse(model);
  EXPECT_TRUE(status.IsOK()) << status.ErrorMessage();
  auto bytes = std::make_shared<std::string>(model.SerializeAsString());
  Diagnostics diagnostics;
  auto graph = import_bytes(*bytes, bytes, "", {}, diagnostics);
  for (const auto &d : diagnostics.all()) ADD_FAILURE() << format(d);
  return graph;
}

onnx::ModelProto exported(const Graph &graph, int64_t opset = 0) {
  Diagnostics diagnostics;
  ExportOptions options;
  options.opset = opset;
  auto bytes = export_model(graph, options, diagnostics);
  for (const auto &d : diagnostics.all()) ADD_FAILURE() << format(d);
  onnx::ModelProto model;
  if (bytes.ok()) {
    EXPECT_TRUE(model.ParseFromString(*bytes));
    EXPECT_NO_THROW(onnx::checker::check_model(model, true));
  }
  return model;
}

TEST(Export, NamesTypesAndAttributes) {
  auto graph = import_text(R"(<ir_version: 8, opset_import: ["" : 17], producer_name: "p">
    net (float[N, 4] x) => (float[N, 4] y) <float[4] w = {1, 2, 3, 4}> { t = Add(x, w)  y = Softmax <axis = 0> (t) })");
  ASSERT_TRUE(graph.ok());
  const auto model = exported(*graph);
  EXPECT_EQ(model.graph().name(), "net");
  EXPECT_EQ(model.producer_name(), "p");
  EXPECT_EQ(model.opset_import(0).version(), 17);
  ASSERT_EQ(model.graph().node_size(), 2);
  EXPECT_EQ(model.graph().node(0).input(1), "w");
  EXPECT_EQ(model.graph().node(1).attribute(0).i(), 0);
  EXPECT_EQ(model.graph().input(0).type().tensor_type().shape().dim(0).dim_param(), "N");
  EXPECT_EQ(model.graph().initializer(0).raw_data().size(), 16u);
}

TEST(Export, OlderFormsOfOperators) {
  auto graph = import_text(R"(<ir_version: 8, opset_import: ["" : 17]>
    net (float[2, 3] x) => (float[1, 2, 3] y) { a = Constant <value_ints = [0]> ()  y = Unsqueeze(x, a) })");
  ASSERT_TRUE(graph.ok());
  const auto model = exported(*graph, 11);
  ASSERT_EQ(model.graph().node_size(), 1);
  EXPECT_EQ(model.graph().node(0).input_size(), 1);
  ASSERT_EQ(model.graph().node(0).attribute_size(), 1);
  EXPECT_EQ(model.graph().node(0).attribute(0).name(), "axes");
}

TEST(Export, FunctionBodyWhereTheOpsetLacksTheOperator) {
  auto graph = import_text(R"(<ir_version: 9, opset_import: ["" : 20]>
    net (float[2, 3] x) => (float[2, 3] y) { y = Gelu(x) })");
  ASSERT_TRUE(graph.ok());
  const auto model = exported(*graph, 17);
  EXPECT_GT(model.graph().node_size(), 3);
  bool erf = false;
  for (const auto &node : model.graph().node()) {
    EXPECT_NE(node.op_type(), "Gelu");
    erf |= node.op_type() == "Erf";
  }
  EXPECT_TRUE(erf);
}

TEST(Export, ExternalDataReadsBack) {
  std::string weights;
  for (int i = 0; i < 1024; ++i) weights += (i ? "," : "") + std::to_string(i % 7);
  const std::string text =
      R"(<ir_version: 8, opset_import: ["" : 17]> net (float[1024] x) => (float[1024] y) <float[1024] w = {)" +
      weights + "}, float[1] s = {2}> { t = Add(x, w)  y = Mul(t, s) }";
  auto graph = import_text(text.c_str());
  ASSERT_TRUE(graph.ok());
  const std::string path = (std::filesystem::temp_directory_path() / "optc_export_test.onnx").string();
  Diagnostics diagnostics;
  ExportOptions options;
  options.external = true;
  ASSERT_TRUE(export_file(*graph, path, options, diagnostics).ok());
  EXPECT_EQ(std::filesystem::file_size(path + ".data"), 4096u);
  auto again = import_model(path, {}, diagnostics);
  for (const auto &d : diagnostics.all()) ADD_FAILURE() << format(d);
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->constant(again->find_value("w"))->equals(*graph->constant(graph->find_value("w"))));
  EXPECT_TRUE(again->constant(again->find_value("s"))->equals(*graph->constant(graph->find_value("s"))));
  std::filesystem::remove(path);
  std::filesystem::remove(path + ".data");
}

TEST(Export, BranchThatGivesBackAnOuterValue) {
  auto graph = import_text(R"(<ir_version: 8, opset_import: ["" : 17]>
    net (bool c, float[2] x) => (float[2] y) {
      t = Neg(x)
      y = If (c) <then_branch = a () => (float[2] u) { u = Identity(t) }, else_branch = b () => (float[2] v) { v = Abs(x) }>
    })");
  ASSERT_TRUE(graph.ok());
  const auto model = exported(*graph);
  EXPECT_EQ(model.graph().node_size(), 2);
}

// Exporters scale queries and keys of 16 bits before their product, which would overflow; the fused operator keeps
// that.
TEST(Export, AttentionOfHalvesIsScaledBeforeTheProduct) {
  Diagnostics diagnostics;
  const auto graph = parse_graph(R"(graph "g" (q: f16[1,2,3,4], k: f16[1,2,5,4], v: f16[1,2,5,4]) -> (y) {
    opset "" 24
    y: f16[1,2,3,4] = optc.Attention(q, k, v) {scale = 0.2}
})",
                                 diagnostics);
  ASSERT_TRUE(graph.ok());
  const auto model = exported(*graph, 24);
  std::vector<std::string> ops;
  for (const auto &node : model.graph().node()) {
    ops.push_back(node.op_type());
    EXPECT_NE(node.op_type(), "Attention");
  }
  EXPECT_EQ(ops, (std::vector<std::string>{"Mul", "Mul", "Transpose", "MatMul", "Softmax", "MatMul"}));
}

}  // namespace
}  // namespace optc
