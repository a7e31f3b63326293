#include <algorithm>
#include <limits>
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

constexpr size_t kMostWays = 4, kMostTunedWays = 8;  // that are said of a kernel

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
  Chooser(Program &program, const LoweringOptions &options, Steps &steps, std::vector<ScheduleChoice> &choices,
          Diagnostics &diagnostics)
      : p_(program), options_(options), steps_(steps), choices_(choices), diagnostics_(diagnostics) {
    for (const Buffer &b : p_.buffers) taken_.insert(b.name);
    if (options_.target != LoweringOptions::Target::kGpu) return;
    // On the host of a GPU run the bodies of control flow, and what has no GPU form.
    for (KernelId k : p_.order)
      if (reason_against_gpu(p_, p_.kernel(k)).empty()) on_gpu_.insert(k.index);
  }

  Status run() {
    for (size_t i = 0; i < p_.kernels.size(); ++i)
      if (p_.kernels[i].alive && !p_.kernels[i].control()) OPTC_TRY(choose(KernelId(i)));
    return {};
  }

 private:
  // Every schedule but the plain ones is a step.
  Status choose(KernelId id) {
    Kernel &kernel = p_.kernel(id);
    const bool plain = options_.target == LoweringOptions::Target::kGpu && !on_gpu_.count(id.index);
    std::vector<Schedule> list = plain ? std::vector<Schedule>() : candidates(p_, kernel, options_);
    ScheduleChoice said;
    said.kernel = kernel.name;
    const std::string *tuned = list.empty() ? nullptr : measured_way(kernel, said);
    std::optional<Schedule> chosen;
    Ways ways, all;   // that are allowed; also the others
    std::string way;  // of `chosen`
    double least = std::numeric_limits<double>::infinity();
    for (Schedule &schedule : list) {
      const Ways own = weigh(kernel, schedule, tuned);
      const bool is_tuned = tuned && has(own, *tuned);
      all.insert(all.end(), own.begin(), own.end());
      if (!steps_.allowed("schedule." + name(schedule))) continue;
      ways.insert(ways.end(), own.begin(), own.end());
      const double time = own[0].microseconds;  // 0: not modelled, the list is in the order of preference
      if (is_tuned || (!said.measured && (!chosen || time < least))) {
        chosen = std::move(schedule);
        way = is_tuned ? *tuned : own[0].what;
        least = time;
        said.measured = is_tuned;
      }
      if (time == 0 && !options_.tuning) break;
    }
    if (tuned && !has(all, *tuned)) return refuse(kernel, *tuned, all);
    if (!chosen) {
      kernel.schedule = kernel.nest() ? plain_form(kernel) : Schedule(LibrarySchedule{});
      return {};
    }
    steps_.record("schedule." + name(*chosen), kernel.name, kernel.origin);
    if (ways.size() > 1 || ways[0].microseconds > 0) say(std::move(said), std::move(ways), way);
    lay_out(id, *chosen);
    p_.kernel(id).schedule = std::move(*chosen);
    return {};
  }

  // The way that was measured to be the quickest for the form of the kernel; null: none was.
  const std::string *measured_way(const Kernel &kernel, ScheduleChoice &said) const {
    if (!options_.tuning || !kernel.nest()) return nullptr;
    said.form = schedule_form(p_, kernel, options_);
    const auto at = options_.tuning->ways.find(said.form);
    return at == options_.tuning->ways.end() ? nullptr : &at->second;
  }

  static bool has(const Ways &ways, const std::string &what) {
    return std::any_of(ways.begin(), ways.end(), [&](const ScheduleChoice::Way &w) { return w.what == what; });
  }

  Failure refuse(const Kernel &kernel, const std::string &tuned, const Ways &ways) {
    std::string list;
    for (const ScheduleChoice::Way &w : ways) list += (list.empty() ? "" : ", ") + w.what;
    return diagnostics_.error(
        ErrorKind::kUsage, "the tuning cache has kernel '" + kernel.name + "' run by '" + tuned + "', which it cannot",
        origin_text(p_, kernel), "it can run by " + list + "; `optc tune` measures anew");
  }

  // The chosen way first, the others by the model.
  void say(ScheduleChoice said, Ways ways, const std::string &way) {
    const auto quicker = [](const auto &x, const auto &y) { return x.microseconds < y.microseconds; };
    std::stable_sort(ways.begin(), ways.end(), quicker);
    const auto first = std::find_if(ways.begin(), ways.end(), [&](const auto &w) { return w.what == way; });
    std::rotate(ways.begin(), first, first + 1);
    const size_t most = options_.tuning ? kMostTunedWays : kMostWays;
    if (ways.size() > most) ways.resize(most);
    said.ranked = std::move(ways);
    choices_.push_back(std::move(said));
  }

  // The ways of a schedule, the quickest by the model first: its tiles, where it has some, of which it gets the best or
  // those of `tuned`; else itself, without a time.
  Ways weigh(const Kernel &kernel, Schedule &schedule, const std::string *tuned) {
    if (auto *product = std::get_if<GemmTensorCoreSchedule>(&schedule))
      return choose_tiles(p_, kernel, options_, tuned, *product);
    if (auto *product = std::get_if<GemmWarpgroupSchedule>(&schedule)) return choose_tiles(options_, tuned, *product);
    if (auto *product = std::get_if<ConvolutionWarpgroupSchedule>(&schedule))
      return choose_tiles(options_, tuned, *product);
    return {{name(schedule), 0}};
  }

  void lay_out(KernelId id, Schedule &schedule) {
    const AddConstant add = [this](const std::string &name, Constant value) { return packed(name, std::move(value)); };
    const Kernel &kernel = p_.kernel(id);
    if (auto *gemm = std::get_if<GemmSchedule>(&schedule)) prepare(p_, kernel, add, *gemm);
    if (auto *blocks = std::get_if<GemmBlocksSchedule>(&schedule)) prepare(p_, kernel, add, *blocks);
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
    std::vector<BufferId> &alike = packed_[{value.size(), value.beginning(64)}];
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
  Diagnostics &diagnostics_;
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
      add(gemm_blocks_schedule(program, kernel));
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

Status choose_schedules(Program &program, const LoweringOptions &options, Steps &steps,
                        std::vector<ScheduleChoice> &choices, Diagnostics &diagnostics) {
  return Chooser(program, options, steps, choices, diagnostics).run();
}

}  // namespace optc
