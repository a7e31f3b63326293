"""Generators of what ONNX Runtime's tools make of encoders and of the loops around decoders; see nodes.py."""

import numpy as np
from harness import Node, session
from nodes import generator, maybe, normal, one_of, sigmoid, size, softmax


@generator
def BiasSoftmax(rng):
    """On GPUs only: beside numpy."""
    shape = [size(rng, 1, 4) for _ in range(size(rng, 2, 4))]
    axis = size(rng, 1, len(shape) - 1)
    bias = normal(rng, *[1 if rng.random() < 0.4 else d for d in shape])
    x = normal(rng, *shape)
    y = softmax((x + bias).reshape(int(np.prod(shape[:axis])), -1)).reshape(shape)
    return Node("BiasSoftmax", [x, bias], want=[y], axis=axis - (len(shape) if rng.random() < 0.3 else 0), is_inner_broadcast=int(rng.integers(2)))


def t5_buckets(queries, keys, count, both_ways, longest):
    """As T5's published code says it, in float32."""
    apart = np.arange(keys)[None] - np.arange(queries)[:, None]
    base = 0
    if both_ways:
        count //= 2
        base = (apart > 0) * count
        apart = np.abs(apart)
    else:
        apart = -np.minimum(apart, 0)
    exact = count // 2
    far = np.log(np.maximum(apart, 1).astype(np.float32) / np.float32(exact)) / np.float32(np.log(longest / exact)) * np.float32(count - exact)
    return base + np.where(apart < exact, apart, np.minimum(exact + far.astype(np.int64), count - 1))


@generator
def RelativePositionBias(rng):
    """On GPUs only: beside numpy. The table's bytes are those of its transpose."""
    heads, count, both_ways = size(rng, 1, 4), 4 * size(rng, 1, 8), int(rng.integers(2))
    longest = count * 2 + 3  # no distance lies on the edge of two buckets
    table = normal(rng, heads, count)
    n = size(rng, 1, 40)
    y = table[:, t5_buckets(n, n, count, both_ways, longest)][None]
    length = np.asarray(n, dtype=np.int64)
    return Node("RelativePositionBias", [table.reshape(count, heads), length, length], want=[y], constant=[0], is_bidirectional=both_ways,
                max_distance=longest)


def offsets(counts, length):
    there = (np.arange(length) < counts[:, None]).reshape(-1)
    return np.concatenate([np.flatnonzero(there), np.flatnonzero(~there)]).reshape(len(counts), length).astype(np.int32)


@generator
def RemovePadding(rng):
    """On GPUs only: beside numpy."""
    batch, length, width = size(rng, 1, 4), size(rng), size(rng)
    counts = rng.integers(0, length + 1, batch).astype(np.int32)
    x = normal(rng, batch, length, width)
    rows = np.concatenate([x[i, :n] for i, n in enumerate(counts)])
    sums = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return Node("RemovePadding", [x, counts], 4, want=[rows, offsets(counts, length), sums, counts.max(keepdims=True)], types={1: np.int32, 2: np.int32, 3: np.int32})


@generator
def RestorePadding(rng):
    """On GPUs only: beside numpy."""
    batch, length, width = size(rng, 1, 4), size(rng), size(rng)
    counts = rng.integers(0, length + 1, batch)
    y = normal(rng, batch, length, width) * (np.arange(length) < counts[:, None])[..., None]
    rows = np.concatenate([y[i, :n] for i, n in enumerate(counts)]).astype(np.float32)
    return Node("RestorePadding", [rows, offsets(counts, length)], want=[y.astype(np.float32)])


@generator
def GatedRelativePositionBias(rng):
    """On GPUs only: beside numpy."""
    batch, length, heads, width, d = size(rng, 1, 3), size(rng), size(rng, 1, 3), size(rng), 2 * size(rng, 1, 3)
    x = normal(rng, batch, length, heads * width)
    query_bias, rel_pos, weight, bias, eco = normal(rng, heads * width), normal(rng, 1, heads, length, length), normal(rng, width, d), normal(rng, d), normal(rng, 1, heads, 1, 1)
    node, tokens = [x, query_bias, rel_pos, weight, bias, eco, None], x
    if rng.random() < 0.4:
        counts = rng.integers(1, length + 1, batch)
        tokens = x * (np.arange(length) < counts[:, None])[..., None]
        node[0] = np.concatenate([x[i, :n] for i, n in enumerate(counts)])
        node[6] = offsets(counts, length)
    split = (tokens + query_bias).reshape(batch, length, heads, width).transpose(0, 2, 1, 3)
    gates = sigmoid((split @ weight + bias).reshape(batch, heads, length, 2, d // 2).sum(-1))
    gate = gates[..., :1] * (gates[..., 1:] * eco - 1) + 2
    return Node("GatedRelativePositionBias", node, want=[(gate * rel_pos).astype(np.float32)], num_heads=heads)


@generator
def GemmaRotaryEmbedding(rng):
    """On GPUs only: beside numpy."""
    batch, heads, length, width = size(rng, 1, 3), size(rng, 1, 3), size(rng), size(rng)
    angles = normal(rng, batch, length, width)
    q, q_rot, k, k_rot = (normal(rng, batch, heads, length, width, dtype=np.float16) for _ in range(4))
    sine, cosine = (f(angles).astype(np.float16)[:, None] for f in (np.sin, np.cos))
    return Node("GemmaRotaryEmbedding", [angles, q, q_rot, k, k_rot], 2, want=[q * cosine + q_rot * sine, k * cosine + k_rot * sine], tolerance=2e-3)


@generator
def NGramRepeatBlock(rng):
    batch, length, tokens = size(rng, 1, 3), size(rng, 1, 20), size(rng, 2, 5)
    return Node("NGramRepeatBlock", [rng.integers(0, tokens, (batch, length)), normal(rng, batch, tokens)], ngram_size=size(rng, 1, 4))


@generator
def ConvTransposeWithDynamicPads(rng):
    group, per, out = size(rng, 1, 2), size(rng, 1, 3), size(rng, 1, 3)
    kernel = [size(rng, 1, 3) for _ in range(2)]
    strides = [size(rng, 1, 3) for _ in range(2)]
    x = normal(rng, size(rng, 1, 2), group * per, size(rng, 3, 6), size(rng, 3, 6))
    pads = rng.integers(0, 2, 4)
    return Node("ConvTransposeWithDynamicPads", [x, normal(rng, group * per, out, *kernel), pads, maybe(rng, normal(rng, group * out))], group=group, strides=strides,
                kernel_shape=maybe(rng, kernel), dilations=[1, 1], output_padding=[int(rng.integers(s)) for s in strides])


@generator
def MatMulBnb4(rng):
    n, k, block = size(rng, 1, 9), int(rng.integers(3, 70)), one_of(rng, 16, 32, 64)
    count = n * k
    scales = rng.uniform(0.1, 1, -(-count // block)).astype(np.float32)
    forward = rng.random() < 0.7
    x = normal(rng, *[size(rng, 1, 3) for _ in range(size(rng, 0, 2))], size(rng), k if forward else n)
    constant = [1, 2] if rng.random() < 0.6 else []
    packed, kind = rng.integers(0, 256, (count + 1) // 2).astype(np.uint8), int(rng.integers(2))
    want = None
    if not forward:  # ONNX Runtime's CPU form steps through the weights as if they were transposed: the product with each row of a unit matrix gives them
        unit = Node("MatMulBnb4", [np.eye(k, dtype=np.float32), packed, scales], K=k, N=n, block_size=block, quant_type=kind)
        model, feeds = unit.model(0, False)
        want = [x @ session(model.SerializeToString()).run(None, feeds)[0].T]
    return Node("MatMulBnb4", [x, packed, scales], want=want, K=k, N=n, block_size=block, quant_type=kind, transB=int(forward), constant=constant, tolerance=2e-5)
