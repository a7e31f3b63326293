// lib.h: the calling convention of library operators (runtime/cpu/lib_*.h): what fuses with nothing and is written once, for bundles and for
// the compiler's evaluator alike. C++17, no exceptions.
//
// Each library operator is `static int optc_lib_NAME(OptcLibCall *call)` returning an optc_status. Its header documents inputs, outputs,
// attributes and the sizes that it finds.
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifndef OPTC_LIB_MAX_RANK
#define OPTC_LIB_MAX_RANK 8
#endif

// A dense row-major tensor; data null: absent (input) or not wanted (output). `type` is onnx.TensorProto.DataType.
struct OptcLibTensor {
  void *data;
  int32_t type;
  int32_t rank;
  int64_t dims[OPTC_LIB_MAX_RANK];
};

struct OptcLibAttribute {
  const char *name;
  int64_t i;              // integer value
  float f;                // float value
  const char *s;          // string value or null
  const int64_t *ints;    // integer list
  const float *floats;    // float list
  const char *const *strings;
  size_t count;           // length of the list
};

struct OptcLibCall {
  const OptcLibTensor *inputs;
  size_t input_count;
  OptcLibTensor *outputs;  // dims are set by the caller where known before the call, else by the function
  size_t output_count;
  const OptcLibAttribute *attributes;
  size_t attribute_count;
  int64_t *sizes;          // out: the sizes that the function finds, in its documented order
  // Memory for an output whose size the call finds, when the caller gave no data pointer (data null, wanted): user, output number, bytes.
  void *(*allocate)(void *user, size_t output, size_t bytes);
  void *user;
  char error[256];         // out: text when the result is not OPTC_OK
};

static inline const OptcLibAttribute *optc_lib_attribute(const OptcLibCall *call, const char *name) {
  for (size_t k = 0; k < call->attribute_count; ++k) {
    const char *a = call->attributes[k].name, *b = name;
    while (*a && *a == *b) ++a, ++b;
    if (*a == *b) return &call->attributes[k];
  }
  return nullptr;
}
