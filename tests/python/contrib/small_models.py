"""Small models as exporters write them, for ONNX Runtime's optimizer and quantizer to work on."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper


class Builder:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.initializers, self.count = [], [], 0

    def weight(self, *shape, spread=0.3):
        return self.constant((self.rng.standard_normal(shape) * spread).astype(np.float32), "weight")

    def constant(self, value, name="constant"):
        self.count += 1
        self.initializers.append(numpy_helper.from_array(np.asarray(value), f"{name}_{self.count}"))
        return self.initializers[-1].name

    def op(self, op, *inputs, **attributes):
        self.count += 1
        inputs = [self.constant(np.asarray(i)) if not isinstance(i, str) else i for i in inputs]
        self.nodes.append(helper.make_node(op, inputs, [f"{op}_{self.count}"], name=f"{op}_{self.count}", **attributes))
        return self.nodes[-1].output[0]

    def model(self, inputs, output, opset):
        values = [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs]
        graph = helper.make_graph(self.nodes, "graph", values, [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)], self.initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


f32 = np.float32
WIDTH, HEADS, LENGTH = 32, 4, 6


def layer_norm(b, x):
    """As exporters write it before opset 17."""
    mean = b.op("ReduceMean", x, axes=[-1])
    apart = b.op("Sub", x, mean)
    variance = b.op("ReduceMean", b.op("Pow", apart, f32(2)), axes=[-1])
    norm = b.op("Div", apart, b.op("Sqrt", b.op("Add", variance, f32(1e-12))))
    return b.op("Add", b.op("Mul", norm, b.weight(WIDTH)), b.weight(WIDTH))


def gelu(b, x):
    erf = b.op("Erf", b.op("Div", x, f32(np.sqrt(2))))
    return b.op("Mul", b.op("Mul", x, b.op("Add", erf, f32(1))), f32(0.5))


def linear(b, x, rows, columns):
    return b.op("Add", b.op("MatMul", x, b.weight(rows, columns)), b.weight(columns))


def attention(b, x, mask):
    head = WIDTH // HEADS

    def split(v, perm):
        return b.op("Transpose", b.op("Reshape", v, np.asarray([0, 0, HEADS, head])), perm=perm)

    q = split(linear(b, x, WIDTH, WIDTH), [0, 2, 1, 3])
    k = split(linear(b, x, WIDTH, WIDTH), [0, 2, 3, 1])
    v = split(linear(b, x, WIDTH, WIDTH), [0, 2, 1, 3])
    scores = b.op("Add", b.op("Div", b.op("MatMul", q, k), f32(np.sqrt(head))), mask)
    y = b.op("MatMul", b.op("Softmax", scores, axis=3), v)
    y = b.op("Reshape", b.op("Transpose", y, perm=[0, 2, 1, 3]), np.asarray([0, 0, WIDTH]))
    return linear(b, y, WIDTH, WIDTH)


def encoder(seed=0, opset=12):
    """BERT's embeddings and two of its layers."""
    b = Builder(seed)
    words = b.op("Gather", b.weight(50, WIDTH), "ids")
    places = b.op("Gather", b.weight(LENGTH, WIDTH), np.arange(LENGTH)[None])
    segments = b.op("Gather", b.weight(2, WIDTH), "segments")
    x = layer_norm(b, b.op("Add", b.op("Add", words, segments), places))
    wide = b.op("Cast", b.op("Unsqueeze", b.op("Unsqueeze", "mask", axes=[1]), axes=[2]), to=TensorProto.FLOAT)
    mask = b.op("Mul", b.op("Sub", f32(1), wide), f32(-10000))
    for _ in range(2):
        x = layer_norm(b, b.op("Add", attention(b, x, mask), x))
        x = layer_norm(b, b.op("Add", linear(b, gelu(b, linear(b, x, WIDTH, 2 * WIDTH)), 2 * WIDTH, WIDTH), x))
    inputs = [(n, TensorProto.INT64, ["batch", LENGTH]) for n in ("ids", "segments", "mask")]
    return b.model(inputs, x, opset)


def encoder_feeds(rng):
    batch = int(rng.integers(1, 4))
    mask = np.ones((batch, LENGTH), dtype=np.int64)
    mask[0, 4:] = 0
    return {"ids": rng.integers(0, 50, (batch, LENGTH)), "segments": rng.integers(0, 2, (batch, LENGTH)), "mask": mask}


def convolutions(seed=0, opset=13):
    """Residual convolutions, pools, a concatenation and a classifier."""
    b = Builder(seed)

    def conv(x, inner, outer, size=3, **attributes):
        return b.op("Conv", x, b.weight(outer, inner, size, size), b.weight(outer), pads=[size // 2] * 4, **attributes)

    x = b.op("MaxPool", b.op("Relu", conv("x", 3, 8, strides=[2, 2])), kernel_shape=[2, 2], strides=[2, 2])
    y = conv(b.op("LeakyRelu", conv(x, 8, 8), alpha=0.1), 8, 8)
    x = b.op("Relu", b.op("Add", y, x))
    gate = b.op("Sigmoid", conv(b.op("GlobalAveragePool", x), 8, 8, 1))
    x = b.op("Concat", b.op("Mul", x, gate), b.op("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4), axis=1)
    x = b.op("HardSigmoid", conv(x, 16, 16, 1), alpha=0.2, beta=0.5)
    x = b.op("Flatten", b.op("GlobalAveragePool", x))
    x = b.op("Gemm", x, b.weight(5, 16), b.weight(5), transB=1)
    return b.model([("x", TensorProto.FLOAT, ["batch", 3, 16, 16])], b.op("Softmax", x, axis=1), opset)


def convolutions_feeds(rng):
    return {"x": rng.standard_normal((int(rng.integers(1, 3)), 3, 16, 16)).astype(np.float32)}
