#pragma once
// Sizes of a model's symbolic dimensions for a run on inputs that are made: small, and such that the model fits them.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ir/graph/graph.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

using SizeByName = std::map<std::string, int64_t>;  // values of the model's symbols

// What the model says of the sizes of its inputs: the bounds of the symbols, the conditions that its operators state
// (two sums of strided extents that must be equal, a reshape that must divide), that no tensor is empty, and that the
// indices that it holds lie in what they index. What only
// data decides, and what holds in a branch alone, is not known here: then a run fails, and the next attempt has other
// sizes.
class SizeChooser {
 public:
  static constexpr int kAttempts = 6;

  explicit SizeChooser(const Graph &graph);

  // A value for each symbol in the model's inputs: the given one, else one that fits. `set` 0 and 1 give different
  // sizes where the model allows it: 1 and 2 for symbols that only occur in front (batch), small ones for others.
  // `attempt` below kAttempts says where the search begins: from 8 and 13 first, then larger and smaller ones, from 1
  // and 2 last. kUsage, with the condition that does not hold, when the given ones do not fit or none are found.
  Result<SizeByName> choose(const SizeByName &given, int set, int attempt, Diagnostics &diagnostics) const;

 private:
  struct Condition {
    Dim left, right;  // left == right, or left >= right
    bool at_least = false, or_one = false;
    std::string where;
    std::vector<size_t> symbols;  // that occur in it, by position in symbols_
  };
  using Assignment = std::vector<int64_t>;  // parallel to symbols_
  class Search;

  void add_index_conditions(const Graph &graph);
  void add_condition(Condition condition);
  bool holds(const Condition &condition, const Assignment &sizes) const;

  std::shared_ptr<const DimTable> dims_;
  std::vector<const DimSymbol *> symbols_;
  std::vector<bool> in_front_;  // occurs as dimension 0 alone
  std::vector<Condition> conditions_;
};

}  // namespace optc
