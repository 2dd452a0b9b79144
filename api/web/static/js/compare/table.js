// The compared architectures: what each takes on every target, and by how much that differs from the first.

import { byId, element, fillRows, setText } from "../shared/dom.js";
import { latency, megabytes, memory, millions, MISSING, whole } from "../shared/format.js";
import { labelledTitle, perplexityText } from "../shared/perplexity.js";
import { shapeOf } from "../shared/shape.js";

/** "+32 %" of a figure against another; nothing without either. */
export function difference(value, reference) {
  if (value == null || reference == null) return "";
  const share = Math.round(100 * (value / reference - 1));
  return share === 0 ? "± 0 %" : `${share > 0 ? "+" : "−"}${whole(Math.abs(share))} %`;
}

const COLUMNS = [
  { name: "shape", title: "Shape" },
  { name: "parameters", title: "Parameters", number: true, value: (one) => one.decoder_parameters },
  { name: "perplexity", title: "Predicted perplexity", number: true, value: (one) => one.score ?? one.perplexity },
];

/** The columns of a ComparisonView: those of every comparison, then two of each target. */
function columnsOf({ targets, architectures, score }) {
  const titled = COLUMNS.map((column) => (column.name === "perplexity" ? { ...column, title: score ? score.slice(score.indexOf(":") + 1) : labelledTitle(column.title, architectures) } : column));
  return [...titled, ...targets.flatMap(({ target }, index) => [
    { name: `latency-${index}`, title: `${index + 1}. ${target}: latency`, number: true, value: (one) => one.entries[index]?.latency_ms },
    { name: `memory-${index}`, title: `${index + 1}. ${target}: peak memory`, number: true, value: (one) => one.entries[index]?.memory_bytes },
  ])];
}

const FIRST_SORT = "parameters";

function measuredCells(one, targets) {
  return targets.flatMap(({ job_id: job }, index) => {
    const here = one.entries[index];
    const first = index > 0 ? one.entries[0] : null;
    if (!here) return [element("td", { class: "number", text: MISSING }), element("td", { class: "number", text: MISSING })];
    const text = `${here.predicted ? "≈ " : ""}${latency(here.latency_ms, here.latency_half_width_ms)}`;
    const shown = here.candidate_id
      ? element("a", { href: `/jobs/${encodeURIComponent(job)}/candidates/${encodeURIComponent(here.candidate_id)}`, text })
      : element("span", { title: here.predicted ? "predicted from what was measured there" : "measured by another job", text });
    return [
      element("td", { class: `number${here.on_frontier ? " member" : ""}` }, shown, element("span", { class: "under", text: isWithin(here, first) ? "no sure difference" : difference(here.latency_ms, first?.latency_ms) })),
      element("td", { class: "number" }, here.predicted ? `≈ ${megabytes(here.memory_bytes)}` : memory(here.memory_bytes), element("span", { class: "under", text: difference(here.memory_bytes, first?.memory_bytes) })),
    ];
  });
}

/** Whether the intervals of two latencies allow that there is no difference. */
const isWithin = (here, first) => first && Math.abs(here.latency_ms - first.latency_ms) <= Math.hypot(here.latency_half_width_ms ?? 0, first.latency_half_width_ms ?? 0);

function sorted(architectures, columns, sort) {
  const [name, down] = [(sort ?? FIRST_SORT).replace(/^-/, ""), sort?.startsWith("-")];
  const { value } = columns.find((column) => column.name === name && column.value) ?? columns[1];
  return [...architectures].sort((a, b) => {
    const [left, right] = [value(a), value(b)];
    if (left == null || right == null) return (left == null) - (right == null);
    return down ? right - left : left - right;
  });
}

/** Shows a ComparisonView as `chosen` says ({everywhere, sort}); `onSort(sort)` and `onPick(digest)` hear what was clicked. */
export function showTable(view, chosen, marked, { onSort, onPick }) {
  const columns = columnsOf(view);
  const table = byId("architectures");
  const focused = table.contains(document.activeElement) ? document.activeElement.dataset.name : null;
  const now = chosen.sort ?? FIRST_SORT;
  table.tHead.replaceChildren(element("tr", {}, ...columns.map(({ name, title, number, value }) => element("th", {
    scope: "col", class: number ? "number" : null, "aria-sort": now === name ? "ascending" : now === `-${name}` ? "descending" : null,
  }, value ? element("button", { type: "button", "data-name": name, text: title, on: { click: () => onSort(now === name ? `-${name}` : name) } }) : title))));
  const shown = view.architectures.filter(({ entries }) => !chosen.everywhere || entries.every((each) => each && !each.predicted));
  fillRows(table, sorted(shown, columns, chosen.sort).map((one) => element("tr", { "data-digest": one.digest, class: one.digest === marked ? "selected" : null },
    element("td", { class: "wrap" }, element("button", { type: "button", class: "pick", "data-name": one.digest, text: one.model || shapeOf(one.architecture), "aria-pressed": String(one.digest === marked), on: { click: () => onPick(one.digest) } }),
      element("span", { class: "under", text: one.baseline ? "baseline" : "" })),
    element("td", { class: "number", text: millions(one.decoder_parameters) }),
    element("td", { class: "number", text: one.score === null ? perplexityText(one) : String(one.score) }),
    ...measuredCells(one, view.targets))));
  byId("empty").hidden = shown.length > 0;
  setText(byId("empty"), chosen.everywhere ? "No architecture was measured on every target." : "Nothing was measured on these targets yet.");
  if (focused) table.querySelector(`[data-name="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}
