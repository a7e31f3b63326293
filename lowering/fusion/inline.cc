#include <algorithm>
#include <unordered_set>

#include "ir/program/address.h"
#include "ir/program/contraction_view.h"
#include "lowering/fusion/fusion.h"
#include "lowering/fusion/legality.h"
#include "lowering/schedule/schedule.h"
#include "ops/build.h"

namespace optc {
namespace {

struct Body {
  int operations = 0;  // arithmetic, casts that only move aside
  int transcendental = 0;
  int loads = 0;
  bool gathers = false;  // an index computed from data
  bool constant = true;  // it loads constants alone
  int nodes = 0;
};

void measure(const Program &program, ScalarId id, std::unordered_set<uint32_t> &seen, Body &body) {
  if (!id.valid() || !seen.insert(id.index).second) return;
  const Scalar &s = program.scalars.at(id);
  ++body.nodes;
  for (int i = 0; i < arity(s.op); ++i) measure(program, s.args[i], seen, body);
  auto dims = [&](Dim d) {
    std::vector<const DimSymbol *> symbols;
    collect_symbols(d, symbols);
    for (const DimSymbol *symbol : symbols)
      if (symbol->kind == SymbolKind::kScalar) {
        body.gathers = true;
        measure(program, ScalarId(size_t{symbol->scalar}), seen, body);
      }
  };
  if (s.op == ScalarOp::kLoad) {
    ++body.loads;
    body.constant = body.constant && program.buffer(s.buffer).kind == BufferKind::kConstant;
    for (Dim d : s.index) dims(d);
  } else if (s.op == ScalarOp::kIndex) {
    dims(s.index_value);
  } else if (is_transcendental(s.op)) {
    ++body.transcendental;
  } else if (arity(s.op) > 0 && s.op != ScalarOp::kCast) {
    ++body.operations;
  } else if (s.op == ScalarOp::kCast && (is_float(s.type) != is_float(program.scalars.at(s.args[0]).type) ||
                                         bit_width(s.type) < bit_width(program.scalars.at(s.args[0]).type))) {
    ++body.operations;  // a conversion that changes values
  }
}

Dim evaluations(const LoopNest &nest, const Stage &stage) {
  Dim count = 1;
  for (const Loop &l : nest.loops) count = count * l.extent;
  for (const Loop &l : stage.loops) count = count * l.extent;
  return count;
}

bool reduces(const Stage &stage) {
  for (const StageOutput &o : stage.outputs)
    if (o.combine != Combine::kStore) return true;
  return false;
}

bool stage_loads(const Program &program, const Stage &stage, const std::vector<BufferId> &buffers) {
  const std::vector<ScalarId> loads = loads_of(program, stage);
  return std::any_of(loads.begin(), loads.end(), [&](ScalarId l) {
    return std::find(buffers.begin(), buffers.end(), program.scalars.at(l).buffer) != buffers.end();
  });
}

class Inliner {
 public:
  Inliner(Program &program, Uses &uses, const LoweringOptions &options, Steps &steps)
      : program_(program), options_(options), uses_(uses), steps_(steps) {}

  int64_t run() {
    for_each_sequence(program_, [this](std::vector<KernelId> &order) { sequence(order); });
    return count_;
  }

 private:
  void sequence(std::vector<KernelId> &order) {
    for (KernelId p : order)
      if (is_map(program_.kernel(p)) && inline_kernel(p)) {
        program_.kernel(p).alive = false;
        uses_.remove(p);
        ++count_;
      }
    std::erase_if(order, [&](KernelId k) { return !program_.kernel(k).alive; });
  }

  // All outputs of p into all their readers, or none of it.
  bool inline_kernel(KernelId p) {
    if (!steps_.allowed("fuse.inline")) return false;
    const LoopNest &nest = *program_.kernel(p).nest();
    const Stage &stage = nest.stages[0];
    const std::vector<Loop> loops = all_loops(nest, stage);
    struct Change {
      KernelId reader;
      LoopNest nest;
    };
    std::vector<Change> changes;
    auto current = [&](KernelId k) -> const LoopNest & {
      for (const Change &c : changes)
        if (c.reader == k) return c.nest;
      return *program_.kernel(k).nest();
    };
    for (const StageOutput &o : stage.outputs) {
      if (!defines_whole(program_, uses_, p, stage, o)) return false;
      // The result under all its names: views of it are read as it.
      std::vector<BufferId> names;
      std::vector<KernelId> readers;
      if (!names_of(o.buffer, names, readers) || readers.empty()) return false;
      Body body;
      std::unordered_set<uint32_t> seen;
      measure(program_, o.value, seen, body);
      const bool view = body.operations == 0 && body.transcendental == 0 && body.loads <= 1;
      const bool no_traffic = body.loads == 0 && body.transcendental == 0;
      if (body.nodes > 160 || body.loads > 10) return false;
      if (!view && !no_traffic && readers.size() > 1) return false;
      // A map behind a contraction belongs into its epilogue; if it were inlined into a second contraction's side or a
      // multi-use place, the sum would have to be stored unfinished. Views are read through either way.
      for (KernelId r : readers) {
        if (!program_.kernel(r).nest() || !reads_same_values_at(uses_, p, r)) return false;
        LoopNest changed = current(r);
        if (changed.sequential && body.gathers) return false;
        if (!substitute_reader(r, changed, o, names, loops, body, view, no_traffic)) return false;
        bool replaced = false;
        for (Change &c : changes)
          if (c.reader == r) {
            c.nest = changed;
            replaced = true;
          }
        if (!replaced) changes.push_back({r, std::move(changed)});
      }
    }
    std::string where = program_.kernel(p).name + " into ";
    for (size_t i = 0; i < changes.size(); ++i) where += (i ? ", " : "") + program_.kernel(changes[i].reader).name;
    std::vector<uint32_t> origin = program_.kernel(p).origin;
    for (const Change &c : changes) add_origin(origin, program_.kernel(c.reader).origin);
    steps_.record("fuse.inline", std::move(where), std::move(origin));
    for (Change &c : changes) {
      Kernel &reader = program_.kernel(c.reader);
      reader.body = std::move(c.nest);
      const Kernel &producer = program_.kernel(p);
      add_origin(reader.origin, producer.origin);
      reader.rules.insert(reader.rules.end(), producer.rules.begin(), producer.rules.end());
      uses_.update(c.reader);
    }
    return true;
  }

  // Whole views of `buffer`, itself first, and everybody who reads one of them. False when a view must exist by itself.
  bool names_of(BufferId buffer, std::vector<BufferId> &names, std::vector<KernelId> &readers) const {
    for (BufferId name : uses_.names(buffer)) {
      if (uses_.readers(name).empty()) continue;
      if (name != buffer &&
          (!uses_.offset(name).is(0) || !row_major(program_.buffer(name)) || !row_major(program_.buffer(buffer))))
        return false;
      names.push_back(name);
      for (KernelId r : uses_.readers(name))
        if (std::find(readers.begin(), readers.end(), r) == readers.end()) readers.push_back(r);
    }
    return true;
  }

  // Loads whose address needs a division: a view that is better stored. Of constants it may: they are a table's scales,
  // one for a block of a row.
  int quotient_loads(const LoopNest &nest, const std::vector<BufferId> &except, bool constants = true) const {
    int count = 0;
    for (const Stage &stage : nest.stages)
      for (ScalarId id : loads_of(program_, stage)) {
        const Scalar &load = program_.scalars.at(id);
        if (std::find(except.begin(), except.end(), load.buffer) != except.end() ||
            (!constants && program_.buffer(load.buffer).kind == BufferKind::kConstant))
          continue;
        count += has_quotient(linear_offset(program_.buffer(load.buffer), load.index));
      }
    return count;
  }

  bool substitute_reader(KernelId reader, LoopNest &nest, const StageOutput &o, const std::vector<BufferId> &names,
                         const std::vector<Loop> &loops, const Body &body, bool view, bool no_traffic) {
    const Shape shape = program_.buffer(o.buffer).shape();
    const bool count_constants = !body.constant || body.loads < 2;  // a view of a constant is better stored
    const int quotients_before = quotient_loads(nest, names, count_constants);
    int stages_that_load = 0;
    for (const Stage &stage : nest.stages) {
      if (!stage_loads(program_, stage, names)) continue;
      ++stages_that_load;
      if (body.gathers && reduces(stage)) return false;
      if (view || no_traffic) continue;
      const Dim times = evaluations(nest, stage), elements = element_count(shape);
      const bool once = times == elements || proved_at_least(elements, times);
      // What is computed of constants is stored by each run anew (a quantized table with scales and zero points).
      const int more = body.constant ? 1 : 0;
      const bool cheap = body.transcendental == 0 && body.operations <= 3 + more && body.loads <= 2 + more;
      if (!once && !cheap) return false;
      if (!once && reduces(stage)) return false;
    }
    if (stages_that_load > 1 && !view && !no_traffic && !row_in_registers(nest, names, body)) return false;
    // A combining store reads its own target: that is no load that could be replaced.
    for (const Stage &stage : nest.stages)
      for (const StageOutput &out : stage.outputs)
        if (std::find(names.begin(), names.end(), out.buffer) != names.end()) return false;
    bool invertible = true;
    ScalarSubstitution substitution;
    substitution.on_load = [&](const Scalar &load) -> ScalarId {
      if (std::find(names.begin(), names.end(), load.buffer) == names.end()) return ScalarId();
      std::vector<Dim> at = load.index;
      if (load.buffer != o.buffer) at = unflatten_index(flatten_index(at, program_.buffer(load.buffer).shape()), shape);
      const auto inverse = invert_store(loops, o.index, at, shape);
      if (!inverse) {
        invertible = false;
        return ScalarId();
      }
      ScalarSubstitution inner;
      inner.symbols = *inverse;
      return substitute(program_, o.value, inner);
    };
    const std::optional<Contraction> before = nest.contraction;
    substitute_nest(program_, nest, substitution);
    if (!invertible || !addressable(program_, nest) || quotient_loads(nest, {}, count_constants) > quotients_before)
      return false;
    if (before && !contraction_allows(reader, nest, *before, view)) return false;
    return true;
  }

  // On a GPU a short row stays in the registers of its threads: its stages load and compute an element once together
  // (emit/ptx/loops.cc, "rows"), so a cheap producer costs nothing in all of them.
  bool row_in_registers(const LoopNest &nest, const std::vector<BufferId> &names, const Body &body) const {
    constexpr int64_t kLongestRow = 8192;
    if (options_.target != LoweringOptions::Target::kGpu || nest.contraction || nest.sequential) return false;
    if (body.transcendental > 0 || body.operations > 6 || body.loads > 3 || body.gathers) return false;
    for (const Stage &stage : nest.stages) {
      if (!stage_loads(program_, stage, names)) continue;
      if (stage.loops.size() != 1 || !stage.loops[0].extent.is_constant() ||
          stage.loops[0].extent.value() > kLongestRow)
        return false;
    }
    return true;
  }

  // Operands of contractions take views only, and only while their addresses stay affine; and what could run by a
  // template still can.
  bool contraction_allows(KernelId reader, const LoopNest &nest, const Contraction &before, bool view) {
    Kernel trial = program_.kernel(reader);
    trial.body = nest;
    return operands_allow(nest, before, view, trial) &&
           !forfeits_template(program_, program_.kernel(reader), trial, options_);
  }
  bool operands_allow(const LoopNest &nest, const Contraction &before, bool view, const Kernel &trial) {
    const Contraction &now = *nest.contraction;
    const bool operand = now.lhs != before.lhs || now.rhs != before.rhs || now.query != before.query ||
                         now.key != before.key || now.value != before.value || now.mask != before.mask;
    if (!operand) return true;
    if (now.scale != before.scale || !view) return false;
    if (now.kind == ContractionKind::kConvolution) return false;
    if (now.kind == ContractionKind::kMatMul) return gemm_view(program_, trial).has_value();
    std::vector<Loop> loops = nest.loops;
    for (const Stage &s : nest.stages) loops.insert(loops.end(), s.loops.begin(), s.loops.end());
    auto affine = [&](ScalarId id) { return !id.valid() || affine_operand(program_, id, loops).has_value(); };
    return affine(now.query) && affine(now.key) && affine(now.value) && affine(now.mask);
  }

  Program &program_;
  const LoweringOptions &options_;
  Uses &uses_;
  Steps &steps_;
  int64_t count_ = 0;
};

}  // namespace

int64_t inline_producers(Program &program, Uses &uses, const LoweringOptions &options, Steps &steps) {
  return Inliner(program, uses, options, steps).run();
}

}  // namespace optc
