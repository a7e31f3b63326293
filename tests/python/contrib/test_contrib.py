"""ONNX Runtime's operators (com.microsoft), each at random shapes, attributes and optional inputs: on the evaluator, and as the standard
model that `optc opt` writes."""

import os
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import Batch  # noqa: E402
import attention_nodes  # noqa: E402, F401
import decoder_nodes  # noqa: E402, F401
import encoder_nodes  # noqa: E402, F401
import expert_nodes  # noqa: E402, F401
import misc_nodes  # noqa: E402, F401
import quantized_nodes  # noqa: E402, F401
from nodes import GENERATORS  # noqa: E402

SEED = int(os.environ.get("OPTC_SEED", "7"))
COUNT = int(os.environ.get("OPTC_COUNT", "12"))


@pytest.fixture(scope="module")
def batch(tmp_path_factory):
    nodes = []
    only = os.environ.get("OPTC_ONLY")
    for k, name in enumerate(sorted(GENERATORS)):
        if only and name not in only.split(","):
            continue
        rng = np.random.default_rng([SEED, k])
        nodes += [GENERATORS[name](rng) for _ in range(COUNT)]
    return Batch(tmp_path_factory.mktemp("contrib"), nodes, SEED)


def test_onnx_runtime_runs_the_nodes(batch):
    assert not batch.refused, f"{len(batch.refused)} of {len(batch.nodes)}\n" + "\n".join(batch.refused[:20])


def test_evaluator(batch, evaluator):
    wrong = batch.evaluated(evaluator)
    assert not wrong, f"{len(wrong)} of {len(batch.nodes)}\n" + "\n".join(wrong[:40])


@pytest.mark.parametrize("options", [(), ("--optimize",)], ids=["as_is", "optimized"])
def test_written_models_are_standard(batch, evaluator, options):
    wrong = batch.written(evaluator.parent.parent / "tests/import_export", *options)
    assert not wrong, f"{len(wrong)} of {len(batch.nodes)}\n" + "\n".join(wrong[:40])
