// Questions to the server. A spinner turns while an answer takes longer than a moment.
import { by } from "./elements.js";

const MOMENT = 150; // milliseconds
let waiting = 0;

const spin = () => { by("busy").hidden = waiting === 0; };

// Show that something is going on, from a moment after its start to its end.
export async function busy(work) {
  let turned = false;
  const late = setTimeout(() => { turned = true; waiting += 1; spin(); }, MOMENT);
  try {
    return await work();
  } finally {
    clearTimeout(late);
    if (turned) waiting -= 1;
    spin();
  }
}

// words: an object or a list of pairs.
export async function ask(path, words = {}) {
  const response = await fetch(`${path}?${new URLSearchParams(words)}`);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error || response.statusText);
  return answer;
}
