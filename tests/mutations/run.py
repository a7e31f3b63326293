#!/usr/bin/env python3
"""Planted faults: each of mutations.json is a mistake that somebody could make in fusion, layout, strategies or emitters; the tests
must notice it, and `optc verify` must name what is to blame.

  run.py build OUT [--only NAME,...]     a folder of binaries for each mutation, and one of the sources as they are (NAME "none")
  run.py hunt OUT [--seconds S] [--jobs N]  cases (../shared/cases, where they are) and random graphs on each; says who was found
  run.py name OUT                        verify --bisect-passes and --per-kernel on the first failing model of each that was found

`build` works in a scratch checkout of HEAD (OUT/tree), so the checkout at hand stays as it is. What `hunt` did not find is for the whole suite:
apply it by hand (`run.py apply NAME`, and `git checkout` afterwards) and run ./dev test.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROGRAMS = ["optc", "optc_random", "optc_conformance", "optc_conformance_bundles"]
SEED = 20  # of the random graphs: every mutation meets the same ones


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


def build(args):
    tree = args.out / "tree"
    args.out.mkdir(parents=True, exist_ok=True)
    if not tree.exists():
        subprocess.run(["git", "worktree", "add", "--detach", str(tree), "HEAD"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--preset", "release"], cwd=tree, check=True, stdout=subprocess.DEVNULL)
    rows = mutations(args.only)
    for row in rows:  # all fit, before hours are spent
        apply(row, tree)
        subprocess.run(["git", "checkout", "-q", "."], cwd=tree, check=True)
    for row in [None] + rows:
        name = row["name"] if row else "none"
        if row:
            apply(row, tree)
        done = subprocess.run(["ninja", "-C", "build", *PROGRAMS], cwd=tree, capture_output=True, text=True)
        place = args.out / name
        if done.returncode == 0:
            shutil.rmtree(place, ignore_errors=True)
            (place / "bin").mkdir(parents=True)
            (place / "share/optc").mkdir(parents=True)
            for program in PROGRAMS:
                shutil.copy(tree / "build/bin" / program, place / "bin")
                subprocess.run(["strip", place / "bin" / program], check=True)
            shutil.copytree(tree / "runtime", place / "share/optc/runtime")
        subprocess.run(["git", "checkout", "-q", "."], cwd=tree, check=True)
        print(f"{name}: {'built' if done.returncode == 0 else 'DOES NOT BUILD: ' + done.stdout[-400:]}", flush=True)


def cases(place, work):
    """{case/data set and way: what failed}; None without the cases."""
    tool = ROOT / "tests/python/cases.py"
    if not (ROOT.parent / "shared/cases").exists():
        return None
    done = subprocess.run([sys.executable, str(tool), "evaluator", "bundle", "--binaries", str(place / "bin")], capture_output=True, text=True,
                          errors="replace", env={**os.environ, "TMPDIR": str(work)})
    return {line.split(": ")[0]: line for line in done.stdout.splitlines() if ": " in line and "/" in line.split(": ")[0]}


def random(place, seconds, work):
    """The folders of failing random graphs."""
    ways = "eval,gpu,bundle-avx2,bundle-avx512,bundle-base"
    out = work / "random"
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run([sys.executable, str(ROOT / "tests/random/run.py"), "--seed", str(SEED), "--seconds", str(seconds), "--jobs", "1", "--ways",
                    ways, "--chunk", "24", "--binaries", str(place / "bin"), "--out", str(out)], capture_output=True)
    return sorted(p.parent for p in out.glob("*/why.txt"))


def hunt(args):
    rows = mutations(args.only)
    none = args.out / "none"
    (none / "work").mkdir(exist_ok=True)
    usual = cases(none, none / "work")

    def one(row):
        place = args.out / row["name"]
        if not place.exists():
            return {"found": False, "why": "was not built"}
        work = place / "work"
        work.mkdir(exist_ok=True)
        if usual is not None:
            new = {n: t for n, t in cases(place, work).items() if n not in usual}
            if new:
                first = sorted(new)[0]
                way, case = first.split(" ", 1)
                return {"found": True, "by": "cases", "count": len(new), "way": way, "model": f"../shared/cases/{case.split('/')[0]}/model.onnx",
                        "data": f"../shared/cases/{case}", "why": new[first][:200]}
        found = random(place, args.seconds, work)
        if found:
            return {"found": True, "by": "random graphs", "count": len(found), "model": str(found[0] / "model.onnx"),
                    "data": str(found[0] / "test_data_set_0"), "why": (found[0] / "why.txt").read_text()[:200]}
        return {"found": False, "why": "cases and random graphs pass"}

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = dict(zip([r["name"] for r in rows], pool.map(one, rows)))
    (args.out / "hunt.json").write_text(json.dumps(results, indent=1) + "\n")
    for name, r in results.items():
        print(f"{name:28} {'found by ' + r['by'] if r['found'] else 'NOT FOUND'}: {r['why'].splitlines()[0] if r['why'] else ''}")
    print(f"{sum(r['found'] for r in results.values())} of {len(results)} found")
    return 0 if all(r["found"] for r in results.values()) else 1


def name(args):
    """What is to blame, as verify says it: a step (bisection) or a kernel with its strategy (--per-kernel)."""
    import re

    results = json.loads((args.out / "hunt.json").read_text())
    right = 0
    for row in mutations(args.only):
        r = results.get(row["name"], {})
        if not r.get("found"):
            continue
        said = []
        for option in ("--bisect-passes", "--per-kernel"):
            done = subprocess.run([str(args.out / row["name"] / "bin/optc"), "verify", r["model"], "--against", r["data"], option],
                                  cwd=ROOT, capture_output=True, text=True, errors="replace", timeout=900)
            said.append(f"$ optc verify {option}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        text = "\n".join(said)
        (args.out / row["name"] / "named.txt").write_text(text)
        good = bool(re.search(row["names"], text)) if row["names"] else "kernel" in text
        right += good
        print(f"{row['name']:28} {'named' if good else 'NOT NAMED'} ({row['names'] or 'a kernel'})")
    print(f"{right} named")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["build", "hunt", "name", "apply"])
    parser.add_argument("out", type=pathlib.Path, help="a folder; of apply: the mutation")
    parser.add_argument("--only", type=lambda s: s.split(","))
    parser.add_argument("--seconds", type=float, default=240, help="random graphs on each")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    if args.verb == "apply":
        return apply(mutations([str(args.out)])[0], ROOT)
    args.out = args.out.resolve()
    return {"build": build, "hunt": hunt, "name": name}[args.verb](args)


if __name__ == "__main__":
    sys.exit(main())
