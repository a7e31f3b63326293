// The form of a kernel: what is equal where two kernels should run by the same way, on one machine.

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/program/contraction_view.h"
#include "lowering/schedule/schedule.h"
#include "support/file.h"

namespace optc {
namespace {

// Writes a kernel with buffers, symbols and scalars numbered in the order in which they are met; each scalar is written
// once, so that the text is as long as the kernel.
class FormWriter {
 public:
  FormWriter(const Program &program, const Kernel &kernel) : p_(program), nest_(*kernel.nest()) {}

  std::string write() {
    loops("for", nest_.loops);
    if (nest_.sequential) text_ += "sequential\n";
    for (const Local &l : nest_.locals) text_ += "local " + std::string(to_string(l.type)) + dims(l.shape) + "\n";
    for (const Stage &stage : nest_.stages) {
      loops("stage", stage.loops);
      for (const StageOutput &o : stage.outputs) output(o);
    }
    if (nest_.contraction) contraction(*nest_.contraction);
    return std::move(text_);
  }

 private:
  void loops(const char *what, const std::vector<Loop> &list) {
    std::string line = what;
    for (const Loop &l : list) line += " " + symbol(l.index) + "<" + dim(l.extent);
    text_ += line + "\n";
  }

  void output(const StageOutput &o) {
    std::string line = o.buffer.valid() ? buffer(o.buffer) : local(o.local);
    line += dims(o.index) + " " + std::string(to_string(o.combine)) + " " + scalar(o.value);
    if (o.initial.valid()) line += " from " + scalar(o.initial);
    if (o.condition.valid()) line += " if " + scalar(o.condition);
    text_ += line + "\n";
  }

  void contraction(const Contraction &c) {
    std::string line = "contraction " + std::to_string(static_cast<int>(c.kind)) + " of " + std::to_string(c.stage);
    for (const auto *role : {&c.batch, &c.m, &c.n, &c.k}) {
      line += " /";
      for (const DimSymbol *s : *role) line += " " + symbol(s);
    }
    for (const auto *list : {&c.kernel, &c.strides, &c.dilations, &c.pads_begin, &c.pads_end}) {
      line += " /";
      for (const int64_t n : *list) line += " " + std::to_string(n);
    }
    line += " group " + std::to_string(c.group) + (c.transposed ? " transposed" : "") + (c.causal ? " causal" : "");
    for (const ScalarId s : {c.lhs, c.rhs, c.query, c.key, c.value, c.mask, c.scale})
      line += s.valid() ? " " + scalar(s) : " _";
    text_ += line + "\n";
  }

  std::string symbol(const DimSymbol *s) {
    const auto [at, fresh] = symbols_.try_emplace(s, symbols_.size());
    const std::string name = "s" + std::to_string(at->second);
    if (!fresh || s->kind == SymbolKind::kLoop) return name;
    if (s->kind == SymbolKind::kScalar)
      text_ += name + " is " + scalar(ScalarId(s->scalar)) + "\n";
    else
      text_ += name + " in " + std::to_string(s->min) + ".." + std::to_string(s->max) + " by " +
               std::to_string(s->multiple) + "\n";
    return name;
  }

  std::string dim(Dim d) {
    if (d.is_constant()) return std::to_string(d.value());
    std::vector<std::string> terms;
    for (const DimTerm &t : d.node()->terms) {
      std::string term = std::to_string(t.coefficient);
      for (const DimAtom *a : t.atoms)
        term += "*" + (a->kind == AtomKind::kSymbol
                           ? symbol(a->symbol)
                           : "(" + dim(a->a) + " " + std::to_string(static_cast<int>(a->kind)) + " " + dim(a->b) + ")");
      terms.push_back(std::move(term));
    }
    // Interned terms stand in the order in which symbols were made, which is that of the whole Program.
    std::sort(terms.begin(), terms.end());
    std::string all = std::to_string(d.node()->constant);
    for (const std::string &term : terms) all += "+" + term;
    return all;
  }

  std::string dims(const std::vector<Dim> &list) {
    std::string all = "[";
    for (const Dim d : list) all += (all.size() > 1 ? "," : "") + dim(d);
    return all + "]";
  }

  static std::string local(LocalId id) { return "t" + std::to_string(id.index); }

  // Constants are laid out by the compiler, all else lies where a run has it.
  std::string buffer(BufferId id) {
    const auto [at, fresh] = buffers_.try_emplace(id.index, buffers_.size());
    const std::string name = "b" + std::to_string(at->second);
    if (!fresh) return name;
    const Buffer &b = p_.buffer(id);
    std::string line = name + " is " + std::string(to_string(b.element())) + dims(b.shape());
    if (!b.order.empty()) line += " order";
    for (const int position : b.order) line += " " + std::to_string(position);
    if (!b.padded.empty()) line += " padded " + dims(b.padded);
    if (b.kind == BufferKind::kConstant) line += " constant";
    if (b.alias.valid()) line += " in " + buffer(b.alias) + " at " + dim(b.alias_offset);
    text_ += line + "\n";
    return name;
  }

  std::string scalar(ScalarId id) {
    if (const auto at = scalars_.find(id.index); at != scalars_.end()) return "v" + std::to_string(at->second);
    const Scalar &s = p_.scalars.at(id);
    std::string line = std::string(to_string(s.op)) + " " + std::string(to_string(s.type));
    if (s.flag) line += " flag " + std::to_string(s.flag);
    for (int i = 0; i < arity(s.op); ++i) line += " " + scalar(s.args[i]);
    if (s.op == ScalarOp::kConstant) line += " " + std::to_string(s.bits);
    if (s.op == ScalarOp::kIndex) line += " " + dim(s.index_value);
    if (s.op == ScalarOp::kLoad) line += " " + buffer(s.buffer);
    if (s.op == ScalarOp::kLocal) line += " " + local(s.local);
    if (!s.index.empty()) line += dims(s.index);
    const size_t number = scalars_.size();
    scalars_.emplace(id.index, number);
    const std::string name = "v" + std::to_string(number);
    text_ += name + " is " + line + "\n";
    return name;
  }

  const Program &p_;
  const LoopNest &nest_;
  std::string text_;
  std::unordered_map<const DimSymbol *, size_t> symbols_;
  std::unordered_map<uint32_t, size_t> buffers_, scalars_;
};

}  // namespace

std::string schedule_form(const Program &program, const Kernel &kernel, const LoweringOptions &options) {
  std::string text = FormWriter(program, kernel).write();
  if (options.target == LoweringOptions::Target::kGpu)
    text =
        "gpu " + std::to_string(static_cast<int>(options.f32)) + (options.warpgroups ? " warpgroups\n" : "\n") + text;
  return xxh3_128(text.data(), text.size());
}

}  // namespace optc
