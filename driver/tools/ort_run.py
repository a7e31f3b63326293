"""Runs a model with ONNX Runtime on inputs from files; used by `optc verify --against=ort` and `optc bench --against=ort`.

Usage: ort_run.py MODEL OUTPUT_FOLDER [--input=NAME=FILE ...] [--optimize] [--perturb=SEED] [--values=FILE] [--threads=N] [--iterations=N] [--seconds=S]
Writes output_I.npy (or .pb for what NumPy cannot say) and result.json: {"version", "outputs", "milliseconds"} (with --values, a JSON list of
names of values inside of the model, also "values": name to file), or {"version", "stage":
"load" or "run", "error"} where ONNX Runtime refuses the model or the inputs."""

import argparse
import json
import pathlib
import time

import numpy as np
import onnxruntime as ort

LAST_BITS = 4  # what sums of a few hundred terms in another order amount to


def input_types(path):
    """The types of a model's inputs, by name."""
    import onnx

    return {i.name: i.type for i in onnx.load(path, load_external_data=False).graph.input}


def read(path, kinds, name):
    if path.endswith(".npy"):
        return np.load(path, allow_pickle=False)
    import onnx
    from onnx import numpy_helper

    data = pathlib.Path(path).read_bytes()
    kind = kinds[name].WhichOneof("value")
    if kind == "map_type":
        value = numpy_helper.to_dict(onnx.MapProto.FromString(data))
        return {k.decode() if isinstance(k, bytes) else k: v.item() for k, v in value.items()}
    if kind == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def map_proto(value):
    """A dict of numbers, as ZipMap gives it."""
    import onnx
    from onnx import numpy_helper

    proto = onnx.MapProto()
    proto.values.elem_type = onnx.SequenceProto.TENSOR
    proto.key_type = onnx.TensorProto.STRING if any(isinstance(k, str) for k in value) else onnx.TensorProto.INT64
    for key, number in value.items():
        if isinstance(key, str):
            proto.string_keys.append(key.encode())
        else:
            proto.keys.append(key)
        proto.values.tensor_values.append(numpy_helper.from_array(np.asarray(number, np.float32)))
    return proto


def write(folder, index, value):
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiubc":
        np.save(folder / f"output_{index}.npy", np.ascontiguousarray(value).reshape(value.shape))
        return f"output_{index}.npy"
    from onnx import numpy_helper

    if isinstance(value, np.ndarray):
        proto = numpy_helper.from_array(value)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        import onnx

        proto = onnx.SequenceProto(elem_type=onnx.SequenceProto.MAP, map_values=[map_proto(v) for v in value])
    elif isinstance(value, list):
        proto = numpy_helper.from_list(value)
    else:
        proto = numpy_helper.from_optional(value)
    (folder / f"output_{index}.pb").write_bytes(proto.SerializeToString())
    return f"output_{index}.pb"


def nudged(values, random):
    """Each float32 changed by at most LAST_BITS units in its last place; in float32 and in place, for weights of gigabytes."""
    changed = random.integers(-1, 2, values.shape, np.int8).astype(np.float32)
    changed *= np.float32(LAST_BITS * 2.0**-23)
    changed += 1  # exact, so that the product is rounded once
    with np.errstate(over="ignore"):
        changed *= values
    return np.where(np.isfinite(changed), changed, values)


def show_values(model, names):
    """Makes values inside of the main graph outputs; gives the names of its own outputs and those of the values that it has."""
    import onnx

    made = {name for node in model.graph.node for name in node.output}
    own = [output.name for output in model.graph.output]
    shown = [name for name in names if name in made]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in shown if name not in own)
    return own, shown


def perturb(model, random):
    """Changes the float weights of a model in their last bits. What sizes follow from stays: the scales of a Resize, and
    whole numbers, which a model states (a factor of 2 that is a little less gives another size)."""
    import onnx
    from onnx import numpy_helper

    scales = set()

    def note_scales(graph):
        for node in graph.node:
            if node.op_type in ("Resize", "Upsample"):
                scales.update(node.input[1:])
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    note_scales(attribute.g)

    def visit(graph):
        for tensor in graph.initializer:
            if tensor.name not in scales:
                change(tensor)
        for node in graph.node:
            if scales.intersection(node.output):
                continue
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    visit(attribute.g)
                elif attribute.type == onnx.AttributeProto.TENSOR and node.op_type == "Constant":
                    change(attribute.t)

    def change(tensor):
        if tensor.data_type == onnx.TensorProto.FLOAT:
            values = numpy_helper.to_array(tensor)
            changed = np.where(values == np.round(values), values, nudged(values, random))
            tensor.CopyFrom(numpy_helper.from_array(changed, tensor.name))

    note_scales(model.graph)
    visit(model.graph)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--input", action="append", default=[])
    parser.add_argument("--optimize", action="store_true")
    parser.add_argument("--perturb", type=int, help="change float weights and inputs in their last bits, drawn from this seed")
    parser.add_argument("--values", type=pathlib.Path)
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
    feeds = {}
    kinds = input_types(args.model) if any(item.endswith(".pb") for item in args.input) else {}
    for item in args.input:
        name, _, path = item.rpartition("=")
        feeds[name] = read(path, kinds, name)
    model, own, values = args.model, None, []
    if args.perturb is not None or args.values:
        import onnx

        changed = onnx.load(args.model, load_external_data=args.perturb is not None)
        if args.perturb is not None:
            random = np.random.default_rng(args.perturb)
            perturb(changed, random)
            feeds = {k: nudged(v, random) if getattr(v, "dtype", None) == np.float32 else v for k, v in feeds.items()}
        if args.values:
            own, values = show_values(changed, json.loads(args.values.read_text()))
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(pathlib.Path(args.model).absolute().parent))
        model = changed.SerializeToString()
    stage = "load"
    try:
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        stage = "run"
        outputs = session.run(own and own + values, feeds)
    except Exception as error:  # ONNX Runtime's own classes have no base of their own
        refused = {"version": ort.__version__, "stage": stage, "error": " ".join(str(error).split())}
        (args.folder / "result.json").write_text(json.dumps(refused))
        return
    files = [write(args.folder, i, value) for i, value in enumerate(outputs)]
    inside = dict(zip(values, files[len(own):])) if values else {}
    files = files[:len(files) - len(inside)]
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
    result = {"version": ort.__version__, "outputs": files, "values": inside, "milliseconds": milliseconds}
    (args.folder / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
