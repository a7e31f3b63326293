// lib_object.h: sequences and optionals: SequenceConstruct, SequenceAt, ... Items of results share the memory of the
// operands' items; the caller keeps or copies what it needs.
#pragma once
#include "lib_util.h"

static inline int64_t optc_lib_bytes(const OptcLibTensor *t) {
  const int64_t n = optc_lib_count(t);
  switch (t->type) {
    case 21:
    case 22:
    case 23:
      return (n + 1) / 2;
    case 25:
    case 26:
      return (n + 3) / 4;
    default:
      return n * (int64_t)optc_lib_element_size(t->type);
  }
}
// An object of `count` items as output `output`; null: out of memory.
static inline OptcLibObject *optc_lib_new_object(OptcLibCall *call, size_t output, int32_t kind, size_t count) {
  OptcLibObject *object = (OptcLibObject *)call->allocate(call->user, output, sizeof(OptcLibObject));
  if (!object) return nullptr;
  object->kind = kind;
  object->count = count;
  object->items = (OptcLibTensor *)call->allocate(call->user, OPTC_LIB_EXTRA, (count + 1) * sizeof(OptcLibTensor));
  if (!object->items) return nullptr;
  if (output != OPTC_LIB_EXTRA) {
    call->outputs[output].data = object;
    call->outputs[output].rank = -1;
  }
  return object;
}
// Gives output `output` the value of `from`: a tensor is copied into the output's memory, an object shared.
static inline int optc_lib_give(OptcLibCall *call, size_t output, const OptcLibTensor *from) {
  OptcLibTensor *to = optc_lib_output(call, output);
  if (!to) return 0;
  if (from->rank < 0) {
    const OptcLibObject *source = (const OptcLibObject *)from->data;
    OptcLibObject *object = optc_lib_new_object(call, output, source->kind, source->count);
    if (!object) return optc_lib_out_of_memory(call);
    memcpy(object->items, source->items, source->count * sizeof(OptcLibTensor));
    return 0;
  }
  // A caller's sequence may hold anything: only a value of the declared type is taken (-1: a dim that this call finds).
  int fits = to->type == from->type && (to->rank < 0 || to->rank == from->rank);
  for (int32_t k = 0; fits && k < to->rank; ++k) fits = to->dims[k] < 0 || to->dims[k] == from->dims[k];
  if (!fits) return optc_lib_fault(call, "an item has another type or other dims than the model declares");
  to->rank = from->rank;
  memcpy(to->dims, from->dims, sizeof to->dims);
  const size_t bytes = (size_t)optc_lib_bytes(from);
  if (!to->data) to->data = call->allocate(call->user, output, bytes + 1);
  if (!to->data) return optc_lib_out_of_memory(call);
  memcpy(to->data, from->data, bytes);
  return 0;
}
static inline const OptcLibObject *optc_lib_object(const OptcLibTensor *t) {
  return t && t->rank < 0 ? (const OptcLibObject *)t->data : nullptr;
}

// Sizes that a call was asked for, from the dims of its first output.
static inline void optc_lib_note_dims(OptcLibCall *call, const OptcLibTensor *t) {
  for (int32_t k = 0; k < t->rank; ++k) call->sizes[k] = t->dims[k];
}

// inputs: a value of any kind. Output: the same.
static inline int optc_lib_identity(OptcLibCall *call) { return optc_lib_give(call, 0, &call->inputs[0]); }

// inputs: tensors. Output: the sequence of them.
static inline int optc_lib_sequence_construct(OptcLibCall *call) {
  OptcLibObject *object = optc_lib_new_object(call, 0, 1, call->input_count);
  if (!object) return optc_lib_out_of_memory(call);
  memcpy(object->items, call->inputs, call->input_count * sizeof(OptcLibTensor));
  return 0;
}
// no inputs. Output: a sequence without items.
static inline int optc_lib_sequence_empty(OptcLibCall *call) {
  return optc_lib_new_object(call, 0, 1, 0) ? 0 : optc_lib_out_of_memory(call);
}
// inputs: sequence. Output: i64 scalar.
static inline int optc_lib_sequence_length(OptcLibCall *call) {
  if (!optc_lib_allocate(call, 0, 0, nullptr)) return optc_lib_out_of_memory(call);
  *(int64_t *)call->outputs[0].data = (int64_t)optc_lib_object(&call->inputs[0])->count;
  return 0;
}
// inputs: sequence, position. Output: the item. Sizes: the item's dims.
static inline int optc_lib_sequence_at(OptcLibCall *call) {
  const OptcLibObject *sequence = optc_lib_object(&call->inputs[0]);
  const int64_t n = (int64_t)sequence->count, at = optc_lib_int_at(&call->inputs[1], 0);
  if (at < -n || at >= n) return optc_lib_fault(call, "SequenceAt: the position is out of range");
  const OptcLibTensor *item = &sequence->items[at < 0 ? at + n : at];
  optc_lib_note_dims(call, item);
  return optc_lib_give(call, 0, item);
}
// inputs: sequence, tensor, position (optional: the end). Output: the sequence with the tensor inserted.
static inline int optc_lib_sequence_insert(OptcLibCall *call) {
  const OptcLibObject *sequence = optc_lib_object(&call->inputs[0]);
  const int64_t n = (int64_t)sequence->count;
  int64_t at = optc_lib_input(call, 2) ? optc_lib_int_at(&call->inputs[2], 0) : n;
  if (at < -n || at > n) return optc_lib_fault(call, "SequenceInsert: the position is out of range");
  if (at < 0) at += n;
  OptcLibObject *object = optc_lib_new_object(call, 0, 1, (size_t)n + 1);
  if (!object) return optc_lib_out_of_memory(call);
  memcpy(object->items, sequence->items, (size_t)at * sizeof(OptcLibTensor));
  object->items[at] = call->inputs[1];
  memcpy(object->items + at + 1, sequence->items + at, (size_t)(n - at) * sizeof(OptcLibTensor));
  return 0;
}
// inputs: sequence, position (optional: the last). Output: the sequence without that item.
static inline int optc_lib_sequence_erase(OptcLibCall *call) {
  const OptcLibObject *sequence = optc_lib_object(&call->inputs[0]);
  const int64_t n = (int64_t)sequence->count;
  int64_t at = optc_lib_input(call, 1) ? optc_lib_int_at(&call->inputs[1], 0) : n - 1;
  if (at < 0) at += n;
  if (at < 0 || at >= n) return optc_lib_fault(call, "SequenceErase: the position is out of range");
  OptcLibObject *object = optc_lib_new_object(call, 0, 1, (size_t)n - 1);
  if (!object) return optc_lib_out_of_memory(call);
  memcpy(object->items, sequence->items, (size_t)at * sizeof(OptcLibTensor));
  memcpy(object->items + at, sequence->items + at + 1, (size_t)(n - 1 - at) * sizeof(OptcLibTensor));
  return 0;
}
// inputs: tensor, split (optional: a scalar chunk length, or lengths); attributes axis, keepdims (without split).
// Output: the sequence of parts.
static inline int optc_lib_split_to_sequence(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0], *split = optc_lib_input(call, 1);
  int64_t axis = optc_lib_int_attribute(call, "axis", 0), outer = 1, inner = 1;
  if (axis < 0) axis += x->rank;
  if (axis < 0 || axis >= x->rank) return optc_lib_fault(call, "SplitToSequence: the axis is out of range");
  for (int32_t k = 0; k < x->rank; ++k) outer *= k < axis ? x->dims[k] : 1, inner *= k > axis ? x->dims[k] : 1;
  const int64_t extent = x->dims[axis], chunk = !split ? 1 : split->rank == 0 ? optc_lib_int_at(split, 0) : 0;
  if (split && split->rank == 0 && chunk <= 0)
    return optc_lib_fault(call, "SplitToSequence: the chunk is not positive");
  const int64_t parts = split && split->rank == 1 ? optc_lib_count(split) : (extent + chunk - 1) / chunk;
  const int drop = !split && optc_lib_int_attribute(call, "keepdims", 1) == 0;
  OptcLibObject *object = optc_lib_new_object(call, 0, 1, (size_t)parts);
  if (!object) return optc_lib_out_of_memory(call);
  const size_t size = optc_lib_element_size(x->type);
  int64_t start = 0;
  for (int64_t p = 0; p < parts; ++p) {
    int64_t length = split && split->rank == 1 ? optc_lib_int_at(split, p) : chunk;
    if (split && split->rank == 1 ? start + length > extent || length < 0 : 0)
      return optc_lib_fault(call, "SplitToSequence: the lengths do not sum to the axis");
    if (start + length > extent) length = extent - start;
    OptcLibTensor *item = &object->items[p];
    *item = *x;
    item->dims[axis] = length;
    if (drop) {
      for (int32_t k = (int32_t)axis; k + 1 < x->rank; ++k) item->dims[k] = x->dims[k + 1];
      --item->rank;
    }
    item->data = call->allocate(call->user, OPTC_LIB_EXTRA, (size_t)(outer * length * inner) * size + 1);
    if (!item->data) return optc_lib_out_of_memory(call);
    for (int64_t o = 0; o < outer; ++o)
      memcpy((char *)item->data + (size_t)(o * length * inner) * size,
             (const char *)x->data + (size_t)((o * extent + start) * inner) * size, (size_t)(length * inner) * size);
    start += length;
  }
  if (split && split->rank == 1 && start != extent)
    return optc_lib_fault(call, "SplitToSequence: the lengths do not sum to the axis");
  return 0;
}
// inputs: sequence; attributes axis, new_axis. Output: the items joined. Sizes: its dims.
static inline int optc_lib_concat_from_sequence(OptcLibCall *call) {
  const OptcLibObject *sequence = optc_lib_object(&call->inputs[0]);
  const int fresh = optc_lib_int_attribute(call, "new_axis", 0) != 0;
  if (sequence->count == 0) return optc_lib_fault(call, "ConcatFromSequence: the sequence is empty");
  const OptcLibTensor *first = &sequence->items[0];
  const int32_t rank = first->rank + fresh;
  int64_t axis = optc_lib_int_attribute(call, "axis", 0), dims[OPTC_LIB_MAX_RANK], outer = 1, inner = 1;
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank || rank > OPTC_LIB_MAX_RANK)
    return optc_lib_fault(call, "ConcatFromSequence: the axis is out of range");
  for (int32_t k = 0; k < rank; ++k)
    dims[k] = fresh ? (k < axis ? first->dims[k] : k > axis ? first->dims[k - 1] : 1) : first->dims[k];
  dims[axis] = 0;
  for (size_t i = 0; i < sequence->count; ++i) {
    const OptcLibTensor *item = &sequence->items[i];
    if (item->rank != first->rank) return optc_lib_fault(call, "ConcatFromSequence: the items' ranks differ");
    for (int32_t k = 0; k < item->rank; ++k)
      if ((fresh || k != axis) && item->dims[k] != first->dims[k])
        return optc_lib_fault(call, "ConcatFromSequence: the items' dimensions differ");
    dims[axis] += fresh ? 1 : item->dims[axis];
  }
  for (int32_t k = 0; k < rank; ++k) {
    call->sizes[k] = dims[k];
    outer *= k < axis ? dims[k] : 1, inner *= k > axis ? dims[k] : 1;
  }
  if (!optc_lib_allocate(call, 0, rank, dims)) return optc_lib_out_of_memory(call);
  const size_t size = optc_lib_element_size(first->type);
  int64_t start = 0;
  for (size_t i = 0; i < sequence->count; ++i) {
    const OptcLibTensor *item = &sequence->items[i];
    const int64_t length = fresh ? 1 : item->dims[axis];
    for (int64_t o = 0; o < outer; ++o)
      memcpy((char *)call->outputs[0].data + (size_t)((o * dims[axis] + start) * inner) * size,
             (const char *)item->data + (size_t)(o * length * inner) * size, (size_t)(length * inner) * size);
    start += length;
  }
  return 0;
}
// inputs: a tensor or sequence, or none. Output: the optional that holds it.
static inline int optc_lib_optional(OptcLibCall *call) {
  const OptcLibTensor *value = optc_lib_input(call, 0);
  OptcLibObject *object = optc_lib_new_object(call, 0, 2, value ? 1 : 0);
  if (!object) return optc_lib_out_of_memory(call);
  if (value) object->items[0] = *value;
  return 0;
}
// inputs: an optional, or a plain tensor or sequence, or none. Output: bool scalar.
static inline int optc_lib_optional_has_element(OptcLibCall *call) {
  const OptcLibTensor *value =
      call->input_count && (call->inputs[0].type || call->inputs[0].rank < 0) ? &call->inputs[0] : nullptr;
  const OptcLibObject *object = optc_lib_object(value);
  if (!optc_lib_allocate(call, 0, 0, nullptr)) return optc_lib_out_of_memory(call);
  *(uint8_t *)call->outputs[0].data = value && (!object || object->kind != 2 || object->count > 0);
  return 0;
}
// inputs: an optional, or a plain tensor or sequence. Output: what it holds. Sizes: the dims of a tensor.
static inline int optc_lib_optional_get_element(OptcLibCall *call) {
  const OptcLibTensor *value = &call->inputs[0];
  const OptcLibObject *object = optc_lib_object(value);
  if (object && object->kind == 2) {
    if (object->count == 0) return optc_lib_fault(call, "OptionalGetElement: the optional is empty");
    value = &object->items[0];
  }
  if (value->rank >= 0) optc_lib_note_dims(call, value);
  return optc_lib_give(call, 0, value);
}
