// lib_ml.h: tree ensembles, the ends of classifiers and lookups of categories (ai.onnx.ml).
#pragma once
#include <math.h>

#include "lib_util.h"

// sqrt(2) * erfinv(2 p - 1), by Winitzki's approximation, as ONNX's runtimes do; NaN outside of [0, 1].
static inline double optc_lib_probit(double p) {
  const double x = 2 * p - 1, y = (1 - x) * (1 + x);
  if (!(y >= 0)) return NAN;
  if (y == 0) return x < 0 ? -INFINITY : INFINITY;
  const double log_y = log(y), v = 2 / (3.14159265358979323846 * 0.147) + 0.5 * log_y, v2 = log_y / 0.147;
  const double r = sqrt(-v + sqrt(v * v - v2));
  return 1.41421356 * (x < 0 ? -r : r);
}
static inline double optc_lib_logistic(double x) {
  const double e = 1 / (1 + exp(-fabs(x)));
  return x < 0 ? 1 - e : e;
}
// post: 0 none, 1 softmax, 2 logistic, 3 softmax_zero, 4 probit. In place, over one row. A single score takes none but
// probit, as ONNX Runtime has it: what converters write relies on that.
static inline void optc_lib_post_transform(double *row, int64_t n, int64_t post) {
  if (post == 4) {
    for (int64_t k = 0; k < n; ++k) row[k] = optc_lib_probit(row[k]);
  } else if (post == 2 && n > 1) {
    for (int64_t k = 0; k < n; ++k) row[k] = optc_lib_logistic(row[k]);
  } else if ((post == 1 || post == 3) && n > 1) {
    double most = -INFINITY, sum = 0;
    for (int64_t k = 0; k < n; ++k) most = row[k] > most ? row[k] : most;
    for (int64_t k = 0; k < n; ++k) {
      row[k] = post == 3 && fabs(row[k]) <= 1e-7 ? row[k] * exp(-most) : exp(row[k] - most);
      sum += row[k];
    }
    for (int64_t k = 0; k < n; ++k) row[k] = sum == 0 ? 0.5 : row[k] / sum;
  }
}
// From one score s to the scores of two classes: 1 - s and s, or (mixed: scores of either sign) -s and s.
static inline void optc_lib_two_scores(double *row, int mixed, int64_t post) {
  const double s = post == 4 ? optc_lib_probit(row[0]) : row[0];
  row[0] = post == 2 ? optc_lib_logistic(-s) : mixed && post != 4 ? -s : 1 - s;
  row[1] = post == 2 ? optc_lib_logistic(s) : s;
}
// The class of a row of n scores, which become those that the classifier gives. how: 0 the largest score's class; one
// score and two classes, the second where it is larger than the threshold, with two scores: 1 (1 - s, s), 2 (-s, s);
// 3 with one.
static inline int64_t optc_lib_class_of(double *row, int64_t n, int64_t post, int64_t how, double threshold) {
  int64_t best = 0;
  if (how == 0) {
    for (int64_t k = 1; k < n; ++k)
      if (row[k] > row[best]) best = k;
  } else {
    best = row[0] > threshold;
  }
  if (how == 1 || how == 2)
    optc_lib_two_scores(row, how == 2, post);
  else
    optc_lib_post_transform(row, n, post);
  return best;
}

// inputs: scores [n, classes]; attributes post, how, threshold (see above). Outputs: the scores that the classifier
// gives ([n, classes], or [n, 2] where `how` says so; optional), class numbers i64[n] (optional).
static inline int optc_lib_class_scores(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0];
  const int64_t rows = x->dims[0], classes = x->dims[1];
  const int64_t post = optc_lib_int_attribute(call, "post", 0), how = optc_lib_int_attribute(call, "how", 0);
  const double threshold = optc_lib_float_attribute(call, "threshold", 0);
  const int64_t columns = how == 1 || how == 2 ? 2 : classes;
  OptcLibTensor *scores = optc_lib_output(call, 0), *winner = optc_lib_output(call, 1);
  double *row = (double *)malloc((size_t)(classes + 2) * sizeof(double));
  if (!row) return optc_lib_out_of_memory(call);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k < classes; ++k) row[k] = optc_lib_double(x, i * classes + k);
    const int64_t best = optc_lib_class_of(row, classes, post, how, threshold);
    if (winner) ((int64_t *)winner->data)[i] = best;
    if (scores)
      for (int64_t k = 0; k < columns; ++k) optc_lib_set(scores, i * columns + k, row[k]);
  }
  free(row);
  return 0;
}

// A branch of a tree. mode: 0 <=, 1 <, 2 >=, 3 >, 4 ==, 5 !=, 6 member; and 8: NaN goes to yes. A child c >= 0 is
// branch c, else leaf ~c.
typedef struct {
  int32_t feature, mode, yes, no;
} OptcLibBranch;
typedef struct {
  const OptcLibBranch *branches;
  const double *threshold;
  const int64_t *member_first;  // of branch i from [i] to [i + 1]
  const double *members;
} OptcLibTrees;

// The child of branch `at` for a row of x that begins at `row`.
static inline int32_t optc_lib_child(const OptcLibTrees *trees, int32_t at, const OptcLibTensor *x, int64_t row) {
  const OptcLibBranch *b = trees->branches + at;
  const double v = optc_lib_double(x, row + b->feature), s = trees->threshold[at];
  int yes = 0;
  switch (b->mode & 7) {
    case 0:
      yes = v <= s;
      break;
    case 1:
      yes = v < s;
      break;
    case 2:
      yes = v >= s;
      break;
    case 3:
      yes = v > s;
      break;
    case 4:
      yes = v == s;
      break;
    case 5:
      yes = v != s;
      break;
    default:
      for (int64_t m = trees->member_first[at]; m < trees->member_first[at + 1]; ++m) yes |= v == trees->members[m];
  }
  return yes || (v != v && (b->mode & 8)) ? b->yes : b->no;
}
enum { OPTC_LIB_TREE_ROWS = 8 };  // that go down a tree side by side: each waits for its loads
// Leaves of a tree whose branches are all of mode 0.
static inline void optc_lib_leaves(const OptcLibTrees *trees, int32_t root, const float *x, int64_t features,
                                   int32_t *leaves) {
  int32_t all = root;
  for (int r = 0; r < OPTC_LIB_TREE_ROWS; ++r) leaves[r] = root;
  while (all >= 0) {  // not all of them at leaves
    all = -1;
    for (int r = 0; r < OPTC_LIB_TREE_ROWS; ++r) {
      const int32_t leaf = leaves[r] >> 31, at = leaves[r] & ~leaf;  // masks: branches would be guessed
      const OptcLibBranch *b = trees->branches + at;
      const int32_t yes = -((double)x[r * features + b->feature] <= trees->threshold[at]);
      leaves[r] = (leaves[r] & leaf) | (((b->yes & yes) | (b->no & ~yes)) & ~leaf);
      all &= leaves[r];
    }
  }
}

// inputs: X [n, features]; branches i32[m, 4] (OptcLibBranch), thresholds f64[m], member_first i64[m + 1], members f64;
// leaf_first i64[l + 1], leaf_target i64, leaf_weight f64; roots i64[t], as children are. Attributes: targets,
// aggregate (0 average, 1 sum, 2 min, 3 max), base_values, post, how, threshold (of optc_lib_class_of), features (as
// many must X have), plain (all modes are 0). Outputs: scores [n, targets] (or [n, 2]); winning class i64[n]
// (optional).
static inline int optc_lib_tree_ensemble(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0];
  const OptcLibTrees ensemble = {(const OptcLibBranch *)call->inputs[1].data, (const double *)call->inputs[2].data,
                                 (const int64_t *)call->inputs[3].data, (const double *)call->inputs[4].data};
  const int64_t *leaf_first = (const int64_t *)call->inputs[5].data,
                *leaf_target = (const int64_t *)call->inputs[6].data;
  const double *leaf_weight = (const double *)call->inputs[7].data;
  const int64_t *roots = (const int64_t *)call->inputs[8].data, trees = optc_lib_count(&call->inputs[8]);
  const int64_t rows = x->rank == 1 ? 1 : x->dims[0], features = x->rank == 1 ? x->dims[0] : x->dims[1];
  const int64_t targets = optc_lib_int_attribute(call, "targets", 1),
                aggregate = optc_lib_int_attribute(call, "aggregate", 1);
  const int64_t post = optc_lib_int_attribute(call, "post", 0), how = optc_lib_int_attribute(call, "how", 0);
  const double threshold_of_class = optc_lib_float_attribute(call, "threshold", 0);
  const OptcLibAttribute *base = optc_lib_attribute(call, "base_values");
  OptcLibTensor *scores = optc_lib_output(call, 0), *winner = optc_lib_output(call, 1);
  const int64_t columns = how ? 2 : targets;
  const int plain = x->type == 1 && optc_lib_int_attribute(call, "plain", 0);
  if (optc_lib_int_attribute(call, "features", 0) > features)
    return optc_lib_fault(call, "a tree reads a feature that the input does not have");
  const size_t width = (size_t)targets + 2;
  double *sums = (double *)malloc(OPTC_LIB_TREE_ROWS * width * 9);
  if (!sums) return optc_lib_out_of_memory(call);
  char *seen = (char *)(sums + OPTC_LIB_TREE_ROWS * width);
  for (int64_t first = 0; first < rows; first += OPTC_LIB_TREE_ROWS) {
    const int64_t count = optc_lib_lesser(rows - first, OPTC_LIB_TREE_ROWS);
    memset(sums, 0, OPTC_LIB_TREE_ROWS * width * 9);
    for (int64_t t = 0; t < trees; ++t) {
      int32_t leaves[OPTC_LIB_TREE_ROWS];
      if (plain && count == OPTC_LIB_TREE_ROWS)
        optc_lib_leaves(&ensemble, (int32_t)roots[t], (const float *)x->data + first * features, features, leaves);
      else
        for (int64_t r = 0; r < count; ++r)
          for (leaves[r] = (int32_t)roots[t]; leaves[r] >= 0;)
            leaves[r] = optc_lib_child(&ensemble, leaves[r], x, (first + r) * features);
      for (int64_t r = 0; r < count; ++r)
        for (int64_t l = leaf_first[~leaves[r]]; l < leaf_first[~leaves[r] + 1]; ++l) {
          double *to = &sums[r * (int64_t)width + leaf_target[l]];
          char *was = &seen[r * (int64_t)width + leaf_target[l]];
          const double w = leaf_weight[l];
          if (aggregate <= 1) *to += w;
          if (aggregate == 2) *to = !*was || w < *to ? w : *to;
          if (aggregate == 3) *to = !*was || w > *to ? w : *to;
          *was = 1;
        }
    }
    for (int64_t r = 0; r < count; ++r) {
      double *row = sums + r * (int64_t)width;
      for (int64_t k = 0; k < targets; ++k) {
        if (aggregate == 0) row[k] /= (double)trees;
        if (base && base->count == (size_t)targets)
          row[k] += base->floats[k];
        else if (base && base->count == 1)
          row[k] += base->floats[0];
      }
      const int64_t best = optc_lib_class_of(row, targets, post, how, threshold_of_class);
      if (winner) ((int64_t *)winner->data)[first + r] = best;
      if (scores)
        for (int64_t k = 0; k < columns; ++k) optc_lib_set(scores, (first + r) * columns + k, row[k]);
    }
  }
  free(sums);
  return 0;
}

// inputs: class numbers i64[n]; attribute labels (strings). Output: string[n].
static inline int optc_lib_string_labels(OptcLibCall *call) {
  const int64_t n = optc_lib_count(&call->inputs[0]), *at = (const int64_t *)call->inputs[0].data;
  const OptcLibAttribute *labels = optc_lib_attribute(call, "labels");
  if (!optc_lib_allocate(call, 0, call->inputs[0].rank, call->inputs[0].dims)) return optc_lib_out_of_memory(call);
  OptcLibString *to = (OptcLibString *)call->outputs[0].data;
  for (int64_t i = 0; i < n; ++i) {
    if (at[i] < 0 || (size_t)at[i] >= labels->count) return optc_lib_fault(call, "a class number is out of range");
    const size_t size = strlen(labels->strings[at[i]]);
    char *text = (char *)call->allocate(call->user, OPTC_LIB_EXTRA, size + 1);
    if (!text) return optc_lib_out_of_memory(call);
    memcpy(text, labels->strings[at[i]], size);
    to[i].data = text;
    to[i].size = size;
  }
  return 0;
}

// A table of keys (numbers, or strings by their bytes). NaN equals NaN. Many elements are looked up by a hash table.
typedef struct {
  const OptcLibTensor *keys;
  int64_t *slots;  // positions, -1: free; null: the keys, which ascend (NaN last), are halved
  uint64_t mask;   // of slots
} OptcLibKeys;

static inline int optc_lib_compare_keys(const OptcLibTensor *a, int64_t i, const OptcLibTensor *b, int64_t j) {
  if (a->type == 8)
    return optc_lib_compare_strings((const OptcLibString *)a->data + i, (const OptcLibString *)b->data + j);
  if (a->type == 7) {
    const int64_t p = ((const int64_t *)a->data)[i], q = ((const int64_t *)b->data)[j];
    return p < q ? -1 : p > q;
  }
  const double p = optc_lib_double(a, i), q = optc_lib_double(b, j);
  return p != p || q != q ? (p != p) - (q != q) : p < q ? -1 : p > q;
}
static inline uint64_t optc_lib_hash_key(const OptcLibTensor *t, int64_t i) {
  uint64_t h = 0;
  if (t->type == 8) {
    h = optc_lib_hash_text((const OptcLibString *)t->data + i);
  } else if (t->type == 7) {
    h = ((const uint64_t *)t->data)[i];
  } else {
    const double v = optc_lib_double(t, i) + 0.0;  // zeros are equal
    if (v == v) memcpy(&h, &v, sizeof h);
  }
  return optc_lib_spread(h);
}
// For `count` elements that are to be looked up; to be freed.
static inline OptcLibKeys optc_lib_keys(const OptcLibTensor *keys, int64_t count) {
  OptcLibKeys table = {keys, nullptr, 0};
  const int64_t n = optc_lib_count(keys);
  if (n < 8 || count < n) return table;
  uint64_t slots = 16;
  while (slots < 2 * (uint64_t)n) slots *= 2;
  table.slots = (int64_t *)malloc((size_t)slots * sizeof(int64_t));
  if (!table.slots) return table;
  table.mask = slots - 1;
  for (uint64_t k = 0; k < slots; ++k) table.slots[k] = -1;
  for (int64_t k = 0; k < n; ++k) {
    uint64_t at = optc_lib_hash_key(keys, k) & table.mask;
    while (table.slots[at] >= 0) at = (at + 1) & table.mask;
    table.slots[at] = k;
  }
  return table;
}
// The position of element i of x, which is of the keys' type; -1: it is not there.
static inline int64_t optc_lib_find_key(const OptcLibKeys *table, const OptcLibTensor *x, int64_t i) {
  if (table->slots) {
    for (uint64_t at = optc_lib_hash_key(x, i) & table->mask; table->slots[at] >= 0; at = (at + 1) & table->mask)
      if (optc_lib_compare_keys(table->keys, table->slots[at], x, i) == 0) return table->slots[at];
    return -1;
  }
  int64_t low = 0, high = optc_lib_count(table->keys);
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const int c = optc_lib_compare_keys(table->keys, middle, x, i);
    if (c == 0) return middle;
    if (c < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return -1;
}

// inputs: X (any type), keys (of X's type, ascending), values (as many), default (one element).
// Output: the value of each element's key, else the default.
static inline int optc_lib_label_encoder(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0], *values = &call->inputs[2], *fallback = &call->inputs[3];
  const int64_t n = optc_lib_count(x);
  if (!optc_lib_allocate(call, 0, x->rank, x->dims)) return optc_lib_out_of_memory(call);
  OptcLibTensor *y = &call->outputs[0];
  const size_t size = optc_lib_element_size(values->type);
  const OptcLibKeys keys = optc_lib_keys(&call->inputs[1], n);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = optc_lib_find_key(&keys, x, i);
    const char *from = at < 0 ? (const char *)fallback->data : (const char *)values->data + (size_t)at * size;
    if (size == 8)  // a copy of known size is no call
      memcpy((char *)y->data + (size_t)i * 8, from, 8);
    else
      memcpy((char *)y->data + (size_t)i * size, from, size);
  }
  free(keys.slots);
  return 0;
}

// inputs: X (any type), keys (strings or i64, ascending), columns i64 (one a key); attribute
// zeros (0: an element without a key is an error). Output 0: f32 of X's dims and one more: 1 in the column of each
// element's key. Numbers are truncated to integers.
static inline int optc_lib_one_hot(OptcLibCall *call) {
  OptcLibTensor *y = &call->outputs[0];
  const int64_t n = optc_lib_count(&call->inputs[0]), width = y->dims[y->rank - 1];
  const int64_t *column = (const int64_t *)call->inputs[2].data;
  float *to = (float *)y->data;
  memset(to, 0, (size_t)(n * width) * sizeof(float));
  const OptcLibKeys keys = optc_lib_keys(&call->inputs[1], n);
  int known = 1;
  for (int64_t i = 0; i < n && known; ++i) {
    OptcLibTensor x = call->inputs[0];
    int64_t at = i, truncated;
    if (x.type != 8 && x.type != 7) {
      const double v = optc_lib_double(&x, i);
      truncated = v > -9.2e18 && v < 9.2e18 ? (int64_t)v : INT64_MIN;
      x.data = &truncated, x.type = 7, at = 0;
    }
    const int64_t k = optc_lib_find_key(&keys, &x, at);
    if (k >= 0)
      to[i * width + column[k]] = 1;
    else
      known = optc_lib_int_attribute(call, "zeros", 1) != 0;
  }
  free(keys.slots);
  return known ? 0 : optc_lib_fault(call, "OneHotEncoder: an element is none of the categories");
}
