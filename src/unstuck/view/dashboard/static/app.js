"use strict";
// The dashboard. What comes from run files is only ever set as text.
const steps = (v) => (v === null ? "–" : Math.round(v).toLocaleString("en-US"));

async function ask(path, words) {
  const response = await fetch(`${path}?${new URLSearchParams(words)}`);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error || response.statusText);
  return answer;
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
  by("plateau").textContent = found.plateau === null ? found.reason : found.shown;
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
let table = { columns: [], rows: [], running: [], measures: {}, law: {}, version: "", total: 0 }, empty = false;
const order = { name: null, up: true }, chosen = new Set();
const curves = new Map(); // by run: what it had come to when it was asked for, and the answer

function showTable() {
  tableOf(table, order, chosen, 1000, showTable, () => draw(true));
  by("now").replaceChildren(...table.running.map((run) => {
    const line = document.createElement("div");
    line.className = "running";
    line.textContent = `${run.run_id}: step ${run.step.toLocaleString("en-US")}` + (run.of === null ? "" : ` of at most ${shown(run.of)}`) + (run.forecast ? `; ${run.forecast}` : "");
    return line;
  }));
}

// Bring the table up to date: all rows at first, page by page, then those that have changed. True if it is another one.
const sameColumns = (answer) => answer.columns.length === table.columns.length && answer.columns.every((c, i) => c === table.columns[i]);
let updating = null; // one at a time: a change must not come between two pages
function update(show) {
  updating = updating || load(show).finally(() => { updating = null; });
  return updating;
}

async function load(show) {
  let answer = await ask("/api/runs", table.version ? { since: table.version } : {});
  if (!answer.first && !sameColumns(answer)) answer = await ask("/api/runs", {});
  const was = table.version, before = table.running.length;
  if (answer.first) {
    table = answer;
    show();
    await rest();
  } else {
    const gone = new Set(answer.removed), changed = new Map(answer.rows.map((row) => [row[0], row]));
    const rows = table.rows.filter((row) => !gone.has(row[0]) || changed.has(row[0])).map((row) => {
      const now = changed.get(row[0]) || row;
      changed.delete(row[0]);
      return now;
    });
    if (changed.size) rows.push(...changed.values()), rows.sort((a, b) => (a[0] < b[0] ? -1 : 1));
    table = { ...table, rows, running: answer.running, version: answer.version, total: answer.total };
  }
  return table.version !== was || table.running.length || before;
}

async function rest() {
  while (table.rows.length && table.rows.length < table.total) {
    const page = await ask("/api/runs", { after: table.rows[table.rows.length - 1][0] });
    if (!sameColumns(page)) table.version = ""; // begin again at the next look
    if (!sameColumns(page) || !page.rows.length) return;
    table.rows.push(...page.rows);
  }
}

async function refresh() {
  if (by("tab-runs").hidden) return;
  const first = () => {
    if (!chosen.size && !empty) table.rows.slice(0, 3).forEach((row) => chosen.add(row[0]));
    showTable();
    by("none").hidden = table.rows.length > 0;
  };
  if (await update(first) || !by("table").tHead.rows.length) first();
  await draw(false);
}

let drawing = 0;
async function draw(anew) {
  const mine = ++drawing;
  const at = Object.fromEntries(table.columns.map((c, i) => [c, i])), running = new Set(table.running.map((r) => r.run_id));
  for (const run of chosen) {
    const row = table.rows.find((r) => r[0] === run), state = row ? `${row[at.status]} ${row[at.steps]}` : "";
    const known = curves.get(run);
    if (known && known.state === state && !running.has(run)) continue;
    try {
      curves.set(run, { state, ...(await ask("/api/curve", { run })) });
    } catch (e) { // one run that cannot be read leaves the others to be seen
      curves.set(run, { state, curve: {}, expected: null });
    }
  }
  if (mine !== drawing) return; // another choice was made meanwhile
  const known = Object.keys(table.measures).filter((m) => [...chosen].some((run) => m in curves.get(run).curve));
  const picked = by("measure").value;
  by("measure").replaceChildren();
  known.forEach((m) => option(by("measure"), m, table.measures[m]));
  if (known.includes(picked)) by("measure").value = picked;
  const measure = by("measure").value, traces = [], zones = [];
  [...chosen].slice(0, 20).forEach((run, i) => {
    const { curve, expected } = curves.get(run), colour = PALETTE[i % PALETTE.length], row = table.rows.find((r) => r[0] === run) || [run];
    if (!curve[measure]) return;
    traces.push({ run: true, x: curve.step, y: curve[measure], mode: "lines", name: label(table, row, chosen), line: { color: colour, width: 1.8 } });
    const end = row[at.plateau_steps];
    if (typeof end === "number") traces.push({ x: [end, end], y: [0, Math.max(...curve[measure].filter((v) => v !== null))], mode: "lines", line: { color: colour, width: 1, dash: "dot" }, showlegend: false, hoverinfo: "skip" });
    if (by("zone").checked && expected) zones.push({ ...expected, colour });
  });
  Plotly.react("curve", traces, {
    ...LAYOUT, ...drawZones(zones), xaxis: { title: { text: "step" } }, yaxis: { title: { text: table.measures[measure] || "" }, ...range(traces.filter((t) => t.run)) },
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
  if (maps.steps.length) showHeads(maps);
  else by("ahead").replaceChildren();
}

// -- laws
let begun = false;
async function begin() { // with the law that the server proposes
  if (!table.rows.length) await update(() => {});
  for (const name of ["where", "formula"]) if (table.law[name]) by(name).value = table.law[name];
  begun = true;
}

async function fit() {
  if (!begun) await begin();
  const pieces = (id) => by(id).value.replace(/\s*([<>=!]+)\s*/g, "$1").split(/[\s,]+/).filter(Boolean);
  const words = [["formula", by("formula").value], ...pieces("where").map((w) => ["where", w])];
  let found;
  try {
    for (const word of pieces("sizes")) {
      if (!/^\w+=[^=]+$/.test(word)) throw new Error(`${word} is not a size; write d=64 T=256`);
      words.push(word.split("="));
    }
    found = await ask("/api/law", words);
    by("lerror").textContent = "";
  } catch (e) {
    by("lerror").textContent = e.message;
    for (const id of ["lawtext", "prediction", "terms"]) by(id).replaceChildren();
    for (const id of ["fit", "residuals"]) Plotly.purge(id);
    return;
  }
  drawLaw(found);
  const said = found.prediction;
  by("prediction").textContent = said ? `plateau of that size: ${steps(said.plateau)} steps (${steps(said.low)} to ${steps(said.high)} with 90%)` + (said.beyond ? `; beyond these runs in ${said.beyond}` : "") : "";
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
by("clear").onclick = () => { chosen.clear(); empty = true; showTable(); draw(true); };
by("measure").onchange = by("zone").onchange = () => draw(false);
by("arun").onchange = attentionRun;
by("ahead").onchange = by("astep").oninput = () => { if (maps && maps.steps.length) drawMap(maps); };
by("fitnow").onclick = fit;
for (const name of ["formula", "where", "sizes"]) by(name).onkeydown = (e) => { if (e.key === "Enter") fit(); };
async function follow() { // one look after the other, however long they take
  try {
    await refresh();
    by("gone").textContent = "";
  } catch (e) {
    by("gone").textContent = "The dashboard does not answer; is `unstuck serve` still running?";
  }
  setTimeout(follow, 2000);
}
setTimeout(follow, 2000);
tab();
