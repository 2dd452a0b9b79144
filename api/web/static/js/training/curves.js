// The curves of one training: losses and learning rate over steps, tokens or time.

import { colour, element } from "../shared/dom.js";
import { figure, whole } from "../shared/format.js";
import { plotly, plotSettings } from "../shared/plot.js";
import { lossText } from "./view.js";

const MOST_POINTS = 4000; // Beyond, a line is drawn through evenly spread ones.

export class Curves {
  constructor(node, { bits = false } = {}) {
    this.node = node;
    this.bits = bits; // Whether a validation is given in bits per character.
    this.lastDrawMs = 0;
    this.drawing = false;
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.last && this.draw(...this.last));
    matchMedia("(max-width: 560px)").addEventListener("change", () => this.last && this.draw(...this.last));
  }

  /** Milliseconds to wait between redraws: a long training must not use up the page. */
  get restMs() {
    return Math.max(300, 4 * this.lastDrawMs);
  }

  /** `metrics` are MetricViews by rising step, `axis` one of step, tokens, seconds; `awaited` says why there are none. */
  async draw(metrics, axis, awaited) {
    this.last = [metrics, axis, awaited];
    if (this.message) return;
    this.node.setAttribute("aria-label", spoken(metrics));
    if (metrics.length === 0) {
      if (this.node.data) window.Plotly.purge(this.node);
      this.node.replaceChildren(element("p", { class: "empty", text: `No data yet. ${awaited}` }));
      return;
    }
    if (!this.node.data) this.node.replaceChildren();
    if (this.drawing) {
      this.waiting = true;
      return;
    }
    this.drawing = true;
    const loaded = await plotly();
    if (!loaded) return this.#say("The chart could not be loaded. The JSON has every number.");
    const began = performance.now();
    try {
      await loaded.react(this.node, traces(metrics, axis, this.bits), layout(metrics, axis), SETTINGS);
    } finally {
      this.drawing = false;
    }
    this.lastDrawMs = performance.now() - began;
    if (!this.waiting) return;
    this.waiting = false;
    await this.draw(...this.last);
  }

  #say(message) {
    this.message = message;
    this.node.replaceChildren(element("p", { class: "empty", text: message }));
    this.node.setAttribute("role", "note");
  }
}

const SETTINGS = plotSettings("flat", "edgefront-training");

/** A text description of the chart. */
function spoken(metrics) {
  const last = (name) => metrics.findLast((each) => Number.isFinite(each[name]));
  const [loss, valid] = [last("loss"), last("valid_loss")];
  if (!loss && !valid) return "No data yet";
  return [
    ...(loss ? [`training loss ${lossText(loss.loss)} at step ${whole(loss.step)}`] : []),
    ...(valid ? [`validation loss ${lossText(valid.valid_loss)} at step ${whole(valid.step)}`] : []),
  ].join(", ");
}

/** The unit that times of this size are read in: its seconds and its name. */
function unitOf(metrics) {
  const longest = metrics.at(-1)?.seconds ?? 0;
  if (longest > 7200) return [3600, "hours"];
  return longest > 180 ? [60, "minutes"] : [1, "seconds"];
}

function thinned(points) {
  if (points.length <= MOST_POINTS) return points;
  const every = (points.length - 1) / (MOST_POINTS - 1);
  return Array.from({ length: MOST_POINTS }, (_, at) => points[Math.round(at * every)]);
}

function traces(metrics, axis, bits) {
  const divisor = axis === "seconds" ? unitOf(metrics)[0] : 1;
  const trace = (uid, name, title, style) => {
    const points = thinned(metrics.filter((each) => Number.isFinite(each[name])));
    return {
      type: "scatter",
      uid,
      name: title,
      x: points.map((each) => each[axis] / divisor),
      y: points.map((each) => each[name]),
      ...style(points),
    };
  };
  return [
    trace("lr", "lr", "learning rate", () => ({
      mode: "lines", yaxis: "y2", line: { width: 1.5, dash: "dot", color: colour("dominated") }, hovertemplate: "%{y:.3~g}",
    })),
    trace("loss", "loss", "training loss", (points) => ({
      mode: points.length > 1 ? "lines" : "markers", line: { width: 1.5, color: colour("frontier") },
      marker: { color: colour("frontier") }, hovertemplate: "%{y:.3f}",
    })),
    trace("valid_loss", "valid_loss", "validation loss", (points) => ({
      mode: "lines+markers", line: { width: 2.5, color: colour("baseline") },
      marker: { size: 7, symbol: "diamond", color: colour("baseline") },
      text: points.map((each) => beside(each, bits)),
      hovertemplate: "%{y:.3f}%{text}",
    })),
  ];
}

function beside(metric, bits) {
  if (bits) return Number.isFinite(metric.valid_bpc) ? `, ${figure(metric.valid_bpc)} bits per character` : "";
  return Number.isFinite(metric.valid_perplexity) ? `, perplexity ${figure(metric.valid_perplexity)}` : "";
}

function layout(metrics, axis) {
  const [ink, soft, line] = [colour("ink"), colour("soft"), colour("line")];
  const narrow = matchMedia("(max-width: 560px)").matches;
  const title = (text) => ({ text, font: { size: narrow ? 11 : 13, color: ink }, standoff: 8 });
  const common = { tickfont: { size: narrow ? 10 : 11, color: soft }, gridcolor: line, zeroline: false, automargin: true, ticks: "outside", ticklen: 5, tickcolor: "rgba(0,0,0,0)" };
  const over = { step: "steps", tokens: "tokens", seconds: unitOf(metrics)[1] }[axis];
  return {
    uirevision: axis, // What the reader zoomed outlives every redraw.
    margin: { l: 8, r: 8, t: 36, b: 8 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", color: ink },
    hovermode: "x unified",
    hoverlabel: { bgcolor: colour("card"), bordercolor: line, font: { color: ink } },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: narrow ? 11 : 12 }, traceorder: "reversed" },
    xaxis: { ...common, title: title(over), rangemode: "tozero" },
    yaxis: { ...common, title: title("loss (nats per token)") },
    yaxis2: { ...common, title: title("learning rate"), overlaying: "y", side: "right", showgrid: false, rangemode: "tozero", tickmode: "auto", nticks: 6, tickformat: "~g" },
  };
}
