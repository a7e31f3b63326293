// lib_select.h: NonZero, Compress, Unique, TopK, NonMaxSuppression, DynamicTimeWarping.
#pragma once
#include <math.h>

#include "lib_util.h"

static inline int optc_lib_is_set(const OptcLibTensor *t, int64_t i) {
  if (t->type == 7 || t->type == 13) return ((const int64_t *)t->data)[i] != 0;
  return optc_lib_double(t, i) != 0;
}

// inputs: X. Output 0: i64[rank, n], the indices of the elements that are not zero, in row-major order. Size: n.
static inline int optc_lib_nonzero(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0];
  const int64_t count = optc_lib_count(x), rank = x->rank;
  int64_t n = 0;
  for (int64_t i = 0; i < count; ++i) n += optc_lib_is_set(x, i);
  call->sizes[0] = n;
  const int64_t dims[2] = {rank, n};
  if (!optc_lib_allocate(call, 0, 2, dims)) return optc_lib_out_of_memory(call);
  int64_t *y = (int64_t *)call->outputs[0].data, at = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!optc_lib_is_set(x, i)) continue;
    int64_t rest = i;
    for (int64_t k = rank - 1; k >= 0; --k) {
      y[k * n + at] = rest % x->dims[k];
      rest /= x->dims[k];
    }
    ++at;
  }
  return 0;
}

// inputs: X, condition (bool[m]); attribute axis (absent: X is flattened). Output 0: the chosen slices. Size: their
// number.
static inline int optc_lib_compress(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0], *condition = &call->inputs[1];
  const OptcLibAttribute *axis_attribute = optc_lib_attribute(call, "axis");
  const int64_t axis = axis_attribute ? (axis_attribute->i < 0 ? axis_attribute->i + x->rank : axis_attribute->i) : 0;
  int64_t outer = 1, extent = axis_attribute ? x->dims[axis] : optc_lib_count(x), inner = 1, n = 0,
          m = optc_lib_count(condition);
  if (axis_attribute) {
    for (int64_t k = 0; k < axis; ++k) outer *= x->dims[k];
    for (int64_t k = axis + 1; k < x->rank; ++k) inner *= x->dims[k];
  }
  const uint8_t *keep = (const uint8_t *)condition->data;
  if (m > extent) m = extent;  // what is behind the end of the axis selects nothing
  for (int64_t i = 0; i < m; ++i) n += keep[i] != 0;
  call->sizes[0] = n;
  int64_t dims[OPTC_LIB_MAX_RANK];
  int32_t rank = axis_attribute ? x->rank : 1;
  for (int32_t k = 0; k < rank; ++k) dims[k] = x->dims[k];
  dims[axis] = n;
  if (!optc_lib_allocate(call, 0, rank, dims)) return optc_lib_out_of_memory(call);
  const size_t bytes = (size_t)inner * optc_lib_element_size(x->type);
  const char *from = (const char *)x->data;
  char *to = (char *)call->outputs[0].data;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < m; ++i)
      if (keep[i]) memcpy(to, from + (size_t)(o * extent + i) * bytes, bytes), to += bytes;
  return 0;
}

struct OptcLibSlices {  // slices [outer, i, inner] of a tensor, compared lexicographically
  const OptcLibTensor *x;
  int64_t outer, extent, inner;
};
static inline int optc_lib_compare_slices(const OptcLibSlices *s, int64_t a, int64_t b) {
  for (int64_t o = 0; o < s->outer; ++o)
    for (int64_t i = 0; i < s->inner; ++i) {
      const int c = optc_lib_compare(s->x, (o * s->extent + a) * s->inner + i, (o * s->extent + b) * s->inner + i);
      if (c) return c;
    }
  return 0;
}
static inline int optc_lib_slice_before(const void *user, int64_t a, int64_t b) {
  return optc_lib_compare_slices((const OptcLibSlices *)user, a, b) < 0;
}
static inline int optc_lib_first_before(const void *user, int64_t a, int64_t b) {
  return ((const int64_t *)user)[a] < ((const int64_t *)user)[b];
}

// inputs: X; attributes axis (absent: flattened), sorted. Outputs: Y, indices of first occurrences, inverse indices,
// counts (i64). Size: the number of unique slices.
static inline int optc_lib_unique(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0];
  const OptcLibAttribute *axis_attribute = optc_lib_attribute(call, "axis");
  const int sorted = optc_lib_int_attribute(call, "sorted", 1) != 0;
  int64_t axis = axis_attribute ? axis_attribute->i : 0;
  if (axis < 0) axis += x->rank;
  OptcLibSlices slices = {x, 1, optc_lib_count(x), 1};
  if (axis_attribute) {
    slices.extent = x->dims[axis];
    for (int64_t k = 0; k < axis; ++k) slices.outer *= x->dims[k];
    for (int64_t k = axis + 1; k < x->rank; ++k) slices.inner *= x->dims[k];
  }
  const int64_t n = slices.extent;
  // order, scratch, group of each slice, first of each group, count of each group, rank of each group
  int64_t *memory = (int64_t *)malloc((size_t)(6 * n + 1) * sizeof(int64_t));
  if (!memory) return optc_lib_out_of_memory(call);
  int64_t *order = memory, *scratch = order + n, *group = scratch + n, *first = group + n, *count = first + n,
          *place = count + n;
  for (int64_t i = 0; i < n; ++i) order[i] = i;
  optc_lib_sort(order, scratch, n, optc_lib_slice_before, &slices);
  int64_t groups = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (i == 0 || optc_lib_compare_slices(&slices, order[i - 1], order[i]) != 0) {
      first[groups] = order[i];
      count[groups++] = 0;
    }
    group[order[i]] = groups - 1;
    ++count[groups - 1];
  }
  for (int64_t g = 0; g < groups; ++g) order[g] = g;  // from here on: groups in the order of the result
  if (!sorted) optc_lib_sort(order, scratch, groups, optc_lib_first_before, first);
  for (int64_t g = 0; g < groups; ++g) place[order[g]] = g;
  call->sizes[0] = groups;
  int64_t dims[OPTC_LIB_MAX_RANK];
  const int32_t rank = axis_attribute ? x->rank : 1;
  for (int32_t k = 0; k < rank; ++k) dims[k] = x->dims[k];
  dims[axis] = groups;
  int ok = 1;
  if (optc_lib_output(call, 0)) {
    ok = optc_lib_allocate(call, 0, rank, dims);
    const size_t bytes = (size_t)slices.inner * optc_lib_element_size(x->type);
    for (int64_t o = 0; ok && o < slices.outer; ++o)
      for (int64_t g = 0; g < groups; ++g)
        memcpy((char *)call->outputs[0].data + (size_t)(o * groups + g) * bytes,
               (const char *)x->data + (size_t)(o * n + first[order[g]]) * bytes, bytes);
  }
  if (ok && optc_lib_output(call, 1)) {
    ok = optc_lib_allocate(call, 1, 1, &groups);
    for (int64_t g = 0; ok && g < groups; ++g) ((int64_t *)call->outputs[1].data)[g] = first[order[g]];
  }
  if (ok && optc_lib_output(call, 2)) {
    ok = optc_lib_allocate(call, 2, 1, &n);
    for (int64_t i = 0; ok && i < n; ++i) ((int64_t *)call->outputs[2].data)[i] = place[group[i]];
  }
  if (ok && optc_lib_output(call, 3)) {
    ok = optc_lib_allocate(call, 3, 1, &groups);
    for (int64_t g = 0; ok && g < groups; ++g) ((int64_t *)call->outputs[3].data)[g] = count[order[g]];
  }
  free(memory);
  return ok ? 0 : optc_lib_out_of_memory(call);
}

typedef float OptcLibFloats __attribute__((vector_size(16)));
typedef int32_t OptcLibMasks __attribute__((vector_size(16)));

// Grows with element i as optc_lib_compare has it: zeros are equal, NaN is above all.
static inline uint64_t optc_lib_rank_key(const OptcLibTensor *t, int64_t i) {
  const uint64_t sign = (uint64_t)1 << 63;
  if (t->type == 7) return (uint64_t)((const int64_t *)t->data)[i] ^ sign;
  if (t->type == 13) return ((const uint64_t *)t->data)[i];
  const double value = (t->type == 1 ? (double)((const float *)t->data)[i] : optc_lib_double(t, i)) + 0.0;  // no -0
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return value != value ? UINT64_MAX : bits & sign ? ~bits : bits | sign;
}
typedef struct {
  uint64_t key;
  int64_t index;
} OptcLibRanked;
// Whether a is kept after b: of equal ones that with the lower index is kept first.
static inline int optc_lib_is_worse(OptcLibRanked a, OptcLibRanked b) {
  return a.key == b.key ? a.index > b.index : a.key < b.key;
}
// Puts x into the place of the first of a heap, the worst on top.
static inline void optc_lib_sift_down(OptcLibRanked *heap, int64_t size, OptcLibRanked x) {
  int64_t at = 0;
  for (int64_t child = 1; child < size; child = 2 * at + 1) {
    if (child + 1 < size && optc_lib_is_worse(heap[child + 1], heap[child])) ++child;
    if (!optc_lib_is_worse(heap[child], x)) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = x;
}

// From j on the begin of the first sixteen of n that may hold one better than `worst`.
static inline int64_t optc_lib_skip_worse(const float *x, int64_t j, int64_t n, float worst, int largest) {
  const OptcLibFloats limit = (OptcLibFloats){0} + worst;
  for (; j + 16 <= n; j += 16) {
    OptcLibMasks worse = ~(OptcLibMasks){0};
    for (int k = 0; k < 16; k += 4) {
      OptcLibFloats v;
      memcpy(&v, x + j + k, sizeof v);
      worse &= largest ? v <= limit : v >= limit;  // NaN: neither
    }
    if (!(worse[0] & worse[1] & worse[2] & worse[3])) break;
  }
  return j;
}
// Sorts n by falling keys, equal ones as they stand (radix sort, one pass a byte in which keys differ); `scratch` holds
// n more. The result lies in either.
static inline OptcLibRanked *optc_lib_sort_ranked(OptcLibRanked *ranked, OptcLibRanked *scratch, int64_t n) {
  uint64_t differ = 0;
  for (int64_t j = 1; j < n; ++j) differ |= ranked[j].key ^ ranked[0].key;
  for (int shift = 0; shift < 64; shift += 8) {
    if (!(differ >> shift & 255)) continue;
    int64_t first[257] = {0};
    for (int64_t j = 0; j < n; ++j) ++first[256 - (ranked[j].key >> shift & 255)];
    for (int digit = 1; digit < 257; ++digit) first[digit] += first[digit - 1];
    for (int64_t j = 0; j < n; ++j) scratch[first[255 - (ranked[j].key >> shift & 255)]++] = ranked[j];
    OptcLibRanked *swapped = ranked;
    ranked = scratch, scratch = swapped;
  }
  return ranked;
}

// inputs: X, K (i64[1]); attributes axis, largest, sorted. Outputs: values, indices (i64), of k along the axis. Size: k
// (wanted only where K is not constant). The result is sorted always; of equal elements the one with the lower index
// comes first. Of many a heap holds the k best so far; else all are sorted.
static inline int optc_lib_topk(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0];
  const int64_t k = optc_lib_int_at(&call->inputs[1], 0);
  const uint64_t turned = optc_lib_int_attribute(call, "largest", 1) ? 0 : UINT64_MAX;
  int64_t axis = optc_lib_int_attribute(call, "axis", -1), outer = 1, inner = 1;
  if (axis < 0) axis += x->rank;
  const int64_t n = x->dims[axis];
  if (k < 0 || k > n) return optc_lib_fault(call, "TopK: k is larger than the axis");
  call->sizes[0] = k;
  int64_t dims[OPTC_LIB_MAX_RANK];
  for (int32_t d = 0; d < x->rank; ++d) {
    dims[d] = x->dims[d];
    if (d < axis) outer *= dims[d];
    if (d > axis) inner *= dims[d];
  }
  dims[axis] = k;
  OptcLibTensor *values = optc_lib_output(call, 0), *indices = optc_lib_output(call, 1);
  if (values && !optc_lib_allocate(call, 0, x->rank, dims)) return optc_lib_out_of_memory(call);
  if (indices && !optc_lib_allocate(call, 1, x->rank, dims)) return optc_lib_out_of_memory(call);
  if (k == 0) return 0;
  const int all = n <= 32 * k, plain = x->type == 1 && inner == 1;
  OptcLibRanked *heap = (OptcLibRanked *)malloc((size_t)(all ? 2 * n : k) * sizeof(OptcLibRanked));
  if (!heap) return optc_lib_out_of_memory(call);
  const size_t bytes = optc_lib_element_size(x->type);
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      const int64_t base = o * n * inner + i;
      const OptcLibRanked *best = heap;
      for (int64_t j = 0; j < (all ? n : k); ++j) {
        const OptcLibRanked one = {optc_lib_rank_key(x, base + j * inner) ^ turned, j};
        int64_t at = j;
        if (!all)  // sift up
          for (int64_t parent; at > 0 && optc_lib_is_worse(one, heap[parent = (at - 1) / 2]); at = parent)
            heap[at] = heap[parent];
        heap[at] = one;
      }
      if (all) {
        best = optc_lib_sort_ranked(heap, heap + n, n);
      } else {
        const float *row = (const float *)x->data + base;
        for (int64_t j = k; j < n;) {
          if (plain) j = optc_lib_skip_worse(row, j, n, row[heap[0].index], !turned);
          for (const int64_t end = optc_lib_lesser(n, j + 16); j < end; ++j) {
            const OptcLibRanked one = {optc_lib_rank_key(x, base + j * inner) ^ turned, j};
            if (one.key > heap[0].key) optc_lib_sift_down(heap, k, one);
          }
        }
        for (int64_t size = k - 1; size > 0; --size) {  // the worst to the end
          const OptcLibRanked worst = heap[0];
          optc_lib_sift_down(heap, size, heap[size]);
          heap[size] = worst;
        }
      }
      for (int64_t j = 0; j < k; ++j) {
        const int64_t to = (o * k + j) * inner + i;
        if (indices) ((int64_t *)indices->data)[to] = best[j].index;
        if (values)
          memcpy((char *)values->data + (size_t)to * bytes,
                 (const char *)x->data + (size_t)(base + best[j].index * inner) * bytes, bytes);
      }
    }
  free(heap);
  return 0;
}

static inline void optc_lib_box(const float *b, int center, float *corners) {
  if (center) {
    corners[0] = b[1] - b[3] / 2, corners[1] = b[0] - b[2] / 2, corners[2] = b[1] + b[3] / 2,
    corners[3] = b[0] + b[2] / 2;
  } else {  // any two opposite corners, y first
    corners[0] = b[0] < b[2] ? b[0] : b[2], corners[1] = b[1] < b[3] ? b[1] : b[3];
    corners[2] = b[0] < b[2] ? b[2] : b[0], corners[3] = b[1] < b[3] ? b[3] : b[1];
  }
}
// Chosen boxes, four side by side, as each later one is held against all of them.
typedef struct {
  OptcLibFloats corners[4], area;
} OptcLibBoxes;

static inline OptcLibFloats optc_lib_blend(OptcLibMasks where, OptcLibFloats a, OptcLibFloats b) {
  return (OptcLibFloats)((where & (OptcLibMasks)a) | (~where & (OptcLibMasks)b));
}
// Whether the box shares more than `threshold` of the union's area with one of `boxes`. What has no area shares none.
static inline int optc_lib_overlaps(const OptcLibBoxes *boxes, const float *corners, float box_area, float threshold) {
  const OptcLibFloats zero = {0}, area = zero + box_area, most = zero + threshold;
  OptcLibFloats q[4], low[2], high[2];
  for (int k = 0; k < 4; ++k) q[k] = zero + corners[k];
  for (int k = 0; k < 2; ++k) {
    const OptcLibFloats *p = boxes->corners;
    low[k] = optc_lib_blend(p[k] > q[k], p[k], q[k]), high[k] = optc_lib_blend(p[k + 2] < q[k + 2], p[k + 2], q[k + 2]);
  }
  const OptcLibFloats h = high[0] - low[0], w = high[1] - low[1], both = h * w;
  const OptcLibMasks none = (h <= zero) | (w <= zero) | (boxes->area <= zero) | (area <= zero);
  const OptcLibFloats either = boxes->area + area - both;
  const OptcLibMasks less = none | (both < 0.999f * most * either);  // beyond doubt
  if (less[0] & less[1] & less[2] & less[3]) return 0;
  const OptcLibMasks more = ~none & (both / either > most);
  return (more[0] | more[1] | more[2] | more[3]) != 0;
}
// inputs: boxes f32[batch, n, 4], scores f32[batch, classes, n], max_output_boxes_per_class, iou_threshold,
// score_threshold (optional scalars); attribute center_point_box. Output: i64[selected, 3] of (batch, class, box).
// Size: selected.
static inline int optc_lib_nms(OptcLibCall *call) {
  const OptcLibTensor *boxes = &call->inputs[0], *scores = &call->inputs[1];
  const OptcLibTensor *max_tensor = optc_lib_input(call, 2), *iou = optc_lib_input(call, 3),
                      *low = optc_lib_input(call, 4);
  const int center = optc_lib_int_attribute(call, "center_point_box", 0) != 0;
  int64_t most = max_tensor ? optc_lib_int_at(max_tensor, 0) : 0;
  const float threshold = iou ? (float)optc_lib_double(iou, 0) : 0;
  const int64_t batches = scores->dims[0], classes = scores->dims[1], n = scores->dims[2];
  if (most < 0) most = 0;
  if (most > n) most = n;
  OptcLibRanked *ranked = (OptcLibRanked *)malloc((size_t)(2 * n + 1) * sizeof(OptcLibRanked));
  int64_t *found = (int64_t *)malloc((size_t)(batches * classes * most * 3 + 1) * sizeof(int64_t)), total = 0;
  OptcLibBoxes *kept = (OptcLibBoxes *)malloc((size_t)(most / 4 + 1) * sizeof(OptcLibBoxes));  // of one class
  if (!ranked || !found || !kept) {
    free(ranked), free(found), free(kept);
    return optc_lib_out_of_memory(call);
  }
  const float least = low ? (float)optc_lib_double(low, 0) : 0;
  for (int64_t b = 0; b < batches; ++b)
    for (int64_t c = 0; c < classes; ++c) {
      const int64_t first = (b * classes + c) * n, start = total;
      const float *box = (const float *)boxes->data + b * n * 4;
      int64_t candidates = 0;
      for (int64_t i = 0; i < n; ++i) {
        ranked[candidates].index = i;
        candidates += !low || ((const float *)scores->data)[first + i] > least;
      }
      for (int64_t j = 0; j < candidates; ++j) ranked[j].key = optc_lib_rank_key(scores, first + ranked[j].index);
      const OptcLibRanked *best = optc_lib_sort_ranked(ranked, ranked + n, candidates);
      for (int64_t j = 0; j < candidates && total - start < most; ++j) {
        const int64_t have = total - start, lane = have % 4;
        float corners[4];
        optc_lib_box(box + 4 * best[j].index, center, corners);
        const float area = (corners[2] - corners[0]) * (corners[3] - corners[1]);
        if (lane == 0) memset(&kept[have / 4], 0, sizeof(OptcLibBoxes));
        int keep = 1;
        for (int64_t s = 0; keep && 4 * s < have; ++s) keep = !optc_lib_overlaps(&kept[s], corners, area, threshold);
        if (!keep) continue;
        for (int k = 0; k < 4; ++k) kept[have / 4].corners[k][lane] = corners[k];
        kept[have / 4].area[lane] = area;
        found[3 * total] = b, found[3 * total + 1] = c, found[3 * total + 2] = best[j].index, ++total;
      }
    }
  call->sizes[0] = total;
  const int64_t dims[2] = {total, 3};
  const int ok = optc_lib_allocate(call, 0, 2, dims);
  if (ok) memcpy(call->outputs[0].data, found, (size_t)total * 3 * sizeof(int64_t));
  free(ranked), free(found), free(kept);
  return ok ? 0 : optc_lib_out_of_memory(call);
}

// input: costs (f32) of points, [rows, columns] or [1, rows, columns]. Output: i32[2, n], rows and columns of the
// points of a path from the first to the last point by steps to the next row, column or both that costs least. Of equal
// ones the step within the row is taken, so is one whose cost is no number. Size: n, 0 when there are no points.
static inline int optc_lib_time_warping(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0];
  const int64_t rows = x->dims[x->rank - 2], columns = x->dims[x->rank - 1];
  const float *costs = (const float *)x->data;
  enum { kBoth, kRow, kColumn };  // the step that leads to a point
  unsigned char *steps = nullptr;
  float *sums = nullptr;  // of the paths to the points of a row, behind a border
  if (rows > 0 && columns > 0) {
    steps = (unsigned char *)malloc((size_t)rows * (size_t)columns);
    sums = (float *)malloc(((size_t)columns + 1) * sizeof *sums);
    if (!steps || !sums) {
      free(steps), free(sums);
      return optc_lib_out_of_memory(call);
    }
    for (int64_t j = 0; j <= columns; ++j) sums[j] = j == 0 ? 0 : HUGE_VALF;
  }
  for (int64_t i = 0; sums && i < rows; ++i) {
    float diagonal = sums[0];
    sums[0] = HUGE_VALF;
    for (int64_t j = 0; j < columns; ++j) {
      const float above = sums[j + 1], left = sums[j];
      const int step = diagonal < above && diagonal < left ? kBoth : above < diagonal && above < left ? kRow : kColumn;
      steps[i * columns + j] = (unsigned char)step;
      sums[j + 1] = (step == kBoth ? diagonal : step == kRow ? above : left) + costs[i * columns + j];
      diagonal = above;
    }
  }
  // Backwards: once for the number of points, once more to write them.
  int status = 0;
  int32_t *y = nullptr;
  for (int64_t pass = 0, n = 0; pass < 2 && status == 0; ++pass) {
    int64_t at = n;
    for (int64_t i = rows - 1, j = columns - 1; i >= 0 && j >= 0;) {
      if (pass == 0) {
        ++n;
      } else {
        --at;
        y[at] = (int32_t)i, y[n + at] = (int32_t)j;
      }
      const int step = steps[i * columns + j];
      i -= step != kColumn, j -= step != kRow;
    }
    if (pass == 1) break;
    const int64_t dims[2] = {2, n};
    call->sizes[0] = n;
    if (!optc_lib_allocate(call, 0, 2, dims)) status = optc_lib_out_of_memory(call);
    y = (int32_t *)call->outputs[0].data;
  }
  free(steps), free(sums);
  return status;
}
