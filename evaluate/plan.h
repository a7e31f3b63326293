#pragma once
// StagePlan: the scalars of one stage of a loop nest, ordered once and then run over blocks of lanes.
//
// Every loop around the stage is either a lane loop (the lanes of a block run through the flattened lane loops, the
// last one fastest) or a step loop (one value for all lanes). Addresses are affine in the loop counters where the index
// expressions are; other index expressions become instructions over int64 lanes.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "evaluate/lanes.h"
#include "evaluate/storage.h"
#include "ir/program/program.h"

namespace optc::evaluate_detail {

// Values of the symbols that are fixed while a kernel runs, by DimSymbol::id.
class SymbolValues {
 public:
  void resize(size_t n) { values_.resize(n), known_.resize(n, 0); }
  void set(const DimSymbol &s, int64_t value) { set(s.id, value); }
  void set(uint32_t id, int64_t value) {
    if (id >= values_.size()) resize(id + 1);
    values_[id] = value;
    known_[id] = 1;
  }
  void forget(const DimSymbol &s) {
    if (s.id < known_.size()) known_[s.id] = 0;
  }
  bool known(const DimSymbol &s) const { return s.id < known_.size() && known_[s.id]; }
  int64_t get(const DimSymbol &s) const { return values_[s.id]; }
  std::optional<int64_t> evaluate(Dim d) const;

 private:
  std::vector<int64_t> values_;
  std::vector<uint8_t> known_;
};

// Division and remainder of index expressions, b != 0: as Python has them.
inline int64_t floor_divide(int64_t a, int64_t b) {  // as Dims do
  if (b <= 0) return 0;
  const int64_t q = a / b;
  return a % b != 0 && a < 0 ? q - 1 : q;
}

inline int64_t python_mod(int64_t a, int64_t b) { return a - floor_divide(a, b) * b; }

struct PlanLoop {
  const DimSymbol *symbol = nullptr;
  int64_t extent = 0;  // an upper bound where the real extent depends on outer loops
  bool lane = false;
};

// constant + sum of coefficient * loop counter + sum of coefficient * register.
struct IndexExpr {
  int64_t constant = 0;
  std::vector<std::pair<int, int64_t>> loops;      // position among the plan's loops
  std::vector<std::pair<int, int64_t>> registers;  // int64 lanes
  int64_t low = 0, high = 0;                       // bounds of its value
  // How it runs through a block (set by finish()): uniform, in equal steps, or by a vector.
  enum class Form : uint8_t { kUniform, kLinear, kVector } form = Form::kUniform;
  int64_t step = 0;
};

struct IndexCheck {
  IndexExpr index;
  int64_t extent = 0;
  int dimension = 0;
};

// An array that scalars may read or write: a buffer, a local of the running block, or a computed operand.
struct Array {
  ElementType type = ElementType::kUndefined;
  uint8_t *data = nullptr;
  std::vector<int64_t> dims, strides;
  std::string name;
  bool local = false;       // row scratch or accumulator: cells are f64 or i64, whatever the type
  bool lane_minor = false;  // a local with one instance a lane: address = offset * kLanes + lane
  // Where the Program runs as it is lowered: which cells hold a value (null: all), and those that the running kernel
  // has overwritten in place with its result; cell `origin` is the element at offset 0.
  Written *written = nullptr, *replacing = nullptr;
  int64_t origin = 0;
};

// What the plan must know of its surroundings.
class PlanContext {
 public:
  virtual ~PlanContext() = default;
  virtual const Program &program() const = 0;
  virtual const SymbolValues &symbols() const = 0;
  // Null: not readable, and why.
  virtual const Array *buffer(BufferId id, std::string &reason) = 0;
  virtual const Array *local(LocalId id) = 0;
  // Of EvaluateOptions::max_work. False: it is more than the run may take, which has been said.
  virtual bool spend(double work) = 0;
  // An array that replaces a local computed beforehand: indexed by all of `loops` and then by the local's own index.
  struct Precomputed {
    Array array;                                               // dims and strides of the local's own index
    std::vector<std::pair<const DimSymbol *, int64_t>> outer;  // stride of each outer loop
  };
  virtual const Precomputed *precomputed(LocalId) { return nullptr; }
};

struct PlanOutput {
  Array target;
  std::vector<Dim> index;
  ScalarId value, condition;
  Combine combine = Combine::kStore;
};

class StagePlan {
 public:
  StagePlan(PlanContext &context, std::vector<PlanLoop> loops);
  // Adds an output; false: what is wrong is in error().
  bool add(const PlanOutput &output);
  // Adds an output whose address is the linear lane number: a dense array over the lane loops.
  bool add_dense(ScalarId value, ScalarId condition, ElementType cell);
  void set_dense_origin(int64_t first_lane, uint8_t *data);  // where lane number `first_lane` goes
  // Bounds of an expression over the plan's loops.
  bool bounds(Dim d, int64_t &low, int64_t &high);
  // Makes the plan runnable. Instructions that depend on no inner loop run once in begin(), the others in every run().
  // Arrays in `changing` are written while the stage runs, so that loads from them are inner too.
  void finish(const std::vector<bool> &loop_is_inner, const std::vector<const uint8_t *> &changing);

  int64_t lane_count() const { return lane_count_; }
  // Operations of one element, of loads and stores each one.
  double operations() const { return static_cast<double>(instructions_.size() + outputs_.size()); }
  // Step loops get their values here.
  void set_step(size_t loop, int64_t value) { steps_[loop] = value; }
  void begin(int64_t block_start,
             int lanes);                     // once for each change of an outer counter or of the block of outer lanes
  bool run(int64_t block_start, int lanes);  // false: a fault, described by error()
  const std::string &error() const { return error_; }
  bool internal_error() const { return internal_; }

 private:
  struct Instruction {
    enum class Kind : uint8_t { kOp, kIndex, kLoad, kLocal, kFloorDiv, kMod, kMin, kMax, kProduct, kScalarIndex };
    Kind kind = Kind::kOp;
    ScalarOp op = ScalarOp::kConstant;
    ElementType type = ElementType::kUndefined, from = ElementType::kUndefined;
    uint8_t flag = 0;
    bool inner = false;
    int out = -1, a = -1, b = -1, c = -1;
    IndexExpr index, other;
    std::vector<IndexCheck> checks;
    Array array;
    int64_t extent = 0;
  };
  struct Output {
    Array target;
    IndexExpr offset;
    std::vector<IndexCheck> checks;
    int value = -1, condition = -1;
    ElementType value_type = ElementType::kUndefined;
    Combine combine = Combine::kStore;
  };
  struct Bound {
    int64_t low, high;
  };

  int new_register() { return register_count_++; }
  bool compile(ScalarId id, int &out);
  bool compile_index(Dim d, IndexExpr &out);
  bool compile_atom(const DimAtom *atom, IndexExpr &out);
  bool compile_address(const Array &array, const std::vector<Dim> &index, IndexExpr &offset,
                       std::vector<IndexCheck> &checks);
  int materialize(const IndexExpr &index);  // as a register
  void add_scaled(IndexExpr &sum, const IndexExpr &term, int64_t factor) const;
  void set_bounds(IndexExpr &index) const;
  void set_form(IndexExpr &index) const;
  bool is_inner(const IndexExpr &index) const;
  bool fail(std::string message, bool internal);

  Offsets offsets(const IndexExpr &index, int64_t block_start, int n, int64_t *scratch) const;
  bool in_range(const IndexCheck &check, const Array &array, int64_t block_start, int n, uint8_t *bad);
  void check_written(const Array &array, const Offsets &offsets, int n, Register &out);
  bool poison_fault(uint8_t poison);
  void step_lanes(int64_t block_start, int n);
  void execute(Instruction &instruction, int64_t block_start, int n);
  bool write(Output &output, int64_t block_start, int n);
  void execute_all(bool inner, int64_t block_start, int n);
  int add_index_instruction(Instruction instruction, int64_t low, int64_t high);

  PlanContext &context_;
  std::vector<PlanLoop> loops_;
  std::vector<int> lane_loops_;
  int64_t lane_count_ = 1;
  std::vector<int64_t> steps_;
  std::vector<bool> inner_loop_;
  std::vector<Instruction> instructions_;
  std::vector<Output> outputs_;
  std::vector<bool> register_inner_;
  std::vector<Bound> register_bounds_;
  std::unordered_map<uint32_t, int> scalar_register_;
  std::unordered_map<const DimAtom *, int> atom_register_;
  std::vector<std::pair<int, std::pair<ElementType, uint64_t>>> constants_;
  int register_count_ = 0;
  std::unique_ptr<Register[]> registers_;
  bool needs_vectors_ = false;
  std::vector<std::unique_ptr<int64_t[]>> lane_values_;  // one a lane loop
  int64_t vector_block_ = -1;
  int vector_lanes_ = 0;
  std::string error_, out_of_range_, unwritten_;
  bool internal_ = false;
};

}  // namespace optc::evaluate_detail
