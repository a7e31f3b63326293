// Quantized weights of products stay quantized.
//
//   sum over k of a[k] * ((q[k] - zero[k / block]) * scale[k / block])
//
// where q, zero and scale are constants: the product reads them itself (schedule gemm.blocks) in place of a matrix of
// floats that is computed before it, in every run or by the compiler, of four or eight times the bytes.
#include <algorithm>

#include "ir/program/access.h"
#include "ir/program/block_view.h"
#include "lowering/fusion/fusion.h"
#include "lowering/fusion/legality.h"
#include "lowering/schedule/schedule.h"
#include "ops/build.h"

namespace optc {
namespace {

constexpr int kMostSteps = 16;  // from the weights as the product reads them back to constants

class BlockWeights {
 public:
  BlockWeights(Program &program, Steps &steps) : p_(program), steps_(steps), uses_(program) {}

  bool run() {
    for_each_sequence(p_, [this](std::vector<KernelId> &order) {
      for (KernelId k : order) take_weights(k);
    });
    return taken_;
  }

 private:
  void take_weights(KernelId k) {
    const LoopNest *nest = p_.kernel(k).nest();
    if (!nest || !nest->contraction || nest->contraction->kind != ContractionKind::kMatMul) return;
    ScalarId rhs = nest->contraction->rhs;
    if (p_.scalars.at(rhs).op == ScalarOp::kCast) rhs = p_.scalars.at(rhs).args[0];
    const Scalar load = p_.scalars.at(rhs);
    if (load.op != ScalarOp::kLoad || !is_float(load.type) || is_constant(load.buffer)) return;
    made_by_.clear();
    left_ = kMostSteps;
    if (!value_of(load).valid() || !steps_.allowed("fuse.blocks")) return;
    Kernel trial = p_.kernel(k);
    ScalarSubstitution weights;
    weights.on_load = [&](const Scalar &s) { return s.buffer == load.buffer ? value_of(s) : ScalarId(); };
    left_ = kMostSteps;
    substitute_nest(p_, *trial.nest(), weights);
    if (!gemm_blocks_schedule(p_, trial)) return;
    for (KernelId w : made_by_) {
      const std::vector<uint32_t> &origin = p_.kernel(w).origin;
      trial.origin.insert(trial.origin.end(), origin.begin(), origin.end());
    }
    std::sort(trial.origin.begin(), trial.origin.end());
    trial.origin.erase(std::unique(trial.origin.begin(), trial.origin.end()), trial.origin.end());
    steps_.record("fuse.blocks", trial.name, trial.origin);
    trial.note += " of quantized weights";
    p_.kernel(k) = std::move(trial);
    uses_.update(k);
    taken_ = true;
  }

  bool is_constant(BufferId b) const {
    return p_.buffer(b).kind == BufferKind::kConstant && !p_.buffer(b).alias.valid();
  }

  // What a load of something that is computed of constants alone gives, as an expression of loads of those. Invalid: it
  // is not so computed, or by too many steps.
  ScalarId value_of(const Scalar &load) {
    if (--left_ < 0) return ScalarId();
    const BufferId root = uses_.root(load.buffer);
    KernelId writer;
    for (BufferId name : uses_.names(root))
      for (KernelId w : uses_.writers(name)) {
        if (writer.valid() && writer != w) return ScalarId();
        writer = w;
      }
    if (!writer.valid() || !is_map(p_.kernel(writer))) return ScalarId();
    const LoopNest &nest = *p_.kernel(writer).nest();
    const Stage &stage = nest.stages[0];
    if (stage.outputs.size() != 1 || !defines_whole(p_, uses_, writer, stage, stage.outputs[0])) return ScalarId();
    const StageOutput o = stage.outputs[0];
    std::vector<Dim> at = load.index;
    if (load.buffer != o.buffer) {
      for (BufferId b : {load.buffer, o.buffer})
        if (!uses_.offset(b).is(0) || !row_major(p_.buffer(b))) return ScalarId();
      at = unflatten_index(flatten_index(at, p_.buffer(load.buffer).shape()), p_.buffer(o.buffer).shape());
    }
    const auto inverse = invert_store(all_loops(nest, stage), o.index, at, p_.buffer(o.buffer).shape());
    if (!inverse) return ScalarId();
    made_by_.push_back(writer);
    bool of_constants = true;
    ScalarSubstitution inner;
    inner.symbols = *inverse;
    inner.on_load = [&](const Scalar &s) -> ScalarId {
      if (is_constant(s.buffer)) return number(s);
      const ScalarId value = of_constants ? value_of(s) : ScalarId();
      of_constants = of_constants && value.valid();
      return value;
    };
    const ScalarId value = substitute(p_, o.value, inner);
    return of_constants ? value : ScalarId();
  }

  // A constant of one element is that number: casts of it are computed here.
  ScalarId number(const Scalar &load) {
    const Constant &c = p_.buffer(load.buffer).constant;
    return c.count() == 1 && is_integer(c.type()) ? p_.scalars.constant_int(c.type(), c.as_int64(0)) : ScalarId();
  }

  Program &p_;
  Steps &steps_;
  Uses uses_;
  std::vector<KernelId> made_by_;
  int left_ = 0;
  bool taken_ = false;
};

}  // namespace

bool keep_blocks(Program &program, const LoweringOptions &options, Steps &steps) {
  return options.target == LoweringOptions::Target::kCpu && BlockWeights(program, steps).run();
}

}  // namespace optc
