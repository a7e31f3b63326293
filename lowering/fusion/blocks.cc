// Quantized weights of products stay quantized.
//
//   sum over k of a[k] * ((q[k] - zero[k / block]) * scale[k / block])
//
// where q, zero and scale are constants: the product reads them itself (schedule gemm.blocks) in place of a matrix of
// floats that is computed before it, in every run or by the compiler, of four or eight times the bytes. Where a[k] is
// (p[k] * scale[k / block]) of bytes p that were quantized in front of it, in the same blocks, the product reads those,
// too, and sums integers over a block.
#include <algorithm>
#include <unordered_map>

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
  BlockWeights(Program &program, Steps &steps) : p_(program), steps_(steps) { uses_.emplace(program); }

  bool run() {
    for_each_sequence(p_, [this](std::vector<KernelId> &order) {
      for (KernelId k : order) {
        take_weights(k);
        take_activations(k);
      }
    });
    if (!quantizers_.empty())
      for_each_sequence(p_, [this](std::vector<KernelId> &order) {
        std::vector<KernelId> longer;
        for (KernelId k : order) {
          if (const auto q = quantizers_.find(k.index); q != quantizers_.end()) longer.push_back(q->second.kernel);
          longer.push_back(k);
        }
        order = std::move(longer);
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
    for (KernelId w : made_by_) add_origin(trial.origin, p_.kernel(w).origin);
    trial.note += " of quantized weights";
    take("fuse.blocks", k, std::move(trial));
  }

  void take(std::string_view step, KernelId k, Kernel trial) {
    steps_.record(step, trial.name, trial.origin);
    p_.kernel(k) = std::move(trial);
    uses_->update(k);
    taken_ = true;
  }

  // What a map that quantizes and dequantizes computes: bytes (an expression of type i8) times a scale that is loaded.
  struct Activations {
    ScalarId bytes, scale;
  };
  // The kernel that stores the bytes, and where.
  struct Quantizer {
    KernelId kernel;
    BufferId bytes;
  };

  // Of a product by packed weights.
  void take_activations(KernelId k) {
    const LoopNest *nest = p_.kernel(k).nest();
    if (!nest || !nest->contraction || !block_product(p_, p_.kernel(k))) return;
    const Scalar load = p_.scalars.at(nest->contraction->lhs);
    if (load.op != ScalarOp::kLoad || load.type != ElementType::kFloat32) return;
    const auto source = source_of(load);
    const auto activations = source ? activations_of(source->store.value) : std::nullopt;
    if (!activations || !is_stable(p_.scalars.at(activations->scale).buffer, source->writer, k) ||
        !steps_.allowed("fuse.activations"))
      return;
    const Scalar bytes = p_.scalars.at(activations->bytes);
    const bool stored = bytes.op == ScalarOp::kLoad;
    if (stored && !is_stable(bytes.buffer, source->writer, k)) return;
    const size_t buffers = p_.buffers.size();
    const auto found = quantizers_.find(source->writer.index);
    const bool made = !stored && found == quantizers_.end();
    const BufferId to = stored ? BufferId() : made ? bytes_buffer(source->store) : found->second.bytes;
    const ScalarId read = stored ? activations->bytes : p_.scalars.load(to, ElementType::kInt8, source->store.index);
    const ScalarId value = p_.scalars.binary(
        ScalarOp::kMul, p_.scalars.cast(p_.scalars.cast(read, ElementType::kInt32), ElementType::kFloat32),
        activations->scale);
    Kernel trial = p_.kernel(k);
    ScalarSubstitution in_place;
    in_place.on_load = [&](const Scalar &s) {
      const auto from = s.buffer == load.buffer ? source_of(s) : std::nullopt;
      if (!from) return ScalarId();
      ScalarSubstitution inner;
      inner.symbols = from->at;
      return substitute(p_, value, inner);
    };
    substitute_nest(p_, *trial.nest(), in_place);
    if (!gemm_blocks_schedule(p_, trial)) {
      p_.buffers.resize(buffers);
      return;
    }
    if (made) quantizers_[source->writer.index] = {quantizer(source->writer, to, activations->bytes), to};
    add_origin(trial.origin, p_.kernel(source->writer).origin);
    trial.note += " and activations";
    if (made) uses_.emplace(p_);
    take("fuse.activations", k, std::move(trial));
  }

  std::optional<Activations> activations_of(ScalarId value) const {
    const Scalar product = p_.scalars.at(value);
    if (product.op != ScalarOp::kMul || product.type != ElementType::kFloat32) return std::nullopt;
    for (int side : {0, 1}) {
      const ScalarId scale = product.args[1 - side];
      ScalarId bytes = product.args[side];
      while (p_.scalars.at(bytes).type != ElementType::kInt8 && p_.scalars.at(bytes).op == ScalarOp::kCast)
        bytes = p_.scalars.at(bytes).args[0];
      if (p_.scalars.at(bytes).type == ElementType::kInt8 && p_.scalars.at(scale).op == ScalarOp::kLoad)
        return Activations{bytes, scale};
    }
    return std::nullopt;
  }

  // Whether what `writer` reads there is still what `k` would read.
  bool is_stable(BufferId buffer, KernelId writer, KernelId k) const {
    return uses_->same_sequence(writer, k) && !uses_->written_between(buffer, writer, k);
  }

  BufferId bytes_buffer(const StageOutput &store) {
    Buffer bytes;
    bytes.name = unique_name(p_.buffer(store.buffer).name + "_bytes", p_.buffers);
    bytes.type = Type::tensor(ElementType::kInt8, p_.buffer(store.buffer).shape());
    return p_.add_buffer(std::move(bytes));
  }
  // The map `of` as far as the bytes, into a buffer of theirs.
  KernelId quantizer(KernelId of, BufferId to, ScalarId bytes) {
    Kernel kernel;
    kernel.name = unique_name(p_.kernel(of).name + "_bytes", p_.kernels);
    kernel.note = "activations in 8 bits";
    kernel.origin = p_.kernel(of).origin;
    kernel.rules = p_.kernel(of).rules;
    LoopNest nest = *p_.kernel(of).nest();
    StageOutput &store = nest.stages[0].outputs[0];
    store.buffer = to;
    store.value = bytes;
    std::unordered_map<const DimSymbol *, Dim> own;  // loops
    for (std::vector<Loop> *loops : {&nest.loops, &nest.stages[0].loops})
      for (Loop &l : *loops) {
        const Dim counter = p_.dims->new_loop(l.index->name, l.extent);
        own[l.index] = counter;
        l.index = single_symbol(counter);
      }
    ScalarSubstitution renamed;
    renamed.symbols = [&](const DimSymbol &s) -> std::optional<Dim> {
      const auto at = own.find(&s);
      return at == own.end() ? std::nullopt : std::optional<Dim>(at->second);
    };
    substitute_nest(p_, nest, renamed);
    kernel.body = std::move(nest);
    return p_.add_kernel(std::move(kernel));
  }
  template <typename List>
  static std::string unique_name(const std::string &wish, const List &list) {
    std::string name = wish;
    const auto taken = [&](const auto &item) { return item.name == name; };
    for (int n = 2; std::any_of(list.begin(), list.end(), taken); ++n) name = wish + std::to_string(n);
    return name;
  }

  bool is_constant(BufferId b) const {
    return p_.buffer(b).kind == BufferKind::kConstant && !p_.buffer(b).alias.valid();
  }

  // The map that alone writes what is loaded: what it stores, for which counters of its loops. nullopt: none does.
  struct Source {
    KernelId writer;
    StageOutput store;
    DimSubstitution at;
  };
  std::optional<Source> source_of(const Scalar &load) const {
    const BufferId root = uses_->root(load.buffer);
    KernelId writer;
    for (BufferId name : uses_->names(root))
      for (KernelId w : uses_->writers(name)) {
        if (writer.valid() && writer != w) return std::nullopt;
        writer = w;
      }
    if (!writer.valid() || !is_map(p_.kernel(writer))) return std::nullopt;
    const LoopNest &nest = *p_.kernel(writer).nest();
    const Stage &stage = nest.stages[0];
    if (stage.outputs.size() != 1 || !defines_whole(p_, *uses_, writer, stage, stage.outputs[0])) return std::nullopt;
    const StageOutput &o = stage.outputs[0];
    std::vector<Dim> at = load.index;
    if (load.buffer != o.buffer) {
      for (BufferId b : {load.buffer, o.buffer})
        if (!uses_->offset(b).is(0) || !row_major(p_.buffer(b))) return std::nullopt;
      at = unflatten_index(flatten_index(at, p_.buffer(load.buffer).shape()), p_.buffer(o.buffer).shape());
    }
    const auto inverse = invert_store(all_loops(nest, stage), o.index, at, p_.buffer(o.buffer).shape());
    if (!inverse) return std::nullopt;
    return Source{writer, o, *inverse};
  }

  // What a load of something that is computed of constants alone gives, as an expression of loads of those. Invalid: it
  // is not so computed, or by too many steps.
  ScalarId value_of(const Scalar &load) {
    if (--left_ < 0) return ScalarId();
    const auto source = source_of(load);
    if (!source) return ScalarId();
    made_by_.push_back(source->writer);
    bool of_constants = true;
    ScalarSubstitution inner;
    inner.symbols = source->at;
    inner.on_load = [&](const Scalar &s) -> ScalarId {
      if (is_constant(s.buffer)) return number(s);
      const ScalarId value = of_constants ? value_of(s) : ScalarId();
      of_constants = of_constants && value.valid();
      return value;
    };
    const ScalarId value = substitute(p_, source->store.value, inner);
    return of_constants ? value : ScalarId();
  }

  // A constant of one element is that number: casts of it are computed here.
  ScalarId number(const Scalar &load) {
    const Constant &c = p_.buffer(load.buffer).constant;
    return c.count() == 1 && is_integer(c.type()) ? p_.scalars.constant_int(c.type(), c.as_int64(0)) : ScalarId();
  }

  Program &p_;
  Steps &steps_;
  std::optional<Uses> uses_;
  std::unordered_map<uint32_t, Quantizer> quantizers_;  // by the map that they stand in front of
  std::vector<KernelId> made_by_;
  int left_ = 0;
  bool taken_ = false;
};

}  // namespace

bool keep_blocks(Program &program, const LoweringOptions &options, Steps &steps) {
  return options.target == LoweringOptions::Target::kCpu && BlockWeights(program, steps).run();
}

}  // namespace optc
