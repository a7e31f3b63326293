#pragma once
// PTX text as decoded instructions.

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace optc::testing {

enum class PtxOp : uint8_t {
  kMov,
  kLdParam,
  kLdGlobal,
  kLdShared,
  kLdLocal,
  kStGlobal,
  kStShared,
  kStLocal,
  kAdd,
  kSub,
  kMulLo,
  kMulHi,
  kMulWide,
  kMulFloat,
  kMadLo,
  kMadWide,
  kDiv,
  kRem,
  kNeg,
  kAbs,
  kMin,
  kMax,
  kFma,
  kSqrt,
  kRcp,
  kEx2,
  kAnd,
  kOr,
  kXor,
  kNot,
  kShl,
  kShr,
  kBfe,
  kBfi,
  kSetp,
  kSelp,
  kCvt,
  kCvta,
  kBra,
  kBar,
  kShflBfly,
  kShflIdx,
  kLdMatrix,
  kMma,
  kCpAsync,
  kCpCommit,
  kCpWait,
  kRet,
  kCopysign,
  kPrmt,
  kGridWait,  // one launch after the other: what comes before it is checked to touch nothing that may still change
  kGridEarly,
  kFence,  // blocks run one after the other
  kAtomAdd,
  kWarpSync,
  kRegisters,     // setmaxnreg
  kBarrierInit,   // mbarrier
  kBarrierFence,  // fence.mbarrier_init
  kBarrierExpect,
  kBarrierArrive,
  kBarrierWait,
  kTensorCopy,  // cp.async.bulk.tensor: operands to, map, coordinates, barrier; of an image: and offsets
  kWgmma,
  kWgmmaFence,
  kWgmmaCommit,
  kWgmmaWait,
};

enum class PtxType : uint8_t {
  kNone,
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kBF16,
  kF32,
  kF64,
  kTF32
};
unsigned bytes_of(PtxType type);

struct PtxOperand {
  enum class Kind : uint8_t {
    kNone,
    kRegister,
    kImmediate,
    kVector,
    kAddress,
    kSpecial,
    kParameter
  } kind = Kind::kNone;
  int reg = -1;       // register; address: its base, -1 when it is a symbol at 0
  uint64_t bits = 0;  // immediate; address: the offset; special: which (0..2 tid, 3..5 ctaid, 6..8 ntid, 9..11 nctaid);
                      // parameter: its number
  std::vector<int> list;  // vector: registers, -1 for "_"
};

struct PtxInstruction {
  PtxOp op = PtxOp::kRet;
  PtxType type = PtxType::kNone, from = PtxType::kNone;  // from: cvt's source
  int predicate = -1;
  bool negated = false;
  uint8_t vector = 1;       // ld, st
  bool nan = false;         // min, max: NaN propagates
  bool read_only = false;   // ld.global.nc
  bool transposed = false;  // ldmatrix
  char rounding = 0;        // cvt to integer: n, z, m, p ("rni", ...); 0 otherwise
  bool saturate = false;
  std::string compare;  // setp: "lt", "ltu", ...
  std::vector<PtxOperand> operands;
  int target = -1;    // bra
  unsigned size = 0;  // cp.async; wgmma: n
  int line = 0;
  std::string text;
};

// What a program may not do; the reason alone, the block adds where.
class PtxFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct PtxFunction {
  std::string name;
  int registers = 0;
  unsigned local_bytes = 0;
  std::vector<PtxInstruction> code;
};

// Throws std::runtime_error.
std::vector<PtxFunction> parse_ptx(const std::string &text);

}  // namespace optc::testing
