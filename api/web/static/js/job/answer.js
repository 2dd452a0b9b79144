// The answer on a job's page: the recommended model beside the stock model within the same limits, and what others trade.

import { byId, element, fillRows, setCoded, setText } from "../shared/dom.js";
import { latency, memory, whole } from "../shared/format.js";
import { markOf } from "../shared/mark.js";
import { labelledTitle, perplexityLabel, perplexityWithInterval } from "../shared/perplexity.js";
import { withRoot } from "../shared/root.js";
import { factsOf } from "./candidates.js";
import { setWords, unsaid } from "./notes.js";
import { candidateAddress, shapeOf } from "../shared/shape.js";
import { modelLinks } from "./table.js";

export class Answer {
  /** `onPick(id)` hears which candidate was chosen, `onTrain(id)` which is to be trained, `onMove(limits)` which limits to try. */
  constructor({ onPick, onTrain, onMove }) {
    this.onPick = onPick;
    this.selected = null;
    this.onMove = onMove;
    byId("answer-train").addEventListener("click", () => onTrain(this.view.recommended.id));
  }

  /** Marks the row of the selected candidate, if it has one. */
  select(id) {
    this.selected = id;
    for (const row of byId("answer-table").tBodies[0].rows) {
      row.classList.toggle("selected", row.dataset.id === id);
      row.querySelector("button.pick").setAttribute("aria-pressed", row.dataset.id === id);
    }
  }

  /** Shows a RecommendationView; `candidate` is the page's record of the recommended model, `protocol` its target's. */
  show(view, candidate, protocol) {
    this.view = view;
    const { recommended, baseline, nearest, surest } = view;
    setText(byId("answer-title"), recommended ? "Recommended model" : "No model within the limits");
    setText(byId("answer-facts"), candidate ? [`Candidate ${whole(candidate.number)}`, ...factsOf(candidate), measuredTimes(candidate)].join(" · ") : "");
    byId("answer-facts").hidden = !candidate;
    setWords(byId("answer-sentence"), view.sentence, byId("answer-hints"));
    const rows = [
      ...(recommended ? [["Recommended", recommended, "–"]] : []),
      ...(baseline && baseline.id !== recommended?.id ? [[view.own_model ? "My model" : "Baseline", baseline, "–"]] : []),
      ...(surest && ![recommended.id, baseline?.id, ...view.runners_up.map((each) => each.candidate.id)].includes(surest.id) ? [["Surely within", surest, "–"]] : []),
      ...view.runners_up.map(({ candidate: other, trade }) => [other.id === surest?.id ? "Surely within" : "Runner-up", other, trade]),
      ...(nearest ? [["Nearest", nearest, "–"]] : []),
    ];
    const predictions = rows.map(([, { predicted }]) => predicted);
    setText(byId("answer-perplexity"), labelledTitle("Perplexity", predictions));
    byId("others").hidden = rows.length === 0;
    fillRows(byId("answer-table"), rows.map((row) => this.#row(...row)));
    this.select(this.selected);
    const extrapolated = predictions.some((predicted) => predicted?.extrapolated);
    const [label, long] = [perplexityLabel(predictions), view.perplexity_of];
    const sentences = unsaid(view.note);
    for (const [id, isSure] of [["answer-sure", false], ["answer-note", true]]) {
      setCoded(byId(id), sentences.filter((sentence) => UNSURE.test(sentence) !== isSure).join(" "));
      byId(id).hidden = !byId(id).textContent;
    }
    setText(byId("answer-hint"), [
      ...(label || long ? [`Predicted perplexity: ${label && long ? `${label} (${long})` : label || long}.`] : []),
      ...(extrapolated ? ["Extrapolated: beyond the models that the law was learnt from."] : []),
    ].join(" "));
    this.showMoves(view);
    byId("answer-next").hidden = !candidate;
    if (!candidate) return;
    this.#showFiles(modelLinks(candidate, protocol), view.download);
    byId("answer-page").href = withRoot(candidateAddress(recommended));
    setText(byId("answer-commands"), [
      `edgefront model download ${recommended.id} ${view.download}`, ...(view.train ? [`edgefront train submit ${view.train} --watch`] : []),
    ].join("\n"));
  }

  /** A button for the file that was measured, links for the others. */
  #showFiles(links, download) {
    const format = download.split(" ")[1]; // after --format
    const measured = links.find((link) => new URL(link.href).searchParams.get("format") === format) ?? links[0];
    measured.className = "button";
    measured.prepend("Download ");
    byId("answer-download").replaceChildren(measured);
    byId("answer-files").replaceChildren(...links.filter((link) => link !== measured));
  }

  #row(name, candidate, trade) {
    const number = whole(candidate.number);
    const pick = element("button", {
      type: "button", class: "pick", text: number, "aria-label": `Candidate ${number}: show in the chart and the table`,
      on: { click: () => this.onPick(candidate.id) },
    });
    return element("tr", { class: name === "Recommended" ? "recommended" : null, "data-id": candidate.id },
      element("th", { scope: "row", text: name }),
      element("td", { class: "number" }, pick),
      element("td", { class: "number", text: this.#perplexity(candidate) }),
      element("td", { class: "number" }, ...timesOf(candidate, this.view.standings)),
      element("td", { class: "number", text: memory(candidate.memory_bytes) }),
      element("td", { class: "wrap", text: shapeOf(candidate.architecture) }),
      element("td", { class: "wrap wide", text: trade }));
  }

  #perplexity({ id, predicted }) {
    const trained = this.view.trained.find((each) => each.candidate_id === id);
    if (trained) return `${Number(trained.perplexity.toPrecision(4))} trained${trained.ranks ? "" : " otherwise"}`;
    return perplexityWithInterval(predicted);
  }

  /** Buttons for the limits that would have to move: each alone, or both together where they name one model. */
  showMoves({ moves, limits }) {
    const together = moves.length > 1 && moves.every((move) => move.candidate_id === moves[0].candidate_id);
    const choices = together ? [moves] : moves.map((move) => [move]);
    byId("answer-moves").hidden = choices.length === 0;
    byId("answer-moves").replaceChildren(...choices.map((choice) => element("button", {
      type: "button", text: `Try ${choice.map(({ limit, to }) => `${to} ${UNITS[limit]}`).join(" and ")}`,
      on: { click: () => this.onMove(without({ ...limits, ...Object.fromEntries(choice.map(({ limit, to }) => [limit, to])) })) },
    })));
  }
}

/** The latency of a candidate, the times of a generation, and how its figures stand to the limits. */
export const timesOf = (candidate, standings) => [
  latency(candidate.latency_ms, candidate.latency_half_width_ms), ...markOf(candidate),
  ...[["first_token", "to the first token"], ["token", "a further token"]].filter(([name]) => candidate[`${name}_ms`]).map(([name, words]) =>
    element("div", { class: "hint", text: `${latency(candidate[`${name}_ms`], candidate[`${name}_half_width_ms`])} ${words}` })),
  ...Object.entries(standings[candidate.id] ?? {}).map(([limit, stands]) => element("div", { class: "hint", text: `${LIMITS[limit]} ${stands}` })),
];
const UNSURE = /^(This is provisional|Measure it again|The job measures it again|The search is not finished)/; // What must be in sight.
const LIMITS = { latency_ms: "latency", memory_mb: "memory", first_token_ms: "first token", token_ms: "further token" };
const measuredTimes = ({ launches }) => (launches === 1 ? "measured once" : `measured ${whole(launches)} times`);
const UNITS = { latency_ms: "ms", memory_mb: "MB", first_token_ms: "ms to the first token", token_ms: "ms a further token" };
/** "60 ms a further token and 500 MB", of the limits of an answer. */
export const limitsInWords = (limits) => Object.entries(without(limits)).map(([limit, value]) => `${value} ${UNITS[limit]}`).join(" and ") || "no limits";
const without = (limits) => Object.fromEntries(Object.entries(limits).filter(([, value]) => value !== null));
