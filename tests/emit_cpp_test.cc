// Bundles against the evaluator: small graphs of every kind of kernel, compiled by g++ and run through the C ABI.
#include "lowering/lower.h"
#include "tests/bundle_testing.h"

namespace optc {
namespace {

using testing::BuiltBundle;
using testing::difference;
using testing::messages;
using testing::program_of;
using testing::random_tensor;

struct Case {
  const char *name;
  const char *text;
  std::vector<std::vector<int64_t>> dims;  // of each input
  double tolerance = 1e-6;
};

void check(const Case &c, BundleOptions options = {}, const std::string &compiler = "g++",
           const char *strategy = nullptr) {
  SCOPED_TRACE(c.name);
  Diagnostics diagnostics;
  Result<Program> program = program_of(c.text, diagnostics);
  ASSERT_TRUE(program.ok()) << messages(diagnostics);
  ASSERT_TRUE(verify(*program, diagnostics).ok()) << messages(diagnostics);
  if (strategy) {
    LoweringReport report;
    ASSERT_TRUE(lower_program(*program, {}, report, diagnostics).ok()) << messages(diagnostics);
    bool used = false;
    for (const Kernel &kernel : program->kernels) used = used || (kernel.alive && name(kernel.schedule) == strategy);
    ASSERT_TRUE(used) << "no kernel has the strategy " << strategy;
  }
  std::vector<Constant> inputs;
  std::vector<RuntimeValue> values;
  for (size_t i = 0; i < program->inputs.size(); ++i) {
    inputs.push_back(
        random_tensor(program->buffer(program->inputs[i]).element(), c.dims[i], static_cast<uint32_t>(i + 1)));
    values.push_back(RuntimeValue::of(inputs.back()));
  }
  Result<std::vector<RuntimeValue>> expected = evaluate(*program, values, {}, diagnostics);
  ASSERT_TRUE(expected.ok()) << messages(diagnostics);
  BuiltBundle bundle;
  const std::string made = bundle.make(*program, options, compiler);
  ASSERT_TRUE(made.empty()) << made;
  std::vector<Constant> outputs;
  const std::string ran = bundle.run(inputs, outputs);
  ASSERT_TRUE(ran.empty()) << ran;
  for (size_t i = 0; i < outputs.size(); ++i)
    EXPECT_LE(difference(outputs[i], (*expected)[i].tensor), c.tolerance) << "output " << i;
}

TEST(EmitCpp, PointwiseFloat) {
  check({"chain",
         R"(graph "g" (x: f32[N,37], b: f32[37]) -> (y, z) {
    a: f32[N,37] = Add(x, b) @ "add"
    y: f32[N,37] = Sigmoid(a) @ "sigmoid"
    z: f32[N,37] = Mul(y, x) @ "mul"
  })",
         {{5, 37}, {37}}});
  check({"many",
         R"(graph "g" (x: f32[130]) -> (a, b, c, d, e, f) {
    a: f32[130] = Tanh(x) @ "a"
    b: f32[130] = Erf(x) @ "b"
    c: f32[130] = Floor(x) @ "c"
    d: f32[130] = Atan(x) @ "d"
    e: f32[130] = Sign(x) @ "e"
    f: bool[130] = IsNaN(x) @ "f"
  })",
         {{130}}});
}

TEST(EmitCpp, PointwiseOtherTypes) {
  check({"f16", R"(graph "g" (x: f16[33], y: f16[33]) -> (z) { z: f16[33] = Add(x, y) @ "z" })", {{33}, {33}}, 0});
  check({"f64", R"(graph "g" (x: f64[33]) -> (z) { z: f64[33] = Exp(x) @ "z" })", {{33}}, 1e-12});
  check({"i64",
         R"(graph "g" (x: i64[33], y: i64[33]) -> (z, q) {
    z: i64[33] = Mul(x, y) @ "z"
    q: i64[33] = Div(x, y) @ "q"
  })",
         {{33}, {33}},
         0});
  check({"casts",
         R"(graph "g" (x: f32[50]) -> (a, b, c, d) {
    a: i32[50] = Cast(x) {to = 6} @ "a"
    b: u8[50] = Cast(a) {to = 2} @ "b"
    c: bool[50] = Cast(x) {to = 9} @ "c"
    d: bf16[50] = Cast(x) {to = 16} @ "d"
  })",
         {{50}},
         0});
}

TEST(EmitCpp, IndexKernels) {
  check({"transpose",
         R"(graph "g" (x: f32[N,7,9]) -> (y) { y: f32[9,N,7] = Transpose(x) {perm = ints [2, 0, 1]} @ "t" })",
         {{3, 7, 9}},
         0});
  check({"concat",
         R"(graph "g" (x: f32[N,7], z: f32[N,4]) -> (y) { y: f32[N,11] = Concat(x, z) {axis = 1} @ "c" })",
         {{3, 7}, {3, 4}},
         0});
  check({"gather",
         R"(graph "g" (x: f32[4,20], i: i64[N]) -> (y) { y: f32[N,20] = Gather(x, i) {axis = 0} @ "gather" })",
         {{4, 20}, {6}},
         0});
}

// The check of an index stands before the loop over columns; where that has no iteration nobody needs the index.
TEST(EmitCpp, AnIndexThatNoIterationNeedsIsNotChecked) {
  Diagnostics diagnostics;
  const auto program = program_of(R"(graph "g" (x: f32[D,S], i: i64[N], z: f32[N,S]) -> (y) {
    g: f32[N,S] = Gather(x, i) {axis = 0} @ "gather"
    y: f32[N,S] = Mul(g, z) @ "mul"
  })",
                                  diagnostics);
  ASSERT_TRUE(program.ok()) << messages(diagnostics);
  BuiltBundle bundle;
  const std::string made = bundle.make(*program, {});
  ASSERT_TRUE(made.empty()) << made;
  std::vector<Constant> outputs;
  for (const int64_t columns : {0, 20}) {
    const Constant outside = Constant::int64s({1, 7, 2});
    const std::string ran = bundle.run({random_tensor(ElementType::kFloat32, {3, columns}, 1), outside,
                                        random_tensor(ElementType::kFloat32, {3, columns}, 2)},
                                       outputs);
    EXPECT_EQ(bundle.status, columns == 0 ? OPTC_OK : OPTC_MODEL_FAULT) << ran;
  }
}

TEST(EmitCpp, Contractions) {
  check({"matmul",
         R"(graph "g" (x: f32[N,40], b: f32[70]) -> (y) {
    const w: f32[40,70] = splat 0.25
    h: f32[N,70] = MatMul(x, w) @ "matmul"
    a: f32[N,70] = Add(h, b) @ "add"
    y: f32[N,70] = Relu(a) @ "relu"
  })",
         {{9, 40}, {70}}},
        {}, "g++", "gemm");
  check({"matmul of run-time operands",
         R"(graph "g" (x: f32[2,N,33], w: f32[2,33,17]) -> (y) {
    y: f32[2,N,17] = MatMul(x, w) @ "matmul"
  })",
         {{2, 5, 33}, {2, 33, 17}}},
        {}, "g++", "gemm");
  check({"attention",
         R"(graph "g" (q: f32[2,3,S,16], k: f32[2,3,T,16], v: f32[2,3,T,16]) -> (y) {
    y: f32[2,3,S,16] = Attention(q, k, v) @ "attention"
  })",
         {{2, 3, 6, 16}, {2, 3, 9, 16}, {2, 3, 9, 16}}},
        {}, "g++", "attention");
}

// Storage in 16 bits: the bundle against the f32 Program.
void check_precision(const Case &c, ElementType precision) {
  SCOPED_TRACE(c.name);
  Diagnostics diagnostics;
  Result<Program> plain = program_of(c.text, diagnostics), lowered = program_of(c.text, diagnostics);
  ASSERT_TRUE(plain.ok() && lowered.ok()) << messages(diagnostics);
  LoweringOptions lowering;
  lowering.precision = precision;
  LoweringReport report;
  ASSERT_TRUE(lower_program(*lowered, lowering, report, diagnostics).ok()) << messages(diagnostics);
  EXPECT_GT(report.precision.temporaries + report.precision.constants, 0);
  std::vector<Constant> inputs;
  std::vector<RuntimeValue> values;
  for (size_t i = 0; i < plain->inputs.size(); ++i) {
    inputs.push_back(random_tensor(plain->buffer(plain->inputs[i]).element(), c.dims[i], static_cast<uint32_t>(i + 1)));
    values.push_back(RuntimeValue::of(inputs.back()));
  }
  Result<std::vector<RuntimeValue>> expected = evaluate(*plain, values, {}, diagnostics);
  ASSERT_TRUE(expected.ok()) << messages(diagnostics);
  BuiltBundle bundle;
  const std::string made = bundle.make(*lowered, {}, "g++");
  ASSERT_TRUE(made.empty()) << made;
  std::vector<Constant> outputs;
  const std::string ran = bundle.run(inputs, outputs);
  ASSERT_TRUE(ran.empty()) << ran;
  for (size_t i = 0; i < outputs.size(); ++i) {
    EXPECT_EQ(outputs[i].type(), (*expected)[i].tensor.type());
    EXPECT_LE(difference(outputs[i], (*expected)[i].tensor), c.tolerance) << "output " << i;
  }
}

TEST(EmitCpp, StorageIn16Bits) {
  const Case rows = {"rows",
                     R"(graph "g" (x: f32[N,37], z: f32[N,37]) -> (y) {
    const table: f32[200,37] = hash "t"
    const zero: i64[1] = [0]
    a: f32[N,37] = Add(x, z) @ "add"
    s: f32[N,37] = Softmax(a) {axis = -1} @ "first"
    t: f32[N,37] = Softmax(s) {axis = 0} @ "second"
    m: f32[200,37] = Softmax(table) {axis = 0} @ "table"
    u: f32[N,37] = Mul(t, x) @ "mul"
    v: f32[1,37] = ReduceMean(m, zero) {keepdims = 1} @ "mean"
    y: f32[N,37] = Add(u, v) @ "end"
  })",
                     {{5, 37}, {5, 37}},
                     5e-3};
  Case wide = rows;
  wide.tolerance = 4e-2;
  check_precision(rows, ElementType::kFloat16);
  check_precision(wide, ElementType::kBFloat16);
}

}  // namespace
}  // namespace optc
