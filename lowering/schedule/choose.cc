#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ir/program/gpu_launch.h"
#include "lowering/fusion/fusion.h"
#include "lowering/schedule/schedule.h"

namespace optc {
namespace {

constexpr size_t kMostWays = 4;  // that are said of a kernel

// The nest by itself.
Schedule plain_form(const Kernel &kernel) {
  const LoopNest &nest = *kernel.nest();
  if (nest.contraction) return LoopsSchedule{};
  if (is_map(kernel)) return MapSchedule{};
  const bool rows = !nest.sequential && std::all_of(nest.stages.begin(), nest.stages.end(),
                                                    [](const Stage &s) { return s.loops.size() <= 1; });
  return rows ? Schedule(RowsSchedule{}) : Schedule(LoopsSchedule{});
}

class Chooser {
 public:
  Chooser(Program &program, const LoweringOptions &options, Steps &steps, std::vector<ScheduleChoice> &choices)
      : p_(program), options_(options), steps_(steps), choices_(choices) {
    for (const Buffer &b : p_.buffers) taken_.insert(b.name);
    if (options_.target != LoweringOptions::Target::kGpu) return;
    // On the host of a GPU run the bodies of control flow, and what has no GPU form.
    for (KernelId k : p_.order)
      if (reason_against_gpu(p_, p_.kernel(k)).empty()) on_gpu_.insert(k.index);
  }

  void run() {
    for (size_t i = 0; i < p_.kernels.size(); ++i)
      if (p_.kernels[i].alive && !p_.kernels[i].control()) choose(KernelId(i));
  }

 private:
  // Every schedule but the plain ones is a step.
  void choose(KernelId id) {
    Kernel &kernel = p_.kernel(id);
    const bool plain = options_.target == LoweringOptions::Target::kGpu && !on_gpu_.count(id.index);
    std::optional<Schedule> chosen;
    ScheduleChoice weighed;
    for (Schedule &schedule : plain ? std::vector<Schedule>() : candidates(p_, kernel, options_)) {
      if (!steps_.allowed("schedule." + name(schedule))) continue;
      const ScheduleChoice ways = weigh(kernel, schedule);
      if (!chosen || (!ways.ranked.empty() && ways.ranked[0].microseconds < weighed.ranked[0].microseconds))
        chosen = std::move(schedule);
      weighed.kernel = kernel.name;
      weighed.ranked.insert(weighed.ranked.end(), ways.ranked.begin(), ways.ranked.end());
      std::stable_sort(weighed.ranked.begin(), weighed.ranked.end(),
                       [](const auto &x, const auto &y) { return x.microseconds < y.microseconds; });
      if (ways.ranked.empty()) break;
    }
    if (!chosen) {
      kernel.schedule = kernel.nest() ? plain_form(kernel) : Schedule(LibrarySchedule{});
      return;
    }
    steps_.record("schedule." + name(*chosen), kernel.name);
    if (weighed.ranked.size() > kMostWays) weighed.ranked.resize(kMostWays);
    if (!weighed.ranked.empty()) choices_.push_back(std::move(weighed));
    lay_out(id, *chosen);
    p_.kernel(id).schedule = std::move(*chosen);
  }

  // The tiles of a schedule that has some, and what they cost; empty for others.
  ScheduleChoice weigh(const Kernel &kernel, Schedule &schedule) {
    if (auto *product = std::get_if<GemmTensorCoreSchedule>(&schedule))
      return choose_tiles(p_, kernel, options_, *product);
    if (auto *product = std::get_if<GemmWarpgroupSchedule>(&schedule)) return choose_tiles(kernel, options_, *product);
    if (auto *product = std::get_if<ConvolutionWarpgroupSchedule>(&schedule))
      return choose_tiles(kernel, options_, *product);
    return {};
  }

  void lay_out(KernelId id, Schedule &schedule) {
    const AddConstant add = [this](const std::string &name, Constant value) { return packed(name, std::move(value)); };
    const Kernel &kernel = p_.kernel(id);
    if (auto *gemm = std::get_if<GemmSchedule>(&schedule)) prepare(p_, kernel, add, *gemm);
    if (auto *recurrent = std::get_if<RecurrentSchedule>(&schedule)) prepare(p_, kernel, add, *recurrent);
    if (auto *steps = std::get_if<RecurrentStepsSchedule>(&schedule)) prepare(p_, kernel, add, *steps);
    if (auto *integers = std::get_if<ConvolutionIntegerSchedule>(&schedule))
      prepare(p_, kernel, add, *integers);
    else if (convolution(schedule))
      prepare_convolution(p_, kernel, add, schedule);
  }

  // One constant for each distinct content and layout, under a name of its own.
  BufferId packed(const std::string &of, Constant value) {
    // Alike in size and beginning: few enough to be compared.
    const size_t bytes = value.size();
    std::string beginning(reinterpret_cast<const char *>(value.data()), std::min<size_t>(bytes, 64));
    std::vector<BufferId> &alike = packed_[{bytes, std::move(beginning)}];
    for (BufferId b : alike)
      if (p_.buffer(b).constant.equals(value)) return b;
    Buffer buffer;
    buffer.name = unique(of + "_packed");
    buffer.kind = BufferKind::kConstant;
    buffer.type = Type::tensor(value.type(), value.shape());
    buffer.constant = std::move(value);
    alike.push_back(p_.add_buffer(std::move(buffer)));
    return alike.back();
  }

  std::string unique(const std::string &wish) {
    std::string name = wish;
    for (int &n = suffix_[wish]; !taken_.insert(name).second;) name = wish + std::to_string(++n + 1);
    return name;
  }

  Program &p_;
  const LoweringOptions &options_;
  Steps &steps_;
  std::vector<ScheduleChoice> &choices_;
  std::unordered_set<uint32_t> on_gpu_;
  std::unordered_set<std::string> taken_;  // names of buffers
  std::unordered_map<std::string, int> suffix_;
  std::map<std::pair<size_t, std::string>, std::vector<BufferId>> packed_;
};

}  // namespace

std::vector<Schedule> candidates(const Program &program, const Kernel &kernel, const LoweringOptions &options) {
  std::vector<Schedule> list;
  const auto add = [&](auto &&schedule) {
    if (schedule) list.push_back(std::move(*schedule));
  };
  if (options.target == LoweringOptions::Target::kGpu) {
    if (kernel.library()) add(recurrent_steps_schedule(program, kernel, options));
    if (!kernel.nest() || !kernel.nest()->contraction) return list;
    add(strips_schedule(program, kernel, options));
    auto product = tensor_core_schedule(program, kernel, options.f32);
    if (product) {
      add(warpgroup_schedule(program, kernel, *product, options));
      if (list.empty()) add(convolution_warpgroup_schedule(program, kernel, *product, options));
    }
    add(std::move(product));
    return list;
  }
  if (kernel.library()) add(recurrent_schedule(program, kernel));
  const LoopNest *nest = kernel.nest();
  if (!nest || !nest->contraction) return list;
  switch (nest->contraction->kind) {
    case ContractionKind::kMatMul:
      add(gemm_schedule(program, kernel));
      break;
    case ContractionKind::kConvolution:
      return convolution_schedules(program, kernel, options);
    case ContractionKind::kAttention:
      add(attention_schedule(program, kernel));
      break;
  }
  return list;
}

bool forfeits_template(const Program &program, const Kernel &before, const Kernel &after,
                       const LoweringOptions &options) {
  return !candidates(program, before, options).empty() && candidates(program, after, options).empty();
}

void choose_schedules(Program &program, const LoweringOptions &options, Steps &steps,
                      std::vector<ScheduleChoice> &choices) {
  Chooser(program, options, steps, choices).run();
}

}  // namespace optc
