// The rotatable 3-D chart of a target: latency, peak memory and quality.

import { colour } from "../shared/dom.js";
import { plotSettings } from "../shared/plot.js";

// From the side: the three objectives rise together, so along their common diagonal the points would hide each other.
const EYE = { x: 1.2, y: -1.4, z: 0.5 };
const TURN = Math.PI / 24;

export const SETTINGS = plotSettings("solid");
export const HELP = "Drag to turn, click a point to select it. Once the chart has the focus, scroll or pinch to zoom; with the keyboard: arrow keys, + and −, 0 to reset the view. Better candidates have lower latency, lower memory and are higher up.";

const TURNING = 200; // Points of a group that are drawn while the chart is turned in software.

const STYLES = {
  frontier: () => ({ mode: "markers", marker: { size: 6, color: colour("frontier"), line: { width: 1, color: colour("card") } } }),
  dominated: () => ({ mode: "markers", marker: { size: 3, color: colour("dominated"), opacity: 0.45 } }),
  bound: () => ({ mode: "markers", marker: { size: 4.5, symbol: "square", color: colour("bound"), opacity: 0.9 } }),
  outside: () => ({ mode: "markers", marker: { size: 3.5, symbol: "square", color: colour("outside"), opacity: 0.6 } }),
  baseline: () => ({
    mode: "lines+markers",
    marker: { size: 4.5, symbol: "diamond", color: colour("baseline") },
    line: { width: 3, color: colour("baseline") },
  }),
};

/** Traces for `groups` (name → points, in the order of drawing), then for the marked ones; `view` as in `flat.js`. */
export function traces(groups, view) {
  const drawn = [...groups].map(([name, points]) => ({ ...base(name, name === "baseline" ? points : mixed(points), view), ...STYLES[name]() }));
  const mark = (uid, id, symbol, more) => {
    const marked = [...groups.values()].flat().filter((point) => point.id === id);
    const marker = { size: 11, symbol, color: colour(uid), line: { width: 3, color: colour(uid) } };
    return { ...base(uid, marked, view), mode: "markers", marker, ...more, hoverinfo: "skip" };
  };
  const label = { mode: "markers+text", text: "recommended", textposition: "top center", textfont: { size: 13, color: colour("recommended") } };
  return [...drawn, mark("recommended", view.recommended, "diamond-open", label), mark("selected", view.selected, "circle-open")];
}

/** In an order of which every beginning is an even part: see `lighten`. */
function mixed(points) {
  const rank = ({ number }) => Math.imul(number + 1, 0x9e3779b1) >>> 0;
  return points.toSorted((a, b) => rank(a) - rank(b));
}

/**
 * While the chart is turned without a graphics card, draws a part of each group in a quarter of the pixels; else all of it.
 * Plotly has no setting for that, and with every frame draws each point a second time to know which one is pointed at.
 */
export function lighten(node, isTurning) {
  const scene = node._fullLayout?.scene?._scene;
  if (!scene?.glplot) return;
  scene.glplot.pixelRatio = SETTINGS.plotGlPixelRatio / (isTurning ? 2 : 1);
  for (const { scatterPlot: plot } of Object.values(scene.traces)) {
    for (const [name, lighter] of Object.entries(LIGHTER)) {
      if (plot && isTurning) plot[name] = lighter;
      else if (plot) delete plot[name];
    }
  }
  scene.glplot.update();
}

/** Instead of a scatter plot's own methods of these names. */
const LIGHTER = {
  draw(camera) { drawPart(this, "draw", camera); },
  drawTransparent(camera) { drawPart(this, "drawTransparent", camera); },
  drawPick() {},
};

function drawPart(plot, name, camera) {
  const { vertexCount, lineWidth, pointCount } = plot;
  if (pointCount > TURNING) Object.assign(plot, { vertexCount: (vertexCount / pointCount) * TURNING, lineWidth: 0 });
  Object.getPrototypeOf(plot)[name].call(plot, camera);
  Object.assign(plot, { vertexCount, lineWidth });
}

function base(uid, points, { quality, describe }) {
  return {
    type: "scatter3d",
    uid,
    x: points.map((point) => point.latency_ms),
    y: points.map((point) => point.memory_bytes / 1e6),
    z: points.map(quality.value),
    text: points.map(describe),
    customdata: points.map((point) => point.id),
    hovertemplate: "%{text}<extra></extra>",
  };
}

export function layout({ quality }, camera) {
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
      yaxis: axis("peak memory (MB)"),
      zaxis: axis(quality.title, quality.lowIsBetter), // better is up
    },
  };
}

/** The camera at first. */
export const firstCamera = (node) => ({ eye: startEye(node), center: { x: 0, y: 0, z: -0.18 } });

/** As much farther off as the chart is narrower than it is tall, and its words take more of it. */
function startEye({ clientWidth, clientHeight }) {
  const far = Math.max(1, (1.7 * clientHeight) / clientWidth);
  return { x: EYE.x * far, y: EYE.y * far, z: EYE.z * far };
}

/** Where the camera stands after this key, or null if the key does not turn the chart. */
export function turned({ x, y, z }, key, node) {
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
