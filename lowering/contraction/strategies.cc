#include "lowering/contraction/strategies.h"

#include <algorithm>
#include <utility>

#include "evaluate/pack.h"
#include "ir/program/contraction_view.h"
#include "lowering/fusion/fusion.h"

namespace optc {
namespace {

class Chooser {
 public:
  Chooser(Program &program, const LoweringOptions &options, Steps &steps)
      : p_(program), options_(options), steps_(steps) {}

  void run() {
    for (size_t i = 0; i < p_.kernels.size(); ++i) {
      if (!p_.kernels[i].alive) continue;
      if (p_.kernels[i].nest()) choose(KernelId(i));
      if (p_.kernels[i].library() && options_.target == LoweringOptions::Target::kCpu) recurrent(KernelId(i));
    }
  }

 private:
  void choose(KernelId id) {
    Kernel &kernel = p_.kernel(id);
    const LoopNest &nest = *kernel.nest();
    if (nest.contraction && options_.target == LoweringOptions::Target::kCpu) {
      if (nest.contraction->kind == ContractionKind::kMatMul && gemm(id)) return;
      if (nest.contraction->kind == ContractionKind::kConvolution && convolution(id)) return;
      if (nest.contraction->kind == ContractionKind::kAttention && attention(id)) return;
    }
    if (nest.contraction) {
      kernel.strategy.name = "loops";
    } else if (is_map(kernel)) {
      kernel.strategy.name = "pointwise";
    } else {
      const bool rows = !nest.sequential && std::all_of(nest.stages.begin(), nest.stages.end(),
                                                        [](const Stage &s) { return s.loops.size() <= 1; });
      kernel.strategy.name = rows ? "rows" : "loops";
    }
  }

  // Every strategy but the plain ones (pointwise, rows, loops) is a step.
  bool allowed(const std::string &name) const { return steps_.allowed("schedule." + name); }
  void take(KernelId id, Strategy strategy) {
    steps_.record("schedule." + strategy.name, p_.kernel(id).name);
    p_.kernel(id).strategy = std::move(strategy);
  }

  bool is_f32(BufferId b) const { return p_.buffer(b).element() == ElementType::kFloat32; }

  // One constant for each distinct content and layout.
  BufferId packed_buffer(const std::string &name, Constant value) {
    for (size_t i = 0; i < p_.buffers.size(); ++i)
      if (p_.buffers[i].kind == BufferKind::kConstant && p_.buffers[i].name.size() > 7 &&
          p_.buffers[i].name.find("_packed") != std::string::npos && p_.buffers[i].constant.equals(value))
        return BufferId(i);
    Buffer buffer;
    buffer.name = name + "_packed";
    buffer.kind = BufferKind::kConstant;
    buffer.type = Type::tensor(value.type(), value.shape());
    buffer.constant = std::move(value);
    return p_.add_buffer(std::move(buffer));
  }

  bool gemm(KernelId id) {
    if (!allowed("gemm")) return false;
    const auto view = gemm_view(p_, p_.kernel(id));
    if (!view || !is_f32(view->a.buffer) || !is_f32(view->b.buffer) ||
        p_.scalars.at(p_.kernel(id).nest()->contraction->lhs).type != ElementType::kFloat32)
      return false;
    if (!view->columns.is_constant() || !view->inner.is_constant()) {
      // Shapes known at run time only: B is given at run time too (attention-like products).
      if (p_.buffer(view->b.buffer).kind == BufferKind::kConstant) return false;
    }
    if (!view->a_inner.is(1) && !view->inner.is(1)) return false;
    if (!epilogue_is_row_wise(p_, p_.kernel(id))) return false;
    const Buffer &b = p_.buffer(view->b.buffer);
    bool batched = false;
    for (size_t i = 0; i < view->batch.size(); ++i) batched |= !view->b.strides[i].is(0);
    Strategy strategy;
    strategy.name = "gemm";
    if (b.kind == BufferKind::kConstant && !batched && view->b.offset.is_constant() && view->b_inner.is_constant() &&
        view->b_column.is_constant()) {
      strategy.parameters = {{"b_constant", 1}};
      strategy.packed.push_back(
          packed_buffer(b.name, pack_gemm(b.constant, view->b.offset.value(), view->inner.value(),
                                          view->columns.value(), view->b_inner.value(), view->b_column.value())));
    } else {
      strategy.parameters = {{"b_constant", 0}};
    }
    take(id, std::move(strategy));
    return true;
  }

  bool convolution(KernelId id) {
    const auto view = convolution_view(p_, p_.kernel(id));
    if (!view || !is_f32(view->input) || !is_f32(view->weight) || p_.buffer(view->weight).kind != BufferKind::kConstant)
      return false;
    const Contraction &info = *view->info;
    const size_t spatial = info.kernel.size();
    if (spatial < 1 || spatial > 2 || !view->in_channels.is_constant() || !view->out_channels.is_constant())
      return false;
    if (!epilogue_is_row_wise(p_, p_.kernel(id))) return false;
    ConvolutionShape shape;
    shape.channels = view->in_channels.value();
    shape.filters = view->out_channels.value();
    shape.groups = info.group;
    auto constant = [](Dim d) { return d.is_constant() ? d.value() : 0; };
    shape.height = spatial == 2 ? constant(view->in_spatial[0]) : 1;
    shape.width = constant(view->in_spatial[spatial - 1]);
    for (size_t i = 0; i < spatial; ++i) {
      const size_t at = i + 2 - spatial;
      shape.kernel[at] = info.kernel[i];
      shape.strides[at] = info.strides[i];
      shape.dilations[at] = info.dilations[i];
      shape.pads_begin[at] = info.pads_begin[i];
      shape.pads_end[at] = info.pads_end[i];
    }
    if (shape.width == 0) shape.height = 0;  // the rule knows both or neither
    if (shape.height == 0) shape.width = 0;
    ConvolutionAlgorithm algorithm =
        options_.winograd == LoweringOptions::Winograd::kOff
            ? ConvolutionAlgorithm::kDirect
            : convolution_algorithm(shape, options_.winograd == LoweringOptions::Winograd::kStrict);
    if (options_.winograd == LoweringOptions::Winograd::kOff) {
      const ConvolutionAlgorithm rule = convolution_algorithm(shape, true);
      if (rule == ConvolutionAlgorithm::kGemm || rule == ConvolutionAlgorithm::kDepthwise) algorithm = rule;
    }
    static constexpr const char *kNames[] = {"conv.gemm", "conv.direct", "conv.depthwise", "conv.winograd2",
                                             "conv.winograd4"};
    auto name = [&] { return std::string(kNames[static_cast<size_t>(algorithm)]); };
    if (!allowed(name())) algorithm = ConvolutionAlgorithm::kDirect;
    if (!allowed(name())) return false;
    if (algorithm != ConvolutionAlgorithm::kDirect && !last_is_channel(view->input)) return false;
    if (spatial == 1 && algorithm == ConvolutionAlgorithm::kDirect) {
      // A line is a column of one-pixel rows: bands of rows are what tasks divide and copy.
      std::swap(shape.height, shape.width);
      for (auto *pair : {&shape.kernel, &shape.strides, &shape.dilations, &shape.pads_begin, &shape.pads_end})
        std::swap((*pair)[0], (*pair)[1]);
    }
    Strategy strategy;
    strategy.name = name();
    strategy.parameters = {{"c", shape.channels},
                           {"oc", shape.filters},
                           {"groups", shape.groups},
                           {"kh", shape.kernel[0]},
                           {"kw", shape.kernel[1]},
                           {"sh", shape.strides[0]},
                           {"sw", shape.strides[1]},
                           {"dh", shape.dilations[0]},
                           {"dw", shape.dilations[1]},
                           {"pad_top", shape.pads_begin[0]},
                           {"pad_left", shape.pads_begin[1]},
                           {"pad_bottom", shape.pads_end[0]},
                           {"pad_right", shape.pads_end[1]}};
    const Buffer weight = p_.buffer(view->weight);
    strategy.packed.push_back(packed_buffer(weight.name, pack_convolution(weight.constant, shape, algorithm)));
    take(id, std::move(strategy));
    return true;
  }

  // LSTM, GRU, RNN of f32 with constant weights, all steps live and no clip: runtime/cpu/rnn.h. Else the library
  // function runs.
  void recurrent(KernelId id) {
    const LibraryCall call = *p_.kernel(id).library();
    if (call.function != "rnn" || !allowed("rnn")) return;
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      if (!call.inputs[i].valid()) continue;
      const Buffer &b = p_.buffer(call.inputs[i]);
      if (i == 4 || !is_f32(call.inputs[i]) || !b.order.empty() || !b.padded.empty()) return;
      if (i >= 1 && i <= 3 && (b.kind != BufferKind::kConstant || b.alias.valid())) return;
    }
    for (BufferId o : call.outputs)
      if (o.valid() && (!is_f32(o) || !p_.buffer(o).order.empty() || !p_.buffer(o).padded.empty())) return;
    auto integer = [&](std::string_view name, int64_t fallback) {
      for (const auto &[key, value] : call.attributes)
        if (key == name)
          if (const auto *n = std::get_if<int64_t>(&value)) return *n;
      return fallback;
    };
    bool reverse = false;
    for (const auto &[key, value] : call.attributes) {
      if (key == "clip")
        if (const auto *clip = std::get_if<float>(&value); clip && *clip > 0) return;
      if (key == "direction")
        if (const auto *text = std::get_if<std::string>(&value)) reverse = *text == "reverse";
    }
    const Buffer w = p_.buffer(call.inputs[1]), r = p_.buffer(call.inputs[2]);
    const int64_t layout = integer("layout", 0), gates = integer("gates", 1), directions = w.constant.dims()[0];
    RecurrentShape shape{gates, w.constant.dims()[2], r.constant.dims()[2], integer("linear_before_reset", 0) != 0};
    if (shape.input < 1 || shape.hidden < 1) return;
    const Shape x = p_.buffer(call.inputs[0]).shape();
    Strategy strategy;
    strategy.name = "rnn";
    strategy.parameters = {{"gates", gates},           {"input", shape.input}, {"hidden", shape.hidden},
                           {"directions", directions}, {"layout", layout},     {"reverse", reverse ? 1 : 0}};
    Constant bias;
    if (call.inputs.size() > 3 && call.inputs[3].valid()) bias = p_.buffer(call.inputs[3]).constant;
    for (int64_t d = 0; d < directions; ++d) {
      PackedRecurrent packed = pack_recurrent(shape, d, w.constant, r.constant, bias.valid() ? &bias : nullptr);
      strategy.packed.push_back(packed_buffer(w.name, std::move(packed.w)));
      strategy.packed.push_back(packed_buffer(r.name, std::move(packed.r)));
      strategy.packed.push_back(packed_buffer(w.name + "_bias", std::move(packed.bias)));
    }
    Buffer sums;
    sums.name = p_.kernel(id).name + "_sums";
    sums.kind = BufferKind::kScratch;
    sums.type = Type::tensor(ElementType::kFloat32, Shape{x[0] * x[1], Dim(gates * shape.hidden)});
    strategy.scratch.push_back(p_.add_buffer(std::move(sums)));
    take(id, std::move(strategy));
  }

  // Stored with the channel innermost (or there is but one, or one pixel).
  bool last_is_channel(BufferId id) const {
    const Buffer &b = p_.buffer(id);
    if (!b.order.empty()) return b.order.back() == 1 && b.order.front() == 0;
    if (b.shape()[1].is(1)) return true;
    for (size_t i = 2; i < b.shape().size(); ++i)
      if (!b.shape()[i].is(1)) return false;
    return true;
  }

  bool attention(KernelId id) {
    if (!allowed("attention")) return false;
    const LoopNest &nest = *p_.kernel(id).nest();
    const Contraction &c = *nest.contraction;
    std::vector<Loop> loops = nest.loops;
    for (const Stage &s : nest.stages) loops.insert(loops.end(), s.loops.begin(), s.loops.end());
    for (ScalarId operand : {c.query, c.key, c.value}) {
      const auto view = affine_operand(p_, operand, loops);
      if (!view || view->element != ElementType::kFloat32) return false;
    }
    if (c.mask.valid()) {
      const auto view = affine_operand(p_, c.mask, loops);
      if (!view || (view->element != ElementType::kFloat32 && view->element != ElementType::kBool)) return false;
    }
    if (c.scale.valid() && p_.scalars.at(c.scale).op != ScalarOp::kConstant) return false;
    if (nest.stages.back().outputs.size() != 1) return false;
    Strategy strategy;
    strategy.name = "attention";
    take(id, std::move(strategy));
    return true;
  }

  Program &p_;
  const LoweringOptions &options_;
  Steps &steps_;
};

}  // namespace

void choose_strategies(Program &program, const LoweringOptions &options, Steps &steps) {
  Chooser(program, options, steps).run();
}

}  // namespace optc
