// Of a 2-D chart with many points only those near the pointer, and the selected one, show their intervals.

import { svg } from "../shared/dom.js";
import { interval } from "./flat.js";

export const MANY = 50; // points; so many show all their intervals
const NEAR = 40; // pixels

export class NearBars {
  /** Draws above Plotly's own drawing in `node`: that would take as long as the whole chart for one bar. */
  constructor(node) {
    this.node = node;
    this.drawing = svg("svg", { class: "near-bars", "aria-hidden": "true" });
    this.clear();
    node.addEventListener("pointermove", ({ clientX, clientY }) => this.#point({ clientX, clientY }));
    node.addEventListener("pointerleave", () => this.#point(null));
  }

  /** Takes the groups whose points have intervals, [name, points], of a chart that has just been drawn. */
  show(groups, view) {
    Object.assign(this, { groups, view });
    this.node.append(this.drawing);
    this.draw();
  }

  clear() {
    this.groups = [];
    this.drawing.remove();
  }

  /** For the axes as they are now. */
  draw() {
    if (this.groups.length === 0 || !this.node._fullLayout) return;
    const { xaxis, yaxis } = this.node._fullLayout;
    const place = { left: xaxis._offset, top: yaxis._offset, width: xaxis._length, height: yaxis._length };
    for (const [name, value] of Object.entries(place)) this.drawing.style[name] = `${value}px`;
    this.drawing.replaceChildren(...this.groups.flatMap(([name, points]) => points.flatMap((point) => this.#bars(name, point, xaxis, yaxis))));
  }

  #point(pointer) {
    this.pointer = pointer;
    this.asked ??= requestAnimationFrame(() => {
      this.asked = null;
      this.draw();
    });
  }

  #bars(name, point, xaxis, yaxis) {
    const [x, y] = [xaxis.d2p(this.view.time.value(point)), yaxis.d2p(this.view.quality.value(point))];
    const ends = this.#isNear(x, y) || point.id === this.view.selected ? interval(point, this.view) : null;
    if (!ends) return [];
    const [quick, slow] = ends.time.map((value) => xaxis.d2p(value));
    const [low, high] = ends.quality.map((value) => yaxis.d2p(value));
    const line = (x1, y1, x2, y2) => svg("line", { class: name, x1, y1, x2, y2 });
    return [line(quick, y, slow, y), line(x, low, x, high)];
  }

  #isNear(x, y) {
    if (!this.pointer) return false;
    const box = this.drawing.getBoundingClientRect();
    return Math.hypot(this.pointer.clientX - box.left - x, this.pointer.clientY - box.top - y) < NEAR;
  }
}
