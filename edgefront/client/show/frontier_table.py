"""Formats a Pareto frontier as a table, and predicted perplexities (or their ratios to a named model) as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from edgefront.client.show.output import (
    NONE,
    measured_latency,
    measured_times,
    megabytes,
    millions,
    speedup,
    standing_in_words,
    times,
)
from edgefront.client.show.table import Table
from edgefront.core.architectures.formatting import layers_in_words, spread, stack_in_words
from edgefront.core.common.states import CandidateRole
from edgefront.core.common.units import plain
from edgefront.core.schemas.candidates import CandidateView, FrontierView
from edgefront.core.search.pareto.options import Estimate

if TYPE_CHECKING:
    from edgefront.core.schemas.predictions import ComparedArchitecture, PredictedView


def frontier_table(view: FrontierView) -> Table:
    """Returns a table of the frontier's models by rising decoder parameters, followed by the reference models (the
    user's own or default models); with predicted and trained perplexities if known.
    """
    points = (*view.points, *view.baseline)
    predicts = any(point.predicted is not None and point.predicted.perplexity is not None for point in points)
    header = quality_header(point.predicted for point in points)
    predicted = (header,) if predicts else ()
    generates = any(point.token_ms is not None for point in points)
    parts = ("first token ms", "further token ms", "tokens/s") if generates else ()
    trained = ("perplexity",) if view.trained else ()
    score = (view.score.partition(":")[2],) if view.score else ()
    stands = ("limits",) if any(view.standings.values()) else ()
    versus_baseline = () if view.score else ("faster", "smaller")
    shape = () if view.score else ("blocks", "d_model", "d_inner")
    numbers = (*score, *predicted, "latency ms", *parts, "memory MB", *versus_baseline, "launches", *trained)
    table = Table(
        *("model", "parameters", *shape, *numbers, *stands),
        title=_title(view),
        right=("parameters", "d_model", *numbers),
        wrap=("model",) if view.score else (),
        drop_first=(
            "launches",
            "d_inner",
            "d_model",
            header,
            "blocks",
            "smaller",
            "tokens/s",
            "first token ms",
            "parameters",
            "faster",
        ),
    )
    scores = {trained.candidate_id: f"{trained.perplexity:.4g}" for trained in view.trained}

    def cells(point: CandidateView) -> list[str]:
        rate = NONE if point.tokens_per_s is None else f"{point.tokens_per_s:.1f}"
        versus = point.versus_baseline if point.role == CandidateRole.SEARCH else None
        mark = "*" if versus is not None and versus.extrapolated else ""
        blocks = point.architecture.get("blocks", ())
        inner = [int(block["d_inner"]) for block in blocks if "d_inner" in block]
        described = (stack_in_words(blocks), str(point.architecture.get("d_model", NONE)), spread(inner))
        return [
            millions(point.decoder_parameters),
            *(described if shape else ()),
            *((plain(point.proxy),) if score else ()),
            *((median_quality(point.predicted),) if predicts else ()),
            measured_latency(point),
            *((*measured_times(point), rate) if generates else ()),
            megabytes(point.memory_bytes),
            *((speedup(versus) + mark, times(versus.memory_ratio) + mark) if versus else [""] * len(versus_baseline)),
            str(point.launches),
            *((scores.get(point.id, ""),) if scores else ()),
            *((standing_in_words(view.standings.get(point.id)),) if stands else ()),
        ]

    for point in view.points:
        table.add_row(point.model or point.id, *cells(point))
    if view.baseline:
        table.add_section()
        for point in sorted(view.baseline, key=lambda item: item.decoder_parameters):
            name = "my model" if view.own_model else "baseline"
            words = layers_in_words(point.architecture.get("blocks", ()))
            table.add_row(f"{name}, {words}", *cells(point), style="dim")
    return table


def frontier_label(view: FrontierView) -> str:
    """Returns the line below a frontier's table: data and training of the predictions, and what `*` means."""
    label = label_line(quality_label(point.predicted for point in (*view.points, *view.baseline)))
    extrapolated = any(point.versus_baseline and point.versus_baseline.extrapolated for point in view.points)
    mark = "* extrapolated: beyond the measured depths of the baseline" if extrapolated else ""
    return "; ".join(text for text in (label, mark) if text)


def _title(view: FrontierView) -> str:
    alike = f" (alike up to {100 * view.epsilon:g} %)" if view.epsilon else ""
    if view.by == "perplexity":
        data = f" on {view.trained[0].dataset} by {view.trained[0].recipe}" if view.trained else ""
        return f"{view.target}: {len(view.points)} of {len(view.trained)} models trained{data} on the frontier{alike}"
    volume = f", hypervolume {view.hypervolume:.4f}" if view.hypervolume else ""
    return f"{view.target}: {len(view.points)} models on the frontier{alike}{volume}"


HEADER = "predicted perplexity"


def predicted_quality(predicted: PredictedView | None) -> str:
    """Formats a predicted perplexity as `31.2 ± 0.9`, or a predicted ratio as `0.83× (0.72–0.95)`. A trailing `*` marks
    an extrapolation. Without a prediction the text is a dash.
    """
    if predicted is None or predicted.perplexity is None:
        return NONE
    mark = "*" if predicted.extrapolated else ""
    low, high = predicted.perplexity_low, predicted.perplexity_high
    if low is None or high is None:
        return f"{median_quality(predicted)}{mark}"
    if predicted.relative_to is None:
        return f"{Estimate.between(predicted.perplexity, low, high)}{mark}"
    return f"{median_quality(predicted)} ({low:.2f}–{high:.2f}){mark}"


def median_quality(predicted: PredictedView | ComparedArchitecture | None) -> str:
    """Formats the median of a predicted perplexity (`31.2`) or ratio (`0.83×`); a dash without a prediction."""
    if predicted is None or predicted.perplexity is None:
        return NONE
    return f"{predicted.perplexity:.1f}" if predicted.relative_to is None else f"{predicted.perplexity:.2f}×"


def quality_interval(predicted: PredictedView) -> str:
    """Formats the 95 % interval of a predicted perplexity, such as `30.1 to 32.4`; a dash without an interval."""
    low, high = predicted.perplexity_low, predicted.perplexity_high
    if low is None or high is None:
        return NONE
    digits = 2 if predicted.relative_to is not None or low < 10 else 1
    return f"{low:.{digits}f} to {high:.{digits}f}"


def quality_header(predictions: Iterable[PredictedView | ComparedArchitecture | None]) -> str:
    """Returns the heading of a column of predicted perplexities; of ratios `predicted perplexity, smollm2-135m = 1`."""
    return header_of(each.relative_to for each in predictions if each is not None and each.perplexity is not None)


def header_of(references: Iterable[str | None]) -> str:
    """Returns the heading of a column of predictions, given the models to which the predictions are relative."""
    names = sorted({reference for reference in references if reference is not None})
    return f"{HEADER}, {' or '.join(names)} = 1" if names else HEADER


def quality_label(predictions: Iterable[PredictedView | ComparedArchitecture | None]) -> str:
    """Describes data and training that predictions assume, such as `Dolma, 10B tokens, finished schedule`."""
    labels = (each.label for each in predictions if each is not None and each.perplexity is not None)
    return " or ".join(dict.fromkeys(label for label in labels if label))


def label_line(label: str) -> str:
    """Returns the line below a table of predicted perplexities, from a `quality_label`; empty without a label."""
    return f"{HEADER}: {label}" if label else ""
