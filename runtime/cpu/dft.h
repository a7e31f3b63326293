// dft.h: discrete Fourier transforms of any length in O(n log n), in f64.
//
// Lengths whose prime factors are small: Stockham's method with mixed radix (the order sorts itself). Others:
// Bluestein's, by a convolution whose length is a power of two.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// A transform of n complex numbers: its roots of unity and its memory. Made by optc_dft_plan, freed by optc_dft_free;
// one thread at a time uses it.
struct OptcDft {
  int64_t n, factors[64];
  int factor_count;
  double *roots;   // n cosines, then n sines, of -2 pi k / n
  double *work;    // 2 n
  int64_t padded;  // Bluestein: the length of the convolution; else 0
  double *chirp;   // cosines and sines of -pi k^2 / n
  double *kernel;  // 2 padded: the transform of the chirp's conjugate, divided by padded
  double *line;    // 2 padded
  OptcDft *inner;  // of length padded
};

// Factors up to this one are worth a butterfly of their own.
#define OPTC_DFT_LARGEST_FACTOR 31

static inline void optc_dft_free(OptcDft *d) {
  if (!d) return;
  optc_dft_free(d->inner);
  free(d->roots);
  free(d->work);
  free(d->chirp);
  free(d->kernel);
  free(d->line);
  free(d);
}

static inline double *optc_dft_doubles(int64_t count) {
  return count > 0 && (uint64_t)count < SIZE_MAX / sizeof(double) ? (double *)malloc((size_t)count * sizeof(double))
                                                                  : NULL;
}

// exp(-2 pi i k / n), from an angle within an eighth of the circle, where sine and cosine are most exact.
static inline void optc_dft_root(int64_t k, int64_t n, double *c, double *s) {
  const double pi = 3.14159265358979323846264338327950288;
  int64_t eighth = 8 * (k % n) / n;
  const double angle = 2 * pi * ((double)(8 * (k % n) - (eighth + eighth % 2) * n) / 8) / (double)n;
  const double x = cos(angle), y = sin(angle);
  switch ((eighth + 1) / 2 % 4) {
    case 0:
      *c = x, *s = -y;
      break;
    case 1:
      *c = -y, *s = -x;
      break;
    case 2:
      *c = -x, *s = y;
      break;
    default:
      *c = y, *s = x;
  }
}

// One pass: sums of r numbers that lie n / r apart (n: what is left to transform), `stride` transforms side by side.
static inline void optc_dft_pass(const OptcDft *d, int64_t r, int64_t n, int64_t stride, const double *re,
                                 const double *im, double *to_re, double *to_im) {
  const double *c = d->roots, *s = d->roots + d->n;
  const int64_t m = n / r, whole = d->n / r;
  for (int64_t p = 0; p < m; ++p) {
    if (r == 2) {
      const double wc = c[p * stride], ws = s[p * stride];
      const double *a = re + stride * p, *b = im + stride * p, *e = a + stride * m, *f = b + stride * m;
      double *x = to_re + stride * 2 * p, *y = to_im + stride * 2 * p;
      for (int64_t q = 0; q < stride; ++q) {
        const double u = a[q] - e[q], v = b[q] - f[q];
        x[q] = a[q] + e[q], y[q] = b[q] + f[q];
        x[q + stride] = u * wc - v * ws, y[q + stride] = u * ws + v * wc;
      }
    } else if (r == 4) {
      const double c1 = c[p * stride], s1 = s[p * stride], c2 = c[2 * p * stride], s2 = s[2 * p * stride],
                   c3 = c[3 * p * stride], s3 = s[3 * p * stride];
      const double *a = re + stride * p, *b = im + stride * p;
      const int64_t far = stride * m;
      double *x = to_re + stride * 4 * p, *y = to_im + stride * 4 * p;
      for (int64_t q = 0; q < stride; ++q) {
        const double ac = a[q] + a[q + 2 * far], am = a[q] - a[q + 2 * far], bc = b[q] + b[q + 2 * far],
                     bm = b[q] - b[q + 2 * far], ec = a[q + far] + a[q + 3 * far], em = a[q + far] - a[q + 3 * far],
                     fc = b[q + far] + b[q + 3 * far], fm = b[q + far] - b[q + 3 * far];
        x[q] = ac + ec, y[q] = bc + fc;
        const double u1 = am + fm, v1 = bm - em, u2 = ac - ec, v2 = bc - fc, u3 = am - fm, v3 = bm + em;
        x[q + stride] = u1 * c1 - v1 * s1, y[q + stride] = u1 * s1 + v1 * c1;
        x[q + 2 * stride] = u2 * c2 - v2 * s2, y[q + 2 * stride] = u2 * s2 + v2 * c2;
        x[q + 3 * stride] = u3 * c3 - v3 * s3, y[q + 3 * stride] = u3 * s3 + v3 * c3;
      }
    } else {
      for (int64_t j = 0; j < r; ++j) {
        const double wc = c[p * j * stride], ws = s[p * j * stride];
        double *x = to_re + stride * (r * p + j), *y = to_im + stride * (r * p + j);
        for (int64_t q = 0; q < stride; ++q) {
          double u = 0, v = 0;
          for (int64_t k = 0, w = 0; k < r; ++k) {
            const double a = re[q + stride * (p + k * m)], b = im[q + stride * (p + k * m)];
            u += a * c[w * whole] - b * s[w * whole];
            v += a * s[w * whole] + b * c[w * whole];
            w += j;
            if (w >= r) w -= r;
          }
          x[q] = u * wc - v * ws, y[q] = u * ws + v * wc;
        }
      }
    }
  }
}

// Transforms n numbers in place: X[k] = sum over j of x[j] exp(-2 pi i j k / n). The inverse (not divided by n) is the
// same with re and im exchanged.
static inline void optc_dft_run(OptcDft *d, double *re, double *im) {
  const int64_t n = d->n;
  if (!d->padded) {
    double *from_re = re, *from_im = im, *to_re = d->work, *to_im = d->work + n;
    int64_t left = n, stride = 1;
    for (int f = 0; f < d->factor_count; ++f) {
      const int64_t r = d->factors[f];
      optc_dft_pass(d, r, left, stride, from_re, from_im, to_re, to_im);
      double *t = from_re;
      from_re = to_re, to_re = t;
      t = from_im;
      from_im = to_im, to_im = t;
      left /= r, stride *= r;
    }
    if (from_re != re) {
      memcpy(re, from_re, (size_t)n * sizeof(double));
      memcpy(im, from_im, (size_t)n * sizeof(double));
    }
    return;
  }
  const int64_t m = d->padded;
  double *x = d->line, *y = d->line + m;
  const double *c = d->chirp, *s = d->chirp + n, *kc = d->kernel, *ks = d->kernel + m;
  memset(x, 0, (size_t)m * 2 * sizeof(double));
  for (int64_t k = 0; k < n; ++k) x[k] = re[k] * c[k] - im[k] * s[k], y[k] = re[k] * s[k] + im[k] * c[k];
  optc_dft_run(d->inner, x, y);
  for (int64_t k = 0; k < m; ++k) {
    const double u = x[k] * kc[k] - y[k] * ks[k];
    y[k] = x[k] * ks[k] + y[k] * kc[k], x[k] = u;
  }
  optc_dft_run(d->inner, y, x);
  for (int64_t k = 0; k < n; ++k) re[k] = x[k] * c[k] - y[k] * s[k], im[k] = x[k] * s[k] + y[k] * c[k];
}

// Of n >= 1 numbers. Null: there is not enough memory.
static inline OptcDft *optc_dft_plan(int64_t n) {
  if (n < 1 || n > INT64_C(1) << 40) return NULL;
  OptcDft *d = (OptcDft *)calloc(1, sizeof(OptcDft));
  if (!d) return NULL;
  d->n = n;
  int64_t rest = n;
  for (int64_t r = 4; rest > 1 && r <= OPTC_DFT_LARGEST_FACTOR; r = r == 4 ? 2 : r == 2 ? 3 : r + 2)
    while (rest % r == 0) d->factors[d->factor_count++] = r, rest /= r;
  if (rest == 1) {
    d->roots = optc_dft_doubles(2 * n);
    d->work = optc_dft_doubles(2 * n);
    if (d->roots && d->work) {
      for (int64_t k = 0; k < n; ++k) optc_dft_root(k, n, &d->roots[k], &d->roots[n + k]);
      return d;
    }
    optc_dft_free(d);
    return NULL;
  }
  int64_t m = 1;
  while (m < 2 * n - 1) m *= 2;
  d->padded = m;
  d->chirp = optc_dft_doubles(2 * n);
  d->kernel = optc_dft_doubles(2 * m);
  d->line = optc_dft_doubles(2 * m);
  d->inner = optc_dft_plan(m);
  if (!d->chirp || !d->kernel || !d->line || !d->inner) {
    optc_dft_free(d);
    return NULL;
  }
  memset(d->kernel, 0, (size_t)m * 2 * sizeof(double));
  for (int64_t k = 0, square = 0; k < n; ++k) {  // square: k^2 mod 2 n
    optc_dft_root(square, 2 * n, &d->chirp[k], &d->chirp[n + k]);
    const int64_t back = k ? m - k : 0;
    d->kernel[k] = d->kernel[back] = d->chirp[k] / (double)m;
    d->kernel[m + k] = d->kernel[m + back] = -d->chirp[n + k] / (double)m;
    square = (square + 2 * k + 1) % (2 * n);
  }
  optc_dft_run(d->inner, d->kernel, d->kernel + m);
  return d;
}
