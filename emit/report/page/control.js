// What the user does: pointer, keys, modes, the steps, the address, and files to keep.
const changes = [...new Set([...D.patterns.flatMap(p => p[4]), ...D.changes.map(c => c[0]).filter(g => g >= 0)])].sort((x, y) => x - y);

// --- pointer ---------------------------------------------------------------------------------------------------------------------
for (const P of PANES) {
  const canvas = P.canvas;
  let drag = null;
  const jump = e => { const b = canvas.getBoundingClientRect(); view.y = P.height() / 2 - (e.clientY - b.top) / P.height() * scene.height * view.s; draw(); remember() };
  canvas.onpointerdown = e => {
    const strip = e.clientX - canvas.getBoundingClientRect().left > P.width();
    drag = {x: e.clientX, y: e.clientY, vx: view.x, vy: view.y, far: 0, strip};
    if (strip) jump(e);
    canvas.setPointerCapture(e.pointerId);
  };
  canvas.onpointermove = e => {
    if (!drag) { const k = P.under(e); canvas.style.cursor = k ? "pointer" : ""; canvas.title = k ? (k.item ? nameOf(k) : folderTitle(k) + (k.open ? " (click closes)" : " (click opens)")) : ""; return }
    if (drag.strip) return jump(e);
    drag.far = Math.max(drag.far, Math.hypot(e.clientX - drag.x, e.clientY - drag.y));
    view.x = drag.vx + e.clientX - drag.x; view.y = drag.vy + e.clientY - drag.y;
    draw();
  };
  canvas.onpointerup = e => {
    if (drag && !drag.strip && drag.far < 4) click(P.under(e));
    else if (drag) remember();
    drag = null;
  };
  canvas.onpointercancel = () => { drag = null };
  canvas.onwheel = e => {
    e.preventDefault();
    const b = canvas.getBoundingClientRect();
    zoom(Math.exp(-e.deltaY * .0012), e.clientX - b.left, e.clientY - b.top);
    remember();
  };
  const tools = canvas.parentElement.querySelector(".tools");
  for (const [text, label, act] of [["\u2212", "zoom out", () => zoom(1 / 1.4, wide() / 2, tall() / 2)], ["+", "zoom in", () => zoom(1.4, wide() / 2, tall() / 2)], ["fit", "whole graph (f)", fit]]) {
    const e = element("button", text, tools);
    e.setAttribute("aria-label", label); e.title = label;
    e.onclick = () => { act(); remember() };
  }
}
function click(k) {
  if (!k) choose(null, null, false);
  else if (k.item) choose(k.group, k, false);
  else if (k.open && !asOpen(k, view.s)) zoom(Math.max(1.01, Math.min(1, wide() * .8 / k.w) / view.s), k.ax * view.s + view.x + k.w * view.s / 2, k.ay * view.s + view.y + k.h * view.s / 2);
  else { chooseFolder(k); toggle(k) }
}

// --- what is drawn: one side, the other, both beside or upon each other ------------------------------------------------------------
const MODES = {a: ["before", "1"], b: ["after", "2"], over: ["overlay", "3"], both: ["side by side", "4"]};
for (const [id, [text, key]] of Object.entries(MODES)) {
  const e = element("button", text, $("modes"));
  e.dataset.mode = id; e.title = text + " (" + key + ")";
  e.onclick = () => setMode(id);
}
function setMode(id) {
  mode = id;
  $("pa").hidden = id === "b";
  $("pb").hidden = id === "a" || id === "over";
  A.side = id === "over" ? "o" : "a";
  for (const e of $("modes").children) e.setAttribute("aria-pressed", e.dataset.mode === id);
  tellHeadings();
  remember();
  redraw();
}
function tellHeadings() {
  const at = scene.applied;
  $("ha").textContent = mode === "over" ? "both, one upon the other \u00b7 " + D.nodes[0] + " \u2192 " + D.nodes[1] + " nodes" : "before \u00b7 " + D.nodes[0] + " nodes";
  $("hb").textContent = at === null ? "after \u00b7 " + D.nodes[1] + " nodes" : "after " + at + " of " + D.steps.length + " steps \u00b7 " + items.filter(i => i.kind === 0 && face(i, "b")).length + " nodes";
}
function setTint(id) { tint = id; $("tint").value = id; measureAll(); tellInfo(); remember(); redraw() }
$("tint").onchange = e => setTint(e.target.value);

// --- the steps: rewrites of the optimizer, then what lowering decided ------------------------------------------------------------------
let stepGroups = new Set();
if (D.steps.length) {
  $("scrub").hidden = false;
  $("step").max = D.steps.length;
  $("step").oninput = e => apply(+e.target.value, false);
  $("back").onclick = () => apply((scene.applied === null ? D.steps.length : scene.applied) - 1, true);
  $("forth").onclick = () => apply((scene.applied === null ? D.steps.length : scene.applied) + 1, true);
  // Where lowering begins, on the bar.
  if (D.rewrites && D.rewrites < D.steps.length) {
    const mark = element("option", "", $("marks"));
    mark.value = D.rewrites; mark.label = "lowering";
  }
}
// The numbers that a step has in the count of `optc verify --bisect-passes`.
const counted_to = []; D.steps.reduce((sum, step, k) => counted_to[k] = sum + step[2], 0);
const numbersOf = k => { const from = (k ? counted_to[k - 1] : 0) + 1, to = counted_to[k]; return from === to ? "number " + from : "numbers " + from + " to " + to };
// So many steps are done; all of them is how the page begins. show: what the last one changed.
function apply(number, show) {
  number = Math.max(0, Math.min(D.steps.length, number));
  scene.applied = number === D.steps.length ? null : number;
  const last = number ? D.steps[number - 1] : null;
  stepGroups = new Set(last && scene.applied !== null ? last[3] : []);
  $("step").value = number;
  $("told").textContent = number + " of " + D.steps.length + " steps" + (last ? ": " + T[last[0]] + " \u00b7 " + T[last[1]] + (last[2] > 1 ? " \u00d7" + last[2] : "") : ": the model as it was read");
  if (scene.applied !== null && (mode === "a" || mode === "over")) setMode("both");
  count();
  markLines();
  if (tint !== "status") measureAll();
  if (show && last) tellStep(number - 1);
  if (show && last && last[3].length) { const list = membersOf[last[3][0]]; for (const i of list) reveal(i); centre(list) }
  tellHeadings();
  remember();
  redraw();
}
// What a step did, in the place of what is told of a node.
function tellStep(k) {
  const step = D.steps[k], about = step[4] || [], lowering = k >= D.rewrites;
  choose(null, null, false);
  const info = $("info");
  info.textContent = "";
  element("h3", (lowering ? "lowering" : "pass " + T[step[0]]) + ", " + numbersOf(k) + " of " + counted_to[D.steps.length - 1], info);
  element("code", T[step[1]] + (step[2] > 1 ? " \u00d7" + step[2] : ""), info, "on");
  if (about.length) element("h3", "about", info);
  for (const t of about) element("code", T[t], info);
  if (step[2] > about.length && about.length) element("span", "and " + (step[2] - about.length) + " more", info, "soft");
  element("h3", step[3].length ? "nodes" : "", info);
  for (const g of step[3].slice(0, 24)) { const e = element("button", nameOf(membersOf[g][membersOf[g].length - 1]) || statusOf(membersOf[g][0]), info); e.onclick = () => choose(g, null, true) }
  if (step[3].length > 24) element("span", "and " + (step[3].length - 24) + " more, outlined in the drawing", info, "soft");
}

// --- groups, sizes, neighbourhood --------------------------------------------------------------------------------------------------
function renew() { relayout(); measureAll(); fit(); remember(); redraw(); tellButtons() }
function foldAll() { scene.near = null; openAtFirst(); renew() }
function unfoldAll() { scene.near = null; for (const f of folders) f.open = true; renew() }
function toggleSizes() { scene.hideSmall = !scene.hideSmall; renew() }
let hops = 2;
function near(on) {
  const start = chosenItem && chosenItem.item ? [chosenItem] : chosen !== null ? membersOf[chosen] : [];
  if (on && !start.length) return;
  scene.near = on ? within(start, hops) : null;
  renew();
  if (!on && start.length) { for (const i of start) reveal(i); centre(start) }
}
function setHops(by) { hops = Math.max(1, Math.min(9, hops + by)); if (scene.near) near(true); tellButtons() }
function tellButtons() {
  $("sizes").setAttribute("aria-pressed", scene.hideSmall);
  $("sizes").textContent = scene.hideSmall ? "sizes hidden" : "sizes";
  $("focus").setAttribute("aria-pressed", !!scene.near);
  $("focus").textContent = scene.near ? "near: " + hops : "near";
}
$("fold").onclick = foldAll; $("unfold").onclick = unfoldAll; $("sizes").onclick = toggleSizes;
$("focus").onclick = () => near(!scene.near);
if (!D.sizes.length) $("sizes").hidden = true;
if (!folders.some(f => f.parent)) $("fold").hidden = $("unfold").hidden = true;

// --- files -----------------------------------------------------------------------------------------------------------------------
// A context that writes SVG: what paintScene uses of a canvas's, no more.
class SvgContext {
  constructor() { this.out = []; this.globalAlpha = 1; this.path = ""; this.textAlign = "left" }
  static text(t) { return t.replace(/[&<>"]/g, x => ({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})[x]).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, "\ufffd") }
  static n(v) { return +v.toFixed(1) }
  beginPath() { this.path = "" }
  add(letter, ...v) { this.path += letter + v.map(SvgContext.n).join(" ") }
  moveTo(x, y) { this.add("M", x, y) }
  lineTo(x, y) { this.add("L", x, y) }
  bezierCurveTo(...v) { this.add("C", ...v) }
  roundRect(x, y, w, h, r) { this.add("M", x + r, y); this.add("h", w - 2 * r); this.add("a", r, r, 0, 0, 1, r, r); this.add("v", h - 2 * r); this.add("a", r, r, 0, 0, 1, -r, r); this.add("h", 2 * r - w); this.add("a", r, r, 0, 0, 1, -r, -r); this.add("v", 2 * r - h); this.add("a", r, r, 0, 0, 1, r, -r); this.path += "z" }
  alpha() { return this.globalAlpha < 1 ? ' opacity="' + SvgContext.n(this.globalAlpha * 10) / 10 + '"' : "" }
  fill() { if (this.path) this.out.push('<path d="' + this.path + '" fill="' + this.fillStyle + '"' + this.alpha() + "/>") }
  stroke() { if (this.path) this.out.push('<path d="' + this.path + '" fill="none" stroke="' + this.strokeStyle + '" stroke-width="' + this.lineWidth + '"' + this.alpha() + "/>") }
  fillRect(x, y, w, h) { this.out.push('<rect x="' + SvgContext.n(x) + '" y="' + SvgContext.n(y) + '" width="' + SvgContext.n(w) + '" height="' + SvgContext.n(h) + '" fill="' + this.fillStyle + '"' + this.alpha() + "/>") }
  fillText(t, x, y) { if (t) this.out.push('<text x="' + SvgContext.n(x) + '" y="' + SvgContext.n(y) + '" dy=".35em" style="font:' + this.font + '" text-anchor="' + (this.textAlign === "center" ? "middle" : "start") + '" fill="' + this.fillStyle + '"' + this.alpha() + ">" + SvgContext.text(t) + "</text>") }
}
const EVERYWHERE = {x0: -Infinity, y0: -Infinity, x1: Infinity, y1: Infinity};
// What is open, of the panes that are seen, beside each other.
function svgText() {
  const gap = 40, w = scene.width + 20, h = scene.height + 40, parts = active().map((P, k) => {
    const c = new SvgContext();
    paintScene(c, P.side, EVERYWHERE, 1);
    return '<g transform="translate(' + (10 + k * (w + gap)) + ',30)"><text y="-10" style="' + "font:" + TITLE + '" fill="' + color.ink + '">' + SvgContext.text(P.canvas.parentElement.querySelector("h2").textContent) + "</text>" + c.out.join("\n") + "</g>";
  });
  const all = Math.ceil(w * parts.length + gap * (parts.length - 1));
  return '<svg xmlns="http://www.w3.org/2000/svg" width="' + all + '" height="' + Math.ceil(h) + '"><rect width="100%" height="100%" fill="' + color.paper + '"/>' + parts.join("\n") + "</svg>\n";
}
function pngCanvas() {
  const list = active(), w = scene.width + 20, h = scene.height + 40, s = Math.min(2, 16000 / Math.max(w * list.length, h), Math.sqrt(6e7 / (w * list.length * h)));
  const canvas = document.createElement("canvas"), c = canvas.getContext("2d");
  canvas.width = Math.ceil(w * list.length * s); canvas.height = Math.ceil(h * s);
  c.fillStyle = color.paper; c.fillRect(0, 0, canvas.width, canvas.height);
  list.forEach((P, k) => { c.setTransform(s, 0, 0, s, (10 + k * w) * s, 30 * s); paintScene(c, P.side, EVERYWHERE, s) });
  return canvas;
}
function save(blob, suffix) {
  const e = document.createElement("a");
  e.href = URL.createObjectURL(blob);
  e.download = (D.title.replace(/[^\w.]+/g, "-").replace(/^-+|-+$/g, "") || "diff") + suffix;
  e.click();
  setTimeout(() => URL.revokeObjectURL(e.href), 10000);
}
$("svg").onclick = () => save(new Blob([svgText()], {type: "image/svg+xml"}), ".svg");
$("png").onclick = () => pngCanvas().toBlob(b => save(b, ".png"), "image/png");
// On paper everything that is open is drawn, dark on light.
addEventListener("beforeprint", () => { document.documentElement.classList.add("paper"); readColors(); fit(); for (const p of active()) { p.strip = null; p.paint() } });
addEventListener("afterprint", () => { document.documentElement.classList.remove("paper"); readColors(); redraw() });

// --- the address: what is seen, so that it can be kept and sent ------------------------------------------------------------------------
let restoring = true, later = 0, written = "";
function remember() {
  if (restoring) return;
  clearTimeout(later);
  later = setTimeout(writeAddress, 150);
}
function writeAddress() {
  const h = new URLSearchParams(), item = chosenItem && chosenItem.item ? chosenItem : chosen !== null ? membersOf[chosen][0] : null;
  if (mode !== "both") h.set("show", mode);
  if (item) h.set("node", (item.a ? "a:" : "b:") + nameOf(item));
  if ($("q").value) h.set("q", $("q").value);
  if (tint !== "status") h.set("color", tint);
  if (scene.applied !== null) h.set("step", scene.applied);
  if (scene.hideSmall) h.set("sizes", "hidden");
  if (scene.near) h.set("near", hops);
  h.set("open", folders.every(f => f.open) ? "all" : folders.filter(f => f.open && f.parent).map(f => f.id.toString(36)).join("."));
  h.set("at", [((wide() / 2 - view.x) / view.s).toFixed(0), ((tall() / 2 - view.y) / view.s).toFixed(0), view.s.toFixed(3)].join(","));
  written = "#" + h;
  history.replaceState(null, "", written);
}
function readAddress() {
  const h = new URLSearchParams(location.hash.slice(1));
  restoring = true;
  scene.hideSmall = h.get("sizes") === "hidden";
  scene.near = null;
  if (h.has("open")) {
    const ids = new Set(h.get("open").split(".").map(t => parseInt(t, 36)));
    for (const f of folders) f.open = !f.parent || h.get("open") === "all" || ids.has(f.id);
  } else openAtFirst();
  const name = h.get("node"), item = name ? items.find(i => name.startsWith("a:") ? i.a && i.a.name === name.slice(2) : !i.a && i.b.name === name.slice(2)) : null;
  if (h.has("near") && item) { hops = Math.max(1, Math.min(9, +h.get("near") || 2)); scene.near = within([item], hops) }
  if (h.has("open") || scene.near) relayout();
  setMode(Object.hasOwn(MODES, h.get("show")) ? h.get("show") : "both");
  setTint(Object.hasOwn(measures, h.get("color")) ? h.get("color") : "status");
  if (D.steps.length) apply(h.has("step") ? +h.get("step") || 0 : D.steps.length, false);
  if (h.get("q") || hits) search(h.get("q") || "", h.has("at"));
  if (item) { reveal(item); choose(item.group, item, false) }
  const at = (h.get("at") || "").split(",").map(Number);
  if (at.length === 3 && at.every(isFinite) && at[2] > 0) { view.s = Math.min(4, at[2]); view.x = wide() / 2 - at[0] * view.s; view.y = tall() / 2 - at[1] * view.s }
  else if (item) centre([item]);
  else if (!hits) start();
  tellButtons();
  restoring = false;
  redraw();
}
addEventListener("hashchange", () => { if (location.hash !== written) readAddress() });

// --- keys ------------------------------------------------------------------------------------------------------------------------
const walk = by => { if (changes.length) { const at = changes.indexOf(chosen); choose(changes[by > 0 ? (at + 1) % changes.length : (at - 1 + changes.length) % changes.length], null, true) } };
// Along an edge of the chosen node: to what it reads, to what reads it.
function along(down) {
  const at = chosenItem && chosenItem.item ? chosenItem : chosen !== null ? membersOf[chosen][0] : null;
  const next = at && (down ? at.outs.map(e => e.to) : at.ins.map(e => e.from)).find(shown);
  if (next) { choose(next.group, next, false); reveal(next); centre([next]) }
}
const KEYS = [["n", "next change", () => walk(1)], ["p", "previous change", () => walk(-1)], ["f", "whole graph", () => { fit(); remember() }], ["/", "search", () => $("q").focus()],
  ["1", "before alone", () => setMode("a")], ["2", "after alone", () => setMode("b")], ["3", "one upon the other", () => setMode("over")], ["4", "side by side", () => setMode("both")],
  ["0", "close all groups", foldAll], ["u", "open all groups", unfoldAll], ["s", "hide or show nodes that only compute sizes", toggleSizes],
  ["k", "only what is near the chosen node, and back", () => near(!scene.near)], ["[", "nearer", () => setHops(-1)], ["]", "farther", () => setHops(1)],
  [",", "one step back", () => D.steps.length && $("back").click()], [".", "one step on", () => D.steps.length && $("forth").click()],
  ["c", "next meaning of colors", () => { const list = Object.keys(measures); setTint(list[(list.indexOf(tint) + 1) % list.length]) }],
  ["ArrowUp", "to what the chosen node reads", () => along(false)], ["ArrowDown", "to what reads it", () => along(true)],
  ["+", "zoom in", () => { zoom(1.25, wide() / 2, tall() / 2); remember() }], ["-", "zoom out", () => { zoom(.8, wide() / 2, tall() / 2); remember() }],
  ["Escape", "choose nothing", () => scene.near ? near(false) : choose(null, null, false)], ["?", "this list", () => help()]];
for (const [key, text] of KEYS) { const row = element("tr", "", $("keys").querySelector("tbody")); element("kbd", key, element("td", "", row)); element("td", text, row) }
function help() { $("keys").open ? $("keys").close() : $("keys").showModal() }
$("help").onclick = help;
$("keys").onclick = e => { if (e.target === $("keys")) $("keys").close() };
document.onkeydown = e => {
  if ((e.target.tagName === "INPUT" && e.target.type !== "range") || e.target.tagName === "SELECT" || e.ctrlKey || e.metaKey || e.altKey) return;
  if ($("keys").open && e.key !== "?") return;
  const found = KEYS.find(k => k[0] === e.key);
  if (found) { e.preventDefault(); found[2]() }
};
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColors(); redraw() });

// --- begin -----------------------------------------------------------------------------------------------------------------------
const sizeAll = () => { for (const p of PANES) { const w = Math.round(p.canvas.clientWidth * devicePixelRatio), h = Math.round(p.canvas.clientHeight * devicePixelRatio); if (w && h && (p.canvas.width !== w || p.canvas.height !== h)) { p.canvas.width = w; p.canvas.height = h; p.strip = null; p.paint() } } };
readAddress();
sizeAll();
for (const p of PANES) new ResizeObserver(sizeAll).observe(p.canvas);
