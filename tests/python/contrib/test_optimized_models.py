"""Small models that ONNX Runtime optimized (level extended) or quantized by its tools: optc computes what ONNX Runtime computes of them,
and writes them in standard operators."""

import collections
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import small_models  # noqa: E402
from harness import difference, session  # noqa: E402

MODELS = {"encoder": (small_models.encoder, small_models.encoder_feeds), "convolutions": (small_models.convolutions, small_models.convolutions_feeds)}


def extended(source, out, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(out)
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


def dynamic(source, out, feeds):
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(source, out)


def static(form):
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self, feeds):
            self.left = list(feeds)

        def get_next(self):
            return self.left.pop() if self.left else None

    return lambda source, out, feeds: quantize_static(source, out, Reader(feeds), quant_format=getattr(QuantFormat, form))


def extended_and(quantize):
    """Optimized again behind the quantizer, which fuses what it made."""

    def both(source, out, feeds):
        quantize(source, out.with_suffix(".quantized"), feeds)
        extended(out.with_suffix(".quantized"), out, feeds)

    return both


def quantized_behind(source, out, feeds):
    """Optimized first, so that the quantizer meets what the optimizer made."""
    extended(source, out.with_suffix(".optimized"), feeds)
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(out.with_suffix(".optimized"), out, extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT})


def blocks(source, out, feeds):
    """Products by a constant matrix as MatMulNBits of 4 bits, as its tool for weights does it."""
    from onnxruntime.capi._pybind_state import quantize_matmul_4bits

    model = onnx.load(source)
    weights = {i.name: i for i in model.graph.initializer}
    for node in list(model.graph.node):
        if node.op_type != "MatMul" or node.input[1] not in weights:
            continue
        matrix = numpy_helper.to_array(weights[node.input[1]])
        inner, columns = matrix.shape
        block, count = 16, -(-inner // 16)
        packed = np.zeros((columns, count, block // 2), dtype=np.uint8)
        scales, zeros = np.zeros(columns * count, dtype=np.float32), np.zeros(columns * ((count + 1) // 2), dtype=np.uint8)
        quantize_matmul_4bits(packed, matrix, scales, zeros, block, columns, inner, False)
        names = [f"{node.name}_{part}" for part in ("packed", "scales", "zeros")]
        model.graph.initializer.extend(numpy_helper.from_array(a, n) for a, n in zip((packed, scales, zeros), names))
        made = helper.make_node("MatMulNBits", [node.input[0], *names], node.output, name=node.name, domain="com.microsoft", K=inner, N=columns, bits=4, block_size=block)
        node.CopyFrom(made)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, out)


FORMS = {
    "extended": (extended, 2e-5),
    # What is quantized differs by a step where two roundings fall on different sides.
    "dynamic": (dynamic, 2e-2),
    "dynamic, extended": (extended_and(dynamic), 2e-2),
    "extended, dynamic": (quantized_behind, 2e-2),
    "static QDQ": (static("QDQ"), 2e-2),
    "static QDQ, extended": (extended_and(static("QDQ")), 2e-2),
    "static QOperator": (static("QOperator"), 2e-2),
    "blocks": (blocks, 2e-5),
}
# What shows that the model is of the form it should be.
EXPECTED = {
    ("encoder", "extended"): {"Attention", "SkipLayerNormalization", "BiasGelu"},
    ("convolutions", "extended"): {"FusedConv"},
    ("encoder", "dynamic, extended"): {"DynamicQuantizeMatMul", "MatMulIntegerToFloat"},
    ("encoder", "extended, dynamic"): {"QAttention"},
    ("convolutions", "static QOperator"): {"QLinearAdd", "QLinearConcat", "QLinearGlobalAveragePool", "QLinearSigmoid"},
    ("encoder", "blocks"): {"MatMulNBits"},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", MODELS)
def test_model(optc, evaluator, tmp_path, name, form):
    make, feeds_of = MODELS[name]
    write, tolerance = FORMS[form]
    rng = np.random.default_rng(3)
    onnx.save(make(), tmp_path / "source.onnx")
    write(tmp_path / "source.onnx", tmp_path / "model.onnx", [feeds_of(rng) for _ in range(4)])
    model = onnx.load(tmp_path / "model.onnx")
    found = collections.Counter(n.op_type for n in model.graph.node if n.domain == "com.microsoft")
    assert EXPECTED.get((name, form), set()) <= set(found), found
    feeds = feeds_of(rng)
    want = session(str(tmp_path / "model.onnx")).run(None, feeds)
    (tmp_path / "inputs").mkdir()
    (tmp_path / "outputs").mkdir()
    for k, info in enumerate(model.graph.input):
        (tmp_path / "inputs" / f"input_{k}.pb").write_bytes(numpy_helper.from_array(feeds[info.name]).SerializeToString())
    done = subprocess.run([evaluator, tmp_path / "model.onnx", tmp_path / "inputs", tmp_path / "outputs"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    got = numpy_helper.to_array(onnx.TensorProto.FromString((tmp_path / "outputs" / "output_0.pb").read_bytes()))
    assert not (wrong := difference(want[0], got, tolerance, 0)), wrong
    done = subprocess.run([optc, "opt", tmp_path / "model.onnx", "-o", tmp_path / "written.onnx"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    written = onnx.load(tmp_path / "written.onnx")
    onnx.checker.check_model(written, full_check=True)
    assert all(n.domain in ("", "ai.onnx") for n in written.graph.node)
    (got,) = session(str(tmp_path / "written.onnx")).run(None, feeds)
    assert not (wrong := difference(want[0], got, tolerance, 0)), wrong
