"""A predicted perplexity as people read it, or its ratio to a named model's where the law knows no perplexity."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from edgefront.core.pareto.ratio import Figure
from edgefront.show.output import NONE

if TYPE_CHECKING:
    from edgefront.core.wire.predictions import PredictedView

HEADER = "predicted perplexity"


def predicted_quality(predicted: PredictedView | None) -> str:
    """`31.2 ± 0.9`, or `0.83× (0.72–0.95)` of a ratio; with a `*` where it is extrapolated; a dash where nothing is
    predicted.
    """
    if predicted is None or predicted.perplexity is None:
        return NONE
    mark = "*" if predicted.extrapolated else ""
    low, high = predicted.perplexity_low, predicted.perplexity_high
    if low is None or high is None:
        return f"{median_quality(predicted)}{mark}"
    if predicted.relative_to is None:
        return f"{Figure.between(predicted.perplexity, low, high)}{mark}"
    return f"{median_quality(predicted)} ({low:.2f}–{high:.2f}){mark}"


def median_quality(predicted: PredictedView | None) -> str:
    """`31.2`, or `0.83×` of a ratio; a dash where nothing is predicted."""
    if predicted is None or predicted.perplexity is None:
        return NONE
    return f"{predicted.perplexity:.1f}" if predicted.relative_to is None else f"{predicted.perplexity:.2f}×"


def quality_interval(predicted: PredictedView) -> str:
    """`30.1 to 32.4`, the ends of the 95 % interval; a dash where there is none."""
    low, high = predicted.perplexity_low, predicted.perplexity_high
    if low is None or high is None:
        return NONE
    digits = 2 if predicted.relative_to is not None or low < 10 else 1
    return f"{low:.{digits}f} to {high:.{digits}f}"


def quality_header(predictions: Iterable[PredictedView | None]) -> str:
    """The header of a column of them: `predicted perplexity, smollm2-135m = 1` of ratios."""
    references = {each.relative_to for each in predictions if each is not None and each.perplexity is not None}
    return header_of(references)


def labels_of(labels: Iterable[str]) -> str:
    """`Dolma, 10B tokens, finished schedule`: what predicted perplexities are of; empty where nothing is known."""
    return " or ".join(dict.fromkeys(label for label in labels if label))


def quality_label(predictions: Iterable[PredictedView | None]) -> str:
    """The same of predictions."""
    return labels_of(each.label for each in predictions if each is not None and each.perplexity is not None)


def of_label(label: str) -> str:
    """The line below a table of them; empty without a label."""
    return f"{HEADER}: {label}" if label else ""


def header_of(references: Iterable[str | None]) -> str:
    """The same by the models to which the predictions of a column are relative."""
    named = sorted({reference for reference in references if reference is not None})
    return f"{HEADER}, {' or '.join(named)} = 1" if named else HEADER
