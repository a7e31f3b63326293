// runtime/cpu/attention.h: attention of f32 over blocks of keys.
#include "ir/program/contraction_view.h"
#include "lowering/schedule/schedule.h"

namespace optc {
namespace {

// Floats of scratch of a running task, as runtime/cpu/attention_plan.h has it: scores of one query after another where
// there are few, else of a block of queries, with their rows and results.
Dim scratch_floats(const AttentionSchedule &s) {
  constexpr int64_t kFewQueries = 4, kQueries = 64, kKeys = 1024;
  const Dim few = ceil_div(s.keys, Dim(16)) * Dim(16);
  const Dim many = Dim(kQueries) * (s.width + s.value_width + min(s.keys, Dim(kKeys)));
  // 1 where there are more than a few, else 0.
  const Dim is_many = min(max(s.queries - Dim(kFewQueries), Dim(0)), Dim(1));
  if (is_many.is_constant()) return (is_many.is(1) ? many : few) + Dim(64);
  return max(few * (Dim(1) - is_many), many * is_many) + Dim(64);
}

}  // namespace

std::optional<AttentionSchedule> attention_schedule(const Program &program, const Kernel &kernel) {
  auto schedule = attention_view(program, kernel);
  if (schedule) schedule->scratch_bytes = scratch_floats(*schedule) * Dim(4);
  return schedule;
}

}  // namespace optc
