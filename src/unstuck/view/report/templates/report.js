"use strict";
// The report's own script: its data are in the page.
const DATA = JSON.parse(by("data").textContent);
const column = Object.fromEntries(DATA.columns.map((name, i) => [name, i]));
const order = { name: null, up: true }, chosen = new Set();
const table = () => tableOf(DATA, order, chosen, 2000, table, curves);

// A threshold belongs to the measure that decides: the copying advantage or accuracy where it is measured, else the loss.
const decides = (curve) => ["copy_advantage", "test_accuracy"].find((name) => name in curve) || "test_loss";

// What is known of the chosen runs' circuits, in sentences.
function circuits() {
  const known = DATA.rows.filter((row) => chosen.has(row[0]) && row[0] in DATA.circuits).slice(0, 40);
  by("circuits").hidden = !known.length;
  by("circuitlist").replaceChildren(...known.map((row) => {
    const item = document.createElement("li");
    item.textContent = `${label(DATA, row, chosen)}: ${DATA.circuits[row[0]].join("; ")}`;
    return item;
  }));
}

function curves() {
  const measure = by("measure").value, traces = [], lines = new Set(), zones = [];
  DATA.rows.filter((row) => chosen.has(row[0])).slice(0, 40).forEach((row, i) => {
    const curve = DATA.curves[row[0]], threshold = DATA.thresholds[row[0]];
    if (!curve || !curve[measure]) return;
    const colour = PALETTE[i % PALETTE.length], name = label(DATA, row, chosen);
    traces.push({ run: true, x: curve.step, y: curve[measure], mode: "lines", name, line: { color: colour, width: 1.8 } });
    const deciding = threshold !== undefined && measure === decides(curve), end = row[column.plateau_steps];
    if (deciding) lines.add(threshold);
    if (DATA.expected[row[0]]) zones.push({ ...DATA.expected[row[0]], colour });
    if (end !== null && end !== undefined) {
      const k = Math.max(0, curve.step.findIndex((s) => s >= end));
      traces.push({ x: [end], y: [deciding ? threshold : curve[measure][k]], mode: "markers", marker: { color: colour, size: 9 }, showlegend: false, name });
    }
  });
  const { shapes, annotations } = drawZones(zones, by("log").checked), levels = [...lines].map((y) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line: { dash: "dash", color: "#999", width: 1 } }));
  const empty = traces.length ? [] : [{ text: "choose runs in the table", showarrow: false, font: { size: 16, color: "#888" } }];
  Plotly.react("curve", traces, {
    ...LAYOUT, shapes: [...shapes, ...levels], annotations: [...annotations, ...empty],
    xaxis: { title: { text: "step" }, type: by("log").checked ? "log" : "linear" },
    yaxis: { title: { text: DATA.measures[measure] }, ...range(traces.filter((t) => t.run)) },
  }, CONFIG);
  circuits();
}

const maps = () => DATA.attention[by("arun").value];

by("filter").oninput = table;
by("clear").onclick = () => { chosen.clear(); table(); curves(); };
for (const [name, text] of Object.entries(DATA.measures))
  if (Object.values(DATA.curves).some((c) => name in c)) option(by("measure"), name, text);
DATA.rows.filter((row) => row[0] in DATA.curves).slice(0, 6).forEach((row) => chosen.add(row[0]));
by("measure").onchange = by("log").onchange = curves;
table();
curves();
if (DATA.laws.length) {
  const law = () => drawLaw(DATA.laws[by("law").value]);
  DATA.laws.forEach((found, i) => option(by("law"), i, `${found.name}: ${found.formula}`));
  by("law").onchange = law;
  law();
}
if (DATA.attention.length) {
  DATA.attention.forEach((found, i) => option(by("arun"), i, found.run_id));
  by("arun").onchange = () => showHeads(maps());
  by("ahead").onchange = by("astep").oninput = () => drawMap(maps());
  showHeads(maps());
}
