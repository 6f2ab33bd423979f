"use strict";
// The page's own script: a table, curves, laws, maps. What comes from run files is only ever set as text.
const DATA = JSON.parse(document.getElementById("data").textContent);
const by = (id) => document.getElementById(id);
const PALETTE = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#222222", "#8C6D1F"];
const LAYOUT = { margin: { l: 60, r: 20, t: 30, b: 50 }, font: { family: "system-ui, sans-serif", size: 13 }, hovermode: "closest" };
const CONFIG = { displaylogo: false, responsive: true };
// plotly reads a little HTML in labels; names are to be shown as they are.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

function option(select, value, text) {
  const node = document.createElement("option");
  node.value = value;
  node.textContent = text;
  select.append(node);
}

// -- the table
const column = Object.fromEntries(DATA.columns.map((name, i) => [name, i]));
let order = { at: -1, up: true }, chosen = new Set();
const shown = (v) => (v === null ? "–" : typeof v === "number" ? String(Number(v.toPrecision(5))) : String(v));

function matches(row, words) {
  return words.every((word) => {
    const [key, value] = word.split("=");
    if (value !== undefined && key in column) return shown(row[column[key]]) === value;
    return row.some((v) => shown(v).toLowerCase().includes(word.toLowerCase()));
  });
}

function visible() {
  const words = by("filter").value.split(/\s+/).filter(Boolean);
  const rows = DATA.rows.filter((row) => matches(row, words));
  if (order.at < 0) return rows;
  const sign = order.up ? 1 : -1;
  return rows.sort((a, b) => {
    const x = a[order.at], y = b[order.at];
    if (x === null || y === null) return (x === null) - (y === null);
    return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
  });
}

function header() {
  const line = document.createElement("tr");
  DATA.columns.forEach((name, i) => {
    const cell = document.createElement("th");
    cell.textContent = name;
    cell.tabIndex = 0;
    cell.onclick = () => {
      order = { at: i, up: order.at === i ? !order.up : true };
      [...line.children].forEach((c) => c.removeAttribute("aria-sort"));
      cell.setAttribute("aria-sort", order.up ? "ascending" : "descending");
      body();
    };
    cell.onkeydown = (e) => { if (e.key === "Enter") cell.click(); };
    line.append(cell);
  });
  document.querySelector("#table thead").append(line);
}

function body() {
  const rows = visible();
  const lines = rows.slice(0, 2000).map((row) => {
    const line = document.createElement("tr");
    row.forEach((value) => {
      const cell = document.createElement("td");
      cell.textContent = shown(value);
      line.append(cell);
    });
    line.setAttribute("aria-selected", chosen.has(row[0]));
    line.onclick = () => {
      if (!chosen.delete(row[0])) chosen.add(row[0]);
      line.setAttribute("aria-selected", chosen.has(row[0]));
      curves();
    };
    return line;
  });
  document.querySelector("#table tbody").replaceChildren(...lines);
  const more = rows.length > lines.length ? `, the first ${lines.length} shown` : "";
  by("count").textContent = `${rows.length} of ${DATA.rows.length} runs${more}`;
}

// -- curves
function label(row) {
  const skip = new Set(["run_id", "status", "plateau_steps", "steps", "seconds"]);
  const parts = DATA.columns.filter((c) => !skip.has(c) && row[column[c]] !== null).map((c) => `${c}=${shown(row[column[c]])}`);
  return parts.slice(0, 6).join(" ") || row[0];
}

function curves() {
  const measure = by("measure").value;
  const traces = [];
  DATA.rows.filter((row) => chosen.has(row[0])).slice(0, 40).forEach((row, i) => {
    const curve = DATA.curves[row[0]];
    if (!curve || !curve[measure]) return;
    const colour = PALETTE[i % PALETTE.length], name = plain(label(row));
    traces.push({ x: curve.step, y: curve[measure], mode: "lines", name, line: { color: colour, width: 1.8 } });
    const end = row[column.plateau_steps];
    if (end !== null && end !== undefined) {
      const k = Math.max(0, curve.step.findIndex((s) => s >= end));
      traces.push({ x: [end], y: [curve[measure][k]], mode: "markers", marker: { color: colour, size: 9 }, showlegend: false, name });
    }
  });
  const at = column.threshold, lines = new Set();
  if (at !== undefined && ["test_loss", "test_accuracy"].includes(measure))
    DATA.rows.filter((row) => chosen.has(row[0]) && row[at] !== null).forEach((row) => lines.add(row[at]));
  const shapes = [...lines].map((y) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line: { dash: "dash", color: "#999", width: 1 } }));
  const empty = traces.length ? [] : [{ text: "choose runs in the table", showarrow: false, font: { size: 16, color: "#888" } }];
  Plotly.react("curve", traces, {
    ...LAYOUT, shapes, annotations: empty,
    xaxis: { title: { text: "step" }, type: by("log").checked ? "log" : "linear" },
    yaxis: { title: { text: DATA.measures[measure] }, rangemode: "tozero" },
  }, CONFIG);
}

// -- laws
function law() {
  const found = DATA.laws[by("law").value];
  by("lawtext").textContent = `${found.text}   R² = ${found.r2.toFixed(3)}, ${found.n} runs that emerged, ${found.censored} that did not`;
  by("terms").replaceChildren(...found.terms.map(([term, x, low, high]) => {
    const line = document.createElement("tr");
    [term, x.toFixed(3), `${low.toFixed(3)} to ${high.toFixed(3)}`].forEach((text) => {
      const cell = document.createElement("td");
      cell.textContent = text;
      line.append(cell);
    });
    return line;
  }));
  const names = found.run_id.map(plain);
  const ends = [Math.min(...found.measured) * 0.9, Math.max(...found.measured) * 1.1];
  const dots = { mode: "markers", text: names, marker: { color: PALETTE[0], size: 7 }, showlegend: false };
  Plotly.react("fit", [{ ...dots, x: found.measured, y: found.said }, { x: ends, y: ends, mode: "lines", line: { color: "#999", width: 1 }, showlegend: false, hoverinfo: "skip" }],
    { ...LAYOUT, xaxis: { type: "log", title: { text: "measured plateau" } }, yaxis: { type: "log", title: { text: "by the law" } } }, CONFIG);
  const off = found.measured.map((m, i) => 100 * (m / found.said[i] - 1));
  Plotly.react("residuals", [{ ...dots, x: found.said, y: off }],
    { ...LAYOUT, xaxis: { type: "log", title: { text: "by the law" } }, yaxis: { title: { text: "measured above the law (%)" }, zeroline: true } }, CONFIG);
}

// -- attention
function bytes(found) {
  if (!found.bytes) found.bytes = Uint8Array.from(atob(found.data), (c) => c.charCodeAt(0));
  return found.bytes;
}

function attentionRun() {
  const found = DATA.attention[by("arun").value];
  by("ahead").replaceChildren();
  found.heads.forEach((name, i) => option(by("ahead"), i, name));
  by("astep").max = found.steps.length - 1;
  by("astep").value = found.steps.length - 1;
  map();
}

function map() {
  const found = DATA.attention[by("arun").value], n = found.size, step = Number(by("astep").value), head = Number(by("ahead").value);
  by("astepout").textContent = `step ${found.steps[step].toLocaleString()}`;
  const start = (step * found.heads.length + head) * n * n, all = bytes(found), z = [];
  for (let r = 0; r < n; r++) z.push(Array.from(all.subarray(start + r * n, start + (r + 1) * n), (v) => v / 255));
  Plotly.react("map", [{ z, type: "heatmap", zmin: 0, zmax: 1, colorscale: [[0, "#ffffff"], [1, "#0072B2"]], colorbar: { title: { text: "attention" } } }],
    { ...LAYOUT, xaxis: { title: { text: "to position" }, constrain: "domain" }, yaxis: { title: { text: "from position" }, autorange: "reversed", scaleanchor: "x" } }, CONFIG);
}

header();
body();
by("filter").oninput = body;
by("clear").onclick = () => { chosen.clear(); body(); curves(); };
for (const [name, text] of Object.entries(DATA.measures))
  if (Object.values(DATA.curves).some((c) => name in c)) option(by("measure"), name, text);
DATA.rows.filter((row) => row[0] in DATA.curves).slice(0, 6).forEach((row) => chosen.add(row[0]));
by("measure").onchange = by("log").onchange = curves;
body();
curves();
if (DATA.laws.length) {
  DATA.laws.forEach((found, i) => option(by("law"), i, `${found.name}: ${found.formula}`));
  by("law").onchange = law;
  law();
}
if (DATA.attention.length) {
  DATA.attention.forEach((found, i) => option(by("arun"), i, found.run_id));
  by("arun").onchange = attentionRun;
  by("ahead").onchange = by("astep").oninput = map;
  attentionRun();
}
