"""The pages that optc writes, in a real browser: no error, nothing loaded from elsewhere, boxes and texts that keep their places, and the
interactions. Skipped where no Chromium is installed (`./dev test` installs Debian's).

The graphs are models made here and, where the folder of models beside the checkout is there, those: their weights are not, so files of
zeros of the right size stand in for them (only the structure matters)."""

import json
import subprocess
import xml.etree.ElementTree

import browser
import onnx
import pytest
from page_models import branches, stand_in, transformer
from pages import chromium, encoder_page, page, pixels, problems_of_elements, problems_of_graph, screen  # noqa: F401: fixtures

SHARED = ("mlp.script", "resnet50.script", "bert_base.script17", "unet_diffusion.dynamo")


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
def diff_page(optc, model):
    path = model.with_suffix(".diff.html")
    subprocess.run([optc, "diff", model, "--html", path, "-q"], check=True, capture_output=True)
    return path


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


def test_layers_fold_into_groups(page, encoder_page):
    """Twelve layers are one pile with their count; it opens by a click and closes by one on its heading, and stays where it is."""
    page.open(encoder_page)
    series = "folders.find(f => f.kind === 'series')"
    assert page.js(f"{series}.children.map(f => f.label).join()") == ",".join(f"layer.{k}" for k in range(12))
    assert page.js(f"labels({series}, 'a')") == ["\u00d712  layer.0 \u2026 layer.11", page.js(f"{series}.a + ' nodes'")]
    # The bar of each pane is of the nodes that stand there.
    assert page.js(f"['a', 'b'].every(side => {series}.by[side].reduce((n, v) => n + v) === {series}[side]) && {series}.a > {series}.b")
    assert page.js("folders.every(f => !f.by.b[STATUS.indexOf('removed')] && !f.by.a[STATUS.indexOf('added')])")
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
