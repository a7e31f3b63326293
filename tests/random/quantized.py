"""Quantized chains and products."""

import numpy as np
from onnx import TensorProto
from oracle import Reject
from registry import op
from values import F32


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
    if 0 in (m, k, n):
        raise Reject
    if t.char == "b" and u.char == "B":
        u = t
    x = g.pick([t], rank=2, pred=lambda a: a.shape[1] == k) if r.random() < 0.3 else g.leaf(t, [m, k])
    y = g.leaf(u, [k, n])
    za = g.const(np.array(r.choice([0, 3]), t))
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
