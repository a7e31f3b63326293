"""Whether a result is right.

A result close to the oracle's is right: `difference`, by element type, relative to the element and to the largest one. What is further
away is judged by the graph itself: `Judge` evaluates it again with every intermediate disturbed by about as much as rounding does
(and, where an operator sums or normalizes, with its operands disturbed too). Where the right value itself moves as far as the result
is away, the problem is ill-conditioned there and the result no fault; such cases are counted by class:
  condition  float elements whose value rests on digits that are lost
  step       elements behind a rounding, a comparison, an index: another side of a step
With storage in 16 bits some samples have intermediates on the grid of that type, since much is decided by the grid itself and by no
noise: values that become equal (Unique, TopK, ArgMax), exponents that become whole, terms that cancel. But an infinity or a NaN where
the right value is finite is a fault of storage (lowering/precision/poles.h) unless it comes of rounding what a product or a sum reads.
"""

import numpy as np

from oracle import SUMS, Reject, run_reference
from values import BF16, EPSILON, F16, F32, F64, FLOAT8, as_f64, is_float

# Relative to the element and to the largest finite one: what a different order of a sum does to values that are well-conditioned.
CLOSE = {F64: (1e-10, 1e-11), F32: (2e-5, 4e-6), F16: (4e-3, 2e-3), BF16: (3e-2, 1.6e-2)}
SAMPLES = 24
LEAST = {F16: 2.0**-24}  # the distance of the numbers about zero, where results do come near it
SNAPPED = (18, 20)  # bits of a mantissa: values that are equal but for roundings (Unique, TopK, ArgMax)
STORED = 12  # samples on the grid of 16 bits
NOISE = 4  # roundings an operator, in each sample
DEEP = 10  # times as far away as one operator's, a result of a network of a dozen layers may be
SLACK = 4  # a result may lie this many times as far away as the furthest sample
# Sums of terms of magnitude 1, and the logarithm of one.
UNITS = {"HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix", "LogSoftmax"}
WINOGRAD = 8  # roundings of the largest element, by which its sums are off, for one of a plain sum
INTERPOLATING = {"Resize", "Upsample", "GridSample", "RoiAlign", "DeformConv"}  # at places that are rounded to f32 themselves
WAVES = {"DFT", "STFT"}  # factors of magnitude 1 that are rounded: an error of the size of the largest element, and its sums, in each
PLACED = {"Resize", "RoiAlign", "GridSample", "AffineGrid", "DeformConv", "Col2Im", "CumSum", "CumProd", "ReduceSum"}
REDUCTIONS = SUMS - {"Add", "Sub", "Sum", "Mean"}  # operands in 16 bits are what storage in 16 bits means
# Operators that only move elements: they add no rounding of their own.
MOVES = {
    "Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Concat", "Split", "Slice", "Gather", "GatherElements", "GatherND",
    "Pad", "Expand", "Tile", "Where", "Max", "Min", "Relu", "Abs", "Neg", "MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "Clip", "TopK",
    "Compress", "DepthToSpace", "SpaceToDepth", "Trilu", "ReverseSequence", "ScatterElements", "ScatterND", "Unique", "Shape", "Size",
}  # fmt: skip


def coarser(dtype, other):
    return other if other is not None and EPSILON[other] > EPSILON[dtype] else dtype


def bad_elements(want, got, known_to=None):
    """Where `got` is not close to `want`; both of one type and shape. `known_to`: a type of less precision, to which they are known."""
    if want.dtype in FLOAT8:
        return ~((want.view(np.uint8) == got.view(np.uint8)) | (np.isnan(as_f64(want)) & np.isnan(as_f64(got))))
    if want.dtype not in CLOSE:
        return want != got
    a, b = as_f64(want), as_f64(got)
    relative, of_range = CLOSE[coarser(want.dtype, known_to)]
    finite = a[np.isfinite(a)]
    largest = np.abs(finite).max() if finite.size else 0
    with np.errstate(all="ignore"):
        return ~np.isclose(b, a, rtol=relative, atol=of_range * largest + 1e-37, equal_nan=True)


def difference(want, got, known_to=None):
    """None, or what is different in words."""
    if want.dtype != got.dtype:
        return f"dtype {got.dtype} expected {want.dtype}"
    if want.shape != got.shape:
        return f"shape {got.shape} expected {want.shape}"
    bad = np.atleast_1d(bad_elements(want, got, known_to))
    if not bad.any():
        return None
    at = tuple(int(i[0]) for i in np.nonzero(bad))
    return f"{int(bad.sum())} of {bad.size} differ; at {list(at)}: {np.atleast_1d(got)[at]} expected {np.atleast_1d(want)[at]}"


def kind(a):
    """Finite, NaN, +inf or -inf, by element."""
    return np.where(np.isfinite(a), 0, np.where(np.isnan(a), 1, np.where(a > 0, 2, 3)))


class Judge:
    """Samples of a graph's values under disturbances; made once a graph, when a result is not close."""

    def __init__(self, graph, storage=None, winograd=False):
        """`storage`: the type in which f32 intermediates are stored, where that is not f32. `winograd`: whether convolutions may run by
        F(4x4, 3x3), whose sums are off by some 1e-5 of the result's largest (runtime/cpu/winograd.h)."""
        self.graph, self.storage, self.samples, self.calm, self.equal = graph, storage, [], [], []
        self.given = {}
        self.winograd, self.random = winograd, np.random.default_rng(graph.seed)

    def unit(self, node, array):
        """What the roundings of an operator's result are relative to, when that is not each element: see UNITS and WAVES."""
        if self.winograd and node.op_type == "Conv" and array.dtype == F32 and array.size:
            if next((list(a.ints) for a in node.attribute if a.name == "kernel_shape"), [3, 3]) == [3, 3]:
                return WINOGRAD * float(np.abs(array[np.isfinite(array)]).max(initial=0))
        if node.op_type in WAVES and array.size:
            return 4 * float(np.abs(as_f64(array)).max())
        if node.op_type in INTERPOLATING and array.size and is_float(array.dtype):
            a = np.abs(as_f64(array))  # a place is rounded relative to itself: it is off by more far away from 0
            return max(4, max(array.shape) / 2) * float(a[np.isfinite(a)].max(initial=0))
        return 1 if node.op_type in UNITS else 0

    def disturb(self, array, single=False, unit=0):
        """With noise of some roundings: relative to each element, or to `unit`."""
        if array is None or isinstance(array, list) or not is_float(array.dtype) or array.size == 0:
            return array
        epsilon = EPSILON[F32 if single and array.dtype == F64 else array.dtype]
        if self.storage and array.dtype == F32:
            epsilon = EPSILON[self.storage]
        a = as_f64(array)
        with np.errstate(all="ignore"):
            noise = self.random.uniform(-NOISE, NOISE, array.shape) * (epsilon * (unit or np.abs(a)) + LEAST.get(array.dtype, 0))
            return np.where(np.isfinite(a), a + noise, a).astype(array.dtype)

    def stored(self, array):
        """As 16-bit storage holds it, where its range does."""
        if array is None or isinstance(array, list) or array.dtype != F32:
            return array
        with np.errstate(all="ignore"):
            rounded = array.astype(self.storage).astype(F32)
        return np.where(np.isfinite(rounded), rounded, array)

    def sample_stored(self, share):
        """All values once more, a share of the intermediates, constants and inputs rounded to the storage type, and what products and
        reductions read; nothing else is disturbed."""
        g, values = self.graph, self.graph.v | self.graph.sequences
        pick = lambda array: self.stored(array) if self.random.random() < share else array  # noqa: E731
        for n in g.v:
            if g.kind[n] != "node":
                values[n] = pick(values[n])
        for node, reads in g.nodes:
            feeds = {n: self.stored(values.get(n)) if node.op_type in REDUCTIONS else values.get(n) for n in reads}
            for name, array in self.results(node, feeds, values):
                values[name] = pick(array)
        return values

    def results(self, node, feeds, values):
        """(name, array) of a node's outputs. Where it refuses these values (an index that moved beyond its dim, a size that nothing
        fits) or lacks one, its outputs leave `values`."""
        names = [o for o in node.output if o]
        try:
            if all(a is not None for a in feeds.values()):
                return list(zip(names, self.graph.oracle.run(node, feeds, self.graph.opset, self.graph.ir_version)[0]))
        except Reject:
            pass
        for name in names:
            values.pop(name, None)
        return []

    def follow(self, name, value):
        """All values once more where a node gave `value`, and earlier ones what was followed before; a difference that is excused is the
        operand of what comes after it."""
        self.given[name] = value
        g, values, changed = self.graph, self.graph.v | self.graph.sequences, set()
        for node, reads in g.nodes:
            if any(n in changed for n in reads):
                for out, array in self.results(node, {n: values.get(n) for n in reads}, values):
                    values[out] = array
                changed.update(o for o in node.output if o)
            for out in node.output:
                if out in self.given:
                    values[out] = self.given[out]
                    changed.add(out)
        return values

    def spread(self, name):
        """How far the samples lie from the right value, by element."""
        a = as_f64(self.graph.v[name])
        with np.errstate(all="ignore"):
            return np.fmax.reduce(
                [np.abs(as_f64(s[name]) - a) for s in self.samples if name in s and s[name].shape == a.shape] or [np.zeros(a.shape)]
            )

    @staticmethod
    def snapped(array, bits):
        """Rounded to a mantissa of so many bits: what is equal but for roundings becomes equal."""
        if array is None or isinstance(array, list) or array.dtype not in (F32, F64):
            return array
        mantissa, exponent = np.frexp(array)
        with np.errstate(all="ignore"):
            return np.where(np.isfinite(array), np.ldexp(np.round(mantissa * 2.0**bits) * 2.0**-bits, exponent), array).astype(array.dtype)

    def sample(self, collapse=False, snap=0):
        """All values once more, disturbed; with `snap`, rounded instead; with `collapse`, a value that may as well be zero is. What became infinite or NaN of such a zero
        stays so, but for storage in 16 bits, which must make none."""
        g, values = self.graph, self.graph.v | self.graph.sequences
        for n in g.v:
            if g.kind[n] != "node" and self.storage:
                values[n] = self.disturb(values[n])
        for node, reads in g.nodes:
            # Operands beside the first of these are sizes and places, not summands.
            summands = [] if node.op_type not in SUMS else node.input[:1] if node.op_type in PLACED else reads
            feeds = {n: self.disturb(values.get(n), n in g.single) if n in summands and not snap else values.get(n) for n in reads}
            for name, array in self.results(node, feeds, values):
                if snap and node.op_type not in MOVES:
                    array = self.snapped(array, snap)
                    array = self.stored(array) if self.storage else array
                elif node.op_type not in MOVES or self.storage:
                    array = self.disturb(array, name in g.single, self.unit(node, array))
                if collapse and not isinstance(array, list) and is_float(array.dtype) and array.shape == g.v[name].shape:
                    zero = np.abs(as_f64(g.v[name])) <= SLACK * self.spread(name)
                    if not self.storage:
                        zero &= np.isfinite(as_f64(array))
                    array = np.where(zero, 0, array).astype(array.dtype)
                values[name] = array
        return values

    def excuse(self, name, want, got, known_to=None):
        """The class of a difference that is not a fault, or None."""
        if not self.samples:
            self.samples = [self.sample() for _ in range(SAMPLES)]
            self.samples.append(self.sample(collapse=True))
            self.equal = [self.sample(snap=bits) for bits in SNAPPED]
            if self.storage:
                self.samples += [self.sample_stored(1 if i == 0 else 0.6) for i in range(STORED)]
                plain = Judge(self.graph)
                plain.samples = [plain.sample() for _ in range(STORED)]
                self.calm = plain.samples + [plain.sample(collapse=True), self.sample_stored(0)]
        seen = [s.get(name) for s in self.samples]
        if any(s is None or s.shape != want.shape for s in seen):
            return "step"
        if want.dtype != got.dtype or want.shape != got.shape:
            return None
        bad = bad_elements(want, got, known_to)
        if want.dtype not in CLOSE:
            moved = np.zeros(want.shape, bool)
            for s in seen + [s[name] for s in self.equal if name in s and s[name].shape == want.shape]:
                moved |= s != want
            return "step" if not (bad & ~moved).any() else None
        a, b = as_f64(want), as_f64(got)
        furthest, other_kind = np.zeros(want.shape), np.zeros(want.shape, bool)
        with np.errstate(all="ignore"):
            for s in seen:
                s = as_f64(s)
                other_kind |= kind(s) != kind(a)
                furthest = np.fmax(furthest, np.abs(s - a))
            for s in self.equal:
                if name in s and s[name].shape == want.shape:
                    other_kind |= kind(as_f64(s[name])) != kind(a)
            finite = a[np.isfinite(a)]
            relative, of_range = CLOSE[coarser(want.dtype, known_to)]
            if self.storage:  # an infinity or a NaN of storage itself
                calm = [as_f64(s[name]) for s in self.calm if name in s and s[name].shape == want.shape]
                for s in calm:
                    other_kind |= kind(s) != kind(a)
                finite_in_all = np.all(np.isfinite(calm), axis=0) if calm else False
                other_kind &= ~(np.isfinite(a) & ~np.isfinite(b) & finite_in_all)
            near = np.abs(b - a) <= SLACK * furthest + relative * np.abs(a) + of_range * (np.abs(finite).max() if finite.size else 0)
        return "condition" if not (bad & ~(near | other_kind)).any() else None


class Spread:
    """Says of a model without a graph, by how far the right values moved with inputs that were some roundings off, what a difference is."""

    def __init__(self, spread):
        self.spread = spread

    def excuse(self, name, want, got, known_to=None):
        if want.dtype != got.dtype or want.shape != got.shape or name not in self.spread:
            return None
        bad, spread = bad_elements(want, got, known_to), self.spread[name]
        if want.dtype not in CLOSE:
            return "step" if not (bad & (spread == 0)).any() else None
        a, b = as_f64(want), as_f64(got)
        finite = a[np.isfinite(a)]
        relative, of_range = (DEEP * t for t in CLOSE[coarser(want.dtype, known_to)])
        with np.errstate(all="ignore"):
            near = np.abs(b - a) <= 2 * SLACK * spread + relative * np.abs(a) + of_range * np.abs(finite).max(initial=0)
        return "condition" if not (bad & ~(near | (kind(a) == kind(b)) & ~np.isfinite(a))).any() else None

    def follow(self, name, value):
        return {}


def other_oracle(case, name, got):
    """Whether the other oracle gives `got` for a model of one node, whose right value ONNX Runtime gave: where the two do not agree about
    what an operator means, neither is the measure."""
    if len([n for n in case.model.graph.node if n.op_type != "Constant"]) != 1 or case.graph.who.get(name) != "ort":
        return False
    try:
        values = dict(zip((o.name for o in case.model.graph.output), run_reference(case.model, case.inputs)))
        return difference(values[name], got, F32) is None
    except Exception:
        return False
