// Dims mean the same in the compiler (evaluate), in Programs on the evaluator and in emitted C++, for every operation
// and at the ends: sizes of 0, divisors that are not positive, negative dividends; and so do conditions between them.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "emit/cpp/nest.h"
#include "tests/bundle_testing.h"
#include "tests/made_program.h"
#include "tests/shell.h"

namespace optc {
namespace {

using testing::BuiltBundle;
using testing::Made;

struct Sized : Made {
  Sized() {
    for (const char *name : {"A", "B"}) {
      const Dim size = p.dims->model_symbol(name);
      input(std::string("x") + name, ElementType::kFloat32, {size});
      p.sources.push_back({single_symbol(size), static_cast<uint32_t>(p.sources.size()), 0});
      p.input_defaults.emplace_back();
    }
  }
  static std::vector<Constant> inputs(int64_t a, int64_t b) {
    return {testing::random_tensor(ElementType::kFloat32, {a}, 1),
            testing::random_tensor(ElementType::kFloat32, {b}, 2)};
  }
};

// Dividends and divisors of every sign, and what is made of them.
std::vector<Dim> all_operations(const std::vector<Dim> &operands) {
  std::vector<Dim> results;
  for (Dim x : operands)
    for (Dim y : operands)
      for (Dim d : {x + y, x - y, x * y, min(x, y), max(x, y), floor_div(x, y), mod(x, y), ceil_div(x, y)})
        if (!d.is_constant() && std::find(results.begin(), results.end(), d) == results.end()) results.push_back(d);
  return results;
}

TEST(DimMeaning, IsOneOnTheEvaluatorAndInEmittedCode) {
  Sized made;
  Program &p = made.p;
  const Dim a = p.dims->model_symbol("A"), b = p.dims->model_symbol("B");
  const std::vector<Dim> sizes =
      all_operations({a, b, a - b, b - 3, Dim(4), 2 - a * b, min(a, b), floor_div(a - 2, b)});
  const BufferId of_sizes = made.output("of_sizes", ElementType::kInt64, {static_cast<int64_t>(sizes.size())});
  LoopNest once;
  once.stages.emplace_back();
  for (size_t k = 0; k < sizes.size(); ++k)
    once.stages[0].outputs.push_back(
        Made::store(of_sizes, {static_cast<int64_t>(k)}, p.scalars.index(sizes[k])).outputs[0]);
  made.add(std::move(once), "sizes");
  // The same with a counter.
  LoopNest counted;
  const Dim i = made.loop(counted.loops, 6);
  const std::vector<Dim> counters = all_operations({i, i - 3, i - a, b, b - a, Dim(3)});
  const BufferId of_counters =
      made.output("of_counters", ElementType::kInt64, {6, static_cast<int64_t>(counters.size())});
  counted.stages.emplace_back();
  for (size_t k = 0; k < counters.size(); ++k)
    counted.stages[0].outputs.push_back(
        Made::store(of_counters, {i, static_cast<int64_t>(k)}, p.scalars.index(counters[k])).outputs[0]);
  made.add(std::move(counted), "counters");

  BuiltBundle bundle;
  const std::string built = bundle.make(p, {}, "g++", "-O1");
  ASSERT_EQ(built, "");
  for (int64_t of_a = 0; of_a < 6; ++of_a)
    for (int64_t of_b = 0; of_b < 6; ++of_b) {
      SCOPED_TRACE("A = " + std::to_string(of_a) + ", B = " + std::to_string(of_b));
      const std::vector<Constant> inputs = Sized::inputs(of_a, of_b);
      const auto evaluated = made.run(inputs);
      ASSERT_TRUE(evaluated.ok()) << made.message();
      std::vector<Constant> compiled;
      ASSERT_EQ(bundle.run(inputs, compiled), "");
      const auto expect = [&](size_t output, int64_t at, Dim d, int64_t counter) {
        const auto want = evaluate(d, [&](const DimSymbol &s) {
          return std::optional<int64_t>(s.name == "A" ? of_a : s.name == "B" ? of_b : counter);
        });
        ASSERT_TRUE(want);
        EXPECT_EQ((*evaluated)[output].tensor.as_int64(at), *want)
            << "on the evaluator: " << d.str() << " at " << counter;
        EXPECT_EQ(compiled[output].as_int64(at), *want) << "compiled: " << d.str() << " at " << counter;
      };
      for (size_t k = 0; k < sizes.size(); ++k) expect(0, static_cast<int64_t>(k), sizes[k], 0);
      for (int64_t n = 0; n < 6; ++n)
        for (size_t k = 0; k < counters.size(); ++k)
          expect(1, n * static_cast<int64_t>(counters.size()) + static_cast<int64_t>(k), counters[k], n);
    }
}

// Sizes of memory are printed with sums and products that do not overflow.
TEST(DimMeaning, OfSizesOfMemoryIsOneInEmittedCode) {
  struct Sizes : DimText {
    std::string symbol(const DimSymbol &s) override { return s.name; }
  };
  DimTable dims;
  const Dim a = dims.model_symbol("A"), b = dims.model_symbol("B");
  dims.set_bounds(single_symbol(a), 1, single_symbol(a)->max);
  const std::vector<Dim> sizes = all_operations({a, b + 2, floor_div(a + 3, 4), floor_div(b + 7, 3), mod(a, 4) + 1,
                                                 floor_div(a + 2, 3) * 2, min(a, b + 3), 2 - a * b, Dim(5)});
  char folder[] = "/tmp/optc_dims_XXXXXX";
  ASSERT_TRUE(mkdtemp(folder));
  const std::string source = std::string(folder) + "/sizes.cpp", program = std::string(folder) + "/sizes";
  std::ofstream file(source);
  file << "#include <cstdio>\n#include \"runtime/bundle/scalar.h\"\nusing namespace optc;\nint main() {\n"
       << "  for (int64_t A = 1; A < 13; ++A)\n    for (int64_t B = 0; B < 9; B += 2) {\n";
  for (Dim d : sizes) file << "      std::printf(\"%lld \", static_cast<long long>(" << Sizes().size(d) << "));\n";
  file << "    }\n}\n";
  file.close();
  int status = 0;
  const std::string built =
      testing::run_command("g++ -std=c++17 -O0 -w -I" OPTC_SOURCE_DIR " " + source + " -o " + program, &status);
  ASSERT_EQ(status, 0) << built;
  std::istringstream printed(testing::run_command(program, &status));
  std::filesystem::remove_all(folder);
  for (int64_t of_a = 1; of_a < 13; ++of_a)
    for (int64_t of_b = 0; of_b < 9; of_b += 2)
      for (Dim d : sizes) {
        const auto want =
            evaluate(d, [&](const DimSymbol &s) { return std::optional<int64_t>(s.name == "A" ? of_a : of_b); });
        int64_t got = -1;
        printed >> got;
        EXPECT_EQ(got, want) << d.str() << " at A = " << of_a << ", B = " << of_b << ": " << Sizes().size(d);
      }
}

TEST(DimMeaning, OfConditionsIsOneOnTheEvaluatorAndInEmittedCode) {
  for (const bool or_one : {false, true}) {
    Sized made;
    Program &p = made.p;
    const Dim a = p.dims->model_symbol("A"), b = p.dims->model_symbol("B");
    const BufferId out = made.output("y", ElementType::kInt64, {1});
    LoopNest nest;
    nest.stages.push_back(Made::store(out, {0}, p.scalars.index(a)));
    made.add(std::move(nest));
    p.constraints.push_back({a + 1, b, or_one, "node 'asks'"});
    BuiltBundle bundle;
    const std::string built = bundle.make(p, {}, "g++", "-O0");
    ASSERT_EQ(built, "");
    for (int64_t of_a = 0; of_a < 4; ++of_a)
      for (int64_t of_b = 0; of_b < 4; ++of_b) {
        SCOPED_TRACE("A = " + std::to_string(of_a) + ", B = " + std::to_string(of_b));
        const bool good = of_a + 1 == of_b || (or_one && of_b == 1);
        std::vector<Constant> compiled;
        EXPECT_EQ(made.run(Sized::inputs(of_a, of_b)).ok(), good);
        const std::string said = bundle.run(Sized::inputs(of_a, of_b), compiled);
        EXPECT_EQ(said.empty(), good) << said;
        if (!good) {
          EXPECT_NE(said.find("node 'asks'"), std::string::npos) << said;
        }
      }
  }
}

// y[i, j] = 0 < flag[i] ? table[at[i], j] : -1.
TEST(DimMeaning, AnIndexIsCheckedWhereTheArmThatItServesIsTaken) {
  Made made;
  Program &p = made.p;
  const BufferId table = made.input("table", ElementType::kFloat32, {3, 20});
  const BufferId at = made.input("at", ElementType::kInt64, {4}), flag = made.input("flag", ElementType::kInt64, {4});
  const BufferId y = made.output("y", ElementType::kFloat32, {4, 20});
  p.input_defaults.resize(3);
  LoopNest nest;
  const Dim i = made.loop(nest.loops, 4), j = made.loop(nest.loops, 20);
  const Dim row = p.dims->scalar_symbol(made.load(at, {i}).index, 3);
  const ScalarId chosen =
      p.scalars.binary(ScalarOp::kLt, p.scalars.constant_int(ElementType::kInt64, 0), made.load(flag, {i}));
  nest.stages.push_back(Made::store(
      y, {i, j}, p.scalars.select(chosen, made.load(table, {row, j}), p.scalars.constant(ElementType::kFloat32, -1))));
  made.add(std::move(nest));
  BuiltBundle bundle;
  const std::string built = bundle.make(p, {}, "g++", "-O1");
  ASSERT_EQ(built, "");
  const Constant rows = testing::random_tensor(ElementType::kFloat32, {3, 20}, 1);
  for (const int64_t wild : {-1, 3, 1 << 20})
    for (const int64_t taken : {0, 1}) {
      const std::vector<Constant> inputs = {rows, testing::tensor<int64_t>(ElementType::kInt64, {4}, {2, wild, 0, 1}),
                                            testing::tensor<int64_t>(ElementType::kInt64, {4}, {1, taken, 1, 0})};
      const auto want = made.run(inputs);
      std::vector<Constant> got;
      const std::string said = bundle.run(inputs, got);
      EXPECT_EQ(want.ok(), taken == 0);
      EXPECT_EQ(said.empty(), taken == 0) << said;
      if (want.ok() && said.empty()) {
        EXPECT_EQ(testing::difference((*want)[0].tensor, got[0]), 0);
      }
    }
}

// y[i] = the sum of a[N - 1] over k < N: the same in each iteration, but there is none of it where N is 0.
TEST(DimMeaning, AnElementThatNoIterationNeedsIsNotRead) {
  Made made;
  Program &p = made.p;
  const Dim n = p.dims->model_symbol("N");
  const BufferId a = made.input("a", ElementType::kInt64, {n}), y = made.output("y", ElementType::kInt64, {4});
  p.sources.push_back({single_symbol(n), 0, 0});
  p.input_defaults.resize(1);
  LoopNest nest;
  const Dim i = made.loop(nest.loops, 4);
  nest.locals.push_back({"sum", ElementType::kInt64, {}});
  Stage sum;
  made.loop(sum.loops, n);
  StageOutput out;
  out.local = LocalId(0);
  out.value = made.load(a, {n - 1});
  out.combine = Combine::kSum;
  sum.outputs.push_back(out);
  nest.stages.push_back(std::move(sum));
  nest.stages.push_back(Made::store(y, {i}, p.scalars.local(LocalId(0), ElementType::kInt64, {})));
  made.add(std::move(nest));
  BuiltBundle bundle;
  std::string kernels;
  ASSERT_EQ(bundle.make(p, {}, "g++", "-O1",
                        [&](const std::string &made_bundle) {
                          kernels = BuiltBundle::text_of(made_bundle + "/src/kernels_0.inc");
                        }),
            "");
  const size_t read = kernels.find("[N - 1]"), loop = kernels.find("< N; ++");
  ASSERT_NE(read, std::string::npos) << kernels;
  EXPECT_LT(loop, read) << "read before the loop that may not run:\n" << kernels;
  for (const std::vector<int64_t> &values : {std::vector<int64_t>{5, 6, 7}, {}}) {
    std::vector<Constant> got;
    ASSERT_EQ(
        bundle.run({testing::tensor<int64_t>(ElementType::kInt64, {static_cast<int64_t>(values.size())}, values)}, got),
        "");
    EXPECT_EQ(got[0].as_int64(0), values.empty() ? 0 : 21);
  }
}

}  // namespace
}  // namespace optc
