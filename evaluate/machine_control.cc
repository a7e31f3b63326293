// Control flow of a running Program: If and Loop, and the values that they hand over.
#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <unordered_set>

#include "evaluate/lanes.h"
#include "evaluate/machine.h"

namespace optc::evaluate_detail {

Result<Slot> Machine::slot_of(BufferId id) {
  const Slot &base = slots_[root(id).index];
  if (base.is_object) return base;
  Slot slot;
  std::string reason;
  if (!readable(id, slot.tensor, reason)) return internal(reason);
  OPTC_TRY(check_written(id, slot.tensor));
  return slot;
}

Result<int64_t> Machine::read_scalar(BufferId id) {
  OPTC_ASSIGN(const Slot slot, slot_of(id));
  if (slot.is_object || slot.tensor.count() != 1)
    return internal("'" + program_.buffer(id).name + "' is not one element");
  Register value;
  load_lanes(slot.tensor.type, slot.tensor.data(), Offsets{}, 1, value);
  return value.i64[0];
}

void Machine::set_scalar(BufferId id, int64_t value) {
  if (!id.valid()) return;
  std::vector<int64_t> dims;
  evaluate_dims(program_.buffer(id).shape(), dims);
  Slot slot;
  slot.tensor = make_tensor(program_.buffer(id).element(), dims);
  Register lane;
  lane.poisoned = false;
  lane.i64[0] = value;
  store_lanes(slot.tensor.type, slot.tensor.data(), Offsets{}, 1, lane, nullptr);
  slots_[id.index] = std::move(slot);
}

Status Machine::take_sizes(BufferId id, const std::vector<int64_t> &dims,
                           const std::vector<const DimSymbol *> *defines) {
  const Type &type = program_.buffer(id).type;
  if (!type.has_shape()) return {};
  if (type.shape->size() != dims.size())
    return internal("'" + program_.buffer(id).name + "' got a value of another rank");
  for (size_t k = 0; k < dims.size(); ++k) {
    const DimSymbol *symbol = single_symbol((*type.shape)[k]);
    if (!symbol || symbol->kind != SymbolKind::kData) continue;
    if (!defines || std::find(defines->begin(), defines->end(), symbol) != defines->end())
      symbols_.set(*symbol, dims[k]);
  }
  return {};
}

Status Machine::assign(BufferId id, const Slot &value, const std::vector<const DimSymbol *> *defines) {
  const Buffer &buffer = program_.buffer(id);
  if (value.is_object) {
    slots_[root(id).index] = value;
    return {};
  }
  OPTC_TRY(take_sizes(id, value.tensor.dims, defines));
  Tensor wanted;
  if (!layout(buffer, wanted)) return internal("the size of '" + buffer.name + "' is not known");
  if (wanted.dims != value.tensor.dims) {
    auto text = [](const std::vector<int64_t> &dims) {
      std::string s = "[";
      for (size_t k = 0; k < dims.size(); ++k) s += (k ? "," : "") + std::to_string(dims[k]);
      return s + "]";
    };
    return fault("'" + buffer.name + "' is " + text(value.tensor.dims) + " where " + text(wanted.dims) +
                 " was expected");
  }
  if (!buffer.alias.valid() && buffer.order.empty() && buffer.padded.empty()) {
    slots_[id.index].tensor = dense(value.tensor);
    slots_[id.index].is_object = false;
    return {};
  }
  // Part of another buffer, or stored in another order: element by element.
  prepared_.clear();
  Tensor target;
  if (!writable(id, target)) return Failure{said_};
  const Tensor source = dense(value.tensor);
  std::vector<int64_t> index(target.dims.size(), 0);
  const int64_t count = source.count();
  Register lane;
  lane.poisoned = false;
  for (int64_t i = 0; i < count; ++i) {
    int64_t to = 0;
    for (size_t k = 0; k < index.size(); ++k) to += index[k] * target.strides[k];
    load_lanes(source.type, source.data(), Offsets{i, 0, nullptr}, 1, lane);
    store_lanes(target.type, target.data(), Offsets{to, 0, nullptr}, 1, lane, nullptr);
    if (target.block->written) target.block->written->mark(target.offset + to);
    for (size_t k = index.size(); k-- > 0;) {
      if (++index[k] < target.dims[k]) break;
      index[k] = 0;
    }
  }
  return {};
}

// What each kernel itself writes: a construct's outputs and its bodies' inputs are its own, the rest is its bodies'.
void Machine::find_writers() {
  writers_.assign(program_.buffers.size(), {});
  for (size_t k = 0; k < program_.kernels.size(); ++k) {
    const Kernel &kernel = program_.kernels[k];
    if (!kernel.alive) continue;
    auto note = [&](BufferId id) {
      if (id.valid()) writers_[root(id).index].push_back(KernelId(k));
    };
    if (const ControlFlow *control = kernel.control()) {
      for (const BufferId id : control->outputs) note(id);
      for (const BufferId id : control->body_inputs) note(id);
      note(control->iteration);
      note(control->body_condition);
    } else {
      for (const BufferId id : writes(program_, kernel)) note(id);
    }
  }
  std::unordered_set<uint32_t> before;  // roots that earlier kernels wrote
  for (const KernelId k : program_.order) {
    const std::vector<BufferId> written = writes(program_, program_.kernel(k));
    for (const BufferId id : written)
      if (program_.kernel(k).nest() && before.count(root(id).index) && is_whole_view(id)) takes_place_.insert(id.index);
    for (const BufferId id : written) before.insert(root(id).index);
  }
}

bool Machine::is_whole_view(BufferId id) const {
  const BufferId base = root(id);
  if (base == id || !(storage_count(program_.buffer(id)) == storage_count(program_.buffer(base)))) return false;
  for (; id != base; id = program_.buffer(id).alias)
    if (!program_.buffer(id).alias_offset.is(0)) return false;
  return true;
}

Status Machine::run_body(const std::vector<KernelId> &body) {
  if (options_.as_lowered) {
    std::unordered_set<uint32_t> inside;
    std::vector<KernelId> kernels = body;
    for (size_t i = 0; i < kernels.size(); ++i) {
      inside.insert(kernels[i].index);
      if (const ControlFlow *control = program_.kernel(kernels[i]).control())
        for (const auto &nested : control->bodies) kernels.insert(kernels.end(), nested.begin(), nested.end());
    }
    for (const KernelId k : body) {
      for (const BufferId id : writes(program_, program_.kernel(k))) {
        const uint32_t base = root(id).index;
        if (std::all_of(writers_[base].begin(), writers_[base].end(),
                        [&](KernelId writer) { return inside.count(writer.index) > 0; }))
          slots_[base] = Slot();
      }
    }
  }
  return run_sequence(body, false);
}

Status Machine::run_if(const Kernel &kernel, const ControlFlow &control) {
  OPTC_ASSIGN(const int64_t condition, read_scalar(control.condition));
  const size_t branch = condition ? 0 : 1;
  if (branch >= control.bodies.size()) return {};
  OPTC_TRY(run_body(control.bodies[branch]));
  kernel_ = &kernel;
  std::vector<Slot> results;
  for (const BufferId id : control.results[branch]) {
    OPTC_ASSIGN(Slot slot, slot_of(id));
    results.push_back(std::move(slot));
  }
  for (size_t i = 0; i < results.size() && i < control.outputs.size(); ++i)
    if (control.outputs[i].valid()) OPTC_TRY(assign(control.outputs[i], results[i], &control.defines));
  return check_constraints();
}

Status Machine::finish_scan(const ControlFlow &control, size_t scan, BufferId output,
                            const std::vector<Tensor> &slices) {
  const Buffer &buffer = program_.buffer(output);
  const size_t axis = scan < control.scan_axes.size() ? static_cast<size_t>(control.scan_axes[scan]) : 0;
  const bool reverse = scan < control.scan_reverse.size() && control.scan_reverse[scan];
  std::vector<int64_t> dims;
  if (!slices.empty()) {
    dims = slices[0].dims;
    dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(axis), static_cast<int64_t>(slices.size()));
  } else {
    for (size_t k = 0; k < buffer.shape().size(); ++k)
      dims.push_back(k == axis ? 0 : symbols_.evaluate(buffer.shape()[k]).value_or(0));
  }
  Slot result;
  OPTC_ASSIGN(result.tensor, allocate(buffer, dims));
  int64_t before = 1, after = 1;
  for (size_t k = 0; k < dims.size(); ++k) (k < axis ? before : after) *= k == axis ? 1 : dims[k];
  const int64_t cell = cell_bytes(buffer.element()), length = static_cast<int64_t>(slices.size());
  for (int64_t s = 0; s < length; ++s) {
    const Tensor slice = dense(slices[static_cast<size_t>(s)]);
    if (slice.dims != slices[0].dims)
      return fault("slices of '" + buffer.name + "' differ in size from one iteration to another");
    const int64_t at = reverse ? length - 1 - s : s;
    for (int64_t b = 0; b < before; ++b) {
      if (buffer.element() == ElementType::kString) {
        std::copy_n(reinterpret_cast<const std::string *>(slice.data()) + b * after, after,
                    reinterpret_cast<std::string *>(result.tensor.data()) + (b * length + at) * after);
      } else {
        std::memcpy(result.tensor.data() + (b * length + at) * after * cell, slice.data() + b * after * cell,
                    static_cast<size_t>(after * cell));
      }
    }
  }
  return assign(output, result, &control.defines);
}

const Machine::BodySizes &Machine::body_sizes(const ControlFlow &control) {
  const auto [it, is_new] = body_sizes_.try_emplace(&control);
  BodySizes &sizes = it->second;
  if (!is_new) return sizes;
  sizes.symbols = control.defines;
  const std::function<void(const std::vector<KernelId> &)> walk = [&](const std::vector<KernelId> &order) {
    for (const KernelId k : order) {
      const Kernel &kernel = program_.kernel(k);
      if (const LibraryCall *call = kernel.library())
        sizes.symbols.insert(sizes.symbols.end(), call->defines.begin(), call->defines.end());
      const ControlFlow *inner = kernel.control();
      if (!inner) continue;
      sizes.symbols.insert(sizes.symbols.end(), inner->defines.begin(), inner->defines.end());
      for (const auto &body : inner->bodies) walk(body);
    }
  };
  for (const auto &body : control.bodies) walk(body);
  std::erase(sizes.symbols, nullptr);
  const std::unordered_set<const DimSymbol *> found(sizes.symbols.begin(), sizes.symbols.end());
  for (size_t i = 0; i < program_.constraints.size(); ++i) {
    std::vector<const DimSymbol *> used;
    collect_symbols(program_.constraints[i].left, used);
    collect_symbols(program_.constraints[i].right, used);
    if (std::any_of(used.begin(), used.end(), [&](const DimSymbol *s) { return found.count(s) != 0; }))
      sizes.constraints.push_back(i);
  }
  return sizes;
}

// Before each iteration: what the one before found holds no longer, and what was demanded of it is demanded again.
void Machine::forget_iteration(const ControlFlow &control) {
  const BodySizes &sizes = body_sizes(control);
  for (const DimSymbol *symbol : sizes.symbols) symbols_.forget(*symbol);
  for (const size_t i : sizes.constraints)
    if (std::find(pending_constraints_.begin(), pending_constraints_.end(), i) == pending_constraints_.end())
      pending_constraints_.push_back(i);
}

Status Machine::run_loop(const Kernel &kernel, const ControlFlow &control) {
  int64_t trips = std::numeric_limits<int64_t>::max();
  bool condition = true;
  if (control.trip_count.valid()) {
    OPTC_ASSIGN(const int64_t count, read_scalar(control.trip_count));
    trips = count;
  }
  if (control.condition.valid()) {
    OPTC_ASSIGN(const int64_t first, read_scalar(control.condition));
    condition = first != 0;
  }
  std::vector<Slot> carried;
  for (const BufferId id : control.initial) {
    OPTC_ASSIGN(Slot slot, slot_of(id));
    carried.push_back(std::move(slot));
  }
  const std::vector<BufferId> &results = control.results[0];
  const size_t scans = results.size() > 1 + control.carried ? results.size() - 1 - control.carried : 0;
  std::vector<std::vector<Tensor>> slices(scans);
  int64_t i = 0;
  for (; i < trips && condition; ++i) {
    forget_iteration(control);
    set_scalar(control.iteration, i);
    set_scalar(control.body_condition, condition);
    for (size_t c = 0; c < carried.size() && c < control.body_inputs.size(); ++c)
      OPTC_TRY(assign(control.body_inputs[c], carried[c], nullptr));
    OPTC_TRY(check_constraints());
    for (Slot &slot : carried) slot = Slot();  // so that the body may write in place what only it holds
    OPTC_TRY(run_body(control.bodies[0]));
    kernel_ = &kernel;
    if (!results.empty() && results[0].valid()) {
      OPTC_ASSIGN(const int64_t next, read_scalar(results[0]));
      condition = next != 0;
    }
    for (size_t c = 0; c < control.carried; ++c) {
      OPTC_ASSIGN(Slot slot, slot_of(results[1 + c]));
      carried[c] = std::move(slot);
    }
    for (size_t s = 0; s < scans; ++s) {
      OPTC_ASSIGN(const Slot slot, slot_of(results[1 + control.carried + s]));
      slices[s].push_back(slot.tensor);
    }
  }
  for (const DimSymbol *symbol : control.defines) symbols_.forget(*symbol);
  for (size_t c = 0; c < control.carried && c < control.outputs.size(); ++c)
    if (control.outputs[c].valid()) OPTC_TRY(assign(control.outputs[c], carried[c], &control.defines));
  // What no output gives is the trip count, except the sizes of the body's inputs, which mean nothing outside.
  const auto of_body = [&](const DimSymbol *symbol) {
    for (const BufferId id : control.body_inputs) {
      const Type &type = program_.buffer(id).type;
      if (!type.has_shape()) continue;
      for (const Dim d : *type.shape)
        if (single_symbol(d) == symbol) return true;
    }
    return false;
  };
  for (const DimSymbol *symbol : control.defines)
    if (!symbols_.known(*symbol) && scans == 0 && !of_body(symbol)) symbols_.set(*symbol, i);
  for (size_t s = 0; s < scans; ++s) {
    const size_t o = control.carried + s;
    if (o < control.outputs.size() && control.outputs[o].valid())
      OPTC_TRY(finish_scan(control, s, control.outputs[o], slices[s]));
  }
  for (const DimSymbol *symbol : control.defines)
    if (!symbols_.known(*symbol) && !of_body(symbol)) symbols_.set(*symbol, i);
  return check_constraints();
}

}  // namespace optc::evaluate_detail
