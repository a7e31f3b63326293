"""Nodes of com.microsoft that do not fit their signature, or ask for what optc cannot do, end in one error that says so."""

import subprocess

import onnx
import pytest
from onnx import TensorProto, helper


def said(optc, tmp_path, node, count):
    inputs = [helper.make_tensor_value_info(f"in{k}", TensorProto.FLOAT, [2, 3]) for k in range(count)]
    graph = helper.make_graph([node], "graph", inputs, [onnx.ValueInfoProto(name="out")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
    onnx.save(model, tmp_path / "model.onnx")
    done = subprocess.run([optc, "inspect", tmp_path / "model.onnx", "--ir=graph"], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "op, inputs, attributes, code, text",
    [
        ("FusedMatMul", ["in0"], {}, 3, "input 1 (B) is required, but absent"),
        ("FusedMatMul", ["in0", "in1", "in2"], {}, 3, "at most 2 inputs"),
        ("FusedMatMul", ["in0", "in1"], {"alpha": "x"}, 3, "attribute 'alpha' of com.microsoft.FusedMatMul must be a float"),
        ("FusedMatMul", ["in0", "in1"], {"transC": 1}, 4, "attribute 'transC' of com.microsoft.FusedMatMul is not known"),
        ("FusedMatMul", ["in0", "in1"], {}, 3, "inner dimensions"),
        ("FusedGemm", ["in0", "in1"], {"transB": 1, "activation": "Snake"}, 4, "activation 'Snake'"),
        ("GroupNorm", ["in0", "in1", "in2"], {"groups": 1, "activation": 0}, 3, "input 0 (X) must have rank 4"),
        ("NhwcMaxPool", ["in0"], {}, 3, "attribute 'kernel_shape' of com.microsoft.NhwcMaxPool is required"),
        ("NoSuchOperator", ["in0"], {}, 4, "com.microsoft.NoSuchOperator"),
    ],
)
def test_refused(optc, tmp_path, op, inputs, attributes, code, text):
    node = helper.make_node(op, inputs, ["out"], name="node", domain="com.microsoft", **attributes)
    given, message = said(optc, tmp_path, node, 3)
    assert given == code, message
    assert text in message and message.count("error[") == 1, message
