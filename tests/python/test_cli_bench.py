"""`optc bench`: its figures and how they hang together."""

import json
import os
import subprocess

import numpy as np
import onnx
import pytest
from command_line import model, run  # noqa: F401: fixtures
from onnx import TensorProto, helper, numpy_helper


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
