"""A frontier as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefront.core.spaces.formatting import layers_in_words, spread, stack_in_words
from edgefront.core.states import CandidateRole
from edgefront.core.wire.candidates import CandidateView, FrontierView
from edgefront.show.output import NONE, measured_latency, megabytes, millions, milliseconds, speedup, table, times
from edgefront.show.quality import median_quality, of_label, quality_header, quality_label

if TYPE_CHECKING:
    from edgefront.show.fitting import FittingTable


def frontier_table(view: FrontierView) -> FittingTable:
    """The points by rising decoder parameters, with the baseline beside them; perplexities where they are predicted, or
    some were trained."""
    everyone = (*view.points, *view.baseline)
    predicts = any(_predicted(point) is not None for point in everyone)
    header = quality_header(point.predicted for point in everyone)
    predicted = (header,) if predicts else ()
    generates = any(point.token_ms is not None for point in everyone)
    parts = ("first token ms", "further token ms", "tokens/s") if generates else ()
    trained = ("perplexity",) if view.trained else ()
    numbers = (*predicted, "latency ms", *parts, "memory MB", "faster", "smaller", "launches", *trained)
    shown = table(
        "model",
        "parameters",
        "blocks",
        "d_model",
        "d_inner",
        *numbers,
        title=_title(view),
        right=("parameters", "d_model", *numbers),
        less=(
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
        return _cells(point, predicts, generates) + ([scores.get(point.id, "")] if scores else [])

    for point in view.points:
        shown.add_row(point.id, *cells(point))
    if view.baseline:
        shown.add_section()
        for point in sorted(view.baseline, key=lambda item: item.decoder_parameters):
            name = "my model" if view.own_model else "baseline"
            words = layers_in_words(point.architecture.get("blocks", ()))
            shown.add_row(f"{name}, {words}", *cells(point), style="dim")
    return shown


def frontier_label(view: FrontierView) -> str:
    """The line below the table: what its predicted perplexities are of; empty where nothing is predicted."""
    return of_label(quality_label(point.predicted for point in (*view.points, *view.baseline)))


def _title(view: FrontierView) -> str:
    alike = f" (alike up to {100 * view.epsilon:g} %)" if view.epsilon else ""
    if view.by == "perplexity":
        data = f" on {view.trained[0].dataset} by {view.trained[0].recipe}" if view.trained else ""
        return f"{view.target}: {len(view.points)} of {len(view.trained)} models trained{data} on the frontier{alike}"
    return f"{view.target}: {len(view.points)} models on the frontier{alike}, hypervolume {view.hypervolume:.4f}"


def _predicted(point: CandidateView) -> float | None:
    return point.predicted.perplexity if point.predicted else None


def _cells(point: CandidateView, predicts: bool, generates: bool) -> list[str]:
    rate = NONE if point.tokens_per_s is None else f"{point.tokens_per_s:.1f}"
    versus = point.versus_baseline if point.role == CandidateRole.SEARCH else None
    mark = "*" if versus is not None and versus.extrapolated else ""
    return [
        millions(point.decoder_parameters),
        stack_in_words(point.architecture.get("blocks", ())),
        str(point.architecture.get("d_model", NONE)),
        spread(_inner_widths(point)),
        *((median_quality(point.predicted),) if predicts else ()),
        measured_latency(point),
        *((milliseconds(point.first_token_ms), milliseconds(point.token_ms), rate) if generates else ()),
        megabytes(point.memory_bytes),
        speedup(versus) + mark if versus else "",
        times(versus.memory_ratio) + mark if versus else "",
        str(point.launches),
    ]


def _inner_widths(point: CandidateView) -> list[int]:
    return [int(block["d_inner"]) for block in point.architecture.get("blocks", ()) if "d_inner" in block]
