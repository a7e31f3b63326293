"""Runs a model with ONNX Runtime on inputs from files; used by `optc verify --against=ort` and `optc bench --against=ort`.

Usage: ort_run.py MODEL OUTPUT_FOLDER [--input=NAME=FILE ...] [--optimize] [--threads=N] [--iterations=N] [--seconds=S]
Writes output_I.npy (or .pb for what NumPy cannot say) and result.json: {"version", "outputs", "milliseconds"}."""

import argparse
import json
import pathlib
import time

import numpy as np
import onnxruntime as ort


def read(path):
    if path.endswith(".npy"):
        return np.load(path, allow_pickle=False)
    import onnx
    from onnx import numpy_helper

    data = pathlib.Path(path).read_bytes()
    try:
        return numpy_helper.to_array(onnx.TensorProto.FromString(data))
    except Exception:
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))


def write(folder, index, value):
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiubc":
        np.save(folder / f"output_{index}.npy", np.ascontiguousarray(value).reshape(value.shape))
        return f"output_{index}.npy"
    from onnx import numpy_helper

    if isinstance(value, np.ndarray):
        proto = numpy_helper.from_array(value)
    elif isinstance(value, list):
        proto = numpy_helper.from_list(value)
    else:
        proto = numpy_helper.from_optional(value)
    (folder / f"output_{index}.pb").write_bytes(proto.SerializeToString())
    return f"output_{index}.pb"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--input", action="append", default=[])
    parser.add_argument("--optimize", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10)
    args = parser.parse_args()

    options = ort.SessionOptions()
    options.intra_op_num_threads = args.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if args.optimize else level.ORT_DISABLE_ALL
    session = ort.InferenceSession(args.model, options, providers=["CPUExecutionProvider"])
    feeds = {}
    for item in args.input:
        name, _, path = item.rpartition("=")
        feeds[name] = read(path)
    outputs = session.run(None, feeds)
    files = [write(args.folder, i, value) for i, value in enumerate(outputs)]
    milliseconds = []
    if args.iterations:
        begin = time.perf_counter()
        for _ in range(3):
            session.run(None, feeds)
        while len(milliseconds) < args.iterations:
            start = time.perf_counter()
            session.run(None, feeds)
            stop = time.perf_counter()
            milliseconds.append((stop - start) * 1e3)
            if len(milliseconds) >= 3 and stop - begin > args.seconds:
                break
    result = {"version": ort.__version__, "outputs": files, "milliseconds": milliseconds}
    (args.folder / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
