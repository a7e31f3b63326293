// Depthwise convolutions: sums of products in f32, no tensor core has them.
//
// A thread has a strip of neighbouring output pixels of one line in a few neighbouring channels. It walks the rows of
// the kernel: the pixels that the strip reaches in one row of the input are fetched once, while the row before is
// summed, widened once, and used by all taps. What lies outside the image is not fetched: 0, as the padding is. The
// weights of a block's channels lie in shared memory as f32, so that a tap's weights are one load of all its channels.

#include <llvm/IR/Constants.h>

#include <algorithm>
#include <set>

#include "emit/ptx/draft.h"

namespace optc::ptx {

namespace {

struct Plan {
  ConvolutionStripsSchedule schedule;
  DepthwiseView found;
  ScalarId weight;  // in f32, by channel and tap
  const LoopNest *nest = nullptr;
};

class StripsKernel {
 public:
  StripsKernel(KernelContext &k, const Plan &plan)
      : k_(k), b_(k.b), plan_(plan), s_(plan.schedule), g_(plan.schedule.image.geometry), outside_(k) {
    size_ = storage_size(plan.found.element);
    taps_ = g_.kernel[1] * g_.kernel[2];
    block_channels_ = s_.block_vectors * s_.vector;
    // Weights that are copied tap by tap: neighbouring threads write to different banks.
    pitch_ = block_channels_ % 32 == 0 ? block_channels_ + 4 : block_channels_;
    reach_ = strip_reach(s_);
    for (int64_t t = 0; t < s_.strip; ++t)
      for (int64_t tap = 0; tap < g_.kernel[2]; ++tap) read_.insert(t * g_.strides[2] + tap * g_.dilations[2]);
  }

  void emit() {
    place_block();
    const Buffer &weights = k_.program.buffer(root_of(k_.program, plan_.found.view.weight).buffer);
    const bool early = weights.kind == BufferKind::kConstant;
    if (!early) b_.wait_for_kernels_before();
    const unsigned at = b_.reserve_shared(static_cast<unsigned>(taps_ * pitch_ * 4));
    copy_weights(at);
    if (early) b_.wait_for_kernels_before();
    b_.barrier();
    place_thread(at);
    b_.when(active_, [&] { store(sum()); });
  }

 private:
  void place_block() {
    const int64_t vectors = (g_.channels + s_.vector - 1) / s_.vector;
    const int64_t parts = (vectors + s_.block_vectors - 1) / s_.block_vectors;
    height_ = outside_.index(total_extent(s_.rows));
    width_ = outside_.index(total_extent(s_.columns));
    Value strips = b_.div(b_.add(width_, s_.strip - 1), s_.strip);
    Value tiles = b_.div(b_.add(strips, s_.block_strips - 1), s_.block_strips);
    Value rest = b_.div(b_.block(0), parts);
    channel0_ = b_.mul(b_.rem(b_.block(0), parts), block_channels_);
    strip0_ = b_.mul(b_.rem(rest, tiles), s_.block_strips);
    line0_ = b_.mul(b_.div(rest, tiles), s_.block_lines);
  }

  // To shared memory as [tap][channel], in the order in which they lie in memory.
  void copy_weights(unsigned to) {
    const Scalar &load = k_.program.scalars.at(peel(k_.program, plan_.weight).load);
    const auto along = affine_over(k_.program, root_offset(k_.program, load.buffer, load.index), channel_loop());
    const bool by_channel = along && along->coefficient.is(1);
    b_.loop(
        b_.tid(), b_.i32(taps_ * block_channels_), b_.i32(b_.threads()), {},
        [&](Value i, const Values &) {
          const int64_t inner = by_channel ? block_channels_ : taps_;
          Value fast = b_.rem(i, inner), slow = b_.div(i, inner);
          Value channel = by_channel ? fast : slow, tap = by_channel ? slow : fast;
          Value in_all = b_.add(channel0_, channel);
          b_.when(b_.lt(in_all, b_.i32(g_.channels)), [&] {
            Scope scope = outside_;
            scope.set(channel_loop(), in_all);
            delinearize(scope, s_.taps, tap);
            Value place = b_.add(b_.mul(tap, pitch_), channel);
            b_.store(scope.scalar(plan_.weight), b_.shared(b_.add(b_.shl(place, 2), to)), 4);
          });
          return Values{};
        },
        true);
  }

  void place_thread(unsigned weights) {
    Value vector = b_.rem(b_.tid(), s_.block_vectors), rest = b_.div(b_.tid(), s_.block_vectors);
    Value strip = b_.add(strip0_, b_.rem(rest, s_.block_strips));
    Value line = b_.add(line0_, b_.div(rest, s_.block_strips));
    Value image = b_.div(line, height_);
    row_ = b_.rem(line, height_);
    channel_ = b_.add(channel0_, b_.mul(vector, s_.vector));
    column_ = b_.mul(strip, s_.strip);
    image_ = image;
    weights_ = b_.add(b_.mul(vector, 4 * s_.vector), weights);
    Value images = outside_.index(total_extent(s_.images));
    active_ = b_.both(b_.both(b_.lt(image, images), b_.lt(column_, width_)), b_.lt(channel_, b_.i32(g_.channels)));

    // Bit i: the pixel at i of the reach lies between the image's sides.
    first_row_ = b_.sub(b_.mul(row_, g_.strides[1]), b_.i32(g_.pads_begin[1]));
    first_column_ = b_.sub(b_.mul(column_, g_.strides[2]), b_.i32(g_.pads_begin[2]));
    const auto bits_below = [&](Value n) {
      n = b_.max(b_.min(n, b_.i32(reach_)), b_.i32(0));
      return b_.sub(b_.ir.CreateShl(b_.i32(1), n), b_.i32(1));
    };
    Value right = bits_below(b_.sub(outside_.index(s_.image.width), first_column_));
    Value left = bits_below(b_.sub(b_.i32(0), first_column_));
    columns_inside_ = b_.ir.CreateAnd(right, b_.ir.CreateNot(left));

    const Root root = root_of(k_.program, s_.image.input);
    Value offset = b_.mul(image_, outside_.index(s_.image.image_stride));
    offset = b_.add(offset, b_.mul(channel_, outside_.index(s_.image.channel_stride)));
    offset = b_.add(offset, b_.mul(first_column_, outside_.index(s_.image.pixel_stride)));
    first_ = b_.add(offset, outside_.index(root.offset));
    input_ = b_.ir.CreatePtrToInt(k_.pointer(root.buffer), b_.t_i64());
    const BufferKind kind = k_.program.buffer(root.buffer).kind;
    read_only_ = k_.reads_are_invariant || kind == BufferKind::kConstant || kind == BufferKind::kInput;
  }

  // The pixels of the strip's reach in one row of the kernel, as they are stored: words, or one element each.
  Values fetch(Value kernel_row) {
    Value row = b_.add(first_row_, b_.mul(kernel_row, g_.dilations[1]));
    Value inside = b_.ir.CreateICmpULT(row, outside_.index(s_.image.height));
    Value pixels = b_.ir.CreateSelect(inside, columns_inside_, b_.i32(0));
    // In bytes, of a place that may lie before the buffer: integers.
    Value offset = b_.add(first_, b_.mul(row, outside_.index(s_.image.row_stride)));
    Value address = b_.ir.CreateAdd(
        input_, b_.ir.CreateMul(b_.ir.CreateSExt(offset, b_.t_i64()), b_.i64(static_cast<int64_t>(size_))));
    Values out;
    for (const int64_t at : read_) {
      Value take = b_.and_(pixels, int64_t{1} << at);
      const Dim step = s_.image.pixel_stride * Dim(at * static_cast<int64_t>(size_));
      const bool known = step.is_constant() && step.value() < (int64_t{1} << 23);
      Value from = known ? address : b_.ir.CreateAdd(address, b_.ir.CreateSExt(outside_.index(step), b_.t_i64()));
      const Values words = fetch_where(take, from, known ? step.value() : 0);
      out.insert(out.end(), words.begin(), words.end());
    }
    return out;
  }

  // `vector` elements, zeros where `take` (i32) is 0: a load under a predicate, which LLVM has no form for.
  Values fetch_where(Value take, Value address, int64_t offset) {
    const unsigned bytes = size_ * static_cast<unsigned>(s_.vector), words = std::max(1u, bytes / 4);
    const bool half = bytes == 2;
    std::string zeros, list, results;
    for (unsigned i = 0; i < words; ++i) {
      const std::string result = "$" + std::to_string(i);
      zeros += std::string("mov.") + (half ? "b16 " : "b32 ") + result + ", 0; ";
      list += (i ? ", " : "") + result;
      results += std::string(i ? "," : "") + (half ? "=&h" : "=&r");
    }
    if (words > 1) list = "{" + list + "}";
    const std::string text = "{ .reg .pred taken; setp.ne.u32 taken, $" + std::to_string(words + 1) + ", 0; " + zeros +
                             "@taken ld.global" + (read_only_ ? ".nc" : "") +
                             (words > 1 ? ".v" + std::to_string(words) : "") + (half ? ".u16 " : ".u32 ") + list +
                             ", [$" + std::to_string(words) + "+" + std::to_string(offset) + "]; }";
    const std::vector<llvm::Type *> types(words, half ? b_.ir.getInt16Ty() : b_.t_i32());
    return b_.effect_asm(text, results + ",l,r", types, {address, take});
  }

  // The element `lane` of what fetch_where gave, in f32.
  Value widened(const Values &words, size_t first, int64_t lane) {
    if (size_ == 4) return b_.ir.CreateBitCast(words[first + static_cast<size_t>(lane)], b_.t_f32());
    Value word = words[first + static_cast<size_t>(lane / 2)];
    if (plan_.found.element == ElementType::kBFloat16) {
      if (s_.vector == 1) word = b_.ir.CreateZExt(word, b_.t_i32());
      Value high = lane % 2 ? b_.and_(word, 0xFFFF0000) : b_.shl(word, 16);
      return b_.ir.CreateBitCast(high, b_.t_f32());
    }
    Value half = s_.vector == 1 ? b_.ir.CreateBitCast(word, b_.ir.getHalfTy())
                                : b_.ir.CreateExtractElement(
                                      b_.ir.CreateBitCast(word, llvm::FixedVectorType::get(b_.ir.getHalfTy(), 2)),
                                      static_cast<uint64_t>(lane % 2));
    return b_.ir.CreateFPExt(half, b_.t_f32());
  }

  // A fetched row in f32, [pixel][channel].
  Values widened(const Values &words) {
    const size_t each = words.size() / read_.size();
    Values pixels;
    for (size_t at = 0; at < read_.size(); ++at)
      for (int64_t c = 0; c < s_.vector; ++c) pixels.push_back(widened(words, at * each, c));
    return pixels;
  }

  // Whether the pixels of all rows, `words` each, have room in registers beside the sums: short strips, of which there
  // are few threads to hide a fetch behind.
  bool all_in_flight(int64_t words) const {
    constexpr int64_t kMostWords = 56, kRegisters = 112;
    const int64_t all = words * g_.kernel[1], summed = (static_cast<int64_t>(read_.size()) + s_.strip) * s_.vector;
    return all <= kMostWords && all + summed <= kRegisters;
  }

  // Adds one row of the kernel to the sums, [pixel of the strip][channel].
  void add_row(Value kernel_row, const Values &pixels, Values &sums) {
    const int64_t vector = s_.vector;
    Value row = b_.add(weights_, b_.mul(kernel_row, g_.kernel[2] * pitch_ * 4));
    for (int64_t tap = 0; tap < g_.kernel[2]; ++tap) {
      Value from = b_.shared(b_.add(row, tap * pitch_ * 4));
      Values weights;
      if (vector == 1) {
        weights = {b_.load(b_.t_f32(), from, 4)};
      } else {
        Value all = b_.load(llvm::FixedVectorType::get(b_.t_f32(), static_cast<unsigned>(vector)), from,
                            static_cast<unsigned>(4 * vector));
        for (int64_t c = 0; c < vector; ++c)
          weights.push_back(b_.ir.CreateExtractElement(all, static_cast<uint64_t>(c)));
      }
      for (int64_t t = 0; t < s_.strip; ++t) {
        const auto at = std::distance(read_.begin(), read_.find(t * g_.strides[2] + tap * g_.dilations[2]));
        for (int64_t c = 0; c < vector; ++c) {
          Value &sum = sums[static_cast<size_t>(t * vector + c)];
          sum = b_.fma(pixels[static_cast<size_t>(at * vector + c)], weights[static_cast<size_t>(c)], sum);
        }
      }
    }
  }

  Values sum() {
    const size_t count = static_cast<size_t>(s_.strip * s_.vector);
    Values carried(count, identity(b_, Combine::kSum, ElementType::kFloat32));
    const Values first = fetch(b_.i32(0));
    if (all_in_flight(static_cast<int64_t>(first.size()))) {
      std::vector<Values> rows{first};
      for (int64_t i = 1; i < g_.kernel[1]; ++i) rows.push_back(fetch(b_.i32(i)));
      for (int64_t i = 0; i < g_.kernel[1]; ++i) add_row(b_.i32(i), widened(rows[static_cast<size_t>(i)]), carried);
      return carried;
    }
    carried.insert(carried.end(), first.begin(), first.end());
    const auto row = [&](Value kernel_row, const Values &in, bool last) {
      Values sums(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(count)),
          words(in.begin() + static_cast<std::ptrdiff_t>(count), in.end());
      const Values pixels = widened(words);
      const Values next = last ? Values() : fetch(b_.add(kernel_row, 1));
      add_row(kernel_row, pixels, sums);
      sums.insert(sums.end(), next.begin(), next.end());
      return sums;
    };
    Value last = b_.i32(g_.kernel[1] - 1);
    carried = b_.loop(
        b_.i32(0), last, b_.i32(1), carried,
        [&](Value kernel_row, const Values &in) { return row(kernel_row, in, false); }, true);
    carried = row(last, carried, true);
    carried.resize(count);
    return carried;
  }

  void store(const Values &sums) {
    for (int64_t t = 0; t < s_.strip; ++t) {
      Value column = b_.add(column_, t);
      const bool whole = divisible_by(total_extent(s_.columns), s_.strip);
      b_.when(t == 0 || whole ? b_.ir.getTrue() : b_.lt(column, width_), [&] {
        Scope scope = outside_;
        const std::pair<const std::vector<Loop> &, Value> counters[] = {
            {s_.images, image_}, {s_.channels, channel_}, {s_.rows, row_}, {s_.columns, column}};
        for (const auto &[loops, value] : counters)
          if (!loops.empty()) scope.set(loops[0].index, value);
        scope.vectorize(channel_loop(), static_cast<int>(s_.vector));
        const auto from = sums.begin() + static_cast<std::ptrdiff_t>(t * s_.vector);
        store_sums(scope, *plan_.nest, Values(from, from + static_cast<std::ptrdiff_t>(s_.vector)));
      });
    }
  }

  const DimSymbol *channel_loop() const { return s_.channels[0].index; }

  KernelContext &k_;
  Builder &b_;
  const Plan &plan_;
  const ConvolutionStripsSchedule &s_;
  const ConvolutionGeometry &g_;
  Scope outside_;
  unsigned size_ = 4;  // of an element
  int64_t taps_ = 1, block_channels_ = 1, pitch_ = 1, reach_ = 1;
  std::set<int64_t> read_;  // pixels of the reach
  bool read_only_ = false;
  Value height_ = nullptr, width_ = nullptr;                       // of the result
  Value channel0_ = nullptr, strip0_ = nullptr, line0_ = nullptr;  // of the block
  Value image_ = nullptr, row_ = nullptr, column_ = nullptr, channel_ = nullptr, active_ = nullptr;
  Value first_row_ = nullptr, first_column_ = nullptr, columns_inside_ = nullptr;  // of the input
  Value first_ = nullptr, input_ = nullptr, weights_ = nullptr;  // elements to row 0, bytes, bytes of shared memory
};

}  // namespace

std::optional<Draft> draft_depthwise(const Program &program, const Kernel &kernel, const ConvolutionStripsSchedule &s) {
  const auto found = depthwise_view(program, kernel);
  ProductSum sum;
  if (!found || !is_strip(s) || s.channels.size() != 1 || !product_sum(program, *kernel.nest(), sum))
    return std::nullopt;
  const int64_t vectors = (s.image.geometry.channels + s.vector - 1) / s.vector;
  const Dim strips = ceil_div(total_extent(s.columns), s.strip);
  const Dim lines = total_extent(s.images) * total_extent(s.rows);
  Draft draft;
  draft.form = "depthwise " + std::to_string(s.strip) + " pixels x " + std::to_string(s.vector) + " channels";
  draft.threads = static_cast<unsigned>(s.block_vectors * s.block_strips * s.block_lines);
  draft.min_blocks = 512 / draft.threads;
  draft.grid[0] = Dim((vectors + s.block_vectors - 1) / s.block_vectors) * ceil_div(strips, s.block_strips) *
                  ceil_div(lines, s.block_lines);
  draft.waits = true;
  draft.body = [plan = Plan{s, *found, sum.rhs, kernel.nest()}](KernelContext &k) { StripsKernel(k, plan).emit(); };
  return draft;
}

}  // namespace optc::ptx
