"""The C ABI of a bundle where callers err, and values whose sizes only the run finds."""

import ctypes
import os
import pathlib
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from abi import BOOL, DEVICE, F32, I64, INVALID, IO, OK, TOO_SMALL, api_of, attempt, build, create, make, value


@pytest.fixture(scope="module")
def scale(optc, tmp_path_factory):
    """y = x * w + b for x [N, 3] and b [N]: one weight file, one dim that two inputs share."""
    weights = helper.make_tensor("w", F32, [3], [1, 2, 3])
    axis = helper.make_tensor("axis", I64, [1], [1])
    nodes = [helper.make_node("Mul", ["x", "w"], ["xw"]), helper.make_node("Unsqueeze", ["b", "axis"], ["column"]),
             helper.make_node("Add", ["xw", "column"], ["y"])]
    return build(optc, tmp_path_factory.mktemp("scale"), "scale",
                 make(nodes, [value("x", ["N", 3]), value("b", ["N"])], [value("y", ["N", 3])], [weights, axis]))


@pytest.mark.parametrize("fields, wanted, text", [
    ({"threads": -1}, INVALID, "threads is -1"),
    ({"threads": 1 << 30}, INVALID, "threads"),
    ({"device_type": 2}, DEVICE, "CUDA"),
    ({"device_type": 77}, INVALID, "device_type is 77"),
    ({"device_type": -2}, INVALID, "device_type is -2"),
    ({"device_id": -1}, INVALID, "device_id is -1"),
    ({"device_type": 1, "device_id": 3}, INVALID, "device_id is 3"),
    ({"struct_size": 0}, INVALID, "struct_size"),
    ({"workspace_bytes": 64}, INVALID, "workspace"),
    ({"weights_path": b"/no/such/file"}, IO, "/no/such/file"),
    ({"weights_path": b"/dev/zero"}, IO, "regular file"),
    ({"weights_path": b"/tmp"}, IO, "regular file"),
])
def test_wrong_options_are_a_status_with_text(scale, fields, wanted, text):
    module, library = scale
    api = api_of(module, library)
    status, context, said = create(module, api, **fields)
    assert (status, context.value) == (wanted, None) and text in said


def test_a_pipe_as_weights_does_not_hold_the_load(scale, tmp_path):
    module, library = scale
    os.mkfifo(tmp_path / "pipe")
    status, _, said = create(module, api_of(module, library), weights_path=str(tmp_path / "pipe").encode())
    assert status == IO and "regular file" in said


def test_options_of_an_older_caller_are_read_as_far_as_they_go(scale):
    module, library = scale
    api = api_of(module, library)
    # Only struct_size, device_type and device_id: what lies behind is not the caller's.
    status, context, said = create(module, api, struct_size=16, threads=-5, weights_path=b"/no/such/file")
    assert status == OK, said
    api.context_destroy(context)


def test_null_arguments_are_a_status_with_text(scale):
    module, library = scale
    api = api_of(module, library)
    status, context, said = create(module, api, threads=1)
    assert status == OK, said
    inputs, outputs, size = (module._Value * 2)(), (module._Value * 1)(), ctypes.c_size_t()
    calls = {
        "weights_load": lambda: api.weights_load(None, None),
        "context_create": lambda: api.context_create(None, None, None),
        "run without context": lambda: api.run(None, inputs, outputs),
        "run_async without context": lambda: api.run_async(None, inputs, outputs, None),
        "cancel": lambda: api.cancel(None),
        "profile": lambda: api.profile(None, 1, None),
        "output_dims without inputs": lambda: api.output_dims(context, None, outputs),
        "output_dims without outputs": lambda: api.output_dims(context, inputs, None),
        "workspace_bytes without inputs": lambda: api.workspace_bytes(None, ctypes.byref(size)),
        "workspace_bytes without a place": lambda: api.workspace_bytes(inputs, None),
    }
    for name, call in calls.items():
        assert call() == INVALID, name
        assert api.last_error(None), name
    for arguments in ((None, outputs), (inputs, None), (inputs, outputs)):
        assert api.run(context, *arguments) == INVALID
        assert api.last_error(context)
    api.weights_release(None)
    api.context_destroy(None)
    assert not api.input_info(2) and not api.output_info(1)
    api.context_destroy(context)


def test_wrong_tensors_are_a_status_with_text(scale):
    module, library = scale
    api = api_of(module, library)
    _, context, _ = create(module, api, threads=1)
    dims = ctypes.c_int64 * 8
    tensors = ("x", [4, 3]), ("b", [4]), ("y", None)
    assert attempt(module, api, context, tensors)[0] == OK
    for changes, wanted, text in (
            ({"device_type": ("x", 2)}, INVALID, "device"), ({"device_type": ("y", 2)}, INVALID, "device"),
            ({"type": ("x", 7)}, INVALID, "type 7"), ({"rank": ("x", 1)}, INVALID, "dims"), ({"rank": ("x", 99)}, INVALID, "dims"),
            ({"rank": ("b", -1)}, INVALID, "dims"), ({"data": ("x", None)}, INVALID, "no data"),
            ({"capacity_bytes": ("x", 8)}, INVALID, "8 bytes"), ({"dims": ("x", dims(-4, 3))}, INVALID, "-4"),
            ({"dims": ("x", dims(4, 5))}, INVALID, "expected"), ({"dims": ("x", dims(1 << 40, 3))}, INVALID, "dim 0"),
            ({"dims": ("b", dims(5))}, INVALID, "expected N = 4"), ({"capacity_bytes": ("y", 8)}, TOO_SMALL, "48 bytes"),
            ({"data": ("y", None)}, TOO_SMALL, "48 bytes")):
        status, said = attempt(module, api, context, tensors, **changes)
        assert status == wanted and text in said, (changes, status, said)
    api.context_destroy(context)


def test_one_name_of_two_sizes_is_told_before_anything_is_compiled(optc, scale, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((4, 3), np.float32))
    np.save(tmp_path / "b.npy", np.zeros(5, np.float32))
    model = pathlib.Path(scale[1]).parent / "scale.onnx"
    environment = {**os.environ, "OPTC_CACHE": str(tmp_path / "cache")}
    said = {}
    for engine in ("bundle", "evaluate"):
        done = subprocess.run([optc, "run", model, "--inputs", tmp_path, "--engine", engine], capture_output=True, text=True, env=environment)
        assert done.returncode == 2, done.stderr
        said[engine] = next(line for line in done.stderr.splitlines() if line.startswith("error"))
    assert said["bundle"] == said["evaluate"] and "'b'" in said["bundle"] and "N = 4" in said["bundle"]
    assert not list(tmp_path.glob("cache/bundles/*/*"))


def test_branches_of_different_sizes(optc, tmp_path):
    """Two Ifs, one inside the other's branch: outputs whose sizes the branches, their kernels and the data decide, used afterwards."""
    zero, one = helper.make_tensor("zero", F32, [], [0]), helper.make_tensor("one", F32, [], [1])
    inner = [helper.make_graph([helper.make_node("Concat", ["x", "positive"], ["long"], axis=0)], "inner_then", [], [value("long", [None])]),
             helper.make_graph([helper.make_node("Neg", ["positive"], ["minus"])], "inner_else", [], [value("minus", [None])])]
    then = helper.make_graph(
        [helper.make_node("Greater", ["x", "zero"], ["keep"]), helper.make_node("Compress", ["x", "keep"], ["positive"], axis=0),
         helper.make_node("If", ["d"], ["chosen"], then_branch=inner[0], else_branch=inner[1])],
        "then", [], [value("positive", [None]), value("chosen", [None]), value("x", ["N"])])
    then.node.append(helper.make_node("Identity", ["x"], ["same"]))
    then.output[2].name = "same"
    other = helper.make_graph(
        [helper.make_node("Concat", ["x", "x", "x"], ["triple"], axis=0), helper.make_node("NonZero", ["x"], ["places"]),
         helper.make_node("Cast", ["places"], ["numbers"], to=F32), helper.make_node("Squeeze", ["numbers", "axis"], ["flat"]),
         helper.make_node("Concat", ["x", "flat"], ["both"], axis=0)],
        "else", [], [value("flat", [None]), value("triple", [None]), value("both", [None])])
    nodes = [helper.make_node("If", ["c"], ["a", "b", "e"], then_branch=then, else_branch=other),
             helper.make_node("Add", ["a", "one"], ["a1"]), helper.make_node("Concat", ["b", "a1", "e"], ["all"], axis=0)]
    model = make(nodes, [value("c", [], BOOL), value("d", [], BOOL), value("x", ["N"])],
                 [value("a", [None]), value("b", [None]), value("all", [None]), value("a1", [None]), value("e", [None])],
                 [zero, one, helper.make_tensor("axis", I64, [1], [0])])
    module, library = build(optc, tmp_path, "branches", model)
    oracle = onnxruntime.InferenceSession(str(tmp_path / "branches.onnx"), providers=["CPUExecutionProvider"])
    run = module.Model(library, threads=1)
    rng = np.random.default_rng(8)
    for n in (1, 40, 3, 0, 700, 2):
        for c, d in ((True, True), (False, False), (True, False), (False, True)):
            feeds = {"c": np.array(c), "d": np.array(d), "x": rng.standard_normal(n).astype(np.float32)}
            got = run(**feeds)
            for name, want in zip([o.name for o in oracle.get_outputs()], oracle.run(None, feeds)):
                np.testing.assert_array_equal(got[name], want, err_msg=f"{name}, {n} elements, {c} {d}")


def test_many_outputs_of_run_time_size(optc, tmp_path):
    """Nine outputs, each of a size that only the run finds: each call tells one more."""
    nodes, outputs = [], []
    for k in range(9):
        limit = f"limit{k}"
        nodes += [helper.make_node("Constant", [], [limit], value=helper.make_tensor("v", F32, [], [k * 100.0])),
                  helper.make_node("Greater", ["x", limit], [f"m{k}"]), helper.make_node("Compress", ["x", f"m{k}"], [f"y{k}"], axis=0)]
        outputs.append(value(f"y{k}", [None]))
    model = make(nodes, [value("x", ["N"])], outputs)
    module, library = build(optc, tmp_path, "many", model)
    x = np.arange(1, 3000, dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    got = module.Model(library, threads=1)(x=x)
    for k in range(9):
        np.testing.assert_array_equal(got[f"y{k}"], x[x > 100 * k])
    subprocess.run([optc, "run", tmp_path / "many.onnx", "--input", f"x=@{tmp_path}/x.npy", "--outputs", tmp_path / "out", "-q"], check=True,
                   env={**os.environ, "OPTC_CACHE": str(tmp_path / "cache")})
    assert onnx.numpy_helper.to_array(onnx.load_tensor(str(tmp_path / "out/output_8.pb"))).size == 3000 - 801


def test_outputs_hold_their_own_strings_and_items(optc, tmp_path):
    """What the caller's inputs hold may change as soon as a run has ended."""
    listed = helper.make_sequence_type_proto(helper.make_tensor_type_proto(F32, [2]))
    nodes = [helper.make_node("Identity", ["s"], ["t"]), helper.make_node("SequenceInsert", ["list", "x"], ["longer"]),
             helper.make_node("SequenceConstruct", ["s", "s"], ["pair"])]
    words = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.STRING, ["N"]))
    model = make(nodes, [value("s", ["N"], TensorProto.STRING), helper.make_value_info("list", listed), value("x", [2])],
                 [value("t", ["N"], TensorProto.STRING), helper.make_value_info("longer", listed), helper.make_value_info("pair", words)])
    module, library = build(optc, tmp_path, "owned", model)
    api = api_of(module, library)
    status, context, said = create(module, api, threads=1)
    assert status == OK, said
    letters, numbers = ctypes.create_string_buffer(b"abcdef"), (ctypes.c_float * 4)(1, 2, 3, 4)
    strings = (module._String * 2)(*((ctypes.addressof(letters) + 3 * k, 3) for k in range(2)))
    given = (module._String * 2)()
    inputs, outputs = (module._Value * 3)(), (module._Value * 3)()

    def fill(tensor, data, size, element, *dims):
        tensor.data, tensor.capacity_bytes, tensor.type, tensor.rank = data, size, element, len(dims)
        tensor.dims[:len(dims)] = dims

    fill(inputs[0].tensor, ctypes.addressof(strings), ctypes.sizeof(strings), 8, 2)
    item = (module._Value * 1)()
    fill(item[0].tensor, ctypes.addressof(numbers), 8, F32, 2)
    sequence = module._Object(kind=1, count=1, items=item)
    inputs[1].object = ctypes.pointer(sequence)
    fill(inputs[2].tensor, ctypes.addressof(numbers) + 8, 8, F32, 2)
    fill(outputs[0].tensor, ctypes.addressof(given), ctypes.sizeof(given), 8)
    assert api.run(context, inputs, outputs) == OK, api.last_error(context)
    ctypes.memset(letters, ord("#"), 6)
    ctypes.memset(strings, 0, ctypes.sizeof(strings))
    ctypes.memset(numbers, 0, 16)

    def texts(address):
        return [ctypes.string_at(s.data, s.size) for s in (module._String * 2).from_address(address)]

    assert texts(ctypes.addressof(given)) == [b"abc", b"def"]
    assert [list((ctypes.c_float * 2).from_address(outputs[1].object.contents.items[k].tensor.data)) for k in range(2)] == [[1, 2], [3, 4]]
    assert [texts(outputs[2].object.contents.items[k].tensor.data) for k in range(2)] == [[b"abc", b"def"]] * 2
    api.context_destroy(context)


def test_a_refused_run_leaves_the_layout_of_the_last_one(optc, tmp_path):
    """Dims of a run that is refused are not those that memory was laid out for: the next run has its own layout."""
    axis = helper.make_tensor("axis", I64, [], [0])
    nodes = [helper.make_node("CumSum", ["x", "axis"], ["s"]), helper.make_node("CumSum", ["s", "axis"], ["t"]),
             helper.make_node("Add", ["t", "b"], ["y"])]
    module, library = build(optc, tmp_path, "twice", make(nodes, [value("x", ["N", 8]), value("b", ["N", 8])], [value("y", ["N", 8])],
                                                          [axis]))
    model = module.Model(str(library), threads=1)

    def run(n, m):
        x, b = np.ones((n, 8), np.float32), np.ones((m, 8), np.float32)
        return model(x, b)["y"]

    assert run(1, 1).tolist() == [[2.0] * 8]
    values = (module._Value * 2)()
    outputs = (module._Value * 1)()
    arrays = np.ones((4000, 8), np.float32), np.ones((3, 8), np.float32), np.empty((4000, 8), np.float32)
    for slot, array in zip([*values, *outputs], arrays):
        slot.tensor.data, slot.tensor.type, slot.tensor.rank, slot.tensor.capacity_bytes = array.ctypes.data, F32, 2, array.nbytes
        slot.tensor.dims[:2] = array.shape
    assert model._api.run(model._context, values, outputs) == INVALID
    n = np.arange(1, 4001, dtype=np.float32)
    np.testing.assert_allclose(run(4000, 4000), np.repeat((n * (n + 1) / 2 + 1)[:, None], 8, 1), rtol=1e-5)
