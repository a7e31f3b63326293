// ai.onnx.ml, on features: Scaler, Normalizer, Binarizer, Imputer, ArrayFeatureExtractor, FeatureVectorizer.

#include <cmath>

#include "ops/build.h"
#include "ops/ml_util.h"
#include "ops/registry.h"
#include "ops/util.h"

namespace optc {
namespace {

using Dims = std::vector<Dim>;

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

// One entry for all columns, or one a column.
Status check_per_column(InferContext &c, size_t count, const char *name) {
  if (count <= 1) return {};
  if (c.rank(0) == 0) return c.invalid(std::string(name) + " must have one entry, or one a column");
  OPTC_TRY(c.same(c.shape(0).back(), Dim(static_cast<int64_t>(count)),
                  "the number of columns and of entries of " + std::string(name)));
  return {};
}

Status infer_scaler(InferContext &c) {
  OPTC_TRY(infer_float_like(c));
  for (const char *name : {"scale", "offset"}) {
    OPTC_TRY(check_per_column(c, floats_of(c.node(), name).size(), name));
  }
  return {};
}
Status build_scaler(BuildContext &c) {
  const std::vector<float> scale = floats_of(c.node(), "scale"), offset = floats_of(c.node(), "offset");
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
  Expr total = norm == "MAX"  ? nest.reduce(Combine::kMax, value)
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
  const std::string_view norm = c.node().string_or("norm", "MAX");
  if (norm != "MAX" && norm != "L1" && norm != "L2")
    return c.invalid("attribute 'norm' must be MAX, L1 or L2, not '" + std::string(norm) + "'");
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

// The imputed values of a type: the list of floats for floats, of integers for integers, or the other one where only
// that is given.
Constant imputed_values(const Node &node, ElementType type) {
  const std::vector<float> floats = floats_of(node, "imputed_value_floats");
  const std::vector<int64_t> ints = ints_of(node, "imputed_value_int64s");
  return !ints.empty() && (!is_float(type) || floats.empty()) ? Constant::int64s(ints) : Constant::floats(floats);
}
Status infer_imputer(InferContext &c) {
  OPTC_TRY(infer_same(c));
  const int64_t count = imputed_values(c.node(), c.element(0)).count();
  if (count == 0) return c.invalid("the imputed values are missing");
  return check_per_column(c, static_cast<size_t>(count), "the imputed values");
}
Status build_imputer(BuildContext &c) {
  const Node &node = c.node();
  const ElementType type = c.input_type(0).element;
  const Constant values = imputed_values(node, type);
  NestBuilder nest(c, "imputer");
  Dims i = nest.outer(c.output_shape(0));
  Expr x = nest.load(c.input(0), i);
  Expr missing;
  if (is_float(type)) {
    const float replaced = node.float_or("replaced_value_float", 0);
    missing = std::isnan(replaced) ? apply(ScalarOp::kIsNan, x) : equal(x, x.constant(replaced));
  } else {
    const int64_t replaced = node.int_or("replaced_value_int64", 0);
    missing = equal(x, Expr(&x.pool(), x.pool().constant_int(x.type(), replaced)));
  }
  const Dim column = values.count() == 1 ? Dim(0) : i.back();
  const Expr value = cast(nest.load(c.constant_buffer("values", values), {column}), x.type());
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

// `inputdimensions` says how many columns each input has, which its shape does, too.
Status infer_vectorizer(InferContext &c) {
  const std::vector<int64_t> widths = ints_of(c.node(), "inputdimensions");
  if (!widths.empty() && widths.size() != c.input_count())
    return c.invalid("attribute 'inputdimensions' must have an entry for each input");
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
    if (!widths.empty())
      OPTC_TRY(c.same(c.shape(i).back(), Dim(widths[i]), "the number of columns and the entry of inputdimensions"));
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

const OpDef kOps[] = {
    {"ai.onnx.ml.Scaler", OpForm::kPointwise, 1, infer_scaler, build_scaler},
    {"ai.onnx.ml.Normalizer", OpForm::kReduction, 1, infer_normalizer, build_normalizer},
    {"ai.onnx.ml.Binarizer", OpForm::kPointwise, 1, infer_same, build_binarizer},
    {"ai.onnx.ml.Imputer", OpForm::kPointwise, 1, infer_imputer, build_imputer},
    {"ai.onnx.ml.ArrayFeatureExtractor", OpForm::kIndex, 1, infer_extractor, build_extractor},
    {"ai.onnx.ml.FeatureVectorizer", OpForm::kIndex, 1, infer_vectorizer, build_vectorizer},
};

}  // namespace

std::span<const OpDef> ml_ops() { return kOps; }

}  // namespace optc
