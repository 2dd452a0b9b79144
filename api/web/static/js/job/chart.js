// The chart of a target's candidates, in 2-D (`flat.js`) or 3-D (`solid.js`): its groups, its legend, and who is selected.

import { byId, debounced, element, setText } from "../shared/dom.js";
import { GROUPS, groupOf, isMeasured, parametersOf } from "./candidates.js";
import * as flat from "./flat.js";
import { generationOf, latency, megabytes, memory, millions, times, whole } from "../shared/format.js";
import { markText } from "../shared/mark.js";
import { MANY, NearBars } from "./near.js";
import { labelledTitle, perplexityWithEnds } from "../shared/perplexity.js";
import { followSize, keepWheelFromUnfocused, plotly } from "../shared/plot.js";
import * as solid from "./solid.js";

const SHOWN = ["dominated", "outside", "bound", "baseline", "frontier"]; // Drawn in this order: the frontier on top.
/** Groups of the chart: also what is out of bounds by its median, but not by its interval or by the limits that are set now. */
export const CHARTED = [...GROUPS, { name: "bound", title: "At or within the limits" }];
const KINDS = { flat, solid };
const ZOOMED_MS = 150; // A zoom at rest for so long is asked about.

export class FrontierChart {
  /** `onPick(id)` hears which candidate was clicked, `onZoom(window)` what the 2-D chart shows (`flat.windowOf`). */
  constructor(node, legend, { onPick, onZoom }) {
    this.node = node;
    this.legend = legend;
    this.onPick = onPick;
    this.onZoom = debounced(() => this.drawn === "flat" && onZoom(this.time.name === "latency_ms" ? flat.windowOf(this.node) : null), ZOOMED_MS);
    this.near = new NearBars(node);
    this.measured = null; // group → number of candidates, where not all are among the points
    this.kind = "flat"; // or "solid"
    this.quality = null; // one of `qualitiesOf`
    this.limits = {};
    this.time = flat.timeOf({});
    this.recommended = null; // id of the candidate that is marked as such
    this.trained = null; // or the ids of the trained models' frontier: these alone, by perplexity
    this.baseline = "Baseline"; // what the legend calls it
    this.held = null; // the pointer that holds the chart
    this.touched = null; // the candidate under it
    this.waiting = null;
    this.withheld = null;
    this.drawing = false;
    this.drawn = null; // the kind that is drawn
    this.lastDrawMs = 0;
    this.isLight = false; // while it is turned in software
    // A redraw while the chart is being turned would let go of it.
    node.addEventListener("pointerdown", (event) => (this.held = event));
    node.addEventListener("pointermove", (event) => this.#beTurned(event), { capture: true });
    addEventListener("pointerup", (event) => this.#letGo(event));
    addEventListener("pointercancel", () => this.#letGo(null));
    node.addEventListener("keydown", (event) => this.#hearKey(event));
    keepWheelFromUnfocused(node);
    followSize(node);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.last && this.draw(...this.last));
  }

  /** Who draws WebGL, looked up when 3-D is first wanted: without a graphics card that takes a fifth of a second. */
  get renderer() {
    this.foundRenderer ??= { name: rendererOfWebGl() };
    return this.foundRenderer.name;
  }

  get hasWebGl() {
    return this.renderer !== null;
  }

  /** Milliseconds to wait between redraws: a chart of many points must not use up the page. */
  get restMs() {
    return Math.max(250, 4 * this.lastDrawMs);
  }

  /** Shows this text instead of points, until it is null: what is drawn belongs to something else. */
  withhold(text) {
    if (this.message || this.withheld === text) return;
    this.withheld = text;
    if (!this.drawing) this.#empty();
  }

  async draw(candidates, selectedId) {
    this.last = [candidates, selectedId];
    if (this.withheld || !this.quality) return;
    const points = candidates.filter((candidate) => isMeasured(candidate) && this.quality.value(candidate) !== null);
    const groups = this.#byGroup(points);
    this.#explain(groups, points);
    if (this.message) return;
    if (this.held || this.drawing) {
      this.waiting = this.last;
      return;
    }
    this.drawing = true;
    const loaded = await plotly();
    if (!loaded) return this.#say("The chart could not be loaded. The table below has every number.");
    const began = performance.now();
    if (this.drawn !== this.kind) this.#empty();
    const first = !this.node.data;
    try {
      await this.#plot(loaded, groups, selectedId);
    } finally {
      this.drawing = false;
    }
    if (this.withheld) return this.#empty();
    this.lastDrawMs = performance.now() - began;
    if (first) this.#watchPoints();
    this.#goOn();
  }

  async #plot(loaded, groups, selectedId) {
    const kind = KINDS[this.kind];
    const { quality, time, limits, recommended } = this;
    const points = [...groups.values()].flat();
    const view = { quality, time, limits, recommended, selected: selectedId, describe: hoverOnce, points, hasMany: points.length > MANY };
    if (this.kind === "solid") this.camera = this.node.layout?.scene?.camera ?? this.camera ?? solid.firstCamera(this.node);
    groups.get("baseline").sort((a, b) => quality.value(a) - quality.value(b));
    this.drawn = this.kind;
    this.node.setAttribute("aria-label", `Latency, peak memory and ${quality.label} of the candidates. The table below has every number.`);
    this.node.setAttribute("aria-roledescription", this.kind === "solid" ? "three-dimensional chart" : "chart");
    setText(byId("chart-help"), kind.HELP);
    this.near.clear();
    await loaded.react(this.node, kind.traces(groups, view), kind.layout(view, this.camera), kind.SETTINGS);
    if (this.kind === "flat" && view.hasMany) this.near.show([...groups].filter(([name]) => flat.BARRED.includes(name)), view);
  }

  #empty() {
    if (this.node.layout?.scene) this.camera = this.node.layout.scene.camera;
    if (this.node.data) window.Plotly.purge(this.node);
    this.node.replaceChildren(...(this.withheld ? [element("p", { class: "empty", role: "status", text: this.withheld })] : []));
    if (this.withheld) this.legend.replaceChildren();
    this.drawn = null;
    this.touched = null;
  }

  #watchPoints() {
    const take = ({ points }) => (this.touched = points[0].customdata);
    if (this.kind === "flat") this.node.on("plotly_relayout", () => this.near.draw());
    if (this.kind === "flat") this.node.on("plotly_relayout", this.onZoom);
    this.node.on("plotly_hover", take);
    this.node.on("plotly_unhover", () => (this.touched = null));
    this.node.on("plotly_click", this.kind === "solid" ? take : ({ points }) => this.onPick(points[0].customdata));
  }

  #beTurned(event) {
    const isTurned = this.held && this.drawn === "solid" && !isNear(event, this.held);
    if (isTurned && !this.isLight && SOFTWARE.test(this.renderer)) solid.lighten(this.node, (this.isLight = true));
  }

  /** In 3-D Plotly's own click comes with any press on a point, also one that turns the chart; a still one picks. */
  #letGo(event) {
    const began = this.held;
    this.held = null;
    if (this.isLight) solid.lighten(this.node, (this.isLight = false));
    const still = began && event && isNear(event, began);
    if (still && this.kind === "solid") setTimeout(() => this.touched && this.onPick(this.touched), 100); // a finger is noticed a frame later
    this.#goOn();
  }

  #goOn() {
    const waiting = this.waiting;
    if (!waiting || this.held || this.drawing) return;
    this.waiting = null;
    this.draw(...waiting);
  }

  #groupOf(candidate) {
    const group = groupOf(candidate);
    if (group === "outside") return flat.isBeyond(candidate, this.limits) ? group : "bound";
    if (!this.trained || (group !== "frontier" && group !== "dominated")) return group; // neither joins any frontier
    return this.trained.has(candidate.id) ? "frontier" : "dominated";
  }

  /** Name → points, in the order in which they are drawn. */
  #byGroup(points) {
    const groups = new Map(SHOWN.map((name) => [name, []]));
    for (const point of points) groups.get(this.#groupOf(point))?.push(point);
    return groups;
  }

  #explain(groups, points) {
    const item = (swatch, text) => element("li", {}, element("span", { class: `swatch ${swatch}` }), text);
    const items = CHARTED.filter(({ name }) => groups.get(name)?.length || name === "frontier");
    this.legend.replaceChildren(
      ...items.map(({ name, title }) => item(name, `${name === "baseline" ? this.baseline : title} (${this.#count(name, groups.get(name))})`)),
      ...(points.some(({ id }) => id === this.recommended) ? [item("recommended", "Recommended")] : []),
      ...(this.kind === "flat" ? this.#explainSizes(points, item) : []),
    );
  }

  /** How many a group has, and how many of them are drawn. */
  #count(name, { length }) {
    const all = this.trained ? length : this.measured?.[name] ?? length;
    return all > length ? `${whole(all)}, ${whole(length)} drawn` : whole(length);
  }

  /** What the sizes stand for, and the hollow ones. */
  #explainSizes(points, item) {
    if (points.length === 0) return [];
    const { most, diameter } = flat.sizes(points);
    const circles = [most / 4, most].flatMap((bytes) => {
      const circle = element("span", { class: "swatch size" });
      circle.style.width = circle.style.height = `${diameter(bytes)}px`;
      return [circle, `${megabytes(bytes)} `];
    });
    const [hollow, beyond] = [flat.isTooLarge, flat.isBeyond].map((test) => points.filter((point) => test(point, this.limits)).length);
    return [
      element("li", {}, "Peak memory: ", ...circles), ...(hollow ? [item("hollow", "Above the memory limit")] : []),
      ...(beyond ? [item("beyond", `Faint: outside the limits (${whole(beyond)})`)] : []),
    ];
  }

  #say(message) {
    this.message = message;
    this.node.replaceChildren(element("p", { class: "empty", text: message }));
    this.node.setAttribute("role", "note");
    byId("chart-help").hidden = true;
  }

  #hearKey(event) {
    if (event.target !== this.node || !this.node.data || event.ctrlKey || event.metaKey || event.altKey) return;
    if (this.drawn === "flat") return this.#step(event);
    const eye = solid.turned(this.node.layout.scene.camera.eye, event.key, this.node);
    if (!eye) return;
    event.preventDefault();
    window.Plotly.relayout(this.node, { "scene.camera.eye": eye });
  }

  #step(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const [candidates, selected] = this.last;
    const frontier = candidates.filter((each) => isMeasured(each) && this.quality.value(each) !== null && this.#groupOf(each) === "frontier");
    const next = flat.neighbour(frontier, selected, step, this.time);
    if (next) this.onPick(next.id);
  }
}

const SOFTWARE = /swiftshader|llvmpipe|softpipe|software|basic render/i;

/** Who draws WebGL, as the browser names it; null without WebGL. */
function rendererOfWebGl() {
  const canvas = document.createElement("canvas");
  const gl = canvas.getContext("webgl2") || canvas.getContext("webgl");
  const unmasked = gl?.getExtension("WEBGL_debug_renderer_info")?.UNMASKED_RENDERER_WEBGL;
  return gl && String(gl.getParameter(unmasked ?? gl.RENDERER));
}

const isNear = (a, b) => Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY) < 4;

const hovers = new WeakMap(); // Records are replaced when they change, so a text holds as long as its record.

function hoverOnce(point) {
  if (!hovers.has(point)) hovers.set(point, hover(point));
  return hovers.get(point);
}

const plain = (text) => String(text).replace(/[<>&%{}]/g, "");

function hover(point) {
  const { versus_baseline: versus, predicted } = point;
  return [
    [`<b>${point.model ? plain(point.model) : `#${whole(point.number)}`}</b>`, [point.operator, point.shape].filter(Boolean).map(plain).join(", ")].join(" "),
    `${latency(point.latency_ms, point.latency_half_width_ms)}${markText(point)}`,
    ...generationOf(point),
    memory(point.memory_bytes),
    `${millions(point.decoder_parameters)} ${parametersOf(point)}`,
    ...(predicted?.perplexity ? [plain(`${labelledTitle("predicted perplexity", [predicted])}: ${perplexityWithEnds(predicted)}`)] : []),
    ...(point.trained?.value ? [plain(`${point.trained.title}: ${point.trained.text}`)] : []),
    ...(versus ? [`speed-up over the baseline ${times(versus.speedup)}`, `memory ratio ${times(versus.memory_ratio)}`] : []),
  ].join("<br>");
}
