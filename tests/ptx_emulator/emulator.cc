#include "tests/ptx_emulator/emulator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <stdexcept>

#include "ir/constant.h"
#include "tests/ptx_emulator/arithmetic.h"
#include "tests/ptx_emulator/async.h"
#include "tests/ptx_emulator/program.h"

namespace optc::testing {

// One block: its threads, shared memory and pending copies.
class PtxBlock {
 public:
  PtxBlock(PtxEmulator &machine, const PtxFunction &f, const PtxEmulator::Launch &launch, const int64_t *block,
           uint64_t seed)
      : machine_(machine),
        f_(f),
        launch_(launch),
        random_(seed),
        n_(launch.threads),
        shared_(launch.shared_bytes, 0xFF),
        async_(shared_, launch.threads) {
    for (int a = 0; a < 3; ++a) block_[a] = static_cast<uint32_t>(block[a]);
    registers_.assign(static_cast<size_t>(f.registers) * n_, 0xDEADBEEFDEADBEEF);
    pc_.assign(n_, 0);
    done_.assign(n_, false);
    waiting_.assign(n_, false);
    waited_.assign(n_, false);
    local_.assign(static_cast<size_t>(f.local_bytes) * n_, 0xFF);
    copies_.resize(n_);
    asleep_.assign(n_, 0);
    late_ = random_() % 2 == 0;
  }

  void run() {
    const unsigned warps = (n_ + 31) / 32;
    while (true) {
      std::vector<unsigned> ready;
      for (unsigned w = 0; w < warps; ++w)
        if (runnable(w)) ready.push_back(w);
      if (async_.copies() && (ready.empty() || (!late_ && random_() % 4 == 0))) {
        async_.land(random_() % async_.copy_count());
        continue;
      }
      if (ready.empty()) {
        for (unsigned t = 0; t < n_; ++t)
          if (sleeps(t))
            throw std::runtime_error(f_.name + ": a barrier in shared memory hangs, thread " + std::to_string(t));
        bool any = false;
        for (unsigned t = 0; t < n_; ++t) any = any || waiting_[t];
        if (!any) return;
        for (unsigned t = 0; t < n_; ++t)
          if (!done_[t] && !waiting_[t]) throw std::runtime_error("a barrier hangs");
        std::fill(waiting_.begin(), waiting_.end(), false);
        continue;
      }
      const unsigned w = ready[random_() % ready.size()];
      for (unsigned steps = 1 + random_() % 300; steps > 0 && runnable(w); --steps) step(w);
    }
  }

 private:
  struct Copy {
    uint64_t to, from;
    unsigned size, valid;
  };
  struct Copies {
    std::vector<Copy> open;
    std::vector<std::vector<Copy>> groups;
  };

  bool runnable(unsigned warp) const {
    for (unsigned t = 32 * warp; t < std::min(n_, 32 * warp + 32); ++t)
      if (!done_[t] && !waiting_[t] && !sleeps(t)) return true;
    return false;
  }
  // At a barrier in shared memory, of which nothing has changed since it looked.
  bool sleeps(unsigned t) const { return !done_[t] && asleep_[t] == async_.version(); }

  [[noreturn]] void fail(const PtxInstruction &i, unsigned thread, const std::string &what) {
    throw std::runtime_error(f_.name + " line " + std::to_string(i.line) + " thread " + std::to_string(thread) +
                             " of block " + std::to_string(block_[0]) + "," + std::to_string(block_[1]) + "," +
                             std::to_string(block_[2]) + ": " + what + ": " + i.text);
  }

  uint64_t &reg(unsigned t, int r) {
    if (r < 0) throw std::runtime_error(f_.name + ": no register");
    return registers_[static_cast<size_t>(t) * static_cast<size_t>(f_.registers) + static_cast<size_t>(r)];
  }

  uint64_t value(unsigned t, const PtxOperand &o) {
    switch (o.kind) {
      case PtxOperand::Kind::kRegister:
        return reg(t, o.reg);
      case PtxOperand::Kind::kImmediate:
        return o.bits;
      case PtxOperand::Kind::kSpecial: {
        const uint32_t kValues[12] = {t,
                                      0,
                                      0,
                                      block_[0],
                                      block_[1],
                                      block_[2],
                                      n_,
                                      1,
                                      1,
                                      static_cast<uint32_t>(launch_.grid[0]),
                                      static_cast<uint32_t>(launch_.grid[1]),
                                      static_cast<uint32_t>(launch_.grid[2])};
        return kValues[o.bits];
      }
      case PtxOperand::Kind::kParameter:
        return launch_.arguments.at(o.bits);
      default:
        return 0;
    }
  }

  uint8_t *memory(const PtxInstruction &i, unsigned t, PtxOp space, uint64_t address, unsigned bytes, bool write) {
    if (address % bytes != 0) fail(i, t, "misaligned address " + std::to_string(address));
    if (space == PtxOp::kLdShared) {
      if (address + bytes > shared_.size())
        fail(i, t, "shared address " + std::to_string(address) + " of " + std::to_string(shared_.size()));
      async_.touch(address, bytes, write);
      return shared_.data() + address;
    }
    if (space == PtxOp::kLdLocal) {
      if (address + bytes > f_.local_bytes) fail(i, t, "local address " + std::to_string(address));
      return local_.data() + static_cast<size_t>(t) * f_.local_bytes + address;
    }
    for (const auto &range : machine_.ranges_)
      if (address >= range.begin && address + bytes <= range.end) {
        if (write && !range.writable) fail(i, t, "write to read-only memory");
        check_visible(i, t, address, bytes, write);
        return reinterpret_cast<uint8_t *>(address);
      }
    fail(i, t, "global address out of bounds");
  }

  void check_visible(const PtxInstruction &i, unsigned t, uint64_t address, unsigned bytes, bool write) {
    if (write) {
      if (launch_.chained && !waited_[t]) fail(i, t, "a store before griddepcontrol.wait");
      for (uint64_t word = address / 4; word <= (address + bytes - 1) / 4; ++word) machine_.stored_.insert(word);
      return;
    }
    const bool early = launch_.chained && !waited_[t];
    if (!early && !i.read_only) return;
    for (uint64_t word = address / 4; word <= (address + bytes - 1) / 4; ++word)
      if (machine_.stored_.count(word))
        fail(i, t,
             early ? "a read of what a kernel stored, before griddepcontrol.wait"
                   : "ld.global.nc of what a kernel stored");
  }

  void land(const PtxInstruction &i, unsigned t, size_t keep) {
    auto &groups = copies_[t].groups;
    while (groups.size() > keep) {
      for (const Copy &c : groups.front()) {
        uint8_t *to = memory(i, t, PtxOp::kLdShared, c.to, c.size, true);
        std::memset(to, 0, c.size);
        if (c.valid) std::memcpy(to, memory(i, t, PtxOp::kLdGlobal, c.from, c.size, false), c.valid);
      }
      groups.erase(groups.begin());
    }
  }

  static bool is_warp_wide(PtxOp op) {
    return op == PtxOp::kShflBfly || op == PtxOp::kShflIdx || op == PtxOp::kLdMatrix || op == PtxOp::kMma ||
           op == PtxOp::kWarpSync || op == PtxOp::kRegisters || op == PtxOp::kWgmma || op == PtxOp::kWgmmaFence ||
           op == PtxOp::kWgmmaCommit || op == PtxOp::kWgmmaWait;
  }

  void step(unsigned warp) {
    const unsigned first = 32 * warp, last = std::min(n_, first + 32);
    // The lowest program counter that may go on: threads at a warp-wide instruction wait there for the others.
    int pc = -1, stuck = -1;
    for (int least = 0;; least = stuck + 1) {
      pc = -1;
      unsigned there = 0, everybody = 0;
      for (unsigned t = first; t < last; ++t) {
        everybody += !done_[t];
        if (done_[t] || waiting_[t] || sleeps(t) || pc_[t] < least) continue;
        if (pc < 0 || pc_[t] < pc) there = 0, pc = pc_[t];
        there += pc_[t] == pc;
      }
      if (pc < 0) break;
      if (!is_warp_wide(f_.code[static_cast<size_t>(pc)].op) || there == everybody) break;
      stuck = pc;
    }
    if (pc < 0) pc = stuck;  // nobody can: a fault
    const PtxInstruction &i = f_.code[static_cast<size_t>(pc)];
    std::vector<unsigned> active;
    unsigned alive = 0;
    for (unsigned t = first; t < last; ++t) {
      alive += !done_[t];
      if (done_[t] || waiting_[t] || sleeps(t) || pc_[t] != pc) continue;
      ++pc_[t];
      if (i.predicate >= 0 && ((reg(t, i.predicate) & 1) != 0) == i.negated) continue;
      active.push_back(t);
    }
    if (is_warp_wide(i.op)) {
      if (active.empty()) return;
      if (active.size() != 32 || alive != 32)
        fail(i, active[0], "the warp has diverged (" + std::to_string(active.size()) + " threads)");
    }
    switch (i.op) {
      case PtxOp::kShflBfly:
      case PtxOp::kShflIdx:
        return shuffle(i, first);
      case PtxOp::kLdMatrix:
        return ldmatrix(i, first);
      case PtxOp::kMma:
        return mma(i, first);
      case PtxOp::kWarpSync:
      case PtxOp::kRegisters:
        return;
      case PtxOp::kWgmma:
        return wgmma(i, warp);
      case PtxOp::kWgmmaFence:
        return async_.fence(warp);
      case PtxOp::kWgmmaCommit:
        return async_.commit(warp);
      case PtxOp::kWgmmaWait:
        async_.wait(warp, i.operands[0].bits);
        return;
      default:
        for (unsigned t : active) execute(i, t);
    }
  }

  void shuffle(const PtxInstruction &i, unsigned first) {
    uint64_t in[32];
    for (unsigned l = 0; l < 32; ++l) in[l] = value(first + l, i.operands[1]);
    for (unsigned l = 0; l < 32; ++l) {
      const unsigned b = static_cast<unsigned>(value(first + l, i.operands[2])) & 31;
      reg(first + l, i.operands[0].reg) = low_bits(in[i.op == PtxOp::kShflBfly ? l ^ b : b], 4);
    }
  }

  void ldmatrix(const PtxInstruction &i, unsigned first) {
    uint16_t m[4][8][8];
    for (unsigned l = 0; l < 32; ++l)
      std::memcpy(m[l / 8][l % 8], memory(i, first + l, PtxOp::kLdShared, address(first + l, i.operands[1]), 16, false),
                  16);
    for (unsigned l = 0; l < 32; ++l)
      for (unsigned j = 0; j < 4; ++j) {
        uint32_t v = 0;
        for (unsigned h = 0; h < 2; ++h) {
          const unsigned r = l / 4, c = 2 * (l % 4) + h;
          v |= static_cast<uint32_t>(i.transposed ? m[j][c][r] : m[j][r][c]) << (16 * h);
        }
        reg(first + l, i.operands[0].list[j]) = v;
      }
  }

  void mma(const PtxInstruction &i, unsigned first) {
    const bool tf32 = i.type == PtxType::kTF32;
    const int k = tf32 ? 8 : 16;
    double a[16][16], b[16][8], d[16][8];
    auto part = [&](uint64_t bits, int half) -> double {
      if (tf32) return as<float>(bits & 0xFFFFE000);
      const uint16_t h = static_cast<uint16_t>(bits >> (16 * half));
      return i.type == PtxType::kBF16 ? bfloat16_to_float(h) : half_to_float(h);
    };
    for (unsigned l = 0; l < 32; ++l) {
      const unsigned g = l / 4, t = l % 4;
      for (unsigned r = 0; r < 4; ++r)
        for (int h = 0; h < (tf32 ? 1 : 2); ++h) {
          const unsigned column = tf32 ? t + 4 * (r / 2) : 2 * t + static_cast<unsigned>(h) + 8 * (r / 2);
          a[g + 8 * (r % 2)][column] = part(reg(first + l, i.operands[1].list[r]), h);
        }
      for (unsigned r = 0; r < 2; ++r)
        for (int h = 0; h < (tf32 ? 1 : 2); ++h) {
          const unsigned row = tf32 ? t + 4 * r : 2 * t + static_cast<unsigned>(h) + 8 * r;
          b[row][g] = part(reg(first + l, i.operands[2].list[r]), h);
        }
      for (unsigned r = 0; r < 4; ++r)
        d[g + 8 * (r / 2)][2 * t + r % 2] = as<float>(reg(first + l, i.operands[3].list[r]));
    }
    for (int r = 0; r < 16; ++r)
      for (int c = 0; c < 8; ++c)
        for (int j = 0; j < k; ++j) d[r][c] += a[r][j] * b[j][c];
    for (unsigned l = 0; l < 32; ++l)
      for (unsigned r = 0; r < 4; ++r)
        reg(first + l, i.operands[0].list[r]) =
            bits_of(static_cast<float>(d[l / 4 + 8 * (r / 2)][2 * (l % 4) + r % 2]));
  }

  // The warp's 16 rows. A thread has pairs of columns of two rows, 8 apart.
  void wgmma(const PtxInstruction &i, unsigned warp) {
    const unsigned first = 32 * warp, n = i.size;
    const auto &o = i.operands;
    if (o.size() != 8 || o[0].list.size() != n / 2 || o[4].bits != 1 || o[5].bits != 1) fail(i, first, "operands");
    const bool accumulate = (value(first, o[3]) & 1) != 0;
    for (unsigned l = 1; l < 32; ++l)
      for (size_t k : {size_t{1}, size_t{2}, size_t{3}})
        if (value(first + l, o[k]) != value(first, o[k])) fail(i, first + l, "operands differ in a warp");
    std::vector<float> sums(16 * n);
    const auto each = [&](const auto &visit) {
      for (unsigned l = 0; l < 32; ++l)
        for (unsigned r = 0; r < n / 2; ++r)
          visit(first + l, o[0].list[r], (l / 4 + 8 * (r / 2 % 2)) * n + 8 * (r / 4) + 2 * (l % 4) + r % 2);
    };
    if (accumulate) each([&](unsigned t, int r, unsigned at) { sums[at] = as<float>(reg(t, r)); });
    try {
      async_.multiply(warp, i.type, n, value(first, o[1]), o[6].bits != 0, value(first, o[2]), o[7].bits != 0, sums,
                      accumulate);
    } catch (const PtxFault &e) {
      fail(i, first, e.what());
    }
    if (flight_.empty()) flight_.assign(registers_.size(), 0);
    each([&](unsigned t, int r, unsigned at) {
      reg(t, r) = bits_of(sums[at]);
      flight(t, r) = async_.open_group(warp);
    });
  }
  // The group of products that holds a register; 0: none ever did.
  uint64_t &flight(unsigned t, int r) {
    return flight_[static_cast<size_t>(t) * static_cast<size_t>(f_.registers) + static_cast<size_t>(r)];
  }
  // Nothing but a move (which the assembler takes away) and another product touches what a product holds.
  void check_flight(const PtxInstruction &i, unsigned t) {
    const auto free = [&](int r) { return r < 0 || async_.done(t / 32, flight(t, r)); };
    for (size_t k = 0; k < i.operands.size(); ++k) {
      const PtxOperand &o = i.operands[k];
      if (o.kind == PtxOperand::Kind::kRegister && i.op == PtxOp::kMov) {
        if (k == 1 && i.operands[0].kind == PtxOperand::Kind::kRegister)
          flight(t, i.operands[0].reg) = flight(t, o.reg);
        continue;
      }
      if (o.kind == PtxOperand::Kind::kRegister || o.kind == PtxOperand::Kind::kAddress)
        if (!free(o.reg)) fail(i, t, "a register that a product still holds");
      for (int r : o.list)
        if (!free(r)) fail(i, t, "a register that a product still holds");
    }
  }

  void tensor_copy(const PtxInstruction &i, unsigned t) {
    const auto &o = i.operands;
    EmulatedTensorMap map;
    std::memcpy(&map, reinterpret_cast<const void *>(value(t, o[1])), sizeof map);  // a parameter of the launch
    std::vector<int32_t> coordinates;
    for (int r : o[2].list) coordinates.push_back(static_cast<int32_t>(reg(t, r)));
    std::vector<uint32_t> offsets;
    if (o.size() > 4)
      for (int r : o[4].list) offsets.push_back(static_cast<uint32_t>(reg(t, r) & 0xFFFF));
    if (launch_.chained && !waited_[t]) fail(i, t, "a copy before griddepcontrol.wait");
    async_.copy(low(PtxOp::kLdShared, address(t, o[0])), map, std::move(coordinates), std::move(offsets),
                low(PtxOp::kLdShared, address(t, o[3])), [this, &i, t](uint64_t from, unsigned bytes) {
                  return memory(i, t, PtxOp::kLdGlobal, from, bytes, false);
                });
  }

  uint64_t address(unsigned t, const PtxOperand &o) { return o.reg < 0 ? o.bits : address_register(t, o.reg) + o.bits; }
  uint64_t address_register(unsigned t, int r) { return reg(t, r); }

  void execute(const PtxInstruction &i, unsigned t) {
    try {
      if (!flight_.empty()) check_flight(i, t);
      perform(i, t);
    } catch (const PtxFault &e) {
      fail(i, t, e.what());
    }
  }
  void perform(const PtxInstruction &i, unsigned t) {
    const auto &o = i.operands;
    const unsigned bytes = bytes_of(i.type);
    auto in = [&](size_t k) { return k < o.size() ? value(t, o[k]) : 0; };
    auto set = [&](uint64_t v) { reg(t, o[0].reg) = v; };
    switch (i.op) {
      case PtxOp::kMov:
        if (o[0].kind == PtxOperand::Kind::kVector) {  // unpack
          const unsigned piece = bytes / static_cast<unsigned>(o[0].list.size());
          for (size_t p = 0; p < o[0].list.size(); ++p)
            if (o[0].list[p] >= 0) reg(t, o[0].list[p]) = low_bits(in(1) >> (8 * piece * p), piece);
        } else if (o[1].kind == PtxOperand::Kind::kVector) {
          const unsigned piece = bytes / static_cast<unsigned>(o[1].list.size());
          uint64_t v = 0;
          for (size_t p = 0; p < o[1].list.size(); ++p) v |= low_bits(reg(t, o[1].list[p]), piece) << (8 * piece * p);
          set(v);
        } else {
          set(i.type == PtxType::kPred ? in(1) & 1 : low_bits(in(1), bytes));
        }
        return;
      case PtxOp::kCvta:
        set(in(1));
        return;
      case PtxOp::kBfi: {  // the low bits of one register into another, at a place
        const uint64_t at = in(3) & 0xFF, length = in(4) & 0xFF, width = 8 * bytes;
        const uint64_t ones = length >= 64 ? ~uint64_t{0} : (uint64_t{1} << length) - 1;
        const uint64_t mask = at >= width ? 0 : low_bits(ones << at, bytes);
        set((low_bits(in(2), bytes) & ~mask) | (at >= width ? 0 : in(1) << at & mask));
        return;
      }
      case PtxOp::kLdParam:
        set(low_bits(launch_.arguments.at(o[1].bits / 8), bytes));
        return;
      case PtxOp::kLdGlobal:
      case PtxOp::kLdShared:
      case PtxOp::kLdLocal: {
        const uint8_t *p = memory(i, t, i.op, low(i.op, address(t, o[1])), bytes * i.vector, false);
        for (unsigned k = 0; k < i.vector; ++k) {
          uint64_t v = 0;
          std::memcpy(&v, p + k * bytes, bytes);
          if (is_signed(i.type)) v = static_cast<uint64_t>(signed_value(v, bytes));
          if (i.vector > 1) {
            if (o[0].list[k] >= 0) reg(t, o[0].list[k]) = v;
          } else {
            set(v);
          }
        }
        return;
      }
      case PtxOp::kStGlobal:
      case PtxOp::kStShared:
      case PtxOp::kStLocal: {
        const PtxOp space = i.op == PtxOp::kStGlobal   ? PtxOp::kLdGlobal
                            : i.op == PtxOp::kStShared ? PtxOp::kLdShared
                                                       : PtxOp::kLdLocal;
        uint8_t *p = memory(i, t, space, low(space, address(t, o[0])), bytes * i.vector, true);
        for (unsigned k = 0; k < i.vector; ++k) {
          const uint64_t v = i.vector > 1 ? reg(t, o[1].list[k]) : in(1);
          std::memcpy(p + k * bytes, &v, bytes);
        }
        return;
      }
      case PtxOp::kSelp:
        set((in(3) & 1) ? in(1) : in(2));
        return;
      case PtxOp::kSetp: {
        bool r;
        if (i.type == PtxType::kF32) {
          const float x = as<float>(in(1)), y = as<float>(in(2));
          r = compare(i.compare, x, y, std::isnan(x) || std::isnan(y));
        } else if (i.type == PtxType::kF64) {
          const double x = as<double>(in(1)), y = as<double>(in(2));
          r = compare(i.compare, x, y, std::isnan(x) || std::isnan(y));
        } else if (i.type == PtxType::kF16) {
          const float x = half_to_float(static_cast<uint16_t>(in(1))), y = half_to_float(static_cast<uint16_t>(in(2)));
          r = compare(i.compare, x, y, std::isnan(x) || std::isnan(y));
        } else if (is_signed(i.type)) {
          r = compare(i.compare, signed_value(in(1), bytes), signed_value(in(2), bytes), false);
        } else {
          r = compare(i.compare, low_bits(in(1), bytes), low_bits(in(2), bytes), false);
        }
        set(r);
        return;
      }
      case PtxOp::kCvt:
        set(convert(i, in(1)));
        return;
      case PtxOp::kBra:
        pc_[t] = i.target;
        return;
      case PtxOp::kGridWait:
        waited_[t] = true;
        return;
      case PtxOp::kGridEarly:
      case PtxOp::kFence:
        return;
      case PtxOp::kBarrierFence:
        return async_.barrier_fence();
      case PtxOp::kBarrierInit:
        return async_.barrier_init(low(PtxOp::kLdShared, address(t, o[0])), in(1));
      case PtxOp::kBarrierExpect:
        return async_.barrier_arrive(low(PtxOp::kLdShared, address(t, o[1])), in(2));
      case PtxOp::kBarrierArrive:
        return async_.barrier_arrive(low(PtxOp::kLdShared, address(t, o[1])), 0);
      case PtxOp::kBarrierWait: {
        const bool passed = async_.barrier_passed(low(PtxOp::kLdShared, address(t, o[1])), in(2));
        set(passed);
        asleep_[t] = passed ? 0 : async_.version();
        return;
      }
      case PtxOp::kTensorCopy:
        return tensor_copy(i, t);
      case PtxOp::kAtomAdd: {
        uint8_t *p = memory(i, t, PtxOp::kLdGlobal, address(t, o[1]), 4, true);
        uint32_t old;
        std::memcpy(&old, p, 4);
        const uint32_t sum = old + static_cast<uint32_t>(in(2));
        std::memcpy(p, &sum, 4);
        set(old);
        return;
      }
      case PtxOp::kBar:
        waiting_[t] = true;
        return;
      case PtxOp::kRet:
        done_[t] = true;
        return;
      case PtxOp::kCpAsync: {
        const unsigned valid = o.size() > 3 ? static_cast<unsigned>(in(3)) : i.size;
        if (valid) check_visible(i, t, address(t, o[1]), i.size, false);
        copies_[t].open.push_back({address(t, o[0]) & 0xFFFFFFFF, address(t, o[1]), i.size, valid});
        return;
      }
      case PtxOp::kCpCommit:
        copies_[t].groups.push_back(std::move(copies_[t].open));
        copies_[t].open.clear();
        return;
      case PtxOp::kCpWait:
        land(i, t, o.empty() ? 0 : static_cast<size_t>(in(0)));
        return;
      default:
        break;
    }
    if (i.type == PtxType::kF32) {
      set(real_op<float>(i, in(1), in(2), in(3)));
      return;
    }
    if (i.type == PtxType::kF64) {
      set(real_op<double>(i, in(1), in(2), in(3)));
      return;
    }
    if (i.type == PtxType::kF16) {  // f32 has room for the exact sum or product, so that the result is rounded once
      auto wide = [&](size_t k) { return bits_of(static_cast<double>(half_to_float(static_cast<uint16_t>(in(k))))); };
      set(float_to_half(static_cast<float>(as<double>(real_op<double>(i, wide(1), wide(2), wide(3))))));
      return;
    }
    set(integer_op(i, in(1), in(2), in(3)));
  }

  static uint64_t low(PtxOp space, uint64_t a) { return space == PtxOp::kLdGlobal ? a : a & 0xFFFFFFFF; }

  PtxEmulator &machine_;
  const PtxFunction &f_;
  const PtxEmulator::Launch &launch_;
  std::mt19937_64 random_;
  unsigned n_;
  uint32_t block_[3];
  std::vector<uint64_t> registers_;
  std::vector<int> pc_;
  std::vector<bool> done_, waiting_, waited_;
  std::vector<uint8_t> shared_, local_;
  std::vector<Copies> copies_;
  PtxAsync async_;
  std::vector<uint64_t> asleep_;  // the version of the barriers at which a thread went to sleep
  std::vector<uint64_t> flight_;  // by register
  bool late_ = false;             // tensor copies land only when nothing else can go on
};

PtxEmulator::PtxEmulator(const std::string &text) {
  for (PtxFunction &f : parse_ptx(text)) {
    std::string name = f.name;
    functions_[name] = std::make_unique<PtxFunction>(std::move(f));
  }
}
PtxEmulator::~PtxEmulator() = default;

void PtxEmulator::add_memory(void *data, size_t bytes, bool writable) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(data);
  ranges_.push_back({begin, begin + bytes, writable});
}

void PtxEmulator::written_by_copy(uintptr_t address, size_t bytes) {
  if (stored_.empty()) return;
  for (uintptr_t word = address / 4; word < (address + bytes + 3) / 4; ++word) stored_.erase(word);
}

void PtxEmulator::run(const Launch &launch) {
  auto it = functions_.find(launch.function);
  if (it == functions_.end()) throw std::runtime_error("no entry " + launch.function);
  if (!launch.chained) stored_.clear();  // all launches before it are over, and seen
  uint64_t seed = launch.seed;
  for (int64_t z = 0; z < launch.grid[2]; ++z)
    for (int64_t y = 0; y < launch.grid[1]; ++y)
      for (int64_t x = 0; x < launch.grid[0]; ++x) {
        const int64_t block[3] = {x, y, z};
        PtxBlock(*this, *it->second, launch, block, ++seed).run();
      }
}

}  // namespace optc::testing
