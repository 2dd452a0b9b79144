// A job's live page: loads the job and its candidates, then follows its events.

import { patiently, pause, Refused, request, showAccount } from "../shared/api.js";
import { Answer, limitsInWords } from "../job/answer.js";
import { TrainingBudget } from "../job/budget.js";
import { Candidates, ChangedCandidates, factsOf, isMeasured } from "../job/candidates.js";
import { FrontierChart } from "../job/chart.js";
import { timeOf } from "../job/flat.js";
import { showChoices } from "../job/choices.js";
import { JobControl } from "../job/control.js";
import { byId, debounced, setNotice, setText, throttled } from "../shared/dom.js";
import { generationOf, whole } from "../shared/format.js";
import { followLive, setLive } from "../shared/live.js";
import { Elsewhere } from "../job/elsewhere.js";
import { JobLaw } from "../job/law.js";
import { LimitControls } from "../job/limits.js";
import { showNote } from "../job/notes.js";
import { loadPoints } from "../job/points.js";
import { qualitiesOf, QualityChoice } from "../job/quality.js";
import { offerSharing } from "../job/share.js";
import { CandidateTable } from "../job/table.js";
import { plotly } from "../shared/plot.js";
import { withRoot } from "../shared/root.js";
import { TargetTabs } from "../job/tabs.js";
import { awaited, isEnded, showExports, showHead, showTarget } from "../job/target.js";
import { TrainDialog } from "../job/train.js";
import { Trained } from "../job/trained.js";
import { candidateAddress } from "../shared/shape.js";
import { splitTitle } from "../training/view.js";
import { keepView, readView } from "../job/view.js";

const JOB_REFRESH_MS = 1000; // While events arrive; agents that come and go make none, hence the slow round too.
const SLOW_ROUND_MS = 10000;
const ANSWER_REFRESH_MS = 2000; // While events arrive.
const ZOOMED = 2000; // points of the window that the chart shows
const FIRST_ANSWER_MS = 1500;
const SLIDING_MS = 120; // A slider at rest for so long is asked about.

const id = document.body.dataset.job;
const path = `/v1/jobs/${encodeURIComponent(id)}`;
const candidates = new Candidates();
const frontiers = new Map(); // target id → its FrontierView, without points: what it says of the proxy and of trained models
const byTraining = new Map(); // target id → the ids on the frontier of its trained models, or an error

let job = null;
let chosen = null; // target id
let selected = null; // candidate id
let wanted = readView(); // what the address asks for, as long as it is not there yet
let stream = null;
let zoomed = 0; // questions for a window of the chart
let asked = 0; // questions for a recommendation; only the latest is answered
let answered = null; // the limits of the answer that is shown

const lost = (error) => setLive("lost", `${error.message}; trying again`);

const chart = new FrontierChart(byId("chart"), byId("legend"), { onPick: pick, onZoom: zoom });
offerSharing(chart);
const table = new CandidateTable(byId("candidates"), path, candidates, {
  onPick: pick,
  onTrain: train,
  onArrange: keep,
  onLoad: showListed,
  protocolOf: (each) => job.targets.find((target) => target.id === each).protocol,
});
const tabs = new TargetTabs(byId("tabs"), choose);
const trained = new Trained(id, () => {
  candidates.train(trained);
  showChosen();
  table.redraw();
  loadFrontier(chosen);
  loadAnswer();
  law.look().catch(unlessRefused);
});
const law = new JobLaw(id);
const control = new JobControl(path, (steered) => {
  job = steered;
  showJob();
});
const dialog = new TrainDialog({ onMade: () => trained.lookNow(), inherits: () => job.request.space.inherit != null });
const quality = new QualityChoice(turnQuality);
const drawChart = throttled(() => drawChartNow(), () => chart.restMs);
const elsewhere = new Elsewhere(id);
const answer = new Answer({ onPick: pick, onTrain: trainOf, onMove: (moved) => limits.set(moved) });
const limits = new LimitControls(() => loadLimited());
const budget = new TrainingBudget(() => loadLimited());
const loadLimited = debounced(() => {
  keep();
  drawChart();
  loadAnswer();
}, SLIDING_MS);
const refreshAnswer = throttled(() => loadAnswer(), () => ANSWER_REFRESH_MS);
const changed = new ChangedCandidates(path, (views) => {
  views.forEach((view) => candidates.put(view));
  redraw();
  refreshAnswer(); // The events that named them came before their figures, with which an answer may begin.
}, lost);
const refresh = throttled(() => loadJob().catch(unlessRefused), () => JOB_REFRESH_MS);

/** The target that the page opens on: of a job among published models the one that has the answer, else the first. */
const opening = () => job.targets.find(({ answer: text }) => job.request.space.published && text) ?? job.targets[0];
const wantedTarget = () => job.targets.find(({ id: each }) => each === wanted.target) ?? opening();
const targetNow = () => job.targets.find(({ id: each }) => each === chosen);

function redraw() {
  table.redraw();
  drawChart();
}

function drawChartNow() {
  showQuality();
  chart.measured = candidates.measured;
  chart.limits = { ...targetNow().limits, ...limits.asked };
  chart.time = timeOf(targetNow().limits);
  return chart.draw(candidates.all, selected);
}

function pick(candidateId) {
  selected = candidateId;
  table.select(candidateId);
  answer.select(candidateId);
  showChosen();
  drawChart();
  keep();
}

/** The view in the address: what is not as it is at first. */
function keep() {
  if (!job) return;
  keepView({
    ...table.arranged, target: chosen === opening().id ? null : chosen, chart: chart.kind === "solid" ? "3d" : null,
    quality: quality.picked, candidate: selected ?? wanted.candidate,
  }, { ...limits.parameters, ...budget.parameters });
}

/** Shows what the address asks for: its target first, its candidate once it is there. */
function show(view) {
  wanted = view;
  const target = wantedTarget();
  if (target.id !== chosen) choose(target.id);
  wanted = view;
  quality.picked = view.quality;
  table.arrange(view);
  turnChart(view.chart === "3d" ? "solid" : "flat");
  showWanted();
  turnQuality();
}

/** Selects the candidate that the address asks for, once it is there. */
async function showWanted() {
  const { candidate } = wanted;
  if (!candidate || !/^\w+$/.test(candidate)) return;
  if (!recordOf(candidate)) {
    const page = await patiently(`${path}/candidates?${new URLSearchParams({ target: chosen, ids: candidate })}`, lost);
    page.items.forEach((view) => candidates.put(view));
  }
  if (wanted.candidate !== candidate || !recordOf(candidate)) return;
  wanted = { ...wanted, candidate: null };
  pick(candidate);
}

function turnChart(kind) {
  const canTurn = kind !== "solid" || chart.hasWebGl;
  if (!canTurn) Object.assign(byId("chart-kinds").querySelector("[data-kind=solid]"), { disabled: true, title: "This browser has no WebGL." });
  chart.kind = canTurn ? kind : "flat";
  for (const button of byId("chart-kinds").children) button.setAttribute("aria-pressed", button.dataset.kind === chart.kind);
  if (job) drawChart();
  keep();
}

const recordOf = (candidateId) => {
  const record = candidates.record(candidateId);
  return record?.target_id === chosen ? record : undefined;
};

function train() {
  dialog.open(recordOf(selected));
}

function trainOf(candidateId) {
  pick(candidateId);
  train();
}

/** The answer for the limits that are set, from what is known by now: of a job among published models that over all its targets. */
async function loadAnswer({ isFirst = false } = {}) {
  const measured = candidates.all.filter(isMeasured);
  const isPublished = Boolean(job.request.space.published);
  if (measured.length === 0 && !isFirst && !isPublished) return;
  const [question, target] = [++asked, targetNow()];
  limits.know(target, measured);
  try {
    const query = new URLSearchParams(isPublished ? limits.parameters : { target: target.id, ...limits.parameters, ...budget.parameters });
    const view = await patiently(`${path}/${isPublished ? "choices" : "recommendation"}?${query}`, unanswered);
    if (question !== asked) return;
    answered = view.limits;
    setNotice(byId("stale"), "");
    byId("answer").hidden = measured.length === 0;
    if (isPublished) {
      setText(byId("answer-title"), "Limits");
      answer.showMoves(view);
      return recommend(showChoices(view).map(({ recommended }) => recommended?.candidate).find((best) => best?.target_id === target.id)?.id ?? null);
    }
    const best = view.recommended?.id ?? null;
    budget.know(view.training);
    answer.show(view, view.recommended && candidates.put(ofSearch(view.recommended)), target.protocol);
    if (view.recommended) {
      elsewhere.show(view.recommended, target);
      trained.list(byId("answer-trainings"), view.recommended);
    }
    recommend(best);
  } catch (error) {
    if (budget.isRefused(error.field) && question === asked) { // Of an address: the job's law knows one budget, or the worker is gone.
      budget.forget();
      return await loadAnswer();
    }
    unlessRefused(error);
  }
}

/** Marks the recommended model in table and chart; null: none of this target. */
function recommend(best) {
  table.recommend(best);
  if (chart.recommended === best) return;
  chart.recommended = best;
  if (candidates.all.length) drawChartNow(); // At once: whoever moves a slider watches.
}

/** Says that what is shown is not for the limits that are set now. */
const unanswered = ({ message }) => answered && setNotice(byId("stale"), `${message[0].toUpperCase()}${message.slice(1)}; this answer is for ${limitsInWords(answered)}.`, "warn");

/** A recommended model as the search predicted it, if the page knows that: the answer may be for another training. */
function ofSearch(candidate) {
  if (budget.isOwn) return candidate;
  const known = candidates.record(candidate.id) ?? candidates.all.find(({ id: each }) => each === candidate.id);
  return { ...candidate, predicted: known?.predicted ?? candidate.predicted };
}

/** The selected candidate, and its actions. */
function showChosen() {
  const candidate = recordOf(selected);
  byId("chosen").hidden = !candidate;
  if (!candidate) return;
  setText(byId("chosen-title"), candidate.model || `Candidate ${whole(candidate.number)}`);
  setText(byId("chosen-facts"), [
    ...factsOf(candidate), ...generationOf(candidate),
  ].join(" · "));
  trained.list(byId("chosen-trainings"), candidate);
  byId("chosen-page").href = withRoot(candidateAddress(candidate));
}

function choose(targetId) {
  if (!job.request.space.published) limits.turn(chosen, targetId); // Its answer is over all targets.
  chosen = targetId;
  changed.clear();
  asked += 1; // The recommendation that is under way is that of the target before.
  candidates.turn(chosen);
  selected = null;
  wanted = { ...wanted, candidate: null };
  table.turn(chosen);
  answer.select(null);
  showChosen();
  loadFrontier(chosen);
  byId("answer").hidden = byId("others").hidden = true;
  setText(byId("answer-sentence"), "");
  keep();
  showJob();
  redraw();
  loadPointsOf(chosen).catch(unlessRefused);
}

/** A refusal has been shown by then. */
function unlessRefused(error) {
  if (!(error instanceof Refused)) throw error;
}


async function loadJob() {
  try {
    job = await patiently(path, lost);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    stream?.close();
    setNotice(byId("notice"), error.status === 404 ? "This job does not exist, was deleted, or belongs to someone else." : error.message, "bad");
    if (error.status === 404) setText(byId("job-name"), "Job not found");
    byId("job").hidden = true;
    byId("job-links").hidden = true;
    control.show(null);
    throw error;
  }
  const isFirst = chosen === null;
  showJob();
  if (isFirst) await loadFirstAnswer();
  byId("job").hidden = false;
}

/** An answer that comes later moves what is read already; one that takes long is not waited for. */
async function loadFirstAnswer() {
  if (targetNow().settled > 0 || job.request.space.published) await Promise.race([loadAnswer({ isFirst: true }), pause(FIRST_ANSWER_MS)]);
}

function showJob() {
  if (!job.targets.some((target) => target.id === chosen)) chosen = wantedTarget().id;
  candidates.turn(chosen);
  document.body.classList.toggle("published", Boolean(job.request.space.published));
  chart.baseline = job.request.space.model ? "My model" : "Baseline";
  showHead(job);
  showTrust();
  control.show(job.state);
  tabs.show(job.targets, chosen);
  const target = targetNow();
  byId("desk").classList.toggle("measured", target.settled > 0);
  if (target.settled === 0 || (candidates.header && candidates.all.length === 0)) setText(byId("answer-sentence"), isEnded(target.state) ? "No answer." : "No answer yet.");
  if (candidates.all.length === 0) drawChart(); // which says what is awaited
  showTarget(target, job, candidates.traits);
  showExports(path, chosen);
}

function showTrust() {
  const trust = frontiers.get(chosen)?.proxy_trust ?? job.proxy_trust;
  showNote("caveat", `About the proxy: ${trust.sentence}`, job.proxy_trust.caveat ? "warn" : "", !job.proxy_trust.caveat);
}

/** The quality in the chart: by trained models only once it is known which of them are on their frontier. */
function showQuality() {
  const scored = frontiers.get(chosen)?.trained ?? [];
  const perplexities = new Map(scored.map((score) => [score.candidate_id, score.perplexity]));
  quality.offer(qualitiesOf(job.request, candidates.all, scored.length ? { perplexities } : null));
  const isTrained = quality.axis.name === "trained";
  const found = isTrained ? byTraining.get(chosen) : null;
  chart.quality = quality.axis;
  chart.trained = found instanceof Set ? found : null;
  if (isTrained && !found) chart.withhold("Loading the perplexities of the trained models…");
  else if (found instanceof Error) chart.withhold(`Could not load the perplexities of the trained models: ${found.message}`);
  else chart.withhold(!candidates.header ? "Loading the candidates…" : candidates.all.length ? null : awaited(job, targetNow()));
  setText(byId("quality-note"), chart.trained ? `Only trained models: perplexity on the ${splitTitle(scored[0].split)} split of ${scored[0].dataset}, trained with recipe ${scored[0].recipe}.` : noteOnQuality());
  byId("quality-note").hidden = !byId("quality-note").textContent;
}

function noteOnQuality() {
  return quality.axis.name === "predicted" && job.request.proxy !== "quality_law" ? "The frontier is that by the proxy, not by predicted perplexity." : "";
}

/** Nothing is shown under a new quality before its values are there. */
function turnQuality() {
  byTraining.delete(chosen);
  drawChartNow();
  keep();
  if (candidates.measured) reloadPoints();
  if (quality.axis.name === "trained") loadByTraining(chosen);
}

async function loadByTraining(target) {
  try {
    const { points } = await request(`${path}/frontier?target=${encodeURIComponent(target)}&by=perplexity`);
    byTraining.set(target, new Set(points.map((point) => point.id)));
  } catch (error) {
    byTraining.set(target, error);
  }
  if (target === chosen) drawChart();
}

/** Once a target, and when a training has ended: that may be long after a search. */
async function loadFrontier(target) {
  frontiers.set(target, frontiers.get(target) ?? null);
  try {
    const { points, ...frontier } = await request(`${path}/frontier?target=${encodeURIComponent(target)}`);
    frontiers.set(target, frontier);
    trained.know(frontier.trained);
    candidates.train(trained);
    if (target !== chosen) return;
    showTrust();
    showQuality();
    if (quality.axis.name === "trained") loadByTraining(target);
    redraw();
  } catch {
    // Published figures are shown already.
  }
}

function hear(event) {
  if (event.kind === "candidate" && event.target_id === chosen && event.data.state !== "waiting") changed.add(event.data.id);
  if (event.kind === "frontier") candidates.moveFrontier(event.data.joined ?? [], event.data.left ?? []);
  if (event.target_id === chosen) {
    redraw();
    table.refresh();
    refreshAnswer();
    if (candidates.isCrowded) reloadPoints();
  }
  refresh();
}

/** Which figure the service spreads points by, and zooms into: what stands for quality in the chart. */
const pointsAxis = () => {
  const name = quality.picked ?? quality.axis?.name ?? (job.request.proxy === "quality_law" ? "predicted" : "proxy");
  return name === "proxy" ? "proxy" : "predicted";
};

/** The points of a target, all of it; then what follows from them. */
async function loadPointsOf(target) {
  const keepIds = [selected, chart.recommended].filter(Boolean);
  const loaded = await patiently(() => loadPoints(path, { target, axis: pointsAxis(), keep: keepIds }), lost);
  candidates.take(loaded);
  if (target !== chosen) return;
  redraw();
  refreshAnswer();
  if (!frontiers.has(target)) loadFrontier(target); // Not before the points, which it would hold up.
}
/** Bounded: the service thins them, and they are asked for again only when thousands were added since, or for another axis. */
const reloadPoints = throttled(() => loadPointsOf(chosen).then(() => chart.onZoom()).catch(unlessRefused), () => SLOW_ROUND_MS);

/** The chart shows this window: all that is in it, as far as it can be drawn. */
async function zoom(window) {
  const [target, question] = [chosen, ++zoomed];
  if (!candidates.measured) return; // all are there
  let loaded = null;
  if (window) {
    const [[quick, slow], [low, high]] = [window.latency, window.quality.map((end) => end * (quality.axis.scale ?? 1))];
    const query = { target, axis: pointsAxis(), most: ZOOMED, min_latency_ms: quick, max_latency_ms: slow, min_quality: low, max_quality: high };
    loaded = await patiently(() => loadPoints(path, query), lost);
  }
  if (question !== zoomed || target !== chosen) return;
  candidates.zoom(loaded);
  drawChart();
}

/** What is listed is new: the selected candidate may be among it, and whether it is an encoder is known from its candidates. */
function showListed() {
  requestAnimationFrame(() => setTimeout(plotly)); // Once the rows are drawn.
  showChosen();
  showTarget(targetNow(), job, candidates.traits);
}

/** First rows and chart, at once: neither waits for the other. */
async function load() {
  await Promise.all([table.load(), loadPointsOf(chosen)]);
}

function follow(after) {
  stream = followLive(path, after, hear, refresh);
}

/**
 * Keeps the slow figures fresh until the job has ended and its last event was heard; then ends the stream and reads the
 * candidates once more, since comparisons with a baseline move with the baseline's own later launches.
 */
async function attend() {
  const isOver = () => isEnded(job.state) && stream.after >= job.last_event;
  if (isOver()) return stream.close(); // All was read after its end.
  while (!isOver()) {
    await pause(isEnded(job.state) ? JOB_REFRESH_MS : SLOW_ROUND_MS);
    if (!document.hidden) await loadJob();
  }
  stream.close();
  await load();
}

for (const button of byId("chart-kinds").children) button.addEventListener("click", () => turnChart(button.dataset.kind));
byId("train").addEventListener("click", () => train());
byId("chosen-close").addEventListener("click", () => pick(null));
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && selected && !document.querySelector("dialog[open]")) pick(null);
});
addEventListener("hashchange", () => job && show(readView()));

async function start() {
  quality.picked = wanted.quality;
  table.arrange(wanted);
  turnChart(wanted.chart === "3d" ? "solid" : "flat");
  showAccount();
  await loadJob(); // Its last event is read before the candidates: what happens between is heard again, not missed.
  byId("candidates-card").open = !job.request.space.published; // The answer's table has them, with names.
  const after = job.last_event;
  await table.turn(chosen); // The rows first: beside the points they would take as long as those.
  await loadPointsOf(chosen);
  await showWanted();
  follow(after);
  law.look().catch(unlessRefused);
  trained.follow().catch(unlessRefused);
  await attend();
}

start().catch(unlessRefused);
