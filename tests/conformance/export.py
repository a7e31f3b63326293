"""Writes the tests that the onnx package carries into a folder, each model in several ways:

  static    as it is
  dynamic   every dim of every input a symbol of its own, except the length of 1-D integer inputs (it fixes a rank)
  constant  every input but the first an initializer
  folded    every input an initializer

NAME/WAY.onnx, NAME/WAY/set_K/input_I.pb and NAME/set_K/output_I.pb; index.json lists them.
"""

import contextlib
import io
import json
import os
import pathlib
import shutil
import warnings

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

VERSION = 3  # of the folder's layout; an older one is made anew
INTEGERS = {TensorProto.INT64, TensorProto.INT32}


def serialize(value, value_type, name):
    if hasattr(value, "SerializeToString"):
        return value.SerializeToString()
    kind = value_type.WhichOneof("value")
    make = {
        "map_type": numpy_helper.from_dict,
        "sequence_type": numpy_helper.from_list,
        "optional_type": numpy_helper.from_optional,
    }.get(kind, numpy_helper.from_array)
    if make is numpy_helper.from_array:
        value = np.asarray(value)
    return make(value, name).SerializeToString()


def declared_inputs(model):
    """The inputs that a data set gives, with their positions in the graph."""
    return list(model.graph.input)


def dynamic(model):
    result = onnx.ModelProto()
    result.CopyFrom(model)
    changed = False
    given = {t.name for t in model.graph.initializer}
    for i, info in enumerate(result.graph.input):
        if info.type.WhichOneof("value") != "tensor_type" or info.name in given:
            continue
        tensor = info.type.tensor_type
        if not tensor.HasField("shape") or (tensor.elem_type in INTEGERS and len(tensor.shape.dim) == 1):
            continue
        for k, dim in enumerate(tensor.shape.dim):
            dim.Clear()
            dim.dim_param = f"d{i}_{k}"
            changed = True
    del result.graph.value_info[:]
    for info in result.graph.output:
        if info.type.WhichOneof("value") == "tensor_type" and info.type.tensor_type.HasField("shape"):
            for dim in info.type.tensor_type.shape.dim:
                dim.Clear()
    return result if changed else None


def constant(model, inputs, first):
    """Inputs from number `first` on become initializers. `inputs`: serialized values of one data set."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    kept = []
    changed = False
    for i, info in enumerate(model.graph.input):
        tensor = info.type.WhichOneof("value") == "tensor_type"
        if i < first or not tensor or i >= len(inputs):
            kept.append(i)
            continue
        value = TensorProto.FromString(inputs[i])
        value.name = info.name
        for old in [t for t in result.graph.initializer if t.name == info.name]:
            result.graph.initializer.remove(old)
        result.graph.initializer.append(value)
        changed = True
    del result.graph.input[:]
    result.graph.input.extend(model.graph.input[i] for i in kept)
    result.ir_version = max(result.ir_version, 4)
    return (result, kept) if changed else (None, kept)


def data_sets(case):
    """(inputs, outputs) of each set, serialized."""
    if case.model_dir is None:
        for inputs, outputs in case.data_sets:
            yield (
                [serialize(v, i.type, i.name) for v, i in zip(inputs, case.model.graph.input)],
                [serialize(v, o.type, o.name) for v, o in zip(outputs, case.model.graph.output)],
            )
        return
    for folder in sorted(pathlib.Path(case.model_dir).glob("test_data_set_*")):
        def read(kind):
            paths = sorted(folder.glob(f"{kind}_*.pb"), key=lambda p: int(p.stem.split("_")[1]))
            return [p.read_bytes() for p in paths]
        yield read("input"), read("output")


def write_case(case, folder):
    model = case.model or onnx.load(str(pathlib.Path(case.model_dir) / "model.onnx"))
    sets = list(data_sets(case))
    ways = {}

    def write(way, variant, number, kept=None):
        (folder / f"{way}.onnx").write_bytes(variant.SerializeToString())
        for k, (inputs, _) in enumerate(sets[:number]):
            where = folder / way / f"set_{k}"
            where.mkdir(parents=True)
            positions = range(len(inputs)) if kept is None else [i for i in kept if i < len(inputs)]
            for to, i in enumerate(positions):
                (where / f"input_{to}.pb").write_bytes(inputs[i])
        ways[way] = number

    write("static", model, len(sets))
    if variant := dynamic(model):
        write("dynamic", variant, len(sets))
    for way, first in (("constant", 1), ("folded", 0)):
        variant, kept = constant(model, sets[0][0], first)
        if variant is not None:
            write(way, variant, 1, kept)
    for k, (_, outputs) in enumerate(sets):
        where = folder / f"set_{k}"
        where.mkdir()
        for i, output in enumerate(outputs):
            (where / f"output_{i}.pb").write_bytes(output)
    ops = sorted({(f"{n.domain}." if n.domain not in ("", "ai.onnx") else "") + n.op_type for n in model.graph.node})
    kinds = [o.type.WhichOneof("value") for o in model.graph.output]
    return {"kind": case.kind, "ops": ops, "rtol": case.rtol, "atol": case.atol, "ways": ways, "outputs": kinds}


def cache_folder():
    """Where the tests of this version of the onnx package lie."""
    base = os.environ.get("OPTC_CACHE") or os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "optc")
    return pathlib.Path(base) / f"conformance-{onnx.__version__}"


def export(folder):
    """Makes `folder` if it is not there, and returns its index."""
    index_path = folder / "index.json"
    if index_path.exists():
        index = json.loads(index_path.read_text())
        if index["version"] == VERSION and index["onnx"] == onnx.__version__:
            return index
    from onnx.backend.test.loader import load_model_tests

    staging = folder.with_name(folder.name + ".tmp")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    cases = []
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for kind in ("node", "simple", "pytorch-operator", "pytorch-converted"):
            cases += load_model_tests(kind=kind)
    index = {"version": VERSION, "onnx": onnx.__version__, "tests": {}}
    for case in cases:
        where = staging / case.name
        where.mkdir()
        index["tests"][case.name] = write_case(case, where)
    (staging / "index.json").write_text(json.dumps(index))
    shutil.rmtree(folder, ignore_errors=True)
    staging.rename(folder)
    return index
