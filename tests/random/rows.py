"""Reductions, normalizations and what else runs along axes."""

import numpy as np

from oracle import Reject
from registry import op
from values import F16, F32, F64, FLOATS, I8, I32, I64, U8, as_f64, is_float, is_int


@op(4)
def reduce(g):
    o = g.r.choice(
        [
            "ReduceSum",
            "ReduceMean",
            "ReduceMax",
            "ReduceMin",
            "ReduceProd",
            "ReduceL1",
            "ReduceL2",
            "ReduceSumSquare",
            "ReduceLogSum",
            "ReduceLogSumExp",
            "ReduceSum",
            "ReduceMean",
        ]
    )
    x = g.pick(FLOATS + [I32, I64] + ([I8, U8] if o in ("ReduceMax", "ReduceMin") and g.opset >= 12 else []))
    a = g.v[x]
    r = g.r
    if a.size == 0 and o in ("ReduceMax", "ReduceMin", "ReduceMean") or is_int(a.dtype) and "Log" in o:
        raise Reject
    ax = r.sample(range(a.ndim), r.randint(0, a.ndim))
    ax = [i - a.ndim if r.random() < 0.4 else i for i in ax]
    kd = r.choice([None, 0, 1])
    if g.opset >= 18 or (o == "ReduceSum" and g.opset >= 13):
        if not ax:
            g.node(
                o,
                [x] + ([g.const(np.zeros(0, np.int64))] if r.random() < 0.4 else []),
                keepdims=kd,
                noop_with_empty_axes=r.choice([None, 0, 1]),
            )
        else:
            g.node(o, [x, g.ints(*ax)], keepdims=kd)
    else:
        g.node(o, [x], axes=ax or None, keepdims=kd)


@op(1)
def arg(g):
    x = g.pick([F32, F64, I32, I8, U8, F16], minrank=1)
    a = g.v[x]
    if a.size == 0 or is_float(a.dtype) and np.isnan(as_f64(a)).any():
        raise Reject
    g.node(
        g.r.choice(["ArgMax", "ArgMin"]),
        [x],
        axis=g.r.randrange(-a.ndim, a.ndim),
        keepdims=g.r.choice([None, 0, 1]),
        select_last_index=g.r.choice([None, 0, 1]) if g.opset >= 12 else None,
    )


@op(1)
def topk(g):
    x = g.pick([F32, F64, I64, I32], minrank=1)
    a = g.v[x]
    ax = g.r.randrange(a.ndim)
    if is_float(a.dtype) and np.isnan(a).any():
        raise Reject
    k = g.r.randint(0 if g.empty else 1, max(1, a.shape[ax]))
    if k > a.shape[ax]:
        raise Reject
    kk = g.ints(k) if g.r.random() < 0.7 else None
    if kk is None:
        kk = g.give(np.array([k], np.int64))
    g.node("TopK", [x, kk], nout=2, axis=ax, largest=g.r.choice([0, 1]), sorted=1)


@op(1)
def cumsum(g):
    x = g.pick([F32, F64, I64, I32], minrank=1)
    a = g.v[x]
    g.node(
        "CumSum",
        [x, g.const(np.array(g.r.randrange(-a.ndim, a.ndim), g.r.choice([np.int32, np.int64])))],
        exclusive=g.r.choice([None, 0, 1]),
        reverse=g.r.choice([None, 0, 1]),
    )


NORMALIZATIONS = [
    "BatchNormalization", "LayerNormalization", "InstanceNormalization", "GroupNormalization", "LRN", "RMSNormalization",
    "LpNormalization", "MeanVarianceNormalization",
]  # fmt: skip


@op(2)
def norm(g):
    r = g.r
    o = r.choice(NORMALIZATIONS)
    if o == "LayerNormalization" and g.opset < 17 or o == "GroupNormalization" and g.opset < 21 or o == "RMSNormalization" and g.opset < 23:
        raise Reject
    x = g.pick(
        [F32, F16, F64] if o in ("LayerNormalization", "RMSNormalization") else [F32],
        rank=4 if o == "MeanVarianceNormalization" else None,
        minrank=1 if "Layer" in o or "RMS" in o or o.startswith("Lp") else 3,
    )
    a = g.v[x]
    if 0 in a.shape:
        raise Reject
    P = lambda s: g.leaf(a.dtype, s)
    if o == "BatchNormalization":
        return bn(g, x, a.shape[1])
    if o in ("LayerNormalization", "RMSNormalization"):
        ax = r.randrange(a.ndim)
        s = list(a.shape[ax:])
        ins = [x, P(s if r.random() < 0.8 else [1] * len(s))]
        if o[0] == "L" and r.random() < 0.6:
            ins.append(P(s))
        return g.node(o, ins, axis=ax - a.ndim if r.random() < 0.5 else ax, epsilon=r.choice([None, 1e-2]))
    if o == "InstanceNormalization":
        return g.node(o, [x, P([a.shape[1]]), P([a.shape[1]])])
    if o == "GroupNormalization":
        c = a.shape[1]
        gr = r.choice([q for q in range(1, c + 1) if c % q == 0])
        return g.node(o, [x, P([c]), P([c])], num_groups=gr)
    if o == "LRN":
        return g.node(o, [x], size=r.choice([1, 3, 2, 5]))
    if o == "LpNormalization":
        return g.node(o, [x], axis=r.randrange(-a.ndim, a.ndim), p=r.choice([1, 2]))
    axes = r.choice([None, [0, 2, 3], [1], [0, 1, 2, 3], [2, 3]])
    if not (a.std(axis=tuple(axes or [0, 2, 3])) > 1e-3).all():  # 0 / 0 in one runtime, 0 / epsilon in another
        raise Reject
    g.node(o, [x], axes=axes)


def bn(g, z, c):
    d = g.v[z].dtype
    P = lambda a: g.const(a.astype(d)) if g.r.random() < 0.9 else None
    ins = [
        z,
        P(g.np.normal(1, 0.5, c)),
        P(g.np.normal(0, 1, c)),
        P(g.np.normal(0, 1, c)),
        P(g.np.random(c) + (0 if g.r.random() < 0.1 else 0.1)),
    ]
    if any(i is None for i in ins):
        raise Reject
    return g.node("BatchNormalization", ins, epsilon=g.r.choice([None, 1e-3, 0.0]))


@op(2)
def softmax(g):
    x = g.pick([F32, F64, F16], minrank=1)
    a = g.v[x]
    g.node(g.r.choice(["Softmax", "Softmax", "LogSoftmax", "Hardmax"]), [x], axis=g.r.choice([None, *range(-a.ndim, a.ndim)]))
