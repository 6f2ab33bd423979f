// A legend beside its panel: what each line is, as text.
import { element } from "./elements.js";

// entries: { text, colour, dash, band, dot, note, pick, picked }; with pick(), an entry is a button.
export function legend(place, entries, title = "") {
  const nodes = entries.map(({ text, colour, dash, band, dot, note, pick, picked }) => {
    const node = element(pick ? "button" : "div", "entry"), line = element("span", `swatch${band ? " band" : dot ? " dot" : ""}`);
    line.style.setProperty("--colour", colour);
    line.style.setProperty("--line", { dash: "dashed", dot: "dotted", dashdot: "dashed" }[dash] || "solid");
    node.append(line, element("span", "words", text));
    if (note) node.append(element("span", "note", note));
    if (pick) {
      node.type = "button";
      node.onclick = pick;
      node.setAttribute("aria-pressed", Boolean(picked));
    }
    return node;
  });
  place.replaceChildren(...(title ? [element("div", "note", title)] : []), ...nodes);
}
