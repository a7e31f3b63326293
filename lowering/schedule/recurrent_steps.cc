// The steps of a recurrent layer on a GPU (emit/ptx/recurrent.cc). A step is a product of few rows: what it takes is
// the time to fetch R from the second cache, so a block keeps in shared memory what of R has room there.
#include <algorithm>
#include <cstring>

#include "ir/program/recurrent.h"
#include "lowering/schedule/schedule.h"

namespace optc {
namespace {

constexpr int64_t kChunkBytes = 16;
constexpr int64_t kMostThreads = 1024, kMostRows = 4;
// Shared memory that a block of every GPU since sm_80 may have.
constexpr int64_t kSharedOfAll = 99 * 1024;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

std::optional<RecurrentStepsSchedule> recurrent_steps_schedule(const Program &program, const Kernel &kernel,
                                                               const LoweringOptions &options) {
  const LibraryCall &call = *kernel.library();
  if (call.function != "rnn_steps" || !reason_against_steps(program, call).empty()) return std::nullopt;
  const Buffer &r = program.buffer(call.inputs[RecurrentSteps::kR]);
  const auto cell = recurrent_cell(call, 0);
  RecurrentStepsSchedule s;
  s.gates = cell->gates;
  s.hidden = r.constant.dims()[2];
  s.weights = r.element();
  const int64_t directions = r.constant.dims()[0], columns = s.gates * s.hidden;
  // A block for each row while there are multiprocessors for them: rows of one block share what it fetches.
  const Dim batch = program.buffer(call.inputs[RecurrentSteps::kSums]).shape()[is_batch_first(call) ? 0 : 1];
  if (batch.is_constant())
    while (s.rows < kMostRows && batch.value() * directions > s.rows * options.machine->multiprocessors) s.rows *= 2;
  if (recurrent_steps_memory(s, false).bytes > kSharedOfAll) s.rows = 1;  // many units
  s.columns = std::min(ceil_div(columns, 32) * 32, kMostThreads);
  const int64_t all = ceil_div(s.hidden, s.chunk_elements());
  constexpr int64_t kLeastChunks = 4;  // of a part: below, meeting costs more than it saves
  while (2 * s.splits * s.columns <= kMostThreads && all >= 2 * s.splits * kLeastChunks) s.splits *= 2;
  s.chunks = ceil_div(all, s.splits);
  const int64_t room = options.warpgroups ? options.machine->block_shared_bytes : kSharedOfAll;
  const int64_t left = room - recurrent_steps_memory(s, cell->linear_before_reset).bytes;
  s.cached = std::clamp<int64_t>(left / (s.splits * columns * kChunkBytes), 0, s.chunks);
  return s;
}

void prepare(const Program &program, const Kernel &kernel, const AddConstant &add, RecurrentStepsSchedule &s) {
  const Buffer &r = program.buffer(kernel.library()->inputs[RecurrentSteps::kR]);
  const int64_t each = s.chunk_elements(), directions = r.constant.dims()[0], columns = s.gates * s.hidden,
                all = s.splits * s.chunks;
  std::vector<uint8_t> bytes(static_cast<size_t>(directions * all * columns * kChunkBytes));
  const auto size = static_cast<size_t>(kChunkBytes / each);
  const auto *from = static_cast<const uint8_t *>(r.constant.data());
  for (int64_t d = 0; d < directions; ++d)
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t k = 0; k < s.hidden; ++k) {
        const int64_t to = (((d * all + k / each) * columns + j) * each + k % each);
        std::memcpy(bytes.data() + size * static_cast<size_t>(to),
                    from + size * static_cast<size_t>((d * columns + j) * s.hidden + k), size);
      }
  s.r.buffer = add(r.name, Constant::owned(s.weights, {directions, all, columns, each}, std::move(bytes)));
}

}  // namespace optc
