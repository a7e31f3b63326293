// Contractions by the strategies of runtime/cpu: matrix products, convolutions, attention. The kernel's function calls
// the runtime's template for each task; the stages behind the sum become the sink that it calls with vectors of
// finished sums.
#include <fmt/format.h>

#include <algorithm>

#include "emit/cpp/nest.h"
#include "emit/cpp/scratch_dims.h"
#include "emit/cpp/types.h"
#include "runtime/cpu/conv_plan.h"

namespace optc {

int panel_bit(int width) { return width == 64 ? 8 : width == 48 ? 4 : width / 16; }

namespace {

constexpr int kAllPanels = 15;

// Of an unknown image.
OptcConvShape conv_shape(const Strategy &s) {
  return {0,
          0,
          0,
          s.parameter("c", 0),
          s.parameter("oc", 0),
          s.parameter("kh", 0),
          s.parameter("kw", 0),
          s.parameter("sh", 0),
          s.parameter("sw", 0),
          s.parameter("dh", 0),
          s.parameter("dw", 0),
          s.parameter("pad_top", 0),
          s.parameter("pad_left", 0),
          s.parameter("pad_bottom", 0),
          s.parameter("pad_right", 0),
          s.parameter("groups", 1)};
}

}  // namespace

bool NestPrinter::print_contraction() {
  if (!nest_.contraction || serial_) return false;
  const std::string &strategy = kernel_.strategy.name;
  if (strategy == "gemm") {
    const auto view = gemm_view(program_, kernel_);
    return view && print_gemm(*view);
  }
  if (strategy.compare(0, 5, "conv.") == 0) {
    const auto view = convolution_view(program_, kernel_);
    return view && print_convolution(*view);
  }
  return strategy == "attention" && print_attention();
}

// Makes the shared loops batch, rows, columns of the nest, one loop for the columns and as few for the rows as the
// epilogue's accesses allow, and plans the stages behind the sum in lanes along the columns.
bool NestPrinter::plan_epilogue(const std::vector<Loop> &batch, const std::vector<Loop> &rows,
                                const std::vector<Loop> &columns) {
  const size_t sum = nest_.contraction->stage;
  if (sum != 0 || nest_.stages[sum].outputs.size() != 1) return false;
  const StageOutput &total = nest_.stages[sum].outputs[0];
  if (!total.local.valid() || total.combine != Combine::kSum || !nest_.locals[total.local.index].shape.empty() ||
      total.condition.valid())
    return false;
  if (total.initial.valid()) {
    const Scalar &initial = program_.scalars.at(total.initial);
    if (initial.op != ScalarOp::kConstant || initial.bits != 0) return false;
  }
  for (size_t i = sum + 1; i < plans_.size(); ++i)
    if (!plans_[i].loops.empty()) return false;
  // Every shared loop has a role.
  std::vector<Loop> all[3] = {batch, rows, columns};
  size_t roles = 0;
  for (std::vector<Loop> &list : all) {
    drop_unit_loops(list);
    roles += list.size();
  }
  if (roles != outer_.size()) return false;
  const std::vector<Loop> saved_outer = outer_;
  const auto saved_fixed = fixed_;
  plans_[sum] = StagePlan();
  outer_.clear();
  join_loops(all[2]);
  join_loops(all[1]);
  if (all[2].size() > 1) {
    outer_ = saved_outer;
    fixed_ = saved_fixed;
    plan_stage(nest_.stages[sum], plans_[sum]);
    return false;
  }
  for (std::vector<Loop> &list : all) outer_.insert(outer_.end(), list.begin(), list.end());
  bool good = true;
  if (all[2].empty()) {  // a single column
    good = false;
  } else {
    for (size_t i = sum + 1; i < plans_.size(); ++i) measure_stage(nest_.stages[i], plans_[i]);
    set_lanes(all[2][0].index, true);
    int64_t cost = 0;
    for (size_t i = sum + 1; i < plans_.size() && good; ++i) good = lanes_possible(nest_.stages[i], plans_[i], cost);
  }
  if (!good) {
    set_lanes(nullptr, false);
    outer_ = saved_outer;
    fixed_ = saved_fixed;
    for (size_t i = 0; i < plans_.size(); ++i) {
      plans_[i] = StagePlan();
      plan_stage(nest_.stages[i], plans_[i]);
    }
    return false;
  }
  return true;
}

// const int64_t i = counter / ..., for the shared loops [first, first + count).
void NestPrinter::decode(const std::string &counter, size_t first, size_t count) {
  Dim below = 1;
  std::vector<std::string> lines;
  for (size_t i = first + count; i-- > first;) {
    const std::string divided = below.is(1) ? counter : counter + " / " + dim(below, kUnaryPrecedence);
    const std::string text = i == first ? divided : divided + " % " + dim(fix(outer_[i].extent), kUnaryPrecedence);
    lines.push_back(fmt::format("[[maybe_unused]] const int64_t {} = {};", symbol(*outer_[i].index), text));
    below = below * fix(outer_[i].extent);
  }
  for (size_t i = lines.size(); i-- > 0;) line(lines[i]);
}

// const auto epilogue = ...: the stages behind the sum, for tile_sink.
void NestPrinter::print_epilogue(size_t batch_loops, size_t row_loops) {
  const size_t sum = nest_.contraction->stage;
  const LocalId total = nest_.stages[sum].outputs[0].local;
  const Loop &column = outer_.back();
  const bool one_row = row_loops == 1;
  const std::string row = one_row ? symbol(*outer_[batch_loops].index) : names_.unique("row", 16);
  local_declared_[total.index] = true;
  open(fmt::format(
      "const auto epilogue = [&](vf {}, [[maybe_unused]] int64_t {}, [[maybe_unused]] int64_t {}, auto n) OPTC_LAMBDA",
      local_names_[total.index], row, symbol(*column.index)));
  if (row_loops > 1) decode(row, batch_loops, row_loops);
  lane_count_ = "n";
  for (size_t i = sum + 1; i < plans_.size(); ++i) print_stage(i);
  lane_count_.clear();
  close("};");
}

// The result is stored as rows of `columns` in one f32 buffer, and nothing of that size is read: the buffer may hold
// partial sums.
bool NestPrinter::stores_plain_rows(Dim columns) const {
  const Stage &last = nest_.stages.back();
  if (nest_.stages.size() != 2 || last.outputs.size() != 1 || outer_.size() != 2) return false;
  const StageOutput &o = last.outputs[0];
  if (!o.buffer.valid() || program_.buffer(o.buffer).element() != ElementType::kFloat32) return false;
  const Dim offset = offset_of(program_.buffer(o.buffer), o.index);
  const auto row = affine_in(offset, outer_[0].index), column = affine_in(offset, outer_[1].index);
  if (!row || !column || !(row->coefficient == columns) || !column->coefficient.is(1)) return false;
  if (!affine_in(row->rest, outer_[1].index)->rest.is(0)) return false;
  for (const Item &item : plans_.back().order) {
    if (item.index) return false;
    const Scalar &s = program_.scalars.at(item.id);
    if (s.op == ScalarOp::kLoad && program_.buffer(s.buffer).kind != BufferKind::kConstant) return false;
  }
  return true;
}

bool NestPrinter::print_gemm(const GemmView &view) {
  std::vector<Loop> batch = view.batch, rows = view.m, columns = view.n;
  const Kernel &kernel = kernel_;
  const bool packed = kernel.strategy.parameter("b_constant", 0) == 1 && !kernel.strategy.packed.empty();
  const bool fixed_b = view.columns.is_constant() && view.inner.is_constant();
  if (packed && !fixed_b) return false;
  if (!plan_epilogue(batch, rows, columns)) return false;
  drop_unit_loops(batch);
  text_.headers = {"runtime/cpu/gemm.h", "runtime/bundle/sinks.h"};
  const size_t row_loops = outer_.size() - batch.size() - 1;
  const std::string a = buffer_name(view.a.buffer);
  for (size_t i = 1; i < plans_.size(); ++i)
    for (const Item &item : plans_[i].order)
      if (!item.index && program_.scalars.at(item.id).op == ScalarOp::kLoad &&
          !written_buffers_.count(program_.scalars.at(item.id).buffer.index))
        buffer_name(program_.scalars.at(item.id).buffer);
  const std::string b = buffer_name(packed ? kernel.strategy.packed[0] : view.b.buffer);
  for (const Stage &stage : nest_.stages)
    for (const StageOutput &o : stage.outputs)
      if (o.buffer.valid()) buffer_name(o.buffer);

  const std::string m = dim(view.rows), n = dim(view.columns), k = dim(view.inner);
  const bool constant_plan = view.rows.is_constant() && fixed_b;
  text_.panels = view.columns.is_constant() ? panel_bit(optc_gemm_nr(view.columns.value())) : kAllPanels;
  text_.plan_headers = {"runtime/cpu/gemm_plan.h"};
  Dim batches = 1;
  for (const Loop &l : batch) batches = batches * fix(l.extent);
  // Sums between blocks of k need a place.
  const bool blocks = !view.inner.is_constant() || view.inner.value() > 1024;
  const bool in_output = blocks && batch.empty() && stores_plain_rows(view.columns);
  const bool own_partial = blocks && !in_output;
  Dim scratch = 0;
  if (!packed) scratch = 1024 * 64 * 4;
  const Dim partial_at = scratch;
  // A task has at most 192 rows (runtime/cpu/gemm_plan.h).
  if (own_partial) {
    const Dim most_rows = view.rows.is_constant() ? Dim(std::min<int64_t>(192, view.rows.value())) : Dim(192);
    scratch = scratch + most_rows * ceil_div(view.columns, Dim(64)) * Dim(64 * 4);
  }
  uses_scratch_ = !scratch.is(0);
  scratch_bytes_ = scratch;
  auto base = [&](const std::string &name, const OperandView &operand) {
    Dim offset = fix(operand.offset);
    for (size_t i = 0; i < view.batch.size(); ++i)
      if (!view.batch[i].extent.is(1))
        offset = offset + operand.strides[i] * program_.dims->symbol_value(view.batch[i].index);
    return offset.is(0) ? name : name + " + " + dim(offset, kAddPrecedence);
  };
  const std::string output = buffer_name(nest_.stages.back().outputs[0].buffer);
  if (batch.empty() && packed) {
    print_epilogue(0, row_loops);
    line(fmt::format("multiply(env, optc_gemm_plan({}, {}, {}), GemmRows{{{}, {}}}, {}, {}, tile_sink(epilogue));", m,
                     n, k, base(a, view.a), dim(view.a_row), b, in_output ? output + ", " + n : "nullptr, 0"));
    return true;
  }
  line(fmt::format("{} OptcGemm plan = optc_gemm_plan({}, {}, {});", constant_plan ? "constexpr" : "const", m, n, k));
  const std::string total = batches.is(1) ? "optc_gemm_tasks(plan)"
                                          : fmt::format("optc_gemm_tasks(plan) * {}", dim(batches, kUnaryPrecedence));
  open(fmt::format("parallel(env, {}, 1, [&](int64_t begin, int64_t end, uint8_t *{}) OPTC_TASK", total,
                   uses_scratch_ ? "scratch" : ""));
  if (batch.empty()) print_epilogue(0, row_loops);
  const std::string task = names_.unique("task_", 16);
  open(fmt::format("for (int64_t {0} = begin; {0} < end; ++{0})", task));
  std::string tile = task;
  if (!batch.empty()) {
    const std::string which = names_.unique("batch", 16);
    line(fmt::format("const int64_t {} = {} / optc_gemm_tasks(plan);", which, task));
    decode(which, 0, batch.size());
    print_epilogue(batch.size(), row_loops);
    tile = task + " % optc_gemm_tasks(plan)";
  }
  std::string partial = "nullptr, 0";
  if (in_output) {
    partial = fmt::format("{}, {}", output, n);
  } else if (own_partial) {
    line(fmt::format("const OptcGemmTask part = optc_gemm_task(plan, {});", tile));
    line(fmt::format(
        "float *partial = reinterpret_cast<float *>(scratch + {}) - part.m0 * (part.n1 - part.n0) - part.n0;",
        dim(partial_at, kAddPrecedence)));
    partial = "partial, part.n1 - part.n0";
  }
  const std::string rows_text = fmt::format("GemmRows{{{}, {}}}", base(a, view.a), dim(view.a_row));
  if (packed)
    line(fmt::format("gemm(plan, {}, {}, {}, {}, tile_sink(epilogue));", tile, rows_text, b, partial));
  else
    line(fmt::format(
        "gemm_unpacked(plan, {}, {}, {}, {}, {}, {}, reinterpret_cast<float *>(scratch), tile_sink(epilogue));", tile,
        rows_text, base(b, view.b), dim(view.b_inner), dim(view.b_column), partial));
  close();
  close("});");
  return true;
}

bool NestPrinter::print_convolution(const ConvolutionView &view) {
  const Contraction &c = *nest_.contraction;
  const Strategy &strategy = kernel_.strategy;
  if (strategy.packed.empty()) return false;
  if (!plan_epilogue({}, pixel_loops(nest_), column_loops(nest_))) return false;
  const size_t row_loops = outer_.size() - 1;
  const std::string algorithm = strategy.name.substr(5);
  text_.headers = {"runtime/bundle/sinks.h", algorithm == "depthwise"                   ? "runtime/cpu/depthwise.h"
                                             : algorithm.compare(0, 8, "winograd") == 0 ? "runtime/cpu/winograd.h"
                                                                                        : "runtime/cpu/conv.h"};
  text_.plan_headers = {"runtime/cpu/conv_plan.h"};
  const std::string x = buffer_name(view.input);
  for (size_t i = 1; i < plans_.size(); ++i)
    for (const Item &item : plans_[i].order)
      if (!item.index && program_.scalars.at(item.id).op == ScalarOp::kLoad &&
          !written_buffers_.count(program_.scalars.at(item.id).buffer.index))
        buffer_name(program_.scalars.at(item.id).buffer);
  const std::string w = buffer_name(strategy.packed[0]);
  for (const Stage &stage : nest_.stages)
    for (const StageOutput &o : stage.outputs)
      if (o.buffer.valid()) buffer_name(o.buffer);

  // n, h, w of the input; a 1-D convolution is one row high, a direct one a column of one-pixel rows.
  const Buffer &input = program_.buffer(view.input);
  const size_t spatial = c.kernel.size();
  const bool column = spatial == 1 && algorithm == "direct";
  const Dim height = spatial == 2 || column ? view.in_spatial[0] : Dim(1),
            width = column ? Dim(1) : view.in_spatial[spatial - 1];
  std::string rest;
  for (const char *parameter :
       {"c", "oc", "kh", "kw", "sh", "sw", "dh", "dw", "pad_top", "pad_left", "pad_bottom", "pad_right", "groups"})
    rest += ", " + std::to_string(strategy.parameter(parameter, 0));
  const std::vector<Dim> strides = storage_strides(input);
  const Dim pixel = strides[1 + spatial], row = spatial == 2 || column ? strides[2] : width * pixel;
  std::string call;
  if (algorithm == "gemm") {
    text_.panels = panel_bit(optc_gemm_nr(strategy.parameter("oc", 0)));
    if (strategy.parameter("c", 0) > 1024) {
      uses_scratch_ = true;
      scratch_bytes_ = Dim(192) * Dim((strategy.parameter("oc", 0) + 63) / 64 * 64 * 4);
    }
    if (strategy.parameter("sh", 1) != 1 || strategy.parameter("sw", 1) != 1) text_.panels *= 16;  // rows by a list
    call = "convolve_1x1";
  } else if (algorithm == "depthwise") {
    // Kernel width and stride are constants where that pays.
    const int64_t kw = strategy.parameter("kw", 0), sw = strategy.parameter("sw", 0);
    const bool fixed = kw <= 7 && sw <= 2 && strategy.parameter("dw", 0) == 1;
    call = fixed ? fmt::format("convolve_depthwise<{}, {}>", kw, sw) : "convolve_depthwise<0, 0>";
  } else {
    const bool direct = algorithm == "direct";
    const std::string m = algorithm == "winograd4" ? "4" : "2";
    text_.panels =
        panel_bit(direct ? optc_direct_plan(conv_shape(strategy)).nr : optc_gemm_nr(strategy.parameter("oc", 0)));
    if (direct) text_.panels *= 17;  // within one row of the image or across them
    uses_scratch_ = true;
    text_.scratch_before =
        std::string("4 * ") + (direct ? "optc_direct_plan(" : "optc_winograd_plan(") + "OptcConvShape{";
    text_.scratch_dims = {view.batch, height, width};
    text_.scratch_after = rest + "}" + (direct ? "" : ", " + m) + ").scratch_floats";
    text_.scratch_formula = direct ? direct_scratch_bytes(strategy, height, width)
                                   : winograd_scratch_bytes(strategy, m == "4" ? 4 : 2, view.batch, height, width);
    call = direct ? "convolve_direct" : fmt::format("convolve_winograd<{}>", m);
  }
  print_epilogue(0, row_loops);
  line("// n, h, w, c, oc, kh, kw, strides, dilations, pads, groups");
  line(fmt::format("const OptcConvShape s = {{{}, {}, {}{}}};", dim(view.batch), dim(height), dim(width), rest));
  line(fmt::format("{}(env, s, ConvSource{{{}, {}, {}, {}, {}}}, {}, tile_sink(epilogue));", call, x, dim(strides[0]),
                   dim(row), dim(pixel), dim(strides[1]), w));
  return true;
}

bool NestPrinter::print_attention() {
  const Contraction &c = *nest_.contraction;
  if (c.batch.size() < 2 || c.m.size() != 1 || c.k.size() != 2 || c.n.size() != 2) return false;
  const Stage &last = nest_.stages.back();
  if (last.outputs.size() != 1 || !last.outputs[0].buffer.valid() || last.outputs[0].condition.valid()) return false;
  const Buffer &output = program_.buffer(last.outputs[0].buffer);
  if (output.element() != ElementType::kFloat32) return false;
  // The last stage must be the weighted values over their sum, with nothing behind.
  std::vector<ScalarId> loads;
  collect_loads(program_, last.outputs[0].value, loads);
  if (!loads.empty()) return false;
  std::vector<Loop> loops = nest_.loops;
  for (const Stage &s : nest_.stages) loops.insert(loops.end(), s.loops.begin(), s.loops.end());
  auto extent = [&](const DimSymbol *s) {
    for (const Loop &l : loops)
      if (l.index == s) return l.extent;
    return Dim(1);
  };
  struct Operand {
    std::string p;
    Dim batch, head, row, inner;
  };
  // Strides of the heads of a query: one counter over the groups and the heads in a group.
  bool good = true;
  auto stride = [&](const OperandView &view, const DimSymbol *s) {
    Dim total = 0;
    for (size_t i = 0; i < loops.size(); ++i)
      if (loops[i].index == s) total = total + view.strides[i];
    return total;
  };
  auto heads = [&](const OperandView &view) {
    std::vector<Loop> list;
    std::vector<Dim> strides;
    for (size_t i = 1; i < c.batch.size(); ++i) {
      list.push_back({c.batch[i], extent(c.batch[i])});
      strides.push_back(stride(view, c.batch[i]));
    }
    const auto uniform = uniform_stride(list, strides);
    good = good && uniform.has_value();
    return uniform ? *uniform : Dim(0);
  };
  auto pointer = [&](BufferId buffer, Dim offset) {
    const std::string name = buffer_name(buffer);
    return offset.is(0) ? name : name + " + " + dim(offset, kAddPrecedence);
  };
  auto operand = [&](ScalarId id, const DimSymbol *row, const DimSymbol *inner, bool grouped) {
    const auto view = affine_operand(program_, id, loops);
    if (!view || view->element != ElementType::kFloat32) {
      good = false;
      return Operand();
    }
    Operand o;
    o.batch = stride(*view, c.batch[0]);
    // Keys and values have a head for each group.
    if (grouped && c.batch.size() == 3) {
      o.head = stride(*view, c.batch[1]);
      good = good && stride(*view, c.batch[2]).is(0);
    } else {
      o.head = heads(*view);
    }
    o.row = stride(*view, row);
    good = good && (stride(*view, inner).is(1) || extent(inner).is(1));
    if (good) o.p = pointer(view->buffer, view->offset);
    return o;
  };
  const Operand q = operand(c.query, c.m[0], c.k[1], false);
  if (!good) return false;
  const Operand k = operand(c.key, c.k[0], c.k[1], true);
  if (!good) return false;
  const Operand v = operand(c.value, c.n[0], c.n[1], true);
  if (!good) return false;
  std::string mask = "AttentionMask{nullptr, nullptr, 0, 0, 0, 0}";
  if (c.mask.valid()) {
    const auto view = affine_operand(program_, c.mask, loops);
    if (!view) return false;
    Dim key = 0;
    for (size_t i = nest_.loops.size(); i < loops.size(); ++i) key = key + view->strides[i];
    const Dim head = heads(*view);
    if (!good) return false;
    const bool allowed = view->element == ElementType::kBool;
    if (!allowed && view->element != ElementType::kFloat32) return false;
    const std::string p = pointer(view->buffer, view->offset);
    mask = fmt::format("AttentionMask{{{}, {}, {}, {}, {}, {}}}", allowed ? "nullptr" : p, allowed ? p : "nullptr",
                       dim(stride(*view, c.batch[0])), dim(head), dim(stride(*view, c.m[0])), dim(key));
  }
  float scale = 1;
  if (c.scale.valid()) {
    const Scalar &s = program_.scalars.at(c.scale);
    if (s.op != ScalarOp::kConstant || s.type != ElementType::kFloat32) return false;
    const auto bits = static_cast<uint32_t>(s.bits);
    __builtin_memcpy(&scale, &bits, 4);
  }
  OperandView out;
  out.buffer = last.outputs[0].buffer;
  Dim rest = linear_offset(output, last.outputs[0].index);
  for (const Loop &l : loops) {
    const auto part = affine_in(rest, l.index);
    if (!part) return false;
    out.strides.push_back(part->coefficient);
    rest = part->rest;
  }
  Dim column = 0;
  for (const Loop &l : last.loops) column = column + stride(out, l.index);
  if (!column.is(1) && !extent(c.n[1]).is(1)) return false;
  const Dim out_head = heads(out);
  if (!good) return false;
  const std::string y = pointer(out.buffer, rest);

  text_.headers = {"runtime/cpu/attention.h"};
  text_.plan_headers = {"runtime/cpu/attention_plan.h"};
  Dim head_count = 1;
  for (size_t i = 1; i < c.batch.size(); ++i) head_count = head_count * extent(c.batch[i]);
  const Dim kv_heads = c.batch.size() == 3 ? extent(c.batch[1]) : head_count;
  text_.scratch_before = "4 * optc_attention_scratch_floats(OptcAttention{";
  text_.scratch_dims = {extent(c.batch[0]), head_count,     kv_heads,      extent(c.m[0]),
                        extent(c.k[0]),     extent(c.k[1]), extent(c.n[1])};
  text_.scratch_after = ", 1.0f, 0.0f, false, 0})";
  text_.scratch_formula = attention_scratch_bytes(extent(c.m[0]), extent(c.k[0]), extent(c.k[1]), extent(c.n[1]));
  uses_scratch_ = true;
  std::string dims;
  for (Dim d : text_.scratch_dims) dims += dim(d) + ", ";
  uint32_t scale_bits, cap_bits;
  __builtin_memcpy(&scale_bits, &scale, 4);
  __builtin_memcpy(&cap_bits, &c.softcap, 4);
  line(
      "// batch, heads, key heads, queries, keys, width of keys and of values; scale, softcap, causal and its offset, "
      "zeros for masked rows");
  line(fmt::format("const OptcAttention a = {{{}{}, {}, {}, {}, {}}};", dims,
                   constant_text(ElementType::kFloat32, scale_bits).s, constant_text(ElementType::kFloat32, cap_bits).s,
                   c.causal ? "true" : "false", dim(c.causal_offset), c.zero_masked_rows ? "true" : "false"));
  auto rows = [&](const char *name, const Operand &o) {
    line(fmt::format("const AttentionRows {} = {{{}, {}, {}, {}}};", name, o.p, dim(o.batch), dim(o.head), dim(o.row)));
  };
  const std::string qn = names_.unique("query", 16), kn = names_.unique("key", 16), vn = names_.unique("value", 16);
  rows(qn.c_str(), q);
  rows(kn.c_str(), k);
  rows(vn.c_str(), v);
  const std::string mn = names_.unique("mask", 16), on = names_.unique("output", 16), task = names_.unique("task_", 16);
  line(fmt::format("const AttentionMask {} = {};", mn, mask.substr(std::string("AttentionMask").size())));
  line(fmt::format("const AttentionOutput {} = {{{}, {}, {}, {}}};", on, y, dim(stride(out, c.batch[0])), dim(out_head),
                   dim(stride(out, c.m[0]))));
  open("parallel(env, optc_attention_tasks(a), 1, [&](int64_t begin, int64_t end, uint8_t *scratch) OPTC_TASK");
  open(fmt::format("for (int64_t {0} = begin; {0} < end; ++{0})", task));
  line(fmt::format("attention(a, {}, {}, {}, {}, {}, reinterpret_cast<float *>(scratch), {});", task, qn, kn, vn, mn,
                   on));
  close();
  close("});");
  return true;
}

}  // namespace optc
