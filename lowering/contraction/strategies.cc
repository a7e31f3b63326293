#include "lowering/contraction/strategies.h"

#include <algorithm>

#include "evaluate/pack.h"
#include "ir/program/contraction_view.h"
#include "lowering/fusion/fusion.h"

namespace optc {
namespace {

class Chooser {
 public:
  Chooser(Program &program, const LoweringOptions &options) : p_(program), options_(options) {}

  void run() {
    for (size_t i = 0; i < p_.kernels.size(); ++i)
      if (p_.kernels[i].alive && p_.kernels[i].nest()) choose(KernelId(i));
  }

 private:
  void choose(KernelId id) {
    Kernel &kernel = p_.kernel(id);
    const LoopNest &nest = *kernel.nest();
    if (nest.contraction && options_.target == LoweringOptions::Target::kCpu) {
      if (nest.contraction->kind == ContractionKind::kMatMul && gemm(id)) return;
      if (nest.contraction->kind == ContractionKind::kConvolution && convolution(id)) return;
      if (nest.contraction->kind == ContractionKind::kAttention && attention(id)) return;
    }
    if (nest.contraction) {
      kernel.strategy.name = "loops";
    } else if (is_map(kernel)) {
      kernel.strategy.name = "pointwise";
    } else {
      const bool rows = !nest.sequential && std::all_of(nest.stages.begin(), nest.stages.end(),
                                                        [](const Stage &s) { return s.loops.size() <= 1; });
      kernel.strategy.name = rows ? "rows" : "loops";
    }
  }

  bool is_f32(BufferId b) const { return p_.buffer(b).element() == ElementType::kFloat32; }

  // One constant for each distinct content and layout.
  BufferId packed_buffer(const std::string &name, Constant value) {
    for (size_t i = 0; i < p_.buffers.size(); ++i)
      if (p_.buffers[i].kind == BufferKind::kConstant && p_.buffers[i].name.size() > 7 &&
          p_.buffers[i].name.find("_packed") != std::string::npos && p_.buffers[i].constant.equals(value))
        return BufferId(i);
    Buffer buffer;
    buffer.name = name + "_packed";
    buffer.kind = BufferKind::kConstant;
    buffer.type = Type::tensor(value.type(), value.shape());
    buffer.constant = std::move(value);
    return p_.add_buffer(std::move(buffer));
  }

  bool gemm(KernelId id) {
    const auto view = gemm_view(p_, p_.kernel(id));
    if (!view || !is_f32(view->a.buffer) || !is_f32(view->b.buffer) || p_.scalars.at(p_.kernel(id).nest()->contraction->lhs).type != ElementType::kFloat32)
      return false;
    if (!view->columns.is_constant() || !view->inner.is_constant()) {
      // Shapes known at run time only: B is given at run time too (attention-like products).
      if (p_.buffer(view->b.buffer).kind == BufferKind::kConstant) return false;
    }
    if (!view->a_inner.is(1) && !view->inner.is(1)) return false;
    if (view->n.empty() || !epilogue_is_row_wise(p_, p_.kernel(id), view->n.back().index)) return false;
    const Buffer &b = p_.buffer(view->b.buffer);
    bool batched = false;
    for (size_t i = 0; i < view->batch.size(); ++i) batched |= !view->b.strides[i].is(0);
    Strategy strategy;
    strategy.name = "gemm";
    if (b.kind == BufferKind::kConstant && !batched && view->b.offset.is_constant() && view->b_inner.is_constant() &&
        view->b_column.is_constant()) {
      strategy.parameters = {{"b_constant", 1}};
      strategy.packed.push_back(packed_buffer(
          b.name, pack_gemm(b.constant, view->b.offset.value(), view->inner.value(), view->columns.value(),
                            view->b_inner.value(), view->b_column.value())));
    } else {
      strategy.parameters = {{"b_constant", 0}};
    }
    p_.kernel(id).strategy = std::move(strategy);
    return true;
  }

  bool convolution(KernelId) { return false; }
  bool attention(KernelId) { return false; }

  Program &p_;
  const LoweringOptions &options_;
};

}  // namespace

void choose_strategies(Program &program, const LoweringOptions &options) { Chooser(program, options).run(); }

}  // namespace optc
