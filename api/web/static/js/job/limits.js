// The limits of a recommendation: a slider and a number for each, and the page's address that holds them.

import { byId, setText } from "../shared/dom.js";

const MB = 1e6;
const NAMES = { total: "Whole generation at most", first_token: "First token after at most (its latency)", token: "Each further token at most (its latency)" };
const STEPS = 200; // of a slider; equal steps are equal factors
const LIMITS = [
  { name: "latency_ms", parameter: "max_latency_ms", id: "latency", unit: "ms", of: (candidate) => candidate.latency_ms },
  { name: "memory_mb", parameter: "max_memory_mb", id: "memory", unit: "MB", of: (candidate) => candidate.memory_bytes / MB },
  { name: "first_token_ms", parameter: "max_first_token_ms", id: "first-token", unit: "ms", of: (candidate) => candidate.first_token_ms, latency: "first_token" },
  { name: "token_ms", parameter: "max_token_ms", id: "token", unit: "ms", of: (candidate) => candidate.token_ms, latency: "token" },
];

export class LimitControls {
  /** `onChange()` hears that the reader asks for other limits. */
  constructor(onChange) {
    this.onChange = onChange;
    this.own = {};
    const query = new URLSearchParams(location.search);
    this.asked = read(query); // name → value; absent: the target's own
    const wrong = LIMITS.find(({ name, parameter }) => query.has(parameter) && !(name in this.asked));
    if (wrong) refuse(wrong);
    this.left = new Map(); // target id → what was asked of it, while another is shown
    this.ranges = new Map(); // name → [least, most] on its slider
    for (const limit of LIMITS) {
      byId(`${limit.id}-slider`).addEventListener("input", (event) => this.#slide(limit, Number(event.target.value)));
      byId(`${limit.id}-limit`).addEventListener("input", (event) => this.#type(limit, event.target));
    }
    byId("limits").addEventListener("submit", (event) => event.preventDefault());
    byId("limits-reset").addEventListener("click", () => this.set({}));
  }

  /** As parameters of the address, of the page and of the recommendation. */
  get parameters() {
    return Object.fromEntries(LIMITS.filter(({ name }) => this.asked[name]).map(({ name, parameter }) => [parameter, this.asked[name]]));
  }

  /** Other limits, by the names of the API; any may be absent. */
  set(asked) {
    this.asked = asked;
    byId("limits-problem").hidden = true;
    this.#show();
    this.onChange();
  }

  /** Turns from one target to another: each keeps what was asked of it. */
  turn(from, to) {
    this.left.set(from, this.asked);
    this.asked = this.left.get(to) ?? {};
    byId("limits-problem").hidden = true;
  }

  /** Takes the target's own limits and mode, and the range of what was measured there. */
  know({ limits, protocol }, measured) {
    this.own = limits;
    const before = Object.keys(this.asked).length;
    for (const { name, of, id, latency } of LIMITS) {
      const has = !latency || protocol.mode === "generate";
      if (!has) delete this.asked[name]; // Of an address: the target measures no such time.
      const isLatency = Boolean(latency) && latency === protocol.latency && !this.own[name] && !this.asked[name]; // Its slider is there already.
      byId(`${id}-limit`).closest(".limit").hidden = !has || isLatency;
      const values = measured.map(of).filter((value) => value !== null);
      if (values.length) this.ranges.set(name, [0.8 * Math.min(...values), Math.max(...values)]);
    }
    this.#nameLatency(protocol);
    this.#show();
    if (Object.keys(this.asked).length < before) this.onChange();
  }

  /** Of a generation the latency is one of several times. */
  #nameLatency({ mode, latency }) {
    const name = mode === "generate" ? NAMES[latency ?? "total"] : "Latency at most";
    setText(document.querySelector("label[for=latency-limit]"), name);
    byId("latency-slider").setAttribute("aria-label", name);
  }

  #slide({ name }, at) {
    const [least, most] = this.ranges.get(name) ?? [1, 2];
    const free = at === STEPS && !this.own[name];
    this.#ask(name, free ? null : rounded(at === STEPS ? most : least * (most / least) ** (at / STEPS)));
  }

  #type({ name, unit }, input) {
    const value = input.valueAsNumber;
    const wrong = input.validity.badInput || (input.value !== "" && !(value > 0 && value <= 1e12));
    input.setAttribute("aria-invalid", wrong);
    if (!wrong) return this.#ask(name, input.value === "" ? null : value);
    refuse({ unit });
  }

  #ask(name, value) {
    const { [name]: _, ...others } = this.asked;
    this.set(value === null ? others : { ...others, [name]: value });
  }

  #show() {
    for (const { name, id, unit } of LIMITS) {
      const value = this.asked[name] ?? this.own[name] ?? null;
      const [slider, input] = [byId(`${id}-slider`), byId(`${id}-limit`)];
      if (input !== document.activeElement) {
        input.value = value ?? "";
        input.setAttribute("aria-invalid", false);
      }
      if (slider !== document.activeElement) slider.value = this.#place(name, value);
      slider.setAttribute("aria-valuetext", value === null ? "no limit" : `${value} ${unit}`);
    }
    setText(byId("limits-reset"), LIMITS.some(({ name }) => this.own[name]) ? "The job's own limits" : "No limits");
    byId("limits-reset").hidden = Object.keys(this.asked).length === 0;
  }

  #place(name, value) {
    const [least, most] = this.ranges.get(name) ?? [1, 2];
    if (value === null || value >= most) return STEPS;
    return Math.max(0, Math.round((STEPS * Math.log(value / least)) / Math.log(most / least)));
  }
}

function refuse({ unit }) {
  setText(byId("limits-problem"), `A limit is a number above 0, in ${unit}.`);
  byId("limits-problem").hidden = false;
}

function read(query) {
  const found = LIMITS.map(({ name, parameter }) => [name, Number(query.get(parameter))]);
  return Object.fromEntries(found.filter(([, value]) => value > 0 && Number.isFinite(value)));
}

/** To three digits, and never below: what is at a slider's end is within. */
function rounded(value) {
  const unit = 10 ** (Math.floor(Math.log10(value)) - 2);
  return Number((Math.ceil(value / unit - 1e-9) * unit).toPrecision(6));
}
