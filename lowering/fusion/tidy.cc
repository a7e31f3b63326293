#include <algorithm>

#include "ir/dim/saturation.h"
#include "ir/program/contraction_view.h"
#include "lowering/fusion/fusion.h"
#include "lowering/fusion/legality.h"
#include "ops/build.h"

namespace optc {
namespace {

// Attention writes [batch, sequence, head, dim]: the merge of heads that follows it is then a view.
void order_attention_results(Program &program, Steps &steps) {
  const Uses uses(program);
  for (size_t i = 0; i < program.kernels.size(); ++i) {
    const LoopNest *nest = program.kernels[i].nest();
    if (!program.kernels[i].alive || !nest || !nest->contraction ||
        nest->contraction->kind != ContractionKind::kAttention)
      continue;
    for (BufferId b : uses.writes(KernelId(i)))
      if (program.buffer(b).shape().size() == 4 && may_be_reordered(program, uses, b) &&
          steps.allowed("layout.attention")) {
        program.buffer(b).order = {0, 2, 1, 3};
        steps.record("layout.attention", program.buffer(b).name, program.kernels[i].origin);
      }
  }
}

void drop_unit_loops(Program &program, LoopNest &nest) {
  bool any = false;
  auto unit = [](const Loop &l) { return l.extent.is(1); };
  any |= std::any_of(nest.loops.begin(), nest.loops.end(), unit);
  for (const Stage &s : nest.stages) any |= std::any_of(s.loops.begin(), s.loops.end(), unit);
  if (!any) return;
  std::vector<const DimSymbol *> gone;
  auto drop = [&](std::vector<Loop> &loops) {
    for (const Loop &l : loops)
      if (unit(l)) gone.push_back(l.index);
    std::erase_if(loops, unit);
  };
  drop(nest.loops);
  for (Stage &s : nest.stages) drop(s.loops);
  ScalarSubstitution zero;
  zero.symbols = [&](const DimSymbol &s) -> std::optional<Dim> {
    if (std::find(gone.begin(), gone.end(), &s) == gone.end()) return std::nullopt;
    return Dim(0);
  };
  substitute_nest(program, nest, zero);
}

}  // namespace

void tidy(Program &program, Steps &steps) {
  order_attention_results(program, steps);
  // A load from a view becomes a load from what it views, where the index stays simple. Where it does not (a merge of
  // dims that a quotient would have to split), the view itself is read: it costs nothing either. A convolution reads
  // its operands in their own form.
  std::vector<Scalar> operands;
  ScalarSubstitution through;
  through.on_load = [&](const Scalar &load) -> ScalarId {
    const bool operand = std::any_of(operands.begin(), operands.end(), [&](const Scalar &o) {
      return o.op == ScalarOp::kLoad && o.buffer == load.buffer && o.index == load.index;
    });
    BufferId buffer = load.buffer;
    std::vector<Dim> index = load.index;
    bool moved = false;
    while (program.buffer(buffer).alias.valid()) {
      const Buffer &view = program.buffer(buffer);
      const Buffer &root = program.buffer(view.alias);
      if (!view.alias_offset.is(0) || !root.type.is_tensor() || (operand && root.shape() != view.shape())) break;
      std::vector<Dim> at = unflatten_index(flatten_index(index, view.shape()), root.shape());
      if (std::any_of(at.begin(), at.end(), [](Dim d) { return has_quotient(d) || is_saturated(d); })) break;
      buffer = view.alias;
      index = std::move(at);
      moved = true;
    }
    return moved ? program.scalars.load(buffer, load.type, std::move(index)) : ScalarId();
  };
  for (size_t i = 0; i < program.kernels.size(); ++i) {
    if (!program.kernels[i].alive) continue;
    LoopNest *nest = program.kernels[i].nest();
    if (!nest) continue;
    LoopNest copy = *nest;
    drop_unit_loops(program, copy);
    operands.clear();
    if (copy.contraction && copy.contraction->kind == ContractionKind::kConvolution)
      for (ScalarId factor : {copy.contraction->lhs, copy.contraction->rhs}) {
        std::vector<ScalarId> loads;
        collect_loads(program, factor_parts(program, factor).element, loads);
        for (ScalarId load : loads) operands.push_back(program.scalars.at(load));
      }
    substitute_nest(program, copy, through);
    program.kernels[i].body = std::move(copy);
  }
}

}  // namespace optc
