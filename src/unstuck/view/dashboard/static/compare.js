// Compare: choose runs in a table, draw their curves side by side, and all settings as parallel coordinates.
import { CONFIG, LAYOUT, linear, log, range } from "./axes.js";
import { colouring, colourOf, dashOf } from "./colours.js";
import { drawMarks, drawZones, joined, smooth, together } from "./curves.js";
import { by, choices, plain, shown } from "./elements.js";
import { legend } from "./legend.js";
import { drawParallel } from "./parallel.js";
import { fetchCurves, known, table, update } from "./runs.js";
import { busy } from "./server.js";
import { all, get, put } from "./state.js";
import { differing, labels, places, tableOf } from "./table.js";

const MOST_ROWS = 1000, MOST_CURVES = 60, FIRST = 3;
const order = { name: null, up: true }, chosen = new Set();
let begun = false, shownRows = [];

const rowsOf = () => table.rows.filter((row) => chosen.has(row[0])).slice(0, MOST_CURVES);
const keep = () => put({ run: [...chosen].slice(0, MOST_CURVES), none: chosen.size ? null : 1 });

function showTable() {
  shownRows = tableOf(table, order, chosen, MOST_ROWS, () => { put({ sort: order.name && `${order.up ? "" : "-"}${order.name}` }); showTable(); }, () => { keep(); draw(); });
  by("empty").hidden = table.rows.length > 0;
  colours();
  drawParallel(table, shownRows, get("colour"));
}

// What lines can be coloured by: the run, or any setting in which the runs of the filter differ.
function colours() {
  const settings = differing(table, shownRows);
  choices(by("colour"), { "": "run", ...Object.fromEntries(settings.map((s) => [s, s])) }, get("colour"));
}

// What is drawn: one line a run, or one a group of runs that differ in nothing but the seed.
function lines(rows, measure) {
  const at = places(table.columns), grouped = by("seeds").checked, width = Number(by("smooth").value);
  const setting = by("colour").value, groups = new Map();
  const names = labels(table, rows, grouped ? ["seed"] : []);
  rows.forEach((row, i) => {
    const curve = known(row[0]).curve;
    if (!curve[measure]) return;
    const key = grouped ? table.settings.filter((c) => c !== "seed").map((c) => shown(row[at[c]])).join("\n") : row[0];
    const group = groups.get(key) || { name: names[i], rows: [], curves: [] };
    group.rows.push(row);
    group.curves.push({ x: curve.step, y: smooth(curve[measure], width) });
    groups.set(key, group);
  });
  const found = [...groups.values()], values = found.map((g) => g.rows[0][at[setting]] ?? null);
  const hues = colouring(values);
  return found.map((g, i) => ({
    ...g, name: grouped ? g.name.replace(/^\S+ (?=\S+=)/, "") : g.name, value: values[i], colour: setting ? hues.of(values[i]) : colourOf(i), dash: setting ? "solid" : dashOf(i),
    note: grouped ? `${g.rows.length} ${g.rows.length === 1 ? "seed" : "seeds"}` : "", setting, entries: hues.entries,
  }));
}

const faint = (hex) => `rgba(${[1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)).join(",")},0.15)`;

function traces(groups) {
  return groups.flatMap(({ name, curves, colour, dash, rows }) => {
    const words = { hovertemplate: `${plain(name)}<br>step %{x:,}<br>%{y:.4g}<extra>${plain(rows.map((r) => r[0]).slice(0, 3).join(", "))}</extra>`, mode: "lines" };
    if (curves.length === 1) return [{ ...words, ...curves[0], run: true, line: { color: colour, dash, width: 1.9 } }];
    const { x, mean, low, high } = together(curves), edge = { mode: "lines", line: { width: 0 }, hoverinfo: "skip" };
    return [{ ...edge, x, y: low }, { ...edge, x, y: high, fill: "tonexty", fillcolor: faint(colour) }, { ...words, x, y: mean, run: true, line: { color: colour, dash, width: 2.2 } }];
  });
}

// The end of each plateau, as a dot on its line.
function ends(groups, drawn) {
  const at = places(table.columns), dots = groups.flatMap((g) => g.rows.flatMap((row, i) => {
    const end = row[at.plateau_steps], { x, y } = g.curves[i];
    const k = typeof end === "number" ? x.findIndex((s) => s >= end) : -1;
    return k < 0 || y[k] === null ? [] : [{ x: end, y: y[k], colour: g.colour }];
  }));
  if (dots.length) drawn.push({ x: dots.map((d) => d.x), y: dots.map((d) => d.y), mode: "markers", marker: { color: dots.map((d) => d.colour), size: 8, line: { color: "#fff", width: 1 } }, hovertemplate: "left its plateau at step %{x:,.0f}<extra></extra>" });
  return dots.length;
}

function entries(groups, dots, zones) {
  const { setting, entries: hues } = groups[0], has = (value) => groups.some((g) => g.value === value);
  const found = setting ? [...hues.filter(([v]) => has(v)).map(([v, colour]) => ({ text: `${setting}=${shown(v)}`, colour, note: counted(groups, v) })), ...(has(null) ? [{ text: `without ${setting}`, colour: groups.find((g) => g.value === null).colour }] : [])]
    : groups.map(({ name, colour, dash, note }) => ({ text: name, colour, dash, note }));
  const hints = [dots ? "● end of the plateau" : "", groups.some((g) => g.curves.length > 1) ? "band: lowest to highest seed" : "", zones ? "zone: expected exit" : ""].filter(Boolean);
  legend(by("curvelegend"), found, hints.join("; "));
}

const counted = (groups, value) => {
  const n = groups.filter((g) => g.value === value).length;
  return n > 1 ? `${n} lines` : "";
};

let drawing = 0;
async function draw() {
  const mine = ++drawing, rows = rowsOf();
  await busy(() => fetchCurves(rows));
  if (mine !== drawing) return; // another choice was made meanwhile
  const there = new Set(rows.flatMap((row) => Object.keys(known(row[0]).curve)));
  there.delete("step");
  choices(by("measure"), Object.fromEntries([...there].map((m) => [m, table.measures[m] || m]).sort((a, b) => rank(a[0]) - rank(b[0]))), get("measure"));
  const measure = by("measure").value, groups = measure ? lines(rows, measure) : [];
  by("curvenote").textContent = !chosen.size ? "Choose runs in the table." : !groups.length ? "These runs have no curve." : chosen.size > MOST_CURVES ? `The first ${MOST_CURVES} of ${chosen.size} chosen runs are drawn.` : "";
  by("curvepanel").hidden = !groups.length;
  if (!groups.length) return;
  const logx = by("logx").checked, logy = by("logy").checked, drawn = traces(groups), curves = drawn.filter((t) => t.run);
  const dots = ends(groups, drawn), wanted = by("zone").checked ? groups.flatMap((g) => g.rows.map((r) => ({ ...known(r[0]).expected, colour: g.colour }))).filter((z) => z.low) : [];
  const marks = rows.flatMap((row) => known(row[0]).marks).filter((m) => m.measure === measure && (!logy || m.y > 0));
  const title = table.measures[measure] || measure;
  Plotly.react("curve", drawn, {
    ...LAYOUT, uirevision: `${measure} ${logx} ${logy}`, ...joined(drawZones(wanted.map((z) => ({ ...z, label: "expected exit" })), logx, wanted.length < 4), drawMarks(marks, logy)),
    xaxis: logx ? log(curves.flatMap((c) => c.x), "step") : linear("step", { rangemode: "tozero" }),
    yaxis: logy ? log(curves.flatMap((c) => c.y), title) : linear(title, range(curves)),
  }, CONFIG);
  entries(groups, dots, wanted.length);
}

const rank = (measure) => { const i = Object.keys(table.measures).indexOf(measure); return i < 0 ? 99 : i; };

// The controls as the address has them.
function restore() {
  by("filter").value = get("filter");
  for (const name of ["seeds", "logx", "logy"]) by(name).checked = get(name) === "1";
  by("zone").checked = get("zone") !== "0";
  by("smooth").value = get("smooth", "0");
  const sort = get("sort");
  order.name = sort.replace(/^-/, "") || null;
  order.up = !sort.startsWith("-");
  chosen.clear();
  all("run").forEach((run) => chosen.add(run));
}

export async function compare(opened) {
  if (opened) restore();
  const first = () => {
    if (!chosen.size && !get("none")) table.rows.slice(0, FIRST).forEach((row) => chosen.add(row[0]));
    showTable();
  };
  const changed = begun ? await update(first) : await busy(() => update(first));
  begun = true;
  if (!changed && !opened) return;
  first();
  await draw();
}

by("filter").oninput = () => { put({ filter: by("filter").value.trim() }); showTable(); };
by("clear").onclick = () => { chosen.clear(); keep(); showTable(); draw(); };
by("chooseall").onclick = () => { shownRows.slice(0, MOST_CURVES).forEach((row) => chosen.add(row[0])); keep(); showTable(); draw(); };
by("measure").onchange = () => { put({ measure: by("measure").value }); draw(); };
by("colour").onchange = () => { put({ colour: by("colour").value }); drawParallel(table, shownRows, get("colour")); draw(); };
by("smooth").oninput = () => { put({ smooth: by("smooth").value === "0" ? null : by("smooth").value }); draw(); };
for (const name of ["seeds", "logx", "logy"]) by(name).onchange = () => { put({ [name]: by(name).checked ? 1 : null }); draw(); };
by("zone").onchange = () => { put({ zone: by("zone").checked ? null : 0 }); draw(); };
by("parallel").addEventListener("narrow", (e) => { by("filter").value = e.detail; by("filter").oninput(); });
by("parallelaxes").addEventListener("change", () => drawParallel(table, shownRows, get("colour")));
window.addEventListener("resize", () => { if (begun && !by("tab-compare").hidden) drawParallel(table, shownRows, get("colour")); });
