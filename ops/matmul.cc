// MatMul, Gemm, the integer products and Einsum.

#include <algorithm>
#include <cctype>

#include "ops/conditions.h"
#include "ops/contract.h"
#include "ops/pointwise.h"
#include "ops/quantized.h"

namespace optc {
namespace {

constexpr int kRow = 1000, kColumn = 1001, kInner = 1002;  // labels; batch dimensions are 0, 1, ...

// The shape of a product of stacks of matrices, with transposed operands as Gemm has them.
Result<Shape> product_shape(InferContext &c, size_t left, size_t right, bool trans_a, bool trans_b) {
  OPTC_TRY(c.require_shape(left));
  OPTC_TRY(c.require_shape(right));
  Shape a = c.shape(left), b = c.shape(right);
  if (a.empty() || b.empty()) return c.invalid("a matrix product takes no scalars");
  const bool vector_a = a.size() == 1, vector_b = b.size() == 1;
  if (vector_a) a.insert(a.begin(), Dim(1));
  if (vector_b) b.push_back(Dim(1));
  if (trans_a && !vector_a) std::swap(a[a.size() - 1], a[a.size() - 2]);
  if (trans_b && !vector_b) std::swap(b[b.size() - 1], b[b.size() - 2]);
  OPTC_ASSIGN([[maybe_unused]] Dim k,
              c.same(a[a.size() - 1], b[b.size() - 2], "the inner dimensions of a matrix product"));
  OPTC_ASSIGN(Shape shape, c.broadcast({Shape(a.begin(), a.end() - 2), Shape(b.begin(), b.end() - 2)}));
  if (!vector_a) shape.push_back(a[a.size() - 2]);
  if (!vector_b) shape.push_back(b[b.size() - 1]);
  return shape;
}

Product matrix_product(BuildContext &c, size_t left, size_t right, bool trans_a, bool trans_b) {
  const Shape a = c.shape(left), b = c.shape(right), out = c.output_shape(0);
  Product p;
  p.result = c.output(0);
  auto labels = [](size_t rank, bool transposed, int first, int second, bool is_right, size_t batch_rank) {
    std::vector<int> l;
    if (rank == 1) return std::vector<int>{kInner};
    for (size_t k = 0; k + 2 < rank; ++k) l.push_back(static_cast<int>(batch_rank - (rank - 2) + k));
    l.push_back(transposed ? second : first);
    l.push_back(transposed ? first : second);
    (void)is_right;
    return l;
  };
  const size_t batch_rank = std::max<size_t>({a.size(), b.size(), 2}) - 2;
  p.factors = {{c.input(left), labels(a.size(), trans_a, kRow, kInner, false, batch_rank)},
               {c.input(right), labels(b.size(), trans_b, kInner, kColumn, true, batch_rank)}};
  for (size_t k = 0; k < batch_rank; ++k) {
    p.out.push_back(static_cast<int>(k));
    p.extents[static_cast<int>(k)] = out[k];
  }
  if (a.size() > 1) {
    p.out.push_back(kRow);
    p.extents[kRow] = out[p.out.size() - 1];
  }
  if (b.size() > 1) {
    p.out.push_back(kColumn);
    p.extents[kColumn] = out[p.out.size() - 1];
  }
  const Dim ka = a.size() == 1 || trans_a ? a[a.size() == 1 ? 0 : a.size() - 2] : a.back();
  const Dim kb = b.size() == 1 || !trans_b ? b[b.size() == 1 ? 0 : b.size() - 2] : b.back();
  p.extents[kInner] = kb.is_constant() ? kb : ka;
  return p;
}

// --- MatMul --------------------------------------------------------------------------------------------------

Status infer_matmul(InferContext &c) {
  OPTC_ASSIGN(Shape shape, product_shape(c, 0, 1, false, false));
  c.set_tensor(0, c.element(0), std::move(shape));
  return {};
}
Status build_matmul(BuildContext &c) {
  contract(c, matrix_product(c, 0, 1, false, false));
  return {};
}

// --- Gemm ----------------------------------------------------------------------------------------------------

Status infer_gemm(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  OPTC_TRY(c.require_shape(1));
  if (c.rank(0) != 2 || c.rank(1) != 2) return c.invalid("inputs A and B of Gemm must be matrices");
  OPTC_ASSIGN(Shape shape,
              product_shape(c, 0, 1, c.node().int_or("transA", 0) != 0, c.node().int_or("transB", 0) != 0));
  if (c.has_input(2) && c.has_shape(2)) {
    if (c.rank(2) > 2) return c.invalid("input C of Gemm has a rank above 2");
    // C is brought to the product's shape, never the product to C's.
    const Shape operand = c.shape(2);
    for (size_t k = 0; k < operand.size(); ++k)
      OPTC_TRY(broadcasts_to(c, operand[k], shape[k + 2 - operand.size()], "a dimension of input C of Gemm"));
  }
  c.set_tensor(0, c.element(0), std::move(shape));
  return {};
}
// sum * factor in the reals, back in the type of sum.
Expr scaled(Expr x, float factor) {
  if (factor == 1) return x;
  if (is_float(x.type())) return x * factor;
  return cast(cast(x, ElementType::kFloat64) * static_cast<double>(factor), x.type());
}
Status build_gemm(BuildContext &c) {
  Product p = matrix_product(c, 0, 1, c.node().int_or("transA", 0) != 0, c.node().int_or("transB", 0) != 0);
  const float alpha = c.node().float_or("alpha", 1), beta = c.node().float_or("beta", 1);
  const Shape out = c.output_shape(0);
  p.finish = [&](NestBuilder &nest, Expr sum, const LabelIndex &at) {
    Expr y = scaled(sum, alpha);
    if (c.has_input(2) && beta != 0) y = y + scaled(c.operand(nest, 2, {at.at(kRow), at.at(kColumn)}, out), beta);
    return y;
  };
  contract(c, p);
  return {};
}
Status gemm_without_broadcast(Graph &graph, NodeId node, Diagnostics &) {
  graph.remove_attribute(node, "broadcast");
  return {};
}

// --- Integer products ----------------------------------------------------------------------------------------

// A zero point or scale: a scalar, one element, or one a row (of a) or column (of b), perhaps with batch dimensions.
Expr parameter(BuildContext &c, NestBuilder &nest, size_t input, bool rows, const LabelIndex &at) {
  const Shape shape = c.shape(input), out = c.output_shape(0);
  if (shape.empty()) return c.operand(nest, input, {}, {});
  size_t batch = 0;
  while (at.count(static_cast<int>(batch))) ++batch;
  std::vector<Dim> index;
  for (size_t k = 0; k < shape.size(); ++k) {
    const size_t behind = shape.size() - 1 - k;  // dimensions behind this one
    int label = behind == 0 ? kColumn : kRow;
    if (shape.size() == 1 && rows) label = kRow;
    if (shape.size() > 1 && behind >= 2) label = static_cast<int>(batch - (behind - 1));
    auto counter = at.find(label);
    if (counter == at.end()) {
      index.push_back(0);
      continue;
    }
    const size_t position = label == kColumn ? out.size() - 1 : label == kRow ? batch : static_cast<size_t>(label);
    index.push_back(broadcast_index({counter->second}, {shape[k]}, {out[position]})[0]);
  }
  return nest.load(c.input(input), index);
}

// What `parameter` reads is there: each dimension broadcasts to the product's that it belongs to.
Status check_parameter(InferContext &c, size_t input, bool rows, size_t a, size_t b, const Shape &out) {
  if (!c.has_input(input)) return {};
  OPTC_TRY(c.require_shape(input));
  const size_t row = c.rank(a) > 1 ? 1 : 0, column = c.rank(b) > 1 ? 1 : 0, batch = out.size() - row - column;
  const Shape shape = c.shape(input);
  for (size_t k = 0; k < shape.size(); ++k) {
    const size_t behind = shape.size() - 1 - k;
    Dim to = 1;
    if (behind == 1 || (shape.size() == 1 && rows))
      to = row ? out[batch] : Dim(1);
    else if (behind == 0)
      to = column ? out.back() : Dim(1);
    else if (behind - 1 <= batch)
      to = out[batch - (behind - 1)];
    OPTC_TRY(broadcasts_to(c, shape[k], to, "a dimension of a scale or zero point"));
  }
  return {};
}

Status infer_matmul_integer(InferContext &c) {
  OPTC_ASSIGN(Shape shape, product_shape(c, 0, 1, false, false));
  for (size_t factor = 0; factor < 2; ++factor) OPTC_TRY(check_parameter(c, 2 + factor, factor == 0, 0, 1, shape));
  c.set_tensor(0, ElementType::kInt32, std::move(shape));
  return {};
}
Status build_matmul_integer(BuildContext &c) {
  Product p = matrix_product(c, 0, 1, false, false);
  p.prepare = [&](NestBuilder &nest, size_t factor, Expr value, const LabelIndex &at) {
    if (!c.has_input(2 + factor)) return value;
    return value - parameter(c, nest, 2 + factor, factor == 0, at);
  };
  contract(c, p);
  return {};
}

Status infer_qlinear_matmul(InferContext &c) {
  OPTC_ASSIGN(Shape shape, product_shape(c, 0, 3, false, false));
  for (size_t i : {1, 2, 4, 5, 6, 7}) OPTC_TRY(check_parameter(c, i, i < 3, 0, 3, shape));
  c.set_tensor(0, c.element(7), std::move(shape));
  return {};
}
Status build_qlinear_matmul(BuildContext &c) {
  Product p = matrix_product(c, 0, 3, false, false);
  p.prepare = [&](NestBuilder &nest, size_t factor, Expr value, const LabelIndex &at) {
    return value - parameter(c, nest, factor == 0 ? 2 : 5, factor == 0, at);
  };
  p.finish = [&](NestBuilder &nest, Expr sum, const LabelIndex &at) {
    const Expr scale =
        parameter(c, nest, 1, true, at) * parameter(c, nest, 4, false, at) / parameter(c, nest, 6, false, at);
    const Expr real = cast(sum, scale.type()) * scale;
    return quantize_rounded(apply(ScalarOp::kRound, real), parameter(c, nest, 7, false, at), c.output_type(0).element,
                            true);
  };
  contract(c, p);
  return {};
}

// --- Einsum --------------------------------------------------------------------------------------------------

struct Equation {
  std::vector<std::vector<int>> terms;  // per operand; labels of an ellipsis are -rank .. -1, aligned right
  std::vector<int> out;
  std::string error;
};

Equation parse_equation(std::string_view text, const std::vector<size_t> &ranks) {
  Equation e;
  std::string s;
  for (char ch : text)
    if (!std::isspace(static_cast<unsigned char>(ch))) s += ch;
  const size_t arrow = s.find("->");
  const std::string left = s.substr(0, arrow);
  std::map<int, int> uses;
  int ellipsis_rank = 0;
  bool seen_dots = false;
  auto read = [&](const std::string &term, int dots_rank, std::vector<int> &labels) {
    bool dots = false;
    for (size_t i = 0; i < term.size(); ++i) {
      if (term[i] == '.') {
        if (dots || term.compare(i, 3, "...") != 0) return false;
        dots = true;
        i += 2;
        for (int k = dots_rank; k > 0; --k) labels.push_back(-k);
      } else if (std::isalpha(static_cast<unsigned char>(term[i]))) {
        labels.push_back(term[i]);
      } else {
        return false;
      }
    }
    return true;
  };
  size_t begin = 0;
  for (size_t operand = 0; begin <= left.size(); ++operand) {
    const size_t end = std::min(left.find(',', begin), left.size());
    const std::string term = left.substr(begin, end - begin);
    begin = end + 1;
    if (operand >= ranks.size()) {
      e.error = "the equation has more terms than there are inputs";
      return e;
    }
    const bool dots = term.find('.') != std::string::npos;
    const int letters = static_cast<int>(term.size()) - (dots ? 3 : 0);
    const int dots_rank = dots ? static_cast<int>(ranks[operand]) - letters : 0;
    std::vector<int> labels;
    if (dots_rank < 0 || !read(term, dots_rank, labels) || labels.size() != ranks[operand]) {
      e.error = "term '" + term + "' does not fit an input of rank " + std::to_string(ranks[operand]);
      return e;
    }
    if (dots && seen_dots && dots_rank != ellipsis_rank) {
      e.error = "the ellipses of the terms stand for " + std::to_string(ellipsis_rank) + " and " +
                std::to_string(dots_rank) + " dimensions";
      return e;
    }
    if (dots) ellipsis_rank = dots_rank;
    seen_dots |= dots;
    for (int label : labels) ++uses[label];
    e.terms.push_back(std::move(labels));
  }
  if (e.terms.size() != ranks.size()) {
    e.error = "the equation has fewer terms than there are inputs";
    return e;
  }
  if (arrow != std::string::npos) {
    if (!read(s.substr(arrow + 2), ellipsis_rank, e.out)) e.error = "the equation's result is not well formed";
    for (size_t i = 0; i < e.out.size(); ++i) {
      if (!uses.count(e.out[i])) e.error = "the equation's result has a label that no term has";
      if (std::count(e.out.begin(), e.out.end(), e.out[i]) > 1) e.error = "the equation's result repeats a label";
    }
    return e;
  }
  for (int k = ellipsis_rank; k > 0; --k) e.out.push_back(-k);
  for (const auto &[label, count] : uses)  // in alphabetical order
    if (label > 0 && count == 1) e.out.push_back(label);
  return e;
}

Status infer_einsum(InferContext &c) {
  std::vector<size_t> ranks;
  for (size_t i = 0; i < c.input_count(); ++i) {
    OPTC_TRY(c.require_shape(i));
    ranks.push_back(static_cast<size_t>(c.rank(i)));
  }
  const Equation e = parse_equation(c.node().string_or("equation", ""), ranks);
  if (!e.error.empty()) return c.invalid(e.error);
  std::map<int, std::vector<Shape>> dims;
  for (size_t i = 0; i < e.terms.size(); ++i)
    for (size_t k = 0; k < e.terms[i].size(); ++k) dims[e.terms[i][k]].push_back({c.shape(i)[k]});
  std::map<int, Dim> extents;
  for (const auto &[label, shapes] : dims) {
    OPTC_ASSIGN(Shape shape, c.broadcast(shapes));
    extents[label] = shape[0];
  }
  Shape shape;
  for (int label : e.out) shape.push_back(extents[label]);
  c.set_tensor(0, c.element(0), std::move(shape));
  return {};
}

Status build_einsum(BuildContext &c) {
  std::vector<size_t> ranks;
  const size_t count = c.node().inputs.size();
  for (size_t i = 0; i < count; ++i) ranks.push_back(c.shape(i).size());
  const Equation e = parse_equation(c.node().string_or("equation", ""), ranks);
  std::map<int, Dim> extents;
  for (size_t i = 0; i < count; ++i)
    for (size_t k = 0; k < ranks[i]; ++k) {
      const Dim d = c.shape(i)[k];
      auto [it, fresh] = extents.emplace(e.terms[i][k], d);
      if (fresh || d == it->second || d.is(1)) continue;
      if (it->second.is(1) || d.is_constant())
        it->second = d;
      else if (!it->second.is_constant())
        it->second = max(it->second, d);
    }
  const std::vector<Dim> &out_dims = c.output_shape(0);
  for (size_t k = 0; k < e.out.size(); ++k) extents[e.out[k]] = out_dims[k];
  std::vector<Factor> rest;
  for (size_t i = 0; i < count; ++i) rest.push_back({c.input(i), e.terms[i]});
  // From left to right, two at a time; what no later term and not the result has is summed at once.
  while (rest.size() > 2) {
    Product p;
    p.extents = extents;
    p.factors = {rest[0], rest[1]};
    for (size_t i = 0; i < 2; ++i)
      for (int label : rest[i].labels) {
        bool needed = std::count(e.out.begin(), e.out.end(), label) > 0;
        for (size_t j = 2; j < rest.size(); ++j)
          needed |= std::count(rest[j].labels.begin(), rest[j].labels.end(), label) > 0;
        if (needed && std::count(p.out.begin(), p.out.end(), label) == 0) p.out.push_back(label);
      }
    Shape shape;
    for (int label : p.out) shape.push_back(extents[label]);
    p.result = c.temporary("part", compute_type(c.output_type(0).element), std::move(shape));
    contract(c, p);
    rest.erase(rest.begin());
    rest[0] = {p.result, p.out};
  }
  Product p;
  p.extents = extents;
  p.factors = rest;
  p.out = e.out;
  p.result = c.output(0);
  contract(c, p);
  return {};
}

constexpr VersionStep kGemmSteps[] = {{7, gemm_without_broadcast, nullptr}};

constexpr auto kForm = OpForm::kContraction;
const OpDef kOps[] = {
    {"Einsum", kForm, 28, infer_einsum, build_einsum},
    {"Gemm", kForm, 13, infer_gemm, build_gemm, kGemmSteps},
    {"MatMul", kForm, 13, infer_matmul, build_matmul},
    {"MatMulInteger", kForm, 10, infer_matmul_integer, build_matmul_integer},
    {"QLinearMatMul", kForm, 21, infer_qlinear_matmul, build_qlinear_matmul},
};

}  // namespace

std::span<const OpDef> matmul_ops() { return kOps; }

}  // namespace optc
