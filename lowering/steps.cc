#include "lowering/steps.h"

#include <algorithm>

namespace optc {
namespace {

constexpr LoweringStepInfo kSteps[] = {
    {"layout.attention", "an attention's result [b, h, s, d] is stored as [b, s, h, d]",
     "a temporary without views that loop nests alone touch"},
    {"layout.channels_last", "a tensor of convolutions is stored with its channels innermost",
     "a temporary without views that loop nests alone touch"},
    {"layout.copy", "a convolution reads or writes a channels-last copy of a row-major tensor",
     "its strategy walks channels innermost"},
    {"fuse.epilogue", "a map behind a product, convolution or reduction runs on the finished sums",
     "it is the only reader of a result that one kernel writes whole, and rows stay rows"},
    {"fuse.inline", "a map is computed where it is read",
     "its readers see the same values, and nothing is computed twice"},
    {"fuse.blocks", "a product reads quantized weights as they are and dequantizes them in its tiles",
     "constants of 2 to 8 bits, scaled by whole blocks along the sum; on a CPU"},
    {"fuse.activations", "such a product reads quantized activations as they are and sums integers over a block",
     "bytes without a zero point in the blocks of the weights, scaled in f32; on a CPU"},
    {"loops.split", "a loop is cut where an index divides its counter by a constant",
     "the inner loop has at least 16 iterations, and fewer quotients are left"},
    {"rows.recompute", "on a GPU, what a row keeps for its later stages is computed again",
     "no bound of the row fits shared memory; it was written once, of what earlier stages and other kernels made"},
    {"fuse.dequantize", "a product or convolution of dequantized 8-bit integers is summed in integers",
     "scales and zero points do not vary along the sum, which fits in int32; on a CPU"},
    {"split.rnn", "on a GPU, the inputs' part of all steps of an LSTM, GRU or RNN is a product of its own",
     "the steps have a GPU form: constant weights, sequences of one length"},
    {"fold.dequantize", "weights are dequantized by the compiler",
     "what reads them takes no integers, and they grow to 4 KiB or four times the bytes at most"},
    {"layout.weights", "on a GPU, weights are stored in the order in which they are fetched",
     "a constant of one reader"},
    {"layout.windows", "a convolution reads a copy of its image in which what a window has of a line lies together",
     "on a GPU, 16-bit products of constant filters, channels no multiple of 8, two dims of known sizes, many "
     "products"},
    {"store.f16", "an f32 tensor is stored in 16 bits", "--precision=f16, and its values allow it"},
    {"store.bf16", "an f32 tensor is stored in 16 bits", "--precision=bf16, and its values allow it"},
    {"math.rounded", "on a GPU, f32 values of which f16 or bf16 is kept take shorter formulas",
     "all that is computed of them is rounded to 16 bits; errors of some units of f32's last place"},
    {"state.in_place", "an input that is one memory with an output is read where it lies, and not copied into it",
     "--alias, and nothing of the input is read after it was replaced"},
    {"schedule.gemm", "a product runs on packed panels",
     "f32, f16 and bf16 in f32, or 8-bit integers; an epilogue along rows"},
    {"schedule.gemm.blocks", "a product runs on weights of 4 or 8 bits, packed in panels",
     "constant weights, scales and zero points of whole blocks along the sum; f32, f16 and bf16 in f32, on a CPU"},
    {"schedule.conv.gemm", "a 1x1 convolution runs as a product over pixels", "f32, channels last"},
    {"schedule.conv.direct", "a convolution runs over bands of rows",
     "f32, constant weights, finite ones where there is padding"},
    {"schedule.conv.transposed",
     "a transposed convolution runs as direct ones, by the rests of its outputs by the strides",
     "f32, constant weights that are finite"},
    {"schedule.conv.depthwise", "a depthwise convolution runs in lanes of channels", "f32, channels last"},
    {"schedule.conv.winograd2", "a 3x3 convolution runs by F(2x2, 3x3)", "f32, channels last, stride 1"},
    {"schedule.conv.winograd4", "a 3x3 convolution runs by F(4x4, 3x3)", "f32, channels last, stride 1"},
    {"schedule.conv.integer",
     "a convolution of 8-bit integers runs as products of gathered rows, or in lanes of channels",
     "constant weights, channels last, one zero point of the input"},
    {"schedule.attention", "attention runs over blocks of keys", "f32, operands of affine addresses"},
    {"schedule.rnn", "LSTM, GRU and RNN run on packed weights",
     "f32 (LSTM: or 8-bit weights), constant weights, no clip"},
    {"schedule.rnn.steps", "on a GPU, a block of threads walks the steps of a recurrent layer",
     "constant weights, sequences of one length, at most 2048 units"},
    {"schedule.gemm.tensor_core", "on a GPU, a product or a convolution runs on tensor cores",
     "one sum of products of f32, f16 or bf16, stores behind it"},
    {"schedule.gemm.warpgroup", "on GPUs that have it, a product runs on wgmma, its operands by TMA",
     "f16 or bf16, plain operands with strides of 16 bytes, all targets of the bundle sm_90a"},
    {"schedule.conv.warpgroup", "on GPUs that have it, a convolution runs on wgmma, its image by TMA's im2col",
     "f16 or bf16, channels last and a multiple of 8, one group, one or two dims of space, all targets of the bundle "
     "sm_90a"},
    {"schedule.conv.depthwise.strips", "on a GPU, a thread sums a strip of pixels of a depthwise convolution",
     "one or two dims, f32, f16 or bf16 in f32, plain operands, kernels whose strips fit in registers"},
    {"place.in_place", "a result takes over the bytes of an operand",
     "the operand is used for the last time, and each element is read only where it is written"},
    {"place.share", "buffers that live at different times lie in the same bytes",
     "the sizes of the arena's buffers and the kernels that touch them"},
};

}  // namespace

std::span<const LoweringStepInfo> lowering_steps() { return kSteps; }

bool names_step(std::string_view given, std::string_view step) {
  return step == given ||
         (step.size() > given.size() && step.substr(0, given.size()) == given && step[given.size()] == '.');
}

bool Steps::allowed(std::string_view name) const {
  return static_cast<int64_t>(taken_.size()) < most_ &&
         std::none_of(left_out_.begin(), left_out_.end(),
                      [&](const std::string &given) { return names_step(given, name); });
}

}  // namespace optc
