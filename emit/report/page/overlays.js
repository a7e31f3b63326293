// What colors say of kernels, shared by the nodes that each computes: memory that is alive (of the page itself), and times and differences
// of a file that bench or verify wrote; verify's differences of values are those of the nodes that make them. A new one is an entry of `measures`, and for a file one of `READERS`.
const option = id => { const e = element("option", id, $("tint")); e.value = id };
Object.keys(measures).forEach(option);
const kernelsOf = item => item.group < 0 ? [] : D.groups[item.group][2].map(t => T[t]);
const sizeText = n => n < 0 ? "by the dims of a run" : formatBytes(n);

// --- memory: which buffer lives from which kernel to which, and where in the arena ------------------------------------------------------
const memory = D.memory ? {arena: D.memory.arena, kernels: added(D.memory.kernels).map(t => T[t]), stepOf: new Map(), alive: null, buffers: []} : null;
if (memory) {
  const M = D.memory, name = added(M.name), first = added(M.first);
  memory.buffers = name.map((t, k) => ({name: T[t], bytes: M.bytes[k], first: first[k], last: first[k] + M.lives[k], offset: M.offset[k]}));
}
if (memory && memory.buffers.length) {
  memory.kernels.forEach((name, k) => memory.stepOf.set(name, k));
  if (memory.buffers.every(b => b.bytes >= 0)) {
    const change = new Array(memory.kernels.length + 2).fill(0);
    for (const b of memory.buffers) { change[b.first] += b.bytes; change[b.last + 1] -= b.bytes }
    let sum = 0;
    memory.alive = memory.kernels.map((_, k) => sum += change[k]);
    measures.memory = {
      title: "memory that is alive while the node's kernel runs", fold: Math.max, text: formatBytes,
      of: (f, item) => kernelsOf(item).reduce((most, name) => memory.stepOf.has(name) ? Math.max(most, memory.alive[memory.stepOf.get(name)]) : most, 0),
    };
    option("memory");
  }
}
const stepName = k => k < memory.kernels.length ? memory.kernels[k] : "the end of the run";
// The buffers that the kernels of a group write, and the chart of all when colors say memory.
function tellMemory(group, into) {
  if (!memory || !memory.buffers.length) return;
  const steps = group === null ? [] : D.groups[group][2].map(t => memory.stepOf.get(T[t])).filter(k => k !== undefined);
  const own = new Set(memory.buffers.filter(b => steps.includes(b.first)));
  if (own.size) {
    element("h3", "memory", into);
    for (const b of [...own].slice(0, 12)) element("code", b.name + ": " + sizeText(b.bytes) + (b.offset >= 0 ? " at " + b.offset : "") + ", from " + stepName(b.first) + " to " + stepName(b.last), into);
    if (own.size > 12) element("span", "and " + (own.size - 12) + " more", into, "soft");
  }
  if (tint !== "memory" || !memory.alive) return;
  const most = Math.max(...memory.alive), peak = memory.alive.indexOf(most);
  element("h3", "the arena, over the " + memory.kernels.length + " kernels", into);
  if (memory.arena > 0) into.append(chartOf(own));
  element("span", (memory.arena >= 0 ? "It takes " + formatBytes(memory.arena) + "; at " : "At ") + "most " + formatBytes(most) + " are alive at one time, in " + stepName(peak) + ".", into, "soft");
}
// Each buffer a box: across from the kernel that writes it to the last that reads it, up its place. A click chooses what writes it.
function chartOf(own) {
  const W = 400, H = 150, space = "http://www.w3.org/2000/svg", svg = document.createElementNS(space, "svg"), wide = W / Math.max(1, memory.kernels.length);
  svg.setAttribute("viewBox", "0 0 " + W + " " + H);
  svg.setAttribute("class", "chart");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", "buffers over time");
  const shownOnes = memory.buffers.filter(b => b.bytes > 0).sort((x, y) => y.bytes - x.bytes).slice(0, 3000);
  for (const b of shownOnes) {
    const box = document.createElementNS(space, "rect"), h = Math.max(.7, b.bytes / memory.arena * H);
    for (const [key, v] of [["x", b.first * wide], ["y", H - b.offset / memory.arena * H - h], ["width", Math.max(.7, (Math.min(b.last, memory.kernels.length - 1) - b.first + 1) * wide)], ["height", h]]) box.setAttribute(key, v.toFixed(2));
    if (own.has(b)) box.setAttribute("class", "on");
    box.append(document.createElementNS(space, "title"));
    box.firstChild.textContent = b.name + ": " + formatBytes(b.bytes) + " at " + b.offset + ", from " + stepName(b.first) + " to " + stepName(b.last);
    box.onclick = () => { const text = T.indexOf(memory.kernels[b.first]), g = D.groups.findIndex(one => one[2].includes(text)); if (g >= 0) choose(g, null, true) };
    svg.append(box);
  }
  for (const box of svg.querySelectorAll(".on")) svg.append(box);  // above the others
  return svg;
}

// --- files: what bench and verify say of each kernel --------------------------------------------------------------------------------------
const microseconds = us => us >= 1000 ? (us / 1000).toPrecision(3) + " ms" : us.toPrecision(3) + " \u00b5s";
// Names of the model's nodes that an item is, or that became it.
const nodesOf = item => item.a ? [item.a.name] : item.group < 0 ? [] : membersOf[item.group].filter(m => m.a).map(m => m.a.name);
const READERS = [
  {
    // `optc bench MODEL --per-node --format=json`
    id: "time", list: json => json.kernels, ok: k => Number.isFinite(k.us), name: k => k.name, value: k => k.us, shared: true,
    measure: {title: "time", text: microseconds},
    sum: (list, known) => {
      const all = list.reduce((sum, k) => sum + k.us, 0), shown = list.reduce((sum, k) => sum + (known.has(k.name) ? k.us : 0), 0);
      return microseconds(all) + " in " + list.length + " kernels; " + (100 * shown / all).toFixed(0) + " % of it in the " + known.size + " that compute nodes of this page.";
    },
  },
  {
    // `optc verify MODEL --per-kernel --format=json`; what differs by nothing has no color
    id: "error", list: json => json.kernels && json.kernels.each, ok: k => Number.isFinite(k.relative), name: k => k.kernel, value: k => k.relative, shared: false,
    measure: {title: "difference of the kernel from the evaluator, of the range of its result", text: v => v ? v.toExponential(1) : "the same bits", fold: Math.max},
    sum: (list, known) => {
      const worst = list.reduce((most, k) => k.relative > most.relative ? k : most, list[0]);
      return list.filter(k => !k.relative).length + " of " + list.length + " kernels give the evaluator's bits, " + known.size + " compute nodes of this page; the farthest is " + worst.kernel + ", by " + worst.relative.toExponential(1) + " of the range of " + worst.output + ".";
    },
  },
  {
    // `optc verify MODEL --per-node --format=json`
    id: "drift", list: json => json.values && json.values.each, ok: v => Number.isFinite(v.relative), name: v => v.node, value: v => v.relative, shared: false, keys: nodesOf,
    measure: {title: "difference of the node's value from ONNX Runtime, of its range", text: v => v ? v.toExponential(1) : "the same bits", fold: Math.max},
    sum: (list, known) => {
      const worst = list.reduce((most, v) => v.relative > most.relative ? v : most, list[0]), first = list.find(v => !v.ok);
      return list.filter(v => !v.relative).length + " of " + list.length + " values have ONNX Runtime's bits, " + known.size + " nodes of this page make one; the farthest is " + worst.value + ", by " + worst.relative.toExponential(1) + " of its range" + (first ? "; the first beyond its bound is " + first.value : "") + ".";
    },
  },
];
// Colors by a file; gives what is told of it.
function takeFile(text) {
  let json = null;
  try { json = JSON.parse(text) } catch { json = null }
  const reader = READERS.find(r => { const list = json && r.list(json); return Array.isArray(list) && list.length && list.every(k => k && typeof r.name(k) === "string" && r.ok(k)) });
  if (!reader) return "The file has neither times nor differences: `optc bench MODEL --per-node --format=json` writes times, `optc verify MODEL --per-kernel --format=json` differences of kernels, with --per-node those of values.";
  const list = reader.list(json), values = new Map(), nodes = {a: new Map(), b: new Map()}, known = new Set();
  for (const k of list) values.set(reader.name(k), reader.shared ? reader.value(k) : Math.max(values.get(reader.name(k)) || 0, reader.value(k)));
  const kernels = item => (reader.keys || kernelsOf)(item).filter(name => values.has(name));
  for (const item of items) for (const name of kernels(item)) {
    known.add(name);
    for (const side of ["a", "b"]) if (item[side]) nodes[side].set(name, (nodes[side].get(name) || 0) + 1);
  }
  if (!known.size) return "None of the file's " + list.length + (reader.keys ? " values is of" : " kernels computes") + " a node of this page: were they of the same model?";
  if (!measures[reader.id]) option(reader.id);
  const share = (item, f, side) => { const s = side === "o" ? (item.b ? "b" : "a") : f === item.a && f !== item.b ? "a" : side; return kernels(item).reduce((sum, name) => sum + values.get(name) / (nodes[s].get(name) || 1), 0) };
  measures[reader.id] = {...reader.measure, of: (f, item, side) => reader.shared ? share(item, f, side) : kernels(item).reduce((most, name) => Math.max(most, values.get(name)), 0)};
  setTint(reader.id);
  return reader.sum(list, known);
}
async function openFile(file) {
  if (!file) return;
  const told = takeFile(await file.text());
  choose(null, null, false);
  $("info").textContent = "";
  element("h3", file.name, $("info"));
  element("span", told, $("info"));
}
$("load").onclick = () => $("file").click();
$("file").onchange = e => { openFile(e.target.files[0]); e.target.value = "" };
addEventListener("dragover", e => e.preventDefault());
addEventListener("drop", e => { e.preventDefault(); openFile(e.dataTransfer.files[0]) });
