"""--alias: inputs and outputs that are one memory of the caller. Caches that are appended to in place and hidden states, over many runs,
beside ONNX Runtime, which gets each past as a tensor of its own; what callers may err in; what is refused."""

import ctypes
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from abi import CUDA, F32, I64, INVALID, OK, TOO_SMALL, Lent, api_of, build, create, make, value

HEADS, WIDTH = 2, 8
INT32 = onnx.TensorProto.INT32
ALIASES = ("--alias", "past_*=present_*", "--alias", "h=h_next")
ROOM = 11  # steps of a cache
UNTOUCHED = -77.0


def decoder(seed=5):
    """A layer of attention over a cache, x [B, S, 16], and a state h [B, 16] that decays to its mean over the steps."""
    rng = np.random.default_rng(seed)
    size = HEADS * WIDTH
    weights = [onnx.numpy_helper.from_array(rng.standard_normal((size, size), np.float32) / 4, f"w_{n}") for n in "qkvo"]
    weights += [helper.make_tensor("split", I64, [4], [0, 0, HEADS, WIDTH]), helper.make_tensor("join", I64, [3], [0, 0, size]),
                helper.make_tensor("scale", F32, [], [WIDTH**-0.5]), helper.make_tensor("decay", F32, [], [0.75]),
                helper.make_tensor("steps", I64, [1], [1])]
    nodes = []
    for n in "qkv":
        nodes += [helper.make_node("MatMul", ["x", f"w_{n}"], [f"{n}_flat"]), helper.make_node("Reshape", [f"{n}_flat", "split"], [f"{n}_split"]),
                  helper.make_node("Transpose", [f"{n}_split"], [n], perm=[0, 2, 1, 3])]
    nodes += [helper.make_node("Concat", ["past_k", "k"], ["present_k"], axis=2), helper.make_node("Concat", ["past_v", "v"], ["present_v"], axis=2),
              helper.make_node("Transpose", ["present_k"], ["kt"], perm=[0, 1, 3, 2]), helper.make_node("MatMul", ["q", "kt"], ["products"]),
              helper.make_node("Mul", ["products", "scale"], ["scores"]), helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
              helper.make_node("MatMul", ["weights", "present_v"], ["seen"]), helper.make_node("Transpose", ["seen"], ["back"], perm=[0, 2, 1, 3]),
              helper.make_node("Reshape", ["back", "join"], ["joined"]), helper.make_node("MatMul", ["joined", "w_o"], ["y"]),
              helper.make_node("ReduceMean", ["y", "steps"], ["mean"], keepdims=0), helper.make_node("Mul", ["h", "decay"], ["less"]),
              helper.make_node("Add", ["less", "mean"], ["sum"]), helper.make_node("Tanh", ["sum"], ["h_next"])]
    caches = {f"{when}_{n}": value(f"{when}_{n}", ["B", HEADS, length, WIDTH])
              for when, length in (("past", "P"), ("present", None)) for n in "kv"}
    return make(nodes, [value("x", ["B", "S", size]), caches["past_k"], caches["past_v"], value("h", ["B", size])],
                [value("y", ["B", "S", size]), caches["present_k"], caches["present_v"], value("h_next", ["B", size])], weights)


@pytest.fixture(scope="module")
def bundle(optc, tmp_path_factory):
    folder = tmp_path_factory.mktemp("alias")
    module, library = build(optc, folder, "decoder", decoder(), *ALIASES, "--variant", "B=1,S=1")
    return folder, module, library


@pytest.fixture(scope="module")
def reference():
    return onnxruntime.InferenceSession(decoder().SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("batch, steps", [(1, [3, 1, 1, 1, 2, 1]), (2, [1, 4, 1, 2]), (3, [ROOM])])
def test_runs_go_on_where_the_one_before_ended(bundle, reference, batch, steps):
    folder, module, library = bundle
    model = module.Model(str(library), threads=2, weights_path=folder / "decoder" / "decoder.weights")
    caches = {name: model.state(name, ROOM, B=batch) for name in ("past_k", "past_v")}
    for cache in caches.values():
        cache.array[:] = UNTOUCHED
    h = np.zeros((batch, 16), np.float32)
    past = {name: np.zeros((batch, HEADS, 0, WIDTH), np.float32) for name in caches}
    h_past, rng = h.copy(), np.random.default_rng(batch)
    for count in steps:
        x = rng.standard_normal((batch, count, 16), np.float32)
        wanted = dict(zip(("y", "present_k", "present_v", "h_next"), reference.run(None, {"x": x, "h": h_past, **past})))
        before = {name: cache.array.copy() for name, cache in caches.items()}
        result = model(x=x, h=h, **caches)
        assert set(result) == set(wanted)
        for name, array in wanted.items():
            np.testing.assert_allclose(result[name], array, rtol=1e-4, atol=2e-5, err_msg=name)
        assert result["h_next"] is h
        for name, cache in caches.items():
            length = past[name].shape[2]
            assert cache.length == length + count and np.shares_memory(result[name.replace("past", "present")], cache.array)
            assert np.array_equal(cache.array[:, :, :length], before[name][:, :, :length]), "what stood there was written again"
            assert (cache.array[:, :, cache.length:] == UNTOUCHED).all(), "behind the end something was written"
        past, h_past = {name: wanted[name.replace("past", "present")] for name in past}, wanted["h_next"]


def workspace_at(module, api, batch, length):
    """What a run of one more step takes at that length of the caches."""
    values, size = (module._Value * api.input_count())(), ctypes.c_size_t()
    dims = {"x": [batch, 1, 16], "h": [batch, 16], "past_k": [batch, HEADS, length, WIDTH], "past_v": [batch, HEADS, length, WIDTH]}
    for i, slot in enumerate(values):
        given = dims[api.input_info(i).contents.name.decode()]
        slot.tensor.type, slot.tensor.rank = F32, len(given)
        slot.tensor.dims[:len(given)] = given
    assert api.workspace_bytes(values, ctypes.byref(size)) == OK, api.last_error(None)
    return size.value


def test_a_layout_of_the_arena_serves_many_lengths(optc, reference, tmp_path):
    """Scores take more with each step; what they lie in is laid out for 64 at a time, and holds them on both sides of that."""
    module, library = build(optc, tmp_path, "decoder", decoder(), *ALIASES, "--dim", "S=1")
    api = api_of(module, library)
    sizes = {length: workspace_at(module, api, 2, length) for length in (1, 40, 64, 65, 128, 129)}
    assert sizes[1] == sizes[40] == sizes[64] < sizes[65] == sizes[128] < sizes[129], sizes
    model = module.Model(str(library), threads=2, weights_path=tmp_path / "decoder" / "decoder.weights")
    caches = {name: model.state(name, 140, B=2) for name in ("past_k", "past_v")}
    h = np.zeros((2, 16), np.float32)
    past, rng = {name: np.zeros((2, HEADS, 0, WIDTH), np.float32) for name in caches}, np.random.default_rng(64)
    h_past = h.copy()
    for _ in range(131):
        x = rng.standard_normal((2, 1, 16), np.float32)
        wanted = dict(zip(("y", "present_k", "present_v", "h_next"), reference.run(None, {"x": x, "h": h_past, **past})))
        result = model(x=x, h=h, **caches)
        for name, array in wanted.items():
            np.testing.assert_allclose(result[name], array, rtol=1e-4, atol=2e-5, err_msg=f"{name} at {past['past_k'].shape[2]}")
        past, h_past = {name: wanted[name.replace("past", "present")] for name in past}, wanted["h_next"]


class OnCard(Lent):
    """A tensor in the emulated card's memory, which the host sees."""

    def __init__(self, array):
        address = ctypes.c_ulonglong()
        assert ctypes.CDLL(os.environ["OPTC_LIBCUDA"]).cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(array.nbytes)) == 0
        memory = (ctypes.c_float * array.size).from_address(address.value)
        super().__init__(np.frombuffer(memory, np.float32).reshape(array.shape), CUDA)
        self.array[:] = array

    def __getitem__(self, index):
        return self.array[index]


@pytest.fixture(scope="module")
def card(optc, tmp_path_factory):
    """The bundle for a GPU, whose driver is the emulator."""
    driver = pathlib.Path(optc).parent.parent / "tests/libemulated_cuda.so"
    if not driver.exists():
        pytest.skip("this build has no GPU targets")
    os.environ["OPTC_LIBCUDA"] = str(driver)
    folder = tmp_path_factory.mktemp("card")
    module, library = build(optc, folder, "decoder", decoder(), *ALIASES, "--target=cpu,sm_80")
    yield module.Model(str(library), device="cuda:0", weights_path=folder / "decoder" / "decoder.weights"), module
    del os.environ["OPTC_LIBCUDA"]


@pytest.mark.parametrize("on_card", [True, False], ids=["card", "host"])
def test_a_cache_on_the_card_stays_there(card, reference, on_card):
    model, module = card
    batch = 2
    arrays = {name: np.full((batch, HEADS, ROOM, WIDTH), UNTOUCHED, np.float32) for name in ("past_k", "past_v")}
    arrays["h"] = np.zeros((batch, 16), np.float32)
    states = {name: module.State(OnCard(array) if on_card else array) for name, array in arrays.items()}
    memory = {name: state.array.array if on_card else state.array for name, state in states.items()}
    h = memory.pop("h")
    past = {name: np.zeros((batch, HEADS, 0, WIDTH), np.float32) for name in memory}
    h_past, rng = h.copy(), np.random.default_rng(1)
    for step, count in enumerate([2, 1, 1]):
        x = rng.standard_normal((batch, count, 16), np.float32)
        wanted = dict(zip(("y", "present_k", "present_v", "h_next"), reference.run(None, {"x": x, "h": h_past, **past})))
        for _ in range(2 if step == 1 else 1):  # dims that come again: by a captured graph
            for name, state in states.items():
                state.length = past[name].shape[2] if name in past else 0
            h[:] = h_past
            result = model(x=x, **states)
            np.testing.assert_allclose(result["y"], wanted["y"], rtol=1e-3, atol=1e-4)
            np.testing.assert_allclose(h, wanted["h_next"], rtol=1e-3, atol=1e-4)
            for name, array in memory.items():
                length = states[name].length
                assert length == past[name].shape[2] + count
                np.testing.assert_allclose(array[:, :, :length], wanted[name.replace("past", "present")], rtol=1e-3, atol=1e-4)
                assert (array[:, :, length:] == UNTOUCHED).all()
        past, h_past = {name: wanted[name.replace("past", "present")] for name in past}, wanted["h_next"]


def test_a_full_cache_is_said_and_a_wrong_state_refused(bundle):
    folder, module, library = bundle
    model = module.Model(str(library), weights_path=folder / "decoder" / "decoder.weights")
    caches = {name: model.state(name, 2, B=1) for name in ("past_k", "past_v")}
    h, x = np.zeros((1, 16), np.float32), np.zeros((1, 3, 16), np.float32)
    with pytest.raises(module.Error, match="output 'present_k' needs 192 bytes, its buffer has 128") as error:
        model(x=x, h=h, **caches)
    assert error.value.status == TOO_SMALL
    caches["past_v"] = model.state("past_v", 5, B=1)
    with pytest.raises(module.Error, match="'past_v' has room for 5 steps, 'past_k' for 2"):
        model(x=x[:, :1], h=h, **caches)
    caches["past_v"] = model.state("past_v", 2, B=1)
    with pytest.raises(TypeError, match="give a State"):
        model(x=x, h=h, past_k=np.zeros((1, HEADS, 2, WIDTH), np.float32), past_v=caches["past_v"])
    with pytest.raises(TypeError, match="writable"):
        model(x=x, h=h.T.astype(np.float64), **caches)
    with pytest.raises(TypeError, match="'x' is no state; the states are"):
        model.state("x", 3)
    with pytest.raises(TypeError, match="the size of 'B' is missing"):
        model.state("past_k", 3)
    with pytest.raises(TypeError, match="the memory of an input"):
        model(x=x, h=h, **caches, out={"h_next": h.copy()})


def test_the_abi_wants_one_memory(bundle):
    folder, module, library = bundle
    api = api_of(module, library)
    assert api.alias_count() == 3 and not api.alias_info(3)
    seen = [(a.input, a.output, a.axis) for a in (api.alias_info(i).contents for i in range(3))]
    assert seen == [(1, 1, 2), (2, 2, 2), (3, 3, -1)]
    status, context, text = create(module, api, weights_path=str(folder / "decoder" / "decoder.weights").encode())
    assert status == OK, text
    memory = [(ctypes.c_float * 4096)() for _ in range(3)]
    y = (ctypes.c_float * 16)()

    def run(**changes):
        values = (module._Value * 4)(), (module._Value * 4)()
        for slots in values:
            for slot, dims, data, room in zip(slots, ([1, 1, 16], [1, HEADS, 4, WIDTH], [1, HEADS, 4, WIDTH], [1, 16]),
                                              (y, *memory), (64, 64 * 6, 64 * 6, 64)):
                slot.tensor.data, slot.tensor.capacity_bytes, slot.tensor.type = ctypes.addressof(data), room, F32
                slot.tensor.rank = len(dims)
                slot.tensor.dims[:len(dims)] = dims
        for field, (side, number, content) in changes.items():
            setattr(values[side][number].tensor, field, content)
        return api.run(context, *values), api.last_error(context).decode()

    assert run()[0] == OK
    for changes, wanted in (({"data": (1, 1, ctypes.addressof(memory[2]))}, "'past_k' and output 'present_k' are one memory"),
                            ({"capacity_bytes": (0, 2, 4096)}, "the memory of 'past_v' and 'present_v' has 4096 bytes here, 384 there"),
                            ({"data": (1, 3, ctypes.addressof(y))}, "'h' and output 'h_next' are one memory")):
        status, text = run(**changes)
        assert status == INVALID and wanted in text
    status, text = run(capacity_bytes=(1, 1, 385))
    assert status == INVALID and "has 384 bytes here, 385 there" in text
    assert run()[0] == OK
    api.context_destroy(context)


def test_cpp_and_c_have_a_parameter_for_the_room(bundle, tmp_path, reference):
    folder, module, library = bundle
    program = tmp_path / "main.cpp"
    program.write_text("""#include <cstdio>
#include "decoder.hpp"
int main() {
  decoder::Model model;
  const int64_t room = 9;
  std::vector<float> k(2 * 8 * room), v(2 * 8 * room), h(16), x(16);
  for (int64_t past = 0; past < 4; ++past) {
    for (int i = 0; i < 16; ++i) x[static_cast<size_t>(i)] = 0.1f * static_cast<float>(i + past);
    const decoder::Outputs out = model.run(x, k, v, h, 1, 1, past, room);
    for (float value : out.y) std::printf("%.9g ", value);
    std::printf("%.9g\\n", h[0]);
  }
  try {
    model.run(x, k, v, h, 1, 1, 9, room);
  } catch (const decoder::Error &error) {
    std::printf("%s\\n", error.what());
  }
}
""")
    sources = sorted(map(str, (folder / "decoder" / "src").glob("*.cpp")))
    command = ["g++", "-std=c++17", "-O0", "-Wall", "-Wextra", "-Werror", f"-I{folder}/decoder/include", f"-I{folder}/decoder/src",
               f'-DOPTC_BUNDLE_FOLDER="{folder}/decoder"', str(program), *sources, "-o", str(tmp_path / "main"), "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    lines = subprocess.run([tmp_path / "main"], check=True, capture_output=True, text=True).stdout.splitlines()
    past = {name: np.zeros((1, HEADS, 0, WIDTH), np.float32) for name in ("past_k", "past_v")}
    h = np.zeros((1, 16), np.float32)
    for step, line in enumerate(lines[:4]):
        x = np.float32(0.1) * np.arange(step, step + 16, dtype=np.float32).reshape(1, 1, 16)
        y, past["past_k"], past["past_v"], h = reference.run(None, {"x": x, "h": h, **past})
        np.testing.assert_allclose(np.array(line.split(), np.float32), [*y.ravel(), h[0, 0]], rtol=1e-4, atol=2e-5)
    assert "output 'present_k' needs" in lines[4]
    header = (folder / "decoder" / "include" / "decoder.h").read_text()
    assert "float *past_k" in header and "float *present_k" not in header and "one memory: past_k and present_k" in header
    assert "one memory: h and h_next" in (folder / "decoder" / "README.md").read_text()
    states = json.loads((folder / "decoder" / "manifest.json").read_text())["states"]
    assert states[0] == {"input": "past_k", "output": "present_k", "in_place": True, "axis": 2, "capacity": "P_capacity"}
    assert states[2] == {"input": "h", "output": "h_next", "in_place": True}


def recurrent(between):
    """An LSTM of S steps whose hidden state goes through `between` before it."""
    rng = np.random.default_rng(1)
    weights = [onnx.numpy_helper.from_array(rng.standard_normal((1, 32, n), np.float32) / 3, name) for name, n in (("w", 4), ("r", 8))]
    nodes = [helper.make_node(between, ["h", *["h"] * (between == "Mul")], ["first"]),
             helper.make_node("LSTM", ["x", "w", "r", "", "", "first", "c"], ["", "h_next", "c_next"], hidden_size=8),
             helper.make_node("Concat", ["past", "h_next"], ["present"], axis=0), helper.make_node("Exp", ["present"], ["y"])]
    return make(nodes, [value("x", ["S", "B", 4]), value("h", [1, "B", 8]), value("c", [1, "B", 8]), value("past", ["P", "B", 8])],
                [value("h_next", [1, "B", 8]), value("c_next", [1, "B", 8]), value("present", [None, "B", 8]), value("y", [None, "B", 8])], weights)


def one_node(op, inputs, dims, result, opset, **attributes):
    """A cache that an operator writes, and a reader of it; floats, but integers for "at"."""
    reader = helper.make_node("Relu", ["present"], ["y"])
    model = make([helper.make_node(op, inputs, ["present"], **attributes), reader],
                 [value(n, d, I64 if n == "at" else F32) for n, d in zip(inputs, dims)], [value("present", result), value("y", result)])
    model.opset_import[0].version = opset
    return model


def attention():
    caches = [value(f"past_{n}", ["B", HEADS, "P", WIDTH]) for n in ("key", "value")]
    model = make([helper.make_node("Attention", ["q", "k", "v", "", "past_key", "past_value"], ["y", "present_key", "present_value"])],
                 [*(value(n, ["B", HEADS, "S", WIDTH]) for n in "qkv"), *caches],
                 [value("y", ["B", HEADS, "S", WIDTH]), *(value(f"present_{n}", ["B", HEADS, None, WIDTH]) for n in ("key", "value"))])
    model.opset_import[0].version = 23
    return model


WRITERS = {
    "attention": (attention(), ["past_*=present_*"], "2 states in place"),
    "tensor_scatter": (one_node("TensorScatter", ["past", "new", "at"], [["B", 2, 16, 8], ["B", 2, 1, 8], ["B"]], ["B", 2, 16, 8], 24, axis=-2),
                       ["past=present"], "1 state in place"),
    "scatter_elements": (one_node("ScatterElements", ["past", "at", "new"], [[4, 16], [4, 1], [4, 1]], [4, 16], 18, axis=1), ["past=present"],
                         "1 state in place"),
    "scatter_nd": (one_node("ScatterND", ["past", "at", "new"], [[6, 4], [2, 1], [2, 4]], [6, 4], 18), ["past=present"], "1 state in place"),
    "lstm": (recurrent("Identity"), ["h=h_next", "c=c_next", "past=present"], "1 of 3 states in place"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_operators_that_write_a_state(optc, tmp_path, name):
    model, aliases, wanted = WRITERS[name]
    onnx.save(model, tmp_path / "m.onnx")
    env = {**os.environ, "OPTC_PYTHON": sys.executable}
    options = [part for alias in aliases for part in ("--alias", alias)]
    done = subprocess.run([optc, "verify", tmp_path / "m.onnx", *options, "--engine=evaluate"], env=env, capture_output=True, text=True)
    assert done.returncode == 0 and "of 3 steps" in done.stdout, done.stdout + done.stderr
    assert wanted in done.stderr, done.stderr


def grouped(room):
    """GroupQueryAttention over caches of `room` steps, before and behind it; seqlens says how many hold values."""
    angles = np.random.default_rng(7).uniform(0, 6, (20, 8))
    tables = [onnx.numpy_helper.from_array(f(angles).astype(np.float32), name) for name, f in (("cos", np.cos), ("sin", np.sin))]
    operands = ["q", "k", "v", "past_k", "past_v", "seqlens", "total", "cos", "sin"]
    node = helper.make_node("GroupQueryAttention", operands, ["y", "present_k", "present_v"], domain="com.microsoft", num_heads=4, kv_num_heads=2,
                            do_rotary=1, local_window_size=5)
    model = make([node], [value("q", ["B", "S", 64]), value("k", ["B", "S", 32]), value("v", ["B", "S", 32]),
                          *(value(f"past_{n}", ["B", 2, room, 16]) for n in "kv"), value("seqlens", ["B"], INT32), value("total", [], INT32)],
                 [value("y", ["B", "S", 64]), *(value(f"present_{n}", ["B", 2, room, 16]) for n in "kv")], tables)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def test_buffers_of_grouped_attention_are_written_in_place(optc, tmp_path):
    room, batch, rng = 12, 2, np.random.default_rng(3)
    onnx.save(grouped("P"), tmp_path / "open.onnx")
    command = [optc, tmp_path / "open.onnx", "-o", tmp_path / "open", "--alias", "past_*=present_*"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "--dim" in done.stderr, done.stderr
    done = subprocess.run([*command, "--dim", f"P={room}", "-n"], capture_output=True, text=True)
    assert done.returncode == 0 and "2 states in place" in done.stderr, done.stderr
    module, library = build(optc, tmp_path, "grouped", grouped("P"), "--dim", f"P={room}", "--alias", "past_*=present_*")
    model = module.Model(str(library), threads=2, weights_path=tmp_path / "grouped" / "grouped.weights")
    session = onnxruntime.InferenceSession(grouped("P").SerializeToString(), providers=["CPUExecutionProvider"])
    caches = {f"past_{n}": np.zeros((batch, 2, room, 16), np.float32) for n in "kv"}
    past = {name: cache.copy() for name, cache in caches.items()}
    filled = np.zeros(batch, np.int32)
    for step, new in enumerate([[4, 2], [1, 1], [1, 1], [1, 1]]):  # rows of a prompt end in padding
        filled += np.array(new, np.int32)
        length = max(new)
        feeds = {n: rng.standard_normal((batch, length, width), np.float32) for n, width in (("q", 64), ("k", 32), ("v", 32))}
        feeds |= {"seqlens": filled - 1, "total": np.array(filled.max(), np.int32)}
        wanted = dict(zip(("y", "present_k", "present_v"), session.run(None, {**feeds, **past})))
        result = model(**feeds, **caches)
        for row in range(batch):  # what stands behind a row's end says nothing
            for name, end in (("y", new[row]), ("present_k", filled[row]), ("present_v", filled[row])):
                axis = 0 if name == "y" else 1
                np.testing.assert_allclose(result[name][row].take(range(end), axis), wanted[name][row].take(range(end), axis), rtol=1e-4, atol=2e-5,
                                           err_msg=f"{name} of row {row} in step {step}")
        past = {name: wanted[name.replace("past", "present")] for name in past}
        assert all(np.shares_memory(result[name.replace("past", "present")], cache) for name, cache in caches.items())
    feeds |= {"seqlens": np.full(batch, room, np.int32), "total": np.array(room + 1, np.int32)}
    with pytest.raises(Exception, match="an index is outside its dimension"):
        model(**feeds, **caches)


@pytest.mark.tier2
@pytest.mark.parametrize("options", [["--per-kernel"], ["--target=cpu,sm_80"]], ids=["watched", "mixed"])
def test_states_of_a_watched_bundle_and_of_one_with_kernels_on_both(optc, tmp_path, options):
    onnx.save(recurrent("Mul"), tmp_path / "m.onnx")
    driver = pathlib.Path(optc).parent.parent / "tests/libemulated_cuda.so"
    if "--per-kernel" not in options and not driver.exists():
        pytest.skip("this build has no GPU targets")
    env = {**os.environ, "OPTC_PYTHON": sys.executable, "OPTC_LIBCUDA": str(driver), "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run([optc, "verify", tmp_path / "m.onnx", "--alias=h=h_next", "--alias=c=c_next", "--alias=past=present", "--sets=1",
                           *options], env=env, capture_output=True, text=True)
    assert done.returncode == 0 and "1 input set of 3 steps" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("engine", [pytest.param("bundle", marks=pytest.mark.tier2), "evaluate"])
def test_verify_takes_several_steps(optc, tmp_path, engine):
    onnx.save(decoder(), tmp_path / "decoder.onnx")
    env = {**os.environ, "OPTC_PYTHON": sys.executable, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run([optc, "verify", tmp_path / "decoder.onnx", *ALIASES, f"--engine={engine}"], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 input sets of 3 steps" in done.stdout and "3 states in place" in done.stderr


def test_run_takes_a_past_from_files(optc, tmp_path, reference):
    onnx.save(decoder(), tmp_path / "decoder.onnx")
    rng = np.random.default_rng(4)
    given = {"x": rng.standard_normal((2, 2, 16), np.float32), "h": rng.standard_normal((2, 16), np.float32),
             **{name: rng.standard_normal((2, HEADS, 3, WIDTH), np.float32) for name in ("past_k", "past_v")}}
    for name, array in given.items():
        np.save(tmp_path / f"{name}.npy", array)
    files = [part for name in given for part in ("--input", f"{name}=@{tmp_path / name}.npy")]
    subprocess.run([optc, "run", tmp_path / "decoder.onnx", *ALIASES, *files, "--engine=evaluate", "--outputs", tmp_path / "out", "-q"], check=True)
    for i, wanted in enumerate(reference.run(None, given)):
        tensor = onnx.TensorProto.FromString((tmp_path / "out" / f"output_{i}.pb").read_bytes())
        np.testing.assert_allclose(onnx.numpy_helper.to_array(tensor), wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("alias, code, text", [
    ("past_k", 2, "expected INPUT=OUTPUT"),
    ("past_*=present_k", 2, "expected INPUT=OUTPUT"),
    ("nobody=y", 2, "the model has no input 'nobody'"),
    ("h=nobody", 2, "the model has no output 'nobody'"),
    ("cache_*=present_*", 2, "no input has the form 'cache_*'"),
    ("past_*=now_*", 2, "'now_k', which is no output"),
    ("x=h_next", 2, "the input is f32[B,S,16], the output f32[B,16]"),
    ("past_k=present_v", 4, "not the input with something behind it"),
])
def test_what_is_no_state_is_refused_and_nothing_is_left(optc, tmp_path, alias, code, text):
    onnx.save(decoder(), tmp_path / "decoder.onnx")
    done = subprocess.run([optc, tmp_path / "decoder.onnx", "-o", tmp_path / "out", "--alias", alias], capture_output=True, text=True)
    assert done.returncode == code and text in done.stderr and done.stderr.count("error") == 1, done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["decoder.onnx"]


def test_what_cannot_be_in_place_is_copied_and_said(optc, tmp_path):
    """h is read by a product while its own elements are written: one copy, the same answers."""
    weights = [onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32)[::-1].copy(), "w")]
    nodes = [helper.make_node("MatMul", ["h", "w"], ["g"]), helper.make_node("Add", ["g", "x"], ["h_next"])]
    model = make(nodes, [value("h", [1, 4]), value("x", [1, 4])], [value("h_next", [1, 4])], weights)
    onnx.save(model, tmp_path / "cell.onnx")
    done = subprocess.run([optc, tmp_path / "cell.onnx", "-o", tmp_path / "x", "--alias", "h=h_next"], capture_output=True, text=True)
    assert done.returncode == 0 and "0 of 1 state in place" in done.stderr and "copied each run: h: " in done.stderr, done.stderr
    module, library = build(optc, tmp_path, "cell", model, "--alias", "h=h_next")
    cell = module.Model(str(library))
    h = np.arange(4, dtype=np.float32).reshape(1, 4)
    for _ in range(3):
        wanted = h[:, ::-1] + np.float32(0.5)
        cell(h=h, x=np.full((1, 4), 0.5, np.float32))
        np.testing.assert_array_equal(h, wanted)
