// Predicted against measured: one chart for latency and one for memory, on both axes the same logarithmic scale.

import { byId, colour, element, setText } from "../shared/dom.js";
import { megabytes, milliseconds, whole } from "../shared/format.js";
import { plotly, plotSettings } from "../shared/plot.js";

const MB = 1e6;
// `value` is a field of a candidate and of its prediction, `low` and `high` are the ends of the latter's interval.
const KINDS = [
  { name: "latency", title: "latency", unit: "ms", scale: 1, value: "latency_ms", low: "latency_low_ms", high: "latency_high_ms", text: milliseconds },
  { name: "memory", title: "peak memory", unit: "MB", scale: MB, value: "memory_bytes", low: "memory_low_bytes", high: "memory_high_bytes", text: megabytes },
];

export class AgreementCharts {
  /** `onPick(id)` hears which candidate was clicked. */
  constructor(onPick) {
    this.onPick = onPick;
    this.view = null;
    this.selected = null; // id of a candidate
    this.lastDrawMs = 0;
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** Milliseconds to wait between redraws. */
  get restMs() {
    return Math.max(500, 4 * this.lastDrawMs);
  }

  /** Takes a JobAgreementView, or null where none is known yet. */
  know(view) {
    this.view = view;
    setText(byId("agreement-sentence"), view?.sentence ?? "");
    byId("agreement-sentence").className = view?.hard_to_predict ? "notice warn" : "hint";
  }

  /** Draws the candidates that were predicted and are measured; without any it hides the section. */
  async draw() {
    const view = this.view;
    const points = view?.points ?? [];
    byId("agreement").hidden = points.length === 0 || !view?.latency;
    if (byId("agreement").hidden || this.drawing) return;
    this.drawing = true;
    const began = performance.now();
    try {
      for (const kind of KINDS) await this.#drawOne(kind, points, view[kind.name]);
    } finally {
      this.drawing = false;
    }
    this.lastDrawMs = performance.now() - began;
    if (this.view !== view) await this.draw();
  }

  async #drawOne(kind, points, view) {
    const node = byId(`agreement-${kind.name}`);
    const missed = new Set(view.missed);
    const [held, outside] = [points.filter(({ id }) => !missed.has(id)), points.filter(({ id }) => missed.has(id))];
    node.setAttribute("aria-label", `Predicted against measured ${kind.title}: ${within(view)}.`);
    const loaded = await plotly();
    if (!loaded) {
      node.replaceChildren(element("p", { class: "empty", text: "The chart could not be loaded. The exports below have every number." }));
      return;
    }
    const first = !node.data;
    await loaded.react(node, traces(kind, held, outside, this.selected), layout(kind, view), SETTINGS);
    if (first) node.on("plotly_click", ({ points: [point] }) => point.customdata && this.onPick(point.customdata));
  }
}

const SETTINGS = plotSettings("flat", "edgefront-predicted-against-measured");

function traces(kind, held, outside, selected) {
  const ends = [...held, ...outside].flatMap((point) => [point[kind.value], point.predicted[kind.low], point.predicted[kind.high]]).map((value) => value / kind.scale);
  const [least, most] = [0.9 * Math.min(...ends), 1.1 * Math.max(...ends)];
  const ring = { size: 17, symbol: "circle-open", color: colour("selected"), line: { width: 2.5, color: colour("selected") } };
  return [
    { type: "scatter", uid: "equal", mode: "lines", x: [least, most], y: [least, most], line: { width: 1, dash: "dot", color: colour("soft") }, hoverinfo: "skip" },
    trace(kind, "held", held, { size: 7, color: colour("frontier") }),
    trace(kind, "outside", outside, { size: 9, symbol: "square", color: colour("outside") }),
    {
      ...trace(kind, "selected", [...held, ...outside].filter(({ id }) => id === selected), ring),
      hoverinfo: "skip", hovertemplate: null, error_y: { visible: false },
    },
  ];
}

function trace(kind, uid, points, marker) {
  const away = (end) => points.map(({ predicted }) => Math.abs(predicted[end] - predicted[kind.value]) / kind.scale);
  return {
    type: "scatter",
    uid,
    mode: "markers",
    x: points.map((point) => point[kind.value] / kind.scale),
    y: points.map(({ predicted }) => predicted[kind.value] / kind.scale),
    error_y: { type: "data", symmetric: false, array: away(kind.high), arrayminus: away(kind.low), color: marker.color, thickness: 1.2, width: 3 },
    marker,
    customdata: points.map(({ id }) => id),
    text: points.map((point) => hover(kind, point)),
    hovertemplate: "%{text}<extra></extra>",
  };
}

function hover({ value, low, high, text }, point) {
  const { predicted } = point;
  return `<b>#${whole(point.number)}</b><br>predicted ${text(predicted[value])} (${text(predicted[low])} to ${text(predicted[high])})<br>measured ${text(point[value])}`;
}

const within = ({ held, measured }) => `${whole(held)} of ${whole(measured)} within the interval`;

function layout({ title, unit }, view) {
  const [ink, soft, line] = [colour("ink"), colour("soft"), colour("line")];
  const axis = (text) => ({
    type: "log", title: { text: `${text} (${unit})`, font: { size: 13, color: ink }, standoff: 8 }, tickfont: { size: 11, color: soft },
    gridcolor: line, zeroline: false, automargin: true, minorloglabels: "none", nticks: 8, tickformat: "~g",
  });
  return {
    uirevision: "kept", // What the reader zoomed outlives every redraw.
    title: { text: `${title}: ${within(view)}`, font: { size: 14, color: ink }, x: 0.02, xanchor: "left" },
    showlegend: false,
    margin: { l: 8, r: 12, t: 40, b: 8 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", color: ink },
    hoverlabel: { align: "left" },
    xaxis: axis(`measured ${title}`),
    yaxis: axis("predicted"),
  };
}
