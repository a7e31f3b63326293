// ai.onnx.ml: Scaler, Normalizer, Binarizer, Imputer, ArrayFeatureExtractor, FeatureVectorizer, LabelEncoder, linear
// models.

#include <cmath>

#include "ops/build.h"
#include "ops/registry.h"
#include "ops/util.h"

namespace optc {
namespace {

using Dims = std::vector<Dim>;

std::vector<float> floats_or_empty(const Node &node, std::string_view name) {
  const auto *values = node.floats(name);
  return values ? *values : std::vector<float>();
}

Status infer_float_like(InferContext &c) {  // f32 of the input's shape
  OPTC_TRY(c.require_shape(0));
  c.set_tensor(0, ElementType::kFloat32, c.shape(0));
  return {};
}

// A list of one entry, or one a column: the value for the last axis' index.
Expr per_column(BuildContext &c, NestBuilder &nest, const char *name, const std::vector<float> &values, Dim column) {
  if (values.size() == 1) return nest.constant(ElementType::kFloat32, values[0]);
  return nest.load(c.constant_buffer(name, Constant::floats(values)), {column});
}

Status infer_scaler(InferContext &c) {
  OPTC_TRY(infer_float_like(c));
  for (const char *name : {"scale", "offset"}) {
    const size_t n = floats_or_empty(c.node(), name).size();
    if (n > 1 &&
        (c.rank(0) == 0 || (c.shape(0).back().is_constant() && c.shape(0).back().value() != static_cast<int64_t>(n))))
      return c.invalid(std::string(name) + " must have one entry, or one a column");
  }
  return {};
}
Status build_scaler(BuildContext &c) {
  const std::vector<float> scale = floats_or_empty(c.node(), "scale"), offset = floats_or_empty(c.node(), "offset");
  NestBuilder nest(c, "scaler");
  Dims i = nest.outer(c.output_shape(0));
  const Dim column = i.empty() ? Dim(0) : i.back();
  Expr value = cast(nest.load(c.input(0), i), ElementType::kFloat32);
  if (!offset.empty()) value = value - per_column(c, nest, "offset", offset, column);
  if (!scale.empty()) value = value * per_column(c, nest, "scale", scale, column);
  nest.store(c.output(0), i, value);
  nest.finish();
  return {};
}

Status build_normalizer(BuildContext &c) {
  const std::string_view norm = c.node().string_or("norm", "MAX");
  const Shape in = c.shape(0);
  NestBuilder nest(c, "normalizer");
  Dims row = nest.outer(Shape(in.begin(), in.end() - 1));
  Dims at = row;
  at.push_back(nest.stage_loop("d", in.back()));
  Expr value = cast(nest.load(c.input(0), at), ElementType::kFloat32);
  Expr total = norm == "MAX"  ? nest.reduce(Combine::kMax, apply(ScalarOp::kAbs, value))
               : norm == "L1" ? nest.reduce(Combine::kSum, apply(ScalarOp::kAbs, value))
                              : apply(ScalarOp::kSqrt, nest.reduce(Combine::kSum, value * value));
  Dims to = row;
  to.push_back(nest.stage_loop("e", in.back()));
  Expr again = cast(nest.load(c.input(0), to), ElementType::kFloat32);
  nest.store(c.output(0), to, select(equal(total, total.constant(0)), again, again / total));
  nest.finish();
  return {};
}
Status infer_normalizer(InferContext &c) {
  OPTC_TRY(infer_float_like(c));
  if (c.rank(0) < 1) return c.invalid("the input must have rank 1 or more");
  return {};
}

Status infer_same(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  c.set_tensor(0, c.element(0), c.shape(0));
  return {};
}
Status build_binarizer(BuildContext &c) {
  const double threshold = c.node().float_or("threshold", 0);
  return c.pointwise({0}, 0, [&](NestBuilder &, std::vector<Expr> x) {
    return select(less(x[0].constant(threshold), x[0]), x[0].constant(1), x[0].constant(0));
  });
}

Status build_imputer(BuildContext &c) {
  const Node &node = c.node();
  std::vector<double> values;
  for (float v : floats_or_empty(node, "imputed_value_floats")) values.push_back(v);
  if (const auto *ints = node.ints("imputed_value_int64s"); values.empty() && ints)
    for (int64_t v : *ints) values.push_back(static_cast<double>(v));
  if (values.empty()) return c.invalid("the imputed values are missing");
  const ElementType type = c.input_type(0).element;
  NestBuilder nest(c, "imputer");
  Dims i = nest.outer(c.output_shape(0));
  Expr x = nest.load(c.input(0), i);
  Expr missing;
  if (is_float(type)) {
    const float replaced = node.float_or("replaced_value_float", 0);
    missing = std::isnan(replaced) ? apply(ScalarOp::kIsNan, x) : equal(x, x.constant(replaced));
  } else {
    missing = equal(x, x.constant(static_cast<double>(node.int_or("replaced_value_int64", 0))));
  }
  Expr value;
  if (values.size() == 1) {
    value = x.constant(values[0]);
  } else if (is_float(type)) {
    value =
        cast(nest.load(c.constant_buffer("values", Constant::floats(std::vector<float>(values.begin(), values.end()))),
                       {i.back()}),
             x.type());
  } else {
    value = cast(
        nest.load(c.constant_buffer("values", Constant::int64s(std::vector<int64_t>(values.begin(), values.end()))),
                  {i.back()}),
        x.type());
  }
  nest.store(c.output(0), i, select(missing, value, x));
  nest.finish();
  return {};
}

Status infer_extractor(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  OPTC_TRY(c.require_shape(1));
  if (c.rank(0) < 1) return c.invalid("the input must have rank 1 or more");
  Shape out = c.shape(0);
  if (out.size() == 1) out.insert(out.begin(), Dim(1));
  out.back() = element_count(c.shape(1));
  c.set_tensor(0, c.element(0), std::move(out));
  return {};
}
Status build_extractor(BuildContext &c) {
  NestBuilder nest(c, "columns");
  Dims i = nest.outer(c.output_shape(0)), from = i;
  const Shape picks = c.shape(1);
  Expr column = nest.load(c.input(1), unflatten_index(i.back(), picks));
  from.back() = nest.as_index(column, c.shape(0).back());
  if (c.shape(0).size() == 1) from.erase(from.begin());
  nest.store(c.output(0), i, nest.load_raw(c.input(0), from));
  nest.finish();
  return {};
}

Status infer_vectorizer(InferContext &c) {
  Dim width = 0;
  std::optional<Dim> rows;
  for (size_t i = 0; i < c.input_count(); ++i) {
    OPTC_TRY(c.require_shape(i));
    if (c.rank(i) < 1 || c.rank(i) > 2) return c.invalid("an input must have rank 1 or 2");
    const Dim n = c.rank(i) == 2 ? c.shape(i)[0] : Dim(1);
    if (rows) {
      OPTC_ASSIGN(rows, c.same(*rows, n, "the batch"));
    } else {
      rows = n;
    }
    width = width + c.shape(i).back();
  }
  if (!rows) return c.invalid("an input is needed");
  c.set_tensor(0, ElementType::kFloat32, {*rows, width});
  return {};
}
Status build_vectorizer(BuildContext &c) {
  Dim offset = 0;
  for (size_t i = 0; i < c.node().inputs.size(); ++i) {
    NestBuilder nest(c, "features");
    Dims at = nest.outer(c.shape(i));
    Dims to = {at.size() == 2 ? at[0] : Dim(0), at.back() + offset};
    nest.store(c.output(0), to, cast(nest.load(c.input(i), at), ElementType::kFloat32));
    nest.finish();
    offset = offset + c.shape(i).back();
  }
  return {};
}

// --- LabelEncoder
// ---------------------------------------------------------------------------------------------------------------

// keys_* or values_*: lists of strings, ints or floats, or a tensor. Old versions had one list `classes_strings` both
// ways.
std::optional<Constant> label_list(const Node &node, const std::string &prefix) {
  if (const Attribute *a = node.attribute(prefix + "tensor"))
    if (const Constant *constant = std::get_if<Constant>(a)) return constant->reshaped({constant->count()});
  if (const Attribute *a = node.attribute(prefix + "strings"))
    if (const auto *list = std::get_if<std::vector<std::string>>(a))
      return Constant::strings({static_cast<int64_t>(list->size())}, *list);
  if (const auto *list = node.ints(prefix + "int64s")) return Constant::int64s(*list);
  if (const auto *list = node.floats(prefix + "floats")) return Constant::floats(*list);
  return std::nullopt;
}
Status infer_label_encoder(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  auto keys = label_list(c.node(), "keys_"), values = label_list(c.node(), "values_");
  if (!keys || !values) return c.invalid("keys or values are missing");
  if (keys->count() != values->count()) return c.invalid("keys and values differ in length");
  if (keys->type() != c.element(0)) return c.invalid("the keys' type is not the input's");
  c.set_tensor(0, values->type(), c.shape(0));
  return {};
}
Status build_label_encoder(BuildContext &c) {
  const Node &node = c.node();
  auto keys = label_list(node, "keys_"), values = label_list(node, "values_");
  Constant fallback;
  if (const Attribute *a = node.attribute("default_tensor"))
    if (const Constant *constant = std::get_if<Constant>(a)) fallback = constant->reshaped({constant->count()});
  if (!fallback.valid()) {
    if (values->type() == ElementType::kString) {
      fallback = Constant::strings({1}, {std::string(node.string_or("default_string", "_Unused"))});
    } else if (is_integer(values->type())) {
      fallback = Constant::scalar(values->type(), static_cast<double>(node.int_or("default_int64", -1))).reshaped({1});
    } else {
      fallback = Constant::scalar(values->type(), node.float_or("default_float", -0.0f)).reshaped({1});
    }
  }
  c.library("label_encoder",
            {c.input(0), c.constant_buffer("keys", *keys), c.constant_buffer("values", *values),
             c.constant_buffer("default", fallback)},
            {c.output(0)});
  return {};
}

// --- Linear models
// --------------------------------------------------------------------------------------------------------------

Status infer_linear_regressor(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  if (c.rank(0) != 2) return c.invalid("the input must have rank 2");
  const int64_t targets = c.node().int_or("targets", 1),
                n = static_cast<int64_t>(floats_or_empty(c.node(), "coefficients").size());
  if (targets < 1 || n % targets != 0) return c.invalid("the coefficients do not fit the targets");
  OPTC_TRY(c.same(c.shape(0)[1], n / targets, "the number of features"));
  c.set_tensor(0, ElementType::kFloat32, {c.shape(0)[0], targets});
  return {};
}
Status build_linear_regressor(BuildContext &c) {
  const int64_t targets = c.node().int_or("targets", 1);
  const std::vector<float> coefficients = floats_or_empty(c.node(), "coefficients"),
                           intercepts = floats_or_empty(c.node(), "intercepts");
  const int64_t features = static_cast<int64_t>(coefficients.size()) / targets;
  const std::string post(c.node().string_or("post_transform", "NONE"));
  if (post != "NONE") return c.unsupported("post_transform " + post + " of LinearRegressor");
  BufferId weight = c.constant_buffer("coefficients", Constant::floats(coefficients).reshaped({targets, features}));
  NestBuilder nest(c, "linear regression");
  Dim row = nest.outer("i", c.shape(0)[0]), target = nest.outer("t", targets), f = nest.stage_loop("f", features);
  Expr sum = nest.reduce(Combine::kSum,
                         cast(nest.load(c.input(0), {row, f}), ElementType::kFloat32) * nest.load(weight, {target, f}));
  if (!intercepts.empty())
    sum = sum + nest.load(c.constant_buffer("intercepts", Constant::floats(intercepts)), {target});
  nest.store(c.output(0), {row, target}, sum);
  nest.finish();
  return {};
}

const OpDef kOps[] = {
    {"ai.onnx.ml.Scaler", OpForm::kPointwise, 1, infer_scaler, build_scaler},
    {"ai.onnx.ml.Normalizer", OpForm::kReduction, 1, infer_normalizer, build_normalizer},
    {"ai.onnx.ml.Binarizer", OpForm::kPointwise, 1, infer_same, build_binarizer},
    {"ai.onnx.ml.Imputer", OpForm::kPointwise, 1, infer_same, build_imputer},
    {"ai.onnx.ml.ArrayFeatureExtractor", OpForm::kIndex, 1, infer_extractor, build_extractor},
    {"ai.onnx.ml.FeatureVectorizer", OpForm::kIndex, 1, infer_vectorizer, build_vectorizer},
    {"ai.onnx.ml.LabelEncoder", OpForm::kLibrary, 4, infer_label_encoder, build_label_encoder},
    {"ai.onnx.ml.LinearRegressor", OpForm::kContraction, 1, infer_linear_regressor, build_linear_regressor},
};

}  // namespace

std::span<const OpDef> ml_ops() { return kOps; }

}  // namespace optc
