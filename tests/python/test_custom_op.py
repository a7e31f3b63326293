"""--custom-op: functions in ONNX's text form for operators of domains that optc does not know."""

import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

SNAKE = """
<domain: "my.ops", opset_import: ["" : 17]>
Snake <alpha: float = 1.0> (x) => (y) {
  a = Constant <value_float: float = @alpha> ()
  inner = Mul (a, x)
  s = Sin (inner)
  square = Mul (s, s)
  part = Div (square, a)
  y = Add (x, part)
}
"""
TWICE = """
<domain: "my.ops", opset_import: ["" : 17, "my.ops" : 1]>
Twice (x) => (y) {
  once = my.ops.Snake <alpha = 2.0> (x)
  weights = Constant <value = float[3] {1.0, 2.0, 3.0}> ()
  y = Mul (once, weights)
}
"""


@pytest.fixture
def model(tmp_path):
    nodes = [
        helper.make_node("Snake", ["x"], ["a"], domain="my.ops", name="first", alpha=0.5),
        helper.make_node("Twice", ["a"], ["y"], domain="my.ops", name="second"),
    ]
    graph = helper.make_graph(nodes, "graph", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])], [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("my.ops", 1)], ir_version=8), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def run(optc, model, *options, engine="evaluate"):
    folder = model.parent
    x = np.random.default_rng(1).standard_normal((2, 3)).astype(np.float32)
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in/input_0.pb").write_bytes(numpy_helper.from_array(x).SerializeToString())
    command = [optc, "run", model, f"--engine={engine}", "--inputs", folder / "in", "--outputs", folder / "out", *options]
    return x, subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_functions_give_the_operators_a_body(optc, model):
    (model.parent / "ops.onnxtxt").write_text(SNAKE + TWICE)
    x, done = run(optc, model, "--custom-op", model.parent / "ops.onnxtxt")
    assert done.returncode == 0, done.stderr
    snake = lambda v, a: v + np.sin(a * v) ** 2 / a  # noqa: E731
    want = snake(snake(x, np.float32(0.5)), np.float32(2)) * np.asarray([1, 2, 3], dtype=np.float32)
    got = numpy_helper.to_array(onnx.TensorProto.FromString((model.parent / "out/output_0.pb").read_bytes()))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_each_in_a_file_of_its_own(optc, model):
    (model.parent / "snake.onnxtxt").write_text(SNAKE)
    (model.parent / "twice.onnxtxt").write_text(TWICE)
    _, done = run(optc, model, "--custom-op", model.parent / "snake.onnxtxt", "--custom-op", model.parent / "twice.onnxtxt")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "text, code, said",
    [
        (None, 4, "--custom-op"),  # nothing given: the error says what would help
        (SNAKE, 4, "my.ops.Twice"),  # one of the two
        ("nonsense", 2, "--custom-op"),
        (SNAKE + SNAKE, 2, "defined already"),
        (SNAKE.replace("my.ops", "ai.onnx"), 2, "ONNX's own domain"),
        (SNAKE + TWICE.replace("Snake <alpha = 2.0> (x)", "Twice (x)"), 3, "calls itself"),
    ],
)
def test_what_is_wrong_is_said_once(optc, model, text, code, said):
    options = []
    if text is not None:
        (model.parent / "ops.onnxtxt").write_text(text)
        options = ["--custom-op", model.parent / "ops.onnxtxt"]
    _, done = run(optc, model, *options)
    assert done.returncode == code, done.stderr
    assert said in done.stderr and done.stderr.count("error[") == 1, done.stderr


def test_a_file_that_is_not_there(optc, model):
    _, done = run(optc, model, "--custom-op", model.parent / "none.onnxtxt")
    assert done.returncode == 2 and "none.onnxtxt" in done.stderr, done.stderr


def test_a_bundle_that_was_kept_is_not_of_other_functions(optc, model, tmp_path, monkeypatch):
    """What lies in the cache depends on the content of the functions' file."""
    monkeypatch.setenv("OPTC_CACHE", str(tmp_path / "cache"))
    ops, results = model.parent / "ops.onnxtxt", []
    for text in (SNAKE + TWICE, (SNAKE + TWICE).replace("1.0, 2.0, 3.0", "1.0, 2.0, 4.0")):
        ops.write_text(text)
        _, done = run(optc, model, "--custom-op", ops, engine="bundle")
        assert done.returncode == 0, done.stderr
        results.append(numpy_helper.to_array(onnx.TensorProto.FromString((model.parent / "out/output_0.pb").read_bytes())))
    np.testing.assert_allclose(results[1], results[0] * np.asarray([1, 1, 4 / 3], dtype=np.float32), rtol=1e-6)
