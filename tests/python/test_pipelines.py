"""Pipelines of scikit-learn, LightGBM and XGBoost as their converters write them (testdata/pipelines): predictions equal theirs."""

import json
import pathlib
import sys

import numpy as np
import onnx
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent / "operators"))
import cases  # noqa: E402

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "testdata/pipelines"
NAMES = sorted(path.stem for path in FOLDER.glob("*.onnx"))


def pipeline(name):
    model = onnx.load(FOLDER / f"{name}.onnx")
    record = json.loads((FOLDER / f"{name}.json").read_text())
    inputs = {}
    for key, given in record["inputs"].items():
        values = given["values"]
        inputs[key] = np.array(values, object) if given["strings"] else \
            np.array([[np.nan if v is None else v for v in row] for row in values], np.float32)
    expected = record["expected"]
    kinds = [o.type.WhichOneof("value") for o in model.graph.output]
    first = model.graph.output[0].type.tensor_type
    if first.elem_type == onnx.TensorProto.STRING:
        label = np.array(expected["label"], object)
    elif first.elem_type == onnx.TensorProto.INT64:
        label = np.array(expected["label"], np.int64)
    else:
        label = np.array(expected["label"], np.float32).reshape(-1, 1)
    outputs = [label.reshape(-1, 1) if len(first.shape.dim) == 2 else label]
    if len(kinds) > 1:
        scores = expected.get("probabilities")
        if scores is None:
            outputs.append(None)
        elif kinds[1] == "sequence_type":
            outputs.append([{c: np.float32(v) for c, v in sorted(zip(expected["classes"], row))} for row in scores])
        else:
            outputs.append(np.array(scores, np.float32))
    return cases.Case(name, model, inputs, outputs, rtol=1e-4, atol=1e-5)


def test_there_are_pipelines():
    assert len(NAMES) >= 12


def test_pipelines_on_the_evaluator(evaluator):
    assert cases.failures(evaluator, [pipeline(name) for name in NAMES]) == {}


def test_pipelines_as_bundles(optc):
    assert cases.failures(optc.parent / "optc_conformance_bundles", [pipeline(name) for name in NAMES]) == {}
