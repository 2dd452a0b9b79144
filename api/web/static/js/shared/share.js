// What a reader takes along: a text on the clipboard, a chart as a picture that explains itself.

import { byId, colour, element, setText } from "./dom.js";
import { escaped } from "./plot.js";

/** Copies `text`; the button says how that went. */
export async function copyText(button, text) {
  const title = button.textContent;
  const copied = await navigator.clipboard?.writeText(text).then(() => true, () => false) ?? copySelected(button, text);
  setText(button, copied ? "Copied" : "The browser allows no copy");
  setTimeout(() => setText(button, title), 2000);
}

/** Gives a line of commands a button that copies it. */
export const offerCopy = (line) => line.after(element("button", { type: "button", class: "copy", text: "Copy", on: { click: ({ currentTarget }) => copyText(currentTarget, line.textContent) } }));

/** Without TLS a page has no clipboard, only what is selected. */
function copySelected(button, text) {
  const area = element("textarea", { class: "visually-hidden" });
  area.value = text;
  button.after(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  button.focus();
  return copied;
}

const WIDTH = 1200; // pixels
const LINE = 22;
const LETTERS = 120; // in a line of the title

/** Serves the buttons that save the chart in `node`; `caption()` gives what `savePicture` writes beside it. */
export function offerPictures(node, caption) {
  for (const button of byId("pictures").children) button.addEventListener("click", () => node.data && savePicture(node, button.dataset.format, caption()));
}

/** Saves the Plotly chart in `node` as "png" or "svg", with a title, lines of facts below it, and a legend: trace uid → name. */
async function savePicture(node, format, { title, facts, names, filename }) {
  const lines = [`<b>${escaped(title)}</b>`, ...facts.flatMap((fact) => wrapped(escaped(fact)))];
  const top = (lines.length + 1) * LINE;
  const layout = {
    ...node.layout, autosize: false, width: WIDTH, height: 620 + top, paper_bgcolor: colour("card"), plot_bgcolor: colour("card"), showlegend: true,
    legend: { orientation: "h", x: 0, y: -0.12, yanchor: "top", font: { size: 13 } },
    title: { text: lines.join("<br>"), x: 0.02, xanchor: "left", y: 1, yref: "container", yanchor: "top", pad: { t: 14 }, font: { size: 15, color: colour("ink") } },
    margin: { l: 90, r: 30, t: top + 20, b: 110 },
  };
  const data = node.data.map((trace) => ({ ...trace, name: names.get(trace.uid) ?? "", showlegend: names.has(trace.uid) && trace.x.length > 0 }));
  await window.Plotly.downloadImage({ data, layout }, { format, width: WIDTH, height: layout.height, filename });
}

function wrapped(text) {
  const lines = [""];
  for (const word of text.split(" ")) {
    if (lines.at(-1).length + word.length > LETTERS) lines.push("");
    lines.push(`${lines.pop()} ${word}`.trim());
  }
  return lines;
}
