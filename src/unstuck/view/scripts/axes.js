// Axes and plots: ticks that people read, and nothing sent anywhere.
export const LAYOUT = { margin: { l: 80, r: 12, t: 14, b: 44 }, font: { family: "system-ui, sans-serif", size: 13 }, hovermode: "closest", showlegend: false, paper_bgcolor: "#fff", plot_bgcolor: "#fff" };
// plotly would offer to share a chart.
export const CONFIG = { displaylogo: false, responsive: true, showSendToCloud: false, plotlyServerURL: "", displayModeBar: false };
const GRID = { gridcolor: "#e8ebf0", zerolinecolor: "#c6ccd6", linecolor: "#c6ccd6", automargin: false };
const written = (v) => Number(v.toPrecision(2)).toLocaleString("en-US", { maximumSignificantDigits: 2 });

// A long title in two lines, so that it fits beside a low panel.
const folded = (title) => (title.length > 30 ? title.replace(new RegExp(`^(.{${Math.floor(title.length / 2) - 4},}?) `), "$1<br>") : title);

// Numbers are written out, with thousands apart.
export const linear = (title, more = {}) => ({ ...GRID, title: { text: folded(title), standoff: 8 }, exponentformat: "none", separatethousands: true, nticks: 7, ...more });

// Logarithmic, with 1, 2 and 5 of each decade, or the decades alone where there are many.
export function log(values, title) {
  const there = values.filter((v) => v !== null && v > 0);
  if (!there.length) return linear(title);
  let low = Infinity, high = 0;
  for (const v of there) low = Math.min(low, v), high = Math.max(high, v);
  const span = Math.log10(high / low);
  low *= 0.9, high *= 1.1;
  const at = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++)
    for (const m of span > 2.5 ? [1] : [1, 2, 5]) if (m * 10 ** e >= low && m * 10 ** e <= high) at.push(m * 10 ** e);
  if (at.length < 2) at.splice(0, at.length, low / 0.9, high / 1.1);
  return { ...GRID, type: "log", range: [Math.log10(low), Math.log10(high)], tickvals: at, ticktext: at.map(written), title: { text: folded(title), standoff: 8 } };
}

// The axis leaves out the fall of the first steps, which would hide the plateau: up to what a curve has after 3% of it.
export function range(curves) {
  const tops = curves.flatMap(({ x, y }) => {
    let top = -Infinity;
    for (let i = 0; i < x.length; i++) if (y[i] !== null && x[i] >= 0.03 * x[x.length - 1]) top = Math.max(top, y[i]);
    return Number.isFinite(top) ? [top] : [];
  });
  const bottoms = curves.flatMap(({ y }) => y.filter((v) => v !== null && v < 0));
  return tops.length ? { range: [bottoms.length ? 1.1 * Math.min(...bottoms) : 0, 1.1 * Math.max(...tops)] } : { rangemode: "tozero" };
}
