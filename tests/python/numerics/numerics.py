#!/usr/bin/env python3
"""Whole models against ONNX Runtime without its optimizations: max |difference| / max |expected| of every output.

  numerics.py MODEL... [--binary BUILD/bin/optc_conformance] [--size K]

MODEL is a name in ../shared/models (a prefix will do); its weights are made once, by ../shared/tools/materialize.py, in the cache
folder ($OPTC_CACHE, else ~/.cache/optc).
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[3]
SHARED = ROOT.parent / "shared"
NUMPY = {TensorProto.FLOAT: np.float32, TensorProto.INT64: np.int64, TensorProto.BOOL: np.bool_, TensorProto.INT32: np.int32,
         TensorProto.FLOAT16: np.float16, TensorProto.DOUBLE: np.float64}

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


def inputs_of(path, size):
    """Seeded inputs of a model by name, dims pinned; None when a size does not apply (it has no symbolic dim)."""
    model = onnx.load(str(path), load_external_data=False)
    rng = np.random.default_rng(size)
    initializers = {t.name for t in model.graph.initializer}
    result, symbolic = {}, False
    for info in model.graph.input:
        if info.name in initializers:
            continue
        tensor = info.type.tensor_type
        symbolic = symbolic or any(d.dim_param for d in tensor.shape.dim)
        shape = [d.dim_value or SIZES[size].get(d.dim_param, 1) for d in tensor.shape.dim]
        dtype = NUMPY[tensor.elem_type]
        if "mask" in info.name:
            result[info.name] = np.ones(shape, dtype)
        elif "position" in info.name:
            result[info.name] = np.full(shape, 127, dtype)
        elif np.issubdtype(dtype, np.integer):
            result[info.name] = rng.integers(0, 50, shape).astype(dtype)
        else:
            result[info.name] = rng.standard_normal(shape).astype(dtype)
    return result if symbolic or size == 0 else None


def reference(path, inputs):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, inputs)


def evaluated(binary, path, inputs):
    """Outputs of the evaluator and the seconds it took (import included)."""
    model = onnx.load(str(path), load_external_data=False)
    with tempfile.TemporaryDirectory(prefix="optc_numerics_") as work:
        source, target = pathlib.Path(work) / "in", pathlib.Path(work) / "out"
        source.mkdir(), target.mkdir()
        for i, info in enumerate(model.graph.input):
            if info.name in inputs:
                (source / f"input_{i}.pb").write_bytes(numpy_helper.from_array(inputs[info.name], info.name).SerializeToString())
        start = time.monotonic()
        done = subprocess.run([str(binary), str(path), str(source), str(target)], capture_output=True, text=True, errors="replace")
        seconds = time.monotonic() - start
        if done.returncode != 0:
            raise RuntimeError(f"exit code {done.returncode}: {done.stderr.strip()[-600:]}")
        outputs = []
        for i in range(len(model.graph.output)):
            outputs.append(numpy_helper.to_array(TensorProto.FromString((target / f"output_{i}.pb").read_bytes())))
    return outputs, seconds


def compare(expected, got):
    """The largest relative difference over all outputs; inf where types, shapes, integers or infinities differ."""
    worst = 0.0
    for want, have in zip(expected, got, strict=True):
        if want.dtype != have.dtype or want.shape != have.shape:
            return float("inf")
        if want.dtype.kind != "f":
            worst = max(worst, 0.0 if np.array_equal(want, have) else float("inf"))
            continue
        if not np.array_equal(np.isfinite(want), np.isfinite(have)):
            return float("inf")
        finite = np.isfinite(want)
        if not finite.any():
            continue
        scale = np.abs(want[finite].astype(np.float64)).max()
        delta = np.abs(want[finite].astype(np.float64) - have[finite].astype(np.float64)).max()
        worst = max(worst, float(delta / scale) if scale else float(delta))
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--binary", default=str(ROOT / "build/bin/optc_conformance"))
    parser.add_argument("--size", type=int, default=None)
    args = parser.parse_args()
    bad = 0
    for prefix in args.models:
        for model in sorted((SHARED / "models").glob(f"{prefix}*.onnx")):
            path = materialized(model.stem)
            for size in range(len(SIZES)) if args.size is None else [args.size]:
                inputs = inputs_of(path, size)
                if inputs is None:
                    continue
                try:
                    got, seconds = evaluated(args.binary, path, inputs)
                    worst = compare(reference(path, inputs), got)
                    text = f"{worst:.2e}  {seconds:6.2f} s"
                except Exception as error:
                    worst, text = float("inf"), str(error)
                bad += worst > 1e-4
                print(f"{'ok  ' if worst <= 1e-4 else 'FAIL'} {model.stem:40} size {size}  {text}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
