#include "emit/cpp/model_printer.h"

#include <fmt/format.h>

#include <algorithm>

#include "emit/cpp/types.h"

namespace optc {
namespace {

int storage_width_bits(ElementType type) { return std::max(1, bit_width(type)); }

}  // namespace

ModelPrinter::ModelPrinter(const Program &program, std::string name, Diagnostics &diagnostics)
    : program_(program), name_(std::move(name)), diagnostics_(diagnostics) {
  for (const char *taken :
       {"d", "k", "run", "env", "bytes", "sizes", "in", "out", "attributes", "memory", "Model", "Dims"})
    names_.take(taken);
}

void ModelPrinter::line(const std::string &text) {
  body_ += std::string(static_cast<size_t>(indent_) * 2, ' ') + text + "\n";
}
void ModelPrinter::open(const std::string &text) {
  line(text + " {");
  ++indent_;
}
void ModelPrinter::close(const std::string &tail) {
  --indent_;
  line(tail);
}

std::string ModelPrinter::symbol(const DimSymbol &s) {
  auto it = symbol_fields_.find(&s);
  if (it == symbol_fields_.end()) {
    it = symbol_fields_.emplace(&s, fields_.unique(s.name, 32)).first;
    (s.kind == SymbolKind::kData ? data_symbols_ : model_symbols_).push_back(&s);
  }
  return "d." + it->second;
}

std::string ModelPrinter::shape_text(const Shape &shape) const {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + shape[i].str();
  return out + "]";
}

std::string ModelPrinter::dims_list(const Shape &shape) {
  std::string out;
  for (const Dim &extent : shape) out += (out.empty() ? "" : ", ") + dim(extent);
  return "{" + out + "}";
}

BufferId ModelPrinter::root(BufferId id, Dim *byte_offset) const {
  Dim offset = 0;
  while (program_.buffer(id).alias.valid()) {
    const Buffer &b = program_.buffer(id);
    const int bits = storage_width_bits(b.element());
    offset = offset + (bits >= 8 ? b.alias_offset * Dim(bits / 8) : floor_div(b.alias_offset * Dim(bits), Dim(8)));
    id = b.alias;
  }
  if (byte_offset) *byte_offset = offset;
  return id;
}

Dim ModelPrinter::buffer_bytes(BufferId id) const {
  const Buffer &b = program_.buffer(id);
  const int bits = storage_width_bits(b.element());
  const Dim count = storage_count(b);
  return bits >= 8 ? count * Dim(bits / 8) : ceil_div(count * Dim(bits), Dim(8));
}

bool ModelPrinter::needs_run_time_size(Dim extent) const {
  std::vector<const DimSymbol *> symbols;
  collect_symbols(extent, symbols);
  return std::any_of(symbols.begin(), symbols.end(), [](const DimSymbol *s) { return s->kind != SymbolKind::kModel; });
}

uint64_t ModelPrinter::constant_offset(BufferId id) {
  const Constant &c = program_.buffer(id).constant;
  // The same bytes are written once.
  const auto known = constant_offsets_.find(c.data());
  if (known != constant_offsets_.end() && c.size() > 0) return known->second;
  if (weights_bytes == 0) weights_bytes = 64;
  const uint64_t at = weights_bytes;
  constants.emplace_back(id, at);
  if (c.size() > 0) constant_offsets_.emplace(c.data(), at);
  weights_bytes = (at + std::max<uint64_t>(c.size(), 1) + 63) / 64 * 64;
  return at;
}

std::string ModelPrinter::declare(BufferId id) {
  if (const auto it = pointers_.find(id.index); it != pointers_.end()) return it->second;
  const Buffer &b = program_.buffer(id);
  const std::string type = cpp_type(b.element()).storage;
  const std::string name = names_.unique(b.name, 40);
  std::string text;
  switch (b.kind) {
    case BufferKind::kInput: {
      const auto at = std::find(program_.inputs.begin(), program_.inputs.end(), id) - program_.inputs.begin();
      text = fmt::format("const {0} *const {1} = run.input<{0}>({2});", type, name, at);
      break;
    }
    case BufferKind::kOutput: {
      const auto at = std::find(program_.outputs.begin(), program_.outputs.end(), id) - program_.outputs.begin();
      text = fmt::format("{0} *const {1} = run.output<{0}>({2});", type, name, at);
      break;
    }
    case BufferKind::kConstant:
      text = fmt::format("const {0} *const {1} = run.weight<{0}>({2});", type, name, constant_offset(id));
      break;
    case BufferKind::kTemporary:
    case BufferKind::kScratch:
      if (const auto grown = grown_.find(id.index); grown != grown_.end()) {
        text = fmt::format("{} *{} = nullptr;", type, name);
      } else if (const auto at = placed_index_.find(id.index); at != placed_index_.end()) {
        const PlacedBuffer &p = placed[at->second];
        const std::string offset =
            p.offset >= 0 ? std::to_string(p.offset) : fmt::format("run.offsets[{}]", at->second);
        text = fmt::format("{0} *const {1} = run.at<{0}>({2});", type, name, offset);
      } else {
        problems_.push_back(fmt::format("buffer '{}' has no place", b.name));
      }
      break;
    case BufferKind::kObject:
      problems_.push_back(fmt::format("'{}' is a sequence, optional, map or string", b.name));
      break;
  }
  declarations_ += "  " + text + "\n";
  pointers_[id.index] = name;
  return name;
}

std::string ModelPrinter::pointer(BufferId id, bool written) {
  if (!id.valid()) return "nullptr";
  const Buffer &view = program_.buffer(id);
  Dim offset;
  const BufferId base = root(id, &offset);
  const std::string name = declare(base);
  const CppType &type = cpp_type(view.element());
  const Buffer &b = program_.buffer(base);
  if (offset.is(0) && std::string(type.storage) == cpp_type(b.element()).storage) return name;
  const bool constant = b.kind == BufferKind::kInput || b.kind == BufferKind::kConstant || !written;
  const std::string bytes = fmt::format("reinterpret_cast<{0}uint8_t *>({1}){2}", constant ? "const " : "", name,
                                        offset.is(0) ? "" : " + " + dim(offset, kAddPrecedence));
  return fmt::format("reinterpret_cast<{}{} *>({})", constant ? "const " : "", type.storage, bytes);
}

// --- schedule
// ----------------------------------------------------------------------------------------------------------------------

// Buffers of the growing region that this kernel is the one to write get their memory now.
void ModelPrinter::prepare_memory(const Kernel &kernel) {
  if (kernel.control()) return;
  for (BufferId b : writes(program_, kernel)) {
    const BufferId r = root(b);
    const auto grown = grown_.find(r.index);
    if (grown == grown_.end()) continue;
    const std::string name = declare(r);
    line(fmt::format("{} = run.grow<{}>({}, {});", name, cpp_type(program_.buffer(r).element()).storage, grown->second,
                     dim(buffer_bytes(r))));
    line(fmt::format("if (!{}) return run.status;", name));
  }
}

void ModelPrinter::define(const DimSymbol &s, const std::string &value) {
  line(fmt::format("{} = {};", symbol(s), value));
  known_.insert(&s);
}

// What waited for sizes: outputs' dims and conditions of the model.
void ModelPrinter::after_definitions() {
  auto known = [&](Dim d) {
    std::vector<const DimSymbol *> symbols;
    collect_symbols(d, symbols);
    return std::all_of(symbols.begin(), symbols.end(),
                       [&](const DimSymbol *s) { return s->kind == SymbolKind::kModel || known_.count(s); });
  };
  for (size_t i = 0; i < program_.constraints.size(); ++i) {
    const DimConstraint &c = program_.constraints[i];
    if (constraints_set_[i] || !known(c.left) || !known(c.right)) continue;
    constraints_set_[i] = true;
    const std::string left = dim(c.left, kAddPrecedence), right = dim(c.right, kAddPrecedence);
    line(fmt::format("if ({} != {}{})", left, right, c.or_one ? fmt::format(" && {} != 1", right) : ""));
    line(
        fmt::format("  return run.fail(OPTC_MODEL_FAULT, \"%s: %lld does not match %lld\", {}, static_cast<long "
                    "long>({}), static_cast<long long>({}));",
                    string_literal(c.where), dim(c.left), dim(c.right)));
  }
  for (size_t i = 0; i < program_.outputs.size(); ++i) {
    const Buffer &b = program_.buffer(program_.outputs[i]);
    if (outputs_set_[i] || !b.type.is_tensor()) continue;
    const Shape &shape = b.shape();
    if (!std::all_of(shape.begin(), shape.end(), known)) continue;
    outputs_set_[i] = true;
    line(fmt::format("if (!run.set_output({}, {})) return run.status;", i, dims_list(shape)));
  }
}

void ModelPrinter::copy(BufferId from, BufferId to) {
  const std::string size = dim(buffer_bytes(to));
  line(fmt::format("memcpy({}, {}, static_cast<size_t>({}));", pointer(to, true), pointer(from, false), size));
}

void ModelPrinter::sequence(const std::vector<KernelId> &order) {
  for (KernelId id : order) {
    const Kernel &kernel = program_.kernel(id);
    if (!kernel.control()) line(fmt::format("if (run.step({})) return run.status;", step_names_.size()));
    if (!kernel.control()) step_names_.push_back(kernel.name);
    if (kernel.nest()) {
      prepare_memory(kernel);
      print_kernel_call(kernel);
    } else if (const LibraryCall *call = kernel.library()) {
      print_library(kernel, *call);
    } else {
      print_control(kernel, *kernel.control());
    }
  }
}

void ModelPrinter::print_kernel_call(const Kernel &kernel) {
  KernelText text = std::move(texts_.at(&kernel));
  std::string arguments = "env";
  for (size_t i = 0; i < text.buffers.size(); ++i) arguments += ", " + pointer(text.buffers[i], text.written[i]);
  for (const DimSymbol *s : text.symbols) arguments += ", " + symbol(*s);
  if (!kernel.note.empty() && kernel.note != kernel.name) line("// " + comment_text(kernel.note));
  give_scratch(kernel, text);
  line(fmt::format("k.{}({});", text.name, arguments));
  if (!text.plan_header.empty()) plan_headers_.insert(text.plan_header);
  kernels.push_back(std::move(text));
  kernel_of.push_back(&kernel);
}

void ModelPrinter::print_library(const Kernel &kernel, const LibraryCall &call) {
  if (std::find(library_functions.begin(), library_functions.end(), call.function) == library_functions.end())
    library_functions.push_back(call.function);
  line("// " + comment_text(kernel.note.empty() ? call.function : kernel.note));
  auto tensor = [&](BufferId b, bool written) -> std::string {
    if (!b.valid()) return "no_tensor()";
    const Buffer &buffer = program_.buffer(b);
    if (!buffer.type.is_tensor() || buffer.element() == ElementType::kString) {
      problems_.push_back(fmt::format("'{}' is a sequence, optional, map or string", buffer.name));
      return "no_tensor()";
    }
    return fmt::format("lib_tensor({}, {}, {})", pointer(b, written), static_cast<int>(buffer.element()),
                       dims_list(buffer.shape()));
  };
  std::set<const DimSymbol *> found(call.defines.begin(), call.defines.end());
  open("");
  std::string list;
  for (BufferId b : call.inputs) list += (list.empty() ? "" : ", ") + tensor(b, false);
  line(fmt::format("const OptcLibTensor in[] = {{{}}};", list.empty() ? "no_tensor()" : list));
  list.clear();
  std::string memory;
  std::vector<std::pair<std::string, size_t>> late;  // pointers that the call decides
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const BufferId b = call.outputs[i];
    std::string item = "no_tensor()", place = "{nullptr, 0, -1, -1}";
    if (b.valid() && program_.buffer(b).type.is_tensor()) {
      const Buffer &buffer = program_.buffer(b);
      const Shape &shape = buffer.shape();
      bool open_size = false;
      std::string dims;
      for (const Dim &extent : shape) {
        std::vector<const DimSymbol *> symbols;
        collect_symbols(extent, symbols);
        const bool unknown =
            std::any_of(symbols.begin(), symbols.end(), [&](const DimSymbol *s) { return found.count(s) != 0; });
        open_size = open_size || unknown;
        dims += (dims.empty() ? "" : ", ") + (unknown ? std::string("-1") : dim(extent));
      }
      const BufferId r = root(b);
      const std::string pointer_text = pointer(b, true);
      if (!open_size) {
        if (const auto grown = grown_.find(r.index); grown != grown_.end()) {
          line(fmt::format("{} = run.grow<{}>({}, {});", pointer_text, cpp_type(buffer.element()).storage,
                           grown->second, dim(buffer_bytes(r))));
          line(fmt::format("if (!{}) return run.status;", pointer_text));
        }
        item = fmt::format("lib_tensor({}, {}, {{{}}})", pointer_text, static_cast<int>(buffer.element()), dims);
      } else {
        item = fmt::format("lib_tensor(static_cast<void *>(nullptr), {}, {{{}}})", static_cast<int>(buffer.element()),
                           dims);
        if (const auto grown = grown_.find(r.index); grown != grown_.end()) {
          place = fmt::format("{{nullptr, 0, {}, -1}}", grown->second);
          late.emplace_back(
              fmt::format("{} = static_cast<{} *>(out[{}].data);", pointer_text, cpp_type(buffer.element()).storage, i),
              i);
        } else if (program_.buffer(r).kind == BufferKind::kOutput) {
          const auto at = std::find(program_.outputs.begin(), program_.outputs.end(), r) - program_.outputs.begin();
          place = fmt::format("{{nullptr, 0, -1, {}}}", at);
        }
      }
    } else if (b.valid()) {
      problems_.push_back(fmt::format("'{}' is a sequence, optional, map or string", program_.buffer(b).name));
    }
    list += (list.empty() ? "" : ", ") + item;
    memory += (memory.empty() ? "" : ", ") + place;
  }
  line(fmt::format("OptcLibTensor out[] = {{{}}};", list.empty() ? "no_tensor()" : list));
  line(fmt::format("const LibMemory memory[] = {{{}}};", memory.empty() ? "{nullptr, 0, -1, -1}" : memory));
  list.clear();
  for (size_t i = 0; i < call.attributes.size(); ++i) {
    const auto &[attribute, v] = call.attributes[i];
    std::string fields = "0, 0.0f, nullptr, nullptr, nullptr, nullptr, 0";
    if (const auto *n = std::get_if<int64_t>(&v)) {
      fields = fmt::format("{}, 0.0f, nullptr, nullptr, nullptr, nullptr, 0",
                           constant_text(ElementType::kInt64, static_cast<uint64_t>(*n)).s);
    } else if (const auto *f = std::get_if<float>(&v)) {
      uint32_t bits;
      static_assert(sizeof bits == sizeof *f);
      __builtin_memcpy(&bits, f, 4);
      fields =
          fmt::format("0, {}, nullptr, nullptr, nullptr, nullptr, 0", constant_text(ElementType::kFloat32, bits).s);
    } else if (const auto *s = std::get_if<std::string>(&v)) {
      fields = fmt::format("0, 0.0f, {}, nullptr, nullptr, nullptr, 0", string_literal(*s));
    } else if (const auto *ints = std::get_if<std::vector<int64_t>>(&v)) {
      std::string items;
      for (int64_t x : *ints) items += (items.empty() ? "" : ", ") + std::to_string(x);
      if (!ints->empty()) line(fmt::format("static const int64_t list{}[] = {{{}}};", i, items));
      fields = fmt::format("0, 0.0f, nullptr, {}, nullptr, nullptr, {}",
                           ints->empty() ? "nullptr" : fmt::format("list{}", i), ints->size());
    } else if (const auto *floats = std::get_if<std::vector<float>>(&v)) {
      std::string items;
      for (float x : *floats) {
        uint32_t bits;
        __builtin_memcpy(&bits, &x, 4);
        items += (items.empty() ? "" : ", ") + constant_text(ElementType::kFloat32, bits).s;
      }
      if (!floats->empty()) line(fmt::format("static const float list{}[] = {{{}}};", i, items));
      fields = fmt::format("0, 0.0f, nullptr, nullptr, {}, nullptr, {}",
                           floats->empty() ? "nullptr" : fmt::format("list{}", i), floats->size());
    } else if (const auto *strings = std::get_if<std::vector<std::string>>(&v)) {
      std::string items;
      for (const std::string &x : *strings) items += (items.empty() ? "" : ", ") + string_literal(x);
      if (!strings->empty()) line(fmt::format("static const char *const list{}[] = {{{}}};", i, items));
      fields = fmt::format("0, 0.0f, nullptr, nullptr, nullptr, {}, {}",
                           strings->empty() ? "nullptr" : fmt::format("list{}", i), strings->size());
    }
    list += fmt::format("{}{{{}, {}}}", list.empty() ? "" : ", ", string_literal(attribute), fields);
  }
  line(fmt::format("const OptcLibAttribute attributes[] = {{{}}};",
                   list.empty() ? "{\"\", 0, 0.0f, nullptr, nullptr, nullptr, nullptr, 0}" : list));
  line(fmt::format("int64_t sizes[{}] = {{}};", std::max<size_t>(1, call.defines.size())));
  line(fmt::format(
      "if (!call_library(run, optc_lib_{}, in, {}, out, {}, attributes, {}, sizes, memory)) return run.status;",
      call.function, call.inputs.size(), call.outputs.size(), call.attributes.size()));
  for (size_t i = 0; i < call.defines.size(); ++i)
    if (call.defines[i]) define(*call.defines[i], fmt::format("sizes[{}]", i));
  for (const auto &[text, i] : late) line(text);
  close();
  after_definitions();
}

void ModelPrinter::print_control(const Kernel &kernel, const ControlFlow &control) {
  line("// " + comment_text(kernel.note.empty() ? kernel.name : kernel.note));
  // Sizes that the construct decides: dims of its outputs that are its own symbols.
  auto size_from = [&](BufferId from, BufferId to) {
    const Shape &source = program_.buffer(from).shape(), &target = program_.buffer(to).shape();
    for (size_t a = 0; a < target.size(); ++a) {
      const DimSymbol *s = single_symbol(target[a]);
      if (s && s->kind == SymbolKind::kData &&
          std::find(control.defines.begin(), control.defines.end(), s) != control.defines.end() &&
          !(source[a] == target[a]))
        define(*s, dim(source[a]));
    }
  };
  auto hold = [&](BufferId b) {  // memory of the growing region
    const BufferId r = root(b);
    const auto grown = grown_.find(r.index);
    if (grown == grown_.end()) return;
    const std::string name = declare(r);
    line(fmt::format("{} = run.grow<{}>({}, {});", name, cpp_type(program_.buffer(r).element()).storage, grown->second,
                     dim(buffer_bytes(r))));
    line(fmt::format("if (!{}) return run.status;", name));
  };
  auto is_tensor = [&](BufferId b) {
    if (program_.buffer(b).type.is_tensor() && program_.buffer(b).element() != ElementType::kString) return true;
    problems_.push_back(fmt::format("'{}' is a sequence, optional, map or string", program_.buffer(b).name));
    return false;
  };
  if (control.kind == ControlFlow::Kind::kIf) {
    for (size_t branch = 0; branch < control.bodies.size(); ++branch) {
      if (branch == 0)
        open(fmt::format("if ({}[0])", pointer(control.condition, false)));
      else {
        --indent_;
        open("} else");
      }
      sequence(control.bodies[branch]);
      for (size_t i = 0; i < control.outputs.size(); ++i) {
        const BufferId from = control.results[branch][i], to = control.outputs[i];
        if (!is_tensor(from) || !is_tensor(to)) continue;
        size_from(from, to);
        after_definitions();
        if (branch == 0)  // both branches must ask for the output's memory
          for (size_t o = 0; o < program_.outputs.size(); ++o)
            if (program_.outputs[o] == to && needs_run_time_size(element_count(program_.buffer(to).shape())))
              outputs_set_[o] = false;
        if (root(from) == root(to)) continue;
        hold(to);
        copy(from, to);
      }
    }
    close();
    return;
  }
  const std::string i = names_.unique("trip", 24), go = names_.unique("go", 24), limit = names_.unique("trips", 24);
  line(fmt::format("const int64_t {} = {};", limit,
                   control.trip_count.valid() ? pointer(control.trip_count, false) + "[0]" : "INT64_MAX"));
  line(fmt::format("bool {} = {};", go,
                   control.condition.valid() ? pointer(control.condition, false) + "[0] != 0" : "true"));
  for (size_t c = 0; c < control.carried; ++c) {
    if (!is_tensor(control.initial[c])) continue;
    if (needs_run_time_size(buffer_bytes(control.body_inputs[c])) &&
        !(buffer_bytes(control.body_inputs[c]) == buffer_bytes(control.initial[c])))
      problems_.push_back(fmt::format("'{}' changes its size in a loop", program_.buffer(control.body_inputs[c]).name));
    hold(control.body_inputs[c]);
    copy(control.initial[c], control.body_inputs[c]);
  }
  line(fmt::format("int64_t {} = 0;", i));
  open(fmt::format("for (; {0} < {1} && {2}; ++{0})", i, limit, go));
  if (control.iteration.valid()) line(fmt::format("{}[0] = {};", pointer(control.iteration, true), i));
  if (control.body_condition.valid()) line(fmt::format("{}[0] = 1;", pointer(control.body_condition, true)));
  sequence(control.bodies[0]);
  const std::vector<BufferId> &results = control.results[0];
  line(fmt::format("{} = {}[0] != 0;", go, pointer(results[0], false)));
  // A result that another carried value still reads as its input is saved by the order of copies only when it is no
  // body input itself.
  for (size_t c = 0; c < control.carried; ++c) {
    const BufferId from = results[1 + c];
    bool overwritten = false;
    for (size_t e = 0; e < c; ++e) overwritten = overwritten || root(from) == root(control.body_inputs[e]);
    if (overwritten) problems_.push_back(fmt::format("loop '{}' permutes its carried values", kernel.name));
    if (is_tensor(from) && root(from) != root(control.body_inputs[c])) copy(from, control.body_inputs[c]);
  }
  for (size_t s = 1 + control.carried; s < results.size(); ++s) {
    const size_t index = s - 1 - control.carried;
    const BufferId to = control.outputs[s - 1];
    if (!to.valid() || !is_tensor(to)) continue;
    const int64_t axis = index < control.scan_axes.size() ? control.scan_axes[index] : 0;
    const bool reverse = index < control.scan_reverse.size() && control.scan_reverse[index];
    if (axis != 0) {
      problems_.push_back(fmt::format("loop '{}' collects along axis {}", kernel.name, axis));
      continue;
    }
    const std::string bytes = dim(buffer_bytes(results[s]));
    const BufferId r = root(to);
    const Dim length = program_.buffer(to).shape().empty() ? Dim(0) : program_.buffer(to).shape()[0];
    if (const auto grown = grown_.find(r.index); grown != grown_.end()) {
      const std::string name = declare(r);
      line(fmt::format("{0} = run.extend<{1}>({2}, {3} * {4}, ({3} + 1) * {4});", name,
                       cpp_type(program_.buffer(r).element()).storage, grown->second, i,
                       dim(buffer_bytes(results[s]), kUnaryPrecedence)));
      line(fmt::format("if (!{}) return run.status;", name));
    } else if (program_.buffer(r).kind == BufferKind::kOutput && needs_run_time_size(length)) {
      problems_.push_back(fmt::format("loop '{}' writes an output of unknown length", kernel.name));
    }
    const std::string slice = reverse ? fmt::format("({} - 1 - {})", dim(length, kAddPrecedence), i) : i;
    line(fmt::format("memcpy(reinterpret_cast<uint8_t *>({}) + {} * {}, {}, static_cast<size_t>({}));",
                     pointer(to, true), slice, dim(buffer_bytes(results[s]), kUnaryPrecedence),
                     pointer(results[s], false), bytes));
  }
  close();
  for (const DimSymbol *s : control.defines)
    if (s && !known_.count(s)) {
      define(*s, i);
      break;  // the trip count; further sizes come with the outputs
    }
  for (size_t c = 0; c < control.carried; ++c) {
    if (!control.outputs[c].valid() || !is_tensor(control.outputs[c])) continue;
    size_from(control.body_inputs[c], control.outputs[c]);
    after_definitions();
    hold(control.outputs[c]);
    copy(control.body_inputs[c], control.outputs[c]);
  }
  after_definitions();
}

void ModelPrinter::print_bind() {
  std::string saved = std::move(body_);
  body_.clear();
  indent_ = 2;
  for (const SymbolSource &s : program_.sources) {
    const std::string field = symbol(*s.symbol);
    line(fmt::format("{} = run.inputs[{}].dims[{}];", field, s.input, s.axis));
    std::string wrong;
    if (s.symbol->min > 0) wrong = fmt::format("{} < {}", field, s.symbol->min);
    if (s.symbol->max < kDimOverflow)
      wrong += fmt::format("{}{} > {}", wrong.empty() ? "" : " || ", field, s.symbol->max);
    if (s.symbol->multiple > 1)
      wrong += fmt::format("{}{} % {} != 0", wrong.empty() ? "" : " || ", field, s.symbol->multiple);
    if (!wrong.empty()) {
      line(fmt::format("if ({})", wrong));
      line(fmt::format(
          "  return run.fail(OPTC_INVALID_ARGUMENT, \"input '%s': dim {} ({}) is %lld, outside what this bundle was "
          "compiled for\", inputs[{}].name, static_cast<long long>({}));",
          s.axis, string_literal(s.symbol->name).substr(1, string_literal(s.symbol->name).size() - 2), s.input, field));
    }
  }
  for (const DimCheck &c : program_.checks) {
    line(fmt::format("if (run.inputs[{}].dims[{}] != {})", c.input, c.axis, dim(c.expected, kAddPrecedence)));
    line(
        fmt::format("  return run.fail(OPTC_INVALID_ARGUMENT, \"input '%s': dim {} is %lld, expected %s\", "
                    "inputs[{}].name, static_cast<long long>(run.inputs[{}].dims[{}]), shapes[{}]);",
                    c.axis, c.input, c.input, c.axis, c.input));
  }
  bind_ = std::move(body_);
  body_ = std::move(saved);
  indent_ = 1;
}

Status ModelPrinter::print() {
  place();
  print_bind();
  outputs_set_.assign(program_.outputs.size(), false);
  constraints_set_.assign(program_.constraints.size(), false);
  after_definitions();
  sequence(program_.order);
  for (size_t i = 0; i < program_.outputs.size(); ++i) {
    const BufferId o = program_.outputs[i];
    const Buffer &b = program_.buffer(o);
    if (!b.type.is_tensor() || b.element() == ElementType::kString) {
      problems_.push_back(fmt::format("output '{}' is a sequence, optional, map or string", b.name));
      continue;
    }
    const BufferId r = root(o);
    const bool own = program_.buffer(r).kind == BufferKind::kOutput &&
                     std::find(program_.outputs.begin(), program_.outputs.end(), r) - program_.outputs.begin() ==
                         static_cast<long>(i);
    if (own) continue;
    line(fmt::format("memcpy(run.outputs[{}].tensor.data, {}, static_cast<size_t>({}));", i, pointer(o, false),
                     dim(buffer_bytes(o))));
  }
  for (BufferId in : program_.inputs)
    if (!program_.buffer(in).type.is_tensor() || program_.buffer(in).element() == ElementType::kString)
      problems_.push_back(fmt::format("input '{}' is a sequence, optional, map or string", program_.buffer(in).name));
  for (const Constant &c : program_.input_defaults) (void)c;
  for (const PlacedBuffer &p : placed) (void)dim(p.bytes);  // their symbols are fields, too
  print_infos();
  if (!problems_.empty()) {
    Diagnostic diagnostic;
    diagnostic.kind = ErrorKind::kUnsupported;
    diagnostic.message = fmt::format("{} has values that a bundle cannot hold yet", name_);
    for (const std::string &p : problems_)
      if (std::find(diagnostic.places.begin(), diagnostic.places.end(), p) == diagnostic.places.end())
        diagnostic.places.push_back(p);
    return diagnostics_.add(std::move(diagnostic));
  }
  return {};
}

void ModelPrinter::print_infos() {
  auto infos = [&](const char *label, const std::vector<BufferId> &buffers, const std::vector<std::string> &names) {
    std::string text = fmt::format("  static constexpr optc_value_info {}[] = {{\n", label);
    for (size_t i = 0; i < buffers.size(); ++i) {
      const Buffer &b = program_.buffer(buffers[i]);
      std::string dims;
      const size_t rank = b.type.has_shape() ? b.shape().size() : 0;
      for (size_t a = 0; a < rank; ++a) {
        const Dim extent = b.shape()[a];
        if (a) dims += ", ";
        if (extent.is_constant()) {
          dims += fmt::format("{{nullptr, {0}, {0}, {0}}}", extent.value());
        } else {
          const DimSymbol *s = single_symbol(extent);
          const int64_t high = upper_bound(extent);
          dims += fmt::format("{{{}, -1, {}, {}}}", string_literal(s ? s->name : extent.str()),
                              std::max<int64_t>(0, lower_bound(extent)), high >= kDimOverflow ? -1 : high);
        }
      }
      text += fmt::format("      {{{}, {}, {}, {}, {{{}}}}},\n", string_literal(names[i]), b.type.is_tensor() ? 0 : 1,
                          static_cast<int>(b.element()), rank, dims);
    }
    if (buffers.empty()) text += "      {nullptr, 0, 0, 0, {}},\n";
    return text + "  };\n";
  };
  infos_ = infos("inputs", program_.inputs, program_.input_names);
  infos_ += infos("outputs", program_.outputs, program_.output_names);
  std::string defaults, shapes;
  for (size_t i = 0; i < program_.inputs.size(); ++i) {
    const Buffer &b = program_.buffer(program_.inputs[i]);
    shapes +=
        fmt::format("{}{}", i ? ", " : "", string_literal(b.type.has_shape() ? shape_text(b.shape()) : "a value"));
    int64_t at = -1;
    if (i < program_.input_defaults.size() && program_.input_defaults[i].valid()) {
      const Constant &c = program_.input_defaults[i];
      const auto known = constant_offsets_.find(c.data());
      if (known != constant_offsets_.end() && c.size() > 0) {
        at = static_cast<int64_t>(known->second);
      } else {
        if (weights_bytes == 0) weights_bytes = 64;
        at = static_cast<int64_t>(weights_bytes);
        constants.emplace_back(program_.inputs[i], weights_bytes);
        if (c.size() > 0) constant_offsets_.emplace(c.data(), weights_bytes);
        weights_bytes = (weights_bytes + std::max<uint64_t>(c.size(), 1) + 63) / 64 * 64;
      }
    }
    defaults += fmt::format("{}{}", i ? ", " : "", at);
  }
  infos_ += fmt::format("  static constexpr int64_t defaults[] = {{{}}};\n", defaults.empty() ? "-1" : defaults);
  infos_ += fmt::format("  static constexpr const char *shapes[] = {{{}}};\n", shapes.empty() ? "\"\"" : shapes);
}

std::string ModelPrinter::model_source(const std::string &include_name, const std::string &manifest_literal,
                                       const std::string &weights_spec) const {
  // Printing dims below only looks up fields that print() made.
  auto *self = const_cast<ModelPrinter *>(this);
  std::string out = fmt::format(
      "// {}: the schedule of the model and its part of the C ABI.\n#include \"{}.h\"\n\n#include "
      "\"kernels.h\"\n#include \"runtime/bundle/model.h\"\n",
      name_, include_name);
  for (const std::string &h : plan_headers_) out += "#include \"" + h + "\"\n";
  if (!library_functions.empty()) out += "#include \"runtime/bundle/library.h\"\n@LIBRARY@";
  if (cuda_weights >= 0)
    out += fmt::format(
        "#include \"runtime/bundle/cuda.h\"\n\nnamespace {}_code {{\nconst optc::cuda::ModelTable &cuda_model();\n}}\n",
        name_);
  out += "\nusing namespace optc;\n\nnamespace {\n\nstruct Model {\n";
  out += fmt::format(
      "  static constexpr size_t kInputs = {}, kOutputs = {}, kPlaced = {}, kScratch = {}, kGrowing = {}, kKernels = "
      "{};\n",
      program_.inputs.size(), program_.outputs.size(), placed.size(), row_scratches.size(), grown_.size(),
      step_names_.size());
  out += infos_;
  out += fmt::format("  static constexpr WeightsSpec weights = {};\n", weights_spec);
  if (cuda_weights >= 0)
    out += fmt::format(
        "  static constexpr uint64_t kCudaWeights = {}u;\n  static const cuda::ModelTable &cuda() {{ return "
        "{}_code::cuda_model(); }}\n",
        cuda_weights, name_);
  out += "  static const char *const manifest;\n";
  std::string list;
  for (const std::string &f : places_.texts) list += (list.empty() ? "" : ",\n      ") + string_literal(f);
  out += fmt::format("  static constexpr const char *faults[] = {{\n      {}}};\n", list);
  list.clear();
  for (const std::string &s : step_names_) list += (list.empty() ? "" : ",\n      ") + string_literal(s);
  out +=
      fmt::format("  static constexpr const char *kernel_names[] = {{\n      {}}};\n\n", list.empty() ? "\"\"" : list);
  out += "  struct Dims {\n";
  for (const DimSymbol *s : model_symbols_) out += fmt::format("    int64_t {};\n", symbol_fields_.at(s));
  for (const DimSymbol *s : data_symbols_)
    out += fmt::format("    int64_t {};  // found while the model runs\n", symbol_fields_.at(s));
  out += "  };\n\n";
  out += "  // The named dims, read off the inputs, and the conditions on them.\n";
  out += "  static optc_status bind(Run<Model> &run) {\n    [[maybe_unused]] Dims &d = run.dims;\n" + bind_ +
         "    return OPTC_OK;\n  }\n\n";
  out += "  // Dims of the outputs; an upper bound, or -1, where the data decides.\n";
  out += "  static void output_dims([[maybe_unused]] const Dims &d, [[maybe_unused]] optc_value *outputs) {\n";
  for (size_t i = 0; i < program_.outputs.size(); ++i) {
    const Buffer &b = program_.buffer(program_.outputs[i]);
    if (!b.type.has_shape()) continue;
    out += fmt::format("    outputs[{0}].tensor.type = {1};\n    outputs[{0}].tensor.rank = {2};\n", i,
                       static_cast<int>(b.element()), b.shape().size());
    std::string bytes = "1";
    bool bounded = true;
    for (size_t a = 0; a < b.shape().size(); ++a) {
      const Dim extent = b.shape()[a];
      std::string text;
      if (needs_run_time_size(extent)) {
        const int64_t high = upper_bound(extent);
        text = high >= kDimOverflow ? "-1" : std::to_string(high);
        bounded = bounded && high < kDimOverflow;
      } else {
        text = self->dim(extent);
      }
      out += fmt::format("    outputs[{}].tensor.dims[{}] = {};\n", i, a, text);
    }
    out += bounded ? fmt::format(
                         "    outputs[{0}].tensor.needed_bytes = tensor_bytes({1}, count_of(outputs[{0}].tensor));\n",
                         i, static_cast<int>(b.element()))
                   : fmt::format("    outputs[{}].tensor.needed_bytes = 0;\n", i);
  }
  out += "  }\n\n";
  out += plan_source();
  out += "  static optc_status execute(Run<Model> &run);\n};\n\n";
  out += fmt::format("const char *const Model::manifest =\n{};\n\n", manifest_literal);
  out += "optc_status Model::execute(Run<Model> &run) {\n";
  out += fmt::format(
      "  [[maybe_unused]] const {0}_code::Kernels &k = {0}_code::kernels();\n  [[maybe_unused]] const Env &env = "
      "run.env;\n  [[maybe_unused]] Dims &d = run.dims;\n",
      name_);
  out += declarations_ + "\n" + body_ + "  return run.status;\n}\n\n}  // namespace\n\n";
  out += fmt::format("const optc_model *{}_model(void) {{ return {}bundle<Model>(); }}\n", name_,
                     cuda_weights >= 0 ? "cuda_" : "");
  return out;
}

}  // namespace optc
