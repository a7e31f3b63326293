// Contractions by the templates of runtime/cpu: matrix products, convolutions, attention. The kernel's function calls
// the template for each task; the stages behind the sum become the sink that it calls with vectors of finished sums.
#include <fmt/format.h>

#include <algorithm>

#include "emit/cpp/nest.h"
#include "emit/cpp/types.h"
#include "runtime/cpu/conv_transposed_plan.h"

namespace optc {

int panel_bits(const OptcPanels &panels) {
  const auto bit = [](int width) { return width == 64 ? 8 : width == 48 ? 4 : width / 16; };
  return bit(panels.width) | (panels.others > 0 ? bit(panels.other) : 0);
}

namespace {

constexpr int kAllPanels = 15;

bool is_f64(const Program &program, BufferId b) { return program.buffer(b).element() == ElementType::kFloat64; }

// Of an unknown image.
OptcConvShape conv_shape(const Program &program, const ConvolutionOperands &operands) {
  const ConvolutionGeometry &g = operands.geometry;
  OptcConvShape s{};
  s.element = is_f64(program, operands.input) ? 8 : 4;
  s.c = g.channels, s.oc = g.filters, s.groups = g.groups;
  s.kd = g.kernel[0], s.kh = g.kernel[1], s.kw = g.kernel[2];
  s.sd = g.strides[0], s.sh = g.strides[1], s.sw = g.strides[2];
  s.dd = g.dilations[0], s.dh = g.dilations[1], s.dw = g.dilations[2];
  s.pad_front = g.pads_begin[0], s.pad_top = g.pads_begin[1], s.pad_left = g.pads_begin[2];
  s.pad_back = g.pads_end[0], s.pad_bottom = g.pads_end[1], s.pad_right = g.pads_end[2];
  return s;
}

}  // namespace

bool NestPrinter::print_template() {
  return std::visit([this](const auto &schedule) { return print_as(schedule); }, kernel_.schedule);
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
      "const auto epilogue = [&]({} {}, [[maybe_unused]] int64_t {}, [[maybe_unused]] int64_t {}, auto n) OPTC_LAMBDA",
      lane_type_name(lane_class(nest_.locals[total.index].type)), local_names_[total.index], row,
      symbol(*column.index)));
  if (row_loops > 1) decode(row, batch_loops, row_loops);
  lane_count_ = "n";
  for (size_t i = sum + 1; i < plans_.size(); ++i) print_stage(i);
  lane_count_.clear();
  close("};");
}

std::string NestPrinter::batch_base(const std::string &name, const OperandView &operand,
                                    const std::vector<Loop> &batch) {
  Dim offset = fix(operand.offset);
  for (size_t i = 0; i < batch.size(); ++i)
    if (!batch[i].extent.is(1)) offset = offset + operand.strides[i] * program_.dims->symbol_value(batch[i].index);
  return offset.is(0) ? name : name + " + " + dim(offset, kAddPrecedence);
}

Dim NestPrinter::iterations(const std::vector<Loop> &loops) const {
  Dim count = 1;
  for (const Loop &l : loops) count = count * fix(l.extent);
  return count;
}

// A parallel loop over the tiles of a `plan` (`tasks`(plan) of them) in every iteration of `batch`, with the epilogue;
// the number of the tile in the plan. To be closed twice, the second time with "});".
std::string NestPrinter::open_tiles(const std::string &tasks, const std::vector<Loop> &batch, size_t row_loops,
                                    const std::string &scratch) {
  const Dim batches = iterations(batch);
  const std::string total =
      batches.is(1) ? tasks + "(plan)" : fmt::format("{}(plan) * {}", tasks, dim(batches, kUnaryPrecedence));
  open(fmt::format("parallel(env, {}, 1, [&](int64_t begin, int64_t end, uint8_t *{}) OPTC_TASK", total, scratch));
  if (batch.empty()) print_epilogue(0, row_loops);
  const std::string task = names_.unique("task_", 16);
  open(fmt::format("for (int64_t {0} = begin; {0} < end; ++{0})", task));
  if (batch.empty()) return task;
  const std::string which = names_.unique("batch", 16);
  line(fmt::format("const int64_t {} = {} / {}(plan);", which, task, tasks));
  decode(which, 0, batch.size());
  print_epilogue(batch.size(), row_loops);
  return fmt::format("{} % {}(plan)", task, tasks);
}

namespace {

const char *stored_type(ElementType type) {
  return type == ElementType::kFloat16    ? "StoredF16"
         : type == ElementType::kBFloat16 ? "StoredBF16"
         : type == ElementType::kFloat64  ? "StoredF64"
                                          : "StoredF32";
}

}  // namespace

bool NestPrinter::print_as(const GemmSchedule &schedule) {
  if (is_byte(schedule.view.a.element)) return print_integer_gemm(schedule);
  const GemmView &view = schedule.view;
  const bool packed = schedule.packed.buffer.valid(), stored = widens(view);
  if (!plan_epilogue(view.batch, view.m, view.n)) return false;
  std::vector<Loop> batch = view.batch;
  drop_unit_loops(batch);
  text_.headers = {stored ? "runtime/cpu/gemm_stored.h" : "runtime/cpu/gemm.h", "runtime/bundle/sinks.h"};
  text_.plan_headers = {"runtime/cpu/gemm_plan.h"};
  const size_t row_loops = outer_.size() - batch.size() - 1;
  const std::string a = buffer_name(view.a.buffer);
  name_loads(1);
  const std::string b = buffer_name(packed ? schedule.packed.buffer : view.b.buffer);
  name_stores();

  const std::string m = dim(view.rows), n = dim(view.columns), k = dim(view.inner);
  const bool f64 = view.a.element == ElementType::kFloat64;
  const char *type = f64 ? "double" : "float", *rows_type = f64 ? "GemmRowsOf<double>" : "GemmRows";
  const std::string sink = f64 ? "tile_sink<double>(epilogue)" : "tile_sink(epilogue)";
  text_.panels =
      view.columns.is_constant() ? panel_bits(optc_gemm_panels(view.columns.value(), f64 ? 8 : 4)) : kAllPanels;
  const bool in_output = schedule.partial == GemmSchedule::Partial::kOutput;
  use_task_scratch(schedule.scratch_bytes);
  const Dim partial_at = packed ? Dim(0) : Dim(1024 * 64 * 4);  // behind the packed block
  auto base = [&](const std::string &name, const OperandView &operand) {
    return batch_base(name, operand, view.batch);
  };
  const std::string output = buffer_name(nest_.stages.back().outputs[0].buffer);
  if (batch.empty() && packed && !stored) {
    print_epilogue(0, row_loops);
    line(fmt::format("multiply(env, optc_gemm_plan({}, {}, {}, env.threads{}), {}{{{}, {}}}, {}, {}, {});", m, n, k,
                     f64 ? ", 1, 8" : "", rows_type, base(a, view.a), dim(view.a_row), b,
                     in_output ? output + ", " + n : "nullptr, 0", sink));
    return true;
  }
  const Dim copies = iterations(batch);
  line(fmt::format("const OptcGemm plan = optc_gemm_plan({}, {}, {}, env.threads{}{});", m, n, k,
                   copies.is(1) && !f64 ? "" : ", " + dim(copies), f64 ? ", 8" : ""));
  const std::string tile = open_tiles("optc_gemm_tasks", batch, row_loops, uses_scratch_ ? "scratch" : "");
  std::string partial = "nullptr, 0";
  if (in_output) {
    partial = fmt::format("{}, {}", output, n);
  } else if (schedule.partial == GemmSchedule::Partial::kScratch && !stored) {
    line(fmt::format("const OptcGemmTask part = optc_gemm_task(plan, {});", tile));
    line(fmt::format("{0} *partial = reinterpret_cast<{0} *>(scratch + {1}) - part.m0 * (part.n1 - part.n0) - part.n0;",
                     type, dim(partial_at, kAddPrecedence)));
    partial = "partial, part.n1 - part.n0";
  }
  if (stored) {
    const std::string b_type = stored_type(view.b.element);
    const std::string columns = packed ? fmt::format("StoredColumns<{}>{{{}, true, 0, 0}}", b_type, b)
                                       : fmt::format("StoredColumns<{}>{{{}, false, {}, {}}}", b_type, base(b, view.b),
                                                     dim(view.b_inner), dim(view.b_column));
    line(fmt::format("gemm_stored(plan, {}, StoredRows<{}>{{{}, {}, {}}}, {},", tile, stored_type(view.a.element),
                     base(a, view.a), dim(view.a_row), dim(view.a_inner), columns));
    line(fmt::format("            {}, reinterpret_cast<{} *>(scratch), {});", partial, type, sink));
    close();
    close("});");
    return true;
  }
  const std::string rows_text = fmt::format("{}{{{}, {}}}", rows_type, base(a, view.a), dim(view.a_row));
  if (packed)
    line(fmt::format("gemm(plan, {}, {}, {}, {}, {});", tile, rows_text, b, partial, sink));
  else
    line(fmt::format("gemm_unpacked(plan, {}, {}, {}, {}, {}, {}, reinterpret_cast<{} *>(scratch), {});", tile,
                     rows_text, base(b, view.b), dim(view.b_inner), dim(view.b_column), partial, type, sink));
  close();
  close("});");
  return true;
}

// What all convolutions print: the shape, and the call of `function` with what finishes the sums.
bool NestPrinter::print_convolution(const ConvolutionOperands &operands, const char *header,
                                    const std::string &function, Dim scratch, const ZeroPoints *zeros, bool is_signed) {
  if (!operands.weight.buffer.valid() || !plan_epilogue({}, pixel_loops(nest_), column_loops(nest_))) return false;
  text_.headers = {"runtime/bundle/sinks.h", header};
  text_.plan_headers = {zeros                           ? "runtime/cpu/conv_i8_plan.h"
                        : nest_.contraction->transposed ? "runtime/cpu/conv_transposed_plan.h"
                                                        : "runtime/cpu/conv_plan.h"};
  const std::string x = buffer_name(operands.input);
  name_loads(1);
  const std::string w = buffer_name(operands.weight.buffer);
  name_stores();
  use_task_scratch(scratch);
  const ConvolutionGeometry &g = operands.geometry;
  std::string rest;
  for (int64_t n : {g.channels, g.filters, g.kernel[1], g.kernel[2], g.strides[1], g.strides[2], g.dilations[1],
                    g.dilations[2], g.pads_begin[1], g.pads_begin[2], g.pads_end[1], g.pads_end[2], g.groups})
    rest += ", " + std::to_string(n);
  const bool volume = nest_.contraction->kernel.size() == 3, f64 = is_f64(program_, operands.input);
  if (volume) {
    rest += ", " + dim(operands.depth);
    for (const auto *list : {&g.kernel, &g.strides, &g.dilations, &g.pads_begin, &g.pads_end})
      rest += ", " + std::to_string((*list)[0]);
  }
  print_epilogue(0, outer_.size() - 1);
  line(fmt::format("// n, h, w, c, oc, kh, kw, strides, dilations, pads, groups{}",
                   volume ? "; d, kd, its stride, dilation and pads" : ""));
  line(fmt::format("const OptcConvShape s = {}{{{}, {}, {}{}}}{};", f64 ? "optc_of_double(" : "", dim(operands.batch),
                   dim(operands.height), dim(operands.width), rest, f64 ? ")" : ""));
  const std::string source =
      fmt::format("{}, {}, {}, {}, {}{}", x, dim(operands.image_stride), dim(operands.row_stride),
                  dim(operands.pixel_stride), dim(operands.channel_stride),
                  volume  ? ", " + dim(operands.plane_stride)
                  : zeros ? ", 0"
                          : "");
  if (!zeros) {
    line(fmt::format("{}(env, s, {}{{{}}}, {}, {});", function, f64 ? "ConvSourceOf<double>" : "ConvSource", source, w,
                     f64 ? "tile_sink<double>(epilogue)" : "tile_sink(epilogue)"));
    return true;
  }
  line(fmt::format("{}(env, s, conv_i8_source({}, {}),", function, source, zero_point_text(zeros->a, {})));
  line(fmt::format("    {}, {}, {}, tile_sink<int32_t>(epilogue));", w, is_signed ? "true" : "false",
                   zero_point_text(zeros->b, {})));
  return true;
}

bool NestPrinter::print_as(const ConvolutionGemmSchedule &s) {
  const ConvolutionGeometry &g = s.operands.geometry;
  text_.panels = panel_bits(optc_gemm_panels(g.filters, is_f64(program_, s.operands.input) ? 8 : 4));
  if (g.strides[1] != 1 || g.strides[2] != 1) text_.panels *= 16;  // rows by a list
  return print_convolution(s.operands, "runtime/cpu/conv.h", "convolve_1x1", s.scratch_bytes);
}

bool NestPrinter::print_as(const ConvolutionDirectSchedule &s) {
  // Within one row of the image or across them.
  text_.panels = 17 * panel_bits(optc_direct_plan(conv_shape(program_, s.operands)).panels);
  return print_convolution(s.operands, "runtime/cpu/conv.h", "convolve_direct", s.scratch_bytes);
}

bool NestPrinter::print_as(const ConvolutionTransposedSchedule &s) {
  const OptcConvShape shape = conv_shape(program_, s.operands);
  OptcTransposedPart part = optc_transposed_part(shape, 0, 0, 0);
  do {
    text_.panels |= 17 * panel_bits(optc_direct_plan(part.direct).panels);
  } while (optc_transposed_next(shape, part));
  return print_convolution(s.operands, "runtime/cpu/conv_transposed.h", "convolve_transposed", s.scratch_bytes);
}

bool NestPrinter::print_as(const ConvolutionDepthwiseSchedule &s) {
  const ConvolutionGeometry &g = s.operands.geometry;
  return print_convolution(
      s.operands, "runtime/cpu/depthwise.h",
      s.fixed ? fmt::format("convolve_depthwise<{}, {}>", g.kernel[2], g.strides[2]) : "convolve_depthwise<0, 0>", 0);
}

bool NestPrinter::print_as(const ConvolutionWinogradSchedule &s) {
  text_.panels = panel_bits(optc_gemm_panels(s.operands.geometry.filters));
  return print_convolution(s.operands, "runtime/cpu/winograd.h", fmt::format("convolve_winograd<{}>", s.tile),
                           s.scratch_bytes);
}

bool NestPrinter::print_as(const AttentionSchedule &s) {
  text_.headers = {"runtime/cpu/attention.h"};
  text_.plan_headers = {"runtime/cpu/attention_plan.h"};
  use_task_scratch(s.scratch_bytes);
  auto pointer = [&](BufferId buffer, Dim offset, const char *role) {
    const std::string name = buffer_name(buffer, role);
    return offset.is(0) ? name : name + " + " + dim(offset, kAddPrecedence);
  };
  // Arguments in this order.
  const std::string query = pointer(s.query.buffer, s.query.offset, "q"),
                    key = pointer(s.key.buffer, s.key.offset, "k"),
                    value = pointer(s.value.buffer, s.value.offset, "v");
  std::string mask = "{nullptr, nullptr, 0, 0, 0, 0}";
  if (s.mask.buffer.valid()) {
    const std::string p = pointer(s.mask.buffer, s.mask.offset, "mask");
    mask = fmt::format("{{{}, {}, {}, {}, {}, {}}}", s.mask.allowed ? "nullptr" : p, s.mask.allowed ? p : "nullptr",
                       dim(s.mask.batch), dim(s.mask.head), dim(s.mask.query), dim(s.mask.key));
  }
  const std::string output = pointer(s.output.buffer, s.output.offset, "y");
  std::string dims;
  for (Dim d : {s.batch, s.heads, s.kv_heads, s.queries, s.keys, s.width, s.value_width}) dims += dim(d) + ", ";
  uint32_t scale_bits, cap_bits;
  __builtin_memcpy(&scale_bits, &s.scale, 4);
  __builtin_memcpy(&cap_bits, &s.softcap, 4);
  line(
      "// batch, heads, key heads, queries, keys, width of keys and of values; scale, softcap, causal and its offset, "
      "what masked rows give");
  static constexpr const char *kMaskedRows[] = {"OPTC_ROWS_NAN", "OPTC_ROWS_ZERO_PROBABILITIES",
                                                "OPTC_ROWS_ZERO_RESULT"};
  line(fmt::format("const OptcAttention a = {{{}{}, {}, {}, {}, {}}};", dims,
                   constant_text(ElementType::kFloat32, scale_bits).s, constant_text(ElementType::kFloat32, cap_bits).s,
                   s.causal ? "true" : "false", dim(s.causal_offset), kMaskedRows[static_cast<size_t>(s.masked_rows)]));
  const std::string qn = names_.unique("query", 16), kn = names_.unique("key", 16), vn = names_.unique("value", 16);
  auto rows = [&](const char *type, const std::string &name, const std::string &pointer_text, const AttentionRows &r) {
    line(fmt::format("const {} {} = {{{}, {}, {}, {}}};", type, name, pointer_text, dim(r.batch), dim(r.head),
                     dim(r.row)));
  };
  rows("AttentionRows", qn, query, s.query);
  rows("AttentionRows", kn, key, s.key);
  rows("AttentionRows", vn, value, s.value);
  const std::string mn = names_.unique("mask", 16), on = names_.unique("output", 16), task = names_.unique("task_", 16);
  line(fmt::format("const AttentionMask {} = {};", mn, mask));
  rows("AttentionOutput", on, output, s.output);
  open("parallel(env, optc_attention_tasks(a), 1, [&](int64_t begin, int64_t end, uint8_t *scratch) OPTC_TASK");
  open(fmt::format("for (int64_t {0} = begin; {0} < end; ++{0})", task));
  line(fmt::format("attention(a, {}, {}, {}, {}, {}, reinterpret_cast<float *>(scratch), {});", task, qn, kn, vn, mn,
                   on));
  close();
  close("});");
  return true;
}

}  // namespace optc
