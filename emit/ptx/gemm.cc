#include "emit/ptx/gemm.h"

#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <cstdlib>

#include "emit/ptx/tile.h"

namespace optc::ptx {

int64_t split_bytes(const TensorCoreTile &tile, int splits) {
  const int64_t fragments = int64_t{tile.m / tile.warps_m / 16} * (tile.n / tile.warps_n / 8);
  const int64_t pieces = (fragments + tile.warps_k - 1) / tile.warps_k;
  return pieces * tile.threads() * 16 * splits;
}

bool can_pair(const TensorCoreTile &tile) {
  return tile.m == 16 && tile.warps_m == 1 && tile.warps_n == 1 && tile.warps_k > 1 && tile.n % 16 == 0;
}

namespace {

// What a thread finishes: neighbouring columns of two rows, 8 apart.
struct Piece {
  Value row, column;
  Values sums;             // row: 0 and 1, row + 8: 2 and 3
  Value active = nullptr;  // i1; null: always
  Values others = {};      // of the other product, where there is one
};

// Stores this block's sums; in the block that is the last of its tile to do so, puts the sums of all parts into
// `pieces` and runs `finish`. `flag` is a word of shared memory that nobody uses now.
void join_splits(Builder &b, const Gemm &g, unsigned flag, std::vector<Piece> *pieces,
                 const std::function<void()> &finish) {
  const int64_t threads = g.tile.threads(), each = static_cast<int64_t>(pieces->size()) * threads * 4;
  Value tile = b.at(b.t_f32(), g.parts, b.add(b.mul(g.tile_number, g.splits * each), b.shl(b.tid(), 2)));
  Value mine = b.at(b.t_f32(), tile, b.mul(g.split, each));
  auto *four = llvm::FixedVectorType::get(b.t_f32(), 4);
  for (size_t p = 0; p < pieces->size(); ++p) {
    Value v = llvm::PoisonValue::get(four);
    for (uint64_t i = 0; i < 4; ++i) v = b.ir.CreateInsertElement(v, (*pieces)[p].sums[i], i);
    b.store(v, b.at(b.t_f32(), mine, b.i32(static_cast<int64_t>(p) * threads * 4)), 16);
  }
  b.barrier();
  Value first_thread = b.ir.CreateICmpEQ(b.tid(), b.i32(0)), counter = b.at(b.t_i32(), g.counters, g.tile_number);
  b.when(first_thread, [&] {
    b.fence_gpu();
    b.store(b.count_up(counter), b.shared(flag), 4);
    b.fence_gpu();
  });
  b.barrier();
  Value before = b.load(b.t_i32(), b.shared(flag), 4);
  b.when(b.ir.CreateICmpEQ(before, b.i32(g.splits - 1)), [&] {
    b.when(first_thread, [&] { b.store(b.i32(0), counter, 4); });
    // A few parts at a time, as many as registers hold.
    const size_t count = pieces->size();
    const int at_once = std::min(g.splits, count >= 8 ? 1 : count >= 4 ? 2 : 4), rest = g.splits % at_once;
    auto add_parts = [&](Value first, int parts, const Values &in) {
      std::vector<Values> loaded;
      for (int part = 0; part < parts; ++part)
        for (size_t p = 0; p < count; ++p)
          loaded.push_back(b.load_shared_by_blocks(
              b.at(b.t_f32(), tile, b.mul(first, each), part * each + static_cast<int64_t>(p) * threads * 4)));
      Values sums = in;
      for (size_t part = 0; part < static_cast<size_t>(parts); ++part)
        for (size_t p = 0; p < count; ++p)
          for (size_t i = 0; i < 4; ++i)
            sums[4 * p + i] = b.ir.CreateFAdd(sums[4 * p + i], loaded[part * count + p][i]);
      return sums;
    };
    Values sums(4 * count, llvm::ConstantFP::getNegativeZero(b.t_f32()));
    if (rest > 0) sums = add_parts(b.i32(0), rest, sums);
    sums = b.loop(b.i32(rest), b.i32(g.splits), b.i32(at_once), sums,
                  [&](Value first, const Values &in) { return add_parts(first, at_once, in); });
    for (size_t p = 0; p < count; ++p)
      (*pieces)[p].sums.assign(sums.begin() + static_cast<std::ptrdiff_t>(4 * p),
                               sums.begin() + static_cast<std::ptrdiff_t>(4 * p + 4));
    finish();
  });
}

}  // namespace

namespace {

// The sums of a warp of a tile with a ring, four for each 16 x 8 of its part.
Values sums_through_ring(Builder &b, const Gemm &g, unsigned start) {
  const TensorCoreTile &t = g.tile;
  const bool half = element_bytes(g.type) == 2;
  const bool three = g.type == TensorCoreType::kThreeTF32;
  const MmaType mma = g.type == TensorCoreType::kF16    ? MmaType::kF16
                      : g.type == TensorCoreType::kBF16 ? MmaType::kBF16
                                                        : MmaType::kTF32;
  const int step_k = half ? 16 : 8;  // k of one instruction: 32 bytes
  const int steps = t.k / step_k;
  const int wm = t.m / t.warps_m, wn = t.n / t.warps_n;  // a warp's part
  const int blocks_m = wm / 16, blocks_n = wn / 16;      // in fragments of 16

  TileStore a_probe(b, g, g.a, t.m, start);
  TileStore a(b, g, g.a, t.m, start);
  TileStore bt(b, g, g.b, t.n, start + static_cast<unsigned>(a_probe.bytes()));
  const int stage_bytes = a.bytes() + bt.bytes();

  Value warp = b.warp();
  Value warp_k = b.div(warp, t.warps_m * t.warps_n), in_tile = b.rem(warp, t.warps_m * t.warps_n);
  Value warp_row = b.mul(b.rem(in_tile, t.warps_m), wm), warp_column = b.mul(b.div(in_tile, t.warps_m), wn);

  Value first_step = b.mul(warp_k, steps / t.warps_k);  // warps that split k have each a part of every block of k

  const bool early_a = b.chained() && g.a.constant && g.a.chunk_bytes > 0,
             early_b = b.chained() && g.b.constant && g.b.chunk_bytes > 0;
  auto fetch = [&](Value slot, Value k0, bool with_a = true, bool with_b = true) {
    Value stage = b.mul(slot, stage_bytes);
    Values pa, pb;
    if (with_a) pa = a.fetch(stage, g.row0, k0, g.k_end, g.m);
    if (with_b) pb = bt.fetch(stage, g.column0, k0, g.k_end, g.n);
    pa.insert(pa.end(), pb.begin(), pb.end());
    return pa;
  };
  auto write = [&](Value slot, const Values &values) {
    if (values.empty()) return;
    Value stage = b.mul(slot, stage_bytes);
    const size_t na = static_cast<size_t>(a.computed_count());
    a.write(stage, Values(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(na)));
    bt.write(stage, Values(values.begin() + static_cast<std::ptrdiff_t>(na), values.end()));
  };

  // Fills the ring but for one slot. Beyond the end nothing is fetched (zeros arrive), so that every iteration commits
  // one group.
  if (early_a || early_b)
    for (int s = 0; s + 1 < t.stages; ++s) fetch(b.i32(s), b.add(g.k_begin, s * t.k), early_a, early_b);
  b.wait_for_kernels_before();
  if (g.before_products) g.before_products();
  for (int s = 0; s + 1 < t.stages; ++s) {
    Value slot = b.i32(s);
    write(slot, fetch(slot, b.add(g.k_begin, s * t.k), !early_a, !early_b));
    b.copy_commit();
  }

  const size_t count = static_cast<size_t>(blocks_m * blocks_n * 2 * 4);
  // What one warp sums: short sums need no second set.
  const int promote_every = std::max(1, 256 * t.warps_k / t.k);
  const bool promote = three && (g.part_of_k == 0 || g.part_of_k > 384 * t.warps_k);
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
  if (t.warps_k > 1) b.barrier();  // where the ring was, sums are exchanged
  return acc;
}

}  // namespace

void emit_gemm(Builder &b, const Gemm &g) {
  const TensorCoreTile &t = g.tile;
  const int wm = t.m / t.warps_m, wn = t.n / t.warps_n;
  const int blocks_m = wm / 16, columns = wn / 8;  // in fragments of 16 x 8
  const unsigned start = b.reserve_shared(tensor_core_shared_bytes(g.type, t), 128);
  const Values acc = through_registers(t) ? sums_through_registers(b, g) : sums_through_ring(b, g, start);
  const size_t count = acc.size();
  Value warp = b.warp();
  Value warp_k = b.div(warp, t.warps_m * t.warps_n), in_tile = b.rem(warp, t.warps_m * t.warps_n);
  Value warp_row = b.mul(b.rem(in_tile, t.warps_m), wm), warp_column = b.mul(b.div(in_tile, t.warps_m), wn);

  std::vector<Piece> pieces;
  Value lane_row = b.add(b.add(g.row0, warp_row), b.shr(b.lane(), 2)),
        lane_column =
            b.add(b.add(g.paired ? b.shr(g.column0, 1) : g.column0, warp_column), b.shl(b.and_(b.lane(), 3), 1));
  if (t.warps_k == 1) {
    for (int i = 0; i < blocks_m; ++i) {
      Value row = b.add(lane_row, 16 * i);
      for (int j = 0; j < columns; ++j) {
        const auto at = acc.begin() + (i * columns + j) * 4;
        pieces.push_back({row, b.add(lane_column, 8 * j), Values(at, at + 4), nullptr});
      }
    }
  } else {
    // Warps that split k exchange their sums; each adds up, in the order of the parts, and finishes every warps_k-th
    // fragment of 16 x 8.
    const int per_part = t.m * t.n * 4, all = blocks_m * columns, fragments = g.paired ? all / 2 : all;
    Value mine = b.add(b.add(b.mul(in_tile, wm * wn * 4), b.shl(b.lane(), 2)), static_cast<int64_t>(start));
    Value to = b.add(mine, b.mul(warp_k, per_part));
    for (size_t i = 0; i < count; ++i) b.store(acc[i], b.shared(b.add(to, static_cast<int64_t>(i) * 128)), 4);
    b.barrier();
    for (int turn = 0; turn * t.warps_k < fragments; ++turn) {
      Piece piece;
      Value fragment = b.add(warp_k, turn * t.warps_k);
      if ((turn + 1) * t.warps_k > fragments) {
        piece.active = b.lt(fragment, b.i32(fragments));
        fragment = b.min(fragment, b.i32(fragments - 1));
      }
      Value from = b.add(mine, b.shl(fragment, 9));
      const auto add_up = [&](int first, Values &sums) {
        for (int i = 0; i < 4; ++i)
          for (int part = 0; part < t.warps_k; ++part) {
            Value v = b.load(b.t_f32(), b.shared(b.add(from, first + part * per_part + i * 128)), 4);
            if (part == 0)
              sums.push_back(v);
            else
              sums.back() = b.ir.CreateFAdd(sums.back(), v);
          }
      };
      add_up(0, piece.sums);
      if (g.paired) add_up(fragments * 512, piece.others);  // 16 x 8 sums of 4 bytes a fragment
      piece.row = b.add(lane_row, b.shl(b.div(fragment, columns), 4));
      piece.column = b.add(lane_column, b.shl(b.rem(fragment, columns), 3));
      pieces.push_back(piece);
    }
  }

  // The pieces of a row stand together, so that its bound is asked once.
  auto finish = [&] {
    for (size_t first = 0, last = 0; first < pieces.size(); first = last) {
      while (last < pieces.size() && pieces[last].row == pieces[first].row) ++last;
      for (int r = 0; r < 2; ++r) {
        Value row = b.add(pieces[first].row, 8 * r);
        b.when(b.lt(row, g.m), [&] {
          for (size_t i = first; i < last; ++i) {
            const Piece &p = pieces[i];
            const size_t at = static_cast<size_t>(2 * r);
            Value inside = b.lt(p.column, g.n);
            b.when(p.active ? b.both(p.active, inside) : inside, [&] {
              if (g.paired)
                g.paired_epilogue(row, p.column, {p.sums[at], p.sums[at + 1]}, {p.others[at], p.others[at + 1]});
              else
                g.epilogue(row, p.column, p.sums[at], p.sums[at + 1], b.lt(b.add(p.column, 1), g.n));
            });
          }
        });
      }
    }
  };
  // The same for a thread one of whose sums is not finite: all of them are summed again.
  auto finish_again = [&] {
    const int fragments = blocks_m * columns;
    auto rolled = [&](Value begin, int end, int step, const std::function<void(Value)> &body) {
      b.loop(
          begin, b.i32(end), b.i32(step), {},
          [&](Value i, const Values &) {
            body(i);
            return Values{};
          },
          true);
    };
    rolled(warp_k, fragments, t.warps_k, [&](Value fragment) {
      Value column = b.add(lane_column, b.shl(b.rem(fragment, columns), 3));
      rolled(b.i32(0), 2, 1, [&](Value half_of_it) {
        Value row = b.add(b.add(lane_row, b.shl(b.div(fragment, columns), 4)), b.shl(half_of_it, 3));
        b.when(b.both(b.lt(row, g.m), b.lt(column, g.n)), [&] {
          Value last = b.add(g.n, -1);
          const Values sums = b.loop(
              b.i32(0), b.i32(2), b.i32(1), {b.f32(0), b.f32(0)},
              [&](Value i, const Values &in) {
                return Values{in[1], g.plain_sum(row, b.min(b.add(column, i), last))};
              },
              true);
          g.epilogue(row, column, sums[0], sums[1], b.lt(b.add(column, 1), g.n));
        });
      });
    });
  };
  auto finish_checked = [&] {
    if (!g.plain_sum) return finish();
    Values finite(4, b.f32(0));  // 0, or NaN
    for (const Piece &p : pieces)
      for (size_t i = 0; i < 4; ++i) finite[i] = b.fma(p.sums[i], b.f32(0), finite[i]);
    Value all = b.ir.CreateFAdd(b.ir.CreateFAdd(finite[0], finite[1]), b.ir.CreateFAdd(finite[2], finite[3]));
    b.either(
        b.ir.CreateFCmpORD(all, all),
        [&] {
          finish();
          return Values{};
        },
        [&] {
          finish_again();
          return Values{};
        });
  };
  if (g.splits == 1)
    finish_checked();
  else
    join_splits(b, g, start, &pieces, finish_checked);
}

}  // namespace optc::ptx
