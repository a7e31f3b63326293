// ai.onnx.ml, linear models and support vector machines. The products run as kernels of their own; what a classifier
// makes of its scores is a library function (runtime/cpu/lib_ml.h, lib_svm.h). As ONNX Runtime has it, post_transform
// leaves a regressor's single target as it is (but for PROBIT), and support vector regressors altogether.

#include <string>

#include "ops/build.h"
#include "ops/contract.h"
#include "ops/ml_util.h"
#include "ops/registry.h"
#include "ops/util.h"

namespace optc {
namespace {

using Dims = std::vector<Dim>;

// Input 0 as a f32 matrix of rows and features.
BufferId feature_matrix(BuildContext &c) {
  const Features x = features(c);
  if (c.shape(0).size() == 2 && c.input_type(0).element == ElementType::kFloat32) return c.input(0);
  const BufferId matrix = c.temporary("features", ElementType::kFloat32, {x.rows, x.columns});
  NestBuilder nest(c, "features");
  const Dims at = nest.outer({x.rows, x.columns});
  const Dims from = c.shape(0).size() == 2 ? at : Dims{at[1]};
  nest.store(matrix, at, cast(nest.load(c.input(0), from), ElementType::kFloat32));
  nest.finish();
  return matrix;
}

// result[i, t] = finish(sum over f of x[i, f] * weights[t, f], t).
void scores_of(BuildContext &c, BufferId x, BufferId weights, BufferId result,
               const std::function<Expr(NestBuilder &, Expr, Dim)> &finish) {
  const Shape rows = c.program().buffer(x).shape(), targets = c.program().buffer(weights).shape();
  Product product;
  product.factors = {{x, {0, 2}}, {weights, {1, 2}}};
  product.out = {0, 1};
  product.extents = {{0, rows[0]}, {1, targets[0]}, {2, targets[1]}};
  product.finish = [&](NestBuilder &nest, Expr sum, const LabelIndex &at) { return finish(nest, sum, at.at(1)); };
  product.result = result;
  contract(c, product);
}

// Scores plus one number a target; `bias` may be empty.
void linear_scores(BuildContext &c, const std::vector<float> &coefficients, int64_t targets,
                   const std::vector<float> &bias, BufferId result) {
  const int64_t count = static_cast<int64_t>(coefficients.size()) / targets;
  const BufferId weights = c.constant_buffer("coefficients", Constant::floats(coefficients).reshaped({targets, count}));
  const BufferId added = bias.empty() ? BufferId() : c.constant_buffer("intercepts", Constant::floats(bias));
  scores_of(c, feature_matrix(c), weights, result, [&](NestBuilder &nest, Expr sum, Dim target) {
    return bias.empty() ? sum : sum + nest.load(added, {target});
  });
}

// The classes of scores [rows, n] and what the classifier gives as its scores.
Status classify(BuildContext &c, BufferId scores, int64_t how, const ClassLabels &labels) {
  const Dim rows = c.program().buffer(scores).shape()[0];
  const BufferId winner = c.temporary("class", ElementType::kInt64, {rows});
  c.library("class_scores", {scores}, {c.has_output(1) ? c.output(1) : BufferId(), winner},
            {{"post", post_transform_of(c.node())}, {"how", how}});
  return build_labels(c, winner, rows, labels);
}

// --- Linear models

Status infer_linear_regressor(InferContext &c) {
  OPTC_ASSIGN(const Features x, infer_features(c));
  const int64_t targets = c.node().int_or("targets", 1),
                n = static_cast<int64_t>(floats_of(c.node(), "coefficients").size());
  if (targets < 1 || n % targets != 0) return c.invalid("the coefficients do not fit the targets");
  const size_t bias = floats_of(c.node(), "intercepts").size();
  if (bias != 0 && static_cast<int64_t>(bias) != targets) return c.invalid("the intercepts do not fit the targets");
  if (post_transform_of(c.node()) < 0) return c.invalid("post_transform is not known");
  OPTC_TRY(c.same(x.columns, n / targets, "the number of features"));
  c.set_tensor(0, ElementType::kFloat32, {x.rows, targets});
  return {};
}
Status build_linear_regressor(BuildContext &c) {
  const int64_t targets = c.node().int_or("targets", 1), post = post_transform_of(c.node());
  const bool plain = post == 0 || (targets == 1 && post != 4);
  const BufferId sums = plain ? c.output(0) : c.temporary("sums", ElementType::kFloat32, Shape(c.output_shape(0)));
  linear_scores(c, floats_of(c.node(), "coefficients"), targets, floats_of(c.node(), "intercepts"), sums);
  if (!plain) c.library("class_scores", {sums}, {c.output(0), BufferId()}, {{"post", post}, {"how", int64_t{0}}});
  return {};
}

// How many scores a LinearClassifier computes: the rows of its coefficients.
int64_t linear_classes(const Node &node, Dim columns, const ClassLabels &labels) {
  const size_t bias = floats_of(node, "intercepts").size();
  if (bias != 0) return static_cast<int64_t>(bias);
  const int64_t n = static_cast<int64_t>(floats_of(node, "coefficients").size());
  if (columns.is_constant() && columns.value() > 0 && n % columns.value() == 0) return n / columns.value();
  return labels.count();
}
int64_t linear_how(int64_t classes, const ClassLabels &labels) { return classes > 1 ? 0 : labels.count() == 2 ? 1 : 3; }

Status infer_linear_classifier(InferContext &c) {
  OPTC_ASSIGN(const Features x, infer_features(c));
  const ClassLabels labels = class_labels(c.node(), "classlabels_ints");
  const int64_t classes = linear_classes(c.node(), x.columns, labels),
                n = static_cast<int64_t>(floats_of(c.node(), "coefficients").size());
  if (classes < 1 || n == 0 || n % classes != 0) return c.invalid("the coefficients do not fit the classes");
  // One score decides between two classes; without labels these are 0 and 1.
  if (labels.count() != classes && !(classes == 1 && (labels.count() == 2 || labels.count() == 0)))
    return c.invalid("there are " + std::to_string(classes) + " scores for " + std::to_string(labels.count()) +
                     " class labels");
  if (classes == 1 && labels.count() == 1) return c.invalid("one score needs the labels of two classes");
  if (post_transform_of(c.node()) < 0) return c.invalid("post_transform is not known");
  OPTC_TRY(c.same(x.columns, n / classes, "the number of features"));
  c.set_tensor(0, labels.element(), {x.rows});
  c.set_tensor(1, ElementType::kFloat32, {x.rows, linear_how(classes, labels) == 1 ? 2 : classes});
  return {};
}
Status build_linear_classifier(BuildContext &c) {
  ClassLabels labels = class_labels(c.node(), "classlabels_ints");
  const Features x = features(c);
  const int64_t classes = linear_classes(c.node(), x.columns, labels), how = linear_how(classes, labels);
  if (labels.count() == 0) labels.integers = {0, 1};
  const BufferId scores = c.temporary("scores", ElementType::kFloat32, {x.rows, classes});
  linear_scores(c, floats_of(c.node(), "coefficients"), classes, floats_of(c.node(), "intercepts"), scores);
  return classify(c, scores, how, labels);
}

// --- Support vector machines

enum class Kernel : uint8_t { kLinear, kPoly, kRbf, kSigmoid, kUnknown };
Kernel kernel_of(const Node &node) {
  const std::string_view name = node.string_or("kernel_type", "LINEAR");
  return name == "LINEAR"    ? Kernel::kLinear
         : name == "POLY"    ? Kernel::kPoly
         : name == "RBF"     ? Kernel::kRbf
         : name == "SIGMOID" ? Kernel::kSigmoid
                             : Kernel::kUnknown;
}
Status check_kernel(InferContext &c) {
  if (kernel_of(c.node()) == Kernel::kUnknown)
    return c.invalid("kernel_type '" + std::string(c.node().string_or("kernel_type", "")) + "' is not known");
  const size_t parameters = floats_of(c.node(), "kernel_params").size();
  if (parameters != 0 && parameters != 3) return c.invalid("kernel_params must be gamma, coef0 and degree");
  return {};
}

// The kernel of each row of the input with each support vector: f32[rows, vectors].
BufferId kernel_matrix(BuildContext &c, int64_t vectors) {
  const std::vector<float> support = floats_of(c.node(), "support_vectors");
  std::vector<float> parameters = floats_of(c.node(), "kernel_params");
  parameters.resize(3, 0);
  const double gamma = parameters[0], coef0 = parameters[1], degree = parameters[2];
  const int64_t width = static_cast<int64_t>(support.size()) / vectors;
  const BufferId table = c.constant_buffer("support_vectors", Constant::floats(support).reshaped({vectors, width}));
  const BufferId x = feature_matrix(c);
  const Dim rows = features(c).rows;
  const BufferId result = c.temporary("kernel", ElementType::kFloat32, {rows, vectors});
  const Kernel kernel = kernel_of(c.node());
  if (kernel == Kernel::kRbf) {
    NestBuilder nest(c, "rbf");
    const Dims at = nest.outer({rows, Dim(vectors)});
    const Dim f = nest.stage_loop("f", width);
    const Expr distance = nest.load(x, {at[0], f}) - nest.load(table, {at[1], f});
    const Expr sum = nest.reduce(Combine::kSum, distance * distance);
    nest.store(result, at, apply(ScalarOp::kExp, sum * -gamma));
    nest.finish();
    return result;
  }
  scores_of(c, x, table, result, [&](NestBuilder &, Expr dot, Dim) {
    if (kernel == Kernel::kLinear) return dot;
    const Expr inner = dot * gamma + coef0;
    return kernel == Kernel::kSigmoid ? apply(ScalarOp::kTanh, inner)
                                      : apply(ScalarOp::kPow, inner, inner.constant(degree));
  });
  return result;
}

Status infer_svm_regressor(InferContext &c) {
  OPTC_ASSIGN(const Features x, infer_features(c));
  OPTC_TRY(check_kernel(c));
  const Node &node = c.node();
  const int64_t vectors = node.int_or("n_supports", 0),
                n = static_cast<int64_t>(floats_of(node, "coefficients").size()),
                values = static_cast<int64_t>(floats_of(node, "support_vectors").size());
  if (floats_of(node, "rho").size() != 1) return c.invalid("rho must have one entry");
  if (vectors < 0 || n == 0) return c.invalid("the coefficients do not fit the support vectors");
  if (vectors > 0 && (n != vectors || values == 0 || values % vectors != 0))
    return c.invalid("the coefficients do not fit the support vectors");
  OPTC_TRY(c.same(x.columns, vectors > 0 ? values / vectors : n, "the number of features"));
  c.set_tensor(0, ElementType::kFloat32, {x.rows, 1});
  return {};
}
Status build_svm_regressor(BuildContext &c) {
  const Node &node = c.node();
  const int64_t vectors = node.int_or("n_supports", 0);
  const std::vector<float> coefficients = floats_of(node, "coefficients");
  const double rho = floats_of(node, "rho")[0];
  const bool one_class = node.int_or("one_class", 0) != 0;
  const BufferId x = vectors > 0 ? kernel_matrix(c, vectors) : feature_matrix(c);  // linear without support vectors
  const BufferId weights = c.constant_buffer(
      "coefficients", Constant::floats(coefficients).reshaped({1, static_cast<int64_t>(coefficients.size())}));
  scores_of(c, x, weights, c.output(0), [&](NestBuilder &, Expr sum, Dim) {
    const Expr score = sum + rho;
    return one_class ? select(less(score.constant(0), score), score.constant(1), score.constant(-1)) : score;
  });
  return {};
}

Status infer_svm_classifier(InferContext &c) {
  OPTC_ASSIGN(const Features x, infer_features(c));
  OPTC_TRY(check_kernel(c));
  const Node &node = c.node();
  const ClassLabels labels = class_labels(node, "classlabels_ints");
  if (labels.count() == 0) return c.invalid("the classes have no labels");
  if (post_transform_of(node) < 0) return c.invalid("post_transform is not known");
  const size_t rho = floats_of(node, "rho").size(), n = floats_of(node, "coefficients").size();
  if (rho == 0 || n == 0) return c.invalid("rho and coefficients are needed");
  const std::vector<int64_t> per_class = ints_of(node, "vectors_per_class");
  const size_t values = floats_of(node, "support_vectors").size(), classes = static_cast<size_t>(labels.count());
  c.set_tensor(0, labels.element(), {x.rows});
  if (values == 0) {  // a linear model: one row of coefficients a class
    if (n % classes != 0) return c.invalid("the coefficients do not fit the classes");
    OPTC_TRY(c.same(x.columns, Dim(static_cast<int64_t>(n / classes)), "the number of features"));
    c.set_tensor(1, ElementType::kFloat32, {x.rows, labels.count()});
    return {};
  }
  size_t vectors = 0;
  for (int64_t v : per_class) {
    if (v < 0 || static_cast<size_t>(v) > values)
      return c.invalid("vectors_per_class does not fit the support vectors");
    vectors += static_cast<size_t>(v);
    if (vectors > values) return c.invalid("vectors_per_class does not fit the support vectors");
  }
  if (vectors == 0 || values % vectors != 0) return c.invalid("vectors_per_class does not fit the support vectors");
  if (per_class.size() != classes || classes < 2 || n % (classes - 1) != 0 || n / (classes - 1) != vectors)
    return c.invalid("the coefficients or vectors_per_class do not fit the classes");
  const size_t pairs = classes * (classes - 1) / 2, a = floats_of(node, "prob_a").size();
  if (rho < pairs) return c.invalid("rho must have one entry a pair of classes");
  if (a != floats_of(node, "prob_b").size() || (a != 0 && a < pairs))
    return c.invalid("prob_a and prob_b must have one entry a pair of classes");
  OPTC_TRY(c.same(x.columns, Dim(static_cast<int64_t>(values / vectors)), "the number of features"));
  const int64_t columns = a != 0 || classes == 2 ? labels.count() : static_cast<int64_t>(pairs);
  c.set_tensor(1, ElementType::kFloat32, {x.rows, columns});
  return {};
}
Status build_svm_classifier(BuildContext &c) {
  const Node &node = c.node();
  const ClassLabels labels = class_labels(node, "classlabels_ints");
  const std::vector<float> coefficients = floats_of(node, "coefficients"), rho = floats_of(node, "rho");
  const Dim rows = features(c).rows;
  if (floats_of(node, "support_vectors").empty()) {
    const BufferId scores = c.temporary("scores", ElementType::kFloat32, {rows, labels.count()});
    linear_scores(c, coefficients, labels.count(), std::vector<float>(static_cast<size_t>(labels.count()), rho[0]),
                  scores);
    return classify(c, scores, 0, labels);
  }
  const std::vector<int64_t> per_class = ints_of(node, "vectors_per_class");
  int64_t vectors = 0;
  for (int64_t v : per_class) vectors += v;
  const BufferId kernel = kernel_matrix(c, vectors);
  const BufferId weights =
      c.constant_buffer("coefficients", Constant::floats(coefficients).reshaped({labels.count() - 1, vectors}));
  std::vector<std::pair<std::string, Attribute>> attributes = {
      {"vectors_per_class", per_class}, {"rho", rho}, {"post", post_transform_of(node)}};
  for (const char *name : {"prob_a", "prob_b"})
    if (std::vector<float> values = floats_of(node, name); !values.empty())
      attributes.push_back({name, std::move(values)});
  const BufferId winner = c.temporary("class", ElementType::kInt64, {rows});
  c.library("svm_classify", {kernel, weights}, {c.has_output(1) ? c.output(1) : BufferId(), winner}, attributes);
  return build_labels(c, winner, rows, labels);
}

const OpDef kOps[] = {
    {"ai.onnx.ml.LinearRegressor", OpForm::kContraction, 1, infer_linear_regressor, build_linear_regressor},
    {"ai.onnx.ml.LinearClassifier", OpForm::kContraction, 1, infer_linear_classifier, build_linear_classifier},
    {"ai.onnx.ml.SVMRegressor", OpForm::kContraction, 1, infer_svm_regressor, build_svm_regressor},
    {"ai.onnx.ml.SVMClassifier", OpForm::kContraction, 1, infer_svm_classifier, build_svm_classifier},
};

}  // namespace

std::span<const OpDef> ml_models_ops() { return kOps; }

}  // namespace optc
