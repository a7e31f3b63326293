#include "driver/kernel_compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "ir/program/cover.h"

namespace optc {
namespace {

// Visits every scalar of a nest, through the scalars behind indices too.
template <typename F>
void each_scalar(const Program &program, const LoopNest &nest, const F &visit) {
  std::unordered_set<uint32_t> seen;
  std::vector<ScalarId> pending;
  auto push = [&](ScalarId id) {
    if (id.valid() && seen.insert(id.index).second) pending.push_back(id);
  };
  auto push_dims = [&](const std::vector<Dim> &dims) {
    std::vector<const DimSymbol *> symbols;
    for (const Dim d : dims) collect_symbols(d, symbols);
    for (const DimSymbol *s : symbols)
      if (s->kind == SymbolKind::kScalar) push(ScalarId(size_t{s->scalar}));
  };
  for (const Stage &stage : nest.stages) {
    for (const StageOutput &o : stage.outputs) {
      push(o.value);
      push(o.initial);
      push(o.condition);
      push_dims(o.index);
    }
  }
  while (!pending.empty()) {
    const Scalar &s = program.scalars.at(pending.back());
    pending.pop_back();
    visit(s);
    for (int i = 0; i < arity(s.op); ++i) push(s.args[i]);
    push_dims(s.index);
    if (s.op == ScalarOp::kIndex) push_dims({s.index_value});
  }
}

// The spacing of a type's numbers above 1; of a complex type its parts'.
double spacing(ElementType type) {
  switch (type) {
    case ElementType::kFloat64:
    case ElementType::kComplex128:
      return 0x1p-52;
    case ElementType::kFloat32:
    case ElementType::kComplex64:
      return 0x1p-23;
    case ElementType::kFloat16:
      return 0x1p-10;
    case ElementType::kBFloat16:
      return 0x1p-7;
    default:
      return 0x1p-3;  // float8e4m3; so float8e5m2 may be one of its steps away
  }
}

// Relative to the range. The evaluator adds in f64, a bundle in f32 (of f64 tensors in f64), so a sum of n terms is off
// by some multiple of sqrt(n) roundings. The products of real networks stay below 0.6 * sqrt(n), averages of terms that
// cancel below 3.5 * sqrt(n) (those of mobilenet_v3_large: 90 roundings at 784 terms); 16 * sqrt(n) leaves room for
// four times as much. 64 roundings are for functions (a few units in the last place each) and for what a kernel does
// with sums afterwards. Winograd's transforms enlarge roundings by a factor of about 10 in products, which are far from
// that bound: 4 here. A narrow type may fall to the other side of a rounding, twice. Operands in TF32 (10 bits) move a
// product by up to 2^-10, sums of them by as much of the range or less: 8 roundings of 2^-11.
double tolerance(ElementType type, const Exactness &exactness) {
  if (exactness.kind == Exactness::Kind::kExact) return 0;
  const double rounding = std::min(spacing(type), 0x1p-23) / 2;
  const double factor = exactness.kind == Exactness::Kind::kWinograd ? 4 : 1;
  const double arithmetic =
      factor * (64 + 16 * std::sqrt(exactness.terms)) * rounding + (exactness.tf32 ? 8 * 0x1p-11 : 0);
  return spacing(type) > 0x1p-23 ? std::max(arithmetic, 2 * spacing(type)) : arithmetic;
}

// The most terms that a stage adds up for one element.
double terms_of(const Stage &stage, const StageOutput &output, const DimValues &values) {
  std::vector<const DimSymbol *> kept;
  for (const Dim d : output.index) collect_symbols(d, kept);
  double terms = 1;
  for (const Loop &loop : stage.loops)
    if (std::find(kept.begin(), kept.end(), loop.index) == kept.end())
      terms *= static_cast<double>(std::max<int64_t>(1, evaluate(loop.extent, values).value_or(1)));
  return terms;
}

double element(const Constant &tensor, int64_t i) {
  if (tensor.type() == ElementType::kComplex64) return tensor.as<float>()[i];
  if (tensor.type() == ElementType::kComplex128) return tensor.as<double>()[i];
  return tensor.as_double(i);
}

std::string index_text(const std::vector<int64_t> &dims, int64_t at) {
  std::string text;
  for (size_t k = dims.size(); k-- > 0;) {
    text = std::to_string(at % dims[k]) + (text.empty() ? "" : ",") + text;
    at /= dims[k];
  }
  return "[" + text + "]";
}

}  // namespace

Exactness exactness_of(const Program &program, const Kernel &kernel, const DimValues &values) {
  using Kind = Exactness::Kind;
  if (kernel.library()) {  // of what it may add up, the longest is an input's elements
    double terms = 1;
    for (const BufferId b : reads(program, kernel)) {
      if (!program.buffer(b).type.is_tensor()) continue;
      double count = 1;
      for (const Dim d : program.buffer(b).shape()) count *= static_cast<double>(evaluate(d, values).value_or(1));
      terms = std::max(terms, count);
    }
    return {Kind::kSums, terms};
  }
  const LoopNest *nest = kernel.nest();
  if (!nest) return {};
  Exactness exactness;
  for (const Stage &stage : nest->stages) {
    for (const StageOutput &o : stage.outputs) {
      const ElementType type = o.value.valid() ? program.scalars.at(o.value).type : ElementType::kUndefined;
      if ((!is_float(type) && !is_complex(type)) || (o.combine != Combine::kSum && o.combine != Combine::kProduct))
        continue;
      exactness = {Kind::kSums, std::max(exactness.terms, terms_of(stage, o, values))};
    }
  }
  if (std::holds_alternative<ConvolutionWinogradSchedule>(kernel.schedule)) exactness.kind = Kind::kWinograd;
  if (exactness.kind == Kind::kExact)
    each_scalar(program, *nest, [&](const Scalar &s) {
      if (is_transcendental(s.op)) exactness.kind = Kind::kFunctions;
    });
  return exactness;
}

KernelDifference compare_elements(const Constant &got, const Constant &expected, const Exactness &exactness) {
  KernelDifference result;
  if (got.type() != expected.type() || got.dims() != expected.dims()) {
    result.problem = "dims " + to_string(got.shape()) + ", expected " + to_string(expected.shape());
    result.differing = result.count = 1;
    return result;
  }
  const ElementType type = expected.type();
  const bool complex = is_complex(type), real = is_float(type) || complex;
  result.count = expected.count();
  const int64_t numbers = complex ? 2 * result.count : result.count;
  if (got.size() == expected.size() && (got.size() == 0 || std::memcmp(got.data(), expected.data(), got.size()) == 0))
    return result;
  if (real)
    for (int64_t i = 0; i < numbers; ++i)
      if (const double e = element(expected, i); std::isfinite(e)) result.range = std::max(result.range, std::fabs(e));
  result.allowed =
      real ? tolerance(type, exactness) * result.range
           : (bit_width(type) == 8 && type != ElementType::kBool && exactness.kind != Exactness::Kind::kExact ? 1 : 0);
  double worst = -1;
  for (int64_t i = 0; i < numbers; ++i) {
    double difference;
    if (!real && bit_width(type) == 64) {  // beyond a double's precision
      const int64_t g = got.as<int64_t>()[i], e = expected.as<int64_t>()[i];
      if (g == e) continue;
      difference = std::max(1.0, std::fabs(static_cast<double>(g) - static_cast<double>(e)));
    } else {
      const double g = element(got, i), e = element(expected, i);
      if (g == e || (std::isnan(g) && std::isnan(e))) continue;
      difference = std::isfinite(g) && std::isfinite(e) ? std::fabs(g - e) : INFINITY;
      if (std::isfinite(difference)) result.largest = std::max(result.largest, difference);
      if (difference <= result.allowed) continue;
    }
    ++result.differing;
    if (difference <= worst) continue;
    worst = difference;
    result.got = element(got, i);
    result.expected = element(expected, i);
    result.index = index_text(expected.dims(), complex ? i / 2 : i);
  }
  return result;
}

std::optional<std::vector<IndexBox>> written_elements(const Kernel &kernel, BufferId buffer, const DimValues &values) {
  const LoopNest *nest = kernel.nest();
  if (!nest) return std::nullopt;
  std::vector<IndexBox> written;
  for (const Stage &stage : nest->stages)
    for (const StageOutput &o : stage.outputs) {
      if (o.buffer != buffer) continue;
      std::vector<Loop> loops = nest->loops;
      loops.insert(loops.end(), stage.loops.begin(), stage.loops.end());
      const auto box = o.condition.valid() ? std::nullopt : box_of(loops, o.index);
      if (!box) return std::nullopt;
      IndexBox numbers;
      for (const Span &span : *box) {
        const auto begin = evaluate(span.begin, values), length = evaluate(span.length, values);
        if (!begin || !length) return std::nullopt;
        numbers.emplace_back(*begin, *begin + *length);
      }
      written.push_back(std::move(numbers));
    }
  return written;
}

namespace {

bool inside(const IndexBox &box, const std::vector<int64_t> &dims, int64_t at) {
  for (size_t k = dims.size(); k-- > 0; at /= dims[k])
    if (k >= box.size() || at % dims[k] < box[k].first || at % dims[k] >= box[k].second) return false;
  return true;
}

}  // namespace

Specials find_specials(const Constant &value, const std::optional<std::vector<IndexBox>> &where) {
  Specials found;
  if (!is_float(value.type())) return found;
  const auto asked = [&](int64_t i) {
    return !where ||
           std::any_of(where->begin(), where->end(), [&](const IndexBox &box) { return inside(box, value.dims(), i); });
  };
  for (int64_t i = 0; i < value.count() && !(found.nan && found.infinity); ++i) {
    const double v = value.as_double(i);
    if (std::isfinite(v) || !asked(i)) continue;
    if (std::isnan(v) && !found.nan) found.nan = true, found.nan_index = index_text(value.dims(), i);
    if (std::isinf(v) && !found.infinity) found.infinity = true, found.infinity_index = index_text(value.dims(), i);
  }
  return found;
}

bool has_infinite_constant(const Program &program, const Kernel &kernel) {
  bool found = false;
  if (const LoopNest *nest = kernel.nest()) {
    each_scalar(program, *nest, [&](const Scalar &s) {
      if (s.op != ScalarOp::kConstant || !is_float(s.type)) return;
      std::vector<uint8_t> bytes(sizeof(s.bits));
      std::memcpy(bytes.data(), &s.bits, sizeof(s.bits));
      bytes.resize(static_cast<size_t>(storage_bytes(s.type, 1).value_or(8)));
      found = found || std::isinf(Constant::owned(s.type, {}, std::move(bytes)).as_double(0));
    });
  }
  return found;
}

}  // namespace optc
