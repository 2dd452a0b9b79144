// The answer to take along: copied as text, printed as a report, and its chart as a picture.

import { byId } from "../shared/dom.js";
import { moment } from "../shared/format.js";
import { copyText, offerCopy, offerPictures } from "../shared/share.js";
import { CHARTED } from "./chart.js";

const PAPER = 680; // pixels across a printed page

/** Serves the buttons; `chart` is the job's. */
export function offerSharing(chart) {
  for (const id of ["choices-commands", "choices-own-command", "answer-commands"]) offerCopy(byId(id));
  byId("copy-answer").addEventListener("click", ({ currentTarget }) => copyText(currentTarget, [...answer(), location.href].join("\n")));
  byId("report").addEventListener("click", () => printReport(chart.node));
  offerPictures(chart.node, () => ({
    title: byId("job-name").textContent,
    facts: [...answer(), moment(new Date().toISOString())],
    names: new Map([...CHARTED.map(({ name, title }) => [name, name === "baseline" ? chart.baseline : title]), ["recommended", "Recommended"]]),
    filename: "edgefront-frontier",
  }));
}

/** The sentence of the answer, what restricts it, and the conditions of the measurements. */
function answer() {
  const ids = byId("choices").hidden ? ["answer-sentence", "answer-sure", "target-note", "answer-note"] : ["choices-sentence", "choices-note", "choices-measured", "choices-commands"];
  return [...ids, "target-facts"].map((id) => byId(id).textContent).filter(Boolean);
}

/** The page on paper: everything unfolded, the chart as wide as the paper. */
async function printReport(node) {
  const folded = [...document.querySelectorAll("details:not([open])")];
  for (const each of folded) each.open = true;
  if (node.data) await window.Plotly.relayout(node, { width: PAPER, height: 420 });
  window.print();
  if (node.data) await window.Plotly.relayout(node, { width: null, height: null, autosize: true });
  for (const each of folded) each.open = false;
}
