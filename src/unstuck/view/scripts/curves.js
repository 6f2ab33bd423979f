// Learning curves: smoothing, groups over seeds, zones of expected exits, levels to read them against.
import { REFERENCE } from "./colours.js";
import { plain } from "./elements.js";

const LABEL = "rgba(255,255,255,0.85)", FAINT = "rgba(255,255,255,0.6)"; // behind words; FAINT where curves must show

// Mean over so many points on either side, fewer at the ends; gaps stay.
export function smooth(values, width) {
  if (!width) return values;
  return values.map((v, i) => {
    if (v === null) return null;
    const reach = Math.min(width, i, values.length - 1 - i), near = values.slice(i - reach, i + reach + 1).filter((x) => x !== null);
    return near.reduce((a, b) => a + b, 0) / near.length;
  });
}

// The value of a curve at a step, between two rows; null beyond its ends.
function at(x, y, step) {
  if (!x.length || step < x[0] || step > x[x.length - 1]) return null;
  let low = 0, high = x.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (x[middle] <= step) low = middle; else high = middle;
  }
  if (x[low] === step || high === low) return y[low];
  if (y[low] === null || y[high] === null) return null;
  return y[low] + ((y[high] - y[low]) * (step - x[low])) / (x[high] - x[low]);
}

// Mean, lowest and highest of several curves, [{ x, y }], at the steps of the longest; of those that go so far.
export function together(curves) {
  const x = curves.reduce((a, b) => (b.x[b.x.length - 1] > a.x[a.x.length - 1] ? b : a)).x;
  const columns = x.map((step) => curves.map((c) => at(c.x, c.y, step)).filter((v) => v !== null));
  const over = (f) => columns.map((values) => (values.length ? f(values) : null));
  return { x, mean: over((v) => v.reduce((a, b) => a + b, 0) / v.length), low: over((v) => Math.min(...v)), high: over((v) => Math.max(...v)) };
}

// Zones of steps, { low, step, high, label, colour }, in which runs are expected to leave their plateaus.
export function drawZones(zones, logarithmic = false, named = true) {
  const place = (x) => (logarithmic ? Math.log10(x) : x), tall = { yref: "paper", y0: 0, y1: 1, layer: "below" };
  return {
    shapes: zones.flatMap(({ low, step, high, colour }) => [
      { type: "rect", ...tall, x0: low, x1: high, fillcolor: colour, opacity: 0.13, line: { width: 0 } },
      ...[low, high].map((x) => ({ type: "line", ...tall, x0: x, x1: x, line: { color: colour, width: 1 } })),
      { type: "line", ...tall, x0: step, x1: step, line: { color: colour, width: 1.6, dash: "dash" } },
    ]),
    annotations: named ? zones.map(({ step, label, colour }, i) => ({ x: place(step), y: 1 - 0.08 * i, yref: "paper", yanchor: "top", text: plain(label), showarrow: false, font: { size: 12, color: colour }, bgcolor: LABEL })) : [],
  };
}

// Horizontal lines with their names below, on the left or the right, [{ y, label }]; those that are alike once.
export function drawMarks(marks, logarithmic = false, right = false) {
  const distinct = [...new Map(marks.map((m) => [`${m.y} ${m.label}`, m])).values()].slice(0, 6);
  return {
    shapes: distinct.map(({ y }) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line: { color: REFERENCE, width: 1.2, dash: "dot" } })),
    annotations: distinct.map(({ y, label }) => ({ xref: "paper", x: right ? 0.99 : 0.01, xanchor: right ? "right" : "left", y: logarithmic ? Math.log10(y) : y, yanchor: "top", text: plain(label), showarrow: false, font: { size: 11.5, color: REFERENCE }, bgcolor: FAINT })),
  };
}

export const joined = (...parts) => ({ shapes: parts.flatMap((p) => p.shapes || []), annotations: parts.flatMap((p) => p.annotations || []) });
