"""optc reduce: the smallest part that a command still says the same of; that the part is a model of its own and computes what it computed in
the whole; what the command may be; wrong uses. The commands here are small scripts that look at a model with the onnx package."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import page_models


def reduce(optc, source, out, check, *options, code=0):
    done = subprocess.run([optc, "reduce", source, "--check", check, "-o", out, *options], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr
    assert done.stderr.count("error[") == (code != 0), done.stderr
    if code:
        assert not pathlib.Path(out).exists()
    return done


def script(folder, body, name="check.py"):
    """A command that runs `body` with `ops`, the operators in a binary model. It looks for the bytes of NodeProto.op_type, as importing onnx
    takes longer than all else."""
    path = folder / name
    path.write_text("import re, sys\ndata = open(sys.argv[1], 'rb').read()\n"
                    "ops = [m[1].decode() for m in re.findall(rb'\\x22(.)([A-Z][A-Za-z]+)', data, re.S) if m[0][0] == len(m[1])]\n" + body)
    return f"{sys.executable} {path}"


@pytest.fixture
def encoder(tmp_path):
    path = tmp_path / "encoder.onnx"
    page_models.transformer(path, 3)
    return path


def part_computes_the_same(whole, part):
    """The values at the part's border, computed by the whole model, are what the part computes of them."""
    model = onnx.shape_inference.infer_shapes(onnx.load(whole))
    small = onnx.load(part)
    onnx.checker.check_model(small, full_check=True)
    rng = np.random.default_rng(1)
    feed = {"x": rng.standard_normal((2, 5, 8), np.float32), "keep": rng.random((2, 1, 5)) > .3}
    known = {v.name: v for v in [*model.graph.value_info, *model.graph.output]}
    border = [v.name for v in [*small.graph.input, *small.graph.output] if v.name not in feed]
    for name in border:
        if name not in [o.name for o in model.graph.output]:
            model.graph.output.append(known[name])
    session = lambda m: onnxruntime.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
    values = dict(feed, **dict(zip(border, session(model).run(border, feed))))
    for name, value in zip([o.name for o in small.graph.output], session(small).run(None, {v.name: values[v.name] for v in small.graph.input})):
        np.testing.assert_allclose(value, values[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("wanted, nodes", [
    ("'Erf' in ops", ["Erf"]),
    ("ops.count('Softmax') >= 2", ["Softmax", "Softmax"]),
    ("'Softmax' in ops and b'B\\x02v1' in data and data.count(b'Softmax') < 9", ["MatMul", "Softmax"]),
    ("ops.count('Add') >= 2 and 'Sqrt' in ops and 'Erf' in ops", ["Add", "Add", "Erf", "Sqrt"]),
    ("b'B\\x02g1' in data", ["Mul"]),
])
def test_least_part(optc, tmp_path, encoder, wanted, nodes):
    out = tmp_path / "small.onnx"
    done = reduce(optc, encoder, out, script(tmp_path, f"sys.exit(7 if {wanted} else 0)"), "--format=json")
    facts = json.loads(done.stdout)
    small = onnx.load(out)
    left = [n.op_type for n in small.graph.node]
    assert sorted(left) == nodes
    assert facts["exit_code"] == 7 and facts["nodes_before"] == 82 and facts["nodes"] == len(left) and facts["minimal"] and facts["valid"]
    assert facts["inputs"] == len(small.graph.input) and facts["initializers"] == len(small.graph.initializer) <= len(left) + 2
    assert sum(facts["removed"].values()) == 82 - len(left) and facts["runs"] < 200
    part_computes_the_same(encoder, out)
    # Nodes stay as they were, with their names.
    original = {n.name: n for n in onnx.load(encoder).graph.node}
    assert all(original[n.name] == n for n in small.graph.node)
    # The same again, to the byte.
    again = tmp_path / "again.onnx"
    reduce(optc, encoder, again, script(tmp_path, f"sys.exit(7 if {wanted} else 0)"), "-q")
    assert again.read_bytes() == out.read_bytes()


def test_exit_codes_are_told_apart(optc, tmp_path, encoder):
    """A part that fails in another way, or that takes too long, is another failure."""
    out = tmp_path / "small.onnx"
    done = reduce(optc, encoder, out, script(tmp_path, "sys.exit(3 if 'Erf' not in ops else 1 if 'Softmax' in ops else 2)"))
    assert sorted(n.op_type for n in onnx.load(out).graph.node) == ["Erf", "Softmax"]
    assert "82 nodes \u2192 2: " in done.stdout and "ends with 1 as on the model" in done.stdout and "valid to ONNX's checker" in done.stdout
    assert "removed: 21 MatMul, 18 Add, " in done.stdout
    slow = script(tmp_path, "import time\nif len(ops) < 82 and 'Erf' not in ops: time.sleep(60)\nsys.exit(1)", "slow.py")
    reduce(optc, encoder, out, slow, "--timeout", "3", "--max-runs", "12")
    assert "Erf" in [n.op_type for n in onnx.load(out).graph.node]


def test_places_of_the_file_in_the_command(optc, tmp_path, encoder):
    """{} is the file, whatever its name; without it the file is the last word."""
    odd = tmp_path / "a 'b' $c.onnx"
    odd.write_bytes(encoder.read_bytes())
    check = script(tmp_path, "sys.exit('Erf' not in ops or sys.argv[1] != sys.argv[-1])")
    for command in (check, check + " {} {}", "test -f {} && " + check + " {}"):
        out = tmp_path / "small.onnx"
        reduce(optc, odd, out, command)
        assert [n.op_type for n in onnx.load(out).graph.node] == ["Erf"]
        out.unlink()


def test_bodies_and_what_they_capture(optc, tmp_path):
    """Of an If that matters each body keeps what it gives; what they read of removed nodes becomes an input."""
    def branch(name, op):
        return helper.make_graph([helper.make_node(op, ["scaled", "w"], [name])], name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N"])])
    nodes = [helper.make_node("Mul", ["x", "w"], ["scaled"]), helper.make_node("Not", ["c"], ["d"]),
             helper.make_node("If", ["d"], ["i"], then_branch=branch("t", "Add"), else_branch=branch("e", "Sub")),
             helper.make_node("Split", ["i"], ["p", "q"], num_outputs=2), helper.make_node("Neg", ["q"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"]), helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["M"])], [numpy_helper.from_array(np.ones(1, np.float32), "w")])
    path, out = tmp_path / "if.onnx", tmp_path / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
    reduce(optc, path, out, script(tmp_path, "sys.exit('If' in ops)"))
    small = onnx.load(out)
    onnx.checker.check_model(small, full_check=True)
    assert [n.op_type for n in small.graph.node] == ["If"] and {v.name for v in small.graph.input} == {"scaled", "d"}
    assert [v.name for v in small.graph.output] == ["i"] and [t.name for t in small.graph.initializer] == ["w"]
    reduce(optc, path, out, script(tmp_path, "sys.exit('Split' in ops)"))
    assert [v.name for v in onnx.load(out).graph.output] == ["q"]  # p was read by nothing before, too


@pytest.fixture
def looped(tmp_path):
    """A Loop whose body has an If, each with some arithmetic before, in and behind it."""
    info = lambda name, dims: helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
    then = helper.make_graph([helper.make_node("Erf", ["scaled"], ["t1"], name="erf"), helper.make_node("Add", ["t1", "w"], ["t2"]), helper.make_node("Exp", ["t2"], ["t3"])],
                             "then", [], [info("t3", ["N"])])
    other = helper.make_graph([helper.make_node("Neg", ["scaled"], ["e1"]), helper.make_node("Abs", ["e1"], ["e2"])], "else", [], [info("e2", ["N"])])
    body = helper.make_graph([helper.make_node("Identity", ["go"], ["goes_on"]), helper.make_node("Mul", ["state", "w"], ["scaled"]), helper.make_node("Sin", ["scaled"], ["aside"]),
                              helper.make_node("If", ["go"], ["chosen"], then_branch=then, else_branch=other), helper.make_node("Sub", ["chosen", "aside"], ["next"]),
                              helper.make_node("Cos", ["next"], ["each"])], "body",
                             [helper.make_tensor_value_info("i", TensorProto.INT64, []), helper.make_tensor_value_info("go", TensorProto.BOOL, []), info("state", ["N"])],
                             [helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []), info("next", ["N"]), info("each", ["N"])])
    nodes = [helper.make_node("Tanh", ["x"], ["first"]), helper.make_node("Loop", ["count", "yes", "first"], ["last", "all"], body=body),
             helper.make_node("ReduceSum", ["all"], ["y"], keepdims=0), helper.make_node("Relu", ["last"], ["z"])]
    graph = helper.make_graph(nodes, "g", [info("x", ["N"]), helper.make_tensor_value_info("count", TensorProto.INT64, []), helper.make_tensor_value_info("yes", TensorProto.BOOL, [])],
                              [info("y", []), info("z", ["N"])], [numpy_helper.from_array(np.full(1, .5, np.float32), "w")])
    path = tmp_path / "loop.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
    onnx.checker.check_model(path, full_check=True)
    return path


def nodes_inside(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from nodes_inside(attribute.g)


@pytest.mark.parametrize("wanted, left, main", [
    ("'Erf' in ops", ["Erf"], ["Erf"]),  # out of both bodies
    ("'Sin' in ops and 'Mul' in ops", ["Mul", "Sin"], ["Mul", "Sin"]),
    ("'If' in ops and 'Erf' in ops", ["Abs", "Erf", "Identity", "If"], ["If"]),  # of the Loop's body alone
    ("'Loop' in ops and 'Sin' in ops", None, ["Loop"]),
    ("'Loop' in ops and 'Exp' in ops and 'Tanh' in ops", None, ["Tanh", "Loop"]),
])
def test_nodes_of_bodies(optc, tmp_path, looped, wanted, left, main):
    """A fault inside a body is found without the nodes around it, and where they matter the bodies have no other node."""
    out = tmp_path / "small.onnx"
    done = reduce(optc, looped, out, script(tmp_path, f"sys.exit(7 if {wanted} else 0)"), "--format=json")
    small = onnx.load(out)
    onnx.checker.check_model(small, full_check=True)
    onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"])
    inside = [n.op_type for n in nodes_inside(small.graph)]
    assert [n.op_type for n in small.graph.node] == main
    assert eval(wanted, {"ops": inside})
    # What is wanted, and copies where a body has to give something.
    for op in ("Sub", "Cos", "Neg", "Add", "ReduceSum", "Relu"):
        assert op not in inside
    if left:
        assert sorted(inside) == left
    facts = json.loads(done.stdout)
    assert facts["nodes"] == len(main) and facts["body_nodes"] == len(inside) - len(main) and facts["body_nodes_before"] == 11
    assert facts["nodes_before"] == 4 and facts["initializers"] == len(small.graph.initializer)
    again = tmp_path / "again.onnx"
    reduce(optc, looped, again, script(tmp_path, f"sys.exit(7 if {wanted} else 0)"), "-q")
    assert again.read_bytes() == out.read_bytes()


def test_forms_of_text(optc, root, tmp_path):
    """A model in ONNX's text is checked as any other, and the part can be read."""
    out = tmp_path / "small.onnxtxt"
    done = reduce(optc, root / "docs/guide/digits.onnxtxt", out, script(tmp_path, "sys.exit('Conv' in ops)"))
    assert "13 nodes \u2192 1: Conv" in done.stdout and ", valid to ONNX's checker" in done.stdout and "edges = Conv" in out.read_text()


def test_weights_outside(optc, tmp_path):
    source = tmp_path / "there"
    source.mkdir()
    page_models.transformer(source / "m.onnx", 2)
    onnx.save(onnx.load(source / "m.onnx"), source / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=64)
    out = tmp_path / "here" / "small.onnx"
    out.parent.mkdir()
    check = script(tmp_path, "sys.exit(b'B\\x02u1' in data)")
    reduce(optc, source / "m.onnx", out, check)
    small, whole = onnx.load(out), onnx.load(source / "m.onnx")
    named = lambda m: next(t for t in m.graph.initializer if t.name == "u1")
    assert len(small.graph.node) == 1
    assert np.array_equal(numpy_helper.to_array(named(small)), numpy_helper.to_array(named(whole)))
    # The model's own file is kept.
    done = subprocess.run([optc, "reduce", source / "m.onnx", "--check", check, "-o", source / "m.onnx"], capture_output=True, text=True)
    assert done.returncode == 2 and "would be replaced" in done.stderr and len(onnx.load(source / "m.onnx").graph.node) == len(whole.graph.node)


def test_bound_of_runs(optc, tmp_path, encoder):
    out = tmp_path / "small.onnx"
    done = reduce(optc, encoder, out, script(tmp_path, "sys.exit('Erf' in ops and 'Softmax' in ops)"), "--max-runs", "7")
    assert "stopped by --max-runs" in done.stdout and "7 runs" in done.stdout
    left = [n.op_type for n in onnx.load(out).graph.node]
    assert "Erf" in left and "Softmax" in left
    onnx.checker.check_model(onnx.load(out), full_check=True)


def test_operators_that_nobody_knows(optc, tmp_path):
    """They are no reason to stop; what cannot be cut there, for want of a type, is not."""
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Strange", ["a"], ["b"], domain="nobody"), helper.make_node("Exp", ["b"], ["c"]),
             helper.make_node("Cast", ["c"], ["y"], to=TensorProto.FLOAT)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])])
    path, out = tmp_path / "m.onnx", tmp_path / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("nobody", 1)], ir_version=8), path)
    reduce(optc, path, out, script(tmp_path, "sys.exit('Strange' in ops)"))
    assert [n.op_type for n in onnx.load(out).graph.node] == ["Strange", "Exp", "Cast"]


def test_wrong_uses(optc, tmp_path, encoder):
    out = tmp_path / "small.onnx"
    assert "cannot run" in reduce(optc, encoder, out, "no_such_command_at_all", code=2).stderr
    assert "--max-runs" in reduce(optc, encoder, out, "true", "--max-runs", "1", code=2).stderr
    once = tmp_path / "once"
    assert "with 1 and then with 0" in reduce(optc, encoder, out, f"test -e {once} || ! touch {once} #", code=2).stderr
    assert "form" in reduce(optc, encoder, tmp_path / "small.xyz", "true", code=2).stderr
    done = subprocess.run([optc, "reduce", encoder], capture_output=True, text=True)
    assert done.returncode == 2 and "--check CMD and -o FILE" in done.stderr
    (tmp_path / "no.onnx").write_bytes(b"\x08\x08nonsense")
    reduce(optc, tmp_path / "no.onnx", out, "true", code=3)
