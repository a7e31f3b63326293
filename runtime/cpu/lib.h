// lib.h: the calling convention of library operators (runtime/cpu/lib_*.h): what fuses with nothing and is written
// once, for bundles and for the compiler's evaluator alike. C++17, no exceptions.
//
// Each library operator is `static inline int optc_lib_NAME(OptcLibCall *call)` returning an optc_status. Its header
// documents inputs, outputs, attributes and the sizes that it finds.
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifndef OPTC_LIB_MAX_RANK
#define OPTC_LIB_MAX_RANK 8
#endif

// A dense row-major tensor. `type` is onnx.TensorProto.DataType; 0: absent (input) or not wanted (output). An output
// with a type and no data is one whose size the function finds: it sets dims (and rank, where that is not fixed) and
// asks allocate() for the memory. String tensors (type 8): data is an array of OptcLibString. Objects (sequence,
// optional, map): rank is -1, data an OptcLibObject.
struct OptcLibTensor {
  void *data;
  int32_t type;
  int32_t rank;
  int64_t dims[OPTC_LIB_MAX_RANK];
};

struct OptcLibString {
  const char *data;  // not terminated
  size_t size;
};

// Objects made by a function are allocated with allocate(): the OptcLibObject itself as its output's memory, everything
// else (items, their data, characters) as OPTC_LIB_EXTRA. Items may share the memory of the inputs' items; the caller
// copies what it keeps beyond the call.
struct OptcLibObject {
  int32_t kind;  // 1 sequence, 2 optional (count 0 or 1), 3 map (item 0: keys, item 1: values)
  size_t count;
  OptcLibTensor *items;
};
#define OPTC_LIB_EXTRA ((size_t)-1)

struct OptcLibAttribute {
  const char *name;
  int64_t i;            // integer value
  float f;              // float value
  const char *s;        // string value or null
  const int64_t *ints;  // integer list
  const float *floats;  // float list
  const char *const *strings;
  size_t count;  // length of the list
};

struct OptcLibCall {
  const OptcLibTensor *inputs;
  size_t input_count;
  OptcLibTensor *outputs;  // dims are set by the caller where known before the call, else by the function
  size_t output_count;
  const OptcLibAttribute *attributes;
  size_t attribute_count;
  int64_t *sizes;  // out: the sizes that the function finds, in its documented order
  // Memory for output number `output`, or (OPTC_LIB_EXTRA) memory that lives as long as the outputs: user, output
  // number, bytes. 8-aligned. Null when there is none.
  void *(*allocate)(void *user, size_t output, size_t bytes);
  void *user;
  char error[256];  // out: text when the result is not OPTC_OK
};

static inline const OptcLibAttribute *optc_lib_attribute(const OptcLibCall *call, const char *name) {
  for (size_t k = 0; k < call->attribute_count; ++k) {
    const char *a = call->attributes[k].name, *b = name;
    while (*a && *a == *b) ++a, ++b;
    if (*a == *b) return &call->attributes[k];
  }
  return nullptr;
}
