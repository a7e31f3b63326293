"""Operators that move elements: views, gathers, scatters, pads."""

import numpy as np
from onnx import TensorProto

from oracle import Reject
from registry import op
from values import BOOL, is_float


@op(4)
def transpose(g):
    x = g.pick()
    n = g.v[x].ndim
    p = list(range(n))
    g.r.shuffle(p)
    y = g.node("Transpose", [x], perm=p if p and g.r.random() < 0.85 else None)
    if g.r.random() < 0.4:
        p = list(range(n))
        g.r.shuffle(p)
        g.node("Transpose", [y], perm=p or None)


def factor(g, n, rank):
    s = []
    for _ in range(rank - 1):
        ds = [d for d in range(1, n + 1) if n % d == 0] if n else [0, 1, 2, 3]
        d = g.r.choice(ds)
        s.append(d)
        n = n // d if d and n else n
    s.append(n)
    g.r.shuffle(s)
    return s


@op(5)
def reshape(g):
    x = g.pick()
    a = g.v[x]
    r = g.r
    if a.size == 0:
        s = [0 if r.random() < 0.5 else g.dim() for _ in range(r.randrange(1, 4))]
        if 0 not in s:
            s[0] = 0
        if g.opset < 14:
            raise Reject
        return g.node("Reshape", [x, g.ints(*s)], allowzero=1)
    s = factor(g, a.size, r.randrange(1, 5)) if r.random() < 0.95 else ([] if a.size == 1 else [a.size])
    t = list(s)
    for i in range(min(len(t), a.ndim)):
        if t[i] == a.shape[i] and r.random() < 0.6:
            t[i] = 0
    if t and r.random() < 0.6:
        i = r.randrange(len(t))
        t[i] = -1
    y = g.node("Reshape", [x, g.ints(*t)])
    if r.random() < 0.3:
        y = (
            g.node("Reshape", [y, g.ints(*a.shape)])
            if r.random() < 0.5
            else g.node("Reshape", [y, g.listed(*factor(g, a.size, r.randrange(1, 4)))])
        )


@op(1)
def reshape_by_shape(g):
    x = g.pick()
    a = g.v[x]
    r = g.r
    if a.ndim < 2 or a.size == 0:
        raise Reject
    s = g.node("Shape", [x])
    i = r.randrange(a.ndim)
    d = g.node("Gather", [s, g.ints(i) if r.random() < 0.5 else g.const(np.array(i))], axis=0)
    if g.v[d].ndim == 0:
        d = g.node("Unsqueeze", [d, g.ints(0)]) if g.opset >= 13 else g.node("Unsqueeze", [d], axes=[0])
    if r.random() < 0.4:
        k = g.ints(r.choice([1, 2]))
        d2 = g.node("Mul", [d, k])
        d = g.node("Div", [d2, k])
    t = g.node("Concat", [d, g.ints(-1)] if r.random() < 0.5 else [g.ints(-1), d], axis=0)
    if r.random() < 0.3:
        t = g.node("Cast", [g.node("Cast", [t], to=r.choice([TensorProto.INT32, TensorProto.FLOAT]))], to=TensorProto.INT64)
    g.node("Reshape", [x, t])


@op(1)
def flatten(g):
    x = g.pick()
    n = g.v[x].ndim
    g.node("Flatten", [x], axis=g.r.randint(-n, n))


@op(3)
def squeeze(g):
    x = g.pick()
    a = g.v[x]
    r = g.r
    if r.random() < 0.5:
        ax = [i for i, d in enumerate(a.shape) if d == 1]
        if not ax:
            raise Reject
        ax = r.sample(ax, r.randint(1, len(ax)))
        ax = [i - a.ndim if r.random() < 0.4 else i for i in ax]
        if r.random() < 0.2:
            return g.node("Squeeze", [x])
        return g.node("Squeeze", [x, g.ints(*ax)]) if g.opset >= 13 else g.node("Squeeze", [x], axes=ax)
    k = r.choice([1, 1, 2])
    n = a.ndim + k
    if n > 6:
        raise Reject
    ax = r.sample(range(n), k)
    ax = [i - n if r.random() < 0.4 else i for i in ax]
    y = g.node("Unsqueeze", [x, g.ints(*ax)]) if g.opset >= 13 else g.node("Unsqueeze", [x], axes=ax)
    if r.random() < 0.3:
        g.node("Squeeze", [y, g.ints(*ax)]) if g.opset >= 13 else g.node("Squeeze", [y], axes=ax)


@op(4)
def concat(g):
    x = g.pick(minrank=1)
    a = g.v[x]
    ax = g.r.randrange(a.ndim)
    xs = [x]
    for _ in range(g.r.choice([0, 1, 1, 2])):
        f = lambda b: b.dtype == a.dtype and b.ndim == a.ndim and all(p == q for i, (p, q) in enumerate(zip(a.shape, b.shape)) if i != ax)
        if g.r.random() < 0.5:
            xs.append(g.pick([a.dtype], pred=f))
        else:
            s = list(a.shape)
            s[ax] = g.dim()
            xs.append(g.leaf(a.dtype, s))
    g.r.shuffle(xs)
    g.node("Concat", xs, axis=ax - a.ndim if g.r.random() < 0.4 else ax)


@op(3)
def split(g):
    x = g.pick(minrank=1)
    a = g.v[x]
    ax = g.r.randrange(a.ndim)
    n = a.shape[ax]
    r = g.r
    k = r.choice([1, 2, 2, 3])
    cuts = sorted(r.randint(0, n) for _ in range(k - 1))
    parts = [b - c for b, c in zip(cuts + [n], [0] + cuts)]
    axis = ax - a.ndim if r.random() < 0.4 else ax
    if g.opset >= 18 and r.random() < 0.3:
        if k > n:
            raise Reject
        ys = g.node("Split", [x], nout=k, axis=axis, num_outputs=k)
    elif g.opset >= 13:
        ys = g.node("Split", [x, g.ints(*parts)], nout=k, axis=axis)
    else:
        ys = g.node("Split", [x], nout=k, axis=axis, split=parts)
    ys = [ys] if isinstance(ys, str) else ys
    if r.random() < 0.3 and g.v[ys[0]].size < 20000:
        g.node("Concat", ys, axis=axis)


@op(4)
def slice_(g):
    x = g.pick(minrank=1)
    a = g.v[x]
    r = g.r
    axes = r.sample(range(a.ndim), r.randint(1, a.ndim))
    S, E, T = [], [], []
    big = 2**63 - 1
    for i in axes:
        n = a.shape[i]
        st = r.choice([1, 1, 1, 2, -1, -1, -2, 3])
        if st > 0:
            s, e = r.choice([0, 0, 1, -1, -n, r.randint(-n - 1, n + 1)]), r.choice([n, big, n - 1, -1, r.randint(-n - 1, n + 1), 2**31 - 1])
        else:
            s, e = r.choice([n - 1, -1, n, r.randint(-n - 1, n + 1), big]), r.choice([-n - 1, -big - 1, 0, -big, r.randint(-n - 1, n)])
        S.append(s)
        E.append(e)
        T.append(st)
    ax = [i - a.ndim if r.random() < 0.4 else i for i in axes]
    dt = np.int64 if max(map(abs, S + E)) > 2**31 - 1 or r.random() < 0.7 else np.int32
    c = lambda l: g.const(np.array(l, dt))
    ins = [x, c(S), c(E), c(ax), c(T)]
    if all(t == 1 for t in T):
        ins = ins[:4]
    g.node("Slice", ins)


@op(3)
def gather(g):
    x = g.pick(minrank=1)
    a = g.v[x]
    r = g.r
    ax = r.randrange(a.ndim)
    n = a.shape[ax]
    if n == 0:
        raise Reject
    s = r.choice([[], [1], [2], [3], [2, 2], [1, 3]] + ([[0]] if g.empty else []))
    idx = np.asarray(g.np.integers(-n, n, s)).astype(r.choice([np.int64, np.int32]))
    i = g.const(idx) if r.random() < 0.6 else None
    if i is None:
        i = g.give(idx)
    g.node("Gather", [x, i], axis=ax - a.ndim if r.random() < 0.4 else ax)


def indexed(g):
    """(name, array) of a value that has an element and an axis."""
    x = g.pick(minrank=1)
    if g.v[x].size == 0:
        raise Reject
    return x, g.v[x]


@op(1)
def gather_elements(g):
    x, a = indexed(g)
    ax = g.r.randrange(a.ndim)
    n = a.shape[ax]
    s = [g.r.randint(1, d) for d in a.shape]
    s[ax] = g.r.choice([1, 2, n])
    g.node("GatherElements", [x, g.const(g.np.integers(-n, n, s))], axis=ax)


@op(1)
def gather_nd(g):
    x, a = indexed(g)
    r = g.r
    k = r.randint(1, a.ndim)
    rows = r.choice([1, 2, 3])
    idx = np.stack([g.np.integers(-a.shape[j], a.shape[j], rows) for j in range(k)], -1)
    g.node("GatherND", [x, g.const(idx.astype(np.int64))])


@op(1.5)
def scatter(g):
    x, a = indexed(g)
    r = g.r
    red = r.choice(["none", "add", "mul", "max", "min"]) if g.opset >= 18 and a.dtype != BOOL else ("none" if g.opset >= 16 else None)
    if r.random() < 0.5:
        ax = r.randrange(a.ndim)
        s = [r.randint(1, d) for d in a.shape]
        n = a.shape[ax]
        if red in ("none", None):
            s[ax] = r.randint(1, n)
            idx = np.argsort(g.np.random([s[i] if i == ax else s[i] for i in range(a.ndim)][:ax] + [n] + s[ax + 1 :]), axis=ax)
            idx = np.take(idx, range(s[ax]), axis=ax)
        else:
            idx = g.np.integers(-n, n, s)
        u = g.leaf(a.dtype, list(idx.shape))
        return g.node("ScatterElements", [x, g.const(idx.astype(np.int64)), u], axis=ax, reduction=red)
    k = r.randint(1, a.ndim)
    lead = a.shape[:k]
    n = int(np.prod(lead))
    rows = r.randint(1, min(n, 4))
    flat = g.np.permutation(n)[:rows]
    idx = np.stack(np.unravel_index(flat, lead), -1).astype(np.int64)
    if r.random() < 0.3:
        idx = idx - np.array(lead)
    u = g.leaf(a.dtype, [rows] + list(a.shape[k:]))
    g.node("ScatterND", [x, g.const(idx), u], reduction=red)


@op(3)
def pad(g):
    x = g.pick(minrank=1)
    a = g.v[x]
    r = g.r
    if a.dtype == BOOL and g.opset < 13:
        raise Reject
    mode = r.choice(["constant", "constant", "constant", "edge", "reflect"] + (["wrap"] if g.opset >= 19 else []))
    if a.size == 0:
        raise Reject
    hi = lambda d: r.choice([0, 0, 1, 2]) if mode in ("constant", "edge") else min(r.choice([0, 0, 1, 2]), d - 1)
    b = [hi(d) for d in a.shape]
    e = [hi(d) for d in a.shape]
    if r.random() < 0.25:  # by wrapping, what the cut leaves goes round (ONNX Runtime; ONNX does not say it)
        i = r.randrange(a.ndim)
        if a.shape[i] > 1:
            b[i] = -1
    if r.random() < 0.15:
        b, e = [0] * a.ndim, [0] * a.ndim
    ins = [x, g.listed(*(b + e))]
    if mode == "constant" and r.random() < 0.6:
        ins.append(g.const(np.array(r.choice([0, 1, 5, 2] + ([float("-inf"), 0.5, -0.0] if is_float(a.dtype) else [])), a.dtype)))
    if g.opset >= 18 and r.random() < 0.3:
        ax = r.sample(range(a.ndim), r.randint(1, a.ndim))
        ins[1] = g.listed(*([b[i] for i in ax] + [e[i] for i in ax]))
        ins = (ins + [""])[:3] + [g.ints(*[i - a.ndim if r.random() < 0.4 else i for i in ax])]
    g.node("Pad", ins, mode=mode)


@op(2)
def expand(g):
    x = g.pick()
    a = g.v[x]
    r = g.r
    s = [g.dim() if d == 1 else r.choice([1, d]) for d in a.shape]
    if r.random() < 0.4:
        s = [r.choice([1, 2, 3])] + s
    s = s[r.choice([0, 0, 0, 1]) :]
    if len(s) > 5 or not s:
        raise Reject
    g.node("Expand", [x, g.listed(*s)])


@op(1)
def tile(g):
    x = g.pick(minrank=1)
    a = g.v[x]
    g.node("Tile", [x, g.listed(*[g.r.choice([1, 1, 2, 3] + ([0] if g.empty else [])) for _ in a.shape])])
