// The table of runs: filter, order, choice, and what tells the chosen ones apart.
import { by, cells, choices, element, shown } from "./elements.js";

const SIGNS = { "<=": (a, b) => a <= b, ">=": (a, b) => a >= b, "!=": (a, b) => a !== b, "=": (a, b) => a === b, "<": (a, b) => a < b, ">": (a, b) => a > b };
const same = (value) => String(value).toLowerCase();

// A word of a filter as a test of a row: T>32, layer_norm=false, or a text that some cell contains.
function condition(word, at) {
  const found = /^([^<>=!]+)(<=|>=|!=|=|<|>)(.+)$/.exec(word);
  if (!found || !(found[1] in at)) return (row) => row.some((v) => same(shown(v)).includes(same(word)));
  const [, name, sign, text] = found, number = Number(text), test = SIGNS[sign];
  return (row) => {
    const value = row[at[name]];
    if (value === null || value === undefined) return sign === "!=" || (sign === "=" && text === "–");
    if (typeof value === "number" && !Number.isNaN(number)) return test(value, number);
    return (sign === "=" || sign === "!=") && test(same(value), same(text));
  };
}

export const places = (columns) => Object.fromEntries(columns.map((c, i) => [c, i]));

// The rows that meet all words of a filter, in the order of a column. order: { name, up }
export function arranged({ columns, rows }, text, order = {}) {
  const at = places(columns), tests = text.split(/\s+/).filter(Boolean).map((word) => condition(word, at));
  const found = rows.filter((row) => tests.every((test) => test(row)));
  const k = at[order.name], sign = order.up ? 1 : -1;
  if (k === undefined) return found;
  return found.sort((a, b) => {
    const x = a[k], y = b[k];
    if (x === null || y === null) return (x === null) - (y === null);
    return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
  });
}

// A table whose columns sort and whose rows can be chosen, at most so many; sorted() and picked(run) are told of clicks.
// Columns that none of the rows has a value in are left out. On a phone a row is a block, and a list sorts.
export function tableOf(data, order, chosen, most, sorted, picked) {
  const rows = arranged(data, by("filter").value, order), head = element("tr");
  const used = data.columns.map((_, i) => !rows.length || rows.some((row) => row[i] !== null && row[i] !== undefined));
  const names = data.columns.filter((_, i) => used[i]);
  const telling = new Set(["run_id", "status", "plateau_steps", "steps", ...differing(data, rows)]); // what a phone shows
  const sort = (name) => { order.up = order.name === name ? !order.up : true; order.name = name; sorted(); };
  names.forEach((name) => {
    const cell = element("th", "", name);
    cell.tabIndex = 0;
    if (order.name === name) cell.setAttribute("aria-sort", order.up ? "ascending" : "descending");
    cell.onclick = () => sort(name);
    cell.onkeydown = (e) => { if (e.key === "Enter") cell.click(); };
    head.append(cell);
  });
  document.querySelector("#table thead").replaceChildren(head);
  document.querySelector("#table tbody").replaceChildren(...rows.slice(0, most).map((row) => {
    const values = row.filter((_, i) => used[i]), line = cells(element("tr"), values.map(shown));
    [...line.cells].forEach((cell, i) => {
      cell.dataset.name = names[i];
      if (values[i] === null || values[i] === undefined || !telling.has(names[i])) cell.className = "same";
    });
    line.dataset.run = row[0];
    line.tabIndex = 0;
    line.setAttribute("aria-selected", chosen.has(row[0]));
    line.onclick = () => {
      if (!chosen.delete(row[0])) chosen.add(row[0]);
      line.setAttribute("aria-selected", chosen.has(row[0]));
      picked(row[0]);
    };
    line.onkeydown = (e) => { if (e.key === "Enter") line.click(); };
    return line;
  }));
  choices(by("sort"), { "": "the run's id", ...Object.fromEntries(names.map((n) => [n, n])) }, order.name || "");
  by("sort").onchange = () => { order.name = by("sort").value || null; order.up = true; sorted(); };
  by("count").textContent = `${rows.length.toLocaleString("en-US")} of ${(data.total ?? data.rows.length).toLocaleString("en-US")} runs` + (rows.length > most ? `, the first ${most.toLocaleString("en-US")} shown` : "");
  return rows;
}

// The settings in which rows differ.
export function differing({ columns, settings }, rows) {
  const at = places(columns);
  return settings.filter((c) => c in at && new Set(rows.map((r) => r[at[c]]).filter((v) => v !== null && v !== undefined)).size > 1);
}

// Names of the rows: the settings in which they differ; the run's id where two have the same.
export function labels(data, rows, without = []) {
  const at = places(data.columns), differ = differing(data, rows).filter((c) => !without.includes(c));
  const words = rows.map((row) => differ.filter((c) => row[at[c]] !== null && row[at[c]] !== undefined).map((c) => `${c}=${shown(row[at[c]])}`).join(" "));
  return rows.map((row, i) => (words[i] && words.indexOf(words[i]) === words.lastIndexOf(words[i]) ? words[i] : [row[0], words[i]].filter(Boolean).join(" ")));
}
