// What the page knows of a job's candidates: the points of the target that is shown, which every chart reads, thinned by the
// service, and the whole records of those that are listed, recommended or selected.

import { patiently, Refused } from "../shared/api.js";
import { throttled } from "../shared/dom.js";
import { latency, memory, millions } from "../shared/format.js";
import { familyOf, shapeOf } from "../shared/shape.js";

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

/** Its shape, its parameters, and what was measured of it, in words. */
export function factsOf(candidate) {
  return [
    candidate.shape, `${millions(candidate.decoder_parameters)} ${parametersOf(candidate)}`,
    ...(isMeasured(candidate) ? [latency(candidate.latency_ms, candidate.latency_half_width_ms), memory(candidate.memory_bytes)] : []),
  ];
}

const MOST = 6000; // Points; live ones are added to those that were loaded until there are so many.
const RECORDS = 1000;

export class Candidates {
  constructor() {
    this.records = new Map(); // candidate id → its CandidateView with the traits of its architecture instead of that
    this.traitsOf = new Map(); // target id → {generates, pooled}, of its architectures
    this.fresh = 0;
    this.trained = null;
    this.turn(null);
  }

  /** Turns to another target: the points of the one before are let go. */
  turn(target) {
    if (this.target === target) return;
    Object.assign(this, { target, points: new Map(), zoomed: [], list: null, header: null });
  }

  /** Takes what `loadPoints` gave of a whole target, unless another is shown by now. */
  take({ header, points }) {
    if (header.target_id !== this.target) return;
    Object.assign(this, { header, points: new Map(points.map((point) => [point.id, this.#dressed(point)])), zoomed: [], list: null });
  }

  /** Takes the points in the window that the chart shows, beside those of the whole target; null: it shows all again. */
  zoom(loaded) {
    this.zoomed = (loaded?.points ?? []).map((point) => this.#dressed(point));
    this.list = null;
  }

  /** Takes a CandidateView, or the record of one; returns the record. */
  put(view) {
    const { architecture, ...fields } = view;
    const known = this.records.get(view.id);
    if (architecture) this.traitsOf.set(view.target_id, { generates: generates(architecture), pooled: isPooled(architecture) });
    const { shape, family, inPlace } = architecture
      ? { shape: shapeOf(architecture), family: familyOf(architecture), inPlace: writesInPlace(architecture) } : known ?? {};
    const record = this.#dressed({ ...fields, shape, family, inPlace });
    if (architecture || known) {
      this.records.delete(view.id); // and to the end of those that are kept
      this.records.set(view.id, record);
      if (this.records.size > RECORDS) this.records.delete(this.records.keys().next().value);
    }
    if (view.target_id === this.target && isMeasured(record) && (this.points.has(view.id) || !this.isCrowded)) this.points.set(view.id, record);
    this.list = null;
    return record;
  }

  /** A frontier event: who joined and who left. */
  moveFrontier(joined, left) {
    for (const [ids, on] of [[left, false], [joined, true]]) {
      for (const id of ids) {
        for (const known of [this.points, this.records]) {
          if (known.has(id)) known.set(id, { ...known.get(id), on_frontier: on, version: ++this.fresh });
        }
      }
    }
    this.list = null;
  }

  /** Stores the results of their trainings (`trained.js`). */
  train(trained) {
    this.trained = trained;
    for (const known of [this.records, this.points]) {
      for (const [id, record] of known) {
        const found = trained.of(record);
        const same = found?.text === record.trained?.text && found?.href === record.trained?.href;
        if (!same) known.set(id, { ...record, trained: found, version: ++this.fresh });
      }
    }
    this.list = null;
  }

  /** The points: measured candidates, with the fields of a CandidateView that the charts read. */
  get all() {
    this.list ??= [...this.points.values(), ...this.zoomed.filter(({ id }) => !this.points.has(id))];
    return this.list;
  }

  /** The whole record of a candidate, if the page has it. */
  record(id) {
    return this.records.get(id);
  }

  /** Number of measured candidates in each group, of which `all` may have a part; null while all are there. */
  get measured() {
    return this.header && this.header.total > this.header.rows ? this.header.measured : null;
  }

  /** What is known of the architectures of the target: {generates, pooled}. */
  get traits() {
    return this.traitsOf.get(this.target) ?? {};
  }

  /** Whether so many points were added that they are to be loaded, and thinned, again. */
  get isCrowded() {
    return this.points.size >= MOST;
  }

  #dressed(fields) {
    const record = { ...this.traitsOf.get(fields.target_id), ...fields, version: ++this.fresh };
    record.trained = this.trained?.of(record);
    return record;
  }
}

/** Whether it predicts token by token, and so has the files that generate (`core.model_files.state.check_pass`). */
function generates(architecture) {
  return architecture?.causal !== false && !isPooled(architecture);
}

/** Whether it has the file that generates with its cache in place (`core.model_files.state.check_in_place`). */
function writesInPlace({ positions, source, blocks = [] }) {
  const keeps = ({ kind, attends = "self", window }) => ["attention", "srupp"].includes(kind) && attends === "self" && !window;
  return !source && ["learned", "sinusoidal", "rotary"].includes(positions?.kind ?? "learned") && blocks.some(keeps);
}

const isPooled = (architecture) => ["pooled", "classes"].includes(architecture?.output?.kind);

const PAUSE_MS = 400;
const READ = 100; // candidates that are read at once

/** Candidates that events named, read where they are: an event says what changed, not the figures. */
export class ChangedCandidates {
  /** `onRead(views)` gets the CandidateViews below `path` of the ids that are added, `onLost(error)` hears of breaks. */
  constructor(path, onRead, onLost) {
    Object.assign(this, { path, onRead, onLost, ids: new Set() });
    this.readSoon = throttled(() => this.#read(), () => PAUSE_MS);
  }

  add(id) {
    this.ids.add(id);
    this.readSoon();
  }

  clear() {
    this.ids.clear();
  }

  async #read() {
    const ids = [...this.ids].slice(0, READ);
    if (!ids.length) return;
    ids.forEach((id) => this.ids.delete(id));
    const query = new URLSearchParams([["limit", READ], ...ids.map((id) => ["ids", id])]);
    try {
      this.onRead((await patiently(`${this.path}/candidates?${query}`, this.onLost)).items);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
    }
    if (this.ids.size) this.readSoon();
  }
}
