"""--quantize-weights: the weights of products in 8 and 4 bits are one model for everyone that reads it. What is computed is the product of the
dequantized weights, which are the nearest of their grid; what costs too much or is named stays."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from abi import build

K, N, V = 200, 96, 300  # V: rows of a table that is gathered from and multiplied
TYPES = {"int8": (8, 0), "int8:32": (8, 32), "int4": (4, 32), "int4:64": (4, 64)}


def model_of(path, kind=np.float32, opset=17):
    """Every form in which a product has its weights, each with an output of its own."""
    rng = np.random.default_rng(7)
    weights, nodes, outputs = [], [], []
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))

    def weight(name, *dims, shift=0.0):
        weights.append(numpy_helper.from_array((rng.standard_normal(dims) / 8 + shift).astype(kind), name))
        return name

    def node(op, inputs, output, **attributes):
        nodes.append(helper.make_node(op, inputs, [output], f"{op}_{output}", **attributes))
        return output

    def result(name, width):
        outputs.append(helper.make_tensor_value_info(name, element, ["M", width]))

    node("MatMul", ["x", weight("right", K, N)], "y_right")
    node("MatMul", ["x", weight("shifted", K, N, shift=1.0)], "y_shifted")
    node("Gemm", ["x", weight("gemm", K, N), weight("bias", N)], "y_gemm")
    node("Gemm", ["x", weight("turned_gemm", N, K)], "y_turned_gemm", transB=1, alpha=0.5)
    node("Transpose", [weight("turned", N, K)], "turned_t", perm=[1, 0])
    node("MatMul", ["x", "turned_t"], "y_turned")
    node("MatMul", ["x", weight("shared", K, N)], "y_shared")
    node("Gemm", ["x2", "shared"], "y_shared_2")
    node("Gather", [weight("table", V, K), "ids"], "y_rows")
    node("Transpose", ["table"], "table_t", perm=[1, 0])
    node("MatMul", ["y_rows", "table_t"], "y_table")
    node("MatMul", ["x", weight("small", K, 8)], "y_small")
    node("Add", [weight("added", K, N), "one"], "added_one")
    node("MatMul", ["x", "added"], "y_kept")
    node("MatMul", ["x", "added_one"], "y_added")
    weights.append(numpy_helper.from_array(np.array(1, kind), "one"))
    for name, width in (("right", N), ("shifted", N), ("gemm", N), ("turned_gemm", N), ("turned", N), ("shared", N), ("shared_2", N), ("rows", K), ("table", V), ("small", 8), ("kept", N), ("added", N)):
        result(f"y_{name}", width)
    inputs = [helper.make_tensor_value_info(n, element, ["M", K]) for n in ("x", "x2")] + [helper.make_tensor_value_info("ids", TensorProto.INT64, ["M"])]
    graph = helper.make_graph(nodes, "forms", inputs, outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return {w.name: numpy_helper.to_array(w).astype(np.float64) for w in weights}


QUANTIZED = ("right", "shifted", "gemm", "turned_gemm", "turned", "shared", "table")
SUMS_OVER = {"turned_gemm": 1, "turned": 1, "table": 1}  # the axis of the matrix; others 0


def optc_run(optc, *arguments, status=0):
    done = subprocess.run([optc, *map(str, arguments)], capture_output=True, text=True, env={**os.environ, "OPTC_PYTHON": sys.executable})
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def dequantized(path):
    """The weights as a written model has them: by name of the weight, codes, scale and zero point brought to its shape."""
    model = onnx.load(path)
    tensors = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    parts = {}
    for node in model.graph.node:
        if node.op_type != "DequantizeLinear":
            continue
        if node.input[0] not in tensors:  # activations
            continue
        codes, scale = (tensors[n].astype(np.float64) for n in node.input[:2])
        zero = tensors[node.input[2]].astype(np.float64) if len(node.input) > 2 else np.zeros_like(scale)
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        axis, block = attributes.get("axis", 1), attributes.get("block_size", 0)

        def spread(a):
            if block:
                return np.repeat(a, block, axis).take(range(codes.shape[axis]), axis)
            return np.broadcast_to(np.expand_dims(a, 1 - axis), codes.shape)

        parts[node.input[0].removesuffix("_quantized")] = (codes - spread(zero)) * spread(scale), spread(scale), len(node.input) > 2, block
    return parts, model


def answers(weights, feeds):
    x, x2, ids = feeds["x"].astype(np.float64), feeds["x2"].astype(np.float64), feeds["ids"]
    w = weights
    rows = w["table"][ids]
    return {"y_right": x @ w["right"], "y_shifted": x @ w["shifted"], "y_gemm": x @ w["gemm"] + w["bias"], "y_turned_gemm": 0.5 * x @ w["turned_gemm"].T,
            "y_turned": x @ w["turned"].T, "y_shared": x @ w["shared"], "y_shared_2": x2 @ w["shared"], "y_rows": rows, "y_table": rows @ w["table"].T,
            "y_small": x @ w["small"], "y_kept": x @ w["added"], "y_added": x @ (w["added"] + 1)}


def feeds_of(rows, kind):
    rng = np.random.default_rng(rows)
    return {"x": rng.standard_normal((rows, K)).astype(kind), "x2": rng.standard_normal((rows, K)).astype(kind), "ids": rng.integers(0, V, rows)}


def unoptimized():
    options = onnxruntime.SessionOptions()  # its optimizer would round activations to 8 bits
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("form", TYPES)
def test_written_weights_are_the_nearest(optc, tmp_path, form, kind):
    bits, block = TYPES[form]
    original = model_of(tmp_path / "m.onnx", kind)
    said = optc_run(optc, "opt", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx", f"--quantize-weights={form}", "-v")
    assert re.search(rf"{form if block == 0 or ':' in form else f'{form}:{block}'} +7 of 8 weights of products, \S+ KiB → \S+ KiB; changes outputs by", said)
    assert "added: stays f" in said and "(Add #" in said  # something else reads it
    parts, written = dequantized(tmp_path / "q.onnx")
    assert sorted(parts) == sorted(QUANTIZED)
    for name, (values, scale, has_zero, written_block) in parts.items():
        w = original[name]
        assert written_block == block
        slack = 1e-6 if kind == np.float32 else 2e-3  # the scale was rounded to the weight's type
        assert np.abs(values - w).max() <= (0.5 + slack * 2**bits) * scale.max(), name
        assert np.all(np.abs(values - w) <= (0.5 + slack * 2**bits) * scale), name
        # No wider than the numbers of its block or column are.
        steps = 2**bits - 1 if has_zero else 2 ** (bits - 1) - 1
        axis = SUMS_OVER.get(name, 0)
        for part in np.split(np.arange(w.shape[axis]), range(block, w.shape[axis], block) if block else []):
            mine = w.take(part, axis)
            reach = np.maximum(mine.max(axis), 0) - np.minimum(mine.min(axis), 0) if has_zero else np.abs(mine).max(axis)
            np.testing.assert_allclose(scale.take(part, axis).max(axis), reach / steps, rtol=2e-3)
    assert parts["shifted"][2]  # numbers around 1 want a zero point
    # Every reader of the file sees the same: ONNX Runtime as well.
    feeds = feeds_of(5, kind)
    want = answers({**original, **{n: p[0].astype(kind).astype(np.float64) for n, p in parts.items()}}, feeds)
    session = onnxruntime.InferenceSession(str(tmp_path / "q.onnx"), unoptimized(), providers=["CPUExecutionProvider"])
    for output, got in zip(session.get_outputs(), session.run(None, feeds)):
        step = 1e-5 if kind == np.float32 else 1e-2
        np.testing.assert_allclose(got, want[output.name], rtol=step, atol=step * np.abs(want[output.name]).max(), err_msg=output.name)
    assert written.opset_import[0].version >= (21 if bits == 4 or block else 17)


@pytest.mark.parametrize("kind,form", [(np.float32, "int4"), pytest.param(np.float32, "int8", marks=pytest.mark.tier2), pytest.param(np.float16, "int4:64", marks=pytest.mark.tier2)])
def test_bundles_multiply_the_dequantized(optc, tmp_path, kind, form):
    """By one row and by many; the weights are stored once, packed, also those of two products or of a table that is gathered from."""
    original = model_of(tmp_path / "m.onnx", kind)
    optc_run(optc, "opt", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx", f"--quantize-weights={form}")
    parts, _ = dequantized(tmp_path / "q.onnx")
    weights = {**original, **{n: p[0].astype(kind).astype(np.float64) for n, p in parts.items()}}
    module, library = build(optc, tmp_path, "forms", onnx.load(tmp_path / "m.onnx"), f"--quantize-weights={form}")
    model = module.Model(library, threads=2, weights_path=tmp_path / "forms/forms.weights")
    for rows in (1, 3, 40):
        feeds = feeds_of(rows, kind)
        want = answers(weights, feeds)
        for name, got in model(**feeds).items():
            step = 3e-6 if kind == np.float32 else 2e-3
            np.testing.assert_allclose(np.asarray(got), want[name], rtol=step, atol=step * np.abs(want[name]).max(), err_msg=f"{name}, {rows} rows")
    program = optc_run(optc, "inspect", tmp_path / "m.onnx", f"--quantize-weights={form}", "--ir=program")
    assert program.count("schedule gemm.blocks") == 8
    assert f"[{V},{K}]" not in "".join(line for line in program.splitlines() if line.startswith("temp"))
    plain = sum(w.size for n, w in original.items() if n in QUANTIZED) * np.dtype(kind).itemsize
    stored = (tmp_path / "forms/forms.weights").stat().st_size
    others = sum(w.size for n, w in original.items() if n not in QUANTIZED) * np.dtype(kind).itemsize
    table = V * K  # bytes of its codes, 8 bits wide: once for rows, once as the product wants them
    assert stored < others + (0.35 if "int8" in form else 0.3) * plain * 4 / np.dtype(kind).itemsize + 2 * table + 40000, (stored, plain, others)


def test_manifest_report_and_summaries_name_the_weights(optc, tmp_path):
    original = model_of(tmp_path / "m.onnx")
    choice = ("--quantize-weights=int4", "--keep-weights", "turned*")
    summary = json.loads(optc_run(optc, tmp_path / "m.onnx", "-o", tmp_path / "b", "--format=json", "-q", *choice))
    manifest = json.loads((tmp_path / "b/manifest.json").read_text())
    written = json.loads(optc_run(optc, "opt", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx", "--format=json", "-q", *choice))
    made = manifest["quantized_weights"]
    assert made == summary["quantized_weights"] == written["quantized_weights"]
    assert made["format"] == "int4:32" and made["cost"].startswith("changes outputs by up to ")
    parts, file = dequantized(tmp_path / "q.onnx")
    assert [w["name"] for w in made["weights"]] == ["right", "shifted", "gemm", "shared", "table"] and set(parts) == {w["name"] for w in made["weights"]}
    tensors = {t.name: t for t in file.graph.initializer}
    for w in made["weights"]:
        assert w["bytes_before"] == 4 * original[w["name"]].size and 0.12 * w["bytes_before"] < w["bytes"] < 0.17 * w["bytes_before"], w
        assert w["stored"] == ("u4" if parts[w["name"]][2] else "i4")
        assert tensors[f"{w['name']}_quantized"].data_type == {"u4": TensorProto.UINT4, "i4": TensorProto.INT4}[w["stored"]]
    kept = {w["name"]: w["why"] for w in made["kept"]}
    assert kept.keys() == {"turned_gemm", "turned", "added"} and kept["turned"] == "--keep-weights turned*" and "reads it too" in kept["added"]
    page = (tmp_path / "b/report.html").read_text()
    assert "Weights in int4:32" in page and f"What that changes: {made['cost']}" in page and "5 of 8 weights" in page and all(name in page for name in [*parts, *kept, "reads it too"])
    optc_run(optc, tmp_path / "m.onnx", "-o", tmp_path / "plain", "-q")
    assert "quantized_weights" not in json.loads((tmp_path / "plain/manifest.json").read_text())
    assert "Weights in" not in (tmp_path / "plain/report.html").read_text()


def test_variants_share_the_rounded_weights(optc, tmp_path):
    """What was settled for the general code holds for the code of one row: the same weights, stored once, and the same results."""
    original = model_of(tmp_path / "m.onnx")
    choice = ("--quantize-weights=int4", "--keep-weights", "turned*")
    optc_run(optc, "opt", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx", *choice)
    parts, _ = dequantized(tmp_path / "q.onnx")
    weights = {**original, **{n: p[0] for n, p in parts.items()}}
    module, library = build(optc, tmp_path, "forms", onnx.load(tmp_path / "m.onnx"), *choice, "--variant=M=1", "--variant=M=2..8")
    model = module.Model(library, threads=1, weights_path=tmp_path / "forms/forms.weights")
    for rows in (1, 3, 40):
        feeds = feeds_of(rows, np.float32)
        want = answers(weights, feeds)
        for name, got in model(**feeds).items():
            np.testing.assert_allclose(np.asarray(got), want[name], rtol=3e-6, atol=3e-6 * np.abs(want[name]).max(), err_msg=f"{name}, {rows} rows")
    optc_run(optc, tmp_path / "m.onnx", "-o", tmp_path / "one/forms", "--name", "forms", *choice)
    alone, shared = ((tmp_path / f / "forms.weights").stat().st_size for f in ("one/forms", "forms"))
    assert alone <= shared < 1.1 * alone, (alone, shared)


def rounded(x, block):
    """As docs/guide/numerics.md says of activations."""
    whole = np.zeros((x.shape[0], -(-x.shape[1] // block) * block), np.float32)
    whole[:, : x.shape[1]] = x
    whole = whole.reshape(x.shape[0], -1, block)
    scale = np.abs(whole).max(-1, keepdims=True) / np.float32(127)
    return (np.rint(whole / scale).astype(np.float64) * scale).reshape(x.shape[0], -1)[:, : x.shape[1]]


@pytest.mark.parametrize("form", ["int4", pytest.param("int8:64", marks=pytest.mark.tier2), pytest.param("int8", marks=pytest.mark.tier2)])
def test_activations_in_8_bits(optc, tmp_path, form):
    """What the products multiply is rounded in the blocks of the weights, once for all products that read it; what is multiplied by other weights is not."""
    option = f"--quantize-weights={form},activations=int8"
    original = model_of(tmp_path / "m.onnx")
    said = optc_run(optc, "opt", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx", option)
    assert "7 of 8 weights of products" in said and "activations of 8 products in 8 bits; changes outputs by" in said
    parts, written = dequantized(tmp_path / "q.onnx")
    assert [n.op_type for n in written.graph.node].count("QuantizeLinear") == 3  # of x, x2 and the rows of the table
    block = {"int4": 32, "int8:64": 64, "int8": K}[form]
    weights = {**original, **{n: p[0] for n, p in parts.items()}}
    module, library = build(optc, tmp_path, "forms", onnx.load(tmp_path / "m.onnx"), option)
    model = module.Model(library, threads=2, weights_path=tmp_path / "forms/forms.weights")
    session = onnxruntime.InferenceSession(str(tmp_path / "q.onnx"), unoptimized(), providers=["CPUExecutionProvider"])
    for rows in (1, 3, 40):
        feeds = feeds_of(rows, np.float32)
        plain = answers(weights, feeds)
        x, x2, taken = rounded(feeds["x"], block), rounded(feeds["x2"], block), rounded(weights["table"][feeds["ids"]].astype(np.float32), block)
        want = {**answers(weights, {**feeds, "x": x, "x2": x2}), "y_table": taken @ weights["table"].T, **{n: plain[n] for n in ("y_rows", "y_small", "y_kept", "y_added")}}
        theirs = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))
        for name, got in model(**feeds).items():
            for result in (np.asarray(got), theirs[name]):
                np.testing.assert_allclose(result, want[name], rtol=3e-6, atol=3e-6 * np.abs(want[name]).max(), err_msg=f"{name}, {rows} rows")
    program = optc_run(optc, "inspect", tmp_path / "m.onnx", option, "--ir=program")
    of_bytes = [line for line in program.splitlines() if "schedule gemm" in line and "view.a.element=i8" in line]
    assert len(of_bytes) == 8, program


def test_what_is_too_large_to_be_measured_is_said(optc, tmp_path):
    """The evaluator would compute 7e10 elements: the weights are rounded all the same, and every report says that nothing was measured."""
    rng = np.random.default_rng(3)
    weights = [numpy_helper.from_array(rng.standard_normal((K, N)).astype(np.float32), "w")]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Mul", ["rows", "columns"], ["all"]),
             helper.make_node("Exp", ["all"], ["exp"]), helper.make_node("ReduceMax", ["exp"], ["z"], axes=[1], keepdims=0)]
    shapes = {"x": ["M", K], "rows": [1 << 16, 1], "columns": [1, 1 << 20]}
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["M", N]), helper.make_tensor_value_info("z", TensorProto.FLOAT, [1 << 16])]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, weights), opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    done = subprocess.run([optc, tmp_path / "m.onnx", "-o", tmp_path / "b", "--quantize-weights=int4"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr.count("warning") == 1, done.stderr
    assert "what --quantize-weights=int4:32 changes was not measured: kernel '" in done.stderr and "that are allowed" in done.stderr
    assert json.loads((tmp_path / "b/manifest.json").read_text())["quantized_weights"]["cost"].startswith("not measured: ")
    assert "What that changes: not measured: " in (tmp_path / "b/report.html").read_text()


def test_verify_asks_about_the_quantized_model(optc, tmp_path):
    model_of(tmp_path / "m.onnx")
    said = optc_run(optc, "verify", tmp_path / "m.onnx", "--quantize-weights=int4", "--engine=evaluate")
    assert "verified against ONNX Runtime" in said
    # Against the answers of the model as it was it differs, by what was said to be lost.
    said = optc_run(optc, "verify", tmp_path / "m.onnx", "--quantize-weights=int4", "--engine=evaluate", "--against", tmp_path / "m.onnx", status=1)
    assert "differ" in said


def test_the_same_bytes_twice(optc, tmp_path):
    model_of(tmp_path / "m.onnx")
    for name in "ab":
        optc_run(optc, "opt", tmp_path / "m.onnx", "-o", tmp_path / f"{name}.onnx", "--quantize-weights=int4")
        optc_run(optc, tmp_path / "m.onnx", "-o", tmp_path / name / "m", "--quantize-weights=int4", "--name", "m")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert (tmp_path / "a/m/m.weights").read_bytes() == (tmp_path / "b/m/m.weights").read_bytes()


def test_names_that_stay(optc, tmp_path):
    model_of(tmp_path / "m.onnx")
    said = optc_run(optc, "opt", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx", "--quantize-weights=int4", "--keep-weights", "turned*", "--keep-weights", "right", "-v")
    parts, _ = dequantized(tmp_path / "q.onnx")
    assert sorted(parts) == sorted(set(QUANTIZED) - {"turned", "turned_gemm", "right"})
    assert "turned_gemm: stays f32: --keep-weights turned*" in said
    said = optc_run(optc, "opt", tmp_path / "m.onnx", "-o", tmp_path / "no.onnx", "--quantize-weights=int4", "--keep-weights", "left", status=2)
    assert "no weight of a product has that name" in said and "right, shifted" in said
    assert not (tmp_path / "no.onnx").exists()


def test_a_weight_that_costs_too_much_stays(optc, tmp_path):
    """An outlier takes the steps of the numbers beside it: what they say is lost, and they alone make the output."""
    rng = np.random.default_rng(1)
    good, bad = (rng.standard_normal((256, 64)).astype(np.float32) for _ in range(2))
    bad[::32] = 3e4
    mask = np.ones(256, np.float32)
    mask[::32] = 0
    nodes = [helper.make_node("MatMul", ["x", "good"], ["g"]), helper.make_node("Mul", ["x", "mask"], ["h"]), helper.make_node("MatMul", ["h", "bad"], ["b"])]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["M", 64]) for n in "gb"]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["M", 256])], outputs,
                              [numpy_helper.from_array(a, n) for n, a in (("good", good), ("bad", bad), ("mask", mask))])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "m.onnx")
    said = optc_run(optc, "opt", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx", "--quantize-weights=int4", "-v")
    assert re.search(r"int4:32 +1 of 2 weights of products", said) and "unquantized for their cost: bad" in said
    assert re.search(r"bad: stays f32: in int4:32 it changes an output by \S+ of its range", said)
    parts, _ = dequantized(tmp_path / "q.onnx")
    assert list(parts) == ["good"]
    # Samples on which it costs nothing: zeros where the bad rows are.
    x = np.zeros((4, 256), np.float32)
    x[:, 0] = 1
    (tmp_path / "samples").mkdir()
    np.save(tmp_path / "samples/x.npy", x)
    said = optc_run(optc, "opt", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx", "--quantize-weights=int4", "--calibrate", tmp_path / "samples")
    assert re.search(r"int4:32 +2 of 2 weights of products", said), said


@pytest.mark.parametrize("arguments,status,words", [
    (["--quantize-weights=int5"], 2, "expected int8 or int4"),
    (["--quantize-weights=int4:12"], 2, "a multiple of 8"),
    (["--quantize-weights=int4:0"], 2, "expected int8 or int4"),
    (["--quantize-weights=int4,activations=int4"], 2, "activations=int8"),
    (["--keep-weights=right"], 2, "--quantize-weights"),
    (["--quantize-weights=int4", "--opset=17"], 4, "opset 17"),
])
def test_what_cannot_be_is_refused(optc, tmp_path, arguments, status, words):
    model_of(tmp_path / "m.onnx")
    said = optc_run(optc, "opt", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx", *arguments, status=status)
    assert words in said and not (tmp_path / "q.onnx").exists()


def test_gpus_are_refused(optc, tmp_path):
    model_of(tmp_path / "m.onnx")
    said = optc_run(optc, tmp_path / "m.onnx", "-o", tmp_path / "b", "--quantize-weights=int8", "--target=cpu,sm_90a", status=4)
    assert "kernels of a GPU have no weights of 4 or 8 bits" in said and not (tmp_path / "b").exists()
