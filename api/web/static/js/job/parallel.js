// Parallel coordinates: an axis for each objective and gene, a line for each candidate, and a brush on each axis.
// Lines are drawn on a canvas, axes and brushes as SVG; Plotly's own does not draw under the page's security policy.

import { isWithin, rounded } from "./brushes.js";
import { colour, element, setText, svg } from "../shared/dom.js";
import { figure, whole } from "../shared/format.js";

const [TOP, BOTTOM, SIDE, LEAST_GAP] = [62, 26, 54, 92]; // pixels
const GRIP = 14; // half of the width in which an axis takes the pointer
const NEAR = 9; // pixels from a line that count as on it
const FEW = 24; // distinct values that the keyboard steps through one by one
const MANY = 100; // lines of a group: more are drawn fainter
const LINES = { faded: ["dominated", 0.12], outside: ["outside", 0.35], dominated: ["dominated", 0.45], frontier: ["frontier", 0.9] };

export class ParallelChart {
  /** `onPick(id)` hears which candidate was clicked, `onBrush(brushes)` that a brush has moved. */
  constructor(node, says, { onPick, onBrush }) {
    Object.assign(this, { node, says, onPick, onBrush, axes: [], rows: [], brushes: new Map(), selected: null, recommended: null, hovered: null });
    this.canvas = element("canvas", { "aria-hidden": true });
    // Drawn by the processor: without a graphics card Chromium would take a hundred times as long for so many lines.
    this.pen = this.canvas.getContext("2d", { willReadFrequently: true });
    this.svg = svg("svg", { role: "group", "aria-label": "Axes with a brush each: left and right move between the ends of brushes, up and down move an end, Delete removes a brush" });
    node.replaceChildren(this.canvas, this.svg);
    this.reach = 0; // which handle the Tab key reaches
    new ResizeObserver(() => this.#layOut()).observe(node);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    this.svg.addEventListener("pointermove", (event) => this.#hover(event));
    this.svg.addEventListener("pointerleave", () => this.#hovers(null));
    this.svg.addEventListener("click", () => this.hovered !== null && this.onPick(this.rows[this.hovered].id));
    this.svg.addEventListener("keydown", (event) => this.#hearKey(event));
    // Not of the SVG itself: Chromium gives one that hears of focus the focus.
    node.addEventListener("focusin", ({ target }) => target.dataset.handle && this.#reachTo(Number(target.dataset.handle)));
  }

  /** `axes`: [{name, title, unit, values, words, lowIsBetter}], `rows`: [{id, number, group}], as many as values. */
  show(axes, rows) {
    this.axes = axes.map((axis) => ({ ...axis, ...spanOf(axis) }));
    this.rows = rows;
    this.hovered = null;
    this.#layOut();
  }

  mark({ selected = this.selected, recommended = this.recommended, brushes = this.brushes }) {
    Object.assign(this, { selected, recommended, brushes });
    this.draw();
  }

  /** Draws with the browser's next frame, once. */
  draw() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.#drawLines();
      this.#placeHandles();
    });
  }

  #layOut() {
    this.width = Math.max(this.node.clientWidth, 2 * SIDE + (this.axes.length - 1) * LEAST_GAP);
    this.height = this.node.clientHeight - (this.width > this.node.clientWidth ? 14 : 0); // the bar that scrolls
    const gap = (this.width - 2 * SIDE) / Math.max(1, this.axes.length - 1);
    this.axes.forEach((axis, at) => (axis.x = SIDE + at * gap));
    const scale = window.devicePixelRatio || 1;
    [this.canvas.width, this.canvas.height] = [this.width * scale, this.height * scale];
    for (const layer of [this.canvas, this.svg]) Object.assign(layer.style, { width: `${this.width}px`, height: `${this.height}px` });
    this.pen.setTransform(scale, 0, 0, scale, 0, 0);
    this.#makeAxes();
    this.draw();
  }

  #y({ low, high, lowIsBetter }, value) {
    const share = (value - low) / (high - low || 1);
    return TOP + (lowIsBetter ? share : 1 - share) * (this.height - TOP - BOTTOM);
  }

  #valueAt(axis, y) {
    const share = Math.min(1, Math.max(0, (y - TOP) / (this.height - TOP - BOTTOM)));
    return axis.low + (axis.lowIsBetter ? share : 1 - share) * (axis.high - axis.low);
  }

  #drawLines() {
    const { pen } = this;
    pen.clearRect(0, 0, this.width, this.height);
    const groups = new Map(Object.keys(LINES).map((name) => [name, []]));
    this.rows.forEach((row, at) => groups.get(isWithin(this.axes, this.brushes, at) ? row.group : "faded").push(at));
    for (const [name, found] of groups) {
      const alpha = LINES[name][1] * Math.min(1, Math.sqrt(MANY / found.length)); // Lines on top of each other add up.
      this.#stroke(pen, found, colour(LINES[name][0]), alpha, name === "frontier" ? 1.6 : 1);
    }
    const at = (id) => this.rows.flatMap((row, each) => (row.id === id ? [each] : []));
    this.#stroke(pen, at(this.recommended), colour("recommended"), 1, 2.5);
    this.#stroke(pen, at(this.selected), colour("selected"), 1, 2.5);
    if (this.hovered !== null) this.#stroke(pen, [this.hovered], colour("selected"), 0.8, 1.5);
  }

  #stroke(pen, found, ink, alpha, width) {
    Object.assign(pen, { strokeStyle: ink, globalAlpha: alpha, lineWidth: width, lineJoin: "round" });
    pen.beginPath();
    for (const at of found) {
      let broken = true;
      for (const axis of this.axes) {
        const value = axis.values[at];
        if (value !== null) pen[broken ? "moveTo" : "lineTo"](axis.x, this.#y(axis, value));
        broken = value === null;
      }
    }
    pen.stroke();
  }

  #makeAxes() {
    const focused = document.activeElement?.dataset?.handle;
    this.svg.replaceChildren(...this.axes.flatMap((axis, at) => this.#makeAxis(axis, at)));
    this.handles = [...this.svg.querySelectorAll("[data-handle]")];
    this.#reachTo(Math.min(this.reach, Math.max(0, this.handles.length - 1)));
    if (focused !== undefined) this.handles[focused]?.focus({ preventScroll: true });
  }

  #makeAxis(axis, at) {
    const lines = wrapped(axis.unit ? `${axis.title} (${axis.unit})` : axis.title);
    const [up, down] = [TOP, this.height - BOTTOM];
    const ends = axis.words.length ? axis.words.map((word, value) => [word, this.#y(axis, value) + 4, 6, "start"])
      : [[text(axis, this.#valueAt(axis, up)), up - 6, 0, "middle"], [text(axis, this.#valueAt(axis, down)), down + 15, 0, "middle"]];
    axis.brush = svg("rect", { class: "brush", x: axis.x - 6, width: 12 });
    axis.grips = ["least", "most"].map((end, which) => svg("path", {
      class: "grip", "data-handle": 2 * at + which, tabindex: -1, role: "slider", "aria-orientation": "vertical", "aria-label": `${axis.title}: at ${end}`,
      "aria-valuemin": axis.low, "aria-valuemax": axis.high, d: "M -9 -3 H 9 V 3 H -9 Z",
    }));
    const grip = svg("rect", { class: "axis-grip", x: axis.x - GRIP, y: up - 8, width: 2 * GRIP, height: Math.max(0, down - up + 16) });
    grip.addEventListener("pointerdown", (event) => this.#press(event, axis, grip));
    return [
      svg("text", { class: "axis-title", x: axis.x, y: TOP - 22 - 13 * (lines.length - 1) }, ...lines.map((line, row) => svg("tspan", { x: axis.x, dy: row ? 13 : 0 }, line))),
      svg("line", { class: "axis", x1: axis.x, x2: axis.x, y1: up, y2: down }),
      ...ends.map(([words, y, right, anchor]) => svg("text", { class: "tick", x: axis.x + right, y, "text-anchor": anchor }, words)),
      axis.brush, grip, ...axis.grips,
    ];
  }

  #placeHandles() {
    for (const axis of this.axes) {
      const range = this.brushes.get(axis.name);
      const [low, high] = range ?? [axis.low, axis.high];
      const places = [low, high].map((value) => this.#y(axis, Math.min(axis.high, Math.max(axis.low, value))));
      axis.grips.forEach((grip, which) => {
        grip.setAttribute("transform", `translate(${axis.x} ${places[which]})`);
        grip.setAttribute("aria-valuenow", [low, high][which]);
        grip.setAttribute("aria-valuetext", range ? text(axis, range[which]) : "no brush");
        grip.classList.toggle("set", Boolean(range));
      });
      axis.brush.setAttribute("y", Math.min(...places));
      axis.brush.setAttribute("height", range ? Math.max(2, Math.abs(places[0] - places[1])) : 0);
    }
  }

  #set(axis, range) {
    const whole_ = range && range[0] <= axis.low && range[1] >= axis.high;
    this.brushes = new Map(this.brushes);
    if (!range || whole_) this.brushes.delete(axis.name);
    else this.brushes.set(axis.name, rounded(range));
    this.draw();
    this.onBrush(this.brushes);
  }

  /** A drag brushes an axis, or moves the end of its brush that it began at; a press alone removes the brush. */
  #press(event, axis, grip) {
    if (event.button) return;
    event.preventDefault();
    grip.setPointerCapture(event.pointerId);
    const top = this.svg.getBoundingClientRect().top;
    const range = this.brushes.get(axis.name);
    const near = range?.findIndex((value) => Math.abs(this.#y(axis, value) - (event.clientY - top)) < NEAR) ?? -1;
    const start = near >= 0 ? range[1 - near] : this.#valueAt(axis, event.clientY - top);
    let moved = false;
    const move = ({ clientY }) => {
      moved ||= Math.abs(clientY - event.clientY) > 3;
      const value = this.#valueAt(axis, clientY - top);
      if (moved) this.#set(axis, [Math.min(start, value), Math.max(start, value)]);
    };
    const end = () => {
      grip.removeEventListener("pointermove", move);
      if (!moved) this.#set(axis, null);
      this.handles[2 * this.axes.indexOf(axis)]?.focus({ preventScroll: true });
    };
    grip.addEventListener("pointermove", move);
    grip.addEventListener("lostpointercapture", end, { once: true });
  }

  #hearKey(event) {
    const handle = Number(event.target.dataset?.handle ?? NaN);
    if (Number.isNaN(handle) || event.ctrlKey || event.metaKey || event.altKey) return;
    const axis = this.axes[Math.floor(handle / 2)];
    const turn = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const step = { ArrowUp: 1, ArrowDown: -1, PageUp: 5, PageDown: -5, Home: -Infinity, End: Infinity }[event.key];
    if (turn) this.handles[Math.min(Math.max(handle + turn, 0), this.handles.length - 1)].focus();
    else if (step) this.#moveEnd(axis, handle % 2, step);
    else if (event.key === "Delete" || event.key === "Backspace" || event.key === "Escape") this.#set(axis, null);
    else return;
    event.preventDefault();
  }

  /** Up is up on the screen, Home and End are the axis' least and most. */
  #moveEnd(axis, which, step) {
    const range = [...(this.brushes.get(axis.name) ?? [axis.low, axis.high])];
    const up = axis.lowIsBetter && Number.isFinite(step) ? -step : step;
    if (!Number.isFinite(up)) range[which] = up < 0 ? axis.low : axis.high;
    else if (axis.distinct.length <= FEW) {
      const here = nearest(axis.distinct, range[which]);
      range[which] = axis.distinct[Math.min(Math.max(here + up, 0), axis.distinct.length - 1)];
    } else range[which] = Math.min(axis.high, Math.max(axis.low, range[which] + (up * (axis.high - axis.low)) / 40));
    range[which] = which ? Math.max(range[0], range[1]) : Math.min(range[0], range[1]);
    this.#set(axis, range);
  }

  #reachTo(handle) {
    this.handles[this.reach]?.setAttribute("tabindex", -1);
    this.reach = handle;
    this.handles[handle]?.setAttribute("tabindex", 0);
  }

  #hover({ offsetX, offsetY, buttons, target }) {
    if (buttons || target !== this.svg) return this.#hovers(null);
    const right = this.axes.findIndex(({ x }) => x > offsetX);
    if (right < 1) return this.#hovers(null);
    const [a, b] = [this.axes[right - 1], this.axes[right]];
    const share = (offsetX - a.x) / (b.x - a.x);
    let [best, least] = [null, NEAR];
    this.rows.forEach((row, at) => {
      if (a.values[at] === null || b.values[at] === null || !isWithin(this.axes, this.brushes, at)) return;
      const away = Math.abs((1 - share) * this.#y(a, a.values[at]) + share * this.#y(b, b.values[at]) - offsetY);
      if (away < least || (away === least && row.group === "frontier")) [best, least] = [at, away];
    });
    this.#hovers(best);
  }

  #hovers(at) {
    if (at === this.hovered) return;
    this.hovered = at;
    this.svg.style.cursor = at === null ? "" : "pointer";
    const said = at === null ? "" : `Candidate ${whole(this.rows[at].number)}: ${this.axes.map((axis) => `${axis.title} ${text(axis, axis.values[at])}${axis.unit && ` ${axis.unit}`}`).join(", ")}`;
    setText(this.says, said);
    this.draw();
  }
}

function spanOf({ values, words }) {
  const distinct = [...new Set(values.filter((value) => value !== null))].sort((a, b) => a - b);
  return words.length ? { distinct, low: 0, high: words.length - 1 } : { distinct, low: distinct[0], high: distinct.at(-1) };
}

/** A value of an axis: a word, a whole number as it is, else three digits. */
function text({ words }, value) {
  if (value === null) return "–";
  return words.length ? words[Math.round(value)] : Number.isInteger(value) ? whole(value) : figure(value);
}

const nearest = (sorted, value) => sorted.reduce((best, each, at) => (Math.abs(each - value) < Math.abs(sorted[best] - value) ? at : best), 0);

/** A title in up to three lines of about so many letters. */
function wrapped(title, letters = 14) {
  const lines = [""];
  for (const word of title.split(" ")) {
    const line = `${lines.at(-1)} ${word}`.trim();
    if (line.length <= letters || lines.length === 3 || !lines.at(-1)) lines[lines.length - 1] = line;
    else lines.push(word);
  }
  return lines;
}
