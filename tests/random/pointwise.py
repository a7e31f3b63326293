"""Pointwise operators: arithmetic, comparisons, casts."""

import numpy as np
from onnx import TensorProto

from graph import broadcasts
from oracle import Reject
from registry import op
from values import BOOL, FLOATS, INTS, NUMPY, ONNX, as_f64, is_float, is_int

UNARY = (
    "Abs Neg Exp Log Sqrt Sigmoid Tanh Relu Elu Selu Softplus Softsign HardSigmoid HardSwish Erf Floor Ceil Round Sign "
    "Reciprocal Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Gelu Mish Celu Identity ThresholdedRelu LeakyRelu "
    "Swish"
).split()


@op(4)
def unary(g):
    o = g.r.choice(UNARY)
    if g.r.random() < 0.3:
        o = g.r.choice(["Identity", "Relu", "Abs", "Neg", "Sigmoid", "Tanh", "Floor", "Sign"])
    x = g.pick(FLOATS if o not in ("Abs", "Neg", "Identity", "Sign", "Relu") else None)
    if g.opset < {"Celu": 12, "HardSwish": 14, "Mish": 18, "Gelu": 20, "Swish": 24}.get(o, 0):
        raise Reject
    a = {}
    if o in ("LeakyRelu", "Elu", "Celu", "ThresholdedRelu") and g.r.random() < 0.6:
        a["alpha"] = g.r.choice([0.1, 0.5, 1.0, -0.5, 2.0])
    if o == "HardSigmoid" and g.r.random() < 0.6:
        a = dict(alpha=1 / 6, beta=0.5)
    if o == "Gelu":
        a["approximate"] = g.r.choice(["none", "tanh"])
    g.node(o, [x], **a)


@op(6)
def binary(g):
    o = g.r.choice(["Add", "Sub", "Mul", "Div", "Add", "Mul", "Min", "Max", "Pow", "Mod", "Sum", "Mean", "PRelu"])
    x = g.pick(FLOATS + INTS)
    d = g.v[x].dtype
    if o in ("Sum", "Mean"):
        return g.node(o, [x] + [g.partner(x) for _ in range(g.r.choice([0, 1, 2]))])
    y = g.partner(x)
    if o == "Div" and is_int(d) and (g.v[y] == 0).any():
        raise Reject
    a = {}
    if o == "Mod":
        if g.opset < 10:
            raise Reject
        if is_float(d):
            a["fmod"] = 1
        elif g.r.random() < 0.4:
            a["fmod"] = 1
        if is_int(d) and (g.v[y] == 0).any():
            raise Reject
    if o == "Pow" and is_int(d):
        raise Reject
    if g.r.random() < 0.3 and o != "PRelu":
        x, y = y, x
    if o in ("Div", "Mod") and is_int(d) and (g.v[y] == 0).any():
        raise Reject
    g.node(o, [x, y], **a)


@op(2)
def neutral(g):
    """operations that do nothing, or nearly"""
    x = g.pick(FLOATS + INTS)
    a = g.v[x]
    r = g.r
    o = r.choice(["Add", "Sub", "Mul", "Div", "Pow"])
    k = {"Add": r.choice([0.0, -0.0]), "Sub": r.choice([0.0, -0.0]), "Mul": 1, "Div": 1, "Pow": r.choice([1, 2, 0.5, 3, -1, 0])}[o]
    if o == "Pow" and is_int(a.dtype):
        raise Reject
    s = r.choice([[], [1], [1] * a.ndim, list(a.shape), [1] * min(5, a.ndim + 1)])
    c = g.const(np.full(s, k).astype(a.dtype))
    g.node(o, [x, c] if o in ("Sub", "Div", "Pow") or r.random() < 0.5 else [c, x])


@op(2)
def comparison(g):
    o = g.r.choice(["Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"])
    x = g.pick(FLOATS + INTS)
    y = g.partner(x)
    if o.endswith("OrEqual") and g.opset < 12:
        raise Reject
    g.node(o, [x, y])


@op(1)
def logic(g):
    o = g.r.choice(["And", "Or", "Xor", "Not"])
    x = g.pick([BOOL])
    g.node(o, [x] if o == "Not" else [x, g.partner(x)])


@op(1)
def bits(g):
    o = g.r.choice(["BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift"])
    if o == "BitShift":
        x = g.pick([d for d in INTS if d.kind == "u"])
        y = g.const(g.np.integers(0, 7, g.v[x].shape).astype(g.v[x].dtype))
        return g.node(o, [x, y], direction=g.r.choice(["LEFT", "RIGHT"]))
    if g.opset < 18:
        raise Reject
    x = g.pick(INTS)
    g.node(o, [x] if o == "BitwiseNot" else [x, g.partner(x)])


@op(1)
def predicates(g):
    x = g.pick(FLOATS)
    if g.r.random() < 0.5:
        g.node("IsNaN", [x])
    else:
        g.node("IsInf", [x], detect_negative=g.r.choice([None, 0, 1]), detect_positive=g.r.choice([None, 0, 1]))


@op(2)
def where(g):
    x = g.pick()
    y = g.partner(x)
    if not broadcasts(g.v[x].shape, g.v[y].shape):
        raise Reject
    a = np.broadcast_shapes(g.v[x].shape, g.v[y].shape)
    s = [1 if g.r.random() < 0.3 else d for d in a][g.r.randrange(len(a) + 1) :]
    c = g.pick([BOOL], pred=lambda b: broadcasts(a, b.shape)) if g.r.random() < 0.5 else g.leaf(BOOL, s)
    g.node("Where", [c, x, y])


@op(4)
def cast(g):
    if g.r.random() < 0.15:  # the ends of an integer type
        info = np.iinfo(g.r.choice(INTS))
        ends = np.array([info.min, info.max, info.max - 1, 0, 1, info.max // 2 + 1], info.dtype)
        x = g.r.choice([g.give, g.const])(g.np.choice(ends, g.shape()))
    else:
        x = g.pick()
    a = g.v[x]
    to = g.r.choice(
        [
            TensorProto.FLOAT,
            TensorProto.FLOAT,
            TensorProto.DOUBLE,
            TensorProto.FLOAT16,
            TensorProto.INT32,
            TensorProto.INT64,
            TensorProto.INT8,
            TensorProto.UINT8,
            TensorProto.BOOL,
            TensorProto.INT16,
            TensorProto.BFLOAT16,
            TensorProto.UINT32,
            TensorProto.UINT64,
            TensorProto.UINT16,
        ]
    )
    if is_float(a.dtype) and to not in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BOOL, TensorProto.BFLOAT16):
        b = as_f64(a)
        ii = np.iinfo(NUMPY[to])
        if b.size and not (
            np.isfinite(b).all() and b.min() > ii.min - 0.5 and b.max() < ii.max + 0.5 and (NUMPY[to].kind == "i" or b.min() >= 0)
        ):
            raise Reject
    if to == TensorProto.BFLOAT16 and g.opset < 13:
        raise Reject
    y = g.node("Cast", [x], to=to)
    if g.r.random() < 0.4:
        (
            g.node("Cast", [y], to=ONNX[a.dtype])
            if not (is_float(NUMPY[to]) and is_int(a.dtype)) or np.isfinite(as_f64(g.v[y])).all() and (np.abs(as_f64(g.v[y])) < 100).all()
            else None
        )


@op(2)
def clip(g):
    x = g.pick(FLOATS + INTS)
    d = g.v[x].dtype
    lo = g.const(np.array(g.r.choice([-1, 0, 0, 1, 3, -3] if d.kind != "u" else [0, 1, 2]), d)) if g.r.random() < 0.7 else ""
    hi = g.const(np.array(g.r.choice([6, 1, 0, 2, 3] if d.kind != "u" else [3, 6, 9]), d)) if g.r.random() < 0.7 else ""
    y = g.node("Clip", [x, lo, hi])
    if g.r.random() < 0.3:
        g.node("Relu", [y]) if is_float(d) else None
