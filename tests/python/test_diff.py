"""`optc diff A B` of two files: every planted edit is found and said in one line, a model is known again under other names and after the
optimizer, and files of any operators can be compared (../shared/models: skipped where they are not there)."""

import json
import os
import pathlib
import random
import subprocess
import sys

import edits
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from page_models import branches, transformer

sys.path.insert(0, str(pathlib.Path(__file__).parent / "numerics"))
import numerics  # noqa: E402

SEED = int(os.environ.get("OPTC_SEED", "1"))
COUNT = int(os.environ.get("OPTC_COUNT", "10"))
REAL = ("lstm_tagger.script", "mobilenet_v3_large.script")


def run(optc, *words, code=0):
    done = subprocess.run([str(optc), *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout


def diff(optc, a, b, *words, code=0):
    return json.loads(run(optc, "diff", a, b, "--format=json", *words, code=code))


def original(name, folder, root):
    """A model with its weights inside."""
    path = folder / "a.onnx"
    if name == "encoder":
        transformer(path, 4)
        return path
    if not (root.parent / "shared/models").is_dir():
        pytest.skip("../shared/models is not there")
    onnx.save(onnx.load(numerics.materialized(name)), path)
    return path


@pytest.fixture(scope="module", params=["encoder", *REAL])
def model(request, tmp_path_factory, root):
    path = original(request.param, tmp_path_factory.mktemp("diff"), root)
    return path, onnx.load(path)


@pytest.mark.parametrize("names", ["kept", "scrambled"])
def test_an_edit_is_one_line(optc, model, tmp_path, names):
    path, before = model
    rng = random.Random(SEED)
    planted = 0
    for number in range(COUNT):
        after = onnx.ModelProto.FromString(before.SerializeToString())
        told = edits.EDITS[edits.KINDS[number % 4]](after, rng)
        if told is None:
            continue
        planted += 1
        if names == "scrambled":
            after, node_names = edits.scrambled(after, number, outer=False)
        else:
            node_names = [n.name for n in after.graph.node]
        b = tmp_path / "b.onnx"
        onnx.save(after, b)
        facts = diff(optc, path, b, "--exit-code", code=1)
        what = f"edit {number} of seed {SEED}: {told}, told {facts['changes']}"
        assert len(facts["changes"]) == 1, what
        change = facts["changes"][0]
        assert change["kind"] == told["kind"], what
        line = f"{change['what']} {change['from']} {change['to']} {change['note']}"
        assert all(text in line for text in told["says"]), what
        if told["nodes"] is not None:
            assert change["node_after"] in [node_names[i] or f"{after.graph.node[i].op_type}_{i}" for i in told["nodes"]], what
        if "largest" in told:
            assert abs(change["largest_difference"] - told["largest"]) <= 1e-5 * told["largest"], what
        if "from" in told and names == "kept":
            assert change["from"] == f"'{told['from']}'" and change["to"] == f"'{told['to']}'", what
        lines = run(optc, "diff", path, b).splitlines()
        assert len(lines) == 2 and change["what"] in lines[1], what
        assert facts["removed"] == facts["added"] == facts["fused"] == facts["split"] == 0, what
    assert planted >= COUNT // 2


def test_other_names_are_no_change(optc, model, tmp_path):
    path, before = model
    after, names = edits.scrambled(edits.in_other_order(before, SEED)[0], SEED, outer=False)
    onnx.save(after, tmp_path / "b.onnx")
    facts = diff(optc, path, tmp_path / "b.onnx", "--exit-code")
    assert facts["equal"] and facts["same"] == facts["nodes_after"] == len([n for n in after.graph.node if n.op_type != "Constant"])


def test_two_exporters(optc, root):
    if not (root.parent / "shared/models").is_dir():
        pytest.skip("../shared/models is not there")
    a, b = (numerics.materialized(f"mobilenet_v3_large.{form}") for form in ("script", "dynamo"))
    facts = diff(optc, a, b)
    assert facts["nodes_before"] == 206 and facts["nodes_after"] == 140
    assert [sum(side) for side in zip(*facts["nodes_by_status"].values())] == [206, 140]
    explained = sum(len(g["after"]) for g in facts["groups"] if g["before"])
    assert explained >= 0.9 * 140
    # All that one has and the other lacks are copies.
    assert {n["op"] for g in facts["groups"] if not g["after"] for n in g["before"]} <= {"Identity"}
    # One form has the biases in the products, the other behind them, and pools by another operator.
    assert {c["what"] for c in facts["changes"] if c["kind"] == "edge"} <= {"input 2"}
    assert {(c["from"], c["to"]) for c in facts["changes"] if c["kind"] == "operator"} <= {("GlobalAveragePool", "ReduceMean"), ("Flatten", "Reshape")}


def floats(name, *dims):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)


def test_any_operators(optc, tmp_path):
    """Domains that nobody knows, ONNX Runtime's own, lists of tensors and graphs as attributes, an opset of the future."""
    body = helper.make_graph([helper.make_node("Neg", ["x"], ["t"], name="inner")], "b", [], [floats("t", "N")])

    def model(path, alpha, factor):
        tensors = helper.make_attribute("tables", [numpy_helper.from_array(np.array([factor], np.float32), "t")])
        known = helper.make_node("FusedMatMul", ["x", "w"], ["a"], name="product", domain="com.microsoft", alpha=alpha)
        unknown = helper.make_node("Decode", ["a", ""], ["y"], name="decode", domain="com.acme")
        unknown.attribute.append(tensors)
        unknown.attribute.append(helper.make_attribute("bodies", [body]))
        return edits.small(path, [known, unknown], [floats("x", "N", 4)], [floats("y", "N", 4)],
                           [numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")], (("", 99), ("com.microsoft", 1), ("com.acme", 3)))

    a, b = model(tmp_path / "a.onnx", 1.0, 1), model(tmp_path / "b.onnx", 2.0, 3)
    assert diff(optc, a, a, "--exit-code")["same"] == 3
    changes = diff(optc, a, b)["changes"]
    assert [(c["node"], c["what"]) for c in changes] == [("product", "attribute alpha"), ("decode", "attribute tables[0]")]
    assert (changes[0]["from"], changes[0]["to"]) == ("1", "2") and "by at most 2" in changes[1]["note"]
    text = run(optc, "diff", a, b)
    assert "'product' (com.microsoft.FusedMatMul): attribute alpha 1 → 2\n" in text
    table = run(optc, "diff", a, b, "--format=markdown")
    assert "| product | com.microsoft.FusedMatMul | attribute alpha | 1 | 2 |  |\n" in table


def test_the_signature_and_the_opset(optc, tmp_path):
    def model(path, name, dims, version, ops):
        nodes = [helper.make_node(op, [name if not i else f"t{i}"], [f"t{i + 1}" if i + 1 < len(ops) else "y"], name=f"n{i}") for i, op in enumerate(ops)]
        return edits.small(path, nodes, [floats(name, *dims)], [floats("y", *dims)], opsets=(("", version),))

    a = model(tmp_path / "a.onnx", "x", ("N", 3), 17, ["Relu", "Exp"])
    b = model(tmp_path / "b.onnx", "x", (8, 3), 18, ["Relu", "Exp"])
    told = [(c["kind"], c["from"], c["to"]) for c in diff(optc, a, b)["changes"]]
    assert told == [("opset", "17", "18"), ("input", "f32[N,3]", "f32[8,3]"), ("output", "f32[N,3]", "f32[8,3]")]
    c = model(tmp_path / "c.onnx", "image", ("N", 3), 17, ["Relu", "Exp"])
    assert [(c["what"], c["from"], c["to"]) for c in diff(optc, a, c)["changes"]] == [("input", "'x'", "'image'")]
    # Another operator in the place of one; a node in between.
    d = model(tmp_path / "d.onnx", "x", ("N", 3), 17, ["Relu", "Tanh"])
    facts = diff(optc, a, d)
    assert [(c["what"], c["from"], c["to"], c["node"]) for c in facts["changes"]] == [("operator", "Exp", "Tanh", "n1")]
    e = model(tmp_path / "e.onnx", "x", ("N", 3), 17, ["Relu", "Abs", "Exp"])
    facts = diff(optc, a, e)
    assert facts["changes"] == [] and facts["added"] == 1 and facts["same"] == 2 and not facts["equal"]
    assert "nothing → Abs   'n1'" in run(optc, "diff", a, e)


def test_operands_that_change_places(optc, tmp_path):
    def model(path, op, order):
        nodes = [helper.make_node("Relu", ["x"], ["p"], name="p"), helper.make_node("Exp", ["x"], ["q"], name="q"),
                 helper.make_node(op, order, ["y"], name="both")]
        return edits.small(path, nodes, [floats("x", 3)], [floats("y", 3)])

    for op in ("Sub", "Add"):
        a, b = model(tmp_path / "a.onnx", op, ["p", "q"]), model(tmp_path / "b.onnx", op, ["q", "p"])
        changes = diff(optc, a, b, "--exit-code", code=1)["changes"]
        assert [(c["kind"], c["node"], c["what"]) for c in changes] == [("edge", "both", "inputs 0 and 1")]
        assert ("the result is the same" in changes[0]["note"]) == (op == "Add")


def test_a_weight_of_several_nodes_is_told_once(optc, tmp_path):
    def model(path, last):
        nodes = [helper.make_node("Mul", ["x", "w"], ["p"], name="p"), helper.make_node("Add", ["p", "w"], ["y"], name="q")]
        return edits.small(path, nodes, [floats("x", 3)], [floats("y", 3)],
                           [numpy_helper.from_array(np.array([1, 2, last], np.float32), "w")])

    facts = diff(optc, model(tmp_path / "a.onnx", 3), model(tmp_path / "b.onnx", 3.5))
    assert facts["changed"] == 2 and len(facts["changes"]) == 1
    change = facts["changes"][0]
    assert change["note"] == "1 of 3 values differs, by at most 0.5; 1 more node reads it"
    assert (change["values"], change["differing"], change["largest_difference"]) == (3, 1, 0.5)
    nan = model(tmp_path / "n.onnx", float("nan"))
    assert diff(optc, nan, nan)["equal"] and len(diff(optc, tmp_path / "a.onnx", nan)["changes"]) == 1


def test_kinds_of_changes_can_be_ignored(optc, tmp_path):
    def model(path, last, alpha):
        nodes = [helper.make_node("Mul", ["x", "w"], ["p"], name="p"), helper.make_node("Elu", ["p"], ["q"], name="q", alpha=alpha),
                 helper.make_node("Add", ["q", "w"], ["y"], name="r")]
        return edits.small(path, nodes, [floats("x", 3)], [floats("y", 3)],
                           [numpy_helper.from_array(np.array([1, 2, last], np.float32), "w")])

    a, b = model(tmp_path / "a.onnx", 3, 1.0), model(tmp_path / "b.onnx", 4, 0.5)
    assert diff(optc, a, b)["changed"] == 3
    rest = diff(optc, a, b, "--ignore=weight")
    assert [(c["kind"], c["node"]) for c in rest["changes"]] == [("attribute", "q")] and (rest["changed"], rest["same"]) == (1, 2)
    none = diff(optc, a, b, "--ignore=weight,attribute", "--exit-code")
    assert none["equal"] and not none["patterns"] and none["same"] == 3
    diff(optc, a, b, "--ignore=edge", "--exit-code", code=1)
    done = subprocess.run([optc, "diff", a, b, "--ignore", "weights"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "weight" in done.stderr


def test_options_of_one_model_are_refused_for_two(optc, tmp_path):
    a = edits.small(tmp_path / "a.onnx", [helper.make_node("Relu", ["x"], ["y"])], [floats("x", "N")], [floats("y", "N")])
    done = subprocess.run([optc, "diff", a, a, "--dim", "N=1"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "error[usage]" in done.stderr


def bundle(optc, model, folder, *options):
    done = subprocess.run([optc, model, "-o", folder, "--name", "net", "-q", *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_two_bundles_by_what_they_compute(optc, tmp_path):
    """The same model twice, in 16 bits, with one weight changed, of another signature; outputs in another order are the same ones."""
    def net(path, scale=1.0, outputs=("y", "z"), name="x"):
        w = np.random.default_rng(3).standard_normal((6, 5)).astype(np.float32)
        w[2, 1] *= scale
        nodes = [helper.make_node("MatMul", [name, "w"], ["y"]), helper.make_node("Relu", [name], ["z"])]
        graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 6])],
                                  [helper.make_tensor_value_info(o, TensorProto.FLOAT, ["n", 5 if o == "y" else 6]) for o in outputs], [numpy_helper.from_array(w, "w")])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
        return path

    def diff(a, b, *options, code=0):
        done = subprocess.run([optc, "diff", a, b, *options], capture_output=True, text=True)
        assert done.returncode == code, done.stdout + done.stderr
        return done

    a = bundle(optc, net(tmp_path / "a.onnx"), tmp_path / "a")
    turned = bundle(optc, net(tmp_path / "t.onnx", outputs=("z", "y")), tmp_path / "t", "--dim", "n=1..8")
    said = json.loads(diff(a, turned, "--exit-code", "--format=json").stdout)
    assert said["equal"] and said["same_weights"] and [o["name"] for o in said["outputs"]] == ["y", "z"] and len(said["sets"]) == 2
    changed = bundle(optc, net(tmp_path / "c.onnx", scale=1.5), tmp_path / "c")
    np.save(tmp_path / "input_0.npy", np.eye(6, dtype=np.float32))
    said = json.loads(diff(a, changed, "--format=json", "--exit-code", "--inputs", tmp_path, code=1).stdout)
    y, z = said["outputs"]
    w = abs(np.random.default_rng(3).standard_normal((6, 5)).astype(np.float32)[2, 1])
    assert not said["same_weights"] and not y["equal"] and z["equal"] and abs(y["max_difference"] - w / 2) < 1e-5
    text = diff(a, changed, "--dim", "n=3").stdout
    assert "differs y" in text and "same   z" in text and "n=3" in text and "other weights" in text
    assert "within y" in diff(a, changed, "--rtol", "0.9", "--exit-code").stdout
    other = bundle(optc, net(tmp_path / "o.onnx", name="v"), tmp_path / "o")
    assert "other inputs" in diff(a, other, code=2).stderr
    assert "with a bundle" in diff(a, tmp_path / "a.onnx", code=2).stderr
    assert "two bundles" in diff(tmp_path / "a.onnx", tmp_path / "t.onnx", "--rtol", "1", code=2).stderr
    (tmp_path / "no").mkdir()
    (tmp_path / "no/manifest.json").write_text("[]")
    assert "not a bundle's" in diff(a, tmp_path / "no", code=2).stderr


def test_model_explorer(optc, tmp_path):
    """The files for Model Explorer: ids that are there and unique, edges between them that are the graph's, and each node mapped at most once."""
    for make, name in ((lambda p: transformer(p, 3), "encoder"), (branches, "branches")):
        path = tmp_path / f"{name}.onnx"
        make(path)
        opted = tmp_path / f"{name}.opt.onnx"
        subprocess.run([optc, "opt", path, "-o", opted, "--opset", "20", "-q"], check=True)
        subprocess.run([optc, "diff", path, opted, "--model-explorer", tmp_path / f"{name}.json", "-q"], check=True, capture_output=True)
        explorer, mapping = json.loads((tmp_path / f"{name}.json").read_text()), json.loads((tmp_path / f"{name}.mapping.json").read_text())
        assert explorer["label"] and [g["id"] for g in explorer["graphs"]] == ["before", "after"]
        for graph, file in zip(explorer["graphs"], (path, opted)):
            nodes = {n["id"]: n for n in graph["nodes"]}
            assert len(nodes) == len(graph["nodes"])
            model = onnx.load(file)

            def count(g):
                return sum(1 + sum(count(a.g) for a in n.attribute if a.type == onnx.AttributeProto.GRAPH) for n in g.node)

            assert sum(n["label"] not in ("input", "output") for n in nodes.values()) == count(model.graph)
            produced = {o["attrs"][0]["value"]: (n["id"], o["id"]) for n in nodes.values() for o in n.get("outputsMetadata", [])}
            for node in model.graph.node:
                drawn = nodes[produced[node.output[0]][0]]
                assert drawn["label"] == node.op_type
                edges = {(e["sourceNodeId"], e["sourceNodeOutputId"], e["targetNodeInputId"]) for e in drawn["incomingEdges"]}
                assert {(*produced[v], str(k)) for k, v in enumerate(node.input) if v in produced} <= edges
            assert all(e["sourceNodeId"] in nodes for n in nodes.values() for e in n["incomingEdges"])
            # A path of groups is of one group: no node's is another's with an empty part.
            assert all(part for n in nodes.values() if n["namespace"] for part in n["namespace"].split("/"))
        left = [i for e in mapping["mappingEntries"] for i in e["leftNodeIds"]]
        right = [i for e in mapping["mappingEntries"] for i in e["rightNodeIds"]]
        ids = [{n["id"] for n in g["nodes"]} for g in explorer["graphs"]]
        assert len(left) == len(set(left)) and set(left) <= ids[0] and len(right) == len(set(right)) and set(right) <= ids[1]
        if name == "encoder":  # nine nodes became one, thrice
            sizes = sorted((len(e["leftNodeIds"]), len(e["rightNodeIds"])) for e in mapping["mappingEntries"])
            assert sizes[-6:] == [(5, 1)] * 3 + [(9, 1)] * 3 and set(sizes[:-6]) == {(1, 1)}, sizes
            assert len({n["namespace"] for n in explorer["graphs"][0]["nodes"]}) > 3
