"""optc convert: opsets, parts and pairs of models, names, safetensors. What is written is checked by ONNX's checker and run by ONNX Runtime."""

import json
import struct
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_convert import canonical, convert, network, plain, same

F = TensorProto.FLOAT


def value(name, shape, kind=F):
    return helper.make_tensor_value_info(name, kind, shape)


def save(path, nodes, inputs, outputs, weights=(), opset=17, **more):
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(np.asarray(v), k) for k, v in dict(weights).items()], **more)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
    return path


def run(path, **inputs):
    onnx.checker.check_model(str(path), full_check=True)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, inputs)


def agree(a, b, **inputs):
    got, want = run(a, **inputs), run(b, **inputs)
    assert len(got) == len(want)
    for x, y in zip(got, want):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x.astype(np.float64), y.astype(np.float64), rtol=1e-5, atol=1e-6)


X = np.random.default_rng(3).standard_normal((2, 4, 6)).astype(np.float32)


@pytest.fixture
def chain(tmp_path):
    """Operators whose definition changed: axes that became inputs, attributes that came and went."""
    then = helper.make_graph([helper.make_node("ReduceSum", ["u", "axes"], ["t"], keepdims=1, name="inner", doc_string="inside")], "then", [], [value("t", None)], value_info=[])
    orelse = helper.make_graph([helper.make_node("Neg", ["u"], ["e"])], "else", [], [value("e", None)])
    nodes = [
        helper.make_node("Unsqueeze", ["x", "axes"], ["u"], name="up", doc_string="of the node"),
        helper.make_node("If", ["flag"], ["i"], then_branch=then, else_branch=orelse),
        helper.make_node("Squeeze", ["i", "axes"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=1),
        helper.make_node("Split", ["p", "halves"], ["a", "b"], axis=1),
        helper.make_node("ReduceMean", ["a"], ["m"], axes=[1, 2]),
        helper.make_node("HardSwish", ["b"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"], name="kept", doc_string="kept"),
        helper.make_node("Pad", ["r", "pads"], ["y"]),
    ]
    weights = {"axes": np.array([1]), "halves": np.array([1, 3]), "pads": np.array([0, 0, 1, 0, 0, 1])}
    return save(tmp_path / "chain.onnx", nodes, [value("x", ["n", 4, 6]), value("flag", [], TensorProto.BOOL)], [value("m", ["n", 1, 1]), value("y", ["n", 3, 8])], weights)


@pytest.mark.parametrize("opset", range(7, 27))
def test_every_opset_computes_the_same(optc, chain, tmp_path, opset):
    done = subprocess.run([optc, "convert", chain, "-o", tmp_path / "to.onnx", f"--opset={opset}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    model = onnx.load(tmp_path / "to.onnx")
    assert model.opset_import[0].version == opset
    for flag in (True, False):
        agree(tmp_path / "to.onnx", chain, x=X, flag=np.array(flag))
    # What did not change stays as it was, and what did keeps its name and doc string.
    relu = next(n for n in model.graph.node if n.op_type == "Relu")
    assert (relu.name, relu.doc_string, list(relu.input), list(relu.output)) == ("kept", "kept", ["h"], ["r"])
    up = next(n for n in model.graph.node if n.op_type == "Unsqueeze")
    assert (up.name, up.doc_string) == ("up", "of the node") and ("axes" in [a.name for a in up.attribute]) == (opset < 13)
    assert ("axes" in [t.name for t in model.graph.initializer]) == (opset >= 13)
    assert not any(p.key.startswith("optc.") for n in model.graph.node for p in n.metadata_props)
    convert(optc, tmp_path / "to.onnx", tmp_path / "back.onnx", "--opset=17")
    agree(tmp_path / "back.onnx", chain, x=X, flag=np.array(True))


def test_the_same_opset_changes_nothing(optc, chain, tmp_path):
    convert(optc, chain, tmp_path / "same.onnx", "--opset=17")
    same(chain, tmp_path / "same.onnx")


def test_what_an_opset_cannot_say_is_refused(optc, tmp_path):
    model = save(tmp_path / "m.onnx", [helper.make_node("GridSample", ["x", "g"], ["y"], name="sample")], [value("x", [1, 1, 4, 4]), value("g", [1, 2, 2, 2])], [value("y", [1, 1, 2, 2])])
    done = convert(optc, model, tmp_path / "to.onnx", "--opset=11", code=4)
    assert "sample" in done.stderr and "GridSample" in done.stderr
    for opset in (0, 6, 29, -1):
        if opset:
            convert(optc, model, tmp_path / "to.onnx", f"--opset={opset}", code=2)
    assert not (tmp_path / "to.onnx").exists()
    half = save(tmp_path / "half.onnx", [helper.make_node("Relu", ["x"], ["y"])], [value("x", [2], TensorProto.BFLOAT16)], [value("y", [2], TensorProto.BFLOAT16)])
    done = convert(optc, half, tmp_path / "to.onnx", "--opset=12", code=4)
    assert "opset 12 has no Relu of tensor(bfloat16)" in done.stderr
    # The body that Attention has before it is an operator is written for queries and values of one type.
    shapes = [value(name, [1, 2, 3, 4], kind) for name, kind in (("q", TensorProto.FLOAT16), ("k", TensorProto.FLOAT16), ("v", TensorProto.FLOAT))]
    mixed = save(tmp_path / "mixed.onnx", [helper.make_node("Attention", ["q", "k", "v"], ["y"])], shapes, [value("y", [1, 2, 3, 4], TensorProto.FLOAT16)], opset=24)
    done = convert(optc, mixed, tmp_path / "to.onnx", "--opset=22", code=4)
    assert "cannot be said in opset 22" in done.stderr and not (tmp_path / "to.onnx").exists()


@pytest.mark.parametrize("mode, since", [("bilinear", "linear"), ("bicubic", "cubic"), ("nearest", "nearest"), (None, None)])
def test_modes_of_grid_sample_have_their_names(optc, tmp_path, mode, since):
    """They are other ones from opset 20 on; ONNX's checker does not look at them, ONNX Runtime does."""
    def sampler(opset, mode):
        node = helper.make_node("GridSample", ["x", "g"], ["y"], **({"mode": mode} if mode else {}))
        return save(tmp_path / f"{opset}.onnx", [node], [value("x", [1, 2, 4, 5]), value("g", [1, 3, 2, 2])], [value("y", [1, 2, 3, 2])], opset=opset)
    feeds = {"x": X.reshape(-1)[:40].reshape(1, 2, 4, 5), "g": X.reshape(-1)[:12].reshape(1, 3, 2, 2)}
    for model, to, word in ((sampler(16, mode), 20, since), (sampler(20, since), 16, mode), (sampler(16, mode), 22, since), (sampler(22, since), 17, mode)):
        convert(optc, model, tmp_path / "to.onnx", f"--opset={to}")
        assert {a.s.decode() for a in onnx.load(tmp_path / "to.onnx").graph.node[0].attribute} <= {word}  # a default need not stand there
        agree(tmp_path / "to.onnx", model, **feeds)
        subprocess.run([optc, "opt", model, "-o", tmp_path / "opt.onnx", "-q", f"--opset={to}"], check=True)
        agree(tmp_path / "opt.onnx", model, **feeds)


NOT_BEFORE = {  # node, what it reads, its opset; the first opset that has no word for it, and the last one before
    "rounding down in a smaller picture": ("Resize", dict(mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"), {"s": np.float32([1, 0.6, 0.7])}, 13, 10, 11),
    "symmetric": ("Resize", dict(mode="linear", coordinate_transformation_mode="half_pixel_symmetric"), {"s": np.float32([1, 1.3, 0.7])}, 19, 18, None),
    "scales of columns": ("QuantizeLinear", {}, {"s": np.float32([1, 2, 3, 4]), "z": np.uint8([1, 2, 3, 4])}, 13, 12, None),
    "maximum that broadcasts": ("Max", {}, {"c": np.float32([0] * 6)}, 13, 7, 8),
}


@pytest.mark.parametrize("what", NOT_BEFORE)
def test_what_only_a_later_opset_means_is_refused(optc, tmp_path, what):
    """The schema of the older opset takes these nodes, and means something else or nothing by them."""
    op, attributes, weights, opset, refused, last = NOT_BEFORE[what]
    names = ["x", "", "s"] if op == "Resize" else ["x", *weights]
    model = save(tmp_path / "m.onnx", [helper.make_node(op, names, ["y"], name="the_node", **attributes)], [value("x", [2, 4, 6])], [value("y", [None] * 3, TensorProto.UINT8 if op == "QuantizeLinear" else F)], weights, opset=opset)
    done = convert(optc, model, tmp_path / "to.onnx", f"--opset={refused}", code=4)
    assert "the_node" in done.stderr and "opsets below" in done.stderr and not (tmp_path / "to.onnx").exists()
    if last:
        convert(optc, model, tmp_path / "to.onnx", f"--opset={last}")
        agree(tmp_path / "to.onnx", model, x=X)


@pytest.mark.parametrize("mode, scales", [(dict(mode="nearest", nearest_mode="floor"), [1, 1.6, 2]), (dict(mode="nearest", nearest_mode="ceil"), [1, 0.6, 0.7]), (dict(mode="linear"), [1, 1.6, 2])])
def test_a_resize_that_opset_10_says_too(optc, tmp_path, mode, scales):
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], coordinate_transformation_mode="asymmetric", **mode)
    model = save(tmp_path / "m.onnx", [node], [value("x", [2, 4, 6])], [value("y", [None] * 3)], {"s": np.float32(scales)}, opset=13)
    convert(optc, model, tmp_path / "to.onnx", "--opset=10")
    agree(tmp_path / "to.onnx", model, x=X)


@pytest.mark.parametrize("opset", [10, 11, 13, 18, 22])
@pytest.mark.parametrize("op", ["nearest", "linear", "run time", "Scatter"])
def test_withdrawn_operators_have_successors(optc, tmp_path, op, opset):
    """Upsample went with opset 10 (Resize), Scatter with 11 (ScatterElements)."""
    x, y = value("x", [1, 1, 4, 6]), value("y", [None] * 4)
    feeds = {"x": X[:1, None]}
    if op == "Scatter":
        model = save(tmp_path / "m.onnx", [helper.make_node("Scatter", ["x", "i", "u"], ["y"], axis=3)], [x], [y], {"i": np.int64([[[[4, 1]]]]), "u": np.float32([[[[7, 8]]]])}, opset=9)
    elif op == "run time":
        feeds["s"] = np.float32([1, 1, 1.6, 2.7])
        model = save(tmp_path / "m.onnx", [helper.make_node("Upsample", ["x", "s"], ["y"], mode="nearest")], [x, value("s", [4])], [y], opset=9)
    else:
        model = save(tmp_path / "m.onnx", [helper.make_node("Upsample", ["x", "s"], ["y"], mode=op)], [x], [y], {"s": np.float32([1, 1, 1.6, 2.7])}, opset=9)
    convert(optc, model, tmp_path / "to.onnx", f"--opset={opset}")
    agree(tmp_path / "to.onnx", model, **feeds)
    subprocess.run([optc, "opt", model, "-o", tmp_path / "opt.onnx", "-q", f"--opset={opset}"], check=True)
    agree(tmp_path / "opt.onnx", model, **feeds)


@pytest.mark.parametrize("opset", [9, 10])
def test_scatter_elements_has_an_older_name(optc, tmp_path, opset):
    def scatter(**attributes):
        node = helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], name="the_node", axis=2, **attributes)
        return save(tmp_path / "m.onnx", [node], [value("x", [2, 4, 6]), value("u", [2, 1, 3])], [value("y", [2, 4, 6])], {"i": np.int64([[[4, -6, 2]], [[-1, 0, 3]]])}, opset=18)
    model = scatter()
    for command in ([optc, "convert", model, "-o", tmp_path / "to.onnx"], [optc, "opt", model, "-q", "-o", tmp_path / "to.onnx"]):
        subprocess.run([*command, f"--opset={opset}"], check=True)
        assert [n.op_type for n in onnx.load(tmp_path / "to.onnx").graph.node] == ["Scatter"]
        agree(tmp_path / "to.onnx", model, x=X, u=X[:, :1, :3])
    assert "the_node" in convert(optc, scatter(reduction="add"), tmp_path / "no.onnx", f"--opset={opset}", code=4).stderr


@pytest.mark.parametrize("opset", [7, 8, 9])
def test_constants_of_integers_before_opset_9(optc, tmp_path, opset):
    """Constant was of floats alone: others become initializers, of a branch too, where they may be what it gives."""
    def constant(name, tensor):
        return helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(tensor))
    then = helper.make_graph([constant("t", np.int64([5, 6]))], "then", [], [value("t", [2], TensorProto.INT64)])
    other = helper.make_graph([constant("seven", np.int64([7, 8])), helper.make_node("Sub", ["first", "seven"], ["e"])], "else", [], [value("e", [2], TensorProto.INT64)])
    nodes = [
        constant("shape", np.int64([3, -1])), constant("half", np.float32(0.5)), constant("first", np.int64([1, 2])), constant("word", np.array(["a", "b"], dtype=object)),
        helper.make_node("Reshape", ["x", "shape"], ["r"]), helper.make_node("Mul", ["r", "half"], ["y"]), helper.make_node("If", ["flag"], ["i"], then_branch=then, else_branch=other),
    ]
    outputs = [value("y", [3, 16]), value("i", [2], TensorProto.INT64), value("first", [2], TensorProto.INT64)]
    model = save(tmp_path / "m.onnx", nodes, [value("x", [2, 4, 6]), value("flag", [], TensorProto.BOOL)], outputs, opset=17)
    convert(optc, model, tmp_path / "to.onnx", f"--opset={opset}")
    assert sum(n.op_type == "Constant" for n in onnx.load(tmp_path / "to.onnx").graph.node) == (4 if opset == 9 else 1)
    for flag in (True, False):
        agree(tmp_path / "to.onnx", model, x=X, flag=np.array(flag))


def chain_of_functions(depth, calls, last):
    """f<depth> calls f<depth - 1> that many times, ..., down to f0, whose node is `last`."""
    text = f'<ir_version: 10, opset_import: ["" : 21, "l" : 1]> g (float[N,3] x) => (float[N,3] y) {{ y = l.f{depth} (x) }}\n'
    for k in range(depth, 0, -1):
        values = ["a", *(f"v{i}" for i in range(1, calls)), "b"]
        bodies = " ".join(f"{to} = l.f{k - 1} ({of})" for of, to in zip(values, values[1:]))
        text += f'<domain: "l", opset_import: ["" : 21, "l" : 1]> f{k} (a) => (b) {{ {bodies} }}\n'
    return text + f'<domain: "l", opset_import: ["" : 21, "l" : 1]> f0 (a) => (b) {{ b = {last} (a) }}\n'


@pytest.mark.parametrize("depth,calls,last,words", [
    (30, 2, "Clip", "nodes once its functions are inlined"), (3, 1, "l.f3", "Cycle detected"), (1000, 1, "Clip", "depth exceeds"),
])
def test_functions_that_cannot_be_inlined(optc, tmp_path, depth, calls, last, words):
    (tmp_path / "m.onnxtxt").write_text(chain_of_functions(depth, calls, last))
    for change in ("--float=f16", "--opset=9") if last == "Clip" else ("--float=f16",):
        done = subprocess.run([optc, "convert", tmp_path / "m.onnxtxt", "-o", tmp_path / "to.onnx", change], capture_output=True, text=True, timeout=60)
        assert done.returncode in (3, 4) and words in done.stderr, done.stderr
    convert(optc, tmp_path / "m.onnxtxt", tmp_path / "to.onnx", "--extract=..y")


def test_functions_that_nest_without_end_are_refused(optc, tmp_path):
    (tmp_path / "m.onnxtxt").write_text(chain_of_functions(200_000, 1, "Neg"))
    done = subprocess.run([optc, "inspect", tmp_path / "m.onnxtxt"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 4 and "more than 64 deep" in done.stderr


def test_rounding_of_opset_10_alone_is_refused(optc, tmp_path):
    node = helper.make_node("Resize", ["x", "s"], ["y"], mode="nearest", name="the_node")
    model = save(tmp_path / "m.onnx", [node], [value("x", [2, 4, 6])], [value("y", [None] * 3)], {"s": np.float32([1, 0.6, 1.7])}, opset=10)
    assert "rounds down along an axis that grows" in convert(optc, model, tmp_path / "to.onnx", "--opset=13", code=4).stderr
    convert(optc, model, tmp_path / "to.onnx", "--opset=10")
    agree(tmp_path / "to.onnx", model, x=X)


def test_functions_keep_or_give_their_bodies(optc, tmp_path):
    for op, kept in (("Add", True), ("Squeeze", False)):
        body = [helper.make_node("Constant", [], ["k"], value_ints=[0]), helper.make_node(op, ["a", "a"] if kept else ["a", "k"], ["b"])]
        function = helper.make_function("my.ops", "F", ["a"], ["b"], body[1:] if kept else body, [helper.make_opsetid("", 17)])
        graph = helper.make_graph([helper.make_node("F", ["x"], ["y"], domain="my.ops")], "g", [value("x", [1, 3])], [value("y", [1, 3] if kept else [3])])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("my.ops", 1)], functions=[function], ir_version=8)
        onnx.save(model, tmp_path / "f.onnx")
        done = convert(optc, tmp_path / "f.onnx", tmp_path / "to.onnx", "--opset=11")
        assert (len(onnx.load(tmp_path / "to.onnx").functions) == 1) == kept and ("inlined" in done.stderr) != kept
        agree(tmp_path / "to.onnx", tmp_path / "f.onnx", x=X[:1, 0, :3])


def test_shared_cases_at_other_opsets(optc, shared, tmp_path):
    """Up to the newest and down to 13, and back, as ONNX Runtime computes them; what is refused says so."""
    ran = refused = 0
    for i, folder in enumerate(sorted((shared / "cases").glob("*/test_data_set_0"))):
        if i % 4:
            continue
        model = folder.parent / "model.onnx"
        proto = onnx.load(model)
        own = next(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx"))
        try:
            onnx.checker.check_model(proto, full_check=True)
        except Exception:  # an output without a shape
            continue
        feeds = {}
        for n, info in enumerate(proto.graph.input):
            tensor = TensorProto()
            try:
                tensor.ParseFromString((folder / f"input_{n}.pb").read_bytes())
                feeds[info.name] = numpy_helper.to_array(tensor)
            except Exception:  # a sequence, or a type that numpy lacks
                feeds = None
                break
        try:
            want = run(model, **feeds) if feeds is not None else None
        except Exception:
            want = None
        for opset in (13, 24, 28):
            done = subprocess.run([optc, "convert", model, "-o", tmp_path / "to.onnx", f"--opset={opset}"], capture_output=True, text=True)
            assert done.returncode in (0, 4), (model, opset, done.stderr)
            if done.returncode:
                assert done.stderr.count("error[unsupported]") == 1, done.stderr
                refused += 1
                continue
            onnx.checker.check_model(str(tmp_path / "to.onnx"), full_check=True)
            convert(optc, tmp_path / "to.onnx", tmp_path / "back.onnx", f"--opset={own}")
            if want is None or any(w.dtype == object for w in want):
                continue
            for path in [tmp_path / "back.onnx"] + [tmp_path / "to.onnx"] * (opset <= 24):
                try:
                    got = run(path, **feeds)
                except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
                    continue  # ONNX Runtime has no kernel of that version
                for x, y in zip(got, want):
                    assert x.dtype == y.dtype and x.shape == y.shape, (model, opset)
                    np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5, err_msg=f"{model} {opset}")
            ran += 1
    assert ran > 100 and refused < ran / 3


def two_layers(tmp_path, name="m.onnx"):
    rng = np.random.default_rng(1)
    weights = {k: rng.standard_normal((6, 6)).astype(np.float32) for k in ("w1", "w2")} | {"bias": np.ones(6, np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["h"], name="first"), helper.make_node("Add", ["h", "bias"], ["hb"], name="add"),
             helper.make_node("Relu", ["hb"], ["r"], name="relu"), helper.make_node("MatMul", ["r", "w2"], ["y"], name="second"), helper.make_node("Neg", ["other"], ["z"], name="neg")]
    return save(tmp_path / name, nodes, [value("x", ["n", 6]), value("other", ["n"])], [value("y", ["n", 6]), value("z", ["n"])], weights)


def test_a_part_of_a_model(optc, tmp_path):
    model = two_layers(tmp_path)
    convert(optc, model, tmp_path / "a.onnx", "--extract=..r")
    convert(optc, model, tmp_path / "b.onnx", "--extract=r..y")
    a, b = onnx.load(tmp_path / "a.onnx"), onnx.load(tmp_path / "b.onnx")
    assert [n.name for n in a.graph.node] == ["first", "add", "relu"] and {t.name for t in a.graph.initializer} == {"w1", "bias"}
    assert [i.name for i in a.graph.input] == ["x"] and [n.name for n in b.graph.node] == ["second"]
    (r,) = run(tmp_path / "a.onnx", x=X[0])
    (y,) = run(tmp_path / "b.onnx", r=r)
    np.testing.assert_array_equal(y, run(model, x=X[0], other=np.ones(2, np.float32))[0])
    # a weight becomes an input
    convert(optc, model, tmp_path / "w.onnx", "--extract=hb,w2..y,r")
    assert [i.name for i in onnx.load(tmp_path / "w.onnx").graph.input] == ["hb", "w2"]
    assert len(run(tmp_path / "w.onnx", hb=X[0], w2=np.eye(6, dtype=np.float32))) == 2
    for wrong, words in (("r..", "input 'other'"), ("x,nothing..y", "no value 'nothing'"), ("x,other..y", "do not depend on 'other'"), ("x..y,y", "twice"), ("x", "expected"), ("h..z,y", "'other'")):
        assert words in convert(optc, model, tmp_path / "no.onnx", f"--extract={wrong}", code=2).stderr
    assert not (tmp_path / "no.onnx").exists()


def test_a_part_with_a_subgraph_takes_what_the_subgraph_reads(optc, tmp_path):
    model = network(tmp_path / "net.onnx")
    convert(optc, model, tmp_path / "part.onnx", "--extract=h,flag..i")
    part = onnx.load(tmp_path / "part.onnx")
    assert [n.op_type for n in part.graph.node] == ["If"] and not part.graph.initializer


def test_names(optc, tmp_path):
    model = two_layers(tmp_path)
    convert(optc, model, tmp_path / "r.onnx", "--rename=x=image", "--rename=w1=layer.weight", "--rename=dim:n=batch", "--rename=node:relu=act", "--rename=y=logits")
    got = onnx.load(tmp_path / "r.onnx")
    assert [i.name for i in got.graph.input] == ["image", "other"] and got.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert "act" in [n.name for n in got.graph.node] and "layer.weight" in [t.name for t in got.graph.initializer]
    np.testing.assert_array_equal(run(tmp_path / "r.onnx", image=X[0], other=X[0, 0])[0], run(model, x=X[0], other=X[0, 0])[0])
    for wrong in ("x=y", "nothing=a", "dim:m=a", "node:m=a", "node:relu=add", "x=", "x"):
        convert(optc, model, tmp_path / "no.onnx", f"--rename={wrong}", code=2)
    net = network(tmp_path / "net.onnx")
    convert(optc, net, tmp_path / "net2.onnx", "--rename=h=hidden")  # read inside subgraphs
    then = next(a.g for a in onnx.load(tmp_path / "net2.onnx").graph.node[1].attribute if a.name == "then_branch")
    assert list(then.node[0].input) == ["hidden", "hidden"]


def test_two_models_become_one(optc, tmp_path):
    first = two_layers(tmp_path)
    rng = np.random.default_rng(2)
    second = save(tmp_path / "s.onnx", [helper.make_node("MatMul", ["in", "w1"], ["h"], name="first"), helper.make_node("Add", ["h", "shift"], ["out"], name="add")],
                  [value("in", ["m", 6]), value("shift", [3])], [value("out", ["m", 3])], {"w1": rng.standard_normal((6, 3)).astype(np.float32)})
    convert(optc, first, tmp_path / "both.onnx", f"--merge={second}", "--connect=y=in")
    both = onnx.load(tmp_path / "both.onnx")
    assert [i.name for i in both.graph.input] == ["x", "other", "shift"] and [o.name for o in both.graph.output] == ["z", "out"]
    assert len({n.name for n in both.graph.node}) == 7
    shift = np.array([1, 2, 3], np.float32)
    y, z = run(first, x=X[0], other=X[0, 0])
    got = run(tmp_path / "both.onnx", x=X[0], other=X[0, 0], shift=shift)
    np.testing.assert_array_equal(got[0], z)
    np.testing.assert_allclose(got[1], run(second, **{"in": y, "shift": shift})[0], rtol=1e-6)
    # of two models with the same names the second gets a prefix; the connected value need not be an output
    done = convert(optc, first, tmp_path / "no.onnx", f"--merge={first}", "--connect=r=x", code=2)
    assert "--merge-prefix" in done.stderr
    convert(optc, first, tmp_path / "twice.onnx", f"--merge={first}", "--connect=r=x", "--merge-prefix=b.")
    twice = onnx.load(tmp_path / "twice.onnx")
    assert [o.name for o in twice.graph.output] == ["y", "z", "b.y", "b.z"] and [i.name for i in twice.graph.input] == ["x", "other", "b.other"]
    r = np.maximum(run(first, x=X[0], other=X[0, 0])[0] * 0, 0)  # its shape
    convert(optc, first, tmp_path / "r.onnx", "--extract=x..r")
    (r,) = run(tmp_path / "r.onnx", x=X[0])
    np.testing.assert_array_equal(run(tmp_path / "twice.onnx", x=X[0], other=X[0, 0], **{"b.other": X[0, 0]})[2], run(first, x=r, other=X[0, 0])[0])
    # opsets must agree
    convert(optc, second, tmp_path / "s13.onnx", "--opset=13")
    assert "--opset" in convert(optc, first, tmp_path / "no.onnx", f"--merge={tmp_path / 's13.onnx'}", "--connect=y=in", code=2).stderr
    convert(optc, first, tmp_path / "both.onnx", f"--merge={tmp_path / 's13.onnx'}", "--connect=y=in", "--opset=15")
    for connect, words in (("nothing=in", "no value"), ("y=nothing", "no input"), ("z=in", "do not fit"), ("y", "two names")):
        assert words in convert(optc, first, tmp_path / "no.onnx", f"--merge={second}", f"--connect={connect}", code=2).stderr
    assert not (tmp_path / "no.onnx").exists()


def parse(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert length % 8 == 0
    return header, data[8 + length :]


def test_safetensors_out_and_in(optc, tmp_path):
    model = network(tmp_path / "net.onnx")
    assert "strings" in convert(optc, model, tmp_path / "o.onnx", f"--weights-to={tmp_path / 'w'}", code=4).stderr
    model = two_layers(tmp_path)
    done = subprocess.run([optc, "convert", model, f"--weights-to={tmp_path / 'w.safetensors'}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    header, data = parse(tmp_path / "w.safetensors")
    proto = onnx.load(model)
    assert set(header) - {"__metadata__"} == {t.name for t in proto.graph.initializer}
    end = 0
    for tensor in proto.graph.initializer:
        entry = header[tensor.name]
        a, b = entry["data_offsets"]
        assert a == end and entry["dtype"] == "F32" and entry["shape"] == list(tensor.dims)
        np.testing.assert_array_equal(np.frombuffer(data[a:b], np.float32).reshape(tensor.dims), numpy_helper.to_array(tensor))
        end = b
    assert end == len(data)
    # other weights of the same shapes
    changed = b"".join(np.frombuffer(data, np.float32).astype(np.float32)[::-1].copy().tobytes() for _ in range(1))
    (tmp_path / "n.safetensors").write_bytes((tmp_path / "w.safetensors").read_bytes()[: -len(data)] + changed)
    convert(optc, model, tmp_path / "new.onnx", f"--weights-from={tmp_path / 'n.safetensors'}")
    for tensor in onnx.load(tmp_path / "new.onnx").graph.initializer:
        a, b = header[tensor.name]["data_offsets"]
        np.testing.assert_array_equal(numpy_helper.to_array(tensor).reshape(-1), np.frombuffer(changed[a:b], np.float32))
    convert(optc, tmp_path / "new.onnx", tmp_path / "old.onnx", f"--weights-from={tmp_path / 'w.safetensors'}")
    same(model, tmp_path / "old.onnx")


@pytest.mark.parametrize("header,words", [
    (b"", "shorter"),
    (struct.pack("<Q", 1 << 60), "does not fit"),
    (struct.pack("<Q", 4) + b"{}", "does not fit"),
    ('{"w1"', "not the JSON"),
    ("[" * 100_000, "not the JSON"),
    ('{"w1": {"dtype": "F32", "shape": [6, 6], "data_offsets": [0, 145]}}', "'w1'"),
    ('{"w1": {"dtype": "F32", "shape": [6, 6], "data_offsets": [1000000, 1000144]}}', "'w1'"),
    ('{"w1": {"dtype": "F32", "shape": [6, 6], "data_offsets": [144, 0]}}', "'w1'"),
    ('{"w1": {"dtype": "F32", "shape": [-6, -6], "data_offsets": [0, 144]}}', "'w1'"),
    ('{"w1": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 0]}}', "'w1'"),
    ('{"w1": {"dtype": "F32", "shape": [36], "data_offsets": [0, 144]}}', "[36] there"),
    ('{"w1": {"dtype": "I32", "shape": [6, 6], "data_offsets": [0, 144]}}', "int32[6,6] there"),
    ('{"w1": {"dtype": "F32", "shape": [6, 6], "data_offsets": [0, 144]}, "w1": {"dtype": "F32", "shape": [6, 6], "data_offsets": [0, 144]}}', "twice"),
    ('{"nothing": {"dtype": "F32", "shape": [6, 6], "data_offsets": [0, 144]}}', "no initializer 'nothing'"),
    ("{}", "no tensors"),
])
def test_wrong_safetensors_are_refused(optc, tmp_path, header, words):
    model = two_layers(tmp_path)
    data = header if isinstance(header, bytes) else struct.pack("<Q", len(header)) + header.encode() + bytes(144)
    (tmp_path / "w.safetensors").write_bytes(data)
    done = convert(optc, model, tmp_path / "no.onnx", f"--weights-from={tmp_path / 'w.safetensors'}", code=2)
    assert words in done.stderr and len(done.stderr) < 1000
    assert not (tmp_path / "no.onnx").exists()


def test_later_forms_in_older_opsets(optc, tmp_path):
    """Gelu, parts of shapes and shapes that hold zeros are chains before the opset that has them."""
    parts = [{"start": 1}, {"end": -1}, {"start": -2, "end": 7}, {"start": 2, "end": 1}, {"start": -9}]
    nodes = [helper.make_node("Gelu", ["x"], ["erf"], name="g"), helper.make_node("Gelu", ["x"], ["tanh"], approximate="tanh")]
    nodes += [helper.make_node("Shape", ["x"], [f"s{i}"], name=f"part{i}", **part) for i, part in enumerate(parts)]
    nodes += [helper.make_node("Reshape", ["x", "wanted"], ["r"], allowzero=1, name="run_time"), helper.make_node("Reshape", ["x", "to2"], ["c"], allowzero=1, name="constant"), helper.make_node("Reshape", ["r", "length"], ["v"], allowzero=1, name="vector")]
    outputs = [value("erf", ["n", "m", 3]), value("tanh", ["n", "m", 3])] + [value(f"s{i}", [None], TensorProto.INT64) for i in range(len(parts))] + [value("r", [None] * 4), value("c", [None, None]), value("v", [None])]
    model = save(tmp_path / "m.onnx", nodes, [value("x", ["n", "m", 3]), value("wanted", [4], TensorProto.INT64), value("length", [1], TensorProto.INT64)], outputs, {"to2": np.array([-1, 3])}, opset=20)
    draws = [((2, 4, 3), (3, 2, 2, 2)), ((2, 0, 3), (2, 0, 5, 7)), ((0, 4, 3), (4, 3, 0, 0)), ((5, 0, 3), (0, 6, 1, 0)), ((2, 4, 3), (2, 4, 3, 1))]
    for opset in (19, 14, 13, 12, 11):
        convert(optc, model, tmp_path / "to.onnx", f"--opset={opset}")
        to = onnx.load(tmp_path / "to.onnx")
        assert to.opset_import[0].version == opset and not {"Gelu"} & {n.op_type for n in to.graph.node}
        convert(optc, tmp_path / "to.onnx", tmp_path / "back.onnx", "--opset=20")
        for shape, wanted in draws:
            x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
            feeds = {"x": x, "wanted": np.array(wanted), "length": np.array([x.size])}
            agree(tmp_path / "to.onnx", model, **feeds)
            agree(tmp_path / "back.onnx", model, **feeds)
    # A shape without zeros is as it was; one whose zeros copy zeros too.
    same_zero = save(tmp_path / "z.onnx", [helper.make_node("Reshape", ["x", "s"], ["y"], allowzero=1, name="r")], [value("x", ["n", 0, 4])], [value("y", [None] * 3)], {"s": np.array([4, 0, 2])}, opset=20)
    convert(optc, same_zero, tmp_path / "z13.onnx", "--opset=13")
    assert [n.op_type for n in onnx.load(tmp_path / "z13.onnx").graph.node] == ["Reshape"]
    agree(tmp_path / "z13.onnx", same_zero, x=np.zeros((3, 0, 4), np.float32))
    half = save(tmp_path / "h.onnx", [helper.make_node("Gelu", ["x"], ["y"])], [value("x", [64], TensorProto.FLOAT16)], [value("y", [64], TensorProto.FLOAT16)], opset=20)
    convert(optc, half, tmp_path / "h13.onnx", "--opset=13")
    x = np.linspace(-6, 6, 64).astype(np.float16)
    np.testing.assert_allclose(run(tmp_path / "h13.onnx", x=x)[0].astype(np.float32), run(half, x=x)[0].astype(np.float32), atol=5e-3)


@pytest.mark.tier2
@pytest.mark.parametrize("name", ["bert_base.dynamo", "convnext_tiny.dynamo", "deeplabv3_mobilenet_v3_large.dynamo", "efficientnet_b0.script", "gpt2_decode.dynamo", "gpt2_prefill.dynamo", "lstm_tagger.script",
                                  "mlp.dynamo", "retinanet.script", "swin_t.dynamo", "t5_small.dynamo", "unet_diffusion.dynamo", "vit_b_16.dynamo", "whisper_tiny_encoder.dynamo", "whisper_tiny_encoder.script17"])
def test_whole_models_at_other_opsets(optc, shared, tmp_path, name):
    """Down to 13 and up to 28, and back: the same answers in ONNX Runtime."""
    subprocess.run([sys.executable, shared / "tools/materialize.py", shared / f"models/{name}.onnx", tmp_path, "--inline"], check=True, stdout=subprocess.DEVNULL)
    model = tmp_path / f"{name}.onnx"
    proto = onnx.load(model)
    own = next(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx"))
    dims, feeds, rng = {}, {}, np.random.default_rng(1)
    for info in proto.graph.input:
        kind = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        shape = [d.dim_value or dims.setdefault(d.dim_param, 1 + 4 * len(dims)) for d in info.type.tensor_type.shape.dim]
        feeds[info.name] = rng.standard_normal(shape).astype(kind) if kind == np.float32 else rng.integers(0, 2, shape).astype(kind)
    want = run(model, **feeds)
    for opset in (13, 28):
        convert(optc, model, tmp_path / "to.onnx", f"--opset={opset}")
        convert(optc, tmp_path / "to.onnx", tmp_path / "back.onnx", f"--opset={own}")
        for path in [tmp_path / "to.onnx"] * (opset == 13) + [tmp_path / "back.onnx"]:
            for x, y in zip(run(path, **feeds), want):
                assert x.dtype == y.dtype and x.shape == y.shape
                assert np.abs(x - y).max() <= 2e-5 * np.abs(y).max(), (path, opset)
