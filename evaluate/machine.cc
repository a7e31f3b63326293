#include "evaluate/machine.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "evaluate/lanes.h"
#include "ir/dim/range.h"
#include "ir/graph/constraint.h"
#include "ops/extern.h"

namespace optc::evaluate_detail {

Machine::Machine(const Program &program, const EvaluateOptions &options, Diagnostics &diagnostics)
    : program_(program), options_(options), diagnostics_(diagnostics) {
  slots_.resize(program.buffers.size());
  if (program.dims) symbols_.resize(program.dims->symbol_count());
}

std::string Machine::place(const Kernel &kernel) const { return origin_text(program_, kernel); }

Failure Machine::fault(const std::string &message) {
  return diagnostics_.error(ErrorKind::kFault, kernel_ ? "kernel '" + kernel_->name + "': " + message : message,
                            kernel_ ? place(*kernel_) : std::string());
}

Failure Machine::internal(const std::string &message) {
  return diagnostics_.error(ErrorKind::kInternal,
                            "evaluator: " + (kernel_ ? "kernel '" + kernel_->name + "': " + message : message),
                            kernel_ ? place(*kernel_) : std::string());
}

BufferId Machine::root(BufferId id) const {
  while (program_.buffer(id).alias.valid()) id = program_.buffer(id).alias;
  return id;
}

bool Machine::evaluate_dims(const Shape &shape, std::vector<int64_t> &out) const {
  out.clear();
  for (const Dim d : shape) {
    const auto value = symbols_.evaluate(d);
    if (!value) return false;
    out.push_back(*value);
  }
  return true;
}

bool Machine::layout(const Buffer &buffer, Tensor &tensor) const {
  if (!evaluate_dims(buffer.shape(), tensor.dims)) return false;
  for (const int64_t d : tensor.dims)
    if (d < 0) return false;
  __int128 stored = 1;
  if (buffer.order.empty() && buffer.padded.empty()) {
    for (const int64_t d : tensor.dims) stored = d == 0 ? 0 : stored * d;
    tensor.strides = row_major_strides(tensor.dims);
  } else {
    if (!evaluate_dims(storage_strides(buffer), tensor.strides)) return false;
    const auto count = symbols_.evaluate(storage_count(buffer));
    if (!count) return false;
    stored = *count;
  }
  int64_t last = 0;  // the last element that an index reaches
  for (size_t k = 0; k < tensor.dims.size(); ++k) last += (tensor.dims[k] - 1) * tensor.strides[k];
  if (tensor.count() > 0 && last >= stored) return false;
  if (stored > options_.max_bytes) stored = options_.max_bytes + 1;  // refused by whoever allocates
  tensor.stored = static_cast<int64_t>(stored);
  tensor.type = buffer.element();
  return true;
}

bool Machine::load_constant(BufferId id) {
  const Buffer &buffer = program_.buffer(id);
  if (!buffer.constant.valid()) return false;
  Tensor tensor = from_constant(buffer.constant);
  if (!buffer.order.empty() || !buffer.padded.empty()) {
    Tensor logical;
    if (!layout(buffer, logical) || logical.stored > tensor.stored) return false;
    tensor.dims = logical.dims;
    tensor.strides = logical.strides;
  }
  slots_[id.index].tensor = std::move(tensor);
  return slots_[id.index].valid();
}

std::string Machine::out_of_place(BufferId base, int64_t stored) const {
  if (!options_.as_lowered) return {};
  const int64_t bytes = storage_bytes(program_.buffer(base).element(), stored).value_or(INT64_MAX);
  return places_.refuse(program_, symbols_, base, bytes, step_);
}

bool Machine::readable(BufferId id, Tensor &out, std::string &reason) {
  const BufferId base = root(id);
  const std::string name = "'" + program_.buffer(id).name + "'";
  Slot &slot = slots_[base.index];
  if (!slot.valid() && program_.buffer(base).kind == BufferKind::kConstant && !load_constant(base)) {
    reason = "the constant " + name + " has no value of its shape";
    return false;
  }
  reason = out_of_place(base, slot.tensor.stored);
  if (!reason.empty()) return false;
  if (!slot.tensor.valid()) {
    reason = name + " is read before it is written";
    return false;
  }
  out = slot.tensor;
  if (base == id) return true;
  int64_t offset = out.offset;
  reason = name + " does not lie inside '" + program_.buffer(base).name + "'";
  for (BufferId b = id; b != base; b = program_.buffer(b).alias) {
    const auto shift = symbols_.evaluate(program_.buffer(b).alias_offset);
    if (!shift) return false;
    offset += *shift;
  }
  Tensor view;
  if (!layout(program_.buffer(id), view)) return false;
  if (view.type != out.type && cell_bytes(view.type) != cell_bytes(out.type)) return false;
  const int64_t end = slot.tensor.offset + slot.tensor.stored;
  if (view.count() > 0 && (offset < 0 || offset + view.stored > end)) return false;
  view.offset = offset;
  view.block = out.block;
  out = std::move(view);
  return true;
}

bool Machine::writable(BufferId id, Tensor &out) {
  const BufferId base = root(id);
  const Buffer &buffer = program_.buffer(base);
  auto say = [this](const Failure &failure) {
    said_ = failure.kind;
    return false;
  };
  Slot &slot = slots_[base.index];
  if (std::find(prepared_.begin(), prepared_.end(), base.index) == prepared_.end()) {
    prepared_.push_back(base.index);
    Tensor wanted;
    if (!layout(buffer, wanted))
      return say(internal("the size of '" + buffer.name + "' is not known or negative, or its storage is too small"));
    if (const std::string reason = out_of_place(base, wanted.stored); !reason.empty()) return say(internal(reason));
    const bool same = slot.tensor.valid() && slot.tensor.dims == wanted.dims && slot.tensor.type == wanted.type &&
                      slot.tensor.strides == wanted.strides;
    if (!same || slot.tensor.block.use_count() > 1 || slot.tensor.block->read_only) {
      if (wanted.stored > options_.max_bytes / std::max<int64_t>(cell_bytes(wanted.type), 1))
        return say(no_memory(buffer, wanted.dims, true));
      wanted.block = options_.as_lowered && !same ? make_unwritten_block(wanted.type, wanted.stored)
                                                  : make_block(wanted.type, wanted.stored);
      if (!wanted.block) return say(no_memory(buffer, wanted.dims, false));
      if (same) {  // somebody else reads the old values: only this buffer changes
        const Block &old = *slot.tensor.block;
        if (wanted.type == ElementType::kString)
          std::copy_n(reinterpret_cast<const std::string *>(slot.tensor.data()), wanted.stored,
                      reinterpret_cast<std::string *>(wanted.data()));
        else
          std::memcpy(wanted.data(), slot.tensor.data(), static_cast<size_t>(wanted.stored * cell_bytes(wanted.type)));
        if (old.written) wanted.block->written = std::make_unique<Written>(*old.written);
      }
      slot.tensor = std::move(wanted);
      slot.is_object = false;
    }
  }
  if (takes_place_.count(id.index) && !slot.tensor.block->replacing) {
    slot.tensor.block->replacing = std::make_unique<Written>(slot.tensor.offset + slot.tensor.stored);
    replacements_.push_back(id);
  }
  std::string reason;
  if (readable(id, out, reason)) return true;
  return say(internal(reason));
}

// Kernels that put their results into the bytes of operands are done: those hold the results, and nothing else.
void Machine::end_replacing() {
  for (const BufferId id : replacements_) {
    Block &block = *slots_[root(id).index].tensor.block;
    block.written = std::move(block.replacing);
  }
  replacements_.clear();
}

Status Machine::check_written(BufferId id, const Tensor &tensor) {
  const std::string index = first_unwritten(tensor);
  if (index.empty()) return {};
  return internal("element " + index + " of '" + program_.buffer(id).name + "' is read but was never written");
}

// --- Inputs, constraints, life
// -----------------------------------------------------------------------------------------

Status Machine::set_input(size_t i, const RuntimeValue &value) {
  const Buffer &buffer = program_.buffer(program_.inputs[i]);
  const std::string name = i < program_.input_names.size() ? program_.input_names[i] : buffer.name;
  Slot &slot = slots_[program_.inputs[i].index];
  auto usage = [&](const std::string &message) {
    return diagnostics_.error(ErrorKind::kUsage, "input '" + name + "' " + message);
  };
  if (value.kind == RuntimeValue::Kind::kAbsent) {
    if (i < program_.input_defaults.size() && program_.input_defaults[i].valid()) {
      slot.tensor = from_constant(program_.input_defaults[i]);
      return {};
    }
    if (buffer.type.kind == Type::Kind::kOptional) {
      slot.object.kind = RuntimeValue::Kind::kOptional;
      slot.is_object = true;
      return {};
    }
    return usage("is missing");
  }
  if (!buffer.type.is_tensor()) {
    slot.object = value;
    slot.is_object = true;
    if (buffer.type.kind == Type::Kind::kOptional && value.kind != RuntimeValue::Kind::kOptional) {
      slot.object = {};
      slot.object.kind = RuntimeValue::Kind::kOptional;
      slot.object.items.push_back(value);
    }
    return {};
  }
  if (value.kind != RuntimeValue::Kind::kTensor) return usage("must be a tensor");
  if (value.tensor.type() != buffer.element()) {
    return usage("has elements of type " + std::string(to_string(value.tensor.type())) + ", expected " +
                 std::string(to_string(buffer.element())));
  }
  if (value.tensor.rank() != buffer.type.rank()) {
    return usage("has " + std::to_string(value.tensor.rank()) + " dims, expected " + to_string(buffer.shape()));
  }
  slot.tensor = from_constant(value.tensor);
  if (!slot.tensor.valid()) return usage("is too large for the memory");
  return {};
}

Status Machine::set_inputs(const std::vector<RuntimeValue> &inputs) {
  if (inputs.size() > program_.inputs.size()) {
    return diagnostics_.error(ErrorKind::kUsage, std::to_string(inputs.size()) + " inputs were given, the model has " +
                                                     std::to_string(program_.inputs.size()));
  }
  for (size_t i = 0; i < program_.inputs.size(); ++i)
    OPTC_TRY(set_input(i, i < inputs.size() ? inputs[i] : RuntimeValue()));
  auto input_dim = [this](uint32_t input, uint32_t axis) {
    return slots_[program_.inputs[input].index].tensor.dims[axis];
  };
  for (const SymbolSource &source : program_.sources) {
    if (source.capacity) continue;
    const int64_t value = input_dim(source.input, source.axis);
    if (value < source.symbol->min || value > source.symbol->max) {
      return diagnostics_.error(ErrorKind::kUsage, "dim '" + source.symbol->name + "' is " + std::to_string(value) +
                                                       ", the model takes " + range_text(*source.symbol));
    }
    symbols_.set(*source.symbol, value);
  }
  auto expect = [&](uint32_t input, uint32_t axis, Dim expected) -> Status {
    const auto value = symbols_.evaluate(expected);
    const int64_t got = input_dim(input, axis);
    if (!value || *value == got) return {};
    return diagnostics_.error(ErrorKind::kUsage, "input '" + program_.buffer(program_.inputs[input]).name + "': dim " +
                                                     std::to_string(axis) + " is " + std::to_string(got) +
                                                     ", expected " + expected.str() +
                                                     (expected.is_constant() ? "" : " = " + std::to_string(*value)));
  };
  for (const DimCheck &check : program_.checks) OPTC_TRY(expect(check.input, check.axis, check.expected));
  for (size_t i = 0; i < program_.inputs.size(); ++i) {
    const Type &type = program_.buffer(program_.inputs[i]).type;
    if (!type.is_tensor()) continue;
    for (size_t k = 0; k < type.shape->size(); ++k)
      OPTC_TRY(expect(static_cast<uint32_t>(i), static_cast<uint32_t>(k), (*type.shape)[k]));
  }
  OPTC_TRY(set_states());
  for (size_t i = 0; i < program_.constraints.size(); ++i) pending_constraints_.push_back(i);
  return check_constraints();
}

// The memory of each state, with the input in it. One that grows has more room than this run needs.
Status Machine::set_states() {
  constexpr int64_t kRoom = 3;
  for (const State &state : program_.states) {
    if (state.axis < 0) continue;
    const Dim length = program_.buffer(program_.outputs[state.output]).shape()[static_cast<size_t>(state.axis)];
    const auto needed = symbols_.evaluate(length);
    if (!needed) return internal("the length of a state is not known");
    const auto other = symbols_.evaluate(program_.dims->symbol_value(state.capacity));
    symbols_.set(*state.capacity, std::max(*needed + kRoom, other.value_or(0)));
  }
  const std::vector<const DimSymbol *> none;
  for (const State &state : program_.states) {
    const BufferId id = program_.inputs[state.input];
    OPTC_TRY(assign(id, Slot(slots_[id.index]), &none));
  }
  return {};
}

Status Machine::check_constraints() {
  std::vector<size_t> later;
  for (const size_t i : pending_constraints_) {
    const DimConstraint &c = program_.constraints[i];
    const auto left = symbols_.evaluate(c.left), right = symbols_.evaluate(c.right);
    if (!left || !right) {
      later.push_back(i);
      continue;
    }
    if (constraint_holds(*left, *right, c.or_one)) continue;
    return diagnostics_.error(ErrorKind::kFault,
                              "dims do not match: " + c.left.str() + " is " + std::to_string(*left) + ", " +
                                  c.right.str() + " is " + std::to_string(*right),
                              c.where);
  }
  pending_constraints_ = std::move(later);
  return {};
}

void Machine::find_last_uses() {
  last_use_.assign(program_.buffers.size(), std::numeric_limits<size_t>::max());
  for (size_t i = 0; i < program_.order.size(); ++i) {
    const Kernel &kernel = program_.kernel(program_.order[i]);
    for (const BufferId b : reads(program_, kernel))
      if (b.valid()) last_use_[root(b).index] = i;
    for (const BufferId b : writes(program_, kernel))
      if (b.valid()) last_use_[root(b).index] = i;
  }
  for (const BufferId b : program_.outputs) last_use_[root(b).index] = std::numeric_limits<size_t>::max();
}

Result<std::vector<RuntimeValue>> Machine::run(const std::vector<RuntimeValue> &inputs) {
  OPTC_TRY(set_inputs(inputs));
  if (options_.as_lowered) {
    const std::string wrong = places_.lay_out(program_, symbols_);
    if (!wrong.empty()) return internal(wrong);
    find_writers();
  }
  find_last_uses();
  OPTC_TRY(run_sequence(program_.order, true));
  kernel_ = nullptr;
  step_ = program_.order.size();
  std::vector<RuntimeValue> outputs;
  for (const BufferId id : program_.outputs) {
    const Slot &slot = slots_[root(id).index];
    if (slot.is_object) {
      outputs.push_back(slot.object);
      continue;
    }
    OPTC_ASSIGN(const Slot value, slot_of(id));
    outputs.push_back(RuntimeValue::of(to_constant(value.tensor)));
  }
  return outputs;
}

Status Machine::run_sequence(const std::vector<KernelId> &order, bool main) {
  std::vector<std::vector<uint32_t>> ends(main ? order.size() : 0);
  for (size_t b = 0; main && b < last_use_.size(); ++b)
    if (last_use_[b] < ends.size()) ends[last_use_[b]].push_back(static_cast<uint32_t>(b));
  for (size_t i = 0; i < order.size(); ++i) {
    if (main) step_ = i;
    OPTC_TRY(run_kernel(program_.kernel(order[i])));
    if (!main) continue;
    for (const uint32_t b : ends[i]) slots_[b] = Slot();
    if (options_.progress) options_.progress(static_cast<int64_t>(i + 1), static_cast<int64_t>(order.size()));
  }
  return {};
}

Status Machine::run_kernel(const Kernel &kernel) {
  const Kernel *outer = kernel_;
  kernel_ = &kernel;
  prepared_.clear();
  constexpr double kStart = 5000;  // operations in whose time a kernel is begun
  if (!spend(kStart)) return Failure{said_};
  if (const LoopNest *nest = kernel.nest()) {
    std::string error;
    switch (run_nest(*this, *nest, options_.use_runtime_kernels, error)) {
      case NestResult::kDone:
        end_replacing();
        break;
      case NestResult::kFault:
        return fault(error);
      case NestResult::kInternal:
        return internal(error);
      case NestResult::kSaid:
        return Failure{said_};
    }
  } else if (const LibraryCall *call = kernel.library()) {
    OPTC_TRY(run_library(kernel, *call));
  } else if (const ControlFlow *control = kernel.control()) {
    OPTC_TRY(control->kind == ControlFlow::Kind::kIf ? run_if(kernel, *control) : run_loop(kernel, *control));
  }
  kernel_ = outer;
  return {};
}

// --- Library
// -----------------------------------------------------------------------------------------------------------

Status Machine::run_library(const Kernel &, const LibraryCall &call) {
  std::string error;
  if (call.function == kExternFunction)
    return diagnostics_.error(ErrorKind::kUnsupported, "the application supplies this operator: optc cannot run it",
                              kernel_ ? place(*kernel_) : "",
                              "to run the model here, give the operator a body by --custom-op instead of --extern");
  const LibraryFunction function = find_library_function(call.function, error);
  if (!function && !error.empty())
    return diagnostics_.error(ErrorKind::kIo, error, kernel_ ? place(*kernel_) : "",
                              "install the libraries that it names, or run the model as a bundle");
  if (!function) return internal("there is no library function '" + call.function + "'");
  std::vector<Slot> values;
  values.reserve(call.inputs.size());
  std::vector<const Slot *> inputs;
  for (const BufferId id : call.inputs) {
    if (!id.valid()) {
      inputs.push_back(nullptr);
      continue;
    }
    OPTC_ASSIGN(Slot slot, slot_of(id));
    values.push_back(std::move(slot));
    inputs.push_back(&values.back());
  }
  for (const DimSymbol *symbol : call.defines)
    if (symbol) symbols_.forget(*symbol);
  std::vector<LibraryOutput> outputs(call.outputs.size());
  double elements = 0;
  for (const Slot &value : values) elements += value.is_object ? 0 : static_cast<double>(value.tensor.count());
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const BufferId id = call.outputs[i];
    if (!id.valid()) continue;
    const Buffer &buffer = program_.buffer(id);
    outputs[i].wanted = true;
    outputs[i].type = buffer.type;
    outputs[i].is_object = !buffer.type.is_tensor();
    std::vector<int64_t> dims;
    if (outputs[i].is_object || !evaluate_dims(buffer.shape(), dims)) continue;
    OPTC_ASSIGN(outputs[i].tensor, allocate(buffer, std::move(dims)));
    elements += static_cast<double>(outputs[i].tensor.count());
  }
  constexpr double kOfElement = 16;  // operations
  if (!spend(elements * kOfElement)) return Failure{said_};
  std::vector<RuntimeValue> objects;
  std::vector<int64_t> sizes;
  const int status = call_library(function, call, inputs, outputs, objects, sizes, error);
  if (status == 101) return internal(error);
  if (status == kLibraryMemory)
    return diagnostics_.error(ErrorKind::kIo, call.function + ": " + error, kernel_ ? place(*kernel_) : "");
  if (status != 0) return fault(error);
  for (size_t i = 0; i < call.defines.size(); ++i) {
    if (sizes[i] < 0) return fault(call.function + " found a negative size");
    if (call.defines[i]) symbols_.set(*call.defines[i], sizes[i]);
  }
  if (!call.defines.empty()) OPTC_TRY(check_constraints());
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (!outputs[i].wanted) continue;
    Slot slot;
    slot.is_object = outputs[i].is_object;
    if (slot.is_object)
      slot.object = std::move(objects[i]);
    else
      slot.tensor = std::move(outputs[i].tensor);
    OPTC_TRY(assign(call.outputs[i], slot, &call.defines));
  }
  return {};
}

}  // namespace optc::evaluate_detail
