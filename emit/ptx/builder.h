#pragma once
// Builder: one GPU kernel under construction. A thin layer over llvm::IRBuilder: structured control flow, shared
// memory, and the instructions of sm_80 that the templates use. Values are threaded through loops, so that phi nodes
// write themselves.

#include <llvm/IR/IRBuilder.h>

#include <functional>
#include <string>
#include <vector>

namespace optc::ptx {

using Value = llvm::Value *;
using Values = std::vector<Value>;

// kReadPointer: memory that no kernel of the model writes (weights, the model's inputs): its loads may go through the
// read-only cache and before the wait for earlier kernels. kSharedPointer: what this kernel reads and an earlier one
// may have written. kWritePointer: what this kernel writes.
// kTensorMap: a tensor map of TMA, 128 bytes by value.
enum class ParamType : uint8_t { kReadPointer, kSharedPointer, kWritePointer, kI32, kTensorMap };

enum class MmaType : uint8_t { kF16, kBF16, kTF32 };

class Builder {
 public:
  // Pointers are to global memory, 16-byte aligned.
  // chained: the kernel may start while the one before it in the stream still runs (sm_90 and later), and lets the next
  // one do so.
  Builder(llvm::Module &module, const std::string &name, const std::vector<ParamType> &params, unsigned threads,
          bool chained = false);
  void finish();  // returns from the kernel

  bool chained() const { return chained_; }
  // The next kernel's blocks may take their places as soon as this one's have theirs, instead of at its end. Good where
  // both are small: they share the multiprocessors while they wait, and lie unevenly on them after.
  void let_next_start_early() { early_ = true; }
  // In a chained kernel: until here nothing may be read that another kernel writes, and nothing written; all that the
  // kernels before did is visible from here on. Once in a kernel, where all threads pass. Elsewhere nothing.
  void wait_for_kernels_before();

  llvm::IRBuilder<> ir;
  llvm::Function *function() const { return function_; }
  Value param(size_t i) const { return function_->getArg(static_cast<unsigned>(i)); }
  // Of a parameter that is a tensor map, as TMA's instructions take it (i64).
  Value map_address(size_t i) { return ir.CreatePtrToInt(param(i), t_i64()); }
  // The parameters that are tensor maps, from 1 on, for mark_kernel.
  const std::vector<unsigned> &maps() const { return maps_; }
  unsigned threads() const { return threads_; }

  // --- Constants and types
  llvm::Type *t_i1() { return ir.getInt1Ty(); }
  llvm::Type *t_i32() { return ir.getInt32Ty(); }
  llvm::Type *t_i64() { return ir.getInt64Ty(); }
  llvm::Type *t_f32() { return ir.getFloatTy(); }
  Value i32(int64_t v) { return ir.getInt32(static_cast<uint32_t>(v)); }
  Value i64(int64_t v) { return ir.getInt64(static_cast<uint64_t>(v)); }
  Value f32(double v) { return llvm::ConstantFP::get(ir.getFloatTy(), v); }

  // --- Where am I
  Value tid() { return tid_; }
  Value block(int axis) { return block_[axis]; }           // 0, 1, 2: x, y, z
  void set_block(int axis, Value v) { block_[axis] = v; }  // for what is built from here on
  Value lane();
  Value warp();  // the same register in all lanes of a warp, and known to be so

  // --- Integer arithmetic on i32; constants fold. Operands of div and rem are not negative.
  Value add(Value a, Value b) { return ir.CreateAdd(a, b); }
  Value add(Value a, int64_t b) { return b == 0 ? a : ir.CreateAdd(a, i32(b)); }
  Value sub(Value a, Value b) { return ir.CreateSub(a, b); }
  Value mul(Value a, Value b) { return ir.CreateMul(a, b); }
  Value mul(Value a, int64_t b) { return ir.CreateMul(a, i32(b)); }
  Value div(Value a, int64_t b) { return ir.CreateUDiv(a, i32(b)); }
  Value div(Value a, Value b) { return ir.CreateUDiv(a, b); }
  Value rem(Value a, int64_t b) { return ir.CreateURem(a, i32(b)); }
  Value rem(Value a, Value b) { return ir.CreateURem(a, b); }
  Value and_(Value a, int64_t b) { return ir.CreateAnd(a, i32(b)); }
  Value xor_(Value a, Value b) { return ir.CreateXor(a, b); }
  Value shl(Value a, int b) { return ir.CreateShl(a, i32(b)); }
  Value shr(Value a, int b) { return ir.CreateLShr(a, i32(b)); }
  Value lt(Value a, Value b) { return ir.CreateICmpSLT(a, b); }
  Value both(Value a, Value b) { return ir.CreateAnd(a, b); }  // i1
  Value min(Value a, Value b) { return ir.CreateSelect(ir.CreateICmpSLT(a, b), a, b); }
  Value max(Value a, Value b) { return ir.CreateSelect(ir.CreateICmpSGT(a, b), a, b); }

  // --- Floating point
  Value fma(Value a, Value b, Value c);
  Value fmax(Value a, Value b);  // the number where one is NaN
  Value call(llvm::Intrinsic::ID id, llvm::ArrayRef<llvm::Type *> overloads, llvm::ArrayRef<Value> args);

  // --- Control flow
  void when(Value condition, const std::function<void()> &body);
  // Both sides give the same types; the result is the phis.
  Values either(Value condition, const std::function<Values()> &yes, const std::function<Values()> &no);
  // for (i = begin; i < end; i += step) carried = body(i, carried); returns the last carried. i32 counters, step > 0.
  // rolled: one copy of the body, for code that rarely runs.
  Values loop(Value begin, Value end, Value step, Values carried,
              const std::function<Values(Value, const Values &)> &body, bool rolled = false);
  void loop(Value begin, Value end, Value step, const std::function<void(Value)> &body);
  // The ends of the loops that stay rolled, for mark_kernel.
  const std::vector<llvm::Instruction *> &rolled() const { return rolled_; }

  // --- Memory
  // Address of element `index` (i32, sign-extended; or i64) of `base` + a constant number of elements.
  Value at(llvm::Type *element, Value base, Value index, int64_t offset = 0);
  Value load(llvm::Type *type, Value pointer, unsigned align, bool invariant = false);
  void store(Value value, Value pointer, unsigned align);
  // Reserves bytes of the block's dynamic shared memory; returns the offset. `shared` turns an offset (i32) into a
  // pointer.
  unsigned reserve_shared(unsigned bytes, unsigned align = 16);
  void free_shared(unsigned offset) { shared_used_ = offset; }  // what was reserved since then is free again
  unsigned shared_bytes() const { return shared_high_; }
  Value shared(Value byte_offset);
  Value shared(unsigned byte_offset) { return shared(i32(byte_offset)); }
  // The address of shared memory's begin, as instructions take it (i32), and the pointer to such an address.
  Value shared_start() { return ir.CreatePtrToInt(shared(0u), t_i32()); }
  Value shared_at(Value address);
  void barrier();
  Value local_array(llvm::Type *element, uint64_t count);  // per thread

  // Between blocks of one launch (PTX ISA, memory consistency model): an order of all that this thread and those that
  // met it at a barrier did, a counter in global memory (returns its value before), and a 16-byte load that sees what
  // other blocks stored before their part of such an order. The pointers are 4- and 16-byte aligned.
  void fence_gpu();
  Value count_up(Value counter);
  Values load_shared_by_blocks(Value pointer);  // four f32

  // Asynchronous copy of 4, 8 or 16 bytes to shared memory; where `valid` (i1, or null: always) is false, zeros are
  // written and `from` is not read.
  void copy_async(Value to_shared, Value from_global, unsigned bytes, Value valid);
  void copy_commit();
  void copy_wait(unsigned pending);

  // --- Warp operations
  Value shuffle_xor(Value v, int mask);                       // i32 or float, or 64-bit in two halves
  Values ldmatrix_x4(Value shared_pointer, bool transposed);  // four i32
  // acc (4 floats) += A (4 i32) * B (2 i32): m16n8k16 for 16-bit types, m16n8k8 for TF32 (A: 4, B: 2 registers there
  // too).
  Values mma(MmaType type, const Values &a, const Values &b, const Values &acc);
  Value to_tf32(Value f32_value);  // i32 register, rounded to nearest, ties away

  // One instruction of inline assembly without side effects, all operands f32 / i32.
  Value pure_asm(const char *text, const char *constraints, llvm::Type *result, llvm::ArrayRef<Value> args);
  // Inline assembly with effects on memory, made by all threads of a warp together; gives one value a result type.
  Values effect_asm(const std::string &text, const std::string &constraints, const std::vector<llvm::Type *> &results,
                    const Values &args);

 private:
  llvm::Module &module_;
  llvm::Function *function_ = nullptr;
  llvm::GlobalVariable *shared_memory_ = nullptr;
  bool chained_ = false, early_ = false;
  std::vector<llvm::Instruction *> rolled_;
  std::vector<unsigned> maps_;
  unsigned threads_ = 0, shared_used_ = 0, shared_high_ = 0, shared_align_ = 128;
  Value tid_ = nullptr, lane_ = nullptr, warp_ = nullptr, block_[3] = {};
};

}  // namespace optc::ptx
