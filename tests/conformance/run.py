#!/usr/bin/env python3
"""Runs every test of the onnx package (see export.py) through optc and compares as onnx's own runner does.

  run.py [--binary BUILD/bin/optc_conformance] [--ways static,dynamic,constant,folded] [--filter GLOB] [--op NAME]
         [--bundles [--target SM] | --lowered] [--part K/N] [--jobs N] [--show N] [--json OUT] [--bless]

On the evaluator, or with --bundles as emitted C++ (optc_conformance_bundles): compiled, built, many tests a library, and run. --part
takes every Nth test by the hash of its name. With --target (sm_80, sm_90a, ...) the bundles run on a GPU: on the card of this machine, or on
the driver that OPTC_LIBCUDA names (BUILD/tests/libemulated_cuda.so).

With --lowered the evaluator runs lowered Programs, as they are lowered.

Failures that are known stand in expected.json: {way: {test: reason}}; the ways of bundles are "bundle.static", ..., those of --lowered
"lowered.static", ..., those of a GPU "gpu.static", ..., where what stands in "bundle.static" holds, too. A failure that is not there fails the run, and so does one of another kind or at another node than the reason
there says, and an entry there whose test passes. --bless writes the failures of this run into expected.json (of the ways that it ran;
reasons that still hold are kept).
"""

import argparse
import collections
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zlib

import numpy as np
from onnx import MapProto, OptionalProto, SequenceProto, TensorProto, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import export  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WAYS = ("static", "dynamic", "constant", "folded")
UNIT = 48  # models in a library of --bundles


def cache_folder():
    base = os.environ.get("OPTC_CACHE") or os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "optc")
    import onnx

    return pathlib.Path(base) / f"conformance-{onnx.__version__}"


def read_value(path, kind):
    data = path.read_bytes()
    if kind == "sequence_type":
        return SequenceProto.FromString(data)
    if kind == "optional_type":
        return OptionalProto.FromString(data)
    if kind == "map_type":
        return MapProto.FromString(data)
    return TensorProto.FromString(data)


def flatten(value):
    """(place, tensor) for each tensor in a value."""
    if isinstance(value, TensorProto):
        return [("", value)]
    if isinstance(value, MapProto):
        keys = value.string_keys if value.key_type == TensorProto.STRING else value.keys
        return [(f"[{key!r}]", t) for key, t in zip(keys, value.values.tensor_values)]
    if isinstance(value, SequenceProto):
        found = [(f"[{i}]", t) for i, t in enumerate(value.tensor_values)]
        for i, inner in enumerate([*value.sequence_values, *value.map_values]):
            found += [(f"[{i}]" + p, t) for p, t in flatten(inner)]
        return found
    if value.HasField("tensor_value"):
        return [("?", value.tensor_value)]
    if value.HasField("sequence_value"):
        return [("?" + p, t) for p, t in flatten(value.sequence_value)]
    return []


def difference(want, got, rtol, atol):
    if want.data_type != got.data_type:
        names = [TensorProto.DataType.Name(t.data_type) for t in (got, want)]
        return f"type {names[0]}, expected {names[1]}"
    if list(want.dims) != list(got.dims):
        return f"shape {list(got.dims)}, expected {list(want.dims)}"
    a, b = numpy_helper.to_array(want), numpy_helper.to_array(got)
    if want.data_type == TensorProto.STRING:
        good = np.atleast_1d(a.astype(str) == b.astype(str))
        return None if good.all() else f"strings differ: {b.tolist()}, expected {a.tolist()}"[:200]
    if a.dtype.kind not in "biufc":
        if want.data_type == TensorProto.BFLOAT16:
            rtol = max(rtol, 2**-6)
        a, b = a.astype(np.float32), b.astype(np.float32)
    a, b = np.atleast_1d(a, b)
    if a.dtype.kind == "b":
        good = a == b
    else:
        if a.dtype.kind in "iu" and a.dtype.itemsize < 8:
            a, b = a.astype(np.int64), b.astype(np.int64)
        with np.errstate(all="ignore"):
            good = np.isclose(b, a, rtol=rtol, atol=atol, equal_nan=True)
    if good.all():
        return None
    at = tuple(int(i[0]) for i in np.nonzero(~good))
    return f"{np.count_nonzero(~good)} of {good.size} values differ; at {list(at)}: {b[at]}, expected {a[at]}"


def compare(test, folder, number, outputs):
    for i, kind in enumerate(test["outputs"]):
        wanted = folder / f"set_{number}" / f"output_{i}.pb"
        if not wanted.exists():
            continue
        path = outputs / f"output_{i}.pb"
        if not path.exists():
            return f"output {i} was not written"
        want, got = (dict(flatten(read_value(p, kind))) for p in (wanted, path))
        if want.keys() != got.keys():
            return f"output {i} has {len(got)} elements, expected {len(want)}"
        for place, tensor in want.items():
            if text := difference(tensor, got[place], test["rtol"], test["atol"]):
                return f"output {i}{place}: {text}"
    return None


def run_share(binary, options, jobs, tests, folder, work):
    """Runs (way, name, set) jobs in one process of the runner; gives (way, name, failure or None)."""
    lines = []
    for n, (way, name, number) in enumerate(jobs):
        out = work / str(n)
        out.mkdir(parents=True)
        lines.append("\t".join([str(n), str(folder / name / f"{way}.onnx"), str(folder / name / way / f"set_{number}"), str(out)]))
    process = subprocess.run([str(binary), *options], input="\n".join(lines) + "\n", capture_output=True, text=True,
                             errors="replace")
    answers = {}
    for line in process.stdout.splitlines():
        parts = line.split("\t")
        if len(parts) == 3 and parts[0].isdigit():
            answers[int(parts[0])] = parts[1:]
    results = []
    for n, (way, name, number) in enumerate(jobs):
        word, text = answers.get(n, ("crash", "no answer: " + process.stderr[-200:]))
        if word == "ok":
            try:
                failure = compare(tests[name], folder / name, number, work / str(n))
            except Exception as error:
                failure = f"cannot compare: {error!r}"
            failure = failure and f"wrong: {failure}"
        else:
            failure = f"{word}: {text}"
        results.append((way, name, failure))
        shutil.rmtree(work / str(n))
    return results


def kind_and_node(text):
    """Of a failure, or of a reason in expected.json; what is said there in other words is of the kind "wrong". None: no node is named."""
    kind = re.match(r"(unsupported|invalid|fault|internal|usage|build|crash|timeout): ", text)
    node = re.search(r"\[node '([^']*)'", text)
    return kind.group(1) if kind else "wrong", node and node.group(1)


def is_known(failure, reason):
    kind, node = kind_and_node(failure)
    known_kind, known_node = kind_and_node(reason)
    return kind == known_kind and known_node in (None, node)


def reason_of(failure):
    """What expected.json keeps of a failure: the beginning, and the node."""
    node = re.search(r"\[node '[^']*'", failure)
    if len(failure) <= 160 or not node or node.end() < 160:
        return failure[:160]
    return failure[:110] + "... " + node.group(0) + "]"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="")
    parser.add_argument("--bundles", action="store_true")
    parser.add_argument("--lowered", action="store_true")
    parser.add_argument("--target", default="")
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--filter", default="*")
    parser.add_argument("--op", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--timeout", type=int, default=60)
    parser.add_argument("--show", type=int, default=40, help="failures to print for each way")
    parser.add_argument("--json", default="")
    parser.add_argument("--expected", default=str(HERE / "expected.json"))
    parser.add_argument("--bless", action="store_true")
    args = parser.parse_args()

    binary = args.binary or str(ROOT / "build/bin" / ("optc_conformance_bundles" if args.bundles else "optc_conformance"))
    part, parts = (int(x) for x in args.part.split("/"))
    if args.target and not args.bundles:
        parser.error("--target is for --bundles")
    options = ["--timeout", str(args.timeout)] + (["--lowered"] if args.lowered else []) + (["--target", args.target] if args.target else [])

    folder = cache_folder()
    tests = export.export(folder)["tests"]
    ways = args.ways.split(",")
    jobs = []
    for way in ways:
        for name, test in sorted(tests.items()):
            if not fnmatch.fnmatch(name, args.filter) or (args.op and args.op not in test["ops"]):
                continue
            if zlib.crc32(name.encode()) % parts != part:
                continue
            jobs += [(way, name, k) for k in range(test["ways"].get(way, 0))]
    if not jobs:
        print("no test matches")
        return 2
    with tempfile.TemporaryDirectory(prefix="optc_conformance_") as work:
        count = -(-len(jobs) // UNIT) if args.bundles else args.jobs * 4
        share = [jobs[i::count] for i in range(count)]
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            done = pool.map(lambda k: run_share(binary, options, share[k], tests, folder, pathlib.Path(work) / str(k)),
                            range(len(share)))
            results = [r for rs in done for r in rs]

    if args.bundles or args.lowered:  # from here on under the names that expected.json has for them
        kind = "gpu." if args.target else "bundle." if args.bundles else "lowered."
        results = [(kind + way, name, failure) for way, name, failure in results]
        ways = [kind + way for way in ways]
    failures = {way: {} for way in ways}
    counts = {way: set() for way in ways}
    for way, name, failure in results:
        counts[way].add(name)
        if failure:
            failures[way].setdefault(name, failure)
    path = pathlib.Path(args.expected)
    expected = json.loads(path.read_text()) if path.exists() else {}
    if args.target:
        for way in ways:
            expected[way] = {**expected.get("bundle" + way.removeprefix("gpu"), {}), **expected.get(way, {})}
    if args.bless:
        for way in ways:
            before = expected.get(way, {})
            known = {n: r for n, r in before.items() if n not in counts[way]}
            known.update({n: before[n] if n in before and is_known(f, before[n]) else reason_of(f) for n, f in failures[way].items()})
            expected[way] = dict(sorted(known.items()))
        path.write_text(json.dumps(expected, indent=1) + "\n")

    bad = 0
    for way in ways:
        known = expected.get(way, {})
        surprises = {n: f for n, f in sorted(failures[way].items()) if n not in known or not is_known(f, known[n])}
        stale = sorted(n for n in counts[way] if n in known and n not in failures[way])
        bad += len(surprises) + len(stale)
        by_op = collections.Counter("+".join(tests[n]["ops"][:3]) for n in surprises)
        for n, f in list(surprises.items())[: args.show]:
            print(f"FAIL {way} {n}: {f[:300]}")
        if len(surprises) > args.show:
            print(f"     {way}: {len(surprises) - args.show} more failures; by operator: "
                  + ", ".join(f"{op} {k}" for op, k in by_op.most_common(60)))
        for n in stale:
            print(f"STALE {way} {n}: passes, but expected.json says it fails ({known[n][:80]})")
    for way in ways:
        passed = len(counts[way]) - len(failures[way])
        known = sum(n in expected.get(way, {}) and is_known(f, expected[way][n]) for n, f in failures[way].items())
        print(f"{way:15} {passed} of {len(counts[way])} passed, {len(failures[way]) - known} failed, {known} failed as expected")
    if args.json:
        rows = {w: {"run": len(counts[w]), "passed": len(counts[w]) - len(failures[w]), "failures": failures[w]} for w in ways}
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")
    total = sum(len(counts[w]) for w in ways)
    print(f"{total - bad} passed, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
