"""`--passes, --stop-after, --start-from, --time-passes, --dump-ir-after`: the optimizer pass by pass, in opt and in the verbs that compile."""

import json
import os
import subprocess
import sys

import onnx
import pytest
from page_models import transformer


def run(optc, *words, code=0):
    done = subprocess.run([str(optc), *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("passes") / "a.onnx"
    transformer(path, 2)
    return path


@pytest.fixture(scope="module")
def passes(optc, model):
    """All of them, in the order in which they run."""
    first = []
    for timed in json.loads(run(optc, "opt", model, "--time-passes", "--format=json").stdout)["passes"]:
        first.append(timed["pass"])
    return first


def facts(optc, *words):
    return json.loads(run(optc, "opt", *words, "--opset=20", "--format=json").stdout)


def nodes(path):
    return [(n.op_type, n.name, list(n.input), list(n.output)) for n in onnx.load(path).graph.node]


def test_chosen_passes_run_alone(optc, model):
    whole, chosen = facts(optc, model), facts(optc, model, "--passes=norm,activation.gelu_erf", "--passes=dead")
    assert {r["rule"].split(".")[0] for r in whole["rules"]} > {"norm", "activation"}
    assert {r["pass"] for r in chosen["rules"]} <= {"norm", "activation", "dead"}
    assert {"activation.gelu_erf"} == {r["rule"] for r in chosen["rules"] if r["pass"] == "activation"}
    done = run(optc, "opt", model, "--passes=nrom", code=2)
    assert "no pass and no rule is named 'nrom'" in done.stderr and not done.stdout


def test_two_halves_make_the_whole(optc, model, passes, tmp_path):
    """Wherever the passes are parted, the second half ends with the model that both make at once."""
    run(optc, "opt", model, "-o", tmp_path / "whole.onnx", "--opset=20")
    for first, second in zip(passes, passes[1:]):
        half, out = tmp_path / f"{first}.onnx", tmp_path / f"{first}.out.onnx"
        told = facts(optc, model, "--stop-after", first, "-o", half)
        assert {r["pass"] for r in told["rules"]} <= set(passes[: passes.index(first) + 1])
        run(optc, "opt", half, "--start-from", second, "-o", out, "--opset=20")
        assert [n[0] for n in nodes(out)] == [n[0] for n in nodes(tmp_path / "whole.onnx")]
        if first == passes[0]:
            assert len(nodes(half)) > len(nodes(out))
    done = run(optc, "opt", model, "--stop-after=norm", "--start-from=activation", code=2)
    assert "--stop-after norm is before --start-from activation" in done.stderr
    assert "nosuch" in run(optc, "opt", model, "--stop-after=nosuch", code=2).stderr


def test_passes_are_timed(optc, model):
    told = facts(optc, model, "--time-passes")
    timed = told["passes"]
    assert sum(t["rewrites"] for t in timed) == sum(r["count"] for r in told["rules"])
    assert len({t["runs"] for t in timed}) == 1 and timed[0]["runs"] >= 2 and all(t["seconds"] >= 0 for t in timed)
    by_pass = {t["pass"]: t["rewrites"] for t in timed}
    assert by_pass["activation"] == sum(r["count"] for r in told["rules"] if r["pass"] == "activation") > 0
    lines = run(optc, "opt", model, "--time-passes").stdout.splitlines()
    at = lines.index("      ms      %  rewrites  runs  pass")
    assert [line.split()[-1] for line in lines[at + 1:]] == list(by_pass) and max(map(len, lines)) < 80
    assert "passes" not in facts(optc, model)


def test_the_graph_is_written_behind_passes(optc, model, passes, tmp_path):
    run(optc, "opt", model, "--dump-ir-after=changed", "--dump-dir", tmp_path / "changed", "--opset=20")
    texts = sorted((tmp_path / "changed").iterdir())
    assert [p.name.split("-")[0] for p in texts] == [f"{i + 1:02}" for i in range(len(texts))]
    assert {p.stem.split("-")[1] for p in texts} == {r["pass"] for r in facts(optc, model)["rules"]}
    assert all(a.read_text() != b.read_text() for a, b in zip(texts, texts[1:]))
    assert all(p.read_text().startswith("graph ") for p in texts)
    gelu = next(p for p in texts if p.stem.endswith("-activation"))
    assert "Gelu(" in gelu.read_text() and "Erf(" not in gelu.read_text()
    # What a pass left is what the optimizer is stopped with.
    run(optc, "opt", model, "--stop-after=norm", "--dump-ir-after=norm", "--dump-dir", tmp_path / "norm", "--opset=20")
    (norm,) = (tmp_path / "norm").iterdir()
    assert norm.name == "01-norm.txt" and norm.read_text() == next(p for p in texts if p.stem.endswith("-norm")).read_text()
    told = run(optc, "opt", model, "--dump-ir-after=all", "--dump-dir", tmp_path / "all").stdout
    count = len(list((tmp_path / "all").iterdir()))
    assert f"wrote {count} graphs to {tmp_path / 'all'}" in told and count % len(passes) == 0 and count > len(texts)
    done = run(optc, "opt", model, "--dump-ir-after=all", code=2)
    assert "--dump-ir-after WHAT and --dump-dir DIR go together" in done.stderr
    (tmp_path / "file").write_text("")
    assert "--dump-dir" in run(optc, "opt", model, "--dump-ir-after=all", "--dump-dir", tmp_path / "file", code=2).stderr


def test_what_is_compiled_goes_by_the_same_passes(optc, model, passes, tmp_path):
    """inspect shows what a choice of passes leaves; bundle and verify are of that, and a bundle by other passes is another one in the cache."""
    optimized = lambda *words: run(optc, "inspect", model, "--ir=optimized", *words).stdout  # noqa: E731
    assert "Gelu(" in optimized() and "Gelu(" not in optimized("--passes=fold,identity") and "Gelu(" not in optimized("--stop-after=norm")
    assert "LayerNormalization(" in optimized("--stop-after=norm") and "LayerNormalization(" not in optimized("--start-from=activation", "--passes=activation")
    facts = [json.loads(run(optc, model, "-n", "--format=json", "--time-passes", *words).stdout) for words in ((), ("--stop-after=fold",), ("--passes=dead",))]
    assert facts[0]["kernels"] <= facts[1]["kernels"] and [p["pass"] for p in facts[1]["passes"]] == ["fold"]
    assert {p["pass"] for p in facts[2]["passes"] if p["rewrites"]} <= {"dead"} and [p["pass"] for p in facts[0]["passes"]] == passes
    told = run(optc, model, "-o", tmp_path / "bundle", "--time-passes", "--dump-ir-after=all", "--dump-dir", tmp_path / "texts").stdout
    assert "rewrites  runs  pass" in told and len(list((tmp_path / "texts").iterdir())) % len(passes) == 0
    env = {**os.environ, "OPTC_PYTHON": sys.executable}
    for words in (("--passes=fold",), ("--stop-after=norm",), ("--start-from=cse",)):
        done = subprocess.run([optc, "verify", model, "--engine=evaluate", *words], capture_output=True, text=True, env=env, check=False)
        assert done.returncode == 0, done.stderr
    for verb in ("verify", "bench", "run", "inspect", "tune"):
        assert "--stop-after fold is before --start-from cse" in run(optc, verb, model, "--start-from=cse", "--stop-after=fold", code=2).stderr
