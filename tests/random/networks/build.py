"""A random network under construction: a list of steps, each a module over values that there are.

Every step is run as it is added, so that a layer can be drawn to fit the shapes that are there, and one that PyTorch itself refuses is
no layer of the network. What a step reads of sizes it reads from its operands, so that a network stands at other sizes, too.
"""

import random

import torch
from torch import nn

SIZES = [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 19, 23, 24, 29, 31, 32, 33, 37, 40]
LARGEST = 40_000  # elements of a value
LAYERS = {}  # kind of value -> [(function, weight)]


def layer(kind, weight=1):
    """Registers a function (net, value) -> value for values of a kind: picture [N,C,H,W], line [N,C,L], tokens [N,L,D], volume [N,C,D,H,W],
    vector [N,D]."""

    def register(function):
        LAYERS.setdefault(kind, []).append((function, weight))
        return function

    return register


class Refused(Exception):
    """A draw that is no layer here."""


class Apply(nn.Module):
    """A function of values and of modules, which come last."""

    def __init__(self, function, *parts):
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, *values):
        return self.function(*values, *self.parts)


class Network(nn.Module):
    """Steps over inputs; `plan` has for each the numbers of the values that it reads."""

    def __init__(self, inputs, steps, plan, outputs):
        super().__init__()
        self.inputs, self.steps, self.plan, self.outputs = inputs, nn.ModuleList(steps), plan, outputs

    def forward(self, *given):
        values = list(given)
        for step, reads in zip(self.steps, self.plan):
            values.append(step(*[values[i] for i in reads]))
        return tuple(values[i] for i in self.outputs)


class Net:
    """Values (as tensors of an example) with their kinds, and the steps that made them."""

    def __init__(self, seed):
        self.seed, self.r = seed, random.Random(seed)
        self.noise = torch.Generator().manual_seed(seed)
        self.values, self.kinds, self.inputs, self.steps, self.plan, self.words = [], [], [], [], [], []

    def size(self, least=1, most=40):
        return self.r.choice([s for s in SIZES if least <= s <= most])

    def randn(self, *shape):
        return torch.randn(*shape, generator=self.noise)

    def give(self, kind, value):
        """An input. All inputs come before all steps, so it is for a network's beginning."""
        self.values.append(value)
        self.kinds.append(kind)
        self.inputs.append(value)
        return len(self.values) - 1

    def add(self, kind, module, *reads):
        """A step that computes one value; its number."""
        module = lively(module if isinstance(module, nn.Module) else Apply(module), self.noise)
        with torch.no_grad():
            value = module(*[self.values[i] for i in reads])
        if not isinstance(value, torch.Tensor) or not 0 < value.numel() <= LARGEST:
            raise Refused(f"a value of {getattr(value, 'shape', None)}")
        if not torch.isfinite(value).all() or value.abs().max() > 1e4:
            raise Refused("values out of range")
        self.values.append(value)
        self.kinds.append(kind)
        self.steps.append(module)
        self.plan.append(reads)
        return len(self.values) - 1

    def shape(self, value):
        return tuple(self.values[value].shape)

    def others(self, value):
        """Values of the same shape and kind."""
        return [i for i, v in enumerate(self.values) if i != value and self.kinds[i] == self.kinds[value] and v.shape == self.values[value].shape]

    def network(self):
        read = {i for reads in self.plan for i in reads}
        made = range(len(self.inputs), len(self.values))
        outputs = [i for i in made if i not in read]
        middle = [i for i in made if i in read]
        if middle and self.r.random() < 0.3:  # an output that is read, too
            outputs.append(self.r.choice(middle))
        return Network(self.inputs, self.steps, self.plan, outputs)


def lively(module, generator):
    """Weights that leave nothing idle: ones and zeros are disturbed, statistics random; the network's own random numbers."""
    with torch.no_grad():
        for name, p in [*module.named_parameters(), *module.named_buffers()]:
            if not p.is_floating_point() or p.numel() == 0:
                continue
            noise = torch.randn(p.shape, generator=generator)
            if name.endswith("running_var"):
                p.copy_(noise.abs() + 0.5)
            elif p.numel() == 1 or float(p.std()) < 1e-4:
                p.add_(0.2 * noise)
            else:
                p.copy_(noise * float(p.std()))
    return module.eval()


def grow(seed):
    """The network of a seed: one or two inputs and 1 to some 12 layers."""
    import layers_pictures  # noqa: F401  each registers what it adds
    import layers_sequences  # noqa: F401

    net = Net(seed)
    r = net.r
    torch.manual_seed(seed)  # what modules draw when they are made
    kinds = [r.choice(["picture", "picture", "line", "tokens", "tokens", "volume"]) for _ in range(r.choice([1, 1, 2]))]
    for kind in kinds:
        n, c = r.choice([1, 1, 2, 3]), net.size(1, 24)
        shape = {
            "picture": lambda: (n, c, net.size(3, 24), net.size(3, 24)),
            "line": lambda: (n, c, net.size(4, 40)),
            "tokens": lambda: (n, net.size(2, 24), net.size(2, 40)),
            "volume": lambda: (n, min(c, 8), net.size(2, 7), net.size(2, 8), net.size(2, 9)),
        }[kind]()
        net.give(kind, net.randn(*shape))
    wanted, tries = r.choice([2, 3, 4, 6, 8, 12]), 0
    while len(net.words) < wanted and tries < 5 * wanted:
        tries += 1
        recent = [i for i in range(len(net.values)) if net.kinds[i] in LAYERS][-3:]
        value = r.choice(recent)
        functions, weights = zip(*LAYERS[net.kinds[value]])
        function = r.choices(functions, weights)[0]
        before = len(net.values), len(net.steps), len(net.plan)
        try:
            function(net, value)
            net.words.append(function.__name__)
        except (Refused, RuntimeError, ValueError, IndexError, AssertionError):
            for kept, length in zip((net.values, net.steps, net.plan), before):
                del kept[length:]
            del net.kinds[before[0] :]
    return net
