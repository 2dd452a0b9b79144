// The events of a job or a training over SSE, and the badge in a page's head that shows whether they come.

import { byId, setText } from "./dom.js";
import { withRoot } from "./root.js";

const OF_JOBS = ["job_state", "target_state", "generation", "candidate", "frontier", "launch"];
const OF_TRAININGS = ["state", "metric", "rewound", "checkpoint", "note", "evaluation"];
const KINDS = ["message", ...OF_JOBS, ...OF_TRAININGS];
const LONGEST_WAIT_MS = 15000;

export function setLive(state, text) {
  byId("live").className = `live ${{ live: "on", lost: "off" }[state] ?? ""}`;
  setText(byId("live"), text);
}

/** The events below `path` behind `after`: `hear` gets each, and `refresh` is called whenever they come (again). */
export function followLive(path, after, hear, refresh) {
  const stream = new EventStream((number) => `${path}/events?after=${number}`, after, hear, (state) => {
    if (state === "live") setLive("live", "live");
    else if (state === "lost") setLive("lost", "connection lost; reconnecting");
    else setLive("", "");
    if (state === "live") refresh();
  });
  stream.open();
  return stream;
}

/** Events, each once and in order: it reconnects by itself, from the last one that it saw. */
export class EventStream {
  /**
   * `address(after)` gives the path of the events after that number. `onEvent(event)` hears each event once, in
   * order. `onState(state)` hears "live", "lost" (trying again) or "closed".
   */
  constructor(address, after, onEvent, onState) {
    this.address = address;
    this.after = after;
    this.onEvent = onEvent;
    this.onState = onState;
    this.wait = 500;
    this.ended = false;
    // A browser has few connections to a host: a page that nobody looks at gives its own back.
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#drop() : this.open()));
    addEventListener("online", () => this.open());
    addEventListener("pagehide", () => this.#drop());
    addEventListener("pageshow", (shown) => shown.persisted && this.open());
  }

  open() {
    if (this.ended || this.source || document.hidden) return;
    clearTimeout(this.timer);
    const source = new EventSource(withRoot(this.address(this.after)));
    this.source = source;
    source.addEventListener("open", () => {
      this.wait = 500;
      this.onState("live");
    });
    source.addEventListener("error", () => {
      if (this.source !== source) return;
      // The browser's own retry would stop for good at the first answer that is no stream (a proxy's 502).
      this.#drop();
      this.onState("lost");
      this.timer = setTimeout(() => this.open(), this.wait * (0.5 + Math.random()));
      this.wait = Math.min(this.wait * 2, LONGEST_WAIT_MS);
    });
    for (const kind of KINDS) source.addEventListener(kind, (message) => this.#hear(message));
  }

  close() {
    this.ended = true;
    this.#drop();
    this.onState("closed");
  }

  #hear(message) {
    const event = JSON.parse(message.data);
    if (event.number <= this.after) return;
    this.after = event.number;
    this.onEvent(event);
  }

  #drop() {
    clearTimeout(this.timer);
    if (this.source) this.source.close();
    this.source = null;
  }
}
