"""A recommendation as people read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from edgefront.cli.show.frontier_table import predicted_quality, quality_header, quality_label
from edgefront.cli.show.output import MARKED, measured_latency, megabytes, millions, milliseconds
from edgefront.cli.show.table import Table
from edgefront.core.architectures.formatting import architecture_in_words, model_in_words
from edgefront.core.common.states import CandidateRole
from edgefront.core.measurement.variants import format_of, formats_in_words
from edgefront.core.schemas.candidates import CandidateView
from edgefront.core.schemas.recommendations import RecommendationView, RunnerUpView

if TYPE_CHECKING:
    from rich.console import Console

    from edgefront.core.measurement.protocol import MeasurementProtocol


SHOWN_RUNNERS_UP = 2
"""Of an answer at a glance."""


def show(view: RecommendationView, console: Console, *, explain: bool = False) -> None:
    """The answer at a glance: a sentence, a few models beside each other, and what to do next. With `explain` every
    model with its identifier, what the figures are of and how sure they are, and all commands.
    """

    def line(text: str, style: str | None = None) -> None:
        console.print(text, style=style, markup=False, soft_wrap=explain)

    line(f"{view.target}: {view.sentence}", "bold")
    if view.recommended is not None or view.nearest is not None:
        console.print(recommendation_table(view) if explain else _glance(view))
    if not explain:
        if command := commands(view).get("train"):
            console.print(f"next: {command}", markup=False, soft_wrap=True)
        return
    for text in notes(view):
        line(text, "dim")
    if view.note:
        line(view.note, "yellow")
    for title, command in commands(view).items():
        line(f"{title}: {command}")


def _glance(view: RecommendationView) -> Table:
    """At most four models, in six columns."""
    rows = _named_rows(view, view.runners_up[:SHOWN_RUNNERS_UP])
    candidates = [candidate for _, candidate in rows]
    trained = {candidate.candidate_id: candidate.perplexity for candidate in view.trained}
    generates = any(candidate.token_ms is not None for candidate in candidates)
    by_proxy, quality = _quality_column(candidates, view.proxy, trained)
    numbers = (quality, *(("first token ms", "token ms") if generates else ("latency ms",)), "memory MB")
    table = Table("", "model", *numbers, right=numbers, wrap=("model",), drop_first=("first token ms", "memory MB"))
    for name, candidate in rows:
        times = (milliseconds(candidate.first_token_ms), milliseconds(candidate.token_ms))
        table.add_row(
            name,
            model_in_words(candidate.architecture),
            f"{candidate.proxy:.6g}" if by_proxy else _perplexity(candidate, trained.get(candidate.id)),
            *(times if generates else (milliseconds(candidate.latency_ms, candidate.latency_half_width_ms),)),
            megabytes(candidate.memory_bytes),
            style={"recommended": "bold", "provisional": "bold", "runner-up": "dim"}.get(name),
        )
    return table


def notes(view: RecommendationView) -> list[str]:
    """What a reader of the table should know, a sentence each: marks, trades, what perplexities are of."""
    said = []
    trained, shown = {candidate.candidate_id for candidate in view.trained}, _candidates(view)
    if any(_perplexity(candidate, None).endswith("*") for candidate in shown if candidate.id not in trained):
        said.append("* extrapolated: the model lies beyond those that the quality law was learnt from.")
    if any(candidate.marked for candidate in _candidates(view)):
        said.append(f"{MARKED}.")
    for runner_up in view.runners_up:
        said.append(f"runner-up {runner_up.candidate.id} against the recommended: {runner_up.trade}.")
    label = quality_label(candidate.predicted for candidate in _candidates(view))
    if label or view.perplexity_of:
        words = f"{label} ({view.perplexity_of})" if label and view.perplexity_of else label or view.perplexity_of
        said.append(f"Predicted perplexity: {words}.")
    return said


def commands(view: RecommendationView) -> dict[str, str]:
    """What downloads and trains the recommended model; empty where there is none. A part of a model is cut out of the
    folder that it was searched in, and healed.
    """
    chosen = view.recommended
    if chosen is None:
        return {}
    if view.inherit is not None and chosen.role != CandidateRole.BASELINE:
        return {
            "download": f"edgefront model download {chosen.id} --format architecture -o part.json",
            "cut": "edgefront inherit cut FOLDER --to part.json -o part",
            "train": f"edgefront train submit --candidate {chosen.id} --inherit --data DATA --watch",
        }
    return {
        "download": f"edgefront model download {chosen.id} {view.download}",
        "train": f"edgefront train submit --candidate {chosen.id} --watch",
    }


def recommendation_table(view: RecommendationView, protocol: MeasurementProtocol | None = None) -> Table:
    """The recommended model, the stock model under the same limits, and the runners-up; with the `protocol` that they
    were measured by also what ran them.
    """
    trained = {candidate.candidate_id: candidate.perplexity for candidate in view.trained}
    return models_table(_named_rows(view, view.runners_up), view.proxy, trained, protocol)


def _named_rows(view: RecommendationView, runners_up: Sequence[RunnerUpView]) -> list[tuple[str, CandidateView]]:
    """What each model is to the answer, and the model."""
    once = view.recommended is not None and view.recommended.launches < 2
    rows = [("provisional" if once else "recommended", view.recommended)]
    if view.baseline != view.recommended:
        rows.append(("my model" if view.own_model else "stock model", view.baseline))
    rows += [("runner-up", runner_up.candidate) for runner_up in runners_up]
    rows.append(("nearest", view.nearest))
    return [(name, candidate) for name, candidate in rows if candidate is not None]


def models_table(
    rows: Sequence[tuple[str, CandidateView]],
    proxy: str,
    trained: Mapping[str, float],
    protocol: MeasurementProtocol | None = None,
) -> Table:
    """A row for each candidate, under the name that it has. Its quality is what it reached in training (`trained`, by
    id), else what is predicted; where nothing is known of either, the job's `proxy`.
    """
    candidates = [candidate for _, candidate in rows]
    generates = any(candidate.token_ms is not None for candidate in candidates)
    times = ("first token ms", "further token ms") if generates else ()
    by_proxy, header = _quality_column(candidates, proxy, trained)
    numbers = ("parameters", header, "latency ms", *times, "memory MB")
    setup = (
        {}
        if protocol is None
        else {"runtime": protocol.runtime, "formats": formats_in_words(format_of(protocol), protocol.kv_cache)}
    )
    table = Table(
        *("", "model", "architecture", *setup, *numbers),
        right=numbers,
        wrap=("architecture",),
        drop_first=("architecture", "parameters", "memory MB", "first token ms"),
    )
    for name, candidate in rows:
        quality = f"{candidate.proxy:.6g}" if by_proxy else _perplexity(candidate, trained.get(candidate.id))
        table.add_row(
            name,
            candidate.id,
            architecture_in_words(candidate.architecture),
            *setup.values(),
            millions(candidate.decoder_parameters),
            quality,
            measured_latency(candidate),
            *((milliseconds(candidate.first_token_ms), milliseconds(candidate.token_ms)) if generates else ()),
            megabytes(candidate.memory_bytes),
            style={"recommended": "bold", "provisional": "bold", "runner-up": "dim"}.get(name),
        )
    return table


def _quality_column(candidates: Sequence[CandidateView], proxy: str, trained: Mapping[str, float]) -> tuple[bool, str]:
    """Whether the proxy stands in for a perplexity that nothing is known of, and the heading."""
    if not trained and all(candidate.predicted is None for candidate in candidates):
        return True, proxy.replace("_", " ")
    return False, quality_header(candidate.predicted for candidate in candidates).removeprefix("predicted ")


def _candidates(view: RecommendationView) -> list[CandidateView]:
    """All that the table shows."""
    rows = [view.recommended, view.baseline, *(runner_up.candidate for runner_up in view.runners_up), view.nearest]
    return [candidate for candidate in rows if candidate is not None]


def _perplexity(candidate: CandidateView, trained: float | None) -> str:
    """What was trained, `31.2 trained`, or what is predicted."""
    if trained is not None:
        return f"{trained:.4g} trained"
    return predicted_quality(candidate.predicted)
