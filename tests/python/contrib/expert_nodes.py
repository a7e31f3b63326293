"""Generators of mixtures of experts; see nodes.py."""

import numpy as np
from harness import Node
from nodes import generator, maybe, normal, one_of, sigmoid, size, softmax
from quantized_nodes import packed


def activated(first, third, attributes):
    """What stands between the projections of an expert."""
    kind = attributes["activation_type"]
    if kind == "swiglu":
        fusion = attributes["swiglu_fusion"]
        g, l = (first, third) if fusion == 0 else (first[..., ::2], first[..., 1::2]) if fusion == 1 else np.split(first, 2, axis=-1)
        limit = attributes.get("swiglu_limit", np.inf)
        g, l = np.minimum(g, limit), np.clip(l, -limit, limit)
        return g * sigmoid(attributes["activation_alpha"] * g) * (l + attributes["activation_beta"])
    return {"relu": np.maximum(first, 0), "silu": first * sigmoid(first), "identity": first}[kind]


def mixture(x, scores, w1, b1, w2, b2, w3, b3, attributes, weights=None):
    """[tokens, width] of float64."""
    k, y = attributes["k"], np.zeros_like(x)
    for t in range(len(x)):
        chosen = np.argsort(-scores[t], kind="stable")[:k]
        if weights is not None:
            share = weights[t, chosen] / (weights[t, chosen].sum() if attributes["normalize_routing_weights"] else 1)
        else:
            share = softmax(scores[t, chosen]) if attributes["normalize_routing_weights"] else softmax(scores[t])[chosen]
        for e, s in zip(chosen, share):
            first = w1[e] @ x[t] + b1[e]
            third = None if w3 is None else w3[e] @ x[t] + b3[e]
            y[t] += s * (w2[e] @ activated(first, third, attributes) + b2[e])
    return y


def parts(rng, hidden, inner):
    """Attributes, tokens, scores and the outputs of the first projection."""
    kind = one_of(rng, "relu", "silu", "identity", "swiglu", "swiglu")
    experts = size(rng, 2, 5)
    attributes = dict(activation_type=kind, k=size(rng, 1, experts), normalize_routing_weights=int(rng.integers(2)))
    if kind == "swiglu":
        attributes.update(swiglu_fusion=one_of(rng, 0, 1, 2), activation_alpha=float(rng.uniform(0.5, 2)), activation_beta=one_of(rng, 0.0, 1.0))
        if rng.random() < 0.5:
            attributes["swiglu_limit"] = float(rng.uniform(0.5, 2))
    lead = [size(rng), hidden] if rng.random() < 0.5 else [size(rng, 1, 2), size(rng), hidden]
    x = normal(rng, *lead)
    scores = normal(rng, x.size // hidden, experts)
    return attributes, x, scores, 2 * inner if kind == "swiglu" and attributes["swiglu_fusion"] else inner, kind == "swiglu" and not attributes["swiglu_fusion"]


@generator
def MoE(rng):
    """Beside numpy what ONNX Runtime's CPU form lacks."""
    hidden, inner = size(rng, 2, 9), size(rng, 1, 7)
    attributes, x, scores, rows, third = parts(rng, hidden, inner)
    experts = scores.shape[1]
    w1, w2 = normal(rng, experts, rows, hidden), normal(rng, experts, hidden, inner)
    w3 = normal(rng, experts, inner, hidden) if third else None
    b1, b2, b3 = (maybe(rng, normal(rng, experts, n)) for n in (rows, hidden, inner))
    b3 = b3 if third else None
    none = [np.zeros((experts, n)) for n in (rows, hidden, inner)]
    y = mixture(x.reshape(-1, hidden).astype(np.float64), scores, w1, none[0] if b1 is None else b1, w2, none[1] if b2 is None else b2, w3, none[2] if b3 is None else b3, attributes)
    theirs = attributes["activation_type"] != "swiglu" or attributes["swiglu_fusion"] == 1
    return Node("MoE", [x, scores, w1, b1, w2, b2, w3, b3], want=None if theirs else [y.reshape(x.shape).astype(np.float32)], tolerance=2e-5, **attributes)


@generator
def QMoE(rng):
    """Beside numpy: ONNX Runtime rounds what goes into products of 8-bit blocks."""
    bits, block = one_of(rng, 2, 4, 8), one_of(rng, 0, 16, 32)
    unit = max(block, 8)
    hidden, inner = unit * size(rng, 1, 2), unit * size(rng, 1, 2)
    attributes, x, scores, rows, third = parts(rng, hidden, inner)
    experts = scores.shape[1]

    def quantized(n, k):
        q = rng.integers(0, 2**bits, (experts, n, k))
        blocks = k // block if block else 1
        scales = rng.uniform(0.01, 0.1, (experts, n, blocks)).astype(np.float32)
        zero = rng.integers(0, 2**bits, (experts, n, blocks)) if with_zero else None
        w = (q.reshape(experts, n, blocks, -1) - (2 ** (bits - 1) if zero is None else zero[..., None])) * scales[..., None].astype(np.float64)
        if not block:
            scales, zero = scales[..., 0], None if zero is None else zero[..., 0]
        return packed(q, bits), scales, None if zero is None else packed(zero, bits), w.reshape(experts, n, k)

    with_zero = rng.random() < 0.5
    (q1, s1, z1, w1), (q2, s2, z2, w2) = quantized(rows, hidden), quantized(hidden, inner)
    q3, s3, z3, w3 = quantized(inner, hidden) if third else (None,) * 4
    b1, b2 = (maybe(rng, normal(rng, experts, n)) for n in (rows, hidden))
    b3 = maybe(rng, normal(rng, experts, inner)) if third else None
    weights = maybe(rng, rng.uniform(0.1, 1, scores.shape).astype(np.float32), 0.3)
    none = [np.zeros((experts, n)) for n in (rows, hidden, inner)]
    told = attributes if weights is not None else {**attributes, "normalize_routing_weights": 1}  # as ONNX Runtime's CPU form has it
    y = mixture(x.reshape(-1, hidden).astype(np.float64), scores, w1, none[0] if b1 is None else b1, w2, none[1] if b2 is None else b2, w3, none[2] if b3 is None else b3,
                told, weights)
    node = [x, scores, q1, s1, b1, q2, s2, b2, q3, s3, b3, z1, z2, z3, weights]
    return Node("QMoE", node, want=[y.reshape(x.shape).astype(np.float32)], constant=[2, 5, 8] + ([3, 6, 9, 11, 12, 13] if rng.random() < 0.7 else []), tolerance=2e-5,
                expert_weight_bits=bits, block_size=block or None, **attributes)
