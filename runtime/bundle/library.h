// library.h: calls of library operators (runtime/cpu/lib_*.h) from a schedule.
#pragma once
#include <initializer_list>

#include "runtime/bundle/model.h"
#include "runtime/cpu/lib.h"

namespace optc {

static inline __attribute__((unused)) OptcLibTensor no_tensor() { return OptcLibTensor{}; }
static inline __attribute__((unused)) OptcLibTensor lib_tensor(const void *data, int32_t type,
                                                               std::initializer_list<int64_t> dims) {
  OptcLibTensor t{};
  t.data = const_cast<void *>(data);
  t.type = type;
  for (int64_t d : dims) t.dims[t.rank++] = d;
  return t;
}

// Where the memory of an output comes from whose size the call finds: a slot of the growing region (kInRegion: the
// region of objects), or an output of the model.
constexpr int32_t kInRegion = -2;
struct LibMemory {
  void *data;
  size_t bytes;
  int32_t slot, output;
};

// False: the call failed, and run.status says how.
template <class R>
static bool call_library(R &run, int (*function)(OptcLibCall *), const OptcLibTensor *in, size_t in_count,
                         OptcLibTensor *out, size_t out_count, const OptcLibAttribute *attributes,
                         size_t attribute_count, int64_t *sizes, const LibMemory *memory) {
  struct User {
    R &run;
    const LibMemory *memory;
  } user{run, memory};
  OptcLibCall call{};
  call.inputs = in;
  call.input_count = in_count;
  call.outputs = out;
  call.output_count = out_count;
  call.attributes = attributes;
  call.attribute_count = attribute_count;
  call.sizes = sizes;
  call.user = &user;
  call.allocate = [](void *argument, size_t output, size_t bytes) -> void * {
    User &u = *static_cast<User *>(argument);
    if (output == OPTC_LIB_EXTRA) return u.run.objects.take(bytes);
    const LibMemory &m = u.memory[output];
    if (m.slot == kInRegion) return u.run.objects.take(bytes);
    if (m.slot >= 0) return u.run.template grow<uint8_t>(static_cast<size_t>(m.slot), static_cast<int64_t>(bytes));
    if (m.output >= 0) {
      optc_tensor &t = u.run.outputs[m.output].tensor;
      t.needed_bytes = bytes;
      static uint64_t nothing;
      if (bytes == 0) return t.data ? t.data : &nothing;
      if (t.data && t.capacity_bytes >= bytes) return t.data;
      u.run.fail(OPTC_BUFFER_TOO_SMALL, "output %d needs %zu bytes, its buffer has %zu", m.output, bytes,
                 t.data ? t.capacity_bytes : size_t{0});
    }
    return nullptr;
  };
  const int status = function(&call);
  if (run.status != OPTC_OK) return false;
  if (status != OPTC_OK) {
    run.fail(static_cast<optc_status>(status), "%s", call.error[0] ? call.error : "a library operator failed");
    return false;
  }
  return true;
}

}  // namespace optc
