// The evaluator on Programs as they are lowered: views by their storage, buffers in their places, memory that begins
// without values. Each test plants one fault of a lowering by hand; the evaluator names kernel, buffer and index.
#include <gtest/gtest.h>

#include "ir/program/placement.h"
#include "tests/made_program.h"

namespace optc {
namespace {

using namespace optc::testing;

struct Placed : Made {
  Placed() { options.as_lowered = true; }
  BufferId temporary(const std::string &name, Shape shape) {
    return buffer(name, BufferKind::kTemporary, E::kFloat32, std::move(shape));
  }
  BufferId view(const std::string &name, BufferId of, Dim offset, Shape shape) {
    const BufferId id = temporary(name, std::move(shape));
    p.buffer(id).alias = of;
    p.buffer(id).alias_offset = offset;
    return id;
  }
  void place(BufferId b, Dim offset, Dim bytes, size_t first, size_t last) {
    Placement placement;
    placement.buffer = b, placement.offset = offset, placement.bytes = bytes;
    placement.first = first, placement.last = last;
    p.placements.push_back(placement);
    p.arena_bytes = max(p.arena_bytes, offset + bytes);
  }
  // to[index...] = from[index...] + 1 over the shape of `over`, with `to_index` and `from_index` made of its loops.
  using Index = std::vector<Dim>;
  template <typename F, typename G>
  void copy(const std::string &name, BufferId to, BufferId from, const Shape &over, F to_index, G from_index) {
    LoopNest nest;
    Index loops;
    for (const Dim d : over) loops.push_back(loop(nest.loops, d));
    auto &s = p.scalars;
    const ScalarId value = s.binary(ScalarOp::kAdd, load(from, from_index(loops)), s.constant(E::kFloat32, 1));
    nest.stages = {store(to, to_index(loops), value)};
    add(nest, name);
  }
  void copy(const std::string &name, BufferId to, BufferId from, const Shape &over) {
    auto same = [](Index i) { return i; };
    copy(name, to, from, over, same, same);
  }
  // Runs on a [rows, 3] tensor of 0, 1, 2, ...; what was said, or empty.
  std::string said(int64_t rows = 4) {
    std::vector<float> values(static_cast<size_t>(rows * 3));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    result = run({tensor(E::kFloat32, {rows, 3}, values)});
    return result.ok() ? "" : message();
  }
  Result<std::vector<RuntimeValue>> result = std::vector<RuntimeValue>();
};

void expect_said(const std::string &text, const std::vector<std::string> &parts) {
  for (const std::string &part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

// x -> a -> b -> y, each one more than the one before.
struct Chain : Placed {
  Dim n = 4;
  BufferId x, a, b, y;
  explicit Chain(bool symbolic = false) {
    if (symbolic) n = p.dims->model_symbol("N");
    const Shape shape{n, 3};
    x = input("x", E::kFloat32, shape), y = output("y", E::kFloat32, shape);
    if (symbolic) p.sources.push_back({single_symbol(n), 0, 0});
    a = temporary("a", shape), b = temporary("b", shape);
    copy("first", a, x, shape), copy("second", b, a, shape), copy("third", y, b, shape);
    const Dim bytes = n * Dim(12);
    place(a, symbolic ? kDimOverflow : 0, bytes, 0, 1);
    place(b, symbolic ? kDimOverflow : 64, bytes, 1, 2);
    if (symbolic) p.arena_bytes = kDimOverflow;
  }
};

TEST(AsLowered, APlacedChainRuns) {
  Chain c;
  EXPECT_EQ(c.said(), "");
  EXPECT_EQ(values_of<float>((*c.result)[0])[11], 14);
  Chain s(true);
  for (const int64_t rows : {0, 1, 200}) {
    EXPECT_EQ(s.said(rows), "");
    EXPECT_EQ((*s.result)[0].tensor.count(), rows * 3);
  }
}

TEST(AsLowered, TwoLiveBuffersOverOneAnother) {
  Chain c;
  c.p.placements[1].offset = 32;
  expect_said(c.said(), {"'a'", "'b'", "lie over one another"});
  Chain good;  // one behind the other in time
  good.p.placements[1].offset = 0, good.p.placements[1].first = 2;
  expect_said(good.said(), {"kernel 'second'", "'b'", "before its place belongs to it"});
}

TEST(AsLowered, ALifetimeThatEndsBeforeTheLastReader) {
  for (const bool symbolic : {false, true}) {
    Chain c(symbolic);
    c.p.placements[0].last = 0;
    expect_said(c.said(), {"kernel 'second'", "'a'", "belongs to others", "from kernel 'first' to 'first'"});
  }
}

TEST(AsLowered, APlaceOfAStaleSize) {
  Chain c;
  c.p.placements[1].bytes = 44;
  expect_said(c.said(), {"kernel 'second'", "'b' needs 48 bytes, its place has 44"});
  Chain s(true);
  s.p.placements[0].bytes = Dim(48);
  EXPECT_EQ(s.said(4), "");
  expect_said(s.said(5), {"kernel 'first'", "'a' needs 60 bytes, its place has 48"});
  Chain without;
  without.p.placements.pop_back();
  expect_said(without.said(), {"kernel 'second'", "'b' has no place"});
}

// Two parts of a Concat, written through views of the whole.
struct Parts : Placed {
  BufferId x, whole, top, bottom, y;
  explicit Parts(int64_t second_offset = 12, int64_t rows = 4) {
    x = input("x", E::kFloat32, {4, 3}), y = output("y", E::kFloat32, {8, 3});
    whole = temporary("whole", {8, 3});
    top = view("top", whole, 0, {4, 3}), bottom = view("bottom", whole, second_offset, {4, 3});
    copy("upper", top, x, {4, 3});
    copy("lower", bottom, x, {rows, 3});
    copy("reader", y, whole, {8, 3});
    place(whole, 0, 96, 0, 2);
  }
};

TEST(AsLowered, APartThatWasNeverWritten) {
  Parts good;
  EXPECT_EQ(good.said(), "");
  EXPECT_EQ(values_of<float>((*good.result)[0])[23], 13);
  Parts lost;
  lost.p.order.erase(lost.p.order.begin() + 1);
  lost.p.placements[0].last = 1;
  expect_said(lost.said(), {"kernel 'reader'", "element [4,0] of 'whole' is read but was never written"});
  Parts bound(12, 3);
  expect_said(bound.said(), {"kernel 'reader'", "element [7,0] of 'whole'"});
}

TEST(AsLowered, AViewAtAWrongOffset) {
  Parts early(9);
  expect_said(early.said(), {"kernel 'reader'", "element [7,0] of 'whole'"});
  Parts late(15);
  expect_said(late.said(), {"kernel 'lower'", "'bottom' does not lie inside 'whole'"});
}

// A view reads its root's bytes by its own strides: with another order or padding it reads what is not there.
TEST(AsLowered, AViewOfAnotherStorage) {
  for (const bool right : {true, false}) {
    Placed m;
    const BufferId x = m.input("x", E::kFloat32, {4, 3}), y = m.output("y", E::kFloat32, {2, 2, 3});
    const BufferId t = m.temporary("t", {4, 3});
    m.p.buffer(t).padded = {Dim(4), Dim(8)};
    const BufferId v = m.view("v", t, 0, {2, 2, 3});
    if (right) m.p.buffer(v).padded = {Dim(2), Dim(2), Dim(8)};
    m.copy("writer", t, x, {4, 3});
    m.copy("reader", y, v, {2, 2, 3});
    m.place(t, 0, 128, 0, 1);
    if (right)
      EXPECT_EQ(m.said(), "");
    else
      expect_said(m.said(), {"kernel 'reader'", "element [0,1,0] of 'v' is read but was never written"});
  }
  Placed narrow;
  const BufferId x = narrow.input("x", E::kFloat32, {4, 3});
  const BufferId y = narrow.output("y", E::kFloat32, {4, 3}), t = narrow.temporary("t", {4, 3});
  narrow.p.buffer(t).padded = {Dim(4), Dim(2)};
  narrow.copy("writer", t, x, {4, 3});
  narrow.copy("reader", y, t, {4, 3});
  narrow.place(t, 0, 32, 0, 1);
  expect_said(narrow.said(), {"kernel 'writer'", "'t'", "storage is too small"});
}

TEST(AsLowered, AnOutputWithAHole) {
  Placed m;
  const BufferId x = m.input("x", E::kFloat32, {4, 3}), y = m.output("y", E::kFloat32, {4, 3});
  m.copy("writer", y, x, {4, 2});
  expect_said(m.said(), {"element [0,2] of 'y' is read but was never written"});
  m.options.as_lowered = false;
  EXPECT_EQ(m.said(), "");
}

// Scatter into what was never filled.
TEST(AsLowered, ACombinationWithNothing) {
  Placed m;
  const BufferId x = m.input("x", E::kFloat32, {4, 3}), y = m.output("y", E::kFloat32, {4, 3});
  m.copy("scatter", y, x, {4, 3});
  m.p.kernel(m.p.order[0]).nest()->stages[0].outputs[0].combine = Combine::kSum;
  m.p.kernel(m.p.order[0]).nest()->sequential = true;
  expect_said(m.said(), {"kernel 'scatter'", "element [0,0] of 'y' is combined with but was never written"});
}

// A value that only the arm of a select that is not taken reads may be missing.
TEST(AsLowered, WhatIsNotTakenMayBeMissing) {
  Placed m;
  const BufferId x = m.input("x", E::kFloat32, {4, 3}), y = m.output("y", E::kFloat32, {4, 3});
  const BufferId t = m.temporary("t", {4, 3});
  m.copy("writer", t, x, {2, 3});
  LoopNest nest;
  auto &s = m.p.scalars;
  const Dim i = m.loop(nest.loops, 4), j = m.loop(nest.loops, 3);
  const ScalarId there = s.binary(ScalarOp::kLt, s.index(i), s.constant_int(E::kInt64, 2));
  nest.stages = {Made::store(y, {i, j}, s.select(there, m.load(t, {i, j}), s.constant(E::kFloat32, -1)))};
  m.add(nest, "reader");
  m.place(t, 0, 48, 0, 1);
  EXPECT_EQ(m.said(), "");
  EXPECT_EQ(values_of<float>((*m.result)[0]), (std::vector<float>{1, 2, 3, 4, 5, 6, -1, -1, -1, -1, -1, -1}));
}

// x -> a -> b in the bytes of a -> y, over more elements than are computed at one time.
struct InPlace : Placed {
  BufferId a, b;
  explicit InPlace(int64_t rows_written = 400, bool backwards = false) {
    const Shape shape{400, 3};
    const BufferId x = input("x", E::kFloat32, shape), y = output("y", E::kFloat32, shape);
    a = temporary("a", shape);
    b = view("b", a, 0, shape);
    copy("first", a, x, shape);
    copy(
        "second", b, a, {rows_written, 3}, [](Index i) { return i; },
        [&](Index i) {
          return backwards ? Index{Dim(399) - i[0], i[1]} : i;
        });
    copy("third", y, b, shape);
    place(a, 0, 4800, 0, 2);
  }
};

TEST(AsLowered, AResultInTheBytesOfAnOperand) {
  InPlace good;
  EXPECT_EQ(good.said(400), "");
  EXPECT_EQ(values_of<float>((*good.result)[0])[1199], 1202);
  InPlace part(399);  // what is not overwritten is the operand's value, not the result's
  expect_said(part.said(400), {"kernel 'third'", "element [399,0] of 'b' is read but was never written"});
  InPlace elsewhere(400, true);
  expect_said(elsewhere.said(400), {"kernel 'second'", "of 'a' is read after the kernel has overwritten it in place"});
}

// x -> a -> b -> c -> y, all in the bytes of a: a kernel reads what an earlier one put in place.
TEST(AsLowered, ResultsInTheSameBytesOneAfterTheOther) {
  Placed m;
  const Shape shape{400, 3};
  const BufferId x = m.input("x", E::kFloat32, shape), y = m.output("y", E::kFloat32, shape);
  const BufferId a = m.temporary("a", shape), b = m.view("b", a, 0, shape), c = m.view("c", a, 0, shape);
  m.copy("first", a, x, shape), m.copy("second", b, a, shape), m.copy("third", c, b, shape),
      m.copy("last", y, c, shape);
  m.place(a, 0, 4800, 0, 3);
  EXPECT_EQ(m.said(400), "");
  EXPECT_EQ(values_of<float>((*m.result)[0])[1199], 1203);
}

// A body's buffer that an earlier iteration wrote holds nothing in the next one.
TEST(AsLowered, AnIterationDoesNotReadTheOneBefore) {
  for (const bool fault : {false, true}) {
    Placed m;
    auto &s = m.p.scalars;
    const BufferId x = m.input("x", E::kFloat32, {4, 3}), y = m.output("y", E::kFloat32, {4, 3});
    const BufferId state = m.temporary("state", {4, 3}), next = m.temporary("next", {4, 3});
    const BufferId step = m.temporary("step", {4, 3});
    const BufferId i = m.buffer("i", BufferKind::kTemporary, E::kInt64, {});
    const BufferId more = m.buffer("more", BufferKind::kTemporary, E::kBool, {});
    const BufferId trips = m.buffer("trips", BufferKind::kConstant, E::kInt64, {});
    m.p.buffer(trips).constant = Constant::scalar_int64(2);
    // step is written where the iteration is the first one, or always.
    LoopNest write;
    const Dim a = m.loop(write.loops, 4), b = m.loop(write.loops, 3);
    write.stages = {Made::store(step, {a, b}, s.constant(E::kFloat32, 10))};
    if (fault)
      write.stages[0].outputs[0].condition = s.binary(ScalarOp::kEq, m.load(i, {}), s.constant_int(E::kInt64, 0));
    LoopNest sum;
    const Dim c = m.loop(sum.loops, 4), d = m.loop(sum.loops, 3);
    sum.stages = {Made::store(next, {c, d}, s.binary(ScalarOp::kAdd, m.load(state, {c, d}), m.load(step, {c, d})))};
    LoopNest go;
    go.stages = {Made::store(more, {}, s.constant_int(E::kBool, 1))};
    ControlFlow loop;
    loop.kind = ControlFlow::Kind::kLoop;
    loop.bodies.emplace_back();
    for (const auto &[nest, name] : {std::pair(&write, "write"), std::pair(&sum, "sum"), std::pair(&go, "go")}) {
      m.add(*nest, name);
      loop.bodies[0].push_back(m.p.order.back());
      m.p.order.pop_back();
    }
    loop.results = {{more, next}};
    loop.outputs = {y};
    loop.trip_count = trips, loop.iteration = i;
    loop.initial = {x}, loop.body_inputs = {state}, loop.carried = 1;
    Kernel kernel;
    kernel.name = "loop", kernel.body = loop;
    m.p.order.push_back(m.p.add_kernel(kernel));
    // The loop's result is stored in another order and padded, as a later kernel may want it.
    const BufferId result = m.temporary("result", {4, 3});
    m.p.buffer(result).order = {1, 0};
    m.p.buffer(result).padded = {Dim(3), Dim(8)};
    std::get<ControlFlow>(m.p.kernels.back().body).outputs = {result};
    m.copy("last", y, result, {4, 3});
    m.place(result, 1024, 96, 0, 1);
    int64_t at = 0;
    for (const BufferId t : {state, next, step, i, more}) m.place(t, at++ * 64, 48, 0, 0);
    if (!fault) {
      EXPECT_EQ(m.said(), "");
      EXPECT_EQ(values_of<float>((*m.result)[0])[11], 32);
    } else {
      expect_said(m.said(), {"kernel 'sum'", "element [0,0] of 'step' is read but was never written"});
    }
  }
}

// A kernel of a Program on memory as a bundle holds it: padded rows, another order, only some rows written.
TEST(OneKernel, RunsOnMemoryAsItIsStored) {
  Placed m;
  const Dim n = m.p.dims->model_symbol("N");
  const BufferId x = m.input("x", E::kFloat32, {n, 3}), y = m.output("y", E::kFloat32, {n, 3});
  const BufferId t = m.temporary("t", {n, 3});
  m.p.buffer(t).order = {1, 0};
  m.p.buffer(t).padded = {Dim(3), Dim(4)};
  m.copy("first", t, x, {n, 3});
  m.copy("second", t, x, {Dim(1), 3});
  m.copy("third", y, t, {n, 3});
  const SymbolValueList sizes = {{single_symbol(n)->id, 2}};
  const std::vector<float> in = {0, 1, 2, 3, 4, 5};
  std::vector<float> stored = {10, 20, -1, -1, 11, 21, -1, -1, 12, 22, -1, -1}, out(6);
  auto bytes = [](const std::vector<float> &v) { return reinterpret_cast<const uint8_t *>(v.data()); };
  const std::vector<StoredBuffer> memory = {{x, bytes(in)}, {t, bytes(stored)}, {y, bytes(out)}};
  auto one = [&](size_t kernel) {
    auto values = evaluate_kernel(m.p, m.p.order[kernel], sizes, memory, {}, m.diagnostics);
    EXPECT_TRUE(values.ok()) << m.message();
    EXPECT_EQ(values->size(), 1u);
    return values_of<float>(RuntimeValue::of((*values)[0].value));
  };
  EXPECT_EQ(one(0), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(one(1), (std::vector<float>{1, 2, 3, 20, 21, 22}));
  EXPECT_EQ(one(2), (std::vector<float>{11, 12, 13, 21, 22, 23}));
  EXPECT_EQ(stored[1], 20);
  const auto value = stored_value(m.p, t, sizes, bytes(stored));
  ASSERT_TRUE(value);
  EXPECT_EQ(values_of<float>(RuntimeValue::of(*value)), (std::vector<float>{10, 11, 12, 20, 21, 22}));
}

}  // namespace
}  // namespace optc
