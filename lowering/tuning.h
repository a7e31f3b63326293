#pragma once
// Tuning: choices that were measured (`optc tune`, driver/tune.h) instead of modelled. Lowering takes them where it
// chooses (schedule/choose.cc): a form that the table has runs by the way that it names, which must be one of the
// kernel's own; every other one as the cost model says.

#include <map>
#include <string>

namespace optc {

// Of the ways that lowering offers, their names and the forms of kernels: raised when one of them changes its meaning,
// or a template its speed, so that measurements of another version are not taken.
inline constexpr int kSchedulesVersion = 2;

struct TuningTable {
  std::map<std::string, std::string> ways;  // of a form (ScheduleChoice::form): ScheduleChoice::Way::what
};

}  // namespace optc
