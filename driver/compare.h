#pragma once
// How far two values of one output are apart.

#include <cstdint>
#include <string>

#include "evaluate/evaluate.h"

namespace optc {

struct Tolerance {
  double relative_to_range =
      -1;            // of max|expected|; negative: by element type (f32 1e-4, f64 1e-6, f16 and bf16 2e-2, float8 0.25)
  double floor = 0;  // the tolerance by element type is at least this (driver/tolerance.h)
  double absolute = 0;  // differences up to this are equal whatever the range
  // What the model's own conditioning excuses, on top: a difference, and for integers, booleans and strings a number of
  // elements.
  double slack = 0;
  int64_t slack_elements = 0;
};
double default_tolerance(ElementType type);  // relative to the range; of exact types 0

struct Comparison {
  bool ok = false;
  std::string problem;  // why not, when it is not a matter of size: other type, dims, NaN in other places
  double max_difference = 0;
  double range = 0;       // max |expected|, finite elements
  double allowed = 0;     // what max_difference was compared with
  int64_t differing = 0;  // elements beyond `allowed`
  int64_t count = 0;
  int64_t nan = 0;        // expected elements that are NaN
  double median_ulp = 0;  // of the expected type's spacing, for floats
  double max_ulp = 0;
  double cosine = 1;        // of the angle between both as vectors, of finite elements of floats; 1 where one is zero
  bool same_argmax = true;  // along the last axis, for floats of rank >= 1 (ties within `allowed` count as the same)
};

double relative(const Comparison &comparison);  // max_difference of the range; of zeros the difference itself
Comparison compare(const RuntimeValue &actual, const RuntimeValue &expected, const Tolerance &tolerance);
// "max |Δ| 2.4e-06 of range 61.2, 3 ulp median" or the problem.
std::string describe(const Comparison &comparison);

}  // namespace optc
