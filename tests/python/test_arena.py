"""The arena of whole models: within 1.10 of the most bytes that live at one time, and nothing that lives overlaps (arena.py)."""

import json
import pathlib
import subprocess
import sys

import pytest

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parent / "numerics")]
import arena  # noqa: E402
import numerics  # noqa: E402

SMALL = ["mlp.script", "mlp.dynamo", "lstm_tagger.script", "mobilenet_v3_large.script", "mobilenet_v3_large.dynamo",
         "efficientnet_b0.script", "whisper_tiny_encoder.script17"]
LARGE = ["resnet50.script", "resnet50.dynamo", "convnext_tiny.dynamo", "vit_b_16.dynamo", "bert_base.script17", "bert_base.dynamo",
         "gpt2_prefill.dynamo", "gpt2_decode.dynamo", "whisper_tiny_encoder.dynamo", "unet_diffusion.dynamo"]


def compiled(optc, name, folder, *options):
    if not (numerics.SHARED / "models").is_dir():
        pytest.skip(f"{numerics.SHARED / 'models'} is not there")
    subprocess.run([optc, numerics.materialized(name), "-o", folder, "-q", *options], check=True)
    for weights in pathlib.Path(folder).glob("*.weights"):
        weights.unlink()  # hundreds of megabytes that nothing here reads
    return folder


@pytest.mark.parametrize("name", [*SMALL, *(pytest.param(n, marks=pytest.mark.tier2) for n in LARGE)])
def test_arena_is_near_the_live_bytes(optc, tmp_path, name):
    bundle = arena.Bundle(compiled(optc, name, tmp_path / "bundle"), tmp_path)
    assert bundle.manifest["buffers"]
    symbols = arena.symbols_of(bundle.manifest)
    for values in numerics.SIZES if symbols else numerics.SIZES[:1]:
        sizes = {s: values.get(s, 1) for s in symbols}
        # (With constant sizes the buffers are placed for one thread, and the row scratch of more lies above them.)
        for threads in (1, 4) if symbols else (1,):
            total, live, places = bundle.lay_out(sizes, threads)
            assert arena.overlaps(total, places) == []
            assert total <= 1.10 * live, f"{sizes}, {threads} threads: {total} bytes for {live} that live"
    if not symbols:
        assert bundle.manifest["arena_bytes"] <= 1.10 * bundle.manifest["lower_bound_bytes"]


@pytest.mark.parametrize("name,dims,most", [("mobilenet_v3_large.script", ["N=1"], 5_000_000),
                                            pytest.param("resnet50.script", ["N=1"], 8_000_000, marks=pytest.mark.tier2)])
def test_arena_of_constant_sizes(optc, tmp_path, name, dims, most):
    folder = compiled(optc, name, tmp_path / "bundle", *(f"--dim={d}" for d in dims))
    manifest = json.loads((folder / "manifest.json").read_text())
    total, live, places = arena.Bundle(folder, tmp_path).lay_out({}, 1)
    assert arena.overlaps(total, places) == []
    assert manifest["arena_bytes"] <= total <= most and total <= 1.10 * live


def test_a_wrong_layout_is_seen():
    fine = [("a", 0, 1, 0, 64), ("b", 1, 2, 64, 64), ("c", 2, 3, 0, 64)]
    assert arena.overlaps(128, fine) == []
    assert arena.overlaps(100, fine) == ["b ends at 128 of 100"]
    assert arena.overlaps(128, [*fine, ("d", 3, 3, 32, 8)]) == ["d and c share bytes"]
    assert arena.dim_value("4*(N + 3)/(2) + min(N, 2)%(3)", {"N": 5}) == 18
