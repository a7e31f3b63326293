"""What is laid over a page: steps of lowering, memory, times, and differences that verify found."""

import json
import subprocess

import pytest
from page_models import transformer
from pages import chromium, encoder_page, page  # noqa: F401: fixtures


def test_steps_of_lowering(page, encoder_page):
    """Behind the rewrites the bar goes through what lowering decided: no node changes, those that a step is about are outlined and told, and
    the numbers are those of `verify --bisect-passes`."""
    page.open(encoder_page)
    first, count = page.js("D.rewrites"), page.js("D.steps.length")
    names = page.js("D.steps.map(s => T[s[1]])")
    assert 0 < first < count and {"fuse.epilogue", "schedule.gemm", "place.share"} <= set(names[first:])
    assert all(T == "lowering" for T in page.js("D.steps.slice(D.rewrites).map(s => T[s[0]])"))
    page.js(f"apply({first}, false)")
    page.settle()
    nodes = "items.filter(i => i.kind === 0 && face(i, 'b')).length"
    assert page.js(nodes) == page.js("D.nodes[1]")
    seen = 0
    for k in range(first + 1, count):
        page.key(".")
        step = page.js(f"D.steps[{k - 1}]")
        told, info = page.js("$('told').textContent"), page.js("$('info').textContent")
        assert f"{k} of {count} steps: lowering" in told and names[k - 1] in told
        assert page.js(nodes) == page.js("D.nodes[1]") and page.js("stepGroups.size") == len(step[3])
        assert all(page.js("T")[t] in info for t in step[4]) and step[4]
        before = page.js(f"D.steps.slice(0, {k - 1}).reduce((n, s) => n + s[2], 0)")
        assert f"number {before + 1} of" in info or f"numbers {before + 1} to {before + step[2]} of" in info
        seen += len(step[3])
    assert seen > 100
    # A schedule is told of the nodes that the kernel computes.
    gemm = page.js("D.steps.findIndex(s => T[s[1]] === 'schedule.gemm')")
    assert page.js(f"(s => s[4].every(k => s[3].some(g => D.groups[g][2].includes(k) && membersOf[g].some(i => (i.b || i.a).op === 'MatMul'))))(D.steps[{gemm}])")
    assert page.errors == []


def test_memory_of_the_arena(optc, page, tmp_path):
    """Colors by the bytes that are alive while a node's kernel runs; a chart of the arena, in which a click leads to what writes a buffer."""
    transformer(tmp_path / "small.onnx", 3)
    subprocess.run([optc, "opt", tmp_path / "small.onnx", "--dim", "N=2", "--dim", "S=16", "--html", tmp_path / "small.html", "-q"], check=True, capture_output=True)
    plan = json.loads(subprocess.run([optc, "inspect", tmp_path / "small.onnx", "--dim", "N=2", "--dim", "S=16", "--print-memory-plan", "--format=json"],
                                     check=True, capture_output=True, text=True).stdout)
    page.open(tmp_path / "small.html")
    page.js("setTint('memory')")
    most = page.js("Math.max(...memory.alive)")
    assert most == page.js("heat.b.get(folders[0])") == page.js("heat.most") > 0
    assert most <= page.js("memory.arena") == plan["arena_bytes"] or most <= plan["arena_bytes"]
    # No two buffers that live at one time share a byte, and the arena holds them.
    buffers = page.js("memory.buffers")
    for n, p in enumerate(buffers):
        assert 0 <= p["offset"] and p["offset"] + p["bytes"] <= page.js("memory.arena")
        for q in buffers[:n]:
            assert p["last"] < q["first"] or q["last"] < p["first"] or p["offset"] + p["bytes"] <= q["offset"] or q["offset"] + q["bytes"] <= p["offset"]
    page.js("choose(null, null, false)")
    assert page.js("document.querySelectorAll('.chart rect').length") == sum(b["bytes"] > 0 for b in buffers)
    page.js("document.querySelector('.chart rect').onclick()")
    group = page.js("chosen")
    assert group is not None and page.js("document.querySelectorAll('.chart rect.on').length") > 0
    largest = max(buffers, key=lambda b: b["bytes"])
    assert largest["name"] in page.js("$('info').textContent")
    # With open dims there are no places, and nothing is made up.
    subprocess.run([optc, "opt", tmp_path / "small.onnx", "--html", tmp_path / "open.html", "-q"], check=True, capture_output=True)
    page.open(tmp_path / "open.html")
    assert page.js("!measures.memory && memory.arena === -1")
    page.js("(i => choose(i.group, i, false))(items.find(i => i.b && i.b.op === 'MatMul' && memory.buffers.some(b => kernelsOf(i).includes(memory.kernels[b.first]))))")
    assert "by the dims of a run" in page.js("$('info').textContent") and page.errors == []


def test_differences_of_kernels(page, encoder_page):
    """What verify says of each kernel colors the nodes that it computes; a folder has that of the worst."""
    page.open(encoder_page)
    kernels = page.js("[...new Set(D.groups.flatMap(g => g[2]))].map(t => T[t])")
    each = [{"kernel": k, "output": "y f32[2]", "max_difference": 1e-6 * n, "relative": 1e-7 * n} for n, k in enumerate(kernels)]
    told = page.js(f"takeFile({json.dumps(json.dumps({'kernels': {'compared': len(kernels), 'each': each}}))})")
    assert f"1 of {len(kernels)} kernels give the evaluator's bits" in told and kernels[-1] in told and page.js("tint") == "error"
    worst = 1e-7 * (len(kernels) - 1)
    assert page.js("heat.b.get(folders[0])") == pytest.approx(worst) and page.js("heat.most") == pytest.approx(worst)
    assert page.errors == []


def test_differences_of_values(page, encoder_page):
    """What verify says of the values inside of the model colors the nodes that make them, and what became of those."""
    page.open(encoder_page)
    names = page.js("items.filter(i => i.a && !i.kind).map(i => i.a.name)")
    each = [{"value": f"{n}:0", "node": n, "op": "Op", "ok": k < len(names) - 1, "relative": 1e-7 * k} for k, n in enumerate(names)]
    each.append({"value": f"{names[1]}:1", "node": names[1], "op": "Op", "ok": True, "relative": 0.0})  # a second output
    told = page.js(f"takeFile({json.dumps(json.dumps({'values': {'first': None, 'each': each}}))})")
    assert f"2 of {len(each)} values have ONNX Runtime's bits, {len(names)} nodes" in told and f"the first beyond its bound is {names[-1]}:0" in told
    assert page.js("tint") == "drift" and page.js("heat.a.get(folders[0])") == pytest.approx(1e-7 * (len(names) - 1))
    assert page.js("heat.a.get(items.find(i => i.a && i.a.name === NAME))".replace("NAME", json.dumps(names[1]))) == pytest.approx(1e-7)
    assert page.errors == []


def test_times_of_kernels(page, encoder_page):
    """Times of a bench, dropped on the page, are shared by the nodes that each kernel computes; a file of something else says so."""
    page.open(encoder_page)
    drop = """new Promise(done => { const data = new DataTransfer(); data.items.add(new File([TEXT], 'bench.json'));
        dispatchEvent(new DragEvent('drop', {dataTransfer: data, cancelable: true})); setTimeout(() => done($('info').textContent), 300) })"""
    kernels = page.js("[...new Set(D.groups.flatMap(g => g[2]))].map(t => T[t])")
    assert len(kernels) > 12
    bench = json.dumps({"kernels": [{"name": k, "us": 10.0 * (n + 1)} for n, k in enumerate(kernels)] + [{"name": "elsewhere", "us": 5}]})
    told = page.js(drop.replace("TEXT", json.dumps(bench)))
    total = 10 * len(kernels) * (len(kernels) + 1) / 2
    assert f"in {len(kernels) + 1} kernels" in told and f"the {len(kernels)} that compute nodes" in told and page.js("tint") == "time"
    for side in "ab":  # nothing is lost and nothing counted twice
        assert page.js(f"heat.{side}.get(folders[0])") == pytest.approx(total, rel=1e-9)
    assert page.js("[...heat.b].filter(([b]) => b.item).every(([b]) => D.groups[b.group][2].length)")
    for text, answer in (("no json", "neither times nor"), ('{"kernels": [{"name": "x", "us": "fast"}]}', "neither times nor"), ('{"kernels": []}', "neither times nor"),
                         ("null", "neither times nor"), ('{"kernels": [{"name": "x", "us": 1}]}', "None of the file's 1 kernels")):
        assert answer in page.js(drop.replace("TEXT", json.dumps(text)))
    assert page.errors == []
