// The header, the list of changes, what is told of what is chosen, and the search.
const element = (tag, text, into, name) => { const e = document.createElement(tag); if (text) e.textContent = text; if (name) e.className = name; if (into) into.append(e); return e };

$("title").textContent = document.title = D.title;
$("sum").textContent = D.sum;
const statuses = new Set(D.groups.map(g => g[0]));
for (const s of STATUS) {
  if (!statuses.has(s)) continue;
  const e = element("span", "", $("key"));
  element("i", "", e).style.setProperty("--c", "var(--" + s + ")");
  e.append((GLYPH[s] + " " + s).trim());
}
D.patterns.forEach((p, number) => {
  const e = element("button", "", $("list"), "p");
  e.style.setProperty("--c", "var(--" + p[3] + ")");
  element("span", "\u00d7" + p[4].length, e, "n");
  e.append(p[0] + " \u2192 " + p[1]);
  if (p[2]) element("small", p[2], e);
  let at = -1;
  e.onclick = () => { at = (at + 1) % p[4].length; choose(p[4][at], null, true) };
  e.dataset.pattern = number;
});
// What is different of the model itself, and of single nodes.
const changeText = c => c[1] + " " + (c[2] === c[3] ? c[2] : c[2] + " \u2192 " + c[3]) + (c[4] ? (c[2] === c[3] ? ": " : "; ") + c[4] : "");
const changesOf = new Map();
const LISTED = 500;  // changes that have a line of their own; all stand at their nodes
D.changes.forEach((c, number) => {
  if (c[0] >= 0) changesOf.has(c[0]) ? changesOf.get(c[0]).push(c) : changesOf.set(c[0], [c]);
  if (number >= LISTED) return;
  const e = element("button", changeText(c), $("list"), "p change");
  e.style.setProperty("--c", "var(--changed)");
  element("small", c[0] >= 0 ? c[5] : "the model", e);
  e.onclick = () => c[0] >= 0 && choose(c[0], null, true);
});
if (D.changes.length > LISTED) $("list").append("and " + (D.changes.length - LISTED) + " more changes, each told at its node");
if (!D.patterns.length && !D.changes.length) $("list").textContent = "no differences";
const patternOf = new Map(D.patterns.flatMap((p, i) => p[4].map((g, k) => [g, [i, k]])));

const ONE_SIDED = new Set(["removed", "added"]);

// --- choosing --------------------------------------------------------------------------------------------------------------------
const operandText = k => k >= 0 ? nameOf(items[k]) : T[-1 - k];
function tell(f, on) {
  const e = element("code", f.op + "  " + f.name + (f.type ? "  \u2192 " + f.type : "") + (f.operands.length ? "\nof " + f.operands.map(operandText).join(", ") : "") + (f.attr ? "\n" + f.attr : ""), $("info"));
  if (on) e.className = "on";
}
// group: index, null (nothing) or -1 (an input or output of the model); item: the one that was clicked; move: show it.
function choose(group, item, move) {
  chosen = group === null || group < 0 ? null : group;
  chosenItem = item;
  const info = $("info"), add = (tag, text, name) => element(tag, text, info, name);
  info.textContent = "";
  document.querySelectorAll(".p.on").forEach(e => e.classList.remove("on"));
  const members = chosen === null ? item ? [item] : [] : membersOf[chosen];
  lit = new Set((item ? [item] : members).flatMap(i => [...i.ins, ...i.outs]));
  if (tint === "memory") tellMemory(chosen, info);
  if (item && chosen === null) { add("h3", (item.a || item.b).op + " of the model"); tell(item.a || item.b) }
  else if (chosen === null) add("span", "Nothing is chosen.", "soft");
  else {
    const G = D.groups[group], at = patternOf.get(group);
    add("h3", G[0] + (at ? ", " + (at[1] + 1) + " of " + D.patterns[at[0]][4].length + " alike" : "") + (ONE_SIDED.has(G[0]) ? at && D.patterns[at[0]][5] ? ", " + D.patterns[at[0]][5] : "" : T[G[3]] && G[0] !== "same" ? ", matched by " + T[G[3]] : ""));
    if (at) { const e = $("list").children[at[0]]; e.classList.add("on"); e.scrollIntoView({block: "nearest"}) }
    for (const c of changesOf.get(group) || []) add("code", changeText(c), "change");
    for (const [k, one, title] of [[1, "rule", "show all nodes of this rule"], [2, "kernel", "show all nodes of this kernel"]]) {
      if (!G[k].length) continue;
      add("h3", one + (G[k].length > 1 ? "s" : ""));
      for (const t of G[k]) { const e = add("button", T[t]); e.title = title; e.onclick = () => search(one + ":" + T[t]) }
    }
    for (const [title, side] of [["before", "a"], ["after", "b"]]) {
      const list = members.filter(i => i[side]);
      add("h3", title + (list.length > 1 ? ", " + list.length + " nodes" : ""));
      if (!list.length) add("code", "nothing");
      for (const i of list.slice(0, 60)) tell(i[side], i === item);
      if (list.length > 60) add("code", "and " + (list.length - 60) + " more");
    }
    add("h3", "lies in");
    const path = [];
    for (let f = (item || members[0]).parent; f && f.parent; f = f.parent) path.unshift(f);
    add("span", path.map(folderTitle).join(" \u203a ") || "the model itself", "soft");
  }
  if (tint !== "memory") tellMemory(chosen, info);
  info.scrollTop = 0;
  if (move && members.length) { for (const i of members) reveal(i); centre(members) }
  remember();
  redraw();
}
// Again, of what is chosen already.
function tellInfo() { if (!restoring && (!chosenItem || chosenItem.item)) choose(chosen, chosenItem, false) }
function chooseFolder(f) {
  const info = $("info");
  chosen = null; chosenItem = f; lit = new Set();
  info.textContent = "";
  element("h3", f.kind === "series" ? copies(f) + " alike" : f.kind === "part" ? "a part of the graph" : "group", info);
  element("code", folderTitle(f), info, "on");
  element("span", f.a + " \u2192 " + f.b + " nodes: " + STATUS.filter((_, k) => f.by.o[k]).map(s => f.by.o[STATUS.indexOf(s)] + " " + s).join(", "), info);
  element("h3", "operators", info);
  element("span", operatorsOf(f, 12), info, "soft");
}

// --- searching: words are in the name or the operator; op: name: rule: kernel: status: narrow --------------------------------------
function matches(item, words) {
  const g = item.group < 0 ? null : D.groups[item.group], low = s => s.toLowerCase(), any = (list, w) => list.some(t => low(T[t]).includes(w));
  const faces = item.a === item.b || !item.a || !item.b ? [item.a || item.b] : [item.a, item.b];
  return words.every(word => {
    const [, key, w] = /^(?:(op|name|rule|kernel|status):)?(.*)$/.exec(word);
    if (!key) return faces.some(f => low(f.op).includes(w) || low(f.name).includes(w));
    if (key === "op") return w !== "" && faces.some(f => low(f.op).startsWith(w));
    if (key === "name") return faces.some(f => low(f.name).includes(w));
    if (key === "status") return g !== null && g[0].startsWith(w);
    return g !== null && any(g[key === "rule" ? 1 : 2], w);
  });
}
function search(text, quiet) {
  if ($("q").value !== text) $("q").value = text;
  const words = text.toLowerCase().split(/\s+/).filter(w => w);
  hitList = words.length ? items.filter(i => matches(i, words)) : [];
  hits = words.length ? new Set(hitList) : null;
  hitAt = -1;
  for (const f of folders) f.hits = 0;
  for (const i of hitList) for (let f = i.parent; f; f = f.parent) ++f.hits;
  if (hitList.length && !quiet) step(1);
  tellHits();
  remember();
  redraw();
}
function tellHits() { $("found").textContent = hits ? (hitList.length ? (Math.max(0, hitAt) + 1) + " of " + hitList.length : "nothing found") : "" }
function step(by) {
  if (!hitList.length) return;
  hitAt = (hitAt + by + hitList.length) % hitList.length;
  reveal(hitList[hitAt]);
  centre([hitList[hitAt]]);
  tellHits();
  redraw();
}
$("q").oninput = e => search(e.target.value);
$("q").onkeydown = e => { if (e.key === "Enter") step(e.shiftKey ? -1 : 1); if (e.key === "Escape") { search(""); e.target.blur() } };
