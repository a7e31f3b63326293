#pragma once
// Steps: each fusion, layout, storage and strategy choice that lowering makes is one, with a name, recorded in order
// and asked of one gate, as each rewrite of a Graph is. A step that is left out leaves a Program that computes the
// same, with more kernels or slower ones; so a wrong result is bisected through them (`optc verify --bisect-passes`),
// and
// `--disable-pass=fuse.epilogue` leaves out the steps of one name.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/program/lowering_step.h"

namespace optc {

// What `optc explain` shows of a name.
struct LoweringStepInfo {
  std::string_view name, summary, precondition;
};
std::span<const LoweringStepInfo> lowering_steps();
// Whether `given` (of --disable-pass) names the step or a family that it is of: "fuse", "schedule.conv".
bool names_step(std::string_view given, std::string_view step);

class Steps {
 public:
  // left_out: names of steps or families (names_step) that are not allowed.
  Steps(std::vector<std::string> left_out, int64_t most, std::vector<LoweringStep> &taken)
      : left_out_(std::move(left_out)), most_(most), taken_(taken) {}
  // Asked before the step is made.
  bool allowed(std::string_view name) const;
  // Told when it was made: about what, and of which nodes that is (Kernel::origin, origins_of a buffer).
  void record(std::string_view name, std::string where, std::vector<uint32_t> origin) {
    taken_.push_back({std::string(name), std::move(where), std::move(origin)});
  }

 private:
  std::vector<std::string> left_out_;
  int64_t most_;
  std::vector<LoweringStep> &taken_;
};

}  // namespace optc
