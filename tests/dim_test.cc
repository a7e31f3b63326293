#include "ir/dim/dim.h"

#include <gtest/gtest.h>

#include <random>

namespace optc {
namespace {

TEST(Dim, SumsAreCanonical) {
  DimTable table;
  const Dim n = table.model_symbol("N"), s = table.model_symbol("S");
  EXPECT_EQ(n * 2 + s - n, n + s);
  EXPECT_EQ((n + 1) * (s - 1), n * s - n + s - 1);
  EXPECT_TRUE((n - n).is(0));
  EXPECT_EQ(table.model_symbol("N"), n);
  EXPECT_EQ((n * s * 12 + 3).str(), "12*N*S + 3");
}

TEST(Dim, QuotientAndRemainderOfAReshapedIndexRecombine) {
  DimTable table;
  const Dim s = table.model_symbol("S"), b = table.model_symbol("B");
  const Dim i = table.new_loop("i", b * s);
  EXPECT_EQ(floor_div(i, s) * s + mod(i, s), i);
  const Dim h = table.new_loop("h", 12), d = table.new_loop("d", 64);
  EXPECT_EQ(floor_div(h * 64 + d, 64), h);
  EXPECT_EQ(mod(h * 64 + d, 64), d);
  const Dim j = table.new_loop("j", 768);
  EXPECT_EQ(floor_div(j, 64) * 64 + mod(j, 64), j);
  EXPECT_EQ(floor_div(floor_div(j, 8), 8), floor_div(j, 64));
}

TEST(Dim, DifferencesOfMinimaAreBounded) {
  DimTable table;
  const Dim b = table.model_symbol("B"), s = table.model_symbol("S");
  EXPECT_TRUE(proved_at_least(min(b, 2), min(b, 1)));
  const Dim column = min(b, 5) - min(b, 4);
  EXPECT_EQ(lower_bound(column), 0);
  EXPECT_EQ(upper_bound(column), 1);
  EXPECT_EQ(max(column, 0), column);
  EXPECT_EQ(lower_bound(min(b, 4) * 3 - min(b, 5) * 3), -3);
  EXPECT_EQ(upper_bound(max(b, 4) - max(b, 1)), 3);
  EXPECT_EQ(lower_bound(max(b, 4) - max(b, 1)), 0);
  EXPECT_LE(lower_bound(min(b, 4) - min(s, 4)), -4);
  // Against every value, also where the operands are no numbers.
  for (const Dim d : {min(b, s + 1) - min(b, s), max(b * 2, s) - max(s, b), min(b, 3) - min(s, 2) + max(b, 7)})
    for (int64_t x = 0; x < 9; ++x)
      for (int64_t y = 0; y < 9; ++y) {
        const int64_t v = *evaluate(d, [&](const DimSymbol &symbol) { return symbol.name == "B" ? x : y; });
        EXPECT_LE(lower_bound(d), v) << d.str();
        EXPECT_GE(upper_bound(d), v) << d.str();
      }
}

TEST(Dim, SymbolicRangesAreProved) {
  DimTable table;
  const Dim s = table.model_symbol("S");
  const Dim i = table.new_loop("i", s), j = table.new_loop("j", 12);
  EXPECT_TRUE(proved_in_range(i * 12 + j, s * 12));
  EXPECT_EQ(floor_div(i * 12 + j, s * 12), Dim(0));
  EXPECT_FALSE(proved_in_range(i + 1, s));
  EXPECT_TRUE(proved_at_least(s, i + 1));
  EXPECT_EQ(lower_bound(i), 0);
  EXPECT_EQ(upper_bound(j * 3 + 1), 34);
}

TEST(Dim, MinimaAndMaximaAbsorb) {
  DimTable table;
  const Dim s = table.model_symbol("S"), n = table.model_symbol("N");
  EXPECT_EQ(max(s, min(s, 512)), s);
  EXPECT_EQ(max(max(n, s), n), max(s, n));
  EXPECT_EQ(min(max(n, s), s), s);
  EXPECT_EQ(min(min(s, 512), 1), min(s, 1));
  EXPECT_EQ(max(max(s, 8), 512), max(s, 512));
  EXPECT_FALSE(proved_at_least(s, max(s, n)));
}

TEST(Dim, ExactDivision) {
  DimTable table;
  const Dim n = table.model_symbol("N");
  EXPECT_EQ(*exact_div(n * 12, 4), n * 3);
  EXPECT_EQ(*exact_div(n * 12, n), Dim(12));
  EXPECT_FALSE(exact_div(n * 12, 14).has_value());
  EXPECT_EQ(*exact_div((n + 1) * 8, n + 1), Dim(8));
}

TEST(Dim, ParsesWhatItPrints) {
  DimTable table;
  for (const char *text : {"2*N*S + 1", "((N*12)/(5))", "((N + 1)%(4))", "min(N, S)", "-N + 7"}) {
    const auto d = parse_dim(text, table);
    ASSERT_TRUE(d.has_value()) << text;
    EXPECT_EQ(parse_dim(d->str(), table), d) << d->str();
  }
  for (const char *text : {"", "N +", "(N", "N/0", "2x", "min(N)"}) EXPECT_FALSE(parse_dim(text, table)) << text;
}

// Every rule of the algebra at once: random expressions agree with their values, before and after substitution.
TEST(Dim, RandomExpressionsKeepTheirValue) {
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    DimTable table;
    std::vector<std::pair<Dim, int64_t>> pool;
    std::vector<int64_t> values;
    for (const char *name : {"N", "S", "T"}) {
      values.push_back(1 + static_cast<int64_t>(random() % 9));
      pool.emplace_back(table.model_symbol(name), values.back());
    }
    table.set_bounds(table.find("N"), 1, kDimOverflow);
    for (int k = 0; k < 2; ++k) {
      const auto &[extent, extent_value] = pool[random() % 3];
      values.push_back(static_cast<int64_t>(random() % static_cast<unsigned>(extent_value)));
      pool.emplace_back(table.new_loop("i", extent), values.back());
    }
    for (int64_t c : {1, 2, 3, 8, 64}) pool.emplace_back(Dim(c), c);
    auto floor_quotient = [](int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); };
    for (int step = 0; step < 12; ++step) {
      const auto [a, x] = pool[random() % pool.size()];
      const auto [b, y] = pool[random() % pool.size()];
      switch (random() % 7) {
        case 0:
          pool.emplace_back(a + b, x + y);
          break;
        case 1:
          pool.emplace_back(a - b, x - y);
          break;
        case 2:
          if (std::abs(x * y) < 100000) pool.emplace_back(a * b, x * y);
          break;
        case 3:
          if (lower_bound(b) > 0) pool.emplace_back(floor_div(a, b), floor_quotient(x, y));
          break;
        case 4:
          if (lower_bound(b) > 0) pool.emplace_back(mod(a, b), x - floor_quotient(x, y) * y);
          break;
        case 5:
          pool.emplace_back(min(a, b), std::min(x, y));
          break;
        case 6:
          pool.emplace_back(max(a, b), std::max(x, y));
          break;
      }
    }
    const DimValues lookup = [&](const DimSymbol &s) { return std::optional<int64_t>(values[s.id]); };
    for (const auto &[d, v] : pool) {
      ASSERT_EQ(evaluate(d, lookup), v) << d.str();
      EXPECT_LE(lower_bound(d), v) << d.str();
      EXPECT_GE(upper_bound(d), v) << d.str();
      const Dim fixed = substitute(d, [&](const DimSymbol &s) { return std::optional<Dim>(Dim(values[s.id])); });
      ASSERT_TRUE(fixed.is(v)) << d.str() << " gave " << fixed.str();
    }
  }
}

}  // namespace
}  // namespace optc
