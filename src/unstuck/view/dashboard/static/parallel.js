// Parallel coordinates: an axis a setting, a line a run. Drag along an axis, or click a value, to narrow the filter.
// On a narrow screen the axes lie, one below the other.
import { INK, colouring } from "./colours.js";
import { by, element, shown } from "./elements.js";
import { legend } from "./legend.js";
import { get, put } from "./state.js";
import { differing, places } from "./table.js";

const MOST_LINES = 1000, MOST_AXES = 7, MOST_VALUES = 9; // values of a setting that all get a tick
const HEIGHT = 300, NARROW = 620, LINE = 62; // pixels; LINE is the distance of lying axes
const SVG = "http://www.w3.org/2000/svg";
const RESULT = "plateau_steps";

function node(tag, attributes, text = "") {
  const made = document.createElementNS(SVG, tag);
  Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
  if (text !== "") made.textContent = text;
  return made;
}

// The place of each value on an axis, from 0 to 1, and the ticks.
function scaleOf(values) {
  const distinct = [...new Set(values.filter((v) => v !== null && v !== undefined))];
  const numbers = distinct.length > 0 && distinct.every((v) => typeof v === "number");
  distinct.sort(numbers ? (a, b) => a - b : (a, b) => String(a).localeCompare(String(b)));
  if (!numbers || distinct.length < 2) {
    const place = new Map(distinct.map((v, i) => [v, distinct.length > 1 ? i / (distinct.length - 1) : 0.5]));
    return { place: (v) => place.get(v), ticks: distinct.slice(0, MOST_VALUES), numbers: false };
  }
  const low = distinct[0], high = distinct[distinct.length - 1], log = low > 0 && high / low >= 8, f = log ? Math.log : (x) => x;
  const place = (v) => (f(v) - f(low)) / (f(high) - f(low)), back = (q) => { const x = f(low) + q * (f(high) - f(low)); return log ? Math.exp(x) : x; };
  let ticks = distinct;
  if (distinct.length > MOST_VALUES) {
    const step = 10 ** Math.floor(Math.log10((high - low) / 3)), even = Array.from({ length: 60 }, (_, i) => (Math.ceil(low / step) + i) * step).filter((v) => v <= high);
    ticks = log ? [1, 2, 5].flatMap((m) => Array.from({ length: 24 }, (_, e) => m * 10 ** (e - 12))).filter((v) => v >= low && v <= high).sort((a, b) => a - b) : even;
    while (ticks.length > MOST_VALUES) ticks = ticks.filter((_, i) => i % 2 === 0);
    if (ticks.length < 2) ticks = [low, high];
  }
  return { place, back, ticks, numbers: true };
}

// The axes: those in the address, or the settings in which the runs differ, and the plateau.
function axesOf(table, rows) {
  const at = places(table.columns), wanted = get("axes").split(",").filter((c) => c in at);
  if (wanted.length) return wanted;
  const there = rows.some((r) => r[at[RESULT]] !== null && r[at[RESULT]] !== undefined);
  const differ = differing(table, rows).filter((c) => c !== "seed" && new Set(rows.map((r) => String(r[at[c]]))).size > 1);
  return [...differ.slice(0, MOST_AXES - 1), ...(there ? [RESULT] : [])];
}

function chooser(table, rows, axes) {
  const names = [...new Set([...axes, ...differing(table, rows), "seed", RESULT, "steps", "seconds"])].filter((c) => table.columns.includes(c));
  const key = names.join(",") + axes.join(",");
  if (by("parallelaxes").dataset.key === key) return;
  by("parallelaxes").dataset.key = key;
  by("parallelaxes").replaceChildren(...names.map((name) => {
    const label = element("label"), box = element("input");
    box.type = "checkbox";
    box.checked = axes.includes(name);
    box.onchange = () => put({ axes: [...by("parallelaxes").querySelectorAll("input:checked")].map((b) => b.value).join(",") });
    box.value = name;
    label.append(box, ` ${name}`);
    return label;
  }));
}

// The filter with other conditions on a setting.
function narrowed(name, conditions) {
  const others = by("filter").value.split(/\s+/).filter((word) => word && !new RegExp(`^${name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}(<|>|=|!=)`).test(word));
  by("parallel").dispatchEvent(new CustomEvent("narrow", { detail: [...others, ...conditions].join(" ") }));
}

// Drag along an axis: from and to are places on it, from 0 to 1.
function brush(area, scale, name, placeOf) {
  let from = null;
  area.onpointerdown = (e) => { from = placeOf(e); area.setPointerCapture(e.pointerId); };
  area.onpointerup = (e) => {
    const to = placeOf(e), [low, high] = [Math.min(from, to), Math.max(from, to)].map((q) => Math.min(Math.max(q, 0), 1));
    if (from !== null && high - low > 0.02) narrowed(name, [`${name}>=${Number(scale.back(low).toPrecision(3))}`, `${name}<=${Number(scale.back(high).toPrecision(3))}`]);
    from = null;
  };
}

export function drawParallel(table, rows, setting) {
  const place = by("parallel"), width = place.clientWidth;
  if (!width || !by("paralleldetails").open) return;
  const at = places(table.columns), shownRows = rows.slice(0, MOST_LINES), axes = axesOf(table, shownRows);
  chooser(table, shownRows, axes);
  by("parallelnote").textContent = rows.length > MOST_LINES ? `The first ${MOST_LINES.toLocaleString("en-US")} of ${rows.length.toLocaleString("en-US")} runs are drawn.` : "";
  if (axes.length < 2) {
    place.replaceChildren(element("p", "note", "These runs differ in too little to be drawn side by side."));
    return legend(by("parallellegend"), []);
  }
  const lying = width < NARROW, scales = axes.map((c) => scaleOf(shownRows.map((r) => r[at[c]])));
  const height = lying ? LINE * axes.length + 10 : HEIGHT, [start, end] = lying ? [30, width - 30] : [height - 22, 34];
  const across = (i) => (lying ? 30 + i * LINE : 60 + (i * (width - 120)) / (axes.length - 1)), along = (q) => start + q * (end - start);
  const point = (i, q) => (lying ? [along(q), across(i)] : [across(i), along(q)]);
  const svg = node("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "runs by their settings" });
  const by_ = setting && setting in at ? setting : axes[axes.length - 1], hues = colouring(shownRows.map((r) => r[at[by_]]));
  shownRows.forEach((row) => {
    const points = axes.flatMap((c, i) => { const q = row[at[c]] === null || row[at[c]] === undefined ? undefined : scales[i].place(row[at[c]]); return q === undefined ? [] : [point(i, q).map((x) => x.toFixed(1)).join(",")]; });
    const line = node("polyline", { points: points.join(" "), fill: "none", stroke: hues.of(row[at[by_]]), "stroke-width": 1.3, "stroke-opacity": shownRows.length > 100 ? 0.5 : 0.85, "data-run": row[0] });
    line.append(node("title", {}, [row[0], ...axes.map((c) => `${c}=${shown(row[at[c]])}`)].join("\n")));
    svg.append(line);
  });
  axes.forEach((name, i) => axis(svg, { name, scale: scales[i], i, lying, point, along, start, end }));
  place.replaceChildren(svg);
  const few = hues.entries.length > 8 ? [hues.entries[0], hues.entries[hues.entries.length >> 1], hues.entries[hues.entries.length - 1]] : hues.entries;
  return legend(by("parallellegend"), few.map(([v, colour]) => ({ text: `${by_}=${shown(v)}`, colour })), hues.entries.length > 8 ? "from small to large:" : "");
}

function axis(svg, { name, scale, i, lying, point, start, end }) {
  const [x0, y0] = point(i, 0), [x1, y1] = point(i, 1);
  svg.append(node("line", { x1: x0, y1: y0, x2: x1, y2: y1, stroke: INK, "stroke-width": 1 }));
  svg.append(node("text", lying ? { x: 4, y: y0 - 12, class: "axis" } : { x: x0, y: 14, class: "axis", "text-anchor": "middle" }, name));
  const area = node("rect", lying ? { x: x0 - 8, y: y0 - 10, width: x1 - x0 + 16, height: 20, class: "brush" } : { x: x0 - 12, y: y1 - 8, width: 24, height: y0 - y1 + 16, class: "brush" });
  const place = svg.getBoundingClientRect.bind(svg);
  if (scale.numbers) brush(area, scale, name, (e) => { const box = place(); return ((lying ? e.clientX - box.left : e.clientY - box.top) - start) / (end - start); });
  svg.append(area);
  let last = -Infinity;
  scale.ticks.forEach((value) => {
    const [x, y] = point(i, scale.place(value)), text = shown(value).slice(0, 18), room = lying ? 7 * text.length + 8 : 13, where = lying ? x : -y;
    if (where - last < room) return; // ticks that would stand on one another
    last = where;
    const label = node("text", lying ? { x, y: y + 22, class: "tick", "text-anchor": "middle" } : { x: x + 7, y: y + 4, class: "tick" }, text);
    label.onclick = () => narrowed(name, [`${name}=${value}`]);
    svg.append(node("circle", { cx: x, cy: y, r: 2.2, fill: INK, "pointer-events": "none" }), label);
  });
}

by("paralleldetails").addEventListener("toggle", () => {
  put({ parallel: by("paralleldetails").open ? null : 0 });
  by("parallelaxes").dispatchEvent(new Event("change"));
});
if (get("parallel") === "0") by("paralleldetails").open = false;
