"""ai.onnx.preview.training.Gradient on random graphs of all operators that have a derivative, in float64: the derivatives along random
directions beside differences of values that ONNX's reference computes (OPTC_SEED, OPTC_COUNT: other graphs, more of them)."""

import json
import math
import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import graphs  # noqa: E402

SEED = int(os.environ.get("OPTC_SEED", "11"))
COUNT = int(os.environ.get("OPTC_COUNT", "200"))
LAYER_COUNT = 12
OPSET = 24


def run_node(node, arrays):
    names = [n if n else "" for n in node.input]
    inputs = [helper.make_value_info(n, helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)) for n, a in dict(zip(names, arrays)).items() if n]
    graph = helper.make_graph([node], "node", inputs, [onnx.ValueInfoProto(name=o) for o in node.output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    with np.errstate(all="ignore"):
        return ReferenceEvaluator(model).run(None, {n: a for n, a in zip(names, arrays) if n})


def value_at(session, feeds):
    with np.errstate(all="ignore"):
        return float(session.run(None, feeds)[0])


def slope(session, feeds, name, direction):
    """The derivative along a direction by differences; None where the function has a corner or a step nearby."""
    def at(h):
        return value_at(session, {**feeds, name: feeds[name] + h * direction})

    h = 1e-5
    here, right, left = at(0), at(h), at(-h)
    # Richardson's extrapolation: the error is of h^4.
    wide, narrow = (at(2 * h) - at(-2 * h)) / (4 * h), (right - left) / (2 * h)
    smooth = abs((right - here) - (here - left)) / h < 1e-3 * (1 + abs(narrow)) and abs(wide - narrow) < 1e-6 * (1 + abs(narrow))
    return (4 * narrow - wide) / 3 if smooth else None


class Case:
    def __init__(self, folder, number, layer=None):
        rng = np.random.default_rng([SEED, number])
        if layer is None:
            self.build, self.y = graphs.random_graph(rng, run_node, int(rng.integers(2, 7)))
        else:
            self.build = graphs.Build(rng, run_node)
            x = self.build.parameter(*[graphs.size(rng) for _ in range(graphs.size(rng, 1, 3))])
            made = graphs.LAYERS[layer](rng, self.build, x)
            weights = self.build.constant(rng.normal(size=made.array.shape))
            self.y = self.build.op("ReduceSum", self.build.op("Mul", made, weights), keepdims=0)
        self.names = [n for n in self.build.parameters if rng.random() < 0.8 or n == "x1"]
        self.label = f"{layer or 'graph'} {number}: " + " ".join(n.op_type for n in self.build.nodes)
        self.folder = folder / f"{layer or 'graph'}_{number}"
        (self.folder / "inputs").mkdir(parents=True)
        (self.folder / "outputs").mkdir()
        self.feeds = {n: np.asarray(self.build.parameters[n]) for n in self.names}
        onnx.save(graphs.model_of(self.build, self.y, self.names, OPSET), self.folder / "model.onnx")
        for i, n in enumerate(self.names):
            (self.folder / "inputs" / f"input_{i}.pb").write_bytes(numpy_helper.from_array(self.feeds[n]).SerializeToString())
        self.directions = {n: [rng.normal(size=self.feeds[n].shape) for _ in range(2)] for n in self.names}

    def wrong(self):
        """What is wrong with the answers, and how many slopes were compared."""
        got = [numpy_helper.to_array(onnx.TensorProto.FromString((self.folder / "outputs" / f"output_{i}.pb").read_bytes())) for i in range(1 + len(self.names))]
        if not np.allclose(got[0], self.y.array, rtol=1e-6, atol=1e-6):
            return f"{self.label}: y is {got[0]}, {self.y.array} wanted", 0
        session = ReferenceEvaluator(graphs.forward_model(self.build, self.y, self.names, OPSET))
        compared = 0
        for n, d in zip(self.names, got[1:]):
            if d.shape != self.feeds[n].shape:
                return f"{self.label}: d_{n} has shape {d.shape}, {self.feeds[n].shape} wanted", 0
            for direction in self.directions[n]:
                want = slope(session, self.feeds, n, direction)
                if want is None:
                    continue
                compared += 1
                have = float((d * direction).sum())
                if not abs(have - want) <= 1e-5 * max(1, abs(want), np.abs(d * direction).sum()):
                    return f"{self.folder}: {self.label}: along d_{n} {have}, {want} wanted", compared
        return "", compared


def check(evaluator, cases):
    jobs = "".join(f"{k}\t{c.folder}/model.onnx\t{c.folder}/inputs\t{c.folder}/outputs\n" for k, c in enumerate(cases))
    done = subprocess.run([evaluator], input=jobs, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr[-2000:]
    wrong, compared, directions = [], 0, 0
    for case, line in zip(cases, done.stdout.splitlines()):
        _, word, text = line.split("\t")
        if word != "ok":
            wrong.append(f"{case.folder}: {case.label}: {word} {text[:300]}")
            continue
        said, count = case.wrong()
        compared += count
        directions += 2 * len(case.names)
        if said:
            wrong.append(said)
    assert not wrong, f"{len(wrong)} of {len(cases)}\n" + "\n".join(w[:600] for w in wrong[:20])
    assert compared > 0.6 * directions, f"{compared} of {directions} slopes were smooth enough to compare"


@pytest.mark.parametrize("layer", sorted(graphs.LAYERS))
def test_layers(evaluator, tmp_path, layer):
    cases = []
    for k in range(2 * LAYER_COUNT):
        try:
            cases.append(Case(tmp_path, k, layer))
        except (IndexError, ValueError):  # of ONNX's reference
            continue
        if len(cases) == LAYER_COUNT:
            break
    assert len(cases) == LAYER_COUNT
    check(evaluator, cases)


def test_graphs(evaluator, tmp_path):
    check(evaluator, [Case(tmp_path, k) for k in range(COUNT)])


def answers(evaluator, folder, model, feeds):
    """The outputs of one model on the evaluator."""
    (folder / "inputs").mkdir()
    (folder / "outputs").mkdir()
    onnx.save(model, folder / "model.onnx")
    for i, info in enumerate(model.graph.input):
        (folder / "inputs" / f"input_{i}.pb").write_bytes(numpy_helper.from_array(feeds[info.name]).SerializeToString())
    done = subprocess.run([evaluator], input=f"0\t{folder}/model.onnx\t{folder}/inputs\t{folder}/outputs\n", capture_output=True, text=True, timeout=300)
    assert done.stdout.split("\t")[1] == "ok", done.stdout
    return [numpy_helper.to_array(onnx.TensorProto.FromString((folder / "outputs" / f"output_{i}.pb").read_bytes())) for i in range(len(model.graph.output))]


def gradient(xs, y, prefix="d_", zs=(), values=None):
    values = list(values or xs) + list(zs)
    return helper.make_node("Gradient", values, [prefix + x for x in xs], domain="ai.onnx.preview.training", xs=list(xs), y=y, **({"zs": list(zs)} if zs else {}))


def double_model(nodes, feeds, outputs, constants=None):
    graph = helper.make_graph(nodes, "graph", [helper.make_tensor_value_info(n, TensorProto.DOUBLE, a.shape) for n, a in feeds.items()],
                              [onnx.ValueInfoProto(name=o) for o in outputs], [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.preview.training", 1)], ir_version=10)


def test_grouped_transposed_convolution(evaluator, tmp_path):
    """Two groups beside two transposed convolutions of half of the channels each."""
    rng = np.random.default_rng(SEED)
    feeds = {"x": rng.normal(size=(2, 4, 5, 4)), "w": rng.normal(size=(4, 3, 3, 2))}
    how = dict(strides=[2, 1], pads=[1, 0, 0, 1], output_padding=[1, 0])
    nodes = [helper.make_node("ConvTranspose", ["x", "w"], ["one"], group=2, **how)]
    for k in "ab":
        nodes.append(helper.make_node("ConvTranspose", [f"x{k}", f"w{k}"], [f"y{k}"], **how))
    nodes = [helper.make_node("Split", ["x"], ["xa", "xb"], axis=1, num_outputs=2), helper.make_node("Split", ["w"], ["wa", "wb"], axis=0, num_outputs=2), *nodes,
             helper.make_node("Concat", ["ya", "yb"], ["two"], axis=1)]
    for k in ("one", "two"):
        nodes += [helper.make_node("Sin", [k], [f"{k}_s"]), helper.make_node("ReduceSum", [f"{k}_s"], [f"{k}_y"], keepdims=0), gradient(["x", "w"], f"{k}_y", f"{k}_d_")]
    got = answers(evaluator, tmp_path, double_model(nodes, feeds, ["one_d_x", "one_d_w", "two_d_x", "two_d_w"]), feeds)
    for a, b in ((0, 2), (1, 3)):
        assert np.abs(got[a]).max() > 0.1 and np.allclose(got[a], got[b], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("pair", [(("Celu", {"alpha": 1.0}), ("Elu", {"alpha": 1.0})), (("GlobalMaxPool", {}), ("MaxPool", {"kernel_shape": [3, 4]}))], ids=["Celu", "GlobalMaxPool"])
def test_pairs_that_are_the_same(evaluator, tmp_path, pair):
    """What the reference cannot do in float64, or does wrongly, beside another operator that is the same here."""
    x = np.random.default_rng(SEED).normal(size=(2, 3, 3, 4)).astype(np.float32)
    nodes = []
    for k, (op, attributes) in enumerate(pair):
        nodes += [helper.make_node(op, ["x"], [f"r{k}"], **attributes), helper.make_node("Sin", [f"r{k}"], [f"s{k}"]), helper.make_node("ReduceSum", [f"s{k}"], [f"y{k}"], keepdims=0),
                  gradient(["x"], f"y{k}", f"d{k}_")]
    model = double_model(nodes, {"x": x}, ["d0_x", "d1_x"])
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT
    got = answers(evaluator, tmp_path, model, {"x": x})
    assert np.abs(got[0]).max() > 0.1 and np.allclose(got[0], got[1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("op", ["Erf", "Gelu"])
def test_error_function(evaluator, tmp_path, op):
    """The reference computes it in float32: beside the derivative as it is known."""
    x = np.random.default_rng(SEED).normal(size=(4, 5))
    nodes = [helper.make_node(op, ["x"], ["r"]), helper.make_node("ReduceSum", ["r"], ["y"], keepdims=0), gradient(["x"], "y")]
    got = answers(evaluator, tmp_path, double_model(nodes, {"x": x}, ["d_x"]), {"x": x})[0]
    share = np.vectorize(math.erf)(x / 2**0.5) / 2 + 0.5
    want = 2 / np.sqrt(np.pi) * np.exp(-x * x) if op == "Erf" else share + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)
    assert np.allclose(got, want, rtol=1e-9, atol=1e-9)


def test_second_derivative(evaluator, tmp_path):
    """y = sum(sin(x) * x): twice."""
    x = np.random.default_rng(SEED).normal(size=(3, 2))
    nodes = [helper.make_node("Sin", ["x"], ["s"]), helper.make_node("Mul", ["s", "x"], ["m"]), helper.make_node("ReduceSum", ["m"], ["y"], keepdims=0),
             gradient(["x"], "y", "first_"), gradient(["x"], "first_x", "second_")]
    got = answers(evaluator, tmp_path, double_model(nodes, {"x": x}, ["first_x", "second_x"]), {"x": x})
    assert np.allclose(got[0], np.cos(x) * x + np.sin(x)) and np.allclose(got[1], 2 * np.cos(x) - np.sin(x) * x)


def test_at_other_values(evaluator, tmp_path):
    """Inputs that are not the tensors of xs and zs: the graph is computed once more there. The node may stand before what it differentiates."""
    rng = np.random.default_rng(SEED)
    feeds = {n: rng.normal(size=(2, 3)) for n in ("x", "z", "x1", "z1")}
    nodes = [gradient(["x"], "y", zs=["z"], values=["x1"]), helper.make_node("Mul", ["x", "x"], ["xx"]), helper.make_node("Mul", ["xx", "z"], ["m"]),
             helper.make_node("ReduceSum", ["m"], ["y"], keepdims=0)]
    nodes[0].input[1] = "z1"
    got = answers(evaluator, tmp_path, double_model(nodes, feeds, ["d_x", "y"]), feeds)
    assert np.allclose(got[0], 2 * feeds["x1"] * feeds["z1"]) and np.allclose(got[1], (feeds["x"] ** 2 * feeds["z"]).sum())


def test_what_does_not_depend(evaluator, tmp_path):
    """Zeros for a tensor that y does not depend on, or only by whole numbers; an intermediate tensor may be one of xs."""
    rng = np.random.default_rng(SEED)
    feeds = {"x": rng.normal(size=(2, 3)), "u": rng.normal(size=(4,))}
    nodes = [helper.make_node("Tanh", ["x"], ["h"]), helper.make_node("Mul", ["h", "h"], ["hh"]), helper.make_node("ReduceSum", ["hh"], ["y"], keepdims=0), gradient(["h", "u"], "y"),
             helper.make_node("ArgMax", ["x"], ["i"], axis=1), helper.make_node("Cast", ["i"], ["f"], to=TensorProto.DOUBLE), gradient(["x"], "f", "e_")]
    got = answers(evaluator, tmp_path, double_model(nodes, feeds, ["d_h", "d_u", "e_x"]), feeds)
    assert np.allclose(got[0], 2 * np.tanh(feeds["x"])) and not got[1].any() and not got[2].any()
    assert got[1].shape == (4,) and got[2].shape == (2, 3)


def test_a_length_of_zero(evaluator, tmp_path):
    """Where it is 0 the length of a row has no derivative: 0 is taken, as PyTorch does, and no NaN reaches what is multiplied by it."""
    x = np.array([[3.0, 4.0], [0.0, 0.0]])
    nodes = [helper.make_node("ReduceL2", ["x", "axes"], ["l"], keepdims=0), helper.make_node("ReduceSum", ["l"], ["y"], keepdims=0), gradient(["x"], "y")]
    model = double_model(nodes, {"x": x}, ["d_x"])
    model.graph.initializer.append(numpy_helper.from_array(np.array([1]), "axes"))
    got = answers(evaluator, tmp_path, model, {"x": x})
    assert np.allclose(got[0], [[0.6, 0.8], [0, 0]])


@pytest.mark.parametrize(
    "change, code, text",
    [
        ({"y": "nowhere"}, 3, "nowhere"),
        ({"xs": []}, 3, "xs"),
        ({"zs": ["x"]}, 3, "as many inputs"),
        ({"y": "whole"}, 3, "y must be a tensor of floats"),
        ({"y": "hard"}, 4, "the derivative of GRU"),
    ],
)
def test_refused(optc, tmp_path, change, code, text):
    rng = np.random.default_rng(SEED)
    feeds = {"x": rng.normal(size=(2, 3, 4))}
    node = gradient(["x"], "y")
    for name, value in change.items():
        for a in list(node.attribute):
            if a.name == name:
                node.attribute.remove(a)
        node.attribute.append(helper.make_attribute(name, value, attr_type=onnx.AttributeProto.STRINGS if value == [] else None))
    nodes = [helper.make_node("Exp", ["x"], ["y"]), helper.make_node("ArgMax", ["x"], ["whole"]), helper.make_node("GRU", ["x", "w", "r"], ["hard"], hidden_size=2), node]
    model = double_model(nodes, feeds, ["d_x"], {"w": rng.normal(size=(1, 6, 4)), "r": rng.normal(size=(1, 6, 2))})
    onnx.save(model, tmp_path / "model.onnx")
    done = subprocess.run([optc, "inspect", tmp_path / "model.onnx", "--ir=graph"], capture_output=True, text=True, timeout=60)
    assert done.returncode == code and text in done.stderr and done.stderr.count("error[") == 1, done.stderr


@pytest.mark.parametrize("engine", ["evaluate", "cpu"])
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_a_step_of_training_is_torchs(optc, root, tmp_path, name, engine):
    """Loss, Gradient and Adam as one model (testdata/training/make.py): the parameters after it."""
    folder = root / "testdata/training"
    want = json.loads((folder / f"{name}.json").read_text())
    inputs, outputs = tmp_path / "inputs", tmp_path / "outputs"
    inputs.mkdir()
    for i, array in enumerate((np.asarray(want["x"], np.float32), np.asarray(want["labels"], np.int64))):
        (inputs / f"input_{i}.pb").write_bytes(numpy_helper.from_array(array).SerializeToString())
    more = ["--engine=evaluate"] if engine == "evaluate" else []
    done = subprocess.run([optc, "run", folder / f"{name}.onnx", "--inputs", inputs, "--outputs", outputs, *more], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    model = onnx.load(folder / f"{name}.onnx")
    start = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    for i, info in enumerate(model.graph.output):
        got = numpy_helper.to_array(onnx.TensorProto.FromString((outputs / f"output_{i}.pb").read_bytes()))
        if info.name == "loss":
            assert abs(float(got) - want["loss"]) < 1e-5
            continue
        key = info.name.removesuffix("_next")
        assert np.abs(got - np.asarray(want["next"][key])).max() < 1e-5
        assert np.abs(got - start[key]).max() > 1e-3  # it was a step
