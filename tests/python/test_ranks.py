"""Ranks that only the run decides: Ifs whose branches give different ranks, Squeeze without axes, values that a loop does not read."""

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
# The rank matters to what follows, up to a value whose rank it does not change.
FORMS = {
    "sum": "{ r = " + IF + " y = ReduceSum <keepdims = 0> (r) }",
    "sum_of_chain": "{ r = " + IF + " two = Constant <value = float {2.0}> () n = Neg (r) a = Add (n, two) b = Mul (a, r) s = ReduceSum <keepdims = 0> (b) y = Mul (x, s) }",
    "rank": "{ r = " + IF + " s = Shape (r) n = Size (s) f = Cast <to = 1> (n) y = Mul (x, f) }",
    "shape": "{ r = " + IF + " s = Shape (r) o = ConstantOfShape <value = float[1] {2.0}> (s) p = Add (o, r) y = ReduceSum <keepdims = 0> (p) }",
    "flat": "{ r = " + IF + " whole = Constant <value_ints = [-1]> () f = Reshape (r, whole) y = Concat <axis = 0> (f, w) }",
    "inner": "{ r = " + IF + " n = Neg (r) y = If (k) <then_branch = a () => (float q) { q = ReduceSum <keepdims = 0> (n) }, else_branch = b () => (float u) { u = Constant <value = float {3.0}> () }> }",
    "two_results": """{ y, r = If (c) <then_branch = g () => (float[3] a, float s) { a = Exp (w) s = Constant <value = float {2.0}> () },
        else_branch = h () => (float[3] b, float[3] v) { b = Neg (w) v = Identity (w) }> z = ReduceMax <keepdims = 0> (r) }""",
    "absent_outputs": "{ r = " + IF + " whole = Constant <value_ints = [1, -1]> () f = Reshape (r, whole) one = Constant <value_ints = [1]> () t, i = TopK (r, one) y = Cast <to = 1> (i) }",
    "concat": "{ r = " + IF + " y = Concat <axis = 0> (r, r) }",  # a scalar cannot be joined: the run ends where it is
    "copied_dim": "{ r = " + IF + " shape = Constant <value = int64[2] {0, 1}> () y = Reshape (r, shape) }",
    "gather": "{ r = " + IF + " at = Constant <value_ints = [2, 0]> () g = Gather (r, at) y = Neg (g) }",
    "strings": """{ r = If (c) <then_branch = g () => (string[] s) { s = Constant <value_string = "2.5"> () }, else_branch = h () => (string[] v) { v = Constant <value_strings = ["1", "3"]> () }>
        f = Cast <to = 1> (r) y = ReduceSum <keepdims = 0> (f) }""",
}
BOUND = {
    "output": "{ y = " + IF + " }",
    "low_rank": "{ r = " + IF + " y = Neg (r) }",
    "with_a_vector": "{ r = " + IF + " two = Constant <value = float {2.0}> () y = Add (two, r) }",
    "two_conditions": "{ r = " + IF + " q = " + IF.replace("(c)", "(k)") + " a = Add (r, q) n = Neg (a) y = Shape (n) }",
    "carried": "{ r = " + IF + " n = Constant <value = int64 {2}> () y = Loop (n, c, r) <body = l (int64 i, bool m, float[] a) => (bool o, float[] b) { o = Identity (m) b = Neg (a) }> }",
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


@pytest.mark.parametrize("engine", ["evaluate", "bundle"])
@pytest.mark.parametrize("name", FORMS)
def test_branches_of_different_rank_that_others_use(optc, tmp_path, name, engine):
    outputs = ["y", "z"] if name == "two_results" else ["y"]
    declared = "float[1,p] y" if name == "absent_outputs" else "float y" if name in ("sum", "shape", "inner", "strings") else "float[] y"
    model = write(tmp_path / "m.onnx", FORMS[name], "float[2,3,3] x, float[3] w, bool c, bool k",
                  ", ".join([{"two_results": "float[3] y, float z", "flat": "float[p] y", "gather": "float[p] y", "absent_outputs": "float[p] y"}.get(name, declared)]))
    proto = onnx.load(model)
    for info in proto.graph.output:
        if name in ("sum_of_chain", "rank", "concat", "copied_dim"):
            info.type.tensor_type.ClearField("shape")
    onnx.save(proto, model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options)
    random = np.random.default_rng(3)
    x, w = random.standard_normal((2, 3, 3)).astype(np.float32), random.standard_normal(3).astype(np.float32)
    for c in (False, True):
        feeds = {"x": x, "w": w, "c": np.array(c), "k": np.array(True)}
        done = run(optc, model, feeds, tmp_path, f"--engine={engine}")
        try:
            wanted = session.run(outputs, feeds)
        except Exception:
            assert c and name in ("concat", "copied_dim", "gather", "absent_outputs")
            assert done.returncode == 1, (done.stdout, done.stderr)
            continue
        assert done.returncode == 0, done.stderr
        for i, want in enumerate(wanted):
            assert output(tmp_path, i).shape == want.shape
            np.testing.assert_allclose(output(tmp_path, i), want, rtol=1e-6)


@pytest.mark.parametrize("name", BOUND)
def test_branches_of_different_rank_that_decide_a_rank_are_refused(optc, tmp_path, name):
    model = write(tmp_path / "m.onnx", BOUND[name], "float[2,3,3] x, float[3] w, bool c, bool k", "int64[] y" if name == "two_conditions" else "float[] y")
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


# Of pads and repeats that a Concat makes, those that are known leave their dims known, whatever the run finds of the others.
@pytest.mark.parametrize("operator", ["constant", "edge", "reflect", "wrap", "axes", "Tile"])
def test_pads_and_repeats_are_known_in_part(optc, tmp_path, operator):
    if operator == "Tile":
        body, known = "{ two = Constant <value_ints = [2]> () list = Concat <axis = 0> (two, n) y = Tile (x, list) }", "f32[2*a,"
    elif operator == "axes":
        body, known = """{ one = Constant <value_ints = [1]> () list = Concat <axis = 0> (n, one) fill = Constant <value = float {7.0}> ()
          y = Pad (x, list, fill, one) }""", "f32[a,"
    else:
        body, known = """{ begin = Constant <value_ints = [1]> () end = Constant <value_ints = [0, 2]> () list = Concat <axis = 0> (begin, n, end)
          y = Pad <mode = "%s"> (x, list) }""" % operator, "f32[a + 1,"
    model = write(tmp_path / "m.onnx", body, "float[a,4] x, int64[1] n", "float[c,d] y")
    graph = subprocess.run([optc, "inspect", model, "--ir=graph"], capture_output=True, text=True).stdout
    assert f"y: {known}" in graph, graph
    session = onnxruntime.InferenceSession(model)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for engine in ("evaluate", "bundle"):
        for n in (2, 1, 0, -1)[: 3 if operator == "Tile" else 4]:
            feeds = {"x": x, "n": np.array([n])}
            done = run(optc, model, feeds, tmp_path, f"--engine={engine}")
            assert done.returncode == 0, done.stderr
            np.testing.assert_array_equal(output(tmp_path), session.run(None, feeds)[0], strict=True)
        assert run(optc, model, {"x": x, "n": np.array([-9])}, tmp_path, f"--engine={engine}").returncode == 1


# How many numbers an index of GatherND has follows from the declared rank of the result; another number ends in an error.
@pytest.mark.parametrize("engine", ["evaluate", "bundle"])
def test_the_depth_of_gathered_indices_follows_from_the_declared_rank(optc, tmp_path, engine):
    model = write(tmp_path / "m.onnx", "{ y = GatherND <batch_dims = 1> (x, at) }", "float[a,b,c] x, int64[d,e] at", "float[f,g] y")
    session = onnxruntime.InferenceSession(model)
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for at in ([[1], [2]], np.zeros((2, 1))):
        feeds = {"x": x, "at": np.array(at, np.int64)}
        done = run(optc, model, feeds, tmp_path, f"--engine={engine}")
        assert done.returncode == 0, done.stderr
        np.testing.assert_array_equal(output(tmp_path), session.run(None, feeds)[0])
    done = run(optc, model, {"x": x, "at": np.array([[0, 1], [2, 3]])}, tmp_path, f"--engine={engine}")
    assert done.returncode == 1 and "GatherND" in done.stderr, done.stderr


# Or from the rank of the data, where that leaves one number.
@pytest.mark.parametrize("engine", ["evaluate", "bundle"])
def test_the_depth_of_gathered_indices_follows_from_the_rank_of_the_data(optc, tmp_path, engine):
    model = write(tmp_path / "m.onnx", "{ y = GatherND (x, at) r = GatherND <batch_dims = 1> (w, places) z = Neg (r) }",
                  "float[a] x, int64[d,e] at, float[b,c] w, int64[b,k,e] places", "float[] y, float[] z")
    proto = onnx.load(model)
    for info in proto.graph.output:
        info.type.tensor_type.ClearField("shape")
    onnx.save(proto, model)
    feeds = {"x": np.arange(5, dtype=np.float32), "at": np.array([[4], [-5], [2]]), "w": np.arange(6, dtype=np.float32).reshape(2, 3),
             "places": np.array([[[2], [0]], [[-1], [1]]])}
    done = run(optc, model, feeds, tmp_path, f"--engine={engine}")
    assert done.returncode == 0, done.stderr
    for i, want in enumerate(onnxruntime.InferenceSession(model).run(None, feeds)):
        np.testing.assert_array_equal(output(tmp_path, i), want, strict=True)
    done = run(optc, model, {**feeds, "at": np.zeros((3, 2), np.int64), "places": np.zeros((2, 1, 2), np.int64)}, tmp_path, f"--engine={engine}")
    assert done.returncode == 1 and "GatherND" in done.stderr and "match" in done.stderr, done.stderr
    model = write(tmp_path / "open.onnx", "{ y = GatherND (x, at) }", "float[a,b] x, int64[d,e] at", "float[] y")
    proto = onnx.load(model)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(proto, model)
    done = subprocess.run([optc, model, "-o", tmp_path / "b"], capture_output=True, text=True)
    assert done.returncode == 4 and "the last dimension of indices, e," in " ".join(done.stderr.split()) and "--dim" in done.stderr, done.stderr


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
@pytest.mark.parametrize("number", ["int64", "int64[1]", "int64[k]"])
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
    rank = "[3]" if number == "int64" else "[3,1]"
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


# A carried value that the body does not read starts as anything; that a loop without iterations would give it is an error.
@pytest.mark.parametrize("engine", ["evaluate", "bundle"])
@pytest.mark.parametrize("used", [True, False])
def test_a_carried_value_that_is_not_read_may_start_with_another_rank(optc, tmp_path, used, engine):
    body = """{ none = Constant <value = float {1.5}> ()
      last, other = Loop (n, c, x, none) <body = b (int64 i, bool m, float[] a, float[] u) => (bool o, float[] next, float[] w) {
        o = Identity (m) next = Neg (a) one = Constant <value_ints = [1]> () w = Unsqueeze (next, one) }> y = %s }""" % ("Mul (other, other)" if used else "Identity (last)")
    model = write(tmp_path / "m.onnx", body, "float[3] x, int64 n, bool c", "float[a,b] y" if used else "float[a] y")
    session = onnxruntime.InferenceSession(model)
    for n, c in ((3, True), (1, True), (0, True), (2, False)):
        feeds = {"x": np.array([1, -2, 3], np.float32), "n": np.array(n), "c": np.array(c)}
        done = run(optc, model, feeds, tmp_path, f"--engine={engine}")
        if used and (n == 0 or not c):
            assert done.returncode == 1 and "the loop does not run" in " ".join(done.stderr.split()), done.stderr
            continue
        assert done.returncode == 0, done.stderr
        np.testing.assert_array_equal(output(tmp_path), session.run(None, feeds)[0])


# One row by a number that only the run knows, as a list that was cut out itself: the axes tell how many are cut.
@pytest.mark.parametrize("engine", ["evaluate", "bundle"])
def test_slices_by_lists_whose_length_the_axes_tell(optc, tmp_path, engine):
    body = """{ axis = Constant <value = int64[1] {0}> () one = Constant <value = int64 {1}> () next = Add (k, one)
      from = Slice (rows, k, next, axis) to = Add (from, one) y = Slice (x, from, to, axis) }"""
    model = write(tmp_path / "m.onnx", body, "float[4,3] x, int64[5] rows, int64[1] k", "float[n,3] y")
    feeds = {"x": np.arange(12, dtype=np.float32).reshape(4, 3), "rows": np.array([3, 0, 2, 1, 1]), "k": np.array([2])}
    done = run(optc, model, feeds, tmp_path, f"--engine={engine}")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(output(tmp_path), onnxruntime.InferenceSession(model).run(None, feeds)[0], strict=True)
    done = run(optc, model, {**feeds, "k": np.array([5])}, tmp_path, f"--engine={engine}")  # none is cut out
    assert done.returncode == 1 and "Slice_5" in done.stderr and "match" in done.stderr, done.stderr


# Nothing tells the length of any of the lists: every dim of the result is found by the run.
@pytest.mark.parametrize("engine, inside", [("evaluate", False), ("evaluate", True), ("bundle", True)])
def test_slices_by_lists_of_any_length(optc, tmp_path, engine, inside):
    cut = "y = Slice (x, starts, ends, axes, steps)"
    body = "{ %s }" % cut
    if inside:
        body = """{ n = Constant <value = int64 {2}> () one = Constant <value = bool {1}> () zero = Constant <value = float {0}> ()
          total = Loop (n, one, zero) <body = b (int64 i, bool m, float s) => (bool o, float t) {
            o = Identity (m) %s sum = ReduceSum <keepdims = 0> (y) t = Add (s, sum) }> z = Identity (total) }""" % cut
    model = write(tmp_path / "m.onnx", body, "float[A,B] x, int64[k] starts, int64[l] ends, int64[m] axes, int64[n] steps", "float z" if inside else "float[p,q] y")
    x = np.arange(12, dtype=np.float32).reshape(4, 3)

    def feeds(*lists):
        return {"x": x, **dict(zip(("starts", "ends", "axes", "steps"), (np.array(v, np.int64) for v in lists)))}

    for lists in (([1], [3], [0], [1]), ([0, -1], [9, -9], [1, 0], [2, -1]), ([], [], [], [])):
        done = run(optc, model, feeds(*lists), tmp_path, f"--engine={engine}")
        assert done.returncode == 0, done.stderr
        np.testing.assert_array_equal(output(tmp_path), onnxruntime.InferenceSession(model).run(None, feeds(*lists))[0], strict=True)
    for lists, text in ((([1], [3], [0], [1, 1]), "differ in length"), (([1, 1], [3, 3], [0, -2], [1, 1]), "listed twice"), (([1] * 3, [2] * 3, [0, 1, 2], [1] * 3), "out of range")):
        done = run(optc, model, feeds(*lists), tmp_path, f"--engine={engine}")
        assert done.returncode == 1 and text in done.stderr, done.stderr


# A list has an entry for each of something that is known, but its own length only the run knows.
@pytest.mark.parametrize("engine, node, good", [
    ("bundle", "y, rest = Split <axis = 0> (x, list)", [1, 3]),
    ("evaluate", "y = CenterCropPad (x, list)", [2, 5]),
    ("evaluate", "y = Slice (x, list, two)", [1, 1]),
])
def test_a_list_as_long_as_it_must_be(optc, tmp_path, engine, node, good):
    body = "{ two = Constant <value = int64[2] {3, 2}> () %s }" % node
    model = write(tmp_path / "m.onnx", body, "float[4,3] x, int64[n] list", "float[a,b] y")
    feeds = {"x": np.arange(12, dtype=np.float32).reshape(4, 3), "list": np.array(good)}
    done = run(optc, model, feeds, tmp_path, f"--engine={engine}")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(output(tmp_path), onnxruntime.InferenceSession(model).run(None, feeds)[0], strict=True)
    for wrong in (good[:1], [*good, 1]):
        done = run(optc, model, {**feeds, "list": np.array(wrong)}, tmp_path, f"--engine={engine}")
        assert done.returncode in (1, 2) and ("match" in done.stderr or "must be" in done.stderr or "takes" in done.stderr), done.stderr
