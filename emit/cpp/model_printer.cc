#include "emit/cpp/model_printer.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "emit/cpp/types.h"

namespace optc {
namespace {

// Programs of more kernels are divided into parts of about that many bytes of text: some hundred calls.
constexpr size_t kUndividedKernels = 500, kPartBytes = 128 * 1024;

}  // namespace

ElementType leaf_element(const Type &type) {
  const Type *t = &type;
  while (!t->is_tensor() && t->inner) t = t->inner.get();
  return t->element == ElementType::kUndefined ? ElementType::kFloat32 : t->element;
}

ModelPrinter::ModelPrinter(const Program &program, std::string name, WeightPool &weights, Diagnostics &diagnostics,
                           bool probe, GpuHost gpu)
    : program_(program),
      uses_(program),
      name_(std::move(name)),
      weights_(weights),
      diagnostics_(diagnostics),
      probe_(probe),
      gpu_(gpu) {}

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
  for (const Dim &extent : shape) out += (out.empty() ? "" : ", ") + size(extent);
  return "{" + out + "}";
}

bool ModelPrinter::needs_run_time_size(Dim extent) const {
  std::vector<const DimSymbol *> symbols;
  collect_symbols(extent, symbols);
  return std::any_of(symbols.begin(), symbols.end(), [](const DimSymbol *s) { return s->kind != SymbolKind::kModel; });
}

std::string ModelPrinter::declare(BufferId id) {
  if (const auto it = pointers_.find(id.index); it != pointers_.end()) return it->second;
  const Buffer &b = program_.buffer(id);
  const auto variable = variables_.find(id.index);
  const bool again = variable != variables_.end();  // in an earlier part
  const std::string name = again ? variable->second : names_.unique(b.name, 40);
  if (!again) variables_[id.index] = name;
  std::string text;
  if (is_object(id)) {
    declare_object(id, name);
    pointers_[id.index] = name;
    return name;
  }
  const std::string type = cpp_type(b.element()).storage;
  switch (b.kind) {
    case BufferKind::kInput: {
      const auto at = std::find(program_.inputs.begin(), program_.inputs.end(), id) - program_.inputs.begin();
      text = fmt::format("const {0} *const {1} = run.input<{0}>({2});", type, name, at);
      break;
    }
    case BufferKind::kOutput: {
      const auto at = std::find(program_.outputs.begin(), program_.outputs.end(), id) - program_.outputs.begin();
      text = fmt::format("[[maybe_unused]] {0} *const {1} = run.output<{0}>({2});", type, name, at);
      break;
    }
    case BufferKind::kConstant:
      text = fmt::format("const {0} *const {1} = run.weight<{0}>({2});", type, name, weights_.add(b.constant));
      break;
    case BufferKind::kTemporary:
    case BufferKind::kScratch:
      if (const auto grown = grown_.find(id.index); grown != grown_.end()) {
        text = fmt::format("[[maybe_unused]] {} *{}{} = {};", type, divided_ ? "&" : "", name,
                           divided_ ? "state." + name : "nullptr");
        if (divided_ && !again) state_ += fmt::format("    {} *{} = nullptr;\n", type, name);
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
      break;  // above
  }
  declarations_ += "  " + text + "\n";
  pointers_[id.index] = name;
  return name;
}

// Strings and objects are descriptors (runtime/bundle/objects.h): a variable each.
void ModelPrinter::declare_object(BufferId id, const std::string &name) {
  uses_objects_ = true;
  const Buffer &b = program_.buffer(id);
  if (b.kind == BufferKind::kInput) {
    const auto at = std::find(program_.inputs.begin(), program_.inputs.end(), id) - program_.inputs.begin();
    declarations_ += fmt::format(
        "  [[maybe_unused]] const OptcLibTensor {} = object_input(run, {});\n  if (run.status != OPTC_OK) return "
        "run.status;\n",
        name, at);
  } else if (b.kind == BufferKind::kConstant) {
    declarations_ += fmt::format(
        "  static const OptcLibString {0}_values[] = {{{1}}};\n  const OptcLibTensor {0} = lib_tensor({0}_values, 8, "
        "{2});\n",
        name, string_items(b.constant.string_values()), dims_list(b.shape()));
  } else {
    declarations_ += fmt::format("  [[maybe_unused]] OptcLibTensor {}{} = {};\n", divided_ ? "&" : "", name,
                                 divided_ ? "state." + name : "no_tensor()");
    const std::string member = fmt::format("    OptcLibTensor {} = no_tensor();\n", name);
    if (divided_ && state_.find(member) == std::string::npos) state_ += member;
  }
}

std::string ModelPrinter::pointer(BufferId id, bool written) {
  if (!id.valid()) return "nullptr";
  const Buffer &view = program_.buffer(id);
  if (is_object(id)) {
    if (!view.type.is_tensor()) problems_.push_back(fmt::format("a kernel reads '{}', which is no tensor", view.name));
    if (view.alias.valid()) problems_.push_back(fmt::format("'{}' is a view of strings", view.name));
    return fmt::format("static_cast<{}OptcLibString *>({}.data)", written ? "" : "const ", declare(root(id)));
  }
  const Dim offset = uses_.byte_offset(id);
  const BufferId base = root(id);
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
    if (is_object(r)) {  // the first kernel that writes it makes it
      if (!progress_.strings_made.insert(r.index).second) continue;
      line(fmt::format("{} = new_strings(run, {});", declare(r), dims_list(program_.buffer(r).shape())));
      line("if (run.status != OPTC_OK) return run.status;");
      continue;
    }
    const auto grown = grown_.find(r.index);
    if (grown == grown_.end()) continue;
    const std::string name = declare(r);
    line(fmt::format("{} = run.grow<{}>({}, {});", name, cpp_type(program_.buffer(r).element()).storage, grown->second,
                     size(buffer_bytes(r))));
    line(fmt::format("if (!{}) return run.status;", name));
  }
}

void ModelPrinter::define(const DimSymbol &s, const std::string &value) {
  line(fmt::format("{} = {};", symbol(s), value));
  progress_.known.insert(&s);
  if (!gpu_.schedule) return;
  const auto &found = gpu_.schedule->data_symbols;
  const auto at = std::find(found.begin(), found.end(), &s);
  if (at != found.end())
    line(fmt::format("gpu.set_symbol({}, {});", program_.sources.size() + static_cast<size_t>(at - found.begin()),
                     symbol(s)));
}

bool ModelPrinter::all_known(Dim d) const {
  std::vector<const DimSymbol *> symbols;
  collect_symbols(d, symbols);
  return std::all_of(symbols.begin(), symbols.end(),
                     [&](const DimSymbol *s) { return s->kind == SymbolKind::kModel || progress_.known.count(s); });
}

void ModelPrinter::print_condition(const DimConstraint &c) {
  const std::string left = dim(c.left, kAddPrecedence), right = dim(c.right, kAddPrecedence);
  line(fmt::format("if ({} != {}{})", left, right, c.or_one ? fmt::format(" && {} != 1", right) : ""));
  line(
      fmt::format("  return run.fail(OPTC_MODEL_FAULT, \"%s: %lld does not match %lld\", {}, static_cast<long "
                  "long>({}), static_cast<long long>({}));",
                  string_literal(c.where), dim(c.left), dim(c.right)));
}

// What waited for sizes: outputs' dims and conditions of the model.
void ModelPrinter::after_definitions() {
  auto known = [&](Dim d) { return all_known(d); };
  for (size_t i = 0; i < program_.constraints.size(); ++i) {
    const DimConstraint &c = program_.constraints[i];
    if (progress_.constraints_set[i] || !known(c.left) || !known(c.right)) continue;
    progress_.constraints_set[i] = true;
    print_condition(c);
  }
  for (size_t i = 0; i < program_.outputs.size(); ++i) {
    const Buffer &b = program_.buffer(program_.outputs[i]);
    if (progress_.outputs_set[i] || is_object(program_.outputs[i])) continue;
    const Shape &shape = b.shape();
    if (!std::all_of(shape.begin(), shape.end(), known)) continue;
    progress_.outputs_set[i] = true;
    line(fmt::format("if (!run.set_output({}, {})) return run.status;", i, dims_list(shape)));
  }
}

void ModelPrinter::copy(BufferId from, BufferId to) {
  if (is_object(to)) {
    line(fmt::format("{} = {};", declare(root(to)), declare(root(from))));
    return;
  }
  const std::string size = dim(buffer_bytes(to));
  line(fmt::format("memcpy({}, {}, static_cast<size_t>({}));", pointer(to, true), pointer(from, false), size));
}

// Between kernels of the main sequence: a part that is long enough ends.
void ModelPrinter::next_part() {
  if (!divided_ || indent_ != 1 || body_.size() < kPartBytes) return;
  parts_.push_back({std::move(declarations_), std::move(body_)});
  declarations_.clear();
  body_.clear();
  pointers_.clear();
}

void ModelPrinter::sequence(const std::vector<KernelId> &order) {
  for (KernelId id : order) {
    next_part();
    const Kernel &kernel = program_.kernel(id);
    if (!kernel.control()) line(fmt::format("if (run.step({})) return run.status;", step_names_.size()));
    if (!kernel.control()) step_names_.push_back(kernel.name);
    if (texts_.count(&kernel)) {
      prepare_memory(kernel);
      print_probe(id, false);
      print_kernel_call(kernel);
      print_probe(id, true);
    } else if (const LibraryCall *call = kernel.library()) {
      print_probe(id, false);
      print_library(kernel, *call);
      print_probe(id, true);
    } else {
      print_probe(id, false);
      print_control(kernel, *kernel.control());
      print_probe(id, true);
    }
  }
}

std::vector<BufferId> probed_buffers(const Program &program, const Uses &uses, const Kernel &kernel) {
  std::vector<BufferId> roots, all = reads(program, kernel), written = writes(program, kernel);
  if (const ControlFlow *control = kernel.control()) {  // what its bodies make is told of their kernels
    std::set<BufferId> inside;
    for (const BufferId b : written) inside.insert(uses.root(b));
    std::erase_if(all, [&](BufferId b) { return inside.count(uses.root(b)) > 0; });
    written = control->outputs;
    std::erase_if(written, [](BufferId b) { return !b.valid(); });
  }
  all.insert(all.end(), written.begin(), written.end());
  for (BufferId b : all) {
    b = uses.root(b);
    const Buffer &buffer = program.buffer(b);
    if (buffer.kind == BufferKind::kConstant || buffer.kind == BufferKind::kScratch || !buffer.type.is_tensor() ||
        buffer.element() == ElementType::kString)
      continue;
    if (std::find(roots.begin(), roots.end(), b) == roots.end()) roots.push_back(b);
  }
  return roots;
}

void ModelPrinter::print_probe(KernelId kernel, bool after, const std::string &target) {
  if (!probe_) return;
  std::string places;
  for (const BufferId b : probed_buffers(program_, uses_, program_.kernel(kernel)))
    places += (places.empty() ? "" : ", ") + pointer(b, false);
  line(fmt::format("probe(run, {}, {}, {}, {{{}}}{});", kernel.index, string_literal(program_.kernel(kernel).name),
                   after, places, target.empty() ? "" : ", " + target));
}

// The main sequence of a Program with kernels on a GPU.
void ModelPrinter::device_sequence() {
  const DeviceSchedule &schedule = *gpu_.schedule;
  std::string dims;
  for (const SymbolSource &s : program_.sources) dims += (dims.empty() ? "" : ", ") + symbol(*s.symbol);
  line(fmt::format("if (!gpu_begin(run, gpu, {{{}}})) return run.status;", dims));
  for (size_t at = 0; at < program_.order.size(); ++at) {
    next_part();
    print_copies(schedule.copies[at]);
    const int segment = schedule.segment[at];
    if (segment < 0) {
      sequence({program_.order[at]});
      continue;
    }
    if (at > 0 && schedule.segment[at - 1] == segment) continue;
    size_t end = at;
    while (end < program_.order.size() && schedule.segment[end] == segment) ++end;
    const std::string &first = program_.kernel(program_.order[at]).name;
    const std::string target = schedule.watched() ? "gpu.target()" : "";
    if (schedule.watched()) print_probe(program_.order[at], false, target);
    line(fmt::format("if (run.step({})) return run.status;", step_names_.size()));
    step_names_.push_back(fmt::format("gpu segment {}: {}{}", segment, first,
                                      end - at > 1 ? fmt::format(" and {} more", end - at - 1) : ""));
    line(fmt::format("// on the GPU: {}{}", first,
                     end - at > 1
                         ? fmt::format(" to {}, {} kernels", program_.kernel(program_.order[end - 1]).name, end - at)
                         : ""));
    line(fmt::format("if (!gpu_segment(run, gpu, {})) return run.status;", segment));
    if (!schedule.watched()) continue;
    print_copies(schedule.shown[at]);
    print_probe(program_.order[at], true, target);
  }
  print_copies(schedule.copies[program_.order.size()]);
}

void ModelPrinter::print_copies(const std::vector<DeviceCopy> &copies) {
  for (const DeviceCopy &copy : copies) {
    const auto number = std::find(gpu_.buffers->begin(), gpu_.buffers->end(), copy.buffer) - gpu_.buffers->begin();
    const std::string host = pointer(copy.buffer, !copy.to_device);
    if (const auto grown = grown_.find(copy.buffer.index); grown != grown_.end() && !copy.to_device) {
      line(fmt::format("{} = run.grow<{}>({}, {});", host, cpp_type(program_.buffer(copy.buffer).element()).storage,
                       grown->second, size(buffer_bytes(copy.buffer))));
      line(fmt::format("if (!{}) return run.status;", host));
    }
    line(fmt::format("if (!gpu_{}(run, gpu, {}, {})) return run.status;", copy.to_device ? "upload" : "download",
                     number, host));
  }
}

// What a kernel computes, and how large its result is: "convolution + Relu 1x64x56x56", "Softmax NxS", "fill scalar".
// With its size it is no name of the runtime's headers.
static std::string purpose(const Program &program, const Kernel &kernel, const KernelText &text) {
  std::string says = kernel.note;
  if (says.empty())
    for (size_t i = 0; i < kernel.origin.size() && i < 4; ++i)
      says += (i ? " + " : "") + program.origins[kernel.origin[i]].op;
  std::string size;
  for (size_t i = 0; i < text.buffers.size(); ++i) {
    if (!text.written[i]) continue;
    size.clear();
    for (Dim d : program.buffer(text.buffers[i]).shape()) {
      const DimSymbol *symbol = single_symbol(d);
      size += (size.empty() ? "" : "x") + (d.is_constant() ? std::to_string(d.value()) : symbol ? symbol->name : "n");
    }
  }
  return says + " " + (size.empty() ? "scalar" : size);
}

// Kernels of equal form run one function, which is named by what it computes.
void ModelPrinter::share_functions() {
  UniqueNames names;
  std::unordered_map<std::string, size_t> count;
  for (const Kernel &kernel : program_.kernels) {
    names.unique(kernel.name);
    if (const auto text = texts_.find(&kernel); text != texts_.end()) ++count[text->second.form];
  }
  for (const Kernel &kernel : program_.kernels) {
    const auto text = texts_.find(&kernel);
    if (text == texts_.end() || count[text->second.form] < 2 || functions_.count(text->second.form)) continue;
    functions_.emplace(text->second.form, names.unique(purpose(program_, kernel, text->second)));
  }
}

void ModelPrinter::print_kernel_call(const Kernel &kernel) {
  KernelText text = std::move(texts_.at(&kernel));
  std::string arguments = "env";
  for (size_t i = 0; i < text.buffers.size(); ++i) arguments += ", " + pointer(text.buffers[i], text.written[i]);
  for (const DimSymbol *s : text.symbols) arguments += ", " + symbol(*s);
  const auto shared = functions_.find(text.form);
  text.function = shared == functions_.end() ? text.name : shared->second;
  text.defines = defined_.insert(text.function).second;
  if (text.defines && text.function != text.name) text.text = with_own_name(text.text, text.name, text.function);
  // A function that several kernels run says whose work it does here.
  std::string says = text.function == text.name ? "" : text.name;
  if (!kernel.note.empty() && kernel.note != kernel.name)
    says += (says.empty() ? "" : ": ") + comment_text(kernel.note);
  if (!says.empty()) line("// " + says);
  give_scratch(kernel, text);
  line(fmt::format("k.{}({});", text.function, arguments));
  kernels.push_back(std::move(text));
  kernel_of.push_back(&kernel);
}

Status ModelPrinter::print() {
  divided_ = program_.kernels.size() > kUndividedKernels;
  OPTC_TRY(place());
  share_functions();
  progress_.outputs_set.assign(program_.outputs.size(), false);
  progress_.constraints_set.assign(program_.constraints.size(), false);
  print_bind();
  after_definitions();
  gpu_.schedule ? device_sequence() : sequence(program_.order);
  for (size_t i = 0; i < program_.outputs.size(); ++i) {
    const BufferId o = program_.outputs[i];
    if (is_object(o)) {
      line(fmt::format("if (!give_object(run, {}, {})) return run.status;", i, declare(root(o))));
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
  for (BufferId in : program_.inputs) uses_objects_ = uses_objects_ || is_object(in);
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

}  // namespace optc
