// Genes and objectives of a target: parallel coordinates with a brush on each axis, and how much each gene decides.

import { patiently, Refused } from "../shared/api.js";
import { byId, debounced, element, setText } from "../shared/dom.js";
import { percent, whole } from "../shared/format.js";
import { isWithin, readBrushes, writeBrushes } from "./brushes.js";
import { ParallelChart } from "./parallel.js";

const SETTLED_MS = 150; // Brushes at rest for so long are applied to the other views.
const ROUND_MS = 15000; // Between two looks while a search runs.

export class Genes {
  /** `path` of the job below `/v1`; `onPick(id)` hears which candidate was clicked, `onBrush()` that brushes have moved. */
  constructor(path, { onPick, onBrush }) {
    this.path = path;
    this.view = null;
    this.brushed = null; // ids within the brushes; null without a brush
    this.seen = false;
    this.looked = -Infinity;
    this.chart = new ParallelChart(byId("parallel"), byId("parallel-says"), { onPick, onBrush: () => this.#count() });
    this.report = debounced(onBrush, SETTLED_MS);
    byId("brushes-clear").addEventListener("click", () => this.brush(""));
    new IntersectionObserver(([{ isIntersecting }]) => {
      this.seen = isIntersecting;
      this.look();
    }, { rootMargin: "300px" }).observe(byId("genes"));
  }

  /** The brushes as the address keeps them; null without any. */
  get brushes() {
    return writeBrushes(this.chart.brushes);
  }

  brush(text) {
    this.chart.mark({ brushes: readBrushes(text) });
    this.#count();
    this.look();
  }

  /** Turns to another target: brushes are of one. */
  turn(target) {
    if (this.target === target) return;
    Object.assign(this, { target, view: null, brushed: null, looked: -Infinity });
    this.chart.mark({ brushes: new Map(), recommended: null, selected: null });
    byId("genes").hidden = true;
  }

  /** Loads what is new, while somebody looks or has brushed; `force`: although it was loaded a moment ago. */
  async look({ force = false } = {}) {
    if (byId("genes").hidden || !(this.seen || this.brushes)) return;
    if (!force && performance.now() - this.looked < ROUND_MS) return;
    this.looked = performance.now();
    const target = this.target;
    try {
      const view = await patiently(`${this.path}/genes?target=${encodeURIComponent(target)}`);
      if (target === this.target) this.#show(view);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      setText(byId("genes-note"), `Genes could not be loaded: ${error.message}`);
    }
  }

  #show(view) {
    this.view = view;
    const axes = view.objectives.map(({ low_is_better, ...axis }) => ({ ...axis, words: [], lowIsBetter: low_is_better }))
      .concat(view.genes.map((gene) => ({ ...gene, unit: "", lowIsBetter: false })));
    const group = (at) => (view.on_frontier[at] ? "frontier" : view.out_of_bounds[at] ? "outside" : "dominated");
    this.chart.show(axes, view.ids.map((id, at) => ({ id, number: view.numbers[at], group: group(at) })));
    byId("parallel").hidden = view.ids.length === 0;
    setText(byId("genes-note"), view.ids.length ? view.note : "No line yet: the first comes with the first searched model that is measured. Baselines have no genes.");
    byId("genes-some").hidden = view.measured <= view.ids.length;
    setText(byId("genes-some"), `Of ${whole(view.measured)} measured candidates an even spread of ${whole(view.ids.length)} is drawn, with the whole frontier.`);
    this.#showImportance(view);
    this.#count();
  }

  #count() {
    const { brushes, axes } = this.chart;
    const known = brushes.size > 0 && this.view;
    const before = this.brushed;
    this.brushed = known ? new Set(this.view.ids.filter((_, at) => isWithin(axes, brushes, at))) : null;
    byId("brushes").hidden = !known;
    if (known) setText(byId("brushes-say"), `${whole(this.brushed.size)} of ${whole(this.view.ids.length)} candidates are within the brushes.`);
    if (before || this.brushed) this.report();
  }

  #showImportance({ genes, objectives }) {
    const judged = objectives.filter(({ explained }) => explained !== null);
    byId("importance-box").hidden = judged.length === 0;
    byId("importance").tHead.replaceChildren(element("tr", {}, element("th", { scope: "col", text: "Gene" }),
      ...judged.map(({ title, explained }) => element("th", { scope: "col" }, title, element("span", { class: "under", text: `R² ${explained.toFixed(2)}` })))));
    const most = (gene) => Math.max(...gene.importance.map(({ share }) => share));
    const rows = [...genes].sort((a, b) => most(b) - most(a));
    byId("importance").tBodies[0].replaceChildren(...rows.map((gene) => element("tr", {}, element("th", { scope: "row", text: gene.title }),
      ...gene.importance.map(({ share, correlation }) => element("td", {}, bar(share), ` ${percent(share)} ${wayOf(correlation)}`)))));
  }
}

function bar(share) {
  const filled = element("span", { class: "share", "aria-hidden": true });
  filled.style.setProperty("--share", share);
  return filled;
}

/** Whether more of the gene goes with more of the objective, where that is plain. */
function wayOf(correlation) {
  if (Math.abs(correlation) < 0.2) return "";
  return correlation > 0 ? "↑" : "↓";
}
