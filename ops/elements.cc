#include "ops/elements.h"

#include <algorithm>

#include "ir/dim/saturation.h"
#include "ops/registry.h"

namespace optc {
namespace {

std::shared_ptr<const std::vector<Dim>> integers_of(const Constant &constant, bool saturate) {
  if (!constant.valid() || constant.rank() > 1 || constant.count() > kMaxElements) return nullptr;
  if (!is_integer(constant.type()) && constant.type() != ElementType::kBool) return nullptr;
  const bool wide_unsigned = constant.type() == ElementType::kUInt64;
  std::vector<Dim> dims;
  for (int64_t i = 0; i < constant.count(); ++i) {
    int64_t v = constant.as_int64(i);
    if (wide_unsigned && v < 0) v = kDimOverflow;  // 2^63 and more
    if (v >= kDimOverflow || v <= -kDimOverflow) {
      if (!saturate) return nullptr;
      v = std::clamp(v, -kDimOverflow, kDimOverflow);
    }
    dims.push_back(Dim(v));
  }
  return std::make_shared<const std::vector<Dim>>(std::move(dims));
}

// A bound of |value| when every size without a known bound is `size`; saturates.
__int128 magnitude(Dim d, int64_t size, int depth) {
  constexpr __int128 kMost = kDimOverflow;
  if (d.is_constant()) return d.value() < 0 ? -d.value() : d.value();
  if (depth > 24) return kMost;
  __int128 sum = std::abs(d.node()->constant);
  for (const DimTerm &term : d.node()->terms) {
    __int128 product = std::abs(term.coefficient);
    for (const DimAtom *atom : term.atoms) {
      __int128 factor = 0;
      switch (atom->kind) {
        case AtomKind::kSymbol:
          factor = std::clamp(size, std::min(atom->symbol->min, atom->symbol->max), atom->symbol->max);
          break;
        case AtomKind::kFloorDiv:
          factor = magnitude(atom->a, size, depth + 1);
          break;
        case AtomKind::kMod:
          factor = magnitude(atom->b, size, depth + 1);
          break;
        case AtomKind::kMin:
          if (lower_bound(atom->a) >= 0 && lower_bound(atom->b) >= 0) {
            factor = std::min(magnitude(atom->a, size, depth + 1), magnitude(atom->b, size, depth + 1));
            break;
          }
          [[fallthrough]];
        case AtomKind::kMax:
          factor = std::max(magnitude(atom->a, size, depth + 1), magnitude(atom->b, size, depth + 1));
          break;
      }
      product = std::min(product * factor, kMost);
    }
    sum = std::min(sum + product, kMost);
  }
  return sum;
}

}  // namespace

std::shared_ptr<const std::vector<Dim>> constant_elements(const Constant &constant) {
  return integers_of(constant, false);
}
std::shared_ptr<const std::vector<Dim>> constant_bounds(const Constant &constant) {
  return integers_of(constant, true);
}

std::optional<TypedElement> typed_element(ElementType type, Dim value) {
  if (is_saturated(value)) return std::nullopt;
  if (type == ElementType::kBool) return TypedElement{value, {}, {}};
  const int width = bit_width(type);
  if (!is_integer(type) || width == 0 || width > 64) return std::nullopt;
  const bool is_signed = is_signed_integer(type);
  if (value.is_constant()) {
    const int64_t v = value.value();
    if (width == 64) return is_signed || v >= 0 ? std::optional<TypedElement>({value, {}, {}}) : std::nullopt;
    const uint64_t mask = (uint64_t{1} << width) - 1;
    int64_t wrapped = static_cast<int64_t>(static_cast<uint64_t>(v) & mask);
    if (is_signed && wrapped >> (width - 1)) wrapped -= int64_t{1} << width;
    return TypedElement{Dim(wrapped), {}, {}};
  }
  const int64_t most = width == 64 ? kDimOverflow - 1 : (int64_t{1} << (is_signed ? width - 1 : width)) - 1;
  const int64_t least = is_signed ? -most - 1 : 0;
  const int64_t low = lower_bound(value), high = upper_bound(value);
  if (low >= least && high <= most) return TypedElement{value, {}, {}};
  if (width < 32 || (!is_signed && low < 0)) return std::nullopt;
  // Products of sizes in real models: four of 128 in 32 bits, six of 1024 in 64.
  if (magnitude(value, width == 32 ? 128 : 1024, 0) > most) return std::nullopt;
  TypedElement element{value, {}, {}};
  if (width == 32 && low < least) element.at_least = least;
  if (width == 32 && high > most) element.at_most = most;
  return element;
}

void set_sizes(InferContext &context, size_t output, std::vector<Dim> sizes) {
  const ValueId v = context.node().output(output);
  if (!v.valid() || sizes.size() > static_cast<size_t>(kMaxElements)) return;
  for (Dim d : sizes)
    if (is_saturated(d)) return;
  context.graph().set_elements(v, std::make_shared<const std::vector<Dim>>(std::move(sizes)));
}

}  // namespace optc
