#!/usr/bin/env python3
"""What graph optimizers leave of models, optc beside others, one line a model; and where optc is behind.

  optimizers.py MODEL.onnx... [--peers ort_basic,onnxslim,...] [--optc build/bin/optc] [--dim NAME=N] [--shape [MODEL:]INPUT=N,N] [--json FILE] [--timeout SECONDS] [--check]

A cell is: nodes · MiB of initializers · MiB moved · processor seconds · MiB of memory.

Nodes are those of all graphs and functions as they stand in the file, Constant nodes not counted. A number in brackets is that of a file whose initializers
grew by more than 1 %, or that has operators of other domains which the model had not; such a file is not compared with optc's.
MiB moved: what the nodes read and write in one run, by the shapes that ONNX Runtime tells of it, its optimizations off: operands and results; nothing
where a result is the operand under another shape (Reshape), what it gives twice where it takes a part (Gather, Slice). Inputs are random, of the shapes
that --shape and --dim give (open dims are 1 else); `-`: that run failed. Processor seconds (user and system, which other work on the machine hardly changes) and the most memory are those
of a process that loads, optimizes and saves. --check also runs the file of optc beside the model in ONNX Runtime, its optimizations off, on the
same inputs. --json keeps what was measured, with date, command, versions and commit.
Needs the packages of optimizers.requirements.txt; others than optc that are not installed are left out, with a word on stderr.
Exit code 1: optc left more nodes than the best of the others, more initializers or bytes moved, or an answer differs.
"""

import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import multiprocessing
import os
import pathlib
import resource
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


def bytes_of(element, dims):
    """Bytes of a tensor of an element type (TensorProto.DataType)."""
    import onnx

    bits = {onnx.TensorProto.DOUBLE: 64, onnx.TensorProto.INT64: 64, onnx.TensorProto.UINT64: 64, onnx.TensorProto.COMPLEX64: 64, onnx.TensorProto.COMPLEX128: 128,
            onnx.TensorProto.FLOAT16: 16, onnx.TensorProto.BFLOAT16: 16, onnx.TensorProto.INT16: 16, onnx.TensorProto.UINT16: 16, onnx.TensorProto.INT8: 8,
            onnx.TensorProto.UINT8: 8, onnx.TensorProto.BOOL: 8, onnx.TensorProto.INT4: 4, onnx.TensorProto.UINT4: 4}
    count = 1
    for dim in dims:
        count *= dim
    return (count * bits.get(element, 32) + 7) // 8


def contents(path):
    """What stands in a file: nodes, a call of a function counted as its body; bytes of initializers and Constant nodes; domains of the nodes."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    functions = {(f.domain, f.name): f for f in model.functions}
    size, domains = 0, set()

    def walk(nodes, depth=0):
        nonlocal size
        total = 0
        for node in nodes:
            domains.add(node.domain)
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    size += sum(bytes_of(t.data_type, t.dims) for t in attribute.g.initializer)
                    total += walk(attribute.g.node, depth)
                elif attribute.type == onnx.AttributeProto.TENSOR and node.op_type == "Constant":
                    size += bytes_of(attribute.t.data_type, attribute.t.dims)
            function = functions.get((node.domain, node.op_type))
            if node.op_type != "Constant":
                total += walk(function.node, depth + 1) if function and depth < 64 else 1
        return total

    size += sum(bytes_of(t.data_type, t.dims) for t in model.graph.initializer)
    nodes = walk(model.graph.node)
    return {"nodes": nodes, "initializers": size, "domains": sorted(domains)}


def session(path, given):
    """A session of ONNX Runtime that runs the file as it is."""
    import onnxruntime

    given.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    given.log_severity_level = 4
    return onnxruntime.InferenceSession(str(path), given, providers=["CPUExecutionProvider"])


def inputs_of(model, dims, shapes):
    """Random inputs of a session, by name."""
    import numpy

    random = numpy.random.default_rng(1)
    types = {"tensor(float)": numpy.float32, "tensor(double)": numpy.float64, "tensor(float16)": numpy.float16}
    inputs = {}
    for given in model.get_inputs():
        shape = shapes.get(given.name) or [d if isinstance(d, int) else dims.get(d, 1) for d in given.shape]
        if given.type in types:
            inputs[given.name] = random.standard_normal(shape).astype(types[given.type])
        elif given.type == "tensor(bool)":
            inputs[given.name] = numpy.ones(shape, bool)
        else:  # indices of something, masks: zeros and ones are in range
            inputs[given.name] = random.integers(0, 2, shape).astype(given.type[7:-1])
    return inputs


VIEWS = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Shape", "Size", "Constant"}
PARTS = {"Gather", "GatherElements", "GatherND", "Slice"}
OWNERS = {"If", "Loop", "Scan", "SequenceMap"}  # their bodies' nodes are counted
BYTES = {"bool": 1, "int8": 1, "uint8": 1, "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "double": 8, "int64": 8, "uint64": 8}


def moved(path, dims, shapes):
    """Bytes that the nodes of a model read and write in one run; None where ONNX Runtime does not run it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_prepacking", "1")  # packed weights are no operands any more
    options.intra_op_num_threads = 1
    options.enable_profiling = True
    with tempfile.TemporaryDirectory(prefix="optc_profile_") as folder:
        options.profile_file_prefix = folder + "/run"
        try:
            model = session(path, options)
            model.run(None, inputs_of(model, dims, shapes))
        except Exception:  # what ONNX Runtime throws has no base of its own
            return None
        events = json.loads(pathlib.Path(model.end_profiling()).read_text())

    def size(tensors):
        total = 0
        for tensor in tensors:
            for element, shape in tensor.items():
                count = 1
                for dim in shape:
                    count *= dim
                total += count * BYTES.get(element, 4)
        return total

    total = 0
    for event in events:
        facts = event.get("args", {})
        if event.get("cat") != "Node" or not event["name"].endswith("_kernel_time") or facts["op_name"] in VIEWS | OWNERS:
            continue
        read, written = facts["input_type_shape"], size(facts["output_type_shape"])
        total += 2 * written + size(read[1:]) if facts["op_name"] in PARTS else written + size(read)
    return total


def apart(function, *arguments):
    """What a function returns, called in a process of its own: the peak memory that Linux tells of a process is at least that of the one that
    started it, so this one stays small."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def measure(command, timeout):
    """(processor seconds, peak memory in MiB, error) of a process that may take `timeout` processor seconds."""
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as said:
        limit = int(timeout) + 1
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit)))
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() - began > 50 * timeout:  # it waits for something
                process.kill()
                os.wait4(process.pid, 0)
                process.returncode = -9
                return None, None, "hangs"
            time.sleep(0.01)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = usage.ru_utime + usage.ru_stime
        if seconds >= timeout and process.returncode < 0:
            return None, None, f"over {timeout:g} s"
        if process.returncode != 0:
            said.seek(0)
            lines = said.read().strip().splitlines()
            word = next((line for line in lines if line.startswith("error")), lines[-1] if lines else f"exit code {process.returncode}")
            return None, None, word[:120]
    return seconds, usage.ru_maxrss // 1024, None


def differs(source, target, dims, shapes):
    """A word on how the answers of two models differ in ONNX Runtime without optimizations; nothing: they do not."""
    import numpy
    import onnxruntime

    before, after = (session(path, onnxruntime.SessionOptions()) for path in (source, target))
    inputs = inputs_of(before, dims, shapes)
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


def measured(command, target, original, options, given):
    """What an optimizer made of a model, or {"error": text}."""
    seconds, memory, error = measure([str(c) for c in command], options.timeout)
    if error:
        return {"error": error}
    facts = apart(contents, target)
    facts.update(moved=apart(moved, target, *given), seconds=round(seconds, 2), memory=memory, grew=facts["initializers"] > 1.01 * original["initializers"] + 4096,
                 foreign=bool(set(facts["domains"]) - set(original["domains"]) - {"", "ai.onnx"}))
    return facts


MIB = 2**20


def cell(facts):
    if "error" in facts:
        return facts["error"].replace("|", "/")
    nodes = f"({facts['nodes']})" if facts.get("grew") or facts.get("foreign") else str(facts["nodes"])
    parts = [nodes, f"{facts['initializers'] / MIB:.1f}", "-" if facts["moved"] is None else f"{facts['moved'] / MIB:.1f}"]
    if "seconds" in facts:
        parts += [f"{facts['seconds']:.2f} s", f"{facts['memory']} MB"]
    return " · ".join(parts + ([facts["differs"]] if facts.get("differs") else []))


# What is compared, how much more than the best of the others is worse, and the unit.
COMPARED = {"nodes": (1, 0, lambda n: f"{n} nodes"), "initializers": (1.01, 4096, lambda n: f"{n / MIB:.1f} MiB of initializers"),
            "moved": (1.001, 4096, lambda n: f"{n / MIB:.2f} MiB moved"), "seconds": (1, 0.05, lambda n: f"{n:.2f} s"), "memory": (1, 0, lambda n: f"{n} MB")}


def behind(model, original, results):
    """Lines on what the best of the others has less of than optc."""
    ours = results["optc"]
    if "error" in ours:
        return [f"{model}: optc: {ours['error']}"]
    lines = [f"{model}: {ours['differs']}"] if ours.get("differs") else []
    for what, (factor, slack, text) in COMPARED.items():
        others = {peer: facts[what] for peer, facts in results.items()
                  if peer in STANDARD and "error" not in facts and not facts["grew"] and not facts["foreign"] and facts[what] is not None}
        if not others or ours[what] is None:
            continue
        best = min(others, key=others.get)
        if ours[what] > factor * others[best] + slack:
            lines.append(f"{model}: {text(ours[what])}, {best} {text(others[best])}")
    if ours["initializers"] > 1.01 * original["initializers"] + 4096:
        lines.append(f"{model}: initializers grew from {original['initializers'] / MIB:.1f} MiB")
    return lines


def record(options, peers, models):
    """What --json keeps."""
    git = subprocess.run(["git", "-C", pathlib.Path(__file__).parent, "rev-parse", "HEAD"], capture_output=True, text=True)
    return {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "commit": git.stdout.strip(),
            "command": f"python bench/optimizers.py MODEL... --peers {','.join(peers)}" + "".join(f" --dim {d}" for d in options.dim) + "".join(f" --shape {s}" for s in options.shape),
            "versions": {name: importlib.metadata.version(name) for name in sorted({"onnx", *(PEERS[p] for p in peers)})}, "models": models}


def main():
    if sys.argv[1:2] == ["--one"]:
        optimize_with(*sys.argv[2:5])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--optc", default=pathlib.Path(__file__).resolve().parents[1] / "build/bin/optc", type=pathlib.Path)
    parser.add_argument("--timeout", type=float, default=280, help="processor seconds for each (default 280)")
    parser.add_argument("--check", action="store_true", help="compare answers too")
    parser.add_argument("--dim", action="append", default=[], help="NAME=N (repeatable)")
    parser.add_argument("--shape", action="append", default=[], help="[MODEL:]INPUT=N,N (repeatable)")
    parser.add_argument("--json", type=pathlib.Path, help="a file for what is measured; models that it holds already are not measured again")
    options = parser.parse_args()
    peers = options.peers.split(",")
    if unknown := set(peers) - set(PEERS):
        parser.error(f"no such optimizer: {', '.join(sorted(unknown))}")
    if missing := sorted({PEERS[p] for p in peers if importlib.util.find_spec(PEERS[p]) is None}):
        print(f"not installed, left out: {', '.join(missing)}", file=sys.stderr)
        peers = [p for p in peers if PEERS[p] not in missing]
    dims = {name: int(n) for name, n in (d.split("=") for d in options.dim)}
    shapes = {name: [int(n) for n in shape.split(",")] for name, shape in (s.rsplit("=", 1) for s in options.shape)}
    models = json.loads(options.json.read_text())["models"] if options.json and options.json.exists() else {}
    print("| model | before | optc | " + " | ".join(peers) + " |\n" + "|---" * (3 + len(peers)) + "|", flush=True)
    lines = []
    for model in options.models:
        if model.stem not in models:
            given = dims, {name.removeprefix(model.stem + ":"): shape for name, shape in shapes.items()}
            original = {**apart(contents, model), "moved": apart(moved, model, *given)}
            results = {}
            for peer in ["optc", *peers]:
                with tempfile.TemporaryDirectory(prefix="optc_optimizers_") as folder:
                    target = pathlib.Path(folder) / "out.onnx"
                    command = [options.optc, "opt", model, "-o", target, "-q"] if peer == "optc" else [sys.executable, __file__, "--one", peer, model, target]
                    results[peer] = measured(command, target, original, options, given)
                    if peer == "optc" and options.check and "error" not in results[peer]:
                        results[peer]["differs"] = apart(differs, model, target, *given)
            models[model.stem] = {"before": original, **results}
            if options.json:
                options.json.write_text(json.dumps(record(options, peers, models), indent=1) + "\n")
        results = dict(models[model.stem])
        original = results.pop("before")
        print(f"| {model.stem} | {cell(original)} | " + " | ".join(cell(results[p]) for p in ["optc", *peers]) + " |", flush=True)
        lines += behind(model.stem, original, results)
    print("\n" + ("Behind the best of the others that write standard operators:\n" if lines else "Nowhere behind the best of the others."), *("- " + line for line in lines), sep="\n")
    return 1 if any(not line.endswith((" s", " MB")) for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
