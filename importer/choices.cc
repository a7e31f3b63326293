// Attributes of ai.onnx that name one of a few ways. ONNX's schemas know them as strings or numbers: a misspelled one
// would be taken for the default in silence. The names are those of all versions of an operator together.
#include <algorithm>
#include <span>
#include <string_view>

#include "importer/internal_converter.h"

namespace optc {
namespace {

using Names = std::span<const std::string_view>;

constexpr std::string_view kAutoPad[] = {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"};
constexpr std::string_view kRounding[] = {"up", "down", "nearest"};
constexpr std::string_view kShift[] = {"LEFT", "RIGHT"};
constexpr std::string_view kBlocks[] = {"DCR", "CRD"};
constexpr std::string_view kGelu[] = {"none", "tanh"};
constexpr std::string_view kGrid[] = {"linear", "bilinear", "nearest", "cubic", "bicubic"};
constexpr std::string_view kOutside[] = {"zeros", "border", "reflection"};
constexpr std::string_view kCoordinates[] = {"half_pixel",        "half_pixel_symmetric", "pytorch_half_pixel",
                                             "align_corners",     "asymmetric",           "tf_half_pixel_for_nn",
                                             "tf_crop_and_resize"};
constexpr std::string_view kNearest[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};
constexpr std::string_view kPolicies[] = {"stretch", "not_larger", "not_smaller"};
constexpr std::string_view kAlignment[] = {"half_pixel", "output_half_pixel"};
constexpr std::string_view kPooling[] = {"avg", "max"};
constexpr std::string_view kReductions[] = {"none", "add", "mul", "max", "min"};
constexpr std::string_view kWrites[] = {"linear", "circular"};
constexpr std::string_view kWeighting[] = {"TF", "IDF", "TFIDF"};

struct Choice {
  std::string_view op, attribute;  // op empty: every operator that has the attribute
  Names names;
};
constexpr Choice kChoices[] = {
    {"", "auto_pad", kAutoPad},
    {"", "reduction", kReductions},  // of scatters; the losses have their own
    {"", "round_mode", kRounding},
    {"BitShift", "direction", kShift},
    {"DepthToSpace", "mode", kBlocks},
    {"SpaceToDepth", "mode", kBlocks},
    {"Gelu", "approximate", kGelu},
    {"GridSample", "mode", kGrid},
    {"GridSample", "padding_mode", kOutside},
    {"Resize", "coordinate_transformation_mode", kCoordinates},
    {"Resize", "nearest_mode", kNearest},
    {"Resize", "keep_aspect_ratio_policy", kPolicies},
    {"RoiAlign", "coordinate_transformation_mode", kAlignment},
    {"RoiAlign", "mode", kPooling},
    {"TensorScatter", "mode", kWrites},
    {"TfIdfVectorizer", "mode", kWeighting},
};

constexpr int64_t kAny = INT64_MAX;

// Numbers that say a way, or that nothing below or above has a meaning for.
struct NumberRange {
  std::string_view op, attribute;  // op empty: every operator that has the attribute
  int64_t first, last;
};
constexpr NumberRange kNumberRanges[] = {
    {"", "layout", 0, 1},
    {"", "storage_order", 0, 1},
    {"", "block_size", 0, kAny},  // 0: no blocks
    {"", "hidden_size", 1, kAny},
    {"Attention", "qk_matmul_output_mode", 0, 3},
    {"Attention", "left_window_size", -1, kAny},
    {"Attention", "right_window_size", -1, kAny},
    {"", "q_num_heads", 0, kAny},
    {"", "kv_num_heads", 0, kAny},
    {"RotaryEmbedding", "num_heads", 0, kAny},
    {"LpNormalization", "p", 1, 2},
    {"", "p", 1, kAny},  // of the pools
    {"RoiAlign", "sampling_ratio", 0, kAny},
    {"TfIdfVectorizer", "max_skip_count", 0, kAny},
    {"TfIdfVectorizer", "min_gram_length", 1, kAny},
    {"TfIdfVectorizer", "max_gram_length", 1, kAny},
};

// Attributes that name a type to compute in.
constexpr std::string_view kComputeTypes[] = {"stash_type", "softmax_precision", "precision"};
// Those that name the type of a result. An operator may ask for more.
constexpr std::string_view kElementTypes[] = {"to", "dtype", "output_datatype", "output_dtype"};

bool is_compute_type(int64_t type) {
  using T = onnx::TensorProto;
  return type == T::FLOAT || type == T::FLOAT16 || type == T::DOUBLE || type == T::BFLOAT16;
}

// Attributes that say yes or no, as 1 or 0. What another number says ONNX leaves open, and implementations take it
// differently.
constexpr std::string_view kFlags[] = {
    "align_corners",
    "allowzero",
    "antialias",
    "broadcast",
    "ceil_mode",
    "center_point_box",
    "count_include_pad",
    "detect_negative",
    "detect_positive",
    "exclude_outside",
    "exclusive",
    "fmod",
    "input_forget",
    "interleaved",
    "inverse",
    "is_case_sensitive",
    "is_causal",
    "is_test",
    "keepdims",
    "largest",
    "linear_before_reset",
    "new_axis",
    "noop_with_empty_axes",
    "one_class",
    "onesided",
    "output_sequence",
    "periodic",
    "reverse",
    "saturate",
    "select_last_index",
    "sorted",
    "spatial",
    "training_mode",
    "transA",
    "transB",
    "upper",
    "zeros",
};

bool has_own_reductions(std::string_view op) {
  return op == "NegativeLogLikelihoodLoss" || op == "SoftmaxCrossEntropyLoss";
}

// Empty where a number says what it may say.
std::string unknown_number(const onnx::NodeProto &node, const onnx::AttributeProto &attribute) {
  const auto listed = [&](const auto &names) {
    return std::find(std::begin(names), std::end(names), attribute.name()) != std::end(names);
  };
  const int64_t i = attribute.i();
  const std::string given = "attribute '" + attribute.name() + "' is " + std::to_string(i);
  if ((i < 0 || i > 1) && listed(kFlags)) return given + "; it says yes by 1 and no by 0";
  if (listed(kComputeTypes) && !is_compute_type(i) && !(i == 0 && attribute.name() == "precision"))
    return given + ", which is none of the types 1 (float), 10 (float16), 11 (double) and 16 (bfloat16)";
  if (listed(kElementTypes) && !(i == 0 && attribute.name() == "output_dtype") &&
      (i <= 0 || i > INT32_MAX || !onnx::TensorProto::DataType_IsValid(static_cast<int>(i))))
    return given + ", which is no element type";
  for (const NumberRange &range : kNumberRanges) {
    if (range.attribute != attribute.name() || (!range.op.empty() && range.op != node.op_type())) continue;
    if (i >= range.first && i <= range.last) continue;
    if (range.last == kAny) return given + "; the least that it can be is " + std::to_string(range.first);
    return given + ", which is none of " + std::to_string(range.first) + " to " + std::to_string(range.last);
  }
  return {};
}

}  // namespace

std::string unknown_choice(const onnx::NodeProto &node) {
  for (const onnx::AttributeProto &attribute : node.attribute()) {
    if (attribute.type() == onnx::AttributeProto::INT)
      if (std::string why = unknown_number(node, attribute); !why.empty()) return why;
    if (attribute.type() != onnx::AttributeProto::STRING || attribute.s().empty()) continue;  // empty: as if absent
    for (const Choice &choice : kChoices) {
      if (choice.attribute != attribute.name() || (!choice.op.empty() && choice.op != node.op_type())) continue;
      if (choice.attribute == "reduction" && has_own_reductions(node.op_type())) continue;
      if (std::find(choice.names.begin(), choice.names.end(), attribute.s()) != choice.names.end()) continue;
      std::string known;
      for (std::string_view name : choice.names) known += (known.empty() ? "" : ", ") + std::string(name);
      return "attribute '" + attribute.name() + "' is '" + attribute.s().substr(0, 40) + "', which is none of " + known;
    }
  }
  return {};
}

}  // namespace optc
