// The law of lowering/fusion/legality.h on random graphs: lowered Programs compute what the unfused ones do.
// OPTC_NETS=n and OPTC_SEED=s run n graphs from seed s on; a failure prints the seed of its graph.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/lowered.h"
#include "tests/random_nets.h"

namespace optc {
namespace {

int64_t number(const char *name, int64_t fallback) {
  const char *given = std::getenv(name);
  return given ? std::atoll(given) : fallback;
}

TEST(FusionLaw, LoweredIsUnfusedOnRandomGraphs) {
  const int64_t first = number("OPTC_SEED", 1), count = number("OPTC_NETS", 600);
  int64_t fused = 0;
  for (int64_t seed = first; seed < first + count; ++seed) {
    const std::string text = RandomNet(static_cast<uint32_t>(seed)).text();
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + text);
    LoweringOptions options;
    options.target = seed % 3 == 0 ? LoweringOptions::Target::kGpu : LoweringOptions::Target::kCpu;
    const Lowered r = lower_text(text, options);
    ASSERT_FALSE(r.text.empty());
    fused += r.report.inlined + r.report.epilogues;
    for (int64_t n : {2, 1})
      expect_same_results(
          r, [n](const DimSymbol &) { return std::optional<int64_t>(n); }, 1e-5);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(fused, count);  // the graphs are about fusion
}

}  // namespace
}  // namespace optc
