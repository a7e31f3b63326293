#pragma once
// What the cells of a recurrent layer compute: the attributes of the library calls "rnn" and "rnn_steps", read once for
// those that choose, print and check kernels.

#include <array>
#include <cstdint>
#include <optional>

#include "ir/program/program.h"

namespace optc {

// ONNX's activations (operators LSTM, GRU, RNN: attribute `activations`).
enum class CellActivation : uint8_t {
  kSigmoid,
  kTanh,
  kRelu,
  kAffine,
  kLeakyRelu,
  kThresholdedRelu,
  kScaledTanh,
  kHardSigmoid,
  kElu,
  kSoftsign,
  kSoftplus,
};
struct CellFunction {
  CellActivation kind = CellActivation::kTanh;
  float alpha = 0, beta = 0;
  friend bool operator==(const CellFunction &, const CellFunction &) = default;
};

// One direction of a layer. Gates in ONNX's order: 4: LSTM (i, o, f, c), 3: GRU (z, r, h), 1: RNN.
struct RecurrentCell {
  int64_t gates = 1;
  std::array<CellFunction, 3> functions;  // f, g, h of ONNX; what a cell has not is tanh
  bool linear_before_reset = false;       // GRU
  bool input_forget = false;              // LSTM
  float clip = 0;                         // 0: none
  bool reverse = false;                   // runs from the last step to the first
};
// nullopt: an activation is missing, or none of ONNX's.
std::optional<RecurrentCell> recurrent_cell(const LibraryCall &call, int64_t direction);

// ONNX's layout 1: the batch is the first dim of sequences and states.
bool is_batch_first(const LibraryCall &call);

// Operands of the library call "rnn_steps": the steps of a layer (an LSTM, GRU or RNN) whose part of the inputs is
// summed. sums: [steps, batch, directions * gates * hidden], with layout 1 [batch, steps, ...], X * W^T with all biases
// that are added to it; r: [directions, gates * hidden, hidden]; bias: [directions, hidden], what a GRU with
// linear_before_reset adds to R_h * h, else absent; h, c, p as ONNX's initial_h, initial_c and P. Outputs: Y, Y_h, Y_c.
struct RecurrentSteps {
  enum Operand : size_t { kSums, kR, kBias, kH, kC, kP };
};

// Why the steps of a layer have no GPU form; "" when they have one. call: an "rnn_steps", or an "rnn" that would become
// one.
std::string reason_against_steps(const Program &program, const LibraryCall &call);

// Shared memory of a block, in this order: states h of the rows, as long as the parts of a sum together (a GRU without
// linear_before_reset: r * h likewise; an LSTM: c), f32; the sums of a step [splits][rows][gates * hidden]; the chunks
// of R that stay [splits][cached][gates * hidden].
struct RecurrentStepsMemory {
  int64_t padded = 0;             // elements of h of a row
  int64_t reset = -1, cell = -1;  // bytes to each part; -1: there is none
  int64_t sums = 0, weights = 0;
  int64_t bytes = 0;
};
RecurrentStepsMemory recurrent_steps_memory(const RecurrentStepsSchedule &schedule, bool linear_before_reset);

}  // namespace optc
