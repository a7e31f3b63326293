#include "ir/program/program.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ir/dim/saturation.h"
#include "ir/program/uses.h"

namespace optc {

std::string_view to_string(Combine combine) {
  switch (combine) {
    case Combine::kStore:
      return "store";
    case Combine::kSum:
      return "sum";
    case Combine::kProduct:
      return "product";
    case Combine::kMax:
      return "max";
    case Combine::kMin:
      return "min";
    case Combine::kAnd:
      return "and";
    case Combine::kOr:
      return "or";
  }
  return "store";
}

BufferId Program::add_buffer(Buffer buffer) {
  buffers.push_back(std::move(buffer));
  return BufferId(buffers.size() - 1);
}

KernelId Program::add_kernel(Kernel kernel) {
  kernels.push_back(std::move(kernel));
  return KernelId(kernels.size() - 1);
}

namespace {

// Visits every scalar reachable from a root, through the scalars behind kScalar symbols of indices.
class Walker {
 public:
  explicit Walker(const Program &program) : program_(program) {}
  void scalar(ScalarId id) {
    if (!id.valid() || !seen_.insert(id.index).second) return;
    const Scalar &s = program_.scalars.at(id);
    for (ScalarId a : s.args) scalar(a);
    if (s.op == ScalarOp::kIndex) dim(s.index_value);
    for (Dim d : s.index) dim(d);
    if (s.op == ScalarOp::kLoad) loads.push_back(id);
  }
  void dim(Dim d) {
    if (d.is_constant()) return;
    std::vector<const DimSymbol *> symbols;
    collect_symbols(d, symbols);
    for (const DimSymbol *symbol : symbols)
      if (symbol->kind == SymbolKind::kScalar) scalar(ScalarId(size_t{symbol->scalar}));
  }
  std::vector<ScalarId> loads;

 private:
  const Program &program_;
  std::unordered_set<uint32_t> seen_;
};

// Buffers in order of first appearance, each once.
class BufferSet {
 public:
  explicit BufferSet(std::vector<BufferId> &list) : list_(list) {
    for (BufferId b : list) seen_.insert(b.index);
  }
  void add(BufferId id) {
    if (id.valid() && seen_.insert(id.index).second) list_.push_back(id);
  }

 private:
  std::vector<BufferId> &list_;
  std::unordered_set<uint32_t> seen_;
};

void nest_reads(const Program &program, const LoopNest &nest, BufferSet &out) {
  Walker walker(program);
  for (const Stage &stage : nest.stages)
    for (const StageOutput &o : stage.outputs) {
      walker.scalar(o.value);
      walker.scalar(o.initial);
      walker.scalar(o.condition);
      for (Dim d : o.index) walker.dim(d);
      if (o.buffer.valid() && o.combine != Combine::kStore) out.add(o.buffer);
    }
  for (ScalarId load : walker.loads) out.add(program.scalars.at(load).buffer);
}

void control_buffers(const ControlFlow &c, BufferSet &reads_out, BufferSet &writes_out) {
  reads_out.add(c.condition);
  reads_out.add(c.trip_count);
  for (BufferId b : c.initial) reads_out.add(b);
  for (const auto &list : c.results)
    for (BufferId b : list) reads_out.add(b);
  for (BufferId b : c.outputs) writes_out.add(b);
  writes_out.add(c.iteration);
  writes_out.add(c.body_condition);
  for (BufferId b : c.body_inputs) writes_out.add(b);
}

void collect(const Program &program, const Kernel &kernel, bool bodies, BufferSet &in, BufferSet &out) {
  if (const LoopNest *nest = kernel.nest()) {
    nest_reads(program, *nest, in);
    for (const Stage &stage : nest->stages)
      for (const StageOutput &o : stage.outputs) out.add(o.buffer);
  } else if (const LibraryCall *call = kernel.library()) {
    for (BufferId b : call->inputs) in.add(b);
    for (BufferId b : call->outputs) out.add(b);
  } else if (const ControlFlow *control = kernel.control()) {
    control_buffers(*control, in, out);
    if (bodies)
      for (const auto &body : control->bodies)
        for (KernelId k : body) collect(program, program.kernel(k), true, in, out);
  }
  std::vector<BufferId> packed, scratch;
  collect_buffers(kernel.schedule, packed, scratch);
  for (BufferId b : packed) in.add(b);
  for (BufferId b : scratch) {
    in.add(b);
    out.add(b);
  }
}

std::pair<std::vector<BufferId>, std::vector<BufferId>> buffers_of(const Program &program, const Kernel &kernel,
                                                                   bool bodies) {
  std::pair<std::vector<BufferId>, std::vector<BufferId>> result;
  BufferSet in(result.first), out(result.second);
  collect(program, kernel, bodies, in, out);
  return result;
}

class Substituter {
 public:
  Substituter(Program &program, const ScalarSubstitution &substitution) : program_(program), how_(substitution) {}

  ScalarId scalar(ScalarId id) {
    if (!id.valid()) return id;
    if (auto it = done_.find(id.index); it != done_.end()) return it->second;
    const Scalar s = program_.scalars.at(id);  // a copy: the pool grows below
    ScalarPool &pool = program_.scalars;
    ScalarId result;
    switch (s.op) {
      case ScalarOp::kConstant:
        result = id;
        break;
      case ScalarOp::kIndex:
        result = pool.index(dim(s.index_value));
        break;
      case ScalarOp::kLoad: {
        Scalar load = s;
        for (Dim &d : load.index) d = dim(d);
        if (how_.on_load) result = how_.on_load(load);
        if (!result.valid()) result = pool.load(load.buffer, load.type, std::move(load.index));
        break;
      }
      case ScalarOp::kLocal: {
        Scalar local = s;
        for (Dim &d : local.index) d = dim(d);
        if (how_.on_local) result = how_.on_local(local);
        if (!result.valid()) result = pool.local(local.local, local.type, std::move(local.index));
        break;
      }
      case ScalarOp::kCast:
        result = pool.cast(scalar(s.args[0]), s.type, s.flag == 0);
        break;
      case ScalarOp::kBitcast:
        result = pool.bitcast(scalar(s.args[0]), s.type);
        break;
      case ScalarOp::kIsInf:
        result = pool.is_inf(scalar(s.args[0]), s.flag != 2, s.flag != 1);
        break;
      case ScalarOp::kSelect: {
        const ScalarId c = scalar(s.args[0]), a = scalar(s.args[1]), b = scalar(s.args[2]);
        result = pool.select(c, a, b);
        break;
      }
      case ScalarOp::kFma: {
        const ScalarId a = scalar(s.args[0]), b = scalar(s.args[1]), c = scalar(s.args[2]);
        result = pool.fma(a, b, c);
        break;
      }
      default: {
        const ScalarId a = scalar(s.args[0]);
        if (s.flag == kRounded) {
          Scalar rounded = s;
          rounded.args[0] = a;
          if (arity(s.op) > 1) rounded.args[1] = scalar(s.args[1]);
          result = pool.add_node(std::move(rounded));
          break;
        }
        result = arity(s.op) == 1 ? pool.unary(s.op, a) : pool.binary(s.op, a, scalar(s.args[1]));
        break;
      }
    }
    done_.emplace(id.index, result);
    return result;
  }

  Dim dim(Dim d) {
    if (d.is_constant()) return d;
    return substitute(d, [&](const DimSymbol &symbol) -> std::optional<Dim> {
      if (symbol.kind == SymbolKind::kScalar) {
        const Dim extent = symbol.extent;
        const ScalarId old(size_t{symbol.scalar});
        const ScalarId now = scalar(old);
        if (now == old) return std::nullopt;
        // An index that became a plain expression needs no symbol.
        const Scalar &s = program_.scalars.at(now);
        if (s.op == ScalarOp::kConstant && !is_float(s.type)) return Dim(static_cast<int64_t>(s.bits));
        const bool named = program_.scalars.at(old).op == ScalarOp::kIndex;  // with_named_entries
        if (s.op == ScalarOp::kIndex && !(named && dim_size(s.index_value) > kLargeEntry)) return s.index_value;
        return program_.dims->scalar_symbol(now.index, extent);
      }
      return how_.symbols ? how_.symbols(symbol) : std::nullopt;
    });
  }

 private:
  Program &program_;
  const ScalarSubstitution &how_;
  std::unordered_map<uint32_t, ScalarId> done_;
};

}  // namespace

std::vector<BufferId> reads(const Program &program, const Kernel &kernel) {
  return buffers_of(program, kernel, true).first;
}

std::vector<BufferId> writes(const Program &program, const Kernel &kernel) {
  return buffers_of(program, kernel, true).second;
}

void own_operands(const Program &program, const Kernel &kernel, std::vector<BufferId> &in, std::vector<BufferId> &out) {
  BufferSet read(in), written(out);
  collect(program, kernel, false, read, written);
}

void collect_loads(const Program &program, ScalarId root, std::vector<ScalarId> &out) {
  Walker walker(program);
  walker.scalar(root);
  if (out.empty()) {  // the walker finds each once
    out = std::move(walker.loads);
    return;
  }
  std::unordered_set<uint32_t> known;
  for (ScalarId id : out) known.insert(id.index);
  for (ScalarId id : walker.loads)
    if (known.insert(id.index).second) out.push_back(id);
}

ScalarId substitute(Program &program, ScalarId root, const ScalarSubstitution &substitution) {
  return Substituter(program, substitution).scalar(root);
}

Dim substitute_index(Program &program, Dim index, const ScalarSubstitution &substitution) {
  return Substituter(program, substitution).dim(index);
}

std::vector<Dim> storage_strides(const Buffer &buffer) {
  const Shape &shape = buffer.shape();
  std::vector<Dim> strides(shape.size());
  Dim stride = 1;
  for (size_t k = shape.size(); k-- > 0;) {
    const size_t dim = buffer.order.empty() ? k : static_cast<size_t>(buffer.order[k]);
    strides[dim] = stride;
    stride = stride * (buffer.padded.empty() ? shape[dim] : buffer.padded[k]);
  }
  return strides;
}

Dim storage_count(const Buffer &buffer) {
  if (buffer.padded.empty()) return element_count(buffer.shape());
  Dim count = 1;
  for (const Dim &d : buffer.padded) count = count * d;
  return count;
}

Dim linear_offset(const Buffer &buffer, const std::vector<Dim> &index) {
  const std::vector<Dim> strides = storage_strides(buffer);
  Dim offset = 0;
  for (size_t i = 0; i < index.size(); ++i) offset = offset + index[i] * strides[i];
  return offset;
}

}  // namespace optc
