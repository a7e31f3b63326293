"""What tests of the command line share: running it, a small model, and what that computes."""

import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper


def run(optc, *arguments, code=0, env=None):
    done = subprocess.run([optc, *map(str, arguments)], capture_output=True, text=True, env=env)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """x [N, 4] -> relu(x w + b) -> softmax."""
    random = np.random.default_rng(5)
    w = numpy_helper.from_array(random.standard_normal((4, 6), dtype=np.float32), "w")
    b = numpy_helper.from_array(random.standard_normal(6, dtype=np.float32), "b")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="fc/MatMul"),
        helper.make_node("Identity", ["m"], ["i"], name="fc/Identity"),
        helper.make_node("Add", ["i", "b"], ["a"], name="fc/Add"),
        helper.make_node("Relu", ["a"], ["r"], name="act"),
        helper.make_node("Softmax", ["r"], ["y"], name="head"),
    ]
    graph = helper.make_graph(
        nodes, "small", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 6])], [w, b])
    path = tmp_path_factory.mktemp("models") / "small-net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def reference(path, x):
    proto = onnx.load(path)
    w, b = (numpy_helper.to_array(t) for t in proto.graph.initializer)
    r = np.maximum(x.astype(np.float64) @ w + b, 0)
    e = np.exp(r - r.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
