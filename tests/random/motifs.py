"""Motifs of real networks, whose fusions and layouts meet: parts from every kind of kernel in one Concat, dense blocks, necks, squeeze
and excite, attention, U-Nets, tails of detectors."""

import numpy as np
from onnx import TensorProto, numpy_helper
from oracle import Reject
from registry import op
from values import BOOL, F16, F32, F64, I32, I64


# --- layers
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


def image(g, channels=None, least=4, most=14):
    """A picture, new or one that the graph has."""
    r = g.r
    fit = [
        n
        for n, a in g.v.items()
        if a.ndim == 4
        and a.dtype == F32
        and g.kind[n] == "node"
        and min(a.shape) > 0
        and a.shape[2] >= least
        and a.shape[3] >= least
        and a.size < 8000
    ]
    if fit and r.random() < 0.4:
        x = r.choice(fit)
        return x if channels in (None, g.v[x].shape[1]) else conv(g, x, channels, kernel=1)
    c = channels or r.choice([1, 2, 3, 4, 8, 16, 17])
    return g.add_input(F32, [r.choice([1, 1, 2, 3]), c, r.randint(least, most), r.randint(least, most)])


def tokens(g, width=None):
    """[batch, length, width], new or one that the graph has."""
    r = g.r
    fit = [
        n
        for n, a in g.v.items()
        if a.ndim == 3
        and a.dtype == F32
        and g.kind[n] == "node"
        and min(a.shape) > 0
        and (width is None or a.shape[2] == width)
        and a.size < 8000
    ]
    if fit and r.random() < 0.4:
        return r.choice(fit)
    return g.add_input(F32, [r.choice([1, 1, 2, 3]), r.choice([1, 2, 3, 5, 7, 16, 17]), width or r.choice([4, 6, 8, 16, 24, 32])])


# --- parts from every kind of kernel
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


# --- convolutional networks
@op(3)
def strategies_of_convolutions(g):
    """Every algorithm, with channels that end inside and at the edge of a vector, and what may follow it."""
    r = g.r
    kind = r.choice(
        [
            "winograd4",
            "winograd2",
            "direct",
            "direct",
            "depthwise",
            "pointwise",
            "grouped",
            "line",
            "line depthwise",
            "volume",
            "single channel",
        ]
    )
    n, c, oc = r.choice([1, 1, 2]), r.choice([1, 3, 4, 8, 16, 17, 32]), r.choice([1, 2, 8, 15, 16, 17, 32, 48, 50])
    if kind.startswith("winograd"):
        c, oc, size = r.choice([32, 33, 40]), r.choice([32, 35, 48]), r.choice([12, 13, 14]) if kind[-1] == "4" else r.choice([4, 5, 7, 9])
        x = g.add_input(F32, [1, c, size, r.choice([size, max(8, size - 2) if kind[-1] == "4" else size])])
        y = conv(g, x, oc, kernel=3, pads=None if r.random() < 0.7 else [1, 0, 1, 2])
    elif kind.startswith("line"):
        depthwise = "depthwise" in kind
        x = g.add_input(F32, [n, c, r.choice([5, 16, 33])])
        y = conv(
            g,
            x,
            c if depthwise else oc,
            kernel=r.choice([1, 2, 3, 5]),
            stride=r.choice([1, 2]),
            dilation=r.choice([1, 1, 2]),
            group=c if depthwise else 1,
        )
    elif kind == "volume":
        y = conv(g, g.add_input(F32, [n, r.choice([1, 3]), 4, 5, 3]), r.choice([2, 5]), kernel=r.choice([1, 2, 3]))
    else:
        c = 1 if kind == "single channel" else c
        x = g.add_input(F32, [n, c, r.choice([1, 3, 5, 8]), r.choice([1, 4, 7, 9])])
        groups = [q for q in range(2, c) if c % q == 0]
        group = c if kind == "depthwise" else r.choice(groups) if kind == "grouped" and groups else 1
        oc = c * r.choice([1, 1, 2]) if kind == "depthwise" else group * r.choice([1, 2, 8, 16]) if group > 1 else oc
        kernel = 1 if kind == "pointwise" else r.choice([2, 3, 3, 5])
        y = conv(g, x, oc, kernel=kernel, stride=r.choice([1, 1, 2]), group=group, dilation=r.choice([1, 1, 2]))
    shape = list(g.v[y].shape)
    for _ in range(r.choice([0, 1, 2])):
        kind = r.choice(["activation", "residual", "batch norm", "scale", "reader", "gate", "view"])
        if kind == "activation":
            y = activation(g, y)
        elif kind == "residual":
            y = g.node("Add", [y, g.add_input(F32, shape)])
        elif kind == "batch norm":
            y = batch_norm(g, y)
        elif kind == "scale":
            y = g.node(
                r.choice(["Mul", "Add", "Sub", "Div"]),
                [y, g.const((g.np.integers(1, 9, [shape[1]] + [1] * (len(shape) - 2)) / 4).astype(F32))],
            )
        elif kind == "reader":
            activation(g, y)
        elif kind == "gate":
            y = g.node("Mul", [y, g.node("Sigmoid", [g.add_input(F32, [shape[0], shape[1]] + [1] * (len(shape) - 2))])])
        else:
            g.node("Neg", [g.node("Reshape", [y, g.ints(shape[0], shape[1], -1)])])


@op(3)
def dense_block(g):
    r, x = g.r, image(g)
    grow = r.choice([1, 2, 4, 16])
    for _ in range(r.choice([2, 3])):
        y = activation(g, batch_norm(g, x)) if r.random() < 0.7 else x
        y = conv(g, y, grow, kernel=r.choice([1, 3]))
        x = g.node("Concat", [x, y] if r.random() < 0.8 else [y, x], axis=1)
    if r.random() < 0.5:
        x = conv_block(g, x, r.choice([2, 4]), kernel=1)
        g.node("AveragePool", [x], kernel_shape=[2, 2], strides=[2, 2])


@op(3)
def partial_block(g):
    """Split, bottlenecks, and all of it in one Concat."""
    r = g.r
    x = conv_block(g, image(g), 2 * r.choice([1, 2, 4, 8]), kernel=1)
    half = g.v[x].shape[1] // 2
    a, b = split(g, x, [half, half], 1)
    kept = [a, b]
    for _ in range(r.choice([1, 2])):
        y = conv_block(g, conv_block(g, b, half), half)
        b = g.node("Add", [b, y]) if r.random() < 0.6 else y
        kept.append(b)
    conv_block(g, g.node("Concat", kept, axis=1), r.choice([2, 8]), kernel=1)


@op(2)
def pooling_pyramid(g):
    r, x = g.r, image(g)
    x = conv_block(g, x, r.choice([2, 4]), kernel=1)
    kept = [x]
    for _ in range(3):
        kept.append(g.node("MaxPool", [kept[-1]], kernel_shape=[5, 5], pads=[2, 2, 2, 2]))
    conv_block(g, g.node("Concat", kept, axis=1), r.choice([2, 8]), kernel=1)


@op(2)
def squeeze_and_excite(g):
    r, x = g.r, image(g)
    c = g.v[x].shape[1]
    pooled = (
        g.node("GlobalAveragePool", [x])
        if r.random() < 0.6
        else g.node("ReduceMean", [x, g.ints(2, 3)] if g.opset >= 18 else [x], **({} if g.opset >= 18 else {"axes": [2, 3]}))
    )
    if r.random() < 0.5:
        y = activation(g, conv(g, pooled, r.choice([1, 2, 8]), kernel=1))
        gate = conv(g, y, c, kernel=1)
    else:
        flat = g.node("Flatten", [pooled]) if r.random() < 0.5 else squeeze_axes(g, pooled, 2, 3)
        gate = g.node("Reshape", [linear(g, activation(g, linear(g, flat, r.choice([1, 2, 8]))), c), g.ints(-1, c, 1, 1)])
    gate = g.node(r.choice(["Sigmoid", "HardSigmoid"]), [gate])
    y = g.node("Mul", [x, gate] if r.random() < 0.5 else [gate, x])
    if r.random() < 0.5:
        conv_block(g, y, r.choice([2, 8]), kernel=1)


@op(2)
def u_net(g):
    r, x = g.r, image(g, least=4)
    down = conv_block(g, x, r.choice([2, 4]))
    small = g.node("MaxPool", [down], kernel_shape=[2, 2], strides=[2, 2])
    small = conv_block(g, small, r.choice([2, 4]))
    h, w = g.v[down].shape[2:]
    kind = r.choice(["nearest", "linear", "transposed"])
    if kind == "transposed":
        c = g.v[small].shape[1]
        up = g.node("ConvTranspose", [small, weight(g, c, 2, 2, 2)], strides=[2, 2])
    else:
        empty = "" if g.opset >= 13 else g.const(np.zeros(0, F32))
        up = g.node("Resize", [small, empty, g.const(np.array([1, 1, 2, 2], F32))], mode=kind, coordinate_transformation_mode="asymmetric")
    if g.v[up].shape[2:] != (h, w):
        dh, dw = h - g.v[up].shape[2], w - g.v[up].shape[3]
        up = g.node("Pad", [up, g.ints(0, 0, 0, 0, 0, 0, dh, dw)])
    conv_block(g, g.node("Concat", [up, down] if r.random() < 0.5 else [down, up], axis=1), r.choice([1, 3]))


@op(3)
def convolution_behind_a_view(g):
    """Grayscale pictures and sound: the convolution's input is a view of another shape."""
    r = g.r
    n, h, w = r.choice([1, 1, 2, 3]), r.choice([3, 5, 8]), r.choice([4, 6, 9])
    kind = r.choice(["nhwc reshape", "nhwc transpose", "rows", "line", "slice", "split", "squeeze", "channels", "flat", "gather", "expand"])
    new = lambda *s: g.add_input(F32, list(s))  # noqa: E731
    if kind == "nhwc reshape":
        c = r.choice([1, 1, 2, 3])
        x = g.node("Reshape", [new(n, h, w, c), g.ints(*r.choice([[n, c, h, w], [-1, c, h, w], [0, c, h, -1]]))])
    elif kind == "nhwc transpose":
        x = g.node("Transpose", [new(n, h, w, r.choice([1, 1, 3]))], perm=[0, 3, 1, 2])
    elif kind == "rows":
        x = unsqueeze_axes(g, new(n, h, w), 1)
    elif kind == "line":
        x = unsqueeze_axes(g, new(n, h * w), 1)
    elif kind == "slice":
        c = r.choice([1, 2, 3])
        x = g.node(
            "Slice",
            [
                new(n + 1, c + 2, h + 1, w + 1),
                g.ints(*[r.choice([0, 1]) for _ in range(4)]),
                g.ints(n + 1, c + 1, h + 1, w),
                g.ints(0, 1, 2, 3),
            ],
        )
    elif kind == "split":
        x = split(g, new(n, 4, h, w), [1, 3], 1)[r.choice([0, 1])]
    elif kind == "squeeze":
        x = squeeze_axes(g, new(n, 1, 2, h, w), 1)
    elif kind == "channels":
        x = g.node("Reshape", [new(n, 2, 2, h, w), g.ints(n, 4, h, w)])
    elif kind == "flat":
        x = g.node("Reshape", [new(n, h * w * 2), g.ints(-1, 2, h, w)])
    elif kind == "gather":
        x = g.node("Gather", [new(2, n, 3, h, w), g.const(np.array(1))], axis=0)
    else:
        x = g.node("Expand", [new(n, 1, h, w), g.ints(1, 3, 1, 1)])
    if r.random() < 0.3:
        x = g.node(r.choice(["Relu", "Neg"]), [x])
    c = g.v[x].shape[1]
    kernel = r.choice([1, 2, 3])
    y = conv_block(g, x, c if r.random() < 0.2 else r.choice([1, 2, 5, 16]), kernel=kernel, group=1)
    kind = r.choice(["", "nhwc", "flat", "pool", "tokens"])
    if kind == "nhwc":
        activation(g, g.node("Transpose", [y], perm=[0, 2, 3, 1])) if g.v[y].ndim == 4 else None
    elif kind == "flat":
        linear(g, g.node("Flatten", [y]), r.choice([1, 5]))
    elif kind == "pool":
        g.node("GlobalAveragePool", [y])
    elif kind == "tokens":
        shape = g.v[y].shape
        z = g.node("Transpose", [g.node("Reshape", [y, g.ints(shape[0], shape[1], -1)])], perm=[0, 2, 1])
        layer_norm(g, g.node("Concat", [g.node("Expand", [vector(g, 1, 1, shape[1]), g.ints(shape[0], 1, 1)]), z], axis=1))


@op(2)
def detector_tail(g):
    """Heads of several scales, reshaped, transposed, concatenated, decoded; sometimes the suppression behind it."""
    r = g.r
    classes, n = r.choice([1, 2, 3]), r.choice([1, 1, 2])
    per = 4 + classes
    rows = []
    for size in r.sample([1, 2, 3, 4], r.choice([2, 3])):
        y = conv(g, g.add_input(F32, [n, r.choice([1, 4]), size, size]), per, kernel=1)
        if r.random() < 0.5:
            rows.append(g.node("Reshape", [y, g.ints(n, per, -1)]))
        else:
            y = g.node("Transpose", [y], perm=[0, 2, 3, 1])
            rows.append(g.node("Transpose", [g.node("Reshape", [y, g.ints(n, -1, per)])], perm=[0, 2, 1]))
    y = g.node("Concat", rows, axis=2)
    boxes, scores = split(g, y, [4, classes], 1)
    scores = g.node("Sigmoid", [scores]) if r.random() < 0.7 else softmax(g, scores, 1)
    xy, wh = split(g, boxes, [2, 2], 1)
    total = g.v[y].shape[2]
    xy = g.node("Add", [g.node("Mul", [g.node("Sigmoid", [xy]), vector(g, 1)]), g.leaf(F32, [2, total])])
    wh = g.node("Exp", [wh]) if r.random() < 0.5 else g.node("Mul", [g.node("Sigmoid", [wh]), vector(g, 1, total)])
    boxes = g.node("Concat", [xy, wh], axis=1)
    kind = r.choice(["concat", "transpose", "top", "suppress"])
    if kind == "concat":
        g.node("Concat", [boxes, scores], axis=1)
    elif kind == "transpose":
        g.node("Concat", [g.node("Transpose", [boxes], perm=[0, 2, 1]), g.node("Transpose", [scores], perm=[0, 2, 1])], axis=2)
    elif kind == "top":
        best = g.node(
            "ReduceMax", [scores, g.ints(1)] if g.opset >= 18 else [scores], keepdims=0, **({} if g.opset >= 18 else {"axes": [1]})
        )
        values, indices = g.node("TopK", [best, g.ints(min(3, total))], nout=2, axis=1)
        index = unsqueeze_axes(g, indices, 1)
        g.node("GatherElements", [boxes, g.node("Expand", [index, g.ints(n, 4, 1)])], axis=2)
    else:
        corners = g.node("Transpose", [boxes], perm=[0, 2, 1])
        kept = g.node(
            "NonMaxSuppression",
            [corners, scores, g.ints(5), g.const(np.array([0.5], F32)), g.const(np.array([0.3], F32))],
            center_point_box=1,
        )
        g.node("GatherND", [g.node("Transpose", [scores], perm=[0, 2, 1]), g.node("Gather", [kept, g.ints(0, 2, 1)], axis=1)])


@op(1.5)
def shuffles(g):
    r = g.r
    x = conv_block(g, image(g), 4 * r.choice([1, 2]), kernel=1)
    n, c, h, w = g.v[x].shape
    if r.random() < 0.5:  # channels
        y = g.node("Transpose", [g.node("Reshape", [x, g.ints(n, 2, c // 2, h, w)])], perm=[0, 2, 1, 3, 4])
        y = g.node("Reshape", [y, g.ints(n, c, h, w)])
        a, b = split(g, y, [c // 2, c // 2], 1)
        g.node("Concat", [conv_block(g, a, c // 2), b], axis=1)
    else:  # pixels
        y = g.node("Reshape", [x, g.ints(n, c // 4, 2, 2, h, w)])
        y = g.node("Reshape", [g.node("Transpose", [y], perm=[0, 1, 4, 2, 5, 3]), g.ints(n, c // 4, 2 * h, 2 * w)])
        conv_block(g, y, r.choice([1, 3]))


@op(1)
def windows(g):
    """Windows of a picture as tokens, a product on them, and back."""
    r = g.r
    n, s, k, c = r.choice([1, 2]), r.choice([1, 2, 3]), r.choice([2, 3]), r.choice([3, 8])
    x = g.add_input(F32, [n, s * k, s * k, c])
    y = g.node("Transpose", [g.node("Reshape", [x, g.ints(n, s, k, s, k, c)])], perm=[0, 1, 3, 2, 4, 5])
    y = linear(g, layer_norm(g, g.node("Reshape", [y, g.ints(-1, k * k, c)])), c)
    y = g.node("Transpose", [g.node("Reshape", [y, g.ints(n, s, s, k, k, c)])], perm=[0, 1, 3, 2, 4, 5])
    g.node("Add", [x, g.node("Reshape", [y, g.ints(n, s * k, s * k, c)])])


# --- transformers and recurrent networks
@op(3)
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


@op(3)
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


# --- quantized networks
@op(2)
def quantized_convolution(g):
    r = g.r
    if g.opset < 13:
        raise Reject
    x = image(g)
    n, c, h, w = g.v[x].shape
    oc, kernel = r.choice([1, 2, 8]), r.choice([1, 3])
    act, wt = r.choice([np.uint8, np.int8]), np.int8

    def qdq(y, scale, zero):
        s, z = g.const(np.array(scale, F32)), g.const(np.array(zero, act))
        return g.node("DequantizeLinear", [g.node("QuantizeLinear", [y, s, z]), s, z])

    y = qdq(x, r.choice([0.25, 0.125]), r.choice([0, 3]))
    q = g.const(g.np.integers(-9, 10, (oc, c, kernel, kernel)).astype(wt))
    if r.random() < 0.6:
        k = g.node("DequantizeLinear", [q, g.const((g.np.integers(1, 5, oc) / 64).astype(F32)), g.const(np.zeros(oc, wt))], axis=0)
    else:
        k = g.node("DequantizeLinear", [q, g.const(np.array(0.03125, F32)), g.const(np.array(0, wt))])
    half = kernel // 2
    y = g.node("Conv", [y, k], pads=[half] * 4)
    if r.random() < 0.5:
        y = g.node("Relu", [y])
    y = qdq(y, r.choice([0.5, 0.25]), r.choice([0, 2]))
    if r.random() < 0.4:
        y = g.node("MaxPool", [y], kernel_shape=[2, 2], strides=[1, 1])
    if r.random() < 0.4:
        qdq(g.node("Add", [y, qdq(g.add_input(F32, list(g.v[y].shape)), 0.25, 1)]), 0.5, 1)


@op(2)
def dynamic_quantized_product(g):
    r = g.r
    x = tokens(g) if r.random() < 0.7 else g.add_input(F32, [r.choice([1, 4, 9]), r.choice([3, 16, 17])])
    k, n = g.v[x].shape[-1], r.choice([1, 5, 16, 17])
    q, scale, zero = g.node("DynamicQuantizeLinear", [x], nout=3)
    t = r.choice([np.int8, np.uint8])
    w = g.const(g.np.integers(-9 if t is np.int8 else 0, 10, (k, n)).astype(t))
    wz = g.const(np.array(r.choice([0, 3]), t)) if r.random() < 0.6 else ""
    y = g.node("Cast", [g.node("MatMulInteger", [q, w, zero, wz])], to=TensorProto.FLOAT)
    y = g.node("Mul", [y, g.node("Mul", [scale, g.const((g.np.integers(1, 5, r.choice([[1], [n]])) / 64).astype(F32))])])
    if r.random() < 0.6:
        y = g.node("Add", [y, vector(g, n)])
    activation(g, y)
