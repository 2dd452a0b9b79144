// A table of jobs, each with its answer: on the list of jobs and on the home page.

import { byId, element, fillRows } from "../shared/dom.js";
import { ago, count, moment, whole } from "../shared/format.js";
import { stateTitle } from "./target.js";

/** Shows these jobs; the first steps where there are none. */
export function showJobs(jobs) {
  fillRows(byId("jobs"), jobs.map(row));
  byId("empty").hidden = jobs.length > 0;
  byId("loading").hidden = true;
}

function row(job) {
  const targets = job.targets.map((target) => element("li", {},
    element("strong", { text: target.name }), " ",
    ...(["finished", job.state].includes(target.state) ? [] : [element("span", { class: `badge ${target.state}`, text: stateTitle(target.state) }), " "]),
    answer(target)));
  return element("tr", {},
    element("td", { class: "wrap" }, element("a", { href: `/jobs/${encodeURIComponent(job.id)}`, text: job.name })),
    element("td", { class: "untitled" }, element("span", { class: `badge ${job.state}`, text: job.state })),
    element("td", { class: "wrap wide untitled" }, element("ul", { class: "targets" }, ...targets)),
    element("td", { class: "wrap narrow", text: ago(job.created_at), title: moment(job.created_at) }),
    element("td", { class: "wrap narrow", text: job.owner }));
}

/** The answer of a target in a few words, once its search has ended; until then how far it is. */
const answer = (target) => target.answer || `${count(target.settled, "model")} measured${target.planned === null ? "" : ` of at most ${whole(target.planned)}`}`;
