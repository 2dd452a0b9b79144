// The job list: newest first, kept fresh while it is looked at.

import { Away, patiently, pause, Refused, request, showAccount } from "../shared/api.js";
import { byId, element, setNotice } from "../shared/dom.js";
import { moment, whole } from "../shared/format.js";
import { stateTitle } from "../job/target.js";

const FRESHEN_MS = 5000;
const ROWS = 25; // at once

const older = []; // Jobs of the pages after the first, as they were when asked for.
let nextCursor = null;

/** The answer of a target in a few words, once its search has ended; until then how far it is. */
const answer = (target) => target.answer || `${whole(target.settled)}${target.planned === null ? "" : ` of ${whole(target.planned)}`} models measured`;

function row(job) {
  const targets = job.targets.map((target) => element("li", {},
    element("strong", { text: target.name }), " ",
    ...(target.state === "finished" ? [] : [element("span", { class: `badge ${target.state}`, text: stateTitle(target.state) }), " "]),
    answer(target)));
  return element("tr", {},
    element("td", { class: "wrap" }, element("a", { href: `/jobs/${encodeURIComponent(job.id)}`, text: job.name })),
    element("td", {}, element("span", { class: `badge ${job.state}`, text: job.state })),
    element("td", { class: "wrap wide" }, element("ul", { class: "targets" }, ...targets)),
    element("td", { class: "wrap", text: moment(job.created_at) }),
    element("td", { class: "wrap", text: job.owner }));
}

function show(newest) {
  const seen = new Set(newest.map((job) => job.id));
  const jobs = [...newest, ...older.filter((job) => !seen.has(job.id))];
  const focused = document.activeElement?.getAttribute?.("href");
  byId("jobs").tBodies[0].replaceChildren(...jobs.map(row));
  if (focused && document.activeElement === document.body) {
    [...byId("jobs").querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus({ preventScroll: true });
  }
  byId("jobs").hidden = jobs.length === 0;
  byId("empty").hidden = jobs.length > 0;
  byId("loading").hidden = true;
  byId("more").hidden = nextCursor === null;
}

const away = (error) => setNotice(byId("notice"), `${error.message}; trying again`, "warn");

let newest = [];

async function freshen() {
  const page = await patiently(`/v1/jobs?limit=${ROWS}`, away);
  setNotice(byId("notice"), "");
  newest = page.items;
  if (older.length === 0) nextCursor = page.next_cursor;
  show(newest);
}

byId("more").addEventListener("click", async () => {
  try {
    const page = await request(`/v1/jobs?limit=${ROWS}&cursor=${encodeURIComponent(nextCursor)}`);
    older.push(...page.items);
    nextCursor = page.next_cursor;
    show(newest);
  } catch (error) {
    if (!(error instanceof Away || error instanceof Refused)) throw error;
    setNotice(byId("notice"), `Could not load older jobs: ${error.message}`, "bad");
  }
});

async function start() {
  showAccount();
  for (;;) {
    if (!document.hidden) await freshen();
    await pause(FRESHEN_MS);
  }
}

document.addEventListener("visibilitychange", () => document.hidden || freshen());
start().catch((error) => {
  if (!(error instanceof Refused)) throw error;
  setNotice(byId("notice"), error.message, "bad");
});
