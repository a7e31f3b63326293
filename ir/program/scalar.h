#pragma once
// Scalar expressions: the meaning of one element. A hash-consed DAG owned by a Program; emit/cpp prints it over vector
// types, emit/ptx builds LLVM IR of it, evaluate/ interprets it, all from the same nodes.
//
// Types. Arithmetic happens in f32, f64, signed and unsigned integers and bool. Storage types (f16, bf16, float8,
// float4, int4, int2 and the packed forms) appear only as the type of Load, Constant and Cast: `Cast to f16` rounds,
// `Cast f16 -> f32` is exact. Integer arithmetic wraps in its own width. Division of integers truncates (C); a zero
// divisor gives 0. Comparisons give bool. Min and Max of floats propagate NaN; of -0 and +0 either may result. Cast
// float -> integer truncates, saturates at the type's range, NaN gives 0; where ONNX defines another result (float8
// without saturate) the node's `flag` says so. Cast integer -> narrower integer wraps. Cast to bool is x != 0.

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ir/constant.h"
#include "ir/types.h"
#include "support/id.h"

namespace optc {

struct ScalarTag;
struct BufferTag;
struct LocalTag;
using ScalarId = Id<ScalarTag>;
using BufferId = Id<BufferTag>;
using LocalId = Id<LocalTag>;

// X(enumerator, arity, spelling)
#define OPTC_SCALAR_OPS(X)                                                                                          \
  /* leaves */                                                                                                      \
  X(kConstant, 0, "const")                                                                                          \
  X(kIndex, 0, "index")                                                                                             \
  X(kLoad, 0, "load")                                                                                               \
  X(kLocal, 0, "local") /* unary */                                                                                 \
  X(kNeg, 1, "neg")                                                                                                 \
  X(kAbs, 1, "abs") X(kSign, 1, "sign") X(kFloor, 1, "floor") X(kCeil, 1, "ceil") X(kRound, 1, "round")             \
      X(kTrunc, 1, "trunc") X(kSqrt, 1, "sqrt") X(kExp, 1, "exp") X(kExpm1, 1, "expm1") X(kLog, 1, "log")           \
          X(kLog1p, 1, "log1p") X(kSin, 1, "sin") X(kCos, 1, "cos") X(kTan, 1, "tan") X(kAsin, 1, "asin")           \
              X(kAcos, 1, "acos") X(kAtan, 1, "atan") X(kSinh, 1, "sinh") X(kCosh, 1, "cosh") X(kTanh, 1, "tanh")   \
                  X(kAsinh, 1, "asinh") X(kAcosh, 1, "acosh") X(kAtanh, 1, "atanh") X(kErf, 1, "erf")               \
                      X(kSigmoid, 1, "sigmoid") X(kNot, 1, "not") X(kBitNot, 1, "bit_not") X(kIsNan, 1, "is_nan")   \
                          X(kIsInf, 1, "is_inf") X(kCast, 1, "cast") X(kBitcast, 1, "bitcast") /* binary */         \
      X(kAdd, 2, "add") X(kSub, 2, "sub") X(kMul, 2, "mul") X(kDiv, 2, "div") X(kMod, 2, "mod") X(kFmod, 2, "fmod") \
          X(kPow, 2, "pow") X(kMin, 2, "min") X(kMax, 2, "max") X(kEq, 2, "eq") X(kNe, 2, "ne") X(kLt, 2, "lt")     \
              X(kLe, 2, "le") X(kAnd, 2, "and") X(kOr, 2, "or") X(kXor, 2, "xor") X(kBitAnd, 2, "bit_and")          \
                  X(kBitOr, 2, "bit_or") X(kBitXor, 2, "bit_xor") X(kShl, 2, "shl") X(kShr, 2, "shr") /* ternary */ \
      X(kSelect, 3, "select") X(kFma, 3, "fma")

enum class ScalarOp : uint8_t {
#define OPTC_X(name, arity, spelling) name,
  OPTC_SCALAR_OPS(OPTC_X)
#undef OPTC_X
};
int arity(ScalarOp op);
std::string_view to_string(ScalarOp op);
bool is_transcendental(ScalarOp op);  // costs tens of operations: never computed twice by fusion

// The flag of an f32 function or quotient of which only 16 bits are kept: it may err by some units of f32's last place.
// It does not change what the operator means.
inline constexpr uint8_t kRounded = 1;

struct Scalar {
  ScalarOp op = ScalarOp::kConstant;
  ElementType type = ElementType::kUndefined;  // of the result
  // kCast: 1 = do not saturate (float8); kIsInf: 1 negative only, 2 positive only; functions and kDiv: kRounded
  uint8_t flag = 0;
  ScalarId args[3];
  uint64_t bits = 0;       // kConstant: the value's bits, zero-extended (bool 0/1; f16 its 16 bits; f64 its 64 bits)
  Dim index_value;         // kIndex: the integer expression, type i64
  BufferId buffer;         // kLoad
  LocalId local;           // kLocal: row scratch or an accumulator of the same kernel
  std::vector<Dim> index;  // kLoad, kLocal: one entry a logical dimension
};

// Makes and shares scalars. Folds constants and applies only identities that are exact for every input of the type.
class ScalarPool {
 public:
  const Scalar &at(ScalarId id) const { return nodes_[id.index]; }
  size_t size() const { return nodes_.size(); }

  ScalarId constant(ElementType type, double value);  // floats and small integers
  ScalarId constant_bits(ElementType type, uint64_t bits);
  ScalarId constant_int(ElementType type, int64_t value);
  ScalarId index(Dim value);  // i64
  ScalarId load(BufferId buffer, ElementType type, std::vector<Dim> index);
  ScalarId local(LocalId local, ElementType type, std::vector<Dim> index);
  ScalarId unary(ScalarOp op, ScalarId a);
  ScalarId binary(ScalarOp op, ScalarId a, ScalarId b);  // both of one type
  ScalarId select(ScalarId condition, ScalarId a, ScalarId b);
  ScalarId fma(ScalarId a, ScalarId b, ScalarId c);
  ScalarId cast(ScalarId a, ElementType to, bool saturate = true);
  ScalarId bitcast(ScalarId a, ElementType to);
  ScalarId is_inf(ScalarId a, bool negative, bool positive);
  ScalarId add_node(Scalar node);  // interned as given, without folding (text parser, substitution)

 private:
  std::vector<Scalar> nodes_;
  std::unordered_map<std::string, ScalarId> interned_;
};

}  // namespace optc
