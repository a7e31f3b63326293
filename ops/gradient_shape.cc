// Derivatives of operators that move elements.

#include "ops/gradient.h"

namespace optc {
namespace {

Status reshaped(Derivative &d) {
  return d.give(0, d.b.op("Reshape", {d.d(), d.b.op("Shape", {d.in(0)})}, {{"allowzero", int64_t{1}}}));
}
Status repeated(Derivative &d) { return d.give(0, d.d()); }

Status transposed(Derivative &d) {
  const int64_t rank = d.b.rank(d.in(0));
  std::vector<int64_t> back(static_cast<size_t>(rank));
  const std::vector<int64_t> *perm = d.node.ints("perm");
  for (int64_t k = 0; k < rank; ++k)
    back[static_cast<size_t>(perm ? (*perm)[static_cast<size_t>(k)] : rank - 1 - k)] = k;
  return d.give(0, d.b.transpose(d.d(), std::move(back)));
}

int64_t axis_of(const Derivative &d, int64_t fallback) {
  const int64_t axis = d.node.int_or("axis", fallback);
  return axis < 0 ? axis + d.b.rank(d.in(0)) : axis;
}

Status concatenated(Derivative &d) {
  Body &b = d.b;
  const int64_t axis = axis_of(d, 0);
  if (d.node.inputs.size() == 1) return d.give(0, d.d());
  std::vector<ValueId> sizes;
  for (ValueId v : d.node.inputs) sizes.push_back(b.dim(v, axis));
  const std::vector<ValueId> parts = b.ops("Split", {d.d(), b.concat(sizes, 0)}, sizes.size(), {{"axis", axis}});
  for (size_t i = 0; i < parts.size(); ++i) OPTC_TRY(d.give(i, parts[i]));
  return {};
}

Status split(Derivative &d) {
  std::vector<ValueId> parts;
  for (size_t i = 0; i < d.node.outputs.size(); ++i) {
    if (!d.adjoints[i].valid() && !d.out(i).valid()) return d.unsupported("Split without one of its outputs");
    parts.push_back(d.adjoints[i].valid() ? d.adjoints[i] : zeros_like(d.b, d.out(i)));
  }
  return d.give(0, d.b.concat(std::move(parts), axis_of(d, 0)));
}

Status gathered(Derivative &d) {
  const int64_t axis = axis_of(d, 0);
  return d.give(0, scattered(d.b, d.d(), d.in(1), d.b.dim(d.in(0), axis), axis, d.b.rank(d.in(1))));
}

Status gathered_elements(Derivative &d) {
  Body::Attributes attributes{{"axis", axis_of(d, 0)}, {"reduction", std::string("add")}};
  return d.give(0, d.b.op("ScatterElements", {zeros_like(d.b, d.in(0)), d.in(1), d.d()}, std::move(attributes)));
}

Status gathered_nd(Derivative &d) {
  if (d.node.int_or("batch_dims", 0) != 0) return d.unsupported("GatherND with batch_dims");
  return d.give(0,
                d.b.op("ScatterND", {zeros_like(d.b, d.in(0)), d.in(1), d.d()}, {{"reduction", std::string("add")}}));
}

// A slice reads, along each axis, where a slice of 0, 1, 2, ... says.
Status sliced(Derivative &d) {
  Body &b = d.b;
  std::vector<int64_t> axes;
  if (d.in(3).valid()) {
    OPTC_ASSIGN(axes, constant_ints(d, 3));
  } else {
    const auto count = b.fixed(d.in(1), 0);
    if (!count) return d.unsupported("Slice along axes that only the run decides");
    for (int64_t k = 0; k < *count; ++k) axes.push_back(k);
  }
  ValueId adjoint = d.d();
  for (size_t k = 0; k < axes.size(); ++k) {
    const int64_t at = static_cast<int64_t>(k), axis = axes[k] < 0 ? axes[k] + b.rank(d.in(0)) : axes[k];
    const ValueId size = b.dim(d.in(0), axis);
    std::vector<ValueId> inputs{b.iota(size, ElementType::kInt64), b.slice(d.in(1), 0, at, at + 1),
                                b.slice(d.in(2), 0, at, at + 1), b.ints({0})};
    for (size_t i = 1; i < 3; ++i) inputs[i] = b.cast(inputs[i], ElementType::kInt64);
    if (d.in(4).valid()) inputs.push_back(b.cast(b.slice(d.in(4), 0, at, at + 1), ElementType::kInt64));
    adjoint = scattered(b, adjoint, b.op("Slice", std::move(inputs)), size, axis, 1);
  }
  return d.give(0, adjoint);
}

Status padded(Derivative &d) {
  Body &b = d.b;
  if (d.wants(2)) return d.unsupported("Pad by its value");
  if (d.node.string_or("mode", "constant") != "constant") return d.unsupported("Pad of another mode than constant");
  if (d.in(3).valid()) return d.unsupported("Pad along some axes");
  OPTC_ASSIGN(const std::vector<int64_t> pads, constant_ints(d, 1));
  const int64_t rank = b.rank(d.in(0));
  std::vector<int64_t> begin(pads.begin(), pads.begin() + rank), axes;
  for (int64_t k = 0; k < rank; ++k) axes.push_back(k);
  for (int64_t p : pads)
    if (p < 0) return d.unsupported("Pad that cuts off");
  const ValueId first = b.ints(std::move(begin));
  return d.give(0, b.op("Slice", {d.d(), first, b.add(first, b.op("Shape", {d.in(0)})), b.ints(std::move(axes))}));
}

// [r1, d1, r2, d2, ...], summed over the repeats.
Status tiled(Derivative &d) {
  Body &b = d.b;
  std::vector<ValueId> sizes;
  std::vector<int64_t> repeats;
  const int64_t rank = b.rank(d.in(0));
  for (int64_t k = 0; k < rank; ++k) {
    sizes.push_back(b.slice(d.in(1), 0, k, k + 1));
    sizes.push_back(b.dim(d.in(0), k));
    repeats.push_back(2 * k);
  }
  if (rank == 0) return d.give(0, d.d());
  return d.give(0, sum_over(b, b.op("Reshape", {d.d(), b.concat(sizes, 0)}), std::move(repeats), false));
}

Status cumulative_sum(Derivative &d) {
  Body::Attributes attributes = {{"exclusive", d.node.int_or("exclusive", 0)},
                                 {"reverse", int64_t{d.node.int_or("reverse", 0) == 0}}};
  return d.give(0, d.b.op("CumSum", {d.d(), d.in(1)}, std::move(attributes)));
}

Status triangle(Derivative &d) {
  std::vector<ValueId> inputs{d.d()};
  if (d.in(1).valid()) inputs.push_back(d.in(1));
  return d.give(0, d.b.op("Trilu", std::move(inputs), {{"upper", d.node.int_or("upper", 1)}}));
}

Status depth_to_space(Derivative &d) {
  const int64_t block = d.node.int_or("blocksize", 1);
  if (d.node.string_or("mode", "DCR") == "DCR")
    return d.give(0, d.b.op("SpaceToDepth", {d.d()}, {{"blocksize", block}}));
  Body &b = d.b;
  const ValueId x = d.in(0);
  const ValueId sizes =
      b.concat({b.dim(d.d(), 0), b.dim(d.d(), 1), b.dim(x, 2), b.ints({block}), b.dim(x, 3), b.ints({block})}, 0);
  const ValueId apart = b.transpose(b.op("Reshape", {d.d(), sizes}), {0, 1, 3, 5, 2, 4});
  return d.give(0, b.op("Reshape", {apart, b.op("Shape", {x})}));
}
Status space_to_depth(Derivative &d) {
  return d.give(
      0, d.b.op("DepthToSpace", {d.d()}, {{"blocksize", d.node.int_or("blocksize", 1)}, {"mode", std::string("DCR")}}));
}

// Where updates are written the data does not count; where they are added both do.
Status scattered_rows(Derivative &d) {
  Body &b = d.b;
  const bool elements = d.node.op == "ScatterElements";
  const std::string_view reduction = d.node.string_or("reduction", "none");
  if (reduction != "none" && reduction != "add")
    return d.unsupported(d.node.op + " with reduction '" + std::string(reduction) + "'");
  const Body::Attributes attributes =
      elements ? Body::Attributes{{"axis", d.node.int_or("axis", 0)}} : Body::Attributes{};
  if (d.wants(0)) {
    const ValueId kept =
        reduction == "add" ? d.d() : b.op(d.node.op, {d.d(), d.in(1), zeros_like(b, d.in(2))}, attributes);
    OPTC_TRY(d.give(0, kept));
  }
  if (!d.wants(2)) return {};
  return d.give(2, b.op(elements ? "GatherElements" : "GatherND", {d.d(), d.in(1)}, attributes));
}

constexpr DerivativeRow kRows[] = {
    {"Concat", concatenated},
    {"CumSum", cumulative_sum},
    {"DepthToSpace", depth_to_space},
    {"Expand", repeated},
    {"Flatten", reshaped},
    {"Gather", gathered},
    {"GatherElements", gathered_elements},
    {"GatherND", gathered_nd},
    {"Pad", padded},
    {"Reshape", reshaped},
    {"ScatterElements", scattered_rows},
    {"ScatterND", scattered_rows},
    {"Slice", sliced},
    {"SpaceToDepth", space_to_depth},
    {"Split", split},
    {"Squeeze", reshaped},
    {"Tile", tiled},
    {"Transpose", transposed},
    {"Trilu", triangle},
    {"Unsqueeze", reshaped},
};

}  // namespace

std::span<const DerivativeRow> shape_derivatives() { return kRows; }

}  // namespace optc
