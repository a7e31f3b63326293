// options.h: the options of a context as a caller gives them, read and checked in one place.
#pragma once
#include <stdio.h>
#include <string.h>

#include "runtime/optc.h"

namespace optc {

constexpr int32_t kMostThreads = 4096;

// `to` gets the fields that `given` has (a caller of an older or newer optc.h has fewer or more; null: none), zeros for
// the others. On failure `error` says what is wrong.
static inline __attribute__((unused)) optc_status read_options(const optc_options *given, optc_options *to, char *error,
                                                               size_t error_size) {
  memset(to, 0, sizeof *to);
  to->struct_size = sizeof *to;
  if (!given) return OPTC_OK;
  const auto refuse = [&](const char *what, long long value, const char *why) {
    snprintf(error, error_size, "options: %s is %lld%s", what, value, why);
    return OPTC_INVALID_ARGUMENT;
  };
  if (given->struct_size < sizeof given->struct_size)
    return refuse("struct_size", static_cast<long long>(given->struct_size), ": set it to sizeof(optc_options)");
  memcpy(to, given, given->struct_size < sizeof *to ? given->struct_size : sizeof *to);
  to->struct_size = sizeof *to;
  if (to->device_type != 0 && to->device_type != OPTC_CPU && to->device_type != OPTC_CUDA)
    return refuse("device_type", to->device_type, ", which is no device of optc.h");
  if (to->device_id < 0 || (to->device_type == OPTC_CPU && to->device_id != 0))
    return refuse("device_id", to->device_id, to->device_id < 0 ? "" : ": the CPU has number 0");
  if (to->threads < 0) return refuse("threads", to->threads, "");
  if (to->threads > kMostThreads) return refuse("threads", to->threads, ", more than 4096");
  if (!to->workspace && to->workspace_bytes)
    return refuse("workspace_bytes", static_cast<long long>(to->workspace_bytes), " without a workspace");
  return OPTC_OK;
}

// A required argument of the ABI is null: what last_error(NULL) says.
static inline __attribute__((unused)) optc_status null_argument(const char *function, const char *argument, char *error,
                                                                size_t error_size) {
  snprintf(error, error_size, "%s: %s is null", function, argument);
  return OPTC_INVALID_ARGUMENT;
}

}  // namespace optc
