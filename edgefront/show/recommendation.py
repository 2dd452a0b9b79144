"""A recommendation as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefront.core.spaces.formatting import architecture_in_words
from edgefront.core.wire.jobs import CandidateView
from edgefront.core.wire.recommendations import RecommendationView
from edgefront.show.output import MARKED, measured_latency, megabytes, millions, milliseconds, table
from edgefront.show.quality import predicted_quality, quality_header, quality_label

if TYPE_CHECKING:
    from rich.console import Console

    from edgefront.show.fitting import FittingTable


def show(view: RecommendationView, console: Console) -> None:
    """The models beside each other, what to do with the recommended one, and at the end the answer in one sentence."""

    def line(text: str, style: str | None = None) -> None:
        console.print(text, style=style, markup=False, soft_wrap=True)

    if view.recommended is not None or view.nearest is not None:
        console.print(recommendation_table(view))
    if _any_extrapolated(view):
        line("* extrapolated: the model lies beyond those that the quality law was learnt from.", "dim")
    if any(candidate.marked for candidate in _rows(view)):
        line(f"{MARKED}.", "dim")
    for runner_up in view.runners_up:
        line(f"runner-up {runner_up.candidate.id} against the recommended: {runner_up.trade}.", "dim")
    label = quality_label(candidate.predicted for candidate in _rows(view))
    if label or view.perplexity_of:
        words = f"{label} ({view.perplexity_of})" if label and view.perplexity_of else label or view.perplexity_of
        line(f"Predicted perplexity: {words}.", "dim")
    if view.note:
        line(view.note, "yellow")
    for title, command in commands(view).items():
        line(f"{title}: {command}")
    line(f"{view.target}: {view.sentence}", "bold")


def commands(view: RecommendationView) -> dict[str, str]:
    """What downloads and trains the recommended model; empty where there is none."""
    chosen = view.recommended
    if chosen is None:
        return {}
    return {
        "download": f"edgefront model download {chosen.id} {view.download}",
        "train": f"edgefront train submit --candidate {chosen.id} --watch",
    }


def recommendation_table(view: RecommendationView) -> FittingTable:
    """The recommended model, the stock model under the same limits, and the runners-up."""
    generates = any(
        candidate is not None and candidate.token_ms is not None for candidate in (view.recommended, view.nearest)
    )
    times = ("first token ms", "further token ms") if generates else ()
    header = quality_header(candidate.predicted for candidate in _rows(view)).removeprefix("predicted ")
    numbers = ("parameters", header, "latency ms", *times, "memory MB")
    shown = table(
        *("", "model", "architecture", *numbers),
        right=numbers,
        prose=("architecture",),
        less=("architecture", "parameters", "memory MB", "first token ms"),
    )
    trained = {trained_candidate.candidate_id: trained_candidate.perplexity for trained_candidate in view.trained}

    def row(name: str, candidate: CandidateView, style: str | None = None) -> None:
        shown.add_row(
            name,
            candidate.id,
            architecture_in_words(candidate.architecture),
            millions(candidate.decoder_parameters),
            _perplexity(candidate, trained.get(candidate.id)),
            measured_latency(candidate),
            *((milliseconds(candidate.first_token_ms), milliseconds(candidate.token_ms)) if generates else ()),
            megabytes(candidate.memory_bytes),
            style=style,
        )

    if view.recommended is not None:
        row("recommended", view.recommended, style="bold")
    if view.baseline is not None and view.baseline != view.recommended:
        row("my model" if view.own_model else "stock model", view.baseline)
    for runner_up in view.runners_up:
        row("runner-up", runner_up.candidate, style="dim")
    if view.nearest is not None:
        row("nearest", view.nearest)
    return shown


def _any_extrapolated(view: RecommendationView) -> bool:
    """Whether the table marks a perplexity with a `*`."""
    trained = {candidate.candidate_id for candidate in view.trained}
    return any(_perplexity(candidate, None).endswith("*") for candidate in _rows(view) if candidate.id not in trained)


def _rows(view: RecommendationView) -> list[CandidateView]:
    """All that the table shows."""
    rows = [view.recommended, view.baseline, *(runner_up.candidate for runner_up in view.runners_up), view.nearest]
    return [candidate for candidate in rows if candidate is not None]


def _perplexity(candidate: CandidateView, trained: float | None) -> str:
    """What was trained, `31.2 trained`, or what is predicted."""
    if trained is not None:
        return f"{trained:.4g} trained"
    return predicted_quality(candidate.predicted)
