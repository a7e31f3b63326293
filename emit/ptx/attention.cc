// Attention as one kernel, in the form of FlashAttention-2 (Dao 2023): a block of four warps takes 64 query rows of one
// head and walks the keys in tiles; a warp has 16 rows, their running maxima and sums, and the output's accumulators in
// registers. Where that gives few blocks, warps share rows: each takes its part of every tile of keys, and they join
// their sums at the end, as the parts of a row are joined over tiles. Scores are the nest's own expression of the
// product (scale, mask, softcap), so that whatever it says is computed. f32 operands run as three TF32 products.

#include <cmath>
#include <limits>

#include "emit/ptx/attention_plan.h"
#include "emit/ptx/draft.h"
#include "emit/ptx/math.h"
#include "emit/ptx/tile.h"

namespace optc::ptx {

namespace {

constexpr int kWarps = 4;

void emit_attention(KernelContext &k, const AttentionPlan &plan) {
  Builder &b = k.b;
  const bool half = element_bytes(plan.type) == 2;
  const MmaType mma = plan.type == TensorCoreType::kF16    ? MmaType::kF16
                      : plan.type == TensorCoreType::kBF16 ? MmaType::kBF16
                                                           : MmaType::kTF32;
  Scope base(k);
  delinearize(base, plan.batch, b.block(2));
  Value rows = base.index(total_extent(plan.rows)), keys = base.index(plan.keys.extent);
  Value inner = base.index(plan.inner.extent), width = base.index(plan.width.extent);
  Value row0 = b.mul(b.block(0), plan.block_rows());
  // This warp's rows, and its part of each tile of keys.
  Value row_warp = plan.key_warps == 1 ? b.warp() : b.rem(b.warp(), plan.row_warps),
        key_warp = plan.key_warps == 1 ? b.i32(0) : b.div(b.warp(), plan.row_warps);
  const int my_keys = plan.tile / plan.key_warps;

  Gemm by_inner, by_keys;
  by_inner.type = by_keys.type = plan.type;
  by_inner.tile = by_keys.tile = TensorCoreTile{plan.block_rows(), 16, plan.padded_inner, kWarps, 1, 1, 2};
  by_keys.tile.k = plan.tile;
  auto operand = [&](const ProductOperand &o, unsigned bytes, bool k_contiguous, const DimSymbol *along,
                     const std::function<void(Scope &, Value, Value)> &place) {
    GemmOperand out;
    out.k_contiguous = k_contiguous;
    out.chunk_bytes = bytes;
    if (bytes == 0) {
      out.group = 8;
      out.element = [&base, &o, &plan, place, along](Value outer, Value in, Value inside) {
        Scope scope = base;
        place(scope, outer, in);
        return narrow_elements(scope, o, plan.type, along, 8, inside);
      };
      return out;
    }
    const Scalar *load = &k.program.scalars.at(o.load);
    out.chunk = [&base, load, place](Value outer, Value in) {
      Scope scope = base;
      place(scope, outer, in);
      return GemmOperand::Chunk{scope.address(load->buffer, load->index), nullptr};
    };
    return out;
  };
  const GemmOperand q =
      operand(plan.query, plan.query_bytes, true, plan.inner.index, [&](Scope &s, Value row, Value d) {
        delinearize(s, plan.rows, row);
        s.set(plan.inner.index, d);
      });
  const GemmOperand key = operand(plan.key, plan.key_bytes, true, plan.inner.index, [&](Scope &s, Value j, Value d) {
    s.set(plan.keys.index, j);
    s.set(plan.inner.index, d);
  });
  const GemmOperand value =
      operand(plan.value, plan.value_bytes, false, plan.width.index, [&](Scope &s, Value j, Value e) {
        s.set(plan.value_key, j);
        s.set(plan.width.index, e);
      });
  const unsigned size = element_bytes(plan.type);
  const unsigned q_bytes = static_cast<unsigned>(plan.block_rows() * plan.padded_inner) * size;
  const unsigned k_bytes = static_cast<unsigned>(plan.tile * plan.padded_inner) * size;
  const unsigned v_bytes = static_cast<unsigned>(plan.tile * plan.padded_width) * size;
  const unsigned at_q = b.reserve_shared(q_bytes, 128), at_kv = b.reserve_shared(2 * (k_bytes + v_bytes), 128);
  TileStore q_tile(b, by_inner, q, plan.block_rows(), at_q), k_tile(b, by_inner, key, plan.tile, at_kv),
      v_tile(b, by_keys, value, plan.padded_width, at_kv + k_bytes);
  auto fetch_keys = [&](Value slot, Value first) {
    Value stage = b.mul(slot, static_cast<int64_t>(k_bytes + v_bytes));
    Values k_values = k_tile.fetch(stage, first, b.i32(0), inner, keys);
    Values v_values = v_tile.fetch(stage, b.i32(0), first, keys, width);
    return std::make_pair(k_values, v_values);
  };
  auto write_keys = [&](Value slot, const std::pair<Values, Values> &computed) {
    Value stage = b.mul(slot, static_cast<int64_t>(k_bytes + v_bytes));
    k_tile.write(stage, computed.first);
    v_tile.write(stage, computed.second);
  };
  q_tile.write(b.i32(0), q_tile.fetch(b.i32(0), row0, b.i32(0), inner, rows));
  write_keys(b.i32(0), fetch_keys(b.i32(0), b.i32(0)));
  b.copy_commit();

  // This thread's two rows.
  Value lane = b.lane(), warp_row = b.mul(row_warp, 16), first_key = b.mul(key_warp, my_keys);
  Value my_row[2];
  std::vector<Scope> row_scope;
  for (int r = 0; r < 2; ++r) {
    my_row[r] = b.add(b.add(b.add(row0, warp_row), b.shr(lane, 2)), 8 * r);
    Scope scope = base;
    delinearize(scope, plan.rows, b.min(my_row[r], b.add(rows, -1)));
    row_scope.push_back(scope);
  }
  Value column = b.shl(b.and_(lane, 3), 1);
  const Value minus_infinity = llvm::ConstantFP::getInfinity(b.t_f32(), true);

  const int score_blocks = my_keys / 8, width_blocks = plan.padded_width / 8;
  const size_t outputs = static_cast<size_t>(width_blocks) * 4;
  Values carried(outputs, b.f32(0));
  carried.insert(carried.end(), {minus_infinity, minus_infinity, b.f32(0), b.f32(0), b.i32(0)});  // maxima, sums, slot
  Values last = b.loop(b.i32(0), keys, b.i32(plan.tile), carried, [&](Value first, const Values &in) {
    Value slot = in[outputs + 4], stage = b.mul(slot, static_cast<int64_t>(k_bytes + v_bytes));
    b.copy_wait(0);
    b.barrier();
    Value other = b.xor_(slot, b.i32(1));
    const auto computed = fetch_keys(other, b.add(first, plan.tile));
    b.copy_commit();
    // S = Q K^T
    std::vector<Values> s(static_cast<size_t>(score_blocks), Values(4, b.f32(0)));
    auto multiply = [&](std::vector<Values> &acc, size_t block, const Values &x, const Values &y4, int which) {
      acc[block] = b.mma(mma, x, {y4[static_cast<size_t>(which)], y4[static_cast<size_t>(which + 2)]}, acc[block]);
    };
    auto parts = [&](const Values &f, Values *high, Values *low) {
      for (Value v : f) {
        Split p = split(b, v, true);
        high->push_back(p.high);
        low->push_back(p.low);
      }
    };
    const int inner_steps = plan.padded_inner / (half ? 16 : 8);
    for (int step = 0; step < inner_steps; ++step) {
      Values a = q_tile.fragments(b.i32(0), warp_row, b.i32(0), step, true), a_high, a_low;
      if (!half) parts(a, &a_high, &a_low);
      for (int n = 0; n < score_blocks / 2; ++n) {
        Values f = k_tile.fragments(stage, b.add(first_key, 16 * n), b.i32(0), step, false), high, low;
        if (!half) parts(f, &high, &low);
        for (int h = 0; h < 2; ++h) {
          const size_t block = static_cast<size_t>(2 * n + h);
          if (half) {
            multiply(s, block, a, f, h);
          } else {
            multiply(s, block, a_low, high, h);
            multiply(s, block, a_high, low, h);
            multiply(s, block, a_high, high, h);
          }
        }
      }
    }
    // The nest's own expression of the scores; keys beyond the last are excluded.
    for (int n = 0; n < score_blocks; ++n)
      for (int r = 0; r < 2; ++r)
        for (int c = 0; c < 2; ++c) {
          Value &v = s[static_cast<size_t>(n)][static_cast<size_t>(2 * r + c)];
          Value j = b.add(b.add(b.add(first, first_key), column), 8 * n + c);
          Value inside = b.lt(j, keys);
          Scope scope = row_scope[static_cast<size_t>(r)];
          scope.set(plan.score_key, b.min(j, b.add(keys, -1)));
          Value raw = v;
          scope.read_local = [raw](Scope &, const Scalar &, int) { return raw; };
          v = b.ir.CreateSelect(inside, scope.scalar(plan.score->value), minus_infinity);
        }
    // Softmax, online: what was summed is scaled by exp(old maximum - new maximum).
    Values out, tail;
    Value scale[2], top[2], total[2], shift[2];
    for (int r = 0; r < 2; ++r) {
      Value m = in[outputs + static_cast<size_t>(r)];
      for (const Values &block : s)
        for (int c = 0; c < 2; ++c)
          m = combine(b, Combine::kMax, ElementType::kFloat32, m, block[static_cast<size_t>(2 * r + c)]);
      for (int mask : {1, 2}) m = combine(b, Combine::kMax, ElementType::kFloat32, m, b.shuffle_xor(m, mask));
      top[r] = m;
      // A row that has only -inf so far keeps sums of 0.
      shift[r] = b.ir.CreateSelect(b.ir.CreateFCmpOEQ(m, minus_infinity), b.f32(0), m);
      scale[r] = exp_f32(b, b.ir.CreateFSub(in[outputs + static_cast<size_t>(r)], shift[r]));
      total[r] = b.ir.CreateFMul(in[outputs + 2 + static_cast<size_t>(r)], scale[r]);
    }
    for (Values &block : s)
      for (int r = 0; r < 2; ++r)
        for (int c = 0; c < 2; ++c) {
          Value &v = block[static_cast<size_t>(2 * r + c)];
          v = exp_f32(b, b.ir.CreateFSub(v, shift[r]));
          total[r] = b.ir.CreateFAdd(total[r], v);
        }
    std::vector<Values> o(static_cast<size_t>(width_blocks));
    for (size_t n = 0; n < o.size(); ++n)
      for (size_t i = 0; i < 4; ++i) o[n].push_back(b.ir.CreateFMul(in[4 * n + i], scale[i / 2]));
    // O += P V. The accumulators of S are the operand as they lie: for 16-bit types in pairs, for TF32 with k paired.
    auto pack = [&](Value low, Value high) -> Value {
      llvm::Type *type = plan.type == TensorCoreType::kF16 ? b.ir.getHalfTy() : b.ir.getBFloatTy();
      Value pair = llvm::PoisonValue::get(llvm::FixedVectorType::get(type, 2));
      auto narrow = [&](Value v) -> Value { return b.ir.CreateFPTrunc(v, type); };
      pair = b.ir.CreateInsertElement(pair, narrow(low), uint64_t{0});
      pair = b.ir.CreateInsertElement(pair, narrow(high), uint64_t{1});
      return b.ir.CreateBitCast(pair, b.t_i32());
    };
    const int key_steps = my_keys / (half ? 16 : 8);
    for (int step = 0; step < key_steps; ++step) {
      Values a, a_high, a_low;
      if (half) {
        const Values &x = s[static_cast<size_t>(2 * step)], &y = s[static_cast<size_t>(2 * step + 1)];
        a = {pack(x[0], x[1]), pack(x[2], x[3]), pack(y[0], y[1]), pack(y[2], y[3])};
      } else {
        const Values &x = s[static_cast<size_t>(step)];
        for (size_t i : {size_t{0}, size_t{2}, size_t{1}, size_t{3}}) a.push_back(b.ir.CreateBitCast(x[i], b.t_i32()));
        parts(a, &a_high, &a_low);
      }
      for (int n = 0; n < width_blocks / 2; ++n) {
        Values f = v_tile.fragments(stage, b.i32(16 * n), b.mul(key_warp, key_steps), step, false, true), high, low;
        if (!half) parts(f, &high, &low);
        for (int h = 0; h < 2; ++h) {
          const size_t block = static_cast<size_t>(2 * n + h);
          if (half) {
            multiply(o, block, a, f, h);
          } else {
            multiply(o, block, a_low, high, h);
            multiply(o, block, a_high, low, h);
            multiply(o, block, a_high, high, h);
          }
        }
      }
    }
    write_keys(other, computed);  // nobody reads that half before the next barrier
    for (const Values &block : o) out.insert(out.end(), block.begin(), block.end());
    out.insert(out.end(), {top[0], top[1], total[0], total[1], other});
    return out;
  });
  b.copy_wait(0);

  Values sums(last.begin(), last.begin() + static_cast<std::ptrdiff_t>(outputs));
  Value tops[2], totals[2];
  for (size_t r = 0; r < 2; ++r) {
    tops[r] = last[outputs + r];
    totals[r] = last[outputs + 2 + r];
    for (int mask : {1, 2}) totals[r] = b.ir.CreateFAdd(totals[r], b.shuffle_xor(totals[r], mask));
  }
  // Blocks of eight columns that this warp finishes: all, or every key_warps-th from its own.
  const int my_blocks = width_blocks / plan.key_warps;
  if (plan.key_warps > 1) {
    // All parts lie in shared memory, a word a lane; the sum runs over them in their order.
    const int words = static_cast<int>(outputs) + 4, row_bytes = plan.row_warps * words * 128;
    Value place = b.add(b.add(b.mul(row_warp, words * 128), b.shl(lane, 2)), static_cast<int64_t>(at_kv));
    b.barrier();
    Value mine = b.add(place, b.mul(key_warp, row_bytes));
    auto word = [&](Value from, int64_t i) { return b.shared(b.add(from, i * 128)); };
    for (size_t i = 0; i < outputs; ++i) b.store(sums[i], word(mine, static_cast<int64_t>(i)), 4);
    for (int64_t r = 0; r < 2; ++r) {
      b.store(tops[r], word(mine, static_cast<int64_t>(outputs) + r), 4);
      b.store(totals[r], word(mine, static_cast<int64_t>(outputs) + 2 + r), 4);
    }
    b.barrier();
    sums.assign(static_cast<size_t>(my_blocks) * 4, b.f32(0));
    for (int64_t r = 0; r < 2; ++r) {
      Values part_top, part_total;
      for (int part = 0; part < plan.key_warps; ++part) {
        Value from = b.add(place, static_cast<int64_t>(part) * row_bytes);
        part_top.push_back(b.load(b.t_f32(), word(from, static_cast<int64_t>(outputs) + r), 4));
        part_total.push_back(b.load(b.t_f32(), word(from, static_cast<int64_t>(outputs) + 2 + r), 4));
      }
      Value top = part_top[0];
      for (size_t part = 1; part < part_top.size(); ++part)
        top = combine(b, Combine::kMax, ElementType::kFloat32, top, part_top[part]);
      Value shift = b.ir.CreateSelect(b.ir.CreateFCmpOEQ(top, minus_infinity), b.f32(0), top);
      Value total = b.f32(0);
      for (int part = 0; part < plan.key_warps; ++part) {
        const size_t p = static_cast<size_t>(part);
        Value scale = exp_f32(b, b.ir.CreateFSub(part_top[p], shift));
        total = b.ir.CreateFAdd(total, b.ir.CreateFMul(part_total[p], scale));
        Value from = b.add(b.add(place, static_cast<int64_t>(part) * row_bytes), b.shl(key_warp, 9));
        for (int n = 0; n < my_blocks; ++n)
          for (int64_t c = 0; c < 2; ++c) {
            Value &sum = sums[static_cast<size_t>(4 * n + 2 * r + c)];
            Value v = b.load(b.t_f32(), word(from, 4 * int64_t{n} * plan.key_warps + 2 * r + c), 4);
            sum = b.ir.CreateFAdd(sum, b.ir.CreateFMul(v, scale));
          }
      }
      tops[r] = top;
      totals[r] = total;
    }
  }

  // All keys excluded: exp(-inf - -inf) is NaN.
  const Value nan = llvm::ConstantFP::getNaN(b.t_f32());
  Value excluded[2];
  for (size_t r = 0; r < 2; ++r) {
    excluded[r] = b.ir.CreateFCmpOEQ(tops[r], minus_infinity);
    totals[r] = b.ir.CreateSelect(excluded[r], nan, totals[r]);
  }
  // Neighbouring results from column e on.
  auto store = [&](const Scope &of_row, Value e, const Values &results, Value top, Value total) {
    Scope scope = of_row;
    scope.set(plan.result_width, e);
    if (results.size() == 2) scope.vectorize(plan.result_width, 2);
    scope.read_local = [&](Scope &, const Scalar &local, int lane_of) {
      if (local.local == plan.sum) return total;
      if (local.local == plan.top) return top;
      return results[static_cast<size_t>(lane_of)];
    };
    for (const StageOutput &output : plan.last->outputs) {
      Values values;
      for (int i = 0; i < scope.lanes(); ++i) values.push_back(scope.scalar(output.value, i));
      scope.store(output.buffer, output.index, values);
    }
  };
  Value first_column = b.add(column, b.shl(key_warp, 3));
  auto finish = [&] {
    for (int r = 0; r < 2; ++r)
      b.when(b.lt(my_row[r], rows), [&] {
        const Scope &scope = row_scope[static_cast<size_t>(r)];
        for (int n = 0; n < my_blocks; ++n) {
          Value e = b.add(first_column, 8 * n * plan.key_warps);
          const size_t at = static_cast<size_t>(4 * n + 2 * r);
          b.when(b.lt(e, width), [&] {
            if (plan.width.extent.value() % 2 == 0) {
              store(scope, e, {sums[at], sums[at + 1]}, tops[r], totals[r]);
            } else {
              store(scope, e, {sums[at]}, tops[r], totals[r]);
              b.when(b.lt(b.add(e, 1), width), [&] { store(scope, b.add(e, 1), {sums[at + 1]}, tops[r], totals[r]); });
            }
          });
        }
      });
  };
  if (half && !plan.zero_probabilities) return finish();
  // As with products (Gemm::plain_sum): where a row has what is not finite, it is computed again in f32 arithmetic.
  Value good = b.ir.getTrue();
  for (size_t r = 0; r < 2; ++r) {
    Value finite = b.ir.CreateFMul(totals[r], b.f32(0));
    for (int n = 0; n < my_blocks; ++n)
      for (size_t c = 0; c < 2; ++c) finite = b.fma(sums[static_cast<size_t>(4 * n) + 2 * r + c], b.f32(0), finite);
    good = b.both(good, b.ir.CreateOr(b.ir.CreateFCmpORD(finite, finite), excluded[r]));
  }
  auto rolled = [&](Value end, Value begin, const std::function<Value(Value i, Value in)> &body) {
    return b.loop(
        b.i32(0), end, b.i32(1), {begin}, [&](Value i, const Values &in) { return Values{body(i, in[0])}; }, true)[0];
  };
  auto again = [&](Value row) {
    Scope of_row = base;
    delinearize(of_row, plan.rows, row);
    auto score = [&](Value j) {
      Value raw = rolled(inner, b.f32(0), [&](Value d, Value in) {
        Scope scope = of_row;
        scope.set(plan.keys.index, j);
        scope.set(plan.inner.index, d);
        return b.ir.CreateFAdd(in, b.ir.CreateFMul(scope.scalar(plan.query.whole), scope.scalar(plan.key.whole)));
      });
      Scope scope = of_row;
      scope.set(plan.score_key, j);
      scope.read_local = [raw](Scope &, const Scalar &, int) { return raw; };
      return scope.scalar(plan.score->value);
    };
    Value top = rolled(keys, minus_infinity, [&](Value j, Value in) {
      return combine(b, Combine::kMax, ElementType::kFloat32, in, score(j));
    });
    auto weight = [&](Value j) { return exp_f32(b, b.ir.CreateFSub(score(j), top)); };
    Value zero = b.ir.CreateFMul(top, b.f32(0)), none = b.ir.CreateFCmpUNO(zero, zero);  // all weights are NaN then
    Value total = b.either(
        none, [&] { return Values{nan}; },
        [&] {
          return Values{rolled(keys, b.f32(0), [&](Value j, Value in) { return b.ir.CreateFAdd(in, weight(j)); })};
        })[0];
    rolled(b.i32(2 * my_blocks), b.i32(0), [&](Value i, Value in) {
      Value e = b.add(b.add(first_column, b.mul(b.shr(i, 1), 8 * plan.key_warps)), b.and_(i, 1));
      b.when(b.lt(e, width), [&] {
        auto sum_by = [&](const std::function<Value(Value j)> &weight_of) {
          return Values{rolled(keys, b.f32(0), [&](Value j, Value sum) {
            Scope scope = of_row;
            scope.set(plan.value_key, j);
            scope.set(plan.width.index, e);
            return b.ir.CreateFAdd(sum, b.ir.CreateFMul(weight_of(j), scope.scalar(plan.value.whole)));
          })};
        };
        Value result = b.either(
            none, [&] { return plan.zero_probabilities ? sum_by([&](Value) { return b.f32(0); }) : Values{nan}; },
            [&] { return sum_by(weight); })[0];
        store(of_row, e, {result}, top, total);
      });
      return in;
    });
  };
  b.either(
      good,
      [&] {
        finish();
        return Values{};
      },
      [&] {
        rolled(b.i32(2), b.i32(0), [&](Value r, Value in) {
          Value row = b.add(b.add(b.add(row0, warp_row), b.shr(lane, 2)), b.shl(r, 3));
          b.when(b.lt(row, rows), [&] { again(row); });
          return in;
        });
        return Values{};
      });
}

}  // namespace

std::vector<Draft> draft_attention(const Program &program, const Kernel &kernel) {
  auto plan = attention_plan(program, *kernel.nest());
  if (!plan) return {};
  Draft draft;
  draft.form = "attention." + std::string(to_string(plan->type)) + " " + std::to_string(plan->block_rows()) + "x" +
               std::to_string(plan->tile) + (plan->key_warps > 1 ? " k/" + std::to_string(plan->key_warps) : "") +
               " d" + std::to_string(plan->padded_inner);
  draft.threads = 32 * kWarps;
  draft.grid[0] = ceil_div(total_extent(plan->rows), plan->block_rows());
  draft.grid[2] = total_extent(plan->batch);
  draft.body = [plan = *plan](KernelContext &k) { emit_attention(k, plan); };
  return {draft};
}

}  // namespace optc::ptx
