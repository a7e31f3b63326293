// The steps of a recurrent layer: one block a direction and a few rows of the batch, from the first step to the last.
//
// A step is h * R^T: each thread sums a part of a column (or of a few) for the block's rows, R as chunks of 16 bytes
// along the sum, those of neighbouring threads beside one another; what has room stays in shared memory, the rest comes
// through the second cache. The sums meet in shared memory, and a thread makes of those of a unit its new states. All
// arithmetic is f32. A GRU without linear_before_reset sums twice a step: its last gate sees r * h.

#include <utility>

#include "emit/ptx/draft.h"
#include "emit/ptx/math.h"
#include "ir/program/recurrent.h"

namespace optc::ptx {

namespace {

constexpr int64_t kChunkBytes = 16;

class StepsKernel {
 public:
  StepsKernel(KernelContext &k, const Kernel &kernel, const RecurrentStepsSchedule &schedule)
      : k_(k),
        b_(k.b),
        call_(*kernel.library()),
        s_(schedule),
        cell_(*recurrent_cell(call_, 0)),
        memory_(recurrent_steps_memory(s_, cell_.linear_before_reset)),
        columns_(s_.gates * s_.hidden),
        batch_first_(is_batch_first(call_)),
        sizes_(k) {
    directions_ = k.program.buffer(s_.r.buffer).constant.dims()[0];
  }

  void emit() {
    const Shape &sums = k_.program.buffer(call_.inputs[RecurrentSteps::kSums]).shape();
    batch_ = sizes_.index(sums[batch_first_ ? 0 : 1]);
    steps_ = sizes_.index(sums[batch_first_ ? 1 : 0]);
    direction_ = b_.block(1);
    row0_ = b_.mul(b_.block(0), s_.rows);
    split_ = b_.div(b_.tid(), s_.columns);
    column_ = b_.rem(b_.tid(), s_.columns);
    b_.reserve_shared(static_cast<unsigned>(memory_.bytes));
    // Part `split` of column 0, of this direction.
    weights_ = operand(s_.r.buffer);
    Value part = b_.add(b_.mul(direction_, s_.splits), split_);
    first_chunk_ = b_.mul(part, s_.chunks * columns_);
    keep_weights();
    b_.wait_for_kernels_before();
    begin();
    b_.barrier();
    b_.loop(b_.i32(0), steps_, b_.i32(1), {}, [&](Value step, const Values &) {
      one_step(step);
      return Values{};
    });
    end();
  }

 private:
  struct Item {       // a unit of a row, as one thread has it
    Value unit, row;  // row of the block
    Value in_batch;   // the row of the batch, inside of it
    Value inside;     // i1: there is such a row, and such a unit
  };

  bool two_sums() const { return s_.gates == 3 && !cell_.linear_before_reset; }
  bool is_lstm() const { return s_.gates == 4; }

  // Pointer to an operand's first element; null: absent.
  Value operand(BufferId id) {
    if (!id.valid()) return nullptr;
    const Root root = root_of(k_.program, id);
    return b_.at(storage_type(b_, k_.program.buffer(id).element()), k_.pointer(root.buffer), sizes_.index(root.offset));
  }
  Value operand(size_t i) { return operand(i < call_.inputs.size() ? call_.inputs[i] : BufferId()); }
  Value result(size_t i) { return operand(i < call_.outputs.size() ? call_.outputs[i] : BufferId()); }
  Value load(Value from, Value index) { return b_.load(b_.t_f32(), b_.at(b_.t_f32(), from, index), 4); }
  void put(Value to, Value index, Value v) { b_.store(v, b_.at(b_.t_f32(), to, index), 4); }

  Value local(int64_t part, Value index) {  // f32 in shared memory
    return b_.shared(b_.add(b_.shl(index, 2), part));
  }
  Value read_local(int64_t part, Value index) { return b_.load(b_.t_f32(), local(part, index), 4); }
  void write_local(int64_t part, Value index, Value v) { b_.store(v, local(part, index), 4); }

  // f(item) for each item of this thread: the units of the block's rows are dealt out.
  template <typename F>
  void each_item(const F &f) {
    const int64_t all = s_.rows * s_.hidden, threads = s_.threads();
    for (int64_t first = 0; first < all; first += threads) {
      Value i = b_.add(b_.tid(), first);
      Value there = b_.lt(i, b_.i32(all));
      i = b_.ir.CreateSelect(there, i, b_.i32(0));  // of a thread without a unit: what it reads is in range
      Item item;
      item.unit = b_.rem(i, s_.hidden);
      item.row = b_.div(i, s_.hidden);
      Value row = b_.add(row0_, item.row);
      item.inside = b_.both(there, b_.lt(row, batch_));
      item.in_batch = row;
      f(item);
    }
  }

  // State [directions, batch, hidden], with layout 1 [batch, directions, hidden].
  Value state_index(const Item &item) {
    Value outer = batch_first_ ? b_.add(b_.mul(item.in_batch, directions_), direction_)
                               : b_.add(b_.mul(direction_, batch_), item.in_batch);
    return b_.add(b_.mul(outer, s_.hidden), item.unit);
  }
  Value h_index(const Item &item) { return b_.add(b_.mul(item.row, memory_.padded), item.unit); }
  Value c_index(const Item &item) { return b_.add(b_.mul(item.row, s_.hidden), item.unit); }

  // Chunk `chunk` of this thread's part of a column, in memory and, where it stays, in shared memory.
  Value chunk_in_memory(Value chunk, Value column) {
    Value at = b_.add(first_chunk_, b_.add(b_.mul(chunk, columns_), column));
    return b_.at(b_.ir.getInt8Ty(), weights_, b_.ir.CreateMul(b_.ir.CreateZExt(at, b_.t_i64()), b_.i64(kChunkBytes)));
  }
  Value chunk_in_shared(Value chunk, Value column) {
    Value at = b_.add(b_.mul(b_.add(b_.mul(split_, s_.cached), chunk), columns_), column);
    return b_.shared(b_.add(b_.mul(at, kChunkBytes), memory_.weights));
  }
  llvm::Type *chunk_type() { return llvm::FixedVectorType::get(b_.t_i32(), 4); }

  // f(column) for each column of this thread.
  template <typename F>
  void each_column(int64_t begin, int64_t end, const F &f) {
    for (int64_t first = begin; first < end; first += s_.columns) {
      Value column = b_.add(column_, first);
      if (first + s_.columns <= end)
        f(column);
      else
        b_.when(b_.lt(column, b_.i32(end)), [&] { f(column); });
    }
  }

  void keep_weights() {
    if (s_.cached == 0) return;
    each_column(0, columns_, [&](Value column) {
      b_.loop(
          b_.i32(0), b_.i32(s_.cached), b_.i32(1), {},
          [&](Value chunk, const Values &) {
            Value v = b_.load(chunk_type(), chunk_in_memory(chunk, column), 16, true);
            b_.store(v, chunk_in_shared(chunk, column), 16);
            return Values{};
          },
          true);
    });
  }

  void begin() {
    // Zeros behind the last unit, where R's chunks are zeros, too, and in rows that the batch has not.
    b_.loop(
        b_.tid(), b_.i32(s_.rows * memory_.padded), b_.i32(s_.threads()), {},
        [&](Value i, const Values &) {
          write_local(0, i, b_.f32(0));
          if (two_sums()) write_local(memory_.reset, i, b_.f32(0));
          return Values{};
        },
        true);
    b_.barrier();
    Value h = operand(size_t{RecurrentSteps::kH}), c = operand(size_t{RecurrentSteps::kC});
    each_item([&](const Item &item) {
      b_.when(item.inside, [&] {
        if (h) write_local(0, h_index(item), load(h, state_index(item)));
        if (is_lstm()) write_local(memory_.cell, c_index(item), c ? load(c, state_index(item)) : b_.f32(0));
      });
    });
  }

  void end() {
    Value h = result(1), c = is_lstm() ? result(2) : nullptr;
    if (!h && !c) return;
    each_item([&](const Item &item) {
      b_.when(item.inside, [&] {
        if (h) put(h, state_index(item), read_local(0, h_index(item)));
        if (c) put(c, state_index(item), read_local(memory_.cell, c_index(item)));
      });
    });
  }

  // The weights of a chunk in f32.
  Values widened(Value chunk) {
    Values out;
    for (unsigned i = 0; i < 4; ++i) {
      Value word = b_.ir.CreateExtractElement(chunk, uint64_t{i});
      if (s_.weights == ElementType::kFloat32) {
        out.push_back(b_.ir.CreateBitCast(word, b_.t_f32()));
      } else if (s_.weights == ElementType::kBFloat16) {
        out.push_back(b_.ir.CreateBitCast(b_.shl(word, 16), b_.t_f32()));
        out.push_back(b_.ir.CreateBitCast(b_.and_(word, 0xFFFF0000), b_.t_f32()));
      } else {
        Value two = b_.ir.CreateBitCast(word, llvm::FixedVectorType::get(b_.ir.getHalfTy(), 2));
        for (unsigned j = 0; j < 2; ++j)
          out.push_back(b_.ir.CreateFPExt(b_.ir.CreateExtractElement(two, uint64_t{j}), b_.t_f32()));
      }
    }
    return out;
  }

  // sums[row] += chunk * h of the rows, `state` the part of shared memory that h is.
  Values add_chunk(int64_t state, Value chunk_index, Value chunk, Values sums) {
    const Values w = widened(chunk);
    Value first = b_.mul(b_.add(b_.mul(split_, s_.chunks), chunk_index), s_.chunk_elements());
    for (int64_t row = 0; row < s_.rows; ++row)
      for (size_t i = 0; i < w.size(); i += 4) {
        Value at = b_.add(first, row * memory_.padded + static_cast<int64_t>(i));
        Value h = b_.load(llvm::FixedVectorType::get(b_.t_f32(), 4), local(state, at), 16);
        for (size_t j = 0; j < 4; ++j)
          sums[static_cast<size_t>(row)] =
              b_.fma(w[i + j], b_.ir.CreateExtractElement(h, uint64_t{j}), sums[static_cast<size_t>(row)]);
      }
    return sums;
  }

  // This part of the sums of columns [begin, end) into shared memory.
  void multiply(int64_t state, int64_t begin, int64_t end) {
    each_column(begin, end, [&](Value column) {
      Values sums(static_cast<size_t>(s_.rows), b_.f32(0));
      // A few chunks are on their way at a time.
      const auto walk = [&](int64_t from, int64_t to, int64_t together, const auto &fetch) {
        const int64_t whole = from + (to - from) / together * together;
        const auto some = [&](Value first, int64_t count, Values sums_before) {
          Values chunks;
          for (int64_t i = 0; i < count; ++i) chunks.push_back(fetch(b_.add(first, i)));
          for (int64_t i = 0; i < count; ++i)
            sums_before = add_chunk(state, b_.add(first, i), chunks[static_cast<size_t>(i)], sums_before);
          return sums_before;
        };
        if (whole > from)
          sums = b_.loop(
              b_.i32(from), b_.i32(whole), b_.i32(together), sums,
              [&](Value chunk, const Values &carried) { return some(chunk, together, carried); }, true);
        if (to > whole) sums = some(b_.i32(whole), to - whole, sums);
      };
      walk(0, s_.cached, 2, [&](Value chunk) { return b_.load(chunk_type(), chunk_in_shared(chunk, column), 16); });
      walk(s_.cached, s_.chunks, s_.rows > 2 ? 2 : 4,
           [&](Value chunk) { return b_.load(chunk_type(), chunk_in_memory(chunk, column), 16, true); });
      for (int64_t row = 0; row < s_.rows; ++row) {
        Value at = b_.add(b_.mul(b_.add(b_.mul(split_, s_.rows), row), columns_), column);
        write_local(memory_.sums, at, sums[static_cast<size_t>(row)]);
      }
    });
  }

  // The sum of a gate's column over its parts.
  Value multiplied(const Item &item, int64_t gate) {
    Value sum = nullptr;
    for (int64_t split = 0; split < s_.splits; ++split) {
      Value at = b_.add(b_.mul(b_.add(item.row, split * s_.rows), columns_), b_.add(item.unit, gate * s_.hidden));
      Value part = read_local(memory_.sums, at);
      sum = sum ? b_.ir.CreateFAdd(sum, part) : part;
    }
    return sum;
  }

  Value between(Value x, double low, double high) {  // NaN stays
    x = b_.ir.CreateSelect(b_.ir.CreateFCmpOLT(x, b_.f32(low)), b_.f32(low), x);
    return b_.ir.CreateSelect(b_.ir.CreateFCmpOGT(x, b_.f32(high)), b_.f32(high), x);
  }
  Value activation(size_t which, Value x) {
    const CellFunction &f = cell_.functions[which];
    if (cell_.clip > 0) x = between(x, -cell_.clip, cell_.clip);
    Value alpha = b_.f32(f.alpha), beta = b_.f32(f.beta), zero = b_.f32(0);
    auto &ir = b_.ir;
    switch (f.kind) {
      case CellActivation::kSigmoid:
        return sigmoid_f32(b_, x);
      case CellActivation::kTanh:
        return tanh_f32(b_, x);
      case CellActivation::kRelu:
        return ir.CreateSelect(ir.CreateFCmpOLT(x, zero), zero, x);
      case CellActivation::kAffine:
        return b_.fma(alpha, x, beta);
      case CellActivation::kLeakyRelu:
        return ir.CreateSelect(ir.CreateFCmpOLT(x, zero), ir.CreateFMul(x, alpha), x);
      case CellActivation::kThresholdedRelu:
        return ir.CreateSelect(ir.CreateFCmpOGT(x, alpha), x, zero);
      case CellActivation::kScaledTanh:
        return ir.CreateFMul(alpha, tanh_f32(b_, ir.CreateFMul(beta, x)));
      case CellActivation::kHardSigmoid:
        return between(b_.fma(alpha, x, beta), 0, 1);
      case CellActivation::kElu:
        return ir.CreateSelect(ir.CreateFCmpOLT(x, zero), ir.CreateFMul(alpha, expm1_f32(b_, x)), x);
      case CellActivation::kSoftsign:
        return ir.CreateFDiv(x, ir.CreateFAdd(b_.f32(1), b_.call(llvm::Intrinsic::fabs, {b_.t_f32()}, {x})));
      case CellActivation::kSoftplus: {
        Value size = b_.call(llvm::Intrinsic::fabs, {b_.t_f32()}, {x});
        Value tail = log1p_f32(b_, exp_f32(b_, ir.CreateFNeg(size)));
        return ir.CreateFAdd(ir.CreateSelect(ir.CreateFCmpOGT(x, zero), x, zero), tail);
      }
    }
    return x;
  }

  void one_step(Value step) {
    // What the step adds to its products is on its way while they are summed.
    Value last = b_.sub(b_.sub(steps_, b_.i32(1)), step);
    Value backwards = directions_ == 2 ? b_.ir.CreateICmpEQ(direction_, b_.i32(1)) : b_.ir.getInt1(cell_.reverse);
    Value time = b_.ir.CreateSelect(backwards, last, step);
    std::vector<Values> inputs;  // of each item, by gate
    Value sums = operand(size_t{RecurrentSteps::kSums});
    each_item([&](const Item &item) {
      Value outer =
          batch_first_ ? b_.add(b_.mul(item.in_batch, steps_), time) : b_.add(b_.mul(time, batch_), item.in_batch);
      Value first = b_.add(b_.mul(b_.add(b_.mul(outer, directions_), direction_), columns_), item.unit);
      first = b_.ir.CreateSelect(item.inside, first, b_.i32(0));
      Values gates;
      for (int64_t gate = 0; gate < s_.gates; ++gate)
        gates.push_back(load(sums, b_.ir.CreateSelect(item.inside, b_.add(first, gate * s_.hidden), b_.i32(0))));
      inputs.push_back(std::move(gates));
    });
    if (two_sums()) {
      multiply(0, 0, 2 * s_.hidden);
      b_.barrier();
      size_t at = 0;
      updates_.clear();
      each_item([&](const Item &item) {
        const Values &in = inputs[at++];
        Value z = activation(0, b_.ir.CreateFAdd(in[0], multiplied(item, 0)));
        Value r = activation(0, b_.ir.CreateFAdd(in[1], multiplied(item, 1)));
        updates_.push_back(z);
        b_.when(item.inside,
                [&] { write_local(memory_.reset, h_index(item), b_.ir.CreateFMul(r, read_local(0, h_index(item)))); });
      });
      b_.barrier();
      multiply(memory_.reset, 2 * s_.hidden, columns_);
    } else {
      multiply(0, 0, columns_);
    }
    b_.barrier();
    size_t at = 0;
    each_item([&](const Item &item) {
      const size_t which = at++;
      b_.when(item.inside, [&] {
        Value h = new_state(item, inputs[which], which);
        write_local(0, h_index(item), h);
        if (Value y = result(0)) put(y, output_index(item, time), h);
      });
    });
    b_.barrier();
  }

  // Y [steps, directions, batch, hidden], with layout 1 [batch, steps, directions, hidden].
  Value output_index(const Item &item, Value time) {
    Value outer = batch_first_ ? b_.add(b_.mul(b_.add(b_.mul(item.in_batch, steps_), time), directions_), direction_)
                               : b_.add(b_.mul(b_.add(b_.mul(time, directions_), direction_), batch_), item.in_batch);
    return b_.add(b_.mul(outer, s_.hidden), item.unit);
  }

  // h of a unit behind the step (ONNX, operators LSTM, GRU and RNN: Equations); an LSTM's c is written.
  Value new_state(const Item &item, const Values &in, size_t which) {
    auto &ir = b_.ir;
    const auto gate = [&](int64_t g) { return ir.CreateFAdd(in[static_cast<size_t>(g)], multiplied(item, g)); };
    if (s_.gates == 1) return activation(0, gate(0));
    if (s_.gates == 3) {
      Value old = read_local(0, h_index(item));
      Value z, fresh;
      if (two_sums()) {
        z = updates_[which];
        fresh = gate(2);
      } else {
        z = activation(0, gate(0));
        Value r = activation(0, gate(1)), product = multiplied(item, 2);
        if (Value bias = operand(size_t{RecurrentSteps::kBias}))
          product = ir.CreateFAdd(product, load(bias, b_.add(b_.mul(direction_, s_.hidden), item.unit)));
        fresh = b_.fma(r, product, in[2]);
      }
      fresh = activation(1, fresh);
      return b_.fma(z, ir.CreateFSub(old, fresh), fresh);
    }
    // Peepholes [directions, 3 * hidden]: i, o, f.
    Value p = operand(size_t{RecurrentSteps::kP});
    const auto peephole = [&](int64_t g, Value sum, Value c) {
      if (!p) return sum;
      Value at = b_.add(b_.mul(b_.add(b_.mul(direction_, 3), g), s_.hidden), item.unit);
      return b_.fma(load(p, at), c, sum);
    };
    Value old = read_local(memory_.cell, c_index(item));
    Value i = activation(0, peephole(0, gate(0), old));
    Value f = cell_.input_forget ? ir.CreateFSub(b_.f32(1), i) : activation(0, peephole(2, gate(2), old));
    Value c = b_.fma(f, old, ir.CreateFMul(i, activation(1, gate(3))));
    write_local(memory_.cell, c_index(item), c);
    Value o = activation(0, peephole(1, gate(1), c));
    return ir.CreateFMul(o, unclipped(2, c));
  }
  // h of the cell state sees no clip.
  Value unclipped(size_t which, Value x) {
    const float clip = std::exchange(cell_.clip, 0.0f);
    Value y = activation(which, x);
    cell_.clip = clip;
    return y;
  }

  KernelContext &k_;
  Builder &b_;
  const LibraryCall &call_;
  const RecurrentStepsSchedule &s_;
  RecurrentCell cell_;
  const RecurrentStepsMemory memory_;
  const int64_t columns_;
  const bool batch_first_;
  Scope sizes_;
  int64_t directions_ = 1;
  Value batch_ = nullptr, steps_ = nullptr, direction_ = nullptr, row0_ = nullptr;
  Value split_ = nullptr, column_ = nullptr, first_chunk_ = nullptr, weights_ = nullptr;
  Values updates_;  // of a GRU that sums twice: z, by item
};

}  // namespace

std::optional<Draft> draft_recurrent(const Program &program, const Kernel &kernel, const RecurrentStepsSchedule &s) {
  const LibraryCall *call = kernel.library();
  if (!call || call->function != "rnn_steps" || !s.r.buffer.valid()) return std::nullopt;
  const Dim batch = program.buffer(call->inputs[RecurrentSteps::kSums]).shape()[is_batch_first(*call) ? 0 : 1];
  Draft draft;
  draft.form = "rnn.steps " + std::to_string(s.threads()) + " threads x " + std::to_string(s.rows) + " rows";
  draft.threads = static_cast<unsigned>(s.threads());
  draft.grid[0] = ceil_div(batch, s.rows);
  draft.grid[1] = Dim(program.buffer(s.r.buffer).constant.dims()[0]);
  draft.waits = true;
  draft.body = [&kernel, &s](KernelContext &k) { StepsKernel(k, kernel, s).emit(); };
  return draft;
}

}  // namespace optc::ptx
