#!/usr/bin/env python3
"""Runs every test of the onnx package (see export.py) through optc and compares as onnx's own runner does.

  run.py [--engine evaluate|lowered|bundle|ptx] [--ways static,dynamic,constant,folded] [--shard I/N] [--filter GLOB] [--op NAME]
         [--table] [--target sm_90a] [--binary PROGRAM] [--jobs N] [--show N] [--json OUT] [--bless]

Engines: evaluate (the evaluator), lowered (lowered Programs on the evaluator, as they are lowered), bundle (emitted C++: compiled, built, many
tests a library, and run) and ptx (the same with kernels for --target, run on the card of this machine, or on the driver that OPTC_LIBCUDA
names: BUILD/tests/libemulated_cuda.so). --shard 2/4 takes the second quarter, by the hash of a test's name. --table prints a row for each
operator, else those of which something failed.

expected.json holds the failures that are known, by test: its kind ("random" and "rounding": values differ, else that of optc's error), the
reason, the ways and the engines where it fails (all, where it names none), the node that the error names, and the check of properties.py that the outputs pass
all the same. A failure that is not there fails the run, and so does one of another kind or at another node, outputs that do not pass their
check, and an entry whose test passes. --bless writes the failures of this run that are not there.
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
import properties  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WAYS = ("static", "dynamic", "constant", "folded")
ENGINES = ("evaluate", "lowered", "bundle", "ptx")
UNIT = 48  # models in a library of bundles


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
    """Sets beside each other; where they differ and the test has a check, it must pass: "property: ..." if it does not."""
    wanted, got = [], []
    found = None
    for i, kind in enumerate(test["outputs"]):
        path = folder / f"set_{number}" / f"output_{i}.pb"
        if not path.exists():
            continue
        if not (outputs / path.name).exists():
            return f"output {i} was not written"
        want, have = (dict(flatten(read_value(p, kind))) for p in (path, outputs / path.name))
        if want.keys() != have.keys():
            return f"output {i} has {len(have)} elements, expected {len(want)}"
        for place, tensor in want.items():
            found = found or (text := difference(tensor, have[place], test["rtol"], test["atol"])) and f"output {i}{place}: {text}"
            if tensor.data_type != have[place].data_type or list(tensor.dims) != list(have[place].dims):
                return found
        wanted += want.values()
        got += have.values()
    if found and test.get("check"):
        check, (wanted, got) = properties.CHECKS[test["check"]], ([numpy_helper.to_array(t) for t in ts] for ts in (wanted, got))
        if broken := check(read_inputs(folder / "static" / f"set_{number}"), wanted, got):
            return f"{found}; by {test['check']}: {broken}", "property"
    return found


def read_inputs(folder):
    paths = sorted(folder.glob("input_*.pb"), key=lambda p: int(p.stem.split("_")[1]))
    return [numpy_helper.to_array(TensorProto.FromString(p.read_bytes())) for p in paths]


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
            failure = failure and (f"{failure[1]}: {failure[0]}" if isinstance(failure, tuple) else f"wrong: {failure}")
        else:
            failure = f"{word}: {text}"
        results.append((way, name, failure))
        shutil.rmtree(work / str(n))
    return results


def kind_and_node(failure):
    kind = re.match(r"(\w+): ", failure)
    node = re.search(r"\[node '([^']*)'", failure)
    return kind.group(1) if kind else "wrong", node and node.group(1)


def is_known(failure, entry):
    kind, node = kind_and_node(failure)
    if entry["kind"] in ("random", "rounding"):
        return kind == "wrong"
    return kind == entry["kind"] and entry.get("node") in (None, node)


def entry_of(failure):
    """What --bless writes; a person says the kind of values that differ, and a check."""
    kind, node = kind_and_node(failure)
    return {"kind": kind, **({"node": node} if node else {}), "reason": failure.split(": ", 1)[1].split(" [node")[0][:200]}


class Expected:
    """expected.json, as far as it holds for an engine."""

    def __init__(self, path, engine):
        self.path, self.engine = path, engine
        self.entries = json.loads(path.read_text()) if path.exists() else {}

    def get(self, way, name):
        entry = self.entries.get(name)
        if not entry or way not in entry.get("ways", WAYS) or self.engine not in entry.get("engines", ENGINES):
            return None
        return entry

    def add(self, failures):
        """{(way, name): failure} that are not known."""
        for (way, name), failure in failures.items():
            entry = self.entries.setdefault(name, {**entry_of(failure), "ways": [], "engines": [self.engine]})
            entry["ways"] = sorted({*entry.get("ways", WAYS), way})
            entry["engines"] = sorted({*entry.get("engines", ENGINES), self.engine})
        self.path.write_text(json.dumps(dict(sorted(self.entries.items())), indent=1) + "\n")


class Tally:
    """What became of the tests: "passed", "known" (failed as expected.json says), "failed", "stale" (passed, and it says that they fail)."""

    def __init__(self, tests, expected, results):
        self.tests, self.failures, self.outcome = tests, {}, {}
        for way, name, failure in results:  # of each set of a test
            key = (way, name)
            if failure:
                self.failures.setdefault(key, failure)
            self.outcome[key] = ""
        for way, name in self.outcome:
            entry, failure = expected.get(way, name), self.failures.get((way, name))
            if failure:
                self.outcome[way, name] = "known" if entry and is_known(failure, entry) else "failed"
            else:
                self.outcome[way, name] = "stale" if entry else "passed"

    def of(self, way, *outcomes):
        return {name: self.failures.get((w, name)) for (w, name), o in sorted(self.outcome.items()) if w == way and o in outcomes}

    def operators(self):
        """{operator: {way: counter of outcomes}}"""
        rows = collections.defaultdict(lambda: collections.defaultdict(collections.Counter))
        for (way, name), outcome in self.outcome.items():
            whole = self.tests.get(re.sub(r"_expanded.*", "", name), self.tests[name])  # a function's body is a test of its operator
            for op in whole["ops"]:
                rows[op][way][outcome] += 1
        return rows


def cell(counts):
    if not counts:
        return "-"
    right, run = counts["passed"] + counts["stale"], sum(counts.values())
    others = [f"{counts[o]} {o}" for o in ("known", "failed") if counts[o]]
    return f"{right}/{run}" + (f" ({', '.join(others)})" if others else "")


def print_table(tally, ways, whole):
    rows = [(op, [cell(by_way[w]) for w in ways]) for op, by_way in sorted(tally.operators().items())
            if whole or any(c["known"] or c["failed"] for c in by_way.values())]
    if not rows:
        return
    print("operator".ljust(34) + "".join(w.ljust(28) for w in ways) + ("" if whole else " (those of which a test failed; all: --table)"))
    for op, cells in rows:
        print((op.ljust(34) + "".join(c.ljust(28) for c in cells)).rstrip())
    print()


def print_failures(tally, ways, show):
    for way in ways:
        failed, stale = tally.of(way, "failed"), tally.of(way, "stale")
        for name, failure in list(failed.items())[:show]:
            print(f"FAIL {way} {name}: {failure[:300]}")
        if len(failed) > show:
            print(f"     {way}: {len(failed) - show} more failures")
        for name in stale:
            print(f"STALE {way} {name}: passes, but expected.json says that it fails")


def arguments():
    parser = argparse.ArgumentParser(prog="./dev conformance", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=ENGINES, default="evaluate")
    parser.add_argument("--ways", default="", help="of static, dynamic, constant and folded (which bundles do not have); all, if not given")
    parser.add_argument("--shard", default="1/1", metavar="I/N")
    parser.add_argument("--filter", default="*", metavar="GLOB")
    parser.add_argument("--op", default="", help="tests that have this operator")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--target", default="", help="for --engine ptx; sm_90a, if not given")
    parser.add_argument("--binary", default="", help="optc_conformance or optc_conformance_bundles")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--timeout", type=int, default=60)
    parser.add_argument("--show", type=int, default=40, help="failures to print for each way")
    parser.add_argument("--json", default="")
    parser.add_argument("--expected", default=str(HERE / "expected.json"))
    parser.add_argument("--bless", action="store_true")
    args = parser.parse_args()
    if args.target and args.engine != "ptx":
        parser.error("--target is for --engine ptx")
    args.bundles = args.engine in ("bundle", "ptx")
    args.ways = args.ways.split(",") if args.ways else [w for w in WAYS if not args.bundles or w != "folded"]
    if wrong := [w for w in args.ways if w not in WAYS]:
        parser.error(f"no way is called {wrong[0]!r}; there are {', '.join(WAYS)}")
    shard = re.fullmatch(r"(\d+)/(\d+)", args.shard)
    args.shard = shard and (int(shard[1]), int(shard[2]))
    if not args.shard or not 1 <= args.shard[0] <= args.shard[1]:
        parser.error("--shard is I/N with I from 1 to N")
    args.binary = args.binary or str(ROOT / "build/bin" / ("optc_conformance_bundles" if args.bundles else "optc_conformance"))
    return args


def select(tests, args):
    """(way, test, data set) of all that is asked for."""
    wanted, shards = args.shard
    names = [name for name, test in sorted(tests.items())
             if fnmatch.fnmatch(name, args.filter) and (not args.op or args.op in test["ops"])
             and zlib.crc32(name.encode()) % shards == wanted - 1]
    return [(way, name, k) for way in args.ways for name in names for k in range(tests[name]["ways"].get(way, 0))]


def run(args, tests, folder):
    options = ["--timeout", str(args.timeout)]
    options += {"lowered": ["--lowered"], "ptx": ["--target", args.target or "sm_90a"]}.get(args.engine, [])
    jobs = select(tests, args)
    # A unit that includes what this machine has not is lost as a whole: images stand apart.
    images = [j for j in jobs if args.bundles and "ImageDecoder" in tests[j[1]]["ops"]]
    others = [j for j in jobs if j not in images]
    count = -(-len(others) // UNIT) if args.bundles else args.jobs * 4
    share = [others[i::count] for i in range(count)] + ([images] if images else [])
    with tempfile.TemporaryDirectory(prefix="optc_conformance_") as work, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        done = pool.map(lambda k: run_share(args.binary, options, share[k], tests, folder, pathlib.Path(work) / str(k)), range(len(share)))
        return [r for rs in done for r in rs]


def main():
    args = arguments()
    expected = Expected(pathlib.Path(args.expected), args.engine)
    folder = export.cache_folder()
    tests = export.export(folder)["tests"]
    for name, entry in expected.entries.items():
        tests[name]["check"] = entry.get("check")
    results = run(args, tests, folder)
    if not results:
        print("no test matches")
        return 2
    tally = Tally(tests, expected, results)
    if args.bless:
        expected.add({(w, n): f for w in args.ways for n, f in tally.of(w, "failed").items()})
    print_table(tally, args.ways, args.table)
    print_failures(tally, args.ways, args.show)
    bad, rows = 0, {}
    for way in args.ways:
        right, known, failed = (tally.of(way, *o) for o in (("passed", "stale"), ("known",), ("failed",)))
        bad += len(failed) + len(tally.of(way, "stale"))
        rows[way] = {"run": len(right) + len(known) + len(failed), "passed": len(right), "failures": {**known, **failed}}
        print(f"{args.engine}.{way:10} {len(right)} of {rows[way]['run']} passed, {len(failed)} failed, {len(known)} failed as expected")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")
    print(f"{len(tally.outcome) - bad} passed, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
