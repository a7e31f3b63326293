#include "emit/ptx/warpgroup.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

namespace optc::ptx {

namespace {

constexpr int kLineBytes = 128;                     // 64 contiguous elements
constexpr int kBoxBytes = 64 * kLineBytes;          // and 64 of the other index
constexpr int kSharedRowBytes = 4 * kWarpgroupRow;  // of sums
constexpr int kWarpBytes = 16 * kSharedRowBytes;
constexpr int kGroup = 8;  // rows of tiles that are walked together

class WarpgroupKernel {
 public:
  WarpgroupKernel(Builder &b, const WarpgroupGemm &g) : b_(b), g_(g), t_(g.tile) {
    sharing_ = t_.turns ? 1 : t_.warpgroups;
    blocks_m_ = t_.m / 64 / sharing_;
    per_block_ = t_.n / 2;
    a_bytes_ = t_.m * kLineBytes;
    stage_bytes_ = a_bytes_ + t_.n * kLineBytes;
  }

  void emit() {
    const unsigned ring = b_.reserve_shared(static_cast<unsigned>(t_.stages * stage_bytes_), 1024);
    const unsigned rows =
        g_.by_shuffles ? 0 : b_.reserve_shared(static_cast<unsigned>(t_.warpgroups * 4 * kWarpBytes), 16);
    const unsigned barriers = b_.reserve_shared(static_cast<unsigned>(8 * (2 * t_.stages + 2)), 8);
    Value start = b_.shared_start();
    ring_ = b_.add(start, ring);
    if (!g_.by_shuffles) rows_ = b_.add(start, rows);
    full_ = b_.add(start, barriers);
    empty_ = b_.add(full_, 8 * t_.stages);
    turn_ = b_.add(empty_, 8 * t_.stages);
    group_ = b_.shr(b_.warp(), 2);
    steps_of_tap_ = b_.div(b_.add(g_.k, kWarpgroupDepth - 1), kWarpgroupDepth);
    steps_ = b_.mul(steps_of_tap_, g_.taps);
    tiles_m_ = b_.div(b_.add(g_.m, t_.m - 1), t_.m);
    tiles_n_ = b_.div(b_.add(g_.n, t_.n - 1), t_.n);
    in_batch_ = b_.mul(tiles_m_, tiles_n_);
    tiles_ = b_.mul(in_batch_, g_.batches);

    b_.when(b_.ir.CreateICmpEQ(b_.tid(), b_.i32(0)), [&] {
      for (int s = 0; s < t_.stages; ++s) {
        barrier_init(b_, b_.add(full_, 8 * s), 1);
        barrier_init(b_, b_.add(empty_, 8 * s), 4 * sharing_);  // the warps that read a stage
      }
      for (int w = 0; w < 2 && t_.turns; ++w) barrier_init(b_, b_.add(turn_, 8 * w), 4);
      barrier_init_fence(b_);
    });
    b_.barrier();
    b_.wait_for_kernels_before();
    b_.either(
        b_.lt(group_, b_.i32(t_.warpgroups)),
        [&] {
          if (t_.warpgroups > 1) set_registers(b_, 232, true);
          consume();
          return Values{};
        },
        [&] {
          if (t_.warpgroups > 1) set_registers(b_, 40, false);
          b_.when(b_.ir.CreateICmpEQ(b_.tid(), b_.i32(128 * t_.warpgroups)), [&] { produce(); });
          return Values{};
        });
  }

 private:
  struct Place {
    Value batch, row, column;  // the tile's corner
  };
  // Groups of rows of tiles are walked column by column, so that blocks that run at one time share what they fetch.
  Place corner(Value tile) {
    Value batch = b_.div(tile, in_batch_), at = b_.rem(tile, in_batch_);
    Value of_group = b_.mul(tiles_n_, kGroup), first = b_.mul(b_.div(at, of_group), kGroup),
          rest = b_.rem(at, of_group);
    Value height = b_.min(b_.sub(tiles_m_, first), b_.i32(kGroup));
    return {batch, b_.mul(b_.add(first, b_.rem(rest, height)), t_.m), b_.mul(b_.div(rest, height), t_.n)};
  }
  struct Slot {
    Value stage, phase;  // i32; the phase is that of the next wait: 0 or 1
  };
  Slot next(const Slot &s) {
    Value up = b_.add(s.stage, 1), wrap = b_.ir.CreateICmpEQ(up, b_.i32(t_.stages));
    return {b_.ir.CreateSelect(wrap, b_.i32(0), up), b_.ir.CreateXor(s.phase, b_.ir.CreateZExt(wrap, b_.t_i32()))};
  }
  Value barrier_of(Value first, Value stage) { return b_.add(first, b_.shl(stage, 3)); }

  // --- The warpgroup that fetches: one thread of it.
  void produce() {
    b_.loop(b_.block(0), tiles_, b_.i32(g_.blocks), {b_.i32(0), b_.i32(1)}, [&](Value tile, const Values &in) {
      const Place place = corner(tile);
      const Values batch = g_.batch_coordinates(place.batch);
      const Fetched a{g_.a, place.row, t_.m, window(g_.a, place.row, batch)},
          other{g_.b, place.column, t_.n, window(g_.b, place.column, batch)};
      return b_.loop(b_.i32(0), steps_, b_.i32(1), in, [&](Value step, const Values &state) {
        const Slot slot{state[0], state[1]};
        Value full = barrier_of(full_, slot.stage), tap = g_.taps > 1 ? b_.div(step, steps_of_tap_) : b_.i32(0);
        Value k0 = b_.mul(g_.taps > 1 ? b_.rem(step, steps_of_tap_) : step, kWarpgroupDepth);
        barrier_wait(b_, barrier_of(empty_, slot.stage), slot.phase);
        barrier_expect(b_, full, stage_bytes_);
        Value at = b_.add(ring_, b_.mul(slot.stage, stage_bytes_));
        fetch(a, at, k0, tap, full);
        fetch(other, b_.add(at, a_bytes_), k0, tap, full);
        const Slot up = next(slot);
        return Values{up.stage, up.phase};
      });
    });
  }
  // An operand's part of a tile: from its row (column) `first` on.
  struct Fetched {
    const WarpgroupGemm::Operand &operand;
    Value first;
    int extent;
    Values behind;  // coordinates behind those that steps move
  };
  Values window(const WarpgroupGemm::Operand &o, Value first, const Values &batch) {
    return o.image ? o.image->window(first) : batch;
  }
  void fetch(const Fetched &f, Value to, Value k0, Value tap, Value full) {
    const WarpgroupGemm::Operand &o = f.operand;
    if (o.image) {
      Values where{k0};
      where.insert(where.end(), f.behind.begin(), f.behind.end());
      return tma_load_image(b_, to, o.map, where, o.image->offsets(tap), full);
    }
    Values behind = f.behind;
    if (g_.tap_coordinates)
      for (Value v : g_.tap_coordinates(tap)) behind.push_back(v);
    const auto box = [&](Value at, Value contiguous, Value other) {
      Values where{contiguous, other};
      where.insert(where.end(), behind.begin(), behind.end());
      tma_load(b_, at, o.map, where, full);
    };
    if (o.k_contiguous) return box(to, k0, f.first);
    for (int i = 0; i < f.extent / 64; ++i) box(b_.add(to, i * kBoxBytes), b_.add(f.first, 64 * i), k0);
  }

  // --- Those that multiply
  void consume() {
    const bool turns = t_.turns;
    Value first = b_.block(0);
    if (turns) first = b_.add(first, b_.mul(group_, g_.blocks));
    // In turns the other warpgroup's steps lie between: this one's first is behind them.
    Slot slot = turns ? skip({b_.i32(0), b_.i32(0)}, b_.mul(group_, steps_)) : Slot{b_.i32(0), b_.i32(0)};
    Values state{slot.stage, slot.phase};
    if (turns) state.push_back(b_.ir.CreateXor(group_, b_.i32(1)));
    b_.loop(first, tiles_, b_.i32(turns ? 2 * g_.blocks : g_.blocks), state, [&](Value tile, const Values &in) {
      if (turns) barrier_wait(b_, b_.add(turn_, b_.shl(group_, 3)), in[2]);
      Slot at{in[0], in[1]};
      const Values sums = multiply(at);
      finish(tile, sums);
      Values out{at.stage, at.phase};
      if (turns) {
        at = skip(at, steps_);
        out = {at.stage, at.phase, b_.ir.CreateXor(in[2], b_.i32(1))};
      }
      return out;
    });
  }
  Slot skip(const Slot &s, Value steps) {
    Value at = b_.add(s.stage, steps);
    return {b_.rem(at, t_.stages), b_.ir.CreateXor(s.phase, b_.and_(b_.div(at, t_.stages), 1))};
  }
  // This warp has read the stage: TMA may fill it again.
  void release(Value stage, Value condition) {
    Value lead = b_.ir.CreateICmpEQ(b_.lane(), b_.i32(0));
    barrier_arrive_if(b_, barrier_of(empty_, stage), condition ? b_.both(lead, condition) : lead);
  }

  // The sums of a tile, from `slot` on, which is then the one behind.
  Values multiply(Slot &slot) {
    const size_t count = static_cast<size_t>(blocks_m_ * per_block_);
    // All of k in one step: what is behind it is 0.
    const auto *k = llvm::dyn_cast<llvm::ConstantInt>(g_.k);
    const int depth = k && k->getZExtValue() < kWarpgroupDepth ? static_cast<int>((k->getZExtValue() + 15) / 16)
                                                               : kWarpgroupDepth / 16;
    const int a_step = g_.a.k_contiguous ? 32 : 16 * kLineBytes, b_step = g_.b.k_contiguous ? 32 : 16 * kLineBytes;
    Value part = sharing_ == 1 ? b_.i32(0) : b_.mul(group_, blocks_m_ * kBoxBytes);
    Values state{slot.stage, slot.phase, b_.i32(0)};  // and the stage before
    state.insert(state.end(), count, llvm::PoisonValue::get(b_.t_f32()));
    const Values out = b_.loop(b_.i32(0), steps_, b_.i32(1), state, [&](Value step, const Values &in) {
      const Slot at{in[0], in[1]};
      barrier_wait(b_, barrier_of(full_, at.stage), at.phase);
      Value from = b_.add(ring_, b_.mul(at.stage, stage_bytes_));
      Value da = wgmma_descriptor(b_, b_.add(from, part), kBoxBytes),
            db = wgmma_descriptor(b_, b_.add(from, a_bytes_), kBoxBytes);
      Value behind_first = b_.ir.CreateICmpNE(step, b_.i32(0));  // the first product of a tile overwrites
      Values sums(in.begin() + 3, in.end());
      wgmma_fence(b_);
      for (int inner = 0; inner < depth; ++inner)
        for (int i = 0; i < blocks_m_; ++i) {
          const auto begin = sums.begin() + i * per_block_;
          const Values result = wgmma(b_, g_.type, t_.n, Values(begin, begin + per_block_),
                                      wgmma_descriptor_at(b_, da, inner * a_step + i * kBoxBytes), !g_.a.k_contiguous,
                                      wgmma_descriptor_at(b_, db, inner * b_step), !g_.b.k_contiguous,
                                      inner == 0 ? behind_first : nullptr);
          std::copy(result.begin(), result.end(), begin);
        }
      wgmma_commit(b_);
      sums = wgmma_wait(b_, 1, sums);
      release(in[2], behind_first);
      const Slot up = next(at);
      Values state_after{up.stage, up.phase, at.stage};
      state_after.insert(state_after.end(), sums.begin(), sums.end());
      return state_after;
    });
    // All products of this tile are under way: the other warpgroup's turn.
    if (t_.turns)
      barrier_arrive_if(b_, b_.add(turn_, b_.shl(b_.ir.CreateXor(group_, b_.i32(1)), 3)),
                        b_.ir.CreateICmpEQ(b_.lane(), b_.i32(0)));
    slot = {out[0], out[1]};
    const Values sums = wgmma_wait(b_, 0, Values(out.begin() + 3, out.end()));
    release(out[2], nullptr);
    return sums;
  }

  void finish(Value tile, const Values &sums) {
    if (g_.by_shuffles)
      finish_by_shuffles(tile, sums);
    else
      finish_through_memory(tile, sums);
  }
  void warp_barrier() { b_.call(llvm::Intrinsic::nvvm_bar_warp_sync, {}, {b_.i32(-1)}); }

  // 16 rows x 64 columns at a time: a warp's threads put down what they have (pairs of two rows, 8 apart) and take up
  // eight neighbours of one row. Columns from 32 on lie 4 further, modulo 8: both ways are free of bank conflicts.
  void finish_through_memory(Value tile, const Values &sums) {
    const Place place = corner(tile);
    Value mine = b_.add(rows_, b_.mul(b_.warp(), kWarpBytes)), lane = b_.lane();
    Value to = b_.add(mine, b_.mul(b_.shr(lane, 2), kSharedRowBytes)), pair = b_.and_(lane, 3);
    const Value halves[2] = {b_.add(to, b_.shl(pair, 3)), b_.add(to, b_.shl(b_.xor_(pair, b_.i32(2)), 3))};
    Value eight = b_.and_(lane, 7), turned = b_.shl(b_.and_(b_.shr(eight, 2), 1), 4);
    Value from = b_.add(mine, b_.add(b_.mul(b_.shr(lane, 3), kSharedRowBytes), b_.shl(eight, 5)));
    Value first_row = b_.add(place.row, b_.shl(b_.and_(b_.warp(), 3), 4));
    if (sharing_ > 1) first_row = b_.add(first_row, b_.mul(group_, 64 * blocks_m_));
    auto *two = llvm::FixedVectorType::get(b_.t_f32(), 2), *four = llvm::FixedVectorType::get(b_.t_f32(), 4);
    for (int i = 0; i < blocks_m_; ++i)
      for (int c = 0; c < t_.n / 64; ++c) {
        warp_barrier();
        for (int j = 0; j < 8; ++j)
          for (int h = 0; h < 2; ++h) {
            const size_t at = static_cast<size_t>(i * per_block_ + (c * 8 + j) * 4 + 2 * h);
            Value v = b_.ir.CreateInsertElement(llvm::PoisonValue::get(two), sums[at], uint64_t{0});
            v = b_.ir.CreateInsertElement(v, sums[at + 1], uint64_t{1});
            b_.store(v, b_.shared_at(b_.add(halves[j / 4], 32 * j + 8 * h * kSharedRowBytes)), 8);
          }
        warp_barrier();
        Value column = b_.add(b_.add(place.column, 64 * c), b_.shl(eight, 3));
        // Few copies of what may be long, and two of them at a time for their loads.
        b_.loop(
            b_.i32(0), b_.i32(16), b_.i32(8), {},
            [&](Value below, const Values &) {
              for (int half = 0; half < 2; ++half) {
                Value at = b_.add(from, b_.mul(b_.add(below, 4 * half), kSharedRowBytes));
                Values eight_sums;
                for (Value where : {b_.add(at, turned), b_.add(at, b_.sub(b_.i32(16), turned))}) {
                  Value v = b_.load(four, b_.shared_at(where), 16);
                  for (uint64_t e = 0; e < 4; ++e) eight_sums.push_back(b_.ir.CreateExtractElement(v, e));
                }
                Value row = b_.add(b_.add(first_row, 64 * i + 4 * half), b_.add(below, b_.shr(lane, 3)));
                b_.when(b_.both(inside(row, g_.m, t_.m), inside(column, g_.n, t_.n)),
                        [&] { g_.epilogue(place.batch, row, column, eight_sums); });
              }
              return Values{};
            },
            true);
      }
  }
  // A thread has two neighbours of every eighth column, of two rows that are 8 apart. The four threads of a row change
  // what they have of 32 columns, so that each has eight neighbours.
  void finish_by_shuffles(Value tile, const Values &sums) {
    const Place place = corner(tile);
    Value lane = b_.lane(), first_row = b_.add(place.row, b_.shl(b_.and_(b_.warp(), 3), 4));
    if (sharing_ > 1) first_row = b_.add(first_row, b_.mul(group_, 64 * blocks_m_));
    first_row = b_.add(first_row, b_.shr(lane, 2));
    Value first_column = b_.add(place.column, b_.shl(b_.and_(lane, 3), 3));
    for (int i = 0; i < blocks_m_; ++i)
      for (int c = 0; c < t_.n / 32; ++c)
        for (int h = 0; h < 2; ++h) {
          Values pairs[4];
          for (int j = 0; j < 4; ++j) {
            const auto at = sums.begin() + i * per_block_ + (c * 4 + j) * 4 + 2 * h;
            pairs[j] = {at[0], at[1]};
          }
          const Values neighbours = exchange(pairs);
          Value row = b_.add(first_row, 64 * i + 8 * h), column = b_.add(first_column, 32 * c);
          b_.when(b_.both(inside(row, g_.m, t_.m), inside(column, g_.n, t_.n)),
                  [&] { g_.epilogue(place.batch, row, column, neighbours); });
        }
  }
  // The transpose of the pairs of four threads: the thread that is i-th of them gets every thread's i-th pair.
  Values exchange(Values (&pairs)[4]) {
    for (int mask : {1, 2}) {
      Value upper = b_.ir.CreateICmpNE(b_.and_(b_.lane(), mask), b_.i32(0));
      for (int j = 0; j < 4; ++j) {
        if ((j & mask) != 0) continue;
        for (size_t e = 0; e < 2; ++e) {
          Value &x = pairs[j][e], &y = pairs[j | mask][e];
          Value theirs = b_.shuffle_xor(b_.ir.CreateSelect(upper, x, y), mask);
          x = b_.ir.CreateSelect(upper, theirs, x);
          y = b_.ir.CreateSelect(upper, y, theirs);
        }
      }
    }
    Values all;
    for (const Values &pair : pairs) all.insert(all.end(), pair.begin(), pair.end());
    return all;
  }
  // index < size; always where tiles fit.
  Value inside(Value index, Value size, int tile) {
    const auto *constant = llvm::dyn_cast<llvm::ConstantInt>(size);
    return constant && constant->getZExtValue() % static_cast<uint64_t>(tile) == 0 ? b_.ir.getTrue()
                                                                                   : b_.lt(index, size);
  }

  Builder &b_;
  const WarpgroupGemm &g_;
  const WarpgroupTile &t_;
  int sharing_ = 1, blocks_m_ = 1, per_block_ = 32, a_bytes_ = 0, stage_bytes_ = 0;
  Value ring_ = nullptr, rows_ = nullptr, full_ = nullptr, empty_ = nullptr, turn_ = nullptr;
  Value group_ = nullptr, steps_of_tap_ = nullptr, steps_ = nullptr, tiles_m_ = nullptr, tiles_n_ = nullptr,
        in_batch_ = nullptr, tiles_ = nullptr;
};

}  // namespace

void emit_warpgroup_gemm(Builder &b, const WarpgroupGemm &gemm) { WarpgroupKernel(b, gemm).emit(); }

}  // namespace optc::ptx
