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

struct NumberedChoice {
  std::string_view op, attribute;  // op empty: every operator that has the attribute
  int64_t last;                    // the ways are numbered from 0
};
constexpr NumberedChoice kNumberedChoices[] = {
    {"Attention", "qk_matmul_output_mode", 3},
    {"", "layout", 1},
    {"", "storage_order", 1},
};

bool has_own_reductions(std::string_view op) {
  return op == "NegativeLogLikelihoodLoss" || op == "SoftmaxCrossEntropyLoss";
}

}  // namespace

std::string unknown_choice(const onnx::NodeProto &node) {
  for (const onnx::AttributeProto &attribute : node.attribute()) {
    for (const NumberedChoice &choice : kNumberedChoices) {
      if (attribute.type() != onnx::AttributeProto::INT || choice.attribute != attribute.name()) continue;
      if ((!choice.op.empty() && choice.op != node.op_type()) || (attribute.i() >= 0 && attribute.i() <= choice.last))
        continue;
      return "attribute '" + attribute.name() + "' is " + std::to_string(attribute.i()) + ", which is none of 0 to " +
             std::to_string(choice.last);
    }
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
