// A predicted perplexity as people read it, or its ratio to a named model's where the law knows no perplexity of the data.

import { MISSING } from "./format.js";

/** "31.2", or "0.83×" of a ratio; `predicted` is a PredictedView or null. */
export function perplexityText(predicted) {
  if (predicted?.perplexity == null) return MISSING;
  return predicted.relative_to ? `${predicted.perplexity.toFixed(2)}×` : predicted.perplexity.toFixed(1);
}

/** The same with its interval: "31.2 ± 0.9", or "0.83× (0.72–0.95)"; with a `*` where it is extrapolated. */
export function perplexityWithInterval(predicted) {
  const { perplexity_low: low, perplexity_high: high, relative_to: isRatio, extrapolated } = predicted ?? {};
  const ofRatio = () => ` (${low.toFixed(2)}–${high.toFixed(2)})`;
  const interval = low == null || high == null ? "" : isRatio ? ofRatio() : ` ± ${((high - low) / 2).toFixed(1)}`;
  return `${perplexityText(predicted)}${interval}${extrapolated ? "*" : ""}`;
}

/** "31.2 (30.3 to 32.1)", the ends of the interval in words. */
export function perplexityWithEnds(predicted) {
  const { perplexity_low: low, perplexity_high: high, relative_to: isRatio } = predicted;
  const digits = isRatio ? 2 : 1;
  return `${perplexityText(predicted)}${low == null ? "" : ` (${low.toFixed(digits)} to ${high.toFixed(digits)})`}`;
}

/** "Predicted perplexity, smollm2-135m = 1": `begin` is the name of the figure, `relativeTo` a model's or null. */
export const perplexityTitle = (begin, relativeTo) => (relativeTo ? `${begin}, ${relativeTo} = 1` : begin);

/** The model to which predictions are relative; null: they are perplexities. */
export const relativeTo = (predictions) => predictions.find((each) => each?.perplexity != null)?.relative_to ?? null;
