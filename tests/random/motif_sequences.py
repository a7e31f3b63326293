"""Motifs of transformers and recurrent networks, and products at every edge of a tile."""

import numpy as np

from layers import (
    activation,
    batch_norm,
    layer_norm,
    linear,
    recurrent,
    softmax,
    split,
    squeeze_axes,
    tokens,
    unsqueeze_axes,
    vector,
    weight,
)
from oracle import Reject
from registry import op
from values import F32


@op(7)
def strategies_of_products(g):
    """Rows, columns and inner sizes at and beside the edges of tiles; transposed, batched, given and constant operands."""
    r = g.r
    m, n, k = (r.choice([1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 31, 47, 48, 49, 64, 65, 96]) for _ in range(3))
    if r.random() < 0.05:
        m, n, k = r.choice([1, 3]), r.choice([5, 16]), r.choice([1024, 1025, 1500])
    while m * n > 6000:
        m = max(1, m // 2)
    lead = r.choice([[], [], [1], [2], [3], [2, 2], [1, 2]])
    x = g.add_input(F32, lead + [m, k])
    if r.random() < 0.25:
        x = g.node("Transpose", [g.add_input(F32, lead + [k, m])], perm=list(range(len(lead))) + [len(lead) + 1, len(lead)])
    kind = r.choice(["constant", "constant", "given", "batched", "transposed constant", "transposed given", "gemm", "gemm"])
    if kind == "gemm":
        ta, tb = r.choice([0, 1]), r.choice([0, 1])
        a = g.add_input(F32, [k, m] if ta else [m, k])
        b = weight(g, *([n, k] if tb else [k, n])) if r.random() < 0.7 else g.add_input(F32, [n, k] if tb else [k, n])
        c = [g.leaf(F32, r.choice([[n], [1, n], [m, n], [m, 1], [1], []]))] if r.random() < 0.6 else []
        y = g.node("Gemm", [a, b, *c], transA=ta, transB=tb, alpha=r.choice([None, 0.5]), beta=r.choice([None, 0.5]))
    elif kind == "transposed constant":
        y = g.node("MatMul", [x, g.node("Transpose", [weight(g, n, k)], perm=[1, 0])])
    elif kind == "transposed given":
        y = g.node("MatMul", [x, g.node("Transpose", [g.add_input(F32, [n, k])], perm=[1, 0])])
    else:
        b = {
            "constant": lambda: weight(g, k, n),
            "given": lambda: g.add_input(F32, [k, n]),
            "batched": lambda: g.add_input(F32, lead + [k, n]),
        }[kind]()
        y = g.node("MatMul", [x, b])
    shape = list(g.v[y].shape)
    for _ in range(r.choice([0, 1, 2])):
        kind = r.choice(["activation", "bias", "residual", "row", "scalar", "reader", "view", "batch norm", "split"])
        if kind == "activation":
            y = activation(g, y)
        elif kind == "bias":
            y = g.node("Add", [y, vector(g, shape[-1])])
        elif kind == "residual":
            y = g.node("Add", [y, g.add_input(F32, shape)])
        elif kind == "row":
            y = g.node("Mul", [y, g.add_input(F32, [shape[-2], 1])])
        elif kind == "scalar":
            y = g.node("Div", [y, g.const(np.array(4, F32))])
        elif kind == "reader":
            softmax(g, y)
        elif kind == "view":
            g.node("Relu", [g.node("Reshape", [y, g.ints(-1)])])
        elif kind == "batch norm" and len(shape) == 2:
            y = batch_norm(g, y)
        elif kind == "split" and shape[-1] > 1:
            for z in split(g, y, [1, shape[-1] - 1], len(shape) - 1):
                activation(g, z)


@op(4)
def transformer_block(g):
    r = g.r
    heads, width = r.choice([1, 2, 4]), r.choice([1, 2, 4, 8])
    x = tokens(g, heads * width)
    b, length, total = g.v[x].shape
    y = layer_norm(g, x) if r.random() < 0.7 else x
    if r.random() < 0.5:  # one product, split
        qkv = linear(g, y, 3 * total)
        if r.random() < 0.5:
            qkv = g.node("Transpose", [g.node("Reshape", [qkv, g.ints(b, length, 3, heads, width)])], perm=[2, 0, 3, 1, 4])
            q, k, v = (g.node("Gather", [qkv, g.const(np.array(i))], axis=0) for i in range(3))
        else:
            q, k, v = (
                g.node("Transpose", [g.node("Reshape", [z, g.ints(0, 0, heads, width)])], perm=[0, 2, 1, 3])
                for z in split(g, qkv, [total] * 3, 2)
            )
    else:
        source = tokens(g, total) if r.random() < 0.3 else y
        if g.v[source].shape[0] != b:
            raise Reject
        q, k, v = (
            g.node("Transpose", [g.node("Reshape", [linear(g, z, total), g.ints(0, 0, heads, width)])], perm=[0, 2, 1, 3])
            for z in (y, source, source)
        )
    if r.random() < 0.25:  # a cache of keys and values
        past = [g.add_input(F32, [b, heads, r.choice([0, 1, 3]) if g.empty else r.choice([1, 3]), width])] * 2
        k, v = g.node("Concat", [past[0], k], axis=2), g.node("Concat", [past[1], v], axis=2)
    if r.random() < 0.25 and width % 2 == 0:  # rotary
        angles = g.leaf(F32, [length, width])
        half = width // 2
        turned = []
        for z in (q, k):
            if g.v[z].shape[2] != length:
                raise Reject
            a, c = split(g, z, [half, half], 3)
            other = g.node("Concat", [g.node("Neg", [c]), a], axis=-1)
            turned.append(g.node("Add", [g.node("Mul", [z, g.node("Cos", [angles])]), g.node("Mul", [other, g.node("Sin", [angles])])]))
        q, k = turned
    scores = g.node("MatMul", [q, g.node("Transpose", [k], perm=[0, 1, 3, 2])])
    scores = g.node(r.choice(["Mul", "Div"]), [scores, g.const(np.array(r.choice([0.5, 2.0]), F32))])
    keys = g.v[k].shape[2]
    if r.random() < 0.5:
        shape = r.choice([[length, keys], [1, 1, length, keys], [b, 1, 1, keys], [b, heads, length, keys], [keys]])
        low = r.choice([-np.inf, -1e4, -65504.0])
        mask = np.where(g.np.random(shape) < 0.3, low, 0).astype(F32) if r.random() < 0.7 else np.triu(np.full((length, keys), low, F32), 1)
        if r.random() < 0.3:
            scores = g.node("Where", [g.give(np.isfinite(mask) & (mask > -1)), scores, g.const(np.array(low, F32))])
        else:
            scores = g.node("Add", [scores, g.give(mask) if r.random() < 0.5 else g.const(mask)])
    out = g.node("MatMul", [softmax(g, scores), v])
    out = g.node("Reshape", [g.node("Transpose", [out], perm=[0, 2, 1, 3]), g.ints(b, length, total)])
    x = g.node("Add", [x, linear(g, out, total)])
    if r.random() < 0.6:
        y = linear(g, activation(g, linear(g, layer_norm(g, x), r.choice([4, 2 * total]))), total)
        g.node("Add", [x, y])


@op(2)
def tagger(g):
    """Embedding, recurrent layers, a product a step."""
    r = g.r
    length, b, width, hidden = r.choice([1, 2, 5]), r.choice([1, 2, 3]), r.choice([2, 5]), r.choice([1, 3, 16])
    x = g.node("Gather", [weight(g, 9, width), g.give(g.np.integers(0, 9, (length, b)))], axis=0)
    for _ in range(r.choice([1, 2])):
        direction = r.choice(["forward", "reverse", "bidirectional"])
        y = recurrent(g, x, hidden, direction=direction)
        if direction == "bidirectional":
            y = g.node("Reshape", [g.node("Transpose", [y], perm=[0, 2, 1, 3]), g.ints(0, 0, -1)])
        else:
            y = squeeze_axes(g, y, 1)
        x = g.node("Concat", [x, y], axis=2) if r.random() < 0.3 else y
    y = linear(g, x if r.random() < 0.5 else g.node("Transpose", [x], perm=[1, 0, 2]), r.choice([1, 4]))
    g.node(r.choice(["Softmax", "LogSoftmax"]), [y], axis=-1)


@op(1.5)
def sizes_by_data(g):
    """What is chosen by values: its size is known when the model runs, and kernels work on it."""
    r = g.r
    n, d = r.choice([1, 3, 6]), r.choice([1, 4, 16])
    x = g.add_input(F32, [n, d])
    kind = r.choice(["nonzero", "compress", "range", "slice"])
    if kind == "nonzero":
        score = g.node("ReduceSum", [x, g.ints(1)], keepdims=0) if g.opset >= 13 else g.node("ReduceSum", [x], axes=[1], keepdims=0)
        index = squeeze_axes(g, g.node("NonZero", [g.node("Greater", [score, g.const(np.array(0, F32))])]), 0)
        y = g.node("Gather", [x, index], axis=0)
    elif kind == "compress":
        y = g.node("Compress", [x, g.give(g.np.random(n) < 0.6)], axis=0)
    elif kind == "range":
        index = g.node("Range", [g.const(np.array(0)), g.give(np.array(r.randint(0, n))), g.const(np.array(1))])
        y = g.node("Gather", [x, index], axis=0)
    else:
        y = g.node("Slice", [x, g.give(np.array([r.choice([0, 1])])), g.give(np.array([r.choice([1, n, 2**31 - 1])])), g.ints(0)])
    kind = r.choice(["product", "concat", "softmax", "norm", "pointwise", "reduce", "expand"])
    if kind == "product":
        activation(g, linear(g, y, r.choice([1, 5, 16])))
    elif kind == "concat":
        activation(g, g.node("Concat", [y, linear(g, y, d) if r.random() < 0.5 else x], axis=0))
    elif kind == "softmax":
        softmax(g, y, r.choice([0, 1]))
    elif kind == "norm":
        layer_norm(g, y)
    elif kind == "pointwise":
        activation(g, g.node("Add", [y, vector(g, d)]))
    elif kind == "reduce":
        g.node("ReduceSum", [y, g.ints(0)] if g.opset >= 13 else [y], **({} if g.opset >= 13 else {"axes": [0]}))
    else:
        g.node("Expand", [unsqueeze_axes(g, y, 0), g.node("Concat", [g.ints(2), g.node("Shape", [y])], axis=0)])
