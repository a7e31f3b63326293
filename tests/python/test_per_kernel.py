"""optc verify --per-kernel and --check-numerics: each kernel of a bundle beside the evaluator, on the bundle's own inputs of it."""

import json
import os
import pathlib
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper


def run(optc, *arguments, code=0, env=None):
    done = subprocess.run([optc, *map(str, arguments)], capture_output=True, text=True, env=env)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def saved(path, nodes, inputs, outputs):
    graph = helper.make_graph(nodes, "net", [helper.make_tensor_value_info(*i) for i in inputs],
                              [helper.make_tensor_value_info(*o) for o in outputs])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    nodes = [
        helper.make_node("Softmax", ["x"], ["s"], name="head", axis=-1),
        helper.make_node("Sub", ["x", "s"], ["d"], name="minus"),
        helper.make_node("LeakyRelu", ["d"], ["l"], name="leaky", alpha=0.1875),
        helper.make_node("Softmax", ["l"], ["y"], name="tail", axis=-1),
    ]
    float_n = (TensorProto.FLOAT, ["N", 24])
    return saved(tmp_path_factory.mktemp("per_kernel") / "net.onnx", nodes, [("x", *float_n)], [("y", *float_n), ("l", *float_n)])


@pytest.fixture(scope="module")
def env(tmp_path_factory):
    return {**os.environ, "OPTC_CACHE": str(tmp_path_factory.mktemp("cache"))}


def test_a_right_bundle(optc, model, env):
    text = run(optc, "verify", model, "--per-kernel", "--check-numerics", "--against=evaluate", env=env).stdout
    assert "computes what the evaluator computes of the same inputs" in text
    assert "no kernel makes a NaN or an infinity" in text
    done = run(optc, "verify", model, "--per-kernel", "--against=evaluate", "--format=json", env=env)
    found = json.loads(done.stdout)
    assert found["ok"] and found["kernels"]["first_difference"] is None
    assert found["kernels"]["compared"] >= 2 and found["kernels"]["not_compared"] == []
    assert "first_nan" not in found["kernels"]
    # How far each kernel is, within what its arithmetic allows: sums in another order are not the same bits, copies are.
    each = found["kernels"]["each"]
    assert len(each) == found["kernels"]["compared"] and all(0 <= k["relative"] < 1e-4 and k["kernel"] and k["output"] for k in each)
    assert all((k["relative"] == 0) == (k["max_difference"] == 0) for k in each) and any(k["relative"] > 0 for k in each)


def build_with(optc, model, cache, env, value):
    """The bundle that is watched, with another number in its LeakyRelu."""
    run(optc, "verify", model, "--per-kernel", "--against=evaluate", env=env)
    patched = []
    for source in cache.glob("bundles/net-*/bundle/src/*.inc"):
        text = source.read_text()
        if "0.1875f" in text and (source.parent / "runtime/bundle/probe.h").exists():
            source.write_text(text.replace("0.1875f", value))
            patched.append(source.parents[2] / "build")
    assert len(patched) == 1
    subprocess.run(["cmake", "--build", patched[0]], check=True, capture_output=True)


def test_a_kernel_that_crashes_is_named(optc, model, tmp_path):
    env = {**os.environ, "OPTC_CACHE": str(tmp_path)}
    build_with(optc, model, tmp_path, env, "(__builtin_trap(), 0.1875f)")
    said = run(optc, "verify", model, "--per-kernel", "--against=evaluate", code=101, env=env).stderr
    assert "error[internal]: the bundle crashed" in said and "LeakyRelu 'leaky'" in said and "  strategy " in said, said


def test_a_wrong_kernel_is_named(optc, model, tmp_path):
    env = {**os.environ, "OPTC_CACHE": str(tmp_path)}
    build_with(optc, model, tmp_path, env, "0.25f")
    done = run(optc, "verify", model, "--per-kernel", "--against=evaluate", code=1, env=env)
    assert "the first kernel that differs" in done.stdout
    assert "LeakyRelu 'leaky'" in done.stdout and "instruction set" in done.stdout
    assert "worst element" in done.stdout
    assert "is the first that differs" in done.stderr
    found = json.loads(run(optc, "verify", model, "--per-kernel", "--against=evaluate", "--format=json", code=1, env=env).stdout)
    first = found["kernels"]["first_difference"]
    assert not found["ok"] and any("'leaky'" in node for node in first["nodes"])
    assert abs(first["got"] / first["expected"] - 0.25 / 0.1875) < 1e-4


def test_the_first_kernel_that_makes_a_nan(optc, tmp_path, env):
    nodes = [
        helper.make_node("Softmax", ["x"], ["s"], name="head", axis=-1),
        helper.make_node("Log", ["x"], ["l"], name="logarithm"),
        helper.make_node("Softmax", ["l"], ["y"], name="tail", axis=-1),
    ]
    shape = (TensorProto.FLOAT, [4, 24])
    path = saved(tmp_path / "nan.onnx", nodes, [("x", *shape)], [("y", *shape), ("l", *shape), ("s", *shape)])
    done = run(optc, "verify", path, "--check-numerics", "--against=evaluate", code=1, env=env)
    assert "the first kernel that makes a NaN" in done.stdout and "Log 'logarithm'" in done.stdout
    found = json.loads(run(optc, "verify", path, "--check-numerics", "--against=evaluate", "--format=json", code=1, env=env).stdout)
    assert any("'logarithm'" in node for node in found["kernels"]["first_nan"]["nodes"])
    assert found["kernels"]["first_infinity"] is None


def test_it_watches_a_bundle(optc, model):
    assert "--engine=evaluate" in run(optc, "verify", model, "--per-kernel", "--engine=evaluate", code=2).stderr


@pytest.fixture(scope="module")
def on_gpu(optc, env):
    """The environment in which bundles for GPUs find the emulator of PTX."""
    build = pathlib.Path(optc).parents[1]
    if not (build / "tests/libemulated_cuda.so").exists() or not (build / "lib/optc/optc-ptx.so").exists():
        pytest.skip("this build has no GPU targets")
    return {**env, "OPTC_LIBCUDA": str(build / "tests/libemulated_cuda.so")}


@pytest.fixture(scope="module")
def mixed_model(tmp_path_factory):
    """Products, rows and maps, and NonZero, which has no GPU form and finds a size; an output of that size."""
    random = np.random.default_rng(3)
    tensors = [numpy_helper.from_array(random.standard_normal((24, 24), dtype=np.float32), name) for name in ("w", "v")]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["q"], name="query"),
        helper.make_node("Softmax", ["q"], ["s"], name="head", axis=-1),
        helper.make_node("MatMul", ["x", "v"], ["k"], name="key"),
        helper.make_node("LeakyRelu", ["k"], ["l"], name="leaky", alpha=0.1875),
        helper.make_node("Mul", ["s", "l"], ["m"], name="times"),
        helper.make_node("NonZero", ["x"], ["places"], name="places"),
        helper.make_node("Transpose", ["places"], ["columns"], name="columns", perm=[1, 0]),
        helper.make_node("GatherND", ["m", "columns"], ["found"], name="take"),
        helper.make_node("Softmax", ["found"], ["y"], name="tail", axis=-1),
    ]
    graph = helper.make_graph(nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 24])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["K"]),
                               helper.make_tensor_value_info("s", TensorProto.FLOAT, ["N", 24])], tensors)  # fmt: skip
    path = tmp_path_factory.mktemp("per_kernel") / "mixed.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


# The output of a size that is found makes the bundle run twice: its first kernels write where the last ones of the
# first run did.
@pytest.mark.parametrize("target", ["cpu", "cpu,sm_80"])
def test_a_right_bundle_with_sizes_that_it_finds(optc, mixed_model, on_gpu, target):
    found = json.loads(run(optc, "verify", mixed_model, "--per-kernel", "--check-numerics", "--against=evaluate", f"--target={target}",
                           "--format=json", env=on_gpu).stdout)  # fmt: skip
    kernels = found["kernels"]
    assert found["ok"] and kernels["first_difference"] is None and kernels["first_nan"] is None
    assert kernels["compared"] >= 5 and kernels["not_compared"] == []


def test_a_wrong_kernel_on_a_gpu_is_named(optc, mixed_model, on_gpu, tmp_path):
    env = {**on_gpu, "OPTC_CACHE": str(tmp_path)}
    arguments = ["verify", mixed_model, "--per-kernel", "--against=evaluate", "--target=cpu,sm_80", "--format=json"]
    run(optc, *arguments, env=env)
    patched = []
    for source in tmp_path.glob("bundles/mixed-*/bundle/src/cuda.cpp"):
        text = source.read_text()
        if (source.parent / "runtime/bundle/probe.h").exists():
            assert "0f3E400000" in text  # 0.1875
            source.write_text(text.replace("0f3E400000", "0f3E800000"))
            patched.append(source.parents[2] / "build")
    assert len(patched) == 1
    subprocess.run(["cmake", "--build", patched[0]], check=True, capture_output=True)
    first = json.loads(run(optc, *arguments, code=1, env=env).stdout)["kernels"]["first_difference"]
    assert any("'leaky'" in node for node in first["nodes"]) and not any("'places'" in node for node in first["nodes"])
    assert first["isa"] == "sm_80" and first["strategy"].startswith("gemm.3xtf32 ")
    assert "elements differ" in first["problem"] and first["index"]
