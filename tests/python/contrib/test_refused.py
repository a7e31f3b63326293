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
        ("FusedMatMul", ["in0", "in1"], {"transB": 2}, 3, "attribute 'transB' of com.microsoft.FusedMatMul is 2; it says yes by 1"),
        ("IsAllFinite", ["in0"], {"isnan_only": -1}, 3, "attribute 'isnan_only' of com.microsoft.IsAllFinite is -1"),
        ("MultiHeadAttention", ["in0", "in1", "in2"], {"num_heads": 1, "unidirectional": 3}, 3, "'unidirectional' of com.microsoft.MultiHeadAttention is 3"),
        ("Inverse", ["in0", "in1"], {}, 3, "at most 1 inputs"),
        ("Inverse", ["in0"], {"upper": 1}, 4, "attribute 'upper' of com.microsoft.Inverse is not known"),
        ("Tokenizer", ["in0"], {"mark": 2, "mincharnum": 1, "pad_value": "#", "tokenexp": "a"}, 3, "attribute 'mark' of com.microsoft.Tokenizer is 2"),
        ("MurmurHash3", ["in0"], {"positive": 2}, 3, "attribute 'positive' of com.microsoft.MurmurHash3 is 2"),
        ("DynamicTimeWarping", ["in0"], {"band": 2}, 4, "attribute 'band' of com.microsoft.DynamicTimeWarping is not known"),
        ("WordConvEmbedding", ["in0", "in1", "in2", "in2"], {}, 3, "input 1 (W) must have rank 4"),
        ("NhwcMaxPool", ["in0"], {}, 3, "attribute 'kernel_shape' of com.microsoft.NhwcMaxPool is required"),
        ("NoSuchOperator", ["in0"], {}, 4, "com.microsoft.NoSuchOperator"),
    ],
)
def test_refused(optc, tmp_path, op, inputs, attributes, code, text):
    node = helper.make_node(op, inputs, ["out"], name="node", domain="com.microsoft", **attributes)
    given, message = said(optc, tmp_path, node, 3)
    assert given == code, message
    assert text in message and message.count("error[") == 1, message


@pytest.mark.parametrize(
    "input, shape, text",
    [
        (3, [2, 20], "the length of B"),
        (4, [2], "the length of sequence_lens"),
        (5, [2, 1, 5], "the batch of an initial state"),
        (7, [1, 15], "the number of directions of P"),
        (8, [1], "the directions of W_scale"),
        (10, [2, 5], "the columns of R_scale"),
        (11, [2, 2, 5], "R_zero_point must have rank 1 or 2"),
    ],
)
def test_operands_of_dynamic_quantize_lstm(optc, tmp_path, input, shape, text):
    """Its kernel would read beside an operand that is too short."""
    shapes = {0: [4, 3, 6], 1: [2, 6, 20], 2: [2, 5, 20], 3: [2, 40], 4: [3], 5: [2, 3, 5], 6: [2, 3, 5], 7: [2, 15]} | {k: [2] for k in range(8, 12)}
    types = {1: TensorProto.INT8, 2: TensorProto.INT8, 4: TensorProto.INT32, 9: TensorProto.INT8, 11: TensorProto.INT8}
    for given, code in ((shapes, 0), (shapes | {input: shape}, 3)):
        inputs = [helper.make_tensor_value_info(f"in{k}", types.get(k, TensorProto.FLOAT), dims) for k, dims in given.items()]
        node = helper.make_node("DynamicQuantizeLSTM", [i.name for i in inputs], ["out"], name="node", domain="com.microsoft", hidden_size=5, direction="bidirectional")
        graph = helper.make_graph([node], "graph", inputs, [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10), tmp_path / "model.onnx")
        done = subprocess.run([optc, "inspect", tmp_path / "model.onnx", "--ir=graph"], capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stderr
    assert text in done.stderr and done.stderr.count("error[") == 1, done.stderr


def test_sizes_of_word_conv_embedding(optc, tmp_path):
    """An attribute that says another size than the operand has; a window that is longer than the words."""
    for shape, attributes, code, text in (([5, 4], {"conv_window_size": 3}, 0, ""), ([5, 4], {"embedding_size": 3}, 3, "attribute 'embedding_size' is 3, but the operand has 6"),
                                          ([5, 2], {}, 3, "Conv")):
        sizes = {"words": shape, "w": [6, 1, 3, 2], "b": [6], "c": [9, 2]}
        inputs = [helper.make_tensor_value_info(k, TensorProto.INT32 if k == "words" else TensorProto.FLOAT, v) for k, v in sizes.items()]
        node = helper.make_node("WordConvEmbedding", list(sizes), ["out"], name="node", domain="com.microsoft", **attributes)
        graph = helper.make_graph([node], "graph", inputs, [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10), tmp_path / "model.onnx")
        done = subprocess.run([optc, "inspect", tmp_path / "model.onnx", "--ir=graph"], capture_output=True, text=True, timeout=60)
        assert done.returncode == code and text in done.stderr and done.stderr.count("error[") == (code != 0), done.stderr


def test_types_that_an_opset_lacks_raise_the_opset(optc, tmp_path):
    """2-bit weights make 2-bit tensors, which came with opset 25: the written model says so and is valid."""
    import numpy as np
    from onnx import numpy_helper

    weights = [numpy_helper.from_array(np.full((64, 32, 4), 27, dtype=np.uint8), "b"), numpy_helper.from_array(np.ones((64, 32), dtype=np.float32), "scales")]
    node = helper.make_node("MatMulNBits", ["x", "b", "scales"], ["y"], domain="com.microsoft", K=512, N=64, bits=2, block_size=16)
    graph = helper.make_graph([node], "graph", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 512])], [onnx.ValueInfoProto(name="y")], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
    onnx.save(model, tmp_path / "model.onnx")
    done = subprocess.run([optc, "opt", tmp_path / "model.onnx", "-o", tmp_path / "out.onnx"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "instead of the model's own 17" in done.stderr, done.stderr
    written = onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(written, full_check=True)
    assert [o.version for o in written.opset_import if not o.domain] == [25]
