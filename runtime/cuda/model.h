#pragma once
// What a bundle tells the CUDA runtime of its model: plain tables, printed by the compiler. Sizes that depend on the
// model's dims are functions of the symbols' values.

#include <stddef.h>
#include <stdint.h>

namespace optc {
namespace cuda {

using Size = int64_t (*)(const int64_t *symbols);

struct SymbolTable {
  const char *name;
  int input, axis;  // where its value is read; input -1: found while the model runs
  bool capacity;    // not the dim: the steps that the memory of the state has there
};

// An input and an output that are one memory of the caller (optc_alias).
struct StateTable {
  int input, output, axis;
  int buffer;  // the storage of both, of region kOutput; -1: no kernel touches it
};

enum class Region : uint8_t { kInput, kOutput, kWeights, kArena, kGrowing };  // kGrowing: of a size found at run time

struct BufferTable {
  const char *name;
  Region region;
  int index;                // of the model's input or output
  uint64_t weights_offset;  // kWeights
  Size bytes;
  Size offset;      // kArena: its place; null: placed at run time, by `first` and `last`
  int first, last;  // kArena: the first and the last kernel that touch it
};

// How TMA walks an image for a convolution (im2col): corners of the walk and its steps, of the two dims of space.
struct WalkTable {
  int lower[2], upper[2];
  uint32_t steps[2];
};

// A tensor map of TMA over 16-bit elements of a buffer: `rank` dims, the contiguous one first, in the 128-byte swizzle.
struct TensorMapTable {
  int buffer;
  int32_t type;              // onnx.TensorProto.DataType: 10 f16, 16 bf16
  int rank;                  // 2 to 5
  Size byte_offset;          // into the buffer
  const Size *extents;       // elements
  const Size *byte_strides;  // of all but the first dim
  uint32_t box[5];
  const WalkTable *walk;  // null: boxes; else dims are channel, space, image, and box[0] channels of box[1] pixels
};

// kFault: the launch's word of bad indices.
// kUnread: a 32-bit integer of which the kernel takes no notice.
enum class ArgumentKind : uint8_t { kBuffer, kSymbol, kWorkspace, kFault, kTensorMap, kUnread };

struct ArgumentTable {
  ArgumentKind kind;
  int index;  // of the buffer, the symbol, the tensor map
};

struct LaunchTable {
  const char *function;
  Size grid[3];
  unsigned threads, shared_bytes;
  const ArgumentTable *arguments;
  int argument_count;
  const char *checks;  // the kernel's name where it checks indices that the model computes; else null
};

// Launches without a kernel of the host between them: one CUDA graph, unless sizes may change with every run.
struct SegmentTable {
  int first, count;
  bool open;
};

struct OutputTable {
  const char *name;
  int32_t type, rank;
  const Size *dims;
  int buffer;        // its own, or, where it is a view, the buffer that holds it
  Size byte_offset;  // into that buffer
};

// Kernels for sm_90 and later wait themselves for the one before (griddepcontrol.wait), so that they may be launched
// while it runs.
struct ImageTable {
  int sm;                     // compute capability * 10
  bool specific;              // sm_90a: for that capability alone; else for it and every later one
  const char *const *pieces;  // PTX text, in pieces, null at the end
};

struct ModelTable {
  const char *name;
  const SymbolTable *symbols;
  int symbol_count;
  const BufferTable *buffers;
  int buffer_count;
  const LaunchTable *launches;
  int launch_count;
  const SegmentTable *segments;
  int segment_count;
  const int *inputs;  // the buffer of each; -1: no kernel reads it
  int input_count;
  const OutputTable *outputs;
  int output_count;
  const ImageTable *images;
  int image_count;
  uint64_t weights_bytes;
  const TensorMapTable *maps;
  int map_count;
  // Memory for blocks that share work: counters, zero before and after each launch, and room for partial results.
  uint64_t counter_bytes, workspace_bytes;
  const StateTable *states;
  int state_count;
};

}  // namespace cuda
}  // namespace optc
