"""optc tune: what it measures, and that a build takes it, the same each time, or refuses it by name."""

import json
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

WAYS = {"conv.winograd4", "conv.winograd2", "conv.direct"}


def run(optc, *arguments, code=0, **environment):
    done = subprocess.run([str(optc), *map(str, arguments)], capture_output=True, text=True,
                          env={**os.environ, "OPTC_PYTHON": sys.executable, **environment})
    assert done.returncode == code, (arguments, done.returncode, done.stdout[-800:], done.stderr[-800:])
    return done


def network():
    """Two 3x3 convolutions of one form, pooled, and a product of two layers behind them."""
    rng = np.random.default_rng(5)
    shapes = {"c0": (32, 32, 3, 3), "c1": (32, 32, 3, 3), "w0": (32, 24), "w1": (24, 10)}
    weights = [numpy_helper.from_array((rng.standard_normal(s) / np.sqrt(np.prod(s[1:]))).astype(np.float32), name)
               for name, s in shapes.items()]
    nodes = [helper.make_node("Relu", ["x"], ["r"]),
             helper.make_node("Conv", ["r", "c0"], ["a"], pads=[1] * 4, name="conv0"),
             helper.make_node("Relu", ["a"], ["b"]),
             helper.make_node("Conv", ["b", "c1"], ["c"], pads=[1] * 4, name="conv1"),
             helper.make_node("Relu", ["c"], ["d"]),
             helper.make_node("ReduceMean", ["d"], ["p"], axes=[2, 3], keepdims=0),
             helper.make_node("MatMul", ["p", "w0"], ["h"]), helper.make_node("Relu", ["h"], ["q"]),
             helper.make_node("MatMul", ["q", "w1"], ["y"])]
    graph = helper.make_graph(nodes, "network", [helper.make_tensor_value_info("x", 1, [1, 32, 16, 16])],
                              [helper.make_tensor_value_info("y", 1, [1, 10])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("tune") / "network.onnx"
    onnx.save(network(), path)
    return path


@pytest.fixture(scope="module")
def tuned(optc, model):
    """What `optc tune` says, and its file."""
    path = model.parent / "tuning.json"
    said = run(optc, "tune", model, "-o", path, "--seconds", "1", "--format=json", "-q")
    return json.loads(said.stdout), path


def edited(path, to, change):
    cache = json.loads(path.read_text())
    change(cache)
    to.write_text(json.dumps(cache))
    return to


def files_of(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_every_way_is_measured_and_the_choice_is_written(tuned):
    said, path = tuned
    cache = json.loads(path.read_text())
    assert cache["target"] == "cpu" and cache["threads"] == 1 and len(cache["forms"]) == len(said["forms"]) == 1
    form, written = said["forms"][0], cache["forms"][0]
    assert form["kernels"] == 2 and {w["way"] for w in form["ways"]} == WAYS
    times = {w["way"]: w["microseconds"] for w in form["ways"]}
    assert all(t > 0 for t in times.values())
    assert written["form"] == form["form"] and written["way"] == form["chosen"] and written["model"] == "conv.winograd4"
    # Not slower than the model's, and another than that only where it is quicker by more than the noise.
    assert times[form["chosen"]] <= times["conv.winograd4"]
    assert (form["chosen"] != "conv.winograd4") <= (said["changed"] == 1)


def test_a_build_repeats_the_choices_to_the_byte(optc, model, tuned, tmp_path):
    _, path = tuned
    direct = edited(path, tmp_path / "direct.json", lambda c: c["forms"][0].update(way="conv.direct"))
    folders = []
    for name in ("one", "two"):
        done = run(optc, model, "-o", tmp_path / name / "network", "--tuning-cache", direct)
        assert "2 by measurement" in done.stderr
        folders.append(files_of(tmp_path / name / "network"))
    assert folders[0] == folders[1]
    kernels = json.loads(folders[0]["manifest.json"])["kernels"]
    chosen = [k for k in kernels if k["strategy"].startswith("conv.")]
    assert [k["strategy"] for k in chosen] == ["conv.direct"] * 2
    assert all(k["choice"]["by"] == "measurement" and set(k["choice"]["ways"]) == WAYS for k in chosen)
    # Of another size the file has nothing: those kernels are named.
    other = network()
    other.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 24
    onnx.save(other, tmp_path / "other.onnx")
    done = run(optc, tmp_path / "other.onnx", "-o", tmp_path / "other", "--tuning-cache", direct)
    assert "0 by measurement, 2 of other ways not measured (conv0" in done.stderr
    kernels = json.loads((tmp_path / "other/manifest.json").read_text())["kernels"]
    assert [k["choice"]["by"] for k in kernels if k["strategy"].startswith("conv.")] == ["model"] * 2


def test_the_answers_stay(optc, model, tuned, tmp_path):
    _, path = tuned
    for way in sorted(WAYS):
        cache = edited(path, tmp_path / f"{way}.json", lambda c: c["forms"][0].update(way=way))
        run(optc, "verify", model, "--tuning-cache", cache)


def test_tuning_on_from_a_cache_measures_only_what_is_new(optc, model, tuned, tmp_path):
    _, path = tuned
    said = run(optc, "tune", model, "-o", tmp_path / "again.json", "--tuning-cache", path)
    assert "no kernel has more than one that is not measured yet" in said.stderr
    assert json.loads((tmp_path / "again.json").read_text()) == json.loads(path.read_text())


@pytest.mark.parametrize("change, reason", [
    (lambda c: c.update(processor="Another 9000"), "was measured on another machine: Another 9000"),
    (lambda c: c.update(schedules=999), "was measured with version 999 of the schedules"),
    (lambda c: c.update(target="sm_90a"), "was measured for sm_90a"),
    (lambda c: c["forms"][0].update(way="conv.depthwise"), "run by 'conv.depthwise', which it cannot"),
    (lambda c: c["forms"].append(c["forms"][0]), "form 2: it stands there twice"),
    (lambda c: c.pop("kind"), "is no tuning cache"),
])
def test_what_does_not_fit_is_refused_and_nothing_is_written(optc, model, tuned, tmp_path, change, reason):
    _, path = tuned
    cache = edited(path, tmp_path / "t.json", change)
    done = run(optc, model, "-o", tmp_path / "out", "--tuning-cache", cache, code=2)
    assert done.stderr.count("error[") == 1 and reason in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()


def test_a_cache_of_another_processor_is_taken_when_asked(optc, model, tuned, tmp_path):
    _, path = tuned
    cache = edited(path, tmp_path / "t.json", lambda c: c.update(processor="Another 9000"))
    run(optc, model, "-o", tmp_path / "out", "--tuning-cache", cache, "--foreign-tuning")
    assert (tmp_path / "out/manifest.json").exists()


def test_damaged_files_are_refused(optc, model, tuned, tmp_path):
    _, path = tuned
    good = path.read_text()
    for i, text in enumerate(["", good[:200], "[" * 100000, good.replace("{", "", 1), "\0" * 64]):
        cache = tmp_path / f"{i}.json"
        cache.write_text(text)
        done = run(optc, model, "-o", tmp_path / "out", "--tuning-cache", cache, code=2)
        assert "is no tuning cache" in done.stderr
    assert "error[io]" in run(optc, model, "-o", tmp_path / "out", "--tuning-cache", tmp_path / "none", code=2).stderr


def test_a_gpu_is_needed_to_tune_for_one(optc, model, tmp_path):
    done = run(optc, "tune", model, "-o", tmp_path / "t.json", "--target", "cpu,sm_90a", code=2,
               OPTC_LIBCUDA="/nowhere/libcuda.so")
    assert done.stderr.count("error[io]") == 1
    assert "kernels of a GPU are tuned on one, and there is none: /nowhere/libcuda.so" in done.stderr
    assert "bundle 1" not in done.stderr and not (tmp_path / "t.json").exists()


@pytest.mark.tier2
def test_tiles_of_a_gpu_are_measured_on_the_emulated_card(optc, tmp_path):
    rng = np.random.default_rng(7)
    weights = numpy_helper.from_array(rng.standard_normal((64, 32)).astype(np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "product",
                              [helper.make_tensor_value_info("x", 1, [32, 64])],
                              [helper.make_tensor_value_info("y", 1, [32, 32])], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "p.onnx")
    emulated = {"OPTC_LIBCUDA": str(optc.parent.parent / "tests/libemulated_cuda.so")}
    target = ("--target", "cpu,sm_80")
    done = run(optc, "tune", tmp_path / "p.onnx", "-o", tmp_path / "t.json", "--seconds", "1", "--format=json", *target,
               **emulated)
    form = json.loads(done.stdout)["forms"][0]
    assert len(form["ways"]) == 6 and all(w["microseconds"] > 0 for w in form["ways"])
    # The last way of all, and not the model's, is what a build has that is told so.
    last = form["ways"][-1]["way"]
    cache = edited(tmp_path / "t.json", tmp_path / "last.json", lambda c: c["forms"][0].update(way=last))
    run(optc, tmp_path / "p.onnx", "-o", tmp_path / "p", "--tuning-cache", cache, *target)
    kernel = json.loads((tmp_path / "p/manifest.json").read_text())["gpu"]["kernels"][0]
    assert kernel["choice"]["by"] == "measurement" and kernel["choice"]["ways"][0] == last
    run(optc, "verify", tmp_path / "p.onnx", "--tuning-cache", cache, *target, **emulated)
