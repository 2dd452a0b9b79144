// The history of a device's anchor, with the conditions that it was measured in.

import { byId, element, svg } from "../shared/dom.js";
import { milliseconds, MISSING, moment } from "../shared/format.js";

const [WIDTH, HEIGHT, EDGE] = [720, 120, 8];
const SERIES = [
  { name: "latency_ms", title: "Latency", unit: "ms" },
  { name: "clock_mhz", title: "Clock", unit: "MHz" },
  { name: "load_1m", title: "Load", unit: "" },
  { name: "temperature_c", title: "Temperature", unit: "°C" },
];

/** One line over time, from zero to its most; nothing where the device does not report it. */
function line({ name, title, unit }, points) {
  const known = points.filter((point) => point[name] !== null);
  if (known.length < 2) return [];
  const times = known.map((point) => Date.parse(point.measured_at));
  const [first, span, most] = [times[0], times.at(-1) - times[0] || 1, Math.max(...known.map((point) => point[name])) || 1];
  const places = known.map((point, index) => [
    EDGE + ((WIDTH - 2 * EDGE) * (times[index] - first)) / span,
    HEIGHT - EDGE - ((HEIGHT - 2 * EDGE) * point[name]) / most,
  ]);
  const marked = known.flatMap(({ mark, measured_at: at }, index) => (mark ? [{ place: places[index], says: `${moment(at)}: ${mark}` }] : []));
  const text = `${title} from 0 to ${Number(most.toPrecision(3))} ${unit}`.trim();
  return [element("figure", { class: "anchor-line" },
    element("figcaption", { text }),
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${text}, ${known.length} measurements` },
      svg("polyline", { points: places.map((place) => place.map((value) => value.toFixed(1)).join(",")).join(" "), fill: "none", stroke: "currentColor", "stroke-width": "2" }),
      ...marked.map(({ place: [x, y], says }) => svg("circle", { class: "marked", cx: x.toFixed(1), cy: y.toFixed(1), r: 5 }, svg("title", {}, says)))),
    element("p", { class: "ends" }, ...[known[0], known.at(-1)].map((point) => element("span", { text: moment(point.measured_at) }))))];
}

function row(point) {
  const cell = (value) => element("td", { class: "number", text: value === null ? MISSING : String(Number(value.toPrecision(4))) });
  return element("tr", {},
    element("td", { class: "date", text: moment(point.measured_at) }),
    element("td", { text: point.provider }),
    element("td", { class: "number", text: milliseconds(point.latency_ms) }),
    cell(point.clock_mhz), cell(point.load_1m), cell(point.temperature_c),
    element("td", { class: "wrap", text: point.mark ?? "" }));
}

/** A line of latencies for each provider, and those of the conditions. */
function drawings(points) {
  const [latency, ...conditions] = SERIES;
  const providers = [...new Set(points.map(({ provider }) => provider))].sort();
  const titled = (provider) => (providers.length > 1 ? { ...latency, title: `Latency on ${provider}` } : latency);
  return [
    ...providers.flatMap((provider) => line(titled(provider), points.filter((point) => point.provider === provider))),
    ...conditions.flatMap((series) => line(series, points)),
  ];
}

export function showAnchor({ points }) {
  byId("drawing").replaceChildren(...drawings(points));
  byId("points").tBodies[0].replaceChildren(...[...points].reverse().map(row));
  byId("history").hidden = points.length === 0;
  byId("marked-help").hidden = !points.some(({ mark }) => mark);
  byId("none").hidden = points.length > 0;
}
