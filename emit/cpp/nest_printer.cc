// The loops of a nest: what is parallel, what runs in lanes, where accumulators live.
#include <fmt/format.h>

#include <algorithm>

#include "emit/cpp/nest.h"
#include "emit/cpp/types.h"

namespace optc {

void NestPrinter::line(const std::string &text) {
  out_ += std::string(static_cast<size_t>(indent_) * 2, ' ') + text + "\n";
}

void NestPrinter::open(const std::string &text) {
  line(text + " {");
  ++indent_;
  scopes_.emplace_back();
}

void NestPrinter::close(const std::string &tail) {
  for (uint32_t v : scopes_.back().values) bound_.erase(v);
  for (const DimSymbol *s : scopes_.back().indices) bound_index_.erase(s);
  for (const std::string &r : scopes_.back().rows) bound_rows_.erase(r);
  scopes_.pop_back();
  --indent_;
  line(tail);
}

NestPrinter::NestPrinter(const Program &program, const Kernel &kernel, FaultPlaces &places)
    : NestPlan(program, kernel), places_(places) {
  names_.take(kernel.name);
}

Result<KernelText> NestPrinter::print(Diagnostics &diagnostics) {
  local_declared_.assign(nest_.locals.size(), false);
  for (const Local &l : nest_.locals) local_names_.push_back(names_.unique(l.name.empty() ? "local" : l.name, 24));
  indent_ = 1;
  scopes_.emplace_back();
  if (!print_template())
    return diagnostics.error(ErrorKind::kInternal,
                             "a kernel has not the form of its schedule:\n" + optc::print(program_, kernel_));
  KernelText text = std::move(text_);
  text.name = kernel_.name;
  std::string parameters = "[[maybe_unused]] const Env &env";
  for (BufferId b : buffers_) {
    const bool written = written_buffers_.count(b.index) != 0;
    text.buffers.push_back(b);
    text.written.push_back(written);
    parameters += fmt::format(", {}{} *{}", written ? "" : "const ", cpp_type(program_.buffer(b).element()).storage,
                              buffer_names_[b.index]);
  }
  for (const DimSymbol *s : parameters_) {
    text.symbols.push_back(s);
    parameters += ", int64_t " + symbol_names_[s];
  }
  text.parameters = parameters;
  text.scratch_bytes = scratch_bytes_;
  const std::string function = "static OPTC_KERNEL void " + kernel_.name + "(" + parameters + ") {\n" + out_ + "}\n";
  text.text = prologue_ + header_comment() + function;
  text.form = without_names(prologue_ + function, names_, kernel_.name);
  return text;
}

// The nest by itself.
bool NestPrinter::print_plain() {
  plan_loops();
  name_loads(0);
  name_stores();
  if (transpose_)
    print_transpose();
  else
    print_outer();
  return true;
}

// Arguments: what is read, then what is written, in order of first appearance.
void NestPrinter::name_loads(size_t first_stage) {
  for (size_t i = first_stage; i < plans_.size(); ++i)
    for (const Item &item : plans_[i].order)
      if (!item.index && program_.scalars.at(item.id).op == ScalarOp::kLoad &&
          !written_buffers_.count(program_.scalars.at(item.id).buffer.index))
        buffer_name(program_.scalars.at(item.id).buffer);
}

void NestPrinter::name_stores() {
  for (const Stage &stage : nest_.stages)
    for (const StageOutput &o : stage.outputs)
      if (o.buffer.valid()) buffer_name(o.buffer);
}

void NestPrinter::use_task_scratch(Dim bytes) {
  scratch_bytes_ = bytes;
  uses_scratch_ = !bytes.is(0);
}

std::string NestPrinter::header_comment() {
  std::string out = "// " + comment_text(kernel_.note.empty() ? kernel_.name : kernel_.note) + "\n";
  std::string from;
  for (size_t i = 0; i < kernel_.origin.size() && i < 6; ++i) {
    const Origin &o = program_.origins[kernel_.origin[i]];
    from += (i ? ", " : "") + comment_text(o.name) + (o.name.find(o.op) == std::string::npos ? " (" + o.op + ")" : "");
  }
  if (kernel_.origin.size() > 6) from += fmt::format(", ... ({} nodes)", kernel_.origin.size());
  if (!from.empty()) out += "//   from " + from + "\n";
  if (!kernel_.rules.empty()) {
    std::string rules;
    for (const std::string &r : kernel_.rules) rules += (rules.empty() ? "" : ", ") + comment_text(r);
    out += "//   rules " + rules + "\n";
  }
  std::string shapes;
  for (BufferId b : buffers_) {
    const Buffer &buffer = program_.buffer(b);
    shapes += fmt::format("{}{}: {}", shapes.empty() ? "" : "   ", buffer_names_[b.index], to_string(buffer.type));
    if (!buffer.order.empty()) {
      shapes += " stored by";
      for (int k : buffer.order) shapes += " " + std::to_string(k);
    }
    if (shapes.size() > 110) {
      out += "//   " + shapes + "\n";
      shapes.clear();
    }
  }
  if (!shapes.empty()) out += "//   " + shapes + "\n";
  return out;
}

// Iterations that make a task worth a thread, when one of them computes `inner` elements.
std::string NestPrinter::grain_text(Dim inner) {
  constexpr int64_t kWork = 8192;
  if (inner.is_constant()) return std::to_string(std::max<int64_t>(1, kWork / std::max<int64_t>(1, inner.value())));
  return fmt::format("{} / most(1, {})", kWork, dim(inner));
}

void NestPrinter::print_outer() {
  auto hoist_all = [&](int depth) {
    for (size_t i = 0; i < plans_.size(); ++i) {
      // What a stage reads of locals or of this kernel's own results waits until that stage.
      if (depth == static_cast<int>(outer_.size())) break;
      plan_ = &plans_[i];
      hoist(plans_[i], depth);
    }
  };
  plan_ = plans_.empty() ? nullptr : &plans_[0];
  const bool flat = std::all_of(plans_.begin(), plans_.end(), [](const StagePlan &p) { return p.loops.empty(); });
  const size_t n = outer_.size();
  hoist_all(0);
  Dim inner = 1;  // elements of one iteration of the outer loops
  for (const StagePlan &plan : plans_) {
    Dim count = 1;
    for (const Loop &l : plan.loops) count = count * fix(l.extent);
    // Extents that change with an outer loop cannot stand before it.
    std::vector<const DimSymbol *> symbols;
    collect_symbols(count, symbols);
    const bool varying = std::any_of(symbols.begin(), symbols.end(), [](const DimSymbol *s) {
      return s->kind == SymbolKind::kLoop || s->kind == SymbolKind::kScalar;
    });
    if (!varying)
      inner = inner.is_constant() && inner.value() <= 1    ? count
              : inner.is_constant() && count.is_constant() ? Dim(std::max(inner.value(), count.value()))
                                                           : count;
  }
  auto lanes_open = [&](const Loop &l, const std::string &begin, const std::string &end) {
    const std::string name = symbol(*l.index);
    for (size_t i = 0; i < plans_.size(); ++i) bind_rows(plans_[i], nest_.stages[i], static_cast<int>(n) - 1);
    const std::string interior =
        interior_ ? fmt::format("_bordered({}, {}, ", dim(interior_->begin), dim(interior_->end)) : "(";
    open(fmt::format("lanes{}{}, {}, [&](int64_t {}, auto n) OPTC_LAMBDA", interior, begin, end, name));
    lane_count_ = "n";
  };
  auto lanes_close = [&] {
    lane_count_.clear();
    close("});");
  };
  if (serial_ || n == 0) {
    scratch_name_ = "env.scratch";
    for (size_t i = 0; i < n; ++i) {
      const std::string name = symbol(*outer_[i].index), extent = dim(fix(outer_[i].extent));
      if (columns_ && i + 1 == n)
        lanes_open(outer_[i], "0", extent);
      else
        open(fmt::format("for (int64_t {0} = 0; {0} < {1}; ++{0})", name, extent));
      hoist_all(static_cast<int>(i) + 1);
    }
    print_body();
    if (columns_) lanes_close();
    for (size_t i = columns_ ? 1 : 0; i < n; ++i) close();
    return;
  }
  const bool last_inside = columns_ || flat;  // the last outer loop is the inner one of a task
  const size_t tasks = last_inside ? n - 1 : n;
  const std::string mark = out_;
  scratch_name_ = "scratch";
  const size_t before = out_.size();
  auto open_parallel = [&](const std::string &count, const std::string &grain) {
    open(fmt::format("parallel(env, {}, {}, [&](int64_t begin, int64_t end, uint8_t *{}) OPTC_TASK", count, grain,
                     "@SCRATCH@"));
  };
  if (tasks == 0) {
    const Loop &l = outer_[0];
    int64_t grain = 8192;
    if (inner.is_constant()) grain = std::max<int64_t>(64, 8192 / std::max<int64_t>(1, inner.value()) / 64 * 64);
    open_parallel(dim(fix(l.extent)), std::to_string(grain));
    if (columns_) {
      lanes_open(l, "begin", "end");
      print_body();
      lanes_close();
    } else {
      const std::string name = symbol(*l.index);
      open(fmt::format("for (int64_t {0} = begin; {0} < end; ++{0})", name));
      print_body();
      close();
    }
    close("});");
  } else {
    Dim total = 1;
    for (size_t i = 0; i < tasks; ++i) total = total * fix(outer_[i].extent);
    if (last_inside) inner = inner * fix(outer_[n - 1].extent);
    open_parallel(dim(total), grain_text(inner));
    if (tasks == 1) {
      const std::string name = symbol(*outer_[0].index);
      open(fmt::format("for (int64_t {0} = begin; {0} < end; ++{0})", name));
    } else {
      const std::string t = names_.unique("task_", 24);
      open(fmt::format("for (int64_t {0} = begin; {0} < end; ++{0})", t));
      std::string rest = t;
      Dim below = 1;
      // From the innermost: i2 = t % E2, i1 = t / E2 % E1, i0 = t / (E1 * E2).
      std::vector<std::string> lines;
      for (size_t i = tasks; i-- > 0;) {
        const std::string divided = below.is(1) ? t : t + " / " + dim(below, kUnaryPrecedence);
        const std::string text = i == 0 ? divided : divided + " % " + dim(fix(outer_[i].extent), kUnaryPrecedence);
        lines.push_back(fmt::format("[[maybe_unused]] const int64_t {} = {};", symbol(*outer_[i].index), text));
        below = below * fix(outer_[i].extent);
      }
      for (size_t i = lines.size(); i-- > 0;) line(lines[i]);
    }
    for (size_t i = 0; i < tasks; ++i) hoist_all(static_cast<int>(i) + 1);
    if (last_inside) {
      const Loop &l = outer_[n - 1];
      if (columns_) {
        lanes_open(l, "0", dim(fix(l.extent)));
        print_body();
        lanes_close();
      } else {
        const std::string name = symbol(*l.index);
        open(fmt::format("for (int64_t {0} = 0; {0} < {1}; ++{0})", name, dim(fix(l.extent))));
        print_body();
        close();
      }
    } else {
      print_body();
    }
    close();
    close("});");
  }
  const size_t at = out_.find("*@SCRATCH@", before);
  out_.replace(at, 10, uses_scratch_ ? "*scratch" : "*");
}

// A task has some iterations of the last loop and of the one across, and one of the others.
void NestPrinter::print_transpose() {
  constexpr int64_t kAcross = 32, kAlong = 256;
  text_.headers.insert("runtime/cpu/transpose.h");
  text_.plan_headers.insert("runtime/cpu/gemm_plan.h");
  struct Part {  // of a task: a loop and how many of its iterations
    Loop loop;
    int64_t size;
  };
  const Loop &across = outer_[transpose_->across], &along = outer_.back();
  std::vector<Part> parts;
  for (size_t i = 0; i + 1 < outer_.size(); ++i)
    if (i != transpose_->across) parts.push_back({outer_[i], 1});
  parts.push_back({along, kAlong});
  parts.push_back({across, kAcross});
  const auto count = [&](const Part &p) { return ceil_div(fix(p.loop.extent), p.size); };
  Dim total = 1;
  for (const Part &p : parts) total = total * count(p);
  open(fmt::format("parallel(env, {}, 1, [&](int64_t begin, int64_t end, uint8_t *) OPTC_TASK", dim(total)));
  const std::string task = names_.unique("task_", 24);
  open(fmt::format("for (int64_t {0} = begin; {0} < end; ++{0})", task));
  Dim below = 1;
  for (size_t i = parts.size(); i-- > 0;) {
    std::string text = below.is(1) ? task : task + " / " + dim(below, kUnaryPrecedence);
    if (i > 0) text += " % " + dim(count(parts[i]), kUnaryPrecedence);
    if (parts[i].size > 1) text += fmt::format(" * {}", parts[i].size);
    line(fmt::format("[[maybe_unused]] const int64_t {} = {};", symbol(*parts[i].loop.index), text));
    below = below * count(parts[i]);
  }
  const bool floats = program_.buffer(transpose_->out).element() == ElementType::kFloat32;
  const std::string in = row_pointer(buffer_name(transpose_->in), transpose_->from, "", false),
                    out = row_pointer(buffer_name(transpose_->out), transpose_->to, "", false);
  const auto left = [&](const Loop &loop, int64_t size) {
    return fmt::format("least({}, {} - {})", size, dim(fix(loop.extent), kAddPrecedence), symbol(*loop.index));
  };
  line(fmt::format("transpose({}, {}, {}, {}, {}, {});", floats ? in : "(const float *)(" + in + ")",
                   dim(transpose_->in_row), floats ? out : "(float *)(" + out + ")", dim(transpose_->out_row),
                   left(along, kAlong), left(across, kAcross)));
  close();
  close("});");
}

void NestPrinter::print_body() {
  for (size_t i = 0; i < plans_.size(); ++i) print_stage(i);
}

// Arrays: on the stack when small and constant, else in the task's row scratch.
void NestPrinter::declare_local(LocalId id) {
  if (local_declared_[id.index]) return;
  local_declared_[id.index] = true;
  const Local &local = nest_.locals[id.index];
  const std::string &name = local_names_[id.index];
  if (local.shape.empty()) {
    if (columns_ && lanes_)
      line(fmt::format("{} {} = {{}};", lane_type_name(lane_class(local.type)), name));
    else
      line(fmt::format("{} {} = 0;", local_value_type(local), name));
    return;
  }
  const Dim count = fix(element_count(local.shape));
  if (columns_ && lanes_) {
    line(fmt::format("{} {}[{}];", lane_type_name(lane_class(local.type)), name, std::max<int64_t>(1, count.value())));
    return;
  }
  const std::string type = local_value_type(local);
  const int64_t width = std::max(1, bit_width(is_small_float(local.type) ? ElementType::kFloat32 : local.type) / 8);
  if (count.is_constant() && count.value() * width <= 8192) {
    line(fmt::format("{} {}[{}];", type, name, std::max<int64_t>(1, count.value())));
    return;
  }
  uses_scratch_ = true;
  line(fmt::format("{0} *{1} = reinterpret_cast<{0} *>({2}{3});", type, name, scratch_name_,
                   scratch_bytes_.is(0) ? "" : " + " + dim(scratch_bytes_, kAddPrecedence)));
  scratch_bytes_ = scratch_bytes_ + ceil_div(count * Dim(width), Dim(64)) * Dim(64);
}

bool NestPrinter::lanes_accumulator(const StageOutput &o, const StagePlan &plan) const {
  return !columns_ && plan.lanes && o.local.valid() && o.combine != Combine::kStore &&
         reduction_level(o, plan) < plan.loops.size();
}

// A float sum that runs one element at a time is kept in double.
bool NestPrinter::wide_accumulator(const StageOutput &o, const StagePlan &plan) const {
  return !columns_ && !plan.lanes && o.combine == Combine::kSum &&
         nest_.locals[o.local.index].type == ElementType::kFloat32;
}

void NestPrinter::begin_reductions(const Stage &stage, StagePlan &plan, size_t level) {
  for (size_t k = 0; k < stage.outputs.size(); ++k) {
    const StageOutput &o = stage.outputs[k];
    if (!o.local.valid()) continue;
    const Local &local = nest_.locals[o.local.index];
    if (level == 0) {
      const bool scalar_sum = local.shape.empty() && o.combine != Combine::kStore;
      if (!scalar_sum) declare_local(o.local);
    }
    if (o.combine == Combine::kStore) continue;
    const size_t at = reduction_level(o, plan);
    const bool lanes = columns_ && lanes_;
    const std::string initial = o.initial.valid() ? value(o.initial).s : identity_text(o.combine, local.type);
    if (at == SIZE_MAX) {
      if (level != 0) continue;
      // Combined in place: start every element.
      const std::string i = names_.unique("fill", 24);
      const std::string start = lanes ? splat_text(initial, lane_class(local.type)) : initial;
      line(fmt::format("for (int64_t {0} = 0; {0} < {1}; ++{0}) {2}[{0}] = {3};", i,
                       dim(fix(element_count(local.shape))), local_names_[o.local.index], start));
      continue;
    }
    if (at != level) continue;
    std::string name = local_names_[o.local.index];
    if (lanes_accumulator(o, plan)) {
      name = names_.unique(name + "_lanes", 32);
      const bool integer = local.type == ElementType::kInt32;
      const char *type = o.combine == Combine::kSum       ? "SumLanes"
                         : o.combine == Combine::kProduct ? "ProductLanes"
                         : o.combine == Combine::kMax     ? (integer ? "MaxIntLanes" : "MaxLanes")
                                                          : (integer ? "MinIntLanes" : "MinLanes");
      line(fmt::format("{}{} {};", type, local.type == ElementType::kFloat64 ? "Of<double>" : "", name));
    } else if (wide_accumulator(o, plan)) {
      name = names_.unique(name + "_wide", 32);
      line(fmt::format("double {} = {};", name, initial));
    } else {
      if (!local.shape.empty()) name = names_.unique(name + "_at", 32);
      if (lanes) {
        const LaneClass c = lane_class(local.type);
        line(fmt::format("{} {} = {};", lane_type_name(c), name, splat_text(initial, c)));
      } else {
        line(fmt::format("{} {} = {};", local_value_type(local), name, initial));
      }
      if (local.shape.empty()) local_declared_[o.local.index] = true;
    }
    accumulators_[k] = name;
  }
}

void NestPrinter::end_reductions(const Stage &stage, StagePlan &plan, size_t level) {
  for (size_t k = 0; k < stage.outputs.size(); ++k) {
    const StageOutput &o = stage.outputs[k];
    if (!o.local.valid() || o.combine == Combine::kStore || reduction_level(o, plan) != level) continue;
    const Local &local = nest_.locals[o.local.index];
    const std::string accumulator = accumulators_[k], name = local_names_[o.local.index];
    accumulators_.erase(k);
    std::string result = accumulator;
    if (lanes_accumulator(o, plan))
      result = fmt::format("{}.total({})", accumulator, o.initial.valid() ? value(o.initial).s : "");
    else if (wide_accumulator(o, plan))
      result = "(float)" + accumulator;
    if (!local.shape.empty()) {
      line(fmt::format("{}[{}] = {};", name, dim(local_offset(local, o.index)), result));
    } else if (!local_declared_[o.local.index]) {
      line(fmt::format("const {} {} = {};", local_value_type(local), name, result));
      local_declared_[o.local.index] = true;
    } else if (result != name) {
      line(fmt::format("{} = {};", name, result));
    }
  }
}

void NestPrinter::print_stage(size_t index) {
  const Stage &stage = nest_.stages[index];
  StagePlan &plan = plans_[index];
  plan_ = &plan;
  for (size_t i = 0; i < plan.loops.size(); ++i) level_[plan.loops[i].index] = static_cast<int>(outer_.size() + i) + 1;
  if (!columns_) set_lanes(plan.lanes, false);
  if (!plan.loops.empty()) hoist(plan, static_cast<int>(outer_.size()));
  accumulators_.clear();
  begin_reductions(stage, plan, 0);
  print_loops(stage, plan, 0);
  end_reductions(stage, plan, 0);
}

void NestPrinter::print_loops(const Stage &stage, StagePlan &plan, size_t depth) {
  if (depth == plan.loops.size()) {
    for (size_t k = 0; k < stage.outputs.size(); ++k) print_output(plan, stage.outputs[k], k);
    return;
  }
  const Loop &loop = plan.loops[depth];
  const bool last = depth + 1 == plan.loops.size();
  const std::string extent = dim(fix(loop.extent));
  if (last && plan.lanes) {
    bind_rows(plan, stage, static_cast<int>(outer_.size() + depth));
    const bool reduces = std::any_of(stage.outputs.begin(), stage.outputs.end(),
                                     [&](const StageOutput &o) { return lanes_accumulator(o, plan); });
    open(fmt::format("{}(0, {}, [&](int64_t {}, auto n) OPTC_LAMBDA", reduces ? "lanes4" : "lanes", extent,
                     symbol(*loop.index)));
    lane_count_ = "n";
    print_loops(stage, plan, depth + 1);
    lane_count_.clear();
    close("});");
    return;
  }
  // In the lanes of columns the few steps of a window are written out.
  constexpr int64_t kFew = 4;
  const bool few = last && columns_ && interior_ && fix(loop.extent).is_constant() && fix(loop.extent).value() <= kFew;
  const std::string name = symbol(*loop.index);
  open(fmt::format("{1}for (int64_t {0} = 0; {0} < {2}; ++{0})", name, few ? "OPTC_UNROLL " : "", extent));
  if (!last) hoist(plan, static_cast<int>(outer_.size() + depth) + 1);
  begin_reductions(stage, plan, depth + 1);
  print_loops(stage, plan, depth + 1);
  end_reductions(stage, plan, depth + 1);
  close();
}

}  // namespace optc
