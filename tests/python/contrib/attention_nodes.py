"""Generators of attention operators; see nodes.py."""

import numpy as np
from harness import Node, session
from nodes import generator, maybe, normal, one_of, size


def mask_of(rng, batch, length, total, starts=True):
    """One of the forms of a padding mask; the ones that ONNX Runtime's CPU kernels know."""
    kind = one_of(rng, None, "ends", "ends and starts", "keys", "full") if starts else one_of(rng, None, "keys", "full")
    ends = rng.integers(1, total + 1, batch)
    if kind is None:
        return None
    if kind == "ends":
        return ends.astype(np.int32)
    if kind == "ends and starts":
        return np.concatenate([ends, [int(rng.integers(0, e)) for e in ends]]).astype(np.int32)
    if kind == "keys":
        return (rng.random((batch, total)) < 0.7).astype(np.int32)
    return (rng.random((batch, length, total)) < 0.7).astype(np.int32)


def attention_bias(rng, batch, heads, length, total):
    return maybe(rng, normal(rng, one_of(rng, 1, batch), one_of(rng, 1, heads), length, total))


def rest(rng):
    # What -10000 is added to is rounded to a thousandth, which is seen where a whole row is masked.
    value = one_of(rng, None, -10000.0, -50.0)
    return dict(scale=maybe(rng, float(rng.uniform(0.2, 1))), mask_filter_value=value, tolerance=3e-5 if value == -50.0 else 1e-3)


@generator
def Attention(rng):
    batch, length, heads, width, value_width = size(rng, 1, 3), size(rng), size(rng, 1, 3), size(rng, 1, 4), size(rng, 1, 4)
    hidden = size(rng, 2, 6)
    sizes = None
    past = None
    if rng.random() < 0.4:
        sizes = [heads * width, heads * width, heads * value_width]
    else:
        value_width = width
        hidden = heads * width  # the hidden size of the input, too
        past = maybe(rng, normal(rng, 2, batch, heads, size(rng), width))
    columns = sum(sizes) if sizes else 3 * heads * width
    total = length + (0 if past is None else past.shape[3])
    causal = int(rng.integers(2))
    bias = attention_bias(rng, batch, heads, length, total) if past is None else None  # not both on the CPU
    return Node("Attention",
                [normal(rng, batch, length, hidden), normal(rng, hidden, columns), normal(rng, columns), mask_of(rng, batch, length, total), past, bias],
                outputs=1 if past is None else 2, num_heads=heads, unidirectional=causal, qkv_hidden_sizes=sizes, **rest(rng))


@generator
def QAttention(rng):
    batch, length, heads, width = size(rng, 1, 3), size(rng), size(rng, 1, 3), size(rng, 1, 4)
    hidden = heads * width
    kind, weight_kind = np.uint8, one_of(rng, np.uint8, np.int8)
    past = maybe(rng, normal(rng, 2, batch, heads, size(rng), width))
    total = length + (0 if past is None else past.shape[3])
    per_column = rng.random() < 0.4
    integers = lambda t, *shape: rng.integers(np.iinfo(t).min, np.iinfo(t).max, shape, endpoint=True).astype(t)  # noqa: E731
    scales = np.float32(rng.uniform(0.005, 0.02, 3 * hidden if per_column else 1))
    zero = integers(weight_kind, 3 * hidden) if per_column else integers(weight_kind, 1)
    return Node("QAttention",
                [integers(kind, batch, length, hidden), integers(weight_kind, hidden, 3 * hidden), normal(rng, 3 * hidden), np.float32(rng.uniform(0.005, 0.02, 1)),
                 scales, mask_of(rng, batch, length, total), integers(kind, 1), zero, past],
                outputs=1 if past is None else 2, num_heads=heads, unidirectional=int(rng.integers(2)), tolerance=1e-3, constant=[1, 3, 4, 6, 7])


def answers(node):
    """What ONNX Runtime gives for another node."""
    model, feeds = node.model(0, False)
    return session(model.SerializeToString()).run(None, feeds)


@generator
def MultiHeadAttention(rng):
    batch, length, heads, width, value_width = size(rng, 1, 3), size(rng), size(rng, 1, 3), size(rng, 1, 4), size(rng, 1, 4)
    form = one_of(rng, "separate", "separate", "past", "packed qkv", "packed kv", "cross")
    keys = length if form in ("past", "packed qkv") else size(rng)
    value_width = value_width if form == "separate" else width
    hidden = heads * width
    query, bias, past = normal(rng, batch, length, hidden), None, [None, None]
    if form == "cross":
        key, value = normal(rng, batch, heads, keys, width), normal(rng, batch, heads, keys, value_width)
    else:
        key, value = normal(rng, batch, keys, hidden), normal(rng, batch, keys, heads * value_width)
        bias = maybe(rng, normal(rng, 2 * hidden + heads * value_width))
    if form == "past":
        past = [normal(rng, batch, heads, size(rng), width)] * 2
    total = keys + (past[0].shape[2] if form == "past" else 0)
    more = [mask_of(rng, batch, length, total, starts=False), attention_bias(rng, batch, heads, length, total), *past]
    product = form == "separate" and rng.random() < 0.3  # asks for the product of queries and keys too
    attributes = dict(num_heads=heads, unidirectional=0 if product else int(rng.random() < 0.3), **rest(rng))
    outputs = 3 if form == "past" else [True, False, False, True] if product else 1
    node = Node("MultiHeadAttention", [query, key, value, bias, *more], outputs=outputs, types={3: np.float32} if product else None, **attributes)
    if not form.startswith("packed"):
        return node
    # The packed forms, which ONNX Runtime has on GPUs, are the same tensors side by side.
    split = lambda t: t.reshape(*t.shape[:2], heads, width)  # noqa: E731
    if form == "packed qkv":
        inputs = [np.stack([split(query), split(key), split(value)], axis=3), None, None, bias]
    else:
        inputs = [query, np.stack([split(key), split(value)], axis=3), None, bias]
    return Node("MultiHeadAttention", inputs + more, want=answers(node), **attributes)


@generator
def DecoderMaskedMultiHeadAttention(rng):
    batch, heads, width = size(rng, 1, 3), size(rng, 1, 3), size(rng, 1, 4)
    hidden = heads * width
    query = normal(rng, batch, 1, hidden)
    if rng.random() < 0.5:
        keys = size(rng)
        key, value = [normal(rng, batch, heads, keys, width) for _ in range(2)]
        mask = maybe(rng, (rng.random((batch, keys)) < 0.7).astype(np.int32))
        return Node("DecoderMaskedMultiHeadAttention", [query, key, value, mask], num_heads=heads, tolerance=1e-3)
    # A buffer that is longer than what is in it. ONNX Runtime writes into the buffer itself: beside MultiHeadAttention.
    before, more = size(rng), size(rng)
    buffers = [normal(rng, batch, heads, before + more, width) for _ in range(2)]
    mask = maybe(rng, (rng.random((batch, before + 1)) < 0.7).astype(np.int32))
    bias = maybe(rng, normal(rng, 3 * hidden))
    key, value = [normal(rng, batch, 1, hidden) for _ in range(2)]
    scores = attention_bias(rng, batch, heads, 1, before + 1)
    same = Node("MultiHeadAttention", [query, key, value, bias, mask, scores, *[p[:, :, :before] for p in buffers]], outputs=3, num_heads=heads)
    y, *present = answers(same)
    present = [np.concatenate([p, buffer[:, :, before + 1 :]], axis=2) for p, buffer in zip(present, buffers)]
    inputs = [query, key, value] if rng.random() < 0.5 else [np.concatenate([query, key, value], axis=-1), None, None]
    return Node("DecoderMaskedMultiHeadAttention", [*inputs, mask, scores, *buffers, np.asarray([before], dtype=np.int32), None, None, bias], outputs=3,
                want=[y, *present], num_heads=heads, past_present_share_buffer=1, tolerance=1e-3)


def plain_attention(q, k, v, scale, visible):
    """q, k, v [length, heads, width]."""
    scores = np.einsum("ihd,jhd->hij", q, k).astype(np.float64) * scale
    scores = np.where(visible, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hij,jhd->ihd", weights, v)


def packed_case(rng):
    lengths = [size(rng, 1, 4) for _ in range(size(rng, 1, 3))]
    longest, tokens = max(lengths), sum(lengths)
    cumulated = np.cumsum([0] + lengths).astype(np.int32)
    places = [b * longest + i for b, n in enumerate(lengths) for i in range(longest)]
    real = [b * longest + i for b, n in enumerate(lengths) for i in range(n)]
    offset = np.asarray(real + [p for p in places if p not in real], dtype=np.int32).reshape(len(lengths), longest)
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    return tokens, offset, cumulated, sequence[:, None] == sequence[None, :]


@generator
def PackedAttention(rng):
    """ONNX Runtime has it on GPUs only: beside numpy."""
    tokens, offset, cumulated, visible = packed_case(rng)
    heads, width, hidden = size(rng, 1, 3), size(rng, 1, 4), size(rng, 2, 6)
    x, w, bias = normal(rng, tokens, hidden), normal(rng, hidden, 3 * heads * width), normal(rng, 3 * heads * width)
    q, k, v = [p.reshape(tokens, heads, width) for p in np.split(x @ w + bias, 3, axis=1)]
    y = plain_attention(q, k, v, 1 / np.sqrt(width), visible).reshape(tokens, -1).astype(np.float32)
    return Node("PackedAttention", [x, w, bias, offset, cumulated], num_heads=heads, want=[y], tolerance=3e-5)


@generator
def PackedMultiHeadAttention(rng):
    tokens, offset, cumulated, visible = packed_case(rng)
    heads, width = size(rng, 1, 3), size(rng, 1, 4)
    q, k, v = [normal(rng, tokens, heads, width) for _ in range(3)]
    bias = maybe(rng, normal(rng, 3, heads, width))
    b = np.zeros((3, heads, width)) if bias is None else bias
    y = plain_attention(q + b[0], k + b[1], v + b[2], 1 / np.sqrt(width), visible).reshape(tokens, -1).astype(np.float32)
    inputs = [np.stack([q, k, v], axis=2), None, None] if rng.random() < 0.5 else [p.reshape(tokens, -1) for p in (q, k, v)]
    flat = None if bias is None else bias.reshape(-1)
    return Node("PackedMultiHeadAttention", inputs + [flat, offset, cumulated], num_heads=heads, want=[y], tolerance=3e-5)


@generator
def GroupQueryAttention(rng):
    batch, key_heads, width = size(rng, 1, 3), size(rng, 1, 2), one_of(rng, 16, 32)
    heads = key_heads * size(rng, 1, 3)
    form = one_of(rng, "prompt", "decode", "decode", "fixed cache", "more tokens")
    if form == "more tokens":
        batch = 1
    length = 1 if form in ("decode", "fixed cache") else size(rng, 2, 5)
    before = {"prompt": 0, "fixed cache": size(rng, 2, 6)}.get(form, size(rng, 1, 6))
    filled = np.full(batch, 0 if form == "prompt" else before)
    if form == "fixed cache":  # rows of different lengths in a buffer that is longer
        filled = rng.integers(1, before, batch)
    total = int(filled.max()) + length
    buffer = before if form == "fixed cache" else before
    if form == "fixed cache" and buffer < total:
        buffer = total
    past = [None, None]
    if form != "prompt" or rng.random() < 0.5:
        past = [normal(rng, batch, key_heads, buffer, width) for _ in range(2)]
        for row, n in enumerate(filled):
            for p in past:
                p[row, :, n:] = 0
    packed = rng.random() < 0.4
    sizes = [heads * width, key_heads * width, key_heads * width]
    qkv = [normal(rng, batch, length, sum(sizes)), None, None] if packed else [normal(rng, batch, length, s) for s in sizes]
    rotary = rng.random() < 0.6
    rotated = one_of(rng, width, 16) // 2
    angles = rng.uniform(0, 6, (total + 3, rotated))
    caches = [np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)] if rotary else [None, None]
    bias = maybe(rng, normal(rng, one_of(rng, 1, batch), one_of(rng, 1, heads), length, total), 0.3)
    sink = maybe(rng, normal(rng, heads), 0.25)
    last = filled + length - 1
    if form == "prompt" and rng.random() < 0.5:  # rows that end in padding
        last = rng.integers(0, length, batch)
    more = past + [last.astype(np.int32), np.asarray(total, dtype=np.int32).reshape(one_of(rng, (), (1,)))] + caches + [None, bias, sink]
    attributes = dict(num_heads=heads, kv_num_heads=key_heads, do_rotary=int(rotary), rotary_interleaved=int(rng.integers(2)) if rotary else None,
                      scale=maybe(rng, float(rng.uniform(0.1, 0.5))), local_window_size=maybe(rng, size(rng, 1, 4), 0.4),
                      softcap=maybe(rng, float(rng.uniform(1, 5)), 0.3), smooth_softmax=maybe(rng, 1, 0.2) if sink is None else None)
    settings = dict(outputs=3, constant=[7, 8], tolerance=3e-5)
    if packed or rng.random() < 0.8:
        return Node("GroupQueryAttention", qkv + more, **settings, **attributes)
    # Normalized queries and keys, which ONNX Runtime has on GPUs: beside a node that is given them.
    scales = [normal(rng, width), normal(rng, width)]

    def normalized(x, scale):
        rows = x.reshape(batch, length, -1, width).astype(np.float64)
        return (rows / np.sqrt((rows**2).mean(-1, keepdims=True) + 1e-6) * scale).reshape(x.shape).astype(np.float32)

    same = Node("GroupQueryAttention", [normalized(qkv[0], scales[0]), normalized(qkv[1], scales[1]), qkv[2]] + more, **settings, **attributes)
    return Node("GroupQueryAttention", qkv + more + [None, None] + scales, want=answers(same), **settings, **attributes)


@generator
def RotaryEmbedding(rng):
    batch, length, heads, width = size(rng, 1, 3), size(rng, 1, 5), size(rng, 1, 3), 2 * size(rng, 2, 5)
    part = rng.random() < 0.4
    rotated = 2 * size(rng, 1, width // 2 - 1) if part else width
    angles = rng.uniform(0, 6, (12, rotated // 2))
    shape = (batch, length, heads * width) if rng.random() < 0.5 else (batch, heads, length, width)
    positions = np.asarray([int(rng.integers(0, 12 - length))]) if rng.random() < 0.4 else rng.integers(0, 12, (batch, length))
    return Node("RotaryEmbedding", [normal(rng, *shape), positions.astype(np.int64), np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)],
                interleaved=int(rng.integers(2)), num_heads=heads if part else maybe(rng, heads), rotary_embedding_dim=rotated if part else None, constant=[2, 3])
