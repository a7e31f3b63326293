// Which kernels share a launch (emit/ptx/launches.h): rows that each block of a product computes for itself.

#include <gtest/gtest.h>

#include <cmath>

#include "tests/ptx_machine.h"

namespace optc::testing {
namespace {

// y = relu(norm(x + z) w + bias), twice with `products`: norm's rows are a temporary between two kernels or three.
struct NormAndProducts {
  NestProgram n;
  int64_t rows, width, columns;
  BufferId x, z, g, b, middle;
  struct Of {
    BufferId w, bias, y;
  };
  std::vector<Of> products;

  NormAndProducts(ElementType type, int64_t rows_, int64_t width_, int64_t columns_, int count)
      : rows(rows_), width(width_), columns(columns_) {
    Program &p = n.program;
    n.layer_norm(type, rows, width);
    x = p.inputs[0], z = p.inputs[1], g = p.inputs[2], b = p.inputs[3], middle = p.outputs[0];
    p.buffers[middle.index].kind = BufferKind::kTemporary;
    p.outputs.clear();
    for (int i = 0; i < count; ++i) {
      const size_t first = p.inputs.size();
      n.matmul(type, 1, rows, columns, width, i % 2 == 1, false);
      if (i > 0) p.kernels.back().name += std::to_string(i);
      Buffer &a = p.buffer(p.inputs[first]);
      a.kind = BufferKind::kTemporary;
      a.alias = middle;
      p.buffer(p.inputs[first + 1]).kind = BufferKind::kConstant;
      products.push_back({p.inputs[first + 1], p.inputs[first + 2], p.outputs.back()});
      p.inputs.erase(p.inputs.begin() + static_cast<std::ptrdiff_t>(first));
    }
  }

  void expect(Machine &m, ElementType type) {
    const size_t R = static_cast<size_t>(rows), K = static_cast<size_t>(width), N = static_cast<size_t>(columns);
    for (size_t r = 0; r < R; ++r) {
      std::vector<double> row(K);
      double mean = 0, variance = 0;
      for (size_t k = 0; k < K; ++k) mean += row[k] = m.get(x, r * K + k) + m.get(z, r * K + k);
      mean /= static_cast<double>(K);
      for (double v : row) variance += (v - mean) * (v - mean) / static_cast<double>(K);
      for (size_t k = 0; k < K; ++k) row[k] = (row[k] - mean) / std::sqrt(variance + 1e-5) * m.get(g, k) + m.get(b, k);
      for (size_t i = 0; i < products.size(); ++i)
        for (size_t c = 0; c < N; ++c) {
          double sum = m.get(products[i].bias, c), size = 1;
          for (size_t k = 0; k < K; ++k) {
            const double term = row[k] * m.get(products[i].w, i % 2 == 1 ? c * K + k : k * N + c);
            sum += term;
            size += std::fabs(term);
          }
          ASSERT_NEAR(m.get(products[i].y, r * N + c), std::max(sum, 0.0), 3 * rounding(type) * size)
              << "product " << i << " at " << r << "," << c;
        }
    }
  }
};

size_t launches_of(const Machine &m) {
  size_t count = 0;
  for (const PtxKernel &k : m.output.kernels) count += k.launches.size();
  return count;
}

TEST(RowsInBlocks, EachBlockOfAProductComputesTheRowsThatItReads) {
  struct Case {
    ElementType type;
    int64_t rows, width, columns;
    int splits;
  };
  for (const Case &c : {Case{kF16, 1, 96, 72, 0}, Case{kBF16, 3, 264, 40, 0}, Case{kBF16, 1, 100, 36, 0},
                        Case{kF16, 5, 68, 24, 0}, Case{kF16, 2, 1024, 48, 3}, Case{kF16, 1, 52, 19, 0}})
    for (const char *target : {"sm_80", "sm_90a"})
      for (uint64_t seed : {1, 2}) {
        NormAndProducts model(c.type, c.rows, c.width, c.columns, 1);
        Machine m(model.n.program, "3xtf32", target, c.splits, {"schedule.gemm.warpgroup", "schedule.conv.warpgroup"});
        SCOPED_TRACE(m.output.kernels[1].form + " on " + target);
        ASSERT_EQ(launches_of(m), 1u);
        EXPECT_EQ(m.output.kernels[0].joined, std::vector<size_t>{1});
        EXPECT_EQ(m.output.kernels[0].form, "in each block of matmul");
        EXPECT_NE(m.output.kernels[1].form.find("behind rows"), std::string::npos);
        for (const PtxArgument &a : m.output.kernels[1].launches[0].arguments)
          EXPECT_FALSE(a.kind == PtxArgument::Kind::kBuffer && a.buffer == model.middle) << "it stays in the block";
        m.fill(seed);
        m.run(seed);
        model.expect(m, c.type);
      }
}

TEST(RowsInBlocks, RowsThatAreReadElsewhereOrAreManyHaveALaunch) {
  auto launches = [](int64_t rows, int64_t width, const std::function<void(NormAndProducts &)> &change, bool watched,
                     ElementType type = kF16, int products = 1) {
    NormAndProducts model(type, rows, width, 40, products);
    if (change) change(model);
    Machine m(model.n.program, "3xtf32", "sm_90", 0, {}, -1, 0, watched);
    m.fill(5);
    m.run(7);
    model.expect(m, type);
    return launches_of(m);
  };
  EXPECT_EQ(launches(1, 128, nullptr, false), 1u);
  EXPECT_EQ(launches(1, 128, nullptr, true), 2u);
  EXPECT_EQ(launches(33, 128, nullptr, false), 2u);  // 4,224 elements
  EXPECT_EQ(launches(1, 128, nullptr, false, kF32), 2u);
  EXPECT_EQ(launches(1, 128, nullptr, false, kF32, 2), 3u);
  const auto copied = [](NormAndProducts &model) {
    NestProgram &n = model.n;
    const BufferId out = n.output("copy", kF16, {model.rows, model.width});
    LoopNest nest;
    const Dim i = n.loop(nest.loops, "i", model.rows), j = n.loop(nest.loops, "j", model.width);
    Stage stage;
    stage.outputs.push_back(n.store(out, {i, j}, n.load(model.middle, {i, j})));
    nest.stages = {stage};
    n.add("copy", nest);
  };
  EXPECT_EQ(launches(1, 128, copied, false), 3u);
  const auto given = [](NormAndProducts &model) {
    model.n.program.buffer(model.middle).kind = BufferKind::kOutput;
    model.n.program.outputs.push_back(model.middle);
  };
  EXPECT_EQ(launches(1, 128, given, false), 2u);
}

// Products of other code that read the same rows (their second factors lie differently) are one launch, whose blocks
// compute the rows.
TEST(RowsInBlocks, ProductsBesideOneAnotherReadThem) {
  for (const ElementType type : {kF16, kBF16})
    for (const char *target : {"sm_80", "sm_90a"})
      for (const int count : {2, 3})
        for (const bool watched : {false, true}) {
          NormAndProducts model(type, 1, 136, 40, count);
          Machine m(model.n.program, "3xtf32", target, 1, {"schedule.gemm.warpgroup", "schedule.conv.warpgroup"}, -1, 0,
                    watched);
          SCOPED_TRACE(m.output.kernels[1].form + " on " + target);
          EXPECT_EQ(launches_of(m), watched ? 2u : 1u);
          EXPECT_NE(m.output.kernels[1].form.find(" + "), std::string::npos);
          EXPECT_EQ(m.output.kernels[1].form.find(" x2") != std::string::npos, count == 3);
          EXPECT_EQ(m.output.kernels[2].joined, std::vector<size_t>{1});
          m.fill(3);
          m.run(4);
          model.expect(m, type);
        }
}

// y = relu(x w2 + b2) * g where g = relu(x w1 + b1) is read by nothing else: the blocks of the second product sum both.
TEST(PairedProducts, TheGateIsSummedInTheBlocksOfWhatItGates) {
  for (const ElementType type : {kF16, kBF16})
    for (const char *target : {"sm_80", "sm_90a"})
      for (const int rows : {1, 3})
        // 1: factors not transposed, 2: watched, 3: the gate is a result, too, 4: the result lies in the gate's place
        for (const int way : {0, 1, 2, 3, 4}) {
          NestProgram n;
          Program &p = n.program;
          const int64_t width = 264, columns = 64;
          const bool transposed = way != 1, together = way < 2 || way == 4;
          n.matmul(type, 1, rows, columns, width, transposed, false);
          n.matmul(type, 1, rows, columns, width, transposed, false);
          p.kernels.back().name += "2";
          const BufferId x = p.inputs[0], gate = p.outputs[0], product = p.outputs[1];
          BufferId y = product;
          p.buffer(p.inputs[3]).kind = BufferKind::kTemporary;
          p.buffer(p.inputs[3]).alias = x;
          const std::vector<BufferId> of{p.inputs[1], p.inputs[2], p.inputs[4], p.inputs[5]};
          for (size_t w : {0, 2}) p.buffer(of[w]).kind = BufferKind::kConstant;
          p.inputs = {x, of[1], of[3]};
          if (way != 3) {
            p.buffer(gate).kind = BufferKind::kTemporary;
            p.outputs.erase(p.outputs.begin());
          }
          StageOutput &out = std::get<LoopNest>(p.kernels.back().body).stages[1].outputs[0];
          const ScalarId up = p.scalars.at(out.value).args[0];  // before it is rounded
          const std::vector<Dim> at = out.index;
          out = n.store(product, at, n.pool().binary(ScalarOp::kMul, up, n.load(gate, at)));
          if (way == 4) {
            p.buffer(product).kind = BufferKind::kTemporary;
            p.buffer(product).alias = gate;
            p.outputs.clear();
            y = n.output("copy", type, {rows, columns});
            LoopNest nest;
            const Dim i = n.loop(nest.loops, "i", rows), j = n.loop(nest.loops, "j", columns);
            Stage stage;
            stage.outputs.push_back(n.store(y, {i, j}, n.load(product, {Dim(0), i, j})));
            nest.stages = {stage};
            n.add("copy", nest);
          }
          Machine m(p, "3xtf32", target, 1, {"schedule.gemm.warpgroup"}, -1, 0, way == 2);
          SCOPED_TRACE(m.output.kernels[1].form + " on " + target);
          ASSERT_EQ(launches_of(m), way < 2 ? 1u : 2u);
          EXPECT_EQ(m.output.kernels[1].form.find(" paired") != std::string::npos, together);
          if (together) {
            EXPECT_EQ(m.output.kernels[0].joined, std::vector<size_t>{1});
          }
          m.fill(9);
          m.run(4);
          const auto sum = [&](size_t r, size_t c, BufferId w, BufferId bias) {
            double s = m.get(bias, c);
            for (size_t k = 0; k < static_cast<size_t>(width); ++k)
              s += m.get(x, r * 264 + k) * m.get(w, transposed ? c * 264 + k : k * 64 + c);
            return std::max(s, 0.0);
          };
          for (size_t r = 0; r < static_cast<size_t>(rows); ++r)
            for (size_t c = 0; c < static_cast<size_t>(columns); ++c) {
              const double g = sum(r, c, of[0], of[1]), up = sum(r, c, of[2], of[3]);
              ASSERT_NEAR(m.get(y, r * 64 + c), up * g, 4 * rounding(type) * (g * up + g + up + 1)) << r << ", " << c;
            }
        }
}

// Two caches are a past that is kept and an end that is appended, `overlap` of it over the past.
struct Caches {
  NestProgram n;
  int64_t overlap;
  std::vector<BufferId> pasts, presents, ends;

  explicit Caches(int64_t overlap_) : overlap(overlap_) {
    for (int cache = 0; cache < 2; ++cache) {
      const std::string number = std::to_string(cache);
      pasts.push_back(n.input("past" + number, kF16, {4, 64}));
      ends.push_back(n.input("end" + number, kF16, {4, 16}));
      presents.push_back(n.output("present" + number, kF16, {4, 80 - overlap}));
      copy(pasts.back(), 0, 64, "keep" + number);
      copy(ends.back(), 64 - overlap, 16, "append" + number);
    }
  }
  void copy(BufferId from, Dim at, int64_t count, const std::string &name) {
    LoopNest nest;
    const Dim head = n.loop(nest.loops, "head", 4), i = n.loop(nest.loops, "i", count);
    Stage stage;
    stage.outputs.push_back(n.store(presents.back(), {head, at + i}, n.load(from, {head, i})));
    nest.stages = {stage};
    n.add(name, nest);
  }
  void expect(Machine &m) {
    for (size_t cache = 0; cache < 2; ++cache)
      for (size_t head = 0; head < 4; ++head)
        for (size_t i = 0; i < static_cast<size_t>(80 - overlap); ++i) {
          const size_t at = static_cast<size_t>(64 - overlap);
          ASSERT_EQ(m.get(presents[cache], head * static_cast<size_t>(80 - overlap) + i),
                    i < at ? m.get(pasts[cache], head * 64 + i) : m.get(ends[cache], head * 16 + i - at))
              << "cache " << cache << " at " << head << ", " << i;
        }
  }
};

// Parts of one buffer that lie apart may be written at the same time; where they meet, the later one comes later. (A
// kernel may come before one whose work an earlier launch does: the ends of both caches are one launch even so.)
TEST(JoinedLaunches, PartsOfABufferThatLieApart) {
  for (const char *target : {"sm_80", "sm_90"})
    for (const int64_t overlap : {0, 1}) {
      Caches caches(overlap);
      Machine m(caches.n.program, "3xtf32", target);
      EXPECT_EQ(launches_of(m), overlap == 0 ? 1u : 2u);
      m.fill(3);
      m.run(5);
      caches.expect(m);
    }
}

// A kernel that reads what one of the launch writes is no part of it, whatever stands between them.
TEST(JoinedLaunches, WhatReadsAResultComesLater) {
  Caches caches(0);
  NestProgram &n = caches.n;
  const BufferId twice = n.output("twice", kF16, {80});
  LoopNest nest;
  const Dim i = n.loop(nest.loops, "i", 80);
  Stage stage;
  stage.outputs.push_back(n.store(twice, {i}, n.load(caches.presents[1], {0, i})));
  nest.stages = {stage};
  n.add("twice", nest);
  Machine m(n.program, "3xtf32", "sm_90");
  EXPECT_EQ(launches_of(m), 2u);
  m.fill(6);
  m.run(7);
  caches.expect(m);
  for (size_t at = 0; at < 80; ++at) ASSERT_EQ(m.get(twice, at), m.get(caches.presents[1], at));
}

// The mean of an image has few elements, but each block would read the image.
TEST(RowsInBlocks, RowsThatReadMuchHaveALaunch) {
  for (const int64_t pixels : {4, 64}) {
    NestProgram n;
    Program &p = n.program;
    const BufferId x = n.input("x", kF16, {128, pixels}),
                   mean = n.buffer("mean", BufferKind::kTemporary, kF16, {1, 128});
    LoopNest nest;
    const Dim channel = n.loop(nest.loops, "channel", 128);
    const LocalId sum = n.local(nest, "sum", kF32);
    Stage add, store;
    const Dim pixel = n.loop(add.loops, "pixel", pixels);
    add.outputs.push_back(n.reduce(sum, Combine::kSum, n.load(x, {channel, pixel})));
    store.outputs.push_back(n.store(mean, {0, channel}, n.pool().local(sum, kF32, {})));
    nest.stages = {add, store};
    n.add("mean", nest);
    const size_t first = p.inputs.size();
    n.matmul(kF16, 1, 1, 40, 128, false, false);
    p.buffer(p.inputs[first]).kind = BufferKind::kTemporary;
    p.buffer(p.inputs[first]).alias = mean;
    p.inputs.erase(p.inputs.begin() + static_cast<std::ptrdiff_t>(first));
    Machine m(p, "3xtf32", "sm_90");
    if (pixels == 64) {
      EXPECT_EQ(m.output.kernels[0].form, "rows");
    }
    EXPECT_EQ(launches_of(m), 2u);
  }
}

// What the rows are made of dies with their kernel: what the product writes may lie there.
TEST(RowsInBlocks, WhatTheyAreMadeOfIsStillThere) {
  for (const bool shared : {false, true}) {
    NormAndProducts model(kF16, 1, 128, 128, 1);
    Program &p = model.n.program;
    const BufferId y = model.products[0].y;
    p.buffer(model.x).kind = BufferKind::kTemporary;
    p.inputs.erase(p.inputs.begin());
    p.buffer(y).kind = BufferKind::kTemporary;
    p.outputs.clear();
    const auto copy = [&](BufferId from, BufferId to, const char *name) {
      LoopNest nest;
      const Dim i = model.n.loop(nest.loops, "i", 128);
      const Dim zero = 0;
      const auto at = [&](BufferId id) {
        return p.buffer(id).shape().size() == 2 ? std::vector<Dim>{zero, i} : std::vector<Dim>{zero, zero, i};
      };
      Stage stage;
      stage.outputs.push_back(model.n.store(to, at(to), model.n.load(from, at(from))));
      nest.stages = {stage};
      model.n.add(name, nest);
    };
    copy(model.n.input("given", kF16, {1, 128}), model.x, "take");
    std::rotate(p.order.begin(), p.order.end() - 1, p.order.end());
    copy(y, model.n.output("result", kF16, {1, 1, 128}), "give");
    p.placements = {{model.x, 0, 256, 0, 1}, {y, shared ? 0 : 256, 256, 2, 3}, {model.middle, 512, 256, 1, 2}};
    p.arena_bytes = 768;
    Machine m(p, "3xtf32", "sm_90");
    EXPECT_EQ(launches_of(m), shared ? 4u : 3u);
  }
}

}  // namespace
}  // namespace optc::testing
