// One meaning a colour. All have a contrast of at least 3:1 on white (tests/test_pictures.py).
export const INK = "#1d2433"; // the loss of the one run that is looked at
export const EXIT = "#c2410c"; // an expected exit from a plateau
export const REFERENCE = "#6b7280"; // levels to read a curve against: thresholds, guessing, uniform attention
export const WEIGHT = "#005b8f"; // an attention weight of 1
// Runs, layers, settings that are names.
export const PALETTE = ["#0072b2", "#00805e", "#a63a86", "#8c6d1f", "#5b4fc7", "#1482a0", "#7a3e1d", "#d0438a"];
// Settings that are numbers, from small to large: darker is less.
export const SCALE = ["#2d1160", "#1565b0", "#0b8477", "#6f9400"];
export const DASHES = ["solid", "dash", "dot", "dashdot"]; // where there are more runs than colours

export const colourOf = (i) => PALETTE[i % PALETTE.length];
export const dashOf = (i) => DASHES[Math.floor(i / PALETTE.length) % DASHES.length];

const channels = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
// A colour between two, or of the scale at a place from 0 to 1.
export function onScale(place) {
  const at = Math.min(Math.max(place, 0), 1) * (SCALE.length - 1), i = Math.min(Math.floor(at), SCALE.length - 2);
  const [from, to] = [channels(SCALE[i]), channels(SCALE[i + 1])];
  return `#${from.map((c, k) => Math.round(c + (to[k] - c) * (at - i)).toString(16).padStart(2, "0")).join("")}`;
}

// A colour for each of the values of a setting: numbers on the scale, in their order; names from the palette.
export function colouring(values) {
  const distinct = [...new Set(values.filter((v) => v !== null && v !== undefined))];
  const numbers = distinct.length > 1 && distinct.every((v) => typeof v === "number");
  distinct.sort(numbers ? (a, b) => a - b : (a, b) => String(a).localeCompare(String(b)));
  const found = new Map(distinct.map((v, i) => [v, numbers ? onScale(i / (distinct.length - 1)) : colourOf(i)]));
  return { entries: [...found.entries()], of: (v) => found.get(v) || REFERENCE };
}
