// The ONNX library that is linked is the one that the design names: version, the domain ai.onnx.ml, schemas, parser.
#include <gtest/gtest.h>
#include <onnx/common/version.h>
#include <onnx/defs/parser.h>
#include <onnx/defs/schema.h>
#include <onnx/onnx_pb.h>

#include <string>

TEST(OnnxLibrary, VersionIsThePinnedOne) { EXPECT_EQ(std::string(onnx::LAST_RELEASE_VERSION), "1.23.2"); }

TEST(OnnxLibrary, SchemasOfBothDomainsAreRegistered) {
  EXPECT_NE(onnx::OpSchemaRegistry::Schema("Conv", 22, ""), nullptr);
  EXPECT_NE(onnx::OpSchemaRegistry::Schema("LinearClassifier", 1, "ai.onnx.ml"), nullptr);
}

TEST(OnnxLibrary, TextFormParses) {
  onnx::GraphProto graph;
  onnx::OnnxParser parser("g (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }");
  ASSERT_TRUE(parser.Parse(graph).IsOK());
  ASSERT_EQ(graph.node_size(), 1);
  EXPECT_EQ(graph.node(0).op_type(), "Relu");
}
