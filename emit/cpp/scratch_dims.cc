#include "emit/cpp/scratch_dims.h"

#include <algorithm>

namespace optc {
namespace {

Dim round_up(Dim value, int64_t to) { return ceil_div(value, Dim(to)) * Dim(to); }

Dim output_length(const Strategy &s, Dim input, const char *k, const char *stride, const char *dilation,
                  const char *begin, const char *end) {
  const int64_t reach = (s.parameter(k, 1) - 1) * s.parameter(dilation, 1) + 1;
  return floor_div(input + Dim(s.parameter(begin, 0) + s.parameter(end, 0) - reach), Dim(s.parameter(stride, 1))) +
         Dim(1);
}

struct Output {
  Dim height, width;
};
Output output_of(const Strategy &s, Dim height, Dim width) {
  return {output_length(s, height, "kh", "sh", "dh", "pad_top", "pad_bottom"),
          output_length(s, width, "kw", "sw", "dw", "pad_left", "pad_right")};
}

}  // namespace

Dim direct_scratch_bytes(const Strategy &s, Dim height, Dim width) {
  const int64_t groups = s.parameter("groups", 1), own = s.parameter("oc", 1) / groups;
  int64_t joined = 1;
  while (own * joined < 16 && groups % (joined * 2) == 0) joined *= 2;
  const int64_t channels = s.parameter("c", 1) / (groups / joined);
  const Output out = output_of(s, height, width);
  const Dim rows = min(max(ceil_div(Dim(256), max(out.width, Dim(1))), Dim(1)), max(out.height, Dim(1)));
  const Dim bands = max(ceil_div(out.height, rows), Dim(1));
  const Dim in_rows = (ceil_div(out.height, bands) - Dim(1)) * Dim(s.parameter("sh", 1)) +
                      Dim((s.parameter("kh", 1) - 1) * s.parameter("dh", 1) + 1);
  const Dim in_columns =
      (out.width - Dim(1)) * Dim(s.parameter("sw", 1)) + Dim((s.parameter("kw", 1) - 1) * s.parameter("dw", 1) + 1);
  return (max(in_rows * in_columns, Dim(0)) * Dim(channels) + Dim(16)) * Dim(4);
}

Dim winograd_scratch_bytes(const Strategy &s, int64_t m, Dim batch, Dim height, Dim width) {
  const int64_t a = m + 2, c = s.parameter("c", 1), oc = s.parameter("oc", 1);
  const Output out = output_of(s, height, width);
  const Dim tiles = batch * ceil_div(out.height, Dim(m)) * ceil_div(out.width, Dim(m));
  const int64_t most = std::clamp<int64_t>(1048576 / (a * a * (c + oc) * 4), 12, 48);
  const Dim block = ceil_div(tiles, max(ceil_div(tiles, Dim(most)), Dim(1)));
  return (Dim(a * a * ((c + 15) / 16 * 16 + (oc + 15) / 16 * 16)) * block + Dim(64)) * Dim(4);
}

Dim attention_scratch_bytes(Dim queries, Dim keys, Dim width, Dim value_width) {
  constexpr int64_t kFewQueries = 4, kQueries = 64, kKeys = 1024;  // of runtime/cpu/attention_plan.h
  const Dim few = round_up(keys, 16), many = Dim(kQueries) * (width + value_width + min(keys, Dim(kKeys)));
  const Dim floats = queries.is_constant() ? (queries.value() <= kFewQueries ? few : many) : max(few, many);
  return (floats + Dim(64)) * Dim(4);
}

}  // namespace optc
