// The 2-D chart of a target: quality against latency, with peak memory as the area of a point, intervals and limits.

import { colour } from "../shared/dom.js";
import { ends, figure, memoryHalf, spreadOf } from "../shared/format.js";
import { plotSettings } from "../shared/plot.js";

const MB = 1e6;
const [LEAST, MOST] = [5, 20]; // diameters in pixels

export const SETTINGS = plotSettings("flat");
export const HELP = "The line joins the models that no faster one of the frontier beats; the others are on it for their memory. Drag to zoom, double-click to see all again. Click a point to select it; with the keyboard, left and right select along the frontier. Bars are 95 % intervals of the frontier, the baseline and what is at the limit; of more than 50 points those near the pointer have them. Better candidates are further up and further to the left.";

/** Peak memory in bytes → diameter: the area is in proportion, except of the smallest. */
export function sizes(points) {
  const most = Math.max(...points.map((point) => point.memory_bytes), 1);
  return { most, diameter: (bytes) => Math.max(LEAST, MOST * Math.sqrt(bytes / most)) };
}

/** Whether a figure's whole interval is beyond the limit (`core.measurement.statistics.standing`); a figure at the limit is not. */
const isOver = (value, half, limit) => Boolean(limit) && value !== null && Math.log(value / limit) > spreadOf(value, half);

/** Whether it takes more memory than the limit, which has no line here. */
export const isTooLarge = ({ memory_bytes: bytes }, limits) => isOver(bytes, memoryHalf(bytes), limits.memory_mb * MB);

const FAINT = 0.4; // times the opacity of its group

/** Whether it is beyond any of the limits. */
export const isBeyond = (point, limits) => isTooLarge(point, limits)
  || ["latency_ms", "first_token_ms", "token_ms"].some((name) => isOver(point[name], point[name.replace("_ms", "_half_width_ms")], limits[name]));

const STYLES = {
  dominated: { colour: "dominated", symbol: "circle", opacity: 0.45 },
  outside: { colour: "outside", symbol: "square", opacity: 0.6 },
  bound: { colour: "bound", symbol: "square", opacity: 0.9, bars: true },
  baseline: { colour: "baseline", symbol: "diamond", opacity: 1, bars: true, line: true },
  frontier: { colour: "frontier", symbol: "circle", opacity: 0.9, bars: true, line: true },
};

/**
 * Traces for `groups` (name → points, in the order of drawing), then for the marked ones.
 * `view`: {points (of all groups), hasMany, quality, time, limits, recommended, selected (ids), describe (point → text)}.
 */
export function traces(groups, view) {
  const { points } = view;
  const { diameter } = sizes(points);
  const drawn = [...groups].map(([name, found]) => group(name, found, diameter, view));
  const lines = [...groups].filter(([name]) => STYLES[name].line).map(([name, found]) => line(name, found, view));
  const mark = (uid, id, symbol, more) => {
    const marked = points.filter((point) => point.id === id);
    return {
      ...base(uid, marked, view), mode: "markers", hoverinfo: "skip", hovertemplate: null, cliponaxis: false,
      marker: { symbol, size: marked.map((point) => diameter(point.memory_bytes) + 9), color: colour(uid), line: { width: 2.5, color: colour(uid) } },
      ...more,
    };
  };
  const label = { mode: "markers+text", text: "recommended", textposition: `top ${sideOf(points, view)}`, textfont: { size: 13, color: colour("recommended") } };
  return [...lines, ...drawn, mark("recommended", view.recommended, "diamond-open", label), mark("selected", view.selected, "circle-open")];
}

/** Where a label has room: towards the middle. */
function sideOf(points, { time, recommended }) {
  const [times, marked] = [points.map(time.value), points.find((point) => point.id === recommended)];
  const [least, most] = [Math.min(...times), Math.max(...times)];
  const at = (marked && time.value(marked) - least) / (most - least);
  if (at > 0.7) return "left";
  return at < 0.3 ? "right" : "center";
}

function base(uid, points, { quality, time, describe }) {
  return {
    type: "scatter",
    uid,
    x: points.map(time.value),
    y: points.map(quality.value),
    text: points.map(describe),
    customdata: points.map((point) => point.id),
    hovertemplate: "%{text}<extra></extra>",
  };
}

/** The line through a group; that of the frontier leaves out what only its memory keeps there. */
function line(name, found, view) {
  const { quality: { value, lowIsBetter }, time } = view;
  let best = lowIsBetter ? Infinity : -Infinity;
  const points = [...found].sort((a, b) => time.value(a) - time.value(b)).filter((point) => {
    const isBetter = name !== "frontier" || (lowIsBetter ? value(point) < best : value(point) > best);
    if (isBetter) best = value(point);
    return isBetter;
  });
  return { ...base(`${name}-line`, points, view), mode: "lines", hoverinfo: "skip", hovertemplate: null, line: { width: 1.5, color: colour(name) } };
}

function group(name, points, diameter, view) {
  const style = STYLES[name];
  const ink = colour(style.colour);
  return {
    ...base(name, points, view),
    mode: "markers",
    marker: {
      size: points.map((point) => diameter(point.memory_bytes)),
      symbol: points.map((point) => `${style.symbol}${isTooLarge(point, view.limits) ? "-open" : ""}`),
      color: ink,
      opacity: points.map((point) => style.opacity * (isBeyond(point, view.limits) ? FAINT : 1)),
      line: { width: 1, color: points.map((point) => (isTooLarge(point, view.limits) ? ink : colour("card"))) },
    },
    ...(style.bars && !view.hasMany ? bars(points, view, ink) : {}),
  };
}

/** Groups whose points have bars. */
export const BARRED = Object.keys(STYLES).filter((name) => STYLES[name].bars);

/** A point's intervals, [low, high] each; null beyond the limits, where points are faint. */
export function interval(point, { quality, time, limits }) {
  if (isBeyond(point, limits)) return null;
  return { time: ends(time.value(point), time.half(point)), quality: quality.range(point) ?? [quality.value(point), quality.value(point)] };
}

function bars(points, view, ink) {
  const look = { type: "data", symmetric: false, color: `${ink}80`, thickness: 1.2, width: 0 };
  const found = points.map((point) => interval(point, view));
  const away = (name, end) => points.map((point, at) => (found[at] ? Math.abs(found[at][name][end] - view[name].value(point)) : 0));
  return {
    error_x: { array: away("time", 1), arrayminus: away("time", 0), ...look },
    ...(points.some(view.quality.range) ? { error_y: { array: away("quality", 1), arrayminus: away("quality", 0), ...look } } : {}),
  };
}

const LINE = 16; // pixels of the second line of an axis's title
const ROOM = 0.25; // of the extent of the points, for bars that reach beyond them
const WIDE = 10; // Values whose largest is so many times the least are on a logarithmic axis.

/** Its scale, and what it shows of its own: the points, the limit, and as much of their bars as does not press them together. */
export function shown(values, limit = null) {
  const known = [...values, limit].filter((value) => value !== null);
  const [least, most] = [Math.min(...known), Math.max(...known)];
  if (!(most > least)) return {};
  const isLog = least > 0 && most > WIDE * least;
  const room = isLog ? (most / least) ** ROOM : ROOM * (most - least);
  const [clipmin, clipmax] = isLog ? [least / room, most * room] : [least - room, most + room];
  return { type: isLog ? "log" : "linear", autorangeoptions: { clipmin, clipmax, ...(limit === null ? {} : { include: [limit] }) } };
}

export function layout({ quality, time, limits, points }) {
  const [ink, soft, line] = [colour("ink"), colour("soft"), colour("line")];
  const isNarrow = matchMedia("(max-width: 560px)").matches;
  const [large, small] = isNarrow ? [11, 10] : [13, 11];
  const axis = (text) => ({
    title: { text, font: { size: large, color: ink }, standoff: 8 }, tickfont: { size: small, color: soft },
    gridcolor: line, zeroline: false,
  });
  const limit = limits[time.name] ?? null;
  const xaxis = { ...axis(`${time.title} (ms)`), ...shown(points.map(time.value), limit), uirevision: time.name };
  const dash = { width: 1.5, dash: "dash", color: colour("outside") };
  return {
    uirevision: "kept", // What the reader zoomed outlives every redraw.
    showlegend: false,
    hovermode: "closest",
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom", // A finger scrolls the page.
    // Fixed, with room for seven characters at an axis: for margins that it finds itself Plotly draws everything twice.
    margin: { l: (isNarrow ? 56 : 70) + (quality.title.includes("<br>") ? LINE : 0), r: 14, t: 26, b: isNarrow ? 44 : 50 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", color: ink },
    hoverlabel: { align: "left" },
    xaxis,
    // Better is up; another quality has a range of its own.
    yaxis: { ...axis(quality.title), ...shown(points.map(quality.value)), autorange: quality.lowIsBetter ? "reversed" : true, uirevision: quality.name },
    shapes: limit ? [{ type: "line", xref: "x", yref: "paper", x0: limit, x1: limit, y0: 0, y1: 1, line: dash }] : [],
    annotations: limit ? [{
      x: xaxis.type === "log" ? Math.log10(limit) : limit, xref: "x", y: 1, yref: "paper", yanchor: "bottom", text: `at most ${figure(limit)} ms`, showarrow: false,
      font: { size: small, color: colour("outside") },
    }] : [],
  };
}

const TIMES = { token_ms: "each further token", first_token_ms: "first token", latency_ms: "latency" };

/** The time that a chart is drawn by, as `OptionLimits.pace`: the one that `limits` bound, of several that of a further token, else the latency. */
export function timeOf(limits) {
  const name = Object.keys(TIMES).find((each) => limits[each]) ?? "latency_ms";
  return { name, title: TIMES[name], value: (point) => point[name], half: (point) => point[name.replace("_ms", "_half_width_ms")] };
}

/** What a drawn chart shows of its axes: {latency: [least, most], quality: [low, high]}, rising; null: all. */
export function windowOf({ _fullLayout: { xaxis, yaxis } }) {
  if (xaxis.autorange && yaxis.autorange) return null;
  const rising = ({ range, type }) => range.map((end) => (type === "log" ? 10 ** end : end)).sort((a, b) => a - b);
  return { latency: rising(xaxis), quality: rising(yaxis) };
}

/** The frontier's candidate after (1) or before (-1) the selected one by its time; the first where none of them is selected. */
export function neighbour(frontier, selected, step, time) {
  const row = [...frontier].sort((a, b) => time.value(a) - time.value(b));
  const here = row.findIndex((point) => point.id === selected);
  return row[here < 0 ? 0 : Math.min(Math.max(here + step, 0), row.length - 1)];
}
