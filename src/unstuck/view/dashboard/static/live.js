// Live: a card for each run in training; of one run the loss, the attention of every head below it, and a head's map.
import { by, choices, element, shown } from "./elements.js";
import { drawHead, drawHeads, forgetMaps } from "./heads.js";
import { drawLoss } from "./loss.js";
import { ask, busy } from "./server.js";
import { get, put } from "./state.js";

let answer = null; // the last one
let seen = ""; // what is drawn: the run, its last measured step, the measure of its heads

const whole = (x) => Math.round(x).toLocaleString("en-US");

function lasting(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function clock(seconds) {
  const then = new Date(Date.now() + 1000 * seconds), far = seconds > 20 * 3600;
  return then.toLocaleString([], { ...(far ? { weekday: "short" } : {}), hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
}

function exitWords({ low, high, seconds }) {
  const steps = `step ${whole(low)} to ${whole(high)}`;
  if (!seconds) return steps;
  const [first, last] = seconds.map(lasting), [from, to] = seconds.map(clock);
  return `${steps}, in ${first === last ? last : `${first} to ${last}`} (${from === to ? `at ${to}` : `${from} to ${to}`})`;
}

const naming = (settings) => Object.entries(settings).map(([name, value]) => (name === "task" ? shown(value) : `${name}=${shown(value)}`)).join(" ");

function card(run, shownRun) {
  const node = element("button", "card"), bar = element("div", "bar"), done = element("div", "done");
  const part = run.elapsed === null ? null : Math.round(100 * run.elapsed);
  node.type = "button";
  node.dataset.run = run.run_id;
  node.setAttribute("aria-pressed", run.run_id === shownRun);
  node.onclick = () => { put({ live: run.run_id, head: null }); show(true); };
  done.style.width = `${part ?? 0}%`;
  bar.append(done);
  bar.setAttribute("role", "progressbar");
  if (part !== null) bar.setAttribute("aria-valuenow", part);
  const over = run.outcome === "emerged" || run.outcome === "left";
  const lines = [
    ["strong", naming(run.settings) || run.run_id],
    ["note", `${run.run_id}, step ${whole(run.step)}` + (run.of === null ? "" : ` of at most ${shown(run.of)}`)],
    ["part", over ? "has left its plateau" : part === null ? "no end of the plateau in sight" : `${part}% of the plateau done`],
    [run.exit ? "exit" : "note", run.exit ? `exit: ${exitWords(run.exit)}` : run.forecast || "too few measurements for a forecast"],
    ...(run.signal && run.exit ? [["note", `signal: ${run.signal}${run.head ? `, ${run.head}` : ""}`]] : []),
  ].map(([kind, text]) => element("div", kind, text));
  node.append(...lines.slice(0, 2), bar, ...lines.slice(2));
  return node;
}

function describe(run) {
  const running = answer.running.find((r) => r.run_id === run);
  if (running) return `Run ${run}: ${naming(running.settings)}`;
  return answer.running.length || get("live") ? `Run ${run}` : `No run is in training. The last one: ${run}`;
}

// The run to show: the one in the address, else the first in training, else the last one.
const shownRun = () => get("live") || (answer.running[0] || {}).run_id || answer.latest;

async function show(anew) {
  const run = shownRun(), running = answer.running.find((r) => r.run_id === run);
  by("cards").replaceChildren(...answer.running.map((r) => card(r, run)));
  by("none").hidden = answer.total > 0;
  by("liverun").hidden = !run;
  if (!run) return;
  by("livetitle").textContent = describe(run);
  const measure = get("heads") || (running && running.measure) || ""; // by default what the forecast rests on
  const key = `${run} ${running ? running.measured : "over"} ${measure}`;
  if (key === seen && !anew) return;
  const another = !seen.startsWith(`${run} `), fetched = () => Promise.all([ask("/api/curve", { run }), ask("/api/heads", { run, measure })]);
  let curve, heads;
  try {
    [curve, heads] = await (another ? busy(fetched) : fetched());
    by("liveerror").textContent = "";
  } catch (e) {
    by("liveerror").textContent = e.message;
    by("liverun").hidden = true;
    return;
  }
  if (run !== shownRun()) return; // another card was chosen meanwhile
  seen = key;
  choices(by("headmeasure"), heads.measures, heads.measure);
  const until = drawLoss(curve);
  drawHeads(heads, curve, until, running);
  if (another || running) forgetMaps();
  await drawHead(run);
}

// The store's name and how many runs it has, on every tab.
export async function header() {
  const first = answer === null;
  answer = await (first ? busy(() => ask("/api/live")) : ask("/api/live"));
  by("store").textContent = answer.name;
  document.title = `${answer.name} · unstuck`;
  by("counts").textContent = Object.entries(answer.counts).map(([status, n]) => `${n.toLocaleString("en-US")} ${status}`).join(", ") || "no runs";
}

export async function live(opened) {
  await header();
  await show(opened);
}

by("headmeasure").onchange = () => { put({ heads: by("headmeasure").value }); show(true); };
