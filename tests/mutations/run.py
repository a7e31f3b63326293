#!/usr/bin/env python3
"""Planted faults: each of mutations.json is a mistake that somebody could make in fusion, layout, strategies or emitters; the tests
must notice it, and `optc verify` must name what is to blame.

  run.py build OUT [--only NAME,...]     a folder of programs for each mutation, and one of the sources as they are (NAME "none")
  run.py hunt OUT [--seconds S] [--jobs N]  what finds each: OUT/NAME/found.json; ends at the first failure. --evaluator: without bundles
  run.py units OUT                       the unit tests, but for those of golden files, on what hunt did not find
  run.py name OUT                        verify --bisect-passes and --per-kernel on what was found
  run.py table OUT                       the table of README.md
  run.py apply NAME                      into the checkout at hand (`git checkout` afterwards): for ./dev test on what hunt did not find

`build` works in a scratch copy of the sources (OUT/tree), so the checkout at hand stays as it is.
`hunt` asks, in the order of what they cost: the cases (../shared/cases, where they are) and random graphs that spread over the cells of
coverage.cc, on the evaluator as they are lowered; those graphs as bundles that reach a cell which the mutation names; more random graphs
on the evaluator; all of them as bundles. A program that is the same bytes as
without the mutation is not asked, nor is a model whose emitted code is the same; both would say the same.
"""

import argparse
import concurrent.futures
import filecmp
import hashlib
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CASES = ROOT.parent / "shared/cases"
PROGRAMS = ["optc", "optc_random", "optc_conformance", "optc_conformance_bundles"]
UNIT_TESTS = [
    "legality_test", "fusion_law_test", "placement_test", "lowering_test", "schedule_test", "evaluate_lowered_test", "bisect_test", "device_schedule_test",
    "precision_test",
    "runtime_math_test", "runtime_types_test", "runtime_gemm_test", "runtime_conv_test", "runtime_attention_test", "runtime_rnn_test",
    "edge_sweep_test",
]  # fmt: skip
BUILDS_BUNDLES = ["edge_sweep_test"]
SEED = 20  # of the random graphs: every mutation meets the same ones
SPREAD_OVER = 1500  # random graphs, of which some 200 are kept
NAMED_FROM = 6  # models that are tried
UNIT = 6  # cases in a translation unit


def mutations(only=None):
    rows = json.loads((HERE / "mutations.json").read_text())
    names = [r["name"] for r in rows]
    assert len(set(names)) == len(names)
    unknown = set(only or []) - set(names) - {"none"}
    assert not unknown, f"no such mutation: {unknown}"
    return [r for r in rows if not only or r["name"] in only]


def apply(row, tree):
    """The place must be there exactly once: a mutation that no longer fits the sources is an error, not a pass."""
    path = tree / row["file"]
    text = path.read_text()
    if text.count(row["old"]) != 1:
        sys.exit(f"{row['name']}: its text stands {text.count(row['old'])} times in {row['file']}")
    path.write_text(text.replace(row["old"], row["new"]))


def restore(row, tree):
    shutil.copyfile(ROOT / row["file"], tree / row["file"])  # and it is newer than what was built of the mutation


# --- build
def scratch(out):
    """OUT/tree: the sources of the checkout at hand, configured; what was built there before stays."""
    tree = out / "tree"
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    files = {f for f in listed.decode().split("\0") if f and (ROOT / f).is_file()}
    for path in sorted(tree.rglob("*")) if tree.exists() else []:
        relative = path.relative_to(tree)
        if relative.parts[0] != "build" and path.is_file() and str(relative) not in files:
            path.unlink()
    for file in sorted(files):
        there = tree / file
        if not there.exists() or not filecmp.cmp(ROOT / file, there, shallow=False):
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, there)
    if not (tree / "build/build.ninja").exists():
        subprocess.run(["cmake", "--preset", "release"], cwd=tree, check=True, stdout=subprocess.DEVNULL)
    return tree


def compiler_cache(tree):
    """What other checkouts compiled is in the cache under paths relative to them."""
    return {**os.environ, "CCACHE_BASEDIR": str(tree), "CCACHE_NOHASHDIR": "1"}


def build(args):
    args.out.mkdir(parents=True, exist_ok=True)
    tree = scratch(args.out)
    environment = compiler_cache(tree)
    rows = mutations(args.only)
    for row in rows:  # all fit, before hours are spent
        apply(row, tree)
        restore(row, tree)
    failed = 0
    for row in [None] + rows:
        name = row["name"] if row else "none"
        if row:
            apply(row, tree)
        command = ["ninja", "-C", "build", "-j", str(args.jobs), *PROGRAMS]
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
        place = args.out / name
        shutil.rmtree(place, ignore_errors=True)
        if done.returncode == 0:
            (place / "bin").mkdir(parents=True)
            (place / "share/optc").mkdir(parents=True)
            for program in PROGRAMS:
                shutil.copy(tree / "build/bin" / program, place / "bin")
                subprocess.run(["strip", place / "bin" / program], check=True)
            shutil.copytree(tree / "runtime", place / "share/optc/runtime")
        failed += done.returncode != 0
        if row:
            restore(row, tree)
        print(f"{name}: {'built' if done.returncode == 0 else 'DOES NOT BUILD: ' + done.stdout[-400:]}", flush=True)
    return 1 if failed else 0


# --- hunt
class Hunt:
    """One mutation's programs beside those of the sources as they are."""

    def __init__(self, out, row, seconds, evaluator):
        self.evaluator = evaluator
        self.out, self.place, self.none, self.seconds = out, out / row["name"], out / "none", seconds
        self.work, self.reaches = self.place / "work", row.get("reaches")
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()

    def changed(self, program):
        """Programs without the emitters are the same for what is emitted or carried."""
        return not filecmp.cmp(self.place / "bin" / program, self.none / "bin" / program, shallow=False)

    def run(self):
        """What found it, as a dictionary, or None."""
        roots = (CASES, self.out / "graphs")
        for root in roots:
            if self.changed("optc_conformance") and (found := self.cases("lowered", root, names_of(root))):
                return found
        if self.evaluator:
            return None
        # Those that reach what the mutation is about (`reaches`) before all others.
        cells = [(n, (self.out / "graphs" / n / "cells.txt").read_text()) for n in names_of(self.out / "graphs")]
        names = (n for n, text in cells if self.reaches and re.search(self.reaches, text, re.M))
        while unit := list(itertools.islice(names, UNIT)):
            if found := self.cases("bundle", self.out / "graphs", unit):
                return found
        if self.changed("optc_random") and (found := self.random("eval,gpu", 10, self.seconds / 4)):
            return found
        for root in roots:
            names = self.emitted_otherwise(root)
            while unit := list(itertools.islice(names, UNIT)):
                if found := self.cases("bundle", root, unit):
                    return found
        return self.random("bundle", 24, self.seconds)

    def cases(self, way, root, names):
        """The first of the cases that fails here and not without the mutation."""
        failed = run_cases(self.place, way, root, names, self.work)
        usual = run_cases(self.none, way, root, sorted({n.split("/")[0] for n in failed}), self.work)
        new = sorted(set(failed) - set(usual))
        by = f"{'cases' if root == CASES else 'random graphs'}, {way}"
        return finding(by, [(root / n.split("/")[0] / "model.onnx", root / n) for n in new], failed[new[0]]) if new else None

    def emitted_otherwise(self, root):
        """The cases whose bundles are other code, or all where the runtime that they carry is."""
        same_runtime = not subprocess.run(["diff", "-rq", self.place / "share", self.none / "share"], stdout=subprocess.DEVNULL).returncode
        plain = json.loads((self.none / f"{root.name}.json").read_text())
        for name in names_of(root):
            if not same_runtime or emitted(self.place, root / name, self.work) != plain[name]:
                yield name

    def random(self, ways, chunk, seconds):
        """Failing graphs; those that fail without the mutation, too, do not count."""
        out = self.work / "random"
        for seed in range(SEED, SEED + 10**6, 10**5):
            shutil.rmtree(out, ignore_errors=True)
            random_graphs(self.place, out, ways, chunk, ["--seed", str(seed), "--seconds", str(seconds), "--stop"])
            found = sorted(p.parent for p in out.glob("*/why.txt"))
            if not found:
                return None
            again = ["--seed", found[0].name.rsplit("_", 1)[1], "--count", "1", "--seconds", "600"]
            if random_graphs(self.none, self.work / "again", ways, chunk, again) == 0:
                by = f"random graphs, {'bundle' if 'bundle' in ways else 'evaluator'}"
                return finding(by, [(f / "model.onnx", f / "test_data_set_0") for f in found], (found[0] / "why.txt").read_text())
        return None


def finding(by, models, why):
    """`models`: (model, data set) of those that fail."""
    return {"by": by, "models": [[str(m), str(d)] for m, d in models], "why": " ".join(why.split())[:200]}


def names_of(root):
    return sorted(p.parent.name for p in root.glob("*/model.onnx"))


def run_cases(place, way, root, names, work):
    """{case/data set: what failed} of the cases in a folder."""
    if not names:
        return {}
    command = [sys.executable, str(ROOT / "tests/python/cases.py"), way, "--binaries", str(place / "bin"), "--cases", str(root)]
    done = subprocess.run([*command, "--filter", ",".join(names)], capture_output=True, text=True, errors="replace",
                          env={**os.environ, "TMPDIR": str(work)})  # fmt: skip
    if f"{way}: " not in done.stdout:
        sys.exit(f"{' '.join(command)}: {done.stderr[-500:]}")
    lines = [line.removeprefix(way + " ") for line in done.stdout.splitlines() if line.startswith(way + " ")]
    return {line.split(": ")[0]: line for line in lines}


def emitted(place, case, work):
    """A hash of what `optc` makes of a case: the code, or its words where it makes none."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        command = [place / "bin/optc", case / "model.onnx", "-o", f"{folder}/b", "--name", "model"]
        done = subprocess.run(command, capture_output=True)
        files = sorted(p for p in pathlib.Path(folder).rglob("*") if p.parent.name == "src" or p.suffix == ".weights")
        hashed = hashlib.sha256(f"{done.returncode}".encode() + (b"" if files else done.stderr))
        for path in (p for p in files if p.is_file()):
            hashed.update(f"{path.relative_to(folder)} {path.stat().st_size} ".encode() + path.read_bytes())
        return hashed.hexdigest()


def random_graphs(place, out, ways, chunk, more):
    command = [sys.executable, str(ROOT / "tests/random/run.py"), "--binaries", str(place / "bin"), "--out", str(out), "--jobs", "1"]
    return subprocess.run([*command, "--ways", ways, "--chunk", str(chunk), *more], stdout=subprocess.DEVNULL).returncode


def prepare(out):
    """What all mutations are held against: random graphs that spread over the cells of coverage.cc, and hashes of all models' code."""
    none, graphs = out / "none", out / "graphs"
    (none / "work").mkdir(exist_ok=True)
    if not graphs.exists():
        more = ["--seed", str(SEED), "--count", str(SPREAD_OVER), "--seconds", "1e9", "--spread", "2", "--save", str(graphs)]
        random_graphs(none, none / "work/graphs", "eval", 10, more)
    for root in (CASES, graphs):
        file = none / f"{root.name}.json"
        if not file.exists():
            file.write_text(json.dumps({n: emitted(none, root / n, none / "work") for n in names_of(root)}))


def hunt(args):
    rows = mutations(args.only)
    prepare(args.out)

    def one(row):
        if not (args.out / row["name"]).exists():
            sys.exit(f"{row['name']} was not built")
        begun = time.monotonic()
        found = Hunt(args.out, row, args.seconds, args.evaluator).run() or {"by": "", "why": "cases and random graphs pass"}
        found["seconds"] = round(time.monotonic() - begun)
        (args.out / row["name"] / "found.json").write_text(json.dumps(found, indent=1) + "\n")
        print(f"{row['name']:28} {found['by'] or 'NOT FOUND'}, {found['seconds']} s: {found['why']}"[:240], flush=True)
        return bool(found["by"])

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(one, rows))
    print(f"{sum(results)} of {len(results)} found")
    return 0 if all(results) else 1


# --- units
def units(args):
    tree, left = args.out / "tree", []
    usual = {}
    for test in UNIT_TESTS:
        build_unit(tree, test, args.jobs)
        usual[test] = hashlib.sha256((tree / "build/tests" / test).read_bytes()).hexdigest()
    for row in mutations(args.only):
        file = args.out / row["name"] / "found.json"
        if file.exists() and json.loads(file.read_text()).get("by"):
            continue
        begun = time.monotonic()
        apply(row, tree)
        found = first_failing_unit(tree, args.jobs, usual)
        restore(row, tree)
        found["seconds"] = round(time.monotonic() - begun)
        file.write_text(json.dumps(found, indent=1) + "\n")
        print(f"{row['name']:28} {found['by'] or 'NOT FOUND'}, {found['seconds']} s: {found['why']}"[:240], flush=True)
        left += [] if found["by"] else [row["name"]]
    print(f"not found: {' '.join(left) or 'none'}")
    return 1 if left else 0


def build_unit(tree, test, jobs):
    command = ["ninja", "-C", "build", "-j", str(jobs), test]
    built = subprocess.run(command, cwd=tree, env=compiler_cache(tree), capture_output=True, text=True)
    if built.returncode:
        sys.exit(f"{test} does not build: {built.stdout[-400:]}")


def first_failing_unit(tree, jobs, usual):
    for test in UNIT_TESTS:
        build_unit(tree, test, jobs)
        same = hashlib.sha256((tree / "build/tests" / test).read_bytes()).hexdigest() == usual[test]
        if same and test not in BUILDS_BUNDLES:  # those carry the runtime as it lies in the tree
            continue
        command = [f"./{test}", "--gtest_brief=1"]
        done = subprocess.run(command, cwd=tree / "build/tests", capture_output=True, text=True, errors="replace")
        if done.returncode:
            failed = re.findall(r"^\[  FAILED  \] (\S+)", done.stdout, re.M)
            found = finding(f"{test}", [], failed[0] if failed else f"exit code {done.returncode}")
            found["strategies"] = re.findall(r", strategy (\S+), ", done.stdout)  # it compares kernel by kernel
            return found
    return {"by": "", "models": [], "why": "the unit tests pass"}


# --- name
def blamed(text):
    """(steps, strategies) that verify's words blame."""
    return re.findall(r"^culprit: (?:step \d+, |rewrite \d+, rule )(\S+?),? ", text, re.M), re.findall(r"^  strategy +(\S+)", text, re.M)


def name(args):
    """What is to blame, as verify says it: a step (bisection) or a kernel with its strategy (--per-kernel)."""
    right = 0
    for row in mutations(args.only):
        file = args.out / row["name"] / "found.json"
        found = json.loads(file.read_text()) if file.exists() else {}
        if not found.get("by"):
            continue
        options = [["--engine=evaluate", "--bisect-passes"]] if found["by"].endswith(("lowered", "evaluator")) else []
        options += [["--bisect-passes"], ["--per-kernel"]]
        said, steps, strategies = "", [], found.get("strategies", [])
        good = [w for w in strategies if re.fullmatch(row["names"], w)]
        if strategies:
            options = []
        # A model on which the mutation shows without the optimizer may be right with it: another one, then.
        for option, (model, data) in ((o, m) for o in options for m in found["models"][:NAMED_FROM]):
            command = [args.out / row["name"] / "bin/optc", "verify", model, *option, "--inputs", data, "--against", data]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", timeout=900)
            text = f"$ optc verify {model} {' '.join(option)}: exit {done.returncode}\n{done.stdout}{done.stderr}\n"
            said += text
            steps, strategies = (a + b for a, b in zip((steps, strategies), blamed(text)))
            good = [w for w in steps + strategies if re.fullmatch(row["names"], w)]
            if steps + strategies:
                break
        (file.parent / "named.txt").write_text(said)
        found["named"], found["blamed"] = bool(good), (good or steps + strategies or [""])[0]
        file.write_text(json.dumps(found, indent=1) + "\n")
        right += bool(good)
        print(f"{row['name']:28} {'named' if good else 'NOT NAMED'}: {' '.join(steps + strategies)} (right: {row['names']})", flush=True)
    print(f"{right} named")


def table(args):
    print("| mutation | found by | seconds | blamed |\n|---|---|---|---|")
    for row in mutations(args.only):
        file = args.out / row["name"] / "found.json"
        found = json.loads(file.read_text()) if file.exists() else {"by": "", "seconds": ""}
        blame = found.get("blamed", "") if found.get("named") else f"no ({found['blamed']})" if found.get("blamed") else "no"
        print(f"| {row['name']} | {found['by'] or 'nothing'} | {found['seconds']} | {blame} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["build", "hunt", "units", "name", "table", "apply"])
    parser.add_argument("out", type=pathlib.Path, help="a folder; of apply: the mutation")
    parser.add_argument("--only", type=lambda s: s.split(","))
    parser.add_argument("--seconds", type=float, default=240, help="random graphs on each")
    parser.add_argument("--evaluator", action="store_true", help="hunt without bundles")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    if args.verb == "apply":
        return apply(mutations([str(args.out)])[0], ROOT)
    args.out = args.out.resolve()
    return {"build": build, "hunt": hunt, "units": units, "name": name, "table": table}[args.verb](args)


if __name__ == "__main__":
    sys.exit(main())
