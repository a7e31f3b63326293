// lib_map.h: maps (ai.onnx.ml): ZipMap, DictVectorizer, CastMap. A map is an object of two items, its keys and as many
// values (lib.h); the keys need no order.
#pragma once
#include <stdio.h>

#include "lib_ml.h"
#include "lib_object.h"

// The keys and values of a map; false: it is none whose keys have this type.
static inline int optc_lib_map(const OptcLibTensor *t, int32_t key, const OptcLibTensor **keys,
                               const OptcLibTensor **values) {
  const OptcLibObject *map = optc_lib_object(t);
  if (!map || map->kind != 3) return 0;
  static const OptcLibTensor nothing = {nullptr, 0, 1, {0}};
  *keys = map->count > 0 ? &map->items[0] : &nothing;
  *values = map->count > 1 ? &map->items[1] : &nothing;
  if (optc_lib_count(*keys) != optc_lib_count(*values)) return 0;
  return optc_lib_count(*keys) == 0 || ((*keys)->type == key && (*keys)->rank >= 0 && (*values)->rank >= 0);
}

// The positions of a map's keys in their order; to be freed. Null: out of memory.
static inline int64_t *optc_lib_key_order(const OptcLibTensor *keys) {
  struct Before {
    static int call(const void *user, int64_t i, int64_t j) {
      return optc_lib_compare((const OptcLibTensor *)user, i, j) < 0;
    }
  };
  const int64_t count = optc_lib_count(keys);
  int64_t *order = (int64_t *)malloc((size_t)(2 * count + 1) * sizeof(int64_t));
  if (!order) return nullptr;
  for (int64_t i = 0; i < count; ++i) order[i] = i;
  optc_lib_sort(order, order + count, count, Before::call, keys);
  return order;
}
// -1, 0, 1: key i of a map against entry j of a vocabulary of the same type.
static inline int optc_lib_compare_key(const OptcLibTensor *keys, int64_t i, const OptcLibTensor *vocabulary,
                                       int64_t j) {
  if (keys->type == 8)
    return optc_lib_compare_strings((const OptcLibString *)keys->data + i, (const OptcLibString *)vocabulary->data + j);
  const int64_t a = ((const int64_t *)keys->data)[i], b = ((const int64_t *)vocabulary->data)[j];
  return a < b ? -1 : a > b;
}

// inputs: scores [n, m] or [m] (f32), keys (strings or i64, ascending), columns i64 (one a key). Output: a sequence of
// n maps from the keys to a row's scores in these columns.
static inline int optc_lib_zip_map(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0], *keys = &call->inputs[1];
  const int64_t rows = x->rank == 2 ? x->dims[0] : 1, width = x->dims[x->rank - 1], n = optc_lib_count(keys);
  const int64_t *column = (const int64_t *)call->inputs[2].data;
  OptcLibObject *sequence = optc_lib_new_object(call, 0, 1, (size_t)rows);
  if (!sequence) return optc_lib_out_of_memory(call);
  for (int64_t i = 0; i < rows; ++i) {
    OptcLibObject *map = optc_lib_new_object(call, OPTC_LIB_EXTRA, 3, 2);
    float *values = map ? (float *)call->allocate(call->user, OPTC_LIB_EXTRA, (size_t)n * sizeof(float)) : nullptr;
    if (!values) return optc_lib_out_of_memory(call);
    for (int64_t k = 0; k < n; ++k) values[k] = ((const float *)x->data)[i * width + column[k]];
    map->items[0] = *keys;
    map->items[1] = *keys;
    map->items[1].type = 1;
    map->items[1].data = values;
    OptcLibTensor item = {};
    item.data = map, item.type = 1, item.rank = -1;
    sequence->items[i] = item;
  }
  return 0;
}

// inputs: a map, vocabulary (strings or i64). Output 0: [1, vocabulary]: the values of the keys in the vocabulary, 0 or
// an empty string where the map lacks one.
static inline int optc_lib_dict_vectorizer(OptcLibCall *call) {
  const OptcLibTensor *vocabulary = &call->inputs[1], *keys, *values;
  const int64_t n = optc_lib_count(vocabulary), dims[2] = {1, n};
  if (!optc_lib_map(&call->inputs[0], vocabulary->type, &keys, &values))
    return optc_lib_fault(call, "DictVectorizer: the input is no map of the type that the model declares");
  if (!optc_lib_allocate(call, 0, 2, dims)) return optc_lib_out_of_memory(call);
  OptcLibTensor *y = &call->outputs[0];
  const int64_t count = optc_lib_count(keys);
  if (count > 0 && values->type != y->type)
    return optc_lib_fault(call, "DictVectorizer: the input is no map of the type that the model declares");
  int64_t *order = optc_lib_key_order(keys);
  if (!order) return optc_lib_out_of_memory(call);
  const size_t size = optc_lib_element_size(y->type);
  memset(y->data, 0, (size_t)n * size);
  for (int64_t v = 0; v < n; ++v) {
    int64_t low = 0, high = count;
    while (low < high) {  // the first key that is not before entry v
      const int64_t middle = low + (high - low) / 2;
      if (optc_lib_compare_key(keys, order[middle], vocabulary, v) < 0)
        low = middle + 1;
      else
        high = middle;
    }
    if (low < count && optc_lib_compare_key(keys, order[low], vocabulary, v) == 0)
      memcpy((char *)y->data + (size_t)v * size, (const char *)values->data + (size_t)order[low] * size, size);
  }
  free(order);
  return 0;
}

// inputs: a map from i64 to f32 or strings; attribute width (0: dense). Output 0: [1, width]: each value in the column
// of its key (what lies beyond is left out, a hole is 0 or "0.f"), or dense: the values in the order of their keys.
// Sizes: the number of columns. Values become the output's type: numbers are truncated to integers and
// written with six decimals, strings are read as numbers.
static inline int optc_lib_cast_map(OptcLibCall *call) {
  const OptcLibTensor *keys, *values;
  if (!optc_lib_map(&call->inputs[0], 7, &keys, &values) ||
      (optc_lib_count(keys) > 0 && values->type != 1 && values->type != 8))
    return optc_lib_fault(call, "CastMap: the input is no map of the type that the model declares");
  const int64_t width = optc_lib_int_attribute(call, "width", 0), count = optc_lib_count(keys);
  const int64_t n = width > 0 ? width : count, dims[2] = {1, n};
  call->sizes[0] = n;
  if (!optc_lib_allocate(call, 0, 2, dims)) return optc_lib_out_of_memory(call);
  OptcLibTensor *y = &call->outputs[0];
  int64_t *order = optc_lib_key_order(keys);
  if (!order) return optc_lib_out_of_memory(call);
  for (int64_t i = 0; i < n; ++i) {
    if (y->type == 8)
      ((OptcLibString *)y->data)[i].data = "0.f", ((OptcLibString *)y->data)[i].size = 3;
    else
      optc_lib_set(y, i, 0);
  }
  int status = 0;
  for (int64_t i = 0; i < count && status == 0; ++i) {
    const int64_t k = order[i], key = ((const int64_t *)keys->data)[k], to = width > 0 ? key : i;
    if (width > 0 && key < 0) status = optc_lib_fault(call, "CastMap: a key of a sparse map is negative");
    if (status || to >= n) continue;
    char text[64];
    if (values->type == 8 && y->type == 8) {
      ((OptcLibString *)y->data)[to] = ((const OptcLibString *)values->data)[k];
    } else if (values->type == 8) {
      const OptcLibString *s = (const OptcLibString *)values->data + k;
      const size_t size = s->size < sizeof text - 1 ? s->size : sizeof text - 1;
      memcpy(text, s->data, size);
      text[size] = 0;
      char *end = text;
      if (y->type == 7)
        ((int64_t *)y->data)[to] = strtoll(text, &end, 10);
      else
        ((float *)y->data)[to] = strtof(text, &end);
      if (end == text || *end || s->size != size) status = optc_lib_fault(call, "CastMap: a string is no number");
    } else if (y->type == 8) {
      const size_t size = (size_t)snprintf(text, sizeof text, "%f", (double)((const float *)values->data)[k]);
      char *copy = (char *)call->allocate(call->user, OPTC_LIB_EXTRA, size + 1);
      if (!copy) {
        status = optc_lib_out_of_memory(call);
        continue;
      }
      memcpy(copy, text, size);
      ((OptcLibString *)y->data)[to].data = copy;
      ((OptcLibString *)y->data)[to].size = size;
    } else {
      const float v = ((const float *)values->data)[k];
      if (y->type == 7)
        ((int64_t *)y->data)[to] = v > -9.2e18f && v < 9.2e18f ? (int64_t)v : INT64_MIN;
      else
        ((float *)y->data)[to] = v;
    }
  }
  free(order);
  return status;
}
