// One candidate: its blocks, where its milliseconds and bytes go, its launches, lineage, files and trainings.

import { showDownloads, showLineage, showTrainings } from "../candidate/belongings.js";
import { showBlocks, showBlockTimes } from "../candidate/blocks.js";
import { showLaunches } from "../candidate/launches.js";
import { onePass } from "../job/target.js";
import { showParts } from "../candidate/parts.js";
import { Away, eachPage, patiently, pause, Refused, showAccount } from "../shared/api.js";
import { byId, element, setCoded, setNotice, setText } from "../shared/dom.js";
import { figure, generationOf, latency, megabytes, memory, millions, milliseconds, times, tokens, whole } from "../shared/format.js";
import { markOf } from "../shared/mark.js";
import { labelledTitle, perplexityWithEnds } from "../shared/perplexity.js";
import { withRoot } from "../shared/root.js";
import { offerCopy } from "../shared/share.js";
import { shapeOf } from "../shared/shape.js";

const FRESHEN_MS = 5000;
const SETTLED = new Set(["measured", "out_of_bounds", "infeasible", "failed", "cancelled"]);

const { job, candidate: id } = document.body.dataset;
const path = `/v1/candidates/${encodeURIComponent(id)}`;
const away = (error) => setNotice(byId("notice"), `${error.message}; trying again`, "warn");

function figuresOf(candidate) {
  const { predicted, versus_baseline: versus } = candidate;
  const interval = (low, high, text) => (low == null ? "" : ` (${text(low)} to ${text(high)})`);
  return [
    ["Latency", latency(candidate.latency_ms, candidate.latency_half_width_ms), ...markOf(candidate)],
    ...(predicted?.latency_ms ? [["Latency, as predicted before", `${milliseconds(predicted.latency_ms)}${interval(predicted.latency_low_ms, predicted.latency_high_ms, figure)}`]] : []),
    ["Peak memory", memory(candidate.memory_bytes)],
    ...(predicted?.memory_bytes ? [["Peak memory, as predicted before", megabytes(predicted.memory_bytes)]] : []),
    ...(predicted?.perplexity ? [[labelledTitle("Predicted perplexity", [predicted]), perplexityWithEnds(predicted)], ["Predicted by", lawOf(predicted)]] : []),
    ...(versus ? [["Speed-up over the baseline", `${versus.extrapolated ? "≈ " : ""}${times(versus.speedup)}`], ["Memory ratio", `${versus.extrapolated ? "≈ " : ""}${times(versus.memory_ratio)}`]] : []),
    ["Decoder parameters", millions(candidate.decoder_parameters)],
    ["All parameters", millions(candidate.total_parameters)],
    ["Weights", megabytes(candidate.weight_bytes)],
    ["FLOPs of a pass", `${figure(candidate.flops / 1e9)} G`],
  ];
}

const lawOf = ({ law, train_tokens: trained }) => `the law ${law}${trained ? `, trained on ${tokens(trained)}` : ""}`;

function show(details, choice) {
  const { candidate, protocol } = details;
  const name = candidate.model || `Candidate ${whole(candidate.number)}`;
  document.body.classList.toggle("published", Boolean(candidate.model));
  setText(byId("name"), name);
  document.title = `${name} · ${details.job_name} · edgefront`;
  setText(byId("job-link"), details.job_name);
  setText(byId("state"), candidate.role === "baseline" ? "baseline" : candidate.on_frontier ? "on the frontier" : candidate.state.replaceAll("_", " "));
  byId("state").className = `badge ${candidate.on_frontier ? "finished" : candidate.state === "failed" ? "failed" : ""}`;
  byId("state").hidden = false;
  byId("in-job").href = withRoot(`/jobs/${encodeURIComponent(job)}#${new URLSearchParams({ target: candidate.target_id, candidate: candidate.id })}`);
  byId("in-job").hidden = false;
  const weights = protocol.weights === "full" ? "" : `, ${protocol.weights} weights`;
  const cache = protocol.kv_cache ? `, ${protocol.kv_cache} key/value cache` : "";
  setText(byId("facts"), [details.target, details.device, `${protocol.runtime} ${protocol.provider}`, onePass(protocol), `batch ${protocol.batch}, ${protocol.dtype}${weights}${cache}`, `digest ${candidate.digest.slice(0, 10)}`].join(" · "));
  setNotice(byId("reason"), candidate.state === "measured" ? "" : candidate.reason ?? "", "warn");
  const generation = generationOf(candidate);
  byId("figures").replaceChildren(...[...choice, ...figuresOf(candidate), ...(generation.length ? [["Generation", generation.join(", ")]] : [])].map(([term, ...values]) => element("div", {}, element("dt", { text: term }), element("dd", {}, ...values))));
  setText(byId("shape"), `${shapeOf(candidate.architecture)} · embedding and output ${millions(details.embedding_parameters)}${details.position_parameters ? `, positions ${millions(details.position_parameters)}` : ""} parameters`);
  setText(byId("protocol-pass"), `a ${onePass(protocol)}`);
  showBlocks(details);
  showLineage(details);
  showDownloads(details);
  byId("candidate").hidden = false;
}

/** Shows how a published model is got, from its job's answer; gives its score and licence, as figures. */
async function showChoice(candidate) {
  const view = await patiently(`/v1/jobs/${encodeURIComponent(job)}/choices`, away);
  const found = [view, ...(view.elsewhere ?? [])].flatMap((each) => [each.recommended, ...each.runners_up.map(({ choice }) => choice), ...each.frontier, ...each.others]);
  const choice = found.find((each) => each?.candidate.id === candidate.id);
  if (!choice) return [];
  setText(byId("get-command"), choice.get);
  setCoded(byId("get-says"), view.measured);
  byId("get").hidden = false;
  return [[view.score.slice(view.score.indexOf(":") + 1), String(choice.score)], ["Licence", choice.licence ?? "unknown"]];
}

async function names() {
  const found = new Map();
  for await (const items of eachPage("/v1/devices", away)) for (const device of items) found.set(device.id, device.name);
  return found;
}

async function showLater({ candidate }) {
  const digest = encodeURIComponent(candidate.digest);
  const tried = (work) => work.catch((error) => {
    if (!(error instanceof Refused)) throw error;
    setText(byId("parts-note"), error.message);
  });
  await Promise.all([
    Promise.all([patiently(`${path}/launches`, away), names()]).then(([launches, devices]) => showLaunches(launches, candidate, devices)),
    patiently(`/v1/trainings?digest=${digest}`, away).then(({ items }) => showTrainings(items)),
    tried(patiently(`${path}/parts`, away).then((found) => {
      showParts(found, candidate);
      showBlockTimes(found.parts);
    })),
  ]);
}

async function start() {
  showAccount();
  for (const line of ["get-command", "commands"]) offerCopy(byId(line));
  for (;;) {
    const details = await patiently(`${path}/details`, away);
    setNotice(byId("notice"), "");
    show(details, details.candidate.model ? await showChoice(details.candidate) : []);
    await showLater(details);
    if (SETTLED.has(details.candidate.state)) return;
    await pause(FRESHEN_MS);
  }
}

start().catch((error) => {
  if (!(error instanceof Away || error instanceof Refused)) throw error;
  setNotice(byId("notice"), `Could not load the candidate: ${error.message}`, "bad");
});
