#!/usr/bin/env python3
"""Models in low precision beside ONNX Runtime in the same run, one line a model and form.

  low_precision.py MODEL.onnx... [--forms dynamic,f16] [--optc build/bin/optc] [--threads 1] [--dim NAME=N]... [--keep FOLDER]

dynamic: the model put through onnxruntime.quantization.quantize_dynamic (int8 weights, activations quantized when it runs); f16: through
onnxruntime.transformers.float16, inputs and outputs as they were. Needs the packages onnx and onnxruntime.
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile


def dynamic(source, target):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(str(source), str(target), weight_type=QuantType.QInt8)


def f16(source, target):
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), target)


FORMS = {"dynamic": dynamic, "f16": f16}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--forms", default="dynamic,f16")
    parser.add_argument("--optc", default=pathlib.Path(__file__).resolve().parents[1] / "build/bin/optc", type=pathlib.Path)
    parser.add_argument("--threads", default="1")
    parser.add_argument("--dim", action="append", default=[], help="of the inputs, where the model has the dimension")
    parser.add_argument("--keep", type=pathlib.Path, help="leave the models in this folder")
    options = parser.parse_args()
    forms = options.forms.split(",")
    if unknown := set(forms) - set(FORMS):
        parser.error(f"no such form: {', '.join(sorted(unknown))}")
    folder = options.keep or pathlib.Path(tempfile.mkdtemp(prefix="optc_low_precision_"))
    folder.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ, OPTC_PYTHON=os.environ.get("OPTC_PYTHON", sys.executable))
    print("| model | ours, ms (min) | ONNX Runtime, ms (min) | ONNX Runtime / ours |\n|---|---|---|---|", flush=True)
    ratios, good = [], True
    for model in options.models:
        for form in forms:
            target = folder / f"{model.stem}.{form}.onnx"
            FORMS[form](model, target)
            text = target.read_bytes()
            dims = [f"--dim={d}" for d in options.dim if d.split("=")[0].encode() in text]
            command = [options.optc, "bench", target, "--against", "ort", "--threads", options.threads, "--format", "json", *dims]
            result = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=environment)
            if result.returncode:
                print(f"| {model.stem}, {form} | {result.stderr.strip().splitlines()[-1]} | | |", flush=True)
                good = False
                continue
            facts = json.loads(result.stdout)
            rival = facts["against"]["onnxruntime"]
            ratio = rival["min_ms"] / facts["min_ms"]
            ratios.append(ratio)
            print(
                f"| {model.stem}, {form} | {facts['median_ms']:.3g} ({facts['min_ms']:.3g}) | "
                f"{rival['median_ms']:.3g} ({rival['min_ms']:.3g}) | {ratio:.2f} |",
                flush=True,
            )
    if ratios:
        print(f"\ngeometric mean of the ratios of minima: {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
