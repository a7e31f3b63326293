#include <gtest/gtest.h>

#include "ir/graph/graph.h"
#include "ir/graph/rewriter.h"
#include "ir/graph/text.h"
#include "ir/graph/verifier.h"

namespace optc {
namespace {

constexpr const char *kMlp = R"(graph "mlp" (x: f32[N,4], `odd name:0`: i64[] default [3]) -> (y) {
  opset "" 17
  const w: f32[4,2] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, -0.5]
  const b: f32[2] = splat 0.25
  h: f32[N,2] = MatMul(x, w) @ "fc/MatMul"
  s: f32[N,2] = Add(h, b) {} @ "fc/Add"
  c: bool[] = Cast(`odd name:0`) {to = 9} @ "c"
  y: f32[N,2] = If(c) @ "if"
    region then_branch () -> (t) {
      t: f32[N,2] = Relu(s) @ "t"
    }
    region else_branch () -> (e) {
      e: f32[N,2] = LeakyRelu(s, _, s) {alpha = 0.5, list = ints [1, 2], name = "a\"b", value = tensor i4[3] [1, -2, 3]} @ "e", "f"
    }
}
)";

TEST(GraphText, PrintsAndParsesBack) {
  Diagnostics diagnostics;
  Result<Graph> graph = parse_graph(kMlp, diagnostics);
  ASSERT_TRUE(graph.ok()) << (diagnostics.all().empty() ? "" : format(diagnostics.all()[0]));
  ASSERT_TRUE(verify(*graph, diagnostics).ok()) << format(diagnostics.all()[0]);
  const std::string text = print(*graph);
  Result<Graph> again = parse_graph(text, diagnostics);
  ASSERT_TRUE(again.ok()) << text << format(diagnostics.all()[0]);
  EXPECT_EQ(print(*again), text);
  const auto captured = graph->captures(graph->node(graph->nodes(Graph::main()).back()).regions[0].second);
  ASSERT_EQ(captured.size(), 1u);
  EXPECT_EQ(graph->value(captured[0]).name, "s");
}

TEST(GraphText, WrongTextIsOneClearError) {
  for (const char *text : {"", "graph \"a\" (", "graph \"a\" () -> (y) {}", "graph \"a\" (x: f99[1]) -> (x) {}",
                           "graph \"a\" (x: f32[1]) -> (x) { y: f32[1] = Relu(z) }"}) {
    Diagnostics diagnostics;
    EXPECT_FALSE(parse_graph(text, diagnostics).ok()) << text;
    EXPECT_EQ(diagnostics.all().size(), 1u) << text;
  }
}

class CopyType : public TypeInference {  // every output has the type of the first input
 public:
  Status infer(Graph &graph, NodeId node, Diagnostics &) const override {
    for (ValueId v : graph.node(node).outputs) graph.set_type(v, graph.value(graph.node(node).inputs[0]).type);
    return {};
  }
};

TEST(Rewriter, RecordsWhatItDidAndKeepsOutputNames) {
  Diagnostics diagnostics;
  Graph g = *parse_graph(R"(graph "g" (x: f32[4]) -> (y) {
    a: f32[4] = Neg(x) @ "one"
    y: f32[4] = Neg(a) @ "two"
  })",
                         diagnostics);
  CopyType inference;
  Rewriter rewriter(g, inference, diagnostics);
  rewriter.set_pass("identities");
  const std::vector<NodeId> nodes = g.nodes(Graph::main());
  const ValueId x = g.region(Graph::main()).inputs[0], y = g.node(nodes[1]).outputs[0];
  auto change = rewriter.begin("neg.neg", RewriteKind::kReplace, nodes[1]);
  const NodeId copy = change.create("Identity", {x});
  change.replace(y, change.output(copy));
  change.erase(nodes[0]);
  change.erase(nodes[1]);
  ASSERT_TRUE(change.commit().ok());
  ASSERT_TRUE(verify(g, diagnostics).ok()) << format(diagnostics.all()[0]);
  EXPECT_EQ(g.value(g.region(Graph::main()).outputs[0]).name, "y");
  ASSERT_EQ(rewriter.records().size(), 1u);
  const RewriteRecord &record = rewriter.records()[0];
  EXPECT_EQ(record.rule, "neg.neg");
  EXPECT_EQ(record.removed.size(), 2u);
  ASSERT_EQ(record.created.size(), 1u);
  EXPECT_EQ(record.created[0].origin.size(), 2u);
}

TEST(Rewriter, ConditionsFollowASizeThatAnotherValueFinds) {
  Diagnostics diagnostics;
  Graph g;
  const auto found = [&](const char *name) { return g.dims()->new_symbol(SymbolKind::kData, name); };
  const ValueId x = g.add_input(Graph::main(), "x", Type::tensor(ElementType::kFloat32, Shape{4}));
  std::vector<NodeId> nodes;
  for (const char *name : {"a", "b"})
    nodes.push_back(g.add_node(Graph::main(), "Neg", name, {x},
                               {{name, Type::tensor(ElementType::kFloat32, Shape{found(name)})}}, {}));
  const ValueId a = g.node(nodes[0]).outputs[0], b = g.node(nodes[1]).outputs[0];
  g.set_outputs(Graph::main(), {a, b});
  const Dim size_a = (*g.value(a).type.shape)[0], size_b = (*g.value(b).type.shape)[0];
  g.set_conditions({{{size_b + 1, 4, true, "node 'asks'"}, Graph::main()}});
  EXPECT_NE(print(g).find("require b + 1 == 4 or 1 @ \"node 'asks'\""), std::string::npos) << print(g);
  CopyType inference;
  Rewriter rewriter(g, inference, diagnostics);
  auto change = rewriter.begin("same", RewriteKind::kReplace, nodes[1]);
  change.replace(b, a);
  change.erase(nodes[1]);
  ASSERT_TRUE(change.commit().ok());
  ASSERT_EQ(g.conditions().size(), 1u);
  EXPECT_EQ(g.conditions()[0].constraint.left, size_a + 1);
  EXPECT_EQ(print(*parse_graph(print(g), diagnostics)), print(g));
}

TEST(Rewriter, ErasingAUsedNodeIsRefused) {
  Diagnostics diagnostics;
  Graph g = *parse_graph("graph \"g\" (x: f32[4]) -> (y) { y: f32[4] = Neg(x) }", diagnostics);
  CopyType inference;
  Rewriter rewriter(g, inference, diagnostics);
  auto change = rewriter.begin("wrong", RewriteKind::kRemove, g.nodes(Graph::main())[0]);
  change.erase(g.nodes(Graph::main())[0]);
  EXPECT_FALSE(change.commit().ok());
  EXPECT_EQ(diagnostics.all()[0].kind, ErrorKind::kInternal);
  ASSERT_EQ(rewriter.records().size(), 1u);  // it is to blame
  EXPECT_EQ(rewriter.records()[0].rule, "wrong");
}

TEST(Rewriter, WhatInferenceRefusesIsTheLastRecord) {
  Diagnostics diagnostics;
  Graph g = *parse_graph("graph \"g\" (x: f32[4]) -> (y) { y: f32[4] = Neg(x) }", diagnostics);
  struct Refuses : TypeInference {
    Status infer(Graph &graph, NodeId n, Diagnostics &d) const override {
      return d.error(ErrorKind::kInvalid, "no such node", graph.describe(n));
    }
  } inference;
  Rewriter rewriter(g, inference, diagnostics);
  const NodeId n = g.nodes(Graph::main())[0];
  auto change = rewriter.begin("wrong", RewriteKind::kReplace, n);
  const NodeId made = change.create("Abs", {g.region(Graph::main()).inputs[0]});
  change.replace(g.node(n).outputs[0], change.output(made));
  change.erase(n);
  const Status done = change.commit();
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.failure().kind, ErrorKind::kInvalid);
  ASSERT_EQ(rewriter.records().size(), 1u);
  EXPECT_EQ(rewriter.records()[0].rule, "wrong");
}

TEST(SmallFloats, EveryCodeSurvivesTheWayThroughFloat) {
  for (ElementType type : {ElementType::kFloat8E4M3FN, ElementType::kFloat8E4M3FNUZ, ElementType::kFloat8E5M2,
                           ElementType::kFloat8E5M2FNUZ, ElementType::kFloat4E2M1, ElementType::kFloat8E8M0}) {
    for (int code = 0; code < (bit_width(type) == 4 ? 16 : 256); ++code) {
      const float f = small_float_to_float(type, static_cast<uint8_t>(code));
      if (f != f) continue;
      EXPECT_EQ(float_to_small_float(type, f, false), code) << to_string(type) << " " << f;
    }
  }
  for (int code = 0; code < 65536; ++code) {
    const float f = half_to_float(static_cast<uint16_t>(code));
    if (f != f) continue;
    EXPECT_EQ(float_to_half(f), code);
  }
}

}  // namespace
}  // namespace optc
