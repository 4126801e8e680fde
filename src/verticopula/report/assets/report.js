// What this page draws, and what its controls do.
const data = JSON.parse(byId("data").textContent);
const count = (n) => n.toLocaleString("en-GB");

// ---- theme

const THEMES = ["auto", "light", "dark"];
const themeButton = byId("theme");
let themeNow = "auto";
function dress(theme) {
  themeNow = theme;
  if (theme === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = theme;
  themeButton.textContent = "Theme: " + theme;
  drawHeat();
}
themeButton.addEventListener("click", () => dress(THEMES[(THEMES.indexOf(themeNow) + 1) % 3]));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawHeat());

// ---- who is known to whom

figure("p-missing", (self, svg, width) => {
  const strip = 20, row = 42, total = data.subjects;
  const from = self.view[0] * total, to = self.view[1] * total;
  svg.setAttribute("height", data.parties.length * row + 24);
  const toX = (v) => ((Math.min(Math.max(v, from), to) - from) / (to - from)) * width;
  const starts = [];
  let sum = 0;
  for (const pattern of data.patterns) { starts.push(sum); sum += pattern.count; }
  let marks = 0;
  data.parties.forEach((party, p) => {
    const y = p * row + 16;
    let known = 0;
    for (const pattern of data.patterns) if (pattern.known[p]) known += pattern.count;
    shape(svg, "text", { x: 0, y: y - 3, class: "label strong" }, cut(party, width * 0.6));
    shape(svg, "text", { x: width, y: y - 3, "text-anchor": "end", class: "tick" }, percent(known / total) + " known");
    shape(svg, "rect", { x: 0, y, width, height: strip, class: "empty", rx: 2 });
    data.patterns.forEach((pattern, i) => {
      const x = toX(starts[i]), end = toX(starts[i] + pattern.count);
      if (!pattern.known[p] || end <= x) return;
      shape(svg, "rect", { x, y, width: Math.max(end - x - (end - x > 3 ? 0.75 : 0), 0.4), height: strip, class: "fill solid party" + (p % 8) });
      marks += 1;
    });
  });
  const bottom = data.parties.length * row + 16;
  shape(svg, "text", { x: 0, y: bottom, class: "tick" }, count(Math.round(from)));
  shape(svg, "text", { x: width, y: bottom, "text-anchor": "end", class: "tick" }, count(Math.round(to)) + " subjects");
  watch(self, { left: 0, top: 0, width, height: bottom, zoom: true }, (share) => {
    const at = from + share * (to - from);
    let i = starts.length - 1;
    while (i > 0 && starts[i] > at) i -= 1;
    const pattern = data.patterns[i];
    const names = data.parties.filter((_, p) => pattern.known[p]);
    return [count(pattern.count) + " subjects (" + percent(pattern.count / total) + ")", pattern.known.length ? "known to " + names.join(", ") : "other patterns"];
  });
  return marks;
});

// ---- margins

const columnPick = byId("column"), shapePick = byId("shape");
const NAMES = { observed: "Observed", synthetic: "Synthetic", real: "Real" };
figure("p-margin", (self, svg, width) => {
  const column = data.columns.find((c) => c.key === columnPick.value) || data.columns[0];
  const series = Object.entries(column.series).map(([name, values]) => ({ name: NAMES[name], className: name, values }));
  const categories = !["continuous", "count"].includes(column.kind);
  legend(self.root, series.map((s) => [s.className + (categories || s.className === "synthetic" ? " block" : ""), s.name]));
  if (categories) {
    series.forEach((s) => { s.main = s.className === "synthetic"; });
    return categoryBars(self, svg, width, { labels: column.labels, series });
  }
  return histogram(self, svg, width, {
    labels: column.labels, edges: column.edges, places: shapePick.value === "cells" ? null : column.places,
    bars: series.filter((s) => s.className === "synthetic"), steps: series.filter((s) => s.className !== "synthetic"),
    cumulative: shapePick.value === "cumulative",
  });
});
function showColumn() {
  const column = data.columns.find((c) => c.key === columnPick.value) || data.columns[0];
  shapePick.disabled = !["continuous", "count"].includes(column.kind);
  shapePick.querySelector("[value=cells]").hidden = !column.places;
  if (!column.places && shapePick.value === "cells") shapePick.value = "shares";
  const lost = column.missing ? percent(column.missing) + " of the cohort without a value; a cumulative share was corrected by up to " + (100 * column.moved).toFixed(1) + " points" : "Observed for everybody";
  const called = column.title === column.column ? column.key : column.key + ", " + column.title;
  byId("margin-note").textContent = called + ": " + (column.dates ? "dates" : column.kind) + ", " + count(column.known) + " subjects. " + lost + "."
    + (column.places ? " Cells differ in width: a bar's area is its share, its height the share of a single value." : "");
  const body = byId("margin-table").tBodies[0];
  body.replaceChildren();
  for (const [name, ...values] of column.facts) {
    const row = element(body, "tr");
    element(row, "th", "", name).scope = "row";
    for (const value of values) element(row, "td", "n", value);
  }
  const self = figures.get("p-margin");
  self.view = [0, 1];
  self.redraw();
}
columnPick.addEventListener("change", showColumn);

// ---- all margins at a glance, party by party: click one to see it large

data.parties.forEach((party, p) => figure("p-glance-" + p, (self, svg, width) => {
  const own = data.columns.filter((column) => column.party === party);
  const across = Math.max(2, Math.floor(width / 165)), gap = 14, wide = (width - gap * (across - 1)) / across, row = 84, low = 66;
  svg.setAttribute("height", Math.ceil(own.length / across) * row);
  let marks = 0;
  own.forEach((column, i) => {
    const left = (i % across) * (wide + gap), top = Math.floor(i / across) * row;
    const [observed, synthetic] = ["observed", "synthetic"].map((name) => perValue(column.series[name], column.places));
    const n = synthetic.length, at = column.places || Array.from({ length: n + 1 }, (_, k) => k);
    const most = Math.max(...observed, ...synthetic, 1e-9), toX = (k) => left + (wide * (at[k] - at[0])) / (at[n] - at[0]);
    const toY = (v) => top + low - (v / most) * (low - 22);
    shape(svg, "text", { x: left, y: top + 13, class: "tick" }, cut(column.title, wide));
    synthetic.forEach((v, k) => {
      const gap = k < n - 1 ? Math.min((toX(k + 1) - toX(k)) * 0.1, 1) : 0;
      shape(svg, "rect", { x: toX(k), y: toY(v), width: Math.max(toX(k + 1) - toX(k) - gap, 0.4), height: Math.max(top + low - toY(v), 0), class: "fill synthetic" });
    });
    const path = observed.map((v, k) => (k ? "L" : "M") + toX(k).toFixed(1) + " " + toY(v).toFixed(1) + "H" + toX(k + 1).toFixed(1)).join("");
    shape(svg, "path", { d: path, class: "line thin observed" });
    shape(svg, "line", { x1: left, x2: left + wide, y1: top + low, y2: top + low, class: "axis" });
    marks += n;
  });
  const at = (share, y) => own[Math.floor(y / row) * across + Math.min(Math.floor(share * across), across - 1)];
  watch(self, { left: 0, top: 0, width, height: Math.ceil(own.length / across) * row }, (share, y) => {
    const column = at(share, y);
    return column && [column.title, count(column.known) + " subjects", column.missing ? "corrected by up to " + (100 * column.moved).toFixed(1) + " points" : "observed for everybody"];
  });
  svg.addEventListener("click", (event) => {
    const box = svg.getBoundingClientRect();
    const column = at((event.clientX - box.left) / width, event.clientY - box.top);
    if (!column) return;
    columnPick.value = column.key;
    showColumn();
    byId("p-margin").scrollIntoView({ block: "center" });
  });
  return marks;
}));
shapePick.addEventListener("change", () => figures.get("p-margin").redraw());
showColumn();

// ---- heat map: too many cells for elements, so on a canvas

const heat = byId("p-heat"), read = byId("heat-read");
const heatState = { rows: [], columns: [], cell: 0, left: 0, top: 0, cursor: null };
function entry(what, j, k) {
  if (j === k) return what === "r" ? 1 : 0;
  const [a, b] = j > k ? [j, k] : [k, j];
  const value = data.correlation[what][(a * (a - 1)) / 2 + b];
  return what === "n" ? value : value / 1000;
}
const range = (party) => (party < 0 ? [0, data.correlation.names.length] : data.correlation.parties[party].slice(1));
const partyOf = (j) => data.correlation.parties.find(([, from, to]) => j >= from && j < to)[0];
function mix(a, b, t) { return a.map((v, i) => Math.round(v + (b[i] - v) * t)); }

let printing = false;
const NUMBERED = 38; // pixels: from here on a cell has room for its number
function drawHeat() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim().split(" ").map(Number);
  const ink = printing ? "#1b1f24" : style.getPropertyValue("--ink").trim();
  const zero = colour("--heat-zero"), plus = colour("--heat-plus"), minus = colour("--heat-minus");
  const [r0, r1] = range(Number(byId("heat-rows").value)), [c0, c1] = range(Number(byId("heat-columns").value));
  const rows = r1 - r0, columns = c1 - c0, what = byId("heat-what").value;
  const room = heat.parentElement.clientWidth;
  const named = rows <= 40 && columns <= 40 && room / columns >= 9;
  context2d.font = "12px system-ui, sans-serif";
  const longest = Math.max(...data.correlation.names.slice(c0, c1).map((name) => context2d.measureText(name).width));
  const left = named ? Math.min(150, room * 0.36) : Math.min(room * 0.3, 130), top = named ? Math.min(longest + 14, 110) : 8;
  const cell = Math.max(Math.min((room - left - 2) / columns, named ? 56 : 14), 0.5);
  const width = left + cell * columns + 2, height = top + cell * rows + (named ? 6 : 96);
  const scale = Math.min(devicePixelRatio || 1, 3);
  heat.width = Math.round(width * scale);
  heat.height = Math.round(height * scale);
  heat.style.width = width + "px";
  heat.style.height = height + "px";
  const g = heat.getContext("2d");
  g.scale(scale, scale);
  const most = what === "r" ? 1 : data.correlation.se.reduce((top, v) => Math.max(top, Math.min(v / 1000, 1)), 0.05);
  for (let j = 0; j < rows; j++) for (let k = 0; k < columns; k++) {
    const value = entry(what, r0 + j, c0 + k) / most;
    const [red, green, blue] = mix(zero, value < 0 ? minus : plus, Math.min(Math.pow(Math.abs(value), 0.7), 1));
    g.fillStyle = `rgb(${red},${green},${blue})`;
    g.fillRect(left + k * cell, top + j * cell, cell + 0.35, cell + 0.35);
    if (cell < NUMBERED) continue;
    const own = entry(what, r0 + j, c0 + k);
    g.fillStyle = 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#1b1f24" : "#ffffff";
    g.font = "12px system-ui, sans-serif";
    g.textAlign = "center";
    g.textBaseline = "middle";
    g.fillText(what === "r" ? own.toFixed(2) : short(own, 2), left + (k + 0.5) * cell, top + (j + 0.5) * cell);
  }
  g.fillStyle = ink;
  g.strokeStyle = ink;
  g.textBaseline = "middle";
  if (named) {
    g.font = Math.min(12, Math.max(cell - 1, 9)) + "px system-ui, sans-serif";
    for (let j = 0; j < rows; j++) {
      g.textAlign = "right";
      g.fillText(cut(data.correlation.names[r0 + j], left - 8, g.font), left - 6, top + (j + 0.5) * cell);
    }
    for (let k = 0; k < columns; k++) {
      g.save();
      g.translate(left + (k + 0.5) * cell, top - 5);
      g.rotate(-Math.PI / 2);
      g.textAlign = "left";
      g.fillText(cut(data.correlation.names[c0 + k], top - 10, g.font), 0, 0);
      g.restore();
    }
  } else {
    g.font = "12px system-ui, sans-serif";
    for (const [name, from, to] of data.correlation.parties) {
      if (to <= r0 || from >= r1) continue;
      g.textAlign = "right";
      g.fillText(cut(name, left - 8), left - 6, top + ((Math.max(from, r0) + Math.min(to, r1)) / 2 - r0) * cell);
    }
    for (const [name, from, to] of data.correlation.parties) {
      if (to <= c0 || from >= c1) continue;
      g.save();
      g.translate(left + ((Math.max(from, c0) + Math.min(to, c1)) / 2 - c0) * cell, top + rows * cell + 6);
      g.rotate(-Math.PI / 4);
      g.textAlign = "right";
      g.fillText(cut(name, 128), 0, 0);
      g.restore();
    }
  }
  g.lineWidth = 1.5;
  for (const [, , to] of data.correlation.parties) {
    g.beginPath();
    if (to > r0 && to < r1) { g.moveTo(left, top + (to - r0) * cell); g.lineTo(left + columns * cell, top + (to - r0) * cell); }
    if (to > c0 && to < c1) { g.moveTo(left + (to - c0) * cell, top); g.lineTo(left + (to - c0) * cell, top + rows * cell); }
    g.stroke();
  }
  Object.assign(heatState, { rows: [r0, r1], columns: [c0, c1], cell, left, top });
  heat.dataset.marks = rows * columns;
  byId("heat-low").textContent = what === "r" ? "−1" : "0";
  byId("heat-high").textContent = what === "r" ? "+1" : most.toFixed(2);
  byId("heat-scale").className = what === "r" ? "both" : "one";
  if (heatState.cursor) {
    const [j, k] = heatState.cursor;
    g.lineWidth = 2.5;
    g.strokeRect(left + (k - c0) * cell, top + (j - r0) * cell, cell, cell);
  }
}
function cellText(j, k) {
  const name = (i) => partyOf(i) + "." + data.correlation.names[i];
  if (j === k) return [name(j), "with itself: 1"];
  return [name(j) + " and " + name(k), "correlation " + entry("r", j, k).toFixed(2) + ", standard error " + entry("se", j, k).toFixed(2) + ", " + count(entry("n", j, k)) + " subjects in common"];
}
function under(event) {
  const box = heat.getBoundingClientRect();
  const j = Math.floor((event.clientY - box.top - heatState.top) / heatState.cell) + heatState.rows[0];
  const k = Math.floor((event.clientX - box.left - heatState.left) / heatState.cell) + heatState.columns[0];
  const inside = j >= heatState.rows[0] && j < heatState.rows[1] && k >= heatState.columns[0] && k < heatState.columns[1];
  return inside ? [j, k] : null;
}
heat.addEventListener("pointermove", (event) => { const found = under(event); if (found) showTip(event, cellText(...found)); else hideTip(); });
heat.addEventListener("pointerdown", (event) => { const found = under(event); if (found) { showTip(event, cellText(...found)); moveCursor(found); } });
heat.addEventListener("pointerleave", hideTip);
function moveCursor(to) {
  heatState.cursor = to;
  drawHeat();
  read.textContent = cellText(...to).join(": ");
}
heat.addEventListener("keydown", (event) => {
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!step) return;
  event.preventDefault();
  const [j, k] = heatState.cursor || [heatState.rows[0] - step[0], heatState.columns[0] - step[1]];
  const inside = (v, [low, high]) => Math.min(Math.max(v, low), high - 1);
  moveCursor([inside(j + step[0], heatState.rows), inside(k + step[1], heatState.columns)]);
});
for (const id of ["heat-rows", "heat-columns", "heat-what"]) {
  byId(id).addEventListener("change", () => { heatState.cursor = null; drawHeat(); });
}
let heatWidth = 0;
new ResizeObserver(() => {
  if (heat.parentElement.clientWidth === heatWidth) return;
  heatWidth = heat.parentElement.clientWidth;
  requestAnimationFrame(drawHeat);
}).observe(heat.parentElement);
drawHeat();

// ---- convergence, errors, effects

figure("p-likelihood", (self, svg, width) => lineFigure(self, svg, width, {
  lines: [{ name: "Log-likelihood", className: "synthetic", points: data.likelihood.map((v, i) => [i + 1, v]) }],
  xText: (v) => "round " + v, dots: data.likelihood.length < 40,
}));

figure("p-expected", (self, svg, width) => {
  const { counts, edges } = data.expected;
  if (!counts) return 0;
  return histogram(self, svg, width, {
    labels: counts.map((_, i) => short(edges[i], 2) + " – " + short(edges[i + 1], 2)), edges: edges.map((v) => short(v, 2)),
    bars: [{ name: "Pairs", className: "synthetic", values: counts }], valueText: (v) => count(Math.round(v)), xTitle: "standard error of a correlation",
  });
});

figure("p-realised", (self, svg, width) => {
  const side = Math.min(width, 460), box = { left: 46, top: 8, width: side - 58, height: side - 100 };
  svg.setAttribute("height", side - 44);
  const all = data.realised.flatMap((p) => [p[2], p[3]]);
  const reach = all.reduce((top, v) => Math.max(top, Math.abs(v)), 0.2) * 1.05;
  const toX = (v) => box.left + ((v + reach) / (2 * reach)) * box.width, toY = (v) => box.top + (1 - (v + reach) / (2 * reach)) * box.height;
  const marked = ticks(-reach, reach, 5);
  axes(svg, box, { y: marked, toY, yText: (v) => v.toFixed(2).replace(/0$/, ""), x: marked.map((t) => [toX(t), t.toFixed(2).replace(/0$/, "")]), xTitle: "real (across) against synthetic (up)" });
  shape(svg, "line", { x1: toX(-reach), y1: toY(-reach), x2: toX(reach), y2: toY(reach), class: "diagonal" });
  shape(svg, "path", { d: data.realised.map((p) => "M" + toX(p[2]).toFixed(1) + " " + toY(p[3]).toFixed(1) + "h0").join(""), class: "cloud" });
  watch(self, box, (share, y) => {
    const x = box.left + share * box.width;
    let best = null, distance = 14;
    for (const p of data.realised) {
      const d = Math.hypot(toX(p[2]) - x, toY(p[3]) - y);
      if (d < distance) [best, distance] = [p, d];
    }
    return best && [best[0] + " and " + best[1], "real " + best[2].toFixed(2) + ", synthetic " + best[3].toFixed(2)];
  });
  return data.realised.length;
});

figure("p-effects", (self, svg, width) => {
  if (!data.effects.length) return 0;
  const name = width < 560 ? 0 : Math.min(width * 0.34, 240), above = name ? 0 : 16, row = 22 + above;
  const ends = data.effects.flatMap((e) => [e.value, e.low ?? e.value, e.high ?? e.value]);
  const low = Math.min(0, ...ends), high = Math.max(0, ...ends), pad = (high - low || 1) * 0.05;
  const box = { left: name + 8, top: 4, width: width - name - 16, height: row * data.effects.length };
  svg.setAttribute("height", box.height + 28);
  const toX = (v) => box.left + ((v - low + pad) / (high - low + 2 * pad)) * box.width;
  const marked = ticks(low, high, Math.max(width / 110, 3));
  for (const t of marked) {
    data.effects.forEach((_, i) => { // not through the names above the rows
      const y1 = box.top + i * row + above, y2 = box.top + (i + 1) * row;
      shape(svg, "line", { x1: toX(t), x2: toX(t), y1, y2, class: t === 0 ? "axis" : "grid" });
    });
    shape(svg, "text", { x: toX(t), y: box.top + box.height + 16, "text-anchor": "middle", class: "tick" }, short(t, 3));
  }
  data.effects.forEach((e, i) => {
    const y = box.top + i * row + above + 11, font = "13px system-ui, sans-serif";
    if (name) shape(svg, "text", { x: name, y: y + 4, "text-anchor": "end", class: "label" }, cut(e.name, name - 4, font));
    else shape(svg, "text", { x: box.left, y: y - 14, class: "label" }, cut(e.name, box.width, font));
    if (e.low !== null) shape(svg, "line", { x1: toX(e.low), x2: toX(e.high), y1: y, y2: y, class: "interval" });
    shape(svg, "circle", { cx: toX(e.value), cy: y, r: 4.5, class: "dot synthetic" });
  });
  watch(self, { ...box, left: 0, width }, (share, y) => {
    const e = data.effects[Math.floor((y - box.top) / row)];
    return e && [e.name, short(e.value) + (e.low === null ? "" : " (" + short(e.low) + " to " + short(e.high) + ")") + " per standard deviation"];
  });
  return data.effects.length;
});

// ---- not at random

const signed = (v) => (v > 0 ? "+" : "") + v;
const movingPick = byId("moving");
if (movingPick) {
  figure("p-moving", (self, svg, width) => {
    const m = data.moving[Number(movingPick.value)];
    const flat = data.deltas.map((d) => [d, m.observed]);
    legend(self.root, [["synthetic", m.key + ": " + m.statistic + ", everybody"], ["observed", "among the observed"]]);
    return lineFigure(self, svg, width, {
      lines: [{ name: "Among the observed", className: "observed", points: flat }, { name: m.statistic, className: "synthetic", points: data.deltas.map((d, i) => [d, m.values[i]]) }],
      xText: (v) => "s = " + signed(v), xTicks: width > 460 ? data.deltas : [-0.5, 0, 0.5], dots: true, days: m.dates,
    });
  });
  movingPick.addEventListener("change", () => figures.get("p-moving").redraw());
}
const movingParty = byId("moving-party");
if (movingParty) {
  const spread = new Map(data.effects.map((e) => [e.name, e]));
  figure("p-moving-fit", (self, svg, width) => {
    const part = data.movingFit.parties[Number(movingParty.value)];
    const lines = data.movingFit.features.map((name, f) => ({
      name, className: "party" + (f % 8),
      points: data.deltas.map((d, i) => [d, part.moves[i] ? part.moves[i][f] * (spread.get(name)?.sd ?? 1) : null]),
    }));
    legend(self.root, lines.map((l) => [l.className, l.name]));
    return lineFigure(self, svg, width, { lines, xText: (v) => "s = " + signed(v), xTicks: width > 460 ? data.deltas : [-0.5, 0, 0.5], dots: true, height: 260 });
  });
  movingParty.addEventListener("change", () => figures.get("p-moving-fit").redraw());
}

// ---- tables that are stacked on narrow screens: every cell knows its heading, and stays a table for readers of screens

for (const table of document.querySelectorAll("table.stack")) {
  const heads = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  table.setAttribute("role", "table");
  for (const row of table.rows) {
    row.setAttribute("role", "row");
    [...row.cells].forEach((cell, i) => {
      cell.setAttribute("role", cell.tagName === "TD" ? "cell" : cell.scope === "row" ? "rowheader" : "columnheader");
      if (cell.tagName === "TD") cell.dataset.label = cell.colSpan > 1 ? "" : heads[i];
    });
  }
}

// ---- zoom buttons and printing

for (const group of document.querySelectorAll(".zoom")) {
  group.addEventListener("click", (event) => {
    const how = event.target.dataset.by;
    if (how) zoomBy(figures.get(group.dataset.zoom), how);
  });
}
byId("print-yes").addEventListener("click", () => { document.body.classList.add("only-yes"); window.print(); });
let opened = [];
addEventListener("beforeprint", () => {
  printing = true;
  opened = [...document.querySelectorAll("details:not([open])")];
  opened.forEach((part) => { part.open = true; });
  for (const label of document.querySelectorAll(".tools label")) label.dataset.chosen = label.querySelector("select").selectedOptions[0].textContent;
  drawFor(true);
  drawHeat();
});
addEventListener("afterprint", () => {
  printing = false;
  document.body.classList.remove("only-yes");
  opened.forEach((part) => { part.open = false; });
  drawFor(false);
  drawHeat();
});
document.documentElement.dataset.ready = "yes";
