"""What operands an operator takes: a function for each, that draws them and writes the node."""

import numpy as np

RECIPES = {}


def recipe(*names):
    def register(function):
        for name in names:
            RECIPES[name] = function
        return function

    return register


def axis(d, rank, low=None):
    return d.odd(d.r.randrange(-rank if low is None else low, rank) if rank else 0, rank, -rank - 1)


def flag(d, p=0.5):
    return d.odd(int(d.maybe(p)), 2, -1)


def default(d, value, p=0.35):
    """`value`, or the attribute's absence."""
    return None if d.maybe(p) else value


# --- elementwise
@recipe("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "HardSwish", "Identity", "IsNaN", "Log",
        "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "BitwiseNot")  # fmt: skip
def unary(d):
    d.node([d.x(0, d.shape())])


@recipe("Elu", "Selu", "LeakyRelu", "ThresholdedRelu", "HardSigmoid", "Celu", "Shrink", "Swish")
def with_numbers(d):
    draw = lambda: default(d, d.pick(0.0, 0.5, 1.0, -0.3, 2.0))
    d.node([d.x(0, d.shape())], alpha=draw(), beta=draw(), gamma=draw(), lambd=draw(), bias=draw())


@recipe("Gelu")
def gelu(d):
    d.node([d.x(0, d.shape())], approximate=default(d, d.pick("none", "tanh")))


@recipe("IsInf")
def is_inf(d):
    d.node([d.x(0, d.shape())], detect_negative=default(d, flag(d)), detect_positive=default(d, flag(d)))


def broadcast_pair(d, low=0):
    whole = d.shape(low)
    cut = lambda: [1 if d.maybe(0.3) else n for n in whole][d.r.randint(0, len(whole)) if d.maybe(0.4) else 0 :]
    a, b = cut(), cut()
    return a, b


@recipe("Add", "Sub", "Mul", "Div", "Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "StringConcat")
def binary(d):
    a, b = broadcast_pair(d)
    nonzero = d.name == "Div" and d.dtype(1).kind in "iu"
    d.node([d.x(0, a), d.x(1, b, *((1, 4) if nonzero else (-4, 4)))])


@recipe("Pow")
def power(d):
    a, b = broadcast_pair(d)
    d.node([d.x(0, a, 0 if d.maybe(0.7) else -3, 3), d.x(1, b, 0, 3)])


@recipe("Mod")
def modulo(d):
    a, b = broadcast_pair(d)
    real = d.dtype(0).kind not in "iu"
    y = d.x(1, b, 1, 5) if d.maybe(0.6) or d.dtype(0).kind == "u" else d.x(1, b, -5, -1)
    d.node([d.x(0, a, -9, 9), y], fmod=1 if real else default(d, flag(d)))


@recipe("BitShift")
def shift(d):
    a, b = broadcast_pair(d)
    d.node([d.x(0, a, 0, 100), d.x(1, b, 0, d.odd(7, 70))], direction=d.pick("LEFT", "RIGHT"))


@recipe("Max", "Min", "Sum", "Mean")
def several(d):
    whole = d.shape()
    d.node([d.x(0, [1 if d.maybe(0.2) else n for n in whole]) for _ in range(d.r.randint(1, 4))])


@recipe("Where")
def where(d):
    a, b = broadcast_pair(d)
    c = [1 if d.maybe(0.3) else n for n in max(a, b, key=len)]
    d.node([d.x(0, c), d.x(1, a), d.x(2, b)])


@recipe("PRelu")
def prelu(d):
    shape = d.shape(1)
    slope = [1 if d.maybe(0.4) else n for n in shape][d.r.randrange(len(shape)) :]
    d.node([d.x(0, shape), d.x(1, slope)])


@recipe("Clip")
def clip(d):
    if d.since < 11:
        return d.node([d.x(0, d.shape())], min=default(d, d.pick(-1.0, 0.0, 3.0)), max=default(d, d.pick(1.0, 2.5)))
    bound = lambda low, high: d.x(1, [], low, high, special=False) if d.maybe(0.7) else ""
    d.node([d.x(0, d.shape()), bound(-3, 1), bound(0, 3)])


@recipe("Cast", "CastLike")
def cast(d):
    source = d.dtype(0)
    from values import BOOL, ONNX, STRING

    target = d.dtype(0, "output")
    if STRING in (source, target) and source != target:
        source = d.bound[d.schema.inputs[0].type_str] = np.dtype("i4")
        if target == STRING:
            target = d.bound[d.schema.outputs[0].type_str] = np.dtype("i8")
    low = 0 if target.kind == "u" else -4
    x = d.tensor(source, d.shape(), low, 9, special=target.kind not in "iu")
    if d.name == "CastLike":
        return d.node([x, d.tensor(target, [1])])
    d.node([x], to=int(ONNX[target]))


@recipe("BitCast")
def bit_cast(d):
    from values import ONNX

    source = d.dtype(0)
    same = [t for t in (np.dtype(c) for c in ("u1", "i1", "i2", "u2", "f2", "i4", "u4", "f4", "i8", "u8", "f8")) if t.itemsize == source.itemsize]
    d.node([d.tensor(source, d.shape(), special=False)], to=int(ONNX[d.r.choice(same)]))


# --- rows
@recipe("Softmax", "LogSoftmax", "Hardmax")
def softmax(d):
    shape = d.shape(1)
    d.node([d.x(0, shape)], axis=default(d, axis(d, len(shape), 0 if d.since < 11 else None)))


@recipe("LpNormalization")
def lp_norm(d):
    shape = d.shape(1)
    d.node([d.x(0, shape)], axis=default(d, axis(d, len(shape))), p=default(d, d.odd(d.pick(1, 2), 3, 0)))


@recipe("ArgMax", "ArgMin")
def arg(d):
    shape = [max(n, 1) for n in d.shape(1)]
    d.node([d.x(0, shape, special=False)], axis=default(d, axis(d, len(shape), 0 if d.since < 11 else None)), keepdims=default(d, flag(d)), select_last_index=default(d, flag(d)))


def axes_list(d, rank, low=None):
    count = d.r.randint(0 if d.maybe(0.1) else 1, rank) if rank else 0
    axes = d.r.sample(range(rank), count)
    axes = [a - rank if low is None and d.maybe(0.3) else a for a in axes]
    return [d.odd(a, rank, -rank - 1, axes[0]) for a in axes]


@recipe("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare")
def reduce(d):
    shape = d.shape(1)
    low = 1 if d.name == "ReduceLogSum" else -3
    x = d.x(0, shape, low, 3, special=d.maybe(0.3))
    axes = axes_list(d, len(shape), 0 if d.since < 11 else None)
    keep, noop = default(d, flag(d)), default(d, flag(d))
    if d.has("axes"):
        return d.node([x], axes=default(d, axes or None), keepdims=keep)
    d.node([x, d.ints(axes) if d.maybe(0.8) else ""], keepdims=keep, noop_with_empty_axes=noop)


@recipe("CumSum", "CumProd")
def cumulative(d):
    shape = d.shape(1)
    a = axis(d, len(shape))
    d.node([d.x(0, shape, -2, 2), d.ints(a if d.maybe(0.8) else [a], d.pick(np.int64, np.int32))], exclusive=default(d, flag(d)), reverse=default(d, flag(d)))


@recipe("TopK")
def top_k(d):
    shape = [max(n, 1) for n in d.shape(1)]
    a = axis(d, len(shape), 0 if d.since < 11 else None)
    k = d.odd(d.r.randint(0 if d.maybe(0.1) else 1, shape[a]) if -len(shape) <= a < len(shape) else 1, 9, -1)
    d.node([d.x(0, shape, special=False), d.ints([k])], 2, axis=a, largest=default(d, flag(d)), sorted=1)


@recipe("LayerNormalization", "RMSNormalization")
def layer_norm(d):
    shape = [max(n, 1) for n in d.shape(1)]
    a = axis(d, len(shape))
    tail = shape[a:] if -len(shape) <= a < len(shape) else shape[-1:]
    parts = [d.x(0, shape), d.x(1, tail)]
    if d.name == "LayerNormalization" and d.maybe(0.6):
        parts.append(d.tensor(d.dtype(1), tail))
    d.node(parts, [1, *([1, 1] if d.name == "LayerNormalization" and d.maybe(0.3) else [])], axis=a, epsilon=default(d, 1e-3), stash_type=default(d, d.odd(1, 0, 7)))


@recipe("GroupNormalization")
def group_norm(d):
    groups = d.r.randint(1, 3)
    c = groups * d.r.randint(1, 3)
    shape = [d.size(), c, *[d.size(2) for _ in range(d.r.randint(1, 3))]]
    n = groups if d.since < 21 else c
    d.node([d.x(0, shape, special=False), d.x(1, [n]), d.x(2, [n])], num_groups=d.odd(groups, c + 1, 0), epsilon=default(d, 1e-3), stash_type=default(d, 1))


@recipe("InstanceNormalization")
def instance_norm(d):
    shape = [d.size(), d.size(), *[d.size(2) for _ in range(d.r.randint(1, 3))]]
    d.node([d.x(0, shape, special=False), d.x(1, [shape[1]]), d.x(2, [shape[1]])], epsilon=default(d, 1e-2))


@recipe("MeanVarianceNormalization")
def mvn(d):
    shape = [d.size(2) for _ in range(4)]
    d.node([d.x(0, shape, special=False)], axes=default(d, axes_list(d, 4) or None))


@recipe("LRN")
def lrn(d):
    shape = [d.size(), d.size(1, 7), *[d.size() for _ in range(d.r.randint(1, 3))]]
    d.node([d.x(0, shape)], size=d.odd(d.pick(1, 3, 5, 2, 4), 0), alpha=default(d, 0.3), beta=default(d, 0.5), bias=default(d, 2.0))


@recipe("BatchNormalization")
def batch_norm(d):
    shape = [max(d.size(), 1), d.size(), *[d.size(2) for _ in range(d.r.randint(0, 3))]]
    c = [shape[1]]
    training = d.since >= 14 and d.maybe(0.4)
    d.node([d.x(0, shape, special=False), d.x(1, c), d.x(2, c), d.x(3, c), d.x(4, c, 0.1, 3, False)], [1, 1, 1] if training else 1,
           epsilon=default(d, 1e-2), momentum=default(d, 0.7), training_mode=1 if training else default(d, 0), spatial=default(d, 1))  # fmt: skip


# --- products
@recipe("MatMul", "MatMulInteger")
def matmul(d):
    m, k, n = d.size(1, 20), d.r.randint(1, 40), d.size(1, 20)  # over nothing ONNX Runtime leaves memory as it is
    batch = d.shape(0, 2)
    a, b = [*batch, m, k], [*([1 if d.maybe(0.2) else s for s in batch] if d.maybe(0.5) else []), k, n]
    if d.maybe(0.1):
        a = [k]
    if d.maybe(0.1):
        b = [k]
    if d.name == "MatMul":
        return d.node([d.x(0, a), d.x(1, b)])
    zero = lambda i, n: d.x(i, n, 0, 9) if d.maybe(0.6) else ""
    d.node([d.x(0, a, -90, 90), d.x(1, b, -90, 90), zero(2, [] if d.maybe(0.7) or len(a) < 2 else [m]), zero(3, [] if d.maybe(0.6) or len(b) < 2 else [n])])


@recipe("Gemm")
def gemm(d):
    m, k, n = d.size(1, 20), d.size(1, 40), d.size(1, 20)
    ta, tb = flag(d), flag(d)
    c = d.pick([m, n], [n], [1, n], [m, 1], [1], [1, 1])
    if d.since >= 7 and d.maybe(0.2):
        c = []
    whole = d.dtype(0).kind in "iu"
    third = d.x(2, c) if d.since < 11 or d.maybe(0.7) else ""
    d.node([d.x(0, [k, m] if ta else [m, k]), d.x(1, [n, k] if tb else [k, n]), third], transA=default(d, ta, 0 if ta else 0.5), transB=default(d, tb, 0 if tb else 0.5),
           alpha=default(d, d.pick(1.0, 2.0) if whole else d.pick(0.5, -1.0, 0.0)), beta=default(d, d.pick(1.0, 2.0) if whole else d.pick(0.5, 0.0)))  # fmt: skip


@recipe("Einsum")
def einsum(d):
    equation = d.pick("ij,jk->ik", "ij,jk", "bij,bjk->bik", "ij->ji", "ii->i", "ij->", "...ij,...jk->...ik", "i,j->ij", "bij,bkj->bik", "ij,ij->ij", "bhid,bhjd->bhij", "ii", " i j , j k -> i k")
    sizes = {c: d.size(1, 5) for c in "ijkbhd"}
    left = equation.replace(" ", "").split("->")[0].split(",")
    dots = [d.size(1, 3)]
    shapes = [[*(dots if "..." in t else []), *[sizes[c] for c in t.replace("...", "")]] for t in left]
    d.node([d.x(0, s) for s in shapes], equation=equation)


def windows(d, spatial, kernel):
    """strides, dilations, pads, auto_pad of a window."""
    auto = d.pick(None, None, "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    strides = [d.odd(d.pick(1, 1, 2, 3), 0) for _ in spatial]
    dilations = [d.odd(d.pick(1, 1, 1, 2), 0) for _ in spatial]
    pads = None
    if auto in (None, "NOTSET") and d.maybe(0.6):
        pads = [d.odd(d.r.randint(0, max(k - 1, 0)), -1, 9) for k in kernel] + [d.r.randint(0, max(k - 1, 0)) for k in kernel]
    return dict(strides=default(d, strides), dilations=default(d, dilations), pads=pads, auto_pad=auto)


@recipe("Conv", "ConvInteger", "QLinearConv", "ConvTranspose")
def conv(d):
    n = d.pick(1, 2, 2, 2, 3)
    kernel = [d.pick(1, 2, 3, 3) for _ in range(n)]
    spatial = [d.r.randint(k * 2 - 1, k * 2 + 5) for k in kernel]
    groups = d.pick(1, 1, 1, 2, 3)
    cin, cout = groups * d.r.randint(1, 3), groups * d.r.randint(1, 3)
    x, w = [d.size(1, 2), cin, *spatial], [cout, cin // groups, *kernel] if d.name != "ConvTranspose" else [cin, cout // groups, *kernel]
    more = windows(d, spatial, kernel)
    common = dict(group=d.odd(groups, 5) if groups > 1 or d.maybe(0.3) else None, kernel_shape=default(d, kernel), **more)
    if d.name == "ConvTranspose":
        strides = more["strides"] or [1] * n
        if d.maybe(0.3):
            common["output_padding"] = [d.odd(d.r.randint(0, max(s - 1, 0)), 9) for s in strides]
        elif d.maybe(0.2):
            common.pop("pads")
            common["output_shape"] = [s * t for s, t in zip(spatial, strides)]
    if d.name in ("Conv", "ConvTranspose"):
        return d.node([d.x(0, x, special=d.maybe(0.2)), d.x(1, w, special=d.maybe(0.2)), d.x(2, [cout]) if d.maybe(0.6) else ""], **common)
    if d.name == "ConvInteger":
        return d.node([d.x(0, x, -90, 90), d.x(1, w, -90, 90), d.x(2, [], 0, 9) if d.maybe(0.6) else "", d.x(3, [] if d.maybe(0.7) else [cout], 0, 9) if d.maybe(0.5) else ""], **common)
    each = d.maybe(0.4)
    f = np.dtype("f4")
    scale = lambda shape: d.tensor(f, shape, 0.01, 0.2, False)
    d.node([d.x(0, x, -90, 90), scale([]), d.x(2, [], 0, 9), d.x(3, w, -90, 90), scale([cout] if each else []), d.x(5, [cout] if each else [], 0, 0 if each else 5),
            d.tensor(f, [], 0.2, 2, False), d.x(7, [], 0, 9), d.tensor(np.dtype("i4"), [cout], -99, 99) if d.maybe(0.6) else ""], **common)  # fmt: skip


@recipe("MaxPool", "AveragePool", "LpPool")
def pool(d):
    n = d.pick(1, 2, 2, 3)
    kernel = [d.pick(1, 2, 3) for _ in range(n)]
    spatial = [d.r.randint(k * 2 - 1, k * 2 + 4) for k in kernel]
    more = windows(d, spatial, kernel)
    outputs = [1, 1] if d.name == "MaxPool" and d.since >= 8 and d.maybe(0.3) else 1
    d.node([d.x(0, [d.size(1, 2), d.size(1, 3), *spatial], special=d.maybe(0.2))], outputs, kernel_shape=[d.odd(k, 0, 19) for k in kernel], ceil_mode=default(d, flag(d)),
           count_include_pad=default(d, flag(d)), p=default(d, d.odd(d.pick(1, 2, 3), 0)), storage_order=default(d, flag(d)), **more)  # fmt: skip


@recipe("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(d):
    d.node([d.x(0, [d.size(1, 3), d.size(), *[d.size(1, 4) for _ in range(d.r.randint(1, 3))]], special=d.maybe(0.2))], p=default(d, d.pick(1, 2, 3)))


@recipe("MaxUnpool")
def max_unpool(d):
    n, c, h, w = d.size(1, 2), d.size(1, 2), d.size(1, 3), d.size(1, 3)
    spots = [d.np.permutation(h * w * 4)[: h * w] + (i * c + j) * h * w * 4 for i in range(n) for j in range(c)]
    at = np.array(spots, np.int64).reshape(n, c, h, w)
    if at.size and d.odd_share and d.maybe(0.2):
        at.reshape(-1)[0] = d.odd(0, 10**6, -5)
    d.node([d.x(0, [n, c, h, w]), d.input(at), d.ints([n, c, 2 * h, 2 * w]) if d.since >= 9 and d.maybe(0.3) else ""], kernel_shape=[2, 2], strides=[2, 2])


import schema_recipes_moves  # noqa: E402,F401  adds its own
