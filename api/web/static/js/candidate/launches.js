// The launches of a candidate with their raw samples, each as a strip on one common scale.

import { PURPOSES } from "../device/work.js";
import { byId, element, fillRows, setText, svg } from "../shared/dom.js";
import { count, latency, megabytes, milliseconds, MISSING, moment } from "../shared/format.js";

const [WIDTH, HEIGHT, EDGE, MIDDLE] = [300, 26, 6, 13];

function median(values) {
  const row = [...values].sort((a, b) => a - b);
  const half = row.length / 2;
  return row.length % 2 ? row[Math.floor(half)] : (row[half - 1] + row[half]) / 2;
}

/** Samples of a launch from `least` to `most` milliseconds. */
function strip({ warmup_ms: warmup, samples_ms: samples }, least, most) {
  const at = (value) => (EDGE + ((WIDTH - 2 * EDGE) * (value - least)) / (most - least || 1)).toFixed(1);
  const dot = (kind) => (value, index) => svg("circle", { class: kind, cx: at(value), cy: MIDDLE + (index % 3 - 1) * 3, r: 3 });
  const middle = median(samples);
  return svg("svg", { class: "strip", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: "img",
    "aria-label": `${count(samples.length, "sample")} from ${milliseconds(Math.min(...samples))} to ${milliseconds(Math.max(...samples))}, median ${milliseconds(middle)}` },
    svg("line", { class: "axis", x1: EDGE, x2: WIDTH - EDGE, y1: MIDDLE, y2: MIDDLE }),
    ...warmup.map(dot("warmup")), ...samples.map(dot("sample")),
    svg("line", { class: "median", x1: at(middle), x2: at(middle), y1: 2, y2: HEIGHT - 2 }));
}

function partsOf({ forward_peak_bytes: forward, mapped_weight_bytes: mapped, build_peak_bytes: build }) {
  return [`${megabytes(forward)} in the pass`, ...(mapped ? [`${megabytes(mapped)} mapped weights`] : []), `${megabytes(build)} while it was built`].join(", ");
}

/** Whether it counts: a result that cannot be true, or contradicts the others, is kept aside with the reason. */
const isDone = ({ state, result }) => state === "done" && Boolean(result?.latency);
const whyNot = ({ state, reason, result }) => reason ?? (result?.message || (state === "reported" ? "is being checked" : "not made yet"));

function row(launch, devices, least, most) {
  const { result, purpose, state, device_id: device, finished_at: finished, mark } = launch;
  const done = isDone(launch) ? result : null;
  const name = devices.get(device) ?? device;
  return element("tr", {},
    element("td", { class: "wrap" }, element("span", { text: `${PURPOSES[purpose] ?? purpose}, ${state}` }),
      element("span", { class: "under" }, device ? element("a", { href: `/devices/${encodeURIComponent(device)}`, text: name }) : "", ` ${finished ? moment(finished) : ""}`)),
    element("td", { class: done ? null : "wrap" }, done ? strip(done.latency, least, most) : whyNot(launch)),
    element("td", { class: "number", text: done ? milliseconds(median(done.latency.samples_ms)) : MISSING }),
    element("td", { class: "number", text: done ? megabytes(done.memory.peak_bytes) : MISSING }),
    element("td", { class: "wrap", text: done ? partsOf(done.memory) : "" }),
    element("td", { class: "wrap", text: mark ?? "" }));
}

/** Shows LaunchViews of a CandidateView; `devices` has the names of devices by id. */
export function showLaunches(launches, candidate, devices) {
  const every = launches.filter(isDone).flatMap(({ result: { latency: { samples_ms: samples, warmup_ms: warmup } } }) => [...samples, ...warmup]);
  const [least, most] = [Math.min(...every), Math.max(...every)];
  fillRows(byId("launches"), launches.map((launch) => row(launch, devices, least, most)));
  byId("launches-help").hidden = every.length === 0;
  setText(byId("launches-note"), launches.length === 0 ? "None yet. A device makes the first when it is the candidate's turn."
    : every.length === 0 ? "" : `${latency(candidate.latency_ms, candidate.latency_half_width_ms)} over ${count(candidate.launches, "launch", "es")}. Strips reach from ${milliseconds(least)} to ${milliseconds(most)}.`);
}
