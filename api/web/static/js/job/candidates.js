// The candidates of a job in the page, by target, with only the fields that it shows.

import { shapeOf } from "../shared/shape.js";

export const GROUPS = [
  { name: "frontier", title: "Frontier" },
  { name: "dominated", title: "Dominated" },
  { name: "baseline", title: "Baseline" },
  { name: "outside", title: "Out of bounds" },
  { name: "waiting", title: "Waiting" },
  { name: "unusable", title: "Infeasible or failed" },
];

/** The one group that a candidate belongs to. */
export function groupOf(candidate) {
  if (candidate.role === "baseline") return "baseline";
  if (candidate.state === "waiting") return "waiting";
  if (candidate.state === "out_of_bounds") return "outside";
  if (candidate.state !== "measured") return "unusable";
  return candidate.on_frontier ? "frontier" : "dominated";
}

export const isMeasured = (candidate) => candidate.latency_ms !== null && candidate.memory_bytes !== null;

/** The name of the counted parameters, from any candidate of the target. */
export const parametersOf = (candidate) => (candidate?.generates === false ? "encoder parameters" : "decoder parameters");

/** The quality objective: its value for a point, and its name. */
export function qualityAxis(proxy, candidate) {
  if (!proxy.endsWith("_parameters")) return { name: proxy, title: proxy, value: (point) => point.proxy };
  const name = proxy === "decoder_parameters" ? parametersOf(candidate) : proxy.replace("_", " ");
  return { name, title: `${name} (M)`, value: (point) => point.proxy / 1e6 };
}

/** Likewise for trained models, by their perplexity: id → value. */
export function perplexityAxis(perplexities) {
  return { name: "perplexity", title: "perplexity", value: (point) => perplexities.get(point.id), lowIsBetter: true };
}

export class Candidates {
  constructor() {
    this.targets = new Map(); // target id → Map of candidate id → record
    this.numbers = new Map(); // candidate id → number, for lineage
    this.fresh = 0;
    this.trained = null;
  }

  /** Takes a CandidateView from a list or an event; later events of a candidate leave its architecture out. */
  put(view) {
    const { architecture, ...record } = view;
    const known = this.#target(view.target_id).get(view.id);
    const { shape, generates, pooled } = architecture || !known ? traits(architecture) : known;
    Object.assign(record, { shape, generates, pooled });
    record.trained = this.trained?.of(record);
    record.version = ++this.fresh;
    this.#target(view.target_id).set(view.id, record);
    this.numbers.set(view.id, view.number);
  }

  /** A frontier event: who joined and who left. */
  moveFrontier(targetId, joined, left) {
    const known = this.#target(targetId);
    for (const [ids, on] of [[left, false], [joined, true]]) {
      for (const id of ids) {
        const record = known.get(id);
        if (record) known.set(id, { ...record, on_frontier: on, version: ++this.fresh });
      }
    }
  }

  /** Stores the results of their trainings (`trained.js`). */
  train(trained) {
    this.trained = trained;
    for (const known of this.targets.values()) {
      for (const [id, record] of known) {
        const found = trained.of(record);
        const same = found?.text === record.trained?.text && found?.href === record.trained?.href;
        if (!same) known.set(id, { ...record, trained: found, version: ++this.fresh });
      }
    }
  }

  of(targetId) {
    return [...this.#target(targetId).values()];
  }

  #target(id) {
    if (!this.targets.has(id)) this.targets.set(id, new Map());
    return this.targets.get(id);
  }
}

/** The parts of an architecture that the page keeps. */
function traits(architecture) {
  return { shape: shapeOf(architecture), generates: generates(architecture), pooled: isPooled(architecture) };
}

/** Whether it predicts token by token, and so has the files that generate (`core.graph.state.check_pass`). */
function generates(architecture) {
  return architecture?.causal !== false && !isPooled(architecture);
}

const isPooled = (architecture) => ["pooled", "classes"].includes(architecture?.output?.kind);
