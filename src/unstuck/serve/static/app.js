"use strict";
// The dashboard. What comes from run files is only ever set as text.
const by = (id) => document.getElementById(id);
const PALETTE = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#222222", "#8C6D1F"];
const LAYOUT = { margin: { l: 60, r: 15, t: 35, b: 45 }, font: { family: "system-ui, sans-serif", size: 13 }, hovermode: "closest", legend: { orientation: "h", y: -0.28 } };
const CONFIG = { displaylogo: false, responsive: true };
const MEASURES = { test_loss: "test loss", test_accuracy: "test accuracy", train_loss: "training loss", excess_loss: "loss above that of the truth", specialisation: "specialisation index", best_attention: "best head's attention to the relevant tokens" };
// plotly reads a little HTML in labels; names are to be shown as they are.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const shown = (v) => (v === null || v === undefined ? "–" : typeof v === "number" ? String(Number(v.toPrecision(5))) : String(v));

async function ask(path, words) {
  const response = await fetch(`${path}?${new URLSearchParams(words)}`);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error || response.statusText);
  return answer;
}

function option(select, value, text) {
  const node = document.createElement("option");
  node.value = value;
  node.textContent = text;
  select.append(node);
}

function cells(line, values, kind = "td") {
  values.forEach((value) => {
    const cell = document.createElement(kind);
    cell.textContent = value;
    line.append(cell);
  });
  return line;
}

// -- theory
const octave = (x) => Math.round(2 ** (x / 4));
function sizes() {
  const T = octave(Number(by("T").value));
  return { T, d: octave(Number(by("d").value)), B: Math.min(octave(Number(by("B").value)), T - 1), p: Number(by("p").value) / 100, flow: by("flow").value };
}

let asked = 0;
async function theory() {
  const words = sizes(), mine = ++asked;
  for (const name of ["T", "d", "B", "p"]) by(`o${name}`).textContent = words[name];
  let found;
  try {
    found = await ask("/api/theory", words);
    by("terror").textContent = "";
  } catch (e) {
    if (mine === asked) by("terror").textContent = e.message;
    return;
  }
  if (mine !== asked) return; // a later question is on its way
  by("plateau").textContent = found.plateau === null ? found.reason : found.plateau.toPrecision(6);
  by("plateau").dataset.value = found.plateau;
  by("closed").textContent = `By closed forms: ${shown(found.blow_up_time)} (leading term)` + (found.estimate ? `, ${shown(found.estimate)} (with drag and finish).` : ".");
  by("command").textContent = found.command;
  const other = words.flow === "exact" ? "reduced" : "exact";
  for (const [name, title] of [["loss", "test loss"], ["w", "weight w along the target"], ["alpha", "attention to the relevant tokens"]]) {
    const traces = [
      { x: found.t, y: found.flows[words.flow][name], name: `${words.flow} flow`, line: { color: PALETTE[0], width: 2.2 } },
      { x: found.t, y: found.flows[other][name], name: `${other} flow`, line: { color: PALETTE[1], width: 1.6, dash: "dash" } },
    ];
    if (name === "loss") traces.push({ x: found.t, y: found.linearised, name: "linearised", line: { color: "#888", width: 1.4, dash: "dot" } });
    const shapes = found.plateau === null ? [] : [{ type: "line", yref: "paper", y0: 0, y1: 1, x0: found.plateau, x1: found.plateau, line: { color: "#999", width: 1, dash: "dot" } }];
    Plotly.react(name, traces, { ...LAYOUT, shapes, title: { text: title, font: { size: 14 } }, xaxis: { title: { text: "time (steps × lr)", standoff: 4 } }, yaxis: { rangemode: "tozero" } }, { ...CONFIG, displayModeBar: false });
  }
}

// -- runs
let table = { columns: [], rows: [], running: [] }, order = { name: null, up: true }, chosen = new Set();
const curves = {};

function visible() {
  const words = by("filter").value.split(/\s+/).filter(Boolean), at = Object.fromEntries(table.columns.map((c, i) => [c, i]));
  const rows = table.rows.filter((row) => words.every((word) => {
    const [key, value] = word.split("=");
    if (value !== undefined && key in at) return shown(row[at[key]]) === value;
    return row.some((v) => shown(v).toLowerCase().includes(word.toLowerCase()));
  }));
  const k = at[order.name], sign = order.up ? 1 : -1;
  if (k === undefined) return rows;
  return rows.sort((a, b) => {
    const x = a[k], y = b[k];
    if (x === null || y === null) return (x === null) - (y === null);
    return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
  });
}

function showTable() {
  const head = document.createElement("tr");
  table.columns.forEach((name) => {
    const cell = document.createElement("th");
    cell.textContent = name;
    if (order.name === name) cell.setAttribute("aria-sort", order.up ? "ascending" : "descending");
    cell.onclick = () => { order = { name, up: order.name === name ? !order.up : true }; showTable(); };
    head.append(cell);
  });
  document.querySelector("#table thead").replaceChildren(head);
  const rows = visible();
  document.querySelector("#table tbody").replaceChildren(...rows.slice(0, 1000).map((row) => {
    const line = cells(document.createElement("tr"), row.map(shown));
    line.dataset.run = row[0];
    line.setAttribute("aria-selected", chosen.has(row[0]));
    line.onclick = () => { if (!chosen.delete(row[0])) chosen.add(row[0]); showTable(); draw(true); };
    return line;
  }));
  by("count").textContent = `${rows.length} of ${table.rows.length} runs`;
  by("now").replaceChildren(...table.running.map((run) => {
    const line = document.createElement("div");
    line.className = "running";
    line.textContent = `${run.run_id}: step ${run.step.toLocaleString()} of at most ${shown(run.of)}` + (run.forecast ? `; ${run.forecast}` : "");
    return line;
  }));
}

async function refresh() {
  if (by("tab-runs").hidden) return;
  table = await ask("/api/runs", {});
  if (!chosen.size) table.rows.slice(0, 3).forEach((row) => chosen.add(row[0]));
  showTable();
  await draw(false);
}

async function draw(anew) {
  const at = Object.fromEntries(table.columns.map((c, i) => [c, i])), running = new Set(table.running.map((r) => r.run_id));
  for (const run of chosen) if (!(run in curves) || running.has(run)) curves[run] = await ask("/api/curve", { run });
  const known = Object.keys(MEASURES).filter((m) => [...chosen].some((run) => m in curves[run].curve));
  const picked = by("measure").value;
  by("measure").replaceChildren();
  known.forEach((m) => option(by("measure"), m, MEASURES[m]));
  if (known.includes(picked)) by("measure").value = picked;
  const measure = by("measure").value, traces = [];
  [...chosen].slice(0, 20).forEach((run, i) => {
    const { curve, band } = curves[run], colour = PALETTE[i % PALETTE.length], row = table.rows.find((r) => r[0] === run) || [run];
    if (!curve[measure]) return;
    traces.push({ x: curve.step, y: curve[measure], mode: "lines", name: plain(run), line: { color: colour, width: 1.8 } });
    const end = row[at.plateau_steps];
    if (typeof end === "number") traces.push({ x: [end, end], y: [0, Math.max(...curve[measure].filter((v) => v !== null))], mode: "lines", line: { color: colour, width: 1, dash: "dot" }, showlegend: false, hoverinfo: "skip" });
    if (by("band").checked && band.length) {
      const steps = band.map((b) => b[0]);
      traces.push({ x: [...steps, ...steps.slice().reverse()], y: [...band.map((b) => b[3]), ...band.map((b) => b[2]).reverse()], fill: "toself", mode: "none", fillcolor: colour + "33", yaxis: "y2", name: `${plain(run)}: end forecast`, showlegend: false });
      traces.push({ x: steps, y: band.map((b) => b[1]), mode: "lines", yaxis: "y2", line: { color: colour, width: 1, dash: "dash" }, showlegend: false, name: "forecast" });
    }
  });
  const two = traces.some((t) => t.yaxis === "y2");
  Plotly.react("curve", traces, {
    ...LAYOUT, xaxis: { title: { text: "step" } }, yaxis: { title: { text: MEASURES[measure] || "" }, rangemode: "tozero" },
    ...(two ? { yaxis2: { overlaying: "y", side: "right", title: { text: "forecast: step at which the plateau ends" }, rangemode: "tozero", showgrid: false }, margin: { ...LAYOUT.margin, r: 70 } } : {}),
  }, CONFIG);
  if (anew || !by("arun").options.length) {
    by("arun").replaceChildren();
    [...chosen].forEach((run) => option(by("arun"), run, run));
    await attentionRun();
  }
}

let maps = null;
async function attentionRun() {
  if (!by("arun").value) return;
  maps = await ask("/api/attention", { run: by("arun").value });
  by("map").hidden = !maps.steps.length;
  by("astepout").textContent = maps.steps.length ? "" : "this run kept no attention maps (train.maps)";
  by("ahead").replaceChildren();
  if (!maps.steps.length) return;
  maps.bytes = Uint8Array.from(atob(maps.data), (c) => c.charCodeAt(0));
  maps.heads.forEach((name, i) => option(by("ahead"), i, name));
  by("astep").max = maps.steps.length - 1;
  by("astep").value = maps.steps.length - 1;
  drawMap();
}

function drawMap() {
  const n = maps.size, step = Number(by("astep").value), head = Number(by("ahead").value), z = [];
  by("astepout").textContent = `step ${maps.steps[step].toLocaleString()}`;
  const start = (step * maps.heads.length + head) * n * n;
  for (let r = 0; r < n; r++) z.push(Array.from(maps.bytes.subarray(start + r * n, start + (r + 1) * n), (v) => v / 255));
  Plotly.react("map", [{ z, type: "heatmap", zmin: 0, zmax: 1, colorscale: [[0, "#ffffff"], [1, "#0072B2"]], colorbar: { title: { text: "attention" } } }],
    { ...LAYOUT, xaxis: { title: { text: "to position" }, constrain: "domain" }, yaxis: { title: { text: "from position" }, autorange: "reversed", scaleanchor: "x" } }, CONFIG);
}

// -- laws
let begun = false;
async function begin() { // with the runs of the commonest task, and a formula that suits it
  if (!table.rows.length) table = await ask("/api/runs", {});
  const at = table.columns.indexOf("task");
  if (at >= 0) {
    const counts = {};
    table.rows.forEach((row) => { counts[row[at]] = (counts[row[at]] || 0) + 1; });
    const task = Object.keys(counts).sort((a, b) => counts[b] - counts[a])[0];
    by("where").value = `task=${task}`;
    if (task === "recall") by("formula").value = "tokens + pairs";
  }
  begun = true;
}

async function fit() {
  if (!begun) await begin();
  const words = [["formula", by("formula").value], ...by("where").value.split(/\s+/).filter(Boolean).map((w) => ["where", w])];
  for (const word of by("sizes").value.split(/\s+/).filter(Boolean)) words.push(word.split("="));
  let found;
  try {
    found = await ask("/api/law", words);
    by("lerror").textContent = "";
  } catch (e) {
    by("lerror").textContent = e.message;
    return;
  }
  by("lawtext").textContent = `${found.text}   R² = ${shown(found.r2)}, ${found.n} runs that emerged, ${found.censored} that did not`;
  const said = found.prediction;
  by("prediction").textContent = said ? `plateau of that size: ${shown(said.plateau)} steps (${shown(said.low)} to ${shown(said.high)} with 90%)` + (said.beyond ? `; ${said.beyond} lies beyond these runs` : "") : "";
  by("terms").replaceChildren(...found.terms.map(([term, x, low, high]) => cells(document.createElement("tr"), [term, x.toFixed(3), `${low.toFixed(3)} to ${high.toFixed(3)}`])));
  const ends = [Math.min(...found.measured) * 0.9, Math.max(...found.measured) * 1.1];
  const dots = { mode: "markers", text: found.run_id.map(plain), marker: { color: PALETTE[0], size: 7 }, showlegend: false };
  Plotly.react("fit", [{ ...dots, x: found.measured, y: found.said }, { x: ends, y: ends, mode: "lines", line: { color: "#999", width: 1 }, showlegend: false, hoverinfo: "skip" }],
    { ...LAYOUT, xaxis: { type: "log", title: { text: "measured plateau" } }, yaxis: { type: "log", title: { text: "by the law" } } }, CONFIG);
  Plotly.react("residuals", [{ ...dots, x: found.said, y: found.measured.map((m, i) => 100 * (m / found.said[i] - 1)) }],
    { ...LAYOUT, xaxis: { type: "log", title: { text: "by the law" } }, yaxis: { title: { text: "measured above the law (%)" } } }, CONFIG);
}

// -- tabs, named in the address
async function tab() {
  const name = ["theory", "runs", "laws"].find((t) => location.hash === `#${t}`) || "theory";
  document.querySelectorAll("nav button").forEach((b) => b.setAttribute("aria-selected", b.dataset.tab === name));
  document.querySelectorAll("main > section").forEach((s) => { s.hidden = s.id !== `tab-${name}`; });
  if (name === "theory") await theory();
  if (name === "runs") await refresh();
  if (name === "laws") await fit();
  window.dispatchEvent(new Event("resize"));
}
document.querySelectorAll("nav button").forEach((button) => { button.onclick = () => { location.hash = button.dataset.tab; }; });
window.onhashchange = tab;
for (const name of ["T", "d", "B", "p", "flow"]) by(name).oninput = theory;
by("filter").oninput = showTable;
by("measure").onchange = by("band").onchange = () => draw(false);
by("arun").onchange = attentionRun;
by("ahead").onchange = by("astep").oninput = () => { if (maps && maps.steps.length) drawMap(); };
by("fitnow").onclick = fit;
for (const name of ["formula", "where", "sizes"]) by(name).onkeydown = (e) => { if (e.key === "Enter") fit(); };
setInterval(() => refresh().catch(() => {}), 2000);
tab();
