// The answer of a job among published models: one table over all its targets, how to get the recommended model, and the rest of the list.

import { byId, element, setText } from "../shared/dom.js";
import { latency, megabytes, millions, milliseconds, whole } from "../shared/format.js";
import { markOf } from "../shared/mark.js";

/** Shows a ChoicesView. */
export function showChoices(view) {
  byId("choices").hidden = false;
  const [table, benchmark] = [view.score.slice(0, view.score.indexOf(":")), view.score.slice(view.score.indexOf(":") + 1)];
  const every = [view, ...(view.elsewhere ?? [])]; // An answer a device.
  const recommended = every.filter((each) => each.recommended).map((each) => `${each.recommended.model} in ${each.recommended.weights}${each.device ? ` on ${each.device}` : ""}`);
  setText(byId("choices-title"), recommended.length ? `Recommended: ${recommended.join(", ")}` : "No published model within the limits");
  setText(byId("choices-sentence"), every.map((each) => each.sentence).join(" "));
  setText(byId("choices-note"), every.map((each) => each.note && each.device ? `${each.device}: ${each.note}` : each.note).filter(Boolean).join(" "));
  setText(byId("choices-benchmark"), benchmark);
  byId("choices-benchmark").title = `${table}: ${view.score_about} (${view.score_source})`;
  const rows = new Map(); // Each choice once, under the first name that it has.
  for (const each of every) for (const [name, choice, trade] of [
    ["Recommended", each.recommended, "–"],
    ...each.runners_up.map(({ choice, trade }) => ["Runner-up", choice, trade]),
    ...each.frontier.map((choice) => ["Frontier", choice, "–"]),
    ["Nearest", each.nearest, "–"],
  ]) if (choice && !rows.has(choice.candidate.id)) rows.set(choice.candidate.id, row(name, each.device, choice, trade));
  byId("choices-table").tBodies[0].replaceChildren(...rows.values());
  byId("choices-others").hidden = rows.size === 0;
  setText(byId("choices-measured"), view.measured);
  setText(byId("choices-commands"), every.flatMap((each) => each.commands).join("\n"));
  byId("choices-get").hidden = every.every((each) => each.commands.length === 0);
  byId("choices-own").hidden = view.own === null;
  setText(byId("choices-own-sentence"), view.own?.sentence ?? "");
  setText(byId("choices-own-command"), view.own?.command ?? "");
  setText(byId("choices-unscored"), listed(view.unscored));
  setText(byId("choices-unscored-title"), `Without this score, not measured (${whole(view.unscored.length)})`);
  byId("choices-unscored-box").hidden = view.unscored.length === 0;
  setText(byId("choices-alike"), view.same_architecture.length ? `Of the same architecture as one of these, with a lower score: ${listed(view.same_architecture)}.` : "");
}

function row(name, device, choice, trade) {
  const { candidate, kv_cache: cache } = choice;
  return element("tr", { class: name === "Recommended" ? "recommended" : null },
    element("th", { scope: "row", text: device ? `${name}, ${device}` : name }),
    element("td", { class: "wrap", text: choice.model }),
    element("td", { text: choice.weights + (cache === null || cache === "f16" ? "" : `, cache ${cache}`) }),
    element("td", { text: choice.runtime }),
    element("td", { class: "number", text: String(choice.score) }),
    element("td", { class: "number" }, latency(candidate.latency_ms, candidate.latency_half_width_ms), ...markOf(candidate)),
    element("td", { class: "number", text: milliseconds(candidate.first_token_ms) }),
    element("td", { class: "number", text: milliseconds(candidate.token_ms) }),
    element("td", { class: "number", text: megabytes(candidate.memory_bytes) }),
    element("td", { text: choice.licence ?? "unknown" }),
    element("td", { class: "wrap wide", text: trade }));
}

const listed = (models) => models.map(({ model, parameters, perplexity, score }) =>
  `${model} (${[millions(parameters), ...(score === null ? [] : [`score ${score}`]), ...(perplexity === null ? [] : [`a law predicts perplexity ${perplexity.toPrecision(3)}`])].join(", ")})`).join("; ");
