"""Random graphs for Gradient: a chain of layers over double tensors, with branches that join again, and a weighted sum of all of its
elements at the end. A layer is a function (rng, build, value) that adds nodes and gives a value; `build` makes parameters (which the
derivatives are taken by) and constants."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LAYERS = {}


def layer(function):
    LAYERS[function.__name__] = function
    return function


class Value:
    def __init__(self, name, array):
        self.name, self.array = name, np.asarray(array)  # the array: what the reference computed, for its shape and range

    @property
    def shape(self):
        return list(self.array.shape)

    @property
    def rank(self):
        return self.array.ndim


class Build:
    """Nodes as they are added, each run at once by ONNX's reference, so that a layer sees the values that it continues."""

    def __init__(self, rng, run):
        self.rng, self.run = rng, run
        self.nodes, self.parameters, self.constants = [], {}, {}
        self.count = 0

    def name(self, base):
        self.count += 1
        return f"{base}{self.count}"

    def parameter(self, *shape, low=None):
        array = self.rng.normal(size=shape)
        if low is not None:
            array = np.abs(array) + low
        value = Value(self.name("x"), array)
        self.parameters[value.name] = value.array
        return value

    def constant(self, array):
        value = Value(self.name("c"), np.asarray(array))
        self.constants[value.name] = value.array
        return value

    def ints(self, *values):
        return self.constant(np.asarray(values, np.int64))

    def op(self, op, *inputs, outputs=1, **attributes):
        names = [self.name(op.lower()) for _ in range(outputs)]
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        node = helper.make_node(op, [i.name if i is not None else "" for i in inputs], names, name=names[0], **{k: v for k, v in attributes.items() if v is not None})
        arrays = self.run(node, [None if i is None else i.array for i in inputs])
        self.nodes.append(node)
        values = [Value(n, a) for n, a in zip(names, arrays)]
        return values[0] if outputs == 1 else values


def pick(rng, *values):
    return values[int(rng.integers(len(values)))]


def size(rng, low=1, high=4):
    return int(rng.integers(low, high + 1))


@layer
def pointwise(rng, b, x):
    op = pick(rng, "Abs", "Atan", "Asinh", "Cos", "Elu", "Exp", "Gelu", "HardSwish", "HardSigmoid", "LeakyRelu", "Mish", "Neg", "Relu", "Selu", "Sigmoid", "Sin", "Sinh",
              "Softplus", "Softsign", "Tanh", "Identity", "Cosh", "Swish", "ThresholdedRelu", "Shrink", "Floor")
    attributes = {"alpha": 0.7} if op in ("Elu", "LeakyRelu", "Swish") and rng.random() < 0.5 else {}
    if op == "Gelu":
        attributes["approximate"] = "tanh"
    if op in ("Exp", "Sinh", "Cosh"):
        x = b.op("Tanh", x)
    return b.op(op, x, **attributes)


@layer
def of_positive(rng, b, x):
    op = pick(rng, "Log", "Sqrt", "Reciprocal", "Acosh")
    return b.op(op, b.op("Add", b.op("Softplus", x), b.constant(1.1)))


@layer
def of_small(rng, b, x):
    return b.op(pick(rng, "Asin", "Acos", "Atanh", "Tan"), b.op("Mul", b.op("Tanh", x), b.constant(0.8)))


def beside(rng, shape):
    """A shape that broadcasts with `shape`."""
    shape = [1 if rng.random() < 0.3 else d for d in shape]
    return shape[size(rng, 0, len(shape)):] if rng.random() < 0.4 else shape


@layer
def binary(rng, b, x):
    op = pick(rng, "Add", "Sub", "Mul", "Div", "Max", "Min", "Mean", "Sum", "PRelu", "Pow")
    y = b.parameter(*beside(rng, x.shape), low=0.5 if op in ("Div", "Pow") else None)
    if op == "Pow":
        return b.op("Pow", b.op("Add", b.op("Softplus", x), b.constant(0.5)), y)
    if op in ("Max", "Min", "Mean", "Sum") and rng.random() < 0.5:
        return b.op(op, x, y, b.parameter(*beside(rng, x.shape)))
    if op != "PRelu" and op != "Div" and rng.random() < 0.5:
        return b.op(op, y, x)
    return b.op(op, x, y)


@layer
def clip(rng, b, x):
    return b.op("Clip", x, b.constant(-0.9), b.constant(0.8))


@layer
def where(rng, b, x):
    return b.op("Where", b.constant(rng.random(beside(rng, x.shape)) < 0.5), x, b.parameter(*beside(rng, x.shape)))


@layer
def matmul(rng, b, x):
    if x.rank == 0:
        return x
    k = x.shape[-1]
    w = b.parameter(*pick(rng, (k, size(rng)), (k,), *([(2, k, size(rng))] if x.rank < 3 else [])))
    return b.op("MatMul", x, w)


@layer
def matmul_left(rng, b, x):
    if x.rank < 2:
        return x
    return b.op("MatMul", b.parameter(*pick(rng, (size(rng), x.shape[-2]), (x.shape[-2],))), x)


@layer
def gemm(rng, b, x):
    if x.rank != 2:
        return x
    ta, tb, n = int(rng.integers(2)), int(rng.integers(2)), size(rng)
    m, k = x.shape[::-1] if ta else x.shape
    w = b.parameter(*((n, k) if tb else (k, n)))
    return b.op("Gemm", x, w, pick(rng, None, b.parameter(n), b.parameter(m, 1), b.parameter(m, n)), transA=ta, transB=tb, alpha=float(rng.uniform(0.5, 1)), beta=0.5)


@layer
def einsum(rng, b, x):
    if x.rank != 3:
        return x
    i, j, k = x.shape
    equation, shape = pick(rng, ("ijk,kl->ijl", (k, 2)), ("ijk,ijl->ikl", (i, j, 2)), ("ijk,j->ik", (j,)))
    return b.op("Einsum", x, b.parameter(*shape), equation=equation)


def image(rng, b, x):
    """Channels and one or two spatial axes, made of any tensor."""
    c, h, w = size(rng, 1, 2) * 2, size(rng, 4, 7), size(rng, 4, 7)
    shape = [size(rng, 1, 2), c, h] + ([w] if rng.random() < 0.8 else [])
    flat = b.op("Reshape", x, b.ints(-1))
    return b.op("Reshape", b.op("MatMul", flat, b.op("Mul", b.parameter(flat.shape[0], int(np.prod(shape))), b.constant(0.5))), b.ints(*shape))


@layer
def conv(rng, b, x):
    x = image(rng, b, x)
    spatial, group = x.rank - 2, pick(rng, 1, 1, 2)
    kernel = [size(rng, 1, 3) for _ in range(spatial)]
    attributes = dict(group=group, strides=[size(rng, 1, 2) for _ in range(spatial)])
    if rng.random() < 0.3:
        attributes["auto_pad"] = pick(rng, "SAME_UPPER", "SAME_LOWER", "VALID")
    else:
        attributes.update(pads=[int(p) for p in rng.integers(0, 2, 2 * spatial)], dilations=[size(rng, 1, 2) if k < 3 else 1 for k in kernel])
    out = group * size(rng, 1, 2)
    return b.op("Conv", x, b.parameter(out, x.shape[1] // group, *kernel), pick(rng, None, b.parameter(out)), **attributes)


@layer
def conv_transpose(rng, b, x):
    x = image(rng, b, x)
    spatial, out = x.rank - 2, size(rng, 1, 2)  # the reference has no groups: test_grouped_transposed_convolution
    kernel, strides = [size(rng, 2, 3) for _ in range(spatial)], [size(rng, 1, 2) for _ in range(spatial)]
    return b.op("ConvTranspose", x, b.parameter(x.shape[1], out, *kernel), pick(rng, None, b.parameter(out)), strides=strides,
                pads=[int(p) for p in rng.integers(0, 2, 2 * spatial)], output_padding=[int(rng.integers(s)) for s in strides])


@layer
def pool(rng, b, x):
    x = image(rng, b, x)
    op = pick(rng, "MaxPool", "AveragePool", "GlobalAveragePool")
    if op.startswith("Global"):
        return b.op(op, x)
    spatial = x.rank - 2
    attributes = dict(kernel_shape=[size(rng, 1, 3) for _ in range(spatial)], strides=[size(rng, 1, 2) for _ in range(spatial)])
    # The reference confuses pads that differ between the axes.
    attributes["pads"] = [int(rng.integers(0, 2)) if min(attributes["kernel_shape"]) > 1 else 0] * 2 * spatial
    if op == "AveragePool":
        attributes["count_include_pad"] = int(rng.integers(2))
    return b.op(op, x, **attributes)


@layer
def normalization(rng, b, x):
    x = image(rng, b, x)
    c = x.shape[1]
    scale, bias = b.parameter(c), b.parameter(c)
    op = pick(rng, "BatchNormalization", "InstanceNormalization", "GroupNormalization", "LayerNormalization", "RMSNormalization", "training")
    if op == "BatchNormalization":
        return b.op(op, x, scale, bias, b.parameter(c), b.parameter(c, low=0.5))
    if op == "training":
        return b.op("BatchNormalization", x, scale, bias, b.constant(np.zeros(c)), b.constant(np.ones(c)), outputs=3, training_mode=1)[0]
    if op == "InstanceNormalization":
        return b.op(op, x, scale, bias)
    if op == "GroupNormalization":
        return b.op(op, x, scale, bias, num_groups=2)
    axis = pick(rng, -1, 2, 1)
    shape = x.shape[axis:]
    return b.op(op, x, b.parameter(*shape), *([pick(rng, None, b.parameter(*shape))] if op[0] == "L" else []), axis=axis)


@layer
def softmax(rng, b, x):
    if x.rank == 0:
        return x
    return b.op(pick(rng, "Softmax", "LogSoftmax"), x, axis=int(rng.integers(-x.rank, x.rank)))


@layer
def loss(rng, b, x):
    classes, batch = size(rng, 2, 4), size(rng, 1, 3)
    rest = [size(rng, 1, 2)] if rng.random() < 0.4 else []
    flat = b.op("Reshape", x, b.ints(-1))
    shape = [batch, classes, *rest]
    scores = b.op("Reshape", b.op("MatMul", flat, b.parameter(flat.shape[0], int(np.prod(shape)))), b.ints(*shape))
    labels = rng.integers(0, classes, [batch, *rest])
    attributes = {"reduction": pick(rng, "mean", "sum", "none")}
    if rng.random() < 0.4 and labels.size > 1:
        attributes["ignore_index"] = int(pick(rng, -1, labels.flat[0])) if len(set(labels.flat)) > 1 else -1
        if attributes["ignore_index"] == -1:
            labels.flat[0] = -1
    # The reference counts ignored labels in a mean without weights.
    needed = "ignore_index" in attributes and attributes["reduction"] == "mean"
    weights = b.constant(rng.uniform(0.5, 1, classes)) if needed or rng.random() < 0.5 else None
    if rng.random() < 0.5:
        return b.op("NegativeLogLikelihoodLoss", b.op("LogSoftmax", scores, axis=1), b.constant(labels), weights, **attributes)
    return b.op("SoftmaxCrossEntropyLoss", scores, b.constant(labels), weights, **attributes)


@layer
def reduction(rng, b, x):
    op = pick(rng, "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp", "ReduceLogSum", "ReduceProd")
    if op == "ReduceLogSum":
        x = b.op("Add", b.op("Softplus", x), b.constant(0.3))
    axes = [int(a) for a in rng.permutation(x.rank)[:size(rng, 0, x.rank)]]
    if op == "ReduceProd":
        axes = axes[:1] if axes else []
        if not axes and x.rank != 1:
            return x
    axes = [a - x.rank if rng.random() < 0.3 else a for a in axes]
    return b.op(op, x, b.ints(*axes) if axes else None, keepdims=int(rng.integers(2)))


@layer
def moved(rng, b, x):
    if x.rank == 0:
        return b.op("Unsqueeze", x, b.ints(0))
    kind = int(rng.integers(8))
    axis = int(rng.integers(x.rank))
    if kind == 0:
        return b.op("Transpose", x, perm=[int(p) for p in rng.permutation(x.rank)])
    if kind == 1:
        return b.op("Flatten", x, axis=int(rng.integers(0, x.rank + 1)))
    if kind == 2:
        return b.op("Unsqueeze", x, b.ints(axis))
    if kind == 3:
        ones = [k for k, d in enumerate(x.shape) if d == 1]
        return b.op("Squeeze", x, b.ints(*ones[:1])) if ones else x
    if kind == 4:
        return b.op("Expand", b.op("Unsqueeze", x, b.ints(axis)), b.ints(*x.shape[:axis], 2, *x.shape[axis:]))
    if kind == 5:
        return b.op("Tile", x, b.ints(*[size(rng, 1, 2) for _ in x.shape]))
    if kind == 6:
        return b.op("CumSum", x, b.constant(np.int64(axis)), reverse=int(rng.integers(2)), exclusive=int(rng.integers(2)))
    return b.op("Pad", x, b.ints(*[int(p) for p in rng.integers(0, 2, 2 * x.rank)]), b.constant(0.5))


@layer
def sliced(rng, b, x):
    axes = [k for k, d in enumerate(x.shape) if d > 1]
    if not axes:
        return x
    axes = axes[:size(rng, 1, 2)]
    steps = [pick(rng, 1, 2, -1) for _ in axes]
    starts = [0 if s > 0 else x.shape[a] - 1 for a, s in zip(axes, steps)]
    starts = [s + 1 if step == 1 else s for s, step in zip(starts, steps)]
    ends = [x.shape[a] + 5 if s > 0 else -x.shape[a] - 1 for a, s in zip(axes, steps)]
    return b.op("Slice", x, b.ints(*starts), b.ints(*ends), b.ints(*axes), b.ints(*steps))


@layer
def gathered(rng, b, x):
    if x.rank == 0:
        return x
    axis, kind = int(rng.integers(x.rank)), int(rng.integers(3))
    d = x.shape[axis]
    if kind == 0:
        return b.op("Gather", x, b.constant(rng.integers(-d, d, [size(rng, 1, 3) for _ in range(size(rng, 0, 2))])), axis=axis)
    if kind == 1:
        return b.op("GatherElements", x, b.constant(rng.integers(0, d, [e if k != axis else 3 for k, e in enumerate(x.shape)])), axis=axis)
    depth = size(rng, 1, x.rank)
    return b.op("GatherND", x, b.constant(np.stack([rng.integers(0, e, 3) for e in x.shape[:depth]], -1)))


@layer
def scattered(rng, b, x):
    if x.rank == 0:
        return x
    d = x.shape[0]
    rows = rng.permutation(d)[:size(rng, 1, d)]
    return b.op("ScatterND", x, b.constant(rows[:, None]), b.parameter(len(rows), *x.shape[1:]), reduction=pick(rng, "none", "add"))


@layer
def joined(rng, b, x):
    if x.rank == 0:
        return x
    axis = int(rng.integers(x.rank))
    other = list(x.shape)
    other[axis] = size(rng)
    return b.op("Concat", *pick(rng, (x, b.parameter(*other)), (b.parameter(*other), x, x)), axis=axis)


@layer
def parted(rng, b, x):
    axes = [k for k, d in enumerate(x.shape) if d > 1]
    if not axes:
        return x
    axis = axes[0]
    first = size(rng, 1, x.shape[axis] - 1)
    left, right = b.op("Split", x, b.ints(first, x.shape[axis] - first), outputs=2, axis=axis)
    return b.op("Concat", right, b.op("Sigmoid", left), axis=axis) if rng.random() < 0.7 else left


@layer
def square_blocks(rng, b, x):
    flat = b.op("Reshape", x, b.ints(-1))
    big = b.op("Reshape", b.op("MatMul", flat, b.parameter(flat.shape[0], 32)), b.ints(1, 8, 2, 2))
    if rng.random() < 0.3:
        return b.op("SpaceToDepth", big, blocksize=2)
    return b.op("DepthToSpace", big, blocksize=2, mode=pick(rng, "DCR", "CRD"))


@layer
def triangle(rng, b, x):
    return b.op("Trilu", x, upper=int(rng.integers(2))) if x.rank >= 2 else x


@layer
def recalled(rng, b, x):
    """A value that two nodes read: their adjoints are added."""
    return b.op("Mul", b.op("Tanh", x), b.op("Sigmoid", x))


def random_graph(rng, run, layers):
    """The nodes up to y (a scalar), parameters and constants."""
    b = Build(rng, run)
    x = b.parameter(*[size(rng) for _ in range(size(rng, 1, 3))])
    names = list(LAYERS)
    for _ in range(layers):
        try:
            made = LAYERS[pick(rng, *names)](rng, b, x)
        except (IndexError, TypeError, ValueError):  # of ONNX's reference, in some poolings and convolutions, and of scalars
            continue
        if 0 < made.array.size <= 300 and np.isfinite(made.array).all() and np.abs(made.array).max() < 50:
            x = made
    weights = b.constant(rng.normal(size=x.shape))
    y = b.op("ReduceSum", b.op("Mul", x, weights), keepdims=0)
    return b, y


def model_of(b, y, names, opset=24):
    gradients = [f"d_{n}" for n in names]
    node = helper.make_node("Gradient", names, gradients, name="gradient", domain="ai.onnx.preview.training", xs=names, y=y.name)
    inputs = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, b.parameters[n].shape) for n in names]
    constants = [numpy_helper.from_array(a, n) for n, a in b.constants.items()] + [numpy_helper.from_array(a, n) for n, a in b.parameters.items() if n not in names]
    outputs = [helper.make_tensor_value_info(y.name, TensorProto.DOUBLE, [])] + [helper.make_tensor_value_info(f"d_{n}", TensorProto.DOUBLE, b.parameters[n].shape) for n in names]
    graph = helper.make_graph(b.nodes + [node], "graph", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.preview.training", 1)], ir_version=10)


def forward_model(b, y, names, opset=24):
    """The same without Gradient."""
    model = model_of(b, y, names, opset)
    del model.graph.node[-1]
    del model.graph.output[1:]
    return onnx.ModelProto.FromString(model.SerializeToString())
