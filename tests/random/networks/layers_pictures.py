"""Layers of convolutional networks at sizes that fit no tile, from speech, vision and generators; their forms are those of the papers named."""

import math

import torch
import torch.nn.functional as F
from build import Apply, Refused, layer
from torch import nn

CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
NORM = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
KIND = {1: "line", 2: "picture", 3: "volume"}


def dims(net, x):
    return len(net.shape(x)) - 2


def every(kinds, weight=1):
    def register(function):
        for kind in kinds:
            layer(kind, weight)(function)
        return function

    return register


SPATIAL = ["line", "picture", "volume"]


def group_of(net, c, oc):
    groups = [g for g in range(1, c + 1) if c % g == 0 and oc % g == 0]
    return net.r.choice(groups) if net.r.random() < 0.4 else 1


def activated(net, x):
    """x behind an activation of any network's."""
    r, kind = net.r, net.kinds[x]
    c = net.shape(x)[2 if kind == "tokens" else 1]
    module = r.choice(
        [nn.ReLU, nn.ReLU6, nn.SiLU, nn.GELU, lambda: nn.GELU(approximate="tanh"), nn.Mish, nn.ELU, nn.SELU, nn.CELU, nn.Softplus, nn.Softsign, nn.Hardswish, nn.Hardsigmoid, nn.Tanh, nn.Sigmoid, nn.LogSigmoid, lambda: nn.LeakyReLU(0.1), lambda: nn.Softshrink(0.3), lambda: nn.Hardtanh(-0.7, 1.1), nn.Tanhshrink, lambda: nn.PReLU(c if kind != "tokens" else 1), "snake", "relu squared", "square relu6", "quick gelu", "rational"]  # fmt: skip
    )
    if module == "snake":  # BigVGAN
        return net.add(kind, lambda a: a + torch.sin(a * 1.3).pow(2) / 1.3, x)
    if module == "relu squared":
        return net.add(kind, lambda a: F.relu(a).square(), x)
    if module == "square relu6":
        return net.add(kind, lambda a: a * F.relu6(a + 3) / 6, x)
    if module == "quick gelu":
        return net.add(kind, lambda a: a * torch.sigmoid(1.702 * a), x)
    if module == "rational":
        return net.add(kind, lambda a: (a + 0.1 * a**3) / (1 + a.abs() + a**2), x)
    return net.add(kind, module(), x)


@every(SPATIAL, 6)
def convolution(net, x):
    r, n = net.r, dims(net, x)
    c, sizes = net.shape(x)[1], net.shape(x)[2:]
    depthwise = r.random() < 0.25
    oc = c * r.choice([1, 1, 2]) if depthwise else net.size(1, 40)
    group = c if depthwise else group_of(net, c, oc)
    wide = r.random() < 0.15
    kernel = [r.choice([7, 9, 13, 31] if wide and n == 1 else [7, 9, 11] if wide and n == 2 else [1, 1, 2, 3, 3, 3, 4, 5]) for _ in sizes]
    if r.random() < 0.6:
        kernel = [kernel[0]] * n
    stride, dilation = [r.choice([1, 1, 1, 2, 3]) for _ in sizes], [r.choice([1, 1, 1, 2, 3, 5]) if k > 1 else 1 for k in kernel]
    reach = [(k - 1) * d for k, d in zip(kernel, dilation)]
    how = r.choice(["same", "half", "none", "odd", "reflect", "replicate", "circular", "causal"])
    bias = r.random() < 0.7
    parts = dict(kernel_size=kernel, dilation=dilation, groups=group, bias=bias)
    if how == "same":
        return net.add(net.kinds[x], CONV[n](c, oc, padding="same", **parts), x)
    if how in ("odd", "causal"):
        low = [e if how == "causal" else r.randint(0, e + 1) for e in reach]
        high = [0 if how == "causal" else r.randint(0, max(0, e - a + 1)) for e, a in zip(reach, low)]
        pads = [p for pair in zip(reversed(low), reversed(high)) for p in pair]
        return net.add(net.kinds[x], Apply(lambda a, conv: conv(F.pad(a, pads)), CONV[n](c, oc, stride=stride, **parts)), x)
    padding = [0] * n if how == "none" else [e // 2 for e in reach]
    mode = how if how in ("reflect", "replicate", "circular") else "zeros"
    return net.add(net.kinds[x], CONV[n](c, oc, stride=stride, padding=padding, padding_mode=mode, **parts), x)


@every(SPATIAL, 2)
def transposed(net, x):
    r, n = net.r, dims(net, x)
    c = net.shape(x)[1]
    oc = net.size(1, 24)
    stride = [r.choice([1, 2, 2, 3, 4]) for _ in range(n)]
    kernel = [r.choice([1, 2, 3, 4, 5, 8] if n == 1 else [1, 2, 3, 4]) for _ in range(n)]
    dilation = [r.choice([1, 1, 1, 2]) for _ in range(n)]
    padding = [r.randint(0, (k - 1) * d // 2) for k, d in zip(kernel, dilation)]
    more = [r.randint(0, max(s, d) - 1) if r.random() < 0.4 else 0 for s, d in zip(stride, dilation)]
    module = TRANSPOSED[n](c, oc, kernel, stride, padding, more, groups=group_of(net, c, oc), bias=r.random() < 0.7, dilation=dilation)
    return net.add(net.kinds[x], module, x)


@every(SPATIAL, 3)
def normalized(net, x):
    r, n = net.r, dims(net, x)
    c = net.shape(x)[1]
    groups = [g for g in range(1, c + 1) if c % g == 0]
    kind = r.choice(["batch", "group", "instance", "layer", "channels last", "rms", "response", "weightless"])
    if kind == "batch":
        y = net.add(net.kinds[x], NORM[n](c), x)
    elif kind == "group":
        y = net.add(net.kinds[x], nn.GroupNorm(r.choice(groups), c), x)
    elif kind == "instance":
        y = net.add(net.kinds[x], {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}[n](c, affine=r.random() < 0.5), x)
    elif kind == "layer":
        y = net.add(net.kinds[x], nn.GroupNorm(1, c), x)
    elif kind == "channels last":  # ConvNeXt
        y = net.add(net.kinds[x], Apply(lambda a, norm: norm(a.movedim(1, -1)).movedim(-1, 1), nn.LayerNorm(c)), x)
    elif kind == "rms":
        y = net.add(net.kinds[x], lambda a: a * torch.rsqrt(a.square().mean(1, keepdim=True) + 1e-5), x)
    elif kind == "response" and n == 2:
        y = net.add(net.kinds[x], nn.LocalResponseNorm(r.choice([1, 3, 5]), 0.1), x)
    else:  # global response (ConvNeXt V2)
        axes = list(range(2, n + 2))
        y = net.add(net.kinds[x], lambda a: a + a * (torch.linalg.vector_norm(a, dim=axes, keepdim=True) / (torch.linalg.vector_norm(a, dim=axes, keepdim=True).mean(1, keepdim=True) + 1e-3)), x)
    return activated(net, y) if r.random() < 0.6 else y


@every(SPATIAL + ["tokens", "vector"], 2)
def activation(net, x):
    return activated(net, x)


@every(SPATIAL, 2)
def pool(net, x):
    r, n = net.r, dims(net, x)
    sizes = net.shape(x)[2:]
    kernel = [r.choice([1, 2, 2, 3, 3, 5]) for _ in sizes]
    stride, padding = [r.choice([1, 2, 2, 3]) for _ in sizes], [r.randint(0, k // 2) for k in kernel]
    kind = r.choice(["max", "max", "average", "average", "adaptive", "global", "lp"])
    if kind == "max":
        dilation = [r.choice([1, 1, 2]) for _ in sizes]
        module = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}[n](kernel, stride, padding, dilation, ceil_mode=r.random() < 0.3)
    elif kind == "average":
        module = {1: nn.AvgPool1d, 2: nn.AvgPool2d, 3: nn.AvgPool3d}[n](kernel, stride, padding, ceil_mode=r.random() < 0.3, count_include_pad=r.random() < 0.5)
    elif kind == "adaptive":
        fits = [r.choice([d for d in range(1, s + 1) if s % d == 0]) for s in sizes]
        module = {1: nn.AdaptiveAvgPool1d, 2: nn.AdaptiveAvgPool2d, 3: nn.AdaptiveAvgPool3d}[n](fits)
    elif kind == "lp" and n < 3:
        module = {1: nn.LPPool1d, 2: nn.LPPool2d}[n](2, kernel[0], stride[0])
    else:
        axes = list(range(2, n + 2))
        return net.add("vector", r.choice([lambda a: a.mean(axes), lambda a: a.amax(axes), lambda a: a.flatten(2).logsumexp(-1), lambda a: torch.cat([a.mean(axes), a.flatten(2).std(-1)], 1)]), x)
    return net.add(net.kinds[x], module, x)


@every(["picture", "line", "volume"], 1.5)
def resized(net, x):
    r, n = net.r, dims(net, x)
    factor = r.choice([2, 2, 3, 1.5, 0.5, 1.7])
    linear = {1: "linear", 2: "bilinear", 3: "trilinear"}[n]
    mode = r.choice(["nearest", linear, linear] + (["bicubic"] if n == 2 else []))
    # With a scale that gives no whole size ONNX and ONNX Runtime do not agree where corners are (docs/guide/numerics.md).
    how = {} if mode == "nearest" else {"align_corners": r.random() < 0.4 and factor == int(factor)}
    if r.random() < 0.4:
        size = [net.size(2, 24 if n < 3 else 7) for _ in range(n)]
        return net.add(net.kinds[x], lambda a: F.interpolate(a, size=size, mode=mode, **how), x)
    return net.add(net.kinds[x], lambda a: F.interpolate(a, scale_factor=factor, mode=mode, **how), x)


@every(SPATIAL, 2)
def gated(net, x):
    """Squeeze and excite, spatial attention (CBAM), GLU, a WaveNet's gate, layer scale."""
    r, n = net.r, dims(net, x)
    c, axes = net.shape(x)[1], list(range(2, n + 2))
    kind = r.choice(["excite", "spatial", "glu", "wavenet", "scale", "context", "coordinate"])
    if kind == "excite":
        m = net.size(1, 9)
        gate = r.choice([torch.sigmoid, F.hardsigmoid])
        return net.add(net.kinds[x], Apply(lambda a, f, g: a * gate(g(F.relu(f(a.mean(axes, keepdim=True))))), CONV[n](c, m, 1), CONV[n](m, c, 1)), x)
    if kind == "spatial":
        conv = CONV[n](2, 1, 3 if n > 2 else r.choice([3, 7]), padding="same")
        return net.add(net.kinds[x], Apply(lambda a, f: a * torch.sigmoid(f(torch.cat([a.mean(1, True), a.amax(1, True)], 1))), conv), x)
    if kind == "glu":
        return net.add(net.kinds[x], Apply(lambda a, f: F.glu(f(a), 1), CONV[n](c, 2 * net.size(1, 17), 1)), x)
    if kind == "wavenet":
        m, d = net.size(1, 17), r.choice([1, 2, 4])
        conv, out = CONV[n](c, 2 * m, 3 if n < 3 else 1, padding="same", dilation=d), CONV[n](m, c, 1)

        def wave(a, f, g):
            left, right = f(a).chunk(2, 1)
            return a + g(torch.tanh(left) * torch.sigmoid(right))

        return net.add(net.kinds[x], Apply(wave, conv, out), x)
    if kind == "scale":
        return net.add(net.kinds[x], Scale(c, n, r.random() < 0.5), x)
    if kind == "context":  # GCNet

        def pooled(a, f, g):
            weight = f(a).flatten(2).softmax(-1)
            return a + g((a.flatten(2) * weight).sum(-1).reshape(a.shape[0], a.shape[1], *[1] * n))

        return net.add(net.kinds[x], Apply(pooled, CONV[n](c, 1, 1), CONV[n](c, c, 1)), x)
    if n != 2:
        raise Refused
    f, g = nn.Conv2d(c, c, 1), nn.Conv2d(c, c, 1)
    return net.add("picture", Apply(lambda a, f, g: a * torch.sigmoid(f(a.mean(3, True))) * torch.sigmoid(g(a.mean(2, True))), f, g), x)


class Scale(nn.Module):
    """By channel, and a shift."""

    def __init__(self, c, n, shift):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.randn(c, *[1] * n)), nn.Parameter(torch.randn(1, c, *[1] * n)) if shift else None

    def forward(self, x):
        return x * self.scale if self.shift is None else x * self.scale + self.shift


@every(SPATIAL, 4)
def block(net, x):
    """A residual or dense block: two branches that meet."""
    r, n, kind = net.r, dims(net, x), net.kinds[x]
    c = net.shape(x)[1]
    k = r.choice([1, 3, 3, 5]) if n < 3 else r.choice([1, 3])
    m = net.size(1, 33)

    def conv(i, o, size, groups=1, dilation=1):
        return CONV[n](i, o, size, padding="same", groups=groups, dilation=dilation, bias=r.random() < 0.5)

    which = r.choice(["residual", "inverted", "dense", "dense", "split", "shuffle", "pyramid", "merge", "ghost", "res2"])
    if which == "residual":
        y = activated(net, net.add(kind, NORM[n](m), net.add(kind, conv(c, m, k), x)))
        y = net.add(kind, conv(m, c, k), y)
        return net.add(kind, lambda a, b: F.relu(a + b), y, x)
    if which == "inverted":
        y = activated(net, net.add(kind, conv(c, m, 1), x))
        y = activated(net, net.add(kind, conv(m, m, k, m), y))
        y = net.add(kind, conv(m, c, 1), y)
        return net.add(kind, torch.add, x, y)
    if which == "dense":
        parts = [x]
        for _ in range(r.choice([2, 3])):
            whole = net.add(kind, lambda *a: torch.cat(a, 1), *parts) if len(parts) > 1 else x
            parts.append(activated(net, net.add(kind, conv(net.shape(whole)[1], net.size(1, 9), k), whole)))
        return net.add(kind, lambda *a: torch.cat(a, 1), *parts)
    if which == "split":  # CSP: a half goes through
        if c < 2:
            raise Refused
        h = r.randint(1, c - 1)
        left, right = net.add(kind, lambda a: a[:, :h], x), net.add(kind, lambda a: a[:, h:], x)
        left = activated(net, net.add(kind, conv(h, h, k), left))
        return net.add(kind, lambda a, b: torch.cat([b, a], 1), left, right)
    if which == "shuffle":
        groups = [g for g in range(2, c + 1) if c % g == 0]
        if not groups or n != 2:
            raise Refused
        g = r.choice(groups)
        y = net.add(kind, conv(c, c, 1, g), x)
        return net.add(kind, lambda a: a.reshape(a.shape[0], g, a.shape[1] // g, *a.shape[2:]).transpose(1, 2).flatten(1, 2), y)
    if which == "pyramid":  # ASPP
        parts = [activated(net, net.add(kind, conv(c, m, k, dilation=d), x)) for d in (1, 2, r.choice([3, 5, 6]))]
        return net.add(kind, lambda *a: torch.cat(a, 1), *parts)
    if which == "merge":
        found = net.others(x)
        if not found:
            raise Refused
        how = r.choice([torch.add, torch.mul, torch.maximum, torch.sub, lambda a, b: torch.cat([a, b], 1), lambda a, b: torch.stack([a, b], 1).mean(1), lambda a, b: torch.lerp(a, b, 0.3)])
        return net.add(kind, how, x, r.choice(found))
    if which == "ghost":
        y = net.add(kind, conv(c, m, 1), x)
        z = net.add(kind, conv(m, m, k, m), y)
        return net.add(kind, lambda a, b: torch.cat([a, b], 1)[:, : max(1, 2 * m - 1)], y, z)
    parts = r.choice([2, 3])  # Res2Net: a part adds the one before it
    if c < parts:
        raise Refused
    w = c // parts
    y, outs = None, []
    for i in range(parts):
        piece = net.add(kind, lambda a, i=i: a[:, i * w : (i + 1) * w], x)
        piece = piece if y is None else net.add(kind, torch.add, piece, y)
        y = activated(net, net.add(kind, conv(w, w, k), piece))
        outs.append(y)
    return net.add(kind, lambda *a: torch.cat(a, 1), *outs)


@layer("picture", 3)
def moved(net, x):
    """Views and what moves elements: shuffles, rolls, flips, patches, windows, crops, sampling."""
    r = net.r
    n, c, h, w = net.shape(x)
    kind = r.choice(["shuffle", "unshuffle", "roll", "flip", "unfold", "pad", "crop", "transpose", "stride", "sample", "focus", "blur", "coordinates", "rotate"])
    if kind == "shuffle":
        found = [s for s in (2, 3) if c % (s * s) == 0]
        if not found:
            raise Refused
        s = r.choice(found)
        return net.add("picture", lambda a: F.pixel_shuffle(a, s), x)
    if kind == "unshuffle":
        s = r.choice([2, 3])
        return net.add("picture", lambda a: F.pixel_unshuffle(a, s), x)
    if kind == "roll":
        by = r.choice([1, -1, 2, -3])
        return net.add("picture", lambda a: torch.roll(a, (by, -by), (2, 3)), x)
    if kind == "flip":
        return net.add("picture", lambda a: a.flip(r_axes), x) if (r_axes := r.choice([[2], [3], [2, 3], [1]])) else None
    if kind == "unfold":
        k, s, p, d = r.choice([1, 2, 3]), r.choice([1, 2]), r.choice([0, 1]), r.choice([1, 2])
        return net.add("line", lambda a: F.unfold(a, k, d, p, s), x)
    if kind == "pad":
        pads, mode = [r.choice([0, 1, 2, 3]) for _ in range(4)], r.choice(["constant", "reflect", "replicate"])
        return net.add("picture", lambda a: F.pad(a, pads, mode), x)
    if kind == "crop":
        return net.add("picture", lambda a: a[:, :, 1:, :-1], x)
    if kind == "transpose":
        return net.add("picture", lambda a: a.transpose(2, 3), x)
    if kind == "stride":
        return net.add("picture", lambda a: a[:, :, ::2, 1::2], x)
    if kind == "focus":
        return net.add("picture", lambda a: torch.cat([a[..., ::2, ::2], a[..., 1::2, ::2], a[..., ::2, 1::2], a[..., 1::2, 1::2]], 1), x)
    if kind == "blur":
        taps = torch.tensor([1.0, 2.0, 1.0])
        kernel = (taps[:, None] * taps / 16).expand(c, 1, 3, 3).clone()
        return net.add("picture", lambda a: F.conv2d(F.pad(a, (1, 1, 1, 1), "reflect"), kernel, stride=2, groups=c), x)
    if kind == "coordinates":

        def coordinates(a):
            rows = torch.arange(a.shape[2], dtype=a.dtype) / a.shape[2]
            columns = torch.arange(a.shape[3], dtype=a.dtype) / a.shape[3]
            return torch.cat([a, rows[None, None, :, None].expand(a.shape[0], 1, a.shape[2], a.shape[3]), columns.expand(a.shape[0], 1, a.shape[2], a.shape[3])], 1)

        return net.add("picture", coordinates, x)
    if kind == "rotate":
        return net.add("picture", lambda a: torch.rot90(a, 1, (2, 3)), x)
    if c < 2:
        raise Refused
    mode, padding, corners = r.choice(["bilinear", "nearest", "bicubic"]), r.choice(["zeros", "border", "reflection"]), r.random() < 0.5
    return net.add("picture", lambda a: F.grid_sample(a, torch.tanh(a[:, :2]).movedim(1, -1), mode, padding, corners), x)


@layer("picture", 2)
def attended(net, x):
    """Attention among places, channels or windows of a picture."""
    r = net.r
    n, c, h, w = net.shape(x)
    kind = r.choice(["places", "channels", "windows", "gram", "rows"])
    if kind == "places":  # the attention block of a diffusion network

        def places(a, norm, qkv, out):
            q, k, v = qkv(norm(a)).flatten(2).chunk(3, 1)
            weight = (q.transpose(1, 2) @ k / math.sqrt(q.shape[1])).softmax(-1)
            return a + out((v @ weight.transpose(1, 2)).reshape(a.shape))

        return net.add("picture", Apply(places, nn.GroupNorm(1, c), nn.Conv2d(c, 3 * c, 1), nn.Conv2d(c, c, 1)), x)
    if kind == "channels":  # XCiT, Restormer

        def channels(a, qkv):
            q, k, v = qkv(a).flatten(2).chunk(3, 1)
            weight = (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(1, 2) * 1.7).softmax(-1)
            return (weight @ v).reshape(a.shape)

        return net.add("picture", Apply(channels, nn.Conv2d(c, 3 * c, 1)), x)
    if kind == "windows":
        s, heads = r.choice([2, 3, 4, 7]), r.choice([k for k in (1, 2, 3, 5) if c % k == 0])

        def windows(a, qkv, out):
            rows, columns = a.shape[2], a.shape[3]
            a = F.pad(a, (0, (s - columns % s) % s, 0, (s - rows % s) % s))
            b, d, high, wide = a.shape
            t = a.reshape(b, d, high // s, s, wide // s, s).permute(0, 2, 4, 3, 5, 1).reshape(-1, s * s, d)
            q, k, v = qkv(t).reshape(t.shape[0], s * s, 3, heads, d // heads).permute(2, 0, 3, 1, 4)
            t = out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(-1, s * s, d))
            t = t.reshape(b, high // s, wide // s, s, s, d).permute(0, 5, 1, 3, 2, 4).reshape(b, d, high, wide)
            return t[:, :, :rows, :columns]

        return net.add("picture", Apply(windows, nn.Linear(c, 3 * c), nn.Linear(c, c)), x)
    if kind == "gram":
        return net.add("tokens", lambda a: a.flatten(2) @ a.flatten(2).transpose(1, 2) / (a.shape[2] * a.shape[3]), x)

    def rows(a, q, k, v):
        weight = (q(a).permute(0, 2, 3, 1) @ k(a).permute(0, 2, 1, 3)).softmax(-1)
        return a + (weight @ v(a).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    m = net.size(1, 9)
    return net.add("picture", Apply(rows, nn.Conv2d(c, m, 1), nn.Conv2d(c, m, 1), nn.Conv2d(c, c, 1)), x)


@layer("picture", 2)
def to_tokens(net, x):
    r = net.r
    n, c, h, w = net.shape(x)
    kind = r.choice(["flatten", "patches", "columns"])
    if kind == "flatten":
        return net.add("tokens", lambda a: a.flatten(2).transpose(1, 2), x)
    if kind == "patches":
        p = r.choice([2, 3, 4])
        return net.add("tokens", Apply(lambda a, f: f(a).flatten(2).transpose(1, 2), nn.Conv2d(c, net.size(2, 40), p, p)), x)
    return net.add("tokens", lambda a: a.permute(0, 3, 1, 2).flatten(2), x)  # a line of text


@layer("picture", 1)
def dynamic_convolution(net, x):
    """Weights that are computed: standardized, demodulated (StyleGAN), or drawn from the picture."""
    r = net.r
    n, c, h, w = net.shape(x)
    oc = net.size(1, 17)

    class Computed(nn.Module):
        def __init__(self, kind):
            super().__init__()
            self.kind, self.weight, self.style = kind, nn.Parameter(torch.randn(oc, c, 3, 3)), nn.Linear(c, c)

        def forward(self, a):
            if self.kind == "standardized":
                weight = (self.weight - self.weight.mean((1, 2, 3), keepdim=True)) / (self.weight.std((1, 2, 3), keepdim=True) + 1e-4)
                return F.conv2d(a, weight, padding=1)
            style = self.style(a.mean((2, 3)))
            weight = self.weight[None] * style[:, None, :, None, None]
            weight = weight * torch.rsqrt(weight.square().sum((2, 3, 4), keepdim=True) + 1e-4)
            b, _, rows, columns = a.shape
            return F.conv2d(a.reshape(1, b * c, rows, columns), weight.reshape(b * oc, c, 3, 3), padding=1, groups=b).reshape(b, oc, rows, columns)

    return net.add("picture", Computed(r.choice(["standardized", "demodulated"])), x)


@layer("volume", 1)
def to_pictures(net, x):
    n, c, d, h, w = net.shape(x)
    how = net.r.choice([lambda a: a.flatten(1, 2), lambda a: a.transpose(1, 2).flatten(0, 1), lambda a: a.amax(2), lambda a: a.mean(4)])
    return net.add("picture", how, x)
