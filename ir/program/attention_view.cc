#include <cstring>

#include "ir/program/contraction_view.h"

namespace optc {
namespace {

class Attention {
 public:
  Attention(const Program &program, const LoopNest &nest) : p_(program), nest_(nest), c_(*nest.contraction) {
    loops_ = nest.loops;
    for (const Stage &s : nest.stages) loops_.insert(loops_.end(), s.loops.begin(), s.loops.end());
  }

  std::optional<AttentionSchedule> view() {
    if (nest_.sequential || c_.batch.size() < 2 || c_.m.size() != 1 || c_.k.size() != 2 || c_.n.size() != 2)
      return std::nullopt;
    AttentionSchedule v;
    const auto query = operand(c_.query, c_.m[0], c_.k[1], false), key = operand(c_.key, c_.k[0], c_.k[1], true),
               value = operand(c_.value, c_.n[0], c_.n[1], true), output = result();
    if (!query || !key || !value || !output || !mask(v.mask) || !scale(v.scale)) return std::nullopt;
    v.query = *query;
    v.key = *key;
    v.value = *value;
    v.output = *output;
    v.batch = extent(c_.batch[0]);
    v.heads = 1;
    for (size_t i = 1; i < c_.batch.size(); ++i) v.heads = v.heads * extent(c_.batch[i]);
    v.kv_heads = c_.batch.size() == 3 ? extent(c_.batch[1]) : v.heads;
    v.queries = extent(c_.m[0]);
    v.keys = extent(c_.k[0]);
    v.width = extent(c_.k[1]);
    v.value_width = extent(c_.n[1]);
    v.softcap = c_.softcap;
    v.causal = c_.causal;
    v.causal_offset = c_.causal_offset;
    v.masked_rows = c_.masked_rows;
    return v;
  }

 private:
  Dim extent(const DimSymbol *s) const {
    for (const Loop &l : loops_)
      if (l.index == s) return l.extent;
    return 1;
  }
  Dim stride(const std::vector<Dim> &strides, const DimSymbol *s) const {
    Dim total = 0;
    for (size_t i = 0; i < loops_.size(); ++i)
      if (loops_[i].index == s) total = total + strides[i];
    return total;
  }
  // The heads of a query are one counter over the groups and the heads in a group.
  std::optional<Dim> heads(const std::vector<Dim> &strides) const {
    std::vector<Loop> list;
    std::vector<Dim> of_list;
    for (size_t i = 1; i < c_.batch.size(); ++i) {
      list.push_back({c_.batch[i], extent(c_.batch[i])});
      of_list.push_back(stride(strides, c_.batch[i]));
    }
    return uniform_stride(list, of_list);
  }

  // `grouped`: keys and values, which have a head for each group.
  std::optional<AttentionRows> operand(ScalarId id, const DimSymbol *row, const DimSymbol *inner, bool grouped) const {
    const auto view = affine_operand(p_, id, loops_);
    if (!view || view->element != ElementType::kFloat32) return std::nullopt;
    AttentionRows rows{view->buffer, view->offset, stride(view->strides, c_.batch[0]), 0, stride(view->strides, row)};
    if (grouped && c_.batch.size() == 3) {
      rows.head = stride(view->strides, c_.batch[1]);
      if (!stride(view->strides, c_.batch[2]).is(0)) return std::nullopt;
    } else {
      const auto head = heads(view->strides);
      if (!head) return std::nullopt;
      rows.head = *head;
    }
    if (!stride(view->strides, inner).is(1) && !extent(inner).is(1)) return std::nullopt;
    return rows;
  }

  // The last stage stores the weighted values over their sum, with nothing behind.
  std::optional<AttentionRows> result() const {
    const Stage &last = nest_.stages.back();
    if (last.outputs.size() != 1) return std::nullopt;
    const StageOutput &o = last.outputs[0];
    if (!o.buffer.valid() || o.condition.valid() || p_.buffer(o.buffer).element() != ElementType::kFloat32)
      return std::nullopt;
    std::vector<ScalarId> loads;
    collect_loads(p_, o.value, loads);
    if (!loads.empty()) return std::nullopt;
    std::vector<Dim> strides;
    Dim rest = linear_offset(p_.buffer(o.buffer), o.index);
    for (const Loop &l : loops_) {
      const auto part = affine_in(rest, l.index);
      if (!part) return std::nullopt;
      strides.push_back(part->coefficient);
      rest = part->rest;
    }
    Dim column = 0;
    for (const Loop &l : last.loops) column = column + stride(strides, l.index);
    if (!column.is(1) && !extent(c_.n[1]).is(1)) return std::nullopt;
    const auto head = heads(strides);
    if (!head) return std::nullopt;
    return AttentionRows{o.buffer, rest, stride(strides, c_.batch[0]), *head, stride(strides, c_.m[0])};
  }

  bool mask(AttentionMask &mask) const {
    if (!c_.mask.valid()) return true;
    const auto view = affine_operand(p_, c_.mask, loops_);
    if (!view) return false;
    const auto head = heads(view->strides);
    mask.allowed = view->element == ElementType::kBool;
    if (!head || (!mask.allowed && view->element != ElementType::kFloat32)) return false;
    Dim key = 0;
    for (size_t i = nest_.loops.size(); i < loops_.size(); ++i) key = key + view->strides[i];
    mask.buffer = view->buffer;
    mask.offset = view->offset;
    mask.batch = stride(view->strides, c_.batch[0]);
    mask.head = *head;
    mask.query = stride(view->strides, c_.m[0]);
    mask.key = key;
    return true;
  }

  bool scale(float &scale) const {
    if (!c_.scale.valid()) return true;
    const Scalar &s = p_.scalars.at(c_.scale);
    if (s.op != ScalarOp::kConstant || s.type != ElementType::kFloat32) return false;
    const auto bits = static_cast<uint32_t>(s.bits);
    std::memcpy(&scale, &bits, 4);
    return true;
  }

  const Program &p_;
  const LoopNest &nest_;
  const Contraction &c_;
  std::vector<Loop> loops_;
};

}  // namespace

std::optional<AttentionSchedule> attention_view(const Program &program, const Kernel &kernel) {
  const LoopNest *nest = kernel.nest();
  if (!nest || !nest->contraction || nest->contraction->kind != ContractionKind::kAttention) return std::nullopt;
  return Attention(program, *nest).view();
}

}  // namespace optc
