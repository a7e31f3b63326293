"""Layers of transformers, state-space and recurrent networks, speech and tables, at widths that fit no tile."""

import math

import torch
import torch.nn.functional as F
from build import Apply, Refused, layer
from layers_pictures import activated
from torch import nn

WIDTHS = [1, 2, 3, 4, 5, 8, 16, 20, 24, 40, 64, 80, 96, 160, 192, 256, 300]  # of a head


@layer("tokens", 4)
def linear(net, x):
    d = net.shape(x)[2]
    y = net.add("tokens", nn.Linear(d, net.size(1, 40), bias=net.r.random() < 0.7), x)
    return activated(net, y) if net.r.random() < 0.5 else y


@layer("tokens", 3)
def normalized_tokens(net, x):
    d, r = net.shape(x)[2], net.r
    kind = r.choice(["layer", "layer", "rms", "plain", "softmax", "unit", "length", "log", "min max"])
    if kind == "layer":
        return net.add("tokens", nn.LayerNorm(d), x)
    if kind == "rms":
        return net.add("tokens", Apply(lambda a, f: f(a * torch.rsqrt(a.pow(2).mean(-1, keepdim=True) + 1e-6)), nn.Linear(d, d)), x)
    if kind == "plain":
        return net.add("tokens", lambda a: (a - a.mean(-1, keepdim=True)) / torch.sqrt(a.var(-1, keepdim=True, unbiased=False) + 1e-5), x)
    if kind == "softmax":
        axis = r.choice([1, 2, -1])
        return net.add("tokens", lambda a: a.softmax(axis), x)
    if kind == "unit":
        return net.add("tokens", lambda a: F.normalize(a, dim=-1), x)
    if kind == "length":
        return net.add("tokens", lambda a: (a - a.mean(1, keepdim=True)) / (a.std(1, keepdim=True, unbiased=False) + 1e-3), x)
    if kind == "log":
        return net.add("tokens", lambda a: a.log_softmax(-1), x)
    return net.add("tokens", lambda a: (a - a.amin(1, True)) / (a.amax(1, True) - a.amin(1, True) + 1e-3), x)


def heads_of(net):
    """(heads of queries, heads of keys, width of a head), of which products stay small."""
    r = net.r
    width = r.choice(WIDTHS)
    keys = r.choice([1, 1, 2, 3])
    heads = keys * r.choice([1, 1, 2, 3, 4])
    if heads * width > 640:
        heads = keys = 1
    return heads, keys, width


def positions(length, keys):
    return torch.arange(length)[:, None] - torch.arange(keys)[None] + (keys - length)


@layer("tokens", 6)
def attention(net, x):
    """Self-attention or attention to another sequence: grouped keys, rotary, biases by distance, masks, windows, sinks, caps."""
    r = net.r
    d = net.shape(x)[2]
    heads, keys, width = heads_of(net)
    found = [i for i, k in enumerate(net.kinds) if k == "tokens" and i != x and net.shape(i)[0] == net.shape(x)[0]]
    source = r.choice(found) if found and r.random() < 0.3 else x
    rotary = r.choice(["", "", "halves", "pairs"]) if width % 2 == 0 and source == x else ""
    mask = r.choice(["", "", "causal", "window", "alibi", "buckets", "length", "cap", "given"])
    own_softmax, half = r.random() < 0.6, r.random() < 0.5

    def turn(a):
        length, w = a.shape[2], a.shape[3]
        angle = torch.arange(length, dtype=a.dtype)[:, None] * (100.0 ** (-torch.arange(0, w, 2, dtype=a.dtype) / w))[None]
        cos, sin = angle.cos(), angle.sin()
        if rotary == "halves":
            left, right = a[..., : w // 2], a[..., w // 2 :]
            return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)
        left, right = a[..., ::2], a[..., 1::2]
        return torch.stack([left * cos - right * sin, left * sin + right * cos], -1).flatten(-2)

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = nn.Linear(d, heads * width), nn.Linear(net.shape(source)[2], keys * width), nn.Linear(net.shape(source)[2], keys * width)
            self.out, self.bias = nn.Linear(heads * width, d), nn.Parameter(torch.randn(9, heads))

        def biased(self, scores):
            n, m = scores.shape[2], scores.shape[3]
            far = positions(n, m)
            low = -1e4 if half else float("-inf")
            if mask == "causal":
                return scores.masked_fill(far < 0, low)
            if mask == "window":
                return scores.masked_fill((far < 0) | (far > 3), low)
            if mask == "alibi":
                slopes = 2.0 ** -torch.arange(1, heads + 1, dtype=scores.dtype)
                return scores - slopes[:, None, None] * far.abs()
            if mask == "buckets":
                return scores + self.bias[far.clamp(-4, 4) + 4].permute(2, 0, 1)
            if mask == "cap":
                return 5 * torch.tanh(scores / 5)
            if mask == "length":
                lengths = torch.arange(scores.shape[0]) + 1
                return scores.masked_fill((torch.arange(m)[None] >= lengths[:, None])[:, None, None], low)
            return scores

        def forward(self, a, b):
            q, k, v = (
                f(t).reshape(t.shape[0], t.shape[1], h, width).transpose(1, 2)
                for f, t, h in ((self.q, a, heads), (self.k, b, keys), (self.v, b, keys))
            )
            if rotary:
                q, k = turn(q), turn(k)
            if heads != keys:
                k, v = (t[:, :, None].expand(-1, -1, heads // keys, -1, -1).flatten(1, 2) for t in (k, v))
            if own_softmax:
                y = self.biased(q @ k.transpose(-1, -2) / math.sqrt(width)).softmax(-1) @ v
            elif mask == "causal":
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            elif mask == "given":
                y = F.scaled_dot_product_attention(q, k, v, attn_mask=positions(q.shape[2], k.shape[2]).abs() < 4)
            else:
                y = F.scaled_dot_product_attention(q, k, v)
            return self.out(y.transpose(1, 2).flatten(2))

    y = net.add("tokens", Attention(), x, source)
    return net.add("tokens", torch.add, x, y) if r.random() < 0.6 else y


@layer("tokens", 2)
def feed_forward(net, x):
    r = net.r
    d, m = net.shape(x)[2], net.size(1, 40)
    kind = r.choice(["mlp", "swiglu", "experts", "spatial", "mixer", "fourier", "conformer", "maxout"])
    if kind == "mlp":
        return net.add("tokens", Apply(lambda a, n, f, g: a + g(F.gelu(f(n(a)))), nn.LayerNorm(d), nn.Linear(d, m), nn.Linear(m, d)), x)
    if kind == "swiglu":
        return net.add("tokens", Apply(lambda a, f, g, h: h(F.silu(f(a)) * g(a)), nn.Linear(d, m), nn.Linear(d, m), nn.Linear(m, d)), x)
    if kind == "experts":

        def experts(a, gate, *parts):
            weight, index = gate(a).softmax(-1).topk(2, -1)
            every = torch.stack([p(a) for p in parts], 2)
            return (every.gather(2, index[..., None].expand(-1, -1, -1, a.shape[-1])) * weight[..., None]).sum(2)

        return net.add("tokens", Apply(experts, nn.Linear(d, 3), *[nn.Linear(d, d) for _ in range(3)]), x)
    if kind == "spatial":  # gMLP, with weights by place that end at the sequence's length
        length = net.shape(x)[1]

        def gating(a, f, g):
            u, v = f(a).chunk(2, -1)
            return u * g(v.transpose(1, 2)).transpose(1, 2)

        return net.add("tokens", Apply(gating, nn.Linear(d, 2 * m), nn.Linear(length, length)), x)
    if kind == "mixer":
        length = net.shape(x)[1]
        return net.add("tokens", Apply(lambda a, f, g: a + g(F.gelu(f(a.transpose(1, 2)))).transpose(1, 2), nn.Linear(length, m), nn.Linear(m, length)), x)
    if kind == "fourier":  # positions by sines
        return net.add("tokens", lambda a: torch.cat([a, torch.sin(a * 2.1), torch.cos(a * 3.3)], -1), x)
    if kind == "conformer":
        k = r.choice([3, 7, 15, 31])

        def module(a, norm, f, depth, batch, g):
            y = F.glu(f(norm(a)), -1).transpose(1, 2)
            return a + g(F.silu(batch(depth(y))).transpose(1, 2))

        return net.add("tokens", Apply(module, nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Conv1d(d, d, k, padding=k // 2, groups=d), nn.BatchNorm1d(d), nn.Linear(d, d)), x)
    return net.add("tokens", Apply(lambda a, f: f(a).unflatten(-1, (m, 3)).amax(-1), nn.Linear(d, 3 * m)), x)


@layer("tokens", 2.5)
def recurrent(net, x):
    r = net.r
    n, length, d = net.shape(x)
    hidden = net.size(1, 33)
    kind = r.choice(["LSTM", "GRU", "RNN"])
    module = getattr(nn, kind)(d, hidden, num_layers=r.choice([1, 1, 2]), bidirectional=r.random() < 0.4, batch_first=True, bias=r.random() < 0.8)
    last = r.random() < 0.2

    def run(a, f):
        y, h = f(a)
        return (h if kind != "LSTM" else h[0]).transpose(0, 1) if last else y

    return net.add("tokens", Apply(run, module), x)


@layer("tokens", 2)
def scanned(net, x):
    """States over the sequence: sums so far, linear attention, a selective scan, WKV, decays."""
    r = net.r
    n, length, d = net.shape(x)
    kind = r.choice(["sum", "linear attention", "retention", "selective", "shift", "maximum", "decay", "rank"])
    if kind == "sum":
        axis = r.choice([1, 2])
        return net.add("tokens", lambda a: a.cumsum(axis) / (1 + a.shape[axis]), x)
    if kind == "linear attention":
        m = net.size(1, 17)

        def causal(a, f, g, h):
            q, k, v = F.elu(f(a)) + 1, F.elu(g(a)) + 1, h(a)
            state = torch.einsum("nld,nlm->nldm", k, v).cumsum(1)
            return torch.einsum("nld,nldm->nlm", q, state) / ((q * k.cumsum(1)).sum(-1, keepdim=True) + 1e-3)

        return net.add("tokens", Apply(causal, nn.Linear(d, m), nn.Linear(d, m), nn.Linear(d, net.size(1, 17))), x)
    if kind == "retention":

        def retention(a, f, g):
            far = positions(a.shape[1], a.shape[1])
            decay = torch.where(far >= 0, 0.8 ** far.clamp(min=0).to(a.dtype), torch.zeros((), dtype=a.dtype))
            return ((f(a) @ g(a).transpose(1, 2)) * decay) @ a / a.shape[1]

        return net.add("tokens", Apply(retention, nn.Linear(d, 8), nn.Linear(d, 8)), x)
    if kind == "selective":  # Mamba's recurrence, unrolled
        if length > 9:
            raise Refused
        s = r.choice([1, 2, 5])

        def scan(a, f, g, h):
            step, b, c = F.softplus(f(a)), g(a), h(a)
            state, out = a.new_zeros(a.shape[0], d, s), []
            for i in range(length):
                state = state * torch.exp(-step[:, i, :, None]) + step[:, i, :, None] * b[:, i, None] * a[:, i, :, None]
                out.append((state * c[:, i, None]).sum(-1))
            return torch.stack(out, 1)

        return net.add("tokens", Apply(scan, nn.Linear(d, d), nn.Linear(d, s), nn.Linear(d, s)), x)
    if kind == "shift":  # RWKV
        return net.add("tokens", Apply(lambda a, f: f(a) * torch.sigmoid(F.pad(a, (0, 0, 1, -1))), nn.Linear(d, d)), x)
    if kind == "maximum":
        return net.add("tokens", lambda a: F.pad(a, (0, 0, 2, 0), value=-9.0).unfold(1, 3, 1).amax(-1), x)
    if kind == "decay":
        return net.add("tokens", lambda a: torch.exp(-a.abs().cumsum(1)) * a, x)
    return net.add("tokens", lambda a: torch.sort(a, 1)[0] if r_sort else a.topk(min(3, length), 1)[0], x) if (r_sort := r.random() < 0.5) or True else None


@layer("tokens", 2)
def mixed(net, x):
    """Products of every form: einsums, bilinear, outer, distances, pooled by attention, cosines."""
    r = net.r
    n, length, d = net.shape(x)
    m = net.size(1, 24)
    kind = r.choice(["bilinear", "distances", "pool", "cosine", "heads", "tri", "outer", "kan", "neighbours", "segments", "codes", "spread"])
    if kind == "bilinear":
        return net.add("tokens", Apply(lambda a, f: f(a, a.roll(1, 1)), nn.Bilinear(d, d, m)), x)
    if kind == "distances":
        return net.add("tokens", lambda a: torch.exp(-((a[:, :, None] - a[:, None]).square().mean(-1))), x)
    if kind == "pool":
        return net.add("vector", Apply(lambda a, f: (f(a).softmax(1) * a).sum(1), nn.Linear(d, 1)), x)
    if kind == "cosine":
        return net.add("tokens", lambda a: F.cosine_similarity(a[:, :, None], a[:, None], dim=-1), x)
    if kind == "heads":
        h = r.choice([k for k in range(1, d + 1) if d % k == 0])
        return net.add("tokens", lambda a: torch.einsum("nlhd,nmhd->nhlm", (t := a.unflatten(-1, (h, d // h))), t).mean(1) / d, x)
    if kind == "tri":  # AlphaFold's triangle
        return net.add("tokens", Apply(lambda a, f: torch.einsum("nik,njk->nij", f(a), a) / d, nn.Linear(d, d)), x)
    if kind == "outer":
        return net.add("picture", lambda a: torch.einsum("nli,nlj->nlij", a[..., :5], a[..., -7:]), x)
    if kind == "kan":  # splines on a grid
        grid = torch.linspace(-2, 2, 5)
        return net.add("tokens", Apply(lambda a, f: f((-(a[..., None] - grid.to(a.dtype)).square()).exp().flatten(-2)), nn.Linear(5 * d, m)), x)
    if kind == "neighbours":  # point clouds: features of the nearest by distance
        k = min(3, length)

        def nearest(a, f):
            far = (a[:, :, None] - a[:, None]).square().sum(-1)
            index = far.topk(k, -1, largest=False)[1]
            near = torch.gather(a[:, None].expand(-1, a.shape[1], -1, -1), 2, index[..., None].expand(-1, -1, -1, a.shape[-1]))
            return f(torch.cat([near - a[:, :, None], a[:, :, None].expand_as(near)], -1)).amax(2)

        return net.add("tokens", Apply(nearest, nn.Linear(2 * d, m)), x)
    if kind == "segments":  # sums over a graph's edges
        target = torch.randint(0, length, (2 * length,), generator=net.noise)
        source = torch.randint(0, length, (2 * length,), generator=net.noise)
        return net.add("tokens", lambda a: torch.zeros_like(a).index_add(1, target, a[:, source]), x)
    if kind == "codes":  # a codebook's nearest entry
        book = net.randn(7, d)
        return net.add("tokens", lambda a: F.embedding((a[:, :, None] - book.to(a.dtype)).square().sum(-1).argmin(-1), book.to(a.dtype)), x)
    times = r.choice([2, 3])
    return net.add("tokens", lambda a: a.repeat_interleave(times, 1), x)


@layer("tokens", 1.5)
def reshaped_tokens(net, x):
    r = net.r
    n, length, d = net.shape(x)
    kind = r.choice(["line", "line", "picture", "transpose", "classes", "slice", "halves", "last", "append", "merge", "fold"])
    if kind == "line":
        return net.add("line", lambda a: a.transpose(1, 2), x)
    if kind == "picture":
        h = r.choice([k for k in range(1, length + 1) if length % k == 0])
        return net.add("picture", lambda a: a.transpose(1, 2).unflatten(2, (h, length // h)), x)
    if kind == "transpose":
        return net.add("tokens", lambda a: a.transpose(1, 2), x)
    if kind == "classes":
        first = net.randn(1, 1, d)
        return net.add("tokens", lambda a: torch.cat([first.to(a.dtype).expand(a.shape[0], -1, -1), a], 1), x)
    if kind == "slice":
        return net.add("tokens", lambda a: a[:, 1:], x)
    if kind == "halves":
        return net.add("tokens", lambda a: torch.cat([a[:, ::2], a[:, 1::2]], 1), x)
    if kind == "last":
        return net.add("vector", lambda a: a[:, -1], x)
    if kind == "merge":  # two tokens become one
        return net.add("tokens", lambda a: a[:, : a.shape[1] // 2 * 2].reshape(a.shape[0], a.shape[1] // 2, 2 * a.shape[2]), x)
    if kind == "fold":
        return net.add("tokens", lambda a: a.flatten(0, 1)[None], x)
    found = net.others(x)
    if not found:
        raise Refused
    return net.add("tokens", lambda a, b: torch.cat([a, b], r_axis), x, r.choice(found)) if (r_axis := r.choice([1, 2])) else None


@layer("line", 1.5)
def line_to_tokens(net, x):
    return net.add("tokens", lambda a: a.transpose(1, 2), x)


@layer("line", 1)
def line_to_picture(net, x):
    n, c, length = net.shape(x)
    p = net.r.choice([2, 3, 5])  # periods (HiFi-GAN's discriminator, TimesNet)
    return net.add("picture", lambda a: F.pad(a, (0, (p - a.shape[2] % p) % p)).reshape(a.shape[0], a.shape[1], -1, p), x)


@layer("line", 1)
def spectrum(net, x):
    """A transform by a product with waves, its magnitude; moving averages and differences."""
    n, c, length = net.shape(x)
    kind = net.r.choice(["waves", "trend", "difference", "energy"])
    if kind == "waves":
        k = torch.arange(length // 2 + 1)[:, None] * torch.arange(length)[None] * (2 * math.pi / length)
        return net.add("line", lambda a: torch.sqrt((a @ k.cos().T.to(a.dtype)).square() + (a @ k.sin().T.to(a.dtype)).square() + 1e-3), x)
    if kind == "trend":
        return net.add("line", lambda a: a - F.avg_pool1d(F.pad(a, (2, 2), mode="replicate"), 5, 1), x)
    if kind == "difference":
        return net.add("line", lambda a: torch.diff(a, dim=2), x)
    return net.add("line", lambda a: torch.log(F.avg_pool1d(a.square(), 4, 2, 1) + 1e-2), x)


@layer("vector", 2)
def head(net, x):
    d, m = net.shape(x)[1], net.size(1, 40)
    y = net.add("vector", nn.Linear(d, m), x)
    return net.add("vector", net.r.choice([nn.Softmax(1), nn.LogSoftmax(1), nn.Sigmoid(), nn.BatchNorm1d(m), nn.Tanh()]), y)


@layer("vector", 1)
def sparse(net, x):
    """Sparsemax (TabNet), a ranking, sums over all pairs (factorization machines)."""
    kind = net.r.choice(["sparsemax", "pairs", "rank"])
    if kind == "sparsemax":

        def sparsemax(a):
            z = torch.sort(a, 1, descending=True)[0]
            k = torch.arange(1, a.shape[1] + 1, dtype=a.dtype)
            sums = z.cumsum(1) - 1
            support = (k * z > sums).sum(1, keepdim=True)
            return F.relu(a - sums.gather(1, support - 1) / support.to(a.dtype))

        return net.add("vector", sparsemax, x)
    if kind == "pairs":
        return net.add("vector", lambda a: torch.cat([a, (a.sum(1, True).square() - a.square().sum(1, True)) / 2], 1), x)
    return net.add("vector", lambda a: (a[:, :, None] > a[:, None]).sum(-1).to(a.dtype) / 7, x)


@layer("vector", 0.7)
def to_sequence(net, x):
    return net.add("tokens", lambda a: a[:, None] * torch.arange(1, 4, dtype=a.dtype)[:, None], x)
