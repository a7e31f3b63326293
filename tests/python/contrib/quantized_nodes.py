"""Generators of operators on quantized tensors; see nodes.py."""

import numpy as np
from harness import Node
from nodes import any_shape, generator, maybe, normal, one_of, size


def integers(rng, kind, *shape):
    info = np.iinfo(kind)
    return rng.integers(info.min, info.max, shape, endpoint=True).astype(kind)


def scale(rng, *shape, low=0.005, high=0.05):
    return rng.uniform(low, high, shape).astype(np.float32)


def tensor(rng, kind, shape, zero=0.7):
    """A quantized tensor with its scale and zero point, which may be absent."""
    return [integers(rng, kind, *shape), scale(rng), maybe(rng, integers(rng, kind), zero)]


def kind_of(rng):
    return one_of(rng, np.uint8, np.int8)


def binary(op):
    def make(rng):
        kind, shape = kind_of(rng), any_shape(rng)
        other = [1 if rng.random() < 0.3 else d for d in shape][int(rng.integers(len(shape))) :]
        high = 0.5 if op == "QLinearMul" else 0.1
        return Node(op, tensor(rng, kind, shape, 1) + tensor(rng, kind, other, 1) + [scale(rng, low=0.02, high=high), integers(rng, kind)], steps=1)

    return make


def unary(op, rank=None, **settings):
    def make(rng):
        kind = kind_of(rng)
        shape = [size(rng, 1, 2), size(rng), size(rng, 3, 6), size(rng, 3, 6)] if rank else any_shape(rng)
        attributes = {k: v(rng, shape) if callable(v) else v for k, v in settings.items()}
        y_scale = scale(rng, low=0.003, high=0.01) if op in ("QLinearSigmoid", "QLinearSoftmax") else scale(rng)
        zero = integers(rng, kind)
        # ONNX Runtime refuses most that leave a zero point out, or ends the process.
        return Node(op, tensor(rng, kind, shape, 1) + [y_scale, zero], steps=1, **attributes)

    return make


def named(name, make):
    make.__name__ = name
    generator(make)


named("QLinearAdd", binary("QLinearAdd"))
named("QLinearMul", binary("QLinearMul"))
named("QLinearLeakyRelu", unary("QLinearLeakyRelu", alpha=lambda rng, _: maybe(rng, float(rng.uniform(0.01, 0.5)))))
named("QLinearSigmoid", unary("QLinearSigmoid"))
named("QLinearSoftmax", unary("QLinearSoftmax", axis=lambda rng, s: int(rng.integers(-len(s), len(s))), opset=lambda rng, _: one_of(rng, 12, 13)))
named("QLinearGlobalAveragePool", unary("QLinearGlobalAveragePool", rank=4, channels_last=lambda rng, _: int(rng.integers(2))))
named("QLinearAveragePool", unary("QLinearAveragePool", rank=4, kernel_shape=lambda rng, _: [size(rng, 2, 3), size(rng, 2, 3)],
                                  strides=lambda rng, _: [size(rng, 1, 2)] * 2, pads=lambda rng, _: maybe(rng, [1, 0, 1, 1]),
                                  count_include_pad=lambda rng, _: int(rng.integers(2))))


@generator
def QLinearReduceMean(rng):
    """No kernel of ONNX Runtime: beside its schema's words."""
    kind, shape = kind_of(rng), any_shape(rng)
    x, x_scale, x_zero = tensor(rng, kind, shape, 1)
    y_scale, y_zero = scale(rng), integers(rng, kind)
    axes = [int(a) for a in rng.choice(len(shape), size(rng, 1, len(shape)), replace=False)]
    keepdims = int(rng.integers(2))
    mean = ((x.astype(np.float64) - x_zero) * x_scale).mean(tuple(axes), keepdims=bool(keepdims))
    info = np.iinfo(kind)
    y = np.clip(np.rint(mean / y_scale) + y_zero, info.min, info.max).astype(kind)
    return Node("QLinearReduceMean", [x, x_scale, x_zero, y_scale, y_zero], axes=axes, keepdims=keepdims, want=[y], steps=1)


@generator
def QLinearConcat(rng):
    kind, shape = kind_of(rng), any_shape(rng)
    axis = int(rng.integers(-len(shape), len(shape)))
    inputs = [scale(rng), integers(rng, kind)]
    for _ in range(size(rng, 1, 4)):
        part = list(shape)
        part[axis] = size(rng)
        inputs += tensor(rng, kind, part, 1)
    return Node("QLinearConcat", inputs, axis=axis, steps=1)


@generator
def QLinearWhere(rng):
    """ONNX Runtime's kernel ends the process: beside numpy."""
    kind, shape = kind_of(rng), any_shape(rng)
    condition, (x, sx, zx), (y, sy, zy) = rng.random(shape) < 0.5, tensor(rng, kind, shape, 1), tensor(rng, kind, shape, 1)
    s, z = scale(rng), integers(rng, kind)
    wide = lambda v, scale, zero: (v.astype(np.float64) - zero) * scale  # noqa: E731
    info = np.iinfo(kind)
    want = np.clip(np.rint(np.where(condition, wide(x, sx, zx), wide(y, sy, zy)) / s) + z, info.min, info.max).astype(kind)
    return Node("QLinearWhere", [condition, x, sx, zx, y, sy, zy, s, z], want=[want], steps=1)


@generator
def QLinearConv(rng):
    """With channels last, which the operator of ai.onnx does not have."""
    group, per, out = size(rng, 1, 2), size(rng, 1, 3), size(rng, 1, 3)
    x = [integers(rng, np.uint8, size(rng, 1, 2), size(rng, 4, 8), size(rng, 4, 8), group * per), scale(rng), integers(rng, np.uint8)]
    many = rng.random() < 0.5
    w = [integers(rng, np.int8, group * out, per, size(rng, 1, 3), size(rng, 1, 3)), scale(rng, group * out) if many else scale(rng),
         np.zeros(group * out if many else (), dtype=np.int8)]
    bias = maybe(rng, rng.integers(-500, 500, group * out).astype(np.int32))
    return Node("QLinearConv", x + w + [scale(rng, high=0.2), integers(rng, np.uint8), bias], channels_last=1, group=group, strides=[size(rng, 1, 2)] * 2,
                pads=maybe(rng, [1, 0, 1, 1]), constant=[3, 4, 5], steps=1)


@generator
def QuantizeLinear(rng):
    shape = any_shape(rng)
    axis = int(rng.integers(len(shape)))
    many = rng.random() < 0.5
    kind = one_of(rng, np.uint8, np.int8, np.uint16, np.int16)
    s = scale(rng, shape[axis]) if many else scale(rng)
    zero = integers(rng, kind, *s.shape) if rng.random() < 0.7 or kind not in (np.uint8,) else None
    return Node("QuantizeLinear", [normal(rng, *shape) * 3, s, zero], axis=axis if many else None, steps=1 if kind in (np.uint16, np.int16) else 0)


@generator
def DequantizeLinear(rng):
    shape = any_shape(rng)
    axis = int(rng.integers(len(shape)))
    many = rng.random() < 0.5
    kind = one_of(rng, np.uint8, np.int8, np.uint16, np.int16, np.int32)
    s = scale(rng, shape[axis]) if many else scale(rng)
    zero = maybe(rng, integers(rng, kind, *s.shape)) if kind is not np.int32 else None
    return Node("DequantizeLinear", [integers(rng, kind, *shape), s, zero], axis=axis if many else None)


def product_parts(rng, batch=True):
    m, k, n = size(rng), size(rng, 1, 9), size(rng)
    lead = [size(rng, 1, 3) for _ in range(size(rng, 0, 2))] if batch else []
    many = rng.random() < 0.5
    kind = kind_of(rng)
    b_scale = scale(rng, n) if many else scale(rng, *one_of(rng, (), (1,)))
    b_zero = maybe(rng, integers(rng, kind, *b_scale.shape))
    return lead + [m, k], integers(rng, kind, k, n), b_scale, b_zero, maybe(rng, normal(rng, n))


@generator
def DynamicQuantizeMatMul(rng):
    shape, b, b_scale, b_zero, bias = product_parts(rng)
    return Node("DynamicQuantizeMatMul", [normal(rng, *shape), b, b_scale, b_zero, bias], tolerance=1e-4, constant=[1, 2, 3])


@generator
def MatMulIntegerToFloat(rng):
    shape, b, b_scale, b_zero, bias = product_parts(rng)
    kind = np.uint8 if b.dtype == np.uint8 else kind_of(rng)
    zero = maybe(rng, integers(rng, kind, *one_of(rng, (), (1,))))
    return Node("MatMulIntegerToFloat", [integers(rng, kind, *shape), b, scale(rng), b_scale, zero, b_zero, bias], tolerance=1e-4)


@generator
def QGemm(rng):
    m, k, n = size(rng), size(rng, 1, 9), size(rng)
    ta, tb, many = int(rng.integers(2)), int(rng.integers(2)), rng.random() < 0.5
    kind = kind_of(rng)
    a = [integers(rng, np.uint8, *((k, m) if ta else (m, k))), scale(rng), integers(rng, np.uint8)]
    b = [integers(rng, kind, *((n, k) if tb else (k, n))), scale(rng, n) if many else scale(rng)]
    b.append(integers(rng, kind, *b[1].shape))
    c = maybe(rng, rng.integers(-999, 999, one_of(rng, (n,), (m, n), (1, n))).astype(np.int32))
    y = [scale(rng, high=0.3), integers(rng, np.uint8)] if rng.random() < 0.6 else []
    return Node("QGemm", a + b + [c] + y, transA=ta, transB=tb, alpha=one_of(rng, None, 0.5), steps=1, tolerance=1e-5)


@generator
def MulInteger(rng):
    kind, shape = kind_of(rng), any_shape(rng)
    a, b = integers(rng, kind, *shape), integers(rng, kind, *shape)
    za, zb = maybe(rng, integers(rng, kind)), maybe(rng, integers(rng, kind))
    wide = lambda x, z: x.astype(np.int32) - (0 if z is None else z.astype(np.int32))  # noqa: E731
    return Node("MulInteger", [a, za, b, zb], want=[wide(a, za) * wide(b, zb)])


@generator
def MatMulInteger16(rng):
    a, b = integers(rng, np.int16, size(rng), 5), integers(rng, np.int16, 5, size(rng))
    return Node("MatMulInteger16", [a // 8, b // 8], want=[(a // 8).astype(np.int32) @ (b // 8).astype(np.int32)])


def packed(numbers, bits):
    """Numbers along the last axis into bytes, the low bits first; the last byte is filled with zeros."""
    each = 8 // bits
    short = -numbers.shape[-1] % each
    numbers = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, short)])
    parts = numbers.reshape(*numbers.shape[:-1], -1, each).astype(np.uint16)
    return (parts << (np.arange(each, dtype=np.uint16) * bits)).sum(-1).astype(np.uint8)


@generator
def MatMulNBits(rng):
    bits, block, n = one_of(rng, 4, 4, 8, 2), one_of(rng, 16, 32, 64), size(rng, 1, 9)
    k = int(rng.integers(8, 80))
    blocks = -(-k // block)
    q = rng.integers(0, 2**bits, (n, blocks * block))
    scales = scale(rng, n, blocks)
    zero = rng.integers(0, 2**bits, (n, blocks)) if rng.random() < 0.6 else None
    float_zero = zero is not None and bits == 4 and rng.random() < 0.3
    x = normal(rng, *[size(rng, 1, 3) for _ in range(size(rng, 0, 2))], size(rng), k)
    bias = maybe(rng, normal(rng, n))
    z = np.full((n, blocks), 2 ** (bits - 1)) if zero is None else zero
    w = ((q.reshape(n, blocks, block) - z[:, :, None]) * scales[:, :, None].astype(np.float64)).reshape(n, -1)[:, :k]
    y = (x @ w.T + (0 if bias is None else bias)).astype(np.float32)
    b = packed(q.reshape(n, blocks, block), bits)
    zeros = None if zero is None else zero.astype(np.float32) if float_zero else packed(zero, bits)
    if rng.random() < 0.5:  # as older tools write them
        scales, zeros = scales.reshape(-1), None if zeros is None else zeros.reshape(-1)
    node = [x, b, scales, zeros, None, bias]
    attributes = dict(K=k, N=n, bits=bits, block_size=block)
    constant = [1, 2, 3] if rng.random() < 0.7 else []
    return Node("MatMulNBits", node, want=[y], constant=constant, tolerance=2e-5, **attributes)


@generator
def GatherBlockQuantized(rng):
    bits, block = one_of(rng, 2, 4, 8), one_of(rng, 16, 32)
    rows, columns = size(rng), block * size(rng, 1, 3)
    blocks = columns // block
    q = rng.integers(0, 2**bits, (rows, columns))
    scales = scale(rng, rows, blocks)
    zero = rng.integers(0, 2**bits, (rows, blocks)) if rng.random() < 0.6 else None
    indices = rng.integers(-rows, rows, any_shape(rng)[:3]).astype(one_of(rng, np.int32, np.int64))
    return Node("GatherBlockQuantized", [packed(q, bits), indices, scales, None if zero is None else packed(zero, bits)], bits=bits, block_size=block,
                gather_axis=0, quantize_axis=1, constant=[0, 2, 3])
