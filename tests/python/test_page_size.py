"""Pages of large graphs: bytes, first paint and frames."""

import subprocess

import browser
import onnx
import pytest
from page_models import transformer
from pages import chromium  # noqa: F401: a fixture

PAN = """(async () => { const times = []; let last = performance.now(); for (let i = 0; i < 24; ++i) { view.x -= 5; view.y -= 11; draw();
    await new Promise(requestAnimationFrame); await new Promise(requestAnimationFrame); const t = performance.now(); times.push((t - last) / 2); last = t }
    return times.sort((a, b) => a - b)[12] })()"""
FIRST_PAINT = """(async () => { for (;;) { const e = performance.getEntriesByType('paint')[0]; if (e) return e.startTime;
    await new Promise(done => setTimeout(done, 10)) } })()"""


def large(optc, folder, layers, named):
    """A page of two equal models of 27 nodes a layer."""
    path = folder / "large.onnx"
    transformer(path, layers)
    if not named:
        proto = onnx.load(path)
        for node in proto.graph.node:
            node.ClearField("name")
        onnx.save(proto, path)
    subprocess.run([optc, "diff", path, path, "--html", folder / "large.html", "-q"], check=True, capture_output=True)
    return folder / "large.html"


@pytest.mark.parametrize("named", [True, False], ids=["named", "nameless"])
def test_large_graph_is_quick_and_can_be_read(optc, chromium, tmp_path, named):
    """10,000 nodes: at most 1 MB, drawn within 300 ms, and at most 33 ms a frame, folded or open; at first as few boxes as can be read."""
    path = large(optc, tmp_path, 371, named)
    assert path.stat().st_size <= 1_000_000
    best = 1e9
    for attempt in range(4):  # the machine is shared
        page = browser.Page(chromium)
        try:
            page.open(path)
            best = min(best, page.js(FIRST_PAINT))
            if best > 300 and attempt < 3:
                continue
            assert page.js("D.nodes[0]") > 10000 and page.js("scene.boxes.length") < 60 and page.js("fitScale() >= .45")
            assert page.js("folders.every(f => f.children.length <= 48)")
            frames = [page.js(PAN)]
            page.key("u")
            assert page.js("scene.boxes.length") > 10000
            for scale in (.004, .05, .3, 1):
                page.js(f"view.s = {scale}; view.x = wide() / 2 - scene.width * {scale} / 2; view.y = -scene.height * {scale} * .4")
                frames.append(min(page.js(PAN) for _ in range(3)))
            break
        finally:
            page.close()
    assert best < 300 and max(frames) <= 33, (best, frames)


@pytest.mark.tier2
def test_very_large_graph_opens(optc, chromium, tmp_path):
    """50,000 nodes are open within 3 s."""
    path = large(optc, tmp_path, 1852, True)
    times = []
    for _ in range(3):
        page = browser.Page(chromium)
        try:
            page.open(path)
            times.append(page.js("performance.timing.loadEventEnd - performance.timing.navigationStart"))
            assert page.js("D.nodes[0]") > 50000 and page.js("scene.boxes.length") < 60
        finally:
            page.close()
    assert min(times) < 3000, times
