"use strict";
// Small figures in SVG. Names only ever become text nodes; colours come from the style sheet, so themes need no redrawing.
const NS = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);

function shape(parent, name, attributes, text) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent.appendChild(made);
  return made;
}

function element(parent, name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  parent.appendChild(made);
  return made;
}

function short(value, digits) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (value !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(Math.max((digits || 3) - 1, 0));
  return Number(value.toPrecision(digits || 3)).toLocaleString("en-GB", { maximumFractionDigits: 8 });
}
const dayText = (day) => new Date(Math.round(day) * 864e5).toISOString().slice(0, 10); // days since 1970-01-01
const percent = (share) => (share > 0 && share < 0.0005 ? "< 0.1 %" : (100 * share).toFixed(1) + " %");

const context2d = document.createElement("canvas").getContext("2d");
function cut(text, width, font) {
  context2d.font = font || "12px system-ui, sans-serif";
  if (context2d.measureText(text).width <= width) return text;
  const letters = Array.from(text);
  let low = 0, high = letters.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context2d.measureText(letters.slice(0, middle).join("") + "…").width <= width) low = middle; else high = middle - 1;
  }
  return letters.slice(0, low).join("") + "…";
}

function ticks(low, high, wanted) {
  const span = high - low || Math.abs(high) || 1;
  const rough = span / Math.max(wanted, 1);
  const power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const found = [];
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + step * 1e-9; tick += step) {
    found.push(Math.abs(tick) < step * 1e-9 ? 0 : tick);
  }
  return found;
}

// ---- the tip that follows pointer or finger

const tip = byId("tip");
function showTip(event, lines) {
  tip.replaceChildren();
  lines.forEach((line, i) => element(tip, "div", i ? "" : "head", line));
  tip.hidden = false;
  const room = document.documentElement.clientWidth;
  const left = Math.min(Math.max(event.clientX + 12, 8), Math.max(room - tip.offsetWidth - 8, 8));
  const above = event.clientY - tip.offsetHeight - 12;
  tip.style.left = left + "px";
  tip.style.top = (above > 4 ? above : event.clientY + 18) + "px";
}
const hideTip = () => { tip.hidden = true; };
document.addEventListener("scroll", hideTip, { passive: true });
document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });

// ---- a figure: drawn at its real width, again when that changes, with a window [from, to] of 0..1 to zoom

const figures = new Map();
const PAPER = 690; // pixels between the margins of A4 and Letter, about: text has its own size there
let onPaper = false;
function drawFor(paper) {
  onPaper = paper;
  for (const self of figures.values()) self.redraw();
}
function figure(id, draw) {
  const root = byId(id);
  if (!root) return;
  const self = { root, view: [0, 1], width: 0, redraw: null };
  self.redraw = () => {
    self.width = onPaper ? PAPER : Math.max(root.clientWidth, 200);
    root.replaceChildren();
    const svg = shape(root, "svg", { width: self.width, "aria-hidden": "true" });
    self.svg = svg;
    self.plot = { left: 0, width: self.width };
    const marks = draw(self, svg, self.width) || 0;
    svg.setAttribute("viewBox", "0 0 " + self.width + " " + (svg.getAttribute("height") || 60)); // paper has another width
    root.dataset.marks = marks;
  };
  figures.set(id, self);
  self.redraw();
  let pending = 0;
  new ResizeObserver(() => {
    if (onPaper || root.clientWidth === self.width) return;
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(self.redraw);
  }).observe(root);
}

function zoomBy(self, how) {
  let [from, to] = self.view;
  const span = to - from, middle = (from + to) / 2;
  if (how === "all") [from, to] = [0, 1];
  if (how === "in") [from, to] = [middle - span / 4, middle + span / 4];
  if (how === "out") [from, to] = [middle - span, middle + span];
  if (how === "left") [from, to] = [from - span / 4, to - span / 4];
  if (how === "right") [from, to] = [from + span / 4, to + span / 4];
  setView(self, from, to);
}
function setView(self, from, to) {
  const span = Math.min(Math.max(to - from, 0.01), 1);
  const start = Math.min(Math.max(from, 0), 1 - span);
  self.view = [start, start + span];
  hideTip();
  self.redraw();
}

// A strip over the plot that reads values under the pointer and zooms where it is dragged.
function watch(self, box, read) {
  const pane = shape(self.svg, "rect", { x: box.left, y: box.top, width: box.width, height: box.height, class: "pane" });
  let start = null, band = null;
  const at = (event) => Math.min(Math.max((event.clientX - self.svg.getBoundingClientRect().left - box.left) / box.width, 0), 1);
  const down = (event) => { if (box.zoom && event.pointerType === "mouse") { start = at(event); pane.setPointerCapture(event.pointerId); } };
  const move = (event) => {
    if (start !== null && Math.abs(at(event) - start) > 0.02) {
      if (!band) band = shape(self.svg, "rect", { y: box.top, height: box.height, class: "band" });
      band.setAttribute("x", box.left + Math.min(start, at(event)) * box.width);
      band.setAttribute("width", Math.abs(at(event) - start) * box.width);
      hideTip();
      return;
    }
    const said = read(at(event), event.clientY - self.svg.getBoundingClientRect().top);
    if (said) showTip(event, said); else hideTip();
  };
  pane.addEventListener("pointerdown", (event) => { down(event); move(event); });
  pane.addEventListener("pointermove", move);
  pane.addEventListener("pointerleave", () => { if (start === null) hideTip(); });
  pane.addEventListener("pointerup", (event) => {
    const end = at(event);
    if (start !== null && Math.abs(end - start) > 0.02) {
      const [from, to] = self.view, span = to - from;
      const [low, high] = [Math.min(start, end), Math.max(start, end)];
      start = null;
      setView(self, from + low * span, from + high * span);
    }
    start = null;
  });
}

// Labels along an axis, without those that would touch the one before; the first and the last always stay.
function thin(labels) {
  context2d.font = "12px system-ui, sans-serif";
  const span = ([x, text, anchor]) => {
    const wide = context2d.measureText(text).width;
    const left = x - { start: 0, middle: wide / 2, end: wide }[anchor || "middle"];
    return [left, left + wide];
  };
  const kept = [];
  labels.forEach((label, i) => {
    const touches = () => kept.length && span(label)[0] < span(kept[kept.length - 1])[1] + 8;
    if (i === labels.length - 1) while (kept.length > 1 && touches()) kept.pop();
    if (touches()) return;
    kept.push(label);
  });
  return kept;
}

function axes(svg, box, options) {
  for (const tick of options.y || []) {
    const y = options.toY(tick);
    shape(svg, "line", { x1: box.left, x2: box.left + box.width, y1: y, y2: y, class: tick === 0 ? "axis" : "grid" });
    shape(svg, "text", { x: box.left - 6, y: y + 4, "text-anchor": "end", class: "tick" }, options.yText(tick));
  }
  for (const [x, text, anchor] of thin(options.x || [])) {
    shape(svg, "text", { x, y: box.top + box.height + 16, "text-anchor": anchor || "middle", class: "tick" }, text);
  }
  if (options.xTitle) {
    shape(svg, "text", { x: box.left + box.width / 2, y: box.top + box.height + 34, "text-anchor": "middle", class: "title" }, options.xTitle);
  }
}

function legend(root, entries) {
  const list = element(root, "div", "legend");
  for (const [className, text] of entries) {
    const item = element(list, "span", "");
    element(item, "i", "key " + className);
    item.appendChild(document.createTextNode(text));
  }
}

// ---- kinds of figures

// lines: [{name, className, points: [[x, y], ...]}]
function lineFigure(self, svg, width, { lines, height, xText, dots, xTicks, days }) {
  const all = lines.flatMap((line) => line.points).filter((p) => p[1] !== null);
  if (!all.length) return 0;
  let [low, high] = [Math.min(...all.map((p) => p[1])), Math.max(...all.map((p) => p[1]))];
  const pad = (high - low || Math.abs(high) * 0.1 || 1) * 0.08;
  [low, high] = [low - pad, high + pad];
  const [first, last] = [Math.min(...all.map((p) => p[0])), Math.max(...all.map((p) => p[0]))];
  const marked = ticks(low, high, 5);
  const step = marked.length > 1 ? marked[1] - marked[0] : 1;
  const places = Math.min(Math.max(0, -Math.floor(Math.log10(step) + 1e-9) + (step / Math.pow(10, Math.floor(Math.log10(step) + 1e-9)) === 2.5 ? 1 : 0)), 8);
  const plain = (v) => v.toLocaleString("en-GB", { minimumFractionDigits: places, maximumFractionDigits: places });
  const yText = days ? dayText : plain;
  const left = 14 + Math.max(...marked.map((t) => yText(t).length)) * 7;
  const box = { left, top: 10, width: width - left - 4, height: (height || 220) - 34 };
  svg.setAttribute("height", height || 220);
  const inner = 12;
  const toX = (v) => box.left + inner + (last === first ? 0.5 : (v - first) / (last - first)) * (box.width - 2 * inner);
  const toY = (v) => box.top + (1 - (v - low) / (high - low)) * box.height;
  const under = (xTicks || ticks(first, last, Math.max(width / 90, 3)).filter((t) => Number.isInteger(t))).map((t) => [toX(t), xText(t), "middle"]);
  if (under.length > 1) [under[0][2], under[under.length - 1][2]] = ["start", "end"];
  axes(svg, box, { y: marked, toY, yText, x: under });
  let marks = 0;
  for (const line of lines) {
    const points = line.points.filter((p) => p[1] !== null);
    shape(svg, "path", { d: "M" + points.map((p) => toX(p[0]).toFixed(1) + " " + toY(p[1]).toFixed(1)).join("L"), class: "line " + line.className });
    if (dots) for (const p of points) shape(svg, "circle", { cx: toX(p[0]), cy: toY(p[1]), r: 3.5, class: "dot " + line.className });
    marks += points.length;
  }
  watch(self, box, (share, y) => {
    let best = null, distance = Infinity;
    for (const line of lines) for (const p of line.points) {
      if (p[1] === null) continue;
      const d = Math.hypot(toX(p[0]) - box.left - share * box.width, toY(p[1]) - y);
      if (d < distance) [best, distance] = [[line, p], d];
    }
    return [best[0].name, xText(best[1][0]) + ": " + (days ? dayText(best[1][1]) : short(best[1][1], 4))];
  });
  return marks;
}

// Where cells differ in width, bars are as wide as their cells and as high as their share of one value: areas are shares.
const perValue = (values, places) => (places ? values.map((v, i) => v / (places[i + 1] - places[i])) : values);

// bars side by side over an ordered range; lines over them. `edges` has a text for every place where two bars meet,
// `places` a number where bars differ in width.
function histogram(self, svg, width, { labels, edges, places, bars, steps, cumulative, xTitle, valueText }) {
  const height = 260, n = labels.length;
  svg.setAttribute("height", height);
  const at = places || Array.from({ length: n + 1 }, (_, i) => i);
  const add = (values) => { let sum = 0; return cumulative ? values.map((v) => (sum += v)) : perValue(values, places); };
  const fills = bars.map((b) => ({ ...b, values: add(b.values) }));
  const over = (steps || []).map((s) => ({ ...s, values: add(s.values) }));
  const barAt = (place) => Math.max(at.findLastIndex((edge) => edge <= place), 0);
  const [first, last] = self.view.map((share) => at[0] + share * (at[n] - at[0]));
  const from = Math.min(barAt(first + 1e-9), n - 1), to = Math.max(Math.min(barAt(last - 1e-9) + 1, n), from + 1);
  const top = Math.max(...[...fills, ...over].flatMap((s) => s.values.slice(from, to)), 1e-9) * 1.05;
  const box = { left: 52, top: 10, width: width - 52 - 12, height: height - (xTitle ? 56 : 40), zoom: true };
  const toX = (i) => box.left + ((at[i] - at[from]) / (at[to] - at[from])) * box.width;
  const toY = (v) => box.top + (1 - v / top) * box.height;
  const wanted = Math.min(Math.max(2, Math.floor(box.width / 80)), to - from);
  const under = [];
  for (let k = 0; k < wanted; k++) {
    const i = Math.min(barAt(at[from] + ((k + (edges ? 0 : 0.5)) * (at[to] - at[from])) / wanted), to - 1);
    under.push([edges ? toX(i) : (toX(i) + toX(i + 1)) / 2, cut(edges ? edges[i] : labels[i], box.width / wanted - 6), edges && k === 0 ? "start" : "middle"]);
  }
  if (edges) under.push([toX(to), edges[to], "end"]);
  const digits = top < 0.002 ? 2 : top < 0.02 ? 1 : 0;
  axes(svg, box, { y: ticks(0, top, 4), toY, yText: valueText || ((v) => (100 * v).toFixed(digits) + " %"), x: under, xTitle });
  let marks = 0;
  for (const series of fills) for (let i = from; i < to; i++) {
    const y = toY(series.values[i]), wide = toX(i + 1) - toX(i);
    shape(svg, "rect", { x: toX(i) + Math.min(wide * 0.06, 1), y, width: Math.max(wide - Math.min(wide * 0.12, 2), 0.5), height: Math.max(box.top + box.height - y, 0), class: "fill " + series.className });
    marks += 1;
  }
  for (const series of over) {
    let path = "";
    for (let i = from; i < to; i++) path += (i === from ? "M" : "L") + toX(i).toFixed(1) + " " + toY(series.values[i]).toFixed(1) + "H" + toX(i + 1).toFixed(1);
    shape(svg, "path", { d: path, class: "line " + series.className });
    marks += to - from;
  }
  watch(self, box, (share) => {
    const i = Math.min(barAt(at[from] + share * (at[to] - at[from])), to - 1);
    const say = valueText || percent, shown = (s) => s.values[i] * (places && !cumulative ? at[i + 1] - at[i] : 1);
    return [(cumulative ? "up to " : "") + labels[i], ...[...fills, ...over].map((s) => s.name + ": " + say(shown(s)))];
  });
  return marks;
}

// one row per category, a bar per series
function categoryBars(self, svg, width, { labels, series, note }) {
  const n = labels.length, thick = 8;
  const from = Math.min(Math.floor(self.view[0] * n + 1e-9), n - 1), to = Math.max(Math.ceil(self.view[1] * n - 1e-9), from + 1);
  const row = series.length * (thick + 2) + 12;
  const name = Math.min(Math.max(width * 0.34, 90), 240);
  const top = Math.max(...series.flatMap((s) => s.values.slice(from, to)), 1e-9);
  const box = { left: name + 8, top: 4, width: width - name - 70, height: row * (to - from), zoom: false };
  svg.setAttribute("height", box.height + 12);
  let marks = 0;
  for (let i = from; i < to; i++) {
    const y = box.top + (i - from) * row;
    shape(svg, "text", { x: name, y: y + row / 2 + 2, "text-anchor": "end", class: "label" }, cut(labels[i], name - 4, "13px system-ui, sans-serif"));
    series.forEach((s, k) => {
      const long = Math.max((s.values[i] / top) * box.width, 0.5);
      shape(svg, "rect", { x: box.left, y: y + 6 + k * (thick + 2), width: long, height: thick, rx: 1.5, class: "fill solid " + s.className });
      if (s.main) shape(svg, "text", { x: box.left + long + 6, y: y + 6 + k * (thick + 2) + thick, class: "tick" }, percent(s.values[i]));
      marks += 1;
    });
  }
  shape(svg, "line", { x1: box.left, x2: box.left, y1: box.top, y2: box.top + box.height, class: "axis" });
  watch(self, { ...box, left: 0, width }, (share, y) => {
    const i = from + Math.floor((y - box.top) / row);
    return i >= from && i < to ? [labels[i], ...series.map((s) => s.name + ": " + percent(s.values[i]))] : null;
  });
  return marks;
}
