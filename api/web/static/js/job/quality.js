// What stands for quality in the charts: the predicted perplexity, that of trained models, or the job's proxy.

import { parametersOf } from "./candidates.js";
import { byId, element } from "../shared/dom.js";
import { axisTitle } from "../shared/perplexity.js";

/** The choice among them beside the chart's title. */
export class QualityChoice {
  /** `onTurn()` hears that the reader chose another. */
  constructor(onTurn) {
    this.select = byId("quality");
    this.picked = null; // a name; null: whichever is known best
    this.axis = null;
    this.select.addEventListener("change", () => {
      this.picked = this.select.selectedIndex === 0 ? null : this.select.value;
      onTurn();
    });
  }

  /** Takes the axes that there are now; keeps the chosen one, if it is among them. */
  offer(axes) {
    this.axis = axes.find(({ name }) => name === this.picked) ?? axes[0];
    byId("quality-choice").hidden = axes.length === 1;
    const options = axes.map(({ name, label }) => element("option", { value: name, text: label }));
    const isNew = options.map((option) => option.text).join() !== [...this.select.options].map((option) => option.text).join();
    if (isNew) this.select.replaceChildren(...options);
    this.select.value = this.axis.name;
  }
}

/**
 * The axes that there are, best known first. Each has `name`, `label` (in a sentence), `title` (at an axis), `value(point)`
 * (null: not drawn), `range(point)` ([low, high] or null), `lowIsBetter`, and for
 * those of which the service has details `scale`, by which a value is its own over. `trained` is null or {perplexities: Map of id → value}.
 */
export function qualitiesOf(request, candidates, trained) {
  const hasPredicted = candidates.some((candidate) => candidate.predicted?.perplexity);
  const predicted = byPrediction(candidates.map((candidate) => candidate.predicted));
  const byLaw = request.proxy === "quality_law";
  return [
    ...(hasPredicted && byLaw ? [predicted] : []), byProxy(request, candidates[0]), ...(hasPredicted && !byLaw ? [predicted] : []),
    ...(trained ? [byTrained(trained.perplexities)] : []),
  ];
}

/** By the law, whose predictions may be ratios to the perplexity of a model. */
function byPrediction(predictions) {
  return {
    name: "predicted",
    label: "predicted perplexity",
    title: axisTitle(predictions),
    value: (point) => point.predicted?.perplexity ?? null,
    range: ({ predicted }) => (predicted?.perplexity_high ? [predicted.perplexity_low, predicted.perplexity_high] : null),
    lowIsBetter: true,
    scale: 1,
  };
}

function byTrained(perplexities) {
  return {
    name: "trained", label: "perplexity when trained", title: "perplexity when trained",
    value: (point) => perplexities.get(point.id) ?? null, range: () => null, lowIsBetter: true,
  };
}

/** By the job's proxy, which is higher for better models. */
export function byProxy({ proxy, space: { published } }, candidate) {
  const common = { name: "proxy", range: () => null, lowIsBetter: false, scale: proxy.endsWith("_parameters") ? 1e6 : 1 };
  const name = published ? published.score.slice(published.score.indexOf(":") + 1) : proxy;
  if (!proxy.endsWith("_parameters")) return { ...common, label: name, title: name, value: (point) => point.proxy };
  const label = proxy === "decoder_parameters" ? parametersOf(candidate) : proxy.replace("_", " ");
  return { ...common, label, title: `${label} (M)`, value: (point) => point.proxy / 1e6 };
}
