// Operators that only move elements by an index map: Transpose, Concat, Split, Expand, Tile, DepthToSpace,
// SpaceToDepth, ReverseSequence, Trilu, CenterCropPad.

#include "ops/build.h"
#include "ops/conditions.h"
#include "ops/registry.h"
#include "ops/steps.h"
#include "ops/util.h"

namespace optc {
namespace {

using Dims = std::vector<Dim>;

// --- Transpose
// ------------------------------------------------------------------------------------------------------------------

std::vector<int64_t> permutation(const Node &node, size_t rank) {
  std::vector<int64_t> perm;
  if (const auto *given = node.ints("perm")) {
    perm = *given;
  } else {
    for (size_t i = 0; i < rank; ++i) perm.push_back(static_cast<int64_t>(rank - 1 - i));
  }
  for (int64_t &p : perm)
    if (p < 0) p += static_cast<int64_t>(rank);
  return perm;
}

Status infer_transpose(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  const Shape &in = c.shape(0);
  const std::vector<int64_t> perm = permutation(c.node(), in.size());
  std::vector<bool> seen(in.size(), false);
  if (perm.size() != in.size())
    return c.invalid("perm has " + std::to_string(perm.size()) + " entries for rank " + std::to_string(in.size()));
  Shape out;
  for (int64_t p : perm) {
    if (p < 0 || p >= static_cast<int64_t>(in.size()) || seen[static_cast<size_t>(p)])
      return c.invalid("perm is no permutation of the axes");
    seen[static_cast<size_t>(p)] = true;
    out.push_back(in[static_cast<size_t>(p)]);
  }
  const Dims *elements = c.elements(0);
  Dims moved;
  if (elements && is_static(in)) {  // row-major over the output
    for (size_t e = 0; e < elements->size(); ++e) {
      size_t rest = e, from = 0;
      std::vector<size_t> at(in.size());
      for (size_t k = out.size(); k-- > 0;) {
        at[static_cast<size_t>(perm[k])] = rest % static_cast<size_t>(out[k].value());
        rest /= static_cast<size_t>(out[k].value());
      }
      for (size_t k = 0; k < in.size(); ++k) from = from * static_cast<size_t>(in[k].value()) + at[k];
      moved.push_back((*elements)[from]);
    }
  }
  c.set_tensor(0, c.element(0), std::move(out));
  if (elements && moved.size() == elements->size()) c.set_elements(0, std::move(moved));
  return {};
}

Status build_transpose(BuildContext &c) {
  const std::vector<int64_t> perm = permutation(c.node(), c.shape(0).size());
  return c.index_map(c.input(0), c.output(0), [&](const Dims &i) {
    Dims index(i.size());
    for (size_t k = 0; k < i.size(); ++k) index[static_cast<size_t>(perm[k])] = i[k];
    return index;
  });
}

// --- Concat, Split
// --------------------------------------------------------------------------------------------------------------

Status infer_concat(InferContext &c) {
  if (c.input_count() == 0) return c.invalid("Concat needs an input");
  for (size_t i = 0; i < c.input_count(); ++i) OPTC_TRY(c.require_shape(i));
  OPTC_ASSIGN(int64_t axis, c.axis(c.node().int_or("axis", 0), c.rank(0)));
  Shape out = c.shape(0);
  Dims elements;
  bool known = c.elements(0) != nullptr && axis == 0;
  if (known) elements = *c.elements(0);
  for (size_t i = 1; i < c.input_count(); ++i) {
    const Shape in = c.shape(i);
    if (in.size() != out.size())
      return c.invalid("input " + std::to_string(i) + " has rank " + std::to_string(in.size()) + ", input 0 has rank " +
                       std::to_string(out.size()));
    if (c.element(i) != c.element(0)) return c.invalid("the inputs have different element types");
    for (size_t k = 0; k < in.size(); ++k) {
      if (static_cast<int64_t>(k) == axis) {
        out[k] = out[k] + in[k];
      } else {
        OPTC_ASSIGN(out[k], c.same(out[k], in[k], "dimension " + std::to_string(k) + " of the concatenated tensors"));
      }
    }
    if (known && c.elements(i)) {
      elements.insert(elements.end(), c.elements(i)->begin(), c.elements(i)->end());
    } else {
      known = false;
    }
  }
  c.set_tensor(0, c.element(0), std::move(out));
  if (known && elements.size() <= 64) c.set_elements(0, std::move(elements));
  return {};
}

Status build_concat(BuildContext &c) {
  int64_t axis = c.node().int_or("axis", 0);
  if (axis < 0) axis += static_cast<int64_t>(c.output_shape(0).size());
  const size_t at = static_cast<size_t>(axis);
  Dim offset = 0;
  for (size_t i = 0; i < c.node().inputs.size(); ++i) {
    OPTC_TRY(copy_into(c, "concat", c.input(i), c.output(0), [&](const Dims &index) {
      Dims to = index;
      to[at] = to[at] + offset;
      return to;
    }));
    offset = offset + c.shape(i)[at];
  }
  return {};
}

Status infer_split(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  const Shape in = c.shape(0);
  OPTC_ASSIGN(int64_t axis, c.axis(c.node().int_or("axis", 0), c.rank(0)));
  const size_t at = static_cast<size_t>(axis);
  const size_t n = c.output_count();
  const int64_t count = c.node().int_or("num_outputs", static_cast<int64_t>(n));
  if (count < 1 || static_cast<size_t>(count) != n)
    return c.invalid("num_outputs is " + std::to_string(count) + " for " + std::to_string(n) + " outputs");
  Dims parts;
  if (c.has_input(1)) {
    if (const Dims *given = c.elements(1)) {
      parts = *given;
      if (parts.size() != n)
        return c.invalid("split has " + std::to_string(parts.size()) + " entries for " + std::to_string(n) +
                         " outputs");
      Dim sum = 0;
      for (Dim d : parts) {
        if (d.is_constant() && d.value() < 0) return c.invalid("split has a negative entry");
        sum = sum + d;
      }
      OPTC_TRY(c.same(in[at], sum, "the split dimension"));
    } else {
      OPTC_TRY(has_length(c, 1, "split", static_cast<int64_t>(n), "outputs"));
      Dim sum = 0;
      bool all = true;  // of a part that is no output nothing is known
      for (size_t i = 0; i < n; ++i) {
        parts.push_back(c.run_time_size(i, at));
        all = all && c.node().output(i).valid();
        sum = sum + parts.back();
      }
      if (all)
        OPTC_TRY(c.same(in[at], sum, "the split dimension"));
      else
        OPTC_TRY(at_most(c, sum, in[at], "the sum of split"));
    }
  } else {
    Dim chunk = ceil_div(in[at], count);
    if (auto exact = exact_div(in[at], count)) chunk = *exact;
    for (size_t i = 0; i < n; ++i) {
      Dim left = in[at] - chunk * static_cast<int64_t>(i);
      parts.push_back(divisible_by(in[at], count) ? chunk : max(min(chunk, left), 0));
    }
  }
  const Dims *elements = in.size() == 1 ? c.elements(0) : nullptr;
  Dim offset = 0;
  for (size_t i = 0; i < n; ++i) {
    Shape out = in;
    out[at] = parts[i];
    c.set_tensor(i, c.element(0), std::move(out));
    if (elements && offset.is_constant() && parts[i].is_constant() &&
        offset.value() + parts[i].value() <= static_cast<int64_t>(elements->size()))
      c.set_elements(i,
                     Dims(elements->begin() + offset.value(), elements->begin() + offset.value() + parts[i].value()));
    offset = offset + parts[i];
  }
  return {};
}

Status build_split(BuildContext &c) {
  int64_t axis = c.node().int_or("axis", 0);
  if (axis < 0) axis += static_cast<int64_t>(c.shape(0).size());
  const size_t at = static_cast<size_t>(axis), n = c.node().outputs.size();
  if (c.has_input(1) && !c.elements(1)) {
    std::vector<const DimSymbol *> symbols;
    for (size_t i = 0; i < n; ++i) symbols.push_back(c.has_output(i) ? single_symbol(c.output_shape(i)[at]) : nullptr);
    c.library("value_sizes", {c.input(0), c.input(1)}, {}, {}, symbols);
  }
  const Dims *given = c.has_input(1) ? c.elements(1) : nullptr;
  const Dim whole = c.shape(0)[at];
  const Dim chunk = ceil_div(whole, static_cast<int64_t>(n));
  Dim offset = 0;
  for (size_t i = 0; i < n; ++i) {
    if (c.has_output(i)) {
      OPTC_TRY(c.index_map(c.input(0), c.output(i), [&](const Dims &index) {
        Dims from = index;
        from[at] = from[at] + offset;
        return from;
      }));
    } else if (c.has_input(1) && !given) {
      return c.unsupported("an unused output of a Split with run-time sizes");
    }
    if (given) {
      offset = offset + (*given)[i];
    } else if (c.has_input(1)) {
      offset = offset + c.output_shape(i)[at];
    } else {
      offset = divisible_by(whole, static_cast<int64_t>(n))
                   ? *exact_div(whole, static_cast<int64_t>(n)) * static_cast<int64_t>(i + 1)
                   : min(chunk * static_cast<int64_t>(i + 1), whole);
    }
  }
  return {};
}

Status split_to_input(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  return attribute_to_input(graph, node, "split", 1, diagnostics);
}
Status split_to_attribute(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  return input_to_attribute(graph, node, 1, "split", diagnostics);
}
Status num_outputs(Graph &graph, NodeId node, Diagnostics &) {
  if (!graph.node(node).input(1).valid())
    graph.set_attribute(node, "num_outputs", static_cast<int64_t>(graph.node(node).outputs.size()));
  return {};
}
// Below 18 the parts must be equal; uneven ones become explicit.
Status no_num_outputs(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  const Node &n = graph.node(node);
  graph.remove_attribute(node, "num_outputs");
  if (n.input(1).valid() || !n.input(0).valid() || !graph.value(n.input(0)).type.has_shape()) return {};
  const Shape &in = *graph.value(n.input(0)).type.shape;
  const int64_t axis = n.int_or("axis", 0), count = static_cast<int64_t>(n.outputs.size());
  const Dim d = in[static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(in.size()) : axis)];
  if (divisible_by(d, count)) return {};
  if (!d.is_constant()) return cannot_lower(graph, node, "an uneven Split of a symbolic dimension", 18, diagnostics);
  std::vector<int64_t> parts;
  const int64_t chunk = (d.value() + count - 1) / count;
  for (int64_t i = 0, left = d.value(); i < count; ++i, left -= parts.back())
    parts.push_back(left < chunk ? left : chunk);
  graph.set_input(node, 1, graph.add_constant(graph.unique_name(n.name + "_split"), Constant::int64s(parts)));
  return {};
}

// --- Expand, Tile
// ---------------------------------------------------------------------------------------------------------------

Status infer_expand(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  const Shape in = c.shape(0);
  const Dims *wanted = c.has_input(1) ? c.elements(1) : nullptr;
  if (!wanted) {
    OPTC_ASSIGN(int64_t length, input_length(c, 1));
    const size_t rank = in.size() > static_cast<size_t>(length) ? in.size() : static_cast<size_t>(length);
    auto entries = known_entries(c.graph(), c.node().input(1), length);
    entries.insert(entries.begin(), rank - entries.size(), Dim(1));
    Shape out;
    for (size_t k = 0; k < rank; ++k) {
      const Dim d = k < rank - in.size() ? Dim(1) : in[k - (rank - in.size())];
      if (!entries[k]) {
        out.push_back(lower_bound(d) > 1 ? d : c.run_time_size(0, k));  // of another number it cannot be
        continue;
      }
      if (entries[k]->is_constant() && entries[k]->value() < 0)
        return c.invalid("the shape has the entry " + entries[k]->str());
      OPTC_ASSIGN(const Shape both, c.broadcast({{d}, {*entries[k]}}));
      out.push_back(both[0]);
    }
    c.set_tensor(0, c.element(0), std::move(out));
    return {};
  }
  for (Dim d : *wanted)
    if (d.is_constant() && d.value() < 0) return c.invalid("the shape has the entry " + d.str());
  OPTC_ASSIGN(Shape out, c.broadcast({in, *wanted}));
  Dims known;
  if (const Dims *elements = c.elements(0); elements && out.size() <= 1) {
    const int64_t n = out.empty() ? 1 : out[0].is_constant() ? out[0].value() : -1;
    if (static_cast<int64_t>(elements->size()) == n) {
      known = *elements;
    } else if (elements->size() == 1 && n >= 0 && n <= 64) {
      known = Dims(static_cast<size_t>(n), (*elements)[0]);
    }
  }
  c.set_tensor(0, c.element(0), std::move(out));
  if (!known.empty()) c.set_elements(0, std::move(known));
  return {};
}

Status build_expand(BuildContext &c) {
  if (!c.elements(1)) c.library("expand_sizes", {c.input(0), c.input(1)}, {}, {}, own_symbols(c, 0));
  const Shape in = c.shape(0), out = c.output_shape(0);
  return c.index_map(c.input(0), c.output(0), [&](const Dims &i) { return broadcast_index(i, in, out); });
}

Status infer_tile(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  const Shape in = c.shape(0);
  const Dims *repeats = c.has_input(1) ? c.elements(1) : nullptr;
  Shape out;
  Dims tiled;
  if (!repeats) {
    const auto entries = known_entries(c.graph(), c.node().input(1), c.rank(0));
    for (size_t k = 0; k < in.size(); ++k) {
      if (entries[k] && entries[k]->is_constant() && entries[k]->value() < 0)
        return c.invalid("repeats has a negative entry");
      out.push_back(entries[k] ? in[k] * *entries[k] : c.run_time_size(0, k));
    }
  } else {
    if (repeats->size() != in.size())
      return c.invalid("repeats has " + std::to_string(repeats->size()) + " entries for rank " +
                       std::to_string(in.size()));
    for (size_t k = 0; k < in.size(); ++k) {
      if ((*repeats)[k].is_constant() && (*repeats)[k].value() < 0) return c.invalid("repeats has a negative entry");
      out.push_back(in[k] * (*repeats)[k]);
    }
    if (const Dims *elements = c.elements(0);
        elements && out.size() == 1 && out[0].is_constant() && out[0].value() <= 64) {
      while (!elements->empty() && static_cast<int64_t>(tiled.size()) < out[0].value())
        tiled.insert(tiled.end(), elements->begin(), elements->end());
    }
  }
  c.set_tensor(0, c.element(0), std::move(out));
  if (!tiled.empty()) c.set_elements(0, std::move(tiled));
  return {};
}

Status build_tile(BuildContext &c) {
  if (!c.elements(1)) c.library("tile_sizes", {c.input(0), c.input(1)}, {}, {}, own_symbols(c, 0));
  const Shape in = c.shape(0), out = c.output_shape(0);
  return c.index_map(c.input(0), c.output(0), [&](const Dims &i) {
    Dims from = i;
    for (size_t k = 0; k < from.size(); ++k) {
      if (in[k].is(1)) {
        from[k] = 0;
      } else if (!(in[k] == out[k])) {
        from[k] = mod(from[k], in[k]);
      }
    }
    return from;
  });
}

// Tile-1 took one count and one axis as scalars.
Status tile_repeats(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  const Node &n = graph.node(node);
  const Constant *tiles = graph.constant(n.input(1)), *axis = graph.constant(n.input(2));
  if (!n.input(2).valid()) return {};
  if (!tiles || !axis || !graph.value(n.input(0)).type.has_shape())
    return diagnostics.error(ErrorKind::kUnsupported, "Tile of opset 1 needs constant tiles and axis and a known rank",
                             graph.describe(node));
  std::vector<int64_t> repeats(graph.value(n.input(0)).type.shape->size(), 1);
  const int64_t at = axis->as_int64(0);
  if (at < 0 || at >= static_cast<int64_t>(repeats.size()))
    return diagnostics.error(ErrorKind::kInvalid, "axis is out of range", graph.describe(node));
  repeats[static_cast<size_t>(at)] = tiles->as_int64(0);
  ValueId value = graph.add_constant(graph.unique_name(n.name + "_repeats"), Constant::int64s(repeats));
  graph.set_input(node, 2, ValueId());
  graph.set_input(node, 1, value);
  return {};
}

// --- DepthToSpace, SpaceToDepth
// -------------------------------------------------------------------------------------------------

Status infer_depth(InferContext &c, bool to_space) {
  OPTC_TRY(c.require_shape(0));
  const Shape in = c.shape(0);
  const int64_t b = c.node().int_or("blocksize", 0);
  if (in.size() != 4) return c.invalid("the input must have rank 4, but has rank " + std::to_string(in.size()));
  if (b <= 0) return c.invalid("blocksize must be positive");
  const auto divide = [&](Dim d, int64_t by, const char *what) -> Result<Dim> {
    if (auto exact = exact_div(d, by)) return *exact;
    if (d.is_constant())
      return c.invalid(std::string(what) + " " + d.str() + " is no multiple of " + std::to_string(by));
    OPTC_TRY(c.same(d, floor_div(d, by) * by, what));
    return floor_div(d, by);
  };
  Shape out = in;
  if (to_space) {
    OPTC_ASSIGN(out[1], divide(in[1], b * b, "the channel count"));
    out[2] = in[2] * b;
    out[3] = in[3] * b;
  } else {
    out[1] = in[1] * (b * b);
    OPTC_ASSIGN(out[2], divide(in[2], b, "the height"));
    OPTC_ASSIGN(out[3], divide(in[3], b, "the width"));
  }
  c.set_tensor(0, c.element(0), std::move(out));
  return {};
}
Status infer_depth_to_space(InferContext &c) { return infer_depth(c, true); }
Status infer_space_to_depth(InferContext &c) { return infer_depth(c, false); }

Status build_depth_to_space(BuildContext &c) {
  const int64_t b = c.node().int_or("blocksize", 1);
  const bool crd = c.node().string_or("mode", "DCR") == "CRD";
  const Dim channels = c.output_shape(0)[1];
  return c.index_map(c.input(0), c.output(0), [&](const Dims &i) {
    Dim y = mod(i[2], b), x = mod(i[3], b);
    Dim channel = crd ? i[1] * (b * b) + y * b + x : (y * b + x) * channels + i[1];
    return Dims{i[0], channel, floor_div(i[2], b), floor_div(i[3], b)};
  });
}

Status build_space_to_depth(BuildContext &c) {
  const int64_t b = c.node().int_or("blocksize", 1);
  const bool crd = c.node().string_or("mode", "DCR") == "CRD";
  const Dim channels = c.shape(0)[1];
  return c.index_map(c.input(0), c.output(0), [&](const Dims &i) {
    Dim block = crd ? mod(i[1], b * b) : floor_div(i[1], channels);
    Dim channel = crd ? floor_div(i[1], b * b) : mod(i[1], channels);
    return Dims{i[0], channel, i[2] * b + floor_div(block, b), i[3] * b + mod(block, b)};
  });
}

// --- ReverseSequence, Trilu, CenterCropPad
// ----------------------------------------------------------------------------------------

Status infer_reverse_sequence(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  OPTC_TRY(c.require_shape(1));
  const int64_t time = c.node().int_or("time_axis", 0), batch = c.node().int_or("batch_axis", 1);
  if (c.rank(0) < 2 || time + batch != 1 || time * batch != 0)
    return c.invalid("time_axis and batch_axis must be 0 and 1 in some order");
  if (c.rank(1) != 1) return c.invalid("sequence_lens must be a vector");
  OPTC_TRY(c.same(c.shape(0)[static_cast<size_t>(batch)], c.shape(1)[0], "the batch"));
  c.set_tensor(0, c.element(0), c.shape(0));
  return {};
}

Status build_reverse_sequence(BuildContext &c) {
  const size_t time = static_cast<size_t>(c.node().int_or("time_axis", 0)), batch = 1 - time;
  NestBuilder nest(c, "reverse sequence");
  Dims i = nest.outer(c.output_shape(0));
  Expr length = nest.load(c.input(1), {i[batch]}), t = nest.index(i[time]);
  Dims from = i;
  // A length below 0 is an index below 0, which is a fault as one behind the end is.
  const Expr at = select(less(length, length.constant(0)), length, select(less(t, length), length - 1.0 - t, t));
  from[time] = nest.as_index(at, c.shape(0)[time]);
  nest.store(c.output(0), i, nest.load_raw(c.input(0), from));
  nest.finish();
  return {};
}

Status infer_trilu(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  OPTC_TRY(one_or_each(c, 1, 1, "k"));
  if (c.rank(0) < 2) return c.invalid("the input must have rank 2 or more");
  c.set_tensor(0, c.element(0), c.shape(0));
  return {};
}

Status build_trilu(BuildContext &c) {
  const bool upper = c.node().int_or("upper", 1) != 0;
  NestBuilder nest(c, "trilu");
  Dims i = nest.outer(c.output_shape(0));
  const size_t n = i.size();
  Expr k = nest.index(0);
  if (c.has_input(1)) {
    if (auto fixed = constant_ints(c.constant(1))) {
      k = nest.index((*fixed)[0]);
    } else {
      k = nest.load(c.input(1), c.shape(1).empty() ? Dims{} : Dims{0});
    }
  }
  Expr diagonal = nest.index(i[n - 1] - i[n - 2]);
  Expr keep = upper ? less_equal(k, diagonal) : less_equal(diagonal, k);
  Expr value = nest.load(c.input(0), i);
  nest.store(c.output(0), i, select(keep, value, value.constant(0)));
  nest.finish();
  return {};
}

Result<Dims> crop_target(InferContext &c) {
  const Shape in = c.shape(0);
  const Dims *sizes = c.elements(1);
  Dims out = in;
  std::vector<int64_t> axes;
  if (const auto *given = c.node().ints("axes")) {
    axes = *given;
  } else {
    for (size_t k = 0; k < in.size(); ++k) axes.push_back(static_cast<int64_t>(k));
  }
  for (int64_t given : axes) {
    OPTC_ASSIGN([[maybe_unused]] int64_t axis, c.axis(given, static_cast<int64_t>(in.size())));
  }
  if (!sizes) {
    OPTC_TRY(has_length(c, 1, "shape", static_cast<int64_t>(axes.size()), "axes"));
    for (size_t k = 0; k < out.size(); ++k) out[k] = c.run_time_size(0, k);
    return out;
  }
  if (axes.size() != sizes->size())
    return c.invalid("shape has " + std::to_string(sizes->size()) + " entries for " + std::to_string(axes.size()) +
                     " axes");
  for (size_t j = 0; j < axes.size(); ++j) {
    OPTC_ASSIGN(int64_t axis, c.axis(axes[j], static_cast<int64_t>(in.size())));
    out[static_cast<size_t>(axis)] = (*sizes)[j];
  }
  return out;
}

Status infer_center_crop_pad(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  OPTC_ASSIGN(Dims out, crop_target(c));
  c.set_tensor(0, c.element(0), std::move(out));
  return {};
}

Status build_center_crop_pad(BuildContext &c) {
  const Shape in = c.shape(0), out = c.output_shape(0);
  if (!c.elements(1)) {
    std::vector<std::pair<std::string, Attribute>> attributes;
    if (const auto *axes = c.node().ints("axes")) attributes.push_back({"axes", *axes});
    c.library("crop_sizes", {c.input(0), c.input(1)}, {}, attributes, output_symbols(c, 0));
  }
  NestBuilder nest(c, "center crop and pad");
  Dims i = nest.outer(out), from = i;
  Expr inside;
  for (size_t k = 0; k < i.size(); ++k) {
    if (in[k] == out[k]) continue;
    Dim crop = floor_div(max(in[k] - out[k], 0), 2), pad = floor_div(max(out[k] - in[k], 0), 2);
    Dim at = i[k] + crop - pad;
    inside = both(inside, in_range(nest, at, in[k]));
    from[k] = clamp(at, 0, in[k] - 1);
  }
  if (!inside.valid()) {
    nest.store(c.output(0), i, nest.load_raw(c.input(0), from));
  } else {
    Expr value = nest.load(c.input(0), from);
    nest.store(c.output(0), i, select(inside, value, value.constant(0)));
  }
  nest.finish();
  return {};
}

Status concat_axis(Graph &graph, NodeId node, Diagnostics &) {  // Concat-1's default axis was 1
  if (!graph.node(node).attribute("axis")) graph.set_attribute(node, "axis", int64_t{1});
  return {};
}

const VersionStep kConcatSteps[] = {{4, concat_axis, nullptr}};
const VersionStep kSplitSteps[] = {{13, split_to_input, split_to_attribute}, {18, num_outputs, no_num_outputs}};
const VersionStep kTileSteps[] = {{6, tile_repeats, nullptr}};

const OpDef kOps[] = {
    {"Transpose", OpForm::kIndex, 25, infer_transpose, build_transpose},
    {"Concat", OpForm::kIndex, 13, infer_concat, build_concat, kConcatSteps},
    {"Split", OpForm::kIndex, 18, infer_split, build_split, kSplitSteps},
    {"Expand", OpForm::kIndex, 13, infer_expand, build_expand},
    {"Tile", OpForm::kIndex, 13, infer_tile, build_tile, kTileSteps},
    {"DepthToSpace", OpForm::kIndex, 28, infer_depth_to_space, build_depth_to_space},
    {"SpaceToDepth", OpForm::kIndex, 28, infer_space_to_depth, build_space_to_depth},
    {"ReverseSequence", OpForm::kIndex, 28, infer_reverse_sequence, build_reverse_sequence},
    {"Trilu", OpForm::kIndex, 14, infer_trilu, build_trilu},
    {"CenterCropPad", OpForm::kIndex, 18, infer_center_crop_pad, build_center_crop_pad},
};

}  // namespace

std::span<const OpDef> index_ops() { return kOps; }

}  // namespace optc
