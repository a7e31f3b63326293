// Factors of products that are dequantized in blocks along the sum.
#include "ir/program/block_view.h"

namespace optc {
namespace {

// The load behind casts that change no value of it; invalid: there is none.
ScalarId load_behind(const Program &program, ScalarId id) {
  while (id.valid() && program.scalars.at(id).op == ScalarOp::kCast) {
    const Scalar &cast = program.scalars.at(id);
    const ElementType from = program.scalars.at(cast.args[0]).type, to = cast.type;
    const int growth = bit_width(to) - bit_width(from);
    const bool exact = is_float(from)     ? is_float(to) && growth >= 0
                       : is_float(to)     ? to == ElementType::kFloat32  // the load has 8 bits at most
                       : is_integer(from) ? growth > 0 && (is_signed_integer(to) || !is_signed_integer(from))
                                          : false;
    if (!exact) return ScalarId();
    id = cast.args[0];
  }
  return id.valid() && program.scalars.at(id).op == ScalarOp::kLoad ? id : ScalarId();
}
ScalarId packed_load(const Program &program, ScalarId id) {
  const ScalarId load = load_behind(program, id);
  return load.valid() && packed_bits(program.scalars.at(load).type) > 0 ? load : ScalarId();
}
ScalarId float_load(const Program &program, ScalarId id) {
  const ScalarId load = load_behind(program, id);
  return load.valid() && is_float(program.scalars.at(load).type) ? load : ScalarId();
}

// element - zero, in int32 or in f32.
std::optional<BlockFactor> difference(const Program &program, ScalarId id) {
  BlockFactor f;
  const Scalar &outer = program.scalars.at(id);
  if (outer.op == ScalarOp::kSub) {  // of floats
    f.element = packed_load(program, outer.args[0]);
    f.zero = float_load(program, outer.args[1]);
    if (!f.element.valid() || !f.zero.valid()) return std::nullopt;
    return f;
  }
  if (outer.op != ScalarOp::kCast) return std::nullopt;
  const FactorParts parts = factor_parts(program, outer.args[0]);
  f.element = packed_load(program, parts.element);
  if (!f.element.valid() || !parts.zero.valid()) return f.element.valid() ? std::optional(f) : std::nullopt;
  if (const Scalar &zero = program.scalars.at(parts.zero); zero.op == ScalarOp::kConstant) {
    f.zero_value = static_cast<int32_t>(zero.bits);
    return f;
  }
  f.zero = packed_load(program, parts.zero);
  return f.zero.valid() ? std::optional(f) : std::nullopt;
}

// The only quotients of `d` that divide the counter itself: their divisor. 0: none; -1: several.
int64_t divisor_of(Dim d, Dim counter) {
  if (d.is_constant()) return 0;
  int64_t found = 0;
  for (const DimTerm &term : d.node()->terms)
    for (const DimAtom *atom : term.atoms) {
      if (atom->kind != AtomKind::kFloorDiv || !(atom->a == counter) || !atom->b.is_constant()) continue;
      if (found != 0 && found != atom->b.value()) return -1;
      found = atom->b.value();
    }
  return found;
}

// A load that has one value for a block and each of `loops`: strides by the loops, then by the block.
std::optional<OperandView> by_blocks(const Program &program, const Scalar &load, const std::vector<Loop> &loops,
                                     const DimSymbol *k, Dim counter, int64_t block) {
  OperandView view;
  view.buffer = load.buffer;
  view.element = load.type;
  const Dim offset = linear_offset(program.buffer(load.buffer), load.index);
  const auto at = [&](int64_t value) {
    return k ? substitute(offset,
                          [&](const DimSymbol &s) -> std::optional<Dim> {
                            return &s == k ? std::optional<Dim>(Dim(value)) : std::nullopt;
                          })
             : offset;
  };
  Dim rest = at(0);
  const Dim step = k && uses_symbol(offset, k) ? at(block) - rest : Dim(0);
  if (!(offset == rest + step * floor_div(counter, block)) || uses_any_loop(step)) return std::nullopt;
  for (const Loop &l : loops) {
    const auto part = affine_in(rest, l.index);
    if (!part || uses_any_loop(part->coefficient)) return std::nullopt;
    view.strides.push_back(part->coefficient);
    rest = part->rest;
  }
  if (uses_any_loop(rest)) return std::nullopt;
  view.offset = rest;
  view.strides.push_back(step);
  return view;
}
// The same by the block and the collapsed columns.
std::optional<OperandView> by_columns(const Program &program, const Scalar &load, const std::vector<Loop> &columns,
                                      const DimSymbol *k, Dim counter, int64_t block) {
  auto view = by_blocks(program, load, columns, k, counter, block);
  if (!view) return std::nullopt;
  const Dim step = view->strides.back();
  view->strides.pop_back();
  const auto column = uniform_stride(columns, view->strides);
  if (!column) return std::nullopt;
  view->strides = {step, *column};
  return view;
}

// The loop over the sum; null: it has one element. nullopt: there are several.
std::optional<const DimSymbol *> sum_loop(const GemmView &view) {
  const DimSymbol *k = nullptr;
  for (const Loop &l : view.k) {
    if (l.extent.is(1)) continue;
    if (k) return std::nullopt;
    k = l.index;
  }
  return k;
}

std::optional<BlockScales> block_scales(const Program &program, const BlockFactor &factor, const GemmView &view) {
  const Scalar *scale = &program.scalars.at(factor.scale);
  const Scalar *zero = factor.zero.valid() ? &program.scalars.at(factor.zero) : nullptr;
  const auto loop = sum_loop(view);
  if (!loop) return std::nullopt;
  const DimSymbol *k = *loop;
  const Dim counter = k ? program.dims->symbol_value(k) : Dim(0);
  BlockScales s;
  s.zero_value = factor.zero_value;
  s.rounded = factor.rounded;
  for (const Scalar *load : {scale, zero}) {
    if (!load) continue;
    const int64_t divisor = divisor_of(linear_offset(program.buffer(load->buffer), load->index), counter);
    if (divisor < 0 || (divisor > 0 && s.block > 1 && divisor != s.block)) return std::nullopt;
    if (divisor > 0) s.block = divisor;
  }
  if (s.block == 1) {  // one for all of the sum, or one for each of its elements: no block
    if (!view.inner.is_constant()) return std::nullopt;
    s.block = view.inner.value() > 1 ? view.inner.value() : 1;
  }
  const auto of_scale = by_columns(program, *scale, view.n, k, counter, s.block);
  const auto of_zero = zero ? by_columns(program, *zero, view.n, k, counter, s.block) : std::nullopt;
  if (!of_scale || (zero && !of_zero)) return std::nullopt;
  s.scale = *of_scale;
  if (of_zero) s.zero = *of_zero;
  return s;
}

std::optional<RowScales> row_scales(const Program &program, const BlockFactor &factor, const GemmView &view,
                                    int64_t block) {
  const auto k = sum_loop(view);
  if (!k) return std::nullopt;
  const Dim counter = *k ? program.dims->symbol_value(*k) : Dim(0);
  std::vector<Loop> loops = view.batch;
  loops.insert(loops.end(), view.m.begin(), view.m.end());
  const auto scale = by_blocks(program, program.scalars.at(factor.scale), loops, *k, counter, block);
  if (!scale) return std::nullopt;
  const auto first = scale->strides.begin() + static_cast<long>(view.batch.size());
  const auto row = uniform_stride(view.m, std::vector<Dim>(first, scale->strides.end() - 1));
  if (!row) return std::nullopt;
  return RowScales{*scale, *row};
}

}  // namespace

int packed_bits(ElementType type) {
  switch (type) {
    case ElementType::kInt8:
    case ElementType::kUInt8:
      return 8;
    case ElementType::kInt4:
    case ElementType::kUInt4:
    case ElementType::kInt2:
    case ElementType::kUInt2:
      return 4;
    default:
      return 0;
  }
}

int64_t packed_center(ElementType type) {
  return packed_bits(type) == 0 || is_signed_integer(type) ? 0 : int64_t{1} << (bit_width(type) - 1);
}

std::optional<BlockFactor> block_factor(const Program &program, ScalarId factor) {
  if (!factor.valid()) return std::nullopt;
  ElementType rounded = ElementType::kFloat32;
  const Scalar *s = &program.scalars.at(factor);
  if (s->op == ScalarOp::kCast && s->type == ElementType::kFloat32) s = &program.scalars.at(s->args[0]);
  if (s->op == ScalarOp::kCast && (s->type == ElementType::kFloat16 || s->type == ElementType::kBFloat16)) {
    rounded = s->type;
    s = &program.scalars.at(s->args[0]);
  }
  if (s->op != ScalarOp::kMul || s->type != ElementType::kFloat32) return std::nullopt;
  for (int side : {0, 1}) {
    auto f = difference(program, s->args[1 - side]);
    const ScalarId scale = float_load(program, s->args[side]);
    if (!f || !scale.valid()) continue;
    f->scale = scale;
    f->rounded = rounded;
    return f;
  }
  return std::nullopt;
}

std::optional<BlockFactor> activation_factor(const Program &program, ScalarId factor) {
  const auto f = block_factor(program, factor);
  const bool plain = f && !f->zero.valid() && f->zero_value == 0 && f->rounded == ElementType::kFloat32 &&
                     program.scalars.at(f->element).type == ElementType::kInt8 &&
                     program.scalars.at(f->scale).type == ElementType::kFloat32;
  return plain ? f : std::nullopt;
}

std::optional<BlockProduct> block_product(const Program &program, const Kernel &kernel) {
  const LoopNest *nest = kernel.nest();
  if (!nest || !nest->contraction) return std::nullopt;
  const auto factor = block_factor(program, nest->contraction->rhs);
  if (!factor) return std::nullopt;
  const auto activation = activation_factor(program, nest->contraction->lhs);
  const auto view =
      gemm_view(program, kernel, activation ? activation->element : nest->contraction->lhs, factor->element);
  const auto scales = view ? block_scales(program, *factor, *view) : std::nullopt;
  if (!scales) return std::nullopt;
  BlockProduct product{*view, *scales, {}};
  if (!activation) return product;
  const auto rows = row_scales(program, *activation, *view, scales->block);
  if (!rows) return std::nullopt;
  product.activations = *rows;
  return product;
}

}  // namespace optc
