"""`optc verify --per-node`: the values inside of a model beside ONNX Runtime's, by name, with a fault planted on ONNX Runtime's side; tolerances by
output."""

import json
import os
import stat
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from page_models import transformer


def run(optc, *arguments, code=0, env=None):
    done = subprocess.run([optc, *map(str, arguments)], capture_output=True, text=True, env=env)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def env():
    return {**os.environ, "OPTC_PYTHON": sys.executable}


def saved(path, alpha=0.1875):
    """x [N, 24] -> (c, y): a product whose bias is folded into it, LeakyRelu, Erf-Gelu, Softmax; what is chosen of it by a comparison."""
    random = np.random.default_rng(3)
    tensors = {"w": random.standard_normal((24, 24), dtype=np.float32), "b": random.standard_normal(24, dtype=np.float32), "root": np.float32(2**0.5),
               "one": np.float32(1), "half": np.float32(0.5)}
    node = helper.make_node
    nodes = [node("MatMul", ["x", "w"], ["m"], name="product"), node("Add", ["m", "b"], ["a"], name="bias"), node("Identity", ["a"], ["i"], name="copy"),
             node("LeakyRelu", ["i"], ["l"], name="leaky", alpha=alpha), node("Div", ["l", "root"], ["d"], name="div"), node("Erf", ["d"], ["e"], name="erf"),
             node("Add", ["e", "one"], ["p"], name="plus"), node("Mul", ["l", "p"], ["q"], name="times"), node("Mul", ["q", "half"], ["g"], name="gelu"),
             node("Greater", ["g", "b"], ["c"], name="compare"), node("Softmax", ["g"], ["y"], name="head", axis=-1)]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "net", [value("x", TensorProto.FLOAT, ["N", 24])], [value("y", TensorProto.FLOAT, ["N", 24]), value("c", TensorProto.BOOL, ["N", 24])],
                              [numpy_helper.from_array(v, k) for k, v in tensors.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("per_node") / "net.onnx")


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """A Python for optc whose ONNX Runtime runs the model with another number in its LeakyRelu."""
    folder = tmp_path_factory.mktemp("faulty")
    other = saved(folder / "other.onnx", alpha=0.25)
    script = folder / "python"
    script.write_text(f'#!/bin/sh\ncase "$1" in *ort_run.py) run=$1; shift 2; exec {sys.executable} "$run" {other} "$@";; esac\nexec {sys.executable} "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {**os.environ, "OPTC_PYTHON": str(script)}


def test_values_that_are_left_agree(optc, model, env):
    facts = json.loads(run(optc, "verify", model, "--engine=evaluate", "--per-node", "--format=json", env=env).stdout)
    values = facts["values"]
    assert facts["ok"] and values["first"] is None and values["not_compared"] == 0
    # In the model's order; the product and its bias, and the parts of the Gelu, are inside of what they became.
    assert [(v["value"], v["node"], v["op"]) for v in values["each"] if v["value"] in "algcy"] == \
        [("a", "bias", "Add"), ("l", "leaky", "LeakyRelu"), ("g", "gelu", "Mul"), ("c", "compare", "Greater"), ("y", "head", "Softmax")]
    assert not {"d", "e", "p", "q"} & {v["value"] for v in values["each"]} and values["removed"] == 11 - len(values["each"])
    for v in values["each"]:
        assert v["ok"] and v["max_difference"] <= v["allowed"] and 0 <= v["median_ulp"] <= v["max_ulp"] and v["cosine"] > 1 - 1e-6
        assert v["relative"] == pytest.approx(v["max_difference"] / v["range"] if v["range"] else v["max_difference"])
    text = run(optc, "verify", model, "--engine=evaluate", "--per-node", env=env).stdout
    assert f"{len(values['each'])} of {len(values['each'])} within their bound" in text and max(map(len, text.splitlines())) < 100


def test_the_first_wrong_value_is_named_and_written(optc, model, faulty, tmp_path):
    words = ["verify", model, "--engine=evaluate", "--per-node", "--culprit", tmp_path / "culprit"]
    done = run(optc, *words, code=1, env=faulty)
    assert "value 'l' of node 'leaky' (LeakyRelu) is the first beyond its bound" in done.stderr
    rows = {line.split()[-1]: line.split()[0] for line in done.stdout.splitlines() if line.startswith(("ok  ", "FAIL")) and len(line.split()[-1]) == 1}
    assert rows["a"] == "ok" and rows["l"] == rows["g"] == "FAIL"
    part = onnx.load(tmp_path / "culprit/culprit.onnx")
    onnx.checker.check_model(part, full_check=True)
    assert [n.name for n in part.graph.node] == ["copy", "leaky"] and [i.name for i in part.graph.input] == ["a"]
    x, y = np.load(tmp_path / "culprit/input_0.npy"), np.load(tmp_path / "culprit/output_0.npy")
    np.testing.assert_array_equal(y, np.where(x < 0, x * np.float32(0.25), x))
    # What is said to do with it shows the fault again.
    again = next(line for line in done.stdout.splitlines() if line.startswith("wrote ")).split(": optc ")[1]
    assert "FAIL l" in run(optc, *again.split(), "--engine=evaluate", code=1).stdout
    facts = json.loads(run(optc, *words, "--format=json", code=1, env=faulty).stdout)
    assert not facts["ok"] and facts["values"]["first"] == "l"


def test_a_wrong_value_that_no_output_shows_is_found(optc, model, faulty):
    """Within --rtol of the outputs, beyond that of single values."""
    done = run(optc, "verify", model, "--engine=evaluate", "--per-node", "--rtol=y=1", "--atol=c=1", code=1, env=faulty)
    assert "ok   y" in done.stdout and "ok   c" in done.stdout and "value 'l' of node 'leaky'" in done.stderr


def test_tolerances_of_single_outputs(optc, model, faulty):
    base = ["verify", model, "--engine=evaluate"]
    run(optc, *base, "--rtol=1", "--atol=1", env=faulty)
    run(optc, *base, "--rtol=y=1", "--atol=c=1", env=faulty)
    assert "FAIL y" in run(optc, *base, "--rtol=1", "--rtol=y=1e-6", "--atol=c=1", code=1, env=faulty).stdout
    done = run(optc, *base, "--rtol=yy=1", code=2)
    assert "the model has no such output" in done.stderr and "did you mean y?" in done.stderr
    for wrong in ("--rtol=y=", "--rtol==1", "--rtol=-1", "--atol=y=nan", "--atol=fast"):
        assert "expected a number from 0 on, or OUTPUT=NUMBER" in run(optc, *base, wrong, code=2).stderr
    assert "--culprit goes with --per-node" in run(optc, *base, "--culprit=x", code=2).stderr
    assert "--against=ort" in run(optc, *base, "--per-node", "--against=evaluate", code=2).stderr


def test_values_of_a_transformer(optc, env, tmp_path):
    """Layers fused into attention and norms; weights in a file beside the model."""
    path = tmp_path / "a.onnx"
    transformer(path, 2)
    proto = onnx.load(path)
    onnx.save(proto, tmp_path / "out.onnx", save_as_external_data=True, location="out.data", size_threshold=100)
    each = []
    for model in (path, tmp_path / "out.onnx"):
        facts = json.loads(run(optc, "verify", model, "--engine=evaluate", "--per-node", "--format=json", "--dim=N=2", env=env).stdout)
        each.append([(v["value"], v["max_difference"]) for v in facts["values"]["each"]])
        assert facts["ok"] and len(each[-1]) >= 20 and facts["values"]["removed"] > 0
    assert [v for v, _ in each[0]] == [v for v, _ in each[1]]
    text = run(optc, "verify", path, "--engine=evaluate", "--per-node", env=env).stdout
    rows = [line for line in text.splitlines() if line.startswith(("ok    ", "FAIL  "))]
    assert len(rows) == min(40, len(each[0])) and max(map(len, rows)) < 80
