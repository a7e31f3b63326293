#include "ir/program/assignment.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ir/program/cover.h"
#include "ir/program/uses.h"

namespace optc {
namespace {

class Assignment {
 public:
  Assignment(const Program &program, const std::function<void(const std::string &)> &fail)
      : p_(program), uses_(program), fail_(fail), written_(program.buffers.size()) {}

  void run() {
    for (const DimConstraint &c : p_.constraints)
      if (!c.or_one) equal(settled(c.left), settled(c.right));
    for (const DimConstraint &c : p_.constraints)
      demands_.push_back({settled(c.left), settled(c.right), c.or_one, c.where});
    for (size_t i = 0; i < p_.buffers.size(); ++i) {
      const BufferKind kind = p_.buffers[i].kind;
      if (kind != BufferKind::kTemporary && kind != BufferKind::kOutput) written_[i].whole = true;
    }
    // What the caller has put into a state.
    for (const State &state : p_.states) write(p_.inputs[state.input], nullptr, nullptr);
    sequence(p_.order);
    for (BufferId b : p_.outputs) read(b, nullptr, nullptr, "the caller");
  }

 private:
  // What was written of a storage, in the index of its root.
  struct Written {
    bool whole = false;
    bool unknown = false;  // and something of which the extent is not seen
    std::vector<Box> boxes;
  };

  // What the model asks of its sizes holds in every run that goes on: a symbol that must equal something is that.
  void equal(Dim a, Dim b) {
    if (!single_symbol(a)) std::swap(a, b);
    const DimSymbol *symbol = single_symbol(a);
    if (!symbol || uses_symbol(b, symbol)) return;
    for (auto &[other, value] : equal_)
      value =
          substitute(value, [&](const DimSymbol &s) { return &s == symbol ? std::optional<Dim>(b) : std::nullopt; });
    equal_.emplace(symbol, b);
  }
  Dim settled(Dim d) const {
    if (equal_.empty() || d.is_constant()) return d;
    return substitute(d, [&](const DimSymbol &s) -> std::optional<Dim> {
      const auto found = equal_.find(&s);
      return found == equal_.end() ? std::nullopt : std::optional<Dim>(found->second);
    });
  }
  Shape settled(Shape shape) const {
    for (Dim &d : shape) d = settled(d);
    return shape;
  }

  void sequence(const std::vector<KernelId> &order) {
    for (KernelId k : order) kernel(k);
  }

  void kernel(KernelId k) {
    const Kernel &kernel = p_.kernel(k);
    const std::string who = "kernel " + kernel.name;
    if (const LoopNest *nest = kernel.nest()) return loop_nest(*nest, who);
    if (const ControlFlow *control = kernel.control()) {
      for (BufferId b : {control->condition, control->trip_count})
        if (b.valid()) read(b, nullptr, nullptr, who);
      for (BufferId b : control->initial)
        if (b.valid()) read(b, nullptr, nullptr, who);
      for (BufferId b : {control->iteration, control->body_condition})
        if (b.valid()) write(b, nullptr, nullptr);
      for (BufferId b : control->body_inputs)
        if (b.valid()) write(b, nullptr, nullptr);
      for (size_t i = 0; i < control->bodies.size(); ++i) {
        sequence(control->bodies[i]);
        if (i < control->results.size())
          for (BufferId b : control->results[i])
            if (b.valid()) read(b, nullptr, nullptr, who + ", result of a body,");
      }
      for (BufferId b : control->outputs)
        if (b.valid()) write(b, nullptr, nullptr);
      return;
    }
    for (BufferId b : uses_.reads(k)) read(b, nullptr, nullptr, who);
    for (BufferId b : uses_.writes(k)) write(b, nullptr, nullptr);
  }

  void loop_nest(const LoopNest &nest, const std::string &who) {
    // Of what the kernel writes itself, it may read what an earlier stage or iteration wrote.
    std::unordered_set<uint32_t> own;
    for (const Stage &stage : nest.stages)
      for (const StageOutput &o : stage.outputs)
        if (o.buffer.valid() && o.combine == Combine::kStore) own.insert(uses_.root(o.buffer).index);
    for (const Stage &stage : nest.stages) {
      std::vector<Loop> loops = nest.loops;
      loops.insert(loops.end(), stage.loops.begin(), stage.loops.end());
      std::vector<ScalarId> loads;
      for (const StageOutput &o : stage.outputs) {
        for (ScalarId id : {o.value, o.initial, o.condition})
          if (id.valid()) collect_loads(p_, id, loads);
        if (o.buffer.valid() && o.combine != Combine::kStore && !own.count(uses_.root(o.buffer).index))
          read(o.buffer, &loops, &o.index, who);
      }
      for (ScalarId id : loads) {
        const Scalar &load = p_.scalars.at(id);
        if (!own.count(uses_.root(load.buffer).index)) read(load.buffer, &loops, &load.index, who);
      }
    }
    for (const Stage &stage : nest.stages) {
      std::vector<Loop> loops = nest.loops;
      loops.insert(loops.end(), stage.loops.begin(), stage.loops.end());
      for (const StageOutput &o : stage.outputs) {
        if (!o.buffer.valid() || o.combine != Combine::kStore) continue;
        if (o.condition.valid())
          written_[uses_.root(o.buffer).index].unknown = true;
        else
          write(o.buffer, &loops, &o.index);
      }
    }
  }

  // The elements of `b` at `index` over all `loops` (null: all of them) in the index of its root; nullopt: not seen.
  std::optional<Box> box(BufferId b, const std::vector<Loop> *loops, const std::vector<Dim> *index) const {
    const Buffer &buffer = p_.buffer(b), &root = p_.buffer(uses_.root(b));
    if (!buffer.type.is_tensor() || !root.type.is_tensor()) return std::nullopt;
    const Shape shape = settled(buffer.shape()), root_shape = settled(root.shape());
    const Box all = whole_box(shape);
    std::optional<Box> part = loops ? box_of(*loops, *index) : std::optional<Box>(all);
    if (!part || !uses_.offset(b).is(0)) return std::nullopt;
    for (Span &s : *part) s = {settled(s.begin), settled(s.length)};
    if (shape == root_shape) return part;
    // The input of a state that grows is the start of it.
    if (is_state_input(b)) return part;
    // Another shape: all of it is all of the root.
    if (element_count(shape) == element_count(root_shape) && covers({*part}, all) == Cover::kYes)
      return whole_box(root_shape);
    return std::nullopt;
  }

  bool is_state_input(BufferId b) const {
    return std::any_of(p_.states.begin(), p_.states.end(), [&](const State &s) { return p_.inputs[s.input] == b; });
  }

  void write(BufferId b, const std::vector<Loop> *loops, const std::vector<Dim> *index) {
    Written &written = written_[uses_.root(b).index];
    if (written.whole) return;
    if (!p_.buffer(b).type.is_tensor()) {
      written.whole = true;
      return;
    }
    auto part = box(b, loops, index);
    if (!part)
      written.unknown = true;
    else
      written.boxes.push_back(std::move(*part));
  }

  void read(BufferId b, const std::vector<Loop> *loops, const std::vector<Dim> *index, const std::string &who) {
    Written &written = written_[uses_.root(b).index];
    if (written.whole) return;
    const Buffer &root = p_.buffer(uses_.root(b));
    if (!root.type.is_tensor()) return;
    if (covers(written.boxes, whole_box(settled(root.shape()))) == Cover::kYes) {
      written.whole = true;
      written.boxes.clear();
      return;
    }
    if (written.unknown) return;
    const auto part = box(b, loops, index);
    if (part && covers(written.boxes, *part, demands_) == Cover::kNo)
      fail_(who + " reads elements of '" + p_.buffer(b).name + "' that nobody wrote");
  }

  const Program &p_;
  const Uses uses_;
  const std::function<void(const std::string &)> &fail_;
  std::vector<Written> written_;
  std::unordered_map<const DimSymbol *, Dim> equal_;
  std::vector<DimConstraint> demands_;  // the model's, with what is equal put in
};

}  // namespace

void check_assignment(const Program &program, const std::function<void(const std::string &)> &fail) {
  Assignment(program, fail).run();
}

}  // namespace optc
