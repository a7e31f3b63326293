#include "emit/ptx/scalars.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

#include <algorithm>
#include <limits>

#include "emit/ptx/math.h"

namespace optc::ptx {

Value KernelContext::pointer(BufferId root) const {
  for (const auto &p : pointers)
    if (p.first == root) return p.second;
  return nullptr;
}

unsigned storage_size(ElementType type) { return static_cast<unsigned>(std::max(8, bit_width(type)) / 8); }

llvm::Type *register_type(Builder &b, ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return b.ir.getFloatTy();
    case ElementType::kFloat64:
      return b.ir.getDoubleTy();
    case ElementType::kFloat16:
      return b.ir.getHalfTy();
    case ElementType::kBool:
      return b.ir.getInt1Ty();
    default:
      return b.ir.getIntNTy(static_cast<unsigned>(bit_width(type)));
  }
}

llvm::Type *storage_type(Builder &b, ElementType type) {
  return type == ElementType::kBool ? b.ir.getInt8Ty() : register_type(b, type);
}

Value to_storage(Builder &b, ElementType type, Value v) {
  return type == ElementType::kBool ? b.ir.CreateZExt(v, b.ir.getInt8Ty()) : v;
}
Value from_storage(Builder &b, ElementType type, Value v) {
  return type == ElementType::kBool ? b.ir.CreateICmpNE(v, b.ir.getInt8(0)) : v;
}

Value constant_value(Builder &b, ElementType type, uint64_t bits) {
  llvm::Type *r = register_type(b, type);
  if (type == ElementType::kBool) return b.ir.getInt1(bits != 0);
  llvm::APInt raw(static_cast<unsigned>(bit_width(type)), bits);
  if (!r->isFloatingPointTy()) return llvm::ConstantInt::get(r, raw);
  return llvm::ConstantFP::get(b.ir.getContext(), llvm::APFloat(r->getFltSemantics(), raw));
}

Value Scope::symbol(const DimSymbol *s, int lane) {
  if (auto it = symbols_.find(s); it != symbols_.end())
    return s == vector_symbol_ ? k_.b.add(it->second, lane) : it->second;
  for (const auto &p : k_.symbols)
    if (p.first == s) return p.second;
  if (s->kind == SymbolKind::kScalar) {
    const std::pair<uint32_t, int> key{static_cast<uint32_t>(s->scalar), depends(ScalarId(s->scalar)) ? lane : 0};
    for (const Cache &cache : caches_)
      if (const auto it = cache.indices.find(key); it != cache.indices.end()) return it->second;
    return caches_.back().indices[key] = checked_index(*s, key.second);
  }
  return nullptr;  // a loop symbol outside its loop: the Program's verifier excludes it
}

Value Scope::checked_index(const DimSymbol &s, int lane) {
  Builder &b = k_.b;
  Value v = scalar(ScalarId(s.scalar), lane);
  const bool wide = v->getType() == b.t_i64();
  if (!wide) v = cast(k_.program.scalars.at(ScalarId(s.scalar)).type, ElementType::kInt32, v);
  Value extent = index(s.extent, lane, wide), zero = wide ? b.i64(0) : b.i32(0);
  Value bad = b.ir.CreateICmpUGE(v, extent);  // as unsigned numbers: those below 0 too
  if (guard_) bad = b.both(guard_, bad);
  b.when(bad, [&] { b.store(b.i32(1), k_.fault, 4); });
  // Clamped before it is narrowed: it must not reach other memory.
  Value last = b.ir.CreateSub(extent, wide ? b.i64(1) : b.i32(1));
  v = b.ir.CreateSelect(b.ir.CreateICmpSGT(v, last), last, v);
  v = b.ir.CreateSelect(b.ir.CreateICmpSLT(v, zero), zero, v);
  return wide ? b.ir.CreateTrunc(v, b.t_i32()) : v;
}

Value Scope::index(Dim d, int lane, bool wide) {
  Builder &b = k_.b;
  llvm::Type *type = wide ? b.t_i64() : b.t_i32();
  auto number = [&](int64_t v) -> Value { return llvm::ConstantInt::get(type, static_cast<uint64_t>(v), true); };
  if (d.is_constant()) return number(d.value());
  Value sum = nullptr;
  for (const DimTerm &term : d.node()->terms) {
    Value product = nullptr;
    for (const DimAtom *atom : term.atoms) {
      Value v = nullptr;
      if (atom->kind == AtomKind::kSymbol) {
        v = symbol(atom->symbol, lane);
        if (wide) v = b.ir.CreateSExt(v, type);
      } else {
        Value x = index(atom->a, lane, wide), y = index(atom->b, lane, wide);
        switch (atom->kind) {
          case AtomKind::kMin:
            v = b.ir.CreateSelect(b.ir.CreateICmpSLT(x, y), x, y);
            break;
          case AtomKind::kMax:
            v = b.ir.CreateSelect(b.ir.CreateICmpSLT(x, y), y, x);
            break;
          case AtomKind::kFloorDiv:
          case AtomKind::kMod: {
            const bool mod = atom->kind == AtomKind::kMod;
            if (lower_bound(atom->a) >= 0) {
              v = mod ? b.ir.CreateURem(x, y) : b.ir.CreateUDiv(x, y);
              break;
            }
            // floored division by a positive divisor
            Value r = b.ir.CreateSRem(x, y);
            Value below = b.ir.CreateICmpSLT(r, number(0));
            if (mod)
              v = b.ir.CreateSelect(below, b.ir.CreateAdd(r, y), r);
            else
              v = b.ir.CreateSub(b.ir.CreateSDiv(x, y), b.ir.CreateZExt(below, type));
            break;
          }
          case AtomKind::kSymbol:
            break;
        }
      }
      product = product ? b.ir.CreateMul(product, v, "", false, true) : v;
    }
    if (term.coefficient != 1) product = b.ir.CreateMul(product, number(term.coefficient), "", false, true);
    sum = sum ? b.ir.CreateAdd(sum, product, "", false, true) : product;
  }
  if (d.node()->constant != 0) sum = b.ir.CreateAdd(sum, number(d.node()->constant), "", false, true);
  return sum;
}

bool Scope::depends(Dim d) {
  if (!vector_symbol_ || d.is_constant()) return false;
  std::vector<const DimSymbol *> symbols;
  collect_symbols(d, symbols);
  for (const DimSymbol *s : symbols)
    if (s == vector_symbol_ || (s->kind == SymbolKind::kScalar && depends(ScalarId(s->scalar)))) return true;
  return false;
}

bool Scope::depends(ScalarId id) {
  if (!vector_symbol_) return false;
  if (auto it = depends_.find(id.index); it != depends_.end()) return it->second;
  const Scalar &s = k_.program.scalars.at(id);
  // A local may hold a value for each lane.
  bool result = s.op == ScalarOp::kLocal || (s.op == ScalarOp::kIndex && depends(s.index_value));
  for (Dim d : s.index) result = result || depends(d);
  for (int i = 0; i < arity(s.op) && !result; ++i) result = depends(s.args[i]);
  return depends_[id.index] = result;
}

bool Scope::contiguous(BufferId buffer, const std::vector<Dim> &index) const {
  if (!vector_symbol_) return false;
  Dim offset = root_offset(k_.program, buffer, index);
  if (!zeros_.empty())
    offset = substitute(offset, [&](const DimSymbol &s) -> std::optional<Dim> {
      for (const DimSymbol *zero : zeros_)
        if (zero == &s) return Dim(0);
      return std::nullopt;
    });
  auto part = affine_over(k_.program, offset, vector_symbol_);
  return part && part->coefficient.is(1) && divisible_by(part->rest, lanes_);
}

Value Scope::address(BufferId buffer, const std::vector<Dim> &index, int lane) {
  Builder &b = k_.b;
  Dim offset = root_offset(k_.program, buffer, index);
  // The constant part goes into the address of its own, so that neighbouring accesses share one register.
  int64_t constant = offset.is_constant() ? offset.value() : offset.node()->constant;
  Value v = this->index(offset - Dim(constant), lane);
  Value base = k_.pointer(root_of(k_.program, buffer).buffer);
  if (guard_) {
    v = b.ir.CreateSelect(guard_, b.add(v, constant), b.i32(0));
    constant = 0;
  }
  return b.at(storage_type(b, k_.program.buffer(buffer).element()), base, v, constant);
}

void Scope::fetch(ScalarId id) {
  if (!id.valid()) return;
  const Scalar &s = k_.program.scalars.at(id);
  if (s.op == ScalarOp::kLoad) {
    std::vector<const DimSymbol *> symbols;
    for (Dim d : s.index) collect_symbols(d, symbols);
    for (const DimSymbol *symbol : symbols)
      if (symbol->kind == SymbolKind::kScalar) fetch(ScalarId(symbol->scalar));
    for (int lane = 0; lane < (depends(id) ? lanes_ : 1); ++lane) scalar(id, lane);
    return;
  }
  const int args = s.op == ScalarOp::kSelect ? 1 : arity(s.op);  // a side that is not taken may not be read
  if (!fetched_.insert(id.index).second) return;
  for (int i = 0; i < args; ++i) fetch(s.args[i]);
}

// --- Values
// -----------------------------------------------------------------------------------------------------------------------

Value Scope::load(const Scalar &s, int lane) {
  Builder &b = k_.b;
  const ElementType type = k_.program.buffer(s.buffer).element();
  const unsigned size = storage_size(type);
  const Buffer &root = k_.program.buffer(root_of(k_.program, s.buffer).buffer);
  const bool invariant =
      k_.reads_are_invariant || root.kind == BufferKind::kConstant || root.kind == BufferKind::kInput;
  Value v = b.load(storage_type(b, type), address(s.buffer, s.index, lane), size, invariant);
  return from_storage(b, type, v);
}

Value Scope::condition(ScalarId id, int lane) { return id.valid() ? scalar(id, lane) : k_.b.ir.getTrue(); }

Value Scope::guarded(ScalarId id, ScalarId condition, Value taken, int lane) {
  Value outer = guard_;
  const bool outer_varies = guard_varies_;
  guard_ = outer ? k_.b.both(outer, taken) : taken;
  guard_varies_ = outer_varies || depends(condition);
  caches_.emplace_back();
  Value v = scalar(id, lane);
  caches_.pop_back();
  guard_ = outer;
  guard_varies_ = outer_varies;
  return v;
}

Value Scope::scalar(ScalarId id, int lane) {
  if (auto it = defined_.find(id.index); it != defined_.end()) return it->second;
  const bool varies = depends(id);
  const Scalar &s = k_.program.scalars.at(id);
  const std::pair<uint32_t, int> key{id.index, varies ? lane : 0};
  for (const Cache &cache : caches_)
    if (const auto it = cache.values.find(key); it != cache.values.end()) return it->second;
  // A contiguous load fetches all lanes at once.
  if (s.op == ScalarOp::kLoad && varies && lanes_ > 1 && !guard_varies_ && contiguous(s.buffer, s.index)) {
    Builder &b = k_.b;
    const ElementType type = k_.program.buffer(s.buffer).element();
    const unsigned size = storage_size(type), total = size * static_cast<unsigned>(lanes_);
    const Buffer &root = k_.program.buffer(root_of(k_.program, s.buffer).buffer);
    const bool invariant =
        k_.reads_are_invariant || root.kind == BufferKind::kConstant || root.kind == BufferKind::kInput;
    Value base = address(s.buffer, s.index, 0);
    const unsigned piece = std::min(total, 16u), per_piece = piece / size;
    for (unsigned at = 0; at < total; at += piece) {
      Value p = at == 0 ? base : b.ir.CreateInBoundsGEP(b.ir.getInt8Ty(), base, b.i64(at));
      llvm::Type *raw = piece >= 8 ? static_cast<llvm::Type *>(llvm::FixedVectorType::get(b.t_i32(), piece / 4))
                                   : b.ir.getIntNTy(piece * 8);
      Value words = b.load(raw, p, piece, invariant);
      llvm::Type *element = storage_type(b, type);
      Value vector = b.ir.CreateBitCast(words, llvm::FixedVectorType::get(element, per_piece));
      for (unsigned i = 0; i < per_piece; ++i) {
        Value v = from_storage(b, type, b.ir.CreateExtractElement(vector, uint64_t{i}));
        caches_.back().values[{id.index, static_cast<int>(at / size + i)}] = v;
      }
    }
    return caches_.back().values[key];
  }
  Value v = compute(s, varies ? lane : 0);
  caches_.back().values[key] = v;
  return v;
}

Value Scope::compute(const Scalar &s, int lane) {
  Builder &b = k_.b;
  switch (s.op) {
    case ScalarOp::kConstant:
      return constant_value(b, s.type, s.bits);
    case ScalarOp::kIndex:
      return index(s.index_value, lane, true);
    case ScalarOp::kLoad:
      return load(s, lane);
    case ScalarOp::kLocal:
      return read_local(*this, s, lane);
    case ScalarOp::kSelect: {
      Value c = scalar(s.args[0], lane);
      Value yes = guarded(s.args[1], s.args[0], c, lane);
      Value no = guarded(s.args[2], s.args[0], b.ir.CreateNot(c), lane);
      return b.ir.CreateSelect(c, yes, no);
    }
    case ScalarOp::kFma:
      if (!wide_float(s.type)) {
        Value product = b.ir.CreateMul(scalar(s.args[0], lane), scalar(s.args[1], lane));
        return b.ir.CreateAdd(product, scalar(s.args[2], lane));
      }
      return b.fma(scalar(s.args[0], lane), scalar(s.args[1], lane), scalar(s.args[2], lane));
    default:
      break;
  }
  const ElementType from = k_.program.scalars.at(s.args[0]).type;
  if (s.op == ScalarOp::kAdd && from == ElementType::kFloat32)
    for (int side = 0; side < 2; ++side) {  // gelu: 1 + erf, 1 + tanh
      const Scalar &one = k_.program.scalars.at(s.args[side]), &f = k_.program.scalars.at(s.args[1 - side]);
      if (one.op != ScalarOp::kConstant || one.bits != 0x3F800000) continue;
      if (f.op == ScalarOp::kErf) return one_plus_erf_f32(b, scalar(f.args[0], lane));
      if (f.op == ScalarOp::kTanh) return one_plus_tanh_f32(b, scalar(f.args[0], lane));
    }
  if (s.op == ScalarOp::kDiv && from == ElementType::kFloat32 &&
      k_.program.scalars.at(s.args[1]).op == ScalarOp::kLocal && k_.program.scalars.at(s.args[1]).index.empty() &&
      k_.program.scalars.at(s.args[0]).op != ScalarOp::kConstant) {
    // softmax: a whole row by its sum
    Value y = scalar(s.args[1], lane);
    return divide_f32(b, scalar(s.args[0], lane), y, reciprocal_f32(b, y));
  }
  Value a = scalar(s.args[0], lane);
  return arity(s.op) == 1 ? unary(s, from, a) : binary(s, from, a, scalar(s.args[1], lane));
}

void Scope::store(BufferId buffer, const std::vector<Dim> &index, const Values &values) {
  Builder &b = k_.b;
  const ElementType type = k_.program.buffer(buffer).element();
  const unsigned size = storage_size(type);
  if (values.size() > 1 && contiguous(buffer, index)) {
    const unsigned total = size * static_cast<unsigned>(values.size()), piece = std::min(total, 16u),
                   per_piece = piece / size;
    Value base = address(buffer, index, 0);
    for (unsigned at = 0; at < total; at += piece) {
      llvm::Type *element = storage_type(b, type);
      Value vector = llvm::PoisonValue::get(llvm::FixedVectorType::get(element, per_piece));
      for (unsigned i = 0; i < per_piece; ++i)
        vector = b.ir.CreateInsertElement(vector, to_storage(b, type, values[at / size + i]), uint64_t{i});
      llvm::Type *raw = piece >= 8 ? static_cast<llvm::Type *>(llvm::FixedVectorType::get(b.t_i32(), piece / 4))
                                   : b.ir.getIntNTy(piece * 8);
      Value p = at == 0 ? base : b.ir.CreateInBoundsGEP(b.ir.getInt8Ty(), base, b.i64(at));
      b.store(b.ir.CreateBitCast(vector, raw), p, piece);
    }
    return;
  }
  for (size_t lane = 0; lane < values.size(); ++lane)
    b.store(to_storage(b, type, values[lane]), address(buffer, index, static_cast<int>(lane)), size);
}

}  // namespace optc::ptx
