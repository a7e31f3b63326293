"""Every test of the onnx package on the evaluator, in each way, and as bundles (tests/conformance/run.py); known failures stand in
tests/conformance/expected.json, and an entry there that passes fails the test."""

import os
import pathlib
import subprocess
import sys

import pytest

RUN = pathlib.Path(__file__).resolve().parents[1] / "conformance" / "run.py"


@pytest.mark.parametrize("way", ["static", "dynamic", "constant", "folded"])
def test_conformance_on_the_evaluator(evaluator, way):
    done = subprocess.run([sys.executable, str(RUN), "--binary", str(evaluator), "--ways", way], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.parametrize("way", ["static", "dynamic"])
def test_conformance_of_lowered_programs_on_the_evaluator(evaluator, way):
    done = subprocess.run([sys.executable, str(RUN), "--lowered", "--binary", str(evaluator), "--ways", way], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def commit_number():
    """The first digits of the commit, so that each commit tests another part; 0 outside of a checkout."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=RUN.parent, capture_output=True, text=True)
    return int(done.stdout[:8], 16) if done.returncode == 0 else 0


def run_bundles(optc, way, *options, **environment):
    binary = optc.parent / "optc_conformance_bundles"
    if not binary.exists():
        pytest.fail(f"{binary} is not there: run ./dev build")
    done = subprocess.run([sys.executable, str(RUN), "--bundles", "--binary", str(binary), "--ways", way, "--timeout", "120", *options],
                          capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.tier1
def test_conformance_of_a_quarter_of_the_bundles(optc):
    run_bundles(optc, "static", "--part", f"{commit_number() % 4}/4")


@pytest.mark.tier2
@pytest.mark.parametrize("way", ["static", "dynamic", "constant"])
def test_conformance_of_all_bundles(optc, way):
    run_bundles(optc, way)


def run_on_an_emulated_gpu(optc, *options):
    driver = optc.parents[1] / "tests/libemulated_cuda.so"
    if not driver.exists():
        pytest.skip("this build has no GPU targets")
    run_bundles(optc, "static", "--target", "sm_90a", *options, OPTC_LIBCUDA=str(driver))


@pytest.mark.parametrize("op", ["BitCast", "RMSNormalization"])
def test_conformance_of_an_operator_on_an_emulated_gpu(optc, op):
    run_on_an_emulated_gpu(optc, "--op", op)


@pytest.mark.tier2
def test_conformance_on_an_emulated_gpu(optc):
    run_on_an_emulated_gpu(optc, "--part", f"{commit_number() % 8}/8")
