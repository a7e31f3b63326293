// The evaluator on Programs made by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "evaluate/evaluate.h"
#include "tests/made_program.h"

namespace optc {
namespace {

using namespace optc::testing;

std::vector<float> random_floats(size_t n, uint32_t seed) {
  std::vector<float> v(n);
  for (float &x : v) {
    seed = seed * 1664525u + 1013904223u;
    x = static_cast<float>(static_cast<int32_t>(seed)) / 2147483648.0f;
  }
  return v;
}

// y[j][i] = x[i][j] over a symbolic number of rows: more elements than one block of lanes.
TEST(Evaluate, TransposesWithSymbolicRows) {
  Made m;
  const Dim n = m.p.dims->model_symbol("N");
  const BufferId x = m.input("x", E::kFloat32, {n, 37}), y = m.output("y", E::kFloat32, {37, n});
  m.p.sources.push_back({single_symbol(n), 0, 0});
  LoopNest nest;
  const Dim i = m.loop(nest.loops, 37), j = m.loop(nest.loops, n);
  nest.stages.push_back(Made::store(y, {i, j}, m.load(x, {j, i})));
  m.add(nest);
  for (const int64_t rows : {1, 23, 0}) {
    const std::vector<float> values = random_floats(static_cast<size_t>(rows * 37), 1);
    auto out = m.run({tensor(E::kFloat32, {rows, 37}, values)});
    ASSERT_TRUE(out.ok()) << m.message();
    ASSERT_EQ((*out)[0].tensor.dims(), (std::vector<int64_t>{37, rows}));
    for (int64_t a = 0; a < 37; ++a)
      for (int64_t b = 0; b < rows; ++b) ASSERT_EQ((*out)[0].tensor.as<float>()[a * rows + b], values[b * 37 + a]);
  }
  EXPECT_FALSE(m.run({tensor(E::kFloat32, {2, 36}, random_floats(72, 1))}).ok());
  EXPECT_EQ(m.diagnostics.all().back().kind, ErrorKind::kUsage);
}

// Softmax-like rows: a maximum, a sum of what was kept in a row of scratch, and a store.
void check_rows(int64_t rows, int64_t width) {
  Made m;
  const BufferId x = m.input("x", E::kFloat32, {rows, width}), y = m.output("y", E::kFloat32, {rows, width});
  LoopNest nest;
  const Dim r = m.loop(nest.loops, rows);
  nest.locals = {{"peak", E::kFloat32, {}}, {"row", E::kFloat32, {width}}, {"sum", E::kFloat32, {}}};
  const LocalId peak(size_t{0}), row(size_t{1}), sum(size_t{2});
  auto &s = m.p.scalars;
  Stage first, second, third;
  const Dim a = m.loop(first.loops, width), b = m.loop(second.loops, width), c = m.loop(third.loops, width);
  StageOutput o;
  o.local = peak, o.value = m.load(x, {r, a}), o.combine = Combine::kMax;
  first.outputs = {o};
  const ScalarId e =
      s.unary(ScalarOp::kExp, s.binary(ScalarOp::kSub, m.load(x, {r, b}), s.local(peak, E::kFloat32, {})));
  o.local = row, o.index = {b}, o.value = e, o.combine = Combine::kStore;
  second.outputs = {o};
  o.local = sum, o.index = {}, o.combine = Combine::kSum;
  second.outputs.push_back(o);
  third = {
      third.loops,
      Made::store(y, {r, c}, s.binary(ScalarOp::kDiv, s.local(row, E::kFloat32, {c}), s.local(sum, E::kFloat32, {})))
          .outputs};
  nest.stages = {first, second, third};
  m.add(nest);
  const std::vector<float> values = random_floats(static_cast<size_t>(rows * width), 7);
  auto out = m.run({tensor(E::kFloat32, {rows, width}, values)});
  ASSERT_TRUE(out.ok()) << m.message();
  for (int64_t i = 0; i < rows; ++i) {
    double total = 0;
    for (int64_t j = 0; j < width; ++j) total += std::exp(static_cast<double>(values[i * width + j]));
    for (int64_t j = 0; j < width; ++j)
      ASSERT_NEAR((*out)[0].tensor.as<float>()[i * width + j],
                  std::exp(static_cast<double>(values[i * width + j])) / total, 1e-6);
  }
}
TEST(Evaluate, RowStagesWithFewAndManyRows) {
  check_rows(700, 3);
  check_rows(2, 1000);
  check_rows(1, 1);
}

// A reduction over no elements leaves the initial value; one of many stays accurate.
TEST(Evaluate, SumsAreAccurateAndStartWhereTheyShould) {
  for (const int64_t count : {int64_t{0}, int64_t{1000000}}) {
    Made m;
    const BufferId x = m.input("x", E::kFloat32, {count}), y = m.output("y", E::kFloat32, {});
    LoopNest nest;
    nest.locals = {{"sum", E::kFloat32, {}}};
    Stage stage;
    const Dim i = m.loop(stage.loops, count);
    StageOutput o;
    o.local = LocalId(size_t{0}), o.value = m.load(x, {i}), o.combine = Combine::kSum;
    o.initial = m.p.scalars.constant(E::kFloat32, 0.25);
    stage.outputs = {o};
    nest.stages = {stage, Made::store(y, {}, m.p.scalars.local(o.local, E::kFloat32, {}))};
    m.add(nest);
    auto out = m.run({tensor(E::kFloat32, {count}, std::vector<float>(static_cast<size_t>(count), 0.1f))});
    ASSERT_TRUE(out.ok()) << m.message();
    const double expected = 0.25 + count * static_cast<double>(0.1f);
    EXPECT_NEAR((*out)[0].tensor.as<float>()[0], expected, 1e-6 * expected);
  }
}

// A padded strided convolution in one dimension and a matrix product: by the operands laid out, and lane by lane.
TEST(Evaluate, ProductsAgreeWithTheInterpreter) {
  Made m;
  const int64_t batch = 3, channels = 5, length = 41, filters = 9, width = 4, outputs = 20;
  const BufferId x = m.input("x", E::kFloat32, {batch, channels, length});
  const BufferId w = m.input("w", E::kFloat32, {filters, channels, width});
  const BufferId y = m.output("y", E::kFloat32, {batch, filters, outputs});
  LoopNest nest;
  const Dim n = m.loop(nest.loops, batch), f = m.loop(nest.loops, filters), t = m.loop(nest.loops, outputs);
  nest.locals = {{"sum", E::kFloat32, {}}};
  Stage stage;
  const Dim c = m.loop(stage.loops, channels), k = m.loop(stage.loops, width);
  auto &s = m.p.scalars;
  const Dim at = t * Dim(2) + k - Dim(1);
  const ScalarId inside = s.binary(ScalarOp::kAnd, s.binary(ScalarOp::kLe, s.constant_int(E::kInt64, 0), s.index(at)),
                                   s.binary(ScalarOp::kLt, s.index(at), s.constant_int(E::kInt64, length)));
  StageOutput o;
  o.local = LocalId(size_t{0});
  o.value = s.binary(ScalarOp::kMul, s.select(inside, m.load(x, {n, c, at}), s.constant(E::kFloat32, 0)),
                     m.load(w, {f, c, k}));
  o.combine = Combine::kSum;
  stage.outputs = {o};
  nest.stages = {stage,
                 Made::store(y, {n, f, t},
                             s.binary(ScalarOp::kAdd, s.local(o.local, E::kFloat32, {}), s.constant(E::kFloat32, 1)))};
  m.add(nest);
  const std::vector<Constant> inputs = {
      tensor(E::kFloat32, {batch, channels, length}, random_floats(static_cast<size_t>(batch * channels * length), 3)),
      tensor(E::kFloat32, {filters, channels, width},
             random_floats(static_cast<size_t>(filters * channels * width), 4))};
  auto fast = m.run(inputs);
  m.options.use_runtime_kernels = false;
  auto slow = m.run(inputs);
  ASSERT_TRUE(fast.ok() && slow.ok()) << m.message();
  for (int64_t i = 0; i < batch * filters * outputs; ++i) {
    double expected = 1;
    const int64_t in = i / (filters * outputs), fi = i / outputs % filters, ti = i % outputs;
    for (int64_t ci = 0; ci < channels; ++ci)
      for (int64_t ki = 0; ki < width; ++ki) {
        const int64_t p = ti * 2 + ki - 1;
        if (p < 0 || p >= length) continue;
        expected += static_cast<double>(inputs[0].as<float>()[(in * channels + ci) * length + p]) *
                    inputs[1].as<float>()[(fi * channels + ci) * width + ki];
      }
    ASSERT_NEAR((*slow)[0].tensor.as<float>()[i], expected, 1e-6);
    ASSERT_NEAR((*fast)[0].tensor.as<float>()[i], expected, 2e-6);
  }
}

// An index beyond a dimension is a fault only where the value is used.
TEST(Evaluate, IndicesOutOfRange) {
  for (const bool guarded : {true, false}) {
    Made m;
    const BufferId x = m.input("x", E::kFloat32, {4}), indices = m.input("indices", E::kInt64, {3});
    const BufferId y = m.output("y", E::kFloat32, {3});
    LoopNest nest;
    const Dim i = m.loop(nest.loops, 3);
    auto &s = m.p.scalars;
    const ScalarId index = m.load(indices, {i});
    const ScalarId value = m.load(x, {m.p.dims->scalar_symbol(index.index, 4)});
    const ScalarId good = s.binary(ScalarOp::kLt, index, s.constant_int(E::kInt64, 4));
    nest.stages = {Made::store(y, {i}, guarded ? s.select(good, value, s.constant(E::kFloat32, -1)) : value)};
    m.add(nest, "gather");
    const Constant data = tensor<float>(E::kFloat32, {4}, {10, 11, 12, 13});
    auto out = m.run({data, Constant::int64s({3, 9, 0})});
    ASSERT_EQ(out.ok(), guarded);
    if (guarded) {
      EXPECT_EQ(values_of<float>((*out)[0]), (std::vector<float>{13, -1, 10}));
      continue;
    }
    EXPECT_EQ(m.diagnostics.all().back().kind, ErrorKind::kFault);
    EXPECT_NE(m.message().find("gather"), std::string::npos) << m.message();
    EXPECT_NE(m.message().find("9"), std::string::npos) << m.message();
  }
}

// Scatter with duplicates adds each; a buffer stored in another order, padded, is the same to its readers.
TEST(Evaluate, ScatterIntoAPermutedPaddedBuffer) {
  Made m;
  const BufferId indices = m.input("indices", E::kInt64, {600}), y = m.output("y", E::kFloat32, {2, 3});
  Buffer b;
  b.name = "t";
  b.type = Type::tensor(E::kFloat32, Shape{2, 3});
  b.order = {1, 0};
  b.padded = {Dim(3), Dim(8)};
  const BufferId t = m.p.add_buffer(b);
  auto &s = m.p.scalars;
  {
    LoopNest nest;
    const Dim i = m.loop(nest.loops, 2), j = m.loop(nest.loops, 3);
    nest.stages = {Made::store(t, {i, j}, s.constant(E::kFloat32, 100))};
    m.add(nest, "fill");
  }
  {
    LoopNest nest;
    nest.sequential = true;
    const Dim i = m.loop(nest.loops, 600);
    Stage stage =
        Made::store(t, {Dim(1), m.p.dims->scalar_symbol(m.load(indices, {i}).index, 3)}, s.constant(E::kFloat32, 1));
    stage.outputs[0].combine = Combine::kSum;
    nest.stages = {stage};
    m.add(nest, "scatter");
  }
  {
    LoopNest nest;
    const Dim i = m.loop(nest.loops, 2), j = m.loop(nest.loops, 3);
    nest.stages = {Made::store(y, {i, j}, m.load(t, {i, j}))};
    m.add(nest, "read");
  }
  std::vector<int64_t> where(600, 2);
  where[5] = 0;
  auto out = m.run({Constant::int64s(where)});
  ASSERT_TRUE(out.ok()) << m.message();
  EXPECT_EQ(values_of<float>((*out)[0]), (std::vector<float>{100, 100, 100, 101, 100, 699}));
}

Constant pointwise(E from, E to, const Constant &x, const std::function<ScalarId(ScalarPool &, ScalarId)> &f) {
  Made m;
  const int64_t n = x.count();
  const BufferId a = m.input("x", from, {n}), y = m.output("y", to, {n});
  LoopNest nest;
  const Dim i = m.loop(nest.loops, n);
  nest.stages = {Made::store(y, {i}, f(m.p.scalars, m.load(a, {i})))};
  m.add(nest);
  auto out = m.run({x});
  EXPECT_TRUE(out.ok()) << m.message();
  return out.ok() ? (*out)[0].tensor : Constant();
}

TEST(EvaluateScalars, CastsFollowTheSpecification) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const Constant x = tensor<float>(E::kFloat32, {7}, {1.9f, -1.9f, 300, -300, inf, -inf, nan});
  auto to = [](E type) { return [type](ScalarPool &s, ScalarId v) { return s.cast(v, type); }; };
  const Constant i8 = pointwise(E::kFloat32, E::kInt8, x, to(E::kInt8));
  EXPECT_EQ(std::vector<int8_t>(i8.as<int8_t>(), i8.as<int8_t>() + 7),
            (std::vector<int8_t>{1, -1, 127, -128, 127, -128, 0}));
  const Constant u64 = pointwise(E::kFloat32, E::kUInt64, x, to(E::kUInt64));
  EXPECT_EQ(u64.as<uint64_t>()[4], std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(u64.as<uint64_t>()[3], 0u);
  const Constant b = pointwise(E::kFloat32, E::kBool, x, to(E::kBool));
  for (int i = 0; i < 7; ++i) EXPECT_EQ(b.as<uint8_t>()[i], 1);
  const Constant wide = Constant::int64s({130, -129, 511, 0});
  const Constant wrapped = pointwise(E::kInt64, E::kInt8, wide, to(E::kInt8));
  EXPECT_EQ(std::vector<int8_t>(wrapped.as<int8_t>(), wrapped.as<int8_t>() + 4),
            (std::vector<int8_t>{-126, 127, -1, 0}));
  // 4-bit elements are packed two a byte, the first in the low half.
  const Constant i4 = pointwise(E::kInt64, E::kInt4, Constant::int64s({1, -1, 7}), to(E::kInt4));
  ASSERT_EQ(i4.size(), 2u);
  EXPECT_EQ(i4.data()[0], 0xf1);
  EXPECT_EQ(i4.data()[1], 0x07);
  // The larger half of uint64 is no negative number, whatever the target.
  const Constant large =
      tensor<uint64_t>(E::kUInt64, {3}, {~uint64_t{0} - 1, uint64_t{1} << 63, (uint64_t{1} << 53) - 1});
  const Constant bf16 = pointwise(E::kUInt64, E::kBFloat16, large, to(E::kBFloat16));
  EXPECT_EQ(std::vector<uint16_t>(bf16.as<uint16_t>(), bf16.as<uint16_t>() + 3),
            (std::vector<uint16_t>{0x5f80, 0x5f00, 0x5a00}));
  EXPECT_EQ(pointwise(E::kUInt64, E::kFloat16, large, to(E::kFloat16)).as<uint16_t>()[0], 0x7c00);
  EXPECT_EQ(pointwise(E::kUInt64, E::kFloat32, large, to(E::kFloat32)).as<float>()[0], 0x1p64f);
  EXPECT_EQ(pointwise(E::kUInt64, E::kFloat64, large, to(E::kFloat64)).as<double>()[1], 0x1p63);
  // A double halfway between two halves after rounding to float first would be rounded twice.
  const double tricky = 1.0 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40);
  const Constant half =
      pointwise(E::kFloat64, E::kFloat16, tensor<double>(E::kFloat64, {1}, {tricky}), to(E::kFloat16));
  EXPECT_EQ(half.as<uint16_t>()[0], 0x3c01);
}

TEST(EvaluateScalars, IntegersWrapAndDivisionByZeroIsZero) {
  const int32_t low = std::numeric_limits<int32_t>::min();
  const Constant x = tensor<int32_t>(E::kInt32, {3}, {low, -7, 7});
  auto with = [](ScalarOp op, int64_t y) {
    return [op, y](ScalarPool &s, ScalarId v) { return s.binary(op, v, s.constant_int(E::kInt32, y)); };
  };
  auto run = [&](ScalarOp op, int64_t y) {
    const Constant c = pointwise(E::kInt32, E::kInt32, x, with(op, y));
    return std::vector<int32_t>(c.as<int32_t>(), c.as<int32_t>() + 3);
  };
  EXPECT_EQ(run(ScalarOp::kDiv, -1), (std::vector<int32_t>{low, 7, -7}));
  EXPECT_EQ(run(ScalarOp::kDiv, 0), (std::vector<int32_t>{0, 0, 0}));
  EXPECT_EQ(run(ScalarOp::kDiv, 2), (std::vector<int32_t>{low / 2, -3, 3}));
  EXPECT_EQ(run(ScalarOp::kMod, 3), (std::vector<int32_t>{1, 2, 1}));
  EXPECT_EQ(run(ScalarOp::kFmod, 3), (std::vector<int32_t>{-2, -1, 1}));
  EXPECT_EQ(run(ScalarOp::kSub, 1), (std::vector<int32_t>{std::numeric_limits<int32_t>::max(), -8, 6}));
}

TEST(EvaluateScalars, MinAndMaxKeepNan) {
  const float nan = std::nanf("");
  const Constant x = tensor<float>(E::kFloat32, {2}, {nan, 1});
  for (const ScalarOp op : {ScalarOp::kMin, ScalarOp::kMax}) {
    const Constant left = pointwise(E::kFloat32, E::kFloat32, x, [op](ScalarPool &s, ScalarId v) {
      return s.binary(op, v, s.constant(E::kFloat32, 2));
    });
    EXPECT_TRUE(std::isnan(left.as<float>()[0]));
    EXPECT_EQ(left.as<float>()[1], op == ScalarOp::kMin ? 1 : 2);
  }
}

// while (x < 100) x *= 2, keeping each x: a loop with a carried value, a condition and a scan output.
void make_loop(Made &m) {
  const Dim trips = m.p.dims->new_symbol(SymbolKind::kData, "trips");
  const BufferId start = m.input("start", E::kInt64, {});
  const BufferId last = m.output("last", E::kInt64, {}), all = m.output("all", E::kInt64, {trips});
  auto temporary = [&m](const char *name, E e) { return m.buffer(name, BufferKind::kTemporary, e, {}); };
  const BufferId x = temporary("x", E::kInt64), next = temporary("next", E::kInt64), more = temporary("more", E::kBool);
  auto &s = m.p.scalars;
  LoopNest body;
  body.stages = {
      Made::store(next, {}, s.binary(ScalarOp::kMul, m.load(x, {}), s.constant_int(E::kInt64, 2))),
      Made::store(more, {},
                  s.binary(ScalarOp::kLt, s.binary(ScalarOp::kMul, m.load(x, {}), s.constant_int(E::kInt64, 2)),
                           s.constant_int(E::kInt64, 100)))};
  Kernel inner;
  inner.name = "body";
  inner.body = body;
  const KernelId inner_id = m.p.add_kernel(inner);
  ControlFlow loop;
  loop.kind = ControlFlow::Kind::kLoop;
  loop.bodies = {{inner_id}};
  loop.results = {{more, next, next}};
  loop.outputs = {last, all};
  loop.initial = {start};
  loop.body_inputs = {x};
  loop.carried = 1;
  loop.defines = {single_symbol(trips)};
  Kernel kernel;
  kernel.name = "loop";
  kernel.body = loop;
  m.p.order.push_back(m.p.add_kernel(kernel));
}

TEST(EvaluateControl, LoopCarriesAndScans) {
  Made m;
  make_loop(m);
  auto out = m.run({Constant::scalar_int64(7)});
  ASSERT_TRUE(out.ok()) << m.message();
  EXPECT_EQ(values_of<int64_t>((*out)[0]), (std::vector<int64_t>{112}));
  EXPECT_EQ(values_of<int64_t>((*out)[1]), (std::vector<int64_t>{14, 28, 56, 112}));
}

// A run that takes as much as is allowed is made, one more operation is refused; `inputs` decide how much it is.
int64_t work_of(Made &m, const std::vector<Constant> &inputs) {
  int64_t work = 0, again = 0;
  m.options.work = &work;
  m.options.max_work = 0;
  EXPECT_TRUE(m.run(inputs).ok()) << m.message();
  m.options.work = &again;
  m.options.max_work = work;
  EXPECT_TRUE(m.run(inputs).ok()) << m.message();
  EXPECT_EQ(work, again);
  m.options.max_work = work - 1;
  const auto refused = m.run(inputs);
  EXPECT_FALSE(refused.ok());
  EXPECT_EQ(refused.failure().kind, ErrorKind::kIo);
  EXPECT_NE(m.message().find("more than the"), std::string::npos) << m.message();
  m.options.work = nullptr;  // the counters end here
  return work;
}

// What is multiplied as matrices counts a fraction of what the interpreter does.
TEST(EvaluateWork, OfProducts) {
  Made m;
  const int64_t rows = 64, columns = 48, depth = 256;
  const BufferId x = m.input("x", E::kFloat32, {rows, depth}), w = m.input("w", E::kFloat32, {depth, columns}),
                 y = m.output("y", E::kFloat32, {rows, columns});
  LoopNest nest;
  const Dim i = m.loop(nest.loops, rows), j = m.loop(nest.loops, columns);
  nest.locals = {{"sum", E::kFloat32, {}}};
  Stage stage;
  const Dim k = m.loop(stage.loops, depth);
  StageOutput o;
  o.local = LocalId(size_t{0});
  o.value = m.p.scalars.binary(ScalarOp::kMul, m.load(x, {i, k}), m.load(w, {k, j}));
  o.combine = Combine::kSum;
  stage.outputs = {o};
  nest.stages = {stage, Made::store(y, {i, j}, m.p.scalars.local(o.local, E::kFloat32, {}))};
  m.add(nest);
  const std::vector<Constant> inputs = {
      tensor(E::kFloat32, {rows, depth}, random_floats(size_t(rows * depth), 1)),
      tensor(E::kFloat32, {depth, columns}, random_floats(size_t(depth * columns), 2))};
  const int64_t products = rows * columns * depth, fast = work_of(m, inputs);
  m.options.use_runtime_kernels = false;
  const int64_t slow = work_of(m, inputs);
  EXPECT_GT(fast, products / 10);
  EXPECT_LT(fast, products);
  EXPECT_GT(slow, 3 * products);
  EXPECT_LT(slow, 10 * products);
}

// Iterations count as they come: 0 doubles for ever.
TEST(EvaluateWork, OfIterations) {
  Made m;
  make_loop(m);
  const int64_t four = work_of(m, {Constant::scalar_int64(7)}), one = work_of(m, {Constant::scalar_int64(50)});
  EXPECT_GT(four, one + 3 * 5000);
  EXPECT_LT(four, 4 * one);
  m.options.max_work = 10000000;
  EXPECT_FALSE(m.run({Constant::scalar_int64(0)}).ok());
  EXPECT_NE(m.message().find("kernel 'body'"), std::string::npos) << m.message();
}

}  // namespace
}  // namespace optc
