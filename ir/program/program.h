#pragma once
// Program: kernels over buffers, in the order of execution. ops/build makes an unfused one of a Graph (one or a few
// kernels a node); lowering fuses, lays out, chooses schedules and places buffers; evaluate/ runs it, emit/ prints it.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/program/loop.h"
#include "ir/program/scalar.h"
#include "ir/program/schedule.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

struct KernelTag;
using KernelId = Id<KernelTag>;

enum class BufferKind : uint8_t {
  kInput,      // caller's memory, read only, row-major; of a state a view of the output's
  kOutput,     // caller's memory, row-major; of a state that grows, with room along one axis
  kConstant,   // weights
  kTemporary,  // placed in the arena
  kScratch,    // placed in the arena, lives for one kernel
  kObject,     // sequence, optional, map or strings: a run-time object, not placed
};

struct Buffer {
  std::string name;
  BufferKind kind = BufferKind::kTemporary;
  Type type;          // tensors have a known shape here
  Constant constant;  // kConstant
  // Storage. The logical index of loads and stores never changes with it: address = sum over k of index[order[k]] *
  // stride(k), row-major over the permuted dims; padded[k] (>= the logical dim) is the stored length of position k.
  // Empty order: row-major, unpadded.
  std::vector<int> order;
  std::vector<Dim> padded;
  // A view: shares the bytes of `alias` (same element count or a slice of it), starting at `alias_offset` elements.
  BufferId alias;
  Dim alias_offset;
  const Shape &shape() const { return *type.shape; }
  ElementType element() const { return type.element; }
};

enum class Combine : uint8_t { kStore, kSum, kProduct, kMax, kMin, kAnd, kOr };
std::string_view to_string(Combine combine);

// A kernel-local array (row scratch) or scalar (accumulator). `shape` is empty for a scalar. One instance per iteration
// of the shared outer loops; if the shape is not empty, it is indexed like a buffer.
struct Local {
  std::string name;
  ElementType type = ElementType::kUndefined;
  Shape shape;
};

// Where a stage puts one of its values.
//   kStore: target[index] = value, for every iteration.
//   others: target[index] = combine over the iterations that do not appear in `index`, starting from `initial` (the
//   identity when invalid). A combine into a buffer is a sequential scatter: target must have been written before.
struct StageOutput {
  BufferId buffer;  // one of the two is valid
  LocalId local;
  std::vector<Dim> index;
  ScalarId value;
  Combine combine = Combine::kStore;
  ScalarId initial;    // start of a reduction into a local; invalid: the identity of combine
  ScalarId condition;  // bool; invalid: always. A store or combine happens only where it is true
};

// A loop nest inside the shared outer loops. A later stage may read locals that earlier stages wrote.
struct Stage {
  std::vector<Loop> loops;
  std::vector<StageOutput> outputs;
};

enum class ContractionKind : uint8_t { kMatMul, kConvolution, kAttention };

// A remark beside a loop nest, not a second meaning: which loops play which part, so that lowering can choose a
// schedule without recognizing it. Substitution during fusion rewrites the scalars here too.
struct Contraction {
  ContractionKind kind = ContractionKind::kMatMul;
  size_t stage = 0;   // the stage of the kernel that sums lhs * rhs (kMatMul, kConvolution)
  ScalarId lhs, rhs;  // the factors, commonly loads: without the cast to the accumulating type, and without the select
                      // that padding puts around lhs
  // Loops by role: out[batch.., m.., n..] += lhs[batch, m, k] * rhs[batch, k, n]. Convolution: batch = {n} (and group g
  // when group > 1), m = output pixel loops, n = output channel (in the group), k = {input channel (in the group),
  // kernel loops}.
  std::vector<const DimSymbol *> batch, m, n, k;
  // kConvolution: one entry a spatial dimension; rhs is the weight [M, C/group, kernel...], lhs the input [N, C,
  // spatial...].
  std::vector<int64_t> kernel, strides, dilations, pads_begin, pads_end;
  int64_t group = 1;
  // kConvolution, transposed: rhs is the weight [C, M/group, kernel...], output o sums over input
  // (o + pads_begin - k * dilations) / strides where that is whole, and has
  // (in - 1) * strides + (kernel - 1) * dilations + 1 - pads_begin - pads_end elements.
  bool transposed = false;
  // kAttention: out[b, h, i, e] = sum_j softmax_j(scale * sum_d q k + mask) v; loads by [b, h, i, d], [b, h_kv, j, d],
  // [b, h_kv, j, e]. batch = {b, h}, m = {i}, k = {j, d} of the scores, n = {j, e} of the values.
  ScalarId query, key, value, mask, scale;  // mask invalid: none. mask is additive (float) or bool (false = excluded)
  bool causal = false;
  Dim causal_offset;  // key j is visible to query i when j <= i + causal_offset
  float softcap = 0;  // 0: none
  MaskedRows masked_rows = MaskedRows::kNaN;
};

struct LoopNest {
  std::vector<Loop> loops;  // shared outer loops: iterations are independent unless `sequential`
  std::vector<Local> locals;
  std::vector<Stage> stages;
  bool sequential = false;  // iterations must run in order (scatters with duplicates, scans)
  std::optional<Contraction> contraction;
};

// A typed call into a runtime header (runtime/cpu/lib_*.h) and into evaluate/: NonZero, TopK, strings, sequences, LSTM.
struct LibraryCall {
  std::string function;          // "nonzero", "topk", "lstm"
  std::vector<BufferId> inputs;  // invalid: absent
  std::vector<BufferId> outputs;
  std::vector<std::pair<std::string, Attribute>> attributes;
  std::vector<const DimSymbol *>
      defines;  // sizes that it finds (kData), in the order the function documents; null: not wanted
};

struct Program;

// If, Loop, Scan, SequenceMap: nested programs over the same buffers. A nested program's inputs are fresh buffers that
// the construct sets before an iteration; outer buffers are used by id.
struct ControlFlow {
  enum class Kind : uint8_t { kIf, kLoop } kind = Kind::kIf;
  BufferId condition;   // kIf: bool scalar. kLoop: initial condition, invalid = true
  BufferId trip_count;  // kLoop: i64 scalar, invalid = unbounded
  std::vector<std::vector<KernelId>>
      bodies;  // kIf: then, else; kLoop: the body. Kernels of the Program, not in its main order
  // kIf: results[b] are the buffers that branch b leaves; copied (or renamed) to outputs.
  std::vector<std::vector<BufferId>> results;
  std::vector<BufferId> outputs;
  // kLoop: iteration number and condition as the body sees them; carried[i] starts as initial[i], is read by the body
  // as body_inputs[i] and becomes results[0][1 + i] (results[0][0] is the condition); scan outputs follow, one slice an
  // iteration along axis 0.
  BufferId iteration, body_condition;
  std::vector<BufferId> initial, body_inputs;
  size_t carried = 0;
  std::vector<int64_t> scan_axes;  // per scan output; empty: 0
  std::vector<bool> scan_reverse;  // per scan output: written from the end
  // Symbols that the construct sets from the dims of the tensors at hand: each is a dim by itself of a body input (set
  // before every iteration) or of an output (set when it is done; the trip count is dim 0 of the scan outputs).
  std::vector<const DimSymbol *> defines;
};

struct KernelCost {
  Dim bytes_read, bytes_written, flops;
};

struct Kernel {
  std::string name;                // a C identifier, unique in the Program, made of the ONNX names it computes
  std::vector<uint32_t> origin;    // indices into Program::origins
  std::vector<std::string> rules;  // rewrites that shaped it
  std::variant<LoopNest, LibraryCall, ControlFlow> body;
  Schedule schedule;  // how lowering decided to run it
  KernelCost cost;
  std::string note;  // one line for the reader: "Conv 3x3 64->64 + bias + Relu"
  bool alive = true;

  LoopNest *nest() { return std::get_if<LoopNest>(&body); }
  const LoopNest *nest() const { return std::get_if<LoopNest>(&body); }
  const LibraryCall *library() const { return std::get_if<LibraryCall>(&body); }
  const ControlFlow *control() const { return std::get_if<ControlFlow>(&body); }
};

// Where the value of a symbol comes from when the Program runs.
struct SymbolSource {
  const DimSymbol *symbol = nullptr;
  uint32_t input = 0;  // main input and axis that give it directly
  uint32_t axis = 0;
  bool capacity = false;  // not the dim itself: the length that the caller's memory has there (State::capacity)
};
// A condition on input dims that the caller must meet: dims[axis] of input equals `expected`.
struct DimCheck {
  uint32_t input = 0, axis = 0;
  Dim expected;
};

// Memory of the caller that is an input before a run and an output after it (ir/program/state.h): a cache that is
// appended to in place, the hidden state of a recurrent model.
struct State {
  uint32_t input = 0, output = 0;       // positions in Program::inputs and Program::outputs
  int axis = -1;                        // along which the output is longer than the input; -1: both have one shape
  const DimSymbol *capacity = nullptr;  // the length that the memory has along the axis; null where there is none
  bool in_place = false;                // nothing of the input is copied
  friend bool operator==(const State &, const State &) = default;
};

struct Placement {  // of a temporary or scratch buffer in the arena; filled by lowering/buffers
  BufferId buffer;
  Dim offset, bytes;           // offset is constant when all sizes are
  size_t first = 0, last = 0;  // position in `order` of the first writing and the last reading kernel
};

struct Program {
  std::shared_ptr<DimTable> dims;
  std::string name;
  ModelInfo info;
  std::vector<Origin> origins;
  ScalarPool scalars;
  std::vector<Buffer> buffers;
  std::vector<Kernel> kernels;
  std::vector<KernelId> order;            // the main sequence
  std::vector<BufferId> inputs, outputs;  // in the model's order
  std::vector<std::string> input_names, output_names;
  std::vector<Constant> input_defaults;  // parallel to inputs; invalid: the caller must give it
  std::vector<SymbolSource> sources;
  std::vector<DimCheck> checks;
  std::vector<DimConstraint> constraints;
  std::vector<State> states;
  std::vector<Placement> placements;
  Dim arena_bytes, lower_bound_bytes;

  Buffer &buffer(BufferId id) { return buffers[id.index]; }
  const Buffer &buffer(BufferId id) const { return buffers[id.index]; }
  Kernel &kernel(KernelId id) { return kernels[id.index]; }
  const Kernel &kernel(KernelId id) const { return kernels[id.index]; }
  BufferId add_buffer(Buffer buffer);
  KernelId add_kernel(Kernel kernel);  // does not append to `order`
};

// --- Walking and rewriting
// ------------------------------------------------------------------------------------------------------

// Every buffer that a kernel reads / writes, nested bodies of control flow included; each once, in order of first
// appearance.
std::vector<BufferId> reads(const Program &program, const Kernel &kernel);
std::vector<BufferId> writes(const Program &program, const Kernel &kernel);
void collect_loads(const Program &program, ScalarId root,
                   std::vector<ScalarId> &out);  // kLoad nodes, through kScalar symbols too

// Rebuilds a scalar with loop symbols replaced and, through `on_load` / `on_local`, loads replaced (return an invalid
// id to keep them). Symbols of kind kScalar inside indices are rebuilt with the same substitution.
struct ScalarSubstitution {
  DimSubstitution symbols;
  std::function<ScalarId(const Scalar &load)> on_load;  // index entries are already substituted
  std::function<ScalarId(const Scalar &local)> on_local;
};
ScalarId substitute(Program &program, ScalarId root, const ScalarSubstitution &substitution);
Dim substitute_index(Program &program, Dim index, const ScalarSubstitution &substitution);

// The linear element offset of an index in a buffer's storage, from its order and padding.
Dim linear_offset(const Buffer &buffer, const std::vector<Dim> &index);
std::vector<Dim> storage_strides(const Buffer &buffer);  // per logical dimension, in elements
Dim storage_count(const Buffer &buffer);                 // elements stored, padding included

Status verify(const Program &program,
              Diagnostics &diagnostics);    // numbered invariants at the top of ir/program/verifier.cc
std::string print(const Program &program);  // the text form
std::string print(const Program &program, const Kernel &kernel);
std::string print(const Program &program, ScalarId scalar);
std::string origin_text(const Program &program, const Kernel &kernel);  // "node 'add' (Add #3)"; empty: of no node

}  // namespace optc
