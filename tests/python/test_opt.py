"""What `optc opt` says is what stands in the file that it wrote, and what an opset cannot say better stays as the model had it."""

import json
import pathlib
import subprocess
import sys

import edits
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from page_models import transformer

sys.path.insert(0, str(pathlib.Path(__file__).parent / "numerics"))
import numerics  # noqa: E402


def run(optc, *words, code=0):
    done = subprocess.run([str(optc), *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done


def written(path):
    """(nodes by operator, constants left out; bytes of initializers) of a file, all graphs."""
    operators, size = {}, 0

    def walk(graph):
        nonlocal size
        for node in graph.node:
            if node.op_type != "Constant":
                operators[node.op_type] = operators.get(node.op_type, 0) + 1
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    walk(attribute.g)
        size += sum(numpy_helper.to_array(t).nbytes for t in graph.initializer)

    model = onnx.load(path)
    walk(model.graph)
    return model, operators, size


@pytest.mark.parametrize("name", ["encoder", "mlp.script", "lstm_tagger.script", "mobilenet_v3_large.script"])
def test_counts_are_the_files(optc, root, tmp_path, name):
    if name == "encoder":
        transformer(tmp_path / "a.onnx", 3)
        path = tmp_path / "a.onnx"
    elif not (root.parent / "shared/models").is_dir():
        pytest.skip("../shared/models is not there")
    else:
        path = numerics.materialized(name)
    out = tmp_path / "out.onnx"
    facts = json.loads(run(optc, "opt", path, "-o", out, "--format=json").stdout)
    before, operators_before, _ = written(path)
    after, operators, size = written(out)
    assert facts["operators_before"] == operators_before and facts["nodes_before"] == sum(operators_before.values())
    assert facts["operators_after"] == operators and facts["nodes_after"] == sum(operators.values())
    assert facts["parameter_bytes_after"] == size
    assert facts["opset"] == next(o.version for o in after.opset_import if o.domain == "") == before.opset_import[0].version
    assert not {"Constant", "CastLike"} & {n.op_type for n in after.graph.node}
    # Without -o the same is told.
    told = json.loads(run(optc, "opt", path, "--format=json").stdout)
    assert told == facts
    assert run(optc, "opt", path, "-o", out).stdout.startswith(f"{facts['nodes_before']} → {facts['nodes_after']} nodes, ")


# Nodes that the best of ONNX Runtime (basic), onnxslim, onnxsim and onnxoptimizer leaves of them (bench/optimizers.py).
BEST = {"convnext_tiny.dynamo": 226, "lstm_tagger.script": 10, "swin_t.dynamo": 488, "unet_diffusion.dynamo": 313, "whisper_tiny_encoder.dynamo": 127,
        "whisper_tiny_encoder.script17": 138, "efficientnet_b0.script": 239}


@pytest.mark.parametrize("name", BEST)
def test_no_more_nodes_than_the_best_of_the_others(optc, root, tmp_path, name):
    if not (root.parent / "shared/models").is_dir():
        pytest.skip("../shared/models is not there")
    path, out = numerics.materialized(name), tmp_path / "out.onnx"
    run(optc, "opt", path, "-o", out)
    (_, before, size_before), (_, after, size) = written(path), written(out)
    assert sum(after.values()) <= BEST[name] and size <= 1.01 * size_before


def hard_swish(path, opset):
    floats = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 4]) for n in "xy"]
    nodes = [helper.make_node("Abs", ["x"], ["a"], name="first"), helper.make_node("HardSigmoid", ["a"], ["gate"], name="the gate", alpha=1 / 6, beta=0.5),
             helper.make_node("Mul", ["a", "gate"], ["y"], name="the product")]
    return edits.small(path, nodes, floats[:1], floats[1:], opsets=(("", opset),))


def test_a_fusion_that_the_opset_cannot_say_is_not_made(optc, tmp_path):
    path, out = hard_swish(tmp_path / "a.onnx", 13), tmp_path / "out.onnx"
    facts = json.loads(run(optc, "opt", path, "-o", out, "--format=json").stdout)
    assert [(n.name, n.op_type, list(n.output)) for n in onnx.load(out).graph.node] == \
        [(n.name, n.op_type, list(n.output)) for n in onnx.load(path).graph.node]
    assert facts["rules"] == [] and facts["nodes_after"] == 3
    assert [(m["rule"], m["count"], m["reason"]) for m in facts["missed"]] == [("activation.hard_swish", 1, "opset 13 has no HardSwish of f32")]
    assert "opset 13 has no HardSwish of f32; first at the product" in run(optc, "opt", path, "--opt-report").stdout
    # With an opset that has it, it is made, counted, and in the file.
    facts = json.loads(run(optc, "opt", path, "-o", out, "--opset=14", "--format=json").stdout)
    assert [r["rule"] for r in facts["rules"]] == ["activation.hard_swish"] and facts["operators_after"] == {"Abs": 1, "HardSwish": 1}
    assert [n.op_type for n in onnx.load(out).graph.node] == ["Abs", "HardSwish"] and facts["opset"] == 14


def test_chains_of_newer_operators_stay(optc, tmp_path):
    """Gelu, LayerNormalization and attention at an opset that has only the second: the nodes of the others are the model's own."""
    path, out = tmp_path / "a.onnx", tmp_path / "out.onnx"
    transformer(path, 2)
    run(optc, "opt", path, "-o", out, "-q")
    before, after = onnx.load(path), onnx.load(out)
    own = {(n.name, n.op_type) for n in before.graph.node}
    made = [(n.name, n.op_type) for n in after.graph.node if (n.name, n.op_type) not in own]
    assert {op for _, op in made} == {"LayerNormalization"} and len(made) == 2
    assert sum(n.op_type == "Erf" for n in after.graph.node) == sum(n.op_type == "Softmax" for n in after.graph.node) == 2


@pytest.mark.parametrize("element", [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_an_operator_said_in_an_older_opset_brings_no_constants(optc, tmp_path, element):
    kind = helper.tensor_dtype_to_np_dtype(element)
    ends = [helper.make_tensor_value_info(n, element, ["N", 4]) for n in "xy"]
    nodes = [helper.make_node("Gelu", ["x"], ["g"], name="gelu", approximate="tanh"), helper.make_node("Gelu", ["g"], ["y"], name="other")]
    path, out = edits.small(tmp_path / "a.onnx", nodes, ends[:1], ends[1:], opsets=(("", 20),)), tmp_path / "out.onnx"
    facts = json.loads(run(optc, "opt", path, "-o", out, "--opset=15", "--format=json").stdout)
    model, operators, size = written(out)
    onnx.checker.check_model(model, full_check=True)
    assert facts["operators_after"] == operators and facts["parameter_bytes_after"] == size
    assert not {"Constant", "CastLike", "Gelu"} & {n.op_type for n in model.graph.node}
    x = np.linspace(-4, 4, 12).reshape(3, 4).astype(kind)
    y, z = (onnxruntime.InferenceSession(str(p), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0] for p in (path, out))
    np.testing.assert_allclose(y.astype(np.float32), z.astype(np.float32), atol=1e-6 if element == TensorProto.FLOAT else 4e-3)


def test_the_model_itself_is_replaced_by_force_only(optc, tmp_path):
    path = hard_swish(tmp_path / "a.onnx", 14)
    bytes_before = path.read_bytes()
    (tmp_path / "link.onnx").symlink_to(path)
    for name in ("a.onnx", "./a.onnx", "link.onnx"):
        done = run(optc, "opt", path, "-o", f"{tmp_path}/{name}", code=2)
        assert "error[usage]" in done.stderr and "--force" in done.stderr
    assert path.read_bytes() == bytes_before
    run(optc, "opt", path, "-o", path, "--force", "-q")
    assert [n.op_type for n in onnx.load(path).graph.node] == ["Abs", "HardSwish"]


@pytest.mark.parametrize("different", [False, True])
def test_equal_nodes_that_find_their_sizes_are_one(optc, tmp_path, different):
    """Two NonZero of one mask and what hangs on them become one; of two masks they stay, though both give i64[1,?]."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])
    nodes = [helper.make_node("Greater", ["x", "low"], ["m"], name="mask"), helper.make_node("Less", ["x", "low"], ["other"], name="other mask")]
    for k in "pq":
        mask = "other" if different and k == "q" else "m"
        nodes += [helper.make_node("NonZero", [mask], [f"{k}n"], name=f"{k}/NonZero"), helper.make_node("Transpose", [f"{k}n"], [f"{k}t"], name=f"{k}/Transpose"),
                  helper.make_node("GatherND", ["x", f"{k}t"], [f"{k}g"], name=f"{k}/GatherND"), helper.make_node("Exp" if k == "p" else "Neg", [f"{k}g"], [f"{k}y"], name=k)]
    nodes += [helper.make_node("ReduceSum", ["py"], ["a"], name="a", keepdims=0)] if different else [helper.make_node("Add", ["py", "qy"], ["a"], name="a")]
    outputs = [helper.make_tensor_value_info("a", TensorProto.FLOAT, [] if different else ["K"]), helper.make_tensor_value_info("qy", TensorProto.FLOAT, ["L"])]
    path = edits.small(tmp_path / "a.onnx", nodes, [x], outputs, [numpy_helper.from_array(np.array([0.25], np.float32), "low")])
    out = tmp_path / "out.onnx"
    facts = json.loads(run(optc, "opt", path, "-o", out, "--format=json").stdout)
    assert [facts["operators_after"].get(op) for op in ("NonZero", "Transpose", "GatherND")] == [2 if different else 1] * 3
    values = np.array([0.5, -1, 2, 0.25, 7, 0.1], np.float32)
    y, z = (onnxruntime.InferenceSession(str(p), providers=["CPUExecutionProvider"]).run(None, {"x": values}) for p in (path, out))
    assert all(np.array_equal(a, b) for a, b in zip(y, z))
    np.save(tmp_path / "x.npy", values)
    run(optc, "run", path, "--engine=evaluate", "-q", f"--input=x=@{tmp_path / 'x.npy'}", "--outputs", tmp_path / "answers")
    for k, expected in enumerate(y):
        got = numpy_helper.to_array(onnx.TensorProto.FromString((tmp_path / f"answers/output_{k}.pb").read_bytes()))
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_a_loop_without_a_condition_is_written(optc, tmp_path):
    """Its schema counts two operands, absent ones too."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["again"]), helper.make_node("Identity", ["i"], ["number"])], "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []), helper.make_tensor_value_info("go", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("again", TensorProto.BOOL, []), helper.make_tensor_value_info("number", TensorProto.INT64, [])])
    graph = helper.make_graph([helper.make_node("Loop", ["n", ""], ["y"], body=body)], "g", [helper.make_tensor_value_info("n", TensorProto.INT64, [])],
                              [helper.make_tensor_value_info("y", TensorProto.INT64, ["k"])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "loop.onnx")
    run(optc, "opt", tmp_path / "loop.onnx", "-o", tmp_path / "out.onnx")
    out = onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(out, full_check=True)
    assert list(out.graph.node[0].input) == ["n", ""]


@pytest.mark.parametrize("given", [{}, {"onesided": 1}, {"onesided": 0}])
def test_a_spectrum_has_the_shape_that_onnx_infers(optc, tmp_path, given):
    """Of a result whose dims are declared, whether the model says the default or not."""
    bins = 5 if given.get("onesided", 1) else 8
    nodes = [helper.make_node("STFT", ["x", "step", "window"], ["s"], **given), helper.make_node("Transpose", ["s"], ["y"], perm=[0, 2, 1, 3])]
    constants = [numpy_helper.from_array(np.array(4), "step"), numpy_helper.from_array(np.hanning(8).astype(np.float32), "window")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 40, 1])], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, bins, 9, 2])], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), tmp_path / "model.onnx")
    run(optc, "opt", tmp_path / "model.onnx", "-o", tmp_path / "out.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "out.onnx"), full_check=True)


@pytest.mark.parametrize("opset", [11, 13, 17, 21])
def test_products_of_one_value_are_joined(optc, tmp_path, opset):
    """q, scaled behind its bias, k without a bias and v: one product, its bias and a Split, in every form that Split has had."""
    random = np.random.default_rng(opset)
    weight = lambda *dims: random.standard_normal(dims, dtype=np.float32)  # noqa: E731
    tensors = {"wq": weight(24, 16), "bq": weight(16), "wk": weight(24, 16), "wv": weight(24, 8), "bv": weight(8), "scale": np.float32(0.3)}
    node = helper.make_node
    nodes = [node("MatMul", ["x", "wq"], ["mq"]), node("Add", ["mq", "bq"], ["aq"]), node("Mul", ["aq", "scale"], ["q"]),
             node("MatMul", ["x", "wk"], ["k"]), node("MatMul", ["x", "wv"], ["mv"]), node("Add", ["bv", "mv"], ["v"]),
             node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]), node("MatMul", ["q", "kt"], ["s"]), node("Softmax", ["s"], ["p"], axis=2),
             node("MatMul", ["p", "v"], ["y"])]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "net", [value("x", TensorProto.FLOAT, ["N", "L", 24])], [value("y", TensorProto.FLOAT, ["N", "L", 8])],
                              [numpy_helper.from_array(v, k) for k, v in tensors.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=6), tmp_path / "a.onnx")
    facts = json.loads(run(optc, "opt", tmp_path / "a.onnx", "-o", tmp_path / "b.onnx", "--external", "--format=json").stdout)
    onnx.checker.check_model(tmp_path / "b.onnx", full_check=True)
    after, operators, size = written(tmp_path / "b.onnx")
    assert operators == {"MatMul": 3, "Add": 1, "Split": 1, "Transpose": 1, "Softmax": 1} and facts["nodes_after"] == 7
    assert {"matmul.scale", "matmul.siblings"} <= {r["rule"] for r in facts["rules"]}
    x = random.standard_normal((3, 5, 24), dtype=np.float32)
    want, got = (onnxruntime.InferenceSession(str(tmp_path / f), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0] for f in ("a.onnx", "b.onnx"))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
