// The loss of a run, with its expected exit as a vertical zone, or the step at which it left its plateau.
import { CONFIG, LAYOUT, linear, range } from "./axes.js";
import { EXIT, INK, REFERENCE } from "./colours.js";
import { drawMarks, drawZones, joined } from "./curves.js";
import { by } from "./elements.js";
import { legend } from "./legend.js";

const FAR = 4; // times the present step: how far ahead the axis goes at most

// The last step of the axis: that of the curve, or the end of the zone.
function lastStep(curve) {
  const steps = curve.curve.step || [0], last = steps[steps.length - 1], zone = curve.expected;
  return zone ? Math.max(last, Math.min(1.04 * zone.high, FAR * last)) : last;
}

// What is drawn upright on both panels: the zone, or the end of the plateau.
export function upright(curve, named) {
  if (curve.expected) return drawZones([{ ...curve.expected, label: "expected exit", colour: EXIT }], false, named);
  if (curve.left === null) return {};
  const line = { type: "line", yref: "paper", y0: 0, y1: 1, x0: curve.left, x1: curve.left, line: { color: EXIT, width: 1.6 } };
  const words = { x: curve.left, y: 1, yref: "paper", yanchor: "top", xanchor: "right", text: "left its plateau ", showarrow: false, font: { size: 12, color: EXIT } };
  return { shapes: [line], annotations: named ? [words] : [] };
}

export function drawLoss(curve) {
  const measure = curve.loss in curve.curve ? curve.loss : Object.keys(curve.curve).find((m) => m !== "step");
  const x = curve.curve.step || [], y = curve.curve[measure] || [], until = lastStep(curve), name = (measure || "loss").replace(/_/g, " ");
  const marks = curve.marks.filter((m) => m.measure === measure);
  const line = { x, y, mode: "lines", line: { color: INK, width: 2 }, hovertemplate: "step %{x:,}<br>%{y:.4g}<extra></extra>" };
  Plotly.react("loss", [line], { ...LAYOUT, uirevision: curve.run_id, ...joined(upright(curve, true), drawMarks(marks)), xaxis: linear("step", { range: [0, until || 1] }), yaxis: linear(name, range([{ x, y }])) }, CONFIG);
  const zone = curve.expected && { text: curve.expected.label, colour: EXIT, band: true };
  const left = curve.left !== null && { text: `left its plateau at step ${Math.round(curve.left).toLocaleString("en-US")}`, colour: EXIT };
  legend(by("losslegend"), [{ text: name, colour: INK }, zone, left, ...marks.map((m) => ({ text: m.label, colour: REFERENCE, dash: "dot" }))].filter(Boolean));
  return until || 1;
}
