"""Shapes, fills, resizes and operators that stand alone."""

import numpy as np
from onnx import TensorProto, numpy_helper

from oracle import Reject
from registry import op
from values import BOOL, F16, F32, F64, FLOATS, I8, I32, I64, INTS, is_float


@op(2)
def shape(g):
    x = g.pick()
    n = g.v[x].ndim
    if g.r.random() < 0.3:
        return g.node("Size", [x])
    g.node(
        "Shape",
        [x],
        start=g.r.choice([None, g.r.randint(-n - 1, n + 1)]) if g.opset >= 15 else None,
        end=g.r.choice([None, g.r.randint(-n - 1, n + 1)]) if g.opset >= 15 else None,
    )


@op(1)
def fill(g):
    r = g.r
    s = g.shape(r.choice([0, 1, 2, 3]), 500)
    v = numpy_helper.from_array(g.data(r.choice(FLOATS[:3] + INTS + [BOOL]), (1,)))
    src = g.ints(*s) if r.random() < 0.5 else g.node("Shape", [g.pick(pred=lambda a: a.ndim >= 1)])
    if 0 == len(s):
        src = g.const(np.zeros(0, np.int64))
    g.node("ConstantOfShape", [src], value=v if r.random() < 0.8 else None)


@op(1)
def range_(g):
    r = g.r
    d = r.choice([np.float32, np.int64, np.int32, np.float64, np.int16])
    a, b, c = r.choice([(0, 5, 1), (3, -3, -2), (0, 0, 1), (1, 8, 3), (5, 1, 1), (0, 1, 0.25)])
    if d not in (np.float32, np.float64) and c == 0.25:
        raise Reject

    def sc(v):
        if r.random() < 0.7:
            return g.const(np.array(v, d))
        return g.give(np.array(v, d))

    g.node("Range", [sc(a), sc(b), sc(c)])


MISCELLANEOUS = [
    "Trilu", "EyeLike", "OneHot", "NonZero", "Compress", "DepthToSpace", "SpaceToDepth", "Det", "ReverseSequence", "Unique",
    "CenterCropPad", "Dropout", "Identity", "CastLike",
]  # fmt: skip


@op(1)
def misc(g):
    r = g.r
    o = r.choice(MISCELLANEOUS)
    if o == "Trilu":
        if g.opset < 14:
            raise Reject
        return g.node(
            o,
            [g.pick([F32, F64, I64], minrank=2)] + ([g.const(np.array(r.randint(-3, 3)))] if r.random() < 0.6 else []),
            upper=r.choice([None, 0, 1]),
        )
    if o == "EyeLike":
        return g.node(
            o, [g.pick([F32, I64, I32], rank=2)], k=r.choice([None, 1, -1]), dtype=r.choice([None, TensorProto.INT64, TensorProto.FLOAT])
        )
    if o == "OneHot":
        i = g.const(g.np.integers(-4, 4, r.choice([[3], [2, 2], []])))
        n = g.v[i].ndim
        return g.node(
            o, [i, g.const(np.array(r.choice([4, 5]))), g.const(np.array([0, 1], np.float32))], axis=r.choice([None, *range(-n - 1, n + 1)])
        )
    if o == "NonZero":
        return g.node(o, [g.pick([F32, I64, I32, BOOL], minrank=1)])
    if o == "Compress":
        x = g.pick([F32, I64, BOOL], minrank=1)
        a = g.v[x]
        ax = r.randrange(a.ndim)
        c = g.leaf(BOOL, [a.shape[ax] if r.random() < 0.7 else max(0, a.shape[ax] - 1)])
        return g.node(o, [x, c], axis=ax)
    if o == "DepthToSpace":
        x = g.pick([F32], rank=4, pred=lambda a: a.shape[1] % 4 == 0 and a.shape[1])
        return g.node(o, [x], blocksize=2, mode=r.choice([None, "CRD", "DCR"]))
    if o == "SpaceToDepth":
        x = g.pick([F32], rank=4, pred=lambda a: a.shape[2] % 2 == 0 and a.shape[3] % 2 == 0 and a.size)
        return g.node(o, [x], blocksize=2)
    if o == "Det":
        return g.node(o, [g.pick([F32], minrank=2, pred=lambda a: a.shape[-1] == a.shape[-2] and a.size > 0)])
    if o == "ReverseSequence":
        x = g.pick([F32, I64], minrank=2, pred=lambda a: a.size > 0)
        a = g.v[x]
        b = r.choice([0, 1])
        return g.node(o, [x, g.const(g.np.integers(1, a.shape[1 - b] + 1, a.shape[b]))], batch_axis=b, time_axis=1 - b)
    if o == "Unique":
        x = g.pick([F32, I64, I8], minrank=1, pred=lambda a: a.size > 0)
        a = g.v[x]
        if is_float(a.dtype) and np.isnan(a).any():
            raise Reject
        return g.node(o, [x], nout=4, axis=r.choice([None, 0]), sorted=r.choice([None, 0, 1]))
    if o == "CenterCropPad":
        if g.opset < 18:
            raise Reject
        x = g.pick([F32, I64], minrank=1)
        a = g.v[x]
        k = r.randrange(a.ndim)
        return g.node(o, [x, g.ints(r.choice([1, 2, 3, 5]))], axes=[k])
    if o == "Dropout":
        x = g.pick([F32])
        return g.node(
            o,
            [x] + ([g.const(np.array(0.5, np.float32)), g.const(np.array(False))] if g.opset >= 12 and r.random() < 0.5 else []),
            nout=r.choice([1, 1, 2]) if g.opset >= 12 else 1,  # the mask of inference was all false once
        )
    if o == "CastLike":
        if g.opset < 15:
            raise Reject
        return g.node(
            o,
            [
                g.pick(
                    [F32, F64, I32],
                    pred=lambda a: not is_float(a.dtype) or a.size == 0 or np.abs(np.nan_to_num(a, nan=1e9)).max() < 100,
                ),
                g.pick([F32, F64, I64, F16, I32]),
            ],
        )
    g.node("Identity", [g.pick()])


@op(1.5)
def resize(g):
    r = g.r
    x = g.pick([F32], rank=r.choice([3, 4]))
    a = g.v[x]
    if 0 in a.shape:
        raise Reject
    mode = r.choice(["nearest", "nearest", "linear", "cubic"])
    ctm = r.choice(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
    if mode == "cubic" and a.ndim != 4:
        raise Reject
    # Binary fractions, and those whose products with a length are whole only when rounded to f32.
    s = [1.0, 1.0] + [r.choice([0.5, 1.0, 1.5, 2.0, 0.75, 3.0, 0.7, 1.7, 0.6, 2.3, 1.1]) for _ in a.shape[2:]]
    A = dict(
        mode=mode,
        coordinate_transformation_mode=ctm,
        nearest_mode=r.choice([None, "floor", "ceil", "round_prefer_ceil"]) if mode == "nearest" else None,
    )
    if r.random() < 0.6:
        ins = (
            [x, "", g.const(np.array(s, np.float32))]
            if g.opset >= 13
            else [x, g.const(np.zeros(0, np.float32)), g.const(np.array(s, np.float32))]
        )
    else:
        ins = [
            x,
            "" if g.opset >= 13 else g.const(np.zeros(0, np.float32)),
            "" if g.opset >= 13 else g.const(np.zeros(0, np.float32)),
            g.ints(*a.shape[:2], *[r.randint(1, 2 * d + 1) for d in a.shape[2:]]),
        ]
    if mode == "cubic":
        A["exclude_outside"] = r.choice([None, 1])
        A["cubic_coeff_a"] = r.choice([None, -0.5])
    if g.opset >= 18 and r.random() < 0.2 and mode != "nearest":
        A["antialias"] = 1
    g.node("Resize", ins, **A)
