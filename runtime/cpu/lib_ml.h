// lib_ml.h: tree ensembles and the classifiers' ends (ai.onnx.ml).
#pragma once
#include <math.h>

#include "lib_util.h"

static inline double optc_lib_probit(
    double p) {  // sqrt(2) * erfinv(2 p - 1), by Winitzki's approximation, as ONNX's runtimes do
  const double x = 2 * p - 1, y = (1 - x) * (1 + x);
  if (y <= 0) return 0;
  const double log_y = log(y), v = 2 / (3.14159265358979323846 * 0.147) + 0.5 * log_y, v2 = log_y / 0.147;
  const double r = sqrt(-v + sqrt(v * v - v2));
  return 1.41421356 * (x < 0 ? -r : r);
}
// post: 0 none, 1 softmax, 2 logistic, 3 softmax_zero, 4 probit. In place, over one row.
static inline void optc_lib_post_transform(double *row, int64_t n, int64_t post) {
  if (post == 2) {
    for (int64_t k = 0; k < n; ++k) {
      const double e = 1 / (1 + exp(-fabs(row[k])));
      row[k] = row[k] < 0 ? 1 - e : e;
    }
  } else if (post == 4) {
    for (int64_t k = 0; k < n; ++k) row[k] = optc_lib_probit(row[k]);
  } else if (post == 1 || post == 3) {
    double most = -INFINITY, sum = 0;
    for (int64_t k = 0; k < n; ++k) most = row[k] > most ? row[k] : most;
    for (int64_t k = 0; k < n; ++k) {
      row[k] = post == 3 && fabs(row[k]) <= 1e-7 ? row[k] * exp(-most) : exp(row[k] - most);
      sum += row[k];
    }
    for (int64_t k = 0; k < n; ++k) row[k] = sum == 0 ? 0.5 : row[k] / sum;
  }
}

// inputs: X [n, features]; nodes i64[m, 5] (feature, mode, true child, false child, NaN goes to true), thresholds
// f64[m], member_first i64[m + 1], members f64; leaf_first i64[l + 1], leaf_target i64, leaf_weight f64; roots i64[t].
// A child or root c >= 0 is node c, else leaf ~c. Modes: 0 <=, 1 <, 2 >=, 3 >, 4 ==, 5 !=, 6 member. Attributes:
// targets, aggregate (0 average, 1 sum, 2 min, 3 max), base_values, post, binary (0 no, 1 one score with weights that
// are not negative, 2 one score of mixed sign: gives two columns). Outputs: scores [n, targets]; winning class i64[n]
// (optional).
static inline int optc_lib_tree_ensemble(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0];
  const int64_t *nodes = (const int64_t *)call->inputs[1].data, *member_first = (const int64_t *)call->inputs[3].data;
  const double *threshold = (const double *)call->inputs[2].data, *members = (const double *)call->inputs[4].data;
  const int64_t *leaf_first = (const int64_t *)call->inputs[5].data,
                *leaf_target = (const int64_t *)call->inputs[6].data;
  const double *leaf_weight = (const double *)call->inputs[7].data;
  const int64_t *roots = (const int64_t *)call->inputs[8].data, trees = optc_lib_count(&call->inputs[8]);
  const int64_t rows = x->rank == 1 ? 1 : x->dims[0], features = x->rank == 1 ? x->dims[0] : x->dims[1];
  const int64_t targets = optc_lib_int_attribute(call, "targets", 1),
                aggregate = optc_lib_int_attribute(call, "aggregate", 1);
  const int64_t post = optc_lib_int_attribute(call, "post", 0), binary = optc_lib_int_attribute(call, "binary", 0);
  const OptcLibAttribute *base = optc_lib_attribute(call, "base_values");
  OptcLibTensor *scores = optc_lib_output(call, 0), *winner = optc_lib_output(call, 1);
  const int64_t columns = binary ? 2 : targets;
  double *row = (double *)malloc((size_t)(targets + 2) * 9);
  if (!row) return optc_lib_out_of_memory(call);
  char *seen = (char *)(row + targets + 2);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k < targets; ++k) row[k] = 0, seen[k] = 0;
    for (int64_t t = 0; t < trees; ++t) {
      int64_t at = roots[t];
      while (at >= 0) {
        const int64_t *node = nodes + 5 * at;
        if (node[0] < 0 || node[0] >= features) {
          free(row);
          return optc_lib_fault(call, "a tree reads a feature that the input does not have");
        }
        const double v = optc_lib_double(x, i * features + node[0]), s = threshold[at];
        int yes = 0;
        switch (node[1]) {
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
            for (int64_t m = member_first[at]; m < member_first[at + 1]; ++m) yes |= v == members[m];
        }
        if (v != v && node[4]) yes = 1;
        at = yes ? node[2] : node[3];
      }
      for (int64_t l = leaf_first[~at]; l < leaf_first[~at + 1]; ++l) {
        double *to = &row[leaf_target[l]];
        const double w = leaf_weight[l];
        if (aggregate <= 1) *to += w;
        if (aggregate == 2) *to = !seen[leaf_target[l]] || w < *to ? w : *to;
        if (aggregate == 3) *to = !seen[leaf_target[l]] || w > *to ? w : *to;
        seen[leaf_target[l]] = 1;
      }
    }
    for (int64_t k = 0; k < targets; ++k) {
      if (aggregate == 0) row[k] /= (double)trees;
      if (base && base->count == (size_t)targets)
        row[k] += base->floats[k];
      else if (base && base->count == 1)
        row[k] += base->floats[0];
    }
    int64_t best = 0;
    if (binary) {
      best = row[0] > (binary == 1 ? 0.5 : 0);
      if (post == 4) {
        row[1] = optc_lib_probit(row[0]), row[0] = 1 - row[1];
      } else if (binary == 1) {
        row[1] = row[0], row[0] = 1 - row[1];
      } else {
        row[1] = row[0], row[0] = -row[1];
        if (post == 2) optc_lib_post_transform(row, 2, post);
      }
    } else {
      for (int64_t k = 1; k < targets; ++k)
        if (row[k] > row[best]) best = k;
      optc_lib_post_transform(row, targets, post);
    }
    if (winner) ((int64_t *)winner->data)[i] = best;
    if (scores)
      for (int64_t k = 0; k < columns; ++k) optc_lib_set(scores, i * columns + k, row[k]);
  }
  free(row);
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

// inputs: X (any type), keys, values (two vectors), default (one element). Output: values[j] where X equals keys[j]
// (the last such j), else the default. NaN equals NaN.
static inline int optc_lib_label_encoder(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0], *keys = &call->inputs[1], *values = &call->inputs[2],
                      *fallback = &call->inputs[3];
  const int64_t n = optc_lib_count(x), m = optc_lib_count(keys);
  if (!optc_lib_allocate(call, 0, x->rank, x->dims)) return optc_lib_out_of_memory(call);
  OptcLibTensor *y = &call->outputs[0];
  const size_t size = optc_lib_element_size(values->type);
  for (int64_t i = 0; i < n; ++i) {
    const OptcLibTensor *from = fallback;
    int64_t at = 0;
    for (int64_t j = m; j-- > 0;) {
      int same;
      if (x->type == 8) {
        same = optc_lib_compare_strings((const OptcLibString *)x->data + i, (const OptcLibString *)keys->data + j) == 0;
      } else if (x->type == 7) {
        same = ((const int64_t *)x->data)[i] == ((const int64_t *)keys->data)[j];
      } else {
        const double a = optc_lib_double(x, i), b = optc_lib_double(keys, j);
        same = a == b || (a != a && b != b);
      }
      if (same) {
        from = values, at = j;
        break;
      }
    }
    memcpy((char *)y->data + (size_t)i * size, (const char *)from->data + (size_t)at * size, size);
  }
  return 0;
}
