"""The cases of ../shared/cases, run in several ways. As a program: cases.py [WAY ...] [--filter GLOB,...] prints who fails.

A way gives for each data set of each case None, or (kind, what was said): the kind is that of optc's error ("unsupported", "fault",
...), "wrong" for other values than expected, "build", "crash" or "timeout". Values are compared as tools/run_cases.py of the
cases compares them."""

import argparse
import fnmatch
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

import onnx

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
CASES = SHARED / "cases"
TOOL = SHARED / "tools" / "run_cases.py"
UNIT = 40  # models in a library of the bundles


def comparer():
    spec = importlib.util.spec_from_file_location("run_cases", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def data_sets(patterns="*", root=CASES):
    """[(case/data set, model, folder of the data set)] of the cases whose names one of `patterns`, with commas between, matches."""
    found = []
    for model in sorted(root.glob("*/model.onnx")):
        if any(fnmatch.fnmatch(model.parent.name, p) for p in patterns.split(",")):
            found += [(f"{model.parent.name}/{d.name}", model, d) for d in sorted(model.parent.glob("test_data_set_*"))]
    return found


def compared(sets, answers, outputs):
    """{case/data set: None or (kind, text)} of the answers of a program that speaks optc_conformance's words."""
    import json

    tool, results, models = comparer(), {}, {}
    for n, (name, model, folder) in enumerate(sets):
        word, text = answers.get(n, ("crash", "no answer"))
        if word == "ok":
            file = model.parent / "tolerance.json"
            tolerance = json.loads(file.read_text()) if file.exists() else {}
            if model not in models:
                models[model] = onnx.load(model)
            wrong = tool.compare(models[model], folder, outputs(n), tolerance)
            results[name] = ("wrong", wrong) if wrong else None
        else:
            results[name] = (word, text)
    return results


def conformance(command, sets, work, models=None, more=None):
    """`sets` through optc_conformance or optc_conformance_bundles; models: other files in place of the cases' own; more: of the
    environment."""
    lines = []
    for n, (_, model, folder) in enumerate(sets):
        out = work / str(n)
        out.mkdir(parents=True, exist_ok=True)
        lines.append(f"{n}\t{(models or {}).get(model, model)}\t{folder}\t{out}\n")
    done = subprocess.run([str(c) for c in command], input="".join(lines), capture_output=True, text=True, errors="replace",
                          env={**os.environ, **(more or {})})
    answers = {}
    for line in done.stdout.splitlines():
        parts = line.split("\t")
        if len(parts) == 3 and parts[0].isdigit():
            answers[int(parts[0])] = (parts[1], parts[2])
    return compared(sets, answers, lambda n: work / str(n))


def on_evaluator(binaries, sets, work):
    return conformance([binaries / "optc_conformance"], sets, work)


def as_lowered(binaries, sets, work):
    """On the evaluator, too: each kernel of the lowered Program, in its places."""
    return conformance([binaries / "optc_conformance", "--lowered"], sets, work)


def as_bundles(binaries, sets, work, *options, more=None):
    """Many models in one translation unit."""
    names = sorted({model for _, model, _ in sets})
    count = -(-len(names) // UNIT)
    results = {}
    for k in range(count):
        part = set(names[k::count])
        results |= conformance([binaries / "optc_conformance_bundles", *options], [s for s in sets if s[1] in part], work / str(k),
                               more=more)
    return results


def emulated_driver(binaries):
    """The CUDA driver made of the emulator; None where the build has no GPU module."""
    path = binaries.parent / "tests" / "libemulated_cuda.so"
    return path if path.exists() else None


def in_emulator(binaries, sets, work):
    """Bundles for a GPU, their kernels run by the PTX emulator; kernels without a GPU form run on the host."""
    return as_bundles(binaries, sets, work, "--target", "sm_80", "--timeout", "300", more={"OPTC_LIBCUDA": str(emulated_driver(binaries))})


def through_opt(binaries, sets, work):
    """`optc opt`, and what it wrote in ONNX Runtime without optimizations; on the evaluator where that runtime cannot run the
    case's own model rightly."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    runtime = comparer().onnxruntime_runner(False)
    results, models, rest = {}, {}, []
    ran = {}

    def run(n, model, folder, place):
        out = work / f"{place}{n}"
        out.mkdir(parents=True)
        code, said = runtime(model, folder, out, 60)
        return ("ok", "") if code == 0 else ("runtime", said)

    own = compared(sets, {n: run(n, m, f, "own") for n, (_, m, f) in enumerate(sets)}, lambda n: work / f"own{n}")
    for n, (name, model, _) in enumerate(sets):
        if model not in models:
            # Written beside a link to what the case has beside its model (external data).
            models[model] = work / f"{model.parent.name}.onnx"
            done = subprocess.run([binaries / "optc", "opt", model, "-o", models[model]], capture_output=True, text=True)
            first = next((line for line in done.stderr.splitlines() if line.startswith("error[")), "")
            kind = first.partition("[")[2].partition("]")[0]
            ran[model] = None if done.returncode == 0 else (kind or "crash", first.partition(": ")[2] or f"exit code {done.returncode}")
        if ran[model]:
            results[name] = ran[model]
        elif own[name] is not None:
            rest.append(sets[n])
    good = [(n, s) for n, s in enumerate(sets) if s[0] not in results and s not in rest]
    answers = {k: run(n, models[s[1]], s[2], "opt") for k, (n, s) in enumerate(good)}
    first = compared([s for _, s in good], answers, lambda k: work / f"opt{good[k][0]}")
    # A standard operator that this runtime lacks (Swish) is left to the evaluator, too.
    rest += [s for s in (s for _, s in good) if first[s[0]] and first[s[0]][0] == "runtime" and "NOT_IMPLEMENTED" in first[s[0]][1]]
    results |= first
    return results | conformance([binaries / "optc_conformance"], rest, work / "rest", models)


WAYS = {"evaluator": on_evaluator, "lowered": as_lowered, "bundle": as_bundles, "opt": through_opt, "ptx": in_emulator}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ways", nargs="*", default=["evaluator", "bundle", "opt"])
    parser.add_argument("--filter", default="*")
    parser.add_argument("--cases", type=pathlib.Path, default=CASES, help="a folder of them")
    parser.add_argument("--binaries", default=os.environ.get("OPTC_BIN", str(ROOT / "build/bin")))
    args = parser.parse_args()
    failed = 0
    for way in args.ways:
        with tempfile.TemporaryDirectory() as work:
            results = WAYS[way](pathlib.Path(args.binaries), data_sets(args.filter, args.cases), pathlib.Path(work))
        for name, failure in results.items():
            if failure:
                failed += 1
                print(f"{way} {name}: {failure[0]}: {failure[1][:300]}")
        print(f"{way}: {sum(f is None for f in results.values())} of {len(results)} passed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
