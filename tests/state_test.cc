// States: inputs and outputs that are one memory. What lowering makes of them computes what the unfused Program does;
// what cannot be one is refused; the verifier finds a kernel that reads what was replaced.
#include "ir/program/state.h"

#include <gtest/gtest.h>

#include "tests/lowered.h"
#include "tests/made_program.h"

namespace optc {
namespace {

using testing::Made;
using Pairs = std::vector<std::pair<std::string, std::string>>;

DimValues sizes(int64_t past) {
  return [past](const DimSymbol &symbol) {
    return std::optional<int64_t>(symbol.name == "P" ? past : symbol.name == "N" ? 2 : 3);
  };
}

Lowered lowered(const std::string &text, const Pairs &pairs, LoweringOptions options = {}) {
  options.states = pairs;
  return lower_text(text, options);
}

// On every number of steps, for several lengths.
Lowered check(const std::string &text, const Pairs &pairs) {
  Lowered all = lowered(text, pairs);
  for (int64_t steps = 0; steps <= static_cast<int64_t>(all.report.steps.size()); ++steps) {
    LoweringOptions options;
    options.max_steps = steps;
    const Lowered some = lowered(text, pairs, options);
    for (const int64_t past : {0, 1, 5}) expect_same_results(some, sizes(past), 1e-5);
  }
  for (const State &state : all.program.states) {
    Diagnostics diagnostics;
    const auto read = parse_state(print(all.program, state), all.program, diagnostics);
    EXPECT_TRUE(read.ok() && *read == state) << said(diagnostics) << print(all.program, state);
  }
  return all;
}

// A key is appended; scores of all keys.
constexpr const char *kAppend =
    R"(graph "append" (q: f32[N,2,1,4], past: f32[N,2,P,4], new: f32[N,2,1,4]) -> (y, present) {
    present: f32[N,2,P+1,4] = Concat(past, new) {axis = 2}
    t: f32[N,2,4,P+1] = Transpose(present) {perm = ints [0, 1, 3, 2]}
    s: f32[N,2,1,P+1] = MatMul(q, t)
    y: f32[N,2,1,P+1] = Softmax(s) {axis = -1}
  })";

TEST(State, ACacheIsAppendedToInPlace) {
  const Lowered r = check(kAppend, {{"past", "present"}});
  ASSERT_EQ(r.program.states.size(), 1u);
  EXPECT_TRUE(r.program.states[0].in_place) << r.text;
  EXPECT_EQ(r.program.states[0].axis, 2);
  // Nothing reads the past but what reads all of the present.
  for (const Kernel &kernel : r.program.kernels) {
    if (!kernel.alive) continue;
    for (BufferId b : reads(r.program, kernel)) EXPECT_NE(b, r.program.inputs[1]) << r.text;
    // What is written into it does not grow with it.
    for (BufferId b : writes(r.program, kernel)) {
      if (b == r.program.outputs[1]) {
        EXPECT_FALSE(uses_symbol(kernel.cost.bytes_written, r.program.dims->find("P"))) << r.text;
      }
    }
  }
}

TEST(State, ALeftOutStepCopies) {
  LoweringOptions options;
  options.disabled = {"state.in_place"};
  const Lowered r = lowered(kAppend, {{"past", "present"}}, options);
  ASSERT_EQ(r.program.states.size(), 1u);
  EXPECT_FALSE(r.program.states[0].in_place);
  expect_same_results(r, sizes(4), 1e-5);
}

TEST(State, TwoCachesOfOneLengthShareTheirCapacity) {
  const Lowered r =
      check(R"(graph "two" (pk: f32[N,2,P,4], pv: f32[N,2,P,4], k: f32[N,2,1,4], v: f32[N,2,1,4]) -> (ok, ov) {
    ok: f32[N,2,P+1,4] = Concat(pk, k) {axis = 2}
    ov: f32[N,2,P+1,4] = Concat(pv, v) {axis = 2}
  })",
            {{"pk", "ok"}, {"pv", "ov"}});
  ASSERT_EQ(r.program.states.size(), 2u);
  EXPECT_EQ(r.program.states[0].capacity, r.program.states[1].capacity);
  EXPECT_EQ(r.program.states[0].capacity->name, "P_capacity");
}

// Heads merged: the view has no axis of its own for the keys.
TEST(State, AReaderOfAnotherShapeGetsACopy) {
  const Lowered r = check(R"(graph "merged" (w: f32[4,3], past: f32[2,P,4], new: f32[2,1,4]) -> (y, present) {
    const shape: i64[2] = [-1, 4]
    present: f32[2,P+1,4] = Concat(past, new) {axis = 1}
    m: f32[2*P+2,4] = Reshape(present, shape) {allowzero = 0}
    y: f32[2*P+2,3] = MatMul(m, w)
  })",
                          {{"past", "present"}});
  ASSERT_EQ(r.program.states.size(), 1u);
}

// One head: the view's rows are the cache's.
TEST(State, AViewThatKeepsTheAxisReadsTheCache) {
  const Lowered r = check(R"(graph "view" (w: f32[4,3], past: f32[1,P,4], new: f32[1,1,4]) -> (y, present) {
    const shape: i64[2] = [-1, 4]
    present: f32[1,P+1,4] = Concat(past, new) {axis = 1}
    m: f32[P+1,4] = Reshape(present, shape) {allowzero = 0}
    y: f32[P+1,3] = MatMul(m, w)
  })",
                          {{"past", "present"}});
  ASSERT_EQ(r.report.states.size(), 1u);
  EXPECT_TRUE(r.report.states[0].copies.empty()) << r.text;
}

TEST(State, AMapOfItselfIsComputedInPlace) {
  const Lowered r = check(R"(graph "decay" (h: f32[N,8], x: f32[N,8]) -> (g) {
    const c: f32[8] = hash "c"
    a: f32[N,8] = Mul(h, c)
    b: f32[N,8] = Add(a, x)
    g: f32[N,8] = Tanh(b)
  })",
                          {{"h", "g"}});
  ASSERT_EQ(r.program.states.size(), 1u);
  EXPECT_TRUE(r.program.states[0].in_place) << r.text;
  EXPECT_EQ(r.program.states[0].axis, -1);
}

TEST(State, AProductOfItselfIsCopied) {
  const Lowered r = check(R"(graph "cell" (h: f32[N,8], x: f32[N,8]) -> (g) {
    const w: f32[8,8] = hash "w"
    a: f32[N,8] = MatMul(h, w)
    b: f32[N,8] = Add(a, x)
    g: f32[N,8] = Tanh(b)
  })",
                          {{"h", "g"}});
  ASSERT_EQ(r.report.states.size(), 1u);
  EXPECT_FALSE(r.report.states[0].in_place);
  ASSERT_EQ(r.report.states[0].copies.size(), 1u);
  EXPECT_NE(r.report.states[0].copies[0].find("has replaced it"), std::string::npos) << r.report.states[0].copies[0];
}

TEST(State, RowsAreScatteredIntoACacheOfOneSize) {
  const Lowered r = check(R"(graph "scatter" (cache: f32[6,4], x: f32[2,4]) -> (out, y) {
    const i: i64[2,1] = [4, 1]
    out: f32[6,4] = ScatterND(cache, i, x) {reduction = "none"}
    y: f32[6,4] = Relu(out)
  })",
                          {{"cache", "out"}});
  ASSERT_EQ(r.program.states.size(), 1u);
  EXPECT_TRUE(r.program.states[0].in_place) << r.text;
}

TEST(State, AWindowThatMovesIsCopied) {
  const Lowered r = check(R"(graph "window" (past: f32[N,6], x: f32[N,2]) -> (present) {
    const a: i64[1] = [2]
    const e: i64[1] = [6]
    const d: i64[1] = [1]
    t: f32[N,4] = Slice(past, a, e, d)
    present: f32[N,6] = Concat(t, x) {axis = 1}
  })",
                          {{"past", "present"}});
  ASSERT_EQ(r.report.states.size(), 1u);
  EXPECT_FALSE(r.report.states[0].in_place);
}

TEST(State, AnOutputThatIsTheInputNeedsNoKernel) {
  const Lowered r = check(R"(graph "same" (h: f32[N,8], x: f32[N,8]) -> (g, y) {
    g: f32[N,8] = Identity(h)
    y: f32[N,8] = Add(h, x)
  })",
                          {{"h", "g"}});
  EXPECT_EQ(r.report.kernels_after, 1) << r.text;
}

// --- what is refused
std::string refused(const std::string &text, const Pairs &pairs) {
  Diagnostics diagnostics;
  Result<Graph> graph = parse_graph(text, diagnostics);
  EXPECT_TRUE(graph.ok() && infer_graph(*graph, diagnostics).ok()) << said(diagnostics);
  LoweringOptions options;
  options.states = pairs;
  LoweringReport report;
  const auto program = lower(*graph, options, report, diagnostics);
  EXPECT_FALSE(program.ok());
  return said(diagnostics);
}

TEST(State, WhatIsNoStateIsRefused) {
  const std::string grown = R"(graph "g" (past: f32[2,P], x: f32[2,1], z: f32[1,P]) -> (scaled, behind, two) {
    s: f32[2,P] = Neg(past)
    scaled: f32[2,P+1] = Concat(s, x) {axis = 1}
    behind: f32[2,P+1] = Concat(x, past) {axis = 1}
    two: f32[1,P] = Abs(z)
  })";
  EXPECT_NE(refused(grown, {{"past", "scaled"}}).find("writes other values where the input is"), std::string::npos);
  EXPECT_NE(refused(grown, {{"past", "behind"}}).find("not the input with something behind it"), std::string::npos);
  EXPECT_NE(refused(grown, {{"past", "two"}}).find("the input is f32[2,P]"), std::string::npos);
  EXPECT_NE(refused(grown, {{"nobody", "two"}}).find("no input 'nobody'"), std::string::npos);
  EXPECT_NE(refused(grown, {{"z", "nobody"}}).find("no output 'nobody'"), std::string::npos);
  EXPECT_NE(refused(grown, {{"z", "two"}, {"z", "two"}}).find("is a state already"), std::string::npos);
}

// --- the verifier's laws
struct Planted : Made {
  BufferId in, out, y;
  Planted() {
    in = input("past", ElementType::kFloat32, {Dim(4)});
    out = output("present", ElementType::kFloat32, {Dim(4)});
    y = output("y", ElementType::kFloat32, {Dim(4)});
    p.buffer(in).alias = out;
    p.states.push_back({0, 0, -1, nullptr, true});
  }
  // to[i] = from[at(i)]
  template <typename At>
  void copy(BufferId from, BufferId to, At &&at) {
    LoopNest nest;
    const Dim i = loop(nest.loops, 4);
    nest.stages.push_back(store(to, {i}, load(from, {at(i)})));
    add(std::move(nest), "kernel" + std::to_string(p.order.size()));
  }
  std::string wrong() {
    Diagnostics said_here;
    return verify(p, said_here).ok() ? "" : said(said_here);
  }
};
const auto kSame = [](Dim i) { return i; };
const auto kReversed = [](Dim i) { return Dim(3) - i; };

TEST(State, TheVerifierFindsAStaleRead) {
  Planted good;
  good.copy(good.in, good.y, kReversed);
  good.copy(good.y, good.out, kSame);
  EXPECT_EQ(good.wrong(), "");
  Planted late;  // the same in another order
  late.copy(late.in, late.out, kReversed);
  late.copy(late.out, late.y, kSame);
  EXPECT_NE(late.wrong().find("P15"), std::string::npos) << late.wrong();
  Planted behind;
  behind.copy(behind.in, behind.y, kReversed);
  behind.copy(behind.y, behind.out, kSame);
  behind.copy(behind.in, behind.y, kSame);
  EXPECT_NE(behind.wrong().find("kernel2 reads of 'past' what kernel kernel1 has replaced"), std::string::npos)
      << behind.wrong();
}

TEST(State, TheVerifierFindsTwoLayouts) {
  Planted apart;
  apart.copy(apart.in, apart.y, kSame);
  apart.copy(apart.y, apart.out, kSame);
  apart.p.buffer(apart.in).alias = BufferId();
  EXPECT_NE(apart.wrong().find("P14"), std::string::npos) << apart.wrong();
  Planted padded;
  padded.copy(padded.in, padded.y, kSame);
  padded.copy(padded.y, padded.out, kSame);
  padded.p.buffer(padded.out).padded = {Dim(8)};
  EXPECT_NE(padded.wrong().find("P14"), std::string::npos) << padded.wrong();
}

}  // namespace
}  // namespace optc
