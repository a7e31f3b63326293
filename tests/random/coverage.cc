#include "tests/random/coverage.h"

#include <algorithm>
#include <set>

#include "ir/program/contraction_view.h"
#include "runtime/cpu/gemm_blocks_plan.h"

namespace optc::testing {
namespace {

std::string strategy_of(const Kernel &kernel) {
  if (const ControlFlow *control = kernel.control()) return control->kind == ControlFlow::Kind::kIf ? "if" : "loop";
  const bool plain = is_plain(kernel.schedule);
  if (const LibraryCall *call = kernel.library()) return plain ? "library." + call->function : name(kernel.schedule);
  if (const auto *gemm = std::get_if<GemmSchedule>(&kernel.schedule))
    return std::string(is_byte(gemm->view.a.element)                   ? "gemm.i8"
                       : widens(gemm->view)                            ? "gemm.stored"
                       : gemm->view.a.element == ElementType::kFloat64 ? "gemm.f64"
                                                                       : "gemm") +
           (gemm->packed.buffer.valid() ? ".constant" : ".given");
  const LoopNest &nest = *kernel.nest();
  if (std::holds_alternative<LoopsSchedule>(kernel.schedule) && nest.contraction) {
    switch (nest.contraction->kind) {
      case ContractionKind::kMatMul:
        return "loops.product";
      case ContractionKind::kConvolution:
        return "loops.convolution";
      case ContractionKind::kAttention:
        return "loops.attention";
    }
  }
  if (std::holds_alternative<LoopsSchedule>(kernel.schedule) && nest.sequential) return "loops.sequential";
  return name(kernel.schedule);
}

std::string operand_form(const Program &program, BufferId id) {
  const Buffer &b = program.buffer(id);
  if (b.alias.valid()) return b.alias_offset.is(0) ? "view" : "part";
  if (!b.padded.empty()) return "padded";
  if (!std::is_sorted(b.order.begin(), b.order.end())) return "permuted";
  switch (b.kind) {
    case BufferKind::kInput:
      return "input";
    case BufferKind::kConstant:
      return "constant";
    default:
      return "temporary";
  }
}

// Where the values of a kernel's results come from and go to, behind its last sum or maximum.
std::string epilogue_form(const Program &program, const Kernel &kernel) {
  const LoopNest *nest = kernel.nest();
  if (!nest || nest->stages.empty()) return "store";
  const Stage &last = nest->stages.back();
  bool maps = false, part = false;
  std::vector<ScalarId> loads;
  std::set<uint32_t> targets;
  for (const StageOutput &o : last.outputs) {
    if (!o.value.valid()) continue;
    const ScalarOp op = program.scalars.at(o.value).op;
    maps |= op != ScalarOp::kLoad && op != ScalarOp::kLocal && op != ScalarOp::kConstant;
    collect_loads(program, o.value, loads);
    if (!o.buffer.valid()) continue;
    targets.insert(o.buffer.index);
    part |= program.buffer(o.buffer).alias.valid();
  }
  std::string form = "store";
  if (nest->stages.size() > 1)
    form = !loads.empty() ? "reads" : maps ? "map" : "store";
  else if (maps)
    form = "map";
  if (targets.size() > 1) form += "+many";
  if (part) form += "+part";
  return form;
}

// How an extent lies to the width of a tile: 1, less than a tile, whole tiles, or some and a rest.
std::string edge(Dim extent, int64_t tile) {
  if (!extent.is_constant()) return "symbolic";
  const int64_t n = extent.value();
  return n == 0 ? "none" : n == 1 ? "one" : n < tile ? "less" : n % tile == 0 ? "whole" : "rest";
}

void add_edges(const Program &program, const Kernel &kernel, std::set<std::string> &cells) {
  const std::string name = strategy_of(kernel);
  if (const auto *gemm = std::get_if<GemmSchedule>(&kernel.schedule)) {
    const GemmView &view = gemm->view;
    if (name.starts_with("gemm.stored"))
      cells.insert(name + ":types." + std::string(to_string(view.a.element)) + "." +
                   std::string(to_string(view.b.element)));
    if (const auto zeros = zero_points(program, kernel, view)) {
      cells.insert(name + ":panels." + edge(view.columns, 64));
      cells.insert(name + ":blocks." + edge(view.inner, 64));
      cells.insert(name + ":types." + std::string(to_string(view.a.element)) + "." +
                   std::string(to_string(view.b.element)));
      const auto zero = [](const ZeroPoint &z) -> std::string {
        return !z.from.buffer.valid() ? (z.value ? "number" : "none") : z.step.is(0) ? "one" : "vector";
      };
      cells.insert(name + ":zero." + zero(zeros->a) + "." + zero(zeros->b));
    }
    cells.insert(name + ":rows." + edge(view.rows, 8));
    cells.insert(name + ":columns." + edge(view.columns, 16));
    cells.insert(name + ":inner." + edge(view.inner, 1024));
    if (!view.batch.empty()) cells.insert(name + ":batch");
    if (!view.a_inner.is(1)) cells.insert(name + ":a.transposed");
    if (!view.b_column.is(1)) cells.insert(name + ":b.transposed");
  } else if (const auto *blocks = std::get_if<GemmBlocksSchedule>(&kernel.schedule)) {
    const GemmView &view = blocks->view;
    const BlockScales &scales = blocks->scales;
    if (blocks->activations.scale.buffer.valid()) cells.insert(name + ":activations.bytes");
    cells.insert(name + ":types." + std::string(to_string(view.a.element)) + "." +
                 std::string(to_string(view.b.element)));
    cells.insert(name + ":zero." + (scales.zero.buffer.valid() ? "given" : "none"));
    cells.insert(name + ":block." + (view.inner.is(scales.block) ? "whole" : "part"));
    cells.insert(name + ":rows." + edge(view.rows, kOptcBlockFewRows + 1));
    cells.insert(name + ":columns." + edge(view.columns, 16));
    if (!view.batch.empty()) cells.insert(name + ":batch");
    if (!view.b_column.is(1)) cells.insert(name + ":b.transposed");
  } else if (const ConvolutionOperands *operands = convolution(kernel.schedule)) {
    const ConvolutionGeometry &g = operands->geometry;
    cells.insert(name + ":channels." + edge(Dim(g.channels / g.groups), 16));
    cells.insert(name + ":filters." + edge(Dim(g.filters / g.groups), 16));
    if (g.groups > 1) cells.insert(name + ":groups");
    const auto any = [](const std::array<int64_t, 3> &list) {
      return std::any_of(list.begin(), list.end(), [](int64_t n) { return n > 1; });
    };
    if (any(g.strides)) cells.insert(name + ":strides");
    if (any(g.dilations)) cells.insert(name + ":dilations");
    if (g.pads_begin != g.pads_end) cells.insert(name + ":uneven_pads");
    const size_t spatial = kernel.nest() ? kernel.nest()->contraction->kernel.size() : 0;
    if (spatial == 1) cells.insert(name + ":line");
    if (spatial == 3) cells.insert(name + ":volume");
  } else if (name == "attention") {
    const Contraction &c = *kernel.nest()->contraction;
    cells.insert(std::string("attention:mask.") + (c.mask.valid() ? "given" : "none"));
    if (c.causal) cells.insert("attention:causal");
  }
}

}  // namespace

std::vector<std::string> coverage_cells(const Program &program) {
  std::set<std::string> cells;
  for (const Kernel &kernel : program.kernels) {
    if (!kernel.alive) continue;
    const std::string name = strategy_of(kernel);
    cells.insert(name);
    if (kernel.control()) continue;
    const std::string epilogue = epilogue_form(program, kernel);
    for (BufferId b : reads(program, kernel)) cells.insert(name + "/" + operand_form(program, b) + "/" + epilogue);
    add_edges(program, kernel, cells);
  }
  return {cells.begin(), cells.end()};
}

}  // namespace optc::testing
