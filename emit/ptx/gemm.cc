#include "emit/ptx/gemm.h"

#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <cstdlib>

namespace optc::ptx {

unsigned element_bytes(GemmType type) { return type == GemmType::kF16 || type == GemmType::kBF16 ? 2 : 4; }

unsigned gemm_shared_bytes(GemmType type, const GemmTile &tile) {
  const unsigned ring = static_cast<unsigned>(tile.stages * (tile.m + tile.n) * tile.k) * element_bytes(type);
  const unsigned exchange = tile.warps_k > 1 ? static_cast<unsigned>((tile.warps_k - 1) * tile.m * tile.n) * 4 : 0;
  return std::max(ring, exchange);
}

namespace {

int log2_of(int v) {
  int n = 0;
  while ((1 << n) < v) ++n;
  return n;
}

// One operand's tile in shared memory: `rows` of `row_bytes`, a row being 16-byte chunks in swizzled order.
class TileStore {
 public:
  TileStore(Builder &b, const Gemm &gemm, const GemmOperand &operand, int extent, unsigned base)
      : b_(b), gemm_(gemm), operand_(operand), base_(base), size_(static_cast<int>(element_bytes(gemm.type))) {
    rows_ = operand.k_contiguous ? extent : gemm.tile.k;
    columns_ = operand.k_contiguous ? gemm.tile.k : extent;
    row_bytes_ = columns_ * size_;
    chunks_ = row_bytes_ / 16;
  }
  int bytes() const { return rows_ * row_bytes_; }

  // The position of a 16-byte chunk: its row's bits are mixed in, so that eight rows of one column lie in eight
  // different banks. Tiles of f32 that are read one element at a time across four rows use twice the row instead.
  Value swizzle(Value row, Value chunk) {
    const bool scalar_reads = size_ == 4 && !operand_.k_contiguous;
    Value bits;
    if (scalar_reads)
      bits = b_.shl(b_.and_(row, 3), 1);
    else if (chunks_ >= 8)
      bits = b_.and_(row, 7);
    else
      bits = b_.and_(b_.shr(row, log2_of(8 / chunks_)), chunks_ - 1);
    if (scalar_reads && chunks_ < 8) bits = b_.and_(bits, chunks_ - 1);
    return b_.xor_(chunk, bits);
  }
  // Byte offset of chunk (row, chunk) in the stage that starts at `stage`.
  Value at(Value stage, Value row, Value chunk) {
    return b_.add(stage, b_.add(b_.add(b_.mul(row, row_bytes_), b_.shl(swizzle(row, chunk), 4)), base_));
  }

  // Fetches the tile whose first index along m / n is `first` and along k is `k0`. With computed elements the values
  // are returned and written by `write`, so that their loads run beside the products.
  Values fetch(Value stage, Value first, Value k0, Value k_limit, Value extent_limit) {
    const int threads = gemm_.tile.threads();
    Values pending;
    if (operand_.chunk_bytes == 0) {
      const int per_thread = rows_ * columns_ / threads;
      for (int i = 0; i < per_thread; ++i) {
        auto [row, column] = element_place(i);
        Value outer = b_.add(row, operand_.k_contiguous ? first : k0),
              inner = b_.add(column, operand_.k_contiguous ? k0 : first);
        Value inside = b_.both(b_.lt(operand_.k_contiguous ? inner : outer, k_limit),
                               b_.lt(operand_.k_contiguous ? outer : inner, extent_limit));
        Values v = b_.either(
            inside, [&] { return Values{operand_.element(outer, inner)}; }, [&] { return Values{zero()}; });
        pending.push_back(v[0]);
      }
      return pending;
    }
    const int step = static_cast<int>(operand_.chunk_bytes), per_row = row_bytes_ / step;
    const int total = rows_ * per_row;
    for (int i = 0; i * threads < total; ++i) {
      Value index = b_.add(b_.tid(), i * threads);
      auto copy = [&] {
        Value row = b_.div(index, per_row), piece = b_.rem(index, per_row);
        Value column = b_.mul(piece, step / size_);
        Value outer = b_.add(row, operand_.k_contiguous ? first : k0),
              inner = b_.add(column, operand_.k_contiguous ? k0 : first);
        Value inside = b_.both(b_.lt(operand_.k_contiguous ? inner : outer, k_limit),
                               b_.lt(operand_.k_contiguous ? outer : inner, extent_limit));
        GemmOperand::Chunk chunk = operand_.chunk(outer, inner);
        if (chunk.valid) inside = b_.both(inside, chunk.valid);
        Value to = step == 16
                       ? at(stage, row, piece)
                       : b_.add(at(stage, row, b_.div(piece, 16 / step)), b_.mul(b_.rem(piece, 16 / step), step));
        b_.copy_async(b_.shared(to), chunk.pointer, static_cast<unsigned>(step), inside);
      };
      if ((i + 1) * threads > total)
        b_.when(b_.lt(index, b_.i32(total)), copy);
      else
        copy();
    }
    return pending;
  }
  void write(Value stage, const Values &values) {
    for (size_t i = 0; i < values.size(); ++i) {
      auto [row, column] = element_place(static_cast<int>(i));
      const int per_chunk = 16 / size_;
      Value to = b_.add(at(stage, row, b_.div(column, per_chunk)), b_.mul(b_.rem(column, per_chunk), size_));
      b_.store(values[i], b_.shared(to), static_cast<unsigned>(size_));
    }
  }

  // The fragments of 16 of m (for A) or 16 of n (two blocks of 8, for B) and 32 bytes of k, at `first` of m / n
  // and k-step `first_step` + `step`.
  Values fragments(Value stage, Value first, Value first_step, int step, bool is_a) {
    Value lane = b_.lane();
    if (operand_.k_contiguous) {
      Value row = b_.add(first, b_.and_(lane, 15));
      Value chunk = b_.add(b_.add(b_.shr(lane, 4), b_.shl(first_step, 1)), 2 * step);
      return b_.ldmatrix_x4(b_.shared(at(stage, row, chunk)), false);
    }
    if (size_ == 2) {
      // k runs down the tile. A wants the matrices in the order (m, k) = (0,0) (8,0) (0,8) (8,8); B gets (0,0) (0,8)
      // (8,0) (8,8).
      Value k, chunk;
      if (is_a) {
        k = b_.add(b_.and_(lane, 7), b_.shl(b_.shr(lane, 4), 3));
        chunk = b_.and_(b_.shr(lane, 3), 1);
      } else {
        k = b_.and_(lane, 15);
        chunk = b_.shr(lane, 4);
      }
      Value row = b_.add(b_.add(k, b_.shl(first_step, 4)), 16 * step);
      Values r = b_.ldmatrix_x4(b_.shared(at(stage, row, b_.add(b_.shr(first, 3), chunk))), true);
      if (!is_a) std::swap(r[1], r[2]);  // as the other layout gives them: blocks 0 and 1 of k 0..7, then of k 8..15
      return r;
    }
    Values out;
    for (int half = 0; half < 2; ++half)         // k + 4
      for (int block = 0; block < 2; ++block) {  // m or n + 8
        Value row = b_.add(b_.add(b_.and_(lane, 3), b_.shl(first_step, 3)), 8 * step + 4 * half);
        Value column = b_.add(b_.add(first, b_.shr(lane, 2)), 8 * block);
        Value to = b_.add(at(stage, row, b_.shr(column, 2)), b_.shl(b_.and_(column, 3), 2));
        out.push_back(b_.load(b_.t_i32(), b_.shared(to), 4));
      }
    return out;
  }

 private:
  std::pair<Value, Value> element_place(int i) {
    Value index = b_.add(b_.tid(), i * gemm_.tile.threads());
    return {b_.div(index, columns_), b_.rem(index, columns_)};
  }
  Value zero() {
    if (size_ == 4) return b_.f32(0);
    return gemm_.type == GemmType::kF16 ? llvm::ConstantFP::get(b_.ir.getHalfTy(), 0)
                                        : static_cast<Value>(b_.ir.getInt16(0));
  }

  Builder &b_;
  const Gemm &gemm_;
  const GemmOperand &operand_;
  unsigned base_;
  int size_, rows_, columns_, row_bytes_, chunks_;
};

// A register of f32 bits as a TF32 pair: high is x rounded, low what is left, rounded.
struct Split {
  Value high, low;
};
Split split(Builder &b, Value bits, bool three) {
  Value x = b.ir.CreateBitCast(bits, b.t_f32());
  Value high = b.to_tf32(x);
  if (!three) return {high, nullptr};
  Value rest = b.ir.CreateFSub(x, b.ir.CreateBitCast(high, b.t_f32()));
  return {high, b.to_tf32(rest)};
}

}  // namespace

void emit_gemm(Builder &b, const Gemm &g) {
  const GemmTile &t = g.tile;
  const bool half = element_bytes(g.type) == 2;
  const bool three = g.type == GemmType::kThreeTF32;
  const MmaType mma = g.type == GemmType::kF16    ? MmaType::kF16
                      : g.type == GemmType::kBF16 ? MmaType::kBF16
                                                  : MmaType::kTF32;
  const int step_k = half ? 16 : 8;  // k of one instruction: 32 bytes
  const int steps = t.k / step_k;
  const int wm = t.m / t.warps_m, wn = t.n / t.warps_n;  // a warp's part
  const int blocks_m = wm / 16, blocks_n = wn / 16;      // in fragments of 16
  const unsigned start = b.reserve_shared(gemm_shared_bytes(g.type, t), 128);

  TileStore a_probe(b, g, g.a, t.m, start);
  TileStore a(b, g, g.a, t.m, start);
  TileStore bt(b, g, g.b, t.n, start + static_cast<unsigned>(a_probe.bytes()));
  const int stage_bytes = a.bytes() + bt.bytes();

  Value warp = b.warp();
  Value warp_k = b.div(warp, t.warps_m * t.warps_n), in_tile = b.rem(warp, t.warps_m * t.warps_n);
  Value warp_row = b.mul(b.rem(in_tile, t.warps_m), wm), warp_column = b.mul(b.div(in_tile, t.warps_m), wn);

  Value first_step = b.mul(warp_k, steps / t.warps_k);  // warps that split k have each a part of every block of k

  auto fetch = [&](Value slot, Value k0) {
    Value stage = b.mul(slot, stage_bytes);
    Values pa = a.fetch(stage, g.row0, k0, g.k_end, g.m);
    Values pb = bt.fetch(stage, g.column0, k0, g.k_end, g.n);
    pa.insert(pa.end(), pb.begin(), pb.end());
    return pa;
  };
  auto write = [&](Value slot, const Values &values) {
    if (values.empty()) return;
    Value stage = b.mul(slot, stage_bytes);
    const size_t na = g.a.chunk_bytes == 0 ? static_cast<size_t>(t.m * t.k / t.threads()) : 0;
    a.write(stage, Values(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(na)));
    bt.write(stage, Values(values.begin() + static_cast<std::ptrdiff_t>(na), values.end()));
  };

  // Fills the ring but for one slot. Beyond the end nothing is fetched (zeros arrive), so that every iteration commits
  // one group.
  for (int s = 0; s + 1 < t.stages; ++s) {
    Value slot = b.i32(s);
    write(slot, fetch(slot, b.add(g.k_begin, s * t.k)));
    b.copy_commit();
  }

  const size_t count = static_cast<size_t>(blocks_m * blocks_n * 2 * 4);
  const bool promote = three;
  const int promote_every = std::max(1, 256 / t.k);
  Values carried(promote ? 2 * count : count, b.f32(0));
  carried.push_back(b.i32(0));             // slot to read
  carried.push_back(b.i32(t.stages - 1));  // slot to fill
  if (promote) carried.push_back(b.i32(0));

  auto next_slot = [&](Value slot) {
    Value up = b.add(slot, 1);
    return b.ir.CreateSelect(b.ir.CreateICmpEQ(up, b.i32(t.stages)), b.i32(0), up);
  };

  Values result = b.loop(g.k_begin, g.k_end, b.i32(t.k), carried, [&](Value k0, const Values &in) {
    const size_t state = promote ? 2 * count : count;
    Value read = in[state], fill = in[state + 1];
    b.copy_wait(static_cast<unsigned>(t.stages - 2));
    b.barrier();
    Values pending = fetch(fill, b.add(k0, (t.stages - 1) * t.k));
    b.copy_commit();
    Value stage = b.mul(read, stage_bytes);
    Values acc(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(count));
    auto product = [&](int step) {
      std::vector<Values> fa, fb, la, lb;
      auto load = [&](TileStore &tile, Value first, bool is_a, std::vector<Values> &high, std::vector<Values> &low) {
        Values f = tile.fragments(stage, first, first_step, step, is_a);
        if (half) {
          high.push_back(f);
          return;
        }
        Values h, l;
        for (Value v : f) {
          Split s = split(b, v, three);
          h.push_back(s.high);
          if (three) l.push_back(s.low);
        }
        high.push_back(h);
        low.push_back(l);
      };
      for (int i = 0; i < blocks_m; ++i) load(a, b.add(warp_row, 16 * i), true, fa, la);
      for (int j = 0; j < blocks_n; ++j) load(bt, b.add(warp_column, 16 * j), false, fb, lb);
      auto multiply = [&](const std::vector<Values> &x, const std::vector<Values> &y) {
        for (int i = 0; i < blocks_m; ++i)
          for (int j = 0; j < 2 * blocks_n; ++j) {
            const size_t at = static_cast<size_t>((i * 2 * blocks_n + j) * 4);
            const Values &y4 = y[static_cast<size_t>(j / 2)];
            Values c(acc.begin() + static_cast<std::ptrdiff_t>(at), acc.begin() + static_cast<std::ptrdiff_t>(at + 4));
            c = b.mma(mma, x[static_cast<size_t>(i)],
                      {y4[static_cast<size_t>(j % 2)], y4[static_cast<size_t>(j % 2 + 2)]}, c);
            std::copy(c.begin(), c.end(), acc.begin() + static_cast<std::ptrdiff_t>(at));
          }
      };
      if (three) {  // the small terms first
        multiply(la, fb);
        multiply(fa, lb);
      }
      multiply(fa, fb);
    };
    for (int step = 0; step < steps / t.warps_k; ++step) product(step);
    write(fill, pending);
    Values out = acc;
    if (promote) {
      Value done = b.add(in[state + 2], 1);
      Value now = b.ir.CreateICmpEQ(done, b.i32(promote_every));
      Values totals(in.begin() + static_cast<std::ptrdiff_t>(count),
                    in.begin() + static_cast<std::ptrdiff_t>(2 * count));
      Values both = b.either(
          now,
          [&] {
            Values v(count, b.f32(0));
            for (size_t i = 0; i < count; ++i) v.push_back(b.ir.CreateFAdd(totals[i], acc[i]));
            v.push_back(b.i32(0));
            return v;
          },
          [&] {
            Values v = acc;
            v.insert(v.end(), totals.begin(), totals.end());
            v.push_back(done);
            return v;
          });
      out.assign(both.begin(), both.end() - 1);
      out.push_back(next_slot(read));
      out.push_back(next_slot(fill));
      out.push_back(both.back());
      return out;
    }
    out.push_back(next_slot(read));
    out.push_back(next_slot(fill));
    return out;
  });
  Values acc(result.begin(), result.begin() + static_cast<std::ptrdiff_t>(count));
  if (promote)
    for (size_t i = 0; i < count; ++i) acc[i] = b.ir.CreateFAdd(result[count + i], acc[i]);
  b.copy_wait(0);

  // Warps that split k add up, in the order of their parts, in the first one.
  Value owner = b.ir.getTrue();
  if (t.warps_k > 1) {
    b.barrier();
    const int per_part = t.m * t.n * 4;
    Value mine = b.add(b.mul(in_tile, wm * wn * 4), b.shl(b.lane(), 2));
    b.when(b.ir.CreateICmpNE(warp_k, b.i32(0)), [&] {
      Value at = b.add(b.add(mine, b.mul(b.add(warp_k, -1), per_part)), start);
      for (size_t i = 0; i < count; ++i) b.store(acc[i], b.shared(b.add(at, static_cast<int64_t>(i) * 128)), 4);
    });
    b.barrier();
    owner = b.ir.CreateICmpEQ(warp_k, b.i32(0));
    for (int part = 1; part < t.warps_k; ++part)
      for (size_t i = 0; i < count; ++i) {
        Value at = b.add(mine, static_cast<int64_t>(start) + (part - 1) * per_part + static_cast<int64_t>(i) * 128);
        acc[i] = b.ir.CreateFAdd(acc[i], b.load(b.t_f32(), b.shared(at), 4));
      }
  }

  b.when(owner, [&] {
    Value lane_row = b.shr(b.lane(), 2), lane_column = b.shl(b.and_(b.lane(), 3), 1);
    for (int i = 0; i < blocks_m; ++i)
      for (int r = 0; r < 2; ++r) {
        Value row = b.add(b.add(b.add(g.row0, warp_row), lane_row), 16 * i + 8 * r);
        b.when(b.lt(row, g.m), [&] {
          for (int j = 0; j < 2 * blocks_n; ++j) {
            Value column = b.add(b.add(b.add(g.column0, warp_column), lane_column), 8 * j);
            const size_t at = static_cast<size_t>((i * 2 * blocks_n + j) * 4 + 2 * r);
            b.when(b.lt(column, g.n),
                   [&] { g.epilogue(row, column, acc[at], acc[at + 1], b.lt(b.add(column, 1), g.n)); });
          }
        });
      }
  });
}

}  // namespace optc::ptx
