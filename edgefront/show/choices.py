"""The answer of a job among published models as people read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgefront.core.measurement.variants import formats_in_words
from edgefront.core.units import plain
from edgefront.core.wire.choices import ChoicesView, ChoiceView, OtherModelView
from edgefront.show.output import MARKED, measured_latency, megabytes, millions, milliseconds, table

if TYPE_CHECKING:
    from rich.console import Console

    from edgefront.show.fitting import FittingTable

MAX_OTHERS = 12
"""Models without a score that are named; all of them are in JSON."""


def show(view: ChoicesView, console: Console) -> None:
    """The choices beside each other, what is not known, how to get the recommended one, and the answer in one
    sentence.
    """

    def line(text: str, style: str | None = None) -> None:
        console.print(text, style=style, markup=False, soft_wrap=True)

    rows = choice_rows(view)
    if rows:
        console.print(choices_table(rows, view.score.partition(":")[2]))
    for text in notes(view):
        line(text, "dim")
    if view.note:
        line(view.note, "yellow")
    for command in view.commands:
        line(command)
    if view.own is not None:
        line(view.own.sentence, "dim")
        line(view.own.command)
    line(view.sentence, "bold")


def notes(view: ChoicesView) -> list[str]:
    """What a reader of the table should know, a sentence each: marks, trades of the runners-up, what the figures are
    of, and which models stand apart.
    """
    said = []
    if any(choice.candidate.marked for _, choice in choice_rows(view)):
        said.append(f"{MARKED}.")
    for other in view.runners_up:
        said.append(f"{choice_name(other.choice)} against the recommended: {other.trade}.")
    said += [f"Score: {view.score}. {view.score_about} ({view.score_source}).", view.measured]
    if view.same_architecture:
        said.append(f"Of the same architecture as one above: {_named(view.same_architecture, scored=True)}.")
    if view.unscored:
        said.append(f"Without a score in this table, not measured: {_named(view.unscored, scored=False)}.")
    return said


def choices_table(rows: Sequence[tuple[str, ChoiceView]], benchmark: str) -> FittingTable:
    """A row a choice."""
    generates = any(choice.candidate.token_ms is not None for _, choice in rows)
    times = ("first token ms", "further token ms") if generates else ()
    numbers = (benchmark, "latency ms", *times, "memory MB")
    shown = table(
        *("", "model", "weights", "runtime", "licence", *numbers),
        right=numbers,
        prose=("model",),
        less=("licence", "latency ms") if generates else ("licence",),
    )
    for name, choice in rows:
        candidate = choice.candidate
        shown.add_row(
            name,
            choice.model,
            formats_in_words(choice.weights, choice.kv_cache),
            choice.runtime,
            choice.licence or "unknown",
            plain(choice.score),
            measured_latency(candidate),
            *((milliseconds(candidate.first_token_ms), milliseconds(candidate.token_ms)) if generates else ()),
            megabytes(candidate.memory_bytes),
            style={"recommended": "bold", "frontier": "dim"}.get(name),
        )
    return shown


def choice_rows(view: ChoicesView) -> list[tuple[str, ChoiceView]]:
    """Each choice once, under the first name that it has."""
    named = [("recommended", view.recommended)]
    named += [("runner-up", other.choice) for other in view.runners_up]
    named += [("frontier", choice) for choice in view.frontier] + [("nearest", view.nearest)]
    rows: dict[str, tuple[str, ChoiceView]] = {}
    for name, choice in named:
        if choice is not None:
            rows.setdefault(choice.candidate.id, (name, choice))
    return list(rows.values())


def choice_name(choice: ChoiceView) -> str:
    return f"{choice.model} {choice.weights} {choice.runtime}"


def _named(models: Sequence[OtherModelView], *, scored: bool) -> str:
    words = [
        f"{model.model} ({plain(model.score) if scored and model.score is not None else millions(model.parameters)})"
        for model in models
    ]
    more = [] if len(words) <= MAX_OTHERS else [f"{len(words) - MAX_OTHERS} more"]
    return ", ".join([*words[:MAX_OTHERS], *more])
