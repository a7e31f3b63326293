"""Random graphs against ONNX Runtime (tests/random): two minutes of them with a seed of the commit's, those that once failed, and that the harness
itself finds what is wrong."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import pytest
from test_conformance import commit_number

ROOT = pathlib.Path(__file__).resolve().parents[2]
HARNESS = ROOT / "tests" / "random"
KEPT = ROOT / "testdata" / "random"
SECONDS = 120


@pytest.fixture(scope="module")
def harness(optc):
    """The modules of tests/random."""
    if not (optc.parent / "optc_random").exists():
        pytest.fail(f"{optc.parent / 'optc_random'} is not there: run ./dev build")
    sys.path.insert(0, str(HARNESS))
    import compare
    import grow
    import minimize
    import oracle
    import runner

    class Harness:
        pass

    Harness.compare, Harness.grow, Harness.minimize, Harness.oracle, Harness.runner = compare, grow, minimize, oracle, runner
    return Harness


def run(optc, out, *arguments):
    command = [sys.executable, str(HARNESS / "run.py"), "--binaries", str(optc.parent), "--out", str(out), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return json.loads((out / "summary.json").read_text())


def test_random_graphs_that_stand(optc, harness, tmp_path):
    if "vnni" not in pathlib.Path("/proc/cpuinfo").read_text():
        pytest.skip("ONNX Runtime's products of 8 bits saturate in 16 on a processor without VNNI: no oracle")
    run(optc, tmp_path, "--seed", "1", "--count", "1000", "--seconds", "1e9", "--ways", "unfused,eval,gpu,opt")


# What new graphs find is as often a gap in the oracles as a fault, so they do not decide over a change yet.
@pytest.mark.tier2
def test_two_minutes_of_this_commits_graphs(optc, harness, tmp_path):
    """Graphs that no commit before this one has seen; the same again for whoever runs it once more."""
    if "vnni" not in pathlib.Path("/proc/cpuinfo").read_text():
        pytest.skip("ONNX Runtime's products of 8 bits saturate in 16 on a processor without VNNI: no oracle")
    seed = str(commit_number())
    print(f"seed {seed}")
    run(optc, tmp_path, "--seed", seed, "--seconds", str(SECONDS), "--ways", "unfused,eval,gpu,opt")


@pytest.mark.tier2
def test_two_minutes_of_random_graphs(optc, harness, tmp_path):
    """Fails too where a cell of cells.json (strategy, operands, epilogue) was never reached. The seed stands in the output."""
    summary = run(optc, tmp_path, "--seconds", str(SECONDS), "--ways", "unfused,eval,gpu,opt", "--cells", str(HARNESS / "cells.json"))
    print(f"seeds {summary['seeds']}, {summary['counts']}")
    assert not [text for text in summary["not faults"] if text.startswith("generator")], summary["not faults"]


def test_operators_at_every_opset(optc, tmp_path):
    """Single operators of opsets 7 on, drawn from ONNX's schemas, with operands from constants, inputs and nodes."""
    command = [sys.executable, str(HARNESS / "schemas.py"), "--bin", str(optc.parent), "--out", str(tmp_path), "--seconds", "1e9", "--ways", "eval,opt"]
    for more in (["--seed", "21000", "--count", "60", "--odd", "0"], ["--seed", "22000", "--count", "40", "--odd", "0.25"]):
        done = subprocess.run([*command, *more], capture_output=True, text=True)
        assert done.returncode == 0 and '"answers"' in done.stdout, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.tier2
@pytest.mark.parametrize("isa", ["base", "avx2", "avx512", "asan"])
def test_random_graphs_as_bundles(optc, harness, tmp_path, isa):
    """Of 120 graphs those that reach a strategy, form of an operand or edge that none before them did."""
    run(optc, tmp_path, "--count", "120", "--seconds", "1e9", "--ways", f"bundle-{isa}", "--chunk", "32", "--spread", "1")


def test_graphs_with_quantized_weights(optc, harness, tmp_path):
    """Graphs with weights that --quantize-weights rounds, as `optc opt` writes them, in all ways."""
    summary = run(optc, tmp_path, "--seed", "41", "--count", "40", "--seconds", "1e9", "--ways", "unfused,eval,opt", "--with", "float_weights", "--quantize", "any")
    assert summary["counts"]["graphs"] >= 6 and summary["operators"]["DequantizeLinear"] >= 10, summary


@pytest.mark.tier2
@pytest.mark.parametrize("ways", ["unfused,eval,opt", "bundle-base", "bundle-avx512"])
def test_two_minutes_of_graphs_with_quantized_weights(optc, harness, tmp_path, ways):
    """With a fresh seed, which stands in the output."""
    bundles = ["--count", "48", "--seconds", "1e9", "--chunk", "16"] if ways.startswith("bundle") else ["--seconds", str(SECONDS)]
    summary = run(optc, tmp_path, "--ways", ways, "--with", "float_weights", "--quantize", "any", *bundles)
    print(f"seeds {summary['seeds']}, {summary['counts']}")
    assert summary["counts"]["graphs"] >= 8


@pytest.mark.tier2
def test_edited_operators(optc, tmp_path):
    """ONNX's tests with attributes and operands that cannot be: refused or answered, never a crash (OPTC_SEED: another seed than a fresh one)."""
    seed = ["--seed", os.environ["OPTC_SEED"]] if "OPTC_SEED" in os.environ else []
    command = [sys.executable, str(HARNESS / "edited.py"), "--binaries", str(optc.parent), "--out", str(tmp_path), "--seconds", "60", *seed]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_graphs_that_once_failed(optc, harness, tmp_path):
    """testdata/random: each was cut down from a failing graph, or made so that a fault shows on it (tests/mutations)."""
    runner = harness.runner.Runner(optc.parent, tmp_path)
    folders = sorted(p for p in KEPT.iterdir() if p.is_dir())
    assert folders
    wrong = []
    for folder in folders:
        case = harness.runner.load_case(folder)
        for (_, way), answer in runner.run([case], ["unfused", "eval", "gpu", "opt"]).items():
            if answer.failure or answer.unsupported:
                wrong.append(f"{folder.name} {way}: {answer.failure or answer.unsupported}")
    cases = [harness.runner.load_case(folder) for folder in folders]
    for ways in (["bundle-base"], ["bundle"]):  # one translation unit each; the second on the best instruction set that is there
        for (i, way), answer in runner.run(cases, ways).items():
            if answer.failure or answer.unsupported:
                wrong.append(f"{folders[i].name} {way}: {answer.failure or answer.unsupported}")
    runner.close()
    assert not wrong, "\n".join(wrong)


@pytest.mark.tier2
def test_graphs_that_once_failed_with_sanitizers(optc, harness, tmp_path):
    """As bundles under AddressSanitizer and UndefinedBehaviorSanitizer: what is undefined may give the right values today."""
    runner = harness.runner.Runner(optc.parent, tmp_path)
    folders = sorted(p for p in KEPT.iterdir() if p.is_dir())
    cases = [harness.runner.load_case(folder) for folder in folders]
    answers = runner.run(cases, ["bundle-asan"])
    runner.close()
    wrong = [f"{folders[i].name} {answer.failure or answer.unsupported}" for (i, _), answer in answers.items() if answer.failure or answer.unsupported]
    assert len(answers) == len(cases) and not wrong, "\n".join(wrong)


# Where the kernels of the oracles are known to do another thing than ONNX says: the cases of these names have the values of the definition.
@pytest.mark.parametrize("name", ["attention_causal_under_one_row", "resize_to_the_same_size", "instance_norm_of_one_element"])
def test_the_oracle_knows_where_a_kernel_is_wrong(harness, name):
    case = harness.runner.load_case(KEPT / name)
    (wanted,) = case.wanted.values()
    (got,) = harness.oracle.Oracle().run_model(case.model, case.inputs, case.model, by_node=True).values()
    assert not harness.compare.difference(wanted, got)
    np.testing.assert_allclose(got, DEFINED[name](*case.inputs.values()), rtol=1e-5, atol=1e-5)


def causal(x, y, z, mask):
    logits = np.where(mask & np.tri(x.shape[2], y.shape[2], dtype=bool), 0.5 * x @ y.swapaxes(2, 3), -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ z


def tenth_larger(x):
    at = np.clip((np.arange(7) + 0.5) / np.float32(1.1) - 0.5, 0, 6)
    low = np.floor(at).astype(int)
    return x[..., low] * (1 - (at - low)) + x[..., np.minimum(low + 1, 6)] * (at - low)


DEFINED = {
    "attention_causal_under_one_row": causal,
    "resize_to_the_same_size": tenth_larger,
    "instance_norm_of_one_element": lambda x, bias: np.broadcast_to(bias[:, None], x.shape),
}


def test_a_bias_of_another_length_is_no_model(harness):
    """ONNX Runtime's kernels read beyond it."""
    x, w = np.ones((1, 2, 5), np.float32), np.ones((2, 3, 2), np.float32)
    for length, right in ((3, True), (1, False), (7, False)):
        node = onnx.helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"])
        feeds = {"x": x, "w": w, "b": np.zeros(length, np.float32)}
        if right:
            assert harness.oracle.Oracle().run(node, feeds, 17, 8)[1] == "ort"
        else:
            with pytest.raises(harness.oracle.Reject):
                harness.oracle.Oracle().run(node, feeds, 17, 8)


def test_a_wrong_value_is_not_excused(harness):
    """One element of an output is moved by a hundredth of its size, or lost: the judge must say so for nearly every graph."""
    oracle, found, total = harness.oracle.Oracle(), 0, 0
    for seed in range(60):
        graph = harness.grow.grow(seed, oracle)
        if graph.special:  # values of 1e10 and infinities: a hundredth can be lost in them
            continue
        judge = harness.compare.Judge(graph)
        for name in graph.outputs() if graph.nodes else []:
            want = graph.v[name]
            if want.dtype != np.float32 or want.size == 0:
                continue
            largest = int(np.argmax(np.abs(want).reshape(-1)))
            if not np.abs(want).reshape(-1)[largest] > 1e-3 or not np.isfinite(want).all():
                continue
            got = want.copy()
            got.reshape(-1)[largest] *= np.float32(seed % 2 * 0.99)
            total += 1
            found += harness.compare.difference(want, got) is not None and judge.excuse(name, want, got) is None
    assert total > 50
    assert found >= 0.97 * total, f"{found} of {total}"


def test_an_infinity_of_storage_is_not_excused(harness):
    """With storage in 16 bits an element that is lost or infinite must be found, though the judge allows what the grid of that type does."""
    from values import BF16, F16

    oracle, found, total = harness.oracle.Oracle(), 0, 0
    for seed in range(60):
        graph = harness.grow.grow(seed, oracle)
        if graph.special:
            continue
        storage = (F16, BF16)[seed % 2]
        judge = harness.compare.Judge(graph, storage)
        for name in graph.outputs() if graph.nodes else []:
            want = graph.v[name]
            if want.dtype != np.float32 or want.size == 0 or not np.isfinite(want).all() or not np.abs(want).max() > 1e-3:
                continue
            got = want.copy()
            got.reshape(-1)[int(np.argmax(np.abs(want).reshape(-1)))] = (0, np.inf)[seed // 2 % 2]
            total += 1
            found += harness.compare.difference(want, got, storage) is not None and judge.excuse(name, want, got, storage) is None
    assert total > 50
    assert found >= 0.95 * total, f"{found} of {total}"


def test_the_minimizer_leaves_what_fails(harness):
    """Against a runner for which every graph with a Softmax of more than one row is wrong."""
    runner = harness.runner

    class Broken:
        def run(self, cases, ways):
            answers = {}
            for i, case in enumerate(cases):
                bad = any(n.op_type == "Softmax" and case.graph.v[n.output[0]].size > 1 for n in case.model.graph.node)
                answers[i, ways[0]] = runner.Answer(runner.Failure(ways[0], "wrong", "") if bad else None)
            return answers

    oracle, cut = harness.oracle.Oracle(), 0
    for seed in range(200):
        graph = harness.grow.grow(seed, oracle)
        if not graph.operators["Softmax"]:
            continue
        outputs = graph.outputs()
        case = runner.Case(graph, *graph.build(graph.nodes, outputs))
        if Broken().run([case], ["eval"])[0, "eval"].failure is None:
            continue
        left, _ = harness.minimize.Minimizer(Broken(), 60).run(graph, case, runner.Failure("eval", "wrong", ""))
        nodes = [n.op_type for n in left.model.graph.node if n.op_type != "Constant"]
        assert nodes == ["Softmax"], f"seed {seed}: {nodes}"
        onnx.checker.check_model(left.model)
        cut += 1
        if cut == 5:
            return
    assert cut
