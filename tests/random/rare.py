"""Operators that networks have now and then: attention as one operator, samplers, regions, losses, integer convolutions."""

import numpy as np
from onnx import TensorProto

from oracle import Reject
from registry import op
from values import F16, F32, F64, I8, I32, I64, INT4, U8


def vector(g, *shape):
    return g.const((g.np.integers(-8, 9, shape) / 8).astype(F32))


def picture(g, dtype=F32):
    r = g.r
    return g.add_input(dtype, [r.choice([1, 2]), r.choice([1, 2, 4]), r.choice([3, 4, 6]), r.choice([3, 5, 7])])


@op(2)
def attention(g):
    """The operator Attention: three or four dims, grouped heads, masks, causal, a cache."""
    r = g.r
    if g.opset < 23:
        raise Reject
    b, heads, s, t, d, e = (
        r.choice([1, 2]),
        r.choice([1, 2, 4]),
        r.choice([1, 3, 5]),
        r.choice([1, 4, 9]),
        r.choice([2, 4, 8]),
        r.choice([2, 4]),
    )
    kv = r.choice([q for q in (1, 2, 4) if heads % q == 0 and q <= heads])
    new = lambda *dims: g.add_input(F32, list(dims))  # noqa: E731
    if r.random() < 0.6:
        ins, attributes = [new(b, heads, s, d), new(b, kv, t, d), new(b, kv, t, e)], {}
    else:
        ins = [new(b, s, heads * d), new(b, t, kv * d), new(b, t, kv * e)]
        attributes = dict(q_num_heads=heads, kv_num_heads=kv)
    past = r.choice([1, 3]) if r.random() < 0.25 else 0
    mask = ""
    if r.random() < 0.5:
        dims = r.choice([[s, t + past], [1, 1, s, t + past], [b, 1, s, t + past], [b, heads, s, t + past]])
        mask = (
            g.give(g.np.random(dims) < 0.8)
            if r.random() < 0.5
            else g.give(np.where(g.np.random(dims) < 0.2, r.choice([-np.inf, -1e4]), 0).astype(F32))
        )
    ins.append(mask)
    if past:
        ins += [new(b, kv, past, d), new(b, kv, past, e)]
    causal = r.choice([None, 0, 1])
    softcap = r.choice([None, None, 2.0]) if not causal and not mask else None  # whether it comes before the mask, versions differ
    g.node("Attention", ins, nout=3 if past else 1, is_causal=causal, scale=r.choice([None, 0.5]), softcap=softcap, **attributes)


@op(1)
def rotary(g):
    r = g.r
    if g.opset < 23:
        raise Reject
    b, heads, s, d = r.choice([1, 2]), r.choice([1, 2]), r.choice([1, 3]), r.choice([4, 8])
    x = g.add_input(F32, [b, heads, s, d])
    caches = [vector(g, 6, d // 2), vector(g, 6, d // 2)]
    g.node("RotaryEmbedding", [x, *caches, g.give(g.np.integers(0, 6, (b, s)))], interleaved=r.choice([None, 0, 1]))


@op(1)
def sampler(g):
    r = g.r
    if g.opset < 16:
        raise Reject
    x = picture(g)
    n = g.v[x].shape[0]
    h, w = r.choice([2, 3, 4]), r.choice([2, 5])  # with one row a step of the grid is 2 / 0
    if g.opset >= 20 and r.random() < 0.4:
        grid = g.node("AffineGrid", [g.add_input(F32, [n, 2, 3]), g.ints(n, 1, h, w)], align_corners=r.choice([0, 1]))
    else:
        grid = g.give(g.np.uniform(-1.3, 1.3, (n, h, w, 2)).astype(F32))
    mode = r.choice(["linear", "nearest", "cubic"] if g.opset >= 20 else ["bilinear", "nearest", "bicubic"])
    padding = r.choice(["zeros", "border", "reflection"])
    g.node("GridSample", [x, grid], mode=mode, padding_mode=padding, align_corners=r.choice([0, 1]))


@op(1)
def regions(g):
    r = g.r
    x = g.add_input(F32, [2, r.choice([1, 3]), 6, 7])
    rois = g.np.uniform(0, 3, (3, 4)).astype(F32)
    rois[:, 2:] += rois[:, :2] + 1
    if r.random() < 0.7 and g.opset >= 16:
        g.node(
            "RoiAlign",
            [x, g.give(rois), g.give(g.np.integers(0, 2, 3))],
            mode=r.choice(["avg", "max"]),
            output_height=r.choice([1, 2, 3]),
            output_width=2,
            sampling_ratio=r.choice([0, 1, 2]),
            spatial_scale=r.choice([0.5, 1.0]),
            coordinate_transformation_mode=r.choice(["half_pixel", "output_half_pixel"]),
        )
    else:
        batched = np.concatenate([g.np.integers(0, 2, (3, 1)).astype(F32), np.round(rois)], axis=1)
        g.node("MaxRoiPool", [x, g.give(batched)], pooled_shape=[2, 2])


@op(1)
def pooled_and_back(g):
    r = g.r
    x = g.add_input(F32, [r.choice([1, 2]), r.choice([1, 3]), 4, 6])
    if r.random() < 0.5:
        y, places = g.node("MaxPool", [x], nout=2, kernel_shape=[2, 2], strides=[2, 2])
        g.node("MaxUnpool", [y, places], kernel_shape=[2, 2], strides=[2, 2])
    else:
        g.node("GlobalLpPool", [x], p=r.choice([1, 2, 3]))


@op(1)
def columns(g):
    r = g.r
    if g.opset < 18:
        raise Reject
    c, k = r.choice([1, 2]), r.choice([1, 2])
    h, w, pad = r.choice([3, 4]), 5, r.choice([0, 1])
    blocks = (h + 2 * pad - k + 1) * (w + 2 * pad - k + 1)
    g.node("Col2Im", [g.add_input(F32, [r.choice([1, 2]), c * k * k, blocks]), g.ints(h, w), g.ints(k, k)], pads=[pad] * 4)


@op(1.5)
def integer_convolution(g):
    r = g.r
    oc, k, pad = r.choice([1, 3, 16]), r.choice([1, 2, 3]), r.choice([0, 1])
    x = picture(g, U8)
    c = g.v[x].shape[1]
    w = g.const(g.np.integers(-9, 10, (oc, c, k, k)).astype(I8) if r.random() < 0.5 else g.np.integers(0, 10, (oc, c, k, k)).astype(U8))
    wt = g.v[w].dtype
    zero = g.const(np.array(r.choice([0, 3]), U8))
    if r.random() < 0.5:
        return g.node("ConvInteger", [x, w, zero, g.const(np.array(r.choice([0, 2]), wt))], pads=[pad] * 4)
    f = lambda v: g.const(np.array(v, F32))  # noqa: E731
    scales = g.const((g.np.integers(1, 5, oc) / 64).astype(F32)) if r.random() < 0.5 else f(0.0625)
    zeros = g.const(np.zeros(oc, wt) if g.v[scales].ndim else np.array(0, wt))
    bias = [g.const(g.np.integers(-50, 50, oc).astype(I32))] if r.random() < 0.5 else []
    g.node("QLinearConv", [x, f(0.25), zero, w, scales, zeros, f(r.choice([0.5, 1.0])), g.const(np.array(4, U8)), *bias], pads=[pad] * 4)


@op(1)
def deformed(g):
    r = g.r
    if g.opset < 19:
        raise Reject
    n, c, oc, k = r.choice([1, 2]), r.choice([1, 2, 4]), r.choice([1, 2, 4]), r.choice([1, 3])
    h, w = 4, 5
    x = g.add_input(F32, [n, c, h, w])
    pad = k // 2
    ins = [x, vector(g, oc, c, k, k), g.give(g.np.uniform(-1, 1, (n, 2 * k * k, h, w)).astype(F32))]
    if r.random() < 0.5:
        ins += [vector(g, oc), g.give(g.np.random((n, k * k, h, w)).astype(F32))]
    g.node("DeformConv", ins, kernel_shape=[k, k], pads=[pad] * 4)


@op(1)
def losses(g):
    r = g.r
    n, c, extra = r.choice([1, 3]), r.choice([2, 5]), r.choice([[], [2], [2, 3]])
    x = g.add_input(F32, [n, c, *extra])
    target = g.give(g.np.integers(0, c, [n, *extra]).astype(r.choice([I32, I64])))
    weights = [g.const(g.np.random(c).astype(F32) + F32.type(0.1))] if r.random() < 0.5 else []
    attributes = dict(reduction=r.choice(["none", "mean", "sum"]), ignore_index=r.choice([None, 0]))
    if r.random() < 0.5:
        return g.node("NegativeLogLikelihoodLoss", [g.node("LogSoftmax", [x], axis=1), target, *weights], **attributes)
    g.node("SoftmaxCrossEntropyLoss", [x, target, *weights], nout=r.choice([1, 2]), **attributes)


@op(1)
def signals(g):
    r = g.r
    if g.opset < 17:
        raise Reject
    kind = r.choice(["DFT", "STFT", "Mel", "window"])
    n, length = r.choice([1, 2]), r.choice([5, 8, 12])
    if kind == "DFT":
        x = g.add_input(F32, [n, length, r.choice([1, 2])])
        if g.opset >= 20:
            return g.node("DFT", [x, "", g.const(np.array(1))], inverse=r.choice([None, 0, 1]))
        return g.node("DFT", [x], axis=1, inverse=r.choice([None, 0, 1]))
    if kind == "STFT":
        return g.node(
            "STFT", [g.add_input(F32, [n, 16, 1]), g.const(np.array(r.choice([2, 4]))), g.const(np.hanning(8).astype(F32))], onesided=1
        )
    one = lambda v, t=I64: g.const(np.array(v, t))  # noqa: E731
    if kind == "Mel":
        return g.node("MelWeightMatrix", [one(r.choice([3, 8])), one(16), one(8000), one(0, F32), one(4000, F32)])
    g.node(r.choice(["HannWindow", "HammingWindow", "BlackmanWindow"]), [one(r.choice([1, 2, 7]))], periodic=r.choice([None, 0, 1]))


@op(1)
def small_ones(g):
    r = g.r
    o = r.choice(["Shrink", "CumProd", "TensorScatter"])
    if o == "Shrink":
        return g.node(o, [g.pick([F32, F64, F16])], lambd=r.choice([0.5, 1.0]), bias=r.choice([0.0, 0.25]))
    if o == "CumProd":
        if g.opset < 26:
            raise Reject
        return g.node(o, [g.pick([F32], minrank=1), g.const(np.array(0))])
    if g.opset < 24:
        raise Reject
    b, h, m, s, d = r.choice([1, 2]), 2, 6, r.choice([1, 2]), 3
    g.node(o, [g.add_input(F32, [b, h, m, d]), g.add_input(F32, [b, h, s, d]), g.give(g.np.integers(0, m - s + 1, b))], axis=2)


@op(1)
def narrow_types(g):
    """float8 and 4-bit integers: cast, moved, quantized."""
    r = g.r
    if g.opset < 21:
        raise Reject
    kind = r.choice(["float8", "int4", "blocked"])
    x = g.add_input(r.choice([F32, F16]), [r.choice([1, 2, 4]), r.choice([2, 8])])
    if kind == "float8":
        to = r.choice([TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ])
        y = g.node("Cast", [x], to=to, saturate=r.choice([None, 0, 1]))
        y = g.node("Transpose", [y], perm=[1, 0]) if r.random() < 0.4 else y
        g.node("Cast", [y], to=r.choice([TensorProto.FLOAT, TensorProto.FLOAT16]))
    elif kind == "int4":
        zero = g.const(np.array(r.choice([0, 1])).astype(r.choice(INT4)))
        s = g.const(np.array(0.5, g.v[x].dtype))
        q = g.node("QuantizeLinear", [x, s, zero])
        g.node("DequantizeLinear", [g.node("Reshape", [q, g.ints(-1)]) if r.random() < 0.3 else q, s, zero])
    else:
        n, k = g.v[x].shape
        s = g.const((g.np.integers(1, 5, (n, 2)) / 4).astype(g.v[x].dtype))
        zero = g.const(np.zeros((n, 2), r.choice([I8, U8])))
        q = g.node("QuantizeLinear", [x, s, zero], axis=1, block_size=k // 2)
        g.node("DequantizeLinear", [q, s, zero], axis=1, block_size=k // 2)
