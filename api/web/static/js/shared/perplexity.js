// A predicted perplexity as people read it, or its ratio to a named model's where the law knows no perplexity of the data.

import { MISSING, withInterval } from "./format.js";

/** "31.2", or "0.83×" of a ratio; `predicted` is a PredictedView or null. */
export function perplexityText(predicted) {
  if (predicted?.perplexity == null) return MISSING;
  return predicted.relative_to ? `${predicted.perplexity.toFixed(2)}×` : predicted.perplexity.toFixed(1);
}

/** The same with its interval: "31.2 ± 0.9", "96 (63 to 150)" of a wide one, or "0.83× (0.72 to 0.95)"; and where it is extrapolated. */
export function perplexityWithInterval(predicted) {
  const { perplexity_low: low, perplexity_high: high, relative_to: isRatio, extrapolated } = predicted ?? {};
  const mark = extrapolated ? ", extrapolated" : "";
  if (low == null || high == null) return `${perplexityText(predicted)}${mark}`;
  if (isRatio) return `${perplexityText(predicted)} (${low.toFixed(2)} to ${high.toFixed(2)})${mark}`;
  return `${withInterval(predicted.perplexity, Math.log(high / low) / 2)}${mark}`;
}

/** "31.2 (30.3 to 32.1)", the ends of the interval in words. */
export function perplexityWithEnds(predicted) {
  const { perplexity_low: low, perplexity_high: high, relative_to: isRatio } = predicted;
  const digits = isRatio ? 2 : 1;
  return `${perplexityText(predicted)}${low == null ? "" : ` (${low.toFixed(digits)} to ${high.toFixed(digits)})`}`;
}

/** "Predicted perplexity, smollm2-135m = 1" of ratios: `begin` is the name of the figure. */
export function perplexityTitle(begin, predictions) {
  const reference = predictions.find((each) => each?.perplexity != null)?.relative_to;
  return reference ? `${begin}, ${reference} = 1` : begin;
}

/** What predictions are of, in about six words: "Dolma, 10B tokens, finished schedule"; empty where that is not known. */
export function perplexityLabel(predictions) {
  const labels = predictions.map((each) => (each?.perplexity == null ? "" : each.label)).filter(Boolean);
  return [...new Set(labels)].join(" or ");
}

/** Both: "Predicted perplexity (Dolma, 10B tokens, finished schedule)". */
export function labelledTitle(begin, predictions) {
  const label = perplexityLabel(predictions);
  return `${perplexityTitle(begin, predictions)}${label && ` (${label})`}`;
}

/** The same in two lines, at an axis of Plotly, which takes some of a text for markup. */
export const axisTitle = (predictions) => [perplexityTitle("predicted perplexity", predictions), perplexityLabel(predictions)]
  .filter(Boolean).map((text) => text.replace(/[<>&%{}]/g, "")).join("<br>");
