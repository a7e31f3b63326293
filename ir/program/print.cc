#include <cstdio>
#include <cstring>

#include "ir/program/program.h"
#include "ir/program/state.h"

namespace optc {
namespace {

std::string index_text(const Program &program, const std::vector<Dim> &index) {
  (void)program;
  std::string text = "[";
  for (size_t i = 0; i < index.size(); ++i) text += (i ? ", " : "") + index[i].str();
  return text + "]";
}

std::string constant_text(const Scalar &s) {
  char text[64];
  switch (s.type) {
    case ElementType::kFloat32: {
      float f;
      const uint32_t u = static_cast<uint32_t>(s.bits);
      std::memcpy(&f, &u, 4);
      snprintf(text, sizeof text, "%.9g", static_cast<double>(f));
      return text;
    }
    case ElementType::kFloat64: {
      double d;
      std::memcpy(&d, &s.bits, 8);
      snprintf(text, sizeof text, "%.17g", d);
      return text;
    }
    case ElementType::kBool:
      return s.bits ? "true" : "false";
    default:
      break;
  }
  if (is_signed_integer(s.type)) {
    const int width = bit_width(s.type);
    const uint64_t sign = uint64_t{1} << (width - 1);
    return std::to_string(width == 64 ? static_cast<int64_t>(s.bits) : static_cast<int64_t>((s.bits ^ sign) - sign));
  }
  return std::to_string(s.bits) + (is_float(s.type) ? "b" : "");
}

std::string buffer_name(const Program &program, BufferId id) {
  return id.valid() ? program.buffer(id).name : std::string("_");
}

std::string scalar_text(const Program &program, ScalarId id, const std::vector<Local> *locals) {
  const Scalar &s = program.scalars.at(id);
  auto arg = [&](int i) { return scalar_text(program, s.args[i], locals); };
  switch (s.op) {
    case ScalarOp::kConstant:
      return constant_text(s) + ":" + std::string(to_string(s.type));
    case ScalarOp::kIndex:
      return "index(" + s.index_value.str() + ")";
    case ScalarOp::kLoad:
      return buffer_name(program, s.buffer) + index_text(program, s.index);
    case ScalarOp::kLocal:
      return (locals ? (*locals)[s.local.index].name : "local" + std::to_string(s.local.index)) +
             (s.index.empty() ? std::string() : index_text(program, s.index));
    case ScalarOp::kCast:
      return std::string(s.flag ? "cast_wrap<" : "cast<") + std::string(to_string(s.type)) + ">(" + arg(0) + ")";
    default:
      break;
  }
  std::string text =
      std::string(to_string(s.op)) + (s.flag == kRounded && s.op != ScalarOp::kIsInf ? "_rounded" : "") + "(" + arg(0);
  for (int i = 1; i < arity(s.op); ++i) text += ", " + arg(i);
  return text + ")";
}

void loops_text(const std::vector<Loop> &loops, std::string &text) {
  for (const Loop &l : loops) text += " " + l.index->name + "<" + l.extent.str();
}

void kernel_text(const Program &program, const Kernel &kernel, const std::string &indent, std::string &text) {
  text += indent + "kernel " + kernel.name;
  text += "\n";
  if (const std::string schedule = print(program, kernel.schedule); !schedule.empty())
    text += indent + "  schedule " + schedule + "\n";
  if (const LoopNest *nest = kernel.nest()) {
    text += indent + "  for";
    loops_text(nest->loops, text);
    text += nest->sequential ? " sequential\n" : "\n";
    for (const Local &l : nest->locals)
      text += indent + "  local " + l.name + ": " + std::string(to_string(l.type)) + to_string(l.shape) + "\n";
    for (const Stage &stage : nest->stages) {
      text += indent + "  stage";
      loops_text(stage.loops, text);
      text += "\n";
      for (const StageOutput &o : stage.outputs) {
        text += indent + "    ";
        if (o.condition.valid()) text += "if " + scalar_text(program, o.condition, &nest->locals) + ": ";
        text += (o.buffer.valid() ? buffer_name(program, o.buffer) : nest->locals[o.local.index].name) +
                (o.index.empty() && o.local.valid() ? std::string() : index_text(program, o.index));
        text += o.combine == Combine::kStore ? " = " : " " + std::string(to_string(o.combine)) + "= ";
        text += scalar_text(program, o.value, &nest->locals);
        if (o.initial.valid()) text += " from " + scalar_text(program, o.initial, &nest->locals);
        text += "\n";
      }
    }
  } else if (const LibraryCall *call = kernel.library()) {
    text += indent + "  call " + call->function + "(";
    for (size_t i = 0; i < call->inputs.size(); ++i) text += (i ? ", " : "") + buffer_name(program, call->inputs[i]);
    text += ") -> (";
    for (size_t i = 0; i < call->outputs.size(); ++i) text += (i ? ", " : "") + buffer_name(program, call->outputs[i]);
    text += ")";
    for (const DimSymbol *s : call->defines) text += " defines " + (s ? s->name : std::string("_"));
    text += "\n";
  } else if (const ControlFlow *control = kernel.control()) {
    text += indent + (control->kind == ControlFlow::Kind::kIf ? "  if " : "  loop ") +
            buffer_name(program, control->condition) + "\n";
    for (size_t b = 0; b < control->bodies.size(); ++b) {
      text += indent + "  body " + std::to_string(b) + "\n";
      for (KernelId k : control->bodies[b]) kernel_text(program, program.kernel(k), indent + "    ", text);
      text += indent + "  results";
      for (BufferId r : control->results[b]) text += " " + buffer_name(program, r);
      text += "\n";
    }
    text += indent + "  outputs";
    for (BufferId o : control->outputs) text += " " + buffer_name(program, o);
    text += "\n";
  }
}

const char *kind_text(BufferKind kind) {
  switch (kind) {
    case BufferKind::kInput:
      return "input";
    case BufferKind::kOutput:
      return "output";
    case BufferKind::kConstant:
      return "const";
    case BufferKind::kTemporary:
      return "temp";
    case BufferKind::kScratch:
      return "scratch";
    case BufferKind::kObject:
      return "object";
  }
  return "temp";
}

}  // namespace

std::string origin_text(const Program &program, const Kernel &kernel) {
  if (kernel.origin.empty() || kernel.origin[0] >= program.origins.size()) return {};
  const Origin &o = program.origins[kernel.origin[0]];
  return "node '" + o.name + "' (" + o.op + " #" + std::to_string(o.index) + ")";
}

std::string print(const Program &program, ScalarId scalar) { return scalar_text(program, scalar, nullptr); }

std::string print(const Program &program, const Kernel &kernel) {
  std::string text;
  kernel_text(program, kernel, "", text);
  return text;
}

std::string print(const Program &program) {
  std::string text = "program \"" + program.name + "\"\n";
  std::vector<bool> used(program.buffers.size(), false);
  auto mark = [&](const std::vector<BufferId> &list) {
    for (BufferId b : list) {
      used[b.index] = true;
      for (BufferId a = program.buffer(b).alias; a.valid(); a = program.buffer(a).alias) used[a.index] = true;
    }
  };
  mark(program.inputs);
  mark(program.outputs);
  for (KernelId k : program.order) {
    mark(reads(program, program.kernel(k)));
    mark(writes(program, program.kernel(k)));
  }
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    if (!used[i]) continue;
    const Buffer &b = program.buffers[i];
    text += std::string(kind_text(b.kind)) + " " + b.name + ": " + to_string(b.type);
    if (!b.order.empty()) {
      text += " order";
      for (int o : b.order) text += " " + std::to_string(o);
    }
    if (!b.padded.empty()) text += " padded " + to_string(b.padded);
    if (b.alias.valid()) text += " view of " + program.buffer(b.alias).name + " at " + b.alias_offset.str();
    text += "\n";
  }
  for (const State &state : program.states) text += "state " + print(program, state) + "\n";
  for (KernelId k : program.order) kernel_text(program, program.kernel(k), "", text);
  return text;
}

}  // namespace optc
