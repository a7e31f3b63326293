// What is open, and where it stands: every open folder is laid out on its own, the inner ones first, and is one box to the folder around it.
// Both panes draw this one arrangement of the union of both graphs.
const W = 172, H = 42, FW = 236, FH = 66, HEAD = 24, PAD = 14, PORT = 8;  // a node's box, a closed folder's, an open one's heading and border
const PORTS = 14;  // sources outside that enter an open folder by a line of their own; further ones are drawn as stubs
const START = 32;  // boxes that are shown at first, about

const scene = {root: folders[0], hideSmall: false, near: null, boxes: [], width: 0, height: 0};

const shown = item => (!scene.near || scene.near.has(item)) && !(scene.hideSmall && item.small);

// --- counts: of what is shown, by side and status; made again where that changes ----------------------------------------------------
let counted = null;
function count() {
  const key = [scene.hideSmall, scene.applied, scene.near].map(v => v && v.size !== undefined ? v : String(v));
  if (counted && key.every((v, k) => v === counted[k])) return;
  counted = key;
  for (const f of folders) { f.a = f.b = f.shown = 0; f.by = {a: [0, 0, 0, 0, 0, 0], b: [0, 0, 0, 0, 0, 0], o: [0, 0, 0, 0, 0, 0]}; f.on = {a: 0, b: 0, o: 0} }
  for (const item of items) {
    if (!shown(item)) continue;
    const f = item.parent, now = face(item, "b");
    ++f.shown; ++f.on.o;
    if (item.a) ++f.on.a;
    if (now) ++f.on.b;
    if (item.kind !== 0) continue;
    const status = STATUS.indexOf(statusOf(item));
    ++f.by.o[status];
    if (item.a) { ++f.a; ++f.by.a[status] }
    if (now) ++f.by.b[status];
    if (item.b) ++f.b;
  }
  for (let k = folders.length; k-- > 1;) {  // a folder's parent has a smaller number
    const f = folders[k], p = f.parent;
    p.a += f.a; p.b += f.b; p.shown += f.shown;
    for (const side of ["a", "b", "o"]) { p.on[side] += f.on[side]; f.by[side].forEach((v, s) => { p.by[side][s] += v }) }
  }
}

// --- which edges matter to a folder ----------------------------------------------------------------------------------------------
// The child of f that holds an item; null: it lies outside.
function childOf(f, item) {
  if (f.flat) return scene.near.has(item) ? item : null;
  if (!inside(item, f)) return null;
  if (item.parent === f) return item;
  let at = item.parent;
  while (at.parent !== f) at = at.parent;
  return at;
}
folders[0].touch = edges;
function touch(f) {
  if (f.touch) return f.touch;
  touch(f.parent);
  if (f.touch) return f.touch;
  for (const c of f.parent.children) if (!c.item) c.touch = [];
  for (const e of f.parent.touch) {
    const p = childOf(f.parent, e.from), q = childOf(f.parent, e.to);
    if (p && !p.item) p.touch.push(e);
    if (q && q !== p && !q.item) q.touch.push(e);
  }
  return f.touch;
}

// The box that stands for an item: itself, or the outermost closed folder around it.
function boxOf(item) {
  if (scene.near) return item;
  let box = item;
  for (let f = item.parent; f; f = f.parent) if (!f.open) box = f;
  return box;
}
const keyOf = box => box.item ? "i" + box.id : "f" + box.id;

// --- layout ----------------------------------------------------------------------------------------------------------------------
function arrange(f) {
  const boxes = f.children.filter(c => c.item ? shown(c) : c.shown), index = new Map();
  for (const c of boxes) {
    if (c.item) { c.w = W; c.h = c.kind ? 28 : H }
    else if (c.open) arrange(c);
    else { c.w = FW; c.h = FH }
  }
  const nodes = boxes.map((c, k) => { index.set(c, k); return {w: c.w, h: c.h, order: c.first} });
  // Lines of this folder: between two of its boxes, from a port at its top, to a port at its bottom.
  const lines = new Map(), enters = new Map(), leaves = new Map();
  const outer = new Map();
  for (const e of touch(f)) {
    if (!shown(e.from) || !shown(e.to)) continue;
    const p = childOf(f, e.from), q = childOf(f, e.to);
    if (!p && !q || p === q) continue;
    const source = boxOf(e.from), key = keyOf(source);
    const name = (p ? keyOf(p) : "^") + key + ">" + (q ? keyOf(q) : "$");
    let line = lines.get(name);
    if (!line) lines.set(name, line = {folder: f, p, q, key, source, edges: []});
    line.edges.push(e);
    if (!p) outer.set(key, (outer.get(key) || 0) + 1);
  }
  const entering = [...outer].sort((x, y) => x[1] - y[1]).slice(-PORTS);
  for (const [key] of entering) { enters.set(key, nodes.length); nodes.push({w: PORT, h: 0, order: -1, row: "top"}) }
  for (const line of lines.values())
    if (!line.q && !leaves.has(line.key)) { leaves.set(line.key, nodes.length); nodes.push({w: PORT, h: 0, order: Infinity, row: "bottom"}) }
  const drawn = [...lines.values()], links = [], routed = [];
  for (const line of drawn) {
    const from = line.p ? index.get(line.p) : enters.get(line.key), to = line.q ? index.get(line.q) : leaves.get(line.key);
    line.route = null;
    line.loose = from === undefined;
    if (line.loose) continue;
    routed.push([line, links.length]);
    links.push([from, to]);
  }
  const placed = layered(nodes, links), left = f.parent || f.flat ? PAD : 0, top = f.parent ? HEAD + PAD : 0;
  boxes.forEach((c, k) => { c.x = placed.x[k] + left - c.w / 2; c.y = placed.y[k] + top - c.h / 2 });
  f.w = Math.max(placed.w + 2 * left, f.parent ? 120 : 0);
  const slack = (f.w - placed.w - 2 * left) / 2;
  if (slack) for (const c of boxes) c.x += slack;
  f.h = placed.h + top + (f.parent ? PAD : 0);
  const port = k => placed.x[k] + left + slack;
  f.enters = new Map([...enters].map(([key, k]) => [key, port(k)]));
  f.leaves = new Map([...leaves].map(([key, k]) => [key, port(k)]));
  for (const [line, k] of routed) line.route = placed.routes[k];
  f.lines = drawn;
  f.boxes = boxes;
  attach(f, drawn, left + slack, top);
}

// Where lines leave and enter their boxes: by the ports of open ones; on others side by side, in the order of where they come from.
function attach(f, lines, dx, dy) {
  const ends = new Map();
  const end = (box, side, line, towards) => { const key = keyOf(box) + side; ends.has(key) ? ends.get(key).push([line, towards]) : ends.set(key, [[line, towards]]) };
  const mid = box => box.x + box.w / 2;
  for (const line of lines) {
    line.at = line.route ? line.route.at.map(([x, y]) => [x + dx, y + dy]) : [];
    line.stub = line.loose || (line.route && line.route.stub);
    const first = line.at.length ? line.at[0][0] : null, final = line.at.length ? line.at[line.at.length - 1][0] : null;
    if (!line.p) line.start = line.loose ? null : [f.enters.get(line.key), HEAD];
    else if (!line.p.item && line.p.open) { const x = line.p.leaves.get(line.key); line.start = [line.p.x + (x === undefined ? line.p.w / 2 : x), line.p.y + line.p.h] }
    else end(line.p, "v", line, first !== null ? first : line.q ? mid(line.q) : f.leaves.get(line.key));
    if (!line.q) line.stop = [f.leaves.get(line.key), f.h];
    else if (!line.q.item && line.q.open) { const x = line.q.enters.get(line.key); line.stop = [line.q.x + (x === undefined ? line.q.w / 2 : x), line.q.y]; if (x === undefined) line.stub = true }
    else end(line.q, "^", line, final !== null ? final : line.p ? mid(line.p) : line.start ? line.start[0] : mid(line.q));
  }
  for (const [key, list] of ends) {
    list.sort((x, y) => x[1] - y[1]);
    const down = key.endsWith("v"), sources = down ? new Set(list.map(([line]) => line.key)).size : list.length;
    list.forEach(([line], k) => {
      const box = down ? line.p : line.q, room = Math.min(box.w * .7, 16 * (list.length - 1));
      // What one node gives is one line where it leaves.
      const x = box.x + box.w / 2 + (down && box.item || list.length < 2 || sources < 2 ? 0 : (k / (list.length - 1) - .5) * room);
      if (down) line.start = [x, box.y + box.h]; else line.stop = [x, box.y];
    });
  }
}

// From places inside a folder to places in the drawing.
function settle(f, x, y) {
  f.ax = x; f.ay = y;
  for (const c of f.boxes) {
    c.ax = x + c.x; c.ay = y + c.y;
    scene.boxes.push(c);
    if (!c.item && c.open) settle(c, c.ax, c.ay);
  }
  for (const line of f.lines) {
    line.path = [line.start, ...line.at, line.stop].map(p => p && [x + p[0], y + p[1]]);
    const xs = line.path.filter(p => p).map(p => p[0]), ys = line.path.filter(p => p).map(p => p[1]);
    line.box = [Math.min(...xs) - 20, Math.min(...ys) - 20, Math.max(...xs) + 20, Math.max(...ys) + 20];
    scene.lines.push(line);
  }
}
const nearRoot = {item: false, id: "near", flat: true, open: true, parent: null, label: "", children: [], boxes: [], lines: []};
function relayout() {
  count();
  scene.root = folders[0];
  if (scene.near) {
    scene.root = nearRoot;
    nearRoot.children = [...scene.near].sort((p, q) => p.id - q.id);
    nearRoot.touch = [...new Set(nearRoot.children.flatMap(i => [...i.ins, ...i.outs]))].filter(e => scene.near.has(e.from) && scene.near.has(e.to));
  }
  scene.root.open = true;
  arrange(scene.root);
  scene.boxes = [];
  scene.lines = [];
  settle(scene.root, 0, 0);
  scene.width = scene.root.w; scene.height = scene.root.h;
  markLines();
}

// --- states: which of its two faces a node shows on a side -------------------------------------------------------------------------
// applied: rewrites that are done (steps), null: all. The last step of a group makes it what it is after.
const lastStep = new Array(D.groups.length).fill(-1);
D.steps.slice(0, D.rewrites).forEach((step, k) => { for (const g of step[3]) lastStep[g] = k });  // lowering changes no node
scene.applied = null;
const done = item => scene.applied === null || item.group < 0 || lastStep[item.group] < scene.applied;
// side: "a", "b", "o" (both at once). The facts to show, or null: it is not there.
function face(item, side) {
  if (side === "a") return item.a;
  if (side === "o") return item.a || item.b;
  return done(item) ? item.b : item.a;
}
function edgeShows(e, side) {
  if (!face(e.from, side) || !face(e.to, side)) return false;
  if (side === "o") return true;
  return (e.sides & (side === "b" && done(e.to) ? AFTER : BEFORE)) !== 0;
}
function markLines() {
  for (const line of scene.lines) {
    line.shows = {a: false, b: false, o: true};
    for (const e of line.edges) {
      line.shows.a = line.shows.a || edgeShows(e, "a");
      line.shows.b = line.shows.b || edgeShows(e, "b");
      if (line.shows.a && line.shows.b) break;
    }
  }
}
const present = (box, side) => box.item ? face(box, side) !== null : box.on[side] > 0;

// --- opening and closing ---------------------------------------------------------------------------------------------------------
// What is seen first: as much as can be read at once, the outer folders first, of those the ones with the fewest things; series stay closed.
const READABLE = .45;  // the scale at which the texts of closed folders can be read
function openAtFirst() {
  for (const f of folders) f.open = false;
  folders[0].open = true;
  const opened = [], queue = folders[0].children.filter(c => !c.item);
  for (let boxes = folders[0].children.length; queue.length;) {
    queue.sort((x, y) => x.depth - y.depth || x.children.length - y.children.length || x.id - y.id);
    const f = queue.shift();
    if (boxes + f.children.length > START || (f.kind === "series" && items.length > START)) continue;
    f.open = true;
    opened.push(f);
    boxes += f.children.length;
    queue.push(...f.children.filter(c => !c.item));
  }
  for (relayout(); opened.length && fitScale() < READABLE; relayout()) opened.pop().open = false;
}
// Opens what hides an item; true: something was closed.
function reveal(item) {
  let changed = false;
  if (scene.near) { if (scene.near.has(item)) return false; scene.near = null; changed = true }
  if (scene.hideSmall && item.small) { scene.hideSmall = false; changed = true }
  for (let f = item.parent; f; f = f.parent) if (!f.open) { f.open = true; changed = true }
  if (changed) relayout();
  return changed;
}
// Items at most `hops` edges from those given.
function within(start, hops) {
  const near = new Set(start);
  let edge = start;
  for (let k = 0; k < hops && edge.length && near.size < 2000; ++k) {
    const next = [];
    for (const i of edge) for (const e of [...i.ins, ...i.outs]) for (const o of [e.from, e.to]) if (!near.has(o)) { near.add(o); next.push(o) }
    edge = next;
  }
  return near;
}
