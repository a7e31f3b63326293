"""The cases beside the checkout (../shared/cases): small models, each of which shows one fault that optimizers and runtimes have
had. Valid ones give the expected outputs in every way (cases.py): on the evaluator, as bundles, through `optc opt`, and as kernels
of the GPU in the emulator. Invalid ones are refused, hostile ones end in time.

cases_expected.json names the cases that do not give outputs, by the kind of the error and the node it names. An entry with "right"
states what is right: the case shows something that must be refused. The others lack something; one that passes fails the test."""

import json
import os
import pathlib
import resource
import signal
import subprocess

import cases
import pytest
from test_conformance import commit_number

EXPECTED = json.loads((pathlib.Path(__file__).parent / "cases_expected.json").read_text())
SECONDS, MEGABYTES = 10, 1000  # of a hostile model


@pytest.fixture(scope="session", autouse=True)
def there():
    if not cases.TOOL.exists():
        pytest.skip(f"{cases.CASES} is not there")


def as_expected(failure, entry):
    return failure is not None and failure[0] == entry["kind"] and entry["says"] in failure[1]


def check(results, way):
    """Every failure is an expected one, of that kind and at that node, and every expected one is there."""
    assert results, "no case was run"
    known = {**EXPECTED["all"], **EXPECTED.get("evaluator" if way == "lowered" else way, {})}
    wrong, seen = [], set()
    for name, failure in results.items():
        case = name.split("/")[0]
        entry = known.get(case)
        if entry and as_expected(failure, entry):
            seen.add(case)
        elif failure:
            wrong.append(f"{name}: {failure[0]}: {failure[1]}")
    run = {name.split("/")[0] for name in results}
    stale = [case for case in known if case in run and case not in seen]
    assert not wrong, "\n".join(wrong)
    assert not stale, f"cases that are expected to fail pass: {stale}"


def test_on_the_evaluator(evaluator, tmp_path):
    check(cases.on_evaluator(evaluator.parent, cases.data_sets(), tmp_path), "evaluator")


def test_as_lowered(evaluator, tmp_path):
    check(cases.as_lowered(evaluator.parent, cases.data_sets(), tmp_path), "lowered")


def test_through_opt(evaluator, tmp_path):
    check(cases.through_opt(evaluator.parent, cases.data_sets(), tmp_path), "opt")


def part(k, n):
    """Every nth case from the kth on, with all of its data sets."""
    names = sorted({s[0].split("/")[0] for s in cases.data_sets()})[k::n]
    return [s for s in cases.data_sets() if s[0].split("/")[0] in names]


@pytest.mark.tier1
def test_some_as_bundles(evaluator, tmp_path):
    check(cases.as_bundles(evaluator.parent, part(commit_number() % 6, 6), tmp_path), "bundle")


@pytest.mark.tier2
def test_all_as_bundles(evaluator, tmp_path):
    check(cases.as_bundles(evaluator.parent, cases.data_sets(), tmp_path), "bundle")


@pytest.mark.tier2
def test_all_in_the_emulator_of_a_gpu(evaluator, tmp_path):
    if not cases.emulated_driver(evaluator.parent):
        pytest.skip("the build has no GPU module: no tests/libemulated_cuda.so")
    check(cases.in_emulator(evaluator.parent, cases.data_sets(), tmp_path), "ptx")


def test_invalid_cases_are_refused(evaluator, tmp_path):
    """With one error of the expected kind that says what is wrong, and the exit code of that kind; nothing is written."""
    codes, wrong = {"invalid": 3, "unsupported": 4, "usage": 2, "fault": 1}, []
    names = {p.parent.name for p in (cases.CASES / "invalid").glob("*/model.onnx")}
    assert names == set(EXPECTED["invalid"])
    for name, entry in EXPECTED["invalid"].items():
        folder, out = cases.CASES / "invalid" / name, tmp_path / name
        out.mkdir()
        done = subprocess.run([evaluator, folder / "model.onnx", folder / "test_data_set_0", out], capture_output=True, text=True, timeout=60)
        errors = [line for line in done.stderr.splitlines() if line.startswith("error[")]
        if done.returncode != codes[entry["kind"]] or len(errors) != 1 or not errors[0].startswith(f"error[{entry['kind']}]") \
                or entry["says"] not in errors[0] or any(out.iterdir()):
            wrong.append(f"{name}: exit {done.returncode}: {done.stderr[:300]}")
    assert not wrong, "\n".join(wrong)


VERBS = {
    "inspect": ["inspect", "{model}", "--ir=program"],
    "opt": ["opt", "{model}", "-o", "{out}/out.onnx"],
    "compile": ["{model}", "-o", "{out}/bundle"],
    "run": ["run", "{model}", "--engine=evaluate", "--outputs", "{out}/outputs"],
}


def bounded(command):
    """(exit code, seconds, MB, what it said) of a command that is stopped when it passes the bounds."""

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (4000 << 20, 4000 << 20))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS + 2, SECONDS + 3))

    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=limit)
    text = process.stderr.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, text


@pytest.mark.parametrize("verb", VERBS)
def test_hostile_models_end_in_time(optc, tmp_path, verb):
    """Success, or one error that is no fault of optc, in bounded time and memory. (The chain of 100,000 nodes is not here.)"""
    models = sorted(p for p in (cases.CASES / "hostile").glob("*/model.onnx") if p.parent.name != "hostile_chain_100k")
    assert models
    wrong = []
    for model in models:
        out = tmp_path / model.parent.name
        out.mkdir()
        command = [str(optc)] + [a.format(model=model, out=out) for a in VERBS[verb]]
        code, seconds, megabytes, said = bounded(command)
        errors = [line for line in said.splitlines() if line.startswith("error[")]
        if code not in (0, 1, 2, 3, 4) or len(errors) != (code != 0) or seconds > SECONDS or megabytes > MEGABYTES:
            killed = f" ({signal.Signals(-code).name})" if code < 0 else ""
            wrong.append(f"{model.parent.name}: exit {code}{killed}, {seconds:.1f} s, {megabytes:.0f} MB: {said[:300]}")
    assert not wrong, "\n".join(wrong)
