// Constants that are made when their bytes are asked for, and the weights that are packed so.
#include "ir/constant.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "evaluate/pack.h"
#include "runtime/cpu/gemm_plan.h"

namespace optc {
namespace {

std::vector<uint8_t> given(const Constant &constant) {
  std::vector<uint8_t> bytes;
  EXPECT_TRUE(constant.give([&](const void *data, size_t size) {
    bytes.insert(bytes.end(), static_cast<const uint8_t *>(data), static_cast<const uint8_t *>(data) + size);
    return true;
  }));
  return bytes;
}

// {1, 2, 3, 4} by `form`, in two pieces; counts how often it is made.
Constant counted(std::atomic<int> &times, const std::string &form, const Constant &of) {
  return Constant::made(ElementType::kUInt8, {4}, form, {of}, [&times](const Constant::Sink &sink) {
    ++times;
    const uint8_t bytes[] = {1, 2, 3, 4};
    return sink(bytes, 3) && sink(bytes + 3, 1);
  });
}

TEST(Constant, IsMadeWhenItsBytesAreAskedFor) {
  std::atomic<int> times = 0;
  const Constant made = counted(times, "count", Constant::floats({1, 2}));
  EXPECT_EQ(made.size(), 4u);
  EXPECT_EQ(times, 0);
  const std::vector<uint8_t> bytes = {1, 2, 3, 4};
  EXPECT_EQ(given(made), bytes);
  EXPECT_EQ(given(made), bytes);
  EXPECT_EQ(times, 2);  // give() keeps nothing
  EXPECT_FALSE(made.plain().is_made());
  EXPECT_EQ(times, 3);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { EXPECT_EQ(made.as_int64(3), 4); });
  for (std::thread &t : threads) t.join();
  EXPECT_EQ(times, 4);  // data() does
  EXPECT_EQ(made.reshaped({2, 2}).as_int64(1), 2);
  EXPECT_FALSE(made.give([](const void *, size_t) { return false; }));
}

TEST(Constant, OfOneFormAndEqualSourcesIsEqualWithoutBeingMade) {
  std::atomic<int> times = 0;
  const Constant one = counted(times, "count", Constant::floats({1, 2}));
  const Constant same = counted(times, "count", Constant::floats({1, 2}));
  EXPECT_TRUE(one.equals(same));
  EXPECT_EQ(one.beginning(64), same.beginning(64));
  EXPECT_NE(one.beginning(64), counted(times, "count", Constant::floats({1, 3})).beginning(64));
  EXPECT_NE(one.beginning(64), counted(times, "other", Constant::floats({1, 2})).beginning(64));
  EXPECT_NE(one.identity(), same.identity());
  EXPECT_EQ(times, 0);
  // Of other forms the bytes say.
  EXPECT_TRUE(one.equals(counted(times, "other", Constant::floats({1, 2}))));
  EXPECT_TRUE(one.equals(Constant::owned(ElementType::kUInt8, {4}, {1, 2, 3, 4})));
  EXPECT_FALSE(one.equals(Constant::owned(ElementType::kUInt8, {4}, {1, 2, 3, 5})));
}

// In pieces as at once: widths that end in a panel of their own, blocks of rows, several megabytes, both element sizes.
TEST(Constant, PanelsOfAProductAreThoseOfItsPlan) {
  for (const auto &[k, n] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {7, 80}, {1030, 33}, {1500, 1100}, {0, 5}}) {
    std::vector<uint8_t> wide(static_cast<size_t>(k * n) * 4), narrow(static_cast<size_t>(k * n) * 2);
    for (size_t i = 0; i < wide.size(); ++i) wide[i] = static_cast<uint8_t>(i * 7 + i / 256);
    for (size_t i = 0; i < narrow.size(); ++i) narrow[i] = static_cast<uint8_t>(i * 5 + i / 256);
    const Constant floats = Constant::owned(ElementType::kFloat32, {k, n}, wide);
    const Constant halves = Constant::owned(ElementType::kFloat16, {k, n}, narrow);
    const int64_t count = optc_gemm_packed_floats(n, k);
    for (const bool transposed : {false, true}) {
      const int64_t row = transposed ? 1 : n, column = transposed ? k : 1;
      std::vector<uint8_t> at_once(static_cast<size_t>(count) * 4);
      optc_pack_b(reinterpret_cast<uint32_t *>(at_once.data()), reinterpret_cast<const uint32_t *>(wide.data()), k, n,
                  row, column);
      EXPECT_EQ(given(pack_gemm(floats, 0, k, n, row, column)), at_once);
      at_once.assign(static_cast<size_t>(count) * 2, 0);
      optc_pack_b(reinterpret_cast<uint16_t *>(at_once.data()), halves.as<uint16_t>(), k, n, row, column);
      EXPECT_EQ(given(pack_gemm(halves, 0, k, n, row, column)), at_once);
    }
  }
}

}  // namespace
}  // namespace optc
