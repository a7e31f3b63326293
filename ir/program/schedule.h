#pragma once
// Schedule: how a kernel runs, chosen by lowering and obeyed by the emitters. One struct a template of runtime/cpu or
// emit/ptx (or a plain form of loops), with all that the template is given: views of the operands, sizes, packed
// constants, memory of a running task. The body of the kernel stays its meaning; a schedule says nothing that changes
// it.
//
// A new template: a struct here with its name, a member of Schedule, its fields in schedule_fields.h (printing and
// parsing follow from those), what must hold of it in schedule_verifier.cc, its choice in lowering/schedule, its
// printer in emit/cpp or emit/ptx.

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ir/program/loop.h"
#include "ir/program/scalar.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

struct Kernel;
struct Program;

// --- parts of schedules

// address(element) = offset + sum over i of strides[i] * loops[i], in elements of the buffer's storage.
struct OperandView {
  BufferId buffer;
  ElementType element = ElementType::kUndefined;
  Dim offset;                // free of the loops
  std::vector<Dim> strides;  // one a loop, in the order of the list that was asked for
};

// What is subtracted from each element of an operand of integers: a number, and where `from` has a buffer, its element,
// with one stride a loop of the operand's batch, then of its rows (A, a convolution's pixels) or columns.
struct ZeroPoint {
  int64_t value = 0;
  OperandView from;
  Dim step;  // of `from`, by the collapsed rows or columns
};
struct ZeroPoints {
  ZeroPoint a, b;
};

// A constant laid out for this kernel. Invalid: none.
struct Packed {
  BufferId buffer;
};
// A kScratch buffer of the whole kernel. (A running task's own scratch is a number of bytes.)
struct Scratch {
  BufferId buffer;
};

// out[batch][m, n] = epilogue(sum_k a[batch][m, k] * b[batch][k, n]) with m, n and k each collapsed to one counter.
// Batch loops are those that both operands use and those that could not be collapsed into m.
struct GemmView {
  std::vector<Loop> batch, m, n, k;
  OperandView a, b;          // strides in the order batch.., m.., k..  /  batch.., k.., n..
  Dim rows, columns, inner;  // extents of the collapsed m, n, k
  Dim a_row, a_inner;        // strides of a by collapsed m and k
  Dim b_inner, b_column;     // strides of b by collapsed k and n
};

// What of a convolution of up to three dimensions does not depend on its image. One of two has one plane; one of one
// dimension is one row high, or (direct) one pixel wide. Of a transposed one, pads_end is less the output's padding.
struct ConvolutionGeometry {
  int64_t channels = 0, filters = 0, groups = 1;  // channels and filters of all groups
  // By depth, height and width.
  std::array<int64_t, 3> kernel{1, 1, 1}, strides{1, 1, 1}, dilations{1, 1, 1}, pads_begin{0, 0, 0}, pads_end{0, 0, 0};
  friend bool operator==(const ConvolutionGeometry &, const ConvolutionGeometry &) = default;
};

struct ConvolutionOperands {
  BufferId input;
  Dim batch, depth, height, width;                                           // of the input
  Dim image_stride, plane_stride, row_stride, pixel_stride, channel_stride;  // of it, in elements
  ConvolutionGeometry geometry;
  Packed weight;  // laid out by runtime/cpu/conv_plan.h
};

// An operand of an attention: a pointer and its strides in elements; the elements of a row are contiguous.
struct AttentionRows {
  BufferId buffer;
  Dim offset, batch, head, row;
};
// What attention gives for a query whose probabilities are NaN: every key is excluded, or a score is NaN or infinite.
enum class MaskedRows : uint8_t {
  kNaN,                // NaN, as the softmax
  kZeroProbabilities,  // the sum of 0 * value, as Where(IsNaN(p), 0, p): NaN where a value is not finite
  kZeroResult,         // 0 where every key is excluded, else NaN
};

struct AttentionMask {
  BufferId buffer;       // invalid: none
  bool allowed = false;  // bool, true where a key may be seen; else f32, added to the scores
  Dim offset, batch, head, query, key;
};

// What a tensor core multiplies; sums are f32. kThreeTF32: f32 as the sum of two TF32 each, by three products, near
// f32's accuracy.
enum class TensorCoreType : uint8_t { kF16, kBF16, kTF32, kThreeTF32 };

// The part of a product that a block of threads computes at a time: m x n sums, in blocks of k that lie `stages` deep
// in shared memory. warps_k > 1: warps share sums, each has its part of every block of k.
struct TensorCoreTile {
  int m = 128, n = 128, k = 32;
  int warps_m = 2, warps_n = 2, warps_k = 1;
  int stages = 4;
  int warps() const { return warps_m * warps_n * warps_k; }
  int threads() const { return 32 * warps(); }
  friend bool operator==(const TensorCoreTile &, const TensorCoreTile &) = default;
};
// A tile of a product on warpgroups: m x n sums, by steps of 64 of k through a ring of `stages`. Each of `warpgroups`
// has its rows of every tile or, in turns, every other tile, so that one's epilogue runs beside the other's products.
struct WarpgroupTile {
  int m = 128, n = 128;
  int stages = 4;
  int warpgroups = 2;
  bool turns = false;
  friend bool operator==(const WarpgroupTile &, const WarpgroupTile &) = default;
};
// A tile, and how many blocks split its k (split-K); they join their sums in the workspace.
struct TensorCoreChoice {
  TensorCoreTile tile;
  int splits = 1;
  friend bool operator==(const TensorCoreChoice &, const TensorCoreChoice &) = default;
};

// --- schedules

// One stage of stores: loops, the innermost in lanes.
struct MapSchedule {
  static constexpr std::string_view kName = "pointwise";
};
// Several stages, each over at most one loop of the row.
struct RowsSchedule {
  static constexpr std::string_view kName = "rows";
};
// Any nest.
struct LoopsSchedule {
  static constexpr std::string_view kName = "loops";
};

// A product of f32, f64 (runtime/cpu/gemm.h) or bytes (gemm_i8.h), as its view says; its epilogue in lanes of columns.
struct GemmSchedule {
  static constexpr std::string_view kName = "gemm";
  // Where sums stand between blocks of k.
  enum class Partial : uint8_t { kNone, kOutput, kScratch };
  GemmView view;
  Packed packed;  // B in the panels of gemm_plan.h (gemm_i8_plan.h); invalid: B is read where it lies, packed in parts
  ZeroPoints zeros;  // of bytes
  Partial partial = Partial::kNone;
  Dim scratch_bytes;  // of a running task: a packed block of B, then partial sums
};

// How a factor of integers is dequantized: (element - zero) * scale in f32, rounded to a type. `block` neighbouring
// elements along the sum have one scale and one zero point.
struct BlockScales {
  int64_t block = 1;
  OperandView scale, zero;  // strides by the block and by the collapsed columns; zero of no buffer: zero_value
  int64_t zero_value = 0;
  ElementType rounded = ElementType::kFloat32;
};
// How rows of A are dequantized, where they are bytes: element * scale, in blocks along the sum. `scale` of no buffer:
// A's elements are numbers.
struct RowScales {
  OperandView scale;  // strides in the order batch.., m.., block
  Dim row;            // of it by the collapsed rows
};
// A product in f32 by a constant B of integers that stay packed (runtime/cpu/gemm_blocks.h); view.b are the integers.
// Where activations have scales, in the blocks of B, view.a are integers too, and the sums over a block are of integers
// (runtime/cpu/gemm_blocks_i8.h).
struct GemmBlocksSchedule {
  static constexpr std::string_view kName = "gemm.blocks";
  GemmView view;
  BlockScales scales;
  RowScales activations;
  Packed codes, packed_scales, packed_zeros;  // gemm_blocks_plan.h; zeros of int8 or f32, invalid: all the center
  GemmSchedule::Partial partial = GemmSchedule::Partial::kNone;
  Dim scratch_bytes;
};

// The convolutions of f32 of runtime/cpu, with an epilogue in lanes along the channels. All but the direct one read an
// input whose channels lie innermost.
struct ConvolutionGemmSchedule {  // conv.h: 1x1 without padding, a product over pixels
  static constexpr std::string_view kName = "conv.gemm";
  ConvolutionOperands operands;
  Dim scratch_bytes;
};
struct ConvolutionDirectSchedule {  // conv.h: over bands of output rows
  static constexpr std::string_view kName = "conv.direct";
  ConvolutionOperands operands;
  Dim scratch_bytes;
};
struct ConvolutionTransposedSchedule {  // conv_transposed.h: direct ones, of the outputs of one rest by the strides
  static constexpr std::string_view kName = "conv.transposed";
  ConvolutionOperands operands;
  Dim scratch_bytes;
};
struct ConvolutionDepthwiseSchedule {  // depthwise.h
  static constexpr std::string_view kName = "conv.depthwise";
  ConvolutionOperands operands;
  bool fixed = false;  // kernel width and stride are constants of the template
};
struct ConvolutionWinogradSchedule {  // winograd.h: F(tile x tile, 3x3), tile 2 or 4
  static constexpr std::string_view kName = "conv.winograd";
  ConvolutionOperands operands;
  int64_t tile = 2;
  Dim scratch_bytes;
};

// conv_i8.h: a convolution of bytes in int32, as products of rows that are gathered for each pixel, or in lanes of
// channels (depthwise); its channels lie innermost.
struct ConvolutionIntegerSchedule {
  static constexpr std::string_view kName = "conv.integer";
  ConvolutionOperands operands;
  ZeroPoints zeros;  // of the input, of the weights
  bool depthwise = false;
  Dim scratch_bytes;
};

// runtime/cpu/attention.h, of f32.
struct AttentionSchedule {
  static constexpr std::string_view kName = "attention";
  AttentionRows query, key, value, output;
  AttentionMask mask;
  Dim batch, heads, kv_heads, queries, keys;
  Dim width, value_width;  // of a row of queries and keys, and of values
  float scale = 1, softcap = 0;
  bool causal = false;
  Dim causal_offset;
  MaskedRows masked_rows = MaskedRows::kNaN;
  Dim scratch_bytes;
};

// The library call "rnn" by runtime/cpu/rnn.h: LSTM, GRU and RNN of f32 with constant weights; "dynamic_quantize_lstm"
// by rnn_i8.h. Activations and linear_before_reset are the call's attributes.
struct RecurrentSchedule {
  static constexpr std::string_view kName = "rnn";
  struct Layer {  // of a direction, as runtime/cpu/rnn_plan.h lays it out
    Packed w, r, bias;
    // Of 8-bit weights: their scale, one or one a column, and zero points, where w_zeros (r_zeros) is invalid all the
    // same.
    Packed w_scale, r_scale, w_zeros, r_zeros;
    int64_t w_zero = 0, r_zero = 0;
  };
  ElementType weights = ElementType::kFloat32;  // or kInt8, kUInt8
  int64_t gates = 4;                            // 4 LSTM, 3 GRU, 1 RNN
  int64_t input = 0, hidden = 0;
  bool batch_first = false;  // ONNX's layout 1
  bool reverse = false;      // the only direction runs backwards
  std::vector<Layer> layers;
  Scratch sums;       // of the inputs of all steps
  Scratch bytes;      // 8-bit weights: the inputs, quantized
  Dim scratch_bytes;  // of a running task
};

// A GPU's: a product or a convolution on tensor cores, with any stages of stores as its epilogue: the loops, by role.
struct TensorCoreProduct {
  struct Operand {
    std::vector<Loop> outer;   // the loops of A's rows, of B's columns
    bool k_contiguous = true;  // which index walks memory: k, or the last of `outer`
    int64_t chunk_bytes = 16;  // fetched at once: 16, 8 or 4 by cp.async; 0: elements are computed
    int64_t group = 1;         // elements computed at once: 1 or 8
    bool constant = false;     // a weight: may be fetched before kernels in front are done
  };
  TensorCoreType type = TensorCoreType::kThreeTF32;
  std::vector<Loop> batch, k;  // of both operands; the last loop of k is the one along which chunks lie
  bool exchanged = false;      // A is the sum's second factor: the output lies along the rows of its first
  Operand a, b;
};
// By mma.sync, tiles through a ring in shared memory filled by cp.async (emit/ptx/gemm.h).
struct GemmTensorCoreSchedule : TensorCoreProduct {
  static constexpr std::string_view kName = "gemm.tensor_core";
  // [i]: where i + 1 such kernels of equal code share one launch (emit/ptx joins independent ones).
  std::vector<TensorCoreChoice> tiles;
};
// An operand as a tensor map of TMA names it: element i lies at offset + sum of i[d] * strides[d], in elements. The
// contiguous index is first (stride 1), then the other one of the product, then those of its batch.
struct TensorMap {
  BufferId buffer;  // as the nest loads it: what its root is, memory planning may change yet
  Dim offset;
  std::vector<Dim> extents, strides;
};
// An image as TMA walks it for a convolution (im2col): dims channel, two of space, the inner one first, and image. An
// output pixel is a step of the walk; its window begins at lower + step * i, a tap of it lies dilation * t further, and
// what is outside of the image is 0. The lists have the two dims of space in that order.
struct ImageMap : TensorMap {
  std::vector<Dim> pixels;  // of an image along that dim
  std::vector<int64_t> lower, steps, taps, dilations;
  std::vector<int64_t> upper;  // of the last pixel's window, from the image's last element: lower + step * (pixels - 1)
};
// By wgmma, tiles by TMA (sm_90a; emit/ptx/warpgroup.h): operands of 16 bits that tensor maps can name.
struct WarpgroupProduct : TensorCoreProduct {
  int64_t blocks = 132;              // of a launch at most: they walk the tiles
  std::vector<WarpgroupTile> tiles;  // as GemmTensorCoreSchedule's
  bool shuffles = false;             // sums of tiles in turns find their rows by shuffles, not through shared memory
};
struct GemmWarpgroupSchedule : WarpgroupProduct {
  static constexpr std::string_view kName = "gemm.warpgroup";
  TensorMap map_a, map_b;
};
// A convolution: A (exchanged: B) is its image, the other its filters, whose map has the taps as its last dims, the
// inner one first. k.back() are the channels; the loops of k before it are the taps.
struct ConvolutionWarpgroupSchedule : WarpgroupProduct {
  static constexpr std::string_view kName = "conv.warpgroup";
  ImageMap image;
  TensorMap filters;
};

// A GPU's: a depthwise convolution of one or two dimensions, sums in f32, with any stages of stores as its epilogue
// (emit/ptx/depthwise.cc). A thread has `strip` neighbouring output pixels of a line in `vector` neighbouring channels;
// a block has so many vectors, strips and lines (the rows of all images in one count) as the last three fields say.
struct ConvolutionStripsSchedule {
  static constexpr std::string_view kName = "conv.depthwise.strips";
  ConvolutionOperands image;                                // without packed weights
  std::vector<Loop> images, channels, rows, columns, taps;  // of the nest by role: at most one each, taps two
  int64_t vector = 1, strip = 1;
  int64_t block_vectors = 1, block_strips = 1, block_lines = 1;
};

// A GPU's: the library call "rnn_steps" (ir/program/recurrent.h). A block of threads walks all steps of one direction
// for `rows` rows of the batch, its states in shared memory; a thread sums a part of a column of R
// (emit/ptx/recurrent.cc).
struct RecurrentStepsSchedule {
  static constexpr std::string_view kName = "rnn.steps";
  int64_t gates = 4, hidden = 0;                // as RecurrentSchedule's
  ElementType weights = ElementType::kFloat32;  // of R: or kFloat16, kBFloat16
  int64_t rows = 1;
  int64_t columns = 32;  // threads beside one another, of neighbouring columns; a thread may have several
  int64_t splits = 1;    // parts of a column's sum, by threads of their own
  // 16-byte chunks (4 or 8 weights) of a part of a column: how many there are, how many stay in shared memory.
  int64_t chunks = 0, cached = 0;
  Packed r;  // [directions][splits * chunks][gates * hidden] chunks along the sum, zeros behind its end
  int64_t threads() const { return columns * splits; }
  int64_t chunk_elements() const { return weights == ElementType::kFloat32 ? 4 : 8; }
};

// A library call by its function of runtime/cpu/lib_*.h.
struct LibrarySchedule {
  static constexpr std::string_view kName = "library";
};

// monostate: none was chosen (a Program that was not lowered, control flow): a nest runs as loops, a call by its
// function.
using Schedule =
    std::variant<std::monostate, MapSchedule, RowsSchedule, LoopsSchedule, GemmSchedule, GemmBlocksSchedule,
                 ConvolutionGemmSchedule, ConvolutionDirectSchedule, ConvolutionDepthwiseSchedule,
                 ConvolutionWinogradSchedule, ConvolutionTransposedSchedule, ConvolutionIntegerSchedule,
                 AttentionSchedule, RecurrentSchedule, GemmTensorCoreSchedule, GemmWarpgroupSchedule,
                 ConvolutionWarpgroupSchedule, ConvolutionStripsSchedule, RecurrentStepsSchedule, LibrarySchedule>;

// "gemm", "conv.winograd4"; "" when none was chosen. What steps, manifest and reports call it.
std::string name(const Schedule &schedule);
// The plain forms, which are the nest itself: any of them may stand in for another schedule, more slowly.
bool is_plain(const Schedule &schedule);
// The operands of a convolution's schedule; null for others.
const ConvolutionOperands *convolution(const Schedule &schedule);
ConvolutionOperands *convolution(Schedule &schedule);
// Bytes for one running task; 0: none.
Dim task_scratch(const Schedule &schedule);
// The buffers that a kernel has by its schedule, beside those of its body. Appends.
void collect_buffers(const Schedule &schedule, std::vector<BufferId> &packed, std::vector<BufferId> &scratch);

// One line: "gemm view.batch=[b<2]; view.m=[i<N]; ...; packed=w_packed". Names of buffers and symbols are those of the
// Program.
std::string print(const Program &program, const Schedule &schedule);
// Reads what print gives, for the same Program; unknown names, fields and values are errors.
Result<Schedule> parse_schedule(std::string_view text, const Program &program, Diagnostics &diagnostics);
// Invariants S1 to S5 of a kernel's schedule (schedule_verifier.cc): calls `fail` with the number and what is wrong.
void check_schedule(const Program &program, const Kernel &kernel,
                    const std::function<void(const char *number, const std::string &what)> &fail);

}  // namespace optc
