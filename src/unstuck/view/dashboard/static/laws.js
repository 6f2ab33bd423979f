// Laws: a formula fitted to chosen runs, what the command would warn of, and the plateau of a size.
import { by, choices } from "./elements.js";
import { drawLaw } from "./law.js";
import { table, update } from "./runs.js";
import { ask, busy } from "./server.js";
import { get, put } from "./state.js";

const FIELDS = ["formula", "where", "sizes"];
let found = null, begun = false;
const steps = (v) => (v === null ? "–" : Math.round(v).toLocaleString("en-US"));
const pieces = (id) => by(id).value.replace(/\s*([<>=!]+)\s*/g, "$1").split(/[\s,]+/).filter(Boolean);

// With the law that the server proposes, or the one in the address.
async function begin() {
  if (!table.rows.length) await update();
  for (const name of ["where", "formula"]) if (table.law[name] && !get("formula")) by(name).value = table.law[name];
  begun = true;
}

// The command's warnings, and a button that keeps the runs which can be compared.
function banner() {
  const { warnings = [], comparable = [], refused = "" } = found || {}, words = [refused, ...warnings].filter(Boolean);
  by("banner").hidden = !words.length;
  by("bannertext").textContent = words.join(" ");
  by("comparable").hidden = !comparable.length;
  by("comparable").title = comparable.join(" ");
}

function clear() {
  for (const id of ["lawtext", "prediction", "terms", "lawlegend"]) by(id).replaceChildren();
  for (const id of ["fit", "residuals"]) Plotly.purge(id);
  by("lawpanel").hidden = true;
}

function draw() {
  if (!found || found.refused) return clear();
  by("lawpanel").hidden = false;
  const ignored = Object.keys(found.ignored);
  choices(by("ignored"), { ...Object.fromEntries(ignored.map((s) => [s, s])), "": "nothing" }, get("ignored", ignored[0] || ""));
  by("ignoredlabel").hidden = !ignored.length;
  drawLaw(found, by("ignored").value);
  by("lawnote").textContent = found.notes.join(" ");
  const said = found.prediction;
  by("prediction").textContent = said ? `plateau of that size: ${steps(said.plateau)} steps (${steps(said.low)} to ${steps(said.high)} with 90%)` + (said.beyond ? `; beyond these runs in ${said.beyond}` : "") : "";
  return undefined;
}

async function fit() {
  const words = [["formula", by("formula").value], ...pieces("where").map((w) => ["where", w])];
  put(Object.fromEntries(FIELDS.map((name) => [name, by(name).value.trim()])));
  by("lerror").textContent = "";
  try {
    for (const word of pieces("sizes")) {
      if (!/^\w+=[^=]+$/.test(word)) throw new Error(`${word} is not a size; write d=64 T=256`);
      words.push(word.split("="));
    }
    found = await busy(() => ask("/api/law", words));
  } catch (e) {
    found = null;
    by("lerror").textContent = e.message;
  }
  banner();
  draw();
}

export async function laws() {
  if (get("formula")) for (const name of FIELDS) by(name).value = get(name);
  if (!begun) await busy(begin);
  if (!table.rows.length) by("lerror").textContent = "No runs here yet.";
  else await fit();
}

by("fitnow").onclick = fit;
by("ignored").onchange = () => { put({ ignored: by("ignored").value }); draw(); };
by("comparable").onclick = () => {
  const named = (word) => word.split(/[<>=!]/)[0], others = pieces("where").filter((word) => !found.comparable.some((c) => named(c) === named(word)));
  by("where").value = [...others, ...found.comparable].join(" ");
  fit();
};
for (const name of FIELDS) by(name).onkeydown = (e) => { if (e.key === "Enter") fit(); };
