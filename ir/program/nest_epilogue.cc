#include <algorithm>

#include "ir/program/nest_plan.h"

namespace optc {

namespace {

// The column of a convolution of one filter, whose nest has no loop for it.
const DimSymbol &only_column() {
  static const DimSymbol column = [] {
    DimSymbol s;
    s.kind = SymbolKind::kLoop;
    s.name = "column";
    s.extent = 1;
    return s;
  }();
  return column;
}

}  // namespace

bool NestPlan::plan_epilogue(const std::vector<Loop> &batch, const std::vector<Loop> &rows,
                             const std::vector<Loop> &columns) {
  const size_t sum = nest_.contraction->stage;
  if (serial_ || sum != 0 || nest_.stages[sum].outputs.size() != 1) return false;
  const StageOutput &total = nest_.stages[sum].outputs[0];
  if (!total.local.valid() || total.combine != Combine::kSum || !nest_.locals[total.local.index].shape.empty() ||
      total.condition.valid())
    return false;
  if (total.initial.valid()) {
    const Scalar &initial = program_.scalars.at(total.initial);
    if (initial.op != ScalarOp::kConstant || initial.bits != 0) return false;
  }
  for (size_t i = sum + 1; i < plans_.size(); ++i)
    if (!plans_[i].loops.empty()) return false;
  // Every shared loop has a role.
  std::vector<Loop> all[3] = {batch, rows, columns};
  size_t roles = 0;
  for (std::vector<Loop> &list : all) {
    drop_unit_loops(list);
    roles += list.size();
  }
  if (roles != outer_.size()) return false;
  one_column_ = all[2].empty() && nest_.contraction->kind == ContractionKind::kConvolution;
  if (one_column_) all[2].push_back({&only_column(), 1});
  // What the sum reads is the template's matter: it does not hinder that loops are joined.
  plans_[sum] = StagePlan();
  outer_.clear();
  join_loops(all[2]);
  join_loops(all[1]);
  if (all[2].size() != 1) return false;
  for (std::vector<Loop> &list : all) outer_.insert(outer_.end(), list.begin(), list.end());
  for (size_t i = sum + 1; i < plans_.size(); ++i) measure_stage(nest_.stages[i], plans_[i]);
  set_lanes(all[2][0].index, true);
  int64_t cost = 0;
  for (size_t i = sum + 1; i < plans_.size(); ++i)
    if (!lanes_possible(nest_.stages[i], plans_[i], cost)) return false;
  return true;
}

bool NestPlan::stores_plain_rows(Dim columns) const {
  const Stage &last = nest_.stages.back();
  if (nest_.stages.size() != 2 || last.outputs.size() != 1 || outer_.size() != 2) return false;
  const StageOutput &o = last.outputs[0];
  const LocalId sum = nest_.stages[0].outputs[0].local;
  if (!o.buffer.valid() || program_.buffer(o.buffer).element() != nest_.locals[sum.index].type) return false;
  const Dim offset = offset_of(program_.buffer(o.buffer), o.index);
  const auto row = affine_in(offset, outer_[0].index), column = affine_in(offset, outer_[1].index);
  if (!row || !column || !(row->coefficient == columns) || !column->coefficient.is(1)) return false;
  if (!affine_in(row->rest, outer_[1].index)->rest.is(0)) return false;
  for (const Item &item : plans_.back().order) {
    if (item.index) return false;
    const Scalar &s = program_.scalars.at(item.id);
    if (s.op == ScalarOp::kLoad && program_.buffer(s.buffer).kind != BufferKind::kConstant) return false;
  }
  return true;
}

}  // namespace optc
