"""The pages that optc writes, in a real browser: no error, nothing loaded from elsewhere, boxes and texts that keep their places, and the
interactions. Skipped where no Chromium is installed (`./dev test` installs Debian's).

The graphs are models made here and, where the folder of models beside the checkout is there, those: their weights are not, so files of
zeros of the right size stand in for them (only the structure matters)."""

import json
import pathlib
import subprocess
import xml.etree.ElementTree

import browser
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

SHARED = ("mlp.script", "resnet50.script", "bert_base.script17", "unet_diffusion.dynamo")


def transformer(path, layers):
    """Encoder layers in parts, as exporters write them: LayerNormalization, attention with a mask, Gelu; a mask that all layers read."""
    rng = np.random.default_rng(3)
    nodes, constants = [], {"two": np.float32(2), "half": np.float32(0.5), "one": np.float32(1), "root2": np.float32(2**0.5),
                            "eps": np.float32(1e-5), "scale": np.float32(0.5), "axis": np.array([-1])}

    def add(op, *inputs, **attributes):
        out = f"t{len(nodes)}"
        nodes.append(helper.make_node(op, list(inputs), [out], name=f"layer.{layer}/{op}_{len(nodes)}", **attributes))
        return out

    def weight(name, *shape):
        constants[name] = rng.standard_normal(shape, np.float32) * np.float32(0.3)
        return name

    layer = "mask"
    mask = add("Where", "keep", weight("zero", 1), weight("low", 1))
    x = "x"
    for layer in range(layers):
        mean = add("ReduceMean", x, "axis", keepdims=1)
        centred = add("Sub", x, mean)
        variance = add("ReduceMean", add("Pow", centred, "two"), "axis", keepdims=1)
        normal = add("Div", centred, add("Sqrt", add("Add", variance, "eps")))
        normal = add("Add", add("Mul", normal, weight(f"g{layer}", 8)), weight(f"b{layer}", 8))
        q, k, v = (add("MatMul", normal, weight(f"{n}{layer}", 8, 8)) for n in "qkv")
        scores = add("Add", add("Mul", add("MatMul", q, add("Transpose", k, perm=[0, 2, 1])), "scale"), mask)
        x = add("Add", x, add("MatMul", add("Softmax", scores, axis=-1), v))
        up = add("MatMul", x, weight(f"u{layer}", 8, 16))
        gelu = add("Mul", add("Mul", up, add("Add", add("Erf", add("Div", up, "root2")), "one")), "half")
        x = add("Add", x, add("MatMul", gelu, weight(f"d{layer}", 16, 8)))
    nodes[-1].output[0] = "y"
    graph = helper.make_graph(
        nodes, "encoder", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", "S", 8]),
                           helper.make_tensor_value_info("keep", TensorProto.BOOL, ["N", 1, "S"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", "S", 8])],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)


def branches(path):
    """An If, names that are no plain text, and a node without a name."""
    def branch(name, op):
        return helper.make_graph([helper.make_node(op, ["x"], [name], name=f"</script><b>{op}&é")], name, [],
                                 [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N"])])
    nodes = [helper.make_node("If", ["c"], ["i"], name="choose", then_branch=branch("t", "Exp"), else_branch=branch("e", "Neg")),
             helper.make_node("Identity", ["i"], ["j"]), helper.make_node("Abs", ["j"], ["y"], name="a" * 300)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("c", TensorProto.BOOL, []),
                                           helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def stand_in(source, folder):
    """The model with files of zeros (sparse) in place of its external data."""
    proto = onnx.load(source, load_external_data=False)
    sizes = {}
    for tensor in proto.graph.initializer:
        entries = {e.key: e.value for e in tensor.external_data}
        if entries:
            end = int(entries.get("offset", 0)) + int(entries.get("length", 0))
            sizes[entries["location"]] = max(sizes.get(entries["location"], 0), end)
    for name, size in sizes.items():
        with open(folder / name, "wb") as file:
            file.truncate(size)
    path = folder / source.name
    path.write_bytes(source.read_bytes())
    return path


@pytest.fixture(scope="module", params=["encoder", "branches", *SHARED])
def model(request, tmp_path_factory, root):
    folder = tmp_path_factory.mktemp("page")
    if request.param in SHARED:
        source = root.parent / "shared/models" / f"{request.param}.onnx"
        if not source.exists():
            pytest.skip(f"{source} is not there")
        return stand_in(source, folder)
    path = folder / f"{request.param}.onnx"
    transformer(path, 12) if request.param == "encoder" else branches(path)
    return path


@pytest.fixture(scope="module")
def chromium():
    path = browser.find()
    if not path:
        pytest.skip("no Chromium is installed")
    return path


@pytest.fixture(scope="module")
def diff_page(optc, model):
    path = model.with_suffix(".diff.html")
    subprocess.run([optc, "diff", model, "--html", path, "-q"], check=True, capture_output=True)
    return path


@pytest.fixture(params=["light", "dark"])
def page(request, chromium):
    page = browser.Page(chromium, dark=request.param == "dark")
    yield page
    page.close()


def problems_of_elements(page):
    """Elements whose text is wider than they are, or that leave the window to the side."""
    return page.js("""[...document.querySelectorAll('body *')].filter(e => e.clientWidth > 0 && !['CANVAS', 'INPUT', 'svg'].includes(e.tagName) &&
        !e.closest('svg') && (e.scrollWidth > e.clientWidth + 1 || e.getBoundingClientRect().right > innerWidth + 1))
        .map(e => e.tagName + '#' + e.id + '.' + e.className + ': ' + e.textContent.slice(0, 60))""")


def problems_of_graph(page, side):
    """Boxes that overlap or leave the group that holds them, texts that leave their box, lanes of lines that run through a box."""
    return page.js("""(() => { const bad = [], name = b => b.item ? nameOf(b) : folderTitle(b);
        const check = f => { const list = f.boxes;
            list.forEach((p, i) => { for (const q of list.slice(i + 1)) if (p.x < q.x + q.w - .01 && q.x < p.x + p.w - .01 && p.y < q.y + q.h - .01 && q.y < p.y + p.h - .01)
                bad.push('overlap ' + name(p) + ', ' + name(q));
                if (f.parent && (p.x < 0 || p.y < HEAD || p.x + p.w > f.w + .01 || p.y + p.h > f.h + .01)) bad.push(name(p) + ' leaves ' + name(f)); });
            for (const l of f.lines) for (const [x, y] of l.at) { const hit = list.find(b => x > b.x && x < b.x + b.w && y > b.y + .5 && y < b.y + b.h - .5);
                if (hit) bad.push('a line runs through ' + name(hit)) }
            for (const b of list) if (!b.item && b.open) check(b) };
        check(scene.root);
        for (const b of scene.boxes) { if (!present(b, SIDE) || (!b.item && b.open)) continue;
            labels(b, SIDE).slice(0, 2).forEach((text, k) => { const font = b.item ? [TITLE, BELOW][k] : [HEADING, UNDER][k];
                measure.font = font; if (text && measure.measureText(fitted(text, font, b.w - 22)).width > b.w - 8) bad.push('text ' + text) }) }
        return bad })()""".replace("SIDE", json.dumps(side)))


def screen(page, box, pane="A", y=None):
    """Where a box is on the screen: its middle, or so far below its top (in the drawing's units)."""
    at = "k.h / 2" if y is None else str(y)
    return page.js(f"(() => {{ const b = {pane}.canvas.getBoundingClientRect(), k = {box};"
                   f"return [b.left + view.x + (k.ax + k.w / 2) * view.s, b.top + view.y + (k.ay + {at}) * view.s] }})()")


def test_diff_page_is_laid_out(page, diff_page):
    page.open(diff_page)
    assert page.js("D.nodes[0] > 0")
    assert problems_of_elements(page) == []
    for number, side in enumerate("ab"):
        assert page.js(f"items.filter(i => i.kind === 0 && i.{side}).length") == page.js(f"D.nodes[{number}]")
        # Every node of a side is in exactly one box that is seen, and groups count what is in them.
        assert page.js(f"scene.boxes.filter(b => present(b, '{side}')).reduce((n, b) => n + (b.item ? (b.kind ? 0 : 1) : b.open ? 0 : b.{side}), 0)"
                       ) == page.js(f"D.nodes[{number}]")
    for unfolded in (False, True):
        if unfolded and page.js("items.length") < 3000:
            page.key("u")
            assert page.js("items.every(i => scene.boxes.includes(i))")
        for pane, side in ("Aa", "Bb"):
            assert problems_of_graph(page, side) == []
            # Something is drawn, and not in the color of the background only.
            assert page.js(f"new Set(new Uint32Array({pane}.canvas.getContext('2d').getImageData(0, 0, {pane}.canvas.width,"
                           f"{pane}.canvas.height).data.buffer)).size") > 10
    assert page.errors == [] and all(url.startswith("file:") and url.split("#")[0].endswith(".html") for url in page.requests)


def test_diff_page_reacts(page, diff_page):
    page.open(diff_page)
    # A click on a node shows it and what it became.
    page.js("(i => { reveal(i); centre([i]); window.aim = i; return 1 })(items.find(i => i.a && i.group >= 0 && statusOf(i) !== 'same') || items.find(i => i.kind === 0))")
    page.settle()
    page.click(*screen(page, "aim"))
    told = page.js("document.getElementById('info').textContent")
    assert page.js("nameOf(aim)") in told and page.js("aim.a.op") in told and page.js("chosenItem === aim")
    assert page.js("(g => g[1].every(t => document.getElementById('info').textContent.includes(T[t])))(D.groups[aim.group])")
    # n and p walk over the changes; a click on a pattern goes to its first.
    changes = page.js("changes.length")
    assert changes > 0
    page.key("Escape")
    assert page.js("chosen") is None
    page.key("n")
    assert page.js("chosen === changes[0] && membersOf[chosen].every(i => scene.boxes.includes(i))")
    page.key("p")
    assert page.js("chosen === changes[changes.length - 1]")
    page.click_on("#list button")
    assert page.js("chosen === D.patterns[0][4][0] && document.querySelector('#list button').classList.contains('on')")
    assert problems_of_elements(page) == []
    # Arrows go along the edges.
    page.js("(i => choose(i.group, i, true))(items.find(i => i.kind === 0 && i.outs.length))")
    page.js("window.from = chosenItem; 1")
    page.key("ArrowDown")
    assert page.js("from.outs.some(e => e.to === chosenItem)")
    page.key("ArrowUp")
    assert page.js("chosenItem.outs.some(e => e.to === from.outs[0].to)")
    # The wheel zooms about the mouse, dragging moves (both panes: they share one view), f shows all.
    canvas = page.js("(b => [b.left + b.width / 2, b.top + b.height / 2])(B.canvas.getBoundingClientRect())")
    before = page.js("({...view})")
    page.wheel(*canvas, -400)
    assert page.js("view.s") > before["s"] * 1.3
    at = page.js("({...view})")
    page.drag(*canvas, 80, 50)
    assert page.js("view.x") == pytest.approx(at["x"] + 80, abs=2) and page.js("view.y") == pytest.approx(at["y"] + 50, abs=2)
    page.key("f")
    assert page.js("scene.boxes.every(b => { const y = view.y + b.ay * view.s; return y > 0 && y + b.h * view.s < A.height() })")
    # Searching counts, steps through and clears.
    op = page.js("items.find(i => i.kind === 0).a.op")
    page.key("/")
    page.type(f"op:{op}")
    expected = page.js(f"items.filter(i => [i.a, i.b].some(f => f && f.op.toLowerCase().startsWith({json.dumps(op.lower())}))).length")
    assert page.js("document.getElementById('found').textContent") == f"1 of {expected}"
    page.key("Enter")
    assert page.js("document.getElementById('found').textContent") == f"{min(2, expected)} of {expected}"
    assert page.js("scene.boxes.includes(hitList[hitAt])")
    assert problems_of_elements(page) == []
    page.key("Escape")
    assert page.js("hits") is None and page.js("document.getElementById('found').textContent") == ""
    assert page.errors == []


@pytest.fixture(scope="module")
def encoder_page(optc, tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder")
    transformer(folder / "encoder.onnx", 12)
    subprocess.run([optc, "diff", folder / "encoder.onnx", "--html", folder / "encoder.html", "-q"], check=True, capture_output=True)
    return folder / "encoder.html"


def pixels(page, pane):
    return page.js(f"(() => {{ const c = {pane}.canvas, d = c.getContext('2d').getImageData(0, 0, c.width - 20, c.height).data; let h = 0;"
                   "for (let i = 0; i < d.length; i += 4) h = (h * 31 + d[i] * 7 + d[i + 1] * 3 + d[i + 2]) | 0; return h })()")


def test_layers_fold_into_groups(page, encoder_page):
    """Twelve layers are one pile with their count; it opens by a click and closes by one on its heading, and stays where it is."""
    page.open(encoder_page)
    series = "folders.find(f => f.kind === 'series')"
    assert page.js(f"{series}.children.map(f => f.label).join()") == ",".join(f"layer.{k}" for k in range(12))
    assert page.js(f"labels({series}, 'a')") == ["\u00d712  layer.0 \u2026 layer.11", page.js(f"{series}.a + ' nodes'")]
    assert page.js("items.filter(i => i.a && /^layer\\.\\d/.test(i.a.name)).every(i => boxOf(i) === " + series + ")")
    where = screen(page, series, y=0)
    page.click(*screen(page, series))
    assert page.js(f"{series}.open && {series}.children.every(f => scene.boxes.includes(f) && !f.open)")
    assert screen(page, series, y=0)[1] == pytest.approx(where[1], abs=1)
    assert problems_of_graph(page, "a") == [] and problems_of_graph(page, "b") == []
    # The number of lines between two closed layers does not grow with the edges between them.
    assert page.js(f"{series}.lines.filter(l => l.p && l.q).length <= 11 + 12")
    page.click(*screen(page, series, y=10))
    assert page.js(f"!{series}.open")
    page.key("u")
    assert page.js("folders.every(f => f.open)")
    page.key("0")
    assert page.js(f"!{series}.open")
    assert page.errors == []


def test_modes_share_one_place(page, encoder_page):
    """What both graphs have stands at the same place of both panes; one alone, the other alone and both upon each other are a key away."""
    page.open(encoder_page)
    page.key("u")
    page.js("(i => centre([i]))(items.find(i => statusOf(i) === 'fused' && i.b))")
    page.settle()
    assert page.js("A.width() === B.width()")
    view, both = page.js("({...view})"), (pixels(page, "A"), pixels(page, "B"))
    assert both[0] != both[1]
    for key, seen in (("1", "a"), ("2", "b"), ("3", "a"), ("4", "ab")):
        page.key(key)
        assert page.js("active().map(p => p.id).join('')") == seen and page.js("({...view})") == view
    assert (pixels(page, "A"), pixels(page, "B")) == both
    page.key("3")
    assert page.js("A.side") == "o" and page.js("scene.boxes.every(b => present(b, 'o'))")
    assert page.js("items.filter(i => i.a && i.b && i.a.op !== i.b.op).every(i => labels(i, 'o')[0].includes(i.a.op + ' \u2192 ' + i.b.op))")
    # A click is one node, whichever pane it is in.
    page.key("4")
    for pane in "AB":
        page.js("choose(null, null, false)")
        page.click(*screen(page, "items.find(i => statusOf(i) === 'fused' && i.b)", pane))
        assert page.js("statusOf(chosenItem)") == "fused"


def test_steps_of_the_optimizer(page, encoder_page):
    """Before the first step the second pane shows the model, after the last what became of it; between them each change when it was made."""
    page.open(encoder_page)
    count = page.js("D.steps.length")
    assert count > 1 and page.js("scene.applied") is None
    after = pixels(page, "B")
    page.js("apply(0, false)")
    page.settle()
    assert pixels(page, "B") == pixels(page, "A")
    nodes = [page.js("items.filter(i => i.kind === 0 && face(i, 'b')).length")]
    assert nodes[0] == page.js("D.nodes[0]")
    for k in range(1, page.js("D.rewrites") + 1):
        page.key(".")
        assert page.js("+document.getElementById('step').value") == k
        told = page.js("document.getElementById('told').textContent")
        assert told.startswith(f"{k} of {count} steps") and page.js(f"T[D.steps[{k - 1}][1]]") in told
        # Every node that is shown stands on nodes that are shown, or on the model's constants.
        nodes.append(page.js("items.filter(i => i.kind === 0 && face(i, 'b')).length"))
    assert nodes[-1] == page.js("D.nodes[1]") and nodes == sorted(nodes, reverse=True)
    page.js(f"apply({count}, false)")
    assert page.js("scene.applied") is None
    gelu = page.js("D.steps.findIndex(s => T[s[1]] === 'activation.gelu_erf')")
    for applied, erf, fused in ((gelu, 12, 0), (gelu + 1, 0, 12)):
        page.js(f"apply({applied}, true)")
        assert page.js("items.filter(i => (f => f && f.op === 'Erf')(face(i, 'b'))).length") == erf
        assert page.js("items.filter(i => (f => f && f.op === 'Gelu')(face(i, 'b'))).length") == fused
    page.key("0")
    page.js(f"apply({count}, false); choose(null, null, false); fit()")
    page.settle()
    assert page.errors == [] and after != 0


def test_address_holds_what_is_seen(chromium, encoder_page):
    page = browser.Page(chromium)
    try:
        page.open(encoder_page)
        page.key("u")
        page.js("(i => choose(i.group, i, true))(items.find(i => i.a && i.a.op === 'Softmax'))")
        page.js("apply(1, false); setTint('bytes'); zoom(1.5, 100, 100); search('op:MatMul', true)")
        page.key("2")
        page.js("writeAddress()")
        state = ("[location.hash, mode, tint, scene.applied, nameOf(chosenItem), $('q').value, folders.map(f => +f.open).join(''),"
                 "[(wide() / 2 - view.x) / view.s, (tall() / 2 - view.y) / view.s, view.s].map(v => Math.round(v * 20) / 20)]")
        before = page.js(state)
        assert before[1:5] == ["b", "bytes", 1, page.js("items.find(i => i.a && i.a.op === 'Softmax').a.name")]
    finally:
        page.close()
    page = browser.Page(chromium)
    try:
        page.open(str(encoder_page) + before[0])
        after = page.js(state)
        assert after[1:7] == before[1:7] and after[7] == pytest.approx(before[7], rel=.01, abs=2)
        # A link by hand needs a node's name only; one that is nonsense does no harm.
        page.js("location.hash = '#node=a:' + encodeURIComponent(items.find(i => i.a && i.a.op === 'Erf').a.name)")
        page.settle()
        assert page.js("chosenItem.a.op") == "Erf" and page.js("scene.boxes.includes(chosenItem)")
        page.js("location.hash = '#open=zz.9&at=x,1,-3&step=-7&show=q&color=__proto__&near=1&node=a:nothing'")
        page.settle()
        assert page.js("mode") == "both" and page.js("view.s > 0") and page.errors == []
    finally:
        page.close()


def test_near_sizes_colors_and_help(page, encoder_page):
    page.open(encoder_page)
    page.js("(i => choose(i.group, i, true))(items.find(i => i.a && i.a.op === 'Softmax'))")
    page.key("k")
    for hops in (2, 3):
        expected = page.js(f"(() => {{ let all = new Set([chosenItem]); for (let k = 0; k < {hops}; ++k) for (const i of [...all]) for (const e of edges)"
                           "{ if (e.from === i) all.add(e.to); if (e.to === i) all.add(e.from) } return [...all].map(i => i.id).sort((x, y) => x - y) })()")
        assert page.js("scene.boxes.map(b => b.id).sort((x, y) => x - y)") == expected
        assert problems_of_graph(page, "a") == []
        page.key("]")
    page.key("k")
    assert page.js("!scene.near && scene.boxes.includes(chosenItem)")
    page.key("c")
    assert page.js("tint") == "bytes" and page.js("heat.a.get(folders[0]) > 0")
    page.key("?")
    assert page.js("document.getElementById('keys').open && document.querySelectorAll('#keys kbd').length === KEYS.length")
    page.key("?")
    assert page.js("!document.getElementById('keys').open") and page.errors == []


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


def test_pictures(chromium, encoder_page):
    """What is open as SVG, which any reader of XML takes, and as PNG; on paper it is dark on light."""
    page = browser.Page(chromium, dark=True)
    try:
        page.open(encoder_page)
        page.js("folders.forEach(f => { f.open = true }); renew()")
        root = xml.etree.ElementTree.fromstring(page.js("svgText()"))
        texts = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]
        assert sum("Softmax" in t for t in texts) == page.js("items.filter(i => i.a && i.a.op === 'Softmax').length + items.filter(i => i.b && i.b.op === 'Softmax').length") and any("Gelu" in t for t in texts)
        assert float(root.get("width")) > page.js("2 * scene.width") and float(root.get("height")) > page.js("scene.height")
        assert page.js("(c => [c.width, c.height])(pngCanvas())")[1] > 1000
        assert page.js("new Promise(done => pngCanvas().toBlob(b => done(b.size > 10000)))")
        page.js("dispatchEvent(new Event('beforeprint'))")
        assert page.js("color.paper") == "#fff"
        page.js("dispatchEvent(new Event('afterprint'))")
        assert page.js("color.paper") != "#fff" and page.errors == []
    finally:
        page.close()


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


def test_rules_and_kernels_are_told(optc, tmp_path):
    """What the optimizer fused is one group of the page, with the rule that did it and the kernel that computes it."""
    path = tmp_path / "encoder.onnx"
    transformer(path, 2)
    facts = json.loads(subprocess.run([optc, "diff", path, "--format=json"], check=True, capture_output=True, text=True).stdout)
    gelus = [g for g in facts["groups"] if g["rules"] == ["activation.gelu_erf"]]
    assert len(gelus) == 2
    for group in gelus:
        assert sorted(n["op"] for n in group["before"]) == ["Add", "Div", "Erf", "Mul", "Mul"]
        assert [n["op"] for n in group["after"]] == ["Gelu"] and group["status"] == "fused" and len(group["kernels"]) == 1
    # The same from the files, by what the exporter noted.
    out = tmp_path / "out.onnx"
    subprocess.run([optc, "opt", path, "-o", out, "--opset", "20", "-q"], check=True)
    facts = json.loads(subprocess.run([optc, "diff", path, out, "--format=json"], check=True, capture_output=True, text=True).stdout)
    gelus = [g for g in facts["groups"] if [n["op"] for n in g["after"]] == ["Gelu"]]
    assert len(gelus) == 2 and all(g["rules"] == ["activation.gelu_erf"] and g["evidence"] == "origin" and len(g["before"]) == 5
                                   for g in gelus)


def test_changes_of_nodes_are_told(optc, chromium, tmp_path):
    """Two files: what differs at a node stands in the list, and at the node when it is chosen."""
    a, b = tmp_path / "a.onnx", tmp_path / "b.onnx"
    transformer(a, 2)
    proto = onnx.load(a)
    next(n for n in proto.graph.node if n.op_type == "Softmax").attribute[0].i = 1
    onnx.save(proto, b)
    subprocess.run([optc, "diff", a, b, "--html", tmp_path / "page.html", "-q"], check=True, capture_output=True)
    page = browser.Page(chromium)
    try:
        page.open(tmp_path / "page.html")
        assert page.js("[...document.querySelectorAll('#list .change')].map(e => e.firstChild.textContent)") == ["attribute axis -1 \u2192 1"]
        page.click_on("#list .change")
        assert page.js("[...document.querySelectorAll('#info .change')].map(e => e.textContent)") == ["attribute axis -1 \u2192 1"]
    finally:
        page.close()


@pytest.fixture(scope="module")
def bundle(optc, model):
    folder = model.with_suffix("")
    subprocess.run([optc, model, "-o", folder, "--name", "net", "-q"], check=True)
    return folder


def test_report_of_a_bundle(page, bundle):
    page.open(bundle / "report.html")
    assert problems_of_elements(page) == []
    assert page.js("document.documentElement.scrollWidth <= innerWidth")
    kernels = json.loads((bundle / "manifest.json").read_text())["kernels"]
    names = page.js("[...document.querySelectorAll('#kernels tbody code')].map(e => e.textContent)")
    assert set(names) >= {k["name"] for k in kernels}  # an If or a Loop is a row too
    # Sorting by a column of numbers, then the other way round.
    column = "[...document.querySelectorAll('#kernels tbody tr')].map(r => +r.cells[0].dataset.v)"
    page.click_on("#kernels th")
    assert page.js(column) == list(range(len(names)))
    page.click_on("#kernels th")
    assert page.js(column) == list(range(len(names)))[::-1]
    # Filtering.
    page.click_on("#filter")
    page.type(kernels[-1]["name"])
    shown = page.js("[...document.querySelectorAll('#kernels tbody tr')].filter(r => !r.hidden).length")
    assert 1 <= shown <= len(kernels) and page.js("document.getElementById('shown').textContent").startswith(str(shown))
    # The drawn graph is one click away.
    assert page.js("document.querySelector('a').getAttribute('href')") == "graph.html"
    page.open(bundle / "graph.html")
    assert page.js("D.groups.some(g => g[2].length > 0)")
    assert page.errors == []
