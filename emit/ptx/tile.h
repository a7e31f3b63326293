#pragma once
// A tile of an operand in shared memory, for the templates on tensor cores.

#include <utility>

#include "emit/ptx/gemm.h"

namespace optc::ptx {

inline int log2_of(int v) {
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
      // No branches: the loads of all elements are in flight together.
      for (int i = 0; i < computed_count(); ++i) {
        auto [row, column] = element_place(i);
        Value outer = b_.add(row, operand_.k_contiguous ? first : k0),
              inner = b_.add(column, operand_.k_contiguous ? k0 : first);
        Value inside = b_.both(b_.lt(operand_.k_contiguous ? inner : outer, k_limit),
                               b_.lt(operand_.k_contiguous ? outer : inner, extent_limit));
        if (!whole(i)) inside = b_.both(inside, b_.lt(row, b_.i32(rows_)));
        pending.push_back(operand_.element(outer, inner, inside));
      }
      return pending;
    }
    const int step = static_cast<int>(operand_.chunk_bytes), per_row = row_bytes_ / step;
    const int total = rows_ * per_row;
    for (int i = 0; i * threads < total; ++i) {
      Value index = b_.add(b_.tid(), i * threads);
      auto fetch_chunk = [&] {
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
        if (operand_.in_shared)
          copy(b_.shared(to), chunk.pointer, static_cast<unsigned>(step), inside);
        else
          b_.copy_async(b_.shared(to), chunk.pointer, static_cast<unsigned>(step), inside);
      };
      if ((i + 1) * threads > total)
        b_.when(b_.lt(index, b_.i32(total)), fetch_chunk);
      else
        fetch_chunk();
    }
    return pending;
  }
  // How many values `fetch` returns and `write` takes.
  int computed_count() const {
    if (operand_.chunk_bytes != 0) return 0;
    const int at_once = operand_.group * gemm_.tile.threads();
    return (rows_ * columns_ + at_once - 1) / at_once;
  }
  void write(Value stage, const Values &values) {
    for (size_t i = 0; i < values.size(); ++i) {
      auto [row, column] = element_place(static_cast<int>(i));
      const int per_chunk = 16 / size_;
      auto put = [&, row = row, column = column] {
        Value to = b_.add(at(stage, row, b_.div(column, per_chunk)), b_.mul(b_.rem(column, per_chunk), size_));
        b_.store(values[i], b_.shared(to), static_cast<unsigned>(size_ * operand_.group));
      };
      if (whole(static_cast<int>(i)))
        put();
      else
        b_.when(b_.lt(row, b_.i32(rows_)), put);
    }
  }

  // The fragments of 16 of m (for A) or 16 of n (two blocks of 8, for B) and 32 bytes of k, at `first` of m / n
  // and k-step `first_step` + `step`.
  // paired (f32, k down the tile): the instruction's k = t and t + 4 are the tile's 2 t and 2 t + 1, as accumulators
  // that become an operand have them.
  Values fragments(Value stage, Value first, Value first_step, int step, bool is_a, bool paired = false) {
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
        Value k = paired ? b_.add(b_.shl(b_.and_(lane, 3), 1), half) : b_.add(b_.and_(lane, 3), 4 * half);
        Value row = b_.add(b_.add(k, b_.shl(first_step, 3)), 8 * step);
        Value column = b_.add(b_.add(first, b_.shr(lane, 2)), 8 * block);
        Value to = b_.add(at(stage, row, b_.shr(column, 2)), b_.shl(b_.and_(column, 3), 2));
        out.push_back(b_.load(b_.t_i32(), b_.shared(to), 4));
      }
    return out;
  }

 private:
  // From shared memory to shared memory; zeros where `valid` does not hold.
  void copy(Value to, Value from, unsigned bytes, Value valid) {
    llvm::Type *type = bytes == 4 ? b_.t_i32() : llvm::FixedVectorType::get(b_.t_i32(), bytes / 4);
    const Values v = b_.either(
        valid, [&] { return Values{b_.load(type, from, bytes)}; },
        [&] { return Values{llvm::Constant::getNullValue(type)}; });
    b_.store(v[0], to, bytes);
  }
  std::pair<Value, Value> element_place(int i) {
    Value index = b_.mul(b_.add(b_.tid(), i * gemm_.tile.threads()), operand_.group);
    return {b_.div(index, columns_), b_.rem(index, columns_)};
  }
  // Whether all threads have an i-th element.
  bool whole(int i) const { return (i + 1) * gemm_.tile.threads() * operand_.group <= rows_ * columns_; }

  Builder &b_;
  const Gemm &gemm_;
  const GemmOperand &operand_;
  unsigned base_;
  int size_, rows_, columns_, row_bytes_, chunks_;
};

// A register of f32 bits as a TF32 pair: high is x rounded to nearest, ties away, and low what is left of x, exact in
// f32; the tensor core ignores its last 13 bits. That cuts less than 2^-21 of x off, with either sign. cvt.rna, which
// does the same to finite numbers, takes five instructions instead of two. NaN, infinity and what becomes infinite when
// it is rounded leave NaN in low or in the product, whose sum is then made anew (Gemm::plain_sum).
struct Split {
  Value high, low;
};
inline Split split(Builder &b, Value bits, bool three) {
  Value x = b.ir.CreateBitCast(bits, b.t_f32());
  if (!three) return {b.to_tf32(x), nullptr};
  Value high = b.and_(b.add(bits, 0x1000), ~int64_t{0x1FFF});
  Value rest = b.ir.CreateFSub(x, b.ir.CreateBitCast(high, b.t_f32()));
  return {high, b.ir.CreateBitCast(rest, b.t_i32())};
}

}  // namespace optc::ptx
