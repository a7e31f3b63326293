#include "evaluate/plan.h"

#include <algorithm>
#include <cstring>

namespace optc::evaluate_detail {

namespace {

constexpr int64_t kFar = int64_t{1} << 62;

int64_t saturate(__int128 v) { return v > kFar ? kFar : v < -kFar ? -kFar : static_cast<int64_t>(v); }

int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

int64_t python_mod(int64_t a, int64_t b) { return a - floor_divide(a, b) * b; }

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
  if (division && b.low <= 0) {
    if (b.high <= 0 && b.low == b.high) return fail("an index expression divides by " + std::to_string(b.low), false);
    return fail("an index expression may divide by zero", true);
  }
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
        low = a.low >= 0 ? floor_divide(a.low, b.high) : floor_divide(a.low, b.low);
        high = a.high >= 0 ? floor_divide(a.high, b.low) : floor_divide(a.high, b.high);
        break;
      case AtomKind::kMod:
        instruction.kind = Kind::kMod;
        low = 0;
        high = b.high - 1;
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
      const Array *array = context_.buffer(scalar.buffer);
      if (!array) return fail("a buffer is read before it is written", true);
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

// --- Running
// -----------------------------------------------------------------------------------------------------------

void StagePlan::step_lanes(int64_t block_start, int n) {
  if (!needs_vectors_ || (vector_block_ == block_start && vector_lanes_ >= n)) return;
  vector_block_ = block_start;
  vector_lanes_ = n;
  const size_t count = lane_loops_.size();
  std::vector<int64_t> counter(count);
  int64_t rest = block_start;
  for (size_t k = count; k-- > 0;) {
    const int64_t extent = loops_[lane_loops_[k]].extent;
    counter[k] = rest % extent;
    rest /= extent;
  }
  int i = 0;
  const int64_t last = loops_[lane_loops_[count - 1]].extent;
  while (i < n) {
    // A run along the last lane loop.
    const int run = static_cast<int>(std::min<int64_t>(n - i, last - counter[count - 1]));
    for (size_t k = 0; k + 1 < count; ++k) std::fill_n(lane_values_[k].get() + i, run, counter[k]);
    for (int j = 0; j < run; ++j) lane_values_[count - 1][i + j] = counter[count - 1] + j;
    i += run;
    counter[count - 1] += run;
    for (size_t k = count - 1; k > 0 && counter[k] == loops_[lane_loops_[k]].extent; --k) {
      counter[k] = 0;
      ++counter[k - 1];
    }
  }
}

Offsets StagePlan::offsets(const IndexExpr &index, int64_t block_start, int n, int64_t *scratch) const {
  Offsets result;
  int64_t base = index.constant;
  for (const auto &[loop, coefficient] : index.loops)
    if (!loops_[loop].lane) base += coefficient * steps_[loop];
  if (index.form == IndexExpr::Form::kUniform) {
    result.start = base;
    return result;
  }
  if (index.form == IndexExpr::Form::kLinear) {
    result.start = base + index.step * block_start;
    result.step = index.step;
    return result;
  }
  std::fill_n(scratch, n, base);
  for (size_t k = 0; k < lane_loops_.size(); ++k) {
    int64_t coefficient = 0;
    for (const auto &[loop, c] : index.loops)
      if (loop == lane_loops_[k]) coefficient = c;
    if (coefficient == 0) continue;
    const int64_t *values = lane_values_[k].get();
    for (int i = 0; i < n; ++i) scratch[i] += coefficient * values[i];
  }
  for (const auto &[reg, coefficient] : index.registers) {
    const int64_t *values = registers_[reg].i64;
    for (int i = 0; i < n; ++i) scratch[i] += coefficient * values[i];
  }
  result.vector = scratch;
  return result;
}

bool StagePlan::in_range(const IndexCheck &check, const Array &array, int64_t block_start, int n, uint8_t *bad) {
  int64_t scratch[kLanes];
  const Offsets o = offsets(check.index, block_start, n, scratch);
  bool good = true;
  for (int i = 0; i < n; ++i) {
    const int64_t value = o.at(i);
    if (value >= 0 && value < check.extent) continue;
    if (good && out_of_range_.empty()) {
      out_of_range_ = "index " + std::to_string(value) + " is out of range for dimension " +
                      std::to_string(check.dimension) + " (of " + std::to_string(check.extent) + ") of '" + array.name +
                      "'";
    }
    good = false;
    bad[i] = 1;
  }
  return good;
}

void StagePlan::execute(Instruction &in, int64_t block_start, int n) {
  using Kind = Instruction::Kind;
  Register &out = registers_[in.out];
  auto take_poison = [&](const IndexExpr &index) {
    for (const auto &[reg, coefficient] : index.registers) {
      if (coefficient == 0 || !registers_[reg].poisoned) continue;
      if (!out.poisoned) std::memset(out.poison, 0, sizeof(out.poison));
      out.poisoned = true;
      for (int i = 0; i < n; ++i) out.poison[i] |= registers_[reg].poison[i];
    }
  };
  switch (in.kind) {
    case Kind::kOp:
      apply_lanes(in.op, in.type, in.from, in.flag, &registers_[in.a], in.b >= 0 ? &registers_[in.b] : nullptr,
                  in.c >= 0 ? &registers_[in.c] : nullptr, n, out);
      return;
    case Kind::kIndex: {
      out.poisoned = false;
      const Offsets o = offsets(in.index, block_start, n, out.i64);
      if (!o.vector)
        for (int i = 0; i < n; ++i) out.i64[i] = o.start + i * o.step;
      take_poison(in.index);
      return;
    }
    case Kind::kScalarIndex: {
      const Register &a = registers_[in.a];
      out.poisoned = a.poisoned;
      if (a.poisoned) std::memcpy(out.poison, a.poison, static_cast<size_t>(n));
      for (int i = 0; i < n; ++i) {
        const int64_t value = a.i64[i];
        if (value >= 0 && value < in.extent) {
          out.i64[i] = value;
          continue;
        }
        if (!out.poisoned) std::memset(out.poison, 0, sizeof(out.poison));
        if (!(a.poisoned && a.poison[i]) && out_of_range_.empty()) {
          out_of_range_ =
              "index " + std::to_string(value) + " is out of range for a dimension of " + std::to_string(in.extent);
        }
        out.poisoned = true;
        out.poison[i] = 1;
        out.i64[i] = 0;
      }
      return;
    }
    case Kind::kFloorDiv:
    case Kind::kMod:
    case Kind::kMin:
    case Kind::kMax:
    case Kind::kProduct: {
      const Register &a = registers_[in.a], &b = registers_[in.b];
      out.poisoned = a.poisoned || b.poisoned;
      if (out.poisoned)
        for (int i = 0; i < n; ++i) out.poison[i] = (a.poisoned && a.poison[i]) || (b.poisoned && b.poison[i]);
      for (int i = 0; i < n; ++i) {
        const int64_t x = a.i64[i], y = b.i64[i];
        out.i64[i] = in.kind == Kind::kFloorDiv ? floor_divide(x, y)
                     : in.kind == Kind::kMod    ? python_mod(x, y)
                     : in.kind == Kind::kMin    ? std::min(x, y)
                     : in.kind == Kind::kMax    ? std::max(x, y)
                                                : x * y;
      }
      return;
    }
    case Kind::kLoad:
    case Kind::kLocal: {
      int64_t scratch[kLanes];
      out.poisoned = false;
      Offsets o = offsets(in.index, block_start, n, scratch);
      take_poison(in.index);
      if (!in.checks.empty()) {
        uint8_t bad[kLanes] = {};
        bool good = true;
        for (const IndexCheck &c : in.checks) good = in_range(c, in.array, block_start, n, bad) && good;
        if (!good) {
          if (!out.poisoned) std::memset(out.poison, 0, sizeof(out.poison));
          out.poisoned = true;
          for (int i = 0; i < n; ++i) {
            scratch[i] = bad[i] ? 0 : o.at(i);
            out.poison[i] |= bad[i];
          }
          o = Offsets{0, 0, scratch};
        }
      }
      if (in.kind == Kind::kLoad) {
        load_lanes(in.array.type, in.array.data, o, n, out);
        if (lane_class(in.type) == LaneClass::kInt && in.type != in.array.type) normalize_lanes(in.type, n, out);
        return;
      }
      if (in.array.lane_minor) {
        if (!o.vector && o.step == 0) {
          o = Offsets{o.start * kLanes, 1, nullptr};
        } else {
          for (int i = 0; i < n; ++i) scratch[i] = o.at(i) * kLanes + i;
          o = Offsets{0, 0, scratch};
        }
      }
      const LaneClass lanes = lane_class(in.array.type);
      if (lanes == LaneClass::kF32) {
        const double *cells = reinterpret_cast<const double *>(in.array.data);
        if (!o.vector && o.step == 1) {
          cells += o.start;
          for (int i = 0; i < n; ++i) out.f32[i] = static_cast<float>(cells[i]);
        } else {
          for (int i = 0; i < n; ++i) out.f32[i] = static_cast<float>(cells[o.at(i)]);
        }
      } else {
        load_lanes(lanes == LaneClass::kF64 ? ElementType::kFloat64 : ElementType::kInt64, in.array.data, o, n, out);
      }
      return;
    }
  }
}

namespace {

double combine_double(Combine how, double a, double b) {
  switch (how) {
    case Combine::kSum:
      return a + b;
    case Combine::kProduct:
      return a * b;
    case Combine::kMax:
      return a != a ? a : b != b ? b : a < b ? b : a;
    case Combine::kMin:
      return a != a ? a : b != b ? b : b < a ? b : a;
    default:
      return b;
  }
}

int64_t combine_integer(Combine how, ElementType type, int64_t a, int64_t b) {
  const uint64_t ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  switch (how) {
    case Combine::kSum:
      return type == ElementType::kBool ? (a | b) != 0 : wrap_integer(type, static_cast<int64_t>(ua + ub));
    case Combine::kProduct:
      return wrap_integer(type, static_cast<int64_t>(ua * ub));
    case Combine::kMax:
      return type == ElementType::kUInt64 ? (ua < ub ? b : a) : a < b ? b : a;
    case Combine::kMin:
      return type == ElementType::kUInt64 ? (ub < ua ? b : a) : b < a ? b : a;
    case Combine::kAnd:
      return a & b;
    case Combine::kOr:
      return a | b;
    default:
      return b;
  }
}

// Combines n values into the f64 or i64 cells of a local.
template <typename Cell, typename Lane, typename F>
void combine_cells(Cell *cells, const Offsets &o, int n, const Lane *values, const Register *mask, F combine) {
  if (!mask && !o.vector && o.step == 0) {
    Cell sum = cells[o.start];
    for (int i = 0; i < n; ++i) sum = combine(sum, static_cast<Cell>(values[i]));
    cells[o.start] = sum;
    return;
  }
  for (int i = 0; i < n; ++i) {
    if (mask && !mask->i64[i]) continue;
    Cell &cell = cells[o.at(i)];
    cell = combine(cell, static_cast<Cell>(values[i]));
  }
}

template <typename Lane>
void combine_floats(Combine how, uint8_t *data, const Offsets &o, int n, const Lane *values, const Register *mask) {
  double *cells = reinterpret_cast<double *>(data);
  if (how == Combine::kSum)
    combine_cells(cells, o, n, values, mask, [](double a, double b) { return a + b; });
  else
    combine_cells(cells, o, n, values, mask, [how](double a, double b) { return combine_double(how, a, b); });
}

// Combines into memory of the element's own type, one element after the other (lanes may meet in one element).
void combine_memory(const Array &target, Combine how, const Offsets &o, int n, const Register &value,
                    const Register *mask) {
  Register one;
  one.poisoned = false;
  for (int i = 0; i < n; ++i) {
    if (mask && !mask->i64[i]) continue;
    const Offsets at{o.at(i), 0, nullptr};
    load_lanes(target.type, target.data, at, 1, one);
    switch (lane_class(target.type)) {
      case LaneClass::kF32:
        one.f32[0] = how == Combine::kSum ? one.f32[0] + value.f32[i]
                                          : static_cast<float>(combine_double(how, one.f32[0], value.f32[i]));
        break;
      case LaneClass::kF64:
        one.f64[0] = combine_double(how, one.f64[0], value.f64[i]);
        break;
      case LaneClass::kInt:
        one.i64[0] = combine_integer(how, target.type, one.i64[0], value.i64[i]);
        break;
      case LaneClass::kHandle:
        one.handle[0] = value.handle[i];
        break;
    }
    store_lanes(target.type, target.data, at, 1, one, nullptr);
  }
}

}  // namespace

bool StagePlan::write(Output &out, int64_t block_start, int n) {
  const Register &value = registers_[out.value];
  const Register *mask = out.condition >= 0 ? &registers_[out.condition] : nullptr;
  auto fault = [this] {
    return fail(out_of_range_.empty() ? std::string("an index is out of range") : out_of_range_, false);
  };
  if (value.poisoned || (mask && mask->poisoned)) {
    for (int i = 0; i < n; ++i) {
      if (mask && mask->poisoned && mask->poison[i]) return fault();
      if (value.poisoned && value.poison[i] && (!mask || mask->i64[i])) return fault();
    }
  }
  for (const auto &[reg, coefficient] : out.offset.registers) {
    if (coefficient == 0 || !registers_[reg].poisoned) continue;
    for (int i = 0; i < n; ++i)
      if (registers_[reg].poison[i] && (!mask || mask->i64[i])) return fault();
  }
  int64_t scratch[kLanes];
  Offsets o = offsets(out.offset, block_start, n, scratch);
  if (!out.checks.empty()) {
    uint8_t bad[kLanes] = {};
    for (const IndexCheck &c : out.checks) {
      if (in_range(c, out.target, block_start, n, bad)) continue;
      for (int i = 0; i < n; ++i)
        if (bad[i] && (!mask || mask->i64[i])) return fault();
    }
  }
  if (!out.target.local) {
    if (out.combine == Combine::kStore)
      store_lanes(out.target.type, out.target.data, o, n, value, mask);
    else
      combine_memory(out.target, out.combine, o, n, value, mask);
    return true;
  }
  if (out.target.lane_minor) {
    if (!o.vector && o.step == 0) {
      o = Offsets{o.start * kLanes, 1, nullptr};
    } else {
      for (int i = 0; i < n; ++i) scratch[i] = o.at(i) * kLanes + i;
      o = Offsets{0, 0, scratch};
    }
  }
  switch (lane_class(out.target.type)) {
    case LaneClass::kF32:
      combine_floats(out.combine, out.target.data, o, n, value.f32, mask);
      break;
    case LaneClass::kF64:
      combine_floats(out.combine, out.target.data, o, n, value.f64, mask);
      break;
    default: {
      const Combine how = out.combine;
      const ElementType type = out.target.type;
      combine_cells(reinterpret_cast<int64_t *>(out.target.data), o, n, value.i64, mask,
                    [how, type](int64_t a, int64_t b) { return combine_integer(how, type, a, b); });
    }
  }
  return true;
}

void StagePlan::execute_all(bool inner, int64_t block_start, int n) {
  step_lanes(block_start, n);
  for (Instruction &instruction : instructions_)
    if (instruction.inner == inner) execute(instruction, block_start, n);
}

void StagePlan::begin(int64_t block_start, int lanes) { execute_all(false, block_start, lanes); }

bool StagePlan::run(int64_t block_start, int lanes) {
  execute_all(true, block_start, lanes);
  for (Output &output : outputs_)
    if (!write(output, block_start, lanes)) return false;
  return true;
}

}  // namespace optc::evaluate_detail
