// Theory: sliders, the plateau that the flow predicts, and the command that prints the same number.
import { CONFIG, LAYOUT, linear } from "./axes.js";
import { EXIT, PALETTE, REFERENCE } from "./colours.js";
import { by, shown } from "./elements.js";
import { legend } from "./legend.js";
import { ask, busy } from "./server.js";
import { get, put } from "./state.js";

const octave = (x) => Math.round(2 ** (x / 4));
const CONTROLS = ["T", "d", "B", "p", "flow"];
const PANELS = [["tloss", "loss", "test loss"], ["w", "w", "weight w along the target"], ["alpha", "alpha", "attention to the relevant tokens"]];

function sizes() {
  const T = octave(Number(by("T").value));
  return { T, d: octave(Number(by("d").value)), B: Math.min(octave(Number(by("B").value)), T - 1), p: Number(by("p").value) / 100, flow: by("flow").value };
}

let asked = 0;
async function draw() {
  const words = sizes(), mine = ++asked;
  for (const name of ["T", "d", "B", "p"]) by(`o${name}`).textContent = words[name];
  let found;
  try {
    found = await busy(() => ask("/api/theory", words));
    if (mine === asked) by("terror").textContent = "";
  } catch (e) {
    if (mine === asked) by("terror").textContent = e.message;
    return;
  }
  if (mine !== asked) return; // a later question is on its way
  by("plateau").textContent = found.plateau === null ? found.reason : found.shown;
  by("plateau").dataset.value = found.plateau;
  by("closed").textContent = `By closed forms: ${shown(found.blow_up_time)} (leading term)` + (found.estimate ? `, ${shown(found.estimate)} (with drag and finish).` : ".");
  by("command").textContent = found.command;
  const other = words.flow === "exact" ? "reduced" : "exact", end = found.plateau === null ? [] : [{ type: "line", yref: "paper", y0: 0, y1: 1, x0: found.plateau, x1: found.plateau, line: { color: EXIT, width: 1.4 } }];
  for (const [id, name, title] of PANELS) {
    const traces = [
      { x: found.t, y: found.flows[words.flow][name], line: { color: PALETTE[0], width: 2.4 } },
      { x: found.t, y: found.flows[other][name], line: { color: PALETTE[2], width: 1.8, dash: "dash" } },
    ];
    if (name === "loss") traces.push({ x: found.t, y: found.linearised, line: { color: REFERENCE, width: 1.6, dash: "dot" } });
    Plotly.react(id, traces, { ...LAYOUT, shapes: end, xaxis: linear("time (steps × learning rate)", { nticks: 5 }), yaxis: linear(title, { rangemode: "tozero" }) }, CONFIG);
    legend(by(`${id}legend`), [
      { text: `${words.flow} flow`, colour: PALETTE[0] }, { text: `${other} flow`, colour: PALETTE[2], dash: "dash" },
      ...(name === "loss" ? [{ text: "linearised", colour: REFERENCE, dash: "dot" }] : []), ...(end.length ? [{ text: "end of the plateau", colour: EXIT }] : []),
    ]);
  }
}

export async function theory() {
  for (const name of CONTROLS) if (get(name)) by(name).value = get(name);
  await draw();
}
for (const name of CONTROLS) by(name).oninput = () => { put({ [name]: by(name).value }); draw(); };
