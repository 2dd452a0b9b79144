// Where the predicted milliseconds and bytes go, beside the measured totals.

import { byId, element, setText } from "../shared/dom.js";
import { latency, megabytes, milliseconds, percent } from "../shared/format.js";
import { KINDS } from "../shared/shape.js";

const ENDS = "embedding, output and the pass itself";
const WORK = {
  pass: "every pass", stream: "embedding and final norm", embedding_products: "embedding's projection", output_products: "output layer's products",
  block_stream: "norms and residual sums", block_biases: "biases", attention_calls: "calls of attention", attention_products: "attention's linear layers",
  attention_scores: "scores and weighted values", attention_weights: "softmax", feed_forward_calls: "calls of feed-forward", feed_forward_products: "feed-forward's linear layers",
  feed_forward_width: "activations", feed_forward_gates: "gates", recurrence_calls: "calls of recurrences", recurrence: "recurrent steps", sru_products: "SRU's linear layers",
  srupp_products: "SRU++'s linear layers", srupp_calls: "calls of SRU++ attention", srupp_scores: "SRU++ scores", grouped_scores: "scores of shared keys",
  grouped_kept: "shared keys and values", attention_turned: "rotary positions", attention_norms: "norms of queries and keys", convolution_calls: "calls of convolutions",
  convolution_products: "convolutions' linear layers", convolution_taps: "convolutions' kernels",
};

/** Rows with a bar each, the largest first: [name, value]; `text` formats a value. */
export function bars(table, found, text) {
  const total = found.reduce((sum, [, value]) => sum + value, 0) || 1;
  const rows = [...found].sort(([, a], [, b]) => b - a);
  table.tBodies[0].replaceChildren(...rows.map(([name, value]) => element("tr", {},
    element("th", { scope: "row", text: name }),
    element("td", { class: "bar" }, element("meter", { min: 0, max: 1, value: value / total, "aria-label": `${name}: ${percent(value / total)}` })),
    element("td", { class: "number", text: text(value) }),
    element("td", { class: "number", text: percent(value / total) }))));
}

function summed(pairs) {
  const sums = new Map();
  for (const [name, value] of pairs) sums.set(name, (sums.get(name) ?? 0) + value);
  return [...sums].filter(([, value]) => value > 0);
}

/** Shows CandidateParts of a CandidateView. */
export function showParts(found, candidate) {
  setText(byId("parts-note"), [found.note, found.beyond_measured ? "It does much more, or much less, than anything that was measured there: this is extrapolated." : ""].filter(Boolean).join(" "));
  byId("parts").hidden = found.latency_ms === null;
  if (found.latency_ms === null) return;
  const measured = (value, text) => (value === null ? "not measured" : `measured ${text}`);
  setText(byId("latency-total"), `Predicted ${milliseconds(found.latency_ms)}, ${measured(candidate.latency_ms, latency(candidate.latency_ms, candidate.latency_half_width_ms))}.`);
  setText(byId("memory-total"), `Predicted ${megabytes(found.memory_bytes)}, ${measured(candidate.memory_bytes, megabytes(candidate.memory_bytes))}.`);
  bars(byId("latency-parts"), summed(found.parts.map(({ block, kind, ms }) => [block === null ? ENDS : KINDS[kind] ?? kind, ms])), milliseconds);
  bars(byId("latency-work"), summed(found.parts.flatMap(({ by_feature: work }) => Object.entries(work)).map(([name, ms]) => [WORK[name] ?? name, ms])), milliseconds);
  bars(byId("memory-parts"), found.memory_parts.map(({ meaning, bytes }) => [meaning, bytes]), megabytes);
}
