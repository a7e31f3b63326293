// The product of a few rows: its second factor goes from memory to registers, nothing is shared but the sums.
//
// An instruction of 16 x 8 x 16 wants of a thread two pairs of neighbours along k of one column, and the same pairs of
// a row. Which pairs of memory these are is free as long as both factors agree: a thread has 16 bytes, four pairs, of
// its column, the operands of two instructions. Four threads share a column of 8, eight columns are a warp's fetch; the
// warps have the next parts of k.

#include <algorithm>

#include "emit/ptx/gemm.h"

namespace optc::ptx {

namespace {

// 16-byte fetches that a thread has on its way: what 128 registers hold beside sums and addresses.
constexpr int kFlight = 16;

// Four words at `pointer`, or zeros where `valid` (null: always) does not hold. An instruction of its own, which stays
// on its side of the wait for earlier kernels.
Values fetch_words(Builder &b, Value pointer, Value valid, bool constant) {
  const std::string load =
      std::string("ld.global") + (constant ? ".nc" : "") + ".L1::no_allocate.v4.b32 {$0, $1, $2, $3}, [$4];";
  const std::vector<llvm::Type *> words(4, b.t_i32());
  Value at = b.ir.CreatePtrToInt(pointer, b.t_i64());
  if (!valid) return b.effect_asm(load, "=r,=r,=r,=r,l", words, {at});
  return b.effect_asm("mov.b32 $0, 0;\n\tmov.b32 $1, 0;\n\tmov.b32 $2, 0;\n\tmov.b32 $3, 0;\n\t@$5 " + load,
                      "=&r,=&r,=&r,=&r,l,b", words, {at, valid});
}

}  // namespace

Values sums_through_registers(Builder &b, const Gemm &g) {
  const TensorCoreTile &t = g.tile;
  const MmaType mma = g.type == TensorCoreType::kF16 ? MmaType::kF16 : MmaType::kBF16;
  const int64_t k = llvm::cast<llvm::ConstantInt>(g.k)->getSExtValue();
  const int columns = t.n / 8, steps = static_cast<int>((k + t.k - 1) / t.k),
            depth = std::min(steps, std::max(1, kFlight / columns));
  Value group = b.shr(b.lane(), 2);  // a row of the first factor, a column of the second
  Value first_k = b.add(b.mul(b.warp(), kRegisterDepth), b.shl(b.and_(b.lane(), 3), 3));
  const auto k_of = [&](int step) { return b.add(first_k, int64_t{step} * t.k); };
  // Null where all threads are inside k.
  const auto inside = [&](int step) { return (step + 1) * int64_t{t.k} <= k ? nullptr : b.lt(k_of(step), b.i32(k)); };
  Values column;
  for (int c = 0; c < columns; ++c)  // one behind the last is summed, and not stored
    column.push_back(b.min(b.add(b.add(g.column0, group), int64_t{8} * c), b.add(g.n, -1)));

  std::vector<std::vector<Values>> ring(static_cast<size_t>(depth));  // [step][column]: four words
  const auto fetch = [&](int step) {
    std::vector<Values> &slot = ring[static_cast<size_t>(step % depth)];
    slot.clear();
    for (Value c : column) slot.push_back(fetch_words(b, g.b.chunk(c, k_of(step)).pointer, inside(step), g.b.constant));
  };
  const bool early = b.chained() && g.b.constant;
  for (int s = 0; early && s < depth; ++s) fetch(s);
  b.wait_for_kernels_before();
  if (g.before_products) g.before_products();
  for (int s = 0; !early && s < depth; ++s) fetch(s);

  // The rows 8 to 15 of the instruction, too, where there may be any.
  const auto *rows = llvm::dyn_cast<llvm::ConstantInt>(g.m);
  const int halves = rows && rows->getSExtValue() <= 8 ? 1 : 2;
  auto *four = llvm::FixedVectorType::get(b.t_i32(), 4);
  const auto row_words = [&](int half, int step) {
    Value row = b.add(b.add(g.row0, group), int64_t{8} * half), in_k = inside(step), valid = b.lt(row, g.m);
    Value at = in_k ? b.min(k_of(step), b.i32(k - 8)) : k_of(step);
    Value words = b.load(four, g.a.chunk(b.min(row, b.add(g.m, -1)), at).pointer, 16);
    words = b.ir.CreateSelect(in_k ? b.both(valid, in_k) : valid, words, llvm::Constant::getNullValue(four));
    Values out;
    for (uint64_t i = 0; i < 4; ++i) out.push_back(b.ir.CreateExtractElement(words, i));
    return out;
  };
  // Two chains of sums a column, which do not wait for one another.
  const size_t count = static_cast<size_t>(columns) * 4;
  Values sums[2] = {Values(count, b.f32(0)), Values(count, b.f32(0))};
  for (int s = 0; s < steps; ++s) {
    Values x[2];
    for (int half = 0; half < 2; ++half) x[half] = half < halves ? row_words(half, s) : Values(4, b.i32(0));
    const std::vector<Values> slot = ring[static_cast<size_t>(s % depth)];
    if (s + depth < steps) fetch(s + depth);
    for (size_t c = 0; c < static_cast<size_t>(columns); ++c)
      for (size_t part = 0; part < 2; ++part) {
        const auto at = sums[part].begin() + static_cast<std::ptrdiff_t>(4 * c);
        const size_t i = 2 * part;
        const Values next =
            b.mma(mma, {x[0][i], x[1][i], x[0][i + 1], x[1][i + 1]}, {slot[c][i], slot[c][i + 1]}, Values(at, at + 4));
        std::copy(next.begin(), next.end(), at);
      }
  }
  for (size_t i = 0; i < count; ++i) sums[0][i] = b.ir.CreateFAdd(sums[0][i], sums[1][i]);
  return sums[0];
}

}  // namespace optc::ptx
