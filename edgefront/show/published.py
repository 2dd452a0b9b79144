"""Published models as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from edgefront.core.published import PublishedView, ScoreTable
from edgefront.show.output import NONE, millions, table

if TYPE_CHECKING:
    from rich.console import Console

    from edgefront.show.fitting import FittingTable

_UNKNOWN = "unknown"
_UNITS = ((10**12, "T"), (10**9, "B"), (10**6, "M"))


def catalogue(models: Iterable[PublishedView]) -> FittingTable:
    """One row a model. Its parameters are counted where it has a description, else as stated (~)."""
    shown = table(
        *("id", "kind", "licence", "context", "parameters", "trained on", "tables", "description"),
        right=("context", "parameters", "trained on", "tables"),
        prose=("description",),
        less=("tables", "licence", "kind"),
    )
    for model in models:
        shown.add_row(
            model.id,
            model.kind,
            model.licence or _UNKNOWN,
            _UNKNOWN if model.context_length is None else f"{model.context_length:,}",
            _parameters(model),
            _UNKNOWN if model.training_tokens is None else tokens(model.training_tokens),
            str(len(model.scores)) if model.scores else NONE,
            "yes" if model.not_expressible is None else f"no: {model.not_expressible}",
        )
    return shown


def facts(model: PublishedView, tables: Mapping[str, ScoreTable], console: Console) -> None:
    """What is known of one model, and its scores, each table by itself."""

    def line(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    shown = table("fact", "value", "source", prose=("value", "source"), less=("source",))
    for name, field, value in (
        ("kind", "kind", model.kind),
        ("trained from", "base", model.base),
        ("licence", "licence", model.licence),
        ("context length", "context_length", None if model.context_length is None else f"{model.context_length:,}"),
        ("training tokens", "training_tokens", None if model.training_tokens is None else f"{model.training_tokens:,}"),
        ("parameters, stated", "parameters", model.parameters),
        ("parameters, counted", "", None if model.counted_parameters is None else f"{model.counted_parameters:,}"),
        ("vocabulary", "vocab_size", None if model.vocab_size is None else f"{model.vocab_size:,}"),
        ("architecture", "config", model.digest or NONE),
    ):
        if value is None and field == "base":
            continue
        shown.add_row(name, value or _UNKNOWN, model.sources.get(field, ""))
    console.print(shown)
    if model.not_expressible is not None:
        line(f"cannot be described: {model.not_expressible}")
    for note in model.notes:
        line(f"note: {note}")
    for score in model.scores:
        about = tables.get(score.table)
        weights = "" if score.weight_format is None else f", weights {score.weight_format}"
        line(f"{score.table}{weights}: {', '.join(f'{name} {value:g}' for name, value in score.values.items())}")
        if about is not None:
            line(f"  {about.protocol}; {about.source}; licence {about.licence or _UNKNOWN}")
        if score.note is not None:
            line(f"  {score.note}")
    if len(model.scores) > 1:
        line("Scores of different tables are not comparable, also where a benchmark has the same name.")


def tokens(count: int) -> str:
    """600B, 2T, 299.9B."""
    for unit, letter in _UNITS:
        if count >= unit:
            return f"{count / unit:.4g}{letter}"
    return str(count)


def _parameters(model: PublishedView) -> str:
    if model.counted_parameters is not None:
        return millions(model.counted_parameters)
    return _UNKNOWN if model.parameters is None else f"~{model.parameters}"
