#include "emit/ptx/hopper.h"

#include <llvm/IR/InlineAsm.h>

namespace optc::ptx {

namespace {

// One instruction with an effect, no result.
void effect(Builder &b, const std::string &text, const std::string &constraints = "", const Values &args = {}) {
  b.effect_asm(text, constraints, {}, args);
}

}  // namespace

void barrier_init(Builder &b, Value at, int arrivals) {
  effect(b, "mbarrier.init.shared::cta.b64 [$0], " + std::to_string(arrivals) + ";", "r", {at});
}

void barrier_init_fence(Builder &b) { effect(b, "fence.mbarrier_init.release.cluster;"); }

void barrier_expect(Builder &b, Value at, int bytes) {
  effect(b, "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], " + std::to_string(bytes) + ";", "r", {at});
}

void barrier_arrive_if(Builder &b, Value at, Value condition) {
  // Predicated inside, so that no branch splits the warp.
  effect(b, "{ .reg .pred p; setp.ne.b32 p, $1, 0; @p mbarrier.arrive.shared::cta.b64 _, [$0]; }", "r,r",
         {at, b.ir.CreateZExt(condition, b.t_i32())});
}

void barrier_wait(Builder &b, Value at, Value parity) {
  effect(b, "{ .reg .pred p; W${:uid}: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; @!p bra W${:uid}; }",
         "r,r", {at, parity});
}

void tma_load(Builder &b, Value to, Value map, const Values &coordinates, Value barrier) {
  const size_t rank = coordinates.size();
  std::string where, constraints = "r,l";
  for (size_t i = 0; i < rank; ++i) {
    where += (i ? ", $" : "$") + std::to_string(i + 2);
    constraints += ",r";
  }
  Values args{to, map};
  args.insert(args.end(), coordinates.begin(), coordinates.end());
  args.push_back(barrier);
  effect(b,
         "cp.async.bulk.tensor." + std::to_string(rank) +
             "d.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1, {" + where + "}], [$" +
             std::to_string(rank + 2) + "];",
         constraints + ",r", args);
}

void tma_load_image(Builder &b, Value to, Value map, const Values &coordinates, const Values &offsets, Value barrier) {
  Values args{to, map};
  args.insert(args.end(), coordinates.begin(), coordinates.end());
  args.push_back(barrier);
  for (Value offset : offsets) args.push_back(b.ir.CreateTrunc(offset, b.ir.getInt16Ty()));
  effect(b,
         "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
         "[$0], [$1, {$2, $3, $4, $5}], [$6], {$7, $8};",
         "r,l,r,r,r,r,r,h,h", args);
}

Value wgmma_descriptor(Builder &b, Value at, int leading_bytes) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kGroups = uint64_t{1024 >> 4} << 32;
  const uint64_t fixed = kSwizzle128 | kGroups | static_cast<uint64_t>(leading_bytes >> 4) << 16;
  return b.ir.CreateOr(b.ir.CreateZExt(b.shr(at, 4), b.t_i64()), b.i64(static_cast<int64_t>(fixed)));
}

Value wgmma_descriptor_at(Builder &b, Value descriptor, int bytes) {
  return bytes == 0 ? descriptor : b.ir.CreateAdd(descriptor, b.i64(bytes >> 4));
}

Values wgmma(Builder &b, MmaType type, int n, const Values &sums, Value a, bool a_across, Value in_b, bool b_across,
             Value accumulate) {
  const std::string kind = type == MmaType::kBF16 ? "bf16" : "f16";
  std::string list, constraints;
  for (size_t i = 0; i < sums.size(); ++i) {
    list += (i ? ", $" : "$") + std::to_string(i);
    constraints += "=f,";
  }
  const size_t at = sums.size();
  Values args{a, in_b};
  constraints += "l,l";
  std::string before, scale = "1";
  if (accumulate) {
    args.push_back(b.ir.CreateZExt(accumulate, b.t_i32()));
    constraints += ",r";
    before = ".reg .pred p; setp.ne.b32 p, $" + std::to_string(at + 2) + ", 0; ";
    scale = "p";
  }
  for (size_t i = 0; i < sums.size(); ++i) constraints += "," + std::to_string(i);
  args.insert(args.end(), sums.begin(), sums.end());
  const std::string text = "{ " + before + "wgmma.mma_async.sync.aligned.m64n" + std::to_string(n) + "k16.f32." + kind +
                           "." + kind + " {" + list + "}, $" + std::to_string(at) + ", $" + std::to_string(at + 1) +
                           ", " + scale + ", 1, 1, " + (a_across ? "1" : "0") + ", " + (b_across ? "1" : "0") + "; }";
  return b.effect_asm(text, constraints, std::vector<llvm::Type *>(sums.size(), b.t_f32()), args);
}

void wgmma_fence(Builder &b) { effect(b, "wgmma.fence.sync.aligned;"); }
void wgmma_commit(Builder &b) { effect(b, "wgmma.commit_group.sync.aligned;"); }

Values wgmma_wait(Builder &b, int pending, const Values &sums) {
  // Takes and returns every sum, so that nothing can read one before the wait.
  std::string constraints;
  for (size_t i = 0; i < sums.size(); ++i) constraints += "=f,";
  for (size_t i = 0; i < sums.size(); ++i) constraints += (i ? "," : "") + std::to_string(i);
  return b.effect_asm("wgmma.wait_group.sync.aligned " + std::to_string(pending) + ";", constraints,
                      std::vector<llvm::Type *>(sums.size(), b.t_f32()), sums);
}

void set_registers(Builder &b, int count, bool more) {
  effect(b, std::string("setmaxnreg.") + (more ? "inc" : "dec") + ".sync.aligned.u32 " + std::to_string(count) + ";");
}

}  // namespace optc::ptx
