// Texts on one target: state, progress, figures, summary sentence.

import { qualityAxis } from "./candidates.js";
import { byId, setNotice, setText } from "../shared/dom.js";
import { count, duration, MISSING, percent, whole } from "../shared/format.js";

const ENDED = new Set(["finished", "cancelled", "failed"]);
const TITLES = { baselines: "measuring baselines", searching: "searching", refining: "refining the frontier" };

export const isEnded = (state) => ENDED.has(state);
export const stateTitle = (state) => TITLES[state] ?? state;

/** Fills the panel from a TargetView; `job` is the JobView that it belongs to, `candidate` one of its own, once there is one. */
export function showTarget(target, job, candidate) {
  const { protocol, limits } = target;
  setText(byId("target-facts"), [
    `${stateTitle(target.state)} on ${target.device}`,
    `${protocol.runtime} ${protocol.provider}, ${count(protocol.threads, "thread")}`,
    onePass(protocol),
    `batch ${protocol.batch}, ${scores(protocol, candidate)}, ${protocol.dtype}${protocol.weights === "full" ? "" : `, ${protocol.weights} weights`}`,
    ...(limits.latency_ms ? [`at most ${limits.latency_ms} ms`] : []),
    ...(limits.memory_mb ? [`at most ${limits.memory_mb} MiB`] : []),
  ].join(" · "));
  setText(byId("parameters-name"), qualityAxis(job.request.proxy, candidate).name);
  byId("encoder-note").hidden = candidate?.generates !== false;
  const [note, kind] = noteOf(target, job);
  setNotice(byId("target-note"), note, kind);
  setText(byId("summary"), target.summary);
  showProgress(target);
  setText(byId("frontier-size"), whole(target.frontier_size));
  setText(byId("hypervolume"), target.reference ? target.hypervolume.toFixed(4) : MISSING);
  setText(byId("time-left"), isEnded(target.state) || job.state !== "running" ? MISSING : duration(target.seconds_left));
  setText(byId("measuring-share"), percent(target.measuring_share));
  setText(byId("devices-online"), whole(target.devices_online));
}

function showProgress(target) {
  const whole_ = target.planned ?? target.candidates;
  const bar = byId("progress");
  bar.max = Math.max(whole_, 1);
  bar.value = Math.min(target.settled, bar.max);
  const of = target.planned === null ? `${whole(target.candidates)} proposed so far` : whole(target.planned);
  setText(byId("progress-label"), `${whole(target.settled)} of ${of} candidates evaluated, ${count(target.launches_done, "launch", "es")}`);
}

function noteOf(target, job) {
  if (target.state === "failed") return [target.note || "This target failed.", "bad"];
  const waits = job.state === "running" && !isEnded(target.state) && target.devices_online === 0;
  if (!waits) return [target.note, ""];
  const text = target.note || `No agent is online for ${target.device}. Measuring resumes when one connects.`;
  return [text, "warn"];
}

/** One pass as text: `forward pass of 192 tokens`. */
function onePass({ mode, sequence_length: tokens, memory_length: memory }) {
  if (mode === "decode") return `decode of 1 token after ${whole(memory)}`;
  const name = mode === "prefill" ? "prefill" : "forward pass";
  return `${name} of ${count(tokens, "token")}${memory ? ` after a memory of ${whole(memory)}` : ""}`;
}

/** Which positions get scores; a pooled output reads the first, whichever are asked for (`core.graph.output.write_end`). */
function scores({ logits }, candidate) {
  return candidate?.pooled && logits !== "none" ? "output pooled at the first token" : `logits ${logits}`;
}
