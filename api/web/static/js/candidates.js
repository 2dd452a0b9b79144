// What the page knows of a job's candidates, by target. Only what it shows is kept of each.

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

export class Candidates {
  constructor() {
    this.targets = new Map(); // target id → Map of candidate id → record
    this.numbers = new Map(); // candidate id → number, for lineage
    this.fresh = 0;
  }

  /** Takes a CandidateView as it came from a list or an event. */
  put(view) {
    const { architecture, ...record } = view;
    record.shape = shapeOf(architecture);
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

  of(targetId) {
    return [...this.#target(targetId).values()];
  }

  #target(id) {
    if (!this.targets.has(id)) this.targets.set(id, new Map());
    return this.targets.get(id);
  }
}

/** "6 layers × 512" for a stack of attention blocks, else the number of blocks. */
function shapeOf(architecture) {
  const blocks = (architecture && architecture.blocks) || [];
  const layers = blocks.filter((block) => block.kind === "attention").length;
  return `${layers || blocks.length} ${layers ? "layers" : "blocks"} × ${architecture ? architecture.d_model : "?"}`;
}
