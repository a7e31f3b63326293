#!/usr/bin/env python3
"""Runs the cases that write.py wrote through optc: run.py FOLDER [--ways eval,opt,bundle-avx2] [--compiler CXX] [--optimize N] [--chunk N] [--out DIR].

The ways are those of ../run.py. What failed is copied to OUT/WORD_WAY_SEED, with why.txt. Exit code 1 when something is wrong.
"""

import argparse
import collections
import os
import pathlib
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from run import default_binaries
from runner import EVALUATED, Runner, load_case


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--ways", default="eval,opt")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("networks_found"))
    parser.add_argument("--binaries", type=pathlib.Path, default=default_binaries())
    parser.add_argument("--chunk", type=int, default=16, help="models of one translation unit")
    parser.add_argument("--compiler", default="g++", help="of bundles")
    parser.add_argument("--optimize", type=int, default=1, help="the compiler's level, of bundles; users build with 2")
    arguments = parser.parse_args()
    folders = sorted((m.parent for m in arguments.folder.glob("*/model.onnx")), key=lambda p: p.name)
    cases = [(f, k) for f in folders for k in range(len(list(f.glob("test_data_set_*"))))]
    counts, wrong = collections.Counter(), set()
    with tempfile.TemporaryDirectory(prefix="optc_networks_", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as work:
        runner = Runner(arguments.binaries, work, arguments.compiler, arguments.optimize)
        for way in arguments.ways.split(","):
            size = 1 if way in EVALUATED else arguments.chunk
            for group in [cases[i : i + size] for i in range(0, len(cases), size)]:
                loaded = [load_case(f, k) for f, k in group]
                for (i, _), answer in runner.run(loaded, [way]).items():
                    (folder, k), failure = group[i], answer.failure
                    counts[f"{way} {failure.word if failure else 'unsupported' if answer.unsupported else 'excused' if answer.excused else 'ok'}"] += 1
                    if answer.unsupported:
                        print(f"{folder.name} {k} {way} unsupported: {answer.unsupported[:200]}", flush=True)
                    if failure:
                        wrong.add((folder.name, k))
                        print(f"WRONG {folder.name} {k} {way} {failure.word}: {failure.text[:300]}", flush=True)
                        kept = arguments.out / f"{failure.word}_{way}_{folder.name}"
                        shutil.rmtree(kept, ignore_errors=True)
                        shutil.copytree(folder, kept)
                        (kept / "why.txt").write_text(f"{way} of data set {k}: {failure.word}\n{failure.text}\n")
        runner.close()
    print(f"{len(folders)} networks at {len(cases)} sizes; " + ", ".join(f"{k} {v}" for k, v in sorted(counts.items())))
    print(f"{len(cases) - len(wrong)} passed, {len(wrong)} failed")
    return 1 if wrong or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
