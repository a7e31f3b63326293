#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>

#include "ir/program/contraction_view.h"
#include "lowering/layout/layout.h"

namespace optc {
namespace {

// Row-major [O, I, space...] as [O, space..., I].
Constant channels_last(const Constant &weight) {
  const auto &dims = weight.dims();
  const size_t element = static_cast<size_t>(bit_width(weight.type()) / 8);
  const size_t outer = static_cast<size_t>(dims[0]), channels = static_cast<size_t>(dims[1]);
  const size_t space = static_cast<size_t>(weight.count()) / (outer * channels);
  return Constant::made(weight.type(), dims, "channels_last", {weight}, [=](const Constant::Sink &sink) {
    const Constant plain = weight.plain();
    std::vector<uint8_t> bytes(plain.size());
    for (size_t o = 0; o < outer; ++o)
      for (size_t i = 0; i < channels; ++i)
        for (size_t s = 0; s < space; ++s)
          std::memcpy(bytes.data() + ((o * space + s) * channels + i) * element,
                      plain.data() + ((o * channels + i) * space + s) * element, element);
    return sink(bytes.data(), bytes.size());
  });
}

// Row-major [K, N] as [N, K].
Constant transposed(const Constant &weight) {
  const size_t rows = static_cast<size_t>(weight.dims()[0]), columns = static_cast<size_t>(weight.dims()[1]);
  return Constant::made(weight.type(), weight.dims(), "transposed", {weight}, [=](const Constant::Sink &sink) {
    const Constant plain = weight.plain();
    std::vector<uint8_t> bytes(plain.size());
    constexpr size_t kBlock = 16;  // of both, within the cache
    for (size_t r0 = 0; r0 < rows; r0 += kBlock)
      for (size_t c0 = 0; c0 < columns; c0 += kBlock)
        for (size_t c = c0; c < std::min(columns, c0 + kBlock); ++c)
          for (size_t r = r0; r < std::min(rows, r0 + kBlock); ++r)
            std::memcpy(bytes.data() + (c * rows + r) * 4, plain.data() + (r * columns + c) * 4, 4);
    return sink(bytes.data(), bytes.size());
  });
}

// f32 weights [K, N] of matrix products that one kernel alone reads: with k innermost a fragment of the tensor core is
// one ldmatrix, which moves 16-bit elements across rows but not f32.
void order_products(Program &program, const std::vector<bool> &viewed, Steps &steps) {
  std::vector<int> readers(program.buffers.size(), 0);
  for (const Kernel &kernel : program.kernels)
    if (kernel.alive)
      for (BufferId id : reads(program, kernel)) ++readers[id.index];
  auto among = [](const std::vector<const DimSymbol *> &loops, Dim d) {
    const DimSymbol *symbol = single_symbol(d);
    return symbol && std::find(loops.begin(), loops.end(), symbol) != loops.end();
  };
  std::map<const void *, Constant> done;
  for (const Kernel &kernel : program.kernels) {
    const LoopNest *nest = kernel.alive ? kernel.nest() : nullptr;
    if (!nest || !nest->contraction || nest->contraction->kind == ContractionKind::kAttention) continue;
    const Contraction &c = *nest->contraction;
    for (const auto &[side, outer] : {std::make_pair(c.lhs, &c.m), std::make_pair(c.rhs, &c.n)}) {
      const Scalar &load = program.scalars.at(side);
      if (load.op != ScalarOp::kLoad || load.index.size() != 2 || !among(c.k, load.index[0]) ||
          !among(*outer, load.index[1]))
        continue;
      Buffer &weight = program.buffer(load.buffer);
      if (weight.kind != BufferKind::kConstant || !weight.constant.valid() || weight.alias.valid() ||
          viewed[load.buffer.index] || readers[load.buffer.index] != 1 || !weight.order.empty() ||
          weight.element() != ElementType::kFloat32 || weight.constant.dims().size() != 2 ||
          weight.constant.count() == 0)
        continue;
      if (!steps.allowed("layout.weights")) return;
      steps.record("layout.weights", weight.name, kernel.origin);
      weight.order = {1, 0};
      Constant &ordered = done[weight.constant.identity()];
      if (!ordered.valid()) ordered = transposed(weight.constant);
      weight.constant = ordered;
    }
  }
}

}  // namespace

void order_weights(Program &program, Steps &steps) {
  std::vector<bool> viewed(program.buffers.size(), false);
  for (const Buffer &b : program.buffers)
    if (b.alias.valid()) viewed[b.alias.index] = true;
  std::map<const void *, Constant> done;  // one constant may be several buffers
  for (const Kernel &kernel : program.kernels) {
    if (!kernel.alive) continue;
    const auto view = convolution_view(program, kernel);
    if (!view) continue;
    // Beside an input whose channels lie innermost.
    const Buffer &input = program.buffer(view->input);
    if (input.order.empty() || input.order.back() != 1) continue;
    Buffer &weight = program.buffer(view->weight);
    if (weight.kind != BufferKind::kConstant || !weight.constant.valid() || weight.alias.valid() ||
        viewed[view->weight.index] || !weight.order.empty() || bit_width(weight.element()) < 8 ||
        weight.constant.count() == 0)
      continue;
    const auto &dims = weight.constant.dims();
    const int64_t space = std::accumulate(dims.begin() + 2, dims.end(), int64_t{1}, std::multiplies<>());
    if (dims[1] == 1 || space == 1) continue;  // the same either way
    if (!steps.allowed("layout.weights")) return;
    steps.record("layout.weights", weight.name, kernel.origin);
    weight.order = {0};
    for (size_t i = 2; i < dims.size(); ++i) weight.order.push_back(static_cast<int>(i));
    weight.order.push_back(1);
    Constant &ordered = done[weight.constant.identity()];
    if (!ordered.valid()) ordered = channels_last(weight.constant);
    weight.constant = ordered;
  }
  order_products(program, viewed, steps);
}

}  // namespace optc
