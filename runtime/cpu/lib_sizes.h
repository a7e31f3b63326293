// lib_sizes.h: library operators that find sizes from the values of small integer tensors: what Reshape, Expand, Slice,
// ... need when their shape inputs are known only at run time. Input 0 is the data operand (its dims are read, never
// its elements).
#pragma once
#include <stdio.h>

#include "lib_util.h"

#define OPTC_LIB_FAR ((int64_t)1 << 60)  // two of them are added without going round

// inputs: i64[2]; attributes where, or_one. A fault when the two differ (or_one: and the second is not 1).
static inline int optc_lib_check_dims(OptcLibCall *call) {
  const int64_t left = optc_lib_int_at(&call->inputs[0], 0), right = optc_lib_int_at(&call->inputs[0], 1);
  if (left == right || (optc_lib_int_attribute(call, "or_one", 0) && right == 1)) return 0;
  snprintf(call->error, sizeof call->error, "%.180s: %lld does not match %lld",
           optc_lib_string_attribute(call, "where", ""), (long long)left, (long long)right);
  return 3;  // OPTC_MODEL_FAULT
}
// no inputs; attribute message. Always a fault; outputs and sizes are not written.
static inline int optc_lib_fail(OptcLibCall *call) {
  return optc_lib_fault(call, optc_lib_string_attribute(call, "message", "the model cannot go on"));
}

// inputs: axis (an integer, one element); attributes rank, where. Output 0 (optional): i64[1], the axis in [0, rank).
static inline int optc_lib_axis(OptcLibCall *call) {
  const int64_t rank = optc_lib_int_attribute(call, "rank", 0), given = optc_lib_int_at(&call->inputs[0], 0);
  const int64_t axis = given < 0 ? given + rank : given;
  if (axis < 0 || axis >= rank) {
    snprintf(call->error, sizeof call->error, "%.180s: axis %lld is out of range for rank %lld",
             optc_lib_string_attribute(call, "where", ""), (long long)given, (long long)rank);
    return 3;  // OPTC_MODEL_FAULT
  }
  if (call->output_count > 0) *(int64_t *)call->outputs[0].data = axis;
  return 0;
}

// inputs: data, shape (i64[n]); attribute allowzero. Sizes: the n dims of the result, with 0 copied and -1 found.
static inline int optc_lib_reshape_sizes(OptcLibCall *call) {
  const OptcLibTensor *data = &call->inputs[0], *shape = &call->inputs[1];
  const int allow_zero = optc_lib_int_attribute(call, "allowzero", 0) != 0;
  const int64_t n = optc_lib_count(shape), total = optc_lib_count(data);
  int64_t rest = 1, inferred = -1;
  for (int64_t k = 0; k < n; ++k) {
    int64_t d = optc_lib_int_at(shape, k);
    if (d == 0 && !allow_zero) {
      if (k >= data->rank) return optc_lib_fault(call, "Reshape: a 0 has no dimension to copy from");
      d = data->dims[k];
    }
    if (d == -1) {
      if (inferred >= 0) return optc_lib_fault(call, "Reshape: more than one -1");
      inferred = k;
      continue;
    }
    if (d < 0) return optc_lib_fault(call, "Reshape: a negative dimension");
    call->sizes[k] = d;
    if (d && rest > ((int64_t)1 << 60) / d) return optc_lib_fault(call, "Reshape: the shape is too large");
    rest *= d;
  }
  if (inferred >= 0) {
    if (rest == 0 || total % rest != 0) return optc_lib_fault(call, "Reshape: the -1 does not come out whole");
    call->sizes[inferred] = total / rest;
  } else if (rest != total) {
    return optc_lib_fault(call, "Reshape: the number of elements differs");
  }
  return 0;
}

// inputs: data, shape (i64[n]). Sizes: the dims of data broadcast with shape, max(rank, n) of them.
static inline int optc_lib_expand_sizes(OptcLibCall *call) {
  const OptcLibTensor *data = &call->inputs[0], *shape = &call->inputs[1];
  const int64_t n = optc_lib_count(shape), rank = n > data->rank ? n : data->rank;
  for (int64_t k = 0; k < rank; ++k) {
    const int64_t at = k - (rank - data->rank), want_at = k - (rank - n);
    const int64_t a = at >= 0 ? data->dims[at] : 1, b = want_at >= 0 ? optc_lib_int_at(shape, want_at) : 1;
    if (a != b && a != 1 && b != 1) return optc_lib_fault(call, "Expand: the shapes do not broadcast");
    if (b < 0) return optc_lib_fault(call, "Expand: a negative dimension");
    call->sizes[k] = a == 1 ? b : a;
  }
  return 0;
}

// inputs: data (unused, may be absent), values (i64[n] or a scalar). Sizes: the values, which must not be negative.
static inline int optc_lib_value_sizes(OptcLibCall *call) {
  const int64_t n = optc_lib_count(&call->inputs[1]);
  for (int64_t k = 0; k < n; ++k) {
    call->sizes[k] = optc_lib_int_at(&call->inputs[1], k);
    if (call->sizes[k] < 0) return optc_lib_fault(call, "a size is negative");
  }
  return 0;
}

// inputs: data, repeats (i64[rank]). Sizes: dims * repeats.
static inline int optc_lib_tile_sizes(OptcLibCall *call) {
  const OptcLibTensor *data = &call->inputs[0];
  if (optc_lib_count(&call->inputs[1]) != data->rank)
    return optc_lib_fault(call, "Tile: repeats must have one entry a dimension");
  for (int32_t k = 0; k < data->rank; ++k) {
    const int64_t r = optc_lib_int_at(&call->inputs[1], k);
    if (r < 0) return optc_lib_fault(call, "Tile: a repeat is negative");
    call->sizes[k] = data->dims[k] * r;
  }
  return 0;
}

// inputs: data, pads (i64[2 * n]), axes (i64[n], optional); attribute mode. Sizes: the dims of the padded tensor.
// Output 0: i64[rank], the begin pads.
static inline int optc_lib_pad_sizes(OptcLibCall *call) {
  const OptcLibTensor *data = &call->inputs[0], *pads = &call->inputs[1];
  const OptcLibTensor *axes = call->input_count > 2 && call->inputs[2].data ? &call->inputs[2] : nullptr;
  const int64_t n = axes ? optc_lib_count(axes) : data->rank;
  if (optc_lib_count(pads) != 2 * n) return optc_lib_fault(call, "Pad: pads must have two entries an axis");
  const char *mode = optc_lib_string_attribute(call, "mode", "constant");
  int64_t *begin = (int64_t *)call->outputs[0].data;
  uint64_t seen = 0;
  for (int32_t k = 0; k < data->rank; ++k) begin[k] = 0, call->sizes[k] = data->dims[k];
  for (int64_t j = 0; j < n; ++j) {
    int64_t axis = axes ? optc_lib_int_at(axes, j) : j;
    if (axis < 0) axis += data->rank;
    if (axis < 0 || axis >= data->rank) return optc_lib_fault(call, "Pad: an axis is out of range");
    if (seen >> axis & 1) return optc_lib_fault(call, "Pad: an axis is listed twice");
    seen |= (uint64_t)1 << axis;
    const int64_t d = data->dims[axis], before = optc_lib_int_at(pads, j), after = optc_lib_int_at(pads, n + j);
    if (before > OPTC_LIB_FAR || before < -OPTC_LIB_FAR || after > OPTC_LIB_FAR || after < -OPTC_LIB_FAR)
      return optc_lib_fault(call, "Pad: a pad is too large");
    if (optc_lib_same(mode, "reflect") && (before || after) && (before >= (d ? d : 1) || after >= (d ? d : 1)))
      return optc_lib_fault(call, "Pad: a pad by reflection is not smaller than the dimension");
    begin[axis] = before;
    call->sizes[axis] = d + before + after;
    const int64_t kept = d + (optc_lib_same(mode, "wrap") ? (before < 0 ? before : 0) + (after < 0 ? after : 0) : 0);
    if (call->sizes[axis] > 0 && kept <= 0 && (before > 0 || after > 0) &&
        (optc_lib_same(mode, "edge") || optc_lib_same(mode, "wrap")))
      return optc_lib_fault(call, "Pad: there is nothing to repeat");
    if (call->sizes[axis] < 0) return optc_lib_fault(call, "Pad: a dimension becomes negative");
  }
  return 0;
}

// inputs: data, starts, ends, axes (optional), steps (optional). Sizes: the dims of the slice. Output 0: i64[2 * rank]:
// the first index of each dimension, then the steps.
static inline int optc_lib_slice_sizes(OptcLibCall *call) {
  const OptcLibTensor *data = &call->inputs[0];
  const OptcLibTensor *axes = call->input_count > 3 && call->inputs[3].data ? &call->inputs[3] : nullptr;
  const OptcLibTensor *steps = call->input_count > 4 && call->inputs[4].data ? &call->inputs[4] : nullptr;
  int64_t *first = (int64_t *)call->outputs[0].data, *step = first + data->rank;
  for (int32_t k = 0; k < data->rank; ++k) first[k] = 0, step[k] = 1, call->sizes[k] = data->dims[k];
  const int64_t n = optc_lib_count(&call->inputs[1]);
  if (optc_lib_count(&call->inputs[2]) != n || (axes && optc_lib_count(axes) != n) ||
      (steps && optc_lib_count(steps) != n))
    return optc_lib_fault(call, "Slice: starts, ends, axes and steps differ in length");
  uint64_t seen = 0;
  for (int64_t j = 0; j < n; ++j) {
    int64_t axis = axes ? optc_lib_int_at(axes, j) : j;
    if (axis < 0) axis += data->rank;
    if (axis < 0 || axis >= data->rank) return optc_lib_fault(call, "Slice: an axis is out of range");
    if (seen >> axis & 1) return optc_lib_fault(call, "Slice: an axis is listed twice");
    seen |= (uint64_t)1 << axis;
    const int64_t d = data->dims[axis];
    int64_t by = steps ? optc_lib_int_at(steps, j) : 1;
    if (by == 0) return optc_lib_fault(call, "Slice: a step is 0");
    by = by < -OPTC_LIB_FAR ? -OPTC_LIB_FAR : by;  // one element either way
    const int64_t low = by > 0 ? 0 : -1, high = by > 0 ? d : d - 1;
    int64_t start = optc_lib_int_at(&call->inputs[1], j), end = optc_lib_int_at(&call->inputs[2], j);
    if (start < 0) start += d;
    if (end < 0) end += d;
    start = start < 0 ? (by > 0 || d > 0 ? 0 : -1) : start > high ? high : start;  // never before the first element
    end = end < low ? low : end > high ? high : end;
    const int64_t span = by > 0 ? end - start : start - end, size = by > 0 ? by : -by;
    first[axis] = start < 0 ? 0 : start;
    step[axis] = by;
    call->sizes[axis] = span > 0 ? (span - 1) / size + 1 : 0;
  }
  return 0;
}

// inputs: start, limit, delta: scalars of one type (i16, i32, i64, f32, f64). Size: max(ceil((limit - start) / delta),
// 0).
static inline int optc_lib_range_sizes(OptcLibCall *call) {
  double v[3];
  int64_t w[3];
  for (int k = 0; k < 3; ++k) {
    const OptcLibTensor *t = &call->inputs[k];
    w[k] = 0, v[k] = 0;
    switch (t->type) {
      case 1:
      case 10:
      case 11:
      case 16:
        v[k] = optc_lib_double(t, 0);
        break;
      case 5:
        w[k] = *(const int16_t *)t->data;
        break;
      case 6:
        w[k] = *(const int32_t *)t->data;
        break;
      case 7:
        w[k] = *(const int64_t *)t->data;
        break;
      default:
        return optc_lib_fault(call, "Range: a type that it does not take");
    }
  }
  const int32_t type = call->inputs[0].type;
  if (type == 1 || type == 10 || type == 11 || type == 16) {
    if (v[2] == 0) return optc_lib_fault(call, "Range: delta is 0");
    const double n = (v[1] - v[0]) / v[2];
    if (!(n < 1e15)) return optc_lib_fault(call, "Range: too many elements");
    const int64_t whole = n > 0 ? (int64_t)n : 0;
    call->sizes[0] = (double)whole < n ? whole + 1 : whole;
  } else {
    if (w[2] == 0) return optc_lib_fault(call, "Range: delta is 0");
    const int64_t low = w[2] > 0 ? w[0] : w[1], high = w[2] > 0 ? w[1] : w[0];
    const uint64_t span = high > low ? (uint64_t)high - (uint64_t)low : 0,
                   by = w[2] > 0 ? (uint64_t)w[2] : 0 - (uint64_t)w[2], n = span ? (span - 1) / by + 1 : 0;
    if (n >= (uint64_t)1 << 50) return optc_lib_fault(call, "Range: too many elements");
    call->sizes[0] = (int64_t)n;
  }
  return 0;
}

// inputs: data, axes (i64[n] or a scalar); attributes keepdims, noop (whether no axes at all mean none), rank (of the
// result). Sizes: the dims of the reduced tensor. Output 0: i64[rank], the dimension of data that each one is, -1 for
// one that is kept as 1.
static inline int optc_lib_reduce_sizes(OptcLibCall *call) {
  const OptcLibTensor *data = &call->inputs[0], *axes = &call->inputs[1];
  const int keep = optc_lib_int_attribute(call, "keepdims", 1) != 0;
  int64_t *from = (int64_t *)call->outputs[0].data;
  const int64_t n = optc_lib_count(axes), rank = optc_lib_int_attribute(call, "rank", 0);
  uint64_t reduced = n == 0 && !optc_lib_int_attribute(call, "noop", 0) ? ~(uint64_t)0 : 0;
  for (int64_t j = 0; j < n; ++j) {
    int64_t axis = optc_lib_int_at(axes, j);
    if (axis < 0) axis += data->rank;
    if (axis < 0 || axis >= data->rank) return optc_lib_fault(call, "a reduction: an axis is out of range");
    reduced |= (uint64_t)1 << axis;
  }
  int64_t to = 0;
  for (int32_t k = 0; k < data->rank; ++k) {
    const int gone = (int)(reduced >> k & 1);
    if (gone && !keep) continue;
    if (to == rank)
      return optc_lib_fault(call, "a reduction: an axis is listed twice, which changes the rank of the result");
    call->sizes[to] = gone ? 1 : data->dims[k];
    from[to++] = gone ? -1 : k;
  }
  if (to < rank) return optc_lib_fault(call, "a reduction: the axes leave fewer dimensions than the result has");
  return 0;
}

// inputs: data, axes (i64[n]). Sizes: the dims of data without the axes (squeeze), each of which must be 1.
static inline int optc_lib_squeeze_sizes(OptcLibCall *call) {
  const OptcLibTensor *data = &call->inputs[0];
  uint32_t drop = 0;
  const int64_t n = optc_lib_count(&call->inputs[1]);
  for (int64_t j = 0; j < n; ++j) {
    int64_t axis = optc_lib_int_at(&call->inputs[1], j);
    if (axis < 0) axis += data->rank;
    if (axis < 0 || axis >= data->rank || (drop >> axis & 1))
      return optc_lib_fault(call, "Squeeze: an axis is out of range or listed twice");
    if (data->dims[axis] != 1) return optc_lib_fault(call, "Squeeze: a squeezed dimension is not 1");
    drop |= 1u << axis;
  }
  int64_t to = 0;
  for (int32_t k = 0; k < data->rank; ++k)
    if (!(drop >> k & 1)) call->sizes[to++] = data->dims[k];
  return 0;
}
// inputs: data, axes (i64[n]). Sizes: the rank + n dims with 1 at the axes.
static inline int optc_lib_unsqueeze_sizes(OptcLibCall *call) {
  const OptcLibTensor *data = &call->inputs[0];
  uint32_t added = 0;
  const int64_t n = optc_lib_count(&call->inputs[1]), rank = data->rank + n;
  for (int64_t j = 0; j < n; ++j) {
    int64_t axis = optc_lib_int_at(&call->inputs[1], j);
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank || (added >> axis & 1))
      return optc_lib_fault(call, "Unsqueeze: an axis is out of range or listed twice");
    added |= 1u << axis;
  }
  int32_t from = 0;
  for (int64_t k = 0; k < rank; ++k) call->sizes[k] = added >> k & 1 ? 1 : data->dims[from++];
  return 0;
}
// inputs: data, shape (i64[n]); attribute axes (absent: all). Sizes: the dims of data with those of the axes replaced.
static inline int optc_lib_crop_sizes(OptcLibCall *call) {
  const OptcLibTensor *data = &call->inputs[0];
  const OptcLibAttribute *axes = optc_lib_attribute(call, "axes");
  for (int32_t k = 0; k < data->rank; ++k) call->sizes[k] = data->dims[k];
  const int64_t n = optc_lib_count(&call->inputs[1]);
  for (int64_t j = 0; j < n; ++j) {
    int64_t axis = axes ? axes->ints[j] : j;
    if (axis < 0) axis += data->rank;
    if (axis < 0 || axis >= data->rank) return optc_lib_fault(call, "CenterCropPad: an axis is out of range");
    call->sizes[axis] = optc_lib_int_at(&call->inputs[1], j);
    if (call->sizes[axis] < 0) return optc_lib_fault(call, "CenterCropPad: a size is negative");
  }
  return 0;
}
