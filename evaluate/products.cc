// Sums of products as matrix products over dense operands (see nest.h). The operands are computed by the same lanes as
// everything else, so padding, dequantization and gathers inside a factor need no case of their own.

#include <algorithm>
#include <cstring>
#include <memory>

#include "evaluate/nest.h"

namespace optc::evaluate_detail {

namespace {

constexpr int64_t kLeastProducts = 4096;          // below this the plain way is as fast
constexpr int64_t kRowBytes = int64_t{32} << 20;  // rows of lhs that are laid out at a time
constexpr double kProductsAtOnce = 6;             // in the time of an interpreted operation
constexpr int64_t kMostBytes = int64_t{4} << 30;  // of rhs for one batch, or of the results

constexpr int64_t kDepth = 256;   // of a block of k: what bounds the length of an f32 chain of additions
constexpr int64_t kColumns = 16;  // of a packed panel

typedef float F4 __attribute__((vector_size(16)));

// c[4][16] += a[4][depth] * panel[depth][16]
void multiply_tile(int64_t depth, const float *a, int64_t lda, const float *panel, float *c, int64_t ldc,
                   int64_t columns, int64_t rows) {
  F4 sum[4][4] = {};
  const float *row[4];
  for (int64_t r = 0; r < 4; ++r) row[r] = a + std::min(r, rows - 1) * lda;
  for (int64_t k = 0; k < depth; ++k) {
    F4 b[4];
    std::memcpy(b, panel + k * kColumns, sizeof(b));
    for (int r = 0; r < 4; ++r) {
      const float x = row[r][k];
      for (int j = 0; j < 4; ++j) sum[r][j] += x * b[j];
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    float line[kColumns];
    std::memcpy(line, sum[r], sizeof(line));
    for (int64_t j = 0; j < columns; ++j) c[r * ldc + j] += line[j];
  }
}

// c[m][n] = a[m][k] * b[k][n], all row-major.
void multiply(int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *c) {
  std::fill_n(c, m * n, 0.0f);
  std::vector<float> panel(static_cast<size_t>(kDepth * kColumns));
  for (int64_t k0 = 0; k0 < k; k0 += kDepth) {
    const int64_t depth = std::min(kDepth, k - k0);
    for (int64_t n0 = 0; n0 < n; n0 += kColumns) {
      const int64_t columns = std::min(kColumns, n - n0);
      for (int64_t i = 0; i < depth; ++i) {
        for (int64_t j = 0; j < columns; ++j) panel[i * kColumns + j] = b[(k0 + i) * n + n0 + j];
        for (int64_t j = columns; j < kColumns; ++j) panel[i * kColumns + j] = 0;
      }
      for (int64_t m0 = 0; m0 < m; m0 += 4)
        multiply_tile(depth, a + m0 * k + k0, k, panel.data(), c + m0 * n + n0, n, columns,
                      std::min<int64_t>(4, m - m0));
    }
  }
}

template <typename T, typename Wide>
void multiply_plain(int64_t m, int64_t n, int64_t k, const T *a, const T *b, T *c) {
  for (int64_t i = 0; i < m; ++i) {
    T *line = c + i * n;
    std::fill_n(line, n, T(0));
    for (int64_t l = 0; l < k; ++l) {
      const Wide x = static_cast<Wide>(a[i * k + l]);
      for (int64_t j = 0; j < n; ++j)
        line[j] = static_cast<T>(static_cast<Wide>(line[j]) + x * static_cast<Wide>(b[l * n + j]));
    }
  }
}

int64_t extent_of(const std::vector<LoopExtent> &loops) {
  int64_t total = 1;
  for (const LoopExtent &l : loops) total *= l.extent;
  return total;
}

// A dense array of a scalar over batch, rows and columns.
struct Operand {
  std::unique_ptr<StagePlan> plan;
  bool masked = false;
  int64_t cell = 4;

  bool make(PlanContext &context, const std::vector<std::vector<LoopExtent>> &groups, ScalarId value,
            ScalarId condition, ElementType type) {
    std::vector<PlanLoop> loops;
    for (const auto &group : groups)
      for (const LoopExtent &l : group) loops.push_back({l.symbol, l.extent, true});
    plan = std::make_unique<StagePlan>(context, loops);
    masked = condition.valid();
    cell = cell_bytes(type);
    if (!plan->add_dense(value, condition, type)) return false;
    plan->finish(std::vector<bool>(loops.size(), true), {});
    plan->begin(0, static_cast<int>(std::min<int64_t>(kLanes, plan->lane_count())));
    return true;
  }
  bool compute(int64_t first, int64_t last, uint8_t *data) {
    if (masked) std::memset(data, 0, static_cast<size_t>((last - first) * cell));
    plan->set_dense_origin(first, data);
    for (int64_t at = first; at < last; at += kLanes)
      if (!plan->run(at, static_cast<int>(std::min<int64_t>(kLanes, last - at)))) return false;
    return true;
  }
};

bool is_zero(const Program &program, ScalarId id) {
  const Scalar &s = program.scalars.at(id);
  return s.op == ScalarOp::kConstant && s.bits == 0;
}

}  // namespace

std::optional<NestResult> precompute_products(PlanContext &context, const std::vector<LoopExtent> &outer,
                                              const std::vector<LoopExtent> &loops, const StageOutput &output,
                                              const Local &local, const std::vector<int64_t> &local_dims,
                                              PlanContext::Precomputed &out,
                                              std::vector<std::shared_ptr<Block>> &memory, std::string &error) {
  const Program &program = context.program();
  if (output.combine != Combine::kSum) return std::nullopt;
  const Scalar &value = program.scalars.at(output.value);
  if (value.op != ScalarOp::kMul || value.type != local.type) return std::nullopt;
  ElementType cell;
  if (value.type == ElementType::kFloat32 || value.type == ElementType::kFloat64)
    cell = value.type;
  else if (is_integer(value.type))
    cell = ElementType::kInt64;
  else
    return std::nullopt;
  const ScalarId lhs = value.args[0], rhs = value.args[1];

  // The loops that index the local; the others are summed over.
  if (output.index.size() != local_dims.size()) return std::nullopt;
  std::vector<LoopExtent> index_loops, inner;
  for (size_t k = 0; k < output.index.size(); ++k) {
    const DimSymbol *symbol = single_symbol(output.index[k]);
    auto at = std::find_if(loops.begin(), loops.end(), [symbol](const LoopExtent &l) { return l.symbol == symbol; });
    if (!symbol || at == loops.end() || at->extent != local_dims[k]) return std::nullopt;
    for (const LoopExtent &l : index_loops)
      if (l.symbol == symbol) return std::nullopt;
    index_loops.push_back(*at);
  }
  for (const LoopExtent &l : loops) {
    bool indexes = false;
    for (const LoopExtent &i : index_loops) indexes = indexes || i.symbol == l.symbol;
    if (!indexes) inner.push_back(l);
  }
  const int64_t depth = extent_of(inner);
  if (depth == 0 || extent_of(outer) * extent_of(loops) < kLeastProducts) return std::nullopt;

  Uses left, right, condition, initial;
  collect_uses(program, lhs, left);
  collect_uses(program, rhs, right);
  if (output.condition.valid()) collect_uses(program, output.condition, condition);
  const bool starts = output.initial.valid() && !is_zero(program, output.initial);
  if (starts) collect_uses(program, output.initial, initial);
  for (const Uses *uses : {&left, &right, &condition, &initial})
    if (!uses->locals.empty()) return std::nullopt;
  auto covers = [&inner](const Uses &side, const Uses &other) {
    return std::all_of(other.loops.begin(), other.loops.end(), [&](const DimSymbol *s) {
      return side.has_loop(s) ||
             std::any_of(inner.begin(), inner.end(), [s](const LoopExtent &l) { return l.symbol == s; });
    });
  };
  const bool condition_right = output.condition.valid() && !covers(left, condition) && covers(right, condition);

  std::vector<LoopExtent> batch, rows, columns;
  std::vector<LoopExtent> free = outer;
  free.insert(free.end(), index_loops.begin(), index_loops.end());
  for (const LoopExtent &l : free) {
    const bool in_left = left.has_loop(l.symbol) || (!condition_right && condition.has_loop(l.symbol));
    bool in_right = right.has_loop(l.symbol) || (condition_right && condition.has_loop(l.symbol));
    if (!in_left && initial.has_loop(l.symbol)) in_right = true;
    if (in_left && in_right)
      batch.push_back(l);
    else if (in_left)
      rows.push_back(l);
    else if (in_right)
      columns.push_back(l);
  }
  const int64_t batches = extent_of(batch), m = extent_of(rows), n = extent_of(columns);
  const int64_t width = cell_bytes(cell);
  if (n * depth > kMostBytes / width || batches * m * n > kMostBytes / width) return std::nullopt;

  Operand a, b, start;
  auto fault = [&](const Operand &operand) {
    error = operand.plan->error();
    return operand.plan->internal_error() ? NestResult::kInternal : NestResult::kFault;
  };
  if (!a.make(context, {batch, rows, inner}, lhs, condition_right ? ScalarId() : output.condition, cell))
    return std::nullopt;
  if (!b.make(context, {batch, inner, columns}, rhs, condition_right ? output.condition : ScalarId(), cell))
    return std::nullopt;
  const double batch_sums = static_cast<double>(batches) * static_cast<double>(m) * static_cast<double>(n),
               batch_elements = static_cast<double>(batches) * static_cast<double>(depth);
  if (!context.spend(batch_sums * static_cast<double>(depth) / kProductsAtOnce +
                     batch_elements * static_cast<double>(m) * a.plan->operations() +
                     batch_elements * static_cast<double>(n) * b.plan->operations()))
    return NestResult::kSaid;
  const int64_t chunk = std::clamp<int64_t>(kRowBytes / (depth * width), 1, m);
  auto block_a = make_block(cell, chunk * depth), block_b = make_block(cell, depth * n),
       block_c = make_block(cell, batches * m * n);
  if (!block_a || !block_b || !block_c) return std::nullopt;
  for (int64_t i = 0; i < batches; ++i) {
    if (!b.compute(i * depth * n, (i + 1) * depth * n, block_b->data)) return fault(b);
    for (int64_t r = 0; r < m; r += chunk) {
      const int64_t count = std::min(chunk, m - r);
      if (!a.compute((i * m + r) * depth, (i * m + r + count) * depth, block_a->data)) return fault(a);
      uint8_t *c = block_c->data + (i * m + r) * n * width;
      if (cell == ElementType::kFloat32) {
        multiply(count, n, depth, reinterpret_cast<float *>(block_a->data), reinterpret_cast<float *>(block_b->data),
                 reinterpret_cast<float *>(c));
      } else if (cell == ElementType::kFloat64) {
        multiply_plain<double, double>(count, n, depth, reinterpret_cast<double *>(block_a->data),
                                       reinterpret_cast<double *>(block_b->data), reinterpret_cast<double *>(c));
      } else {
        multiply_plain<int64_t, uint64_t>(count, n, depth, reinterpret_cast<int64_t *>(block_a->data),
                                          reinterpret_cast<int64_t *>(block_b->data), reinterpret_cast<int64_t *>(c));
      }
    }
  }
  if (starts) {
    const int64_t count = batches * m * n;
    auto block = make_block(cell, count);
    if (!block || !start.make(context, {batch, rows, columns}, output.initial, ScalarId(), cell)) return std::nullopt;
    if (!start.compute(0, count, block->data)) return fault(start);
    auto add = [count](auto *to, const auto *from) {
      for (int64_t i = 0; i < count; ++i) to[i] += from[i];
    };
    if (cell == ElementType::kFloat32)
      add(reinterpret_cast<float *>(block_c->data), reinterpret_cast<float *>(block->data));
    else if (cell == ElementType::kFloat64)
      add(reinterpret_cast<double *>(block_c->data), reinterpret_cast<double *>(block->data));
    else
      add(reinterpret_cast<uint64_t *>(block_c->data), reinterpret_cast<uint64_t *>(block->data));
  }

  out.array.type = cell;
  out.array.data = block_c->data;
  out.array.name = local.name;
  out.array.dims = local_dims;
  memory.push_back(std::move(block_c));
  int64_t stride = 1;
  std::vector<std::pair<const DimSymbol *, int64_t>> strides;
  for (const std::vector<LoopExtent> *group : {&columns, &rows, &batch}) {
    for (size_t k = group->size(); k-- > 0;) {
      strides.emplace_back((*group)[k].symbol, stride);
      stride *= (*group)[k].extent;
    }
  }
  auto stride_of = [&strides](const DimSymbol *symbol) {
    for (const auto &[s, value_stride] : strides)
      if (s == symbol) return value_stride;
    return int64_t{0};
  };
  for (const LoopExtent &l : outer) out.outer.emplace_back(l.symbol, stride_of(l.symbol));
  for (const LoopExtent &l : index_loops) out.array.strides.push_back(stride_of(l.symbol));
  return NestResult::kDone;
}

}  // namespace optc::evaluate_detail
