// The frontiers of the compared targets in one chart: quality against latency, each architecture joined over the targets.

import { byId, colour, element } from "../shared/dom.js";
import { ends, latency, megabytes, millions } from "../shared/format.js";
import { escaped, plotly, plotSettings } from "../shared/plot.js";
import { axisTitle } from "../shared/perplexity.js";
import { shown } from "../job/flat.js";
import { shapeOf } from "../shared/shape.js";

const STYLES = ["frontier", "baseline", "recommended", "info", "good", "bad", "warn", "dominated"];
const SYMBOLS = ["circle", "diamond", "square", "triangle-up", "cross", "star", "pentagon", "x"];
const SETTINGS = plotSettings("flat");

/** The look of the target at this place: its colour's name, and the symbol in Plotly and in words. */
export const styleOf = (index) => ({ ink: STYLES[index % STYLES.length], symbol: SYMBOLS[(index + Math.floor(index / STYLES.length)) % SYMBOLS.length] });

/** What stands for quality: predicted perplexity where every architecture has one by the same law for the same training, else decoder parameters. */
export function qualityOf({ architectures }) {
  const laws = new Set(architectures.map(({ law, perplexity, train_tokens: tokens }) => (perplexity === null ? null : `${law} ${tokens}`)));
  if (laws.size === 1 && !laws.has(null)) return { title: axisTitle(architectures), value: (one) => one.perplexity, lowIsBetter: true };
  return { title: "decoder parameters (M)", value: (one) => one.decoder_parameters / 1e6, lowIsBetter: false };
}

/** From a latency to an end of its interval, ms. */
const away = (end) => ({ latency_ms: ms, latency_half_width_ms: half }) => Math.abs(ends(ms, half)[end] - ms);

function trace(view, index, quality) {
  const { ink, symbol } = styleOf(index);
  const points = view.architectures.filter(({ entries }) => entries[index]);
  const at = points.map(({ entries }) => entries[index]);
  return {
    type: "scatter", mode: "markers", uid: view.targets[index].target_id,
    x: at.map(({ latency_ms: ms }) => ms), y: points.map(quality.value), customdata: points.map(({ digest }) => digest),
    text: points.map((one, place) => [
      `<b>${index + 1}. ${escaped(view.targets[index].target)}</b>`, escaped(one.model) || shapeOf(one.architecture), `${latency(at[place].latency_ms, at[place].latency_half_width_ms)}, ${megabytes(at[place].memory_bytes)}`,
      `${millions(one.decoder_parameters)} decoder parameters${at[place].on_frontier ? ", on the frontier" : at[place].predicted ? ", predicted" : ""}`].join("<br>")),
    hovertemplate: "%{text}<extra></extra>",
    error_x: { type: "data", symmetric: false, array: at.map(away(1)), arrayminus: at.map(away(0)), color: `${colour(ink)}80`, thickness: 1.2, width: 0 },
    marker: { size: 10, opacity: at.map(({ predicted }) => (predicted ? 0.45 : 1)), color: colour(ink), symbol: at.map(({ on_frontier: on }) => `${symbol}${on ? "" : "-open"}`), line: { width: 1.2, color: colour(ink) } },
  };
}

/** Lines that join what is one architecture. */
function joints(view, quality) {
  const [x, y] = [[], []];
  for (const one of view.architectures) {
    const times = one.entries.filter(Boolean).map(({ latency_ms: ms }) => ms).sort((a, b) => a - b);
    if (times.length < 2) continue;
    x.push(...times, null);
    y.push(...times.map(() => quality.value(one)), null);
  }
  return { type: "scatter", mode: "lines", uid: "joints", x, y, hoverinfo: "skip", line: { width: 1, color: colour("line") } };
}

function marked(view, digest, quality) {
  const one = view.architectures.find((each) => each.digest === digest);
  const times = one ? one.entries.filter(Boolean).map(({ latency_ms: ms }) => ms) : [];
  return {
    type: "scatter", mode: "markers", uid: "marked", x: times, y: times.map(() => quality.value(one)), hoverinfo: "skip",
    marker: { symbol: "circle-open", size: 18, line: { width: 2.5, color: colour("selected") }, color: colour("selected") },
  };
}

function layout(quality, latencies) {
  const [ink, soft, line] = [colour("ink"), colour("soft"), colour("line")];
  const axis = (text) => ({ title: { text, font: { size: 13, color: ink }, standoff: 8 }, tickfont: { size: 11, color: soft }, gridcolor: line, zeroline: false, automargin: true });
  return {
    uirevision: "kept", showlegend: false, hovermode: "closest", dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    margin: { l: 8, r: 14, t: 10, b: 8 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hoverlabel: { align: "left" },
    font: { family: "system-ui, sans-serif", color: ink },
    xaxis: { ...axis("latency (ms)"), ...shown(latencies) },
    yaxis: { ...axis(quality.title), autorange: quality.lowIsBetter ? "reversed" : true },
  };
}

/** Draws a ComparisonView; `digest` is that of the marked architecture, if there is one; `onPick(digest)` hears a click. */
export async function draw(view, digest, onPick) {
  const quality = qualityOf(view);
  const node = byId("chart");
  const loaded = await plotly();
  if (!loaded) return node.replaceChildren(element("p", { class: "empty", text: "The chart could not be loaded. The table below has every number." }));
  await loaded.react(node, [joints(view, quality), ...view.targets.map((_, index) => trace(view, index, quality)), marked(view, digest, quality)], layout(quality, view.architectures.flatMap(({ entries }) => entries.filter(Boolean).map(({ latency_ms: ms }) => ms))), SETTINGS);
  node.removeAllListeners("plotly_click");
  node.on("plotly_click", ({ points: [point] }) => point.customdata && onPick(point.customdata));
  byId("legend").replaceChildren(...view.targets.map(({ target, job_name: job }, index) => element("li", {},
    element("span", { class: `swatch target ${styleOf(index).ink}` }), `${index + 1}. ${target} (${job}), ${styleOf(index).symbol.replace("-up", "")}`)));
}
