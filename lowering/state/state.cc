#include "lowering/state/state.h"

#include <algorithm>
#include <map>
#include <optional>

#include "ir/dim/range.h"
#include "ir/names.h"
#include "ir/program/cover.h"
#include "ir/program/state.h"
#include "lowering/fusion/fusion.h"
#include "ops/build.h"

namespace optc {
namespace {

class StateBinder {
 public:
  StateBinder(Program &program, Steps &steps, std::vector<StateReport> &report, Diagnostics &diagnostics)
      : p_(program), steps_(steps), report_(report), diagnostics_(diagnostics) {}

  Status bind(const std::string &input, const std::string &output) {
    pair_ = "--alias " + input + "=" + output;
    State state;
    OPTC_TRY(find(input, output, state));
    OPTC_TRY(check_types(state));
    if (state.axis >= 0) OPTC_TRY(check_append(state));
    report_.push_back({input, output, state.axis, true, {}});
    if (state.axis >= 0) {
      give_capacity(state);
      OPTC_TRY(give_strides(state));
    }
    const BufferId in = p_.inputs[state.input];
    p_.buffer(in).alias = p_.outputs[state.output];
    p_.buffer(in).alias_offset = 0;
    KernelId replaced;
    const KernelId stale = first_stale_read(p_, Uses(p_), state, &replaced);
    if (!stale.valid() && steps_.allowed("state.in_place")) {
      steps_.record("state.in_place", input + " and " + output, origins_of(p_, Uses(p_), p_.outputs[state.output]));
      state.in_place = true;
      leave_out_kept(state);
    } else {
      keep(state);
      report_.back().in_place = false;
      report_.back().copies.push_back(stale.valid() ? input + ": " + describe(stale) + " reads it when " +
                                                          describe(replaced) + " has replaced it"
                                                    : input + ": state.in_place is left out");
    }
    p_.states.push_back(state);
    return {};
  }

 private:
  // --- what a pair must be
  Failure usage(const std::string &what, const std::string &hint) {
    return diagnostics_.error(ErrorKind::kUsage, pair_ + ": " + what, {}, hint);
  }
  Status find(const std::string &input, const std::string &output, State &state) {
    const auto position = [](const std::vector<std::string> &names, const std::string &name) {
      return static_cast<uint32_t>(std::find(names.begin(), names.end(), name) - names.begin());
    };
    state.input = position(p_.input_names, input);
    state.output = position(p_.output_names, output);
    if (state.input == p_.inputs.size())
      return usage("the model has no input '" + input + "'", "optc inspect lists them");
    if (state.output == p_.outputs.size())
      return usage("the model has no output '" + output + "'", "optc inspect lists them");
    for (const State &other : p_.states)
      if (other.input == state.input || other.output == state.output)
        return usage("'" + (other.input == state.input ? input : output) + "' is a state already",
                     "each input and each output is in one pair at most");
    return {};
  }
  Status check_types(State &state) {
    const Type &in = p_.buffer(p_.inputs[state.input]).type, &out = p_.buffer(p_.outputs[state.output]).type;
    const std::string types = "the input is " + to_string(in) + ", the output " + to_string(out);
    const std::string hint =
        "a state is a tensor of numbers that keeps its type and, but for one axis that grows, its dims";
    if (!in.is_tensor() || !out.is_tensor() || in.element != out.element || in.element == ElementType::kString ||
        in.shape->size() != out.shape->size())
      return usage(types, hint);
    if (state.input < p_.input_defaults.size() && p_.input_defaults[state.input].valid())
      return usage("the input has a default value", "a state is always given");
    for (size_t axis = 0; axis < in.shape->size(); ++axis) {
      const Dim before = (*in.shape)[axis], after = (*out.shape)[axis];
      if (before == after) continue;
      if (state.axis >= 0 || !proved_at_least(after, before)) {
        const DimSymbol *size = single_symbol(after);
        return usage(types,
                     size && size->kind == SymbolKind::kData && single_symbol(before)
                         ? "how long the output is, only the run finds: of a cache of one size, pin it (--dim) in both"
                         : hint);
      }
      state.axis = static_cast<int>(axis);
    }
    if (state.axis >= 0 && bit_width(in.element) % 8 != 0)
      return diagnostics_.error(ErrorKind::kUnsupported, pair_ + ": a cache of elements of less than a byte");
    return {};
  }

  // --- a cache that grows
  Failure no_append(KernelId k, const std::string &why) {
    return diagnostics_.error(
        ErrorKind::kUnsupported,
        pair_ + ": the output is longer than the input, but not the input with something behind it: " + describe(k) +
            " " + why,
        place(k), "only a cache that is appended to can grow in place: Concat(past, new) along the axis");
  }
  // Every element of the input is stored where it was, and nothing else is stored in its place.
  Status check_append(const State &state) {
    const Uses uses(p_);
    const BufferId in = p_.inputs[state.input], out = p_.outputs[state.output];
    std::vector<Box> kept;
    KernelId last;
    for (BufferId name : uses.names(out))
      for (KernelId k : uses.writers(name)) {
        last = k;
        const LoopNest *nest = p_.kernel(k).nest();
        if (!nest || name != out) return no_append(k, "makes it as a whole");
        for (const Stage &stage : nest->stages)
          for (const StageOutput &o : stage.outputs) {
            if (o.buffer != out) continue;
            if (replaces_input(p_, state, o)) return no_append(k, "writes other values where the input is");
            if (!keeps_input(p_, state, o) || o.condition.valid()) continue;
            if (auto box = box_of(all_loops(*nest, stage), o.index)) kept.push_back(std::move(*box));
          }
      }
    if (covers(kept, whole_box(p_.buffer(in).shape())) != Cover::kYes)
      return no_append(last, "is the last to write it, and not all of the input is there");
    return {};
  }
  // One symbol for all that have the same length.
  void give_capacity(State &state) {
    const BufferId in = p_.inputs[state.input];
    const Dim length = p_.buffer(in).shape()[static_cast<size_t>(state.axis)];
    const auto known = capacities_.find(length);
    if (known != capacities_.end()) {
      state.capacity = known->second;
      return;
    }
    const DimSymbol *symbol = single_symbol(length);
    const std::string name = identifier(symbol ? symbol->name : p_.input_names[state.input]) + "_capacity";
    state.capacity = single_symbol(p_.dims->new_symbol(SymbolKind::kModel, name));
    capacities_.emplace(length, state.capacity);
    p_.sources.push_back({state.capacity, state.input, static_cast<uint32_t>(state.axis), true});
  }

  Status give_strides(const State &state) {
    const Uses uses(p_);
    const Dim capacity = p_.dims->symbol_value(state.capacity);
    for (BufferId root : {p_.inputs[state.input], p_.outputs[state.output]}) {
      const std::vector<BufferId> names = uses.names(root);
      const Shape shape = p_.buffer(root).shape();
      for (BufferId name : names) {
        if (name != root && !uses.writers(name).empty())
          return no_append(*uses.writers(name).begin(), "writes it by another shape");
        std::vector<KernelId> calls;  // which read packed tensors
        for (KernelId k : uses.readers(name)) {
          if (p_.kernel(k).control())
            return diagnostics_.error(ErrorKind::kUnsupported,
                                      pair_ + ": " + describe(k) + " takes the cache as a whole", place(k),
                                      "a cache that grows can be read by operators, not be handed to If, Loop or Scan");
          if (p_.kernel(k).library()) calls.push_back(k);
        }
        const auto stored = name == root ? stored_as(shape, shape, state.axis, capacity)
                            : uses.offset(name).is(0) && calls.empty()
                                ? stored_as(p_.buffer(name).shape(), shape, state.axis, capacity)
                                : std::nullopt;
        if (!stored) {
          if (!uses.readers(name).empty()) become_copy(name, root, shape, uses);
          continue;
        }
        p_.buffer(name).padded = *stored;
        if (!calls.empty()) give_copy(name, calls);
      }
    }
    return {};
  }
  // The stored lengths of a view of `shape`, whose axis has that capacity; nullopt: the view has no axis of its own for
  // it.
  static std::optional<std::vector<Dim>> stored_as(const Shape &view, const Shape &shape, int axis, Dim capacity) {
    const auto product = [](const Shape &dims, size_t from, size_t to) {
      Dim all = 1;
      for (; from < to; ++from) all = all * dims[from];
      return all;
    };
    const size_t at = static_cast<size_t>(axis);
    const Dim outside = product(shape, 0, at), inside = product(shape, at + 1, shape.size());
    for (size_t k = 0; k < view.size(); ++k) {
      if (!(view[k] == shape[at]) || !(product(view, 0, k) == outside) ||
          !(product(view, k + 1, view.size()) == inside))
        continue;
      std::vector<Dim> stored = view;
      stored[k] = capacity;
      return stored;
    }
    return std::nullopt;
  }

  // --- copies
  // A kernel to[i] = from[index(i)], at `position` of the main sequence.
  template <typename Index>
  void copy(BufferId from, BufferId to, size_t position, const std::vector<uint32_t> &origin, Index &&index) {
    Kernel kernel;
    kernel.name = identifier(p_.buffer(from).name + "_to_" + p_.buffer(to).name);
    const auto taken = [&](const std::string &name) {
      return std::any_of(p_.kernels.begin(), p_.kernels.end(), [&](const Kernel &k) { return k.name == name; });
    };
    for (int number = 2; taken(kernel.name); ++number)
      kernel.name = identifier(p_.buffer(from).name + "_to_" + p_.buffer(to).name + "_" + std::to_string(number));
    kernel.note = "copy of a state";
    kernel.origin = origin;
    LoopNest nest;
    std::vector<Dim> at;
    for (Dim extent : p_.buffer(to).shape()) {
      if (extent.is(1)) {
        at.push_back(0);
        continue;
      }
      const Dim counter = p_.dims->new_loop("c" + std::to_string(at.size()), extent);
      nest.loops.push_back({single_symbol(counter), extent});
      at.push_back(counter);
    }
    StageOutput out;
    out.buffer = to;
    out.index = at;
    out.value = p_.scalars.load(from, p_.buffer(from).element(), index(at));
    nest.stages.emplace_back().outputs.push_back(std::move(out));
    kernel.body = std::move(nest);
    p_.order.insert(p_.order.begin() + static_cast<std::ptrdiff_t>(position), p_.add_kernel(std::move(kernel)));
  }
  // The place in the main sequence of the first of these kernels, or of the control flow around it.
  size_t first_of(const std::set<KernelId> &kernels) const {
    const std::function<bool(KernelId)> holds = [&](KernelId k) {
      if (kernels.count(k)) return true;
      const ControlFlow *control = p_.kernel(k).control();
      return control && std::any_of(control->bodies.begin(), control->bodies.end(),
                                    [&](const auto &body) { return std::any_of(body.begin(), body.end(), holds); });
    };
    return static_cast<size_t>(std::find_if(p_.order.begin(), p_.order.end(), holds) - p_.order.begin());
  }
  // A view becomes a tensor of its own.
  void become_copy(BufferId view, BufferId root, const Shape &shape, const Uses &uses) {
    const Dim offset = uses.offset(view);
    const KernelId reader = *uses.readers(view).begin();
    report_.back().copies.push_back("'" + p_.buffer(root).name + "' for " + describe(reader) + ", which reads it as " +
                                    to_string(p_.buffer(view).shape()));
    p_.buffer(view).alias = BufferId();
    p_.buffer(view).alias_offset = 0;
    p_.buffer(view).kind = BufferKind::kTemporary;
    const Shape seen = p_.buffer(view).shape();
    copy(root, view, first_of(uses.readers(view)), p_.kernel(reader).origin,
         [&](const std::vector<Dim> &at) { return unflatten_index(flatten_index(at, seen) + offset, shape); });
  }
  // Calls read a packed copy.
  void give_copy(BufferId name, const std::vector<KernelId> &calls) {
    Buffer packed;
    packed.name = p_.buffer(name).name + "_packed";
    packed.type = p_.buffer(name).type;
    const BufferId copied = p_.add_buffer(std::move(packed));
    report_.back().copies.push_back("'" + p_.buffer(name).name + "' for " + describe(calls[0]));
    for (KernelId k : calls)
      for (BufferId &b : std::get<LibraryCall>(p_.kernel(k).body).inputs)
        if (b == name) b = copied;
    copy(name, copied, first_of({calls.begin(), calls.end()}), p_.kernel(calls[0]).origin,
         [](const std::vector<Dim> &at) { return at; });
  }
  // The input is copied before anything else runs; all that read it read the copy.
  void keep(const State &state) {
    const BufferId in = p_.inputs[state.input];
    const BufferId given = p_.add_buffer(p_.buffer(in));
    Buffer &kept = p_.buffer(in);
    kept.name += "_before";
    kept.kind = BufferKind::kTemporary;
    kept.alias = BufferId();
    kept.padded.clear();
    for (Buffer &b : p_.buffers)  // its views are those of the copy, which is packed
      if (b.alias == in) b.padded.clear();
    p_.inputs[state.input] = given;
    copy(given, in, 0, {}, [](const std::vector<Dim> &at) { return at; });
  }

  // What is stored as it was needs no kernel.
  void leave_out_kept(const State &state) {
    for (KernelId k : p_.order) {
      LoopNest *nest = p_.kernel(k).nest();
      if (!nest) continue;
      for (size_t s = nest->stages.size(); s-- > 0;) {
        Stage &stage = nest->stages[s];
        if (std::erase_if(stage.outputs, [&](const StageOutput &o) { return keeps_input(p_, state, o); }) == 0 ||
            !stage.outputs.empty())
          continue;
        nest->stages.erase(nest->stages.begin() + static_cast<std::ptrdiff_t>(s));
        if (nest->contraction && nest->contraction->stage > s) --nest->contraction->stage;
      }
      if (nest->stages.empty()) p_.kernel(k).alive = false;
    }
    std::erase_if(p_.order, [&](KernelId k) { return !p_.kernel(k).alive; });
  }

  std::string describe(KernelId k) const { return k.valid() ? "kernel " + p_.kernel(k).name : "no kernel"; }
  std::string place(KernelId k) const { return k.valid() ? origin_text(p_, p_.kernel(k)) : std::string(); }

  Program &p_;
  Steps &steps_;
  std::vector<StateReport> &report_;
  Diagnostics &diagnostics_;
  std::string pair_;
  std::map<Dim, const DimSymbol *, bool (*)(Dim, Dim)> capacities_{[](Dim a, Dim b) { return a.str() < b.str(); }};
};

}  // namespace

Status bind_states(Program &program, const LoweringOptions &options, Steps &steps, std::vector<StateReport> &report,
                   Diagnostics &diagnostics) {
  StateBinder binder(program, steps, report, diagnostics);
  for (const auto &[input, output] : options.states) OPTC_TRY(binder.bind(input, output));
  return {};
}

}  // namespace optc
