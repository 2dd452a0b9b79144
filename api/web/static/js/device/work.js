// What a device does now, and what waits for it.

import { byId, element, fillRows, setText } from "../shared/dom.js";
import { ago, whole } from "../shared/format.js";
import { shapeOf } from "../shared/shape.js";

/** What a launch is for, in words. */
export const PURPOSES = { first: "first launch", refinement: "repeated launch", repeat: "check of a launch", anchor: "anchor" };

const jobLink = ({ job_id: id, job_name: name }, other) => (id ? element("a", { href: `/jobs/${encodeURIComponent(id)}`, text: name }) : other);

function heldRow(launch) {
  const { started_at: started, purpose, architecture, runtime, mode, job_id: job, candidate_id: candidate } = launch;
  const shape = shapeOf(architecture);
  const model = candidate ? element("a", { href: `/jobs/${encodeURIComponent(job)}/candidates/${encodeURIComponent(candidate)}`, text: shape }) : shape;
  return element("tr", {},
    element("td", { text: `${PURPOSES[purpose] ?? purpose}, ${started ? `started ${ago(started)}` : "not started yet"}` }),
    element("td", { class: "wrap wide" }, model),
    element("td", { text: `${runtime}, ${mode}` }),
    element("td", { class: "wrap" }, jobLink(launch, purpose === "anchor" ? "the device itself" : "another owner")));
}

function queueRow(entry) {
  return element("tr", {},
    element("td", { class: "wrap" }, jobLink(entry, "anchors and other owners")),
    element("td", { text: entry.of_class ? "any device of the class" : "this device" }),
    element("td", { class: "number", text: whole(entry.launches) }));
}

/** Shows a DeviceWork of a DeviceView. */
export function showWork(work, device) {
  setText(byId("holds"), whole(work.held.length));
  setText(byId("waiting"), whole(work.waiting));
  setText(byId("waiting-class"), whole(work.waiting_class));
  fillRows(byId("held"), work.held.map(heldRow));
  byId("idle").hidden = work.held.length > 0;
  setText(byId("idle"), device.online ? "It holds no launch." : "It holds no launch, and is not connected.");
  fillRows(byId("queue"), work.queue.map(queueRow));
  byId("queue-of").hidden = work.queue.length === 0;
}
