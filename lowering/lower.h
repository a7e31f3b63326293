#pragma once
// lowering/: Graph -> Program that is ready to be emitted. Starts from the unfused Program of ops/build and
//   1. tidies: loops of extent 1 vanish, views are read through                       (fusion/tidy.cc); sums what is
//      dequantized of 8-bit integers as integers                                      (fusion/dequantized.cc)
//   2. chooses the storage order of spatial tensors: channels last                    (layout/)
//   3. fuses producers into consumers, and consumers into epilogues                   (fusion/)
//   4. chooses what is stored in 16 bits, when asked to                              (precision/)
//   5. makes inputs and outputs that are one memory of the caller one                (state/)
//   6. chooses a schedule for each kernel and lays out constants for it               (schedule/)
//   7. places temporaries in one arena                                                (buffers/)
// There is one lowered Program for each target. Every choice is a step with a name (steps.h).

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/program/gpu_machine.h"
#include "ir/program/program.h"
#include "ir/program/schedule_choice.h"
#include "lowering/steps.h"
#include "lowering/tuning.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

// How f32 products are computed on a GPU: by three products of TF32 (near f32's accuracy), by one (10 bits), in f32.
enum class F32Products : uint8_t { kThreeTF32, kTF32, kIEEE };

struct LoweringOptions {
  enum class Target : uint8_t { kCpu, kGpu } target = Target::kCpu;
  bool fuse = true;
  bool channels_last = true;
  enum class Winograd : uint8_t { kAuto, kOff, kStrict } winograd = Winograd::kAuto;
  ElementType precision = ElementType::kFloat32;  // storage of f32 tensors: kFloat32, kFloat16 or kBFloat16
  std::vector<std::string> disabled;              // names or families of steps that are left out
  int64_t max_steps = INT64_MAX;                  // bisection: take the first so many steps only
  // Buffers that stay f32 because storing them in 16 bits costs too much, and why; by name.
  std::vector<std::pair<std::string, std::string>> keep_f32;
  // Inputs and outputs that are one memory of the caller, by name (state/state.h).
  std::vector<std::pair<std::string, std::string>> states;
  // Measured choices; null: none, and forms and ways that the model does not weigh are not listed.
  const TuningTable *tuning = nullptr;
  // Of a GPU: what choices are made for; how f32 products are computed.
  const GpuMachine *machine = &machine_of({});
  bool warpgroups = false;  // every target has them (all_have_warpgroups)
  F32Products f32 = F32Products::kThreeTF32;
  // A convolution of few channels has a copy of its image made only where it has so many products: below, the launch
  // costs more than it saves.
  int64_t least_window_products = 100000000;
  // To measure (bench/gpu): products by this tile of the list for their type (schedule/tensor_core_tiles.cc) and this
  // many blocks a tile, where they can have it; -1 and 0: as modelled.
  int tile = -1, splits = 0;
  int warpgroup_tile = -1;  // the same for products on warpgroups (schedule/warpgroup.cc)
};

struct PrecisionReport {
  int64_t temporaries = 0, constants = 0;                 // stored in 16 bits
  std::vector<std::string> narrow;                        // their names, in the Program's order
  std::vector<std::pair<std::string, std::string>> kept;  // buffers that stayed f32, and why
};

struct StateReport {
  std::string input, output;
  int axis = -1;                    // as in State
  bool in_place = false;            // else the input is copied before the first kernel
  std::vector<std::string> copies;  // what is copied, and for whom or why
};

struct LoweringReport {
  int64_t kernels_before = 0, kernels_after = 0;
  int64_t inlined = 0, epilogues = 0;  // fusions made
  PrecisionReport precision;
  std::vector<StateReport> states;
  std::vector<ScheduleChoice> choices;  // of kernels with more than one way
  std::vector<LoweringStep> steps;      // in the order in which they were taken
};

Result<Program> lower(const Graph &graph, const LoweringOptions &options, LoweringReport &report,
                      Diagnostics &diagnostics);
// The stages after ops/build, on a Program made elsewhere (tests, goldens).
Status lower_program(Program &program, const LoweringOptions &options, LoweringReport &report,
                     Diagnostics &diagnostics);

}  // namespace optc
