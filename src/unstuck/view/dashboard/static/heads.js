// A measure of every head over training, a colour a layer; a click on a head shows its attention map, with play.
import { CONFIG, LAYOUT, linear } from "./axes.js";
import { REFERENCE, colourOf } from "./colours.js";
import { drawMarks, joined } from "./curves.js";
import { by, plain } from "./elements.js";
import { legend } from "./legend.js";
import { upright } from "./loss.js";
import { drawMap } from "./maps.js";
import { ask, busy } from "./server.js";
import { get, put } from "./state.js";

const FRAME = 450; // milliseconds of a map while it plays
let shownHeads = null, shownCurve = null, until = 1, ofRun = "";
let maps = null, playing = null;

const nameOf = ([layer, head]) => `layer ${layer + 1}, head ${head + 1}`;
const keyOf = ([layer, head]) => `${layer + 1}.${head + 1}`;
const last = (values) => values.findLast((v) => v !== null) ?? -Infinity;

// The head in the address, that of the forecast, or the one with the highest value at the end.
function chosenHead(running) {
  const { heads, values, measure } = shownHeads, low = measure.includes("entropy");
  const wanted = heads.findIndex((h) => keyOf(h) === get("head"));
  if (wanted >= 0) return wanted;
  const told = running ? heads.findIndex((h) => nameOf(h) === running.head) : -1;
  if (told >= 0) return told;
  const ends = values.map((v) => (low ? -last(v) : last(v)));
  return ends.indexOf(Math.max(...ends));
}

let chosen = -1;
export function drawHeads(heads, curve, end, running) {
  shownHeads = heads, shownCurve = curve, until = end, chosen = heads.heads.length ? chosenHead(running) : -1;
  by("headpanel").hidden = by("mappanel").hidden = !heads.heads.length;
  by("noheads").hidden = heads.heads.length > 0;
  if (!heads.heads.length) return;
  draw();
  by("heads").removeAllListeners("plotly_click");
  by("heads").on("plotly_click", (e) => pick(e.points[0].data.meta));
  for (const [from, to] of [["heads", "loss"], ["loss", "heads"]]) { // one zoom for both panels
    by(from).removeAllListeners("plotly_relayout");
    by(from).on("plotly_relayout", (e) => {
      if ("xaxis.range[0]" in e) Plotly.relayout(to, { "xaxis.range": [e["xaxis.range[0]"], e["xaxis.range[1]"]] });
      else if ("xaxis.autorange" in e) Plotly.relayout(to, { "xaxis.range": [0, until] });
    });
  }
}

// From zero to the highest value, with room for the name of a level near zero.
function heights() {
  let top = shownHeads.chance ? shownHeads.chance.y : 0;
  shownHeads.values.forEach((row) => row.forEach((v) => { top = Math.max(top, v ?? 0); }));
  return { range: [shownHeads.chance && shownHeads.chance.y < 0.12 * top ? -0.1 * top : 0, 1.06 * top || 1] };
}

function draw() {
  const { step, heads, values, measures, measure, chance } = shownHeads;
  const order = [...heads.keys()].filter((i) => i !== chosen).concat(chosen); // the chosen one above the others
  const traces = order.map((i) => ({
    x: step, y: values[i], meta: i, mode: "lines", connectgaps: true, line: { color: colourOf(heads[i][0]), width: i === chosen ? 3.2 : 1.2 }, opacity: i === chosen ? 1 : 0.75,
    hovertemplate: `${plain(nameOf(heads[i]))}<br>step %{x:,}<br>%{y:.3f}<extra></extra>`,
  }));
    Plotly.react("heads", traces, { ...LAYOUT, uirevision: shownCurve.run_id, ...lines(), xaxis: linear("step", { range: [0, until] }), yaxis: linear(plain(measures[measure]), heights()) }, CONFIG);
  legend(by("headlegend"), heads.map((h, i) => ({ text: nameOf(h), colour: colourOf(h[0]), pick: () => pick(i), picked: i === chosen })).concat(chance ? [{ text: chance.label, colour: REFERENCE, dash: "dot" }] : []), "a colour a layer; click a head for its map");
}

function pick(i) {
  chosen = i;
  put({ head: keyOf(shownHeads.heads[i]) });
  draw();
  drawHead(ofRun);
}

// Where on the axis the map is that is shown.
function cursor() {
  if (!maps || !maps.steps.length) return {};
  const x = maps.steps[Number(by("mapstep").value)];
  return { shapes: [{ type: "line", yref: "paper", y0: 0, y1: 1, x0: x, x1: x, line: { color: REFERENCE, width: 1.2 } }] };
}

const lines = () => joined(upright(shownCurve, false), drawMarks(shownHeads.chance ? [shownHeads.chance] : [], false, true), cursor());

export const forgetMaps = () => { maps = null; };

// The map of the chosen head.
export async function drawHead(run) {
  ofRun = run;
  if (chosen < 0) return stop();
  if (!maps) {
    const before = Number(by("mapstep").value), ended = before === Number(by("mapstep").max);
    const found = await busy(() => ask("/api/attention", { run }));
    if (run !== ofRun) return undefined;
    maps = found;
    by("mapstep").max = Math.max(0, maps.steps.length - 1);
    by("mapstep").value = ended ? by("mapstep").max : before;
  }
  const head = maps.steps.length ? maps.heads.findIndex((h) => keyOf(h) === keyOf(shownHeads.heads[chosen])) : -1;
  by("maphead").textContent = nameOf(shownHeads.heads[chosen]);
  by("map").hidden = by("mapcontrols").hidden = head < 0;
  by("nomap").hidden = head >= 0;
  if (head < 0) return stop();
  const step = Number(by("mapstep").value);
  by("mapstepout").textContent = `step ${maps.steps[step].toLocaleString("en-US")}`;
  drawMap(by("map"), maps, head, step);
  return Plotly.relayout("heads", lines());
}

function stop() {
  clearInterval(playing);
  playing = null;
  by("play").textContent = "▶ play";
}

function play() {
  if (playing) return stop();
  const slider = by("mapstep");
  if (Number(slider.value) >= Number(slider.max)) slider.value = 0;
  by("play").textContent = "❚❚ pause";
  drawHead(ofRun);
  playing = setInterval(() => {
    slider.value = Number(slider.value) + 1;
    drawHead(ofRun);
    if (Number(slider.value) >= Number(slider.max)) stop();
  }, FRAME);
  return undefined;
}

by("play").onclick = play;
by("mapstep").oninput = () => drawHead(ofRun);
