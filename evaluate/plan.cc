#include "evaluate/plan.h"

#include <algorithm>
#include <cstring>

namespace optc::evaluate_detail {

namespace {

// Whether an index is `x < 0 ? x + extent : x`, as operators write one that may count from the end.
bool counts_from_the_end(const ScalarPool &pool, ScalarId id, Dim extent) {
  const Scalar &index = pool.at(id);
  if (index.op != ScalarOp::kSelect) return false;
  const Scalar &negative = pool.at(index.args[0]), &sum = pool.at(index.args[1]);
  if (negative.op != ScalarOp::kLt || !(negative.args[0] == index.args[2]) || sum.op != ScalarOp::kAdd) return false;
  const Scalar &length = pool.at(sum.args[1]);
  if (!(sum.args[0] == index.args[2])) return false;
  if (length.op == ScalarOp::kConstant) return extent.is(static_cast<int64_t>(length.bits));
  return length.op == ScalarOp::kIndex && length.index_value == extent;
}

constexpr int64_t kFar = int64_t{1} << 62;

int64_t saturate(__int128 v) { return v > kFar ? kFar : v < -kFar ? -kFar : static_cast<int64_t>(v); }

}  // namespace

std::optional<int64_t> SymbolValues::evaluate(Dim d) const {
  if (d.is_constant()) return d.value();
  return optc::evaluate(d, [this](const DimSymbol &s) -> std::optional<int64_t> {
    if (!known(s)) return std::nullopt;
    return get(s);
  });
}

StagePlan::StagePlan(PlanContext &context, std::vector<PlanLoop> loops) : context_(context), loops_(std::move(loops)) {
  for (size_t i = 0; i < loops_.size(); ++i) {
    if (!loops_[i].lane) continue;
    lane_loops_.push_back(static_cast<int>(i));
    lane_count_ *= loops_[i].extent;
  }
  steps_.resize(loops_.size(), 0);
}

bool StagePlan::fail(std::string message, bool internal) {
  if (error_.empty()) {
    error_ = std::move(message);
    internal_ = internal;
  }
  return false;
}

// --- Compiling
// ---------------------------------------------------------------------------------------------------------

void StagePlan::add_scaled(IndexExpr &sum, const IndexExpr &term, int64_t factor) const {
  if (factor == 0) return;
  sum.constant += term.constant * factor;
  auto merge = [factor](std::vector<std::pair<int, int64_t>> &to, const std::vector<std::pair<int, int64_t>> &from) {
    for (const auto &[key, coefficient] : from) {
      auto at = std::find_if(to.begin(), to.end(), [key = key](const auto &p) { return p.first == key; });
      if (at == to.end())
        to.emplace_back(key, coefficient * factor);
      else
        at->second += coefficient * factor;
    }
  };
  merge(sum.loops, term.loops);
  merge(sum.registers, term.registers);
}

void StagePlan::set_bounds(IndexExpr &index) const {
  __int128 low = index.constant, high = index.constant;
  auto widen = [&](int64_t coefficient, int64_t from, int64_t to) {
    const __int128 a = static_cast<__int128>(coefficient) * from, b = static_cast<__int128>(coefficient) * to;
    low += std::min(a, b);
    high += std::max(a, b);
  };
  for (const auto &[loop, coefficient] : index.loops)
    widen(coefficient, 0, std::max<int64_t>(loops_[loop].extent - 1, 0));
  for (const auto &[reg, coefficient] : index.registers)
    widen(coefficient, register_bounds_[reg].low, register_bounds_[reg].high);
  index.low = saturate(low);
  index.high = saturate(high);
}

void StagePlan::set_form(IndexExpr &index) const {
  index.form = IndexExpr::Form::kUniform;
  index.step = 0;
  if (!index.registers.empty()) {
    index.form = IndexExpr::Form::kVector;
    return;
  }
  // Linear when every lane loop's coefficient is the step times the extents of the lane loops inside it.
  int64_t inside = 1;
  bool first = true, linear = true, any = false;
  for (size_t k = lane_loops_.size(); k-- > 0;) {
    const int loop = lane_loops_[k];
    if (loops_[loop].extent == 1) continue;
    int64_t coefficient = 0;
    for (const auto &[key, c] : index.loops)
      if (key == loop) coefficient = c;
    any = any || coefficient != 0;
    if (first)
      index.step = coefficient;
    else
      linear = linear && coefficient == index.step * inside;
    first = false;
    inside *= loops_[loop].extent;
  }
  if (!any) {
    index.step = 0;
    return;
  }
  index.form = linear ? IndexExpr::Form::kLinear : IndexExpr::Form::kVector;
}

int StagePlan::add_index_instruction(Instruction instruction, int64_t low, int64_t high) {
  instruction.out = new_register();
  instruction.type = ElementType::kInt64;
  register_bounds_.push_back({low, high});
  instructions_.push_back(std::move(instruction));
  return register_count_ - 1;
}

int StagePlan::materialize(const IndexExpr &index) {
  if (index.constant == 0 && index.loops.empty() && index.registers.size() == 1 && index.registers[0].second == 1)
    return index.registers[0].first;
  Instruction instruction;
  instruction.kind = Instruction::Kind::kIndex;
  instruction.index = index;
  return add_index_instruction(std::move(instruction), index.low, index.high);
}

bool StagePlan::compile_atom(const DimAtom *atom, IndexExpr &out) {
  using Kind = Instruction::Kind;
  out = IndexExpr();
  if (atom->kind == AtomKind::kSymbol) {
    const DimSymbol &symbol = *atom->symbol;
    for (size_t i = 0; i < loops_.size(); ++i) {
      if (loops_[i].symbol != &symbol) continue;
      out.loops.emplace_back(static_cast<int>(i), 1);
      set_bounds(out);
      return true;
    }
    if (symbol.kind != SymbolKind::kScalar) {
      if (!context_.symbols().known(symbol)) return fail("the symbol '" + symbol.name + "' has no value here", true);
      out.constant = out.low = out.high = context_.symbols().get(symbol);
      return true;
    }
    auto found = atom_register_.find(atom);
    if (found == atom_register_.end()) {
      Instruction instruction;
      instruction.kind = Kind::kScalarIndex;
      const ScalarId scalar{static_cast<size_t>(symbol.scalar)};
      if (!compile(scalar, instruction.a)) return false;
      instruction.from = context_.program().scalars.at(scalar).type;
      if (lane_class(instruction.from) != LaneClass::kInt) return fail("an index is not an integer", true);
      IndexExpr extent;
      if (!compile_index(symbol.extent, extent)) return false;
      instruction.extent = extent.high;
      instruction.flag = counts_from_the_end(context_.program().scalars, scalar, symbol.extent);
      found = atom_register_.emplace(atom, add_index_instruction(instruction, 0, std::max<int64_t>(extent.high - 1, 0)))
                  .first;
    }
    out.registers.emplace_back(found->second, 1);
    set_bounds(out);
    return true;
  }
  IndexExpr a, b;
  if (!compile_index(atom->a, a) || !compile_index(atom->b, b)) return false;
  const bool constants = a.low == a.high && b.low == b.high && a.registers.empty() && b.registers.empty();
  const bool division = atom->kind == AtomKind::kFloorDiv || atom->kind == AtomKind::kMod;
  if (constants) {
    const int64_t x = a.low, y = b.low;
    out.constant = atom->kind == AtomKind::kFloorDiv ? floor_divide(x, y)
                   : atom->kind == AtomKind::kMod    ? python_mod(x, y)
                   : atom->kind == AtomKind::kMin    ? std::min(x, y)
                                                     : std::max(x, y);
    out.low = out.high = out.constant;
    return true;
  }
  if (division && a.low >= 0 && a.high < b.low) {
    if (atom->kind == AtomKind::kMod) out = a;
    return true;
  }
  if (atom->kind == AtomKind::kMin && a.high <= b.low) return out = a, true;
  if (atom->kind == AtomKind::kMin && b.high <= a.low) return out = b, true;
  if (atom->kind == AtomKind::kMax && a.low >= b.high) return out = a, true;
  if (atom->kind == AtomKind::kMax && b.low >= a.high) return out = b, true;
  auto found = atom_register_.find(atom);
  if (found == atom_register_.end()) {
    Instruction instruction;
    instruction.a = materialize(a);
    instruction.b = materialize(b);
    int64_t low, high;
    switch (atom->kind) {
      case AtomKind::kFloorDiv:
        instruction.kind = Kind::kFloorDiv;
        low = a.low >= 0 ? floor_divide(a.low, b.high) : floor_divide(a.low, std::max<int64_t>(b.low, 1));
        high = a.high >= 0 ? floor_divide(a.high, std::max<int64_t>(b.low, 1)) : floor_divide(a.high, b.high);
        if (b.low <= 0) low = std::min<int64_t>(low, 0), high = std::max<int64_t>(high, 0);
        break;
      case AtomKind::kMod:
        instruction.kind = Kind::kMod;
        low = b.low <= 0 ? std::min<int64_t>(a.low, 0) : 0;
        high = b.low <= 0 ? std::max(a.high, b.high - 1) : b.high - 1;
        break;
      case AtomKind::kMin:
        instruction.kind = Kind::kMin;
        low = std::min(a.low, b.low);
        high = std::min(a.high, b.high);
        break;
      default:
        instruction.kind = Kind::kMax;
        low = std::max(a.low, b.low);
        high = std::max(a.high, b.high);
    }
    found = atom_register_.emplace(atom, add_index_instruction(std::move(instruction), low, high)).first;
  }
  out.registers.emplace_back(found->second, 1);
  set_bounds(out);
  return true;
}

bool StagePlan::compile_index(Dim d, IndexExpr &out) {
  out = IndexExpr();
  if (d.is_constant()) {
    out.constant = out.low = out.high = d.value();
    return true;
  }
  out.constant = d.node()->constant;
  for (const DimTerm &term : d.node()->terms) {
    IndexExpr product;
    product.constant = product.low = product.high = 1;
    for (const DimAtom *atom : term.atoms) {
      IndexExpr factor;
      if (!compile_atom(atom, factor)) return false;
      const bool product_constant = product.loops.empty() && product.registers.empty();
      const bool factor_constant = factor.loops.empty() && factor.registers.empty();
      IndexExpr next;
      if (product_constant) {
        add_scaled(next, factor, product.constant);
      } else if (factor_constant) {
        add_scaled(next, product, factor.constant);
      } else {
        Instruction instruction;
        instruction.kind = Instruction::Kind::kProduct;
        instruction.a = materialize(product);
        instruction.b = materialize(factor);
        const __int128 corners[] = {
            static_cast<__int128>(product.low) * factor.low, static_cast<__int128>(product.low) * factor.high,
            static_cast<__int128>(product.high) * factor.low, static_cast<__int128>(product.high) * factor.high};
        const int64_t low = saturate(*std::min_element(corners, corners + 4));
        const int64_t high = saturate(*std::max_element(corners, corners + 4));
        next.registers.emplace_back(add_index_instruction(std::move(instruction), low, high), 1);
      }
      set_bounds(next);
      product = std::move(next);
    }
    add_scaled(out, product, term.coefficient);
  }
  std::erase_if(out.loops, [](const auto &p) { return p.second == 0; });
  std::erase_if(out.registers, [](const auto &p) { return p.second == 0; });
  set_bounds(out);
  return true;
}

bool StagePlan::compile_address(const Array &array, const std::vector<Dim> &index, IndexExpr &offset,
                                std::vector<IndexCheck> &checks) {
  if (index.size() != array.dims.size()) {
    return fail("'" + array.name + "' has rank " + std::to_string(array.dims.size()) + " but is indexed by " +
                    std::to_string(index.size()) + " expressions",
                true);
  }
  offset = IndexExpr();
  for (size_t k = 0; k < index.size(); ++k) {
    IndexExpr e;
    if (!compile_index(index[k], e)) return false;
    add_scaled(offset, e, array.strides[k]);
    if (e.low < 0 || e.high >= array.dims[k]) checks.push_back({std::move(e), array.dims[k], static_cast<int>(k)});
  }
  return true;
}

bool StagePlan::compile(ScalarId id, int &out) {
  if (auto found = scalar_register_.find(id.index); found != scalar_register_.end()) {
    out = found->second;
    return true;
  }
  using Kind = Instruction::Kind;
  const Scalar scalar = context_.program().scalars.at(id);
  Instruction instruction;
  instruction.op = scalar.op;
  instruction.type = scalar.type;
  instruction.flag = scalar.flag;
  switch (scalar.op) {
    case ScalarOp::kConstant:
      out = new_register();
      register_bounds_.push_back({-kFar, kFar});
      constants_.push_back({out, {scalar.type, scalar.bits}});
      scalar_register_[id.index] = out;
      return true;
    case ScalarOp::kIndex:
      instruction.kind = Kind::kIndex;
      if (!compile_index(scalar.index_value, instruction.index)) return false;
      break;
    case ScalarOp::kLoad: {
      std::string reason;
      const Array *array = context_.buffer(scalar.buffer, reason);
      if (!array) return fail(reason, true);
      if (array->type != scalar.type) {
        return fail("'" + array->name + "' of type " + std::string(to_string(array->type)) + " is loaded as " +
                        std::string(to_string(scalar.type)),
                    true);
      }
      instruction.kind = Kind::kLoad;
      instruction.array = *array;
      if (!compile_address(*array, scalar.index, instruction.index, instruction.checks)) return false;
      break;
    }
    case ScalarOp::kLocal: {
      if (const PlanContext::Precomputed *whole = context_.precomputed(scalar.local)) {
        instruction.kind = Kind::kLoad;
        instruction.array = whole->array;
        if (!compile_address(whole->array, scalar.index, instruction.index, instruction.checks)) return false;
        for (const auto &[symbol, stride] : whole->outer) {
          for (size_t i = 0; i < loops_.size(); ++i) {
            if (loops_[i].symbol != symbol) continue;
            IndexExpr counter;
            counter.loops.emplace_back(static_cast<int>(i), 1);
            add_scaled(instruction.index, counter, stride);
          }
        }
        break;
      }
      const Array *array = context_.local(scalar.local);
      if (!array) return fail("a kernel reads a local that it does not have", true);
      instruction.kind = Kind::kLocal;
      instruction.array = *array;
      if (!compile_address(*array, scalar.index, instruction.index, instruction.checks)) return false;
      break;
    }
    default: {
      int *registers[] = {&instruction.a, &instruction.b, &instruction.c};
      const int n = arity(scalar.op);
      for (int i = 0; i < n; ++i)
        if (!compile(scalar.args[i], *registers[i])) return false;
      instruction.from = context_.program().scalars.at(scalar.args[0]).type;
    }
  }
  out = instruction.out = new_register();
  register_bounds_.push_back({-kFar, kFar});
  instructions_.push_back(std::move(instruction));
  scalar_register_[id.index] = out;
  return true;
}

bool StagePlan::add(const PlanOutput &output) {
  Output o;
  o.target = output.target;
  o.combine = output.combine;
  o.value_type = context_.program().scalars.at(output.value).type;
  if (output.condition.valid() && !compile(output.condition, o.condition)) return false;
  if (!compile(output.value, o.value)) return false;
  if (lane_class(o.value_type) != lane_class(o.target.type)) {
    return fail("a value of type " + std::string(to_string(o.value_type)) + " is stored into '" + o.target.name +
                    "' of type " + std::string(to_string(o.target.type)),
                true);
  }
  if (!compile_address(o.target, output.index, o.offset, o.checks)) return false;
  outputs_.push_back(std::move(o));
  return true;
}

bool StagePlan::add_dense(ScalarId value, ScalarId condition, ElementType cell) {
  Output o;
  o.value_type = context_.program().scalars.at(value).type;
  o.target.type = cell;
  o.target.name = "an operand";
  if (condition.valid() && !compile(condition, o.condition)) return false;
  if (!compile(value, o.value)) return false;
  if (lane_class(o.value_type) != lane_class(cell)) return fail("an operand has another type", true);
  int64_t stride = 1;
  for (size_t k = lane_loops_.size(); k-- > 0;) {
    o.offset.loops.emplace_back(lane_loops_[k], stride);
    stride *= loops_[lane_loops_[k]].extent;
  }
  outputs_.push_back(std::move(o));
  return true;
}

void StagePlan::set_dense_origin(int64_t first_lane, uint8_t *data) {
  outputs_[0].offset.constant = -first_lane;
  outputs_[0].target.data = data;
}

bool StagePlan::bounds(Dim d, int64_t &low, int64_t &high) {
  IndexExpr index;
  if (!compile_index(d, index)) return false;
  low = index.low;
  high = index.high;
  return true;
}

bool StagePlan::is_inner(const IndexExpr &index) const {
  for (const auto &[loop, coefficient] : index.loops)
    if (inner_loop_[loop] && coefficient != 0) return true;
  for (const auto &[reg, coefficient] : index.registers)
    if (register_inner_[reg] && coefficient != 0) return true;
  return false;
}

void StagePlan::finish(const std::vector<bool> &loop_is_inner, const std::vector<const uint8_t *> &changing) {
  inner_loop_ = loop_is_inner;
  register_inner_.assign(static_cast<size_t>(register_count_), false);
  registers_.reset(new Register[static_cast<size_t>(register_count_) + 1]);
  for (const auto &[reg, constant] : constants_) fill_constant(constant.first, constant.second, registers_[reg]);
  auto note_form = [this](IndexExpr &index) {
    set_form(index);
    if (index.form != IndexExpr::Form::kVector) return;
    for (const auto &[loop, coefficient] : index.loops) needs_vectors_ = needs_vectors_ || loops_[loop].lane;
  };
  for (Instruction &i : instructions_) {
    note_form(i.index);
    bool inner = is_inner(i.index);
    for (IndexCheck &c : i.checks) {
      note_form(c.index);
      inner = inner || is_inner(c.index);
    }
    for (const int operand : {i.a, i.b, i.c}) inner = inner || (operand >= 0 && register_inner_[operand]);
    if (i.array.data) inner = inner || std::find(changing.begin(), changing.end(), i.array.data) != changing.end();
    i.inner = inner;
    register_inner_[i.out] = inner;
  }
  for (Output &o : outputs_) {
    note_form(o.offset);
    for (IndexCheck &c : o.checks) note_form(c.index);
  }
  if (needs_vectors_)
    for (size_t k = 0; k < lane_loops_.size(); ++k) lane_values_.emplace_back(new int64_t[kLanes]);
}

}  // namespace optc::evaluate_detail
