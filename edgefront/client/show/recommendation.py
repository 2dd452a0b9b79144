"""Shows the recommended model of a job, and its alternatives, as text and tables."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from edgefront.client.show.frontier_table import predicted_quality, quality_header, quality_label
from edgefront.client.show.output import (
    MARKED,
    measured_latency,
    measured_times,
    megabytes,
    millions,
    standing_in_words,
)
from edgefront.client.show.table import Table
from edgefront.core.architectures.formatting import architecture_in_words, model_in_words
from edgefront.core.common.states import CandidateRole
from edgefront.core.measurement.variants import format_of, formats_in_words
from edgefront.core.schemas.candidates import CandidateView, Standings, TrainedView
from edgefront.core.schemas.recommendations import RecommendationView, RunnerUpView

if TYPE_CHECKING:
    from rich.console import Console

    from edgefront.core.measurement.protocol import MeasurementProtocol


SHORT_RUNNERS_UP = 2
"""Maximum number of runners-up shown without --explain."""
_STYLES = {"recommended": "bold", "provisional": "bold", "runner-up": "dim"}


def show(view: RecommendationView, console: Console, *, explain: bool = False) -> None:
    """Prints the recommendation: a sentence, a table of at most four models, and the next command. With `explain`,
    prints every model with its identifier, notes on the figures, and all commands.
    """

    def line(text: str, style: str | None = None) -> None:
        console.print(text, style=style, markup=False, soft_wrap=explain)

    line(f"{view.target}: {view.sentence}", "bold")
    if view.recommended is not None or view.nearest is not None:
        console.print(recommendation_table(view, every=explain))
    if not explain:
        for text in marks(view, SHORT_RUNNERS_UP):
            line(text, "dim")
        if command := commands(view).get("train"):
            console.print(f"next: {command}", markup=False, soft_wrap=True)
        return
    for text in notes(view):
        line(text, "dim")
    if view.note:
        line(view.note, "yellow")
    for title, command in commands(view).items():
        line(f"{title}: {command}")


def marks(view: RecommendationView, runners_up: int | None = None) -> list[str]:
    """Returns sentences that explain the marks in a table with this many runners-up (default: all)."""
    sentences = []
    trained = {candidate.candidate_id for candidate in view.trained}
    candidates = [candidate for _, candidate in _rows(view, view.runners_up[:runners_up])]
    if any(predicted_quality(each.predicted).endswith("*") for each in candidates if each.id not in trained):
        sentences.append("* extrapolated: the model lies beyond those that the scaling law was learnt from.")
    if any(candidate.marked for candidate in candidates):
        sentences.append(f"{MARKED}.")
    return sentences


def notes(view: RecommendationView) -> list[str]:
    """Returns sentences about the recommendation's table: marks, trade-offs, and the source of the perplexities."""
    sentences = marks(view)
    candidates = [candidate for _, candidate in _rows(view, view.runners_up)]
    for runner_up in view.runners_up:
        sentences.append(f"runner-up {runner_up.candidate.id} against the recommended: {runner_up.trade}.")
    label = quality_label(candidate.predicted for candidate in candidates)
    if label or view.perplexity_of:
        source = f"{label} ({view.perplexity_of})" if label and view.perplexity_of else label or view.perplexity_of
        sentences.append(f"Predicted perplexity: {source}.")
    return sentences


def commands(view: RecommendationView) -> dict[str, str]:
    """Returns commands for the recommended model as a mapping: purpose → command; empty without a recommendation. For a
    submodel, the commands prune it from the trained model's folder and recover its quality by training.
    """
    recommended = view.recommended
    if recommended is None:
        return {}
    if view.inherit is not None and recommended.role != CandidateRole.BASELINE:
        data = shlex.quote(view.inherit_data or "DATA")
        return {
            "download": f"edgefront model download {recommended.id} --format architecture -o part.json",
            "cut": "edgefront inherit cut FOLDER --to part.json -o part",
            "train": f"edgefront train submit --candidate {recommended.id} --inherit --data {data} --watch",
        }
    train = {"train": f"edgefront train submit {view.train} --watch"} if view.train else {}
    return {"download": f"edgefront model download {recommended.id} {view.download}", **train}


def recommendation_table(
    view: RecommendationView, protocol: MeasurementProtocol | None = None, *, every: bool = True
) -> Table:
    """Returns a table of the recommended model, the stock (default) model under the same limits, and the runners-up. A
    `protocol` adds columns of runtime and number formats. Without `every`: only the main rows and columns.
    """
    trained = {score.candidate_id: trained_quality(score) for score in view.trained}
    rows = _rows(view, view.runners_up[: None if every else SHORT_RUNNERS_UP])
    return models_table(rows, view.proxy, trained, protocol, view.standings, every=every)


def _rows(view: RecommendationView, runners_up: Sequence[RunnerUpView]) -> list[tuple[str, CandidateView]]:
    """Returns pairs: a model's first role in the recommendation, and the model."""
    measured_once = view.recommended is not None and view.recommended.launches < 2
    rows = [("provisional" if measured_once else "recommended", view.recommended)]
    if view.baseline != view.recommended:
        rows.append(("my model" if view.own_model else "baseline", view.baseline))
    if view.surest not in (view.recommended, view.baseline):
        rows.append(("surely within", view.surest))
    rows += [("runner-up", each.candidate) for each in runners_up if each.candidate not in [row for _, row in rows]]
    rows.append(("nearest", view.nearest))
    return [(name, candidate) for name, candidate in rows if candidate is not None]


def models_table(
    rows: Sequence[tuple[str, CandidateView]],
    proxy: str,
    trained: Mapping[str, str],
    protocol: MeasurementProtocol | None = None,
    standings: Standings | None = None,
    *,
    every: bool = True,
) -> Table:
    """Returns a table with one row per candidate; `rows` are pairs of a candidate's role and the candidate. The quality
    is the perplexity after training (`trained`: candidate's id → `trained_quality`), else the predicted one, else the
    job's `proxy`. `standings` add how the candidates stand to the limits. Without `every`: only the main columns.
    """
    candidates = [candidate for _, candidate in rows]
    generates = any(candidate.token_ms is not None for candidate in candidates)
    times = ("first token ms", "further token ms" if every else "token ms") if generates else ()
    latency = ("latency ms",) if every or not generates else ()
    by_proxy, header = _quality_column(candidates, proxy, trained)
    numbers = (*(("parameters",) if every else ()), header, *latency, *times, "memory MB")
    setup = (
        {}
        if protocol is None
        else {"runtime": protocol.runtime, "formats": formats_in_words(format_of(protocol), protocol.kv_cache)}
    )
    table = Table(
        *("", "model", *(("architecture",) if every else ()), *setup, *numbers, *(("limits",) if standings else ())),
        right=numbers,
        wrap=("architecture",) if every else ("model",),
        drop_first=("architecture", "parameters", *(("memory MB", "first token ms")[:: 1 if every else -1])),
    )
    for name, candidate in rows:
        quality = f"{candidate.proxy:.6g}" if by_proxy else _perplexity(candidate, trained)
        words = (candidate.id, architecture_in_words(candidate.architecture)) if every else ()
        table.add_row(
            name,
            *(words or (model_in_words(candidate.architecture),)),
            *setup.values(),
            *((millions(candidate.decoder_parameters),) if every else ()),
            quality,
            *((measured_latency(candidate),) if latency else ()),
            *(measured_times(candidate) if generates else ()),
            megabytes(candidate.memory_bytes),
            *([standing_in_words(standings.get(candidate.id))] if standings else []),
            style=_STYLES.get(name),
        )
    return table


def _quality_column(candidates: Sequence[CandidateView], proxy: str, trained: Mapping[str, str]) -> tuple[bool, str]:
    """Returns a pair: whether the column shows the proxy (no perplexity is known), and the column's heading."""
    if not trained and all(candidate.predicted is None for candidate in candidates):
        return True, proxy.replace("_", " ")
    return False, quality_header(candidate.predicted for candidate in candidates).removeprefix("predicted ")


def _perplexity(candidate: CandidateView, trained: Mapping[str, str]) -> str:
    return trained.get(candidate.id) or predicted_quality(candidate.predicted)


def trained_quality(score: TrainedView) -> str:
    """Formats a perplexity after training: `31.2 trained`, or `31.2 trained otherwise` if it ranks nothing."""
    return f"{score.perplexity:.4g} trained{'' if score.ranks else ' otherwise'}"
