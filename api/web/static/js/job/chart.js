// The rotatable 3-D scatter of one target: latency, peak memory, and the proxy or the perplexity of those that were trained.

import { byId, colour, element } from "../shared/dom.js";
import { GROUPS, groupOf, isMeasured, parametersOf, perplexityAxis, qualityAxis } from "./candidates.js";
import { latency, mebibytes, millions, times, whole } from "../shared/format.js";

const SHOWN = ["dominated", "outside", "baseline", "frontier"]; // Drawn in this order: the frontier on top.
// From the side: the three objectives rise together, so along their common diagonal the points would hide each other.
const EYE = { x: 1.2, y: -1.4, z: 0.5 };
const TURN = Math.PI / 24;

export class FrontierChart {
  /** `onPick(id)` hears which candidate was clicked. */
  constructor(node, legend, onPick) {
    this.node = node;
    this.legend = legend;
    this.onPick = onPick;
    this.held = null; // the pointer that holds the chart
    this.touched = null; // the candidate under it
    this.waiting = null;
    this.drawing = false;
    this.lastDrawMs = 0;
    this.proxy = "decoder_parameters";
    this.recommended = null; // id of the candidate that is marked as such
    this.trained = null; // or {perplexities: Map of id → value, frontier: Set of ids}: these alone, by perplexity
    if (!hasWebGl()) this.#say("This browser has no WebGL, which the chart needs. The table below has every number.");
    else if (!window.Plotly) this.#say("The chart could not be loaded. The table below has every number.");
    // A redraw while the chart is being turned would let go of it.
    node.addEventListener("pointerdown", (event) => (this.held = event));
    addEventListener("pointerup", (event) => this.#letGo(event));
    addEventListener("pointercancel", () => this.#letGo(null));
    node.addEventListener("keydown", (event) => this.#turnByKey(event));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.last && this.draw(...this.last));
  }

  get available() {
    return !this.message;
  }

  /** Milliseconds to wait between redraws: a chart of many points must not use up the page. */
  get restMs() {
    return Math.max(250, 4 * this.lastDrawMs);
  }

  async draw(candidates, selectedId) {
    this.last = [candidates, selectedId];
    const points = candidates.filter((candidate) => isMeasured(candidate) && this.#isShown(candidate));
    this.#tell(points);
    if (!this.available) return;
    if (this.held || this.drawing) {
      this.waiting = this.last;
      return;
    }
    this.drawing = true;
    const began = performance.now();
    const first = !this.node.data;
    const camera = this.node.layout?.scene.camera ?? { eye: startEye(this.node), center: { x: 0, y: 0, z: -0.18 } };
    const quality = this.trained ? perplexityAxis(this.trained.perplexities) : qualityAxis(this.proxy, candidates[0]);
    this.node.setAttribute("aria-label", `Latency, peak memory and ${quality.name} of the candidates. The table below has every number.`);
    try {
      await window.Plotly.react(this.node, traces(this.#byGroup(points), this.recommended, selectedId, quality), layout(camera, quality), CONFIG);
    } finally {
      this.drawing = false;
    }
    this.lastDrawMs = performance.now() - began;
    if (first) this.#watchPoints();
    this.#goOn();
  }

  #watchPoints() {
    for (const told of ["plotly_hover", "plotly_click"]) {
      this.node.on(told, ({ points }) => (this.touched = points[0].customdata));
    }
    this.node.on("plotly_unhover", () => (this.touched = null));
  }

  /** Plotly's own click comes with any press on a point, also one that turns the chart; a still one picks. */
  #letGo(event) {
    const began = this.held;
    this.held = null;
    const still = began && event && Math.hypot(event.clientX - began.clientX, event.clientY - began.clientY) < 4;
    if (still) setTimeout(() => this.touched && this.onPick(this.touched), 100); // a finger is noticed a frame later
    this.#goOn();
  }

  #goOn() {
    const waiting = this.waiting;
    if (!waiting || this.held || this.drawing) return;
    this.waiting = null;
    this.draw(...waiting);
  }

  #isShown({ id }) {
    return !this.trained || this.trained.perplexities.has(id);
  }

  #groupOf(candidate) {
    const group = groupOf(candidate);
    if (!this.trained || (group !== "frontier" && group !== "dominated")) return group; // neither joins any frontier
    return this.trained.frontier.has(candidate.id) ? "frontier" : "dominated";
  }

  /** Name → points, in the order in which they are drawn. */
  #byGroup(points) {
    const groups = new Map(SHOWN.map((name) => [name, []]));
    for (const point of points) groups.get(this.#groupOf(point))?.push(point);
    return groups;
  }

  #tell(points) {
    const groups = this.#byGroup(points);
    const items = GROUPS.filter(({ name }) => groups.get(name)?.length || name === "frontier");
    this.legend.replaceChildren(
      ...items.map(({ name, title }) =>
        element("li", {}, element("span", { class: `swatch ${name}` }), `${title} (${whole(groups.get(name).length)})`)),
      ...(points.some(({ id }) => id === this.recommended) ? [element("li", {}, element("span", { class: "swatch recommended" }), "Recommended")] : []),
    );
  }

  #say(message) {
    this.message = message;
    this.node.replaceChildren(element("p", { class: "empty", text: message }));
    this.node.setAttribute("role", "note");
    byId("chart-help").hidden = true;
  }

  #turnByKey(event) {
    if (!this.node.data || event.ctrlKey || event.metaKey || event.altKey) return;
    const eye = turned(this.node.layout.scene.camera.eye, event.key, this.node);
    if (!eye) return;
    event.preventDefault();
    window.Plotly.relayout(this.node, { "scene.camera.eye": eye });
  }
}

function hasWebGl() {
  const canvas = document.createElement("canvas");
  return Boolean(canvas.getContext("webgl2") || canvas.getContext("webgl"));
}

/** Where the camera stands at first; as much farther off as the chart is narrower than it is tall, and its words take more of it. */
function startEye({ clientWidth, clientHeight }) {
  const far = Math.max(1, (1.7 * clientHeight) / clientWidth);
  return { x: EYE.x * far, y: EYE.y * far, z: EYE.z * far };
}

/** Where the camera stands after this key, or null if the key does not turn the chart. */
function turned({ x, y, z }, key, node) {
  const distance = Math.hypot(x, y, z);
  let around = Math.atan2(y, x);
  let up = Math.asin(z / distance);
  let away = distance;
  if (key === "ArrowLeft") around -= TURN;
  else if (key === "ArrowRight") around += TURN;
  else if (key === "ArrowUp") up = Math.min(up + TURN, 1.5);
  else if (key === "ArrowDown") up = Math.max(up - TURN, -1.5);
  else if (key === "+" || key === "=") away = Math.max(distance / 1.15, 0.4);
  else if (key === "-" || key === "−") away = Math.min(distance * 1.15, 8);
  else if (key === "0") return startEye(node);
  else return null;
  return { x: away * Math.cos(up) * Math.cos(around), y: away * Math.cos(up) * Math.sin(around), z: away * Math.sin(up) };
}

const CONFIG = {
  displaylogo: false,
  responsive: true,
  showTips: false,
  modeBarButtonsToRemove: ["resetCameraLastSave3d", "hoverClosest3d"],
  toImageButtonOptions: { filename: "edgefront-frontier", scale: 2 },
};

const STYLES = {
  frontier: () => ({ mode: "markers", marker: { size: 6, color: colour("frontier"), line: { width: 1, color: colour("card") } } }),
  dominated: () => ({ mode: "markers", marker: { size: 3, color: colour("dominated"), opacity: 0.45 } }),
  outside: () => ({ mode: "markers", marker: { size: 3.5, symbol: "square", color: colour("outside"), opacity: 0.6 } }),
  baseline: () => ({
    mode: "lines+markers",
    marker: { size: 4.5, symbol: "diamond", color: colour("baseline") },
    line: { width: 3, color: colour("baseline") },
  }),
};

function traces(groups, recommendedId, selectedId, quality) {
  groups.get("baseline").sort((a, b) => quality.value(a) - quality.value(b));
  const drawn = SHOWN.map((name) => trace(name, GROUPS.find((group) => group.name === name).title, groups.get(name), STYLES[name](), quality));
  const mark = (uid, name, id, size, symbol, style) => {
    const marked = [...groups.values()].flat().filter((candidate) => candidate.id === id);
    const marker = { size, symbol, color: colour(uid), line: { width: 3, color: colour(uid) } };
    return { ...trace(uid, name, marked, { mode: "markers", marker, ...style }, quality), hoverinfo: "skip" };
  };
  const label = { mode: "markers+text", text: "recommended", textposition: "top center", textfont: { size: 13, color: colour("recommended") } };
  return [
    ...drawn,
    mark("recommended", "Recommended", recommendedId, 11, "diamond-open", label),
    mark("selected", "Selected", selectedId, 11, "circle-open"),
  ];
}

function trace(uid, name, points, style, quality) {
  return {
    type: "scatter3d",
    uid,
    name,
    x: points.map((point) => point.latency_ms),
    y: points.map((point) => point.memory_bytes / 2 ** 20),
    z: points.map(quality.value),
    text: points.map(hoverOnce),
    customdata: points.map((point) => point.id),
    hovertemplate: "%{text}<extra></extra>",
    ...style,
  };
}

const hovers = new WeakMap(); // Records are replaced when they change, so a text holds as long as its record.

function hoverOnce(point) {
  if (!hovers.has(point)) hovers.set(point, hover(point));
  return hovers.get(point);
}

const plain = (text) => String(text).replace(/[<>&%{}]/g, "");

function hover(point) {
  const versus = point.versus_baseline;
  return [
    `<b>#${whole(point.number)}</b> ${plain(point.operator)}, ${plain(point.shape)}`,
    latency(point.latency_ms, point.latency_half_width_ms),
    mebibytes(point.memory_bytes),
    `${millions(point.decoder_parameters)} ${parametersOf(point)}`,
    ...(point.trained?.value ? [plain(point.trained.text.endsWith("bpc") ? point.trained.text : `perplexity ${point.trained.text}`)] : []),
    ...(versus ? [`speed-up over the baseline ${times(versus.speedup)}`, `memory ratio ${times(versus.memory_ratio)}`] : []),
  ].join("<br>");
}

function layout(camera, quality) {
  const [ink, soft, line] = [colour("ink"), colour("soft"), colour("line")];
  const [large, small] = matchMedia("(max-width: 560px)").matches ? [11, 10] : [13, 11];
  const axis = (text, isReversed = false) => ({
    autorange: isReversed ? "reversed" : true,
    title: { text, font: { size: large, color: ink } },
    tickfont: { size: small, color: soft },
    gridcolor: line,
    zerolinecolor: line,
    showspikes: false,
    backgroundcolor: "rgba(0,0,0,0)",
  });
  return {
    uirevision: "kept", // What the reader turned, zoomed or chose outlives every redraw.
    showlegend: false,
    margin: { l: 0, r: 0, t: 0, b: 0 },
    paper_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", color: ink },
    hoverlabel: { align: "left" },
    scene: {
      aspectmode: "cube",
      camera,
      xaxis: axis("latency (ms)"),
      yaxis: axis("peak memory (MiB)"),
      zaxis: axis(quality.title, quality.lowIsBetter), // better is up
    },
  };
}
