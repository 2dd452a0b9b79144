// What belongs to a candidate: its ancestors, the files of its model, its trainings.

import { byId, element, fillRows, setText } from "../shared/dom.js";
import { count, latency, memory, MISSING, whole } from "../shared/format.js";
import { markOf } from "../shared/mark.js";
import { candidateAddress, proposed, shapeOf } from "../shared/shape.js";
import { badgeOf, progressOf, qualityOf, qualityText, recipeName, stateTitle } from "../training/view.js";

const FORMATS = {
  onnx: "ONNX: a pass over whole sequences", "onnx-prefill": "ONNX for the prompt", "onnx-decode": "ONNX for token by token",
  "onnx-generate": "ONNX that generates with its cache in place", "onnx-segment": "ONNX for segments after a memory", gguf: "GGUF, for llama.cpp", transformers: "Folder for Hugging Face transformers (tar)",
  safetensors: "safetensors", architecture: "Description (JSON), no weights",
};

export function showLineage({ candidate, ancestors }) {
  const parents = candidate.parents.length;
  setText(byId("lineage-note"), candidate.role === "baseline" ? "A baseline: the stock model of the space, at one of its depths."
    : `Proposed in ${proposed(candidate)}${parents ? `, from ${count(parents, "parent")}` : ", without parents"}.`);
  fillRows(byId("lineage"), ancestors.map((each) => element("tr", {},
    element("td", { class: "number" }, element("a", { href: candidateAddress(each), text: whole(each.number), "aria-label": `Candidate ${whole(each.number)}` })),
    element("td", { class: "wrap", text: `${candidate.parents.includes(each.id) ? "parent" : "ancestor"}: ${proposed(each)}` }),
    element("td", { class: "wrap", text: shapeOf(each.architecture) }),
    element("td", { class: "number" }, latency(each.latency_ms, each.latency_half_width_ms), ...markOf(each)),
    element("td", { class: "number", text: memory(each.memory_bytes) }),
    element("td", { text: each.on_frontier ? "on the frontier" : each.state.replaceAll("_", " ") }))));
}

export function showDownloads({ candidate, downloads }) {
  const path = `/v1/candidates/${encodeURIComponent(candidate.id)}/model`;
  byId("downloads").tBodies[0].replaceChildren(...downloads.map(({ format, logits, numbers }) => element("tr", {},
    element("th", { scope: "row", text: (FORMATS[format] ?? format) + (logits ? `, logits: ${logits}` : "") }),
    element("td", { class: "wrap" }, element("span", { class: "links" }, ...numbers.map((each) => element("a", {
      href: `${path}?${new URLSearchParams({ format, numbers: each, ...(logits ? { logits } : {}) })}`, download: "",
      text: format === "architecture" ? "download" : each, "aria-label": format === "architecture" ? "download the description" : `${format} in ${each}, untrained weights`,
    })))))));
  setText(byId("commands"), [`edgefront model download ${candidate.id} --format ${downloads[0].format}`, `edgefront train submit --candidate ${candidate.id} --watch`].join("\n"));
}

export function showTrainings(trainings) {
  byId("no-trainings").hidden = trainings.length > 0;
  fillRows(byId("trainings"), trainings.map((training) => element("tr", {},
    element("td", { class: "wrap" }, element("a", { href: `/trainings/${encodeURIComponent(training.id)}`, text: training.name })),
    element("td", {}, element("span", { class: badgeOf(training), text: stateTitle(training) })),
    element("td", { class: "wrap", text: progressOf(training) }),
    element("td", { class: "number", text: qualityText(qualityOf(training)) }),
    element("td", { text: training.dataset ?? MISSING }), element("td", { text: recipeName(training) }))));
}
