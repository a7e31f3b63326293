"""Products, convolutions, pools, recurrent networks."""

import numpy as np

from graph import broadcasts
from oracle import Reject
from registry import op
from rows import bn
from values import F16, F32, F64, FLOATS, I32, I64, is_float


@op(5)
def matmul(g):
    x = g.pick(FLOATS[:3] + [I32, I64], minrank=1)
    a = g.v[x]
    r = g.r
    k = a.shape[-1]
    n = g.dim()
    if r.random() < 0.3:
        y = g.pick(
            [a.dtype], pred=lambda b: b.ndim >= 1 and b.shape[-2 if b.ndim > 1 else 0] == k and broadcasts(a.shape[:-2], b.shape[:-2])
        )
    else:
        s = r.choice([[k], [k, n], [k, n], [k, n], [1, k, n], list(a.shape[:-2]) + [k, n]])
        y = g.leaf(a.dtype, s)
    z = g.node("MatMul", [x, y])
    t = r.random()
    s = g.v[z].shape
    if t < 0.35 and s:
        b = g.leaf(a.dtype, r.choice([[s[-1]], [1], [], [1, s[-1]], list(s), list(s[-2:-1]) + [1]]))
        z = g.node("Add", [z, b] if r.random() < 0.7 else [b, z])
        if is_float(a.dtype) and r.random() < 0.4:
            g.node(r.choice(["Relu", "Sigmoid", "Tanh"]), [z])
    elif t < 0.45 and len(s) == 2 and a.dtype == F32 and s[1] > 0 and g.opset >= 9:
        bn(g, z, s[1])


@op(3)
def gemm(g):
    r = g.r
    x = g.pick(FLOATS[:2] + [F16], rank=2)
    a = g.v[x]
    ta, tb = r.choice([0, 0, 1]), r.choice([0, 0, 1])
    m, k = a.shape[::-1] if ta else a.shape
    n = g.dim()
    y = (
        g.leaf(a.dtype, [n, k] if tb else [k, n])
        if r.random() < 0.7
        else g.pick([a.dtype], rank=2, pred=lambda b: b.shape[1 if tb else 0] == k)
    )
    b = g.v[y]
    n = b.shape[0 if tb else 1]
    if r.random() < 0.3:  # a transposed operand
        y = g.node("Transpose", [y], perm=[1, 0])
        tb = 1 - tb
    c = g.leaf(a.dtype, r.choice([[n], [1, n], [m, n], [m, 1], [1], []])) if r.random() < 0.7 else ""
    z = g.node(
        "Gemm", [x, y, c], transA=ta or None, transB=tb or None, alpha=r.choice([None, 0.5, 2.0, 0.0]), beta=r.choice([None, 0.5, 0.0])
    )
    if r.random() < 0.3 and a.dtype == F32 and n:
        bn(g, z, n)


@op(1)
def stored_product(g):
    """Of 16-bit operands, and of a transposed A, at the edges of tiles, panels and blocks."""
    r = g.r
    t = r.choice([F16, F16, F32])
    m, k, n = r.choice([1, 5, 17]), r.choice([2, 16, 70, 70, 1030]), r.choice([1, 15, 16, 50, 70])
    constant = r.random() < 0.6
    matrix = lambda shape: g.const((g.np.integers(-8, 9, shape) / 16).astype(t)) if constant else g.leaf(t, shape)
    turned = t == F32 or r.random() < 0.3
    y = g.node("Gemm", [g.leaf(t, [k, m] if turned else [m, k]), matrix([k, n])], transA=int(turned) or None)
    if r.random() < 0.5:
        y = g.node("Add", [y, g.leaf(t, r.choice([[n], [1], [m, n]]))])
    if r.random() < 0.5:
        g.node(r.choice(["Relu", "Sigmoid"]), [y])


@op(4)
def conv(g):
    r = g.r
    nd = r.choice([1, 2, 2, 2, 3])
    x = None
    if r.random() < 0.5:
        try:
            x = g.pick([F32, F32, F64, F16], rank=nd + 2)
        except Reject:
            pass
    if x is None:
        x = g.add_input(F32, [r.choice([1, 2]), r.choice([1, 2, 3, 4, 8]), *[r.choice([1, 3, 4, 5, 7, 8]) for _ in range(nd)]])
    a = g.v[x]
    c = a.shape[1]
    if 0 in a.shape:
        raise Reject
    grp = r.choice([1, 1, c, 2 if c % 2 == 0 else 1])
    m = grp * r.choice([1, 2, 3, 4])
    k = [r.choice([1, 1, 2, 3, 3]) for _ in range(nd)]
    A = dict(strides=[r.choice([1, 1, 2]) for _ in k], dilations=[r.choice([1, 1, 1, 2]) for _ in k], group=grp if grp > 1 else None)
    if r.random() < 0.5:
        A["pads"] = [r.choice([0, 0, 1, 2]) for _ in range(2 * nd)]
    elif r.random() < 0.5:
        A["auto_pad"] = r.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
        A["dilations"] = None
    for q in list(A):
        if A[q] is not None and r.random() < 0.2 and q != "group":
            A[q] = None
    tr = r.random() < 0.25
    w = (
        g.leaf(a.dtype, [c, m // grp] + k)
        if tr
        else (g.const(g.data(a.dtype, (m, c // grp, *k))) if r.random() < 0.8 else g.add_input(a.dtype, [m, c // grp] + k))
    )
    if tr:
        A.pop("auto_pad", None)
        A["output_padding"] = [r.choice([0, s - 1]) for s in (A.get("strides") or [1] * nd)] if r.random() < 0.4 else None
    y = g.node("ConvTranspose" if tr else "Conv", [x, w] + ([g.leaf(a.dtype, [m])] if r.random() < 0.5 else []), **A)
    for _ in range(r.choice([0, 1, 1, 2])):
        t = r.random()
        s = [m] + [1] * nd
        if t < 0.3:
            y = bn(g, y, m)
        elif t < 0.6:
            y = g.node(
                r.choice(["Mul", "Add", "Sub", "Div"]),
                [y, g.const((g.np.integers(1, 9, r.choice([s, [1] + s, [], [1]])) / 4).astype(a.dtype))],
            )
        elif t < 0.8:
            y = g.node(r.choice(["Relu", "Sigmoid", "LeakyRelu"] + (["HardSwish"] if g.opset >= 14 else [])), [y])
        elif t < 0.9:
            y = g.node("Add", [y, g.leaf(a.dtype, list(g.v[y].shape))])


@op(2)
def pool(g):
    r = g.r
    nd = r.choice([1, 2, 2, 3])
    x = g.pick([F32, F64, F16], rank=nd + 2)
    a = g.v[x]
    if 0 in a.shape or a.dtype != F32 and r.random() < 0.7:
        raise Reject
    o = r.choice(["MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool"])
    if o.startswith("Global"):
        if a.dtype != F32:
            raise Reject
        return g.node(o, [x])
    k = [r.choice([1, 2, 3]) for _ in range(nd)]
    A = dict(kernel_shape=k, strides=[r.choice([1, 2]) for _ in k])
    if r.random() < 0.5:
        A["pads"] = [r.randint(0, (kk - 1)) for kk in k + k]
    if o != "LpPool" or g.opset >= 18:
        A["ceil_mode"] = r.choice([None, 0, 1])
    if o == "AveragePool":
        A["count_include_pad"] = r.choice([None, 1])
    if o == "LpPool":
        A["p"] = r.choice([1, 2, 3])
    if o == "MaxPool" and r.random() < 0.4:
        A["dilations"] = [r.choice([1, 2]) for _ in k]
    g.node(o, [x], nout=2 if o == "MaxPool" and r.random() < 0.3 else 1, **A)


@op(1.5)
def einsum(g):
    r = g.r
    if g.opset < 12:
        raise Reject
    e = r.choice(
        [
            "ij,jk->ik",
            "bij,bjk->bik",
            "ij->ji",
            "ii->i",
            "ij,ij->",
            "i,j->ij",
            "bhqd,bhkd->bhqk",
            "...ij,...jk->...ik",
            "ij,kj->ik",
            "bij->j",
            "ij,j->i",
            "abc,cb->ac",
        ]
    )
    L = {c: g.dim() for c in "abcdefhijkq"}
    ins = []
    for t in e.split("->")[0].split(","):
        s = [L[c] for c in t.replace("...", "b" if "..." in t else "")]
        ins.append(g.pick([F32], shape=s) if r.random() < 0.3 else g.leaf(F32, s))
    g.node("Einsum", ins, equation=e)


@op(1)
def rnn(g):
    r = g.r
    S, B, I, H = r.choice([1, 3, 5]), r.choice([1, 2]), r.choice([2, 3]), r.choice([2, 4])
    o, k = r.choice([("LSTM", 4), ("GRU", 3), ("RNN", 1)])
    d = r.choice(["forward", "reverse", "bidirectional"])
    D = 2 if d[0] == "b" else 1
    c = lambda *s: g.const((g.np.normal(0, 0.5, s)).astype(np.float32))
    x = g.pick([F32], shape=[S, B, I]) if r.random() < 0.4 else g.add_input(F32, [S, B, I])
    if not np.isfinite(g.v[x]).all():
        raise Reject
    ins = [
        x,
        c(D, k * H, I),
        c(D, k * H, H),
        c(D, 2 * k * H) if r.random() < 0.6 else "",
        g.const(g.np.integers(1, S + 1, B).astype(np.int32)) if r.random() < 0.3 else "",
        c(D, B, H) if r.random() < 0.4 else "",
    ]
    g.node(
        o,
        ins,
        nout=r.choice([[1, 1], [1, 0], [0, 1]]),
        hidden_size=H,
        direction=d,
        linear_before_reset=r.choice([None, 1]) if o == "GRU" else None,
    )
