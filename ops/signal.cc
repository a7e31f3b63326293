// DFT, STFT, MelWeightMatrix, Det, Inverse and the window functions: library functions (runtime/cpu/lib_signal.h),
// windows as loops.

#include "ops/build.h"
#include "ops/registry.h"
#include "ops/steps.h"
#include "ops/util.h"

namespace optc {
namespace {

using Dims = std::vector<Dim>;

std::optional<Dim> scalar_of(InferContext &c, size_t i) {
  const Dims *known = c.has_input(i) ? c.elements(i) : nullptr;
  if (known && known->size() == 1) return (*known)[0];
  return std::nullopt;
}

Status infer_dft(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  const Shape in = c.shape(0);
  if (in.size() < 2) return c.invalid("the input must have rank 2 or more");
  const bool inverse = c.node().int_or("inverse", 0) != 0, onesided = c.node().int_or("onesided", 0) != 0;
  Shape out = in;
  auto axis = c.has_input(2) ? scalar_of(c, 2) : std::optional<Dim>(Dim(-2));
  auto length = scalar_of(c, 1);
  if (axis && axis->is_constant()) {
    OPTC_ASSIGN(int64_t at, c.axis(axis->value(), c.rank(0)));
    if (at == c.rank(0) - 1) return c.invalid("axis is the one of real and imaginary parts");
    const size_t k = static_cast<size_t>(at);
    if (!c.has_input(1)) length = inverse && onesided ? (in[k] - 1) * 2 : in[k];
    if (length) {
      out[k] = onesided && !inverse ? floor_div(*length, 2) + 1 : *length;
    } else {
      out[k] = c.run_time_size(0, k);
    }
  } else {
    for (size_t k = 0; k + 1 < in.size(); ++k) out[k] = c.run_time_size(0, k);
  }
  out.back() = inverse && onesided ? 1 : 2;
  c.set_tensor(0, c.element(0), std::move(out));
  return {};
}
Status build_call(BuildContext &c, const char *function) {
  std::vector<BufferId> inputs;
  for (size_t i = 0; i < c.node().inputs.size(); ++i) inputs.push_back(c.has_input(i) ? c.input(i) : BufferId());
  c.library(function, inputs, {c.output(0)}, c.node().attributes, output_symbols(c, 0));
  return {};
}
Status build_dft(BuildContext &c) { return build_call(c, "dft"); }

Status infer_stft(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  const Shape in = c.shape(0);
  if (in.size() != 3 && in.size() != 2) return c.invalid("the signal must have rank 3");
  if (c.has_input(2)) {
    OPTC_TRY(c.require_shape(2));
    if (c.rank(2) != 1) return c.invalid("the window must be a vector");
  }
  auto step = scalar_of(c, 1);
  std::optional<Dim> length = scalar_of(c, 3);
  if (!c.has_input(3)) length = c.has_input(2) ? c.shape(2)[0] : in[1];
  Shape out = {in[0], {}, {}, 2};
  if (step && step->is_constant() && step->value() < 1) return c.invalid("frame_step must be positive");
  out[1] =
      step && step->is_constant() && length ? floor_div(in[1] - *length, step->value()) + 1 : c.run_time_size(0, 1);
  // The first half of a complex signal's spectrum, too, as ONNX's reference and ONNX Runtime have it.
  out[2] = !length ? c.run_time_size(0, 2) : c.node().int_or("onesided", 1) != 0 ? floor_div(*length, 2) + 1 : *length;
  c.set_tensor(0, c.element(0), std::move(out));
  return {};
}
Status build_stft(BuildContext &c) { return build_call(c, "stft"); }

Status infer_mel(InferContext &c) {
  auto mels = scalar_of(c, 0), length = scalar_of(c, 1);
  const auto type = static_cast<ElementType>(c.node().int_or("output_datatype", 1));
  c.set_tensor(0, type,
               {length ? floor_div(*length, 2) + 1 : c.run_time_size(0, 0), mels ? *mels : c.run_time_size(0, 1)});
  return {};
}
Status build_mel(BuildContext &c) { return build_call(c, "mel_weights"); }

Status require_square(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  const Shape &in = c.shape(0);
  if (in.size() < 2) return c.invalid("the input must have rank 2 or more");
  OPTC_TRY(c.same(in[in.size() - 1], in[in.size() - 2], "the rows and columns"));
  return {};
}
Status infer_det(InferContext &c) {
  OPTC_TRY(require_square(c));
  Shape out = c.shape(0);
  out.resize(out.size() - 2);
  c.set_tensor(0, c.element(0), std::move(out));
  return {};
}
Status build_det(BuildContext &c) {
  c.library("det", {c.input(0)}, {c.output(0)});
  return {};
}

// com.microsoft.Inverse, which ONNX has no schema of.
Status infer_inverse(InferContext &c) {
  OPTC_TRY(require_square(c));
  if (!is_float(c.element(0))) return c.invalid("the input must be a tensor of floats");
  c.set_tensor(0, c.element(0), c.shape(0));
  return {};
}
Status build_inverse(BuildContext &c) {
  c.library("inverse", {c.input(0)}, {c.output(0)});
  return {};
}

// DFT-17 had the axis as an attribute, 1 by default.
Status dft_axis(Graph &graph, NodeId node, Diagnostics &) {
  const int64_t axis = graph.node(node).int_or("axis", 1);
  graph.remove_attribute(node, "axis");
  graph.set_input(node, 2,
                  graph.add_constant(graph.unique_name(graph.node(node).name + "_axis"), Constant::scalar_int64(axis)));
  return {};
}
Status dft_axis_down(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  const Node &n = graph.node(node);
  int64_t axis = -2;
  if (n.input(2).valid()) {
    const Constant *constant = graph.constant(n.input(2));
    if (!constant) return cannot_lower(graph, node, "a DFT along a computed axis", 20, diagnostics);
    axis = constant->as_int64(0);
    graph.set_input(node, 2, ValueId());
  }
  const Type &type = graph.value(n.input(0)).type;
  if (axis < 0 && type.has_shape()) axis += type.rank();
  graph.set_attribute(node, "axis", axis);
  return {};
}

const VersionStep kDftSteps[] = {{20, dft_axis, dft_axis_down}};

const OpDef kOps[] = {
    {"DFT", OpForm::kLibrary, 20, infer_dft, build_dft, kDftSteps},
    {"STFT", OpForm::kLibrary, 17, infer_stft, build_stft},
    {"MelWeightMatrix", OpForm::kLibrary, 17, infer_mel, build_mel},
    {"Det", OpForm::kLibrary, 22, infer_det, build_det},
    {"com.microsoft.Inverse", OpForm::kLibrary, 1, infer_inverse, build_inverse, {}, true, {"X", "Y", ""}},
};

}  // namespace

std::span<const OpDef> signal_ops() { return kOps; }

}  // namespace optc
