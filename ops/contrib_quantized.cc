// com.microsoft: operators on 8-bit tensors, each with a scale and a zero point: what is dequantized, computed in f32
// and quantized again; and the integer products. Products by weights in blocks of few bits stand in contrib_blocks.cc.

#include "ops/body.h"

namespace optc {
namespace {

// Inputs `at`, at + 1 and at + 2: a tensor, its scale and its zero point, which may be absent.
ValueId dequantized(Body &b, size_t at) {
  std::vector<ValueId> inputs{b.in(at), b.in(at + 1)};
  if (b.has(at + 2)) inputs.push_back(b.in(at + 2));
  return b.op("DequantizeLinear", std::move(inputs));
}
// Without a zero point it is 0, of the given type.
ValueId quantized(Body &b, ValueId v, ValueId scale, ValueId zero_point, ElementType type) {
  return b.op("QuantizeLinear", {v, scale, zero_point.valid() ? zero_point : b.number(type, 0)});
}

template <const char *op>
Status qlinear_binary(Body &b) {
  const ValueId y = b.op(op, {dequantized(b, 0), dequantized(b, 3)});
  b.give(0, quantized(b, y, b.in(6), b.in(7), b.element(b.in(0))));
  return {};
}
constexpr char kAdd[] = "Add", kMul[] = "Mul";

Status qlinear_unary(Body &b, ValueId y) {
  b.give(0, quantized(b, y, b.in(3), b.in(4), b.element(b.in(0))));
  return {};
}
Status qlinear_leaky_relu(Body &b) {
  return qlinear_unary(b, b.op("LeakyRelu", {dequantized(b, 0)}, {{"alpha", b.f("alpha", 0.01f)}}));
}
Status qlinear_sigmoid(Body &b) { return qlinear_unary(b, b.op("Sigmoid", {dequantized(b, 0)})); }
Status qlinear_reduce_mean(Body &b) {
  std::vector<ValueId> inputs{dequantized(b, 0)};
  if (const std::vector<int64_t> *axes = b.node().ints("axes"); axes && !axes->empty()) inputs.push_back(b.ints(*axes));
  return qlinear_unary(b, b.op("ReduceMean", std::move(inputs), b.pass({"keepdims"})));
}
// Before opset 13 the softmax runs over all axes from `axis` on.
Status qlinear_softmax(Body &b) {
  OPTC_TRY(b.need_rank(0));
  const ValueId x = dequantized(b, 0);
  const int64_t axis = b.i("axis", -1);
  if (b.i("opset", 0) >= 13) return qlinear_unary(b, b.op("Softmax", {x}, {{"axis", axis}}));
  const ValueId flat = b.op("Softmax", {b.op("Flatten", {x}, {{"axis", axis}})}, {{"axis", int64_t{-1}}});
  return qlinear_unary(b, b.op("Reshape", {flat, b.op("Shape", {x})}));
}
template <bool global>
Status qlinear_average_pool(Body &b) {
  OPTC_TRY(b.need_rank(0, {3, 4, 5}));
  const bool last = b.i("channels_last", 0) != 0;
  ValueId x = dequantized(b, 0);
  if (last) x = b.channels_first(x);
  if (global)
    x = b.op("GlobalAveragePool", {x});
  else
    x = b.op("AveragePool", {x},
             b.pass({"auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides"}));
  return qlinear_unary(b, last ? b.channels_last(x) : x);
}
Status qlinear_concat(Body &b) {
  if (b.input_count() < 5 || (b.input_count() - 2) % 3 != 0)
    return b.invalid("the inputs behind Y_scale and Y_zero_point must be tensors with their scales and zero points");
  std::vector<ValueId> parts;
  for (size_t i = 2; i < b.input_count(); i += 3) {
    if (!b.has(i) || !b.has(i + 1)) return b.invalid("a tensor or its scale is missing among the inputs");
    parts.push_back(dequantized(b, i));
  }
  b.give(0, quantized(b, b.concat(std::move(parts), b.i("axis", 0)), b.in(0), b.in(1), b.element(b.in(2))));
  return {};
}
Status qlinear_where(Body &b) {
  const ValueId y = b.op("Where", {b.in(0), dequantized(b, 1), dequantized(b, 4)});
  b.give(0, quantized(b, y, b.in(7), b.in(8), b.element(b.in(1))));
  return {};
}
Status qlinear_conv(Body &b) {
  OPTC_TRY(b.need_rank(0, {3, 4, 5}));
  const bool last = b.i("channels_last", 0) != 0;
  std::vector<ValueId> inputs = b.node().inputs;
  if (last) inputs[0] = b.channels_first(inputs[0]);
  const ValueId y = b.op("QLinearConv", std::move(inputs),
                         b.pass({"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"}));
  b.give(0, last ? b.channels_last(y) : y);
  return {};
}

// com.microsoft's QuantizeLinear and DequantizeLinear came before ONNX had 16-bit and 4-bit integers.
template <const char *op>
Status linear(Body &b) {
  b.give(0, b.op(op, b.node().inputs, b.pass({"axis"})));
  return {};
}
constexpr char kQuantize[] = "QuantizeLinear", kDequantize[] = "DequantizeLinear";

// The integer product of inputs of 8 bits as f32, times its scale. Zero points may be absent.
struct IntegerProduct {
  ValueId a, b, a_scale, b_scale, a_zero_point, b_zero_point, bias;
};
ValueId integer_product(Body &b, const IntegerProduct &p) {
  std::vector<ValueId> inputs{p.a, p.b};
  if (p.a_zero_point.valid() || p.b_zero_point.valid()) inputs.push_back(p.a_zero_point);
  if (p.b_zero_point.valid()) inputs.push_back(p.b_zero_point);
  const ValueId product = b.op("MatMulInteger", std::move(inputs));
  const ValueId y = b.mul(b.cast(product, b.element(p.a_scale)), b.mul(p.a_scale, p.b_scale));
  return p.bias.valid() ? b.add(y, p.bias) : y;
}
Status matmul_integer_to_float(Body &b) {
  b.give(0, integer_product(b, {b.in(0), b.in(1), b.in(2), b.in(3), b.in(4), b.in(5), b.in(6)}));
  return {};
}
Status dynamic_quantize_matmul(Body &b) {
  const std::vector<ValueId> a = b.ops("DynamicQuantizeLinear", {b.in(0)}, 3);
  b.give(0, integer_product(b, {a[0], b.in(1), a[1], b.in(2), a[2], b.in(3), b.in(4)}));
  return {};
}

// C is added before the product is scaled; without a scale of Y the result stays f32.
Status qgemm(Body &b) {
  for (size_t i : {0, 3}) OPTC_TRY(b.need_rank(i, {2}));
  const auto matrix = [&](size_t i, const char *flag) {
    return b.i(flag, 0) != 0 ? b.transpose(b.in(i), {1, 0}) : b.in(i);
  };
  ValueId sum = b.op("MatMulInteger", {matrix(0, "transA"), matrix(3, "transB"), b.in(2), b.in(5)});
  if (b.has(6)) sum = b.add(sum, b.in(6));
  ValueId y = b.mul(b.cast(sum, b.element(b.in(1))), b.mul(b.in(1), b.in(4)));
  if (const float alpha = b.f("alpha", 1); alpha != 1) y = b.mul(y, b.like(y, static_cast<double>(alpha)));
  b.give(0, b.has(7) ? quantized(b, y, b.in(7), b.in(8), b.element(b.in(0))) : y);
  return {};
}

Status matmul_integer16(Body &b) {
  const bool is_unsigned = b.element(b.in(0)) == ElementType::kUInt16 && b.element(b.in(1)) == ElementType::kUInt16;
  const ElementType type = is_unsigned ? ElementType::kUInt32 : ElementType::kInt32;
  b.give(0, b.matmul(b.cast(b.in(0), type), b.cast(b.in(1), type)));
  return {};
}
Status mul_integer(Body &b) {
  ValueId factors[2];
  for (size_t k = 0; k < 2; ++k) {
    factors[k] = b.cast(b.in(2 * k), ElementType::kInt32);
    if (b.has(2 * k + 1)) factors[k] = b.sub(factors[k], b.cast(b.in(2 * k + 1), ElementType::kInt32));
  }
  b.give(0, b.mul(factors[0], factors[1]));
  return {};
}
Status reduce_sum_integer(Body &b) {
  const bool is_unsigned = b.element(b.in(0)) == ElementType::kUInt8;
  const ValueId x = b.cast(b.in(0), is_unsigned ? ElementType::kUInt32 : ElementType::kInt32);
  const std::vector<int64_t> *axes = b.node().ints("axes");
  std::vector<ValueId> inputs{x};
  if (axes && !axes->empty()) inputs.push_back(b.ints(*axes));
  b.give(0, b.op("ReduceSum", std::move(inputs), b.pass({"keepdims"})));
  return {};
}

#define OPTC_UNARY "X X_scale X_zero_point? Y_scale Y_zero_point?", "Y"
#define OPTC_BINARY "A A_scale A_zero_point? B B_scale B_zero_point? C_scale C_zero_point?", "C", ""
constexpr OpDef kOps[] = {
    body_row("com.microsoft.DequantizeLinear", {"x x_scale x_zero_point?", "y", "axis:i"}, linear<kDequantize>),
    body_row("com.microsoft.DynamicQuantizeMatMul", {"A B b_scale b_zero_point? bias?", "Y", ""},
             dynamic_quantize_matmul),
    body_row("com.microsoft.MatMulInteger16", {"A B", "Y", ""}, matmul_integer16),
    body_row("com.microsoft.MatMulIntegerToFloat", {"A B a_scale b_scale a_zero_point? b_zero_point? bias?", "Y", ""},
             matmul_integer_to_float),
    body_row("com.microsoft.MulInteger", {"A A_zero_point? B B_zero_point?", "C", ""}, mul_integer),
    body_row(
        "com.microsoft.QGemm",
        {"A a_scale a_zero_point B b_scale b_zero_point C? y_scale? y_zero_point?", "Y", "alpha:f transA:b transB:b"},
        qgemm),
    body_row("com.microsoft.QLinearAdd", {OPTC_BINARY}, qlinear_binary<kAdd>),
    body_row(
        "com.microsoft.QLinearAveragePool",
        {OPTC_UNARY, "auto_pad:s ceil_mode:b channels_last:b count_include_pad:b kernel_shape:is! pads:is strides:is"},
        qlinear_average_pool<false>),
    body_row("com.microsoft.QLinearConcat", {"Y_scale Y_zero_point inputs*", "Y", "axis:i!"}, qlinear_concat),
    body_row("com.microsoft.QLinearConv",
             {"x x_scale x_zero_point w w_scale w_zero_point y_scale y_zero_point B?", "y",
              "auto_pad:s channels_last:b dilations:is group:i kernel_shape:is pads:is strides:is"},
             qlinear_conv),
    body_row("com.microsoft.QLinearGlobalAveragePool", {OPTC_UNARY, "channels_last:b"}, qlinear_average_pool<true>),
    body_row("com.microsoft.QLinearLeakyRelu", {OPTC_UNARY, "alpha:f"}, qlinear_leaky_relu),
    body_row("com.microsoft.QLinearMul", {OPTC_BINARY}, qlinear_binary<kMul>),
    body_row("com.microsoft.QLinearReduceMean", {OPTC_UNARY, "axes:is! keepdims:b!"}, qlinear_reduce_mean),
    body_row("com.microsoft.QLinearSigmoid", {OPTC_UNARY, ""}, qlinear_sigmoid),
    body_row("com.microsoft.QLinearSoftmax", {OPTC_UNARY, "axis:i opset:i!"}, qlinear_softmax),
    body_row("com.microsoft.QLinearWhere",
             {"condition X x_scale x_zero_point Y y_scale y_zero_point z_scale z_zero_point", "Z", ""}, qlinear_where),
    body_row("com.microsoft.QuantizeLinear", {"x y_scale y_zero_point?", "y", "axis:i"}, linear<kQuantize>),
    body_row("com.microsoft.ReduceSumInteger", {"data", "reduced", "axes:is! keepdims:b!"}, reduce_sum_integer),
};
#undef OPTC_BINARY
#undef OPTC_UNARY

}  // namespace

std::span<const OpDef> contrib_quantized_ops() { return kOps; }

}  // namespace optc
