#pragma once
// Two bundles of one signature on the same inputs: whether a new version of optc, other options or other weights
// changed what is computed, and by how much.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "driver/compare.h"
#include "driver/sizes.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

struct BundleDiffOptions {
  std::string inputs;   // a folder of input_0.npy, ...; empty: random ones
  SizeByName sizes;     // of names of dims; what is left out is chosen
  uint64_t seed = 0;    // of random inputs
  int sets = 2;         // of random inputs
  double relative = 0;  // of an output's largest number: differences up to it count as none
};

struct BundleDiff {
  struct Output {
    std::string name;
    Comparison worst;  // over all sets; the first bundle's result is what is expected
  };
  std::vector<Output> outputs;    // in the first bundle's order
  std::vector<std::string> sets;  // the sizes of each, "N=1"; empty: none are open
  bool same_weights = false, same_precision = true;
  bool equal() const;
};

// Whether a path is the folder of a bundle.
bool is_bundle_folder(const std::string &path);
// Builds both in scratch folders and runs them on one thread. kUsage where inputs or outputs have other names or types.
Result<BundleDiff> diff_bundles(const std::string &before, const std::string &after, const BundleDiffOptions &options,
                                Diagnostics &diagnostics);

}  // namespace optc
