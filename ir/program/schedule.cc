#include "ir/program/schedule.h"

#include <type_traits>

#include "ir/program/schedule_fields.h"

namespace optc {
namespace {

struct BufferCollector {
  std::vector<BufferId> &packed, &scratch;
  template <typename T>
  void operator()(const char *, const T &value) {
    if constexpr (HasFields<T>) fields(value, *this);
  }
  void operator()(const char *, const Packed &p) {
    if (p.buffer.valid()) packed.push_back(p.buffer);
  }
  void operator()(const char *, const Scratch &s) {
    if (s.buffer.valid()) scratch.push_back(s.buffer);
  }
  void operator()(const char *, const std::vector<RecurrentSchedule::Layer> &layers) {
    for (const RecurrentSchedule::Layer &layer : layers) fields(layer, *this);
  }
};

}  // namespace

std::string name(const Schedule &schedule) {
  if (const auto *winograd = std::get_if<ConvolutionWinogradSchedule>(&schedule))
    return std::string(ConvolutionWinogradSchedule::kName) + std::to_string(winograd->tile);
  return std::visit(
      [](const auto &s) -> std::string {
        using S = std::decay_t<decltype(s)>;
        if constexpr (std::is_same_v<S, std::monostate>)
          return "";
        else
          return std::string(S::kName);
      },
      schedule);
}

bool is_plain(const Schedule &schedule) {
  return std::visit([](const auto &s) { return PlainSchedule<std::decay_t<decltype(s)>>; }, schedule);
}

const ConvolutionOperands *convolution(const Schedule &schedule) {
  return std::visit(
      [](const auto &s) -> const ConvolutionOperands * {
        if constexpr (requires { s.operands; })
          return &s.operands;
        else
          return nullptr;
      },
      schedule);
}

ConvolutionOperands *convolution(Schedule &schedule) {
  return const_cast<ConvolutionOperands *>(convolution(static_cast<const Schedule &>(schedule)));
}

Dim task_scratch(const Schedule &schedule) {
  return std::visit(
      [](const auto &s) -> Dim {
        if constexpr (requires { s.scratch_bytes; })
          return s.scratch_bytes;
        else
          return 0;
      },
      schedule);
}

void collect_buffers(const Schedule &schedule, std::vector<BufferId> &packed, std::vector<BufferId> &scratch) {
  std::visit([&](const auto &s) { fields(s, BufferCollector{packed, scratch}); }, schedule);
}

}  // namespace optc
