"""Motifs of convolutional networks: every algorithm with what may follow it, dense blocks, necks, U-Nets, tails of detectors."""

import numpy as np
from onnx import TensorProto

from layers import (
    activation,
    batch_norm,
    conv,
    conv_block,
    image,
    layer_norm,
    linear,
    softmax,
    split,
    squeeze_axes,
    unsqueeze_axes,
    vector,
    weight,
)
from registry import op
from values import F32, F64


def produced(g, x):
    """x as it is, or behind a kernel or a view: what a convolution reads lies differently then."""
    r, shape = g.r, list(g.v[x].shape)
    kind = r.choice(["", "", "relu", "view", "transpose", "conv", "norm", "pad"])
    if kind == "relu":
        return g.node("Relu", [x])
    if kind == "view":
        return g.node("Reshape", [g.add_input(F32, [shape[0], int(np.prod(shape[1:]))]), g.ints(*shape)])
    if kind == "transpose":
        return g.node(
            "Transpose", [g.add_input(F32, [shape[0], *shape[2:], shape[1]])], perm=[0, len(shape) - 1, *range(1, len(shape) - 1)]
        )
    if kind == "conv":
        return conv(g, g.add_input(F32, [shape[0], 3, *shape[2:]]), shape[1], kernel=1)
    if kind == "norm":
        return batch_norm(g, x)
    if kind == "pad" and min(shape[2:]) > 1:
        smaller = g.add_input(F32, [*shape[:-1], shape[-1] - 1])
        return g.node("Pad", [smaller, g.ints(*[0] * (2 * len(shape) - 1), 1)])
    return x


def transposed_conv(g, x, filters, group=1):
    """Kernels shorter than, as long as and longer than the stride, by axis; pads, a wider or given output."""
    r, (c, *sizes) = g.r, g.v[x].shape[1:]
    kernel, strides = ([r.choice(of) for _ in sizes] for of in ([1, 2, 2, 3, 4, 5], [1, 2, 2, 3, 4]))
    dilations = [r.choice([1, 1, 1, 2, 3]) if k > 1 else 1 for k in kernel]
    how = {"strides": strides, "dilations": dilations, "kernel_shape": kernel, "group": group}
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    if r.random() < 0.6:  # leave at least one output
        most = [((n - 1) * s + e - 1) // 2 for n, s, e in zip(sizes, strides, reach)]
        how["pads"] = [r.randint(0, min(m, 2)) for m in most * 2]
    if r.random() < 0.3:
        how["output_padding"] = [r.randint(0, s - 1) for s in strides]
    w = weight(g, c, max(1, filters // group), *kernel)
    bias = [vector(g, g.v[w].shape[1] * group)] if r.random() < 0.5 else []
    return g.node("ConvTranspose", [x, w, *bias], **how)


@op(9)
def strategies_of_convolutions(g):
    """Every algorithm, with channels that end inside and at the edge of a vector, and what may follow it."""
    r = g.r
    kinds = "winograd4 winograd4 winograd2 winograd2 direct depthwise depthwise pointwise grouped line volume".split()
    kinds += ["line depthwise", "single channel", "transposed", "transposed", "transposed line", "transposed volume", "atrous"]
    kind = r.choice(kinds)
    n, c, oc = r.choice([1, 1, 2]), r.choice([1, 3, 4, 8, 16, 17, 32]), r.choice([1, 2, 8, 15, 16, 17, 32, 48, 50])
    if kind.startswith("winograd"):
        c, oc = r.choice([32, 33, 40]), r.choice([32, 35, 48])
        h, w = (r.choice([12, 13, 14]), r.choice([8, 12, 13])) if kind == "winograd4" else (r.choice([4, 5, 7, 9]), r.choice([4, 6, 9]))
        x = produced(g, g.add_input(F32, [1, c, h, w]))
        y = conv(g, x, oc, kernel=3, pads=None if r.random() < 0.7 else [1, 0, 1, 2])
    elif kind.startswith("line"):
        depthwise = "depthwise" in kind
        c = max(c, 3) if depthwise else c
        x = produced(g, g.add_input(F32, [n, c, r.choice([5, 16, 33, 60])]))
        group = c if depthwise else 1
        kernel = r.choice([1, 2, 3, 5]) if r.random() < 0.7 else r.choice([9, 15, 31])  # wide ones, as speech encoders have
        y = conv(g, x, c if depthwise else oc, kernel=kernel, stride=r.choice([1, 2]), dilation=r.choice([1, 1, 2]), group=group)
    elif kind == "volume":
        c = r.choice([1, 3, 16])
        x = produced(g, g.add_input(F32, [n, c, 4, 5, 3]))
        group = c if r.random() < 0.2 else 1
        y = conv(g, x, group * r.choice([2, 5, 16]), kernel=r.choice([1, 2, 3]), stride=r.choice([1, 1, 2]), group=group)
    elif kind.startswith("transposed"):
        sizes = {"transposed line": [r.choice([1, 5, 16])], "transposed volume": [2, 4, 3]}.get(kind, [r.choice([1, 3, 6]), r.choice([1, 4, 7])])
        x = produced(g, g.add_input(F32, [n, c, *sizes]))
        groups = [q for q in range(2, c + 1) if c % q == 0]
        y = transposed_conv(g, x, oc, r.choice(groups) if groups and r.random() < 0.3 else 1)
    elif kind == "atrous":  # taps that lie outside the map, whole rows of them
        c = r.choice([16, 17, 32])
        x = produced(g, g.add_input(F32, [n, c, r.choice([3, 5, 8]), r.choice([4, 7])]))
        y = conv(g, x, r.choice([16, 33, 48]), kernel=r.choice([3, 3, 5]), dilation=r.choice([2, 3, 6, 9]))
    else:
        c = 1 if kind == "single channel" else max(c, 3) if kind == "depthwise" else c
        x = produced(g, g.add_input(F32, [n, c, r.choice([1, 3, 5, 8]), r.choice([1, 4, 7, 9])]))
        groups = [q for q in range(2, c) if c % q == 0]
        group = c if kind == "depthwise" else r.choice(groups) if kind == "grouped" and groups else 1
        oc = c * r.choice([1, 1, 1, 2]) if kind == "depthwise" else group * r.choice([1, 2, 8, 16]) if group > 1 else oc
        kernel = 1 if kind == "pointwise" else r.choice([7, 13]) if r.random() < 0.15 else r.choice([2, 3, 3, 5])
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


@op(1)
def pads_that_floats_compute(g):
    """Pads of the picture's own size as exporters write them: ceil(size / stride) in floats, cut to whole numbers, and a window over the result."""
    r = g.r
    x, stride, kernel = image(g), r.choice([1, 2, 3]), r.choice([1, 2, 3, 5])
    dtype, to = r.choice([(F32, TensorProto.FLOAT), (F32, TensorProto.FLOAT), (F64, TensorProto.DOUBLE)])

    def number(value):
        return g.const(np.array(value, dtype))

    size = g.node("Shape", [x])
    before, after = [], []
    for axis in (2, 3):
        have = g.node("Cast", [g.node("Gather", [size, g.const(np.array(axis))])], to=to)
        steps = g.node("Sub", [g.node("Ceil", [g.node("Div", [have, number(stride)])]), number(1)])
        need = g.node("Add", [g.node("Mul", [steps, number(stride)]), number(kernel)])
        missing = g.node("Max", [g.node("Sub", [need, have]), number(0)])
        first = g.node("Floor", [g.node("Div", [missing, number(2)])])
        before.append(first)
        after.append(g.node("Sub", [missing, first]))
    lists = [unsqueeze_axes(g, v, 0) for v in before + after]
    amounts = g.node("Cast", [g.node("Concat", lists, axis=0)], to=TensorProto.INT64)
    top, bottom = split(g, amounts, [2, 2], 0)
    pads = g.node("Concat", [g.ints(0, 0), top, g.ints(0, 0), bottom], axis=0)
    padded = g.node("Pad", [x, pads])
    if r.random() < 0.5:
        g.node("MaxPool", [padded], kernel_shape=[kernel, kernel], strides=[stride, stride])
    else:
        g.node("Conv", [padded, weight(g, r.choice([1, 4, 8]), g.v[x].shape[1], kernel, kernel)], strides=[stride, stride])
