"""Shows published models, and the recommendations of a job that searches published models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgefront.client.show.output import (
    MARKED,
    NONE,
    measured_latency,
    measured_times,
    megabytes,
    millions,
    standing_in_words,
)
from edgefront.client.show.table import Table
from edgefront.core.architectures.published import PublishedView, score_tables, stated_licence
from edgefront.core.common.units import plain
from edgefront.core.measurement.variants import formats_in_words
from edgefront.core.schemas.candidates import Standings
from edgefront.core.schemas.recommendations import ChoicesView, ChoiceView, OtherModelView

if TYPE_CHECKING:
    from rich.console import Console

    from edgefront.core.architectures.published import ScoreName


UNKNOWN = "unknown"


def catalogue_table(models: Sequence[PublishedView], scores: Sequence[ScoreName]) -> Table:
    """Returns a table of published models with these scores: by parameters, then those without a description."""
    table = Table(
        *("id", "kind", "licence", "context", "parameters", "trained on"),
        *(score.benchmark for score in scores),
        "description",
        right=("context", "parameters", "trained on", *(score.benchmark for score in scores)),
        wrap=("description",),
        drop_first=("trained on", "context", "kind"),
    )
    described = [model for model in models if model.not_expressible is None]
    others = [model for model in models if model.not_expressible is not None]
    for model in sorted(described, key=lambda model: model.counted_parameters or 0) + others:
        stated = UNKNOWN if model.parameters is None else f"~{model.parameters}"
        table.add_row(
            model.id,
            model.kind,
            stated_licence(model) or UNKNOWN,
            UNKNOWN if model.context_length is None else f"{model.context_length:,}",
            stated if model.counted_parameters is None else millions(model.counted_parameters),
            UNKNOWN if model.training_tokens is None else _short(model.training_tokens),
            *(NONE if (value := score.of(model)) is None else f"{value:g}" for score in scores),
            "yes" if model.not_expressible is None else f"no: {model.not_expressible}",
        )
    return table


def _short(tokens: int) -> str:
    """Formats a count of tokens, such as 600B, 2T or 299.9B."""
    for unit, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M")):
        if tokens >= unit:
            return f"{tokens / unit:.4g}{letter}"
    return str(tokens)


def show_facts(model: PublishedView, console: Console) -> None:
    """Prints size, licence and other facts about one published model, and its scores in each published result table."""

    def line(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    shown = Table("fact", "value", "source", wrap=("value", "source"), drop_first=("source",))
    for name, field, value in (
        ("kind", "kind", model.kind),
        ("trained from", "base", model.base),
        ("licence", "licence", stated_licence(model)),
        ("context length", "context_length", None if model.context_length is None else f"{model.context_length:,}"),
        ("training tokens", "training_tokens", None if model.training_tokens is None else f"{model.training_tokens:,}"),
        ("parameters, stated", "parameters", model.parameters),
        ("parameters, counted", "", None if model.counted_parameters is None else f"{model.counted_parameters:,}"),
        ("vocabulary", "vocab_size", None if model.vocab_size is None else f"{model.vocab_size:,}"),
        ("architecture", "config", model.digest or NONE),
    ):
        if value is None and field == "base":
            continue
        shown.add_row(name, value or UNKNOWN, model.sources.get(field, ""))
    console.print(shown)
    if model.not_expressible is not None:
        line(f"cannot be described: {model.not_expressible}")
    for note in model.notes:
        line(f"note: {note}")
    for score in model.scores:
        source = score_tables().get(score.table)
        weights = "" if score.weight_format is None else f", weights {score.weight_format}"
        line(f"{score.table}{weights}: {', '.join(f'{name} {value:g}' for name, value in score.values.items())}")
        if source is not None:
            line(f"  {source.protocol}; {source.source}; licence {source.licence or UNKNOWN}")
        if score.note is not None:
            line(f"  {score.note}")
    if len(model.scores) > 1:
        line("Scores of different tables are not comparable, also where a benchmark has the same name.")


MAX_OTHERS = 12
"""Maximum number of other models that a note names; JSON has all."""
MAX_CHOICES = 4
"""Maximum number of choices shown without --explain."""
LOCAL = "without network: a folder or GGUF file of the model in place of the id"


def show(view: ChoicesView, console: Console, *, explain: bool = False) -> None:
    """Prints each device's recommendation: a sentence, a table of a few choices, and the command that downloads the
    recommended model. With `explain`, also prints all choices, notes, and the user's own model.
    """

    def line(text: str, style: str | None = None) -> None:
        console.print(text, style=style, markup=False, soft_wrap=explain)

    for each in view.every:
        line(each.sentence, "bold")
        rows = choice_rows(each)
        if rows:
            benchmark = each.score.partition(":")[2]
            table_rows = rows if explain else rows[:MAX_CHOICES]
            console.print(choices_table(table_rows, benchmark, each.standings, every=explain))
        if not explain:
            for command in each.commands[:1]:
                console.print(f"next: {command}", markup=False, soft_wrap=True)
                line(LOCAL, "dim")
            continue
        for text in notes(each):
            line(text, "dim")
        if each.note:
            line(each.note, "yellow")
        for command in each.commands:
            line(command)
            line(LOCAL, "dim")
        if each.own is not None:
            line(each.own.sentence, "dim")
            line(each.own.command)


def notes(view: ChoicesView) -> list[str]:
    """Returns sentences about a table of choices: its marks, the trade-offs of the runners-up, the source of the
    figures, and models that the table omits.
    """
    sentences = []
    if any(choice.candidate.marked for _, choice in choice_rows(view)):
        sentences.append(f"{MARKED}.")
    for other in view.runners_up:
        name = f"{other.choice.model} {other.choice.weights} {other.choice.runtime}"
        sentences.append(f"{name} against the recommended: {other.trade}.")
    sentences += [f"Score: {view.score}. {view.score_about} ({view.score_source}).", view.measured]
    if view.same_architecture:
        sentences.append(f"Of the same architecture as one above: {_names(view.same_architecture, scored=True)}.")
    if view.unscored:
        sentences.append(f"Without a score in this table, not measured: {_names(view.unscored, scored=False)}.")
    return sentences


def choices_table(
    rows: Sequence[tuple[str, ChoiceView]], benchmark: str, standings: Standings, *, every: bool = True
) -> Table:
    """Returns a table with one row per choice (model, format and runtime) and how it stands to the limits; without
    `every`, the table has only the main columns.
    """
    generates = any(choice.candidate.token_ms is not None for _, choice in rows)
    times = {"latency ms": not generates or every, "first token ms": generates and every, "token ms": generates}
    figures = [name for name, is_shown in times.items() if is_shown]
    numbers = (benchmark, *figures, "memory MB")
    setup = ("weights", "runtime", "licence") if every else ("weights, runtime",)
    columns = ("", "model", *setup, *numbers, *(("limits",) if any(standings.values()) else ()))
    table = Table(*columns, right=numbers, wrap=("model",), drop_first=("licence", "latency ms"))
    for name, choice in rows:
        candidate = choice.candidate
        first_token, token = measured_times(candidate)
        measured = {
            "latency ms": measured_latency(candidate),
            "first token ms": first_token,
            "token ms": token,
        }
        formats = formats_in_words(choice.weights, choice.kv_cache)
        variant = (formats, choice.runtime, choice.licence or UNKNOWN)
        table.add_row(
            name,
            choice.model,
            *(variant if every else (", ".join(variant[:2]),)),
            plain(choice.score),
            *(measured[figure] for figure in figures),
            megabytes(candidate.memory_bytes),
            *([standing_in_words(standings.get(candidate.id))] if "limits" in columns else []),
            style={"recommended": "bold", "surely within": "bold", "frontier": "dim"}.get(name),
        )
    return table


def choice_rows(view: ChoicesView) -> list[tuple[str, ChoiceView]]:
    """Returns pairs: the first role of a choice (model, format and runtime) in the recommendation, and the choice."""
    named = [("recommended", view.recommended), ("surely within", view.surest)]
    named += [("runner-up", other.choice) for other in view.runners_up]
    named += [("frontier", choice) for choice in view.frontier] + [("nearest", view.nearest)]
    rows: dict[str, tuple[str, ChoiceView]] = {}
    for name, choice in named:
        if choice is not None:
            rows.setdefault(choice.candidate.id, (name, choice))
    return list(rows.values())


def _names(models: Sequence[OtherModelView], *, scored: bool) -> str:
    words = [
        f"{model.model} ({plain(model.score) if scored and model.score is not None else millions(model.parameters)})"
        for model in models
    ]
    more = [] if len(words) <= MAX_OTHERS else [f"{len(words) - MAX_OTHERS} more"]
    return ", ".join([*words[:MAX_OTHERS], *more])
