// A law: its terms, measured against predicted plateaus, and residuals, coloured by a setting that it ignores.
import { CONFIG, LAYOUT, linear, log } from "./axes.js";
import { PALETTE, REFERENCE, colouring } from "./colours.js";
import { by, cells, element, plain, shown } from "./elements.js";
import { legend } from "./legend.js";

export function drawLaw(found, setting = "") {
  by("lawtext").textContent = `${found.text} · R² = ${shown(found.r2)}, ${found.n} runs that emerged, ${found.censored} that did not`;
  by("terms").replaceChildren(...found.terms.map(([term, x, low, high]) => cells(element("tr"), [term, x.toFixed(3), `${low.toFixed(3)} to ${high.toFixed(3)}`])));
  const values = (found.ignored || {})[setting] || found.run_id.map(() => "runs"), hues = colouring(values);
  const groups = setting ? [...hues.entries, ...(values.includes(null) ? [[null, REFERENCE]] : [])] : [["runs", PALETTE[0]]];
  const factors = found.measured.map((m, i) => m / found.said[i]), far = factors.some((f) => f > 2.5 || f < 0.4);
  const above = far ? factors : factors.map((f) => 100 * (f - 1));
  const dots = (x, y) => groups.map(([value, colour]) => {
    const rows = values.flatMap((v, i) => (v === value ? [i] : []));
    return { x: rows.map((i) => x[i]), y: rows.map((i) => y[i]), mode: "markers", type: "scatter", marker: { color: colour, size: 7, opacity: 0.85 }, text: rows.map((i) => plain(found.run_id[i])), hovertemplate: "%{text}<br>%{x:,.4g}, %{y:,.4g}<extra></extra>" };
  });
  const all = [...found.measured, ...found.said], ends = [Math.min(...all) * 0.95, Math.max(...all) * 1.05];
  const equal = { x: ends, y: ends, mode: "lines", line: { color: REFERENCE, width: 1, dash: "dot" }, hoverinfo: "skip" };
  const note = { xref: "paper", yref: "paper", x: 0.98, y: 0.02, xanchor: "right", yanchor: "bottom", text: "dotted: equal", showarrow: false, font: { size: 11.5, color: REFERENCE } };
  Plotly.react("fit", [equal, ...dots(found.measured, found.said)], { ...LAYOUT, annotations: [note], xaxis: log(all, "measured plateau (steps)"), yaxis: log(all, "by the law (steps)") }, CONFIG);
  Plotly.react("residuals", dots(found.said, above), { ...LAYOUT, xaxis: log(found.said, "by the law (steps)"), yaxis: far ? log(factors, "measured over the law (factor)") : linear("measured above the law (%)", { zeroline: true }) }, CONFIG);
  const counted = (value) => `${values.filter((v) => v === value).length} runs`;
  legend(by("lawlegend"), groups.map(([value, colour]) => ({ text: setting ? `${setting}=${shown(value)}` : "runs that emerged", colour, dot: true, note: counted(value) })), setting ? "not in the formula:" : "");
}
