// The answer of a job among published models: one table over all its targets, how to get the recommended model, and the rest of the list.

import { byId, element, fillRows, setCoded, setText } from "../shared/dom.js";
import { latency, memory, millions, whole } from "../shared/format.js";
import { markOf } from "../shared/mark.js";
import { candidateAddress } from "../shared/shape.js";
import { setWords } from "./notes.js";

/** Shows a ChoicesView; gives its answers, one a device. */
export function showChoices(view) {
  byId("choices").hidden = false;
  const [table, benchmark] = [view.score.slice(0, view.score.indexOf(":")), view.score.slice(view.score.indexOf(":") + 1)];
  const every = [view, ...(view.elsewhere ?? [])]; // An answer a device.
  const recommended = every.filter((each) => each.recommended).map((each) => `${each.recommended.model} in ${each.recommended.weights}${each.device ? ` on ${each.device}` : ""}`);
  const isEmpty = every.every((each) => !each.recommended && !each.others.length && !each.nearest);
  setText(byId("choices-title"), recommended.length ? `Recommended: ${recommended.join(", ")}` : isEmpty ? "No answer yet" : "No published model within the limits");
  setWords(byId("choices-sentence"), every.map((each) => each.sentence).join(" "), byId("choices-hints"));
  const provisional = every.some((each) => each.recommended?.candidate.launches === 1) ? ["Provisional: the recommended model was measured once."] : [];
  setText(byId("choices-note"), [...provisional, ...every.map((each) => each.note && each.device ? `${each.device}: ${each.note}` : each.note)].filter(Boolean).join(" "));
  setText(byId("choices-benchmark"), benchmark);
  byId("choices-benchmark").title = `${table}: ${view.score_about} (${view.score_source})`;
  const rows = new Map(); // Each choice once, under the first name that it has.
  for (const each of every) for (const [name, choice, trade] of [
    ["Recommended", each.recommended, "–"],
    ["Surely within", each.surest, each.runners_up.find(({ choice }) => choice.candidate.id === each.surest?.candidate.id)?.trade ?? "–"],
    ...each.runners_up.map(({ choice, trade }) => ["Runner-up", choice, trade]),
    ...each.frontier.map((choice) => ["Frontier", choice, "–"]),
    ["Nearest", each.nearest, "–"],
    ...each.others.map((choice) => [placeOf(each.standings[choice.candidate.id]), choice, "–"]),
  ]) if (choice && !rows.has(choice.candidate.id)) rows.set(choice.candidate.id, row(name, each.device, choice, trade, each.standings[choice.candidate.id]));
  const generates = every.some((each) => [each.recommended, ...each.others].some((choice) => choice?.candidate.token_ms != null));
  byId("choices-table").className = `stacks ${generates ? "without-latency" : "without-first-token without-token"}`;
  fillRows(byId("choices-table"), [...rows.values()]);
  byId("choices-others").hidden = rows.size === 0;
  setCoded(byId("choices-measured"), view.measured);
  setText(byId("choices-commands"), every.flatMap((each) => each.commands).join("\n"));
  byId("choices-get").hidden = every.every((each) => each.commands.length === 0);
  byId("choices-own").hidden = view.own === null;
  setText(byId("choices-own-sentence"), view.own?.sentence ?? "");
  setText(byId("choices-own-command"), view.own?.command ?? "");
  setText(byId("choices-unscored"), listed(view.unscored));
  setText(byId("choices-unscored-title"), `Without this score, not measured (${whole(view.unscored.length)})`);
  byId("choices-unscored-box").hidden = view.unscored.length === 0;
  setText(byId("choices-alike"), view.same_architecture.length ? `Of the same architecture as one of these, with a lower score: ${listed(view.same_architecture)}.` : "");
  return every;
}

/** A row's name where it has no other: how its figures stand to the limits, the farthest first. */
const placeOf = (standings) => ((stands) => (stands.includes("beyond") ? "Beyond the limits" : stands.includes("at the limit") ? "At the limit" : "Measured"))(Object.values(standings ?? {}));

function row(name, device, choice, trade, standings = {}) {
  const { candidate, kv_cache: cache } = choice;
  const time = (name) => element("td", { class: `number ${name}` }, latency(candidate[`${name}_ms`.replace("-", "_")], candidate[`${name}_half_width_ms`.replace("-", "_")]), ...(name === "first-token" ? [] : markOf(candidate)), ...stands(standings[`${name}_ms`.replace("-", "_")]));
  return element("tr", { class: name === "Recommended" ? "recommended" : null },
    element("th", { scope: "row", text: device ? `${name}, ${device}` : name }),
    element("td", { class: "wrap" }, element("a", { href: candidateAddress(candidate), text: choice.model }), element("span", { class: "under", text: choice.licence ?? "licence unknown" })),
    element("td", {}, choice.weights + (cache === null || cache === "f16" ? "" : `, cache ${cache}`), element("span", { class: "under", text: choice.runtime })),
    element("td", { class: "number", text: String(choice.score) }),
    ...["latency", "first-token", "token"].map(time),
    element("td", { class: "number" }, memory(candidate.memory_bytes), ...stands(standings.memory_mb)),
    element("td", { class: "wrap wide", text: trade }));
}

const stands = (words) => (words ? [element("div", { class: "hint", text: words })] : []);

const listed = (models) => models.map(({ model, parameters, perplexity, score }) =>
  `${model} (${[millions(parameters), ...(score === null ? [] : [`score ${score}`]), ...(perplexity === null ? [] : [`a law predicts perplexity ${perplexity.toPrecision(3)}`])].join(", ")})`).join("; ");
