// Elements of a page. What comes from run files is only ever set as text.
export const by = (id) => document.getElementById(id);

// A number in five digits, with thousands apart: 12,345 and 0.0012345.
export function shown(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  const rounded = Number(value.toPrecision(5));
  return Math.abs(rounded) >= 1e4 ? rounded.toLocaleString("en-US") : String(rounded);
}

// plotly reads a little HTML in labels; names are shown as they are.
export const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

export function element(tag, className = "", text = "") {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== "") node.textContent = text;
  return node;
}

export function option(select, value, text) {
  const node = element("option", "", text);
  node.value = value;
  select.append(node);
}

// The options of a select, { value: text }; what was chosen stays so if it is still there.
export function choices(select, options, wanted = select.value) {
  const entries = Object.entries(options), known = [...select.options].map((o) => `${o.value}\n${o.textContent}`).join("\n\n");
  if (known !== entries.map(([value, text]) => `${value}\n${text}`).join("\n\n")) {
    select.replaceChildren();
    entries.forEach(([value, text]) => option(select, value, text));
  }
  if (wanted in options) select.value = wanted;
}

export function cells(line, values) {
  line.append(...values.map((value) => element("td", "", value)));
  return line;
}
