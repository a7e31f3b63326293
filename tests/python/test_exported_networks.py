"""Small networks out of both of PyTorch's exporters (exported_networks.py) beside ONNX Runtime, as they are and as `optc opt` writes them.

OPTC_TORCH_PYTHON names a Python with torch, onnx and onnxscript; without one this is skipped."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest

WRITER = pathlib.Path(__file__).parent / "exported_networks.py"
RANDOM = pathlib.Path(__file__).resolve().parents[1] / "random" / "networks"

pytestmark = pytest.mark.tier2


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    python = os.environ.get("OPTC_TORCH_PYTHON")
    if not python:
        pytest.skip("OPTC_TORCH_PYTHON names no Python with torch")
    folder = tmp_path_factory.mktemp("networks")
    done = subprocess.run([python, WRITER, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    print(done.stdout)
    models = sorted(folder.glob("*.onnx"))
    assert len(models) >= 20, done.stdout
    return models


def runtime(model):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options)


@pytest.mark.parametrize("engine", ["evaluate", "bundle"])
def test_networks_are_verified(optc, networks, engine):
    """On inputs that verify makes, of two sizes where dims are open."""
    wrong = {}
    for model in networks:
        done = subprocess.run([optc, "verify", model, f"--engine={engine}", "-q"], capture_output=True, text=True)
        if done.returncode != 0:
            wrong[model.name] = done.stdout[-500:] + done.stderr[-500:]
    assert not wrong, "\n".join(f"{name}: {text}" for name, text in wrong.items())


def test_what_opt_writes_computes_the_same(optc, networks, tmp_path):
    for model in networks:
        written = tmp_path / model.name
        done = subprocess.run([optc, "opt", model, "-o", written, "-q"], capture_output=True, text=True)
        assert done.returncode == 0, f"{model.name}: {done.stderr}"
        before, after = runtime(model), runtime(written)
        feeds = {before.get_inputs()[0].name: np.load(model.with_suffix(".in") / "input_0.npy")}
        for got, want in zip(after.run(None, feeds), before.run(None, feeds), strict=True):
            assert got.shape == want.shape and got.dtype == want.dtype, model.name
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * max(1.0, float(np.abs(want).max(initial=0))), err_msg=model.name)


@pytest.mark.parametrize("ways", ["eval,opt", "bundle-base", "bundle-avx2", "bundle-avx512"])
def test_random_networks(optc, random_networks, tmp_path, ways):
    """tests/random/networks with a fresh seed (OPTC_SEED, OPTC_COUNT: another one, more of them)."""
    command = [sys.executable, RANDOM / "run.py", random_networks, "--ways", ways, "--out", tmp_path / "found", "--binaries", optc.parent]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.fixture(scope="module")
def random_networks(tmp_path_factory):
    python = os.environ.get("OPTC_TORCH_PYTHON")
    if not python:
        pytest.skip("OPTC_TORCH_PYTHON names no Python with torch")
    folder = tmp_path_factory.mktemp("random_networks")
    seed = ["--seed", os.environ["OPTC_SEED"]] if "OPTC_SEED" in os.environ else []
    command = [python, RANDOM / "write.py", folder, "--count", os.environ.get("OPTC_COUNT", "40"), *seed]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout)
    assert len(list(folder.glob("*/model.onnx"))) > 5, done.stdout[-2000:] + done.stderr[-2000:]
    return folder
