#!/usr/bin/env python3
"""What a token costs by the length of the cache, with caches of the caller (--alias) and with plain outputs.

    bench/state.py MODEL.onnx 'past_*=present_*' --lengths 128,512,1024 [--target=cpu,sm_90a --device cuda]

The model has open lengths. For each length: the bytes that the kernels write (the manifest's costs) and the least milliseconds of a run."""

import argparse
import importlib.util
import json
import pathlib
import re
import subprocess
import tempfile
import time

import numpy as np


def built(optc, model, folder, *options):
    """The Python module of the model's bundle, and its folder."""
    name = "step"
    bundle = folder / name
    subprocess.run([optc, model, "-o", bundle, "-q", "--name", name, *options], check=True)
    subprocess.run(["cmake", "-S", bundle, "-B", folder / "build", "-DBUILD_SHARED_LIBS=ON"], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", folder / "build", "--target", name, "-j2"], check=True, capture_output=True)
    spec = importlib.util.spec_from_file_location(name, bundle / "python" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    library = next(path for path in (folder / "build").rglob(f"lib{name}.so"))
    return module, library, bundle


def written(manifest, sizes):
    """Bytes that kernels write in a run of these sizes."""
    total = 0
    for kernel in manifest["kernels"]:
        text = str(kernel["cost"]["bytes_written"])
        names = {re.sub(r"\W", "_", name): size for name, size in sizes.items()}
        for name, size in sizes.items():
            text = text.replace(name, re.sub(r"\W", "_", name))
        total += eval(text.replace("/", "//"), {"__builtins__": {}, "min": min, "max": max}, names)  # noqa: S307: our own manifest
    return total


def least(run, seconds):
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return 1e3 * best


def plain_input(info, sizes, rng):
    dims = [sizes[d.symbol.decode()] if d.symbol else d.value for d in info.dims[:info.rank]]
    return np.zeros(dims, np.int64) if info.type == 7 else rng.standard_normal(dims, np.float32)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("alias", nargs="+")
    parser.add_argument("--lengths", default="128,512,1024")
    parser.add_argument("--optc", default=str(pathlib.Path(__file__).resolve().parents[1] / "build/bin/optc"))
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=3)
    arguments = parser.parse_args()
    lengths = [int(text) for text in arguments.lengths.split(",")]
    rng = np.random.default_rng(0)
    print("| length | MB written, alias | MB written, plain | ms, alias | ms, plain |\n|---|---|---|---|---|")
    rows = {}
    for kind, options in (("alias", [f"--alias={a}" for a in arguments.alias]), ("plain", [])):
        with tempfile.TemporaryDirectory() as folder:
            module, library, bundle = built(arguments.optc, arguments.model, pathlib.Path(folder), f"--target={arguments.target}", *options)
            model = module.Model(str(library), threads=1, device=arguments.device, weights_path=bundle / "step.weights")
            manifest = json.loads((bundle / "manifest.json").read_text())
            grows = {s["input"]: s for s in manifest.get("states", [])}
            symbols = {d.symbol.decode() for info in model.inputs for d in info.dims[:info.rank] if d.symbol}
            for length in lengths:
                sizes = {name: length for name in symbols} | {s["capacity"]: max(lengths) + 1 for s in grows.values() if "axis" in s}
                inputs = {}
                for info in model.inputs:
                    name = info.name.decode()
                    inputs[name] = plain_input(info, sizes, rng)
                    if name in grows:
                        inputs[name] = model.state(name, max(lengths) + 1)
                        inputs[name].array[:] = rng.standard_normal(inputs[name].array.shape, np.float32)

                def run():
                    for name in grows:
                        inputs[name].length = length
                    model(**inputs)

                run()
                rows.setdefault(length, {})[kind] = (written(manifest, sizes) / 1e6, least(run, arguments.seconds))
    for length, row in rows.items():
        (alias_bytes, alias_time), (plain_bytes, plain_time) = row["alias"], row["plain"]
        print(f"| {length} | {alias_bytes:.2f} | {plain_bytes:.2f} | {alias_time:.2f} | {plain_time:.2f} |")


if __name__ == "__main__":
    main()
