"""Operators of ai.onnx in forms that ONNX's own tests lack, at random shapes, against ONNX Runtime or ONNX's reference implementation."""

import pathlib
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

sys.path.insert(0, str(pathlib.Path(__file__).parent / "operators"))
import cases  # noqa: E402


def floats(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


def model_of(nodes, inputs, outputs, opset, ir_version=10, types=None):
    graph = helper.make_graph(nodes, "graph", [helper.make_value_info(k, (types or {}).get(k) or cases.type_of(v)) for k, v in inputs.items()],
                              [onnx.ValueInfoProto(name=o) for o in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def scan_8(rng):
    """Scan with a batch axis, as opset 8 has it: a running sum and a product, scanned forwards or backwards, of sequences of one length or of
    lengths of their own."""
    batch, length, width = (int(d) for d in rng.integers(1, 5, size=3))
    body = helper.make_graph(
        [helper.make_node("Add", ["sum", "next"], ["sum_out"]), helper.make_node("Mul", ["sum_out", "other"], ["product"])], "body",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [width]) for n in ("sum", "next", "other")],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [width]) for n in ("sum_out", "product")])
    attributes = {"directions": [int(d) for d in rng.integers(2, size=2)]} if rng.integers(2) else {}
    node = helper.make_node("Scan", ["", "start", "x", "z"], ["sums", "products"], body=body, num_scan_inputs=2, **attributes)
    lengths = {}
    if rng.integers(2):
        node.input[0], lengths = "lengths", {"lengths": rng.integers(1, length + 1, size=batch)}
    inputs = {**lengths, "start": floats(rng, batch, width), "x": floats(rng, batch, length, width), "z": floats(rng, batch, length, width)}
    model = helper.make_model(
        helper.make_graph([node], "graph", [helper.make_value_info(k, cases.type_of(v)) for k, v in inputs.items()],
                          [helper.make_tensor_value_info("sums", TensorProto.FLOAT, [batch, width]),
                           helper.make_tensor_value_info("products", TensorProto.FLOAT, [batch, length, width])]),
        opset_imports=[helper.make_opsetid("", 8)], ir_version=3)
    return model, inputs, cases.ort_answers(model, inputs)


def causal_conv(rng):
    """CausalConvWithState, every dim a symbol."""
    batch, channels, kernel = (int(d) for d in rng.integers(1, 5, size=3))
    length = int(rng.integers(0, 7))
    inputs = {"x": floats(rng, batch, channels, length), "w": floats(rng, channels, 1, kernel)}
    names = ["x", "w", "", ""]
    if rng.integers(2):
        inputs["b"], names[2] = floats(rng, channels), "b"
    if rng.integers(2):
        inputs["s"], names[3] = floats(rng, batch, channels, kernel - 1), "s"
    node = helper.make_node("CausalConvWithState", names, ["y", "state"], activation=["none", "silu", "swish"][rng.integers(3)])
    model = cases.node_model(node, inputs, {"": 27}, symbolic=True, ir_version=13)
    line = np.concatenate([inputs.get("s", np.zeros((batch, channels, kernel - 1), np.float32)), inputs["x"]], axis=2)
    y = np.zeros((batch, channels, length), np.float32)
    for k in range(kernel):
        y += line[:, :, k:k + length] * inputs["w"][None, :, 0, k, None]
    if "b" in inputs:
        y += inputs["b"][None, :, None]
    if node.attribute[0].s != b"none":
        y = y / (1 + np.exp(-y))
    return model, inputs, [y, line[:, :, length:]]


def affine_grid(rng):
    """Axes of one element, where aligned corners have one place to be; sizes that the model says or the run."""
    axes = int(rng.integers(2, 4))
    size = np.array([rng.integers(1, 3), 1, *rng.integers(1, 4, size=axes)])
    theta = floats(rng, size[0], axes, axes + 1)
    node = helper.make_node("AffineGrid", ["theta", "size"], ["grid"], align_corners=int(rng.integers(2)))
    if rng.integers(2):
        inputs = {"theta": theta, "size": size}
        model = model_of([node], inputs, ["grid"], 20)
    else:
        inputs = {"theta": theta}
        model = model_of([node], inputs, ["grid"], 20)
        model.graph.initializer.append(numpy_helper.from_array(size, "size"))
    return model, inputs, ReferenceEvaluator(model).run(None, inputs)  # ONNX Runtime puts the one element at 1


def sequence_of_inputs(rng):
    """A sequence that the caller gives, its items of one rank and different dims."""
    rank = int(rng.integers(1, 4))
    items = [floats(rng, *rng.integers(0, 4, size=rank)) for _ in range(rng.integers(1, 5))]
    nodes = [helper.make_node("SequenceAt", ["s", "at"], ["item"]), helper.make_node("Mul", ["item", "two"], ["twice"]),
             helper.make_node("SequenceInsert", ["s", "twice"], ["longer"]), helper.make_node("SequenceLength", ["longer"], ["n"])]
    inputs = {"s": items, "at": np.array(rng.integers(-len(items), len(items))), "two": np.array(2, np.float32)}
    item = helper.make_tensor_type_proto(TensorProto.FLOAT, [f"N{k}" for k in range(rank)])
    model = model_of(nodes, inputs, ["twice", "longer", "n"], 17, types={"s": helper.make_sequence_type_proto(item)})
    twice = items[int(inputs["at"])] * 2
    return model, inputs, [twice, items + [twice], np.array(len(items) + 1)]


def squeeze(rng):
    """Squeeze without axes where a symbolic dim is not 1 in the run."""
    shape = [1 if k % 2 else int(rng.integers(2, 5)) for k in range(rng.integers(1, 5))]
    inputs = {"x": floats(rng, *shape)}
    dims = [d if d == 1 else f"D{k}" for k, d in enumerate(shape)]
    model = model_of([helper.make_node("Squeeze", ["x"], ["y"]), helper.make_node("Relu", ["y"], ["z"])], inputs, ["z"], 17,
                     types={"x": helper.make_tensor_type_proto(TensorProto.FLOAT, dims)})
    return model, inputs, ReferenceEvaluator(model).run(None, inputs)


def squeeze_to_the_declared_rank(rng):
    """Squeeze without axes where symbolic dims are 1 in the run, as the rank and the names that the model declares for the result say."""
    shape = [1 if rng.integers(2) else int(rng.integers(2, 5)) for k in range(rng.integers(1, 5))]
    inputs = {"x": floats(rng, *shape)}
    dims = [d if rng.integers(3) == 0 else f"D{k}" for k, d in enumerate(shape)]
    model = model_of([helper.make_node("Squeeze", ["x"], ["y"]), helper.make_node("Relu", ["y"], ["z"])], inputs, ["z"], 17,
                     types={"x": helper.make_tensor_type_proto(TensorProto.FLOAT, dims)})
    model.graph.value_info.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [d for d, size in zip(dims, shape) if size != 1]))
    return model, inputs, [np.maximum(np.squeeze(inputs["x"]), 0)]


def batch_norm_of_each_element(rng):
    """BatchNormalization of opset 7 with spatial = 0: statistics of a sample's shape."""
    shape = [int(d) for d in rng.integers(1, 5, size=rng.integers(2, 5))]
    inputs = {"x": floats(rng, *shape), **{n: floats(rng, *shape[1:]) for n in ("scale", "bias", "mean")},
              "variance": np.abs(floats(rng, *shape[1:]))}
    node = helper.make_node("BatchNormalization", list(inputs), ["y"], spatial=0, epsilon=0.01)
    answer = (inputs["x"] - inputs["mean"]) / np.sqrt(inputs["variance"] + np.float32(0.01)) * inputs["scale"] + inputs["bias"]
    model = model_of([node], inputs, ["y"], 7, ir_version=3)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, shape))
    return model, inputs, [answer]


def reductions_of_integers(rng):
    """At the ends of the types: a mean, a norm and a logarithm that are numbers of the type are right whatever the sum inside is; sums and
    products wrap."""
    dtype = [np.int32, np.int64][rng.integers(2)]
    ends = np.iinfo(dtype)
    x = np.array([[ends.max, ends.min, ends.max - 1, ends.min + 1, 7, -7, 2, 1, 0][rng.integers(9)] for _ in range(12)], dtype).reshape(3, 4)
    axis = int(rng.integers(2))
    operators = ["ReduceMean", "ReduceL2", "ReduceLogSum", "ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin"]
    nodes = [helper.make_node(op, ["x", "axes"], [op], keepdims=0) for op in operators]
    inputs = {"x": x, "axes": np.array([axis])}
    model = model_of(nodes, inputs, operators, 18)
    if rng.integers(2):  # else the axes are known only when the model runs
        del model.graph.input[1]
        model.graph.initializer.append(helper.make_tensor("axes", TensorProto.INT64, [1], inputs.pop("axes")))
    lines = [[int(v) for v in line] for line in (x.T if axis == 0 else x)]
    clip = lambda v: min(max(int(v), ends.min), ends.max)
    with np.errstate(all="ignore"):
        answers = {
            "ReduceMean": [abs(sum(v)) // len(v) * (1 if sum(v) >= 0 else -1) for v in lines],
            "ReduceL2": [clip(np.sqrt(np.sum(np.square(np.array(v, np.float64))))) for v in lines],
            "ReduceLogSum": [int(np.log(total)) if total > 0 else None for total in (np.sum(np.array(v, np.float64)) for v in lines)],
            "ReduceSum": np.sum(x, axis, dtype), "ReduceProd": np.prod(x, axis, dtype), "ReduceMax": x.max(axis), "ReduceMin": x.min(axis)}
    if None in answers["ReduceLogSum"]:  # ONNX does not say what integer the logarithm of no positive sum is
        del model.graph.node[2], model.graph.output[2], answers["ReduceLogSum"]
    return model, inputs, [np.array(a, dtype) for a in answers.values()]


TEXTS = ["the cat sat", "", "a  dog!", "Ünïcode straße", "日本 語", "x", "a-b_c,d", "ABC abc 123", "Ωμέγα ДОМ", "tab\tnew\nline", "ſȺ"]


def layers_after_no_step(rng):
    """The state behind no step is the one before: of a sequence without steps, and of each in a batch whose length is 0."""
    op = ("LSTM", "GRU", "RNN")[rng.integers(3)]
    gates, direction = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], ("forward", "reverse", "bidirectional")[rng.integers(3)]
    steps, batch, width, hidden, both = int(rng.choice([0, 3])), int(rng.integers(1, 4)), 3, int(rng.integers(1, 20)), 1 + (direction == "bidirectional")
    state = [floats(rng, both, batch, hidden) for _ in range(2 if op == "LSTM" else 1)]
    inputs = {"x": floats(rng, steps, batch, width), "w": floats(rng, both, gates * hidden, width), "r": floats(rng, both, gates * hidden, hidden), "h": state[0]}
    names, outputs = ["x", "w", "r", "", "", "h"], ["y", "y_h"]
    if op == "LSTM":
        inputs["c"] = state[1]
        names.append("c")
        outputs.append("y_c")
    node = helper.make_node(op, names, outputs, direction=direction, hidden_size=hidden)
    if steps:
        y, *ends = cases.ort_answers(cases.node_model(node, inputs, {"": 22}), inputs)
        lengths = rng.choice([0, steps], batch)
        y = np.where((lengths > 0)[:, None], y, np.float32(0))
        inputs["l"], node.input[4] = lengths.astype(np.int32), "l"
    else:
        y, ends, lengths = np.zeros((0, both, batch, hidden), np.float32), state, np.zeros(batch)
    ends = [np.where((lengths > 0)[:, None], a, b) for a, b in zip(ends, state)]
    return cases.node_model(node, inputs, {"": 22}, symbolic=bool(rng.integers(2))), inputs, [y, *ends]


def texts(rng, *shape):
    return np.array([TEXTS[i] for i in rng.integers(len(TEXTS), size=int(np.prod(shape)))], object).reshape(shape)


def tokenizer(rng):
    """com.microsoft.Tokenizer: matches of an expression, parts between separators, characters."""
    x = texts(rng, *[int(d) for d in rng.integers(1, 4, size=rng.integers(1, 3))])
    how = rng.integers(3)
    attributes = [dict(tokenexp=["[a-zA-Z]+", r"\w+", "[^ ]", r"(?i)[a-c]+|\d{2}", "..?", "a|ab|abc?", "[a-z]+?b?"][rng.integers(7)]),
                  dict(separators=[[" "], [" ", "-"], [r"\s+", "[,!]"], ["a|ab", "o+?"]][rng.integers(4)]), [dict(separators=[""]), dict(tokenexp=".")][rng.integers(2)]][how]
    node = helper.make_node("Tokenizer", ["X"], ["Y"], domain="com.microsoft", mark=int(rng.integers(2)), pad_value="#",
                            mincharnum=1 if how == 2 else int(rng.integers(1, 4)), **attributes)
    model = cases.node_model(node, {"X": x}, {"": 17, "com.microsoft": 1}, symbolic=bool(rng.integers(2)))
    return model, {"X": x}, cases.ort_answers(model, {"X": x})


def murmur_hash(rng):
    """com.microsoft.MurmurHash3: texts of each length of a word and its rest, numbers of each type, tensors of any rank, also empty ones."""
    shape = [int(d) for d in rng.integers(0 if rng.integers(4) == 0 else 1, 5, size=rng.integers(0, 4))]
    kind = ["U", "U", "i4", "u4", "i8", "u8", "f4", "f8"][rng.integers(8)]
    if kind == "U":
        letters = ["ab", "aBé日0 ", "\U0001f600ä\n"][rng.integers(3)]
        x = np.array(["".join(letters[i] for i in rng.integers(len(letters), size=rng.integers(0, 10))) for _ in range(int(np.prod(shape)))], object).reshape(shape)
    else:
        x = rng.integers(0, 256, [*shape, int(kind[1])], np.uint8).view(kind)[..., 0]
    attributes = {"seed": int(rng.choice([0, 1, 42, 2**32 - 1, -1, 2**40 + 5]))} if rng.integers(2) else {}
    if rng.integers(3):
        attributes["positive"] = int(rng.integers(2))
    model = cases.node_model(helper.make_node("MurmurHash3", ["X"], ["Y"], domain="com.microsoft", **attributes), {"X": x}, {"": 17, "com.microsoft": 1},
                             symbolic=bool(rng.integers(2)))
    return model, {"X": x}, cases.ort_answers(model, {"X": x})


def time_warping(rng):
    """com.microsoft.DynamicTimeWarping: costs of any size, also none, with ties, infinities and what is no number."""
    shape = [[1], []][rng.integers(2)] + [int(d) for d in rng.integers(0 if rng.integers(8) == 0 else 1, [5, 30][rng.integers(2)], size=2)]
    x = floats(rng, *shape)
    if rng.integers(2):
        x = np.rint(x)
    if rng.integers(3) == 0:
        x[rng.random(shape) < 0.2] = [np.nan, np.inf, -np.inf][rng.integers(3)]
    node = helper.make_node("DynamicTimeWarping", ["X"], ["Y"], domain="com.microsoft")
    model = cases.node_model(node, {"X": x}, {"": 17, "com.microsoft": 1}, symbolic=bool(rng.integers(2)))
    return model, {"X": x}, cases.ort_answers(model, {"X": x})


def inverse(rng):
    """com.microsoft.Inverse of matrices that are not close to singular."""
    n = int(rng.integers(1, 8))
    x = floats(rng, *[int(d) for d in rng.integers(1, 4, size=rng.integers(0, 3))], n, n)
    x += (np.linalg.norm(x, axis=(-2, -1), keepdims=True) * np.eye(n)[rng.permutation(n)]).astype(np.float32)
    x = x.astype([np.float32, np.float64][rng.integers(2)])
    model = cases.node_model(helper.make_node("Inverse", ["X"], ["Y"], domain="com.microsoft"), {"X": x}, {"": 17, "com.microsoft": 1}, symbolic=bool(rng.integers(2)))
    return model, {"X": x}, cases.ort_answers(model, {"X": x})


def expression(rng, depth=2):
    """A random regular expression of RE2's syntax."""
    def atom():
        kind = rng.integers(8)
        if kind < 4:
            return "abcdABé日 "[rng.integers(9)]
        if kind == 4:
            return [".", "[abc]", "[^a]", "[a-c日]", "[[:alpha:]]", "[^[:digit:]b]"][rng.integers(6)]
        if kind == 5:
            return [r"\d", r"\w", r"\s", r"\D", r"\W", r"\x61", r"\."][rng.integers(7)]
        if kind == 6 and depth:
            return ["(", "(?:", "(?i:", "(?P<n>"][rng.integers(4)] + expression(rng, depth - 1) + ")"
        return ["^", "$", r"\b", "a"][rng.integers(4)]

    def piece():
        a = atom()
        return a if a in ("^", "$", r"\b") else a + ["", "", "", "*", "+", "?", "*?", "+?", "{2}", "{1,3}", "{0,2}", "{2,}"][rng.integers(12)]
    return "|".join("".join(piece() for _ in range(rng.integers(1, 4))) for _ in range([1, 1, 2, 3][rng.integers(4)]))


def regex_full_match(rng):
    pattern = expression(rng)
    while pattern.count("(?P<n>") > 1:  # a name may stand once
        pattern = pattern.replace("(?P<n>", "(", 1)
    letters = "aabbccdABé日1 ."
    x = np.array(["".join(letters[i] for i in rng.integers(len(letters), size=rng.integers(0, 7))) for _ in range(20)], object)
    model = cases.node_model(helper.make_node("RegexFullMatch", ["X"], ["Y"], pattern=pattern), {"X": x}, {"": 20})
    return model, {"X": x}, cases.ort_answers(model, {"X": x})


def simple_case(text, how):
    """By characters, without those whose other case is more than one."""
    return "".join(c if len(getattr(c, how)()) != 1 else getattr(c, how)() for c in text)


def string_normalizer(rng):
    x = texts(rng, int(rng.integers(1, 6)))
    action, exact = ["NONE", "LOWER", "UPPER"][rng.integers(3)], int(rng.integers(2))
    stop = [simple_case(t, "upper") if rng.integers(2) else t for t in TEXTS[:4]]
    same = (lambda t: t) if exact else lambda t: simple_case(t, "lower")
    kept = [t for t in x if same(t) not in [same(s) for s in stop]]
    answer = np.array([simple_case(t, action.lower()) if action != "NONE" else t for t in kept] or [""], object)
    node = helper.make_node("StringNormalizer", ["X"], ["Y"], case_change_action=action, is_case_sensitive=exact, stopwords=stop)
    return cases.node_model(node, {"X": x}, {"": 17}), {"X": x}, [answer]


def windows_at_any_opset(rng):
    """Operators that ONNX defines by a function which is written at opset 17: models of later opsets have them, too."""
    n, periodic, opset = int(rng.integers(2, 12)), int(rng.integers(2)), int(rng.integers(17, 27))
    inputs = {"n": np.array(n, [np.int64, np.int32][rng.integers(2)])}
    name, a = [("HannWindow", (0.5, 0.5, 0)), ("HammingWindow", (25 / 46, 21 / 46, 0)), ("BlackmanWindow", (0.42, 0.5, 0.08))][rng.integers(3)]
    turn = 2 * np.pi * np.arange(n) / (n if periodic else n - 1)
    answer = (a[0] - a[1] * np.cos(turn) + a[2] * np.cos(2 * turn)).astype(np.float32)
    return model_of([helper.make_node(name, ["n"], ["y"], periodic=periodic)], inputs, ["y"], opset), inputs, [answer]


def cubic_samples_beside_the_border(rng):
    """As PyTorch's grid_sample does it: each pixel of the window is brought inside, not the place that it lies around."""
    inputs = {"x": floats(rng, 1, 1, int(rng.integers(1, 5)), int(rng.integers(1, 5))), "grid": rng.uniform(-2, 2, (1, 3, 2, 2)).astype(np.float32)}
    align = int(rng.integers(2))
    node = helper.make_node("GridSample", ["x", "grid"], ["y"], mode="cubic", padding_mode="border", align_corners=align)
    image, answer = inputs["x"][0, 0].astype(np.float64), np.zeros((1, 1, 3, 2))
    near = lambda t: (1.25 * t - 2.25) * t * t + 1
    far = lambda t: ((-0.75 * t + 3.75) * t - 6) * t + 3
    for i, j in np.ndindex(3, 2):
        spots = []
        for k, length in ((1, image.shape[0]), (0, image.shape[1])):
            g = float(inputs["grid"][0, i, j, k])
            v = (g + 1) / 2 * (length - 1) if align else ((g + 1) * length - 1) / 2
            t = v - np.floor(v)
            spots.append([(int(np.clip(np.floor(v) + d, 0, length - 1)), w) for d, w in zip((-1, 0, 1, 2), (far(1 + t), near(t), near(1 - t), far(2 - t)))])
        answer[0, 0, i, j] = sum(image[y, x] * a * b for y, a in spots[0] for x, b in spots[1])
    return model_of([node], inputs, ["y"], 20), inputs, [answer.astype(np.float32)]


def elements_are_moved_whole(rng):
    """Integers of 64 bits through operators of images: sums go round, what is only moved keeps each digit, texts too."""
    ends = np.iinfo(np.int64)
    columns = rng.integers(ends.min, ends.max, (1, 4, 4), np.int64)
    picture = rng.integers(ends.min, ends.max, (1, 1, 3, 3), np.int64)
    inputs = {"columns": columns, "image": np.array([3, 3]), "block": np.array([2, 2]), "picture": picture, "words": texts(rng, 1, 1, 3, 3),
              "grid": rng.uniform(-1.4, 1.4, (1, 4, 2, 2)).astype(np.float32)}
    nodes = [helper.make_node("Col2Im", ["columns", "image", "block"], ["sums"]), helper.make_node("GridSample", ["picture", "grid"], ["moved"], mode="nearest"),
             helper.make_node("GridSample", ["words", "grid"], ["said"], mode="nearest")]
    sums = np.zeros((1, 1, 3, 3), np.int64)
    with np.errstate(all="ignore"):
        for t, l in np.ndindex(4, 4):
            sums[0, 0, l // 2 + t // 2, l % 2 + t % 2] += columns[0, t, l]
    x, y = (np.rint(((inputs["grid"][0, ..., k].astype(np.float64) + 1) * 3 - 1) / 2).astype(int) for k in (0, 1))
    inside = (x >= 0) & (x < 3) & (y >= 0) & (y < 3)
    pick = lambda image, zero: np.array([[image[0, 0, b, a] if i else zero for a, b, i in zip(*row)] for row in zip(x, y, inside)], image.dtype)[None, None]
    return model_of(nodes, inputs, ["sums", "moved", "said"], 20), inputs, [sums, pick(picture, 0), pick(inputs["words"], "")]


def fills_of_texts(rng):
    """What no element of the operand reaches is the empty string, or a complex 0."""
    x = texts(rng, 3, 4) if rng.integers(2) else (floats(rng, 3, 4) + 1j * floats(rng, 3, 4)).astype([np.complex64, np.complex128][rng.integers(2)])
    zero = np.array("", object) if x.dtype == object else x.dtype.type(0)
    inputs = {"x": x, "pads": np.array([1, 0, 0, 2]), "sizes": np.array([5, 3]), "k": np.array(int(rng.integers(-2, 3)))}
    nodes = [helper.make_node("Pad", ["x", "pads"], ["padded"]), helper.make_node("Trilu", ["x", "k"], ["upper"]),
             helper.make_node("CenterCropPad", ["x", "sizes"], ["cropped"])]
    cropped = np.full((5, 3), zero, x.dtype)
    cropped[1:4] = x[:, :3]
    answers = [np.pad(x, [(1, 0), (0, 2)], constant_values=zero), np.where(np.triu(np.ones(x.shape, bool), int(inputs["k"])), x, zero), cropped]
    model = model_of(nodes, inputs, ["padded", "upper", "cropped"], 18)
    for name in ("pads", "sizes", "k"):
        if rng.integers(2):
            at = next(i for i, v in enumerate(model.graph.input) if v.name == name)
            del model.graph.input[at]
            model.graph.initializer.append(numpy_helper.from_array(inputs.pop(name), name))
    return model, inputs, answers


def non_max_suppression(rng):
    """More boxes than are held side by side, also equal ones, ones without area, scores in a tie, several batches and classes."""
    batch, classes, n, center = int(rng.integers(1, 3)), int(rng.integers(1, 4)), int(rng.integers(1, 100)), int(rng.integers(2))
    boxes, scores = 3 * floats(rng, batch, n, 4), rng.random((batch, classes, n), np.float32)
    if rng.integers(2):
        boxes, scores = np.rint(boxes), np.round(scores, 1)
    if center:
        boxes[..., 2:] = abs(boxes[..., 2:])
    inputs = {"boxes": boxes, "scores": scores, "most": np.array([0, 1, 5, n, 1000][rng.integers(5)]), "iou": np.float32(rng.choice([0, 0.1, 0.5, 0.9])),
              "low": np.float32(rng.choice([-1, 0.2]))}
    inputs = {name: np.asarray(value) for name, value in inputs.items()}
    model = model_of([helper.make_node("NonMaxSuppression", list(inputs), ["y"], center_point_box=center)], inputs, ["y"], 17)
    return model, inputs, cases.ort_answers(model, inputs)


def top_k(rng):
    """A few of many and all of few, along any axis, of every type; ties, zeros of both signs, NaN above all; the lower index first."""
    dtype = np.dtype(["f4", "f4", "f4", "f2", "f8", "i8", "u8", "i4", "u4", "i2", "i1", "u1"][rng.integers(12)])
    dims, axis = [int(d) for d in rng.integers(1, 4, 3)], int(rng.integers(3))
    dims[axis] = n = int(rng.choice([1, 7, 60, 700]))
    if dtype.kind == "f":
        x = floats(rng, *dims) if rng.integers(2) else np.rint(2 * floats(rng, *dims)) * rng.choice([-1, 1], dims)
        x[rng.random(dims) < rng.choice([0, 0.02])] = [np.nan, np.inf, -np.inf, 0][rng.integers(4)]
    else:
        ends = np.iinfo(dtype)
        x = rng.integers(max(ends.min, -9), 9, dims) if rng.integers(2) else rng.integers(ends.min, ends.max, dims, dtype, endpoint=True)
    x, k, largest = x.astype(dtype), int(rng.integers(1, min(n, rng.choice([1, 5, 700])) + 1)), int(rng.integers(2))
    order = np.moveaxis(np.zeros(dims, np.int64), axis, -1)
    for row in np.ndindex(order.shape[:-1]):
        values = np.moveaxis(x, axis, -1)[row].tolist()
        rank = lambda j: (values[j] != values[j], 0 if values[j] != values[j] else values[j])
        order[row] = sorted(range(n), key=rank) if not largest else sorted(range(n - 1, -1, -1), key=rank)[::-1]
    order = np.moveaxis(order[..., :k], -1, axis)
    node = helper.make_node("TopK", ["x", "k"], ["values", "indices"], axis=axis - 3 * int(rng.integers(2)), largest=largest)
    inputs = {"x": x, "k": np.array([k])}
    return model_of([node], inputs, ["values", "indices"], 24), inputs, [np.take_along_axis(x, order, axis), order]


def n_grams(rng):
    """TfIdfVectorizer over texts or integers: n-grams of several lengths, with gaps, some of a pool twice or in one column, with weights."""
    words = np.array(["a", "b", "ab", "", "c d"], object) if rng.integers(2) else np.array([3, -1, 2**40, 0, 7])
    longest, pool, counts, grams = int(rng.integers(1, 4)), [], [], 0
    for n in range(1, longest + 1):
        counts.append(len(pool))
        for _ in range(int(rng.integers(1, 12))):
            pool += list(rng.choice(words, n))
            grams += 1
    least, skips = int(rng.integers(1, longest + 1)), int(rng.integers(3))
    attributes = {"pool_strings" if words.dtype == object else "pool_int64s": pool, "mode": ["TF", "IDF", "TFIDF"][rng.integers(3)], "ngram_counts": counts,
                  "ngram_indexes": [int(i) for i in rng.integers(0, grams, grams)], "min_gram_length": least, "max_gram_length": longest, "max_skip_count": skips}
    if rng.integers(2):
        attributes["weights"] = floats(rng, grams).tolist()
    x = rng.choice(words, (int(rng.integers(1, 5)), int(rng.integers(1, 30))) if rng.integers(2) else int(rng.integers(1, 30)))
    rows, size = np.atleast_2d(x), max(attributes["ngram_indexes"]) + 1
    answer, weight = np.zeros((len(rows), size), np.float32), np.ones(size, np.float32)
    gram = 0
    for n in range(1, longest + 1):
        for at in range(counts[n - 1], counts[n] if n < longest else len(pool), n):
            for row, step in ((r, s) for r in range(len(rows)) for s in range(1, 2 if n == 1 else skips + 2)):
                seen = [list(rows[row][i : i + (n - 1) * step + 1 : step]) for i in range(rows.shape[1] - (n - 1) * step)]
                answer[row, attributes["ngram_indexes"][gram]] += (n >= least) * seen.count(pool[at : at + n])
            if "weights" in attributes:
                weight[attributes["ngram_indexes"][gram]] = attributes["weights"][gram]
            gram += 1
    answer = {"TF": answer, "IDF": np.where(answer > 0, weight, 0), "TFIDF": answer * weight}[attributes["mode"]].astype(np.float32)
    return model_of([helper.make_node("TfIdfVectorizer", ["x"], ["y"], **attributes)], {"x": x}, ["y"], 9), {"x": x}, [answer.reshape(*x.shape[:-1], size)]


FAMILIES = {f.__name__: f for f in (scan_8, causal_conv, sequence_of_inputs, affine_grid, squeeze, squeeze_to_the_declared_rank, batch_norm_of_each_element, reductions_of_integers, tokenizer, murmur_hash, time_warping, inverse, regex_full_match, string_normalizer, windows_at_any_opset, cubic_samples_beside_the_border, elements_are_moved_whole, fills_of_texts, non_max_suppression, top_k, n_grams, layers_after_no_step)}


def random_cases(family, count, seed):
    rng = np.random.default_rng([seed, *family.encode()])
    return [cases.Case(f"{family}_{n}", *FAMILIES[family](rng)) for n in range(count)]


@pytest.mark.parametrize("family", FAMILIES)
def test_family_on_the_evaluator(evaluator, family):
    assert cases.failures(evaluator, random_cases(family, 30, 1)) == {}


def test_families_as_bundles(optc):
    made = [case for family in FAMILIES for case in random_cases(family, 5, 2)]
    assert cases.failures(optc.parent / "optc_conformance_bundles", made) == {}


def test_a_dim_that_decides_the_rank_is_checked(evaluator, optc):
    """Squeeze without axes is compiled for a symbolic dim that is not 1; a run where it is 1 ends in a fault, not in a wrong answer."""
    inputs = {"x": np.zeros((1, 3), np.float32)}
    model = model_of([helper.make_node("Squeeze", ["x"], ["y"]), helper.make_node("Relu", ["y"], ["z"])], inputs, ["z"], 17,
                     types={"x": helper.make_tensor_type_proto(TensorProto.FLOAT, ["N", 3])})
    for binary in (evaluator, optc.parent / "optc_conformance_bundles"):
        (failure,) = cases.failures(binary, [cases.Case("one", model, inputs, [None])]).values()
        assert failure.startswith(("fault:", "usage:")) and "takes 2 or more" in failure, failure


@pytest.mark.parametrize("node, number", [("CumSum", 2), ("ReduceSum", [2]), ("ReduceMax", [-3]), ("ReduceMean", [0, 0])])
def test_an_axis_found_by_the_run_is_one_of_the_operand(evaluator, optc, node, number):
    """Out of range, or twice where that changes the rank of the result."""
    inputs = {"x": np.ones((2, 3), np.float32), "axis": np.array(number)}
    attributes = {} if node == "CumSum" else {"keepdims": 0}
    model = model_of([helper.make_node(node, ["x", "axis"], ["y"], **attributes)], inputs, ["y"], 20, types={"x": helper.make_tensor_type_proto(TensorProto.FLOAT, ["N", "M"])})
    for binary in (evaluator, optc.parent / "optc_conformance_bundles"):
        (failure,) = cases.failures(binary, [cases.Case("one", model, inputs, [None])]).values()
        assert failure.startswith("fault:") and ("out of range" in failure or "listed twice" in failure), failure


@pytest.mark.parametrize("op", ["Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND", "OneHot"])
def test_a_wrong_index_is_said_as_it_was_given(evaluator, op):
    """A negative one counts from the end; the message has the operand's number, not what its sum with the length is."""
    for wrong in (-9, 5):
        inputs = {"x": np.ones(5, np.float32), "i": np.array([[0], [wrong]] if op.endswith("ND") else [0, wrong])}
        if op.startswith("Scatter"):
            inputs["u"] = np.ones(2, np.float32)
        if op == "OneHot":  # any number is an index there: none of them is hot
            inputs = {"i": inputs["i"], "d": np.array(5), "v": np.array([2, 3], np.float32)}
            want = [np.stack([np.eye(5, dtype=np.float32)[0], np.zeros(5, np.float32)]) + 2]
            assert cases.failures(evaluator, [cases.Case("none", one_node(op, inputs), inputs, want)]) == {}
            continue
        model = model_of([helper.make_node(op, list(inputs), ["y"])], inputs, ["y"], 21)
        (failure,) = cases.failures(evaluator, [cases.Case("one", model, inputs, [None])]).values()
        assert failure.startswith("fault:") and f"index {wrong} is out of range" in failure and " 5" in failure, failure


def test_a_shape_found_by_the_run_fits_the_elements(evaluator, optc):
    """Of one entry, which a Reshape could find by itself; a Relu before it, so that the rules see a view of something."""
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Reshape", ["r", "s"], ["y"]), helper.make_node("Unsqueeze", ["y", "a"], ["z"])]
    inputs = {"x": np.ones((2, 3), np.float32), "s": np.array([6]), "a": np.array([0])}
    model = model_of(nodes, inputs, ["z"], 17)
    for binary in (evaluator, optc.parent / "optc_conformance_bundles"):
        assert cases.failures(binary, [cases.Case("fits", model, inputs, [np.ones((1, 6), np.float32)])]) == {}
        (failure,) = cases.failures(binary, [cases.Case("one", model, inputs | {"s": np.array([5])}, [None])]).values()
        assert failure.startswith("fault:") and "number of elements" in failure, failure


def one_node(op, inputs, opset=21, order=None, **attributes):
    """A node whose operands are all found by the run, at dims that the model leaves open."""
    types = {k: helper.make_tensor_type_proto(cases.element_type(v), [f"{k}_{i}" for i in range(v.ndim)]) for k, v in inputs.items()}
    return model_of([helper.make_node(op, order or list(inputs), ["y"], **attributes)], inputs, ["y"], opset, types=types)


FAR = [np.inf, 1e30, 3e18]


def test_numbers_far_outside_end_in_a_fault(evaluator, optc):
    """Where a float says a size or how many samples there are."""
    made = {}
    picture = np.ones((1, 1, 4, 4), np.float32)
    for far in FAR:
        inputs = {"x": picture, "scales": np.array([1, 1, far, 1.5], np.float32)}
        made[f"resize {far}"] = (one_node("Resize", inputs, order=["x", "", "scales"]), inputs)
        inputs = {"x": picture, "rois": np.array([[0, 0, 3, far]], np.float32), "batch": np.zeros(1, np.int64)}
        made[f"roi {far}"] = (one_node("RoiAlign", inputs, output_height=2, output_width=2), inputs)
    inputs = {"start": np.array(-(2**62)), "limit": np.array(2**62), "delta": np.array(2)}
    made["range"] = (one_node("Range", inputs), inputs)
    inputs = {"x": np.zeros((2, 0), np.float32)}  # no element is the largest
    made["arg"] = (one_node("ArgMax", inputs, axis=1), inputs)
    for binary in (evaluator, optc.parent / "optc_conformance_bundles"):
        said = cases.failures(binary, [cases.Case(name, *model, [None]) for name, model in made.items()])
        assert len(said) == len(made), said.keys()
        assert all(words.startswith(("fault:", "usage:")) and any(w in words for w in ("too large", "too many", "not finite", "takes 1 or more")) for words in said.values()), said


def attention(keys, valid=None, queries=2):
    rng = np.random.default_rng(keys)
    inputs = {"q": floats(rng, 2, 2, queries, 4), "k": floats(rng, 2, 2, keys, 4), "v": floats(rng, 2, 2, keys, 3)}
    return inputs if valid is None else inputs | {"valid": np.array(valid)}


@pytest.mark.parametrize("valid", [[4, 1], [0, -1], [2**62, 0]])
def test_valid_keys_are_among_the_keys(evaluator, optc, tmp_path, valid):
    inputs = attention(3, valid)
    order = ["q", "k", "v", "", "", "", "valid"]
    model = one_node("Attention", inputs, 24, order)
    for binary in (evaluator, optc.parent / "optc_conformance_bundles"):
        (failure,) = cases.failures(binary, [cases.Case("far", model, inputs, [None])]).values()
        assert failure.startswith("fault:") and ("out of range" in failure or "outside" in failure), failure
    constant = model_of([helper.make_node("Attention", order, ["y"])], attention(3), ["y"], 24)
    constant.graph.initializer.append(numpy_helper.from_array(inputs["valid"], "valid"))
    onnx.save(constant, tmp_path / "model.onnx")
    done = subprocess.run([optc, tmp_path / "model.onnx", "-n"], capture_output=True, text=True)
    assert done.returncode == 3 and "nonpad_kv_seqlen" in done.stderr, done.stderr


def test_attention_of_no_keys_is_0(evaluator, optc):
    """As the product of no probabilities and no values is. Neither oracle takes a sequence without keys."""
    made = []
    for valid in (None, [0, 0]):
        inputs = attention(0, valid)
        order = ["q", "k", "v"] + ([] if valid is None else ["", "", "", "valid"])
        for causal in (0, 1):
            model = one_node("Attention", inputs, 24, order, is_causal=causal)
            made.append(cases.Case(f"no keys {valid} {causal}", model, inputs, [np.zeros((2, 2, 2, 3), np.float32)]))
    inputs = attention(3, [3, 0])  # of the second of the batch none is valid
    y = ReferenceEvaluator(model := one_node("Attention", inputs, 24, order)).run(None, inputs)[0]
    made.append(cases.Case("none valid", model, inputs, [np.stack([y[0], np.zeros((2, 2, 3), np.float32)])]))
    for binary in (evaluator, optc.parent / "optc_conformance_bundles"):
        assert cases.failures(binary, made) == {}


def test_numbers_far_outside_that_have_a_meaning(evaluator, optc):
    made = []
    for start, limit, delta in [(-(2**63), 2**63 - 1, 2**61), (2**63 - 1, -(2**63), -(2**63)), (5, -(2**63), 1)]:
        inputs = {"start": np.array(start), "limit": np.array(limit), "delta": np.array(delta)}
        made.append(cases.Case(f"range {start} {delta}", one_node("Range", inputs), inputs, [np.array(range(start, limit, delta), np.int64)]))
    picture = np.arange(32, dtype=np.float32).reshape(1, 2, 4, 4)
    for far in FAR:
        inputs = {"x": picture, "rois": np.array([[0, -far, -far, far, far]], np.float32)}
        made.append(cases.Case(f"max {far}", one_node("MaxRoiPool", inputs, pooled_shape=[1, 1]), inputs, [picture.max(axis=(2, 3), keepdims=True)]))
    for step in (-(2**62), -(2**63), 2**63 - 1):  # one element, by steps that the model says or the run
        inputs = {"x": picture[0, 0], "starts": np.array([-1]), "ends": np.array([-(2**63) + 1 if step < 0 else 9]), "axes": np.array([0]), "steps": np.array([step])}
        made.append(cases.Case(f"slice {step}", model_of([helper.make_node("Slice", list(inputs), ["y"])], inputs, ["y"], 21), inputs, [picture[0, 0, -1:]]))
        model = model_of([helper.make_node("Slice", list(inputs), ["y"])], {"x": inputs["x"]}, ["y"], 21)
        model.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in inputs.items() if k != "x")
        made.append(cases.Case(f"slice {step} as the model says", model, {"x": inputs["x"]}, [picture[0, 0, -1:]]))
    for mode in ("avg", "max"):  # of no pixel
        inputs = {"x": picture[:, :, :0], "rois": np.array([[0, 0, 1, 1]], np.float32), "batch": np.zeros(1, np.int64)}
        made.append(cases.Case(f"empty {mode}", one_node("RoiAlign", inputs, mode=mode), inputs, [np.zeros((1, 2, 1, 1), np.float32)]))
    for binary in (evaluator, optc.parent / "optc_conformance_bundles"):
        assert cases.failures(binary, made) == {}


def test_scales_that_a_model_says_are_sizes(optc, tmp_path):
    for scale, text in ((np.inf, "a scale is too large"), (np.nan, "a scale is not positive"), (1e15, "is too large")):
        node = helper.make_node("Resize", ["x", "", "s"], ["y"])
        model = model_of([node], {"x": np.ones((1, 1, 2**20, 2), np.float32)}, ["y"], 19)
        model.graph.initializer.append(numpy_helper.from_array(np.array([1, 1, scale, 1], np.float32), "s"))
        onnx.save(model, tmp_path / "model.onnx")
        done = subprocess.run([optc, "opt", tmp_path / "model.onnx", "-o", tmp_path / "out.onnx"], capture_output=True, text=True, timeout=60)
        assert done.returncode in (3, 4) and text in done.stderr and "-92233" not in done.stderr, done.stderr


@pytest.mark.parametrize("op, mode", [("Resize", "linear"), ("Resize", "cubic"), ("Upsample", "linear"), ("GridSample", "linear")])
def test_there_is_nothing_between_two_texts(optc, tmp_path, op, mode):
    inputs = {"x": np.full((1, 1, 2, 2), "a", object), "s": np.array([1, 1, 2, 2], np.float32)}
    if op == "GridSample":
        inputs["s"] = np.zeros((1, 2, 2, 2), np.float32)
    names = ["x", "", "s"] if op == "Resize" else ["x", "s"]
    onnx.save(model_of([helper.make_node(op, names, ["y"], mode=mode)], inputs, ["y"], {"Resize": 13, "Upsample": 9, "GridSample": 16}[op]), tmp_path / "model.onnx")
    done = subprocess.run([optc, tmp_path / "model.onnx", "-o", tmp_path / "bundle"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 4 and "values between those of string" in done.stderr, done.stderr


@pytest.mark.parametrize("declared, item", [(["N", 2], (3,)), ([3], (4,)), (["N", 2], (3, 3))])
def test_items_that_do_not_fit_the_declared_type_are_refused(evaluator, optc, declared, item):
    inputs = {"s": [np.ones(item, np.float32)], "at": np.array(0)}
    types = {"s": helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, declared))}
    model = model_of([helper.make_node("SequenceAt", ["s", "at"], ["y"]), helper.make_node("Relu", ["y"], ["z"])], inputs, ["z"], 17, types=types)
    for binary in (evaluator, optc.parent / "optc_conformance_bundles"):
        (failure,) = cases.failures(binary, [cases.Case("item", model, inputs, [None])]).values()
        assert failure.startswith(("fault:", "usage:")), failure
