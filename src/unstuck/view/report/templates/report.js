// The report's own script: its data are in the page.
import { CONFIG, LAYOUT, linear, log, range } from "./axes.js";
import { colourOf, dashOf } from "./colours.js";
import { drawMarks, drawZones, joined } from "./curves.js";
import { by, element, option, plain } from "./elements.js";
import { drawLaw } from "./law.js";
import { legend } from "./legend.js";
import { drawMap } from "./maps.js";
import { labels, places, tableOf } from "./table.js";

const DATA = JSON.parse(by("data").textContent), MOST_CURVES = 40, MOST_ROWS = 2000;
const order = { name: null, up: true }, chosen = new Set();
const showTable = () => tableOf(DATA, order, chosen, MOST_ROWS, showTable, drawCurves);

// What is known of the chosen runs' circuits, in sentences.
function circuits(rows, names) {
  const known = rows.flatMap((row, i) => (row[0] in DATA.circuits ? [element("li", "", `${names[i]}: ${DATA.circuits[row[0]].join("; ")}`)] : []));
  by("circuits").hidden = !known.length;
  by("circuitlist").replaceChildren(...known);
}

function drawCurves() {
  const measure = by("measure").value, at = places(DATA.columns), traces = [], marks = [], zones = [], entries = [];
  const rows = DATA.rows.filter((row) => chosen.has(row[0])).slice(0, MOST_CURVES), names = labels(DATA, rows);
  rows.forEach((row, i) => {
    const curve = DATA.curves[row[0]], colour = colourOf(i), dash = dashOf(i);
    if (!curve || !curve[measure]) return;
    const hover = { hovertemplate: `${plain(names[i])}<br>step %{x:,}<br>%{y:.4g}<extra>${plain(row[0])}</extra>` };
    traces.push({ run: true, x: curve.step, y: curve[measure], mode: "lines", line: { color: colour, dash, width: 1.9 }, ...hover });
    entries.push({ text: names[i], colour, dash });
    marks.push(...(DATA.marks[row[0]] || []).filter((m) => m.measure === measure));
    if (DATA.expected[row[0]]) zones.push({ ...DATA.expected[row[0]], colour });
    const end = row[at.plateau_steps], k = typeof end === "number" ? curve.step.findIndex((s) => s >= end) : -1;
    if (k >= 0) traces.push({ x: [end], y: [curve[measure][k]], mode: "markers", marker: { color: colour, size: 9, line: { color: "#fff", width: 1 } }, ...hover });
  });
  const logx = by("log").checked, lines = traces.filter((t) => t.run);
  const empty = traces.length ? [] : [{ text: "choose runs in the table", showarrow: false, font: { size: 16 } }];
  Plotly.react("curve", traces, {
    ...LAYOUT, ...joined(drawZones(zones, logx), drawMarks(marks), { annotations: empty }),
    xaxis: logx ? log(lines.flatMap((t) => t.x), "step") : linear("step", { rangemode: "tozero" }), yaxis: linear(DATA.measures[measure] || measure || "", range(lines)),
  }, CONFIG);
  legend(by("curvelegend"), entries);
  circuits(rows, names);
}

function showMap() {
  const maps = DATA.attention[by("arun").value], step = Number(by("astep").value);
  by("astepout").textContent = `step ${maps.steps[step].toLocaleString("en-US")}`;
  drawMap(by("map"), maps, Number(by("ahead").value), step);
}

function showHeads() {
  const maps = DATA.attention[by("arun").value];
  by("ahead").replaceChildren();
  maps.names.forEach((name, i) => option(by("ahead"), i, name));
  by("astep").max = by("astep").value = maps.steps.length - 1;
  showMap();
}

by("filter").oninput = showTable;
by("clear").onclick = () => { chosen.clear(); showTable(); drawCurves(); };
const measured = new Set(Object.values(DATA.curves).flatMap(Object.keys));
for (const [name, text] of Object.entries(DATA.measures)) if (measured.has(name)) option(by("measure"), name, text);
DATA.rows.filter((row) => row[0] in DATA.curves).slice(0, 6).forEach((row) => chosen.add(row[0]));
by("measure").onchange = by("log").onchange = drawCurves;
showTable();
drawCurves();
if (DATA.laws.length) {
  const law = () => drawLaw(DATA.laws[by("law").value]);
  DATA.laws.forEach((found, i) => option(by("law"), i, `${found.name}: ${found.formula}`));
  by("law").onchange = law;
  law();
}
if (DATA.attention.length) {
  DATA.attention.forEach((found, i) => option(by("arun"), i, found.run_id));
  by("arun").onchange = showHeads;
  by("ahead").onchange = by("astep").oninput = showMap;
  showHeads();
}
