// Candidates that events named, read where they are: an event says what changed, not the figures.

import { patiently, Refused } from "../shared/api.js";
import { throttled } from "../shared/dom.js";

const PAUSE_MS = 400;
const MOST = 100; // candidates that are read at once

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
    const ids = [...this.ids].slice(0, MOST);
    if (!ids.length) return;
    ids.forEach((id) => this.ids.delete(id));
    const query = new URLSearchParams([["limit", MOST], ...ids.map((id) => ["ids", id])]);
    try {
      this.onRead((await patiently(`${this.path}/candidates?${query}`, this.onLost)).items);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
    }
    if (this.ids.size) this.readSoon();
  }
}
