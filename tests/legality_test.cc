// What lowering/fusion/legality.h forbids, each by a Program made by hand in which the fusion would change a value. No
// operator is built of such kernels today (a tensor is written once, then read), so random graphs cannot ask for it.
#include "lowering/fusion/legality.h"

#include <gtest/gtest.h>

#include "lowering/fusion/fusion.h"
#include "lowering/lower.h"
#include "tests/made_program.h"

namespace optc {
namespace {

using testing::E;
using testing::Made;
using testing::tensor;
using testing::values_of;

constexpr int64_t kSize = 4;

// Kernels over vectors of four.
struct Vectors : Made {
  BufferId x, y;

  explicit Vectors(int64_t results = kSize)
      : x(input("x", E::kFloat32, {kSize})), y(output("y", E::kFloat32, {results})) {}

  BufferId temporary(const std::string &name) { return buffer(name, BufferKind::kTemporary, E::kFloat32, {kSize}); }
  ScalarId unary(ScalarOp op, ScalarId a) { return p.scalars.unary(op, a); }
  ScalarId sum(ScalarId a, ScalarId b) { return p.scalars.binary(ScalarOp::kAdd, a, b); }

  // to[first .. first + count) = value(index)
  template <typename F>
  void map(const std::string &name, BufferId to, F value, int64_t first = 0, int64_t count = kSize) {
    LoopNest nest;
    const Dim i = loop(nest.loops, count);
    nest.stages.push_back(store(to, {i + Dim(first)}, value(i + Dim(first))));
    add(std::move(nest), name);
  }

  // to[i] = x[i] * 2 as a sum of two terms: a kernel that finishes a sum, behind which a map may run.
  void twice(const std::string &name, BufferId to) {
    LoopNest nest;
    nest.locals = {{"sum", E::kFloat32, {}}};
    const Dim i = loop(nest.loops, kSize);
    Stage terms;
    loop(terms.loops, 2);
    StageOutput o;
    o.local = LocalId(size_t{0}), o.value = load(x, {i}), o.combine = Combine::kSum;
    terms.outputs.push_back(o);
    nest.stages = {terms, store(to, {i}, p.scalars.local(o.local, E::kFloat32, {}))};
    add(std::move(nest), name);
  }

  // The result for 1, 2, 3, 4, as the kernels are and as they are lowered.
  void expect_kept(const std::vector<float> &want) {
    const auto inputs = std::vector<Constant>{tensor<float>(E::kFloat32, {kSize}, {1, 2, 3, 4})};
    const auto plain = run(inputs);
    ASSERT_TRUE(plain.ok()) << message();
    EXPECT_EQ(values_of<float>((*plain)[0]), want);
    LoweringReport report;
    ASSERT_TRUE(lower_program(p, {}, report, diagnostics).ok()) << message();
    options.as_lowered = true;
    const auto lowered = run(inputs);
    ASSERT_TRUE(lowered.ok()) << message();
    EXPECT_EQ(values_of<float>((*lowered)[0]), want) << print(p);
  }
};

TEST(Legality, WhatIsReadHasTheValuesOfItsPlace) {
  Vectors v;
  const BufferId t = v.temporary("t"), a = v.temporary("a");
  v.map("first", t, [&](Dim i) { return v.load(v.x, {i}); });
  v.map("early", a, [&](Dim i) { return v.unary(ScalarOp::kNeg, v.load(t, {i})); });
  v.map("second", t, [&](Dim i) { return v.sum(v.load(v.x, {i}), v.load(v.x, {i})); });
  v.map("late", v.y, [&](Dim i) { return v.sum(v.load(a, {i}), v.load(t, {i})); });  // -x + 2 x
  v.expect_kept({1, 2, 3, 4});
}

TEST(Legality, AKernelThatStoresAPartTwiceIsNoValueOfTheWhole) {
  Vectors v;
  const BufferId t = v.temporary("t");
  LoopNest nest;
  const Dim i = v.loop(nest.loops, 2);
  Stage both = Made::store(t, {i}, v.load(v.x, {i}));
  both.outputs.push_back(Made::store(t, {i + Dim(2)}, v.unary(ScalarOp::kNeg, v.load(v.x, {i}))).outputs[0]);
  nest.stages.push_back(std::move(both));
  v.add(std::move(nest), "halves");
  v.map("reader", v.y, [&](Dim j) { return v.sum(v.load(t, {j}), v.load(t, {j})); });
  v.expect_kept({2, 4, -2, -4});
}

TEST(Legality, ATensorOfSeveralWritersIsNoValueOfOne) {
  Vectors v;
  const BufferId t = v.temporary("t");
  v.map(
      "upper", t, [&](Dim i) { return v.load(v.x, {i}); }, 0, 2);
  v.map(
      "lower", t, [&](Dim i) { return v.unary(ScalarOp::kNeg, v.load(v.x, {i})); }, 2, 2);
  v.map("reader", v.y, [&](Dim j) { return v.sum(v.load(t, {j}), v.load(t, {j})); });
  v.expect_kept({2, 4, -6, -8});
}

TEST(Legality, ASumThatIsReadAtTwoPlacesStaysInMemory) {
  Vectors v;
  const BufferId t = v.temporary("t");
  v.twice("sums", t);
  v.map("reader", v.y,
        [&](Dim j) { return v.sum(v.load(t, {j}), v.unary(ScalarOp::kNeg, v.load(t, {Dim(kSize - 1) - j}))); });
  v.expect_kept({-6, -2, 2, 6});
}

TEST(Legality, APartOfASumIsNotTheWhole) {
  Vectors v(2);
  const BufferId t = v.temporary("t"), part = v.buffer("part", BufferKind::kTemporary, E::kFloat32, {2});
  v.p.buffer(part).alias = t;
  v.p.buffer(part).alias_offset = 2;
  v.twice("sums", t);
  v.map(
      "reader", v.y, [&](Dim j) { return v.unary(ScalarOp::kNeg, v.load(part, {j})); }, 0, 2);
  v.expect_kept({-6, -8});
}

TEST(Legality, AMapBehindASumRunsOnIt) {
  Vectors v;
  const BufferId t = v.temporary("t");
  v.twice("sums", t);
  v.map("reader", v.y, [&](Dim j) { return v.unary(ScalarOp::kNeg, v.load(t, {j})); });
  v.expect_kept({-2, -4, -6, -8});
  EXPECT_EQ(v.p.order.size(), 1u);
}

TEST(Legality, AMapIsInlinedWhereNothingForbidsIt) {
  Vectors v;
  const BufferId t = v.temporary("t");
  v.map("first", t, [&](Dim i) { return v.unary(ScalarOp::kNeg, v.load(v.x, {i})); });
  v.map("reader", v.y, [&](Dim j) { return v.sum(v.load(t, {j}), v.load(v.x, {j})); });
  v.expect_kept({0, 0, 0, 0});
  EXPECT_EQ(v.p.order.size(), 1u);
}

// Views are read by their root's plain order.
TEST(Legality, OnlyATensorWithoutViewsMayBeStoredInAnotherOrder) {
  for (const bool viewed : {false, true}) {
    Vectors v;
    const BufferId t = v.temporary("t");
    v.map("make", t, [&](Dim i) { return v.unary(ScalarOp::kNeg, v.load(v.x, {i})); });
    if (viewed) {
      const BufferId pairs = v.buffer("pairs", BufferKind::kTemporary, E::kFloat32, {2, 2});
      v.p.buffer(pairs).alias = t;
    }
    v.map("use", v.y, [&](Dim i) { return v.load(t, {i}); });
    const Uses uses(v.p);
    EXPECT_EQ(may_be_reordered(v.p, uses, t), !viewed);
    EXPECT_FALSE(may_be_reordered(v.p, uses, v.y));
    EXPECT_FALSE(may_be_reordered(v.p, uses, v.x));
  }
}

// What is merged behind a store runs at the counters with which that store writes the element.
TEST(Legality, TheInverseOfAStoreIsTheCountersThatWriteAnElement) {
  DimTable dims;
  const Dim a = dims.new_loop("a", 3), b = dims.new_loop("b", 5), c = dims.new_loop("c", 4), d = dims.new_loop("d", 2);
  const std::vector<Loop> loops = {
      {single_symbol(a), 3}, {single_symbol(b), 5}, {single_symbol(c), 4}, {single_symbol(d), 2}};
  const std::vector<Dim> store = {a * 20 + b * 4 + c, d};
  const Shape shape = {60, 2};
  for (int64_t element = 0; element < 60; ++element)
    for (int64_t last = 0; last < 2; ++last) {
      const auto inverse = invert_store(loops, store, {Dim(element), Dim(last)}, shape);
      ASSERT_TRUE(inverse);
      EXPECT_TRUE((*inverse)(*single_symbol(a))->is(element / 20));
      EXPECT_TRUE((*inverse)(*single_symbol(b))->is(element / 4 % 5));
      EXPECT_TRUE((*inverse)(*single_symbol(c))->is(element % 4));
      EXPECT_TRUE((*inverse)(*single_symbol(d))->is(last));
    }
  // Not each element, or some more than once.
  EXPECT_FALSE(invert_store(loops, {a * 20 + b * 4 + c, Dim(0)}, {Dim(0), Dim(0)}, shape));
  EXPECT_FALSE(invert_store(loops, store, {Dim(0), Dim(0)}, {61, 2}));
  EXPECT_FALSE(invert_store(loops, {a * 20 + b * 4 + c + 1, d}, {Dim(0), Dim(0)}, shape));
}

}  // namespace
}  // namespace optc
