"""Writes small networks with random weights as ONNX, by both of PyTorch's exporters: exported_networks.py FOLDER.

Needs torch, onnx and onnxscript, which tests/requirements.txt does not have; test_exported_networks.py runs it by the Python named in
OPTC_TORCH_PYTHON. Each NAME.onnx has its inputs beside it (NAME.in/input_0.npy, ...). What an exporter itself refuses is said and left out.
"""

import pathlib
import sys
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

R = torch.randn


def lively(module):
    """Weights that leave nothing idle: ones and zeros are disturbed, statistics random."""
    with torch.no_grad():
        for name, p in [*module.named_parameters(), *module.named_buffers()]:
            if name.endswith("running_var"):
                p.copy_(torch.rand(p.shape) + 0.5)
            elif p.is_floating_point() and p.numel() > 1 and float(p.std()) < 1e-4:
                p.add_(0.1 * R(p.shape))
    return module.eval()


class Of(nn.Module):
    """A function of the inputs and of modules."""

    def __init__(self, function, *parts):
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, x):
        return self.function(x, *self.parts)


class SamePadding(nn.Module):
    """A convolution whose pads are ceil(size / stride), as networks that come from TensorFlow have them."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3, stride=2)

    def forward(self, x):
        pads = [max((-(-n // 2) - 1) * 2 + 3 - n, 0) for n in x.shape[2:]]
        return self.conv(F.pad(x, [pads[1] // 2, pads[1] - pads[1] // 2, pads[0] // 2, pads[0] - pads[0] // 2]))


def windows(x, norm, attention):
    """Attention in windows of 4 x 4, whose number and place follow from the sizes."""
    b, c, h, w = x.shape
    t = x.permute(0, 2, 3, 1).reshape(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
    t = norm(t)
    t = t + attention(t, t, t, need_weights=False)[0]
    t = t.reshape(b, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
    return t.permute(0, 3, 1, 2).roll((-2, -2), (2, 3))


def experts(x, gate):
    """Two of four experts for each token, all computed."""
    weight, index = gate(x).softmax(-1).topk(2, -1)
    every = torch.stack([torch.tanh(x * k) for k in (0.5, 1.0, 1.5, 2.0)], 2)
    return (every.gather(2, index[..., None].expand(-1, -1, -1, x.shape[-1])) * weight[..., None]).sum(2)


def rotated(x):
    n, d = x.shape[1], x.shape[2]
    angle = torch.outer(torch.arange(n).float(), 1.0 / 10000 ** (torch.arange(0, d, 2).float() / d))
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1).flatten(2)


def by_kernel(x):
    """A pooled key of each head, one part of a list after the other (a loop over a sequence in TorchScript)."""
    parts = x.split([1, x.shape[1] - 1], 1)
    return torch.cat([parts[0], F.avg_pool1d(parts[1].transpose(1, 2), 2, 2).transpose(1, 2)], 1)


class Counted(nn.Module):
    def forward(self, x):
        y = x
        for i in range(x.size(0)):
            if bool(y.sum() > 0):
                y = y * 0.5 - i
            else:
                y = y + x[i]
        return y


PICTURE, TOKENS = {0: "batch", 2: "height", 3: "width"}, {0: "batch", 1: "length"}
# name: (module, input, its dynamic dims)
NETWORKS = {
    "same_padding": lambda: (nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU(), SamePadding()), R(2, 3, 18, 22), {0: "batch"}),
    "windows": lambda: (Of(windows, nn.LayerNorm(16), nn.MultiheadAttention(16, 4, batch_first=True)), R(2, 16, 8, 12), {0: "batch"}),
    "same_padding_and_windows": lambda: (
        nn.Sequential(nn.Conv2d(3, 8, 1), SamePadding(), Of(windows, nn.LayerNorm(8), nn.MultiheadAttention(8, 2, batch_first=True))), R(2, 3, 16, 24), {0: "batch"}),
    "experts": lambda: (Of(experts, nn.Linear(8, 4)), R(2, 7, 8), TOKENS),
    "rotated": lambda: (Of(rotated), R(2, 7, 8), TOKENS),
    "split_list": lambda: (Of(by_kernel), R(2, 9, 6), {0: "batch"}),
    "encoder": lambda: (nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True), 2, enable_nested_tensor=False), R(2, 6, 16), {0: "batch"}),
    "gru": lambda: (Of(lambda x, r: r(x)[0], nn.GRU(5, 7, num_layers=2, bidirectional=True, batch_first=True)), R(2, 6, 5), {0: "batch"}),
    "resized": lambda: (Of(lambda x: (F.interpolate(x, scale_factor=2.0, mode="bilinear"), F.interpolate(x, size=(5, 11), mode="bicubic"))), R(2, 3, 7, 9), PICTURE),
    "sampled": lambda: (Of(lambda x: F.grid_sample(x, torch.tanh(x[:, :2].permute(0, 2, 3, 1)), align_corners=False)), R(2, 3, 7, 9), PICTURE),
    "groups": lambda: (nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.GroupNorm(2, 8), nn.Mish(), nn.PixelShuffle(2), nn.ConvTranspose2d(2, 4, 3, 2)), R(2, 8, 9, 7), PICTURE),
    "chosen": lambda: (Of(lambda x: (*x.topk(3), x.sort(0)[0], x[x > 0], x.nonzero(), x.cumsum(1), x.masked_fill(x < 0, 9.0))), R(5, 8), {0: "batch"}),
    "scattered": lambda: (Of(lambda x: x.scatter_reduce(1, (x > 0).long(), x * 2, "amax")), R(4, 6), {0: "batch"}),
    "counted": lambda: (torch.jit.script(Counted()), R(3, 4), {0: "rows"}),
}  # fmt: skip


def write(path, exporter, module, x, dims):
    if exporter == "script":
        torch.onnx.export(module, (x,), str(path), opset_version=18, dynamo=False, input_names=["x"], dynamic_axes={"x": dims})
    else:
        torch.onnx.export(module, (x,), opset_version=18, dynamo=True, verbose=False).save(str(path))
    folder = path.with_suffix(".in")
    folder.mkdir(exist_ok=True)
    np.save(folder / "input_0.npy", x.numpy())


def main(folder):
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    for name, make in NETWORKS.items():
        for exporter in ("script", "dynamo"):
            torch.manual_seed(0)
            module, x, dims = make()
            if not isinstance(module, torch.jit.ScriptModule):
                lively(module)
            elif exporter == "dynamo":
                continue
            try:
                write(folder / f"{name}.{exporter}.onnx", exporter, module, x, dims)
            except Exception as refusal:  # of many types
                print(f"{name} by {exporter}: {type(refusal).__name__}", flush=True)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
