#include "ops/build.h"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ir/names.h"
#include "ir/program/address.h"
#include "ops/conditions.h"
#include "ops/registry.h"

namespace optc {
namespace {

// Integers as a constant of a type of whole bytes.
Constant integers(ElementType type, std::vector<int64_t> dims, const std::vector<Dim> &values) {
  const size_t width = static_cast<size_t>(bit_width(type)) / 8;
  std::vector<uint8_t> bytes;
  for (Dim d : values) {
    const uint64_t v = static_cast<uint64_t>(d.value());
    for (size_t b = 0; b < width; ++b) bytes.push_back(static_cast<uint8_t>(v >> (8 * b)));
  }
  return Constant::owned(type, std::move(dims), std::move(bytes));
}

bool all_constant(const std::vector<Dim> &dims) {
  for (Dim d : dims)
    if (!d.is_constant()) return false;
  return true;
}

class ProgramBuilder {
 public:
  ProgramBuilder(const Graph &graph, Diagnostics &diagnostics) : graph_(graph), diagnostics_(diagnostics) {
    program_.dims = graph.dims();
    program_.origins = graph.origins();
    program_.info = graph.info();
    program_.name = graph.info().name;
    scopes_.emplace_back();
    sequence_ = &program_.order;
  }

  Status add_input(ValueId v, Constant fallback) {
    const Value &value = graph_.value(v);
    OPTC_TRY(check_shape(v));
    Buffer buffer;
    buffer.name = value.name;
    buffer.kind = BufferKind::kInput;
    buffer.type = value.type;
    const uint32_t position = static_cast<uint32_t>(program_.inputs.size());
    bind(v, program_.add_buffer(std::move(buffer)));
    program_.inputs.push_back(buffers_.at(v.index));
    program_.input_names.push_back(value.name);
    program_.input_defaults.push_back(std::move(fallback));
    if (!value.type.is_tensor()) return {};
    for (size_t axis = 0; axis < value.type.shape->size(); ++axis) {
      const Dim d = (*value.type.shape)[axis];
      const DimSymbol *symbol = single_symbol(d);
      if (symbol && sourced_.insert(symbol).second) {
        program_.sources.push_back({symbol, position, static_cast<uint32_t>(axis)});
      } else {
        program_.checks.push_back({position, static_cast<uint32_t>(axis), d});
      }
    }
    return {};
  }

  // Which values the Program gives; to be called before the nodes are built, so that their kernels write the outputs'
  // memory.
  void declare_outputs(const std::vector<ValueId> &outputs) {
    for (ValueId v : outputs) declared_.insert(v.index);
  }

  Status build_nodes(const std::vector<NodeId> &nodes) {
    for (NodeId node : nodes) OPTC_TRY(build_node(node));
    return {};
  }
  Status add_outputs(const std::vector<ValueId> &outputs);
  Status collect_constraints();
  Program take() { return std::move(program_); }

  Result<BufferId> buffer_of(ValueId v);
  Result<BufferId> make_output(ValueId v);
  BufferId copy(NodeId node, BufferId from, BufferId to);
  Status check_shape(ValueId v);
  void bind(ValueId v, BufferId buffer) {
    buffers_[v.index] = buffer;
    scopes_.back().push_back(v);
  }
  bool is_object(const Type &type) const { return !type.is_tensor() || type.element == ElementType::kString; }
  Result<std::pair<std::vector<KernelId>, std::vector<BufferId>>> body(RegionId region,
                                                                       const std::vector<BufferId> &inputs);
  void splice(const std::vector<KernelId> &kernels) {
    sequence_->insert(sequence_->end(), kernels.begin(), kernels.end());
  }
  std::vector<KernelId> detached(const std::function<void()> &f) {
    std::vector<KernelId> kernels, *outside = sequence_;
    sequence_ = &kernels;
    f();
    sequence_ = outside;
    return kernels;
  }
  void emit(Kernel kernel, KernelId *id, std::string_view name) {
    kernel.name = kernel_names_.unique(name);
    if (const LibraryCall *call = kernel.library()) sizes_.insert(call->defines.begin(), call->defines.end());
    if (const ControlFlow *control = kernel.control()) sizes_.insert(control->defines.begin(), control->defines.end());
    *id = program_.add_kernel(std::move(kernel));
    sequence_->push_back(*id);
  }
  std::string buffer_name(std::string_view base) { return buffer_names_.unique(base); }

  const Graph &graph_;
  Diagnostics &diagnostics_;
  Program program_;

 private:
  Status build_node(NodeId node);
  BufferId store_elements(ValueId v);
  RegionId branch_of(RegionId region) const;
  void check_branch_constraints(NodeId id);
  void check_lost_constraints(RegionId region);
  void check_constraint(const DimConstraint &c, NodeId id);
  void note_sizes(const Type &type);

  std::unordered_map<uint32_t, BufferId> buffers_;
  std::vector<std::vector<ValueId>> scopes_;  // values bound in the region under construction, innermost last
  std::vector<KernelId> *sequence_ = nullptr;
  std::unordered_set<uint32_t> declared_;
  std::unordered_map<uint32_t, std::vector<DimConstraint>> branch_constraints_;  // by node
  std::unordered_map<uint32_t, std::vector<DimConstraint>> lost_constraints_;    // by branch: what removed nodes asked
  std::unordered_set<const DimSymbol *> sizes_;  // sizes that kernels so far find, and those of bodies' inputs
  std::unordered_set<const DimSymbol *> sourced_;
  UniqueNames kernel_names_, buffer_names_;
  size_t checked_ = 0;  // kernels whose places are known to be values
};

class NodeContext final : public BuildContext {
 public:
  NodeContext(ProgramBuilder &builder, NodeId id) : builder_(builder), id_(id) {}
  const Graph &graph() const override { return builder_.graph_; }
  NodeId id() const override { return id_; }
  Program &program() override { return builder_.program_; }
  BufferId input(size_t i) override { return resolve(node().input(i), false); }
  BufferId output(size_t i) override { return resolve(node().output(i), true); }
  const std::vector<Dim> *elements(size_t i) const override {
    const ValueId v = node().input(i);
    if (!v.valid()) return nullptr;
    if (graph().value(v).elements) return graph().value(v).elements.get();
    const Constant *c = graph().constant(v);
    if (!c) return nullptr;
    auto &slot = elements_[v.index];
    if (!slot) slot = constant_elements(*c);
    return slot.get();
  }
  BufferId temporary(std::string_view name, ElementType element, Shape shape) override {
    Buffer buffer;
    buffer.name = builder_.buffer_name(base_name() + "_" + std::string(name));
    buffer.type = Type::tensor(element, std::move(shape));
    return program().add_buffer(std::move(buffer));
  }
  BufferId constant_buffer(std::string_view name, Constant value) override {
    Buffer buffer;
    buffer.name = builder_.buffer_name(base_name() + "_" + std::string(name));
    buffer.kind = BufferKind::kConstant;
    buffer.type = Type::tensor(value.type(), value.shape());
    buffer.constant = std::move(value);
    return program().add_buffer(std::move(buffer));
  }
  void alias(size_t output, BufferId same_bytes) override;
  KernelId add(Kernel kernel) override {
    kernel.origin = node().origin;
    KernelId id;
    builder_.emit(std::move(kernel), &id, base_name());
    return id;
  }
  KernelId library(std::string function, std::vector<BufferId> inputs, std::vector<BufferId> outputs,
                   std::vector<std::pair<std::string, Attribute>> attributes,
                   std::vector<const DimSymbol *> defines) override {
    Kernel kernel;
    kernel.note = node().op;
    kernel.body = LibraryCall{std::move(function), std::move(inputs), std::move(outputs), std::move(attributes),
                              std::move(defines)};
    return add(std::move(kernel));
  }
  Result<std::pair<std::vector<KernelId>, std::vector<BufferId>>> body(RegionId region,
                                                                       std::vector<BufferId> inputs) override {
    return builder_.body(region, inputs);
  }
  void splice(const std::vector<KernelId> &kernels) override { builder_.splice(kernels); }
  std::vector<KernelId> detached(const std::function<void()> &f) override { return builder_.detached(f); }
  Failure invalid(std::string message) override {
    return builder_.diagnostics_.error(ErrorKind::kInvalid, std::move(message), graph().describe(id_));
  }
  Failure unsupported(std::string message) override {
    return builder_.diagnostics_.error(ErrorKind::kUnsupported, std::move(message), graph().describe(id_));
  }
  std::optional<Failure> failure() const { return failure_; }

 private:
  std::string base_name() const { return node().name.empty() ? node().op : node().name; }
  BufferId resolve(ValueId v, bool output) {
    if (!v.valid()) return {};
    auto buffer = output ? builder_.make_output(v) : builder_.buffer_of(v);
    if (buffer) return *buffer;
    if (!failure_) failure_ = buffer.failure();
    // The build goes on with a buffer of no use, so that an operator need not check each one; its result is dropped.
    Buffer broken;
    broken.type = graph().value(v).type;
    if (broken.type.is_tensor() && !broken.type.shape) broken.type.shape = Shape();
    return program().add_buffer(std::move(broken));
  }

  ProgramBuilder &builder_;
  NodeId id_;
  std::optional<Failure> failure_;
  mutable std::unordered_map<uint32_t, std::shared_ptr<const std::vector<Dim>>> elements_;
};

void NodeContext::alias(size_t output, BufferId same_bytes) {
  const ValueId v = node().output(output);
  if (!v.valid()) return;
  const Buffer base = program().buffer(same_bytes);
  const BufferId target = this->output(output);
  if (program().buffer(target).kind == BufferKind::kOutput) {  // the caller's memory: a copy
    builder_.copy(id_, same_bytes, target);
    return;
  }
  Buffer &view = program().buffer(target);
  if (base.kind == BufferKind::kConstant && !base.alias.valid() && view.type.shape && all_constant(*view.type.shape)) {
    std::vector<int64_t> dims;
    for (Dim d : *view.type.shape) dims.push_back(d.value());
    view.kind = BufferKind::kConstant;
    view.constant = base.constant.reshaped(std::move(dims));
    return;
  }
  if (builder_.is_object(view.type)) {  // a value of the run with dims of its own: strings are not seen as other bytes
    builder_.copy(id_, same_bytes, target);
    return;
  }
  view.alias = base.alias.valid() ? base.alias : same_bytes;
  view.alias_offset = base.alias_offset;
}

Status ProgramBuilder::check_shape(ValueId v) {
  const Value &value = graph_.value(v);
  if (!value.type.is_tensor() || value.type.shape) return {};
  const std::string where = value.producer.valid() ? graph_.describe(value.producer) : "";
  return diagnostics_.error(ErrorKind::kUnsupported,
                            "the rank of '" + value.name + "' is not known before the model runs", where,
                            "give the shape of the model's inputs with --shape or --dim");
}

Result<BufferId> ProgramBuilder::make_output(ValueId v) {
  if (auto it = buffers_.find(v.index); it != buffers_.end()) return it->second;
  OPTC_TRY(check_shape(v));
  const Value &value = graph_.value(v);
  Buffer buffer;
  buffer.name = value.name;
  buffer.type = value.type;
  buffer.kind = declared_.count(v.index) ? BufferKind::kOutput
                : is_object(value.type)  ? BufferKind::kObject
                                         : BufferKind::kTemporary;
  bind(v, program_.add_buffer(std::move(buffer)));
  return buffers_.at(v.index);
}

Result<BufferId> ProgramBuilder::buffer_of(ValueId v) {
  if (auto it = buffers_.find(v.index); it != buffers_.end()) return it->second;
  const Value &value = graph_.value(v);
  if (value.kind == ValueKind::kConstant) {
    Buffer buffer;
    buffer.name = value.name;
    buffer.kind = BufferKind::kConstant;
    buffer.type = value.type;
    buffer.type.shape = value.constant.shape();
    buffer.constant = value.constant;
    buffers_[v.index] = program_.add_buffer(std::move(buffer));  // of no scope: no kernel makes it
    return buffers_.at(v.index);
  }
  if (value.elements) {
    OPTC_TRY(check_shape(v));
    return store_elements(v);
  }
  return diagnostics_.error(ErrorKind::kInternal, "the value '" + value.name + "' is used before it is made");
}

// Shape arithmetic costs no kernels: what its Dims say is written where something reads it.
BufferId ProgramBuilder::store_elements(ValueId v) {
  const Value &value = graph_.value(v);
  const std::vector<Dim> &elements = *value.elements;
  Buffer buffer;
  buffer.name = value.name;
  buffer.type = value.type;
  // What a body reads of it lies in memory of its own: the one that the caller gives is filled once, outside.
  const bool output = declared_.count(v.index) != 0 && scopes_.size() == 1;
  if (!output && all_constant(elements) && bit_width(value.type.element) >= 8) {
    buffer.kind = BufferKind::kConstant;
    std::vector<int64_t> dims;
    if (value.type.rank() == 1) dims.push_back(static_cast<int64_t>(elements.size()));
    if (value.type.rank() > 1)
      for (Dim d : *value.type.shape) dims.push_back(d.value());
    if (value.type.rank() <= 1)
      buffer.type.shape = value.type.rank() == 1 ? Shape{Dim(static_cast<int64_t>(elements.size()))} : Shape{};
    buffer.constant = integers(value.type.element, std::move(dims), elements);
    buffers_[v.index] = program_.add_buffer(std::move(buffer));
    return buffers_.at(v.index);
  }
  if (output) buffer.kind = BufferKind::kOutput;
  const ElementType type = value.type.element;
  const bool vector = value.type.rank() == 1;
  const BufferId id = program_.add_buffer(std::move(buffer));
  bind(v, id);
  LoopNest nest;
  nest.stages.emplace_back();
  for (size_t i = 0; i < elements.size(); ++i) {
    StageOutput out;
    out.buffer = id;
    if (vector) {
      out.index.push_back(Dim(static_cast<int64_t>(i)));
    } else {
      out.index = unflatten_index(Dim(static_cast<int64_t>(i)), *value.type.shape);
    }
    out.value = elements[i].is_constant() ? program_.scalars.constant_int(type, elements[i].value())
                                          : program_.scalars.index(elements[i]);
    if (program_.scalars.at(out.value).type != type) out.value = program_.scalars.cast(out.value, type);
    nest.stages[0].outputs.push_back(std::move(out));
  }
  if (elements.empty()) {  // nothing is stored, but the value is made
    const Dim none = program_.dims->new_loop("i0", 0);
    nest.loops.push_back({single_symbol(none), 0});
    StageOutput out;
    out.buffer = id;
    out.index.assign(static_cast<size_t>(value.type.rank()), Dim(0));
    if (!out.index.empty()) out.index[0] = none;
    out.value = program_.scalars.constant_int(type, 0);
    nest.stages[0].outputs.push_back(std::move(out));
  }
  Kernel kernel;
  kernel.body = std::move(nest);
  kernel.note = "the elements of " + value.name;
  if (value.producer.valid()) kernel.origin = graph_.node(value.producer).origin;
  KernelId kernel_id;
  emit(std::move(kernel), &kernel_id, value.name);
  return id;
}

BufferId ProgramBuilder::copy(NodeId node, BufferId from, BufferId to) {
  const Buffer source = program_.buffer(from), target = program_.buffer(to);
  Kernel kernel;
  kernel.note = "copy";
  if (node.valid()) kernel.origin = graph_.node(node).origin;
  if (is_object(target.type) && (!target.type.is_tensor() || source.shape() == target.shape())) {
    kernel.body = LibraryCall{"identity", {from}, {to}, {}, {}};
  } else {
    LoopNest nest;
    std::vector<Dim> index;
    for (size_t k = 0; k < target.shape().size(); ++k) {
      const Dim extent = target.shape()[k];
      if (extent.is(1)) {
        index.push_back(0);
        continue;
      }
      const Dim d = program_.dims->new_loop("i" + std::to_string(k), extent);
      nest.loops.push_back({single_symbol(d), extent});
      index.push_back(d);
    }
    std::vector<Dim> from_index = source.shape() == target.shape()
                                      ? index
                                      : unflatten_index(flatten_index(index, target.shape()), source.shape());
    StageOutput out;
    out.buffer = to;
    out.index = index;
    from_index = with_named_entries(program_, from, std::move(from_index));
    out.value = program_.scalars.load(from, source.element(), std::move(from_index));
    nest.stages.emplace_back();
    nest.stages[0].outputs.push_back(std::move(out));
    kernel.body = std::move(nest);
  }
  KernelId id;
  emit(std::move(kernel), &id, "copy_" + target.name);
  return to;
}

Status ProgramBuilder::build_node(NodeId id) {
  const Node &node = graph_.node(id);
  const OpDef *op = find_op(node.op);
  if (!op)
    return diagnostics_.error(ErrorKind::kUnsupported, "operator " + node.op + " is not supported",
                              graph_.describe(id));
  bool known = op->pure && node.regions.empty();
  for (ValueId v : node.outputs)
    if (v.valid() && !graph_.value(v).elements) known = false;
  if (known) return {};
  check_branch_constraints(id);
  NodeContext context(*this, id);
  OPTC_TRY(op->build(context));
  if (context.failure()) return *context.failure();
  for (; checked_ < program_.kernels.size(); ++checked_)
    if (const LoopNest *nest = program_.kernels[checked_].nest(); nest && !addressable(program_, *nest))
      return diagnostics_.error(ErrorKind::kUnsupported, "an index is too large, or an expression of too many parts",
                                graph_.describe(id), "fix symbolic dimensions with --dim");
  return {};
}

Result<std::pair<std::vector<KernelId>, std::vector<BufferId>>> ProgramBuilder::body(
    RegionId region, const std::vector<BufferId> &inputs) {
  std::vector<KernelId> kernels;
  std::vector<KernelId> *outside = sequence_;
  sequence_ = &kernels;
  scopes_.emplace_back();
  const Region &r = graph_.region(region);
  for (size_t i = 0; i < r.inputs.size() && i < inputs.size(); ++i) bind(r.inputs[i], inputs[i]);
  for (ValueId v : r.inputs) note_sizes(graph_.value(v).type);
  check_lost_constraints(region);
  Status status = build_nodes(graph_.nodes(region));
  check_lost_constraints(region);
  std::vector<BufferId> results;
  for (size_t i = 0; status && i < r.outputs.size(); ++i) {
    auto buffer = buffer_of(r.outputs[i]);
    if (buffer) {
      results.push_back(*buffer);
    } else {
      status = buffer.failure();
    }
  }
  for (ValueId v : scopes_.back()) buffers_.erase(v.index);
  scopes_.pop_back();
  sequence_ = outside;
  OPTC_TRY(status);
  return std::make_pair(std::move(kernels), std::move(results));
}

Status ProgramBuilder::add_outputs(const std::vector<ValueId> &outputs) {
  for (ValueId v : outputs) {
    OPTC_ASSIGN(BufferId buffer, buffer_of(v));
    bool taken = program_.buffer(buffer).kind != BufferKind::kOutput;
    for (BufferId other : program_.outputs) taken |= other == buffer;
    if (taken) {  // an input, a constant, or a value that is given twice
      Buffer target;
      target.name = graph_.value(v).name;
      target.kind = BufferKind::kOutput;
      target.type = program_.buffer(buffer).type;
      buffer = copy({}, buffer, program_.add_buffer(std::move(target)));
    }
    program_.outputs.push_back(buffer);
    program_.output_names.push_back(graph_.value(v).name);
  }
  return {};
}

// The innermost branch of an If in which a region lies; invalid: in none.
RegionId ProgramBuilder::branch_of(RegionId region) const {
  for (; graph_.region(region).owner.valid(); region = graph_.node(graph_.region(region).owner).region)
    if (graph_.node(graph_.region(region).owner).op == "If") return region;
  return {};
}

// What a branch asks for holds only where it is taken.
Status ProgramBuilder::collect_constraints() {
  OPTC_ASSIGN(std::vector<StatedCondition> stated, stated_conditions(graph_, diagnostics_));
  ConditionSet known;
  std::unordered_map<uint32_t, ConditionSet> known_of_branch;
  const auto always = [&](DimConstraint &c) {
    if (known.add(c)) program_.constraints.push_back(std::move(c));
  };
  for (StatedCondition &s : stated) {
    const RegionId branch = branch_of(graph_.node(s.node).region);
    if (branch.valid()) {
      known_of_branch[branch.index].add(s.constraint);
      branch_constraints_[s.node.index].push_back(std::move(s.constraint));
    } else {
      always(s.constraint);
    }
  }
  for (Condition c : graph_.conditions()) {
    const RegionId branch = branch_of(c.region);
    if (!branch.valid())
      always(c.constraint);
    else if (known_of_branch[branch.index].add(c.constraint))
      lost_constraints_[branch.index].push_back(std::move(c.constraint));
  }
  for (auto &[node, constraints] : branch_constraints_)
    std::erase_if(constraints, [&](const DimConstraint &c) { return known.contains(c); });
  return {};
}

void ProgramBuilder::note_sizes(const Type &type) {
  std::vector<const DimSymbol *> symbols;
  if (type.has_shape())
    for (Dim d : *type.shape) collect_symbols(d, symbols);
  sizes_.insert(symbols.begin(), symbols.end());
}

// What removed nodes of a branch asked for, as soon as its sizes are known. A size that nothing finds any more says
// nothing about what is left.
void ProgramBuilder::check_lost_constraints(RegionId region) {
  const auto found = lost_constraints_.find(region.index);
  if (found == lost_constraints_.end()) return;
  const auto known = [&](Dim d) {
    std::vector<const DimSymbol *> symbols;
    collect_symbols(d, symbols);
    return std::all_of(symbols.begin(), symbols.end(),
                       [&](const DimSymbol *s) { return s->kind == SymbolKind::kModel || sizes_.count(s); });
  };
  std::vector<DimConstraint> later;
  for (DimConstraint &c : found->second) {
    if (known(c.left) && known(c.right))
      check_constraint(c, graph_.region(region).owner);
    else
      later.push_back(std::move(c));
  }
  found->second = std::move(later);
}

void ProgramBuilder::check_branch_constraints(NodeId id) {
  const auto found = branch_constraints_.find(id.index);
  if (found == branch_constraints_.end()) return;
  for (const DimConstraint &c : found->second) check_constraint(c, id);
}

// A condition as a call that compares when the branch is taken.
void ProgramBuilder::check_constraint(const DimConstraint &c, NodeId id) {
  Buffer pair;
  pair.name = buffer_name("dims");
  pair.type = Type::tensor(ElementType::kInt64, Shape{Dim(2)});
  const BufferId dims = program_.add_buffer(std::move(pair));
  LoopNest nest;
  nest.stages.emplace_back();
  for (int64_t i = 0; i < 2; ++i) {
    StageOutput out;
    out.buffer = dims;
    out.index = {Dim(i)};
    out.value = program_.scalars.index(i == 0 ? c.left : c.right);
    nest.stages[0].outputs.push_back(std::move(out));
  }
  Kernel values, check;
  values.body = std::move(nest);
  values.note = "dims that must agree";
  check.body = LibraryCall{"check_dims", {dims}, {}, {{"or_one", int64_t{c.or_one}}, {"where", c.where}}, {}};
  check.note = "check of dims";
  values.origin = check.origin = graph_.node(id).origin;
  KernelId ignored;
  emit(std::move(values), &ignored, "dims");
  emit(std::move(check), &ignored, "check_dims");
}

}  // namespace

Result<Program> build_program(const Graph &graph, Diagnostics &diagnostics) {
  ProgramBuilder builder(graph, diagnostics);
  const Region &main = graph.region(Graph::main());
  for (size_t i = 0; i < main.inputs.size(); ++i)
    OPTC_TRY(builder.add_input(main.inputs[i], i < graph.defaults().size() ? graph.defaults()[i] : Constant()));
  builder.declare_outputs(main.outputs);
  OPTC_TRY(builder.collect_constraints());
  OPTC_TRY(builder.build_nodes(graph.nodes(Graph::main())));
  OPTC_TRY(builder.add_outputs(main.outputs));
  return builder.take();
}

Result<Program> build_region(const Graph &graph, std::span<const NodeId> nodes, std::span<const ValueId> outputs,
                             Diagnostics &diagnostics) {
  ProgramBuilder builder(graph, diagnostics);
  std::unordered_set<uint32_t> made, seen;
  std::vector<ValueId> free;
  auto use = [&](ValueId v) {
    if (v.valid() && !made.count(v.index) && !graph.is_constant(v) && seen.insert(v.index).second) free.push_back(v);
  };
  for (NodeId node : nodes) {
    for (ValueId v : graph.node(node).inputs) use(v);
    for (const auto &region : graph.node(node).regions)
      for (ValueId v : graph.captures(region.second)) use(v);
    for (ValueId v : graph.node(node).outputs)
      if (v.valid()) made.insert(v.index);
  }
  for (ValueId v : free) OPTC_TRY(builder.add_input(v, {}));
  const std::vector<ValueId> results(outputs.begin(), outputs.end());
  builder.declare_outputs(results);
  OPTC_TRY(builder.build_nodes(std::vector<NodeId>(nodes.begin(), nodes.end())));
  OPTC_TRY(builder.add_outputs(results));
  return builder.take();
}

}  // namespace optc
