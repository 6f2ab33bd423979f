// The rows of all runs, brought up to date: all at first, page by page, then those that have changed.
import { ask } from "./server.js";

export let table = { columns: [], settings: [], rows: [], measures: {}, law: {}, version: "", total: 0 };
const curves = new Map(); // by run: what it had come to when it was asked for, and the answer
const AT_ONCE = 6; // connections that a browser has to one server

const sameColumns = (answer) => answer.columns.length === table.columns.length && answer.columns.every((c, i) => c === table.columns[i]);
let updating = null; // one at a time: a change must not come between two pages

// True if the table is another one; show() is called when the first rows are there.
export function update(show = () => {}) {
  updating = updating || load(show).finally(() => { updating = null; });
  return updating;
}

async function load(show) {
  let answer = await ask("/api/runs", table.version ? { since: table.version } : {});
  if (!answer.first && !sameColumns(answer)) answer = await ask("/api/runs");
  const was = table.version;
  if (answer.first) {
    table = answer;
    show();
    await rest();
  } else {
    const gone = new Set(answer.removed), changed = new Map(answer.rows.map((row) => [row[0], row]));
    const rows = table.rows.filter((row) => !gone.has(row[0]) || changed.has(row[0])).map((row) => {
      const now = changed.get(row[0]) || row;
      changed.delete(row[0]);
      return now;
    });
    if (changed.size) rows.push(...changed.values()), rows.sort((a, b) => (a[0] < b[0] ? -1 : 1));
    table = { ...table, rows, version: answer.version, total: answer.total };
  }
  return table.version !== was;
}

async function rest() {
  while (table.rows.length && table.rows.length < table.total) {
    const page = await ask("/api/runs", { after: table.rows[table.rows.length - 1][0] });
    if (!sameColumns(page)) table.version = ""; // begin again at the next look
    if (!sameColumns(page) || !page.rows.length) return;
    table.rows.push(...page.rows);
  }
}

const NONE = { curve: {}, expected: null, left: null, marks: [] };
export const known = (run) => curves.get(run) || NONE;

// Fetch the curves of rows that are not known as they are now; one that cannot be read leaves the others to be seen.
export async function fetchCurves(rows) {
  const status = table.columns.indexOf("status"), steps = table.columns.indexOf("steps");
  const state = (row) => `${row[status]} ${row[steps]}`;
  const wanted = rows.filter((row) => !curves.has(row[0]) || curves.get(row[0]).state !== state(row));
  const next = async () => {
    for (let row = wanted.shift(); row; row = wanted.shift())
      curves.set(row[0], { ...(await ask("/api/curve", { run: row[0] }).catch(() => NONE)), state: state(row) });
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, wanted.length) }, next));
}
