#!/usr/bin/env python3
"""Models in low precision beside ONNX Runtime in the same run, one line a model and form.

  low_precision.py MODEL.onnx... [--forms dynamic,f16,qdq,qoperator] [--optc build/bin/optc] [--threads 1] [--dim NAME=N]... [--keep FOLDER]

dynamic: the model put through onnxruntime.quantization.quantize_dynamic (int8 weights, activations quantized when it runs; of models with
convolutions uint8 weights, which is what ONNX Runtime multiplies); f16: through onnxruntime.transformers.float16, inputs and outputs as they
were; qdq, qoperator: through quantize_static, in either format, with one scale a filter, calibrated on random inputs (of floats). Needs the
packages onnx and onnxruntime.
"""

import argparse
import math
import pathlib
import sys
import tempfile

from beside_ort import bench


def dynamic(source, target, dims):
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    convolves = any(n.op_type == "Conv" for n in onnx.load(source, load_external_data=False).graph.node)
    quantize_dynamic(str(source), str(target), weight_type=QuantType.QUInt8 if convolves else QuantType.QInt8)


def static(source, target, dims, name):
    import numpy as np
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    model = onnx.load(source)
    whole = target.with_suffix(".f32.onnx")  # the quantizer's own inference reads one file
    onnx.save(model, whole)
    sizes = dict(d.split("=") for d in dims)
    stored = {t.name for t in model.graph.initializer}
    shapes = {i.name: [d.dim_value or int(sizes.get(d.dim_param, 1)) for d in i.type.tensor_type.shape.dim] for i in model.graph.input if i.name not in stored}

    class Random(CalibrationDataReader):
        def __init__(self):
            random = np.random.default_rng(0)
            self.rows = iter([{n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()} for _ in range(2)])

        def get_next(self):
            return next(self.rows, None)

    quantize_static(str(whole), str(target), Random(), quant_format=getattr(QuantFormat, name), per_channel=True, activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
    whole.unlink()


def qdq(source, target, dims):
    static(source, target, dims, "QDQ")


def qoperator(source, target, dims):
    static(source, target, dims, "QOperator")


def f16(source, target, dims):
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), target)


def dimensions(path):
    import onnx

    return {d.dim_param for i in onnx.load(path, load_external_data=False).graph.input for d in i.type.tensor_type.shape.dim}


FORMS = {"dynamic": dynamic, "f16": f16, "qdq": qdq, "qoperator": qoperator}


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
    print("| model | ours, ms (min) | ONNX Runtime, ms (min) | ONNX Runtime / ours |\n|---|---|---|---|", flush=True)
    ratios, good = [], True
    for model in options.models:
        for form in forms:
            target = folder / f"{model.stem}.{form}.onnx"
            FORMS[form](model, target, options.dim)
            dims = [f"--dim={d}" for d in options.dim if d.split("=")[0] in dimensions(target)]
            facts, rival, problem = bench(options.optc, target, "--threads", options.threads, *dims)
            if problem:
                print(f"| {model.stem}, {form} | {problem} | | |", flush=True)
                good = False
                continue
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
