// What the page shows, kept in its address, so that it can be reloaded and sent: #compare?filter=T>32&run=...
export const TABS = ["live", "compare", "laws", "theory"];
const OLD = { runs: "compare" }; // names of tabs that addresses may still have

function read() {
  const at = location.hash.indexOf("?"), name = at < 0 ? location.hash.slice(1) : location.hash.slice(1, at);
  return { tab: TABS.find((t) => t === (OLD[name] || name)) || "live", words: new URLSearchParams(at < 0 ? "" : location.hash.slice(at + 1)) };
}

let now = read();
const address = () => `#${now.tab}${now.words.size ? `?${now.words}` : ""}`;

export const tab = () => now.tab;
export const get = (name, otherwise = "") => now.words.get(name) ?? otherwise;
export const all = (name) => now.words.getAll(name);

// { name: value }; null or an empty text takes a name out of the address, a list gives it several values.
export function put(values) {
  for (const [name, value] of Object.entries(values)) {
    now.words.delete(name);
    (Array.isArray(value) ? value : [value]).forEach((v) => { if (v !== null && v !== undefined && v !== "") now.words.append(name, v); });
  }
  history.replaceState(null, "", address());
}

export function go(name) {
  now.tab = name;
  history.pushState(null, "", address());
}

// Calls back when the address is another one: by the back button, or typed.
export function onAddress(back) {
  const again = () => { now = read(); back(); };
  window.addEventListener("hashchange", again);
  window.addEventListener("popstate", again);
}
