"""Trained models of others as bundles, on recorded inputs and answers (numerics/real_models.py)."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent / "numerics"))
import real_models  # noqa: E402

SMALL = ["surfaces_knn", "surfaces_validity", "romanizer_encoder", "magika"]


@pytest.mark.parametrize("name", [*SMALL, *(pytest.param(n, marks=pytest.mark.tier2) for n in real_models.NAMES if n not in SMALL)])
def test_real_model_as_a_bundle(optc, name):
    try:
        beyond, _, same, _ = real_models.run(optc, name)
    except real_models.Unavailable as reason:
        pytest.skip(str(reason))
    assert beyond <= 1
    assert same or name not in real_models.CLASSIFIERS
