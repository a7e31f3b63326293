#!/usr/bin/env python3
"""Planted faults: each of mutations.json is a mistake that somebody could make in fusion, layout, strategies or emitters; the tests
must notice it, and `optc verify` must name what is to blame.

  run.py build OUT [--only NAME,...]     a folder of programs for each mutation, and one of the sources as they are (NAME "none")
  run.py hunt OUT [--seconds S] [--jobs N]  what finds each: OUT/NAME/found.json; ends at the first failure
  run.py name OUT                        verify --bisect-passes and --per-kernel on what was found
  run.py table OUT                       the table of README.md
  run.py apply NAME                      into the checkout at hand (`git checkout` afterwards): for ./dev test on what hunt did not find

`build` works in a scratch checkout of HEAD (OUT/tree), so the checkout at hand stays as it is.
`hunt` asks, in the order of what they cost: the cases (../shared/cases, where they are) on the evaluator, random graphs on the evaluator,
the cases as bundles, random graphs as bundles. A program that is the same bytes as without the mutation is not asked, nor is a case whose
emitted code is the same; both would say the same.
"""

import argparse
import concurrent.futures
import filecmp
import hashlib
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
SEED = 20  # of the random graphs: every mutation meets the same ones
UNIT = 20  # cases in a translation unit


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


# --- build
def build(args):
    tree = args.out / "tree"
    args.out.mkdir(parents=True, exist_ok=True)
    # What other checkouts compiled is in the cache under paths relative to them.
    environment = {**os.environ, "CCACHE_BASEDIR": str(tree), "CCACHE_NOHASHDIR": "1"}
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    if not tree.exists():
        subprocess.run(["git", "worktree", "add", "--detach", str(tree), head], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["git", "checkout", "-q", "--force", "--detach", head], cwd=tree, check=True)
    if not (tree / "build/build.ninja").exists():
        subprocess.run(["cmake", "--preset", "release"], cwd=tree, check=True, stdout=subprocess.DEVNULL)
    rows = mutations(args.only)
    for row in rows:  # all fit, before hours are spent
        apply(row, tree)
        subprocess.run(["git", "checkout", "-q", "."], cwd=tree, check=True)
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
        subprocess.run(["git", "checkout", "-q", "."], cwd=tree, check=True)
        print(f"{name}: {'built' if done.returncode == 0 else 'DOES NOT BUILD: ' + done.stdout[-400:]}", flush=True)
    return 1 if failed else 0


# --- hunt
class Hunt:
    """One mutation's programs beside those of the sources as they are."""

    def __init__(self, out, row, seconds, usual):
        self.place, self.none, self.seconds, self.usual = out / row["name"], out / "none", seconds, usual
        self.work = self.place / "work"
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()

    def changed(self, program):
        return not filecmp.cmp(self.place / "bin" / program, self.none / "bin" / program, shallow=False)

    def run(self):
        """What found it, as a dictionary, or None."""
        if self.changed("optc_conformance") and (found := self.cases("evaluator")):
            return found
        if self.changed("optc_random") and (found := self.random("eval,gpu", 10, self.seconds / 4)):
            return found
        names = self.emitted_otherwise()
        for at in range(0, len(names), UNIT):
            if found := self.cases("bundle", ",".join(names[at : at + UNIT])):
                return found
        return self.random("bundle", 24, self.seconds)

    def cases(self, way, names=None):
        new = {n: t for n, t in run_cases(self.place, way, names, self.work).items() if n.split("/")[0] not in self.usual[way]}
        if not new:
            return None
        first = sorted(new)[0]
        return finding(f"cases, {way}", CASES / first.split("/")[0] / "model.onnx", CASES / first, new[first])

    def emitted_otherwise(self):
        """The cases whose bundles are other code, or all where the runtime that they carry is."""
        if not CASES.exists():
            return []
        names = sorted(p.parent.name for p in CASES.glob("*/model.onnx"))
        if subprocess.run(["diff", "-rq", self.place / "share", self.none / "share"], stdout=subprocess.DEVNULL).returncode:
            return names
        known = self.none / "emitted.json"
        if not known.exists():
            known.write_text(json.dumps({n: emitted(self.none, n, self.work) for n in names}))
        plain = json.loads(known.read_text())
        return [n for n in names if emitted(self.place, n, self.work) != plain[n]]

    def random(self, ways, chunk, seconds):
        """Failing graphs; those that fail without the mutation, too, do not count."""
        out = self.work / "random"
        shutil.rmtree(out, ignore_errors=True)
        for seed in range(SEED, SEED + 10**6, 10**5):
            random_graphs(self.place, out, ways, chunk, seconds, ["--seed", str(seed), "--stop"])
            found = sorted(p.parent for p in out.glob("*/why.txt"))
            if not found:
                return None
            again = self.work / "again"
            words = ["--seed", found[0].name.rsplit("_", 1)[1], "--count", "1"]
            if random_graphs(self.none, again, ways, chunk, 600, words) == 0:
                break
            shutil.rmtree(out)
        by = f"random graphs, {'bundle' if 'bundle' in ways else 'evaluator'}"
        return finding(by, found[0] / "model.onnx", found[0] / "test_data_set_0", (found[0] / "why.txt").read_text())


def finding(by, model, data, why):
    return {"by": by, "model": str(model), "data": str(data), "why": " ".join(why.split())[:200]}


def run_cases(place, way, names, work):
    """{case/data set: what failed}; nothing without the cases."""
    if not CASES.exists():
        return {}
    command = [sys.executable, str(ROOT / "tests/python/cases.py"), way, "--binaries", str(place / "bin"), "--filter", names or "*"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env={**os.environ, "TMPDIR": str(work)})
    if f"{way}: " not in done.stdout:
        sys.exit(f"{' '.join(command)}: {done.stderr[-500:]}")
    lines = [line.removeprefix(way + " ") for line in done.stdout.splitlines() if line.startswith(way + " ")]
    return {line.split(": ")[0]: line for line in lines}


def emitted(place, case, work):
    """A hash of what `optc` makes of a case: the files without the runtime, or its words where it makes none."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        command = [place / "bin/optc", CASES / case / "model.onnx", "-o", f"{folder}/b", "--name", "model"]
        done = subprocess.run(command, capture_output=True)
        files = sorted(p for p in pathlib.Path(folder).rglob("*") if p.is_file() and "runtime" not in p.parts)
        hashed = hashlib.sha256(f"{done.returncode}".encode() + (b"" if files else done.stderr))
        for path in files:
            hashed.update(f"{path.relative_to(folder)} {path.stat().st_size} ".encode() + path.read_bytes())
        return hashed.hexdigest()


def random_graphs(place, out, ways, chunk, seconds, more):
    command = [sys.executable, str(ROOT / "tests/random/run.py"), "--binaries", str(place / "bin"), "--out", str(out), "--jobs", "1"]
    command += ["--seconds", str(seconds), "--ways", ways, "--chunk", str(chunk), *more]
    return subprocess.run(command, stdout=subprocess.DEVNULL).returncode


def hunt(args):
    rows = mutations(args.only)
    expected = json.loads((ROOT / "tests/python/cases_expected.json").read_text())
    usual = {way: {**expected["all"], **expected.get(way, {})} for way in ("evaluator", "bundle")}

    def one(row):
        if not (args.out / row["name"]).exists():
            sys.exit(f"{row['name']} was not built")
        begun = time.monotonic()
        found = Hunt(args.out, row, args.seconds, usual).run() or {"by": "", "why": "cases and random graphs pass"}
        found["seconds"] = round(time.monotonic() - begun)
        (args.out / row["name"] / "found.json").write_text(json.dumps(found, indent=1) + "\n")
        print(f"{row['name']:28} {found['by'] or 'NOT FOUND'}, {found['seconds']} s: {found['why']}"[:240], flush=True)
        return bool(found["by"])

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(one, rows))
    print(f"{sum(results)} of {len(results)} found")
    return 0 if all(results) else 1


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
        said = []
        for option in ("--bisect-passes", "--per-kernel"):
            command = [args.out / row["name"] / "bin/optc", "verify", found["model"], option]
            command += ["--inputs", found["data"], "--against", found["data"]]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", timeout=900)
            said.append(f"$ optc verify {option}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        text = "\n".join(said)
        (file.parent / "named.txt").write_text(text)
        steps, strategies = blamed(text)
        good = [w for w in steps + strategies if re.fullmatch(row["names"], w)]
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
    parser.add_argument("verb", choices=["build", "hunt", "name", "table", "apply"])
    parser.add_argument("out", type=pathlib.Path, help="a folder; of apply: the mutation")
    parser.add_argument("--only", type=lambda s: s.split(","))
    parser.add_argument("--seconds", type=float, default=240, help="random graphs on each")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    if args.verb == "apply":
        return apply(mutations([str(args.out)])[0], ROOT)
    args.out = args.out.resolve()
    return {"build": build, "hunt": hunt, "name": name, "table": table}[args.verb](args)


if __name__ == "__main__":
    sys.exit(main())
