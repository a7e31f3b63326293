// lib_svm.h: the decision of support vector classifiers (ai.onnx.ml SVMClassifier) from the values of the kernel.
#pragma once
#include "lib_ml.h"

// Probabilities p of n classes from those of each pair: pair[i * n + j] = P(class i | class i or j). The second
// approach of Wu, Lin and Weng, "Probability Estimates for Multi-class Classification by Pairwise Coupling", JMLR 5
// (2004): minimizes the sum of (pair[j][i] p[i] - pair[i][j] p[j])^2 by coordinate descent. `work` holds n * n + n
// numbers.
static inline void optc_lib_couple(const double *pair, int64_t n, double *p, double *work) {
  double *q = work, *qp = work + n * n;
  for (int64_t i = 0; i < n; ++i) {
    p[i] = 1.0 / (double)n;
    double sum = 0;
    for (int64_t j = 0; j < n; ++j) {
      if (j == i) continue;
      sum += pair[j * n + i] * pair[j * n + i];
      q[i * n + j] = -pair[j * n + i] * pair[i * n + j];
    }
    q[i * n + i] = sum;
  }
  const int64_t rounds = n > 100 ? n : 100;
  for (int64_t round = 0; round < rounds; ++round) {
    double pqp = 0, error = 0;
    for (int64_t i = 0; i < n; ++i) {
      qp[i] = 0;
      for (int64_t j = 0; j < n; ++j) qp[i] += q[i * n + j] * p[j];
      pqp += p[i] * qp[i];
    }
    for (int64_t i = 0; i < n; ++i) error = fabs(qp[i] - pqp) > error ? fabs(qp[i] - pqp) : error;
    if (error < 0.005 / (double)n) return;
    for (int64_t i = 0; i < n; ++i) {
      const double step = (pqp - qp[i]) / q[i * n + i], scale = 1 / (1 + step);
      p[i] += step;
      pqp = (pqp + step * (step * q[i * n + i] + 2 * qp[i])) * scale * scale;
      for (int64_t j = 0; j < n; ++j) {
        qp[j] = (qp[j] + step * q[i * n + j]) * scale;
        p[j] *= scale;
      }
    }
  }
}

// inputs: kernel values K [rows, vectors] f32, coefficients [classes - 1, vectors] f32 (those of class i against class
// j > i in row j - 1, of class j against i in row i), vectors sorted by class. Attributes: vectors_per_class, rho and
// (optional) prob_a, prob_b, one a pair (0,1), (0,2), ..; post (lib_ml.h). A pair's decision is rho + the sum of
// coefficients times K over both classes' vectors; the class with the most votes wins, the first of equals. Outputs
// (optional): scores: probabilities [rows, classes] when there is prob_a, else [rows, 2] of two classes, else the
// decisions [rows, pairs]; class numbers i64[rows].
static inline int optc_lib_svm_classify(OptcLibCall *call) {
  const OptcLibTensor *kernel = &call->inputs[0];
  const float *k_values = (const float *)kernel->data, *coefficients = (const float *)call->inputs[1].data;
  const int64_t rows = kernel->dims[0], vectors = kernel->dims[1], post = optc_lib_int_attribute(call, "post", 0);
  const OptcLibAttribute *per_class = optc_lib_attribute(call, "vectors_per_class");
  const float *rho = optc_lib_attribute(call, "rho")->floats;
  const OptcLibAttribute *prob_a = optc_lib_attribute(call, "prob_a"), *prob_b = optc_lib_attribute(call, "prob_b");
  const int64_t n = (int64_t)per_class->count, pairs = n * (n - 1) / 2;
  OptcLibTensor *scores = optc_lib_output(call, 0), *winner = optc_lib_output(call, 1);
  double *decision = (double *)malloc((size_t)(pairs + 2 + 2 * n * n + 3 * n) * sizeof(double));
  if (!decision) return optc_lib_out_of_memory(call);
  double *pair = decision + pairs + 2, *p = pair + n * n, *votes = p + n, *work = votes + n;
  for (int64_t row = 0; row < rows; ++row) {
    const float *k = k_values + row * vectors;
    for (int64_t i = 0; i < n; ++i) votes[i] = 0;
    int64_t at = 0, first_i = 0;
    for (int64_t i = 0; i < n; first_i += per_class->ints[i++]) {
      int64_t first_j = first_i + per_class->ints[i];
      for (int64_t j = i + 1; j < n; first_j += per_class->ints[j++], ++at) {
        const float *ci = coefficients + (j - 1) * vectors, *cj = coefficients + i * vectors;
        double sum = rho[at];
        for (int64_t v = first_i; v < first_i + per_class->ints[i]; ++v) sum += (double)ci[v] * k[v];
        for (int64_t v = first_j; v < first_j + per_class->ints[j]; ++v) sum += (double)cj[v] * k[v];
        decision[at] = sum;
        votes[sum > 0 ? i : j] += 1;
        if (!prob_a) continue;
        const double likely = 1 - optc_lib_logistic(sum * prob_a->floats[at] + prob_b->floats[at]);
        const double bounded = likely < 1e-7 ? 1e-7 : likely > 1 - 1e-7 ? 1 - 1e-7 : likely;
        pair[i * n + j] = bounded;
        pair[j * n + i] = 1 - bounded;
      }
    }
    int64_t best = 0;
    for (int64_t i = 1; i < n; ++i)
      if (votes[i] > votes[best]) best = i;
    if (winner) ((int64_t *)winner->data)[row] = best;
    if (!scores) continue;
    const double *from = decision;
    int64_t columns = pairs;
    if (prob_a) {
      optc_lib_couple(pair, n, p, work);
      optc_lib_post_transform(p, n, post);
      from = p, columns = n;
    } else if (n == 2) {
      optc_lib_two_scores(decision, post == 0, post);
      columns = 2;
    } else {
      optc_lib_post_transform(decision, pairs, post);
    }
    for (int64_t c = 0; c < columns; ++c) optc_lib_set(scores, row * columns + c, from[c]);
  }
  free(decision);
  return 0;
}
