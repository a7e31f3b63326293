"""Loops whose lanes meet a border, and others that run beside an axis: pools and Pad of images as they come, ArgMax, CumSum, transposes, casts to i64.
As ONNX Runtime computes them, on every instruction set, for sizes that are known and such that are not."""

import os
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from abi import build

F32, U8, I32, I64 = TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT32, TensorProto.INT64
SIZES = [(1, 7, 9), (2, 20, 61), (1, 5, 130)]


def cases():
    """(name, operator, inputs, attributes, type of the result)"""
    pools = {
        "plain": dict(kernel_shape=[3, 3]),
        "padded": dict(kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        "strided": dict(kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
        "thirds": dict(kernel_shape=[2, 5], pads=[0, 2, 1, 1], strides=[1, 3]),
        "dilated": dict(kernel_shape=[2, 3], pads=[1, 2, 0, 2], dilations=[2, 2]),
        "ceiled": dict(kernel_shape=[3, 3], pads=[1, 0, 1, 1], strides=[2, 2], ceil_mode=1),
        "same": dict(kernel_shape=[4, 4], auto_pad="SAME_UPPER"),
    }
    for name, attributes in pools.items():
        yield f"max_{name}", "MaxPool", ["x"], attributes, F32
        yield f"mean_{name}", "AveragePool", ["x"], attributes, F32
        yield f"bytes_{name}", "MaxPool", ["b"], attributes, U8
        if name != "same":
            yield f"whole_{name}", "AveragePool", ["x"], dict(attributes, count_include_pad=1), F32
            yield f"norm_{name}", "LpPool", ["x"], dict(attributes, p=2), F32
    yield "max_line", "MaxPool", ["l"], dict(kernel_shape=[5], pads=[2, 2]), F32
    yield "mean_line", "AveragePool", ["l"], dict(kernel_shape=[4], pads=[3, 0], strides=[2]), F32
    yield "max_volume", "MaxPool", ["v"], dict(kernel_shape=[2, 3, 3], pads=[1, 1, 1, 0, 1, 1]), F32
    yield "mean_volume", "AveragePool", ["v"], dict(kernel_shape=[2, 2, 3], pads=[0, 0, 1, 0, 1, 1], strides=[1, 1, 2]), F32
    for mode in ("constant", "reflect", "edge", "wrap"):
        yield f"pad_{mode}", "Pad", ["x", "margins"], dict(mode=mode), F32
        yield f"cut_{mode}", "Pad", ["x", "cuts"], dict(mode=mode), F32
    yield "pad_bytes", "Pad", ["b", "margins", "grey"], {}, U8
    for axis in (1, 3):
        yield f"first_{axis}", "ArgMax", ["t"], dict(axis=axis), I64
        yield f"last_{axis}", "ArgMin", ["t"], dict(axis=axis, select_last_index=1, keepdims=0), I64
        yield f"hard_{axis}", "Hardmax", ["x"], dict(axis=axis), F32
    for flags in (0, 1, 2, 3):
        for axis in (0, 2):
            yield f"sum_{flags}_{axis}", "CumSum", ["x", f"axis_{axis}"], dict(exclusive=flags & 1, reverse=flags >> 1), F32
    for perm in ([0, 2, 3, 1], [3, 2, 1, 0], [1, 0, 3, 2], [2, 3, 0, 1]):
        yield "turn_" + "".join(map(str, perm)), "Transpose", ["x"], dict(perm=perm), F32
    yield "turn_integers", "Transpose", ["i"], dict(perm=[0, 1, 3, 2]), I32
    yield "wide_floats", "Cast", ["x"], dict(to=I64), I64
    yield "wide_integers", "Cast", ["i"], dict(to=I64), I64
    yield "wide_bytes", "Cast", ["b"], dict(to=I64), I64


def model(size=None):
    n, h, w = size or ("N", "H", "W")
    inputs = [helper.make_tensor_value_info(name, element, dims) for name, element, dims in
              [("x", F32, [n, 3, h, w]), ("t", F32, [n, 3, h, w]), ("b", U8, [n, 3, h, w]), ("i", I32, [n, 3, h, w]), ("l", F32, [n, 3, w]), ("v", F32, [n, 2, 4, h, w])]]
    constants = [numpy_helper.from_array(a, name) for name, a in
                 {"margins": np.array([0, 0, 1, 3, 0, 0, 2, 4]), "cuts": np.array([0, 0, -1, 3, 0, 1, 2, -2]), "grey": np.array(7, np.uint8),
                  "axis_0": np.array(0), "axis_2": np.array(2)}.items()]
    nodes = [helper.make_node(op, given, [name], **attributes) for name, op, given, attributes, _ in cases()]
    ranks = {"l": 3, "v": 5}
    outputs = [helper.make_tensor_value_info(name, type, [None] * (ranks.get(given[0], 4) - (attributes.get("keepdims") == 0)))
               for name, _, given, attributes, type in cases()]
    graph = helper.make_graph(nodes, "borders", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def feeds(size):
    n, h, w = size
    rng = np.random.default_rng(h)
    return {"x": rng.standard_normal((n, 3, h, w), np.float32) * 4, "t": rng.integers(-2, 3, (n, 3, h, w)).astype(np.float32),
            "b": rng.integers(0, 256, (n, 3, h, w)).astype(np.uint8), "i": rng.integers(-2**31, 2**31, (n, 3, h, w)).astype(np.int32),
            "l": rng.standard_normal((n, 3, w), np.float32), "v": rng.standard_normal((n, 2, 4, h, w), np.float32)}


RUN = """
import importlib.util, sys
import numpy as np
spec = importlib.util.spec_from_file_location("borders", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
with np.load(sys.argv[3]) as data:
    results = module.Model(sys.argv[2], threads=int(sys.argv[5]))(**{n: data[n] for n in data.files})
np.savez(sys.argv[4], **{n: np.asarray(a) for n, a in results.items()})
"""


def run(bundle, folder, values, isa, threads):
    module, library = bundle
    np.savez(folder / "x.npz", **values)
    arguments = [module.__file__, library, folder / "x.npz", folder / "y.npz", threads]
    done = subprocess.run([sys.executable, "-c", RUN, *map(str, arguments)], capture_output=True, text=True, env={**os.environ, "OPTC_ISA": isa})
    assert done.returncode == 0, done.stderr[-3000:]
    with np.load(folder / "y.npz") as got:
        return {n: got[n] for n in got.files}


@pytest.fixture(scope="module")
def bundles(optc, tmp_path_factory):
    return {size: build(optc, tmp_path_factory.mktemp("borders"), "borders", model(size)) for size in (None, SIZES[1])}


@pytest.mark.parametrize("size, known", [*((s, None) for s in SIZES), (SIZES[1], SIZES[1])])
def test_as_onnxruntime(bundles, tmp_path, size, known):
    values = feeds(size)
    session = onnxruntime.InferenceSession(model().SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = dict(zip([o.name for o in session.get_outputs()], session.run(None, values)))
    for isa in ("base", "avx2", "avx512"):
        results = [run(bundles[known], tmp_path, values, isa, threads) for threads in (1, 3)]
        for name, want in wanted.items():
            assert results[0][name].tobytes() == results[1][name].tobytes(), f"{name} by 1 and 3 threads on {isa}"
            np.testing.assert_allclose(results[0][name], want, rtol=2e-6, atol=2e-5, err_msg=f"{name} on {isa}")


def test_largest_of_special_values(bundles, tmp_path):
    """NaN wins, padding never does."""
    values = feeds(SIZES[1])
    x = values["x"]
    x.ravel()[::41], x.ravel()[7::53], x.ravel()[11::17] = np.nan, np.inf, -np.inf
    x[0, 0, :6, :8] = -np.inf
    n, c, h, w = x.shape
    around = np.full((n, c, h + 2, w + 2), -np.inf, np.float32)
    around[:, :, 1:-1, 1:-1] = x
    want = np.max(np.lib.stride_tricks.sliding_window_view(around, (3, 3), (2, 3)), (-1, -2))
    for isa in ("base", "avx2", "avx512"):
        for known in (None, SIZES[1]):
            got = run(bundles[known], tmp_path, values, isa, 1)
            np.testing.assert_array_equal(got["max_padded"], want)
            np.testing.assert_array_equal(got["max_strided"], want[:, :, ::2, ::2])
