// One kernel by itself, on memory that somebody else filled (a bundle's).
#include <algorithm>
#include <cstring>

#include "evaluate/lanes.h"
#include "evaluate/machine.h"

namespace optc::evaluate_detail {

bool Machine::bind(const StoredBuffer &stored, bool copy) {
  const Buffer &buffer = program_.buffer(stored.root);
  Tensor tensor;
  if (!layout(buffer, tensor)) return false;
  const int64_t bytes = storage_bytes(tensor.type, tensor.stored).value_or(0);
  if (!stored.bytes && bytes > 0) return false;
  const bool packed = bit_width(tensor.type) < 8;
  if (!copy && !packed) {
    tensor.block = std::make_shared<Block>();
    tensor.block->data = const_cast<uint8_t *>(stored.bytes);
    tensor.block->size = static_cast<size_t>(bytes);
    tensor.block->read_only = true;
  } else if (packed) {
    const Constant whole = Constant::view(tensor.type, {tensor.stored}, stored.bytes, static_cast<size_t>(bytes), {});
    tensor.block = from_constant(whole).block;
  } else {
    tensor.block = make_block(tensor.type, tensor.stored);
    if (tensor.block && bytes > 0) std::memcpy(tensor.block->data, stored.bytes, static_cast<size_t>(bytes));
  }
  if (!tensor.block) return false;
  slots_[stored.root.index].tensor = std::move(tensor);
  return true;
}

Result<std::vector<BufferValue>> Machine::run_alone(KernelId id, const SymbolValueList &symbols,
                                                    const std::vector<StoredBuffer> &memory) {
  for (const auto &[symbol, value] : symbols) symbols_.set(symbol, value);
  const Kernel &kernel = program_.kernel(id);
  std::vector<BufferId> written = writes(program_, kernel);
  for (const StoredBuffer &stored : memory) {
    const bool changes =
        std::any_of(written.begin(), written.end(), [&](BufferId b) { return root(b) == stored.root; });
    (void)bind(stored, changes);  // what has no size yet, the kernel finds
  }
  OPTC_TRY(run_kernel(kernel));
  kernel_ = &kernel;
  std::vector<BufferValue> values;
  if (const ControlFlow *control = kernel.control()) written = control->outputs;
  for (const BufferId b : written) {
    if (!b.valid()) continue;
    const Slot &slot = slots_[root(b).index];
    if (program_.buffer(root(b)).kind == BufferKind::kScratch || slot.is_object) continue;
    OPTC_ASSIGN(const Slot value, slot_of(b));
    values.push_back({b, to_constant(value.tensor)});
  }
  return values;
}

std::optional<Constant> Machine::value_of(BufferId id, const SymbolValueList &symbols, const uint8_t *bytes) {
  for (const auto &[symbol, value] : symbols) symbols_.set(symbol, value);
  std::string reason;
  Tensor tensor;
  if (!bind({root(id), bytes}, false) || !readable(id, tensor, reason)) return std::nullopt;
  return to_constant(dense(tensor));
}

}  // namespace optc::evaluate_detail
