#pragma once
// What the elements of a model's input may be, read off their uses: ids below the rows of the tables that they index,
// lengths up to a dimension, numbers and words that the model compares them with.

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph/graph.h"

namespace optc {

struct ElementRange {
  struct Limit {
    Dim low, below;  // low <= element < below; `below` may use the model's symbols
  };
  std::vector<Limit> limits;       // all hold
  std::vector<int64_t> compared;   // constants that elements are tested for equality with
  std::vector<std::string> words;  // of string inputs: keys and vocabularies
  bool numeric_text = false;       // strings that are converted to numbers
};

// Follows `input` through operators that keep its elements (Cast, Reshape, Slice, Concat, sums with a constant) and
// into and out of bodies of control flow.
ElementRange element_range(const Graph &graph, ValueId input);

}  // namespace optc
