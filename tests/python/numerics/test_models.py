"""Whole models on the evaluator against ONNX Runtime without optimizations (numerics.py)."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import numerics  # noqa: E402

SMALL = ["mlp.dynamo", "mlp.script", "lstm_tagger.script", "mobilenet_v3_large.script", "whisper_tiny_encoder.script17"]
LARGE = ["bert_base.dynamo", "bert_base.script17", "convnext_tiny.dynamo", "efficientnet_b0.script", "gpt2_decode.dynamo",
         "gpt2_prefill.dynamo", "mobilenet_v3_large.dynamo", "resnet50.dynamo", "resnet50.script", "unet_diffusion.dynamo",
         "vit_b_16.dynamo", "whisper_tiny_encoder.dynamo"]


@pytest.mark.parametrize("size", range(len(numerics.SIZES)))
@pytest.mark.parametrize("name", [*SMALL, *(pytest.param(n, marks=pytest.mark.tier2) for n in LARGE)])
def test_model_on_the_evaluator(optc, name, size):
    if not (numerics.SHARED / "models").is_dir():
        pytest.skip(f"{numerics.SHARED / 'models'} is not there")
    result = numerics.verified(optc, numerics.materialized(name), size)
    if result is None:
        pytest.skip("no symbolic dim: one size says all")
    agrees, worst, _ = result
    assert agrees, f"max |difference| / max |expected| {worst}"
