"""ai.onnx.preview.training: steps of optimizers at random shapes and attributes, against ONNX's reference implementation in float64."""

import pathlib
import sys

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

sys.path.insert(0, str(pathlib.Path(__file__).parent / "operators"))
import cases  # noqa: E402

DOMAIN = "ai.onnx.preview.training"
FAMILIES = {  # states a parameter, and attributes
    "Adagrad": (1, lambda rng: dict(decay_factor=float(rng.uniform(0, 0.2)), epsilon=1e-6, norm_coefficient=float(rng.uniform(0, 0.1)))),
    "Adam": (2, lambda rng: dict(alpha=float(rng.uniform(0.5, 0.95)), beta=float(rng.uniform(0.5, 0.999)), epsilon=1e-7,
                                 norm_coefficient=float(rng.uniform(0, 0.1)), norm_coefficient_post=float(rng.uniform(0, 0.1)))),
    "Momentum": (1, lambda rng: dict(alpha=float(rng.uniform(0.5, 0.95)), beta=float(rng.uniform(0.5, 1)), mode=["standard", "nesterov"][rng.integers(2)],
                                     norm_coefficient=float(rng.uniform(0, 0.1)))),
}


def random_cases(op, count, seed):
    rng = np.random.default_rng([seed, *op.encode()])
    states, attributes = FAMILIES[op]
    made = []
    for n in range(count):
        kind = [np.float32, np.float64][rng.integers(2)]
        shapes = [tuple(int(d) for d in rng.integers(0, 6, size=rng.integers(0, 4))) for _ in range(rng.integers(1, 4))]
        inputs = {"R": np.array(rng.uniform(0.01, 0.1), [np.float32, np.float64][rng.integers(2)]), "T": np.array(rng.integers(0, 5), np.int64)}
        groups = ["X", "G", *("VH"[-states:])]
        for group in groups:
            for i, shape in enumerate(shapes):
                value = rng.normal(size=shape).astype(kind)
                inputs[f"{group}{i}"] = np.abs(value) if group == "H" else value
        outputs = [f"{group}{i}_new" for group in (groups[0], *groups[2:]) for i in range(len(shapes))]
        node = helper.make_node(op, list(inputs), outputs, domain=DOMAIN, **attributes(rng))
        model = cases.node_model(node, inputs, {"": 17, DOMAIN: 1}, symbolic=bool(rng.integers(2)))
        exact = {k: v if k == "T" else v.astype(np.float64) for k, v in inputs.items()}
        answers = [np.asarray(a).astype(kind) for a in ReferenceEvaluator(model).run(None, exact)]
        made.append(cases.Case(f"{op}_{n}", model, inputs, answers, rtol=1e-5, atol=1e-6))
    return made


@pytest.mark.parametrize("op", FAMILIES)
def test_optimizer_on_the_evaluator(evaluator, op):
    assert cases.failures(evaluator, random_cases(op, 40, 1)) == {}


def test_optimizers_as_bundles(optc):
    made = [case for op in FAMILIES for case in random_cases(op, 6, 2)]
    assert cases.failures(optc.parent / "optc_conformance_bundles", made) == {}
