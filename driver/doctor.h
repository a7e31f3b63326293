#pragma once
// What of optc's surroundings is there: the programs that build bundles, the GPU's driver, the oracle, the cache.

#include <string>
#include <vector>

namespace optc {

enum class Need : uint8_t { kBundles, kSome };  // without it no bundle is built; only some verbs or targets want it

struct Finding {
  std::string name;  // "C++ compiler"
  bool there = false;
  Need need = Need::kSome;
  std::string what;  // its version and place, or what is wrong
  std::string help;  // what to install or set where it is not there
};

// The GPU's driver as bundles load it, then each card that it sees; of those that are there, what they are called.
// Where one is not there the list ends with it. Starts no GPU work.
std::vector<Finding> driver_and_cards();

// In the order in which they are told. Runs the programs found; starts no GPU work.
std::vector<Finding> examine();

}  // namespace optc
