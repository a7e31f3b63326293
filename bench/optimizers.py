#!/usr/bin/env python3
"""What graph optimizers leave of models: nodes, seconds and memory, optc beside others, one line a model.

  optimizers.py MODEL.onnx... [--peers ort_basic,onnxslim,...] [--optc build/bin/optc] [--timeout SECONDS] [--check]

Nodes of all graphs and functions as they stand in the file, Constant nodes not counted. A number in brackets is that of a file whose initializers
grew by more than 1 %, or that has operators of other domains which the model had not; it does not count for "best of the others". Seconds and memory are those of a process that loads, optimizes and saves;
--check also runs the file of optc beside the model in ONNX Runtime, its optimizations off, on one set of random inputs (dims of 1 or of --dim).
Needs the packages of optimizers.requirements.txt; others than optc that are not installed are left out, with a word on stderr.
Exit code 1: optc left more nodes than the best of the others, or an answer differs.
"""

import argparse
import importlib.util
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import time

PEERS = {"ort_basic": "onnxruntime", "ort_extended": "onnxruntime", "onnxslim": "onnxslim", "onnxsim": "onnxsim", "onnxoptimizer": "onnxoptimizer"}
STANDARD = {"ort_basic", "onnxslim", "onnxsim", "onnxoptimizer"}  # the others write operators that other runtimes do not know


def optimize_with(peer, source, target):
    """Runs one of PEERS, in this process."""
    import onnx

    if peer.startswith("ort"):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.optimized_model_filepath = target
        level = onnxruntime.GraphOptimizationLevel
        options.graph_optimization_level = level.ORT_ENABLE_BASIC if peer == "ort_basic" else level.ORT_ENABLE_EXTENDED
        # Otherwise weights stay in the model's own file, and the written one does not say what it has.
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", pathlib.Path(target).name + ".data")
        onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    elif peer == "onnxslim":
        import onnxslim

        onnx.save(onnxslim.slim(source), target)
    elif peer == "onnxsim":
        import onnxsim

        onnx.save(onnxsim.simplify(onnx.load(source))[0], target)
    else:
        import onnxoptimizer

        onnx.save(onnxoptimizer.optimize(onnx.load(source)), target)


def contents(path):
    """(nodes, bytes of initializers and Constant nodes, domains of the nodes) of a file; a call of a function counts as its body."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    functions = {(f.domain, f.name): f for f in model.functions}
    size, domains = 0, set()

    def bytes_of(tensor):
        bits = {onnx.TensorProto.DOUBLE: 64, onnx.TensorProto.INT64: 64, onnx.TensorProto.UINT64: 64, onnx.TensorProto.FLOAT16: 16, onnx.TensorProto.BFLOAT16: 16,
                onnx.TensorProto.INT16: 16, onnx.TensorProto.UINT16: 16, onnx.TensorProto.INT8: 8, onnx.TensorProto.UINT8: 8, onnx.TensorProto.BOOL: 8}
        count = 1
        for dim in tensor.dims:
            count *= dim
        return count * bits.get(tensor.data_type, 32) // 8

    def walk(nodes, depth=0):
        nonlocal size
        total = 0
        for node in nodes:
            domains.add(node.domain)
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    size += sum(bytes_of(t) for t in attribute.g.initializer)
                    total += walk(attribute.g.node, depth)
                elif attribute.type == onnx.AttributeProto.TENSOR and node.op_type == "Constant":
                    size += bytes_of(attribute.t)
            function = functions.get((node.domain, node.op_type))
            if node.op_type != "Constant":
                total += walk(function.node, depth + 1) if function and depth < 64 else 1
        return total

    size += sum(bytes_of(t) for t in model.graph.initializer)
    nodes = walk(model.graph.node)
    return nodes, size, domains


def apart(function, *arguments):
    """What a function returns, called in a process of its own: the peak memory that Linux tells of a process is at least that of the one that
    started it, so this one stays small."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def measure(command, timeout):
    """(seconds, peak memory in MiB, error) of a process."""
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() - began > timeout:
                process.kill()
                os.wait4(process.pid, 0)
                process.returncode = -9
                return None, None, f"over {timeout} s"
            time.sleep(0.01)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - began
        if process.returncode != 0:
            said.seek(0)
            lines = said.read().strip().splitlines()
            return None, None, lines[-1][:120] if lines else f"exit code {process.returncode}"
    return seconds, usage.ru_maxrss // 1024, None


def differs(source, target, dims):
    """A word on how the answers of two models differ in ONNX Runtime without optimizations; nothing: they do not."""
    import numpy
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    before, after = (onnxruntime.InferenceSession(str(p), options, providers=["CPUExecutionProvider"]) for p in (source, target))
    random = numpy.random.default_rng(1)
    types = {"tensor(float)": numpy.float32, "tensor(double)": numpy.float64, "tensor(float16)": numpy.float16}
    inputs = {}
    for given in before.get_inputs():
        shape = [d if isinstance(d, int) else dims.get(d, 1) for d in given.shape]
        if given.type in types:
            inputs[given.name] = random.standard_normal(shape).astype(types[given.type])
        elif given.type == "tensor(bool)":
            inputs[given.name] = numpy.ones(shape, bool)
        else:  # indices of something, masks: zeros and ones are in range
            inputs[given.name] = random.integers(0, 2, shape).astype(given.type[7:-1])
    for given, x, y in zip(before.get_outputs(), before.run(None, inputs), after.run(None, inputs)):
        x, y = numpy.asarray(x), numpy.asarray(y)
        if x.shape != y.shape or x.dtype != y.dtype:
            return f"{given.name}: {x.dtype}{list(x.shape)} became {y.dtype}{list(y.shape)}"
        if x.dtype.kind != "f":
            if not numpy.array_equal(x, y):
                return f"{given.name}: other values"
            continue
        x, y = x.astype(numpy.float64), y.astype(numpy.float64)
        finite = numpy.isfinite(x)
        scale = numpy.abs(x[finite]).max(initial=0)
        if not numpy.array_equal(finite, numpy.isfinite(y)) or numpy.abs(x[finite] - y[finite]).max(initial=0) > 1e-4 * scale:
            return f"{given.name}: other values"
    return ""


def main():
    if sys.argv[1:2] == ["--one"]:
        optimize_with(*sys.argv[2:5])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--optc", default=pathlib.Path(__file__).resolve().parents[1] / "build/bin/optc", type=pathlib.Path)
    parser.add_argument("--timeout", type=float, default=280, help="seconds for each (default 280)")
    parser.add_argument("--check", action="store_true", help="compare answers too")
    parser.add_argument("--dim", action="append", default=[], help="NAME=N for --check (repeatable)")
    options = parser.parse_args()
    peers = options.peers.split(",")
    if unknown := set(peers) - set(PEERS):
        parser.error(f"no such optimizer: {', '.join(sorted(unknown))}")
    if missing := sorted({PEERS[p] for p in peers if importlib.util.find_spec(PEERS[p]) is None}):
        print(f"not installed, left out: {', '.join(missing)}", file=sys.stderr)
        peers = [p for p in peers if PEERS[p] not in missing]
    dims = {name: int(n) for name, n in (d.split("=") for d in options.dim)}
    print("| model | before | optc | " + " | ".join(peers) + " | best of the others |\n" + "|---" * (4 + len(peers)) + "|", flush=True)
    good = True
    for model in options.models:
        nodes_before, size_before, domains_before = apart(contents, model)
        cells, best = [], None
        for peer in ["optc", *peers]:
            with tempfile.TemporaryDirectory(prefix="optc_optimizers_") as folder:
                target = pathlib.Path(folder) / "out.onnx"
                command = [options.optc, "opt", model, "-o", target, "-q"] if peer == "optc" else [sys.executable, __file__, "--one", peer, model, target]
                seconds, memory, error = measure([str(c) for c in command], options.timeout)
                if error:
                    cells.append(error.replace("|", "/"))
                    good &= peer != "optc"
                    continue
                nodes, size, domains = apart(contents, target)
                grew = size > 1.01 * size_before + 4096
                foreign = bool(domains - domains_before - {"", "ai.onnx"})
                cells.append(f"{f'({nodes})' if grew or foreign else nodes} · {seconds:.2f} s · {memory} MB")
                if peer == "optc":
                    ours = nodes
                    word = apart(differs, model, target, dims) if options.check else ""
                    if grew or word:
                        good = False
                        cells[-1] += " · " + (word or "initializers grew")
                elif peer in STANDARD and not grew and not foreign:
                    best = nodes if best is None else min(best, nodes)
        good &= best is None or (cells[0][0].isdigit() and ours <= best)
        print(f"| {model.stem} | {nodes_before} | " + " | ".join(cells) + f" | {'' if best is None else best} |", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
