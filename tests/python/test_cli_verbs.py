"""The verbs on small models: what they tell and what they compute."""

import json
import os
import resource
import subprocess
import sys

import numpy as np
import onnx
import pytest
from command_line import model, reference, run  # noqa: F401: fixtures
from onnx import TensorProto, helper, numpy_helper


def test_inspect_gives_the_signature_as_json(optc, model):
    facts = json.loads(run(optc, "inspect", model, "--format=json").stdout)
    assert facts["inputs"] == [{"name": "x", "type": "f32[N,4]"}]
    assert facts["operators"]["Softmax"] == 1 and facts["nodes"] == 5 and facts["parameters"] == 30


def test_inspect_prints_the_memory_plan(optc, model, tmp_path):
    plan = json.loads(run(optc, "inspect", model, "--dim=N=8", "--print-memory-plan", "--format=json").stdout)
    facts = json.loads(run(optc, model, "-o", tmp_path / "b", "--dim=N=8", "--format=json").stdout)
    manifest = json.loads((tmp_path / "b" / "manifest.json").read_text())
    assert plan["arena_bytes"] == facts["arena_bytes"] == manifest["arena_bytes"] > 0
    assert [{k: b[k] for k in ("name", "bytes", "first", "last", "offset")} for b in manifest["buffers"]] == [
        {k: b[k] for k in ("name", "bytes", "first", "last", "offset")} for b in plan["buffers"]]
    text = run(optc, "inspect", model, "--dim=N=8", "--print-memory-plan").stdout
    assert f"({plan['arena_bytes']} bytes) for one thread" in text and all(b["name"] in text for b in plan["buffers"])
    text = run(optc, "inspect", model, "--print-memory-plan").stdout
    assert "by the dims of a run" in text and "N" in text
    run(optc, "inspect", model, "--print-memory-plan", "--ir=program", code=2)


def test_opt_writes_a_model_that_computes_the_same(optc, model, tmp_path):
    import onnxruntime

    out = tmp_path / "small.opt.onnx"
    facts = json.loads(run(optc, "opt", model, "-o", out, "--format=json").stdout)
    assert facts["nodes_after"] < facts["nodes_before"]
    onnx.checker.check_model(out, full_check=True)
    x = np.random.default_rng(1).standard_normal((3, 4), dtype=np.float32)
    y = onnxruntime.InferenceSession(str(out)).run(None, {"x": x})[0]
    np.testing.assert_allclose(y, reference(model, x), rtol=1e-5, atol=1e-6)
    text = run(optc, "diff", model, out, "--exit-code", code=1).stdout
    assert "removed" in text or "fused" in text
    run(optc, "diff", model, model, "--exit-code")


@pytest.mark.parametrize("engine", ["evaluate", "bundle"])
def test_run_reads_and_writes_values(optc, model, tmp_path, engine):
    x = np.random.default_rng(2).standard_normal((2, 4), dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    run(optc, "run", model, f"--engine={engine}", f"--input=x=@{tmp_path / 'x.npy'}", "--outputs", tmp_path / "out")
    y = numpy_helper.to_array(onnx.TensorProto.FromString((tmp_path / "out/output_0.pb").read_bytes()))
    np.testing.assert_allclose(y, reference(model, x), rtol=1e-5, atol=1e-6)


def test_wrong_inputs_are_usage_errors(optc, model, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((2, 5), np.float32))
    for engine in ("evaluate", "bundle"):
        run(optc, "run", model, f"--engine={engine}", f"--input=x=@{tmp_path / 'x.npy'}", code=2)
    run(optc, "run", model, "--input=z=@nothing.npy", code=2)


@pytest.mark.parametrize("engine", ["evaluate", "bundle"])
def test_verify_against_onnx_runtime(optc, model, engine):
    env = {**os.environ, "OPTC_PYTHON": sys.executable}
    done = run(optc, "verify", model, f"--engine={engine}", "--format=json", env=env)
    facts = json.loads(done.stdout)
    assert facts["ok"] and facts["against"].startswith("ONNX Runtime") and facts["input_sets"] == 2


def test_verify_finds_a_difference_and_cannot_verify_is_not_good(optc, model, tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    x = np.random.default_rng(3).standard_normal((2, 4), dtype=np.float32)
    np.save(folder / "input_0.npy", x)
    good = reference(model, x).astype(np.float32)
    np.save(folder / "output_0.npy", good)
    run(optc, "verify", model, "--engine=evaluate", "--inputs", folder, "--against", folder)
    good[1, 2] += 0.01
    np.save(folder / "output_0.npy", good)
    text = run(optc, "verify", model, "--engine=evaluate", "--inputs", folder, "--against", folder, code=1)
    assert "FAIL" in text.stdout and "error[mismatch]" in text.stderr
    run(optc, "verify", model, "--engine=evaluate", env={**os.environ, "OPTC_PYTHON": "/no/such/python"}, code=2)


def test_verify_tells_how_sensitive_the_model_is(optc, model):
    # No rounding is allowed: the products and the exponentials differ in the last bits.
    error = run(optc, "verify", model, "--engine=evaluate", "--rtol=0", "--sets=8", "--dim=N=500", code=1,
                env={**os.environ, "OPTC_PYTHON": sys.executable}).stderr
    assert "output 'y': ONNX Runtime's own optimizations" in error and "--bisect-passes" in error


def test_explain_knows_what_opt_reports(optc, model):
    rules = json.loads(run(optc, "opt", model, "--format=json").stdout)["rules"]
    assert rules
    for rule in rules:
        run(optc, "explain", rule["rule"])
    run(optc, "explain", "no.such_rule", code=2)


def test_explain_tells_where_a_node_comes_from(optc, model, tmp_path):
    out = tmp_path / "small.opt.onnx"
    run(optc, "opt", model, "-o", out, "-q")
    gemm = next(n for n in onnx.load(out).graph.node if n.op_type == "Gemm")
    text = run(optc, "explain", f"{out}:{gemm.name}").stdout
    assert "fc/MatMul" in text and "fc/Add" in text and "matmul.bias" in text
    assert "no rule changed it" in run(optc, "explain", f"{out}:head").stdout
    assert "did you mean 'head'" in run(optc, "explain", f"{out}:heat", code=2).stderr


def test_run_says_its_outputs_as_json(optc, model, tmp_path):
    facts = json.loads(run(optc, "run", model, "--engine=evaluate", "--format=json", "--dim=N=3").stdout)
    assert facts["outputs"] == [{"name": "y", "type": "f32", "shape": [3, 6]}]


def test_a_softmax_of_before_opset_13_without_elements(optc, tmp_path):
    graph = helper.make_graph([helper.make_node("LogSoftmax", ["x"], ["y"], axis=2)], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 0, 2, 1, 4])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 0, 2, 1, 4])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 7)]), tmp_path / "empty.onnx")
    facts = json.loads(run(optc, "run", tmp_path / "empty.onnx", "--engine=evaluate", "--format=json").stdout)
    assert facts["outputs"][0]["shape"] == [4, 0, 2, 1, 4]


def test_inspect_shows_where_kernels_run(optc, tmp_path):
    nodes = [helper.make_node("Relu", ["x"], ["r"], name="act"), helper.make_node("Unique", ["r"], ["u"], name="uniq"),
             helper.make_node("Exp", ["u"], ["y"], name="exp")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["M"])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "unique.onnx")
    gpu = json.loads(run(optc, "inspect", tmp_path / "unique.onnx", "--target=sm_80", "--format=json").stdout)["gpu"]
    assert gpu["targets"] == ["sm_80"] and gpu["forms"] and [k["node"] for k in gpu["on_cpu"]] == ["uniq"]
    assert gpu["on_cpu"][0]["reason"]
    text = run(optc, "inspect", tmp_path / "unique.onnx", "--target=sm_80").stdout
    assert "1 on the CPU" in text and "node 'uniq'" in text
    assert "placement" not in run(optc, "inspect", tmp_path / "unique.onnx").stdout
    run(optc, tmp_path / "unique.onnx", "-o", tmp_path / "bundle", "--target=sm_80", "-q")
    assert "runs on the CPU: " in run(optc, "explain", f"{tmp_path / 'bundle'}:uniq").stdout


def test_a_branch_that_cannot_run_is_exported_in_standard_operators(optc, tmp_path):
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    # Exporters guard a Squeeze like this: the other branch does not fit the rank.
    branches = {
        "then_branch": helper.make_graph([helper.make_node("Squeeze", ["x", "axis"], ["a"])], "a", [],
                                         [helper.make_tensor_value_info("a", TensorProto.FLOAT, None)]),
        "else_branch": helper.make_graph([helper.make_node("Transpose", ["x"], ["b"], perm=[2, 1, 0])], "b", [],
                                         [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)])}
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], name="guard", **branches)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1]),
         helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"])], [numpy_helper.from_array(np.array([1]), "axis")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
              tmp_path / "guard.onnx")
    run(optc, "opt", tmp_path / "guard.onnx", "-o", tmp_path / "small.onnx", "-q")
    small = onnx.load(tmp_path / "small.onnx")
    onnx.checker.check_model(small, full_check=True)
    assert [opset.domain for opset in small.opset_import] == [""]
    session = onnxruntime.InferenceSession(str(tmp_path / "small.onnx"))
    x = np.ones((3, 1), np.float32)
    assert session.run(None, {"x": x, "c": np.array(True)})[0].shape == (3,)
    with pytest.raises(Exception, match="out of data bounds"):
        session.run(None, {"x": x, "c": np.array(False)})


# What is known of a condition by inference alone leaves the If where it is, as -O0 and without its rule.
@pytest.mark.parametrize("condition", ["known", "computed", "nested"])
@pytest.mark.parametrize("options", [["-O0"], ["--disable-pass=fold.if"], []], ids=["O0", "without", "default"])
def test_a_branch_that_no_run_takes_is_written_as_one(optc, tmp_path, condition, options):
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    never = "{ two = Constant <value_floats = [7.0, 2.0]> () v = Add (w, two) }"
    text = {"known": "c = Constant <value = bool {1}> ()", "computed": "n = Size (x) below = Constant <value = int64 {-1}> () c = Less (below, n)"}
    inner = f"If (c) <then_branch = g () => (float[a] s) {{ s = Neg (x) }}, else_branch = h () => (float[a] v) {never}>"
    if condition == "nested":  # the condition of the inner If is open, the outer branch is not taken
        inner = "If (c) <then_branch = g () => (float[a] s) { s = Neg (x) }, else_branch = h () => (float[a] q) { q = %s }>" % (
            inner.replace("(c)", "(open)").replace("float[a] s) { s", "float[a] t) { t"))
    body = f"{{ {text.get(condition, text['computed'])} y = {inner} }}"
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> g (float[a] x, float[3] w, bool open) => (float[a] y) {body}')
    onnx.save(model, tmp_path / "m.onnx")
    run(optc, "opt", tmp_path / "m.onnx", "-o", tmp_path / "small.onnx", "-q", *options)
    onnx.checker.check_model(onnx.load(tmp_path / "small.onnx"), full_check=True)
    x = np.arange(3, dtype=np.float32)
    feeds = {"x": x, "w": x, "open": np.array(False)}
    session = onnxruntime.InferenceSession(tmp_path / "small.onnx")
    np.testing.assert_array_equal(session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()})[0], -x)


def test_explain_tells_what_a_kernel_of_a_bundle_computes(optc, model, tmp_path):
    run(optc, model, "-o", tmp_path / "bundle", "-q")
    name = json.loads((tmp_path / "bundle/manifest.json").read_text())["kernels"][0]["name"]
    for what in (name, "fc/MatMul"):
        text = run(optc, "explain", f"{tmp_path / 'bundle'}:{what}").stdout
        assert name in text and "fc/MatMul (#0)" in text and "gemm" in text
    assert "did you mean 'fc/Add'" in run(optc, "explain", f"{tmp_path / 'bundle'}:fc/Ad", code=2).stderr


def test_precision_is_checked_recorded_and_verified(optc, model, tmp_path):
    refused = run(optc, "compile", model, "-o", tmp_path / "no", "--precision", "f8", code=2).stderr
    assert "error[usage]" in refused and all(known in refused for known in ("f32", "f16", "bf16"))
    for precision in ("f32", "f16", "bf16"):
        out = tmp_path / precision
        run(optc, "compile", model, "-o", out, "--precision", precision)
        manifest = json.loads((out / "manifest.json").read_text())
        assert manifest["precision"] == precision
        assert all(b["type"] in ("f32", precision) for b in manifest["buffers"])
        # The caller's tensors keep their types.
        assert [t["type"] for t in manifest["inputs"] + manifest["outputs"]] == ["float"] * 2
        assert ("Storage in " + precision in (out / "report.html").read_text()) == (precision != "f32")
    run(optc, model, "-o", tmp_path / "gpu", "-q", "--precision=f16", "--target=sm_80")
    page = (tmp_path / "gpu/report.html").read_text()
    assert page.count("<th>why</th>") == 2 and "On the GPU these stay f32" in page
    done = run(optc, "verify", model, "--precision", "f16", "--engine", "evaluate", "--against", "evaluate", "--format", "json")
    assert json.loads(done.stdout)["ok"]


def small_graph(path, nodes, inputs, outputs, constants):
    graph = helper.make_graph(nodes, "edge", inputs, outputs, [numpy_helper.from_array(v, k) for k, v in constants.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def evaluated(optc, path, folder):
    run(optc, "run", path, "--engine", "evaluate", "--outputs", folder)
    return [numpy_helper.to_array(onnx.load_tensor(f)) for f in sorted(folder.glob("*.pb"))]


def test_the_lowest_integer_wraps_where_it_has_no_opposite(optc, tmp_path):
    lowest = np.array([-2**63], np.int64)
    path = small_graph(tmp_path / "m.onnx", [helper.make_node("Div", ["a", "b"], ["y"])], [],
                       [helper.make_tensor_value_info("y", TensorProto.INT64, None)], {"a": lowest, "b": np.array([-1], np.int64)})
    assert evaluated(optc, path, tmp_path / "out")[0].tolist() == lowest.tolist()


def test_a_slice_backwards_starts_at_the_first_element_at_the_earliest(optc, tmp_path):
    numbers = {"x": np.array([1, 2], np.float32), "s": np.array([-3], np.int64), "e": np.array([-2**62], np.int64),
               "a": np.array([0], np.int64), "t": np.array([-2], np.int64)}
    path = small_graph(tmp_path / "m.onnx", [helper.make_node("Slice", list("xseat"), ["y"])], [],
                       [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], numbers)
    assert evaluated(optc, path, tmp_path / "out")[0].tolist() == [1]


def test_ranks_that_the_interface_lacks_are_refused(optc, tmp_path):
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1] * 9) for n in "xy"]
    path = small_graph(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])], value[:1], value[1:], {})
    assert "rank 9" in run(optc, path, "-o", tmp_path / "bundle", code=4).stderr
    assert not (tmp_path / "bundle").exists()


def test_defaults_of_inputs_stay_unless_they_are_to_be_constants(optc, tmp_path):
    """An initializer that is listed as an input is what a caller may replace; a list of them is what some exporters write for weights."""
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g",
                              [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in (("x", ["N", 3]), ("w", [3]))],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
                              [numpy_helper.from_array(np.array([1, 2, 3], np.float32), "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.ones((1, 3), np.float32))
    for options, inputs in (([], 2), (["--constant-defaults"], 1)):
        done = run(optc, "run", tmp_path / "m.onnx", "--engine=evaluate", f"--input=x=@{tmp_path}/x.npy", *options)
        assert "1 2 3" in done.stdout
        assert ("1 input has a default" in done.stderr) == (not options)
        run(optc, "opt", tmp_path / "m.onnx", "-o", tmp_path / "o.onnx", "--force", *options)
        assert len(onnx.load(tmp_path / "o.onnx").graph.input) == inputs
        assert len(onnx.load(tmp_path / "o.onnx").graph.initializer) == 1
    run(optc, tmp_path / "m.onnx", "-o", tmp_path / "b", "-q")
    assert "- input w: float [3], or null data for the model's own value" in (tmp_path / "b/README.md").read_text()
    assert "w: f32[3], with a default" in run(optc, "inspect", tmp_path / "m.onnx").stdout
    assert json.loads(run(optc, "inspect", tmp_path / "m.onnx", "--format=json").stdout)["inputs"][1]["default"] is True


def test_a_pool_in_ceil_mode_takes_sizes_below_its_window(optc, tmp_path):
    """Where a size is known at run time only, as where it is known: the first window ends less than a stride beyond the input."""
    graph = helper.make_graph([helper.make_node("LpPool", ["x"], ["y"], kernel_shape=[2, 3], strides=[2, 2], ceil_mode=1, p=1)], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1, "H", "W"])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.array([[[[1, -2, 4]]]], np.float32))
    for engine in ("evaluate", "bundle"):
        done = run(optc, "run", tmp_path / "m.onnx", f"--engine={engine}", f"--input=x=@{tmp_path}/x.npy")
        assert done.stdout.split() == ["y", "f32[1,1,1,1]", "7"]


def test_sizes_that_are_tried_stay_small(optc, tmp_path):
    """Only a branch says that d is 16. The sizes before it in the order of attempts would make an input of 10 GB of z."""
    (tmp_path / "m.onnxtxt").write_text("""<ir_version: 10, opset_import: ["" : 17]>
m (float[n,d] x, bool flag, float[k,k,k,k] z) => (float[n,16] y, float[k,k,k,k] r) <float[16,16] w = {%s}>
{
  y = If (flag) <then_branch: graph = a () => (float[n,16] p) { p = MatMul (x, w) }, else_branch: graph = b () => (float[n,16] q) { s = MatMul (x, w)  q = Neg (s) }>
  r = Relu (z)
}
""" % ",".join(["1"] * 256))
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))  # noqa: E731
    done = subprocess.run([optc, "run", tmp_path / "m.onnxtxt", "--engine=evaluate"], capture_output=True, text=True, preexec_fn=limit)
    assert done.returncode == 0 and "d=16" in done.stderr + done.stdout, done.stderr
