"""Every test of the onnx package on the evaluator, in each way, and as bundles (tests/conformance/run.py); known failures stand in
tests/conformance/expected.json, and an entry there that passes fails the test."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

RUN = pathlib.Path(__file__).resolve().parents[1] / "conformance" / "run.py"
sys.path.insert(0, str(RUN.parent))
import properties  # noqa: E402


@pytest.mark.parametrize("way", ["static", "dynamic", "constant", "folded"])
def test_conformance_on_the_evaluator(evaluator, way):
    done = subprocess.run([sys.executable, str(RUN), "--binary", str(evaluator), "--ways", way], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.parametrize("way", ["static", "dynamic"])
def test_conformance_of_lowered_programs_on_the_evaluator(evaluator, way):
    done = subprocess.run([sys.executable, str(RUN), "--engine", "lowered", "--binary", str(evaluator), "--ways", way], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def commit_number():
    """The first digits of the commit, so that each commit tests another part; 0 outside of a checkout."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=RUN.parent, capture_output=True, text=True)
    return int(done.stdout[:8], 16) if done.returncode == 0 else 0


def run_bundles(optc, engine, way, *options, **environment):
    binary = optc.parent / "optc_conformance_bundles"
    if not binary.exists():
        pytest.fail(f"{binary} is not there: run ./dev build")
    done = subprocess.run([sys.executable, str(RUN), "--engine", engine, "--binary", str(binary), "--ways", way, "--timeout", "120", *options],
                          capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.tier1
def test_conformance_of_a_quarter_of_the_bundles(optc):
    run_bundles(optc, "bundle", "static", "--shard", f"{commit_number() % 4 + 1}/4")


@pytest.mark.tier2
@pytest.mark.parametrize("way", ["static", "dynamic", "constant"])
def test_conformance_of_all_bundles(optc, way):
    run_bundles(optc, "bundle", way)


def run_on_an_emulated_gpu(optc, *options):
    driver = optc.parents[1] / "tests/libemulated_cuda.so"
    if not driver.exists():
        pytest.skip("this build has no GPU targets")
    run_bundles(optc, "ptx", "static", *options, OPTC_LIBCUDA=str(driver))


@pytest.mark.parametrize("op", ["BitCast", "RMSNormalization"])
def test_conformance_of_an_operator_on_an_emulated_gpu(optc, op):
    run_on_an_emulated_gpu(optc, "--op", op)


@pytest.mark.tier2
def test_conformance_on_an_emulated_gpu(optc):
    run_on_an_emulated_gpu(optc, "--shard", f"{commit_number() % 8 + 1}/8")


X = np.linspace(0.05, 0.95, 60).reshape(3, 4, 5)
HALF = np.float64(0.5)
ALTERNATING = np.arange(60).reshape(3, 4, 5) % 2 == 0


@pytest.mark.parametrize("check,inputs,right,wrong", [
    ("bernoulli", [X], (X > 0.5) * 1.0, [X * 0, X * 0 + 1, X, (X < 0.5) * 1.0 + (X > 0.3)]),
    ("bernoulli", [X * 0 + 1], X * 0 + 1, [X * 0]),
    ("bernoulli_expanded", [X * 0.1], X * 0 + 1, [X * 0]),
    ("dropout", [X, HALF], ALTERNATING * X * 2, [X * 0, X * 2, ALTERNATING * X, ALTERNATING * X * 2.1]),
    ("inverse_dft", [np.stack([X, X * 0], -1)], np.stack([(y := np.fft.ifft(X, axis=1)).real, y.imag], -1),
     [np.stack([X, X * 0], -1), np.stack([y.real, -y.imag], -1)]),
])
def test_checks_of_outputs_that_have_no_expected_values(check, inputs, right, wrong):
    check = properties.CHECKS[check]
    assert check(inputs, None, [right]) is None
    assert None not in [check(inputs, None, [output]) for output in wrong]


def test_a_mask_must_be_that_of_the_values_that_were_dropped():
    values = ALTERNATING * X * 2
    assert properties.dropout([X, HALF], None, [values, ALTERNATING]) is None
    assert properties.dropout([X, HALF], None, [values, ~ALTERNATING]) is not None


def test_what_fails_must_fail_as_it_was_said(evaluator, tmp_path):
    """Of the known failures: another kind, another node, outputs that do not pass their check, and a test that passes."""
    entries = {"test_bernoulli": {"kind": "unsupported", "reason": ""}, "test_abs": {"kind": "rounding", "reason": ""},
               "test_training_dropout": {"kind": "random", "check": "bernoulli", "reason": ""},
               "test_training_dropout_mask": {"kind": "random", "check": "dropout", "reason": ""}}
    (tmp_path / "expected.json").write_text(json.dumps(entries))

    def said(name):
        done = subprocess.run([sys.executable, str(RUN), "--binary", str(evaluator), "--ways", "static", "--filter", name,
                               "--expected", str(tmp_path / "expected.json"), "--table"], capture_output=True, text=True)
        return done.returncode, done.stdout

    assert said("test_training_dropout_mask")[0] == 0
    for name, words in (("test_bernoulli", "FAIL static test_bernoulli: wrong: "), ("test_abs", "STALE static test_abs"),
                        ("test_training_dropout", "by bernoulli: a value is neither 0 nor 1")):
        code, text = said(name)
        assert code == 1 and words in text, text
        assert text.splitlines()[1].split()[0] in ("Bernoulli", "Abs", "Dropout")  # the table's row
