#!/usr/bin/env python3
"""Planted faults, one after the other, until each is found: what tier 2 runs (tests/python/test_mutations.py).

  check.py OUT [--only NAME,...] [--table FILE]

OUT/tree is a scratch copy of the sources. A mutation is written into it, what hangs on that source is built again, and it is asked, until something is
wrong: a fixed set of models on the evaluator, optimized and lowered (testdata/random, and random graphs of one seed, OUT/graphs); the unit
tests of the source's folder; the models as bundles, for emitters and the runtime. What is wrong without the mutation, too, does not count. `optc verify` then says
what is to blame, on the models that showed it. FILE gets all that as JSON. Exit code 1 when a mutation is not found.
"""

import argparse
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

from run import HERE, ROOT, apply, blamed, compiler_cache, mutations, restore, scratch

sys.path.insert(0, str(ROOT / "tests/random"))
KEPT = ROOT / "testdata/random"
GRAPHS, SEED = 300, 20
EVALUATED = ["eval", "gpu"]
NAMED_FROM = 4  # models that are asked what is to blame
UNIT = 8  # models in a translation unit
PROGRAMS = ["optc", "optc_random", "optc_conformance_bundles"]
GPU_PROGRAMS = ["optc_ptx_module", "emulated_cuda"]
# By the source's folder; tests of golden files do not count, and those that build bundles take too long.
UNITS = {
    "ir": ["dim_test", "evaluate_lowered_test", "placement_test"],
    "ops": ["ops_test", "elements_test", "lowering_test"],
    "importer": ["importer_test"],
    "optimizer": ["export_test"],
    "lowering/fusion": ["legality_test", "fusion_law_test", "lowering_test"],
    "lowering/buffers": ["placement_test", "lowering_test"],
    "lowering/precision": ["precision_test"],
    "lowering/schedule": ["schedule_test", "lowering_test"],
    "emit/ptx": ["ptx_test"],
    "runtime/bundle": ["placement_test", "runtime_math_test"],
    "runtime/cpu": ["runtime_gemm_test", "runtime_conv_test", "runtime_attention_test", "runtime_rnn_test", "runtime_types_test", "runtime_conv_i8_test"],
}  # fmt: skip


class Models:
    """The models, with what is wrong with them in the sources as they are."""

    def __init__(self, out):
        from runner import load_case

        self.out, self.tree = out, out / "tree"
        folders = sorted(p.parent for root in (KEPT, out / "graphs") for p in root.glob("*/model.onnx"))
        self.cases = [(folder, load_case(folder)) for folder in folders]
        self.usual = set()  # (index, way) of what is wrong without a mutation

    def wrong(self, ways, indices, stop=True):
        """[(index, way, why)] of the first models that are wrong in the tree as it is built now, or of all."""
        from runner import Runner

        runner, found = Runner(self.tree / "build/bin", self.out / "work"), []
        size = 10 if ways == EVALUATED else UNIT
        try:
            for part in (indices[k : k + size] for k in range(0, len(indices), size)):
                answers = runner.run([self.cases[i][1] for i in part], ways)
                found += [
                    (part[k], way, f"{way}: {a.failure.word} {a.failure.text}")
                    for (k, way), a in sorted(answers.items(), key=lambda item: item[0])
                    if a.failure and (part[k], way) not in self.usual
                ]
                if found and stop:
                    break
        finally:
            runner.close()
        return found


class DoesNotBuild(Exception):
    """A mutation must: warnings are errors."""


def build(tree, *targets):
    done = subprocess.run(["ninja", "-C", "build", *targets], cwd=tree, env=compiler_cache(tree), capture_output=True, text=True)
    if done.returncode:
        raise DoesNotBuild(f"{' '.join(targets)}: {done.stdout[-1500:]}")


def prepare(out):
    """The scratch copy as it is, its graphs, and what is wrong with them."""
    tree = scratch(out)
    build(tree, *PROGRAMS)
    if not (out / "graphs").exists():
        command = [sys.executable, ROOT / "tests/random/run.py", "--binaries", tree / "build/bin", "--out", out / "found", "--seed", SEED,
                   "--count", GRAPHS, "--seconds", "1e9", "--ways", "eval", "--spread", "999", "--minimize", "0", "--save", out / "graphs"]  # fmt: skip
        subprocess.run([str(c) for c in command], stdout=subprocess.DEVNULL)
    models = Models(out)
    models.usual = {(i, way) for i, way, _ in models.wrong(EVALUATED, range(len(models.cases)), stop=False)}
    return models


def by_models(row, models):
    if row["file"].startswith(("emit/", "runtime/cpu/")):
        return []  # the evaluator has none of it
    build(models.tree, "optc", "optc_random")
    return models.wrong(EVALUATED, range(len(models.cases)))


def by_units(row, models):
    folder = next((f for f in sorted(UNITS, key=len, reverse=True) if row["file"].startswith(f + "/")), None)
    for test in UNITS.get(folder, ()):
        if not build_test(models.tree, test):
            continue
        done = subprocess.run([f"./{test}", "--gtest_brief=1"], cwd=models.tree / "build/tests", capture_output=True, text=True, errors="replace")
        if done.returncode:
            failed = re.findall(r"^\[  FAILED  \] (\S+?),? ", done.stdout + " ", re.M)
            return test, failed[0] if failed else f"exit code {done.returncode}"
    return None


def build_test(tree, test):
    known = subprocess.run(["ninja", "-C", "build", "-t", "query", test], cwd=tree, capture_output=True).returncode == 0
    if known:
        build(tree, test)
    return known


def by_bundles(row, models, indices):
    build(models.tree, *PROGRAMS, *(GPU_PROGRAMS if on_gpu(row) else []))
    return models.wrong(["ptx" if on_gpu(row) else "bundle-avx2"], indices)


def of_bundles(row):
    """Whether bundles can show what the evaluator cannot."""
    return row["file"].startswith(("emit/", "runtime/", "lowering/schedule/"))


def on_gpu(row):
    return row["file"].startswith("emit/ptx/")


def reaches(row, folder):
    cells = folder / "cells.txt"
    return "reaches" in row and cells.exists() and re.search(row["reaches"], cells.read_text(), re.M)


def name(row, models, found, shows):
    """(what is to blame, whether that is right) as verify says it: `found` on the evaluator, `shows` as the row says."""
    bisection, said = ["--engine=evaluate", "--bisect-passes"], []
    asked = [(i, bisection) for i in list(dict.fromkeys(found))[:NAMED_FROM]]
    asked += [(i, option) for option in ([bisection] if not of_bundles(row) else [["--per-kernel"]]) for i in shows]
    environment = {**os.environ, "OPTC_CACHE": str(models.out / "cache")}
    if on_gpu(row):
        environment["OPTC_LIBCUDA"] = str(models.tree / "build/tests/libemulated_cuda.so")
    for i, option in dict.fromkeys((i, tuple(option)) for i, option in asked):
        folder = models.cases[i][0]
        data = folder / "test_data_set_0"
        command = [models.tree / "build/bin/optc", "verify", folder / "model.onnx", *option, *row.get("options", []), "--inputs", data, "--against", data]
        shutil.rmtree(models.out / "cache", ignore_errors=True)  # no bundle of another mutation
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=600, env=environment)
        except subprocess.TimeoutExpired:
            continue
        text = done.stdout + done.stderr
        said += [*itertools.chain(*blamed(text)), *re.findall(r"program verifier (\w+):", text)]
        said += ["operator"] if "the fault lies in an operator" in text else []
        if any(re.fullmatch(row["names"], w) for w in said):
            break
    right = [w for w in said if re.fullmatch(row["names"], w)]
    return (right or said or [""])[0], bool(right)


def check(row, models):
    begun = time.monotonic()
    result = {"name": row["name"], "file": row["file"], "what": row["what"], "by": "", "why": "", "blamed": "", "named": False}
    shows = [i for i, (folder, _) in enumerate(models.cases) if folder.parent == KEPT and folder.name in row.get("shows", ())]
    others = [i for i, (folder, _) in enumerate(models.cases) if i not in shows and reaches(row, folder)][: 2 * UNIT]
    evaluated = []
    if found := by_models(row, models):
        result |= {"by": f"models, evaluator ({models.cases[found[0][0]][0].name})", "why": found[0][2][:160]}
        evaluated = [i for i, *_ in found]
    elif of_bundles(row) and (found := by_bundles(row, models, shows)):
        result |= {"by": f"models, bundle ({models.cases[found[0][0]][0].name})", "why": found[0][2][:160]}
    elif unit := by_units(row, models):
        result |= {"by": unit[0], "why": unit[1]}
    elif of_bundles(row) and (found := by_bundles(row, models, others)):
        result |= {"by": f"models, bundle ({models.cases[found[0][0]][0].name})", "why": found[0][2][:160]}
        shows = shows or [i for i, *_ in found][:NAMED_FROM]
    if result["by"] and (evaluated or shows):
        result["blamed"], result["named"] = name(row, models, evaluated, shows)
    return result | {"seconds": round(time.monotonic() - begun)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--only", type=lambda s: s.split(","))
    parser.add_argument("--table", type=pathlib.Path)
    args = parser.parse_args()
    out = args.out.resolve()
    rows, results = mutations(args.only), []
    models = prepare(out)
    for row in rows:
        apply(row, models.tree)
        try:
            results.append(check(row, models))
        except DoesNotBuild as error:
            results.append({"name": row["name"], "by": "", "why": f"does not build: {error}", "blamed": "", "named": False, "seconds": 0})
        finally:
            restore(row, models.tree)
        r = results[-1]
        blame = r["blamed"] + ("" if r["named"] else " (wrong)") if r["blamed"] else "-"
        print(f"{r['name']:28} {r['by'] or 'NOT FOUND'}; {blame}; {r['seconds']} s: {r['why']}"[:240], flush=True)
        if args.table:
            args.table.write_text(json.dumps(results, indent=1) + "\n")
    left = [r["name"] for r in results if not r["by"]]
    print(f"{len(results) - len(left)} of {len(results)} found, {sum(r['named'] for r in results)} named; not found: {' '.join(left) or 'none'}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
