"""--variant: one bundle, the general code and code of its own for some sizes, behind guards."""

import ctypes
import json
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from abi import F32, I64, OK, api_of, attempt, build, create, make, value

N_VARIANTS = ("--variant", "N=2,S=3", "--variant", "N=5..6")


def product(seed=3):
    """Of hidden = relu(x w + b), x [N, S, 64]: hidden v and the mean over S; and the ids doubled."""
    rng = np.random.default_rng(seed)
    w, b, v = (rng.standard_normal(dims, np.float32) for dims in ((64, 48), 48, (48, 32)))
    weights = [*(onnx.numpy_helper.from_array(array, name) for name, array in (("w", w), ("b", b), ("v", v))),
               helper.make_tensor("axes", I64, [1], [1]), helper.make_tensor("two", I64, [], [2])]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["xw"]), helper.make_node("Add", ["xw", "b"], ["sum"]),
             helper.make_node("Relu", ["sum"], ["hidden"]), helper.make_node("MatMul", ["hidden", "v"], ["out"]),
             helper.make_node("ReduceMean", ["hidden", "axes"], ["mean"], keepdims=0),
             helper.make_node("Mul", ["ids", "two"], ["doubled"])]
    model = make(nodes, [value("x", ["N", "S", 64]), value("ids", ["N", "S"], I64)],
                 [value("out", ["N", "S", 32]), value("mean", ["N", 48]), value("doubled", ["N", "S"], I64)], weights)

    def answer(x, ids):
        hidden = np.maximum(x.astype(np.float64) @ w + b, 0)
        return {"out": hidden @ v, "mean": hidden.mean(1), "doubled": ids * 2}

    return model, answer


@pytest.fixture(scope="module")
def bundle(optc, tmp_path_factory):
    folder = tmp_path_factory.mktemp("variants")
    model, answer = product()
    module, library = build(optc, folder, "product", model, *N_VARIANTS)
    return folder / "product", module, library, answer


def inputs(n, s, seed=0):
    rng = np.random.default_rng([seed, n, s])
    return rng.standard_normal((n, s, 64), np.float32), rng.integers(-9, 9, (n, s))


def taken(profile):
    """The entries whose kernels ran, None for the general one."""
    return {kernel.get("variant") for kernel in json.loads(profile) if kernel["calls"]}


@pytest.mark.parametrize("threads", [1, 3])
def test_each_size_runs_in_its_entry_and_is_right(bundle, threads):
    folder, module, library, answer = bundle
    model = module.Model(str(library), threads=threads, weights_path=folder / "product.weights")
    sizes = [(2, 3), (1, 1), (5, 7), (2, 4), (6, 2), (2, 3), (3, 3), (5, 40), (2, 3), (7, 1), (4, 50), (6, 2), (5, 7), (2, 0)]
    for n, s in sizes:
        expected = "N=2,S=3" if (n, s) == (2, 3) else "N=5..6" if n in (5, 6) else None
        x, ids = inputs(n, s)
        model.profile(False)
        model.profile(True)
        with np.errstate(invalid="ignore", divide="ignore"):
            result, wanted = model(x, ids), answer(x, ids) if s else None
        assert taken(model.profile(False)) == {expected}, (n, s)
        for name, array in (wanted or {}).items():
            assert result[name].shape == array.shape
            np.testing.assert_allclose(result[name], array, rtol=1e-5, atol=2e-4, err_msg=f"{name} {n} {s}")


def test_the_workspace_is_the_entrys_own(bundle):
    folder, module, library, _ = bundle
    api, manifest = api_of(module, library), json.loads((folder / "manifest.json").read_text())
    variant = {v["name"]: v for v in manifest["variants"]}
    assert list(variant) == ["N=2,S=3", "N=5..6"] and variant["N=2,S=3"]["sizes"] == {"N": 2, "S": 3}
    assert variant["N=5..6"]["sizes"] == {"N": [5, 6]} and variant["N=5..6"]["arena_bytes"] is None
    assert manifest["arena_bytes"] is None and variant["N=2,S=3"]["arena_bytes"] > 0
    assert [len(v["kernels"]) > 0 for v in manifest["variants"]] == [True, True]

    def needed(n, s):
        values, keep = (module._Value * 2)(), []
        for slot, info, array in zip(values, ("x", "ids"), inputs(n, s)):
            slot.tensor.type, slot.tensor.rank = (F32, 3) if info == "x" else (I64, 2)
            slot.tensor.dims[:array.ndim] = array.shape
            slot.tensor.data = array.ctypes.data
            keep.append(array)
        size = ctypes.c_size_t()
        assert api.workspace_bytes(values, ctypes.byref(size)) == OK, api.last_error(None)
        return size.value

    # With the row scratch of further threads it may be more.
    assert needed(2, 3) >= variant["N=2,S=3"]["arena_bytes"]
    # One workspace of the caller's serves every entry, and one that is too small is refused with the size that is needed.
    most = max(needed(n, s) for n, s in ((2, 3), (5, 3), (4, 3)))
    memory = (ctypes.c_char * most)()
    status, context, text = create(module, api, workspace=ctypes.addressof(memory), workspace_bytes=most, threads=1,
                                   weights_path=str(folder / "product.weights").encode())
    assert status == OK, text


def test_the_weights_are_written_once(optc, bundle, tmp_path):
    folder, _, _, _ = bundle
    model, _ = product()
    onnx.save(model, tmp_path / "one.onnx")
    subprocess.run([optc, tmp_path / "one.onnx", "-o", tmp_path / "one", "-q", "--dim", "N=2", "--dim", "S=3"], check=True)
    assert (folder / "product.weights").stat().st_size <= 1.02 * (tmp_path / "one/one.weights").stat().st_size + 128


def test_a_user_is_told_of_them(optc, bundle):
    folder = bundle[0]
    for file in ("README.md", "include/product.h", "report.html"):
        text = (folder / file).read_text()
        assert "N=2,S=3" in text and "N=5..6" in text, file
    said = subprocess.run([optc, "explain", f"{folder}:"], capture_output=True, text=True, check=True).stdout
    assert said.count("of     variant N=2,S=3") >= 1
    model = folder.parent / "product.onnx"
    said = subprocess.run([optc, "inspect", model, *N_VARIANTS], capture_output=True, text=True, check=True).stdout
    assert "variant     N=2,S=3: " in said and "variant     N=5..6: " in said and "arena by the dims" in said
    plan = json.loads(subprocess.run([optc, "inspect", model, *N_VARIANTS, "--print-memory-plan", "--format", "json"], capture_output=True,
                                     text=True, check=True).stdout)
    made = json.loads((folder / "manifest.json").read_text())["variants"]
    assert [(v["name"], v["arena_bytes"]) for v in plan["variants"]] == [(v["name"], v["arena_bytes"]) for v in made]


def test_ranges_of_dims_are_shown(optc, tmp_path):
    model, _ = product()
    onnx.save(model, tmp_path / "m.onnx")
    subprocess.run([optc, tmp_path / "m.onnx", "-o", tmp_path / "m", "-q", "--dim", "N=1..8"], check=True)
    for file in ("README.md", "include/m.h"):
        text = (tmp_path / "m" / file).read_text()
        assert "dim N: 1 to 8" in text and "dim S" not in text, file


@pytest.mark.parametrize("options, code, text", [
    (["--variant", "N"], 2, "expected NAME=VALUE"),
    (["--variant", "N=2,"], 2, "expected NAME=VALUE"),
    (["--variant", "N=3..2"], 2, "expected NAME=VALUE"),
    (["--variant", "N=2,N=3"], 2, "N is given twice"),
    (["--variant", "N=2", "--variant", "N=2"], 2, "--variant N=2 is given twice"),
    (["--variant", "Q=2"], 2, "no dimension named 'Q'"),
    (["--variant", "N=9", "--dim", "N=1..8"], 2, "--dim N=1..8 leaves no such size open"),
    (["--variant", "N=4", "--dim", "N=4"], 2, "--dim N=4 leaves no such size open"),
    (["--variant", "N=4", "--target", "cpu,sm_80"], 4, "GPU half"),
])
def test_wrong_variants_are_one_error(optc, tmp_path, options, code, text):
    model, _ = product()
    onnx.save(model, tmp_path / "m.onnx")
    done = subprocess.run([optc, tmp_path / "m.onnx", "-o", tmp_path / "out", *options], capture_output=True, text=True)
    assert done.returncode == code and text in done.stderr and done.stderr.count("error[") == 1, done.stderr
    assert not (tmp_path / "out").exists()


def test_the_evaluator_and_a_watched_bundle_have_none(optc, tmp_path):
    model, _ = product()
    onnx.save(model, tmp_path / "m.onnx")
    for verb, more in (("run", ["--engine", "evaluate"]), ("verify", ["--per-kernel"])):
        done = subprocess.run([optc, verb, tmp_path / "m.onnx", "--variant", "N=2", *more], capture_output=True, text=True)
        assert done.returncode == 2 and "--variant" in done.stderr, done.stderr


def test_verify_runs_each_variant(optc, tmp_path):
    model, _ = product()
    onnx.save(model, tmp_path / "m.onnx")
    done = subprocess.run([optc, "verify", tmp_path / "m.onnx", *N_VARIANTS, "--format", "json"], capture_output=True, text=True,
                          env=os.environ | {"OPTC_PYTHON": sys.executable})
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["input_sets"] == 4 and {"N": 2, "S": 3} in report["sizes"] and any(s["N"] == 5 for s in report["sizes"])


def test_entries_have_their_own_strings(optc, tmp_path, links=60):
    """Entries of which each has its own run-time objects. (With links=1500 their schedules are divided over several files.)"""
    nodes, last = [], "x"
    for i in range(links):
        nodes += [helper.make_node("CumSum", [last, "zero"], [f"s{i}"], name=f"a_node_of_a_name_that_is_long_for_a_file_{i}"),
                  helper.make_node("Mul", [f"s{i}", "small"], [f"m{i}"])]
        last = f"m{i}"
    nodes += [helper.make_node("Identity", [last], ["y"]), helper.make_node("StringConcat", ["names", "names"], ["twice"])]
    constants = [helper.make_tensor("zero", I64, [], [0]), helper.make_tensor("small", F32, [], [0.5])]
    model = make(nodes, [value("x", ["N", 2]), value("names", ["N"], TensorProto.STRING)],
                 [value("y", ["N", 2]), value("twice", ["N"], TensorProto.STRING)], constants)
    module, library = build(optc, tmp_path, "chain", model, "--variant", "N=3")
    own = module.Model(str(library), threads=1)
    for n in (3, 2, 3, 4):
        x, names = np.random.default_rng(n).standard_normal((n, 2), np.float32), [f"name {i}" for i in range(n)]
        expected = x.copy()
        for _ in range(links):
            expected = np.cumsum(expected, 0, dtype=np.float32) * np.float32(0.5)
        own.profile(True)
        result = own(x, names)
        assert taken(own.profile(False)) == {"N=3" if n == 3 else None}
        np.testing.assert_allclose(result["y"], expected, rtol=1e-4, atol=1e-30)
        assert result["twice"].tolist() == [t + t for t in names]
