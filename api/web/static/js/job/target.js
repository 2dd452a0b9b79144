// Texts on one target: state, progress, figures, summary sentence.

import { byId, element, setNotice, setText } from "../shared/dom.js";
import { count, duration, MISSING, moment, percent, whole } from "../shared/format.js";
import { showNote } from "./notes.js";
import { byProxy } from "./quality.js";

const ENDED = new Set(["finished", "cancelled", "failed"]);
const TITLES = { baselines: "measuring baselines", searching: "searching", refining: "refining the frontier" };

export const isEnded = (state) => ENDED.has(state);
export const stateTitle = (state) => TITLES[state] ?? state;

/** The page's title, and what is said of a JobView as a whole. */
export function showHead(job) {
  const alike = Number((100 * job.request.epsilon).toPrecision(3));
  setText(byId("epsilon"), alike ? `For the frontier, differences up to ${alike} % count as none: they are within the error of measurement (ε).` : "");
  document.title = `${job.name} · edgefront`;
  setText(byId("job-name"), job.name);
  const badge = byId("job-state");
  setText(badge, job.state);
  badge.className = `badge ${job.state}`;
  badge.hidden = false;
  setText(byId("job-facts"), [
    ...(job.request.space.published ? [] : [`space ${job.request.space.name}`, `search algorithm ${job.request.algorithm.name}`, `seed ${job.request.seed}`]),
    `by ${job.owner}`, `started ${moment(job.created_at)}`, ...(job.finished_at ? [`ended ${moment(job.finished_at)}`] : []),
  ].join(" · "));
  const reason = job.reason ? `: ${job.reason}` : "";
  if (job.state === "failed") setNotice(byId("notice"), `This job failed${reason}`, "bad");
  else if (job.state === "paused") setNotice(byId("notice"), `Paused${reason}. Nothing is measured until it is resumed.`, "warn");
  else setNotice(byId("notice"), job.state === "cancelled" ? `Cancelled${reason}` : job.reason ?? "");
}

/** Fills the panel from a TargetView; `job` is the JobView that it belongs to, `candidate` one of its own, once there is one. */
export function showTarget(target, job, candidate) {
  const { protocol, limits } = target;
  setText(byId("target-facts"), [
    `${stateTitle(target.state)} on ${target.device}`,
    `${protocol.runtime} ${protocol.provider}, ${count(protocol.threads, "thread")}`,
    onePass(protocol),
    `batch ${protocol.batch}, ${scores(protocol, candidate)}, ${protocol.dtype}${protocol.weights === "full" ? "" : `, ${protocol.weights} weights`}${protocol.kv_cache ? `, ${protocol.kv_cache} key/value cache` : ""}`,
    ...(protocol.when_busy === "wait" ? ["waits while the device is busy"] : []),
    ...(limits.latency_ms ? [`at most ${limits.latency_ms} ms`] : []),
    ...(limits.first_token_ms ? [`first token after at most ${limits.first_token_ms} ms`] : []),
    ...(limits.token_ms ? [`at most ${limits.token_ms} ms a further token`] : []),
    ...(limits.memory_mb ? [`at most ${limits.memory_mb} MB`] : []),
  ].join(" · "));
  setText(byId("baseline-name"), job.request.space.model ? "my model" : "the baseline");
  setText(byId("parameters-name"), job.request.proxy === "quality_law" ? "predicted quality" : byProxy(job.request, candidate).label);
  byId("encoder-note").hidden = candidate?.generates !== false;
  const [note, kind] = noteOf(target, job);
  showNote("target-note", note, kind, false);
  setText(byId("summary"), target.summary);
  showProgress(target);
  setText(byId("frontier-size"), whole(target.frontier_size));
  setText(byId("hypervolume"), target.reference ? target.hypervolume.toFixed(4) : MISSING);
  setText(byId("time-left"), isEnded(target.state) || job.state !== "running" ? MISSING : duration(target.seconds_left));
  setText(byId("measuring-share"), percent(target.measuring_share));
  setText(byId("devices-online"), whole(target.devices_online));
}

/** What a target without any result waits for. That it is paused, or that no agent is online, the notices say. */
export function awaited(job, target) {
  if (isEnded(target.state)) return "Nothing was measured.";
  const isHeld = job.state === "paused" || target.devices_online === 0;
  return isHeld ? "Nothing is measured yet." : "The first launches are under way: the baseline comes first.";
}

function showProgress(target) {
  byId("progress-row").hidden = target.state === "finished";
  const whole_ = target.planned ?? target.candidates;
  const bar = byId("progress");
  bar.max = Math.max(whole_, 1);
  bar.value = Math.min(target.settled, bar.max);
  const of = target.planned === null ? `${whole(target.candidates)} proposed so far` : `${isEnded(target.state) ? "" : "at most "}${whole(target.planned)}`;
  setText(byId("progress-label"), `${whole(target.settled)} of ${of} candidates evaluated, ${count(target.launches_done, "launch", "es")}`);
}

function noteOf(target, job) {
  if (target.state === "failed") return [target.note || "This target failed.", "bad"];
  const waits = job.state === "running" && !isEnded(target.state) && target.devices_online === 0;
  if (!waits) return [target.note, ""];
  const text = target.note || `No agent is online for ${target.device}. Measuring resumes when one connects.`;
  return [text, "warn"];
}

/** Links to all candidates of a target as files. */
export function showExports(path, target) {
  if (byId("export").dataset.target === target) return;
  byId("export").dataset.target = target;
  byId("export").replaceChildren(...["csv", "parquet"].map((format) => element("a", {
    href: `${path}/candidates?target=${encodeURIComponent(target)}&format=${format}`, download: "",
    text: format === "csv" ? "CSV" : "Parquet", "aria-label": `Candidates of this target as ${format}`,
  })));
}

const LATENCIES = { first_token: ", its latency the time to the first", token: ", its latency the time of each further one" };

/** One pass as text: `forward pass of 192 tokens`. */
export function onePass({ mode, sequence_length: tokens, memory_length: memory, new_tokens: made, latency }) {
  if (mode === "generate") {
    const context = memory ? ` after ${whole(memory)}` : "";
    return `generation of ${whole(made)} tokens from a prompt of ${whole(tokens)}${context}${LATENCIES[latency] ?? ""}`;
  }
  if (mode === "decode") return `decode of 1 token after ${whole(memory)}`;
  const name = mode === "prefill" ? "prefill" : "forward pass";
  return `${name} of ${count(tokens, "token")}${memory ? ` after a memory of ${whole(memory)}` : ""}`;
}

/** Which positions get scores; a pooled output reads the first, whichever are asked for (`core.model_files.output.write_end`). */
function scores({ logits }, candidate) {
  return candidate?.pooled && logits !== "none" ? "output pooled at the first token" : `logits ${logits}`;
}
