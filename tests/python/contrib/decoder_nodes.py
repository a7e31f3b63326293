"""Generators of blocks of recent decoders; see nodes.py."""

import numpy as np
from harness import Node
from nodes import any_shape, generator, maybe, normal, one_of, sigmoid, size


@generator
def GatedRMSNorm(rng):
    width = size(rng)
    shape = any_shape(rng)[:3] + [width * size(rng, 1, 3)]
    return Node("GatedRMSNorm", [normal(rng, *shape), normal(rng, width), normal(rng, *shape)], activation=one_of(rng, None, "silu", "swish", "sigmoid"),
                epsilon=maybe(rng, 1e-3))


def branches(rng):
    """Lead, branches, width, the shape of streams and num_branches."""
    lead, count, width = [size(rng, 1, 3) for _ in range(size(rng, 1, 2))], size(rng, 1, 4), size(rng)
    flat = rng.random() < 0.5
    return lead, count, width, lead + ([count * width] if flat else [count, width]), count if flat else None


@generator
def BranchwiseRMSNorm(rng):
    _, count, width, shape, flat = branches(rng)
    scale = maybe(rng, normal(rng, *one_of(rng, (count * width,), (count, width), (width,))))
    return Node("BranchwiseRMSNorm", [normal(rng, *shape), scale], num_branches=flat, epsilon=maybe(rng, 1e-3))


@generator
def HyperConnectionPreMix(rng):
    lead, count, width, shape, flat = branches(rng)
    mix = one_of(rng, [count], [count, 1], [count, width], *([[count * width]] if flat else []))
    return Node("HyperConnectionPreMix", [normal(rng, *shape), normal(rng, *lead, *mix)], num_branches=flat, reduction_scale=maybe(rng, 0.5))


@generator
def HyperConnectionPostMix(rng):
    lead, count, width, shape, flat = branches(rng)
    mix = one_of(rng, [count], [count, 1], [count, width])
    return Node("HyperConnectionPostMix", [normal(rng, *shape), normal(rng, *lead, width), normal(rng, *lead, *mix), maybe(rng, normal(rng, *lead, count, count))],
                num_branches=flat)


@generator
def GatedAdd(rng):
    shape = any_shape(rng)
    return Node("GatedAdd", [normal(rng, *shape), normal(rng, *shape), normal(rng, *shape[:-1], 1)])


@generator
def LinearAttentionGate(rng):
    shape = [size(rng, 1, 3), size(rng), size(rng)]
    rate = maybe(rng, normal(rng, *shape))
    return Node("LinearAttentionGate", [normal(rng, *shape), normal(rng, shape[2]), normal(rng, shape[2]), rate], 1 if rate is None else 2)


@generator
def SwiGLU(rng):
    """On GPUs only: beside numpy."""
    shape = any_shape(rng)
    gate, up = normal(rng, *shape), normal(rng, *shape)
    alpha, beta, limit = one_of(rng, 1.0, 1.7), one_of(rng, 0.0, 1.0), one_of(rng, 0.0, 0.0, 0.8)
    g, l = (np.minimum(gate, limit), np.clip(up, -limit, limit)) if limit > 0 else (gate, up)
    inputs = [gate, up] if rng.random() < 0.5 else [np.concatenate([gate, up], -1), None]
    return Node("SwiGLU", inputs, want=[(g * sigmoid(alpha * g) * (l + beta)).astype(np.float32)], activation_alpha=alpha, activation_beta=beta, limit=limit,
                round_activation=int(rng.integers(2)))


@generator
def ScaledSiLU(rng):
    return Node("ScaledSiLU", [normal(rng, *any_shape(rng)), maybe(rng, np.asarray(rng.uniform(0.5, 2), dtype=np.float32))], alpha=maybe(rng, 1.5))


@generator
def MRotaryEmbedding(rng):
    batch, length, heads, half = size(rng, 1, 3), size(rng), size(rng, 1, 3), size(rng, 3, 8)
    a, b = sorted(rng.integers(0, half + 1, 2))
    layout = int(rng.integers(2))
    section = [int(a), int(b - a), int(half - b)]
    if layout == 1:
        section = [half - 2 * (half // 3), half // 3, half // 3]
    partial = int(rng.random() < 0.4)
    width = 2 * half + 2 * partial * size(rng, 1, 3)
    cache = rng.uniform(0, 6, (9, half))
    x = normal(rng, batch, length, heads * width) if rng.random() < 0.5 else normal(rng, batch, heads, length, width)
    return Node("MRotaryEmbedding", [x, rng.integers(0, 9, (3, batch, length)), np.cos(cache).astype(np.float32), np.sin(cache).astype(np.float32)], mrope_section=section,
                mrope_layout=layout, interleaved=int(rng.integers(2)), num_heads=heads if partial or x.ndim == 3 else None, rotary_embedding_dim=2 * half if partial else None,
                constant=[2, 3] if rng.random() < 0.5 else [])


@generator
def CausalConvWithState(rng):
    batch, channels, length, kernel, dilation = size(rng, 1, 3), size(rng), size(rng), size(rng, 1, 4), one_of(rng, 1, 1, 2, 3)
    last = int(rng.random() < 0.4)

    def laid(n):
        return normal(rng, *((batch, n, channels) if last else (batch, channels, n)))

    past = laid((kernel - 1) * dilation) if rng.random() < 0.6 and kernel > 1 else None
    return Node("CausalConvWithState", [laid(length), normal(rng, channels, 1, kernel), maybe(rng, normal(rng, channels)), past], 2, dilation=dilation, channels_last=last,
                activation=one_of(rng, None, "none", "silu", "swish"), constant=[1])


@generator
def LinearAttention(rng):
    batch, length, width, value_width, kv = size(rng, 1, 3), size(rng), size(rng), size(rng), size(rng, 1, 3)
    q_heads = kv * size(rng, 1, 2)
    rule = one_of(rng, "linear", "gated", "delta", "gated_delta")
    key = normal(rng, batch, length, kv, width)
    key = (key / np.linalg.norm(key, axis=-1, keepdims=True)).reshape(batch, length, -1)
    decay = -rng.uniform(0, 1, (batch, length, kv * one_of(rng, 1, width))).astype(np.float32) if "gated" in rule else None
    beta = rng.uniform(0, 1, (batch, length, one_of(rng, 1, kv))).astype(np.float32) if "delta" in rule else None
    past = maybe(rng, normal(rng, batch, kv, width, value_width))
    return Node("LinearAttention", [normal(rng, batch, length, q_heads * width), key, normal(rng, batch, length, kv * value_width), past, decay, beta], 2, q_num_heads=q_heads,
                kv_num_heads=kv, update_rule=rule, scale=maybe(rng, 0.7), tolerance=1e-4)
