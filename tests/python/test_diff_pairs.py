"""How much `optc diff` finds again of what optimizers and exporters made of a model (diff_pairs.py). Models of ../shared, skipped where they
are not there; the small ones in tier 1."""

import pathlib
import subprocess
import sys

import diff_pairs
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from page_models import transformer

sys.path.insert(0, str(pathlib.Path(__file__).parent / "numerics"))
import numerics  # noqa: E402
import real_models  # noqa: E402

SMALL = {"encoder", "mlp.script", "lstm_tagger.script", "mobilenet_v3_large.script", "romanizer_encoder", "magika"}
EXPORTS = ["mlp.script", "mlp.dynamo", "lstm_tagger.script", "mobilenet_v3_large.script", "mobilenet_v3_large.dynamo", "efficientnet_b0.script", "resnet50.script",
           "whisper_tiny_encoder.script17", "whisper_tiny_encoder.dynamo", "convnext_tiny.dynamo", "swin_t.dynamo", "unet_diffusion.dynamo"]
TRAINED = [name for name in real_models.NAMES if not name.startswith(("silero_vad_v6", "surfaces"))]  # inputs without shapes; one node
NAMES = ["encoder", *EXPORTS, *TRAINED]
EXPORTERS = ["mlp", "mobilenet_v3_large", "resnet50", "whisper_tiny_encoder", "bert_base"]


def tiers(names, small):
    return [name if name in small else pytest.param(name, marks=pytest.mark.tier2) for name in names]


def path_of(name, folder):
    if name == "encoder":
        transformer(folder / "encoder.onnx", 4)
        return folder / "encoder.onnx"
    if not numerics.SHARED.is_dir():
        pytest.skip(f"{numerics.SHARED} is not there")
    try:
        return numerics.materialized(name) if "." in name else real_models.fetched(name)
    except real_models.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("name", tiers(NAMES, SMALL))
def test_the_optimizers_work_is_found_under_other_names(optc, tmp_path, name):
    total, missed = diff_pairs.own(optc, path_of(name, tmp_path), tmp_path)
    assert total > 0 and diff_pairs.share(total, missed) >= 0.95, f"{len(missed)} of {total}: {missed[:5]}"


@pytest.mark.parametrize("peer", diff_pairs.PEERS)
@pytest.mark.parametrize("name", tiers(NAMES, SMALL))
def test_other_optimizers_work_is_explained(optc, tmp_path, name, peer):
    pytest.importorskip({"ort": "onnxruntime"}.get(peer, peer))
    for total, alone in diff_pairs.peer(optc, peer, path_of(name, tmp_path), tmp_path):
        assert diff_pairs.share(total, alone) >= 0.9, f"{len(alone)} of {total}: {alone[:20]}"


@pytest.mark.parametrize("name", tiers(EXPORTERS, ["mlp"]))
def test_two_exporters(optc, tmp_path, name):
    forms = sorted(p.stem for p in (numerics.SHARED / "models").glob(f"{name}.*.onnx"))
    a, b = (path_of(form, tmp_path) for form in (forms[1], forms[0])) if len(forms) == 2 else pytest.skip(f"{numerics.SHARED} is not there")
    for total, alone in diff_pairs.explained(optc, a, b):
        assert diff_pairs.share(total, alone) >= 0.9, f"{len(alone)} of {total}: {alone[:20]}"


def model_of(path, nodes, weights):
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x", TensorProto.FLOAT, ["N", 2, 8, 8])], [value("y", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def groups(optc, a, b):
    return sorted(("+".join(sorted(n["op"] for n in g["before"])), "+".join(sorted(n["op"] for n in g["after"])), g["evidence"])
                  for g in diff_pairs.diff(optc, a, b)["groups"] if g["status"] != "same")


def test_nodes_that_a_change_takes_in_belong_to_it(optc, tmp_path):
    """A scale that went into a convolution's weights, although what reads the result has the same operator; a transpose that became several nodes.
    Nodes put in where nothing else changed are added."""
    rng = np.random.default_rng(1)
    w = rng.standard_normal((2, 2, 3, 3), np.float32)
    node = helper.make_node
    numbers = {"w": w, "s": np.float32(0.5), "t": np.float32(2), "three": np.float32(3), "zero": np.float32(0), "six": np.float32(6)}
    swish = [node("Add", ["c", "three"], ["p"]), node("Clip", ["p", "zero", "six"], ["q"]), node("Mul", ["c", "q"], ["y"])]
    conv = [node("Conv", ["x", "w"], ["c0"], pads=[1] * 4), node("Mul", ["c0", "s"], ["c1"]), node("Add", ["c1", "t"], ["c"])]
    a = model_of(tmp_path / "a.onnx", conv + swish, numbers)
    scaled = {**numbers, "w": w / 2, "b": np.full(2, 2, np.float32)}
    b = model_of(tmp_path / "b.onnx", [node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 4)] + swish, scaled)
    assert [g[:2] for g in groups(optc, a, b)] == [("Add+Conv+Mul", "Conv")]
    # Turned at once, or in two steps.
    one = model_of(tmp_path / "one.onnx", [node("Transpose", ["x"], ["t"], perm=[3, 0, 1, 2]), node("Relu", ["t"], ["y"])], {})
    two = model_of(tmp_path / "two.onnx", [node("Transpose", ["x"], ["u"], perm=[0, 3, 1, 2]), node("Transpose", ["u"], ["t"], perm=[1, 0, 2, 3]),
                                           node("Relu", ["t"], ["y"])], {})
    assert [g[:2] for g in groups(optc, one, two)] == [("Transpose", "Transpose+Transpose")]
    # The convolution is the same one: what was put in behind it is new.
    more = model_of(tmp_path / "more.onnx", [node("Conv", ["x", "w"], ["c2"], pads=[1] * 4), node("Exp", ["c2"], ["c"])] + swish, numbers)
    less = model_of(tmp_path / "less.onnx", [node("Conv", ["x", "w"], ["c"], pads=[1] * 4)] + swish, numbers)
    assert groups(optc, less, more) == [("", "Exp", "")] and groups(optc, more, less) == [("Exp", "", "")]


def test_what_stands_as_a_constant_is_told(optc, tmp_path):
    """Nodes that compute a weight, and the constant that stands in their place; the same node twice, and once."""
    rng = np.random.default_rng(1)
    w = rng.integers(-9, 9, (8, 3)).astype(np.int8)
    node = helper.make_node
    a = model_of(tmp_path / "a.onnx", [node("Cast", ["w"], ["f"], to=TensorProto.FLOAT), node("Mul", ["f", "s"], ["m"]), node("MatMul", ["x", "m"], ["y"])],
                 {"w": w, "s": np.float32(0.5)})
    b = model_of(tmp_path / "b.onnx", [node("MatMul", ["x", "m"], ["y"])], {"m": w.astype(np.float32) * np.float32(0.5)})
    assert ("Cast+Mul", "", "constant") in groups(optc, a, b) and ("", "Cast+Mul", "constant") in groups(optc, b, a)
    facts = diff_pairs.diff(optc, a, b)
    assert ("Cast + Mul", "a constant", 1) in [(p["before"], p["after"], p["count"]) for p in facts["patterns"]]
    twice = model_of(tmp_path / "twice.onnx", [node("Exp", ["x"], ["e"]), node("Exp", ["x"], ["f"]), node("Add", ["e", "f"], ["y"])], {})
    once = model_of(tmp_path / "once.onnx", [node("Exp", ["x"], ["e"]), node("Add", ["e", "e"], ["y"])], {})
    assert ("Exp+Exp", "Exp") in [g[:2] for g in groups(optc, twice, once)]


NEUTRAL = {  # operator -> other operands and attributes, on [N, 2, 8, 8], and what it is called
    "Identity": ([], {}, "a copy"), "Mul": (["ones"], {}, "multiplied by 1"), "Div": (["one"], {}, "divided by 1"), "Add": (["zeros"], {}, "plus 0"),
    "Sub": (["zeros"], {}, "minus 0"), "Pow": (["one"], {}, "to the power of 1"), "Dropout": ([], {}, "dropout in inference"),
    "Cast": ([], {"to": TensorProto.FLOAT}, "cast to its own type"), "Transpose": ([], {"perm": [0, 1, 2, 3]}, "axes in their order"),
    "Reshape": (["shape"], {}, "its own shape"), "Expand": (["units"], {}, "its own shape"), "Tile": (["units"], {}, "repeated once"),
    "Pad": (["none"], {}, "nothing added"), "Slice": (["first", "last"], {}, "all of it"), "Concat": ([], {"axis": 1}, "one operand alone"),
    "Max": ([], {}, "one operand alone")}
SIZES = {"ones": np.ones((2, 1, 1), np.float32), "one": np.float32(1), "zeros": np.zeros((2, 1, 1), np.float32), "shape": np.array([0, 2, 8, 8]),
         "units": np.array([1, 1, 1, 1]), "none": np.zeros(8, np.int64), "first": np.array([0, 0]), "last": np.array([2**31 - 1, 2**63 - 1])}


@pytest.mark.parametrize("op", NEUTRAL)
def test_neutral_nodes_are_told(optc, tmp_path, op):
    """A node that gives what it is given, taken out: said by what it is, and all others are the same, between weights that are alike too. The same node
    with another constant is no neutral one."""
    more, attributes, why = NEUTRAL[op]
    node = helper.make_node

    def model(name, put, **changed):
        mid = [node(op, ["a", *more], ["b"], name="idle", **attributes)] if put else []
        nodes = [node("Conv", ["x", "w"], ["a"], name="first", pads=[1] * 4), *mid, node("Conv", ["b" if put else "a", "w"], ["c"], name="second", pads=[1] * 4),
                 node("Relu", ["c"], ["y"], name="third")]
        weights = {"w": np.full((2, 2, 3, 3), .5, np.float32), **{k: v for k, v in SIZES.items() if k in more}, **changed}
        path = model_of(tmp_path / f"{name}.onnx", nodes, weights)
        proto = onnx.load(path)
        if put:
            proto.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, ["N", 2, 8, 8]))
        onnx.save(proto, path)
        return path

    a, b = model("a", True), model("b", False)
    for first, second, sides in ((a, b, (op, "")), (b, a, ("", op))):
        facts = diff_pairs.diff(optc, first, second)
        assert groups(optc, first, second) == [(*sides, "neutral")] and not facts["changes"], facts["changes"]
        assert [g.get("note") for g in facts["groups"] if g["status"] != "same"] == [f"neutral: {why}"]
    assert diff_pairs.diff(optc, a, a)["equal"]
    said = subprocess.run([optc, "diff", a, b], capture_output=True, text=True, check=True).stdout
    assert f"→ nothing   neutral: {why}; 'idle'" in said, said
    weight = more[0] if more and SIZES[more[0]].dtype == np.float32 else None
    if weight:
        other = model("other", True, **{weight: np.asarray(SIZES[weight] + np.float32(1))})
        assert all(g[2] != "neutral" for g in groups(optc, other, b)), groups(optc, other, b)


def test_neutral_nodes_stand_apart_from_what_else_was_removed(optc, tmp_path):
    """x * 1 beside an Exp that is gone too; a chain of neutral nodes is one; a Dropout that trains, a Transpose, a Cast to another type are none."""
    node = helper.make_node
    numbers = {"one": np.float32(1), "zero": np.float32(0), "half": np.float32(.5), "yes": np.bool_(True)}
    b = model_of(tmp_path / "b.onnx", [node("Relu", ["x"], ["y"])], {})
    a = model_of(tmp_path / "a.onnx", [node("Exp", ["x"], ["e"]), node("Mul", ["e", "one"], ["m"]), node("Add", ["zero", "m"], ["n"]), node("Relu", ["n"], ["y"])], numbers)
    assert groups(optc, a, b) == [("Add+Mul", "", "neutral"), ("Exp", "", "")]
    assert [g["note"] for g in diff_pairs.diff(optc, a, b)["groups"] if "note" in g] == ["neutral: multiplied by 1, plus 0"]
    for op, more, attributes in (("Dropout", ["half", "yes"], {}), ("Transpose", [], {"perm": [0, 1, 3, 2]}), ("Sub", ["half"], {}), ("Softmax", [], {})):
        c = model_of(tmp_path / "c.onnx", [node(op, ["x", *more], ["t"], **attributes), node("Relu", ["t"], ["y"])], numbers)
        assert groups(optc, c, b) == [(op, "", "")], op
    turned = model_of(tmp_path / "turned.onnx", [node("Sub", ["zero", "x"], ["t"]), node("Relu", ["t"], ["y"])], numbers)
    assert groups(optc, turned, b) == [("Sub", "", "")]


def test_what_reads_a_neutral_node_reads_the_same(optc, tmp_path):
    """Neutral nodes between all layers, and the weights are other ones: pairs are found from layer to layer."""
    node = helper.make_node

    def model(name, put, seed):
        rng = np.random.default_rng(seed)
        nodes, numbers, at = [], {"one": np.float32(1)}, "x"
        for layer in range(4):
            numbers[f"w{layer}"] = rng.standard_normal((2, 2, 3, 3), np.float32)
            nodes.append(node("Conv", [at, f"w{layer}"], [f"c{name}{layer}"], name=f"{name}{layer}", pads=[1] * 4))
            at = nodes[-1].output[0]
            if put:
                nodes.append(node("Mul", [at, "one"], [at + "m"]))
                at += "m"
            nodes.append(node("Tanh" if layer % 2 else "Relu", [at], [f"{at}r"]))
            at += "r"
        nodes[-1].output[0] = "y"
        return model_of(tmp_path / f"{name}.onnx", nodes, numbers)

    facts = diff_pairs.diff(optc, model("p", True, 1), model("q", False, 2))
    assert facts["removed"] == 4 and facts["changed"] == 4 and facts["same"] == 4 and not facts["added"] and not facts["fused"]
    assert {c["kind"] for c in facts["changes"]} == {"weight"} and len(facts["changes"]) == 4
