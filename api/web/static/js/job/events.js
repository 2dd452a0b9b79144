// The events of a job in words.

import { latency, megabytes, whole } from "../shared/format.js";
import { isMeasured } from "./candidates.js";
import { stateTitle } from "./target.js";

const ids = (number, noun) => `${whole(number)} ${noun}`;
const because = (text, state) => (text ? `: ${text.replace(new RegExp(`^${state}: `), "")}` : "");

function candidate({ id, number, role, state, reason }, views) {
  const name = `${role === "baseline" ? role : "candidate"} ${whole(number)}`;
  if (state === "waiting") return `${name} proposed`;
  const view = views?.get(id);
  const figures = view?.state === state && isMeasured(view)
    ? `: ${latency(view.latency_ms, view.latency_half_width_ms)}, ${megabytes(view.memory_bytes)} over ${whole(view.launches)} launch${view.launches === 1 ? "" : "es"}` : "";
  return `${name} ${state.replaceAll("_", " ")}${figures}${because(state === "measured" ? "" : reason, state)}`;
}

const WORDS = {
  job_state: ({ state, reason }) => `the job is ${state}${because(reason)}`,
  target_state: ({ state, note }) => `${stateTitle(state)}${because(note)}`,
  generation: ({ number, candidates }) => `generation ${whole(number)}: ${ids(candidates, "candidates proposed")}`,
  candidate,
  frontier: ({ joined, left, size, hypervolume }) => `frontier: ${whole(joined.length)} joined, ${whole(left.length)} left, ${whole(size)} on it${hypervolume == null ? "" : `, hypervolume ${hypervolume.toFixed(4)}`}`,
  launch: ({ launch_id: id, outcome, reason }) => `launch ${id} ${outcome}${because(reason, outcome)}`,
};

/** One event as a line, without its time; `targets` has the names of targets by id, `views` CandidateViews by id. */
export function inWords({ kind, target_id: target, data }, targets, views) {
  const words = WORDS[kind] ? WORDS[kind](data, views) : kind;
  return target ? `${targets.get(target) ?? target}: ${words}` : words;
}

/** Whether a line is of something that went wrong. */
export const isBad = ({ kind, data }) => data.state === "failed" || data.outcome === "failed";
