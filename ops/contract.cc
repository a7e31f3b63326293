#include "ops/contract.h"

#include <algorithm>

namespace optc {
namespace {

bool has(const std::vector<int> &labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

}  // namespace

void contract(BuildContext &context, const Product &p) {
  NestBuilder nest(context, context.node().op);
  LabelIndex at;
  for (int label : p.out)
    if (!at.count(label)) at[label] = nest.outer("o" + std::to_string(at.size()), p.extents.at(label));
  std::vector<int> summed;
  for (const Factor &f : p.factors)
    for (int label : f.labels)
      if (!at.count(label) && !has(summed, label)) summed.push_back(label);
  LabelIndex all = at;
  for (int label : summed)
    all[label] = nest.stage_loop("k" + std::to_string(all.size() - at.size()), p.extents.at(label));
  std::vector<Expr> values;
  for (size_t i = 0; i < p.factors.size(); ++i) {
    const Factor &f = p.factors[i];
    const Shape shape = context.program().buffer(f.buffer).shape();
    std::vector<Dim> index, full;
    for (int label : f.labels) {
      index.push_back(all.at(label));
      full.push_back(p.extents.at(label));
    }
    Expr value = nest.load(f.buffer, broadcast_index(index, shape, full));
    if (p.prepare) value = p.prepare(nest, i, value, all);
    values.push_back(value);
  }
  Expr sum = values.size() == 2 ? values[0] * values[1] : values[0];
  if (!summed.empty()) {
    const size_t stage = nest.stage_index();
    sum = nest.reduce(Combine::kSum, sum);
    if (values.size() == 2) {
      // Roles. A label that is summed over one factor only makes this no matrix product.
      Contraction c;
      c.stage = stage;
      c.lhs = values[0].id();
      c.rhs = values[1].id();
      bool product = true;
      std::vector<int> seen;
      auto place = [&](int label) {
        const DimSymbol *symbol = single_symbol(all.at(label));
        if (has(seen, label)) return;
        seen.push_back(label);
        const bool a = has(p.factors[0].labels, label), b = has(p.factors[1].labels, label);
        const bool is_sum = has(summed, label);
        if (is_sum && !(a && b)) product = product && !symbol;
        if (!symbol) return;
        (is_sum ? c.k : a && b ? c.batch : a ? c.m : c.n).push_back(symbol);
      };
      for (int label : p.out) place(label);
      for (int label : summed) place(label);
      if (product && !c.k.empty()) nest.nest().contraction = std::move(c);
    }
  }
  std::vector<Dim> index;
  for (int label : p.out) index.push_back(at.at(label));
  if (p.finish) sum = p.finish(nest, sum, at);
  nest.store(p.result, index, sum);
  nest.finish();
}

}  // namespace optc
