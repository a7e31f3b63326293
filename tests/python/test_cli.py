"""The command line's contract: exit codes, where things are printed, and the verbs on a small model."""

import json
import os
import subprocess

import numpy as np
import onnx
import pytest
import terminal
from onnx import TensorProto, helper, numpy_helper


def run(optc, *arguments, code=0, env=None):
    done = subprocess.run([optc, *map(str, arguments)], capture_output=True, text=True, env=env)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """x [N, 4] -> relu(x w + b) -> softmax."""
    random = np.random.default_rng(5)
    w = numpy_helper.from_array(random.standard_normal((4, 6), dtype=np.float32), "w")
    b = numpy_helper.from_array(random.standard_normal(6, dtype=np.float32), "b")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="fc/MatMul"),
        helper.make_node("Identity", ["m"], ["i"], name="fc/Identity"),
        helper.make_node("Add", ["i", "b"], ["a"], name="fc/Add"),
        helper.make_node("Relu", ["a"], ["r"], name="act"),
        helper.make_node("Softmax", ["r"], ["y"], name="head"),
    ]
    graph = helper.make_graph(
        nodes, "small", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 6])], [w, b])
    path = tmp_path_factory.mktemp("models") / "small-net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def reference(path, x):
    proto = onnx.load(path)
    w, b = (numpy_helper.to_array(t) for t in proto.graph.initializer)
    r = np.maximum(x.astype(np.float64) @ w + b, 0)
    e = np.exp(r - r.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_no_arguments_is_a_usage_error_that_names_help(optc):
    assert "--help" in run(optc, code=2).stderr


def test_help_lists_the_verbs(optc):
    text = run(optc, "--help").stdout
    for verb in ("compile", "opt", "run", "verify", "inspect", "bench", "diff", "explain", "ops", "cache", "completion", "man"):
        assert verb in text


def test_help_fits_a_terminal(optc):
    """No line beyond 79 columns, no word of the library that reads the command line."""
    import re

    verbs = re.findall(r"^  (\w+)  ", run(optc, "--help").stdout.split("Verbs:")[1], re.M)
    for words in ([], *([verb] for verb in verbs)):
        text = run(optc, *words, "--help").stdout
        assert max(map(len, text.splitlines())) < 80, words
        for foreign in ("Print this help message", "REQUIRED", "Positionals", "Subcommand", "{false}", ":{", " in ["):
            assert foreign not in text, (words, foreign)


def test_completions_and_the_manual_know_every_option(optc, tmp_path):
    """All three are written of the grammar: what the help of a verb lists they have."""
    import re
    import shutil

    texts = {shell: run(optc, "completion", shell).stdout for shell in ("bash", "zsh", "fish")}
    manual = run(optc, "man").stdout.replace("\\-", "-")
    verbs = re.findall(r"^  (\w+)  ", run(optc, "--help").stdout.split("Verbs:")[1], re.M)
    assert len(verbs) >= 12
    for verb in verbs:
        for option in re.findall(r"^  (?:-\w,)?--([a-z][\w-]*)", run(optc, verb, "--help").stdout, re.M):
            assert f"--{option}" in manual and f"--{option}" in texts["bash"] and f"--{option}" in texts["zsh"], (verb, option)
            assert f" -l {option}" in texts["fish"], (verb, option)
    if shutil.which("bash"):
        (tmp_path / "complete").write_text(texts["bash"])
        words = "source complete; COMP_WORDS=(optc verify model.onnx --engine ''); COMP_CWORD=4; _optc; echo ${COMPREPLY[@]}; " \
                "COMP_WORDS=(optc diff --ig); COMP_CWORD=2; _optc; echo ${COMPREPLY[@]}; COMP_WORDS=(optc ben); COMP_CWORD=1; _optc; echo ${COMPREPLY[@]}"
        said = subprocess.run(["bash", "-c", words], capture_output=True, text=True, check=True, cwd=tmp_path).stdout
        assert said.split("\n")[:3] == ["bundle evaluate", "--ignore", "bench"]
    if shutil.which("zsh"):
        (tmp_path / "_optc").write_text(texts["zsh"])
        subprocess.run(["zsh", "-n", str(tmp_path / "_optc")], check=True)
    if shutil.which("man"):
        done = subprocess.run(["man", "--warnings", "-l", "-"], input=run(optc, "man").stdout, capture_output=True, text=True, check=True)
        assert not done.stderr and "--fail-if-slower" in done.stdout


def test_the_list_of_operators_in_docs_is_the_tools(optc, root):
    """`optc ops --format=markdown > docs/operators.md` writes it anew."""
    assert run(optc, "ops", "--format=markdown").stdout == (root / "docs/operators.md").read_text()
    listed = json.loads(run(optc, "ops", "--format=json").stdout)["operators"]
    assert {o["domain"] for o in listed} >= {"ai.onnx", "ai.onnx.ml", "com.microsoft"} and len(listed) > 250


def test_usage_io_and_invalid_have_their_exit_codes(optc, model, tmp_path):
    assert "error[usage]" in run(optc, "inspect", model, "--no-such-flag", code=2).stderr
    assert "error[io]" in run(optc, "inspect", tmp_path / "absent.onnx", code=2).stderr
    (tmp_path / "broken.onnx").write_bytes(b"\x08\x07not a model\xff\xff")
    assert "error[invalid]" in run(optc, "inspect", tmp_path / "broken.onnx", code=3).stderr
    (tmp_path / "pointer.onnx").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n")
    assert "git lfs pull" in run(optc, "inspect", tmp_path / "pointer.onnx", code=3).stderr


def test_unsupported_operators_are_all_listed(optc, tmp_path):
    nodes = [helper.make_node(op, ["x"], [op], name=f"post/{op}", domain="com.acme") for op in ("Decode", "Hash")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
                              [helper.make_tensor_value_info("Hash", TensorProto.FLOAT, [2])])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1)])
    onnx.save(proto, tmp_path / "acme.onnx")
    text = run(optc, "inspect", tmp_path / "acme.onnx", code=4).stderr
    assert "error[unsupported]" in text and "Decode" in text and "Hash" in text


def test_inspect_gives_the_signature_as_json(optc, model):
    facts = json.loads(run(optc, "inspect", model, "--format=json").stdout)
    assert facts["inputs"] == [{"name": "x", "type": "f32[N,4]"}]
    assert facts["operators"]["Softmax"] == 1 and facts["nodes"] == 5 and facts["parameters"] == 30


def test_inspect_prints_the_memory_plan(optc, model, tmp_path):
    plan = json.loads(run(optc, "inspect", model, "--dim=N=8", "--print-memory-plan", "--format=json").stdout)
    facts = json.loads(run(optc, model, "-o", tmp_path / "b", "--dim=N=8", "--format=json").stdout)
    manifest = json.loads((tmp_path / "b" / "manifest.json").read_text())
    assert plan["arena_bytes"] == facts["arena_bytes"] == manifest["arena_bytes"] > 0
    assert [{k: b[k] for k in ("name", "bytes", "first", "last", "offset")} for b in manifest["buffers"]] == [
        {k: b[k] for k in ("name", "bytes", "first", "last", "offset")} for b in plan["buffers"]]
    text = run(optc, "inspect", model, "--dim=N=8", "--print-memory-plan").stdout
    assert f"({plan['arena_bytes']} bytes) for one thread" in text and all(b["name"] in text for b in plan["buffers"])
    text = run(optc, "inspect", model, "--print-memory-plan").stdout
    assert "by the dims of a run" in text and "N" in text
    run(optc, "inspect", model, "--print-memory-plan", "--ir=program", code=2)


def test_opt_writes_a_model_that_computes_the_same(optc, model, tmp_path):
    import onnxruntime

    out = tmp_path / "small.opt.onnx"
    facts = json.loads(run(optc, "opt", model, "-o", out, "--format=json").stdout)
    assert facts["nodes_after"] < facts["nodes_before"]
    onnx.checker.check_model(out, full_check=True)
    x = np.random.default_rng(1).standard_normal((3, 4), dtype=np.float32)
    y = onnxruntime.InferenceSession(str(out)).run(None, {"x": x})[0]
    np.testing.assert_allclose(y, reference(model, x), rtol=1e-5, atol=1e-6)
    text = run(optc, "diff", model, out, "--exit-code", code=1).stdout
    assert "removed" in text or "fused" in text
    run(optc, "diff", model, model, "--exit-code")


@pytest.mark.parametrize("engine", ["evaluate", "bundle"])
def test_run_reads_and_writes_values(optc, model, tmp_path, engine):
    x = np.random.default_rng(2).standard_normal((2, 4), dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    run(optc, "run", model, f"--engine={engine}", f"--input=x=@{tmp_path / 'x.npy'}", "--outputs", tmp_path / "out")
    y = numpy_helper.to_array(onnx.TensorProto.FromString((tmp_path / "out/output_0.pb").read_bytes()))
    np.testing.assert_allclose(y, reference(model, x), rtol=1e-5, atol=1e-6)


def test_wrong_inputs_are_usage_errors(optc, model, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((2, 5), np.float32))
    for engine in ("evaluate", "bundle"):
        run(optc, "run", model, f"--engine={engine}", f"--input=x=@{tmp_path / 'x.npy'}", code=2)
    run(optc, "run", model, "--input=z=@nothing.npy", code=2)


@pytest.mark.parametrize("engine", ["evaluate", "bundle"])
def test_verify_against_onnx_runtime(optc, model, engine):
    import os
    import sys

    env = {**os.environ, "OPTC_PYTHON": sys.executable}
    done = run(optc, "verify", model, f"--engine={engine}", "--format=json", env=env)
    facts = json.loads(done.stdout)
    assert facts["ok"] and facts["against"].startswith("ONNX Runtime") and facts["input_sets"] == 2


def test_verify_finds_a_difference_and_cannot_verify_is_not_good(optc, model, tmp_path):
    import os

    folder = tmp_path / "set"
    folder.mkdir()
    x = np.random.default_rng(3).standard_normal((2, 4), dtype=np.float32)
    np.save(folder / "input_0.npy", x)
    good = reference(model, x).astype(np.float32)
    np.save(folder / "output_0.npy", good)
    run(optc, "verify", model, "--engine=evaluate", "--inputs", folder, "--against", folder)
    good[1, 2] += 0.01
    np.save(folder / "output_0.npy", good)
    text = run(optc, "verify", model, "--engine=evaluate", "--inputs", folder, "--against", folder, code=1)
    assert "FAIL" in text.stdout and "error[mismatch]" in text.stderr
    run(optc, "verify", model, "--engine=evaluate", env={**os.environ, "OPTC_PYTHON": "/no/such/python"}, code=2)


def test_compile_writes_the_same_bytes_twice(optc, model, tmp_path):
    for name in ("a", "b"):
        run(optc, model, "-o", tmp_path / name)
    files = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*") if p.is_file())
    assert any(str(f) == "report.html" for f in files) and any(str(f) == "manifest.json" for f in files)
    assert files == sorted(p.relative_to(tmp_path / "b") for p in (tmp_path / "b").rglob("*") if p.is_file())
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file


def test_compile_replaces_bundles_only(optc, model, tmp_path):
    run(optc, model, "-o", tmp_path / "bundle", "-q")
    run(optc, model, "-o", tmp_path / "bundle", "-q")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").write_text("keep me")
    run(optc, model, "-o", tmp_path / "mine", code=2)
    assert (tmp_path / "mine/letter.txt").read_text() == "keep me"


def test_compile_keeps_what_others_put_into_a_bundle(optc, model, tmp_path):
    bundle = tmp_path / "bundle"
    run(optc, model, "-o", bundle, "-q")
    (bundle / "build").mkdir()
    (bundle / "build/CMakeCache.txt").write_text("cache")
    run(optc, model, "-o", bundle, "-q", "-O0")
    assert (bundle / "build/CMakeCache.txt").read_text() == "cache"
    (bundle / "examples/main.cpp").write_text("// mine")
    error = run(optc, model, "-o", bundle, code=2).stderr
    assert "examples/main.cpp" in error and "--force" in error
    assert (bundle / "examples/main.cpp").read_text() == "// mine"
    run(optc, model, "-o", bundle, "-q", "--force")
    assert (bundle / "examples/main.cpp").read_text() != "// mine"
    (tmp_path / "link").symlink_to("bundle")
    run(optc, model, "-o", tmp_path / "link", "-q", "--name=other")
    assert (tmp_path / "link").is_symlink() and (bundle / "include/other.h").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bundle", "link"]


def test_names_that_a_bundle_cannot_have(optc, model, tmp_path):
    for name in ("", "class", "time", "a b"):
        error = run(optc, model, "-o", tmp_path / "bundle", "--name", name, code=2).stderr
        assert "error[usage]" in error and f"'{name}'" in error
    assert not (tmp_path / "bundle").exists()


def test_too_much_memory_is_not_a_failed_check(optc, tmp_path):
    graph = helper.make_graph(
        [helper.make_node("Expand", ["x", "s"], ["y"], name="grow"), helper.make_node("Relu", ["y"], ["z"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"]),
         helper.make_tensor_value_info("s", TensorProto.INT64, [3])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["a", "b", "c"])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "grow.onnx")
    np.save(tmp_path / "x.npy", np.ones(1, np.float32))
    for sizes, text in (([1 << 20, 1 << 20, 1 << 10], "4.0 PiB"), ([1 << 30, 1 << 30, 1 << 10], "EiB")):
        np.save(tmp_path / "s.npy", np.array(sizes, np.int64))
        error = run(optc, "run", tmp_path / "grow.onnx", "--engine=evaluate", "-q", f"--input=x=@{tmp_path}/x.npy",
                    f"--input=s=@{tmp_path}/s.npy", code=2).stderr
        assert "error[io]" in error and "'grow'" in error and text in error and "--dim" in error
    error = run(optc, "run", tmp_path / "grow.onnx", "--engine=evaluate", "-q", "--dim=N=1000000000000", code=2).stderr
    assert "3.6 TiB" in error and "--dim" in error


def test_what_a_folder_of_answers_must_hold(optc, model, tmp_path):
    error = run(optc, "verify", model, "--engine=evaluate", "--against", tmp_path, code=2).stderr
    assert "output_0.pb" in error and str(tmp_path) in error
    assert "no such file" in run(optc, "verify", model, "--against=absent.onnx", code=2).stderr


def test_why_a_file_is_not_written(optc, model, tmp_path):
    error = run(optc, "opt", model, "-q", "-o", tmp_path / "no/such/small.onnx", code=2).stderr
    assert "No such file or directory" in error
    assert "No space left on device" in run(optc, "opt", model, "-q", "-o", "/dev/full", code=2).stderr


def test_an_interrupted_compile_leaves_nothing(optc, tmp_path):
    import signal
    import time

    # Many nodes, so that there is time.
    nodes = [helper.make_node("Sin" if i % 2 else "Cos", [f"v{i}"], [f"v{i + 1}"]) for i in range(6000)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("v0", TensorProto.FLOAT, ["N", 64])],
                              [helper.make_tensor_value_info(f"v{i}", TensorProto.FLOAT, ["N", 64])
                               for i in range(1, 6001, 7)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "long.onnx")
    for attempt in range(12):
        process = subprocess.Popen([optc, tmp_path / "long.onnx", "-o", tmp_path / "out"], stderr=subprocess.DEVNULL,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a job in the background ignores it
        while process.poll() is None and not list(tmp_path.glob("out.optc.tmp*")):
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        if process.wait() == -signal.SIGINT:
            assert [p.name for p in tmp_path.iterdir()] == ["long.onnx"]
            return
        import shutil
        shutil.rmtree(tmp_path / "out")
    pytest.fail("the compile was never interrupted while it wrote")


def test_bench_gives_median_and_min(optc, model):
    facts = json.loads(run(optc, "bench", model, "--format=json", "--iters=20").stdout)
    assert 0 < facts["min_ms"] <= facts["median_ms"] and facts["threads"] == 1


def test_bench_compares_with_an_earlier_run(optc, model, tmp_path):
    base = run(optc, "bench", model, "--format=json", "--iters=20", "--percentile=50,99.9").stdout
    facts = json.loads(base)
    assert facts["min_ms"] <= facts["percentiles_ms"]["50"] <= facts["percentiles_ms"]["99.9"] and facts["processor"]
    path = tmp_path / "base.json"
    for scale, code in ((1000, 0), (0.001, 1)):
        path.write_text(json.dumps({**facts, "median_ms": facts["median_ms"] * scale}))
        done = run(optc, "bench", model, "--iters=20", "--baseline", path, "--fail-if-slower=5%", code=code)
        assert "baseline" in done.stdout and ("slower than" in done.stderr) == (code == 1)
    assert "dims" in run(optc, "bench", model, "--iters=2", "--dim=N=7", "--baseline", path, code=2).stderr
    path.write_text("{}")
    assert "no result of optc bench" in run(optc, "bench", model, "--iters=2", "--baseline", path, code=2).stderr
    assert "--baseline" in run(optc, "bench", model, "--fail-if-slower=5%", code=2).stderr
    assert "percentage" in run(optc, "bench", model, "--baseline", path, "--fail-if-slower=fast", code=2).stderr


def test_bench_tells_the_work_of_each_kernel(optc, model):
    facts = json.loads(run(optc, "bench", model, "--format=json", "--iters=5", "--per-node", "--dim=N=2").stdout)
    gemm = next(k for k in facts["kernels"] if "Gemm" in k["note"])
    assert gemm["flops"] >= 2 * 2 * 4 * 6 and gemm["bytes"] >= 4 * (2 * 4 + 4 * 6 + 6 + 2 * 6)
    assert "GFLOP/s" in run(optc, "bench", model, "--iters=5", "--per-node").stdout


def test_bench_sets_the_roof_above_each_kernel(optc, model, tmp_path):
    words = ["bench", model, "--roofline", "--iters=5", "--dim=N=256"]
    facts = json.loads(run(optc, *words, "--format=json").stdout)
    roof = facts["roofline"]
    rates = [b["bytes_per_second"] for b in roof["bandwidth"]]
    assert roof["threads"] == 1 and 1e8 < roof["flops_per_second"] < 1e13
    assert rates == sorted(rates, reverse=True) and all(1e8 < r < 1e13 for r in rates)
    for k in facts["kernels"]:
        rate = max((b for b in roof["bandwidth"] if b["bytes"] <= k["bytes"]), key=lambda b: b["bytes"], default=roof["bandwidth"][0])["bytes_per_second"]
        memory, compute = 1e6 * k["bytes"] / rate, 1e6 * k["flops"] / roof["flops_per_second"]
        assert k["limit_us"] == pytest.approx(max(memory, compute)) and k["limited_by"] == ("memory" if memory >= compute else "compute")
        assert k["share_of_limit"] == pytest.approx(k["limit_us"] / k["us"])
    by_strategy = {s["strategy"]: s for s in facts["strategies"]}
    assert {k["strategy"] for k in facts["kernels"]} == set(by_strategy)
    for name, s in by_strategy.items():
        own = [k for k in facts["kernels"] if k["strategy"] == name]
        assert s["kernels"] == len(own) and s["us"] == pytest.approx(sum(k["us"] for k in own))
    assert facts["min_ms"] <= facts["median_ms"] <= facts["p90_ms"] <= facts["p95_ms"] <= facts["p99_ms"]
    assert {"processor", "cores", "instruction_set", "memory_bytes", "system"} <= set(facts["machine"])
    text = run(optc, *words).stdout
    assert "limit µs" in text and "strategy" in text and "peak of 1 thread: " in text and max(map(len, text.splitlines()[1:])) <= 90


def test_bench_measures_the_unit_that_a_kernel_runs_on(optc, tmp_path):
    """Products of bytes, of f64 and of f32 in one model: each below the peak of its own unit, on each instruction set."""
    random = np.random.default_rng(2)
    tensors = {"wi": random.integers(-127, 127, (256, 256)).astype(np.int8), "wd": random.standard_normal((256, 256)),
               "wf": random.standard_normal((256, 256), dtype=np.float32)}
    value = helper.make_tensor_value_info
    ends = [value("i", TensorProto.UINT8, [256, 256]), value("d", TensorProto.DOUBLE, [256, 256]), value("f", TensorProto.FLOAT, [256, 256])]
    made = [value("yi", TensorProto.INT32, [256, 256]), value("yd", TensorProto.DOUBLE, [256, 256]), value("yf", TensorProto.FLOAT, [256, 256])]
    nodes = [helper.make_node("MatMulInteger", ["i", "wi"], ["yi"], name="eights"), helper.make_node("MatMul", ["d", "wd"], ["yd"], name="doubles"),
             helper.make_node("MatMul", ["f", "wf"], ["yf"], name="floats")]
    graph = helper.make_graph(nodes, "units", ends, made, [numpy_helper.from_array(v, k) for k, v in tensors.items()])
    path = tmp_path / "units.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    units = {}
    for isa in ("avx2", "avx512", "vnni", "amx"):
        words = [optc, "bench", path, "--roofline", "--iters=5", "--format=json"]
        facts = json.loads(subprocess.run([str(w) for w in words], capture_output=True, text=True, check=True, env={**os.environ, "OPTC_ISA": isa}).stdout)
        roof, kernels = facts["roofline"], {k["name"]: k for k in facts["kernels"]}
        peaks = {"int8": roof["int8_operations_per_second"], "f64": roof["f64_flops_per_second"], "f32": roof["flops_per_second"]}
        units[isa] = roof["int8_unit"]
        assert 0.2 < peaks["f64"] / peaks["f32"] < 1.2
        for name, unit in (("eights", "int8"), ("doubles", "f64"), ("floats", "f32")):
            assert kernels[name]["unit"] == unit and kernels[name]["limited_by"] in ("compute", "memory")
            if peaks[unit]:
                assert kernels[name]["limit_us"] >= 1e6 * kernels[name]["flops"] / peaks[unit] * 0.999
    known = ("", "pairs of 16 bits", "VNNI", "AMX")  # each at least as wide as the one before
    assert [known.index(u) for u in units.values()] == sorted(known.index(u) for u in units.values()) and set(units.values()) <= set(known)


def test_bench_runs_contexts_at_the_same_time(optc, model, tmp_path):
    words = ["bench", model, "--iters=20", "--warmup=1"]
    facts = json.loads(run(optc, *words, "--streams=3", "--format=json").stdout)
    assert facts["streams"] == 3 and facts["runs"] == 60 and facts["runs_per_second"] > 0
    assert "3 streams" in run(optc, *words, "--streams=3").stdout
    # One stream is not compared with three; an earlier file without the number has one.
    path = tmp_path / "base.json"
    path.write_text(json.dumps(facts))
    assert "another streams: 3, here 1" in run(optc, *words, "--baseline", path, code=2).stderr
    del facts["setting"]["streams"]
    path.write_text(json.dumps(facts))
    assert "baseline" in run(optc, *words, "--baseline", path).stdout
    assert "streams" in run(optc, *words, "--streams=0", code=2).stderr


def test_verify_tells_how_sensitive_the_model_is(optc, model):
    import os
    import sys

    # No rounding is allowed: the products and the exponentials differ in the last bits.
    error = run(optc, "verify", model, "--engine=evaluate", "--rtol=0", "--sets=8", "--dim=N=500", code=1,
                env={**os.environ, "OPTC_PYTHON": sys.executable}).stderr
    assert "output 'y': ONNX Runtime's own optimizations" in error and "--bisect-passes" in error


def test_more_is_said_when_asked(optc, model, tmp_path):
    text = run(optc, model, "-o", tmp_path / "bundle", "-v").stderr
    assert "matmul.bias" in text.split("lower")[0].split("nodes", 2)[2]
    facts = json.loads(run(optc, model, "-o", tmp_path / "bundle", "--format=json").stdout)
    assert facts["arena_bytes"] is None or facts["arena_bytes"] >= 0


def test_explain_knows_what_opt_reports(optc, model):
    rules = json.loads(run(optc, "opt", model, "--format=json").stdout)["rules"]
    assert rules
    for rule in rules:
        run(optc, "explain", rule["rule"])
    run(optc, "explain", "no.such_rule", code=2)


def test_what_was_meant_is_suggested(optc, model):
    assert "did you mean `optc verify`" in run(optc, "verfy", model, code=2).stderr
    assert "did you mean --disable-pass" in run(optc, "opt", model, "--disable-pas=x", code=2).stderr
    assert "did you mean conv.bn" in run(optc, "explain", "conv.bnn", code=2).stderr
    assert "-o DIR is required" in run(optc, model, code=2).stderr
    error = run(optc, "inspect", "no-such-folder/absent.onnx", code=2).stderr
    assert error.count("absent.onnx") == 1


def test_gpu_targets_that_are_not_known_are_refused(optc, model, tmp_path):
    error = run(optc, model, "-o", tmp_path / "bundle", "--target=sm_99", code=4).stderr
    assert "sm_99" in error and "sm_90a" in error and not (tmp_path / "bundle").exists()


def test_explain_tells_where_a_node_comes_from(optc, model, tmp_path):
    out = tmp_path / "small.opt.onnx"
    run(optc, "opt", model, "-o", out, "-q")
    gemm = next(n for n in onnx.load(out).graph.node if n.op_type == "Gemm")
    text = run(optc, "explain", f"{out}:{gemm.name}").stdout
    assert "fc/MatMul" in text and "fc/Add" in text and "matmul.bias" in text
    assert "no rule changed it" in run(optc, "explain", f"{out}:head").stdout
    assert "did you mean 'head'" in run(optc, "explain", f"{out}:heat", code=2).stderr


def test_run_says_its_outputs_as_json(optc, model, tmp_path):
    facts = json.loads(run(optc, "run", model, "--engine=evaluate", "--format=json", "--dim=N=3").stdout)
    assert facts["outputs"] == [{"name": "y", "type": "f32", "shape": [3, 6]}]


def test_a_softmax_of_before_opset_13_without_elements(optc, tmp_path):
    graph = helper.make_graph([helper.make_node("LogSoftmax", ["x"], ["y"], axis=2)], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 0, 2, 1, 4])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 0, 2, 1, 4])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 7)]), tmp_path / "empty.onnx")
    facts = json.loads(run(optc, "run", tmp_path / "empty.onnx", "--engine=evaluate", "--format=json").stdout)
    assert facts["outputs"][0]["shape"] == [4, 0, 2, 1, 4]


def test_names_that_are_no_text_do_not_break_json(optc, model, tmp_path):
    path = tmp_path / "names.onnx"
    path.write_bytes(model.read_bytes().replace(b"small", b"sma\xffl").replace(b"\x0a\x01x", b"\x0a\x01\xff"))
    inputs = json.loads(run(optc, "inspect", path, "--format=json").stdout)["inputs"]
    assert inputs == [{"name": "\ufffd", "type": "f32[N,4]"}]
    for verb in ("run", "verify"):
        json.loads(run(optc, verb, path, "--engine=evaluate", "--format=json", "-q",
                       *(["--against=evaluate"] if verb == "verify" else [])).stdout)


def test_inspect_shows_where_kernels_run(optc, tmp_path):
    nodes = [helper.make_node("Relu", ["x"], ["r"], name="act"), helper.make_node("Unique", ["r"], ["u"], name="uniq"),
             helper.make_node("Exp", ["u"], ["y"], name="exp")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["M"])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "unique.onnx")
    gpu = json.loads(run(optc, "inspect", tmp_path / "unique.onnx", "--target=sm_80", "--format=json").stdout)["gpu"]
    assert gpu["targets"] == ["sm_80"] and gpu["forms"] and [k["node"] for k in gpu["on_cpu"]] == ["uniq"]
    assert gpu["on_cpu"][0]["reason"]
    text = run(optc, "inspect", tmp_path / "unique.onnx", "--target=sm_80").stdout
    assert "1 on the CPU" in text and "node 'uniq'" in text
    assert "placement" not in run(optc, "inspect", tmp_path / "unique.onnx").stdout
    run(optc, tmp_path / "unique.onnx", "-o", tmp_path / "bundle", "--target=sm_80", "-q")
    assert "runs on the CPU: " in run(optc, "explain", f"{tmp_path / 'bundle'}:uniq").stdout


def test_a_branch_that_cannot_run_is_exported_in_standard_operators(optc, tmp_path):
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    # Exporters guard a Squeeze like this: the other branch does not fit the rank.
    branches = {
        "then_branch": helper.make_graph([helper.make_node("Squeeze", ["x", "axis"], ["a"])], "a", [],
                                         [helper.make_tensor_value_info("a", TensorProto.FLOAT, None)]),
        "else_branch": helper.make_graph([helper.make_node("Transpose", ["x"], ["b"], perm=[2, 1, 0])], "b", [],
                                         [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)])}
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], name="guard", **branches)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1]),
         helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"])], [numpy_helper.from_array(np.array([1]), "axis")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
              tmp_path / "guard.onnx")
    run(optc, "opt", tmp_path / "guard.onnx", "-o", tmp_path / "small.onnx", "-q")
    small = onnx.load(tmp_path / "small.onnx")
    onnx.checker.check_model(small, full_check=True)
    assert [opset.domain for opset in small.opset_import] == [""]
    session = onnxruntime.InferenceSession(str(tmp_path / "small.onnx"))
    x = np.ones((3, 1), np.float32)
    assert session.run(None, {"x": x, "c": np.array(True)})[0].shape == (3,)
    with pytest.raises(Exception, match="out of data bounds"):
        session.run(None, {"x": x, "c": np.array(False)})


# What is known of a condition by inference alone leaves the If where it is, as -O0 and without its rule.
@pytest.mark.parametrize("condition", ["known", "computed", "nested"])
@pytest.mark.parametrize("options", [["-O0"], ["--disable-pass=fold.if"], []], ids=["O0", "without", "default"])
def test_a_branch_that_no_run_takes_is_written_as_one(optc, tmp_path, condition, options):
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    never = "{ two = Constant <value_floats = [7.0, 2.0]> () v = Add (w, two) }"
    text = {"known": "c = Constant <value = bool {1}> ()", "computed": "n = Size (x) below = Constant <value = int64 {-1}> () c = Less (below, n)"}
    inner = f"If (c) <then_branch = g () => (float[a] s) {{ s = Neg (x) }}, else_branch = h () => (float[a] v) {never}>"
    if condition == "nested":  # the condition of the inner If is open, the outer branch is not taken
        inner = "If (c) <then_branch = g () => (float[a] s) { s = Neg (x) }, else_branch = h () => (float[a] q) { q = %s }>" % (
            inner.replace("(c)", "(open)").replace("float[a] s) { s", "float[a] t) { t"))
    body = f"{{ {text.get(condition, text['computed'])} y = {inner} }}"
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> g (float[a] x, float[3] w, bool open) => (float[a] y) {body}')
    onnx.save(model, tmp_path / "m.onnx")
    run(optc, "opt", tmp_path / "m.onnx", "-o", tmp_path / "small.onnx", "-q", *options)
    onnx.checker.check_model(onnx.load(tmp_path / "small.onnx"), full_check=True)
    x = np.arange(3, dtype=np.float32)
    feeds = {"x": x, "w": x, "open": np.array(False)}
    session = onnxruntime.InferenceSession(tmp_path / "small.onnx")
    np.testing.assert_array_equal(session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()})[0], -x)


def test_explain_tells_what_a_kernel_of_a_bundle_computes(optc, model, tmp_path):
    run(optc, model, "-o", tmp_path / "bundle", "-q")
    name = json.loads((tmp_path / "bundle/manifest.json").read_text())["kernels"][0]["name"]
    for what in (name, "fc/MatMul"):
        text = run(optc, "explain", f"{tmp_path / 'bundle'}:{what}").stdout
        assert name in text and "fc/MatMul (#0)" in text and "gemm" in text
    assert "did you mean 'fc/Add'" in run(optc, "explain", f"{tmp_path / 'bundle'}:fc/Ad", code=2).stderr


def test_a_terminal_shows_the_running_step(optc, model):
    """On a terminal the steps are drawn in place; what stays is one line a step, none twice."""
    _, drawn = terminal.run([optc, "verify", model, "--engine=evaluate", "--against=evaluate"])
    assert "\r\x1b[K" in drawn and "━" in drawn
    stays = [line.split("\x1b[K")[-1] for line in drawn.split("\n")]
    lines = [" ".join(line.split()[:3]) for line in stays if line.strip()]
    assert len(lines) == len(set(lines)) and any(line.startswith("evaluate") for line in lines)


def test_precision_is_checked_recorded_and_verified(optc, model, tmp_path):
    refused = run(optc, "compile", model, "-o", tmp_path / "no", "--precision", "f8", code=2).stderr
    assert "error[usage]" in refused and all(known in refused for known in ("f32", "f16", "bf16"))
    for precision in ("f32", "f16", "bf16"):
        out = tmp_path / precision
        run(optc, "compile", model, "-o", out, "--precision", precision)
        manifest = json.loads((out / "manifest.json").read_text())
        assert manifest["precision"] == precision
        assert all(b["type"] in ("f32", precision) for b in manifest["buffers"])
        # The caller's tensors keep their types.
        assert [t["type"] for t in manifest["inputs"] + manifest["outputs"]] == ["float"] * 2
        assert ("Storage in " + precision in (out / "report.html").read_text()) == (precision != "f32")
    run(optc, model, "-o", tmp_path / "gpu", "-q", "--precision=f16", "--target=sm_80")
    page = (tmp_path / "gpu/report.html").read_text()
    assert page.count("<th>why</th>") == 2 and "On the GPU these stay f32" in page
    done = run(optc, "verify", model, "--precision", "f16", "--engine", "evaluate", "--against", "evaluate", "--format", "json")
    assert json.loads(done.stdout)["ok"]


def small_graph(path, nodes, inputs, outputs, constants):
    graph = helper.make_graph(nodes, "edge", inputs, outputs, [numpy_helper.from_array(v, k) for k, v in constants.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def evaluated(optc, path, folder):
    run(optc, "run", path, "--engine", "evaluate", "--outputs", folder)
    return [numpy_helper.to_array(onnx.load_tensor(f)) for f in sorted(folder.glob("*.pb"))]


def test_the_lowest_integer_wraps_where_it_has_no_opposite(optc, tmp_path):
    lowest = np.array([-2**63], np.int64)
    path = small_graph(tmp_path / "m.onnx", [helper.make_node("Div", ["a", "b"], ["y"])], [],
                       [helper.make_tensor_value_info("y", TensorProto.INT64, None)], {"a": lowest, "b": np.array([-1], np.int64)})
    assert evaluated(optc, path, tmp_path / "out")[0].tolist() == lowest.tolist()


def test_a_slice_backwards_starts_at_the_first_element_at_the_earliest(optc, tmp_path):
    numbers = {"x": np.array([1, 2], np.float32), "s": np.array([-3], np.int64), "e": np.array([-2**62], np.int64),
               "a": np.array([0], np.int64), "t": np.array([-2], np.int64)}
    path = small_graph(tmp_path / "m.onnx", [helper.make_node("Slice", list("xseat"), ["y"])], [],
                       [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], numbers)
    assert evaluated(optc, path, tmp_path / "out")[0].tolist() == [1]


def test_ranks_that_the_interface_lacks_are_refused(optc, tmp_path):
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1] * 9) for n in "xy"]
    path = small_graph(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])], value[:1], value[1:], {})
    assert "rank 9" in run(optc, path, "-o", tmp_path / "bundle", code=4).stderr
    assert not (tmp_path / "bundle").exists()


def test_options_that_would_do_nothing_are_refused(optc, model, tmp_path):
    assert "nosuch" in run(optc, "opt", model, "-o", tmp_path / "o.onnx", "--disable-pass", "nosuch", code=2).stderr
    for tolerance in ("-1", "nan", "x"):
        run(optc, "verify", model, "--rtol", tolerance, code=2)
    run(optc, "opt", model, "-o", tmp_path / "o.onnx", "--disable-pass", "cse.node", "--disable-pass", "fold")


@pytest.mark.parametrize("verb, options, words", [
    ("opt", ["-o", ""], "--output: '' is no value"),
    ("compile", ["-o", "b", "--calibrate", "samples"], "--precision and --quantize-weights"),
    ("compile", ["-o", "b", "--dim", "N=1", "--dim", "N=2"], "--dim N=2: N is given twice"),
    ("compile", ["-o", "b", "--variant", ""], "--variant: '' is no value"),
    ("opt", ["-o", "b.onnx", "--opset", "0"], "--opset"),
    ("convert", ["-o", "b.onnx", "--opset", "-1"], "--opset"),
])
def test_values_that_say_nothing_or_two_things_are_refused(optc, model, tmp_path, verb, options, words):
    done = subprocess.run([optc, verb, model, *options], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2 and words in done.stderr and not list(tmp_path.iterdir()), done.stderr
    if "--dim" in options:  # the same again says nothing else
        run(optc, "inspect", model, "--dim", "N=1", "--dim", "N=1")


def test_folders_of_others_are_left_alone(optc, model, tmp_path):
    (tmp_path / "thesis.tex").write_text("years")
    (tmp_path / "manifest.json").write_text('{"name": "a web page"}')
    run(optc, model, "-o", tmp_path, code=2)
    assert (tmp_path / "thesis.tex").read_text() == "years"


def test_what_a_killed_process_left_is_removed(optc, model, tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    owners = {"left": str(gone.pid), "running": str(os.getpid()), "unmarked": None}
    for name, owner in owners.items():
        folder = tmp_path / f"out.optc.tmp{gone.pid if name == 'left' else 1000000 + len(name)}"
        folder.mkdir()
        (folder / "model.cpp").write_text("half")
        if owner:
            (folder / ".optc-staging").write_text(owner)
        owners[name] = folder
    half = tmp_path / f"small.onnx.optc.tmp{gone.pid}"
    half.write_text("half")
    assert subprocess.run([optc, model, "-o", tmp_path / "out", "-q"], check=False).returncode == 0
    assert subprocess.run([optc, "opt", model, "-o", tmp_path / "small.onnx", "-q"], check=False).returncode == 0
    assert not owners["left"].exists() and not half.exists()
    assert owners["running"].exists() and owners["unmarked"].exists()
    assert not list((tmp_path / "out").glob(".optc*"))


def test_errors_are_json_where_results_are(optc, model, tmp_path):
    """With --format=json each error and warning is one object on a line of stderr."""
    def errors(*words, code):
        return [json.loads(line) for line in run(optc, *words, "--format=json", code=code).stderr.splitlines() if line.startswith("{")]

    absent, = errors("inspect", tmp_path / "absent.onnx", code=2)
    assert (absent["severity"], absent["kind"], absent["exit_code"], absent["schema_version"]) == ("error", "io", 2, 1)
    assert absent["file"] == str(tmp_path / "absent.onnx") and "No such file" in absent["message"]
    (tmp_path / "broken.onnx").write_bytes(b"\x08\x07not a model\xff\xff")
    assert [(e["kind"], e["exit_code"]) for e in errors("inspect", tmp_path / "broken.onnx", code=3)] == [("invalid", 3)]
    wrong, = errors("inspect", model, "--disable-pas", code=2)
    assert wrong["kind"] == "usage" and "--disable-pas" in wrong["message"]
    assert [e["kind"] for e in errors("explode", code=2)] == ["usage"]


def test_a_full_disk_is_an_error(optc, model):
    for words in (["inspect", model], ["ops"], ["diff", model, model, "--format=json"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([optc, *map(str, words)], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 2 and "error[io]" in done.stderr and "No space left on device" in done.stderr


def test_a_step_takes_one_row_of_a_narrow_terminal(optc, model, tmp_path):
    import fcntl
    import pty
    import struct
    import termios

    for columns in (40, 79):
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        done = subprocess.Popen([optc, model, "-o", tmp_path / f"bundle{columns}"], stdout=subprocess.PIPE, stderr=follower)
        os.close(follower)
        done.communicate()
        drawn = b""
        while True:
            try:
                data = os.read(leader, 4096)
            except OSError:  # the other end is closed
                break
            drawn += data
        os.close(leader)
        assert done.returncode == 0
        rows = [row for line in drawn.decode().split("\n") for row in line.replace("\r", "").split("\x1b[K") if row]
        assert any(row.startswith("optimize") for row in rows) and max(map(len, rows)) < columns


def test_passes_are_listed(optc):
    text = run(optc, "opt", "--list-passes").stdout
    assert text == run(optc, "explain").stdout
    assert {"fold.constant", "cse.node", "fuse.epilogue"} <= {line.split()[0] for line in text.splitlines()}


def test_the_cache_is_shown_and_pruned(optc, model, tmp_path):
    env = {**os.environ, "OPTC_CACHE": str(tmp_path / "cache")}

    def facts(*words):
        return json.loads(run(optc, "cache", *words, "--format=json", env=env).stdout)

    assert facts()["bundles"] == [] and facts()["limit"] == 2 << 30
    made = tmp_path / "cache/bundles"
    for name, hours, size in (("old-1", 50, 300_000), ("new-2", 2, 200_000), ("half-3", 3, 100_000)):
        (made / name / "bundle").mkdir(parents=True)
        (made / name / "build/lib").mkdir(parents=True)
        (made / name / "weights").write_bytes(os.urandom(size))
        if name != "half-3":
            (made / name / "bundle/manifest.json").write_text("{}")
        then = made.stat().st_mtime - 3600 * hours
        os.utime(made / name, (then, then))
    shown = facts()["bundles"]
    assert [(b["name"], b["complete"]) for b in shown] == [("new-2", True), ("half-3", False), ("old-1", True)]
    assert all(b["bytes"] >= 100_000 for b in shown) and 2 * 3600 <= shown[0]["idle_seconds"] < 2 * 3600 + 600
    text = run(optc, "cache", env=env).stdout
    assert "3 bundles" in text and "old-1" in text and "(not finished)" in text
    # The longest unused goes first.
    told = facts("prune", "--max-size=400kB")
    assert told["removed"] == 1 and sorted(p.name for p in made.iterdir() if p.is_dir()) == ["half-3", "new-2"]
    # A new bundle makes room by itself, but leaves what was used within the hour.
    env["OPTC_CACHE_SIZE"] = "0"
    os.utime(made / "new-2")
    run(optc, "run", model, "-q", "--outputs", tmp_path / "out", env=env)
    left = sorted(p.name for p in made.iterdir() if p.is_dir())
    assert "half-3" not in left and "new-2" in left and len(left) == 2
    # A bundle that another process is making stays.
    import fcntl

    with open(made / "new-2.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert facts("prune")["removed"] == 1 and (made / "new-2").is_dir()
    assert facts("prune")["removed"] == 1 and facts()["bundles"] == []
    assert "expected bytes" in run(optc, "cache", "prune", "--max-size=much", env=env, code=2).stderr
    assert "prune" in run(optc, "cache", "--max-size=1GB", env=env, code=2).stderr


@pytest.mark.parametrize("options", [[], ["--embed-weights"], ["--dim", "N=1..8"], ["--variant", "N=1"]])
def test_a_dry_run_writes_nothing_and_knows_the_size(optc, model, tmp_path, options):
    folder = tmp_path / "bundle"
    said = json.loads(run(optc, model, "-n", "-o", folder, "--name", "small", "--format=json", *options).stdout)
    assert said["written"] is False and not folder.exists() and list(tmp_path.iterdir()) == []
    facts = json.loads(run(optc, model, "-o", folder, "--name", "small", "--format=json", *options).stdout)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert facts["written"] and (len(files), sum(path.stat().st_size for path in files)) == (said["files"], said["bytes"])
    assert {k: v for k, v in facts.items() if k not in ("written", "bundle")} == {k: v for k, v in said.items() if k not in ("written", "bundle")}
    assert sum(path.stat().st_size for path in (folder / "src").rglob("*") if path.suffix in (".cpp", ".h", ".inc")) == said["code_bytes"]
    # The folder that is there stays as it is; no folder need be named.
    before = {path: path.read_bytes() for path in files}
    text = run(optc, "compile", model, "--dry-run", "-o", folder, "-q", *options).stdout
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert all(word in text for word in ("bundle ", "memory ", "build ", "nothing was written"))
    assert "nothing was written" in run(optc, model, "-n", *options).stdout


def test_a_folder_to_write_is_needed(optc, model):
    assert "-o DIR is required" in run(optc, model, code=2).stderr


@pytest.mark.parametrize("options,dims", [
    (["--shape", "x=1..8x4"], "N: 1 to 8"), (["--shape", "x=Bx4", "--dim", "B=2..3"], "B: 2 to 3"), (["--shape", "x=3..3x4"], None), (["--shape", "x=Bx4", "--dim", "B=5"], None),
    (["--shape", "x=1..8x4", "--dim", "N=2..9"], "N: 2 to 8"), (["--shape", "x=1..8x2..9"], "N: 1 to 8"),
])
def test_shapes_take_ranges_and_names_that_dim_bounds(optc, model, tmp_path, options, dims):
    run(optc, model, "-o", tmp_path / "b", *options, "-q")
    text = (tmp_path / "b/README.md").read_text()
    assert f"- dim {dims}" in text if dims else "- dim" not in text
    run(optc, "verify", model, "--engine=evaluate", *options, env={**os.environ, "OPTC_PYTHON": os.sys.executable})


@pytest.mark.parametrize("options,words", [
    (["--shape", "x=8..1x4"], "'8..1' is not a dimension"), (["--shape", "x=1..x4"], "'1..' is not a dimension"), (["--shape", "x=-1..2x4"], "'-1..2' is not"),
    (["--shape", "x=1x5..8"], "the size 5..8, the model declares"), (["--shape", "x=1..9999999999999999x4"], "is not a dimension"), (["--shape", "x=Bx4", "--dim", "C=1..2"], "no dimension named 'C'"),
])
def test_shapes_that_are_none(optc, model, tmp_path, options, words):
    assert words in run(optc, model, "-o", tmp_path / "b", *options, code=2).stderr
    assert not (tmp_path / "b").exists()
