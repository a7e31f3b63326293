"""What tests of pages share: a browser, a page of a transformer's encoder, and what may not be seen on any of them."""

import json
import subprocess

import browser
import pytest
from page_models import transformer


@pytest.fixture(scope="module")
def chromium():
    path = browser.find()
    if not path:
        pytest.skip("no Chromium is installed")
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


@pytest.fixture(scope="module")
def encoder_page(optc, tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder")
    transformer(folder / "encoder.onnx", 12)
    subprocess.run([optc, "diff", folder / "encoder.onnx", "--html", folder / "encoder.html", "-q"], check=True, capture_output=True)
    return folder / "encoder.html"


def pixels(page, pane):
    return page.js(f"(() => {{ const c = {pane}.canvas, d = c.getContext('2d').getImageData(0, 0, c.width - 20, c.height).data; let h = 0;"
                   "for (let i = 0; i < d.length; i += 4) h = (h * 31 + d[i] * 7 + d[i + 1] * 3 + d[i + 2]) | 0; return h })()")
