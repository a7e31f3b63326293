"""Quantized chains, products and convolutions."""

import numpy as np
from onnx import TensorProto, helper

from layers import activation, image, tokens, vector
from oracle import Reject
from registry import op
from values import F16, F32, INT4, ONNX


@op(2.5)
def qdq(g):
    r = g.r
    t = np.dtype(r.choice(["i1", "u1"]))
    x = g.pick([F32])
    a = g.v[x]
    if a.size and np.isnan(a).any():
        raise Reject
    if a.ndim and r.random() < 0.4 and g.opset >= 13:
        ax = r.randrange(a.ndim)
        c = a.shape[ax]
        s = g.const((g.np.integers(1, 5, c) / 4).astype(np.float32))
        z = g.const(g.np.integers(0, 5, c).astype(t))
        A = dict(axis=ax - a.ndim if r.random() < 0.3 else ax)
    else:
        s = g.const(np.array(r.choice([0.25, 0.5, 1.0]), np.float32))
        z = g.const(np.array(r.choice([0, 3]), t))
        A = {}
    q = g.node("QuantizeLinear", [x, s, z], **A)
    for _ in range(r.choice([0, 0, 1])):
        if not A:
            b = g.v[q]
            o = r.choice(["Transpose", "MaxPool", "Reshape"])
            if o == "Transpose":
                q = g.node(o, [q])
            elif o == "Reshape":
                q = g.node(o, [q, g.ints(-1)])
            elif b.ndim == 4 and 0 not in b.shape:
                q = g.node(o, [q], kernel_shape=[1, 1])
    y = g.node("DequantizeLinear", [q, s, z], **A)
    if r.random() < 0.3:
        g.node("Relu", [y])


@op(1)
def qmatmul(g):
    r = g.r
    t, u = np.dtype(r.choice(["i1", "u1"])), np.dtype(r.choice(["i1", "u1"]))
    m, k, n = g.dim(), g.dim(), g.dim()
    if r.random() < 0.5:  # edges of the tiles, panels and groups of integer products
        m, k, n = r.choice([1, 5, 17, 33]), r.choice([3, 4, 63, 64, 65, 130]), r.choice([1, 15, 16, 48, 64, 70, 130])
    if 0 in (m, k, n):
        raise Reject
    if t.char == "b" and u.char == "B":
        u = t
    x = g.pick([t], rank=2, pred=lambda a: a.shape[1] == k) if r.random() < 0.3 else g.leaf(t, [m, k])
    y = g.leaf(u, [k, n])
    za = g.const(np.array(r.choice([0, 3]), t)) if r.random() < 0.6 else g.leaf(t, r.choice([[], [1]]))
    zb = g.const(np.array(2, u)) if r.random() < 0.5 else g.const(g.np.integers(0, 4, n).astype(u))
    if r.random() < 0.6:
        z = g.node("MatMulInteger", [x, y, za, zb][: r.choice([2, 3, 4])])
        if r.random() < 0.6:
            z = g.node("Cast", [z], to=TensorProto.FLOAT)
            z = g.node("Mul", [z, g.const(np.array(0.25, np.float32))])
        return
    f = lambda v: g.const(np.array(v, np.float32))
    g.node("QLinearMatMul", [x, f(0.5), za, y, f(0.25), g.const(np.array(2, u)), f(r.choice([1.0, 0.5])), g.const(np.array(4, t))])


@op(1)
def dynamic_quantize(g):
    x = g.pick([F32], pred=lambda a: a.size > 0 and np.isfinite(a).all())
    g.node("DynamicQuantizeLinear", [x], nout=3)


@op(2)
def quantized_convolution(g):
    r = g.r
    if g.opset < 13:
        raise Reject
    x = image(g)
    n, c, h, w = g.v[x].shape
    oc, kernel = r.choice([1, 2, 8]), r.choice([1, 3])
    act, wt = r.choice([np.uint8, np.int8]), np.int8

    def qdq(y, scale, zero):
        s, z = g.const(np.array(scale, F32)), g.const(np.array(zero, act))
        return g.node("DequantizeLinear", [g.node("QuantizeLinear", [y, s, z]), s, z])

    y = qdq(x, r.choice([0.25, 0.125]), r.choice([0, 3]))
    q = g.const(g.np.integers(-9, 10, (oc, c, kernel, kernel)).astype(wt))
    if r.random() < 0.6:
        k = g.node("DequantizeLinear", [q, g.const((g.np.integers(1, 5, oc) / 64).astype(F32)), g.const(np.zeros(oc, wt))], axis=0)
    else:
        k = g.node("DequantizeLinear", [q, g.const(np.array(0.03125, F32)), g.const(np.array(0, wt))])
    half = kernel // 2
    y = g.node("Conv", [y, k], pads=[half] * 4)
    if r.random() < 0.5:
        y = g.node("Relu", [y])
    y = qdq(y, r.choice([0.5, 0.25]), r.choice([0, 2]))
    if r.random() < 0.4:
        y = g.node("MaxPool", [y], kernel_shape=[2, 2], strides=[1, 1])
    if r.random() < 0.4:
        qdq(g.node("Add", [y, qdq(g.add_input(F32, list(g.v[y].shape)), 0.25, 1)]), 0.5, 1)


@op(2)
def dynamic_quantized_product(g):
    r = g.r
    x = tokens(g) if r.random() < 0.7 else g.add_input(F32, [r.choice([1, 4, 9, 20, 40]), r.choice([3, 16, 17, 64, 100])])
    k, n = g.v[x].shape[-1], r.choice([1, 5, 16, 17, 64, 80])
    q, scale, zero = g.node("DynamicQuantizeLinear", [x], nout=3)
    t = r.choice([np.int8, np.uint8])
    w = g.const(g.np.integers(-9 if t is np.int8 else 0, 10, (k, n)).astype(t))
    wz = g.const(np.array(r.choice([0, 3]), t)) if r.random() < 0.6 else ""
    y = g.node("Cast", [g.node("MatMulInteger", [q, w, zero, wz])], to=TensorProto.FLOAT)
    y = g.node("Mul", [y, g.node("Mul", [scale, g.const((g.np.integers(1, 5, r.choice([[1], [n]])) / 64).astype(F32))])])
    if r.random() < 0.6:
        y = g.node("Add", [y, vector(g, n)])
    activation(g, y)


def rounded_in_blocks(g, x, block):
    """Activations of 8 bits: by scales of the block's largest number, or by powers of two that are given."""
    r, a = g.r, g.v[x]
    parts = -(-a.shape[-1] // block)
    if r.random() < 0.5 and a.shape[-1] % block == 0 and 0 not in a.shape and np.isfinite(a).all() and np.abs(a).reshape(-1, block).max(1).all():
        largest = g.node("ReduceMax", [g.node("Abs", [g.node("Reshape", [x, g.ints(*a.shape[:-1], parts, block)])]), g.ints(-1)], keepdims=0)
        scale = g.node("Div", [largest, g.const(np.array(127, F32))])
    else:
        scale = g.const((2.0 ** -g.np.integers(3, 6, (*a.shape[:-1], parts))).astype(F32))
    q = g.node("QuantizeLinear", [x, scale], axis=a.ndim - 1, block_size=block, output_dtype=TensorProto.INT8)
    return g.node("DequantizeLinear", [q, scale], axis=a.ndim - 1, block_size=block)


@op(2)
def quantized_weights(g):
    """A product by weights that are quantized by columns or, of opset 21, in blocks along the sum, perhaps in 4 bits and transposed."""
    r = g.r
    blocks = g.opset >= 21 and r.random() < 0.8
    t = np.dtype(r.choice([np.int8, np.uint8, *INT4] if blocks else [np.int8, np.uint8]))
    x = tokens(g) if r.random() < 0.5 else g.add_input(F32, [r.choice([1, 2, 4, 5, 9, 20]), r.choice([8, 16, 17, 64, 100])])
    k, n = g.v[x].shape[-1], r.choice([1, 5, 16, 17, 64, 80])
    block = r.choice([b for b in (2, 8, 16, 32, k) if b < k or b == k]) if blocks else k
    parts, turned = -(-k // block), r.random() < 0.5
    turn = (lambda a: np.ascontiguousarray(a.T)) if turned else (lambda a: a)
    low, high = (-8, 8) if t == INT4[0] else (0, 16) if t == INT4[1] else (-9, 10) if t == np.int8 else (0, 19)
    q = g.const(turn(g.np.integers(low, high, (k, n))).astype(t))
    scale = (g.np.integers(1, 5, (parts, n)) / 64).astype(F32)
    zero = g.np.integers(max(low, -4), 5, (parts, n))
    given = [q, g.const(turn(scale) if blocks else scale[0])]
    if r.random() < 0.6:
        given.append(g.const((turn(zero) if blocks else zero[0]).astype(t)))
    w = g.node("DequantizeLinear", given, axis=(1 if turned else 0) if blocks else (0 if turned else 1), **({"block_size": block} if blocks else {}))
    if blocks and r.random() < 0.5:
        x = rounded_in_blocks(g, x, block)
    y = g.node("MatMul", [x, g.node("Transpose", [w], perm=[1, 0]) if turned else w])
    if r.random() < 0.5:
        y = g.node("Add", [y, vector(g, n)])
    activation(g, y)


@op(0)  # by --with alone
def float_weights(g):
    """Products by weights that --quantize-weights rounds (quantize.py): as they are or turned, of several products, of a table that is gathered
    from too, in the body of an If, and beside readers that keep a weight as it is."""
    r = g.r
    t = F16 if r.random() < 0.3 else F32
    k, n = r.choice([(64, 64), (65, 64), (33, 130), (100, 80), (257, 17), (16, 256)])
    x = g.add_input(t, [r.choice([1, 2, 4, 5, 9]), k])
    form = r.choice(["product", "product", "gemm", "shared", "table", "branch", "read"])
    turned = r.random() < 0.5
    w = g.const((g.np.normal(r.choice([0, 0, 1]), 0.1, (n, k) if turned else (k, n))).astype(t))
    if form == "gemm":
        y = g.node("Gemm", [x, w, g.const(g.data(t, [n]))], transB=int(turned), alpha=r.choice([None, 0.5]))
        return activation(g, y)
    right = g.node("Transpose", [w], perm=[1, 0]) if turned else w
    if form == "branch":
        p, q = g.name("b"), g.name("b")
        info = [helper.make_tensor_value_info(name, ONNX[t], list(g.v[x].shape[:1]) + [n]) for name in (p, q)]
        then = helper.make_graph([helper.make_node("MatMul", [x, right], [p])], "then" + p, [], info[:1])
        other = helper.make_graph([helper.make_node("MatMul", [x, right], [q + "_"]), helper.make_node("Neg", [q + "_"], [q])], "else" + q, [], info[1:])
        return g.node("If", [g.give(np.array(bool(r.getrandbits(1))))], then_branch=then, else_branch=other)
    y = g.node("MatMul", [x, right])
    if form == "shared":
        g.node("MatMul", [g.add_input(t, [r.choice([1, 2]), 3, k]), right])
    elif form == "table":
        rows = g.v[w].shape[0]
        g.node("Gather", [w, g.const(g.np.integers(0, rows, r.choice([[], [3], [2, 2]])).astype(np.int64))], axis=r.choice([0, 0, 0, 1]) if min(g.v[w].shape) > 16 else 0)
    elif form == "read":
        g.node(r.choice(["Neg", "Abs", "Identity"]), [w])
    activation(g, y)


def finite_input(g, shape):
    x = g.add_input(F32, shape)
    if not np.isfinite(g.v[x]).all():
        raise Reject
    return x


@op(2)
def integer_convolution(g):
    """ConvInteger, QLinearConv, and Conv of dequantized bytes: signed and unsigned, in groups, depthwise, dilated, of one to three dims. Scales
    are powers of two, so that no sum is rounded."""
    r = g.r
    t, u = r.choice([np.uint8, np.int8]), r.choice([np.uint8, np.int8])
    if t is np.int8:
        u = np.int8
    spatial = r.choice([1, 2, 2, 2, 3])
    form = r.choice(["whole", "whole", "depthwise", "groups"])
    group = 1 if form == "whole" else r.choice([2, 3]) if form == "groups" else r.choice([2, 5, 16, 20])
    c = group * (1 if form == "depthwise" else r.choice([1, 3, 4, 8, 17]))
    oc = group * (r.choice([1, 1, 1, 2]) if form == "depthwise" else r.choice([1, 2, 5, 16, 20]))
    kernel = [r.choice([1, 1, 2, 3, 5 if spatial < 3 else 2]) for _ in range(spatial)]
    dilations = [r.choice([1, 1, 1, 2]) for _ in range(spatial)]
    strides = [r.choice([1, 1, 2]) for _ in range(spatial)]
    pads = [r.choice([0, 0, 1, 2]) for _ in range(2 * spatial)]
    size = [(k - 1) * d + r.choice([1, 2, 5, 9]) for k, d in zip(kernel, dilations)]

    def drawn(kind, shape):
        info = np.iinfo(kind)
        return g.np.integers(info.min, info.max, shape, endpoint=True).astype(kind)

    zero = r.choice([0, 0, 1, int(np.iinfo(t).max), int(np.iinfo(t).min)])
    shape = [r.choice([1, 1, 2]), c, *size]
    if r.random() < 0.5:
        x = g.node("QuantizeLinear", [finite_input(g, shape), g.const(np.array(1 / 32, F32)), g.const(np.array(zero, t))])
    else:
        x = g.add_input(np.dtype(t), shape)
    w = g.const(drawn(u, (oc, c // group, *kernel)))
    f = lambda v: g.const(np.array(v, F32))  # noqa: E731
    A = dict(kernel_shape=kernel, strides=strides, dilations=dilations, pads=pads, group=group)
    kind = r.choice(["ConvInteger", "QLinearConv", "Conv"])
    x_zero, w_zero = g.const(np.array(zero, t)), g.const(np.array(r.choice([0, 0, 3]), u))
    if kind == "ConvInteger":
        y = g.node(kind, [x, w, x_zero, w_zero][: r.choice([2, 3, 4, 4])], **A)
        if r.random() < 0.6:
            y = g.node("Mul", [g.node("Cast", [y], to=TensorProto.FLOAT), f(0.125)])
            activation(g, y)
        return
    scale = 2.0 ** -r.choice([6, 8, 10])
    if kind == "QLinearConv":
        bias = [g.const(g.np.integers(-999, 999, oc).astype(np.int32))] if r.random() < 0.5 else []
        g.node(kind, [x, f(0.5), x_zero, w, f(scale), w_zero, f(0.5), g.const(np.array(r.choice([0, 3]), t)), *bias], **A)
        return
    if g.opset < 13:
        raise Reject
    a = g.node("DequantizeLinear", [x, f(0.5), x_zero])
    if r.random() < 0.5:
        b = g.node("DequantizeLinear", [w, g.const((2.0 ** -g.np.integers(5, 9, oc)).astype(F32)), g.const(np.zeros(oc, u))], axis=0)
    else:
        b = g.node("DequantizeLinear", [w, f(scale), w_zero])
    y = g.node(kind, [a, b, vector(g, oc)] if r.random() < 0.5 else [a, b], **A)
    if r.random() < 0.5:
        y = g.node("Relu", [y])
    if r.random() < 0.7:
        g.node("QuantizeLinear", [y, f(0.5), g.const(np.array(r.choice([0, 3]), t))])


@op(1)
def dequantized_attention(g):
    """Products of two dequantized activations, as in quantized attention: neither is packed."""
    r = g.r
    if g.opset < 13:
        raise Reject
    t = r.choice([np.uint8, np.int8])
    info = np.iinfo(t)
    heads, m, k, n = r.choice([1, 2, 3]), r.choice([1, 5, 17]), r.choice([3, 8, 16, 65]), r.choice([1, 9, 16, 33])
    f = lambda v: g.const(np.array(v, F32))  # noqa: E731

    def qdq(y, scale):
        zero = g.const(np.array(r.choice([0, 3, int(info.min), int(info.max)]), t))
        return g.node("DequantizeLinear", [g.node("QuantizeLinear", [y, f(scale), zero]), f(scale), zero])

    a, b = qdq(finite_input(g, [heads, m, k]), 0.0625), qdq(finite_input(g, [heads, n, k]), 0.03125)
    y = g.node("MatMul", [a, g.node("Transpose", [b], perm=[0, 2, 1])])
    if r.random() < 0.6:
        y = g.node("Mul", [y, f(0.25)])
    if r.random() < 0.5:
        qdq(y, 0.5)
    else:
        activation(g, y)


@op(1.5)
def dequantized_product(g):
    """MatMul or Gemm of dequantized bytes, with scales and zero points for all or for each column."""
    r = g.r
    if g.opset < 13:
        raise Reject
    t, u = r.choice([np.uint8, np.int8]), r.choice([np.uint8, np.int8])
    m, k, n = r.choice([1, 5, 17, 33]), r.choice([1, 3, 4, 63, 64, 65, 130]), r.choice([1, 15, 16, 64, 70])
    f = lambda v: g.const(np.array(v, F32))  # noqa: E731
    x_zero = g.const(np.array(r.choice([0, 3, int(np.iinfo(t).max)]), t))
    a = g.node("DequantizeLinear", [g.node("QuantizeLinear", [finite_input(g, [m, k]), f(0.0625), x_zero]), f(0.0625), x_zero])
    gemm, swapped = r.random() < 0.5, r.random() < 0.5
    info = np.iinfo(u)
    w = g.const(g.np.integers(info.min, info.max, (n, k) if gemm and swapped else (k, n), endpoint=True).astype(u))
    if r.random() < 0.6:  # along the columns; now and then along the sum, where it must stay in floats
        axis = 0 if gemm and swapped else 1
        if r.random() < 0.2:
            axis = 1 - axis
        length = g.v[w].shape[axis]
        b = g.node("DequantizeLinear", [w, g.const((2.0 ** -g.np.integers(4, 8, length)).astype(F32)), g.const(g.np.integers(0, 4, length).astype(u))], axis=axis)
    else:
        b = g.node("DequantizeLinear", [w, f(0.03125), g.const(np.array(r.choice([0, 2]), u))])
    if gemm:
        y = g.node("Gemm", [a, b, vector(g, n)] if r.random() < 0.6 else [a, b], transB=int(swapped), alpha=r.choice([None, 0.5]))
    else:
        y = g.node("MatMul", [a, b])
        if r.random() < 0.6:
            y = g.node("Add", [y, vector(g, n)])
    activation(g, y)
