#pragma once
// Small Programs for the tests of emit/ptx: one nest each, made with the scalar pool.

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ir/program/program.h"

namespace optc::testing {

class NestProgram {
 public:
  NestProgram() {
    program.dims = std::make_shared<DimTable>();
    program.name = "test";
  }
  // A product's first operand, attention's keys and values lie in f32 and are rounded to the products' type as they are
  // read.
  bool given_in_f32 = false;
  MaskedRows masked_rows = MaskedRows::kZeroProbabilities;  // of attention, as optc.Attention has it
  ScalarPool &pool() { return program.scalars; }
  BufferId buffer(const std::string &name, BufferKind kind, ElementType type, Shape shape) {
    Buffer b;
    b.name = name;
    b.kind = kind;
    b.type = Type::tensor(type, std::move(shape));
    BufferId id = program.add_buffer(std::move(b));
    if (kind == BufferKind::kInput) program.inputs.push_back(id);
    if (kind == BufferKind::kOutput) program.outputs.push_back(id);
    return id;
  }
  BufferId input(const std::string &name, ElementType type, Shape shape) {
    return buffer(name, BufferKind::kInput, type, std::move(shape));
  }
  BufferId output(const std::string &name, ElementType type, Shape shape) {
    return buffer(name, BufferKind::kOutput, type, std::move(shape));
  }
  Dim loop(std::vector<Loop> &loops, const std::string &name, Dim extent) {
    Dim d = program.dims->new_loop(name, extent);
    loops.push_back({single_symbol(d), extent});
    return d;
  }
  // The element in f32, whatever it is stored as.
  ScalarId load(BufferId b, std::vector<Dim> index) {
    ScalarId id = pool().load(b, program.buffer(b).element(), std::move(index));
    const ElementType t = program.buffer(b).element();
    return t == ElementType::kFloat16 || t == ElementType::kBFloat16 ? pool().cast(id, ElementType::kFloat32) : id;
  }
  // The same, rounded to `type` first.
  ScalarId load_as(ElementType type, BufferId b, std::vector<Dim> index) {
    const ScalarId id = load(b, std::move(index));
    return given_in_f32 ? pool().cast(pool().cast(id, type), ElementType::kFloat32) : id;
  }
  StageOutput store(BufferId b, std::vector<Dim> index, ScalarId value) {
    StageOutput o;
    o.buffer = b;
    o.index = std::move(index);
    o.value = pool().cast(value, program.buffer(b).element());
    return o;
  }
  LocalId local(LoopNest &nest, const std::string &name, ElementType type, Shape shape = {}) {
    nest.locals.push_back({name, type, std::move(shape)});
    return LocalId(nest.locals.size() - 1);
  }
  StageOutput reduce(LocalId local, Combine how, ScalarId value) {
    StageOutput o;
    o.local = local;
    o.value = value;
    o.combine = how;
    return o;
  }
  void add(const std::string &name, LoopNest nest) {
    Kernel kernel;
    kernel.name = name;
    kernel.body = std::move(nest);
    program.order.push_back(program.add_kernel(std::move(kernel)));
  }
  // y[b, m, n] = sum over k of a[b, m, k] * w[b?, k, n] + bias[n], relu; w as [K, N] or, transposed, [N, K].
  void matmul(ElementType type, int64_t batch, Dim m, int64_t n, int64_t k, bool transposed_b, bool batched_b) {
    BufferId a = input("a", given_in_f32 ? ElementType::kFloat32 : type, {batch, m, k});
    Shape ws = transposed_b ? Shape{n, k} : Shape{k, n};
    if (batched_b) ws.insert(ws.begin(), batch);
    BufferId w = input("w", type, ws), bias = input("bias", ElementType::kFloat32, {n}),
             y = output("y", type, {batch, m, n});
    LoopNest nest;
    Dim ib = loop(nest.loops, "b", batch), im = loop(nest.loops, "m", m), in = loop(nest.loops, "n", n);
    LocalId sum = local(nest, "sum", ElementType::kFloat32);
    Stage products, finish;
    Dim ik = loop(products.loops, "k", k);
    std::vector<Dim> wi = transposed_b ? std::vector<Dim>{in, ik} : std::vector<Dim>{ik, in};
    if (batched_b) wi.insert(wi.begin(), ib);
    Contraction c;
    c.lhs = load_as(type, a, {ib, im, ik});
    c.rhs = load(w, wi);
    c.batch = {single_symbol(ib)};
    c.m = {single_symbol(im)};
    c.n = {single_symbol(in)};
    c.k = {single_symbol(ik)};
    products.outputs.push_back(reduce(sum, Combine::kSum, pool().binary(ScalarOp::kMul, c.lhs, c.rhs)));
    nest.contraction = c;
    ScalarId v = pool().binary(ScalarOp::kAdd, pool().local(sum, ElementType::kFloat32, {}), load(bias, {in}));
    v = pool().binary(ScalarOp::kMax, v, pool().constant(ElementType::kFloat32, 0));
    finish.outputs.push_back(store(y, {ib, im, in}, v));
    nest.stages = {products, finish};
    add("matmul", std::move(nest));
  }
  // Of two dims: the rows, then the columns.
  struct Convolution {
    ElementType type = ElementType::kFloat16;
    int64_t batch = 1;
    std::array<int64_t, 2> size{8, 8};
    int64_t channels = 8, out = 8;
    std::array<int64_t, 2> kernel{3, 3}, strides{1, 1}, begin{1, 1}, end{1, 1}, dilations{1, 1};
    bool filters_last = false;  // weights [R, S, C, O], else [O, R, S, C]
    bool images_last = false;   // y as [N, O, P, Q] (rows along memory), else [N, P, Q, O]
    bool residual = false;      // y = relu(sum + z), z as y
    // What lies outside of the image: 0, its last element, or 0 from one element further inside on.
    enum class Border { kZero, kEdge, kInside } border = Border::kZero;
    int64_t outputs(size_t d) const {
      return (size[d] + begin[d] + end[d] - dilations[d] * (kernel[d] - 1) - 1) / strides[d] + 1;
    }
  };
  // NHWC convolution. Dims of extent 1 have no loop, as lowering leaves them; `batch`, where it is symbolic, is N.
  void convolution(const Convolution &v, Dim images) {
    const int64_t p = v.outputs(0), q = v.outputs(1);
    Dim o = v.out;
    BufferId x = input("x", v.type, {images, v.size[0], v.size[1], v.channels});
    BufferId w = v.filters_last ? input("w", v.type, {v.kernel[0], v.kernel[1], v.channels, v.out})
                                : input("w", v.type, {v.out, v.kernel[0], v.kernel[1], v.channels});
    const Shape result = v.images_last ? Shape{images, o, p, q} : Shape{images, p, q, o};
    BufferId z = v.residual ? input("z", v.type, result) : BufferId();
    BufferId y = output("y", v.type, result);
    LoopNest nest;
    std::vector<const DimSymbol *> batch, pixels, sums;
    const auto walk = [&](std::vector<Loop> &loops, const char *name, Dim extent,
                          std::vector<const DimSymbol *> &role) {
      if (extent.is(1)) return Dim(0);
      Dim d = loop(loops, name, extent);
      role.push_back(single_symbol(d));
      return d;
    };
    Dim in = walk(nest.loops, "n", images, batch), ip = walk(nest.loops, "p", p, pixels),
        iq = walk(nest.loops, "q", q, pixels), io = loop(nest.loops, "o", o);
    LocalId sum = local(nest, "sum", ElementType::kFloat32);
    Stage products, finish;
    Dim ic = walk(products.loops, "c", v.channels, sums), ir = walk(products.loops, "r", v.kernel[0], sums),
        is = walk(products.loops, "s", v.kernel[1], sums);
    const Dim at[2] = {ip * Dim(v.strides[0]) + ir * Dim(v.dilations[0]) - Dim(v.begin[0]),
                       iq * Dim(v.strides[1]) + is * Dim(v.dilations[1]) - Dim(v.begin[1])};
    // Kept inside as lowering does it, where the padding's condition fails.
    const auto kept = [&](size_t d) { return max(min(at[d], Dim(v.size[d] - 1)), 0); };
    Contraction c;
    c.lhs = load(x, {in, kept(0), kept(1), ic});  // without the padding, as the operator's definition gives it
    const auto inside = [&](size_t d) {
      const int64_t margin = v.border == Convolution::Border::kInside;
      ScalarId low =
          pool().binary(ScalarOp::kLe, pool().constant_int(ElementType::kInt64, margin), pool().index(at[d]));
      ScalarId high = pool().binary(ScalarOp::kLt, pool().index(at[d]),
                                    pool().constant_int(ElementType::kInt64, v.size[d] - margin));
      return pool().binary(ScalarOp::kAnd, low, high);
    };
    ScalarId value = c.lhs;
    if (v.border != Convolution::Border::kEdge)
      value = pool().select(pool().binary(ScalarOp::kAnd, inside(0), inside(1)), c.lhs,
                            pool().constant(ElementType::kFloat32, 0));
    c.kind = ContractionKind::kConvolution;
    c.rhs = v.filters_last ? load(w, {ir, is, ic, io}) : load(w, {io, ir, is, ic});
    c.batch = std::move(batch);
    c.m = std::move(pixels);
    c.n = {single_symbol(io)};
    c.k = std::move(sums);
    products.outputs.push_back(reduce(sum, Combine::kSum, pool().binary(ScalarOp::kMul, value, c.rhs)));
    nest.contraction = c;
    const std::vector<Dim> place = v.images_last ? std::vector<Dim>{in, io, ip, iq} : std::vector<Dim>{in, ip, iq, io};
    ScalarId stored = pool().local(sum, ElementType::kFloat32, {});
    if (v.residual)
      stored = pool().binary(ScalarOp::kMax, pool().binary(ScalarOp::kAdd, stored, load(z, place)),
                             pool().constant(ElementType::kFloat32, 0));
    finish.outputs.push_back(store(y, place, stored));
    nest.stages = {products, finish};
    add("convolution", std::move(nest));
  }
  // y[n, p, q, o] = sum over r, j of x[n, 2 p + r, step q + j] * w[o, r, j]: runs of a line that may overlap.
  void runs(int64_t images, int64_t rows, int64_t columns, int64_t lines, int64_t step, int64_t run, int64_t out) {
    const ElementType half = ElementType::kFloat16;
    BufferId x = input("x", half, {images, 2 * (rows - 1) + lines, (columns - 1) * step + run}),
             w = input("w", half, {out, lines, run}), y = output("y", half, {images, rows, columns, out});
    LoopNest nest;
    Dim in = loop(nest.loops, "n", images), ip = loop(nest.loops, "p", rows), iq = loop(nest.loops, "q", columns),
        io = loop(nest.loops, "o", out);
    LocalId sum = local(nest, "sum", ElementType::kFloat32);
    Stage products, finish;
    Dim ir = loop(products.loops, "r", lines), ij = loop(products.loops, "j", run);
    Contraction c;
    c.lhs = load(x, {in, ip * Dim(2) + ir, iq * Dim(step) + ij});
    c.rhs = load(w, {io, ir, ij});
    c.batch = {single_symbol(in)};
    c.m = {single_symbol(ip), single_symbol(iq)};
    c.n = {single_symbol(io)};
    c.k = {single_symbol(ir), single_symbol(ij)};
    products.outputs.push_back(reduce(sum, Combine::kSum, pool().binary(ScalarOp::kMul, c.lhs, c.rhs)));
    nest.contraction = c;
    finish.outputs.push_back(store(y, {in, ip, iq, io}, pool().local(sum, ElementType::kFloat32, {})));
    nest.stages = {products, finish};
    add("runs", std::move(nest));
  }
  // Square kernel, the same of both dims.
  void convolution(ElementType type, int64_t batch, int64_t size, int64_t channels, int64_t out, int64_t kernel,
                   int64_t stride, int64_t pad) {
    Convolution v;
    v.type = type;
    v.batch = batch;
    v.size = {size, size};
    v.channels = channels;
    v.out = out;
    v.kernel = {kernel, kernel};
    v.strides = {stride, stride};
    v.begin = v.end = {pad, pad};
    convolution(v, batch);
  }
  // y = (x - mean) * rsqrt(variance + 1e-5) * g + b over rows, from x + z.
  void layer_norm(ElementType type, Dim rows, int64_t width) {
    BufferId x = input("x", type, {rows, width}), z = input("z", type, {rows, width}), g = input("g", type, {width}),
             b = input("b", type, {width}), y = output("y", type, {rows, width});
    LoopNest nest;
    Dim row = loop(nest.loops, "row", rows);
    LocalId total = local(nest, "total", ElementType::kFloat32),
            squares = local(nest, "squares", ElementType::kFloat32);
    const ElementType f = ElementType::kFloat32;
    auto op = [&](ScalarOp o, ScalarId u, ScalarId v) { return pool().binary(o, u, v); };
    auto element = [&](Dim d) { return op(ScalarOp::kAdd, load(x, {row, d}), load(z, {row, d})); };
    ScalarId mean =
        op(ScalarOp::kMul, pool().local(total, f, {}), pool().constant(f, 1.0 / static_cast<double>(width)));
    Stage first, second, third;
    Dim d0 = loop(first.loops, "d0", width), d1 = loop(second.loops, "d1", width), d2 = loop(third.loops, "d2", width);
    first.outputs.push_back(reduce(total, Combine::kSum, element(d0)));
    ScalarId away = op(ScalarOp::kSub, element(d1), mean);
    second.outputs.push_back(reduce(squares, Combine::kSum, op(ScalarOp::kMul, away, away)));
    ScalarId variance =
        op(ScalarOp::kMul, pool().local(squares, f, {}), pool().constant(f, 1.0 / static_cast<double>(width)));
    ScalarId scale = op(ScalarOp::kDiv, pool().constant(f, 1),
                        pool().unary(ScalarOp::kSqrt, op(ScalarOp::kAdd, variance, pool().constant(f, 1e-5))));
    ScalarId normal = op(ScalarOp::kMul, op(ScalarOp::kSub, element(d2), mean), scale);
    third.outputs.push_back(
        store(y, {row, d2}, op(ScalarOp::kAdd, op(ScalarOp::kMul, normal, load(g, {d2})), load(b, {d2}))));
    nest.stages = {first, second, third};
    add("layer_norm", std::move(nest));
  }
  // Softmax over rows with a row of scratch for the exponentials.
  void softmax(ElementType type, Dim rows, int64_t width) {
    BufferId x = input("x", type, {rows, width}), y = output("y", type, {rows, width});
    LoopNest nest;
    Dim row = loop(nest.loops, "row", rows);
    const ElementType f = ElementType::kFloat32;
    LocalId top = local(nest, "top", f), total = local(nest, "total", f), e = local(nest, "e", f, {width});
    Stage first, second, third, fourth;
    Dim d0 = loop(first.loops, "d0", width), d1 = loop(second.loops, "d1", width), d2 = loop(third.loops, "d2", width),
        d3 = loop(fourth.loops, "d3", width);
    first.outputs.push_back(reduce(top, Combine::kMax, load(x, {row, d0})));
    StageOutput keep;
    keep.local = e;
    keep.index = {d1};
    keep.value =
        pool().unary(ScalarOp::kExp, pool().binary(ScalarOp::kSub, load(x, {row, d1}), pool().local(top, f, {})));
    second.outputs.push_back(keep);
    third.outputs.push_back(reduce(total, Combine::kSum, pool().local(e, f, {d2})));
    fourth.outputs.push_back(
        store(y, {row, d3}, pool().binary(ScalarOp::kDiv, pool().local(e, f, {d3}), pool().local(total, f, {}))));
    nest.stages = {first, second, third, fourth};
    add("softmax", std::move(nest));
  }
  // y[b, h, i, :] = sum over j of softmax_j(scale * q[b, h, i, :] . k[b, h, j, :] + mask[i, j]) v[b, h, j, :]; rows
  // whose keys are all excluded give 0.
  void attention(ElementType type, int64_t batch, int64_t heads, int64_t queries, int64_t keys, int64_t inner,
                 int64_t width) {
    const ElementType given = given_in_f32 ? ElementType::kFloat32 : type;
    BufferId q = input("q", type, {batch, heads, queries, inner}), key = input("k", given, {batch, heads, keys, inner}),
             value = input("v", given, {batch, heads, keys, width}),
             mask = input("mask", ElementType::kFloat32, {queries, keys}),
             y = output("y", type, {batch, heads, queries, width});
    const ElementType f = ElementType::kFloat32;
    LoopNest nest;
    Dim b = loop(nest.loops, "b", batch), h = loop(nest.loops, "h", heads), i = loop(nest.loops, "i", queries);
    LocalId product = local(nest, "product", f, {keys}), scores = local(nest, "scores", f, {keys}),
            top = local(nest, "top", f), weights = local(nest, "weights", f, {keys}), sum = local(nest, "sum", f),
            result = local(nest, "result", f, {width});
    auto op = [&](ScalarOp o, ScalarId u, ScalarId w) { return pool().binary(o, u, w); };
    auto at = [&](LocalId l, ElementType t, std::vector<Dim> index) { return pool().local(l, t, std::move(index)); };
    auto keep = [&](LocalId l, Dim index, ScalarId v, Combine how) {
      StageOutput o;
      o.local = l;
      o.index = {index};
      o.value = v;
      o.combine = how;
      return o;
    };
    Stage s[7];
    Dim j0 = loop(s[0].loops, "j0", keys), d = loop(s[0].loops, "d", inner), j1 = loop(s[1].loops, "j1", keys),
        j2 = loop(s[2].loops, "j2", keys), j3 = loop(s[3].loops, "j3", keys), j4 = loop(s[4].loops, "j4", keys),
        j5 = loop(s[5].loops, "j5", keys), e5 = loop(s[5].loops, "e5", width), e6 = loop(s[6].loops, "e6", width);
    Contraction c;
    c.kind = ContractionKind::kAttention;
    c.masked_rows = masked_rows;
    c.query = load(q, {b, h, i, d});
    c.key = load_as(type, key, {b, h, j0, d});
    c.value = load_as(type, value, {b, h, j5, e5});
    s[0].outputs = {keep(product, j0, op(ScalarOp::kMul, c.query, c.key), Combine::kSum)};
    s[1].outputs = {keep(
        scores, j1,
        op(ScalarOp::kAdd, op(ScalarOp::kMul, at(product, f, {j1}), pool().constant(f, 0.25)), load(mask, {i, j1})),
        Combine::kStore)};
    s[2].outputs = {reduce(top, Combine::kMax, at(scores, f, {j2}))};
    s[3].outputs = {keep(weights, j3,
                         pool().unary(ScalarOp::kExp, op(ScalarOp::kSub, at(scores, f, {j3}), at(top, f, {}))),
                         Combine::kStore)};
    s[4].outputs = {reduce(sum, Combine::kSum, at(weights, f, {j4}))};
    const ScalarId masked = pool().unary(ScalarOp::kIsNan, at(sum, f, {}));
    ScalarId w = at(weights, f, {j5}), v = op(ScalarOp::kDiv, at(result, f, {e6}), at(sum, f, {}));
    if (masked_rows == MaskedRows::kZeroProbabilities) {
      w = pool().select(masked, pool().constant(f, 0), w);
      v = pool().select(masked, at(result, f, {e6}), v);
    }
    s[5].outputs = {keep(result, e5, op(ScalarOp::kMul, w, c.value), Combine::kSum)};
    s[6].outputs = {store(y, {b, h, i, e6}, v)};
    nest.stages.assign(s, s + 7);
    nest.contraction = c;
    add("attention", std::move(nest));
  }
  // y = f(x) elementwise over a shape, in f32.
  template <typename F>
  void pointwise(ElementType type, ElementType to, Shape shape, F f) {
    BufferId x = input("x", type, shape), y = output("y", to, shape);
    LoopNest nest;
    std::vector<Dim> index;
    for (size_t i = 0; i < shape.size(); ++i) index.push_back(loop(nest.loops, "i" + std::to_string(i), shape[i]));
    Stage stage;
    stage.outputs.push_back(store(y, index, f(pool(), load(x, index))));
    nest.stages = {stage};
    add("pointwise", std::move(nest));
  }
  Program program;
};

}  // namespace optc::testing
