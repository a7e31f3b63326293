#pragma once
// How a loop nest runs on a CPU: which of its loops are left when those of one iteration are dropped and contiguous
// ones joined, at which depth each value changes, and which loop runs in vector lanes. Lowering asks whether a nest has
// the form that a template of runtime/cpu needs; the printer of C++ walks the same plan, so that both see one form.
//
// After construction a plan holds the loops without those of extent 1; one of plan_loops and plan_epilogue then
// completes it. The Program and the kernel outlive it and do not change meanwhile.

#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "ir/program/program.h"

namespace optc {

class NestPlan {
 public:
  NestPlan(const Program &program, const Kernel &kernel);

  // As loops: shared ones in the order of the result's storage, in lanes where that is possible and pays.
  void plan_loops();
  // As the epilogue of a template that computes the sums of the contraction's stage: the shared loops become batch,
  // rows and columns, one loop for the columns and as few for the rows as the accesses behind the sum allow, and the
  // stages behind it run in lanes along the columns, on vectors of finished sums. False: they have no such form, and
  // the plan is of no use.
  bool plan_epilogue(const std::vector<Loop> &batch, const std::vector<Loop> &rows, const std::vector<Loop> &columns);
  // Of an epilogue without batch: the result is stored as rows of `columns` in one buffer of the sums' type, and
  // nothing of that size is read: the buffer may hold partial sums.
  bool stores_plain_rows(Dim columns) const;

 protected:
  // What a stage evaluates, operands first: a scalar, or (index valid) the checked value behind a kScalar symbol.
  struct Item {
    ScalarId id;
    const DimSymbol *index = nullptr;
  };
  struct StagePlan {
    std::vector<Loop> loops;           // without those of extent 1, contiguous ones joined
    const DimSymbol *lanes = nullptr;  // the loop that runs in lanes
    std::vector<Item> order;
    std::unordered_map<uint32_t, int> uses;     // by scalar
    std::unordered_map<uint32_t, int> depth;    // loops that must be open; by scalar
    std::unordered_map<uint32_t, int> deepest;  // of its users
    std::unordered_map<const DimSymbol *, int> index_deepest;
    std::set<uint32_t> always;  // evaluated in every iteration whatever the conditions are
    std::set<const DimSymbol *> always_indices;
    mutable std::unordered_map<uint32_t, bool>
        unproved;  // by scalar: holds a load or a checked index that may only be evaluated when needed
  };

  Dim fix(Dim d) const;  // symbols of dropped and joined loops replaced
  Dim offset_of(const Buffer &buffer, const std::vector<Dim> &index) const;
  Dim local_offset(const Local &local, const std::vector<Dim> &index) const;
  Dim load_offset(const Scalar &load) const;  // kLoad or kLocal
  void collect(StagePlan &plan, ScalarId id, std::set<uint32_t> &seen);
  void collect_dim(StagePlan &plan, Dim d, std::set<uint32_t> &seen);
  void mark_always(StagePlan &plan, ScalarId id);
  void mark_always_dim(StagePlan &plan, Dim d);
  void plan_stage(const Stage &stage, StagePlan &plan);
  void measure_stage(const Stage &stage, StagePlan &plan);
  void drop_unit_loops(std::vector<Loop> &loops);
  void follow_storage();
  void keep_lines();
  void join_loops(std::vector<Loop> &loops);
  bool can_join(const Loop &a, const Loop &b) const;
  int dim_depth(StagePlan &plan, Dim d);
  int node_depth(StagePlan &plan, ScalarId id);
  bool proved(const Scalar &load) const;  // its index stays inside for every iteration of the loops
  bool contains_unproved(const StagePlan &plan, ScalarId id);
  bool lazy(const StagePlan &plan, ScalarId id);
  bool varies(ScalarId id);  // with the lanes loop lanes_
  bool dim_varies(Dim d);
  void set_lanes(const DimSymbol *lanes, bool columns);
  void choose_lanes();
  bool lanes_possible(const Stage &stage, const StagePlan &plan, int64_t &cost);
  bool lanes_value(const StagePlan &plan, ScalarId id, int64_t &cost, std::set<uint32_t> &seen);
  // Of an f32 load in lanes whose place is computed: the index that the model computes (a kScalar symbol), which is
  // int32 in the lanes, its factor in the address, and the rest, which is the same in all of them. nullopt: it has no
  // such form.
  struct Gathered {
    const DimSymbol *index;
    ScalarId value;  // int32
    int64_t factor;
    Dim rest;
  };
  std::optional<Gathered> gathered(const Scalar &load);
  // Of an offset in lanes that is held inside of a range (nest_border.cc): rest + max(min(at, high), low), where `at`
  // has a constant step in the lanes; at least one bound is there.
  struct Held {
    Dim rest, at;
    int64_t step;
    std::optional<Dim> low, high;
  };
  std::optional<Held> held(Dim offset);
  bool dim_in_lanes(Dim d);
  std::pair<Dim, Dim> moving_part(Dim d);
  std::optional<int64_t> in_the_middle(Dim d);
  Dim extent_of(const DimSymbol &loop) const;
  bool narrow(Dim e);
  std::optional<bool> decide(Dim e, bool ties);
  std::optional<Dim> in_interior(Dim d);
  std::optional<Dim> integer(ScalarId id) const;
  void find_interior();
  void find_transpose();
  // What lanes hold of a value that is stored as i64: the number or counter that is widened in the store. Invalid:
  // none.
  ScalarId widened(const StageOutput &output, const StagePlan &plan);
  bool independent(const Loop &loop) const;
  size_t reduction_level(const StageOutput &output, const StagePlan &plan) const;  // SIZE_MAX: no prefix of the loops

  const Program &program_;
  const Kernel &kernel_;
  const LoopNest &nest_;
  std::unordered_map<const DimSymbol *, Dim> fixed_;
  std::unordered_map<const DimSymbol *, int> level_;  // of the loops open or planned in the current stage
  std::vector<Loop> outer_;
  std::vector<StagePlan> plans_;
  std::set<uint32_t> written_buffers_;
  std::unordered_map<uint32_t, bool> varies_;
  bool columns_ = false;              // the last outer loop runs in lanes
  bool one_column_ = false;           // that loop has one iteration, and no index names it
  const DimSymbol *lanes_ = nullptr;  // lanes loop that is open
  // The part of the loop that runs in lanes, [begin, end), in which no index is held back: what moves with the lanes is
  // there as in_interior says, and guards have one answer.
  struct Interior {
    Dim begin, end;
  };
  std::optional<Interior> interior_;                 // nullopt: the whole loop is one
  std::unordered_map<const DimAtom *, bool> sides_;  // of an extreme there: whether the first side is not the lesser
  std::unordered_map<uint32_t, bool> guards_;        // by scalar: its answer there
  // A copy whose last loop writes along memory, and another loop reads along it (nest_transpose.cc): the place of that
  // one among the shared loops, the offsets, and what a step of the last one reads and of the other one writes on.
  struct Transpose {
    size_t across;
    BufferId in, out;
    Dim from, to, in_row, out_row;
  };
  std::optional<Transpose> transpose_;
  bool borders_ = false;  // indices that are held back may run in lanes
  bool serial_ = false;   // no parallel loop
};

}  // namespace optc
