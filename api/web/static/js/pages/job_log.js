// The log of a job: its events in words, the last ones first loaded, and new ones as they come.

import { ChangedCandidates } from "../job/candidates.js";
import { inWords, isBad } from "../job/events.js";
import { isEnded } from "../job/target.js";
import { Away, patiently, Refused, showAccount } from "../shared/api.js";
import { byId, element, setNotice, setText, throttled } from "../shared/dom.js";
import { whole } from "../shared/format.js";
import { EventStream, setLive } from "../shared/live.js";

const LAST = 1000;
let most = 5000; // Events that are kept; older ones are read again when they are asked for.
const SHOWN = { states: new Set(["job_state", "target_state", "generation", "frontier"]), candidates: new Set(["job_state", "target_state", "generation", "frontier", "candidate"]) };
const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "medium" });

const path = `/v1/jobs/${encodeURIComponent(document.body.dataset.job)}`;
const away = (error) => setNotice(byId("notice"), `${error.message}; trying again`, "warn");
let events = [];
let targets = new Map();
const views = new Map(); // CandidateViews by id, as they are now
let stream = null;
let begun = 0;
let [state, last] = ["", 0]; // of the job: its state, and the number of its last event, as far as they are known

function draw() {
  const log = byId("log");
  const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
  const wanted = SHOWN[byId("kinds").value];
  const shown = events.filter(({ kind }) => !wanted || wanted.has(kind));
  log.replaceChildren(...shown.map((event) => element("span", {
    class: `line${isBad(event) ? " error" : ""}`, text: `${clock.format(new Date(event.created_at))}  ${inWords(event, targets, views)}\n`,
  })));
  if (atEnd) log.scrollTop = log.scrollHeight;
  setText(byId("range"), events.length ? `${whole(shown.length)} of events ${whole(events[0].number)} to ${whole(events.at(-1).number)}.` : "No events yet. They come as soon as a worker takes the job.");
  byId("earlier").hidden = begun === 0;
}

const drawSoon = throttled(draw, () => 200);
const changed = new ChangedCandidates(path, (read) => {
  read.forEach((view) => views.set(view.id, view));
  drawSoon();
}, away);

/** Reads from the event after this number on. */
function follow(after) {
  stream?.close();
  begun = after;
  events = [];
  stream = new EventStream((number) => `${path}/events?after=${number}`, after, (event) => {
    events.push(event);
    if (event.kind === "candidate" && event.data.state !== "waiting") changed.add(event.data.id);
    if (events.length > most) begun = events.splice(0, LAST).at(-1).number;
    hear(event);
    drawSoon();
  }, showLive);
  stream.open();
}

function hear({ kind, number, data }) {
  if (number <= last) return;
  last = number;
  if (kind === "job_state") ({ state } = data);
  showLive("live");
}

/** A job that has ended is not live, though events may follow. */
function showLive(now) {
  if (now === "lost") setLive("lost", "connection lost; reconnecting");
  else if (isEnded(state)) setLive("", `the job has ended: ${state}`);
  else setLive(now === "live" ? "live" : "", now === "live" ? "live" : "");
}

async function start() {
  showAccount();
  const job = await patiently(path, away);
  setNotice(byId("notice"), "");
  setText(byId("name"), `Log of ${job.name}`);
  setText(byId("job-link"), job.name);
  document.title = `Log of ${job.name} · edgefront`;
  targets = new Map(job.targets.map(({ id, name }) => [id, name]));
  ({ state, last_event: last } = job);
  follow(Math.max(0, job.last_event - LAST));
  draw();
  byId("kinds").addEventListener("change", draw);
  byId("earlier").addEventListener("click", () => {
    most += LAST;
    follow(Math.max(0, begun - LAST));
  });
}

start().catch((error) => {
  if (!(error instanceof Away || error instanceof Refused)) throw error;
  setNotice(byId("notice"), `Could not load the job: ${error.message}`, "bad");
});
