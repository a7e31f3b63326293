"""Models of a few nodes with right answers, run by optc as the conformance tests are: on the evaluator, and as bundles, many to a
library."""

import pathlib
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "conformance"))
import run as conformance  # noqa: E402

UNIT = 48  # models in a library of bundles


class Case:
    """A model, its inputs by name (arrays, lists, dicts of str or int to float) and its outputs in order (None: any value will do)."""

    def __init__(self, name, model, inputs, outputs, rtol=1e-4, atol=1e-6):
        self.name, self.model, self.inputs, self.outputs, self.rtol, self.atol = name, model, inputs, outputs, rtol, atol


def element_type(array):
    return TensorProto.STRING if array.dtype.kind in "UO" else helper.np_dtype_to_tensor_dtype(array.dtype)


def type_of(value, dims=None):
    """The ONNX type of a value; `dims` overrides a tensor's own (None: no dims are declared)."""
    if isinstance(value, dict):
        key = TensorProto.STRING if isinstance(next(iter(value)), str) else TensorProto.INT64
        return helper.make_map_type_proto(key, type_of(np.asarray(next(iter(value.values())))))
    if isinstance(value, list):
        return helper.make_sequence_type_proto(type_of(value[0]))
    return helper.make_tensor_type_proto(element_type(value), value.shape if dims is None else dims)


def proto_of(value):
    if isinstance(value, dict):
        proto = onnx.MapProto(key_type=TensorProto.STRING if isinstance(next(iter(value), 0), str) else TensorProto.INT64)
        proto.values.elem_type = onnx.SequenceProto.TENSOR
        for key, item in value.items():
            if isinstance(key, str):
                proto.string_keys.append(key.encode())
            else:
                proto.keys.append(int(key))
            item = np.asarray(item)
            proto.values.tensor_values.append(numpy_helper.from_array(item.astype(np.float32) if item.dtype == np.float64 else item))
        return proto
    if isinstance(value, list) and (not value or isinstance(value[0], dict)):
        return onnx.SequenceProto(elem_type=onnx.SequenceProto.MAP, map_values=[proto_of(v) for v in value])
    if isinstance(value, list):
        return onnx.SequenceProto(elem_type=onnx.SequenceProto.TENSOR, tensor_values=[proto_of(v) for v in value])
    value = np.asarray(value)
    return numpy_helper.from_array(value.astype(object) if value.dtype.kind == "U" else value)


def node_model(node, inputs, opsets, symbolic=False, ir_version=10):
    """A model of one node; its outputs are those of the node, their types left open. `symbolic`: every dim a symbol."""
    def declare(name, value):
        dims = [f"{name}_{k}" for k in range(value.ndim)] if symbolic and isinstance(value, np.ndarray) else None
        return helper.make_value_info(name, type_of(value, dims))
    graph = helper.make_graph([node], "graph", [declare(k, v) for k, v in inputs.items()],
                              [onnx.ValueInfoProto(name=o) for o in node.output if o])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(d, v) for d, v in opsets.items()], ir_version=ir_version)


def ort_answers(model, inputs):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def failures(binary, cases, timeout=120):
    """What is wrong, by name of the case; `binary` is optc_conformance or optc_conformance_bundles."""
    with tempfile.TemporaryDirectory(prefix="optc_operators_") as work:
        work = pathlib.Path(work)
        tests, jobs = {}, []
        for n, case in enumerate(cases):
            name = f"{n}_{case.name}"
            inputs = work / name / "static" / "set_0"
            inputs.mkdir(parents=True)
            (work / name / "static.onnx").write_bytes(case.model.SerializeToString())
            for i, info in enumerate(case.model.graph.input):
                (inputs / f"input_{i}.pb").write_bytes(proto_of(case.inputs[info.name]).SerializeToString())
            (work / name / "set_0").mkdir()
            kinds = []
            for i, output in enumerate(case.outputs):
                if output is None:
                    kinds.append("tensor_type")
                    continue
                proto = proto_of(output)
                kinds.append({"SequenceProto": "sequence_type", "MapProto": "map_type"}.get(type(proto).__name__, "tensor_type"))
                (work / name / "set_0" / f"output_{i}.pb").write_bytes(proto.SerializeToString())
            tests[name] = {"outputs": kinds, "rtol": case.rtol, "atol": case.atol}
            jobs.append(("static", name, 0))
        results = []
        for first in range(0, len(jobs), UNIT):
            results += conformance.run_share(binary, ["--timeout", str(timeout)], jobs[first:first + UNIT], tests, work, work / "out")
    return {name: failure for _, name, failure in results if failure}
