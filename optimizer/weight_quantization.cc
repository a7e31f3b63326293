#include "optimizer/weight_quantization.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "ir/graph/rewriter.h"
#include "ops/block_rounding.h"
#include "ops/registry.h"

namespace optc {
namespace {

constexpr int kLanes = 64;           // columns that are looked at together
constexpr double kWorthZeros = 0.9;  // of the squared error: zero points must bring at least that

// --- finding

bool is_model_float(ElementType type) {
  return type == ElementType::kFloat32 || type == ElementType::kFloat16 || type == ElementType::kBFloat16;
}

bool turns(const Node &node) {
  const std::vector<int64_t> *perm = node.ints("perm");
  return !perm || perm->empty() || (*perm)[0] == 1;
}

// What the readers of a matrix do with it.
struct Readers {
  bool product = false;
  int axis = -1;
  std::vector<NodeId> products;  // as they were met
  std::string problem;
};

void note_axis(Readers &readers, NodeId product, int axis) {
  if (readers.product && readers.axis != axis && readers.problem.empty())
    readers.problem = "products sum over either axis of it";
  readers.products.push_back(product);
  readers.product = true;
  readers.axis = axis;
}

// One reader of the matrix or, `turned`, of its transpose; a value that is the matrix again goes on the list.
void look_at_reader(const Graph &graph, const Use &use, bool turned, Readers &readers,
                    std::vector<std::pair<ValueId, bool>> &names) {
  if (use.kind == UseKind::kRegionOutput) {
    readers.problem = "it is a result of the model or of a body";
    return;
  }
  const Node &node = graph.node(use.node);
  const bool gemm = node.op == "Gemm", product = gemm || node.op == "MatMul";
  if (product && use.index == 1) {
    note_axis(readers, use.node, (gemm && node.int_or("transB", 0) != 0) != turned ? 1 : 0);
  } else if (product && use.index == 0) {
    note_axis(readers, use.node, readers.axis);
    readers.problem = "it is the left operand of " + graph.describe(use.node);
  } else if (node.op == "Identity") {
    names.emplace_back(node.outputs[0], turned);
  } else if (node.op == "Transpose") {
    names.emplace_back(node.outputs[0], turned != turns(node));
  } else if (node.op != "Gather" || use.index != 0 || turned) {
    readers.problem = graph.describe(use.node) + " reads it too";
  }
}

Readers readers_of(const Graph &graph, ValueId matrix) {
  Readers readers;
  std::vector<std::pair<ValueId, bool>> names = {{matrix, false}};  // with whether it is the transpose
  for (size_t i = 0; i < names.size(); ++i) {
    const auto [name, turned] = names[i];
    for (const Use &use : graph.value(name).uses) look_at_reader(graph, use, turned, readers, names);
  }
  return readers;
}

// --- numbers

void to_floats(const Constant &c, int64_t at, int64_t count, float *out) {
  if (c.type() == ElementType::kFloat32) {
    std::memcpy(out, c.data() + 4 * at, static_cast<size_t>(4 * count));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, c.data() + 2 * (at + i), sizeof bits);
    out[i] = c.type() == ElementType::kFloat16 ? half_to_float(bits) : bfloat16_to_float(bits);
  }
}

// To the nearest integer, ties to even, for |x| < 2^22; in arithmetic that compilers turn into vectors.
inline float nearest(float x) {
  constexpr float kShift = 12582912;
  return (x + kShift) - kShift;
}

// A scale as the weight's type can hold it: never 0, so that no code is divided by it.
float stored_scale(double scale, ElementType type) {
  if (!(scale > 0)) return 1;
  switch (type) {
    case ElementType::kFloat16:
      return std::max(half_to_float(float_to_half(static_cast<float>(scale))), 0x1p-14f);
    case ElementType::kBFloat16:
      return std::max(bfloat16_to_float(float_to_bfloat16(static_cast<float>(scale))), FLT_MIN);
    default:
      return std::max(static_cast<float>(scale), FLT_MIN);
  }
}

struct Grid {
  float scale = 1, zero = 0;
};

// The two grids of a kind: of 2^bits numbers, from `low` to `high`.
struct GridKind {
  bool zeros;
  float low, high;
  GridKind(bool with_zeros, int bits)
      : zeros(with_zeros),
        low(with_zeros ? 0 : -std::ldexp(1.0f, bits - 1)),
        high(std::ldexp(1.0f, with_zeros ? bits : bits - 1) - 1) {}
  Grid of(float smallest, float largest, ElementType type) const {
    Grid grid;
    if (!zeros) {
      grid.scale = stored_scale(std::max(std::fabs(double{smallest}), std::fabs(double{largest})) / high, type);
      return grid;
    }
    const double from = std::min(0.0f, smallest), to = std::max(0.0f, largest);
    grid.scale = stored_scale((to - from) / high, type);
    grid.zero = std::clamp(nearest(static_cast<float>(-from / grid.scale)), low, high);
    return grid;
  }
  float code(float w, const Grid &grid) const {
    return std::min(std::max(nearest(w / grid.scale) + grid.zero, low), high);
  }
};

// A matrix as products see it: `inner` numbers of each of `columns` columns.
struct Matrix {
  const Constant &weight;
  int axis;
  int64_t inner, columns;

  Matrix(const Constant &w, int k) : weight(w), axis(k), inner(w.dims()[k]), columns(w.dims()[1 - k]) {}
  int64_t flat(int64_t k, int64_t n) const { return axis == 0 ? k * columns + n : n * inner + k; }
  // Rows k0 to k1 of `lanes` columns from n0 on: out[(k - k0) * kLanes + lane].
  void read(int64_t k0, int64_t k1, int64_t n0, int64_t lanes, std::vector<float> &line, float *out) const {
    if (axis == 0) {
      for (int64_t k = k0; k < k1; ++k) to_floats(weight, flat(k, n0), lanes, out + (k - k0) * kLanes);
      return;
    }
    line.resize(static_cast<size_t>(k1 - k0));
    for (int64_t lane = 0; lane < lanes; ++lane) {
      to_floats(weight, flat(k0, n0 + lane), k1 - k0, line.data());
      for (int64_t k = 0; k < k1 - k0; ++k) out[k * kLanes + lane] = line[static_cast<size_t>(k)];
    }
  }
};

// Calls f(k0, k1, n0, lanes, tile) for all blocks of all columns.
template <typename F>
void for_blocks(const Matrix &m, int64_t block, F f) {
  std::vector<float> tile(static_cast<size_t>(block * kLanes)), line;
  for (int64_t n0 = 0; n0 < m.columns; n0 += kLanes) {
    const int64_t lanes = std::min<int64_t>(kLanes, m.columns - n0);
    for (int64_t k0 = 0; k0 < m.inner; k0 += block) {
      const int64_t k1 = std::min(m.inner, k0 + block);
      m.read(k0, k1, n0, lanes, line, tile.data());
      f(k0, k1, n0, lanes, tile.data());
    }
  }
}

void ends_of(const float *tile, int64_t rows, int64_t lanes, float *smallest, float *largest) {
  for (int64_t l = 0; l < lanes; ++l) smallest[l] = largest[l] = tile[l];
  for (int64_t k = 1; k < rows; ++k)
    for (int64_t l = 0; l < lanes; ++l) {
      const float w = tile[k * kLanes + l];
      smallest[l] = std::min(smallest[l], w);
      largest[l] = std::max(largest[l], w);
    }
}

double squared_error(const float *tile, int64_t rows, int64_t lanes, const Grid *grids, const GridKind &kind) {
  float sums[kLanes] = {};
  double sum = 0;
  for (int64_t l = 0; l < lanes; ++l) {
    for (int64_t k = 0; k < rows; ++k) {
      const float w = tile[k * kLanes + l], off = (kind.code(w, grids[l]) - grids[l].zero) * grids[l].scale - w;
      sums[l] += (off / grids[l].scale) * (off / grids[l].scale);  // in steps, which f32 holds for any scale
    }
    sum += double{sums[l]} * grids[l].scale * grids[l].scale;
  }
  return sum;
}

struct Errors {
  double centered = 0, with_zeros = 0, weight = 0;
  bool finite = true;
};

Errors errors_of(const Matrix &m, int64_t block, const GridKind &centered, const GridKind &with_zeros) {
  Errors errors;
  const ElementType type = m.weight.type();
  for_blocks(m, block, [&](int64_t k0, int64_t k1, int64_t, int64_t lanes, const float *tile) {
    float smallest[kLanes], largest[kLanes];
    Grid a[kLanes], b[kLanes];
    for (int64_t k = 0; k < k1 - k0; ++k)
      for (int64_t l = 0; l < lanes; ++l) {
        errors.finite = errors.finite && std::isfinite(tile[k * kLanes + l]);
        errors.weight += double{tile[k * kLanes + l]} * tile[k * kLanes + l];
      }
    if (!errors.finite) return;
    ends_of(tile, k1 - k0, lanes, smallest, largest);
    for (int64_t l = 0; l < lanes; ++l) {
      a[l] = centered.of(smallest[l], largest[l], type);
      b[l] = with_zeros.of(smallest[l], largest[l], type);
    }
    errors.centered += squared_error(tile, k1 - k0, lanes, a, centered);
    errors.with_zeros += squared_error(tile, k1 - k0, lanes, b, with_zeros);
  });
  return errors;
}

void put_code(std::vector<uint8_t> &bytes, int bits, int64_t at, int code) {
  if (bits == 8)
    bytes[static_cast<size_t>(at)] = static_cast<uint8_t>(code);
  else
    bytes[static_cast<size_t>(at / 2)] |= static_cast<uint8_t>((code & 15) << (4 * (at % 2)));
}

void put_float(std::vector<uint8_t> &bytes, ElementType type, int64_t at, float value) {
  if (type == ElementType::kFloat32) {
    std::memcpy(bytes.data() + 4 * at, &value, sizeof value);
    return;
  }
  const uint16_t bits = type == ElementType::kFloat16 ? float_to_half(value) : float_to_bfloat16(value);
  std::memcpy(bytes.data() + 2 * at, &bits, sizeof bits);
}

std::vector<uint8_t> bytes_for(ElementType type, int64_t count) {
  return std::vector<uint8_t>(static_cast<size_t>(*storage_bytes(type, count)));
}

}  // namespace

std::string to_string(const WeightFormat &format) {
  return "int" + std::to_string(format.bits) + (format.block > 0 ? ":" + std::to_string(format.block) : "") +
         (format.activations ? ",activations=int8" : "");
}

int64_t QuantizedWeight::bytes() const {
  return static_cast<int64_t>(codes.size() + scale.size() + (zero.valid() ? zero.size() : 0));
}

std::vector<ProductWeight> find_product_weights(const Graph &graph) {
  std::vector<std::pair<NodeId, ProductWeight>> found;
  for (size_t i = 0; i < graph.value_capacity(); ++i) {
    const ValueId v(i);
    const Value &value = graph.value(v);
    if (!value.alive || value.kind != ValueKind::kConstant || value.constant.rank() != 2 ||
        !is_model_float(value.constant.type()) || value.constant.count() < kLeastQuantized)
      continue;
    Readers readers = readers_of(graph, v);
    if (readers.product)
      found.push_back({readers.products.front(), {v, std::max(0, readers.axis), std::move(readers.problem)}});
  }
  std::vector<NodeId> order = graph.all_nodes();
  std::vector<size_t> place(graph.node_capacity(), order.size());
  for (size_t i = 0; i < order.size(); ++i) place[order[i].index] = i;
  std::stable_sort(found.begin(), found.end(), [&](const auto &a, const auto &b) {
    const auto at = [&](NodeId n) { return n.valid() ? place[n.index] : order.size(); };
    return at(a.first) < at(b.first);
  });
  std::vector<ProductWeight> weights;
  for (auto &[node, weight] : found) weights.push_back(std::move(weight));
  return weights;
}

std::optional<QuantizedWeight> quantize(const Constant &weight, int axis, const WeightFormat &format) {
  const Matrix m(weight, axis);
  const bool whole = format.block == 0 || format.block >= m.inner;
  const int64_t block = whole ? m.inner : format.block, blocks = (m.inner + block - 1) / block;
  const GridKind centered(false, format.bits), with_zeros(true, format.bits);
  const Errors errors = errors_of(m, block, centered, with_zeros);
  if (!errors.finite) return std::nullopt;
  const bool zeros = errors.with_zeros < kWorthZeros * errors.centered;
  const GridKind &kind = zeros ? with_zeros : centered;
  const ElementType type = format.bits == 8 ? (zeros ? ElementType::kUInt8 : ElementType::kInt8)
                                            : (zeros ? ElementType::kUInt4 : ElementType::kInt4);

  std::vector<uint8_t> codes = bytes_for(type, weight.count()), zero_points = bytes_for(type, blocks * m.columns),
                       scales = bytes_for(weight.type(), blocks * m.columns);
  for_blocks(m, block, [&](int64_t k0, int64_t k1, int64_t n0, int64_t lanes, const float *tile) {
    float smallest[kLanes], largest[kLanes];
    ends_of(tile, k1 - k0, lanes, smallest, largest);
    for (int64_t l = 0; l < lanes; ++l) {
      const Grid grid = kind.of(smallest[l], largest[l], weight.type());
      const int64_t at = axis == 0 ? k0 / block * m.columns + n0 + l : (n0 + l) * blocks + k0 / block;
      put_float(scales, weight.type(), at, grid.scale);
      if (zeros) put_code(zero_points, format.bits, at, static_cast<int>(grid.zero));
      for (int64_t k = k0; k < k1; ++k)
        put_code(codes, format.bits, m.flat(k, n0 + l), static_cast<int>(kind.code(tile[(k - k0) * kLanes + l], grid)));
    }
  });

  QuantizedWeight quantized;
  const std::vector<int64_t> scale_dims = whole       ? std::vector<int64_t>{m.columns}
                                          : axis == 0 ? std::vector<int64_t>{blocks, m.columns}
                                                      : std::vector<int64_t>{m.columns, blocks};
  quantized.codes = Constant::owned(type, weight.dims(), std::move(codes));
  quantized.scale = Constant::owned(weight.type(), scale_dims, std::move(scales));
  if (zeros) quantized.zero = Constant::owned(type, scale_dims, std::move(zero_points));
  quantized.axis = whole ? 1 - axis : axis;
  quantized.block = whole ? 0 : block;
  const double error = zeros ? errors.with_zeros : errors.centered;
  quantized.error = errors.weight > 0 ? std::sqrt(error / errors.weight) : 0;
  return quantized;
}

Result<int64_t> round_activations(Graph &graph, const ProductWeight &weight, const WeightFormat &format,
                                  Diagnostics &diagnostics) {
  const int64_t inner = graph.value(weight.value).constant.dims()[static_cast<size_t>(weight.axis)];
  const int64_t block = format.block == 0 ? inner : std::min(format.block, inner);
  OpInference inference;
  Rewriter rewriter(graph, inference, diagnostics);
  rewriter.set_pass("quantize");
  int64_t count = 0;
  for (NodeId product : readers_of(graph, weight.value).products) {
    const ValueId x = graph.node(product).input(0);
    const Type type = graph.value(x).type;
    if (!type.has_shape() || type.rank() < 1 || type.element != ElementType::kFloat32 ||
        graph.node(product).int_or("transA", 0) != 0)
      continue;
    auto change = rewriter.begin("quantize.activations", RewriteKind::kReplace, product);
    change.numerics(NumericsClass::kApproximating);
    const std::string name = graph.value(x).name;
    const NodeSink sink = {
        [&](std::string op, std::vector<ValueId> inputs, NodeSink::Attributes attributes) {
          return change.output(change.create(std::move(op), std::move(inputs), std::move(attributes)));
        },
        [&](Constant c) { return change.constant(name + "_blocks", std::move(c)); }};
    change.set_input(product, 0, rounded_in_blocks(sink, x, type.rank(), inner, block));
    OPTC_TRY(change.commit());
    ++count;
  }
  return count;
}

Status replace_weight(Graph &graph, const ProductWeight &weight, const QuantizedWeight &quantized,
                      Diagnostics &diagnostics) {
  const Value value = graph.value(weight.value);
  const NodeId first = graph.region(value.region).first;
  const Readers readers = readers_of(graph, weight.value);
  OpInference inference;
  Rewriter rewriter(graph, inference, diagnostics);
  rewriter.set_pass("quantize");
  auto change = rewriter.begin("quantize.weights", RewriteKind::kReplace, readers.products.front());
  change.numerics(NumericsClass::kApproximating);
  change.before(first);  // whatever reads it stands behind, in a body too
  std::vector<ValueId> operands = {change.constant(value.name + "_quantized", quantized.codes),
                                   change.constant(value.name + "_scale", quantized.scale)};
  if (quantized.zero.valid()) operands.push_back(change.constant(value.name + "_zero_point", quantized.zero));
  const NodeId node =
      change.create("DequantizeLinear", std::move(operands),
                    {{"axis", quantized.axis}, {"block_size", quantized.block}, {"output_dtype", int64_t{0}}});
  change.replace(weight.value, change.output(node));
  OPTC_TRY(change.commit());
  graph.erase_value(weight.value);
  return {};
}

}  // namespace optc
