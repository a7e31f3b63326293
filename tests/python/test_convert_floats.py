"""optc convert --float: what gets another float type and what stays, checked by ONNX's checker and run by ONNX Runtime."""

import json
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_convert import convert
from test_convert_edits import run, save, value

F, H, B = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16
RNG = np.random.default_rng(7)
X = RNG.standard_normal((2, 8, 4, 4)).astype(np.float32)


def close(got, want, part=4e-3):
    assert got.dtype == want.dtype and got.shape == want.shape
    finite = np.isfinite(want)
    np.testing.assert_array_equal(np.isfinite(got), finite)
    assert np.abs(got[finite].astype(np.float64) - want[finite]).max() <= part * np.abs(want[finite]).max()


def facts(optc, source, out, *options):
    done = subprocess.run([optc, "convert", source, "-o", out, "--format=json", *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["float"], done.stderr


def types(path):
    """Element types of all values of the main graph, as ONNX infers them."""
    model = onnx.shape_inference.infer_shapes(onnx.load(path), check_type=True, strict_mode=True)
    graph = model.graph
    found = {i.name: i.type.tensor_type.elem_type for i in [*graph.input, *graph.output, *graph.value_info]}
    return found | {t.name: t.data_type for t in graph.initializer}


def network(path, opset=17):
    """A convolution, a Resize, a branch and a loop that read outer values, a weight with two readers, a constant by attribute."""
    then = helper.make_graph([helper.make_node("Mul", ["c", "scale"], ["t"])], "then", [], [value("t", None)])
    # "t" is of another type and rank in this graph
    other = [helper.make_node("Shape", ["c"], ["t"]), helper.make_node("Expand", ["k", "t"], ["wide"])]
    orelse = helper.make_graph([helper.make_node("Constant", [], ["k"], value_float=0.5), *other, helper.make_node("Add", ["c", "wide"], ["e"])], "else", [], [value("e", None)])
    body = helper.make_graph([helper.make_node("Add", ["acc", "scale"], ["next"]), helper.make_node("Identity", ["cond"], ["on"]), helper.make_node("ReduceMax", ["next"], ["top"], keepdims=0)], "body",
                             [value("i", [], TensorProto.INT64), value("cond", [], TensorProto.BOOL), value("acc", [2, 8, 4, 4])], [value("on", [], TensorProto.BOOL), value("next", [2, 8, 4, 4]), value("top", [])])
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], name="conv"),
        helper.make_node("If", ["flag"], ["i"], then_branch=then, else_branch=orelse, name="if"),
        helper.make_node("Loop", ["three", "", "i"], ["l", "tops"], body=body, name="loop"),
        helper.make_node("Resize", ["l", "", "scales"], ["r"], name="resize"),
        helper.make_node("Mul", ["r", "scale"], ["y"], name="last"),
    ]
    weights = {"w": RNG.standard_normal((8, 8, 3, 3)).astype(np.float32) / 8, "scale": np.array(0.75, np.float32), "scales": np.array([1, 1, 2, 2], np.float32), "three": np.array(3)}
    return save(path, nodes, [value("x", [2, 8, 4, 4]), value("flag", [], TensorProto.BOOL)], [value("y", [2, 8, 8, 8]), value("tops", [3])], weights, opset)


@pytest.mark.parametrize("kind,part", [("f16", 4e-3), ("bf16", None)])
def test_floats_become_half(optc, tmp_path, kind, part):
    source = network(tmp_path / "net.onnx", 17 if kind == "f16" else 22)  # where Conv has bf16
    said, _ = facts(optc, source, tmp_path / "h.onnx", f"--float={kind}")
    to = {"f16": H, "bf16": B}[kind]
    found = types(tmp_path / "h.onnx")
    assert found["x"] == found["y"] == found["tops"] == F and found["c"] == found["w"] == found["r"] == to and found["scales"] == F
    assert said["to"] == kind and said["stays"] == [] and said["casts"] == 3
    if part:
        for flag in (True, False):
            for got, want in zip(run(tmp_path / "h.onnx", x=X, flag=np.array(flag)), run(source, x=X, flag=np.array(flag))):
                close(got, want, part)
    # and back: the casts are idle then and go
    convert(optc, tmp_path / "h.onnx", tmp_path / "back.onnx", "--float=f32")
    back = onnx.load(tmp_path / "back.onnx")
    assert [n.op_type for n in back.graph.node] == ["Conv", "If", "Loop", "Resize", "Mul"] and types(tmp_path / "back.onnx")["w"] == F
    for got, want in zip(run(tmp_path / "back.onnx", x=X, flag=np.array(True)), run(source, x=X, flag=np.array(True))):
        close(got, want, 4e-3 if kind == "f16" else 3e-2)


def test_inputs_and_outputs_too(optc, tmp_path):
    source = network(tmp_path / "net.onnx")
    facts(optc, source, tmp_path / "h.onnx", "--float=f16", "--float-io")
    found = types(tmp_path / "h.onnx")
    assert found["x"] == found["y"] == found["tops"] == H
    assert "Cast" not in [n.op_type for n in onnx.load(tmp_path / "h.onnx").graph.node]
    want = run(source, x=X, flag=np.array(True))
    for got, w in zip(run(tmp_path / "h.onnx", x=X.astype(np.float16), flag=np.array(True)), want):
        close(got.astype(np.float32), w)
    # an output that is a constant, and one that is an input
    direct = save(tmp_path / "d.onnx", [helper.make_node("Add", ["x", "k"], ["s"])], [value("x", [2])], [value("s", [2]), value("k", [2])], {"k": np.array([1, 2], np.float32)})
    for options, kind in (((), np.float32), (("--float-io",), np.float16)):
        facts(optc, direct, tmp_path / "d16.onnx", "--float=f16", *options)
        s, k = run(tmp_path / "d16.onnx", x=np.array([1, 2], kind))
        assert s.dtype == k.dtype == kind and s.tolist() == [2, 4] and k.tolist() == [1, 2]


def test_what_is_asked_to_stay_does(optc, tmp_path):
    source = network(tmp_path / "net.onnx")
    for keep, stays in ((["Conv"], {"conv"}), (["node:last"], {"last"}), (["node:l*"], {"loop", "last", "next", "top"}), (["If", "node:resize"], {"if", "t", "wide", "e", "resize"})):
        said, _ = facts(optc, source, tmp_path / "h.onnx", "--float=f16", *[f"--keep-float={k}" for k in keep])
        assert {s["node"] for s in said["stays"]} == stays and {s["why"] for s in said["stays"]} == {"asked for"}
        for got, want in zip(run(tmp_path / "h.onnx", x=X, flag=np.array(False)), run(source, x=X, flag=np.array(False))):
            close(got, want)
    # the weight that both kinds of nodes read is there twice
    facts(optc, source, tmp_path / "h.onnx", "--float=f16", "--keep-float=node:last")
    assert {t.name: t.data_type for t in onnx.load(tmp_path / "h.onnx").graph.initializer} == {"w": H, "scale": F, "scale_f16": H, "scales": F, "three": TensorProto.INT64}
    for wrong, words in (("Nothing", "no operator"), ("node:nothing", "no node"), ("node:z*", "no node")):
        assert words in convert(optc, source, tmp_path / "no.onnx", "--float=f16", f"--keep-float={wrong}", code=2).stderr
    for options in (["--float-io"], ["--keep-float=Conv"], ["--float=f64"]):
        convert(optc, source, tmp_path / "no.onnx", *options, code=2)
    assert not (tmp_path / "no.onnx").exists()


def test_positions_and_sums_of_squares_stay(optc, tmp_path):
    """Angles of 3000 positions, a norm of values of some hundreds, indices by float arithmetic: in 16 bits all would be wrong."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["length"]),
        helper.make_node("Range", ["zero", "length", "step"], ["positions"]),
        helper.make_node("Cast", ["positions"], ["p"], to=F, name="float_positions"),
        helper.make_node("Unsqueeze", ["p", "last"], ["column"]),
        helper.make_node("Expand", ["frequencies", "wide"], ["row"]),
        helper.make_node("MatMul", ["column", "row"], ["angles"], name="outer"),
        helper.make_node("Sin", ["angles"], ["sin"], name="sin"),
        helper.make_node("Mul", ["x", "hundreds"], ["big"], name="big"),
        helper.make_node("Pow", ["big", "two"], ["square"], name="square"),
        helper.make_node("ReduceMean", ["square"], ["mean"], axes=[-1], name="mean"),
        helper.make_node("Add", ["mean", "eps"], ["safe"], name="safe"),
        helper.make_node("Sqrt", ["safe"], ["root"], name="root"),
        helper.make_node("Div", ["big", "root"], ["norm"], name="norm"),
        helper.make_node("Add", ["norm", "sin"], ["y"], name="sum"),
        helper.make_node("Mul", ["p", "third"], ["thirds"], name="thirds"),
        helper.make_node("Cast", ["thirds"], ["index"], to=TensorProto.INT64, name="index"),
    ]
    weights = {"one": np.array(1), "zero": np.array(0), "step": np.array(1), "last": np.array([1]), "frequencies": np.array([[1.0, 0.1, 0.01, 0.001]], np.float32), "wide": np.array([1, 4]),
               "hundreds": np.array(900.0, np.float32), "two": np.array(2.0, np.float32), "eps": np.array(1e-12, np.float32), "third": np.array(1 / 3, np.float32)}
    source = save(tmp_path / "m.onnx", nodes, [value("x", [1, "n", 4])], [value("y", [1, "n", 4]), value("index", ["n"], TensorProto.INT64)], weights)
    x = RNG.standard_normal((1, 3000, 4)).astype(np.float32)
    said, warned = facts(optc, source, tmp_path / "h.onnx", "--float=f16")
    assert not warned
    why = {s["node"]: s["why"] for s in said["stays"]}
    assert {k: v for k, v in why.items() if "squares" in v}.keys() == {"square", "mean", "safe", "root"}
    assert {"float_positions", "outer", "sin", "thirds", "column", "row"} <= {k for k, v in why.items() if "integers" in v}
    assert not {"norm", "sum", "big"} & why.keys()
    got, want = run(tmp_path / "h.onnx", x=x), run(source, x=x)
    close(got[0], want[0])
    np.testing.assert_array_equal(got[1], want[1])


def test_a_constant_beyond_the_range_is_a_loss(optc, tmp_path):
    """A mask of the lowest f32, in a node that changes and in one that stays, and an epsilon that f16 does not have."""
    nodes = [
        helper.make_node("Cast", ["mask"], ["m"], to=F),
        helper.make_node("Sub", ["one", "m"], ["away"], name="away"),
        helper.make_node("Mul", ["away", "lowest"], ["bias"], name="bias"),
        helper.make_node("Add", ["x", "bias"], ["scores"]),
        helper.make_node("Where", ["flag", "scores", "lowest"], ["masked"], name="masked"),
        helper.make_node("Softmax", ["masked"], ["p"]),
        helper.make_node("Add", ["p", "eps"], ["safe"], name="safe"),
        helper.make_node("Div", ["one", "safe"], ["y"]),
    ]
    lowest = np.array(np.finfo(np.float32).min, np.float32)
    source = save(tmp_path / "m.onnx", nodes, [value("x", [2, 4]), value("mask", [2, 4], TensorProto.INT64), value("flag", [2, 4], TensorProto.BOOL)], [value("y", [2, 4]), value("p", [2, 4])], {"one": np.array(1, np.float32), "lowest": lowest, "eps": np.array(1e-12, np.float32)})
    feeds = {"x": X[0, 0, :2], "mask": np.array([[1, 1, 0, 1], [0, 0, 0, 0]]), "flag": np.array([[1, 1, 1, 0], [1, 1, 1, 1]], bool)}
    done = convert(optc, source, tmp_path / "no.onnx", "--float=f16", code=4)
    assert "'lowest': -3.40282e+38 is beyond the largest" in done.stderr and "'eps': 1e-12 is below the smallest" in done.stderr and "--allow-loss" in done.stderr
    assert not (tmp_path / "no.onnx").exists()
    _, warned = facts(optc, source, tmp_path / "h.onnx", "--float=f16", "--allow-loss")
    assert "constants do not fit f16" in warned
    got = run(tmp_path / "h.onnx", **feeds)
    assert np.isfinite(got[1]).all()
    # A row without any key stays a row of numbers, as it is in f32 (f32's lowest number swallows the scores there, f16's
    # does not), and nothing is divided by 0.
    np.testing.assert_allclose(got[1][0], run(source, **feeds)[1][0], atol=2e-3)
    np.testing.assert_allclose(got[1][1].sum(), 1, atol=2e-3)
    said, _ = facts(optc, source, tmp_path / "k.onnx", "--float=f16", "--keep-float=Add", "--keep-float=Where", "--keep-float=Div", "--keep-float=Softmax")
    assert {s["op"] for s in said["stays"]} == {"Add", "Where", "Div", "Softmax", "Cast", "Sub", "Mul"}
    # bf16 has f32's range
    _, warned = facts(optc, source, tmp_path / "b.onnx", "--float=bf16")
    assert not warned
    lowest16 = next(t for t in onnx.load(tmp_path / "b.onnx").graph.initializer if t.name == "lowest_bf16" or t.name == "lowest")
    assert np.isfinite(numpy_helper.to_array(lowest16).astype(np.float64))


def test_small_weights_beside_large_ones_are_no_loss(optc, tmp_path):
    w = np.array([[1.0, 1e-9], [-1e-20, 0.5]], np.float32)
    source = save(tmp_path / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", [2, 2])], [value("y", [2, 2])], {"w": w})
    facts(optc, source, tmp_path / "h.onnx", "--float=f16")
    assert numpy_helper.to_array(onnx.load(tmp_path / "h.onnx").graph.initializer[0]).tolist() == [[1.0, 0.0], [0.0, 0.5]]
    small = save(tmp_path / "s.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", [2, 2])], [value("y", [2, 2])], {"w": w * np.float32(1e-6)})
    assert "too near to the smallest" in convert(optc, small, tmp_path / "no.onnx", "--float=f16", code=4).stderr


def test_what_has_no_form_stays(optc, tmp_path):
    """Boxes of NonMaxSuppression are f32 in ONNX; RoiAlign's are coordinates; QuantizeLinear of opset 13 has no f16; an operator nobody knows."""
    nodes = [
        helper.make_node("Mul", ["boxes", "half"], ["b"], name="scaled"),
        helper.make_node("NonMaxSuppression", ["b", "scores"], ["chosen"], name="nms"),
        helper.make_node("QuantizeLinear", ["b", "half", "zero"], ["q"], name="quantize"),
        helper.make_node("DequantizeLinear", ["q", "half", "zero"], ["d"], name="dequantize"),
        helper.make_node("Add", ["d", "half"], ["y"], name="add"),
    ]
    source = save(tmp_path / "m.onnx", nodes, [value("boxes", [1, 3, 4]), value("scores", [1, 1, 3])], [value("chosen", ["k", 3], TensorProto.INT64), value("y", [1, 3, 4])], {"half": np.array(0.5, np.float32), "zero": np.array(0, np.int8)}, opset=13)
    said, _ = facts(optc, source, tmp_path / "h.onnx", "--float=f16")
    assert {(s["node"], s["why"]) for s in said["stays"]} == {(n, "of operators without that type") for n in ("nms", "quantize", "dequantize")}
    feeds = {"boxes": np.abs(X[:1, :3, 0]), "scores": np.ones((1, 1, 3), np.float32)}
    for got, want in zip(run(tmp_path / "h.onnx", **feeds), run(source, **feeds)):
        np.testing.assert_allclose(got, want, atol=2e-3)
    later = save(tmp_path / "l.onnx", nodes, [value("boxes", [1, 3, 4]), value("scores", [1, 1, 3])], [value("chosen", ["k", 3], TensorProto.INT64), value("y", [1, 3, 4])], {"half": np.array(0.5, np.float32), "zero": np.array(0, np.int8)}, opset=19)
    said, _ = facts(optc, later, tmp_path / "h.onnx", "--float=f16")
    assert [s["node"] for s in said["stays"]] == ["nms"]
    odd = helper.make_model(helper.make_graph([helper.make_node("Odd", ["x"], ["o"], domain="my.ops", name="odd"), helper.make_node("Relu", ["o"], ["y"])], "g", [value("x", [2])], [value("y", [2])]), opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("my.ops", 1)], ir_version=8)
    onnx.save(odd, tmp_path / "odd.onnx")
    said, _ = facts(optc, tmp_path / "odd.onnx", tmp_path / "h.onnx", "--float=f16")
    assert {s["node"] for s in said["stays"]} == {"odd", "y"} and {s["why"] for s in said["stays"]} == {"of types not known"}
    assert [n.op_type for n in onnx.load(tmp_path / "h.onnx").graph.node] == ["Odd", "Relu"]


def test_the_models_own_islands_of_f32_stay(optc, tmp_path):
    """A model in f16 with a softmax in f32 becomes bf16 but for the softmax; to f32, its casts go."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["s"]), helper.make_node("Cast", ["s"], ["wide"], to=F, name="up"), helper.make_node("Softmax", ["wide"], ["p"], name="softmax"), helper.make_node("Cast", ["p"], ["y"], to=H, name="down")]
    source = save(tmp_path / "m.onnx", nodes, [value("x", [2, 4], H)], [value("y", [2, 4], H)], {"w": X[0, 0].astype(np.float16)})
    said, _ = facts(optc, source, tmp_path / "b.onnx", "--float=bf16")
    assert {s["node"] for s in said["stays"]} == {"up", "softmax"} and types(tmp_path / "b.onnx")["s"] == B
    facts(optc, source, tmp_path / "w.onnx", "--float=f32", "--float-io")
    wide = onnx.load(tmp_path / "w.onnx")
    assert [n.op_type for n in wide.graph.node] == ["MatMul", "Softmax"]
    x = X[0, 1, :2].astype(np.float16)
    np.testing.assert_allclose(run(tmp_path / "w.onnx", x=x.astype(np.float32))[0], run(source, x=x)[0], atol=2e-3)


def test_integer_sums_stay_until_they_are_scaled(optc, tmp_path):
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]), helper.make_node("MatMulInteger", ["q", "w", "z"], ["acc"]), helper.make_node("Cast", ["acc"], ["f"], to=F, name="float"),
             helper.make_node("Mul", ["s", "ws"], ["scale"], name="scales"), helper.make_node("Mul", ["f", "scale"], ["m"], name="scaled"), helper.make_node("Relu", ["m"], ["y"], name="relu")]
    source = save(tmp_path / "m.onnx", nodes, [value("x", [2, 512])], [value("y", [2, 8])], {"w": RNG.integers(-127, 127, (512, 8)).astype(np.int8), "ws": np.array(0.003, np.float32)})
    said, _ = facts(optc, source, tmp_path / "h.onnx", "--float=f16")
    assert {"float", "scaled"} <= {s["node"] for s in said["stays"]} and "relu" not in {s["node"] for s in said["stays"]}
    x = np.abs(RNG.standard_normal((2, 512)).astype(np.float32))
    close(run(tmp_path / "h.onnx", x=x)[0], run(source, x=x)[0])


def test_weights_that_are_inputs_of_an_old_model(optc, tmp_path):
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "w"], ["y"], name="add")], "g", [value("x", [2, 2]), value("w", [2, 2])], [value("y", [2, 2])], [numpy_helper.from_array(np.eye(2, dtype=np.float32), "w")])
    for ir, kind in ((3, H), (8, F)):
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=ir), tmp_path / "m.onnx")
        facts(optc, tmp_path / "m.onnx", tmp_path / "h.onnx", "--float=f16", "--keep-float=Add")
        got = onnx.load(tmp_path / "h.onnx")
        assert {t.data_type for t in got.graph.initializer} == ({F, H} if kind == H else {F})
        assert len(got.graph.input) == (3 if kind == H else 2)
        np.testing.assert_array_equal(run(tmp_path / "h.onnx", x=np.eye(2, dtype=np.float32))[0], 2 * np.eye(2))


def test_functions_sequences_and_old_opsets(optc, tmp_path):
    function = helper.make_function("my.ops", "F", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)])
    onnx.save(helper.make_model(helper.make_graph([helper.make_node("F", ["x"], ["y"], domain="my.ops")], "g", [value("x", [3])], [value("y", [3])]), opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("my.ops", 1)], functions=[function], ir_version=8), tmp_path / "f.onnx")
    said, warned = facts(optc, tmp_path / "f.onnx", tmp_path / "h.onnx", "--float=f16")
    assert "inlined" in warned and said["nodes"] == 1
    assert run(tmp_path / "h.onnx", x=np.ones(3, np.float32))[0].tolist() == [2, 2, 2]
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("SequenceConstruct", ["r", "r"], ["s"], name="list"), helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0, name="join")]
    source = save(tmp_path / "s.onnx", nodes, [value("x", [3])], [value("y", [6])])
    said, _ = facts(optc, source, tmp_path / "h.onnx", "--float=f16")
    assert {s["node"]: s["why"] for s in said["stays"]} == {n: "of sequences or optionals" for n in ("list", "join")}
    assert run(tmp_path / "h.onnx", x=np.ones(3, np.float32))[0].tolist() == [1] * 6
    old = save(tmp_path / "o.onnx", [helper.make_node("Relu", ["x"], ["y"])], [value("x", [3])], [value("y", [3])], opset=12)
    assert "--opset 13" in convert(optc, old, tmp_path / "no.onnx", "--float=bf16", code=4).stderr
    facts(optc, old, tmp_path / "b.onnx", "--float=bf16", "--opset=13")
    assert types(tmp_path / "b.onnx")["x"] == F and B in types(tmp_path / "b.onnx").values()


def test_shared_cases_in_f16(optc, shared, tmp_path):
    """Every model stays valid; what it computes stays near where its numbers fit f16."""
    ran = 0
    for i, folder in enumerate(sorted((shared / "cases").glob("*/test_data_set_0"))):
        if i % 4 != 1:
            continue
        model = folder.parent / "model.onnx"
        proto = onnx.load(model)
        try:
            onnx.checker.check_model(proto, full_check=True)
            feeds = {}
            for n, info in enumerate(proto.graph.input):
                tensor = TensorProto()
                tensor.ParseFromString((folder / f"input_{n}.pb").read_bytes())
                feeds[info.name] = numpy_helper.to_array(tensor)
            want = run(model, **feeds)
        except Exception:  # a sequence, a type that numpy lacks, an operator that ONNX Runtime lacks
            continue
        convert(optc, model, tmp_path / "h.onnx", "--float=f16", "--allow-loss")
        try:
            got = run(tmp_path / "h.onnx", **feeds)
        except Exception as error:
            assert "not supported" in str(error), (model, error)
            continue
        for x, y in zip(got, want):
            if not isinstance(y, np.ndarray):
                continue
            assert x.dtype == y.dtype and x.shape == y.shape, model
            small = y.dtype.kind == "f" and y.size and np.isfinite(y).all() and np.abs(y).max() < 60000
            if small:
                assert np.abs(x.astype(np.float64) - y).max() <= 2e-2 * max(1e-6, np.abs(y).max()), model
        ran += 1
    assert ran > 60
