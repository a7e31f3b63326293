"""Recipes, continued (schema_recipes.py): views, indices, quantized and recurrent operators, attention, signals, strings."""

import numpy as np
from schema_recipes import axes_list, axis, default, flag, recipe

# --- views
@recipe("Transpose")
def transpose(d):
    shape = d.shape()
    perm = d.r.sample(range(len(shape)), len(shape))
    d.node([d.x(0, shape)], perm=default(d, [d.odd(p, len(shape), perm[0]) for p in perm]) if shape else None)


@recipe("Flatten")
def flatten(d):
    shape = d.shape(1)
    d.node([d.x(0, shape)], axis=default(d, d.odd(d.r.randint(0 if d.since < 11 else -len(shape), len(shape)), 9, -9)))


@recipe("Reshape")
def reshape(d):
    shape = d.shape(1)
    total = int(np.prod(shape))
    form = d.r.choice([[-1], [total], [1, total], [total, 1, 1], [shape[0], -1], [0, -1], list(reversed(shape)), [0] * len(shape)])
    d.node([d.x(0, shape), d.ints([d.odd(s, -1, -2, 0, 7) for s in form])], allowzero=default(d, flag(d, 0.2), 0.6))


@recipe("Squeeze", "Unsqueeze")
def squeeze(d):
    shape = [1 if d.maybe(0.5) else max(n, 2) for n in d.shape(1)]
    rank = len(shape)
    if d.name == "Squeeze":
        ones = [k for k, n in enumerate(shape) if n == 1]
        axes = d.r.sample(ones, d.r.randint(1, len(ones))) if ones else None
        if axes and d.maybe(0.1):
            axes = None
    else:
        rank += 2
        axes = d.r.sample(range(rank), 2)
    if axes:
        axes = [d.odd(a - rank if d.since >= 11 and d.maybe(0.3) else a, rank, axes[0]) for a in axes]
    if d.has("axes"):
        return d.node([d.x(0, shape)], axes=axes)
    d.node([d.x(0, shape), d.ints(axes) if axes else ""])


@recipe("Slice")
def slice_(d):
    shape = d.shape(1)
    rank = len(shape)
    axes = d.r.sample(range(rank), d.r.randint(1, rank))
    n = len(axes)
    far = [2**31 - 1, 2**63 - 1, -(2**63), -(2**31)]
    bound = lambda: d.r.choice(far) if d.maybe(0.15) else d.r.randint(-6, 6)
    starts, ends = [bound() for _ in axes], [bound() for _ in axes]
    steps = [d.odd(d.pick(1, 1, 2, -1, -2, 3), 0, 2**62, -(2**63)) for _ in axes]
    named = [d.odd(a - rank if d.since >= 10 and d.maybe(0.3) else a, rank, axes[0]) for a in axes]
    if d.has("starts"):
        return d.node([d.x(0, shape)], starts=starts, ends=ends, axes=named)
    t = d.pick(np.int64, np.int64, np.int32)
    if t == np.int32:
        starts, ends, steps = ([max(min(v, 2**31 - 1), -(2**31)) for v in part] for part in (starts, ends, steps))
    has_axes = d.maybe(0.8)
    if d.odd_share and d.maybe(0.1):
        d.r.choice([starts, ends, steps, named]).append(0)
        d.was_odd.append("another length")
    if not has_axes:
        starts, ends = starts[:n], ends[:n]
    d.node([d.x(0, shape), d.ints(starts, t), d.ints(ends, t), d.ints(named, t) if has_axes else "", d.ints(steps, t) if d.maybe(0.6) else ""])


@recipe("Split")
def split(d):
    parts = d.r.randint(1, 3)
    sizes = [d.size(1, 3) for _ in range(parts)]
    shape = d.shape(1)
    a = d.r.randrange(len(shape))
    shape[a] = sum(sizes)
    x = d.x(0, shape)
    where = default(d, a - len(shape) if d.since >= 11 and d.maybe(0.3) else a, 0.4 if a == 0 else 0)
    sizes = [d.odd(s, -1, 0, s + 1) for s in sizes]
    if d.maybe(0.4) and (d.since < 18):
        shape[a] = parts * 2
        return d.node([d.x(0, shape)], parts, axis=where)
    if d.has("split"):
        return d.node([x], parts, axis=where, split=sizes)
    if d.has("num_outputs") and d.maybe(0.4):
        return d.node([x], parts, axis=where, num_outputs=d.odd(parts, parts + 1))
    d.node([x, d.ints(sizes)], parts, axis=where)


@recipe("Concat")
def concat(d):
    shape = d.shape(1)
    a = d.r.randrange(len(shape))
    named = d.odd(a - len(shape) if d.since >= 11 and d.maybe(0.3) else a, 9)
    d.node([d.x(0, [d.size() if k == a else n for k, n in enumerate(shape)]) for _ in range(d.r.randint(1, 4))], axis=named)


@recipe("Expand")
def expand(d):
    shape = [1 if d.maybe(0.4) else n for n in d.shape(0, 3)]
    wanted = [*d.shape(0, 2), *[d.size(2) if n == 1 and d.maybe(0.6) else (1 if d.maybe(0.3) else n) for n in shape]]
    if d.maybe(0.2):
        wanted = wanted[d.r.randint(0, len(wanted)) :]
    d.node([d.x(0, shape), d.ints([d.odd(n, -1, 7, 0) for n in wanted])])


@recipe("Tile")
def tile(d):
    shape = d.shape(1)
    repeats = [d.odd(d.r.randint(0, 3), -1) for _ in shape]
    if d.odd_share and d.maybe(0.05):
        repeats.append(1)
    d.node([d.x(0, shape), d.ints(repeats)])


@recipe("Pad")
def pad(d):
    shape = [max(n, 1) for n in d.shape(1)]
    mode = d.pick(None, "constant", "reflect", "edge", *(["wrap"] if d.since >= 19 else []))
    limit = lambda n: n - 1 if mode == "reflect" else n
    rank = len(shape)
    pads = [d.odd(d.r.randint(0, limit(shape[k % rank])) if d.maybe(0.9) else -1, 9, -9) for k in range(2 * rank)]
    if d.has("pads"):
        return d.node([d.x(0, shape)], pads=pads, mode=mode, value=default(d, 1.5))
    axes = ""
    if d.since >= 18 and d.maybe(0.4):
        named = d.r.sample(range(rank), d.r.randint(1, rank))
        pads = [pads[k] for k in named] + [pads[rank + k] for k in named]
        axes = d.ints([d.odd(a - rank if d.maybe(0.3) else a, rank, named[0]) for a in named], d.pick(np.int64, np.int32))
    x = d.x(0, shape)
    d.node([x, d.ints(pads), d.x(2, [], special=False) if d.maybe(0.5) else "", axes], mode=mode)


@recipe("DepthToSpace", "SpaceToDepth")
def blocks(d):
    b = d.r.randint(1, 3)
    n, c, h, w = (d.size() for _ in range(4))
    deep = d.name == "DepthToSpace"
    d.node([d.x(0, [n, c * b * b, h, w] if deep else [n, c, h * b, w * b])], blocksize=d.odd(b, 0, 4), mode=default(d, d.pick("DCR", "CRD")))


@recipe("Shape", "Size")
def shape_of(d):
    shape = d.shape()
    bound = lambda: default(d, d.r.randint(-6, 6))
    d.node([d.x(0, shape)], start=bound(), end=bound())


@recipe("CenterCropPad")
def center_crop(d):
    shape = d.shape(1)
    axes = d.r.sample(range(len(shape)), d.r.randint(1, len(shape)))
    whole = d.maybe(0.4)
    count = len(shape) if whole else len(axes)
    d.node([d.x(0, shape), d.ints([d.odd(d.size(1, 7), -1) for _ in range(count)])], axes=None if whole else axes)


@recipe("Trilu")
def trilu(d):
    d.node([d.x(0, d.shape(2)), d.ints(d.odd(d.r.randint(-3, 3), 2**62, -(2**63))) if d.maybe(0.7) else ""], upper=default(d, flag(d)))


@recipe("ReverseSequence")
def reverse_sequence(d):
    shape = [d.size(1, 4), d.size(1, 4), *d.shape(0, 2)]
    t = d.pick(0, 1)
    lengths = [d.odd(d.r.randint(0, shape[t]), shape[t] + 1, -1) for _ in range(shape[1 - t])]
    d.node([d.x(0, shape), d.ints(lengths)], time_axis=t, batch_axis=1 - t)


@recipe("Upsample")
def upsample(d):
    shape = [d.size(1, 2), d.size(1, 2), d.size(1, 4), d.size(1, 4)]
    scales = [1.0, 1.0, d.pick(1.0, 2.0, 1.5), d.pick(1.0, 2.0, 3.0)]
    mode = default(d, d.pick("nearest", "linear"))
    if d.has("scales"):
        return d.node([d.x(0, shape)], scales=scales, mode=mode)
    d.node([d.x(0, shape), d.ints(scales, np.float32)], mode=mode)


@recipe("Resize")
def resize(d):
    n = d.pick(1, 2, 2, 2)
    shape = [d.size(1, 2), d.size(1, 2), *[d.size(2, 6) for _ in range(n)]]
    mode = d.pick(None, "nearest", "linear", *(["cubic"] if d.since >= 11 and n == 2 else []))
    scales = [1.0, 1.0, *[d.pick(1.0, 2.0, 0.5, 1.5, 3.0) for _ in range(n)]]
    x = d.x(0, shape, special=False)
    if d.since < 11:
        return d.node([x, d.ints(scales, np.float32)], mode=mode)
    coordinates = d.pick(None, "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", *(["half_pixel_symmetric"] if d.since >= 19 else []))
    more = dict(mode=mode, coordinate_transformation_mode=coordinates, nearest_mode=default(d, d.pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")),
                cubic_coeff_a=default(d, -0.5), exclude_outside=default(d, flag(d)) if mode == "cubic" else None, antialias=default(d, flag(d)) if d.since >= 18 and mode not in (None, "nearest") else None)  # fmt: skip
    roi = "" if d.since >= 13 or d.since == 11 and False else d.constant(np.zeros(0, np.float32))
    if d.maybe(0.4):
        sizes = [*shape[:2], *[d.odd(d.size(1, 9), -1, 0) for _ in range(n)]]
        keep = default(d, d.pick("stretch", "not_larger", "not_smaller")) if d.since >= 18 else None
        empty = d.constant(np.zeros(0, np.float32)) if d.since < 13 else ""
        if d.since >= 18 and d.maybe(0.4):
            return d.node([x, roi, empty, d.ints(sizes[2:])], axes=list(range(2, 2 + n)), keep_aspect_ratio_policy=keep, **more)
        return d.node([x, roi, empty, d.ints(sizes)], keep_aspect_ratio_policy=None, **more)
    d.node([x, roi, d.ints(scales, np.float32)], **more)


# --- indices
@recipe("Gather")
def gather(d):
    shape = [max(n, 1) for n in d.shape(1)]
    a = d.r.randrange(len(shape))
    at = d.np.integers(-shape[a] if d.since >= 11 else 0, shape[a], d.shape(0, 2))
    if at.size:
        at.reshape(-1)[0] = d.odd(at.reshape(-1)[0], shape[a], -shape[a] - 1)
    d.node([d.x(0, shape), d.ints(at, d.pick(np.int64, np.int32))], axis=default(d, a, 0.5 if a == 0 else 0))


@recipe("GatherElements", "ScatterElements", "Scatter")
def elements(d):
    shape = [max(n, 1) for n in d.shape(1)]
    a = d.r.randrange(len(shape))
    inner = [d.r.randint(1, n) for n in shape]
    scatters = d.name != "GatherElements"
    if scatters:
        flat = int(np.prod(inner))
        at = np.argsort(d.np.random([*inner[:a], shape[a], *inner[a + 1 :]]), axis=a).take(range(inner[a]), axis=a)
    else:
        at = d.np.integers(-shape[a], shape[a], inner)
    if at.size:
        at.reshape(-1)[0] = d.odd(at.reshape(-1)[0], shape[a], -shape[a] - 1)
    named = default(d, a - len(shape) if d.since >= 11 and d.maybe(0.3) else a, 0.5 if a == 0 else 0)
    parts = [d.x(0, shape), d.ints(at, d.pick(np.int64, np.int32))]
    if scatters:
        parts.append(d.x(2, inner))
    d.node(parts, axis=named, reduction=default(d, d.pick("none", "add", "mul", *(["max", "min"] if d.since >= 18 else []))))


@recipe("GatherND", "ScatterND")
def nd(d):
    shape = [max(n, 1) for n in d.shape(1)]
    depth = d.r.randint(1, len(shape))
    batch = 0
    if d.name == "GatherND" and d.since >= 12 and depth > 1 and d.maybe(0.4):
        batch = d.r.randint(1, depth - 1)
    lead = [*shape[:batch], *d.shape(0, 2)] if batch else d.shape(1, 2)
    depth -= batch
    if d.name == "ScatterND":
        lead = [1]
    at = np.stack([d.np.integers(-shape[batch + k] if d.since >= 11 and d.maybe(0.5) else 0, shape[batch + k], lead) for k in range(depth)], -1)
    if at.size:
        at.reshape(-1)[0] = d.odd(at.reshape(-1)[0], 99, -99)
    parts = [d.x(0, shape), d.ints(at)]
    if d.name == "ScatterND":
        parts.append(d.x(2, [*lead, *shape[depth:]]))
    d.node(parts, batch_dims=default(d, batch, 0.5 if not batch else 0), reduction=default(d, d.pick("none", "add", "mul", *(["max", "min"] if d.since >= 18 else []))))


@recipe("OneHot")
def one_hot(d):
    depth = d.r.randint(1, 5)
    shape = d.shape(0, 3)
    at = d.values(np.dtype(d.pick("i8", "i4", "f4")), shape, -depth - 1, depth)
    if at.dtype.kind == "f":
        at = np.round(at)
    number = d.odd(depth, 0, -1)
    d.node([d.place(at), d.ints(d.pick(number, [number]), d.pick(np.int64, np.int32)), d.x(2, [2])], axis=default(d, axis(d, len(shape) + 1)))


@recipe("Compress")
def compress(d):
    shape = d.shape(1)
    a = d.r.randrange(len(shape)) if d.maybe(0.7) else None
    n = int(np.prod(shape)) if a is None else shape[a]
    keep = d.np.integers(0, 2, [d.odd(d.r.randint(0, n), n + 2)]).astype(bool)
    d.node([d.x(0, shape), d.ints(keep, bool)], axis=a)


@recipe("NonZero")
def non_zero(d):
    d.node([d.x(0, d.shape(0 if d.since >= 13 else 1), -1, 1, special=False)])


@recipe("Unique")
def unique(d):
    shape = [max(n, 1) for n in d.shape(1)]
    d.node([d.x(0, shape, -1, 1, special=False)], d.pick(1, 4, [1, 0, 1], [1, 0, 0, 1]), axis=default(d, axis(d, len(shape))), sorted=default(d, flag(d)))


@recipe("EyeLike")
def eye_like(d):
    from values import ONNX, STRING

    d.node([d.x(0, [d.size(), d.size()])], k=default(d, d.r.randint(-3, 3)), dtype=default(d, int(d.pick(1, 7, 6, 11, 10, 9, 2))))


@recipe("ConstantOfShape")
def constant_of_shape(d):
    from onnx import numpy_helper

    value = d.values(d.dtype(0, "output"), [1])
    d.node([d.ints([d.odd(n, -1) for n in d.shape()])], value=default(d, numpy_helper.from_array(value)))


@recipe("Range")
def range_(d):
    t = d.dtype(0)
    step = d.odd(d.pick(1, 2, 3, -1, -2) if t.kind != "u" else d.pick(1, 2), 0)
    scale = 0.5 if t.kind == "f" else 1
    d.node([d.ints(v * scale, t) for v in (d.r.randint(0, 4), d.r.randint(0, 9), step)])


@recipe("NonMaxSuppression")
def nms(d):
    b, n, c = d.size(1, 2), d.size(1, 8), d.size(1, 3)
    corner = d.np.uniform(0, 1, (b, n, 2)).astype(np.float32)
    boxes = np.concatenate([corner, corner + d.np.uniform(0, 1, (b, n, 2)).astype(np.float32)], -1)
    center = flag(d, 0.3)
    f = lambda v: d.ints(d.pick(v, [v]), np.float32) if d.maybe(0.7) else ""
    most = d.ints([d.odd(d.r.randint(0, n), -1, 2**62)]) if d.maybe(0.8) else ""
    d.node([d.place(boxes), d.place(d.np.permutation(b * n * c).reshape(b, c, n).astype(np.float32) / 10), most, f(d.pick(0.0, 0.3, 0.7, 1.0)), f(0.4)], center_point_box=default(d, center, 0 if center else 0.5))


@recipe("RoiAlign")
def roi_align(d):
    n, c, h, w, rois = d.size(1, 2), d.size(1, 2), d.size(2, 6), d.size(2, 6), d.size(1, 3)
    boxes = np.sort(d.np.uniform(-1, 7, (rois, 2, 2)), 1).reshape(rois, 4)
    t = d.dtype(0)
    at = [d.odd(d.r.randrange(n), n, -1) for _ in range(rois)]
    d.node([d.tensor(t, [n, c, h, w], special=False), d.place(boxes.astype(t)), d.ints(at)], output_height=default(d, d.size(1, 3)), output_width=default(d, d.size(1, 3)),
           sampling_ratio=default(d, d.odd(d.r.randint(0, 3), -1)), spatial_scale=default(d, d.pick(0.5, 1.0)), mode=default(d, "avg"), coordinate_transformation_mode=default(d, d.pick("half_pixel", "output_half_pixel")))  # fmt: skip


@recipe("GridSample")
def grid_sample(d):
    n, c = d.size(1, 2), d.size(1, 2)
    k = 3 if d.since >= 20 and d.maybe(0.3) else 2
    spatial, out = [d.size(2, 5) for _ in range(k)], [d.size(1, 4) for _ in range(k)]
    modes = ("linear", "nearest", *(["cubic"] if k == 2 else [])) if d.since >= 20 else ("bilinear", "nearest", "bicubic")
    d.node([d.x(0, [n, c, *spatial], special=False), d.tensor(d.dtype(1), [n, *out, k], -1.3, 1.3, False)], mode=default(d, d.pick(*modes)), padding_mode=default(d, d.pick("zeros", "border", "reflection")), align_corners=default(d, flag(d)))


@recipe("AffineGrid")
def affine_grid(d):
    k = d.pick(2, 3)
    n = d.size(1, 2)
    d.node([d.x(0, [n, k, k + 1], special=False), d.ints([n, d.size(1, 2), *[d.odd(d.size(1, 4), -1) for _ in range(k)]])], align_corners=default(d, flag(d)))


@recipe("Col2Im")
def col2im(d):
    h, w, kh, kw = d.size(2, 5), d.size(2, 5), d.pick(1, 2), d.pick(1, 2)
    blocks_ = (h - kh + 1) * (w - kw + 1)
    c = d.size(1, 2)
    d.node([d.x(0, [d.size(1, 2), c * kh * kw, blocks_]), d.ints([h, d.odd(w, -1, 9)]), d.ints([kh, d.odd(kw, 0, -1)])])


@recipe("TensorScatter")
def tensor_scatter(d):
    b, s, e, n = d.size(1, 3), d.size(3, 6), d.size(1, 3), d.pick(1, 2)
    mode = d.pick(None, "linear", "circular")
    at = [d.odd(d.r.randint(0, s - n), s, -1) for _ in range(b)]
    d.node([d.x(0, [b, s, e]), d.x(1, [b, n, e]), d.ints(at) if d.maybe(0.8) else ""], mode=mode, axis=default(d, d.odd(d.pick(1, -2), 0, 5)))


# --- quantized
@recipe("QuantizeLinear", "DequantizeLinear")
def quantize(d):
    shape = [max(n, 1) for n in d.shape(1)]
    q = d.name == "QuantizeLinear"
    if q:
        integer = np.dtype(d.pick("u1", "i1")) if d.since < 21 else np.dtype(d.pick("u1", "i1", "u2", "i2"))
        real = d.dtype(0) if d.since >= 19 else np.dtype("f4")
        if real.kind in "iu":
            real = np.dtype("f4")
    else:
        integer = d.dtype(0)
        real = np.dtype("f4")
        if integer not in [np.dtype(c) for c in ("u1", "i1", "u2", "i2", "i4")]:
            integer = np.dtype("i1")
    form = d.pick("scalar", "scalar", "axis", *(["block"] if d.since >= 21 else []))
    a = d.r.randrange(len(shape)) if d.since >= 13 else 0
    sizes, block = [], None
    if form == "axis" and d.since >= 13:
        sizes = [shape[a]]
    elif form == "block":
        block = d.pick(1, 2)
        sizes = [-(-n // block) if k == a else n for k, n in enumerate(shape)]
        shape[a] = sizes[a] * block
    zero = d.tensor(integer, sizes, 0, 5 if integer != np.dtype("i4") else 0) if d.maybe(0.7) else ""
    more = dict(axis=default(d, a if d.maybe(0.7) else a - len(shape), 0.0 if sizes else 0.5), block_size=block)
    scale = d.tensor(real, sizes, 0.05, 0.5, False)
    if q:
        x = d.tensor(real, shape, -30, 30)
        kinds = {}
        if d.since >= 21 and not zero and d.maybe(0.4):
            kinds = dict(output_dtype=int(d.pick(2, 3, 4, 5)))
        return d.node([x, scale, zero], saturate=default(d, 1), **more, **kinds)
    d.node([d.tensor(integer, shape, -90, 90), scale, zero], **more)


@recipe("DynamicQuantizeLinear")
def dynamic_quantize(d):
    d.node([d.x(0, [max(n, 1) for n in d.shape(1)], d.pick(-3, 0, 2), 5, False)], 3)


@recipe("QLinearMatMul")
def qlinear_matmul(d):
    m, k, n = d.size(1, 6), d.size(1, 9), d.size(1, 6)
    f = d.dtype(1) if d.schema.inputs[1].type_str.startswith("T") else np.dtype("f4")
    scale = lambda: d.tensor(f, [], 0.05, 0.3, False)
    d.node([d.x(0, [m, k], -90, 90), scale(), d.x(2, [], 0, 9), d.x(3, [k, n], -90, 90), scale(), d.x(5, [], 0, 9), scale(), d.x(7, [], 0, 9)])


# --- recurrent
@recipe("RNN", "GRU", "LSTM")
def recurrent(d):
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[d.name]
    t, b, i, h = (d.r.randint(1, 4) for _ in range(4))  # what the state is after no step, ONNX does not say
    direction = d.pick(None, "forward", "reverse", "bidirectional")
    n = 2 if direction == "bidirectional" else 1
    layout = int(d.since >= 14 and d.maybe(0.2))
    first = lambda *s: [s[1], s[0], *s[2:]] if layout else list(s)
    ty = d.dtype(0)
    w = lambda s, low=-1, high=1: d.tensor(ty, s, low, high, False)
    parts = [w(first(t, b, i)), w([n, gates * h, i]), w([n, gates * h, h]), w([n, 2 * gates * h]) if d.maybe(0.6) else "",
             d.ints([d.odd(d.r.randint(1, t), t + 1, -1) for _ in range(b)], np.int32) if d.maybe(0.4) else "", w(first(n, b, h)) if d.maybe(0.5) else ""]  # fmt: skip
    if d.name == "LSTM":
        parts += [w(first(n, b, h)) if d.maybe(0.5) else "", w([n, 3 * h]) if d.maybe(0.3) else ""]
    per = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}[d.name]
    kinds = [d.pick(a, "Relu", "HardSigmoid", "Sigmoid", "Tanh", "Softsign") for a in per * n] if d.maybe(0.3) else None
    outs = [1, 1] + ([1] if d.name == "LSTM" else [])
    if d.maybe(0.2):
        outs[0] = 0
    d.node(parts, outs, hidden_size=h, direction=direction, activations=kinds, clip=default(d, 0.5, 0.8), linear_before_reset=default(d, flag(d)), input_forget=default(d, flag(d, 0.2)), layout=layout or None)


@recipe("Attention")
def attention(d):
    b, heads, group, q, k, e, v = d.size(1, 2), d.pick(1, 2), d.pick(1, 2), d.size(1, 4), d.size(1, 5), d.pick(2, 4), d.pick(2, 3)
    flat = d.maybe(0.3)
    past = d.r.randint(1, 3) if d.maybe(0.3) else 0
    qh, kh = heads * group, heads
    s = lambda n, h, w: [b, n, h * w] if flat else [b, h, n, w]
    total = k + past
    mask = ""
    if d.maybe(0.5):
        wide = d.odd(total, total + 2, max(total - 1, 1))
        shape = d.pick([q, wide], [b, qh, q, wide], [1, 1, q, wide], [b, 1, q, wide])
        mask = d.tensor(np.dtype(bool) if d.maybe(0.5) else d.dtype(0), shape, -2, 2, False)
    parts = [d.x(0, s(q, qh, e), special=False), d.x(1, s(k, kh, e), special=False), d.x(2, s(k, kh, v), special=False), mask]
    parts += [d.x(4, [b, kh, past, e], special=False), d.x(5, [b, kh, past, v], special=False)] if past else ["", ""]
    outs = [1, 1, 1] if past else [1]
    if not past and d.since >= 24 and d.maybe(0.3):
        parts.append(d.ints([d.odd(d.r.randint(1, k), k + 1, -1) for _ in range(b)]))
    if d.maybe(0.2):
        outs = [1, 1 if past else 0, 1 if past else 0, 1]
    d.node(parts, outs, is_causal=default(d, flag(d)), scale=default(d, 0.3), softcap=default(d, d.pick(0.0, 2.0)), q_num_heads=qh if flat else None, kv_num_heads=kh if flat else None, qk_matmul_output_mode=default(d, d.pick(0, 1, 2, 3)))


@recipe("RotaryEmbedding")
def rotary(d):
    b, h, s, e, most = d.size(1, 2), d.pick(1, 2), d.size(1, 4), d.pick(4, 8), 6
    flat = d.maybe(0.4)
    part = d.pick(0, e, e // 2)
    half = (part or e) // 2
    with_ids = d.maybe(0.5)
    cache = [most, half] if with_ids else [b, s, half]
    parts = [d.x(0, [b, s, h * e] if flat else [b, h, s, e]), d.tensor(d.dtype(0), cache, -1, 1), d.tensor(d.dtype(0), cache, -1, 1)]
    if with_ids:
        at = d.np.integers(0, most, [b, s])
        if at.size:
            at.reshape(-1)[0] = d.odd(at.reshape(-1)[0], most, -1)
        parts.append(d.ints(at))
    d.node(parts, interleaved=default(d, flag(d)), num_heads=h if flat else None, rotary_embedding_dim=default(d, part, 0.5 if not part else 0))


# --- signals, losses, strings, sequences
@recipe("DFT")
def dft(d):
    shape = [d.size(1, 2), *[d.size(1, 6) for _ in range(d.r.randint(1, 2))], d.pick(1, 1, 2)]
    a = d.r.randint(1, len(shape) - 2)
    length = d.ints(d.odd(d.size(1, 8), 0, -1)) if d.maybe(0.4) else ""
    inverse = flag(d, 0.3)
    one = flag(d, 0.3) if shape[-1] == 1 and not inverse else 0
    x = d.x(0, shape, special=False)
    if d.has("axis"):
        return d.node([x, length], axis=default(d, a, 0.5 if a == 1 else 0), inverse=default(d, inverse), onesided=default(d, one))
    d.node([x, length, d.ints(d.odd(d.pick(a, a - len(shape)), 9))], inverse=default(d, inverse), onesided=default(d, one))


@recipe("STFT")
def stft(d):
    n, frame = d.r.randint(8, 20), d.pick(4, 5, 8)
    t = d.dtype(0)
    d.node([d.tensor(t, [d.size(1, 2), n, 1], special=False), d.ints(d.odd(d.r.randint(1, 4), 0, -1)), d.tensor(t, [frame], 0, 1, False) if d.maybe(0.5) else "", d.ints(d.odd(frame, 0, 99))], onesided=default(d, flag(d)))


@recipe("BlackmanWindow", "HammingWindow", "HannWindow")
def window(d):
    d.node([d.ints(d.odd(d.r.randint(2, 9), -1), d.pick(np.int64, np.int32))], periodic=default(d, flag(d)), output_datatype=default(d, int(d.pick(1, 11, 10))))


@recipe("MelWeightMatrix")
def mel(d):
    d.node([d.ints(d.odd(d.r.randint(2, 8), -1)), d.ints(d.odd(d.pick(8, 16, 17), 0)), d.ints(d.pick(8000, 16000)), d.ints(0.0, np.float32), d.ints(d.pick(2000.0, 4000.0), np.float32)], output_datatype=default(d, int(d.pick(1, 11))))


@recipe("Det")
def det(d):
    n = d.size(1, 4)
    d.node([d.x(0, [*d.shape(0, 2), n, n], special=False)])


@recipe("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(d):
    n, c, rest = d.size(1, 3), d.size(2, 5), d.shape(0, 2)
    target = d.np.integers(0, c, [n, *rest])
    ignore = default(d, d.pick(0, 1, -1, 255), 0.6)
    if target.size and ignore is not None:
        target.reshape(-1)[0] = ignore
    if target.size:
        target.reshape(-1)[-1] = d.odd(target.reshape(-1)[-1], c, -7)
    weight = d.tensor(d.dtype(0), [c], 0.1, 2, False) if d.maybe(0.5) else ""
    outs = [1, 1] if d.name.startswith("Soft") and d.maybe(0.4) else 1
    d.node([d.x(0, [n, c, *rest], special=False), d.ints(target, d.pick(np.int64, np.int32)), weight], outs, ignore_index=ignore, reduction=default(d, d.pick("none", "sum", "mean")))


@recipe("StringNormalizer")
def normalizer(d):
    words = np.array([d.pick("Monday", "tuesday", "THE", "a", "Ä") for _ in range(d.size(1, 5))], object)
    d.node([d.ints(words, object)], case_change_action=default(d, d.pick("LOWER", "UPPER", "NONE")), is_case_sensitive=default(d, flag(d)), stopwords=default(d, ["the", "Monday"]))


@recipe("RegexFullMatch")
def regex(d):
    d.node([d.x(0, d.shape())], pattern=d.pick("a.*", "[a-z]+", "", "(a|Bc)", "."))


@recipe("StringSplit")
def string_split(d):
    d.node([d.x(0, d.shape())], 2, delimiter=default(d, d.pick(",", "", " ")), maxsplit=default(d, d.odd(d.r.randint(0, 3), -1)))


@recipe("SwiGLU")
def swiglu(d):
    shape = d.shape(1)
    shape[-1] *= 2
    d.node([d.x(0, shape)])


@recipe("Dropout")
def dropout(d):
    outs = [1, 1] if d.since >= 10 and d.maybe(0.4) else 1
    if d.since < 12:
        return d.node([d.x(0, d.shape())], outs, ratio=default(d, 0.3))
    d.node([d.x(0, d.shape()), d.ints(0.4, np.float32) if d.maybe(0.5) else ""], outs, seed=default(d, 3))
