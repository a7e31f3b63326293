"""Parts from every kind of kernel that meet in one Concat, one scatter, one sum, and what reads that."""

import numpy as np
from onnx import TensorProto, numpy_helper

from layers import activation, conv, layer_norm, linear, recurrent, softmax, split, squeeze_axes, unsqueeze_axes, vector, weight
from registry import op
from values import BOOL, F16, F32, F64, I32, I64


def part(g, b, n, d):
    """[b, n, d] by a kernel of any kind."""
    r = g.r
    kind = r.choice(
        ["input", "product", "given product", "softmax", "norm", "gather", "pool", "conv", "pointwise", "transposed", "slice", "expand", "reduce", "cast", "attention", "recurrent", "cumsum", "pad", "const", "batched product", "line", "constant of shape"]
    )  # fmt: skip
    new = lambda *s: g.add_input(F32, list(s))  # noqa: E731
    if kind == "input":
        return new(b, n, d)
    if kind == "const":
        return g.const(g.data(F32, [b, n, d]))
    if kind == "product":
        return linear(g, new(b, n, r.choice([1, 3, 8, 17])), d)
    if kind == "given product":
        k = r.choice([2, 5, 16])
        return g.node("MatMul", [new(b, n, k), new(k, d)])
    if kind == "batched product":
        k = r.choice([2, 5, 16])
        return g.node("MatMul", [new(b, n, k), new(b, k, d)])
    if kind == "softmax":
        return softmax(g, new(b, n, d), r.choice([-1, 1, 2]))
    if kind == "norm":
        return layer_norm(g, new(b, n, d))
    if kind == "gather":
        return g.node("Gather", [weight(g, 9, d), g.give(g.np.integers(0, 9, (b, n)))], axis=0)
    if kind == "pool":
        return g.node(r.choice(["MaxPool", "AveragePool"]), [new(b, n, d)], kernel_shape=[3], pads=[1, 1])
    if kind == "conv":
        y = conv(g, g.add_input(F32, [b, 3, 1, n]), d, kernel=1)
        return g.node("Transpose", [squeeze_axes(g, y, 2)], perm=[0, 2, 1])
    if kind == "line":
        return conv(g, new(b, r.choice([1, 4]), d), n)
    if kind == "pointwise":
        return activation(g, g.node("Add", [new(b, n, d), vector(g, d)]))
    if kind == "transposed":
        return g.node("Transpose", [new(b, d, n)], perm=[0, 2, 1])
    if kind == "slice":
        return g.node("Slice", [new(b, n + 2, d), g.ints(1), g.ints(n + 1), g.ints(1)])
    if kind == "expand":
        return g.node("Expand", [new(b, 1, d), g.ints(1, n, 1)])
    if kind == "reduce":
        y = new(b, n, r.choice([2, 5]), d)
        return g.node("ReduceSum", [y, g.ints(2)], keepdims=0) if g.opset >= 13 else g.node("ReduceSum", [y], axes=[2], keepdims=0)
    if kind == "cast":
        return g.node("Cast", [g.add_input(r.choice([F16, F64, I32, I64, BOOL]), [b, n, d])], to=TensorProto.FLOAT)
    if kind == "attention":
        k = r.choice([2, 4])
        scores = g.node("MatMul", [new(b, n, k), g.node("Transpose", [new(b, 5, k)], perm=[0, 2, 1])])
        return g.node("MatMul", [softmax(g, scores), new(b, 5, d)])
    if kind == "recurrent":
        y = recurrent(g, g.add_input(F32, [n, b, 3]), d)
        return g.node("Transpose", [squeeze_axes(g, y, 1)], perm=[1, 0, 2])
    if kind == "cumsum":
        return g.node("CumSum", [new(b, n, d), g.const(np.array(1))])
    if kind == "pad":
        return g.node("Pad", [new(b, max(1, n - 1), d), g.ints(0, 0, 0, 0, n - max(1, n - 1), 0)])
    return g.node("ConstantOfShape", [g.ints(b, n, d)], value=numpy_helper.from_array(np.array([r.choice([0, 1, -0.0, 0.5])], np.float32)))


@op(8)
def parts_meet(g):
    r = g.r
    b, d = r.choice([1, 1, 2, 3]), r.choice([1, 2, 4, 7, 16, 18])
    lengths = [r.choice([1, 1, 2, 3, 5]) for _ in range(r.choice([2, 2, 3, 4]))]
    how = r.choice(["concat", "concat", "concat", "concat width", "sum", "scatter", "scatter elements", "stack", "where"])
    if how in ("sum", "stack", "where", "concat width"):
        lengths = [lengths[0]] * len(lengths)
    parts = [part(g, b, n, d) for n in lengths]
    if r.random() < 0.3:
        parts.append(r.choice(parts))
        lengths.append(g.v[parts[-1]].shape[1])
    if how == "concat":
        y = g.node("Concat", parts, axis=r.choice([1, -2]))
    elif how == "concat width":
        y = g.node("Concat", parts, axis=r.choice([2, -1]))
    elif how == "sum":
        y = g.node("Sum", parts) if r.random() < 0.5 else g.node("Add", parts[:2])
    elif how == "stack":
        y = g.node("Concat", [unsqueeze_axes(g, p, 1) for p in parts], axis=1)
        y = g.node("Reshape", [y, g.ints(b, -1, d)])
    elif how == "where":
        y = g.node("Where", [g.add_input(BOOL, [b, lengths[0], 1]), *parts[:2]])
    else:
        total = sum(lengths)
        y = g.add_input(F32, [b, total, d]) if r.random() < 0.5 else g.const(np.zeros((b, total, d), F32))
        at = 0
        for p, n in zip(parts, lengths):
            places = np.array([[[i, at + j] for j in range(n)] for i in range(b)], np.int64)
            if how == "scatter":
                y = g.node("ScatterND", [y, g.const(places), p])
            else:
                y = g.node("ScatterElements", [y, g.const(np.broadcast_to(places[:, :, 1:], (b, n, d)).copy()), p], axis=1)
            at += n
    # Readers: pointwise, a view, another kernel; often two.
    for _ in range(r.choice([1, 1, 2])):
        kind = r.choice(
            ["activation", "add", "mul", "transpose", "norm", "product", "slice", "split", "reduce", "reshape", "cast", "softmax"]
        )
        shape = g.v[y].shape
        if kind == "activation":
            activation(g, y)
        elif kind in ("add", "mul"):
            z = g.node("Add" if kind == "add" else "Mul", [y, g.leaf(F32, r.choice([[1], [shape[2]], [shape[1], 1], list(shape)]))])
            if r.random() < 0.5:
                activation(g, z)
        elif kind == "transpose":
            g.node("Mul", [g.node("Transpose", [y], perm=r.sample([0, 1, 2], 3)), vector(g, 1)])
        elif kind == "norm":
            layer_norm(g, activation(g, y))
        elif kind == "product":
            activation(g, linear(g, y, r.choice([1, 5, 16])))
        elif kind == "slice":
            g.node("Relu", [g.node("Slice", [y, g.ints(0), g.ints(max(1, shape[1] - 1)), g.ints(1)])])
        elif kind == "split" and shape[1] > 1:
            for z in split(g, y, [1, shape[1] - 1], 1):
                activation(g, z)
        elif kind == "reduce":
            g.node("ReduceMax", [activation(g, y), *([g.ints(1)] if g.opset >= 18 else [])], **({} if g.opset >= 18 else {"axes": [1]}))
        elif kind == "reshape":
            activation(g, g.node("Reshape", [y, g.ints(*r.choice([[-1], [b, -1], [-1, d], [0, -1, 1]]))]))
        elif kind == "cast":
            g.node("Cast", [y], to=r.choice([TensorProto.FLOAT16, TensorProto.DOUBLE]))
        elif kind == "softmax":
            softmax(g, y, r.choice([1, 2]))
