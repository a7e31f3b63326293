#include "tests/ptx_emulator/async.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "ir/constant.h"

namespace optc::testing {

namespace {

[[noreturn]] void fault(const std::string &what) { throw PtxFault(what); }

// The 128-byte swizzle: chunks of 16 bytes change places by the line that they lie in, modulo 8.
uint64_t swizzled(uint64_t at) { return at ^ ((at >> 7 & 7) << 4); }

}  // namespace

PtxAsync::PtxAsync(std::vector<uint8_t> &shared, unsigned threads)
    : shared_(shared), warps_((threads + 31) / 32), landing_(shared.size() / kLine + 1), readers_(landing_.size()) {}

PtxAsync::Barrier &PtxAsync::barrier(uint64_t at) {
  const auto it = barriers_.find(at);
  if (it == barriers_.end()) fault("no barrier at " + std::to_string(at));
  return it->second;
}

void PtxAsync::barrier_init(uint64_t at, uint64_t arrivals) {
  if (at % 8 != 0 || at + 8 > shared_.size()) fault("a barrier at " + std::to_string(at));
  if (arrivals < 1 || arrivals >= 1 << 20) fault("a barrier of " + std::to_string(arrivals) + " arrivals");
  if (!barriers_.emplace(at, Barrier{arrivals, arrivals, 0, 0}).second) fault("a barrier is made twice");
  fenced_ = false;
}

void PtxAsync::settle(Barrier &b) {
  if (b.missing != 0 || b.bytes != 0) return;
  b.missing = b.arrivals;
  ++b.phases;
  ++version_;
}

void PtxAsync::barrier_arrive(uint64_t at, uint64_t bytes) {
  Barrier &b = barrier(at);
  if (b.missing == 0) fault("more arrivals than the barrier counts");
  b.bytes += static_cast<int64_t>(bytes);
  --b.missing;
  settle(b);
}

bool PtxAsync::barrier_passed(uint64_t at, uint64_t parity) { return (barrier(at).phases & 1) != (parity & 1); }

void PtxAsync::copy(uint64_t to, const EmulatedTensorMap &map, std::vector<int32_t> coordinates,
                    std::vector<uint32_t> offsets, uint64_t at, Read read) {
  if (map.mark != EmulatedTensorMap::kMark || map.rank != coordinates.size()) fault("no tensor map of that rank");
  if (map.image != !offsets.empty()) fault("a copy of boxes by an image's map, or of an image by another");
  if (!fenced_) fault("a copy before the barriers' making is fenced");
  for (size_t d = 0; d < offsets.size(); ++d) {
    if (offsets[d] > 255) fault("an offset of " + std::to_string(offsets[d]));
    const int64_t last = static_cast<int64_t>(map.extents[1 + d]) - 1 + map.upper[d];
    if (coordinates[1 + d] < map.lower[d] || coordinates[1 + d] > last) fault("a window that begins outside the walk");
  }
  uint64_t bytes = map.strides[0];
  for (uint32_t d = 0; d < map.rank; ++d) bytes *= map.box[d];
  if (to % kLine != 0 || to + bytes > shared_.size()) fault("a copy to " + std::to_string(to));
  barrier(at);
  for (uint64_t line = to / kLine; line < (to + bytes) / kLine; ++line) {
    if (readers_[line] > 0) fault("a copy to what a product still reads");
    if (landing_[line]++ > 0) fault("two copies to one place");
  }
  copies_.push_back({to, at, map, std::move(coordinates), std::move(offsets), std::move(read), bytes});
}

// The coordinates behind the first of each of the copy's lines.
std::vector<std::vector<int64_t>> PtxAsync::lines(const Copy &c) {
  const EmulatedTensorMap &map = c.map;
  std::vector<std::vector<int64_t>> all;
  std::vector<int64_t> at(c.coordinates.begin() + 1, c.coordinates.end());
  if (map.image) {
    for (uint32_t pixel = 0; pixel < map.box[1]; ++pixel) {
      all.push_back({at[0] + c.offsets[0], at[1] + c.offsets[1], at[2]});
      for (int d = 0; d < 2; ++d) {  // a step of the walk
        at[static_cast<size_t>(d)] += map.steps[d];
        if (at[static_cast<size_t>(d)] <= static_cast<int64_t>(map.extents[1 + d]) - 1 + map.upper[d]) break;
        at[static_cast<size_t>(d)] = map.lower[d];
        if (d == 1) ++at[2];
      }
    }
    return all;
  }
  const uint64_t width = map.box[0] * map.strides[0];
  for (uint64_t line = 0; line * width < c.bytes; ++line) {
    uint64_t rest = line;
    std::vector<int64_t> here = at;
    for (uint32_t d = 1; d < map.rank; ++d) {
      here[d - 1] += static_cast<int64_t>(rest % map.box[d]);
      rest /= map.box[d];
    }
    all.push_back(std::move(here));
  }
  return all;
}

void PtxAsync::land(size_t which) {
  const Copy c = std::move(copies_[which]);
  copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(which));
  const uint64_t width = c.map.box[0] * c.map.strides[0];
  uint64_t row = 0;
  for (const std::vector<int64_t> &line : lines(c)) {
    uint64_t address = c.map.address;
    bool inside = true;
    for (uint32_t d = 1; d < c.map.rank; ++d) {
      const int64_t at = line[d - 1];
      inside = inside && at >= 0 && at < static_cast<int64_t>(c.map.extents[d]);
      address += static_cast<uint64_t>(at) * c.map.strides[d];
    }
    for (uint64_t e = 0; e < c.map.box[0]; ++e) {
      const int64_t at = c.coordinates[0] + static_cast<int64_t>(e);
      uint8_t *to = shared_.data() + swizzled(c.to + row * width + e * c.map.strides[0]);
      if (inside && at >= 0 && at < static_cast<int64_t>(c.map.extents[0]))
        std::memcpy(to, c.read(address + static_cast<uint64_t>(at) * c.map.strides[0], 2), 2);
      else
        std::memset(to, 0, 2);
    }
    ++row;
  }
  for (uint64_t line = c.to / kLine; line < (c.to + c.bytes) / kLine; ++line) --landing_[line];
  Barrier &b = barrier(c.barrier);
  b.bytes -= static_cast<int64_t>(c.bytes);
  settle(b);
}

uint16_t PtxAsync::element(unsigned warp, uint64_t descriptor, bool across, unsigned outer, unsigned k) {
  const uint64_t start = (descriptor & 0x3FFF) << 4, leading = (descriptor >> 16 & 0x3FFF) << 4,
                 stride = (descriptor >> 32 & 0x3FFF) << 4;
  uint64_t at = start;
  if (across)
    at += outer / 64 * leading + outer % 64 * 2 + k / 8 * stride + k % 8 * 128;
  else
    at += outer / 8 * stride + outer % 8 * 128 + k * 2;
  at = swizzled(at);
  if (at + 2 > shared_.size()) fault("a product reads beyond shared memory");
  const uint64_t line = at / kLine;
  if (landing_[line] > 0) fault("a product reads what a copy has not brought");
  Warp &w = warps_[warp];
  const std::pair<uint64_t, uint64_t> reading{w.group, line};
  if (std::find(w.reading.rbegin(), w.reading.rend(), reading) == w.reading.rend()) {
    w.reading.push_back(reading);
    ++readers_[line];
  }
  uint16_t v;
  std::memcpy(&v, shared_.data() + at, 2);
  return v;
}

void PtxAsync::multiply(unsigned warp, PtxType type, unsigned n, uint64_t a, bool a_across, uint64_t b, bool b_across,
                        std::vector<float> &sums, bool accumulate) {
  if (!warps_[warp].fenced) fault("a product without wgmma.fence");
  for (uint64_t d : {a, b}) {
    if (d >> 62 != 1) fault("another swizzle than 128 bytes");
    if ((d >> 49 & 7) != 0 || ((d & 0x3FFF) << 4 & 0x380) != 0) fault("a matrix that begins inside of its pattern");
  }
  const auto number = [&](uint16_t bits) -> double {
    return type == PtxType::kBF16 ? bfloat16_to_float(bits) : half_to_float(bits);
  };
  std::vector<double> x(16 * 16), y(16 * n);
  for (unsigned r = 0; r < 16; ++r)
    for (unsigned k = 0; k < 16; ++k) x[r * 16 + k] = number(element(warp, a, a_across, 16 * (warp % 4) + r, k));
  for (unsigned c = 0; c < n; ++c)
    for (unsigned k = 0; k < 16; ++k) y[c * 16 + k] = number(element(warp, b, b_across, c, k));
  for (unsigned r = 0; r < 16; ++r)
    for (unsigned c = 0; c < n; ++c) {
      double sum = accumulate ? static_cast<double>(sums[r * n + c]) : 0;
      for (unsigned k = 0; k < 16; ++k) sum += x[r * 16 + k] * y[c * 16 + k];
      sums[r * n + c] = static_cast<float>(sum);
    }
}

void PtxAsync::commit(unsigned warp) {
  ++warps_[warp].group;
  warps_[warp].fenced = false;
}

void PtxAsync::wait(unsigned warp, size_t pending) {
  Warp &w = warps_[warp];
  const uint64_t closed = w.group - 1;
  if (closed > pending) w.completed = std::max(w.completed, closed - pending);
  std::erase_if(w.reading, [&](const auto &read) {
    if (read.first > w.completed) return false;
    --readers_[read.second];
    return true;
  });
}

void PtxAsync::touch(uint64_t at, unsigned bytes, bool write) const {
  for (uint64_t line = at / kLine; line <= (at + bytes - 1) / kLine && line < landing_.size(); ++line) {
    if (landing_[line] > 0) fault("an access to what a copy is filling");
    if (write && readers_[line] > 0) fault("a store to what a product still reads");
  }
}

}  // namespace optc::testing
