"""Layers of networks: what the motifs are made of. Each adds nodes and gives the name of its result."""

import numpy as np

from values import F32


def weight(g, *shape, dtype=F32):
    """A constant of a scale that keeps activations near 1; now and then an input."""
    fan = max(1, int(np.prod(shape[1:])) if len(shape) > 2 else shape[0])
    a = (g.np.integers(-4, 5, shape) / 4 if g.coarse else g.np.normal(0, 1, shape)) / np.sqrt(fan)
    return g.give(a.astype(dtype)) if g.r.random() < 0.05 else g.const(a.astype(dtype))


def vector(g, *shape, dtype=F32):
    return g.const((g.np.integers(-8, 9, shape) / 8).astype(dtype))


def activation(g, x):
    o = g.r.choice(["Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Clip", "silu", "gelu", "hardswish", ""])
    if o == "silu":
        return g.node("Mul", [x, g.node("Sigmoid", [x])])
    if o == "gelu":
        e = g.node("Erf", [g.node("Div", [x, g.const(np.array(2**0.5, g.v[x].dtype))])])
        return g.node(
            "Mul", [g.node("Mul", [x, g.node("Add", [e, g.const(np.array(1, g.v[x].dtype))])]), g.const(np.array(0.5, g.v[x].dtype))]
        )
    if o == "hardswish":
        return g.node("HardSwish", [x]) if g.opset >= 14 else g.node("Mul", [x, g.node("HardSigmoid", [x], alpha=1 / 6)])
    if o == "Clip":
        return g.node(o, [x, g.const(np.array(0, g.v[x].dtype)), g.const(np.array(6, g.v[x].dtype))])
    return g.node(o, [x]) if o else x


def batch_norm(g, x):
    c = g.v[x].shape[1]
    ones = [g.const(a.astype(F32)) for a in (g.np.normal(1, 0.3, c), g.np.normal(0, 1, c), g.np.normal(0, 1, c), g.np.random(c) + 0.2)]
    return g.node("BatchNormalization", [x, *ones])


def conv(g, x, filters, kernel=3, stride=1, group=1, dilation=1, pads=None, bias=None):
    """A convolution of as many dimensions as x has; `pads` None: that the size stays (at stride 1)."""
    c, dims = g.v[x].shape[1], g.v[x].ndim - 2
    half = (kernel - 1) * dilation // 2
    pads = [half] * dims + [(kernel - 1) * dilation - half] * dims if pads is None else pads
    w = weight(g, filters, c // group, *[kernel] * dims)
    inputs = [x, w] + ([vector(g, filters)] if (g.r.random() < 0.5 if bias is None else bias) else [])
    return g.node("Conv", inputs, group=group, strides=[stride] * dims, dilations=[dilation] * dims, pads=pads)


def conv_block(g, x, filters, **how):
    y = conv(g, x, filters, **how)
    if g.r.random() < 0.5:
        y = batch_norm(g, y)
    return activation(g, y)


def linear(g, x, n):
    y = g.node("MatMul", [x, weight(g, g.v[x].shape[-1], n)])
    return g.node("Add", [y, vector(g, n)]) if g.r.random() < 0.6 else y


def layer_norm(g, x):
    c = g.v[x].shape[-1]
    if g.opset >= 17 and g.r.random() < 0.6:
        return g.node("LayerNormalization", [x, vector(g, c), vector(g, c)], axis=-1)
    mean = lambda y: g.node("ReduceMean", [y, g.ints(-1)]) if g.opset >= 18 else g.node("ReduceMean", [y], axes=[-1])  # noqa: E731
    d = g.node("Sub", [x, mean(x)])
    s = g.node("Sqrt", [g.node("Add", [mean(g.node("Mul", [d, d])), g.const(np.array(1e-5, F32))])])
    return g.node("Add", [g.node("Mul", [g.node("Div", [d, s]), vector(g, c)]), vector(g, c)])


def softmax(g, x, axis=-1):
    return g.node("Softmax", [x], axis=axis)


def squeeze_axes(g, x, *axes):
    return g.node("Squeeze", [x, g.ints(*axes)]) if g.opset >= 13 else g.node("Squeeze", [x], axes=list(axes))


def unsqueeze_axes(g, x, *axes):
    return g.node("Unsqueeze", [x, g.ints(*axes)]) if g.opset >= 13 else g.node("Unsqueeze", [x], axes=list(axes))


def split(g, x, parts, axis):
    sizes = [int(s) for s in parts]
    return (
        g.node("Split", [x, g.ints(*sizes)], nout=len(sizes), axis=axis)
        if g.opset >= 13
        else g.node("Split", [x], nout=len(sizes), axis=axis, split=sizes)
    )


def made(g, rank, fits):
    """Now and then a value of f32 that a node made, of this rank and with elements, for whose dims `fits` is true; else None."""
    found = [n for n, a in g.v.items() if g.kind[n] == "node" and a.dtype == F32 and a.ndim == rank and 0 < a.size < 8000 and fits(a.shape)]
    return g.r.choice(found) if found and g.r.random() < 0.4 else None


def image(g, channels=None, least=4, most=14):
    """A picture, new or one that the graph has."""
    r = g.r
    if x := made(g, 4, lambda dims: min(dims[2:]) >= least):
        return x if channels in (None, g.v[x].shape[1]) else conv(g, x, channels, kernel=1)
    c = channels or r.choice([1, 2, 3, 4, 8, 16, 17])
    return g.add_input(F32, [r.choice([1, 1, 2, 3]), c, r.randint(least, most), r.randint(least, most)])


def tokens(g, width=None):
    """[batch, length, width], new or one that the graph has."""
    r = g.r
    if x := made(g, 3, lambda dims: width in (None, dims[2])):
        return x
    return g.add_input(F32, [r.choice([1, 1, 2, 3]), r.choice([1, 2, 3, 5, 7, 16, 17]), width or r.choice([4, 6, 8, 16, 24, 32])])


def recurrent(g, x, hidden, kind=None, direction="forward"):
    """Y of [length, directions, batch, hidden]."""
    r = g.r
    op_type, gates = kind or r.choice([("LSTM", 4), ("GRU", 3), ("RNN", 1)])
    directions = 2 if direction == "bidirectional" else 1
    c = lambda *s: g.const(g.np.normal(0, 0.5, s).astype(F32))  # noqa: E731
    inputs = [x, c(directions, gates * hidden, g.v[x].shape[2]), c(directions, gates * hidden, hidden)]
    if r.random() < 0.6:
        inputs.append(c(directions, 2 * gates * hidden))
    return g.node(
        op_type,
        inputs,
        nout=[1, 0],
        hidden_size=hidden,
        direction=direction,
        linear_before_reset=r.choice([None, 1]) if op_type == "GRU" else None,
    )
