#pragma once
// report.html of a bundle: one page, no network, that says what the optimizer did, which kernels there are and where
// the memory goes. The same input gives the same bytes: it holds no times and no paths of the machine that made it.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "emit/quantized_weights.h"
#include "ir/graph/rewriter.h"
#include "ir/program/device_schedule.h"
#include "ir/program/placement.h"
#include "ir/program/program.h"

namespace optc {

struct ReportInput {
  std::string name;     // of the bundle
  std::string model;    // file name of the model, without its folder
  std::string version;  // of optc
  int64_t nodes_before = 0, nodes_after = 0;
  int64_t weight_bytes = 0;
  std::vector<std::string> targets;
  ElementType precision = ElementType::kFloat32;              // of --precision
  std::vector<std::pair<std::string, std::string>> kept;      // tensors that stayed f32 all the same, and why
  std::vector<std::pair<std::string, std::string>> gpu_kept;  // the same of the GPU's Program
  QuantizedWeights weights;                                   // of --quantize-weights
  const std::vector<RewriteRecord> *records = nullptr;        // not null
  const std::vector<MissedRewrite> *missed = nullptr;         // not null
  const Program *program = nullptr;                           // not null
  const MemoryPlan *memory = nullptr;                         // not null: of that Program's bundle
  struct Variant {
    std::string sizes;  // "N=1,S=128"
    const Program *program = nullptr;
    const MemoryPlan *memory = nullptr;
  };
  std::vector<Variant> variants;
  // The Program for GPU targets, where its kernels run, and each one's form there (parallel to its order); null: none.
  const Program *gpu_program = nullptr;
  const DeviceSchedule *gpu_schedule = nullptr;
  const std::vector<std::string> *gpu_forms = nullptr;
};

std::string report_html(const ReportInput &input);

// One line a rule: how often, its class, what it removed and created, an example. For `--opt-report` and the page.
struct RuleSummary {
  std::string rule, pass, example;  // example: a node that it changed
  NumericsClass numerics = NumericsClass::kExact;
  int64_t count = 0, removed = 0, created = 0;
};
std::vector<RuleSummary> summarize_rules(
    const std::vector<RewriteRecord> &records);  // most frequent first, then by name
struct MissedSummary {
  std::string rule, reason, example;
  int64_t count = 0;
};
std::vector<MissedSummary> summarize_missed(const std::vector<MissedRewrite> &missed);

}  // namespace optc
