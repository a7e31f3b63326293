"""A random graph that grows node by node. The oracle runs every node at once, so the right value of each intermediate is known; what
it refuses is not added."""

import collections
import copy
import random

import numpy as np
from onnx import helper, numpy_helper

from compare import SUMS
from oracle import Reject, captures
from values import BF16, BOOL, F16, F32, F64, FLOAT8, FLOATS, I32, I64, INT4, INTS, ONNX, as_f64, is_float, is_int, value_info

MOST_ELEMENTS = 30000  # of a value
OPSETS = [11, 12, 13, 14, 15, 16, 17, 17, 18, 18, 19, 20, 21, 21, 22, 23, 23, 24, 25]
WINDOWS = ("Conv", "MaxPool", "AveragePool", "LpPool")
# Operators for which ONNX does not say what a NaN does, and runtimes differ.
UNDEFINED_ON_NAN = {
    "MaxPool",
    "QuantizeLinear",
    "DynamicQuantizeLinear",
    "Hardmax",
    "LogSoftmax",
    "Softmax",
    "ArgMax",
    "ArgMin",
    "TopK",
    "Unique",
    "ReduceMax",
    "ReduceMin",
    "GlobalMaxPool",
}
CHANNEL_PARAMETERS = {"BatchNormalization", "InstanceNormalization", "GroupNormalization"}
NEEDS_FINITE = {
    "DynamicQuantizeLinear", "NonMaxSuppression", "Resize", "GridSample", "RoiAlign", "AffineGrid", "Col2Im", "DeformConv", "Einsum", "MaxRoiPool", "DFT", "STFT",
    "LRN",  # some runtimes keep a sum along the channels, which an infinity spoils for those behind it
}  # fmt: skip
BROADCASTS = {
    "Add", "Sub", "Mul", "Div", "Mod", "Pow", "Max", "Min", "Sum", "Mean", "Where", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual",
    "And", "Or", "Xor", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor",
}  # fmt: skip
# Operators whose constants (1/6, sqrt(1/2)) the oracle has in single precision.
SINGLE_CONSTANTS = {"HardSwish", "HardSigmoid", "Gelu", "Selu", "Elu", "Celu", "LeakyRelu", "ThresholdedRelu", "Swish", "Gemm", "Shrink"}
SPECIAL = [np.nan, np.inf, -np.inf, -0.0, 0.0, -0.0, 1e-40, 1e10, -1e10]


def broadcasts(*shapes, most=20000):
    try:
        return np.prod(np.broadcast_shapes(*shapes)) <= most
    except ValueError:
        return False


def is_finite(value):
    return all(not is_float(a.dtype) or np.isfinite(as_f64(a)).all() for a in (value if isinstance(value, list) else [value]))


def operators_of(graph):
    """Of a subgraph and those inside of it."""
    for node in graph.node:
        yield node.op_type
        for a in node.attribute:
            if a.type == a.GRAPH:
                yield from operators_of(a.g)


def refuse_undefined(node, feeds):
    """Raises Reject where ONNX does not say what this node gives, though some runtime gives something."""
    op, attributes = node.op_type, {a.name: helper.get_attribute_value(a) for a in node.attribute if a.type != a.GRAPH}
    arrays = [feeds[i] for i in node.input if i]
    if op in UNDEFINED_ON_NAN and any(is_float(a.dtype) and np.isnan(as_f64(a)).any() for a in arrays):
        raise Reject
    # Probabilities and sums that vanish in 16 bits and not in 32 meet infinities otherwise.
    needs_finite = op in NEEDS_FINITE or op in SUMS and any(a.dtype in (F16, BF16) for a in arrays if not isinstance(a, list))
    if needs_finite and not all(map(is_finite, arrays)):
        raise Reject
    inner = {o for a in node.attribute if a.type == a.GRAPH for o in operators_of(a.g)}
    if inner & (UNDEFINED_ON_NAN | NEEDS_FINITE) and not all(map(is_finite, feeds.values())):
        raise Reject
    if op in WINDOWS and not window_fits(arrays[0].shape, attributes):
        raise Reject
    if op == "PRelu":  # the slope broadcasts to the input, which keeps its shape
        shapes = [a.shape for a in arrays]
        if not broadcasts(*shapes) or np.broadcast_shapes(*shapes) != shapes[0] or len(shapes[1]) > len(shapes[0]):
            raise Reject
    if (
        op == "Resize"
        and attributes.get("coordinate_transformation_mode") in (b"align_corners", b"pytorch_half_pixel")
        and len(node.input) == 3
    ):
        sizes = np.array(arrays[0].shape, F32) * arrays[-1]
        if not np.array_equal(sizes, np.floor(sizes)):  # whether the length that counts is 3 or 3.75
            raise Reject
    if op in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"):
        scores, target = arrays[0].shape, arrays[1].shape
        if target != scores[:1] + scores[2:] or any(a.shape != scores[1:2] for a in arrays[2:]):
            raise Reject
    # Whether a key that is masked out, or that no query sees, may still make a NaN (0 * inf) is not said.
    if op == "Attention":
        heads = [a.shape[1] for a in arrays[:3] if a.ndim == 4]
        if len({a.shape[0] for a in arrays[:3]}) > 1 or not all(map(is_finite, arrays)):
            raise Reject
        if arrays[1].shape[-2] != arrays[2].shape[-2]:  # a value for each key
            raise Reject
        if heads and (len(set(heads[1:])) > 1 or heads[0] % max(heads[1], 1)):  # as many of keys as of values, and queries for each
            raise Reject
    if op == "ScatterElements" and arrays[1].shape != arrays[2].shape:
        raise Reject
    if op == "ScatterND" and arrays[2].shape != arrays[1].shape[:-1] + arrays[0].shape[arrays[1].shape[-1] :]:  # the reference takes more updates
        raise Reject
    if op in BROADCASTS and not broadcasts(*(a.shape for a in arrays), most=np.inf):  # ONNX Runtime takes 0 against anything
        raise Reject
    if op == "Concat":  # ONNX Runtime passes over empty parts, whatever their dims
        axis = attributes["axis"]
        if len({a.shape[:axis] + (0,) + a.shape[axis % a.ndim + 1 :] for a in arrays}) > 1:
            raise Reject
    if op == "Pad" and attributes.get("mode", b"constant") != b"constant" and not has_what_pads(node, feeds, attributes["mode"]):
        raise Reject
    if op == "Compress":
        length = arrays[0].size if "axis" not in attributes else arrays[0].shape[attributes["axis"]]
        if arrays[1].size > length:
            raise Reject
    if op == "PRelu" and (arrays[0] == 0).any() and not is_finite(arrays[1]):  # the slope is for x < 0; runtimes take it for 0 too
        raise Reject
    if op in ("ScatterElements", "ScatterND") and attributes.get("reduction") in (b"max", b"min") and not all(map(is_finite, arrays)):
        raise Reject
    if op in ("ReduceSumSquare", "ReduceL2") and is_int(arrays[0].dtype):
        if (as_f64(arrays[0]) ** 2).sum() > np.iinfo(arrays[0].dtype).max:
            raise Reject
    if op in CHANNEL_PARAMETERS and any(a.shape != (arrays[0].shape[1],) for a in arrays[1:]):
        raise Reject


def has_what_pads(node, feeds, mode):
    """Whether each padded axis has as many elements as the mode repeats: what more of them would be is not said."""
    shape, pads = feeds[node.input[0]].shape, np.abs(feeds[node.input[1]])
    axes = feeds[node.input[3]] if len(node.input) > 3 else range(len(shape))
    if len(pads) != 2 * len(axes):  # a list that another size made
        return False
    most = {b"reflect": lambda d: d - 1, b"wrap": lambda d: d, b"edge": lambda d: np.inf if d else 0}[mode]
    return all(m <= most(shape[k]) for k, m in zip(axes, pads.reshape(2, -1).max(0)))


def window_fits(dims, attributes):
    """Whether a window lies inside the padded input at least once; else it is an error in some runtimes and a result in others."""
    kernel = attributes.get("kernel_shape")
    if kernel is None or attributes.get("auto_pad", b"NOTSET").startswith(b"SAME"):
        return True
    rank = len(kernel)
    pads, dilations = attributes.get("pads") or [0] * 2 * rank, attributes.get("dilations") or [1] * rank
    return all(dims[2 + i] + pads[i] + pads[i + rank] > (kernel[i] - 1) * dilations[i] for i in range(rank))


class RandomGraph:
    """What a graph is made of and how its leaves are drawn follows from the seed alone.

    r, np        generators of choices and of arrays
    v, kind      each value's array, and whether it is an input, const (initializer), cnode (Constant node) or node (of a node)
    nodes        (NodeProto, names that it reads, captures included)
    """

    def __init__(self, seed, oracle):
        self.seed, self.oracle = seed, oracle
        self.r = r = random.Random(seed)
        self.np = np.random.default_rng(seed)
        self.v, self.kind, self.nodes, self.who = {}, {}, [], {}
        self.sequences = {}  # values that are lists of arrays: made and read by nodes, never inputs or outputs
        self.made = 0
        self.uses = collections.Counter()
        self.single = set()  # float64 values that the oracle knows to single precision only
        self.opset = r.choice(OPSETS)
        self.ir_version = 10 if self.opset >= 20 else 8
        self.symbols = r.choice(["none", "none", "by size", "unique", "mixed"])  # dims of inputs
        self.special = r.random() < 0.15  # NaN, infinities, -0.0
        self.coarse = r.random() < 0.6  # values on a grid, whose sums are exact
        self.empty = r.random() < 0.15  # dims that are 0
        self.most_rank = r.choice([2, 3, 4, 4, 5])
        self.types = r.choice(
            [[F32], [F32], [F32], [F32, I64], [F16], [F64, I32], INTS, FLOATS, FLOATS + INTS + [BOOL], FLOATS + FLOAT8 + INT4]
        )
        self.operators = collections.Counter()
        self.declared = {}  # symbols of inputs
        self.broken = collections.Counter()  # faults of the generator itself

    # --- drawing
    def name(self, prefix="v"):
        self.made += 1
        return f"{prefix}{self.made}"

    def dim(self):
        if self.empty and self.r.random() < 0.15:
            return 0
        return self.r.choice([1, 1, 2, 2, 3, 3, 4, 5, 6, 8, self.r.choice([7, 9, 16, 17, 33])])

    def shape(self, rank=None, limit=4000):
        if rank is None:
            rank = self.r.choice([0, 1, 1, 2, 2, 3, 3, 4, 4, 5][: 2 * self.most_rank])
        while True:
            dims = [self.dim() for _ in range(rank)]
            if np.prod(dims) <= limit:
                return dims

    def data(self, dtype, shape):
        g, r, shape = self.np, self.r, tuple(shape)
        if dtype == BOOL:
            return np.asarray(g.integers(0, 2, shape)).astype(bool)
        if dtype in INT4:
            return np.asarray(g.integers(0, 8, shape)).astype(dtype)
        if is_int(dtype):
            if self.special and r.random() < 0.3:
                info = np.iinfo(dtype)
                return np.asarray(g.choice(np.array([info.min, info.max, info.max - 1, 0, 1, info.max // 2 + 1], dtype=dtype), shape))
            low, high = (0, 12) if dtype.kind == "u" else (-9, 10)
            return np.asarray(g.integers(low, high, shape)).astype(dtype)
        grid = self.coarse or r.random() < 0.3
        a = np.asarray(g.integers(-16, 17, shape) / 4.0 if grid else g.normal(0, r.choice([0.3, 1, 1, 3]), shape))
        if self.special and a.size and dtype in FLOATS and r.random() < 0.6:
            flat = a.reshape(-1)
            k = max(1, flat.size // 8)
            flat[g.integers(0, flat.size, k)] = g.choice(SPECIAL if r.random() < 0.5 else [-0.0, 0.0], k)
            a = flat.reshape(shape)
        with np.errstate(all="ignore"):
            return a.astype(dtype)

    # --- values
    def give(self, array):
        """An input of the graph with this value."""
        name = self.name("x")
        self.v[name], self.kind[name] = np.asarray(array), "input"
        return name

    def add_input(self, dtype, shape):
        return self.give(self.data(dtype, shape))

    def const(self, array):
        name = self.name("c")
        self.v[name] = np.asarray(array)
        self.kind[name] = "const" if self.r.random() < 0.7 else "cnode"
        return name

    def ints(self, *values):
        return self.const(np.array(values, dtype=np.int64))

    def listed(self, *values):
        """The same, now and then known to the run alone, whole or in part."""
        if self.r.random() < 0.8 or not values:
            return self.ints(*values)
        cuts = sorted(self.r.sample(range(1, len(values)), min(self.r.randrange(3), len(values) - 1)))
        parts = [values[i:j] for i, j in zip([0, *cuts], [*cuts, len(values)])]
        names = [self.give(np.array(p, np.int64)) if self.r.random() < 0.6 else self.ints(*p) for p in parts]
        return self.node("Concat", names, axis=0) if len(names) > 1 else names[0]

    def leaf(self, dtype, shape):
        """An input or a constant; some constants are uniform, as rules look for."""
        if self.r.random() >= 0.45:
            return self.add_input(dtype, shape)
        a = self.data(dtype, shape)
        if self.r.random() < 0.25:
            a = np.full(shape, self.r.choice([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 6.0, 3.0] if dtype in FLOATS else [0, 1])).astype(dtype)
        return self.const(a)

    def pick(self, types=None, rank=None, minrank=None, pred=None, shape=None):
        """A value of one of `types` that satisfies the rest: mostly one that nobody reads yet, sometimes a new leaf."""
        r = self.r
        types = types or FLOATS + INTS + [BOOL]
        fit = [
            n
            for n, a in self.v.items()
            if a.dtype in types
            and (rank is None or a.ndim == rank)
            and (minrank is None or a.ndim >= minrank)
            and (pred is None or pred(a))
            and (shape is None or a.shape == tuple(shape))
            and a.size <= 20000
        ]
        if fit and r.random() < 0.9:
            nodes = [n for n in fit if self.kind[n] == "node"]
            fresh = [n for n in nodes if not self.uses[n]]
            if fresh and r.random() < 0.55:
                return r.choice(fresh)
            if nodes and r.random() < 0.6:
                return r.choice(nodes)
            return r.choice(fit)
        for _ in range(20):
            dtype = r.choice([d for d in self.types if d in types] or types)
            dims = list(shape) if shape is not None else self.shape(rank)
            if minrank and len(dims) < minrank:
                dims = self.shape(minrank + r.randrange(2))
            if pred is None or pred(np.empty(dims, dtype)):
                return self.leaf(dtype, dims)
        raise Reject

    def partner(self, x):
        """A value that broadcasts with x, of its type."""
        a, r = self.v[x], self.r
        if r.random() < 0.55:
            return self.pick([a.dtype], pred=lambda b: broadcasts(a.shape, b.shape))
        if r.random() < 0.35:
            return self.leaf(a.dtype, r.choice([[], [1], [1] * min(5, a.ndim + 1), [1] * a.ndim]))
        dims = list(a.shape)
        if r.random() < 0.5:
            dims = dims[r.randrange(len(dims) + 1) :]
        dims = [1 if r.random() < 0.25 else d for d in dims]
        if r.random() < 0.1 and len(dims) < 5:
            dims = [r.choice([1, 2])] + dims
        return self.leaf(a.dtype, dims)

    # --- nodes
    def node(self, op, inputs, nout=1, **attributes):
        """Adds a node; gives the name of its output, or of its outputs. `nout`: how many, or a list that says which are there."""
        inputs = list(inputs)
        while inputs and inputs[-1] == "":
            inputs.pop()
        outputs = [self.name() if there else "" for there in (nout if not isinstance(nout, int) else [1] * nout)]
        n = helper.make_node(op, inputs, outputs, name=f"{op}_{self.made}", **{k: v for k, v in attributes.items() if v is not None})
        named = [o for o in outputs if o]
        need = list(dict.fromkeys(captures(n)))
        feeds = {i: self.value(i) for i in need}
        refuse_undefined(n, feeds)
        values, who = self.oracle.run(n, feeds, self.opset, self.ir_version)
        # The reference evaluator pads some windows and weights with zeros, which an infinity or NaN meets.
        if who == "reference" and op in SUMS and not all(is_finite(a) for a in feeds.values()):
            raise Reject
        for o, a in zip(named, values):
            if isinstance(a, list):
                self.sequences[o] = a
        arrays = {o: a for o, a in zip(named, values) if o not in self.sequences}
        if any(not isinstance(a, np.ndarray) or a.dtype not in ONNX or a.size > MOST_ELEMENTS or a.ndim > 6 for a in arrays.values()):
            raise Reject
        if op in WINDOWS and any(0 in a.shape for a in arrays.values()):
            raise Reject
        for o, a in arrays.items():
            self.v[o], self.kind[o], self.who[o] = a, "node", who
            coarser = any(is_float(self.v[i].dtype) and self.v[i].dtype != F64 for i in need if i in self.v)
            if a.dtype == F64 and (coarser or who == "reference" or op in SINGLE_CONSTANTS or self.single & set(need)):
                self.single.add(o)
        for i in need:
            self.uses[i] += 1
        self.nodes.append((n, need))
        self.operators[op] += 1
        return named[0] if len(named) == 1 else named

    def value(self, name):
        return self.v[name] if name in self.v else self.sequences[name]

    def snapshot(self):
        return dict(self.v), dict(self.kind), list(self.nodes), collections.Counter(self.uses)

    def restore(self, snapshot):
        self.v, self.kind, self.nodes, self.uses = snapshot

    # --- models
    def draw(self, name):
        """Choices about a value that do not depend on what else is in the model, so that a graph cut down declares the same."""
        return random.Random(f"{self.seed} {name}")

    def symbols_of(self, name):
        """A symbol or None for each dim of an input, by the sizes that the graph was grown with."""
        if name not in self.declared:
            draw, dims = self.draw(name), []
            for k, d in enumerate(self.v[name].shape):
                mode = draw.choice(["none", "by size", "unique"]) if self.symbols == "mixed" else self.symbols
                dims.append({"none": None, "by size": f"d{d}", "unique": f"{name}_{k}"}[mode])
            self.declared[name] = dims
        return self.declared[name]

    def dims(self, inputs):
        """What the model declares of its inputs: numbers or symbols, one symbol never with two sizes."""
        sizes, declared = {}, {}
        for name in inputs:
            dims = []
            for k, (symbol, size) in enumerate(zip(self.symbols_of(name), self.v[name].shape)):
                if symbol and sizes.setdefault(symbol, size) != size:
                    symbol = f"{name}_{k}"
                dims.append(symbol or size)
            declared[name] = dims
        return declared

    def replay(self, nodes, leaves):
        """A copy with other leaves, its nodes run anew; raises Reject where they do not fit. Its model is the same where only sizes of
        symbols differ."""
        g = copy.copy(self)
        g.v, g.kind, g.nodes, g.declared = dict(self.v) | leaves, dict(self.kind), nodes, dict(self.declared)
        g.sequences = dict(self.sequences)
        for node, reads in nodes:
            feeds = {n: g.value(n) for n in reads}
            refuse_undefined(node, feeds)
            values, _ = g.oracle.run(node, feeds, g.opset, g.ir_version)
            for name, value in zip((o for o in node.output if o), values):
                if name in g.sequences:
                    g.sequences[name] = value
                    continue
                if value.size > MOST_ELEMENTS or node.op_type in WINDOWS and value.size == 0:
                    raise Reject
                g.v[name] = value
        return g

    def resized(self):
        """A copy in which one symbol of the inputs has another size, or None."""
        inputs = [n for n in self.v if self.kind[n] == "input"]
        symbols = sorted({s for n in inputs for s in self.symbols_of(n) if s})
        if not symbols:
            return None
        symbol, leaves = self.r.choice(symbols), {}
        size = self.r.choice([1, 2, 3, 4, 7])
        for name in inputs:
            array = self.v[name]
            for k, s in enumerate(self.symbols_of(name)):
                if s == symbol and array.size:
                    array = np.take(array, range(size), axis=k, mode="wrap")
            if array.shape != self.v[name].shape:
                leaves[name] = array
        try:
            return self.replay(self.nodes, leaves) if leaves else None
        except Reject:
            return None

    def outputs(self):
        """What nobody reads, and a few intermediates."""
        made = [o for n, _ in self.nodes for o in n.output if o in self.v]
        outputs = [o for o in made if not self.uses[o]]
        others = [o for o in made if self.uses[o]]
        outputs += self.r.sample(others, min(len(others), self.r.choice([0, 0, 1, 2])))
        self.r.shuffle(outputs)
        return outputs[:12]

    def build(self, nodes, outputs):
        """(model, inputs, right outputs) of some of the nodes; what others made becomes an input."""
        used = set(i for _, need in nodes for i in need) | set(outputs)
        made = set(o for n, _ in nodes for o in n.output)
        leaves = [n for n in self.v if n in used and n not in made]
        if any(n in self.sequences for n in used - made):
            raise Reject
        inputs = [n for n in leaves if self.kind[n] in ("input", "node")]
        constants = [n for n in leaves if self.kind[n] == "const"]
        # Initializers that are inputs too: a default, which the caller replaces or keeps.
        defaults = [n for n in constants if self.draw(n).random() < 0.04]
        replaced = [n for n in defaults if self.draw(n).random() < 0.02 and is_float(self.v[n].dtype)]
        declared = self.dims(inputs)
        infos = [value_info(n, self.v[n], declared[n]) for n in inputs] + [value_info(n, self.v[n]) for n in defaults]
        stored = [numpy_helper.from_array(np.zeros_like(self.v[n]) if n in replaced else self.v[n], n) for n in constants]
        constant_nodes = [
            helper.make_node("Constant", [], [n], value=numpy_helper.from_array(self.v[n], n)) for n in leaves if self.kind[n] == "cnode"
        ]
        results = [value_info(n, self.v[n], None if self.symbols == "none" else [None] * self.v[n].ndim) for n in outputs]
        graph = helper.make_graph(constant_nodes + [n for n, _ in nodes], f"seed_{self.seed}", infos, results, stored)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=self.ir_version)
        return model, {n: self.v[n] for n in inputs + replaced}, {n: self.v[n] for n in outputs}


def ancestors(nodes, outputs):
    """The nodes that `outputs` need, in order."""
    need, kept = set(outputs), []
    for n, reads in reversed(nodes):
        if any(o in need for o in n.output if o):
            kept.append((n, reads))
            need |= set(reads)
    return kept[::-1]
