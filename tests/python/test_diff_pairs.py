"""How much `optc diff` finds again of what optimizers and exporters made of a model (diff_pairs.py). Models of ../shared, skipped where they
are not there; the small ones in tier 1."""

import pathlib
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
