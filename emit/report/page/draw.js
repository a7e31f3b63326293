// Drawing: both panes show the same part of the same arrangement, each what its graph has of it.
const STRIP = 14;  // width of the overview
const view = {x: 0, y: 0, s: 1};  // the same of both panes: world -> screen is p * s + (x, y)
let chosen = null, chosenItem = null, hits = null, hitList = [], hitAt = -1, mode = "both", tint = "status", lit = new Set();

let color = {};
function readColors() {
  const style = getComputedStyle(document.documentElement);
  for (const name of [...STATUS, "ink", "soft", "line", "edge", "paper", "tint", "group", "heat"]) color[name] = style.getPropertyValue("--" + name).trim();
}
readColors();

// --- texts -----------------------------------------------------------------------------------------------------------------------
const fontOf = (size, bold) => (bold ? "600 " : "") + +size.toFixed(2) + "px system-ui, sans-serif";
const TITLE = fontOf(12.5, true), BELOW = fontOf(11), FINE = fontOf(8), HEADING = fontOf(15, true), UNDER = fontOf(12.5);
const measure = document.createElement("canvas").getContext("2d"), cuts = new Map();
// The text, cut to the width of a box, in a font.
function fitted(text, font, room) {
  const key = font + room + text;
  let t = cuts.get(key);
  if (t !== undefined) return t;
  measure.font = font;
  t = text;
  if (measure.measureText(t).width > room) {
    let low = 0, high = text.length;
    while (low < high) { const m = (low + high + 1) >> 1; measure.measureText(text.slice(0, m) + "\u2026").width <= room ? low = m : high = m - 1 }
    t = text.slice(0, low) + "\u2026";
  }
  cuts.set(key, t);
  return t;
}
const short = type => type.split(", ")[0];
// What stands in a box: title, what is below, and what is told where there is room for it.
function labels(box, side) {
  if (!box.item) {
    const n = box.on[side === "o" ? "o" : side], title = folderTitle(box);
    return [title, (side === "o" ? box.a + " \u2192 " + box.b + " nodes" : n + (n === 1 ? " node" : " nodes")) + (box.kind === "part" || box.kind === "repeat" ? (box.label && " \u00b7 " + box.label) : "")];
  }
  const f = face(box, side);
  if (box.kind) return [f.name, ""];
  const glyph = GLYPH[statusOf(box)];
  const op = side === "o" && box.a && box.b && box.a.op !== box.b.op ? box.a.op + " \u2192 " + box.b.op : f.op;
  return [(glyph + " " + op).trim(), short(f.type), f.name, f.attr];
}
function folderTitle(f) {
  if (f.kind === "series") return "\u00d7" + copies(f) + "  " + (f.named ? f.label : operatorsOf(f, 3));
  return f.kind === "part" || f.kind === "repeat" ? operatorsOf(f, 3) : f.label || "the model";
}
// The operators inside, the most frequent first.
function operatorsOf(f, most) {
  if (!f.ops) {
    f.ops = new Map();
    for (const c of f.children) {
      if (c.item && c.kind === 0) f.ops.set((c.b || c.a).op, (f.ops.get((c.b || c.a).op) || 0) + 1);
      if (!c.item) { operatorsOf(c, 1); for (const [op, n] of c.ops) f.ops.set(op, (f.ops.get(op) || 0) + n) }
    }
    f.ops = new Map([...f.ops].sort((x, y) => y[1] - x[1] || (x[0] < y[0] ? -1 : 1)));
  }
  const list = [...f.ops].slice(0, most).map(([op, n]) => op + (n > 1 && f.kind !== "series" ? " \u00d7" + n : ""));
  return list.join(", ") + (f.ops.size > most ? ", \u2026" : "") || "inputs and outputs";
}
const copies = f => f.children.reduce((n, c) => n + (!c.item && c.kind === "part" ? copies(c) : 1), 0);

// --- what colors say: a value of each item on a side, for a folder the sum, or what `fold` makes of two ----------------------------------------------------------
const measures = {status: null, bytes: {title: "bytes of the result", of: f => bytesOf(f.type), text: formatBytes}};
function formatBytes(n) { for (const unit of ["B", "KiB", "MiB"]) { if (n < 1024) return (n < 10 && unit !== "B" ? n.toFixed(1) : Math.round(n)) + " " + unit; n /= 1024 } return n.toFixed(1) + " GiB" }
let heat = null;  // {a, b, o: Map of box -> value, most: the largest of an item}
function measureAll() {
  heat = null;
  const m = measures[tint];
  if (!m) return;
  heat = {a: new Map(), b: new Map(), o: new Map(), most: 0};
  for (const item of items) {
    if (item.kind) continue;
    for (const side of ["a", "b", "o"]) {
      const f = face(item, side), v = f ? m.of(f, item, side) : 0;
      if (!v) continue;
      heat.most = Math.max(heat.most, v);
      heat[side].set(item, v);
      for (let p = item.parent; p; p = p.parent) heat[side].set(p, m.fold ? m.fold(heat[side].get(p) || 0, v) : (heat[side].get(p) || 0) + v);
    }
  }
}
const warmth = (box, side) => heat && heat.most ? Math.min(1, (heat[side].get(box) || 0) / heat.most) : 0;

// --- painting --------------------------------------------------------------------------------------------------------------------
// c: a canvas's context, or one that writes SVG (control.js); only what both know is used. w: {x0, y0, x1, y1} seen, of the world; s: scale.
function paintScene(c, side, w, s) {
  paintFolder(c, scene.root, side, w, s);
  c.globalAlpha = 1;
}
const outside = (x0, y0, x1, y1, w) => x1 < w.x0 || x0 > w.x1 || y1 < w.y0 || y0 > w.y1;
// An open folder that is too small on the screen to read is drawn closed.
const asOpen = (f, s) => f.open && (f === scene.root || (f.w * s > 90 && f.h * s > 50));

function paintFolder(c, f, side, w, s) {
  const lines = f.lines.filter(l => l.shows[side] && !outside(...l.box, w)), special = [];
  c.strokeStyle = color.edge; c.lineWidth = Math.max(1, .5 / s);
  c.beginPath();
  for (const l of lines) isLit(l) ? special.push(l) : trace(c, l, s);
  c.globalAlpha = hits ? .4 : 1;
  c.stroke();
  if (s > .3) { c.fillStyle = color.edge; c.beginPath(); for (const l of lines) arrow(c, l); c.fill() }
  c.globalAlpha = 1;
  for (const b of f.boxes) {
    if (outside(b.ax, b.ay, b.ax + b.w, b.ay + b.h, w) || !present(b, side)) continue;
    if (b.item) paintItem(c, b, side, s);
    else if (asOpen(b, s)) { paintFrame(c, b, side, s); paintFolder(c, b, side, w, s) }
    else paintClosed(c, b, side, s);
  }
  if (special.length) {
    c.strokeStyle = c.fillStyle = color.ink; c.lineWidth = Math.max(2, 1 / s);
    c.beginPath(); for (const l of special) trace(c, l, s); c.stroke();
    c.beginPath(); for (const l of special) arrow(c, l); c.fill();
  }
}
const isLit = l => lit.size > 0 && l.edges.some(e => lit.has(e));
function trace(c, l, s) {
  const p = l.path, a = p[0], b = p[p.length - 1];
  if (l.stub) {
    if (a && l.p) { c.moveTo(a[0], a[1]); c.lineTo(a[0], a[1] + 9) }
    if (b) { c.moveTo(b[0], b[1] - 11); c.lineTo(b[0], b[1]) }
    return;
  }
  if (!a || !b) return;
  c.moveTo(a[0], a[1]);
  for (let k = 1; k < p.length; ++k) {
    const u = p[k - 1], v = p[k];
    if (s < .2 || Math.abs(u[0] - v[0]) < 1) { c.lineTo(v[0], v[1]); continue }
    if (l.route && l.route.back) { c.bezierCurveTo(u[0], u[1] + 40, v[0], v[1] - 40, v[0], v[1]); continue }
    const m = (u[1] + v[1]) / 2;
    c.bezierCurveTo(u[0], m, v[0], m, v[0], v[1]);
  }
}
function arrow(c, l) {
  const b = l.path[l.path.length - 1];
  if (!b || !l.q) return;
  c.moveTo(b[0], b[1]); c.lineTo(b[0] - 3.5, b[1] - 6); c.lineTo(b[0] + 3.5, b[1] - 6);
}
function boxStyle(box, side) {
  const on = box === chosenItem || (box.item && box.group >= 0 && box.group === chosen), hit = hitAt >= 0 && boxOf(hitList[hitAt]) === box;
  const fresh = box.item && side === "b" && scene.applied > 0 && box.group >= 0 && stepGroups.has(box.group);
  return {on, hit, fresh, alpha: hits && box.item && !hits.has(box) ? .22 : hits && !box.item && !box.hits ? .3 : 1};
}
function paintItem(c, b, side, s) {
  const st = statusOf(b), style = boxStyle(b, side), warm = warmth(b, side);
  c.globalAlpha = style.alpha;
  c.beginPath(); c.roundRect(b.ax, b.ay, b.w, b.h, b.kind ? b.h / 2 : 6);
  c.fillStyle = b.kind ? color.tint : color.paper; c.fill();
  if (heat) { c.globalAlpha = style.alpha * (.06 + .8 * warm); c.fillStyle = color.heat; if (!b.kind) c.fill() }
  else if (!b.kind) { c.globalAlpha = style.alpha * (st === "same" ? .16 : .3); c.fillStyle = color[st]; c.fill() }
  c.globalAlpha = style.alpha;
  c.strokeStyle = style.on || style.hit || style.fresh ? color.ink : heat ? color.same : color[st];
  c.lineWidth = (style.on || style.fresh ? 3 : style.hit ? 4 : 1.3) * Math.max(1, .5 / s);
  c.stroke();
  if (s < .35) return;
  const [title, below, name, attr] = labels(b, side), x = b.ax + b.w / 2, y = b.ay + b.h / 2, room = b.w - 14, fine = s > 1.35 && !b.kind;
  c.textAlign = "center"; c.textBaseline = "middle";
  c.fillStyle = color.ink; c.font = TITLE;
  c.fillText(fitted(title, TITLE, room), x, y - (fine ? 13 : below ? 8 : 0));
  if (heat && !b.kind && s > .5) {
    const v = heat[side].get(b);
    c.fillStyle = color.soft; c.font = BELOW; c.fillText(v ? measures[tint].text(v) : "", x, y + 9);
  } else if (below) { c.fillStyle = color.soft; c.font = BELOW; c.fillText(fitted(below, BELOW, room), x, y + (fine ? 0 : 9)) }
  if (fine && !heat) { c.font = FINE; c.fillText(fitted(attr || name, FINE, room), x, y + 12) }
}
// A closed folder: a pile where it stands for several, with its title, how many nodes, and what became of them as a bar.
function paintClosed(c, b, side, s) {
  const style = boxStyle(b, side), x = b.ax, y = b.ay, pile = b.kind === "series" ? 2 : 1, big = b.open;
  c.globalAlpha = style.alpha;
  c.strokeStyle = style.on || style.hit ? color.ink : color.soft; c.lineWidth = (style.on || style.hit ? 3 : 1.2) * Math.max(1, .5 / s);
  for (let k = pile; k >= 0; --k) {
    if (big && k) continue;
    c.beginPath(); c.roundRect(x + 3 * k, y + 3 * k, b.w - 3 * pile, b.h - 3 * pile, 8);
    c.fillStyle = color.group; c.fill(); c.stroke();
  }
  const warm = warmth(b, side), wide = b.w - 3 * pile, high = b.h - 3 * pile;
  if (heat) { c.globalAlpha = style.alpha * (.06 + .8 * warm); c.fillStyle = color.heat; c.fill(); c.globalAlpha = style.alpha }
  const by = b.by[side], total = by.reduce((n, v) => n + v, 0);
  if (total && !heat) {
    let at = x + 8;
    const all = wide - 16, bar = Math.max(5, Math.min(high * .1, 14 / s));
    by.forEach((v, k) => { if (!v) return; const w = all * v / total; c.fillStyle = color[STATUS[k]]; c.fillRect(at, y + high - bar - 5, w, bar); at += w });
  }
  // An open folder seen from afar has its title in the size of the screen.
  const scale = big ? .85 / s : 1, room = (wide - 16) / scale;
  if (s * scale < .3 || room < 30) return;
  const [title, below] = labels(b, side), cx = x + wide / 2, cy = y + high / 2 - (heat ? 0 : 4 * scale);
  c.textAlign = "center"; c.textBaseline = "middle"; c.fillStyle = color.ink; c.font = big ? fontOf(15 * scale, true) : HEADING;
  c.fillText(fitted(title, HEADING, room), cx, cy - 9 * scale);
  if (high / scale < 38) return;
  c.fillStyle = color.soft; c.font = big ? fontOf(12.5 * scale) : UNDER;
  c.fillText(fitted(heat ? measures[tint].text(heat[side].get(b) || 0) : below, UNDER, room), cx, cy + 9 * scale);
}
function paintFrame(c, b, side, s) {
  const style = boxStyle(b, side), deep = b.depth || 0;
  c.globalAlpha = 1;
  c.beginPath(); c.roundRect(b.ax, b.ay, b.w, b.h, 8);
  c.fillStyle = deep % 2 ? color.tint : color.paper; c.fill();
  c.strokeStyle = style.on ? color.ink : color.line; c.lineWidth = (style.on ? 3 : 1.2) * Math.max(1, .5 / s); c.stroke();
  // The heading stays readable as long as there is room.
  const size = Math.max(12.5, Math.min(12.5 / s, b.h / 6, HEAD * .8));
  if (size * s < 5) return;
  const [title, below] = labels(b, side);
  c.textAlign = "left"; c.textBaseline = "middle"; c.fillStyle = color.soft; c.font = fontOf(size, true);
  const room = (b.w - 16) * 12.5 / size, full = "\u2212 " + title + "  \u00b7 " + below;
  c.fillText(fitted(fitted(full, TITLE, room) === full ? full : "\u2212 " + title, TITLE, room), b.ax + 8, b.ay + HEAD / 2 + 2);
}

// --- panes -----------------------------------------------------------------------------------------------------------------------
function pane(id) {
  const canvas = $(id), c = canvas.getContext("2d"), P = {id, canvas, side: id, waiting: false, strip: null, times: []};
  P.width = () => canvas.clientWidth - STRIP;
  P.height = () => canvas.clientHeight;
  P.paint = () => {
    P.waiting = false;
    if (!canvas.width || !canvas.height) return;
    const r = devicePixelRatio, t = performance.now();
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.clearRect(0, 0, canvas.width, canvas.height);
    c.setTransform(view.s * r, 0, 0, view.s * r, view.x * r, view.y * r);
    paintScene(c, P.side, {x0: -view.x / view.s, y0: -view.y / view.s, x1: (P.width() - view.x) / view.s, y1: (P.height() - view.y) / view.s}, view.s);
    overview(P, c, r);
    P.times.push(performance.now() - t);
    if (P.times.length > 60) P.times.shift();
  };
  P.draw = () => { if (!P.waiting) { P.waiting = true; requestAnimationFrame(P.paint) } };
  // What is under the pointer: an item, a closed folder, or an open one whose heading it is.
  P.under = e => {
    const b = canvas.getBoundingClientRect(), x = (e.clientX - b.left - view.x) / view.s, y = (e.clientY - b.top - view.y) / view.s;
    const look = f => {
      for (const k of f.boxes) {
        if (x < k.ax || y < k.ay || x > k.ax + k.w || y > k.ay + k.h || !present(k, P.side)) continue;
        if (k.item || !asOpen(k, view.s)) return k;
        return look(k) || (y < k.ay + HEAD ? k : null);
      }
      return null;
    };
    return look(scene.root);
  };
  return P;
}
// The strip at the right: the whole drawing from top to bottom, changes in their color, the part that is seen.
function overview(P, c, r) {
  const h = P.height(), left = P.width(), all = scene.height || 1;
  c.setTransform(r, 0, 0, r, 0, 0);
  if (!P.strip || P.strip.height !== Math.round(h * r)) {
    P.strip = document.createElement("canvas");
    P.strip.width = STRIP * r; P.strip.height = Math.round(h * r);
    const o = P.strip.getContext("2d");
    o.setTransform(r, 0, 0, r, 0, 0);
    o.fillStyle = color.tint; o.fillRect(0, 0, STRIP, h);
    const bar = (box, k, alpha) => { o.globalAlpha = alpha; o.fillStyle = color[STATUS[k]]; o.fillRect(2, box.ay / all * (h - 3), STRIP - 4, Math.max(1.5, Math.min(box.h, 200) / all * h * .8)) };
    for (const plain of [true, false]) for (const b of scene.boxes) {
      if (!present(b, P.side) || (!b.item && b.open)) continue;
      const changed = b.item ? [] : b.by[P.side].slice(1);
      const k = b.item ? STATUS.indexOf(statusOf(b)) : changed.some(v => v) ? 1 + changed.indexOf(Math.max(...changed)) : 0;
      if ((k === 0) !== plain) continue;
      bar(b, k, hits && !(b.item ? hits.has(b) : b.hits) ? .1 : plain ? .35 : .9);
    }
  }
  c.drawImage(P.strip, left, 0, STRIP, h);
  c.globalAlpha = 1; c.strokeStyle = color.ink; c.lineWidth = 1.5;
  const top = Math.max(0, -view.y / view.s / all * h), bottom = Math.min(h, (h - view.y) / view.s / all * h);
  c.strokeRect(left + 1, top + 1, STRIP - 2, Math.max(4, bottom - top - 2));
}
const A = pane("a"), B = pane("b"), PANES = [A, B];
const active = () => PANES.filter(p => !p.canvas.parentElement.hidden);
function draw() { for (const p of active()) p.draw() }
function redraw() { for (const p of PANES) p.strip = null; draw() }

// --- moving ----------------------------------------------------------------------------------------------------------------------
const TOP = 34, EDGE = 12;
const wide = () => active()[0].width(), tall = () => active()[0].height();
function zoom(factor, mx, my) {
  const s = Math.min(4, Math.max(.005, view.s * factor));
  view.x = mx - (mx - view.x) * s / view.s; view.y = my - (my - view.y) * s / view.s; view.s = s;
  draw();
}
// The whole drawing, at most in its natural size.
const fitScale = () => Math.min(1, (wide() - 2 * EDGE) / Math.max(1, scene.width), (tall() - TOP - EDGE - 30) / Math.max(1, scene.height));
function fit() {
  view.s = fitScale();
  view.x = (wide() - scene.width * view.s) / 2; view.y = TOP;
  draw();
}
// What is seen first: the whole where it can be read, else its beginning.
function start() {
  fit();
  if (view.s >= .45) return;
  view.s = Math.max(.45, Math.min(.9, (wide() - 2 * EDGE) / Math.max(1, scene.width)));
  const first = scene.boxes.find(b => b.parent === scene.root || scene.near) || {ax: 0, w: 0};
  view.x = scene.width * view.s <= wide() ? (wide() - scene.width * view.s) / 2 : wide() / 2 - (first.ax + first.w / 2) * view.s;
  view.y = TOP;
  draw();
}
// Shows the boxes that stand for these items.
function centre(list) {
  const boxes = [...new Set(list.map(boxOf))].filter(b => b.ax !== undefined);
  if (!boxes.length) return;
  const x0 = Math.min(...boxes.map(b => b.ax)), x1 = Math.max(...boxes.map(b => b.ax + b.w));
  const y0 = Math.min(...boxes.map(b => b.ay)), y1 = Math.max(...boxes.map(b => b.ay + b.h));
  view.s = Math.min(Math.max(view.s, .6), Math.max(.12, Math.min((wide() - 40) / (x1 - x0), (tall() - TOP - 40) / (y1 - y0))));
  view.x = wide() / 2 - (x0 + x1) / 2 * view.s; view.y = (tall() + TOP) / 2 - (y0 + y1) / 2 * view.s;
  draw();
}
// Opens or closes a folder; its corner stays where it is on the screen.
function toggle(f) {
  const x = f.ax * view.s + view.x, y = f.ay * view.s + view.y;
  f.open = !f.open;
  relayout();
  if (f.ax !== undefined) { view.x = x - f.ax * view.s; view.y = y - f.ay * view.s }
  remember();
  redraw();
}
