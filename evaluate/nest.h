#pragma once
// Runs one loop nest of a Program.

#include <optional>
#include <string>
#include <vector>

#include "evaluate/plan.h"
#include "evaluate/storage.h"
#include "ir/program/program.h"

namespace optc::evaluate_detail {

// What a loop nest needs of the running Program.
class NestHost {
 public:
  virtual ~NestHost() = default;
  virtual const Program &program() const = 0;
  virtual const SymbolValues &symbols() const = 0;
  virtual bool readable(BufferId id, Tensor &out, std::string &reason) = 0;  // false: `reason` says why not
  virtual bool writable(BufferId id, Tensor &out) = 0;  // allocates; false: the reason has been said
  // Whether the running kernel writes `id`, which is prepared, as a new value in the bytes of an operand.
  virtual bool takes_over(BufferId id) const = 0;
  virtual bool spend(double work) = 0;  // as PlanContext's
};

enum class NestResult : uint8_t { kDone, kFault, kInternal, kSaid };

// kFault and kInternal: `error` says why. kSaid: the host has said it.
NestResult run_nest(NestHost &host, const LoopNest &nest, bool use_matrix_products, std::string &error);

// What scalars and index expressions use.
struct Uses {
  std::vector<const DimSymbol *> loops;
  std::vector<ScalarId> loads;
  std::vector<LocalId> locals;
  bool has_loop(const DimSymbol *symbol) const;
  bool has_local(LocalId local) const;
};
void collect_uses(const Program &program, ScalarId root, Uses &out);
void collect_uses(const Program &program, Dim index, Uses &out);

// Sums of products: a stage that only accumulates lhs * rhs into a local is computed for the whole nest as batches of
// matrix products, from operands laid out densely; the local then reads that array. nullopt: not such a stage (or not
// worth it). kDone: `out` is what replaces the local. kFault, kInternal: `error` says what happened while the operands
// were computed.
struct LoopExtent {
  const DimSymbol *symbol;
  int64_t extent;
};
std::optional<NestResult> precompute_products(PlanContext &context, const std::vector<LoopExtent> &outer,
                                              const std::vector<LoopExtent> &loops, const StageOutput &output,
                                              const Local &local, const std::vector<int64_t> &local_dims,
                                              PlanContext::Precomputed &out,
                                              std::vector<std::shared_ptr<Block>> &memory, std::string &error);

}  // namespace optc::evaluate_detail
