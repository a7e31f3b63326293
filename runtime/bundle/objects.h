// objects.h: strings, sequences, optionals and maps of a run (runtime/cpu/lib.h says how library operators see them).
// They live in a region of the context that grows while the model runs and is empty again when the next run begins:
// outputs stay valid until then. Included by the schedules that have such values.
#pragma once
#include "runtime/bundle/library.h"

namespace optc {

// Blocks of memory, handed out in order; all of it is given back at once.
struct ObjectRegion {
  struct Block {
    Block *next;
    size_t bytes, used;
  };
  Block *first = nullptr, *current = nullptr;

  void *take(size_t bytes) {
    bytes = (bytes + 16) / 16 * 16;
    while (current && current->bytes - current->used < bytes && current->next) {
      current = current->next;
      current->used = 0;
    }
    if (!current || current->bytes - current->used < bytes) {
      const size_t size = bytes > 65536 ? bytes : 65536;
      Block *block = static_cast<Block *>(malloc(kHeader + size));
      if (!block) return nullptr;
      *block = {nullptr, size, 0};
      (current ? current->next : first) = block;
      current = block;
    }
    uint8_t *memory = reinterpret_cast<uint8_t *>(current) + kHeader + current->used;
    current->used += bytes;
    memset(memory, 0, bytes);
    return memory;
  }
  bool holds(const void *data) const {
    const auto at = reinterpret_cast<uintptr_t>(data);
    for (const Block *block = first; block; block = block->next) {
      const auto begin = reinterpret_cast<uintptr_t>(block) + kHeader;
      if (at >= begin && at < begin + block->bytes) return true;
    }
    return false;
  }
  void reset() {
    current = first;
    if (current) current->used = 0;
  }
  void release() {
    while (first) {
      Block *next = first->next;
      free(first);
      first = next;
    }
    current = nullptr;
  }
  static constexpr size_t kHeader = (sizeof(Block) + 15) / 16 * 16;
};

template <class R>
static void *object_memory(R &run, size_t bytes) {
  void *memory = run.objects.take(bytes);
  if (!memory) run.fail(OPTC_OUT_OF_MEMORY, "out of memory: %zu bytes for a value of this size", bytes);
  return memory;
}

static inline size_t lib_bytes(const OptcLibTensor &t) {
  int64_t count = 1;
  for (int32_t k = 0; k < t.rank; ++k) count = times(count, t.dims[k]);
  return tensor_bytes(t.type, count);
}

// A copy of a tensor that lives as long as the run: what goes into an object, since the arena is written again.
template <class R>
static OptcLibTensor keep_tensor(R &run, OptcLibTensor t) {
  if (t.rank < 0 || t.type == 0) return t;
  const size_t bytes = lib_bytes(t);
  void *memory = object_memory(run, bytes);
  if (memory && bytes) memcpy(memory, t.data, bytes);
  t.data = memory;
  return t;
}

// A string tensor of these dims, every string empty.
template <class R>
static OptcLibTensor new_strings(R &run, std::initializer_list<int64_t> dims) {
  OptcLibTensor t = lib_tensor(nullptr, 8, dims);
  t.data = object_memory(run, lib_bytes(t));
  return t;
}

// What a call is to write: an object, whose tensors are of that type.
static inline __attribute__((unused)) OptcLibTensor lib_object(int32_t type) {
  OptcLibTensor t{};
  t.type = type;
  t.rank = -1;
  return t;
}

// --- the caller's values
template <class R>
static bool object_from(R &run, const optc_value &value, int32_t type, int depth, OptcLibTensor &to) {
  to = no_tensor();
  if (const optc_object *from = value.object) {
    if (depth > 8 || from->kind < 1 || from->kind > 3 || (from->count && !from->items)) {
      run.fail(OPTC_INVALID_ARGUMENT, "an input is no sequence, optional or map");
      return false;
    }
    OptcLibObject *object = static_cast<OptcLibObject *>(object_memory(run, sizeof(OptcLibObject)));
    OptcLibTensor *items = static_cast<OptcLibTensor *>(object_memory(run, from->count * sizeof(OptcLibTensor)));
    if (!object || !items) return false;
    *object = {from->kind, from->count, items};
    to.data = object;
    to.type = type;
    to.rank = -1;
    for (size_t i = 0; i < from->count; ++i)
      if (!object_from(run, from->items[i], type, depth + 1, items[i])) return false;
    return true;
  }
  const optc_tensor &t = value.tensor;
  if (t.type == 0) return true;  // absent
  to.type = t.type;
  to.rank = t.rank;
  int64_t count = 1;
  for (int32_t k = 0; k < t.rank && k < OPTC_MAX_RANK; ++k) {
    to.dims[k] = t.dims[k];
    count = t.dims[k] < 0 || t.dims[k] > INT32_MAX ? -1 : count * t.dims[k];
  }
  if (t.rank < 0 || t.rank > OPTC_MAX_RANK || count < 0 || (count > 0 && !t.data)) {
    run.fail(OPTC_INVALID_ARGUMENT, "a tensor inside an input has no data or impossible dims");
    return false;
  }
  to.data = t.data ? t.data : object_memory(run, 8);
  return to.data != nullptr;
}

// Input i as library operators take it; no_tensor() when it is absent, or run.status says what is wrong.
template <class R>
static OptcLibTensor object_input(R &run, size_t i) {
  OptcLibTensor t = no_tensor();
  optc_value value{};
  if (run.given) value = run.given[i];
  if (R::Model::inputs[i].kind == 0) value.tensor = run.inputs[i];  // its default where the caller left it out
  if (run.given || value.tensor.data) object_from(run, value, R::Model::inputs[i].type, 0, t);
  return t;
}

// Outputs stay when the caller's inputs go: characters are copied, which may be an input's.
template <class R>
static bool own_strings(R &run, void *array, size_t count) {
  OptcLibString *strings = static_cast<OptcLibString *>(array);
  size_t bytes = 0;
  for (size_t i = 0; i < count; ++i) bytes += strings[i].size;
  char *memory = static_cast<char *>(object_memory(run, bytes));
  if (!memory) return false;
  for (size_t i = 0; i < count; ++i) {
    if (strings[i].size) memcpy(memory, strings[i].data, strings[i].size);
    strings[i].data = memory;
    memory += strings[i].size;
  }
  return true;
}

template <class R>
static bool object_to(R &run, const OptcLibTensor &from, optc_value &to) {
  to = optc_value{};
  if (from.rank < 0) {
    const OptcLibObject *source = static_cast<const OptcLibObject *>(from.data);
    optc_object *object = static_cast<optc_object *>(object_memory(run, sizeof(optc_object)));
    if (!object) return false;
    const size_t count = source ? source->count : 0;
    *object = {source ? source->kind : 2, count,
               static_cast<optc_value *>(object_memory(run, count * sizeof(optc_value)))};
    if (!object->items) return false;
    for (size_t i = 0; i < count; ++i)
      if (!object_to(run, source->items[i], object->items[i])) return false;
    to.object = object;
    return true;
  }
  to.tensor.data = from.data;
  if (from.type && lib_bytes(from)) {
    if (!run.objects.holds(from.data)) to.tensor.data = keep_tensor(run, from).data;
    if (!to.tensor.data) return false;
    if (from.type == 8 && !own_strings(run, to.tensor.data, lib_bytes(from) / sizeof(OptcLibString))) return false;
  }
  to.tensor.type = from.type;
  to.tensor.rank = from.rank;
  for (int32_t k = 0; k < from.rank; ++k) to.tensor.dims[k] = from.dims[k];
  to.tensor.capacity_bytes = to.tensor.needed_bytes = from.type ? lib_bytes(from) : 0;
  to.tensor.device_type = OPTC_CPU;
  return true;
}

// Gives output i its value. Strings are copied into the caller's array, their characters into the region.
template <class R>
static bool give_object(R &run, size_t i, const OptcLibTensor &value) {
  optc_value &to = run.outputs[i];
  if (R::Model::outputs[i].kind != 0) {
    if (R::Model::outputs[i].kind == 2 && value.rank >= 0) {  // an optional that was never wrapped
      OptcLibObject *object = static_cast<OptcLibObject *>(object_memory(run, sizeof(OptcLibObject)));
      OptcLibTensor *item = static_cast<OptcLibTensor *>(object_memory(run, sizeof(OptcLibTensor)));
      if (!object || !item) return false;
      *item = value;
      *object = {2, value.type != 0 ? size_t{1} : size_t{0}, item};
      OptcLibTensor wrapped = lib_object(R::Model::outputs[i].type);
      wrapped.data = object;
      return object_to(run, wrapped, to);
    }
    return object_to(run, value, to);
  }
  optc_tensor &t = to.tensor;
  t.type = 8;
  t.rank = value.rank;
  for (int32_t k = 0; k < value.rank; ++k) t.dims[k] = value.dims[k];
  t.needed_bytes = lib_bytes(value);
  if (t.needed_bytes > (t.data ? t.capacity_bytes : 0)) {
    run.fail(OPTC_BUFFER_TOO_SMALL, "output '%s' needs %zu bytes, its buffer has %zu", R::Model::outputs[i].name,
             t.needed_bytes, t.data ? t.capacity_bytes : static_cast<size_t>(0));
    return false;
  }
  if (!t.needed_bytes) return true;
  memcpy(t.data, value.data, t.needed_bytes);
  return own_strings(run, t.data, t.needed_bytes / sizeof(OptcLibString));
}

}  // namespace optc
