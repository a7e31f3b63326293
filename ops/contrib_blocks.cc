// com.microsoft: weights that are quantized in blocks along one axis, to 2, 4 or 8 bits, the low bits of a byte first.

#include "ops/contrib_blocks.h"

#include "ops/block_rounding.h"

namespace optc {
namespace {

ElementType integer_of(int64_t bits) {
  return bits == 2 ? ElementType::kUInt2 : bits == 4 ? ElementType::kUInt4 : ElementType::kUInt8;
}

struct Blocks {
  int64_t bits, block, rows, inner, count;  // of the weights [rows, inner], with `count` blocks a row
};

// The weights [rows, count * block] as integers: a constant keeps its bytes and gets the type that they have.
ValueId integer_weights(Body &b, ValueId packed, const Blocks &w) {
  if (const Constant *c = b.constant(packed)) {
    const auto owner = std::make_shared<Constant>(*c);
    return b.value(Constant::view(integer_of(w.bits), {w.rows, w.count * w.block}, c->data(), c->size(), owner));
  }
  return unpacked(b, b.reshape(packed, {w.rows, -1}), w.bits);
}

// Zero points [rows, count] of that type, from packed rows of bytes; the middle of the range where there are none.
ValueId integer_zero_points(Body &b, ValueId packed, ElementType type, const Blocks &w) {
  if (packed.valid()) {
    const ValueId all = unpacked(b, b.reshape(packed, {w.rows, -1}), w.bits);
    return b.cast(b.slice(all, 1, 0, w.count), type);
  }
  const ValueId middle = b.number(ElementType::kUInt8, static_cast<double>(1 << (w.bits - 1)));
  return b.cast(b.op("Expand", {middle, b.ints({w.rows, w.count})}), type);
}

// The weights as the type of their scales, [rows, inner].
ValueId dequantized_weights(Body &b, ValueId packed, ValueId scales, ValueId zero_points, ValueId groups,
                            const Blocks &w) {
  const ValueId q = integer_weights(b, packed, w);
  const ValueId s = b.reshape(scales, {w.rows, w.count});
  const bool float_zero = zero_points.valid() && b.element(zero_points) == b.element(scales);
  ValueId y;
  if (!float_zero && !groups.valid()) {
    y = b.op("DequantizeLinear", {q, s, integer_zero_points(b, zero_points, b.element(q), w)},
             {{"axis", int64_t{1}}, {"block_size", w.block}});
    return w.count * w.block == w.inner ? y : b.slice(y, 1, 0, w.inner);
  }
  const ElementType type = b.element(scales);
  ValueId zero = float_zero ? b.reshape(zero_points, {w.rows, w.count})
                            : b.cast(integer_zero_points(b, zero_points, ElementType::kUInt8, w), type);
  ValueId x = b.cast(q, type), scale = s;
  if (groups.valid()) {  // the block of each inner index
    x = w.count * w.block == w.inner ? x : b.slice(x, 1, 0, w.inner);
    const Body::Attributes columns{{"axis", int64_t{1}}};
    return b.mul(b.sub(x, b.op("Gather", {zero, groups}, columns)), b.op("Gather", {scale, groups}, columns));
  }
  x = b.reshape(x, {w.rows, w.count, w.block});
  y = b.mul(b.sub(x, b.unsqueeze(zero, {2})), b.unsqueeze(scale, {2}));
  y = b.reshape(y, {w.rows, w.count * w.block});
  return w.count * w.block == w.inner ? y : b.slice(y, 1, 0, w.inner);
}

constexpr int64_t kMaxExtent = int64_t{1} << 31;

// accuracy_level 4: a product may round its activations to 8 bits in the blocks of the weights. Whether ONNX Runtime
// has a product that does so: not with zero points of floats or an order of blocks, and not of every block.
bool rounds_activations(Body &b, const Blocks &w) {
  const bool float_zero = b.has(3) && b.element(b.in(3)) == b.element(b.in(2));
  if (b.i("accuracy_level", 0) != 4 || float_zero || b.has(4)) return false;
  return w.bits == 2 ? w.block >= 32 && w.block <= 128 : w.block <= 256;
}

// Then all is f32 up to the result.
ValueId product_of_rounded(Body &b, const Blocks &w) {
  const NodeSink sink = {[&](std::string op, std::vector<ValueId> inputs, Body::Attributes attributes) {
                           return b.op(op, std::move(inputs), std::move(attributes));
                         },
                         [&](Constant c) { return b.value(std::move(c)); }};
  const ElementType type = b.element(b.in(0)), f32 = ElementType::kFloat32;
  const ValueId x = rounded_in_blocks(sink, b.cast(b.in(0), f32), b.rank(b.in(0)), w.inner, w.block),
                weights = dequantized_weights(b, b.in(1), b.cast(b.in(2), f32), b.in(3), ValueId(), w);
  ValueId y = b.matmul(x, b.transpose(weights, {1, 0}));
  if (b.has(5)) y = b.add(y, b.cast(b.in(5), f32));
  return b.cast(y, type);
}

Status matmul_n_bits(Body &b) {
  OPTC_TRY(b.need_rank(0));
  OPTC_TRY(b.need_rank(1, {3}));
  if (b.i("weight_prepacked", 0) != 0)
    return b.unsupported("weights that are packed for one device (weight_prepacked)");
  Blocks w{b.i("bits", 4), b.i("block_size", 0), b.i("N", 0), b.i("K", 0), 0};
  if (w.bits != 2 && w.bits != 4 && w.bits != 8) return b.unsupported("weights of " + std::to_string(w.bits) + " bits");
  if (w.block < 16 || w.block > kMaxExtent || (w.block & (w.block - 1)) != 0)
    return b.invalid("block_size must be a power of two and at least 16, it is " + std::to_string(w.block));
  if (w.rows < 1 || w.inner < 1 || w.rows > kMaxExtent || w.inner > kMaxExtent)
    return b.invalid("attributes 'N' and 'K' must be positive");
  w.count = (w.inner + w.block - 1) / w.block;
  const int64_t dims[3] = {w.rows, w.count, w.block * w.bits / 8};
  for (int k = 0; k < 3; ++k)
    if (const auto given = b.fixed(b.in(1), k); given && *given != dims[k])
      return b.invalid(b.input_name(1) + " must be [" + std::to_string(dims[0]) + ", " + std::to_string(dims[1]) +
                       ", " + std::to_string(dims[2]) + "], it is " + to_string(b.type(b.in(1))));
  if (rounds_activations(b, w)) {
    b.give(0, product_of_rounded(b, w));
    return {};
  }
  const ValueId weights = dequantized_weights(b, b.in(1), b.in(2), b.in(3), b.in(4), w);
  const ValueId y = b.matmul(b.in(0), b.transpose(weights, {1, 0}));
  b.give(0, b.has(5) ? b.add(y, b.in(5)) : y);
  return {};
}

// Rows of a quantized table, dequantized: gathered first where the blocks lie along another axis.
Status gather_block_quantized(Body &b) {
  for (size_t i : {0, 1, 2}) OPTC_TRY(b.need_rank(i));
  const ValueId data = b.in(0), indices = b.in(1);
  const int64_t rank = b.rank(data), block = b.i("block_size", 128), bits = b.i("bits", 4);
  int64_t gather = b.i("gather_axis", 0), quantize = b.i("quantize_axis", 1);
  gather += gather < 0 ? rank : 0;
  quantize += quantize < 0 ? rank : 0;
  if (gather < 0 || gather >= rank || quantize < 0 || quantize >= rank)
    return b.invalid("gather_axis or quantize_axis is out of range for " + to_string(b.type(data)));
  if (b.rank(b.in(2)) != rank) return b.invalid("scales must have the rank of data");
  if (is_float(b.element(data))) return b.unsupported("data of " + std::string(to_string(b.type(data))));
  if (block < 16 || (block & (block - 1)) != 0) return b.invalid("block_size must be a power of two and at least 16");
  const bool packed = b.element(data) == ElementType::kUInt8;
  if (packed && bits != 2 && bits != 4 && bits != 8) return b.unsupported(std::to_string(bits) + " bits");
  if (packed && (gather != 0 || quantize == 0))
    return b.invalid("packed bytes are gathered along axis 0 and quantized along another");
  // An index out of range gives zeros.
  const ValueId size = b.cast(b.dim(data, gather), b.element(indices));
  const ValueId inside =
      b.op("And", {b.op("Less", {indices, size}), b.op("GreaterOrEqual", {indices, b.op("Neg", {size})})});
  const ValueId safe = b.op("Where", {inside, indices, b.like(indices, 0)});
  const auto give = [&](ValueId y) {
    std::vector<int64_t> behind;
    for (int64_t k = gather + 1; k < rank; ++k) behind.push_back(b.rank(indices) + k - gather - 1);
    const ValueId rows = behind.empty() ? inside : b.unsqueeze(inside, std::move(behind));
    b.give(0, b.op("Where", {rows, y, b.like(y, 0)}));
  };
  if (gather == quantize) {
    std::vector<ValueId> inputs{data, b.in(2)};
    if (b.has(3)) inputs.push_back(b.in(3));
    const ValueId table = b.op("DequantizeLinear", std::move(inputs), {{"axis", quantize}, {"block_size", block}});
    give(b.op("Gather", {table, safe}, {{"axis", gather}}));
    return {};
  }
  const auto rows = [&](ValueId v) { return b.op("Gather", {v, safe}, {{"axis", gather}}); };
  ValueId x = rows(data), scale = rows(b.in(2)), zero;
  if (b.has(3)) zero = rows(b.in(3));
  if (packed) {
    x = unpacked(b, x, bits);
    if (zero.valid()) {
      zero = unpacked(b, zero, bits);
      zero = b.op("Slice", {zero, b.ints({0}), b.dim(scale, -1), b.ints({-1})});
    } else {
      zero =
          b.op("Expand", {b.number(ElementType::kUInt8, static_cast<double>(1 << (bits - 1))), b.op("Shape", {scale})});
    }
  }
  const int64_t axis = quantize > gather ? quantize + b.rank(indices) - 1 : quantize;
  std::vector<ValueId> inputs{x, scale};
  if (zero.valid()) inputs.push_back(zero);
  give(b.op("DequantizeLinear", std::move(inputs), {{"axis", axis}, {"block_size", block}}));
  return {};
}

// The 16 values of a code of 4 bits, as the bitsandbytes formats define them: a float of 1 sign, 2 exponent and 1
// fraction bit, scaled to 1 (FP4), and the quantiles of a normal distribution (NF4).
constexpr float kFp4[16] = {0,     0.005208333333f,  2.0f / 3,  1,  1.0f / 3,  0.5f,  1.0f / 6,  0.25f,
                            -0.0f, -0.005208333333f, -2.0f / 3, -1, -1.0f / 3, -0.5f, -1.0f / 6, -0.25f};
constexpr float kNf4[16] = {-1.0f,
                            -0.6961928009986877f,
                            -0.5250730514526367f,
                            -0.39491748809814453f,
                            -0.28444138169288635f,
                            -0.18477343022823334f,
                            -0.09105003625154495f,
                            0.0f,
                            0.07958029955625534f,
                            0.16093020141124725f,
                            0.24611230194568634f,
                            0.33791524171829224f,
                            0.44070982933044434f,
                            0.5626170039176941f,
                            0.7229568362236023f,
                            1.0f};

// A product with weights [N, K] whose codes lie row after row, the high half of a byte first, with a scale a block of
// codes; blocks do not end with a row.
Status matmul_bnb4(Body &b) {
  OPTC_TRY(b.need_rank(0));
  OPTC_TRY(b.need_rank(1, {1}));
  OPTC_TRY(b.need_rank(2, {1}));
  const int64_t rows = b.i("N", 0), inner = b.i("K", 0), block = b.i("block_size", 0), kind = b.i("quant_type", 0);
  if (rows < 1 || inner < 1 || rows > kMaxExtent || inner > kMaxExtent)
    return b.invalid("attributes 'N' and 'K' must be positive");
  if (block < 16 || block > kMaxExtent || (block & (block - 1)) != 0)
    return b.invalid("block_size must be a power of two and at least 16, it is " + std::to_string(block));
  if (kind != 0 && kind != 1) return b.invalid("quant_type must be 0 (FP4) or 1 (NF4), it is " + std::to_string(kind));
  const int64_t count = rows * inner, bytes = (count + 1) / 2, blocks = (count + block - 1) / block;
  for (const auto &[input, wanted] : {std::pair<size_t, int64_t>{1, bytes}, {2, blocks}})
    if (const auto given = b.fixed(b.in(input), 0); given && *given != wanted)
      return b.invalid(b.input_name(input) + " must have " + std::to_string(wanted) + " elements, it is " +
                       to_string(b.type(b.in(input))));
  const ValueId packed = b.in(1), scales = b.in(2);
  const ValueId high = b.op("BitShift", {packed, b.like(packed, 4)}, {{"direction", std::string("RIGHT")}});
  const ValueId low = b.op("BitwiseAnd", {packed, b.like(packed, 15)});
  ValueId codes = b.reshape(b.concat({b.unsqueeze(high, {1}), b.unsqueeze(low, {1})}, 1), {-1});
  if (count % 2 != 0) codes = b.slice(codes, 0, 0, count);
  std::vector<ValueId> values;
  for (float v : kind == 0 ? kFp4 : kNf4) values.push_back(b.unsqueeze(b.like(scales, static_cast<double>(v)), {0}));
  ValueId x = b.op("Gather", {b.concat(std::move(values), 0), b.cast(codes, ElementType::kInt32)});
  if (count % block == 0) {
    x = b.mul(b.reshape(x, {blocks, block}), b.unsqueeze(scales, {1}));
  } else {
    const ValueId each = b.op("Expand", {b.unsqueeze(scales, {1}), b.ints({blocks, block})});
    x = b.mul(x, b.slice(b.reshape(each, {-1}), 0, 0, count));
  }
  const ValueId weights = b.reshape(x, {rows, inner});
  b.give(0, b.matmul(b.in(0), b.i("transB", 1) != 0 ? b.transpose(weights, {1, 0}) : weights));
  return {};
}

constexpr OpDef kOps[] = {
    body_row("com.microsoft.GatherBlockQuantized",
             {"data indices scales zero_points?", "output", "bits:i block_size:i gather_axis:i quantize_axis:i"},
             gather_block_quantized),
    body_row("com.microsoft.MatMulBnb4",
             {"A B absmax", "Y", "K:i! N:i! block_size:i! quant_type:i! training_mode:b transB:b"}, matmul_bnb4),
    body_row("com.microsoft.MatMulNBits",
             {"A B scales zero_points? g_idx? bias?", "Y",
              "K:i! N:i! accuracy_level:i bits:i block_size:i! weight_prepacked:b"},
             matmul_n_bits),
};

}  // namespace

ValueId unpacked(Body &b, ValueId bytes, int64_t bits) {
  if (bits == 8) return bytes;
  std::vector<ValueId> parts;
  const ValueId low = b.like(bytes, static_cast<double>((1 << bits) - 1));
  for (int64_t shift = 0; shift < 8; shift += bits) {
    ValueId part = bytes;
    if (shift > 0)
      part = b.op("BitShift", {part, b.like(bytes, static_cast<double>(shift))}, {{"direction", std::string("RIGHT")}});
    parts.push_back(b.unsqueeze(b.op("BitwiseAnd", {part, low}), {-1}));
  }
  const ValueId apart = b.concat(std::move(parts), -1);  // [..., bytes, numbers of a byte]
  std::vector<int64_t> sizes(static_cast<size_t>(b.rank(bytes) - 1), 0);
  sizes.push_back(-1);
  return b.reshape(apart, std::move(sizes));
}

ValueId packed_integers(Body &b, ValueId bytes, int64_t bits) {
  const Constant *c = b.constant(bytes);
  if (!c) return unpacked(b, bytes, bits);
  std::vector<int64_t> sizes;
  for (Dim d : c->shape()) sizes.push_back(d.value());
  sizes.back() *= 8 / bits;
  const auto owner = std::make_shared<Constant>(*c);
  return b.value(Constant::view(integer_of(bits), sizes, c->data(), c->size(), owner));
}

std::span<const OpDef> contrib_blocks_ops() { return kOps; }

}  // namespace optc
