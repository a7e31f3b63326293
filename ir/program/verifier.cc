// Invariants of a Program:
//  P1   every id in kernels, stages and scalars is in range; tensors have a known shape.
//  P2   an index has one entry per logical dimension of its buffer or local.
//  P3   symbols of kind kLoop in an index or condition belong to a loop around it (shared, or of the same stage).
//  P4   a stage output has exactly one target, and its value's type is the target's element type (kStore) or a type
//       that combines.
//  P5   a buffer is written before it is read, in execution order; constants and inputs are never written.
//  P6   a load's scalar type is its buffer's element type; a local's likewise.
//  P7   locals are written by an earlier stage (or an earlier output of a loop-free stage) than the one that reads
//  them. P8   `order` is a permutation and `padded` has one entry a dimension, where they are given. P9   kernels in
//  `order` and in bodies are alive and appear once. P10  every element of a temporary or output that is read was
//  written before (assignment.h). P11  a place lives as long as what lies in it is used, has its bytes, and shares none
//  with others that live then
//       (placement.h).
//  P12  what a result has taken the bytes of is not read any more (placement.h).
//  P13  a run-time size is found once on a path: no kernel defines what one before it or around it defines.
//  P14  the input and the output of a state are one memory of one layout (state.h).
//  P15  no kernel reads of a state's input what its output has replaced (state.h).
//  P16  no offset of a load or a store and no number of iterations is saturated (address.h, ir/dim/saturation.h).
//  P17  memory of the caller's outputs is that of an output of the model.
//  S..  a schedule says what the kernel's body says (schedule_verifier.cc).
#include <algorithm>
#include <set>
#include <string>
#include <unordered_set>

#include "ir/program/address.h"
#include "ir/program/assignment.h"
#include "ir/program/placement.h"
#include "ir/program/program.h"
#include "ir/program/state.h"

namespace optc {
namespace {

class Verifier {
 public:
  Verifier(const Program &program, Diagnostics &diagnostics) : p_(program), diagnostics_(diagnostics) {}

  Status run() {
    written_.assign(p_.buffers.size(), false);
    std::unordered_set<uint32_t> outputs;
    for (BufferId o : p_.outputs) outputs.insert(o.index);
    for (size_t i = 0; i < p_.buffers.size(); ++i) {
      const Buffer &b = p_.buffers[i];
      if (b.kind == BufferKind::kInput || b.kind == BufferKind::kConstant) written_[i] = true;
      if (b.type.is_tensor() && !b.type.has_shape()) fail("P1", "buffer '" + b.name + "' has no shape");
      if (!b.order.empty()) {
        std::vector<int> sorted = b.order;
        std::sort(sorted.begin(), sorted.end());
        for (size_t k = 0; k < sorted.size(); ++k)
          if (sorted[k] != static_cast<int>(k)) fail("P8", "order of '" + b.name + "' is not a permutation");
        if (sorted.size() != b.shape().size()) fail("P8", "order of '" + b.name + "' has another rank");
      }
      if (!b.padded.empty() && b.padded.size() != b.shape().size())
        fail("P8", "padding of '" + b.name + "' has another rank");
      if (b.kind == BufferKind::kOutput && !outputs.count(static_cast<uint32_t>(i)))
        fail("P17", "'" + b.name + "' is memory of the caller, who gives none for it");
    }
    for (const State &state : p_.states) written_[p_.outputs[state.output].index] = true;  // by the caller
    sequence(p_.order);
    for (BufferId o : p_.outputs)
      if (!is_written(o)) fail("P5", "output '" + p_.buffer(o).name + "' is never written");
    if (!failed_) check_states(p_, [&](const char *number, const std::string &what) { fail(number, what); });
    if (!failed_) check_assignment(p_, [&](const std::string &what) { fail("P10", what); });
    if (!failed_) check_placements(p_, [&](const std::string &what) { fail("P11", what); });
    if (!failed_) check_taken_over(p_, [&](const std::string &what) { fail("P12", what); });
    if (failed_) return Failure{ErrorKind::kInternal};
    return {};
  }

 private:
  void fail(const char *number, const std::string &what) {
    failed_ = true;
    (void)diagnostics_.error(ErrorKind::kInternal, std::string("program verifier ") + number + ": " + what);
  }
  bool is_written(BufferId b) const {
    for (; b.valid(); b = p_.buffer(b).alias)
      if (written_[b.index]) return true;
    return false;
  }
  void mark_written(BufferId b) {
    for (; b.valid(); b = p_.buffer(b).alias) written_[b.index] = true;
  }

  void sequence(const std::vector<KernelId> &order) {
    for (KernelId k : order) {
      if (k.index >= p_.kernels.size() || !p_.kernel(k).alive || !seen_.insert(k.index).second) {
        fail("P9", "kernel " + std::to_string(k.index) + " is dead, unknown or appears twice");
        continue;
      }
      kernel(p_.kernel(k));
    }
  }

  void kernel(const Kernel &kernel) {
    const std::string where = "kernel " + kernel.name + ": ";
    if (const ControlFlow *control = kernel.control()) {
      define(control->defines, where);
      for (BufferId b : {control->iteration, control->body_condition})
        if (b.valid()) mark_written(b);
      for (BufferId b : control->body_inputs) mark_written(b);
      for (const auto &body : control->bodies) sequence(body);
      for (BufferId b : control->outputs) mark_written(b);
      return;
    }
    if (const LibraryCall *call = kernel.library()) define(call->defines, where);
    const std::vector<BufferId> in = reads(p_, kernel), out = writes(p_, kernel);
    for (BufferId b : out) {
      const BufferKind kind = p_.buffer(b).kind;
      if (kind == BufferKind::kInput || kind == BufferKind::kConstant)
        fail("P5", where + "writes '" + p_.buffer(b).name + "'");
      if (p_.buffer(b).kind == BufferKind::kScratch) mark_written(b);
    }
    for (BufferId b : in)
      if (!is_written(b) && std::find(out.begin(), out.end(), b) == out.end())
        fail("P5", where + "reads '" + p_.buffer(b).name + "' before it is written");
    if (const LoopNest *nest = kernel.nest()) check_nest(*nest, where);
    if (const LoopNest *nest = kernel.nest(); nest && !failed_ && !addressable(p_, *nest))
      fail("P16", where + "an offset or a number of iterations is an expression of too many parts");
    if (!failed_)
      check_schedule(p_, kernel, [&](const char *number, const std::string &what) { fail(number, where + what); });
    for (BufferId b : out) mark_written(b);
  }

  void define(const std::vector<const DimSymbol *> &sizes, const std::string &where) {
    for (const DimSymbol *size : sizes)
      if (size && !defined_.insert(size).second) fail("P13", where + "defines the size '" + size->name + "' again");
  }

  void check_nest(const LoopNest &nest, const std::string &where) {
    locals_ = &nest.locals;
    local_written_.assign(nest.locals.size(), false);
    for (const Stage &stage : nest.stages) {
      scope_.clear();
      checked_.clear();
      for (const Loop &l : nest.loops) scope_.insert(l.index);
      for (const Loop &l : stage.loops) scope_.insert(l.index);
      for (const StageOutput &o : stage.outputs) {
        if (o.buffer.valid() == o.local.valid()) {
          fail("P4", where + "an output must have one target");
          continue;
        }
        scalar(o.value, where);
        scalar(o.initial, where);
        scalar(o.condition, where);
        const ElementType target = o.buffer.valid() ? p_.buffer(o.buffer).element() : nest.locals[o.local.index].type;
        const size_t rank =
            o.buffer.valid() ? p_.buffer(o.buffer).shape().size() : nest.locals[o.local.index].shape.size();
        if (o.index.size() != rank)
          fail("P2", where + "an output has " + std::to_string(o.index.size()) + " indices, expected " +
                         std::to_string(rank));
        for (Dim d : o.index) dim(d, where);
        if (o.value.valid() && p_.scalars.at(o.value).type != target)
          fail("P4", where + "stores " + std::string(to_string(p_.scalars.at(o.value).type)) + " into " +
                         std::string(to_string(target)));
        if (stage.loops.empty() && o.local.valid()) local_written_[o.local.index] = true;
      }
      for (const StageOutput &o : stage.outputs)
        if (o.local.valid()) local_written_[o.local.index] = true;
    }
  }

  void scalar(ScalarId id, const std::string &where) {
    if (!id.valid() || !checked_.insert(id.index).second) return;
    if (id.index >= p_.scalars.size()) return fail("P1", where + "scalar out of range");
    const Scalar &s = p_.scalars.at(id);
    for (int i = 0; i < arity(s.op); ++i) {
      if (!s.args[i].valid()) return fail("P1", where + "scalar without operand");
      scalar(s.args[i], where);
    }
    operand_types(s, where);
    if (s.op == ScalarOp::kIndex) dim(s.index_value, where);
    for (Dim d : s.index) dim(d, where);
    if (s.op == ScalarOp::kLoad) {
      if (s.buffer.index >= p_.buffers.size()) return fail("P1", where + "load of an unknown buffer");
      const Buffer &b = p_.buffer(s.buffer);
      if (s.index.size() != b.shape().size())
        fail("P2", where + "load of '" + b.name + "' has " + std::to_string(s.index.size()) + " indices");
      if (s.type != b.element()) fail("P6", where + "load of '" + b.name + "' has another type");
    }
    if (s.op == ScalarOp::kLocal) {
      if (s.local.index >= locals_->size()) return fail("P1", where + "unknown local");
      const Local &l = (*locals_)[s.local.index];
      if (s.index.size() != l.shape.size()) fail("P2", where + "local '" + l.name + "' has another rank");
      if (s.type != l.type) fail("P6", where + "local '" + l.name + "' has another type");
      if (!local_written_[s.local.index]) fail("P7", where + "reads local '" + l.name + "' before it is written");
    }
  }

  // What is computed of several operands is computed in their one type: lanes and registers are read as that.
  void operand_types(const Scalar &s, const std::string &where) {
    const int first = s.op == ScalarOp::kSelect ? 1 : 0;
    const auto type = [&](int i) { return p_.scalars.at(s.args[i]).type; };
    for (int i = first + 1; i < arity(s.op); ++i)
      if (type(i) != type(first))
        fail("P6", where + std::string(to_string(s.op)) + " of " + std::string(to_string(type(first))) + " and " +
                       std::string(to_string(type(i))));
    if (s.op == ScalarOp::kSelect && (type(0) != ElementType::kBool || s.type != type(1)))
      fail("P6", where + "select of " + std::string(to_string(type(1))) + " by " + std::string(to_string(type(0))));
  }

  void dim(Dim d, const std::string &where) {
    std::vector<const DimSymbol *> symbols;
    collect_symbols(d, symbols);
    for (const DimSymbol *symbol : symbols) {
      if (symbol->kind == SymbolKind::kLoop && !scope_.count(symbol))
        fail("P3", where + "index uses loop '" + symbol->name + "' outside of it");
      if (symbol->kind == SymbolKind::kScalar) scalar(ScalarId(size_t{symbol->scalar}), where);
    }
  }

  const Program &p_;
  Diagnostics &diagnostics_;
  std::vector<bool> written_, local_written_;
  std::unordered_set<uint32_t> seen_, checked_;
  std::unordered_set<const DimSymbol *> scope_, defined_;
  const std::vector<Local> *locals_ = nullptr;
  bool failed_ = false;
};

}  // namespace

Status verify(const Program &program, Diagnostics &diagnostics) { return Verifier(program, diagnostics).run(); }

}  // namespace optc
