#include <cassert>

#include "ir/program/address.h"
#include "ops/build.h"

namespace optc {

NestBuilder::NestBuilder(BuildContext &context, std::string_view note) : context_(context), note_(note) {}

Dim NestBuilder::outer(std::string_view name, Dim extent) {
  assert(nest_.stages.empty());
  if (extent.is(1)) return 0;
  const Dim d = context_.program().dims->new_loop(name, extent);
  nest_.loops.push_back({single_symbol(d), extent});
  return d;
}

std::vector<Dim> NestBuilder::outer(const Shape &extents) {
  std::vector<Dim> index;
  for (size_t k = 0; k < extents.size(); ++k) index.push_back(outer("i" + std::to_string(k), extents[k]));
  return index;
}

Stage &NestBuilder::open() {
  if (!open_) nest_.stages.emplace_back();
  open_ = true;
  return nest_.stages.back();
}

Dim NestBuilder::stage_loop(std::string_view name, Dim extent) {
  Stage &stage = open();
  if (extent.is(1)) return 0;
  const Dim d = context_.program().dims->new_loop(name, extent);
  stage.loops.push_back({single_symbol(d), extent});
  return d;
}

std::vector<Dim> NestBuilder::stage_loops(const Shape &extents) {
  std::vector<Dim> index;
  for (size_t k = 0; k < extents.size(); ++k) index.push_back(stage_loop("r" + std::to_string(k), extents[k]));
  return index;
}

void NestBuilder::end_stage() { open_ = false; }

size_t NestBuilder::stage_index() const { return nest_.stages.size() - (open_ ? 1 : 0); }

Expr NestBuilder::load_raw(BufferId buffer, std::vector<Dim> index) {
  Program &program = context_.program();
  assert(index.size() == program.buffer(buffer).shape().size());
  index = with_named_entries(program, buffer, std::move(index));
  return {&program.scalars, program.scalars.load(buffer, program.buffer(buffer).element(), std::move(index))};
}

Expr NestBuilder::load(BufferId buffer, std::vector<Dim> index) {
  const Expr raw = load_raw(buffer, std::move(index));
  return cast(raw, compute_type(raw.type()));
}

Expr NestBuilder::index(Dim value) {
  Program &program = context_.program();
  return {&program.scalars, program.scalars.index(value)};
}

Expr NestBuilder::position(Dim value, Dim extent) {
  return upper_bound(extent) <= INT32_MAX ? cast(index(value), ElementType::kInt32) : index(value);
}

Expr NestBuilder::constant(ElementType type, double value) {
  Program &program = context_.program();
  return {&program.scalars, program.scalars.constant(type, value)};
}

Dim NestBuilder::as_index(Expr value, Dim extent) {
  value = cast(value, ElementType::kInt64);
  const Scalar &scalar = value.pool().at(value.id());
  if (scalar.op == ScalarOp::kIndex) return scalar.index_value;
  if (scalar.op == ScalarOp::kConstant) return Dim(static_cast<int64_t>(scalar.bits));
  return context_.program().dims->scalar_symbol(value.id().index, extent);
}

void NestBuilder::store(BufferId buffer, std::vector<Dim> index, Expr value, Expr condition) {
  combine(buffer, std::move(index), value, Combine::kStore, condition);
}

void NestBuilder::combine(BufferId buffer, std::vector<Dim> index, Expr value, Combine how, Expr condition) {
  const Buffer &target = context_.program().buffer(buffer);
  assert(index.size() == target.shape().size());
  StageOutput out;
  out.buffer = buffer;
  out.index = with_named_entries(context_.program(), buffer, std::move(index));
  out.value = cast(value, target.element()).id();
  out.combine = how;
  if (condition.valid()) out.condition = condition.id();
  open().outputs.push_back(std::move(out));
}

Expr NestBuilder::reduce(Combine how, Expr value, Expr initial, Expr condition) {
  const LocalId local(nest_.locals.size());
  nest_.locals.push_back({"r" + std::to_string(local.index), value.type(), {}});
  StageOutput out;
  out.local = local;
  out.value = value.id();
  out.combine = how;
  if (initial.valid()) out.initial = initial.id();
  if (condition.valid()) out.condition = condition.id();
  open().outputs.push_back(std::move(out));
  open_ = false;
  return load_local(local, {});
}

std::vector<Expr> NestBuilder::reduce_all(const std::vector<std::pair<Combine, Expr>> &values) {
  std::vector<Expr> results;
  open();
  for (const auto &[how, value] : values) {
    results.push_back(reduce(how, value));
    open_ = true;
  }
  open_ = false;
  return results;
}

LocalId NestBuilder::local_row(std::string_view name, ElementType type, Shape shape) {
  nest_.locals.push_back({std::string(name), type, std::move(shape)});
  return LocalId(nest_.locals.size() - 1);
}

void NestBuilder::store_local(LocalId local, std::vector<Dim> index, Expr value, Combine how) {
  StageOutput out;
  out.local = local;
  out.index = std::move(index);
  out.value = cast(value, nest_.locals[local.index].type).id();
  out.combine = how;
  open().outputs.push_back(std::move(out));
}

Expr NestBuilder::load_local(LocalId local, std::vector<Dim> index) {
  Program &program = context_.program();
  return {&program.scalars, program.scalars.local(local, nest_.locals[local.index].type, std::move(index))};
}

KernelId NestBuilder::finish() {
  open_ = false;
  Kernel kernel;
  kernel.body = std::move(nest_);
  kernel.note = note_;
  return context_.add(std::move(kernel));
}

// --- The common kernels --------------------------------------------------------------------------------------

Status BuildContext::pointwise_on(const std::vector<BufferId> &inputs, BufferId output,
                                  const std::function<Expr(NestBuilder &, std::vector<Expr>)> &f) {
  NestBuilder nest(*this, node().op);
  const Shape shape = program().buffer(output).shape();
  const std::vector<Dim> index = nest.outer(shape);
  std::vector<Expr> values;
  for (BufferId input : inputs) {
    const Shape &operand = program().buffer(input).shape();
    values.push_back(nest.load(input, broadcast_index(index, operand, shape)));
  }
  nest.store(output, index, f(nest, std::move(values)));
  nest.finish();
  return {};
}

Expr BuildContext::operand(NestBuilder &nest, size_t i, const std::vector<Dim> &index, const Shape &shape) {
  const Constant *c = constant(i);
  if (c && c->count() == 1 && c->type() != ElementType::kString && !is_complex(c->type())) {
    ScalarPool &pool = program().scalars;
    const ElementType type = c->type();
    const ScalarId id = is_float(type) ? pool.constant(type, c->as_double(0)) : pool.constant_int(type, c->as_int64(0));
    return cast(Expr(&pool, id), compute_type(type));
  }
  const BufferId buffer = input(i);
  const Shape operand_shape = program().buffer(buffer).shape();
  if (operand_shape.size() > index.size())
    return nest.load(buffer, std::vector<Dim>(operand_shape.size()));  // one element
  return nest.load(buffer, broadcast_index(index, operand_shape, shape));
}

Status BuildContext::pointwise(const std::vector<size_t> &inputs, size_t output,
                               const std::function<Expr(NestBuilder &, std::vector<Expr>)> &f) {
  const BufferId target = this->output(output);
  const Shape shape = program().buffer(target).shape();
  NestBuilder nest(*this, node().op);
  const std::vector<Dim> index = nest.outer(shape);
  std::vector<Expr> values;
  for (size_t i : inputs) values.push_back(operand(nest, i, index, shape));
  nest.store(target, index, f(nest, std::move(values)));
  nest.finish();
  return {};
}

Status BuildContext::index_map(BufferId input, BufferId output,
                               const std::function<std::vector<Dim>(const std::vector<Dim> &)> &f) {
  NestBuilder nest(*this, node().op);
  const std::vector<Dim> index = nest.outer(Shape(program().buffer(output).shape()));
  nest.store(output, index, nest.load_raw(input, f(index)));
  nest.finish();
  return {};
}

const Type &BuildContext::input_type(size_t i) const { return graph().value(node().input(i)).type; }
const Type &BuildContext::output_type(size_t i) const { return graph().value(node().output(i)).type; }

}  // namespace optc
