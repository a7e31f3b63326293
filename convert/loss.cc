#include <google/protobuf/util/field_comparator.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "convert/internal_model.h"
#include "importer/internal_tensor.h"
#include "support/file.h"

namespace optc {
namespace {

namespace pb = google::protobuf;
using pb::util::MessageDifferencer;

enum class Nans : uint8_t { kByBits, kAlike };

template <typename Bits>
void make_nans_alike(std::vector<uint8_t> &bytes, Bits exponent) {
  for (size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
    Bits bits = 0;
    std::memcpy(&bits, &bytes[at], sizeof bits);
    const Bits magnitude = bits & static_cast<Bits>(~(Bits{1} << (8 * sizeof(Bits) - 1)));
    if (magnitude > exponent) std::memset(&bytes[at], 0xFF, sizeof bits);
  }
}

// The same tensor has the same bytes, whichever of its fields they stand in; long data is compared by its hash.
void normalize(onnx::ModelProto &model, Nans nans) {
  (void)for_each_tensor(model, [nans](onnx::TensorProto &tensor, const TensorPlace &place) -> Status {
    if (tensor.data_location() == onnx::TensorProto::EXTERNAL || tensor.string_data_size() > 0) return {};
    if (element_type_of(tensor.data_type()) == ElementType::kUndefined) return {};
    Diagnostics ignored;
    const Result<Constant> value = convert_tensor(tensor, TensorSource{}, place.what, ignored);
    if (!value.ok() || value->type() == ElementType::kString) return {};
    tensor.clear_float_data();
    tensor.clear_int32_data();
    tensor.clear_int64_data();
    tensor.clear_uint64_data();
    tensor.clear_double_data();
    tensor.clear_data_location();
    std::vector<uint8_t> bytes(value->data(), value->data() + value->size());
    if (nans == Nans::kAlike && value->type() == ElementType::kFloat32) make_nans_alike<uint32_t>(bytes, 0x7F800000u);
    if (nans == Nans::kAlike && value->type() == ElementType::kFloat64)
      make_nans_alike<uint64_t>(bytes, 0x7FF0000000000000u);
    if (bytes.size() <= 64)
      tensor.set_raw_data(bytes.data(), bytes.size());
    else
      tensor.set_raw_data(xxh3_128(bytes.data(), bytes.size()));
    return {};
  }).ok();
}

// What a model computes without: everything else that differs is content.
bool is_note(const std::string &message, const std::string &field) {
  static const std::set<std::string> kNotes = {"doc_string",    "metadata_props",        "quantization_annotation",
                                               "denotation",    "device_configurations", "configuration",
                                               "training_info", "producer_name",         "producer_version"};
  return kNotes.count(field) > 0 || (message == "TensorProto" && field == "name") ||
         (message == "FunctionProto" && field == "value_info") ||
         (message == "TensorProto" && field == "raw_data") ||  // see compare_models
         // All forms keep numbers: other bits are those of a NaN.
         (message == "AttributeProto" && (field == "f" || field == "floats"));
}

constexpr const char *kNanBits = "bits of NaN";

std::string owner_text(const std::string &message, size_t count) {
  static const std::map<std::string, std::string> kWords = {
      {"NodeProto", "node"},           {"GraphProto", "graph"},     {"ValueInfoProto", "value"},
      {"TensorProto", "tensor"},       {"TypeProto", "type"},       {"AttributeProto", "attribute"},
      {"FunctionProto", "function"},   {"Dimension", "dimension"},  {"SparseTensorProto", "sparse tensor"},
      {"OperatorSetIdProto", "opset"}, {"Tensor", "tensor's type"},
  };
  if (message == "ModelProto") return "the model";
  const auto it = kWords.find(message);
  const std::string word = it == kWords.end() ? message : it->second;
  return std::to_string(count) + " " + word + (count == 1 ? "" : "s");
}

// Floats by their bits: -0.0 is not 0.0.
class ByBits : public pb::util::SimpleFieldComparator {
 public:
  ComparisonResult Compare(const pb::Message &a, const pb::Message &b, const pb::FieldDescriptor *field, int i, int j,
                           const pb::util::FieldContext *context) override {
    if (field->cpp_type() != pb::FieldDescriptor::CPPTYPE_FLOAT) return SimpleCompare(a, b, field, i, j, context);
    const auto bits = [&](const pb::Message &m, int at) {
      const float value = field->is_repeated() ? m.GetReflection()->GetRepeatedFloat(m, field, at)
                                               : m.GetReflection()->GetFloat(m, field);
      uint32_t out = 0;
      std::memcpy(&out, &value, sizeof out);
      return out;
    };
    return bits(a, i) == bits(b, j) ? SAME : DIFFERENT;
  }
};

// Notes each field that differs, with the message that it is a field of.
class Collector : public MessageDifferencer::Reporter {
 public:
  using Path = std::vector<MessageDifferencer::SpecificField>;
  void ReportAdded(const pb::Message &, const pb::Message &, const Path &path) override { note(path); }
  void ReportDeleted(const pb::Message &, const pb::Message &, const Path &path) override { note(path); }
  void ReportModified(const pb::Message &, const pb::Message &, const Path &path) override {
    // A message that holds a difference is reported too, behind what differs in it.
    if (!path.empty() && path.back().field && path.back().field->message_type()) return;
    note(path);
  }

  Loss loss() const {
    Loss loss;
    for (const auto &[key, owners] : found_) {
      const auto &[message, field] = key;
      std::string text = (field == "raw_data" ? kNanBits : field) + " of " + owner_text(message, owners.size());
      (is_note(message, field) ? loss.notes : loss.content).push_back(std::move(text));
    }
    return loss;
  }

 private:
  void note(const Path &path) {
    if (path.empty()) return;
    // An entry of a list of pairs says less than the list that it is of.
    size_t last = path.size() - 1;
    for (size_t i = 0; i < path.size(); ++i)
      if (path[i].field && is_note(path[i].field->containing_type()->name(), path[i].field->name())) {
        last = i;
        break;
      }
    std::string owner;
    for (size_t i = 0; i < last; ++i)
      owner += (path[i].field ? path[i].field->name() : "?") + "[" + std::to_string(path[i].index) + "].";
    const pb::FieldDescriptor *field = path[last].field;
    if (field)
      found_[{field->containing_type()->name(), field->name()}].insert(owner);
    else
      found_[{"ModelProto", "unknown fields"}].insert(owner);
  }
  std::map<std::pair<std::string, std::string>, std::set<std::string>> found_;
};

Loss compare(const onnx::ModelProto &before, const onnx::ModelProto &after, Nans nans) {
  onnx::ModelProto a = before, b = after;
  normalize(a, nans);
  normalize(b, nans);
  ByBits fields;
  Collector collector;
  MessageDifferencer differencer;
  differencer.set_field_comparator(&fields);
  differencer.set_message_field_comparison(MessageDifferencer::EQUIVALENT);  // absent and empty are the same
  differencer.ReportDifferencesTo(&collector);
  differencer.Compare(a, b);
  return collector.loss();
}

}  // namespace

Loss compare_models(const onnx::ModelProto &before, const onnx::ModelProto &after) {
  Loss loss = compare(before, after, Nans::kByBits);
  // Other bits of a NaN are a note; anything else in a tensor is content.
  const auto of_nans = std::find_if(loss.notes.begin(), loss.notes.end(),
                                    [](const std::string &text) { return text.rfind(kNanBits, 0) == 0; });
  if (of_nans == loss.notes.end()) return loss;
  for (const std::string &text : compare(before, after, Nans::kAlike).notes)
    if (text.rfind(kNanBits, 0) == 0) {
      loss.notes.erase(of_nans);
      loss.content.push_back("elements" + text.substr(std::strlen(kNanBits)));
      break;
    }
  return loss;
}

}  // namespace optc
