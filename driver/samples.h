#pragma once
// Sets of inputs for runs: from files where they are given, made where they are not. Made ones are tried: a model whose
// needs only show while it runs gets other sizes and values until it takes them.

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "driver/inputs.h"
#include "driver/sizes.h"

namespace optc {

struct InputSource {
  std::string folder;                                      // of input_0.pb, ...; empty: none
  std::vector<std::pair<std::string, std::string>> named;  // files by input name
  SizeByName sizes;                                        // given by the user
  uint64_t seed = 0;
  bool smallest = false;  // of made inputs the smallest sizes are tried first, in place of some that say more
};

struct InputSet {
  std::vector<RuntimeValue> values;  // in the order of the model's inputs
  SizeByName sizes;                  // of the symbols; empty where a folder gives the inputs
  std::string refused;               // why the first attempt did not suit; empty: it did
};
std::string describe(const SizeByName &sizes);  // "N=1 S=8"

class InputSets {
 public:
  InputSets(const Graph &graph, InputSource source);

  // Set `number` on which `run` succeeds. Where it refuses made inputs (kUsage, kFault) the next attempt is tried; when
  // none suits, the first one's errors are said, with the sizes that were tried and what to do. Even and odd numbers
  // have different sizes, unless only those of the set before suit.
  using Run = std::function<Status(const InputSet &, Diagnostics &)>;
  Result<InputSet> fitting(const Graph &graph, int number, const Run &run, Diagnostics &diagnostics);
  // Other values of the same sizes; kUsage where files give the inputs.
  Result<InputSet> other_values(const Graph &graph, const InputSet &set, Diagnostics &diagnostics) const;
  bool made() const { return source_.folder.empty() && !all_named_; }

 private:
  Draw how(int number, int attempt) const;
  int sizes_of(int attempt) const;  // as SizeChooser counts them
  Result<InputSet> draw(const Graph &graph, int number, int attempt, Diagnostics &diagnostics) const;
  Result<std::vector<RuntimeValue>> values(const Graph &graph, const SizeByName &sizes, const Draw &draw,
                                           Diagnostics &diagnostics) const;

  InputSource source_;
  bool all_named_ = false;
  SizeChooser sizes_;
  int attempt_ = 0;                   // the one that suited last
  std::optional<SizeByName> suited_;  // the sizes of the set that suited last
};

}  // namespace optc
