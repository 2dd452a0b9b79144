"""The answer of a job among published models as people read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgefront.core.measurement.variants import formats_in_words
from edgefront.core.units import plain
from edgefront.core.wire.recommendations import ChoicesView, ChoiceView, OtherModelView
from edgefront.show.output import MARKED, measured_latency, megabytes, millions, milliseconds, table

if TYPE_CHECKING:
    from rich.console import Console

    from edgefront.show.fitting import FittingTable

MAX_OTHERS = 12
"""Models without a score that are named; all of them are in JSON."""


SHOWN = 4
"""Choices of an answer at a glance."""


def show(view: ChoicesView, console: Console, *, explain: bool = False) -> None:
    """The answer of each device at a glance: a sentence, a few choices beside each other, and how to get the
    recommended one. With `explain` all choices, what is not known, and the user's own model among them.
    """
    for each in view.every:
        _show(each, console, explain)


def _show(view: ChoicesView, console: Console, explain: bool) -> None:
    def line(text: str, style: str | None = None) -> None:
        console.print(text, style=style, markup=False, soft_wrap=explain)

    line(view.sentence, "bold")
    rows = choice_rows(view)
    if rows:
        console.print(choices_table(rows if explain else rows[:SHOWN], view.score.partition(":")[2], every=explain))
    if not explain:
        for command in view.commands[:1]:
            console.print(f"next: {command}", markup=False, soft_wrap=True)
        return
    for text in notes(view):
        line(text, "dim")
    if view.note:
        line(view.note, "yellow")
    for command in view.commands:
        line(command)
    if view.own is not None:
        line(view.own.sentence, "dim")
        line(view.own.command)


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


def choices_table(rows: Sequence[tuple[str, ChoiceView]], benchmark: str, *, every: bool = True) -> FittingTable:
    """A row a choice; without `every` the six columns that matter most."""
    generates = any(choice.candidate.token_ms is not None for _, choice in rows)
    times = {"latency ms": not generates or every, "first token ms": generates and every, "token ms": generates}
    figures = [name for name, is_shown in times.items() if is_shown]
    numbers = (benchmark, *figures, "memory MB")
    how = ("weights", "runtime", "licence") if every else ("weights, runtime",)
    shown = table("", "model", *how, *numbers, right=numbers, prose=("model",), less=("licence", "latency ms"))
    for name, choice in rows:
        candidate = choice.candidate
        measured = {
            "latency ms": measured_latency(candidate),
            "first token ms": milliseconds(candidate.first_token_ms),
            "token ms": milliseconds(candidate.token_ms),
        }
        formats = formats_in_words(choice.weights, choice.kv_cache)
        setup = (formats, choice.runtime, choice.licence or "unknown")
        shown.add_row(
            name,
            choice.model,
            *(setup if every else (", ".join(setup[:2]),)),
            plain(choice.score),
            *(measured[figure] for figure in figures),
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
