// Block probabilities of a supernet's layers: the paper's figure, and attention over the steps.

import { byId, colour, element, setText } from "../shared/dom.js";
import { figure, whole } from "../shared/format.js";
import { plotly, plotSettings } from "../shared/plot.js";

const TITLES = { attention: "attention", feed_forward: "feed-forward", identity: "identity" };
const COLOURS = { attention: "frontier", feed_forward: "baseline", identity: "line" };
const LETTERS = { attention: "s", feed_forward: "f", identity: "i" };
const PHASES = { weights: "training weights only", tuning: "training weights and probabilities alternately", ended: "ended" };
const SETTINGS = { ...plotSettings("none", "edgefront-block-probabilities"), displayModeBar: false };

export class Layers {
  constructor() {
    this.view = null;
    byId("seed").addEventListener("change", () => this.#draw());
    for (const query of ["(prefers-color-scheme: dark)", "(max-width: 560px)"]) {
      matchMedia(query).addEventListener("change", () => this.#draw());
    }
  }

  /** Takes a ProbabilitiesView. */
  show(view) {
    this.view = view;
    byId("layers").hidden = false;
    const seeds = view.searches.map((search) => String(search.seed));
    if ([...byId("seed").options].map((option) => option.value).join() !== seeds.join()) {
      const chosen = byId("seed").value;
      byId("seed").replaceChildren(...seeds.map((seed) => element("option", { value: seed, text: seed })));
      byId("seed").value = seeds.includes(chosen) ? chosen : (seeds.at(-1) ?? "");
    }
    byId("seed-choice").hidden = seeds.length < 2;
    this.#draw();
  }

  async #draw() {
    const search = this.view?.searches.find((each) => String(each.seed) === byId("seed").value);
    for (const id of ["layer-bars", "layer-steps", "layer-numbers"]) byId(id).hidden = !search;
    if (!search) {
      setText(byId("layers-note"), "No data yet. The first probabilities come with the first report.");
      return;
    }
    const last = search.records.at(-1);
    setText(byId("layers-note"), [
      `step ${whole(last.step)}: ${PHASES[search.phase] ?? search.phase}`, `temperature ${figure(last.temperature)}`,
      `most probable blocks ${search.pattern}`, "s attention, f feed-forward, i identity",
      ...(search.expected_ms === null ? [] : [`${figure(search.expected_ms)} ms expected latency`]),
    ].join(" · "));
    this.#table(last.probabilities);
    const loaded = await plotly();
    if (!loaded) return;
    const depth = last.probabilities.length;
    loaded.react(byId("layer-bars"), bars(last.probabilities, this.view.choices), layout("layer", "probability", depth, { barmode: "stack", showlegend: true }), SETTINGS);
    const attention = this.view.choices.indexOf("attention");
    loaded.react(byId("layer-steps"), overSteps(search.records, attention), layout("step", "layer", depth, { title: "attention over the steps" }), SETTINGS);
  }

  #table(rows) {
    const { choices } = this.view;
    byId("probabilities").tHead.replaceChildren(element("tr", {}, element("th", { scope: "col", text: "Layer" }),
      ...choices.map((choice) => element("th", { scope: "col", class: "number", text: TITLES[choice] ?? choice })),
      element("th", { scope: "col", text: "Likeliest" })));
    byId("probabilities").tBodies[0].replaceChildren(...rows.map((row, layer) => {
      const best = row.indexOf(Math.max(...row));
      return element("tr", {}, element("th", { scope: "row", text: whole(layer + 1) }),
        ...row.map((value) => element("td", { class: "number", text: value.toFixed(3) })),
        element("td", { text: `${LETTERS[choices[best]] ?? ""} ${TITLES[choices[best]] ?? choices[best]}`.trim() }));
    }));
  }
}

function bars(rows, choices) {
  return choices.map((choice, at) => ({
    type: "bar",
    uid: choice,
    name: TITLES[choice] ?? choice,
    x: rows.map((_, layer) => layer + 1),
    y: rows.map((row) => row[at]),
    marker: { color: colour(COLOURS[choice] ?? "dominated"), line: { width: 0 } },
    hovertemplate: "%{y:.3f}",
  }));
}

function overSteps(records, choice) {
  return [{
    type: "heatmap",
    x: records.map((record) => record.step),
    y: records[0].probabilities.map((_, layer) => layer + 1),
    z: records[0].probabilities.map((_, layer) => records.map((record) => record.probabilities[layer][choice])),
    zmin: 0,
    zmax: 1,
    colorscale: [[0, colour("card")], [1, colour("frontier")]],
    colorbar: { thickness: 10, outlinewidth: 0, tickfont: { size: 10, color: colour("soft") } },
    hovertemplate: "layer %{y}, step %{x}: %{z:.3f}<extra></extra>",
  }];
}

function layout(x, y, layers, { title, ...more }) {
  const axis = (text) => ({
    title: { text, font: { size: 12, color: colour("ink") }, standoff: 6 },
    tickfont: { size: 11, color: colour("soft") },
    gridcolor: colour("line"),
    zeroline: false,
    automargin: true,
    tickformat: text === "probability" ? ".1f" : ",d",
    ...(text === "layer" ? { dtick: layers > 12 ? 4 : 1, tick0: 1 } : {}),
  });
  return {
    uirevision: "kept",
    margin: { l: 8, r: 8, t: 34, b: 8 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", color: colour("ink") },
    hovermode: more.barmode ? "x unified" : "closest",
    hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: { color: colour("ink") } },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal" },
    ...(title ? { title: { text: title, font: { size: 13, color: colour("ink") }, x: 0.01, y: 0.97 } } : {}),
    bargap: 0.15,
    xaxis: axis(x),
    yaxis: { ...axis(y), ...(y === "probability" ? { range: [0, 1] } : {}) },
    ...more,
  };
}
