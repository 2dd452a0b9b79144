// What one pass of a new search is, and which of its times are limited: the fields of a protocol that the form has.

import { byId, setText } from "../shared/dom.js";

// Of each kind of pass: which fields it has, with their labels, and the values that they begin with.
const MODES = {
  forward: { sequence: ["Tokens of the sequence", 192] },
  prefill: { sequence: ["Tokens of the prompt", 192] },
  decode: { before: ["Tokens before it", 192] },
  generate: { sequence: ["Tokens of the prompt", 192], "new-tokens": ["New tokens", 64], before: ["Context (tokens)", 0], figure: ["Latency is"] },
};
const FIELDS = { sequence: "sequence_length", before: "memory_length", "new-tokens": "new_tokens", figure: "latency" };
const LIMITS = { latency: "latency_ms", memory: "memory_mb", "first-token": "first_token_ms", token: "token_ms" };
const OF_MODE = new Set(Object.keys(MODES.generate));
const OF_TOKENS = ["first-token", "token"]; // Limits that only a generation has: a limit there makes the pass one.

export const LIMIT_INPUTS = Object.keys(LIMITS);

const mode = () => MODES[byId("mode").value];
const isOfMode = (id) => !OF_MODE.has(id) || id in mode();
const number = (id) => (byId(id).value === "" ? null : byId(id).valueAsNumber);

/** Shows the fields that this kind of pass has, with the values that they begin with. */
export function showMode() {
  for (const id of OF_MODE) {
    byId(id).closest("div").hidden = !isOfMode(id);
    const [label, first] = mode()[id] ?? [];
    if (label) setText(document.querySelector(`label[for="${id}"]`), label);
    if (first !== undefined) byId(id).value = first;
  }
  if (byId("mode").value !== "generate") for (const id of OF_TOKENS) byId(id).value = "";
  showLimits();
  byId("before").min = byId("mode").value === "decode" ? 1 : 0;
}

/** Shows the limits on times of a generation, but for the one that is its latency. */
export function showLimits() {
  const generates = byId("mode").value === "generate";
  for (const id of OF_TOKENS) byId(id).closest("div").hidden = generates ? !isLimited(id) : option("generate").hidden;
  describeLatency();
}

/** Says of what pass the latency is, at its limit. */
export function describeLatency() {
  const [sequence, before, answer] = ["sequence", "before", "new-tokens"].map((id) => byId(id).value || "?");
  const whole = { total: "the whole answer", first_token: "the first token", token: "each further token" }[byId("figure").value];
  const says = {
    forward: `One pass over ${sequence} tokens.`,
    prefill: `Reading a prompt of ${sequence} tokens.`,
    decode: `One more token after ${before}.`,
    generate: `Of ${whole}: ${answer} tokens after a prompt of ${sequence}.`,
  };
  setText(byId("latency-says"), says[byId("mode").value]);
}

const option = (value) => byId("mode").querySelector(`[value="${value}"]`);

/** Offers these kinds of passes, null: all; what is not offered is not chosen. */
export function offerModes(modes) {
  for (const each of byId("mode").options) each.hidden = each.disabled = modes !== null && !modes.includes(each.value);
  if (!byId("mode").selectedOptions[0]?.disabled) return showLimits();
  byId("mode").value = "forward";
  showMode();
}

/** A limit on the tokens of an answer makes the pass a generation. */
export function watchTokenLimits() {
  for (const id of OF_TOKENS) byId(id).addEventListener("input", ({ target: { value } }) => {
    if (value === "" || byId("mode").value === "generate") return;
    byId("mode").value = "generate";
    showMode();
  });
}

const isLimited = (id) => !OF_TOKENS.includes(id) || (byId("mode").value === "generate" && LIMITS[id] !== `${byId("figure").value}_ms`);

/** The fields of the protocol that are about the pass, and what a busy device does; null where a number is missing. */
export function passFields() {
  const shown = Object.entries(FIELDS).filter(([id]) => isOfMode(id));
  return { mode: byId("mode").value, when_busy: byId("when-busy").value, ...Object.fromEntries(shown.map(([id, field]) => [field, id === "figure" ? byId(id).value : number(id)])) };
}

/** The limits that are set. */
export function limitFields() {
  const set = Object.entries(LIMITS).map(([id, name]) => [name, isLimited(id) ? number(id) : null]);
  return Object.fromEntries(set.filter(([, value]) => value !== null));
}

/** Of llama.cpp's protocols, what the cache of keys and values holds; nothing of others. */
export const cacheFields = (runtime) => (runtime === "llamacpp" ? { kv_cache: byId("kv-cache").value } : {});

/** Shows the choice of the cache where the runtime has one. */
export function showCache(runtime) {
  byId("kv-cache").closest("div").hidden = runtime !== "llamacpp";
}

/** Another job's protocol with this pass: in another mode its lengths mean nothing, in another runtime its ruler of memory and its cache. */
export function changedProtocol(protocol, changes) {
  const { sequence_length, memory_length, new_tokens, latency, memory, kv_cache, ...rest } = protocol;
  const alike = protocol.mode === changes.mode;
  const sameRuntime = protocol.runtime === changes.runtime && protocol.provider === changes.provider;
  return { ...rest, ...(alike ? { sequence_length, memory_length } : {}), ...(sameRuntime ? { memory } : {}), ...changes };
}

/** Fills the fields from another job's target. */
export function fillPass({ protocol, limits }) {
  byId("mode").value = protocol.mode;
  byId("when-busy").value = protocol.when_busy ?? "mark";
  byId("kv-cache").value = protocol.kv_cache ?? "f16";
  showMode();
  for (const [id, field] of Object.entries(FIELDS)) if (isOfMode(id) && protocol[field] !== undefined) byId(id).value = protocol[field];
  for (const [id, name] of Object.entries(LIMITS)) byId(id).value = limits[name] ?? "";
  const same = isOfMode("figure") && limits[`${byId("figure").value}_ms`]; // Its latency is limited by either name.
  if (same) byId("latency").value = Math.min(same, limits.latency_ms ?? Infinity);
  showLimits();
}
