// What the page knows of a job's candidates: of each target the points that every chart reads, thinned by the service,
// and the whole records of those that are listed, recommended or selected.

import { latency, megabytes, millions } from "../shared/format.js";
import { familyOf, shapeOf } from "../shared/shape.js";

export const GROUPS = [
  { name: "frontier", title: "Frontier" },
  { name: "dominated", title: "Dominated" },
  { name: "baseline", title: "Baseline" },
  { name: "outside", title: "Out of bounds" },
  { name: "waiting", title: "Waiting" },
  { name: "unconfirmed", title: "Unconfirmed" },
  { name: "unusable", title: "Infeasible or failed" },
];

/** The one group that a candidate belongs to. */
export function groupOf(candidate) {
  if (candidate.role === "baseline") return "baseline";
  if (candidate.state === "waiting") return "waiting";
  if (candidate.state === "out_of_bounds") return "outside";
  if (candidate.state === "unconfirmed") return "unconfirmed";
  if (candidate.state !== "measured") return "unusable";
  return candidate.on_frontier ? "frontier" : "dominated";
}

export const isMeasured = (candidate) => candidate.latency_ms !== null && candidate.memory_bytes !== null;

/** The name of the counted parameters, from any candidate of the target. */
export const parametersOf = (candidate) => (candidate?.generates === false ? "encoder parameters" : "decoder parameters");

/** Its shape, its parameters, and what was measured of it, in words. */
export function factsOf(candidate) {
  return [
    candidate.shape, `${millions(candidate.decoder_parameters)} ${parametersOf(candidate)}`,
    ...(isMeasured(candidate) ? [latency(candidate.latency_ms, candidate.latency_half_width_ms), megabytes(candidate.memory_bytes)] : []),
  ];
}

const MOST = 6000; // Points of a target; live ones are added to those that were loaded until there are so many.
const RECORDS = 1000;

export class Candidates {
  constructor() {
    this.targets = new Map(); // target id → see `#target`
    this.records = new Map(); // candidate id → its CandidateView with the traits of its architecture instead of that
    this.numbers = new Map(); // candidate id → number, for lineage
    this.fresh = 0;
    this.trained = null;
  }

  /** Takes what `loadPoints` gave of a whole target. */
  take({ header, points }) {
    const target = this.#target(header.target_id);
    target.points = new Map(points.map((point) => [point.id, this.#dressed(point)]));
    target.header = header;
    target.zoomed = [];
    target.list = null;
  }

  /** Takes the points in the window that the chart shows, beside those of the whole target; null: it shows all again. */
  zoom(targetId, loaded) {
    const target = this.#target(targetId);
    target.zoomed = (loaded?.points ?? []).map((point) => this.#dressed(point));
    target.list = null;
  }

  /** Takes a CandidateView, or one without its architecture, as later events of a candidate are; returns the record. */
  put(view) {
    const { architecture, ...fields } = view;
    const known = this.records.get(view.id);
    if (architecture) Object.assign(this.#target(view.target_id).traits, { generates: generates(architecture), pooled: isPooled(architecture) });
    const { shape, family, inPlace } = architecture
      ? { shape: shapeOf(architecture), family: familyOf(architecture), inPlace: writesInPlace(architecture) } : known ?? {};
    const record = this.#dressed({ ...fields, shape, family, inPlace });
    this.numbers.set(view.id, view.number);
    if (architecture || known) {
      this.records.delete(view.id); // and to the end of those that are kept
      this.records.set(view.id, record);
      if (this.records.size > RECORDS) this.records.delete(this.records.keys().next().value);
    }
    const target = this.#target(view.target_id);
    if (isMeasured(record)) target.points.set(view.id, record);
    target.list = null;
    return record;
  }

  /** A frontier event: who joined and who left. */
  moveFrontier(targetId, joined, left) {
    const target = this.#target(targetId);
    for (const [ids, on] of [[left, false], [joined, true]]) {
      for (const id of ids) {
        for (const known of [target.points, this.records]) {
          if (known.has(id)) known.set(id, { ...known.get(id), on_frontier: on, version: ++this.fresh });
        }
      }
    }
    target.list = null;
  }

  /** Stores the results of their trainings (`trained.js`). */
  train(trained) {
    this.trained = trained;
    for (const known of [this.records, ...[...this.targets.values()].map(({ points }) => points)]) {
      for (const [id, record] of known) {
        const found = trained.of(record);
        const same = found?.text === record.trained?.text && found?.href === record.trained?.href;
        if (!same) known.set(id, { ...record, trained: found, version: ++this.fresh });
      }
    }
    for (const target of this.targets.values()) target.list = null;
  }

  /** The points of a target: measured candidates, with the fields of a CandidateView that the charts read. */
  of(targetId) {
    const target = this.#target(targetId);
    target.list ??= [...target.points.values(), ...target.zoomed.filter(({ id }) => !target.points.has(id))];
    return target.list;
  }

  /** The whole record of a candidate, if the page has it. */
  record(id) {
    return this.records.get(id);
  }

  /** Number of measured candidates in each group, of which `of` may have a part; null while all are there. */
  measured(targetId) {
    const { header } = this.#target(targetId);
    return header && header.total > header.rows ? header.measured : null;
  }

  /** What is known of the architectures of a target: {generates, pooled}. */
  traits(targetId) {
    return this.#target(targetId).traits;
  }

  /** Whether so many points were added that they are to be loaded, and thinned, again. */
  isCrowded(targetId) {
    return this.#target(targetId).points.size > MOST;
  }

  #dressed(fields) {
    const record = { ...this.#target(fields.target_id).traits, ...fields, version: ++this.fresh };
    record.trained = this.trained?.of(record);
    return record;
  }

  #target(id) {
    if (!this.targets.has(id)) this.targets.set(id, { points: new Map(), zoomed: [], list: null, header: null, traits: {} });
    return this.targets.get(id);
  }
}

/** Whether it predicts token by token, and so has the files that generate (`core.graph.state.check_pass`). */
function generates(architecture) {
  return architecture?.causal !== false && !isPooled(architecture);
}

/** Whether it has the file that generates with its cache in place (`core.graph.state.check_in_place`). */
function writesInPlace({ positions, source, blocks }) {
  const keeps = ({ kind, attends = "self", window }) => ["attention", "srupp"].includes(kind) && attends === "self" && !window;
  return !source && ["learned", "sinusoidal", "rotary"].includes(positions?.kind ?? "learned") && blocks.some(keeps);
}

const isPooled = (architecture) => ["pooled", "classes"].includes(architecture?.output?.kind);
