#!/usr/bin/env python3
"""Whole models against ONNX Runtime without its optimizations: max |difference| / max |expected| of every output.

  numerics.py MODEL... [--optc BUILD/bin/optc] [--size K]

MODEL is a name in ../shared/models (a prefix will do); its weights are made once, by ../shared/tools/materialize.py, in the cache
folder ($OPTC_CACHE, else ~/.cache/optc).
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

import onnx

ROOT = pathlib.Path(__file__).resolve().parents[3]
SHARED = ROOT.parent / "shared"

# Values of symbolic dims, two sizes; a dim that is not here is 1. (s72 and s77 are batches of exports whose own Reshapes hold them to 1:
# ONNX Runtime fails on 2, and optc says that the model allows 1 alone.)
SIZES = [
    {"S": 128, "s53": 128, "s70": 128, "s72": 1, "s43": 1, "N": 1, "s77": 1, "s31": 1},
    {"S": 37, "s53": 37, "s70": 37, "s72": 1, "s43": 2, "N": 2, "s77": 1, "s31": 2},
]


def cache_folder():
    base = os.environ.get("OPTC_CACHE") or os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "optc")
    return pathlib.Path(base) / "models"


def materialized(name):
    """The path of a model with its weights."""
    folder = cache_folder() / name
    path = folder / f"{name}.onnx"
    if not path.exists():
        staging = folder.with_name(name + ".tmp")
        subprocess.run([sys.executable, str(SHARED / "tools" / "materialize.py"), str(SHARED / "models" / f"{name}.onnx"), str(staging)],
                       check=True, stdout=subprocess.DEVNULL)
        staging.rename(folder)
    return path


def verified(optc, path, size):
    """What `optc verify` says of a model on the evaluator, of inputs that it makes itself, with dims pinned: (agrees, the largest
    |difference| / max |expected| of its outputs, seconds). None when a size does not apply (the model has no symbolic dim)."""
    model = onnx.load(str(path), load_external_data=False)
    initializers = {t.name for t in model.graph.initializer}
    symbols = sorted({d.dim_param for i in model.graph.input if i.name not in initializers for d in i.type.tensor_type.shape.dim} - {""})
    if size > 0 and not symbols:
        return None
    start = time.monotonic()
    done = subprocess.run([str(optc), "verify", str(path), "--engine=evaluate", "--format=json", "--sets=1", f"--seed={size}",
                           *(f"--dim={s}={SIZES[size].get(s, 1)}" for s in symbols)],
                          capture_output=True, text=True, errors="replace", env={**os.environ, "OPTC_PYTHON": sys.executable})
    seconds = time.monotonic() - start
    if not done.stdout.startswith("{"):
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr.strip()[-600:]}")
    facts = json.loads(done.stdout)
    worst = max((o["max_difference"] / o["range"] if o["range"] else o["max_difference"]) for o in facts["outputs"])
    return facts["ok"], worst, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--optc", default=str(ROOT / "build/bin/optc"))
    parser.add_argument("--size", type=int, default=None)
    args = parser.parse_args()
    bad = 0
    for prefix in args.models:
        for model in sorted((SHARED / "models").glob(f"{prefix}*.onnx")):
            path = materialized(model.stem)
            for size in range(len(SIZES)) if args.size is None else [args.size]:
                try:
                    result = verified(args.optc, path, size)
                    if result is None:
                        continue
                    good, text = result[0], f"{result[1]:.2e}  {result[2]:6.2f} s"
                except RuntimeError as error:
                    good, text = False, str(error)
                bad += not good
                print(f"{'ok  ' if good else 'FAIL'} {model.stem:40} size {size}  {text}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
