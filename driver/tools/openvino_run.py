"""Times a model with OpenVINO on the CPU, on inputs from files; used by `optc bench --against=openvino`.

Usage: openvino_run.py MODEL OUTPUT_FOLDER [--input=NAME=FILE ...] [--threads=N] [--iterations=N] [--seconds=S] [--precision=f32]
The model's shapes are fixed to those of the inputs, one stream, the hint for latency. Writes result.json as ort_run.py does, without outputs."""

import argparse
import json
import pathlib
import time

import numpy as np
import openvino


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--input", action="append", default=[])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--precision", default="f32", choices=["f32", "bf16", "f16"])
    args = parser.parse_args()

    stage, milliseconds = "load", []
    try:
        feeds = {}
        for item in args.input:
            name, _, path = item.rpartition("=")
            if not path.endswith(".npy"):
                raise ValueError(f"input '{name}' is of a type that NumPy lacks")
            feeds[name] = np.load(path, allow_pickle=False)
        core = openvino.Core()
        model = core.read_model(args.model)
        model.reshape({port: list(feeds[name].shape) for port in model.inputs for name in port.get_names() if name in feeds})
        compiled = core.compile_model(model, "CPU", {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": args.threads,
                                                     "INFERENCE_PRECISION_HINT": args.precision})
        request = compiled.create_infer_request()
        given = {k: feeds[name] for k, port in enumerate(compiled.inputs) for name in port.get_names() if name in feeds}
        stage = "run"
        request.infer(given, share_inputs=True)
        begin = time.perf_counter()
        for _ in range(3 if args.iterations else 0):
            request.infer(given, share_inputs=True)
        while len(milliseconds) < args.iterations:
            start = time.perf_counter()
            request.infer(given, share_inputs=True)
            stop = time.perf_counter()
            milliseconds.append((stop - start) * 1e3)
            if len(milliseconds) >= 3 and stop - begin > args.seconds:
                break
    except Exception as error:  # OpenVINO's own classes are of RuntimeError and of others
        refused = {"version": openvino.get_version(), "stage": stage, "error": " ".join(str(error).split())}
        (args.folder / "result.json").write_text(json.dumps(refused))
        return
    version = openvino.get_version().split("-")[0]
    (args.folder / "result.json").write_text(json.dumps({"version": version, "outputs": [], "milliseconds": milliseconds}))


if __name__ == "__main__":
    main()
