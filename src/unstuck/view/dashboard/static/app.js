// The dashboard: its tabs, and one look at the runs after the other. What comes from run files is only ever set as text.
import { compare } from "./compare.js";
import { by } from "./elements.js";
import { laws } from "./laws.js";
import { header, live } from "./live.js";
import { go, onAddress, tab } from "./state.js";
import { theory } from "./theory.js";

const EVERY = 2000; // milliseconds between looks
const OPEN = { live, compare, laws, theory }, FOLLOWED = ["live", "compare"]; // tabs that change while runs train

async function open() {
  const name = tab();
  document.querySelectorAll("nav button").forEach((b) => b.setAttribute("aria-selected", b.dataset.tab === name));
  document.querySelectorAll("main > section").forEach((s) => { s.hidden = s.id !== `tab-${name}`; });
  await attempt(() => OPEN[name](true));
  window.dispatchEvent(new Event("resize"));
}

async function attempt(work) {
  try {
    await work();
    by("gone").textContent = "";
  } catch (e) {
    const offline = e instanceof TypeError && /fetch|network/i.test(e.message);
    by("gone").textContent = offline ? "The dashboard does not answer; is `unstuck serve` still running?" : e.message;
    if (!offline) console.error(e);
  }
}

async function follow() { // one look after the other, however long they take
  const name = tab();
  if (FOLLOWED.includes(name) && !document.hidden) await attempt(() => OPEN[name](false));
  setTimeout(follow, EVERY);
}

document.querySelectorAll("nav button").forEach((button) => { button.onclick = () => { go(button.dataset.tab); open(); }; });
onAddress(open);
await open();
if (tab() !== "live") await attempt(header);
setTimeout(follow, EVERY);
