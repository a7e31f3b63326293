"""optc convert: the forms of a model, where its weights lie, what a form cannot hold."""

import json
import pathlib
import resource
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper


def convert(optc, source, out, *options, code=0):
    done = subprocess.run([optc, "convert", source, "-o", out, *options], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    assert done.stderr.count("error[") == (code != 0), done.stderr
    return done


def tensors_of(message):
    """Every TensorProto of a message, wherever it stands."""
    if isinstance(message, TensorProto):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                yield from tensors_of(part)


def plain(path):
    """The model with all data inside, each tensor's in raw_data: the same model has the same bytes."""
    model = onnx.load(path)
    for tensor in tensors_of(model):
        if tensor.data_type == TensorProto.STRING:
            continue
        packed = tensor.data_type in (TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1, TensorProto.INT2, TensorProto.UINT2)
        raw = tensor.raw_data if tensor.HasField("raw_data") or packed else numpy_helper.to_array(tensor).tobytes()
        if packed and not tensor.HasField("raw_data"):
            raw = bytes(v & 255 for v in tensor.int32_data)
        for name in ("float_data", "int32_data", "int64_data", "uint64_data", "double_data", "data_location", "external_data"):
            tensor.ClearField(name)
        tensor.raw_data = raw
    return model


def canonical(message):
    """The set fields of a message as plain values; what is set to its default counts as not set."""
    out = {}
    for field, value in message.ListFields():
        if field.message_type is not None:
            out[field.name] = [canonical(part) for part in value] if field.is_repeated else canonical(value)
        elif field.is_repeated or value != field.default_value:
            out[field.name] = repr(list(value) if field.is_repeated else value)
    return out


def same(a, b):
    a, b = plain(a), plain(b)
    assert canonical(a) == canonical(b)
    assert not any(len(t.external_data) for t in tensors_of(b))


def network(path, external=False, **metadata):
    """A small network with weights of many sizes, names that are no identifiers, a subgraph, a function, defaults of inputs."""
    rng = np.random.default_rng(7)
    weight = numpy_helper.from_array(rng.standard_normal((64, 32)).astype(np.float32), "/layer.0/weight")
    odd = numpy_helper.from_array(np.array([-0.0, 0.0, np.inf, -np.inf, 1e-45, 3.4028235e38, 1 / 3], np.float32), "odd values")
    halves = numpy_helper.from_array(rng.standard_normal(300).astype(np.float16), "halves")
    numbers = numpy_helper.from_array(np.array([-(2**63), 2**63 - 1], np.int64), "numbers")
    words = numpy_helper.from_array(np.array(["a \"quoted\" word", "back\\slash", "two\nlines", ""], object), "words")
    then = helper.make_graph([helper.make_node("Mul", ["h", "h"], ["t"])], "then", [], [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)])
    orelse = helper.make_graph(
        [helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(rng.standard_normal((1, 100)).astype(np.float32))),
         helper.make_node("Gather", ["c", "index"], ["g"], axis=1), helper.make_node("Mul", ["h", "g"], ["e"])],
        "else", [], [helper.make_tensor_value_info("e", TensorProto.FLOAT, None)], [numpy_helper.from_array(np.arange(32), "index")])
    nodes = [
        helper.make_node("MatMul", ["x", "/layer.0/weight"], ["h"], name="/layer.0/MatMul"),
        helper.make_node("If", ["flag"], ["i"], then_branch=then, else_branch=orelse),
        helper.make_node("Twice", ["i"], ["y"], domain="my.ops"),
        helper.make_node("Unheard", ["odd values", "", "halves"], ["z"], domain="com.nobody", list=[1.5, -0.0], text="é", none=[1]),
    ]
    function = helper.make_function("my.ops", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)])
    graph = helper.make_graph(
        nodes, "a graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch size", 64]), helper.make_tensor_value_info("flag", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch size", 32])],
        [weight, odd, halves, numbers, words, numpy_helper.from_array(np.array(True), "flag")],
        value_info=[helper.make_tensor_value_info("h", TensorProto.FLOAT, [None, 32])])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.ops", 1), helper.make_opsetid("com.nobody", 3)]
    model = helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=8, producer_name="a \"test\"")
    helper.set_model_props(model, {"key one": "value\nof two lines", **metadata})
    onnx.save(model, path, save_as_external_data=external, location=path.name + ".w", size_threshold=100)
    return path


FORMS = ["onnxtxt", "json", "textproto"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("external", [False, True])
def test_every_form_holds_the_model(optc, tmp_path, form, external):
    model = network(tmp_path / "model.onnx", external)
    convert(optc, model, tmp_path / f"other.{form}")
    assert (tmp_path / f"other.{form}.data").exists() == external
    convert(optc, tmp_path / f"other.{form}", tmp_path / "back.onnx")
    same(model, tmp_path / "back.onnx")
    # and the Python package reads it as its own
    text = (tmp_path / f"other.{form}").read_text()
    read = onnx.parser.parse_model(text) if form == "onnxtxt" else onnx.load_model_from_string(text.encode(), format=form)
    assert [n.op_type for n in read.graph.node] == ["MatMul", "If", "Twice", "Unheard"]


def test_the_same_bytes_from_two_runs(optc, tmp_path):
    model = network(tmp_path / "model.onnx")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for form in ["onnx", *FORMS]:
            convert(optc, model, tmp_path / name / f"m.{form}", "--external-data", "w", "--threshold=0")
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_weights_go_out_and_come_back(optc, tmp_path):
    model = network(tmp_path / "model.onnx")
    (tmp_path / "out").mkdir()
    for threshold, outside in ((1024, 1), (300, 2), (0, None)):
        convert(optc, model, tmp_path / "out/split.onnx", "--external-data", "split.weights", f"--threshold={threshold}")
        split = onnx.load(tmp_path / "out/split.onnx", load_external_data=False)
        found = [t for t in tensors_of(split) if t.data_location == TensorProto.EXTERNAL]
        assert len(found) == (6 if outside is None else outside)  # initializers only: runtimes want attributes inside
        same(model, tmp_path / "out/split.onnx")
        onnx.checker.check_model(str(tmp_path / "out/split.onnx"))
    convert(optc, tmp_path / "out/split.onnx", tmp_path / "one.onnx", "--external-data=none")
    assert not (tmp_path / "one.onnx.data").exists()
    same(model, tmp_path / "one.onnx")


def test_tensors_that_share_bytes_share_them_outside(optc, tmp_path):
    model = network(tmp_path / "model.onnx", external=True)
    proto = onnx.load(model, load_external_data=False)
    twin = proto.graph.initializer.add()
    twin.CopyFrom(next(t for t in proto.graph.initializer if t.name == "/layer.0/weight"))
    twin.name = "twin"
    onnx.save(proto, model)
    convert(optc, model, tmp_path / "out.onnx")
    places = [{e.key: e.value for e in t.external_data} for t in onnx.load(tmp_path / "out.onnx", load_external_data=False).graph.initializer if t.name in ("twin", "/layer.0/weight")]
    assert places[0] == places[1]
    same(model, tmp_path / "out.onnx")


def test_what_a_form_cannot_hold_is_said(optc, tmp_path):
    model = onnx.load(network(tmp_path / "model.onnx"))
    model.doc_string = "kept"  # the text has it
    model.graph.node[0].doc_string = "of a node"
    for node in model.graph.node[:2]:
        entry = node.metadata_props.add()
        entry.key, entry.value = "k", "v"
    onnx.save(model, tmp_path / "model.onnx")
    done = convert(optc, tmp_path / "model.onnx", tmp_path / "m.onnxtxt", code=4)
    assert "cannot hold doc_string of 1 node, metadata_props of 2 nodes" in done.stderr and "--allow-loss" in done.stderr
    assert not (tmp_path / "m.onnxtxt").exists()
    done = convert(optc, tmp_path / "model.onnx", tmp_path / "m.onnxtxt", "--allow-loss")
    assert "warning" in done.stderr and "doc_string of 1 node, metadata_props of 2 nodes" in done.stderr
    convert(optc, tmp_path / "m.onnxtxt", tmp_path / "back.onnx")
    for node in model.graph.node:
        node.ClearField("doc_string")
        node.ClearField("metadata_props")
    onnx.save(model, tmp_path / "want.onnx")
    same(tmp_path / "want.onnx", tmp_path / "back.onnx")
    for form in ("json", "textproto"):
        convert(optc, tmp_path / "model.onnx", tmp_path / f"m.{form}")


def test_bits_of_nan_are_information(optc, tmp_path):
    bits = np.array([0x7FC00000, 0x7FC00001, 0xFFC00000], np.uint32).view(np.float32)
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])], [numpy_helper.from_array(bits, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    done = convert(optc, tmp_path / "m.onnx", tmp_path / "m.onnxtxt", code=4)
    assert "bits of NaN of 1 tensor" in done.stderr
    convert(optc, tmp_path / "m.onnx", tmp_path / "m.json")
    convert(optc, tmp_path / "m.json", tmp_path / "back.onnx")
    same(tmp_path / "m.onnx", tmp_path / "back.onnx")


def test_packed_elements_in_text_need_a_file(optc, tmp_path):
    q = helper.make_tensor("q", TensorProto.INT4, [3], b"\x21\x07", raw=True)
    graph = helper.make_graph([helper.make_node("DequantizeLinear", ["q", "s"], ["y"])], "g", [helper.make_tensor_value_info("s", TensorProto.FLOAT, [])], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])], [q])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "m.onnx")
    done = convert(optc, tmp_path / "m.onnx", tmp_path / "m.onnxtxt", code=4)
    assert "initializer 'q'" in done.stderr and "INT4" in done.stderr
    convert(optc, tmp_path / "m.onnx", tmp_path / "m.onnxtxt", "--external-data=w", "--threshold=0")
    convert(optc, tmp_path / "m.onnxtxt", tmp_path / "back.onnx", "--external-data=none")
    same(tmp_path / "m.onnx", tmp_path / "back.onnx")


def test_training_and_unknown_fields_stay(optc, tmp_path):
    model = onnx.load(network(tmp_path / "model.onnx"))
    training = model.training_info.add()
    training.algorithm.name = "step"
    training.algorithm.initializer.append(numpy_helper.from_array(np.arange(500, dtype=np.float32), "moment"))
    note = model.graph.quantization_annotation.add()
    note.tensor_name = "h"
    unknown = b"\xca\x3e\x05later"  # field 1001, of a newer ONNX
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString() + unknown)
    convert(optc, tmp_path / "model.onnx", tmp_path / "out.onnx", "--external-data=w")
    convert(optc, tmp_path / "out.onnx", tmp_path / "back.onnx", "--external-data=none")
    same(tmp_path / "model.onnx", tmp_path / "back.onnx")
    assert (tmp_path / "back.onnx").read_bytes().endswith(unknown)


def test_files_that_the_model_is_read_from_are_kept(optc, tmp_path):
    model = network(tmp_path / "model.onnx", external=True)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert "--force" in convert(optc, model, model, code=2).stderr
    assert "--force" in convert(optc, model, tmp_path / "other.onnx", "--external-data=model.onnx.w", code=2).stderr
    for place in ("/tmp/w", "../w", "", "a/../../w"):
        if place:
            convert(optc, model, tmp_path / "other.onnx", f"--external-data={place}", code=2)
    convert(optc, model, tmp_path / "other.onnx", "--external-data=other.onnx", code=2)
    convert(optc, model, tmp_path / "other.txt", code=2)
    convert(optc, model, tmp_path / "none/other.onnx", code=2)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    convert(optc, model, model, "--force", "--external-data=none")
    (tmp_path / "old").mkdir()
    for name, data in before.items():
        (tmp_path / "old" / name).write_bytes(data)
    same(tmp_path / "old/model.onnx", model)


def limited():
    resource.setrlimit(resource.RLIMIT_STACK, (8 << 20, 8 << 20))


@pytest.mark.parametrize("name,text", [
    ("deep.onnxtxt", '<ir_version: 8, opset_import: ["" : 17]> g (' + "seq(" * 200_000 + "float x) => (float y) { y = Relu (x) }"),
    ("deep.json", '{"graph":' * 50_000 + "{}" + "}" * 50_000),
    ("deep.textproto", "graph { node { attribute { g {" * 50_000),
    ("cut.json", '{"irVersion": "8", "graph": {'),
    ("no_graph.json", '{"irVersion": "8"}'),
    ("wrong.json", '{"graph": {"noSuchField": 1}}'),
    ("wrong.onnxtxt", "<ir_version: 8> g (float x) => (float y) { y = }"),
    ("number.onnxtxt", '<ir_version: 99999999999999999999999, opset_import: ["" : 17]> g (float x) => (float y) { y = Relu (x) }'),
    ("huge.onnxtxt", '<ir_version: 8, opset_import: ["" : 17]> g () => (float[4611686018427387904,4] y) <float[4611686018427387904,4] w = {1}> { y = Relu (w) }'),
    ("short.onnxtxt", '<ir_version: 8, opset_import: ["" : 17]> g () => (float[4] y) <float[4] w = {1}> { y = Relu (w) }'),
    ("leaves.onnxtxt", '<ir_version: 8, opset_import: ["" : 17]> g () => (float[4] y) <float[4] w = ["location": "../../etc/passwd"]> { y = Relu (w) }'),
    ("past.onnxtxt", '<ir_version: 8, opset_import: ["" : 17]> g () => (float[400] y) <float[400] w = ["location": "past.onnxtxt"]> { y = Relu (w) }'),
    ("note.onnxtxt", '<ir_version: 8, opset_import: ["" : 17]> g () => (float[400] y) <float[400] w = ["optc.weight": "77"]> { y = Relu (w) }'),
    ("empty.onnx", ""),
    ("noise.onnx", "\x00\x01\x02\x03"),
])
def test_wrong_files_end_in_one_error(optc, tmp_path, name, text):
    (tmp_path / name).write_text(text)
    for command in (["convert", name, "-o", "out.onnx"], ["inspect", name]):
        done = subprocess.run([optc, *command], cwd=tmp_path, capture_output=True, text=True, timeout=60, preexec_fn=limited)
        assert done.returncode == 3, (command, done.returncode, done.stderr)
        assert done.stderr.count("error[") == 1 and len(done.stderr) < 2000
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_json_of_what_was_written(optc, tmp_path):
    model = network(tmp_path / "model.onnx")
    done = convert(optc, model, tmp_path / "m.onnx", "--external-data=m.weights", "--format=json")
    said = json.loads(done.stdout)
    assert said["read_as"] == "binary" and said["form"] == "binary" and said["nodes"] == 9 and said["opsets"]["ai.onnx"] == 17
    assert [(pathlib.Path(f["path"]).name, f["bytes"]) for f in said["files"]] == [(n, (tmp_path / n).stat().st_size) for n in ("m.onnx", "m.weights")]


def test_shared_cases_in_every_form(optc, shared, tmp_path):
    folders = sorted((shared / "cases").glob("*/model.onnx"))
    assert folders
    for i, model in enumerate(folders):
        form = FORMS[i % 3]
        packed = any(t.data_type in (TensorProto.INT4, TensorProto.UINT4) for t in tensors_of(onnx.load(model)))
        outside = ["--external-data=w", "--threshold=0"] if packed and form == "onnxtxt" else []
        convert(optc, model, tmp_path / f"m.{form}", *outside)
        convert(optc, tmp_path / f"m.{form}", tmp_path / "back.onnx")
        same(model, tmp_path / "back.onnx")
