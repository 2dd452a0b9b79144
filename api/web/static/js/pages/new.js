// A new search: the form, what it would take or be refused for, and its submission.

import { Away, eachPage, patiently, randomKey, Refused, request, showAccount } from "../shared/api.js";
import { byId, debounced, element, setNotice, setText } from "../shared/dom.js";
import { MyModel } from "../new/model.js";
import { Narrowing } from "../new/narrow.js";
import { cacheFields, changedProtocol, describeLatency, fillPass, LIMIT_INPUTS, limitFields, offerModes, passFields, showCache, showLimits, showMode, watchTokenLimits } from "../new/pass.js";
import { Published } from "../new/published.js";
import { describeDevices, describeRuntime, titleOf } from "../new/places.js";
import { TOKENS_ALLOWED, tokenCount } from "../new/tokens.js";
import { count, duration, figure, fileSize, megabytes, milliseconds, MISSING, whole } from "../shared/format.js";
import { withRoot } from "../shared/root.js";

const TYPING_MS = 400;
const FIRST_SPACE = "llama"; // What llama.cpp and transformers load, and of which perplexities are predicted.
const EMBEDDING = ["div", "d_embed"]; // Genes that published searches hold fixed, and in which there is most to find.
// Paths in a request → the field of the form that they belong to; a longer one before its beginning.
const FIELDS = [
  ["name", "name"], ["space.model", "model"],
  ["space.published.score", "score"], ["space.published.kind", "published-kind"], ["space.published.licence", "licence"], ["space.published.min_context", "min-context"],
  ["targets.0.variants.runtimes", "runtimes"], ["targets.0.variants.formats", "formats"], ["targets.0.variants.kv_caches", "kv-caches"],
  ["space", "space"],
  ["targets.0.limits.latency_ms", "latency"], ["targets.0.limits.memory_mb", "memory"],
  ["targets.0.limits.first_token_ms", "first-token"], ["targets.0.limits.token_ms", "token"],
  ["targets.0.protocol.mode", "mode"], ["targets.0.protocol.sequence_length", "sequence"], ["targets.0.protocol.memory_length", "before"],
  ["targets.0.protocol.new_tokens", "new-tokens"], ["targets.0.protocol.latency", "figure"],
  ["targets.0.protocol.threads", "threads"], ["targets.0.protocol.when_busy", "when-busy"], ["targets.0.protocol.kv_cache", "kv-cache"], ["targets.0.protocol", "runtime"], ["targets.0", "device"],
  ["budget.candidates", "candidates"], ["budget.minutes", "minutes"],
  ["train_tokens", "train-tokens"], ["train_time.trainer", "trainer"], ["train_time", "train-hours"],
];
const INPUTS = [...new Set(FIELDS.map(([, id]) => id))];
const ANY = [...LIMIT_INPUTS, "minutes", "train-hours", "min-context"]; // Empty is no limit.
const SOURCES = {
  predicted: "The time is predicted from what was measured there.",
  measured: "The time is by the pace of what was measured there.",
  flops: "The time is by what other kinds of passes took there.",
  unknown: "The time is unknown: nothing was measured there.",
};

const TRAINING = "A training runs now: on the same machine it slows what is measured.";

let isTraining = false;
let origin = null; // The job that this one begins from: what the form does not show is taken over from it.
let places = []; // {title, field: device or device_class, name, devices}
let spaces = [];
let asked = 0; // questions for an estimate; only the latest is answered
let [submitted, key] = ["", ""]; // A second click on the same request makes no second job.

const estimateSoon = debounced(() => estimate(), TYPING_MS);
const model = new MyModel(() => estimateSoon());
const narrowing = new Narrowing();
const published = new Published(() => {
  if (published.isChosen && !origin) {
    byId("mode").value = "generate";
    showMode();
  }
  explainSpace();
  estimateSoon();
});
const inputs = () => [...INPUTS, ...narrowing.inputs];

const place = () => places[byId("device").value];
const number = (id) => (byId(id).value === "" ? null : byId(id).valueAsNumber);
const given = (values) => Object.fromEntries(Object.entries(values).filter(([, value]) => value !== null));

/** The job's request, as the form says; the rest is that of the job that it begins from. */
function wanted() {
  if (published.isChosen) return amongPublished();
  const [runtime, provider] = byId("runtime").value.split(" ");
  const limits = limitFields();
  const best = Object.keys(limits).length > 0;
  const target = { [place().field]: place().name, protocol: { runtime, provider, threads: number("threads"), ...passFields(), ...cacheFields(runtime) }, limits };
  const fields = {
    name: byId("name").value.trim() || null,
    goal: best ? "best_within_limits" : "frontier",
    space: model.isChosen ? { model: model.architecture } : { name: byId("space").value, narrow: { ...(best && !isOriginsSpace() ? freeEmbedding() : {}), ...narrowing.narrow } },
    targets: [target],
    train_tokens: isShown("train-tokens") ? tokenCount(byId("train-tokens").value.trim()) : null,
    train_time: number("train-hours") === null || !isShown("train-hours") ? null : { hours: number("train-hours"), trainer: byId("trainer").value },
    budget: given({ candidates: number("candidates"), minutes: number("minutes") }),
  };
  return origin ? changed(origin.request, fields) : fields;
}

/** The request of a search among published models: no other job's fields but these mean anything to it. */
function amongPublished() {
  const limits = limitFields();
  return {
    name: byId("name").value.trim() || null,
    goal: Object.keys(limits).length > 0 ? "best_within_limits" : "frontier",
    space: published.space,
    targets: [{ [place().field]: place().name, protocol: { threads: number("threads"), ...passFields() }, limits, variants: published.variants }],
    budget: given({ minutes: number("minutes") }),
  };
}

/** The request of a job with the changes that the form has. In another space its narrowing, depths and proxy mean nothing. */
function changed(request, { name, goal, space, targets: [target], train_tokens, train_time, budget }) {
  const { proxy, proxy_settings, baseline_layers, parameters, ...rest } = request;
  const [first, ...others] = request.targets;
  const limited = Object.keys(given(first.limits)).length > 0;
  return {
    ...rest,
    ...(isOriginsSpace() ? { proxy, proxy_settings, baseline_layers, parameters, space: model.isChosen ? request.space : space } : { space }),
    name,
    train_tokens,
    train_time,
    goal: limited === Object.keys(target.limits).length > 0 ? request.goal : goal,
    targets: [
      { ...target, ...(byId("device").selectedIndex === origin.at ? { name: first.name } : {}), protocol: changedProtocol(first.protocol, target.protocol) },
      ...others,
    ],
    budget: { refinement: request.budget.refinement, ...budget },
  };
}

/** Whether the search begins with what the job did that it begins from. */
function isOriginsSpace() {
  if (!origin) return false;
  const { space } = origin.request;
  return model.isChosen ? JSON.stringify(model.architecture) === JSON.stringify(space.model) : !space.model && byId("space").value === space.name;
}

function freeEmbedding() {
  const { genes } = spaces.find(({ name }) => name === byId("space").value);
  return Object.fromEntries(EMBEDDING.filter((gene) => genes[gene]?.options).map((gene) => [gene, genes[gene].options]));
}

/** Whether every field can be read; those that cannot say what would be right. */
function isReadable() {
  clearProblems();
  narrowing.count();
  for (const id of INPUTS.filter((each) => each !== "model" && isShown(each))) {
    const input = byId(id);
    const nothing = ANY.includes(id) && input.value !== "" && !(input.valueAsNumber > 0);
    if (nothing) refuse(id, "Must be a number above 0, or empty.");
    else if (id === "train-tokens" && input.value.trim() && tokenCount(input.value.trim()) === null) refuse(id, TOKENS_ALLOWED);
    else if (!input.checkValidity()) refuse(id, input.validationMessage);
  }
  return INPUTS.every((id) => !isShown(id) || byId(`${id}-problem`).textContent === "") && (!model.isChosen || model.architecture !== null);
}

const isShown = (id) => byId(id).closest("[hidden]") === null;

/** Those of the model stay until another is read. */
function clearProblems() {
  for (const id of inputs().filter((each) => each !== "model" || model.architecture)) {
    setText(byId(`${id}-problem`), "");
    byId(id).removeAttribute("aria-invalid");
  }
  setText(byId("problem"), "");
}

/** Shows a refusal at the field that it is about; `id` undefined: of the whole. Returns it after the field's label. */
function refuse(id, text) {
  const node = byId(id ? `${id}-problem` : "problem");
  setText(node, [node.textContent, text].filter(Boolean).join(" "));
  if (!id) return text;
  byId(id).setAttribute("aria-invalid", true);
  for (let folded = byId(id).closest("details"); folded; folded = folded.parentElement.closest("details")) folded.open = true;
  return `${document.querySelector(`label[for="${id}"]`).textContent}: ${text}`;
}

/** The same by the path of what is refused, which stands at its field and not in the text, with what is allowed. */
function refuseAt(path, text, allowed) {
  const found = narrowing.fieldOf(path) ?? FIELDS.find(([begin]) => path === begin || path.startsWith(`${begin}.`))?.[1];
  const id = [found, ...(found === "space" ? ["model"] : [])].find((each) => each && isShown(each));
  const begin = [`${path}: `, `${path} `].find((one) => path && text.startsWith(one));
  const says = id && begin ? text.slice(begin.length) : text;
  return refuse(id, id && allowed && !says.includes(allowed) ? `${says} (allowed: ${allowed})` : says);
}

/** What would be refused, and what it would take. Until that is known the button stays as it was: a click is never lost. */
async function estimate() {
  const question = ++asked;
  if (published.isChosen && !published.isRead) return none("Reading the catalogue…");
  if (!isReadable()) return none(model.isChosen && !model.architecture && !byId("model").value ? "Choose the config.json of your model." : "Some fields cannot be read.");
  setText(byId("estimate-says"), "Estimating…");
  try {
    const found = await patiently(() => request("/v1/jobs/estimate", { method: "POST", body: wanted() }), ({ message }) => question === asked && setText(byId("estimate-says"), `No estimate: ${message}; trying again.`));
    if (question === asked) show(found);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (question !== asked) return;
    none("");
    setText(byId("estimate-says"), `The search would be refused. ${refuseAt(error.field, error.message, error.allowed)}`);
  }
}

function none(text) {
  byId("submit").disabled = true;
  byId("estimate").hidden = true;
  setText(byId("limits-says"), "");
  setText(byId("estimate-says"), text);
}

function show({ refusals, targets, launches, minutes, minutes_at_most: most, candidates, event_bytes: log, model_bytes: file }) {
  const refused = refusals.map(({ field, detail, allowed }) => refuseAt(field, detail, allowed));
  byId("submit").disabled = refusals.length > 0;
  if (targets.length === 0) return none(["The search would be refused.", ...refused].join(" "));
  byId("estimate").hidden = false;
  const [{ baseline_launches: baselines, seconds_from: source, note, stock }] = targets;
  setText(byId("limits-says"), sayStock(stock));
  setText(byId("estimate-launches"), range(launches));
  setText(byId("estimate-time"), minutes === null ? MISSING : upTo(duration(60 * minutes), duration(60 * most)));
  setText(byId("estimate-candidates"), range(candidates));
  setText(byId("estimate-log"), fileSize(log.expected));
  setText(byId("estimate-file"), file === null ? MISSING : fileSize(file));
  byId("estimate-file").parentElement.hidden = published.isChosen;
  setText(byId("estimate-says"), [
    ...(refusals.length ? ["The search would be refused.", ...refused] : []), published.isChosen ? `On ${count(targets.length, "combination")} of runtime and format.` : `${whole(baselines)} of the launches measure ${model.isChosen ? "my model" : "the baseline"}.`,
    SOURCES[source], note,
  ].join(" "));
}

/** What the baselines are predicted to take there: what limits can be chosen by. */
function sayStock(stock) {
  if (!stock.length) return "What the baseline would take there cannot be predicted yet. Limits may stay empty: the job's page has sliders for them.";
  const each = stock.map(({ name, latency_ms: ms, latency_low_ms: low, latency_high_ms: high, memory_bytes: bytes }) =>
    `${milliseconds(ms)} (${figure(low)} to ${figure(high)}) and ${megabytes(bytes)} with ${name}`);
  return `${model.isChosen ? "My model" : "The baseline"} is predicted at ${each.join(", at ")}.`;
}

const upTo = (expected, most) => (expected === most ? expected : `${expected} to ${most}`);
const range = ({ expected, at_most: most }) => upTo(whole(expected), whole(most));

async function submit() {
  if (!isReadable()) return;
  const body = wanted();
  if (submitted !== JSON.stringify(body)) [submitted, key] = [JSON.stringify(body), randomKey()];
  byId("submit").disabled = true;
  try {
    const job = await request("/v1/jobs", { method: "POST", body, headers: { "idempotency-key": key } });
    location.assign(withRoot(`/jobs/${encodeURIComponent(job.id)}`));
  } catch (error) {
    if (!(error instanceof Away || error instanceof Refused)) throw error;
    refuseAt(error.field ?? "", error.message, error.allowed);
    setText(byId("estimate-says"), "The search was not submitted.");
    byId("submit").disabled = false;
  }
}

// Choices --------------------------------------------------------------------------------------------------------------

function offerDevices(devices) {
  const classes = Map.groupBy(devices, (device) => device.device_class);
  places = [
    ...devices.map((device) => ({ title: titleOf(device), field: "device", name: device.name, devices: [device] })),
    ...[...classes].map(([name, alike]) => ({ title: `any ${name} (${count(alike.length, "device")})`, field: "device_class", name, devices: alike })),
  ];
  byId("device").replaceChildren(...places.map(({ title }, at) => element("option", { value: at, text: title })));
  byId("device").value = Math.max(0, devices.findIndex(({ online }) => online));
  offerRuntimes();
}

/** The runtimes of the chosen device, and its cores. */
function offerRuntimes() {
  const former = byId("runtime").value;
  const runtimes = place().devices.flatMap(({ facts }) => facts.runtimes.flatMap(({ runtime, providers }) => providers.map((provider) => `${runtime} ${provider}`)));
  const offered = [...new Set(runtimes)].toSorted();
  byId("runtime").replaceChildren(...offered.map((value) => element("option", { value, text: value.replace(" ", " on ") })));
  byId("runtime").value = [former, "onnxruntime cpu", offered[0]].find((value) => offered.includes(value)) ?? "";
  published.offerRuntimes(place().devices);
  byId("threads").max = Math.max(...place().devices.map(({ facts }) => facts.cores));
  explainPlace();
}

function explainPlace() {
  setText(byId("device-says"), [describeDevices(place().devices), isTraining ? TRAINING : ""].filter(Boolean).join(" "));
  showCache(byId("runtime").value.split(" ")[0]);
  setText(byId("runtime-says"), describeRuntime(place().devices, byId("runtime").value));
}

function offerSpaces() {
  byId("space").replaceChildren(...spaces.map(({ name }) => element("option", { value: name, text: name })));
  byId("space").value = FIRST_SPACE;
  offerGenes();
}

/** The workers whose pace of training is known; nothing where there are none. */
function offerTrainers(trainers) {
  byId("trainer").replaceChildren(...trainers.map(({ name }) => element("option", { value: name, text: name })));
}

function offerGenes() {
  const { genes, loads_in } = chosenSpace();
  narrowing.offer(loads_in.length ? { ...genes, loads_in: { values: [], options: loads_in } } : genes);
  narrowing.fill({});
  explainSpace();
}

const chosenSpace = () => spaces.find(({ name }) => name === byId("space").value);

/** What the space is, which passes its models make, and for how much training its scaling law predicts. */
function explainSpace() {
  if (!spaces.length) return;
  const { title, caveat, modes, train_tokens: budget } = chosenSpace();
  const ofSpace = byId("begin").value === "space";
  setText(byId("space-says"), [title, caveat].filter(Boolean).join(". "));
  offerModes(ofSpace ? modes : null);
  const hasBudget = model.isChosen || (ofSpace && budget !== null);
  byId("train-tokens").closest("div").hidden = !hasBudget;
  for (const id of ["train-hours", "trainer"]) byId(id).closest("div").hidden = !hasBudget || byId("trainer").options.length === 0;
  byId("train-tokens").placeholder = ofSpace && budget !== null ? `${budget / 1e9}B` : "the scaling law's own";
}

/** Fills the form from the job that the address names. */
async function readOrigin() {
  const id = new URLSearchParams(location.search).get("from");
  if (!id) return;
  try {
    origin = await patiently(`/v1/jobs/${encodeURIComponent(id)}`);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return setNotice(byId("notice"), "The job to begin from does not exist, was deleted, or belongs to someone else.", "bad");
  }
  const { name, space, targets: [target, ...others], budget } = origin.request;
  const { device, device_class: kind, protocol } = target;
  const at = places.findIndex((each) => device ? each.field === "device" && [each.name, each.devices[0].id].includes(device) : each.field === "device_class" && each.name === kind);
  origin.at = at;
  if (at >= 0) byId("device").value = at;
  offerRuntimes();
  const runtime = `${protocol.runtime} ${protocol.provider}`;
  if ([...byId("runtime").options].some(({ value }) => value === runtime)) byId("runtime").value = runtime;
  if (space.published) await published.take(space, origin.request.targets);
  else {
    byId("space").value = space.name;
    offerGenes();
  }
  if (space.model) model.take(space.model);
  else if (!space.published) narrowing.fill(space.narrow);
  fillPass(target);
  explainPlace();
  const values = {
    threads: protocol.threads, candidates: budget.candidates, minutes: budget.minutes,
    "train-tokens": origin.request.train_tokens, "train-hours": origin.request.train_time?.hours,
    name: `copy of ${name}`.slice(0, 100),
  };
  for (const [field, value] of Object.entries(values)) byId(field).value = value ?? "";
  if (origin.request.train_time) byId("trainer").value = origin.request.train_time.trainer;
  byId("candidates").required = budget.candidates !== null;
  byId("candidates").placeholder = "any";
  byId("origin").replaceChildren(
    "From ", element("a", { href: `/jobs/${encodeURIComponent(id)}`, text: name }),
    `: what this form does not show (algorithm, proxy, seed, weights) is taken over${others.length ? `, and so ${others.length === 1 ? "is the other target" : `are the ${others.length} other targets`}` : ""}.`);
  byId("origin").hidden = false;
  byId("more").open = true;
}

async function start() {
  showAccount();
  const devices = [];
  for await (const page of eachPage("/v1/devices?limit=500")) devices.push(...page.filter(({ state }) => state !== "revoked"));
  if (devices.length === 0) {
    byId("search").hidden = true;
    return setNotice(byId("notice"), "No device is enrolled yet: add one on the page Devices.", "warn");
  }
  const lists = ["/v1/catalogue/spaces", "/v1/trainings?state=training&limit=1", "/v1/trainers"];
  const [listed, trainings, trainers] = await Promise.all(lists.map((path) => patiently(path)));
  [spaces, isTraining] = [listed, trainings.items.length > 0];
  offerTrainers(trainers);
  offerDevices(devices);
  offerSpaces();
  showMode();
  await readOrigin();
  byId("device").addEventListener("change", offerRuntimes);
  byId("runtime").addEventListener("change", explainPlace);
  byId("space").addEventListener("change", offerGenes);
  watchTokenLimits();
  byId("begin").addEventListener("change", explainSpace);
  byId("mode").addEventListener("change", showMode);
  byId("figure").addEventListener("change", showLimits);
  byId("search").addEventListener("input", () => {
    describeLatency();
    estimateSoon();
  });
  byId("search").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  await estimate();
}

start().catch((error) => {
  if (!(error instanceof Refused)) throw error;
  setNotice(byId("notice"), error.message, "bad");
});
