#pragma once
// Helpers shared by the files of operators.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/build.h"
#include "ops/registry.h"

namespace optc {

// The elements of a constant as int64, in order; nullopt when there is no constant.
std::optional<std::vector<int64_t>> constant_ints(const Constant *constant);
// The same of known elements, when all are numbers.
std::optional<std::vector<int64_t>> static_ints(const std::vector<Dim> *elements);
// The int list of an attribute, or `count` times `fallback` when absent.
std::vector<int64_t> ints_or(const Node &node, std::string_view name, size_t count, int64_t fallback);
Dim product(const std::vector<Dim> &dims, size_t begin, size_t end);
bool is_static(const Shape &shape);

// A size of a shape-giving integer input: the static length of input i (rank 1), or a failure that says so.
Result<int64_t> input_length(InferContext &context, size_t i);
// Input i, called `name`, is a list (a vector, or a scalar for one) of `length` entries, one for each of `what`; a
// length that only the run knows is checked there.
Status has_length(InferContext &context, size_t i, std::string_view name, int64_t length, std::string_view what);

// Stores the known elements of output 0 (value propagation) as they are; for operators whose outputs usually need no
// kernel.
Status build_elements(BuildContext &context);
// out[f(i...)] = in[i...] for every index i of `in`.
Status copy_into(BuildContext &context, std::string_view note, BufferId in, BufferId out,
                 const std::function<std::vector<Dim>(const std::vector<Dim> &)> &f);
Status fill(BuildContext &context, BufferId out, double value);
// The output is input 0's bytes.
Status build_view(BuildContext &context);

Expr less(Expr a, Expr b);
Expr less_equal(Expr a, Expr b);
Expr equal(Expr a, Expr b);
Expr both(Expr a, Expr b);  // `a` may be invalid: then b
// An integer index that may be negative, as a Dim in [0, extent).
Dim wrapped_index(NestBuilder &nest, Expr value, Dim extent);
// 0 <= index < extent as a bool, leaving out what is proved; invalid when all is.
Expr in_range(NestBuilder &nest, Dim index, Dim extent);
Dim clamp(Dim value, Dim low, Dim high);
// The symbols of output `output`'s dims, as a library call that finds them all defines them (null where a dim is no
// symbol of its own).
std::vector<const DimSymbol *> output_symbols(BuildContext &context, size_t output);
// Those among them that this output gave its own name: its dims that no operand has.
std::vector<const DimSymbol *> own_symbols(BuildContext &context, size_t output);
// Of a vector of `length` entries those that are known, also where others are not (a Concat of parts).
std::vector<std::optional<Dim>> known_entries(const Graph &graph, ValueId list, int64_t length);
bool is_run_time_size(Dim dim);    // a kData symbol
bool is_number(ElementType type);  // one that operators compute with; not text, not complex
// Whether a run-time size was made for this axis of the value of this name: its own name says it (size_name). Types
// outlive what they were inferred from - the bodies of loops are inferred until their types hold, rules change what a
// node reads - so a run-time size in a value's type may be another value's, which stands for another number.
bool is_size_of(const DimSymbol &size, std::string_view value, size_t axis);
std::string size_name(std::string_view value, size_t axis);

// A dim in which the items of a sequence differ: a size that no one defines (what is taken out of the sequence gets
// sizes of its own).
inline constexpr std::string_view kItemSizeName = "item.size";
Dim item_size(DimTable &dims);
// The type of items of either type in one sequence. Where dims differ, the merged one is an item_size; where ranks
// differ, the rank is not known.
Type merge_items(DimTable &dims, const Type &a, const Type &b);
// Whether a condition (bool, one element) is known before the model runs; and whether a region is a branch, or lies in
// one, that such a condition never takes.
std::optional<bool> known_condition(const Graph &graph, ValueId condition);
bool is_dead(const Graph &graph, RegionId region);
// Puts optc.Fail in the place of the nodes of a branch of an If; its outputs keep their types.
void fail_branch(Graph &graph, RegionId branch, std::string message);
// Whether nothing is known of a sequence's items because it starts empty: made by SequenceEmpty, or carried by a Loop
// from there on.
bool is_empty_sequence(const Graph &graph, ValueId value);

// The spatial attributes of convolutions and pools, with auto_pad resolved. Sizes are per spatial dimension.
struct Window {
  std::vector<Dim> kernel;
  std::vector<int64_t> strides, dilations;
  std::vector<Dim> pads_begin, pads_end, out;
  bool padded = false;   // some pad is not 0
  bool clipped = false;  // some window reaches beyond the padded input
  // The input coordinate that window position `k` of output coordinate `o` reads in spatial dimension i; may lie
  // outside.
  Dim at(size_t i, Dim o, Dim k) const { return o * strides[i] + k * dilations[i] - pads_begin[i]; }
};
// How many windows there are along a dimension. Pools may clip the last one: kCeil is ONNX's ceil_mode, where a window
// that starts in the end padding is dropped; kFloor counts whole windows, yet of a padded input shorter than one ONNX's
// inference, which divides towards zero, makes one window by less than a stride and none by less than two.
enum class WindowCount : uint8_t { kWhole, kFloor, kCeil };
// in: spatial dims of the input. An input that is too short is an error where its size is known.
Result<Window> resolve_window(const Node &node, const std::vector<Dim> &in, std::vector<Dim> kernel, WindowCount count,
                              std::string &error);

}  // namespace optc
