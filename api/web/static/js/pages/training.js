// A training's live page: loads the training with its curves, then follows its events.

import { patiently, pause, Refused, request, showAccount } from "../shared/api.js";
import { Curves } from "../training/curves.js";
import { byId, element, fillRows, setNotice, setText, throttled } from "../shared/dom.js";
import { count, duration, fileSize, latency, megabytes, millions, MISSING, moment, whole } from "../shared/format.js";
import { Layers } from "../training/layers.js";
import { followLive, setLive } from "../shared/live.js";
import { withRoot } from "../shared/root.js";
import {
  awaited, badgeOf, controlsOf, hasEnded, isImported, isLive, lossText, modelOf, progressOf, qualityName, qualityOf, qualityText, splitTitle, stateTitle, stepsOf, timeLeftOf,
} from "../training/view.js";

const REFRESH_MS = 1000; // While events arrive.
const SLOW_ROUND_MS = 5000; // For what makes no event: its place in the queue, the time left.
const LOG_MS = 2000;
const LOG_LINES = 200;
const METRICS = 10000;

const id = document.body.dataset.training;
const path = `/v1/trainings/${encodeURIComponent(id)}`;
const reports = new Map(); // step → MetricView

let training = null;
let stream = null;
let curves = null;
let layers = null;
let shown = null; // the file list as it is shown

const drawCurves = throttled(() => curves?.draw(sorted(), byId("axis").value, awaited(training)), () => curves?.restMs ?? 300);
const refresh = throttled(() => loadTraining().catch(unlessRefused), () => REFRESH_MS);
const readLog = throttled(() => showLog().catch(unlessGone), () => LOG_MS);
const readFiles = throttled(() => showFiles().catch(unlessGone), () => REFRESH_MS);
const readLayers = throttled(() => showLayers().catch(unlessGone), () => LOG_MS);

const sorted = () => [...reports.values()].sort((a, b) => a.step - b.step);

/** A refusal has been shown by then. */
function unlessRefused(error) {
  if (!(error instanceof Refused)) throw error;
}

/** Of a part of the page: that the training is gone is said by the training itself. */
function unlessGone(error) {
  if (!(error instanceof Refused)) throw error;
  if (error.status !== 404) setNotice(byId("notice"), error.message, "bad");
}

const lost = (error) => setLive("lost", `${error.message}; trying again`);

async function loadTraining() {
  try {
    training = await patiently(path, lost);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    stream?.close();
    setNotice(byId("notice"), error.status === 404 ? "This training does not exist, was deleted, or belongs to someone else." : error.message, "bad");
    if (error.status === 404) setText(byId("training-name"), "Training not found");
    byId("training").hidden = true;
    for (const name of ["pause", "resume", "cancel", "delete"]) byId(name).hidden = true;
    throw error;
  }
  show();
  if (reports.size === 0) drawCurves(); // which say what is awaited
}

function show() {
  document.title = `${training.name} · edgefront`;
  setText(byId("training-name"), training.name);
  setText(byId("training-state"), stateTitle(training));
  byId("training-state").className = badgeOf(training);
  byId("training-state").hidden = false;
  showFacts();
  const reason = training.reason ? `: ${training.reason}` : "";
  setNotice(byId("notice"), training.state === "failed" ? `This training failed${reason}` : "", "bad");
  const note = training.note || (training.state === "evaluating" ? EVALUATING : "");
  setNotice(byId("note"), note.charAt(0).toUpperCase() + note.slice(1), training.state === "paused" ? "warn" : "");
  for (const [name, possible] of Object.entries(controlsOf(training))) byId(name).hidden = !possible;
  for (const name of ["progress-card", "curves-card", "log-card", "recipe-card"]) byId(name).hidden = isImported(training);
  if (!isImported(training)) {
    showProgress();
    showRecipe();
  }
  showModel();
  showFormats();
  byId("training").hidden = false;
}

const EVALUATING = "All steps are made. The model is scored on held-out text, and its files are written: that may take minutes.";

function showFacts() {
  const origin = isImported(training) ? ["imported"] : [`data ${training.dataset}`, `recipe ${training.recipe.name}`, `seed ${training.seed}`];
  const facts = [
    modelOf(training), ...origin, `by ${training.owner}`, ...(training.licence ? [`licence ${training.licence}`] : []),
    ...(isLive(training) && training.worker ? [`on ${training.worker}`] : []),
    ...(["queued", "paused"].includes(training.state) ? [training.queue] : []),
    ...(training.attempts ? [`${count(training.attempts, "attempt")} failed`] : []),
    training.started_at ? `started ${moment(training.started_at)}` : `submitted ${moment(training.created_at)}`,
    ...(training.finished_at && !isImported(training) ? [`ended ${moment(training.finished_at)}`] : []),
  ];
  const links = [];
  if (training.job_id) {
    const target = training.target_id ? `#target=${encodeURIComponent(training.target_id)}` : "";
    links.push(["job", `/jobs/${encodeURIComponent(training.job_id)}${target}`]);
  }
  if (training.digest) links.push(["trainings of this architecture", `/trainings?digest=${encodeURIComponent(training.digest)}`]);
  const text = facts.join(" · ");
  if (byId("training-facts").dataset.text === text) return;
  byId("training-facts").dataset.text = text;
  byId("training-facts").replaceChildren(text, ...links.flatMap(([title, href]) => [" · ", element("a", { href, text: title })]));
}

function showProgress() {
  const bar = byId("progress");
  bar.max = Math.max(stepsOf(training), 1);
  bar.value = Math.min(training.step, bar.max);
  setText(byId("progress-label"), `${progressOf(training)}, ${count(training.tokens, "token")}${training.checkpoint === null ? "" : `, checkpoint at ${whole(training.checkpoint)}`}`);
  const last = training.last_metric;
  setText(byId("loss"), lossText(last?.loss));
  setText(byId("valid-loss"), lossText(last?.valid_loss));
  setText(byId("tokens-per-s"), whole(last?.tokens_per_s));
  setText(byId("time-left"), isLive(training) ? timeLeftOf(training) : MISSING);
  setText(byId("time-spent"), training.seconds ? duration(training.seconds) : MISSING);
}

const METRIC_TITLES = { loss: "Loss", perplexity: "Perplexity", bpc: "Bits per character", word_perplexity: "Perplexity per word", bleu: "BLEU" };

/** To the digits that papers give; perplexities of words are large before a model has learnt much. */
function scoreText(value) {
  if (value === undefined) return MISSING;
  return Math.abs(value) < 1000 ? value.toFixed(3) : whole(value);
}

/** A sentence where the candidate was measured over other tokens than it is trained over. */
function otherVocabulary({ architecture, trained }) {
  const [before, now] = [architecture, trained].map((each) => each?.embedding?.vocab_size);
  return before && now && before !== now ? ` It was measured with a vocabulary of ${whole(before)} tokens, and is trained with ${whole(now)}.` : "";
}

/** Its scores beside the measurements of its candidate. */
function showModel() {
  byId("model").hidden = training.kind === "supernet";
  const quality = qualityOf(training);
  const name = qualityName(training) === "bpc" ? "Bits per character" : "Perplexity";
  setText(byId("quality-name"), quality === null ? name : `${name}, ${quality.final ? "" : "last "}${splitTitle(quality.split)}`);
  setText(byId("quality"), qualityText(quality).replace(" bpc", ""));
  const measured = training.measured;
  setText(byId("latency"), latency(measured?.latency_ms, measured?.latency_half_width_ms));
  setText(byId("memory"), megabytes(measured?.memory_bytes));
  setText(byId("parameters"), millions(training.decoder_parameters));
  setText(byId("measured-note"), measured
    ? `Latency and peak memory as the candidate was measured on ${measured.target}${measured.on_frontier ? ", on whose frontier it is" : ""}.${otherVocabulary(training)}`
    : "Not measured: this training is not of a job's candidate.");
  showScores();
}

function showScores() {
  const rows = new Map(); // data set and split → metric → value
  for (const { dataset, split, metric, value } of training.evaluations) {
    const key = `${dataset}\n${split}`;
    if (!rows.has(key)) rows.set(key, { dataset, split, values: new Map() });
    rows.get(key).values.set(metric, value);
  }
  const there = new Set(training.evaluations.map(({ metric }) => metric));
  const known = Object.keys(METRIC_TITLES).filter((metric) => there.has(metric));
  const metrics = [...known, ...[...there].filter((metric) => !(metric in METRIC_TITLES))];
  byId("scores-region").hidden = rows.size === 0;
  byId("scores").tHead.replaceChildren(element("tr", {},
    element("th", { scope: "col", text: "Data" }), element("th", { scope: "col", text: "Split" }),
    ...metrics.map((metric) => element("th", { scope: "col", class: "number", text: METRIC_TITLES[metric] ?? metric }))));
  fillRows(byId("scores"), [...rows.values()].map(({ dataset, split, values }) => element("tr", {},
    element("td", { text: dataset }), element("td", { text: splitTitle(split) }),
    ...metrics.map((metric) => element("td", { class: "number", text: scoreText(values.get(metric)) })))));
}

function showRecipe() {
  const { recipe, budget } = training;
  setText(byId("recipe-facts"), [
    recipe.title || recipe.name, `${recipe.optimizer.name}, learning rate ${recipe.optimizer.lr}`,
    `${count(recipe.rows, "row")} of ${count(recipe.segment, "token")} per step`, recipe.precision,
    ...Object.entries(budget).filter(([, value]) => value !== null).map(([name, value]) => `at most ${value} ${name}`),
    ...(recipe.source ? [recipe.source] : []),
  ].join(" · "));
  setText(byId("recipe"), JSON.stringify(recipe, null, 2));
}

async function loadReports() {
  let after = -1;
  do {
    const page = await patiently(`${path}/metrics?limit=${METRICS}&after=${after}`, lost);
    for (const report of page.items) reports.set(report.step, report);
    after = page.next_step;
    drawCurves();
  } while (after !== null);
}

async function showLog() {
  const node = byId("log");
  const text = await patiently(() => request(`${path}/log?tail=${LOG_LINES}`, { as: "text" }), lost);
  const atEnd = node.scrollHeight - node.scrollTop - node.clientHeight < 40;
  setText(node, text.trimEnd());
  node.hidden = !text;
  byId("log-empty").hidden = Boolean(text);
  setText(byId("log-empty"), hasEnded(training) ? "The log is empty." : "The log is empty. It begins when a worker takes the training.");
  if (atEnd) node.scrollTop = node.scrollHeight;
}

async function showFiles() {
  const files = await patiently(`${path}/files`, lost);
  const text = JSON.stringify(files);
  if (text === shown) return;
  shown = text;
  const [results, checkpoint, curves] = ["result/", "checkpoints/", "tensorboard/"].map((folder) => files.filter((file) => file.path.startsWith(folder)));
  byId("files").replaceChildren(...results.map(fileItem));
  byId("archive-line").hidden = results.length < 2;
  setText(byId("archive-size"), fileSize(results.reduce((sum, { size }) => sum + size, 0)));
  byId("checkpoint-files").replaceChildren(...checkpoint.map(fileItem));
  byId("checkpoint").hidden = checkpoint.length === 0;
  byId("checkpoint").open = results.length === 0 && checkpoint.length > 0;
  byId("tensorboard-files").replaceChildren(...curves.map(fileItem));
  byId("tensorboard").hidden = curves.length === 0;
  byId("files-empty").hidden = files.length > 0;
}

function fileItem(file) {
  const name = file.path.replace(/^(result|checkpoints|tensorboard)\//, "");
  const href = `${path}/files/${file.path.split("/").map(encodeURIComponent).join("/")}`;
  return element("li", {}, element("a", { href, download: "", text: name }), " ", element("span", { class: "size", text: fileSize(file.size) }));
}

const FORMATS = [
  { format: "gguf", label: "GGUF (llama.cpp)" },
  { format: "gguf", numbers: "q8_0", label: "GGUF q8_0" },
  { format: "gguf", numbers: "q6_k", label: "GGUF q6_k" },
  { format: "gguf", numbers: "q5_k_m", label: "GGUF q5_k_m" },
  { format: "gguf", numbers: "q4_k_m", label: "GGUF q4_k_m" },
  { format: "gguf", numbers: "iq4_nl", label: "GGUF iq4_nl" },
  { format: "gguf", numbers: "q4_0", label: "GGUF q4_0" },
  { format: "transformers", label: "transformers (tar)" },
  { format: "onnx", label: "ONNX" },
  { format: "onnx-prefill", label: "ONNX prefill" },
  { format: "onnx-decode", label: "ONNX decode" },
  { format: "onnx-generate", label: "ONNX generate" },
];

/** Built from the result when it is first asked for. */
function showFormats() {
  const there = FORMATS.filter(({ format }) => training.formats.includes(format));
  byId("model-files").hidden = there.length === 0;
  const list = byId("formats");
  if (list.childElementCount === there.length) return;
  list.replaceChildren(...there.map(({ format, numbers = "float32", label }) => element("li", {},
    element("a", { href: `${path}/model?format=${format}&numbers=${numbers}`, download: "", text: label }))));
  showHowToRun();
}

/** Commands for what was downloaded, of a model that generates text. */
function showHowToRun() {
  const has = (format) => training.formats.includes(format);
  byId("running").hidden = !has("onnx-decode");
  byId("run-gguf").hidden = !has("gguf");
  byId("run-transformers").hidden = !has("transformers");
  const endless = qualityName(training) === "bpc" ? " --ignore-eos" : ""; // Bytes and characters have no token that ends a text.
  setText(byId("run-archive"), `tar -xf ${id}.tar\nedgefront generate ${id} --prompt "Once upon a time" --tokens 40`);
  setText(byId("run-llama"), `llama-cli -m edgefront-*-trained.gguf -p "Once upon a time" -n 40${endless}`);
}

async function showLayers() {
  if (training.kind !== "supernet") return;
  layers ??= new Layers();
  layers.show(await patiently(`${path}/probabilities`, lost), `${path}/probabilities`);
}

function hear({ kind, data }) {
  if (kind === "metric") reports.set(data.step, data);
  if (kind === "rewound") for (const step of [...reports.keys()]) if (step > data.step) reports.delete(step);
  if (kind === "metric" || kind === "rewound") {
    drawCurves();
    readLayers();
  }
  if (kind === "checkpoint" || kind === "state") readFiles();
  readLog();
  refresh();
}

function follow(after) {
  stream = followLive(path, after, hear, refresh);
}

/** Keeps the slow figures fresh until nothing can happen any more; one that failed can be resumed. */
async function attend() {
  const over = () => hasEnded(training) && training.state !== "failed" && stream.after >= training.last_event;
  while (!over()) {
    await pause(hasEnded(training) && training.state !== "failed" ? REFRESH_MS : SLOW_ROUND_MS);
    if (!document.hidden) await loadTraining();
  }
  stream.close();
}

async function control(action) {
  const button = byId(action);
  button.disabled = true;
  try {
    if (action === "delete") {
      await request(path, { method: "DELETE" });
      location.assign(withRoot("/trainings"));
      return;
    }
    training = await request(`${path}/${action}`, { method: "POST" });
    show();
  } catch (error) {
    setNotice(byId("notice"), `Could not ${action} the training: ${error.message}`, "bad");
  } finally {
    button.disabled = false;
  }
}

const QUESTIONS = {
  cancel: ["Cancel this training?", "It stops after the current step and cannot be resumed. Its checkpoints, curves and log are kept.", "Cancel the training"],
  delete: ["Delete this training?", "Its log, curves and files are deleted permanently; if it is running, it is stopped. Its scores are kept with the architecture.", "Delete the training"],
};

function ask(action) {
  const [title, says, go] = QUESTIONS[action];
  setText(byId("confirm-title"), title);
  setText(byId("confirm-says"), says);
  setText(byId("confirm-go"), go);
  byId("confirm").dataset.action = action;
  byId("confirm").showModal();
}

byId("pause").addEventListener("click", () => control("pause"));
byId("resume").addEventListener("click", () => control("resume"));
byId("cancel").addEventListener("click", () => ask("cancel"));
byId("delete").addEventListener("click", () => ask("delete"));
byId("confirm").addEventListener("close", () => {
  if (byId("confirm").returnValue === "go") control(byId("confirm").dataset.action);
  byId("confirm").returnValue = "";
});
byId("axis").addEventListener("change", drawCurves);

async function start() {
  showAccount();
  byId("archive").href = withRoot(`${path}/archive`);
  byId("numbers").href = withRoot(`${path}/metrics?limit=${METRICS}`);
  await loadTraining(); // Its last event is read before its reports: what happens between is heard again, not missed.
  const after = training.last_event;
  curves = new Curves(byId("curves"), { bits: qualityName(training) === "bpc" });
  await loadReports();
  readLog();
  readFiles();
  readLayers();
  follow(after);
  await attend();
}

start().catch(unlessRefused);
