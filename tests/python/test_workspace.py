"""workspace_bytes and workspace_peak: the memory of a run, known before it."""

import ctypes
import json
import subprocess

import numpy as np
import onnx
import pytest
from onnx import helper

from abi import F32, I64, INVALID, OK, api_of, build, create, make, value

W = np.random.default_rng(5).standard_normal((16, 24), np.float32)
V = np.random.default_rng(6).standard_normal((24, 16), np.float32)


def network():
    """Of x [N, S, 16] and z [M, 16]: temporaries by each of three dims, which live at different times."""
    weights = [onnx.numpy_helper.from_array(W, "w"), onnx.numpy_helper.from_array(V, "v"), helper.make_tensor("axis", I64, [], [0])]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["xw"]), helper.make_node("Relu", ["xw"], ["h"]),
             helper.make_node("MatMul", ["z", "w"], ["zw"]), helper.make_node("CumSum", ["zw", "axis"], ["running"]),
             helper.make_node("MatMul", ["running", "v"], ["zv"]), helper.make_node("CumSum", ["zv", "axis"], ["second"]),
             helper.make_node("MatMul", ["h", "v"], ["hv"]), helper.make_node("Softmax", ["hv"], ["p"]),
             helper.make_node("CumSum", ["p", "axis"], ["y"])]
    return make(nodes, [value("x", ["N", "S", 16]), value("z", ["M", 16])], [value("y", ["N", "S", 16]), value("second", ["M", 16])],
                weights)


def answers(x, z):
    x, z = x.astype(np.float64), z.astype(np.float64)
    hv = np.maximum(x @ W, 0) @ V
    p = np.exp(hv - hv.max(-1, keepdims=True))
    return np.cumsum(p / p.sum(-1, keepdims=True), 0), np.cumsum(np.cumsum(z @ W, 0) @ V, 0)


def tensors(module, arrays):
    values = (module._Value * len(arrays))()
    for slot, array in zip(values, arrays):
        slot.tensor.data, slot.tensor.type, slot.tensor.rank = array.ctypes.data, F32, array.ndim
        slot.tensor.dims[:array.ndim], slot.tensor.capacity_bytes = array.shape, array.nbytes
    return values


def draw(n, s, m):
    rng = np.random.default_rng([n, s, m])
    return rng.standard_normal((n, s, 16), np.float32), rng.standard_normal((m, 16), np.float32)


def needed(module, api, arrays):
    size = ctypes.c_size_t()
    assert api.workspace_bytes(tensors(module, arrays), ctypes.byref(size)) == OK, api.last_error(None)
    return size.value


def peak(api, threads=0):
    size = ctypes.c_size_t()
    return api.workspace_peak(threads, ctypes.byref(size)), size.value, (api.last_error(None) or b"").decode()


@pytest.mark.parametrize("variants", [[], ["--variant", "N=2,S=3", "--variant", "M=5"]])
def test_the_peak_over_the_ranges_holds_and_is_reached(optc, tmp_path, variants):
    module, library = build(optc, tmp_path, "ranged", network(), "--dim", "N=1..3", "--dim", "S=1..6", "--dim", "M=1..40", *variants)
    api, weights = api_of(module, library), str(tmp_path / "ranged/ranged.weights").encode()
    status, most, _ = peak(api)
    assert status == OK
    sizes = [(n, s, m) for n in (1, 2, 3) for s in range(1, 7) for m in (1, 2, 5, 17, 39, 40)]
    measured = {size: needed(module, api, draw(*size)) for size in sizes}
    assert max(measured.values()) == measured[3, 6, 40] == most
    assert json.loads((tmp_path / "ranged/manifest.json").read_text())["peak_bytes"] <= most
    for threads in (1, 3):  # every size in a workspace of the peak, behind which nothing is touched
        status, most, _ = peak(api, threads)
        assert status == OK
        memory = np.full(most + 4096, 0x5A, np.uint8)
        status, context, text = create(module, api, threads=threads, workspace=memory.ctypes.data, workspace_bytes=most, weights_path=weights)
        assert status == OK, text
        for n, s, m in sizes:
            arrays = draw(n, s, m)
            results = np.empty((n, s, 16), np.float32), np.empty((m, 16), np.float32)
            status = api.run(context, tensors(module, arrays), tensors(module, results))
            assert status == OK, api.last_error(context)
            for mine, right in zip(results, answers(*arrays)):
                np.testing.assert_allclose(mine, right, rtol=1e-4, atol=1e-4 * np.abs(right).max())
        assert (memory[most:] == 0x5A).all()
        api.context_destroy(context)
    text = (tmp_path / "ranged/README.md").read_text()
    assert "dim M: 1 to 40" in text and "workspace by dims, at most" in text


def test_a_dim_without_a_bound_is_named(optc, tmp_path):
    module, library = build(optc, tmp_path, "unbounded", network(), "--dim", "N=1..3", "--dim", "M=1..40")
    status, _, text = peak(api_of(module, library))
    assert status == INVALID and "'S'" in text and "'N'" not in text and "--dim" in text
    status, _, text = peak(api_of(module, library), -1)
    assert status == INVALID and "threads is -1" in text
    with pytest.raises(module.Error, match="no upper bound"):
        module.Model(str(library), weights_path=str(tmp_path / "unbounded/unbounded.weights")).workspace_peak()


def test_of_constant_sizes_both_are_one(optc, tmp_path):
    module, library = build(optc, tmp_path, "fixed", network(), "--dim", "N=2", "--dim", "S=3", "--dim", "M=4")
    api = api_of(module, library)
    assert peak(api)[:2] == (OK, needed(module, api, draw(2, 3, 4)))
    arena = json.loads((tmp_path / "fixed/manifest.json").read_text())["arena_bytes"]
    assert peak(api, 1)[1] == arena + 64


def test_inspect_gives_a_formula_and_its_bound(optc, tmp_path):
    onnx.save(network(), tmp_path / "m.onnx")

    def plan(*options):
        done = subprocess.run([optc, "inspect", tmp_path / "m.onnx", "--print-memory-plan", *options], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    ranges = ("--dim", "N=1..3", "--dim", "S=1..6", "--dim", "M=1..40")
    text, report = plan(*ranges), json.loads(plan(*ranges, "--format", "json"))
    assert "at most " in text and "the largest of " in text and report["arena_bytes"] is None
    sums = [formula.replace("^", "**") for formula in report["live_bytes"]]
    largest = max(eval(formula, {"N": 3, "S": 6, "M": 40, "max": max, "min": min}) for formula in sums)
    assert largest <= report["peak_bytes"] <= largest * 1.25 + 64 * len(report["buffers"])
    assert "no bound on 'N', 'S', 'M'" in plan() and json.loads(plan("--format", "json"))["peak_bytes"] is None
    wide = plan("--dim", "N=1..10000000", "--dim", "S=1..10000000", "--dim", "M=1..40")  # more than a process can address is no bound
    assert "no bound on 'N', 'S'" in wide and "'M'" not in wide.split("formula")[0]
    constant = json.loads(plan("--dim", "N=3", "--dim", "S=6", "--dim", "M=40", "--format", "json"))
    assert constant["peak_bytes"] == constant["arena_bytes"]
