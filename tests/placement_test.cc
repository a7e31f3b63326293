// Memory: the search of places, what the verifier asks of them (P11, P12), and the plan that lowering makes.
#include "ir/program/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "lowering/buffers/buffers.h"
#include "runtime/bundle/place.h"
#include "tests/made_program.h"

namespace optc {
namespace {

using namespace optc::testing;

TEST(Search, RandomBlocksShareNothingWhileTheyLive) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    const int32_t count = static_cast<int32_t>(random() % 120), steps = 1 + static_cast<int32_t>(random() % 50);
    std::vector<int64_t> bytes, offset(static_cast<size_t>(count)), again = offset;
    std::vector<int32_t> first, last;
    for (int32_t i = 0; i < count; ++i) {
      bytes.push_back(random() % 4 ? static_cast<int64_t>(random() % 5000) : 0);
      first.push_back(static_cast<int32_t>(random()) & 0x7fffffff), first.back() %= steps;
      last.push_back(std::min<int32_t>(steps - 1, first.back() + static_cast<int32_t>(random() % 8)));
    }
    int64_t bound = -1;
    const int64_t arena = place(bytes.data(), first.data(), last.data(), count, offset.data(), &bound);
    EXPECT_EQ(arena, place(bytes.data(), first.data(), last.data(), count, again.data()));
    EXPECT_EQ(offset, again);
    int64_t most = 0;
    for (int32_t s = 0; s < steps; ++s) {
      int64_t live = 0;
      for (size_t i = 0; i < bytes.size(); ++i)
        if (first[i] <= s && s <= last[i]) live += (bytes[i] + 63) / 64 * 64;
      most = std::max(most, live);
    }
    EXPECT_EQ(bound, most);
    EXPECT_GE(arena, bound);
    EXPECT_LE(static_cast<double>(arena), 1.25 * static_cast<double>(bound));
    for (size_t i = 0; i < bytes.size(); ++i) {
      EXPECT_EQ(offset[i] % 64, 0);
      EXPECT_TRUE(offset[i] >= 0 && offset[i] + bytes[i] <= arena);
      for (size_t j = 0; j < i; ++j)
        if (bytes[i] && bytes[j] && first[i] <= last[j] && first[j] <= last[i]) {
          EXPECT_TRUE(offset[i] + bytes[i] <= offset[j] || offset[j] + bytes[j] <= offset[i]) << i << " and " << j;
        }
    }
  }
}

TEST(Search, SizesBeyondAllMemoryStayNumbers) {
  const std::vector<int64_t> bytes(300, int64_t{1} << 62);
  const std::vector<int32_t> first(300, 0), last(300, 0);
  std::vector<int64_t> offset(300);
  int64_t bound = 0;
  EXPECT_GT(place(bytes.data(), first.data(), last.data(), 300, offset.data(), &bound), int64_t{1} << 60);
  EXPECT_GT(bound, int64_t{1} << 60);
}

// Pointwise kernels over [8] floats.
struct Chain : Made {
  const Shape shape = {8};
  BufferId x = input("x", E::kFloat32, shape);
  BufferId temporary(const std::string &name) { return buffer(name, BufferKind::kTemporary, E::kFloat32, shape); }
  BufferId view(const std::string &name, BufferId of) {
    const BufferId id = temporary(name);
    p.buffer(id).alias = of;
    return id;
  }
  void result(BufferId b) {
    p.outputs.push_back(b);
    p.output_names.push_back(p.buffer(b).name);
  }
  // to[i] = sum of from[i] + number
  void kernel(BufferId to, const std::vector<BufferId> &from, double number) {
    LoopNest nest;
    const Dim i = loop(nest.loops, 8);
    ScalarId value = p.scalars.constant(E::kFloat32, number);
    for (BufferId b : from) value = p.scalars.binary(ScalarOp::kAdd, value, load(b, {i}));
    nest.stages = {store(to, {i}, value)};
    add(nest, "make_" + p.buffer(to).name);
  }
  void place() {
    const std::vector<std::string> disabled;
    std::vector<LoweringStep> said;
    Steps steps(disabled, INT64_MAX, said);
    place_buffers(p, steps);
    in_place = static_cast<int>(std::count_if(said.begin(), said.end(),
                                              [](const LoweringStep &step) { return step.name == "place.in_place"; }));
  }
  std::string verified() { return verify(p, diagnostics).ok() ? "" : message(); }
  // What the Program computes, before it is placed and as it is placed.
  std::vector<std::vector<float>> values(bool placed) {
    options.as_lowered = placed;
    const auto results = run({tensor<float>(E::kFloat32, {8}, {0, 1, 2, 3, 4, 5, 6, 7})});
    EXPECT_TRUE(results.ok()) << message();
    std::vector<std::vector<float>> all;
    if (results.ok())
      for (const RuntimeValue &v : *results) all.push_back(values_of<float>(v));
    return all;
  }
  void expect_right(const std::string &what) {
    const auto plain = values(false);
    place();
    EXPECT_EQ(verified(), "") << what << "\n" << print(p);
    EXPECT_EQ(values(true), plain) << what << "\n" << print(p);
  }
  const Placement &of(BufferId b) const {
    for (const Placement &placement : p.placements)
      if (placement.buffer == b) return placement;
    static const Placement none;
    return none;
  }
  int in_place = 0;
};

TEST(Plan, AChainIsPutInPlace) {
  Chain c;
  const BufferId a = c.temporary("a"), b = c.temporary("b"), y = c.output("y", E::kFloat32, {8});
  c.kernel(a, {c.x}, 1), c.kernel(b, {a, a}, 2), c.kernel(y, {b}, 3);
  c.expect_right("chain");
  EXPECT_EQ(c.in_place, 1);
  EXPECT_EQ(c.p.arena_bytes, Dim(64));
}

TEST(Plan, AResultThatIsAViewOfATemporaryLivesToTheEnd) {
  Chain c;
  const BufferId a = c.temporary("a"), v = c.view("v", a), b = c.temporary("b"), d = c.temporary("d"),
                 y = c.output("y", E::kFloat32, {8});
  c.result(v);
  c.kernel(a, {c.x}, 1), c.kernel(b, {a}, 10), c.kernel(d, {b, c.x}, 20), c.kernel(y, {d}, 30);
  c.expect_right("output over a temporary");
  EXPECT_EQ(c.of(a).last, c.p.order.size());
  EXPECT_TRUE(c.p.buffer(v).alias == a && !c.p.buffer(b).alias.valid());
}

TEST(Plan, WhatAViewOfTheResultShowsIsNotOverwritten) {
  Chain c;
  const BufferId a = c.temporary("a"), b = c.temporary("b"), v = c.view("v", b), d = c.temporary("d"),
                 y = c.output("y", E::kFloat32, {8});
  c.result(v);
  c.kernel(a, {c.x}, 1), c.kernel(b, {a}, 10), c.kernel(d, {b}, 20), c.kernel(y, {d}, 30);
  c.expect_right("output over a result in place");
  EXPECT_EQ(c.p.buffer(b).alias, a);
  EXPECT_FALSE(c.p.buffer(d).alias.valid());
}

TEST(Plan, AnElementThatIsComputedInSeveralIterationsIsNotPutInPlace) {
  Chain c;
  const BufferId a = c.temporary("a"), b = c.temporary("b"), y = c.output("y", E::kFloat32, {8});
  c.kernel(a, {c.x}, 1);
  LoopNest nest;
  const Dim i = c.loop(nest.loops, 8);
  c.loop(nest.loops, 3);  // the same value three times
  auto &s = c.p.scalars;
  nest.stages = {Made::store(b, {i}, s.binary(ScalarOp::kAdd, c.load(a, {i}), s.constant(E::kFloat32, 1)))};
  c.add(nest, "again");
  c.kernel(y, {b}, 3);
  c.expect_right("several iterations");
  EXPECT_EQ(c.in_place, 0);
}

TEST(Plan, IndicesOfAStoreAreReadToo) {
  Made m;
  const Shape shape{4};
  const BufferId x = m.input("x", E::kInt64, shape), y = m.output("y", E::kInt64, shape);
  const BufferId index = m.buffer("index", BufferKind::kTemporary, E::kInt64, shape),
                 r = m.buffer("r", BufferKind::kTemporary, E::kInt64, shape);
  auto &s = m.p.scalars;
  auto copy = [&](BufferId to, BufferId from, const std::string &name) {
    LoopNest nest;
    const Dim i = m.loop(nest.loops, 4);
    nest.stages = {Made::store(to, {i}, m.load(from, {i}))};
    m.add(nest, name);
  };
  copy(index, x, "first");
  LoopNest nest;
  const Dim i = m.loop(nest.loops, 4);
  const Dim at = m.p.dims->scalar_symbol(m.load(index, {i}).index, Dim(4));
  nest.stages = {Made::store(r, {at}, s.constant_int(E::kInt64, 7))};
  m.add(nest, "scatter");
  copy(y, r, "last");
  const std::vector<std::string> disabled;
  std::vector<LoweringStep> said;
  Steps steps(disabled, INT64_MAX, said);
  place_buffers(m.p, steps);
  EXPECT_FALSE(m.p.buffer(r).alias == index) << print(m.p);
}

// A step of its own, so that bisection tells a wrong plan from a wrong kernel.
TEST(Plan, WithoutSharingEachBufferHasItsOwnBytes) {
  for (const bool share : {false, true}) {
    Chain c;
    const BufferId a = c.temporary("a"), b = c.temporary("b"), d = c.temporary("d"),
                   y = c.output("y", E::kFloat32, {8});
    c.kernel(a, {c.x}, 1), c.kernel(b, {a, c.x}, 2), c.kernel(d, {b, c.x}, 3), c.kernel(y, {d}, 4);
    std::vector<std::string> left_out = {"place.in_place"};
    if (!share) left_out.push_back("place.share");
    std::vector<LoweringStep> said;
    Steps steps(left_out, INT64_MAX, said);
    place_buffers(c.p, steps);
    ASSERT_EQ(c.p.placements.size(), 3u);
    EXPECT_EQ(said.size(), share ? 1u : 0u);
    EXPECT_TRUE(c.p.arena_bytes.is(share ? 128 : 192)) << c.p.arena_bytes.str();
    EXPECT_EQ(c.verified(), "");
  }
}

TEST(Plan, RandomProgramsWithViewsAndResultsInTheMiddle) {
  std::mt19937 random(11);
  int shared = 0;
  for (int round = 0; round < 200; ++round) {
    Chain c;
    std::vector<BufferId> made = {c.x};
    const size_t kernels = 2 + random() % 12;
    for (size_t k = 0; k < kernels; ++k) {
      const bool output = random() % 5 == 0;
      const BufferId to =
          output ? c.output("o" + std::to_string(k), E::kFloat32, {8}) : c.temporary("t" + std::to_string(k));
      std::vector<BufferId> from;
      for (size_t n = 1 + random() % 2; n-- > 0;)
        from.push_back(made[made.size() - 1 - random() % std::min<size_t>(3, made.size())]);
      c.kernel(to, from, static_cast<double>(k));
      made.push_back(to);
      if (!output && random() % 2) {
        made.push_back(c.view("v" + std::to_string(k), to));
        if (random() % 2) c.result(made.back());
      }
      if (!output && random() % 8 == 0) c.result(to);
    }
    if (c.p.outputs.empty()) c.result(made.back());
    if (c.p.buffer(c.p.outputs[0]).kind == BufferKind::kInput) continue;
    c.expect_right("round " + std::to_string(round));
    shared += c.in_place;
    if (HasFailure()) return;
  }
  EXPECT_GT(shared, 50);
}

// --- what the verifier says of planted faults

struct Planned : Chain {
  BufferId a = temporary("a"), b = temporary("b"), d = temporary("d"), y = output("y", E::kFloat32, {8});
  Planned() {
    kernel(a, {x}, 1), kernel(b, {a, x}, 2), kernel(d, {a, b}, 3), kernel(y, {d, b}, 4);
    place_buffers(p);
  }
  Placement &at(BufferId id) {
    for (Placement &placement : p.placements)
      if (placement.buffer == id) return placement;
    return p.placements[0];
  }
};

void expect_said(const std::string &text, const std::vector<std::string> &parts) {
  for (const std::string &part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

TEST(Verifier, PlacesThatDoNotHold) {
  EXPECT_EQ(Planned().verified(), "");
  Planned over;
  over.at(over.b).offset = over.at(over.a).offset + 16;
  expect_said(over.verified(), {"P11", "lie over one another", "'a'", "'b'"});
  Planned shorter;
  shorter.at(shorter.b).last = 2;
  expect_said(shorter.verified(), {"P11", "'b' is used outside of its lifetime", "from kernel 'make_b' to 'make_d'"});
  Planned later;
  later.at(later.d).first = 3;
  expect_said(later.verified(), {"P11", "'d' is used outside of its lifetime"});
  Planned stale;
  stale.at(stale.d).bytes = 16;
  expect_said(stale.verified(), {"P11", "'d' takes 32 bytes, its place has 16"});
  Planned without;
  without.p.placements.pop_back();
  expect_said(without.verified(), {"P11", "'d' has no place"});
  Planned twice;
  twice.p.placements.push_back(twice.p.placements[0]);
  expect_said(twice.verified(), {"P11"});
  Planned outside;
  outside.p.arena_bytes = 64;
  expect_said(outside.verified(), {"P11", "outside of the arena"});
  Planned result;  // that lies in a temporary
  result.result(result.view("v", result.a));
  expect_said(result.verified(), {"P11", "'a' is used outside of its lifetime"});
}

TEST(Verifier, WhatWasTakenOverIsNotRead) {
  Chain c;
  const BufferId a = c.temporary("a"), v = c.view("v", a), b = c.view("b", a), y = c.output("y", E::kFloat32, {8});
  c.kernel(a, {c.x}, 1), c.kernel(b, {a}, 2), c.kernel(y, {b}, 3);
  EXPECT_EQ(c.verified(), "");
  Chain r = c;
  r.result(v);
  expect_said(r.verified(), {"P12", "the result 'v'", "'b' has taken over"});
  Chain k = c;
  k.p.order.pop_back();
  k.kernel(y, {b, v}, 3);
  expect_said(k.verified(), {"P12", "kernel make_y reads 'v'", "'b' has taken over"});
}

}  // namespace
}  // namespace optc
