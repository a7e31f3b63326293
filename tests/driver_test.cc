// Parts of the driver that need no model: values in files, comparison, names, processes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "driver/compare.h"
#include "driver/inputs.h"
#include "driver/places.h"
#include "driver/process.h"
#include "driver/samples.h"
#include "driver/storage_cost.h"
#include "driver/tensor_file.h"
#include "driver/tolerance.h"
#include "driver/toolchain.h"
#include "ir/graph/text.h"
#include "support/file.h"
#include "support/staging.h"

namespace optc {
namespace {

RuntimeValue floats(std::vector<int64_t> dims, const std::vector<float> &values) {
  return RuntimeValue::of(Constant::floats(values).reshaped(std::move(dims)));
}

std::string scratch(const std::string &name) {
  const std::string folder = testing::TempDir() + "optc_driver_test";
  std::filesystem::create_directories(folder);
  return folder + "/" + name;
}

TEST(TensorFile, NpyAndPbKeepTypeDimsAndBytes) {
  const std::vector<ElementType> types = {ElementType::kFloat32, ElementType::kInt64,   ElementType::kUInt8,
                                          ElementType::kBool,    ElementType::kFloat16, ElementType::kComplex64};
  for (const ElementType type : types)
    for (const std::vector<int64_t> &dims : {std::vector<int64_t>{}, {0}, {3}, {2, 3}}) {
      int64_t count = 1;
      for (const int64_t d : dims) count *= d;
      std::vector<uint8_t> bytes(*storage_bytes(type, count));
      for (size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = type == ElementType::kBool ? i & 1 : static_cast<uint8_t>(i * 7);
      const RuntimeValue value = RuntimeValue::of(Constant::owned(type, dims, bytes));
      for (const char *extension : {"npy", "pb"}) {
        Diagnostics diagnostics;
        const std::string path = scratch(std::string("value.") + extension);
        ASSERT_TRUE(write_value(path, value, diagnostics).ok());
        const auto read = read_value(path, {}, diagnostics);
        ASSERT_TRUE(read.ok());
        EXPECT_TRUE(read->tensor.equals(value.tensor))
            << to_string(type) << " " << extension << " rank " << dims.size();
      }
    }
}

TEST(TensorFile, SequenceRoundTrip) {
  RuntimeValue sequence;
  sequence.kind = RuntimeValue::Kind::kSequence;
  sequence.items = {floats({2}, {1, 2}), floats({1, 1}, {3})};
  Diagnostics diagnostics;
  ASSERT_TRUE(write_value(scratch("sequence.pb"), sequence, diagnostics).ok());
  const auto read = read_value(scratch("sequence.pb"),
                               Type::sequence(Type::tensor(ElementType::kFloat32, std::nullopt)), diagnostics);
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->items.size(), 2u);
  EXPECT_TRUE(read->items[1].tensor.equals(sequence.items[1].tensor));
}

TEST(TensorFile, SequenceOfMapsRoundTrip) {
  RuntimeValue map;
  map.kind = RuntimeValue::Kind::kMap;
  map.tensor = Constant::strings({2}, {"a", "b"});
  map.items = {floats({2}, {1, 2})};
  RuntimeValue sequence;
  sequence.kind = RuntimeValue::Kind::kSequence;
  sequence.items = {map, map};
  Diagnostics diagnostics;
  ASSERT_TRUE(write_value(scratch("maps.pb"), sequence, diagnostics).ok());
  const Type type = Type::map(ElementType::kString, Type::tensor(ElementType::kFloat32, Shape{}));
  const auto read = read_value(scratch("maps.pb"), Type::sequence(type), diagnostics);
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(compare(*read, sequence, Tolerance{}).ok);
  RuntimeValue other = sequence;
  other.items[1].tensor = Constant::strings({2}, {"a", "c"});
  EXPECT_FALSE(compare(*read, other, Tolerance{}).ok);
}

TEST(TensorFile, BrokenFilesAreErrors) {
  Diagnostics diagnostics;
  const std::string path = scratch("array.npy");
  ASSERT_TRUE(write_value(path, floats({4}, {1, 2, 3, 4}), diagnostics).ok());
  const std::string good = *read_file(path, diagnostics);
  const size_t shape = good.find("(4,)");
  ASSERT_NE(shape, std::string::npos);
  std::string longer = good, huge = good;
  longer.replace(shape, 4, "(5,)");
  huge.replace(shape, 4, "(4,99999999999999999999");
  for (const std::string &text :
       {good.substr(0, good.size() - 1), good.substr(0, 9), good.substr(0, 20), longer, huge}) {
    ASSERT_TRUE(write_file(path, text, diagnostics).ok());
    Diagnostics errors;
    EXPECT_FALSE(read_value(path, {}, errors).ok());
    EXPECT_EQ(errors.all().size(), 1u);
  }
}

TEST(Compare, RelativeToTheRange) {
  const RuntimeValue expected = floats({3}, {-100, 0, 1});
  EXPECT_TRUE(compare(floats({3}, {-100, 0.009f, 1}), expected, {}).ok);
  const Comparison bad = compare(floats({3}, {-100, 0.011f, 1}), expected, {});
  EXPECT_FALSE(bad.ok);
  EXPECT_EQ(bad.differing, 1);
  EXPECT_TRUE(compare(floats({3}, {-100, 0.011f, 1}), expected, {-1, 0.02}).ok);
}

TEST(Compare, NanInfTypeAndDims) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(compare(floats({2}, {nan, -inf}), floats({2}, {nan, -inf}), {}).ok);
  EXPECT_FALSE(compare(floats({2}, {nan, inf}), floats({2}, {nan, -inf}), {}).ok);
  EXPECT_FALSE(compare(floats({2}, {nan, 0}), floats({2}, {0, 0}), {}).ok);
  EXPECT_FALSE(compare(floats({2}, {0, 0}), floats({1, 2}, {0, 0}), {}).ok);
  EXPECT_FALSE(compare(RuntimeValue::of(Constant::int64s({1})), floats({1}, {1}), {}).ok);
}

TEST(Compare, IntegersAreExactBeyondDouble) {
  const int64_t big = (int64_t{1} << 60) + 1;
  EXPECT_TRUE(compare(RuntimeValue::of(Constant::int64s({big})), RuntimeValue::of(Constant::int64s({big})), {}).ok);
  EXPECT_FALSE(
      compare(RuntimeValue::of(Constant::int64s({big})), RuntimeValue::of(Constant::int64s({big - 1})), {}).ok);
}

TEST(Compare, ArgmaxOfEachRow) {
  const RuntimeValue expected = floats({2, 2}, {1, 0, 0, 1});
  EXPECT_TRUE(compare(floats({2, 2}, {1, 0, 0, 1}), expected, {}).same_argmax);
  EXPECT_FALSE(compare(floats({2, 2}, {1, 0, 1, 0}), expected, {}).same_argmax);
}

TEST(Places, StemIsAnIdentifier) {
  EXPECT_EQ(name_of_model("/a/b/res-net.v2.onnx"), "res_net_v2");
  EXPECT_EQ(name_of_model("50.onnx"), "m50");
  EXPECT_EQ(name_of_model("model"), "model");
  // A bundle's name is a namespace, a CMake target, a header and a Python module.
  for (const char *taken : {"class", "main", "all", "time", "numpy", "std", "y1"})
    EXPECT_EQ(name_of_model(taken), std::string(taken) + "_");
  EXPECT_EQ(name_of_model("na\u00efve model.onnx"), "na_ve_model");
  EXPECT_EQ(name_of_model("\u6a21\u578b.onnx"), "model");
  EXPECT_EQ(name_of_model(std::string(100, 'a')).size(), 64u);
  for (const char *name : {"", "a b", "class", "50", "a__b", "a_"}) EXPECT_FALSE(is_bundle_name(name)) << name;
  for (const char *name : {"a", "resnet_50", "v", "all_"}) EXPECT_TRUE(is_bundle_name(name)) << name;
}

TEST(Process, OutputAndStatus) {
  Diagnostics diagnostics;
  const auto result = run_process({"sh", "-c", "echo one; echo two >&2; exit 3"}, diagnostics);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->status, 3);
  EXPECT_EQ(result->output, "one\ntwo\n");
  EXPECT_EQ(last_lines(result->output, 1), "two");
  EXPECT_FALSE(run_process({"/no/such/program"}, diagnostics).ok());
}

Graph graph_with_tokens() {
  Graph graph;
  DimTable &dims = *graph.dims();
  const Dim n = dims.model_symbol("N"), s = dims.model_symbol("S");
  const ValueId ids = graph.add_input(Graph::main(), "ids", Type::tensor(ElementType::kInt64, Shape{n, s}));
  const ValueId table = graph.add_constant("table", Constant::floats({1, 2, 3, 4, 5}).reshaped({5, 1}));
  const NodeId node =
      graph.add_node(Graph::main(), "Gather", "lookup", {table, ids},
                     {{"y", Type::tensor(ElementType::kFloat32, Shape{n, s, 1})}}, {{"axis", int64_t{0}}});
  graph.set_outputs(Graph::main(), {graph.node(node).outputs[0]});
  return graph;
}

TEST(Inputs, IndicesStayInsideTheTable) {
  const Graph graph = graph_with_tokens();
  Diagnostics diagnostics;
  const auto sizes = SizeChooser(graph).choose({{"S", 200}}, 1, 0, diagnostics);
  ASSERT_TRUE(sizes.ok());
  EXPECT_EQ(sizes->at("N"), 2);
  EXPECT_EQ(sizes->at("S"), 200);
  const auto inputs = random_inputs(graph, *sizes, {7, false}, diagnostics);
  ASSERT_TRUE(inputs.ok());
  ASSERT_EQ((*inputs)[0].tensor.count(), 400);
  int64_t greatest = 0;
  for (int64_t i = 0; i < 400; ++i) {
    const int64_t index = (*inputs)[0].tensor.as_int64(i);
    ASSERT_TRUE(index >= 0 && index < 5);
    greatest = std::max(greatest, index);
  }
  EXPECT_EQ(greatest, 4);
  const auto again = random_inputs(graph, *sizes, {7, false}, diagnostics);
  EXPECT_TRUE((*again)[0].tensor.equals((*inputs)[0].tensor));
}

Graph parsed(const std::string &text) {
  Diagnostics diagnostics;
  Result<Graph> graph = parse_graph(text, diagnostics);
  EXPECT_TRUE(graph.ok()) << (diagnostics.all().empty() ? "" : diagnostics.all()[0].message);
  return *std::move(graph);
}

std::vector<int64_t> integers(const Constant &tensor) {
  std::vector<int64_t> list;
  for (int64_t i = 0; i < tensor.count(); ++i) list.push_back(tensor.as_int64(i));
  return list;
}

// check(sizes) of everything that is chosen for a model of which nothing is given.
template <typename Check>
void each_choice(const SizeChooser &chooser, Diagnostics &diagnostics, const Check &check) {
  for (int set = 0; set < 2; ++set)
    for (int attempt = 0; attempt < SizeChooser::kAttempts; ++attempt) {
      const auto sizes = chooser.choose({}, set, attempt, diagnostics);
      ASSERT_TRUE(sizes.ok());
      check(*sizes);
    }
}

TEST(Sizes, FitWhatTheOperatorsState) {
  // K and L meet in a product; T is cut into pieces of 48.
  const Graph graph = parsed(R"(graph "g" (a: f32[M,K], b: f32[L,4], t: f32[1,T]) -> (y, z) {
    const pieces: i64[2] = [-1, 48]
    y: f32[M,4] = MatMul(a, b)
    z: f32[P,48] = Reshape(t, pieces)
  })");
  const SizeChooser chooser(graph);
  Diagnostics diagnostics;
  each_choice(chooser, diagnostics, [](const auto &sizes) {
    EXPECT_EQ(sizes.at("K"), sizes.at("L"));
    EXPECT_EQ(sizes.at("T") % 48, 0);
    EXPECT_GT(sizes.at("T"), 0);
  });
  const auto given = chooser.choose({{"K", 21}}, 0, 0, diagnostics);
  ASSERT_TRUE(given.ok());
  EXPECT_EQ(given->at("L"), 21);
  EXPECT_TRUE(diagnostics.all().empty());
  const auto wrong = chooser.choose({{"K", 21}, {"L", 20}}, 0, 0, diagnostics);
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.failure().kind, ErrorKind::kUsage);
  EXPECT_NE(diagnostics.all().back().message.find("the sizes given do not fit"), std::string::npos);
}

TEST(Sizes, HoldTheRowsThatTheModelNames) {
  const Graph graph = parsed(R"(graph "g" (x: f32[N,S], h: f32[M,4], u: f32[Q,4]) -> (y, z) {
    const last: i64[2] = [8, -12]
    const rows: i64[2,1] = [0, 5]
    const two: i64[2] = [2, 4]
    y: f32[N,2] = Gather(x, last) {axis = 1}
    wide: i64[2,4] = Expand(rows, two)
    z: f32[M,4] = ScatterElements(h, wide, u) {axis = 0, reduction = "add"}
  })");
  const SizeChooser chooser(graph);
  Diagnostics diagnostics;
  each_choice(chooser, diagnostics, [](const auto &sizes) {
    EXPECT_GE(sizes.at("S"), 12);
    EXPECT_GE(sizes.at("M"), 6);
    EXPECT_EQ(sizes.at("Q"), 2);
  });
}

TEST(Inputs, SuitWhatReadsThemBehindABranch) {
  const Graph graph = parsed(R"(graph "g" (p: i64[S], c: bool[]) -> (y) {
    const table: f32[7,3] = hash "t"
    i: i64[S] = If(c)
      region then_branch () -> (t) {
        t: i64[S] = Identity(p)
      }
      region else_branch () -> (e) {
        e: i64[S] = Neg(p)
      }
    y: f32[S,3] = Gather(table, i) {axis = 0}
  })");
  Diagnostics diagnostics;
  const auto made = random_inputs(graph, {{"S", 100}}, {3, false}, diagnostics);
  ASSERT_TRUE(made.ok());
  for (const int64_t index : integers((*made)[0].tensor)) EXPECT_TRUE(index >= 0 && index < 7) << index;
}

TEST(Inputs, SuitWhatReadsThem) {
  // Positions behind two reserved rows; a list of nodes, its rows known by their name alone; a rate that is compared.
  const Graph graph = parsed(R"(graph "g" (p: i64[N,S], h: f32[Q,3], e: i64[2,E], r: i64[], m: i64[N,S], c: u8[N,3,8,8])
                              -> (y, z, w, v, u) {
    const two: i64[] = [2]
    const table: f32[7,3] = hash "t"
    const rate: i64[] = [16000]
    i: i64[N,S] = Add(p, two)
    y: f32[N,S,3] = Gather(table, i) {axis = 0}
    z: f32[2,E,3] = Gather(h, e) {axis = 0}
    w: bool[] = Equal(r, rate)
    v: f32[N,S] = Cast(m) {to = 1}
    u: f32[N,3,8,8] = Cast(c) {to = 1}
  })");
  Diagnostics diagnostics;
  const SizeByName sizes = {{"N", 2}, {"S", 100}, {"Q", 5}, {"E", 200}};
  const auto made = random_inputs(graph, sizes, {3, false}, diagnostics);
  ASSERT_TRUE(made.ok());
  const auto extremes = [&](size_t i) {
    const std::vector<int64_t> list = integers((*made)[i].tensor);
    const auto [low, high] = std::minmax_element(list.begin(), list.end());
    return std::pair(*low, *high);
  };
  EXPECT_EQ(extremes(0), std::pair(int64_t{0}, int64_t{4}));
  EXPECT_EQ(extremes(2), std::pair(int64_t{0}, int64_t{4}));
  EXPECT_EQ(integers((*made)[3].tensor), std::vector<int64_t>{16000});
  EXPECT_EQ(extremes(4), std::pair(int64_t{0}, int64_t{1}));
  EXPECT_EQ((*made)[4].tensor.as_int64(0), 1);  // no row is masked as a whole
  EXPECT_EQ((*made)[4].tensor.as_int64(100), 1);
  EXPECT_GT(extremes(5).second, 200);
}

struct Silent : Listener {
  void begin(std::string_view) override {}
  void progress(int64_t, int64_t) override {}
  void end(std::string_view step, const std::string &facts, double) override {
    if (step == "f16 gpu") cost = facts;
  }
  std::string cost;
};

// The second product is some hundred thousands: no rule sees it, the samples do.
TEST(StorageCost, WhatOverflowsF16OnSamplesStaysF32) {
  const Graph graph = parsed(R"(graph "g" (x: f32[N,64]) -> (y) {
    const w: f32[64,64] = splat 40
    const v: f32[64,8] = splat 0.001
    a: f32[N,64] = MatMul(x, w)
    b: f32[N,64] = Relu(a)
    c: f32[N,64] = MatMul(b, w)
    d: f32[N,64] = Relu(c)
    y: f32[N,8] = MatMul(d, v)
  })");
  CompileOptions options;
  options.precision = ElementType::kFloat16;
  Silent listener;
  Diagnostics diagnostics;
  KeptTensors kept;
  const auto program = lower_model(graph, options, listener, diagnostics, true, &kept);
  ASSERT_TRUE(program.ok());
  const auto found = std::find_if(kept.begin(), kept.end(), [](const auto &k) { return k.first == "d"; });
  ASSERT_NE(found, kept.end());
  EXPECT_NE(found->second.find("NaN or infinity"), std::string::npos) << found->second;
  EXPECT_NE(listener.cost.find("f32 for their cost: d"), std::string::npos) << listener.cost;
  // The first product is far from it: not everything was given up.
  const auto narrow = [&](const std::string &name) {
    return std::any_of(program->buffers.begin(), program->buffers.end(),
                       [&](const Buffer &b) { return b.name == name && b.element() == ElementType::kFloat16; });
  };
  EXPECT_TRUE(narrow("b"));
  const auto outputs = evaluate(*program, {floats({1, 64}, std::vector<float>(64, 1.0f))}, {}, diagnostics);
  ASSERT_TRUE(outputs.ok());
  EXPECT_TRUE(std::isfinite((*outputs)[0].tensor.as_double(0)));

  options.samples = scratch("absent");
  EXPECT_FALSE(lower_model(graph, options, listener, diagnostics, true).ok());
  EXPECT_EQ(diagnostics.all().back().kind, ErrorKind::kUsage);
}

TEST(Compare, SlackIsWhatTheToleranceGainsAndHidesNoNaN) {
  const RuntimeValue expected = floats({3}, {1, 2, 100}), near = floats({3}, {1.5f, 2, 100});
  EXPECT_FALSE(compare(near, expected, {}).ok);
  Tolerance wide;
  wide.slack = 0.5;
  wide.slack_elements = 1;
  EXPECT_TRUE(compare(near, expected, wide).ok);
  const RuntimeValue nan = floats({3}, {std::nanf(""), 2, 100});
  EXPECT_FALSE(compare(nan, expected, wide).ok);
  const auto ids = [](std::vector<int64_t> values) { return RuntimeValue::of(Constant::int64s(values)); };
  EXPECT_TRUE(compare(ids({1, 2, 4}), ids({1, 2, 3}), wide).ok);
  EXPECT_FALSE(compare(ids({1, 3, 4}), ids({1, 2, 3}), wide).ok);
}

TEST(Compare, AnOutputIsAsExactAsWhatItsValuesAreComputedIn) {
  Diagnostics diagnostics;
  auto graph = parse_graph(R"(graph "g" (x: f32[4], h: f16[4], i: i64[4]) -> (a, b, c, d) {
    n: f16[4] = Cast(x) {to = 10} @ "narrow"
    m: f16[4] = Mul(n, h) @ "mul"
    a: f32[4] = Cast(m) {to = 1} @ "wide"
    b: f32[4] = Exp(x) @ "exp"
    t: f16[4] = Gather(h, i) {axis = 0} @ "moved"
    c: f32[4] = Cast(t) {to = 1} @ "same"
    d: i64[1] = Shape(m) @ "shape"
  })",
                           diagnostics);
  ASSERT_TRUE(graph.ok()) << format(diagnostics.all().front());
  const std::vector<Tolerance> plain = output_tolerances(*graph, {}, ElementType::kFloat32);
  ASSERT_EQ(plain.size(), 4u);
  EXPECT_EQ(plain[0].floor, default_tolerance(ElementType::kFloat16));
  EXPECT_EQ(plain[1].floor, 0);
  EXPECT_EQ(plain[2].floor, 0);  // nothing was rounded
  const std::vector<Tolerance> narrow = output_tolerances(*graph, {}, ElementType::kBFloat16);
  EXPECT_EQ(narrow[1].floor, default_tolerance(ElementType::kBFloat16));
  const RuntimeValue expected = floats({2}, {1, 100}), near = floats({2}, {2, 100});
  EXPECT_TRUE(compare(near, expected, plain[0]).ok);
  EXPECT_FALSE(compare(near, expected, plain[1]).ok);
  Tolerance given;  // what the user says holds
  given.relative_to_range = 1e-3;
  EXPECT_FALSE(compare(near, expected, output_tolerances(*graph, given, ElementType::kFloat16)[0]).ok);
}

TEST(Samples, ASetTakesTheSizesOfTheOneBeforeWhereNoOthersSuit) {
  Diagnostics diagnostics;
  auto graph = parse_graph(R"(graph "g" (x: f32[N,4]) -> (y) { y: f32[N,4] = Exp(x) @ "exp" })", diagnostics);
  ASSERT_TRUE(graph.ok());
  InputSets sets(*graph, {});
  std::vector<RuntimeValue> first;
  const auto only_one = [](const InputSet &set, Diagnostics &said) -> Status {
    if (set.sizes.size() == 1 && set.sizes.begin()->second == 1) return {};
    return said.error(ErrorKind::kUsage, "the model wants one row");
  };
  for (int number = 0; number < 4; ++number) {
    const auto set = sets.fitting(*graph, number, only_one, diagnostics);
    ASSERT_TRUE(set.ok()) << number;
    EXPECT_EQ(describe(set->sizes), "N=1");
    if (number > 0) {
      EXPECT_FALSE(compare(set->values[0], first[0], {}).ok);  // other values
    }
    first = set->values;
  }
}

// The cost of bf16, with a bound that every rounding exceeds. `evaluations` gets how many Programs were lowered for it.
StorageCost cost_within(const Graph &graph, int64_t most_work, int *evaluations = nullptr) {
  Diagnostics diagnostics;
  LoweringReport report;
  LoweringOptions wide;
  wide.target = LoweringOptions::Target::kGpu;
  const auto plain = lower(graph, wide, report, diagnostics);
  EXPECT_TRUE(plain.ok());
  StorageTrial trial;
  trial.most_work = most_work;
  trial.bound = 0;  // whatever changes anything is looked for
  int lowered = 0;
  const LowerNarrow narrow = [&](const KeptTensors &kept, std::vector<std::string> &names) -> Result<Program> {
    ++lowered;
    LoweringOptions options = wide;
    options.precision = ElementType::kBFloat16;
    options.keep_f32 = kept;
    Diagnostics quiet;
    LoweringReport said;
    auto program = lower(graph, options, said, quiet);
    names = said.precision.narrow;
    return program;
  };
  StorageCost cost = measure_storage(graph, "", *plain, narrow, trial);
  if (evaluations) *evaluations = lowered;
  return cost;
}

// N^5 elements: 3e4 and 4e5 for 8 and 13, which is too much for the second bound.
TEST(StorageCost, IsMeasuredOnSamplesThatItsWorkAllows) {
  const Graph graph = parsed(R"(graph "g" (a: f32[N,1,1,1,1], b: f32[1,N,N,1,1], c: f32[1,1,1,N,N]) -> (y) {
    d: f32[N,N,N,1,1] = Mul(a, b)
    e: f32[N,N,N,N,N] = Mul(d, c)
    f: f32[N,N,N,N,N] = Exp(e)
    y: f32[1,1,1,1,1] = ReduceSum(f) {keepdims = 1, noop_with_empty_axes = 0}
  })");
  const StorageCost all = cost_within(graph, int64_t{1} << 40);
  EXPECT_EQ(all.unmeasured, "");
  EXPECT_EQ(all.samples, "random inputs, N=8; N=13");
  const StorageCost small = cost_within(graph, 16 * 100000);
  EXPECT_EQ(small.unmeasured, "");
  EXPECT_EQ(small.samples, "random inputs, N=1; N=2");
  const StorageCost none = cost_within(graph, 16 * 1000);
  EXPECT_NE(none.unmeasured.find("more than the"), std::string::npos) << none.unmeasured;
  EXPECT_NE(describe(none).find("not measured"), std::string::npos);
}

TEST(StorageCost, TheSearchEndsWithItsWork) {
  std::string text = "graph \"g\" (x: f32[N,16]) -> (y) {\n", from = "x";
  for (int i = 0; i < 24; ++i) {
    const std::string n = std::to_string(i);
    text += "const w" + n + ": f32[16,16] = hash \"" + n + "\"\n";
    text += "p" + n + ": f32[N,16] = MatMul(" + from + ", w" + n + ")\n";
    text += "t" + n + ": f32[N,16] = Tanh(p" + n + ")\n";
    from = "t" + n;
  }
  const Graph graph = parsed(text + "y: f32[N,16] = Relu(" + from + ") }");
  int many = 0, few = 0;
  cost_within(graph, int64_t{1} << 40, &many);
  const StorageCost cost = cost_within(graph, 16 * 400000, &few);
  EXPECT_EQ(cost.unmeasured, "");
  EXPECT_GT(many, 30);
  EXPECT_LT(few, many);
  EXPECT_GE(few, 8);
}

TEST(Inputs, UnknownNamesAndMissingFilesAreUsageErrors) {
  const Graph graph = graph_with_tokens();
  Diagnostics diagnostics;
  EXPECT_FALSE(read_inputs(graph, "", {{"no_such", "file.npy"}}, {}, diagnostics).ok());
  const auto missing = read_inputs(graph, scratch("empty"), {}, {}, diagnostics);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.failure().kind, ErrorKind::kUsage);
}

}  // namespace
}  // namespace optc
