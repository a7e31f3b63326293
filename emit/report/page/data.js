"use strict";
// The data as the page works with it: items (nodes of the union of both graphs), edges between them, folders around them.
const $ = id => document.getElementById(id);
const D = JSON.parse($("data").textContent), T = D.texts;
const BEFORE = 1, AFTER = 2;
const STATUS = ["same", "changed", "fused", "split", "removed", "added"];  // as DiffStatus numbers them
const GLYPH = {same: "", changed: "~", fused: "\u2283", split: "\u2282", removed: "\u2212", added: "+"};  // status without color

// Columns and lists that are written as differences from one number to the next.
const adder = () => { let at = 0; return d => at += d };
const added = list => list.map(adder());
{
  const G = D.groups, kernel = adder(), evidence = added(G.evidence);
  D.groups = [...G.status].map((s, g) => [STATUS[+s], G.rules[g] || [], G.kernels[g].map(kernel), evidence[g]]);
  for (const step of D.steps) step[3] = added(step[3]);
  for (const column of ["name", "group", "folder"]) D.items[column] = added(D.items[column]);
  // Operands: a constant (negative), or how many items before, or after AHEAD its number.
  const AHEAD = 1e7, source = i => k => k < 0 ? k : k >= AHEAD ? k - AHEAD : i - k;
  D.items.in.forEach((list, i) => { D.items.in[i] = list.map(source(i)) });
  for (const i in D.after) D.after[i][4] = D.after[i][4].map(source(+i));
}

const facts = (op, name, type, attr, operands) => ({op: T[op], name: T[name], type: T[type], attr: T[attr], operands});
const items = D.items.op.map((_, i) => {
  const I = D.items, sides = +I.sides[i], one = facts(I.op[i], I.name[i], I.type[i], I.attr[i], I.in[i]);
  const then = D.after[i] ? facts(...D.after[i]) : one;
  return {item: true, id: i, first: i, kind: +I.kind[i], sides, group: I.group[i], parent: I.folder[i], a: sides & BEFORE ? one : null,
    b: sides & AFTER ? then : null, ins: [], outs: [], small: false};
});
for (const i of D.sizes) items[i].small = true;
const statusOf = item => item.group < 0 ? "same" : D.groups[item.group][0];
const nameOf = item => (item.a || item.b).name;

const edges = [];
{
  const known = new Map();
  const edge = (from, to, side) => {
    const key = from * items.length + to, at = known.get(key);
    if (from === to) return;
    if (at !== undefined) { edges[at].sides |= side; return }
    known.set(key, edges.length);
    edges.push({from: items[from], to: items[to], sides: side});
  };
  for (const item of items) {
    if (item.a) for (const k of item.a.operands) if (k >= 0) edge(k, item.id, BEFORE);
    if (item.b) for (const k of item.b.operands) if (k >= 0) edge(k, item.id, AFTER);
  }
  for (const [from, to, sides] of D.bodies) edge(from, to, sides);
  for (const e of edges) { e.from.outs.push(e); e.to.ins.push(e) }
}

const folders = D.folders.parent.map((parent, id) => ({item: false, id, parent: id ? parent : null, kind: T[D.folders.kind[id]], label: T[D.folders.label[id]],
  children: [], first: Infinity, open: false, total: 0}));
for (const f of folders) if (f.parent !== null) { f.parent = folders[f.parent]; f.parent.children.push(f) }
for (const item of items) { item.parent = folders[item.parent]; item.parent.children.push(item) }
for (const f of folders.slice().reverse()) {
  for (const c of f.children) { f.first = Math.min(f.first, c.first); f.total += c.item ? 1 : c.total }
  f.children.sort((x, y) => x.first - y.first);
  const scopes = g => g.children.every(c => !c.item && (c.kind === "scope" || (c.kind === "part" && scopes(c))));
  f.named = f.kind === "series" && scopes(f);  // its label describes it
}
// Folders in preorder: what lies inside is an interval.
{
  let count = 0;
  const walk = f => { f.enter = count++; f.depth = f.parent ? f.parent.depth + 1 : 0; for (const c of f.children) if (!c.item) walk(c); f.leave = count };
  walk(folders[0]);
}
const inside = (item, f) => f.enter <= item.parent.enter && item.parent.enter < f.leave;
// Items of each group of nodes that correspond.
const membersOf = D.groups.map(() => []);
for (const item of items) if (item.group >= 0) membersOf[item.group].push(item);

// Bytes of a type's tensors whose sizes are known; an open dim counts as 1.
const BITS = {f64: 64, i64: 64, u64: 64, c64: 64, c128: 128, f32: 32, i32: 32, u32: 32, f16: 16, bf16: 16, i16: 16, u16: 16, i4: 4, u4: 4, f4e2m1: 4, i2: 2, u2: 2};
function bytesOf(type) {
  let sum = 0;
  for (const m of type.matchAll(/([a-z0-9]+)\[([^\]]*)\]/g))
    sum += (BITS[m[1]] || 8) / 8 * m[2].split(",").reduce((n, d) => /^\d+$/.test(d) ? n * +d : n, 1);
  return sum;
}
