// Products and convolutions of dequantized 8-bit integers: summed as integers, with the scales behind the sum.
//
//   sum over k of (a[k] - za) * sa * (b[k] - zb) * sb  =  sa * sb * (sum over k of (a[k] - za) * (b[k] - zb))
//
// where no scale and no zero point depends on k. The right side is exact but for its last two products: no rounding of
// an element, none of a partial sum. What is dequantized of constants alone and is still read is computed here.
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "evaluate/evaluate.h"
#include "ir/program/access.h"
#include "ir/program/block_view.h"
#include "ir/program/contraction_view.h"
#include "lowering/fusion/fusion.h"
#include "lowering/fusion/legality.h"
#include "lowering/schedule/schedule.h"

namespace optc {
namespace {

// cast(element - zero, f32) * scale, as DequantizeLinear of bytes builds it.
struct Dequantized {
  ScalarId integer;  // int32: the element less its zero point
  ScalarId scale;
};
std::optional<Dequantized> dequantized(Program &program, ScalarId value) {
  const Scalar product = program.scalars.at(value);
  if (product.op != ScalarOp::kMul || product.type != ElementType::kFloat32) return std::nullopt;
  for (int side : {0, 1}) {
    const Scalar &cast = program.scalars.at(product.args[side]);
    if (cast.op != ScalarOp::kCast) continue;
    const ElementType from = program.scalars.at(cast.args[0]).type;
    if (from != ElementType::kInt32 && !is_byte(from)) continue;
    const ScalarId integer = is_byte(from) ? program.scalars.cast(cast.args[0], ElementType::kInt32) : cast.args[0];
    std::vector<ScalarId> loads;
    collect_loads(program, factor_parts(program, integer).element, loads);
    if (loads.size() != 1 || !is_byte(program.scalars.at(loads[0]).type)) continue;
    return Dequantized{integer, product.args[1 - side]};
  }
  return std::nullopt;
}

// What fold.dequantize may make of constants: so many bytes, or so many times theirs.
constexpr int64_t kSmall = 4096, kMostGrowth = 4;
constexpr int kMostViews = 4;  // between dequantized weights and the product that reads them

class IntegerSums {
 public:
  IntegerSums(Program &program, const LoweringOptions &options, Steps &steps)
      : p_(program), options_(options), steps_(steps), uses_(program) {}

  void run() {
    for_each_sequence(p_, [this](std::vector<KernelId> &order) {
      for (KernelId k : order)
        if (options_.target == LoweringOptions::Target::kCpu && steps_.allowed("fuse.dequantize")) sum_integers(k);
    });
    fold_weights(true);
  }

  // `spare`: those that a product could read as they are, once views are read through, are left to keep_blocks.
  void fold_weights(bool spare) {
    spare_ = spare && options_.target == LoweringOptions::Target::kCpu && options_.fuse;
    for_each_sequence(p_, [this](std::vector<KernelId> &order) {
      for (KernelId k : order) fold(k);
      std::erase_if(order, [&](KernelId k) { return !p_.kernel(k).alive; });
    });
  }

 private:
  // A factor of the sum: the load, perhaps inside of the condition that makes a convolution's padding zero.
  struct Factor {
    ScalarId condition;  // invalid: none
    Dequantized parts;
  };

  std::optional<Factor> factor(KernelId reader, ScalarId id) {
    Factor f;
    if (const Scalar s = p_.scalars.at(id); s.op == ScalarOp::kSelect) {
      const Scalar &other = p_.scalars.at(s.args[2]);
      if (other.op != ScalarOp::kConstant || other.bits != 0) return std::nullopt;
      f.condition = s.args[0];
      id = s.args[1];
    }
    const Scalar load = p_.scalars.at(id);
    if (load.op != ScalarOp::kLoad || load.type != ElementType::kFloat32) return std::nullopt;
    const auto &writers = uses_.writers(load.buffer);
    if (writers.size() != 1 || !is_map(p_.kernel(*writers.begin()))) return std::nullopt;
    const KernelId writer = *writers.begin();
    const LoopNest &nest = *p_.kernel(writer).nest();
    const Stage &stage = nest.stages[0];
    if (stage.outputs.size() != 1 || !defines_whole(p_, uses_, writer, stage, stage.outputs[0]) ||
        !reads_same_values_at(uses_, writer, reader))
      return std::nullopt;
    const StageOutput &o = stage.outputs[0];
    const auto parts = dequantized(p_, o.value);
    const auto inverse = invert_store(all_loops(nest, stage), o.index, load.index, p_.buffer(o.buffer).shape());
    if (!parts || !inverse) return std::nullopt;
    ScalarSubstitution at;
    at.symbols = *inverse;
    f.parts = {substitute(p_, parts->integer, at), substitute(p_, parts->scale, at)};
    return f;
  }

  // The largest of a scale that is known, finite and the same for all that is summed; 0: it is not.
  double largest(ScalarId scale, const Stage &sum) const {
    const Scalar &s = p_.scalars.at(scale);
    if (s.op == ScalarOp::kConstant) {
      float value;
      const auto bits = static_cast<uint32_t>(s.bits);
      __builtin_memcpy(&value, &bits, sizeof value);
      return std::isfinite(value) ? std::fabs(value) : 0;
    }
    if (s.op != ScalarOp::kLoad || p_.buffer(s.buffer).kind != BufferKind::kConstant ||
        p_.buffer(s.buffer).alias.valid() || s.type != ElementType::kFloat32)
      return 0;
    for (const Loop &l : sum.loops)
      if (uses_loop(p_, scale, l.index)) return 0;
    const Constant &c = p_.buffer(s.buffer).constant;
    double most = 0;
    for (int64_t i = 0; i < c.count(); ++i) {
      const double value = c.as_double(i);
      if (!std::isfinite(value)) return 0;
      most = std::max(most, std::fabs(value));
    }
    return most;
  }

  void sum_integers(KernelId k) {
    const LoopNest *nest = p_.kernel(k).nest();
    if (!nest || !nest->contraction || nest->contraction->kind == ContractionKind::kAttention ||
        nest->contraction->transposed)
      return;
    const size_t at = nest->contraction->stage;
    const Stage &stage = nest->stages[at];
    if (stage.outputs.size() != 1) return;
    const StageOutput &out = stage.outputs[0];
    const Scalar product = p_.scalars.at(out.value);
    if (!out.local.valid() || out.combine != Combine::kSum || out.condition.valid() || out.initial.valid() ||
        !out.index.empty() || nest->locals[out.local.index].type != ElementType::kFloat32 ||
        product.op != ScalarOp::kMul)
      return;
    // Sums of integers that fit: 255 * 255 for each product at most.
    const Dim depth = total_extent(stage.loops);
    constexpr int64_t kMost = 255 * 255;
    if (!depth.is_constant() || depth.value() > INT32_MAX / kMost) return;
    const bool straight = reaches(product.args[0], nest->contraction->lhs);
    const ScalarId left = product.args[straight ? 0 : 1], right = product.args[straight ? 1 : 0];
    if (!reaches(left, nest->contraction->lhs) || !reaches(right, nest->contraction->rhs)) return;
    const auto a = factor(k, left), b = factor(k, right);
    if (!a || !b || b->condition.valid()) return;
    const double sizes = largest(a->parts.scale, stage) * largest(b->parts.scale, stage);
    if (!(sizes > 0) || sizes * kMost * static_cast<double>(std::max<int64_t>(depth.value(), 1)) > FLT_MAX) return;

    Kernel trial = p_.kernel(k);
    LoopNest &changed = *trial.nest();
    changed.locals[out.local.index].type = ElementType::kInt32;
    ScalarId first = a->parts.integer;
    if (a->condition.valid())
      first = p_.scalars.select(a->condition, first, p_.scalars.constant_int(ElementType::kInt32, 0));
    const LocalId local = out.local;
    // What read the sum reads it times the scales; the sum itself is replaced behind that.
    const ScalarId scale = p_.scalars.binary(ScalarOp::kMul, a->parts.scale, b->parts.scale);
    ScalarSubstitution scaled;
    scaled.on_local = [&](const Scalar &s) -> ScalarId {
      if (s.local != local) return ScalarId();
      const ScalarId sum = p_.scalars.local(local, ElementType::kInt32, s.index);
      return p_.scalars.binary(ScalarOp::kMul, p_.scalars.cast(sum, ElementType::kFloat32), scale);
    };
    substitute_nest(p_, changed, scaled);
    changed.stages[at].outputs[0].value = p_.scalars.binary(ScalarOp::kMul, first, b->parts.integer);
    changed.contraction->lhs = a->parts.integer;
    changed.contraction->rhs = b->parts.integer;
    if (candidates(p_, trial, options_).empty()) return;
    steps_.record("fuse.dequantize", trial.name, trial.origin);
    trial.note += " of 8-bit integers";
    p_.kernel(k) = std::move(trial);
    uses_.update(k);
  }

  bool reaches(ScalarId from, ScalarId to) const {
    while (from != to) {
      const Scalar &s = p_.scalars.at(from);
      if (s.op != ScalarOp::kSelect) return false;
      from = s.args[1];
    }
    return true;
  }

  // Dequantized constants become constants of floats; those that nobody reads any more disappear with their kernel.
  void fold(KernelId k) {
    if (!is_map(p_.kernel(k))) return;
    const LoopNest &nest = *p_.kernel(k).nest();
    const Stage &stage = nest.stages[0];
    if (stage.outputs.size() != 1 || !is_dequantized(stage.outputs[0].value) ||
        !defines_whole(p_, uses_, k, stage, stage.outputs[0]))
      return;
    const BufferId result = stage.outputs[0].buffer;
    if (!is_static(p_.buffer(result).shape()) || (spare_ && only_products_read(result, kMostViews))) return;
    int64_t read = 0;
    std::vector<StoredBuffer> memory;
    for (BufferId b : uses_.reads(k)) {
      const Buffer &buffer = p_.buffer(b);
      if (buffer.kind != BufferKind::kConstant || buffer.alias.valid() || !row_major(buffer)) return;
      memory.push_back({b, buffer.constant.data()});
      read += static_cast<int64_t>(buffer.constant.size());
    }
    // As fold.constant of the optimizer: what is packed in less than a byte grows too much.
    const Dim stored = storage_bytes(p_.buffer(result));
    if (!stored.is_constant() || (stored.value() > kSmall && stored.value() > kMostGrowth * read)) return;
    if (std::all_of(uses_.names(result).begin(), uses_.names(result).end(),
                    [&](BufferId b) { return uses_.readers(b).empty(); }))
      return;  // remove_dead_kernels
    if (!steps_.allowed("fold.dequantize")) return;
    std::vector<uint8_t> room(static_cast<size_t>(stored.value()));
    memory.push_back({result, room.data()});
    Diagnostics quiet;
    auto values = evaluate_kernel(p_, k, {}, memory, {}, quiet);
    if (!values.ok() || values->size() != 1) return;
    steps_.record("fold.dequantize", p_.kernel(k).name, p_.kernel(k).origin);
    Buffer &folded = p_.buffer(result);
    folded.kind = BufferKind::kConstant;
    folded.constant = std::move((*values)[0].value);
    p_.kernel(k).alive = false;
    uses_.remove(k);
  }

  // In f32, or rounded to 16 bits.
  bool is_dequantized(ScalarId value) { return dequantized(p_, value) || block_factor(p_, value); }

  // Whether nobody but products reads the buffer, as their right factor, through at most so many views; and, where one
  // does, what gathers from it.
  bool only_products_read(BufferId buffer, int views) const {
    bool any = false;
    for (BufferId name : uses_.names(buffer))
      for (KernelId r : uses_.readers(name)) {
        const LoopNest *nest = p_.kernel(r).nest();
        if (!nest) return false;
        if (nest->contraction) {
          any = true;
          if (nest->contraction->kind != ContractionKind::kMatMul) return false;
          std::vector<ScalarId> loads;
          collect_loads(p_, nest->contraction->rhs, loads);
          if (loads.size() != 1 || p_.scalars.at(loads[0]).buffer != name) return false;
          continue;
        }
        if (!is_map(p_.kernel(r)) || nest->stages[0].outputs.size() != 1 || views == 0) return false;
        const StageOutput &o = nest->stages[0].outputs[0];
        const Scalar &load = p_.scalars.at(o.value);
        if (load.op != ScalarOp::kLoad) return false;
        if (gathers(load)) continue;
        if (!only_products_read(o.buffer, views - 1)) return false;
        any = true;
      }
    return any;
  }

  // By an index that the run computes.
  static bool gathers(const Scalar &load) {
    std::vector<const DimSymbol *> symbols;
    for (Dim d : load.index) collect_symbols(d, symbols);
    return std::any_of(symbols.begin(), symbols.end(),
                       [](const DimSymbol *symbol) { return symbol->kind == SymbolKind::kScalar; });
  }

  static bool is_static(const Shape &shape) {
    return std::all_of(shape.begin(), shape.end(), [](Dim d) { return d.is_constant(); });
  }

  Program &p_;
  const LoweringOptions &options_;
  Steps &steps_;
  Uses uses_;
  bool spare_ = false;
};

}  // namespace

void sum_integers(Program &program, const LoweringOptions &options, Steps &steps) {
  IntegerSums(program, options, steps).run();
}

void fold_weights(Program &program, const LoweringOptions &options, Steps &steps) {
  IntegerSums(program, options, steps).fold_weights(false);
}

}  // namespace optc
