// Texts on one training, for the list and its page.

import { shapeOf } from "../shared/shape.js";
import { count, duration, figure, millions, MISSING, whole } from "../shared/format.js";

const LIVE = new Set(["starting", "training", "evaluating"]);
const ENDED = new Set(["done", "cancelled", "failed"]);
const BADGES = { starting: "running", training: "running", evaluating: "running", done: "finished" };
const FEW_SYMBOLS = 512; // So small a vocabulary is one of characters or bytes.

export const isLive = ({ state }) => LIVE.has(state);
export const isImported = ({ kind }) => kind === "import";
export const hasEnded = ({ state }) => ENDED.has(state);

/** The actions that are possible now. */
export function controlsOf(training) {
  const { state, wanted } = training;
  const ending = isLive(training) && wanted === "cancel";
  return {
    pause: (state === "queued" || (isLive(training) && wanted === "run")) && !ending,
    resume: state === "paused" || state === "failed" || (isLive(training) && wanted === "pause"),
    cancel: !hasEnded(training) && !ending,
    delete: true,
  };
}

export function stateTitle(training) {
  if (isLive(training) && training.wanted === "pause") return "pausing";
  if (isLive(training) && training.wanted === "cancel") return "cancelling";
  return training.state;
}

export const badgeOf = ({ state }) => `badge ${BADGES[state] ?? state}`;

/** "6 layers × 512, 12.4 M parameters", or that it is a supernet. */
export function modelOf({ kind, architecture, decoder_parameters: parameters }) {
  if (kind === "supernet") return "supernet";
  return parameters === null ? shapeOf(architecture) : `${shapeOf(architecture)}, ${millions(parameters)} parameters`;
}

/** How many steps it will take, as far as is known before it has started. */
export const stepsOf = ({ steps, recipe, budget }) => steps || (recipe ? Math.min(budget.steps ?? Infinity, recipe.steps) : 0);

/** What a training without figures waits for, as a sentence. */
export function awaited(training) {
  if (hasEnded(training)) return "It ended before its first report.";
  if (training.state === "paused") return "It is paused.";
  return training.state === "queued" ? "It waits for a worker." : "They come with its first report.";
}

/** The recipe's name, for the column of recipes. */
export const recipeName = ({ recipe }) => recipe?.name ?? "imported";

export function progressOf(training) {
  if (isImported(training)) return MISSING;
  return `${whole(training.step)} of ${count(stepsOf(training), "step")}`;
}

/** The time until it ends; after its last step it is that of its evaluation. */
export const timeLeftOf = (training) => `${duration(training.seconds_left)}${training.seconds_left !== null && training.step >= stepsOf(training) ? " to evaluate" : ""}`;

/** The name that its quality goes by: text that is read by characters has bits per character. */
export function qualityName({ trained, architecture }) {
  const vocabulary = (trained ?? architecture)?.embedding?.vocab_size;
  return vocabulary <= FEW_SYMBOLS ? "bpc" : "perplexity";
}

/**
 * Its figure on held-out text, lower is better: `{name, value, split, final}`; null where nothing is known. The final
 * score on the test split where there is one, else on the validation split, else the run's last validation.
 */
export function qualityOf(training) {
  const name = qualityName(training);
  for (const split of ["test", "valid"]) {
    const score = training.evaluations.find((each) => each.split === split && each.metric === name);
    if (score) return { name, value: score.value, split, final: true };
  }
  const value = training.last_metric?.[name === "bpc" ? "valid_bpc" : "valid_perplexity"];
  return value === null || value === undefined ? null : { name, value, split: "valid", final: false };
}

export const qualityText = (quality) => (quality === null ? MISSING : `${figure(quality.value)}${quality.name === "bpc" ? " bpc" : ""}`);

export const splitTitle = (split) => ({ valid: "validation", test: "test" }[split] ?? split);

/** A loss to the digits that matter; missing or not a number is an en dash. */
export const lossText = (value) => (Number.isFinite(value) ? value.toFixed(3) : MISSING);
