#include "emit/ptx/builder.h"

#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/Module.h>

#include <algorithm>

namespace optc::ptx {

namespace {
constexpr unsigned kGlobal = 1, kShared = 3;  // address spaces of NVPTX
}

Builder::Builder(llvm::Module &module, const std::string &name, const std::vector<ParamType> &params, unsigned threads,
                 bool chained)
    : ir(module.getContext()), module_(module), chained_(chained), threads_(threads) {
  std::vector<llvm::Type *> types;
  for (ParamType p : params)
    types.push_back(p == ParamType::kI32         ? static_cast<llvm::Type *>(ir.getInt32Ty())
                    : p == ParamType::kTensorMap ? ir.getPtrTy()
                                                 : ir.getPtrTy(kGlobal));
  function_ = llvm::Function::Create(llvm::FunctionType::get(ir.getVoidTy(), types, false),
                                     llvm::GlobalValue::ExternalLinkage, name, module);
  for (size_t i = 0; i < params.size(); ++i) {
    if (params[i] == ParamType::kI32) continue;
    if (params[i] == ParamType::kTensorMap) {
      auto *bytes = llvm::ArrayType::get(ir.getInt8Ty(), 128);
      function_->addParamAttr(i, llvm::Attribute::getWithByValType(module.getContext(), bytes));
      function_->addParamAttr(i, llvm::Attribute::getWithAlignment(module.getContext(), llvm::Align(64)));
      maps_.push_back(static_cast<unsigned>(i) + 1);
      continue;
    }
    function_->addParamAttr(i, llvm::Attribute::getWithAlignment(module.getContext(), llvm::Align(16)));
    if (params[i] == ParamType::kReadPointer) {
      function_->addParamAttr(i, llvm::Attribute::NoAlias);
      function_->addParamAttr(i, llvm::Attribute::ReadOnly);
    }
  }
  function_->addFnAttr(llvm::Attribute::NoUnwind);
  ir.SetInsertPoint(llvm::BasicBlock::Create(module.getContext(), "entry", function_));
  tid_ = call(llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x, {}, {});
  block_[0] = call(llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x, {}, {});
  block_[1] = call(llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_y, {}, {});
  block_[2] = call(llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_z, {}, {});
  lane_ = and_(tid_, 31);
  // The shuffle tells ptxas that the warp's number is uniform, so that branches on it do not diverge.
  warp_ = threads <= 32 ? i32(0)
                        : call(llvm::Intrinsic::nvvm_shfl_sync_idx_i32, {}, {i32(-1), shr(tid_, 5), i32(0), i32(31)});
}

void Builder::finish() { ir.CreateRetVoid(); }

void Builder::wait_for_kernels_before() {
  if (!chained_) return;
  auto *type = llvm::FunctionType::get(ir.getVoidTy(), false);
  auto emit = [&](const char *text) { ir.CreateCall(type, llvm::InlineAsm::get(type, text, "~{memory}", true)); };
  if (early_) emit("griddepcontrol.launch_dependents;");
  emit("griddepcontrol.wait;");
  // A block of its own: what follows is not scheduled before it.
  auto *after = llvm::BasicBlock::Create(ir.getContext(), "after", function_);
  ir.CreateBr(after);
  ir.SetInsertPoint(after);
}

Value Builder::local_array(llvm::Type *element, uint64_t count) {
  llvm::BasicBlock &entry = function_->getEntryBlock();
  llvm::IRBuilder<> at_start(&entry, entry.begin());
  return at_start.CreateAlloca(llvm::ArrayType::get(element, count));
}

Value Builder::lane() { return lane_; }
Value Builder::warp() { return warp_; }

Value Builder::call(llvm::Intrinsic::ID id, llvm::ArrayRef<llvm::Type *> overloads, llvm::ArrayRef<Value> args) {
  return ir.CreateCall(llvm::Intrinsic::getDeclaration(&module_, id, overloads), args);
}

Value Builder::fma(Value a, Value b, Value c) { return call(llvm::Intrinsic::fma, {a->getType()}, {a, b, c}); }
Value Builder::fmax(Value a, Value b) { return call(llvm::Intrinsic::maxnum, {a->getType()}, {a, b}); }

void Builder::when(Value condition, const std::function<void()> &body) {
  if (auto *constant = llvm::dyn_cast<llvm::ConstantInt>(condition)) {
    if (constant->isOne()) body();
    return;
  }
  auto *then = llvm::BasicBlock::Create(ir.getContext(), "then", function_);
  auto *done = llvm::BasicBlock::Create(ir.getContext(), "done", function_);
  ir.CreateCondBr(condition, then, done);
  ir.SetInsertPoint(then);
  body();
  ir.CreateBr(done);
  ir.SetInsertPoint(done);
}

Values Builder::either(Value condition, const std::function<Values()> &yes, const std::function<Values()> &no) {
  if (auto *constant = llvm::dyn_cast<llvm::ConstantInt>(condition)) return constant->isOne() ? yes() : no();
  auto *then = llvm::BasicBlock::Create(ir.getContext(), "then", function_);
  auto *otherwise = llvm::BasicBlock::Create(ir.getContext(), "else", function_);
  auto *done = llvm::BasicBlock::Create(ir.getContext(), "done", function_);
  ir.CreateCondBr(condition, then, otherwise);
  ir.SetInsertPoint(then);
  Values a = yes();
  auto *a_end = ir.GetInsertBlock();
  ir.CreateBr(done);
  ir.SetInsertPoint(otherwise);
  Values b = no();
  auto *b_end = ir.GetInsertBlock();
  ir.CreateBr(done);
  ir.SetInsertPoint(done);
  Values out;
  for (size_t i = 0; i < a.size(); ++i) {
    auto *phi = ir.CreatePHI(a[i]->getType(), 2);
    phi->addIncoming(a[i], a_end);
    phi->addIncoming(b[i], b_end);
    out.push_back(phi);
  }
  return out;
}

Values Builder::loop(Value begin, Value end, Value step, Values carried,
                     const std::function<Values(Value, const Values &)> &body, bool rolled) {
  auto *before = ir.GetInsertBlock();
  auto *head = llvm::BasicBlock::Create(ir.getContext(), "loop", function_);
  auto *inside = llvm::BasicBlock::Create(ir.getContext(), "body", function_);
  auto *done = llvm::BasicBlock::Create(ir.getContext(), "done", function_);
  ir.CreateBr(head);
  ir.SetInsertPoint(head);
  auto *counter = ir.CreatePHI(begin->getType(), 2);
  counter->addIncoming(begin, before);
  Values phis;
  for (Value v : carried) {
    auto *phi = ir.CreatePHI(v->getType(), 2);
    phi->addIncoming(v, before);
    phis.push_back(phi);
  }
  ir.CreateCondBr(ir.CreateICmpSLT(counter, end), inside, done);
  ir.SetInsertPoint(inside);
  Values next = body(counter, phis);
  Value counted = ir.CreateAdd(counter, step, "", false, true);
  auto *last = ir.GetInsertBlock();
  auto *back = ir.CreateBr(head);
  if (rolled) rolled_.push_back(back);
  counter->addIncoming(counted, last);
  for (size_t i = 0; i < next.size(); ++i) llvm::cast<llvm::PHINode>(phis[i])->addIncoming(next[i], last);
  ir.SetInsertPoint(done);
  return phis;
}

void Builder::loop(Value begin, Value end, Value step, const std::function<void(Value)> &body) {
  loop(begin, end, step, {}, [&](Value i, const Values &) {
    body(i);
    return Values{};
  });
}

Value Builder::at(llvm::Type *element, Value base, Value index, int64_t offset) {
  Value wide = index->getType() == t_i64() ? index : ir.CreateSExt(index, t_i64());
  Value p = ir.CreateInBoundsGEP(element, base, wide);
  return offset == 0 ? p : ir.CreateInBoundsGEP(element, p, i64(offset));
}

Value Builder::load(llvm::Type *type, Value pointer, unsigned align, bool invariant) {
  auto *load = ir.CreateAlignedLoad(type, pointer, llvm::Align(align));
  if (invariant) load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(ir.getContext(), {}));
  return load;
}

void Builder::store(Value value, Value pointer, unsigned align) {
  ir.CreateAlignedStore(value, pointer, llvm::Align(align));
}

unsigned Builder::reserve_shared(unsigned bytes, unsigned align) {
  shared_used_ = (shared_used_ + align - 1) / align * align;
  shared_align_ = std::max(shared_align_, align);
  unsigned offset = shared_used_;
  shared_used_ += bytes;
  shared_high_ = std::max(shared_high_, shared_used_);
  return offset;
}

Value Builder::shared(Value byte_offset) {
  if (!shared_memory_) {
    const char *kName = "block_memory";
    shared_memory_ = module_.getGlobalVariable(kName);
    if (!shared_memory_) {
      shared_memory_ = new llvm::GlobalVariable(module_, llvm::ArrayType::get(ir.getInt8Ty(), 0), false,
                                                llvm::GlobalValue::ExternalLinkage, nullptr, kName, nullptr,
                                                llvm::GlobalValue::NotThreadLocal, kShared);
      shared_memory_->setAlignment(llvm::Align(shared_align_));
    }
  }
  if (shared_memory_->getAlign()->value() < shared_align_) shared_memory_->setAlignment(llvm::Align(shared_align_));
  return ir.CreateInBoundsGEP(ir.getInt8Ty(), shared_memory_, byte_offset);
}

Value Builder::shared_at(Value address) { return ir.CreateIntToPtr(address, ir.getPtrTy(kShared)); }

Values Builder::effect_asm(const std::string &text, const std::string &constraints,
                           const std::vector<llvm::Type *> &results, const Values &args) {
  std::vector<llvm::Type *> types;
  for (Value v : args) types.push_back(v->getType());
  llvm::Type *result = results.empty()       ? ir.getVoidTy()
                       : results.size() == 1 ? results[0]
                                             : llvm::StructType::get(ir.getContext(), results);
  auto *type = llvm::FunctionType::get(result, types, false);
  auto *code = llvm::InlineAsm::get(type, text, constraints + (constraints.empty() ? "" : ",") + "~{memory}", true);
  auto *made = ir.CreateCall(type, code, args);
  made->setConvergent();
  if (results.size() == 1) return {made};
  Values out;
  for (unsigned i = 0; i < results.size(); ++i) out.push_back(ir.CreateExtractValue(made, i));
  return out;
}

void Builder::fence_gpu() {
  auto *type = llvm::FunctionType::get(ir.getVoidTy(), false);
  ir.CreateCall(type, llvm::InlineAsm::get(type, "fence.acq_rel.gpu;", "~{memory}", true));
}

Value Builder::count_up(Value counter) {
  auto *type = llvm::FunctionType::get(t_i32(), {t_i64()}, false);
  auto *code = llvm::InlineAsm::get(type, "atom.relaxed.gpu.global.add.u32 $0, [$1], 1;", "=r,l,~{memory}", true);
  return ir.CreateCall(type, code, {ir.CreatePtrToInt(counter, t_i64())});
}

Values Builder::load_shared_by_blocks(Value pointer) {
  auto *four = llvm::StructType::get(t_f32(), t_f32(), t_f32(), t_f32());
  auto *type = llvm::FunctionType::get(four, {t_i64()}, false);
  auto *code = llvm::InlineAsm::get(type, "ld.relaxed.gpu.global.v4.f32 {$0, $1, $2, $3}, [$4];",
                                    "=f,=f,=f,=f,l,~{memory}", true);
  Value r = ir.CreateCall(type, code, {ir.CreatePtrToInt(pointer, t_i64())});
  Values out;
  for (unsigned i = 0; i < 4; ++i) out.push_back(ir.CreateExtractValue(r, i));
  return out;
}

void Builder::barrier() { call(llvm::Intrinsic::nvvm_barrier0, {}, {}); }

void Builder::copy_async(Value to, Value from, unsigned bytes, Value valid) {
  using namespace llvm;
  if (!valid || isa<ConstantInt>(valid)) {
    if (valid && !cast<ConstantInt>(valid)->isOne())
      valid = i32(0);
    else
      valid = nullptr;
  } else {
    valid = ir.CreateSelect(valid, i32(bytes), i32(0));
  }
  // Inline assembly: LLVM 19 has no pattern for these with 32-bit shared and 64-bit global addresses.
  const std::string text = std::string("cp.async.") + (bytes == 16 ? "cg" : "ca") + ".shared.global [$0], [$1], " +
                           std::to_string(bytes) + (valid ? ", $2;" : ";");
  Value at = ir.CreatePtrToInt(to, t_i32()), source = ir.CreatePtrToInt(from, t_i64());
  std::vector<Type *> types{t_i32(), t_i64()};
  Values args{at, source};
  if (valid) {
    types.push_back(t_i32());
    args.push_back(valid);
  }
  auto *type = FunctionType::get(ir.getVoidTy(), types, false);
  ir.CreateCall(type, InlineAsm::get(type, text, valid ? "r,l,r,~{memory}" : "r,l,~{memory}", true), args);
}

void Builder::copy_commit() { call(llvm::Intrinsic::nvvm_cp_async_commit_group, {}, {}); }
void Builder::copy_wait(unsigned pending) { call(llvm::Intrinsic::nvvm_cp_async_wait_group, {}, {i32(pending)}); }

Value Builder::shuffle_xor(Value v, int mask) {
  llvm::Type *type = v->getType();
  if (type->isFloatTy()) return call(llvm::Intrinsic::nvvm_shfl_sync_bfly_f32, {}, {i32(-1), v, i32(mask), i32(31)});
  if (type->getPrimitiveSizeInBits() == 64) {
    Value bits = ir.CreateBitCast(v, t_i64());
    Value low = shuffle_xor(ir.CreateTrunc(bits, t_i32()), mask);
    Value high = shuffle_xor(ir.CreateTrunc(ir.CreateLShr(bits, i64(32)), t_i32()), mask);
    bits = ir.CreateOr(ir.CreateZExt(low, t_i64()), ir.CreateShl(ir.CreateZExt(high, t_i64()), i64(32)));
    return ir.CreateBitCast(bits, type);
  }
  Value wide = type == t_i32() ? v : ir.CreateZExt(v, t_i32());
  wide = call(llvm::Intrinsic::nvvm_shfl_sync_bfly_i32, {}, {i32(-1), wide, i32(mask), i32(31)});
  return type == t_i32() ? wide : ir.CreateTrunc(wide, type);
}

Values Builder::ldmatrix_x4(Value pointer, bool transposed) {
  Value r = call(transposed ? llvm::Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x4_trans_b16
                            : llvm::Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x4_b16,
                 {pointer->getType()}, {pointer});
  Values out;
  for (unsigned i = 0; i < 4; ++i) out.push_back(ir.CreateExtractValue(r, i));
  return out;
}

Values Builder::mma(MmaType type, const Values &a, const Values &b, const Values &acc) {
  Values args;
  llvm::Intrinsic::ID id = llvm::Intrinsic::nvvm_mma_m16n8k16_row_col_f32_f32;
  if (type == MmaType::kBF16) id = llvm::Intrinsic::nvvm_mma_m16n8k16_row_col_bf16;
  if (type == MmaType::kTF32) id = llvm::Intrinsic::nvvm_mma_m16n8k8_row_col_tf32;
  llvm::Type *pair = llvm::FixedVectorType::get(ir.getHalfTy(), 2);
  for (const Values *side : {&a, &b})
    for (Value v : *side) args.push_back(type == MmaType::kF16 ? ir.CreateBitCast(v, pair) : v);
  args.insert(args.end(), acc.begin(), acc.end());
  Value r = call(id, {}, args);
  Values out;
  for (unsigned i = 0; i < 4; ++i) out.push_back(ir.CreateExtractValue(r, i));
  return out;
}

Value Builder::to_tf32(Value v) { return call(llvm::Intrinsic::nvvm_f2tf32_rna, {}, {v}); }

Value Builder::pure_asm(const char *text, const char *constraints, llvm::Type *result, llvm::ArrayRef<Value> args) {
  std::vector<llvm::Type *> types;
  for (Value v : args) types.push_back(v->getType());
  auto *type = llvm::FunctionType::get(result, types, false);
  return ir.CreateCall(type, llvm::InlineAsm::get(type, text, constraints, false), args);
}

}  // namespace optc::ptx
