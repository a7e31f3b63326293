"""The cases beside the checkout (../shared/cases): small models, each of which shows one fault that optimizers and runtimes have
had. Valid ones give the expected outputs, invalid ones are refused with a clear error."""

import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CASES = ROOT.parent / "shared" / "cases"
TOOL = ROOT.parent / "shared" / "tools" / "run_cases.py"

# Cases that fail for a known reason; an entry whose case passes fails the test.
KNOWN = json.loads((pathlib.Path(__file__).parent / "cases_expected.json").read_text())


def run_cases(runner, tmp_path, *extra):
    if not TOOL.exists():
        pytest.skip(f"{CASES} is not there")
    report = tmp_path / "report.json"
    command = [sys.executable, str(TOOL), "--cases", str(CASES), "--run", f"{runner} {{model}} {{inputs_dir}} {{outputs_dir}}",
               "--jobs", "2", "--json", str(report), *extra]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    return {row["case"]: row["error"] for row in json.loads(report.read_text())}


def check(results, known):
    failures = {case: error for case, error in results.items() if error}
    surprises = {c: e for c, e in failures.items() if c.split("/")[0] not in known}
    stale = [c for c in known if not any(f.split("/")[0] == c for f in failures)]
    assert results, "no case was run"
    assert not surprises, "\n".join(f"{c}: {e}" for c, e in surprises.items())
    assert not stale, f"known failures that pass: {stale}"


def test_valid_cases_on_the_evaluator(evaluator, tmp_path):
    check(run_cases(evaluator, tmp_path), KNOWN["valid"])


def test_invalid_cases_are_refused(evaluator, tmp_path):
    check(run_cases(evaluator, tmp_path, "--invalid"), KNOWN["invalid"])
