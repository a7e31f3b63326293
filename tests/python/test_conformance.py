"""Every test of the onnx package on the evaluator, in each way (tests/conformance/run.py); known failures stand in
tests/conformance/expected.json, and an entry there that passes fails the test."""

import pathlib
import subprocess
import sys

import pytest

RUN = pathlib.Path(__file__).resolve().parents[1] / "conformance" / "run.py"


@pytest.mark.parametrize("way", ["static", "dynamic", "constant", "folded"])
def test_conformance_on_the_evaluator(evaluator, way):
    done = subprocess.run([sys.executable, str(RUN), "--binary", str(evaluator), "--ways", way], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
