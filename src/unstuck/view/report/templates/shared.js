"use strict";
// What report and dashboard share. What comes from run files is only ever set as text.
const by = (id) => document.getElementById(id);
const PALETTE = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#222222", "#8C6D1F"];
const LAYOUT = { margin: { l: 60, r: 15, t: 35, b: 45 }, font: { family: "system-ui, sans-serif", size: 13 }, hovermode: "closest", legend: { orientation: "h", y: -0.22 } };
// A logarithmic axis with 1, 2 and 5 of each decade written out.
function log(values, title) {
  const low = Math.min(...values) * 0.9, high = Math.max(...values) * 1.1, at = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++)
    for (const m of [1, 2, 5]) if (m * 10 ** e >= low && m * 10 ** e <= high) at.push(m * 10 ** e);
  if (at.length < 2) at.splice(0, at.length, low, Math.sqrt(low * high), high);
  return { type: "log", range: [Math.log10(low), Math.log10(high)], tickvals: at, ticktext: at.map((v) => Number(v.toPrecision(2)).toLocaleString("en-US")), title: { text: title } };
}
// Nothing is sent anywhere: plotly would offer to share a chart.
const CONFIG = { displaylogo: false, responsive: true, showSendToCloud: false, plotlyServerURL: "" };
// plotly reads a little HTML in labels; names are to be shown as they are.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const shown = (v) => (v === null || v === undefined ? "–" : typeof v === "number" ? String(Number(v.toPrecision(5))) : String(v));

function option(select, value, text) {
  const node = document.createElement("option");
  node.value = value;
  node.textContent = text;
  select.append(node);
}

function cells(line, values) {
  values.forEach((value) => {
    const cell = document.createElement("td");
    cell.textContent = value;
    line.append(cell);
  });
  return line;
}

// The rows that have all words of `text` (emerged T=64), in the order of a column. order: { name, up }
function arranged({ columns, rows }, text, order) {
  const words = text.split(/\s+/).filter(Boolean), at = Object.fromEntries(columns.map((c, i) => [c, i]));
  const found = rows.filter((row) => words.every((word) => {
    const [key, value] = word.split("=");
    if (value !== undefined && key in at) return shown(row[at[key]]) === value;
    return row.some((v) => shown(v).toLowerCase().includes(word.toLowerCase()));
  }));
  const k = at[order.name], sign = order.up ? 1 : -1;
  if (k === undefined) return found;
  return found.sort((a, b) => {
    const x = a[k], y = b[k];
    if (x === null || y === null) return (x === null) - (y === null);
    return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
  });
}

// A table whose columns sort and whose rows can be chosen, at most so many; sorted() and picked() are told of clicks.
// Columns that none of the rows has a value in are left out.
function tableOf(data, order, chosen, most, sorted, picked) {
  const rows = arranged(data, by("filter").value, order), head = document.createElement("tr");
  const used = data.columns.map((_, i) => !rows.length || rows.some((row) => row[i] !== null && row[i] !== undefined));
  data.columns.filter((_, i) => used[i]).forEach((name) => {
    const cell = document.createElement("th");
    cell.textContent = name;
    cell.tabIndex = 0;
    if (order.name === name) cell.setAttribute("aria-sort", order.up ? "ascending" : "descending");
    cell.onclick = () => { order.up = order.name === name ? !order.up : true; order.name = name; sorted(); };
    cell.onkeydown = (e) => { if (e.key === "Enter") cell.click(); };
    head.append(cell);
  });
  document.querySelector("#table thead").replaceChildren(head);
  document.querySelector("#table tbody").replaceChildren(...rows.slice(0, most).map((row) => {
    const line = cells(document.createElement("tr"), row.filter((_, i) => used[i]).map(shown));
    line.dataset.run = row[0];
    line.setAttribute("aria-selected", chosen.has(row[0]));
    line.onclick = () => {
      if (!chosen.delete(row[0])) chosen.add(row[0]);
      line.setAttribute("aria-selected", chosen.has(row[0]));
      picked();
    };
    return line;
  }));
  by("count").textContent = `${rows.length} of ${data.rows.length} runs` + (rows.length > most ? `, the first ${most} shown` : "");
}

// A run's name: its id, and in what it differs from the others that are chosen.
function label(data, row, chosen) {
  const skip = new Set(["run_id", "status", "plateau_steps", "steps", "seconds", "threshold"]);
  const rows = data.rows.filter((r) => chosen.has(r[0]));
  const differs = (i) => new Set(rows.map((r) => r[i]).filter((v) => v !== null && v !== undefined)).size > 1;
  const parts = data.columns.map((c, i) => (!skip.has(c) && row[i] !== null && row[i] !== undefined && differs(i) ? `${c}=${shown(row[i])}` : "")).filter(Boolean);
  return plain([row[0], ...parts.slice(0, 6)].join(" "));
}

// The axis leaves out the fall of the first steps, which would hide the plateau: up to what a curve has after 3% of it.
function range(curves) {
  const tops = curves.map(({ x, y }) => Math.max(...y.filter((v, i) => v !== null && x[i] >= 0.03 * x[x.length - 1]))).filter(Number.isFinite);
  return tops.length ? { range: [0, 1.1 * Math.max(...tops)] } : { rangemode: "tozero" };
}

// Zones of steps, { low, step, high, label, colour }, in which runs are expected to leave their plateaus.
function drawZones(zones, logarithmic = false) {
  const at = (x) => (logarithmic ? Math.log10(x) : x);
  const tall = { yref: "paper", y0: 0, y1: 1, layer: "below" };
  return {
    shapes: zones.flatMap(({ low, step, high, colour }) => [
      { type: "rect", ...tall, x0: low, x1: high, fillcolor: colour, opacity: 0.15, line: { width: 0 } },
      { type: "line", ...tall, x0: step, x1: step, line: { color: colour, width: 1, dash: "dash" } },
    ]),
    annotations: zones.map(({ step, label, colour }, i) => ({ x: at(step), y: 1 - 0.07 * i, yref: "paper", yanchor: "top", text: plain(label), showarrow: false, font: { size: 12, color: colour }, bgcolor: "rgba(255,255,255,0.75)" })),
  };
}

function drawLaw(found) {
  by("lawtext").textContent = `${found.text}   R² = ${shown(found.r2)}, ${found.n} runs that emerged, ${found.censored} that did not`;
  by("terms").replaceChildren(...found.terms.map(([term, x, low, high]) => cells(document.createElement("tr"), [term, x.toFixed(3), `${low.toFixed(3)} to ${high.toFixed(3)}`])));
  const ends = [Math.min(...found.measured) * 0.9, Math.max(...found.measured) * 1.1];
  const dots = { mode: "markers", text: found.run_id.map(plain), marker: { color: PALETTE[0], size: 7 }, showlegend: false };
  Plotly.react("fit", [{ ...dots, x: found.measured, y: found.said }, { x: ends, y: ends, mode: "lines", line: { color: "#999", width: 1 }, showlegend: false, hoverinfo: "skip" }],
    { ...LAYOUT, xaxis: log(found.measured, "measured plateau (steps)"), yaxis: log(found.said, "by the law (steps)") }, CONFIG);
  Plotly.react("residuals", [{ ...dots, x: found.said, y: found.measured.map((m, i) => 100 * (m / found.said[i] - 1)) }],
    { ...LAYOUT, xaxis: log(found.said, "by the law (steps)"), yaxis: { title: { text: "measured above the law (%)" }, zeroline: true } }, CONFIG);
}

// Attention of a run: { steps, heads, size, data }, a byte a weight.
function showHeads(maps) {
  maps.bytes = maps.bytes || Uint8Array.from(atob(maps.data), (c) => c.charCodeAt(0));
  by("ahead").replaceChildren();
  maps.heads.forEach((name, i) => option(by("ahead"), i, name));
  by("astep").max = maps.steps.length - 1;
  by("astep").value = maps.steps.length - 1;
  drawMap(maps);
}

function drawMap(maps) {
  const n = maps.size, step = Number(by("astep").value), head = Number(by("ahead").value), z = [];
  by("astepout").textContent = `step ${maps.steps[step].toLocaleString("en-US")}`;
  const start = (step * maps.heads.length + head) * n * n;
  for (let r = 0; r < n; r++) z.push(Array.from(maps.bytes.subarray(start + r * n, start + (r + 1) * n), (v) => v / 255));
  Plotly.react("map", [{ z, type: "heatmap", zmin: 0, zmax: 1, colorscale: [[0, "#ffffff"], [1, "#0072B2"]], colorbar: { title: { text: "attention" } } }],
    { ...LAYOUT, xaxis: { title: { text: "to position" }, constrain: "domain" }, yaxis: { title: { text: "from position" }, autorange: "reversed", scaleanchor: "x" } }, CONFIG);
}
