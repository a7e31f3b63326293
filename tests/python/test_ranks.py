"""Ranks that only the run decides: Ifs whose branches give different ranks, Squeeze without axes."""

import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

HEAD = '<ir_version: 9, opset_import: ["" : 18]>\n'
IF = "If (c) <then_branch = g () => (float[] s) { s = Constant <value = float {2.0}> () }, else_branch = h () => (float[] v) { v = Identity (w) }>"
# Each absorbs the result's leading ones: a product into a higher rank, a chain of operators, an outer If, a Reshape, Size.
FREE = {
    "product": "{ r = " + IF + " y = Mul (x, r) }",
    "chain": "{ m = Less (x, w) r = " + IF + " two = Constant <value = float {2.0}> () n = Neg (r) e = Exp (n) s = Add (e, two) y = Where (m, x, s) z = Less (x, s) }",
    "both": "{ r = " + IF + " n = Neg (r) s = Mul (r, n) y = Sub (s, x) }",
    "nested": "{ r = If (k) <then_branch = a () => (float[] q) { q = " + IF + " }, else_branch = b () => (float[] u) { u = Constant <value = float {3.0}> () }> y = Add (x, r) }",
    "reshape": "{ r = " + IF + " shape = Constant <value = int64[3] {1, -1, 1}> () s = Reshape (r, shape) y = Mul (x, s) }",
    "size": "{ r = " + IF + " n = Size (r) f = Cast <to = 1> (n) y = Mul (x, f) }",
}
BOUND = {
    "output": "{ y = " + IF + " }",
    "low_rank": "{ r = " + IF + " y = Neg (r) }",
    "concat": "{ r = " + IF + " y = Concat <axis = 0> (r, r) }",
    "reduction": "{ r = " + IF + " s = ReduceSum <keepdims = 0> (r) y = Mul (x, s) }",
    "copied_dim": "{ r = " + IF + " shape = Constant <value = int64[2] {0, 1}> () y = Reshape (r, shape) }",
    "with_a_vector": "{ r = " + IF + " two = Constant <value = float {2.0}> () y = Add (two, r) }",
}


def write(path, body, inputs, outputs):
    model = parser.parse_model(HEAD + f"g ({inputs}) => ({outputs}) {body}")
    onnx.save(model, path)
    return path


def run(optc, model, feeds, folder, *options):
    (folder / "in").mkdir(exist_ok=True)
    for i, value in enumerate(feeds.values()):
        (folder / f"in/input_{i}.pb").write_bytes(numpy_helper.from_array(value).SerializeToString())
    return subprocess.run([optc, "run", model, "--inputs", folder / "in", "--outputs", folder / "out", "-q", *options], capture_output=True, text=True)


def output(folder, i=0):
    return numpy_helper.to_array(onnx.TensorProto.FromString((folder / f"out/output_{i}.pb").read_bytes()))


@pytest.mark.parametrize("engine", ["evaluate", "bundle"])
@pytest.mark.parametrize("name", FREE)
def test_branches_of_different_rank_that_are_broadcast(optc, tmp_path, name, engine):
    outputs = {"y": "float[a,b,e] y", "z": "bool[a,b,e] z"} if name == "chain" else {"y": "float[a,b,e] y"}
    model = write(tmp_path / "m.onnx", FREE[name], "float[2,3,3] x, float[3] w, bool c, bool k", ", ".join(outputs.values()))
    session = onnxruntime.InferenceSession(model)
    random = np.random.default_rng(3)
    x, w = random.standard_normal((2, 3, 3)).astype(np.float32), random.standard_normal(3).astype(np.float32)
    for c in (False, True):
        feeds = {"x": x, "w": w, "c": np.array(c), "k": np.array(True)}
        done = run(optc, model, feeds, tmp_path, f"--engine={engine}")
        assert done.returncode == 0, done.stderr
        for i, want in enumerate(session.run(list(outputs), feeds)):
            got = output(tmp_path, i)
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("name", BOUND)
def test_branches_of_different_rank_that_decide_a_rank_are_refused(optc, tmp_path, name):
    model = write(tmp_path / "m.onnx", BOUND[name], "float[2,3,3] x, float[3] w, bool c", "float[] y")
    done = subprocess.run([optc, model, "-o", tmp_path / "b"], capture_output=True, text=True)
    assert done.returncode == 4, done.stderr
    assert "rank" in done.stderr and not (tmp_path / "b").exists()


# A dimension that the run finds is taken to be no 1: what would change the rank ends in one clear error.
@pytest.mark.parametrize("engine", ["evaluate", "bundle"])
def test_squeeze_without_axes_of_a_size_that_the_run_finds(optc, tmp_path, engine):
    body = "{ places = NonZero (x) flat = Squeeze (places) y = Neg (flat) }"
    model = write(tmp_path / "m.onnx", body, "float[5] x", "int64[n] y")
    for x in ([1, 0, 2, 0, 3], [0, 0, 0, 0, 0], [1, 1, 0, 0, 0]):
        done = run(optc, model, {"x": np.array(x, np.float32)}, tmp_path, f"--engine={engine}")
        assert done.returncode == 0, done.stderr
        np.testing.assert_array_equal(output(tmp_path), -np.flatnonzero(x))
    done = run(optc, model, {"x": np.array([0, 0, 7, 0, 0], np.float32)}, tmp_path, f"--engine={engine}")
    assert done.returncode == 1 and "dimension 1 must not become 1, which would change the rank" in " ".join(done.stderr.split()), done.stderr


# Sizes that stand beside those that only the run finds are known: here the two that Squeeze leaves out and keeps.
@pytest.mark.parametrize("engine", ["evaluate", "bundle"])
@pytest.mark.parametrize("operator", ["Expand", "Reshape"])
def test_parts_of_a_shape_are_known(optc, tmp_path, operator, engine):
    body = """{ tail = Constant <value = int64[2] {1, 3}> () shape = Concat <axis = 0> (n, tail)
      wide = %s (x, shape) flat = Squeeze (wide) y = Transpose <perm = [1, 0]> (flat) }""" % operator
    model = write(tmp_path / "m.onnx", body, "float[a,3] x, int64[1] n" if operator == "Reshape" else "float[1,3] x, int64[1] n", "float[3,k] y")
    session = onnxruntime.InferenceSession(model)
    for n in (4, 2):
        x = np.arange(3 if operator == "Expand" else 3 * n, dtype=np.float32).reshape(-1, 3)
        feeds = {"x": x, "n": np.array([n])}
        done = run(optc, model, feeds, tmp_path, f"--engine={engine}")
        assert done.returncode == 0, done.stderr
        np.testing.assert_array_equal(output(tmp_path), session.run(None, feeds)[0])
    if operator == "Expand":
        assert run(optc, model, {"x": x, "n": np.array([1])}, tmp_path, f"--engine={engine}").returncode == 1


# Nothing but the declared shape tells the rank of y: a branch of another rank would be read beyond its end.
@pytest.mark.parametrize("declared", ["float[1000]", "float[1,2]", "float[2,3,1]"])
def test_a_declared_shape_that_a_branch_does_not_have_is_refused(optc, tmp_path, declared):
    body = """{ y = If (c) <then_branch = t () => (float[2,3] a) { a = Relu (x) },
      else_branch = e () => (float[6] b) { whole = Constant <value_ints = [-1]> () b = Reshape (x, whole) }> }"""
    model = write(tmp_path / "m.onnx", body, "float[2,3] x, bool c", f"{declared} y")
    done = subprocess.run([optc, model, "-o", tmp_path / "b"], capture_output=True, text=True)
    assert done.returncode == 4 and "as declared" in " ".join(done.stderr.split()), done.stderr
    assert not (tmp_path / "b").exists()


# Exporters declare a loop's number as a list of one element and slice by it; a condition may be one, too. Slice takes lists alone.
@pytest.mark.parametrize("number", ["int64", "int64[1]"])
@pytest.mark.parametrize("condition", ["bool", "bool[1]"])
def test_numbers_and_conditions_of_loops_are_scalars_or_lists(optc, tmp_path, number, condition):
    body = """{ bounds = Constant <value = int64[4] {0, 3, 5, 8}> () axis = Constant <value = int64[1] {1}> () first = Sub (x, x)
      sums, numbers, goes = Loop (trips, go_on, first) <body = b (%s i, %s go, float[2,8] s) => (%s again, out, number, gone) {
        whole = Constant <value_ints = [-1]> () one = Constant <value = int64 {1}> () next = Add (i, one)
        from = Gather <axis = 0> (bounds, i) to = Gather <axis = 0> (bounds, next)
        from_list = FROM to_list = TO
        part = Slice (x, from_list, to_list, axis) total = ReduceSum <keepdims = 1> (part)
        out = Add (s, total) again = Identity (go) number = Identity (i) gone = Not (go) }> }"""
    as_list = "%s (%s, whole)" if number == "int64" else "%s (%s)"
    operator = "Reshape" if number == "int64" else "Identity"
    body = body.replace("FROM", as_list % (operator, "from")).replace("TO", as_list % (operator, "to")) % (number, condition, condition)
    rank = "[3,1]" if number == "int64[1]" else "[3]"
    model = write(tmp_path / "m.onnx", body, f"float[2,8] x, int64 trips, {condition} go_on",
                  f"float[2,8] sums, int64{rank} numbers, bool{'[3,1]' if condition == 'bool[1]' else '[3]'} goes")
    feeds = {"x": np.arange(16, dtype=np.float32).reshape(2, 8), "trips": np.array(3), "go_on": np.ones([1] if condition == "bool[1]" else [], bool)}
    want = onnxruntime.InferenceSession(model).run(None, feeds)
    engines = ["evaluate", "bundle"] if number == "int64[1]" and condition == "bool[1]" else ["evaluate"]
    for engine in engines:
        done = run(optc, model, feeds, tmp_path, f"--engine={engine}")
        assert done.returncode == 0, done.stderr
        for i, value in enumerate(want):
            np.testing.assert_array_equal(output(tmp_path, i), value, strict=True)
    done = subprocess.run([optc, "opt", model, "-o", tmp_path / "o.onnx", "-q"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for got, value in zip(onnxruntime.InferenceSession(tmp_path / "o.onnx").run(None, feeds), want, strict=True):
        np.testing.assert_array_equal(got, value, strict=True)
