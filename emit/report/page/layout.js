// Layered layout of what one open folder holds (Sugiyama, Tagawa, Toda 1981): longest-path rows, sources pulled down to their readers,
// barycentre sweeps for the order inside a row; the places inside a row are the least-squares solution that keeps the order and the distances
// (isotonic regression, so nothing drifts). Long edges get a lane of their own between the boxes; edges over very many rows, or of a source
// that very many read, are drawn as stubs and bend no layout. Deterministic and near linear.
const PORTAL_ROWS = 40, PORTAL_READERS = 16, LANE = 12, GAP = 22, ROW_GAP = 30;

// nodes: {w, h, order, row} (row: "top" or "bottom" for ports; order: where in the file); links: [from, to], indices of nodes.
// Gives {x, y: of the middles, w, h: of the whole, from its own corner; routes: for each link {stub, at: [[x, y], ...] between the ends}}.
function layered(nodes, links) {
  const n = nodes.length, outs = nodes.map(() => []), ins = nodes.map(() => []);
  const forward = order(nodes, links);
  // Ports have rows of their own: the first and the last.
  const ports = nodes.some(v => v.row === "top"), least = nodes.map(v => ports && v.row !== "top" ? 1 : 0);
  const row = least.slice(), back = links.map(([a, b]) => forward.at[a] >= forward.at[b]);
  links.forEach(([a, b], k) => { if (!back[k]) { outs[a].push(b); ins[b].push(a) } });
  for (const i of forward.list) for (const b of outs[i]) row[b] = Math.max(row[b], row[i] + 1);
  for (const i of forward.list.slice().reverse()) {
    if (ins[i].length || !outs[i].length || nodes[i].row === "top") continue;
    row[i] = Math.max(least[i], Math.min(...outs[i].map(b => row[b])) - 1);
  }
  let last = 0;
  nodes.forEach((v, i) => { if (v.row !== "bottom") last = Math.max(last, row[i]) });
  if (nodes.some(v => v.row === "bottom")) { ++last; nodes.forEach((v, i) => { if (v.row === "bottom") row[i] = last }) }

  // One chain of lane points a source: all its readers below share it.
  const stub = (a, b) => row[b] - row[a] > PORTAL_ROWS || (row[b] - row[a] > 2 && outs[a].length > PORTAL_READERS);
  const rows = Array.from({length: last + 1}, () => []), above = nodes.map(() => []), below = nodes.map(() => []), chain = new Map();
  const width = nodes.map(v => v.w), at = row.slice();
  for (const i of forward.list) rows[row[i]].push(i);
  for (const a of forward.list) {
    let deepest = row[a] + 1;
    for (const b of outs[a]) if (!stub(a, b)) deepest = Math.max(deepest, row[b]);
    const first = at.length;
    for (let r = row[a] + 1; r < deepest; ++r) {
      const k = at.length;
      at.push(r); width.push(0); above.push([r === row[a] + 1 ? a : k - 1]); below.push([]);
      below[above[k][0]].push(k); rows[r].push(k);
    }
    if (deepest > row[a] + 1) chain.set(a, first);
    for (const b of outs[a]) {
      if (stub(a, b)) continue;
      const p = row[b] - row[a] > 1 ? first + row[b] - row[a] - 2 : a;
      above[b].push(p); below[p].push(b);
    }
  }
  const gap = (l, r) => (width[l] + width[r]) / 2 + (l < n && r < n ? GAP : LANE);
  const x = new Array(at.length).fill(0);
  for (const members of rows) { let p = 0; members.forEach((m, k) => { if (k) p += gap(members[k - 1], m); x[m] = p }); for (const m of members) x[m] -= p / 2 }
  // Least squares with the order and the gaps kept: pool adjacent violators.
  function place(members) {
    const blocks = [], offset = [];
    members.forEach((m, k) => {
      offset[k] = k ? offset[k - 1] + gap(members[k - 1], m) : 0;
      const weight = m >= n ? 4 : 1 + Math.min(above[m].length, 2);  // a lane is kept straight before a box is centred
      blocks.push([(x[m] - offset[k]) * weight, weight, 1]);
      while (blocks.length > 1) {
        const q = blocks[blocks.length - 1], p = blocks[blocks.length - 2];
        if (p[0] / p[1] <= q[0] / q[1]) break;
        blocks.pop(); p[0] += q[0]; p[1] += q[1]; p[2] += q[2];
      }
    });
    let k = 0;
    for (const [sum, weight, count] of blocks) for (let c = 0; c < count; ++c, ++k) x[members[k]] = sum / weight + offset[k];
  }
  function sweep(down, reorder) {
    for (let k = 0; k < rows.length; ++k) {
      const members = rows[down ? k : rows.length - 1 - k], want = new Array(members.length);
      members.forEach((m, i) => {
        let sum = 0, weight = 0;
        if (!reorder || down) for (const o of above[m]) { sum += x[o]; ++weight }
        if (!reorder || !down) for (const o of below[m]) { sum += x[o]; ++weight }
        want[i] = weight ? sum / weight : x[m];
      });
      members.forEach((m, i) => { x[m] = want[i] });
      if (reorder) members.sort((p, q) => x[p] - x[q]);
      place(members);
    }
  }
  for (let k = 0; k < 8; ++k) sweep(k % 2 === 0, true);
  for (let k = 0; k < 24; ++k) sweep(k % 2 === 0, false);

  // Rows get the height of their highest box.
  const high = rows.map(members => members.reduce((h, m) => m < n ? Math.max(h, nodes[m].h) : h, 0)), mid = [];
  let y = 0;
  high.forEach((h, r) => { mid.push(y + h / 2); y += h + (h ? ROW_GAP : 0) });
  let x0 = Infinity, x1 = -Infinity;
  for (let i = 0; i < at.length; ++i) { x0 = Math.min(x0, x[i] - width[i] / 2); x1 = Math.max(x1, x[i] + width[i] / 2) }
  if (!n) x0 = x1 = 0;
  const routes = links.map(([a, b], k) => {
    const route = {stub: back[k] ? false : stub(a, b), back: back[k], at: []};
    if (back[k] || route.stub || !chain.has(a)) return route;
    for (let r = row[a] + 1; r < row[b]; ++r) { const p = x[chain.get(a) + r - row[a] - 1] - x0; route.at.push([p, mid[r] - high[r] / 2], [p, mid[r] + high[r] / 2]) }
    return route;
  });
  return {x: nodes.map((_, i) => x[i] - x0), y: nodes.map((_, i) => mid[row[i]]), row, w: x1 - x0, h: Math.max(0, y - ROW_GAP), routes};
}

// A topological order; where folders read each other, which no order satisfies, what comes first in the file goes first.
function order(nodes, links) {
  const waits = nodes.map(() => 0), readers = nodes.map(() => []), at = new Array(nodes.length).fill(-1), list = [];
  for (const [a, b] of links) if (a !== b) { ++waits[b]; readers[a].push(b) }
  const by = nodes.map((_, i) => i).sort((p, q) => nodes[p].order - nodes[q].order || p - q), rank = [];
  by.forEach((i, k) => { rank[i] = k });
  const heap = [];  // of ranks
  const put = r => { let k = heap.push(r) - 1; for (; k && heap[(k - 1) >> 1] > r; k = (k - 1) >> 1) heap[k] = heap[(k - 1) >> 1]; heap[k] = r };
  const take = () => {
    const first = heap[0], r = heap.pop();
    for (let k = 0; heap.length;) { let c = 2 * k + 1; if (c + 1 < heap.length && heap[c + 1] < heap[c]) ++c; if (c >= heap.length || heap[c] >= r) { heap[k] = r; break } heap[k] = heap[c]; k = c }
    return first;
  };
  for (const i of by) if (!waits[i]) put(rank[i]);
  for (let next = 0; list.length < nodes.length;) {
    if (!heap.length) { while (at[by[next]] >= 0) ++next; put(next) }
    const i = by[take()];
    if (at[i] >= 0) continue;
    at[i] = list.length; list.push(i);
    for (const b of readers[i]) if (--waits[b] === 0) put(rank[b]);
  }
  return {at, list};
}
