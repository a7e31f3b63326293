// StagePlan: running (plan.cc compiles).
#include <algorithm>
#include <cstring>

#include "evaluate/plan.h"

namespace optc::evaluate_detail {

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
    bad[i] = kPoisonRange;
  }
  return good;
}

// Poisons the lanes whose element has no value, or has given its place to the kernel's own result.
void StagePlan::check_written(const Array &array, const Offsets &o, int n, Register &out) {
  const bool some = array.written && array.written->missing > 0;
  if (!some && !array.replacing) return;
  for (int i = 0; i < n; ++i) {
    const int64_t cell = array.origin + o.at(i);
    const bool lost = array.replacing && array.replacing->has(cell);
    if (!lost && (!some || array.written->has(cell))) continue;
    if (out.poisoned && out.poison[i]) continue;
    if (unwritten_.empty()) {
      unwritten_ =
          "element " + index_text(array.dims, array.strides, o.at(i)) + " of '" + array.name +
          (lost ? "' is read after the kernel has overwritten it in place" : "' is read but was never written");
    }
    if (!out.poisoned) std::memset(out.poison, 0, sizeof(out.poison));
    out.poisoned = true;
    out.poison[i] = kPoisonUnwritten;
  }
}

bool StagePlan::poison_fault(uint8_t poison) {
  if (poison & kPoisonUnwritten) return fail(unwritten_, true);
  return fail(out_of_range_.empty() ? std::string("an index is out of range") : out_of_range_, false);
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
        if (a.poisoned && a.poison[i]) {
          out.i64[i] = 0;
          continue;
        }
        if (out_of_range_.empty()) {
          const int64_t given = value < 0 && in.flag ? value - in.extent : value;  // as the operand has it
          out_of_range_ =
              "index " + std::to_string(given) + " is out of range for a dimension of " + std::to_string(in.extent);
        }
        out.poisoned = true;
        out.poison[i] = kPoisonRange;
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
        for (int i = 0; i < n; ++i)
          out.poison[i] = static_cast<uint8_t>((a.poisoned ? a.poison[i] : 0) | (b.poisoned ? b.poison[i] : 0));
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
        check_written(in.array, o, n, out);
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

void mark_written(const Array &target, const Offsets &o, int n, const Register *mask) {
  Written *written = target.written;
  if (!written || written->missing == 0) return;
  if (!mask && !o.vector && o.step == 1) {
    uint8_t *cells = written->cells.data() + target.origin + o.start;
    int64_t fresh = 0;
    for (int i = 0; i < n; ++i) fresh += cells[i] == 0;
    std::memset(cells, 1, static_cast<size_t>(n));
    written->missing -= fresh;
    return;
  }
  for (int i = 0; i < n; ++i)
    if (!mask || mask->i64[i]) written->mark(target.origin + o.at(i));
}

}  // namespace

bool StagePlan::write(Output &out, int64_t block_start, int n) {
  const Register &value = registers_[out.value];
  const Register *mask = out.condition >= 0 ? &registers_[out.condition] : nullptr;
  if (value.poisoned || (mask && mask->poisoned)) {
    for (int i = 0; i < n; ++i) {
      if (mask && mask->poisoned && mask->poison[i]) return poison_fault(mask->poison[i]);
      if (value.poisoned && value.poison[i] && (!mask || mask->i64[i])) return poison_fault(value.poison[i]);
    }
  }
  for (const auto &[reg, coefficient] : out.offset.registers) {
    if (coefficient == 0 || !registers_[reg].poisoned) continue;
    for (int i = 0; i < n; ++i)
      if (registers_[reg].poison[i] && (!mask || mask->i64[i])) return poison_fault(registers_[reg].poison[i]);
  }
  int64_t scratch[kLanes];
  Offsets o = offsets(out.offset, block_start, n, scratch);
  if (!out.checks.empty()) {
    uint8_t bad[kLanes] = {};
    for (const IndexCheck &c : out.checks) {
      if (in_range(c, out.target, block_start, n, bad)) continue;
      for (int i = 0; i < n; ++i)
        if (bad[i] && (!mask || mask->i64[i])) return poison_fault(bad[i]);
    }
  }
  if (!out.target.local) {
    if (out.combine != Combine::kStore && out.target.written && out.target.written->missing > 0) {
      for (int i = 0; i < n; ++i) {
        if ((mask && !mask->i64[i]) || out.target.written->has(out.target.origin + o.at(i))) continue;
        return fail("element " + index_text(out.target.dims, out.target.strides, o.at(i)) + " of '" + out.target.name +
                        "' is combined with but was never written",
                    true);
      }
    }
    if (out.combine == Combine::kStore)
      store_lanes(out.target.type, out.target.data, o, n, value, mask);
    else
      combine_memory(out.target, out.combine, o, n, value, mask);
    if (out.combine == Combine::kStore) mark_written(out.target, o, n, mask);
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
