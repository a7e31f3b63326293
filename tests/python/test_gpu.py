"""Bundles with GPU kernels, run by a driver library that emulates PTX (tests/ptx_emulator), and without any driver."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper


@pytest.fixture(scope="session")
def emulated_driver(optc):
    path = pathlib.Path(optc).parent.parent / "tests/libemulated_cuda.so"
    if not path.exists() or not (path.parent.parent / "lib/optc/optc-ptx.so").exists():
        pytest.skip("this build has no GPU targets")
    return path


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """x [N, 20] -> layer norm of gelu(x w)."""
    random = np.random.default_rng(11)
    tensors = [numpy_helper.from_array(random.standard_normal(shape, dtype=np.float32), name)
               for name, shape in (("w", (20, 24)), ("g", (24,)), ("b", (24,)))]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"], name="fc"), helper.make_node("Tanh", ["m"], ["t"], name="act"),
             helper.make_node("LayerNormalization", ["t", "g", "b"], ["y"], name="norm")]
    graph = helper.make_graph(nodes, "gpu", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 20])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 24])], tensors)
    path = tmp_path_factory.mktemp("gpu") / "gpu_small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def environment(driver):
    return {**os.environ, "OPTC_LIBCUDA": str(driver), "OPTC_PYTHON": sys.executable}


def test_a_gpu_bundle_agrees_with_onnx_runtime(optc, model, emulated_driver):
    done = subprocess.run([optc, "verify", model, "--target=cpu,sm_80", "--format=json"], capture_output=True, text=True,
                          env=environment(emulated_driver))
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["ok"]


def test_one_bundle_runs_on_the_cpu_without_a_driver_and_on_a_card_with_one(optc, model, emulated_driver, tmp_path):
    bundle = tmp_path / "bundle"
    subprocess.run([optc, model, "-o", bundle, "--name=gpu_small", "--target=cpu,sm_80", "-q"], check=True)
    assert json.loads((bundle / "manifest.json").read_text())["targets"] == ["cpu", "sm_80"]
    assert (bundle / "kernels/gpu_small.sm_80.ptx").exists()
    build = tmp_path / "build"
    subprocess.run(["cmake", "-S", bundle, "-B", build, "-DBUILD_SHARED_LIBS=ON"], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", build, "--target", "gpu_small"], check=True, capture_output=True)
    program = f"""
import sys
import numpy as np
x = np.random.default_rng(3).standard_normal((3, 20), dtype=np.float32)
sys.path.insert(0, {str(bundle / 'python')!r})
import gpu_small
y = gpu_small.Model(library={str(build / 'libgpu_small.so')!r})(x=x)["y"]
np.save(sys.argv[1], y)
"""
    results = []
    for name, driver in (("cpu", "/no/such/libcuda.so"), ("gpu", emulated_driver)):
        done = subprocess.run([sys.executable, "-c", program, tmp_path / f"{name}.npy"], env=environment(driver),
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        results.append(np.load(tmp_path / f"{name}.npy"))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-5)


def test_unknown_targets_are_refused(optc, model, tmp_path):
    done = subprocess.run([optc, model, "-o", tmp_path / "b", "--target=gfx90a"], capture_output=True, text=True)
    assert done.returncode == 4 and "gfx90a" in done.stderr


def save_mixed(path):
    """The entries of tanh(x w) that are positive, in order, as exp; and softmax of all. NonZero has no GPU form, and its result's size decides
    how large the rest is."""
    weights = numpy_helper.from_array(np.random.default_rng(12).standard_normal((20, 24), dtype=np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"], name="fc"), helper.make_node("Tanh", ["m"], ["t"], name="act"),
             helper.make_node("Relu", ["t"], ["p"], name="positive"), helper.make_node("NonZero", ["p"], ["i"], name="where"),
             helper.make_node("Transpose", ["i"], ["it"], perm=[1, 0], name="turn"), helper.make_node("GatherND", ["t", "it"], ["v"], name="pick"),
             helper.make_node("Exp", ["v"], ["y"], name="exp"), helper.make_node("Softmax", ["t"], ["s"], name="soft")]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in (("x", ["N", 20]), ("y", ["K"]), ("s", ["N", 24]))]
    onnx.save(helper.make_model(helper.make_graph(nodes, "mixed", values[:1], values[1:], [weights]),
                                opset_imports=[helper.make_opsetid("", 17)]), path)


def test_kernels_without_a_gpu_form_run_on_the_cpu_between_the_others(optc, emulated_driver, tmp_path):
    path = tmp_path / "mixed.onnx"
    save_mixed(path)
    done = subprocess.run([optc, path, "-o", tmp_path / "bundle", "--target=cpu,sm_80"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "1 kernel on the CPU (where)" in done.stderr
    gpu = json.loads((tmp_path / "bundle/manifest.json").read_text())["gpu"]
    placed = {k["name"]: k for k in gpu["kernels"]}
    assert placed["where"]["placement"] == "cpu" and "nonzero" in placed["where"]["reason"]
    assert {k["placement"] for k in gpu["kernels"]} == {"cpu", "gpu"} and gpu["segments"] == 2
    assert all(k["form"] for k in gpu["kernels"] if k["placement"] == "gpu")
    page = (tmp_path / "bundle/report.html").read_text()
    assert "<h2>On a GPU</h2>" in page and "library function 'nonzero' has no GPU form" in page
    assert [c["to"] for c in gpu["copies"]].count("cpu") >= 3  # what NonZero reads, and both outputs
    done = subprocess.run([optc, "verify", path, "--target=cpu,sm_80", "--format=json"], capture_output=True, text=True,
                          env=environment(emulated_driver))
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["ok"]
