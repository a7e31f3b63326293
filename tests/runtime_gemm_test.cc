// runtime/cpu/gemm.h against sums in double, on every instruction set of this machine.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "runtime/cpu/gemm_plan.h"

struct GemmStoredCase {
  int64_t m, n, k;
  int a_type, b_type;  // 0 f32, 1 f16, 2 bf16
  int64_t a_row, a_inner;
  bool packed;
  int64_t b_inner, b_column;
};

struct GemmDoubleCase {
  int64_t m, n, k, threads;
  int64_t a_row, a_inner, b_inner, b_column;
};

#define OPTC_KERNELS "tests/runtime_gemm_kernels.inc"
#include "runtime/cpu/foreach_isa.h"
#include "tests/runtime_isas.h"

namespace {

struct Shape {
  int64_t m, n, k;
};
const Shape kShapes[] = {{1, 10, 784}, {2, 1000, 33},  {3, 48, 2},      {4, 17, 1},     {5, 64, 65},   {7, 96, 300},
                         {13, 31, 64}, {197, 144, 40}, {16, 200, 2100}, {1, 130, 1500}, {250, 65, 17}, {6, 1, 9},
                         {401, 33, 5}, {51, 72, 33},   {9, 112, 1100},  {1, 160, 40},   {15, 209, 21}};

// Random values between guards of NaN: a read outside shows in the result, a write outside in the guard.
template <class T>
struct GuardedOf {
  static constexpr size_t kGuard = 64;
  std::vector<T> values;
  explicit GuardedOf(size_t n, uint32_t seed = 0) : values(n + 2 * kGuard, std::numeric_limits<T>::quiet_NaN()) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<T> uniform(-1, 1);
    if (seed)
      for (size_t i = 0; i < n; ++i) values[kGuard + i] = uniform(random);
  }
  T *data() { return values.data() + kGuard; }
  void expect_guards_untouched() const {
    for (size_t i = 0; i < kGuard; ++i) {
      ASSERT_TRUE(std::isnan(values[i]));
      ASSERT_TRUE(std::isnan(values[values.size() - 1 - i]));
    }
  }
};
typedef GuardedOf<float> Guarded;

void expect_close(double expected, double magnitude, float got, int64_t k, const char *what, int64_t i, int64_t j) {
  // Rounding errors of a sum of k products grow no faster than k; their size is that of sum |a b|.
  ASSERT_NEAR(expected, got, 1e-7 * (4 + std::sqrt(double(k))) * magnitude + 1e-30) << what << " at " << i << ", " << j;
}

TEST(RuntimeGemm, PackedWithEpilogue) {
  for (int s = 0; s < int(std::size(kShapes)); ++s) {
    const auto [m, n, k] = kShapes[s];
    Guarded a(m * k, 1), b(k * n, 2), bias(n, 3);
    std::vector<float> packed(optc_gemm_packed_floats(n, k) + 64);
    optc_pack_b(packed.data(), b.data(), k, n, n, 1);
    for (const auto &f : OPTC_ISA_FUNCTIONS(run_gemm)) {
      Guarded c(m * n);
      f.function(m, n, k, 1, a.data(), k, packed.data(), bias.data(), c.data());
      c.expect_guards_untouched();
      for (const int64_t threads : {2, 3, 7, 16, 61}) {  // other grids, the same bits
        Guarded again(m * n);
        f.function(m, n, k, threads, a.data(), k, packed.data(), bias.data(), again.data());
        again.expect_guards_untouched();
        ASSERT_EQ(std::memcmp(c.data(), again.data(), static_cast<size_t>(m * n) * sizeof(float)), 0)
            << m << "x" << n << "x" << k << " for " << threads << " threads on " << f.isa;
      }
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double sum = bias.data()[j], magnitude = std::abs(sum);
          for (int64_t x = 0; x < k; ++x) {
            const double p = double(a.data()[i * k + x]) * b.data()[x * n + j];
            sum += p, magnitude += std::abs(p);
          }
          expect_close(sum > 0 ? sum : 0, magnitude, c.data()[i * n + j], k, f.isa, i, j);
          if (HasFatalFailure()) FAIL() << "shape " << m << "x" << n << "x" << k;
        }
      }
    }
  }
}

// Small whole numbers, which every type holds: the sums are exact, so that every element is.
TEST(RuntimeGemm, StoredInSixteenBits) {
  const auto bits = [](float v, int type) -> uint32_t {
    uint32_t u;
    memcpy(&u, &v, 4);
    if (type == 0) return u;
    if (type == 2) return u >> 16;
    const uint32_t sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;  // the exponent's bias is 15, not 127
    return magnitude == 0 ? sign : sign | (magnitude - (112u << 23)) >> 13;
  };
  struct Stored {
    std::vector<uint32_t> words;
    std::vector<uint16_t> halves;
    int type;
    void *data() { return type == 0 ? static_cast<void *>(words.data()) : halves.data(); }
  };
  const auto store = [&](const std::vector<float> &values, int type) {
    Stored s{{}, {}, type};
    for (float v : values)
      if (type == 0)
        s.words.push_back(bits(v, 0));
      else
        s.halves.push_back(static_cast<uint16_t>(bits(v, type)));
    return s;
  };
  std::mt19937 random(3);
  for (const auto &[m, n, k] : kShapes) {
    std::vector<float> a(m * k), b(k * n), expected(m * n);
    for (float &v : a) v = static_cast<float>(int(random() % 9) - 4);
    for (float &v : b) v = static_cast<float>(int(random() % 9) - 4);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t x = 0; x < k; ++x)
        for (int64_t j = 0; j < n; ++j) expected[i * n + j] += a[i * k + x] * b[x * n + j];
    for (const auto &[at, bt] : {std::pair{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}, {2, 2}})
      for (int form = 0; form < 12; ++form) {
        const bool a_turned = form & 1, b_turned = form & 2;
        GemmStoredCase t{
            m, n, k, at, bt, a_turned ? 1 : k, a_turned ? m : 1, form >= 8, b_turned ? 1 : n, b_turned ? k : 1};
        if (t.packed && b_turned) continue;
        const auto turned = [](const std::vector<float> &v, int64_t rows, int64_t columns) {
          std::vector<float> r(v.size());
          for (int64_t i = 0; i < rows; ++i)
            for (int64_t j = 0; j < columns; ++j) r[j * rows + i] = v[i * columns + j];
          return r;
        };
        std::vector<float> laid = b_turned ? turned(b, k, n) : b;
        if (t.packed) {
          laid.resize(optc_gemm_packed_floats(n, k));
          optc_pack_b(laid.data(), b.data(), k, n, n, 1);
        }
        Stored sa = store(a_turned ? turned(a, m, k) : a, at), sb = store(laid, bt);
        for (const auto &f : OPTC_ISA_FUNCTIONS(run_gemm_stored)) {
          Guarded c(m * n), scratch(optc_gemm_stored_floats(std::min<int64_t>(m, 192), n, k, (form & 4) == 0));
          f.function(t, sa.data(), sb.data(), form & 4 ? c.data() : nullptr, scratch.data(), c.data());
          c.expect_guards_untouched();
          scratch.expect_guards_untouched();
          for (int64_t i = 0; i < m * n; ++i)
            ASSERT_EQ(c.data()[i], expected[i]) << f.isa << " types " << at << bt << " form " << form << " " << m << "x"
                                                << n << "x" << k << " at " << i / n << ", " << i % n;
        }
      }
  }
}

TEST(RuntimeGemm, EveryOtherRow) {
  const int64_t n = 100, k = 70;
  Guarded b(k * n, 2), bias(n, 3);
  std::vector<float> packed(optc_gemm_packed_floats(n, k) + 64);
  optc_pack_b(packed.data(), b.data(), k, n, n, 1);
  for (int64_t m : {0, 1, 2, 3, 9, 50, 331}) {
    Guarded a(2 * m * k, 1);
    for (const auto &f : OPTC_ISA_FUNCTIONS(run_gemm)) {
      Guarded c(m * n);
      f.function(m, n, k, 1, a.data(), 2 * k, packed.data(), bias.data(), c.data());
      c.expect_guards_untouched();
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double sum = bias.data()[j], magnitude = std::abs(sum);
          for (int64_t x = 0; x < k; ++x) {
            const double p = double(a.data()[2 * i * k + x]) * b.data()[x * n + j];
            sum += p, magnitude += std::abs(p);
          }
          expect_close(sum > 0 ? sum : 0, magnitude, c.data()[i * n + j], k, f.isa, i, j);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(RuntimeGemm, StoresPlainProducts) {
  for (const auto &[m, n, k] : kShapes) {
    Guarded a(m * k, 1), b(k * n, 2);
    std::vector<float> packed(optc_gemm_packed_floats(n, k) + 64);
    optc_pack_b(packed.data(), b.data(), k, n, n, 1);
    for (const auto &f : OPTC_ISA_FUNCTIONS(run_store_gemm)) {
      Guarded c(m * n);
      f.function(m, n, k, a.data(), packed.data(), c.data());
      c.expect_guards_untouched();
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0, magnitude = 0;
          for (int64_t x = 0; x < k; ++x) {
            const double p = double(a.data()[i * k + x]) * b.data()[x * n + j];
            sum += p, magnitude += std::abs(p);
          }
          expect_close(sum, magnitude, c.data()[i * n + j], k, f.isa, i, j);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(RuntimeGemm, UnpackedAndTransposed) {
  for (const auto &[m, n, k] :
       {Shape{1, 5, 9}, Shape{3, 64, 64}, Shape{33, 77, 130}, Shape{12, 48, 1100}, Shape{200, 20, 3}, Shape{4, 7, 0}}) {
    for (bool transposed : {false, true}) {
      Guarded a(m * k, 1), b(k * n, 2);
      const int64_t rs = transposed ? 1 : n, cs = transposed ? k : 1;
      std::vector<float> scratch(1024 * 64);
      for (const auto &f : OPTC_ISA_FUNCTIONS(run_unpacked_gemm)) {
        Guarded c(m * n);
        f.function(m, n, k, a.data(), b.data(), rs, cs, c.data(), scratch.data());
        c.expect_guards_untouched();
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < n; ++j) {
            double sum = 0, magnitude = 0;
            for (int64_t x = 0; x < k; ++x) {
              const double p = double(a.data()[i * k + x]) * b.data()[x * rs + j * cs];
              sum += p, magnitude += std::abs(p);
            }
            expect_close(sum, magnitude, c.data()[i * n + j], k, f.isa, i, j);
            if (HasFatalFailure()) FAIL() << "shape " << m << "x" << n << "x" << k << (transposed ? " transposed" : "");
          }
        }
      }
    }
  }
}

// Small whole numbers: the sums are exact, so that every element is. Others: the same bits for any number of threads.
TEST(RuntimeGemm, Double) {
  const auto turned = [](GuardedOf<double> &v, int64_t rows, int64_t columns) {
    GuardedOf<double> r(rows * columns);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) r.data()[j * rows + i] = v.data()[i * columns + j];
    return r;
  };
  std::vector<Shape> shapes(std::begin(kShapes), std::end(kShapes));
  shapes.push_back({5, 9, 0});
  for (const auto &[m, n, k] : shapes)
    for (const bool whole : {true, false}) {
      GuardedOf<double> a(m * k, 1), b(k * n, 2);
      for (int64_t i = 0; whole && i < m * k; ++i) a.data()[i] = std::floor(a.data()[i] * 5);
      for (int64_t i = 0; whole && i < k * n; ++i) b.data()[i] = std::floor(b.data()[i] * 5);
      std::vector<double> expected(m * n), packed(optc_gemm_packed_floats(n, k, 8));
      for (int64_t i = 0; i < m; ++i)
        for (int64_t x = 0; x < k; ++x)
          for (int64_t j = 0; j < n; ++j) expected[i * n + j] += a.data()[i * k + x] * b.data()[x * n + j];
      optc_pack_b(packed.data(), b.data(), k, n, n, 1);
      GuardedOf<double> at = turned(a, m, k), bt = turned(b, k, n);
      for (int form = 0; form < 12; ++form) {
        const bool a_turned = form & 1, b_turned = form & 2, of_packed = form >= 8;
        if (of_packed && b_turned) continue;
        for (const auto &f : OPTC_ISA_FUNCTIONS(run_gemm_double)) {
          std::vector<double> first;
          for (const int64_t threads : {1, 2, 7, 61}) {
            const GemmDoubleCase t{
                m, n, k, threads, a_turned ? 1 : k, a_turned ? m : 1, b_turned ? 1 : n, b_turned ? k : 1};
            GuardedOf<double> c(m * n);
            GuardedOf<float> scratch(optc_gemm_stored_floats(std::min<int64_t>(m, 192), n, k, (form & 4) == 0, 8));
            f.function(t, (a_turned ? at : a).data(), (b_turned ? bt : b).data(), of_packed ? packed.data() : nullptr,
                       form & 4 ? c.data() : nullptr, reinterpret_cast<double *>(scratch.data()), c.data());
            c.expect_guards_untouched();
            scratch.expect_guards_untouched();
            for (int64_t i = 0; i < m * n; ++i)
              ASSERT_NEAR(c.data()[i], expected[i], whole ? 0 : 1e-12)
                  << f.isa << " form " << form << " " << m << "x" << n << "x" << k << " at " << i / n << ", " << i % n;
            const std::vector<double> got(c.data(), c.data() + m * n);
            if (first.empty()) first = got;
            ASSERT_EQ(std::memcmp(first.data(), got.data(), got.size() * sizeof(double)), 0) << f.isa << " " << threads;
          }
        }
      }
    }
}

TEST(RuntimeGemm, PanelsLeaveLessThanAVectorOfZeros) {
  for (int64_t at = 0; at <= 6000; ++at) {
    const int64_t n = at / 2, element = at % 2 ? 8 : 4;
    const OptcPanels p = optc_gemm_panels(n, element);
    int64_t column = 0;
    for (int64_t i = 0; i < optc_panel_count(p); ++i) {
      const int width = optc_panel_width(p, i);
      ASSERT_TRUE(width == 16 || width == 32 || (element == 4 && (width == 48 || width == 64))) << n;
      ASSERT_TRUE(n <= 32 || width > 16 || (element == 8 && i + 1 == optc_panel_count(p))) << n;
      ASSERT_EQ(optc_panel_begin(p, i), column) << n;
      for (int64_t j : {column, column + width - 1}) ASSERT_EQ(optc_panel_of(p, j), i) << n;
      column += width;
    }
    ASSERT_EQ(optc_panel_columns(p), column);
    ASSERT_EQ(column, optc_round_up(n, 16)) << n;
  }
}

TEST(RuntimeGemm, TasksCoverTheProductOnce) {
  for (int64_t m : {0, 1, 5, 128, 1000})
    for (int64_t n : {1, 48, 72, 160, 1000, 3072})
      for (int64_t k : {1, 768, 5000}) {
        const OptcGemm g = optc_gemm_plan(m, n, k);
        int64_t area = 0;
        for (int64_t t = 0; t < optc_gemm_tasks(g); ++t) {
          const OptcGemmTask task = optc_gemm_task(g, t);
          EXPECT_EQ(task.n0, optc_panel_begin(g.panels, task.p0));
          EXPECT_LE(task.n1, n);
          EXPECT_LE(task.m1, m);
          area += (task.m1 - task.m0) * (task.n1 - task.n0);
        }
        EXPECT_EQ(area, m * n);
      }
}

}  // namespace
