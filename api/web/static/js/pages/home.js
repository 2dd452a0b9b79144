// The home page: the latest answers, the devices and the trainings, kept fresh while it is looked at.

import { healthOf, workOf } from "../device/health.js";
import { showJobs } from "../job/list.js";
import { Away, keepFresh, patiently, Refused, showAccount } from "../shared/api.js";
import { byId, element, fillRows, setNotice } from "../shared/dom.js";
import { badgeOf, hasEnded, modelOf, progressOf, qualityOf, qualityText, stateTitle } from "../training/view.js";

const FRESHEN_MS = 5000;
const ROWS = 6; // of each table
const DEVICES = 100; // of which the first rows are shown

const away = (error) => setNotice(byId("notice"), `${error.message}; trying again`, "warn");

async function freshen() {
  const lists = [`/v1/jobs?limit=${ROWS}`, `/v1/devices?limit=${DEVICES}`, `/v1/trainings?limit=${ROWS}`];
  const [jobs, devices, trainings] = (await Promise.all(lists.map((path) => patiently(path, away)))).map(({ items }) => items);
  setNotice(byId("notice"), "");
  showJobs(jobs);
  byId("all-jobs").hidden = jobs.length === 0;
  const begins = jobs.length === 0; // The first steps say what is to be done: no table waits beside them.
  showPart("devices", devices.filter(({ state }) => state !== "revoked").toSorted(byActivity).slice(0, ROWS).map(deviceRow), begins);
  showPart("trainings", trainings.map(trainingRow), begins);
}

function showPart(name, rows, begins) {
  fillRows(byId(name), rows);
  byId(`${name}-empty`).hidden = rows.length > 0;
  byId(`${name}-card`).hidden = begins && rows.length === 0;
}

/** Those that measure first, then those that were seen last. */
const byActivity = (a, b) => b.leased - a.leased || (b.last_seen_at ?? "").localeCompare(a.last_seen_at ?? "");

function deviceRow(device) {
  const { title, kind, says } = healthOf(device);
  return element("tr", {},
    element("td", { class: "wrap" }, element("a", { href: `/devices/${encodeURIComponent(device.id)}`, text: device.name })),
    element("td", { class: "wrap untitled" }, element("span", { class: `badge ${kind}`, text: title }), element("span", { class: "under", text: says })),
    element("td", { class: "wrap", text: workOf(device) }));
}

function trainingRow(training) {
  const under = hasEnded(training) ? modelOf(training) : progressOf(training);
  return element("tr", {},
    element("td", { class: "wrap" }, element("a", { href: `/trainings/${encodeURIComponent(training.id)}`, text: training.name }), element("span", { class: "under", text: under })),
    element("td", { class: "untitled" }, element("span", { class: badgeOf(training), text: stateTitle(training) })),
    element("td", { class: "number", text: qualityText(qualityOf(training)) }));
}

function refused(error) {
  if (!(error instanceof Away || error instanceof Refused)) throw error;
  setNotice(byId("notice"), `Could not load the overview: ${error.message}`, "bad");
}

showAccount();
keepFresh(freshen, FRESHEN_MS, refused);
