"""Products by weights of 2, 4 and 8 bits that are quantized in blocks: MatMulNBits and DequantizeLinear. They stay packed in the bundle, and what is
computed is ONNX Runtime's on every instruction set."""

import dataclasses
import os
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from abi import build

FLOATS = {"f32": (np.float32, TensorProto.FLOAT), "f16": (np.float16, TensorProto.FLOAT16), "bf16": (ml_dtypes.bfloat16, TensorProto.BFLOAT16)}
INTEGERS = {"i4": TensorProto.INT4, "u4": TensorProto.UINT4, "i8": TensorProto.INT8, "u8": TensorProto.UINT8}


def packed(numbers, bits):
    each = 8 // bits
    numbers = np.concatenate([numbers, np.zeros((*numbers.shape[:-1], -numbers.shape[-1] % each), numbers.dtype)], -1)
    parts = numbers.reshape(*numbers.shape[:-1], -1, each).astype(np.uint16)
    return (parts << (np.arange(each, dtype=np.uint16) * bits)).sum(-1).astype(np.uint8)


@dataclasses.dataclass
class Case:
    name: str
    k: int
    n: int
    block: int
    kind: str = "nbits"   # or the type of a DequantizeLinear
    bits: int = 4
    zero: str = ""        # "", "packed", "float"
    bias: bool = False
    type: str = "f32"
    axis: int = 0         # of a DequantizeLinear: 0 its weights are [K, N], 1 they are [N, K] and transposed
    batch: tuple = ()     # dims before the rows
    runs: str = "gemm.blocks"  # the schedule of the product: that one keeps the weights packed
    level: int = 0        # MatMulNBits: 4 has activations rounded to 8 bits in blocks


CASES = [
    Case("plain", 64, 96, 32),
    Case("ragged", 77, 35, 16, bias=True),
    Case("one_column", 40, 1, 32, runs="loops"),
    Case("zeros", 300, 65, 128, zero="packed"),
    Case("wide_blocks", 520, 48, 256, zero="packed", bias=True),
    Case("float_zeros", 96, 33, 32, zero="float", runs="gemm"),  # small ones are dequantized by the optimizer
    Case("bytes", 77, 19, 32, bits=8, zero="packed"),
    Case("bytes_centered", 64, 19, 32, bits=8),
    Case("two_bits", 64, 17, 16, bits=2, zero="packed"),
    Case("half", 96, 40, 32, type="f16", zero="packed"),
    Case("long", 2100, 70, 64, zero="packed"),
    Case("batches", 48, 32, 16, batch=(2, 3)),
    Case("i4_columns", 64, 40, 32, kind="i4"),
    Case("u4_rows", 64, 40, 16, kind="u4", axis=1, zero="packed"),
    Case("i8_whole", 70, 40, 0, kind="i8"),
    Case("u8_blocks", 72, 40, 8, kind="u8", zero="packed"),
    Case("i8_rows_half", 64, 24, 32, kind="i8", axis=1, type="f16"),
    Case("u4_brain", 64, 24, 32, kind="u4", type="bf16", zero="packed"),
    Case("bytes_plain", 64, 96, 32, level=4),
    Case("bytes_ragged", 77, 35, 16, bias=True, zero="packed", level=4),
    Case("bytes_short", 20, 35, 32, zero="packed", level=4),
    Case("bytes_column", 96, 1, 32, level=4, runs="loops"),
    Case("bytes_wide", 520, 48, 256, zero="packed", bias=True, level=4),
    Case("bytes_long", 2100, 70, 64, level=4),
    Case("bytes_of_eight", 96, 19, 32, bits=8, zero="packed", level=4),
    Case("bytes_of_eight_centered", 77, 40, 32, bits=8, level=4),
    Case("bytes_of_two", 64, 17, 32, bits=2, zero="packed", level=4),
    Case("bytes_of_half", 96, 40, 32, type="f16", zero="packed", level=4),
    Case("bytes_batches", 48, 32, 16, batch=(2, 3), level=4),
    Case("float_zeros_4", 96, 33, 32, zero="float", level=4, runs="gemm"),
    Case("wider_than_there_are", 1024, 33, 512, level=4),
    Case("odd_blocks", 60, 24, 20, kind="u4", zero="packed", runs="gemm"),  # a word of eight numbers has two scales
]


def rounds(case):
    """Whether ONNX Runtime rounds activations, too."""
    return case.level == 4 and case.zero != "float" and (32 <= case.block <= 128 if case.bits == 2 else case.block <= 256)


def rounded(x, block):
    """Activations in 8 bits by blocks, as docs/guide/numerics.md says."""
    k = x.shape[-1]
    whole = np.zeros((*x.shape[:-1], -(-k // block) * block), np.float32)
    whole[..., :k] = x
    whole = whole.reshape(*x.shape[:-1], -1, block)
    scale = np.abs(whole).max(-1, keepdims=True) / np.float32(127)
    steps = np.rint(np.divide(whole, scale, out=np.zeros_like(whole), where=scale > 0))
    return (steps.astype(np.float64) * scale).reshape(*x.shape[:-1], -1)[..., :k]


def add(case, nodes, weights, inputs, outputs, rng):
    """The nodes of one case, and its result by numpy in double."""
    dtype, element = FLOATS[case.type]
    dims = [*case.batch, "M", case.k]
    x, y = f"{case.name}_x", f"{case.name}_y"
    inputs.append(helper.make_tensor_value_info(x, element, dims))
    outputs.append(helper.make_tensor_value_info(y, element, [*dims[:-1], case.n]))

    def constant(part, array, type=None):
        name = f"{case.name}_{part}"
        tensor = numpy_helper.from_array(array, name) if type is None else helper.make_tensor(name, type, array.shape, array.ravel())
        weights.append(tensor)
        return name

    signed = case.kind.startswith("i")
    bits = case.bits if case.kind == "nbits" else int(case.kind[1])
    low = -(2 ** (bits - 1)) if signed else 0
    block = case.block or case.k
    blocks = -(-case.k // block)
    scale = rng.uniform(0.01, 0.05, (case.n, blocks)).astype(dtype)
    middle = 2 ** (bits - 1) if case.kind == "nbits" else 0
    zero = np.full((case.n, blocks), middle)
    if case.zero == "packed":
        zero = rng.integers(low, low + 2**bits, (case.n, blocks))
    elif case.zero == "float":
        zero = rng.uniform(0, 2**bits, (case.n, blocks)).astype(dtype)
    q = rng.integers(low, low + 2**bits, (case.n, blocks * block))
    if case.kind == "nbits":
        given = [x, constant("q", packed(q.reshape(case.n, blocks, block), bits)), constant("scale", scale)]
        if case.zero == "packed":
            given.append(constant("zero", packed(zero, bits)))
        elif case.zero == "float":
            given.append(constant("zero", zero))
        if case.bias:
            given += [""] * (5 - len(given)) + [constant("bias", bias := rng.standard_normal(case.n).astype(dtype))]
        nodes.append(helper.make_node("MatMulNBits", given, [y], domain="com.microsoft", K=case.k, N=case.n, bits=bits, block_size=block, **({"accuracy_level": case.level} if case.level else {})))
    else:
        turn = (lambda a: a) if case.axis == 1 else (lambda a: np.ascontiguousarray(a.T))
        of_column = case.block == 0
        given = [constant("q", turn(q), INTEGERS[case.kind]), constant("scale", scale[:, 0] if of_column else turn(scale))]
        if case.zero:
            given.append(constant("zero", zero[:, 0] if of_column else turn(zero), INTEGERS[case.kind]))
        attributes = dict(axis=1) if of_column else dict(axis=case.axis, block_size=block)
        nodes.append(helper.make_node("DequantizeLinear", given, [w := f"{case.name}_w"], **attributes))
        if case.axis == 1:
            nodes.append(helper.make_node("Transpose", [w], [w := f"{case.name}_t"], perm=[1, 0]))
        nodes.append(helper.make_node("MatMul", [x, w], [y]))
    w = (q - np.repeat(zero.astype(np.float64), block, 1)) * np.repeat(scale.astype(np.float64), block, 1)
    if rounds(case):
        w = w[:, : case.k].T
        return lambda data: rounded(data, block) @ w + (bias.astype(np.float64) if case.bias else 0)
    if case.kind != "nbits" or case.type != "f32":
        w = w.astype(np.float32).astype(dtype).astype(np.float64)
    w = w[:, : case.k].T
    return lambda data: data.astype(np.float64) @ w + (bias.astype(np.float64) if case.bias else 0)


@pytest.fixture(scope="module")
def bundle(optc, tmp_path_factory):
    folder = tmp_path_factory.mktemp("blocks")
    rng = np.random.default_rng(5)
    nodes, weights, inputs, outputs, answers = [], [], [], [], {}
    for case in CASES:
        answers[case.name] = add(case, nodes, weights, inputs, outputs, rng)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph(nodes, "blocks", inputs, outputs, weights), opset_imports=opsets, ir_version=10)
    module, library = build(optc, folder, "blocks", model)
    return folder, library, answers


RUN = """
import importlib.util, sys
import numpy as np
import ml_dtypes
spec = importlib.util.spec_from_file_location("blocks", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
data = np.load(sys.argv[4])
feeds = {n: data[n].view(ml_dtypes.bfloat16) if "brain" in n else data[n] for n in data.files}
model = module.Model(sys.argv[2], threads=int(sys.argv[6]), weights_path=sys.argv[3])
results = {n: np.asarray(a) for n, a in model(**feeds).items()}
brain = {n: np.ascontiguousarray(a).view(ml_dtypes.bfloat16).reshape(-1, 24) for n, a in results.items() if "brain" in n}
np.savez(sys.argv[5], **{n: a.astype(np.float64) for n, a in {**results, **brain}.items()})
"""


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 17, 200])
@pytest.mark.parametrize("isa", ["base", "avx2", "avx512"])
def test_products(bundle, tmp_path, rows, isa):
    folder, library, answers = bundle
    rng = np.random.default_rng(rows)
    feeds = {c.name: rng.standard_normal((*c.batch, rows, c.k)).astype(FLOATS[c.type][0]) for c in CASES}
    np.savez(tmp_path / "x.npz", **{f"{n}_x": a.view(np.uint16) if a.dtype == ml_dtypes.bfloat16 else a for n, a in feeds.items()})
    results = []
    for threads in (1, 3):
        arguments = [folder / "blocks/python/blocks.py", library, folder / "blocks/blocks.weights", tmp_path / "x.npz", tmp_path / "y.npz", threads]
        done = subprocess.run([sys.executable, "-c", RUN, *map(str, arguments)], capture_output=True, text=True, env={**os.environ, "OPTC_ISA": isa})
        assert done.returncode == 0, done.stderr[-3000:]
        with np.load(tmp_path / "y.npz") as got:
            results.append({n: got[n] for n in got.files})
    for case in CASES:
        want = answers[case.name](feeds[case.name])
        got = results[0][f"{case.name}_y"]
        np.testing.assert_array_equal(got, results[1][f"{case.name}_y"], err_msg=f"{case.name}: other bits by three threads")
        step = {"f32": 2e-6, "f16": 1e-3, "bf16": 8e-3}[case.type]
        np.testing.assert_allclose(got, want, rtol=step, atol=step * np.abs(want).max(), err_msg=case.name)


def test_weights_stay_packed(bundle, optc):
    folder, _, _ = bundle
    shown = subprocess.run([optc, "inspect", folder / "blocks.onnx", "--ir=program"], capture_output=True, text=True, check=True).stdout
    origins = {}
    for text in shown.split("\nkernel ")[1:]:
        for case in CASES:
            if re.search(rf"\b{case.name}_y\[", text):
                origins[case.name] = text
    for case in CASES:
        schedule, fields = origins[case.name].split("schedule ")[1].split("\n")[0].partition(" ")[::2]
        assert schedule == case.runs, (case.name, schedule)
        assert (schedule == "gemm.blocks" and "activations.scale.buffer=_" not in fields) == (rounds(case) and schedule == "gemm.blocks"), case.name
        assert ("view.a.element=i8" in fields) == (rounds(case) and schedule == "gemm.blocks"), case.name


def test_onnx_runtime_agrees(optc, tmp_path):
    """Of the product alone, in f32, at the two accuracy levels that multiply floats."""
    for level in (0, 1):
        nodes, weights, inputs, outputs = [], [], [], []
        case = Case("product", 1000, 515, 32, zero="packed", bias=True)
        add(case, nodes, weights, inputs, outputs, np.random.default_rng(1))
        nodes[0].attribute.append(helper.make_attribute("accuracy_level", level))
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        onnx.save(helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, weights), opset_imports=opsets, ir_version=10), tmp_path / "m.onnx")
        subprocess.run([optc, "verify", tmp_path / "m.onnx", "--rtol", "2e-6", "--shape", "product_x=3x1000"], check=True,
                       env={**os.environ, "OPTC_PYTHON": sys.executable})


LEVEL_4 = [Case("product", 1000, 515, 32, zero="packed", bias=True, level=4), Case("product", 1000, 96, 64, level=4),
           Case("product", 500, 96, 16, bits=8, zero="packed", level=4), Case("product", 512, 40, 256, bits=8, level=4),
           Case("product", 512, 64, 128, bits=2, level=4), Case("product", 512, 64, 16, bits=2, zero="packed", level=4)]


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("case", LEVEL_4, ids=lambda c: f"{c.bits}bits{c.block}")
def test_onnx_runtime_rounds_the_same(optc, tmp_path, case, rows):
    """At accuracy_level 4. What it divides by 127 / largest we divide by largest / 127: a quotient within a few of its last bits of a tie may round
    the other way, which moves the result by that step times the weight. All else is the order of f32's roundings."""
    nodes, weights, inputs, outputs = [], [], [], []
    answer = add(case, nodes, weights, inputs, outputs, np.random.default_rng(rows))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, weights), opset_imports=opsets, ir_version=10), tmp_path / "m.onnx")
    x = np.random.default_rng(rows + 100).standard_normal((rows, case.k)).astype(np.float32)
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    theirs = session.run(None, {"product_x": x})[0].astype(np.float64)
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "in/product_x.npy", x)
    subprocess.run([optc, "run", tmp_path / "m.onnx", "--engine=evaluate", "--inputs", tmp_path / "in", "--outputs", tmp_path / "out"], check=True)
    ours = numpy_helper.to_array(onnx.TensorProto.FromString((tmp_path / "out/output_0.pb").read_bytes())).astype(np.float64)
    tie = np.zeros_like(ours)
    if rounds(case):
        whole = np.zeros((rows, -(-case.k // case.block) * case.block))
        whole[:, : case.k] = x
        whole = whole.reshape(rows, -1, case.block)
        step = np.abs(whole).max(-1, keepdims=True) / 127
        quotient = np.abs(whole / step)
        near = np.abs(quotient - np.floor(quotient) - 0.5) < 4 * 2.0**-24 * (quotient + 1)
        flipped = np.where(near, step, 0).reshape(rows, -1)[:, : case.k]
        nothing = np.zeros((1, case.k), np.float32)
        tie = flipped @ np.abs(answer(np.eye(case.k, dtype=np.float32)) - answer(nothing))
    exact = answer(x)
    bound = tie + 3e-6 * np.abs(exact).max()
    assert np.all(np.abs(ours - theirs) <= bound), np.abs(ours - theirs).max()
    assert np.abs(ours - exact).max() <= 3e-6 * np.abs(exact).max() + tie.max()
