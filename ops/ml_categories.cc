// ai.onnx.ml, on categories and maps: LabelEncoder, CategoryMapper, OneHotEncoder, DictVectorizer, CastMap, ZipMap.
// Tables of keys are sorted here and searched by the library functions (runtime/cpu/lib_ml.h, lib_map.h).

#include <string>

#include "ops/build.h"
#include "ops/ml_util.h"
#include "ops/registry.h"
#include "ops/util.h"

namespace optc {
namespace {

Constant string_list(const std::vector<std::string> &values) {
  return Constant::strings({static_cast<int64_t>(values.size())}, values);
}

// --- LabelEncoder, CategoryMapper

// keys_* or values_*: lists of strings, ints or floats, or a tensor. Old versions had one list `classes_strings` both
// ways.
std::optional<Constant> label_list(const Node &node, const std::string &prefix) {
  if (const Attribute *a = node.attribute(prefix + "tensor"))
    if (const Constant *constant = std::get_if<Constant>(a)) return constant->reshaped({constant->count()});
  if (const auto *list = strings_of(node, prefix + "strings")) return string_list(*list);
  if (const auto *list = node.ints(prefix + "int64s")) return Constant::int64s(*list);
  if (const auto *list = node.floats(prefix + "floats")) return Constant::floats(*list);
  return std::nullopt;
}
const Constant *default_tensor(const Node &node) {
  const Attribute *a = node.attribute("default_tensor");
  return a ? std::get_if<Constant>(a) : nullptr;
}
Status infer_label_encoder(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  auto keys = label_list(c.node(), "keys_"), values = label_list(c.node(), "values_");
  if (!keys || !values) return c.invalid("keys or values are missing");
  if (keys->count() != values->count()) return c.invalid("keys and values differ in length");
  if (keys->type() != c.element(0)) return c.invalid("the keys' type is not the input's");
  if (const Constant *fallback = default_tensor(c.node());
      fallback && (fallback->count() != 1 || fallback->type() != values->type()))
    return c.invalid("default_tensor must be one element of the values' type");
  c.set_tensor(0, values->type(), c.shape(0));
  return {};
}

// values[j] where X is keys[j], else the default.
void look_up(BuildContext &c, const Constant &keys, const Constant &values, const Constant &fallback) {
  const LookupTable table = lookup_table(keys, values);
  c.library("label_encoder",
            {c.input(0), c.constant_buffer("keys", table.keys), c.constant_buffer("values", table.values),
             c.constant_buffer("default", fallback)},
            {c.output(0)});
}
Constant one_string(std::string_view text) { return string_list({std::string(text)}); }

Status build_label_encoder(BuildContext &c) {
  const Node &node = c.node();
  auto keys = label_list(node, "keys_"), values = label_list(node, "values_");
  Constant fallback;
  if (const Constant *given = default_tensor(node)) {
    fallback = given->reshaped({1});
  } else if (values->type() == ElementType::kString) {
    fallback = one_string(node.string_or("default_string", "_Unused"));
  } else if (is_integer(values->type())) {
    fallback = Constant::scalar(values->type(), static_cast<double>(node.int_or("default_int64", -1))).reshaped({1});
  } else {
    fallback = Constant::scalar(values->type(), node.float_or("default_float", -0.0f)).reshaped({1});
  }
  look_up(c, *keys, *values, fallback);
  return {};
}

Status infer_category_mapper(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  const auto *strings = strings_of(c.node(), "cats_strings");
  if (!strings || strings->size() != ints_of(c.node(), "cats_int64s").size())
    return c.invalid("cats_strings and cats_int64s must have as many entries");
  c.set_tensor(0, c.element(0) == ElementType::kString ? ElementType::kInt64 : ElementType::kString, c.shape(0));
  return {};
}
Status build_category_mapper(BuildContext &c) {
  const Node &node = c.node();
  const Constant strings = string_list(*strings_of(node, "cats_strings")),
                 integers = Constant::int64s(ints_of(node, "cats_int64s"));
  if (c.input_type(0).element == ElementType::kString) {
    look_up(c, strings, integers, Constant::int64s({node.int_or("default_int64", -1)}));
  } else {
    look_up(c, integers, strings, one_string(node.string_or("default_string", "_Unused")));
  }
  return {};
}

// --- OneHotEncoder

int64_t category_count(const Node &node, bool strings) {
  if (!strings) return static_cast<int64_t>(ints_of(node, "cats_int64s").size());
  const auto *list = strings_of(node, "cats_strings");
  return list ? static_cast<int64_t>(list->size()) : 0;
}
Status infer_one_hot(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  const int64_t n = category_count(c.node(), c.element(0) == ElementType::kString);
  if (n == 0)
    return c.invalid(c.element(0) == ElementType::kString ? "strings need categories in cats_strings"
                                                          : "numbers need categories in cats_int64s");
  Shape out = c.shape(0);
  out.push_back(n);
  c.set_tensor(0, ElementType::kFloat32, std::move(out));
  return {};
}
Status build_one_hot(BuildContext &c) {
  const Node &node = c.node();
  const bool strings = c.input_type(0).element == ElementType::kString;
  std::vector<int64_t> columns(static_cast<size_t>(category_count(node, strings)));
  for (size_t i = 0; i < columns.size(); ++i) columns[i] = static_cast<int64_t>(i);
  const Constant keys =
      strings ? string_list(*strings_of(node, "cats_strings")) : Constant::int64s(ints_of(node, "cats_int64s"));
  const LookupTable table = lookup_table(keys, Constant::int64s(columns));
  c.library("one_hot", {c.input(0), c.constant_buffer("keys", table.keys), c.constant_buffer("columns", table.values)},
            {c.output(0)}, {{"zeros", node.int_or("zeros", 1)}});
  return {};
}

// --- Maps

bool is_map_of_tensors(const Type &type) {
  return type.kind == Type::Kind::kMap && type.inner && type.inner->is_tensor();
}

Status infer_dict_vectorizer(InferContext &c) {
  const Type &type = c.input(0);
  if (!is_map_of_tensors(type)) return c.invalid("the input must be a map");
  const auto *strings = strings_of(c.node(), "string_vocabulary");
  const size_t n = type.element == ElementType::kString ? (strings ? strings->size() : 0)
                                                        : ints_of(c.node(), "int64_vocabulary").size();
  if (n == 0)
    return c.invalid(type.element == ElementType::kString ? "keys that are strings need a string_vocabulary"
                                                          : "keys that are integers need an int64_vocabulary");
  c.set_tensor(0, type.inner->element, {Dim(1), Dim(static_cast<int64_t>(n))});
  return {};
}
Status build_dict_vectorizer(BuildContext &c) {
  const Node &node = c.node();
  const Constant vocabulary = c.input_type(0).element == ElementType::kString
                                  ? string_list(*strings_of(node, "string_vocabulary"))
                                  : Constant::int64s(ints_of(node, "int64_vocabulary"));
  c.library("dict_vectorizer", {c.input(0), c.constant_buffer("vocabulary", vocabulary)}, {c.output(0)});
  return {};
}

Status infer_cast_map(InferContext &c) {
  const Type &type = c.input(0);
  if (!is_map_of_tensors(type) || type.element != ElementType::kInt64)
    return c.invalid("the input must be a map from integers");
  const std::string_view to = c.node().string_or("cast_to", "TO_FLOAT"), form = c.node().string_or("map_form", "DENSE");
  const ElementType element = to == "TO_FLOAT"    ? ElementType::kFloat32
                              : to == "TO_INT64"  ? ElementType::kInt64
                              : to == "TO_STRING" ? ElementType::kString
                                                  : ElementType::kUndefined;
  if (element == ElementType::kUndefined) return c.invalid("cast_to '" + std::string(to) + "' is not known");
  if (form != "DENSE" && form != "SPARSE") return c.invalid("map_form '" + std::string(form) + "' is not known");
  const int64_t width = c.node().int_or("max_map", 1);
  if (form == "SPARSE" && (width < 1 || width >= kDimOverflow)) return c.invalid("max_map must be positive");
  c.set_tensor(0, element, {Dim(1), form == "SPARSE" ? Dim(width) : c.run_time_size(0, 1)});
  return {};
}
Status build_cast_map(BuildContext &c) {
  const bool sparse = c.node().string_or("map_form", "DENSE") == "SPARSE";
  c.library("cast_map", {c.input(0)}, {c.output(0)}, {{"width", sparse ? c.node().int_or("max_map", 1) : int64_t{0}}},
            {sparse ? nullptr : single_symbol(c.output_shape(0)[1])});
  return {};
}

Status infer_zip_map(InferContext &c) {
  OPTC_ASSIGN(const Features x, infer_features(c));
  const ClassLabels labels = class_labels(c.node(), "classlabels_int64s");
  if (labels.count() == 0) return c.invalid("classlabels_strings or classlabels_int64s is needed");
  OPTC_TRY(c.same(x.columns, labels.count(), "the number of scores and of class labels"));
  c.set(0, Type::sequence(Type::map(labels.element(), Type::tensor(c.element(0), Shape{}))));
  return {};
}
Status build_zip_map(BuildContext &c) {
  const ClassLabels labels = class_labels(c.node(), "classlabels_int64s");
  const Constant keys = labels.strings.empty() ? Constant::int64s(labels.integers) : string_list(labels.strings);
  std::vector<int64_t> columns(static_cast<size_t>(labels.count()));
  for (size_t i = 0; i < columns.size(); ++i) columns[i] = static_cast<int64_t>(i);
  const LookupTable table = lookup_table(keys, Constant::int64s(columns));
  c.library("zip_map", {c.input(0), c.constant_buffer("keys", table.keys), c.constant_buffer("columns", table.values)},
            {c.output(0)});
  return {};
}

const OpDef kOps[] = {
    {"ai.onnx.ml.LabelEncoder", OpForm::kLibrary, 4, infer_label_encoder, build_label_encoder},
    {"ai.onnx.ml.CategoryMapper", OpForm::kLibrary, 1, infer_category_mapper, build_category_mapper},
    {"ai.onnx.ml.OneHotEncoder", OpForm::kLibrary, 1, infer_one_hot, build_one_hot},
    {"ai.onnx.ml.DictVectorizer", OpForm::kLibrary, 1, infer_dict_vectorizer, build_dict_vectorizer},
    {"ai.onnx.ml.CastMap", OpForm::kLibrary, 1, infer_cast_map, build_cast_map},
    {"ai.onnx.ml.ZipMap", OpForm::kLibrary, 1, infer_zip_map, build_zip_map},
};

}  // namespace

std::span<const OpDef> ml_categories_ops() { return kOps; }

}  // namespace optc
