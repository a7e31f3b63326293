"""The pages that optc writes, in a real browser: no error, nothing loaded from elsewhere, boxes and texts that keep their places, and the
interactions. Skipped where no Chromium is installed (`./dev test` installs Debian's).

The graphs are models made here and, where the folder of models beside the checkout is there, those: their weights are not, so files of
zeros of the right size stand in for them (only the structure matters)."""

import json
import pathlib
import subprocess

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
    """Boxes that overlap, texts that leave their box, lanes of edges that run through a box."""
    return page.js("""(() => { const bad = [], rows = new Map(), c = document.createElement('canvas').getContext('2d');
        for (const n of SIDE.nodes) rows.has(n.rank) ? rows.get(n.rank).push(n) : rows.set(n.rank, [n]);
        for (const row of rows.values()) { row.sort((a, b) => a.x - b.x);
            for (let i = 1; i < row.length; ++i) if (row[i].x - row[i - 1].x < W) bad.push('overlap ' + row[i].name + ', ' + row[i - 1].name) }
        if (DY <= H) bad.push('rows overlap');
        const drawn = SIDE.canvas.getContext('2d');
        for (const n of SIDE.nodes) for (const [k, text] of SIDE.labels(n).entries()) {
            drawn.font = c.font = k ? '10.5px system-ui, sans-serif' : '600 12px system-ui, sans-serif';
            if (text && c.measureText(SIDE.fitted(text)).width > W - 8) bad.push('text ' + text) }
        for (const e of SIDE.edges) e.at.slice(1, -1).forEach(([x, y]) => {
            const hit = (rows.get(Math.round(y / DY)) || []).find(n => Math.abs(n.x - x) < W / 2);
            if (hit) bad.push('edge ' + e.from.name + ' -> ' + e.to.name + ' runs through ' + hit.name) });
        return bad })()""".replace("SIDE", side))


def screen(page, side, node):
    """Where a node is on the screen."""
    return page.js(f"(() => {{ const b = {side}.canvas.getBoundingClientRect(), n = {node}, v = {side}.view;"
                   f"return [b.left + {side}.width() / 2 + v.x + n.x * v.s, b.top + TOP + v.y + n.y * v.s] }})()")


def test_diff_page_is_laid_out(page, diff_page):
    page.open(diff_page)
    assert page.js("D.nodes[0] > 0")
    assert problems_of_elements(page) == []
    for side in "AB":
        assert problems_of_graph(page, side) == []
        assert page.js(f"{side}.nodes.length") == page.js(f"D.nodes[{int(side == 'B')}]") + page.js(
            f"{side}.nodes.filter(n => n.group < 0).length")
        # Something is drawn, and not in the color of the background only.
        assert page.js(f"new Set(new Uint32Array({side}.canvas.getContext('2d').getImageData(0, 0, {side}.canvas.width, {side}.canvas.height)"
                       ".data.buffer)).size") > 10
    assert page.errors == [] and all(url.startswith("file:") and url.endswith(".html") for url in page.requests)


def test_diff_page_reacts(page, diff_page):
    page.open(diff_page)
    # A click on a node of the first side shows it and what it became.
    page.js("(n => { A.centre([n]); window.aim = n })(A.nodes.find(n => n.group >= 0 && D.groups[n.group][0] !== 'same') || A.nodes[0])")
    page.settle()
    page.click(*screen(page, "A", "aim"))
    told = page.js("document.getElementById('info').textContent")
    assert page.js("aim.name") in told and page.js("aim.op") in told and page.js("chosenNode === aim")
    assert page.js("(g => g[1].every(t => document.getElementById('info').textContent.includes(T[t])))(D.groups[aim.group])")
    # n and p walk over the changes; a click on a pattern goes to its first.
    changes = page.js("changes.length")
    assert changes > 0
    page.key("Escape")
    assert page.js("chosen") is None
    page.key("n")
    assert page.js("chosen === changes[0]")
    page.key("p")
    assert page.js("chosen === changes[changes.length - 1]")
    page.click_on("#list button")
    assert page.js("chosen === D.patterns[0][4][0] && document.querySelector('#list button').classList.contains('on')")
    assert problems_of_elements(page) == []
    # The wheel zooms about the mouse, dragging moves, f shows all.
    canvas = page.js("(b => [b.left + b.width / 2, b.top + b.height / 2])(B.canvas.getBoundingClientRect())")
    before = page.js("({...B.view})")
    page.wheel(*canvas, -400)
    assert page.js("B.view.s") > before["s"] * 1.3
    view = page.js("({...B.view})")
    page.drag(*canvas, 80, 50)
    assert page.js("B.view.x") == pytest.approx(view["x"] + 80, abs=2) and page.js("B.view.y") == pytest.approx(view["y"] + 50, abs=2)
    page.key("f")
    assert page.js("B.nodes.every(n => { const y = TOP + B.view.y + n.y * B.view.s; return y > 0 && y < B.height() })")
    # Searching counts, steps through and clears.
    op = page.js("A.nodes[0].op")
    page.key("/")
    page.type(f"op:{op}")
    expected = page.js(f"[...A.nodes, ...B.nodes].filter(n => n.op.toLowerCase().startsWith({json.dumps(op.lower())})).length")
    assert page.js("document.getElementById('found').textContent") == f"1 of {expected}"
    page.key("Enter")
    assert page.js("document.getElementById('found').textContent") == f"{min(2, expected)} of {expected}"
    assert problems_of_elements(page) == []
    page.key("Escape")
    assert page.js("hits") is None and page.js("document.getElementById('found').textContent") == ""
    assert page.errors == []


def test_diff_page_is_quick(chromium, diff_page):
    page = browser.Page(chromium)
    try:
        page.open(diff_page)
        frames = page.js("(async () => { const times = []; for (let i = 0; i < 10; ++i) { A.view.y -= 20; const t = performance.now(); A.paint();"
                         "times.push(performance.now() - t) } return times.sort((a, b) => a - b)[5] })()")
        assert frames < 100  # ms of drawing; a fast machine needs a tenth
    finally:
        page.close()
    assert diff_page.stat().st_size < 2 << 20


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
