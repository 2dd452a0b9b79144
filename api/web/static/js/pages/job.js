// A job's live page: loads the job and its candidates, then follows its events.

import { eachPage, patiently, pause, Refused, request, showAccount } from "../shared/api.js";
import { AgreementCharts, isChecked } from "../job/agreement.js";
import { Answer } from "../job/answer.js";
import { Candidates, isMeasured, parametersOf, qualityAxis } from "../job/candidates.js";
import { FrontierChart } from "../job/chart.js";
import { byId, debounced, element, setNotice, setText, throttled } from "../shared/dom.js";
import { latency, mebibytes, millions, moment, whole } from "../shared/format.js";
import { followLive, setLive } from "../shared/live.js";
import { JobLaw } from "../job/law.js";
import { LimitControls } from "../job/limits.js";
import { CandidateTable } from "../job/table.js";
import { TargetTabs } from "../job/tabs.js";
import { showTarget } from "../job/target.js";
import { TrainDialog } from "../job/train.js";
import { Trained } from "../job/trained.js";
import { splitTitle } from "../training/view.js";

const ENDED = new Set(["finished", "cancelled", "failed"]);
const JOB_REFRESH_MS = 1000; // While events arrive; agents that come and go make none, hence the slow round too.
const SLOW_ROUND_MS = 10000;
const ANSWER_REFRESH_MS = 2000; // While events arrive.
const SLIDING_MS = 120; // A slider at rest for so long is asked about.

const id = document.body.dataset.job;
const path = `/v1/jobs/${encodeURIComponent(id)}`;
const candidates = new Candidates();
const frontiers = new Map(); // target id → its FrontierView, without points: what it says of the proxy and of trained models

let job = null;
let chosen = null; // target id
let selected = null; // candidate id
let stream = null;
let asked = 0; // questions for a recommendation; only the latest is answered

const chart = new FrontierChart(byId("chart"), byId("legend"), pick);
const table = new CandidateTable(byId("candidates"), {
  onPick: pick,
  onTrain: train,
  numberOf: (each) => candidates.numbers.get(each),
  protocolOf: (each) => job.targets.find((target) => target.id === each).protocol,
});
const tabs = new TargetTabs(byId("tabs"), choose);
const trained = new Trained(id, () => {
  candidates.train(trained);
  showChosen();
  drawTable();
  loadFrontier(chosen);
  loadAnswer();
  law.look().catch(unlessRefused);
});
const law = new JobLaw(id, () => {
  loadCandidates().catch(unlessRefused);
  loadFrontier(chosen);
  loadAnswer();
  refresh();
});
const dialog = new TrainDialog(() => trained.lookNow());
const drawTable = throttled(() => table.show(candidates.of(chosen)), () => 250);
const drawChart = throttled(() => chart.draw(candidates.of(chosen), selected), () => chart.restMs);
const agreement = new AgreementCharts(pick);
const drawAgreement = throttled(() => agreement.draw(candidates.of(chosen)), () => agreement.restMs);
const answer = new Answer({ onPick: pick, onTrain: trainOf, onMove: (moved) => limits.set(moved) });
const limits = new LimitControls(() => loadLimited());
const loadLimited = debounced(() => {
  history.replaceState(null, "", addressOf(location.hash));
  loadAnswer();
}, SLIDING_MS);
const refreshAnswer = throttled(() => Promise.all([loadAnswer(), loadAgreement()]), () => ANSWER_REFRESH_MS);
const refresh = throttled(() => loadJob().catch(unlessRefused), () => JOB_REFRESH_MS);

function redraw() {
  drawTable();
  drawChart();
  drawAgreement();
}

function pick(candidateId) {
  selected = candidateId;
  table.select(candidateId);
  showChosen();
  drawChart();
}

const recordOf = (candidateId) => candidates.of(chosen).find((each) => each.id === candidateId);

function train() {
  dialog.open(recordOf(selected));
}

function trainOf(candidateId) {
  pick(candidateId);
  train();
}

/** The recommendation for the limits that are set, from what is known by now. */
async function loadAnswer() {
  const measured = candidates.of(chosen).filter(isMeasured);
  if (measured.length === 0) return;
  const [question, target] = [++asked, job.targets.find(({ id }) => id === chosen)];
  limits.know(target.limits, measured);
  try {
    const query = new URLSearchParams({ target: target.id, ...limits.parameters });
    const view = await patiently(`${path}/recommendation?${query}`);
    if (question !== asked) return;
    byId("answer").hidden = false;
    const best = view.recommended?.id ?? null;
    answer.show(view, recordOf(best), target.protocol);
    table.recommend(best);
    if (chart.recommended === best) return;
    chart.recommended = best;
    chart.draw(candidates.of(chosen), selected); // At once: whoever moves a slider watches.
  } catch (error) {
    unlessRefused(error);
  }
}

/** The page's address, with the limits of the chosen target, so that a link shows the same. */
function addressOf(hash) {
  const query = new URLSearchParams(limits.parameters).toString();
  return `${location.pathname}${query && `?${query}`}${hash}`;
}

async function loadAgreement() {
  const target = chosen;
  if (!candidates.of(target).some(isChecked)) return;
  try {
    const view = await patiently(`${path}/agreement?target=${encodeURIComponent(target)}`);
    if (target !== chosen) return;
    agreement.know(view);
    drawAgreement();
  } catch (error) {
    unlessRefused(error);
  }
}

/** The selected candidate, and its actions. */
function showChosen() {
  const candidate = recordOf(selected);
  byId("chosen").hidden = !candidate;
  if (!candidate) return;
  setText(byId("chosen-title"), `Candidate ${whole(candidate.number)}`);
  setText(byId("chosen-facts"), [
    candidate.shape, `${millions(candidate.decoder_parameters)} ${parametersOf(candidate)}`,
    ...(isMeasured(candidate) ? [latency(candidate.latency_ms, candidate.latency_half_width_ms), mebibytes(candidate.memory_bytes)] : []),
  ].join(" · "));
  trained.tell(byId("chosen-trainings"), candidate);
}

function choose(targetId) {
  limits.turn(chosen, targetId);
  chosen = targetId;
  selected = null;
  showChosen();
  showByPerplexity(null);
  loadFrontier(chosen);
  byId("answer").hidden = true;
  agreement.know(null);
  history.replaceState(null, "", addressOf(`#target=${encodeURIComponent(targetId)}`));
  showJob();
  redraw();
  loadAnswer();
  loadAgreement();
}

/** A refusal has been shown by then. */
function unlessRefused(error) {
  if (!(error instanceof Refused)) throw error;
}

const lost = (error) => setLive("lost", `${error.message}; trying again`);

async function loadJob() {
  try {
    job = await patiently(path, lost);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    stream?.close();
    setNotice(byId("notice"), error.status === 404 ? "This job does not exist, was deleted, or belongs to someone else." : error.message, "bad");
    byId("job").hidden = true;
    throw error;
  }
  showJob();
}

function showJob() {
  if (!job.targets.some((target) => target.id === chosen)) chosen = wantedTarget() ?? job.targets[0].id;
  chart.proxy = job.request.proxy;
  const percent = Number((100 * job.request.epsilon).toPrecision(3));
  setText(byId("epsilon"), percent ? `For the frontier, differences up to ${percent} % count as none: they are within the error of measurement (ε).` : "");
  document.title = `${job.name} · edgefront`;
  setText(byId("job-name"), job.name);
  const badge = byId("job-state");
  setText(badge, job.state);
  badge.className = `badge ${job.state}`;
  badge.hidden = false;
  setText(byId("job-facts"), [
    `space ${job.request.space.name}`, `algorithm ${job.request.algorithm.name}`, `seed ${job.request.seed}`,
    `by ${job.owner}`, `started ${moment(job.created_at)}`, ...(job.finished_at ? [`ended ${moment(job.finished_at)}`] : []),
  ].join(" · "));
  const reason = job.reason ? `: ${job.reason}` : "";
  if (job.state === "failed") setNotice(byId("notice"), `This job failed${reason}`, "bad");
  else if (job.state === "paused") setNotice(byId("notice"), `Paused${reason}. Nothing is measured until it is resumed.`, "warn");
  else setNotice(byId("notice"), job.state === "cancelled" ? `Cancelled${reason}` : "");
  showTrust();
  showQuality();
  byId("pause").hidden = job.state !== "running";
  byId("resume").hidden = job.state !== "paused";
  byId("cancel").hidden = ENDED.has(job.state);
  tabs.show(job.targets, chosen);
  showTarget(job.targets.find((target) => target.id === chosen), job, candidates.of(chosen)[0]);
  showExports();
  byId("job").hidden = false;
}

function showTrust() {
  const trust = frontiers.get(chosen)?.proxy_trust ?? job.proxy_trust;
  setNotice(byId("caveat"), `About the proxy: ${trust.sentence}`, job.proxy_trust.caveat ? "warn" : "");
  if (!frontiers.has(chosen)) loadFrontier(chosen);
}

/** The quality axis of the chart: a choice, once a model of this target is trained. */
function showQuality() {
  const scored = frontiers.get(chosen)?.trained ?? [];
  byId("quality-choice").hidden = scored.length === 0;
  setText(byId("quality").options[0], qualityAxis(job.request.proxy, candidates.of(chosen)[0]).name);
}

/** Once a target, and when a training has ended: that may be long after a search. */
async function loadFrontier(target) {
  frontiers.set(target, frontiers.get(target) ?? null);
  try {
    const by = byId("quality").value;
    const { points, ...frontier } = await request(`${path}/frontier?target=${encodeURIComponent(target)}&by=${by}`);
    frontiers.set(target, frontier);
    trained.know(frontier.trained);
    candidates.train(trained);
    if (target !== chosen || by !== byId("quality").value) return;
    showTrust();
    showQuality();
    showByPerplexity(by === "perplexity" && frontier.trained.length ? { points, scored: frontier.trained } : null);
    redraw();
  } catch {
    // Published figures are shown already.
  }
}

/** The chart of the trained models alone, `{points, scored}`; or null, of all candidates by the proxy. */
function showByPerplexity(found) {
  byId("quality-note").hidden = !found;
  chart.trained = found && {
    perplexities: new Map(found.scored.map((score) => [score.candidate_id, score.perplexity])),
    frontier: new Set(found.points.map((point) => point.id)),
  };
  if (!found) return;
  const { dataset, split, recipe } = found.scored[0];
  setText(byId("quality-note"), `Only trained models: perplexity on the ${splitTitle(split)} split of ${dataset}, trained with recipe ${recipe}.`);
}

function wantedTarget() {
  const wanted = new URLSearchParams(location.hash.slice(1)).get("target");
  return job.targets.find((target) => target.id === wanted)?.id;
}

function showExports() {
  if (byId("export").dataset.target === chosen) return;
  byId("export").dataset.target = chosen;
  byId("export").replaceChildren(...["csv", "parquet"].map((format) => element("a", {
    href: `${path}/candidates?target=${encodeURIComponent(chosen)}&format=${format}`, download: "",
    text: format === "csv" ? "CSV" : "Parquet", "aria-label": `Candidates of this target as ${format}`,
  })));
}

function hear(event) {
  if (event.kind === "candidate") candidates.put(event.data);
  if (event.kind === "frontier") candidates.moveFrontier(event.target_id, event.data.joined ?? [], event.data.left ?? []);
  if (event.kind === "law") law.hear(event.data);
  if (event.target_id === chosen) {
    redraw();
    refreshAnswer();
  }
  refresh();
}

async function loadCandidates() {
  for await (const page of eachPage(`${path}/candidates?limit=500`, lost)) {
    page.forEach((view) => candidates.put(view));
    refreshAnswer(); // Asked before the chart is drawn, which takes the page's time.
    redraw();
  }
  showJob(); // An encoder is told by its candidates.
  redraw();
  refreshAnswer();
}

function follow(after) {
  stream = followLive(path, after, hear, refresh);
}

/**
 * Keeps the slow figures fresh until the job has ended and its last event was heard; then ends the stream and reads the
 * candidates once more, since comparisons with a baseline move with the baseline's own later launches.
 */
async function attend() {
  while (!(ENDED.has(job.state) && stream.after >= job.last_event)) {
    await pause(ENDED.has(job.state) ? JOB_REFRESH_MS : SLOW_ROUND_MS);
    if (!document.hidden) await loadJob();
  }
  stream.close();
  await loadCandidates();
}

async function control(action, button) {
  button.disabled = true;
  try {
    job = await request(`${path}/${action}`, { method: "POST" });
    showJob();
  } catch (error) {
    setNotice(byId("notice"), `Could not ${action} the job: ${error.message}`, "bad");
  } finally {
    button.disabled = false;
  }
}

byId("pause").addEventListener("click", (event) => control("pause", event.target));
byId("resume").addEventListener("click", (event) => control("resume", event.target));
byId("cancel").addEventListener("click", () => byId("confirm").showModal());
byId("confirm").addEventListener("close", () => {
  if (byId("confirm").returnValue === "cancel") control("cancel", byId("cancel"));
  byId("confirm").returnValue = "";
});
byId("quality").addEventListener("change", () => loadFrontier(chosen));
byId("train").addEventListener("click", () => train());
addEventListener("hashchange", () => wantedTarget() && wantedTarget() !== chosen && choose(wantedTarget()));

async function start() {
  showAccount();
  await loadJob(); // Its last event is read before the candidates: what happens between is heard again, not missed.
  const after = job.last_event;
  await loadCandidates();
  follow(after);
  law.look().catch(unlessRefused);
  trained.follow().catch(unlessRefused);
  await attend();
}

start().catch(unlessRefused);
