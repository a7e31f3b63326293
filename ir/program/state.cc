#include "ir/program/state.h"

#include <algorithm>

#include "ir/program/cover.h"

namespace optc {
namespace {

std::string quoted(const Program &program, BufferId b) { return "'" + program.buffer(b).name + "'"; }

// What a kernel does to the input of a state, bodies of control flow included.
struct Touch {
  bool reads = false;
  std::vector<const StageOutput *> replaces;
  bool replaces_unseen = false;  // by a call, or by a view of the output
};

class Touches {
 public:
  Touches(const Program &program, const Uses &uses, const State &state)
      : p_(program),
        uses_(uses),
        state_(state),
        input_(program.inputs[state.input]),
        output_(program.outputs[state.output]) {}

  Touch of(KernelId k) const {
    Touch touch;
    add(k, touch);
    return touch;
  }
  // Whether a loop nest reads elements of the input only in the iteration that replaces them, which is the only one
  // that does.
  bool only_where_replaced(KernelId k, const Touch &touch) const {
    const LoopNest *nest = p_.kernel(k).nest();
    // One store, so that nothing is loaded behind it.
    if (!nest || nest->sequential || touch.replaces_unseen || nest->stages.back().outputs.size() != 1) return false;
    for (const StageOutput *o : touch.replaces) {
      const Stage &last = nest->stages.back();
      const bool here =
          std::any_of(last.outputs.begin(), last.outputs.end(), [&](const StageOutput &other) { return &other == o; });
      if (!here || o->combine != Combine::kStore || o->condition.valid() || !stores_once(*nest, last, *o)) return false;
      for (size_t s = 0; s < nest->stages.size(); ++s)
        if (!loads_there(nest->stages[s], s + 1 == nest->stages.size(), *o)) return false;
    }
    return true;
  }

 private:
  bool is_input(BufferId b) const {
    for (; b.valid(); b = p_.buffer(b).alias)
      if (b == input_) return true;
    return false;
  }
  void add(KernelId k, Touch &touch) const {
    const Kernel &kernel = p_.kernel(k);
    for (BufferId b : uses_.reads(k)) touch.reads = touch.reads || is_input(b);
    if (const LoopNest *nest = kernel.nest()) {
      for (const Stage &stage : nest->stages)
        for (const StageOutput &o : stage.outputs)
          if (o.buffer.valid() && uses_.root(o.buffer) == output_ && replaces_input(p_, state_, o))
            touch.replaces.push_back(&o);
      return;
    }
    for (BufferId b : uses_.writes(k)) touch.replaces_unseen = touch.replaces_unseen || uses_.root(b) == output_;
    if (const ControlFlow *control = kernel.control())
      for (const auto &body : control->bodies)
        for (KernelId inner : body) add(inner, touch);
  }
  static bool stores_once(const LoopNest &nest, const Stage &stage, const StageOutput &o) {
    std::vector<Loop> loops = nest.loops;
    loops.insert(loops.end(), stage.loops.begin(), stage.loops.end());
    const auto box = box_of(loops, o.index);
    if (!box) return false;
    Dim iterations = 1, elements = 1;
    for (const Loop &l : loops) iterations = iterations * l.extent;
    for (const Span &s : *box) elements = elements * s.length;
    return iterations == elements;
  }
  // Every load of the input, in any value or index of the stage, is at the store's place.
  bool loads_there(const Stage &stage, bool last, const StageOutput &store) const {
    const Dim at = linear_offset(p_.buffer(store.buffer), store.index);
    std::vector<ScalarId> loads;
    for (const StageOutput &o : stage.outputs) {
      for (ScalarId id : {o.value, o.initial, o.condition})
        if (id.valid()) collect_loads(p_, id, loads);
      for (Dim d : o.index) {
        std::vector<const DimSymbol *> symbols;
        collect_symbols(d, symbols);
        for (const DimSymbol *symbol : symbols)
          if (symbol->kind == SymbolKind::kScalar) collect_loads(p_, ScalarId(size_t{symbol->scalar}), loads);
      }
    }
    return std::all_of(loads.begin(), loads.end(), [&](ScalarId id) {
      const Scalar &load = p_.scalars.at(id);
      return !is_input(load.buffer) || (last && uses_.offset(load.buffer) == uses_.offset(store.buffer) &&
                                        linear_offset(p_.buffer(load.buffer), load.index) == at);
    });
  }

  const Program &p_;
  const Uses &uses_;
  const State &state_;
  const BufferId input_, output_;
};

}  // namespace

bool keeps_input(const Program &program, const State &state, const StageOutput &store) {
  if (store.buffer != program.outputs[state.output] || store.combine != Combine::kStore) return false;
  const Scalar &value = program.scalars.at(store.value);
  return value.op == ScalarOp::kLoad && value.buffer == program.inputs[state.input] && value.index == store.index;
}

bool replaces_input(const Program &program, const State &state, const StageOutput &store) {
  if (keeps_input(program, state, store)) return false;
  if (state.axis < 0 || store.buffer != program.outputs[state.output]) return true;
  const size_t axis = static_cast<size_t>(state.axis);
  return !proved_at_least(store.index[axis], program.buffer(program.inputs[state.input]).shape()[axis]);
}

KernelId first_stale_read(const Program &program, const Uses &uses, const State &state, KernelId *replaced) {
  const Touches touches(program, uses, state);
  KernelId writer;
  for (KernelId k : program.order) {
    const Touch touch = touches.of(k);
    const bool replaces = touch.replaces_unseen || !touch.replaces.empty();
    if (touch.reads && (writer.valid() || (replaces && !touches.only_where_replaced(k, touch)))) {
      if (replaced) *replaced = writer.valid() ? writer : k;
      return k;
    }
    if (replaces) writer = k;
  }
  return {};
}

void check_states(const Program &program, const std::function<void(const char *, const std::string &)> &fail) {
  if (program.states.empty()) return;
  const Uses uses(program);
  for (const State &state : program.states) {
    const Buffer &input = program.buffer(program.inputs[state.input]),
                 &output = program.buffer(program.outputs[state.output]);
    const std::string names = "the state " + quoted(program, program.inputs[state.input]) + " -> " +
                              quoted(program, program.outputs[state.output]);
    if (input.alias != program.outputs[state.output] || !input.alias_offset.is(0) || output.alias.valid())
      fail("P14", names + " is no view of one memory");
    if (input.element() != output.element() || input.shape().size() != output.shape().size()) {
      fail("P14", names + " has two types");
      continue;
    }
    bool one_layout = input.order.empty() && output.order.empty();
    if (state.axis < 0) {
      one_layout = one_layout && input.shape() == output.shape() && input.padded.empty() && output.padded.empty();
    } else {
      Shape stored = output.shape();
      const size_t axis = static_cast<size_t>(state.axis);
      for (size_t k = 0; k < stored.size(); ++k)
        one_layout = one_layout && (k == axis || stored[k] == input.shape()[k]);
      if (state.capacity && axis < stored.size()) stored[axis] = program.dims->symbol_value(state.capacity);
      one_layout = one_layout && state.capacity && input.padded == stored && output.padded == stored;
    }
    if (!one_layout) {
      fail("P14", names + " has two layouts");
      continue;
    }
    KernelId replaced;
    if (const KernelId k = first_stale_read(program, uses, state, &replaced); k.valid())
      fail("P15", "kernel " + program.kernel(k).name + " reads of " + quoted(program, program.inputs[state.input]) +
                      " what kernel " + program.kernel(replaced).name + " has replaced");
  }
}

}  // namespace optc
