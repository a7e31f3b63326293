// runtime/bundle/lanes.h on every instruction set of this machine: lanes that meet a border, extremes of a vector,
// numbers stored as i64.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/bundle/env.h"
#include "runtime/bundle/scalar.h"

#define OPTC_KERNELS "tests/runtime_lanes_kernels.inc"
#include "runtime/cpu/foreach_isa.h"
#include "tests/runtime_isas.h"

namespace {

// A page between two that must not be touched.
class Page {
 public:
  Page() : size_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    all_ = static_cast<char *>(mmap(nullptr, 3 * size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(all_ + size_, size_, PROT_READ | PROT_WRITE);
  }
  ~Page() { munmap(all_, 3 * size_); }
  Page(const Page &) = delete;
  Page &operator=(const Page &) = delete;
  char *begin() const { return all_ + size_; }
  char *end() const { return begin() + size_; }

 private:
  size_t size_;
  char *all_ = nullptr;
};

// Rows that end with the page and such that begin with it: no lane reads what lies outside.
TEST(RuntimeLanes, HeldIndicesReadNothingBeyondTheirRow) {
  const Page page;
  for (const int64_t extent : {1, 3, 7, 16, 40})
    for (const bool at_end : {true, false}) {
      float *row = at_end ? reinterpret_cast<float *>(page.end()) - extent : reinterpret_cast<float *>(page.begin());
      for (int64_t i = 0; i < extent; ++i) row[i] = static_cast<float>(i + 1);
      const auto held = OPTC_ISA_FUNCTIONS(run_held), inside = OPTC_ISA_FUNCTIONS(run_inside);
      for (size_t isa = 0; isa < held.size(); ++isa)
        for (const int64_t step : {1, 2, 3})
          for (int64_t at = -20; at < extent + 5; at += 3)
            for (const int64_t n : {1, 5, 16, 37}) {
              std::vector<float> y(static_cast<size_t>(n) + 1, -1.0f);
              held[isa].function(row, at, step, 0, extent - 1, n, y.data());
              for (int64_t i = 0; i < n; ++i)
                ASSERT_EQ(y[static_cast<size_t>(i)], row[std::clamp<int64_t>(at + i * step, 0, extent - 1)])
                    << held[isa].isa << " extent " << extent << " at " << at << " step " << step << " lane " << i;
              inside[isa].function(row, at, step, 0, extent - 1, n, y.data());
              for (int64_t i = 0; i < n; ++i) {
                const int64_t k = at + i * step;
                ASSERT_EQ(y[static_cast<size_t>(i)], k >= 0 && k < extent ? row[k] : -7.0f)
                    << held[isa].isa << " extent " << extent << " at " << at << " step " << step << " lane " << i;
              }
              ASSERT_EQ(y.back(), -1.0f);
            }
    }
}

TEST(RuntimeLanes, ARowThatIsHeldAtOneEndAlone) {
  std::vector<float> row(64);
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(i);
  for (const auto &f : OPTC_ISA_FUNCTIONS(run_held)) {
    std::vector<float> y(30);
    f.function(row.data(), -4, 1, 0, INT64_MAX / 4, 30, y.data());
    for (int i = 0; i < 30; ++i) EXPECT_EQ(y[static_cast<size_t>(i)], std::max(0, i - 4)) << f.isa;
    f.function(row.data(), 20, 1, -INT64_MAX / 4, 31, 30, y.data());
    for (int i = 0; i < 30; ++i) EXPECT_EQ(y[static_cast<size_t>(i)], std::min(31, i + 20)) << f.isa;
  }
}

TEST(RuntimeLanes, BytesAreHeldAlike) {
  const Page page;
  uint8_t *row = reinterpret_cast<uint8_t *>(page.end()) - 21;
  for (int i = 0; i < 21; ++i) row[i] = static_cast<uint8_t>(200 + i);
  for (const auto &f : OPTC_ISA_FUNCTIONS(run_held_u8)) {
    std::vector<int32_t> y(40);
    f.function(row, -6, 0, 20, 40, y.data());
    for (int i = 0; i < 40; ++i) EXPECT_EQ(y[static_cast<size_t>(i)], 200 + std::clamp(i - 6, 0, 20)) << f.isa;
  }
}

TEST(RuntimeLanes, ExtremesOfAVectorFindNanInEveryLane) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const auto &f : OPTC_ISA_FUNCTIONS(run_extremes))
    for (int lane = 0; lane < 4; ++lane) {
      float x[16], greatest = 0, least = 0;
      for (int i = 0; i < 16; ++i) x[i] = static_cast<float>(i % 4);
      x[lane] = 9;
      f.function(x, &greatest, &least);
      EXPECT_EQ(greatest, 9) << f.isa;
      EXPECT_EQ(least, lane == 0 && std::string(f.isa) == "base" ? 1 : 0) << f.isa;
      x[lane] = -infinity;
      f.function(x, &greatest, &least);
      EXPECT_EQ(least, -infinity) << f.isa;
      x[lane] = NAN;
      f.function(x, &greatest, &least);
      EXPECT_TRUE(std::isnan(greatest) && std::isnan(least)) << f.isa << " lane " << lane;
    }
}

TEST(RuntimeLanes, ExtremesOfIntegers) {
  for (const auto &f : OPTC_ISA_FUNCTIONS(run_integers))
    for (const int64_t n : {0, 1, 3, 16, 70, 200}) {
      std::vector<int32_t> x;
      for (int64_t i = 0; i < n; ++i) x.push_back(static_cast<int32_t>(i * 7919 % 1000 - 500));
      int32_t greatest = 0, least = 0;
      f.function(x.data(), n, &greatest, &least);
      EXPECT_EQ(greatest, n ? *std::max_element(x.begin(), x.end()) : INT32_MIN) << f.isa << " " << n;
      EXPECT_EQ(least, n ? *std::min_element(x.begin(), x.end()) : INT32_MAX) << f.isa << " " << n;
    }
}

TEST(RuntimeLanes, FloatsToI64TruncateAndSaturate) {
  std::vector<float> x;
  for (float v : {0.0f, 0.9f, -0.9f, 2147483520.0f, 2147483648.0f, -2147483648.0f, 1e12f, 9e18f, 9.3e18f, 1e30f})
    x.insert(x.end(), {v, -v, v * 0.5f});
  x.insert(x.end(), {INFINITY, -INFINITY, NAN});
  while (x.size() < 64) x.push_back(static_cast<float>(x.size()) * 1.5f);  // whole vectors of small ones
  for (const auto &f : OPTC_ISA_FUNCTIONS(run_to_i64)) {
    std::vector<int64_t> y(x.size());
    f.function(x.data(), y.data(), static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], optc::saturate_to<int64_t>(x[i])) << f.isa << " " << x[i];
  }
}

}  // namespace
