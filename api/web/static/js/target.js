// What is said of one target: state, progress, figures, the claim in a sentence.

import { byId, setNotice, setText } from "./dom.js";
import { duration, MISSING, percent, whole } from "./format.js";

const ENDED = new Set(["finished", "cancelled", "failed"]);
const TITLES = { baselines: "measuring baselines", searching: "searching", refining: "refining the frontier" };

export const isEnded = (state) => ENDED.has(state);
export const stateTitle = (state) => TITLES[state] ?? state;

/** Fills the panel from a TargetView; `job` is the JobView that it belongs to. */
export function showTarget(target, job) {
  const { protocol, limits } = target;
  setText(byId("target-facts"), [
    `${stateTitle(target.state)} on ${target.device}`,
    `${protocol.runtime} ${protocol.provider}, ${count(protocol.threads, "thread")}`,
    `batch ${protocol.batch}, sequence ${protocol.sequence_length}, logits ${protocol.logits}, ${protocol.dtype}`,
    ...(limits.latency_ms ? [`at most ${limits.latency_ms} ms`] : []),
    ...(limits.memory_mb ? [`at most ${limits.memory_mb} MiB`] : []),
  ].join(" · "));
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
  setText(byId("progress-label"), `${whole(target.settled)} of ${of} candidates settled, ${count(target.launches_done, "launch", "es")}`);
}

function noteOf(target, job) {
  if (target.state === "failed") return [target.note || "This target failed.", "bad"];
  const waits = job.state === "running" && !isEnded(target.state) && target.devices_online === 0;
  if (!waits) return [target.note, ""];
  const text = target.note || `No agent is online for ${target.device}. Measuring goes on by itself when one connects.`;
  return [text, "warn"];
}

const count = (number, noun, plural = "s") => `${whole(number)} ${noun}${number === 1 ? "" : plural}`;
