// Invariants of a schedule:
//  S1  it is one for the kernel's body: of nests, of contractions of its kind, of library calls.
//  S2  the address that a view gives of an operand is the address of the load (or store) that it stands for, whatever
//      the loop counters are; the sizes beside it are the extents of those loops.
//  S3  each loop of the nest has one role in a template that runs it: nothing is left over, nothing runs twice.
//  S4  packed buffers are constants, scratch buffers are scratch.
//  S5  tiles are ones that their template can run, and chunks lie together in memory, aligned to their size.
#include <algorithm>

#include "ir/program/access.h"
#include "ir/program/block_view.h"
#include "ir/program/contraction_view.h"
#include "ir/program/recurrent.h"
#include "ir/program/tensor_core.h"

namespace optc {
namespace {

class ScheduleVerifier {
 public:
  using Fail = std::function<void(const char *, const std::string &)>;
  ScheduleVerifier(const Program &program, const Kernel &kernel, const Fail &fail)
      : p_(program), kernel_(kernel), fail_(fail) {}

  void run() {
    std::vector<BufferId> packed, scratch;
    collect_buffers(kernel_.schedule, packed, scratch);
    for (BufferId b : packed)
      if (p_.buffer(b).kind != BufferKind::kConstant) fail_("S4", "'" + p_.buffer(b).name + "' is no constant");
    for (BufferId b : scratch)
      if (p_.buffer(b).kind != BufferKind::kScratch) fail_("S4", "'" + p_.buffer(b).name + "' is no scratch");
    std::visit([this](const auto &s) { check(s); }, kernel_.schedule);
  }

 private:
  void check(const std::monostate &) {}
  void check(const MapSchedule &) { of_nest(kernel_.nest()); }
  void check(const RowsSchedule &) { of_nest(kernel_.nest()); }
  void check(const LoopsSchedule &) { of_nest(kernel_.nest()); }
  void check(const LibrarySchedule &) { of_nest(kernel_.library()); }

  void of_nest(bool body) {
    if (!body) fail_("S1", "its schedule '" + name(kernel_.schedule) + "' is for another kind of kernel");
  }

  const Contraction *contraction(ContractionKind kind) {
    const LoopNest *nest = kernel_.nest();
    const bool fits = nest && !nest->sequential && nest->contraction && nest->contraction->kind == kind;
    of_nest(fits);
    return fits ? &*nest->contraction : nullptr;
  }

  // S3: the loops are those of `nest_loops`, each once.
  void covers(std::vector<Loop> given, std::vector<Loop> nest_loops) {
    const auto drop = [](std::vector<Loop> &list) {
      std::erase_if(list, [](const Loop &l) { return l.extent.is(1); });
      std::sort(list.begin(), list.end(), [](const Loop &a, const Loop &b) { return a.index->id < b.index->id; });
    };
    drop(given);
    drop(nest_loops);
    if (given != nest_loops) fail_("S3", "the roles of its schedule are not the loops of its nest");
  }

  // 0 where the loop has extent 1 and is none.
  Dim counter(const DimSymbol *s) const { return s ? p_.dims->symbol_value(s) : Dim(0); }
  Dim extent(const DimSymbol *s) const {
    const LoopNest &nest = *kernel_.nest();
    for (const Loop &l : nest.loops)
      if (l.index == s) return l.extent;
    for (const Stage &stage : nest.stages)
      for (const Loop &l : stage.loops)
        if (l.index == s) return l.extent;
    return 1;
  }
  // One counter for several loops, the last one fastest.
  Dim collapsed(const std::vector<Loop> &loops) const {
    Dim value = 0;
    for (const Loop &l : loops)
      if (!l.extent.is(1)) value = value * l.extent + counter(l.index);
    return value;
  }
  // Loops of extent 1 stand at 0.
  Dim at_unit_loops(Dim d) const {
    return substitute(d, [this](const DimSymbol &s) -> std::optional<Dim> {
      if (s.kind == SymbolKind::kLoop && extent(&s).is(1)) return Dim(0);
      return std::nullopt;
    });
  }

  // The load behind the casts of a factor.
  const Scalar *load_of(ScalarId id) const {
    while (id.valid() && p_.scalars.at(id).op == ScalarOp::kCast) id = p_.scalars.at(id).args[0];
    return id.valid() && p_.scalars.at(id).op == ScalarOp::kLoad ? &p_.scalars.at(id) : nullptr;
  }
  void same_address(const char *operand, BufferId buffer, Dim address, BufferId meant, const std::vector<Dim> &index) {
    if (buffer != meant || !(at_unit_loops(address) == at_unit_loops(linear_offset(p_.buffer(meant), index))))
      fail_("S2", std::string("the view of ") + operand + " gives other addresses than the nest");
  }
  void same_size(const char *size, Dim given, Dim meant) {
    if (!(given == meant)) fail_("S2", std::string(size) + " is " + given.str() + ", not " + meant.str());
  }

  void check(const GemmBlocksSchedule &s) {
    const Contraction *c = contraction(ContractionKind::kMatMul);
    if (!c) return;
    const auto factor = block_factor(p_, c->rhs);
    if (!factor) return fail_("S1", "its schedule is for a product of what is dequantized");
    const auto activation = activation_factor(p_, c->lhs);
    if (activation.has_value() != s.activations.scale.buffer.valid())
      return fail_("S1", "its schedule is for activations of another kind");
    const Scalar *lhs = activation ? &p_.scalars.at(activation->element) : load_of(c->lhs),
                 &rhs = p_.scalars.at(factor->element);
    if (!check_product(s.view, lhs, &rhs)) return;
    if (s.view.a.element != lhs->type || s.view.b.element != rhs.type || s.scales.rounded != factor->rounded)
      return fail_("S2", "an operand of its schedule has another type");
    const bool whole = packed_bits(rhs.type) > 0 && s.scales.block > 0 &&
                       (s.scales.block % (32 / packed_bits(rhs.type)) == 0 || s.view.inner.is(s.scales.block));
    if (!whole) return fail_("S2", "a word of packed numbers would have two scales");
    same_by_blocks("the scale", s, s.scales.scale, p_.scalars.at(factor->scale));
    if (factor->zero.valid() != s.scales.zero.buffer.valid() || factor->zero_value != s.scales.zero_value)
      return fail_("S2", "its schedule has other zero points than the nest");
    if (factor->zero.valid()) same_by_blocks("the zero point", s, s.scales.zero, p_.scalars.at(factor->zero));
    if (activation) same_by_rows(s, p_.scalars.at(activation->scale));
  }
  // The scale of A: its strides by the loops, and `row` by them as one.
  void same_by_rows(const GemmBlocksSchedule &s, const Scalar &load) {
    const OperandView &view = s.activations.scale;
    const size_t batch = s.view.batch.size(), loops = batch + s.view.m.size();
    if (view.strides.size() != loops + 1 || view.element != load.type)
      return fail_("S2", "the view of A's scale is of another form");
    if (s.scales.zero.buffer.valid() && is_float(s.scales.zero.element))
      return fail_("S1", "sums of integers have zero points of integers");
    Dim address = view.offset + view.strides[loops] * floor_div(collapsed(s.view.k), s.scales.block), by_rows = address;
    for (size_t i = 0; i < loops; ++i) {
      const Dim counted = counter((i < batch ? s.view.batch[i] : s.view.m[i - batch]).index);
      address = address + view.strides[i] * counted;
      if (i < batch) by_rows = by_rows + view.strides[i] * counted;
    }
    same_address("A's scale", view.buffer, address, load.buffer, load.index);
    same_address("A's scale by rows", view.buffer, by_rows + s.activations.row * collapsed(s.view.m), load.buffer,
                 load.index);
  }
  void same_by_blocks(const char *what, const GemmBlocksSchedule &s, const OperandView &view, const Scalar &load) {
    if (view.strides.size() != 2 || view.element != load.type)
      return fail_("S2", std::string("the view of ") + what + " is of another form");
    const Dim address = view.offset + view.strides[0] * floor_div(collapsed(s.view.k), s.scales.block) +
                        view.strides[1] * collapsed(s.view.n);
    same_address(what, view.buffer, address, load.buffer, load.index);
  }
  void check(const GemmSchedule &s) {
    const Contraction *c = contraction(ContractionKind::kMatMul);
    if (!c ||
        !check_product(s.view, load_of(factor_parts(p_, c->lhs).element), load_of(factor_parts(p_, c->rhs).element)))
      return;
    for (const OperandView *operand : {&s.view.a, &s.view.b})
      if (p_.buffer(operand->buffer).element() != operand->element)
        return fail_("S2", "an operand of its schedule has another type");
    const ElementType sum = p_.scalars.at(kernel_.nest()->stages[c->stage].outputs[0].value).type;
    for (const OperandView *operand : {&s.view.a, &s.view.b})
      if ((operand->element == ElementType::kFloat64) != (sum == ElementType::kFloat64))
        return fail_("S1", "its schedule multiplies f64 and other types");
    const auto zeros = zero_points(p_, kernel_, s.view);
    if (is_byte(s.view.a.element) != zeros.has_value())
      return fail_("S1", "its schedule is for a product of bytes in int32");
    if (zeros) same_zeros(s.zeros, *zeros);
  }
  void same_zeros(const ZeroPoints &given, const ZeroPoints &meant) {
    const auto same = [](const ZeroPoint &a, const ZeroPoint &b) {
      return a.value == b.value && a.step == b.step && a.from.buffer == b.from.buffer &&
             a.from.offset == b.from.offset && a.from.strides == b.from.strides;
    };
    if (!same(given.a, meant.a) || !same(given.b, meant.b))
      fail_("S2", "its schedule has other zero points than the nest");
  }
  // `lhs`, `rhs`: the loads that the factors are made of; null: a factor is none.
  bool check_product(const GemmView &v, const Scalar *lhs, const Scalar *rhs) {
    const auto join = [](std::initializer_list<const std::vector<Loop> *> lists) {
      std::vector<Loop> all;
      for (const auto *l : lists) all.insert(all.end(), l->begin(), l->end());
      return all;
    };
    covers(join({&v.batch, &v.m, &v.n}), kernel_.nest()->loops);
    covers(v.k, kernel_.nest()->stages[kernel_.nest()->contraction->stage].loops);
    if (!lhs || !rhs || v.a.strides.size() < v.batch.size() || v.b.strides.size() < v.batch.size()) {
      fail_("S2", "a factor is no load");
      return false;
    }
    Dim a = v.a.offset + v.a_row * collapsed(v.m) + v.a_inner * collapsed(v.k);
    Dim b = v.b.offset + v.b_inner * collapsed(v.k) + v.b_column * collapsed(v.n);
    for (size_t i = 0; i < v.batch.size(); ++i) {
      a = a + v.a.strides[i] * counter(v.batch[i].index);
      b = b + v.b.strides[i] * counter(v.batch[i].index);
    }
    same_address("A", v.a.buffer, a, lhs->buffer, lhs->index);
    same_address("B", v.b.buffer, b, rhs->buffer, rhs->index);
    same_size("the number of rows", v.rows, total_extent(v.m));
    same_size("the number of columns", v.columns, total_extent(v.n));
    same_size("the length of the sums", v.inner, total_extent(v.k));
    return true;
  }

  // The input's addresses are behind clamps and selects of the padding: convolution_view compares them dim by dim.
  void check_convolution(const ConvolutionOperands &o, bool line_is_column, bool transposed = false) {
    const Contraction *c = contraction(ContractionKind::kConvolution);
    if (!c) return;
    if (c->transposed != transposed) return fail_("S1", "its schedule is for a convolution of the other direction");
    const auto view = convolution_view(p_, kernel_);
    if (!view) return fail_("S2", "its operands are not read as a convolution's");
    const LoopNest &nest = *kernel_.nest();
    std::vector<Loop> roles = pixel_loops(nest);
    for (const Loop &l : column_loops(nest)) roles.push_back(l);
    covers(std::move(roles), nest.loops);
    const size_t spatial = c->kernel.size();
    if (spatial > 3) return fail_("S1", "its schedule has three spatial dims at most");
    const size_t first = spatial == 1 && line_is_column ? 1 : 3 - spatial;
    const ConvolutionGeometry &g = o.geometry;
    const std::vector<Dim> strides = storage_strides(p_.buffer(view->input));
    const Dim sizes[3] = {o.depth, o.height, o.width}, steps[3] = {o.plane_stride, o.row_stride, o.pixel_stride};
    ConvolutionGeometry meant;
    meant.channels = g.channels, meant.filters = g.filters, meant.groups = c->group;
    for (size_t i = 0; i < spatial; ++i) {
      const size_t at = first + i;
      meant.kernel[at] = c->kernel[i], meant.strides[at] = c->strides[i], meant.dilations[at] = c->dilations[i];
      meant.pads_begin[at] = c->pads_begin[i], meant.pads_end[at] = c->pads_end[i];
      same_size("a size of the image", sizes[at], view->in_spatial[i]);
      same_size("a stride of the image", steps[at], strides[2 + i]);
    }
    for (size_t at = 0; at < 3; ++at)
      if (at < first || at >= first + spatial) same_size("the image's other size", sizes[at], 1);
    if (o.input != view->input || !(meant == g)) fail_("S2", "its schedule is of another convolution");
    same_size("the batch", o.batch, view->batch);
    same_size("the channels", g.channels, view->in_channels);
    same_size("the filters", g.filters, view->out_channels);
    same_size("the stride of images", o.image_stride, strides[0]);
    same_size("the stride of channels", o.channel_stride, strides[1]);
  }
  void check(const ConvolutionGemmSchedule &s) { check_convolution(s.operands, false); }
  void check(const ConvolutionIntegerSchedule &s) {
    check_convolution(s.operands, false);
    const auto view = convolution_view(p_, kernel_);
    const auto zeros = view ? zero_points(p_, kernel_, *view) : std::nullopt;
    if (!zeros) return fail_("S1", "its schedule is for a convolution of bytes in int32");
    same_zeros(s.zeros, *zeros);
    const ConvolutionGeometry &g = s.operands.geometry;
    if (s.depthwise && (g.groups != g.channels || g.filters != g.channels))
      fail_("S1", "its schedule is for a depthwise convolution");
  }
  void check(const ConvolutionDirectSchedule &s) { check_convolution(s.operands, true); }
  void check(const ConvolutionTransposedSchedule &s) { check_convolution(s.operands, true, true); }
  void check(const ConvolutionDepthwiseSchedule &s) { check_of_floats(s.operands); }
  void check(const ConvolutionWinogradSchedule &s) { check_of_floats(s.operands); }
  void check_of_floats(const ConvolutionOperands &o) {
    check_convolution(o, false);
    if (p_.buffer(o.input).element() != ElementType::kFloat32) fail_("S1", "its schedule is for a convolution of f32");
  }

  void check(const ConvolutionStripsSchedule &s) {
    check_convolution(s.image, false);
    const auto view = depthwise_view(p_, kernel_);
    if (!view) return fail_("S1", "its schedule is for a depthwise convolution in f32");
    if (s.images != view->images || s.channels != view->channels || s.rows != view->rows ||
        s.columns != view->columns || s.taps != view->taps)
      fail_("S3", "the roles of its schedule are not the loops of its nest");
    if (s.vector < 1 || view->together % s.vector != 0) fail_("S5", "its channels do not lie together");
    if (!is_strip(s)) fail_("S5", "a strip or a block that the template does not have");
  }

  void check(const AttentionSchedule &s) {
    const Contraction *c = contraction(ContractionKind::kAttention);
    if (!c) return;
    if (c->batch.size() < 2 || c->m.size() != 1 || c->k.size() != 2 || c->n.size() != 2)
      return fail_("S1", "its schedule is for batch, heads, queries, keys and a width");
    std::vector<Loop> heads, shared{{c->batch[0], extent(c->batch[0])}, {c->m[0], extent(c->m[0])}};
    for (size_t i = 1; i < c->batch.size(); ++i) heads.push_back({c->batch[i], extent(c->batch[i])});
    shared.insert(shared.end(), heads.begin(), heads.end());
    const StageOutput &out = kernel_.nest()->stages.back().outputs[0];
    for (const Loop &l : kernel_.nest()->loops)  // the width of values may be a shared loop
      if (l.index == c->n[1]) shared.push_back(l);
    covers(shared, kernel_.nest()->loops);
    const Dim head = collapsed(heads), group = c->batch.size() == 3 ? counter(c->batch[1]) : head;
    const Scalar *q = load_of(c->query), *k = load_of(c->key), *v = load_of(c->value);
    if (!q || !k || !v) return fail_("S2", "an operand is no load");
    const auto rows = [&](const AttentionRows &r, Dim h, const DimSymbol *row, Dim inner) {
      return r.offset + r.batch * counter(c->batch[0]) + r.head * h + r.row * counter(row) + inner;
    };
    same_address("the queries", s.query.buffer, rows(s.query, head, c->m[0], counter(c->k[1])), q->buffer, q->index);
    same_address("the keys", s.key.buffer, rows(s.key, group, c->k[0], counter(c->k[1])), k->buffer, k->index);
    same_address("the values", s.value.buffer, rows(s.value, group, c->n[0], counter(c->n[1])), v->buffer, v->index);
    Dim column = 0;
    for (const Loop &l : kernel_.nest()->stages.back().loops) column = column + counter(l.index);
    for (const Loop &l : kernel_.nest()->loops)
      if (l.index == c->n[1]) column = column + counter(l.index);
    same_address("the result", s.output.buffer, rows(s.output, head, c->m[0], column), out.buffer, out.index);
    if (s.mask.buffer.valid() != c->mask.valid()) return fail_("S2", "its schedule and its nest disagree on a mask");
    if (const Scalar *m = load_of(c->mask)) {
      Dim address =
          s.mask.offset + s.mask.batch * counter(c->batch[0]) + s.mask.head * head + s.mask.query * counter(c->m[0]);
      std::vector<const DimSymbol *> symbols;
      for (Dim d : m->index) collect_symbols(d, symbols);
      for (const Stage &stage : kernel_.nest()->stages)
        for (const Loop &l : stage.loops)
          if (std::find(symbols.begin(), symbols.end(), l.index) != symbols.end())
            address = address + s.mask.key * counter(l.index);
      same_address("the mask", s.mask.buffer, address, m->buffer, m->index);
    }
    same_size("the batch", s.batch, extent(c->batch[0]));
    same_size("the number of heads", s.heads, total_extent(heads));
    same_size("the number of queries", s.queries, extent(c->m[0]));
    same_size("the number of keys", s.keys, extent(c->k[0]));
    same_size("the width of keys", s.width, extent(c->k[1]));
    same_size("the width of values", s.value_width, extent(c->n[1]));
  }

  void check(const GemmTensorCoreSchedule &s) {
    ProductSum sum;
    if (!check_product(s, sum)) return;
    if (s.tiles.empty()) fail_("S5", "it has no tile");
    for (const TensorCoreChoice &c : s.tiles)
      if (!is_tile(s.type, c.tile) || c.splits < 1) fail_("S5", "a tile that the template does not have");
    for (const TensorCoreChoice &c : s.tiles)
      if (through_registers(c.tile) &&
          (c.splits > 1 || !fits_registers(s, c.tile, peel(p_, sum.lhs), peel(p_, sum.rhs))))
        fail_("S5", "a product that cannot go through registers");
  }
  void check(const GemmWarpgroupSchedule &s) {
    ProductSum sum;
    if (!check_warpgroups(s, sum)) return;
    check_map("A", s.map_a, tensor_map(p_, s, s.a, peel(p_, s.exchanged ? sum.rhs : sum.lhs)));
    check_map("B", s.map_b, tensor_map(p_, s, s.b, peel(p_, s.exchanged ? sum.lhs : sum.rhs)));
  }
  void check(const ConvolutionWarpgroupSchedule &s) {
    ProductSum sum;
    if (!check_warpgroups(s, sum)) return;
    check_map("the image", s.image, image_map(p_, s, s.exchanged ? s.b : s.a, peel(p_, sum.lhs)));
    check_map("the filters", s.filters, filter_map(p_, s, s.exchanged ? s.a : s.b, peel(p_, sum.rhs)));
  }
  bool check_warpgroups(const WarpgroupProduct &s, ProductSum &sum) {
    if (!check_product(s, sum)) return false;
    if (s.tiles.empty() || s.blocks < 1) fail_("S5", "it has no tile or no block");
    for (const WarpgroupTile &t : s.tiles)
      if (!is_tile(t)) fail_("S5", "a tile that the template does not have");
    if (element_bytes(s.type) != 2 || lower_bound(total_extent(s.k)) < 1)
      fail_("S5", "a product that warpgroups do not have");
    return true;
  }
  // S2: the map is the one that the operand's address gives; S5: TMA can have it.
  template <typename Map>
  void check_map(const char *what, const Map &given, const std::optional<Map> &meant) {
    if (!meant) return fail_("S5", std::string(what) + " has no tensor map");
    if (!same(given, *meant)) fail_("S2", std::string("the tensor map of ") + what + " is another one");
  }
  bool check_product(const TensorCoreProduct &s, ProductSum &sum) {
    const LoopNest *nest = kernel_.nest();
    const bool fits = nest && product_sum(p_, *nest, sum);
    of_nest(fits);
    if (!fits) return false;
    std::vector<Loop> roles = s.batch, meant = nest->loops;
    for (const auto *list : {&s.a.outer, &s.b.outer, &s.k}) roles.insert(roles.end(), list->begin(), list->end());
    meant.insert(meant.end(), nest->stages[0].loops.begin(), nest->stages[0].loops.end());
    covers(std::move(roles), meant);
    covers(s.k, nest->stages[0].loops);
    if (s.k.empty()) {
      fail_("S5", "it has no sum");
      return false;
    }
    check_side("A", s, s.a, s.exchanged ? sum.rhs : sum.lhs, s.b.outer);
    check_side("B", s, s.b, s.exchanged ? sum.lhs : sum.rhs, s.a.outer);
    return true;
  }
  void check_side(const char *side, const TensorCoreProduct &s, const TensorCoreProduct::Operand &o, ScalarId factor,
                  const std::vector<Loop> &others) {
    ProductOperand operand = peel(p_, factor);
    for (const Loop &l : others)
      if (uses_loop(p_, factor, l.index))
        fail_("S3", std::string(side) + " depends on the other side's loop " + l.index->name);
    const unsigned size = element_bytes(s.type);
    const ElementType half = s.type == TensorCoreType::kF16 ? ElementType::kFloat16 : ElementType::kBFloat16;
    if (!fit(s.type, operand) || (size == 2 && precision(p_, operand) != half))
      return fail_("S2", std::string(side) + " has another type");
    if (!o.k_contiguous && o.outer.empty()) return fail_("S5", std::string(side) + " has no loop to walk memory by");
    const Loop &along = o.k_contiguous ? s.k.back() : o.outer.back();
    const int64_t elements = o.chunk_bytes / size;
    bool good = o.group == 1 || (o.group == 8 && size == 2 && wide_together(p_, operand, along));
    if (o.chunk_bytes > 0)
      good = o.group == 1 && operand.load.valid() && o.chunk_bytes <= 16 && elements * size == o.chunk_bytes &&
             (elements == 1 || (elements & (elements - 1)) == 0) &&
             (elements == 1 ? size == 4 : together(p_, operand, along, size) >= elements);
    if (!good || o.chunk_bytes < 0) fail_("S5", std::string("a chunk of ") + side + " does not lie together");
    if (o.constant && !is_constant(p_, operand)) fail_("S4", std::string(side) + " is no constant");
  }

  void check(const RecurrentSchedule &s) {
    const LibraryCall *call = kernel_.library();
    const bool integers = s.weights != ElementType::kFloat32;
    const bool fits = call && call->function == (integers ? "dynamic_quantize_lstm" : "rnn") && !s.layers.empty();
    of_nest(fits);
    if (!fits || !integers) return;
    if (!is_byte(s.weights) || p_.buffer(call->inputs[1]).element() != s.weights)
      fail_("S2", "its schedule has weights of another type");
    for (const RecurrentSchedule::Layer &layer : s.layers)
      if (!layer.w_scale.buffer.valid() || !layer.r_scale.buffer.valid()) fail_("S4", "it has no scale of its weights");
    if (!s.bytes.buffer.valid()) fail_("S4", "it has no memory for its inputs as bytes");
  }

  void check(const RecurrentStepsSchedule &s) {
    const LibraryCall *call = kernel_.library();
    const bool fits = call && call->function == "rnn_steps" && reason_against_steps(p_, *call).empty();
    of_nest(fits);
    if (!fits) return;
    const Buffer &r = p_.buffer(call->inputs[RecurrentSteps::kR]);
    const auto &dims = r.constant.dims();
    if (s.gates != recurrent_cell(*call, 0)->gates || s.hidden != dims[2] || s.weights != r.element())
      fail_("S2", "its schedule is of another layer");
    if (s.rows < 1 || s.columns < 1 || s.splits < 1 || s.cached < 0 || s.cached > s.chunks || s.threads() > 1024 ||
        s.splits * s.chunks * s.chunk_elements() < s.hidden)
      fail_("S5", "its threads do not have all of R");
    if (!s.r.buffer.valid() || !p_.buffer(s.r.buffer).constant.valid() ||
        p_.buffer(s.r.buffer).constant.dims() !=
            std::vector<int64_t>{dims[0], s.splits * s.chunks, s.gates * s.hidden, s.chunk_elements()})
      fail_("S4", "R is not laid out for it");
  }

  const Program &p_;
  const Kernel &kernel_;
  const Fail &fail_;
};

}  // namespace

void check_schedule(const Program &program, const Kernel &kernel,
                    const std::function<void(const char *, const std::string &)> &fail) {
  ScheduleVerifier(program, kernel, fail).run();
}

}  // namespace optc
