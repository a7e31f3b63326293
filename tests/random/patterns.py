"""Chains that the rules of the optimizer look for, and near misses."""

import numpy as np

from registry import op
from values import F32, FLOATS


@op(1.5)
def pattern_gelu(g):
    r = g.r
    x = g.pick(FLOATS[:3])
    d = g.v[x].dtype
    c = lambda v: g.const(np.array(v, d) if r.random() < 0.7 else np.array([v], d))
    two = r.choice([2**0.5, 2**0.5, 1.5])
    if r.random() < 0.5:
        e = g.node("Erf", [g.node("Div", [x, c(two)]) if r.random() < 0.5 else g.node("Mul", [x, c(1 / two)])])
    else:
        p = g.node("Mul", [x, g.node("Mul", [x, x])]) if r.random() < 0.5 else g.node("Pow", [x, c(3.0)])
        e = g.node("Tanh", [g.node("Mul", [g.node("Add", [x, g.node("Mul", [p, c(0.044715)])]), c(r.choice([0.7978845608, 0.8]))])])
    one = g.node("Add", [e, c(r.choice([1.0, 1.0, 1.0, 2.0]))])
    h = r.choice([0, 1, 2])
    if h == 0:
        g.node("Mul", [g.node("Mul", [x, one]), c(0.5)])
    elif h == 1:
        g.node("Mul", [g.node("Mul", [x, c(0.5)]), one])
    else:
        g.node("Mul", [x, g.node("Mul", [one, c(0.5)])])


@op(1.5)
def pattern_swish(g):
    r = g.r
    x = g.pick(FLOATS[:3])
    d = g.v[x].dtype
    c = lambda v: g.const(np.array(v, d))
    k = r.choice([0, 1, 2, 3])
    if k == 0:
        return g.node("Mul", [x, g.node("Sigmoid", [x if r.random() < 0.6 else g.node("Mul", [x, c(1.702)])])])
    if k == 1:
        return g.node("Mul", [x, g.node("Tanh", [g.node("Softplus", [x])])])
    if k == 2:
        return g.node("Div", [g.node("Mul", [x, g.node("Clip", [g.node("Add", [x, c(3)]), c(0), c(r.choice([6, 6, 5]))])]), c(6)])
    g.node("Mul", [x, g.node("HardSigmoid", [x], alpha=r.choice([1 / 6, 0.2]), beta=0.5)])


@op(2)
def pattern_ln(g):
    r = g.r
    x = g.pick(FLOATS[:3], minrank=1, pred=lambda a: a.size > 0)
    a = g.v[x]
    d = a.dtype
    ax = [-1] if r.random() < 0.7 else ([-2, -1] if a.ndim > 1 else [0])
    kd = r.choice([1, 1, 1, 0]) if a.ndim > 1 and a.shape[0] == a.shape[-1] else 1

    def mean(v):
        return g.node("ReduceMean", [v, g.ints(*ax)], keepdims=kd) if g.opset >= 18 else g.node("ReduceMean", [v], axes=ax, keepdims=kd)

    c = lambda v: g.const(np.array(v, d))
    y = g.node("Sub", [x, mean(x)]) if r.random() < 0.6 else x
    sq = g.node("Mul", [y, y]) if r.random() < 0.5 else g.node("Pow", [y, c(2)])
    s = g.node("Sqrt", [g.node("Add", [mean(sq), c(r.choice([1e-5, 1e-3]))])])
    n = (
        g.node("Div", [y, s])
        if r.random() < 0.5
        else g.node("Mul", [y, g.node("Reciprocal", [s]) if r.random() < 0.5 else g.node("Div", [c(1), s])])
    )
    tail = list(a.shape[min(ax) :] if min(ax) < 0 else a.shape)
    if r.random() < 0.7:
        n = g.node("Mul", [n, g.leaf(d, r.choice([tail, [1], tail]))])
        if r.random() < 0.7:
            n = g.node("Add", [n, g.leaf(d, tail)])


@op(1.5)
def pattern_attention(g):
    r = g.r
    d = np.dtype(r.choice(["f4", "f4", "f4", "f2"]))
    B, H, S, T, D, E = (
        r.choice([1, 2]),
        r.choice([1, 2, 3]),
        r.choice([1, 3, 5]),
        r.choice([1, 3, 4, 9]),
        r.choice([1, 2, 4]),
        r.choice([2, 4]),
    )
    mk = lambda s: g.leaf(d, s) if r.random() < 0.3 else g.add_input(d, s)
    q, k, v = mk([B, H, S, D]), mk([B, H, T, D]), mk([B, H, T, E])
    c = lambda x: g.const(np.array(x, d))
    if r.random() < 0.3:
        q = g.node("Mul", [q, c(0.5)])
    kt = g.node("Transpose", [k], perm=[0, 1, 3, 2])
    if r.random() < 0.2:
        kt = g.node("Div", [kt, c(2)])
    s = g.node("MatMul", [q, kt])
    if r.random() < 0.5:
        s = g.node(r.choice(["Mul", "Div"]), [s, c(0.5)])
    if r.random() < 0.6:
        m = np.where(
            g.np.random(r.choice([[S, T], [1, 1, S, T], [B, 1, 1, T], [B, H, S, T], [T]])) < 0.3, r.choice([-np.inf, -1e4, -60000]), 0
        ).astype(d)
        if r.random() < 0.5:
            mm = g.const(m)
        else:
            mm = g.give(m)
        s = g.node("Add", [s, mm] if r.random() < 0.7 else [mm, s])
    p = g.node("Softmax", [s], axis=r.choice([-1, 3, -1, -1, 2]))
    if r.random() < 0.3:
        p = g.node("Where", [g.node("IsNaN", [p]), c(0), p])
    o = g.node("MatMul", [p, v])
    if r.random() < 0.5:
        o = g.node("Transpose", [o], perm=[0, 2, 1, 3])
        g.node("Reshape", [o, g.ints(B, S, H * E) if r.random() < 0.5 else g.ints(0, 0, -1)])


@op(2)
def pattern_places(g):
    """What a kernel sums, read elsewhere than where it was stored: beside its own transpose or reverse, or with its axes moved."""
    r = g.r
    n, k = r.choice([4, 6, 8]), r.choice([1, 3, 5])
    kind = r.choice(["ReduceSum", "ReduceMax", "MatMul", "Softmax"])
    if kind == "MatMul":
        y = g.node("MatMul", [g.add_input(F32, [n, k]), g.leaf(F32, [k, n])])
    elif kind == "Softmax":
        y = g.node("Softmax", [g.add_input(F32, [n, n])], axis=-1)
    else:
        x = g.node("Mul", [g.add_input(F32, [n, n, k]), g.leaf(F32, r.choice([[n, n, k], [n, 1, k], []]))])
        by_input = g.opset >= (13 if kind == "ReduceSum" else 18)
        y = g.node(kind, [x, g.ints(2)], keepdims=0) if by_input else g.node(kind, [x], axes=[2], keepdims=0)
    moved = r.choice(["transposed", "reversed", "apart", "apart"])
    if moved == "transposed":
        return g.node(r.choice(["Add", "Sub", "Max"]), [y, g.node("Transpose", [y], perm=[1, 0])])
    if moved == "reversed":
        axis = r.randrange(2)
        return g.node(r.choice(["Add", "Sub"]), [y, g.node("Slice", [y, g.ints(-1), g.ints(-1000), g.ints(axis), g.ints(-1)])])
    shape = r.choice([[2, n // 2, n], [n // 2, 2, n], [n, 2, n // 2], [2, n // 2, n // 2, 2]])
    perm = list(range(len(shape)))
    r.shuffle(perm)
    z = g.node("Transpose", [g.node("Reshape", [y, g.ints(*shape)])], perm=perm)
    if r.random() < 0.5:
        return g.node(r.choice(["Relu", "Neg", "Sigmoid"]), [z])
    g.node("Mul", [z, g.leaf(F32, r.choice([[shape[p] for p in perm], [shape[perm[-1]]]]))])
