#include "ir/program/contraction_view.h"

#include <algorithm>

namespace optc {
namespace {

ScalarId strip_casts(const Program &program, ScalarId id) {
  while (id.valid() && program.scalars.at(id).op == ScalarOp::kCast) {
    const Scalar &cast = program.scalars.at(id);
    const ElementType from = program.scalars.at(cast.args[0]).type;
    const bool widens = is_float(from) == is_float(cast.type) && bit_width(cast.type) >= bit_width(from);
    if (!widens) break;
    id = cast.args[0];
  }
  return id;
}

const Loop *find_loop(const LoopNest &nest, const DimSymbol *symbol) {
  for (const Loop &l : nest.loops)
    if (l.index == symbol) return &l;
  for (const Stage &s : nest.stages)
    for (const Loop &l : s.loops)
      if (l.index == symbol) return &l;
  return nullptr;
}

bool gather(const LoopNest &nest, const std::vector<const DimSymbol *> &symbols, std::vector<Loop> &out) {
  for (const DimSymbol *s : symbols) {
    const Loop *l = find_loop(nest, s);
    if (!l) continue;  // a loop of extent 1 that was removed
    out.push_back(*l);
  }
  return true;
}

// The length of spatial dimension i of a convolution's result.
Dim outputs_of(const Contraction &c, size_t i, Dim in) {
  const int64_t reach = (c.kernel[i] - 1) * c.dilations[i] + 1;
  if (c.transposed) return (in - 1) * c.strides[i] + (reach - c.pads_begin[i] - c.pads_end[i]);
  return floor_div(in + c.pads_begin[i] + c.pads_end[i] - reach, c.strides[i]) + 1;
}

// Whether a convolution's factors are loads of the operands in their own form, [n, c, space...] and [filter, c,
// kernel...] (transposed: [c, filter, kernel...]): each index is what the roles of the loops and the buffer's dims say
// it must be. A loop of extent 1 is absent; which one that is, only the dims tell. The same elements under another
// shape (a view, read through) fail.
bool reads_operands_themselves(const Program &program, const LoopNest &nest, const Scalar &x, const Scalar &f) {
  const Contraction &c = *nest.contraction;
  const Shape &in = program.buffer(x.buffer).shape(), &weight = program.buffer(f.buffer).shape();
  const size_t spatial = c.kernel.size();
  if (in.size() != spatial + 2 || weight.size() != spatial + 2) return false;
  const bool grouped = c.group > 1;
  // Of a group.
  const Dim first = grouped ? floor_div(weight[0], c.group) : weight[0];
  const Dim filters = c.transposed ? weight[1] : first, channels = c.transposed ? first : weight[1];
  if (!(in[1] == channels * c.group)) return false;
  bool complete = true;
  auto next = [&](const std::vector<const DimSymbol *> &role, size_t &at, bool unit) {
    if (unit) return Dim(0);
    complete = complete && at < role.size();
    return complete ? program.dims->symbol_value(role[at++]) : Dim(0);
  };
  size_t batch = 0, pixel = 0, column = 0, inner = 0;
  const Dim n = next(c.batch, batch, in[0].is(1)), g = next(c.batch, batch, !grouped);
  const Dim m = next(c.n, column, filters.is(1)), channel = next(c.k, inner, channels.is(1));
  const Dim input_channel = g * channels + channel;
  bool same = x.index[0] == n && x.index[1] == input_channel &&
              f.index[0] == (c.transposed ? input_channel : g * filters + m) &&
              f.index[1] == (c.transposed ? m : channel);
  for (size_t i = 0; i < spatial; ++i) {
    const Dim k = next(c.k, inner, c.kernel[i] == 1), outputs = outputs_of(c, i, in[2 + i]);
    const Dim o = next(c.m, pixel, outputs.is(1));
    const Dim at = c.transposed ? floor_div(o + c.pads_begin[i] - k * c.dilations[i], c.strides[i])
                                : o * c.strides[i] + k * c.dilations[i] - c.pads_begin[i];
    const Dim stays = max(min(at, in[2 + i] - 1), 0);
    same = same && f.index[2 + i] == k && weight[2 + i].is(c.kernel[i]) &&
           (x.index[2 + i] == at || x.index[2 + i] == stays);
    // An index that stays inside by itself does not name the dim: the number of outputs does.
    if (const Loop *loop = o.is(0) ? nullptr : find_loop(nest, single_symbol(o)))
      same = same && loop->extent == outputs;
  }
  return same && complete && batch == c.batch.size() && pixel == c.m.size() && column == c.n.size() &&
         inner == c.k.size();
}

}  // namespace

bool uses_any_loop(Dim d) {
  std::vector<const DimSymbol *> symbols;
  collect_symbols(d, symbols);
  for (const DimSymbol *s : symbols)
    if (s->kind == SymbolKind::kLoop || s->kind == SymbolKind::kScalar) return true;
  return false;
}

std::optional<OperandView> affine_operand(const Program &program, ScalarId scalar, const std::vector<Loop> &loops) {
  scalar = strip_casts(program, scalar);
  if (!scalar.valid() || program.scalars.at(scalar).op != ScalarOp::kLoad) return std::nullopt;
  const Scalar &load = program.scalars.at(scalar);
  OperandView view;
  view.buffer = load.buffer;
  view.element = load.type;
  Dim rest = linear_offset(program.buffer(load.buffer), load.index);
  for (const Loop &l : loops) {
    const auto part = affine_in(rest, l.index);
    if (!part || uses_any_loop(part->coefficient)) return std::nullopt;
    view.strides.push_back(part->coefficient);
    rest = part->rest;
  }
  if (uses_any_loop(rest)) return std::nullopt;
  view.offset = rest;
  return view;
}

FactorParts factor_parts(const Program &program, ScalarId factor) {
  const Scalar &s = program.scalars.at(factor);
  if (s.op != ScalarOp::kSub || s.type != ElementType::kInt32) return {factor, ScalarId()};
  return {s.args[0], s.args[1]};
}

std::optional<Dim> uniform_stride(const std::vector<Loop> &loops, const std::vector<Dim> &strides) {
  std::optional<Dim> inner;
  Dim span = 1;  // extent of everything inside
  for (size_t i = loops.size(); i-- > 0;) {
    if (loops[i].extent.is(1)) continue;
    if (!inner)
      inner = strides[i];
    else if (!(strides[i] == *inner * span))
      return std::nullopt;
    span = span * loops[i].extent;
  }
  return inner ? *inner : Dim(0);
}

Dim total_extent(const std::vector<Loop> &loops) {
  Dim total = 1;
  for (const Loop &l : loops) total = total * l.extent;
  return total;
}

namespace {

const LoopNest *product_nest(const Kernel &kernel) {
  const LoopNest *nest = kernel.nest();
  return nest && nest->contraction && nest->contraction->kind == ContractionKind::kMatMul ? nest : nullptr;
}

}  // namespace

std::optional<GemmView> gemm_view(const Program &program, const Kernel &kernel) {
  const LoopNest *nest = product_nest(kernel);
  if (!nest) return std::nullopt;
  const Contraction &c = *nest->contraction;
  return gemm_view(program, kernel, factor_parts(program, c.lhs).element, factor_parts(program, c.rhs).element);
}

std::optional<GemmView> gemm_view(const Program &program, const Kernel &kernel, ScalarId lhs, ScalarId rhs) {
  const LoopNest *nest = product_nest(kernel);
  if (!nest) return std::nullopt;
  const Contraction &c = *nest->contraction;
  GemmView view;
  std::vector<Loop> m;
  gather(*nest, c.batch, view.batch);
  gather(*nest, c.m, m);
  gather(*nest, c.n, view.n);
  gather(*nest, c.k, view.k);
  auto join = [](std::initializer_list<const std::vector<Loop> *> lists) {
    std::vector<Loop> all;
    for (const auto *l : lists) all.insert(all.end(), l->begin(), l->end());
    return all;
  };
  const auto all_a = affine_operand(program, lhs, join({&view.batch, &m, &view.k}));
  const auto all_b = affine_operand(program, rhs, join({&view.batch, &view.k, &view.n}));
  if (!all_a || !all_b) return std::nullopt;
  // A batch loop that b does not use is rows: [B, S, K] x [K, N]. Kept outermost, in order, as long as rows stay one
  // stride.
  std::vector<Loop> rows = m;
  std::vector<Dim> row_strides(all_a->strides.begin() + static_cast<long>(view.batch.size()),
                               all_a->strides.begin() + static_cast<long>(view.batch.size() + m.size()));
  std::vector<bool> moved(view.batch.size(), false);
  for (size_t i = view.batch.size(); i-- > 0;) {
    if (!all_b->strides[i].is(0)) continue;
    std::vector<Loop> longer = rows;
    std::vector<Dim> strides = row_strides;
    longer.insert(longer.begin(), view.batch[i]);
    strides.insert(strides.begin(), all_a->strides[i]);
    if (!uniform_stride(longer, strides)) continue;
    rows = std::move(longer);
    row_strides = std::move(strides);
    moved[i] = true;
  }
  // Rows that do not collapse: the outer ones become batch.
  while (!uniform_stride(rows, row_strides)) {
    if (rows.empty()) return std::nullopt;
    view.batch.push_back(rows.front());
    moved.push_back(false);
    rows.erase(rows.begin());
    row_strides.erase(row_strides.begin());
  }
  std::vector<Loop> batch;
  for (size_t i = 0; i < view.batch.size(); ++i)
    if (!moved[i]) batch.push_back(view.batch[i]);
  view.batch = std::move(batch);
  view.m = std::move(rows);
  view.a = *affine_operand(program, lhs, join({&view.batch, &view.m, &view.k}));
  view.b = *affine_operand(program, rhs, join({&view.batch, &view.k, &view.n, &view.m}));
  // b must not depend on rows.
  const size_t b_used = view.batch.size() + view.k.size() + view.n.size();
  for (size_t i = b_used; i < view.b.strides.size(); ++i)
    if (!view.b.strides[i].is(0)) return std::nullopt;
  view.b.strides.resize(b_used);
  auto part = [](const std::vector<Dim> &all, size_t from, size_t count) {
    return std::vector<Dim>(all.begin() + static_cast<long>(from), all.begin() + static_cast<long>(from + count));
  };
  const size_t nb = view.batch.size();
  const auto a_row = uniform_stride(view.m, part(view.a.strides, nb, view.m.size()));
  const auto a_inner = uniform_stride(view.k, part(view.a.strides, nb + view.m.size(), view.k.size()));
  const auto b_inner = uniform_stride(view.k, part(view.b.strides, nb, view.k.size()));
  const auto b_column = uniform_stride(view.n, part(view.b.strides, nb + view.k.size(), view.n.size()));
  if (!a_row || !a_inner || !b_inner || !b_column) return std::nullopt;
  view.a_row = *a_row;
  view.a_inner = *a_inner;
  view.b_inner = *b_inner;
  view.b_column = *b_column;
  view.rows = total_extent(view.m);
  view.columns = total_extent(view.n);
  view.inner = total_extent(view.k);
  return view;
}

namespace {

std::optional<ZeroPoint> zero_point(const Program &program, ScalarId zero, const std::vector<Loop> &batch,
                                    const std::vector<Loop> &loops) {
  ZeroPoint point;
  if (!zero.valid()) return point;
  if (const Scalar &s = program.scalars.at(zero); s.op == ScalarOp::kConstant) {
    point.value = static_cast<int32_t>(s.bits);
    return point;
  }
  std::vector<Loop> all = batch;
  all.insert(all.end(), loops.begin(), loops.end());
  const auto view = affine_operand(program, zero, all);
  if (!view || !is_byte(view->element)) return std::nullopt;
  point.from = *view;
  const auto first = view->strides.begin() + static_cast<long>(batch.size());
  const auto step = uniform_stride(loops, std::vector<Dim>(first, view->strides.end()));
  if (!step) return std::nullopt;
  point.step = *step;
  return point;
}

}  // namespace

namespace {

// The product is one of int32: a cast of its factors to floats makes it another.
bool sums_integers(const Program &program, const LoopNest &nest) {
  const Contraction &c = *nest.contraction;
  for (ScalarId id : {c.lhs, c.rhs, nest.stages[c.stage].outputs[0].value})
    if (program.scalars.at(id).type != ElementType::kInt32) return false;
  return true;
}

std::optional<ZeroPoints> zero_points(const Program &program, const Contraction &c, const std::vector<Loop> &batch,
                                      const std::vector<Loop> &rows, const std::vector<Loop> &columns) {
  const auto a = zero_point(program, factor_parts(program, c.lhs).zero, batch, rows),
             b = zero_point(program, factor_parts(program, c.rhs).zero, batch, columns);
  if (!a || !b) return std::nullopt;
  return ZeroPoints{*a, *b};
}

}  // namespace

std::optional<ZeroPoints> zero_points(const Program &program, const Kernel &kernel, const GemmView &view) {
  if (!sums_integers(program, *kernel.nest()) || !is_byte(view.a.element) || !is_byte(view.b.element))
    return std::nullopt;
  return zero_points(program, *kernel.nest()->contraction, view.batch, view.m, view.n);
}

std::optional<ZeroPoints> zero_points(const Program &program, const Kernel &kernel, const ConvolutionView &view) {
  if (!view.integer || !is_byte(program.buffer(view.input).element()) ||
      !is_byte(program.buffer(view.weight).element()))
    return std::nullopt;
  const LoopNest &nest = *kernel.nest();
  auto zeros = zero_points(program, *view.info, {}, pixel_loops(nest), column_loops(nest));
  // A pixel outside the image has the zero point as its byte: one for all.
  if (!zeros || !zeros->a.step.is(0)) return std::nullopt;
  return zeros;
}

bool widens(const GemmView &view) {
  const bool narrow = bit_width(view.a.element) < 32 || bit_width(view.b.element) < 32;
  return narrow || !(view.a_inner.is(1) || view.inner.is(1));
}

std::optional<ConvolutionView> convolution_view(const Program &program, const Kernel &kernel) {
  const LoopNest *nest = kernel.nest();
  if (!nest || !nest->contraction || nest->contraction->kind != ContractionKind::kConvolution) return std::nullopt;
  const Contraction &c = *nest->contraction;
  auto only_load = [&](ScalarId root) -> const Scalar * {
    std::vector<ScalarId> loads;
    collect_loads(program, factor_parts(program, root).element, loads);
    return loads.size() == 1 ? &program.scalars.at(loads[0]) : nullptr;
  };
  const Scalar *x = only_load(c.lhs), *f = only_load(c.rhs);
  if (!x || !f || !reads_operands_themselves(program, *nest, *x, *f)) return std::nullopt;
  ConvolutionView view;
  view.info = &c;
  view.integer = sums_integers(program, *nest);
  view.input = x->buffer;
  view.weight = f->buffer;
  const Shape &in = program.buffer(view.input).shape(), &w = program.buffer(view.weight).shape();
  const size_t spatial = c.kernel.size();
  view.batch = in[0];
  view.in_channels = in[1];
  view.out_channels = c.transposed ? w[1] * c.group : w[0];
  for (size_t i = 0; i < spatial; ++i) {
    view.in_spatial.push_back(in[2 + i]);
    view.out_spatial.push_back(outputs_of(c, i, in[2 + i]));
  }
  for (const StageOutput &o : nest->stages.back().outputs) {
    if (!o.buffer.valid() || (view.output.valid() && view.output != o.buffer)) {
      view.output = BufferId();
      break;
    }
    view.output = o.buffer;
  }
  return view;
}

std::vector<Loop> column_loops(const LoopNest &nest) {
  std::vector<Loop> loops;
  const Contraction &c = *nest.contraction;
  if (c.kind == ContractionKind::kConvolution && c.group > 1) gather(nest, {c.batch.back()}, loops);
  gather(nest, c.n, loops);
  return loops;
}

std::vector<Loop> pixel_loops(const LoopNest &nest) {
  std::vector<Loop> loops;
  const Contraction &c = *nest.contraction;
  // The group, where there is one, is the last batch loop; the image is absent when there is but one.
  gather(nest, {c.batch.begin(), c.batch.end() - (c.group > 1 ? 1 : 0)}, loops);
  gather(nest, c.m, loops);
  return loops;
}

bool epilogue_is_row_wise(const Program &program, const Kernel &kernel) {
  const LoopNest *nest = kernel.nest();
  if (!nest || !nest->contraction) return false;
  const std::vector<Loop> columns = column_loops(*nest);
  auto good = [&](const Buffer &buffer, const std::vector<Dim> &index) {
    Dim rest = linear_offset(buffer, index);
    std::vector<Dim> strides;
    for (const Loop &l : columns) {
      const auto part = affine_in(rest, l.index);
      if (!part || uses_any_loop(part->coefficient)) return false;
      strides.push_back(part->coefficient);
      rest = part->rest;
    }
    const auto stride = uniform_stride(columns, strides);
    return stride && (stride->is(0) || stride->is(1));
  };
  for (size_t s = nest->contraction->stage + 1; s < nest->stages.size(); ++s) {
    for (const StageOutput &o : nest->stages[s].outputs) {
      if (o.buffer.valid() && !good(program.buffer(o.buffer), o.index)) return false;
      std::vector<ScalarId> loads;
      collect_loads(program, o.value, loads);
      for (ScalarId id : loads) {
        const Scalar &load = program.scalars.at(id);
        if (!good(program.buffer(load.buffer), load.index)) return false;
      }
    }
  }
  return true;
}

}  // namespace optc
