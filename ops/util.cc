#include "ops/util.h"
#include "ops/conditions.h"

namespace optc {

std::optional<std::vector<int64_t>> constant_ints(const Constant *constant) {
  if (!constant || !constant->valid()) return std::nullopt;
  std::vector<int64_t> values;
  values.reserve(static_cast<size_t>(constant->count()));
  for (int64_t i = 0; i < constant->count(); ++i) values.push_back(constant->as_int64(i));
  return values;
}

std::optional<std::vector<int64_t>> static_ints(const std::vector<Dim> *elements) {
  if (!elements) return std::nullopt;
  std::vector<int64_t> values;
  for (Dim d : *elements) {
    if (!d.is_constant()) return std::nullopt;
    values.push_back(d.value());
  }
  return values;
}

std::vector<int64_t> ints_or(const Node &node, std::string_view name, size_t count, int64_t fallback) {
  if (const auto *values = node.ints(name); values && !values->empty()) return *values;
  return std::vector<int64_t>(count, fallback);
}

Dim product(const std::vector<Dim> &dims, size_t begin, size_t end) {
  Dim result = 1;
  for (size_t i = begin; i < end; ++i) result = result * dims[i];
  return result;
}

bool is_static(const Shape &shape) {
  for (Dim d : shape)
    if (!d.is_constant()) return false;
  return true;
}

Result<int64_t> input_length(InferContext &context, size_t i) {
  OPTC_TRY(context.require_shape(i));
  const Shape &shape = context.shape(i);
  if (shape.empty()) return int64_t{1};
  if (shape.size() != 1)
    return context.invalid("input " + std::to_string(i) + " must be a vector, but has rank " +
                           std::to_string(shape.size()));
  if (!shape[0].is_constant())
    return context.unsupported(
        "the rank of the result depends on the length of input " + std::to_string(i) + ", which only the run decides",
        "give that input a fixed length");
  if (shape[0].value() > kMaxRank)
    return context.unsupported("input " + std::to_string(i) + " has " + shape[0].str() +
                               " elements, one for each dimension; at most " + std::to_string(kMaxRank) +
                               " are supported");
  return shape[0].value();
}

Status has_length(InferContext &context, size_t i, std::string_view name, int64_t length, std::string_view what) {
  const std::string list(name);
  OPTC_TRY(context.require_shape(i));
  const Shape shape = context.shape(i);
  if (shape.size() > 1) return context.invalid(list + " must be a vector");
  const Dim entries = shape.empty() ? Dim(1) : shape[0];
  if (entries.is_constant() && !entries.is(length))
    return context.invalid(list + " has " + entries.str() + " entries for " + std::to_string(length) + " " +
                           std::string(what));
  OPTC_ASSIGN([[maybe_unused]] const Dim same, context.same(entries, length, "the length of " + list));
  return {};
}

Status build_elements(BuildContext &context) {
  const auto &elements = context.graph().value(context.node().output(0)).elements;
  if (!elements) return context.unsupported("the elements of the result are not known at compile time");
  NestBuilder nest(context, "elements");
  const bool scalar = context.output_shape(0).empty();
  for (size_t k = 0; k < elements->size(); ++k) {
    std::vector<Dim> index;
    if (!scalar) index.push_back(Dim(static_cast<int64_t>(k)));
    nest.store(context.output(0), index, nest.index((*elements)[k]));
  }
  nest.finish();
  return {};
}

Status copy_into(BuildContext &context, std::string_view note, BufferId in, BufferId out,
                 const std::function<std::vector<Dim>(const std::vector<Dim> &)> &f) {
  NestBuilder nest(context, note);
  Shape shape = context.program().buffer(in).shape();
  std::vector<Dim> index = nest.outer(shape);
  nest.store(out, f(index), nest.load_raw(in, index));
  nest.finish();
  return {};
}

Status fill(BuildContext &context, BufferId out, double value) {
  NestBuilder nest(context, "fill");
  Shape shape = context.program().buffer(out).shape();
  std::vector<Dim> index = nest.outer(shape);
  nest.store(out, index, nest.constant(compute_type(context.program().buffer(out).element()), value));
  nest.finish();
  return {};
}

Status build_view(BuildContext &context) {
  context.alias(0, context.input(0));
  return {};
}

Expr less(Expr a, Expr b) { return apply(ScalarOp::kLt, a, b); }
Expr less_equal(Expr a, Expr b) { return apply(ScalarOp::kLe, a, b); }
Expr equal(Expr a, Expr b) { return apply(ScalarOp::kEq, a, b); }
Expr both(Expr a, Expr b) {
  if (!a.valid()) return b;
  if (!b.valid()) return a;
  return apply(ScalarOp::kAnd, a, b);
}

Dim wrapped_index(NestBuilder &nest, Expr value, Dim extent) {
  Expr wide = cast(value, ElementType::kInt64);
  Expr wrapped = select(less(wide, wide.constant(0)), wide + nest.index(extent), wide);
  return nest.as_index(wrapped, extent);
}

Expr in_range(NestBuilder &nest, Dim index, Dim extent) {
  Expr inside;
  if (!proved_at_least(index, 0)) inside = less_equal(nest.index(0), nest.index(index));
  if (!proved_less(index, extent)) inside = both(inside, less(nest.index(index), nest.index(extent)));
  return inside;
}

Dim clamp(Dim value, Dim low, Dim high) { return max(min(value, high), low); }

bool is_number(ElementType type) { return is_float(type) || is_integer(type) || type == ElementType::kBool; }

bool is_run_time_size(Dim dim) {
  const DimSymbol *symbol = single_symbol(dim);
  return symbol && symbol->kind == SymbolKind::kData;
}

std::string size_name(std::string_view value, size_t axis) { return std::string(value) + "." + std::to_string(axis); }

bool is_size_of(const DimSymbol &size, std::string_view value, size_t axis) {
  const std::string name = size_name(value, axis);
  if (size.kind != SymbolKind::kData || size.name.compare(0, name.size(), name) != 0) return false;
  const std::string_view rest = std::string_view(size.name).substr(name.size());  // DimTable makes names unique
  return rest.empty() ||
         (rest.size() > 1 && rest[0] == '_' && rest.find_first_not_of("0123456789", 1) == std::string_view::npos);
}

std::vector<const DimSymbol *> output_symbols(BuildContext &context, size_t output) {
  std::vector<const DimSymbol *> symbols;
  for (Dim d : context.output_shape(output)) symbols.push_back(is_run_time_size(d) ? single_symbol(d) : nullptr);
  return symbols;
}

std::vector<const DimSymbol *> own_symbols(BuildContext &context, size_t output) {
  std::vector<const DimSymbol *> symbols = output_symbols(context, output);
  const std::string &name = context.graph().value(context.node().output(output)).name;
  for (size_t k = 0; k < symbols.size(); ++k)
    if (symbols[k] && !is_size_of(*symbols[k], name, k)) symbols[k] = nullptr;
  return symbols;
}

namespace {

// False: not even the number of entries is known.
bool append_entries(const Graph &graph, ValueId id, int depth, std::vector<std::optional<Dim>> &entries) {
  if (!id.valid()) return false;
  const Value &value = graph.value(id);
  const Constant *constant = graph.constant(id);
  if (const auto elements = value.elements ? value.elements : constant ? constant_elements(*constant) : nullptr) {
    entries.insert(entries.end(), elements->begin(), elements->end());
    return true;
  }
  if (value.kind == ValueKind::kNodeOutput && depth < 8) {
    const Node &node = graph.node(value.producer);
    if (node.op == "Concat") {
      for (ValueId part : node.inputs)
        if (!append_entries(graph, part, depth + 1, entries)) return false;
      return true;
    }
  }
  if (!value.type.has_shape() || value.type.rank() != 1 || !(*value.type.shape)[0].is_constant()) return false;
  const int64_t count = (*value.type.shape)[0].value();
  if (count > kMaxRank) return false;
  entries.insert(entries.end(), static_cast<size_t>(count), std::nullopt);
  return true;
}

}  // namespace

std::vector<std::optional<Dim>> known_entries(const Graph &graph, ValueId list, int64_t length) {
  std::vector<std::optional<Dim>> entries;
  if (!append_entries(graph, list, 0, entries) || static_cast<int64_t>(entries.size()) != length)
    entries.assign(static_cast<size_t>(length), std::nullopt);
  return entries;
}

Dim item_size(DimTable &dims) {
  const std::string name(kItemSizeName);
  return dims.find(name) ? dims.model_symbol(name) : dims.new_symbol(SymbolKind::kData, name);
}

Type merge_items(DimTable &dims, const Type &a, const Type &b) {
  if (a == b || a.kind != b.kind) return a;
  if (a.is_tensor()) {
    if (!a.shape || !b.shape || a.rank() != b.rank()) return Type::tensor(a.element, std::nullopt);
    Shape shape = *a.shape;
    for (size_t k = 0; k < shape.size(); ++k) {
      if (shape[k] == (*b.shape)[k]) continue;
      shape[k] = item_size(dims);
    }
    return Type::tensor(a.element, std::move(shape));
  }
  if (!a.inner || !b.inner) return a.inner ? a : b;
  Type inner = merge_items(dims, *a.inner, *b.inner);
  if (a.kind == Type::Kind::kSequence) return Type::sequence(std::move(inner));
  if (a.kind == Type::Kind::kOptional) return Type::optional(std::move(inner));
  return a;
}

std::optional<bool> known_condition(const Graph &graph, ValueId condition) {
  if (!condition.valid()) return std::nullopt;
  const auto &elements = graph.value(condition).elements;
  if (elements && elements->size() == 1 && (*elements)[0].is_constant()) return !(*elements)[0].is(0);
  const Constant *constant = graph.constant(condition);
  if (constant && constant->count() == 1) return constant->as_int64(0) != 0;
  return std::nullopt;
}

bool is_dead(const Graph &graph, RegionId region) {
  for (NodeId owner = graph.region(region).owner; owner.valid(); owner = graph.region(region).owner) {
    const Node &node = graph.node(owner);
    if (node.op == "If")
      if (const auto taken = known_condition(graph, node.input(0)))
        if (!(region == node.region_named(*taken ? "then_branch" : "else_branch"))) return true;
    region = node.region;
  }
  return false;
}

bool is_empty_sequence(const Graph &graph, ValueId value) {
  if (!value.valid()) return false;
  const Value &v = graph.value(value);
  if (v.type.kind != Type::Kind::kSequence || !v.type.inner || !v.type.inner->is_tensor() || v.type.inner->shape)
    return false;
  if (v.kind == ValueKind::kRegionInput && graph.region(v.region).owner.valid()) {
    const Node &loop = graph.node(graph.region(v.region).owner);
    return loop.op == "Loop" && v.index >= 2 && is_empty_sequence(graph, loop.input(v.index));
  }
  if (v.kind != ValueKind::kNodeOutput) return false;
  const Node &node = graph.node(v.producer);
  if (node.op == "Identity") return is_empty_sequence(graph, node.input(0));
  return node.op == "SequenceEmpty";
}

Result<Window> resolve_window(const Node &node, const std::vector<Dim> &in, std::vector<Dim> kernel, WindowCount count,
                              std::string &error) {
  const size_t n = in.size();
  const auto fail = [&](std::string message) {
    error = std::move(message);
    return Failure{ErrorKind::kInvalid};
  };
  Window window;
  window.kernel = std::move(kernel);
  window.strides = ints_or(node, "strides", n, 1);
  window.dilations = ints_or(node, "dilations", n, 1);
  const std::vector<int64_t> pads = ints_or(node, "pads", 2 * n, 0);
  if (window.kernel.size() != n) return fail("kernel_shape must have one entry a spatial dimension");
  if (window.strides.size() != n)
    return fail("strides has " + std::to_string(window.strides.size()) + " entries, the input has " +
                std::to_string(n) + " spatial dims");
  if (window.dilations.size() != n) return fail("dilations must have one entry a spatial dimension");
  if (pads.size() != 2 * n) return fail("pads must have two entries a spatial dimension");
  std::string_view auto_pad = node.string_or("auto_pad", "NOTSET");
  for (size_t i = 0; i < n; ++i) {
    if (upper_bound(window.kernel[i]) <= 0 || window.strides[i] <= 0 || window.dilations[i] <= 0)
      return fail("kernel_shape, strides and dilations must be positive");
    const Dim extent = (window.kernel[i] - 1) * window.dilations[i] + 1;
    const int64_t stride = window.strides[i];
    Dim begin = pads[i], end = pads[n + i], out;
    if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
      out = ceil_div(in[i], stride);
      Dim total = max((out - 1) * stride + extent - in[i], 0);
      Dim half = floor_div(total, 2);
      begin = auto_pad == "SAME_UPPER" ? half : total - half;
      end = total - begin;
    } else {
      if (auto_pad == "VALID") begin = end = 0;
      if (auto_pad != "VALID" && auto_pad != "NOTSET" && !auto_pad.empty())
        return fail("auto_pad '" + std::string(auto_pad) + "' is not known");
      const bool ceil_mode = count == WindowCount::kCeil;
      Dim span = in[i] + begin + end - extent;
      const bool clips = count != WindowCount::kWhole && span.is_constant() && span.value() > -2 * stride;
      if (upper_bound(span) < 0 && !clips)
        return fail("a window of " + extent.str() + " does not fit into a padded input of " +
                    (in[i] + begin + end).str());
      out = (ceil_mode ? ceil_div(span, stride) : floor_div(span, stride)) + 1;
      window.clipped = window.clipped || ceil_mode;
      if (upper_bound(span) < 0) {
        out = span.value() > -stride ? 1 : 0;
        window.clipped = true;
      } else if (ceil_mode && !divisible_by(span, stride)) {
        // The last window must start inside the input or the begin padding: (out - 1) * stride < in + begin.
        out = min(out, floor_div(in[i] + begin - 1, stride) + 1);
      }
    }
    window.padded = window.padded || !begin.is(0) || !end.is(0);
    window.pads_begin.push_back(begin);
    window.pads_end.push_back(end);
    window.out.push_back(out);
  }
  return window;
}

}  // namespace optc
