// Operators: the registry, inference, version steps and Programs built of small Graphs, run by the evaluator.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "evaluate/evaluate.h"
#include "ir/graph/text.h"
#include "ir/names.h"
#include "ops/build.h"
#include "ops/registry.h"

namespace optc {
namespace {

using E = ElementType;

Graph parse(std::string_view text) {
  Diagnostics diagnostics;
  Result<Graph> graph = parse_graph(text, diagnostics);
  EXPECT_TRUE(graph.ok()) << (diagnostics.all().empty() ? "" : format(diagnostics.all()[0]));
  return graph.ok() ? *std::move(graph) : Graph();
}

Graph inferred(std::string_view text) {
  Graph graph = parse(text);
  Diagnostics diagnostics;
  EXPECT_TRUE(infer_graph(graph, diagnostics).ok()) << format(diagnostics.all()[0]);
  return graph;
}

// The text of the first error of inference; empty when there is none.
std::string inference_error(std::string_view text) {
  Graph graph = parse(text);
  Diagnostics diagnostics;
  return infer_graph(graph, diagnostics).ok() ? "" : diagnostics.all()[0].message;
}

Program built(const Graph &graph) {
  Diagnostics diagnostics;
  Result<Program> program = build_program(graph, diagnostics);
  EXPECT_TRUE(program.ok()) << (diagnostics.all().empty() ? "" : format(diagnostics.all()[0]));
  if (!program.ok()) return {};
  EXPECT_TRUE(verify(*program, diagnostics).ok()) << format(diagnostics.all()[0]);
  return *std::move(program);
}

RuntimeValue floats(std::vector<int64_t> dims, const std::vector<float> &values) {
  std::vector<uint8_t> bytes(values.size() * 4);
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return RuntimeValue::of(Constant::owned(E::kFloat32, std::move(dims), std::move(bytes)));
}

RuntimeValue integers(std::vector<int64_t> dims, const std::vector<int64_t> &values) {
  std::vector<uint8_t> bytes(values.size() * 8);
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return RuntimeValue::of(Constant::owned(E::kInt64, std::move(dims), std::move(bytes)));
}

std::vector<Constant> run(const Program &program, const std::vector<RuntimeValue> &inputs) {
  Diagnostics diagnostics;
  auto outputs = evaluate(program, inputs, {}, diagnostics);
  EXPECT_TRUE(outputs.ok()) << (diagnostics.all().empty() ? "" : format(diagnostics.all()[0]));
  std::vector<Constant> values;
  if (outputs.ok())
    for (const RuntimeValue &v : *outputs) values.push_back(v.tensor);
  return values;
}

void expect_fault(const Program &program, const std::vector<RuntimeValue> &inputs) {
  Diagnostics diagnostics;
  const auto outputs = evaluate(program, inputs, {}, diagnostics);
  ASSERT_FALSE(outputs.ok());
  EXPECT_EQ(outputs.failure().kind, ErrorKind::kFault);
}

void expect_values(const Constant &constant, const std::vector<double> &expected, double tolerance = 0) {
  ASSERT_EQ(constant.count(), static_cast<int64_t>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(constant.as_double(static_cast<int64_t>(i)), expected[i], tolerance) << "at " << i;
}

NodeId first_node(const Graph &graph) { return graph.nodes(Graph::main())[0]; }

// Applies the step of that version to the first node.
void step_up(Graph &graph, int version) {
  Diagnostics diagnostics;
  const NodeId node = first_node(graph);
  for (const VersionStep &step : find_op(graph.node(node).op)->steps) {
    if (step.version == version) {
      ASSERT_TRUE(step.up(graph, node, diagnostics).ok()) << format(diagnostics.all()[0]);
    }
  }
  ASSERT_TRUE(infer_graph(graph, diagnostics).ok()) << format(diagnostics.all()[0]);
}

TEST(Registry, EveryOperatorIsWhole) {
  std::string_view previous;
  for (const OpDef *op : all_ops()) {
    EXPECT_LT(previous, op->name);
    previous = op->name;
    EXPECT_EQ(op->infer && op->build, op->form != OpForm::kBody) << op->name;
    EXPECT_EQ(op->body != nullptr, op->form == OpForm::kBody) << op->name;
    EXPECT_EQ(find_op(op->name), op);
    int version = 0;
    for (const VersionStep &step : op->steps) {
      EXPECT_GT(step.version, version) << op->name;
      version = step.version;
    }
    EXPECT_GE(op->version, version) << op->name;
  }
  EXPECT_EQ(find_op("NoSuchOperator"), nullptr);
}

TEST(Names, AreUniqueIdentifiers) {
  UniqueNames names;
  EXPECT_EQ(names.unique("/layer.0/MatMul"), "layer_0_MatMul");
  EXPECT_EQ(names.unique("/layer.0/MatMul"), "layer_0_MatMul_2");
  EXPECT_EQ(names.unique("layer_0_MatMul_2"), "layer_0_MatMul_2_2");
  EXPECT_EQ(names.unique("int"), "int_");
  EXPECT_EQ(names.unique("0"), "v0");
  EXPECT_EQ(names.unique("::"), "v");
}

TEST(Inference, BroadcastOfUnknownDimsIsCheckedWhenItRuns) {
  const Graph graph = inferred(R"(graph "g" (x: f32[A,3], y: f32[B,1]) -> (z) {
    opset "" 21
    z: f32[?] = Add(x, y)
})");
  EXPECT_EQ(to_string(graph.value(graph.find_value("z")).type), "f32[max(A, B)*min(B, min(A, 1)),3]");
  const Program program = built(graph);
  EXPECT_EQ(program.constraints.size(), 2u);
  expect_values(run(program, {floats({2, 3}, {1, 2, 3, 4, 5, 6}), floats({1, 1}, {10})})[0], {11, 12, 13, 14, 15, 16});
  expect_values(run(program, {floats({1, 3}, {1, 2, 3}), floats({2, 1}, {10, 20})})[0], {11, 12, 13, 21, 22, 23});
  Diagnostics diagnostics;
  const auto wrong =
      evaluate(program, {floats({2, 3}, {1, 2, 3, 4, 5, 6}), floats({3, 1}, {1, 2, 3})}, {}, diagnostics);
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.failure().kind, ErrorKind::kFault);
}

TEST(Inference, DimsThatDifferAreAnError) {
  EXPECT_NE(inference_error(R"(graph "g" (x: f32[2,3], y: f32[2]) -> (z) {
    opset "" 21
    z: f32[?] = Add(x, y)
})"),
            "");
  EXPECT_NE(inference_error(R"(graph "g" (x: f32[2,3], y: f32[4,5]) -> (z) {
    opset "" 21
    z: f32[?] = MatMul(x, y)
})"),
            "");
}

TEST(Build, ShapeArithmeticNeedsNoKernels) {
  const Graph graph = inferred(R"(graph "g" (x: f32[N,4,6]) -> (y) {
    opset "" 21
    const first: i64[] = [0]
    const rest: i64[1] = [-1]
    const zero: i64[1] = [0]
    s: i64[?] = Shape(x)
    n: i64[?] = Gather(s, first) {axis = 0}
    u: i64[?] = Unsqueeze(n, zero)
    c: i64[?] = Concat(u, rest) {axis = 0}
    y: f32[?] = Reshape(x, c)
})");
  EXPECT_EQ(to_string(graph.value(graph.find_value("y")).type), "f32[N,24]");
  EXPECT_EQ(built(graph).order.size(), 1u);  // the copy to the output
}

TEST(Build, OutputsThatAreInputsConstantsOrTwice) {
  const Graph graph = inferred(R"(graph "g" (x: f32[2]) -> (x, w, y, y) {
    opset "" 21
    const w: f32[2] = [5.0, 6.0]
    y: f32[2] = Neg(x)
})");
  const Program program = built(graph);
  ASSERT_EQ(program.outputs.size(), 4u);
  const auto values = run(program, {floats({2}, {1, -2})});
  expect_values(values[0], {1, -2});
  expect_values(values[1], {5, 6});
  expect_values(values[2], {-1, 2});
  expect_values(values[3], {-1, 2});
}

TEST(Build, ContractionNamesItsLoops) {
  const Graph graph = inferred(R"(graph "g" (a: f32[B,5,4], b: f32[4,7]) -> (y) {
    opset "" 21
    y: f32[?] = MatMul(a, b)
})");
  const Program program = built(graph);
  ASSERT_EQ(program.order.size(), 1u);
  const LoopNest &nest = *program.kernel(program.order[0]).nest();
  ASSERT_TRUE(nest.contraction.has_value());
  EXPECT_EQ(nest.contraction->m.size(), 2u);  // B and 5: b has neither
  EXPECT_EQ(nest.contraction->n.size(), 1u);
  EXPECT_EQ(nest.contraction->k.size(), 1u);
}

TEST(Steps, SoftmaxBefore13NormalizesWholeRows) {
  Graph graph = inferred(R"(graph "g" (x: f32[1,2,2]) -> (y) {
    opset "" 11
    y: f32[1,2,2] = Softmax(x) {axis = 1}
})");
  step_up(graph, 13);
  const auto y = run(built(graph), {floats({1, 2, 2}, {0, 0, 0, 0})});
  expect_values(y[0], {0.25, 0.25, 0.25, 0.25});
}

TEST(Steps, SoftmaxBefore13HasAnAxisOfItsOperand) {
  Graph graph = parse(R"(graph "g" (x: f32[3]) -> (y) {
    opset "" 12
    y: f32[3] = Softmax(x) {axis = 1}
})");
  Diagnostics diagnostics;
  EXPECT_FALSE(find_op("Softmax")->steps[0].up(graph, first_node(graph), diagnostics).ok());
}

TEST(Steps, BroadcastAlongAnAxisBefore7) {
  Graph graph = inferred(R"(graph "g" (x: f32[1,2,2]) -> (y) {
    opset "" 6
    const b: f32[2] = [10.0, 20.0]
    y: f32[1,2,2] = Add(x, b) {axis = 1, broadcast = 1}
})");
  step_up(graph, 7);
  expect_values(run(built(graph), {floats({1, 2, 2}, {1, 2, 3, 4})})[0], {11, 12, 23, 24});
}

TEST(Steps, ClipBoundsGoBothWays) {
  Graph graph = parse(R"(graph "g" (x: f32[3]) -> (y) {
    opset "" 6
    y: f32[3] = Clip(x) {max = 2.0, min = -1.0}
})");
  step_up(graph, 11);
  expect_values(run(built(graph), {floats({3}, {-5, 0, 5})})[0], {-1, 0, 2});
  Diagnostics diagnostics;
  const NodeId node = first_node(graph);
  for (const VersionStep &step : find_op("Clip")->steps) {
    if (step.version == 11) {
      ASSERT_TRUE(step.down(graph, node, diagnostics).ok());
    }
  }
  EXPECT_EQ(graph.node(node).inputs.size(), 1u);
  EXPECT_EQ(graph.node(node).float_or("min", 0), -1);
  EXPECT_EQ(graph.node(node).float_or("max", 0), 2);
}

TEST(Steps, SoftmaxOfAnInnerAxisIsTurnedForOldVersions) {
  Graph graph = inferred(R"(graph "g" (x: f32[2,2]) -> (y) {
    opset "" 21
    y: f32[2,2] = Softmax(x) {axis = 0}
})");
  const std::vector<RuntimeValue> inputs = {floats({2, 2}, {0, 3, 0, 1})};
  const auto before = run(built(graph), inputs);
  Diagnostics diagnostics;
  ASSERT_TRUE(find_op("Softmax")->steps[0].down(graph, first_node(graph), diagnostics).ok());
  ASSERT_TRUE(infer_graph(graph, diagnostics).ok());
  EXPECT_EQ(graph.live_node_count(), 3u);
  const auto after = run(built(graph), inputs);
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(before[0].as_double(i), after[0].as_double(i));
}

TEST(Meaning, ExtremesOfNothingAreThoseOfTheStoredType) {
  const Graph graph = inferred(R"(graph "g" (x: i8[0,2], y: f32[0]) -> (a, b, c) {
    opset "" 21
    const axes: i64[1] = [0]
    a: i8[?] = ReduceMax(x, axes) {keepdims = 0, noop_with_empty_axes = 0}
    b: f32[?] = ReduceMin(y, axes) {keepdims = 0, noop_with_empty_axes = 0}
    c: f32[?] = ReduceMean(y, axes) {keepdims = 0, noop_with_empty_axes = 0}
})");
  const auto values = run(built(graph), {RuntimeValue::of(Constant::owned(E::kInt8, {0, 2}, {})), floats({0}, {})});
  expect_values(values[0], {-128, -128});
  EXPECT_EQ(values[1].as_double(0), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(values[2].as_double(0)));
}

TEST(Meaning, HalfIsRoundedOnceAtTheOutput) {
  // The sum of squares is far beyond the largest half.
  const Graph graph = inferred(R"(graph "g" (x: f32[1,4]) -> (y) {
    opset "" 21
    const s: f16[4] = splat 1.0
    h: f16[1,4] = Cast(x) {to = 10}
    n: f16[?] = LayerNormalization(h, s) {axis = -1, epsilon = 0.0, stash_type = 1}
    y: f32[?] = Cast(n) {to = 1}
})");
  expect_values(run(built(graph), {floats({1, 4}, {-30000, -30000, 30000, 30000})})[0], {-1, -1, 1, 1}, 1e-6);
}

TEST(Meaning, PowersByConstantsKeepTheirEdges) {
  const Graph graph = inferred(R"(graph "g" (x: f32[3]) -> (y, z) {
    opset "" 21
    const half: f32[] = [0.5]
    const two: i64[] = [2]
    y: f32[?] = Pow(x, half)
    z: f32[?] = Pow(x, two)
})");
  const float infinity = std::numeric_limits<float>::infinity();
  const auto values = run(built(graph), {floats({3}, {-infinity, -0.0f, 9})});
  EXPECT_EQ(values[0].as_double(0), infinity);
  EXPECT_FALSE(std::signbit(values[0].as_double(1)));
  EXPECT_EQ(values[0].as_double(2), 3);
  EXPECT_EQ(values[1].as_double(0), infinity);
  EXPECT_EQ(values[1].as_double(2), 81);
}

TEST(Meaning, AQueryThatSeesNoKeyGivesZero) {
  const Graph graph = inferred(R"(graph "g" (q: f32[1,1,2,1], k: f32[1,1,2,1], v: f32[1,1,2,1]) -> (y) {
    opset "" 23
    const mask: bool[2,2] = [0, 0, 1, 0]
    y: f32[?] = Attention(q, k, v, mask)
})");
  const auto y =
      run(built(graph), {floats({1, 1, 2, 1}, {1, 1}), floats({1, 1, 2, 1}, {1, 1}), floats({1, 1, 2, 1}, {7, 9})});
  expect_values(y[0], {0, 7});
}

TEST(Operands, PositionsAndCachesOfARotaryEmbeddingFit) {
  const Program program = built(inferred(R"(graph "g" (x: f32[1,1,L,W], c: f32[M,H], s: f32[R,K], at: i64[B,P]) -> (y) {
    opset "" 23
    y: f32[?] = RotaryEmbedding(x, c, s, at)
})"));
  const RuntimeValue x = floats({1, 1, 2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}), cosines = floats({2, 2}, {1, 1, 2, 2}),
                     sines = floats({2, 2}, {0, 0, 0, 0});
  expect_values(run(program, {x, cosines, sines, integers({1, 2}, {1, 0})})[0], {2, 4, 6, 8, 5, 6, 7, 8});
  expect_fault(program, {x, cosines, sines, integers({1, 2}, {0, 2})});
  expect_fault(program, {x, cosines, sines, integers({1, 2}, {0, -1})});
  expect_fault(program, {x, cosines, floats({1, 2}, {0, 0}), integers({1, 2}, {1, 0})});
  expect_fault(program, {x, floats({2, 1}, {1, 1}), floats({2, 1}, {0, 0}), integers({1, 2}, {1, 0})});
  expect_fault(program, {x, cosines, sines, integers({1, 3}, {0, 0, 0})});
  expect_fault(program, {x, cosines, sines, integers({1, 0}, {})});
  EXPECT_NE(inference_error(R"(graph "g" (x: f32[1,1,2,4], c: f32[3,2], s: f32[2,2], at: i64[1,2]) -> (y) {
    opset "" 23
    y: f32[?] = RotaryEmbedding(x, c, s, at)
})"),
            "");
}

TEST(Operands, NumbersOfTopKAndOneHotAreOne) {
  const Program top = built(inferred(R"(graph "g" (x: f32[N], k: i64[K]) -> (v, i) {
    opset "" 21
    v: f32[?], i: i64[?] = TopK(x, k) {axis = -1, largest = 1, sorted = 1}
})"));
  const RuntimeValue x = floats({3}, {1, 3, 2});
  expect_values(run(top, {x, integers({1}, {2})})[0], {3, 2});
  expect_values(run(top, {x, integers({1}, {0})})[0], {});
  expect_fault(top, {x, integers({1}, {4})});
  expect_fault(top, {x, integers({1}, {-1})});
  expect_fault(top, {x, integers({0}, {})});
  const Program hot = built(inferred(R"(graph "g" (x: i64[N], d: i64[D], v: f32[V]) -> (y) {
    opset "" 21
    y: f32[?] = OneHot(x, d, v) {axis = -1}
})"));
  const RuntimeValue at = integers({3}, {0, -1, 5});
  expect_values(run(hot, {at, integers({1}, {2}), floats({2}, {3, 4})})[0], {4, 3, 3, 4, 3, 3});
  expect_fault(hot, {at, integers({1}, {-1}), floats({2}, {3, 4})});
  expect_fault(hot, {at, integers({1}, {2}), floats({1}, {3})});
  expect_fault(hot, {at, integers({0}, {}), floats({2}, {3, 4})});
}

TEST(Operands, AxesOfAReductionFoundByTheRunAreThoseOfTheOperand) {
  const Program kept = built(inferred(R"(graph "g" (x: f32[N,M], a: i64[A]) -> (y) {
    opset "" 18
    y: f32[?] = ReduceSum(x, a) {keepdims = 1}
})"));
  const RuntimeValue x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  expect_values(run(kept, {x, integers({1}, {-1})})[0], {6, 15});
  expect_values(run(kept, {x, integers({2}, {0, 0})})[0], {5, 7, 9});
  expect_values(run(kept, {x, integers({0}, {})})[0], {21});
  expect_fault(kept, {x, integers({1}, {2})});
  expect_fault(kept, {x, integers({2}, {0, -3})});
  const Program dropped = built(inferred(R"(graph "g" (x: f32[N,M], a: i64[2]) -> (y) {
    opset "" 18
    y: f32[?] = ReduceMean(x, a) {keepdims = 0}
})"));
  expect_values(run(dropped, {x, integers({2}, {1, 0})})[0], {3.5});
  expect_fault(dropped, {x, integers({2}, {1, -1})});
  expect_fault(dropped, {x, integers({2}, {0, 2})});
}

TEST(Operands, TheAxisOfARunningSumIsOneOfTheOperand) {
  const Program program = built(inferred(R"(graph "g" (x: f32[N,M], a: i64[]) -> (y) {
    opset "" 14
    y: f32[?] = CumSum(x, a)
})"));
  const RuntimeValue x = floats({2, 2}, {1, 2, 3, 4});
  expect_values(run(program, {x, integers({}, {-1})})[0], {1, 3, 3, 7});
  expect_values(run(program, {x, integers({}, {0})})[0], {1, 2, 4, 6});
  expect_fault(program, {x, integers({}, {2})});
  expect_fault(program, {x, integers({}, {-3})});
  const Program line = built(inferred(R"(graph "g" (x: f32[N], a: i64[1]) -> (y) {
    opset "" 26
    y: f32[?] = CumProd(x, a)
})"));
  expect_values(run(line, {floats({3}, {1, 2, 3}), integers({1}, {-1})})[0], {1, 2, 6});
  expect_fault(line, {floats({3}, {1, 2, 3}), integers({1}, {1})});
}

TEST(Operands, LengthsOfReversedSequencesLieInThem) {
  const Program program = built(inferred(R"(graph "g" (x: f32[T,B], n: i64[B]) -> (y) {
    opset "" 10
    y: f32[?] = ReverseSequence(x, n)
})"));
  const RuntimeValue x = floats({2, 2}, {1, 2, 3, 4});
  expect_values(run(program, {x, integers({2}, {2, 0})})[0], {3, 2, 1, 4});
  expect_fault(program, {x, integers({2}, {3, 1})});
  expect_fault(program, {x, integers({2}, {-1, 1})});
}

TEST(Operands, ValuesOfAttentionHaveATypeOfTheirOwn) {
  const Program program = built(inferred(R"(graph "g" (q: f64[1,1,1,1], k: f64[1,1,2,1], x: f32[1,1,2,2]) -> (y, z) {
    opset "" 23
    v: f16[1,1,2,2] = Cast(x) {to = 10, saturate = 1}
    y: f64[?] = Attention(q, k, v)
    z: f64[?] = Attention(q, k, x)
})"));
  const auto doubles = [](std::vector<int64_t> dims, const std::vector<double> &values) {
    std::vector<uint8_t> bytes(values.size() * 8);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return RuntimeValue::of(Constant::owned(E::kFloat64, std::move(dims), std::move(bytes)));
  };
  const auto y =
      run(program, {doubles({1, 1, 1, 1}, {1}), doubles({1, 1, 2, 1}, {7, 7}), floats({1, 1, 2, 2}, {1, 2, 3, 6})});
  expect_values(y[0], {2, 4}, 1e-12);
  expect_values(y[1], {2, 4}, 1e-12);
}

TEST(Operands, PadsAndSlicesFoundByTheRunFitTheirOperand) {
  const RuntimeValue x = floats({3}, {1, 2, 3});
  const auto pad = [](std::string mode) {
    return built(inferred(R"(graph "g" (x: f32[N], p: i64[P], a: i64[A]) -> (y) {
    opset "" 19
    y: f32[?] = Pad(x, p, _, a) {mode = ")" +
                          mode + R"("}
})"));
  };
  const Program reflect = pad("reflect"), edge = pad("edge");
  const RuntimeValue axis = integers({1}, {0});
  expect_values(run(reflect, {x, integers({2}, {2, 0}), axis})[0], {3, 2, 1, 2, 3});
  expect_fault(reflect, {x, integers({2}, {3, 0}), axis});
  expect_fault(reflect, {x, integers({2}, {0, 3}), axis});
  expect_fault(reflect, {x, integers({4}, {1, 1, 1, 1}), integers({2}, {0, -1})});
  expect_fault(reflect, {x, integers({2}, {INT64_MAX, 1}), axis});
  expect_values(run(edge, {x, integers({2}, {1, -1}), axis})[0], {1, 1, 2});
  expect_fault(edge, {floats({0}, {}), integers({2}, {1, 0}), axis});
  const Program slice = built(inferred(R"(graph "g" (x: f32[N,M], s: i64[A], e: i64[2], a: i64[2], t: i64[2]) -> (y) {
    opset "" 13
    y: f32[?] = Slice(x, s, e, a, t)
})"));
  const RuntimeValue m = floats({2, 2}, {1, 2, 3, 4}), ends = integers({2}, {2, 2}), ones = integers({2}, {1, 1});
  expect_values(run(slice, {m, integers({2}, {1, 0}), ends, integers({2}, {0, 1}), ones})[0], {3, 4});
  expect_fault(slice, {m, integers({2}, {1, 0}), ends, integers({2}, {0, -2}), ones});
  expect_fault(slice, {m, integers({1}, {1}), ends, integers({2}, {0, 1}), ones});
}

TEST(Operands, AMaskOfAttentionEndsWithTheKeys) {
  const Program program = built(inferred(R"(graph "g" (q: f32[1,1,1,1], k: f32[1,1,T,1], m: f32[1,M]) -> (y) {
    opset "" 24
    y: f32[?] = Attention(q, k, k, m)
})"));
  const RuntimeValue q = floats({1, 1, 1, 1}, {1}), k = floats({1, 1, 2, 1}, {7, 9});
  expect_values(run(program, {q, k, floats({1, 2}, {0, -1000})})[0], {7});
  expect_values(run(program, {q, k, floats({1, 1}, {0})})[0], {7});
  expect_fault(program, {q, k, floats({1, 3}, {0, 0, 0})});
}

// As in ONNX Runtime; ONNX says nothing of it.
TEST(Operands, WhatAConditionSaysBehindTheEndSelectsNothing) {
  const Program program = built(inferred(R"(graph "g" (x: f32[N], m: i64[M]) -> (y) {
    opset "" 21
    c: bool[M] = Cast(m) {to = 9}
    y: f32[?] = Compress(x, c) {axis = 0}
})"));
  const RuntimeValue x = floats({3}, {1, 2, 3});
  expect_values(run(program, {x, integers({2}, {0, 1})})[0], {2});
  expect_values(run(program, {x, integers({5}, {1, 0, 1, 1, 0})})[0], {1, 3});
}

TEST(Meaning, ASaturatingCastBackIsKept) {
  DimTable table;
  ScalarPool pool;
  const ScalarId number = pool.cast(pool.index(table.model_symbol("N")), E::kFloat32),
                 x = pool.cast(number, E::kFloat8E5M2, false), wide = pool.cast(x, E::kFloat32);
  EXPECT_EQ(pool.cast(wide, E::kFloat8E5M2, false), x);
  EXPECT_FALSE(pool.cast(wide, E::kFloat8E5M2, true) == x);
  const ScalarId y = pool.cast(number, E::kFloat8E4M3FN, false);
  EXPECT_EQ(pool.cast(pool.cast(y, E::kFloat32), E::kFloat8E4M3FN, true), y);
}

// optc.Attention is its chain where queries see no key, scores and values are NaN or infinite.
TEST(Operators, AttentionIsItsChainWhereNothingIsFinite) {
  const std::string signature =
      R"(graph "a" (q: f32[1,1,6,2], k: f32[1,1,3,2], v: f32[1,1,3,2], m: f32[6,3]) -> (y) {
  opset "" 17
)";
  const std::string chain = R"(  const zero: f32[] = splat 0.0
  kt = Transpose(k) {perm = ints [0,1,3,2]}
  s = MatMul(q, kt)
  t = Add(s, m)
  p = Softmax(t) {axis = -1}
)";
  const std::string plain = "  y = MatMul(p, v)\n}", guarded = R"(  n = IsNaN(p)
  g = Where(n, zero, p)
  y = MatMul(g, v)
})";
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const RuntimeValue q = floats({1, 1, 6, 2}, {1, 2, 3, 4, inf, 1, nan, 0, 1, 1, -inf, 1}),
                     k = floats({1, 1, 3, 2}, {1, 0.5f, 0.25f, 1, 2, 1}),
                     m = floats({6, 3}, {0, 0, 0, -inf, -inf, -inf, 0, 0, -inf, 0, 0, 0, -inf, 0, 0, 0, 0, 0});
  for (const std::vector<float> &values :
       {std::vector<float>{1, 2, 3, 4, 5, 6}, {nan, 1, 1, 1, 1, 1}, {1, inf, 1, 1, 1, -inf}})
    for (const bool guard : {false, true}) {
      const RuntimeValue v = floats({1, 1, 3, 2}, values);
      const std::string one = "  y = optc.Attention(q, k, v, m) {zero_masked_rows = " + std::to_string(guard) + "}\n}";
      const Constant got = run(built(inferred(signature + one)), {q, k, v, m})[0],
                     want = run(built(inferred(signature + chain + (guard ? guarded : plain))), {q, k, v, m})[0];
      for (int64_t i = 0; i < 12; ++i) {
        const double w = want.as_double(i), g = got.as_double(i);
        const std::string where = (guard ? "guarded, " : "plain, ") + std::to_string(i);
        if (std::isfinite(w))
          EXPECT_NEAR(g, w, 1e-5) << where;
        else
          EXPECT_TRUE(std::isnan(w) ? std::isnan(g) : g == w) << where << ": " << g << " expected " << w;
      }
    }
}

}  // namespace
}  // namespace optc
