#pragma once
// What the operators of ai.onnx.ml share: lists among the attributes, the labels of classifiers, transforms of scores,
// lookup tables.

#include <string>
#include <string_view>
#include <vector>

#include "ops/build.h"
#include "ops/registry.h"

namespace optc {

// A list attribute; empty (null) when it is absent.
std::vector<float> floats_of(const Node &node, std::string_view name);
std::vector<int64_t> ints_of(const Node &node, std::string_view name);
const std::vector<std::string> *strings_of(const Node &node, std::string_view name);

// post_transform as the library functions number it (runtime/cpu/lib_ml.h); -1 for a name that is not known.
int64_t post_transform_of(const Node &node);

// classlabels_strings, or `integers` (the attribute's name differs between operators).
struct ClassLabels {
  std::vector<std::string> strings;
  std::vector<int64_t> integers;
  ElementType element() const { return strings.empty() ? ElementType::kInt64 : ElementType::kString; }
  int64_t count() const { return static_cast<int64_t>(strings.empty() ? integers.size() : strings.size()); }
};
ClassLabels class_labels(const Node &node, std::string_view integers);
// Output 0 of a classifier: the labels of the class numbers `winner` (i64[rows], each in [0, labels.count())).
Status build_labels(BuildContext &c, BufferId winner, Dim rows, const ClassLabels &labels);

// X of a model: [N, C], or [C], which is one row.
struct Features {
  Dim rows, columns;
};
Result<Features> infer_features(InferContext &c);
Features features(const BuildContext &c);

// Two lists of one length as a table: keys ascending (numbers, NaN last, or strings by their bytes) and each once; of
// keys that occur more than once the last counts.
struct LookupTable {
  Constant keys, values;
};
LookupTable lookup_table(const Constant &keys, const Constant &values);

}  // namespace optc
