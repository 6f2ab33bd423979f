// The attention of one head between the tokens of a sequence, over training: { steps, names, heads, size, data, tokens, relevant }.
import { CONFIG, LAYOUT } from "./axes.js";
import { WEIGHT } from "./colours.js";
import { plain } from "./elements.js";

const MOST_TICKS = 40;

// The map of a head at a step, as rows of weights from 0 to 1.
export function weights(maps, head, step) {
  maps.bytes = maps.bytes || Uint8Array.from(atob(maps.data), (c) => c.charCodeAt(0));
  const n = maps.size, start = (step * maps.names.length + head) * n * n, rows = [];
  for (let r = 0; r < n; r++) rows.push(Array.from(maps.bytes.subarray(start + r * n, start + (r + 1) * n), (v) => v / 255));
  return rows;
}

// Tokens as ticks; those that the target depends on in bold, with a mark.
function ticks(maps, room) {
  const every = Math.ceil(maps.size / Math.min(MOST_TICKS, room)), tickvals = [], ticktext = [];
  for (let i = 0; i < maps.size; i++) {
    if (i % every && !maps.relevant[i]) continue;
    const text = plain(maps.tokens[i].slice(0, 12));
    tickvals.push(i);
    ticktext.push(maps.relevant[i] ? `<b>▸${text}</b>` : text);
  }
  return { tickvals, ticktext, tickfont: { size: 11 } };
}

export function drawMap(place, maps, head, step) {
  const room = Math.max(8, Math.floor(place.clientWidth / 22)), axis = ticks(maps, room), words = maps.tokens.map((t, i) => `${plain(t)} (position ${i + 1})`);
  Plotly.react(place, [{
    z: weights(maps, head, step), type: "heatmap", zmin: 0, zmax: 1, colorscale: [[0, "#ffffff"], [1, WEIGHT]], customdata: words.map((from) => words.map((to) => `from ${from}<br>to ${to}`)),
    hovertemplate: "%{customdata}<br>attention %{z:.2f}<extra></extra>", colorbar: { title: { text: "attention" }, thickness: 12, len: 0.6, tickvals: [0, 0.5, 1] },
  }], {
    ...LAYOUT, margin: { l: 70, r: 8, t: 10, b: 70 }, xaxis: { title: { text: "to token" }, constrain: "domain", tickangle: maps.size > 12 ? -60 : 0, showgrid: false, ...axis },
    yaxis: { title: { text: "from token" }, autorange: "reversed", scaleanchor: "x", constrain: "domain", showgrid: false, ...axis },
  }, CONFIG);
}
