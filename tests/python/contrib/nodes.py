"""Generators of random nodes, one an operator: a function of a random generator that gives a harness.Node."""

import numpy as np
from harness import Node

GENERATORS = {}


def generator(function):
    GENERATORS[function.__name__] = function
    return function


def normal(rng, *shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def maybe(rng, value, chance=0.5):
    return value if rng.random() < chance else None


def size(rng, low=1, high=6):
    return int(rng.integers(low, high + 1))


def one_of(rng, *values):
    return values[int(rng.integers(len(values)))]


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# --- products, convolutions, activations ---------------------------------------------------------------------


def product_operands(rng, trans_a, trans_b, batch_a=0, batch_b=0):
    m, k, n = size(rng), size(rng), size(rng)
    batch = [size(rng, 1, 3) for _ in range(size(rng, 1, 2) if batch_a or batch_b else size(rng, 0, 2))]

    def operand(rows, columns, swapped, moved):
        shape = batch + ([columns, rows] if swapped else [rows, columns])
        if moved:  # the matrix's first axis stands before the batch
            shape = [shape[-2]] + shape[:-2] + [shape[-1]]
        return normal(rng, *shape)

    return operand(m, k, trans_a, batch_a), operand(k, n, trans_b, batch_b)


@generator
def FusedMatMul(rng):
    flags = {name: int(rng.integers(2)) for name in ("transA", "transB")}
    moved = {name: int(rng.random() < 0.3) for name in ("transBatchA", "transBatchB")}
    a, b = product_operands(rng, flags["transA"], flags["transB"], moved["transBatchA"], moved["transBatchB"])
    return Node("FusedMatMul", [a, b], alpha=maybe(rng, float(rng.uniform(-2, 2))), **flags, **moved)


@generator
def TransposeMatMul(rng):
    flags = {name: int(rng.integers(2)) for name in ("transA", "transB")}
    a, b = product_operands(rng, **{"trans_a": flags["transA"], "trans_b": flags["transB"]})
    return Node("TransposeMatMul", [a, b], alpha=float(rng.uniform(-2, 2)), **flags)


@generator
def FusedGemm(rng):
    m, k, n = size(rng), size(rng), size(rng)
    ta, tb = int(rng.integers(2)), int(rng.integers(2))
    activation = one_of(rng, "Relu", "Tanh", "Sigmoid", "LeakyRelu", "HardSigmoid", "Elu", "Softplus", "Softsign", "ThresholdedRelu")
    extra = {}
    if activation in ("LeakyRelu", "HardSigmoid", "Elu", "ThresholdedRelu"):
        extra["activation_alpha"] = float(rng.uniform(0.1, 1))
    if activation == "HardSigmoid":
        extra["activation_beta"] = float(rng.uniform(0.1, 1))
    c = maybe(rng, normal(rng, *one_of(rng, (n,), (m, 1), (1, n), (m, n), (1,))))
    return Node("FusedGemm", [normal(rng, *((k, m) if ta else (m, k))), normal(rng, *((n, k) if tb else (k, n))), c], transA=ta, transB=tb,
                alpha=float(rng.uniform(-1, 1)), beta=float(rng.uniform(-1, 1)), activation=activation, **extra)


def conv_parts(rng):
    group, per, out = size(rng, 1, 2), size(rng, 1, 3), size(rng, 1, 3)
    kernel = [size(rng, 1, 3) for _ in range(2)]
    x = normal(rng, size(rng, 1, 2), group * per, size(rng, 4, 8), size(rng, 4, 8))
    w = normal(rng, group * out, per, *kernel)
    attributes = dict(group=group, strides=[size(rng, 1, 2) for _ in range(2)], dilations=[1, 1])
    if rng.random() < 0.7:
        attributes["pads"] = [int(p) for p in rng.integers(0, 2, 4)]
    else:
        attributes["auto_pad"] = one_of(rng, "SAME_UPPER", "SAME_LOWER", "VALID")
    return x, w, maybe(rng, normal(rng, group * out)), attributes


def fused_activation(rng):
    name = one_of(rng, None, "Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid")
    parameters = {"LeakyRelu": [0.1], "Clip": [-0.5, 0.7], "HardSigmoid": [0.3, 0.4]}.get(name)
    return dict(activation=name, activation_params=parameters)


@generator
def FusedConv(rng):
    x, w, bias, attributes = conv_parts(rng)
    z = None
    if bias is not None and rng.random() < 0.5:  # its shape is the output's
        attributes = dict(group=attributes["group"], auto_pad="SAME_UPPER", strides=[1, 1])
        z = normal(rng, x.shape[0], w.shape[0], *x.shape[2:])
    return Node("FusedConv", [x, w, bias, z], **attributes, **fused_activation(rng))


@generator
def NhwcFusedConv(rng):
    """ONNX Runtime has it for other devices: beside its FusedConv on transposed tensors."""
    from harness import session

    node = FusedConv(rng)
    model, feeds = Node(node.op, node.inputs, **node.attributes).model(0, False)
    (y,) = session(model.SerializeToString()).run(None, feeds)
    last = lambda t: None if t is None else np.ascontiguousarray(np.moveaxis(t, 1, -1))  # noqa: E731
    x, w, bias, z = node.inputs
    return Node("NhwcFusedConv", [last(x), w, bias, last(z)], want=[last(y)], **node.attributes)


@generator
def NhwcMaxPool(rng):
    x = rng.integers(0, 256, (size(rng, 1, 2), size(rng, 4, 8), size(rng, 4, 8), size(rng))).astype(one_of(rng, np.uint8, np.int8))
    return Node("NhwcMaxPool", [x], kernel_shape=[size(rng, 2, 3), size(rng, 2, 3)], strides=[size(rng, 1, 2)] * 2, ceil_mode=int(rng.integers(2)),
                pads=maybe(rng, [0, 0, 1, 1] if rng.random() < 0.3 else [0, 0, 0, 0]))


def any_shape(rng):
    return [size(rng) for _ in range(size(rng, 1, 4))]


@generator
def Gelu(rng):
    return Node("Gelu", [normal(rng, *any_shape(rng))], tolerance=1e-5)


@generator
def QuickGelu(rng):
    return Node("QuickGelu", [normal(rng, *any_shape(rng))], alpha=maybe(rng, float(rng.uniform(0.5, 2))))


@generator
def BiasGelu(rng):
    shape = any_shape(rng)
    return Node("BiasGelu", [normal(rng, *shape), normal(rng, shape[-1])])


@generator
def FastGelu(rng):
    shape = any_shape(rng)
    return Node("FastGelu", [normal(rng, *shape), maybe(rng, normal(rng, shape[-1]))])


def erf(x):
    from math import erf as one

    return np.vectorize(one, otypes=[np.float64])(x.astype(np.float64))


def exact_gelu(x):
    return 0.5 * x * (1 + erf(x / np.sqrt(2)))


@generator
def BiasSplitGelu(rng):
    n, s, d = size(rng), size(rng), 2 * size(rng)
    x, bias = normal(rng, n, s, d), normal(rng, d)
    left, right = np.split((x + bias).astype(np.float64), 2, axis=-1)
    return Node("BiasSplitGelu", [x, bias], want=[(left * exact_gelu(right)).astype(np.float32)])


@generator
def BiasAdd(rng):
    n, s, c = size(rng), size(rng), size(rng)
    x, bias, skip = normal(rng, n, s, c), normal(rng, c), normal(rng, n, s, c)
    return Node("BiasAdd", [x, bias, skip], want=[x + bias + skip])


# --- normalizations ------------------------------------------------------------------------------------------


@generator
def SkipLayerNormalization(rng):
    b, s, h = size(rng), size(rng), size(rng, 2, 9)
    skip = normal(rng, *one_of(rng, (b, s, h), (1, s, h), (s, h)))
    return Node("SkipLayerNormalization", [normal(rng, b, s, h), skip, normal(rng, h), maybe(rng, normal(rng, h)), maybe(rng, normal(rng, h))],
                outputs=one_of(rng, 1, [True, False, False, True]), epsilon=maybe(rng, 1e-5), tolerance=2e-5)


@generator
def SkipSimplifiedLayerNormalization(rng):
    b, s, h = size(rng), size(rng), size(rng, 2, 9)
    return Node("SkipSimplifiedLayerNormalization", [normal(rng, b, s, h), normal(rng, b, s, h), normal(rng, h), maybe(rng, normal(rng, h))],
                outputs=one_of(rng, 1, [True, False, False, True]), epsilon=1e-5)


@generator
def SimplifiedLayerNormalization(rng):
    shape = any_shape(rng)
    axis = int(rng.integers(-len(shape), len(shape)))
    return Node("SimplifiedLayerNormalization", [normal(rng, *shape), normal(rng, *shape[axis:])], outputs=one_of(rng, 1, 2), domain="", axis=axis, epsilon=1e-5)


@generator
def LayerNormalization(rng):
    """In a model of an opset that has no such operator yet. The body that ONNX gives for it takes the difference of squares as variance."""
    shape = any_shape(rng)
    axis = int(rng.integers(-len(shape), len(shape)))
    return Node("LayerNormalization", [normal(rng, *shape), normal(rng, *shape[axis:]), maybe(rng, normal(rng, *shape[axis:]))], domain="", model_opset=14, axis=axis,
                epsilon=1e-5, tolerance=2e-3)


@generator
def EmbedLayerNormalization(rng):
    b, s, h = size(rng), size(rng), size(rng, 2, 9)
    ids = lambda n, *shape: rng.integers(0, n, shape).astype(np.int32)  # noqa: E731
    segment = rng.random() < 0.6
    return Node("EmbedLayerNormalization",
                [ids(11, b, s), ids(2, b, s) if segment else None, normal(rng, 11, h), normal(rng, 9, h), normal(rng, 2, h) if segment else None, normal(rng, h),
                 normal(rng, h), maybe(rng, ids(2, b, s)), maybe(rng, ids(9, *one_of(rng, (b, s), (1, s))))],
                outputs=one_of(rng, 2, 3, [True, False, True]), tolerance=2e-5)


@generator
def QEmbedLayerNormalization(rng):
    b, s, h = size(rng), size(rng), size(rng, 2, 9)
    ids = lambda n, *shape: rng.integers(0, n, shape).astype(np.int32)  # noqa: E731
    kind = one_of(rng, np.uint8, np.int8)
    info = np.iinfo(kind)
    table = lambda *shape: rng.integers(info.min, info.max, shape, endpoint=True).astype(kind)  # noqa: E731
    scale = lambda: np.float32(rng.uniform(0.005, 0.02))  # noqa: E731
    zero = lambda: np.asarray(rng.integers(info.min // 2, info.max // 2), dtype=kind)  # noqa: E731
    segment = rng.random() < 0.6
    there = [True, True, segment, True, True]
    return Node("QEmbedLayerNormalization",
                [ids(11, b, s), ids(2, b, s) if segment else None, table(11, h), table(9, h), table(2, h) if segment else None, table(h), table(h),
                 maybe(rng, ids(2, b, s))] + [np.asarray(scale()) if t else None for t in there] + [zero() if t else None for t in there],
                outputs=2, tolerance=2e-5)


def group_norm(x, gamma, beta, groups, epsilon, activation, last):
    x = np.moveaxis(x, -1, 1) if last else x
    n, c = x.shape[:2]
    g = x.reshape(n, groups, -1).astype(np.float64)
    y = ((g - g.mean(-1, keepdims=True)) / np.sqrt(g.var(-1, keepdims=True) + epsilon)).reshape(x.shape)
    y = y * gamma[:, None, None] + beta[:, None, None]
    y = y * sigmoid(y) if activation else y
    return (np.moveaxis(y, 1, -1) if last else y).astype(np.float32)


def image(rng, channels, last):
    n, h, w = size(rng, 1, 2), size(rng), size(rng, 2, 5)
    return normal(rng, n, h, w, channels) if last else normal(rng, n, channels, h, w)


@generator
def GroupNorm(rng):
    groups = size(rng, 1, 3)
    channels, last, activation = groups * size(rng, 1, 3), int(rng.integers(2)), int(rng.integers(2))
    x, gamma, beta = image(rng, channels, last), normal(rng, channels), normal(rng, channels)
    return Node("GroupNorm", [x, gamma, beta], want=[group_norm(x, gamma, beta, groups, 1e-5, activation, last)], groups=groups, activation=activation,
                channels_last=last, epsilon=1e-5, tolerance=2e-5)


@generator
def SkipGroupNorm(rng):
    groups = size(rng, 1, 3)
    channels, activation = groups * size(rng, 1, 3), int(rng.integers(2))
    x, gamma, beta = image(rng, channels, True), normal(rng, channels), normal(rng, channels)
    n = x.shape[0]
    skip = normal(rng, *one_of(rng, x.shape, (n, 1, 1, channels), (n, channels)))
    bias = maybe(rng, normal(rng, channels))
    total = x + (skip[:, None, None] if skip.ndim == 2 else skip) + (0 if bias is None else bias)
    return Node("SkipGroupNorm", [x, gamma, beta, skip, bias], 2, want=[group_norm(total, gamma, beta, groups, 1e-5, activation, True), total], groups=groups,
                activation=activation, epsilon=1e-5, tolerance=2e-5)
