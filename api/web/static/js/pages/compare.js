// Several targets beside each other: chosen, drawn in one chart, and listed with what differs.

import { draw, styleOf } from "../compare/chart.js";
import { comparisonPath, keepChosen, readChosen } from "../compare/chosen.js";
import { difference, showTable } from "../compare/table.js";
import { Away, patiently, Refused, request, showAccount } from "../shared/api.js";
import { byId, element, fillRows, setNotice, setText } from "../shared/dom.js";
import { onePass } from "../job/target.js";
import { memory, MISSING, times, whole } from "../shared/format.js";
import { copyText, offerPictures } from "../shared/share.js";
import { followSize, keepWheelFromUnfocused } from "../shared/plot.js";

const MOST = 16;
const chosen = readChosen();
let jobs = [];
let view = null;
let marked = null;
let asked = 0; // questions for a comparison; only the latest is answered

const away = (error) => setNotice(byId("notice"), `${error.message}; trying again`, "warn");

function measures({ protocol }) {
  const { runtime, provider, dtype, weights, kv_cache: cache } = protocol;
  return `${onePass(protocol)}, ${runtime} ${provider}, ${weights === "full" ? dtype : weights}${cache ? `, ${cache} cache` : ""}`;
}

function ratio(value, index, low = null, high = null) {
  if (index === 0) return "reference";
  if (value === null) return MISSING;
  return low === null ? `${times(value)} (${difference(value, 1)})` : `${times(value)} (${times(low)} to ${times(high)})`;
}

const isUnsure = ({ latency_ratio_low: low, latency_ratio_high: high }) => low !== null && low < 1 && high > 1;

/** A target and the answer that its job has there; whether that is a model within its limits. */
function answerOf({ target_id: id, target: name }, index) {
  const { answer = "" } = jobs.flatMap(({ targets }) => targets).find((each) => each.id === id) ?? {};
  const bytes = view.architectures.find(({ model, entries }) => entries[index]?.on_frontier && model && answer.startsWith(`${model} `))?.entries[index].memory_bytes;
  return { says: [`${name} (${index + 1})`, ...(answer ? [[answer, ...(bytes ? [memory(bytes)] : [])].join(", ")] : [])].join(": "), has: view.architectures.some(({ entries }) => entries[index]?.on_frontier) };
}

/** Of two targets that measured no model in common their answers decide. */
function apart(index) {
  const [first, here] = [answerOf(view.targets[0], 0), answerOf(view.targets[index], index)];
  if (first.has === here.has) return `No model was measured on both, so their answers are side by side. ${first.says}. ${here.says}.`;
  const [found, none] = first.has ? [first, here] : [here, first];
  return `Only one has a model within its limits: ${found.says}. None: ${none.says}.`;
}

/** What the comparison says of a target against the first. */
function verdict(target, index) {
  const { target: name, latency_ratio: latency, latency_ratio_low: low, latency_ratio_high: high, memory_ratio: memory } = target;
  const here = `${name} (${index + 1})`;
  if (latency === null) return apart(index);
  const range = low === null ? "not known how sure" : `${times(low)} to ${times(high)}`;
  const says = isUnsure(target) ? `No sure difference in latency: ${here} takes ${range} that of the first` : `${here} takes ${times(latency)} the latency of the first (${range})`;
  return `${says}${memory === null ? "" : `, and ${times(memory)} its peak memory`}.`;
}

function targetRow(target, index) {
  const { target_id: id, target: name, job_id: job, job_name: jobName, device, shared, latency_ratio: latency, latency_ratio_low: low, latency_ratio_high: high, memory_ratio: memory } = target;
  const button = (text, label, work, hidden = false) => element("button", { type: "button", class: "quiet", text, hidden, "aria-label": `${label} ${name} (${jobName})`, on: { click: work } });
  return element("tr", { "data-id": id },
    element("td", { class: "wrap" }, element("span", { class: `swatch target ${styleOf(index).ink}` }), `${index + 1}. ${name}`),
    element("td", { class: "wrap" }, element("a", { href: `/jobs/${encodeURIComponent(job)}#${new URLSearchParams({ target: id })}`, text: jobName })),
    element("td", { class: "wrap", text: device }),
    element("td", { class: "wrap wide", text: measures(target) }),
    element("td", { class: `number${isUnsure(target) ? " muted" : ""}` }, ratio(latency, index, low, high), element("span", { class: "under", text: index === 0 ? "" : shared ? `${isUnsure(target) ? "no sure difference, " : ""}${whole(shared)} measured on both` : "by prediction" })),
    element("td", { class: "number", text: ratio(memory, index) }),
    element("td", {}, button("First", "Make the first:", () => choose([id, ...chosen.targets.filter((each) => each !== id)]), index === 0),
      button("Remove", "Remove", () => choose(chosen.targets.filter((each) => each !== id)))));
}

function showTargets() {
  const targets = view?.targets ?? [];
  fillRows(byId("targets"), targets.map(targetRow));
  byId("nothing").hidden = targets.length > 0;
  setText(byId("verdict"), targets.slice(1).map((target, at) => verdict(target, at + 1)).join(" "));
  setText(byId("note"), view?.note ?? "");
  byId("comparison").hidden = targets.length === 0;
  offerTargets();
}

async function showComparison() {
  showTable(view, chosen, marked, {
    onSort: (sort) => arrange({ sort }),
    onPick: pick,
  });
  await draw(view, marked, pick);
}

async function pick(digest) {
  marked = marked === digest ? null : digest;
  await showComparison();
  byId("architectures").querySelector("tr.selected")?.scrollIntoView({ block: "nearest" });
}

function arrange(changes) {
  Object.assign(chosen, changes);
  keepChosen(chosen);
  showComparison();
}

/** Compares these targets from now on. */
async function choose(targets) {
  chosen.targets = targets;
  keepChosen(chosen);
  await load();
}

/** Replaces the jobs that the address names by their targets; what is left out is said. */
async function resolveJobs() {
  const found = await Promise.all(chosen.jobs.map((id) => patiently(`/v1/jobs/${encodeURIComponent(id)}`, away)));
  const targets = [...chosen.targets, ...found.flatMap((job) => job.targets.map(({ id }) => id))];
  Object.assign(chosen, { targets: targets.slice(0, MOST), jobs: [] });
  return targets.length > MOST ? `The first ${MOST} of ${targets.length} targets are compared. Remove one to add another.` : "";
}

async function load() {
  const question = ++asked;
  try {
    const note = chosen.jobs.length ? await resolveJobs() : "";
    const found = chosen.targets.length ? await patiently(comparisonPath(chosen.targets), away) : null;
    if (question !== asked) return;
    view = found;
    setNotice(byId("notice"), note);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (question !== asked) return;
    if (error.status === 404 && await leaveOut()) return load();
    setNotice(byId("notice"), `Could not compare: ${error.message}`, "bad");
    return;
  }
  chosen.targets = view ? view.targets.map(({ target_id: id }) => id) : [];
  keepChosen(chosen);
  showTargets();
  if (view) await showComparison();
}

/** Leaves out the targets that are gone; whether there were such beside others. */
async function leaveOut() {
  const { targets } = chosen;
  const found = await Promise.allSettled(targets.map((id) => patiently(comparisonPath([id]), away)));
  const left = targets.filter((_, at) => found[at].status === "fulfilled");
  const isLess = left.length > 0 && left.length < targets.length && chosen.targets === targets;
  if (isLess) chosen.targets = left;
  return isLess;
}

function offerTargets() {
  const job = jobs.find(({ id }) => id === byId("add-job").value);
  const left = (job?.targets ?? []).filter(({ id }) => !chosen.targets.includes(id));
  byId("add-target").replaceChildren(...left.map(({ id, name, device }) => element("option", { value: id, text: name.includes(device) ? name : `${name} (${device})` })));
  if (job && left.length === 0) byId("add-target").replaceChildren(element("option", { value: "", text: "all of its targets are compared" }));
  byId("add").disabled = left.length === 0 || chosen.targets.length >= MOST;
}

byId("add-job").addEventListener("change", offerTargets);
byId("adding").addEventListener("submit", (event) => {
  event.preventDefault();
  choose([...chosen.targets, byId("add-target").value]);
});
byId("everywhere").addEventListener("change", () => arrange({ everywhere: byId("everywhere").checked }));
byId("copy").addEventListener("click", (event) => copyText(event.currentTarget, [byId("verdict").textContent, location.href].join("\n")));
offerPictures(byId("chart"), () => ({
  title: "Frontiers", facts: [byId("verdict").textContent, new Date().toLocaleDateString("en-CA")],
  names: new Map(view.targets.map(({ target_id: id, target, job_name: job, device }) => [id, `${target} on ${device} (${job})`])), filename: "edgefront-comparison",
}));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view && draw(view, marked, pick));

async function start() {
  showAccount();
  byId("everywhere").checked = chosen.everywhere;
  followSize(byId("chart"));
  keepWheelFromUnfocused(byId("chart"));
  jobs = (await request("/v1/jobs?limit=100")).items;
  await load();
  byId("add-job").replaceChildren(...jobs.map(({ id, name, owner }) => element("option", { value: id, text: `${name} (${owner})` })));
  byId("adding").hidden = jobs.length === 0;
  setText(byId("nothing"), jobs.length ? "Choose the first target." : "There is no job to compare yet.");
  offerTargets();
}

start().catch((error) => {
  if (!(error instanceof Away || error instanceof Refused)) throw error;
  setNotice(byId("notice"), `Could not load the page: ${error.message}`, "bad");
});
