// Values of a loop nest as C++ expressions: loads, bindings, lanes.
#include <fmt/format.h>

#include "emit/cpp/nest.h"
#include "emit/cpp/types.h"

namespace optc {
namespace {

bool is_leaf(const Scalar &s) {
  return s.op == ScalarOp::kConstant || s.op == ScalarOp::kIndex || (s.op == ScalarOp::kLocal && s.index.empty());
}

// The runtime's load and store of lanes are named after the storage type where that is not the lane's own.
std::string lane_access(const char *verb, ElementType type) {
  switch (type) {
    case ElementType::kFloat16:
      return fmt::format("{}_f16", verb);
    case ElementType::kBFloat16:
      return fmt::format("{}_bf16", verb);
    case ElementType::kInt8:
      return fmt::format("{}_i8", verb);
    case ElementType::kUInt8:
      return fmt::format("{}_u8", verb);
    case ElementType::kInt16:
      return fmt::format("{}_i16", verb);
    case ElementType::kUInt16:
      return fmt::format("{}_u16", verb);
    case ElementType::kBool:
      return fmt::format("{}_bool", verb);
    default:
      return verb;
  }
}

}  // namespace

std::string NestPrinter::buffer_name(BufferId id, const char *role) {
  if (const auto it = buffer_names_.find(id.index); it != buffer_names_.end()) return it->second;
  std::string name =
      names_.unique(role ? role : role_name(program_.buffer(id), written_buffers_.count(id.index) != 0), 32);
  buffers_.push_back(id);
  buffer_names_[id.index] = name;
  return name;
}

std::string NestPrinter::symbol(const DimSymbol &s) {
  if (s.kind == SymbolKind::kScalar) {
    if (const auto it = bound_index_.find(&s); it != bound_index_.end()) return it->second;
    bind_index(s, "");
    return bound_index_[&s];
  }
  if (const auto it = symbol_names_.find(&s); it != symbol_names_.end()) return it->second;
  // Loop counters are numbered through the Program; in a function their plain names will do.
  std::string wish = s.name;
  if (s.kind == SymbolKind::kLoop) {
    const size_t at = wish.find_last_not_of("0123456789");
    if (at != std::string::npos && at > 0 && at + 1 < wish.size() && wish[at] == '_') wish.erase(at);
  }
  const std::string name = names_.unique(wish, 24);
  symbol_names_[&s] = name;
  if (s.kind != SymbolKind::kLoop) parameters_.push_back(&s);
  return name;
}

void NestPrinter::bind_index(const DimSymbol &s, const std::string &condition) {
  const ScalarId id(size_t{s.scalar});
  const bool lanes = !lane_count_.empty() && varies(id);
  const Text v = value(lanes ? program_.scalars.at(id).args[0] : id);  // in lanes a cast of int32 (gathered)
  const std::string extent = dim(fix(s.extent));
  const std::string name = names_.unique("at", 24);
  const int place = places_.add(kernel_.name + ": an index is outside its dimension");
  const std::string check =
      fmt::format("checked(env, {}, {}, {}{})", v.s, extent, place, lanes ? ", " + lane_count_ : "");
  line(fmt::format("const {} {} = {};", lanes ? "vi" : "int64_t", name,
                   condition.empty() ? check : condition + " ? " + check + (lanes ? " : vi{}" : " : 0")));
  bound_index_[&s] = name;
  scopes_.back().indices.push_back(&s);
}

Text NestPrinter::bind(ScalarId id, const Text &text) {
  const Scalar &s = program_.scalars.at(id);
  std::string wish = "t";
  if (s.op == ScalarOp::kLoad) {
    wish = buffer_name(s.buffer);
    if (wish.size() > 14) wish = wish.substr(wish.size() - 14);
    wish += "_v";
  }
  const std::string name = names_.unique(wish, 24);
  const char *type = text.lanes ? lane_type_name(lane_class(s.type)) : cpp_type(s.type).value;
  line(fmt::format("const {} {} = {};", type, name, text.s));
  const Text bound{name, kAtomPrecedence, text.lanes};
  bound_[id.index] = bound;
  scopes_.back().values.push_back(id.index);
  return bound;
}

Text NestPrinter::value(ScalarId id) {
  if (const auto it = bound_.find(id.index); it != bound_.end()) return it->second;
  const Scalar &s = program_.scalars.at(id);
  const Text text = node_text(id);
  if (const auto it = bound_.find(id.index); it != bound_.end()) return it->second;  // lazy selects bind themselves
  if (is_leaf(s)) return text;
  const auto uses = plan_->uses.find(id.index);
  if ((uses != plan_->uses.end() && uses->second > 1) || text.s.size() > 96) return bind(id, text);
  return text;
}

Text NestPrinter::memory_node(const Scalar &s) {
  if (s.op == ScalarOp::kLocal && s.index.empty())
    return {local_names_[s.local.index], kAtomPrecedence, columns_ && lanes_ != nullptr};
  const Dim offset = load_offset(s);
  const bool local = s.op == ScalarOp::kLocal;
  const std::string base = local ? local_names_[s.local.index] : buffer_name(s.buffer);
  if (local && columns_ && lanes_) return {base + "[" + dim(offset) + "]", kAtomPrecedence, true};
  if (!lane_count_.empty() && lanes_ && dim_varies(offset)) {
    const auto part = affine_in(offset, lanes_);
    if (!part) {
      const auto border = held(offset);
      if (!border) {
        const auto [moving, rest] = moving_part(offset);
        const std::string row = row_pointer(base, rest, "", false), at = lanes_dim(moving);
        if (!interior_) return {fmt::format("gather({}, {}, {})", row, at, lane_count_), kAtomPrecedence, true};
        const Dim inside = *in_interior(moving);
        return {fmt::format("gather_bordered<{}>({}, {}, {}, {})", affine_in(inside, lanes_)->coefficient.value(), row,
                            at, dim(inside), lane_count_),
                kAtomPrecedence, true};
      }
      const Held &h = *border;
      return {fmt::format("{}<{}>({}, {}, {}, {}, {})", lane_access("load_held", s.type), h.step,
                          row_pointer(base, h.rest, "", false), dim(h.at), h.low ? dim(*h.low) : "-kUnbounded",
                          h.high ? dim(*h.high) : "kUnbounded", lane_count_),
              kAtomPrecedence, true};
    }
    if (dim_varies(part->rest)) {
      const Gathered g = *gathered(s);
      const std::string at = symbol(*g.index), row = row_pointer(base, g.rest, "", false);
      return {fmt::format("gather({}, {}, {})", row, g.factor == 1 ? at : fmt::format("{} * {}", at, g.factor),
                          lane_count_),
              kAtomPrecedence, true};
    }
    const std::string row = row_pointer(base, part->rest, "", false);
    const std::string lane = symbol(*lanes_);
    const std::string verb = local ? "load" : lane_access("load", s.type);
    if (part->coefficient.is(1))
      return {fmt::format("{}({} + {}, {})", verb, row, lane, lane_count_), kAtomPrecedence, true};
    const std::string stride = dim(part->coefficient, kUnaryPrecedence);
    return {fmt::format("load_strided({} + {} * {}, {}, {})", row, lane, stride, dim(part->coefficient), lane_count_),
            kAtomPrecedence, true};
  }
  if (local) return {base + "[" + dim(offset) + "]"};
  return {load_text(s.type, base, dim(offset))};
}

std::string NestPrinter::row_pointer(const std::string &base, Dim rest, const char *type, bool force) {
  if (rest.is(0)) return base;
  const std::string expression = base + " + " + dim(rest, kAddPrecedence);
  if (const auto it = bound_rows_.find(expression); it != bound_rows_.end()) return it->second;
  if (!force) return expression;
  const std::string name = names_.unique(base + "_row", 40);
  line(fmt::format("{} *{} = {};", type, name, expression));
  bound_rows_[expression] = name;
  scopes_.back().rows.push_back(expression);
  return name;
}

Text NestPrinter::node_text(ScalarId id) {
  const Scalar &s = program_.scalars.at(id);
  switch (s.op) {
    case ScalarOp::kConstant:
      return constant_text(s.type, s.bits);
    case ScalarOp::kIndex: {
      const Dim d = fix(s.index_value);
      if (!lane_count_.empty() && dim_varies(d)) {
        const std::string text = lanes_dim(d);
        if (!interior_ || affine_in(d, lanes_)) return {text, kAtomPrecedence, true};
        return {fmt::format("by_place({}, {}, {})", lane_count_, text, lanes_dim(*in_interior(d))), kAtomPrecedence,
                true};
      }
      if (d.is_constant()) return constant_text(ElementType::kInt64, static_cast<uint64_t>(d.value()));
      return {dim(d, kAtomPrecedence)};
    }
    case ScalarOp::kLoad:
    case ScalarOp::kLocal:
      return memory_node(s);
    default:
      break;
  }
  if (s.op == ScalarOp::kSelect && lane_count_.empty() && (lazy(*plan_, s.args[1]) || lazy(*plan_, s.args[2]))) {
    const Text chosen = lazy_select(s);
    bound_[id.index] = chosen;
    scopes_.back().values.push_back(id.index);
    return chosen;
  }
  if (s.op == ScalarOp::kSelect && !lane_count_.empty())
    if (const auto inside = load_inside(s)) return *inside;
  Text args[3];
  bool lanes = false;
  for (int k = 0; k < arity(s.op); ++k) {
    args[k] = value(s.args[k]);
    lanes = lanes || args[k].lanes;
  }
  const ElementType operand = s.op == ScalarOp::kSelect ? s.type : program_.scalars.at(s.args[0]).type;
  if (lanes && operand == ElementType::kInt64 && s.op != ScalarOp::kSelect)
    for (int k = 0; k < arity(s.op); ++k)
      if (!args[k].lanes) args[k] = {"lane_int(" + args[k].s + ")", kAtomPrecedence, true};
  const Text text = operation_text(s, operand, args, lanes);
  const auto guard = guards_.find(id.index);
  if (!interior_ || guard == guards_.end() || lane_count_.empty()) return text;
  return {fmt::format("by_place({}, {}, splat_m({}))", lane_count_, text.s, guard->second), kAtomPrecedence, true};
}

// A select of an f32 element where its index is inside of the bounds that hold it, and of a fill elsewhere.
std::optional<Text> NestPrinter::load_inside(const Scalar &s) {
  const Scalar &load = program_.scalars.at(s.args[1]);
  if (load.op != ScalarOp::kLoad || load.type != ElementType::kFloat32 || varies(s.args[2])) return std::nullopt;
  const Dim offset = load_offset(load);
  if (!dim_varies(offset) || affine_in(offset, lanes_)) return std::nullopt;
  const auto border = held(offset);
  if (!border) return std::nullopt;
  bool low = !border->low, high = !border->high;
  std::vector<ScalarId> asked{s.args[0]}, still;
  while (!asked.empty()) {
    const ScalarId id = asked.back();
    asked.pop_back();
    const Scalar &c = program_.scalars.at(id);
    if (!varies(id)) {
      still.insert(still.begin(), id);
      continue;
    }
    if (bound_.count(id.index)) return std::nullopt;
    if (c.op == ScalarOp::kAnd) {
      asked.insert(asked.end(), {c.args[0], c.args[1]});
      continue;
    }
    if (c.op != ScalarOp::kLe && c.op != ScalarOp::kLt) return std::nullopt;
    const auto a = integer(c.args[0]), b = integer(c.args[1]);
    if (!a || !b) return std::nullopt;
    const Dim beyond = c.op == ScalarOp::kLt ? 1 : 0;
    if (border->low && *b == border->at && *a + beyond == *border->low)
      low = true;
    else if (border->high && *a == border->at && *b - beyond == *border->high)
      high = true;
    else
      return std::nullopt;
  }
  if (!low || !high) return std::nullopt;
  std::string any;
  for (ScalarId id : still) any += (any.empty() ? "" : " && ") + wrap(value(id), kBitPrecedence);
  const std::string fill = value(s.args[2]).s;
  return Text{
      fmt::format("load_inside<{}>({}, {}, {}, {}, {}, splat({}), {})", border->step,
                  row_pointer(buffer_name(load.buffer), border->rest, "", false), dim(border->at),
                  border->low ? dim(*border->low) : "-kUnbounded", border->high ? dim(*border->high) : "kUnbounded",
                  any.empty() ? "true" : any, fill, lane_count_),
      kAtomPrecedence, true};
}

// An integer expression that may move with the lanes, as int32 lanes.
std::string NestPrinter::lanes_dim(Dim d) {
  if (!dim_varies(d)) return "lane_int(" + dim(d) + ")";
  if (const auto part = affine_in(d, lanes_); part && part->coefficient.is_constant()) {
    const int64_t step = part->coefficient.value();
    return step == 1 ? fmt::format("iota({})", dim(d)) : fmt::format("iota({}, {})", dim(d), step);
  }
  DimTable &table = *d.node()->table;
  const auto [moving, rest] = moving_part(d);
  std::string sum = rest.is(0) ? "" : lanes_dim(rest);
  for (const DimTerm &t : moving.node()->terms) {
    Dim still = t.coefficient;
    std::string factor;
    for (const DimAtom *atom : t.atoms) {
      const Dim value = table.of_atom(atom);
      if (!dim_varies(value))
        still = still * value;
      else if (atom->kind == AtomKind::kSymbol)
        factor = fmt::format("iota({})", dim(value));
      else
        factor = fmt::format("{}({}, {})", atom->kind == AtomKind::kMin ? "min" : "max", lanes_dim(atom->a),
                             lanes_dim(atom->b));
    }
    const bool negative = still.is(-1);
    if (!negative && !still.is(1)) factor += " * " + lanes_dim(still);
    sum += (sum.empty() ? negative ? "-" : "" : negative ? " - " : " + ") + factor;
  }
  return "(" + sum + ")";
}

// A select whose arms may only be computed when they are chosen.
Text NestPrinter::lazy_select(const Scalar &s) {
  const Text condition = value(s.args[0]);
  const std::string name = names_.unique("chosen", 24);
  const char *type = cpp_type(s.type).value;
  line(fmt::format("{} {};", type, name));
  open("if (" + condition.s + ")");
  line(fmt::format("{} = {};", name, value(s.args[1]).s));
  close("} else {");
  ++indent_;
  scopes_.emplace_back();
  line(fmt::format("{} = {};", name, value(s.args[2]).s));
  close();
  return {name};
}

// Whether loops deeper than `depth` run at all for a stage that needs the item, as C++; "" where that is certain. An
// index that no iteration needs is no fault of the model, and an element that none needs may not be there.
std::string NestPrinter::needed(const Item &item, int depth) {
  std::string any;
  int stages = 0;
  for (StagePlan &plan : plans_) {
    const auto is_it = [&](const Item &i) { return i.index == item.index && (i.index || i.id == item.id); };
    if (std::none_of(plan.order.begin(), plan.order.end(), is_it)) continue;
    std::string all;
    const auto ask = [&](const Loop &loop) {
      const Dim extent = fix(loop.extent);
      // One that only a deeper loop decides is not asked: the index is checked though nobody may need it.
      if (lower_bound(extent) >= 1 || dim_depth(plan, extent) > depth) return;
      all += (all.empty() ? "" : " && ") + dim(extent, kAddPrecedence) + " > 0";
    };
    for (size_t i = static_cast<size_t>(depth); i < outer_.size(); ++i) ask(outer_[i]);
    const size_t open = static_cast<size_t>(std::max(0, depth - static_cast<int>(outer_.size())));
    for (size_t i = open; i < plan.loops.size(); ++i) ask(plan.loops[i]);
    if (all.empty()) return "";
    any += (stages++ == 0 ? "(" : " || (") + all + ")";
  }
  return stages == 1 ? any.substr(1, any.size() - 2) : any;
}

// Whether all elements that a value is made of are there even where no iteration needs it: an index that is held inside
// of a dimension is outside of it where the dimension is empty.
bool NestPrinter::surely_inside(ScalarId id) {
  if (const auto it = inside_.find(id.index); it != inside_.end()) return it->second;
  const Scalar &s = program_.scalars.at(id);
  bool inside = true;
  for (int k = 0; k < arity(s.op); ++k) inside = inside && surely_inside(s.args[k]);
  if (s.op == ScalarOp::kLoad) {
    const Shape &shape = program_.buffer(s.buffer).shape();
    for (size_t k = 0; k < shape.size(); ++k) inside = inside && proved_in_range(s.index[k], shape[k]);
  }
  return inside_[id.index] = inside;
}

// Binds what is used deeper but changes only here.
void NestPrinter::hoist(StagePlan &plan, int depth) {
  for (const Item &item : plan.order) {
    if (item.index) {
      const ScalarId id(size_t{item.index->scalar});
      if (!plan.always_indices.count(item.index) || bound_index_.count(item.index)) continue;
      if (std::max(node_depth(plan, id), dim_depth(plan, item.index->extent)) == depth &&
          plan.index_deepest[item.index] > depth)
        bind_index(*item.index, needed(item, depth));
      continue;
    }
    const Scalar &s = program_.scalars.at(item.id);
    if (is_leaf(s) || bound_.count(item.id.index) || lazy(plan, item.id)) continue;
    if (s.op == ScalarOp::kLocal && depth == static_cast<int>(outer_.size()) && !local_declared_[s.local.index])
      continue;
    if (plan.depth[item.id.index] != depth || plan.deepest[item.id.index] <= depth) continue;
    if (!surely_inside(item.id) && !needed(item, depth).empty()) continue;
    const Text text = node_text(item.id);
    if (!bound_.count(item.id.index)) bind(item.id, text);
  }
}

// Row pointers of the lanes loop that is about to open.
void NestPrinter::bind_rows(StagePlan &plan, const Stage &stage, int depth) {
  auto row = [&](const std::string &base, Dim offset, const std::string &type) {
    if (!dim_varies(offset)) return;
    const auto part = affine_in(offset, lanes_);
    const Dim rest = part ? part->rest : moving_part(offset).second;
    if (dim_varies(rest)) return;  // a gather
    if (dim_depth(plan, rest) <= depth) row_pointer(base, rest, type.c_str(), true);
  };
  for (const Item &item : plan.order) {
    if (item.index) continue;
    const Scalar &s = program_.scalars.at(item.id);
    if (lazy(plan, item.id)) continue;
    if (s.op == ScalarOp::kLoad)
      row(buffer_name(s.buffer), load_offset(s), std::string("const ") + cpp_type(s.type).storage);
    if (s.op == ScalarOp::kLocal && !s.index.empty())
      row(local_names_[s.local.index], load_offset(s), "const " + local_value_type(nest_.locals[s.local.index]));
  }
  for (const StageOutput &o : stage.outputs) {
    if (!o.buffer.valid()) continue;
    const Buffer &buffer = program_.buffer(o.buffer);
    row(buffer_name(o.buffer), offset_of(buffer, o.index), cpp_type(buffer.element()).storage);
  }
}

std::string NestPrinter::local_value_type(const Local &local) const { return cpp_type(local.type).value; }

// --- outputs
// -----------------------------------------------------------------------------------------------------------------------

void NestPrinter::print_store(const StageOutput &o) {
  const Buffer &buffer = program_.buffer(o.buffer);
  const ElementType element = buffer.element();
  const Dim offset = offset_of(buffer, o.index);
  const ScalarId narrow = lane_count_.empty() ? ScalarId() : widened(o, *plan_);
  Text v = value(narrow.valid() ? narrow : o.value);
  if (narrow.valid()) {
    const LaneClass lanes = lane_class(program_.scalars.at(narrow).type);
    const bool real = lanes == LaneClass::kFloat || lanes == LaneClass::kDouble;
    v.s = real                        ? "to_i64(" + v.s + ")"
          : lanes == LaneClass::kMask ? "widen(" + wrap(v, kUnaryPrecedence) + " & 1)"
                                      : "widen(" + v.s + ")";
  }
  const std::string base = buffer_name(o.buffer);
  if (!lane_count_.empty() && lanes_ && (one_column_ || dim_varies(offset))) {
    const auto part = affine_in(offset, lanes_);
    const std::string row = row_pointer(base, part->rest, cpp_type(element).storage, false);
    std::string text = v.s;
    if (!v.lanes) text = splat_text(v.s, lane_class(element));
    const std::string lane = symbol(*lanes_);
    if (part->coefficient.is(1) || one_column_)
      line(fmt::format("{}({} + {}, {}, {});", lane_access("store", element), row, lane, text, lane_count_));
    else
      line(fmt::format("store_strided({} + {} * {}, {}, {}, {});", row, lane, dim(part->coefficient, kUnaryPrecedence),
                       dim(part->coefficient), text, lane_count_));
    return;
  }
  const std::string at = dim(offset);
  if (o.combine == Combine::kStore) {
    line(store_text(element, base, at, v.s));
    return;
  }
  const Text old{load_text(element, base, at)};
  line(store_text(element, base, at, combine_text(o.combine, element, old, v).s));
}

void NestPrinter::print_local_store(StagePlan &plan, const StageOutput &o, size_t index) {
  const Local &local = nest_.locals[o.local.index];
  const LaneClass c = lane_class(local.type);
  const std::string name = local_names_[o.local.index];
  Text v = value(o.value);
  if (const auto it = accumulators_.find(index); it != accumulators_.end()) {
    const std::string &accumulator = it->second;
    if (lanes_accumulator(o, plan)) {
      if (o.condition.valid() && varies(o.condition)) {
        const Text condition = value(o.condition);
        v = {fmt::format("select({}, {}, {})", condition.s, v.lanes ? v.s : splat_text(v.s, c),
                         splat_text(identity_text(o.combine, local.type), c)),
             kAtomPrecedence, true};
      }
      line(fmt::format("{}.add({}, {});", accumulator, v.lanes ? v.s : splat_text(v.s, c), lane_count_));
    } else if (wide_accumulator(o, plan)) {
      line(fmt::format("{} += {};", accumulator, v.s));
    } else {
      const bool lanes = columns_ && lanes_;
      if (lanes && o.condition.valid() && varies(o.condition)) {
        const Text condition = value(o.condition);
        v = {fmt::format("select({}, {}, {})", condition.s, v.lanes ? v.s : splat_text(v.s, c),
                         splat_text(identity_text(o.combine, local.type), c)),
             kAtomPrecedence, true};
      }
      const Text sum{accumulator, kAtomPrecedence, lanes};
      line(fmt::format("{} = {};", accumulator, combine_text(o.combine, local.type, sum, v).s));
    }
    return;
  }
  const Dim offset = local_offset(local, o.index);
  if (local.shape.empty()) {
    line(fmt::format("{} = {};", name, v.s));
    return;
  }
  if (!lane_count_.empty() && lanes_ && !columns_ && dim_varies(offset)) {
    const auto part = affine_in(offset, lanes_);
    const std::string row = row_pointer(name, part->rest, "", false);
    line(fmt::format("store({} + {}, {}, {});", row, symbol(*lanes_), v.lanes ? v.s : splat_text(v.s, c), lane_count_));
    return;
  }
  const std::string target = name + "[" + dim(offset) + "]";
  if (columns_ && lanes_ && !v.lanes) v = {splat_text(v.s, c), kAtomPrecedence, true};
  if (o.combine == Combine::kStore)
    line(fmt::format("{} = {};", target, v.s));
  else
    line(fmt::format(
        "{} = {};", target,
        combine_text(o.combine, local.type, {target, kAtomPrecedence, columns_ && lanes_ != nullptr}, v).s));
}

void NestPrinter::print_output(StagePlan &plan, const StageOutput &o, size_t index) {
  const bool guarded = o.condition.valid() && !(lanes_ && !lane_count_.empty() && varies(o.condition));
  if (guarded) open("if (" + value(o.condition).s + ")");
  if (o.buffer.valid())
    print_store(o);
  else
    print_local_store(plan, o, index);
  if (guarded) close();
}

}  // namespace optc
