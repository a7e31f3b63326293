"""Generators of the small operators of com.microsoft; see nodes.py."""

import numpy as np
from harness import Node, session
from nodes import any_shape, generator, maybe, normal, one_of, size


@generator
def WordConvEmbedding(rng):
    """Words of any length, with characters that the table lacks. ONNX Runtime leaves as it finds it what a word that begins with no character
    is: 0 here."""
    count, length, channels, filters, table = size(rng, 0, 6), size(rng, 1, 8), size(rng, 1, 4), size(rng, 1, 5), size(rng, 1, 9)
    window = size(rng, 1, length)
    words = rng.integers(0, table + (2 if rng.random() < 0.2 else 0), (count, length)).astype(np.int32)
    words[np.arange(length) >= rng.integers(0, length + 1, (count, 1))] = one_of(rng, 0, 0, -1)
    operands = [words, normal(rng, filters, 1, window, channels), normal(rng, filters), normal(rng, table, channels)]
    attributes = dict(embedding_size=maybe(rng, filters), conv_window_size=maybe(rng, window), char_embedding_size=maybe(rng, channels))
    model, feeds = Node("WordConvEmbedding", operands, **attributes).model(0, False)
    want = session(model.SerializeToString()).run(None, feeds)[0]
    return Node("WordConvEmbedding", operands, want=[np.where(words[:, :1] > 0, want, 0)], **attributes)


@generator
def CDist(rng):
    width = size(rng)
    return Node("CDist", [normal(rng, size(rng), width), normal(rng, size(rng), width)], metric=one_of(rng, "sqeuclidean", "euclidean"), tolerance=1e-4)


def complex_product(conjugate):
    def make(rng):
        """On GPUs only: beside numpy."""
        shape = [*any_shape(rng)[:3], 2]
        a, b = normal(rng, *shape), normal(rng, *shape)
        left, right = a[..., 0] + 1j * a[..., 1], b[..., 0] + 1j * b[..., 1]
        y = left * (right.conj() if conjugate else right)
        return Node("ComplexMulConj" if conjugate else "ComplexMul", [a, b], want=[np.stack([y.real, y.imag], -1).astype(np.float32)])

    make.__name__ = "ComplexMulConj" if conjugate else "ComplexMul"
    return generator(make)


complex_product(False)
complex_product(True)


@generator
def CropAndResize(rng):
    n, boxes = size(rng, 1, 3), size(rng, 1, 4)
    x = normal(rng, n, size(rng, 1, 3), size(rng, 2, 6), size(rng, 2, 6))
    return Node("CropAndResize", [x, rng.uniform(-0.2, 1.2, (boxes, 4)).astype(np.float32), rng.integers(0, n, boxes).astype(np.int32),
                                  np.asarray([size(rng, 1, 5), size(rng, 1, 5)], dtype=np.int32)], mode=one_of(rng, "bilinear", "nearest"),
                extrapolation_value=maybe(rng, 2.5), constant=[3], tolerance=1e-4)


@generator
def ExpandDims(rng):
    shape = any_shape(rng)[:3]
    axis = int(rng.integers(-len(shape) - 1, len(shape) + 1))
    return Node("ExpandDims", [normal(rng, *shape), np.asarray(axis, dtype=np.int32)], constant=[1])


@generator
def GatherND(rng):
    shape = any_shape(rng)
    depth = size(rng, 1, len(shape))
    indices = np.stack([rng.integers(0, d, (2, 3)) for d in shape[:depth]], axis=-1)
    return Node("GatherND", [normal(rng, *shape), indices.astype(one_of(rng, np.int32, np.int64))], constant=[1])


@generator
def GridSample(rng):
    n = size(rng, 1, 2)
    mode, padding = one_of(rng, ("bilinear", "border"), ("nearest", "zeros"), ("bicubic", "zeros"), ("bicubic", "reflection"), ("bilinear", "reflection"))
    return Node("GridSample", [normal(rng, n, size(rng, 1, 3), size(rng, 2, 5), size(rng, 2, 5)), rng.uniform(-1.2, 1.2, (n, size(rng), size(rng), 2)).astype(np.float32)],
                mode=mode, padding_mode=padding, align_corners=int(rng.integers(2)),
                tolerance=1e-4)


@generator
def IsAllFinite(rng):
    """On GPUs only: beside numpy."""
    flags = one_of(rng, {}, {"isnan_only": 1}, {"isinf_only": 1})
    tensors = [normal(rng, *any_shape(rng)) for _ in range(size(rng, 1, 3))]
    if rng.random() < 0.7:
        tensors[-1].reshape(-1)[0] = one_of(rng, np.inf, -np.inf, np.nan)
    if rng.random() < 0.4:
        tensors = [np.zeros((0, 3), np.float32), *tensors[1:]]  # perhaps nothing else
    test = np.isnan if "isnan_only" in flags else np.isinf if "isinf_only" in flags else lambda t: ~np.isfinite(t)
    return Node("IsAllFinite", tensors, want=[np.asarray(not any(test(t).any() for t in tensors))], **flags)


@generator
def Pad(rng):
    shape = any_shape(rng)[:3]
    pads = rng.integers(0, 3, 2 * len(shape)).astype(np.int64)
    return Node("Pad", [normal(rng, *shape), one_of(rng, pads, pads[None]), maybe(rng, normal(rng, 1))], mode=one_of(rng, None, "constant", "edge"), constant=[1])


@generator
def Range(rng):
    kind = one_of(rng, np.float32, np.int32, np.int64)
    start, count, step = int(rng.integers(-5, 5)), size(rng), int(rng.integers(1, 4))
    limit = start + (count if (given := maybe(rng, step)) is None else count * step)
    shape = one_of(rng, (), (1,))
    scalar = lambda v: np.asarray(v, dtype=kind).reshape(shape)  # noqa: E731
    return Node("Range", [scalar(start), scalar(limit), None if given is None else scalar(step)])


@generator
def Rfft(rng):
    """On GPUs only: beside numpy."""
    x = normal(rng, *any_shape(rng)[:2], size(rng, 2, 9))
    y = np.fft.rfft(x)
    return Node("Rfft", [x], signal_ndim=1, normalized=0, onesided=1, want=[np.stack([y.real, y.imag], -1).astype(np.float32)], tolerance=1e-4)


@generator
def SampleOp(rng):
    return Node("SampleOp", [normal(rng, *any_shape(rng))])


@generator
def Trilu(rng):
    return Node("Trilu", [normal(rng, size(rng, 1, 2), size(rng), size(rng)), maybe(rng, np.asarray(int(rng.integers(-3, 4))))], upper=int(rng.integers(2)))


@generator
def UnfoldTensor(rng):
    shape = any_shape(rng)
    dim = int(rng.integers(len(shape)))
    return Node("UnfoldTensor", [normal(rng, *shape)], dim=one_of(rng, dim, dim - len(shape)), size=size(rng, 1, shape[dim]), step=size(rng, 1, 3))


@generator
def Unique(rng):
    return Node("Unique", [rng.integers(0, 5, size(rng, 1, 12)).astype(np.float32)], outputs=3)
